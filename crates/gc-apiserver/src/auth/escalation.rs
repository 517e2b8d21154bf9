//! Nobody gives away permissions that he does not have: checked when roles and bindings are written.

use gc_registry::api::{Attributes, Operation, PatchType, RequestTarget, ResponseBody, UserInfo};
use gc_registry::error::ApiError;
use serde_json::Value;

use crate::auth::rbac::{self, Question, Rule};
use crate::state::State;

/// Refuses a write of a role or a binding that would give more than the writer has, unless he may
/// `escalate` (roles) or `bind` (bindings).
pub(crate) fn check(
    state: &State,
    user: &UserInfo,
    manager: &str,
    target: &RequestTarget,
    operation: &Operation,
) -> Result<(), ApiError> {
    let resource = &*target.resource.resource;
    if *target.resource.group != *rbac::GROUP || !rbac::RESOURCES.contains(&resource) || rbac::is_master(user)
    {
        return Ok(());
    }
    let written;
    let object = match operation {
        Operation::Create(body, _) | Operation::Update(body, _) => &body.value,
        Operation::Patch(patch_type, body, options) => {
            // What the patch leads to is seen by trying it.
            let mut dry = options.clone();
            dry.dry_run = true;
            let trial = Operation::Patch(*patch_type, body.clone(), dry);
            let answer = state
                .with_context(user, manager, |registry, context| registry.handle(target, trial, context))?;
            let ResponseBody::Object(object) = answer.body else { return Ok(()) };
            // A patch whose outcome depends on what it meets could lead elsewhere the second time.
            if *patch_type == PatchType::Json {
                refuse_conditional(body)?;
            }
            written = std::sync::Arc::clone(object.value()?);
            &*written
        }
        _ => return Ok(()),
    };
    let namespace = target.namespace.as_str();
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or(&target.name);
    let (verb, rules, about) = if resource.ends_with("roles") {
        ("escalate", rbac::rules_of(object), (resource, name))
    } else {
        let reference = |field: &str| {
            object.pointer(&format!("/roleRef/{field}")).and_then(Value::as_str).unwrap_or_default()
        };
        let kind = reference("kind");
        let role = if kind == "ClusterRole" { "clusterroles" } else { "roles" };
        let rules = state.rbac.referenced(namespace, kind, reference("name"));
        let Some(rules) = rules else {
            // The rules of a role that is not there cannot be compared: only who may bind it goes on.
            return permitted(state, user, "bind", namespace, (role, reference("name")))
                .then_some(())
                .ok_or_else(|| ApiError::not_found(rbac::GROUP, role, reference("name")));
        };
        ("bind", rules, (role, reference("name")))
    };
    let missing = state.rbac.missing(user, namespace, &rules);
    if missing.is_empty() || permitted(state, user, verb, namespace, about) {
        return Ok(());
    }
    let list: Vec<String> = missing.iter().map(shown).collect();
    Err(ApiError::forbidden(
        rbac::GROUP,
        resource,
        name,
        &format!(
            "user \"{}\" (groups={:?}) is attempting to grant RBAC permissions not currently held:\n{}",
            user.name,
            user.groups,
            list.join("\n")
        ),
    ))
}

fn refuse_conditional(body: &gc_registry::api::RequestBody) -> Result<(), ApiError> {
    let moves = body
        .value
        .as_array()
        .into_iter()
        .flatten()
        .any(|step| matches!(step.get("op").and_then(Value::as_str), Some("move" | "copy")));
    if moves {
        return Err(ApiError::bad_request(
            "roles and bindings cannot be written by moving or copying within them without the right to escalate",
        ));
    }
    Ok(())
}

fn permitted(state: &State, user: &UserInfo, verb: &str, namespace: &str, about: (&str, &str)) -> bool {
    let wanted = Attributes {
        verb,
        group: rbac::GROUP,
        version: "v1",
        resource: about.0,
        subresource: "",
        namespace,
        name: about.1,
    };
    state.rbac.decide(user, &Question::Resource(wanted)).allowed
}

fn shown(rule: &Rule) -> String {
    let mut parts = Vec::new();
    for (name, list) in [
        ("APIGroups", &rule.groups),
        ("Resources", &rule.resources),
        ("ResourceNames", &rule.names),
        ("NonResourceURLs", &rule.urls),
        ("Verbs", &rule.verbs),
    ] {
        if !list.is_empty() {
            parts.push(format!("{name}:{list:?}"));
        }
    }
    format!("{{{}}}", parts.join(", "))
}
