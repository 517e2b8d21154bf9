//! Which images are in use (spec `node-gc.md`, section 4).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Image, ImageId};

/// What one container says of its image, in every field that CRI has for it, and of the images it mounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerImages {
    /// The container, for messages.
    pub container: Arc<str>,
    /// `image_id`, `image_ref` and `image.image`, whichever are not empty.
    pub references: Vec<Arc<str>>,
    /// Images mounted as volumes.
    pub volumes: Vec<Arc<str>>,
}

/// The images in use, and what kept some of them from being found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Images that something uses.
    pub in_use: BTreeSet<ImageId>,
    /// References that no listed image answers to. That is normal (the image was removed earlier).
    pub unresolved: BTreeSet<Arc<str>>,
    /// Containers that name no image at all: nothing may be removed while there is one, since it may use any.
    pub unreadable: Vec<Arc<str>>,
}

/// Finds images by every name they have.
#[derive(Debug)]
pub struct ImageIndex {
    by_name: BTreeMap<Arc<str>, BTreeSet<ImageId>>,
}

impl ImageIndex {
    /// An index over a complete listing.
    #[must_use]
    pub fn new(images: &[Image]) -> Self {
        let mut by_name: BTreeMap<Arc<str>, BTreeSet<ImageId>> = BTreeMap::new();
        let mut add = |name: &str, id: &ImageId| {
            by_name.entry(name.into()).or_default().insert(id.clone());
        };
        for image in images {
            add(image.id.digits(), &image.id);
            for name in image.repo_tags.iter().chain(&image.repo_digests) {
                add(name, &image.id);
            }
            // A bare digest (`sha256:…` of a manifest) is how some runtimes shorten a repo digest.
            for digest in image.repo_digests.iter().filter_map(|name| name.split_once('@')) {
                add(digest.1.strip_prefix("sha256:").unwrap_or(digest.1), &image.id);
            }
        }
        Self { by_name }
    }

    /// The images that a reference may mean: an identifier with or without `sha256:`, a tag, a digest, each
    /// with the registry and tag that docker-style short names leave out.
    #[must_use]
    pub fn resolve(&self, reference: &str) -> BTreeSet<ImageId> {
        let bare = reference.strip_prefix("sha256:").unwrap_or(reference);
        let mut found = BTreeSet::new();
        for name in std::iter::once(bare.to_owned()).chain(normalised_names(reference)) {
            found.extend(self.by_name.get(name.as_str()).into_iter().flatten().cloned());
        }
        found
    }
}

/// `busybox` → `busybox:latest`, `docker.io/library/busybox:latest`, …: the full names of a short one.
fn normalised_names(reference: &str) -> Vec<String> {
    let (path, suffix) = match reference.split_once('@') {
        Some((path, digest)) => (path, format!("@{digest}")),
        None => match reference.rsplit_once(':') {
            Some((path, tag)) if !tag.contains('/') => (path, format!(":{tag}")),
            _ => (reference, ":latest".to_owned()),
        },
    };
    let first = path.split('/').next().unwrap_or_default();
    let has_registry = path.contains('/') && (first.contains(['.', ':']) || first == "localhost");
    let mut names = vec![format!("{path}{suffix}")];
    if !has_registry {
        names.push(format!("docker.io/{path}{suffix}"));
        if !path.contains('/') {
            names.push(format!("docker.io/library/{path}{suffix}"));
        }
    }
    names
}

/// Which images the containers (in any state, of anybody) and the bound pods use.
#[must_use]
pub fn usage(index: &ImageIndex, containers: &[ContainerImages], named_by_pods: &[Arc<str>]) -> Usage {
    let mut usage = Usage::default();
    for container in containers {
        if container.references.is_empty() {
            usage.unreadable.push(container.container.clone());
        }
    }
    let references =
        containers.iter().flat_map(|c| c.references.iter().chain(&c.volumes)).chain(named_by_pods);
    for reference in references {
        let found = index.resolve(reference);
        if found.is_empty() {
            usage.unresolved.insert(reference.clone());
        }
        usage.in_use.extend(found);
    }
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

    /// T9, T10, T19 to T24, T33 and T35: whatever the field and the spelling, the image is found.
    #[test]
    fn every_spelling_of_a_reference_counts() {
        let hex = |n: u64| format!("{n:064x}");
        let mut bare = image(4, 1);
        bare.id = ImageId::new(&hex(4)).expect("full");
        let mut short = image(5, 1);
        short.repo_tags = vec!["docker.io/library/busybox:latest".into(), "docker.io/team/app:v2".into()];
        let images = [image(1, 1), image(2, 1), image(3, 1), bare, short];
        let index = ImageIndex::new(&images);
        for (reference, expected) in [
            (format!("sha256:{}", hex(1)), vec![id(1)]),
            (hex(1), vec![id(1)]),
            (format!("sha256:{}", hex(4)), vec![ImageId::new(&hex(4)).expect("full")]),
            ("registry.example/image-2:v1".into(), vec![id(2)]),
            (format!("registry.example/image-3@sha256:{}", hex(3 + 0xd000)), vec![id(3)]),
            (format!("sha256:{}", hex(3 + 0xd000)), vec![id(3)]),
            ("busybox".into(), vec![id(5)]),
            ("busybox:latest".into(), vec![id(5)]),
            ("team/app:v2".into(), vec![id(5)]),
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
        // T20: fields that disagree keep both images; upstream would take the word of `image_id` alone.
        let disagreeing =
            usage(&ImageIndex::new(&images), &[uses(&[id(1).as_str(), id(4).as_str()], &[])], &[]);
        assert_eq!(disagreeing.in_use, [id(1), id(4)].into());
        assert_eq!(
            found,
            Usage {
                in_use: [id(1), id(2), id(3)].into(),
                unresolved: [Arc::from("gone:v1")].into(),
                unreadable: vec!["c".into()],
            }
        );
    }
}
