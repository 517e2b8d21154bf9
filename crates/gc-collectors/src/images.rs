//! Selection of the images to remove, their order, and the reasons (spec `node-gc.md`, sections 3 to 7).
//!
//! * [`history`]: when each image was first seen and last used; survives restarts.
//! * [`usage`]: which images are in use, by every spelling that a container may use for one.
//! * [`patterns`]: lists of references and patterns, such as the images that an operator protects.
//! * [`rules`]: by reference, which images go last and which are unwanted.
//! * [`peers`]: copies of images on other nodes.
//! * [`plan`]: the ordered removals for age, for disk space and for pressure.
//! * [`layers`]: layers that images share.
//! * [`space`]: how much to remove, by measured filesystems rather than by reported sizes.
//! * [`stores`]: what a removal frees, where containerd tells the sizes of blobs and snapshots.
//! * [`account`]: what occupies the stores of containerd, and what of that is unused.
//! * [`storage`]: the same of the storage of CRI-O.
//! * [`forecast`]: how many images a pass removes, as a number or a range.

pub mod account;
pub mod forecast;
pub mod history;
pub mod layers;
mod names;
pub mod needs;
pub mod patterns;
pub mod peers;
pub mod plan;
#[cfg(test)]
mod reference;
pub mod rules;
pub mod space;
pub mod storage;
pub mod stores;
pub mod usage;

use std::fmt;
use std::sync::Arc;

/// Full, node-local identifier of an image, never shortened and never empty (a runtime takes an empty or short one for a prefix,
/// and may remove another image).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ImageId(Arc<str>);

impl ImageId {
    /// Accepts an identifier as the runtime lists it; `None` if it is too short to be a full one.
    ///
    /// ```
    /// use gc_collectors::images::ImageId;
    /// assert!(ImageId::new("").is_none());
    /// assert!(ImageId::new("sha256:12ab").is_none());
    /// ```
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let digest = text.strip_prefix("sha256:").unwrap_or(text);
        let full = digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit());
        full.then(|| Self(text.into()))
    }

    /// Returns the identifier as the runtime writes it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns only the hexadecimal digits, which containerd (`sha256:…`) and CRI-O (bare) have in common.
    #[must_use]
    pub fn digits(&self) -> &str {
        self.0.strip_prefix("sha256:").unwrap_or(&self.0)
    }
}

impl fmt::Display for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A layer of images: the first 16 digits of the digest of its content. They distinguish the layers of a node, and are used for
/// estimates only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LayerId(u64);

impl LayerId {
    /// Parses a digest as the runtime writes it; `None` if it is not one.
    ///
    /// ```
    /// use gc_collectors::images::LayerId;
    /// let digits = "a".repeat(64);
    /// assert_eq!(LayerId::new(&format!("sha256:{digits}")), LayerId::new(&digits));
    /// assert!(LayerId::new("sha256:12ab").is_none());
    /// ```
    #[must_use]
    pub fn new(digest: &str) -> Option<Self> {
        let digits = digest.split_once(':').map_or(digest, |(_, digits)| digits);
        let first = digits.get(..16).filter(|first| first.bytes().all(|b| b.is_ascii_hexdigit()))?;
        u64::from_str_radix(first, 16).ok().map(Self)
    }
}

/// One image as the runtime lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Identifier of the image.
    pub id: ImageId,
    /// `registry/repository:tag`, any number.
    pub repo_tags: Vec<Arc<str>>,
    /// `registry/repository@sha256:…`, any number.
    pub repo_digests: Vec<Arc<str>>,
    /// Size in bytes as the runtime reports it: compressed blobs on containerd, unpacked layers on CRI-O.
    pub size_bytes: u64,
    /// True if the runtime asks to keep it.
    pub pinned: bool,
    /// Runtime handler that this copy belongs to; empty if the runtime keeps one copy for all.
    pub runtime_handler: Arc<str>,
    /// Layers of the image, each once, if the runtime reports them.
    pub layers: Arc<[LayerId]>,
}

impl Image {
    /// Returns the display name: the first tag, else the first digest, else the identifier.
    #[must_use]
    pub fn display_name(&self) -> &Arc<str> {
        self.repo_tags.first().or(self.repo_digests.first()).unwrap_or(&self.id.0)
    }

    /// Reports whether it can be pulled again, because it was pulled by digest or at least has one.
    #[must_use]
    pub fn can_be_pulled_again(&self) -> bool {
        !self.repo_digests.is_empty()
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Builders for the tables of this module's tests.

    use gc_types::UnixNanoseconds;

    use super::plan::{Removal, RemovalReason};
    use super::*;

    /// Returns the identifier `sha256:000…number`.
    pub(crate) fn id(number: u64) -> ImageId {
        ImageId::new(&format!("sha256:{number:064x}")).expect("64 digits")
    }

    pub(crate) fn image(number: u64, size_bytes: u64) -> Image {
        Image {
            id: id(number),
            repo_tags: vec![format!("registry.example/image-{number}:v1").into()],
            repo_digests: vec![
                format!("registry.example/image-{number}@sha256:{:064x}", number + 0xd000).into(),
            ],
            size_bytes,
            pinned: false,
            runtime_handler: "".into(),
            layers: Arc::default(),
        }
    }

    /// Returns the removal of an image for space.
    pub(crate) fn removal(number: u64, size_bytes: u64) -> Removal {
        Removal {
            id: id(number),
            name: format!("image-{number}").into(),
            runtime_handler: "".into(),
            reason: RemovalReason::Space,
            size_bytes,
            expected_freed_bytes: size_bytes,
            freed_space: None,
            first_seen: UnixNanoseconds(0),
            last_used: None,
            irreplaceable: false,
        }
    }

    /// Returns a distinct layer for each number.
    pub(crate) fn layer(number: u64) -> LayerId {
        LayerId(number)
    }
}
