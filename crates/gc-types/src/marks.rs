//! Retention annotations of an object.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use crate::Timestamp;

/// Retention annotations of an object, unparsed: `kubegc.io/ttl`, `kubegc.io/expires-at`, `kubegc.io/keep`, and those of other
/// tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// `creationTimestamp`, if it is valid.
    pub created: Option<Timestamp>,
    /// `kubegc.io/ttl`: a duration.
    pub ttl: Option<Arc<str>>,
    /// `kubegc.io/expires-at`: RFC 3339.
    pub expires_at: Option<Arc<str>>,
    /// `kubegc.io/keep`: `true` or `false`.
    pub keep: Option<Arc<str>>,
    /// Annotations and labels of other tools, in the order of [`ForeignMark::ALL`].
    pub foreign: [Option<Arc<str>>; ForeignMark::ALL.len()],
}

/// An annotation or label with which another tool expires objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ForeignMark {
    /// kube-janitor's time to live.
    JanitorTtl,
    /// kube-janitor's time of expiry.
    JanitorExpires,
    /// Time to live of k8s-ttl-controller.
    TtlController,
    /// Time at which k8s-ttl-controller's time to live was last restarted.
    TtlControllerRefreshed,
    /// Kyverno's time to live or time of expiry, which is a label.
    Kyverno,
}

impl ForeignMark {
    /// All marks.
    pub const ALL: [Self; 5] = [
        Self::JanitorTtl,
        Self::JanitorExpires,
        Self::TtlController,
        Self::TtlControllerRefreshed,
        Self::Kyverno,
    ];

    /// Returns its name as an annotation or label.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::JanitorTtl => "janitor/ttl",
            Self::JanitorExpires => "janitor/expires",
            Self::TtlController => "k8s-ttl-controller.twin.sh/ttl",
            Self::TtlControllerRefreshed => "k8s-ttl-controller.twin.sh/refreshed-at",
            Self::Kyverno => "cleanup.kyverno.io/ttl",
        }
    }

    /// Reports whether it is a label.
    #[must_use]
    pub const fn is_label(self) -> bool {
        matches!(self, Self::Kyverno)
    }

    fn with_key(key: &[u8], is_label: bool) -> Option<Self> {
        Self::ALL.into_iter().find(|mark| mark.is_label() == is_label && mark.key().as_bytes() == key)
    }
}

impl Marks {
    /// Reports whether there are no retention annotations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let own = [&self.ttl, &self.expires_at, &self.keep];
        own.into_iter().chain(&self.foreign).all(Option::is_none)
    }

    /// Reports whether the object is kept. Any value but `false` keeps it, including a misspelt `true`.
    #[must_use]
    pub fn keeps(&self) -> bool {
        self.keep.as_deref().is_some_and(|keep| keep != "false")
    }

    /// Returns the text of another tool's mark.
    #[must_use]
    pub const fn foreign(&self, mark: ForeignMark) -> Option<&Arc<str>> {
        self.foreign[mark as usize].as_ref()
    }

    /// Returns the marks of other tools, with their texts.
    pub fn foreign_marks(&self) -> impl Iterator<Item = (ForeignMark, &Arc<str>)> {
        ForeignMark::ALL.into_iter().filter_map(|mark| Some((mark, self.foreign(mark)?)))
    }

    /// Returns where to store the text of the annotation with this name, if it is one about retention.
    pub fn annotation_mut(&mut self, name: &[u8]) -> Option<&mut Option<Arc<str>>> {
        match name {
            b"kubegc.io/ttl" => Some(&mut self.ttl),
            b"kubegc.io/expires-at" => Some(&mut self.expires_at),
            b"kubegc.io/keep" => Some(&mut self.keep),
            _ => ForeignMark::with_key(name, false).map(|mark| &mut self.foreign[mark as usize]),
        }
    }

    /// Returns where to store the text of the label with this name, if it is one about retention.
    pub fn label_mut(&mut self, name: &[u8]) -> Option<&mut Option<Arc<str>>> {
        ForeignMark::with_key(name, true).map(|mark| &mut self.foreign[mark as usize])
    }

    /// Combines the marks of annotations with those of labels.
    #[must_use]
    pub fn with_labels(mut self, labels: &Self) -> Self {
        for mark in ForeignMark::ALL.into_iter().filter(|mark| mark.is_label()) {
            self.foreign[mark as usize].clone_from(&labels.foreign[mark as usize]);
        }
        self
    }
}

/// A map of texts, such as labels or annotations, of which [`read_texts`] reads some.
pub trait Texts: Default {
    /// Returns where to store the text with this name, if it is read.
    fn text_mut(&mut self, name: &[u8]) -> Option<&mut Option<Arc<str>>>;
}

/// Deserializes a map of texts without allocating those that nothing needs. The map may be null, and so may a text; a text that is
/// read may not occur twice.
pub fn read_texts<'de, D: Deserializer<'de>, T: Texts>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_option(TextsVisitor(PhantomData))
}

struct TextsVisitor<T>(PhantomData<T>);

impl<'de, T: Texts> Visitor<'de> for TextsVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of texts")
    }

    fn visit_none<E>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let mut texts = T::default();
        while let Some(Name(name)) = map.next_key()? {
            match texts.text_mut(name.as_bytes()) {
                None => drop(map.next_value::<IgnoredAny>()?),
                Some(Some(_)) => return Err(A::Error::custom(format_args!("{name:?} occurs twice"))),
                Some(text) => *text = map.next_value::<Option<String>>()?.map(Into::into),
            }
        }
        Ok(texts)
    }
}

/// A name, borrowed from the input if it has no escapes.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);
