//! ValidatingAdmissionPolicy: expressions that refuse or warn.

use serde_json::{Map, Value, json};

use super::expressions::{Asker, Conditional, Evaluation, Values};
use super::{Attributes, Configured};
use crate::error::{ApiError, Cause};
use crate::registry::call::Call;
use crate::storage::RangeOptions;
use crate::{kinds, persist};

/// Maximum number of parameter objects of a binding.
const MOST_PARAMS: usize = 1_000;

/// Denial by a policy.
struct DeniedRequest {
    message: String,
    reason: &'static str,
    /// True if the parameters were not found, which refuses the request whatever the actions of its binding are.
    is_misconfigured: bool,
}

/// Runs all policies on a request: the first denial refuses it, and any policy may warn.
pub(crate) fn validate(
    call: &Call<'_>,
    configured: &Configured,
    attributes: &Attributes,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let mut refused = Ok(());
    for policy in &configured.validating_policies {
        let name = policy["metadata"]["name"].as_str().unwrap_or_default();
        for binding in &configured.validating_bindings {
            if binding["spec"]["policyName"] != name {
                continue;
            }
            let binding_name = binding["metadata"]["name"].as_str().unwrap_or_default();
            let denials = judge(call, policy, binding, attributes, new, old);
            let actions =
                binding["spec"]["validationActions"].as_array().map(Vec::as_slice).unwrap_or_default();
            for denied in denials {
                if !denied.is_misconfigured && actions.iter().any(|action| *action == "Warn") {
                    call.note(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{binding_name}': {}",
                        denied.message
                    ));
                }
                let denies = actions.is_empty() || actions.iter().any(|action| *action == "Deny");
                if denied.is_misconfigured || denies {
                    let message = format!(
                        "ValidatingAdmissionPolicy '{name}' with binding '{binding_name}' denied request: {}",
                        denied.message
                    );
                    refused = refused.and_then(|()| Err(refusal(call, attributes, &message, denied.reason)));
                }
            }
        }
    }
    refused
}

pub(super) fn refusal(
    call: &Call<'_>,
    attributes: &Attributes,
    message: &str,
    reason: &'static str,
) -> ApiError {
    let name = if attributes.name.is_empty() { "Unknown" } else { &attributes.name };
    let mut error = call.forbidden(name, message);
    error.reason = reason.into();
    error.code = match reason {
        "Unauthorized" => 401,
        "Forbidden" => 403,
        "RequestEntityTooLarge" => 413,
        _ => 422,
    };
    if let Some(details) = &mut error.details {
        details.causes.push(Cause {
            reason: String::new(),
            message: message.to_owned(),
            field: String::new(),
        });
    }
    error
}

fn judge(
    call: &Call<'_>,
    policy: &Value,
    binding: &Value,
    attributes: &Attributes,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Vec<DeniedRequest> {
    let spec = &policy["spec"];
    let Some(form) = attributes.matches_resources(&spec["matchConstraints"]) else { return Vec::new() };
    if attributes.matches_resources(&binding["spec"]["matchResources"]).is_none() {
        return Vec::new();
    }
    let fails = spec["failurePolicy"] != "Ignore";
    let failed = |message: String, is_misconfigured: bool| {
        let denied = fails.then_some(DeniedRequest { message, reason: "Invalid", is_misconfigured });
        denied.into_iter().collect::<Vec<_>>()
    };
    let params = match params(call, spec, &binding["spec"], attributes) {
        Ok(params) => params,
        Err(why) => return failed(why, true),
    };
    let converted = |object: Option<&Value>| {
        object.map_or(Ok(Value::Null), |object| attributes.converted(call, &form, object))
    };
    let (object, old_object) = match converted(new).and_then(|new| Ok((new, converted(old)?))) {
        Ok(objects) => objects,
        Err(error) => return failed(format!("failed to convert object version: {}", error.message), true),
    };
    let request = attributes.request(&form);
    let namespace = namespace_object(attributes);
    let asker = Asker::new(call, attributes);
    let mut denials = Vec::new();
    for params in &params {
        let values = Values {
            object: &object,
            old_object: &old_object,
            request: &request,
            namespace: &namespace,
            params,
            asker: &asker,
        };
        let mut evaluation = Evaluation::new(&values);
        match Conditional::policy(policy).holds(call, attributes, &mut evaluation) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(why) => {
                denials.extend(failed(why, false));
                continue;
            }
        }
        evaluation.define(&spec["variables"]);
        denials.extend(validations(&mut evaluation, spec, fails));
    }
    denials
}

fn validations(evaluation: &mut Evaluation<'_>, spec: &Value, fails: bool) -> Vec<DeniedRequest> {
    let mut denials = Vec::new();
    for validation in spec["validations"].as_array().into_iter().flatten() {
        let text = |key: &str| validation[key].as_str().map(str::trim).filter(|text| !text.is_empty());
        let expression = text("expression").unwrap_or_default();
        match evaluation.holds(expression) {
            Ok(false) => {
                let made = text("messageExpression").and_then(|text| evaluation.message(text));
                let message = made.or_else(|| text("message").map(str::to_owned));
                denials.push(DeniedRequest {
                    message: message.unwrap_or_else(|| format!("failed expression: {expression}")),
                    reason: reason(validation["reason"].as_str()),
                    is_misconfigured: false,
                });
            }
            Err(why) if fails => denials.push(DeniedRequest {
                message: format!("expression '{expression}' resulted in error: {why}"),
                reason: "Invalid",
                is_misconfigured: false,
            }),
            Ok(true) | Err(_) => {}
        }
    }
    denials
}

fn reason(given: Option<&str>) -> &'static str {
    match given {
        Some("Unauthorized") => "Unauthorized",
        Some("Forbidden") => "Forbidden",
        Some("RequestEntityTooLarge") => "RequestEntityTooLarge",
        _ => "Invalid",
    }
}

/// The members of a namespace's metadata that expressions see.
const NAMESPACE_METADATA: [&str; 12] = [
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "name",
    "namespace",
    "resourceVersion",
    "uid",
];

/// The namespace of a request as expressions see it; null for what is in none, which a namespace itself counts as.
pub(crate) fn namespace_object(attributes: &Attributes) -> Value {
    let stored = attributes.namespace_object.as_ref().filter(|_| !attributes.resource.is("", "namespaces"));
    let Some(stored) = stored else { return Value::Null };
    let metadata = stored["metadata"].as_object().into_iter().flatten();
    let metadata = metadata.filter(|(name, _)| NAMESPACE_METADATA.contains(&name.as_str()));
    let metadata: Map<String, Value> = metadata.map(|(name, value)| (name.clone(), value.clone())).collect();
    json!({"metadata": metadata, "spec": stored["spec"], "status": stored["status"]})
}

/// Returns the parameters of a policy: the objects that its binding names, or a single `None` if the policy takes none.
pub(crate) fn params(
    call: &Call<'_>,
    policy: &Value,
    binding: &Value,
    attributes: &Attributes,
) -> Result<Vec<Value>, String> {
    let kind = &policy["paramKind"];
    if kind.is_null() {
        return Ok(vec![Value::Null]);
    }
    let reference = &binding["paramRef"];
    if reference.is_null() {
        return Ok(vec![Value::Null]);
    }
    let version = kind["apiVersion"].as_str().unwrap_or_default();
    let (group, short) = version.split_once('/').unwrap_or(("", version));
    let kind = kind["kind"].as_str().unwrap_or_default();
    let catalog = call.registry.catalog();
    let found = catalog.by_kind(group, short, kind).next().cloned();
    let Some(resource) = found else {
        return Err(format!(
            "failed to configure policy: failed to find resource referenced by paramKind: '{version}, Kind={kind}'"
        ));
    };
    let namespace = match (resource.namespaced(), reference["namespace"].as_str().unwrap_or_default()) {
        (false, _) => "",
        (true, "") if attributes.namespace.is_empty() => {
            return Err(
                "failed to configure binding: cannot use namespaced paramRef in policy binding that matches \
                        cluster-scoped resources"
                    .to_owned(),
            );
        }
        (true, "") => &attributes.namespace,
        (true, named) => named,
    };
    let name = reference["name"].as_str().unwrap_or_default();
    let decoded = |item| {
        let decoded = call.registry.converter.decode(&resource, &item, call.context.time_left);
        decoded.map_err(|error| error.message)
    };
    let mut params = Vec::new();
    if name.is_empty() {
        let prefix = persist::collection_prefix(&resource, namespace);
        let options = RangeOptions { limit: MOST_PARAMS + 1, ..RangeOptions::default() };
        let found = call.registry.storage.range(&prefix, &options).map_err(|error| error.to_string())?;
        if found.items.len() > MOST_PARAMS {
            return Err(format!("failed to configure binding: more than {MOST_PARAMS} parameters"));
        }
        for item in found.items {
            let object = decoded(item)?;
            let labels = object.pointer("/metadata/labels").unwrap_or(&Value::Null);
            let selector = &reference["selector"];
            if kinds::selects_everything(selector) || kinds::selects(selector, labels) {
                params.push(object);
            }
        }
    } else {
        let key = persist::object_key(&resource, namespace, name);
        let item = call.read(&key).map_err(|error| error.message)?;
        params.extend(item.map(decoded).transpose()?);
    }
    if params.is_empty() && reference["parameterNotFoundAction"] != "Allow" {
        return Err("failed to configure binding: no params found for policy binding with `Deny` \
                    parameterNotFoundAction"
            .to_owned());
    }
    Ok(params)
}
