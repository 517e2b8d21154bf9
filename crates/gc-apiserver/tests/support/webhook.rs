//! HTTPS servers with their own certificates, on loopback: webhooks and aggregated API servers.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::request::Parts;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

pub type Response = http::Response<BoxBody<Bytes, Infallible>>;

/// Returns a complete body.
pub fn whole(bytes: impl Into<Bytes>) -> BoxBody<Bytes, Infallible> {
    Full::new(bytes.into()).boxed()
}

/// Serves documents by path. Returns the address, and the authority that signed its certificate, in the form of a `caBundle`.
/// `None` as a document stands for an answer that never comes.
pub async fn serve(
    answer: impl Fn(&str, &Value) -> Option<Value> + Send + Sync + 'static,
) -> (SocketAddr, String) {
    let answered = move |parts: &Parts, body: &Bytes| {
        let document = answer(parts.uri.path(), &serde_json::from_slice(body).unwrap())?;
        Some(http::Response::new(whole(document.to_string())))
    };
    serve_requests(&["127.0.0.1", "converter.default.svc"], None, answered).await
}

/// Serves requests with a certificate for these names. If an authority is given, clients must present its certificates.
pub async fn serve_requests(
    names: &[&str],
    authority_of_clients: Option<&str>,
    answer: impl Fn(&Parts, &Bytes) -> Option<Response> + Send + Sync + 'static,
) -> (SocketAddr, String) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut wanted = rcgen::CertificateParams::new(names).unwrap();
    if authority_of_clients.is_none() {
        // Like those of `openssl req -x509`: the certificate of a server and of an authority in one.
        wanted.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    }
    let signing_key = rcgen::KeyPair::generate().unwrap();
    let cert = wanted.self_signed(&signing_key).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = match authority_of_clients {
        None => config.with_no_client_auth(),
        Some(pem) => {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            config.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let config = config.with_single_cert(vec![cert.der().clone()], key).unwrap();
    (listen(config, Arc::default(), answer).await, STANDARD.encode(cert.pem()))
}

/// Serves with a certificate signed by an authority, as controller-runtime creates them for tests: the `caBundle` is the server's
/// certificate, not the authority's.
pub async fn serve_signed(
    names: &[&str],
    answer: impl Fn(&Parts, &Bytes) -> Option<Response> + Send + Sync + 'static,
) -> (SocketAddr, String) {
    serve_counted(names, &[], Arc::default(), answer).await
}

/// Serves with one of these protocols, and counts connections.
pub async fn serve_counted(
    names: &[&str],
    protocols: &[&[u8]],
    opened: Arc<AtomicUsize>,
    answer: impl Fn(&Parts, &Bytes) -> Option<Response> + Send + Sync + 'static,
) -> (SocketAddr, String) {
    let mut authority = rcgen::CertificateParams::default();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    authority.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
    let issuer = rcgen::Issuer::new(authority, rcgen::KeyPair::generate().unwrap());
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut wanted = rcgen::CertificateParams::new(names).unwrap();
    wanted.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    let key = rcgen::KeyPair::generate().unwrap();
    let cert = wanted.signed_by(&key, &issuer).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let mut config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    (listen(config, opened, answer).await, STANDARD.encode(cert.pem()))
}

async fn listen(
    config: rustls::ServerConfig,
    opened: Arc<AtomicUsize>,
    answer: impl Fn(&Parts, &Bytes) -> Option<Response> + Send + Sync + 'static,
) -> SocketAddr {
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, answer) = (acceptor.clone(), Arc::clone(&answer));
            opened.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let served = service_fn(move |request: http::Request<Incoming>| {
                    let answer = Arc::clone(&answer);
                    async move {
                        let (parts, body) = request.into_parts();
                        let body = body.collect().await.unwrap().to_bytes();
                        match answer(&parts, &body) {
                            Some(response) => Ok::<_, Infallible>(response),
                            None => std::future::pending().await,
                        }
                    }
                });
                let connection = auto::Builder::new(TokioExecutor::new());
                let _ = connection.serve_connection(TokioIo::new(stream), served).await;
            });
        }
    });
    address
}
