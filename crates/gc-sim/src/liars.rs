//! A transport that lies: in some worlds, one answer differs from the server's. The seed decides which one, and when. From then on
//! one law is judged: whatever that answer says, nothing is lost that lives according to the store's own log.
//!
//! An answer is only replaced if the replacement differs from the truth. Before a lie about a live read, an outdated cache may
//! answer a list, so that there is something to read.
//!
//! A response that is not a list of the requested kind (`{}`, a proxy's page, items without a version) is refused by the code that
//! reads lists, which is not simulated; here it becomes a list that failed. A liar that tells the same lie to lists, watches and
//! live reads is out of scope.

use std::sync::Arc;

use gc_registry::api::{Object, ObjectList};
use gc_registry::error::ApiError;
use gc_types::{Coordinates, DeletionState, ObservedObject, OwnerReference, Uid};

use crate::kinds::{KINDS, Kind};
use crate::metadata::Metadata;
use crate::random::Random;
use crate::server::Server;
use crate::story::Story;

/// Age in revisions of a list that is sent as a new one.
const BEHIND: u64 = 12;
/// Lead over the server that a list claims.
const AHEAD: u64 = 7;
/// Lead that no world catches up with.
const FAR_AHEAD: u64 = 10_000;
/// Lies of some worlds by the remainder of their seed; the seeds of all other worlds keep the lie that they had before these were
/// added.
const BY_REMAINDER: [(u64, Lie); 10] = [
    (0, Lie::OtherUids),
    (4, Lie::RemovedUnversioned),
    (8, Lie::RemovedUnderAnotherName),
    (12, Lie::AddedElsewhere),
    (16, Lie::BookmarkAhead),
    (2, Lie::RemovedLater),
    (6, Lie::MarkedWaiting),
    (10, Lie::MarkedOrphaning),
    (14, Lie::BookmarkWhileOrphaning),
    (18, Lie::OwnedByAbsent),
];
/// Divisor of the seeds for these remainders.
const WORLDS_PER_LIE: u64 = 23;

/// A lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lie {
    /// A list is empty.
    Empty,
    /// A list is complete after half of its objects, as if a continue token was lost.
    Short,
    /// A list has each object twice.
    Twice,
    /// A list is from a moment ago, with its true version.
    Old,
    /// A list is from a moment ago, but claims to be current.
    OldAsNew,
    /// A list claims to be newer than the server.
    Ahead,
    /// A list has the objects of another resource.
    OtherResource,
    /// A list has the objects under other UIDs.
    OtherUids,
    /// A list does not state its version.
    Unversioned,
    /// A list cannot be read as a list of its kind.
    Unreadable,
    /// A watch delivers again an object that was deleted long ago.
    Revived,
    /// A watch reports the removal of a living object, at an earlier version.
    RemovedBefore,
    /// A watch reports the removal of a living object in another resource.
    RemovedElsewhere,
    /// A watch reports the removal of a living object, at no version.
    RemovedUnversioned,
    /// A watch reports the removal of a living object under the name of another one.
    RemovedUnderAnotherName,
    /// A watch delivers an object of another resource.
    AddedElsewhere,
    /// A watch claims to be ahead of the server.
    BookmarkAhead,
    /// A watch reports the removal of a living object, at a later version.
    RemovedLater,
    /// A watch shows, at a later version, that an object waits for its dependents, although it is not being deleted.
    MarkedWaiting,
    /// A watch shows, at a later version, that an object orphans its dependents, although it is not being deleted.
    MarkedOrphaning,
    /// A watch claims to be ahead of the server while an owner begins to orphan its dependents.
    BookmarkWhileOrphaning,
    /// A watch shows, at a later version, that an object has an owner which does not exist.
    OwnedByAbsent,
    /// A live read is answered with 404 about another object.
    NotFoundOther,
    /// A live read is answered with 404 about the same name in another resource.
    NotFoundElsewhere,
    /// A live read is answered with a Status of reason NotFound that names nothing.
    NotFoundNameless,
    /// A live read is answered with another object, the response to another request.
    Crossed,
    /// A live read is answered with an object that is gone.
    FoundGone,
    /// A live read is answered with 404 without a Status, as for a path that is not served.
    NotFoundPage,
    /// A live read is answered with success and without an object.
    Nothing,
    /// A live read is answered with 410 about the object.
    Gone,
    /// The list of a barrier is empty.
    BarrierEmpty,
    /// The list of a barrier is complete after half of its objects.
    BarrierShort,
}

/// Part of the conversation that a lie replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LieChannel {
    /// A list of a watch.
    Lists,
    /// An event of a watch.
    Watches,
    /// Response to a live read.
    Reads,
    /// The list of a barrier.
    Barriers,
}

impl Lie {
    /// All lies.
    pub const ALL: [Self; 32] = [
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
        Self::RemovedBefore,
        Self::RemovedElsewhere,
        Self::NotFoundOther,
        Self::NotFoundElsewhere,
        Self::NotFoundNameless,
        Self::Crossed,
        Self::FoundGone,
        Self::NotFoundPage,
        Self::Nothing,
        Self::Gone,
        Self::BarrierEmpty,
        Self::BarrierShort,
        Self::OtherUids,
        Self::RemovedUnversioned,
        Self::RemovedUnderAnotherName,
        Self::AddedElsewhere,
        Self::BookmarkAhead,
        Self::RemovedLater,
        Self::MarkedWaiting,
        Self::MarkedOrphaning,
        Self::BookmarkWhileOrphaning,
        Self::OwnedByAbsent,
    ];

    /// Lies that omit objects from the list of a watch.
    pub const OMISSIONS: [Self; 6] =
        [Self::Empty, Self::Short, Self::Old, Self::OldAsNew, Self::OtherResource, Self::OtherUids];

    /// Returns the name of the lie in reports.
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
            Self::OtherUids => "lies: a list with other UIDs",
            Self::Unversioned => "lies: a list without a version",
            Self::Unreadable => "lies: no list",
            Self::Revived => "lies: ADDED for what is gone",
            Self::RemovedBefore => "lies: DELETED of an earlier version",
            Self::RemovedElsewhere => "lies: DELETED in another resource",
            Self::RemovedUnversioned => "lies: DELETED without a version",
            Self::RemovedUnderAnotherName => "lies: DELETED under another name",
            Self::AddedElsewhere => "lies: ADDED in another resource",
            Self::BookmarkAhead => "lies: a bookmark ahead of the server",
            Self::RemovedLater => "lies: DELETED of a later version",
            Self::MarkedWaiting => "lies: MODIFIED that waits",
            Self::MarkedOrphaning => "lies: MODIFIED that orphans",
            Self::BookmarkWhileOrphaning => "lies: a bookmark ahead of an owner that orphans",
            Self::OwnedByAbsent => "lies: MODIFIED with an absent owner",
            Self::NotFoundOther => "lies: 404 about another object",
            Self::NotFoundElsewhere => "lies: 404 about another resource",
            Self::NotFoundNameless => "lies: 404 about nothing",
            Self::Crossed => "lies: the answer to another read",
            Self::FoundGone => "lies: 200 for what is gone",
            Self::NotFoundPage => "lies: 404 without a Status",
            Self::Nothing => "lies: 200 without an object",
            Self::Gone => "lies: 410",
            Self::BarrierEmpty => "lies: an empty list for a barrier",
            Self::BarrierShort => "lies: a list for a barrier that ends early",
        }
    }

    /// Returns the part of the conversation that the lie replaces.
    #[must_use]
    pub const fn channel(self) -> LieChannel {
        match self {
            Self::Empty
            | Self::Short
            | Self::Twice
            | Self::Old
            | Self::OldAsNew
            | Self::Ahead
            | Self::OtherResource
            | Self::OtherUids
            | Self::Unversioned
            | Self::Unreadable => LieChannel::Lists,
            Self::Revived
            | Self::RemovedBefore
            | Self::RemovedElsewhere
            | Self::RemovedUnversioned
            | Self::RemovedUnderAnotherName
            | Self::AddedElsewhere
            | Self::BookmarkAhead
            | Self::RemovedLater
            | Self::MarkedWaiting
            | Self::MarkedOrphaning
            | Self::BookmarkWhileOrphaning
            | Self::OwnedByAbsent => LieChannel::Watches,
            Self::NotFoundOther
            | Self::NotFoundElsewhere
            | Self::NotFoundNameless
            | Self::Crossed
            | Self::FoundGone
            | Self::NotFoundPage
            | Self::Nothing
            | Self::Gone => LieChannel::Reads,
            Self::BarrierEmpty | Self::BarrierShort => LieChannel::Barriers,
        }
    }
}

/// The liar of a world, who lies once.
#[derive(Clone, Copy, Debug)]
pub struct Liar {
    /// Lie that it tells.
    pub lie: Lie,
    /// Step of the story after which it may lie.
    pub at: usize,
    /// Seed of its other choices.
    pub salt: u64,
}

impl Liar {
    /// Creates the liar of a story.
    #[must_use]
    pub fn of(story: &Story) -> Self {
        let mut random = Random::new(story.seed ^ 0x006c_6961_7273);
        let mut lie = random.pick(&Lie::ALL[..Lie::ALL.len() - BY_REMAINDER.len()]);
        let remainder = story.seed % WORLDS_PER_LIE;
        if let Some((_, other)) = BY_REMAINDER.iter().find(|(of, _)| *of == remainder) {
            lie = *other;
        }
        let steps = story.steps.len().max(1);
        Self { lie, at: steps / 6 + random.below(steps - steps / 6), salt: random.next() }
    }
}

/// Returns a list as a liar gives it: its objects, perhaps those of another resource, and its version. `None` if it cannot be read.
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

/// Returns the UID under which a liar lists an object; it is different for every object.
pub(crate) fn another_uid(uid: &Uid) -> Uid {
    let other =
        |digit: char| digit.to_digit(16).and_then(|value| char::from_digit(15 - value, 16)).unwrap_or(digit);
    Uid::new(&uid.to_string().chars().map(other).collect::<String>())
}

/// An event that a liar reports in a watch.
pub(crate) enum LiarEvent {
    /// The object exists.
    Added(Arc<Object>),
    /// The object exists at this version, with this change.
    Changed { object: Arc<Object>, version: u64, change: fn(&mut ObservedObject) },
    /// The object was removed at this version, under its own name if none is given.
    Removed { object: Arc<Object>, version: u64, name: Option<&'static str> },
    /// The watch has reached this version.
    Progress(u64),
}

/// Returns the event that a liar reports in a watch of this kind.
pub(crate) fn event_instead((lie, salt): (Lie, u64), kind: &Kind, server: &Server) -> Option<LiarEvent> {
    let removed = |version, name| {
        living_object(kind, salt, server).map(|object| LiarEvent::Removed { object, version, name })
    };
    let elsewhere = || {
        let other = &KINDS[Random::new(salt).below(KINDS.len())];
        let is_other = (other.group, other.resource) != (kind.group, kind.resource);
        is_other.then(|| living_object(other, salt, server)).flatten()
    };
    let now = server.revision();
    let changed = |version, change| {
        living_object(kind, salt, server).map(|object| LiarEvent::Changed { object, version, change })
    };
    match lie {
        Lie::Revived => gone_object(kind, salt, server).map(LiarEvent::Added),
        Lie::RemovedBefore => removed(1, None),
        Lie::RemovedUnversioned => removed(0, None),
        Lie::RemovedUnderAnotherName => removed(now + 1, Some("another")),
        Lie::RemovedElsewhere => {
            elsewhere().map(|object| LiarEvent::Removed { object, version: now, name: None })
        }
        Lie::AddedElsewhere => elsewhere().map(LiarEvent::Added),
        Lie::BookmarkAhead => Some(LiarEvent::Progress(now + AHEAD)),
        Lie::BookmarkWhileOrphaning if orphans(server) => Some(LiarEvent::Progress(now + AHEAD)),
        Lie::RemovedLater => removed(now + 1, None),
        Lie::MarkedWaiting => changed(now + 1, |object| {
            object.deletion = DeletionState { deleting: true, foreground: true, ..object.deletion };
        }),
        Lie::MarkedOrphaning => changed(now + 1, |object| {
            object.deletion = DeletionState { deleting: true, orphan: true, ..object.deletion };
        }),
        // A later write may give the object a version that is near, on which its deletion is conditional: docs/proof.md excludes that.
        Lie::OwnedByAbsent => changed(now + FAR_AHEAD, |object| {
            object.owners = vec![OwnerReference {
                coordinates: Coordinates {
                    api_version: "v1".into(),
                    kind: "ConfigMap".into(),
                    name: "absent".into(),
                    uid: Uid::new("00000000-0000-4000-8000-000000000000"),
                },
                controller: None,
                block_owner_deletion: None,
            }]
            .into();
        }),
        _ => None,
    }
}

/// Reports whether an owner orphans its dependents.
fn orphans(server: &Server) -> bool {
    KINDS.iter().filter_map(|kind| server.list(kind, "", None)?.ok()).any(|list| {
        list.items
            .iter()
            .filter_map(|item| Metadata::of(item))
            .any(|metadata| metadata.deletion_timestamp.is_some() && metadata.finalizers.contains(&"orphan"))
    })
}

fn living_object(kind: &Kind, salt: u64, server: &Server) -> Option<Arc<Object>> {
    let items = server.list(kind, "", None)?.ok()?.items;
    (!items.is_empty()).then(|| Arc::clone(&items[Random::new(salt ^ 1).below(items.len())]))
}

/// Turns the list of a barrier into a liar's.
pub(crate) fn barrier_instead(lie: Lie, items: &mut Vec<Arc<Object>>) {
    match lie {
        Lie::BarrierEmpty => items.clear(),
        Lie::BarrierShort => items.truncate(items.len() / 2),
        _ => {}
    }
}

/// Returns an object that existed in one of the last revisions and no longer does, if there is one.
fn gone_object(kind: &Kind, salt: u64, server: &Server) -> Option<Arc<Object>> {
    let at = server.revision().saturating_sub(BEHIND);
    let now = server.list(kind, "", None)?.ok()?.items;
    let uids: Vec<String> = now.iter().filter_map(|item| Some(Metadata::of(item)?.uid.to_owned())).collect();
    let then = server.list(kind, "", Some(at))?.ok()?.items;
    let is_gone =
        |item: &&Arc<Object>| Metadata::of(item).is_some_and(|one| !uids.iter().any(|uid| *uid == *one.uid));
    let gone: Vec<&Arc<Object>> = then.iter().filter(is_gone).collect();
    (!gone.is_empty()).then(|| Arc::clone(gone[Random::new(salt).below(gone.len())]))
}

/// A liar's answer to a GET.
pub(crate) enum LiarAnswer {
    Object(Arc<Object>),
    Error(ApiError),
    /// Success without an object.
    Nothing,
    /// 404 without a Status.
    Page,
}

/// Answers a GET in place of the server. `None` if there is no such lie: only an existing object can be denied.
pub(crate) fn read_instead(
    (lie, salt): (Lie, u64),
    kind: &Kind,
    (namespace, name): (&str, &str),
    server: &Server,
) -> Option<LiarAnswer> {
    let found = server.get(kind, namespace, name)?;
    match lie {
        Lie::Crossed => {
            let others = server.list(kind, "", None)?.ok()?.items;
            let is_other = |item: &&Arc<Object>| Metadata::of(item).is_some_and(|one| *one.name != *name);
            let others: Vec<&Arc<Object>> = others.iter().filter(is_other).collect();
            let is_any = found.is_ok() && !others.is_empty();
            is_any.then(|| LiarAnswer::Object(Arc::clone(others[Random::new(salt).below(others.len())])))
        }
        Lie::FoundGone if found.is_err() => {
            let at = server.revision().saturating_sub(BEHIND);
            let then = server.list(kind, namespace, Some(at))?.ok()?.items;
            let is_named = |item: &&Arc<Object>| Metadata::of(item).is_some_and(|one| *one.name == *name);
            then.iter().find(is_named).map(|item| LiarAnswer::Object(Arc::clone(item)))
        }
        _ if found.is_err() => None,
        Lie::NotFoundOther => {
            Some(LiarAnswer::Error(ApiError::not_found(kind.group, kind.resource, "another")))
        }
        Lie::NotFoundElsewhere => Some(LiarAnswer::Error(ApiError::not_found("example.com", "others", name))),
        Lie::NotFoundNameless => Some(LiarAnswer::Error(ApiError::not_found("", "", ""))),
        Lie::Gone => Some(LiarAnswer::Error(ApiError::new(410, "Gone", format!("{name} is gone")))),
        Lie::NotFoundPage => Some(LiarAnswer::Page),
        Lie::Nothing => Some(LiarAnswer::Nothing),
        _ => None,
    }
}
