//! Verifies requests created by openssl, and the same requests with another signature.

use std::collections::BTreeMap;

use super::*;

/// Requests, each with a line that names it and the command that created it.
const REQUESTS: &str = include_str!("requests.txt");

fn requests() -> BTreeMap<&'static str, CertificateRequest> {
    let requests = REQUESTS.split("# ").filter_map(|text| text.split_once(": ")).map(|(name, rest)| {
        let request = CertificateRequest::from_pem(rest.as_bytes());
        (name, request.unwrap_or_else(|why| panic!("{name}: {why}")))
    });
    requests.collect()
}

fn refused(why: &str) -> RequestSignature {
    RequestSignature::Refused(why.to_owned())
}

#[test]
fn signatures_are_judged_as_go_judges_them() {
    const CURVE: RequestSignature = RequestSignature::Unverifiable("ECDSA with this curve and hash");
    let verified = || RequestSignature::Verified;
    let expected = BTreeMap::from([
        ("RSA 2048, SHA-1", verified()),
        ("RSA 2048, SHA-256", verified()),
        ("RSA 2048, SHA-384", verified()),
        ("RSA 1024, SHA-256", verified()),
        ("RSA 1024, SHA-512", verified()),
        ("RSA 1024, SHA-384", RequestSignature::Unverifiable("RSA with a key of this size")),
        ("RSA 512, SHA-256", refused("crypto/rsa: 512-bit keys are insecure")),
        ("RSA 2048, MD5", refused("x509: cannot verify signature: insecure algorithm MD5-RSA")),
        ("RSA 2048, SHA-224", refused(UNIMPLEMENTED)),
        ("RSA-PSS 2048, SHA-256", verified()),
        ("P-256, SHA-256", verified()),
        ("P-256, SHA-512", CURVE),
        ("P-384, SHA-384", verified()),
        ("P-521, SHA-512", CURVE),
        ("secp256k1, SHA-256", refused(UNIMPLEMENTED)),
        ("Ed25519", verified()),
    ]);
    let found: BTreeMap<_, _> =
        requests().iter().map(|(name, request)| (*name, verify_request(request))).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_signature_of_something_else_is_refused() {
    for (name, request) in requests() {
        if verify_request(&request) != RequestSignature::Verified {
            continue;
        }
        let failure = refused(match name.split([' ', '-']).next() {
            Some("RSA") => "crypto/rsa: verification error",
            Some("P") => "x509: ECDSA verification failure",
            _ => "x509: Ed25519 verification failure",
        });
        let mut of_another_name = request.clone();
        *of_another_name.signed.last_mut().unwrap_or(&mut 0) ^= 1;
        assert_eq!(verify_request(&of_another_name), failure, "{name}");
        for at in [0, request.signature.len() / 2, request.signature.len() - 1] {
            let mut changed = request.clone();
            changed.signature[at] ^= 1;
            assert_eq!(verify_request(&changed), failure, "{name}: byte {at}");
        }
        let empty = CertificateRequest { signature: Vec::new(), ..request };
        assert_eq!(verify_request(&empty), failure, "{name}: none");
    }
}

#[test]
fn an_algorithm_belongs_to_its_key() {
    let requests = requests();
    let (rsa, elliptic) = (&requests["RSA 2048, SHA-256"], &requests["P-256, SHA-256"]);
    let mixed = CertificateRequest { public_key: elliptic.public_key.clone(), ..rsa.clone() };
    let why =
        "x509: signature algorithm specifies an RSA public key, but have public key of type *ecdsa.PublicKey";
    assert_eq!(verify_request(&mixed), refused(why));
    for algorithm in [&b""[..], b"\x06\x01", b"\x05\x00"] {
        let unnamed = CertificateRequest { algorithm: algorithm.to_vec(), ..rsa.clone() };
        assert_eq!(verify_request(&unnamed), refused(UNIMPLEMENTED));
    }
    let without_key = CertificateRequest { public_key: Vec::new(), ..rsa.clone() };
    assert_eq!(verify_request(&without_key), refused(UNREADABLE_KEY));
}
