//! MutatingAdmissionPolicy: expressions that change objects.

use gc_cel::Val;
use serde_json::{Value, json};

use super::expressions::{Asker, BUDGET, Conditional, Evaluation, Values};
use super::policies::{namespace_object, params, refusal};
use super::{Attributes, Configured};
use crate::error::ApiError;
use crate::patch;
use crate::registry::call::Call;

/// Lets all policies change an object, in order of their names.
pub(crate) fn mutate(
    call: &Call<'_>,
    configured: &Configured,
    attributes: &Attributes,
    new: &mut Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    for policy in &configured.mutating_policies {
        let name = policy["metadata"]["name"].as_str().unwrap_or_default();
        for binding in &configured.mutating_bindings {
            if binding["spec"]["policyName"] != name {
                continue;
            }
            let before = new.clone();
            if let Err(why) = apply(call, policy, binding, attributes, new, old) {
                *new = before;
                if policy["spec"]["failurePolicy"] == "Ignore" {
                    continue;
                }
                let binding = binding["metadata"]["name"].as_str().unwrap_or_default();
                return Err(failed(
                    call,
                    attributes,
                    &format!("policy '{name}' with binding '{binding}' denied request: {why}"),
                ));
            }
        }
    }
    Ok(())
}

/// Returns the refusal of a request that a policy failed to change: its code means forbidden, its reason invalid, and its message
/// is only the policy's.
fn failed(call: &Call<'_>, attributes: &Attributes, message: &str) -> ApiError {
    ApiError { code: 403, message: message.to_owned(), ..refusal(call, attributes, message, "Invalid") }
}

fn apply(
    call: &Call<'_>,
    policy: &Value,
    binding: &Value,
    attributes: &Attributes,
    new: &mut Value,
    old: Option<&Value>,
) -> Result<(), String> {
    let spec = &policy["spec"];
    let Some(form) = attributes.matches_resources(&spec["matchConstraints"]) else { return Ok(()) };
    if attributes.matches_resources(&binding["spec"]["matchResources"]).is_none() {
        return Ok(());
    }
    let unconverted = |error: ApiError| format!("failed to convert object version: {}", error.message);
    let old = old.map(|old| attributes.converted(call, &form, old)).transpose().map_err(unconverted)?;
    let mut changed = attributes.converted(call, &form, new).map_err(unconverted)?;
    let request = attributes.request(&form);
    let namespace = namespace_object(attributes);
    let asker = Asker::new(call, attributes);
    let nothing = Value::Null;
    let mut left = BUDGET;
    for params in &params(call, spec, &binding["spec"], attributes)? {
        for mutation in spec["mutations"].as_array().into_iter().flatten() {
            let object = changed.clone();
            let values = Values {
                object: &object,
                old_object: old.as_ref().unwrap_or(&nothing),
                request: &request,
                namespace: &namespace,
                params,
                asker: &asker,
            };
            let mut evaluation = Evaluation::with_budget(&values, left);
            if !Conditional::policy(policy).holds(call, attributes, &mut evaluation)? {
                break;
            }
            evaluation.define(&spec["variables"]);
            let text = |form: &str| mutation[form]["expression"].as_str().unwrap_or_default();
            let text =
                text(if mutation["patchType"] == "JSONPatch" { "jsonPatch" } else { "applyConfiguration" });
            let found = evaluation.value(text).map_err(|why| failed_expression(text, &why));
            left = evaluation.left();
            let found = to_json(&found?)?;
            if mutation["patchType"] == "JSONPatch" {
                let applied = patch::json_patch_of_policy(&mut changed, &found);
                if !applied.map_err(|why| format!("JSON Patch: {why}"))? {
                    changed.clone_from(&object);
                }
            } else {
                let schema = attributes.schema(call, &form);
                changed =
                    patch::managed_fields::merge(&schema, &changed, &found).map_err(|error| error.message)?;
            }
        }
    }
    *new = attributes.converted_back(call, &form, changed).map_err(unconverted)?;
    Ok(())
}

fn failed_expression(text: &str, why: &str) -> String {
    format!("expression '{}' resulted in error: {why}", text.trim())
}

/// Maximum nesting of an expression's result.
const DEEPEST: usize = 100;

/// Converts the value of an expression to JSON.
fn to_json(value: &Val<'_>) -> Result<Value, String> {
    json_of(value, DEEPEST)
}

fn json_of(value: &Val<'_>, levels: usize) -> Result<Value, String> {
    let Some(inner) = levels.checked_sub(1) else { return Err("nested too deeply".to_owned()) };
    Ok(match value {
        Val::Null | Val::Optional(None) => Value::Null,
        Val::Bool(value) => (*value).into(),
        Val::Int(value) => (*value).into(),
        Val::Uint(value) => (*value).into(),
        Val::Double(value) => json!(value),
        Val::Json(value, _) => (*value).clone(),
        Val::List(items) => items.iter().map(|item| json_of(item, inner)).collect::<Result<_, _>>()?,
        Val::Map(entries) => {
            let mut map = serde_json::Map::new();
            for (key, value) in entries.iter() {
                map.insert(gc_cel::printed(key), json_of(value, inner)?);
            }
            map.into()
        }
        Val::Optional(Some(value)) => json_of(value, inner)?,
        other => gc_cel::printed(other).into(),
    })
}
