//! A transport that lies: in some worlds, one answer says something else than the server did. Which one, and when, is decided by
//! the seed. From then on one law is judged: whatever that answer says, nothing is lost that lives by the store's own log.
//!
//! What cannot be read as a list of the kind that was asked for (`{}`, a proxy's page, items without a version) is refused by the
//! code that reads lists, which is not simulated; here it comes to a list that failed. Out of scope is a liar who tells the same lie
//! to lists, to watches and to live reads.

use std::sync::Arc;

use gc_registry::api::{Object, ObjectList};
use gc_registry::error::ApiError;

use crate::kinds::{KINDS, Kind};
use crate::metadata::Metadata;
use crate::random::Random;
use crate::server::Server;
use crate::story::Story;

/// Age in revisions of a list that is sent as a new one.
const BEHIND: u64 = 12;
/// How far ahead of the server a list claims to be.
const AHEAD: u64 = 7;

/// A lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lie {
    /// A list says that there is nothing.
    Empty,
    /// A list is complete after half of its objects: a continue token was lost.
    Short,
    /// A list has each object twice.
    Twice,
    /// A list is of a moment ago, and says so.
    Old,
    /// A list is of a moment ago, and says that it is of now.
    OldAsNew,
    /// A list says that it is newer than the server is.
    Ahead,
    /// A list has the objects of another resource.
    OtherResource,
    /// A list does not say its version.
    Unversioned,
    /// A list cannot be read as a list of its kind.
    Unreadable,
    /// A watch delivers again what was deleted long ago.
    Revived,
    /// A live read is answered with 404 about another object.
    NotFoundOther,
    /// A live read is answered with 404 about the same name in another resource.
    NotFoundElsewhere,
    /// A live read is answered with a Status of reason NotFound that names nothing.
    NotFoundNameless,
    /// A live read is answered with another object: an answer to another request.
    Crossed,
    /// A live read is answered with an object that is gone.
    FoundGone,
}

impl Lie {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Empty,
        Self::Short,
        Self::Twice,
        Self::Old,
        Self::OldAsNew,
        Self::Ahead,
        Self::OtherResource,
        Self::Unversioned,
        Self::Unreadable,
        Self::Revived,
        Self::NotFoundOther,
        Self::NotFoundElsewhere,
        Self::NotFoundNameless,
        Self::Crossed,
        Self::FoundGone,
    ];

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Empty => "lies: an empty list",
            Self::Short => "lies: a list that ends early",
            Self::Twice => "lies: a list twice",
            Self::Old => "lies: an old list",
            Self::OldAsNew => "lies: an old list as a new one",
            Self::Ahead => "lies: a list ahead of the server",
            Self::OtherResource => "lies: another resource's list",
            Self::Unversioned => "lies: a list without a version",
            Self::Unreadable => "lies: no list",
            Self::Revived => "lies: ADDED for what is gone",
            Self::NotFoundOther => "lies: 404 about another object",
            Self::NotFoundElsewhere => "lies: 404 about another resource",
            Self::NotFoundNameless => "lies: 404 about nothing",
            Self::Crossed => "lies: the answer to another read",
            Self::FoundGone => "lies: 200 for what is gone",
        }
    }

    /// Whether it replaces a list of a watch.
    #[must_use]
    pub const fn is_of_lists(self) -> bool {
        (self as u8) < (Self::Revived as u8)
    }

    /// Whether it replaces the answer to a live read.
    #[must_use]
    pub const fn is_of_reads(self) -> bool {
        (self as u8) > (Self::Revived as u8)
    }
}

/// The liar of a world: tells one lie.
#[derive(Clone, Copy, Debug)]
pub struct Liar {
    /// What it says.
    pub lie: Lie,
    /// After which of the story's steps it is tempted.
    pub at: usize,
    /// What its other choices come from.
    pub salt: u64,
}

impl Liar {
    /// The liar of a story.
    #[must_use]
    pub fn of(story: &Story) -> Self {
        let mut random = Random::new(story.seed ^ 0x006c_6961_7273);
        let lie = random.pick(&Lie::ALL);
        let steps = story.steps.len().max(1);
        Self { lie, at: steps / 6 + random.below(steps - steps / 6), salt: random.next() }
    }
}

/// A list as a liar tells it: its objects, those of another resource perhaps, and its version. `None` if it cannot be read.
pub(crate) fn list_instead(
    (lie, salt): (Lie, u64),
    honest: ObjectList,
    kind: usize,
    server: &Server,
) -> Option<(Vec<Arc<Object>>, String)> {
    let ObjectList { mut items, resource_version, .. } = honest;
    let before = || {
        let at = server.revision().saturating_sub(BEHIND);
        server.list(&KINDS[kind], "", Some(at)).and_then(Result::ok)
    };
    let mut version = resource_version;
    match lie {
        Lie::Empty => items.clear(),
        Lie::Short => items.truncate(items.len() / 2),
        Lie::Twice => items.extend(items.clone()),
        Lie::Old | Lie::OldAsNew => {
            if let Some(old) = before() {
                items = old.items;
                if lie == Lie::Old {
                    version = old.resource_version;
                }
            }
        }
        Lie::Ahead => version = (server.revision() + AHEAD).to_string(),
        Lie::OtherResource => {
            let other = Random::new(salt).below(KINDS.len());
            let other = server.list(&KINDS[other], "", None).and_then(Result::ok);
            items = other.map(|list| list.items).unwrap_or_default();
        }
        Lie::Unversioned => version = String::new(),
        Lie::Unreadable => return None,
        _ => {}
    }
    Some((items, version))
}

/// Something that was there and is not any more, if there is such a thing among the last revisions.
pub(crate) fn gone_object(kind: &Kind, salt: u64, server: &Server) -> Option<Arc<Object>> {
    let at = server.revision().saturating_sub(BEHIND);
    let now = server.list(kind, "", None)?.ok()?.items;
    let uids: Vec<String> = now.iter().filter_map(|item| Some(Metadata::of(item)?.uid.to_owned())).collect();
    let then = server.list(kind, "", Some(at))?.ok()?.items;
    let is_gone =
        |item: &&Arc<Object>| Metadata::of(item).is_some_and(|one| !uids.iter().any(|uid| *uid == *one.uid));
    let gone: Vec<&Arc<Object>> = then.iter().filter(is_gone).collect();
    (!gone.is_empty()).then(|| Arc::clone(gone[Random::new(salt).below(gone.len())]))
}

/// What a liar answers to a GET, in place of the server. `None` where it has nothing to say.
pub(crate) fn read_instead(
    (lie, salt): (Lie, u64),
    kind: &Kind,
    (namespace, name): (&str, &str),
    server: &Server,
) -> Option<Result<Arc<Object>, ApiError>> {
    let found = server.get(kind, namespace, name)?;
    match lie {
        Lie::NotFoundOther => Some(Err(ApiError::not_found(kind.group, kind.resource, "another"))),
        Lie::NotFoundElsewhere => Some(Err(ApiError::not_found("example.com", "others", name))),
        Lie::NotFoundNameless => Some(Err(ApiError::not_found("", "", ""))),
        Lie::Crossed => {
            let others = server.list(kind, "", None)?.ok()?.items;
            let is_other = |item: &&Arc<Object>| Metadata::of(item).is_some_and(|one| *one.name != *name);
            let others: Vec<&Arc<Object>> = others.iter().filter(is_other).collect();
            (!others.is_empty()).then(|| Ok(Arc::clone(others[Random::new(salt).below(others.len())])))
        }
        Lie::FoundGone if found.is_err() => {
            let at = server.revision().saturating_sub(BEHIND);
            let then = server.list(kind, namespace, Some(at))?.ok()?.items;
            let is_named = |item: &&Arc<Object>| Metadata::of(item).is_some_and(|one| *one.name == *name);
            then.iter().find(is_named).map(|item| Ok(Arc::clone(item)))
        }
        _ => None,
    }
}
