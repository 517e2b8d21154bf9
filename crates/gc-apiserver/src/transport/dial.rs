//! Connections that the server opens: to webhooks and aggregated API servers.

use std::sync::{Arc, LazyLock};

use http_body::Body;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, OtherError, SignatureScheme};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::x509::{Certificate, Pool, Purpose, check_dates, check_host, verify_tls12, verify_tls13};

/// Destination of a connection, and how its identity is verified.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Peer {
    /// Name expected in the certificate.
    pub(crate) name: String,
    /// Host and port to connect to.
    pub(crate) address: (String, u16),
    /// Verifier of its certificate.
    pub(crate) trust: Trust,
}

/// Verifier of a peer's certificate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Trust {
    /// Authorities, as PEM.
    Authorities(Vec<u8>),
    /// Nothing (`insecureSkipTLSVerify`).
    Anyone,
}

/// Certificate and key that this server presents.
#[derive(Debug)]
pub(crate) struct Identity {
    /// The certificate and its issuers.
    pub(crate) chain: Vec<CertificateDer<'static>>,
    /// Key of the certificate.
    pub(crate) key: PrivateKeyDer<'static>,
}

/// A connection, which ends when dropped.
pub(crate) struct Connection<B> {
    /// Sends one request after another.
    pub(crate) sender: SendRequest<B>,
    driver: AbortHandle,
}

impl<B> Drop for Connection<B> {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Opens a connection. An error names the cause, in Go's wording for the common ones.
pub(crate) async fn dial<B>(peer: &Peer, identity: Option<&Identity>) -> Result<Connection<B>, String>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let stream = connect_tls(peer, identity, &[]).await?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|why| why.to_string())?;
    let driver = tokio::spawn(connection).abort_handle();
    Ok(Connection { sender, driver })
}

/// Opens a TLS stream, and offers these protocols in its handshake.
pub(crate) async fn connect_tls(
    peer: &Peer,
    identity: Option<&Identity>,
    protocols: &[&[u8]],
) -> Result<TlsStream<TcpStream>, String> {
    let stream = connect(peer).await?;
    let name = ServerName::try_from(peer.name.clone()).map_err(|why| format!("tls: {why}"))?;
    let mut config = client_config(peer, identity)?;
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    connected.map_err(|why| refused_certificate(&why))
}

/// Opens a stream without TLS.
pub(crate) async fn connect(peer: &Peer) -> Result<TcpStream, String> {
    let (host, port) = &peer.address;
    let stream = TcpStream::connect((host.as_str(), *port))
        .await
        .map_err(|why| format!("dial tcp {host}:{port}: connect: {}", shown(&why)))?;
    // A request is sent in several parts, of which the later ones would wait for an acknowledgement of the first: 40 ms. A failure
    // only means slowness.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

fn client_config(peer: &Peer, identity: Option<&Identity>) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|why| why.to_string())?;
    let verifier = PeerVerifier::new(peer, provider)?;
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    match identity {
        None => Ok(builder.with_no_client_auth()),
        Some(identity) => builder
            .with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())
            .map_err(|why| format!("tls: the client certificate cannot be used: {why}")),
    }
}

/// Returns the certificates in a bundle; for an empty bundle, those of the machine, as upstream does.
fn believed(bundle: &[u8]) -> Result<Arc<Pool>, String> {
    static OF_THE_MACHINE: LazyLock<Arc<Pool>> = LazyLock::new(|| {
        let found = rustls_native_certs::load_native_certs().certs;
        Arc::new(Pool::new(found.iter().filter_map(|der| Certificate::from_der(der).ok()).collect()))
    });
    if bundle.is_empty() {
        return Ok(Arc::clone(&OF_THE_MACHINE));
    }
    let pool = Pool::new(Certificate::all_from_pem(bundle));
    if pool.is_empty() {
        return Err("unable to load root certificates: unable to parse bytes as PEM block".to_owned());
    }
    Ok(Arc::new(pool))
}

/// Describes a handshake error as Go does, if it concerns the certificate.
fn refused_certificate(error: &std::io::Error) -> String {
    let why = error.get_ref().and_then(|why| why.downcast_ref::<rustls::Error>());
    match why {
        Some(rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(why)))) => {
            format!("tls: failed to verify certificate: x509: {why}")
        }
        Some(rustls::Error::InvalidCertificate(CertificateError::BadEncoding)) => {
            "tls: failed to parse certificate from server: x509: malformed certificate".to_owned()
        }
        _ => format!("tls: {error}"),
    }
}

/// Describes a connection error as Go does, if it is a common one.
fn shown(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        _ => error.to_string(),
    }
}

/// Verifies a peer's certificate as Go does.
#[derive(Debug)]
struct PeerVerifier {
    provider: Arc<CryptoProvider>,
    /// Trusted certificates, and the expected host; without them, nothing is verified.
    trusted: Option<(Arc<Pool>, String)>,
}

impl PeerVerifier {
    fn new(peer: &Peer, provider: Arc<CryptoProvider>) -> Result<Self, String> {
        let trusted = match &peer.trust {
            Trust::Anyone => None,
            Trust::Authorities(bundle) => Some((believed(bundle)?, peer.name.clone())),
        };
        Ok(Self { provider, trusted })
    }
}

impl ServerCertVerifier for PeerVerifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some((pool, host)) = &self.trusted else { return Ok(ServerCertVerified::assertion()) };
        let read =
            |der: &CertificateDer<'_>| Certificate::from_der(der).map_err(|_| CertificateError::BadEncoding);
        let own = read(own)?;
        let others = others.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let checked = check_dates(&own, now)
            .and_then(|()| check_host(&own, host))
            .and_then(|()| pool.check(&own, &others, Purpose::Server, now));
        match checked {
            Ok(()) => Ok(ServerCertVerified::assertion()),
            Err(why) => Err(CertificateError::Other(OtherError(Arc::new(why))).into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use super::*;

    /// A call consists of several writes, and each is sent at once, as Go does.
    #[tokio::test]
    async fn no_part_of_a_call_waits_for_an_acknowledgement() {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let address = ("127.0.0.1".to_owned(), port);
        let peer = Peer { name: "localhost".into(), address, trust: Trust::Anyone };
        assert!(connect(&peer).await.unwrap().nodelay().unwrap());
    }
}
