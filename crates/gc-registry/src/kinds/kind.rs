//! What a built-in kind is: one trait, and one table of all of them.

use super::field::Field;
use super::report::Report;
use super::{
    admissionregistration, apiregistration, apps, autoscaling, batch, certificates, coordination, core,
    discovery, flowcontrol, networking, node, policy, rbac, resource, scheduling, storage,
};
use crate::resource::Target;

/// The rules of one kind.
pub(crate) trait Kind: Sync {
    /// Checks an object that is about to be created, after defaulting and preparation.
    fn validate(&self, target: Target<'_>, object: &Field<'_, '_>, report: &mut Report);

    /// Checks a prepared update against the stored object.
    fn validate_update(
        &self,
        target: Target<'_>,
        new: &Field<'_, '_>,
        old: &Field<'_, '_>,
        report: &mut Report,
    ) {
        let _ = old;
        self.validate(target, new, report);
    }

    /// Checks an update of the status.
    fn validate_status(
        &self,
        target: Target<'_>,
        new: &Field<'_, '_>,
        old: &Field<'_, '_>,
        report: &mut Report,
    ) {
        let _ = (target, new, old, report);
    }

    /// Checks an update of another subresource.
    fn validate_subresource(
        &self,
        target: Target<'_>,
        new: &Field<'_, '_>,
        old: &Field<'_, '_>,
        report: &mut Report,
    ) {
        let _ = (target, new, old, report);
    }
}

/// Every built-in kind: group, resource, rules; sorted by group and resource.
static KINDS: &[(&str, &str, &dyn Kind)] = &[
    ("", "configmaps", &core::config_map::ConfigMap),
    ("", "endpoints", &core::endpoints::Endpoints),
    ("", "events", &core::event::Event),
    ("", "limitranges", &core::limit_range::LimitRange),
    ("", "namespaces", &core::namespace::Namespace),
    ("", "nodes", &core::node::Node),
    ("", "persistentvolumeclaims", &core::persistent_volume_claim::PersistentVolumeClaim),
    ("", "persistentvolumes", &core::persistent_volume::PersistentVolume),
    ("", "pods", &core::pod::Pod),
    ("", "podtemplates", &core::pod_template::PodTemplate),
    ("", "replicationcontrollers", &core::replication_controller::ReplicationController),
    ("", "resourcequotas", &core::resource_quota::ResourceQuota),
    ("", "secrets", &core::secret::Secret),
    ("", "serviceaccounts", &core::service_account::ServiceAccount),
    ("", "services", &core::service::Service),
    (
        "admissionregistration.k8s.io",
        "mutatingadmissionpolicies",
        &admissionregistration::mutating_policy::MutatingAdmissionPolicy,
    ),
    (
        "admissionregistration.k8s.io",
        "mutatingadmissionpolicybindings",
        &admissionregistration::mutating_policy_binding::MutatingAdmissionPolicyBinding,
    ),
    (
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
        &admissionregistration::webhook_configuration::WebhookConfiguration { mutating: true },
    ),
    (
        "admissionregistration.k8s.io",
        "validatingadmissionpolicies",
        &admissionregistration::validating_policy::ValidatingAdmissionPolicy,
    ),
    (
        "admissionregistration.k8s.io",
        "validatingadmissionpolicybindings",
        &admissionregistration::validating_policy_binding::ValidatingAdmissionPolicyBinding,
    ),
    (
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        &admissionregistration::webhook_configuration::WebhookConfiguration { mutating: false },
    ),
    ("apiregistration.k8s.io", "apiservices", &apiregistration::api_service::ApiService),
    ("apps", "controllerrevisions", &apps::controller_revision::ControllerRevision),
    ("apps", "daemonsets", &apps::daemon_set::DaemonSet),
    ("apps", "deployments", &apps::deployment::Deployment),
    ("apps", "replicasets", &apps::replica_set::ReplicaSet),
    ("apps", "statefulsets", &apps::stateful_set::StatefulSet),
    (
        "autoscaling",
        "horizontalpodautoscalers",
        &autoscaling::horizontal_pod_autoscaler::HorizontalPodAutoscaler,
    ),
    ("batch", "cronjobs", &batch::cron_job::CronJob),
    ("batch", "jobs", &batch::job::Job),
    (
        "certificates.k8s.io",
        "certificatesigningrequests",
        &certificates::certificate_signing_request::CertificateSigningRequest,
    ),
    ("coordination.k8s.io", "leases", &coordination::lease::Lease),
    ("discovery.k8s.io", "endpointslices", &discovery::endpoint_slice::EndpointSlice),
    ("events.k8s.io", "events", &core::event::Event),
    ("flowcontrol.apiserver.k8s.io", "flowschemas", &flowcontrol::flow_schema::FlowSchema),
    (
        "flowcontrol.apiserver.k8s.io",
        "prioritylevelconfigurations",
        &flowcontrol::priority_level::PriorityLevelConfiguration,
    ),
    ("networking.k8s.io", "ingressclasses", &networking::ingress_class::IngressClass),
    ("networking.k8s.io", "ingresses", &networking::ingress::Ingress),
    ("networking.k8s.io", "ipaddresses", &networking::ip_address::IpAddress),
    ("networking.k8s.io", "networkpolicies", &networking::network_policy::NetworkPolicy),
    ("networking.k8s.io", "servicecidrs", &networking::service_cidr::ServiceCidr),
    ("node.k8s.io", "runtimeclasses", &node::runtime_class::RuntimeClass),
    ("policy", "poddisruptionbudgets", &policy::pod_disruption_budget::PodDisruptionBudget),
    ("rbac.authorization.k8s.io", "clusterrolebindings", &rbac::binding::Binding { cluster: true }),
    ("rbac.authorization.k8s.io", "clusterroles", &rbac::role::Role { cluster: true }),
    ("rbac.authorization.k8s.io", "rolebindings", &rbac::binding::Binding { cluster: false }),
    ("rbac.authorization.k8s.io", "roles", &rbac::role::Role { cluster: false }),
    ("resource.k8s.io", "deviceclasses", &resource::device_class::DeviceClass),
    ("resource.k8s.io", "resourceclaims", &resource::resource_claim::ResourceClaim),
    ("resource.k8s.io", "resourceclaimtemplates", &resource::resource_claim_template::ResourceClaimTemplate),
    ("resource.k8s.io", "resourceslices", &resource::resource_slice::ResourceSlice),
    ("scheduling.k8s.io", "priorityclasses", &scheduling::priority_class::PriorityClass),
    ("storage.k8s.io", "csidrivers", &storage::csi_driver::CsiDriver),
    ("storage.k8s.io", "csinodes", &storage::csi_node::CsiNode),
    ("storage.k8s.io", "csistoragecapacities", &storage::csi_storage_capacity::CsiStorageCapacity),
    ("storage.k8s.io", "storageclasses", &storage::storage_class::StorageClass),
    ("storage.k8s.io", "volumeattachments", &storage::volume_attachment::VolumeAttachment),
    ("storage.k8s.io", "volumeattributesclasses", &storage::volume_attributes_class::VolumeAttributesClass),
];

/// The rules of a resource; none for custom resources, their definitions, and what is not stored.
pub(crate) fn of(target: Target<'_>) -> Option<&'static dyn Kind> {
    let index = KINDS
        .binary_search_by(|(group, resource, _)| (*group, *resource).cmp(&(target.group, target.resource)))
        .ok()?;
    Some(KINDS[index].2)
}

#[cfg(test)]
mod tests {
    use super::KINDS;

    #[test]
    fn the_table_is_sorted() {
        assert!(KINDS.is_sorted_by_key(|(group, resource, _)| (*group, *resource)));
    }
}
