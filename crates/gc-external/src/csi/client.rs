//! Calls to a driver.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use prost::Message;
use tonic::transport::{Channel, Endpoint as Transport, Uri};
use tonic_prost::ProstCodec;

use crate::csi::error::CsiError;
use crate::csi::{DriverEndpoint, protocol};

/// Maximum size of an answer: answers to these calls are small.
const MAX_ANSWER_BYTES: usize = 4 << 20;
/// Maximum length of a driver's message, characters.
const LONGEST_MESSAGE: usize = 1024;

/// Number of volumes requested at a time; a driver may return fewer.
const PAGE_ENTRIES: i32 = 500;
/// Maximum number of volumes and of pages that are read from one driver.
const MAX_VOLUMES: usize = 1_000_000;
const MAX_PAGES: usize = 100_000;

/// A volume that a driver knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverVolume {
    /// Handle of the volume, as in `spec.csi.volumeHandle` of a PersistentVolume.
    pub handle: String,
    /// Size of the volume, if the driver reports it.
    pub bytes: Option<u64>,
    /// Nodes that it is attached to, by the driver's names, if the driver reports them.
    pub nodes: Vec<String>,
}

impl DriverVolume {
    fn of(entry: protocol::ListedEntry) -> Option<Self> {
        let volume = entry.volume.filter(|volume| !volume.volume_id.is_empty())?;
        let bytes = u64::try_from(volume.capacity_bytes).ok().filter(|bytes| *bytes > 0);
        let nodes = entry.status.map(|status| status.published_node_ids).unwrap_or_default();
        Some(Self { handle: volume.volume_id, bytes, nodes })
    }
}

/// Options of the client.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Timeout of each call (`--timeout` of external-provisioner).
    pub call_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { call_timeout: Duration::from_secs(10) }
    }
}

/// A client of one driver. Cheap to clone; all clones share one connection, which is opened with the first call and reopened when
/// it breaks.
#[derive(Clone, Debug)]
pub struct CsiClient {
    endpoint: DriverEndpoint,
    channel: Channel,
    options: Options,
}

impl CsiClient {
    /// Creates a client of the driver at this endpoint. Must be called within a tokio runtime.
    #[must_use]
    pub fn new(endpoint: DriverEndpoint, options: Options) -> Self {
        let path = endpoint.path().to_owned();
        let connector = tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { gc_host::connect_local(path.as_ref()).await.map(TokioIo::new) }
        });
        // The authority must be a plain host name: some servers refuse one that looks like a path.
        let channel = Transport::from_static("http://localhost")
            .connect_timeout(options.call_timeout)
            .connect_with_connector_lazy(connector);
        Self { endpoint, channel, options }
    }

    /// Returns the endpoint of the driver.
    #[must_use]
    pub fn endpoint(&self) -> &DriverEndpoint {
        &self.endpoint
    }

    /// Deletes a volume. Succeeds if it does not exist, as drivers must report (CSI, "DeleteVolume"). Before that, checks the
    /// driver's identity, its readiness, and whether it deletes volumes at all.
    pub async fn delete_volume(
        &self,
        handle: &str,
        secrets: HashMap<String, String>,
    ) -> Result<(), CsiError> {
        self.check(protocol::CREATE_DELETE_VOLUME, "CREATE_DELETE_VOLUME").await?;
        let request = protocol::DeleteVolumeRequest { volume_id: handle.to_owned(), secrets };
        let _: protocol::Empty = self.call("/csi.v1.Controller/DeleteVolume", request).await?;
        Ok(())
    }

    /// Lists every volume that the driver knows, page by page, regardless of who created it. Before that, checks the driver's
    /// identity, its readiness, and whether it lists volumes at all.
    pub async fn list_volumes(&self) -> Result<Vec<DriverVolume>, CsiError> {
        self.check(protocol::LIST_VOLUMES, "LIST_VOLUMES").await?;
        let endless = |why| CsiError::Endless { driver: self.endpoint.driver().to_owned(), why };
        let mut volumes: Vec<DriverVolume> = Vec::new();
        let (mut starting_token, mut tokens) = (String::new(), BTreeSet::new());
        loop {
            let request = protocol::ListVolumesRequest { max_entries: PAGE_ENTRIES, starting_token };
            let page: protocol::ListVolumesResponse =
                self.call("/csi.v1.Controller/ListVolumes", request).await?;
            // An entry without an ID is not about a volume.
            let named = page.entries.into_iter().filter_map(DriverVolume::of);
            volumes.extend(named);
            if page.next_token.is_empty() {
                return Ok(volumes);
            }
            if !tokens.insert(page.next_token.clone()) {
                return Err(endless("leads to a page that it has shown"));
            }
            if volumes.len() > MAX_VOLUMES || tokens.len() > MAX_PAGES {
                return Err(endless("has more than is read"));
            }
            starting_token = page.next_token;
        }
    }

    /// Checks that it is the expected driver, ready, and able to do this.
    async fn check(&self, wanted: i32, capability: &'static str) -> Result<(), CsiError> {
        let expected = self.endpoint.driver();
        let info: protocol::GetPluginInfoResponse =
            self.call("/csi.v1.Identity/GetPluginInfo", protocol::Empty {}).await?;
        if info.name != expected {
            return Err(CsiError::OtherDriver {
                endpoint: self.endpoint.to_string(),
                expected: expected.to_owned(),
                found: shortened(&info.name),
            });
        }
        let probe: protocol::ProbeResponse = self.call("/csi.v1.Identity/Probe", protocol::Empty {}).await?;
        if probe.ready.is_some_and(|ready| !ready.value) {
            return Err(CsiError::NotReady { driver: expected.to_owned() });
        }
        let incapable = |capability| CsiError::Incapable { driver: expected.to_owned(), capability };
        let plugin: protocol::GetPluginCapabilitiesResponse =
            self.call("/csi.v1.Identity/GetPluginCapabilities", protocol::Empty {}).await?;
        let mut services = plugin.capabilities.iter().filter_map(|capability| capability.service.as_ref());
        if !services.any(|service| service.r#type == protocol::CONTROLLER_SERVICE) {
            return Err(incapable("the controller service"));
        }
        let controller: protocol::ControllerGetCapabilitiesResponse =
            self.call("/csi.v1.Controller/ControllerGetCapabilities", protocol::Empty {}).await?;
        let mut calls = controller.capabilities.iter().filter_map(|capability| capability.rpc.as_ref());
        if !calls.any(|call| call.r#type == wanted) {
            return Err(incapable(capability));
        }
        Ok(())
    }

    async fn call<Q, A>(&self, call: &'static str, request: Q) -> Result<A, CsiError>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let limit = self.options.call_timeout;
        let answer = async {
            let mut grpc =
                tonic::client::Grpc::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES);
            grpc.ready().await.map_err(|error| self.unreachable(&error))?;
            let codec = ProstCodec::<Q, A>::default();
            let path = PathAndQuery::from_static(call);
            let answer = grpc.unary(tonic::Request::new(request), path, codec).await;
            answer.map(tonic::Response::into_inner).map_err(|status| self.sorted(call, &status))
        };
        tokio::time::timeout(limit, answer)
            .await
            .unwrap_or(Err(CsiError::Timeout { call: method(call), limit }))
    }

    fn sorted(&self, call: &'static str, status: &tonic::Status) -> CsiError {
        // A status from the driver has no source on this side; one with a source was created here when the connection could not be
        // made, or broke.
        match std::error::Error::source(status) {
            Some(cause) => self.unreachable(cause),
            None => {
                let message = shortened(status.message());
                CsiError::Status { call: method(call), code: status.code(), message }
            }
        }
    }

    fn unreachable(&self, error: &(dyn std::error::Error + 'static)) -> CsiError {
        let mut innermost = error;
        while let Some(cause) = innermost.source() {
            innermost = cause;
        }
        CsiError::Unreachable {
            driver: self.endpoint.driver().to_owned(),
            endpoint: self.endpoint.to_string(),
            why: shortened(&innermost.to_string()),
        }
    }
}

fn method(call: &'static str) -> &'static str {
    call.rsplit('/').next().unwrap_or(call)
}

/// Shortens a driver's message to one line of bounded length, for status messages and Events.
pub(crate) fn shortened(text: &str) -> String {
    text.chars()
        .map(|character| if character.is_control() { ' ' } else { character })
        .take(LONGEST_MESSAGE)
        .collect()
}
