//! Loop of the namespace controller: which terminating namespace gets a pass when, the requests of passes, and what they remember
//! for later ones.
//!
//! A pass decides by itself ([`EmptyingPass`]), and so does the queue of namespaces ([`Queue`]). [`Passes`] connects them: it
//! begins passes, returns their requests, takes the responses in any order and reports how passes have ended. It obeys the same
//! restraints as every [`Controller`](crate::controller::Controller): a pause, a dry run, the circuit breaker and the concurrency
//! limit. It neither sends nor waits: `gc-kube` drives it over HTTP, and `gc-sim` over the registry.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use gc_collectors::namespaces::emptying::{Ask, AskId, ContainedResource, EmptyingPass, End, Reply, View};
use gc_collectors::namespaces::memory::Memory;
use gc_collectors::namespaces::queue::{QUEUED_NAMESPACES, Queue};
use gc_types::{Timestamp, Uid, WithheldBy};
use serde_json::Value;

use crate::Moment;
use crate::breaker::{Admission, Ticket};
use crate::concurrency::{ConcurrencyOptions, Pacer, Signal};
use crate::controller::{Rest, Surroundings};

/// The current time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Time of the clock that delays and memory follow, which is never set.
    pub time: Timestamp,
    /// Time of the clock that limits requests.
    pub moment: Moment,
}

/// A request of a pass to the server.
#[derive(Clone, Debug)]
pub struct Question {
    /// Namespace of the pass.
    pub namespace: Arc<str>,
    /// The request.
    pub ask: Ask,
    /// The namespace as last read by the pass.
    pub view: Arc<View>,
    /// The namespace as the server returned it; writes to the namespace modify this.
    pub document: Arc<Value>,
    pass: u64,
    id: AskId,
    begun: Moment,
    /// Ticket of the breaker, if it was counted.
    ticket: Option<Ticket>,
}

impl Question {
    /// Reports whether it may change something.
    #[must_use]
    pub fn changes(&self) -> bool {
        !matches!(self.ask, Ask::Read | Ask::Discover | Ask::List(_))
    }
}

/// Response to a request.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Reply of the server.
    pub reply: Reply,
    /// The namespace, if it was read.
    pub read: Option<Value>,
    /// Number of objects that it deleted and that were not terminating before.
    pub deleted: u64,
    /// Evidence about the server from its last call, and the number of its calls; `None` if there is no evidence.
    pub signal: Option<(Signal, u32)>,
}

/// A completed pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedPass {
    /// The namespace.
    pub namespace: Arc<str>,
    /// UID of the namespace, if the pass has seen it.
    pub uid: Option<Uid>,
    /// Result of the pass.
    pub end: End,
}

#[derive(Debug)]
struct RunningPass {
    number: u64,
    is_dry_run: bool,
    pass: EmptyingPass,
    view: Arc<View>,
    document: Arc<Value>,
}

/// Passes over all terminating namespaces. See the module.
#[derive(Debug)]
pub struct Passes {
    queue: Queue,
    memory: Memory,
    /// Passes in progress, whose number the queue bounds.
    running: BTreeMap<Arc<str>, RunningPass>,
    next_number: u64,
    pacer: Pacer,
    /// Reason why there was no request at the last poll.
    rest: Rest,
    /// Namespaces that a dry run has reported, to be emptied when it ends; the queue bounds their number.
    dry_runs: BTreeSet<Arc<str>>,
    /// Namespaces in which only others have something left to do.
    waiting_for_others: BTreeSet<Arc<str>>,
    ended: VecDeque<EndedPass>,
}

impl Passes {
    /// Creates passes before any namespace is known.
    #[must_use]
    pub fn new(settle_milliseconds: i64, concurrency: ConcurrencyOptions) -> Self {
        Self {
            queue: Queue::new(settle_milliseconds),
            memory: Memory::default(),
            running: BTreeMap::new(),
            next_number: 0,
            pacer: Pacer::new(concurrency),
            rest: Rest::Idle,
            dry_runs: BTreeSet::new(),
            waiting_for_others: BTreeSet::new(),
            ended: VecDeque::new(),
        }
    }

    // ---- observe ----

    /// Records namespaces that were terminating before the first pass, when a predecessor may still have had requests in flight.
    pub fn inherit(&mut self, terminating: &[Arc<str>], then: Timestamp) {
        self.memory.inherit(terminating, then);
    }

    /// Records that a namespace is terminating, or has changed since.
    pub fn observed(&mut self, name: &Arc<str>, now: Timestamp) {
        self.queue.observed(name, now);
    }

    /// Records that a list of all namespaces contains it as terminating.
    pub fn listed(&mut self, name: &Arc<str>, now: Timestamp) {
        self.queue.listed(name, now);
    }

    /// Makes all namespaces due, because something may have changed in each.
    pub fn hurry(&mut self, now: Timestamp) {
        self.waiting_for_others.clear();
        self.queue.hurry(now);
    }

    /// Changes the bounds of the concurrency limit.
    pub fn set_concurrency(&mut self, options: ConcurrencyOptions) {
        self.pacer.set_options(options);
    }

    // ---- act ----

    /// Returns the next request to the server, if there is one now.
    pub fn poll_question(&mut self, now: Now, surroundings: &impl Surroundings) -> Option<Question> {
        self.rest = Rest::Idle;
        self.abandon(now.time, surroundings);
        if surroundings.is_held() {
            return None;
        }
        let is_dry_run = surroundings.dry_run().is_some();
        if !is_dry_run {
            for name in std::mem::take(&mut self.dry_runs) {
                self.queue.listed(&name, now.time);
            }
        }
        while let Some(name) = self.queue.begin(now.time) {
            self.begin(name, is_dry_run);
        }
        let names: Vec<Arc<str>> = self.running.keys().cloned().collect();
        for name in &names {
            if let Err(until) = self.pacer.check(now.moment) {
                self.rest = Rest::Full(until);
                return None;
            }
            let question = self.question_of(name, is_dry_run, now, surroundings);
            self.end_pass(name, now.time);
            if question.is_some() {
                self.pacer.begin();
                return question;
            }
        }
        None
    }

    /// Ends the passes that may not continue and await no responses. The next one reads the namespace again, which may have been
    /// replaced by then.
    fn abandon(&mut self, now: Timestamp, surroundings: &impl Surroundings) {
        let (is_held, is_dry_run) = (surroundings.is_held(), surroundings.dry_run().is_some());
        let may_end = |running: &RunningPass| is_held || running.is_dry_run != is_dry_run;
        let abandoned =
            self.running.extract_if(.., |_, running| may_end(running) && running.pass.awaits_nothing());
        for (name, _) in abandoned {
            self.queue.ended(&name, &End::Again { milliseconds: 0, unanswered: false }, now);
        }
    }

    fn begin(&mut self, name: Arc<str>, is_dry_run: bool) {
        self.waiting_for_others.remove(&name);
        let pass = EmptyingPass::new(&name, is_dry_run);
        let number = self.next_number;
        self.next_number += 1;
        let (view, document) = (Arc::default(), Arc::default());
        self.running.insert(name, RunningPass { number, is_dry_run, pass, view, document });
    }

    fn question_of(
        &mut self,
        name: &Arc<str>,
        is_dry_run: bool,
        now: Now,
        surroundings: &impl Surroundings,
    ) -> Option<Question> {
        let RunningPass { number, pass, view, document, .. } =
            self.running.get_mut(name).filter(|running| running.is_dry_run == is_dry_run)?;
        loop {
            let (id, ask) = pass.ask(&mut self.memory, now.time)?;
            let ticket = match restrain(&ask, now.time, surroundings) {
                Ok(ticket) => ticket,
                Err(held) => {
                    pass.answered(&mut self.memory, id, held, now.time);
                    continue;
                }
            };
            let (namespace, view, document) = (Arc::clone(name), Arc::clone(view), Arc::clone(document));
            let (pass, begun) = (*number, now.moment);
            return Some(Question { namespace, ask, view, document, pass, id, begun, ticket });
        }
    }

    /// Takes the response to a request.
    pub fn answered(
        &mut self,
        question: &Question,
        answer: Answer,
        now: Now,
        surroundings: &impl Surroundings,
    ) {
        match answer.signal {
            Some((signal, calls)) => {
                let per_call = now.moment.since(question.begun) / calls.max(1);
                self.pacer.finish(now.moment.before(per_call), now.moment, signal);
            }
            None => self.pacer.release(),
        }
        count_deletions(question, answer.deleted, now.time, surroundings);
        let Some(running) = self.running.get_mut(&question.namespace) else { return };
        if running.number != question.pass {
            return;
        }
        running.pass.answered(&mut self.memory, question.id, answer.reply, now.time);
        if let Some(read) = answer.read {
            running.document = Arc::new(read);
            running.view = Arc::new(running.pass.view().clone());
        }
        self.end_pass(&question.namespace, now.time);
    }

    fn end_pass(&mut self, name: &Arc<str>, now: Timestamp) {
        let Some(end) = self.running.get(name).and_then(|running| running.pass.end()).cloned() else {
            return;
        };
        let Some(RunningPass { pass, .. }) = self.running.remove(name) else { return };
        self.queue.ended(name, &end, now);
        if pass.waits_for_others() {
            self.waiting_for_others.insert(Arc::clone(name));
        }
        if matches!(end, End::DryRun(_)) && self.dry_runs.len() < QUEUED_NAMESPACES {
            self.dry_runs.insert(Arc::clone(name));
        }
        let uid = Some(&*pass.view().uid).filter(|uid| !uid.is_empty()).map(Uid::new);
        self.ended.push_back(EndedPass { namespace: Arc::clone(name), uid, end });
    }

    /// Returns the next completed pass that was not reported yet.
    pub fn poll_end(&mut self) -> Option<EndedPass> {
        self.ended.pop_front()
    }

    // ---- rest ----

    /// Returns when there is something to do again, if no response comes before and restraints stay as they are.
    #[must_use]
    pub fn next_wakeup(&self, now: Now, surroundings: &impl Surroundings) -> Option<Timestamp> {
        if surroundings.is_held() {
            return None;
        }
        if let Rest::Full(until) = self.rest {
            return until.map(|until| now.time.after(milliseconds_up(until.since(now.moment))));
        }
        let passes = self.running.values().filter_map(|running| running.pass.next_wakeup());
        passes.chain(self.queue.next_wakeup()).min()
    }

    /// Returns the number of namespaces that wait for a pass or are in one.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Reports whether no namespace waits for a pass or is in one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns in how many of these namespaces only others have something left to do.
    #[must_use]
    pub fn waiting_for_others(&self) -> usize {
        self.waiting_for_others.len()
    }

    /// Returns the number of remembered namespaces.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.memory.namespaces()
    }
}

/// Returns the milliseconds of a duration, rounded up so that a timer is not too early.
fn milliseconds_up(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

/// Returns the resource whose objects a request deletes.
fn deleted_resource(ask: &Ask) -> Option<&ContainedResource> {
    match ask {
        Ask::DeleteAll(resource) | Ask::Delete(resource, _) => Some(resource),
        _ => None,
    }
}

/// Returns the response to a request that the breaker does not admit. A deletion that it admits is counted.
fn restrain(ask: &Ask, now: Timestamp, surroundings: &impl Surroundings) -> Result<Option<Ticket>, Reply> {
    let Some(resource) = deleted_resource(ask) else { return Ok(None) };
    let name: Arc<str> = resource.gvr.group_resource().into();
    // Nothing is inferred, because the namespace is terminating. If objects are not counted, there is no limit on the share.
    let why = match surroundings.ask_breaker(|breaker| breaker.admit(&name, false, None, now)) {
        None => return Ok(None),
        Some(Admission::Admitted(ticket)) => return Ok(Some(ticket)),
        Some(Admission::Withheld(WithheldBy::Configuration)) => format!("{name} are excluded from deletion"),
        Some(Admission::Withheld(_)) => format!("the circuit breaker has stopped deletions of {name}"),
        Some(Admission::Tripped(trip)) => {
            surroundings.tripped(&trip);
            trip.to_string()
        }
    };
    Err(Reply::Failed { why, may_be_at_work: false })
}

/// Corrects the count: one deletion was counted when it was requested, but there may have been none, or many.
fn count_deletions(question: &Question, deleted: u64, now: Timestamp, surroundings: &impl Surroundings) {
    let (Some(resource), Some(ticket)) = (deleted_resource(&question.ask), question.ticket) else { return };
    let name = resource.gvr.group_resource();
    surroundings.ask_breaker(|breaker| match deleted.checked_sub(1) {
        None => breaker.refund(&name, ticket),
        Some(more) => breaker.count(&name, more, now),
    });
}

#[cfg(test)]
mod tests;
