//! CustomResourceDefinition of policies for nodes. `deploy/crds` contains it as YAML; a test compares the two.

use serde_json::{Value, json};

use super::result::{LONGEST_TEXT, MOST_NODES, State};
use super::{
    HIGHEST_PRIORITY, KIND, LONGEST_PATTERN, MOST_PROTECTED, MOST_REMOVED, MOST_WINDOWS, NOTHING, RESOURCE,
};
use crate::policies::definition::{DefinedNames, column, duration, requirement, rule, text};

/// Maximum length of a node's name.
const LONGEST_NAME: usize = 253;

/// Returns the definition as it is created.
#[must_use]
pub fn definition() -> Value {
    let names = DefinedNames { kind: KIND, plural: RESOURCE, singular: "nodecollectionpolicy", short: "ncp" };
    let columns = json!([
        column("Enforced", "boolean", ".spec.enforce"),
        column("Priority", "integer", ".spec.priority"),
        column("High", "integer", ".spec.thresholds.highPercent"),
        column("Low", "integer", ".spec.thresholds.lowPercent"),
        column("Max-Age", "string", ".spec.ages.maximum"),
        column("Truncated", "boolean", ".status.truncated"),
        column("Age", "date", ".metadata.creationTimestamp"),
    ]);
    names.definition(
        &columns,
        "How the selected nodes collect their images. Nothing changes there until spec.enforce is true.",
        &json!({"spec": spec(), "status": status()}),
    )
}

/// Returns the schema of an image pattern.
fn pattern(description: &str) -> Value {
    json!({
        "type": "string", "minLength": 1, "maxLength": LONGEST_PATTERN, "pattern": r"^\S+$",
        "description": description,
    })
}

fn patterns(most: usize, description: &str) -> Value {
    json!({
        "type": "array", "maxItems": most, "description": description,
        "items": pattern("A tag, a repository, a digest, an identifier, or a pattern with *."),
    })
}

/// Returns the validation rules across the fields of a policy.
fn spec_rules() -> Value {
    json!([
        rule(
            "has(self.thresholds) || (has(self.ages) && (has(self.ages.minimum) || has(self.ages.maximum))) || \
             [has(self.protectedImages) && self.protectedImages.size() > 0, \
             has(self.removeImages) && self.removeImages.size() > 0, \
             has(self.keepImages) && self.keepImages.size() > 0, \
             has(self.windows) && self.windows.size() > 0].exists(x, x)",
            NOTHING,
        ),
        rule(
            "!has(self.protectedImages) || !has(self.removeImages) || \
             !self.removeImages.exists(x, x in self.protectedImages)",
            "an image is either protected or removed",
        ),
    ])
}

fn spec() -> Value {
    let percent = |description: &str| json!({"type": "integer", "format": "int32", "minimum": 0, "maximum": 100, "description": description});
    let mut remove = patterns(
        MOST_REMOVED,
        "Images that are removed as soon as nothing uses, pins or protects them, such as a digest with a vulnerability.",
    );
    // At least one character must identify something.
    remove["items"]["allOf"] = json!([{"pattern": "[^*/:@.]"}]);
    json!({
        "type": "object",
        "x-kubernetes-validations": spec_rules(),
        "properties": {
            "enforce": {
                "type": "boolean",
                "description": "Whether the policy is in force. While it is false, the status shows what it would remove on each node.",
            },
            "priority": {
                "type": "integer", "format": "int64", "minimum": -HIGHEST_PRIORITY, "maximum": HIGHEST_PRIORITY,
                "description": "Of the enforced policies that select a node, the highest priority is in force, then the first by name. Default 0.",
            },
            "nodeSelector": {
                "type": "object",
                "description": "Labels that nodes must have; without any, every node is selected.",
                "properties": {
                    "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
                    "matchExpressions": {
                        "type": "array", "maxItems": 64, "items": requirement("key", &text("Name of the label.")),
                    },
                },
            },
            "thresholds": {
                "type": "object",
                "description": "When a disk of images is too full. Without them, the node's own count.",
                "required": ["highPercent", "lowPercent"],
                "properties": {
                    "highPercent": percent("Removal begins at this use of the disk."),
                    "lowPercent": percent("Removal ends at this use of the disk."),
                },
                "x-kubernetes-validations": [rule(
                    "self.lowPercent < self.highPercent",
                    "lowPercent must be less than highPercent",
                )],
            },
            "ages": {
                "type": "object",
                "description": "Ages of images. Without one, the node's own counts.",
                "properties": {
                    "minimum": duration("Younger images are never removed: a duration such as 2m."),
                    "maximum": duration("Images that have been unused for longer are removed: a duration such as 14d."),
                },
                "x-kubernetes-validations": [rule(
                    "!has(self.minimum) || !has(self.maximum) || self.minimum.matches('[dw]') || \
                     self.maximum.matches('[dw]') || duration(self.minimum) < duration(self.maximum)",
                    "the maximum must be greater than the minimum",
                )],
            },
            "protectedImages": patterns(
                MOST_PROTECTED, "Images that are never removed, beside those that the node protects itself.",
            ),
            "removeImages": remove,
            "keepImages": {
                "type": "array", "maxItems": MOST_REMOVED,
                "description": "How images are kept while nothing uses them. The first rule that an image matches counts, after those of the node itself.",
                "items": {
                    "type": "object",
                    "required": ["pattern", "keep"],
                    "properties": {
                        "pattern": pattern("A tag, a repository, a digest, an identifier, or a pattern with *."),
                        "keep": {
                            "type": "string", "enum": ["Always", "Last", "Never"],
                            "description": "Always: never removed. Last: for space only, after all others. Never: like any other, also if a workload will need it.",
                        },
                    },
                },
            },
            "windows": {
                "type": "array", "maxItems": MOST_WINDOWS,
                "description": "When images may go for their age, or because they are to be removed; at any time if empty. What is removed for space does not wait.",
                "items": {
                    "type": "object",
                    "required": ["start", "duration"],
                    "properties": {
                        "start": {
                            "type": "string", "maxLength": 256,
                            "pattern": r"^\s*(@(hourly|daily|midnight|weekly|monthly|yearly|annually)|\S+(\s+\S+){4})\s*$",
                            "description": "When it opens: @daily or a cron expression, in UTC.",
                        },
                        "duration": duration("How long it stays open: a duration between 1m and 7d."),
                    },
                },
            },
        },
    })
}

fn status() -> Value {
    let count = |description: &str| json!({"type": "integer", "format": "int64", "description": description});
    let words = [State::DryRun, State::Enforced, State::Superseded, State::Invalid].map(State::name);
    let long =
        |description: &str| json!({"type": "string", "maxLength": LONGEST_TEXT, "description": description});
    json!({
        "type": "object",
        "properties": {
            "nodes": {
                "type": "array", "maxItems": MOST_NODES,
                "description": "Results of the nodes; the first ones to report, if there are more than fit in.",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["node"],
                "items": {
                    "type": "object",
                    "required": ["node", "state", "time"],
                    "properties": {
                        "node": {"type": "string", "maxLength": LONGEST_NAME, "description": "Its name."},
                        "state": {"type": "string", "enum": words, "description": "The role of the policy there."},
                        "observedGeneration": count("The generation that this result is about."),
                        "time": {"type": "string", "format": "date-time", "description": "When the pass was."},
                        "images": count("Images that would have been removed in that pass, or were if the policy is in force."),
                        "bytes": count("Bytes that this would have freed, or has freed."),
                        "firstImages": {
                            "type": "array", "maxItems": 5, "x-kubernetes-list-type": "atomic",
                            "items": {"type": "string", "maxLength": LONGEST_TEXT},
                            "description": "The first of the images.",
                        },
                        "message": long("Why it is not in force, or why the pass failed."),
                        "kubelet": long("How the configuration of the node's kubelet disagrees with the policy."),
                    },
                },
            },
            "truncated": {
                "type": "boolean",
                "description": "More nodes are selected than fit in here: `kubegc node images --all-nodes` has all.",
            },
        },
    })
}
