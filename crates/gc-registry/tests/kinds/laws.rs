//! Properties of every kind and every document.

use std::sync::Arc;

use gc_registry::api::UserInfo;
use gc_registry::catalog::Catalog;
use gc_registry::kinds::{self, Context};
use gc_registry::names;
use gc_registry::resource::Target;
use gc_registry::schema::{Node, Schema, builtin};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::{RESOURCES, now};

/// Names of fields that the rules check, so that random documents contain them.
const FIELDS: &[&str] = &[
    "metadata",
    "name",
    "namespace",
    "uid",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "spec",
    "status",
    "phase",
    "conditions",
    "type",
    "reason",
    "template",
    "containers",
    "initContainers",
    "ephemeralContainers",
    "image",
    "env",
    "valueFrom",
    "fieldRef",
    "ports",
    "containerPort",
    "port",
    "targetPort",
    "nodePort",
    "protocol",
    "resources",
    "limits",
    "requests",
    "cpu",
    "storage",
    "volumes",
    "volumeMounts",
    "emptyDir",
    "secret",
    "configMap",
    "projected",
    "sources",
    "downwardAPI",
    "items",
    "livenessProbe",
    "httpGet",
    "lifecycle",
    "preStop",
    "restartPolicy",
    "tolerations",
    "key",
    "operator",
    "effect",
    "selector",
    "matchLabels",
    "matchExpressions",
    "values",
    "replicas",
    "strategy",
    "updateStrategy",
    "rollingUpdate",
    "maxSurge",
    "maxUnavailable",
    "minAvailable",
    "completions",
    "parallelism",
    "completionMode",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "suspend",
    "manualSelector",
    "jobTemplate",
    "schedule",
    "data",
    "stringData",
    "binaryData",
    "immutable",
    "clusterIP",
    "clusterIPs",
    "externalIPs",
    "sessionAffinity",
    "loadBalancer",
    "ingress",
    "ip",
    "subsets",
    "addresses",
    "endpoints",
    "addressType",
    "rules",
    "http",
    "paths",
    "backend",
    "service",
    "subjects",
    "roleRef",
    "kind",
    "apiGroup",
    "apiGroups",
    "verbs",
    "nonResourceURLs",
    "webhooks",
    "clientConfig",
    "limited",
    "limitResponse",
    "queuing",
    "metrics",
    "currentMetrics",
    "target",
    "averageUtilization",
    "behavior",
    "scaleUp",
    "policies",
    "accessModes",
    "capacity",
    "hard",
    "used",
    "claimRef",
    "hostPath",
    "path",
    "volumeName",
    "usages",
    "signerName",
    "request",
    "eventTime",
    "series",
    "count",
    "involvedObject",
    "regarding",
    "startTime",
    "completionTime",
    "containerStatuses",
    "initContainerStatuses",
    "state",
    "terminated",
    "waiting",
    "running",
    "exitCode",
    "started",
    "ready",
    "restartCount",
    "lastState",
    "finishedAt",
    "taints",
    "unschedulable",
    "priority",
    "priorityClassName",
    "value",
    "min",
    "max",
    "default",
    "defaultRequest",
    "limits",
    "driver",
    "parameters",
    "volumeClaimTemplates",
    "persistentVolumeClaimRetentionPolicy",
    "serviceAccountName",
    "nodeName",
    "hostNetwork",
];

const TEXTS: &[&str] = &[
    "",
    "a",
    "Always",
    "Never",
    "RollingUpdate",
    "ClusterIP",
    "NodePort",
    "LoadBalancer",
    "ExternalName",
    "None",
    "ClientIP",
    "25%",
    "1Gi",
    "500m",
    "much",
    "IPv4",
    "10.1.2.3",
    "Container",
    "Resource",
    "cpu",
    "True",
    "False",
    "Ready",
    "Complete",
    "Limited",
    "Queue",
    "User",
    "ServiceAccount",
    "Role",
    "In",
    "Exists",
    "Indexed",
    "* * * * *",
    "2026-01-01T00:00:00Z",
    "Succeeded",
    "Bound",
    "kubernetes",
    "example.com/x",
    "é\u{0}",
    "Terminating",
];

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-3_i64..200).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(TEXTS).prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(8, 96, 8, |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            3 => prop::collection::vec((prop::sample::select(FIELDS), inner), 0..8)
                .prop_map(|members| Value::Object(members.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())),
        ]
    })
}

/// Generates a document with the outline of an object.
fn any_object() -> impl Strategy<Value = Value> {
    (any_value(), any_value(), any_value(), any_value()).prop_map(|(metadata, spec, status, rest)| {
        let mut members = match rest {
            Value::Object(members) => members,
            _ => Map::new(),
        };
        members.insert("metadata".into(), metadata);
        members.insert("spec".into(), spec);
        members.insert("status".into(), status);
        Value::Object(members)
    })
}

fn targets() -> impl Iterator<Item = Target<'static>> {
    RESOURCES.iter().flat_map(|(group, version, resource)| {
        [
            None,
            Some("status"),
            Some("finalize"),
            Some("approval"),
            Some("resize"),
            Some("ephemeralcontainers"),
            Some("scale"),
        ]
        .map(|subresource| Target { group, version, resource, subresource })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn no_document_makes_a_rule_panic(
        new in prop_oneof![any_object(), any_value()],
        old in prop_oneof![any_object(), any_value()],
    ) {
        let user = UserInfo::default();
        let context = Context { now: now(), user: &user };
        for target in targets() {
            let mut created = new.clone();
            kinds::apply_defaults(target, &mut created);
            kinds::prepare_for_create(target, &mut created, &context);
            let mut updated = new.clone();
            kinds::prepare_for_update(target, &mut updated, &old, &context);
            for object in [&new, &created, &updated] {
                let _ = kinds::validate(target, object);
                let _ = kinds::validate_update(target, object, &old, None);
                let _ = kinds::warnings(target, object, Some(&old));
                prop_assert_eq!(
                    kinds::selectable_fields(target, object).len(),
                    kinds::selectable_field_names(target).len()
                );
                // Upstream prints an age of IPAddresses without a column for it.
                let ages = usize::from(target.resource == "ipaddresses");
                let cells = kinds::cells(target, object, now()).len();
                prop_assert_eq!(cells, kinds::columns(target).len() + ages);
                let _ = kinds::row_conditions(target, object);
                let scale = kinds::scale::scale_of(target, object);
                kinds::scale::apply_scale(&scale, &mut created.clone());
            }
        }
        for version in ["v1", "v2"] {
            let _ = kinds::convert::convert("autoscaling", version, "HorizontalPodAutoscaler", &new);
        }
    }

    #[test]
    fn defaults_of_defaults_are_the_same(object in any_object()) {
        for target in targets() {
            let mut once = object.clone();
            kinds::apply_defaults(target, &mut once);
            let mut twice = once.clone();
            kinds::apply_defaults(target, &mut twice);
            prop_assert_eq!(twice, once, "{:?}", target);
        }
    }

    #[test]
    fn an_update_with_the_stored_object_changes_nothing(object in any_object()) {
        stays_under_updates(&object);
    }
}

fn stays_under_updates(object: &Value) {
    let user = UserInfo::default();
    let context = Context { now: now(), user: &user };
    for (group, version, resource) in RESOURCES {
        let target = Target { group, version, resource, subresource: None };
        let mut stored = object.clone();
        kinds::apply_defaults(target, &mut stored);
        kinds::prepare_for_create(target, &mut stored, &context);
        let name = stored["metadata"]["name"].as_str().unwrap_or_default();
        if resource == "jobs" && !names::label_value(name).is_empty() {
            continue; // The template's label with the job's name is refused, so that nothing is stored.
        }
        let mut again = stored.clone();
        kinds::prepare_for_update(target, &mut again, &stored, &context);
        assert_eq!(again, stored, "{target:?}");
    }
}

/// Regression test: an update gave an address to a service whose list of addresses contains none, and left the list as it was.
#[test]
fn contradicting_addresses_of_a_service_stay_for_validation_to_refuse() {
    stays_under_updates(&json!({"spec": {"clusterIPs": [null]}}));
}

/// A kind without generations keeps its stored generation, even if it is null.
#[test]
fn a_stored_null_in_the_metadata_stays() {
    stays_under_updates(&json!({"metadata": {"generation": null}, "spec": {}, "status": null}));
}

/// Defaults only fill absent values. A pointer to an empty text is present, and validation refuses it if it is invalid.
#[test]
fn an_empty_text_behind_a_pointer_gets_no_default() {
    let catalog = Catalog::with_custom(&[]);
    for (group, version, resource) in RESOURCES {
        let target = Target { group, version, resource, subresource: None };
        let kind = &catalog.find(group, version, resource).unwrap().kind;
        let mut paths = Vec::new();
        pointers_to_text(
            &builtin(group, version, kind).unwrap(),
            &mut Vec::new(),
            &mut Vec::new(),
            &mut paths,
        );
        for path in paths {
            let mut object = path.iter().rfold(json!(""), |inner, step| match step.as_str() {
                "0" => json!([inner]),
                member => json!({member: inner}),
            });
            kinds::apply_defaults(target, &mut object);
            let path = format!("/{}", path.join("/"));
            assert_eq!(object.pointer(&path), Some(&json!("")), "{resource} {path}");
        }
    }
}

/// Collects the paths of all fields of a schema that are pointers to texts. Recursive definitions are entered once.
fn pointers_to_text(
    schema: &Schema,
    inside: &mut Vec<Arc<str>>,
    path: &mut Vec<String>,
    found: &mut Vec<Vec<String>>,
) {
    let name = schema.name.clone().unwrap_or_default();
    if !name.is_empty() && inside.contains(&name) {
        return;
    }
    inside.push(name);
    match &schema.node {
        Node::Object(object) => {
            for (member, property) in &object.properties {
                path.push(member.to_string());
                if property.pointer && matches!(property.schema.node, Node::String(_)) {
                    found.push(path.clone());
                }
                pointers_to_text(&property.schema, inside, path, found);
                path.pop();
            }
        }
        Node::List(list) => {
            path.push("0".into());
            pointers_to_text(&list.items, inside, path, found);
            path.pop();
        }
        Node::Map(map) => {
            path.push("key".into());
            pointers_to_text(&map.values, inside, path, found);
            path.pop();
        }
        _ => {}
    }
    inside.pop();
}
