//! A webhook server with a certificate of its own, on loopback.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::PrivateKeyDer;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Serves answers to documents by their path; with its address, and the authority to trust it by, as `caBundle` has it.
/// No document is an answer that never comes.
pub async fn serve(
    answer: impl Fn(&str, &Value) -> Option<Value> + Send + Sync + 'static,
) -> (SocketAddr, String) {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, answer) = (acceptor.clone(), Arc::clone(&answer));
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let served = service_fn(move |request: http::Request<Incoming>| {
                    let answer = Arc::clone(&answer);
                    async move {
                        let path = request.uri().path().to_owned();
                        let body = request.into_body().collect().await.unwrap().to_bytes();
                        let Some(document) = answer(&path, &serde_json::from_slice(&body).unwrap()) else {
                            return std::future::pending().await;
                        };
                        Ok::<_, Infallible>(http::Response::new(Full::<Bytes>::new(
                            document.to_string().into(),
                        )))
                    }
                });
                let connection = hyper::server::conn::http1::Builder::new();
                let _ = connection.serve_connection(TokioIo::new(stream), served).await;
            });
        }
    });
    (address, STANDARD.encode(made.cert.pem()))
}
