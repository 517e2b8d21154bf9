//! What a built-in kind is: one trait, and one table of all of them.

use prelude::*;

use super::{
    admissionregistration, apiregistration, apps, autoscaling, batch, certificates, coordination, core,
    discovery, flowcontrol, networking, node, policy, rbac, resource, scheduling, storage,
};
use crate::resource::Target;

/// What the file of a kind uses.
pub(crate) mod prelude {
    pub(crate) use serde_json::Value;

    pub(crate) use super::Kind;
    pub(crate) use crate::kinds::access::Members;
    pub(crate) use crate::kinds::field::Field;
    pub(crate) use crate::kinds::printers::Heading as H;
    pub(crate) use crate::kinds::printers::Says::{Field as F, Text as T};
    pub(crate) use crate::kinds::printers::{Heading, Row};
    pub(crate) use crate::kinds::report::Report;
}

/// The rules of one kind. What has no default here, no kind can do without.
pub(crate) trait Kind: Sync {
    /// The columns of its tables.
    fn columns(&self) -> &'static [Heading];

    /// The cells of an object in these columns.
    fn cells(&self, row: &Row<'_>) -> Vec<Value>;

    /// The `conditions` of the row of an object.
    fn row_conditions(&self, object: &Value) -> Vec<Value> {
        let _ = object;
        Vec::new()
    }

    /// Checks an object that is about to be created, after defaulting and preparation.
    fn validate(&self, object: &Field<'_, '_>, report: &mut Report);

    /// Checks a prepared update against the stored object.
    fn validate_update(&self, new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        let _ = old;
        self.validate(new, report);
    }

    /// Checks an update of the status.
    fn validate_status(&self, new: &Field<'_, '_>, old: &Field<'_, '_>, report: &mut Report) {
        let _ = (new, old, report);
    }

    /// Checks an update of another subresource.
    fn validate_subresource(
        &self,
        subresource: &str,
        new: &Field<'_, '_>,
        old: &Field<'_, '_>,
        report: &mut Report,
    ) {
        let _ = (subresource, new, old, report);
    }
}

/// Every built-in kind: group, version, resource, rules; sorted by the first three.
static KINDS: &[(&str, &str, &str, &dyn Kind)] = &[
    ("", "v1", "componentstatuses", &core::component_status::ComponentStatus),
    ("", "v1", "configmaps", &core::config_map::ConfigMap),
    ("", "v1", "endpoints", &core::endpoints::Endpoints),
    ("", "v1", "events", &core::event::Event { core: true }),
    ("", "v1", "limitranges", &core::limit_range::LimitRange),
    ("", "v1", "namespaces", &core::namespace::Namespace),
    ("", "v1", "nodes", &core::node::Node),
    ("", "v1", "persistentvolumeclaims", &core::persistent_volume_claim::PersistentVolumeClaim),
    ("", "v1", "persistentvolumes", &core::persistent_volume::PersistentVolume),
    ("", "v1", "pods", &core::pod::Pod),
    ("", "v1", "podtemplates", &core::pod_template::PodTemplate),
    ("", "v1", "replicationcontrollers", &core::replication_controller::ReplicationController),
    ("", "v1", "resourcequotas", &core::resource_quota::ResourceQuota),
    ("", "v1", "secrets", &core::secret::Secret),
    ("", "v1", "serviceaccounts", &core::service_account::ServiceAccount),
    ("", "v1", "services", &core::service::Service),
    (
        "admissionregistration.k8s.io",
        "v1",
        "mutatingadmissionpolicies",
        &admissionregistration::mutating_policy::MutatingAdmissionPolicy,
    ),
    (
        "admissionregistration.k8s.io",
        "v1",
        "mutatingadmissionpolicybindings",
        &admissionregistration::mutating_policy_binding::MutatingAdmissionPolicyBinding,
    ),
    (
        "admissionregistration.k8s.io",
        "v1",
        "mutatingwebhookconfigurations",
        &admissionregistration::webhook_configuration::WebhookConfiguration { mutating: true },
    ),
    (
        "admissionregistration.k8s.io",
        "v1",
        "validatingadmissionpolicies",
        &admissionregistration::validating_policy::ValidatingAdmissionPolicy,
    ),
    (
        "admissionregistration.k8s.io",
        "v1",
        "validatingadmissionpolicybindings",
        &admissionregistration::validating_policy_binding::ValidatingAdmissionPolicyBinding,
    ),
    (
        "admissionregistration.k8s.io",
        "v1",
        "validatingwebhookconfigurations",
        &admissionregistration::webhook_configuration::WebhookConfiguration { mutating: false },
    ),
    ("apiregistration.k8s.io", "v1", "apiservices", &apiregistration::api_service::ApiService),
    ("apps", "v1", "controllerrevisions", &apps::controller_revision::ControllerRevision),
    ("apps", "v1", "daemonsets", &apps::daemon_set::DaemonSet),
    ("apps", "v1", "deployments", &apps::deployment::Deployment),
    ("apps", "v1", "replicasets", &apps::replica_set::ReplicaSet),
    ("apps", "v1", "statefulsets", &apps::stateful_set::StatefulSet),
    (
        "autoscaling",
        "v1",
        "horizontalpodautoscalers",
        &autoscaling::horizontal_pod_autoscaler::HorizontalPodAutoscaler { v1: true },
    ),
    (
        "autoscaling",
        "v2",
        "horizontalpodautoscalers",
        &autoscaling::horizontal_pod_autoscaler::HorizontalPodAutoscaler { v1: false },
    ),
    ("batch", "v1", "cronjobs", &batch::cron_job::CronJob),
    ("batch", "v1", "jobs", &batch::job::Job),
    (
        "certificates.k8s.io",
        "v1",
        "certificatesigningrequests",
        &certificates::certificate_signing_request::CertificateSigningRequest,
    ),
    ("coordination.k8s.io", "v1", "leases", &coordination::lease::Lease),
    ("discovery.k8s.io", "v1", "endpointslices", &discovery::endpoint_slice::EndpointSlice),
    ("events.k8s.io", "v1", "events", &core::event::Event { core: false }),
    ("flowcontrol.apiserver.k8s.io", "v1", "flowschemas", &flowcontrol::flow_schema::FlowSchema),
    (
        "flowcontrol.apiserver.k8s.io",
        "v1",
        "prioritylevelconfigurations",
        &flowcontrol::priority_level::PriorityLevelConfiguration,
    ),
    ("networking.k8s.io", "v1", "ingressclasses", &networking::ingress_class::IngressClass),
    ("networking.k8s.io", "v1", "ingresses", &networking::ingress::Ingress),
    ("networking.k8s.io", "v1", "ipaddresses", &networking::ip_address::IpAddress),
    ("networking.k8s.io", "v1", "networkpolicies", &networking::network_policy::NetworkPolicy),
    ("networking.k8s.io", "v1", "servicecidrs", &networking::service_cidr::ServiceCidr),
    ("node.k8s.io", "v1", "runtimeclasses", &node::runtime_class::RuntimeClass),
    ("policy", "v1", "poddisruptionbudgets", &policy::pod_disruption_budget::PodDisruptionBudget),
    ("rbac.authorization.k8s.io", "v1", "clusterrolebindings", &rbac::binding::Binding { cluster: true }),
    ("rbac.authorization.k8s.io", "v1", "clusterroles", &rbac::role::Role { cluster: true }),
    ("rbac.authorization.k8s.io", "v1", "rolebindings", &rbac::binding::Binding { cluster: false }),
    ("rbac.authorization.k8s.io", "v1", "roles", &rbac::role::Role { cluster: false }),
    ("resource.k8s.io", "v1", "deviceclasses", &resource::device_class::DeviceClass),
    ("resource.k8s.io", "v1", "resourceclaims", &resource::resource_claim::ResourceClaim),
    (
        "resource.k8s.io",
        "v1",
        "resourceclaimtemplates",
        &resource::resource_claim_template::ResourceClaimTemplate,
    ),
    ("resource.k8s.io", "v1", "resourceslices", &resource::resource_slice::ResourceSlice),
    ("scheduling.k8s.io", "v1", "priorityclasses", &scheduling::priority_class::PriorityClass),
    ("storage.k8s.io", "v1", "csidrivers", &storage::csi_driver::CsiDriver),
    ("storage.k8s.io", "v1", "csinodes", &storage::csi_node::CsiNode),
    ("storage.k8s.io", "v1", "csistoragecapacities", &storage::csi_storage_capacity::CsiStorageCapacity),
    ("storage.k8s.io", "v1", "storageclasses", &storage::storage_class::StorageClass),
    ("storage.k8s.io", "v1", "volumeattachments", &storage::volume_attachment::VolumeAttachment),
    (
        "storage.k8s.io",
        "v1",
        "volumeattributesclasses",
        &storage::volume_attributes_class::VolumeAttributesClass,
    ),
];

/// The rules of a resource; none for custom resources, their definitions, and what is not stored.
pub(crate) fn of(target: Target<'_>) -> Option<&'static dyn Kind> {
    let index = KINDS
        .binary_search_by(|(group, version, resource, _)| {
            (*group, *version, *resource).cmp(&(target.group, target.version, target.resource))
        })
        .ok()?;
    Some(KINDS[index].3)
}

#[cfg(test)]
mod tests {
    use super::KINDS;

    #[test]
    fn the_table_is_sorted() {
        assert!(KINDS.is_sorted_by_key(|(group, version, resource, _)| (*group, *version, *resource)));
    }
}
