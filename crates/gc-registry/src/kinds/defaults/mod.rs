//! The defaults of every built-in kind, and the form that a typed server gives to what it stores: no nulls, no
//! empty lists, the members that are always written.
//!
//! Applying them twice is the same as applying them once.

mod cluster;
mod network;
mod normal;
mod pod;
mod workload;

use serde_json::Value;

pub(super) use pod::claim_sources;

use super::access::{Members, child, existing, fill, fill_absent, fill_zero, is_unset, items};
use crate::resource::Target;

/// Fills in what kube-apiserver fills in when it decodes an object of this resource, and puts the object into
/// the form in which a typed server writes it. To be called after every decoding: of a request body, of the
/// outcome of a patch, and before comparing with a stored object.
///
/// Scale, eviction, binding and other subresources with a body of their own are left alone.
pub fn apply_defaults(target: Target<'_>, object: &mut Value) {
    if !matches!(
        target.subresource,
        None | Some("status" | "finalize" | "approval" | "ephemeralcontainers" | "resize")
    ) {
        return;
    }
    if super::kind::of(target).is_none() {
        return;
    }
    normal::normalize(target, object);
    let Some(members) = object.as_object_mut() else { return };
    match (target.group, target.resource) {
        ("", "pods") => pod::pod(members),
        ("", "podtemplates") => pod::template(members, "template"),
        ("", "replicationcontrollers") => workload::replication_controller(members),
        ("", "services") => network::service(members),
        ("", "endpoints") => network::endpoints(members),
        ("", "secrets") => cluster::secret(members),
        ("", "namespaces") => cluster::namespace(members),
        ("", "nodes") => cluster::node(members),
        ("", "persistentvolumes") => cluster::persistent_volume(members),
        ("", "persistentvolumeclaims") => cluster::persistent_volume_claim(members),
        ("", "limitranges") => cluster::limit_range(members),
        ("", "resourcequotas") => cluster::resource_quota(members),
        ("" | "events.k8s.io", "events") => cluster::event(target.group, members),
        ("apps", "deployments") => workload::deployment(members),
        ("apps", "replicasets") => workload::replica_set(members),
        ("apps", "statefulsets") => workload::stateful_set(members),
        ("apps", "daemonsets") => workload::daemon_set(members),
        ("apps", "controllerrevisions") => fill_absent(members, "revision", 0),
        ("batch", "jobs") => workload::job(members),
        ("batch", "cronjobs") => workload::cron_job(members),
        ("autoscaling", "horizontalpodautoscalers") => workload::autoscaler(target.version, members),
        ("policy", "poddisruptionbudgets") => workload::disruption_budget(members),
        ("networking.k8s.io", "ingresses") => network::ingress(members),
        ("networking.k8s.io", "ingressclasses") => network::ingress_class(members),
        ("networking.k8s.io", "networkpolicies") => network::network_policy(members),
        ("discovery.k8s.io", "endpointslices") => network::endpoint_slice(members),
        ("storage.k8s.io", "storageclasses") => cluster::storage_class(members),
        ("storage.k8s.io", "csidrivers") => cluster::csi_driver(members),
        ("storage.k8s.io", "volumeattachments") => cluster::volume_attachment(members),
        ("rbac.authorization.k8s.io", _) => cluster::rbac(target.resource, members),
        ("scheduling.k8s.io", "priorityclasses") => {
            fill_absent(members, "value", 0);
            fill_absent(members, "preemptionPolicy", "PreemptLowerPriority");
        }
        ("resource.k8s.io", "resourceclaims" | "resourceclaimtemplates") => {
            cluster::device_claim(target.resource, members);
        }
        ("certificates.k8s.io", "certificatesigningrequests") => cluster::signing_request(members),
        ("admissionregistration.k8s.io", _) => cluster::admission(target.resource, members),
        ("apiregistration.k8s.io", "apiservices") => cluster::api_service(members),
        ("flowcontrol.apiserver.k8s.io", _) => cluster::flow_control(target.resource, members),
        _ => {}
    }
    // Kinds whose spec and status are structures that are always written, even when empty.
    let (spec, status) = always_written(target);
    for (key, wanted) in [("spec", spec), ("status", status)] {
        if wanted {
            child(members, key);
        }
    }
}

/// Whether `spec` and `status` are written even when empty.
fn always_written(target: Target<'_>) -> (bool, bool) {
    match (target.group, target.resource) {
        (
            "",
            "namespaces"
            | "nodes"
            | "pods"
            | "persistentvolumes"
            | "persistentvolumeclaims"
            | "services"
            | "replicationcontrollers"
            | "resourcequotas",
        )
        | ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets")
        | ("batch", "jobs" | "cronjobs")
        | ("policy", "poddisruptionbudgets")
        | ("autoscaling", "horizontalpodautoscalers")
        | ("networking.k8s.io", "ingresses" | "servicecidrs")
        | ("certificates.k8s.io", "certificatesigningrequests")
        | ("storage.k8s.io", "volumeattachments")
        | ("apiregistration.k8s.io", "apiservices")
        | ("flowcontrol.apiserver.k8s.io", _)
        | ("admissionregistration.k8s.io", "validatingadmissionpolicies")
        | ("resource.k8s.io", "resourceclaims") => (true, true),
        ("", "limitranges")
        | ("networking.k8s.io", "networkpolicies" | "ingressclasses" | "ipaddresses")
        | ("coordination.k8s.io", "leases")
        | ("storage.k8s.io", "csidrivers" | "csinodes")
        | ("resource.k8s.io", "deviceclasses" | "resourceclaimtemplates" | "resourceslices")
        | (
            "admissionregistration.k8s.io",
            "validatingadmissionpolicybindings"
            | "mutatingadmissionpolicies"
            | "mutatingadmissionpolicybindings",
        ) => (true, false),
        _ => (false, false),
    }
}
