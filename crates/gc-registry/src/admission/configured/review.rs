//! AdmissionReview: what webhooks are asked, and what their answers say.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Attributes;
use super::attributes::Form;
use crate::error::{ApiError, Cause, Details};

/// Maximum number of causes of a refusal that are passed on.
const MOST_CAUSES: usize = 1_000;

/// Decision of a webhook.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Decision {
    /// Why it refuses, if it does.
    pub(crate) refused: Option<ApiError>,
    /// The JSON patch that it wants.
    pub(crate) patch: Option<Value>,
    pub(crate) warnings: Vec<String>,
}

/// The review that asks about a request, with the new and the old object in the version that the webhook asked for.
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
        "apiVersion": format!("admission.k8s.io/{version}"),
        "request": request,
    })
}

/// Reads the decision from an answer; an error if it does not answer the review.
pub(crate) fn decision(
    (webhook, version): (&str, &str),
    uid: &str,
    answer: &Value,
    mutates: bool,
) -> Result<Decision, String> {
    let is_v1 = version == "v1";
    let expected = format!("admission.k8s.io/{version}");
    let (kind, given) =
        (answer["kind"].as_str().unwrap_or_default(), answer["apiVersion"].as_str().unwrap_or_default());
    if kind != "AdmissionReview" || given != expected {
        return Err(format!(
            "expected webhook response of {expected}, Kind=AdmissionReview, got {given}, Kind={kind}"
        ));
    }
    let response = &answer["response"];
    if !response.is_object() {
        return Err("webhook response was absent".to_owned());
    }
    // The first version did not repeat the UID of the question.
    if is_v1 && response["uid"] != uid {
        return Err(format!(
            "expected response.uid={uid:?}, got {:?}",
            response["uid"].as_str().unwrap_or_default()
        ));
    }
    let warnings = response["warnings"].as_array().into_iter().flatten();
    let warnings = warnings.filter_map(Value::as_str).map(str::to_owned).collect();
    if response["allowed"] != true {
        return Ok(Decision { refused: Some(refusal(webhook, &response["status"])), patch: None, warnings });
    }
    let patch = match response["patch"].as_str().filter(|text| !text.is_empty()) {
        Some(_) if !mutates && is_v1 => {
            return Err("validating webhook may not return response.patch".to_owned());
        }
        Some(_) if !mutates => None,
        None if !mutates && is_v1 && !response["patchType"].is_null() => {
            return Err("validating webhook may not return response.patchType".to_owned());
        }
        None if is_v1 && !response["patchType"].is_null() => {
            return Err("webhook returned response.patchType but not response.patch".to_owned());
        }
        None => None,
        Some(_) if is_v1 && response["patchType"].is_null() => {
            return Err("webhook returned response.patch but not response.patchType".to_owned());
        }
        Some(_) if is_v1 && response["patchType"] != "JSONPatch" => {
            return Err(format!("unsupported patch type {}", response["patchType"]));
        }
        Some(text) => {
            let bytes = STANDARD.decode(text).map_err(|why| format!("response.patch is no base64: {why}"))?;
            Some(serde_json::from_slice(&bytes).map_err(|why| format!("response.patch is no JSON: {why}"))?)
        }
    };
    Ok(Decision { refused: None, patch, warnings })
}

/// The error that a refusing webhook makes.
fn refusal(webhook: &str, status: &Value) -> ApiError {
    let text = |key: &str| status[key].as_str().unwrap_or_default();
    let by = format!("admission webhook {webhook:?} denied the request");
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("{by} without explanation"),
        ("", reason) => format!("{by}: {reason}"),
        (message, _) => format!("{by}: {message}"),
    };
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    let code = code.filter(|code| (400..600).contains(code)).unwrap_or(400);
    let details = status["details"].is_object().then(|| Box::new(details(&status["details"])));
    ApiError { details, ..ApiError::new(code, text("reason").to_owned(), message) }
}

/// The details that a webhook gives, up to as many causes as a client could read.
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
            Ok(Decision { refused: None, patch: Some(patch), warnings: vec!["w".into()] })
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
            (
                json!({}),
                "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got , Kind=",
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
}
