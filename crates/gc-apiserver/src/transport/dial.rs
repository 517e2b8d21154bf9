//! Connections that the server opens: to webhooks and aggregated API servers.

use std::sync::Arc;

use http_body::Body;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;

/// Where a connection leads, and how it is known that it leads there.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// The name in the certificate.
    pub(crate) name: String,
    /// Host and port to connect to.
    pub(crate) address: (String, u16),
    /// What its certificate is checked by.
    pub(crate) trust: Trust,
}

/// What the certificate of a peer is checked by.
#[derive(Clone, Debug)]
pub(crate) enum Trust {
    /// Authorities, as PEM.
    Authorities(Vec<u8>),
    /// Nothing (`insecureSkipTLSVerify`).
    Anyone,
}

/// The certificate and key that this server shows.
#[derive(Debug)]
pub(crate) struct Identity {
    /// The certificate, and those that it was signed with.
    pub(crate) chain: Vec<CertificateDer<'static>>,
    /// Its key.
    pub(crate) key: PrivateKeyDer<'static>,
}

/// A connection, which ends when this is dropped.
pub(crate) struct Connection<B> {
    /// Sends one request after the other.
    pub(crate) sender: SendRequest<B>,
    driver: AbortHandle,
}

impl<B> Drop for Connection<B> {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Opens a connection. An error says what failed, in Go's words where they are common.
pub(crate) async fn dial<B>(peer: &Peer, identity: Option<&Identity>) -> Result<Connection<B>, String>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (host, port) = &peer.address;
    let stream = TcpStream::connect((host.as_str(), *port))
        .await
        .map_err(|why| format!("dial tcp {host}:{port}: connect: {}", shown(&why)))?;
    let name = ServerName::try_from(peer.name.clone()).map_err(|why| format!("tls: {why}"))?;
    let tls = TlsConnector::from(Arc::new(client_config(&peer.trust, identity)?));
    let stream = tls.connect(name, stream).await.map_err(|why| format!("tls: {why}"))?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|why| why.to_string())?;
    let driver = tokio::spawn(connection).abort_handle();
    Ok(Connection { sender, driver })
}

fn client_config(trust: &Trust, identity: Option<&Identity>) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|why| why.to_string())?;
    let builder = match trust {
        Trust::Authorities(bundle) => builder.with_root_certificates(roots(bundle)?),
        Trust::Anyone => builder.dangerous().with_custom_certificate_verifier(Arc::new(Unchecked(provider))),
    };
    match identity {
        None => Ok(builder.with_no_client_auth()),
        Some(identity) => builder
            .with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())
            .map_err(|why| format!("tls: the client certificate cannot be used: {why}")),
    }
}

/// The authorities of a bundle, and no others.
fn roots(bundle: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle) {
        let certificate = certificate.map_err(|why| format!("caBundle cannot be read: {why}"))?;
        roots.add(certificate).map_err(|why| format!("caBundle cannot be used: {why}"))?;
    }
    if roots.is_empty() {
        return Err("tls: caBundle names no authority, and this server trusts no other".to_owned());
    }
    Ok(roots)
}

/// An error of a connection in the words of Go, where it is a common one.
fn shown(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        _ => error.to_string(),
    }
}

/// Takes any certificate, where the object that names the peer says so.
#[derive(Debug)]
struct Unchecked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
