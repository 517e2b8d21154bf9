//! The table of collectors: names, flags, permissions and documentation of each derive from it; an entry that lacks a
//! field does not compile.

use std::fmt;

use crate::objects::Kind;
use crate::permissions::Rule;

/// What a collector watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watches {
    /// Every resource that discovery names.
    Everything,
    /// The resources that policies name.
    ByPolicies,
    /// Only these.
    Kinds(&'static [Kind]),
}

/// The entry of one collector.
#[derive(Clone, Copy, Debug)]
pub struct CollectorEntry {
    /// Which one.
    pub controller: Controller,
    /// What it is about, in a few words.
    pub summary: &'static str,
    /// The name for `--controllers` and metrics: upstream's, where upstream has it.
    pub name: &'static str,
    /// The older name, which is accepted as well.
    pub alias: Option<&'static str>,
    /// The name of its ServiceAccount in `kube-system` (spec 1.2).
    pub account: &'static str,
    /// What its Events name as their source: upstream's component, where upstream writes Events.
    pub event_source: &'static str,
    /// Whether `*` enables it. Expiry by annotation must be named. Collectors behind an upstream gate are on: where
    /// the API server does not serve their resource, they do nothing.
    pub on_by_default: bool,
    /// Whether it deletes objects of any kind on its own account, custom resources included.
    pub for_every_kind: bool,
    /// What it watches.
    pub watches: Watches,
    /// Flags of its own, without dashes.
    pub flags: &'static [&'static str],
    /// Exactly the permissions that it needs.
    pub rules: &'static [Rule],
}

macro_rules! collectors {
    ($($(#[$doc:meta])* $variant:ident { $($field:ident: $value:expr),* $(,)? })*) => {
        /// A collector of cluster objects.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Controller {
            $($(#[$doc])* $variant,)*
        }

        /// Every collector, in the order in which they are printed.
        pub static COLLECTORS: [CollectorEntry; Controller::ALL.len()] =
            [$(CollectorEntry { controller: Controller::$variant, $($field: $value),* }),*];

        impl Controller {
            /// Every one, in the order of the table.
            pub const ALL: [Self; [$(Self::$variant),*].len()] = [$(Self::$variant),*];
        }
    };
}

const fn rule(group: &'static str, resource: &'static str, verbs: &'static [&'static str]) -> Rule {
    Rule { group, resource, names: &[], verbs }
}

const WRITE_EVENTS: Rule = rule("", "events", &["create", "patch"]);
const READ: &[&str] = &["get", "list", "watch"];
const WATCH: &[&str] = &["list", "watch"];
const WATCH_DELETE: &[&str] = &["list", "watch", "delete"];
/// A refused patch is followed by a read, which shows whether the object has been replaced.
const WATCH_PATCH: &[&str] = &["get", "list", "watch", "patch"];
const CHANGE: &[&str] = &["get", "list", "watch", "patch", "delete"];

collectors! {
    /// Owner references.
    GarbageCollector {
        summary: "owner references",
        name: "garbage-collector-controller",
        alias: Some("garbagecollector"),
        account: "generic-garbage-collector",
        event_source: "garbage-collector-controller",
        on_by_default: true,
        for_every_kind: true,
        watches: Watches::Everything,
        flags: &[],
        rules: &[rule("*", "*", CHANGE), WRITE_EVENTS],
    }
    /// Contents of terminating namespaces.
    Namespace {
        summary: "terminating namespaces",
        name: "namespace-controller",
        alias: Some("namespace"),
        account: "namespace-controller",
        event_source: "namespace-controller",
        on_by_default: true,
        for_every_kind: false,
        watches: Watches::Everything,
        flags: &[],
        rules: &[
            rule("", "namespaces", READ),
            rule("", "namespaces/finalize", &["update"]),
            rule("", "namespaces/status", &["update"]),
            rule("*", "*", &["list", "delete", "deletecollection"]),
            WRITE_EVENTS,
        ],
    }
    /// [`crate::pods`]
    PodGarbageCollector {
        summary: "pods",
        name: "pod-garbage-collector-controller",
        alias: Some("podgc"),
        account: "pod-garbage-collector",
        event_source: "pod-garbage-collector-controller",
        on_by_default: true,
        for_every_kind: false,
        watches: Watches::Kinds(&[Kind::Pod, Kind::Node]),
        flags: &["terminated-pod-gc-threshold"],
        rules: &[
            rule("", "pods", &["get", "list", "watch", "delete"]),
            rule("", "pods/status", &["patch"]),
            rule("", "nodes", READ),
        ],
    }
    /// [`crate::jobs`]
    TtlAfterFinished {
        summary: "finished Jobs",
        name: "ttl-after-finished-controller",
        alias: Some("ttl-after-finished"),
        account: "ttl-after-finished-controller",
        event_source: "ttl-after-finished-controller",
        on_by_default: true,
        for_every_kind: false,
        watches: Watches::Kinds(&[Kind::Job]),
        flags: &[],
        rules: &[rule("batch", "jobs", WATCH_DELETE)],
    }
    /// [`crate::certificates`]
    CertificateCleaner {
        summary: "CertificateSigningRequests",
        name: "certificatesigningrequest-cleaner-controller",
        alias: Some("csrcleaner"),
        account: "certificate-controller",
        event_source: "certificatesigningrequest-cleaner-controller",
        on_by_default: true,
        for_every_kind: false,
        watches: Watches::Kinds(&[Kind::SigningRequest]),
        flags: &[],
        rules: &[rule("certificates.k8s.io", "certificatesigningrequests", WATCH_DELETE)],
    }
    /// [`crate::volumes::ClaimProtection`]
    ClaimProtection {
        summary: "protection of claims",
        name: "persistentvolumeclaim-protection-controller",
        alias: Some("pvc-protection"),
        account: "pvc-protection-controller",
        event_source: "persistentvolumeclaim-protection-controller",
        on_by_default: true,
        for_every_kind: false,
        watches: Watches::Kinds(&[Kind::Claim, Kind::Pod]),
        flags: &["claim-unused-condition"],
        rules: &[
            rule("", "persistentvolumeclaims", WATCH_PATCH),
            rule("", "persistentvolumeclaims/status", &["patch"]),
            rule("", "pods", WATCH),
        ],
    }
    /// [`crate::volumes::VolumeProtection`]
    VolumeProtection {
        summary: "protection of volumes",
        name: "persistentvolume-protection-controller",
        alias: Some("pv-protection"),
        account: "pv-protection-controller",
        event_source: "persistentvolume-protection-controller",
        on_by_default: true,
        for_every_kind: false,
        watches: Watches::Kinds(&[Kind::Volume]),
        flags: &[],
        rules: &[rule("", "persistentvolumes", WATCH_PATCH)],
    }
    /// [`crate::volume_attributes`]
    AttributesClassProtection {
        summary: "protection of VolumeAttributesClasses",
        name: "volumeattributesclass-protection-controller",
        alias: None,
        account: "volumeattributesclass-protection-controller",
        event_source: "volumeattributesclass-protection-controller",
        on_by_default: true,
        for_every_kind: false,
        watches: Watches::Kinds(&[Kind::AttributesClass, Kind::Claim, Kind::Volume]),
        flags: &[],
        rules: &[
            rule("storage.k8s.io", "volumeattributesclasses", WATCH_PATCH),
            rule("", "persistentvolumeclaims", WATCH),
            rule("", "persistentvolumes", WATCH),
        ],
    }
    /// [`crate::leases`]
    StaleLease {
        summary: "leases",
        name: "stale-lease-controller",
        alias: None,
        account: "stale-lease-controller",
        event_source: "stale-lease-controller",
        on_by_default: true,
        for_every_kind: false,
        watches: Watches::Kinds(&[Kind::Lease, Kind::Node]),
        flags: &["ownerless-node-leases"],
        rules: &[
            rule("coordination.k8s.io", "leases", WATCH_DELETE),
            rule("", "nodes", READ),
            WRITE_EVENTS,
        ],
    }
    /// [`crate::lease_candidates`]
    LeaseCandidate {
        summary: "lease candidates",
        name: "stale-leasecandidate-controller",
        alias: None,
        account: "stale-leasecandidate-controller",
        event_source: "stale-leasecandidate-controller",
        on_by_default: true,
        for_every_kind: false,
        watches: Watches::Kinds(&[Kind::LeaseCandidate]),
        flags: &[],
        rules: &[rule("coordination.k8s.io", "leasecandidates", WATCH_DELETE)],
    }
    /// [`crate::pod_certificates`]
    PodCertificateCleaner {
        summary: "PodCertificateRequests",
        name: "podcertificaterequest-cleaner-controller",
        alias: None,
        account: "podcertificaterequestcleaner",
        event_source: "podcertificaterequest-cleaner-controller",
        on_by_default: true,
        for_every_kind: false,
        watches: Watches::Kinds(&[Kind::PodCertificate]),
        flags: &[],
        rules: &[rule("certificates.k8s.io", "podcertificaterequests", WATCH_DELETE)],
    }
    /// [`crate::tokens`]
    LegacyTokenCleaner {
        summary: "legacy tokens",
        name: "legacy-serviceaccount-token-cleaner-controller",
        alias: Some("legacy-service-account-token-cleaner"),
        account: "legacy-service-account-token-cleaner",
        event_source: "legacy-serviceaccount-token-cleaner-controller",
        on_by_default: true,
        for_every_kind: false,
        watches: Watches::Kinds(&[Kind::TokenSecret, Kind::ServiceAccount, Kind::TokenTracking]),
        flags: &["legacy-service-account-token-clean-up-period"],
        rules: &[
            // Only the metadata of Secrets that hold tokens is read, but RBAC cannot grant that separately.
            rule("", "secrets", CHANGE),
            rule("", "serviceaccounts", WATCH),
            rule("", "pods", &["list"]),
            Rule {
                group: "",
                resource: "configmaps",
                names: &["kube-apiserver-legacy-service-account-token-tracking"],
                verbs: WATCH,
            },
            WRITE_EVENTS,
        ],
    }
    /// [`crate::storage_versions`]
    StorageVersion {
        summary: "storage versions",
        name: "storageversion-garbage-collector-controller",
        alias: Some("storage-version-gc"),
        account: "storage-version-garbage-collector",
        event_source: "storageversion-garbage-collector-controller",
        on_by_default: true,
        for_every_kind: false,
        watches: Watches::Kinds(&[Kind::StorageVersion, Kind::SystemLease]),
        flags: &[],
        rules: &[
            rule("internal.apiserver.k8s.io", "storageversions", &["get", "list", "watch", "delete"]),
            rule("internal.apiserver.k8s.io", "storageversions/status", &["patch"]),
            rule("coordination.k8s.io", "leases", READ),
        ],
    }
    /// [`crate::volumes_reclaim`]
    VolumeReclaim {
        summary: "reclaim of volumes",
        name: "persistentvolume-binder-controller",
        alias: Some("persistentvolume-binder"),
        account: "persistent-volume-binder",
        event_source: "persistentvolume-controller",
        on_by_default: true,
        for_every_kind: false,
        watches: Watches::Kinds(&[Kind::Volume, Kind::Claim, Kind::Attachment]),
        flags: &["csi-endpoint", "csi-timeout", "csi-topology", "enable-hostpath-provisioner"],
        rules: &[
            rule("", "persistentvolumes", CHANGE),
            rule("", "persistentvolumes/status", &["patch"]),
            rule("", "persistentvolumeclaims", READ),
            rule("storage.k8s.io", "volumeattachments", WATCH),
            rule("storage.k8s.io", "storageclasses", &["get"]),
            // The Secrets that drivers need for a deletion: read by name, never listed.
            rule("", "secrets", &["get"]),
            WRITE_EVENTS,
        ],
    }
    /// [`crate::nodes`]
    NodeLifecycle {
        summary: "nodes without machines",
        name: "cloud-node-lifecycle-controller",
        alias: Some("cloud-node-lifecycle"),
        account: "node-controller",
        event_source: "cloud-node-lifecycle-controller",
        on_by_default: true,
        for_every_kind: false,
        watches: Watches::Kinds(&[Kind::Node]),
        flags: &[
            "cloud-inventory",
            "cloud-webhook",
            "cloud-webhook-ca-file",
            "cloud-webhook-token-file",
            "cloud-exec",
            "cloud-exec-argument",
            "cloud-aws-region",
            "cloud-aws-endpoint",
            "cloud-timeout",
            "node-monitor-period",
            "node-missing-confirmations",
            "node-missing-period",
            "node-breaker-fraction",
            "node-deletion-dry-run",
        ],
        rules: &[rule("", "nodes", CHANGE), WRITE_EVENTS],
    }
    /// [`crate::policies`]
    RetentionPolicy {
        summary: "retention by policy",
        name: "retention-policy-controller",
        alias: None,
        account: "retention-policy-controller",
        event_source: "retention-policy-controller",
        on_by_default: true,
        for_every_kind: true,
        watches: Watches::ByPolicies,
        flags: &[
            "notice-webhook",
            "notice-webhook-ca-file",
            "notice-webhook-timeout",
            "notice-webhook-token-file",
        ],
        rules: &[
            rule("kubegc.io", "retentionpolicies", WATCH),
            rule("kubegc.io", "retentionpolicies/status", &["patch"]),
            rule("*", "*", WATCH_DELETE),
            WRITE_EVENTS,
        ],
    }
    /// [`crate::expiry`]
    Expiry {
        summary: "retention by annotation",
        name: "expiry-controller",
        alias: None,
        account: "expiry-controller",
        event_source: "expiry-controller",
        on_by_default: false,
        for_every_kind: true,
        watches: Watches::Everything,
        flags: &["foreign-expiry"],
        rules: &[rule("*", "*", WATCH_DELETE), WRITE_EVENTS],
    }
}

impl Controller {
    /// Its entry in the table.
    #[must_use]
    pub fn collector(self) -> &'static CollectorEntry {
        &COLLECTORS[self as usize]
    }

    /// See [`CollectorEntry::name`].
    #[must_use]
    pub fn name(self) -> &'static str {
        self.collector().name
    }

    /// See [`CollectorEntry::alias`].
    #[must_use]
    pub fn alias(self) -> Option<&'static str> {
        self.collector().alias
    }

    /// See [`CollectorEntry::account`].
    #[must_use]
    pub fn account(self) -> &'static str {
        self.collector().account
    }

    /// See [`CollectorEntry::event_source`].
    #[must_use]
    pub fn event_source(self) -> &'static str {
        self.collector().event_source
    }

    /// See [`CollectorEntry::rules`].
    #[must_use]
    pub fn rules(self) -> &'static [Rule] {
        self.collector().rules
    }

    /// Whether a word of `--controllers` names it.
    #[must_use]
    pub fn is_named(self, word: &str) -> bool {
        word == self.name() || self.alias() == Some(word)
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_name_account_and_alias_is_given_once() {
        let names = || COLLECTORS.iter().flat_map(|one| std::iter::once(one.name).chain(one.alias));
        assert_eq!(names().collect::<BTreeSet<_>>().len(), names().count());
        let accounts = || COLLECTORS.iter().map(|one| one.account);
        assert_eq!(accounts().collect::<BTreeSet<_>>().len(), COLLECTORS.len());
        for one in &COLLECTORS {
            assert_eq!(one.controller.collector().name, one.name);
            assert!(!one.rules.is_empty() && !one.summary.is_empty(), "{}", one.name);
        }
    }
}
