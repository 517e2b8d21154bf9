//! The columns of the tables of every built-in resource, as kube-apiserver v1.36 answers them.

use super::Column;
use super::Column as C;

const COMPONENTSTATUSES: &[Column] = &[C::NAME, C::text("Status"), C::text("Message"), C::text("Error")];
const CONFIGMAPS: &[Column] = &[C::NAME, C::text("Data"), C::AGE];
const ENDPOINTS: &[Column] = &[C::NAME, C::text("Endpoints"), C::AGE];
const NAMESPACES: &[Column] = &[C::NAME, C::text("Status"), C::AGE];
const NODES: &[Column] = &[
    C::NAME,
    C::text("Status"),
    C::text("Roles"),
    C::AGE,
    C::text("Version"),
    C::wide("Internal-IP"),
    C::wide("External-IP"),
    C::wide("OS-Image"),
    C::wide("Kernel-Version"),
    C::wide("Container-Runtime"),
];
const PERSISTENTVOLUMECLAIMS: &[Column] = &[
    C::NAME,
    C::text("Status"),
    C::text("Volume"),
    C::text("Capacity"),
    C::text("Access Modes"),
    C::text("StorageClass"),
    C::text("VolumeAttributesClass"),
    C::AGE,
    C::wide("VolumeMode"),
];
const PERSISTENTVOLUMES: &[Column] = &[
    C::NAME,
    C::text("Capacity"),
    C::text("Access Modes"),
    C::text("Reclaim Policy"),
    C::text("Status"),
    C::text("Claim"),
    C::text("StorageClass"),
    C::text("VolumeAttributesClass"),
    C::text("Reason"),
    C::AGE,
    C::wide("VolumeMode"),
];
const PODS: &[Column] = &[
    C::NAME,
    C::text("Ready"),
    C::text("Status"),
    C::text("Restarts"),
    C::AGE,
    C::wide("IP"),
    C::wide("Node"),
    C::wide("Nominated Node"),
    C::wide("Readiness Gates"),
];
const PODTEMPLATES: &[Column] = &[C::NAME, C::text("Containers"), C::text("Images"), C::text("Pod Labels")];
const RESOURCEQUOTAS: &[Column] = &[C::NAME, C::text("Request"), C::text("Limit"), C::AGE];
const SECRETS: &[Column] = &[C::NAME, C::text("Type"), C::text("Data"), C::AGE];
const SERVICES: &[Column] = &[
    C::NAME,
    C::text("Type"),
    C::text("Cluster-IP"),
    C::text("External-IP"),
    C::text("Port(s)"),
    C::AGE,
    C::wide("Selector"),
];
const MUTATINGADMISSIONPOLICIES: &[Column] =
    &[C::NAME, C::integer("Mutations"), C::text("ParamKind"), C::AGE];
const MUTATINGADMISSIONPOLICYBINDINGS: &[Column] =
    &[C::NAME, C::text("PolicyName"), C::text("ParamRef"), C::AGE];
const MUTATINGWEBHOOKCONFIGURATIONS: &[Column] = &[C::NAME, C::integer("Webhooks"), C::AGE];
const VALIDATINGADMISSIONPOLICIES: &[Column] =
    &[C::NAME, C::integer("Validations"), C::text("ParamKind"), C::AGE];
const PLAIN: &[Column] = &[C::NAME, C::CREATED_AT];
const APISERVICES: &[Column] = &[C::NAME, C::text("Service"), C::text("Available"), C::AGE];
const CONTROLLERREVISIONS: &[Column] = &[C::NAME, C::text("Controller"), C::text("Revision"), C::AGE];
const DAEMONSETS: &[Column] = &[
    C::NAME,
    C::integer("Desired"),
    C::integer("Current"),
    C::integer("Ready"),
    C::integer("Up-to-date"),
    C::integer("Available"),
    C::text("Node Selector"),
    C::AGE,
    C::wide("Containers"),
    C::wide("Images"),
    C::wide("Selector"),
];
const DEPLOYMENTS: &[Column] = &[
    C::NAME,
    C::text("Ready"),
    C::text("Up-to-date"),
    C::text("Available"),
    C::AGE,
    C::wide("Containers"),
    C::wide("Images"),
    C::wide("Selector"),
];
const REPLICASETS: &[Column] = &[
    C::NAME,
    C::integer("Desired"),
    C::integer("Current"),
    C::integer("Ready"),
    C::AGE,
    C::wide("Containers"),
    C::wide("Images"),
    C::wide("Selector"),
];
const STATEFULSETS: &[Column] =
    &[C::NAME, C::text("Ready"), C::AGE, C::wide("Containers"), C::wide("Images")];
const HORIZONTALPODAUTOSCALERS: &[Column] = &[
    C::NAME,
    C::text("Reference"),
    C::text("Targets"),
    C::text("MinPods"),
    C::text("MaxPods"),
    C::text("Replicas"),
    C::AGE,
];
const CRONJOBS: &[Column] = &[
    C::NAME,
    C::text("Schedule"),
    C::text("Timezone"),
    C::boolean("Suspend"),
    C::integer("Active"),
    C::text("Last Schedule"),
    C::AGE,
    C::wide("Containers"),
    C::wide("Images"),
    C::wide("Selector"),
];
const JOBS: &[Column] = &[
    C::NAME,
    C::text("Status"),
    C::text("Completions"),
    C::text("Duration"),
    C::AGE,
    C::wide("Containers"),
    C::wide("Images"),
    C::wide("Selector"),
];
const CERTIFICATESIGNINGREQUESTS: &[Column] = &[
    C::NAME,
    C::AGE,
    C::text("SignerName"),
    C::text("Requestor"),
    C::text("RequestedDuration"),
    C::text("Condition"),
];
const LEASES: &[Column] = &[C::NAME, C::text("Holder"), C::AGE];
const ENDPOINTSLICES: &[Column] =
    &[C::NAME, C::text("AddressType"), C::text("Ports"), C::text("Endpoints"), C::AGE];
const EVENTS: &[Column] = &[
    C::text("Last Seen"),
    C::text("Type"),
    C::text("Reason"),
    C::text("Object"),
    C::wide("Subobject"),
    C::wide("Source"),
    C::text("Message"),
    C::wide("First Seen"),
    C::wide("Count"),
    C::wide_name("Name"),
];
const FLOWSCHEMAS: &[Column] = &[
    C::NAME,
    C::text("PriorityLevel"),
    C::text("MatchingPrecedence"),
    C::text("DistinguisherMethod"),
    C::AGE,
    C::text("MissingPL"),
];
const PRIORITYLEVELCONFIGURATIONS: &[Column] = &[
    C::NAME,
    C::text("Type"),
    C::text("NominalConcurrencyShares"),
    C::text("Queues"),
    C::text("HandSize"),
    C::text("QueueLengthLimit"),
    C::AGE,
];
const INGRESSCLASSES: &[Column] = &[C::NAME, C::text("Controller"), C::text("Parameters"), C::AGE];
const INGRESSES: &[Column] =
    &[C::NAME, C::text("Class"), C::text("Hosts"), C::text("Address"), C::text("Ports"), C::AGE];
const IPADDRESSES: &[Column] = &[C::NAME, C::text("ParentRef")];
const NETWORKPOLICIES: &[Column] = &[C::NAME, C::text("Pod-Selector"), C::AGE];
const SERVICECIDRS: &[Column] = &[C::NAME, C::text("CIDRs"), C::AGE];
const RUNTIMECLASSES: &[Column] = &[C::NAME, C::text("Handler"), C::AGE];
const PODDISRUPTIONBUDGETS: &[Column] = &[
    C::NAME,
    C::text("Min Available"),
    C::text("Max Unavailable"),
    C::integer("Allowed Disruptions"),
    C::AGE,
];
const CLUSTERROLEBINDINGS: &[Column] =
    &[C::NAME, C::text("Role"), C::AGE, C::wide("Users"), C::wide("Groups"), C::wide("ServiceAccounts")];
const DEVICECLASSES: &[Column] = &[C::NAME, C::AGE];
const RESOURCECLAIMS: &[Column] = &[C::NAME, C::text("State"), C::AGE];
const RESOURCESLICES: &[Column] = &[C::NAME, C::text("Node"), C::text("Driver"), C::text("Pool"), C::AGE];
const PRIORITYCLASSES: &[Column] =
    &[C::NAME, C::integer("Value"), C::boolean("Global-Default"), C::AGE, C::text("PreemptionPolicy")];
const CSIDRIVERS: &[Column] = &[
    C::NAME,
    C::boolean("AttachRequired"),
    C::boolean("PodInfoOnMount"),
    C::boolean("StorageCapacity"),
    C::text("TokenRequests"),
    C::boolean("RequiresRepublish"),
    C::text("Modes"),
    C::AGE,
];
const CSINODES: &[Column] = &[C::NAME, C::integer("Drivers"), C::AGE];
const STORAGECLASSES: &[Column] = &[
    C::NAME,
    C::text("Provisioner"),
    C::text("ReclaimPolicy"),
    C::text("VolumeBindingMode"),
    C::text("AllowVolumeExpansion"),
    C::AGE,
];
const VOLUMEATTACHMENTS: &[Column] =
    &[C::NAME, C::named("Attacher"), C::text("PV"), C::text("Node"), C::boolean("Attached"), C::AGE];
const VOLUMEATTRIBUTESCLASSES: &[Column] = &[C::NAME, C::text("DriverName"), C::AGE];

/// The columns of a resource.
pub(super) fn of(group: &str, resource: &str) -> Option<&'static [Column]> {
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
        ("", "replicationcontrollers") | ("apps", "replicasets") => REPLICASETS,
        ("apps", "statefulsets") => STATEFULSETS,
        ("autoscaling", "horizontalpodautoscalers") => HORIZONTALPODAUTOSCALERS,
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
        ("rbac.authorization.k8s.io", "clusterrolebindings" | "rolebindings") => CLUSTERROLEBINDINGS,
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
pub(super) fn plain() -> &'static [Column] {
    PLAIN
}
