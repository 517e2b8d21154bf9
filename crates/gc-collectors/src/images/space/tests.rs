use super::super::layers::LayerUsers;
use super::super::testing::{id, image, layer, removal};
use super::super::{Image, LayerId};
use super::*;
use proptest::prelude::*;

fn disk(capacity_bytes: u64, available_bytes: u64) -> Filesystem {
    Filesystem { path: "/images".into(), capacity_bytes, available_bytes, inodes: 0, inodes_free: 0 }
}

fn thresholds(high_percent: u8, low_percent: u8) -> Thresholds {
    Thresholds { high_percent, low_percent }
}

/// T36 to T39, T42, T44, T56, T57 and T156: usage, and the amount to free.
#[test]
fn thresholds_are_compared_as_upstream_does() {
    for (case, capacity, available, high, low, usage, to_free) in [
        ("T36", 1000, 600, 90, 80, 40, 0),
        ("T37", 1000, 50, 90, 80, 95, 150),
        ("T38 below", 1000, 160, 85, 80, 84, 0),
        ("T38", 1000, 159, 85, 80, 85, 41),
        ("T38", 1000, 150, 85, 80, 85, 50),
        ("T38", 1000, 155, 85, 80, 85, 45),
        ("T39", 999, 150, 85, 80, 85, 49),
        ("T42", 1000, 1200, 85, 80, 0, 0),
        ("T44 below", 1000, 10, 100, 80, 99, 0),
        ("T44", 1000, 9, 100, 80, 100, 191),
        ("T56: nothing to free is nothing to do", 1000, 155, 85, 85, 85, 0),
        ("T57", 200_000_000_000_000_000, 30_000_000_000_000_000, 85, 80, 85, 10_000_000_000_000_000),
    ] {
        let filesystem = disk(capacity, available);
        let found = assess(&filesystem, thresholds(high, low)).expect("capacity");
        assert_eq!(found.usage_percent, usage, "{case}: usage");
        let missing = found.goal.map_or(0, |goal| goal.missing_bytes(&filesystem));
        assert_eq!(missing, to_free, "{case}: to free");
    }
}

/// T41 and T59.
#[test]
fn a_capacity_of_zero_is_refused_and_inodes_count() {
    assert_eq!(assess(&disk(0, 0), thresholds(85, 80)), Err(InvalidCapacity { path: "/images".into() }));
    let full_of_files = Filesystem { inodes: 1000, inodes_free: 10, ..disk(1000, 900) };
    let found = assess(&full_of_files, thresholds(85, 80)).expect("capacity");
    let goal = Goal { path: "/images".into(), available_bytes: 0, inodes_free: 200 };
    assert_eq!(found, Assessment { usage_percent: 10, inodes_usage_percent: 99, goal: Some(goal) });
}

/// T54 and T58: measurements decide, and not reported sizes.
#[test]
fn a_run_stops_at_what_is_measured() {
    let goal = Goal { path: "/images".into(), available_bytes: 500, inodes_free: 0 };
    let candidates = (1..=6).map(|n| removal(n, 200)).collect();
    let mut run = SpaceRun::new(candidates, vec![goal], Batches { first: 1, most: 8 });
    let batch = |numbers: &[u64]| Step::Remove(numbers.iter().map(|&n| removal(n, 200)).collect());
    assert_eq!(run.next(&[disk(10_000, 100)]), batch(&[1]), "one shows what an image frees");
    run.report(&removal(1, 200), RemovalOutcome::Yes);
    assert_eq!(run.next(&[disk(10_000, 110)]), batch(&[2]), "a part of what the books say");
    run.report(&removal(2, 200), RemovalOutcome::Failed);
    assert_eq!(run.next(&[disk(10_000, 110)]), batch(&[3]), "what remains is less than two may free");
    run.report(&removal(3, 200), RemovalOutcome::KeptAfterAll);
    assert_eq!(run.next(&[disk(10_000, 110)]), batch(&[4]));
    run.report(&removal(4, 200), RemovalOutcome::Yes);
    assert_eq!(run.next(&[disk(10_000, 500)]), Step::Met, "T54: the fifth is not touched");
    assert_eq!((run.freed_book_bytes(), run.failures()), (400, &[id(2)][..]));
    assert_eq!(run.next(&[disk(10_000, 400)]), batch(&[5]));
    assert_eq!(run.next(&[disk(10_000, 400)]), batch(&[6]));
    assert_eq!(run.next(&[disk(10_000, 400)]), Step::Exhausted);
}

/// Freed space may show only later (btrfs, ZFS, a snapshotter that removes asynchronously); no batch grows until then.
#[test]
fn batches_grow_only_by_what_they_freed() {
    let goal = || vec![Goal { path: "/images".into(), available_bytes: 1_000_000, inodes_free: 0 }];
    let candidates = || (1..=200).map(|n| removal(n, 100)).collect::<Vec<_>>();
    let sizes = |freed: u64| {
        let mut run = SpaceRun::new(candidates(), goal(), Batches { first: 1, most: 64 });
        let (mut available, mut sizes) = (0, Vec::new());
        while let Step::Remove(batch) = run.next(&[disk(2_000_000, available)]) {
            for removal in &batch {
                run.report(removal, RemovalOutcome::Yes);
            }
            available += freed * batch.len() as u64;
            sizes.push(batch.len());
        }
        sizes
    };
    assert_eq!(sizes(0), [1; 200]);
    assert_eq!(sizes(100), [1, 64, 64, 64, 7]);
    // If only inodes are short, a batch has as many images as the last ones have shown to be enough.
    let goal = vec![Goal { path: "/images".into(), available_bytes: 0, inodes_free: 1_000 }];
    let mut run = SpaceRun::new(candidates(), goal, Batches { first: 1, most: 64 });
    let (mut inodes_free, mut sizes) = (0, Vec::new());
    while let Step::Remove(batch) =
        run.next(&[Filesystem { inodes: 10_000, inodes_free, ..disk(1_000, 500) }])
    {
        for removal in &batch {
            run.report(removal, RemovalOutcome::Yes);
        }
        inodes_free += 10 * batch.len() as u64;
        sizes.push(batch.len());
    }
    assert_eq!(sizes.iter().sum::<usize>(), 100, "no more than needed: {sizes:?}");
    assert!(sizes.len() < 12, "{sizes:?}");
}

/// T55 and T133: without candidates the shortage is reported, and every filesystem with a goal counts.
#[test]
fn every_goal_counts() {
    let goals = |wanted: [u64; 2]| -> Vec<Goal> {
        let of = |(path, available_bytes): (&str, u64)| Goal {
            path: path.into(),
            available_bytes,
            inodes_free: 0,
        };
        ["/images", "/more"].into_iter().zip(wanted).map(of).collect()
    };
    let more = Filesystem { path: "/more".into(), ..disk(1000, 100) };
    let batches = Batches { first: 8, most: 8 };
    assert_eq!(
        SpaceRun::new(vec![], goals([500, 0]), batches).next(&[disk(1000, 100), more.clone()]),
        Step::Exhausted
    );
    let mut run = SpaceRun::new(vec![removal(1, 50)], goals([100, 150]), batches);
    assert_eq!(run.next(&[disk(1000, 100), more.clone()]), Step::Remove(vec![removal(1, 50)]));
    let unmeasured = SpaceRun::new(vec![], goals([100, 100]), batches).next(&[disk(1000, 100)]);
    assert_eq!(unmeasured, Step::Exhausted, "what cannot be measured is not met");
    let both = [disk(1000, 100), Filesystem { available_bytes: 150, ..more }];
    assert_eq!(run.next(&both), Step::Met);
}

/// Images that leave layers behind were the only ones that were measured, and the next of them are small, but free all of their
/// layers: six times their reported size. One alone reaches the goal.
#[test]
fn images_with_shared_layers_are_removed_one_by_one_until_a_whole_one_is_measured() {
    let shared = |number: u64, size: u64| Removal { expected_freed_bytes: size / 2, ..removal(number, size) };
    let candidates = vec![shared(1, 100), shared(2, 100), shared(3, 50)];
    let goal = Goal { path: "/images".into(), available_bytes: 700, inodes_free: 0 };
    let mut run = SpaceRun::new(candidates, vec![goal], Batches { first: 1, most: 8 });
    assert_eq!(run.next(&[disk(10_000, 0)]), Step::Remove(vec![shared(1, 100)]));
    run.report(&shared(1, 100), RemovalOutcome::Yes);
    assert_eq!(run.next(&[disk(10_000, 100)]), Step::Remove(vec![shared(2, 100)]));
    run.report(&shared(2, 100), RemovalOutcome::Yes);
    assert_eq!(run.next(&[disk(10_000, 700)]), Step::Met);
}

/// T166.
#[test]
fn bytes_read_as_upstream_prints_them() {
    for (bytes, text) in [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1_048_575, "1024.0 KiB"),
        (1_048_576, "1.0 MiB"),
        (10 << 30, "10.0 GiB"),
        (3 << 40, "3.0 TiB"),
        (5000 << 40, "5000.0 TiB"),
        (5 << 50, "5120.0 TiB"),
    ] {
        assert_eq!(BinaryBytes(bytes).to_string(), text);
    }
}

/// T43: the two parts of the message that tools search for.
#[test]
fn the_shortage_names_usage_and_what_was_freed() {
    let capacity = 10 << 30;
    let text = shortage_message(&disk(capacity, capacity / 20), thresholds(85, 80), 524_288_000);
    assert!(text.contains("(95% of 10.0 GiB used)") && text.contains("(freed 524288000 bytes)"), "{text}");
    let short = Filesystem { inodes: 1000, inodes_free: 90, ..disk(capacity, capacity / 100 * 77) };
    let text = shortage_message(&short, thresholds(85, 80), 5);
    assert!(text.contains("(91% of 1000 inodes used, 24% of 10.0 GiB)"), "{text}");
    assert_eq!(sizes_message(5, 0), "");
    let text = sizes_message(5, 4);
    assert_eq!(text, " By measurement 5 B were freed; the nominal size of these images is 4 B.");
}

proptest! {
    /// A run frees at least its goal, or removes everything removable; and it removes at most one image beyond the goal,
    /// although layers are shared and each image frees several times its reported size, or a part of it.
    #[test]
    fn a_run_reaches_its_goal_or_takes_everything(
        layers in prop::collection::vec(1_u64..1_000, 1..12),
        images in prop::collection::vec(prop::collection::btree_set(0_usize..12, 1..6), 0..40),
        wanted in 0_u64..20_000, most in 1_usize..65, truth in 1_u64..7,
    ) {
        let size = |layer: usize| layers.get(layer).copied().unwrap_or(50);
        // Each also has a layer of its own, with a size different from the others.
        let images: Vec<Image> = images
            .iter()
            .enumerate()
            .map(|(n, shared)| Image {
                layers: shared.iter().map(|one| layer(*one as u64)).chain([layer(100 + n as u64)]).collect(),
                ..image(n as u64, shared.iter().map(|one| size(*one)).sum::<u64>() + n as u64 * 7)
            })
            .collect();
        let real = |layer_id: &LayerId| {
            let known = (0..12).find(|one| layer(*one) == *layer_id);
            let own = (0..40_u64).find(|n| layer(100 + n) == *layer_id).unwrap_or_default() * 7;
            truth * known.map_or(own, |one| size(usize::try_from(one).unwrap_or_default()))
        };
        let mut users = LayerUsers::of(images.iter());
        let candidates: Vec<Removal> = images
            .iter()
            .map(|image| Removal {
                id: image.id.clone(),
                expected_freed_bytes: users.take(image),
                ..removal(0, image.size_bytes)
            })
            .collect();
        let goal = Goal { path: "/images".into(), available_bytes: wanted, inodes_free: 0 };
        let mut run = SpaceRun::new(candidates, vec![goal], Batches { first: 1, most });
        let (mut available, mut gone, mut before_last) = (0, 0, 0);
        loop {
            match run.next(&[disk(100_000_000, available)]) {
                Step::Remove(batch) => {
                    prop_assert!(batch.len() <= most);
                    for one in &batch {
                        before_last = available;
                        let (image, left) = (&images[gone], &images[gone + 1..]);
                        let last = image.layers.iter().filter(|one| !left.iter().any(|other| other.layers.contains(one)));
                        available += last.map(real).sum::<u64>();
                        run.report(one, RemovalOutcome::Yes);
                        gone += 1;
                    }
                }
                Step::Met => {
                    prop_assert!(available >= wanted && (gone == 0 || before_last < wanted));
                    break;
                }
                Step::Exhausted => { prop_assert!(available < wanted && gone == images.len()); break; }
            }
        }
    }
}

#[test]
fn a_goal_is_about_what_crossed_its_threshold() {
    let goal =
        |available_bytes, inodes_free| Some(Goal { path: "/images".into(), available_bytes, inodes_free });
    for (available_bytes, inodes_free, expected) in
        [(900, 900, None), (100, 900, goal(200, 0)), (900, 100, goal(0, 200)), (100, 100, goal(200, 200))]
    {
        let filesystem = Filesystem { inodes: 1000, inodes_free, ..disk(1000, available_bytes) };
        let found = assess(&filesystem, thresholds(85, 80)).expect("capacity");
        assert_eq!(found.goal, expected, "{available_bytes} {inodes_free}");
    }
}

#[test]
fn the_first_goal_that_is_not_met_is_a_need() {
    let goal =
        |path: &str, available_bytes, inodes_free| Goal { path: path.into(), available_bytes, inodes_free };
    let measured = [
        Filesystem { inodes: 100, inodes_free: 30, ..disk(1000, 100) },
        Filesystem { path: "/more".into(), ..disk(1000, 100) },
    ];
    let need = |path: &str, bytes, inodes, inodes_usage_percent| {
        Some(SpaceNeed { path: path.into(), bytes, inodes, inodes_usage_percent })
    };
    let needed = "space is needed on";
    for (goals, expected, text) in [
        (vec![], None, String::new()),
        (vec![goal("/images", 100, 30)], None, String::new()),
        (vec![goal("/elsewhere", 900, 0)], None, String::new()),
        (vec![goal("/images", 101, 30)], need("/images", 1, 0, 70), format!("{needed} /images")),
        (
            vec![goal("/images", 100, 31)],
            need("/images", 0, 1, 70),
            "1 inodes are needed on /images, where 70 % are used".to_owned(),
        ),
        (
            vec![goal("/images", 300, 40)],
            need("/images", 200, 10, 70),
            format!("{needed} /images; 10 inodes are needed on /images, where 70 % are used"),
        ),
        (
            vec![goal("/images", 100, 0), goal("/more", 105, 0), goal("/images", 900, 0)],
            need("/more", 5, 0, 0),
            format!("{needed} /more"),
        ),
    ] {
        let found = SpaceNeed::of(&goals, &measured);
        assert_eq!(found, expected, "{goals:?}");
        assert_eq!(found.map(|need| need.to_string()).unwrap_or_default(), text);
    }
}

fn run_of(candidates: Vec<Removal>) -> SpaceRun {
    SpaceRun::new(candidates, Vec::new(), Batches { first: 1, most: 8 })
}

/// Up to exactly what is missing, no batch frees too much.
#[test]
fn a_batch_may_free_what_is_missing() {
    let batch = |removed, whole, partial| Batch { removed, whole, partial, ..Batch::default() };
    let (new, measured) = (run_of(vec![]), SpaceRun { is_measured: true, ..run_of(vec![]) });
    let known = SpaceRun { is_measured: true, ratio: 3_000, inodes: 50, ..run_of(vec![]) };
    for (case, run, batch, bytes, inodes) in [
        ("by assumption, one counts twice", &new, batch(1, 1_000, 0), 8_000, 2_000),
        ("a part as well", &new, batch(2, 1_000, 500), 12_000, 4_000),
        ("a measured whole still does", &measured, batch(1, 1_000, 0), 2_000, 2_000),
        ("a part no longer does", &measured, batch(2, 1_000, 500), 2_500, 4_000),
        ("by what was measured", &known, batch(3, 1_000, 500), 7_500, 300),
    ] {
        let found = [(0, 0), (1, 0), (0, 1), (1, 1)]
            .map(|(less, fewer)| run.may_exceed(&batch, bytes - less, inodes - fewer));
        assert_eq!(found, [false, false, false, true], "{case}");
    }
}

#[test]
fn a_batch_of_known_images_suffices_for_what_is_missing() {
    let planned = Batch { known: Space { bytes: 1_000, inodes: 5 }, ..Batch::default() };
    for (known_ratio, bytes) in [(None, 1_000), (Some(1_000), 1_000), (Some(2_500), 2_500)] {
        let run = SpaceRun { known_ratio, ..run_of(vec![]) };
        let found =
            [(0, 0), (1, 0), (0, 1)].map(|(more, further)| run.suffices(&planned, bytes + more, 5 + further));
        assert_eq!(found, [true, false, false], "{known_ratio:?}");
    }
}

/// A filesystem that could not be measured lacks nothing that is known, and still counts as not met.
#[test]
fn known_images_are_removed_for_what_cannot_be_measured() {
    let known = Removal { freed_space: Some(Space { bytes: 10, inodes: 1 }), ..removal(1, 10) };
    let goal = Goal { path: "/lost".into(), available_bytes: 100, inodes_free: 0 };
    let mut run = SpaceRun::new(vec![known.clone()], vec![goal], Batches { first: 1, most: 8 });
    assert_eq!(run.next(&[disk(1000, 0)]), Step::Remove(vec![known]));
}

#[test]
fn a_run_learns_from_what_a_batch_freed() {
    let batch = |whole, partial| Batch {
        available: 1_000,
        inodes_free: 10,
        removed: 2,
        whole,
        partial,
        known: Space { bytes: TOLERANCE_BYTES, inodes: 1 },
    };
    let learned = |run: &SpaceRun| (run.ratio, run.inodes, run.is_measured, run.known_ratio);
    for (case, batch, freed, inodes, expected) in [
        ("nothing", batch(100, 0), 0, 0, (0, 0, false, Some(1_000))),
        ("a whole one", batch(100, 0), 250, 5, (2_500, 3, true, Some(1_000))),
        ("a part", batch(50, 50), 250, 4, (2_500, 2, false, Some(1_000))),
        ("twice what was expected", batch(1, 0), 3 * TOLERANCE_BYTES, 0, (196_608_000, 0, true, Some(2_000))),
    ] {
        let mut run = SpaceRun { last: Some(batch), ..run_of(vec![]) };
        run.learn(1_000 + freed, 10 + inodes);
        assert_eq!(learned(&run), expected, "{case}");
        // A later batch that frees less takes nothing back.
        run.last = Some(self::Batch { removed: 1, ..batch });
        run.learn(1_000, 10);
        assert_eq!(learned(&run), expected, "{case}: and then nothing");
    }
}

/// Inodes are named if they are short, and shorter than bytes.
#[test]
fn the_shortage_names_inodes_only_if_they_are_what_is_short() {
    for (available, inodes_free, names_inodes) in
        [(50, 20, false), (10, 10, false), (50, 30, false), (50, 19, true)]
    {
        let filesystem = Filesystem { inodes: 100, inodes_free, ..disk(100, available) };
        let text = shortage_message(&filesystem, thresholds(85, 80), 5);
        assert_eq!(text.contains("inodes"), names_inodes, "{text}");
    }
}
