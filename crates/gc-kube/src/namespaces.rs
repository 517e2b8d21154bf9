//! The namespace controller: empties terminating namespaces (spec `api-deletion.md`, 12.5). `gc_controller::namespaces` decides
//! when to send which request, and interprets the answers. This module runs the clock and reports how passes end; `requests` sends
//! the requests.

mod documents;
mod requests;
mod trace;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use gc_collectors::engine::{CollectorState, Counts};
use gc_collectors::measures::{Measurement, Metric, NAMESPACE_DURATION, NAMESPACE_PASSES};
use gc_collectors::namespaces::emptying::{Contents, End, Reply};
use gc_collectors::permissions::Controller;
use gc_controller::concurrency::{ConcurrencyOptions, Signal};
use gc_controller::controller::until;
use gc_controller::namespaces::{Answer, EndedPass, Now, Passes, Question};
use gc_types::{Event, EventRecord, Severity, Timestamp, Uid};
use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinError, JoinSet};

use crate::backoff::Backoff;
use crate::breaker::SharedBreaker;
use crate::clock::{Clock, moment, steady_clock, system_clock};
use crate::connection::ApiClient;
use crate::driver::ControllerSurroundings;
use crate::observer::{NoObserver, Observer};
use crate::restraints::{Restraints, changed};
use requests::Requests;
use trace::namespace_key;
pub use trace::{DeletedWithDefinition, Trace};

/// Interval at which all namespaces are listed (`--namespace-sync-period`).
const SYNC_PERIOD: Duration = Duration::from_mins(5);
/// Delay after the first failure to list terminating namespaces at the start; it doubles with each failure, up to the maximum.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Maximum number of queued names; others are found by the next list of all namespaces.
const QUEUED_NAMES: usize = 10_000;
/// Minimum time without success before a namespace is reported.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum number of namespaces whose reports a dry run remembers.
const REMEMBERED_REPORTS: usize = 10_000;

/// Names of terminating namespaces, as they are observed.
pub type NamespaceNames = mpsc::Receiver<Arc<str>>;

/// Receives terminating namespaces from the ownership collector's watch.
pub struct NamespaceFeed {
    names: mpsc::Sender<Arc<str>>,
    /// Number of the resource `namespaces`, once known.
    resource: AtomicU32,
}

impl NamespaceFeed {
    /// Creates the observer, and the receiver of the names that it observes.
    #[must_use]
    pub fn new() -> (Self, NamespaceNames) {
        let (names, receiver) = mpsc::channel(QUEUED_NAMES);
        (Self { names, resource: AtomicU32::new(u32::MAX) }, receiver)
    }
}

impl Observer for NamespaceFeed {
    fn observed(&self, event: &Event) {
        match event {
            Event::ResourceServed(info)
                if info.gvr.group.is_empty() && *info.gvr.resource == *"namespaces" =>
            {
                self.resource.store(info.id.0, Ordering::Relaxed);
            }
            Event::Observed(object)
                if object.deletion.deleting
                    && object.key.resource.0 == self.resource.load(Ordering::Relaxed) =>
            {
                let _ = self.names.try_send(Arc::clone(&object.key.name));
            }
            _ => {}
        }
    }
}

/// Start of the time for which a namespace could not be emptied, and what was reported about it.
struct FailingNamespace {
    since: Instant,
    reported: String,
}

impl FailingNamespace {
    fn begun() -> Self {
        Self { since: Instant::now(), reported: String::new() }
    }

    /// Returns an Event about a namespace that could not be emptied for a while, and another one when the reason changes.
    fn note(&mut self, name: &Arc<str>, uid: &Uid, why: &str) -> Option<EventRecord> {
        if self.since.elapsed() < PATIENCE || self.reported == why {
            return None;
        }
        why.clone_into(&mut self.reported);
        Some(EventRecord {
            about: namespace_key(name),
            uid: uid.clone(),
            severity: Severity::Warning,
            reason: "NamespaceNotEmptied",
            message: format!("cannot be emptied: {why}"),
        })
    }
}

/// The passes, their restraints, and their requests in flight.
struct Work {
    passes: Passes,
    surroundings: ControllerSurroundings,
    /// Clock for delays and memory.
    time: Clock,
    sent: JoinSet<Answer>,
    questions: HashMap<Id, Question>,
}

impl Work {
    fn now(&self) -> Now {
        Now { time: (self.time)(), moment: moment() }
    }

    /// Sends the requests of the passes.
    fn send(&mut self, requests: &Requests) {
        while let Some(question) = self.passes.poll_question(self.now(), &self.surroundings) {
            let (requests, asked) = (requests.clone(), question.clone());
            let request = self.sent.spawn(async move { requests.perform(&asked).await }.boxed());
            self.questions.insert(request.id(), question);
        }
    }

    /// Handles an answer.
    fn take(&mut self, ended: Result<(Id, Answer), JoinError>) {
        let (id, answer) = ended.unwrap_or_else(|error| {
            tracing::error!(%error, "a request about a namespace ended by a panic");
            let reply = Reply::Failed { why: error.to_string(), may_be_at_work: true };
            (error.id(), Answer { reply, read: None, deleted: 0, signal: Some((Signal::Answered, 1)) })
        });
        if let Some(question) = self.questions.remove(&id) {
            self.passes.answered(&question, answer, self.now(), &self.surroundings);
        }
    }

    fn hurry(&mut self) {
        let now = (self.time)();
        self.passes.hurry(now);
    }

    fn next_wakeup(&self) -> Option<Timestamp> {
        self.passes.next_wakeup(self.now(), &self.surroundings)
    }
}

/// Reports passes that have ended.
#[derive(Default)]
struct Reports {
    counts: Counts,
    failures: HashMap<Arc<str>, FailingNamespace>,
}

/// Follows the remaining work of the namespace controller, and makes it check again.
pub trait Progress: Send + Sync + 'static {
    /// Returns a counter that increases whenever all namespaces must be checked again.
    fn nudges(&self) -> watch::Receiver<u64>;
    /// Reports the number of namespaces for which the controller has work, and of those that wait for others. Both are valid as of
    /// this nudge.
    fn waiting(&self, moving: usize, held: usize, nudge: u64);
}

/// Follows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn nudges(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }

    fn waiting(&self, _moving: usize, _held: usize, _nudge: u64) {}
}

/// Initial settings of the namespace controller.
pub struct NamespaceSettings {
    /// Delay before the first pass over a terminating namespace.
    pub settle: Duration,
    /// True if no controller has made passes before.
    pub is_first: bool,
    /// True if nothing is changed, and the contents of terminating namespaces are logged.
    pub dry_run: bool,
    /// Limits of the concurrency.
    pub concurrency: ConcurrencyOptions,
    /// Restraints of the controller.
    pub restraints: Restraints,
    /// Recipient of reports about deletions and measurements.
    pub trace: Trace,
    /// Clock that measures for how long namespaces have been terminating.
    pub clock: Clock,
    /// Recipient of the number of namespaces with remaining work.
    pub progress: Arc<dyn Progress>,
}

impl Default for NamespaceSettings {
    fn default() -> Self {
        Self {
            settle: Duration::ZERO,
            is_first: false,
            dry_run: false,
            concurrency: ConcurrencyOptions::default(),
            restraints: Restraints::default(),
            trace: Trace::new(|_| Arc::new(NoObserver)),
            clock: system_clock(),
            progress: Arc::new(NoProgress),
        }
    }
}

/// Empties terminating namespaces.
pub struct NamespaceController {
    requests: Requests,
    work: Work,
    restraints: Restraints,
    is_first: bool,
    progress: Arc<dyn Progress>,
    /// Findings of a dry run, by the namespace's UID.
    said: BTreeMap<String, Contents>,
    _writing: JoinSet<()>,
}

impl NamespaceController {
    /// Creates a controller, which sends nothing before [`NamespaceController::run`].
    #[must_use]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "as the other controllers, it owns its way to the server"
    )]
    pub fn new(client: ApiClient, settings: NamespaceSettings) -> Self {
        let NamespaceSettings { settle, is_first, dry_run, concurrency, restraints, trace, clock, progress } =
            settings;
        let (table, observer) = (trace.table(), trace.observer());
        let source = Controller::Namespace.event_source();
        let (surroundings, writer) =
            ControllerSurroundings::new(&restraints, dry_run, &client, table, observer, source);
        let client = surroundings.reading_only(&client);
        let mut writing = JoinSet::new();
        writing.spawn(writer.boxed());
        Self {
            requests: Requests::new(client, trace, clock),
            work: Work {
                passes: Passes::new(gc_types::milliseconds(settle), concurrency),
                surroundings,
                time: steady_clock(),
                sent: JoinSet::new(),
                questions: HashMap::new(),
            },
            restraints,
            is_first,
            progress,
            said: BTreeMap::new(),
            _writing: writing,
        }
    }

    /// Runs until `shutdown`. Each name has at most one pass at a time; a namespace that changes during its pass gets another.
    pub async fn run(mut self, mut names: NamespaceNames, shutdown: impl Future<Output = ()>) {
        let mut shutdown = std::pin::pin!(shutdown);
        let mut resync = tokio::time::interval(SYNC_PERIOD);
        let Restraints { mut held, breaker, mut bounds } = self.restraints.clone();
        let mut stops = breaker.as_ref().map(SharedBreaker::changes);
        let mut nudges = self.progress.nudges();
        let mut nudge = 0;
        let mut is_synced = false;
        let mut reports = Reports::default();
        loop {
            let newest_nudge = *nudges.borrow_and_update();
            if newest_nudge != nudge {
                nudge = newest_nudge;
                self.work.hurry();
            }
            if !*held.borrow_and_update() && !is_synced {
                tokio::select! {
                    () = &mut shutdown => return,
                    terminating = self.find_terminating() => self.inherit(&terminating),
                }
                is_synced = true;
                resync.reset();
            }
            self.work.send(&self.requests);
            while let Some(ended) = self.work.passes.poll_end() {
                self.report(&ended, &mut reports);
            }
            self.report_standing(reports.counts, is_synced, nudge);
            let (time, wakeup) = (Arc::clone(&self.work.time), self.work.next_wakeup());
            tokio::select! {
                () = &mut shutdown => return,
                Ok(()) = held.changed() => {}
                () = changed(&mut stops) => self.work.hurry(),
                () = changed(&mut bounds) => {
                    if let Some(bounds) = &bounds {
                        self.work.passes.set_concurrency(*bounds.borrow());
                    }
                }
                Ok(()) = nudges.changed() => {}
                () = sleep_until(&time, wakeup) => {}
                // Without a sender of names, they are found by the list of all namespaces.
                Some(name) = names.recv() => self.work.passes.observed(&name, time()),
                _ = resync.tick(), if is_synced => {
                    for name in self.requests.terminating().await.unwrap_or_default() {
                        self.work.passes.listed(&name, time());
                    }
                }
                Some(answer) = self.work.sent.join_next_with_id() => self.work.take(answer),
            }
        }
    }

    /// Returns the namespaces that are terminating when the passes begin. No pass begins before they are known.
    async fn find_terminating(&self) -> Vec<Arc<str>> {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            match self.requests.terminating().await {
                Some(names) => return names,
                None => tokio::time::sleep(backoff.next_delay()).await,
            }
        }
    }

    /// Registers namespaces that are already terminating at the start, which another controller may have processed before.
    fn inherit(&mut self, terminating: &[Arc<str>]) {
        let now = (self.work.time)();
        if !self.is_first {
            self.work.passes.inherit(terminating, now);
        }
        for name in terminating {
            self.work.passes.listed(name, now);
        }
    }

    fn report_standing(&self, counts: Counts, synced: bool, nudge: u64) {
        let passes = &self.work.passes;
        let standing = CollectorState { counts, waiting: passes.len(), synced, ..CollectorState::default() };
        self.requests.trace.observer().standing(&standing);
        let held = passes.waiting_for_others();
        self.progress.waiting(passes.len() - held, held, nudge);
    }

    /// Reports the end of a pass.
    fn report(&mut self, ended: &EndedPass, reports: &mut Reports) {
        let EndedPass { namespace, uid, end } = ended;
        reports.counts.decisions += 1;
        self.count(&NAMESPACE_PASSES, vec![end_word(end).into()], 1.0);
        self.say(ended);
        match (end, uid) {
            (End::Failed { why, .. }, uid) => {
                tracing::debug!(namespace = %namespace, why, "the namespace could not be emptied yet");
                reports.counts.errors += 1;
                let failing =
                    reports.failures.entry(Arc::clone(namespace)).or_insert_with(FailingNamespace::begun);
                if let Some(note) = uid.as_ref().and_then(|uid| failing.note(namespace, uid, why)) {
                    self.work.surroundings.note(note);
                }
            }
            (End::Done { .. } | End::DryRun(_), _) => drop(reports.failures.remove(namespace)),
            (End::Again { milliseconds, unanswered: true }, Some(uid)) => {
                self.work.surroundings.note(stays(namespace, uid.clone(), *milliseconds));
            }
            (End::Again { .. }, _) => {}
        }
    }

    fn count(&self, metric: &'static Metric, labels: Vec<Arc<str>>, value: f64) {
        self.requests.trace.observer().measured(&Measurement { metric, labels, value });
    }

    fn say(&mut self, ended: &EndedPass) {
        let namespace = &*ended.namespace;
        let uid = ended.uid.as_ref().map(ToString::to_string).unwrap_or_default();
        match &ended.end {
            End::Done { terminating_seconds: Some(seconds) } => {
                #[allow(clippy::cast_precision_loss)] // for 285 million years
                let seconds = (*seconds).max(0) as f64;
                self.count(&NAMESPACE_DURATION, Vec::new(), seconds);
            }
            End::Again { milliseconds, unanswered: true } => tracing::info!(
                namespace,
                milliseconds,
                "a deletion of its contents may still be in progress: waiting for an unanswered delete to expire"
            ),
            End::DryRun(contents) if !self.has_said(&uid, contents) => {
                for (resource, objects) in &contents.found {
                    tracing::info!(namespace, resource, objects, "dry run: would be deleted");
                }
                match contents.problems.as_str() {
                    "" => {
                        tracing::info!(
                            namespace,
                            "dry run: the namespace would be finalized when it is empty"
                        );
                    }
                    why => tracing::info!(namespace, why, "dry run: the namespace could not be emptied"),
                }
            }
            _ => {}
        }
    }

    /// Reports whether exactly this has already been said about a namespace, and records that it has.
    fn has_said(&mut self, uid: &str, contents: &Contents) -> bool {
        if self.said.len() >= REMEMBERED_REPORTS {
            self.said.clear();
        }
        self.said.insert(uid.to_owned(), contents.clone()).as_ref() == Some(contents)
    }
}

async fn sleep_until(time: &Clock, wakeup: Option<Timestamp>) {
    match wakeup {
        Some(at) => tokio::time::sleep(until(at, time())).await,
        None => std::future::pending().await,
    }
}

/// Returns an Event about a namespace that is empty but remains for a while: nothing else shows the reason.
fn stays(name: &Arc<str>, uid: Uid, milliseconds: i64) -> EventRecord {
    let seconds = milliseconds.div_euclid(1_000) + 1;
    EventRecord {
        about: namespace_key(name),
        uid,
        severity: Severity::Normal,
        reason: "NamespaceStays",
        message: format!(
            "is empty, and stays for {seconds} s, as a deletion of its contents may still be in progress"
        ),
    }
}

fn end_word(end: &End) -> &'static str {
    match end {
        End::Done { .. } => "done",
        End::Again { .. } => "waiting",
        End::Failed { .. } => "failed",
        End::DryRun(_) => "dry-run",
    }
}

#[cfg(test)]
mod tests;
