//! Chains, and Go's verdict on each. The verdicts were compared with those of a Go client: each chain was served to kubectl.
#![allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test

use std::net::IpAddr;

use gc_registry::x509::{MalformedDocument, elements};
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, CustomExtension, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints, PKCS_ED25519, SanType,
    SigningKey as _,
};

use super::*;

const HOST: &str = "webhook.ns.svc";
/// Current time of the tests. All certificates are valid from 2020 to 2040, unless a case says otherwise.
const NOW: &str = "2026-06-01T00:00:00Z";
const ENDED: i32 = 2025;
const TO_COME: i32 = 2035;

/// A generated certificate with its key, which can sign others.
struct Made {
    params: CertificateParams,
    key: KeyPair,
    der: Vec<u8>,
}

fn params(name: &str, change: impl FnOnce(&mut CertificateParams)) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2040, 1, 1);
    change(&mut params);
    params
}

fn unchanged(_: &mut CertificateParams) {}

/// Turns the parameters into those of a server's certificate for [`HOST`].
fn server(params: &mut CertificateParams) {
    params.subject_alt_names = vec![SanType::DnsName(HOST.try_into().unwrap())];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
}

/// Turns the parameters into those of an authority.
fn authority(params: &mut CertificateParams) {
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
}

fn names(names: &[&str]) -> Vec<SanType> {
    names.iter().map(|name| SanType::DnsName((*name).try_into().unwrap())).collect()
}

impl Made {
    /// Creates a self-signed certificate.
    fn own(params: CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        let der = params.self_signed(&key).unwrap().der().to_vec();
        Self { params, key, der }
    }

    fn root(change: impl FnOnce(&mut CertificateParams)) -> Self {
        Self::own(params("root", |params| {
            authority(params);
            change(params);
        }))
    }

    /// Creates a certificate signed by this one, even if this one may not sign.
    fn sign(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Self {
        let (params, key) = (params(name, change), KeyPair::generate().unwrap());
        let issuer = Issuer::from_params(&self.params, &self.key);
        let der = params.signed_by(&key, &issuer).unwrap().der().to_vec();
        Self { params, key, der }
    }

    /// Creates a server's certificate signed by this one.
    fn server(&self, change: impl FnOnce(&mut CertificateParams)) -> Self {
        self.sign("server", |params| {
            server(params);
            change(params);
        })
    }

    fn intermediate(&self, change: impl FnOnce(&mut CertificateParams)) -> Self {
        self.sign("intermediate", |params| {
            authority(params);
            change(params);
        })
    }

    /// Converts it to a certificate of version 1, signed with its own key.
    fn in_version_one(mut self) -> Self {
        const SEQUENCE: u8 = 0x30;
        let encode = |tag: u8, parts: &[&[u8]]| {
            let content = parts.concat();
            let length = u16::try_from(content.len()).unwrap().to_be_bytes();
            let header = match content.len() {
                ..0x80 => vec![tag, length[1]],
                0x80..0x100 => vec![tag, 0x81, length[1]],
                _ => vec![tag, 0x82, length[0], length[1]],
            };
            [header, content].concat()
        };
        let what = MalformedDocument("");
        let [signed, algorithm, _] = elements(&self.der, what).unwrap()[..] else { panic!() };
        let contents = elements(signed, what).unwrap();
        let contents = encode(SEQUENCE, &contents[1..contents.len() - 1]);
        let signature = encode(0x03, &[&[0_u8][..], &self.key.sign(&contents).unwrap()]);
        self.der = encode(SEQUENCE, &[&contents, algorithm, &signature]);
        self
    }
}

/// Trusted certificates, certificates that the server presents, the host, and Go's verdict.
struct Case {
    name: &'static str,
    believed: Vec<Vec<u8>>,
    shown: Vec<Vec<u8>>,
    host: &'static str,
    verdict: &'static str,
}

fn case(name: &'static str, believed: &[&Made], shown: &[&Made], verdict: &'static str) -> Case {
    let ders = |made: &[&Made]| made.iter().map(|made| made.der.clone()).collect();
    Case { name, believed: ders(believed), shown: ders(shown), host: HOST, verdict }
}

fn at(case: Case, host: &'static str) -> Case {
    Case { host, ..case }
}

const OK: &str = "";
const UNKNOWN: &str = "certificate signed by unknown authority";
const EXPIRED: &str = "certificate has expired or is not yet valid: current time 2026-06-01T00:00:00Z is after \
    2025-01-01T00:00:00Z";
const EARLY: &str = "certificate has expired or is not yet valid: current time 2026-06-01T00:00:00Z is before \
    2035-01-01T00:00:00Z";
const PURPOSE: &str = "certificate specifies an incompatible key usage";
const CANNOT_SIGN_ROOT: &str = "certificate signed by unknown authority (possibly because of \"x509: invalid signature: parent \
    certificate cannot sign this kind of certificate\" while trying to verify candidate authority certificate \"root\")";
const CANNOT_SIGN: &str = "certificate signed by unknown authority (possibly because of \"x509: invalid signature: parent \
    certificate cannot sign this kind of certificate\" while trying to verify candidate authority certificate \
    \"intermediate\")";

/// Returns cases of certificates that are themselves in the pool.
fn leaves() -> Vec<Case> {
    let root = Made::root(unchanged);
    let other = Made::root(|params| params.distinguished_name.push(DnType::OrganizationName, "other"));
    let signed = other.server(unchanged);
    let leaf = |change: fn(&mut CertificateParams)| {
        Made::own(params("leaf", |params| {
            server(params);
            change(params);
        }))
    };
    let plain = leaf(unchanged);
    let of_openssl = leaf(|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
    let ended = leaf(|params| params.not_after = rcgen::date_time_ymd(ENDED, 1, 1));
    let client = leaf(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]);
    let no_purpose = leaf(|params| params.extended_key_usages.clear());
    let elsewhere = leaf(|params| params.subject_alt_names = names(&["a.b", "c.d"]));
    vec![
        case("a leaf that signed itself is the root", &[&plain], &[&plain], OK),
        case("what openssl makes is the root", &[&of_openssl], &[&of_openssl], OK),
        case("a leaf of an unknown authority is a root", &[&root, &signed], &[&signed], OK),
        case(
            "a leaf of an unknown authority is the root, which is shown as well",
            &[&signed],
            &[&signed, &other],
            OK,
        ),
        case("a leaf that signed itself is no root", &[&root], &[&plain], UNKNOWN),
        case("a leaf that is a root has ended", &[&ended], &[&ended], EXPIRED),
        case("a leaf that is a root is for clients", &[&client], &[&client], PURPOSE),
        case("a leaf that is a root names no purpose", &[&no_purpose], &[&no_purpose], OK),
        case(
            "a leaf that is a root is for other hosts",
            &[&elsewhere],
            &[&elsewhere],
            "certificate is valid for a.b, c.d, not webhook.ns.svc",
        ),
    ]
}

/// Returns cases of roots and intermediates.
fn chains() -> Vec<Case> {
    let root = Made::root(unchanged);
    let leaf = root.server(unchanged);
    let ended = Made::root(|params| params.not_after = rcgen::date_time_ymd(ENDED, 1, 1));
    let early = Made::root(|params| params.not_before = rcgen::date_time_ymd(TO_COME, 1, 1));
    let one = Made::root(unchanged).in_version_one();
    let bare = Made::root(|params| {
        params.is_ca = IsCa::NoCa;
        params.key_usages.clear();
    });
    let denies = Made::root(|params| params.is_ca = IsCa::ExplicitNoCa);
    let no_sign = Made::root(|params| params.key_usages = vec![KeyUsagePurpose::DigitalSignature]);
    let no_usage = Made::root(|params| params.key_usages.clear());
    let middle = root.intermediate(unchanged);
    let below = middle.server(unchanged);
    let late_middle = root.intermediate(|params| params.not_after = rcgen::date_time_ymd(ENDED, 1, 1));
    let no_authority = root.sign("intermediate", server);
    let short = Made::root(|params| params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0)));
    let short_middle = short.intermediate(unchanged);
    let namesake = Made::root(unchanged);
    let for_clients = |params: &mut CertificateParams| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    };
    let client_middle = root.intermediate(for_clients);
    let client_root = Made::root(for_clients);
    let mut edwards = Made::root(unchanged);
    edwards.key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    edwards.der = edwards.params.self_signed(&edwards.key).unwrap().der().to_vec();
    let critical = root.server(|params| {
        let mut unknown = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
        unknown.set_criticality(true);
        params.custom_extensions.push(unknown);
    });
    vec![
        case("a root signed it", &[&root], &[&leaf], OK),
        case("a root signed it, and is shown as well", &[&root], &[&leaf, &root], OK),
        case("the root is another one", &[&Made::own(params("other", authority))], &[&leaf], UNKNOWN),
        case("the root has ended", &[&ended], &[&ended.server(unchanged)], EXPIRED),
        case("the root is not valid yet", &[&early], &[&early.server(unchanged)], EARLY),
        case(
            "the leaf has ended",
            &[&root],
            &[&root.server(|params| params.not_after = rcgen::date_time_ymd(ENDED, 1, 1))],
            EXPIRED,
        ),
        case("the root is of version 1", &[&one], &[&one.server(unchanged)], OK),
        case("the root says nothing of authorities", &[&bare], &[&bare.server(unchanged)], CANNOT_SIGN_ROOT),
        case(
            "the root says that it is no authority",
            &[&denies],
            &[&denies.server(unchanged)],
            CANNOT_SIGN_ROOT,
        ),
        case(
            "the root may not sign certificates",
            &[&no_sign],
            &[&no_sign.server(unchanged)],
            CANNOT_SIGN_ROOT,
        ),
        case("the root names no usage", &[&no_usage], &[&no_usage.server(unchanged)], OK),
        case("the root has a key of Ed25519", &[&edwards], &[&edwards.server(unchanged)], OK),
        case("an intermediate is shown", &[&root], &[&below, &middle], OK),
        case("the intermediate is not shown", &[&root], &[&below], UNKNOWN),
        case("the intermediate is the root", &[&middle], &[&below], OK),
        case(
            "the intermediate is shown and the root is absent",
            &[&namesake],
            &[&below, &middle],
            "certificate signed by unknown authority (possibly because of \"x509: ECDSA verification failure\" while trying \
             to verify candidate authority certificate \"root\")",
        ),
        case(
            "the intermediate has ended",
            &[&root],
            &[&late_middle.server(unchanged), &late_middle],
            EXPIRED,
        ),
        case(
            "the intermediate is no authority",
            &[&root],
            &[&no_authority.server(unchanged), &no_authority],
            CANNOT_SIGN,
        ),
        case(
            "the root permits no intermediate",
            &[&short],
            &[&short_middle.server(unchanged), &short_middle],
            "too many intermediates for path length constraint",
        ),
        case("two roots have one name", &[&namesake, &root], &[&leaf], OK),
        case(
            "a root of the same name has another key",
            &[&namesake],
            &[&leaf],
            "certificate signed by unknown authority (possibly because of \"x509: ECDSA verification failure\" while trying \
             to verify candidate authority certificate \"root\")",
        ),
        case(
            "the intermediate is for clients",
            &[&root],
            &[&client_middle.server(unchanged), &client_middle],
            PURPOSE,
        ),
        case("the root is for clients", &[&client_root], &[&client_root.server(unchanged)], PURPOSE),
        case("the leaf is for clients", &[&root], &[&root.server(for_clients)], PURPOSE),
        case(
            "the leaf is for everything",
            &[&root],
            &[&root.server(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::Any])],
            OK,
        ),
        case(
            "the leaf has an unknown critical extension",
            &[&root],
            &[&critical],
            "unhandled critical extension",
        ),
    ]
}

/// Returns cases of name constraints.
fn constrained() -> Vec<Case> {
    let constrained = |permitted: Vec<GeneralSubtree>, excluded: Vec<GeneralSubtree>| {
        Made::root(|params| {
            params.name_constraints =
                Some(NameConstraints { permitted_subtrees: permitted, excluded_subtrees: excluded });
        })
    };
    let dns = |name: &str| vec![GeneralSubtree::DnsName(name.to_owned())];
    let loopback = || vec![GeneralSubtree::IpAddress(CidrSubnet::V4([127, 0, 0, 0], [255, 0, 0, 0]))];
    let address = |params: &mut CertificateParams| {
        params.subject_alt_names = vec![SanType::IpAddress("127.0.0.1".parse().unwrap())];
    };
    let (permits, excludes) = (constrained(dns("svc"), Vec::new()), constrained(Vec::new(), dns("ns.svc")));
    let elsewhere = constrained(dns("example.com"), Vec::new());
    let (here, not_here) = (constrained(loopback(), Vec::new()), constrained(Vec::new(), loopback()));
    let prefix = "a root or intermediate certificate is not authorized to sign for this name:";
    vec![
        case("the root permits the domain", &[&permits], &[&permits.server(unchanged)], OK),
        case("the root excludes the domain", &[&excludes], &[&excludes.server(unchanged)], prefix),
        case("the root permits another domain", &[&elsewhere], &[&elsewhere.server(unchanged)], prefix),
        at(case("the root permits the address", &[&here], &[&here.server(address)], OK), "127.0.0.1"),
        at(
            case("the root excludes the address", &[&not_here], &[&not_here.server(address)], prefix),
            "127.0.0.1",
        ),
        case(
            "the root permits addresses alone, and a name is shown",
            &[&here],
            &[&here.server(unchanged)],
            OK,
        ),
    ]
}

/// Returns cases of host names.
fn hosts() -> Vec<Case> {
    let root = Made::root(unchanged);
    let of = |list: &[&str]| root.server(|params| params.subject_alt_names = names(list));
    let addresses = |list: &[&str]| {
        let list = list.iter().map(|text| SanType::IpAddress(text.parse::<IpAddr>().unwrap())).collect();
        root.server(|params| params.subject_alt_names = list)
    };
    let by_common_name = root.sign(HOST, unchanged);
    let nameless = root.sign("something else", unchanged);
    let (wild, local) = (of(&["*.ns.svc"]), addresses(&["127.0.0.1", "10.0.0.1"]));
    vec![
        at(case("an address among the names", &[&root], &[&local], OK), "127.0.0.1"),
        at(
            case(
                "another address",
                &[&root],
                &[&local],
                "certificate is valid for 127.0.0.1, 10.0.0.1, not 127.0.0.2",
            ),
            "127.0.0.2",
        ),
        at(
            case(
                "an address as a host name",
                &[&root],
                &[&of(&["127.0.0.1"])],
                "cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs",
            ),
            "127.0.0.1",
        ),
        at(case("an address of version 6", &[&root], &[&addresses(&["::1"])], OK), "::1"),
        case(
            "a common name alone",
            &[&root],
            &[&by_common_name],
            "certificate relies on legacy Common Name field, use SANs instead",
        ),
        case(
            "no name at all",
            &[&root],
            &[&nameless],
            "certificate is not valid for any names, but wanted to match webhook.ns.svc",
        ),
        case("a wildcard", &[&root], &[&wild], OK),
        at(
            case(
                "a wildcard for two labels",
                &[&root],
                &[&wild],
                "certificate is valid for *.ns.svc, not a.webhook.ns.svc",
            ),
            "a.webhook.ns.svc",
        ),
        case(
            "a wildcard within a label",
            &[&root],
            &[&of(&["web*.ns.svc"])],
            "certificate is valid for web*.ns.svc, not webhook.ns.svc",
        ),
        case("another case of letters", &[&root], &[&of(&["WebHook.ns.svc"])], OK),
    ]
}

#[test]
fn chains_are_judged_as_in_go() {
    let cases: Vec<Case> = [leaves(), chains(), constrained(), hosts()].into_iter().flatten().collect();
    assert!(cases.len() >= 50, "{}", cases.len());
    let now = NOW.parse::<jiff::Timestamp>().unwrap().as_second();
    for Case { name, believed, shown, host, verdict } in cases {
        let read = |ders: &[Vec<u8>]| -> Vec<Certificate> {
            ders.iter().map(|der| Certificate::from_der(der).unwrap()).collect()
        };
        let (pool, shown) = (Pool::new(read(&believed)), read(&shown));
        let (own, others) = shown.split_first().unwrap();
        let judged = check_dates(own, now)
            .and_then(|()| check_host(own, host))
            .and_then(|()| pool.check(own, others, Purpose::Server, now));
        let judged = judged.err().map(|why| why.to_string()).unwrap_or_default();
        let is_same = if verdict.ends_with(':') { judged.starts_with(verdict) } else { judged == verdict };
        assert!(is_same, "{name}: {judged:?} in place of {verdict:?}");
    }
}

#[test]
fn a_search_for_a_chain_ends() {
    // Each of these could have signed every other one.
    let make = || {
        let mut made = Made::root(unchanged);
        made.params = params("root", authority);
        made
    };
    let root = make();
    let crowd: Vec<Made> = (0..30).map(|_| make()).collect();
    let read = |made: &Made| Certificate::from_der(&made.der).unwrap();
    let others: Vec<Certificate> = crowd.iter().map(read).collect();
    let now = NOW.parse::<jiff::Timestamp>().unwrap().as_second();
    let leaf = read(&root.server(unchanged));
    let pool = Pool::new(others.clone());
    let many = [others.clone(), others.clone(), others.clone(), others].concat();
    assert_eq!(pool.check(&leaf, &many, Purpose::Server, now), Err(Refusal::TooManyChecks));
}

#[test]
fn what_is_no_certificate_is_refused() {
    let der = Made::root(unchanged).der;
    for length in 0..der.len() {
        assert!(Certificate::from_der(&der[..length]).is_err(), "the first {length} bytes");
    }
    let pem = |label: &str, der: &[u8]| {
        use base64::Engine as _;
        let text = base64::engine::general_purpose::STANDARD.encode(der);
        format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
    };
    let bundle = [
        "text\n".to_owned(),
        pem("CERTIFICATE", &der[..9]),
        pem("PRIVATE KEY", &der),
        pem("CERTIFICATE", &der),
    ];
    assert_eq!(Certificate::all_from_pem(bundle.concat().as_bytes()).len(), 1, "the rest is passed over");
}
