//! Verification of a certificate request's signature, as Go's `CertificateRequest.CheckSignature` does it.

use gc_registry::x509::{CertificateRequest, MalformedDocument, RequestSignature, contents_of, elements};
use ring::signature::{
    RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY, RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
    RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY, RSA_PKCS1_2048_8192_SHA384, RsaParameters,
    UnparsedPublicKey,
};
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::{Decode as _, Reader as _, SliceReader};

use super::verifies;

const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const ELLIPTIC_CURVE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
const MD5_RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.4");
const RSA_PSS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.10");
/// Go's curves: P-224, P-256, P-384 and P-521.
const CURVES: [ObjectIdentifier; 4] = [
    ObjectIdentifier::new_unwrap("1.3.132.0.33"),
    ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7"),
    ObjectIdentifier::new_unwrap("1.3.132.0.34"),
    ObjectIdentifier::new_unwrap("1.3.132.0.35"),
];
/// ECDSA with SHA-1, SHA-256, SHA-384 and SHA-512: Go accepts each of them with each curve.
const ECDSA: [ObjectIdentifier; 4] = [
    ObjectIdentifier::new_unwrap("1.2.840.10045.4.1"),
    ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2"),
    ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.3"),
    ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.4"),
];
/// RSA by PKCS #1 with SHA-1 (which Go accepts for requests only), SHA-256, SHA-384 and SHA-512, and the size in bits of the
/// smallest key that *ring* supports with it.
static RSA_PKCS1: [(ObjectIdentifier, &RsaParameters, usize); 4] = [
    (
        ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.5"),
        &RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY,
        LEAST_RSA_BITS,
    ),
    (
        ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.11"),
        &RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
        LEAST_RSA_BITS,
    ),
    (ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.12"), &RSA_PKCS1_2048_8192_SHA384, 2048),
    (
        ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.13"),
        &RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
        LEAST_RSA_BITS,
    ),
];
/// Size in bits of the smallest RSA key that Go accepts...
const LEAST_RSA_BITS: usize = 1024;
/// ...and of the largest that *ring* supports.
const MOST_RSA_BITS: usize = 8192;

const UNREADABLE_KEY: &str = "x509: failed to parse the public key";
const UNIMPLEMENTED: &str = "x509: cannot verify signature: algorithm unimplemented";

/// Checks that a request is signed with the key that it contains.
pub(crate) fn verify_request(request: &CertificateRequest) -> RequestSignature {
    let Some(key) = Key::read(&request.public_key) else {
        return RequestSignature::Refused(UNREADABLE_KEY.to_owned());
    };
    let Some((algorithm, _)) = identifier(&request.algorithm) else {
        return RequestSignature::Refused(UNIMPLEMENTED.to_owned());
    };
    let pkcs1 = RSA_PKCS1.iter().find(|(known, ..)| *known == algorithm);
    let wanted = match algorithm {
        MD5_RSA => {
            let why = "x509: cannot verify signature: insecure algorithm MD5-RSA";
            return RequestSignature::Refused(why.to_owned());
        }
        RSA_PSS => RSA,
        _ if pkcs1.is_some() => RSA,
        _ if ECDSA.contains(&algorithm) => ELLIPTIC_CURVE,
        ED25519 => ED25519,
        _ => return RequestSignature::Refused(UNIMPLEMENTED.to_owned()),
    };
    if key.algorithm != wanted {
        return RequestSignature::Refused(format!(
            "x509: signature algorithm specifies an {} public key, but have public key of type {}",
            name(wanted),
            go_type(key.algorithm),
        ));
    }
    match pkcs1 {
        Some((_, parameters, least)) => key.verify_pkcs1(parameters, *least, request),
        None => key.verify_exactly(request),
    }
}

/// Public key of a request.
#[derive(Clone, Copy)]
struct Key<'a> {
    algorithm: ObjectIdentifier,
    /// Algorithm and parameters, in the form that [`verifies`] compares.
    identifier: &'a [u8],
    parameters: &'a [u8],
    bytes: &'a [u8],
}

impl<'a> Key<'a> {
    fn read(der: &'a [u8]) -> Option<Self> {
        const WHAT: MalformedDocument = MalformedDocument("a public key cannot be read");
        let parts = elements(der, WHAT).ok()?;
        let [algorithm, bits] = parts[..] else { return None };
        let whole = contents_of(algorithm, WHAT).ok()?;
        let (algorithm, parameters) = identifier(whole)?;
        // A bit string begins with the number of its unused bits.
        let bytes = contents_of(bits, WHAT).ok()?.strip_prefix(&[0])?;
        Some(Self { algorithm, identifier: whole, parameters, bytes })
    }

    /// Reports whether the key is on a curve that Go supports.
    fn has_known_curve(&self) -> bool {
        ObjectIdentifier::from_der(self.parameters).is_ok_and(|curve| CURVES.contains(&curve))
    }

    /// Verifies the signature by an algorithm that *ring* has for exactly this type of key.
    fn verify_exactly(&self, request: &CertificateRequest) -> RequestSignature {
        let key = (self.identifier, self.bytes);
        match verifies(key, &request.algorithm, &request.signed, &request.signature) {
            Some(true) => RequestSignature::Verified,
            Some(false) => RequestSignature::Refused(failure(self.algorithm).to_owned()),
            None if self.algorithm == ELLIPTIC_CURVE && self.has_known_curve() => {
                RequestSignature::Unverifiable("ECDSA with this curve and hash")
            }
            None => RequestSignature::Refused(UNIMPLEMENTED.to_owned()),
        }
    }

    fn verify_pkcs1(
        &self,
        parameters: &'static RsaParameters,
        least_bits: usize,
        request: &CertificateRequest,
    ) -> RequestSignature {
        let Some(bits) = modulus_bits(self.bytes) else {
            return RequestSignature::Refused(UNREADABLE_KEY.to_owned());
        };
        if bits < LEAST_RSA_BITS {
            return RequestSignature::Refused(format!("crypto/rsa: {bits}-bit keys are insecure"));
        }
        if !(least_bits..=MOST_RSA_BITS).contains(&bits) {
            return RequestSignature::Unverifiable("RSA with a key of this size");
        }
        match UnparsedPublicKey::new(parameters, self.bytes).verify(&request.signed, &request.signature) {
            Ok(()) => RequestSignature::Verified,
            Err(_) => RequestSignature::Refused(failure(RSA).to_owned()),
        }
    }
}

/// Splits the contents of an identifier into the algorithm and its parameters.
fn identifier(contents: &[u8]) -> Option<(ObjectIdentifier, &[u8])> {
    let mut reader = SliceReader::new(contents).ok()?;
    let algorithm = ObjectIdentifier::from_der(reader.tlv_bytes().ok()?).ok()?;
    let parameters = if reader.is_finished() { &[][..] } else { reader.tlv_bytes().ok()? };
    reader.is_finished().then_some((algorithm, parameters))
}

/// Returns the size of an RSA key's modulus in bits.
fn modulus_bits(key: &[u8]) -> Option<usize> {
    const WHAT: MalformedDocument = MalformedDocument("a modulus cannot be read");
    let parts = elements(key, WHAT).ok()?;
    let modulus = contents_of(parts.first()?, WHAT).ok()?;
    let modulus = &modulus[modulus.iter().take_while(|byte| **byte == 0).count()..];
    let first = modulus.first()?;
    Some(modulus.len() * 8 - usize::try_from(first.leading_zeros()).ok()?)
}

fn name(algorithm: ObjectIdentifier) -> &'static str {
    match algorithm {
        RSA => "RSA",
        ED25519 => "Ed25519",
        _ => "ECDSA",
    }
}

fn go_type(algorithm: ObjectIdentifier) -> &'static str {
    match algorithm {
        RSA => "*rsa.PublicKey",
        ED25519 => "ed25519.PublicKey",
        ELLIPTIC_CURVE => "*ecdsa.PublicKey",
        _ => "<nil>",
    }
}

fn failure(algorithm: ObjectIdentifier) -> &'static str {
    match algorithm {
        RSA => "crypto/rsa: verification error",
        ED25519 => "x509: Ed25519 verification failure",
        _ => "x509: ECDSA verification failure",
    }
}

#[cfg(test)]
mod tests;
