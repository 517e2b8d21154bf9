//! Fields of features that are off by default, which a create or an update drops.

use crate::kinds::access::{Members, existing, items};
use crate::kubernetes::FeatureGate;

/// Drops members of the member `key`.
pub(crate) fn drop_from(members: &mut Members, key: &str, names: &[&str]) {
    if let Some(inner) = existing(members, key) {
        for name in names {
            inner.remove(*name);
        }
    }
}

/// Returns the members at a path.
pub(crate) fn within<'a>(members: &'a mut Members, path: &[&str]) -> Option<&'a mut Members> {
    path.iter().try_fold(members, |members, key| existing(members, key))
}

/// Drops fields from the pod template at a path.
pub(crate) fn template(members: &mut Members, path: &[&str]) {
    if let Some(spec) = within(members, path).and_then(|template| existing(template, "spec")) {
        pod_spec(spec);
    }
}

/// Drops fields from the spec of a pod.
pub(crate) fn pod_spec(spec: &mut Members) {
    spec.remove("schedulingGroup");
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in items(spec, list) {
            stop_signal(container);
        }
    }
    for volume in items(spec, "volumes") {
        let Some(projected) = existing(volume, "projected") else { continue };
        for source in items(projected, "sources") {
            if !FeatureGate::ClusterTrustBundleProjection.is_on() {
                source.remove("clusterTrustBundle");
            }
            if !FeatureGate::PodCertificateRequest.is_on() {
                source.remove("podCertificate");
            }
        }
    }
}

/// Drops the signal that stops a container, together with a lifecycle that contains nothing else.
fn stop_signal(container: &mut Members) {
    let Some(lifecycle) = existing(container, "lifecycle") else { return };
    if lifecycle.remove("stopSignal").is_some() && lifecycle.is_empty() {
        container.remove("lifecycle");
    }
}
