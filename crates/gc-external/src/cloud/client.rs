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

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    /// No connection, or it broke.
    #[error("{0}")]
    Connection(String),
    /// The answer was cut off, or is too large.
    #[error("the answer could not be read: {0}")]
    Body(String),
}

/// Whether a URL is allowed: any server that can be verified, and this machine.
pub(crate) fn allowed(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let here = || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    match uri.scheme_str() {
        Some("https") => !host.is_empty(),
        Some("http") => here(),
        _ => false,
    }
}

/// A client that trusts these authorities (PEM), or those of this machine; an empty list of them is an error where it
/// is `secure`.
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

/// Status and whole body of the answer.
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

/// The innermost cause is the informative one.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = next.to_string();
        cause = next.source();
    }
    text
}
