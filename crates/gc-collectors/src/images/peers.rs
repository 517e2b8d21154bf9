//! Copies of images on other nodes, if a peer-to-peer registry serves them (spec `node-gc.md`, section 24).

use std::collections::BTreeMap;

use super::ImageId;

/// Number of copies that must be known before this node's may be removed. The mirrors of all nodes are queried, including this
/// node's own, so one of the answers may be its own.
const ENOUGH: usize = 2;

/// Answers of all nodes' mirrors about one image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Mirrors that have the image.
    pub holding: usize,
    /// Mirrors that do not have it.
    pub lacking: usize,
    /// Mirrors that were not queried, did not answer in time, or gave another answer.
    pub failed: usize,
}

/// Knowledge about copies of an image on other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// Another node has one.
    Elsewhere,
    /// This node has the last one.
    Last,
    /// Not every node has answered.
    Unknown,
}

impl Answers {
    /// Draws the conclusion. Only the answers of all nodes prove that no other node has a copy.
    #[must_use]
    pub fn copies(self) -> Copies {
        match self {
            Self { holding, .. } if holding >= ENOUGH => Copies::Elsewhere,
            Self { failed: 1.., .. } | Self { holding: 0, lacking: 0, .. } => Copies::Unknown,
            _ => Copies::Last,
        }
    }
}

/// Copies of the images that a pass would remove. Images that were not queried are missing.
pub type KnownCopies = BTreeMap<ImageId, Copies>;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_copy_counts_if_two_mirrors_have_it() {
        for (holding, lacking, failed, expected) in [
            (2, 5, 0, Copies::Elsewhere),
            (2, 0, 9, Copies::Elsewhere),
            (1, 5, 0, Copies::Last),
            (0, 5, 0, Copies::Last),
            (1, 5, 1, Copies::Unknown),
            (0, 0, 3, Copies::Unknown),
            (0, 0, 0, Copies::Unknown),
        ] {
            let answers = Answers { holding, lacking, failed };
            assert_eq!(answers.copies(), expected, "{answers:?}");
        }
    }

    proptest! {
        /// More answers never make a known copy unknown, and a failure never makes the last copy seem to be one of several.
        #[test]
        fn failures_only_take_certainty_away(holding in 0_usize..4, lacking in 0_usize..4, failed in 0_usize..4) {
            let found = Answers { holding, lacking, failed }.copies();
            let more = Answers { holding, lacking, failed: failed + 1 }.copies();
            prop_assert_eq!(found == Copies::Elsewhere, more == Copies::Elsewhere);
            prop_assert!(more != Copies::Last);
            prop_assert_eq!(found == Copies::Elsewhere, holding >= 2);
        }
    }
}
