//! The `token` subresource of service accounts.

use std::sync::Arc;

use gc_registry::admission::configured::{Admission, BodyKind};
use gc_registry::api::{Object, RequestTarget, Response, ResponseBody, WriteOptions};
use gc_registry::error::{ApiError, Cause, CauseReason, FieldError};
use gc_registry::object::TypeMeta;
use gc_registry::patch::managed_fields::{self, ManagerRequest};
use gc_registry::schema::{self, Empties, Schema};
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};

use crate::auth::authentication::get;
use crate::auth::tokens::{Claims, KubernetesClaims, Reference};
use crate::deadline::Caller;
use crate::encode::negotiate::Purpose;
use crate::exchange::answers::write_answer;
use crate::exchange::{Answer, ApiRequest};
use crate::state::State;
use crate::work::{self, Weight};

const GROUP: &str = "authentication.k8s.io";
/// Minimum lifetime that may be requested, in seconds.
const MINIMUM_SECONDS: i64 = 600;
/// Maximum lifetime (upstream's bound on the field), in seconds.
const MAXIMUM_SECONDS: i64 = 1 << 32;
/// Default lifetime, in seconds.
const DEFAULT_SECONDS: i64 = 3600;

/// Issues a token.
pub(crate) async fn answer(
    state: &Arc<State>,
    request: &mut ApiRequest,
    target: &RequestTarget,
) -> Result<Answer, ApiError> {
    let representation = request.representation(Purpose::Review)?;
    let options = request.query.write_options("CreateOptions")?;
    let manager =
        if options.field_manager.is_empty() { request.manager() } else { options.field_manager.clone() };
    let caller = Caller { manager, ..request.caller() };
    let wanted = TokenRequest { target: target.clone(), caller, options };
    let content_type = request.header(&CONTENT_TYPE).map(str::to_owned);
    let bytes = request.read_body(&state.work.bodies).await?;
    let body = work::decode_object(bytes, content_type, "TokenRequest").await?.value;
    let (review, warnings) = state.perform(Weight::Write, move |state| issue(state, body, &wanted)).await?;
    let type_meta = TypeMeta { api_version: "authentication.k8s.io/v1".into(), kind: "TokenRequest".into() };
    let object = Arc::new(Object::from_value(Arc::new(type_meta), review));
    let response = Response { code: 201, body: ResponseBody::Object(object), warnings };
    write_answer(request, &target.resource, representation, response, &state.list_lengths)
}

/// Subject and requester of a token.
struct TokenRequest {
    target: RequestTarget,
    caller: Caller,
    options: WriteOptions,
}

/// Returns the token and warnings.
fn issue(state: &State, mut body: Value, wanted: &TokenRequest) -> Result<(Value, Vec<String>), ApiError> {
    let (namespace, name) = (wanted.target.namespace.as_str(), wanted.target.name.as_str());
    let account = get(state, "", "serviceaccounts", namespace, name)?
        .ok_or_else(|| ApiError::not_found("", "serviceaccounts", name))?;
    refuse_terminating(state, namespace, name)?;
    let known = schema::builtin(GROUP, "v1", "TokenRequest").unwrap_or_default();
    schema::check_types(&known, &body).map_err(|why| {
        let what = "TokenRequest in version \"v1\" cannot be handled as a TokenRequest";
        ApiError::bad_request(format!("{what}: {why}"))
    })?;
    schema::normalize(&known, &mut body, Empties::Kept);
    body["spec"]["expirationSeconds"] =
        body["spec"]["expirationSeconds"].as_i64().unwrap_or(DEFAULT_SECONDS).into();
    let given = body.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    if !given.is_empty() && given != name {
        let detail = format!("Invalid value: {given:?}: must match the service account name if specified");
        let error = FieldError { field: "metadata.name".into(), reason: CauseReason::Invalid, detail };
        return Err(ApiError::invalid(GROUP, "TokenRequest", name, &[error]));
    }
    set_manager(&mut body, &known, &wanted.caller.manager);
    let spec = body["spec"].clone();
    let seconds = spec["expirationSeconds"].as_i64().unwrap_or(DEFAULT_SECONDS);
    if !(MINIMUM_SECONDS..=MAXIMUM_SECONDS).contains(&seconds) {
        let why = if seconds < MINIMUM_SECONDS {
            "may not specify a duration less than 10 minutes"
        } else {
            "may not specify a duration larger than 2^32 seconds"
        };
        return Err(ApiError::invalid(
            "authentication.k8s.io",
            "TokenRequest",
            "",
            &[FieldError {
                field: "spec.expirationSeconds".into(),
                reason: CauseReason::Invalid,
                detail: format!("Invalid value: {seconds}: {why}"),
            }],
        ));
    }
    let warnings = admit(state, &mut body, wanted)?;
    let spec = body["spec"].clone();
    let seconds =
        state.access.signer.life_seconds(spec["expirationSeconds"].as_i64().unwrap_or(DEFAULT_SECONDS));
    let mut audiences: Vec<String> = spec
        .get("audiences")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect();
    if audiences.is_empty() {
        audiences.extend_from_slice(state.access.signer.audiences());
    }
    let mut bound = KubernetesClaims {
        namespace: namespace.into(),
        serviceaccount: reference(&account),
        ..KubernetesClaims::default()
    };
    if let Some(reference) = spec.get("boundObjectRef").filter(|value| !value.is_null()) {
        bind(state, namespace, name, reference, &mut bound)?;
    }
    let now = jiff::Timestamp::now();
    let expires = now.as_second().saturating_add(seconds);
    let claims = Claims {
        aud: audiences.clone(),
        exp: expires,
        iat: now.as_second(),
        iss: state.access.signer.issuer().to_owned(),
        jti: state.uuid(),
        kubernetes: bound,
        nbf: now.as_second(),
        sub: format!("system:serviceaccount:{namespace}:{name}"),
    };
    // A dry run issues no usable token.
    let token = if wanted.options.dry_run {
        String::new()
    } else {
        state.access.signer.sign(&claims).map_err(ApiError::internal)?
    };
    let stamp = jiff::Timestamp::from_second(expires).map_err(ApiError::internal)?;
    body["kind"] = "TokenRequest".into();
    body["apiVersion"] = "authentication.k8s.io/v1".into();
    let metadata = body["metadata"].as_object().cloned().unwrap_or_default();
    body["metadata"] = Value::Object(metadata);
    body["metadata"]["name"] = name.into();
    body["metadata"]["namespace"] = namespace.into();
    body["metadata"]["creationTimestamp"] = second(now).into();
    body["metadata"]["uid"] = state.uuid().into();
    body["spec"] = spec;
    body["spec"]["audiences"] = json!(audiences);
    body["spec"]["expirationSeconds"] = seconds.into();
    body["status"] = json!({"token": token, "expirationTimestamp": second(stamp)});
    Ok((body, warnings))
}

/// Runs admission on the request, which may change it.
fn admit(state: &State, body: &mut Value, wanted: &TokenRequest) -> Result<Vec<String>, ApiError> {
    const KIND: BodyKind = BodyKind { group: GROUP, version: "v1", kind: "TokenRequest" };
    body["kind"] = KIND.kind.into();
    body["apiVersion"] = "authentication.k8s.io/v1".into();
    let admission = (Admission::Create(&wanted.options), Some(KIND));
    state.with_context(&wanted.caller, |registry, context| {
        registry.admit(&wanted.target, body, admission, context)
    })
}

/// Sets the field manager: all fields of a request belong to its writer.
fn set_manager(body: &mut Value, known: &Schema, manager: &str) {
    let request = ManagerRequest {
        manager,
        api_version: "authentication.k8s.io/v1",
        kind: "TokenRequest",
        subresource: "token",
        now: jiff::Timestamp::now(),
        schema: Some(known),
        reset: &[],
    };
    managed_fields::update(None, body, &request);
}

/// Formats a time as Kubernetes does, in whole seconds.
fn second(time: jiff::Timestamp) -> String {
    jiff::Timestamp::from_second(time.as_second()).map(|time| time.to_string()).unwrap_or_default()
}

fn reference(object: &Value) -> Reference {
    let meta = |name: &str| {
        object.pointer(&format!("/metadata/{name}")).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    Reference { name: meta("name"), uid: meta("uid") }
}

/// Implements the admission plugin NamespaceLifecycle: nothing, including tokens, is created in a terminating namespace.
fn refuse_terminating(state: &State, namespace: &str, account: &str) -> Result<(), ApiError> {
    let object = get(state, "", "namespaces", "", namespace)?
        .ok_or_else(|| ApiError::not_found("", "namespaces", namespace))?;
    if object.pointer("/status/phase").and_then(Value::as_str) != Some("Terminating") {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut error = ApiError::forbidden("", "serviceaccounts", account, &why);
    if let Some(details) = &mut error.details {
        details.causes = vec![Cause {
            reason: "NamespaceTerminating".into(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".into(),
        }];
    }
    Err(error)
}

fn bind(
    state: &State,
    namespace: &str,
    account: &str,
    wanted: &Value,
    bound: &mut KubernetesClaims,
) -> Result<(), ApiError> {
    let text = |name: &str| wanted.get(name).and_then(Value::as_str).unwrap_or_default();
    let (resource, scope) = match text("kind") {
        "Pod" => ("pods", namespace),
        "Secret" => ("secrets", namespace),
        "Node" => ("nodes", ""),
        other => {
            let version = text("apiVersion");
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            let why = format!("cannot bind token to object of type {group}/{version}, Kind={other}");
            return Err(ApiError::bad_request(why));
        }
    };
    let name = text("name");
    if name.is_empty() {
        return Err(ApiError::bad_request("Name parameter required."));
    }
    let object =
        get(state, "", resource, scope, name)?.ok_or_else(|| ApiError::not_found("", resource, name))?;
    let found = reference(&object);
    let uid = text("uid");
    if !uid.is_empty() && uid != found.uid {
        return Err(ApiError::conflict(
            "",
            text("kind"),
            name,
            &format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            ),
        ));
    }
    match resource {
        "pods" => {
            let runs_as =
                object.pointer("/spec/serviceAccountName").and_then(Value::as_str).unwrap_or_default();
            if runs_as != account {
                return Err(ApiError::bad_request(format!(
                    "cannot bind token for serviceaccount \"{account}\" to pod running with different serviceaccount name."
                )));
            }
            if let Some(node) = object.pointer("/spec/nodeName").and_then(Value::as_str) {
                bound.node = get(state, "", "nodes", "", node)?.map(|node| reference(&node));
            }
            bound.pod = Some(found);
        }
        "secrets" => bound.secret = Some(found),
        _ => bound.node = Some(found),
    }
    Ok(())
}
