//! Chains of several collectors (spec 24), and their failures: each is visible as an Event, a condition or a message, and a metric,
//! and deletes nothing.

use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::collectors::{PATIENCE, Up, bound, claim};
use super::*;
use crate::driver::Driver;

const DRIVER: &str = "disk.example.com";

fn csi(handle: &str) -> Value {
    json!({"csi": {"driver": DRIVER, "volumeHandle": handle}})
}

fn provisioned() -> Value {
    json!({"pv.kubernetes.io/provisioned-by": DRIVER})
}

/// Returns the driver's flags.
fn flags(driver: &Driver) -> Vec<String> {
    vec!["--csi-endpoint".to_owned(), driver.endpoint()]
}

/// Returns a pod on a node, with a claim.
fn pod(name: &str, node: &str, claim: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"nodeName": node,
        "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}})
}

/// X-T02: a pod of a set is stuck on a dead node until an operator declares the node dead; its successor is another pod.
#[test]
fn a_pod_of_a_dead_node_goes_and_its_successor_stays() {
    let mut driver = Driver::start(DRIVER);
    driver.make_volume("data");
    let Some(up) = Up::start(&flags(&driver)) else { return };
    for (node, ready) in [("dead", "Unknown"), ("alive", "True")] {
        up.apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}));
        up.status(&format!("node/{node}"), &json!({"conditions": [{"type": "Ready", "status": ready}]}));
    }
    bound(&up, "data", "Delete", &csi("data"), &provisioned());
    let running = |up: &Up, name: &str, node: &str| {
        up.apply(&pod(name, node, "data"));
        up.status(&format!("pod/{name}"), &json!({"phase": "Running"}));
    };
    running(&up, "web-0", "dead");
    running(&up, "witness", "dead");
    up.run(&["delete", "pod", "web-0", "--wait=false"]);
    // Its end is not confirmed, and nothing declares the node dead: the pod stays, even after a long time.
    up.pass(Duration::from_mins(10));
    up.until_metric("kubegc_collector_synced{controller=\"pod-garbage-collector-controller\"} 1");
    assert!(!up.field("pod/web-0", ".metadata.deletionTimestamp").is_empty());
    up.run(&["taint", "node", "dead", "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"]);
    up.until_gone("pod/web-0");
    let line = |count| {
        format!(
            "pod_gc_collector_force_delete_pods_total{{namespace=\"default\",reason=\"out-of-service\"}} {count}"
        )
    };
    up.until_metric(&line(1));
    running(&up, "web-0", "alive");
    let successor = up.field("pod/web-0", ".metadata.uid");
    up.pass(Duration::from_mins(10));
    // The collector has reconciled again when the next one is deleted.
    up.run(&["delete", "pod", "witness", "--wait=false"]);
    up.until_gone("pod/witness");
    up.until_metric(&line(2));
    assert_eq!(up.field("pod/web-0", ".metadata.uid"), successor);
    assert_eq!(up.field("pv/data", ".status.phase"), "Bound");
    assert!(driver.has_volume("data") && driver.state().deletions.is_empty());
    driver.stop();
}

/// X-T03, EV-T03: a namespace is deleted with everything in it: pods first, then claims with their storage, and Jobs with their
/// pods; objects that finalizers hold are reported at each step.
#[test]
fn a_namespace_goes_in_order_and_takes_its_storage_along() {
    let driver = Driver::start(DRIVER);
    driver.make_volume("data");
    let Some(up) = Up::start(&flags(&driver)) else { return };
    kubectl(&up.server, &["apply", "-f", "-"], CUSTOM);
    up.until("widgets", || super::run(&up.server, &["get", "widgets"], "").success);
    up.run(&["create", "namespace", "shop"]);
    up.run(&["config", "set-context", "--current", "--namespace=shop"]);
    let mut volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "data", "annotations": provisioned()},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
            "persistentVolumeReclaimPolicy": "Delete", "csi": {"driver": DRIVER, "volumeHandle": "data"}}});
    let mut data = claim("data");
    data["spec"]["volumeName"] = "data".into();
    up.apply(&data);
    let uid = up.field("pvc/data", ".metadata.uid");
    volume["spec"]["claimRef"] = json!({"namespace": "shop", "name": "data", "uid": uid});
    up.apply(&volume);
    up.status("pv/data", &json!({"phase": "Bound"}));
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    up.apply(&json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": {"template": template}}));
    let job = up.field("job/job", ".metadata.uid");
    let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": job, "controller": true,
        "blockOwnerDeletion": true});
    let mut of_job = template;
    of_job["apiVersion"] = "v1".into();
    of_job["kind"] = "Pod".into();
    of_job["metadata"] = json!({"name": "job-1", "ownerReferences": [owner]});
    up.apply(&of_job);
    let mut held = pod("held", "", "data");
    held["spec"].as_object_mut().unwrap().remove("nodeName");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    up.apply(&held);
    up.apply(
        &json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "reported", "namespace": "shop"},
        "reason": "Reported", "involvedObject": {"kind": "Pod", "name": "held", "namespace": "shop"}}),
    );
    up.apply(&json!({"apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "w", "finalizers": ["example.com/hold"]}, "spec": {"size": 1}}));

    up.run(&["delete", "namespace", "shop", "--wait=false"]);
    let condition =
        |kind: &str| up.field("ns/shop", &format!(".status.conditions[?(@.type==\"{kind}\")].message"));
    let release = |object: &str| {
        up.run(&["patch", object, "--type=merge", "-p", "{\"metadata\":{\"finalizers\":null}}"]);
    };
    let remaining = |words: &str| {
        let message = format!("Some resources are remaining: {words} has 1 resource instances");
        up.until(words, || condition("NamespaceContentRemaining") == message);
        assert_eq!(
            condition("NamespaceFinalizersRemaining"),
            "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
        );
    };
    remaining("pods.");
    // Nothing else is touched until the last pod is gone.
    for object in ["pvc/data", "job/job", "widget/w"] {
        assert_eq!(up.field(object, ".metadata.deletionTimestamp"), "", "{object}");
    }
    assert!(!up.exists("pod/job-1") && driver.has_volume("data"));
    assert_eq!(up.field("pv/data", ".status.phase"), "Bound");
    release("pod/held");
    up.until_gone("pvc/data");
    up.until_gone("job/job");
    up.until_gone("pv/data");
    assert!(!driver.has_volume("data"));
    remaining("widgets.example.com");
    release("widget/w");
    up.until_gone("ns/shop");
    assert_eq!(up.run(&["get", "events", "-o", "name"]), "", "EV-T03");
    up.until_metric("kubegc_namespace_termination_duration_seconds_count 1");
}

/// X-T04: an object that two collectors delete at the same moment is deleted, and neither reports a failure.
#[test]
fn two_collectors_may_want_the_same_job() {
    const JOBS: usize = 12;
    let Some(up) = Up::start(&[]) else { return };
    let time = "2026-01-01T00:00:00Z";
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": time, "lastProbeTime": time});
    up.apply(&json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "often"}, "spec": {
        "schedule": "* * * * *", "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1,
        "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}}}));
    let cron = up.field("cronjob/often", ".metadata.uid");
    for number in 0..JOBS {
        let name = format!("often-{number}");
        up.apply(&json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "CronJob", "name": "often", "uid": cron, "controller": true}]},
            "spec": {"ttlSecondsAfterFinished": 100_000_000, "template": {"spec": {"restartPolicy": "Never",
                "containers": [{"name": "c", "image": "i"}]}}}}));
        let conditions = [condition("SuccessCriteriaMet"), condition("Complete")];
        up.status(
            &format!("job/{name}"),
            &json!({"startTime": time, "completionTime": time, "conditions": conditions}),
        );
    }
    up.apply(&json!({"apiVersion": "kubegc.io/v1alpha1", "kind": "RetentionPolicy", "metadata": {"name": "history"}, "spec": {
        "target": {"apiVersion": "batch/v1", "kind": "Job"}, "maxAge": "24000h", "enforce": true}}));
    up.until("the first look", || {
        up.field("retentionpolicy/history", ".status.selected") == JOBS.to_string()
    });
    up.until_metric("kubegc_collector_waiting{controller=\"ttl-after-finished-controller\"} 12");
    up.pass(Duration::from_secs(100_000_000));
    up.until("the end of all", || up.run(&["get", "jobs", "-o", "name"]).is_empty());
    up.until_metric("kubegc_collector_waiting{controller=\"ttl-after-finished-controller\"} 0");
    let shown = up.shown();
    let effects = shown.lines().filter(|line| line.starts_with("kubegc_collector_requests_total"));
    let mut deleted = 0;
    for line in effects.filter(|line| line.contains("verb=\"delete\"")) {
        assert!(!line.contains("failed") && !line.contains("refused"), "{line}");
        if line.contains("outcome=\"applied\"") {
            deleted += line.rsplit(' ').next().unwrap().parse::<usize>().unwrap();
        }
    }
    // Of two requests for the same foreground deletion, both may be granted.
    assert!(deleted >= JOBS, "{shown}");
    assert_eq!(up.field("retentionpolicy/history", ".status.lastRun.failed"), "0");
    assert!(up.exists("cronjob/often"));
}

/// CSI-T14, CSI-T16, CSI-T17: missing secrets, a missing class, and a class whose template needs values that only the claim had
/// delay no deletion.
#[test]
fn storage_goes_without_secrets_that_are_not_there() {
    let driver = Driver::start(DRIVER);
    let Some(up) = Up::start(&flags(&driver)) else { return };
    let mut missing = provisioned();
    missing["volume.kubernetes.io/provisioner-deletion-secret-name"] = "none".into();
    missing["volume.kubernetes.io/provisioner-deletion-secret-namespace"] = "default".into();
    for (name, annotations, says) in
        [("secret", missing, true), ("class", provisioned(), false), ("template", provisioned(), true)]
    {
        if name == "template" {
            up.apply(&json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"},
                "provisioner": DRIVER, "parameters": {
                    "csi.storage.k8s.io/provisioner-secret-name": "${pvc.annotations['team']}",
                    "csi.storage.k8s.io/provisioner-secret-namespace": "default"}}));
        }
        driver.make_volume(name);
        bound(&up, name, "Delete", &csi(name), &annotations);
        up.run(&["delete", "pvc", name, "--timeout=20s"]);
        up.until_gone(&format!("pv/{name}"));
        let asked = driver.state().deletions.last().cloned();
        assert_eq!(asked, Some((name.to_owned(), std::collections::HashMap::new())));
        assert!(!driver.has_volume(name));
        if says {
            up.until_event(name, "Warning", "VolumeDeletionSecret", "persistentvolume-controller");
        }
    }
}

/// Throttling by EC2 deletes nothing, and is visible; when EC2 answers again, its answers count.
#[test]
fn an_ec2_that_throttles_deletes_nothing_and_recovers() {
    const SOURCE: &str = "cloud-node-lifecycle-controller";
    const THROTTLED: &str = "<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>Request limit \
        exceeded.</Message></Error></Errors></Response>";
    let answer = Arc::new(Mutex::new((503, THROTTLED.to_owned())));
    let said = Arc::clone(&answer);
    // It gives the same answer to everything.
    let url =
        machines::serve(TcpListener::bind("127.0.0.1:0").unwrap(), move |_| said.lock().unwrap().clone());
    let arguments = [
        "--cloud-aws-region=us-east-1".to_owned(),
        format!("--cloud-aws-endpoint={url}"),
        "--cloud-timeout=5s".into(),
    ];
    let credentials = [("AWS_ACCESS_KEY_ID", "k"), ("AWS_SECRET_ACCESS_KEY", "s")];
    let Some(up) = Up::start_under(&credentials, &arguments) else { return };
    for (name, instance) in [("one", "i-00000001"), ("two", "i-00000002")] {
        up.apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "spec": {"providerID": format!("aws:///us-east-1a/{instance}")}}));
        up.status(&format!("node/{name}"), &json!({"conditions": [{"type": "Ready", "status": "Unknown"}]}));
    }
    let reported = |up: &Up, words: &str| {
        let selector = "involvedObject.name=two,reason=NodeLookupFailed";
        let said =
            up.run(&["get", "events", "--field-selector", selector, "-o", "jsonpath={.items[*].message}"]);
        said.contains(words)
    };
    up.until("the throttling", || reported(&up, "EC2: throttled ("));
    up.until_event("two", "Warning", "NodeLookupFailed", SOURCE);
    up.until("the count", || up.shown().contains("kubegc_node_lookups_total{answer=\"error\"}"));
    // Even hours of throttling prove nothing.
    for _ in 0..6 {
        up.pass(Duration::from_hours(1));
        std::thread::sleep(Duration::from_millis(200));
    }
    up.until_metric("kubegc_nodes_missing 0");
    assert!(up.exists("node/one") && up.exists("node/two"));
    assert!(!up.shown().contains("answer=\"absent\""), "{}", up.shown());

    *answer.lock().unwrap() = (200, machines::ONE_RUNS.to_owned());
    let deadline = Instant::now() + PATIENCE + Duration::from_mins(1);
    while up.exists("node/two") {
        assert!(Instant::now() < deadline, "it does not recover:\n{}", up.shown());
        up.pass(Duration::from_mins(5));
        std::thread::sleep(Duration::from_millis(500));
    }
    up.until_event("two", "Normal", "DeletingNode", SOURCE);
    assert!(up.exists("node/one"));
}

/// An invalid policy, one whose kind is not served, one whose condition fails, and an unreadable annotation: each is reported by an
/// Event and a metric, and for policies also in their conditions; nothing is deleted.
#[test]
fn bad_policies_and_annotations_are_told_and_delete_nothing() {
    const SOURCE: &str = "retention-policy-controller";
    let Some(up) = Up::start(&["--controllers=*,expiry-controller".to_owned()]) else { return };
    for (name, ttl) in [("wrong", "2 days"), ("fine", "48h")] {
        up.apply(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name,
            "annotations": {"kubegc.io/ttl": ttl}, "labels": {"app": "web"}}}));
    }
    let policy_of = |name: &str, kind: &str, more: &Value| {
        let mut object = json!({"apiVersion": "kubegc.io/v1alpha1", "kind": "RetentionPolicy", "metadata": {"name": name},
            "spec": {"target": {"apiVersion": "v1", "kind": kind}, "selector": {"matchLabels": {"app": "web"}},
                "maxAge": "1h", "enforce": true}});
        for (field, value) in more.as_object().unwrap() {
            object["spec"][field] = value.clone();
        }
        object
    };
    // The server refuses an object that the check refuses.
    let refusal =
        up.refused(&policy_of("invalid", "ConfigMap", &json!({"condition": "object.metadata.name =="})));
    assert!(refusal.contains("spec.condition: Invalid value: Syntax error"), "{refusal}");
    up.apply(&policy_of("unserved", "Gadget", &json!({})));
    up.apply(&policy_of("failing", "ConfigMap", &json!({"condition": "object.data.size > 3"})));
    for (name, reason, condition, status) in [
        ("unserved", "PolicyNotObserving", "Observing", "False"),
        ("failing", "PolicyFailing", "Failing", "True"),
    ] {
        up.until_event(name, "Warning", reason, SOURCE);
        let path = format!(".status.conditions[?(@.type==\"{condition}\")].status");
        up.until(condition, || up.field(&format!("retentionpolicy/{name}"), &path) == status);
    }
    up.until_metric("kubegc_retention_policies{state=\"failing\"} 2");
    up.until_event("wrong", "Warning", "InvalidRetentionAnnotation", "expiry-controller");
    up.until("the count of Events", || {
        up.shown().contains("kubegc_collector_events_total{controller=\"expiry-controller\",reason=\"InvalidRetentionAnnotation\"")
    });
    up.pass(Duration::from_hours(100));
    // The same time has passed for the collectors.
    up.until_gone("configmap/fine");
    assert!(up.exists("configmap/wrong"));
}
