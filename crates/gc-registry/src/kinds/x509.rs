//! Certificate requests and the names in certificates, parsed from DER by the crate `x509-cert`.
//!
//! All code that makes decisions based on a name reads it here: whether it may be requested, signed or presented. This gives each
//! document a single meaning. Documents that do not parse are refused.

mod certificate;

use std::net::IpAddr;

use rustls_pki_types::CertificateSigningRequestDer;
use rustls_pki_types::pem::{PemObject, SectionKind};
use x509_cert::Certificate;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::{AnyRef, ObjectIdentifier, SetOfVec};
use x509_cert::der::{Decode, Reader as _, SliceReader, Tag, Tagged as _};
use x509_cert::ext::Extensions;
use x509_cert::request::CertReq;

pub(crate) use certificate::{CertificateFacts, PublicKey};

/// Maximum size of a request in bytes; one with a key of 16,384 bits has about 4 KiB.
const MAXIMUM_REQUEST_BYTES: usize = 64 * 1024;
/// Beginning of a PEM block.
const PEM_BEGIN: &[u8] = b"-----BEGIN ";

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");
const EXTENSION_REQUEST: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.14");
/// Extension with the alternative names.
pub const ALTERNATIVE_NAMES: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.17");

/// Error: a document cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MalformedDocument(pub &'static str);

/// Names in the subject of a certificate that determine user and groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// Last common name.
    pub common_name: String,
    /// Organizations, in order.
    pub organizations: Vec<String>,
}

/// Alternative names of a subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlternativeNames {
    /// Host names.
    pub dns_names: Vec<String>,
    /// IP addresses.
    pub ip_addresses: Vec<IpAddr>,
    /// Email addresses.
    pub email_addresses: Vec<String>,
    /// URIs.
    pub uris: Vec<String>,
}

/// A certificate request (PKCS#10). Its signature has not been verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRequest {
    /// Names in the subject.
    pub subject: Subject,
    /// Requested alternative names.
    pub names: AlternativeNames,
    /// Subject in DER, as sent.
    pub subject_der: Vec<u8>,
    /// Public key with its algorithm in DER, as sent.
    pub public_key: Vec<u8>,
    /// Signed bytes.
    pub signed: Vec<u8>,
    /// Algorithm of the signature, without the header of its element.
    pub algorithm: Vec<u8>,
    /// Signature.
    pub signature: Vec<u8>,
}

/// Result of checking the signature of a certificate request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestSignature {
    /// Made with the key in the request.
    Verified,
    /// Made with another key, or by an algorithm that no client accepts; the reason is in Go's wording.
    Refused(String),
    /// Made by this algorithm, which Go verifies but this server cannot.
    Unverifiable(&'static str),
}

/// Verifies the signature of a certificate request. The server provides this, because the registry has no cryptography.
pub type SignatureVerifier = fn(&CertificateRequest) -> RequestSignature;

impl CertificateRequest {
    /// Reads a PEM request. Text around its block is permitted, further blocks are not: programs differ in which one they use.
    ///
    /// # Errors
    /// Fails if the request is too large, contains no block or several, or is malformed.
    pub fn from_pem(pem: &[u8]) -> Result<Self, MalformedDocument> {
        if pem.len() > MAXIMUM_REQUEST_BYTES {
            return Err(MalformedDocument("it is too large"));
        }
        let blocks = pem.windows(PEM_BEGIN.len()).filter(|window| *window == PEM_BEGIN).count();
        if blocks > 1 {
            return Err(MalformedDocument("it holds several PEM blocks"));
        }
        let der = CertificateSigningRequestDer::from_pem_slice(pem)
            .map_err(|_| MalformedDocument("PEM block type must be CERTIFICATE REQUEST"))?;
        Self::from_der(&der)
    }

    /// Reads a DER request.
    ///
    /// # Errors
    /// Fails if the request is malformed.
    pub fn from_der(der: &[u8]) -> Result<Self, MalformedDocument> {
        const WHAT: MalformedDocument = MalformedDocument("it is not a well-formed PKCS#10 request");
        let request = CertReq::from_der(der).map_err(|_| WHAT)?;
        let whole = elements(der, WHAT)?;
        let [signed, algorithm, _] = whole[..] else { return Err(WHAT) };
        let contents = elements(signed, WHAT)?;
        let [_, subject_der, public_key, _] = contents[..] else { return Err(WHAT) };
        let mut names = None;
        for attribute in request.info.attributes.iter().filter(|known| known.oid == EXTENSION_REQUEST) {
            let [extensions] = attribute.values.as_slice() else {
                return Err(MalformedDocument("it asks for extensions in several ways"));
            };
            let extensions: Extensions =
                extensions.decode_as().map_err(|_| MalformedDocument("its extensions cannot be read"))?;
            for extension in extensions.iter().filter(|known| known.extn_id == ALTERNATIVE_NAMES) {
                if names.is_some() {
                    return Err(MalformedDocument("it has alternative names twice"));
                }
                names = Some(AlternativeNames::from_der(extension.extn_value.as_bytes())?);
            }
        }
        let signature =
            request.signature.as_bytes().ok_or(MalformedDocument("its signature is not whole bytes"))?;
        Ok(Self {
            subject: Subject::from_der(subject_der)?,
            names: names.unwrap_or_default(),
            subject_der: subject_der.to_vec(),
            public_key: public_key.to_vec(),
            signed: signed.to_vec(),
            algorithm: contents_of(algorithm, WHAT)?.to_vec(),
            signature: signature.to_vec(),
        })
    }
}

impl Subject {
    /// Reads a DER subject.
    ///
    /// # Errors
    /// Fails if the subject is malformed, or has a user or group in a character set other than UTF-8 or ASCII.
    pub fn from_der(der: &[u8]) -> Result<Self, MalformedDocument> {
        const WHAT: MalformedDocument = MalformedDocument("its subject cannot be read");
        let sets: Vec<SetOfVec<AttributeTypeAndValue>> = Decode::from_der(der).map_err(|_| WHAT)?;
        // The crate sorts sets; users and groups must keep their original order.
        let mut subject = Self::default();
        for set in elements(der, WHAT)?.into_iter().take(sets.len()) {
            for pair in elements(set, WHAT)? {
                let pair = AttributeTypeAndValue::from_der(pair).map_err(|_| WHAT)?;
                match pair.oid {
                    COMMON_NAME => subject.common_name = text((&pair.value).into())?,
                    ORGANIZATION => subject.organizations.push(text((&pair.value).into())?),
                    _ => {}
                }
            }
        }
        Ok(subject)
    }
}

/// Reads a text in a subject. Character sets that programs interpret differently are refused.
fn text(value: AnyRef<'_>) -> Result<String, MalformedDocument> {
    let is_known = match value.tag() {
        Tag::Utf8String => true,
        Tag::PrintableString
        | Tag::Ia5String
        | Tag::NumericString
        | Tag::VisibleString
        | Tag::TeletexString => value.value().is_ascii(),
        _ => false,
    };
    let text = is_known.then(|| String::from_utf8(value.value().to_vec()).ok()).flatten();
    text.ok_or(MalformedDocument("a name is neither UTF-8 nor ASCII"))
}

impl AlternativeNames {
    /// Reads the value of the extension. Names of other kinds are skipped.
    ///
    /// # Errors
    /// Fails if the value is malformed.
    pub fn from_der(der: &[u8]) -> Result<Self, MalformedDocument> {
        const WHAT: MalformedDocument = MalformedDocument("its alternative names cannot be read");
        let mut names = Self::default();
        for name in elements(der, WHAT)? {
            let name = AnyRef::from_der(name).map_err(|_| WHAT)?;
            let Tag::ContextSpecific { number, .. } = name.tag() else { return Err(WHAT) };
            let text = || {
                let text = std::str::from_utf8(name.value()).ok().filter(|text| text.is_ascii());
                text.map(str::to_owned).ok_or(MalformedDocument("an alternative name is not ASCII"))
            };
            match number.value() {
                1 => names.email_addresses.push(text()?),
                2 => names.dns_names.push(text()?),
                6 => names.uris.push(text()?),
                7 => names.ip_addresses.push(address(name.value())?),
                _ => {}
            }
        }
        Ok(names)
    }

    /// Reports whether there are no names.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn address(bytes: &[u8]) -> Result<IpAddr, MalformedDocument> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .map_err(|_| MalformedDocument("an IP address has neither 4 nor 16 bytes"))
}

/// Explains why a text does not consist of PEM certificates; `None` if it does.
pub(crate) fn certificates_problem(pem: &[u8]) -> Option<&'static str> {
    let mut blocks = 0;
    for block in <(SectionKind, Vec<u8>)>::pem_slice_iter(pem) {
        let Ok((kind, der)) = block else { return Some("a PEM block cannot be read") };
        if kind != SectionKind::Certificate {
            return Some("only CERTIFICATE PEM blocks are allowed");
        }
        if Certificate::from_der(&der).is_err() {
            return Some("x509: malformed certificate");
        }
        blocks += 1;
    }
    (blocks == 0).then_some("must contain at least one CERTIFICATE PEM block")
}

/// Returns the elements of a sequence or set, each with its header.
///
/// # Errors
/// Fails with the given error if the bytes are not exactly one sequence or set of well-formed elements.
pub fn elements(der: &[u8], what: MalformedDocument) -> Result<Vec<&[u8]>, MalformedDocument> {
    let whole = AnyRef::from_der(der).map_err(|_| what)?;
    if !matches!(whole.tag(), Tag::Sequence | Tag::Set) {
        return Err(what);
    }
    let mut reader = SliceReader::new(whole.value()).map_err(|_| what)?;
    let mut found = Vec::new();
    while !reader.is_finished() {
        found.push(reader.tlv_bytes().map_err(|_| what)?);
    }
    Ok(found)
}

/// Returns the contents of an element, without its header.
///
/// # Errors
/// Fails with the given error if the bytes are not exactly one element.
pub fn contents_of(der: &[u8], what: MalformedDocument) -> Result<&[u8], MalformedDocument> {
    AnyRef::from_der(der).map(AnyRef::value).map_err(|_| what)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use super::*;

    /// Returns a subject with a single name of this type and tag.
    fn subject(oid: u8, tag: u8, text: &[u8]) -> Vec<u8> {
        let sized =
            |tag: u8, content: &[u8]| [&[tag, u8::try_from(content.len()).unwrap()], content].concat();
        let pair = [sized(6, &[0x55, 4, oid]), sized(tag, text)].concat();
        sized(0x30, &sized(0x31, &sized(0x30, &pair)))
    }

    #[test]
    fn a_name_has_one_meaning_or_none() {
        let masters = b"system:masters";
        for tag in [0x0c, 0x13, 0x16, 0x14] {
            let read = Subject::from_der(&subject(10, tag, masters)).unwrap();
            assert_eq!(read.organizations, ["system:masters"], "{tag:x}");
        }
        // UTF-16, which some programs interpret as text and some as bytes; and a value that is not a string at all.
        let wide: Vec<u8> = masters.iter().flat_map(|byte| [0, *byte]).collect();
        for (tag, text) in [(0x1e, &wide[..]), (0x04, masters), (0x13, b"\xff"), (0x0c, b"\xff")] {
            assert!(Subject::from_der(&subject(10, tag, text)).is_err(), "{tag:x}");
        }
        assert_eq!(Subject::from_der(&subject(3, 0x0c, b"jane")).unwrap().common_name, "jane");
        assert_eq!(Subject::from_der(&subject(11, 0x1e, b"\0a")).unwrap(), Subject::default());
        for broken in [
            // Unreadable data follows, or a length has a superfluous byte.
            &b"\x30\x0e\x31\x0a\x30\x08\x06\x03\x55\x04\x03\x0c\x01\x61\x31\x7f"[..],
            b"\x30\x0d\x31\x0b\x30\x09\x06\x03\x55\x04\x0a\x0c\x81\x01\x61",
        ] {
            assert!(Subject::from_der(broken).is_err(), "{broken:x?}");
        }
    }
}
