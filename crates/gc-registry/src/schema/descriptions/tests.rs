//! Compares `descriptions.jsonl` with the published types of `k8s-openapi`. The file is generated here instead of in the build,
//! which spares the program the schemas of that crate: half of its compile time.

use std::collections::BTreeMap;

use k8s_openapi as k8s;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::Value;

use super::Fields;
use crate::kubernetes::KubernetesVersion;
use crate::schema::{facts, kinds};

/// Adds the definitions of a type and of everything that it refers to, and returns the reference to the type.
type Describe = fn(&mut SchemaGenerator) -> schemars::Schema;

fn describe<T: JsonSchema>(generator: &mut SchemaGenerator) -> schemars::Schema {
    generator.subschema_for::<T>()
}

fn described(value: &Value) -> Fields {
    let text = |value: &Value| value.get("description").and_then(Value::as_str).map(Into::into);
    let properties = value.get("properties").and_then(Value::as_object).into_iter().flatten();
    let mut found: Fields =
        properties.filter_map(|(name, value)| Some((name.clone(), text(value)?))).collect();
    if let Some(own) = text(value) {
        // The watch event's description of its object is appended to the description of the type itself.
        let parts = own.split_once("\n\n").filter(|(_, object)| object.starts_with("Object is:"));
        if let Some((event, object)) = parts {
            found.insert("object".into(), object.trim_end().into());
            found.insert(String::new(), event.into());
        } else {
            found.insert(String::new(), own);
        }
    }
    found
}

/// Set the variable `KUBEGC_DESCRIBE` to rewrite the file after an update of `k8s-openapi`.
#[test]
fn the_file_says_what_the_published_types_say() {
    let named: Vec<_> = KINDS.iter().map(|row| (row.0, row.1, row.2)).collect();
    assert_eq!(named, kinds::KINDS);
    let mut generator = SchemaGenerator::default();
    for describe in KINDS.iter().map(|row| row.3).chain(OTHERS) {
        describe(&mut generator);
    }
    let mut lines: Vec<String> = generator
        .take_definitions(true)
        .into_iter()
        .map(|(name, value)| serde_json::to_string(&(name, described(&value))).unwrap() + "\n")
        .collect();
    lines.sort();
    let text = lines.concat();
    if std::env::var_os("KUBEGC_DESCRIBE").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/src/schema/descriptions.jsonl"), &text).unwrap();
    }
    assert!(
        text == super::FILE,
        "descriptions.jsonl is not what k8s-openapi says: run this test with KUBEGC_DESCRIBE=1"
    );
}

/// Every definition in the difference of a version must exist in that version.
#[test]
fn descriptions_of_each_version_are_of_its_types() {
    for version in KubernetesVersion::ALL {
        let types: BTreeMap<&str, facts::Fact> = facts::types_of(version).collect();
        for (name, fields) in super::descriptions_of(version) {
            let fact = name.strip_prefix(facts::PREFIX).and_then(|name| types.get(name));
            let fact = fact.unwrap_or_else(|| panic!("{version}: {name} is described and unknown"));
            let known: Vec<&str> = fact.fields().filter_map(|line| line.split(' ').nth(1)).collect();
            let unknown = fields.keys().find(|field| !field.is_empty() && !known.contains(&field.as_str()));
            assert!(known.is_empty() || unknown.is_none(), "{version}: {name}: {unknown:?}");
        }
    }
}

/// Further types that documents refer to.
const OTHERS: [Describe; 6] = [
    describe::<meta::APIGroupList>,
    describe::<meta::APIResourceList>,
    describe::<meta::APIVersions>,
    describe::<meta::Patch>,
    describe::<meta::WatchEvent<()>>,
    describe::<k8s::apimachinery::pkg::version::Info>,
];

/// Group, version, kind, and the function that describes it; sorted.
const KINDS: &[(&str, &str, &str, Describe)] = &[
    ("", "v1", "Binding", describe::<k8s::api::core::v1::Binding>),
    ("", "v1", "ComponentStatus", describe::<k8s::api::core::v1::ComponentStatus>),
    ("", "v1", "ConfigMap", describe::<k8s::api::core::v1::ConfigMap>),
    ("", "v1", "Endpoints", describe::<k8s::api::core::v1::Endpoints>),
    ("", "v1", "Event", describe::<k8s::api::core::v1::Event>),
    ("", "v1", "LimitRange", describe::<k8s::api::core::v1::LimitRange>),
    ("", "v1", "Namespace", describe::<k8s::api::core::v1::Namespace>),
    ("", "v1", "Node", describe::<k8s::api::core::v1::Node>),
    ("", "v1", "PersistentVolume", describe::<k8s::api::core::v1::PersistentVolume>),
    ("", "v1", "PersistentVolumeClaim", describe::<k8s::api::core::v1::PersistentVolumeClaim>),
    ("", "v1", "Pod", describe::<k8s::api::core::v1::Pod>),
    ("", "v1", "PodTemplate", describe::<k8s::api::core::v1::PodTemplate>),
    ("", "v1", "ReplicationController", describe::<k8s::api::core::v1::ReplicationController>),
    ("", "v1", "ResourceQuota", describe::<k8s::api::core::v1::ResourceQuota>),
    ("", "v1", "Secret", describe::<k8s::api::core::v1::Secret>),
    ("", "v1", "Service", describe::<k8s::api::core::v1::Service>),
    ("", "v1", "ServiceAccount", describe::<k8s::api::core::v1::ServiceAccount>),
    ("", "v1", "Status", describe::<k8s::apimachinery::pkg::apis::meta::v1::Status>),
    (
        "admissionregistration.k8s.io",
        "v1",
        "MutatingAdmissionPolicy",
        describe::<k8s::api::admissionregistration::v1::MutatingAdmissionPolicy>,
    ),
    (
        "admissionregistration.k8s.io",
        "v1",
        "MutatingAdmissionPolicyBinding",
        describe::<k8s::api::admissionregistration::v1::MutatingAdmissionPolicyBinding>,
    ),
    (
        "admissionregistration.k8s.io",
        "v1",
        "MutatingWebhookConfiguration",
        describe::<k8s::api::admissionregistration::v1::MutatingWebhookConfiguration>,
    ),
    (
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicy",
        describe::<k8s::api::admissionregistration::v1::ValidatingAdmissionPolicy>,
    ),
    (
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicyBinding",
        describe::<k8s::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding>,
    ),
    (
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
        describe::<k8s::api::admissionregistration::v1::ValidatingWebhookConfiguration>,
    ),
    (
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        describe::<k8s::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition>,
    ),
    (
        "apiregistration.k8s.io",
        "v1",
        "APIService",
        describe::<k8s::kube_aggregator::pkg::apis::apiregistration::v1::APIService>,
    ),
    ("apps", "v1", "ControllerRevision", describe::<k8s::api::apps::v1::ControllerRevision>),
    ("apps", "v1", "DaemonSet", describe::<k8s::api::apps::v1::DaemonSet>),
    ("apps", "v1", "Deployment", describe::<k8s::api::apps::v1::Deployment>),
    ("apps", "v1", "ReplicaSet", describe::<k8s::api::apps::v1::ReplicaSet>),
    ("apps", "v1", "StatefulSet", describe::<k8s::api::apps::v1::StatefulSet>),
    (
        "authentication.k8s.io",
        "v1",
        "SelfSubjectReview",
        describe::<k8s::api::authentication::v1::SelfSubjectReview>,
    ),
    ("authentication.k8s.io", "v1", "TokenRequest", describe::<k8s::api::authentication::v1::TokenRequest>),
    ("authentication.k8s.io", "v1", "TokenReview", describe::<k8s::api::authentication::v1::TokenReview>),
    (
        "authorization.k8s.io",
        "v1",
        "LocalSubjectAccessReview",
        describe::<k8s::api::authorization::v1::LocalSubjectAccessReview>,
    ),
    (
        "authorization.k8s.io",
        "v1",
        "SelfSubjectAccessReview",
        describe::<k8s::api::authorization::v1::SelfSubjectAccessReview>,
    ),
    (
        "authorization.k8s.io",
        "v1",
        "SelfSubjectRulesReview",
        describe::<k8s::api::authorization::v1::SelfSubjectRulesReview>,
    ),
    (
        "authorization.k8s.io",
        "v1",
        "SubjectAccessReview",
        describe::<k8s::api::authorization::v1::SubjectAccessReview>,
    ),
    (
        "autoscaling",
        "v1",
        "HorizontalPodAutoscaler",
        describe::<k8s::api::autoscaling::v1::HorizontalPodAutoscaler>,
    ),
    ("autoscaling", "v1", "Scale", describe::<k8s::api::autoscaling::v1::Scale>),
    (
        "autoscaling",
        "v2",
        "HorizontalPodAutoscaler",
        describe::<k8s::api::autoscaling::v2::HorizontalPodAutoscaler>,
    ),
    ("batch", "v1", "CronJob", describe::<k8s::api::batch::v1::CronJob>),
    ("batch", "v1", "Job", describe::<k8s::api::batch::v1::Job>),
    (
        "certificates.k8s.io",
        "v1",
        "CertificateSigningRequest",
        describe::<k8s::api::certificates::v1::CertificateSigningRequest>,
    ),
    ("coordination.k8s.io", "v1", "Lease", describe::<k8s::api::coordination::v1::Lease>),
    ("discovery.k8s.io", "v1", "EndpointSlice", describe::<k8s::api::discovery::v1::EndpointSlice>),
    ("events.k8s.io", "v1", "Event", describe::<k8s::api::events::v1::Event>),
    ("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema", describe::<k8s::api::flowcontrol::v1::FlowSchema>),
    (
        "flowcontrol.apiserver.k8s.io",
        "v1",
        "PriorityLevelConfiguration",
        describe::<k8s::api::flowcontrol::v1::PriorityLevelConfiguration>,
    ),
    ("networking.k8s.io", "v1", "IPAddress", describe::<k8s::api::networking::v1::IPAddress>),
    ("networking.k8s.io", "v1", "Ingress", describe::<k8s::api::networking::v1::Ingress>),
    ("networking.k8s.io", "v1", "IngressClass", describe::<k8s::api::networking::v1::IngressClass>),
    ("networking.k8s.io", "v1", "NetworkPolicy", describe::<k8s::api::networking::v1::NetworkPolicy>),
    ("networking.k8s.io", "v1", "ServiceCIDR", describe::<k8s::api::networking::v1::ServiceCIDR>),
    ("node.k8s.io", "v1", "RuntimeClass", describe::<k8s::api::node::v1::RuntimeClass>),
    ("policy", "v1", "Eviction", describe::<k8s::api::policy::v1::Eviction>),
    ("policy", "v1", "PodDisruptionBudget", describe::<k8s::api::policy::v1::PodDisruptionBudget>),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole", describe::<k8s::api::rbac::v1::ClusterRole>),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "ClusterRoleBinding",
        describe::<k8s::api::rbac::v1::ClusterRoleBinding>,
    ),
    ("rbac.authorization.k8s.io", "v1", "Role", describe::<k8s::api::rbac::v1::Role>),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding", describe::<k8s::api::rbac::v1::RoleBinding>),
    ("resource.k8s.io", "v1", "DeviceClass", describe::<k8s::api::resource::v1::DeviceClass>),
    ("resource.k8s.io", "v1", "ResourceClaim", describe::<k8s::api::resource::v1::ResourceClaim>),
    (
        "resource.k8s.io",
        "v1",
        "ResourceClaimTemplate",
        describe::<k8s::api::resource::v1::ResourceClaimTemplate>,
    ),
    ("resource.k8s.io", "v1", "ResourceSlice", describe::<k8s::api::resource::v1::ResourceSlice>),
    ("scheduling.k8s.io", "v1", "PriorityClass", describe::<k8s::api::scheduling::v1::PriorityClass>),
    ("storage.k8s.io", "v1", "CSIDriver", describe::<k8s::api::storage::v1::CSIDriver>),
    ("storage.k8s.io", "v1", "CSINode", describe::<k8s::api::storage::v1::CSINode>),
    ("storage.k8s.io", "v1", "CSIStorageCapacity", describe::<k8s::api::storage::v1::CSIStorageCapacity>),
    ("storage.k8s.io", "v1", "StorageClass", describe::<k8s::api::storage::v1::StorageClass>),
    ("storage.k8s.io", "v1", "VolumeAttachment", describe::<k8s::api::storage::v1::VolumeAttachment>),
    (
        "storage.k8s.io",
        "v1",
        "VolumeAttributesClass",
        describe::<k8s::api::storage::v1::VolumeAttributesClass>,
    ),
];
