//! Properties of the parsers of client input, as bodies of fuzz targets (`fuzz/` at the root), which also run as tests.
#![allow(clippy::unwrap_used, reason = "a broken law should stop the run")]

use std::sync::OnceLock;

use gc_registry::api::DeleteOptions;
use gc_registry::schema::depth;
use gc_registry::x509::Subject;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use serde_json::{Value, json};

use crate::auth::certificates::CertificateRequest;
use crate::auth::static_tokens::token_line;
use crate::auth::token_keys::SigningKey;
use crate::auth::tokens::{Claims, ISSUER, KubernetesClaims, Reference, TokenSettings, TokenSigner};
use crate::encode::decode;
use crate::encode::documents;
use crate::encode::negotiate::{Encoding, Form, Purpose, body_type, media_ranges, negotiate};
use crate::encode::protobuf;
use crate::encode::protobuf_request;
use crate::encode::protobuf_writer::Writer;
use crate::encode::stored_metadata;
use crate::transport::path::{ResourcePath, Route, resource_verb, route};
use crate::transport::query::Query;
use crate::x509::Certificate;

/// Checks a method and a path with its query: reassembling the parsed parts must give the input.
pub fn request_line(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (method, target) = text.split_once(' ').unwrap_or(("GET", &text));
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let query = Query::parse(query);
    let written: Vec<String> =
        query.0.iter().map(|(name, value)| format!("{}={}", escaped(name), escaped(value))).collect();
    assert_eq!(Query::parse(&written.join("&")), query);
    let _ = (query.list_options(), query.delete_options(), query.write_options("CreateOptions"));
    if let Route::Resource(found) = route(&crate::transport::query::decode(path, false)) {
        if let Ok(method) = http::Method::from_bytes(method.as_bytes()) {
            let _ = resource_verb(&method, &found, &query);
        }
        assert_eq!(route(&put_together(&found)), Route::Resource(found));
    }
}

fn digit(value: u8) -> char {
    char::from_digit(value.into(), 16).unwrap()
}

fn escaped(text: &str) -> String {
    text.bytes().flat_map(|byte| ['%', digit(byte >> 4), digit(byte & 0xf)]).collect()
}

fn put_together(path: &ResourcePath) -> String {
    let ResourcePath { group, version, resource, namespace, name, subresource, rest, namespaced, watch_path } =
        path;
    let group = if group.is_empty() { "api".to_owned() } else { format!("apis/{group}") };
    let watch = if *watch_path { "/watch" } else { "" };
    let inside = if *namespaced { format!("/namespaces/{namespace}") } else { String::new() };
    let mut parts = vec![resource, name, subresource, rest];
    while parts.len() > 1 && parts.last().is_some_and(|part| part.is_empty()) {
        parts.pop();
    }
    let parts: Vec<&str> = parts.into_iter().map(String::as_str).collect();
    let text = format!("/{group}/{version}{watch}{inside}/{}", parts.join("/"));
    // One trailing slash does not matter.
    if text.ends_with('/') { format!("{text}/") } else { text }
}

/// Checks an Accept header: the chosen form must be possible, must be chosen again when requested by name, and must stay chosen
/// when an unknown form is requested in addition.
pub fn accept_header(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = body_type(Some(text));
    assert!(media_ranges(text).len() <= text.split(',').count());
    for purpose in
        [Purpose::Answer, Purpose::Watch, Purpose::Status, Purpose::WatchBuiltin, Purpose::Discovery]
    {
        let Ok(chosen) = negotiate(Some(text), false, purpose) else { continue };
        assert!(
            chosen.encoding != Encoding::Yaml || !matches!(purpose, Purpose::Watch | Purpose::WatchBuiltin)
        );
        let whole_protobuf = chosen.encoding == Encoding::Protobuf && chosen.form != Form::Metadata;
        assert!(!whole_protobuf || !matches!(purpose, Purpose::Answer | Purpose::Watch));
        if !text.trim().is_empty() {
            let more = format!("{text},text/unknown;q=0");
            assert_eq!(negotiate(Some(&more), false, purpose).ok(), Some(chosen));
        }
        let form = match chosen.form {
            Form::Object => String::new(),
            Form::Table => ";as=Table;g=meta.k8s.io".to_owned(),
            Form::Metadata if chosen.of_list => ";as=PartialObjectMetadataList;g=meta.k8s.io".to_owned(),
            Form::Metadata => ";as=PartialObjectMetadata;g=meta.k8s.io".to_owned(),
        };
        let version = if chosen.beta { "v1beta1" } else { "v1" };
        let version = if form.is_empty() { String::new() } else { format!(";v={version}") };
        let pretty = if chosen.pretty { ";pretty=1" } else { "" };
        let named = format!("{}{form}{version}{pretty}", chosen.content_type());
        assert_eq!(negotiate(Some(&named), false, purpose).ok(), Some(chosen), "{named}");
    }
}

/// Checks the body of an object, a patch or options, in JSON and YAML: the JSON parser must agree with a plain one, and with the
/// YAML parser.
pub fn request_body(data: &[u8]) {
    for content_type in [None, Some("application/yaml"), Some("application/vnd.kubernetes.protobuf")] {
        if let Ok(body) = decode::object(&data.to_vec().into(), content_type, "Pod") {
            assert!(body.value.is_object() && depth(&body.value).is_some());
        }
        if let Ok(options) = decode::delete_options(data, content_type) {
            let again = decode::delete_options(written(&options).to_string().as_bytes(), None);
            assert_eq!(again.as_ref(), Ok(&options));
        }
    }
    let _ = decode::patch(data, gc_registry::api::PatchType::Apply);
    let json = documents::json(data);
    if std::str::from_utf8(data).is_ok() {
        let plain: Option<Value> = serde_json::from_slice(data).ok();
        assert_eq!(json.as_ref().ok().map(|body| &body.value), plain.as_ref());
    }
    if let Ok(body) = json {
        let text = body.value.to_string();
        assert_eq!(documents::json(text.as_bytes()).unwrap().duplicates, Vec::<String>::new());
        // YAML refuses some characters that JSON accepts.
        if let Ok(yaml) = documents::yaml(text.as_bytes()) {
            assert_eq!(yaml.value, whole_floats_as_integers(body.value));
        }
    }
}

/// Converts floats without a fraction to integers: YAML passes through Go's floats, which are written that way.
fn whole_floats_as_integers(value: Value) -> Value {
    match value {
        #[allow(clippy::cast_possible_truncation)] // the law of the branch
        Value::Number(number) if number.is_f64() => match number.as_f64() {
            Some(float) if float.fract() == 0.0 && float.abs() < 9.2e18 => json!(float as i64),
            _ => Value::Number(number),
        },
        Value::Array(items) => items.into_iter().map(whole_floats_as_integers).collect(),
        Value::Object(map) => {
            map.into_iter().map(|(key, value)| (key, whole_floats_as_integers(value))).collect()
        }
        other => other,
    }
}

fn written(options: &DeleteOptions) -> Value {
    json!({
        "kind": "DeleteOptions", "gracePeriodSeconds": options.grace_period_seconds,
        "preconditions": {"uid": options.precondition_uid, "resourceVersion": options.precondition_resource_version},
        "orphanDependents": options.orphan_dependents, "propagationPolicy": options.propagation_policy,
        "dryRun": options.dry_run, "ignoreStoreReadErrorWithClusterBreakingPotential": options.ignore_store_read_error,
    })
}

/// Checks a message, preceded by a line with apiVersion and kind: the result must be an object of that kind, nested no deeper than
/// recursive code relies on.
pub fn protobuf_body(data: &[u8]) {
    let Some(end) = data.iter().position(|byte| *byte == b'\n') else { return };
    let Ok(head) = std::str::from_utf8(&data[..end]) else { return };
    let (api_version, kind) = head.split_once(' ').unwrap_or((head, ""));
    if let Some(Ok(object)) = protobuf_request::object(api_version, kind, &data[end + 1..]) {
        assert_eq!((&object["apiVersion"], &object["kind"]), (&json!(api_version), &json!(kind)));
        assert!(depth(&object).is_some());
    }
}

/// Checks metadata: converting its text directly to protobuf must give the same bytes as converting a tree of values.
pub fn metadata_text(data: &[u8]) {
    let mut straight = Vec::new();
    let _ = stored_metadata::write(&mut Writer(&mut straight), data, "5");
    let Ok(Value::Object(mut tree)) = serde_json::from_slice::<Value>(data) else { return };
    let owners = tree.get("ownerReferences").and_then(Value::as_array).into_iter().flatten();
    let entries = tree.get("managedFields").and_then(Value::as_array).into_iter().flatten();
    // The members of a field set are read by name and by position, and null is never stored.
    if !owners.chain(entries).all(|item| item.is_object() && item.get("fieldsV1") != Some(&Value::Null)) {
        return;
    }
    tree.remove("resourceVersion");
    let (mut straight, mut by_values) = (Vec::new(), Vec::new());
    let text = Value::Object(tree.clone()).to_string();
    if stored_metadata::write(&mut Writer(&mut straight), text.as_bytes(), "5").is_ok() {
        tree.insert("resourceVersion".into(), "5".into());
        protobuf::object_meta(&mut Writer(&mut by_values), &tree);
        assert_eq!(straight, by_values);
    }
}

fn signer() -> &'static (TokenSigner, String) {
    static SIGNER: OnceLock<(TokenSigner, String)> = OnceLock::new();
    SIGNER.get_or_init(|| {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let key = SigningKey::from_pkcs8(&key.serialize_der()).unwrap();
        let keys = vec![key.public.clone()];
        let signer = TokenSigner::new(key, keys, TokenSettings::default());
        let account = Reference { name: "robot".into(), uid: "u".into() };
        let claims = Claims {
            aud: vec![ISSUER.into()],
            exp: 2_000_000_000,
            iat: 0,
            iss: ISSUER.into(),
            jti: "j".into(),
            kubernetes: KubernetesClaims {
                namespace: "default".into(),
                serviceaccount: account,
                ..KubernetesClaims::default()
            },
            nbf: 0,
            sub: "system:serviceaccount:default:robot".into(),
        };
        let token = signer.sign(&claims).unwrap();
        (signer, token)
    })
}

/// Checks bearer tokens and lines of a token file. A token must be valid as signed, and invalid once any byte is changed: the first
/// two bytes of the input select the position, the third the new value.
pub fn bearer_token(data: &[u8]) {
    let (signer, token) = signer();
    let verify = |token: &str| signer.verify(token, 1_000_000_000, signer.audiences());
    let text = String::from_utf8_lossy(data);
    assert!(verify(&text).is_err());
    if let [high, low, byte, ..] = data {
        let mut changed = token.clone().into_bytes();
        let at = usize::from(u16::from_be_bytes([*high, *low])) % changed.len();
        changed[at] = *byte;
        if let Ok(changed) = String::from_utf8(changed) {
            assert_eq!(verify(&changed).is_ok(), changed == *token, "{at}");
        }
    }
    for (token, user) in text.lines().filter_map(token_line) {
        assert!(
            !token.is_empty() && !user.name.is_empty() && user.groups.iter().all(|group| !group.is_empty())
        );
    }
}

/// Checks a certificate in DER: the names that it is read to contain must occur in its own bytes.
pub fn client_certificate(data: &[u8]) {
    let Ok(certificate) = Certificate::from_der(data) else { return };
    let Subject { common_name, organizations } = certificate.subject;
    for name in organizations.iter().chain([&common_name]).filter(|name| !name.is_empty()) {
        assert!(data.windows(name.len()).any(|window| window == name.as_bytes()));
    }
}

/// Splits off the first element of a text in DER: returns its tag, its contents, and the rest.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = der.split_first_chunk()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        (digits.iter().fold(0, |length: usize, digit| (length << 8) | usize::from(*digit)), rest)
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((tag, contents, rest))
}

/// Returns all elements of a text in DER.
fn elements(mut der: &[u8]) -> Vec<&[u8]> {
    let mut all = Vec::new();
    while let Some((_, contents, rest)) = element(der) {
        all.push(contents);
        der = rest;
    }
    all
}

/// Reads the common name and the organizations of a request independently: the subject is the second part of the signed data.
fn subject_of(der: &[u8]) -> (String, Vec<String>) {
    const COMMON_NAME: [u8; 3] = [0x55, 4, 3];
    const ORGANIZATION: [u8; 3] = [0x55, 4, 10];
    let (mut common_name, mut organizations) = (String::new(), Vec::new());
    let (_, request, _) = element(der).unwrap();
    let subject = elements(elements(request)[0])[1];
    for pair in elements(subject).into_iter().flat_map(elements) {
        let pair = elements(pair);
        let text = || String::from_utf8(pair[1].to_vec()).unwrap();
        if pair[0] == COMMON_NAME {
            common_name = text();
        } else if pair[0] == ORGANIZATION {
            organizations.push(text());
        }
    }
    (common_name, organizations)
}

/// Checks a certificate request in DER: it must be refused, or read as a request for its actual user and groups. A request made for
/// names in the input must be read with these names, and refused with another key's signature.
pub fn certificate_request(data: &[u8]) {
    if let Ok(request) = CertificateRequest::from_der(data) {
        assert_eq!((request.common_name, request.organizations), subject_of(data));
    }
    requested_names(data);
}

/// Creates a request for the printable names in the input, and reads it.
fn requested_names(data: &[u8]) {
    static KEY: OnceLock<KeyPair> = OnceLock::new();
    let key = KEY.get_or_init(|| KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap());
    let text: String = data.iter().map(|byte| char::from(b'a' + byte % 26)).take(48).collect();
    let (common_name, groups) = text.split_at(text.len() / 2);
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    if !common_name.is_empty() {
        params.distinguished_name.push(rcgen::DnType::CommonName, common_name);
    }
    if !groups.is_empty() {
        params.distinguished_name.push(rcgen::DnType::OrganizationName, groups);
    }
    let der = params.serialize_request(key).unwrap().der().to_vec();
    let request = CertificateRequest::from_der(&der).unwrap();
    let organizations: Vec<String> =
        Some(groups).filter(|groups| !groups.is_empty()).map(str::to_owned).into_iter().collect();
    assert_eq!((request.common_name.as_str(), &request.organizations), (common_name, &organizations));
    // Changing any byte of the signed data invalidates the signature.
    let at = data.iter().map(|byte| usize::from(*byte)).sum::<usize>() % der.len();
    let mut changed = der;
    changed[at] ^= 1;
    if let Ok(read) = CertificateRequest::from_der(&changed) {
        assert_eq!((read.common_name.as_str(), &read.organizations), (common_name, &organizations), "{at}");
    }
}

#[cfg(test)]
gc_fuzz_replay::replay_tests!(
    request_line,
    accept_header,
    request_body,
    protobuf_body,
    metadata_text,
    bearer_token,
    client_certificate,
    certificate_request,
);
