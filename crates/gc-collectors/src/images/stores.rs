//! The stores of containerd below CRI: content, snapshots, and their users.
//!
//! CRI reports one nominal size for each image. containerd knows the size of each blob and snapshot and, from its labels, which
//! image needs which, so the effect of a removal is known in advance. The references are those that containerd's own garbage
//! collection follows.

use std::collections::{BTreeMap, BTreeSet};

use gc_types::UnixNanoseconds;

use super::account::Holder;
use super::plan::{Removal, Space};

/// Block size in bytes in which content is allocated.
const BLOCK_BYTES: u64 = 4096;
/// Inodes of a snapshot that its usage does not include: its own directory, and its work directory.
const SNAPSHOT_DIRECTORIES: u64 = 2;
const LABEL_ROOT: &str = "containerd.io/gc.root";
const LABEL_EXPIRES: &str = "containerd.io/gc.expire";
const LABEL_FLAT: &str = "containerd.io/gc.flat";
const LABEL_CONTENT: &str = "containerd.io/gc.ref.content";
/// Prefix of labels with references in the other direction, since containerd 1.7.
const LABEL_BACK: &str = "containerd.io/gc.bref.";
const LABEL_SNAPSHOT: &str = "containerd.io/gc.ref.snapshot.";

/// Labels of a containerd object.
pub type Labels = BTreeMap<String, String>;

/// A name of an image in containerd, and the content that it refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageName {
    /// A reference, or a digest.
    pub name: String,
    /// Digest of its index or manifest.
    pub target: String,
    /// Labels of the image.
    pub labels: Labels,
}

/// A containerd container; sandboxes are containers, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerRecord {
    /// Identifier of the container.
    pub id: String,
    /// Snapshotter of its root filesystem.
    pub snapshotter: String,
    /// Snapshot that is its root filesystem.
    pub snapshot: String,
    /// Labels of the container.
    pub labels: Labels,
}

/// A lease, which holds its resources until it expires.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Identifier of the lease.
    pub id: String,
    /// Labels of the lease.
    pub labels: Labels,
    /// Identifier and type of each resource that it holds.
    pub resources: Vec<(String, String)>,
}

/// A blob of the content store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blob {
    /// Digest of the blob.
    pub digest: String,
    /// Size of the blob.
    pub bytes: u64,
    /// Labels of the blob.
    pub labels: Labels,
}

/// A snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Snapshotter that it belongs to.
    pub snapshotter: String,
    /// Key of the snapshot.
    pub name: String,
    /// Key of its parent; empty if it has none.
    pub parent: String,
    /// True if it can no longer change, so its usage is constant.
    pub is_committed: bool,
    /// Labels of the snapshot.
    pub labels: Labels,
    /// Time of its last change.
    pub updated: UnixNanoseconds,
    /// Disk usage as the snapshotter reports it, without its parents; `None` if unknown.
    pub usage: Option<Space>,
}

/// An unfinished upload of content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ingest {
    /// Reference of the upload.
    pub reference: String,
    /// Bytes written so far.
    pub bytes: u64,
    /// Time of its last write.
    pub updated: UnixNanoseconds,
}

/// All contents of one containerd namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// Name of the namespace; Kubernetes uses `k8s.io`.
    pub name: String,
    /// Names of images.
    pub images: Vec<ImageName>,
    /// Containers and sandboxes.
    pub containers: Vec<ContainerRecord>,
    /// Leases.
    pub leases: Vec<LeaseRecord>,
    /// Content.
    pub content: Vec<Blob>,
    /// Snapshots of all snapshotters.
    pub snapshots: Vec<Snapshot>,
    /// Unfinished uploads.
    pub ingests: Vec<Ingest>,
    /// Digests and sizes of blobs in other namespaces. A blob that several namespaces contain is stored once.
    pub foreign_content: BTreeMap<String, u64>,
    /// Snapshots of other namespaces, if their usage was read.
    pub foreign_snapshots: Vec<Snapshot>,
}

/// A blob by its digest, or a snapshot by its snapshotter and key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Node<'a> {
    /// A blob.
    Blob(&'a str),
    /// A snapshot.
    Snapshot(&'a str, &'a str),
}

/// References within one namespace.
#[derive(Debug)]
pub struct References<'a> {
    namespace: &'a Namespace,
    blobs: BTreeMap<&'a str, &'a Blob>,
    snapshots: BTreeMap<(&'a str, &'a str), &'a Snapshot>,
}

impl<'a> References<'a> {
    /// Indexes a namespace.
    #[must_use]
    pub fn of(namespace: &'a Namespace) -> Self {
        let blobs = namespace.content.iter().map(|blob| (&*blob.digest, blob)).collect();
        let snapshots =
            namespace.snapshots.iter().map(|one| ((&*one.snapshotter, &*one.name), one)).collect();
        Self { namespace, blobs, snapshots }
    }

    /// Adds everything that can be reached from some nodes.
    fn reach(&self, from: impl IntoIterator<Item = Node<'a>>, reached: &mut BTreeSet<Node<'a>>) {
        let mut waiting: Vec<Node<'a>> = from.into_iter().collect();
        while let Some(node) = waiting.pop() {
            let labels = match &node {
                Node::Blob(digest) => self.blobs.get(digest).map(|blob| &blob.labels),
                Node::Snapshot(snapshotter, name) => {
                    self.snapshots.get(&(snapshotter, name)).map(|one| &one.labels)
                }
            };
            // A reference may lead to content for another platform, which was never fetched.
            let Some(labels) = labels else { continue };
            if !reached.insert(node.clone()) {
                continue;
            }
            waiting.extend(references(labels));
            if let Node::Snapshot(snapshotter, name) = node
                && let Some(one) =
                    self.snapshots.get(&(snapshotter, name)).filter(|one| !one.parent.is_empty())
            {
                waiting.push(Node::Snapshot(&one.snapshotter, &one.parent));
            }
        }
    }

    /// Returns everything that an image's name needs.
    fn of_name(&self, image: &'a ImageName) -> BTreeSet<Node<'a>> {
        let mut reached = BTreeSet::new();
        self.reach_image(image, &mut reached);
        reached
    }

    fn reach_image(&self, image: &'a ImageName, reached: &mut BTreeSet<Node<'a>>) {
        self.reach(references(&image.labels).chain([Node::Blob(&image.target)]), reached);
    }

    /// Returns everything that one kind of holder refers to, directly or indirectly.
    #[must_use]
    pub fn held_by(&self, holder: Holder, now: UnixNanoseconds) -> BTreeSet<Node<'a>> {
        let mut reached = BTreeSet::new();
        match holder {
            Holder::Image => {
                for image in &self.namespace.images {
                    self.reach_image(image, &mut reached);
                }
            }
            Holder::Container => {
                for container in &self.namespace.containers {
                    let root = Node::Snapshot(&container.snapshotter, &container.snapshot);
                    self.reach(references(&container.labels).chain([root]), &mut reached);
                }
            }
            Holder::Lease => {
                for lease in self.namespace.leases.iter().filter(|lease| !lease.is_expired(now)) {
                    let nodes = lease.resources.iter().filter_map(|(id, kind)| resource(id, kind));
                    if lease.labels.contains_key(LABEL_FLAT) {
                        reached.extend(nodes);
                    } else {
                        self.reach(references(&lease.labels).chain(nodes), &mut reached);
                    }
                }
            }
            Holder::Label => {
                let blobs = self.namespace.content.iter().filter(|blob| is_root(&blob.labels, now));
                self.reach(blobs.map(|blob| Node::Blob(&blob.digest)), &mut reached);
                let snapshots = self.namespace.snapshots.iter().filter(|one| is_root(&one.labels, now));
                self.reach(snapshots.map(|one| Node::Snapshot(&one.snapshotter, &one.name)), &mut reached);
            }
            Holder::OtherNamespace | Holder::Ingest | Holder::Nothing => {}
        }
        reached
    }

    /// Returns everything that has a holder other than an image: containers, unexpired leases, and labels.
    #[must_use]
    pub fn held(&self, now: UnixNanoseconds) -> BTreeSet<Node<'a>> {
        [Holder::Container, Holder::Lease, Holder::Label]
            .into_iter()
            .flat_map(|holder| self.held_by(holder, now))
            .collect()
    }

    /// Returns all blobs and snapshots.
    pub fn all(&self) -> impl Iterator<Item = Node<'a>> {
        let blobs = self.blobs.keys().map(|digest| Node::Blob(digest));
        blobs.chain(self.snapshots.keys().map(|(snapshotter, name)| Node::Snapshot(snapshotter, name)))
    }

    /// Returns the space of content that only other namespaces have.
    #[must_use]
    pub(super) fn foreign_space(&self, disk: Disk) -> Space {
        let blobs = self.namespace.foreign_content.iter();
        let blobs = blobs.filter(|(digest, _)| disk.has_content && !self.blobs.contains_key(digest.as_str()));
        let blobs = blobs.map(|(_, bytes)| blob_space(*bytes));
        let snapshots = self.namespace.foreign_snapshots.iter().filter_map(|one| one.space(disk));
        blobs.chain(snapshots).fold(Space::default(), Space::and)
    }

    /// Reports whether another namespace also has this blob.
    #[must_use]
    pub fn is_foreign(&self, node: &Node<'_>) -> bool {
        matches!(node, Node::Blob(digest) if self.namespace.foreign_content.contains_key(*digest))
    }

    /// Returns the number of ancestors of a snapshot.
    #[must_use]
    pub fn depth(&self, snapshotter: &str, name: &str) -> usize {
        let parent = |name: &str| {
            let one = self.snapshots.get(&(snapshotter, name))?;
            (!one.parent.is_empty()).then_some(&*one.parent)
        };
        // A chain has no cycle in an intact store; the bound is for others.
        std::iter::successors(parent(name), |name| parent(name)).take(self.snapshots.len()).count()
    }

    /// Returns the space that a node takes; `None` if unknown.
    pub(super) fn space(&self, node: &Node<'_>, disk: Disk) -> Option<Space> {
        match node {
            Node::Blob(_) if !disk.has_content => Some(Space::default()),
            Node::Blob(digest) => Some(blob_space(self.blobs.get(digest)?.bytes)),
            Node::Snapshot(snapshotter, name) => self.snapshots.get(&(*snapshotter, *name))?.space(disk),
        }
    }
}

impl LeaseRecord {
    /// Reports whether it has expired, so that containerd's next garbage collection removes it.
    #[must_use]
    pub fn is_expired(&self, now: UnixNanoseconds) -> bool {
        self.labels.get(LABEL_EXPIRES).and_then(|text| moment(text)).is_some_and(|expiry| expiry < now)
    }
}

impl Snapshot {
    /// Reports whether it names what needs it, by a label that is not followed here.
    pub(super) fn has_back_reference(&self) -> bool {
        self.labels.keys().any(|key| key.starts_with(LABEL_BACK))
    }

    /// Returns the space that it takes, including its directories; `None` if unknown.
    fn space(&self, disk: Disk) -> Option<Space> {
        let (usage, directories) = (self.usage?, SNAPSHOT_DIRECTORIES * disk.directory_bytes);
        Some(Space { bytes: usage.bytes + directories, inodes: usage.inodes + SNAPSHOT_DIRECTORIES })
    }
}

/// Returns the space that a blob of this size takes.
#[must_use]
pub fn blob_space(bytes: u64) -> Space {
    Space { bytes: bytes.next_multiple_of(BLOCK_BYTES), inodes: 1 }
}

/// Parses a time as containerd writes it (RFC 3339).
fn moment(text: &str) -> Option<UnixNanoseconds> {
    let at: jiff::Timestamp = text.parse().ok()?;
    i64::try_from(at.as_nanosecond()).ok().map(UnixNanoseconds)
}

fn is_root(labels: &Labels, now: UnixNanoseconds) -> bool {
    let is_expired =
        labels.get(LABEL_EXPIRES).and_then(|text| moment(text)).is_some_and(|expiry| expiry < now);
    labels.contains_key(LABEL_ROOT) && !is_expired
}

/// Returns the nodes that labels refer to.
fn references(labels: &Labels) -> impl Iterator<Item = Node<'_>> {
    labels.iter().filter_map(|(key, value)| {
        if let Some(snapshotter) = key.strip_prefix(LABEL_SNAPSHOT) {
            let snapshotter = snapshotter.split_once('/').map_or(snapshotter, |(name, _)| name);
            return Some(Node::Snapshot(snapshotter, value));
        }
        let rest = key.strip_prefix(LABEL_CONTENT)?;
        (rest.is_empty() || rest.starts_with(['.', '/'])).then_some(Node::Blob(value))
    })
}

/// Returns the node that a lease holds; `None` for an ingest.
fn resource<'a>(id: &'a str, kind: &'a str) -> Option<Node<'a>> {
    match kind.split_once('/') {
        Some(("snapshots", snapshotter)) => Some(Node::Snapshot(snapshotter, id)),
        None if kind == "content" => Some(Node::Blob(id)),
        _ => None,
    }
}

/// Facts about the disk with the images that containerd does not report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Bytes that a small directory takes: 4,096 on ext4, none on tmpfs.
    pub directory_bytes: u64,
    /// True if the content store is on this disk, too.
    pub has_content: bool,
}

/// Sets what each removal of a list frees, if all are made in this order. Returns false, and changes nothing, if that is not known
/// for all of them.
pub fn set_freed_space(
    list: &mut [Removal],
    namespace: &Namespace,
    disk: Disk,
    now: UnixNanoseconds,
) -> bool {
    let references = References::of(namespace);
    let mut owners: BTreeMap<&str, BTreeSet<Node<'_>>> =
        list.iter().map(|removal| (removal.id.digits(), BTreeSet::new())).collect();
    let mut held = references.held(now);
    held.extend(namespace.foreign_content.keys().map(|digest| Node::Blob(digest)));
    for image in &namespace.images {
        let nodes = references.of_name(image);
        let blobs = nodes.iter().filter_map(|node| match node {
            Node::Blob(digest) => digest.split_once(':').map(|(_, digits)| digits),
            Node::Snapshot(..) => None,
        });
        let ids: Vec<&str> = blobs.filter(|digits| owners.contains_key(digits)).collect();
        match ids.as_slice() {
            [id] => {
                if let Some(owned) = owners.get_mut(id) {
                    owned.extend(nodes);
                }
            }
            // This image stays.
            [] => held.extend(nodes),
            // Content for several platforms, and it is not known which of the images has this name.
            _ => return false,
        }
    }
    let mut holders: BTreeMap<&Node<'_>, usize> = BTreeMap::new();
    // Each copy of an image, for another runtime handler, needs the same.
    for node in list.iter().filter_map(|removal| owners.get(removal.id.digits())).flatten() {
        *holders.entry(node).or_insert(0) += 1;
    }
    let mut found = Vec::with_capacity(list.len());
    for removal in &*list {
        let Some(owned) = owners.get(removal.id.digits()).filter(|owned| !owned.is_empty()) else {
            return false;
        };
        let mut freed = Space::default();
        for node in owned {
            let Some(left) = holders.get_mut(node) else { continue };
            *left = left.saturating_sub(1);
            if *left > 0 || held.contains(node) {
                continue;
            }
            let Some(space) = references.space(node, disk) else { return false };
            freed = freed.and(space);
        }
        found.push(freed);
    }
    for (removal, freed) in list.iter_mut().zip(found) {
        removal.expected_freed_bytes = freed.bytes;
        removal.freed_space = Some(freed);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: &str = "2027-01-31T12:00:00Z";

    /// A lease and a root end after the moment that they name.
    #[test]
    fn what_expires_now_still_counts() {
        let noon = moment(NOON).expect("a time");
        let root = |more: &[(&str, &str)]| -> Labels {
            more.iter()
                .chain(&[(LABEL_ROOT, "x")])
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect()
        };
        for (nanoseconds, has_expired) in [(-1, false), (0, false), (1, true)] {
            let now = UnixNanoseconds(noon.0 + nanoseconds);
            let labels = root(&[(LABEL_EXPIRES, NOON)]);
            assert_eq!(is_root(&labels, now), !has_expired, "{nanoseconds}");
            let lease = LeaseRecord { labels, ..LeaseRecord::default() };
            assert_eq!(lease.is_expired(now), has_expired, "{nanoseconds}");
        }
        assert!(is_root(&root(&[]), noon) && !is_root(&Labels::new(), noon));
    }

    #[test]
    fn a_lease_holds_snapshots_and_content() {
        for (kind, expected) in [
            ("content", Some(Node::Blob("x"))),
            ("snapshots/overlayfs", Some(Node::Snapshot("overlayfs", "x"))),
            ("ingests", None),
            ("content/x", None),
        ] {
            assert_eq!(resource("x", kind), expected, "{kind}");
        }
    }
}
