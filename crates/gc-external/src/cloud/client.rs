//! Requests over HTTPS, with limits.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::pem::PemObject as _;

/// A client that verifies the server.
pub(crate) type Https = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    /// There was no connection, or it broke.
    #[error("{0}")]
    Connection(String),
    /// The answer was cut off or too large.
    #[error("the answer could not be read: {0}")]
    Body(String),
}

/// Reports whether a URL is allowed: any server that can be verified, and this machine.
pub(crate) fn allowed(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let here = || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    match uri.scheme_str() {
        Some("https") => !host.is_empty(),
        Some("http") => here(),
        _ => false,
    }
}

/// Returns the URL without its scheme's default port: the client does not send it, so it must not be signed. `None` for a URL with
/// a user name, which would end up in logs.
pub(crate) fn without_default_port(url: Uri) -> Option<Uri> {
    let default = if url.scheme_str() == Some("https") { 443 } else { 80 };
    let authority = url.authority()?;
    if authority.as_str().contains('@') {
        return None;
    }
    if url.port_u16() != Some(default) {
        return Some(url);
    }
    let mut parts = url.clone().into_parts();
    parts.authority = Some(authority.host().parse().ok()?);
    Uri::from_parts(parts).ok()
}

/// Returns a URL for display, without path and query, which may contain a token.
pub(crate) fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "…".to_owned() };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (host, after) = (authority.rsplit('@').next().unwrap_or_default(), &rest[authority.len()..]);
    let hidden = if matches!(after, "" | "/") { "" } else { "/…" };
    format!("{scheme}://{host}{hidden}")
}

/// Returns a client that trusts these authorities (PEM), or those of this machine; if `secure`, an empty list of them is an error.
pub(crate) fn https(authorities: Option<&Path>, timeout: Duration, secure: bool) -> Result<Https, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let mut roots = rustls::RootCertStore::empty();
    match authorities {
        Some(path) => {
            let text = std::fs::read(path).map_err(|error| error.to_string())?;
            for certificate in rustls::pki_types::CertificateDer::pem_slice_iter(&text) {
                let certificate = certificate.map_err(|error| error.to_string())?;
                roots.add(certificate).map_err(|error| error.to_string())?;
            }
        }
        None => {
            for certificate in rustls_native_certs::load_native_certs().certs {
                // A certificate that this library cannot parse is skipped.
                let _ = roots.add(certificate);
            }
        }
    }
    if roots.is_empty() && secure {
        return Err("there is no certificate of an authority".to_owned());
    }
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_connect_timeout(Some(timeout));
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(builder.with_root_certificates(roots).with_no_client_auth())
        .https_or_http()
        .enable_http1()
        .enable_http2()
        .wrap_connector(http);
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}

/// Returns status and whole body of the answer.
pub(crate) async fn fetch(
    client: &Https,
    request: Request<Full<Bytes>>,
    largest: usize,
) -> Result<(u16, Bytes), FetchError> {
    let response =
        client.request(request).await.map_err(|error| FetchError::Connection(innermost(&error)))?;
    let (head, body) = response.into_parts();
    let body = Limited::new(body, largest).collect().await;
    let body = body.map_err(|error| FetchError::Body(error.to_string()))?.to_bytes();
    Ok((head.status.as_u16(), body))
}

/// Returns the innermost cause, which is the informative one.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = next.to_string();
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn tokens_in_urls_are_not_shown() {
        for (url, expected) in [
            ("https://hooks.example.com/services/T0/B0/secret", "https://hooks.example.com/…"),
            ("https://user:secret@h:8443/?token=secret", "https://h:8443/…"),
            ("https://h?token=secret", "https://h/…"),
            ("http://127.0.0.1:1/", "http://127.0.0.1:1"),
            ("secret", "…"),
        ] {
            assert_eq!(shown(url), expected);
        }
    }

    #[test]
    fn the_port_of_the_scheme_is_left_out() {
        for (url, expected) in [
            ("https://h:443/", Some("https://h/")),
            ("https://h:8443/x?y=z", Some("https://h:8443/x?y=z")),
            ("http://127.0.0.1:80/x?y=z", Some("http://127.0.0.1/x?y=z")),
            ("http://[::1]:80/", Some("http://[::1]/")),
            ("https://h:80/", Some("https://h:80/")),
            ("https://h/", Some("https://h/")),
            ("https://u:p@h/", None),
        ] {
            let found = without_default_port(url.parse().unwrap()).map(|url| url.to_string());
            assert_eq!(found.as_deref(), expected, "{url}");
        }
    }
}
