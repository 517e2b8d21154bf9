//! Facts about certificates and public keys that rules of kinds need. Nothing is verified.

use x509_cert::Certificate;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::{Decode as _, Reader as _, SliceReader};
use x509_cert::ext::pkix::BasicConstraints;

use super::{ALTERNATIVE_NAMES, AlternativeNames, MalformedDocument, contents_of, elements};

const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const ELLIPTIC_CURVE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
const ED25519_BYTES: usize = 32;
const BASIC_CONSTRAINTS: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.19");
/// Go's curves, each with the length of a coordinate in bytes.
const CURVES: [(ObjectIdentifier, &str, usize); 4] = [
    (ObjectIdentifier::new_unwrap("1.3.132.0.33"), "P-224", 28),
    (ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7"), "P-256", 32),
    (ObjectIdentifier::new_unwrap("1.3.132.0.34"), "P-384", 48),
    (ObjectIdentifier::new_unwrap("1.3.132.0.35"), "P-521", 66),
];
/// An encoded NULL element.
const NULL: &[u8] = &[5, 0];
/// First byte of a point that is written with both coordinates.
const UNCOMPRESSED: u8 = 4;

/// Kind of a public key, as distinguished by Go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PublicKey {
    Ed25519,
    /// A key on the curve with this name.
    Curve(&'static str),
    /// Size of the modulus, rounded up to whole bytes.
    Rsa {
        bits: usize,
    },
    Other,
}

impl PublicKey {
    /// Reads a DER SubjectPublicKeyInfo.
    ///
    /// # Errors
    /// Fails if Go cannot read the key. A key with an unknown algorithm is [`PublicKey::Other`].
    pub(crate) fn from_der(der: &[u8]) -> Result<Self, MalformedDocument> {
        const WHAT: MalformedDocument = MalformedDocument("a public key cannot be read");
        let [algorithm, bits] = elements(der, WHAT)?[..] else { return Err(WHAT) };
        let mut reader = SliceReader::new(contents_of(algorithm, WHAT)?).map_err(|_| WHAT)?;
        let mut next = || {
            let is_over = reader.is_finished();
            if is_over { Ok(&[][..]) } else { reader.tlv_bytes().map_err(|_| WHAT) }
        };
        let algorithm = ObjectIdentifier::from_der(next()?).map_err(|_| WHAT)?;
        let parameters = next()?;
        // A bit string begins with the number of its unused bits.
        let key = contents_of(bits, WHAT)?.strip_prefix(&[0]).ok_or(WHAT)?;
        match algorithm {
            ED25519 if parameters.is_empty() && key.len() == ED25519_BYTES => Ok(Self::Ed25519),
            RSA if parameters == NULL => Ok(Self::Rsa { bits: modulus_bytes(key, WHAT)? * 8 }),
            ELLIPTIC_CURVE => {
                let curve = ObjectIdentifier::from_der(parameters).map_err(|_| WHAT)?;
                let known = CURVES.iter().find(|(known, ..)| *known == curve);
                let (_, name, bytes) = known.ok_or(WHAT)?;
                let is_point = key.first() == Some(&UNCOMPRESSED) && key.len() == 1 + 2 * bytes;
                if is_point { Ok(Self::Curve(name)) } else { Err(WHAT) }
            }
            ED25519 | RSA => Err(WHAT),
            _ => Ok(Self::Other),
        }
    }
}

/// Returns the length of an RSA key's modulus in bytes.
fn modulus_bytes(key: &[u8], what: MalformedDocument) -> Result<usize, MalformedDocument> {
    let [modulus, _] = elements(key, what)?[..] else { return Err(what) };
    let modulus = contents_of(modulus, what)?;
    // The first bit of a number is its sign.
    let is_positive = modulus.first().is_some_and(|first| first & 0x80 == 0);
    let leading = modulus.iter().take_while(|byte| **byte == 0).count();
    if is_positive && leading < modulus.len() { Ok(modulus.len() - leading) } else { Err(what) }
}

/// Facts about a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateFacts {
    /// True if the certificate may sign others.
    pub(crate) is_authority: bool,
    /// Alternative names of its subject.
    pub(crate) names: AlternativeNames,
    /// Public key with its algorithm in DER.
    pub(crate) public_key: Vec<u8>,
    /// First second of its validity.
    pub(crate) not_before: i64,
    /// Last second of its validity.
    pub(crate) not_after: i64,
}

impl CertificateFacts {
    /// Reads a DER certificate.
    ///
    /// # Errors
    /// Fails if the certificate is malformed, or if Go cannot read its key.
    pub(crate) fn from_der(der: &[u8]) -> Result<Self, MalformedDocument> {
        const WHAT: MalformedDocument = MalformedDocument("it is not a well-formed certificate");
        let parsed = Certificate::from_der(der).map_err(|_| WHAT)?;
        let parsed = parsed.tbs_certificate();
        let [signed, _, _] = elements(der, WHAT)?[..] else { return Err(WHAT) };
        let contents = elements(signed, WHAT)?;
        // Version 1 is encoded by omitting the version.
        let skipped = usize::from(contents.first().is_some_and(|first| first.first() == Some(&0xa0)));
        let [_, _, _, _, _, public_key, ..] = contents[skipped..] else { return Err(WHAT) };
        PublicKey::from_der(public_key)?;
        let seconds =
            |time: x509_cert::time::Time| i64::try_from(time.to_unix_duration().as_secs()).map_err(|_| WHAT);
        let mut facts = Self {
            is_authority: false,
            names: AlternativeNames::default(),
            public_key: public_key.to_vec(),
            not_before: seconds(parsed.validity().not_before)?,
            not_after: seconds(parsed.validity().not_after)?,
        };
        let mut seen = Vec::new();
        for extension in parsed.extensions().into_iter().flatten() {
            if seen.contains(&extension.extn_id) {
                return Err(MalformedDocument("it has an extension twice"));
            }
            seen.push(extension.extn_id);
            let value = extension.extn_value.as_bytes();
            match extension.extn_id {
                BASIC_CONSTRAINTS => {
                    facts.is_authority = BasicConstraints::from_der(value).map_err(|_| WHAT)?.ca;
                }
                ALTERNATIVE_NAMES => facts.names = AlternativeNames::from_der(value)?,
                _ => {}
            }
        }
        Ok(facts)
    }
}
