//! Client certificates. Any is taken at the handshake, as upstream does: whoever shows one that proves nothing gets a 401
//! that says so, or is who a token says, in place of a connection that breaks.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::subject::certificate_subject;
use super::version_one;

/// Common name and organizations of a verified client certificate.
pub(crate) type CertificateIdentity = Arc<(String, Vec<String>)>;

/// What the certificate of a connection says about who is there.
#[derive(Clone, Debug, Default)]
pub(crate) enum ClientCertificate {
    /// None was shown.
    #[default]
    Absent,
    /// One of an authority that this server trusts.
    Verified(CertificateIdentity),
    /// One of a proxy that says in headers who asks; and whose it is besides, if it is anybody's.
    FrontProxy(Option<CertificateIdentity>),
    /// One that proves nothing: of another authority, expired, or for another use.
    Refused,
}

impl ClientCertificate {
    /// Whose the certificate is.
    pub(crate) fn identity(&self) -> Option<&CertificateIdentity> {
        match self {
            Self::Verified(identity) => Some(identity),
            Self::FrontProxy(identity) => identity.as_ref(),
            Self::Absent | Self::Refused => None,
        }
    }

    /// Whether a certificate was shown that names no user.
    pub(crate) fn proves_nothing(&self) -> bool {
        matches!(self, Self::Refused | Self::FrontProxy(None))
    }
}

/// Whose certificates are believed.
#[derive(Clone, Debug)]
pub(crate) struct ClientAuthorities {
    clients: Arc<dyn ClientCertVerifier>,
    /// The certificates of the authorities of clients.
    authorities: Arc<[CertificateDer<'static>]>,
    front_proxies: Option<FrontProxies>,
}

/// The proxies that are believed when they say who asks.
#[derive(Clone, Debug)]
pub(crate) struct FrontProxies {
    pub(crate) verifier: Arc<dyn ClientCertVerifier>,
    /// The common names that their certificates may have; any if there are none.
    pub(crate) names: Vec<String>,
}

impl ClientAuthorities {
    pub(crate) fn new(
        clients: Arc<dyn ClientCertVerifier>,
        authorities: Vec<CertificateDer<'static>>,
        front_proxies: Option<FrontProxies>,
    ) -> Self {
        Self { clients, authorities: authorities.into(), front_proxies }
    }

    /// What a chain says, its own certificate first.
    pub(crate) fn examine(&self, chain: Option<&[CertificateDer<'_>]>) -> ClientCertificate {
        let Some((own, rest)) = chain.and_then(|chain| chain.split_first()) else {
            return ClientCertificate::Absent;
        };
        let now = UnixTime::now();
        let identity = match self.clients.verify_client_cert(own, rest, now) {
            Ok(_) => Some(Arc::new(certificate_subject(own))),
            Err(_) if version_one::is_issued(own, &self.authorities, now) => {
                Some(Arc::new(certificate_subject(own)))
            }
            Err(error) => {
                tracing::debug!(%error, "a client certificate proves nothing");
                None
            }
        };
        if self.front_proxies.as_ref().is_some_and(|proxies| proxies.believe(own, rest, now)) {
            return ClientCertificate::FrontProxy(identity);
        }
        identity.map_or(ClientCertificate::Refused, ClientCertificate::Verified)
    }
}

impl FrontProxies {
    fn believe(&self, own: &CertificateDer<'_>, rest: &[CertificateDer<'_>], now: UnixTime) -> bool {
        self.verifier.verify_client_cert(own, rest, now).is_ok()
            && (self.names.is_empty() || self.names.contains(&certificate_subject(own).0))
    }
}

/// Takes any certificate whose key the client has.
#[derive(Debug)]
pub(crate) struct AnyCertificate(pub(crate) ClientAuthorities);

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.clients.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let readable = version_one::readable(certificate);
        self.0.clients.verify_tls12_signature(message, readable.as_ref().unwrap_or(certificate), signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let readable = version_one::readable(certificate);
        self.0.clients.verify_tls13_signature(message, readable.as_ref().unwrap_or(certificate), signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clients.supported_verify_schemes()
    }
}
