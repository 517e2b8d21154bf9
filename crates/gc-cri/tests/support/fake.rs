//! A container runtime that lives in memory and fails on request. It speaks gRPC over HTTP/2 on a Unix
//! socket, frame by frame, so that a test can break a stream in the middle, answer late, or never.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::{BufMut, Bytes, BytesMut};
use futures::StreamExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixListener;

use super::messages as cri;

/// The gRPC status codes that are used here.
pub mod code {
    pub const UNKNOWN: u32 = 2;
    pub const NOT_FOUND: u32 = 5;
    pub const RESOURCE_EXHAUSTED: u32 = 8;
    pub const UNIMPLEMENTED: u32 = 12;
    pub const UNAVAILABLE: u32 = 14;
}

/// The runtime's answer to one call.
#[derive(Clone, Debug)]
pub enum Answer {
    /// These messages, and success.
    Messages(Vec<Vec<u8>>),
    /// These messages, and then the connection breaks.
    Broken(Vec<Vec<u8>>),
    /// A failure with code and text.
    Failure(u32, String),
    /// No answer, ever.
    Silence,
}

impl Answer {
    pub fn one(message: &impl Message) -> Self {
        Self::Messages(vec![message.encode_to_vec()])
    }

    pub fn failure(code: u32, text: &str) -> Self {
        Self::Failure(code, text.to_owned())
    }
}

type Rule = Box<dyn FnMut(&mut State, &str, &str) -> Option<Answer> + Send>;

/// The state of the runtime, and the calls that it received.
pub struct State {
    pub images: Vec<cri::Image>,
    pub containers: Vec<cri::Container>,
    pub sandboxes: Vec<cri::PodSandbox>,
    pub log_paths: HashMap<String, String>,
    /// Digests of the layers of images, by identifier.
    pub layers: HashMap<String, Vec<String>>,
    /// The image filesystem.
    pub filesystem: String,
    pub ready: bool,
    /// Messages longer than this are refused, as containerd refuses those over 16 MiB.
    pub send_limit: usize,
    /// Items in one message of a streaming list; `None` if it has no streaming lists.
    pub stream_chunk: Option<usize>,
    /// The service's prefix, such as `runtime.v1.`.
    pub api: &'static str,
    /// Every call, with the object that it names.
    pub calls: Vec<(String, String)>,
    rule: Option<Rule>,
}

impl State {
    /// Called before each call is answered; its result is the answer.
    pub fn rule(&mut self, rule: impl FnMut(&mut Self, &str, &str) -> Option<Answer> + Send + 'static) {
        self.rule = Some(Box::new(rule));
    }

    pub fn no_rule(&mut self) {
        self.rule = None;
    }

    /// The objects named in calls of this method.
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
            // A stream that ends at once, as CRI-O's does unless it is configured to send events.
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

/// The image, container or sandbox that a request names.
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
    state: Arc<Mutex<State>>,
    runtime: Option<tokio::runtime::Runtime>,
    folder: tempfile::TempDir,
}

impl Fake {
    /// Starts an empty one.
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
        let mut fake = Self { socket, state: Arc::new(Mutex::new(state)), runtime: None, folder };
        fake.listen();
        fake
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

    /// Stops, closing all connections; when this returns, nothing answers any more.
    pub fn stop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // On a thread of its own, since the test may be asynchronous, where blocking is forbidden.
            let ending =
                std::thread::spawn(move || runtime.shutdown_timeout(std::time::Duration::from_secs(5)));
            ending.join().unwrap();
        }
        let _ = std::fs::remove_file(&self.socket);
    }

    /// Listens (again).
    pub fn listen(&mut self) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = {
            let _entered = runtime.enter();
            UnixListener::bind(&self.socket).unwrap()
        };
        let state = Arc::clone(&self.state);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&state);
                tokio::spawn(async move {
                    let service =
                        hyper::service::service_fn(move |request| serve(Arc::clone(&state), request));
                    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        self.runtime = Some(runtime);
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.stop();
    }
}

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

async fn serve(
    state: Arc<Mutex<State>>,
    request: http::Request<Incoming>,
) -> Result<http::Response<Body>, std::io::Error> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
    let answer = state.lock().unwrap().answer(&path, body.get(5..).unwrap_or_default());
    let ok = || -> Result<Frame<Bytes>, std::io::Error> {
        let mut trailers = http::HeaderMap::new();
        trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
        Ok(Frame::trailers(trailers))
    };
    let data = |message: Vec<u8>| Ok(Frame::data(frame(&message)));
    let response = http::Response::builder().header("content-type", "application/grpc");
    let (response, frames) = match answer {
        Answer::Messages(messages) => {
            (response, messages.into_iter().map(data).chain([ok()]).collect::<Vec<_>>())
        }
        Answer::Broken(messages) => {
            let broken = Err(std::io::Error::other("broken on purpose"));
            (response, messages.into_iter().map(data).chain([broken]).collect())
        }
        Answer::Failure(code, text) => {
            (response.header("grpc-status", code.to_string()).header("grpc-message", text), Vec::new())
        }
        Answer::Silence => std::future::pending().await,
    };
    // Each frame separately, so that the frames before a break are really sent.
    let frames = futures::stream::iter(frames).then(|frame| async {
        tokio::task::yield_now().await;
        frame
    });
    response.body(UnsyncBoxBody::new(StreamBody::new(frames))).map_err(std::io::Error::other)
}

/// gRPC's frame: not compressed, length, message.
fn frame(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap());
    frame.put_slice(message);
    frame.freeze()
}

/// An image `sha256:000…number` of this many bytes.
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

/// A container created by the kubelet, in `sandbox-POD`, with the image of this number.
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

/// A sandbox `sandbox-POD` created by the kubelet.
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
