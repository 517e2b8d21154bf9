//! Request bodies: parses them into values, and finds the duplicate fields that strict field validation reports.

use bytes::Bytes;
use gc_registry::api::{DeleteOptions, PatchType, RequestBody, UNSAFE_DELETION};
use gc_registry::error::{ApiError, CauseReason, FieldError};
use gc_registry::resource::ResourceDefinition;
use gc_registry::schema::{self, json_type};
use serde_json::{Map, Value};

use crate::encode::documents::{json, yaml};
use crate::encode::negotiate::{self, BodyType};
use crate::encode::protobuf;

/// Number of bytes of a broken body that an error message shows.
const SHOWN_BYTES: usize = 30;

/// Decodes the body of a create, an update or a review. `kind` is the kind that the path addresses.
pub(crate) fn object(bytes: &Bytes, content_type: Option<&str>, kind: &str) -> Result<RequestBody, ApiError> {
    let body = match negotiate::body_type(content_type)? {
        BodyType::Json => {
            let body = json(bytes).map_err(|problem| not_json(kind, &problem, bytes))?;
            RequestBody { text: bytes.clone(), ..body }
        }
        BodyType::Yaml => yaml(bytes).map_err(|problem| unrecognized(kind, &problem, bytes))?,
        BodyType::Protobuf => protobuf::decode_object(bytes, kind)?.into(),
    };
    // Go decodes null into the zero object.
    let body =
        if body.value.is_null() { RequestBody { value: Value::Object(Map::new()), ..body } } else { body };
    let Value::Object(members) = &body.value else {
        return Err(not_json(kind, &not_an_object(&body.value), bytes));
    };
    if let Some(why) = wrong_type_meta(members) {
        return Err(not_json(kind, &why, bytes));
    }
    Ok(body)
}

/// Decodes the body of a create or an update of a custom resource. Unlike other bodies, it must state its type: one without a kind
/// cannot be decoded, one of another version is a bad request, and one of another kind is an invalid object.
pub(crate) fn custom_object(
    bytes: &Bytes,
    content_type: Option<&str>,
    resource: &ResourceDefinition,
) -> Result<RequestBody, ApiError> {
    /// Number of bytes of a body without a kind that a message repeats.
    const REPEATED_BYTES: usize = 200;
    let kind = &*resource.kind;
    let body = object(bytes, content_type, kind)?;
    let member = |name: &str| body.value.get(name).and_then(Value::as_str).unwrap_or_default();
    let (given, version, wanted) = (member("kind"), member("apiVersion"), resource.api_version());
    if given.is_empty() {
        let sent = String::from_utf8_lossy(&bytes[..bytes.len().min(REPEATED_BYTES)]);
        return Err(unrecognized(kind, &format!("Object 'Kind' is missing in '{sent}'"), bytes));
    }
    if version != wanted {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({wanted})"
        )));
    }
    if given != kind {
        let detail = format!("Invalid value: {given:?}: must be {kind}");
        let error = FieldError { field: "kind".into(), reason: CauseReason::Invalid, detail };
        let name = body.value.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        return Err(ApiError::invalid(&resource.group, given, name, &[error]));
    }
    Ok(body)
}

/// Decodes the answer of another server as client-go does: as JSON, or as YAML if it does not look like JSON. Errors use the
/// wording of Go's decoder.
pub(crate) fn answer(bytes: &[u8]) -> Result<Value, String> {
    let unread = |why: String| format!("couldn't get version/kind; json parse error: {why}");
    let is_json = bytes.trim_ascii_start().starts_with(b"{");
    let body = if is_json { json(bytes).map_err(unread)? } else { yaml(bytes)? };
    match body.value {
        // Go decodes null into the zero object.
        Value::Null => Ok(Value::Object(Map::new())),
        Value::Object(members) => match wrong_type_meta(&members) {
            Some(why) => Err(unread(why)),
            None => Ok(Value::Object(members)),
        },
        other => Err(unread(not_an_object(&other))),
    }
}

/// Decodes a patch: JSON for all but apply, which takes YAML (of which JSON is a part).
pub(crate) fn patch(bytes: &[u8], patch_type: PatchType) -> Result<RequestBody, ApiError> {
    match patch_type {
        PatchType::Apply => applied(bytes),
        // Upstream reads these elsewhere, and adds no prefix to errors.
        PatchType::StrategicMerge => json(bytes).map_err(ApiError::bad_request),
        PatchType::Json | PatchType::Merge => {
            json(bytes).map_err(|problem| ApiError::bad_request(format!("error decoding patch: {problem}")))
        }
    }
}

/// Decodes the body of an apply. Nearly all are in fact JSON, which parses faster; errors are always reported as those of YAML.
fn applied(bytes: &[u8]) -> Result<RequestBody, ApiError> {
    let body = match json(bytes) {
        Ok(body) if body.duplicates.is_empty() => body,
        _ => yaml(bytes).map_err(|problem| {
            ApiError::bad_request(format!("error decoding YAML: error converting YAML to JSON: {problem}"))
        })?,
    };
    if matches!(body.value, Value::Object(_) | Value::Null) {
        return Ok(body);
    }
    Err(ApiError::bad_request(format!(
        "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of \
         type map[string]interface {{}}",
        json_type(&body.value)
    )))
}

/// Decodes the body of a DELETE; the caller has checked that it is not empty.
pub(crate) fn delete_options(bytes: &[u8], content_type: Option<&str>) -> Result<DeleteOptions, ApiError> {
    let value = match negotiate::body_type(content_type)? {
        BodyType::Json => {
            let why = |problem| format!("couldn't get version/kind; json parse error: {problem}");
            json(bytes).map_err(|problem| ApiError::bad_request(why(problem)))?.value
        }
        BodyType::Yaml => yaml(bytes).map_err(|p| unrecognized("DeleteOptions", &p, bytes))?.value,
        BodyType::Protobuf => return protobuf::decode_delete_options(bytes),
    };
    if value.is_null() {
        return Ok(DeleteOptions::default());
    }
    delete_options_of(&value)
}

/// Reads DeleteOptions from a value; wrong types result in a 400.
pub(crate) fn delete_options_of(value: &Value) -> Result<DeleteOptions, ApiError> {
    let Some(map) = value.as_object() else {
        let why = not_an_object(value);
        return Err(ApiError::bad_request(format!("couldn't get version/kind; json parse error: {why}")));
    };
    schema::check_types(schema::delete_options(), value).map_err(ApiError::bad_request)?;
    let text =
        |map: &Map<String, Value>, name: &str| map.get(name).and_then(Value::as_str).map(str::to_owned);
    if let Some(kind) = text(map, "kind").filter(|kind| !kind.is_empty() && kind != "DeleteOptions") {
        let version = text(map, "apiVersion")
            .filter(|version| !version.is_empty())
            .unwrap_or_else(|| "meta.k8s.io/v1".into());
        return Err(ApiError::bad_request(format!(
            "no kind {kind:?} is registered for version {version:?} in scheme \
             \"pkg/apis/meta/internalversion/scheme/register.go:27\""
        )));
    }
    let preconditions = map.get("preconditions").and_then(Value::as_object);
    let precondition = |name| preconditions.and_then(|map| text(map, name));
    let dry_run = map.get("dryRun").and_then(Value::as_array).into_iter().flatten();
    Ok(DeleteOptions {
        grace_period_seconds: map.get("gracePeriodSeconds").and_then(Value::as_i64),
        precondition_uid: precondition("uid"),
        precondition_resource_version: precondition("resourceVersion"),
        orphan_dependents: map.get("orphanDependents").and_then(Value::as_bool),
        propagation_policy: text(map, "propagationPolicy"),
        dry_run: dry_run.map(|item| item.as_str().unwrap_or_default().to_owned()).collect(),
        ignore_store_read_error: map.get(UNSAFE_DELETION).and_then(Value::as_bool).unwrap_or_default(),
    })
}

/// Returns Go's message for an apiVersion or kind that is not a string.
fn wrong_type_meta(members: &Map<String, Value>) -> Option<String> {
    let wrong = |name: &&str| members.get(*name).is_some_and(|value| !value.is_string() && !value.is_null());
    let name = ["apiVersion", "kind"].into_iter().find(wrong)?;
    let found = json_type(members.get(name)?);
    Some(format!("json: cannot unmarshal {found} into Go struct field .{name} of type string"))
}

/// Returns Go's message for a body that is not an object.
fn not_an_object(value: &Value) -> String {
    format!(
        "json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \
         \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
        json_type(value)
    )
}

fn not_json(kind: &str, problem: &str, bytes: &[u8]) -> ApiError {
    unrecognized(kind, &format!("couldn't get version/kind; json parse error: {problem}"), bytes)
}

fn unrecognized(kind: &str, problem: &str, bytes: &[u8]) -> ApiError {
    ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): {problem} ({})",
        shown(bytes)
    ))
}

/// Returns the beginning of a body as messages show it: text if it looks like JSON, otherwise hexadecimal.
fn shown(bytes: &[u8]) -> String {
    let head = &bytes[..bytes.len().min(SHOWN_BYTES)];
    let dots = if bytes.len() > SHOWN_BYTES { " ..." } else { "" };
    match std::str::from_utf8(head) {
        _ if bytes.is_empty() => "<empty>".into(),
        Ok(text) if text.starts_with('{') => {
            format!("{text}{dots}")
        }
        _ => {
            format!("{}{dots}", gc_types::hexadecimal(head))
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use super::*;
    use serde_json::json as value;

    #[test]
    fn duplicates_are_found_with_their_paths() {
        let table: [(&str, &[&str]); 7] = [
            (r#"{"a":1,"b":{"a":1}}"#, &[]),
            (r#"{"a":1,"a":2}"#, &["duplicate field \"a\""]),
            (r#"{"a":1,"a":2,"a":3}"#, &["duplicate field \"a\""]),
            (r#"{"a":{"b":1,"b":2}}"#, &["duplicate field \"a.b\""]),
            (r#"{"a":1,"a":{"b":1,"b":2}}"#, &["duplicate field \"a\"", "duplicate field \"a.b\""]),
            (r#"{"a":[{}, {"b":1,"b":2}]}"#, &["duplicate field \"a[1].b\""]),
            (r#"{"a":[[{"x":0,"x":0}]]}"#, &["duplicate field \"a[0][0].x\""]),
        ];
        for (text, want) in table {
            assert_eq!(json(text.as_bytes()).unwrap().duplicates, want, "{text}");
        }
        assert_eq!(json(br#"{"a":1,"a":2}"#).unwrap().value, value!({"a": 2}), "the last one counts");
    }

    #[test]
    fn broken_bodies_are_400_with_a_reason() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        let table = [
            (r#"{"apiVersion": "v1", "kind": "ConfigMap","#.to_owned(), "unexpected end of JSON input"),
            (String::new(), "unexpected end of JSON input (<empty>)"),
            ("[]".to_owned(), "cannot unmarshal array into Go value of type struct { APIVersion string"),
            (r#"{"a": 1,}"#.to_owned(), "invalid character '}' looking for beginning of object key string"),
            ("[1,]".to_owned(), "invalid character ']' looking for beginning of value"),
            (r"{} trailing".to_owned(), "invalid character 't' after top-level value"),
            ("\u{1f}".to_owned(), r"invalid character '\x1f' looking for beginning of value"),
            ("\u{b}".to_owned(), r"invalid character '\v' looking for beginning of value"),
            ("'".to_owned(), r"invalid character '\'' looking for beginning of value"),
            ("\u{e9}".to_owned(), "invalid character '\u{c3}' looking for beginning of value"),
            ("{\"a\"\u{1}".to_owned(), r"invalid character '\x01' after object key"),
            ("{}\u{4}".to_owned(), r"invalid character '\x04' after top-level value"),
            ("{\"a\":-\u{5}".to_owned(), r"invalid character '\x05' in numeric literal"),
            ("{\"a\":\"\u{1}\"}".to_owned(), r"invalid character '\x01' in string literal"),
            ("{\"a\":\"\n\"}".to_owned(), r"invalid character '\n' in string literal"),
            (r#"{"a":"\q"}"#.to_owned(), "invalid character 'q' in string escape code"),
            (deep, "exceeded max depth"),
        ];
        for (text, want) in table {
            let error = object(&text.into(), Some("application/json"), "ConfigMap").unwrap_err();
            assert_eq!((error.code, &*error.reason), (400, "BadRequest"));
            assert!(error.message.contains(want), "{} should contain {want}", error.message);
        }
    }

    #[test]
    fn bad_utf8_is_replaced_in_json_and_refused_in_yaml() {
        assert_eq!(json(b"{\"a\":\"\xff\"}").unwrap().value, value!({"a": "\u{fffd}"}));
        assert!(yaml(b"a: \xff").is_err());
    }

    #[test]
    fn broken_yaml_is_refused_in_upstreams_words() {
        let created = |bytes: &'static [u8]| {
            object(&bytes.into(), Some("application/yaml"), "DaemonSet").unwrap_err().message
        };
        let applied = |bytes| patch(bytes, PatchType::Apply).unwrap_err().message;
        assert_eq!(
            created(b"a: ["),
            "the object provided is unrecognized (must be of type DaemonSet): yaml: line 1: did not find \
             expected node content (613a205b)"
        );
        assert_eq!(
            applied(b"a: ["),
            "error decoding YAML: error converting YAML to JSON: yaml: line 1: did not find expected node content"
        );
    }

    #[test]
    fn keys_of_yaml_that_are_there_twice_are_one_problem() {
        let want = ["yaml: unmarshal errors:\n  line 2: key \"a\" already set in map".to_owned()];
        let body = object(&Bytes::from_static(b"a: 1\na: 2"), Some("application/yaml"), "Pod").unwrap();
        assert_eq!((body.value, body.duplicates.as_slice()), (value!({"a": 2}), want.as_slice()));
        assert_eq!(patch(b"{\"a\": 1,\n\"a\": 2}", PatchType::Apply).unwrap().duplicates, want);
    }

    #[test]
    fn many_and_long_duplicates_are_bounded() {
        let many: Vec<String> = (0..1000).map(|n| format!("\"k{n}\":1,\"k{n}\":1")).collect();
        let many = format!("{{{}}}", many.join(","));
        assert_eq!(json(many.as_bytes()).unwrap().duplicates.len(), 100);
        let long = format!("{{\"{0}\":1,\"{0}\":1}}", "x".repeat(100_000));
        assert!(json(long.as_bytes()).unwrap().duplicates[0].len() < 300);
    }

    #[test]
    fn delete_options_are_read_and_checked() {
        let table = [
            (value!({}), Some(DeleteOptions::default())),
            (
                value!({"kind": "DeleteOptions", "apiVersion": "foreign/v9", "gracePeriodSeconds": -5,
                    "preconditions": {"uid": "u", "resourceVersion": "3"}, "orphanDependents": false,
                    "propagationPolicy": "Sideways", "dryRun": ["All"],
                    "ignoreStoreReadErrorWithClusterBreakingPotential": true}),
                Some(DeleteOptions {
                    grace_period_seconds: Some(-5),
                    precondition_uid: Some("u".into()),
                    precondition_resource_version: Some("3".into()),
                    orphan_dependents: Some(false),
                    propagation_policy: Some("Sideways".into()),
                    dry_run: vec!["All".into()],
                    ignore_store_read_error: true,
                }),
            ),
            (value!({"orphanDependents": "randomString"}), None),
            (value!({"kind": "APIResourceList"}), None),
            (value!({"apiVersion": false}), None),
            (value!({"gracePeriodSeconds": 1.5}), None),
            (value!([]), None),
        ];
        for (body, want) in table {
            let got = delete_options(body.to_string().as_bytes(), None);
            if let Err(error) = &got {
                assert_eq!(error.code, 400);
            }
            assert_eq!(got.ok(), want, "{body}");
        }
        let refused = delete_options(br#"{"kind": "Pod", "apiVersion": "v1"}"#, None).unwrap_err();
        assert_eq!(
            refused.message,
            "no kind \"Pod\" is registered for version \"v1\" in scheme \
             \"pkg/apis/meta/internalversion/scheme/register.go:27\""
        );
        let refused = delete_options(br#"{"kind": "Pod"}"#, None).unwrap_err();
        assert!(refused.message.contains("for version \"meta.k8s.io/v1\""), "{}", refused.message);
    }
}
