//! Effects between the decision and the outcome.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use gc_types::{Effect, EffectId, Reason, Request, ResourceVersion, Uid};
use smallvec::SmallVec;

use super::identity::Identity;
use crate::graph::{NodeId, ResourceIndex};

/// The decision about an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Delete,
    Owners,
    Finalizer,
    Read,
}

/// A resource, or one namespace of it, that a barrier lists.
#[derive(Clone, Debug)]
pub(super) struct ListedPlace {
    pub(super) resource: ResourceIndex,
    pub(super) namespace: Option<Arc<str>>,
}

/// The subject of an effect, for when its outcome comes.
#[derive(Clone, Debug)]
pub(super) enum Context {
    /// The object, the request, and the version that it was decided on.
    Item(Uid, Action, ResourceVersion),
    OwnerRead(Identity, Uid),
    Barrier(ListedPlace),
    RecordEvent,
}

/// The lanes that a request blocks.
pub(super) type HeldLanes = SmallVec<[NodeId; 1]>;

/// An effect that is in flight.
#[derive(Clone, Debug)]
pub(super) struct InFlight {
    pub(super) context: Context,
    pub(super) lanes: HeldLanes,
}

/// An effect that has not been returned yet.
#[derive(Clone, Debug)]
pub(super) struct PendingEffect {
    pub(super) request: Request,
    pub(super) reason: Reason,
    pub(super) context: Context,
    pub(super) lanes: HeldLanes,
}

/// Pending effects, and those in flight.
#[derive(Clone, Debug, Default)]
pub(super) struct Effects {
    /// The decision of the last turn, until it is launched in the same call.
    decided: Option<PendingEffect>,
    /// Events to write; unlike decisions, they do not become stale.
    events: VecDeque<PendingEffect>,
    in_flight: BTreeMap<EffectId, InFlight>,
    /// Objects with an unanswered request. If a list omits one in the meantime and it comes back, it is the same
    /// object: no other request about it is made until the answer.
    asked: BTreeMap<Uid, Action>,
    next_number: u64,
}

impl Effects {
    /// The decision of this turn.
    pub(super) fn decide(&mut self, wanted: PendingEffect) {
        self.decided = Some(wanted);
    }

    /// The decision of this turn, about an object.
    pub(super) fn decide_about(&mut self, uid: Uid, action: Action, wanted: PendingEffect) {
        self.asked.insert(uid, action);
        self.decide(wanted);
    }

    /// An Event is to be written.
    pub(super) fn push_event(&mut self, wanted: PendingEffect) {
        self.events.push_back(wanted);
    }

    /// The next effect that is wanted. It is in flight from now on.
    pub(super) fn launch(&mut self) -> Option<Effect> {
        // The decision of a turn applies now or never: by the next call it may no longer be valid.
        let PendingEffect { request, reason, context, lanes } =
            self.decided.take().or_else(|| self.events.pop_front())?;
        let id = EffectId(self.next_number);
        self.next_number += 1;
        self.in_flight.insert(id, InFlight { context, lanes });
        Some(Effect { id, request, reason })
    }

    /// An effect has its outcome; `None` if it is not in flight.
    pub(super) fn land(&mut self, effect: EffectId) -> Option<InFlight> {
        self.in_flight.remove(&effect)
    }

    /// The request about an object has its answer.
    pub(super) fn answered(&mut self, uid: &Uid) {
        self.asked.remove(uid);
    }

    /// The unanswered request about an object.
    pub(super) fn asked(&self, uid: &Uid) -> Option<Action> {
        self.asked.get(uid).copied()
    }

    /// The number of effects in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The number of the next effect; the numbers of all earlier ones are lower.
    pub(super) fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Reports whether the last decision was launched.
    pub(super) fn has_launched_all(&self) -> bool {
        self.decided.is_none()
    }
}
