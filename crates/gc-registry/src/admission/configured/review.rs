//! AdmissionReview: builds the requests to webhooks, and interprets their answers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Attributes;
use super::attributes::Form;
use crate::error::{ApiError, Cause, Details};
use crate::patch;
use crate::schema::{reviews, without_line_breaks};
use crate::webhooks::answer::{ExpectedReview, shown_kind};

/// Maximum number of causes passed on from a refusal.
const MOST_CAUSES: usize = 1_000;
const GROUP: &str = "admission.k8s.io";
/// The only type of patch.
const JSON_PATCH: &str = "JSONPatch";

/// Decision of a webhook.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Decision {
    /// Refusal, if any.
    pub(crate) refused: Option<ApiError>,
    /// Requested patch.
    pub(crate) patch: Option<WebhookPatch>,
    pub(crate) warnings: Vec<String>,
}

/// A patch as received from a webhook.
#[derive(Debug, PartialEq)]
pub(crate) struct WebhookPatch {
    bytes: Vec<u8>,
    kind: String,
}

/// Builds the review of a request, with the new and the old object in the version that the webhook selected.
pub(crate) fn review(
    version: &str,
    attributes: &Attributes,
    form: &Form,
    (new, old): (Value, Value),
) -> Value {
    let mut request = attributes.request(form);
    request["object"] = new;
    request["oldObject"] = old;
    json!({
        "kind": "AdmissionReview",
        "apiVersion": format!("{GROUP}/{version}"),
        "request": request,
    })
}

/// Reads the decision from a decodable answer; fails if it does not answer the review.
pub(crate) fn decision(
    (webhook, version): (&str, &str),
    uid: &str,
    answer: &Value,
    mutates: bool,
) -> Result<Decision, String> {
    let is_v1 = version == "v1";
    let response = &answer["response"];
    if !response.is_object() {
        return Err("webhook response was absent".to_owned());
    }
    // The first version did not repeat the UID of the request.
    if is_v1 && response["uid"] != uid {
        return Err(format!(
            "expected response.uid={uid:?}, got {:?}",
            response["uid"].as_str().unwrap_or_default()
        ));
    }
    let (expected, given) = (format!("{GROUP}/{version}, Kind=AdmissionReview"), shown_kind(answer));
    if is_v1 && given != expected {
        return Err(format!("expected webhook response of {expected}, got {given}"));
    }
    let patch = patch_of(response, mutates, is_v1)?;
    let warnings = response["warnings"].as_array().into_iter().flatten();
    let warnings = warnings.filter_map(Value::as_str).map(str::to_owned).collect();
    if response["allowed"] != true {
        return Ok(Decision { refused: Some(refusal(webhook, &response["status"])), patch: None, warnings });
    }
    Ok(Decision { refused: None, patch, warnings })
}

/// Reads the patch of an answer as bytes, which are not parsed yet.
fn patch_of(response: &Value, mutates: bool, is_v1: bool) -> Result<Option<WebhookPatch>, String> {
    let bytes = bytes_of(&response["patch"]);
    let kind = response["patchType"].as_str();
    // The first version had only one type of patch, and did not forbid patches from validating webhooks.
    if !is_v1 {
        let is_given = mutates && !bytes.is_empty();
        return Ok(is_given.then(|| WebhookPatch { bytes, kind: JSON_PATCH.to_owned() }));
    }
    match (mutates, bytes.is_empty(), kind) {
        (false, false, _) => Err("validating webhook may not return response.patch".to_owned()),
        (false, true, Some(_)) => Err("validating webhook may not return response.patchType".to_owned()),
        (true, false, None) => Err("webhook returned response.patch but not response.patchType".to_owned()),
        (true, true, Some(_)) => Err("webhook returned response.patchType but not response.patch".to_owned()),
        (true, false, Some("")) => Err("webhook returned invalid response.patchType of \"\"".to_owned()),
        (true, false, Some(kind)) => Ok(Some(WebhookPatch { bytes, kind: kind.to_owned() })),
        (_, true, None) => Ok(None),
    }
}

/// Reads bytes as Go's decoder does: from base64, or from a list of numbers. Their types have been checked.
fn bytes_of(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => STANDARD.decode(&*without_line_breaks(text)).unwrap_or_default(),
        Value::Array(items) => {
            let byte = |item: &Value| item.as_u64().and_then(|byte| u8::try_from(byte).ok());
            items.iter().map(|item| byte(item).unwrap_or_default()).collect()
        }
        _ => Vec::new(),
    }
}

impl WebhookPatch {
    /// Returns the operations of the patch; `None` if there are none. An error describes what is unusable about it.
    pub(crate) fn operations(&self) -> Result<Option<Value>, String> {
        let patch = serde_json::from_slice(&self.bytes)
            .map_err(|why| why.to_string())
            .and_then(|patch| patch::decodable(&patch).map(|()| patch))
            .map_err(|why| format!("received undecodable patch in webhook response: {why}"))?;
        if patch.as_array().is_none_or(Vec::is_empty) {
            return Ok(None);
        }
        if self.kind != JSON_PATCH {
            return Err(format!("unsupported patch type {:?}", self.kind));
        }
        Ok(Some(patch))
    }
}

/// Checks that an answer is an AdmissionReview of a version, with the errors of Go's decoder. If it is not, the call of the webhook
/// has failed.
pub(crate) fn undecodable(version: &str, answer: &Value) -> Result<(), String> {
    let expected = ExpectedReview { kind: "AdmissionReview", group: GROUP, version };
    expected.check(answer, &reviews::admission_review(version))
}

/// Returns the error of a refusing webhook.
fn refusal(webhook: &str, status: &Value) -> ApiError {
    let text = |key: &str| status[key].as_str().unwrap_or_default();
    let by = format!("admission webhook {webhook:?} denied the request");
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("{by} without explanation"),
        ("", reason) => format!("{by}: {reason}"),
        (message, _) => format!("{by}: {message}"),
    };
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    let code = code.filter(|code| (400..1000).contains(code)).unwrap_or(400);
    let details = status["details"].is_object().then(|| Box::new(details(&status["details"])));
    ApiError { details, ..ApiError::new(code, text("reason").to_owned(), message) }
}

/// Returns the details given by a webhook, with as many causes as a client could read.
fn details(given: &Value) -> Details {
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let causes = given["causes"].as_array().into_iter().flatten().take(MOST_CAUSES);
    let seconds = given["retryAfterSeconds"].as_u64().and_then(|seconds| u32::try_from(seconds).ok());
    Details {
        name: text(given, "name"),
        group: text(given, "group"),
        kind: text(given, "kind"),
        uid: text(given, "uid"),
        causes: causes
            .map(|cause| Cause {
                reason: text(cause, "reason"),
                message: text(cause, "message"),
                field: text(cause, "field"),
            })
            .collect(),
        retry_after_seconds: seconds.filter(|seconds| *seconds > 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_taken_at_their_word_and_no_further() {
        let answer = |response: Value| json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
        let decided = |answer: Value| decision(("h.example.com", "v1"), "u", &answer, true);
        assert_eq!(decided(answer(json!({"uid": "u", "allowed": true}))), Ok(Decision::default()));
        let patch = json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]);
        let encoded = STANDARD.encode(patch.to_string());
        assert_eq!(
            decided(answer(json!({
                "uid": "u", "allowed": true, "patchType": "JSONPatch", "patch": encoded, "warnings": ["w"],
            }))),
            Ok(Decision {
                refused: None,
                patch: Some(WebhookPatch { bytes: patch.to_string().into_bytes(), kind: "JSONPatch".into() }),
                warnings: vec!["w".into()],
            })
        );
        let refused = |status: Value| {
            let answer = answer(json!({"uid": "u", "allowed": false, "status": status}));
            let refused = decided(answer).ok().and_then(|decision| decision.refused);
            refused.map(|error| (error.code, error.reason, error.message))
        };
        for (status, code, reason, message) in [
            (
                json!(null),
                400,
                "",
                "admission webhook \"h.example.com\" denied the request without explanation",
            ),
            (
                json!({"code": 403, "reason": "Forbidden", "message": "no"}),
                403,
                "Forbidden",
                "admission webhook \"h.example.com\" denied the request: no",
            ),
            (
                json!({"code": 200, "message": "no"}),
                400,
                "",
                "admission webhook \"h.example.com\" denied the request: no",
            ),
        ] {
            assert_eq!(refused(status), Some((code, reason.into(), message.to_owned())));
        }
        for (answer, why) in [
            (json!({}), "webhook response was absent"),
            (
                json!({"response": {"uid": "u"}}),
                "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=",
            ),
            (answer(json!(null)), "webhook response was absent"),
            (answer(json!({"uid": "v", "allowed": true})), "expected response.uid=\"u\", got \"v\""),
            (
                answer(json!({"uid": "u", "allowed": true, "patch": "W10="})),
                "webhook returned response.patch but not response.patchType",
            ),
        ] {
            assert_eq!(decided(answer), Err(why.to_owned()));
        }
    }

    /// The messages are the same as those of kube-apiserver 1.36.2.
    #[test]
    fn answers_are_decoded_as_in_go() {
        let review = |change: &dyn Fn(&mut Value)| {
            let mut review = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
                "response": {"uid": "u", "allowed": true}});
            change(&mut review);
            review
        };
        let field = "json: cannot unmarshal string into Go struct field";
        let number = |found: &str| format!("json: cannot unmarshal {found} into Go struct field");
        let scheme = "in scheme \"k8s.io/apiserver/pkg/util/webhook/client.go:71\"";
        let table: [(&dyn Fn(&mut Value), String); 22] = [
            (&|_| {}, String::new()),
            (&|review| *review = json!({}), String::new()),
            (&|review| review["response"] = Value::Null, String::new()),
            (
                &|review| review["response"] = "x".into(),
                format!("{field} AdmissionReview.response of type v1.AdmissionResponse"),
            ),
            (
                &|review| review["request"] = "x".into(),
                format!("{field} AdmissionReview.request of type v1.AdmissionRequest"),
            ),
            (
                &|review| review["response"]["allowed"] = "true".into(),
                format!("{field} AdmissionResponse.response.allowed of type bool"),
            ),
            (&|review| review["response"]["allowed"] = Value::Null, String::new()),
            (
                &|review| review["response"]["uid"] = 5.into(),
                format!("{} AdmissionResponse.response.uid of type types.UID", number("number")),
            ),
            (
                &|review| review["response"]["warnings"] = "x".into(),
                format!("{field} AdmissionResponse.response.warnings of type []string"),
            ),
            (
                &|review| review["response"]["warnings"] = json!([1]),
                format!("{} AdmissionResponse.response.warnings of type string", number("number")),
            ),
            (
                &|review| review["response"]["status"] = "no".into(),
                format!("{field} AdmissionResponse.response.status of type v1.Status"),
            ),
            (
                &|review| review["response"]["status"] = json!({"code": "403"}),
                format!("{field} Status.response.status.code of type int32"),
            ),
            (
                &|review| review["response"]["status"] = json!({"code": 99_999_999_999_i64}),
                format!("{} Status.response.status.code of type int32", number("number 99999999999")),
            ),
            (
                &|review| review["response"]["status"] = json!({"details": {"causes": "x"}}),
                format!("{field} StatusDetails.response.status.details.causes of type []v1.StatusCause"),
            ),
            (
                &|review| review["response"]["auditAnnotations"] = json!({"k": 5}),
                format!("{} AdmissionResponse.response.auditAnnotations of type string", number("number")),
            ),
            (
                &|review| review["response"]["patchType"] = 5.into(),
                format!("{} AdmissionResponse.response.patchType of type v1.PatchType", number("number")),
            ),
            (
                &|review| review["response"]["patch"] = json!({}),
                format!("{} AdmissionResponse.response.patch of type []uint8", number("object")),
            ),
            (
                &|review| review["response"]["patch"] = "!!".into(),
                "illegal base64 data at input byte 0".to_owned(),
            ),
            (
                &|review| review["apiVersion"] = "admission.k8s.io/v1beta1".into(),
                "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion".to_owned(),
            ),
            (
                &|review| *review = json!({"kind": "Status", "apiVersion": "v1"}),
                "converting (v1.Status) to (v1.AdmissionReview): unknown conversion".to_owned(),
            ),
            (
                &|review| review["kind"] = "Other".into(),
                format!("no kind \"Other\" is registered for version \"admission.k8s.io/v1\" {scheme}"),
            ),
            (
                &|review| review["apiVersion"] = "a/b/c".into(),
                "unexpected GroupVersion string: a/b/c".to_owned(),
            ),
        ];
        for (change, wanted) in table {
            let answer = review(change);
            assert_eq!(undecodable("v1", &answer).err().unwrap_or_default(), wanted, "{answer}");
        }
    }

    #[test]
    fn patches_are_decoded_as_in_go() {
        let table = [
            ("[]", "JSONPatch", Ok(false)),
            ("[]", "MergePatch", Ok(false)),
            ("null", "JSONPatch", Ok(false)),
            ("[null]", "JSONPatch", Ok(true)),
            ("[{}]", "MergePatch", Err("unsupported patch type \"MergePatch\"")),
            (
                "{}",
                "JSONPatch",
                Err(
                    "received undecodable patch in webhook response: json: cannot unmarshal object into Go value of \
                     type jsonpatch.Patch",
                ),
            ),
            (
                "[\"x\"]",
                "JSONPatch",
                Err(
                    "received undecodable patch in webhook response: json: cannot unmarshal string into Patch.0 of \
                     type jsonpatch.Operation",
                ),
            ),
        ];
        for (text, kind, wanted) in table {
            let patch = WebhookPatch { bytes: text.into(), kind: kind.into() };
            let found = patch.operations().map(|operations| operations.is_some());
            assert_eq!(found, wanted.map_err(str::to_owned), "{text} {kind}");
        }
        let bytes = |patch: Value| bytes_of(&patch);
        assert_eq!(
            (bytes(json!("W1\n0=")), bytes(json!([91, 93])), bytes(Value::Null)),
            (b"[]".into(), b"[]".into(), vec![])
        );
    }
}
