//! Runs beside an active kube-controller-manager, and compares our decisions with what happens.
//!
//! The comparator is pure: it receives decisions and observations with their times, and asks the graph for the state of owners. A
//! *prediction* is an effect that was decided on and withheld. It agrees with the cluster once the requested change is observed. It
//! disagrees if the change has not happened within the window although we still want it. A change that has neither happened nor is
//! still wanted proves nothing.
//!
//! Conversely, a deletion that we did not want counts only if owner references could explain it, because users and controllers
//! delete objects with living owners all the time. That leaves objects of which no owner is known to live, and whose owners could
//! not all be shown to be gone: the other collector has guessed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gc_kube::{Observer, ResourceTable};
use gc_ownership::{Conclusion, Presence, ReferenceState};
use gc_process::journal::{self, Journal};
use gc_types::{
    Effect, Event, FinalizerName, ObjectKey, ObservedObject, Outcome, OwnerReference, Reason, Request, Uid,
    WithheldBy,
};
use serde_json::{Value, json};

use super::metrics::{Metrics, SharedEngine};

/// Maximum number of predictions, and of deletions to be explained. Further ones are counted, but not compared.
pub(super) const COMPARED: usize = 65_536;

/// Kind of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RequestKind {
    /// Deletes an object.
    Deletion,
    /// Removes owner references.
    References,
    /// Removes a finalizer.
    Finalizer,
}

impl RequestKind {
    fn agreement(self) -> &'static str {
        match self {
            Self::Deletion => "deletion",
            Self::References => "references",
            Self::Finalizer => "finalizer",
        }
    }

    fn disagreement(self) -> &'static str {
        match self {
            Self::Deletion => "not-deleted",
            Self::References => "references-not-removed",
            Self::Finalizer => "finalizer-not-removed",
        }
    }
}

/// The kinds of agreements.
pub(super) const AGREEMENTS: [&str; 3] = ["deletion", "references", "finalizer"];
/// The kinds of disagreements.
pub(super) const DISAGREEMENTS: [&str; 4] =
    ["not-deleted", "references-not-removed", "finalizer-not-removed", UNEXPECTED];
/// Kind of disagreement: another client deleted the object.
const UNEXPECTED: &str = "deleted-unexpectedly";

/// State of an owner in the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnerState {
    /// The owner exists.
    Lives,
    /// The owner is gone, waits for its dependents, or orphans them.
    Dead,
    /// The owner was never observed, or cannot be read.
    Unknown,
}

/// The comparator's queries to the graph.
pub(super) trait Knowledge {
    /// Reports whether the object was already being deleted; `None` if the graph does not know the object.
    fn is_deleting(&self, uid: &Uid) -> Option<bool>;
    /// Returns the owners of an object, with their states.
    fn owners(&self, uid: &Uid) -> Vec<(Uid, OwnerState)>;
    /// Returns the state of one owner.
    fn owner(&self, uid: &Uid) -> OwnerState;
    /// Reports whether the engine still wants this effect on the object.
    fn is_wanted(&self, uid: &Uid, kind: RequestKind) -> bool;
}

#[derive(Clone, Debug)]
struct Prediction {
    at: i64,
    kind: RequestKind,
    key: ObjectKey,
    reason: Reason,
    /// The references left by [`RequestKind::References`].
    remaining: Vec<OwnerReference>,
    /// The finalizer removed by [`RequestKind::Finalizer`].
    finalizer: Option<FinalizerName>,
}

#[derive(Clone, Debug)]
struct VanishedOwner {
    key: ObjectKey,
    owners: Vec<(Uid, OwnerState)>,
}

/// One finished comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Comparison {
    /// True if our decision matches what happened.
    pub(super) agreed: bool,
    /// Kind of agreement or disagreement.
    pub(super) kind: &'static str,
    /// The object.
    pub(super) key: ObjectKey,
    /// UID of the object.
    pub(super) uid: Uid,
    /// Reason for our decision, if we made one.
    pub(super) reason: Option<Reason>,
}

/// Compares decisions with observations; see the module. Times are milliseconds of a monotonic clock.
#[derive(Debug)]
pub(super) struct Comparator {
    window: i64,
    predictions: BTreeMap<Uid, Prediction>,
    vanished: BTreeMap<Uid, VanishedOwner>,
    /// Times at which predictions and vanished objects are compared.
    due: BTreeSet<(i64, Uid)>,
    /// Recently removed objects, which may be owners.
    gone: BTreeSet<Uid>,
    gone_in_order: VecDeque<(i64, Uid)>,
    compared: Vec<Comparison>,
    /// Number of decisions for which there was no room.
    pub(super) uncompared: u64,
}

impl Comparator {
    /// Returns an empty comparator. `window` is the time within which a change must happen, in milliseconds.
    pub(super) fn new(window: i64) -> Self {
        Self {
            window,
            predictions: BTreeMap::new(),
            vanished: BTreeMap::new(),
            due: BTreeSet::new(),
            gone: BTreeSet::new(),
            gone_in_order: VecDeque::new(),
            compared: Vec::new(),
            uncompared: 0,
        }
    }

    /// Records an effect that was decided on and withheld.
    pub(super) fn decided(&mut self, effect: &Effect, now: i64) {
        let (kind, key, uid, remaining, finalizer) = match &effect.request {
            Request::Delete { key, uid, .. } => (RequestKind::Deletion, key, uid, Vec::new(), None),
            Request::SetOwners { key, uid, remaining, .. } => {
                (RequestKind::References, key, uid, remaining.clone(), None)
            }
            Request::RemoveFinalizer { key, uid, finalizer } => {
                (RequestKind::Finalizer, key, uid, Vec::new(), Some(*finalizer))
            }
            _ => return,
        };
        // The engine has wanted a repeated decision since it first made it.
        let at = self.predictions.get(uid).filter(|former| former.kind == kind).map(|former| former.at);
        if at.is_none() && self.predictions.len() >= COMPARED && !self.predictions.contains_key(uid) {
            self.uncompared += 1;
            return;
        }
        self.drop_prediction(uid);
        let at = at.unwrap_or(now);
        let prediction =
            Prediction { at, kind, key: key.clone(), reason: effect.reason.clone(), remaining, finalizer };
        self.due.insert((at.saturating_add(self.window), uid.clone()));
        self.predictions.insert(uid.clone(), prediction);
    }

    fn drop_prediction(&mut self, uid: &Uid) -> Option<Prediction> {
        let prediction = self.predictions.remove(uid)?;
        self.due.remove(&(prediction.at.saturating_add(self.window), uid.clone()));
        Some(prediction)
    }

    fn agree(&mut self, uid: &Uid) {
        if let Some(Prediction { kind, key, reason, .. }) = self.drop_prediction(uid) {
            let (kind, uid) = (kind.agreement(), uid.clone());
            self.compared.push(Comparison { agreed: true, kind, key, uid, reason: Some(reason) });
        }
    }

    /// Records that an object exists. Call this before the graph observes it.
    pub(super) fn observed(&mut self, object: &ObservedObject, graph: &impl Knowledge, now: i64) {
        let uid = &object.uid;
        let Some(prediction) = self.predictions.get(uid) else {
            if object.deletion.deleting && graph.is_deleting(uid) == Some(false) {
                self.vanishes(&object.key, uid, graph, now);
            }
            return;
        };
        let has =
            |owner: &OwnerReference| object.owners.iter().any(|own| own.coordinates == owner.coordinates);
        let happened = match (prediction.kind, prediction.finalizer) {
            (RequestKind::Deletion, _) => object.deletion.deleting,
            (RequestKind::References, _) => {
                object.owners.len() <= prediction.remaining.len() && prediction.remaining.iter().all(has)
            }
            (RequestKind::Finalizer, Some(FinalizerName::Orphan)) => !object.deletion.orphan,
            (RequestKind::Finalizer, _) => !object.deletion.foreground,
        };
        if happened {
            self.agree(uid);
            return;
        }
        // The object has been given other owners since the decision, so the prediction no longer applies.
        let dead = &prediction.reason.owners;
        let is_left = dead.iter().any(|dead| object.owners.iter().any(|own| own.coordinates == *dead));
        if prediction.kind != RequestKind::Finalizer && !dead.is_empty() && !is_left {
            self.drop_prediction(uid);
        }
    }

    /// Records that an object is gone. Call this before the graph observes it.
    pub(super) fn removed(&mut self, key: &ObjectKey, uid: &Uid, graph: &impl Knowledge, now: i64) {
        if self.gone.len() >= COMPARED
            && let Some((_, oldest)) = self.gone_in_order.pop_front()
        {
            self.gone.remove(&oldest);
        }
        if self.gone.insert(uid.clone()) {
            self.gone_in_order.push_back((now, uid.clone()));
        }
        match self.predictions.get(uid).map(|prediction| prediction.kind) {
            // The references were removed with their object, which proves nothing about the prediction.
            Some(RequestKind::References) => drop(self.drop_prediction(uid)),
            Some(_) => self.agree(uid),
            None if graph.is_deleting(uid) == Some(false) => self.vanishes(key, uid, graph, now),
            None => {}
        }
    }

    /// Records the deletion of an object that we did not want to delete (yet).
    fn vanishes(&mut self, key: &ObjectKey, uid: &Uid, graph: &impl Knowledge, now: i64) {
        let owners = graph.owners(uid);
        if owners.is_empty() || self.vanished.contains_key(uid) {
            return;
        }
        if self.vanished.len() >= COMPARED {
            self.uncompared += 1;
            return;
        }
        self.due.insert((now.saturating_add(self.window), uid.clone()));
        self.vanished.insert(uid.clone(), VanishedOwner { key: key.clone(), owners });
    }

    /// Compares the decisions that are due. Call this regularly.
    pub(super) fn compare(&mut self, graph: &impl Knowledge, now: i64) -> Vec<Comparison> {
        while let Some((due, _)) = self.due.first() {
            if *due > now {
                break;
            }
            let Some((_, uid)) = self.due.pop_first() else { break };
            if let Some(vanished) = self.vanished.remove(&uid) {
                self.compare_vanished(uid, vanished, graph);
            } else if let Some(Prediction { kind, key, reason, .. }) = self.predictions.remove(&uid)
                && graph.is_wanted(&uid, kind)
            {
                let kind = kind.disagreement();
                self.compared.push(Comparison { agreed: false, kind, key, uid, reason: Some(reason) });
            }
        }
        let kept_since = now.saturating_sub(self.window.saturating_mul(2));
        while let Some((_, uid)) = self.gone_in_order.pop_front_if(|(at, _)| *at < kept_since) {
            self.gone.remove(&uid);
        }
        std::mem::take(&mut self.compared)
    }

    fn compare_vanished(
        &mut self,
        uid: Uid,
        VanishedOwner { key, owners }: VanishedOwner,
        graph: &impl Knowledge,
    ) {
        let state = |(owner, then): &(Uid, OwnerState)| {
            if *then == OwnerState::Dead || self.gone.contains(owner) {
                OwnerState::Dead
            } else {
                graph.owner(owner)
            }
        };
        let states: Vec<OwnerState> = owners.iter().map(state).collect();
        // A user or a controller deleted the object.
        if states.contains(&OwnerState::Lives) {
            return;
        }
        let agreed = states.iter().all(|state| *state == OwnerState::Dead);
        let kind = if agreed { RequestKind::Deletion.agreement() } else { UNEXPECTED };
        self.compared.push(Comparison { agreed, kind, key, uid, reason: None });
    }
}

impl Knowledge for gc_ownership::Engine {
    fn is_deleting(&self, uid: &Uid) -> Option<bool> {
        let object = self.why(uid)?.object;
        (object.presence == Presence::Observed).then_some(object.deletion.deleting)
    }

    fn owners(&self, uid: &Uid) -> Vec<(Uid, OwnerState)> {
        let references = self.why(uid).map_or_else(Vec::new, |why| why.references);
        let state = |state: &ReferenceState| match state {
            ReferenceState::Lives => OwnerState::Lives,
            ReferenceState::Waiting(_) | ReferenceState::Absent(_) | ReferenceState::Orphaning(_) => {
                OwnerState::Dead
            }
            ReferenceState::Undecidable | ReferenceState::Unverified => OwnerState::Unknown,
        };
        references.iter().map(|(owner, known)| (owner.coordinates.uid.clone(), state(known))).collect()
    }

    fn owner(&self, uid: &Uid) -> OwnerState {
        match self.why(uid).map(|why| why.object) {
            Some(object) if object.presence == Presence::Gone => OwnerState::Dead,
            Some(object) if object.presence == Presence::Observed => {
                let deletion = object.deletion;
                let waits = deletion.deleting && (deletion.foreground || deletion.orphan);
                if waits { OwnerState::Dead } else { OwnerState::Lives }
            }
            _ => OwnerState::Unknown,
        }
    }

    fn is_wanted(&self, uid: &Uid, kind: RequestKind) -> bool {
        let Some(why) = self.why(uid) else { return false };
        match kind {
            RequestKind::Deletion => matches!(why.conclusion, Conclusion::ToBeDeleted(_)),
            RequestKind::References => matches!(why.conclusion, Conclusion::ToLoseReferences(_)),
            RequestKind::Finalizer => {
                matches!(why.conclusion, Conclusion::WaitsForDependents(0) | Conclusion::Orphans)
            }
        }
    }
}

/// A running comparator. The collector feeds it, and a task compares at each [`COMPARE_PERIOD`].
pub(super) struct Observation {
    comparator: Mutex<Comparator>,
    engine: SharedEngine,
    metrics: Metrics,
    journal: Arc<Journal>,
    table: ResourceTable,
    started: Instant,
}

/// Interval at which due decisions are compared.
const COMPARE_PERIOD: Duration = Duration::from_millis(500);

impl Observation {
    pub(super) fn new(
        window: Duration,
        engine: SharedEngine,
        metrics: Metrics,
        journal: Arc<Journal>,
        table: ResourceTable,
    ) -> Self {
        let window = gc_types::milliseconds(window);
        let comparator = Mutex::new(Comparator::new(window));
        Self { comparator, engine, metrics, journal, table, started: Instant::now() }
    }

    fn now(&self) -> i64 {
        gc_types::milliseconds(self.started.elapsed())
    }

    /// Compares until the task is aborted.
    pub(super) async fn compare(self: Arc<Self>) {
        let mut interval = tokio::time::interval(COMPARE_PERIOD);
        loop {
            interval.tick().await;
            let compared = {
                let mut comparator = self.comparator.lock().unwrap_or_else(PoisonError::into_inner);
                let compared = comparator.compare(&*self.engine.lock(), self.now());
                self.metrics.uncompared(comparator.uncompared);
                compared
            };
            for comparison in &compared {
                self.report(comparison);
            }
        }
    }

    fn report(&self, comparison: &Comparison) {
        self.metrics.compared(comparison.agreed, comparison.kind);
        let resource =
            self.table.get(comparison.key.resource).map_or_else(String::new, |route| route.display_name());
        let ObjectKey { namespace, name, .. } = &comparison.key;
        if !comparison.agreed {
            let reason = comparison.reason.as_ref().map(ToString::to_string).unwrap_or_default();
            tracing::warn!(kind = comparison.kind, resource, %namespace, %name, uid = %comparison.uid, reason,
                "observed: disagreement");
        }
        let word = if comparison.agreed { journal::AGREEMENT } else { journal::DISAGREEMENT };
        let mut entry = json!({
            "verb": journal::OBSERVE, "outcome": word, "kind": comparison.kind, "resource": resource,
            "namespace": &**namespace, "name": &**name, "uid": comparison.uid.to_string(),
        });
        if let Some(reason) = &comparison.reason {
            entry["verdict"] = reason.code().into();
            entry["message"] = reason.message().into();
            entry["evidence"] = reason.evidence.iter().map(|fact| Value::from(fact.to_string())).collect();
        }
        self.journal.record(entry);
    }
}

impl Observer for Observation {
    fn observed(&self, event: &Event) {
        let now = self.now();
        let mut comparator = self.comparator.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            // Most observed objects are neither predicted nor deleted; those need no query to the graph.
            Event::Observed(object)
                if object.deletion.deleting || comparator.predictions.contains_key(&object.uid) =>
            {
                comparator.observed(object, &*self.engine.lock(), now);
            }
            Event::Removed { key, uid, .. } => comparator.removed(key, uid, &*self.engine.lock(), now),
            _ => {}
        }
    }

    fn finished(&self, effect: &Effect, outcome: &Outcome, _round_trips: u32, _took: Duration) {
        if matches!(outcome, Outcome::Withheld(WithheldBy::Observe)) {
            let now = self.now();
            self.comparator.lock().unwrap_or_else(PoisonError::into_inner).decided(effect, now);
        }
    }
}

#[cfg(test)]
mod tests;
