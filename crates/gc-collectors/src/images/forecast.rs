//! Forecasts how many images a pass would remove, for dry runs.
//!
//! A pass stops by measurements, which a dry run does not have. If the sizes of layers are known, the forecast computes the same
//! numbers in advance; otherwise it uses bounds, and the result is a range.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::layers::LayerUsers;
use super::plan::{Removal, Space};
use super::space::{Filesystem, Goal};
use super::{Image, ImageId};

/// Maximum number of bytes that an image frees for each byte of its nominal size: compressed layers are stored beside the unpacked
/// ones.
const MOST_RATIO: u64 = 8;
/// Tolerance for known sizes, which are exact except for the runtime's own files.
const TOLERANCE_BYTES: u64 = 32 << 10;

/// Number of images that would be removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    /// Minimum number, from the start of the list.
    pub fewest: usize,
    /// Maximum number.
    pub most: usize,
    /// Reason why the two differ; `None` if they are equal.
    pub uncertainty: Option<Uncertainty>,
}

/// Reason why it is unknown how many images would be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncertainty {
    /// The runtime reports only nominal sizes of images.
    NominalSizes {
        /// Number of images that share layers with another one.
        sharing: usize,
    },
    /// Sizes are known, but one image frees about as much as is missing.
    Borderline,
}

impl fmt::Display for Uncertainty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NominalSizes { sharing } => {
                f.write_str(
                    "the runtime reports nominal sizes (compressed, and shared layers once for each image)",
                )?;
                match sharing {
                    0 => Ok(()),
                    1 => f.write_str(", and 1 of these images shares layers of unknown sizes"),
                    many => write!(f, ", and {many} of these images share layers of unknown sizes"),
                }
            }
            Self::Borderline => {
                f.write_str("what is missing ends within a few blocks of what one of these images frees")
            }
        }
    }
}

/// Bounds of what the first images of a list free together, with an entry for each number of images.
#[derive(Debug)]
struct Bounds {
    least: Vec<Space>,
    most: Vec<Space>,
    is_known: bool,
}

/// Forecasts a pass over a list whose first `certain` images are removed regardless of disk usage. `goals` returns what a pass
/// would want from filesystems that are measured after these.
pub fn forecast<E>(
    list: &[Removal],
    certain: usize,
    images: &[Image],
    measured: &[Filesystem],
    goals: impl Fn(&[Filesystem]) -> Result<Vec<Goal>, E>,
) -> Result<Forecast, E> {
    let bounds = bounds(list, images, measured);
    let needed = |freed: &[Space]| -> Result<usize, E> {
        let after = |count: usize| -> Vec<Filesystem> {
            measured.iter().map(|one| with(one, freed.get(count).copied().unwrap_or_default())).collect()
        };
        let goals = goals(&after(certain))?;
        let is_met = |count: usize| {
            let disks = after(count);
            goals.iter().all(|goal| disks.iter().any(|disk| disk.path == goal.path && goal.is_met_by(disk)))
        };
        Ok((certain..list.len()).find(|count| is_met(*count)).unwrap_or(list.len()))
    };
    let (fewest, most) = (needed(&bounds.most)?, needed(&bounds.least)?);
    let uncertainty = (fewest < most).then(|| {
        if bounds.is_known {
            return Uncertainty::Borderline;
        }
        let listed: BTreeSet<&ImageId> = list.iter().take(most).map(|removal| &removal.id).collect();
        let users = LayerUsers::of(images.iter());
        let shares = |image: &&Image| {
            listed.contains(&image.id) && users.shared_bytes(image).is_some_and(|bytes| bytes > 0)
        };
        Uncertainty::NominalSizes { sharing: images.iter().filter(shares).count() }
    });
    Ok(Forecast { fewest, most: most.max(fewest), uncertainty })
}

/// Returns a filesystem as it is after something was freed on it.
fn with(filesystem: &Filesystem, freed: Space) -> Filesystem {
    let sum = |now: u64, more: u64, all: u64| now.saturating_add(more).min(all.max(now));
    Filesystem {
        available_bytes: sum(filesystem.available_bytes, freed.bytes, filesystem.capacity_bytes),
        inodes_free: sum(filesystem.inodes_free, freed.inodes, filesystem.inodes),
        ..filesystem.clone()
    }
}

fn bounds(list: &[Removal], images: &[Image], measured: &[Filesystem]) -> Bounds {
    let mut sum = Space::default();
    let known: Option<Vec<Space>> = list
        .iter()
        .map(|removal| {
            sum = sum.and(removal.freed_space?);
            Some(sum)
        })
        .collect();
    if let Some(sums) = known {
        let about = |change: fn(u64, u64) -> u64| {
            let each =
                sums.iter().map(move |sum| Space { bytes: change(sum.bytes, TOLERANCE_BYTES), ..*sum });
            std::iter::once(Space::default()).chain(each).collect()
        };
        return Bounds {
            least: about(u64::saturating_sub),
            most: about(u64::saturating_add),
            is_known: true,
        };
    }
    nominal_bounds(list, images, measured)
}

/// Returns bounds from nominal sizes. Removed images free at least the size of those that share no layer with each other, and
/// nothing of a layer that another image needs, or another copy of the same one.
fn nominal_bounds(list: &[Removal], images: &[Image], measured: &[Filesystem]) -> Bounds {
    let used = measured.iter().map(|one| one.capacity_bytes.saturating_sub(one.available_bytes)).max();
    let by_id: BTreeMap<&ImageId, &Image> = images.iter().map(|image| (&image.id, image)).collect();
    let mut users = LayerUsers::of(images.iter());
    let (mut least, mut most) = (vec![Space::default()], vec![Space::default()]);
    let mut sums = (0_u64, 0_u64);
    for removal in list {
        let layers = by_id.get(&removal.id).map_or(&[][..], |image| &image.layers);
        if let Some(image) = by_id.get(&removal.id) {
            users.take(image);
        }
        // Unknown layers may all be shared.
        let is_last = layers.iter().all(|layer| !users.is_used(*layer));
        if is_last && !layers.is_empty() {
            sums.0 = sums.0.saturating_add(removal.size_bytes);
        }
        sums.1 = sums
            .1
            .saturating_add(removal.size_bytes.saturating_mul(MOST_RATIO))
            .min(used.unwrap_or(u64::MAX));
        least.push(Space { bytes: sums.0, inodes: 0 });
        most.push(Space { bytes: sums.1, inodes: u64::MAX });
    }
    Bounds { least, most, is_known: false }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::convert::Infallible;

    use gc_types::UnixNanoseconds;
    use proptest::prelude::*;

    use super::super::space::{Batches, RemovalOutcome, SpaceRun, Step, Thresholds, assess};
    use super::super::stores::{
        Blob, ContainerRecord, Disk, ImageName, Labels, Namespace, Snapshot, set_freed_space,
    };
    use super::super::testing::{id, image, layer, removal};
    use super::*;

    /// A layer: its compressed size, and the bytes and inodes of its snapshot.
    #[derive(Clone, Copy, Debug)]
    struct Layer {
        number: u64,
        compressed: u64,
        unpacked: u64,
        inodes: u64,
    }

    /// A generated disk: images by number, each with its layers from the lowest up.
    #[derive(Clone, Debug)]
    struct World {
        images: Vec<Vec<Layer>>,
        used: Vec<bool>,
        ballast: u64,
        thresholds: Thresholds,
    }

    const DIRECTORY: u64 = 4096;

    fn digest(number: u64) -> String {
        format!("sha256:{number:064x}")
    }

    fn chain(layers: &[Layer]) -> String {
        layers.iter().map(|one| one.number.to_string()).collect::<Vec<_>>().join("/")
    }

    impl World {
        /// Returns the space of the images with these numbers: blobs count once, snapshots once for each chain of layers.
        fn space(&self, present: &[usize]) -> Space {
            let mut parts: BTreeMap<String, Space> = BTreeMap::new();
            for number in present {
                for name in ["config", "manifest"] {
                    parts.insert(format!("{name} {number}"), Space { bytes: 4096, inodes: 1 });
                }
                let layers = &self.images[*number];
                for (index, one) in layers.iter().enumerate() {
                    let blob = Space { bytes: one.compressed.next_multiple_of(4096), inodes: 1 };
                    parts.insert(format!("blob {}", one.number), blob);
                    let bytes = one.unpacked + 2 * DIRECTORY;
                    parts.insert(chain(&layers[..=index]), Space { bytes, inodes: one.inodes + 2 });
                }
            }
            parts.values().fold(Space::default(), |sum, one| sum.and(*one))
        }

        fn disk(&self, present: &[usize]) -> Filesystem {
            let all: Vec<usize> = (0..self.images.len()).collect();
            let (whole, now) = (self.space(&all), self.space(present));
            let capacity_bytes = whole.bytes + self.ballast;
            let inodes = whole.inodes * 3;
            Filesystem {
                path: "/images".into(),
                capacity_bytes,
                available_bytes: capacity_bytes - now.bytes,
                inodes,
                inodes_free: inodes - now.inodes,
            }
        }

        /// Returns the disk as containerd describes it.
        fn namespace(&self) -> Namespace {
            let mut namespace = Namespace { name: "k8s.io".into(), ..Namespace::default() };
            let label = |key: &str, value: String| (format!("containerd.io/gc.ref.{key}"), value);
            for (number, layers) in self.images.iter().enumerate() {
                let config = digest(number as u64);
                let manifest = digest(10_000 + number as u64);
                let blobs = layers.iter().map(|one| digest(20_000 + one.number));
                let mut labels: Labels =
                    blobs.enumerate().map(|(n, blob)| label(&format!("content.l.{n}"), blob)).collect();
                labels.extend([label("content.config", config.clone())]);
                for name in ["localhost/a:1".to_owned(), config.clone()] {
                    namespace.images.push(ImageName { name, target: manifest.clone(), ..Default::default() });
                }
                namespace.content.push(Blob { digest: manifest, bytes: 700, labels });
                let top = Labels::from([label("snapshot.overlayfs", chain(layers))]);
                namespace.content.push(Blob { digest: config, bytes: 300, labels: top });
                for (index, one) in layers.iter().enumerate() {
                    let blob = Blob {
                        digest: digest(20_000 + one.number),
                        bytes: one.compressed,
                        ..Blob::default()
                    };
                    namespace.content.push(blob);
                    namespace.snapshots.push(Snapshot {
                        snapshotter: "overlayfs".into(),
                        name: chain(&layers[..=index]),
                        parent: chain(&layers[..index]),
                        is_committed: true,
                        labels: Labels::new(),
                        updated: UnixNanoseconds(0),
                        usage: Some(Space { bytes: one.unpacked, inodes: one.inodes }),
                    });
                }
                if self.used[number] {
                    namespace.containers.push(ContainerRecord {
                        id: number.to_string(),
                        snapshotter: "overlayfs".into(),
                        snapshot: chain(layers),
                        ..ContainerRecord::default()
                    });
                }
            }
            namespace
        }

        fn images(&self) -> Vec<Image> {
            let of = |(number, layers): (usize, &Vec<Layer>)| Image {
                layers: layers.iter().map(|one| layer(one.number)).collect(),
                ..image(number as u64, layers.iter().map(|one| one.compressed).sum())
            };
            self.images.iter().enumerate().map(of).collect()
        }

        fn removals(&self) -> Vec<Removal> {
            let unused = (0..self.images.len()).filter(|number| !self.used[*number]);
            unused
                .map(|number| {
                    let size_bytes = self.images[number].iter().map(|one| one.compressed).sum();
                    removal(number as u64, size_bytes)
                })
                .collect()
        }

        fn goals(&self, measured: &[Filesystem]) -> Vec<Goal> {
            measured.iter().filter_map(|one| assess(one, self.thresholds).expect("a capacity").goal).collect()
        }

        /// Removes like the agent, and returns the number of removed images.
        fn act(&self, list: Vec<Removal>) -> usize {
            let mut present: Vec<usize> = (0..self.images.len()).collect();
            let goals = self.goals(&[self.disk(&present)]);
            if goals.is_empty() {
                return 0;
            }
            let mut run = SpaceRun::new(list, goals, Batches { first: 1, most: 64 });
            let mut gone = 0;
            loop {
                match run.next(&[self.disk(&present)]) {
                    Step::Remove(batch) => {
                        for one in &batch {
                            present.retain(|number| id(*number as u64) != one.id);
                            run.report(one, RemovalOutcome::Yes);
                            gone += 1;
                        }
                    }
                    Step::Met | Step::Exhausted => return gone,
                }
            }
        }

        fn forecast(&self, list: &[Removal]) -> Forecast {
            let all: Vec<usize> = (0..self.images.len()).collect();
            let goals = |measured: &[Filesystem]| Ok::<_, Infallible>(self.goals(measured));
            let Ok(found) = forecast(list, 0, &self.images(), &[self.disk(&all)], goals);
            found
        }
    }

    fn worlds() -> impl Strategy<Value = World> {
        let layer = (1_u64..400_000, 1_u64..6, 1_u64..40).prop_map(|(compressed, ratio, inodes)| Layer {
            number: 0,
            compressed,
            unpacked: (compressed * ratio).next_multiple_of(4096),
            inodes,
        });
        let bases = prop::collection::vec(prop::collection::vec(layer.clone(), 1..4), 1..4);
        let images = prop::collection::vec(
            (0_usize..4, 0_usize..4, prop::collection::vec(layer, 0..3), prop::bool::weighted(0.1)),
            1..40,
        );
        (bases, images, 0_u64..4_000_000, 10_u8..80, 1_u8..20).prop_map(
            |(mut bases, images, ballast, low_percent, above)| {
                let mut next = 0;
                let mut number = |one: &mut Layer| {
                    next += 1;
                    one.number = next;
                };
                bases.iter_mut().flatten().for_each(&mut number);
                let (mut layers, mut used) = (Vec::new(), Vec::new());
                for (base, depth, mut own, is_used) in images {
                    own.iter_mut().for_each(&mut number);
                    let shared = bases.get(base).map(|base| &base[..depth.min(base.len())]);
                    let all: Vec<Layer> = shared.unwrap_or_default().iter().copied().chain(own).collect();
                    if !all.is_empty() {
                        layers.push(all);
                        used.push(is_used);
                    }
                }
                let thresholds = Thresholds { high_percent: low_percent + above, low_percent };
                World { images: layers, used, ballast, thresholds }
            },
        )
    }

    proptest! {
        /// A dry run counts like a pass: exactly if sizes are known, and within its range if not.
        #[test]
        fn a_dry_run_counts_as_a_pass_does(world in worlds()) {
            let nominal = world.removals();
            let (found, gone) = (world.forecast(&nominal), world.act(nominal.clone()));
            prop_assert!(found.fewest <= gone && gone <= found.most, "{gone} went: {found:?}");
            prop_assert_eq!(found.uncertainty.is_some(), found.fewest < found.most);
            let mut known = nominal;
            let disk = Disk { directory_bytes: DIRECTORY, has_content: true };
            prop_assert!(set_freed_space(&mut known, &world.namespace(), disk, UnixNanoseconds(0)));
            let (found, gone) = (world.forecast(&known), world.act(known));
            prop_assert!(found.fewest <= gone && gone <= found.most, "{gone} went: {found:?}");
            prop_assert!(found.most - found.fewest <= 8, "{found:?}");
        }
    }

    /// No removal frees what stays for a container or a lease; an expired lease keeps nothing.
    #[test]
    fn what_others_hold_is_not_freed() {
        let layers = [(1, 10_000), (2, 20_000), (3, 30_000)].map(|(number, compressed)| Layer {
            number,
            compressed,
            unpacked: 40_960,
            inodes: 5,
        });
        let world = World {
            images: vec![layers[..2].to_vec(), vec![layers[0], layers[2]]],
            used: vec![false, false],
            ballast: 0,
            thresholds: Thresholds { high_percent: 85, low_percent: 80 },
        };
        let freed = |namespace: &Namespace| -> Vec<u64> {
            let mut list = world.removals();
            let disk = Disk { directory_bytes: 0, has_content: true };
            assert!(set_freed_space(&mut list, namespace, disk, UnixNanoseconds(1_800_000_000_000_000_000)));
            list.iter().map(|one| one.freed_space.map_or(0, |space| space.bytes)).collect()
        };
        let documents = 2 * 4096;
        let own = [20_480 + 40_960 + documents, 32_768 + 40_960 + documents];
        let base = 12_288 + 40_960;
        let namespace = world.namespace();
        assert_eq!(freed(&namespace), [own[0], own[1] + base]);
        let held = |expiry: &str| {
            let resources =
                vec![("1".to_owned(), "snapshots/overlayfs".to_owned()), (digest(20_001), "content".into())];
            let labels = Labels::from([("containerd.io/gc.expire".to_owned(), expiry.to_owned())]);
            let lease = super::super::stores::LeaseRecord { id: "l".into(), labels, resources };
            Namespace { leases: vec![lease], ..namespace.clone() }
        };
        assert_eq!(freed(&held("2099-01-01T00:00:00Z")), own);
        assert_eq!(freed(&held("2001-01-01T00:00:00Z")), [own[0], own[1] + base]);
        let mut copies = [&world.removals()[..], &world.removals()[1..]].concat();
        let disk = Disk { directory_bytes: 0, has_content: true };
        assert!(set_freed_space(&mut copies, &namespace, disk, UnixNanoseconds(0)));
        let bytes: Vec<u64> = copies.iter().map(|one| one.expected_freed_bytes).collect();
        assert_eq!(bytes, [own[0], 0, own[1] + base], "the second has a copy");
        let elsewhere = Namespace { foreign_content: [(digest(20_001), 10_000)].into(), ..namespace.clone() };
        assert_eq!(freed(&elsewhere), [own[0], own[1] + 40_960]);
    }

    #[test]
    fn a_doubt_is_put_into_words() {
        let nominal = "the runtime reports nominal sizes (compressed, and shared layers once for each image)";
        for (doubt, more) in [
            (Uncertainty::NominalSizes { sharing: 0 }, ""),
            (
                Uncertainty::NominalSizes { sharing: 1 },
                ", and 1 of these images shares layers of unknown sizes",
            ),
            (
                Uncertainty::NominalSizes { sharing: 7 },
                ", and 7 of these images share layers of unknown sizes",
            ),
        ] {
            assert_eq!(doubt.to_string(), format!("{nominal}{more}"));
        }
        let borderline = "what is missing ends within a few blocks of what one of these images frees";
        assert_eq!(Uncertainty::Borderline.to_string(), borderline);
    }

    fn with_layers(number: u64, size_bytes: u64, layers: &[u64]) -> Image {
        Image { layers: layers.iter().map(|&number| layer(number)).collect(), ..image(number, size_bytes) }
    }

    fn full_disk() -> Filesystem {
        Filesystem {
            path: "/images".into(),
            capacity_bytes: 1_000_000,
            available_bytes: 990_000,
            inodes: 0,
            inodes_free: 0,
        }
    }

    /// An image surely frees its size if its removal is the last that any of its layers waits for.
    #[test]
    fn what_images_surely_free_is_counted_once() {
        let images = [
            with_layers(1, 100, &[1, 2]),
            with_layers(2, 200, &[2, 3]),
            with_layers(3, 400, &[4, 5]),
            with_layers(4, 800, &[]),
            with_layers(5, 1_600, &[3, 9]),
            with_layers(6, 3_200, &[2]),
            Image { runtime_handler: "h".into(), ..with_layers(3, 400, &[4, 5]) },
        ];
        // The fifth is in use, the sixth is listed after those that share its layer, and the third has a copy for another handler.
        let list = [1_u64, 2, 3, 3, 4, 6].map(|number| removal(number, 100 << (number - 1)));
        let found = bounds(&list, &images, &[full_disk()]);
        let bytes = |of: &[Space]| of.iter().map(|one| one.bytes).collect::<Vec<_>>();
        assert_eq!(bytes(&found.least), [0, 0, 0, 0, 400, 400, 3_600]);
        let one_copy = bounds(&list[..3], &images, &[full_disk()]);
        assert_eq!(bytes(&one_copy.least), [0; 4]);
        // No more than the disk holds.
        assert_eq!(bytes(&found.most), [0, 800, 2_400, 5_600, 8_800, 10_000, 10_000]);
        assert!(!found.is_known);
    }

    /// Only images of the list whose layers another image also has make its result uncertain.
    #[test]
    fn the_images_that_share_are_counted() {
        let images = [
            with_layers(1, 100, &[1, 2]),
            with_layers(2, 100, &[2, 3]),
            with_layers(3, 100, &[3]),
            with_layers(4, 100, &[4]),
            with_layers(5, 100, &[]),
        ];
        let list = [1_u64, 2, 4, 5].map(|number| removal(number, 100));
        let goal = || Goal { path: "/images".into(), available_bytes: 990_150, inodes_free: 0 };
        let goals = |_: &[Filesystem]| Ok::<_, Infallible>(vec![goal()]);
        let Ok(found) = forecast(&list, 0, &images, &[full_disk()], goals);
        let uncertainty = Some(Uncertainty::NominalSizes { sharing: 2 });
        assert_eq!(found, Forecast { fewest: 1, most: 4, uncertainty });
    }
}
