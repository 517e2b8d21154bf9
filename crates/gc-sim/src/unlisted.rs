//! Kinds whose decisions are excused after a restore.

/// Kinds that a collector has not listed since the store was restored: until then it cannot know what they have become. No fault of
/// another kind is excused by them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnlistedKinds(u32);

impl UnlistedKinds {
    /// Returns every kind, for a store that was restored just now.
    pub(crate) fn all() -> Self {
        Self(u32::MAX)
    }

    /// Returns one kind alone.
    pub(crate) fn only(kind: usize) -> Self {
        Self(1 << kind)
    }

    /// Adds others.
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Removes a kind that was listed.
    pub(crate) fn listed(&mut self, kind: usize) {
        self.0 &= !(1 << kind);
    }

    /// Returns true if a kind is among them.
    #[must_use]
    pub fn has(self, kind: usize) -> bool {
        self.0 & (1 << kind) != 0
    }
}
