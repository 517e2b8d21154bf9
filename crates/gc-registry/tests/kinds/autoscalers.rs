//! Tests autoscalers in both versions, including the annotations of v1.

use gc_registry::api::UserInfo;
use gc_registry::kinds::{self, Context, convert::convert};
use serde_json::{Value, json};

use crate::{now, target};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const CURRENT: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const V1: &str = "autoscaling/v1/horizontalpodautoscalers";

fn to_v1(object: &Value) -> Value {
    convert("autoscaling", "v1", "HorizontalPodAutoscaler", object)
}

fn to_v2(object: &Value) -> Value {
    convert("autoscaling", "v2", "HorizontalPodAutoscaler", object)
}

fn decoded(object: Value) -> Value {
    let mut object = object;
    kinds::apply_defaults(target(V1), &mut object);
    object
}

/// Returns an autoscaler of v1 with an annotation.
fn annotated(name: &str, text: &str) -> Value {
    json!({
        "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "h", "annotations": {name: text, "own": "kept"}},
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}},
    })
}

#[test]
fn metrics_are_annotations_in_the_form_of_v1() {
    let text = concat!(
        r#"[{"type":"Resource","resource":{"name":"memory","targetAverageValue":"1"}},"#,
        r#"{"type":"Object","object":{"target":{"kind":"X","name":"y"},"metricName":"o","targetValue":"0","#,
        r#""selector":{"matchLabels":{"a":"b"}},"averageValue":"2"}},"#,
        r#"{"type":"ContainerResource","containerResource":{"name":"cpu","targetAverageUtilization":5,"container":"c"}},"#,
        r#"{"type":"External","external":{"metricName":"e","targetValue":"7"}},"#,
        r#"{"type":"Pods","pods":{"metricName":"p","targetAverageValue":"5"}}]"#,
    );
    let metrics = json!([
        {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1"}}},
        {"type": "Object", "object": {"describedObject": {"kind": "X", "name": "y"},
            "metric": {"name": "o", "selector": {"matchLabels": {"a": "b"}}},
            "target": {"type": "AverageValue", "averageValue": "2"}}},
        {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c",
            "target": {"type": "Utilization", "averageUtilization": 5}}},
        {"type": "External", "external": {"metric": {"name": "e"}, "target": {"type": "Value", "value": "7"}}},
        {"type": "Pods", "pods": {"metric": {"name": "p"}, "target": {"type": "AverageValue", "averageValue": "5"}}},
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
    ]);
    let two =
        json!({"apiVersion": "autoscaling/v2", "metadata": {"name": "h"}, "spec": {"metrics": metrics}});
    let one = to_v1(&two);
    assert_eq!(one["metadata"]["annotations"], json!({METRICS: text}));
    assert_eq!(one["spec"], json!({"targetCPUUtilizationPercentage": 50}));
    assert_eq!(to_v2(&one), two);
}

#[test]
fn the_status_and_the_behavior_are_annotations_as_go_writes_them() {
    let two = json!({
        "apiVersion": "autoscaling/v2", "metadata": {"name": "h"},
        "spec": {"behavior": {"scaleDown": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 10}]}}},
        "status": {
            "conditions": [{"type": "A<B", "status": "True", "lastTransitionTime": null, "reason": "R"}],
            "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 77}}}],
        },
    });
    let one = to_v1(&two);
    let wanted = json!({
        BEHAVIOR: concat!(
            r#"{"ScaleUp":null,"ScaleDown":{"StabilizationWindowSeconds":null,"SelectPolicy":null,"#,
            r#""Policies":[{"Type":"Pods","Value":1,"PeriodSeconds":10}],"Tolerance":null}}"#,
        ),
        CONDITIONS: r#"[{"type":"A\u003cB","status":"True","lastTransitionTime":null,"reason":"R"}]"#,
        CURRENT: r#"[{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":77,"currentAverageValue":"0"}}]"#,
    });
    assert_eq!(one["metadata"]["annotations"], wanted);
    assert_eq!(one["status"], json!({"currentReplicas": 0, "currentCPUUtilizationPercentage": 77}));
}

#[test]
fn annotations_without_the_form_are_dropped() {
    let pods = r#"[{"type":"Pods","pods":{"metricName":"m","targetAverageValue":"1"}}]"#;
    for (name, text, kept) in [
        (METRICS, "x", None),
        (METRICS, "[]", None),
        (METRICS, r#"[{"type":1}]"#, None),
        (METRICS, pods, Some(pods)),
        (BEHAVIOR, "x", None),
        (BEHAVIOR, "{}", None),
        (CONDITIONS, r#"{"type":"A"}"#, None),
        ("autoscaling.alpha.kubernetes.io/scale-up-tolerance", "1", None),
    ] {
        let object = decoded(annotated(name, text));
        let annotations = &object["metadata"]["annotations"];
        assert_eq!(
            (annotations[name].as_str(), &annotations["own"]),
            (kept, &json!("kept")),
            "{name} {text}"
        );
        // Without another metric, CPU usage is the default.
        let percent = object["spec"].get("targetCPUUtilizationPercentage");
        assert_eq!(percent, kept.is_none().then_some(&json!(80)), "{name} {text}");
    }
}

#[test]
fn the_behavior_of_an_annotation_is_checked_as_that_of_v2() {
    let object = decoded(annotated(BEHAVIOR, r#"{"scaleup":{"stabilizationWindowSeconds":3}}"#));
    let problems = kinds::validate(target(V1), &object);
    let fields: Vec<&str> = problems.iter().map(|problem| problem.field.as_str()).collect();
    assert_eq!(fields, ["spec.behavior.scaleUp.policies"]);
}

#[test]
fn annotations_belong_to_the_spec_or_to_the_status() {
    let user = UserInfo::default();
    let context = Context { now: now(), user: &user };
    let conditions = r#"[{"type":"A","status":"True","lastTransitionTime":null}]"#;
    let mut new = decoded(annotated(CONDITIONS, conditions));
    kinds::prepare_for_create(target(V1), &mut new, &context);
    assert_eq!(new["metadata"]["annotations"], json!({"own": "kept"}));

    let pods = r#"[{"type":"Pods","pods":{"metricName":"m","targetAverageValue":"1"}}]"#;
    let old = decoded(annotated(METRICS, pods));
    let status = format!("{V1}/status");
    let mut new = decoded(annotated(CONDITIONS, conditions));
    kinds::prepare_for_update(target(&status), &mut new, &old, &context);
    let wanted = json!({METRICS: pods, CONDITIONS: conditions, "own": "kept"});
    assert_eq!(new["metadata"]["annotations"], wanted);

    let mut back = decoded(annotated("other", "x"));
    kinds::prepare_for_update(target(V1), &mut back, &new, &context);
    assert_eq!(back["metadata"]["annotations"], json!({CONDITIONS: conditions, "other": "x", "own": "kept"}));
}
