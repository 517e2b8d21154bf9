//! Ordered removals, with their reasons (spec `node-gc.md`, sections 5 and 6).

use std::borrow::Cow;
use std::iter::Peekable;
use std::sync::Arc;

use gc_types::{GoDuration, UnixNanoseconds};

use super::history::{ImageHistory, ImageRecord};
use super::layers::LayerUsers;
use super::needs::KEEP_IMAGES;
use super::patterns::ImagePatterns;
use super::peers::Copies;
use super::rules::{Keep, ReferenceRules};
use super::usage::Usage;
use super::{Image, ImageId};

/// Minimum age of an image before its removal, and maximum time without use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgePolicy {
    /// Age since first sight below which images are never removed. Reaching it exactly is enough.
    pub minimum_age: GoDuration,
    /// Idle time above which (strictly) images are removed regardless of disk usage; `None` disables this.
    pub maximum_age: Option<GoDuration>,
}

/// Input of a plan: one complete observation.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// All images that the runtime lists.
    pub images: &'a [Image],
    /// First sight and last use of each, including this observation.
    pub history: &'a ImageHistory,
    /// Images in use.
    pub usage: &'a Usage,
    /// Images that the operator protects.
    pub protection: &'a ImagePatterns,
    /// Rules by reference: images that are removed last, and images that are unwanted.
    pub rules: &'a ReferenceRules,
}

/// Reason why an image is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalReason {
    /// Has been idle for longer than the maximum age.
    Age,
    /// The disk is too full, and this image has been idle longest.
    Space,
    /// A policy lists it among the images to remove.
    Unwanted,
}

/// Amount of disk space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes.
    pub bytes: u64,
    /// Inodes.
    pub inodes: u64,
}

impl Space {
    /// Returns the sum with another amount.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            inodes: self.inodes.saturating_add(other.inodes),
        }
    }
}

/// One image to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// ID of the image.
    pub id: ImageId,
    /// Display name of the image.
    pub name: Arc<str>,
    /// Runtime handler whose copy it is; sent with the removal.
    pub runtime_handler: Arc<str>,
    /// Reason.
    pub reason: RemovalReason,
    /// Size of the image as the runtime reports it.
    pub size_bytes: u64,
    /// Size that its removal is expected to free: layers shared with an image that is kept (or removed later) do not count.
    pub expected_freed_bytes: u64,
    /// Space that its removal frees after those before it, if the runtime reports the sizes of layers.
    pub freed_space: Option<Space>,
    /// Time of first sight.
    pub first_seen: UnixNanoseconds,
    /// Time of last use, if any.
    pub last_used: Option<UnixNanoseconds>,
    /// True if it cannot be pulled again, because it has no repository digest (imported or built here).
    pub irreplaceable: bool,
}

/// Reason why an image is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeepReason {
    /// A container or a bound pod uses it.
    InUse,
    /// The runtime pins it.
    Pinned,
    /// This pattern of the operator protects it.
    Protected(Arc<str>),
    /// No other node has a copy of it.
    LastCopy,
    /// Has been here for less than the minimum age.
    TooYoung,
    /// A container was seen using it since the pass began.
    UsedDuringPass,
    /// Has not been observed completely yet.
    Unknown,
}

/// Images to remove, in order, and those to keep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImagePlan {
    /// Unwanted images, then those that have been idle for too long; all of these are removed.
    pub by_age: Vec<Removal>,
    /// Images that can be removed when space is needed, in the order of removal: never used first, then longest idle, and at the
    /// end those that workloads will need.
    pub by_space: Vec<Removal>,
    /// Kept images, with the reason.
    pub kept: Vec<(ImageId, KeepReason)>,
}

/// Reason why no plan can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A container does not name its image, and might use any.
    #[error(
        "container {container} does not name its image, so that any image may be in use; nothing is removed"
    )]
    UnreadableContainer {
        /// The first such container.
        container: Arc<str>,
    },
}

/// Plans one pass that began at `pass_start`.
pub fn plan(
    snapshot: Snapshot<'_>,
    policy: AgePolicy,
    pass_start: UnixNanoseconds,
) -> Result<ImagePlan, PlanError> {
    if let Some(container) = snapshot.usage.unreadable.first() {
        return Err(PlanError::UnreadableContainer { container: container.clone() });
    }
    let images = each_once(snapshot.images);
    let mut in_use = snapshot.usage.in_use.iter().map(|id| (id, ())).peekable();
    let mut history = snapshot.history.iter().peekable();
    let mut plan = ImagePlan::default();
    let mut eligible: Vec<(&Image, ImageRecord)> = Vec::new();
    for image in images.iter().map(|image| &**image) {
        let (is_used, record) = (of(&image.id, &mut in_use).is_some(), of(&image.id, &mut history));
        match verdict(image, is_used, record, &snapshot, policy, pass_start) {
            Ok(record) => eligible.push((image, record)),
            Err(reason) => plan.kept.push((image.id.clone(), reason)),
        }
    }
    eligible.sort_by(|(a, record_a), (b, record_b)| {
        let key = |record: &ImageRecord| (record.last_used(), record.first_seen());
        key(record_a).cmp(&key(record_b)).then(b.size_bytes.cmp(&a.size_bytes)).then(a.id.cmp(&b.id))
    });
    let too_idle =
        |record: &ImageRecord| policy.maximum_age.is_some_and(|maximum| record.idle(pass_start) > maximum);
    let is_needed = |image: &Image| match snapshot.rules.keep(image) {
        Some((Keep::Last, _)) => true,
        Some((Keep::Never, _)) => false,
        Some((Keep::Always, _)) | None => snapshot.usage.needed.last.contains(&image.id),
    };
    let is_needed = |image: &Image| {
        snapshot.usage.needed.copies.get(&image.id) == Some(&Copies::Unknown) || is_needed(image)
    };
    let (unwanted, eligible): (Vec<_>, Vec<_>) =
        eligible.into_iter().partition(|(image, _)| snapshot.rules.is_unwanted(image));
    let (by_age, mut by_space): (Vec<_>, Vec<_>) =
        eligible.into_iter().partition(|(image, record)| too_idle(record) && !is_needed(image));
    by_space.sort_by_key(|(image, _)| is_needed(image));
    let mut layers = LayerUsers::of(images.iter().map(|image| &**image));
    for (list, reason) in
        [(unwanted, RemovalReason::Unwanted), (by_age, RemovalReason::Age), (by_space, RemovalReason::Space)]
    {
        let out = if reason == RemovalReason::Space { &mut plan.by_space } else { &mut plan.by_age };
        out.extend(list.into_iter().map(|(image, record)| removal(image, record, reason, &mut layers)));
    }
    Ok(plan)
}

/// Returns images by identifier. If one is listed twice, for two runtime handlers, the later entry counts (T11), but with the names
/// of both, and pinned if either is.
fn each_once(images: &[Image]) -> Vec<Cow<'_, Image>> {
    // Most comparisons end within the prefix, which is stored here.
    let beginning =
        |image: &Image| image.id.as_str().as_bytes().first_chunk().copied().map_or(0, u128::from_be_bytes);
    let mut sorted: Vec<(u128, &Image)> = images.iter().map(|image| (beginning(image), image)).collect();
    sorted.sort_by(|(a, one), (b, other)| a.cmp(b).then_with(|| one.id.cmp(&other.id)));
    let mut once: Vec<Cow<'_, Image>> = Vec::with_capacity(sorted.len());
    for (_, image) in sorted {
        match once.last_mut().filter(|last| last.id == image.id) {
            Some(last) => *last = Cow::Owned(merged(last, image)),
            None => once.push(Cow::Borrowed(image)),
        }
    }
    once
}

fn merged(earlier: &Image, later: &Image) -> Image {
    let with = |names: &[Arc<str>], others: &[Arc<str>]| {
        let others = others.iter().filter(|name| !names.contains(name));
        names.iter().chain(others).cloned().collect()
    };
    Image {
        repo_tags: with(&later.repo_tags, &earlier.repo_tags),
        repo_digests: with(&later.repo_digests, &earlier.repo_digests),
        pinned: earlier.pinned || later.pinned,
        ..later.clone()
    }
}

/// Returns the entry of a sorted table for an identifier. Call it with ascending identifiers only, each once.
fn of<'a, T>(id: &ImageId, table: &mut Peekable<impl Iterator<Item = (&'a ImageId, T)>>) -> Option<T> {
    while table.next_if(|(other, _)| *other < id).is_some() {}
    table.next_if(|(other, _)| *other == id).map(|(_, found)| found)
}

/// Returns the reason why an image must be kept as far as is known now, or else its record. Checked again right before removal.
pub fn keep_reason(
    image: &Image,
    snapshot: &Snapshot<'_>,
    policy: AgePolicy,
    pass_start: UnixNanoseconds,
) -> Result<ImageRecord, KeepReason> {
    let (is_used, record) = (snapshot.usage.in_use.contains(&image.id), snapshot.history.get(&image.id));
    verdict(image, is_used, record, snapshot, policy, pass_start)
}

fn verdict(
    image: &Image,
    is_used: bool,
    record: Option<&ImageRecord>,
    snapshot: &Snapshot<'_>,
    policy: AgePolicy,
    pass_start: UnixNanoseconds,
) -> Result<ImageRecord, KeepReason> {
    if is_used {
        return Err(KeepReason::InUse);
    }
    if image.pinned {
        return Err(KeepReason::Pinned);
    }
    if let Some(pattern) = snapshot.protection.matching(image) {
        return Err(KeepReason::Protected(pattern.clone()));
    }
    if let Some((Keep::Always, pattern)) = snapshot.rules.keep(image) {
        return Err(KeepReason::Protected(pattern.clone()));
    }
    if snapshot.usage.needed.always.contains(&image.id) {
        return Err(KeepReason::Protected(KEEP_IMAGES.into()));
    }
    // An unwanted image is unwanted on every node.
    let is_last_copy = snapshot.usage.needed.copies.get(&image.id) == Some(&Copies::Last);
    if is_last_copy && !snapshot.rules.is_unwanted(image) {
        return Err(KeepReason::LastCopy);
    }
    let record = record.ok_or(KeepReason::Unknown)?;
    if record.last_used().is_some_and(|used| used >= pass_start) {
        return Err(KeepReason::UsedDuringPass);
    }
    if record.age(pass_start) < policy.minimum_age {
        return Err(KeepReason::TooYoung);
    }
    Ok(*record)
}

fn removal(image: &Image, record: ImageRecord, reason: RemovalReason, layers: &mut LayerUsers) -> Removal {
    Removal {
        id: image.id.clone(),
        name: image.display_name().clone(),
        runtime_handler: image.runtime_handler.clone(),
        reason,
        size_bytes: image.size_bytes,
        expected_freed_bytes: layers.take(image),
        freed_space: None,
        first_seen: record.first_seen(),
        last_used: record.last_used(),
        irreplaceable: !image.can_be_pulled_again(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{id, image, layer};
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const MINUTE: i64 = 60_000_000_000;

    struct World {
        images: Vec<Image>,
        history: ImageHistory,
        usage: Usage,
        protection: ImagePatterns,
        rules: ReferenceRules,
        policy: AgePolicy,
    }

    impl World {
        /// Creates images with (number, size), observed in use at the given times in order.
        fn new(sizes: &[(u64, u64)]) -> Self {
            Self {
                images: sizes.iter().map(|&(number, size)| image(number, size)).collect(),
                history: ImageHistory::default(),
                usage: Usage::default(),
                protection: ImagePatterns::default(),
                rules: ReferenceRules::default(),
                policy: AgePolicy { minimum_age: GoDuration::ZERO, maximum_age: None },
            }
        }

        fn observe(mut self, at: i64, used: &[u64]) -> Self {
            self.usage.in_use = used.iter().map(|&n| id(n)).collect();
            self.history.observe(&self.images, &self.usage.in_use, UnixNanoseconds(at), UnixNanoseconds(at));
            self
        }

        fn plan(&self, at: i64) -> ImagePlan {
            let snapshot = Snapshot {
                images: &self.images,
                history: &self.history,
                usage: &self.usage,
                protection: &self.protection,
                rules: &self.rules,
            };
            plan(snapshot, self.policy, UnixNanoseconds(at)).expect("readable")
        }

        fn order(&self, at: i64) -> (Vec<ImageId>, Vec<ImageId>) {
            let plan = self.plan(at);
            let ids = |list: &[Removal]| list.iter().map(|r| r.id.clone()).collect();
            (ids(&plan.by_age), ids(&plan.by_space))
        }
    }

    /// T45 to T51: which images are eligible, and in which order.
    #[test]
    fn never_used_images_come_first_then_the_longest_idle() {
        let world = World::new(&[(0, 1024), (1, 2048)]).observe(0, &[]);
        assert_eq!(world.order(9).1, [id(1), id(0)], "T47: of two equals, the larger comes first");
        let world = World::new(&[(0, 1024), (1, 2048)]).observe(0, &[1]);
        assert_eq!(world.plan(9).kept, [(id(1), KeepReason::InUse)], "T48");
        assert_eq!(world.order(9).1, [id(0)], "T48");
        let world = World::new(&[(0, 1), (1, 2)]).observe(0, &[0]).observe(5, &[1]).observe(6, &[]);
        assert_eq!(world.order(9).1, [id(0), id(1)], "T49");
        let mut world = World::new(&[(0, 1024)]).observe(0, &[0]);
        world.images.push(image(1, 2048));
        let world = world.observe(5, &[]);
        assert_eq!(world.order(9).1, [id(1), id(0)], "T50: never used sorts before used");
        let mut world = World::new(&[(1, 1)]).observe(0, &[]);
        world.images.push(image(0, 9));
        let world = world.observe(5, &[]);
        assert_eq!(world.order(9).1, [id(1), id(0)], "T51");
    }

    /// Images that workloads will need are removed after all others, and not because of their age; those that are always kept stay.
    #[test]
    fn needed_images_go_last() {
        let mut world = World::new(&[(1, 1), (2, 9), (3, 1), (4, 1)]).observe(0, &[]).observe(5, &[4]);
        world.usage.in_use.clear();
        world.usage.needed.last = [id(2)].into();
        world.usage.needed.always = [id(3)].into();
        assert_eq!(world.order(10), (vec![], vec![id(1), id(4), id(2)]));
        let kept = world.plan(10).kept;
        assert_eq!(kept, [(id(3), KeepReason::Protected(KEEP_IMAGES.into()))]);
        world.policy.maximum_age = Some(GoDuration(1));
        assert_eq!(world.order(10), (vec![id(1), id(4)], vec![id(2)]));
    }

    /// The last copy stays; an image whose copies are unknown is removed last, and not because of its age.
    #[test]
    fn the_last_copy_among_peers_stays() {
        let mut world = World::new(&[(1, 1), (2, 1), (3, 1), (4, 1)]).observe(0, &[]);
        let copies = [(id(1), Copies::Unknown), (id(2), Copies::Last), (id(3), Copies::Elsewhere)];
        world.usage.needed.copies = copies.into();
        assert_eq!(world.order(10), (vec![], vec![id(3), id(4), id(1)]));
        assert_eq!(world.plan(10).kept, [(id(2), KeepReason::LastCopy)]);
        world.policy.maximum_age = Some(GoDuration(1));
        assert_eq!(world.order(10), (vec![id(3), id(4)], vec![id(1)]));
        world.rules.unwanted = ImagePatterns::new(["registry.example/image-2"]).expect("valid");
        assert_eq!(world.order(10).0[0], id(2), "what is unwanted is so on every node");
    }

    /// Unwanted images are removed immediately and first, unless something keeps them; rules by reference take precedence over the
    /// needs of workloads.
    #[test]
    fn unwanted_images_go_first_and_rules_count_by_reference() {
        let mut world = World::new(&[(1, 1), (2, 9), (3, 1), (4, 1), (5, 1), (6, 1)]).observe(0, &[6]);
        world.usage.needed.last = [id(2), id(3)].into();
        world.images[4].pinned = true;
        let name = |n: u64| format!("registry.example/image-{n}");
        let rule = |n: u64, keep: Keep| crate::images::rules::KeepRule::new(&name(n), keep).expect("valid");
        world.rules.keep = vec![rule(1, Keep::Last), rule(2, Keep::Never), rule(4, Keep::Always)];
        assert_eq!(world.order(10), (vec![], vec![id(2), id(1), id(3)]));
        let unwanted = [1, 3, 4, 5, 6].map(name);
        world.rules.unwanted = ImagePatterns::new(unwanted.iter().map(String::as_str)).expect("valid");
        let plan = world.plan(10);
        let reasons: Vec<_> = plan.by_age.iter().map(|one| (one.id.clone(), one.reason)).collect();
        assert_eq!(reasons, [1, 3].map(|n| (id(n), RemovalReason::Unwanted)));
        assert_eq!(world.order(10).1, [id(2)]);
        let always = KeepReason::Protected("registry.example/image-4".into());
        assert_eq!(plan.kept, [(id(4), always), (id(5), KeepReason::Pinned), (id(6), KeepReason::InUse)]);
        world.policy.maximum_age = Some(GoDuration(1));
        assert_eq!(world.order(10).0, [id(1), id(3), id(2)], "unwanted, then too old");
        world.policy.minimum_age = GoDuration(11);
        assert_eq!(world.order(10), (vec![], vec![]), "a young one may be pulled for a pod at this moment");
    }

    /// T45, T46, T116 and T122: pinned images stay, whatever their age.
    #[test]
    fn pinned_used_and_protected_images_stay() {
        let mut world = World::new(&[(0, 1), (1, 1), (2, 1), (3, 1)]);
        world.policy.maximum_age = Some(GoDuration(MINUTE));
        world.images[0].pinned = true;
        world.protection = ImagePatterns::new(["registry.example/image-1"]).expect("valid");
        let world = world.observe(0, &[2]);
        assert_eq!(
            world.plan(2 * MINUTE).kept,
            [
                (id(0), KeepReason::Pinned),
                (id(1), KeepReason::Protected("registry.example/image-1".into())),
                (id(2), KeepReason::InUse),
            ]
        );
        assert_eq!(world.order(2 * MINUTE), (vec![id(3)], vec![]));
    }

    /// T11, and why the agent differs: two runtime handlers have a copy each, and one of them is pinned or protected.
    #[test]
    fn an_image_that_one_of_two_handlers_pins_stays() {
        for pinned in [[true, false], [false, true]] {
            let mut world = World::new(&[(0, 1), (0, 2), (1, 3), (1, 4)]);
            for (image, pinned) in world.images.iter_mut().zip(pinned) {
                image.pinned = pinned;
            }
            world.images[2].repo_tags = vec!["keep/me:v1".into()];
            world.protection = ImagePatterns::new(["keep/me"]).expect("valid");
            let world = world.observe(0, &[]);
            let kept = [(id(0), KeepReason::Pinned), (id(1), KeepReason::Protected("keep/me".into()))];
            assert_eq!(world.plan(9).kept, kept);
        }
    }

    /// T29, T121: a young image stays; reaching the minimum age exactly is enough.
    #[test]
    fn a_young_image_stays() {
        let mut world = World::new(&[(0, 1024)]).observe(0, &[]);
        world.policy.minimum_age = GoDuration(MINUTE);
        assert_eq!(world.plan(MINUTE - 1).kept, [(id(0), KeepReason::TooYoung)]);
        assert_eq!(world.order(MINUTE).1, [id(0)]);
        assert_eq!(
            world.plan(-5).kept,
            [(id(0), KeepReason::TooYoung)],
            "T15: a clock set back makes nothing old"
        );
    }

    /// T111 to T114 and T119: age is counted from the last use, else from the first sight.
    #[test]
    fn an_idle_image_is_removed_by_age() {
        for (case, maximum, used_at, now, by_age) in [
            ("T111", None, 0, 100 * MINUTE, false),
            ("T112", Some(MINUTE), 0, MINUTE + 1, true),
            ("T113", Some(MINUTE), 0, MINUTE, false),
            ("used later", Some(MINUTE), MINUTE, 2 * MINUTE, false),
            ("used later, long idle", Some(MINUTE), MINUTE, 2 * MINUTE + 1, true),
        ] {
            let mut world =
                World::new(&[(0, 1)]).observe(0, &[]).observe(used_at, &[0]).observe(used_at, &[]);
            world.policy.maximum_age = maximum.map(GoDuration);
            assert_eq!(!world.order(now).0.is_empty(), by_age, "{case}");
        }
        let mut world = World::new(&[(0, 1)]).observe(10 * MINUTE, &[]);
        world.policy.maximum_age = Some(GoDuration(MINUTE));
        assert_eq!(
            world.order(10 * MINUTE + 1_000),
            (vec![], vec![id(0)]),
            "T114: never used, pulled just now"
        );
    }

    /// An image that was used after the pass began stays (section 5.4, step 1).
    #[test]
    fn an_image_used_during_the_pass_stays() {
        let world = World::new(&[(0, 1)]).observe(50, &[0]).observe(50, &[]);
        assert_eq!(world.plan(50).kept, [(id(0), KeepReason::UsedDuringPass)]);
        assert_eq!(world.order(51).1, [id(0)]);
    }

    /// T27: one unreadable container stops all removals.
    #[test]
    fn an_unreadable_container_stops_the_plan() {
        let mut world = World::new(&[(0, 1)]).observe(0, &[]);
        world.usage.unreadable = vec!["c9".into()];
        let snapshot = Snapshot {
            images: &world.images,
            history: &world.history,
            usage: &world.usage,
            protection: &world.protection,
            rules: &world.rules,
        };
        let error = PlanError::UnreadableContainer { container: "c9".into() };
        assert_eq!(plan(snapshot, world.policy, UnixNanoseconds(9)), Err(error));
    }

    /// T58: three images of 1000 share nine of ten layers; the base is freed only with the last.
    #[test]
    fn shared_layers_are_freed_with_the_last_image() {
        let mut world = World::new(&[(1, 1000), (2, 1000), (3, 1000)]);
        for (number, image) in (1..).zip(&mut world.images) {
            image.layers = (10..19).chain([number]).map(layer).collect();
        }
        let world = world.observe(0, &[]);
        let plan = world.plan(9);
        let freed: Vec<_> = plan.by_space.iter().map(|r| r.expected_freed_bytes).collect();
        assert_eq!(freed, [100, 100, 1000]);
    }

    #[test]
    fn an_image_without_a_digest_is_irreplaceable() {
        let mut world = World::new(&[(1, 1), (2, 2)]);
        world.images[0].repo_digests.clear();
        let plan = world.observe(0, &[]).plan(9);
        assert_eq!(plan.by_space.iter().map(|r| r.irreplaceable).collect::<Vec<_>>(), [false, true]);
    }

    proptest! {
        /// A plan never contains an image that is in use, pinned, protected or too young, and contains every other one exactly
        /// once, in order.
        #[test]
        fn a_plan_keeps_what_must_stay(
            specs in prop::collection::vec((0_i64..100, prop::option::of(0_i64..100), any::<[bool; 3]>()), 0..30),
            minimum in 0_i64..60, maximum in prop::option::of(1_i64..60), now in 0_i64..150, unwanted in any::<bool>(),
        ) {
            let mut world = World::new(&[]);
            let mut keep = BTreeSet::new();
            let mut saved = Vec::new();
            for (number, &(seen, used, [in_use, pinned, protected])) in (0..).zip(&specs) {
                let mut one = image(number, number);
                one.pinned = pinned;
                if protected { one.repo_tags.push("keep/me:v1".into()); }
                if in_use { world.usage.in_use.insert(id(number)); }
                let mut record = ImageRecord::new(UnixNanoseconds(seen));
                if let Some(used) = used {
                    record = serde_json::from_value(serde_json::json!({"firstSeen": seen, "lastUsed": used})).unwrap_or(record);
                }
                if in_use || pinned || protected || (now - seen).max(0) < minimum || used.is_some_and(|u| u >= now) {
                    keep.insert(id(number));
                }
                saved.push((id(number), record));
                world.images.push(one);
            }
            world.history = ImageHistory::restore(saved, UnixNanoseconds(i64::MAX));
            world.protection = ImagePatterns::new(["keep/me"]).expect("valid");
            world.policy = AgePolicy { minimum_age: GoDuration(minimum), maximum_age: maximum.map(GoDuration) };
            if unwanted {
                world.rules.unwanted = ImagePatterns::new(["*/image-1*"]).expect("valid");
            }
            let plan = world.plan(now);
            let kept: BTreeSet<_> = plan.kept.iter().map(|(id, _)| id.clone()).collect();
            let going: Vec<_> = plan.by_age.iter().chain(&plan.by_space).map(|r| r.id.clone()).collect();
            prop_assert_eq!(&kept, &keep);
            prop_assert_eq!(going.len() + kept.len(), specs.len());
            prop_assert!(going.iter().all(|id| !kept.contains(id)));
            let keys: Vec<_> = plan.by_space.iter().map(|r| (r.last_used, r.first_seen)).collect();
            prop_assert!(keys.is_sorted());
            let (unwanted_ones, too_old) = plan.by_age.split_at(plan.by_age.iter().take_while(|r| r.reason == RemovalReason::Unwanted).count());
            prop_assert!(unwanted || unwanted_ones.is_empty());
            prop_assert!(unwanted_ones.iter().all(|r| r.name.contains("/image-1")));
            for r in too_old {
                let idle = now - r.last_used.map_or(r.first_seen.0, |u| u.0.max(r.first_seen.0));
                prop_assert!(maximum.is_some_and(|m| idle > m));
            }
        }
    }
}
