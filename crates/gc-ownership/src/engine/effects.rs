//! Effects between decision and outcome.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use gc_types::{Effect, EffectId, Reason, Request, ResourceVersion, Uid};
use smallvec::SmallVec;

use super::identity::Identity;
use crate::graph::{NodeId, ResourceIndex};

/// Decision about an item.
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

/// Subject of an effect, for when its outcome arrives.
#[derive(Clone, Debug)]
pub(super) enum Context {
    /// Object, action, and the version that it was decided on.
    Item(Uid, Action, ResourceVersion),
    OwnerRead(Identity, Uid),
    Barrier(ListedPlace),
    RecordEvent,
}

/// Lanes that a request blocks.
pub(super) type HeldLanes = SmallVec<[NodeId; 1]>;

/// An effect in flight.
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
    /// Decision of the last turn, until it is launched in the same call.
    decided: Option<PendingEffect>,
    /// Events to write; unlike decisions, they do not become stale.
    events: VecDeque<PendingEffect>,
    in_flight: BTreeMap<EffectId, InFlight>,
    /// Objects with an unanswered request. If a list omits one in the meantime and it comes back, it is the same object, and no
    /// other request about it is made until the response.
    asked: BTreeMap<Uid, Action>,
    next_number: u64,
}

impl Effects {
    /// Records the decision of this turn.
    pub(super) fn decide(&mut self, wanted: PendingEffect) {
        self.decided = Some(wanted);
    }

    /// Records the decision of this turn about an object.
    pub(super) fn decide_about(&mut self, uid: Uid, action: Action, wanted: PendingEffect) {
        self.asked.insert(uid, action);
        self.decide(wanted);
    }

    /// Queues an Event to be written.
    pub(super) fn push_event(&mut self, wanted: PendingEffect) {
        self.events.push_back(wanted);
    }

    /// Returns the next pending effect, which is in flight from now on.
    pub(super) fn launch(&mut self) -> Option<Effect> {
        // The decision of a turn applies now or never: by the next call it may no longer be valid.
        let PendingEffect { request, reason, context, lanes } =
            self.decided.take().or_else(|| self.events.pop_front())?;
        let id = EffectId(self.next_number);
        self.next_number += 1;
        self.in_flight.insert(id, InFlight { context, lanes });
        Some(Effect { id, request, reason })
    }

    /// Ends an effect that has its outcome; `None` if it is not in flight.
    pub(super) fn land(&mut self, effect: EffectId) -> Option<InFlight> {
        self.in_flight.remove(&effect)
    }

    /// Records that the request about an object was answered.
    pub(super) fn answered(&mut self, uid: &Uid) {
        self.asked.remove(uid);
    }

    /// Returns the unanswered request about an object.
    pub(super) fn asked(&self, uid: &Uid) -> Option<Action> {
        self.asked.get(uid).copied()
    }

    /// Returns the number of effects in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Returns the number of the next effect; all earlier ones have lower numbers.
    pub(super) fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Reports whether the last decision was launched.
    pub(super) fn has_launched_all(&self) -> bool {
        self.decided.is_none()
    }
}
