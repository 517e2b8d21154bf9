//! Retention annotations of an object.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Timestamp;

/// The retention annotations of an object, unparsed: `kubegc.io/ttl`, `kubegc.io/expires-at`, `kubegc.io/keep`, and
/// those of other tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// `creationTimestamp`, if it is valid.
    pub created: Option<Timestamp>,
    /// `kubegc.io/ttl`: a duration.
    pub ttl: Option<Arc<str>>,
    /// `kubegc.io/expires-at`: RFC 3339.
    pub expires_at: Option<Arc<str>>,
    /// `kubegc.io/keep`: `true` or `false`.
    pub keep: Option<Arc<str>>,
    /// The annotations of other tools.
    pub foreign: BTreeMap<ForeignMark, Arc<str>>,
}

/// An annotation or label by which another tool expires objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ForeignMark {
    /// kube-janitor's time to live.
    JanitorTtl,
    /// kube-janitor's time of expiry.
    JanitorExpires,
    /// The time to live of k8s-ttl-controller.
    TtlController,
    /// When k8s-ttl-controller's time to live was last restarted.
    TtlControllerRefreshed,
    /// Kyverno's time to live or time of expiry, which is a label.
    Kyverno,
}

impl ForeignMark {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::JanitorTtl,
        Self::JanitorExpires,
        Self::TtlController,
        Self::TtlControllerRefreshed,
        Self::Kyverno,
    ];

    /// Its name as an annotation or label.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::JanitorTtl => "janitor/ttl",
            Self::JanitorExpires => "janitor/expires",
            Self::TtlController => "k8s-ttl-controller.twin.sh/ttl",
            Self::TtlControllerRefreshed => "k8s-ttl-controller.twin.sh/refreshed-at",
            Self::Kyverno => "cleanup.kyverno.io/ttl",
        }
    }

    /// Whether it is a label.
    #[must_use]
    pub const fn is_label(self) -> bool {
        matches!(self, Self::Kyverno)
    }

    /// The mark with this name as an annotation.
    #[must_use]
    pub fn of_annotation(key: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|mark| !mark.is_label() && mark.key().as_bytes() == key)
    }

    /// The mark with this name as a label.
    #[must_use]
    pub fn of_label(key: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|mark| mark.is_label() && mark.key().as_bytes() == key)
    }
}

impl Marks {
    /// Whether there are no retention annotations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ttl.is_none() && self.expires_at.is_none() && self.keep.is_none() && self.foreign.is_empty()
    }

    /// Whether the object is kept. Any value but `false` keeps it, so that a misspelt `true` does too.
    #[must_use]
    pub fn keeps(&self) -> bool {
        self.keep.as_deref().is_some_and(|keep| keep != "false")
    }
}
