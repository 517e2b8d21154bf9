//! Table of workload controllers: the kinds they observe, their permissions, and the function that decides for each.

use crate::kinds::{Key, Kind};
use crate::plan::{Plan, Settings, View};
use crate::store::Change;
use crate::{
    certificates, cronjobs, daemonsets, deployments, disruption, jobs, namespaces, nodes, replicasets,
    services, statefulsets, storage,
};

/// A workload controller, the scheduler, or the simulated nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Workload {
    /// The ServiceAccount `default` of each namespace.
    ServiceAccount,
    /// The ConfigMap `kube-root-ca.crt` of each namespace.
    RootCertificates,
    /// [`crate::deployments`]
    Deployment,
    /// [`crate::replicasets`]
    ReplicaSet,
    /// ReplicationControllers.
    ReplicationController,
    /// [`crate::statefulsets`]
    StatefulSet,
    /// [`crate::daemonsets`]
    DaemonSet,
    /// [`crate::jobs`]
    Job,
    /// [`crate::cronjobs`]
    CronJob,
    /// [`crate::nodes::scheduler`]
    Scheduler,
    /// [`crate::nodes::kubelet`]
    Kubelet,
    /// Health and taints of nodes.
    NodeLifecycle,
    /// Pods that do not tolerate their node's taints.
    TaintEviction,
    /// [`crate::services::slices`]
    EndpointSlice,
    /// [`crate::services::mirroring`]
    EndpointSliceMirroring,
    /// [`crate::services::endpoints`]
    Endpoints,
    /// [`crate::services::balancers`]
    LoadBalancer,
    /// [`crate::storage::binding`]
    VolumeBinding,
    /// [`crate::storage::provisioning`]
    Provisioning,
    /// [`crate::storage::ephemeral`]
    EphemeralVolume,
    /// `crate::disruption`
    Disruption,
    /// Approval of kubelets' requests.
    CertificateApproval,
    /// [`crate::certificates`]
    CertificateSigning,
}

/// Verbs on a resource; a rule of a ClusterRole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Resource, or `resource/subresource`.
    pub resource: &'static str,
    /// Names of objects; empty for all.
    pub names: &'static [&'static str],
    /// Verbs.
    pub verbs: &'static [&'static str],
}

/// Builds rules that a const function may return.
macro_rules! rules {
    ($($rule:expr),* $(,)?) => {
        const { &[$($rule),*] }
    };
}

const fn rule(group: &'static str, resource: &'static str, verbs: &'static [&'static str]) -> Rule {
    Rule { group, resource, names: &[], verbs }
}

/// Returns the rule for signers of certificates.
const fn signers(names: &'static [&'static str], verbs: &'static [&'static str]) -> Rule {
    Rule { group: "certificates.k8s.io", resource: "signers", names, verbs }
}

const WRITE_EVENTS: Rule = rule("", "events", &["create", "patch"]);
const UPDATE: &[&str] = &["update"];
const WRITE: &[&str] = &["create", "update", "patch", "delete"];
/// Permissions to create and delete pods, and to adopt and release them.
const PODS: Rule = rule("", "pods", &["create", "delete", "patch"]);

impl Workload {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::ServiceAccount,
        Self::RootCertificates,
        Self::Deployment,
        Self::ReplicaSet,
        Self::ReplicationController,
        Self::StatefulSet,
        Self::DaemonSet,
        Self::Job,
        Self::CronJob,
        Self::Scheduler,
        Self::Kubelet,
        Self::NodeLifecycle,
        Self::TaintEviction,
        Self::EndpointSlice,
        Self::EndpointSliceMirroring,
        Self::Endpoints,
        Self::LoadBalancer,
        Self::VolumeBinding,
        Self::Provisioning,
        Self::EphemeralVolume,
        Self::Disruption,
        Self::CertificateApproval,
        Self::CertificateSigning,
    ];

    /// Returns the name in `--controllers`, which is upstream's.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ServiceAccount => "serviceaccount-controller",
            Self::RootCertificates => "root-ca-certificate-publisher-controller",
            Self::Deployment => "deployment-controller",
            Self::ReplicaSet => "replicaset-controller",
            Self::ReplicationController => "replicationcontroller-controller",
            Self::StatefulSet => "statefulset-controller",
            Self::DaemonSet => "daemonset-controller",
            Self::Job => "job-controller",
            Self::CronJob => "cronjob-controller",
            Self::Scheduler => "kube-scheduler",
            Self::Kubelet => "simulated-nodes",
            Self::NodeLifecycle => "node-lifecycle-controller",
            Self::TaintEviction => "taint-eviction-controller",
            Self::EndpointSlice => "endpointslice-controller",
            Self::EndpointSliceMirroring => "endpointslice-mirroring-controller",
            Self::Endpoints => "endpoints-controller",
            Self::LoadBalancer => "service-lb-controller",
            Self::VolumeBinding => "volume-binding-controller",
            Self::Provisioning => "simulated-provisioner",
            Self::EphemeralVolume => "ephemeral-volume-controller",
            Self::Disruption => "disruption-controller",
            Self::CertificateApproval => "certificatesigningrequest-approving-controller",
            Self::CertificateSigning => "certificatesigningrequest-signing-controller",
        }
    }

    /// Returns the name of its ServiceAccount in `kube-system`.
    #[must_use]
    pub const fn identity(self) -> &'static str {
        match self {
            Self::ServiceAccount => "service-account-controller",
            Self::RootCertificates => "root-ca-cert-publisher",
            Self::ReplicationController => "replication-controller",
            Self::DaemonSet => "daemon-set-controller",
            Self::NodeLifecycle => "node-controller",
            Self::EndpointSliceMirroring => "endpointslicemirroring-controller",
            Self::Endpoints => "endpoint-controller",
            Self::LoadBalancer => "service-controller",
            Self::VolumeBinding => "persistent-volume-binder",
            other => other.name(),
        }
    }

    /// Returns the field manager of its writes.
    #[must_use]
    pub const fn field_manager(self) -> &'static str {
        match self {
            Self::Scheduler => "kube-scheduler",
            Self::Kubelet => "kubelet",
            Self::LoadBalancer => "cloud-controller-manager",
            Self::Provisioning => "csi-provisioner",
            _ => "kube-controller-manager",
        }
    }

    /// Returns the source of its Events.
    #[must_use]
    pub const fn event_source(self) -> &'static str {
        match self {
            Self::ReplicationController => "replication-controller",
            Self::Scheduler => "default-scheduler",
            Self::Kubelet => "kubelet",
            Self::NodeLifecycle => "node-controller",
            Self::EndpointSlice => "endpoint-slice-controller",
            Self::EndpointSliceMirroring => "endpoint-slice-mirroring-controller",
            Self::Endpoints => "endpoint-controller",
            Self::LoadBalancer => "service-controller",
            Self::VolumeBinding => "persistentvolume-controller",
            Self::Provisioning => storage::PROVISIONER,
            Self::EphemeralVolume => "ephemeral_volume",
            Self::Disruption => "controllermanager",
            other => other.name(),
        }
    }

    /// Returns the kinds that it observes.
    #[must_use]
    pub const fn observes(self) -> &'static [Kind] {
        match self {
            Self::ServiceAccount => &[Kind::Namespace, Kind::ServiceAccount],
            Self::RootCertificates => &[Kind::Namespace, Kind::ConfigMap],
            Self::Deployment => &[Kind::Deployment, Kind::ReplicaSet, Kind::Pod],
            Self::ReplicaSet => &[Kind::ReplicaSet, Kind::Pod],
            Self::ReplicationController => &[Kind::ReplicationController, Kind::Pod],
            Self::StatefulSet => {
                &[Kind::StatefulSet, Kind::Pod, Kind::ControllerRevision, Kind::PersistentVolumeClaim]
            }
            Self::DaemonSet => &[Kind::DaemonSet, Kind::Pod, Kind::ControllerRevision, Kind::Node],
            Self::Job => &[Kind::Job, Kind::Pod],
            Self::CronJob => &[Kind::CronJob, Kind::Job],
            Self::Scheduler => &[
                Kind::Pod,
                Kind::Node,
                Kind::PersistentVolumeClaim,
                Kind::PersistentVolume,
                Kind::StorageClass,
                Kind::ResourceClaim,
            ],
            Self::TaintEviction => &[Kind::Pod, Kind::Node],
            Self::Kubelet => &[Kind::Pod, Kind::Node, Kind::Lease],
            Self::NodeLifecycle => &[Kind::Node, Kind::Pod, Kind::Lease],
            Self::EndpointSlice => &[Kind::Service, Kind::Pod, Kind::EndpointSlice, Kind::Node],
            Self::EndpointSliceMirroring => &[Kind::Service, Kind::Endpoints, Kind::EndpointSlice],
            Self::Endpoints => &[Kind::Service, Kind::Pod, Kind::Endpoints],
            Self::LoadBalancer => &[Kind::Service],
            Self::VolumeBinding | Self::Provisioning => {
                &[Kind::PersistentVolumeClaim, Kind::PersistentVolume, Kind::StorageClass]
            }
            Self::EphemeralVolume => &[Kind::Pod, Kind::PersistentVolumeClaim],
            Self::Disruption => &[
                Kind::PodDisruptionBudget,
                Kind::Pod,
                Kind::ReplicaSet,
                Kind::ReplicationController,
                Kind::Deployment,
                Kind::StatefulSet,
            ],
            Self::CertificateApproval | Self::CertificateSigning => &[Kind::CertificateSigningRequest],
        }
    }

    /// Returns the rules for its writes; the informers have their own permission to read.
    #[must_use]
    pub const fn rules(self) -> &'static [Rule] {
        match self {
            Self::ServiceAccount => rules![rule("", "serviceaccounts", &["create"]), WRITE_EVENTS],
            Self::RootCertificates => rules![rule("", "configmaps", &["create", "update"]), WRITE_EVENTS],
            Self::Deployment => rules![
                rule("apps", "deployments", &["get"]),
                rule("apps", "deployments/status", UPDATE),
                rule("apps", "deployments/finalizers", UPDATE),
                rule("apps", "replicasets", &["create", "update", "patch", "delete"]),
                WRITE_EVENTS,
            ],
            Self::ReplicaSet => rules![
                rule("apps", "replicasets", &["get"]),
                rule("apps", "replicasets/status", UPDATE),
                rule("apps", "replicasets/finalizers", UPDATE),
                PODS,
                WRITE_EVENTS,
            ],
            Self::ReplicationController => rules![
                rule("", "replicationcontrollers", &["get"]),
                rule("", "replicationcontrollers/status", UPDATE),
                rule("", "replicationcontrollers/finalizers", UPDATE),
                PODS,
                WRITE_EVENTS,
            ],
            Self::StatefulSet => rules![
                rule("apps", "statefulsets", &["get"]),
                rule("apps", "statefulsets/status", UPDATE),
                rule("apps", "statefulsets/finalizers", UPDATE),
                rule("apps", "controllerrevisions", WRITE),
                // A claim may be deleted with its pod, and only a user who may delete it may set such an owner.
                rule("", "persistentvolumeclaims", &["create", "update", "delete"]),
                PODS,
                WRITE_EVENTS,
            ],
            Self::DaemonSet => rules![
                rule("apps", "daemonsets", &["get"]),
                rule("apps", "daemonsets/status", UPDATE),
                rule("apps", "daemonsets/finalizers", UPDATE),
                rule("apps", "controllerrevisions", WRITE),
                PODS,
                WRITE_EVENTS,
            ],
            Self::Job => rules![
                rule("batch", "jobs", &["get"]),
                rule("batch", "jobs/status", UPDATE),
                rule("batch", "jobs/finalizers", UPDATE),
                PODS,
                WRITE_EVENTS,
            ],
            Self::CronJob => rules![
                rule("batch", "cronjobs/status", UPDATE),
                rule("batch", "cronjobs/finalizers", UPDATE),
                rule("batch", "jobs", &["create", "delete"]),
                WRITE_EVENTS,
            ],
            Self::Scheduler => rules![
                rule("", "persistentvolumeclaims", &["patch"]),
                rule("", "pods/binding", &["create"]),
                rule("", "pods/status", &["patch"]),
                WRITE_EVENTS,
            ],
            Self::Kubelet => rules![
                rule("", "nodes", &["create"]),
                rule("", "nodes/status", UPDATE),
                rule("", "pods", &["delete"]),
                rule("", "pods/status", UPDATE),
                rule("coordination.k8s.io", "leases", &["create", "update"]),
                WRITE_EVENTS,
            ],
            Self::NodeLifecycle => rules![
                rule("", "nodes", &["patch"]),
                rule("", "nodes/status", UPDATE),
                rule("", "pods/status", UPDATE),
                WRITE_EVENTS,
            ],
            Self::TaintEviction => {
                rules![rule("", "pods", &["delete"]), rule("", "pods/status", UPDATE), WRITE_EVENTS]
            }
            Self::EndpointSlice => rules![
                rule("discovery.k8s.io", "endpointslices", &["create", "update", "delete"]),
                rule("", "services/finalizers", UPDATE),
                WRITE_EVENTS,
            ],
            Self::EndpointSliceMirroring => rules![
                rule("discovery.k8s.io", "endpointslices", &["create", "update", "delete"]),
                rule("", "endpoints/finalizers", UPDATE),
                WRITE_EVENTS,
            ],
            Self::Endpoints => rules![rule("", "endpoints", &["create", "update", "delete"]), WRITE_EVENTS],
            Self::LoadBalancer => rules![
                rule("", "services", &["patch"]),
                rule("", "services/status", &["patch"]),
                WRITE_EVENTS
            ],
            Self::VolumeBinding => rules![
                rule("", "persistentvolumes", UPDATE),
                rule("", "persistentvolumes/status", UPDATE),
                rule("", "persistentvolumeclaims", UPDATE),
                rule("", "persistentvolumeclaims/status", UPDATE),
                WRITE_EVENTS,
            ],
            Self::Provisioning => rules![
                rule("", "persistentvolumes", &["create", "update", "patch", "delete"]),
                rule("", "persistentvolumeclaims/status", UPDATE),
                rule("storage.k8s.io", "storageclasses", &["create"]),
                WRITE_EVENTS,
            ],
            Self::EphemeralVolume => rules![
                rule("", "pods/finalizers", UPDATE),
                rule("", "persistentvolumeclaims", &["create"]),
                WRITE_EVENTS,
            ],
            Self::Disruption => rules![rule("policy", "poddisruptionbudgets/status", UPDATE), WRITE_EVENTS],
            Self::CertificateApproval => rules![
                rule("certificates.k8s.io", "certificatesigningrequests/approval", UPDATE),
                signers(&[certificates::KUBELET_CLIENT], &["approve"]),
                rule("authorization.k8s.io", "subjectaccessreviews", &["create"]),
            ],
            Self::CertificateSigning => rules![
                rule("certificates.k8s.io", "certificatesigningrequests/status", UPDATE),
                signers(&certificates::SIGNERS, &["sign"]),
            ],
        }
    }

    /// Reports whether its reconciliation is passed earlier failures.
    #[must_use]
    pub const fn handles_failures(self) -> bool {
        matches!(
            self,
            Self::Deployment
                | Self::ReplicaSet
                | Self::ReplicationController
                | Self::StatefulSet
                | Self::DaemonSet
                | Self::CronJob
        )
    }

    /// Returns the keys to reconcile even if their objects do not exist yet.
    #[must_use]
    pub fn first_keys(self, settings: &Settings) -> Vec<Key> {
        match self {
            Self::Kubelet => nodes::kubelet::first_keys(settings),
            Self::Provisioning => storage::provisioning::first_keys(),
            _ => Vec::new(),
        }
    }

    /// Adds the keys to reconcile after a change.
    pub(crate) fn wakes(self, view: &View<'_>, change: &Change, keys: &mut Vec<Key>) {
        match self {
            Self::ServiceAccount | Self::RootCertificates => namespaces::wakes(change, keys),
            Self::Deployment => deployments::wakes(view, change, keys),
            Self::ReplicaSet => replicasets::wakes(view, change, Kind::ReplicaSet, keys),
            Self::ReplicationController => {
                replicasets::wakes(view, change, Kind::ReplicationController, keys);
            }
            Self::StatefulSet => statefulsets::wakes(view, change, keys),
            Self::DaemonSet => daemonsets::wakes(view, change, keys),
            Self::Job => jobs::wakes(view, change, keys),
            Self::CronJob => cronjobs::wakes(view, change, keys),
            Self::Scheduler => nodes::scheduler::wakes(view, change, keys),
            Self::Kubelet => nodes::kubelet::wakes(view, change, keys),
            Self::NodeLifecycle => nodes::lifecycle::wakes_nodes(change, keys),
            Self::TaintEviction => nodes::lifecycle::wakes_pods(view, change, keys),
            Self::EndpointSlice => services::slices::wakes(view, change, keys),
            Self::EndpointSliceMirroring => services::mirroring::wakes(change, keys),
            Self::Endpoints => services::endpoints::wakes(view, change, keys),
            Self::LoadBalancer => services::balancers::wakes(change, keys),
            Self::VolumeBinding => storage::binding::wakes(view, change, keys),
            Self::Provisioning => storage::provisioning::wakes(view, change, keys),
            Self::EphemeralVolume => storage::ephemeral::wakes(view, change, keys),
            Self::Disruption => disruption::wakes(view, change, keys),
            Self::CertificateApproval | Self::CertificateSigning => certificates::wakes(change, keys),
        }
    }

    /// Plans one reconciliation of an object.
    pub(crate) fn reconcile(self, view: &View<'_>, key: &Key) -> Plan {
        match self {
            Self::ServiceAccount => namespaces::service_account(view, key),
            Self::RootCertificates => namespaces::root_certificates(view, key),
            Self::Deployment => deployments::reconcile(view, key),
            Self::ReplicaSet | Self::ReplicationController => replicasets::reconcile(view, key),
            Self::StatefulSet => statefulsets::reconcile(view, key),
            Self::DaemonSet => daemonsets::reconcile(view, key),
            Self::Job => jobs::reconcile(view, key),
            Self::CronJob => cronjobs::reconcile(view, key),
            Self::Scheduler => nodes::scheduler::reconcile(view, key),
            Self::Kubelet => nodes::kubelet::reconcile(view, key),
            Self::NodeLifecycle => nodes::lifecycle::reconcile_node(view, key),
            Self::TaintEviction => nodes::lifecycle::evict(view, key),
            Self::EndpointSlice => services::slices::reconcile(view, key),
            Self::EndpointSliceMirroring => services::mirroring::reconcile(view, key),
            Self::Endpoints => services::endpoints::reconcile(view, key),
            Self::LoadBalancer => services::balancers::reconcile(view, key),
            Self::VolumeBinding => storage::binding::reconcile(view, key),
            Self::Provisioning => storage::provisioning::reconcile(view, key),
            Self::EphemeralVolume => storage::ephemeral::reconcile(view, key),
            Self::Disruption => disruption::reconcile(view, key),
            Self::CertificateApproval => certificates::approve(view, key),
            Self::CertificateSigning => certificates::sign(view, key),
        }
    }
}

impl std::fmt::Display for Workload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Reports whether a word of `--controllers` names a workload controller, to enable or to disable it.
#[must_use]
pub fn is_named(word: &str) -> bool {
    let name = word.strip_prefix('-').unwrap_or(word);
    Workload::ALL.iter().any(|workload| workload.name() == name)
}

/// Lists the names of all workload controllers, for error messages.
#[must_use]
pub fn names() -> String {
    let names: Vec<&str> = Workload::ALL.iter().map(|workload| workload.name()).collect();
    names.join(", ")
}
