//! Deletions that must not happen: ValidatingAdmissionPolicies that the API server enforces for every client, what they enforce, and
//! whether they are in place.
//!
//! An expression sees one object: it cannot count others. Rules about numbers compare with a ConfigMap that `kubegc protect` writes
//! from what it counted, and that is as old as its last look.

mod counts;
mod status;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

pub use counts::{Counted, Counting, MAX_COUNTED, TooMany, count};
pub use status::{Fault, Status, faults, status};

/// The annotation, or label, that protects an object; its text says why. `false` exempts an object from all rules.
pub const MARK: &str = "kubegc.io/protect";
/// The beginning of the names of all policies.
pub const PREFIX: &str = "kubegc-protect";
/// Namespace and name of the ConfigMap with the counted objects.
pub const COUNTS: (&str, &str) = ("kube-system", "kubegc-protect");
/// Its annotation with the time of the look, and the one with what was counted.
pub const COUNTED_AT: &str = "kubegc.io/counted-at";
/// See [`COUNTED_AT`].
pub const COUNTED: &str = "kubegc.io/counted";

/// The text of the mark of an object, empty without one.
const MARK_OF: &str = "oldObject == null ? '' : \
    has(oldObject.metadata.annotations) && 'kubegc.io/protect' in oldObject.metadata.annotations \
    ? oldObject.metadata.annotations['kubegc.io/protect'] : \
    has(oldObject.metadata.labels) && 'kubegc.io/protect' in oldObject.metadata.labels \
    ? oldObject.metadata.labels['kubegc.io/protect'] : ''";

/// The objects to which a controller copies the mark of their owner: Deployments give their annotations to ReplicaSets, StatefulSets and
/// DaemonSets to ControllerRevisions, Services their labels to EndpointSlices. Copies outlive the mark, and their controllers delete them.
const IS_COPY: &str = "oldObject.kind in ['ReplicaSet', 'ControllerRevision', 'EndpointSlice'] \
    && has(oldObject.metadata.ownerReferences) \
    && oldObject.metadata.ownerReferences.exists(owner, has(owner.controller) && owner.controller)";

/// A rule that the API server enforces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Objects with the mark.
    Marked,
    /// Claims and volumes that are bound.
    Volumes,
    /// Objects that the ConfigMap lists.
    Counted,
    /// Objects of these resources, in these namespaces or (without any) everywhere.
    Kinds {
        /// Distinguishes several such rules.
        name: String,
        /// Group and plural name of each.
        resources: Vec<(String, String)>,
        /// Names of namespaces.
        namespaces: Vec<String>,
    },
}

impl Rule {
    /// The name of its policy and its binding.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Marked => PREFIX.to_owned(),
            Self::Volumes => format!("{PREFIX}-volumes"),
            Self::Counted => format!("{PREFIX}-counted"),
            Self::Kinds { name, .. } => format!("{PREFIX}-kinds-{name}"),
        }
    }

    /// What it does and what it cannot do, for people.
    #[must_use]
    pub fn explanation(&self) -> Vec<String> {
        let lines: &[&str] = match self {
            Self::Marked => &[
                "refuses the deletion of every object with the annotation or label kubegc.io/protect, except where its text is false",
                "does not see evictions of pods, and does not keep anybody from removing the annotation first",
            ],
            Self::Volumes => &[
                "refuses the deletion of claims and volumes while they are bound",
                "a namespace with such a claim cannot be emptied: count namespaces as well, so that its deletion is refused at once",
            ],
            Self::Counted => &[
                "refuses the deletion of every object in the ConfigMap kube-system/kubegc-protect: definitions with objects, \
                 namespaces that are not empty, owners of many dependents",
                "an expression cannot count: the ConfigMap is as old as the last run of this command, so run it in a CronJob; without \
                 the ConfigMap nothing is refused",
            ],
            Self::Kinds { .. } => &[
                "refuses every deletion of these kinds, by controllers as well: choose kinds that nothing replaces by itself",
            ],
        };
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    /// The ValidatingAdmissionPolicy.
    #[must_use]
    pub fn policy(&self) -> Value {
        let (is_allowed, message) = self.validation();
        let mut rules = json!({"operations": ["DELETE"], "apiVersions": ["*"]});
        let rules: Vec<Value> = match self {
            Self::Marked | Self::Counted => {
                rules["apiGroups"] = json!(["*"]);
                rules["resources"] = json!(["*"]);
                vec![rules]
            }
            Self::Volumes => {
                rules["apiGroups"] = json!([""]);
                rules["resources"] = json!(["persistentvolumeclaims", "persistentvolumes"]);
                vec![rules]
            }
            Self::Kinds { resources, .. } => {
                let rule = |(group, resource): &(String, String)| {
                    let mut rule = rules.clone();
                    rule["apiGroups"] = json!([group]);
                    rule["resources"] = json!([resource]);
                    rule
                };
                resources.iter().map(rule).collect()
            }
        };
        let mut spec = json!({
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": rules},
            "variables": [{"name": "mark", "expression": MARK_OF}],
            "validations": [{"expression": is_allowed, "messageExpression": message, "reason": "Forbidden"}],
        });
        if *self == Self::Counted {
            spec["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
        }
        self.object("ValidatingAdmissionPolicy", &spec)
    }

    /// When a deletion is allowed, and the message otherwise, as expressions.
    fn validation(&self) -> (String, String) {
        match self {
            Self::Marked => (
                format!("variables.mark in ['', 'false'] || {IS_COPY}"),
                format!("'protected by {MARK}: ' + variables.mark"),
            ),
            Self::Volumes => (
                "variables.mark == 'false' || !has(oldObject.status) || !has(oldObject.status.phase) \
                 || oldObject.status.phase != 'Bound'"
                    .to_owned(),
                "'protected: it is bound, and its data would be lost'".to_owned(),
            ),
            Self::Counted => (
                "variables.mark == 'false' || !has(params.data) || !(oldObject.metadata.uid in params.data)"
                    .to_owned(),
                "'protected: ' + params.data[oldObject.metadata.uid]".to_owned(),
            ),
            Self::Kinds { name, .. } => (
                "variables.mark == 'false'".to_owned(),
                format!("'protected by the rule {name} about its kind'"),
            ),
        }
    }

    /// The ValidatingAdmissionPolicyBinding.
    #[must_use]
    pub fn binding(&self) -> Value {
        let mut spec = json!({"policyName": self.name(), "validationActions": ["Deny"]});
        match self {
            Self::Counted => {
                let (namespace, name) = COUNTS;
                // A ConfigMap that is missing would otherwise refuse every deletion of the cluster.
                spec["paramRef"] =
                    json!({"namespace": namespace, "name": name, "parameterNotFoundAction": "Allow"});
            }
            Self::Kinds { namespaces, .. } if !namespaces.is_empty() => {
                spec["matchResources"] = json!({"namespaceSelector": {"matchExpressions": [
                    {"key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces}]}});
            }
            Self::Marked | Self::Volumes | Self::Kinds { .. } => {}
        }
        self.object("ValidatingAdmissionPolicyBinding", &spec)
    }

    fn object(&self, kind: &str, spec: &Value) -> Value {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": self.name()}, "spec": spec,
        })
    }
}

/// Reports whether a policy is one of these.
#[must_use]
pub fn is_ours(policy: &str) -> bool {
    policy.strip_prefix(PREFIX).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// The text of the mark of an object; empty without one, and for objects that are exempt.
#[must_use]
pub fn mark(object: &Value) -> &str {
    let text = |field: &str| object["metadata"][field][MARK].as_str();
    text("annotations").or_else(|| text("labels")).filter(|text| *text != "false").unwrap_or_default()
}
