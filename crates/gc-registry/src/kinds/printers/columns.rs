//! The columns of the tables of every built-in resource, as kube-apiserver v1.36 answers them.

use super::Heading;
use super::Heading as H;
use super::Says::{Field as F, Nothing as N, Text as T};

const CONTAINERS: &str = "Names of each container in the template.";
const IMAGES: &str = "Images referenced by each container in the template.";

/// What the Scales of all resources are called here.
pub(super) const SCALES: &str = "scales";
const SCALE: &[Heading] = &[
    H::text("Name", super::NAMED),
    H::integer("Desired", F("api.autoscaling.v1.ScaleSpec", "replicas")),
    H::integer("Available", F("api.autoscaling.v1.ScaleStatus", "replicas")),
    H::AGE,
];
const COMPONENTSTATUSES: &[Heading] = &[
    H::NAME,
    H::text("Status", T("Status of the component conditions")),
    H::text("Message", T("Message of the component conditions")),
    H::text("Error", T("Error of the component conditions")),
];
const CONFIGMAPS: &[Heading] = &[H::NAME, H::text("Data", F("api.core.v1.ConfigMap", "data")), H::AGE];
const ENDPOINTS: &[Heading] = &[H::NAME, H::text("Endpoints", F("api.core.v1.Endpoints", "subsets")), H::AGE];
const NAMESPACES: &[Heading] = &[H::NAME, H::text("Status", T("The status of the namespace")), H::AGE];
const NODES: &[Heading] = &[
    H::NAME,
    H::text("Status", T("The status of the node")),
    H::text("Roles", T("The roles of the node")),
    H::AGE,
    H::text("Version", F("api.core.v1.NodeSystemInfo", "kubeletVersion")),
    H::wide("Internal-IP", F("api.core.v1.NodeStatus", "addresses")),
    H::wide("External-IP", F("api.core.v1.NodeStatus", "addresses")),
    H::wide("OS-Image", F("api.core.v1.NodeSystemInfo", "osImage")),
    H::wide("Kernel-Version", F("api.core.v1.NodeSystemInfo", "kernelVersion")),
    H::wide("Container-Runtime", F("api.core.v1.NodeSystemInfo", "containerRuntimeVersion")),
];
const PERSISTENTVOLUMECLAIMS: &[Heading] = &[
    H::NAME,
    H::text("Status", F("api.core.v1.PersistentVolumeClaimStatus", "phase")),
    H::text("Volume", F("api.core.v1.PersistentVolumeClaimSpec", "volumeName")),
    H::text("Capacity", F("api.core.v1.PersistentVolumeClaimStatus", "capacity")),
    H::text("Access Modes", F("api.core.v1.PersistentVolumeClaimStatus", "accessModes")),
    H::text("StorageClass", T("StorageClass of the pvc")),
    H::text("VolumeAttributesClass", T("VolumeAttributesClass of the pvc")),
    H::AGE,
    H::wide("VolumeMode", F("api.core.v1.PersistentVolumeClaimSpec", "volumeMode")),
];
const PERSISTENTVOLUMES: &[Heading] = &[
    H::NAME,
    H::text("Capacity", F("api.core.v1.PersistentVolumeSpec", "capacity")),
    H::text("Access Modes", F("api.core.v1.PersistentVolumeSpec", "accessModes")),
    H::text("Reclaim Policy", F("api.core.v1.PersistentVolumeSpec", "persistentVolumeReclaimPolicy")),
    H::text("Status", F("api.core.v1.PersistentVolumeStatus", "phase")),
    H::text("Claim", F("api.core.v1.PersistentVolumeSpec", "claimRef")),
    H::text("StorageClass", T("StorageClass of the pv")),
    H::text("VolumeAttributesClass", T("VolumeAttributesClass of the pv")),
    H::text("Reason", F("api.core.v1.PersistentVolumeStatus", "reason")),
    H::AGE,
    H::wide("VolumeMode", F("api.core.v1.PersistentVolumeSpec", "volumeMode")),
];
const PODS: &[Heading] = &[
    H::NAME,
    H::text("Ready", T("The aggregate readiness state of this pod for accepting traffic.")),
    H::text("Status", T("The aggregate status of the containers in this pod.")),
    H::text(
        "Restarts",
        T(
            "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted.",
        ),
    ),
    H::AGE,
    H::wide("IP", F("api.core.v1.PodStatus", "podIP")),
    H::wide("Node", F("api.core.v1.PodSpec", "nodeName")),
    H::wide("Nominated Node", F("api.core.v1.PodStatus", "nominatedNodeName")),
    H::wide("Readiness Gates", F("api.core.v1.PodSpec", "readinessGates")),
];
const PODTEMPLATES: &[Heading] = &[
    H::NAME,
    H::text("Containers", T(CONTAINERS)),
    H::text("Images", T(IMAGES)),
    H::text("Pod Labels", T("The labels for the pod template.")),
];
const RESOURCEQUOTAS: &[Heading] = &[
    H::NAME,
    H::text("Request", T("Request represents a minimum amount of cpu/memory that a container may consume.")),
    H::text(
        "Limit",
        T(
            "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.",
        ),
    ),
    H::AGE,
];
const SECRETS: &[Heading] = &[
    H::NAME,
    H::text("Type", F("api.core.v1.Secret", "type")),
    H::text("Data", F("api.core.v1.Secret", "data")),
    H::AGE,
];
const SERVICES: &[Heading] = &[
    H::NAME,
    H::text("Type", F("api.core.v1.ServiceSpec", "type")),
    H::text("Cluster-IP", F("api.core.v1.ServiceSpec", "clusterIP")),
    H::text("External-IP", F("api.core.v1.ServiceSpec", "externalIPs")),
    H::text("Port(s)", F("api.core.v1.ServiceSpec", "ports")),
    H::AGE,
    H::wide("Selector", F("api.core.v1.ServiceSpec", "selector")),
];
const MUTATINGADMISSIONPOLICIES: &[Heading] = &[
    H::NAME,
    H::integer(
        "Mutations",
        T("Mutation indicates the number of mutations rules defined in this configuration"),
    ),
    H::text("ParamKind", T("ParamKind specifies the kind of resources used to parameterize this policy")),
    H::AGE,
];
const MUTATINGADMISSIONPOLICYBINDINGS: &[Heading] = &[
    H::NAME,
    H::text("PolicyName", T("PolicyName indicates the policy definition which the policy binding binded to")),
    H::text("ParamRef", T("ParamRef indicates the param resource which sets the configuration param")),
    H::AGE,
];
const MUTATINGWEBHOOKCONFIGURATIONS: &[Heading] = &[
    H::NAME,
    H::integer("Webhooks", T("Webhooks indicates the number of webhooks registered in this configuration")),
    H::AGE,
];
const VALIDATINGADMISSIONPOLICIES: &[Heading] = &[
    H::NAME,
    H::integer(
        "Validations",
        T("Validations indicates the number of validation rules defined in this configuration"),
    ),
    H::text("ParamKind", T("ParamKind specifies the kind of resources used to parameterize this policy")),
    H::AGE,
];
const PLAIN: &[Heading] = &[H::NAME, H::CREATED_AT];
const APISERVICES: &[Heading] = &[
    H::NAME,
    H::text("Service", T("The reference to the service that hosts this API endpoint.")),
    H::text("Available", T("Whether this service is available.")),
    H::AGE,
];
const CONTROLLERREVISIONS: &[Heading] = &[
    H::NAME,
    H::text("Controller", T("Controller of the object")),
    H::text("Revision", F("api.apps.v1.ControllerRevision", "revision")),
    H::AGE,
];
const DAEMONSETS: &[Heading] = &[
    H::NAME,
    H::integer("Desired", F("api.apps.v1.DaemonSetStatus", "desiredNumberScheduled")),
    H::integer("Current", F("api.apps.v1.DaemonSetStatus", "currentNumberScheduled")),
    H::integer("Ready", F("api.apps.v1.DaemonSetStatus", "numberReady")),
    H::integer("Up-to-date", F("api.apps.v1.DaemonSetStatus", "updatedNumberScheduled")),
    H::integer("Available", F("api.apps.v1.DaemonSetStatus", "numberAvailable")),
    H::text("Node Selector", F("api.core.v1.PodSpec", "nodeSelector")),
    H::AGE,
    H::wide("Containers", T(CONTAINERS)),
    H::wide("Images", T(IMAGES)),
    H::wide("Selector", F("api.apps.v1.DaemonSetSpec", "selector")),
];
const DEPLOYMENTS: &[Heading] = &[
    H::NAME,
    H::text("Ready", T("Number of the pod with ready state")),
    H::text("Up-to-date", F("api.apps.v1.DeploymentStatus", "updatedReplicas")),
    H::text("Available", F("api.apps.v1.DeploymentStatus", "availableReplicas")),
    H::AGE,
    H::wide("Containers", T(CONTAINERS)),
    H::wide("Images", T(IMAGES)),
    H::wide("Selector", F("api.apps.v1.DeploymentSpec", "selector")),
];
const REPLICASETS: &[Heading] = &[
    H::NAME,
    H::integer("Desired", F("api.apps.v1.ReplicaSetSpec", "replicas")),
    H::integer("Current", F("api.apps.v1.ReplicaSetStatus", "replicas")),
    H::integer("Ready", F("api.apps.v1.ReplicaSetStatus", "readyReplicas")),
    H::AGE,
    H::wide("Containers", T(CONTAINERS)),
    H::wide("Images", T(IMAGES)),
    H::wide("Selector", F("api.apps.v1.ReplicaSetSpec", "selector")),
];
const REPLICATIONCONTROLLERS: &[Heading] = &[
    H::NAME,
    H::integer("Desired", F("api.core.v1.ReplicationControllerSpec", "replicas")),
    H::integer("Current", F("api.core.v1.ReplicationControllerStatus", "replicas")),
    H::integer("Ready", F("api.core.v1.ReplicationControllerStatus", "readyReplicas")),
    H::AGE,
    H::wide("Containers", T(CONTAINERS)),
    H::wide("Images", T(IMAGES)),
    H::wide("Selector", F("api.core.v1.ReplicationControllerSpec", "selector")),
];
const STATEFULSETS: &[Heading] = &[
    H::NAME,
    H::text("Ready", T("Number of the pod with ready state")),
    H::AGE,
    H::wide("Containers", T(CONTAINERS)),
    H::wide("Images", T(IMAGES)),
];
const HORIZONTALPODAUTOSCALERS: &[Heading] = &[
    H::NAME,
    H::text("Reference", F("api.autoscaling.v2.HorizontalPodAutoscalerSpec", "scaleTargetRef")),
    H::text("Targets", F("api.autoscaling.v2.HorizontalPodAutoscalerSpec", "metrics")),
    H::text("MinPods", F("api.autoscaling.v2.HorizontalPodAutoscalerSpec", "minReplicas")),
    H::text("MaxPods", F("api.autoscaling.v2.HorizontalPodAutoscalerSpec", "maxReplicas")),
    H::text("Replicas", F("api.autoscaling.v2.HorizontalPodAutoscalerStatus", "currentReplicas")),
    H::AGE,
];
const CRONJOBS: &[Heading] = &[
    H::NAME,
    H::text("Schedule", F("api.batch.v1.CronJobSpec", "schedule")),
    H::text("Timezone", F("api.batch.v1.CronJobSpec", "timeZone")),
    H::boolean("Suspend", F("api.batch.v1.CronJobSpec", "suspend")),
    H::integer("Active", F("api.batch.v1.CronJobStatus", "active")),
    H::text("Last Schedule", F("api.batch.v1.CronJobStatus", "lastScheduleTime")),
    H::AGE,
    H::wide("Containers", T(CONTAINERS)),
    H::wide("Images", T(IMAGES)),
    H::wide("Selector", F("api.batch.v1.JobSpec", "selector")),
];
const JOBS: &[Heading] = &[
    H::NAME,
    H::text("Status", T("Status of the job.")),
    H::text("Completions", F("api.batch.v1.JobStatus", "succeeded")),
    H::text("Duration", T("Time required to complete the job.")),
    H::AGE,
    H::wide("Containers", T(CONTAINERS)),
    H::wide("Images", T(IMAGES)),
    H::wide("Selector", F("api.batch.v1.JobSpec", "selector")),
];
const CERTIFICATESIGNINGREQUESTS: &[Heading] = &[
    H::NAME,
    H::AGE,
    H::text("SignerName", F("api.certificates.v1.CertificateSigningRequestSpec", "signerName")),
    H::text("Requestor", F("api.certificates.v1.CertificateSigningRequestSpec", "request")),
    H::text("RequestedDuration", F("api.certificates.v1.CertificateSigningRequestSpec", "expirationSeconds")),
    H::text("Condition", F("api.certificates.v1.CertificateSigningRequestStatus", "conditions")),
];
const LEASES: &[Heading] =
    &[H::NAME, H::text("Holder", F("api.coordination.v1.LeaseSpec", "holderIdentity")), H::AGE];
const ENDPOINTSLICES: &[Heading] = &[
    H::NAME,
    H::text("AddressType", F("api.discovery.v1.EndpointSlice", "addressType")),
    H::text("Ports", F("api.discovery.v1.EndpointSlice", "ports")),
    H::text("Endpoints", F("api.discovery.v1.EndpointSlice", "endpoints")),
    H::AGE,
];
const EVENTS: &[Heading] = &[
    H::text("Last Seen", F("api.core.v1.Event", "lastTimestamp")),
    H::text("Type", F("api.core.v1.Event", "type")),
    H::text("Reason", F("api.core.v1.Event", "reason")),
    H::text("Object", F("api.core.v1.Event", "involvedObject")),
    H::wide("Subobject", F("api.core.v1.ObjectReference", "fieldPath")),
    H::wide("Source", F("api.core.v1.Event", "source")),
    H::text("Message", F("api.core.v1.Event", "message")),
    H::wide("First Seen", F("api.core.v1.Event", "firstTimestamp")),
    H::wide("Count", F("api.core.v1.Event", "count")),
    H::wide_name("Name"),
];
const FLOWSCHEMAS: &[Heading] = &[
    H::NAME,
    H::text("PriorityLevel", F("api.flowcontrol.v1.PriorityLevelConfigurationReference", "name")),
    H::text("MatchingPrecedence", F("api.flowcontrol.v1.FlowSchemaSpec", "matchingPrecedence")),
    H::text("DistinguisherMethod", F("api.flowcontrol.v1.FlowSchemaSpec", "distinguisherMethod")),
    H::AGE,
    H::text("MissingPL", T("references a broken or non-existent PriorityLevelConfiguration")),
];
const PRIORITYLEVELCONFIGURATIONS: &[Heading] = &[
    H::NAME,
    H::text("Type", F("api.flowcontrol.v1.PriorityLevelConfigurationSpec", "type")),
    H::text(
        "NominalConcurrencyShares",
        F("api.flowcontrol.v1.LimitedPriorityLevelConfiguration", "nominalConcurrencyShares"),
    ),
    H::text("Queues", F("api.flowcontrol.v1.QueuingConfiguration", "queues")),
    H::text("HandSize", F("api.flowcontrol.v1.QueuingConfiguration", "handSize")),
    H::text("QueueLengthLimit", F("api.flowcontrol.v1.QueuingConfiguration", "queueLengthLimit")),
    H::AGE,
];
const INGRESSCLASSES: &[Heading] = &[
    H::NAME,
    H::text("Controller", T("Controller that is responsible for handling this class")),
    H::text("Parameters", T("A reference to a resource with additional parameters")),
    H::AGE,
];
const INGRESSES: &[Heading] = &[
    H::NAME,
    H::text(
        "Class",
        T("The name of the IngressClass resource that should be used for additional configuration"),
    ),
    H::text("Hosts", T("Hosts that incoming requests are matched against before the ingress rule")),
    H::text("Address", T("Address is a list containing ingress points for the load-balancer")),
    H::text("Ports", T("Ports of TLS configurations that open")),
    H::AGE,
];
const IPADDRESSES: &[Heading] =
    &[H::NAME, H::text("ParentRef", F("api.networking.v1.IPAddressSpec", "parentRef"))];
const NETWORKPOLICIES: &[Heading] =
    &[H::NAME, H::text("Pod-Selector", F("api.networking.v1.NetworkPolicySpec", "podSelector")), H::AGE];
const SERVICECIDRS: &[Heading] =
    &[H::NAME, H::text("CIDRs", F("api.networking.v1.ServiceCIDRSpec", "cidrs")), H::AGE];
const RUNTIMECLASSES: &[Heading] = &[H::NAME, H::text("Handler", N), H::AGE];
const PODDISRUPTIONBUDGETS: &[Heading] = &[
    H::NAME,
    H::text("Min Available", T("The minimum number of pods that must be available.")),
    H::text("Max Unavailable", T("The maximum number of pods that may be unavailable.")),
    H::integer("Allowed Disruptions", T("Calculated number of pods that may be disrupted at this time.")),
    H::AGE,
];
const CLUSTERROLEBINDINGS: &[Heading] = &[
    H::NAME,
    H::text("Role", F("api.rbac.v1.ClusterRoleBinding", "roleRef")),
    H::AGE,
    H::wide("Users", T("Users in the clusterRoleBinding")),
    H::wide("Groups", T("Groups in the clusterRoleBinding")),
    H::wide("ServiceAccounts", T("ServiceAccounts in the clusterRoleBinding")),
];
const ROLEBINDINGS: &[Heading] = &[
    H::NAME,
    H::text("Role", F("api.rbac.v1.RoleBinding", "roleRef")),
    H::AGE,
    H::wide("Users", T("Users in the roleBinding")),
    H::wide("Groups", T("Groups in the roleBinding")),
    H::wide("ServiceAccounts", T("ServiceAccounts in the roleBinding")),
];
const DEVICECLASSES: &[Heading] = &[H::NAME, H::AGE];
const RESOURCECLAIMS: &[Heading] = &[
    H::NAME,
    H::text("State", T("A summary of the current state (allocated, pending, reserved, etc.).")),
    H::AGE,
];
const RESOURCESLICES: &[Heading] = &[
    H::NAME,
    H::text("Node", F("api.resource.v1.ResourceSliceSpec", "nodeName")),
    H::text("Driver", F("api.resource.v1.ResourceSliceSpec", "driver")),
    H::text("Pool", F("api.resource.v1.ResourcePool", "name")),
    H::AGE,
];
const PRIORITYCLASSES: &[Heading] = &[
    H::NAME,
    H::integer("Value", F("api.scheduling.v1.PriorityClass", "value")),
    H::boolean("Global-Default", F("api.scheduling.v1.PriorityClass", "globalDefault")),
    H::AGE,
    H::text("PreemptionPolicy", F("api.scheduling.v1.PriorityClass", "preemptionPolicy")),
];
const CSIDRIVERS: &[Heading] = &[
    H::NAME,
    H::boolean("AttachRequired", F("api.storage.v1.CSIDriverSpec", "attachRequired")),
    H::boolean("PodInfoOnMount", F("api.storage.v1.CSIDriverSpec", "podInfoOnMount")),
    H::boolean("StorageCapacity", F("api.storage.v1.CSIDriverSpec", "storageCapacity")),
    H::text("TokenRequests", F("api.storage.v1.CSIDriverSpec", "tokenRequests")),
    H::boolean("RequiresRepublish", F("api.storage.v1.CSIDriverSpec", "requiresRepublish")),
    H::text("Modes", F("api.storage.v1.CSIDriverSpec", "volumeLifecycleModes")),
    H::AGE,
];
const CSINODES: &[Heading] = &[
    H::NAME,
    H::integer("Drivers", T("Drivers indicates the number of CSI drivers registered on the node")),
    H::AGE,
];
const STORAGECLASSES: &[Heading] = &[
    H::NAME,
    H::text("Provisioner", F("api.storage.v1.StorageClass", "provisioner")),
    H::text("ReclaimPolicy", F("api.storage.v1.StorageClass", "reclaimPolicy")),
    H::text("VolumeBindingMode", F("api.storage.v1.StorageClass", "volumeBindingMode")),
    H::text("AllowVolumeExpansion", F("api.storage.v1.StorageClass", "allowVolumeExpansion")),
    H::AGE,
];
const VOLUMEATTACHMENTS: &[Heading] = &[
    H::NAME,
    H::named("Attacher", F("api.storage.v1.VolumeAttachmentSpec", "attacher")),
    H::text("PV", F("api.storage.v1.VolumeAttachmentSource", "persistentVolumeName")),
    H::text("Node", F("api.storage.v1.VolumeAttachmentSpec", "nodeName")),
    H::boolean("Attached", F("api.storage.v1.VolumeAttachmentStatus", "attached")),
    H::AGE,
];
const VOLUMEATTRIBUTESCLASSES: &[Heading] =
    &[H::NAME, H::text("DriverName", F("api.storage.v1.VolumeAttributesClass", "driverName")), H::AGE];

/// The columns of a resource.
pub(super) fn of(group: &str, resource: &str) -> Option<&'static [Heading]> {
    Some(match (group, resource) {
        ("", "componentstatuses") => COMPONENTSTATUSES,
        ("", "configmaps") => CONFIGMAPS,
        ("", "endpoints") => ENDPOINTS,
        ("", "namespaces") => NAMESPACES,
        ("", "nodes") => NODES,
        ("", "persistentvolumeclaims") => PERSISTENTVOLUMECLAIMS,
        ("", "persistentvolumes") => PERSISTENTVOLUMES,
        ("", "pods") => PODS,
        ("", "podtemplates") => PODTEMPLATES,
        ("", "resourcequotas") => RESOURCEQUOTAS,
        ("", "secrets") => SECRETS,
        ("", "services") => SERVICES,
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies") => MUTATINGADMISSIONPOLICIES,
        (
            "admissionregistration.k8s.io",
            "mutatingadmissionpolicybindings" | "validatingadmissionpolicybindings",
        ) => MUTATINGADMISSIONPOLICYBINDINGS,
        (
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations" | "validatingwebhookconfigurations",
        ) => MUTATINGWEBHOOKCONFIGURATIONS,
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => VALIDATINGADMISSIONPOLICIES,
        ("apiregistration.k8s.io", "apiservices") => APISERVICES,
        ("apps", "controllerrevisions") => CONTROLLERREVISIONS,
        ("apps", "daemonsets") => DAEMONSETS,
        ("apps", "deployments") => DEPLOYMENTS,
        ("", "replicationcontrollers") => REPLICATIONCONTROLLERS,
        ("apps", "replicasets") => REPLICASETS,
        ("apps", "statefulsets") => STATEFULSETS,
        ("autoscaling", "horizontalpodautoscalers") => HORIZONTALPODAUTOSCALERS,
        ("autoscaling", SCALES) => SCALE,
        ("batch", "cronjobs") => CRONJOBS,
        ("batch", "jobs") => JOBS,
        ("certificates.k8s.io", "certificatesigningrequests") => CERTIFICATESIGNINGREQUESTS,
        ("coordination.k8s.io", "leases") => LEASES,
        ("discovery.k8s.io", "endpointslices") => ENDPOINTSLICES,
        ("" | "events.k8s.io", "events") => EVENTS,
        ("flowcontrol.apiserver.k8s.io", "flowschemas") => FLOWSCHEMAS,
        ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations") => PRIORITYLEVELCONFIGURATIONS,
        ("networking.k8s.io", "ingressclasses") => INGRESSCLASSES,
        ("networking.k8s.io", "ingresses") => INGRESSES,
        ("networking.k8s.io", "ipaddresses") => IPADDRESSES,
        ("networking.k8s.io", "networkpolicies") => NETWORKPOLICIES,
        ("networking.k8s.io", "servicecidrs") => SERVICECIDRS,
        ("node.k8s.io", "runtimeclasses") => RUNTIMECLASSES,
        ("policy", "poddisruptionbudgets") => PODDISRUPTIONBUDGETS,
        ("rbac.authorization.k8s.io", "clusterrolebindings") => CLUSTERROLEBINDINGS,
        ("rbac.authorization.k8s.io", "rolebindings") => ROLEBINDINGS,
        ("", "serviceaccounts") | ("resource.k8s.io", "deviceclasses" | "resourceclaimtemplates") => {
            DEVICECLASSES
        }
        ("resource.k8s.io", "resourceclaims") => RESOURCECLAIMS,
        ("resource.k8s.io", "resourceslices") => RESOURCESLICES,
        ("scheduling.k8s.io", "priorityclasses") => PRIORITYCLASSES,
        ("storage.k8s.io", "csidrivers") => CSIDRIVERS,
        ("storage.k8s.io", "csinodes") => CSINODES,
        ("storage.k8s.io", "storageclasses") => STORAGECLASSES,
        ("storage.k8s.io", "volumeattachments") => VOLUMEATTACHMENTS,
        ("storage.k8s.io", "volumeattributesclasses") => VOLUMEATTRIBUTESCLASSES,
        ("", "limitranges")
        | ("apiextensions.k8s.io", "customresourcedefinitions")
        | ("rbac.authorization.k8s.io", "clusterroles" | "roles")
        | ("storage.k8s.io", "csistoragecapacities") => PLAIN,
        _ => return None,
    })
}

/// The columns of resources without a printer of their own.
pub(super) fn plain() -> &'static [Heading] {
    PLAIN
}
