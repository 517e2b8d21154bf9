//! The core group.

mod component_status;
mod config_map;
mod endpoints;
mod event;
mod limit_range;
mod namespace;
mod node;
pub(super) mod persistent_volume;
mod persistent_volume_claim;
mod pod;
mod pod_template;
mod replication_controller;
mod resource_quota;
mod secret;
mod service;
mod service_account;
mod service_families;

pub(crate) use pod::prepare::quality_of_service;
pub(crate) use service_families::settle as settle_families;

use super::kind::{Rules, ServedKind};

pub(super) const KINDS: &[ServedKind] = &[
    ("v1", "componentstatuses", Rules::of::<component_status::ComponentStatus>()),
    ("v1", "configmaps", Rules::of::<config_map::ConfigMap>()),
    ("v1", "endpoints", Rules::of::<endpoints::Endpoints>()),
    ("v1", "events", Rules::of::<event::Event<true>>()),
    ("v1", "limitranges", Rules::of::<limit_range::LimitRange>()),
    ("v1", "namespaces", Rules::of::<namespace::Namespace>()),
    ("v1", "nodes", Rules::of::<node::Node>()),
    ("v1", "persistentvolumeclaims", Rules::of::<persistent_volume_claim::PersistentVolumeClaim>()),
    ("v1", "persistentvolumes", Rules::of::<persistent_volume::PersistentVolume>()),
    ("v1", "pods", Rules::of::<pod::Pod>()),
    ("v1", "podtemplates", Rules::of::<pod_template::PodTemplate>()),
    ("v1", "replicationcontrollers", Rules::of::<replication_controller::ReplicationController>()),
    ("v1", "resourcequotas", Rules::of::<resource_quota::ResourceQuota>()),
    ("v1", "secrets", Rules::of::<secret::Secret>()),
    ("v1", "serviceaccounts", Rules::of::<service_account::ServiceAccount>()),
    ("v1", "services", Rules::of::<service::Service>()),
];

/// Events in events.k8s.io, which are the same objects.
pub(super) const EVENTS: &[ServedKind] = &[("v1", "events", Rules::of::<event::Event<false>>())];
