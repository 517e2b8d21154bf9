//! Images that workloads will need although none of their pods is on the node: between two runs of a CronJob, while a workload
//! is scaled to zero, and where an annotation says so.

use std::collections::BTreeSet;
use std::sync::Arc;

use gc_types::Timestamp;

use super::ImageId;
use super::peers::KnownCopies;
use super::usage::ImageIndex;

/// The annotation of workloads and namespaces that says how their images are kept: `always`, `last` or `never`.
pub const KEEP_IMAGES: &str = "kubegc.io/keep-images";

/// Protection of an image that nothing uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It is never removed.
    Always,
    /// It is removed for space, after all others, and not for its age.
    Last,
}

/// Reason for which a workload has no pods although it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// It does not rest.
    Never,
    /// It was scaled to zero, at this time if that is known.
    ScaledToZero(Option<Timestamp>),
    /// It runs again when its time comes.
    BetweenRuns,
    /// It is suspended, and ran at this time if it ever did.
    Suspended(Option<Timestamp>),
}

/// Returns how the images of a workload are kept: by its own annotation, by that of its namespace, or because it has rested for at
/// most `within_milliseconds`. An annotation that is not understood keeps them last, like the workload of somebody who wanted to keep them.
#[must_use]
pub fn need(
    annotation: Option<&str>,
    of_namespace: Option<&str>,
    rest: Rest,
    now: Timestamp,
    within_milliseconds: i64,
) -> Option<Need> {
    let is_recent = |at: Timestamp| now.since(at) <= within_milliseconds;
    let by_rule = match rest {
        Rest::Never => false,
        Rest::BetweenRuns => true,
        // Whoever scaled it does not show in every version of the object: when in doubt it was a moment ago.
        Rest::ScaledToZero(at) => at.is_none_or(is_recent),
        Rest::Suspended(at) => at.is_some_and(is_recent),
    };
    match annotation.or(of_namespace).map(str::trim) {
        Some("always" | "true") => Some(Need::Always),
        Some("never" | "false") => None,
        Some(_) => Some(Need::Last),
        None => by_rule.then_some(Need::Last),
    }
}

/// References of images that are kept although nothing uses them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Those that are never removed.
    pub always: BTreeSet<Arc<str>>,
    /// Those that are removed after all others.
    pub last: BTreeSet<Arc<str>>,
}

/// The listed images that are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NeededImages {
    /// Those that are never removed.
    pub always: BTreeSet<ImageId>,
    /// Those that are removed after all others.
    pub last: BTreeSet<ImageId>,
    /// Copies on other nodes, of images that were asked about.
    pub copies: KnownCopies,
}

impl Needs {
    /// Adds what a workload names.
    pub fn add<'a>(&mut self, need: Need, references: impl IntoIterator<Item = &'a str>) {
        let list = match need {
            Need::Always => &mut self.always,
            Need::Last => &mut self.last,
        };
        list.extend(references.into_iter().map(Arc::from));
    }

    /// Returns the images that the references mean.
    #[must_use]
    pub fn resolve(&self, index: &ImageIndex<'_>) -> NeededImages {
        let found = |references: &BTreeSet<Arc<str>>| {
            references.iter().flat_map(|reference| index.resolve(reference)).collect()
        };
        NeededImages { always: found(&self.always), last: found(&self.last), copies: KnownCopies::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{id, image};
    use super::*;

    const DAY: i64 = 86_400_000;

    #[test]
    fn annotations_come_before_rules_and_the_nearest_counts() {
        let (now, within) = (Timestamp(100 * DAY), 7 * DAY);
        let at = |days: i64| Some(Timestamp((100 - days) * DAY));
        for (annotation, of_namespace, rest, expected) in [
            (None, None, Rest::Never, None),
            (None, None, Rest::BetweenRuns, Some(Need::Last)),
            (None, None, Rest::ScaledToZero(at(7)), Some(Need::Last)),
            (None, None, Rest::ScaledToZero(at(8)), None),
            (None, None, Rest::ScaledToZero(None), Some(Need::Last)),
            (None, None, Rest::Suspended(at(1)), Some(Need::Last)),
            (None, None, Rest::Suspended(at(8)), None),
            (None, None, Rest::Suspended(None), None),
            (Some("always"), None, Rest::Never, Some(Need::Always)),
            (Some(" true "), Some("never"), Rest::Never, Some(Need::Always)),
            (Some("never"), Some("always"), Rest::BetweenRuns, None),
            (Some("false"), None, Rest::ScaledToZero(at(1)), None),
            (None, Some("always"), Rest::Never, Some(Need::Always)),
            (None, Some("last"), Rest::ScaledToZero(at(90)), Some(Need::Last)),
            (Some("yes please"), None, Rest::Never, Some(Need::Last)),
        ] {
            let found = need(annotation, of_namespace, rest, now, within);
            assert_eq!(found, expected, "{annotation:?} {of_namespace:?} {rest:?}");
        }
    }

    #[test]
    fn references_mean_images_in_every_spelling() {
        let mut images = [image(1, 1), image(2, 1), image(3, 1)];
        images[0].repo_tags = ["docker.io/library/nginx:1".into()].into();
        let mut needs = Needs::default();
        needs.add(Need::Always, ["nginx:1", "gone:1"]);
        needs.add(Need::Last, ["registry.example/image-3:v1"]);
        let expected =
            NeededImages { always: [id(1)].into(), last: [id(3)].into(), ..NeededImages::default() };
        assert_eq!(needs.resolve(&ImageIndex::new(&images)), expected);
    }
}
