//! Client certificates. Any is taken at the handshake, as upstream does: whoever shows one that proves nothing gets a 401
//! that says so, or is who a token says, in place of a connection that breaks.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::subject::certificate_subject;

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
    /// One that proves nothing: of another authority, expired, or for another use.
    Refused,
}

/// Whose certificates are believed.
#[derive(Clone, Debug)]
pub(crate) struct ClientAuthorities(Arc<dyn ClientCertVerifier>);

impl ClientAuthorities {
    pub(crate) fn new(verifier: Arc<dyn ClientCertVerifier>) -> Self {
        Self(verifier)
    }

    /// What a chain says, its own certificate first.
    pub(crate) fn examine(&self, chain: Option<&[CertificateDer<'_>]>) -> ClientCertificate {
        let Some((own, rest)) = chain.and_then(|chain| chain.split_first()) else {
            return ClientCertificate::Absent;
        };
        match self.0.verify_client_cert(own, rest, UnixTime::now()) {
            Ok(_) => ClientCertificate::Verified(Arc::new(certificate_subject(own))),
            Err(error) => {
                tracing::debug!(%error, "a client certificate proves nothing");
                ClientCertificate::Refused
            }
        }
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
        self.0.0.root_hint_subjects()
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
        self.0.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.0.supported_verify_schemes()
    }
}
