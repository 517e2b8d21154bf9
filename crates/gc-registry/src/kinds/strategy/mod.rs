//! What a request may touch: which part of an object a create or an update sets, which one the server keeps,
//! and when the generation rises.

mod create;
mod disabled;
mod service;
mod update;
mod warnings;

pub use create::prepare_for_create;
pub(crate) use create::quality_of_service;
pub use update::prepare_for_update;
pub use warnings::warnings;

use crate::api::UserInfo;
use crate::resource::Target;

/// What the rules of kinds need to know about a request.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The time of the request.
    pub now: jiff::Timestamp,
    /// Who asks.
    pub user: &'a UserInfo,
}

impl Context<'_> {
    /// The time in the form of `metav1.Time`.
    fn time(&self) -> String {
        self.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }
}

/// Whether objects of a built-in resource count their generations: 1 at first, and one more with every change of
/// what is wanted (not of what is reported).
#[must_use]
pub fn has_generation(target: Target<'_>) -> bool {
    matches!(
        (target.group, target.resource),
        ("", "pods" | "replicationcontrollers" | "podtemplates")
            | ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets")
            | ("batch", "jobs" | "cronjobs")
            | ("policy", "poddisruptionbudgets")
            | ("networking.k8s.io", "ingresses" | "ingressclasses" | "networkpolicies")
            | ("discovery.k8s.io", "endpointslices")
            | ("scheduling.k8s.io", "priorityclasses")
            | ("resource.k8s.io", "resourceslices" | "deviceclasses")
            | ("flowcontrol.apiserver.k8s.io", "flowschemas" | "prioritylevelconfigurations")
            | ("admissionregistration.k8s.io", _)
    )
}

/// Whether a resource has a status that only its subresource writes.
pub(super) fn has_status(target: Target<'_>) -> bool {
    matches!(
        (target.group, target.resource),
        (
            "",
            "namespaces"
                | "nodes"
                | "persistentvolumeclaims"
                | "persistentvolumes"
                | "pods"
                | "replicationcontrollers"
                | "resourcequotas"
                | "services",
        ) | ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets")
            | ("autoscaling", "horizontalpodautoscalers")
            | ("batch", "jobs" | "cronjobs")
            | ("certificates.k8s.io", "certificatesigningrequests")
            | ("networking.k8s.io", "ingresses" | "servicecidrs")
            | ("policy", "poddisruptionbudgets")
            | ("storage.k8s.io", "volumeattachments")
            | ("admissionregistration.k8s.io", "validatingadmissionpolicies")
            | ("resource.k8s.io", "resourceclaims")
            | ("flowcontrol.apiserver.k8s.io", "flowschemas" | "prioritylevelconfigurations")
            | ("apiregistration.k8s.io", "apiservices")
    )
}
