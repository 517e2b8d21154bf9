//! Compares the plan and the use of images with reference implementations written for readability: every rule is a loop over all
//! images.

use std::collections::{BTreeMap, BTreeSet};

use gc_types::{GoDuration, UnixNanoseconds};
use proptest::prelude::*;

use super::history::{ImageHistory, ImageRecord};
use super::patterns::ImagePatterns;
use super::plan::{AgePolicy, ImagePlan, KeepReason, Removal, RemovalReason, Snapshot, plan};
use super::rules::ReferenceRules;
use super::testing::{id, image, layer};
use super::usage::{ContainerImages, ImageIndex, Usage, usage};
use super::{Image, ImageId};

const NOW: UnixNanoseconds = UnixNanoseconds(100);

/// Applies the rules of sections 4 and 5, literally.
fn keep(image: &Image, snapshot: &Snapshot<'_>, policy: AgePolicy) -> Result<ImageRecord, KeepReason> {
    match snapshot.history.get(&image.id) {
        _ if snapshot.usage.in_use.contains(&image.id) => Err(KeepReason::InUse),
        _ if image.pinned => Err(KeepReason::Pinned),
        _ if snapshot.protection.matching(image).is_some() => Err(KeepReason::Protected("keep/*".into())),
        None => Err(KeepReason::Unknown),
        Some(record) if record.last_used() >= Some(NOW) => Err(KeepReason::UsedDuringPass),
        Some(record) if record.age(NOW) < policy.minimum_age => Err(KeepReason::TooYoung),
        Some(record) => Ok(*record),
    }
}

fn reference(snapshot: &Snapshot<'_>, policy: AgePolicy) -> ImagePlan {
    let mut once: BTreeMap<&ImageId, Image> = BTreeMap::new();
    for image in snapshot.images {
        let mut merged = image.clone();
        if let Some(earlier) = once.remove(&image.id) {
            merged.pinned |= earlier.pinned;
            for (names, others) in
                [(&mut merged.repo_tags, earlier.repo_tags), (&mut merged.repo_digests, earlier.repo_digests)]
            {
                let others: Vec<_> = others.into_iter().filter(|name| !names.contains(name)).collect();
                names.extend(others);
            }
        }
        once.insert(&image.id, merged);
    }
    let mut plan = ImagePlan::default();
    let mut going = Vec::new();
    for image in once.values() {
        match keep(image, snapshot, policy) {
            Ok(record) => {
                let too_old = policy.maximum_age.is_some_and(|maximum| record.idle(NOW) > maximum);
                let order = (!too_old, record.last_used(), record.first_seen(), u64::MAX - image.size_bytes);
                going.push((order, &image.id, image, record));
            }
            Err(why) => plan.kept.push((image.id.clone(), why)),
        }
    }
    going.sort_by_key(|(order, id, ..)| (*order, *id));
    let mut left: Vec<&Image> = once.values().collect();
    for ((by_space, ..), _, image, record) in going {
        left.retain(|other| other.id != image.id);
        let last = image.layers.iter().filter(|layer| !left.iter().any(|other| other.layers.contains(layer)));
        let freed = match image.layers.len() as u64 {
            0 => image.size_bytes,
            layers => image.size_bytes * last.count() as u64 / layers,
        };
        let (reason, list) = if by_space {
            (RemovalReason::Space, &mut plan.by_space)
        } else {
            (RemovalReason::Age, &mut plan.by_age)
        };
        list.push(Removal {
            id: image.id.clone(),
            name: image.repo_tags.first().map_or(image.id.as_str(), |tag| tag).into(),
            runtime_handler: "".into(),
            reason,
            size_bytes: image.size_bytes,
            expected_freed_bytes: freed,
            freed_space: None,
            first_seen: record.first_seen(),
            last_used: record.last_used(),
            irreplaceable: image.repo_digests.is_empty(),
        });
    }
    plan
}

/// Reports an image as in use if any reference is its identifier, its digits, one of its tags, or ends in one of its digests.
fn reference_usage(images: &[Image], containers: &[ContainerImages]) -> Usage {
    let digits = |text: &str| text.rsplit(':').next().unwrap_or_default().to_ascii_lowercase();
    let mut found = Usage::default();
    for container in containers {
        if container.references.is_empty() {
            found.unreadable.push(container.container.clone());
        }
        for reference in container.references.iter().chain(&container.volumes) {
            let named = |image: &&Image| {
                image.repo_tags.contains(reference)
                    || digits(reference).len() == 64
                        && (digits(reference) == image.id.digits().to_ascii_lowercase()
                            || image.repo_digests.iter().any(|digest| digits(digest) == digits(reference)))
            };
            let used: BTreeSet<ImageId> = images.iter().filter(named).map(|image| image.id.clone()).collect();
            if used.is_empty() {
                found.unresolved.insert(reference.clone());
            }
            found.in_use.extend(used);
        }
    }
    found
}

fn record(seen: i64, used: Option<i64>) -> ImageRecord {
    let record = serde_json::json!({"firstSeen": seen, "lastUsed": used});
    serde_json::from_value(record).expect("a record")
}

prop_compose! {
    fn images()(specs in prop::collection::vec(
        (0_u64..12, 0_u64..4, prop::collection::btree_set(0_u64..6, 0..4), any::<[bool; 3]>(), any::<bool>()), 0..20,
    )) -> Vec<Image> {
        let make = |(number, size, layers, [pinned, protected, local], bare): (u64, u64, BTreeSet<u64>, [bool; 3], bool)| {
            let mut one = image(number, size * 100);
            one.layers = layers.into_iter().map(layer).collect();
            one.pinned = pinned && number % 2 == 0;
            if protected { one.repo_tags.push("keep/me:v1".into()); }
            if local { one.repo_digests.clear(); }
            if bare { one.id = ImageId::new(one.id.digits()).expect("full"); }
            one
        };
        specs.into_iter().map(make).collect()
    }
}

fn reference_to(number: u64, spelling: u8) -> String {
    let (one, digits) = (image(number, 0), id(number).digits().to_owned());
    match spelling {
        0 => digits.to_uppercase(),
        1 => one.id.to_string(),
        2 => one.repo_tags[0].to_string(),
        3 => one.repo_digests[0].to_string(),
        4 => one.repo_digests[0].replace("registry.example", "mirror.example"),
        5 => format!("{}z", &digits[..63]),
        _ => digits,
    }
}

proptest! {
    #[test]
    fn a_plan_is_that_of_the_rules_as_they_read(
        images in images(),
        records in prop::collection::btree_map(0_u64..12, (0_i64..100, prop::option::of(0_i64..110)), 0..12),
        uses in prop::collection::vec((prop::collection::vec((0_u64..14, 0_u8..7), 1..3), 0_u64..14), 0..6),
        minimum in 0_i64..60, maximum in prop::option::of(1_i64..60),
    ) {
        let containers: Vec<ContainerImages> = uses.iter().map(|(references, volume)| ContainerImages {
            container: "c".into(),
            references: references.iter().map(|&(number, spelling)| reference_to(number, spelling).into()).collect(),
            volumes: vec![reference_to(*volume, 1).into()],
        }).collect();
        let in_use = usage(&ImageIndex::new(&images), &containers, &[]);
        prop_assert_eq!(&in_use, &reference_usage(&images, &containers));

        let saved = records.iter().flat_map(|(&number, &(seen, used))| {
            let bare = ImageId::new(id(number).digits()).expect("full");
            [id(number), bare].map(|id| (id, record(seen, used)))
        });
        let history = ImageHistory::restore(saved, UnixNanoseconds(i64::MAX));
        let protection = ImagePatterns::new(["keep/*"]).expect("valid");
        let snapshot = Snapshot {
            images: &images, history: &history, usage: &in_use, protection: &protection, rules: &ReferenceRules::default(),
        };
        let policy = AgePolicy { minimum_age: GoDuration(minimum), maximum_age: maximum.map(GoDuration) };
        prop_assert_eq!(plan(snapshot, policy, NOW), Ok(reference(&snapshot, policy)));
    }
}
