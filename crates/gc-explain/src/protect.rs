//! Deletions that must not happen: ValidatingAdmissionPolicies that the API server enforces for every client, the rules they
//! enforce, and whether they are in place.
//!
//! An expression sees only one object and cannot count others. Rules about numbers therefore consult a ConfigMap that `kubegc
//! protect` writes, and which is only as recent as its last count.

mod counts;
mod status;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

pub use counts::{Counted, Counting, MAX_COUNTED, TooMany, count};
pub use status::{Fault, Status, faults, status};

/// Annotation or label that protects an object; its value is the reason. `false` exempts an object from all rules.
pub const MARK: &str = "kubegc.io/protect";
/// Prefix of the names of all policies.
pub const PREFIX: &str = "kubegc-protect";
/// Namespace and name of the ConfigMap with the counted objects.
pub const COUNTS: (&str, &str) = ("kube-system", "kubegc-protect");
/// Annotation of that ConfigMap with the time of the count.
pub const COUNTED_AT: &str = "kubegc.io/counted-at";
/// Annotation of that ConfigMap with the counted objects.
pub const COUNTED: &str = "kubegc.io/counted";

/// Expression for the reason in an object's mark; empty without a mark.
const MARK_OF: &str = "oldObject == null ? '' : \
    has(oldObject.metadata.annotations) && 'kubegc.io/protect' in oldObject.metadata.annotations \
    ? oldObject.metadata.annotations['kubegc.io/protect'] : \
    has(oldObject.metadata.labels) && 'kubegc.io/protect' in oldObject.metadata.labels \
    ? oldObject.metadata.labels['kubegc.io/protect'] : ''";

/// Expression for objects to which a controller copies the mark of their owner: Deployments give their annotations to ReplicaSets,
/// StatefulSets and DaemonSets to ControllerRevisions, Services their labels to EndpointSlices. Copies outlive the mark, and their
/// controllers have to be able to delete them.
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
    /// Objects of these resources, in these namespaces or, if there are none, everywhere.
    Kinds {
        /// Name that distinguishes several such rules.
        name: String,
        /// Group and plural name of each resource.
        resources: Vec<(String, String)>,
        /// Names of namespaces.
        namespaces: Vec<String>,
    },
}

impl Rule {
    /// Returns the name of its policy and binding.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Marked => PREFIX.to_owned(),
            Self::Volumes => format!("{PREFIX}-volumes"),
            Self::Counted => format!("{PREFIX}-counted"),
            Self::Kinds { name, .. } => format!("{PREFIX}-kinds-{name}"),
        }
    }

    /// Explains to users what the rule does and what it cannot do.
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

    /// Returns the ValidatingAdmissionPolicy.
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

    /// Returns two expressions: when a deletion is allowed, and the message if it is not.
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

    /// Returns the ValidatingAdmissionPolicyBinding.
    #[must_use]
    pub fn binding(&self) -> Value {
        let mut spec = json!({"policyName": self.name(), "validationActions": ["Deny"]});
        match self {
            Self::Counted => {
                let (namespace, name) = COUNTS;
                // Otherwise, a missing ConfigMap would refuse every deletion in the cluster.
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

/// Reports whether kubegc created a policy, judging by its name.
#[must_use]
pub fn is_ours(policy: &str) -> bool {
    policy.strip_prefix(PREFIX).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Returns the reason in an object's mark; empty if it has none or is exempt.
#[must_use]
pub fn mark(object: &Value) -> &str {
    let text = |field: &str| object["metadata"][field][MARK].as_str();
    text("annotations").or_else(|| text("labels")).filter(|text| *text != "false").unwrap_or_default()
}
