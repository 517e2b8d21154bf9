//! Images in use (spec `node-gc.md`, section 4).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::hash::BuildHasher as _;
use std::sync::Arc;

use hashbrown::hash_table::Entry;
use hashbrown::{HashMap, HashTable};

use super::names::full_name;
use super::needs::NeededImages;
use super::{Image, ImageId};
use crate::FixedState;

/// All image references of one container, from every CRI field for them, and the images that it mounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerImages {
    /// The container, for messages.
    pub container: Arc<str>,
    /// `image_id`, `image_ref` and `image.image`, whichever are not empty.
    pub references: Vec<Arc<str>>,
    /// Images mounted as volumes.
    pub volumes: Vec<Arc<str>>,
}

/// The images in use, and what prevented others from being found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Images that something uses.
    pub in_use: BTreeSet<ImageId>,
    /// References that match no listed image. That is normal (the image was removed earlier).
    pub unresolved: BTreeSet<Arc<str>>,
    /// Containers that name no image at all. While there is one, nothing may be removed, since it may use any image.
    pub unreadable: Vec<Arc<str>>,
    /// Images that nothing uses, but that workloads will need.
    pub needed: NeededImages,
}

/// An index of images by all of their names.
#[derive(Debug)]
pub struct ImageIndex<'a> {
    images: &'a [Image],
    /// First links of images by the digits of their identifiers and digests. Never iterated; nor is `by_name`.
    by_digits: HashTable<usize>,
    /// First links of images by the full name of each tag, and of other kinds of digests.
    by_name: HashMap<Cow<'a, str>, usize, FixedState>,
    links: Vec<Link<'a>>,
}

/// One name of one image.
#[derive(Debug)]
struct Link<'a> {
    name: &'a str,
    /// Its index in `images`.
    image: usize,
    /// Index of the next link of the same name; [`END`] if it is the last.
    next: usize,
}

/// No further link.
const END: usize = usize::MAX;
/// Number of digits that identify content: those of a SHA-256.
const DIGITS: usize = 64;

impl<'a> ImageIndex<'a> {
    /// Creates an index of a complete listing.
    #[must_use]
    pub fn new(images: &'a [Image]) -> Self {
        let count = |names: fn(&Image) -> usize| images.iter().map(names).sum::<usize>();
        let (tags, digests) = (count(|image| image.repo_tags.len()), count(|image| image.repo_digests.len()));
        let mut index = Self {
            images,
            by_digits: HashTable::with_capacity(images.len() + digests),
            by_name: HashMap::with_capacity_and_hasher(tags, FixedState::default()),
            links: Vec::with_capacity(images.len() + tags + digests),
        };
        for (place, image) in images.iter().enumerate() {
            let names = image.repo_tags.iter().chain(&image.repo_digests).map(|name| &**name);
            for name in std::iter::once(image.id.digits()).chain(names) {
                index.add(name, place);
            }
        }
        index
    }

    fn add(&mut self, name: &'a str, image: usize) {
        let (link, links) = (self.links.len(), &self.links);
        // The digits of a digest are enough: the same content has the same digits under every name.
        let (name, next) = match digits_of(name).filter(|digits| are_digits(digits)) {
            Some(digits) => {
                let same = |known: &usize| links.get(*known).is_some_and(|link| equal(link.name, digits));
                let rehash = |known: &usize| links.get(*known).map_or(0, |link| hash_of_digits(link.name));
                let next = match self.by_digits.entry(hash_of_digits(digits), same, rehash) {
                    Entry::Occupied(mut known) => std::mem::replace(known.get_mut(), link),
                    Entry::Vacant(free) => {
                        free.insert(link);
                        END
                    }
                };
                (digits, next)
            }
            None => (name, self.by_name.insert(full_name(name), link).unwrap_or(END)),
        };
        self.links.push(Link { name, image, next });
    }

    /// Returns the images that a reference may mean: an identifier with or without `sha256:`, a tag, or a digest, with or without
    /// the registry, folder and tag that short names omit.
    #[must_use]
    pub fn resolve(&self, reference: &str) -> BTreeSet<ImageId> {
        let mut found = BTreeSet::new();
        self.places(reference, |place| {
            found.extend(self.images.get(place).map(|image| image.id.clone()));
        });
        found
    }

    /// Passes on the indexes of these images, and returns whether there are any.
    fn places(&self, reference: &str, mut found: impl FnMut(usize)) -> bool {
        let mut follow = |first: Option<&usize>| {
            let mut next = first.copied().unwrap_or(END);
            while let Some(link) = self.links.get(next) {
                found(link.image);
                next = link.next;
            }
            first.is_some()
        };
        if let Some(digits) = digits_of(reference) {
            let same = |known: &usize| self.links.get(*known).is_some_and(|link| equal(link.name, digits));
            if follow(self.by_digits.find(hash_of_digits(digits), same)) {
                return true;
            }
            if are_digits(digits) {
                return false;
            }
        }
        follow(self.by_name.get(&*full_name(reference)))
    }
}

/// Returns the last 64 bytes of a reference, with or without `sha256:` or a name before them, if they may be the digits of an
/// identifier or digest, which are decisive.
fn digits_of(reference: &str) -> Option<&str> {
    let digest = match reference.len() {
        // An identifier, bare or prefixed, as nearly all containers have it.
        64 | 71 if !reference.contains('@') => reference,
        _ => reference.split_once('@').map_or(reference, |(_, digest)| digest),
    };
    Some(digest.strip_prefix("sha256:").unwrap_or(digest)).filter(|digits| digits.len() == DIGITS)
}

fn are_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Compares digits, which are nearly always lower case.
fn equal(one: &str, other: &str) -> bool {
    one == other || one.eq_ignore_ascii_case(other)
}

/// Returns a hash of both ends of the digits, which is as good as one of all digits. Ignores case.
fn hash_of_digits(digits: &str) -> u64 {
    let part = |bytes: Option<&[u8; 16]>| {
        bytes.map_or(0, |bytes| u128::from_le_bytes(*bytes) | u128::from_le_bytes([b' '; 16]))
    };
    let bytes = digits.as_bytes();
    FixedState::default().hash_one((part(bytes.first_chunk()), part(bytes.last_chunk())))
}

/// Returns the images that containers (in any state, of any client) and bound pods use.
#[must_use]
pub fn usage(index: &ImageIndex<'_>, containers: &[ContainerImages], named_by_pods: &[Arc<str>]) -> Usage {
    let mut usage = Usage::default();
    for container in containers {
        if container.references.is_empty() {
            usage.unreadable.push(container.container.clone());
        }
    }
    let references =
        containers.iter().flat_map(|c| c.references.iter().chain(&c.volumes)).chain(named_by_pods);
    let mut used = vec![false; index.images.len()];
    for reference in references {
        if !index.places(reference, |place| used[place] = true) {
            usage.unresolved.insert(reference.clone());
        }
    }
    let in_use = index.images.iter().zip(used).filter(|(_, used)| *used);
    usage.in_use = in_use.map(|(image, _)| image.id.clone()).collect();
    usage
}

#[cfg(test)]
mod tests {
    use super::super::testing::{id, image};
    use super::*;

    fn uses(references: &[&str], volumes: &[&str]) -> ContainerImages {
        let own = |list: &[&str]| list.iter().map(|&text| text.into()).collect();
        ContainerImages { container: "c".into(), references: own(references), volumes: own(volumes) }
    }

    /// T9, T10, T19 to T24, T33 and T35: the image is found by any field and spelling.
    #[test]
    fn every_spelling_of_a_reference_counts() {
        let hex = |n: u64| format!("{n:064x}");
        let mut bare = image(4, 1);
        bare.id = ImageId::new(&hex(4)).expect("full");
        let mut short = image(5, 1);
        short.repo_tags = vec!["docker.io/library/busybox:latest".into(), "docker.io/team/app:v2".into()];
        short.repo_digests.push("registry.example/odd@sha512:beef".into());
        let mut shim = image(6, 1);
        shim.repo_tags = vec!["redis:7".into()];
        let images = [image(1, 1), image(2, 1), image(3, 1), bare, short, shim];
        let index = ImageIndex::new(&images);
        for (reference, expected) in [
            (format!("sha256:{}", hex(1)), vec![id(1)]),
            (hex(1), vec![id(1)]),
            (format!("sha256:{}", hex(4)), vec![ImageId::new(&hex(4)).expect("full")]),
            ("registry.example/image-2:v1".into(), vec![id(2)]),
            (format!("registry.example/image-3@sha256:{}", hex(3 + 0xd000)), vec![id(3)]),
            (format!("sha256:{}", hex(3 + 0xd000)), vec![id(3)]),
            (format!("registry.example/image-3:v1@sha256:{}", hex(3 + 0xd000)), vec![id(3)]),
            (format!("mirror.example/copy@sha256:{}", hex(3 + 0xd000)), vec![id(3)]),
            ("registry.example/odd@sha512:beef".into(), vec![id(5)]),
            ("registry.example/image-3@sha512:beef".into(), vec![]),
            ("busybox".into(), vec![id(5)]),
            ("busybox:latest".into(), vec![id(5)]),
            ("team/app:v2".into(), vec![id(5)]),
            ("docker.io/busybox".into(), vec![id(5)]),
            ("docker.io/busybox:latest".into(), vec![id(5)]),
            ("index.docker.io/busybox:latest".into(), vec![id(5)]),
            ("index.docker.io/library/busybox".into(), vec![id(5)]),
            ("docker.io/team/app:v2".into(), vec![id(5)]),
            ("index.docker.io/team/app:v2".into(), vec![id(5)]),
            // Listed by a runtime that omits the registry.
            ("docker.io/library/redis:7".into(), vec![id(6)]),
            ("redis:7".into(), vec![id(6)]),
            ("team/app".into(), vec![]),
            ("registry.example/image-2:v9".into(), vec![]),
            (String::new(), vec![]),
            ("sha256:".into(), vec![]),
        ] {
            assert_eq!(index.resolve(&reference).into_iter().collect::<Vec<_>>(), expected, "{reference}");
        }
    }

    #[test]
    fn containers_volumes_and_pods_count_alike() {
        let images = [image(1, 1), image(2, 1), image(3, 1), image(4, 1)];
        let found = usage(
            &ImageIndex::new(&images),
            &[uses(&["registry.example/image-1:v1", "gone:v1"], &[id(3).as_str()]), uses(&[], &[])],
            &["registry.example/image-2:v1".into()],
        );
        // T20: fields that disagree keep both images; upstream would only use `image_id`.
        let disagreeing =
            usage(&ImageIndex::new(&images), &[uses(&[id(1).as_str(), id(4).as_str()], &[])], &[]);
        assert_eq!(disagreeing.in_use, [id(1), id(4)].into());
        assert_eq!(
            found,
            Usage {
                in_use: [id(1), id(2), id(3)].into(),
                unresolved: [Arc::from("gone:v1")].into(),
                unreadable: vec!["c".into()],
                ..Usage::default()
            }
        );
    }

    #[test]
    fn digits_are_found_in_every_spelling() {
        let (digits, name) = ("a1".repeat(32), "registry.example/");
        for (reference, expected) in [
            (digits.clone(), Some(&digits)),
            (format!("sha256:{digits}"), Some(&digits)),
            (format!("{name}@{digits}"), Some(&digits)),
            // As long as an identifier with its prefix.
            (format!("abcdef@{digits}"), Some(&digits)),
            (format!("{name}@sha256:{digits}"), Some(&digits)),
            (format!("{name}@sha512:{digits}{digits}"), None),
            (digits[1..].to_owned(), None),
        ] {
            assert_eq!(digits_of(&reference), expected.map(String::as_str), "{reference}");
        }
        let hashes =
            [digits.clone(), digits.to_uppercase(), "b1".repeat(32)].map(|text| hash_of_digits(&text));
        assert_eq!((hashes[0], hashes[0] == hashes[2]), (hashes[1], false), "{hashes:?}");
    }

    /// A name may be as long as an identifier.
    #[test]
    fn a_name_of_64_bytes_is_a_name() {
        let name = format!("registry.example/{}:v1", "x".repeat(44));
        assert_eq!(name.len(), 64);
        let mut named = image(1, 1);
        named.repo_tags = vec![name.as_str().into()];
        let mut short = image(2, 1);
        let omitted = format!("{}:v1", "y".repeat(61));
        short.repo_tags = vec![format!("docker.io/library/{omitted}").into()];
        let images = [named, short];
        let index = ImageIndex::new(&images);
        assert_eq!([name, omitted].map(|name| index.resolve(&name)), [[id(1)].into(), [id(2)].into()]);
    }
}
