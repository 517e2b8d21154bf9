//! Tests the rules of the built-in kinds.
// Tests may unwrap: a failure is the report.
#![allow(clippy::unwrap_used)]

mod autoscalers;
mod defaults;
mod laws;
mod member_order;
mod printers;
mod strategy;
mod validation;
mod warnings;

use gc_registry::resource::Target;

/// Every built-in resource whose objects are stored, as (group, version, plural name).
pub(crate) const RESOURCES: [(&str, &str, &str); 60] = [
    ("", "v1", "configmaps"),
    ("", "v1", "endpoints"),
    ("", "v1", "events"),
    ("", "v1", "limitranges"),
    ("", "v1", "namespaces"),
    ("", "v1", "nodes"),
    ("", "v1", "persistentvolumeclaims"),
    ("", "v1", "persistentvolumes"),
    ("", "v1", "pods"),
    ("", "v1", "podtemplates"),
    ("", "v1", "replicationcontrollers"),
    ("", "v1", "resourcequotas"),
    ("", "v1", "secrets"),
    ("", "v1", "serviceaccounts"),
    ("", "v1", "services"),
    ("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicybindings"),
    ("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings"),
    ("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations"),
    ("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
    ("apiregistration.k8s.io", "v1", "apiservices"),
    ("apps", "v1", "controllerrevisions"),
    ("apps", "v1", "daemonsets"),
    ("apps", "v1", "deployments"),
    ("apps", "v1", "replicasets"),
    ("apps", "v1", "statefulsets"),
    ("autoscaling", "v1", "horizontalpodautoscalers"),
    ("autoscaling", "v2", "horizontalpodautoscalers"),
    ("batch", "v1", "cronjobs"),
    ("batch", "v1", "jobs"),
    ("certificates.k8s.io", "v1", "certificatesigningrequests"),
    ("coordination.k8s.io", "v1", "leases"),
    ("discovery.k8s.io", "v1", "endpointslices"),
    ("events.k8s.io", "v1", "events"),
    ("flowcontrol.apiserver.k8s.io", "v1", "flowschemas"),
    ("flowcontrol.apiserver.k8s.io", "v1", "prioritylevelconfigurations"),
    ("networking.k8s.io", "v1", "ingressclasses"),
    ("networking.k8s.io", "v1", "ingresses"),
    ("networking.k8s.io", "v1", "ipaddresses"),
    ("networking.k8s.io", "v1", "networkpolicies"),
    ("networking.k8s.io", "v1", "servicecidrs"),
    ("node.k8s.io", "v1", "runtimeclasses"),
    ("policy", "v1", "poddisruptionbudgets"),
    ("rbac.authorization.k8s.io", "v1", "clusterrolebindings"),
    ("rbac.authorization.k8s.io", "v1", "clusterroles"),
    ("rbac.authorization.k8s.io", "v1", "rolebindings"),
    ("rbac.authorization.k8s.io", "v1", "roles"),
    ("resource.k8s.io", "v1", "deviceclasses"),
    ("resource.k8s.io", "v1", "resourceclaims"),
    ("resource.k8s.io", "v1", "resourceclaimtemplates"),
    ("resource.k8s.io", "v1", "resourceslices"),
    ("scheduling.k8s.io", "v1", "priorityclasses"),
    ("storage.k8s.io", "v1", "csidrivers"),
    ("storage.k8s.io", "v1", "csinodes"),
    ("storage.k8s.io", "v1", "csistoragecapacities"),
    ("storage.k8s.io", "v1", "storageclasses"),
    ("storage.k8s.io", "v1", "volumeattachments"),
    ("storage.k8s.io", "v1", "volumeattributesclasses"),
];

/// Parses a target from `group/version/resource[/subresource]`, with the group omitted for core.
pub(crate) fn target(text: &str) -> Target<'_> {
    let mut parts: Vec<&str> = text.split('/').collect();
    if parts[0] == "v1" {
        parts.insert(0, "");
    }
    Target { group: parts[0], version: parts[1], resource: parts[2], subresource: parts.get(3).copied() }
}

/// Returns the current time of the tests.
pub(crate) fn now() -> jiff::Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}
