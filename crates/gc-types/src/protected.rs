//! Objects that a cluster cannot do without.

/// Returns why the API server never deletes an object of this resource and name, whoever requests it; `None` for all others.
///
/// Source: the admission plugins NamespaceLifecycle and Priority of kube-apiserver.
#[must_use]
pub fn undeletable(group: &str, resource: &str, name: &str) -> Option<&'static str> {
    match (group, resource, name) {
        ("", "namespaces", "default" | "kube-system" | "kube-public") => {
            Some("this namespace may not be deleted")
        }
        ("scheduling.k8s.io", "priorityclasses", "system-node-critical" | "system-cluster-critical") => {
            Some("this is a system priority class and cannot be deleted")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::undeletable;

    #[test]
    fn only_what_a_cluster_needs_is_undeletable() {
        for (group, resource, name, is_undeletable) in [
            ("", "namespaces", "default", true),
            ("", "namespaces", "kube-system", true),
            ("", "namespaces", "kube-public", true),
            ("", "namespaces", "kube-node-lease", false),
            ("", "configmaps", "default", false),
            ("acme.io", "namespaces", "default", false),
            ("scheduling.k8s.io", "priorityclasses", "system-node-critical", true),
            ("scheduling.k8s.io", "priorityclasses", "system-cluster-critical", true),
            ("scheduling.k8s.io", "priorityclasses", "high", false),
        ] {
            assert_eq!(
                undeletable(group, resource, name).is_some(),
                is_undeletable,
                "{resource}.{group}/{name}"
            );
        }
    }
}
