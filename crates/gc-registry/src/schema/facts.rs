//! What server-side apply and strategic merge patches must know about the fields of the built-in types and
//! what their Rust definitions do not say: which lists are sets or keyed, which objects are one unit, and how
//! a strategic merge patch treats a field. The facts are those of Kubernetes v1.36.

use super::{ListType, PatchStrategy};

/// How server-side apply owns the parts of a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Parts {
    /// As the type says; lists are atomic.
    Plain,
    /// The field is one unit.
    Atomic,
    /// A list of unique scalars.
    Set,
    /// A list of objects told apart by these fields.
    Keyed(&'static [&'static str]),
}

/// How a strategic merge patch treats a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Strategy {
    /// Objects are merged, lists are replaced.
    Default,
    /// Objects are merged, and a patch may say which fields remain.
    RetainKeys,
    /// The object is replaced.
    ReplaceWhole,
    /// Lists of scalars are merged.
    Merge,
    /// Lists of objects are merged by this field.
    MergeBy(&'static str),
    /// The same, and a patch may say which fields of an item remain.
    MergeByRetainKeys(&'static str),
}

use Parts::{Atomic, Keyed, Plain, Set};
use Strategy::{Default as Replaced, Merge, MergeBy, MergeByRetainKeys, ReplaceWhole, RetainKeys};

/// What all names of definitions start with; left out of the tables.
pub(super) const PREFIX: &str = "io.k8s.";

/// Definition, field, parts, strategy; sorted by definition and field.
pub(super) const FIELDS: &[(&str, &str, Parts, Strategy)] = &[
    (
        "api.admissionregistration.v1.MutatingAdmissionPolicySpec",
        "matchConditions",
        Keyed(&["name"]),
        MergeBy("name"),
    ),
    ("api.admissionregistration.v1.MutatingWebhook", "matchConditions", Keyed(&["name"]), MergeBy("name")),
    (
        "api.admissionregistration.v1.MutatingWebhookConfiguration",
        "webhooks",
        Keyed(&["name"]),
        MergeBy("name"),
    ),
    ("api.admissionregistration.v1.ValidatingAdmissionPolicyBindingSpec", "validationActions", Set, Replaced),
    (
        "api.admissionregistration.v1.ValidatingAdmissionPolicySpec",
        "matchConditions",
        Keyed(&["name"]),
        MergeBy("name"),
    ),
    (
        "api.admissionregistration.v1.ValidatingAdmissionPolicySpec",
        "variables",
        Keyed(&["name"]),
        MergeBy("name"),
    ),
    (
        "api.admissionregistration.v1.ValidatingAdmissionPolicyStatus",
        "conditions",
        Keyed(&["type"]),
        Replaced,
    ),
    ("api.admissionregistration.v1.ValidatingWebhook", "matchConditions", Keyed(&["name"]), MergeBy("name")),
    (
        "api.admissionregistration.v1.ValidatingWebhookConfiguration",
        "webhooks",
        Keyed(&["name"]),
        MergeBy("name"),
    ),
    ("api.apps.v1.ControllerRevision", "data", Atomic, Replaced),
    ("api.apps.v1.DaemonSetStatus", "conditions", Keyed(&["type"]), MergeBy("type")),
    ("api.apps.v1.DeploymentSpec", "strategy", Plain, RetainKeys),
    ("api.apps.v1.DeploymentStatus", "conditions", Keyed(&["type"]), MergeBy("type")),
    ("api.apps.v1.ReplicaSetStatus", "conditions", Keyed(&["type"]), MergeBy("type")),
    ("api.apps.v1.StatefulSetStatus", "conditions", Keyed(&["type"]), MergeBy("type")),
    ("api.autoscaling.v2.HorizontalPodAutoscalerStatus", "conditions", Keyed(&["type"]), MergeBy("type")),
    ("api.batch.v1.JobStatus", "conditions", Plain, MergeBy("type")),
    ("api.batch.v1.PodFailurePolicyOnExitCodesRequirement", "values", Set, Replaced),
    ("api.batch.v1.UncountedTerminatedPods", "failed", Set, Replaced),
    ("api.batch.v1.UncountedTerminatedPods", "succeeded", Set, Replaced),
    ("api.certificates.v1.CertificateSigningRequestStatus", "conditions", Keyed(&["type"]), Replaced),
    ("api.core.v1.ComponentStatus", "conditions", Keyed(&["type"]), MergeBy("type")),
    ("api.core.v1.Container", "env", Keyed(&["name"]), MergeBy("name")),
    ("api.core.v1.Container", "ports", Keyed(&["containerPort", "protocol"]), MergeBy("containerPort")),
    ("api.core.v1.Container", "volumeDevices", Keyed(&["devicePath"]), MergeBy("devicePath")),
    ("api.core.v1.Container", "volumeMounts", Keyed(&["mountPath"]), MergeBy("mountPath")),
    ("api.core.v1.ContainerRestartRuleOnExitCodes", "values", Set, Replaced),
    ("api.core.v1.ContainerStatus", "allocatedResourcesStatus", Keyed(&["name"]), MergeBy("name")),
    ("api.core.v1.ContainerStatus", "volumeMounts", Keyed(&["mountPath"]), MergeBy("mountPath")),
    ("api.core.v1.EphemeralContainer", "env", Keyed(&["name"]), MergeBy("name")),
    (
        "api.core.v1.EphemeralContainer",
        "ports",
        Keyed(&["containerPort", "protocol"]),
        MergeBy("containerPort"),
    ),
    ("api.core.v1.EphemeralContainer", "volumeDevices", Keyed(&["devicePath"]), MergeBy("devicePath")),
    ("api.core.v1.EphemeralContainer", "volumeMounts", Keyed(&["mountPath"]), MergeBy("mountPath")),
    ("api.core.v1.NamespaceStatus", "conditions", Keyed(&["type"]), MergeBy("type")),
    ("api.core.v1.NodeAllocatableResourceClaimStatus", "containers", Set, Replaced),
    ("api.core.v1.NodeSpec", "podCIDRs", Set, Merge),
    ("api.core.v1.NodeStatus", "addresses", Keyed(&["type"]), MergeBy("type")),
    ("api.core.v1.NodeStatus", "conditions", Keyed(&["type"]), MergeBy("type")),
    ("api.core.v1.PersistentVolumeClaimStatus", "conditions", Keyed(&["type"]), MergeBy("type")),
    ("api.core.v1.PodSpec", "containers", Keyed(&["name"]), MergeBy("name")),
    ("api.core.v1.PodSpec", "ephemeralContainers", Keyed(&["name"]), MergeBy("name")),
    ("api.core.v1.PodSpec", "hostAliases", Keyed(&["ip"]), MergeBy("ip")),
    ("api.core.v1.PodSpec", "imagePullSecrets", Keyed(&["name"]), MergeBy("name")),
    ("api.core.v1.PodSpec", "initContainers", Keyed(&["name"]), MergeBy("name")),
    ("api.core.v1.PodSpec", "nodeSelector", Atomic, Replaced),
    ("api.core.v1.PodSpec", "resourceClaims", Keyed(&["name"]), MergeByRetainKeys("name")),
    ("api.core.v1.PodSpec", "schedulingGates", Keyed(&["name"]), MergeBy("name")),
    (
        "api.core.v1.PodSpec",
        "topologySpreadConstraints",
        Keyed(&["topologyKey", "whenUnsatisfiable"]),
        MergeBy("topologyKey"),
    ),
    ("api.core.v1.PodSpec", "volumes", Keyed(&["name"]), MergeByRetainKeys("name")),
    ("api.core.v1.PodStatus", "conditions", Keyed(&["type"]), MergeBy("type")),
    ("api.core.v1.PodStatus", "hostIPs", Plain, MergeBy("ip")),
    ("api.core.v1.PodStatus", "podIPs", Keyed(&["ip"]), MergeBy("ip")),
    ("api.core.v1.PodStatus", "resourceClaimStatuses", Keyed(&["name"]), MergeByRetainKeys("name")),
    ("api.core.v1.ReplicationControllerSpec", "selector", Atomic, Replaced),
    ("api.core.v1.ReplicationControllerStatus", "conditions", Keyed(&["type"]), MergeBy("type")),
    ("api.core.v1.ResourceRequirements", "claims", Keyed(&["name"]), Replaced),
    ("api.core.v1.ResourceStatus", "resources", Keyed(&["resourceID"]), Replaced),
    ("api.core.v1.ServiceAccount", "secrets", Keyed(&["name"]), MergeBy("name")),
    ("api.core.v1.ServiceSpec", "ports", Keyed(&["port", "protocol"]), MergeBy("port")),
    ("api.core.v1.ServiceSpec", "selector", Atomic, Replaced),
    ("api.core.v1.ServiceStatus", "conditions", Keyed(&["type"]), MergeBy("type")),
    ("api.discovery.v1.Endpoint", "addresses", Set, Replaced),
    ("api.flowcontrol.v1.FlowSchemaStatus", "conditions", Keyed(&["type"]), MergeBy("type")),
    ("api.flowcontrol.v1.NonResourcePolicyRule", "nonResourceURLs", Set, Replaced),
    ("api.flowcontrol.v1.NonResourcePolicyRule", "verbs", Set, Replaced),
    ("api.flowcontrol.v1.PriorityLevelConfigurationStatus", "conditions", Keyed(&["type"]), MergeBy("type")),
    ("api.flowcontrol.v1.ResourcePolicyRule", "apiGroups", Set, Replaced),
    ("api.flowcontrol.v1.ResourcePolicyRule", "namespaces", Set, Replaced),
    ("api.flowcontrol.v1.ResourcePolicyRule", "resources", Set, Replaced),
    ("api.flowcontrol.v1.ResourcePolicyRule", "verbs", Set, Replaced),
    ("api.networking.v1.ServiceCIDRStatus", "conditions", Keyed(&["type"]), MergeBy("type")),
    ("api.node.v1.Scheduling", "nodeSelector", Atomic, Replaced),
    ("api.policy.v1.PodDisruptionBudgetSpec", "selector", Plain, ReplaceWhole),
    ("api.policy.v1.PodDisruptionBudgetStatus", "conditions", Keyed(&["type"]), MergeBy("type")),
    ("api.resource.v1.AllocatedDeviceStatus", "conditions", Keyed(&["type"]), Replaced),
    (
        "api.resource.v1.ResourceClaimStatus",
        "devices",
        Keyed(&["driver", "device", "pool", "shareID"]),
        Replaced,
    ),
    ("api.resource.v1.ResourceClaimStatus", "reservedFor", Keyed(&["uid"]), MergeBy("uid")),
    ("api.storage.v1.CSIDriverSpec", "volumeLifecycleModes", Set, Replaced),
    ("api.storage.v1.CSINodeSpec", "drivers", Keyed(&["name"]), MergeBy("name")),
    (
        "apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus",
        "conditions",
        Keyed(&["type"]),
        Replaced,
    ),
    (
        "apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
        "x-kubernetes-validations",
        Keyed(&["rule"]),
        MergeBy("rule"),
    ),
    ("apimachinery.pkg.apis.meta.v1.ObjectMeta", "finalizers", Set, Merge),
    ("apimachinery.pkg.apis.meta.v1.ObjectMeta", "ownerReferences", Keyed(&["uid"]), MergeBy("uid")),
    (
        "kube-aggregator.pkg.apis.apiregistration.v1.APIServiceStatus",
        "conditions",
        Keyed(&["type"]),
        MergeBy("type"),
    ),
];

/// Definitions whose objects are one unit wherever they stand; sorted.
pub(super) const ATOMIC_TYPES: &[&str] = &[
    "api.admissionregistration.v1.MatchResources",
    "api.admissionregistration.v1.NamedRuleWithOperations",
    "api.admissionregistration.v1.ParamKind",
    "api.admissionregistration.v1.ParamRef",
    "api.admissionregistration.v1.Variable",
    "api.autoscaling.v1.CrossVersionObjectReference",
    "api.core.v1.ConfigMapKeySelector",
    "api.core.v1.EndpointAddress",
    "api.core.v1.EndpointPort",
    "api.core.v1.FileKeySelector",
    "api.core.v1.LocalObjectReference",
    "api.core.v1.NodeSelector",
    "api.core.v1.NodeSelectorTerm",
    "api.core.v1.ObjectFieldSelector",
    "api.core.v1.ObjectReference",
    "api.core.v1.ResourceFieldSelector",
    "api.core.v1.ScopeSelector",
    "api.core.v1.SecretKeySelector",
    "api.core.v1.SecretReference",
    "api.core.v1.TopologySelectorTerm",
    "api.core.v1.TypedLocalObjectReference",
    "api.discovery.v1.EndpointPort",
    "api.networking.v1.ServiceBackendPort",
    "api.rbac.v1.RoleRef",
    "api.rbac.v1.Subject",
    "apimachinery.pkg.apis.meta.v1.LabelSelector",
    "apimachinery.pkg.apis.meta.v1.OwnerReference",
];

/// Fields whose objects are there even when nothing was set, because they are no pointers in Go: to server-side
/// apply, nobody adds or removes them. Besides these, the fields named in [`ALWAYS_NAMES`]. Sorted.
pub(super) const ALWAYS: &[(&str, &str)] = &[
    ("api.admissionregistration.v1.MutatingWebhook", "clientConfig"),
    ("api.admissionregistration.v1.ValidatingWebhook", "clientConfig"),
    ("api.apps.v1.DaemonSetSpec", "template"),
    ("api.apps.v1.DaemonSetSpec", "updateStrategy"),
    ("api.apps.v1.DeploymentSpec", "strategy"),
    ("api.apps.v1.DeploymentSpec", "template"),
    ("api.apps.v1.ReplicaSetSpec", "template"),
    ("api.apps.v1.StatefulSetSpec", "template"),
    ("api.apps.v1.StatefulSetSpec", "updateStrategy"),
    ("api.authentication.v1.SelfSubjectReviewStatus", "userInfo"),
    ("api.authentication.v1.TokenReviewStatus", "user"),
    ("api.autoscaling.v1.HorizontalPodAutoscalerSpec", "scaleTargetRef"),
    ("api.autoscaling.v2.ContainerResourceMetricSource", "target"),
    ("api.autoscaling.v2.ContainerResourceMetricStatus", "current"),
    ("api.autoscaling.v2.ExternalMetricSource", "metric"),
    ("api.autoscaling.v2.ExternalMetricSource", "target"),
    ("api.autoscaling.v2.ExternalMetricStatus", "current"),
    ("api.autoscaling.v2.ExternalMetricStatus", "metric"),
    ("api.autoscaling.v2.HorizontalPodAutoscalerSpec", "scaleTargetRef"),
    ("api.autoscaling.v2.ObjectMetricSource", "describedObject"),
    ("api.autoscaling.v2.ObjectMetricSource", "metric"),
    ("api.autoscaling.v2.ObjectMetricSource", "target"),
    ("api.autoscaling.v2.ObjectMetricStatus", "current"),
    ("api.autoscaling.v2.ObjectMetricStatus", "describedObject"),
    ("api.autoscaling.v2.ObjectMetricStatus", "metric"),
    ("api.autoscaling.v2.PodsMetricSource", "metric"),
    ("api.autoscaling.v2.PodsMetricSource", "target"),
    ("api.autoscaling.v2.PodsMetricStatus", "current"),
    ("api.autoscaling.v2.PodsMetricStatus", "metric"),
    ("api.autoscaling.v2.ResourceMetricSource", "target"),
    ("api.autoscaling.v2.ResourceMetricStatus", "current"),
    ("api.batch.v1.CronJobSpec", "jobTemplate"),
    ("api.batch.v1.JobSpec", "template"),
    ("api.core.v1.Binding", "target"),
    ("api.core.v1.Container", "resources"),
    ("api.core.v1.ContainerStatus", "lastState"),
    ("api.core.v1.ContainerStatus", "state"),
    ("api.core.v1.EphemeralContainer", "resources"),
    ("api.core.v1.Event", "involvedObject"),
    ("api.core.v1.Event", "source"),
    ("api.core.v1.NodeDaemonEndpoints", "kubeletEndpoint"),
    ("api.core.v1.NodeStatus", "daemonEndpoints"),
    ("api.core.v1.NodeStatus", "nodeInfo"),
    ("api.core.v1.PersistentVolumeClaimSpec", "resources"),
    ("api.core.v1.PodTemplate", "template"),
    ("api.core.v1.PreferredSchedulingTerm", "preference"),
    ("api.core.v1.ServiceStatus", "loadBalancer"),
    ("api.core.v1.WeightedPodAffinityTerm", "podAffinityTerm"),
    ("api.discovery.v1.Endpoint", "conditions"),
    ("api.events.v1.Event", "deprecatedSource"),
    ("api.events.v1.Event", "regarding"),
    ("api.flowcontrol.v1.FlowSchemaSpec", "priorityLevelConfiguration"),
    ("api.flowcontrol.v1.LimitedPriorityLevelConfiguration", "limitResponse"),
    ("api.networking.v1.HTTPIngressPath", "backend"),
    ("api.networking.v1.IngressServiceBackend", "port"),
    ("api.networking.v1.IngressStatus", "loadBalancer"),
    ("api.networking.v1.NetworkPolicySpec", "podSelector"),
    ("api.rbac.v1.ClusterRoleBinding", "roleRef"),
    ("api.rbac.v1.RoleBinding", "roleRef"),
    ("api.resource.v1.AllocationResult", "devices"),
    ("api.resource.v1.ResourceClaimSpec", "devices"),
    ("api.resource.v1.ResourceSliceSpec", "pool"),
    ("api.storage.v1.VolumeAttachmentSpec", "source"),
    ("apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionSpec", "names"),
    ("apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus", "acceptedNames"),
];

/// See [`ALWAYS`].
pub(super) const ALWAYS_NAMES: [&str; 3] = ["metadata", "spec", "status"];

/// Fields of list keys that have a default, so that an item without one is the item with the default.
pub(super) const KEY_DEFAULTS: &[(&str, &str, &str)] =
    &[("api.core.v1.ContainerPort", "protocol", "TCP"), ("api.core.v1.ServicePort", "protocol", "TCP")];

impl Parts {
    /// The list type of a field that is a list.
    pub(super) fn list_type(self) -> ListType {
        match self {
            Plain | Atomic => ListType::Atomic,
            Set => ListType::Set,
            Keyed(keys) => ListType::Map(keys.iter().map(|key| (*key).into()).collect()),
        }
    }
}

impl Strategy {
    /// As the schema carries it.
    pub(super) fn to_patch_strategy(self) -> PatchStrategy {
        let (merge, retain_keys, merge_key) = match self {
            Replaced | ReplaceWhole => (false, false, None),
            RetainKeys => (false, true, None),
            Merge => (true, false, None),
            MergeBy(key) => (true, false, Some(key)),
            MergeByRetainKeys(key) => (true, true, Some(key)),
        };
        PatchStrategy {
            merge,
            replace: matches!(self, ReplaceWhole),
            retain_keys,
            merge_key: merge_key.map(Into::into),
        }
    }
}
