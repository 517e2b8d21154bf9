//! The server's own certificate authority: what a certificate request asks for, and the certificate that answers it.
//!
//! Names and keys are taken over from the request byte by byte, so that no part of a user's name or groups is lost.

use std::net::IpAddr;

use rcgen::{KeyPair, SigningKey as _};
use ring::rand::SecureRandom as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer};

use super::subject::element;

const BOOLEAN: u8 = 0x01;
pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OBJECT_IDENTIFIER: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
pub(super) const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// `[0]`, constructed: the attributes of a request, and the version of a certificate.
pub(super) const CONTEXT_0: u8 = 0xa0;
/// `[3]`, constructed: the extensions of a certificate.
const CONTEXT_3: u8 = 0xa3;
/// `[0]`, primitive: the key identifier of an authority.
const KEY_IDENTIFIER: u8 = 0x80;
/// An email address among alternative names.
const EMAIL_NAME: u8 = 0x81;
/// A host name among alternative names.
const DNS_NAME: u8 = 0x82;
/// A URI among alternative names.
const URI_NAME: u8 = 0x86;
/// An IP address among alternative names.
const ADDRESS_NAME: u8 = 0x87;

const EXTENSION_REQUEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x0e];
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
const SUBJECT_KEY_IDENTIFIER: &[u8] = &[0x55, 0x1d, 0x0e];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const AUTHORITY_KEY_IDENTIFIER: &[u8] = &[0x55, 0x1d, 0x23];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
const SERVER_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];
const CLIENT_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02];
const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
/// The largest request that is read; one of a key of 16,384 bits has some 4 KiB.
const MAXIMUM_REQUEST_BYTES: usize = 64 * 1024;

/// Why a certificate is not issued.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    /// The request cannot be read.
    #[error("cannot read the certificate request: {0}")]
    Malformed(&'static str),
    /// The request is not signed with the key that it names, or in a way that is not supported.
    #[error("the certificate request's signature is not valid, or its algorithm is not supported")]
    Signature,
    /// The authority's certificate has ended, or has an end that cannot be read.
    #[error("the certificate of the authority is no longer valid")]
    Expired,
    /// The authority did not sign.
    #[error("the authority cannot sign: {0}")]
    Sign(String),
}

/// What a certificate request (PKCS#10) asks for. Its signature has been verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRequest {
    /// The last common name of the subject.
    pub common_name: String,
    /// The organizations of the subject, in order.
    pub organizations: Vec<String>,
    /// Host names.
    pub dns_names: Vec<String>,
    /// IP addresses.
    pub ip_addresses: Vec<IpAddr>,
    /// Email addresses.
    pub email_addresses: Vec<String>,
    /// URIs.
    pub uris: Vec<String>,
    /// The subject, in DER.
    subject: Vec<u8>,
    /// The public key with its algorithm, in DER.
    public_key: Vec<u8>,
}

/// What a certificate may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateUsage {
    /// `digital signature`
    DigitalSignature,
    /// `key encipherment`
    KeyEncipherment,
    /// `server auth`
    ServerAuth,
    /// `client auth`
    ClientAuth,
}

/// The terms of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateTerms {
    /// What it may be used for.
    pub usages: Vec<CertificateUsage>,
    /// From when on it is valid.
    pub not_before: jiff::Timestamp,
    /// Until when it is valid, if the authority is as long.
    pub not_after: jiff::Timestamp,
}

/// An element with its content.
pub(super) fn encode(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut bytes = vec![tag];
    let digits = length.to_be_bytes();
    let digits = &digits[digits.iter().take_while(|digit| **digit == 0).count()..];
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => bytes.push(short),
        _ => {
            bytes.push(0x80 | u8::try_from(digits.len()).unwrap_or(8));
            bytes.extend_from_slice(digits);
        }
    }
    for part in parts {
        bytes.extend_from_slice(part);
    }
    bytes
}

/// The next element, if it has this tag: its content, the whole of it, and what follows.
fn expect<'a>(bytes: &'a [u8], tag: u8, what: &'static str) -> Result<[&'a [u8]; 3], SigningError> {
    match element(bytes) {
        Some((found, content, rest)) if found == tag => {
            Ok([content, &bytes[..bytes.len() - rest.len()], rest])
        }
        _ => Err(SigningError::Malformed(what)),
    }
}

/// The elements of a content, each with its tag. Nothing is left out: what others read there must not differ from what was checked.
fn elements<'a>(mut bytes: &'a [u8], what: &'static str) -> Result<Vec<(u8, &'a [u8])>, SigningError> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let (tag, content, rest) = element(bytes).ok_or(SigningError::Malformed(what))?;
        found.push((tag, content));
        bytes = rest;
    }
    Ok(found)
}

/// The value of an extension.
fn extension<'a>(extensions: &'a [u8], identifier: &[u8]) -> Result<Option<&'a [u8]>, SigningError> {
    let what = "its extensions cannot be read";
    for (_, one) in elements(extensions, what)? {
        let [name, _, value] = expect(one, OBJECT_IDENTIFIER, what)?;
        if name == identifier {
            let octets = elements(value, what)?.into_iter().find(|(tag, _)| *tag == OCTET_STRING);
            return Ok(octets.map(|(_, value)| value));
        }
    }
    Ok(None)
}

fn text(bytes: &[u8]) -> Result<String, SigningError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| SigningError::Malformed("a name is not UTF-8"))
}

impl CertificateRequest {
    /// Reads a request in PEM, and verifies that it is signed with the key that it names.
    pub fn from_pem(pem: &[u8]) -> Result<Self, SigningError> {
        if pem.len() > MAXIMUM_REQUEST_BYTES {
            return Err(SigningError::Malformed("it is too large"));
        }
        let der = CertificateSigningRequestDer::from_pem_slice(pem)
            .map_err(|_| SigningError::Malformed("it holds no PEM block CERTIFICATE REQUEST"))?;
        Self::from_der(&der)
    }

    pub(crate) fn from_der(der: &[u8]) -> Result<Self, SigningError> {
        let [request, _, _] = expect(der, SEQUENCE, "it is not a PKCS#10 request")?;
        let [info, signed, rest] = expect(request, SEQUENCE, "its contents are missing")?;
        let [algorithm, _, rest] = expect(rest, SEQUENCE, "its signature algorithm is missing")?;
        let [signature, _, _] = expect(rest, BIT_STRING, "its signature is missing")?;
        let [_, _, info] = expect(info, INTEGER, "its version is missing")?;
        let [names, subject, info] = expect(info, SEQUENCE, "its subject is missing")?;
        let [key, public_key, attributes] = expect(info, SEQUENCE, "its key is missing")?;
        let mut read = Self {
            common_name: String::new(),
            organizations: Vec::new(),
            dns_names: Vec::new(),
            ip_addresses: Vec::new(),
            email_addresses: Vec::new(),
            uris: Vec::new(),
            subject: subject.to_vec(),
            public_key: public_key.to_vec(),
        };
        read.read_subject(names)?;
        let what = "its attributes cannot be read";
        for (_, attribute) in match element(attributes) {
            Some((CONTEXT_0, content, _)) => elements(content, what)?,
            _ => Vec::new(),
        } {
            let [name, _, values] = expect(attribute, OBJECT_IDENTIFIER, "an attribute has no type")?;
            if name == EXTENSION_REQUEST {
                let [value, _, _] = expect(values, SET, "its extensions cannot be read")?;
                let [extensions, _, _] = expect(value, SEQUENCE, "its extensions cannot be read")?;
                if let Some(names) = extension(extensions, ALTERNATIVE_NAMES)? {
                    let [names, _, _] = expect(names, SEQUENCE, "its alternative names cannot be read")?;
                    read.read_alternative_names(names)?;
                }
            }
        }
        verify(key, algorithm, signed, signature)?;
        Ok(read)
    }

    fn read_subject(&mut self, names: &[u8]) -> Result<(), SigningError> {
        for (_, pairs) in elements(names, "its subject cannot be read")? {
            for (_, pair) in elements(pairs, "its subject cannot be read")? {
                let [kind, _, value] = expect(pair, OBJECT_IDENTIFIER, "a name of its subject has no type")?;
                let (_, value, _) = element(value).ok_or(SigningError::Malformed("a name has no value"))?;
                match kind {
                    COMMON_NAME => self.common_name = text(value)?,
                    ORGANIZATION => self.organizations.push(text(value)?),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn read_alternative_names(&mut self, names: &[u8]) -> Result<(), SigningError> {
        for (tag, name) in elements(names, "its alternative names cannot be read")? {
            match tag {
                DNS_NAME => self.dns_names.push(text(name)?),
                EMAIL_NAME => self.email_addresses.push(text(name)?),
                URI_NAME => self.uris.push(text(name)?),
                ADDRESS_NAME => self.ip_addresses.push(address(name)?),
                _ => {}
            }
        }
        Ok(())
    }

    /// The alternative names, as the value of an extension; `None` if there are none.
    fn alternative_names(&self) -> Option<Vec<u8>> {
        let texts = |tag, names: &[String]| -> Vec<Vec<u8>> {
            names.iter().map(|name| encode(tag, &[name.as_bytes()])).collect()
        };
        let addresses = self.ip_addresses.iter().map(|address| match address {
            IpAddr::V4(address) => encode(ADDRESS_NAME, &[&address.octets()]),
            IpAddr::V6(address) => encode(ADDRESS_NAME, &[&address.octets()]),
        });
        let mut names = texts(DNS_NAME, &self.dns_names);
        names.extend(texts(EMAIL_NAME, &self.email_addresses));
        names.extend(addresses);
        names.extend(texts(URI_NAME, &self.uris));
        (!names.is_empty()).then(|| encode(SEQUENCE, &[&names.concat()]))
    }
}

fn address(bytes: &[u8]) -> Result<IpAddr, SigningError> {
    let malformed = |_| SigningError::Malformed("an IP address has neither 4 nor 16 bytes");
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).map(IpAddr::from).map_err(malformed),
        _ => <[u8; 16]>::try_from(bytes).map(IpAddr::from).map_err(malformed),
    }
}

/// Verifies a signature with the contents of a SubjectPublicKeyInfo.
pub(super) fn verify(
    key: &[u8],
    algorithm: &[u8],
    signed: &[u8],
    signature: &[u8],
) -> Result<(), SigningError> {
    let [key_algorithm, _, rest] = expect(key, SEQUENCE, "the algorithm of its key is missing")?;
    let [key, _, _] = expect(rest, BIT_STRING, "its key is missing")?;
    // A bit string begins with the number of its unused bits.
    let whole = |bits: &[u8]| bits.strip_prefix(&[0]).map(<[u8]>::to_vec).ok_or(SigningError::Signature);
    let (key, signature) = (whole(key)?, whole(signature)?);
    let provider = rustls::crypto::ring::default_provider();
    let mut known = provider.signature_verification_algorithms.all.iter().filter(|known| {
        known.public_key_alg_id().as_ref() == key_algorithm && known.signature_alg_id().as_ref() == algorithm
    });
    let verified = known.any(|known| known.verify_signature(&key, signed, &signature).is_ok());
    if verified { Ok(()) } else { Err(SigningError::Signature) }
}

/// The authority whose clients the server accepts.
pub struct CertificateAuthority {
    key: KeyPair,
    /// Its name, in DER.
    subject: Vec<u8>,
    /// The identifier of its key, if it has one.
    key_identifier: Option<Vec<u8>>,
    not_after: jiff::Timestamp,
}

impl std::fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertificateAuthority").field("not_after", &self.not_after).finish_non_exhaustive()
    }
}

impl CertificateAuthority {
    /// The authority with this certificate and its key.
    pub(crate) fn new(certificate: &CertificateDer<'_>, key: KeyPair) -> Result<Self, SigningError> {
        let what = "the certificate of the authority cannot be read";
        let [certificate, _, _] = expect(certificate, SEQUENCE, what)?;
        let [contents, _, _] = expect(certificate, SEQUENCE, what)?;
        let [_, _, rest] = expect(contents, CONTEXT_0, what)?;
        let [_, _, rest] = expect(rest, INTEGER, what)?;
        let [_, _, rest] = expect(rest, SEQUENCE, what)?;
        let [_, _, rest] = expect(rest, SEQUENCE, what)?;
        let [validity, _, rest] = expect(rest, SEQUENCE, what)?;
        let [_, subject, rest] = expect(rest, SEQUENCE, what)?;
        let [_, _, rest] = expect(rest, SEQUENCE, what)?;
        let (_, end) = *elements(validity, what)?.get(1).ok_or(SigningError::Malformed(what))?;
        let extensions = elements(rest, what)?.into_iter().find(|(tag, _)| *tag == CONTEXT_3);
        let extensions = extensions.and_then(|(_, content)| element(content)).map(|(_, content, _)| content);
        let identifier = extensions.map(|all| extension(all, SUBJECT_KEY_IDENTIFIER)).transpose()?.flatten();
        Ok(Self {
            key,
            subject: subject.to_vec(),
            key_identifier: identifier.and_then(element).map(|(_, content, _)| content.to_vec()),
            not_after: parse_time(end).ok_or(SigningError::Expired)?,
        })
    }

    /// Issues the certificate that a request asks for, in PEM.
    pub fn sign(
        &self,
        request: &CertificateRequest,
        terms: &CertificateTerms,
    ) -> Result<String, SigningError> {
        let not_after = terms.not_after.min(self.not_after);
        if terms.not_before >= not_after {
            return Err(SigningError::Expired);
        }
        let mut serial = [0; 16];
        ring::rand::SystemRandom::new()
            .fill(&mut serial)
            .map_err(|_| SigningError::Sign("no random number".to_owned()))?;
        // Positive, and without a leading zero.
        serial[0] = serial[0] & 0x3f | 0x40;
        let algorithm = encode(SEQUENCE, &[&encode(OBJECT_IDENTIFIER, &[ECDSA_WITH_SHA256])]);
        let validity = encode(SEQUENCE, &[&time(terms.not_before), &time(not_after)]);
        let extensions = encode(CONTEXT_3, &[&encode(SEQUENCE, &[&self.extensions(request, &terms.usages)])]);
        let contents = encode(
            SEQUENCE,
            &[
                &encode(CONTEXT_0, &[&encode(INTEGER, &[&[2]])]),
                &encode(INTEGER, &[&serial]),
                &algorithm,
                &self.subject,
                &validity,
                &request.subject,
                &request.public_key,
                &extensions,
            ],
        );
        let signature = self.key.sign(&contents).map_err(|error| SigningError::Sign(error.to_string()))?;
        let signature = encode(BIT_STRING, &[&[0], &signature]);
        Ok(to_pem(&encode(SEQUENCE, &[&contents, &algorithm, &signature])))
    }

    fn extensions(&self, request: &CertificateRequest, usages: &[CertificateUsage]) -> Vec<u8> {
        let one = |identifier: &[u8], critical: bool, value: &[u8]| {
            let mark = if critical { encode(BOOLEAN, &[&[0xff]]) } else { Vec::new() };
            let name = encode(OBJECT_IDENTIFIER, &[identifier]);
            encode(SEQUENCE, &[&name, &mark, &encode(OCTET_STRING, &[value])])
        };
        let mut all = Vec::new();
        let bit = |usage, bit: u8| if usages.contains(&usage) { bit } else { 0 };
        let bits =
            bit(CertificateUsage::DigitalSignature, 0x80) | bit(CertificateUsage::KeyEncipherment, 0x20);
        if bits != 0 {
            let unused = u8::try_from(bits.trailing_zeros()).unwrap_or(0);
            all.extend(one(KEY_USAGE, true, &encode(BIT_STRING, &[&[unused, bits]])));
        }
        let purposes: Vec<u8> =
            [(CertificateUsage::ServerAuth, SERVER_AUTH), (CertificateUsage::ClientAuth, CLIENT_AUTH)]
                .into_iter()
                .filter(|(usage, _)| usages.contains(usage))
                .flat_map(|(_, identifier)| encode(OBJECT_IDENTIFIER, &[identifier]))
                .collect();
        if !purposes.is_empty() {
            all.extend(one(EXTENDED_KEY_USAGE, false, &encode(SEQUENCE, &[&purposes])));
        }
        all.extend(one(BASIC_CONSTRAINTS, true, &encode(SEQUENCE, &[])));
        if let Some(identifier) = &self.key_identifier {
            let identifier = encode(KEY_IDENTIFIER, &[identifier]);
            all.extend(one(AUTHORITY_KEY_IDENTIFIER, false, &encode(SEQUENCE, &[&identifier])));
        }
        if let Some(names) = request.alternative_names() {
            // Names are critical where the subject says nothing.
            all.extend(one(ALTERNATIVE_NAMES, request.subject == encode(SEQUENCE, &[]), &names));
        }
        all
    }
}

/// Years before this one are written with two digits.
const FIRST_LONG_YEAR: i16 = 2050;

fn time(at: jiff::Timestamp) -> Vec<u8> {
    let at = at.to_zoned(jiff::tz::TimeZone::UTC);
    let (tag, format) = if at.year() < FIRST_LONG_YEAR {
        (UTC_TIME, "%y%m%d%H%M%SZ")
    } else {
        (GENERALIZED_TIME, "%Y%m%d%H%M%SZ")
    };
    encode(tag, &[at.strftime(format).to_string().as_bytes()])
}

pub(super) fn parse_time(text: &[u8]) -> Option<jiff::Timestamp> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    // Two digits of a year stand for one between 1950 and 2049.
    let text = match text.len() {
        12 if text < "50" => format!("20{text}"),
        12 => format!("19{text}"),
        _ => text.to_owned(),
    };
    let parsed = jiff::civil::DateTime::strptime("%Y%m%d%H%M%S", &text).ok()?;
    parsed.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|at| at.timestamp())
}

/// The characters of a line in PEM.
const PEM_LINE: usize = 64;

fn to_pem(der: &[u8]) -> String {
    use base64::Engine as _;
    let encoded = base64::engine::general_purpose::STANDARD.encode(der);
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for line in encoded.as_bytes().chunks(PEM_LINE) {
        pem.extend(line.iter().copied().map(char::from));
        pem.push('\n');
    }
    pem + "-----END CERTIFICATE-----\n"
}

#[cfg(test)]
mod tests;
