//! Tests kinds that are new in Kubernetes 1.37. Every test in this file first selects the version.
#![allow(clippy::unwrap_used)] // A test that fails here has failed.

mod declared;
mod world;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use gc_registry::api::{ListOptions, ResponseBody};
use gc_registry::error::ApiError;
use gc_registry::kinds;
use gc_registry::kubernetes::KubernetesVersion;
use gc_registry::resource::Target;
use gc_registry::x509::RequestSignature;
use rcgen::{
    BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, PKCS_ED25519, SanType, date_time_ymd,
};
use serde_json::{Value, json};
use world::World;

const BUNDLES: &str = "certificates.k8s.io/v1/clustertrustbundles";
const REQUESTS: &str = "certificates.k8s.io/v1/podcertificaterequests";
const STATUS: &str = "certificates.k8s.io/v1/podcertificaterequests/status";
/// Requests created by openssl, each after a line with the name of its key and the command that created it.
const KEYS: &str = include_str!("requests/keys.txt");

fn world() -> World {
    KubernetesVersion::V1_37.choose().unwrap();
    World::default()
}

/// Returns the errors of an object, without its kind and name.
fn problems<T: std::fmt::Debug>(answer: Result<T, ApiError>) -> String {
    let error = answer.unwrap_err();
    let message = &error.message;
    let start = message.find("is invalid: ").map_or(0, |at| at + "is invalid: ".len());
    format!("{} {}", error.code, &message[start..])
}

/// Returns the certificate of an authority, in PEM.
fn authority() -> String {
    let key = KeyPair::generate().unwrap();
    authority_params().self_signed(&key).unwrap().pem()
}

fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

fn bundle(name: &str, signer: &str, trust: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"signerName": signer, "trustBundle": trust}})
}

/// Checks the rules of upstream's pkg/apis/certificates/validation and pkg/apis/core/validation/names.go.
#[test]
fn names_of_trust_bundles_begin_with_their_signer() {
    let world = world();
    let trust = authority();
    for (name, signer, why) in [
        ("a", "", ""),
        ("example.com:foo:a", "example.com/foo", ""),
        (
            "a:b",
            "",
            "metadata.name: Invalid value: \"a:b\": ClusterTrustBundle without signer name must not have \":\" in its name",
        ),
        (
            "example.com:bar:a",
            "example.com/foo",
            "metadata.name: Invalid value: \"example.com:bar:a\": ClusterTrustBundle for signerName example.com/foo must be \
             named with prefix example.com:foo:",
        ),
        (
            "foo:a",
            "foo",
            "spec.signerName: Invalid value: \"foo\": must be a fully qualified domain and path of the form \
             'example.com/signer-name'",
        ),
    ] {
        let answer = world.create(BUNDLES, bundle(name, signer, &trust));
        if why.is_empty() {
            let created = answer.unwrap();
            assert_eq!(created["spec"].get("signerName").is_some(), !signer.is_empty(), "{created}");
        } else {
            assert_eq!(problems(answer), format!("422 {why}"), "{name}");
        }
    }
    let answer = world.create(BUNDLES, bundle("example.com:foo:-", "example.com/foo", &trust));
    assert!(problems(answer).contains("a lowercase RFC 1123 subdomain"));
    // The generated name must have the required form.
    let mut generated = bundle("", "example.com/foo", &trust);
    generated["metadata"] = json!({"generateName": "example.com:foo:g-"});
    let name = world.create(BUNDLES, generated).unwrap()["metadata"]["name"].clone();
    assert!(name.as_str().unwrap().starts_with("example.com:foo:g-"), "{name}");
}

#[test]
fn trust_bundles_hold_certificates_of_authorities_once() {
    let world = world();
    let (one, other) = (authority(), authority());
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::default().self_signed(&key).unwrap().pem();
    let header = one.replacen('\n', "\nA: b\n\n", 1);
    let broken = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n";
    let omitted = "spec.trustBundle: Invalid value: \"<value omitted>\":";
    for (trust, why) in [
        (String::new(), "at least one trust anchor must be provided".to_owned()),
        ("nothing".to_owned(), "at least one trust anchor must be provided".to_owned()),
        (key.serialize_pem(), "entry 0 has bad block type: PRIVATE KEY".to_owned()),
        (header, "entry 0 has PEM block headers".to_owned()),
        (format!("{one}{broken}"), "entry 1 does not parse as X.509".to_owned()),
        (leaf, "entry 0 does not have the CA bit set".to_owned()),
        (format!("{one}{other}{one}"), "duplicate trust anchor (indices [0 2])".to_owned()),
    ] {
        let answer = world.create(BUNDLES, bundle("a", "", &trust));
        assert_eq!(problems(answer), format!("422 {omitted} {why}"), "{trust}");
    }
    let long = "a".repeat(1024 * 1024 + 1);
    let answer = world.create(BUNDLES, bundle("a", "", &long));
    assert_eq!(problems(answer), "422 spec.trustBundle: Too long: may not be more than 1048576 bytes");
    world.create(BUNDLES, bundle("a", "", &format!("before\n{one}between\n{other}"))).unwrap();
}

#[test]
fn the_signer_of_a_trust_bundle_stays() {
    let world = world();
    let mut stored =
        world.create(BUNDLES, bundle("example.com:foo:a", "example.com/foo", &authority())).unwrap();
    assert_eq!(stored["metadata"].get("generation"), None);
    stored["spec"]["signerName"] = "example.com/bar".into();
    let refused = problems(world.update(BUNDLES, "/example.com:foo:a", stored.clone()));
    assert!(
        refused.contains("spec.signerName: Invalid value: \"example.com/bar\": field is immutable"),
        "{refused}"
    );
    stored["spec"]["signerName"] = "example.com/foo".into();
    stored["spec"]["trustBundle"] = "other".into();
    let refused = problems(world.update(BUNDLES, "/example.com:foo:a", stored.clone()));
    assert!(refused.ends_with("at least one trust anchor must be provided"), "{refused}");
    stored["spec"]["trustBundle"] = authority().into();
    stored["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    assert!(
        problems(world.update(BUNDLES, "/example.com:foo:a", stored))
            .contains("must be specified for an update")
    );
    let selected = |selector: &str| {
        let options = ListOptions { field_selector: selector.into(), ..ListOptions::default() };
        match world.list(BUNDLES, "", options).unwrap().body {
            ResponseBody::List(list) => list.items.len(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(selected("spec.signerName=example.com/foo"), 1);
    assert_eq!(selected("spec.signerName=example.com/bar"), 0);
}

/// Checks upstream's plugin ClusterTrustBundleAttest.
#[test]
fn who_publishes_for_a_signer_may_attest_for_it() {
    let world = world();
    world.refuse("attest signers");
    let named = || bundle("example.com:foo:a", "example.com/foo", &authority());
    let why = "403 clustertrustbundles.certificates.k8s.io \"example.com:foo:a\" is forbidden: user not permitted to attest for \
               signerName \"example.com/foo\"";
    assert_eq!(problems(world.create(BUNDLES, named())), why);
    world.create(BUNDLES, bundle("a", "", &authority())).unwrap();
    world.allow_all();
    world.create(BUNDLES, named()).unwrap();
    world.refuse("attest signers");
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(problems(world.merge(BUNDLES, "/example.com:foo:a", label)), why);
    // Garbage collection needs no right for the signer.
    let owner = json!({"apiVersion": "v1", "kind": "Namespace", "name": "x", "uid": "u"});
    let collected = json!({"metadata": {"finalizers": ["example.com/f"], "ownerReferences": [owner]}});
    world.merge(BUNDLES, "/example.com:foo:a", collected).unwrap();
}

/// Returns the request of a key in [`KEYS`], as DER in base64.
fn request_of(key: &str) -> String {
    let text = KEYS.split("# ").find(|text| text.starts_with(&format!("{key}:"))).unwrap();
    text.lines().skip(1).filter(|line| !line.starts_with('-')).collect()
}

fn ed25519() -> (KeyPair, String) {
    let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let request = CertificateParams::default().serialize_request(&key).unwrap();
    let encoded = BASE64.encode(request.der());
    (key, encoded)
}

fn pod_request(name: &str, stub: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "signerName": "example.com/foo", "podName": "web", "podUID": "pod-uid",
            "serviceAccountName": "default", "serviceAccountUID": "account-uid",
            "nodeName": "node-1", "nodeUID": "node-uid", "stubPKCS10Request": stub,
        },
    })
}

#[test]
fn requests_of_pods_name_pod_account_and_node() {
    let world = world();
    let (_, stub) = ed25519();
    let mut sent = pod_request("a", &stub);
    sent["status"] = json!({"certificateChain": "x"});
    let created = world.create(REQUESTS, sent).unwrap();
    assert_eq!((&created["spec"]["maxExpirationSeconds"], &created["status"]), (&json!(86400), &json!({})));
    let long = "u".repeat(129);
    for (field, value, why) in [
        ("signerName", json!(""), "Required value"),
        ("podName", json!("A"), "Invalid value: \"A\": a lowercase RFC 1123 subdomain"),
        ("podUID", json!(""), "Invalid value: \"\": must not be empty"),
        ("podUID", json!(long), "Too long: may not be more than 128 bytes"),
        ("serviceAccountName", json!("-"), "Invalid value: \"-\": a lowercase RFC 1123 subdomain"),
        ("serviceAccountUID", json!(""), "Invalid value: \"\": must not be empty"),
        ("nodeName", json!("a b"), "Invalid value: \"a b\": a lowercase RFC 1123 subdomain"),
        ("nodeUID", json!(long), "Too long: may not be more than 128 bytes"),
        ("maxExpirationSeconds", json!(3599), "Invalid value: 3599: must be in the range [3600, 7862400]"),
        (
            "maxExpirationSeconds",
            json!(7_862_401),
            "Invalid value: 7862401: must be in the range [3600, 7862400]",
        ),
        (
            "unverifiedUserAnnotations",
            json!({"plain": "b"}),
            "Invalid value: \"plain\": must be a domain-prefixed key (such as \"acme.io/foo\")",
        ),
        ("unverifiedUserAnnotations", json!({"a/b/c": "d"}), "Invalid value: \"a/b/c\": a valid label key"),
        (
            "unverifiedUserAnnotations",
            json!({"a.b/c": "d".repeat(256 * 1024)}),
            "Too long: may not be more than 262144 bytes",
        ),
    ] {
        let mut sent = pod_request("b", &stub);
        sent["spec"][field] = value;
        let refused = problems(world.create(REQUESTS, sent));
        assert!(refused.starts_with(&format!("422 spec.{field}: {why}")), "{refused}");
    }
    // Kubernetes' own signers issue certificates for a day at most.
    let mut sent = pod_request("b", &stub);
    sent["spec"]["signerName"] = "kubernetes.io/kube-apiserver-client-pod".into();
    sent["spec"]["maxExpirationSeconds"] = 86401.into();
    let why = "422 spec.maxExpirationSeconds: Invalid value: 86401: must be in the range [3600, 86400]";
    assert_eq!(problems(world.create(REQUESTS, sent)), why);
    // The spec is immutable.
    let mut stored = world.get(REQUESTS, "default/a").unwrap();
    stored["spec"]["podName"] = "other".into();
    let refused = problems(world.update(REQUESTS, "default/a", stored));
    assert!(
        refused.starts_with("422 spec: Invalid value: ") && refused.ends_with(": field is immutable"),
        "{refused}"
    );
    world.merge(REQUESTS, "default/a", json!({"metadata": {"labels": {"a": "b"}}})).unwrap();
}

#[test]
fn keys_of_pods_have_a_strength_that_upstream_takes() {
    let world = world();
    let refused = "spec.stubPKCS10Request: Invalid value:";
    for (key, why) in [
        ("RSA 3072", String::new()),
        ("P-384", String::new()),
        ("P-521", String::new()),
        ("Ed25519", String::new()),
        ("RSA 2048", format!("{refused} \"2048-bit modulus\": RSA keys must have modulus size 3072 or 4096")),
        (
            "P-224",
            format!("{refused} \"curve P-224\": elliptic public keys must use curve P256, P384, or P521"),
        ),
        // Go does not support keys on this curve.
        ("secp256k1", format!("{refused} must be a valid PKCS#10 CSR")),
        ("Ed448", format!("{refused} unknown public key type; supported types are Ed25519, ECDSA, and RSA")),
    ] {
        let name = key.to_lowercase().replace(' ', "-");
        let answer = world.create(REQUESTS, pod_request(&name, &request_of(key)));
        if why.is_empty() {
            answer.unwrap();
        } else {
            assert_eq!(problems(answer), format!("422 {why}"), "{key}");
        }
    }
    for (stub, why) in [
        (
            String::new(),
            "spec: Invalid value: exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set".to_owned(),
        ),
        (BASE64.encode("no request"), format!("{refused} must be a valid PKCS#10 CSR")),
        (
            BASE64.encode([0; 10 * 1024 + 1]),
            "spec.stubPKCS10Request: Too long: may not be more than 10240 bytes".to_owned(),
        ),
    ] {
        assert_eq!(problems(world.create(REQUESTS, pod_request("n", &stub))), format!("422 {why}"));
    }
    // The requester must hold the key; a stored request is not verified again.
    world.registry.verify_requests_by(|_| RequestSignature::Refused("not theirs".to_owned()));
    let answer = world.create(REQUESTS, pod_request("n", &ed25519().1));
    assert_eq!(problems(answer), format!("422 {refused} invalid signature"));
    world.merge(REQUESTS, "default/ed25519", json!({"metadata": {"labels": {"a": "b"}}})).unwrap();
}

fn condition(kind: &str, status: &str) -> Value {
    json!({"type": kind, "status": status, "reason": "Test", "message": "",
           "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

#[test]
fn a_request_of_a_pod_has_one_outcome() {
    let world = world();
    let (_, stub) = ed25519();
    world.create(REQUESTS, pod_request("a", &stub)).unwrap();
    let answer = |status: Value| world.merge(STATUS, "default/a", json!({"status": status}));
    for (status, why) in [
        (
            json!({"conditions": [condition("Ready", "True")]}),
            "status.conditions.[0].type: Unsupported value: \"Ready\": supported values: \"Issued\", \"Denied\", \"Failed\"",
        ),
        (
            json!({"conditions": [condition("Denied", "False")]}),
            "status.conditions.[0].status: Unsupported value: \"False\": supported values: \"True\"",
        ),
        (
            json!({"conditions": [condition("Denied", "True"), condition("Failed", "True")]}),
            "status.conditions.[1].type: Invalid value: \"Failed\": There may be at most one condition with type \"Issued\", \
             \"Denied\", or \"Failed\"",
        ),
        (
            json!({"conditions": [condition("Denied", "True")], "certificateChain": "x"}),
            "status: Invalid value: non-condition status fields must be empty when denying or failing the PodCertificateRequest",
        ),
        (
            json!({"certificateChain": "x"}),
            "status: Invalid value: status is immutable unless transitioning to \"Issued\", \"Denied\", or \"Failed\"",
        ),
    ] {
        assert_eq!(problems(answer(status)), format!("422 {why}"));
    }
    // A user who answers for a signer may sign for it; an unchanged status needs no right.
    world.refuse("sign signers");
    let denied = json!({"conditions": [condition("Denied", "True")]});
    let why = "422 spec.signerName: Forbidden: User \"tester\" is not permitted to \"sign\" for signer \"example.com/foo\"";
    assert_eq!(problems(answer(denied.clone())), why);
    answer(json!({})).unwrap();
    world.allow_all();
    let stored = answer(denied).unwrap();
    assert_eq!(stored["status"]["conditions"][0]["type"], "Denied");
    let why = "422 status: Invalid value: immutable after PodCertificateRequest is issued, denied, or failed";
    assert_eq!(problems(answer(json!({"conditions": [condition("Failed", "True")]}))), why);
    // This endpoint changes neither spec nor labels.
    let other = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"podName": "other"}});
    let kept = world.merge(STATUS, "default/a", other).unwrap();
    assert_eq!((&kept["spec"], &kept["metadata"]["labels"]), (&stored["spec"], &Value::Null));
}

/// Returns a leaf certificate that is valid from the first of January 2026, in PEM.
fn leaf(key: &KeyPair, hours: u64, names: &[SanType]) -> String {
    let authority = Issuer::new(authority_params(), KeyPair::generate().unwrap());
    let mut params = CertificateParams::default();
    params.not_before = date_time_ymd(2026, 1, 1);
    params.not_after = params.not_before + Duration::from_secs(hours * 3600);
    params.subject_alt_names = names.to_vec();
    params.signed_by(key, &authority).unwrap().pem()
}

fn issued(chain: &str, times: [&str; 3]) -> Value {
    let [not_before, begin_refresh_at, not_after] =
        times.map(|time| if time.is_empty() { Value::Null } else { time.into() });
    json!({"conditions": [condition("Issued", "True")], "certificateChain": chain, "notBefore": not_before,
           "beginRefreshAt": begin_refresh_at, "notAfter": not_after})
}

#[test]
fn an_issued_certificate_is_that_of_the_request() {
    const TIMES: [&str; 3] = ["2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z", "2026-01-01T02:00:00Z"];
    let world = world();
    let (key, stub) = ed25519();
    let mut request = pod_request("a", &stub);
    request["spec"]["maxExpirationSeconds"] = 7200.into();
    world.create(REQUESTS, request).unwrap();
    let answer = |status: Value| world.merge(STATUS, "default/a", json!({"status": status}));
    let good = leaf(&key, 2, &[]);
    let name = |text: &str| SanType::DnsName(text.try_into().unwrap());
    let email = SanType::Rfc822Name("no address".try_into().unwrap());
    let chain_problem = |why: &str| format!(": {why}");
    let private = key.serialize_pem();
    for (chain, why) in [
        (String::new(), "issued certificate chain must contain at least one certificate"),
        (private.clone(), "issued certificate chain must consist entirely of CERTIFICATE PEM blocks"),
        (
            "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n".to_owned(),
            "leaf certificate does not parse as valid X.509",
        ),
        (leaf(&ed25519().0, 2, &[]), "leaf certificate was not issued to the requested public key"),
        (
            format!("{good}{private}"),
            "issued certificate chain must consist entirely of CERTFICATE PEM blocks",
        ),
        (
            format!("{good}-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n"),
            "intermediate certificate does not parse as valid X.509",
        ),
        (leaf(&key, 2, &[name("a..b")]), "leaf certificate's DNSName should not contain '..'"),
        (leaf(&key, 2, &[name(".a")]), "leaf certificate's DNSName should not start or end with '.'"),
        (leaf(&key, 2, &[email]), "leaf certificate should not contain invalid EmailAddress"),
    ] {
        let refused = problems(answer(issued(&chain, TIMES)));
        assert!(refused.starts_with("422 status.certificateChain: Invalid value: \""), "{refused}");
        assert!(refused.ends_with(&chain_problem(why)), "{refused}");
    }
    let long = "a".repeat(100 * 1024 + 1);
    let refused = problems(answer(issued(&long, TIMES)));
    assert_eq!(refused, "422 status.certificateChain: Too long: may not be more than 102400 bytes");
    for (times, why) in [
        (
            ["", TIMES[1], TIMES[2]],
            "notBefore: Required value: must be present and consistent with the issued certificate",
        ),
        (["", "", ""], "notAfter: Required value"),
        (
            [TIMES[0], "", TIMES[2]],
            "beginRefreshAt: Required value: must be present and in the range [notbefore+10min, notafter-10min]",
        ),
        (
            ["2026-01-01T00:00:01Z", TIMES[1], TIMES[2]],
            "notBefore: Invalid value: \"2026-01-01T00:00:01Z\": must be set to the NotBefore time encoded in the leaf certificate",
        ),
        (
            [TIMES[0], TIMES[1], "2026-01-01T02:00:01Z"],
            "notAfter: Invalid value: \"2026-01-01T02:00:01Z\": must be set to the NotAfter time encoded in the leaf certificate",
        ),
        ([TIMES[0], "2026-01-01T00:09:59Z", TIMES[2]], "must be at least 10 minutes after status.notBefore"),
        ([TIMES[0], "2026-01-01T01:50:01Z", TIMES[2]], "must be at least 10 minutes before status.notAfter"),
    ] {
        let refused = problems(answer(issued(&good, times)));
        assert!(refused.contains(why), "{refused}");
    }
    for (hours, why) in [
        (0, "Invalid value: 0: leaf certificate lifetime must be >= 1 hour"),
        (
            3,
            "Invalid value: 10800000000000: leaf certificate lifetime must be <= spec.maxExpirationSeconds (7200)",
        ),
    ] {
        let end = format!("2026-01-01T0{hours}:00:00Z");
        let refused = problems(answer(issued(&leaf(&key, hours, &[]), [TIMES[0], TIMES[1], &end])));
        assert_eq!(refused, format!("422 status.certificateChain: {why}"));
    }
    world.advance(300);
    let refused = problems(answer(issued(&good, TIMES)));
    assert!(
        refused.ends_with("must be set to within 5 minutes of kube-apiserver's current time"),
        "{refused}"
    );
    world.advance(-1);
    let intermediate = authority();
    let stored = answer(issued(&format!("{good}{intermediate}"), TIMES)).unwrap();
    assert_eq!(stored["status"]["notAfter"], TIMES[2]);
    let why = "422 status: Invalid value: immutable after PodCertificateRequest is issued, denied, or failed";
    assert_eq!(problems(answer(json!({"notAfter": null}))), why);
}

/// Returns the columns of a kind, and the cells of an object.
fn cells(group: &str, resource: &str, object: &Value) -> (Vec<&'static str>, Vec<Value>) {
    let target = Target { group, version: "v1", resource, subresource: None };
    let names = kinds::columns(target).iter().map(|column| column.name).collect();
    (names, kinds::cells(target, object, "2026-01-01T00:00:00Z".parse().unwrap()))
}

#[test]
fn tables_show_taints_and_migrations() {
    let _ = world();
    let mut rule = json!({
        "metadata": {"name": "r", "creationTimestamp": "2025-12-31T23:00:00Z"},
        "spec": {"taint": {"key": "a.b/c", "effect": "NoExecute", "timeAdded": "2025-12-31T23:59:00Z"}},
    });
    let names = vec!["Name", "Key", "Value", "Effect", "TimeAdded", "Age"];
    let mut shown = ["r", "a.b/c", "", "NoExecute", "60s", "60m"].map(Value::from);
    assert_eq!(cells("resource.k8s.io", "devicetaintrules", &rule), (names.clone(), shown.to_vec()));
    rule["spec"]["taint"].as_object_mut().unwrap().remove("timeAdded");
    shown[4] = "".into();
    assert_eq!(cells("resource.k8s.io", "devicetaintrules", &rule), (names, shown.to_vec()));

    let mut migration = json!({"metadata": {"name": "m"}, "spec": {"resource": {"group": "apps", "resource": "deployments"}}});
    let migrated = || cells("storagemigration.k8s.io", "storageversionmigrations", &migration);
    let names = vec!["Name", "Resource", "Status"];
    assert_eq!(migrated(), (names, ["m", "deployments.apps", "Unknown"].map(Value::from).to_vec()));
    for (conditions, state) in [
        (json!([condition("Running", "True")]), "Running"),
        (json!([condition("Running", "False"), condition("Succeeded", "True")]), "Succeeded"),
        (json!([condition("Running", "True"), condition("Other", "True")]), "Running"),
    ] {
        migration["spec"]["resource"]["group"] = "".into();
        migration["status"] = json!({"conditions": conditions});
        let (_, shown) = cells("storagemigration.k8s.io", "storageversionmigrations", &migration);
        assert_eq!(shown, ["m", "deployments", state].map(Value::from));
    }
}

/// The expected columns are those of 1.36.2, which has the kinds as beta.
#[test]
fn tables_show_signers_and_outcomes() {
    let world = world();
    let cells = |resource: &str, object: &Value| cells("certificates.k8s.io", resource, object);
    let stored = world.create(BUNDLES, bundle("a", "", &authority())).unwrap();
    assert_eq!(
        cells("clustertrustbundles", &stored),
        (vec!["Name", "SignerName"], vec![json!("a"), json!("<none>")])
    );
    let mut request = pod_request("a", &ed25519().1);
    request["spec"]["unverifiedUserAnnotations"] = json!({"a.b/c": "d", "a.b/a": "e"});
    let mut stored = world.create(REQUESTS, request).unwrap();
    let names = vec![
        "Name",
        "PodName",
        "ServiceAccountName",
        "NodeName",
        "SignerName",
        "State",
        "UnverifiedUserAnnotations",
    ];
    let mut shown =
        ["a", "web", "default", "node-1", "example.com/foo", "Pending", "a.b/a=e,a.b/c=d"].map(Value::from);
    assert_eq!(cells("podcertificaterequests", &stored), (names.clone(), shown.to_vec()));
    stored["status"] = json!({"conditions": [condition("Failed", "True")]});
    shown[5] = "Failed".into();
    assert_eq!(cells("podcertificaterequests", &stored), (names, shown.to_vec()));
}

/// The roles for the new kinds are bound to their users.
#[test]
fn the_policy_knows_the_kinds_of_the_version() {
    let world = world();
    let read = |resource: &str, name: &str| {
        world.get(&format!("rbac.authorization.k8s.io/v1/{resource}"), &format!("/{name}")).unwrap()
    };
    let name = "system:cluster-trust-bundle-discovery";
    let rule = json!({"apiGroups": ["certificates.k8s.io"], "resources": ["clustertrustbundles"],
        "verbs": ["get", "list", "watch"]});
    assert_eq!(read("clusterroles", name)["rules"], json!([rule]));
    assert_eq!(read("clusterrolebindings", name)["subjects"][0]["name"], "system:serviceaccounts");
    let nodes = read("clusterroles", "system:node");
    assert!(nodes["rules"].as_array().unwrap().contains(&rule), "{nodes}");
    for controller in [
        "kube-apiserver-serving-clustertrustbundle-publisher",
        "podcertificaterequestcleaner",
        "storage-version-migrator-controller",
    ] {
        let binding = read("clusterrolebindings", &format!("system:controller:{controller}"));
        assert_eq!(binding["subjects"][0]["name"], controller);
    }
}

/// Fields behind gates that are off in 1.36 and on in 1.37: ClusterTrustBundleProjection, PodCertificateRequest and SELinuxMount.
#[test]
fn pods_mount_trust_bundles_and_certificates() {
    let world = world();
    let sources = json!([
        {"clusterTrustBundle": {"name": "a", "path": "ca.pem"}},
        {"podCertificate": {"signerName": "example.com/foo", "keyType": "ED25519", "credentialBundlePath": "bundle.pem"}},
    ]);
    let pod = |policy: &str, sources: &Value| {
        json!({
            "metadata": {"name": "web"},
            "spec": {
                "containers": [{"name": "web", "image": "web"}],
                "securityContext": {"seLinuxChangePolicy": policy},
                "volumes": [{"name": "trust", "projected": {"sources": sources}}],
            },
        })
    };
    let created = world.create("v1/pods", pod("MountOption", &sources)).unwrap();
    assert_eq!(created["spec"]["volumes"][0]["projected"]["sources"], sources);
    assert_eq!(created["spec"]["securityContext"]["seLinuxChangePolicy"], "MountOption");
    let refused = problems(world.create("v1/pods", pod("Other", &json!([]))));
    let why = "spec.securityContext.seLinuxChangePolicy: Unsupported value: \"Other\": supported values: \"MountOption\", \"Recursive\"";
    assert!(refused.contains(why), "{refused}");
    // A signer in a subdomain of kubernetes.io counts as one of Kubernetes, too.
    let signed = json!([{"podCertificate": {"signerName": "a.kubernetes.io/b", "keyType": "ED25519", "keyPath": "k",
        "certificateChainPath": "c", "maxExpirationSeconds": 86401}}]);
    let refused = problems(world.create("v1/pods", pod("Recursive", &signed)));
    assert!(refused.ends_with("if provided, maxExpirationSeconds must be <= 86400"), "{refused}");
}

/// Gate MaxUnavailableStatefulSet.
#[test]
fn stateful_sets_replace_several_pods_at_once() {
    let world = world();
    let set = |name: &str, rolling: Value| {
        json!({
            "metadata": {"name": name},
            "spec": {
                "selector": {"matchLabels": {"a": "b"}},
                "serviceName": "s",
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
                "template": {
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {"containers": [{"name": "c", "image": "i"}]},
                },
            },
        })
    };
    let created = |name: &str, rolling: Value| {
        let created = world.create("apps/v1/statefulsets", set(name, rolling)).unwrap();
        created["spec"]["updateStrategy"]["rollingUpdate"].clone()
    };
    assert_eq!(
        created("given", json!({"maxUnavailable": "30%"})),
        json!({"partition": 0, "maxUnavailable": "30%"})
    );
    assert_eq!(created("default", json!({"partition": 2})), json!({"partition": 2, "maxUnavailable": 1}));
    let refused = problems(world.create("apps/v1/statefulsets", set("zero", json!({"maxUnavailable": 0}))));
    assert!(refused.ends_with("rollingUpdate.maxUnavailable: Invalid value: 0: cannot be 0"), "{refused}");
}

/// Gate HPAScaleToZero: an autoscaler with a metric from outside its pods may scale to zero.
#[test]
fn autoscalers_scale_to_zero() {
    let world = world();
    const AUTOSCALERS: &str = "autoscaling/v2/horizontalpodautoscalers";
    let scaler = |least: i64, metric: Value| {
        json!({
            "metadata": {"name": "a"},
            "spec": {
                "minReplicas": least,
                "maxReplicas": 3,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
                "metrics": [metric],
            },
        })
    };
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}});
    let queue = json!({"type": "External",
        "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "30"}}});
    let refused = problems(world.create(AUTOSCALERS, scaler(0, cpu)));
    let why = "422 spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas";
    assert_eq!(refused, why);
    let refused = problems(world.create(AUTOSCALERS, scaler(-1, queue.clone())));
    assert_eq!(refused, "422 spec.minReplicas: Invalid value: -1: must be greater than or equal to 0");
    assert_eq!(world.create(AUTOSCALERS, scaler(0, queue)).unwrap()["spec"]["minReplicas"], 0);
    // A condition states the generation that it applies to.
    let about = json!({"type": "AbleToScale", "status": "True", "observedGeneration": 3});
    let status = json!({"status": {"currentReplicas": 0, "desiredReplicas": 0, "conditions": [about]}});
    let stored = world.merge(&format!("{AUTOSCALERS}/status"), "default/a", status).unwrap();
    assert_eq!(stored["status"]["conditions"][0]["observedGeneration"], 3);
}

/// Gate VolumeLimitScaling.
#[test]
fn drivers_of_volumes_say_whether_pods_need_them() {
    let world = world();
    let created = |name: &str, spec: Value| {
        world
            .create("storage.k8s.io/v1/csidrivers", json!({"metadata": {"name": name}, "spec": spec}))
            .unwrap()
    };
    assert_eq!(created("a", json!({}))["spec"]["preventPodSchedulingIfMissing"], false);
    let given = created("b", json!({"preventPodSchedulingIfMissing": true}));
    assert_eq!(given["spec"]["preventPodSchedulingIfMissing"], true);
}

/// Every rule that is declared with the types since 1.37 has a case, and the causes that 1.37 names.
#[test]
fn declared_rules_refuse_in_the_words_of_1_37() {
    declared::check(KubernetesVersion::V1_37);
    let missing = declared::without_case(include_str!("../src/schema/rules-1.37.txt"));
    // Written code says which conditions are of one type.
    assert_eq!(missing, ["CertificateSigningRequestStatus.conditions listType=map"]);
}

/// Definitions have columns of their own since 1.37, and their sets should be of scalars.
#[test]
fn definitions_show_their_versions_and_warn_of_sets_of_objects() {
    let _ = world();
    let set = |kind: &str| json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": kind}});
    let properties = json!({"a": set("string"), "b": set("object"), "c": {"type": "object", "properties": {"d": set("array")}}});
    let definition = |properties: &Value| {
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": properties}});
        json!({
            "metadata": {"name": "as.example.com", "creationTimestamp": "2025-12-31T23:00:00Z"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"plural": "as", "kind": "A", "shortNames": ["x", "y"]},
                "versions": [
                    {"name": "v2", "served": true, "storage": true, "schema": schema},
                    {"name": "v1", "served": true, "storage": false, "schema": schema},
                    {"name": "v0", "served": false, "storage": false, "schema": schema},
                ],
            },
            "status": {"conditions": [condition("Established", "True")]},
        })
    };
    let (names, shown) = cells("apiextensions.k8s.io", "customresourcedefinitions", &definition(&properties));
    let headings = ["Name", "Scope", "Versions", "Created At", "Group", "Kind", "ShortNames", "Established"];
    assert_eq!(names, headings);
    let texts =
        ["as.example.com", "Namespaced", "v1,v2(storage)", "2025-12-31T23:00:00Z", "example.com", "A", "x,y"];
    assert_eq!(shown[..7], texts.map(Value::from));
    assert_eq!(shown[7], true);

    let warning = |kind: &str| {
        format!(
            "x-kubernetes-list-type: set for items of type \"{kind}\" is not supported by server-side apply or CEL \
             validation rules"
        )
    };
    let (new, plain) = (definition(&properties), definition(&json!({"b": set("object")})));
    assert_eq!(gc_registry::crd::warnings(&new, None), [warning("array"), warning("object")]);
    assert_eq!(gc_registry::crd::warnings(&new, Some(&plain)), [warning("array")]);
    assert!(gc_registry::crd::warnings(&new, Some(&new)).is_empty());
}
