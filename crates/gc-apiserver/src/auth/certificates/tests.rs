#![allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test

use std::sync::Arc;

use rcgen::{CertificateParams, DnType, SanType};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateSigningRequestDer, UnixTime};
use rustls::server::WebPkiClientVerifier;

use super::*;
use crate::auth::pki::{Keep, Pki};

fn at(text: &str) -> jiff::Timestamp {
    text.parse().unwrap()
}

const NOW: &str = "2026-02-28T10:00:00Z";

fn authority() -> Pki {
    Pki::load_or_make(&Keep::InMemory, &[], at(NOW)).unwrap()
}

/// Returns a request for `system:node:a` of the group `system:nodes`, with these alternative names.
fn request(names: Vec<SanType>, key: &KeyPair) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, "system:node:a");
    params.subject_alt_names = names;
    params.serialize_request(key).unwrap().pem().unwrap()
}

fn terms(usages: &[CertificateUsage]) -> CertificateTerms {
    let (not_before, not_after) = (at("2026-02-28T09:55:00Z"), at("2027-02-28T09:55:00Z"));
    CertificateTerms { usages: usages.to_vec(), not_before, not_after }
}

#[test]
fn a_request_is_read() {
    let key = KeyPair::generate().unwrap();
    let names = vec![
        SanType::DnsName("node.example".try_into().unwrap()),
        SanType::Rfc822Name("root@node.example".try_into().unwrap()),
        SanType::URI("spiffe://node".try_into().unwrap()),
        SanType::IpAddress("10.0.0.1".parse().unwrap()),
        SanType::IpAddress("fd00::1".parse().unwrap()),
    ];
    let read = CertificateRequest::from_pem(request(names, &key).as_bytes()).unwrap();
    let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
    let expected = CertificateRequest {
        common_name: "system:node:a".to_owned(),
        organizations: texts(&["system:nodes"]),
        dns_names: texts(&["node.example"]),
        ip_addresses: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
        email_addresses: texts(&["root@node.example"]),
        uris: texts(&["spiffe://node"]),
        ..read.clone()
    };
    assert_eq!(read, expected);
}

/// Output of `openssl req -new -newkey rsa:2048 -subj '/O=one/O=two+OU=unit/CN=tester'`: the command in kubectl's documentation,
/// with two groups, one of them in a set of two.
const OF_OPENSSL: &str = include_str!("openssl.csr");

#[test]
fn all_groups_and_the_key_of_a_request_are_in_its_certificate() {
    let pki = authority();
    let read = CertificateRequest::from_pem(OF_OPENSSL.as_bytes()).unwrap();
    let pem = pki.authority.sign(&read, &terms(&[CertificateUsage::ClientAuth])).unwrap();
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let groups = ["one", "two"].map(str::to_owned).to_vec();
    let subject = Certificate::from_der(&der).unwrap().subject;
    assert_eq!((subject.common_name, subject.organizations), ("tester".to_owned(), groups.clone()));
    assert_eq!((read.common_name, read.organizations), ("tester".to_owned(), groups));
    assert!(der.windows(read.public_key.len()).any(|part| part == read.public_key));
}

#[test]
fn a_client_certificate_is_valid_for_as_long_as_it_says_and_for_clients_alone() {
    let pki = authority();
    let key = KeyPair::generate().unwrap();
    let read = CertificateRequest::from_pem(request(Vec::new(), &key).as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pki.ca_pem.as_bytes()).unwrap()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
    let is_valid = |usages: &[CertificateUsage], when: &str| {
        let pem = pki.authority.sign(&read, &terms(usages)).unwrap();
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let seconds = u64::try_from(at(when).as_second()).unwrap();
        let time = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        verifier.verify_client_cert(&der, &[], time).is_ok()
    };
    let client =
        [CertificateUsage::DigitalSignature, CertificateUsage::KeyEncipherment, CertificateUsage::ClientAuth];
    let server = [CertificateUsage::DigitalSignature, CertificateUsage::ServerAuth];
    for (usages, when, expected) in [
        (&client[..], NOW, true),
        (&client[..], "2026-02-28T09:54:59Z", false),
        (&client[..], "2027-02-28T09:55:00Z", true),
        (&client[..], "2027-02-28T09:55:01Z", false),
        (&server[..], NOW, false),
    ] {
        assert_eq!(is_valid(usages, when), expected, "{usages:?} {when}");
    }
}

#[test]
fn no_certificate_outlives_the_authority() {
    let pki = authority();
    let key = KeyPair::generate().unwrap();
    let read = CertificateRequest::from_pem(request(Vec::new(), &key).as_bytes()).unwrap();
    let end = pki.authority.not_after;
    let mut late = terms(&[CertificateUsage::ClientAuth]);
    late.not_after = end + jiff::Span::new().hours(1);
    let pem = pki.authority.sign(&read, &late).unwrap();
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let encoded = time(end);
    assert!(der.windows(encoded.len()).any(|part| part == encoded), "it ends with the authority");
    late.not_before = end;
    assert!(matches!(pki.authority.sign(&read, &late), Err(SigningError::Expired)));
}

#[test]
fn what_is_not_a_signed_request_is_refused() {
    let key = KeyPair::generate().unwrap();
    let pem = request(vec![SanType::DnsName("node.example".try_into().unwrap())], &key);
    let der = CertificateSigningRequestDer::from_pem_slice(pem.as_bytes()).unwrap();
    CertificateRequest::from_der(&der).unwrap();
    for length in 0..der.len() {
        assert!(CertificateRequest::from_der(&der[..length]).is_err(), "the first {length} bytes");
    }
    let at = der.windows(4).position(|part| part == b"node").unwrap();
    let mut changed = der.to_vec();
    changed[at] ^= 1;
    assert!(matches!(CertificateRequest::from_der(&changed), Err(SigningError::Signature)));
    for broken in ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        assert!(matches!(CertificateRequest::from_pem(broken.as_bytes()), Err(SigningError::Malformed(_))));
    }
    let twice = format!("{pem}{pem}");
    assert!(matches!(CertificateRequest::from_pem(twice.as_bytes()), Err(SigningError::Malformed(_))));
    let large = vec![b'-'; 64 * 1024 + 1];
    assert!(matches!(CertificateRequest::from_pem(&large), Err(SigningError::Malformed(_))));
}

#[test]
fn times_are_written_in_two_forms() {
    for (text, bytes) in [
        ("2026-02-28T10:00:00Z", &b"\x17\x0d260228100000Z"[..]),
        ("1999-12-31T23:59:59Z", b"\x17\x0d991231235959Z"),
        ("2050-01-01T00:00:00Z", b"\x18\x0f20500101000000Z"),
    ] {
        assert_eq!(time(at(text)), bytes);
    }
}
