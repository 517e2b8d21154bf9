//! Proof that the peer of a handshake holds the key of its certificate.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use rustls::{CertificateError, DigitallySignedStruct, Error, PeerMisbehaved};

use super::Certificate;

fn read(certificate: &CertificateDer<'_>) -> Result<Certificate, Error> {
    Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding.into())
}

/// Verifies the signature of a TLS 1.3 handshake.
pub(crate) fn verify_tls13(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    let key = SubjectPublicKeyInfoDer::from(read(certificate)?.public_key);
    verify_tls13_signature_with_raw_key(message, &key, signature, algorithms)
}

/// Verifies the signature of a TLS 1.2 handshake.
pub(crate) fn verify_tls12(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    let mapping = algorithms.mapping.iter().find(|(scheme, _)| *scheme == signature.scheme);
    let Some((_, candidates)) = mapping else {
        return Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into());
    };
    let certificate = read(certificate)?;
    // In TLS 1.2, an ECDSA scheme stands for several curves.
    let mut fitting = candidates
        .iter()
        .filter(|candidate| candidate.public_key_alg_id().as_ref() == certificate.key_algorithm);
    if fitting.any(|known| known.verify_signature(&certificate.key, message, signature.signature()).is_ok()) {
        return Ok(HandshakeSignatureValid::assertion());
    }
    Err(CertificateError::BadSignature.into())
}
