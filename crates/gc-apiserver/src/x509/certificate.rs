//! Contents of a certificate.

use gc_registry::x509::{
    ALTERNATIVE_NAMES, AlternativeNames, MalformedDocument, Subject, contents_of, elements,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_cert::der::Decode as _;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::{
    AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, KeyUsage, NameConstraints,
    SubjectKeyIdentifier,
};

use super::constraints::Constraints;

const KEY_USAGE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.15");
const BASIC_CONSTRAINTS: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.19");
const NAME_CONSTRAINTS: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.30");
const AUTHORITY_KEY_IDENTIFIER: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.35");
const EXTENDED_KEY_USAGE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.37");
const SUBJECT_KEY_IDENTIFIER: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.14");
/// Extensions that Go accepts even if they are critical, and that affect no decision here: distribution points, policies and access
/// to authorities.
const PASSED: [&str; 6] =
    ["2.5.29.31", "2.5.29.32", "2.5.29.33", "2.5.29.36", "2.5.29.54", "1.3.6.1.5.5.7.1.1"];

/// A parsed certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Certificate {
    /// Certificate as received.
    pub(super) der: Vec<u8>,
    /// Version: 1, 2 or 3.
    pub(super) version: u8,
    /// The signed bytes.
    pub(super) signed: Vec<u8>,
    /// Algorithm of the signature, without the header of its element.
    pub(super) algorithm: Vec<u8>,
    pub(super) signature: Vec<u8>,
    /// Issuer's name in DER.
    pub(super) issuer: Vec<u8>,
    /// Subject in DER.
    pub(crate) subject_der: Vec<u8>,
    /// Relevant names in the subject.
    pub(crate) subject: Subject,
    /// Start of validity, in seconds since 1970.
    pub(crate) not_before: i64,
    /// End of validity, in seconds since 1970.
    pub(crate) not_after: i64,
    /// Public key with its algorithm, in DER.
    pub(crate) public_key: Vec<u8>,
    /// Algorithm of the key, without the header of its element.
    pub(super) key_algorithm: Vec<u8>,
    pub(super) key: Vec<u8>,
    /// Alternative names, if the extension is present.
    pub(super) names: Option<AlternativeNames>,
    pub(super) basic: Option<Basic>,
    /// True if it may sign certificates, if stated.
    pub(super) signs_certificates: Option<bool>,
    /// Purposes that it may be used for, if limited.
    pub(super) purposes: Option<Vec<ObjectIdentifier>>,
    pub(super) constraints: Option<Constraints>,
    /// Identifier of its key.
    pub(crate) key_identifier: Option<Vec<u8>>,
    /// Identifier of the key that signed it.
    pub(super) authority_key_identifier: Option<Vec<u8>>,
    /// True if it has a critical extension that is not understood.
    pub(super) has_unknown_critical: bool,
}

/// The extension that states whether a certificate belongs to an authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Basic {
    pub(super) is_authority: bool,
    /// Maximum number of intermediate certificates below it.
    pub(super) path_length: Option<u8>,
}

impl Certificate {
    /// Reads the certificates of a PEM bundle. As in Go, unreadable blocks and blocks of other types are skipped.
    pub(crate) fn all_from_pem(pem: &[u8]) -> Vec<Self> {
        let found = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok);
        found.filter_map(|der| Self::from_der(&der).ok()).collect()
    }

    /// Reads a certificate in DER.
    pub(crate) fn from_der(der: &[u8]) -> Result<Self, MalformedDocument> {
        const WHAT: MalformedDocument = MalformedDocument("it is not a well-formed certificate");
        let parsed = x509_cert::Certificate::from_der(der).map_err(|_| WHAT)?;
        let whole = elements(der, WHAT)?;
        let [signed, algorithm, _] = whole[..] else { return Err(WHAT) };
        let contents = elements(signed, WHAT)?;
        let version = parsed.tbs_certificate().version() as u8 + 1;
        // Version 1 is encoded by omitting the version.
        let skipped = usize::from(contents.first().is_some_and(|first| first.first() == Some(&0xa0)));
        let [_, inner_algorithm, issuer, _, subject, public_key, ..] = contents[skipped..] else {
            return Err(WHAT);
        };
        if inner_algorithm != algorithm {
            return Err(MalformedDocument("its signature algorithms differ"));
        }
        let info = parsed.tbs_certificate().subject_public_key_info();
        let key = info.subject_public_key.as_bytes().ok_or(WHAT)?;
        let [key_algorithm, _] = elements(public_key, WHAT)?[..] else { return Err(WHAT) };
        let validity = parsed.tbs_certificate().validity();
        let seconds =
            |time: x509_cert::time::Time| i64::try_from(time.to_unix_duration().as_secs()).map_err(|_| WHAT);
        let mut read = Self {
            der: der.to_vec(),
            version,
            signed: signed.to_vec(),
            algorithm: contents_of(algorithm, WHAT)?.to_vec(),
            signature: parsed.signature().as_bytes().ok_or(WHAT)?.to_vec(),
            issuer: issuer.to_vec(),
            subject_der: subject.to_vec(),
            subject: Subject::from_der(subject)?,
            not_before: seconds(validity.not_before)?,
            not_after: seconds(validity.not_after)?,
            public_key: public_key.to_vec(),
            key_algorithm: contents_of(key_algorithm, WHAT)?.to_vec(),
            key: key.to_vec(),
            names: None,
            basic: None,
            signs_certificates: None,
            purposes: None,
            constraints: None,
            key_identifier: None,
            authority_key_identifier: None,
            has_unknown_critical: false,
        };
        let mut seen = Vec::new();
        for extension in parsed.tbs_certificate().extensions().into_iter().flatten() {
            if seen.contains(&extension.extn_id) {
                return Err(MalformedDocument("it has an extension twice"));
            }
            seen.push(extension.extn_id);
            let is_known = read.take_extension(extension)?;
            read.has_unknown_critical |= extension.critical && !is_known;
        }
        Ok(read)
    }

    /// Applies an extension; returns `false` if it matters for validity and is not understood.
    fn take_extension(&mut self, extension: &Extension) -> Result<bool, MalformedDocument> {
        const WHAT: MalformedDocument = MalformedDocument("an extension cannot be read");
        let value = extension.extn_value.as_bytes();
        match extension.extn_id {
            ALTERNATIVE_NAMES => {
                let names = AlternativeNames::from_der(value)?;
                let is_known = !names.is_empty();
                self.names = Some(names);
                return Ok(is_known);
            }
            BASIC_CONSTRAINTS => {
                let read = BasicConstraints::from_der(value).map_err(|_| WHAT)?;
                self.basic = Some(Basic { is_authority: read.ca, path_length: read.path_len_constraint });
            }
            KEY_USAGE => {
                let read = KeyUsage::from_der(value).map_err(|_| WHAT)?;
                // Go treats an extension without any bit like a missing one.
                self.signs_certificates = (!read.0.is_empty()).then(|| read.key_cert_sign());
            }
            EXTENDED_KEY_USAGE => {
                let read = ExtendedKeyUsage::from_der(value).map_err(|_| WHAT)?;
                self.purposes = (!read.0.is_empty()).then_some(read.0);
            }
            NAME_CONSTRAINTS => {
                let read = NameConstraints::from_der(value).map_err(|_| WHAT)?;
                let (constraints, is_known) = Constraints::read(&read)?;
                self.constraints = Some(constraints);
                return Ok(is_known);
            }
            SUBJECT_KEY_IDENTIFIER => {
                let read = SubjectKeyIdentifier::from_der(value).map_err(|_| WHAT)?;
                self.key_identifier = Some(read.0.as_bytes().to_vec());
            }
            AUTHORITY_KEY_IDENTIFIER => {
                let read = AuthorityKeyIdentifier::from_der(value).map_err(|_| WHAT)?;
                self.authority_key_identifier = read.key_identifier.map(|id| id.as_bytes().to_vec());
            }
            other => return Ok(PASSED.iter().any(|known| ObjectIdentifier::new_unwrap(known) == other)),
        }
        Ok(true)
    }

    /// Returns the kind of its key, as Go names it in errors.
    pub(super) fn key_kind(&self) -> &'static str {
        /// Prefixes of algorithms: the identifiers of RSA and Ed25519.
        const RSA: &[u8] = &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
        const ED25519: &[u8] = &[0x06, 0x03, 0x2b, 0x65, 0x70];
        if self.key_algorithm.starts_with(RSA) {
            "RSA"
        } else if self.key_algorithm.starts_with(ED25519) {
            "Ed25519"
        } else {
            "ECDSA"
        }
    }

    /// Returns the last second before it becomes valid, and the last one of its validity, in seconds since 1970.
    pub(crate) fn last_moments(&self) -> [i64; 2] {
        [self.not_before.saturating_sub(1), self.not_after]
    }

    /// Reports whether it was signed with the key of `parent`.
    pub(super) fn is_signed_by(&self, parent: &Self) -> bool {
        super::verifies((&parent.key_algorithm, &parent.key), &self.algorithm, &self.signed, &self.signature)
            == Some(true)
    }
}
