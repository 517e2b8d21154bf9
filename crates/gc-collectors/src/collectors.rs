//! Table of collectors, from which the names, flags, permissions and documentation of each are derived. Each line names a constant
//! in the collector's module; an entry that lacks a field does not compile.

use std::fmt;

use crate::entry::{CHANGE, WRITE_EVENTS, rule};
pub use crate::entry::{CollectorEntry, Rule, Watches};

macro_rules! collectors {
    ($($(#[$doc:meta])* $variant:ident: $entry:expr,)*) => {
        /// A collector of cluster objects.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Controller {
            $($(#[$doc])* $variant,)*
        }

        /// All collectors, in the order in which they are printed.
        pub static COLLECTORS: [CollectorEntry; Controller::ALL.len()] = [$($entry),*];

        impl Controller {
            /// All collectors, in the order of the table.
            pub const ALL: [Self; [$(Self::$variant),*].len()] = [$(Self::$variant),*];
        }
    };
}

collectors! {
    /// Owner references.
    GarbageCollector: OWNER_REFERENCES,
    /// Contents of terminating namespaces.
    Namespace: crate::namespaces::COLLECTOR,
    /// [`crate::pods`]
    PodGarbageCollector: crate::pods::COLLECTOR,
    /// [`crate::jobs`]
    TtlAfterFinished: crate::jobs::COLLECTOR,
    /// [`crate::certificates`]
    CertificateCleaner: crate::certificates::COLLECTOR,
    /// [`crate::volumes::ClaimProtection`]
    ClaimProtection: crate::volumes::protect::claims::COLLECTOR,
    /// [`crate::volumes::VolumeProtection`]
    VolumeProtection: crate::volumes::protect::volumes::COLLECTOR,
    /// [`crate::volumes::AttributesClassProtection`]
    AttributesClassProtection: crate::volumes::protect::classes::COLLECTOR,
    /// [`crate::leases`]
    StaleLease: crate::leases::COLLECTOR,
    /// [`crate::lease_candidates`]
    LeaseCandidate: crate::lease_candidates::COLLECTOR,
    /// [`crate::pod_certificates`]
    PodCertificateCleaner: crate::pod_certificates::COLLECTOR,
    /// [`crate::tokens`]
    LegacyTokenCleaner: crate::tokens::COLLECTOR,
    /// [`crate::storage_versions`]
    StorageVersion: crate::storage_versions::COLLECTOR,
    /// [`crate::volumes::reclaim`]
    VolumeReclaim: crate::volumes::reclaim::COLLECTOR,
    /// [`crate::nodes`]
    NodeLifecycle: crate::nodes::COLLECTOR,
    /// [`crate::policies`]
    RetentionPolicy: crate::policies::COLLECTOR,
    /// [`crate::expiry`]
    Expiry: crate::expiry::COLLECTOR,
}

/// Entry of the collector for owner references, which is in the crate gc-ownership.
const OWNER_REFERENCES: CollectorEntry = CollectorEntry {
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
};

impl Controller {
    /// Returns its entry in the table.
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

    /// Reports whether a word of `--controllers` names it.
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
            assert!(!one.rules.is_empty() && !one.summary.is_empty(), "{}", one.name);
        }
    }

    #[test]
    fn a_collector_is_known_by_its_names() {
        let names = |one: Controller| (one.to_string(), one.account(), one.event_source());
        let expected = "garbage-collector-controller";
        assert_eq!(
            names(Controller::GarbageCollector),
            (expected.to_owned(), "generic-garbage-collector", expected)
        );
        for one in Controller::ALL {
            let entry = one.collector();
            assert_eq!(names(one), (entry.name.to_owned(), entry.account, entry.event_source));
        }
    }
}
