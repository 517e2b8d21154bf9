//! CustomResourceDefinition of policies. `deploy/crds` contains it as YAML; a test compares the two.

use serde_json::{Value, json};

use super::{GROUP, KIND, MOST_DELETIONS_PER_RUN, RESOURCE, VERSION};

/// Returns the definition as it is created.
#[must_use]
pub fn definition() -> Value {
    let names = DefinedNames { kind: KIND, plural: RESOURCE, singular: "retentionpolicy", short: "rp" };
    let columns = json!([
        column("Target", "string", ".spec.target.kind"),
        column("Valid", "string", ".status.conditions[?(@.type==\"Valid\")].status"),
        column("Enforced", "string", ".status.conditions[?(@.type==\"Enforced\")].status"),
        column("Selected", "integer", ".status.selected"),
        column("Due", "integer", ".status.due"),
        column("Deleted", "integer", ".status.deleted"),
        column("Age", "date", ".metadata.creationTimestamp"),
    ]);
    names.definition(
        &columns,
        "Which objects of a kind are deleted, and when. Nothing is deleted until spec.enforce is true.",
        &json!({"spec": spec(), "status": status()}),
    )
}

/// Names of a kind of policies.
pub(crate) struct DefinedNames {
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) short: &'static str,
}

impl DefinedNames {
    /// Returns the definition of a kind of policies, which are cluster-scoped objects with a status.
    pub(crate) fn definition(&self, columns: &Value, description: &str, properties: &Value) -> Value {
        let Self { kind, plural, singular, short } = self;
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{GROUP}")},
            "spec": {
                "group": GROUP,
                "scope": "Cluster",
                "names": {
                    "kind": kind, "listKind": format!("{kind}List"), "plural": plural,
                    "singular": singular, "shortNames": [short],
                },
                "versions": [{
                    "name": VERSION,
                    "served": true,
                    "storage": true,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": {
                        "type": "object",
                        "description": description,
                        "required": ["spec"],
                        "properties": properties,
                    }},
                }],
            },
        })
    }
}

pub(crate) fn column(name: &str, kind: &str, path: &str) -> Value {
    json!({"name": name, "type": kind, "jsonPath": path})
}

pub(crate) fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

/// Returns the schema of a non-empty text, whose length is bounded because of the cost of the rules about it.
pub(crate) fn name(description: &str) -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 253, "description": description})
}

/// Returns the schema of a positive duration with the units of [`gc_types::GoDuration::parse_with_days`].
pub(crate) fn duration(description: &str) -> Value {
    json!({
        "type": "string", "maxLength": 64, "description": description,
        "allOf": [{"pattern": DURATION}, {"pattern": "[1-9]"}],
    })
}

/// Numbers with units.
const DURATION: &str = r"^\+?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|\x{b5}s|\x{3bc}s|ms|s|m|h|d|w))+$";
/// A schedule: a period, a word, or five fields.
const SCHEDULE: &str =
    r"^\s*(every\s.*|@(hourly|daily|midnight|weekly|monthly|yearly|annually)|\S+(\s+\S+){4})\s*$";
/// `.a.b['c.d/e']`
const PATH: &str = r"^(\.[^.\[]+|\['([^']|'[^\]])+'\])+$";

/// Returns a CEL rule with its error message.
pub(crate) fn rule(rule: &str, message: &str) -> Value {
    json!({"rule": rule, "message": message})
}

fn one_of(words: &[&str], description: &str) -> Value {
    json!({"type": "string", "enum": words, "description": description})
}

pub(crate) fn texts(description: &str) -> Value {
    json!({"type": "array", "maxItems": 256, "items": {"type": "string"}, "description": description})
}

fn namespaces(description: &str) -> Value {
    let mut names = texts(description);
    names["items"]["pattern"] = "^[a-z0-9*-]+$".into();
    names
}

pub(crate) fn requirement(key: &str, described: &Value) -> Value {
    json!({
        "type": "object",
        "required": [key, "operator"],
        "x-kubernetes-validations": [
            rule(
                "!(self.operator in ['In', 'NotIn']) || (has(self.values) && self.values.size() > 0)",
                "values are required for In and NotIn",
            ),
            rule(
                "self.operator in ['In', 'NotIn'] || !has(self.values) || self.values.size() == 0",
                "values make no sense for Exists and DoesNotExist",
            ),
        ],
        "properties": {
            key: described,
            "operator": {"type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
            "values": {"type": "array", "maxItems": 256, "items": {"type": "string"}},
        },
    })
}

fn keep_newest() -> Value {
    json!({
        "type": "object",
        "description": "Keep only the newest objects.",
        "required": ["count"],
        "properties": {
            "count": {"type": "integer", "format": "int64", "minimum": 0, "description": "How many of the newest objects to keep."},
            "per": one_of(&["Cluster", "Namespace", "Owner", "Label"], "Of which objects the newest stay together. Default Cluster."),
            "label": {"type": "string", "maxLength": 317, "description": "The label whose values make groups, with per: Label."},
            "orderBy": one_of(&["Created", "Finished"], "What newest means; Finished for Pods and Jobs only. Default Created."),
        },
        "x-kubernetes-validations": [rule(
            "(has(self.per) && self.per == 'Label') == (has(self.label) && self.label != '')",
            "label is required with per: Label, and makes sense with it only",
        )],
    })
}

fn max_age() -> Value {
    duration("Objects older than this are due: a duration such as 720h or 30d.")
}

fn ttl_after() -> Value {
    json!({
        "type": "object",
        "description": "Objects are due this long after a condition changed to a status.",
        "required": ["condition", "duration"],
        "properties": {
            "condition": name("A type in status.conditions; for Pods and Jobs also Finished."),
            "status": one_of(&["True", "False", "Unknown"], "Its status. Default True."),
            "duration": duration("A duration such as 1h30m or 7d."),
        },
        "x-kubernetes-validations": [rule(
            "self.condition != 'Finished' || !has(self.status) || self.status == 'True'",
            "condition Finished has the status True",
        )],
    })
}

fn unused() -> Value {
    json!({
        "type": "object",
        "description": "Objects are due that every look of `kubegc garbage --quarantine` has found certainly unused for this long.",
        "required": ["for"],
        "properties": {
            "for": duration("A duration such as 168h or 7d."),
            "recorder": {
                "type": "string", "maxLength": 317, "pattern": "^[a-z0-9.-]+/[a-z0-9.-]+$",
                "description": "Namespace and name of the Lease of the recorder (`kubegc recorder --lease`) that keeps what is deleted. Default kube-system/kubegc-recorder.",
            },
        },
    })
}

fn rules(description: &str) -> Value {
    json!({
        "type": "object", "minProperties": 1, "description": description,
        "properties": {"keepNewest": keep_newest(), "maxAge": max_age(), "ttlAfter": ttl_after()},
    })
}

/// Returns the validation rules across the fields of a policy.
fn spec_rules() -> Value {
    let top = "(has(self.keepNewest) || has(self.maxAge) || has(self.ttlAfter))";
    let finished = |place: &str| {
        format!(
            "(has({place}.keepNewest) && has({place}.keepNewest.orderBy) && {place}.keepNewest.orderBy == 'Finished') || \
             (has({place}.ttlAfter) && {place}.ttlAfter.condition == 'Finished')"
        )
    };
    let finishes = "(self.target.apiVersion.startsWith('batch/') && self.target.kind == 'Job') || \
                    (!self.target.apiVersion.contains('/') && self.target.kind == 'Pod')";
    let content = "has(self.condition) || has(self.ttlAfter) || (has(self.any) && has(self.any.ttlAfter)) || \
                   (has(self.all) && has(self.all.ttlAfter)) || \
                   (has(self.fields) && self.fields.exists(f, !f.path.matches(r'^(\\.metadata|\\[.metadata.\\])([.\\[]|$)')))";
    json!([
        rule(
            &format!("{top} || has(self.any) || has(self.all) || has(self.unused)"),
            "at least one of keepNewest, maxAge and ttlAfter is required; without them nothing is due",
        ),
        rule(
            &format!("[{top}, has(self.any), has(self.all)].filter(x, x).size() <= 1"),
            "keepNewest, maxAge and ttlAfter are written either in spec, or in any, or in all",
        ),
        rule(
            &format!(
                "({finishes}) || !(({}) || (has(self.any) && ({})) || (has(self.all) && ({})))",
                finished("self"),
                finished("self.any"),
                finished("self.all"),
            ),
            "Finished is for Pods and Jobs only",
        ),
        rule(
            &format!("self.target.apiVersion.contains('/') || self.target.kind != 'Secret' || !({content})"),
            "the contents of Secrets are never read: select them by labels and metadata",
        ),
        rule(
            &format!("!has(self.unused) || !({top} || has(self.any) || has(self.all))"),
            "no other rule is written beside unused",
        ),
        rule(
            "!has(self.unused) || self.target.apiVersion.contains('/') || self.target.kind != 'Secret'",
            "Secrets are not recorded as a kind, so that none that is unused could be restored",
        ),
        rule(
            "!has(self.notice) || !(has(self.keepNewest) || (has(self.any) && has(self.any.keepNewest)) || \
             (has(self.all) && has(self.all.keepNewest)))",
            "keepNewest does not say beforehand when an object is due; notice is for maxAge and ttlAfter",
        ),
    ])
}

fn spec() -> Value {
    json!({
        "type": "object",
        "required": ["target"],
        "x-kubernetes-validations": spec_rules(),
        "properties": {
            "enforce": {
                "type": "boolean",
                "description": "Whether due objects are deleted. While it is false, the status shows what would be deleted.",
            },
            "target": {
                "type": "object",
                "description": "The kind that the policy is about.",
                "required": ["apiVersion", "kind"],
                "properties": {
                    "apiVersion": name("Such as v1 or batch/v1."),
                    "kind": name("Such as Pod or Job."),
                },
                "x-kubernetes-validations": [
                    rule("!self.apiVersion.startsWith('kubegc.io/')", "a policy cannot select policies"),
                    rule(
                        "!(self.apiVersion.startsWith('apiextensions.k8s.io/') && self.kind == 'CustomResourceDefinition')",
                        "CustomResourceDefinition cannot be the target of a policy: deleting a definition deletes all of its objects",
                    ),
                    rule(
                        "!(self.apiVersion.startsWith('apiregistration.k8s.io/') && self.kind == 'APIService')",
                        "APIService cannot be the target of a policy: deleting an APIService removes a whole API",
                    ),
                    rule(
                        "self.apiVersion.contains('/') || !(self.kind in ['Node', 'PersistentVolume'])",
                        "Nodes and PersistentVolumes cannot be the target of a policy: they stand for machines and storage, and have collectors of their own",
                    ),
                ],
            },
            "namespaces": {
                "type": "object",
                "description": "Namespaces whose objects are selected; all if empty. A star stands for any text. kube-system, kube-public and kube-node-lease have to be included by name.",
                "properties": {
                    "include": namespaces("Only in these."), "exclude": namespaces("Not in these."),
                },
            },
            "selector": {
                "type": "object",
                "description": "Labels that objects must have.",
                "properties": {
                    "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
                    "matchExpressions": {
                        "type": "array", "maxItems": 64, "items": requirement("key", &text("Name of the label.")),
                    },
                },
            },
            "fields": {
                "type": "array", "maxItems": 64,
                "description": "What fields of objects must be.",
                "items": requirement("path", &json!({
                    "type": "string", "pattern": PATH, "maxLength": 512,
                    "description": "Such as .status.phase or .metadata.annotations['a/b'].",
                })),
            },
            "condition": {
                "type": "string", "maxLength": 4096,
                "description": "A CEL expression over `object` and the time `now` that must be true.",
            },
            "keepNewest": keep_newest(),
            "maxAge": max_age(),
            "ttlAfter": ttl_after(),
            "unused": unused(),
            "any": rules("One of these rules makes an object due; the same as to write them in spec itself."),
            "all": rules("All of these rules together make an object due."),
            "notice": {
                "type": "object",
                "description": "Announce each deletion beforehand, by an Event on the object and to the webhook of the collector.",
                "required": ["before"],
                "properties": {"before": duration("How long before: a duration such as 24h.")},
            },
            "schedule": {
                "type": "string", "pattern": SCHEDULE, "maxLength": 256,
                "description": "When the policy runs: \"every 1h\", \"@daily\" or a cron expression in UTC. Without one, whenever something is due.",
            },
            "maxDeletionsPerRun": {
                "type": "integer", "format": "int64", "minimum": 1, "maximum": MOST_DELETIONS_PER_RUN,
                "description": "Maximum number of deletions per run. Default 100.",
            },
            "propagationPolicy": one_of(&["Background", "Foreground", "Orphan"], "What happens to dependents. Default Background."),
        },
    })
}

fn status() -> Value {
    let count = |description: &str| json!({"type": "integer", "format": "int64", "description": description});
    json!({
        "type": "object",
        "properties": {
            "observedGeneration": count("The generation that this status is about."),
            "observedSpec": text("The specification that this status is about: the beginning of its SHA-256."),
            "conditions": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
                "items": {
                    "type": "object",
                    "required": ["type", "status"],
                    "properties": {
                        "type": {"type": "string"}, "status": {"type": "string"},
                        "reason": {"type": "string"}, "message": {"type": "string"},
                        "observedGeneration": {"type": "integer", "format": "int64"},
                        "lastTransitionTime": {"type": "string", "format": "date-time"},
                    },
                },
            },
            "selected": count("Objects that the policy is about."),
            "due": count("Those that are due now."),
            "kept": count("Those that carry kubegc.io/keep."),
            "unclear": count("Those on which the condition could not be evaluated."),
            "deleted": count("Deletions by this policy in all."),
            "examples": {
                "type": "array",
                "description": "The first of those that are due.",
                "items": {
                    "type": "object",
                    "properties": {
                        "namespace": {"type": "string"}, "name": {"type": "string"}, "why": {"type": "string"},
                    },
                },
            },
            "lastRun": {
                "type": "object",
                "properties": {
                    "time": {"type": "string", "format": "date-time"},
                    "deleted": {"type": "integer", "format": "int64"},
                    "failed": {"type": "integer", "format": "int64"},
                    "error": {"type": "string"},
                    "undo": {
                        "type": "array", "items": {"type": "string"},
                        "description": "Commands that restore the first of what the run has deleted as unused.",
                    },
                },
            },
            "nextRun": {"type": "string", "format": "date-time"},
            "noticedUntil": {
                "type": "string", "format": "date-time",
                "description": "Deletions up to this time have been announced.",
            },
        },
    })
}
