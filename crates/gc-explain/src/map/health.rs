//! Readiness of objects, derived from the columns that `kubectl get` shows.

use serde_json::{Value, json};

use crate::catalog::GroupResource;

/// Parts of STATUS that indicate failure, once or repeatedly.
const FAILED: [&str; 12] = [
    "Failed",
    "Error",
    "BackOff",
    "Evicted",
    "OOMKilled",
    "ErrImage",
    "InvalidImageName",
    "CannotRun",
    "DeadlineExceeded",
    "NodeLost",
    "Unknown",
    "Lost",
];
/// STATUS values of healthy objects, whatever READY says.
const SUCCEEDED: [&str; 7] = ["Completed", "Complete", "Succeeded", "Bound", "Available", "Active", "Ready"];
/// Built-in resources whose table has READY or STATUS.
const EXAMINED: [&str; 10] = [
    "pods",
    "replicationcontrollers",
    "persistentvolumeclaims",
    "persistentvolumes",
    "nodes",
    "deployments.apps",
    "replicasets.apps",
    "statefulsets.apps",
    "daemonsets.apps",
    "jobs.batch",
];

/// Readiness of the objects of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Number of objects that are ready or have succeeded.
    pub ready: usize,
    /// Number of objects that have failed, once or repeatedly.
    pub failed: usize,
    /// Number of objects whose readiness is known.
    pub known: usize,
    /// READY and STATUS cells of a single object, as `kubectl get` shows them.
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judgement {
    Ready,
    Waiting,
    Failed,
}

/// Judges the READY and STATUS cells of one object; `None` if they are inconclusive.
fn judge(ready: &str, status: &str) -> Option<Judgement> {
    if FAILED.iter().any(|part| status.contains(part)) {
        return Some(Judgement::Failed);
    }
    if SUCCEEDED.contains(&status) {
        return Some(Judgement::Ready);
    }
    let is_ready = match ready.split_once('/') {
        Some((ready, wanted)) => ready == wanted,
        None if ready.eq_ignore_ascii_case("true") => true,
        None if ready.is_empty() && status == "Running" => true,
        None if ready.is_empty() && status.is_empty() => return None,
        None => false,
    };
    Some(if is_ready { Judgement::Ready } else { Judgement::Waiting })
}

impl Health {
    /// Reports whether the server may show the readiness of this resource: workloads, volumes, nodes and custom resources.
    #[must_use]
    pub fn is_examined(resource: &GroupResource) -> bool {
        let is_custom = resource.group.contains('.') && !resource.group.ends_with(".k8s.io");
        is_custom || EXAMINED.contains(&resource.to_string().as_str())
    }

    /// Sums up the READY and STATUS cells of objects; `None` if they are inconclusive.
    #[must_use]
    pub fn of(cells: impl Iterator<Item = (String, String)>) -> Option<Self> {
        let mut health = Self::default();
        for (ready, status) in cells {
            let Some(judgement) = judge(&ready, &status) else { continue };
            health.known += 1;
            health.ready += usize::from(judgement == Judgement::Ready);
            health.failed += usize::from(judgement == Judgement::Failed);
            health.text =
                [ready, status].into_iter().filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join(" ");
        }
        if health.known > 1 {
            health.text = String::new();
        }
        (health.known > 0).then_some(health)
    }

    /// Converts to JSON.
    #[must_use]
    pub fn value(&self) -> Value {
        json!({"ready": self.ready, "failed": self.failed, "known": self.known, "text": self.text})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_of_kubectl_are_judged() {
        for (ready, status, expected) in [
            ("1/1", "Running", Some(Judgement::Ready)),
            ("0/1", "Running", Some(Judgement::Waiting)),
            ("0/1", "CrashLoopBackOff", Some(Judgement::Failed)),
            ("0/1", "Init:ErrImagePull", Some(Judgement::Failed)),
            ("0/1", "Completed", Some(Judgement::Ready)),
            ("1/1", "Complete", Some(Judgement::Ready)),
            ("2/3", "", Some(Judgement::Waiting)),
            ("0/0", "", Some(Judgement::Ready)),
            ("True", "", Some(Judgement::Ready)),
            ("False", "", Some(Judgement::Waiting)),
            ("", "Bound", Some(Judgement::Ready)),
            ("", "Pending", Some(Judgement::Waiting)),
            ("", "", None),
        ] {
            assert_eq!(judge(ready, status), expected, "{ready} {status}");
        }
        let cell = |ready: &str, status: &str| (ready.to_owned(), status.to_owned());
        let one = Health::of([cell("2/3", "")].into_iter());
        assert_eq!(one, Some(Health { ready: 0, failed: 0, known: 1, text: "2/3".into() }));
        let three = [cell("1/1", "Running"), cell("0/1", "Error"), cell("", "")].into_iter();
        assert_eq!(Health::of(three), Some(Health { ready: 1, failed: 1, known: 2, text: String::new() }));
        assert_eq!(Health::of(std::iter::empty()), None);
    }

    #[test]
    fn what_has_no_readiness_is_not_asked() {
        for (group, resource, expected) in [
            ("", "pods", true),
            ("apps", "deployments", true),
            ("", "configmaps", false),
            ("rbac.authorization.k8s.io", "roles", false),
            ("cert-manager.io", "certificates", true),
        ] {
            assert_eq!(Health::is_examined(&GroupResource::new(group, resource)), expected, "{resource}");
        }
    }
}
