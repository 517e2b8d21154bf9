//! Reviews: questions about identity and permissions, which are answered but not stored.

use std::collections::BTreeSet;
use std::sync::Arc;

use gc_registry::admission::configured::Admission;
use gc_registry::api::{
    Attributes, FieldValidation, Object, RequestTarget, Response, ResponseBody, UserInfo,
};
use gc_registry::error::ApiError;
use gc_registry::kinds;
use gc_registry::object::TypeMeta;
use gc_registry::resource::ResourceDefinition;
use gc_registry::schema::{self, Empties};
use http::header::CONTENT_TYPE;
use serde_json::{Map, Value, json};

use crate::auth::authentication;
use crate::auth::rbac::{Question, Rule};
use crate::encode::negotiate::Purpose;
use crate::exchange::answers::write_answer;
use crate::exchange::{Answer, ApiRequest};
use crate::state::State;
use crate::work::{self, Weight};

const GROUPS: [&str; 2] = ["authorization.k8s.io", "authentication.k8s.io"];

/// Reports whether a resource is a review.
pub(crate) fn is_review(definition: &ResourceDefinition) -> bool {
    GROUPS.contains(&&*definition.group)
}

/// Answers a review.
pub(crate) async fn answer(
    state: &Arc<State>,
    request: &mut ApiRequest,
    target: &RequestTarget,
) -> Result<Answer, ApiError> {
    let definition = &*target.resource;
    let representation = request.representation(Purpose::Review)?;
    let content_type = request.header(&CONTENT_TYPE).map(str::to_owned);
    let bytes = request.read_body(&state.work.bodies).await?;
    let body = work::decode_object(bytes, content_type, &definition.kind).await?;
    let mut review = body.value;
    expect_kind(&review, definition)?;
    let schema =
        schema::builtin(&definition.group, &definition.version, &definition.kind).unwrap_or_default();
    schema::check_types(&schema, &review).map_err(|why| {
        let (kind, version) = (&definition.kind, &definition.version);
        ApiError::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"))
    })?;
    let problems = schema::strict_problems(&schema, &review, &body.duplicates, &body.text);
    let problems = strictness(request, problems, definition)?;
    schema::normalize(&schema, &mut review, Empties::Kept);
    let given = review.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
    if !target.namespace.is_empty() && !given.is_empty() && given != target.namespace {
        let why = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(ApiError { warnings: problems, ..ApiError::bad_request(why) });
    }
    complete_metadata(&mut review, &target.namespace);
    if definition.kind.ends_with("AccessReview") {
        let errors = kinds::review_errors(&definition.kind, &target.namespace, &review);
        if !errors.is_empty() {
            let error = ApiError::invalid("authorization.k8s.io", "", "", &errors);
            return Err(ApiError { warnings: problems, ..error });
        }
    }
    let (mut review, warnings) = admitted(state, request, target, review).await?;
    let problems = [problems, warnings].concat();
    let spec = review.get("spec").cloned().unwrap_or_else(|| json!({}));
    let status = match &*definition.kind {
        "SelfSubjectAccessReview" => access(state, &request.user, &spec),
        "SubjectAccessReview" | "LocalSubjectAccessReview" => access(state, &subject(&spec), &spec),
        "SelfSubjectRulesReview" => {
            let namespace = text(&spec, "namespace");
            if namespace.is_empty() {
                return Err(ApiError {
                    warnings: problems,
                    ..ApiError::bad_request("no namespace on request")
                });
            }
            rules(&state.access.rbac.rules_for(&request.user, namespace))
        }
        "SelfSubjectReview" => json!({"userInfo": user_value(&request.user)}),
        "TokenReview" => token_review(state, &spec).await?,
        other => return Err(ApiError::internal(format!("no review of kind {other}"))),
    };
    let map = review.as_object_mut().ok_or_else(|| ApiError::bad_request("not an object"))?;
    map.insert("kind".into(), (*definition.kind).into());
    map.insert("apiVersion".into(), definition.api_version().into());
    map.entry("metadata").or_insert_with(|| json!({}));
    if definition.kind == "SelfSubjectRulesReview".into() {
        // The answer does not repeat the question.
        map.insert("spec".into(), json!({}));
        map.insert("metadata".into(), json!({}));
    }
    if definition.kind == "SelfSubjectReview".into() {
        // The server sets its metadata.
        let now = request.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        map.insert("metadata".into(), json!({"creationTimestamp": now}));
    }
    map.insert("status".into(), status);
    schema::normalize(&schema, &mut review, Empties::Kept);
    let type_meta =
        TypeMeta { api_version: definition.api_version().into(), kind: Arc::clone(&definition.kind) };
    let object = Arc::new(Object::from_value(Arc::new(type_meta), review));
    let response = Response { code: 201, body: ResponseBody::Object(object), warnings: problems };
    write_answer(request, &target.resource, representation, response, &state.list_lengths)
}

/// Drops metadata that only the server may set, and sets the namespace of the request.
fn complete_metadata(review: &mut Value, namespace: &str) {
    const SERVER_FIELDS: [&str; 5] =
        ["creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "selfLink", "uid"];
    if !review["metadata"].is_object() {
        review["metadata"] = json!({});
    }
    let Some(metadata) = review["metadata"].as_object_mut() else { return };
    metadata.retain(|name, _| !SERVER_FIELDS.contains(&&**name));
    if !namespace.is_empty() {
        metadata.insert("namespace".into(), namespace.into());
    }
}

/// Runs admission; returns the resulting review and the warnings.
async fn admitted(
    state: &Arc<State>,
    request: &ApiRequest,
    target: &RequestTarget,
    mut review: Value,
) -> Result<(Value, Vec<String>), ApiError> {
    review["kind"] = (*target.resource.kind).into();
    review["apiVersion"] = target.resource.api_version().into();
    if !state.registry.admits() {
        return Ok((review, Vec::new()));
    }
    let options = request.query.write_options("CreateOptions")?;
    let (caller, target) = (request.caller(), target.clone());
    state
        .perform(Weight::Write, move |state| {
            let admission = (Admission::Create(&options), None);
            let warnings = state.with_context(&caller, |registry, context| {
                registry.admit(&target, &mut review, admission, context)
            })?;
            Ok((review, warnings))
        })
        .await
}

/// Refuses, warns about or ignores unknown and duplicate fields.
fn strictness(
    request: &ApiRequest,
    problems: Vec<String>,
    definition: &ResourceDefinition,
) -> Result<Vec<String>, ApiError> {
    let validation = request.query.write_options("CreateOptions")?.validation();
    match validation {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Strict if !problems.is_empty() => {
            let (kind, version) = (&definition.kind, &definition.version);
            Err(ApiError::bad_request(format!(
                "{kind} in version \"{version}\" cannot be handled as a {kind}: strict decoding error: {}",
                problems.join(", ")
            )))
        }
        _ => Ok(problems),
    }
}

fn expect_kind(review: &Value, definition: &ResourceDefinition) -> Result<(), ApiError> {
    let kind = text(review, "kind");
    if !kind.is_empty() && kind != &*definition.kind {
        return Err(ApiError::bad_request(format!(
            "{kind} in version \"{}\" cannot be handled as a {}",
            definition.version, definition.kind
        )));
    }
    Ok(())
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn subject(spec: &Value) -> UserInfo {
    UserInfo {
        name: text(spec, "user").into(),
        uid: text(spec, "uid").into(),
        groups: texts(spec.get("groups")),
        extra: Vec::new(),
    }
}

fn texts(list: Option<&Value>) -> Vec<String> {
    list.and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

/// Answers a valid question about access.
fn access(state: &State, user: &UserInfo, spec: &Value) -> Value {
    let question = match (spec.get("resourceAttributes"), spec.get("nonResourceAttributes")) {
        (_, Some(wanted)) => Question::Path { verb: text(wanted, "verb"), path: text(wanted, "path") },
        (wanted, None) => {
            let of = |name: &str| wanted.map_or("", |wanted| text(wanted, name));
            Question::Resource(Attributes {
                verb: of("verb"),
                group: of("group"),
                version: of("version"),
                resource: of("resource"),
                subresource: of("subresource"),
                namespace: of("namespace"),
                name: of("name"),
            })
        }
    };
    let decision = state.access.rbac.decide(user, &question);
    let mut status = json!({"allowed": decision.allowed});
    if !decision.reason.is_empty() {
        status["reason"] = decision.reason.into();
    }
    if let Some(why) = kinds::ignored_selectors(spec) {
        status["evaluationError"] = why.into();
    }
    status
}

/// Converts rules to an answer, without duplicates.
fn rules(rules: &[Rule]) -> Value {
    let mut seen = BTreeSet::new();
    let rules: Vec<&Rule> = rules.iter().filter(|rule| seen.insert(*rule)).collect();
    let resource: Vec<Value> = rules
        .iter()
        .filter(|rule| !rule.resources.is_empty())
        .map(|rule| {
            let mut value =
                json!({"verbs": rule.verbs, "apiGroups": rule.groups, "resources": rule.resources});
            if !rule.names.is_empty() {
                value["resourceNames"] = json!(rule.names);
            }
            value
        })
        .collect();
    let paths: Vec<Value> = rules
        .iter()
        .filter(|rule| !rule.urls.is_empty())
        .map(|rule| json!({"verbs": rule.verbs, "nonResourceURLs": rule.urls}))
        .collect();
    json!({"resourceRules": resource, "nonResourceRules": paths, "incomplete": false})
}

fn user_value(user: &UserInfo) -> Value {
    let mut value = Map::new();
    value.insert("username".into(), user.name.clone().into());
    if !user.uid.is_empty() {
        value.insert("uid".into(), user.uid.clone().into());
    }
    value.insert("groups".into(), json!(user.groups));
    if !user.extra.is_empty() {
        let extra: Map<String, Value> =
            user.extra.iter().map(|(key, values)| (key.clone(), json!(values))).collect();
        value.insert("extra".into(), Value::Object(extra));
    }
    Value::Object(value)
}

async fn token_review(state: &Arc<State>, spec: &Value) -> Result<Value, ApiError> {
    let token = text(spec, "token");
    if token.is_empty() {
        return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
    }
    let wanted = texts(spec.get("audiences"));
    let audiences = if wanted.is_empty() { state.access.signer.audiences() } else { &wanted };
    Ok(match authentication::user_of_token(state, token, audiences).await? {
        Some((user, shared)) => {
            json!({"authenticated": true, "user": user_value(&user), "audiences": shared})
        }
        None => json!({"user": {}, "error": "invalid bearer token"}),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_review_says_of_itself_only_what_a_client_may_say() {
        let given = json!({"name": "a", "generation": 7, "uid": "x", "selfLink": "/x",
            "creationTimestamp": "2020-01-01T00:00:00Z", "deletionTimestamp": "2020-01-01T00:00:00Z"});
        for (metadata, namespace, wanted) in [
            (given, "", json!({"name": "a", "generation": 7})),
            (json!({"name": "a"}), "n", json!({"name": "a", "namespace": "n"})),
            (Value::Null, "", json!({})),
        ] {
            let mut review = json!({"metadata": metadata});
            complete_metadata(&mut review, namespace);
            assert_eq!(review, json!({"metadata": wanted}));
        }
    }
}
