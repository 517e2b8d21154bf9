//! Address of a webhook: its URL, or behind a Service.

use std::time::Duration;

use serde_json::Value;

use crate::catalog;
use crate::persist;
use crate::storage::{RangeOptions, Storage};

/// Service port used if none is named.
const HTTPS: u64 = 443;

/// Returns the URL of a webhook, and the address to connect to if it differs from the URL's host. The URL contains the timeout in
/// seconds, rounded up.
pub(crate) fn place(
    storage: &dyn Storage,
    client: &Value,
    timeout: Duration,
) -> Result<(String, Option<(String, u16)>), String> {
    let seconds = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
    if let Some(url) = client["url"].as_str() {
        let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        return Ok((format!("{scheme}://{authority}{}?timeout={seconds}s", cleaned(path)), None));
    }
    let service = &client["service"];
    let text = |key: &str| service[key].as_str().unwrap_or_default();
    let (name, namespace) = (text("name"), text("namespace"));
    let port = service["port"].as_u64().unwrap_or(HTTPS);
    let path = escaped(&clean(text("path").as_bytes()));
    let url = format!("https://{name}.{namespace}.svc:{port}{path}?timeout={seconds}s");
    let address = endpoint(storage, name, namespace, port);
    let address = address.map_err(|why| format!("Post \"{url}\": {why}"))?;
    Ok((url, Some(address)))
}

/// Normalizes the path of a URL as a Go client does: unescapes it, removes empty segments, `.`, `..` and the trailing slash, and
/// escapes it again.
fn cleaned(path: &str) -> String {
    escaped(&clean(&unescaped(path)))
}

fn unescaped(path: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, after @ ..] = rest {
        let digits =
            after.get(..2).filter(|digits| *first == b'%' && digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

fn clean(path: &[u8]) -> Vec<u8> {
    let mut segments: Vec<&[u8]> = Vec::new();
    for segment in path.split(|byte| *byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => drop(segments.pop()),
            other => segments.push(other),
        }
    }
    [b"/", &*segments.join(&b'/')].concat()
}

fn escaped(path: &[u8]) -> String {
    const KEPT: &[u8] = b"-_.~$&+,/:;=@";
    let is_kept = |byte: u8| byte.is_ascii_alphanumeric() || KEPT.contains(&byte);
    path.iter()
        .map(|byte| if is_kept(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// Reason why nothing behind a Service can be reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The Service does not exist.
    #[error("service {0:?} not found")]
    NoService(String),
    /// The Service has no such port.
    #[error("no service port {1} found for service {0:?}")]
    NoPort(String, u64),
    /// None of the Service's endpoints is ready.
    #[error("no endpoints available for service {0:?}")]
    NoEndpoints(String),
    /// The Service or its endpoints could not be read.
    #[error("{0}")]
    Unreadable(String),
}

/// Resolves a Service to its external name, or to a ready address behind it.
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

/// Returns the authorities that verify a webhook's certificate.
pub(crate) fn ca_bundle(client: &Value) -> Result<Vec<u8>, String> {
    use base64::Engine as _;
    let text = client["caBundle"].as_str().unwrap_or_default();
    base64::engine::general_purpose::STANDARD
        .decode(text)
        .map_err(|why| format!("caBundle is no base64: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected paths are the results of `path.Join` and `url.URL` in Go.
    #[test]
    fn paths_are_sent_as_go_sends_them() {
        for (path, sent) in [
            ("", "/"),
            ("/", "/"),
            ("//path", "/path"),
            ("/x/", "/x"),
            ("/a//b/../c", "/a/c"),
            ("/../x", "/x"),
            ("/a/./b/.", "/a/b"),
            ("/a/..", "/"),
            ("/a%2Fb", "/a/b"),
            ("/a%2fb/%2E%2E/c", "/a/c"),
            ("/a%20b", "/a%20b"),
            ("/a b", "/a%20b"),
            ("/ä", "/%C3%A4"),
            ("/a:b@c;d=e,f+g&h$", "/a:b@c;d=e,f+g&h$"),
            ("/(a)!*'", "/%28a%29%21%2A%27"),
            ("/%zz", "/%25zz"),
            ("/a%3Fb", "/a%3Fb"),
        ] {
            assert_eq!(cleaned(path), sent, "{path}");
        }
    }
}
