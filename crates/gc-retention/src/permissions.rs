//! Which collectors there are, by which names they are switched, and what each of them may do.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A collector of cluster objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    /// Owner references.
    GarbageCollector,
    /// Contents of terminating namespaces.
    Namespace,
    /// [`crate::pods`]
    PodGarbageCollector,
    /// [`crate::jobs`]
    TtlAfterFinished,
    /// [`crate::certificates`]
    CertificateCleaner,
    /// [`crate::volumes::ClaimProtection`]
    ClaimProtection,
    /// [`crate::volumes::VolumeProtection`]
    VolumeProtection,
    /// [`crate::leases`]
    StaleLease,
    /// [`crate::lease_candidates`]
    LeaseCandidate,
    /// [`crate::pod_certificates`]
    PodCertificateCleaner,
    /// [`crate::tokens`]
    LegacyTokenCleaner,
    /// [`crate::storage_versions`]
    StorageVersion,
    /// [`crate::volumes_reclaim`]
    VolumeReclaim,
    /// [`crate::nodes`]
    NodeLifecycle,
    /// [`crate::policies`]
    RetentionPolicy,
    /// [`crate::expiry`]
    Expiry,
}

/// Verbs on a resource; a rule of a ClusterRole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Resource, or `resource/subresource`.
    pub resource: &'static str,
    /// Names of the objects; empty for all.
    pub names: &'static [&'static str],
    /// Verbs.
    pub verbs: &'static [&'static str],
}

const fn rule(group: &'static str, resource: &'static str, verbs: &'static [&'static str]) -> Rule {
    Rule { group, resource, names: &[], verbs }
}

const WRITE_EVENTS: Rule = rule("", "events", &["create", "patch"]);
const WATCH: &[&str] = &["list", "watch"];
const WATCH_DELETE: &[&str] = &["list", "watch", "delete"];
/// A patch that is refused is followed by a read, which tells whether the object has been replaced.
const WATCH_PATCH: &[&str] = &["get", "list", "watch", "patch"];

impl Controller {
    /// Every one, in the order in which they are printed.
    pub const ALL: [Self; 16] = [
        Self::GarbageCollector,
        Self::Namespace,
        Self::PodGarbageCollector,
        Self::TtlAfterFinished,
        Self::CertificateCleaner,
        Self::ClaimProtection,
        Self::VolumeProtection,
        Self::StaleLease,
        Self::LeaseCandidate,
        Self::PodCertificateCleaner,
        Self::LegacyTokenCleaner,
        Self::StorageVersion,
        Self::VolumeReclaim,
        Self::NodeLifecycle,
        Self::RetentionPolicy,
        Self::Expiry,
    ];

    /// The name in `--controllers`: upstream's, where upstream has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::GarbageCollector => "garbage-collector-controller",
            Self::Namespace => "namespace-controller",
            Self::PodGarbageCollector => "pod-garbage-collector-controller",
            Self::TtlAfterFinished => "ttl-after-finished-controller",
            Self::CertificateCleaner => "certificatesigningrequest-cleaner-controller",
            Self::ClaimProtection => "persistentvolumeclaim-protection-controller",
            Self::VolumeProtection => "persistentvolume-protection-controller",
            Self::StaleLease => "stale-lease-controller",
            Self::LeaseCandidate => "stale-leasecandidate-controller",
            Self::PodCertificateCleaner => "podcertificaterequest-cleaner-controller",
            Self::LegacyTokenCleaner => "legacy-serviceaccount-token-cleaner-controller",
            Self::StorageVersion => "storageversion-garbage-collector-controller",
            Self::VolumeReclaim => "persistentvolume-binder-controller",
            Self::NodeLifecycle => "cloud-node-lifecycle-controller",
            Self::RetentionPolicy => "retention-policy-controller",
            Self::Expiry => "expiry-controller",
        }
    }

    /// Whether `*` switches it on. The annotations of single objects are asked for by name. What upstream has behind a gate
    /// is on: where the API server does not serve what it collects, it stands by.
    #[must_use]
    pub const fn on_by_default(self) -> bool {
        !matches!(self, Self::Expiry)
    }

    /// The older name that is understood as well.
    #[must_use]
    pub const fn alias(self) -> Option<&'static str> {
        match self {
            Self::GarbageCollector => Some("garbagecollector"),
            Self::Namespace => Some("namespace"),
            Self::PodGarbageCollector => Some("podgc"),
            Self::TtlAfterFinished => Some("ttl-after-finished"),
            Self::CertificateCleaner => Some("csrcleaner"),
            Self::ClaimProtection => Some("pvc-protection"),
            Self::VolumeProtection => Some("pv-protection"),
            Self::LegacyTokenCleaner => Some("legacy-service-account-token-cleaner"),
            Self::StorageVersion => Some("storage-version-gc"),
            Self::StaleLease
            | Self::LeaseCandidate
            | Self::PodCertificateCleaner
            | Self::RetentionPolicy
            | Self::Expiry => None,
            Self::VolumeReclaim => Some("persistentvolume-binder"),
            Self::NodeLifecycle => Some("cloud-node-lifecycle"),
        }
    }

    /// The name of its ServiceAccount in `kube-system` (spec 1.2).
    #[must_use]
    pub const fn identity(self) -> &'static str {
        match self {
            Self::GarbageCollector => "generic-garbage-collector",
            Self::Namespace => "namespace-controller",
            Self::PodGarbageCollector => "pod-garbage-collector",
            Self::TtlAfterFinished => "ttl-after-finished-controller",
            Self::CertificateCleaner => "certificate-controller",
            Self::ClaimProtection => "pvc-protection-controller",
            Self::VolumeProtection => "pv-protection-controller",
            Self::StaleLease => "stale-lease-controller",
            Self::LeaseCandidate => "stale-leasecandidate-controller",
            Self::PodCertificateCleaner => "podcertificaterequestcleaner",
            Self::LegacyTokenCleaner => "legacy-service-account-token-cleaner",
            Self::StorageVersion => "storage-version-garbage-collector",
            Self::VolumeReclaim => "persistent-volume-binder",
            Self::NodeLifecycle => "node-controller",
            Self::RetentionPolicy => "retention-policy-controller",
            Self::Expiry => "expiry-controller",
        }
    }

    /// What its Events name as their source: upstream's component, where upstream writes Events.
    #[must_use]
    pub const fn event_source(self) -> &'static str {
        match self {
            Self::VolumeReclaim => "persistentvolume-controller",
            other => other.name(),
        }
    }

    /// All that it needs to be allowed, and no more.
    #[must_use]
    pub const fn rules(self) -> &'static [Rule] {
        const GARBAGE: &[Rule] =
            &[rule("*", "*", &["get", "list", "watch", "patch", "delete"]), WRITE_EVENTS];
        const NAMESPACE: &[Rule] = &[
            rule("", "namespaces", &["get", "list", "watch"]),
            rule("", "namespaces/finalize", &["update"]),
            rule("", "namespaces/status", &["update"]),
            rule("*", "*", &["list", "delete", "deletecollection"]),
            WRITE_EVENTS,
        ];
        const PODS: &[Rule] = &[
            rule("", "pods", &["get", "list", "watch", "delete"]),
            rule("", "pods/status", &["patch"]),
            rule("", "nodes", &["get", "list", "watch"]),
        ];
        const JOBS: &[Rule] = &[rule("batch", "jobs", WATCH_DELETE)];
        const REQUESTS: &[Rule] = &[rule("certificates.k8s.io", "certificatesigningrequests", WATCH_DELETE)];
        const CLAIMS: &[Rule] = &[
            rule("", "persistentvolumeclaims", WATCH_PATCH),
            rule("", "persistentvolumeclaims/status", &["patch"]),
            rule("", "pods", WATCH),
        ];
        const VOLUMES: &[Rule] = &[rule("", "persistentvolumes", WATCH_PATCH)];
        const LEASES: &[Rule] = &[
            rule("coordination.k8s.io", "leases", WATCH_DELETE),
            rule("", "nodes", &["get", "list", "watch"]),
            WRITE_EVENTS,
        ];
        const CANDIDATES: &[Rule] = &[rule("coordination.k8s.io", "leasecandidates", WATCH_DELETE)];
        const POD_CERTIFICATES: &[Rule] =
            &[rule("certificates.k8s.io", "podcertificaterequests", WATCH_DELETE)];
        const TOKENS: &[Rule] = &[
            // Of those that hold tokens, and their metadata alone; but that cannot be granted apart.
            rule("", "secrets", &["get", "list", "watch", "patch", "delete"]),
            rule("", "serviceaccounts", WATCH),
            rule("", "pods", &["list"]),
            Rule {
                group: "",
                resource: "configmaps",
                names: &["kube-apiserver-legacy-service-account-token-tracking"],
                verbs: WATCH,
            },
            WRITE_EVENTS,
        ];
        const STORAGE_VERSIONS: &[Rule] = &[
            rule("internal.apiserver.k8s.io", "storageversions", &["get", "list", "watch", "delete"]),
            rule("internal.apiserver.k8s.io", "storageversions/status", &["patch"]),
            rule("coordination.k8s.io", "leases", &["get", "list", "watch"]),
        ];
        const RECLAIM: &[Rule] = &[
            rule("", "persistentvolumes", &["get", "list", "watch", "patch", "delete"]),
            rule("", "persistentvolumes/status", &["patch"]),
            rule("", "persistentvolumeclaims", &["get", "list", "watch"]),
            rule("storage.k8s.io", "volumeattachments", WATCH),
            rule("storage.k8s.io", "storageclasses", &["get"]),
            // Those that drivers want with a deletion: by name, and never listed.
            rule("", "secrets", &["get"]),
            WRITE_EVENTS,
        ];
        const NODES: &[Rule] =
            &[rule("", "nodes", &["get", "list", "watch", "patch", "delete"]), WRITE_EVENTS];
        const POLICIES: &[Rule] = &[
            rule("kubegc.io", "retentionpolicies", WATCH),
            rule("kubegc.io", "retentionpolicies/status", &["patch"]),
            rule("*", "*", WATCH_DELETE),
            WRITE_EVENTS,
        ];
        const EXPIRY: &[Rule] = &[rule("*", "*", WATCH_DELETE), WRITE_EVENTS];
        match self {
            Self::GarbageCollector => GARBAGE,
            Self::Namespace => NAMESPACE,
            Self::PodGarbageCollector => PODS,
            Self::TtlAfterFinished => JOBS,
            Self::CertificateCleaner => REQUESTS,
            Self::ClaimProtection => CLAIMS,
            Self::VolumeProtection => VOLUMES,
            Self::StaleLease => LEASES,
            Self::LeaseCandidate => CANDIDATES,
            Self::PodCertificateCleaner => POD_CERTIFICATES,
            Self::LegacyTokenCleaner => TOKENS,
            Self::StorageVersion => STORAGE_VERSIONS,
            Self::VolumeReclaim => RECLAIM,
            Self::NodeLifecycle => NODES,
            Self::RetentionPolicy => POLICIES,
            Self::Expiry => EXPIRY,
        }
    }

    /// Whether it deletes objects of any kind for reasons of its own, custom resources included.
    #[must_use]
    pub const fn is_for_every_kind(self) -> bool {
        matches!(self, Self::GarbageCollector | Self::RetentionPolicy | Self::Expiry)
    }

    fn named(self, word: &str) -> bool {
        word == self.name() || self.alias() == Some(word)
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A rule of a ClusterRole that several collectors share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeededRule {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Resource, or `resource/subresource`.
    pub resource: &'static str,
    /// Names of the objects; empty for all.
    pub names: &'static [&'static str],
    /// Verbs, in alphabetical order.
    pub verbs: Vec<&'static str>,
}

/// What one account needs to be allowed so that all these collectors can work under it: each permission once, and
/// none that a star grants already. The stars come first.
#[must_use]
pub fn needed(controllers: &[Controller]) -> Vec<NeededRule> {
    let mut wanted: BTreeMap<(&'static str, &'static str, &'static [&'static str]), BTreeSet<&'static str>> =
        BTreeMap::new();
    for rule in controllers.iter().flat_map(|controller| controller.rules()) {
        wanted.entry((rule.group, rule.resource, rule.names)).or_default().extend(rule.verbs);
    }
    let everywhere = wanted.remove(&("*", "*", &[])).unwrap_or_default();
    let star =
        NeededRule { group: "*", resource: "*", names: &[], verbs: everywhere.iter().copied().collect() };
    let others = wanted.into_iter().map(|((group, resource, names), verbs)| NeededRule {
        group,
        resource,
        names,
        verbs: verbs.difference(&everywhere).copied().collect(),
    });
    std::iter::once(star).chain(others).filter(|rule| !rule.verbs.is_empty()).collect()
}

/// Why a `--controllers` list makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControllersError {
    /// Nothing has that name.
    #[error("\"{0}\" is not in the list of known controllers")]
    Unknown(String),
}

/// What `--controllers` switches on: `name` on, `-name` off, `*` all others that are on by default; of several entries
/// with one name the first decides, and what no entry fits is off.
pub fn enabled<T: AsRef<str>>(entries: &[T]) -> Result<Vec<Controller>, ControllersError> {
    let words = || entries.iter().map(AsRef::as_ref);
    for word in words().filter(|word| *word != "*") {
        let name = word.strip_prefix('-').unwrap_or(word);
        if !Controller::ALL.iter().any(|controller| controller.named(name)) {
            return Err(ControllersError::Unknown(word.to_owned()));
        }
    }
    let on = |controller: &Controller| {
        // A name decides before the star does, wherever it stands.
        let by_name = words().find_map(|word| match word.strip_prefix('-') {
            Some(name) => controller.named(name).then_some(false),
            None => controller.named(word).then_some(true),
        });
        by_name.unwrap_or_else(|| controller.on_by_default() && words().any(|word| word == "*"))
    };
    Ok(Controller::ALL.into_iter().filter(on).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_aliases_and_the_star_are_understood() {
        let all: Vec<_> = Controller::ALL.into_iter().filter(|one| one.on_by_default()).collect();
        assert!(!all.contains(&Controller::Expiry));
        let without = |off: Controller| Ok(all.iter().copied().filter(|one| *one != off).collect::<Vec<_>>());
        let unknown = |word: &str| Err(ControllersError::Unknown(word.to_owned()));
        for (entries, expected) in [
            (&["*"][..], Ok(all.clone())),
            (&["*", "-podgc"], without(Controller::PodGarbageCollector)),
            (&["-namespace-controller", "*"], without(Controller::Namespace)),
            (&["*", "expiry-controller"], Ok([all.clone(), vec![Controller::Expiry]].concat())),
            (&["podgc"], Ok(vec![Controller::PodGarbageCollector])),
            (
                &["storage-version-gc", "legacy-service-account-token-cleaner"],
                Ok(vec![Controller::LegacyTokenCleaner, Controller::StorageVersion]),
            ),
            (&["pv-protection", "-pv-protection"], Ok(vec![Controller::VolumeProtection])),
            (&["-pv-protection", "pv-protection"], Ok(vec![])),
            (&[], Ok(vec![])),
            (&["*", "nonsense"], unknown("nonsense")),
            (&["-"], unknown("-")),
        ] {
            assert_eq!(enabled(entries), expected, "{entries:?}");
        }
    }

    #[test]
    fn one_account_for_all_needs_each_permission_once() {
        let rule = |group, resource, verbs: &[&'static str]| NeededRule {
            group,
            resource,
            names: &[],
            verbs: verbs.to_vec(),
        };
        assert_eq!(
            needed(&Controller::ALL),
            [
                rule("*", "*", &["delete", "deletecollection", "get", "list", "patch", "watch"]),
                rule("", "events", &["create"]),
                rule("", "namespaces/finalize", &["update"]),
                rule("", "namespaces/status", &["update"]),
            ]
        );
        assert_eq!(
            needed(&[Controller::TtlAfterFinished, Controller::StaleLease]),
            [
                rule("", "events", &["create", "patch"]),
                rule("", "nodes", &["get", "list", "watch"]),
                rule("batch", "jobs", &["delete", "list", "watch"]),
                rule("coordination.k8s.io", "leases", &["delete", "list", "watch"]),
            ]
        );
        assert_eq!(needed(&[]), []);
    }

    /// Stars are for those that deal with every kind.
    #[test]
    fn only_those_for_every_kind_may_touch_everything() {
        for controller in Controller::ALL {
            let everything = controller.rules().iter().any(|rule| rule.resource == "*" || rule.group == "*");
            let may = matches!(
                controller,
                Controller::GarbageCollector
                    | Controller::Namespace
                    | Controller::RetentionPolicy
                    | Controller::Expiry
            );
            assert_eq!(everything, may, "{controller}");
        }
    }
}
