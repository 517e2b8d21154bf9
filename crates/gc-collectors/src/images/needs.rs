//! Images that workloads will need although none of their pods is on the node: between two runs of a CronJob, while a workload is
//! scaled to zero, or because an annotation says so.

use std::collections::BTreeSet;
use std::sync::Arc;

use gc_types::Timestamp;

use super::ImageId;
use super::peers::KnownCopies;
use super::usage::ImageIndex;

/// Annotation of workloads and namespaces that sets how their images are kept: `always`, `last` or `never`.
pub const KEEP_IMAGES: &str = "kubegc.io/keep-images";

/// Protection of an image that nothing uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Never removed.
    Always,
    /// Removed for space after all others, and not because of its age.
    Last,
}

/// Reason why a workload has no pods although it will need its images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// The workload has pods.
    Never,
    /// Scaled to zero, at this time if that is known.
    ScaledToZero(Option<Timestamp>),
    /// Runs again at its next scheduled time.
    BetweenRuns,
    /// Suspended; its last run was at this time, if any.
    Suspended(Option<Timestamp>),
}

/// Returns how the images of a workload are kept: by its own annotation, by that of its namespace, or because it has had no pods
/// for at most `within_milliseconds`. An invalid annotation means `last`, because its author wanted to keep the images.
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
        // Not every version of the object shows when it was scaled; if unknown, assume just now.
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

/// References to images that are kept although nothing uses them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Images that are never removed.
    pub always: BTreeSet<Arc<str>>,
    /// Images that are removed after all others.
    pub last: BTreeSet<Arc<str>>,
}

/// The listed images that are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NeededImages {
    /// Images that are never removed.
    pub always: BTreeSet<ImageId>,
    /// Images that are removed after all others.
    pub last: BTreeSet<ImageId>,
    /// Known copies on other nodes.
    pub copies: KnownCopies,
}

impl Needs {
    /// Adds the references of a workload.
    pub fn add<'a>(&mut self, need: Need, references: impl IntoIterator<Item = &'a str>) {
        let list = match need {
            Need::Always => &mut self.always,
            Need::Last => &mut self.last,
        };
        list.extend(references.into_iter().map(Arc::from));
    }

    /// Returns the images that the references resolve to.
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
