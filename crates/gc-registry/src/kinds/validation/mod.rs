//! What an object of a built-in kind must be like, beyond its schema and its metadata.
//!
//! The checks are those of the fields that deletion and the collectors read, and of what people get wrong; the
//! messages are kube-apiserver's. Fields of a wrong type are the schema's business and are skipped here.

mod cluster;
mod names;
mod network;
mod pod;
mod report;
mod update;
mod workload;

use serde_json::Value;

use report::Report;
pub use update::validate_update;

use crate::error::FieldError;
use crate::resource::Target;

/// Checks an object that is about to be created, after defaulting and preparation.
#[must_use]
pub fn validate(target: Target<'_>, object: &Value) -> Vec<FieldError> {
    let mut report = Report::default();
    check(target, object, &mut report);
    report.errors
}

fn check(target: Target<'_>, object: &Value, report: &mut Report) {
    match (target.group, target.resource) {
        ("", "pods") => pod::pod(object, report),
        ("", "podtemplates") => pod::template(object.get("template"), "template", report),
        ("", "replicationcontrollers") => workload::replication_controller(object, report),
        ("apps", "deployments") => workload::deployment(object, report),
        ("apps", "replicasets") => workload::replica_set(object, report),
        ("apps", "statefulsets") => workload::stateful_set(object, report),
        ("apps", "daemonsets") => workload::daemon_set(object, report),
        ("apps", "controllerrevisions") => workload::controller_revision(object, report),
        ("batch", "jobs") => workload::job(object, report),
        ("batch", "cronjobs") => workload::cron_job(object, report),
        ("autoscaling", "horizontalpodautoscalers") => workload::autoscaler(target.version, object, report),
        ("policy", "poddisruptionbudgets") => workload::disruption_budget(object, report),
        ("", "services") => network::service(object, report),
        ("", "endpoints") => network::endpoints(object, report),
        ("discovery.k8s.io", "endpointslices") => network::endpoint_slice(object, report),
        ("networking.k8s.io", "ingresses") => network::ingress(object, report),
        ("networking.k8s.io", "ingressclasses") => network::ingress_class(object, report),
        ("networking.k8s.io", "networkpolicies") => network::network_policy(object, report),
        ("", "configmaps") => cluster::config_map(object, report),
        ("", "secrets") => cluster::secret(object, report),
        ("", "namespaces") => cluster::namespace(object, report),
        ("", "nodes") => cluster::node(object, report),
        ("", "persistentvolumes") => cluster::persistent_volume(object, report),
        ("", "persistentvolumeclaims") => cluster::persistent_volume_claim(object, report),
        ("", "resourcequotas") => cluster::resource_quota(object, report),
        ("", "limitranges") => cluster::limit_range(object, report),
        ("" | "events.k8s.io", "events") => cluster::event(target.group, object, report),
        ("coordination.k8s.io", "leases") => cluster::lease(object, report),
        ("scheduling.k8s.io", "priorityclasses") => cluster::priority_class(object, report),
        ("storage.k8s.io", "storageclasses") => cluster::storage_class(object, report),
        ("storage.k8s.io", "volumeattachments") => cluster::volume_attachment(object, report),
        ("node.k8s.io", "runtimeclasses") => cluster::runtime_class(object, report),
        ("certificates.k8s.io", "certificatesigningrequests") => cluster::signing_request(object, report),
        ("rbac.authorization.k8s.io", _) => cluster::rbac(target.resource, object, report),
        ("admissionregistration.k8s.io", _) => cluster::admission(target.resource, object, report),
        ("apiregistration.k8s.io", "apiservices") => cluster::api_service(object, report),
        _ => {}
    }
}
