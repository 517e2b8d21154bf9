//! Calls to the runtime.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt};
use gc_collectors::containers::{ContainerId, ContainerState, Sandbox, SandboxId};
use gc_collectors::images::{Image, ImageId, LayerId};
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint as Transport, Uri};
use tonic_prost::ProstCodec;

use crate::error::CriError;
use crate::listing::{self, ContainerEvent, ListedContainer, ListedImages, ManagedLabel};
use crate::{Endpoint, protocol};

/// Maximum size of an answer. CRI-O sends up to 80 MiB; gRPC's own default of 4 MiB is far too small.
const MAX_ANSWER_BYTES: usize = 128 << 20;
/// Maximum wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Minimum grace period for a container in an unknown state.
const MIN_STOP_GRACE_SECONDS: i64 = 2;
/// Handshake version that the kubelet uses.
const HANDSHAKE_VERSION: &str = "0.1.0";

/// Options of the client.
#[derive(Clone, Debug)]
pub struct Options {
    /// Timeout of each call (`runtimeRequestTimeout`).
    pub request_timeout: Duration,
    /// Label that marks foreign sandboxes and containers as managed.
    pub managed_label: Option<ManagedLabel>,
    /// Called after every call.
    pub observer: CallObserver,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            request_timeout: Duration::from_mins(2),
            managed_label: None,
            observer: CallObserver::default(),
        }
    }
}

/// Called after every call, with its method, its duration, and whether it failed. Does nothing by default.
#[derive(Clone)]
pub struct CallObserver(Arc<dyn Fn(&'static str, Duration, bool) + Send + Sync>);

impl CallObserver {
    /// Creates an observer that calls this function.
    pub fn new(observe: impl Fn(&'static str, Duration, bool) + Send + Sync + 'static) -> Self {
        Self(Arc::new(observe))
    }
}

impl Default for CallObserver {
    fn default() -> Self {
        Self::new(|_, _, _| {})
    }
}

impl std::fmt::Debug for CallObserver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CallObserver")
    }
}

/// The answering runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeVersion {
    /// Name, such as `containerd`.
    pub name: String,
    /// Version of the runtime.
    pub version: String,
}

/// Facts that only the status of a container contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerDetails {
    /// State of the container.
    pub state: ContainerState,
    /// Path of its log; empty if it has none.
    pub log_path: String,
    /// References of the images that it mounts.
    pub volumes: Vec<Arc<str>>,
    /// Grace period in seconds that the kubelet recorded for stopping it, if it did.
    pub grace_period_seconds: Option<i64>,
}

/// A client of one runtime. Cheap to clone; all clones share one connection, which is reopened when it
/// breaks.
#[derive(Clone, Debug)]
pub struct CriClient {
    endpoint: Endpoint,
    channel: Channel,
    options: Options,
    /// Name by which the runtime calls itself.
    runtime: Arc<str>,
    /// True once the runtime is known to have no streaming lists, so that they are tried only once.
    unary_lists_only: Arc<AtomicBool>,
}

impl CriClient {
    /// Connects and performs the handshake. Fails with one clear reason: no answer, no permission, not CRI.
    pub async fn connect(endpoint: Endpoint, options: Options) -> Result<(Self, RuntimeVersion), CriError> {
        // The connection itself is made lazily, and again after a restart; this first attempt finds errors early.
        Self::reach(&endpoint).await?;
        let path = endpoint.path().to_owned();
        let connector = tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        // The authority must be a plain host name: some servers refuse one that looks like a path.
        let channel = Transport::from_static("http://localhost")
            .connect_timeout(CONNECT_TIMEOUT)
            .connect_with_connector_lazy(connector);
        let runtime = Arc::from("");
        let client = Self { endpoint, channel, options, runtime, unary_lists_only: Arc::default() };
        let version = client.version().await?;
        Ok((Self { runtime: version.name.as_str().into(), ..client }, version))
    }

    /// Reports whether something listens at an endpoint, and this process may connect to it. Never waits for an
    /// answer.
    pub async fn reach(endpoint: &Endpoint) -> Result<(), CriError> {
        let reached = UnixStream::connect(endpoint.path()).await;
        reached.map(drop).map_err(|error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => CriError::PermissionDenied { endpoint: endpoint.clone() },
            _ => CriError::Unreachable { endpoint: endpoint.clone(), why: error.to_string() },
        })
    }

    /// Returns the endpoint that it is connected to.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Performs the handshake.
    pub async fn version(&self) -> Result<RuntimeVersion, CriError> {
        let request = protocol::VersionRequest { version: HANDSHAKE_VERSION.into() };
        let not_cri = |why: String| CriError::NotCri { endpoint: self.endpoint.clone(), why };
        let answer: protocol::VersionResponse =
            match self.call("runtime.v1.RuntimeService/Version", request).await {
                Err(CriError::Unimplemented { .. }) => {
                    return Err(not_cri("it does not know runtime.v1; v1alpha2 alone is not enough".into()));
                }
                // Bytes that are not HTTP/2 break the connection; a runtime that is starting answers with a status.
                Err(CriError::Unavailable { message, .. } | CriError::Refused { message, .. })
                    if message.contains("transport error") || message.contains("h2 protocol") =>
                {
                    return Err(not_cri(message));
                }
                other => other?,
            };
        if answer.runtime_name.is_empty()
            || answer.runtime_version.is_empty()
            || answer.runtime_api_version.is_empty()
            || answer.version != HANDSHAKE_VERSION
        {
            return Err(not_cri(format!("unexpected answer to the version handshake: {answer:?}")));
        }
        Ok(RuntimeVersion { name: answer.runtime_name, version: answer.runtime_version })
    }

    /// Reports whether the runtime says that it is ready; nothing is removed while it does not.
    pub async fn is_ready(&self) -> Result<bool, CriError> {
        let request = protocol::StatusRequest { verbose: false };
        let answer: protocol::StatusResponse = self.call("runtime.v1.RuntimeService/Status", request).await?;
        let conditions = answer.status.map(|status| status.conditions).unwrap_or_default();
        Ok(conditions.iter().any(|condition| condition.r#type == "RuntimeReady" && condition.status))
    }

    /// Returns all images.
    pub async fn images(&self) -> Result<ListedImages, CriError> {
        let streamed = self
            .list_streamed("runtime.v1.ImageService/StreamImages", protocol::ListImagesRequest {})
            .await?;
        let listed = if let Some(parts) = streamed {
            parts.into_iter().flat_map(|part: protocol::ListImagesResponse| part.images).collect()
        } else {
            let answer: protocol::ListImagesResponse =
                self.call("runtime.v1.ImageService/ListImages", protocol::ListImagesRequest {}).await?;
            answer.images
        };
        Ok(listing::images(listed))
    }

    /// Returns all sandboxes.
    pub async fn sandboxes(&self) -> Result<Vec<Sandbox>, CriError> {
        let request = protocol::ListPodSandboxRequest { filter: None };
        let streamed =
            self.list_streamed("runtime.v1.RuntimeService/StreamPodSandboxes", request.clone()).await?;
        let listed = match streamed {
            Some(parts) => {
                parts.into_iter().flat_map(|part: protocol::ListPodSandboxResponse| part.items).collect()
            }
            None => match self.list_sandboxes(request).await {
                Err(CriError::TooLarge { .. }) => self.sandboxes_by_state().await?,
                other => other?,
            },
        };
        Ok(listing::sandboxes(listed, self.options.managed_label.as_ref()))
    }

    async fn list_sandboxes(
        &self,
        request: protocol::ListPodSandboxRequest,
    ) -> Result<Vec<protocol::PodSandbox>, CriError> {
        let answer: protocol::ListPodSandboxResponse =
            self.call("runtime.v1.RuntimeService/ListPodSandbox", request).await?;
        Ok(answer.items)
    }

    async fn sandboxes_by_state(&self) -> Result<Vec<protocol::PodSandbox>, CriError> {
        let mut all = HashMap::new();
        for state in [protocol::PodSandboxState::Ready, protocol::PodSandboxState::NotReady] {
            let state = Some(protocol::StateValue { state: state as i32 });
            let filter = Some(protocol::PodSandboxFilter { state });
            let part = self.list_sandboxes(protocol::ListPodSandboxRequest { filter }).await?;
            all.extend(part.into_iter().map(|sandbox| (sandbox.id.clone(), sandbox)));
        }
        Ok(all.into_values().collect())
    }

    /// Returns all containers, in every state. `sandboxes` decides which of them are managed, and splits the list if it is too long
    /// for one message.
    pub async fn containers(&self, sandboxes: &[Sandbox]) -> Result<Vec<ListedContainer>, CriError> {
        let request = protocol::ListContainersRequest { filter: None };
        let streamed =
            self.list_streamed("runtime.v1.RuntimeService/StreamContainers", request.clone()).await?;
        let listed = match streamed {
            Some(parts) => {
                parts.into_iter().flat_map(|part: protocol::ListContainersResponse| part.containers).collect()
            }
            None => match self.list_containers(request).await {
                Err(CriError::TooLarge { .. }) => self.containers_in_parts(sandboxes).await?,
                other => other?,
            },
        };
        if listed.iter().any(|container| container.id.is_empty()) {
            // It cannot be queried, and may use any image.
            let what = "it lists a container without an identifier".into();
            return Err(CriError::Malformed { call: "ListContainers", what });
        }
        Ok(listing::containers(listed, sandboxes, self.options.managed_label.as_ref()))
    }

    async fn list_containers(
        &self,
        request: protocol::ListContainersRequest,
    ) -> Result<Vec<protocol::Container>, CriError> {
        let answer: protocol::ListContainersResponse =
            self.call("runtime.v1.RuntimeService/ListContainers", request).await?;
        Ok(answer.containers)
    }

    /// Lists containers by state and, if those of one state are still too many, by state and sandbox. States are listed in the
    /// order in which a container passes through them, so that one that changes state between two calls is not missed.
    async fn containers_in_parts(&self, sandboxes: &[Sandbox]) -> Result<Vec<protocol::Container>, CriError> {
        let states = [
            protocol::ContainerState::Created,
            protocol::ContainerState::Running,
            protocol::ContainerState::Exited,
            protocol::ContainerState::Unknown,
        ];
        let mut all = HashMap::new();
        for state in states {
            let filter = |sandbox: &str| protocol::ListContainersRequest {
                filter: Some(protocol::ContainerFilter {
                    state: Some(protocol::StateValue { state: state as i32 }),
                    pod_sandbox_id: sandbox.to_owned(),
                }),
            };
            let part = match self.list_containers(filter("")).await {
                // Containers whose sandbox is gone are in no part, so the list would be incomplete: only runtimes that remove
                // containers with their sandbox (all current ones) can be listed this way.
                Err(CriError::TooLarge { .. }) => {
                    let mut parts = Vec::new();
                    for sandbox in sandboxes {
                        parts.extend(self.list_containers(filter(sandbox.id.as_str())).await?);
                    }
                    parts
                }
                other => other?,
            };
            all.extend(part.into_iter().map(|container| (container.id.clone(), container)));
        }
        Ok(all.into_values().collect())
    }

    /// Returns the facts that only the status of a container contains; `None` if it is gone.
    pub async fn container_details(
        &self,
        container: &ContainerId,
    ) -> Result<Option<ContainerDetails>, CriError> {
        let request = protocol::ContainerStatusRequest { container_id: container.as_str().into() };
        let answer: protocol::ContainerStatusResponse =
            match self.call("runtime.v1.RuntimeService/ContainerStatus", request).await {
                Err(error) if error.is_not_found() => return Ok(None),
                other => other?,
            };
        let status = answer.status.ok_or(CriError::Malformed {
            call: "ContainerStatus",
            what: format!("no status for {container}"),
        })?;
        let seconds = |key: &str| status.annotations.get(key).and_then(|text| text.parse().ok());
        Ok(Some(ContainerDetails {
            state: listing::container_state(status.state),
            volumes: listing::volume_references(&status.mounts),
            grace_period_seconds: seconds("io.kubernetes.pod.deletionGracePeriod")
                .or_else(|| seconds("io.kubernetes.pod.terminationGracePeriod")),
            log_path: status.log_path,
        }))
    }

    /// Returns the layers of an image, each once, if the runtime reports them; otherwise empty.
    pub async fn image_layers(&self, image: &ImageId) -> Result<Vec<LayerId>, CriError> {
        let request = protocol::ImageStatusRequest { image: Some(spec(image, "")), verbose: true };
        let answer: protocol::ImageStatusResponse =
            self.call("runtime.v1.ImageService/ImageStatus", request).await?;
        Ok(answer.info.get("info").map(|info| layers_of_info(info)).unwrap_or_default())
    }

    /// Returns the current state of an image: its names, and whether the runtime pins it; `None` if it is gone. Without layers.
    pub async fn image(&self, image: &ImageId) -> Result<Option<Image>, CriError> {
        let request = protocol::ImageStatusRequest { image: Some(spec(image, "")), verbose: false };
        let answer: protocol::ImageStatusResponse =
            self.call("runtime.v1.ImageService/ImageStatus", request).await?;
        Ok(listing::images(answer.image.into_iter().collect()).images.pop())
    }

    /// Removes an image by its full identifier, with all its names. Succeeds if it is already gone.
    pub async fn remove_image(&self, image: &ImageId, runtime_handler: &str) -> Result<(), CriError> {
        let request = protocol::RemoveImageRequest { image: Some(spec(image, runtime_handler)) };
        done(self.call("runtime.v1.ImageService/RemoveImage", request).await)
    }

    /// Stops a container with the grace period that the kubelet recorded, but at least two seconds.
    pub async fn stop_container(
        &self,
        container: &ContainerId,
        grace_period_seconds: i64,
    ) -> Result<(), CriError> {
        let timeout = grace_period_seconds.max(MIN_STOP_GRACE_SECONDS);
        let request = protocol::StopContainerRequest { container_id: container.as_str().into(), timeout };
        let limit = self.options.request_timeout + Duration::from_secs(u64::try_from(timeout).unwrap_or(0));
        done(self.call_within("runtime.v1.RuntimeService/StopContainer", request, limit).await)
    }

    /// Removes a container. Succeeds if it is already gone.
    pub async fn remove_container(&self, container: &ContainerId) -> Result<(), CriError> {
        let request = protocol::RemoveContainerRequest { container_id: container.as_str().into() };
        done(self.call("runtime.v1.RuntimeService/RemoveContainer", request).await)
    }

    /// Stops and removes a sandbox; if stopping it fails, it is not removed.
    pub async fn remove_sandbox(&self, sandbox: &SandboxId) -> Result<(), CriError> {
        let stop = protocol::StopPodSandboxRequest { pod_sandbox_id: sandbox.as_str().into() };
        done(self.call("runtime.v1.RuntimeService/StopPodSandbox", stop).await)?;
        let remove = protocol::RemovePodSandboxRequest { pod_sandbox_id: sandbox.as_str().into() };
        done(self.call("runtime.v1.RuntimeService/RemovePodSandbox", remove).await)
    }

    /// Returns the paths of the filesystems with images, and of those with the writable layers of containers.
    pub async fn filesystem_paths(&self) -> Result<(Vec<String>, Vec<String>), CriError> {
        let answer: protocol::ImageFsInfoResponse =
            self.call("runtime.v1.ImageService/ImageFsInfo", protocol::Empty {}).await?;
        let paths = |list: Vec<protocol::FilesystemUsage>| {
            let ids = list.into_iter().filter_map(|usage| usage.fs_id);
            ids.map(|id| id.mountpoint).filter(|path| !path.is_empty()).collect::<Vec<_>>()
        };
        let images = paths(answer.image_filesystems);
        if images.is_empty() {
            return Err(CriError::Malformed {
                call: "ImageFsInfo",
                what: "it names no image filesystem".into(),
            });
        }
        Ok((images, paths(answer.container_filesystems)))
    }

    /// Returns container events from now on. There is no replay, so list after connecting. The stream may end immediately without
    /// an error, which means that the runtime does not send events.
    pub async fn events(
        &self,
    ) -> Result<impl Stream<Item = Result<ContainerEvent, CriError>> + use<>, CriError> {
        let call = "runtime.v1.RuntimeService/GetContainerEvents";
        let limit = self.options.request_timeout;
        let stream = self.open_stream(call, protocol::Empty {}).await?;
        Ok(stream.filter_map(
            move |item: Result<protocol::ContainerEventResponse, tonic::Status>| async move {
                match item {
                    Ok(message) => listing::event(message).map(Ok),
                    Err(status) => Some(Err(CriError::of(method(call), limit, &status))),
                }
            },
        ))
    }

    async fn call<Q, A>(&self, call: &'static str, request: Q) -> Result<A, CriError>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        self.call_within(call, request, self.options.request_timeout).await
    }

    /// Makes one call with its own timeout. A bare message is a request, too.
    pub(crate) async fn call_within<Q, A>(
        &self,
        call: &'static str,
        request: impl tonic::IntoRequest<Q> + Send,
        limit: Duration,
    ) -> Result<A, CriError>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let (began, request) = (Instant::now(), request.into_request());
        let answer = async {
            let mut grpc = self.grpc();
            grpc.ready().await.map_err(|error| unreachable(call, &error))?;
            let codec = ProstCodec::<Q, A>::default();
            let unary = grpc.unary(request, path(call), codec).await;
            unary
                .map(tonic::Response::into_inner)
                .map_err(|status| CriError::of(method(call), limit, &status))
        };
        let answer = tokio::time::timeout(limit, answer)
            .await
            .unwrap_or(Err(CriError::Timeout { call: method(call), limit }));
        (self.options.observer.0)(method(call), began.elapsed(), answer.is_err());
        if answer.as_ref().is_err_and(CriError::is_outage) {
            // The runtime may come back as a newer release, which supports streaming.
            self.unary_lists_only.store(false, Ordering::Relaxed);
        }
        answer
    }

    /// Returns all messages of a streaming list, or `None` if the runtime does not support it. A broken stream is an error:
    /// messages before the break are not used.
    async fn list_streamed<Q, A>(&self, call: &'static str, request: Q) -> Result<Option<Vec<A>>, CriError>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        if self.unary_lists_only.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let (limit, began) = (self.options.request_timeout, Instant::now());
        let read = async {
            let mut stream = self.open_stream(call, request).await?;
            let mut parts = Vec::new();
            while let Some(part) = stream.next().await {
                parts.push(part.map_err(|status| CriError::of(method(call), limit, &status))?);
            }
            Ok(parts)
        };
        let answer = tokio::time::timeout(limit, read)
            .await
            .unwrap_or(Err(CriError::Timeout { call: method(call), limit }));
        if !matches!(answer, Err(CriError::Unimplemented { .. })) {
            (self.options.observer.0)(method(call), began.elapsed(), answer.is_err());
        }
        match answer {
            Err(CriError::Unimplemented { .. }) => {
                self.unary_lists_only.store(true, Ordering::Relaxed);
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    pub(crate) async fn open_stream<Q, A>(
        &self,
        call: &'static str,
        request: impl tonic::IntoRequest<Q> + Send,
    ) -> Result<tonic::Streaming<A>, CriError>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let mut grpc = self.grpc();
        grpc.ready().await.map_err(|error| unreachable(call, &error))?;
        let codec = ProstCodec::<Q, A>::default();
        let stream = grpc.server_streaming(request.into_request(), path(call), codec).await;
        let limit = self.options.request_timeout;
        stream.map(tonic::Response::into_inner).map_err(|status| CriError::of(method(call), limit, &status))
    }

    /// Reports whether the runtime has containerd's API besides CRI.
    pub(crate) fn is_containerd(&self) -> bool {
        &*self.runtime == "containerd"
    }

    /// Returns the timeout of each call.
    pub(crate) fn request_timeout(&self) -> Duration {
        self.options.request_timeout
    }

    fn grpc(&self) -> tonic::client::Grpc<Channel> {
        tonic::client::Grpc::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }
}

/// Treats an object that is already gone as removed.
pub(crate) fn done(answer: Result<protocol::Empty, CriError>) -> Result<(), CriError> {
    match answer {
        Err(error) if error.is_not_found() => Ok(()),
        other => other.map(|protocol::Empty {}| ()),
    }
}

fn spec(image: &ImageId, runtime_handler: &str) -> protocol::ImageSpec {
    protocol::ImageSpec {
        image: image.as_str().to_owned(),
        runtime_handler: runtime_handler.to_owned(),
        ..protocol::ImageSpec::default()
    }
}

fn path(call: &'static str) -> PathAndQuery {
    // All calls are named in this file, without the leading slash.
    PathAndQuery::try_from(format!("/{call}")).unwrap_or_else(|_| PathAndQuery::from_static("/"))
}

pub(crate) fn method(call: &'static str) -> &'static str {
    call.rsplit('/').next().unwrap_or(call)
}

fn unreachable(call: &'static str, error: &tonic::transport::Error) -> CriError {
    CriError::Unavailable { call: method(call), message: format!("transport error: {error}") }
}

/// Returns the layers in a verbose image status of containerd and CRI-O, which contains the image configuration as JSON text with
/// the digests of the unpacked layers. One invalid digest makes all layers unknown, because only some of them would be an
/// underestimate.
pub(crate) fn layers_of_info(info: &str) -> Vec<LayerId> {
    #[derive(serde::Deserialize, Default)]
    #[serde(default)]
    struct Info {
        #[serde(rename = "imageSpec")]
        spec: ImageConfiguration,
    }
    #[derive(serde::Deserialize, Default)]
    #[serde(default)]
    struct ImageConfiguration {
        rootfs: RootFilesystem,
    }
    #[derive(serde::Deserialize, Default)]
    #[serde(default)]
    struct RootFilesystem {
        diff_ids: Vec<String>,
    }
    let info = serde_json::from_str::<Info>(info).unwrap_or_default();
    let layers = info.spec.rootfs.diff_ids.iter().map(|digest| LayerId::new(digest));
    // An image may contain the same layer twice (an empty one).
    let mut layers = layers.collect::<Option<Vec<_>>>().unwrap_or_default();
    layers.sort_unstable();
    layers.dedup();
    layers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_read_where_they_are_reported() {
        let digest = |digit: &str| format!("sha256:{}", digit.repeat(64));
        let info = |digests: &[String]| {
            let configuration = serde_json::json!({"rootfs": {"type": "layers", "diff_ids": digests}});
            serde_json::json!({"chainID": digest("c"), "imageSpec": configuration}).to_string()
        };
        let expected = ["a", "b"].map(|digit| LayerId::new(&digest(digit)).expect("a digest"));
        assert_eq!(layers_of_info(&info(&[digest("b"), digest("a"), digest("b")])), expected);
        for unknown in ["{}", "no JSON", &info(&[digest("a"), "sha256:short".into()])] {
            assert!(layers_of_info(unknown).is_empty(), "{unknown}");
        }
    }
}
