//! Keys of service-account tokens: ECDSA over P-256 and P-384, and RSA, in the PEM blocks that kube-apiserver reads.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gc_registry::x509::{MalformedDocument, contents_of, elements};
use ring::rand::SystemRandom;
use ring::signature::{self, EcdsaKeyPair, KeyPair as _, RsaKeyPair, UnparsedPublicKey};
use rustls::pki_types::pem::{PemObject as _, SectionKind};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use x509_cert::der::Decode as _;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::spki::SubjectPublicKeyInfoRef;

use super::certificates::{BIT_STRING, INTEGER, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, encode};
use crate::x509::Certificate;

const RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
/// Maximum number of keys whose tokens a server accepts.
const MAXIMUM_KEYS: usize = 64;

/// Reason why a key file cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeyError {
    /// None of its PEM blocks is a key.
    #[error("it holds no key")]
    Absent,
    /// A block is damaged, or its algorithm is not supported.
    #[error("it holds a key that is neither RSA (2048 to 8192 bits) nor ECDSA over P-256 or P-384")]
    Unsupported,
    /// There are more than [`MAXIMUM_KEYS`].
    #[error("there are more than {MAXIMUM_KEYS} keys")]
    TooMany,
}

/// An elliptic curve: its names and algorithms.
struct Curve {
    algorithm: &'static str,
    name: &'static str,
    identifier: &'static [u8],
    signing: &'static signature::EcdsaSigningAlgorithm,
    verification: &'static signature::EcdsaVerificationAlgorithm,
}

static CURVES: [Curve; 2] = [
    Curve {
        algorithm: "ES256",
        name: "P-256",
        identifier: &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07],
        signing: &signature::ECDSA_P256_SHA256_FIXED_SIGNING,
        verification: &signature::ECDSA_P256_SHA256_FIXED,
    },
    Curve {
        algorithm: "ES384",
        name: "P-384",
        identifier: &[0x2b, 0x81, 0x04, 0x00, 0x22],
        signing: &signature::ECDSA_P384_SHA384_FIXED_SIGNING,
        verification: &signature::ECDSA_P384_SHA384_FIXED,
    },
];

/// A key that signs tokens, with the public key that verifies them.
pub(crate) struct SigningKey {
    pair: Pair,
    /// Its public half.
    pub(crate) public: PublicKey,
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKey").field("public", &self.public).finish_non_exhaustive()
    }
}

enum Pair {
    Ecdsa(Box<EcdsaKeyPair>),
    Rsa(Box<RsaKeyPair>),
}

/// A key that verifies tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublicKey {
    algorithm: Algorithm,
    /// The key in the form of its algorithm: a point, or modulus and exponent in DER.
    bytes: Vec<u8>,
    /// Hash of its SubjectPublicKeyInfo, by which kube-apiserver identifies keys.
    pub(crate) identifier: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    /// Index of its curve.
    Ecdsa(usize),
    Rsa,
}

impl SigningKey {
    /// Reads the first private key in a file.
    pub(crate) fn from_pem(text: &[u8]) -> Result<Self, KeyError> {
        let private = |(kind, der): (SectionKind, Vec<u8>)| Self::from_section(kind, &der).transpose();
        sections(text)?.into_iter().find_map(private).ok_or(KeyError::Absent)?
    }

    /// Reads a private key in PKCS#8.
    pub(crate) fn from_pkcs8(der: &[u8]) -> Result<Self, KeyError> {
        Self::ecdsa(|_| der.to_vec())
            .or_else(|| RsaKeyPair::from_pkcs8(der).ok().map(Self::rsa))
            .ok_or(KeyError::Unsupported)
    }

    fn from_section(kind: SectionKind, der: &[u8]) -> Result<Option<Self>, KeyError> {
        let found = match kind {
            SectionKind::PrivateKey => return Self::from_pkcs8(der).map(Some),
            SectionKind::RsaPrivateKey => RsaKeyPair::from_der(der).ok().map(Self::rsa),
            SectionKind::EcPrivateKey => Self::ecdsa(|curve| pkcs8(curve, der)),
            _ => return Ok(None),
        };
        found.map(Some).ok_or(KeyError::Unsupported)
    }

    /// Finds the curve for which `document` returns a valid PKCS#8 key, and returns the key pair.
    fn ecdsa(document: impl Fn(&Curve) -> Vec<u8>) -> Option<Self> {
        let random = SystemRandom::new();
        CURVES.iter().enumerate().find_map(|(index, curve)| {
            let pair = EcdsaKeyPair::from_pkcs8(curve.signing, &document(curve), &random).ok()?;
            let public = PublicKey::new(Algorithm::Ecdsa(index), pair.public_key().as_ref());
            Some(Self { pair: Pair::Ecdsa(Box::new(pair)), public })
        })
    }

    fn rsa(pair: RsaKeyPair) -> Self {
        let public = PublicKey::new(Algorithm::Rsa, pair.public().as_ref());
        Self { pair: Pair::Rsa(Box::new(pair)), public }
    }

    /// Signs a text.
    pub(crate) fn sign(&self, text: &[u8], random: &SystemRandom) -> Option<Vec<u8>> {
        match &self.pair {
            Pair::Ecdsa(pair) => pair.sign(random, text).ok().map(|signature| signature.as_ref().to_vec()),
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&signature::RSA_PKCS1_SHA256, random, text, &mut signature).ok()?;
                Some(signature)
            }
        }
    }
}

impl PublicKey {
    fn new(algorithm: Algorithm, bytes: &[u8]) -> Self {
        let identifiers = match algorithm {
            Algorithm::Ecdsa(curve) => [
                encode(OBJECT_IDENTIFIER, &[EC_PUBLIC_KEY]),
                encode(OBJECT_IDENTIFIER, &[CURVES[curve].identifier]),
            ],
            Algorithm::Rsa => [encode(OBJECT_IDENTIFIER, &[RSA_ENCRYPTION]), vec![0x05, 0x00]],
        };
        let named = encode(SEQUENCE, &[&identifiers.concat()]);
        let info = encode(SEQUENCE, &[&named, &encode(BIT_STRING, &[&[0], bytes])]);
        Self { algorithm, bytes: bytes.to_vec(), identifier: URL_SAFE_NO_PAD.encode(Sha256::digest(info)) }
    }

    /// Reads all keys in a file: public keys, those of certificates, and the public halves of private keys.
    pub(crate) fn all_from_pem(text: &[u8]) -> Result<Vec<Self>, KeyError> {
        let mut found = Vec::new();
        for (kind, der) in sections(text)? {
            let key = match kind {
                SectionKind::PublicKey => Some(Self::from_info(&der)?),
                SectionKind::Certificate => {
                    let certificate = Certificate::from_der(&der).map_err(|_| KeyError::Unsupported)?;
                    Some(Self::from_info(&certificate.public_key)?)
                }
                _ => SigningKey::from_section(kind, &der)?.map(|key| key.public),
            };
            found.extend(key);
        }
        if found.is_empty() { Err(KeyError::Absent) } else { Ok(found) }
    }

    /// Reads a SubjectPublicKeyInfo in DER.
    fn from_info(info: &[u8]) -> Result<Self, KeyError> {
        let read = || {
            let info = SubjectPublicKeyInfoRef::from_der(info).ok()?;
            let key = info.subject_public_key.as_bytes()?;
            let algorithm = match info.algorithm.oid.as_bytes() {
                RSA_ENCRYPTION => Algorithm::Rsa,
                EC_PUBLIC_KEY => {
                    let wanted: ObjectIdentifier = info.algorithm.parameters?.decode_as().ok()?;
                    Algorithm::Ecdsa(CURVES.iter().position(|curve| curve.identifier == wanted.as_bytes())?)
                }
                _ => return None,
            };
            Some(Self::new(algorithm, key))
        };
        read().ok_or(KeyError::Unsupported)
    }

    /// Returns the algorithm's name in JSON web tokens.
    pub(crate) fn algorithm(&self) -> &'static str {
        match self.algorithm {
            Algorithm::Ecdsa(curve) => CURVES[curve].algorithm,
            Algorithm::Rsa => "RS256",
        }
    }

    /// Reports whether a signature was made with this key.
    pub(crate) fn verifies(&self, text: &[u8], signature: &[u8]) -> bool {
        let algorithm: &'static dyn signature::VerificationAlgorithm = match self.algorithm {
            Algorithm::Ecdsa(curve) => CURVES[curve].verification,
            Algorithm::Rsa => &signature::RSA_PKCS1_2048_8192_SHA256,
        };
        UnparsedPublicKey::new(algorithm, &self.bytes).verify(text, signature).is_ok()
    }

    /// Returns the key as a member of a key set.
    pub(crate) fn member(&self) -> Value {
        let mut member = json!({"use": "sig", "kid": self.identifier, "alg": self.algorithm()});
        match self.algorithm {
            Algorithm::Ecdsa(curve) => {
                // An uncompressed point: 0x04, then x and y in equal halves.
                let (x, y) = self.bytes.get(1..).unwrap_or_default().split_at(self.bytes.len() / 2);
                member["kty"] = "EC".into();
                member["crv"] = CURVES[curve].name.into();
                member["x"] = URL_SAFE_NO_PAD.encode(x).into();
                member["y"] = URL_SAFE_NO_PAD.encode(y).into();
            }
            Algorithm::Rsa => {
                let (modulus, exponent) = numbers(&self.bytes).unwrap_or_default();
                member["kty"] = "RSA".into();
                member["n"] = URL_SAFE_NO_PAD.encode(modulus).into();
                member["e"] = URL_SAFE_NO_PAD.encode(exponent).into();
            }
        }
        member
    }
}

/// Adds the keys of another file, without duplicates.
pub(crate) fn add(keys: &mut Vec<PublicKey>, more: Vec<PublicKey>) -> Result<(), KeyError> {
    for key in more {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    if keys.len() > MAXIMUM_KEYS { Err(KeyError::TooMany) } else { Ok(()) }
}

/// Returns the blocks of a PEM text.
fn sections(text: &[u8]) -> Result<Vec<(SectionKind, Vec<u8>)>, KeyError> {
    let sections = <(SectionKind, Vec<u8>)>::pem_slice_iter(text).take(MAXIMUM_KEYS + 1);
    let found: Vec<_> = sections.collect::<Result<_, _>>().map_err(|_| KeyError::Unsupported)?;
    if found.len() > MAXIMUM_KEYS { Err(KeyError::TooMany) } else { Ok(found) }
}

/// Converts a SEC 1 key to PKCS#8, on the assumption that it belongs to this curve.
fn pkcs8(curve: &Curve, key: &[u8]) -> Vec<u8> {
    let algorithm = encode(
        SEQUENCE,
        &[&encode(OBJECT_IDENTIFIER, &[EC_PUBLIC_KEY]), &encode(OBJECT_IDENTIFIER, &[curve.identifier])],
    );
    encode(SEQUENCE, &[&[INTEGER, 1, 0], &algorithm, &encode(OCTET_STRING, &[key])])
}

/// Returns modulus and exponent of an RSA key in DER, without leading zeros.
fn numbers(der: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let what = MalformedDocument("the key cannot be read");
    let [modulus, exponent] = elements(der, what).ok()?[..] else { return None };
    let bare = |number: &[u8]| -> Option<Vec<u8>> {
        Some(contents_of(number, what).ok()?.iter().copied().skip_while(|byte| *byte == 0).collect())
    };
    Some((bare(modulus)?, bare(exponent)?))
}
