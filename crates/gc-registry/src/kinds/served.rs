//! Rules of every built-in kind, in one table per group.

use super::kind::{Rules, ServedKind};
use super::{
    admissionregistration, apiregistration, apps, autoscaling, batch, certificates, coordination, core,
    discovery, flowcontrol, networking, node, policy, rbac, resource, scheduling, storage, storagemigration,
};
use crate::target::Target;

/// Kinds of each group.
static GROUPS: &[(&str, &[ServedKind])] = &[
    ("", core::KINDS),
    ("admissionregistration.k8s.io", admissionregistration::KINDS),
    ("apiregistration.k8s.io", apiregistration::KINDS),
    ("apps", apps::KINDS),
    ("autoscaling", autoscaling::KINDS),
    ("batch", batch::KINDS),
    ("certificates.k8s.io", certificates::KINDS),
    ("coordination.k8s.io", coordination::KINDS),
    ("discovery.k8s.io", discovery::KINDS),
    ("events.k8s.io", core::EVENTS),
    ("flowcontrol.apiserver.k8s.io", flowcontrol::KINDS),
    ("networking.k8s.io", networking::KINDS),
    ("node.k8s.io", node::KINDS),
    ("policy", policy::KINDS),
    ("rbac.authorization.k8s.io", rbac::KINDS),
    ("resource.k8s.io", resource::KINDS),
    ("scheduling.k8s.io", scheduling::KINDS),
    ("storage.k8s.io", storage::KINDS),
    ("storagemigration.k8s.io", storagemigration::KINDS),
];

/// Returns the rules of a resource; `None` for custom resources, their definitions, and resources that are not stored.
pub(crate) fn of(target: Target<'_>) -> Option<&'static Rules> {
    let (_, kinds) = GROUPS.iter().find(|(group, _)| *group == target.group)?;
    let (_, _, rules) = kinds
        .iter()
        .find(|(version, resource, _)| (*version, *resource) == (target.version, target.resource))?;
    Some(rules)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::GROUPS;
    use crate::catalog::builtin_groups;
    use crate::kubernetes::KubernetesVersion;

    #[test]
    fn a_resource_has_rules_if_its_objects_can_be_read() {
        let catalogs = KubernetesVersion::ALL.map(builtin_groups);
        let versions = catalogs.iter().flatten().flat_map(|group| &group.versions);
        let served: BTreeSet<(&str, &str, &str)> = versions
            .flat_map(|version| &version.resources)
            .filter(|row| row.has_verb("get") && *row.resource != *"customresourcedefinitions")
            .map(|row| (&*row.group, &*row.version, &*row.resource))
            .collect();
        let rows = |(group, kinds): &'static (&str, &[super::ServedKind])| {
            kinds.iter().map(|(version, resource, _)| (*group, *version, *resource))
        };
        assert_eq!(GROUPS.iter().flat_map(rows).collect::<BTreeSet<_>>(), served);
    }
}
