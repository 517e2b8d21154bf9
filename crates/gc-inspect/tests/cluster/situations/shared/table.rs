//! The situations with their right answers.

use serde_json::json;

use super::objects::{
    claim, conditions, converted_definition, definition, deployment, held, job, map, node, object, pod,
    volume,
};
use super::{Situation, further};

pub(super) const TEN_MINUTES: i64 = 600;

/// Returns the situation of a living ConfigMap, which those below modify.
pub(crate) const fn map_situation(name: &'static str) -> Situation {
    Situation {
        name,
        make: Vec::new(),
        delete: &[],
        ask: "cm/a",
        later_seconds: 0,
        stuck: &[],
        why: ("NoOwners", "It will not be collected"),
        plan: "1 object: 1 ConfigMap; nothing gets stuck",
    }
}

/// Returns all situations, for one cluster, each in its own namespace.
pub(crate) fn situations() -> Vec<Situation> {
    let base = map_situation;
    let mut all = vec![
        Situation { make: vec![map("a", json!({}))], ..base("a living object without owners") },
        Situation {
            make: vec![map("o", json!({})), map("a", json!({"owners": ["ConfigMap/o"]}))],
            why: ("OwnerLives", "an owner lives"),
            ..base("a living owner")
        },
        Situation {
            make: vec![
                map("a", json!({})),
                map("b", json!({"owners": ["ConfigMap/a"]})),
                map("c", json!({"owners": ["ConfigMap/b"]})),
            ],
            plan: "3 objects: 3 ConfigMaps; nothing gets stuck",
            ..base("an owner with a chain of dependents")
        },
        Situation {
            make: vec![
                map("a", json!({})),
                map("o", json!({})),
                map("b", json!({"owners": ["ConfigMap/a", "ConfigMap/o"]})),
            ],
            plan: "1 object: 1 ConfigMap; 1 released; nothing gets stuck",
            ..base("a dependent with another living owner")
        },
        Situation {
            make: vec![map("a", json!({"owners": ["ConfigMap/gone"]}))],
            why: ("ToBeDeleted", "OwnersAbsent"),
            ..base("an owner that is gone")
        },
        Situation {
            make: vec![map("o", json!({})), map("a", json!({"owners": ["ConfigMap/gone", "ConfigMap/o"]}))],
            why: ("ToLoseReferences", "ReferencesDead"),
            ..base("one owner gone and one alive")
        },
        Situation {
            make: vec![map("a", json!({"owners": ["Unserved/x"]}))],
            stuck: &["OwnerUnreadable ConfigMap/a"],
            why: ("Undecidable", "cannot be looked up"),
            ..base("an owner of a kind that is not served")
        },
        Situation {
            make: vec![map("a", held())],
            plan: "1 object: 1 ConfigMap; 1 stuck",
            ..base("a living object with a finalizer")
        },
        Situation {
            make: vec![map("a", held())],
            delete: &[("cm/a", "Background")],
            stuck: &["FinalizerHeld ConfigMap/a"],
            why: ("BeingDeleted", "finalizer widgets.acme.dev/hold, set by kubegc"),
            plan: "1 object: 1 ConfigMap; 1 stuck",
            ..base("a finalizer without a controller")
        },
        Situation {
            make: vec![map("a", held()), map("b", held())],
            delete: &[("cm/a", "Background"), ("cm/b", "Background")],
            stuck: &["FinalizerHeld ConfigMap/a,ConfigMap/b"],
            why: ("BeingDeleted", "FinalizerHeld"),
            plan: "1 object: 1 ConfigMap; 1 stuck",
            ..base("two objects with one cause are one row")
        },
        Situation {
            make: vec![map("a", held()), map("b", held())],
            delete: &[("cm/a", "Background"), ("cm/b", "Background")],
            ask: "cm/b",
            stuck: &["FinalizerHeld ConfigMap/a,ConfigMap/b"],
            why: ("BeingDeleted", "FinalizerHeld"),
            plan: "1 object: 1 ConfigMap; 1 stuck",
            ..base("the second of two objects with one cause")
        },
        Situation {
            make: vec![map("a", held()), map("b", json!({"owners": ["ConfigMap/a"]}))],
            plan: "2 objects: 2 ConfigMaps; 1 deleted later; 1 stuck",
            ..base("a dependent behind the finalizer of its owner")
        },
        Situation {
            make: vec![
                map("a", json!({})),
                map("b", json!({"owners": ["ConfigMap/a!"], "finalizers": ["widgets.acme.dev/hold"]})),
            ],
            delete: &[("cm/b", "Background"), ("cm/a", "Foreground")],
            stuck: &["FinalizerHeld ConfigMap/b <- ConfigMap/a"],
            why: ("WaitsForDependents", "waits for ConfigMap/b: FinalizerHeld"),
            plan: "2 objects: 2 ConfigMaps; 1 stuck",
            ..base("a foreground deletion that waits for a leaf")
        },
        Situation {
            make: vec![
                map("a", json!({})),
                map("b", json!({"owners": ["ConfigMap/a!"]})),
                map("c", json!({"owners": ["ConfigMap/b!"], "finalizers": ["widgets.acme.dev/hold"]})),
            ],
            delete: &[("cm/c", "Background"), ("cm/b", "Foreground"), ("cm/a", "Foreground")],
            stuck: &["FinalizerHeld ConfigMap/c <- ConfigMap/a,ConfigMap/b"],
            why: ("WaitsForDependents", "waits for ConfigMap/c: FinalizerHeld"),
            plan: "3 objects: 3 ConfigMaps; 2 stuck",
            ..base("a foreground deletion over two levels")
        },
        Situation {
            make: vec![map("a", json!({})), map("b", json!({"owners": ["ConfigMap/a!"]}))],
            delete: &[("cm/a", "Foreground")],
            stuck: &["DependentNotDeleted ConfigMap/a"],
            why: ("WaitsForDependents", "waits for ConfigMap/b, which nothing deletes"),
            plan: "2 objects: 2 ConfigMaps; nothing gets stuck",
            later_seconds: 60,
            ..base("a foreground deletion without a collector")
        },
        Situation {
            make: vec![map("a", json!({}))],
            delete: &[("cm/a", "Foreground")],
            stuck: &["CollectorAbsent ConfigMap/a"],
            why: ("WaitsForDependents", "no garbage collector removes the finalizer foregroundDeletion"),
            plan: "1 object: 1 ConfigMap; nothing gets stuck",
            later_seconds: 60,
            ..base("a foreground deletion with nothing to wait for")
        },
        Situation {
            make: vec![map("a", json!({"finalizers": ["foregroundDeletion"]}))],
            delete: &[("cm/a", "Foreground")],
            stuck: &["ForegroundFinalizerApplied ConfigMap/a"],
            why: ("WaitsForDependents", "field manager kubegc applied the finalizer"),
            plan: "1 object: 1 ConfigMap; nothing gets stuck",
            ..base("a tool that applies foregroundDeletion")
        },
        Situation {
            make: vec![map("a", json!({})), map("b", json!({"owners": ["ConfigMap/a"]}))],
            delete: &[("cm/a", "Orphan")],
            stuck: &["CollectorAbsent ConfigMap/a"],
            why: ("Orphans", "no garbage collector releases what depends on it: 1 dependent"),
            plan: "2 objects: 2 ConfigMaps; nothing gets stuck",
            later_seconds: 60,
            ..base("an orphaning deletion without a collector")
        },
        Situation {
            make: vec![map("a", json!({})), map("b", json!({"owners": ["ConfigMap/a!"]}))],
            delete: &[("cm/a", "Foreground")],
            why: ("WaitsForDependents", "It is being deleted and waits for 1 blocking dependent."),
            plan: "2 objects: 2 ConfigMaps; nothing gets stuck",
            // Early enough, however long the other situations take to create.
            later_seconds: -600,
            ..base("a foreground deletion that has only begun")
        },
    ];
    all.extend(pods());
    all.extend(due());
    all.extend(storage());
    all.extend(namespaces());
    all.extend(further::situations());
    all
}

fn pods() -> Vec<Situation> {
    let base = |name| Situation {
        delete: &[("pod/p", "Background")],
        ask: "pod/p",
        later_seconds: TEN_MINUTES,
        plan: "1 object: 1 Pod; 1 stuck",
        ..map_situation(name)
    };
    vec![
        Situation {
            make: vec![node("ready-0", "True"), pod("p", "ready-0", json!({}))],
            later_seconds: 0,
            why: ("InGracePeriod", "its grace period of 30 s ends in"),
            plan: "1 object: 1 Pod; nothing gets stuck",
            ..base("a pod in its grace period")
        },
        Situation {
            make: vec![node("ready-1", "True"), pod("p", "ready-1", held())],
            later_seconds: 0,
            why: ("InGracePeriod", "its grace period of 30 s"),
            plan: "1 object: 1 Pod; 1 stuck",
            ..base("a pod with a finalizer in its grace period")
        },
        Situation {
            make: vec![pod("p", "gone-0", json!({}))],
            stuck: &["NodeGone Pod/p"],
            why: ("BeingDeleted", "node gone-0 does not exist"),
            ..base("a pod whose node is gone")
        },
        Situation {
            make: vec![node("silent-0", "Unknown"), pod("p", "silent-0", json!({}))],
            stuck: &["KubeletSilent Pod/p"],
            why: ("BeingDeleted", "the kubelet on node silent-0 is not ready"),
            ..base("a pod whose kubelet is silent")
        },
        Situation {
            make: vec![node("silent-3", "Unknown"), pod("p", "silent-3", json!({}))],
            delete: &[],
            later_seconds: 0,
            ..base("a living pod whose kubelet is silent")
        },
        Situation {
            make: vec![node("ready-2", "True"), pod("p", "ready-2", json!({}))],
            stuck: &["PodPastGrace Pod/p"],
            why: (
                "BeingDeleted",
                "the grace period of 30 s is over and the kubelet on node ready-2 is ready",
            ),
            ..base("a pod that its kubelet does not stop")
        },
        Situation {
            make: vec![
                node("silent-1", "False"),
                pod("p", "silent-1", json!({})),
                pod("q", "silent-1", json!({})),
            ],
            delete: &[("pod/p", "Background"), ("pod/q", "Background")],
            stuck: &["KubeletSilent Pod/p,Pod/q"],
            why: ("BeingDeleted", "KubeletSilent"),
            ..base("two pods of one silent kubelet are one row")
        },
        Situation {
            make: vec![pod("p", "", held())],
            stuck: &["FinalizerHeld Pod/p"],
            why: ("BeingDeleted", "widgets.acme.dev/hold"),
            ..base("a pod without a node that a finalizer holds")
        },
        Situation {
            make: vec![pod(
                "p",
                "",
                json!({"owners": ["Job/gone*"], "finalizers": ["batch.kubernetes.io/job-tracking"]}),
            )],
            stuck: &["JobTrackingFinalizer Pod/p"],
            why: ("BeingDeleted", "Job gone is gone"),
            ..base("a pod of a Job that is gone")
        },
        Situation {
            make: vec![
                job("j", None, -1),
                pod(
                    "p",
                    "",
                    json!({"owners": ["Job/j*"], "finalizers": ["batch.kubernetes.io/job-tracking"]}),
                ),
            ],
            stuck: &["JobTrackingFinalizer Pod/p"],
            why: ("BeingDeleted", "the Job controller has not counted the pod for Job j"),
            ..base("a pod whose Job is not counted")
        },
        Situation {
            make: vec![pod("p", "gone-1", json!({}))],
            delete: &[],
            later_seconds: 0,
            why: ("WillBeDeleted", "will be deleted in 40 s: NodeGone"),
            plan: "1 object: 1 Pod; nothing gets stuck",
            ..base("a living pod whose node is gone")
        },
        Situation {
            make: vec![node("ready-3", "True"), pod("p", "ready-3", json!({}))],
            delete: &[],
            plan: "1 object: 1 Pod; nothing gets stuck",
            ..base("a living pod")
        },
        Situation {
            make: vec![
                node("ready-4", "True"),
                deployment("web", 1),
                pod("p", "ready-4", json!({"owners": ["Deployment/web*!"]})),
            ],
            delete: &[],
            why: ("OwnerLives", "an owner lives"),
            plan: "1 object: 1 Pod; nothing gets stuck",
            ..base("a living pod that its controller recreates")
        },
    ]
}

fn due() -> Vec<Situation> {
    let base =
        |name| Situation { ask: "job/j", plan: "1 object: 1 Job; nothing gets stuck", ..map_situation(name) };
    vec![
        Situation {
            make: vec![job("j", Some(60), 2)],
            why: (
                "WillBeDeleted",
                "s: TTLExpired, Job ttlSecondsAfterFinished 60 (ttl-after-finished-controller)",
            ),
            ..base("a finished Job with a TTL")
        },
        Situation {
            make: vec![job("j", Some(60), 120)],
            why: ("WillBeDeleted", "is due to be deleted now: TTLExpired, Job ttlSecondsAfterFinished 60"),
            ..base("a finished Job whose TTL is over")
        },
        Situation {
            make: vec![job("j", Some(60), -1)],
            why: ("NoOwners", "Nothing deletes it before it has finished"),
            ..base("a running Job with a TTL")
        },
        Situation { make: vec![job("j", None, 120)], ..base("a finished Job without a TTL") },
        Situation {
            make: vec![map("a", json!({"annotations": {"kubegc.io/ttl": "1h"}}))],
            ask: "cm/a",
            why: (
                "WillBeDeleted",
                "ExpiredByAnnotation, its kubegc.io/ttl of 1h (expiry-controller, where kubegc runs it)",
            ),
            plan: "1 object: 1 ConfigMap; nothing gets stuck",
            ..base("an annotation with a time to live")
        },
        Situation {
            make: vec![map("a", json!({"annotations": {"kubegc.io/expires-at": "2020-01-01T00:00:00Z"}}))],
            ask: "cm/a",
            why: ("WillBeDeleted", "is due to be deleted now: ExpiredByAnnotation"),
            plan: "1 object: 1 ConfigMap; nothing gets stuck",
            ..base("an annotation with a time in the past")
        },
        Situation {
            make: vec![map("a", json!({"annotations": {"kubegc.io/ttl": "1h", "kubegc.io/keep": "true"}}))],
            ask: "cm/a",
            plan: "1 object: 1 ConfigMap; nothing gets stuck",
            ..base("an annotation that keeps the object")
        },
        Situation {
            make: vec![map("a", json!({"annotations": {"kubegc.io/ttl": "soon"}}))],
            ask: "cm/a",
            plan: "1 object: 1 ConfigMap; nothing gets stuck",
            ..base("an annotation that cannot be understood")
        },
    ]
}

fn storage() -> Vec<Situation> {
    let base = |name| Situation {
        delete: &[("pvc/d", "Background")],
        ask: "pvc/d",
        plan: "1 object: 1 PersistentVolumeClaim; 1 stuck",
        ..map_situation(name)
    };
    const PROTECTED: &str = "kubernetes.io/pvc-protection";
    let protected = || json!({"finalizers": [PROTECTED]});
    vec![
        Situation {
            make: vec![
                node("ready-5", "True"),
                claim("d", "", protected()),
                pod("p", "ready-5", json!({"volumes": "d"})),
            ],
            stuck: &["ClaimInUse PersistentVolumeClaim/d"],
            why: ("BeingDeleted", "ClaimInUse, in use by Pod p"),
            ..base("a claim that a pod uses")
        },
        Situation {
            make: vec![
                node("ready-6", "True"),
                claim("d", "", protected()),
                pod("p", "ready-6", json!({"volumes": "d"})),
            ],
            delete: &[],
            plan: "1 object: 1 PersistentVolumeClaim; 1 stuck",
            ..base("a living claim that a pod uses")
        },
        Situation {
            make: vec![claim("d", "", protected())],
            stuck: &["ProtectionNotReleased PersistentVolumeClaim/d"],
            why: ("BeingDeleted", "no pod uses the claim"),
            later_seconds: 60,
            ..base("a claim without users and without a protection controller")
        },
        Situation {
            make: vec![
                node("silent-2", "Unknown"),
                claim("d", "", protected()),
                pod("p", "silent-2", json!({"volumes": "d"})),
            ],
            delete: &[("pvc/d", "Background"), ("pod/p", "Background")],
            later_seconds: TEN_MINUTES,
            stuck: &["KubeletSilent Pod/p <- PersistentVolumeClaim/d"],
            why: ("BeingDeleted", "waits for Pod/p: KubeletSilent"),
            plan: "1 object: 1 PersistentVolumeClaim; 1 stuck",
            ..base("a claim that waits for a pod past its grace period")
        },
        Situation {
            make: vec![volume("pv-held", "Retain", &["external-provisioner.volume.kubernetes.io/finalizer"])],
            delete: &[("pv/pv-held", "Background")],
            ask: "pv/pv-held",
            stuck: &[
                "FinalizerHeld PersistentVolume/pv-held",
                "ProtectionNotReleased PersistentVolume/pv-attached,PersistentVolume/pv-held",
            ],
            why: ("BeingDeleted", "the CSI external-provisioner of the driver removes it"),
            plan: "1 object: 1 PersistentVolume; 1 stuck",
            later_seconds: 60,
            ..base("a volume that waits for its provisioner")
        },
    ]
}

fn namespaces() -> Vec<Situation> {
    let base = |name| Situation {
        delete: &[("ns/.", "Background")],
        ask: "ns/.",
        later_seconds: TEN_MINUTES,
        why: ("BeingDeleted", "It is being deleted"),
        plan: "1 object: 1 Namespace; 1 stuck",
        ..map_situation(name)
    };
    vec![
        Situation {
            make: vec![map("a", held())],
            delete: &[("cm/a", "Background"), ("ns/.", "Background")],
            stuck: &["FinalizerHeld ConfigMap/a <- Namespace/."],
            why: ("BeingDeleted", "waits for ConfigMap/a: FinalizerHeld"),
            plan: "2 objects: 1 ConfigMap, 1 Namespace; 2 stuck",
            ..base("a namespace that waits for an object with a finalizer")
        },
        Situation {
            make: vec![map("a", json!({}))],
            stuck: &["ContentNotDeleted Namespace/."],
            why: (
                "BeingDeleted",
                "ContentNotDeleted, no namespace controller deletes what remains in it: 1 object",
            ),
            plan: "2 objects: 1 ConfigMap, 1 Namespace; 1 stuck",
            ..base("a namespace that nothing empties")
        },
        Situation {
            stuck: &["CollectorAbsent Namespace/."],
            why: ("BeingDeleted", "nothing remains in it"),
            // The server of another situation's APIService is gone, which blocks every namespace.
            plan: "1 object: 1 Namespace; 1 stuck",
            ..base("an empty namespace that nothing finalizes")
        },
        Situation {
            make: vec![map("a", json!({}))],
            ask: "cm/a",
            stuck: &["ContentNotDeleted Namespace/."],
            why: ("NamespaceTerminating", "its namespace is being deleted"),
            plan: "1 object: 1 ConfigMap; nothing gets stuck",
            ..base("a living object in a namespace that is being deleted")
        },
        Situation {
            make: vec![
                object(
                    "APIService",
                    "v1beta1.metrics.acme.dev",
                    json!({"spec": {
                    "group": "metrics.acme.dev", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
                    "service": {"namespace": "kube-system", "name": "metrics"}}}),
                ),
                conditions(
                    "NamespaceDeletionDiscoveryFailure",
                    "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: \
                     metrics.acme.dev/v1beta1: stale GroupVersion discovery: metrics.acme.dev/v1beta1",
                ),
            ],
            stuck: &["APIServiceUnavailable Namespace/."],
            why: (
                "BeingDeleted",
                "v1beta1.metrics.acme.dev is not available → Service kube-system/metrics does not exist",
            ),
            ..base("a namespace whose discovery fails by an APIService")
        },
        Situation {
            make: vec![conditions(
                "NamespaceDeletionContentFailure",
                "Failed to delete all resource types, 1 remaining: Internal error occurred: failed calling webhook \
                 \"check.acme.dev\": failed to call webhook: connection refused",
            )],
            stuck: &["AdmissionWebhookFails Namespace/."],
            why: ("BeingDeleted", "admission webhook check.acme.dev"),
            ..base("a namespace whose contents a webhook refuses to delete")
        },
        Situation {
            make: vec![
                converted_definition(),
                conditions(
                    "NamespaceDeletionContentFailure",
                    "Failed to delete all resource types, 1 remaining: conversion webhook for converted.acme.dev/v1, \
                     Kind=Gadget failed: Post \"https://127.0.0.1:1/convert?timeout=30s\": dial tcp 127.0.0.1:1: connect: \
                     connection refused",
                ),
            ],
            stuck: &["ConversionWebhookFails Namespace/."],
            why: (
                "BeingDeleted",
                "the conversion webhook of CustomResourceDefinition gadgets.converted.acme.dev fails → \
                 https://127.0.0.1:1/convert does not answer as it should",
            ),
            ..base("a namespace whose contents a conversion webhook hides")
        },
        Situation {
            make: vec![map("a", json!({})), map("b", held())],
            delete: &[],
            later_seconds: 0,
            why: ("NoOwners", "It will not be collected"),
            plan: "3 objects: 2 ConfigMaps, 1 Namespace; 2 stuck",
            ..base("a living namespace with a finalizer in it")
        },
        Situation {
            make: vec![map("a", json!({})), map("b", json!({"owners": ["ConfigMap/a"]}))],
            delete: &[],
            later_seconds: 0,
            why: ("NoOwners", "It will not be collected"),
            plan: "3 objects: 2 ConfigMaps, 1 Namespace; 1 stuck",
            ..base("a living namespace")
        },
        Situation {
            make: vec![definition(), object("Widget", "w", json!({})), object("Widget", "x", json!({}))],
            delete: &[],
            ask: "crd/widgets.acme.dev",
            later_seconds: 0,
            why: ("NoOwners", "It will not be collected"),
            plan: "3 objects: 2 Widgets, 1 CustomResourceDefinition; nothing gets stuck",
            ..base("a definition with its objects")
        },
    ]
}
