//! Connection to a collector's pages: without TLS on its own machine, elsewhere over TLS with a token.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use gc_kube::{ApiClient, push_segment};
use gc_process::access::Access;
use gc_process::lease::control::{self, Held, PAGES_ADDRESS, PAGES_AUTHORITY};
use gc_process::lease::{LeaseName, shards};
use gc_process::{UsageError, preflight};
use serde_json::Value;

/// Timeout for a collector that was not named.
pub(crate) const GUESS_PATIENCE: Duration = Duration::from_secs(2);
/// A name for which every collector's certificate is issued, wherever it runs.
const SERVER_NAME: &str = "localhost";

/// Name that the manifests give to the pod port with the collector's pages, and the port's default number.
const PAGES_PORT_NAME: &str = "metrics";
const PAGES_PORT: u16 = 10_357;

/// Which collector.
#[derive(Clone, Debug, Default, Args)]
pub struct CollectorFlags {
    /// Ask the collector at its --bind-address (stuck, tree, plan, top and ui: at its --ui-bind-address; why and doctor: at either), for example through `kubectl port-forward`
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = host_and_port)]
    pub collector: Option<String>,
    /// Certificate authority (PEM) of the collector's --tls-cert-file [default: what the leader writes onto its Lease]
    #[arg(long, value_name = "FILE", requires = "collector")]
    collector_certificate_authority: Option<PathBuf>,
}

impl CollectorFlags {
    /// Reports whether a collector was named.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.collector.is_some()
    }

    /// Returns a client for the named collector, if there is one. The Lease has the certificate authority for it. On a loopback
    /// address, a client without TLS is tried first, since a collector there may serve without TLS whatever the leader's Lease
    /// says.
    pub async fn connect(&self, access: &Access, lease: &LeaseName) -> Result<Option<ApiClient>> {
        let Some(address) = &self.collector else { return Ok(None) };
        if self.collector_certificate_authority.is_none() && is_plain(address).await {
            return Ok(Some(ApiClient::plain(address).map_err(|error| self.wrong(&error))?));
        }
        match self.over_tls(address, access, lease).await? {
            Some(client) => Ok(Some(client)),
            None => Ok(Some(ApiClient::plain(address).map_err(|error| self.wrong(&error))?)),
        }
    }

    /// Returns a client for the page of the named collector, if there is one. Always uses TLS.
    pub async fn connect_to_page(&self, access: &Access, lease: &LeaseName) -> Result<Option<ApiClient>> {
        let Some(address) = &self.collector else { return Ok(None) };
        let client = self.over_tls(address, access, lease).await?;
        let unknown = || {
            UsageError::new(format!(
                "--collector {address}: no certificate authority is known for it: the lease {lease} cannot be read, its \
                 holder has a certificate from elsewhere, or this collector does not lead because it observes; add \
                 --collector-certificate-authority FILE, with the certificate of its --tls-cert-file"
            ))
        };
        Ok(Some(client.ok_or_else(unknown)?))
    }

    fn wrong(&self, error: &dyn std::error::Error) -> UsageError {
        let address = self.collector.as_deref().unwrap_or_default();
        UsageError::new(format!("--collector {address}: {}", preflight::one_line(error)))
    }

    /// Returns a client with the credentials of the flags; `None` if the certificate authority of the collector is not known.
    async fn over_tls(&self, address: &str, access: &Access, lease: &LeaseName) -> Result<Option<ApiClient>> {
        if let Some(file) = &self.collector_certificate_authority {
            let pem = std::fs::read(file).map_err(|error| {
                UsageError::new(format!("--collector-certificate-authority {}: {error}", file.display()))
            })?;
            let client = ApiClient::configured_elsewhere(&access.of_cluster(), address, &pem, None).await;
            return Ok(Some(client.map_err(|error| self.wrong(&error))?));
        }
        let Some(pem) = of_lease(access, lease).await else { return Ok(None) };
        let access = access.of_cluster();
        let client =
            ApiClient::configured_elsewhere(&access, address, pem.as_bytes(), Some(SERVER_NAME)).await;
        Ok(Some(client.map_err(|error| self.wrong(&error))?))
    }
}

/// Parses the value of --collector, which has no scheme: what the collector speaks is found out.
fn host_and_port(text: &str) -> Result<String, String> {
    let is_address = text.rsplit_once(':').is_some_and(|(host, port)| {
        let is_ipv6 = host.starts_with('[') && host.ends_with(']');
        !host.is_empty() && (is_ipv6 || !host.contains([':', '/', '@'])) && port.parse::<u16>().is_ok()
    });
    if is_address {
        return Ok(text.to_owned());
    }
    Err("expected ADDRESS:PORT without http:// and path, such as 127.0.0.1:10357".to_owned())
}

/// Reports whether HTTP is served without TLS at this loopback address. Sends no credentials to find out.
async fn is_plain(address: &str) -> bool {
    let is_loopback = address.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback())
        || address.rsplit_once(':').is_some_and(|(host, _)| host == SERVER_NAME);
    if !is_loopback {
        return false;
    }
    let Ok(client) = ApiClient::plain(address) else { return false };
    let request = preflight::request(http::Method::GET, "/healthz", None);
    let answered = tokio::time::timeout(GUESS_PATIENCE, client.call(request)).await;
    // A server with TLS closes the connection, or answers that the request is bad.
    matches!(answered, Ok(Ok(answer)) if answer.head.status != http::StatusCode::BAD_REQUEST)
}

/// Reads the leader's certificate authority from the Lease; `None` if it serves without TLS or the Lease cannot be read.
async fn of_lease(access: &Access, lease: &LeaseName) -> Option<String> {
    let client = access.connect().await.ok()?;
    let lease = control::read(&client, lease).await.ok().flatten()?;
    lease["metadata"]["annotations"][PAGES_AUTHORITY].as_str().map(str::to_owned)
}

/// Reason why the pages of the leading collector cannot be reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutOfReach {
    /// The leader is unknown.
    #[error("whether a collector leads cannot be seen: {0}")]
    LeaseUnread(String),
    /// There are several leaders, each with its own pages.
    #[error(
        "the collectors are divided into {shards} shards, and each keeps its own journal; name the address of one with \
         --collector ADDRESS:PORT"
    )]
    Divided {
        /// Number of shards.
        shards: usize,
    },
    /// Its pages are served only on its own machine, which is another one.
    #[error("the collector {holder} shows its journal only on its own machine{}; ask there", at(.address.as_ref()))]
    OnItsMachine {
        /// Holder of the Lease.
        holder: String,
        /// Their address, if the Lease has it.
        address: Option<SocketAddr>,
    },
    /// Its pages are on this machine, but do not answer.
    #[error("the collector {holder} on this machine does not answer at {address}: {why}")]
    Silent {
        /// Holder of the Lease.
        holder: String,
        /// Address of its pages.
        address: String,
        /// Failure of the request.
        why: String,
    },
    /// Does not run in a pod that can be read.
    #[error(
        "the collector {holder} keeps a journal, and {why}; name its address with --collector ADDRESS:PORT"
    )]
    NotInAPod {
        /// Holder of the Lease.
        holder: String,
        /// Reason.
        why: String,
    },
    /// Refuses this user.
    #[error("{0}")]
    Refused(String),
    /// Its address does not answer from here.
    #[error(
        "the collector in pod {pod} keeps a journal, and {address} cannot be reached from here ({why}); \
         `kubectl -n {namespace} port-forward {pod} {PAGES_PORT}` and --collector 127.0.0.1:{PAGES_PORT} lead there"
    )]
    Unreachable {
        /// The namespace of its pod.
        namespace: String,
        /// Its pod.
        pod: String,
        /// Address of its pages.
        address: String,
        /// Failure of the request.
        why: String,
    },
}

fn at(address: Option<&SocketAddr>) -> String {
    address.map_or_else(String::new, |address| format!(", at {address}"))
}

/// Pages of the leading collector.
pub(crate) struct LeaderPages {
    /// Client for their pages.
    pub client: ApiClient,
    place: CollectorLocation,
    address: String,
}

/// Location of a collector.
enum CollectorLocation {
    /// On this machine, holding the Lease under this name.
    Here { holder: String },
    /// In a pod.
    Pod { namespace: String, pod: String },
}

/// Returns the address of the leader's pages if they are served only on its machine.
fn local_address(lease: &Value) -> Option<SocketAddr> {
    let text = lease["metadata"]["annotations"][PAGES_ADDRESS].as_str()?;
    // This keeps a writer of the Lease from redirecting to another machine; no token is sent there.
    text.parse().ok().filter(|address: &SocketAddr| address.ip().is_loopback())
}

impl LeaderPages {
    /// Finds the pages of the collector that holds the Lease; `None` if no collector does. Tokens are sent to the pod address that
    /// the API server reports, never to one in the Lease, because everyone who may pause collectors may write to the Lease.
    pub(crate) async fn find(
        client: &ApiClient,
        access: &Access,
        name: &LeaseName,
    ) -> Result<Option<Self>, OutOfReach> {
        let unread = |error: anyhow::Error| OutOfReach::LeaseUnread(format!("{error:#}"));
        let Some(lease) = control::read(client, name).await.map_err(unread)? else { return Ok(None) };
        let shards = shards::of_lease(&lease).len();
        if shards > 0 {
            return Err(OutOfReach::Divided { shards });
        }
        let held = Held::of(&lease);
        if !held.is_held(jiff::Timestamp::now()) {
            return Ok(None);
        }
        // The suffix after the host name is different after each start.
        let pod = held.holder.split('_').next().unwrap_or_default().to_owned();
        let local = local_address(&lease);
        if let Some(address) = local.filter(|_| pod == gc_host::host_name()) {
            let address = address.to_string();
            let client = ApiClient::plain(&address).map_err(|error| unread(error.into()))?;
            return Ok(Some(Self {
                client,
                place: CollectorLocation::Here { holder: held.holder },
                address,
            }));
        }
        let Some(pem) = lease["metadata"]["annotations"][PAGES_AUTHORITY].as_str() else {
            return Err(OutOfReach::OnItsMachine { holder: held.holder, address: local });
        };
        let not_in_a_pod = |why: String| OutOfReach::NotInAPod { holder: held.holder.clone(), why };
        let address = address_of_pod(client, &name.namespace, &pod).await.map_err(not_in_a_pod)?;
        let access = access.of_cluster();
        let pages =
            ApiClient::configured_elsewhere(&access, &address, pem.as_bytes(), Some(SERVER_NAME)).await;
        let namespace = name.namespace.clone();
        match pages {
            Ok(client) => {
                Ok(Some(Self { client, place: CollectorLocation::Pod { namespace, pod }, address }))
            }
            Err(error) => {
                let why = preflight::one_line(&error);
                Err(OutOfReach::Unreachable { namespace, pod, address, why })
            }
        }
    }

    /// Reports whether the collector runs on this machine.
    pub(crate) const fn are_here(&self) -> bool {
        matches!(self.place, CollectorLocation::Here { .. })
    }

    /// Converts a failed request to an error.
    pub(crate) fn unreachable(self, why: String) -> OutOfReach {
        let Self { place, address, .. } = self;
        match place {
            CollectorLocation::Here { holder } => OutOfReach::Silent { holder, address, why },
            CollectorLocation::Pod { namespace, pod } => {
                OutOfReach::Unreachable { namespace, pod, address, why }
            }
        }
    }
}

/// Returns the address of a pod's collector pages, or the reason why it is not known.
async fn address_of_pod(client: &ApiClient, namespace: &str, name: &str) -> Result<String, String> {
    let mut path = format!("/api/v1/namespaces/{namespace}/pods/");
    push_segment(&mut path, name);
    let answer = client.call(preflight::request(http::Method::GET, &path, None)).await;
    let answer = answer.map_err(|error| preflight::one_line(&error))?;
    match answer.head.status {
        http::StatusCode::NOT_FOUND => {
            return Err(format!("there is no pod {name} in namespace {namespace}"));
        }
        status if status.is_success() => {}
        _ => return Err(format!("its pod cannot be read: {}", preflight::message(&answer))),
    }
    let pod: Value = serde_json::from_slice(&answer.body).map_err(|error| error.to_string())?;
    let address = pod["status"]["podIP"].as_str().and_then(|text| text.parse::<IpAddr>().ok());
    let address = address.ok_or_else(|| format!("its pod {name} has no address"))?;
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let mut ports = containers.flat_map(|container| container["ports"].as_array().into_iter().flatten());
    let named = ports.find(|port| port["name"] == PAGES_PORT_NAME);
    let port = named.and_then(|port| u16::try_from(port["containerPort"].as_u64()?).ok());
    Ok(SocketAddr::new(address, port.unwrap_or(PAGES_PORT)).to_string())
}

/// Requests a JSON page of a collector.
pub async fn page(client: &ApiClient, path: &str) -> Result<Value> {
    let answer = client.call(preflight::request(http::Method::GET, path, None)).await?;
    anyhow::ensure!(
        answer.head.status.is_success(),
        "{}: {}",
        answer.head.status.as_u16(),
        preflight::message(&answer)
    );
    serde_json::from_slice(&answer.body).context("the answer is not JSON")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn a_collector_is_named_by_host_and_port_alone() {
        for address in ["127.0.0.1:10357", "localhost:1", "[::1]:10357", "kubegc.kube-system.svc:443"] {
            assert_eq!(host_and_port(address).as_deref(), Ok(address));
        }
        for text in [
            "",
            ":1",
            "host",
            "host:",
            "host:x",
            "host:65536",
            "http://127.0.0.1:10357",
            "https://h:1/metrics",
            "::1:5",
            "u@h:1",
        ] {
            let refused = host_and_port(text).unwrap_err();
            assert!(refused.starts_with("expected ADDRESS:PORT"), "{text}");
        }
    }
}
