//! Connections that the server opens: to webhooks and aggregated API servers.

use std::sync::{Arc, LazyLock};

use http_body::Body;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme,
};
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
    let stream = tls.connect(name, stream).await.map_err(|why| refused_certificate(&why))?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|why| why.to_string())?;
    let driver = tokio::spawn(connection).abort_handle();
    Ok(Connection { sender, driver })
}

fn client_config(trust: &Trust, identity: Option<&Identity>) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|why| why.to_string())?;
    let verifier = PeerVerifier::new(trust, provider)?;
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    match identity {
        None => Ok(builder.with_no_client_auth()),
        Some(identity) => builder
            .with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())
            .map_err(|why| format!("tls: the client certificate cannot be used: {why}")),
    }
}

/// The certificates of a bundle; those of the machine for an empty one, as upstream has it.
fn authorities(bundle: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    static OF_THE_MACHINE: LazyLock<Vec<CertificateDer<'static>>> =
        LazyLock::new(|| rustls_native_certs::load_native_certs().certs);
    if bundle.is_empty() {
        return Ok(OF_THE_MACHINE.clone());
    }
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bundle).collect();
    let read = read.map_err(|why| format!("caBundle cannot be read: {why}"))?;
    if read.is_empty() { Err("unable to load root certificates".to_owned()) } else { Ok(read) }
}

/// An error of a handshake in the words of Go, where it is a common one.
fn refused_certificate(error: &std::io::Error) -> String {
    let why = error.get_ref().and_then(|why| why.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::InvalidCertificate(why)) = why else { return format!("tls: {error}") };
    let why = match why {
        CertificateError::UnknownIssuer => "certificate signed by unknown authority".to_owned(),
        CertificateError::Other(other) if is_authority(other) => {
            "certificate signed by unknown authority".to_owned()
        }
        CertificateError::Expired | CertificateError::NotValidYet => {
            "certificate has expired or is not yet valid".to_owned()
        }
        other => other.to_string(),
    };
    format!("tls: failed to verify certificate: x509: {why}")
}

/// An error of a connection in the words of Go, where it is a common one.
fn shown(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        _ => error.to_string(),
    }
}

/// Checks the certificate of a peer as Go does.
#[derive(Debug)]
struct PeerVerifier {
    provider: Arc<CryptoProvider>,
    /// What is believed; nothing is checked without.
    trusted: Option<Trusted>,
}

#[derive(Debug)]
struct Trusted {
    by_authority: Arc<WebPkiServerVerifier>,
    /// The certificates of the bundle. A server that shows one of them is believed even if it is that of an authority: what
    /// `openssl req -x509` makes is both.
    named: Vec<CertificateDer<'static>>,
}

impl PeerVerifier {
    fn new(trust: &Trust, provider: Arc<CryptoProvider>) -> Result<Self, String> {
        let Trust::Authorities(bundle) = trust else { return Ok(Self { provider, trusted: None }) };
        let named = authorities(bundle)?;
        let mut roots = RootCertStore::empty();
        let (_, unusable) = roots.add_parsable_certificates(named.iter().cloned());
        if roots.is_empty() {
            return Err(format!("caBundle cannot be used: {unusable} of its certificates cannot be read"));
        }
        let by_authority =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .build()
                .map_err(|why| format!("caBundle cannot be used: {why}"))?;
        Ok(Self { provider, trusted: Some(Trusted { by_authority, named }) })
    }
}

/// Whether the only objection to a certificate is that it is that of an authority. Its dates have been checked before.
fn is_authority(error: &OtherError) -> bool {
    error.0.downcast_ref::<webpki::Error>() == Some(&webpki::Error::CaUsedAsEndEntity)
}

impl ServerCertVerifier for PeerVerifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(trusted) = &self.trusted else { return Ok(ServerCertVerified::assertion()) };
        match trusted.by_authority.verify_server_cert(own, others, name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(CertificateError::Other(error)))
                if is_authority(&error) && trusted.named.contains(own) =>
            {
                verify_server_name(&ParsedCertificate::try_from(own)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
