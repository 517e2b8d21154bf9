//! An in-memory container runtime that fails on request.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use prost::Message;

pub use super::grpc::Answer;
use super::grpc::Server;
use super::messages as cri;

/// gRPC status codes that are used here.
pub mod code {
    pub const UNKNOWN: u32 = 2;
    pub const NOT_FOUND: u32 = 5;
    pub const RESOURCE_EXHAUSTED: u32 = 8;
    pub const UNIMPLEMENTED: u32 = 12;
    pub const UNAVAILABLE: u32 = 14;
}

type Rule = Box<dyn FnMut(&mut State, &str, &str) -> Option<Answer> + Send>;

/// State of the runtime, and the calls that it received.
pub struct State {
    pub images: Vec<cri::Image>,
    pub containers: Vec<cri::Container>,
    pub sandboxes: Vec<cri::PodSandbox>,
    pub log_paths: HashMap<String, String>,
    /// Digests of the layers of images, by identifier.
    pub layers: HashMap<String, Vec<String>>,
    /// Path of the image filesystem.
    pub filesystem: String,
    pub ready: bool,
    /// Size above which messages are refused, like containerd refuses those over 16 MiB.
    pub send_limit: usize,
    /// Number of items in one message of a streaming list; `None` if it has no streaming lists.
    pub stream_chunk: Option<usize>,
    /// Prefix of the service, such as `runtime.v1.`.
    pub api: &'static str,
    /// Every call, with the object that it names.
    pub calls: Vec<(String, String)>,
    rule: Option<Rule>,
}

impl State {
    /// Sets a function that is called before each call is answered; its result is the answer.
    pub fn rule(&mut self, rule: impl FnMut(&mut Self, &str, &str) -> Option<Answer> + Send + 'static) {
        self.rule = Some(Box::new(rule));
    }

    pub fn no_rule(&mut self) {
        self.rule = None;
    }

    /// Returns the objects named in calls of this method.
    pub fn called(&self, method: &str) -> Vec<String> {
        self.calls.iter().filter(|(name, _)| name == method).map(|(_, what)| what.clone()).collect()
    }

    fn answer(&mut self, path: &str, body: &[u8]) -> Answer {
        let method = path.rsplit('/').next().unwrap_or_default().to_owned();
        let named = named(&method, body);
        self.calls.push((method.clone(), named.clone()));
        if !path.trim_start_matches('/').starts_with(self.api) {
            return Answer::failure(code::UNIMPLEMENTED, "unknown service");
        }
        if let Some(mut rule) = self.rule.take() {
            let found = rule(self, &method, &named);
            if self.rule.is_none() {
                self.rule = Some(rule);
            }
            if let Some(answer) = found {
                return answer;
            }
        }
        let answer = self.plain_answer(&method, &named, body);
        match answer {
            Answer::Messages(messages) if messages.iter().any(|message| message.len() > self.send_limit) => {
                Answer::failure(code::RESOURCE_EXHAUSTED, "grpc: trying to send message larger than max")
            }
            other => other,
        }
    }

    fn plain_answer(&mut self, method: &str, named: &str, body: &[u8]) -> Answer {
        match method {
            "Version" => Answer::one(&cri::Version {
                version: "0.1.0".into(),
                runtime_name: "fake".into(),
                runtime_version: "1".into(),
                runtime_api_version: "v1".into(),
            }),
            "Status" => {
                let condition = cri::RuntimeCondition { r#type: "RuntimeReady".into(), status: self.ready };
                Answer::one(&cri::StatusResponse {
                    status: Some(cri::RuntimeStatus { conditions: vec![condition] }),
                })
            }
            "ListImages" => Answer::one(&cri::ListImagesResponse { images: self.images.clone() }),
            "StreamImages" => {
                let images = self.images.clone();
                self.stream(&images, |images| cri::ListImagesResponse { images }.encode_to_vec())
            }
            "ImageStatus" => {
                let image = self.images.iter().find(|image| image.id == named).cloned();
                let layers = self.layers.get(named).map(|digests| {
                    let info = format!(r#"{{"imageSpec":{{"rootfs":{{"diff_ids":{digests:?}}}}}}}"#);
                    ("info".to_owned(), info)
                });
                Answer::one(&cri::ImageStatusResponse { image, info: layers.into_iter().collect() })
            }
            "RemoveImage" => {
                self.images.retain(|image| image.id != named);
                Answer::one(&cri::Empty {})
            }
            "ImageFsInfo" => {
                let fs_id = Some(cri::FilesystemIdentifier { mountpoint: self.filesystem.clone() });
                let image_filesystems = vec![cri::FilesystemUsage { fs_id }];
                Answer::one(&cri::ImageFsInfoResponse { image_filesystems, ..Default::default() })
            }
            "ListContainers" => {
                let containers = self.filtered_containers(body);
                Answer::one(&cri::ListContainersResponse { containers })
            }
            "StreamContainers" => {
                let containers = self.filtered_containers(body);
                self.stream(&containers, |containers| {
                    cri::ListContainersResponse { containers }.encode_to_vec()
                })
            }
            "ListPodSandbox" => {
                Answer::one(&cri::ListPodSandboxResponse { items: self.filtered_sandboxes(body) })
            }
            "StreamPodSandboxes" => {
                let items = self.filtered_sandboxes(body);
                self.stream(&items, |items| cri::ListPodSandboxResponse { items }.encode_to_vec())
            }
            "ContainerStatus" => self.container_status(named),
            "StopContainer" | "StopPodSandbox" => Answer::one(&cri::Empty {}),
            "RemoveContainer" => {
                self.containers.retain(|container| container.id != named);
                Answer::one(&cri::Empty {})
            }
            "RemovePodSandbox" => {
                self.sandboxes.retain(|sandbox| sandbox.id != named);
                Answer::one(&cri::Empty {})
            }
            // A stream that ends immediately, like CRI-O's unless it is configured to send events.
            "GetContainerEvents" => Answer::Messages(Vec::new()),
            _ => Answer::failure(code::UNIMPLEMENTED, "unknown method"),
        }
    }

    fn stream<T: Clone>(&self, items: &[T], encode: impl Fn(Vec<T>) -> Vec<u8>) -> Answer {
        match self.stream_chunk {
            Some(chunk) => Answer::Messages(items.chunks(chunk).map(|part| encode(part.to_vec())).collect()),
            None => Answer::failure(code::UNIMPLEMENTED, "unknown method"),
        }
    }

    fn filtered_containers(&self, body: &[u8]) -> Vec<cri::Container> {
        let filter = cri::ListContainersRequest::decode(body).unwrap_or_default().filter.unwrap_or_default();
        let keep = |one: &&cri::Container| {
            filter.state.as_ref().is_none_or(|wanted| wanted.state == one.state)
                && (filter.pod_sandbox_id.is_empty() || filter.pod_sandbox_id == one.pod_sandbox_id)
        };
        self.containers.iter().filter(keep).cloned().collect()
    }

    fn filtered_sandboxes(&self, body: &[u8]) -> Vec<cri::PodSandbox> {
        let filter = cri::ListPodSandboxRequest::decode(body).unwrap_or_default().filter.unwrap_or_default();
        let keep =
            |one: &&cri::PodSandbox| filter.state.as_ref().is_none_or(|wanted| wanted.state == one.state);
        self.sandboxes.iter().filter(keep).cloned().collect()
    }

    fn container_status(&self, id: &str) -> Answer {
        let Some(container) = self.containers.iter().find(|container| container.id == id) else {
            return Answer::failure(code::NOT_FOUND, "no such container");
        };
        Answer::one(&cri::ContainerStatusResponse {
            status: Some(cri::ContainerStatus {
                id: id.into(),
                state: container.state,
                image: container.image.clone(),
                image_ref: container.image_ref.clone(),
                annotations: container.annotations.clone(),
                mounts: Vec::new(),
                log_path: self.log_paths.get(id).cloned().unwrap_or_default(),
            }),
        })
    }
}

/// Returns the image, container or sandbox that a request names.
fn named(method: &str, body: &[u8]) -> String {
    match method {
        "ImageStatus" | "RemoveImage" => {
            cri::ImageRequest::decode(body).ok().and_then(|request| request.image).unwrap_or_default().image
        }
        "ContainerStatus" | "StopContainer" | "RemoveContainer" | "StopPodSandbox" | "RemovePodSandbox" => {
            cri::ById::decode(body).unwrap_or_default().id
        }
        _ => String::new(),
    }
}

/// A fake runtime that serves until it is dropped.
pub struct Fake {
    pub socket: PathBuf,
    server: Server,
    state: Arc<Mutex<State>>,
    folder: tempfile::TempDir,
}

impl Fake {
    /// Starts an empty runtime.
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let state = State {
            images: Vec::new(),
            containers: Vec::new(),
            sandboxes: Vec::new(),
            log_paths: HashMap::new(),
            layers: HashMap::new(),
            filesystem: folder.path().display().to_string(),
            ready: true,
            send_limit: usize::MAX,
            stream_chunk: None,
            api: "runtime.v1.",
            calls: Vec::new(),
            rule: None,
        };
        let socket = folder.path().join("cri.sock");
        let state = Arc::new(Mutex::new(state));
        let answering = Arc::clone(&state);
        let answers = move |path: &str, body: &[u8]| answering.lock().unwrap().answer(path, body);
        let server = Server::start(socket.clone(), answers);
        Self { socket, server, state, folder }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// Stops, closing all connections; after this returns, nothing answers any more.
    pub fn stop(&mut self) {
        self.server.stop();
    }

    /// Listens (again).
    pub fn listen(&mut self) {
        self.server.listen();
    }
}

/// Returns an image `sha256:000…number` of this many bytes.
pub fn image(number: u64, size: u64) -> cri::Image {
    cri::Image {
        id: image_id(number),
        repo_tags: vec![format!("registry.example/image-{number}:v1")],
        repo_digests: vec![format!("registry.example/image-{number}@sha256:{:064x}", number + 0xd000)],
        size,
        pinned: false,
    }
}

pub fn image_id(number: u64) -> String {
    format!("sha256:{number:064x}")
}

/// Returns a container created by the kubelet, in `sandbox-POD`, with the image of this number.
pub fn container(pod: &str, name: &str, attempt: u32, state: i32, image: u64) -> cri::Container {
    let labels =
        [("pod.name", pod), ("pod.namespace", "default"), ("pod.uid", pod), ("container.name", name)];
    cri::Container {
        id: format!("container-{pod}-{name}-{attempt}"),
        pod_sandbox_id: format!("sandbox-{pod}"),
        metadata: Some(cri::ContainerMetadata { name: name.into(), attempt }),
        image: Some(cri::ImageSpec { image: image_id(image) }),
        image_ref: image_id(image),
        state,
        created_at: 1_000_000_000 * (1 + i64::from(attempt)),
        labels: labels
            .iter()
            .map(|(key, value)| (format!("io.kubernetes.{key}"), (*value).to_owned()))
            .collect(),
        annotations: HashMap::new(),
        image_id: String::new(),
    }
}

/// Returns a sandbox `sandbox-POD` created by the kubelet.
pub fn sandbox(pod: &str, state: i32) -> cri::PodSandbox {
    let labels = [("name", pod), ("namespace", "default"), ("uid", pod)];
    cri::PodSandbox {
        id: format!("sandbox-{pod}"),
        metadata: Some(cri::PodSandboxMetadata {
            name: pod.into(),
            uid: pod.into(),
            namespace: "default".into(),
            attempt: 0,
        }),
        state,
        created_at: 1_000_000_000,
        labels: labels
            .iter()
            .map(|(key, value)| (format!("io.kubernetes.pod.{key}"), (*value).to_owned()))
            .collect(),
        annotations: [("kubernetes.io/config.source".to_owned(), "api".to_owned())].into(),
    }
}
