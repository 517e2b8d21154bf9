//! Disk usage of images below CRI, by cause, and which part of it is provably unused.

use std::collections::{BTreeMap, BTreeSet};

use gc_types::{GoDuration, UnixNanoseconds};

use super::plan::Space;
use super::stores::{Disk, Namespace, Node, References};

/// Reason why containerd keeps something in its stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// A name of an image.
    Image,
    /// A container or a sandbox, and no image.
    Container,
    /// Only a lease that has not expired.
    Lease,
    /// Only a label, such as `containerd.io/gc.root`.
    Label,
    /// Only content of another containerd namespace.
    OtherNamespace,
    /// An upload that has not ended.
    Ingest,
    /// Nothing: containerd's next garbage collection may remove it.
    Nothing,
}

/// Returns the space of everything that containerd lists, by holder.
#[must_use]
pub fn shares(namespace: &Namespace, disk: Disk, now: UnixNanoseconds) -> BTreeMap<Holder, Space> {
    let references = References::of(namespace);
    let mut found: BTreeMap<Holder, Space> = BTreeMap::new();
    let mut seen: BTreeSet<Node<'_>> = BTreeSet::new();
    for holder in [
        Holder::Image,
        Holder::Container,
        Holder::Lease,
        Holder::Label,
        Holder::OtherNamespace,
        Holder::Nothing,
    ] {
        let nodes = match holder {
            Holder::OtherNamespace => references.all().filter(|node| references.is_foreign(node)).collect(),
            Holder::Nothing => references.all().collect(),
            _ => references.held_by(holder, now),
        };
        for node in nodes {
            let space = references.space(&node, disk).unwrap_or_default();
            if seen.insert(node) {
                let share = found.entry(holder).or_default();
                *share = share.and(space);
            }
        }
    }
    let foreign = references.foreign_space(disk);
    if foreign != Space::default() {
        let share = found.entry(Holder::OtherNamespace).or_default();
        *share = share.and(foreign);
    }
    if disk.has_content {
        for ingest in &namespace.ingests {
            let share = found.entry(Holder::Ingest).or_default();
            *share = share.and(Space { bytes: ingest.bytes, inodes: 1 });
        }
    }
    found
}

/// Items to which no container, image or lease can refer any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orphans {
    /// References of uploads that have not been written to for a long time.
    pub ingests: Vec<String>,
    /// Identifiers of expired leases.
    pub leases: Vec<String>,
    /// Snapshotter and key of snapshots, each after its children.
    pub snapshots: Vec<(String, String)>,
}

impl Orphans {
    /// Reports whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ingests.is_empty() && self.leases.is_empty() && self.snapshots.is_empty()
    }
}

/// Finds what may be removed. Items that have changed within `minimum_age` stay, because they may belong to something that is being
/// created.
#[must_use]
pub fn orphans(namespace: &Namespace, minimum_age: GoDuration, now: UnixNanoseconds) -> Orphans {
    let is_old = |changed: UnixNanoseconds| now.since(changed) >= minimum_age;
    let leased: BTreeSet<&str> = namespace
        .leases
        .iter()
        .filter(|lease| !lease.is_expired(now))
        .flat_map(|lease| &lease.resources)
        .filter(|(_, kind)| kind == "ingests")
        .map(|(reference, _)| &**reference)
        .collect();
    let ingests = namespace.ingests.iter();
    let ingests = ingests.filter(|one| is_old(one.updated) && !leased.contains(&*one.reference));
    let leases = namespace.leases.iter().filter(|lease| lease.is_expired(now));
    let references = References::of(namespace);
    let mut held = references.held(now);
    held.extend(references.held_by(Holder::Image, now));
    let mut unheld: Vec<_> = namespace
        .snapshots
        .iter()
        .filter(|one| is_old(one.updated) && !one.has_back_reference())
        .filter(|one| !held.contains(&Node::Snapshot(&one.snapshotter, &one.name)))
        .collect();
    // A snapshot with a remaining child cannot be removed either.
    loop {
        let before = unheld.len();
        let going: BTreeSet<(&str, &str)> =
            unheld.iter().map(|one| (&*one.snapshotter, &*one.name)).collect();
        let needed: BTreeSet<(&str, &str)> = namespace
            .snapshots
            .iter()
            .filter(|one| !going.contains(&(&*one.snapshotter, &*one.name)))
            .map(|one| (&*one.snapshotter, &*one.parent))
            .collect();
        unheld.retain(|one| !needed.contains(&(&*one.snapshotter, &*one.name)));
        if unheld.len() == before {
            break;
        }
    }
    let mut snapshots: Vec<(usize, (String, String))> = unheld
        .iter()
        .map(|one| {
            (references.depth(&one.snapshotter, &one.name), (one.snapshotter.clone(), one.name.clone()))
        })
        .collect();
    snapshots.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    Orphans {
        ingests: ingests.map(|one| one.reference.clone()).collect(),
        leases: leases.map(|lease| lease.id.clone()).collect(),
        snapshots: snapshots.into_iter().map(|(_, key)| key).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::stores::{Blob, ContainerRecord, ImageName, Ingest, Labels, LeaseRecord, Snapshot};
    use super::*;

    const HOUR: i64 = 3_600_000_000_000;
    const NOW: UnixNanoseconds = UnixNanoseconds(1_800_000_000_000_000_000);

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| (format!("containerd.io/gc.{key}"), (*value).to_owned())).collect()
    }

    fn blob(digest: &str, bytes: u64, pairs: &[(&str, &str)]) -> Blob {
        Blob { digest: digest.into(), bytes, labels: labels(pairs) }
    }

    fn snapshot(name: &str, parent: &str, hours: i64) -> Snapshot {
        Snapshot {
            snapshotter: "overlayfs".into(),
            name: name.into(),
            parent: parent.into(),
            is_committed: true,
            labels: Labels::new(),
            updated: UnixNanoseconds(NOW.0 - hours * HOUR),
            usage: Some(Space { bytes: 8192, inodes: 3 }),
        }
    }

    fn world() -> Namespace {
        let lease = |id: &str, expiry: &str, resources: &[(&str, &str)]| LeaseRecord {
            id: id.into(),
            labels: labels(&[("expire", expiry)]),
            resources: resources.iter().map(|(id, kind)| ((*id).to_owned(), (*kind).to_owned())).collect(),
        };
        let ingest = |reference: &str, hours: i64| Ingest {
            reference: reference.into(),
            bytes: 5000,
            updated: UnixNanoseconds(NOW.0 - hours * HOUR),
        };
        Namespace {
            name: "k8s.io".into(),
            images: vec![ImageName { name: "a".into(), target: "manifest".into(), ..ImageName::default() }],
            containers: vec![ContainerRecord {
                id: "c".into(),
                snapshotter: "overlayfs".into(),
                snapshot: "c".into(),
                ..ContainerRecord::default()
            }],
            leases: vec![
                lease("fresh", "2099-01-01T00:00:00Z", &[("pulled", "content"), ("upload", "ingests")]),
                lease("stale", "2020-01-01T00:00:00Z", &[("left", "snapshots/overlayfs")]),
            ],
            content: vec![
                blob("manifest", 100, &[("ref.content.config", "config"), ("ref.content.l.0", "absent")]),
                blob("config", 100, &[("ref.snapshot.overlayfs", "top")]),
                blob("pulled", 4097, &[]),
                blob("labelled", 100, &[("root", "x"), ("ref.content", "behind")]),
                blob("behind", 100, &[]),
                blob("loose", 100, &[]),
                blob("elsewhere", 100, &[]),
            ],
            snapshots: vec![
                snapshot("base", "", 99),
                snapshot("top", "base", 99),
                snapshot("c", "top", 99),
                snapshot("left", "base", 99),
                snapshot("child", "left", 99),
                Snapshot { labels: labels(&[("bref.image", "a")]), ..snapshot("named-by-itself", "", 99) },
                snapshot("young", "", 1),
                snapshot("parent-of-young", "", 99),
                snapshot("young-child", "parent-of-young", 1),
            ],
            ingests: vec![ingest("aborted", 48), ingest("under-way", 1), ingest("upload", 48)],
            foreign_content: [("elsewhere".to_owned(), 100), ("only-there".to_owned(), 5000)].into(),
            foreign_snapshots: vec![snapshot("there", "", 99)],
        }
    }

    #[test]
    fn everything_is_counted_once_by_who_keeps_it() {
        let disk = Disk { directory_bytes: 0, has_content: true };
        let found = shares(&world(), disk, NOW);
        let space = |bytes, inodes| Space { bytes, inodes };
        let expected = [
            (Holder::Image, space(2 * 4096 + 2 * 8192, 2 + 2 * 5)),
            (Holder::Container, space(8192, 5)),
            (Holder::Lease, space(8192, 1)),
            (Holder::Label, space(8192, 2)),
            (Holder::OtherNamespace, space(4096 + 8192 + 8192, 1 + 1 + 5)),
            (Holder::Ingest, space(15_000, 3)),
            (Holder::Nothing, space(4096 + 6 * 8192, 1 + 6 * 5)),
        ];
        assert_eq!(found, expected.into());
    }

    /// Nothing young, nothing with a remaining child, and nothing held by a lease is an orphan.
    #[test]
    fn only_what_nothing_can_refer_to_is_an_orphan() {
        let found = orphans(&world(), GoDuration(24 * HOUR), NOW);
        let key = |name: &str| ("overlayfs".to_owned(), name.to_owned());
        assert_eq!(
            found,
            Orphans {
                ingests: vec!["aborted".into()],
                leases: vec!["stale".into()],
                snapshots: vec![key("child"), key("left")],
            }
        );
        assert!(orphans(&world(), GoDuration(1000 * HOUR), NOW).snapshots.is_empty());
    }

    #[test]
    fn orphans_of_any_kind_are_some() {
        let text = || vec!["x".to_owned()];
        let none = Orphans::default();
        for (orphans, expected) in [
            (none.clone(), true),
            (Orphans { ingests: text(), ..none.clone() }, false),
            (Orphans { leases: text(), ..none.clone() }, false),
            (Orphans { snapshots: vec![("overlayfs".to_owned(), "a".to_owned())], ..none }, false),
        ] {
            assert_eq!(orphans.is_empty(), expected, "{orphans:?}");
        }
    }

    /// Whatever they are called, the ones on top go first.
    #[test]
    fn a_snapshot_goes_before_the_one_below_it() {
        let chain = [("a", ""), ("b", "a"), ("c", "b"), ("z", "")];
        let namespace = Namespace {
            snapshots: chain.map(|(name, parent)| snapshot(name, parent, 99)).into(),
            ..Namespace::default()
        };
        let found = orphans(&namespace, GoDuration(24 * HOUR), NOW).snapshots;
        let names: Vec<&str> = found.iter().map(|(_, name)| &**name).collect();
        assert_eq!(names, ["c", "b", "a", "z"]);
    }

    /// Blobs on another disk take no space on this one.
    #[test]
    fn only_what_is_on_the_disk_is_counted() {
        let disk = Disk { directory_bytes: 0, has_content: false };
        let found = shares(&world(), disk, NOW);
        let space = |bytes, inodes| Space { bytes, inodes };
        let expected = [
            (Holder::Image, space(2 * 8192, 2 * 5)),
            (Holder::Container, space(8192, 5)),
            (Holder::Lease, space(0, 0)),
            (Holder::Label, space(0, 0)),
            (Holder::OtherNamespace, space(8192, 5)),
            (Holder::Nothing, space(6 * 8192, 6 * 5)),
        ];
        assert_eq!(found, expected.into());
    }
}
