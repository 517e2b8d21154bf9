//! Where a webhook is: at its URL, or behind a Service.

use serde_json::Value;

use crate::catalog;
use crate::persist;
use crate::storage::{RangeOptions, Storage};

/// The port of a service that does not name one.
const HTTPS: u64 = 443;

/// The URL of a webhook, and where to connect to if that is not what the URL says.
pub(crate) fn place(
    storage: &dyn Storage,
    client: &Value,
    timeout_seconds: u32,
) -> Result<(String, Option<(String, u16)>), String> {
    if let Some(url) = client["url"].as_str() {
        let sign = if url.contains('?') { '&' } else { '?' };
        return Ok((format!("{url}{sign}timeout={timeout_seconds}s"), None));
    }
    let service = &client["service"];
    let text = |key: &str| service[key].as_str().unwrap_or_default();
    let (name, namespace) = (text("name"), text("namespace"));
    let port = service["port"].as_u64().unwrap_or(HTTPS);
    let path = text("path").trim_start_matches('/');
    let url = format!("https://{name}.{namespace}.svc:{port}/{path}?timeout={timeout_seconds}s");
    let address = endpoint(storage, name, namespace, port);
    let address = address.map_err(|why| format!("Post \"{url}\": {why}"))?;
    Ok((url, Some(address)))
}

/// Why nothing behind a Service can be reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// There is no such Service.
    #[error("service {0:?} not found")]
    NoService(String),
    /// It has no such port.
    #[error("no service port {1} found for service {0:?}")]
    NoPort(String, u64),
    /// None of its endpoints is ready.
    #[error("no endpoints available for service {0:?}")]
    NoEndpoints(String),
    /// It could not be read.
    #[error("{0}")]
    Unreadable(String),
}

/// What a Service leads to: its external name, or an address behind it that is ready.
pub(crate) fn endpoint(
    storage: &dyn Storage,
    name: &str,
    namespace: &str,
    port: u64,
) -> Result<(String, u16), EndpointError> {
    let unreadable = |why: String| EndpointError::Unreadable(why);
    let find = |group: &str, resource: &str| {
        catalog::builtin(group, "v1", resource)
            .ok_or_else(|| unreadable(format!("{resource} are not served")))
    };
    let services = find("", "services")?;
    let stored = storage.get(&persist::object_key(services, namespace, name), None);
    let stored = stored.map_err(|error| unreadable(error.to_string()))?.item;
    let stored = stored.ok_or_else(|| EndpointError::NoService(name.to_owned()))?;
    let service = persist::decode(services, &stored).map_err(|error| unreadable(error.message))?;
    if service["spec"]["type"] == "ExternalName" {
        let external = service["spec"]["externalName"].as_str().unwrap_or_default().to_owned();
        let port = u16::try_from(port).map_err(|_| EndpointError::NoPort(name.to_owned(), port))?;
        return Ok((external, port));
    }
    let ports = service["spec"]["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    let Some(service_port) = ports.iter().find(|known| known["port"] == port) else {
        return Err(EndpointError::NoPort(name.to_owned(), port));
    };
    let port_name = service_port["name"].as_str().unwrap_or_default();
    let slices = find("discovery.k8s.io", "endpointslices")?;
    let prefix = persist::collection_prefix(slices, namespace);
    let found = storage.range(&prefix, &RangeOptions::default());
    for item in found.map_err(|error| unreadable(error.to_string()))?.items {
        let slice = persist::decode(slices, &item).map_err(|error| unreadable(error.message))?;
        if slice["metadata"]["labels"]["kubernetes.io/service-name"] != name {
            continue;
        }
        let ports = slice["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
        let named = |known: &&Value| known["name"].as_str().unwrap_or_default() == port_name;
        let number = ports.iter().find(named).and_then(|port| port["port"].as_u64());
        let Some(number) = number.and_then(|port| u16::try_from(port).ok()) else { continue };
        let endpoints = slice["endpoints"].as_array().into_iter().flatten();
        let ready = endpoints.into_iter().find(|endpoint| endpoint["conditions"]["ready"] != false);
        if let Some(address) = ready.and_then(|endpoint| endpoint["addresses"][0].as_str()) {
            return Ok((address.to_owned(), number));
        }
    }
    Err(EndpointError::NoEndpoints(name.to_owned()))
}

/// The authorities that a webhook's certificate is checked against.
pub(crate) fn ca_bundle(client: &Value) -> Result<Vec<u8>, String> {
    use base64::Engine as _;
    let text = client["caBundle"].as_str().unwrap_or_default();
    base64::engine::general_purpose::STANDARD
        .decode(text)
        .map_err(|why| format!("caBundle is no base64: {why}"))
}
