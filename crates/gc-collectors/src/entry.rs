//! Entries of the table of collectors.

use crate::objects::Kind;

/// Resources that a collector watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watches {
    /// Every resource that discovery reports.
    Everything,
    /// The resources that policies name.
    ByPolicies,
    /// Only these.
    Kinds(&'static [Kind]),
}

/// The entry of one collector.
#[derive(Clone, Copy, Debug)]
pub struct CollectorEntry {
    /// Summary in a few words.
    pub summary: &'static str,
    /// Name for `--controllers` and metrics; upstream's, if upstream has this collector.
    pub name: &'static str,
    /// Older name, which is accepted as well.
    pub alias: Option<&'static str>,
    /// Name of its ServiceAccount in `kube-system` (spec 1.2).
    pub account: &'static str,
    /// Source of its Events: upstream's component, if upstream writes them.
    pub event_source: &'static str,
    /// True if `*` enables it. Expiry by annotation must be named. Collectors behind an upstream feature gate are on: if the API
    /// server does not serve their resource, they do nothing.
    pub on_by_default: bool,
    /// True if it decides by itself to delete objects of any kind, including custom resources.
    pub for_every_kind: bool,
    /// Resources that it watches.
    pub watches: Watches,
    /// Own flags of the collector, without dashes.
    pub flags: &'static [&'static str],
    /// Exactly the permissions that it needs.
    pub rules: &'static [Rule],
}

/// Verbs on a resource: a rule of a ClusterRole.
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

pub(crate) const fn rule(
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
) -> Rule {
    Rule { group, resource, names: &[], verbs }
}

pub(crate) const WRITE_EVENTS: Rule = rule("", "events", &["create", "patch"]);
pub(crate) const READ: &[&str] = &["get", "list", "watch"];
pub(crate) const WATCH: &[&str] = &["list", "watch"];
pub(crate) const WATCH_DELETE: &[&str] = &["list", "watch", "delete"];
/// Verbs for patching watched objects. A refused patch is followed by a read, which shows whether the object has been replaced.
pub(crate) const WATCH_PATCH: &[&str] = &["get", "list", "watch", "patch"];
pub(crate) const CHANGE: &[&str] = &["get", "list", "watch", "patch", "delete"];
