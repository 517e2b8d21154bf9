//! What a built-in kind is: one trait, and one table of all of them.

use prelude::*;

use super::access::{at, remove};
use super::defaults::normal;
use super::{
    admissionregistration, apiregistration, apps, autoscaling, batch, certificates, coordination, core,
    discovery, flowcontrol, networking, node, policy, rbac, resource, scheduling, storage,
};
use super::{fields, scale};
use crate::resource::Target;

/// What the file of a kind uses.
pub(crate) mod prelude {
    pub(crate) use serde_json::Value;

    pub(crate) use super::{Generation, Kind, Parts, Shape};
    pub(crate) use crate::kinds::access::Members;
    pub(crate) use crate::kinds::field::Field;
    pub(crate) use crate::kinds::prepare::Context;
    pub(crate) use crate::kinds::printers::Heading as H;
    pub(crate) use crate::kinds::printers::Says::{Field as F, Text as T};
    pub(crate) use crate::kinds::printers::{Heading, Row};
    pub(crate) use crate::kinds::report::Report;
}

/// What all objects of a kind have in common.
pub(crate) struct Shape {
    pub(crate) parts: Parts,
    pub(crate) generation: Generation,
}

/// Which of `spec` and `status` a kind has. They are written even when they are empty.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parts {
    /// Neither, or they are left out when they are empty.
    Neither,
    Spec,
    /// Both; only the subresource writes the status, and it takes labels and annotations with it.
    Status,
    /// Both; only the subresource writes the status, and it takes nothing else.
    StatusOnly,
}

impl Parts {
    pub(crate) fn has_status(self) -> bool {
        matches!(self, Self::Status | Self::StatusOnly)
    }

    pub(crate) fn written(self) -> &'static [&'static str] {
        match self {
            Self::Neither => &[],
            Self::Spec => &["spec"],
            Self::Status | Self::StatusOnly => &["spec", "status"],
        }
    }
}

/// What raises `metadata.generation`, which is 1 at first.
#[derive(Clone, Copy)]
pub(crate) enum Generation {
    /// Nothing: it is not counted, and what the client sent is kept.
    Never,
    /// A change at one of these paths.
    Counts(&'static [&'static [&'static str]]),
    /// The same, even of a field that is then dropped because its feature is off.
    CountsSent(&'static [&'static [&'static str]]),
}

impl Generation {
    pub(crate) const NONE: Self = Self::Never;
    pub(crate) const SPEC: Self = Self::Counts(&[&["spec"]]);

    pub(crate) fn is_counted(self) -> bool {
        !matches!(self, Self::Never)
    }

    pub(crate) fn counts_sent(self) -> bool {
        matches!(self, Self::CountsSent(_))
    }

    /// Whether an update changes what is counted.
    pub(crate) fn is_raised(self, new: &Value, old: &Value) -> bool {
        match self {
            Self::Never => false,
            Self::Counts(paths) | Self::CountsSent(paths) => {
                paths.iter().any(|path| at(new, path) != at(old, path))
            }
        }
    }
}

/// The rules of one kind. What has no default here, no kind can do without.
pub(crate) trait Kind: Sync {
    /// What all of its objects have in common.
    fn shape(&self) -> Shape;

    /// The columns of its tables.
    fn columns(&self) -> &'static [Heading];

    /// The cells of an object in these columns.
    fn cells(&self, row: &Row<'_>) -> Vec<Value>;

    /// The `conditions` of the row of an object.
    fn row_conditions(&self, object: &Value) -> Vec<Value> {
        let _ = object;
        Vec::new()
    }

    /// Subresources beside the status whose body is the whole object.
    fn subresources(&self) -> &'static [&'static str] {
        &[]
    }

    /// Brings a decoded object into the form in which a typed server writes it.
    fn normalize(&self, target: Target<'_>, object: &mut Value) {
        normal::normalize(target, object);
    }

    /// Fills in what upstream fills in when it decodes an object.
    fn defaults(&self, members: &mut Members);

    /// Drops fields of features that are off by default.
    fn drop_disabled(&self, members: &mut Members) {
        let _ = members;
    }

    /// What becomes of the status that a create brings.
    fn reset_status(&self, object: &mut Value) {
        remove(object, &["status"]);
    }

    /// What else a create sets or removes, before defaults are filled in once more.
    fn prepare_create(&self, object: &mut Value, context: &Context<'_>) {
        let _ = (object, context);
    }

    /// What a create sets after that.
    fn complete_create(&self, object: &mut Value) {
        let _ = object;
    }

    /// What else an update keeps or sets; the status is kept already.
    fn prepare_update(&self, new: &mut Value, old: &Value, context: &Context<'_>) {
        let _ = (new, old, context);
    }

    /// What else an update of the status keeps or sets; the spec is kept already.
    fn prepare_status(&self, new: &mut Value, old: &Value, context: &Context<'_>) {
        let _ = (new, old, context);
    }

    /// What an update of another subresource keeps and sets.
    fn prepare_subresource(&self, subresource: &str, new: &mut Value, old: &Value, context: &Context<'_>) {
        let _ = (subresource, new, old, context);
    }

    /// Adds warnings about what works, but not as its author may think.
    fn warnings(&self, new: &Value, old: Option<&Value>, texts: &mut Vec<String>) {
        let _ = (new, old, texts);
    }

    /// Fields by which lists and watches select, beside name and namespace.
    fn field_labels(&self) -> &'static [&'static str] {
        &[]
    }

    /// The value of one of them.
    fn field_label(&self, name: &str, object: &Value) -> String {
        fields::text_label(name, object)
    }

    /// How a selector by another field is answered, with `{}` for the field.
    fn unknown_field_label(&self) -> &'static str {
        fields::UNKNOWN
    }

    /// The selector of its pods, as a Scale shows it.
    fn scale_selector(&self, object: &Value) -> String {
        at(object, &["spec", "selector"]).map(scale::label_selector_text).unwrap_or_default()
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
