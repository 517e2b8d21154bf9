//! Situations about responsibility: controllers of finalizers, storage in use, definitions, policies.

use serde_json::{Value, json};

use super::objects::{claim, conditions, definition_of, deployment, held, map, node, object, pod, volume};
use super::table::{TEN_MINUTES, map_situation};
use super::{NAMESPACE, Situation, UID};

/// Label of the ConfigMaps that one retention policy of the cluster selects.
const LABEL: &str = "acme.dev/build";

/// Returns a webhook that is called for the ConfigMaps of its namespace, and has no Service.
fn failing_webhook(name: &str) -> Value {
    object(
        "ValidatingWebhookConfiguration",
        name,
        json!({"webhooks": [{
            "name": "check.acme.dev", "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": NAMESPACE, "name": "absent"}},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
            "rules": [{"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
        }]}),
    )
}

/// Returns a policy that protects the ConfigMap `b` of its namespace, and its binding.
fn keeping_policy(name: &str) -> [Value; 2] {
    let policy = json!({"spec": {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [
            {"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]},
        "validations": [{"expression": "oldObject.metadata.name != 'b'", "message": "b is kept"}],
    }});
    let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}});
    let binding = json!({"spec": {
        "policyName": name, "validationActions": ["Deny"], "matchResources": {"namespaceSelector": selector}}});
    [
        object("ValidatingAdmissionPolicy", name, policy),
        object("ValidatingAdmissionPolicyBinding", name, binding),
    ]
}

/// Returns a host path volume with reclaim policy Delete, whose storage nothing deletes.
fn host_path_volume(name: &str) -> Value {
    let mut volume = provisioned_volume(name);
    volume["metadata"].as_object_mut().into_iter().for_each(|metadata| drop(metadata.remove("annotations")));
    volume
}

/// Returns a volume with reclaim policy Delete that belongs to the claim `d`.
fn volume_of_claim(name: &str, phase: &str) -> Value {
    let mut volume = volume(name, "Delete", &[]);
    volume["spec"]["claimRef"] =
        json!({"namespace": NAMESPACE, "name": "d", "uid": format!("{UID}PersistentVolumeClaim/d")});
    volume["status"] = json!({"phase": phase});
    volume
}

/// Returns the same volume from a provisioner that is not part of Kubernetes.
fn provisioned_volume(name: &str) -> Value {
    let mut volume = volume_of_claim(name, "Bound");
    volume["metadata"]["annotations"] = json!({"pv.kubernetes.io/provisioned-by": "acme.dev/folders"});
    volume["spec"].as_object_mut().into_iter().for_each(|spec| drop(spec.remove("csi")));
    volume["spec"]["hostPath"] = json!({"path": "/tmp/acme"});
    volume
}

pub(super) fn situations() -> Vec<Situation> {
    let base = map_situation;
    let policies = include_str!("../../../../../../deploy/crds/retentionpolicies.yaml");
    let policies = serde_saphyr::from_str(policies).unwrap();
    let mut bound = volume("pv-bound", "Retain", &[]);
    bound["spec"]["claimRef"] =
        json!({"namespace": NAMESPACE, "name": "d", "uid": format!("{UID}PersistentVolumeClaim/d")});
    bound["status"] = json!({"phase": "Bound"});
    let mut attached = volume("pv-attached", "Retain", &["external-attacher/csi-acme-dev"]);
    attached["status"] = json!({"phase": "Released"});
    let labelled = || json!({"labels": {LABEL: "1"}});
    vec![
        Situation {
            make: vec![
                deployment("gears-example-org", 0),
                map("a", json!({"finalizers": ["gears.example.org/hold"]})),
            ],
            delete: &[("cm/a", "Background")],
            stuck: &["FinalizerHeld ConfigMap/a"],
            why: ("BeingDeleted", "gears-example-org (0 of 1 ready)"),
            plan: "1 object: 1 ConfigMap; 1 stuck",
            ..base("a finalizer whose controller is down")
        },
        Situation {
            make: vec![
                deployment("cogs-example-net", 1),
                map("a", json!({"finalizers": ["cogs.example.net/hold"]})),
            ],
            delete: &[("cm/a", "Background")],
            stuck: &["FinalizerHeld ConfigMap/a"],
            why: ("BeingDeleted", "cogs-example-net (1 of 1 ready)"),
            plan: "1 object: 1 ConfigMap; 1 deleted later; nothing gets stuck",
            ..base("a finalizer whose controller works")
        },
        Situation {
            make: vec![
                deployment("wheels-example-com", 1),
                map("a", json!({"finalizers": ["wheels.example.com/hold"]})),
            ],
            why: ("NoOwners", "It will not be collected"),
            plan: "1 object: 1 ConfigMap; 1 deleted later; nothing gets stuck",
            ..base("a living object with a finalizer whose controller works")
        },
        Situation {
            make: vec![claim("d", "pv-bound", json!({})), bound],
            delete: &[("pv/pv-bound", "Background")],
            ask: "pv/pv-bound",
            stuck: &["VolumeInUse PersistentVolume/pv-bound"],
            why: ("BeingDeleted", "VolumeInUse, bound to PersistentVolumeClaim"),
            plan: "1 object: 1 PersistentVolume; 1 stuck",
            ..base("a volume that a claim uses")
        },
        Situation {
            make: vec![
                attached,
                object(
                    "VolumeAttachment",
                    "csi-attached",
                    json!({"spec": {"attacher": "csi.acme.dev", "nodeName": "ready-0",
                        "source": {"persistentVolumeName": "pv-attached"}}}),
                ),
            ],
            delete: &[("pv/pv-attached", "Background")],
            ask: "pv/pv-attached",
            later_seconds: 60,
            stuck: &[
                "ProtectionNotReleased PersistentVolume/pv-attached,PersistentVolume/pv-held",
                "VolumeAttached PersistentVolume/pv-attached",
            ],
            why: ("BeingDeleted", "is it running? (and 1 other cause)"),
            plan: "1 object: 1 PersistentVolume; 1 stuck",
            ..base("a volume that is attached to a node")
        },
        Situation {
            make: vec![
                definition_of("gizmos"),
                object("Gizmo", "g", json!({"finalizers": ["gizmos.example.com/hold"]})),
            ],
            delete: &[("gizmo/g", "Background"), ("crd/gizmos.acme.dev", "Background")],
            ask: "crd/gizmos.acme.dev",
            later_seconds: 60,
            stuck: &["FinalizerHeld Gizmo/g <- CustomResourceDefinition/gizmos.acme.dev"],
            why: ("BeingDeleted", "waits for Gizmo/g: FinalizerHeld"),
            plan: "2 objects: 1 CustomResourceDefinition, 1 Gizmo; 2 stuck",
            ..base("a definition that waits for an object with a finalizer")
        },
        Situation {
            make: vec![pod("p", "", held())],
            delete: &[("pod/p", "Foreground")],
            ask: "pod/p",
            later_seconds: TEN_MINUTES,
            stuck: &["CollectorAbsent Pod/p", "FinalizerHeld Pod/p"],
            why: (
                "WaitsForDependents",
                "no garbage collector removes the finalizer foregroundDeletion (and 1 other cause)",
            ),
            plan: "1 object: 1 Pod; 1 stuck",
            ..base("a pod without a node, deleted in the foreground, that a finalizer holds")
        },
        Situation {
            make: vec![conditions(
                "NamespaceDeletionContentFailure",
                "Failed to delete all resource types, 1 remaining: etcdserver: request timed out",
            )],
            delete: &[("ns/.", "Background")],
            ask: "ns/.",
            later_seconds: TEN_MINUTES,
            stuck: &["ContentDeletionFails Namespace/."],
            why: ("BeingDeleted", "its contents cannot be deleted: Failed to delete all resource types"),
            // The server of another situation's APIService is gone, which blocks every namespace.
            plan: "1 object: 1 Namespace; 1 stuck",
            ..base("a namespace whose contents cannot be deleted")
        },
        Situation {
            make: vec![
                conditions(
                    "NamespaceDeletionContentFailure",
                    "Failed to delete all resource types, 1 remaining: unexpected items still remain in namespace: many for \
                     gvr: /v1, Resource=configmaps",
                ),
                map("a", held()),
            ],
            delete: &[("ns/.", "Background"), ("cm/a", "Background")],
            ask: "ns/.",
            later_seconds: TEN_MINUTES,
            stuck: &["FinalizerHeld ConfigMap/a <- Namespace/."],
            why: ("BeingDeleted", "waits for ConfigMap/a: FinalizerHeld"),
            plan: "2 objects: 1 ConfigMap, 1 Namespace; 2 stuck",
            ..base("a namespace whose contents have not all gone, because one is held")
        },
        Situation {
            make: vec![conditions(
                "NamespaceDeletionDiscoveryFailure",
                "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: \
                 lost.example.com/v1: the server is currently unable to handle the request",
            )],
            delete: &[("ns/.", "Background")],
            ask: "ns/.",
            later_seconds: TEN_MINUTES,
            stuck: &["APIServiceUnavailable Namespace/."],
            why: ("BeingDeleted", "v1beta1.metrics.acme.dev is not available"),
            plan: "1 object: 1 Namespace; 1 stuck",
            ..base("a second namespace that one broken APIService holds up")
        },
        Situation {
            make: vec![
                policies,
                object(
                    "RetentionPolicy",
                    "builds",
                    json!({"spec": {"target": {"apiVersion": "v1", "kind": "ConfigMap"}, "maxAge": "1h", "enforce": true,
                        "selector": {"matchLabels": {LABEL: "1"}}}}),
                ),
                map("a", labelled()),
            ],
            why: (
                "WillBeDeleted",
                "retention policy builds (retention-policy-controller, where kubegc runs it)",
            ),
            ..base("an object under an enforced retention policy")
        },
        Situation {
            make: vec![map("a", labelled())],
            later_seconds: 7_200,
            why: ("WillBeDeleted", "is due to be deleted now: DueByPolicy, retention policy builds"),
            ..base("an object that a retention policy is about to delete")
        },
        Situation {
            make: vec![map("a", json!({})), failing_webhook("refusing")],
            plan: "nothing: the server refuses the deletion",
            ..base("an object whose deletion a webhook without a Service fails")
        },
        Situation {
            make: vec![map("a", json!({})), map("b", json!({})), failing_webhook("refusing-all")],
            ask: "ns/.",
            plan: "3 objects: 2 ConfigMaps, 1 Namespace; 3 stuck",
            ..base("a namespace whose contents a webhook without a Service keeps")
        },
        Situation {
            make: [&[map("a", json!({})), map("b", json!({}))][..], &keeping_policy("keeps-b")].concat(),
            ask: "ns/.",
            plan: "3 objects: 2 ConfigMaps, 1 Namespace; 2 stuck",
            ..base("a namespace with an object that a policy keeps")
        },
        Situation {
            make: [
                &[map("a", json!({})), map("b", json!({"owners": ["ConfigMap/a!"]}))][..],
                &keeping_policy("keeps-dependent"),
            ]
            .concat(),
            delete: &[("cm/a", "Foreground")],
            later_seconds: TEN_MINUTES,
            stuck: &["AdmissionPolicyRefuses ConfigMap/a"],
            why: (
                "WaitsForDependents",
                "ConfigMap/b cannot be deleted: refused by policy keeps-dependent: b is kept",
            ),
            plan: "2 objects: 2 ConfigMaps; 1 stuck",
            ..base("a foreground deletion that waits for what a policy keeps")
        },
        Situation {
            make: vec![claim("d", "pv-path", json!({})), host_path_volume("pv-path")],
            ask: "pvc/d",
            plan: "1 object: 1 PersistentVolumeClaim; nothing gets stuck",
            ..base("a claim whose volume is a host path that nothing deletes")
        },
        Situation {
            make: vec![claim("d", "pv-lost", json!({})), volume_of_claim("pv-lost", "Bound")],
            ask: "pvc/d",
            plan: "2 objects: 1 PersistentVolume, 1 PersistentVolumeClaim; 1 stuck",
            ..base("a claim whose volume is of a driver that is not installed")
        },
        Situation {
            make: vec![
                claim("d", "pv-used", json!({"finalizers": ["kubernetes.io/pvc-protection"]})),
                node("ready-7", "True"),
                pod("p", "ready-7", json!({"volumes": "d"})),
                provisioned_volume("pv-used"),
            ],
            ask: "pvc/d",
            plan: "1 object: 1 PersistentVolumeClaim; lost when released: 1 volume, 10 GiB; 1 stuck",
            ..base("a claim in use whose volume is lost with it")
        },
        Situation {
            make: vec![
                object(
                    "RetentionPolicy",
                    "newest",
                    json!({"spec": {"target": {"apiVersion": "v1", "kind": "ConfigMap"}, "enforce": true,
                        "any": {"keepNewest": {"count": 2}}, "selector": {"matchLabels": {"acme.dev/kept": "1"}}}}),
                ),
                map("a", json!({"labels": {"acme.dev/kept": "1"}})),
            ],
            why: (
                "NoOwners",
                "kept by retention policy newest: it is among the 2 newest; due when 2 newer ones exist",
            ),
            ..base("an object that a retention policy keeps")
        },
        Situation {
            make: vec![volume_of_claim("pv-left", "Released")],
            ask: "pv/pv-left",
            later_seconds: 60,
            stuck: &["StorageNotDeleted PersistentVolume/pv-left"],
            why: (
                "StorageNotDeleted",
                "CSI driver csi.acme.dev is not installed: no CSIDriver has this name",
            ),
            plan: "1 object: 1 PersistentVolume; nothing gets stuck",
            ..base("a released volume of a driver that is not installed")
        },
        Situation {
            make: vec![map("a", json!({"labels": {"argocd.argoproj.io/instance": "shop"}}))],
            ..base("an object that Argo CD recreates")
        },
    ]
}
