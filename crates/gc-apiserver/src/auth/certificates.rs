//! The server's own certificate authority: reads certificate requests and issues certificates.
//!
//! Names and keys are copied from the request byte by byte, so no part of a user's name or groups is lost.

use std::net::IpAddr;

use gc_registry::x509::{self, MalformedDocument};
use rcgen::{KeyPair, SigningKey as _};
use ring::rand::SecureRandom as _;
use rustls::pki_types::CertificateDer;

use crate::x509::{Certificate, verifies};

const BOOLEAN: u8 = 0x01;
pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OBJECT_IDENTIFIER: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
pub(super) const SEQUENCE: u8 = 0x30;
/// `[0]`, constructed: the version of a certificate.
const CONTEXT_0: u8 = 0xa0;
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

const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const AUTHORITY_KEY_IDENTIFIER: &[u8] = &[0x55, 0x1d, 0x23];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
const SERVER_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];
const CLIENT_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02];
const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];

/// Reason why a certificate is not issued.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    /// The request cannot be read.
    #[error("cannot read the certificate request: {0}")]
    Malformed(&'static str),
    /// The request is not signed with its own key, or the signature algorithm is not supported.
    #[error("the certificate request's signature is not valid, or its algorithm is not supported")]
    Signature,
    /// The authority's certificate has expired, or its end cannot be read.
    #[error("the certificate of the authority is no longer valid")]
    Expired,
    /// The authority failed to sign.
    #[error("the authority cannot sign: {0}")]
    Sign(String),
}

/// Contents of a certificate request (PKCS#10). Its signature has been verified.
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

/// Permitted use of a certificate.
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
    /// Requested key usages.
    pub usages: Vec<CertificateUsage>,
    /// Start of validity.
    pub not_before: jiff::Timestamp,
    /// End of validity, cut off at the authority's own end.
    pub not_after: jiff::Timestamp,
}

/// Encodes an element with its content.
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

impl CertificateRequest {
    /// Reads a request in PEM and verifies that it is signed with the key that it contains.
    pub fn from_pem(pem: &[u8]) -> Result<Self, SigningError> {
        Self::verified(x509::CertificateRequest::from_pem(pem).map_err(malformed)?)
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn from_der(der: &[u8]) -> Result<Self, SigningError> {
        Self::verified(x509::CertificateRequest::from_der(der).map_err(malformed)?)
    }

    fn verified(request: x509::CertificateRequest) -> Result<Self, SigningError> {
        let what = MalformedDocument("its key cannot be read");
        let key = x509::elements(&request.public_key, what).map_err(malformed)?;
        let [key_algorithm, key] = key[..] else { return Err(malformed(what)) };
        let key_algorithm = x509::contents_of(key_algorithm, what).map_err(malformed)?;
        // A bit string begins with the number of its unused bits.
        let key = x509::contents_of(key, what).map_err(malformed)?;
        let key = key.strip_prefix(&[0]).ok_or(malformed(what))?;
        if verifies((key_algorithm, key), &request.algorithm, &request.signed, &request.signature)
            != Some(true)
        {
            return Err(SigningError::Signature);
        }
        let x509::CertificateRequest { subject, names, subject_der, public_key, .. } = request;
        Ok(Self {
            common_name: subject.common_name,
            organizations: subject.organizations,
            dns_names: names.dns_names,
            ip_addresses: names.ip_addresses,
            email_addresses: names.email_addresses,
            uris: names.uris,
            subject: subject_der,
            public_key,
        })
    }

    /// Returns the alternative names as the value of an extension; `None` if there are none.
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

fn malformed(why: MalformedDocument) -> SigningError {
    SigningError::Malformed(why.0)
}

/// The authority whose client certificates the server accepts.
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
    /// Creates an authority from its certificate and key.
    pub(crate) fn new(certificate: &CertificateDer<'_>, key: KeyPair) -> Result<Self, SigningError> {
        let read = Certificate::from_der(certificate).map_err(malformed)?;
        Ok(Self {
            key,
            not_after: jiff::Timestamp::from_second(read.not_after).map_err(|_| SigningError::Expired)?,
            subject: read.subject_der,
            key_identifier: read.key_identifier,
        })
    }

    /// Issues the requested certificate, in PEM.
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
            // Alternative names are critical if the subject is empty.
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

/// Number of characters per line in PEM.
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
