//! Status of definitions: accepted names, conditions, the progress of deletion (spec `api-deletion.md`, section 9).

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::resource::ResourceDefinition;

/// Finalizer under which the instances of a definition are deleted.
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Annotation that documents the approval of a group under a Kubernetes domain.
pub const APPROVAL_ANNOTATION: &str = "api-approved.kubernetes.io";

/// Progress of a definition's deletion: reasons of the condition `Terminating`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Termination {
    /// The definition was marked for deletion.
    Pending,
    /// Instances are being deleted.
    InProgress,
    /// No instance is left.
    Completed,
    /// Deleting instances failed, and will be retried.
    Failed,
    /// Listing the remaining instances failed, and will be retried.
    CheckFailed,
    /// The definition was never served, so there is nothing to delete.
    NeverEstablished,
    /// The definition shadows a built-in resource, whose objects are kept.
    OverlappingBuiltIn,
}

impl Termination {
    fn parts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Pending => (
                "True",
                "InstanceDeletionPending",
                "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
            ),
            Self::InProgress => {
                ("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress")
            }
            Self::Completed => ("False", "InstanceDeletionCompleted", "removed all instances"),
            Self::Failed => ("True", "InstanceDeletionFailed", "could not delete instances"),
            Self::CheckFailed => {
                ("True", "InstanceDeletionCheck", "could not confirm zero CustomResources remaining")
            }
            Self::NeverEstablished => ("False", "NeverEstablished", "resource was never established"),
            Self::OverlappingBuiltIn => (
                "False",
                "OverlappingBuiltInResource",
                "instances overlap with built-in resources in storage",
            ),
        }
    }
}

/// Names in a group that other resources use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamesInUse {
    resources: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

impl NamesInUse {
    /// Returns the names that a set of resources (built-in ones and those of definitions) uses in a group, except those of the
    /// definition itself, which is identified by its plural name.
    #[must_use]
    pub fn of<'r>(
        resources: impl IntoIterator<Item = &'r ResourceDefinition>,
        group: &str,
        own_plural: &str,
    ) -> Self {
        let mut names = Self::default();
        for resource in resources {
            let own = resource.custom.is_some() && *resource.resource == *own_plural;
            if *resource.group != *group || own {
                continue;
            }
            names.resources.insert(resource.resource.to_string());
            names.resources.insert(resource.singular.to_string());
            names.resources.extend(resource.short_names.iter().map(ToString::to_string));
            names.kinds.insert(resource.kind.to_string());
            names.kinds.insert(resource.list_kind.to_string());
        }
        names
    }
}

/// Updates the status of a definition from its names: `acceptedNames`, `NamesAccepted`, `Established`, and
/// `KubernetesAPIApprovalPolicyConformant` for groups under Kubernetes' domains. Returns whether anything changed.
pub fn settle_names(definition: &mut Value, in_use: &NamesInUse, now: jiff::Timestamp) -> bool {
    let before = definition["status"].clone();
    let requested = definition["spec"]["names"].as_object().cloned().unwrap_or_default();
    let mut accepted = before["acceptedNames"].as_object().cloned().unwrap_or_default();
    let conflict = accept_names(&requested, &mut accepted, in_use);
    let Some(status) = status_of(definition) else { return false };
    status.insert("acceptedNames".into(), Value::Object(accepted));
    match &conflict {
        None => {
            set_condition(definition, "NamesAccepted", ("True", "NoConflicts", "no conflicts found"), now);
        }
        Some((reason, message)) => {
            set_condition(definition, "NamesAccepted", ("False", reason, message), now);
        }
    }
    // A definition stays established, because its instances must remain reachable.
    if !is_established(definition) {
        let parts = if conflict.is_none() {
            ("True", "InitialNamesAccepted", "the initial names have been accepted")
        } else {
            ("False", "NotAccepted", "not all names are accepted")
        };
        set_condition(definition, "Established", parts, now);
    }
    let group = definition["spec"]["group"].as_str().unwrap_or_default();
    if is_protected_group(group) {
        let (status, reason, message) = approval(definition);
        set_condition(definition, "KubernetesAPIApprovalPolicyConformant", (status, reason, &message), now);
    }
    definition["status"] != before
}

/// Accepts each requested name that is free; returns the last conflict, as upstream reports it.
fn accept_names(
    requested: &Map<String, Value>,
    accepted: &mut Map<String, Value>,
    in_use: &NamesInUse,
) -> Option<(&'static str, String)> {
    let mut conflict = None;
    let mut scalar = |name: &str, reason: &'static str, taken: &BTreeSet<String>| {
        let wanted = requested.get(name).and_then(Value::as_str).unwrap_or_default();
        let ours = accepted.get(name).and_then(Value::as_str).unwrap_or_default();
        if wanted != ours && taken.contains(wanted) {
            conflict = Some((reason, format!("{wanted:?} is already in use")));
        } else {
            accepted.insert(name.into(), wanted.into());
        }
    };
    scalar("plural", "PluralConflict", &in_use.resources);
    scalar("singular", "SingularConflict", &in_use.resources);
    scalar("kind", "KindConflict", &in_use.kinds);
    scalar("listKind", "ListKindConflict", &in_use.kinds);

    let list = |map: &Map<String, Value>| -> Vec<Value> {
        map.get("shortNames").and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let ours = list(accepted);
    let taken: Vec<String> = list(requested)
        .iter()
        .filter(|name| !ours.contains(name))
        .filter_map(Value::as_str)
        .filter(|name| in_use.resources.contains(*name))
        .map(|name| format!("{name:?} is already in use"))
        .collect();
    match taken.as_slice() {
        [] => copy_member(requested, accepted, "shortNames"),
        [one] => conflict = Some(("ShortNamesConflict", one.clone())),
        many => conflict = Some(("ShortNamesConflict", format!("[{}]", many.join(", ")))),
    }
    copy_member(requested, accepted, "categories");
    conflict
}

fn copy_member(from: &Map<String, Value>, to: &mut Map<String, Value>, name: &str) {
    match from.get(name) {
        Some(value) => to.insert(name.into(), value.clone()),
        None => to.remove(name),
    };
}

/// Sets the stage of a definition's deletion.
pub fn set_termination(definition: &mut Value, termination: Termination, now: jiff::Timestamp) {
    set_condition(definition, "Terminating", termination.parts(), now);
}

/// Reports whether instances are served.
#[must_use]
pub fn is_established(definition: &Value) -> bool {
    is_true(definition, "Established")
}

/// Reports whether creating instances is refused because the definition is being deleted.
#[must_use]
pub fn is_terminating(definition: &Value) -> bool {
    is_true(definition, "Terminating")
}

fn is_true(definition: &Value, condition: &str) -> bool {
    let conditions = definition["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|one| one["type"] == condition && one["status"] == "True")
}

fn status_of(definition: &mut Value) -> Option<&mut Map<String, Value>> {
    let status = definition.as_object_mut()?.entry("status").or_insert_with(|| json!({}));
    if !status.is_object() {
        *status = json!({});
    }
    status.as_object_mut()
}

fn set_condition(
    definition: &mut Value,
    condition: &str,
    (status, reason, message): (&str, &str, &str),
    now: jiff::Timestamp,
) {
    let Some(all) = status_of(definition) else { return };
    let conditions = all.entry("conditions").or_insert_with(|| json!([]));
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else { return };
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let fresh = json!({
        "type": condition, "status": status, "reason": reason, "message": message, "lastTransitionTime": now,
    });
    match conditions.iter_mut().find(|one| one["type"] == condition) {
        None => conditions.push(fresh),
        Some(old) => {
            let since = old["lastTransitionTime"].clone();
            let moved = old["status"] != status;
            *old = fresh;
            if !moved && let Some(old) = old.as_object_mut() {
                old.insert("lastTransitionTime".into(), since);
            }
        }
    }
}

/// Reports whether a group is under one of Kubernetes' own domains.
pub(super) fn is_protected_group(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

/// Interprets the approval annotation: status and reason of the condition, and its message.
pub(super) fn approval(definition: &Value) -> (&'static str, &'static str, String) {
    const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let annotation = definition["metadata"]["annotations"][APPROVAL_ANNOTATION].as_str().unwrap_or_default();
    let is_url = annotation
        .split_once("://")
        .is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty() && !rest.starts_with('/'));
    if annotation.is_empty() {
        let message =
            format!("protected groups must have approval annotation \"{APPROVAL_ANNOTATION}\", {SEE}");
        ("False", "MissingAnnotation", message)
    } else if annotation.starts_with("unapproved") {
        ("False", "UnapprovedAnnotation", format!("not approved: {annotation:?}"))
    } else if is_url {
        ("True", "ApprovedAnnotation", format!("approved in {annotation}"))
    } else {
        let message = format!(
            "protected groups must have approval annotation \"{APPROVAL_ANNOTATION}\" with either a URL or a \
             reason starting with \"unapproved\", {SEE}"
        );
        ("False", "InvalidAnnotation", message)
    }
}
