//! The CustomResourceDefinition of policies. `deploy/crds` has it as YAML; a test keeps the two equal.

use serde_json::{Value, json};

use super::{GROUP, KIND, MOST_DELETIONS_PER_RUN, RESOURCE, VERSION};

/// The definition, as it is created.
#[must_use]
pub fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{RESOURCE}.{GROUP}")},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {
                "kind": KIND, "listKind": format!("{KIND}List"), "plural": RESOURCE,
                "singular": "retentionpolicy", "shortNames": ["rp"],
            },
            "versions": [{
                "name": VERSION,
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    column("Target", "string", ".spec.target.kind"),
                    column("Valid", "string", ".status.conditions[?(@.type==\"Valid\")].status"),
                    column("Enforced", "string", ".status.conditions[?(@.type==\"Enforced\")].status"),
                    column("Selected", "integer", ".status.selected"),
                    column("Due", "integer", ".status.due"),
                    column("Deleted", "integer", ".status.deleted"),
                    column("Age", "date", ".metadata.creationTimestamp"),
                ],
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "description": "Which objects of a kind are deleted, and when. Nothing is deleted until spec.enforce is true.",
                    "required": ["spec"],
                    "properties": {"spec": spec(), "status": status()},
                }},
            }],
        },
    })
}

fn column(name: &str, kind: &str, path: &str) -> Value {
    json!({"name": name, "type": kind, "jsonPath": path})
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn one_of(words: &[&str], description: &str) -> Value {
    json!({"type": "string", "enum": words, "description": description})
}

fn texts(description: &str) -> Value {
    json!({"type": "array", "maxItems": 256, "items": {"type": "string"}, "description": description})
}

fn requirement(key: &str, description: &str) -> Value {
    json!({
        "type": "object",
        "required": [key, "operator"],
        "properties": {
            key: text(description),
            "operator": {"type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
            "values": {"type": "array", "maxItems": 256, "items": {"type": "string"}},
        },
    })
}

fn spec() -> Value {
    json!({
        "type": "object",
        "required": ["target"],
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
                    "apiVersion": text("Such as v1 or batch/v1."),
                    "kind": text("Such as Pod or Job."),
                },
            },
            "namespaces": {
                "type": "object",
                "description": "Namespaces whose objects are selected; all if empty. A star stands for any text. kube-system, kube-public and kube-node-lease have to be included by name.",
                "properties": {"include": texts("Only in these."), "exclude": texts("Not in these.")},
            },
            "selector": {
                "type": "object",
                "description": "Labels that objects must have.",
                "properties": {
                    "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
                    "matchExpressions": {
                        "type": "array", "maxItems": 64, "items": requirement("key", "Name of the label."),
                    },
                },
            },
            "fields": {
                "type": "array", "maxItems": 64,
                "description": "What fields of objects must be.",
                "items": requirement("path", "Such as .status.phase or .metadata.annotations['a/b']."),
            },
            "condition": {
                "type": "string", "maxLength": 4096,
                "description": "A CEL expression over `object` that must be true.",
            },
            "keepNewest": {
                "type": "object",
                "description": "Keep only the newest objects.",
                "required": ["count"],
                "properties": {
                    "count": {"type": "integer", "format": "int64", "minimum": 0, "description": "How many of the newest objects to keep."},
                    "per": one_of(&["Cluster", "Namespace", "Owner", "Label"], "Of which objects the newest stay together. Default Cluster."),
                    "label": text("The label whose values make groups, with per: Label."),
                    "orderBy": one_of(&["Created", "Finished"], "What newest means; Finished for Pods and Jobs only. Default Created."),
                },
            },
            "maxAge": text("Objects older than this go: a Go duration such as 720h."),
            "ttlAfter": {
                "type": "object",
                "description": "Delete objects this long after a condition changed to a status.",
                "required": ["condition", "duration"],
                "properties": {
                    "condition": text("A type in status.conditions; for Pods and Jobs also Finished."),
                    "status": one_of(&["True", "False", "Unknown"], "Its status. Default True."),
                    "duration": text("A Go duration such as 1h30m."),
                },
            },
            "schedule": text("When the policy runs: \"every 1h\", \"@daily\" or a cron expression in UTC. Without one, whenever something is due."),
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
                },
            },
            "nextRun": {"type": "string", "format": "date-time"},
        },
    })
}
