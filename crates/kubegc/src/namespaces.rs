//! The namespace controller: empties terminating namespaces (spec `api-deletion.md`, 12.5). What to ask and when, and what the
//! answers mean, is decided by `gc_control::namespaces`; this runs the clock and reports how passes end, and
//! [`crate::namespace_requests`] sends the requests.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use gc_control::namespaces::{Answer, Ended, Passes, Question};
use gc_kube::notes::Notes;
use gc_kube::{ApiClient, Backoff, Clock, NoObserver, Observer, steady_clock, system_clock, until};
use gc_retention::engine::{Counts, Standing};
use gc_retention::measures::{Measurement, Metric, NAMESPACE_DURATION, NAMESPACE_PASSES};
use gc_retention::namespaces::emptying::{Contents, End, Reply};
use gc_retention::permissions::Controller;
use gc_types::{Event, EventNote, Severity, Timestamp, Uid};
use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinError, JoinSet};

use crate::activity::{Activity, Movement, Waiting};
use crate::namespace_requests::Requests;
use crate::namespace_trace::{Trace, namespace_key};

/// All namespaces are looked through this often (`--namespace-sync-period`).
const SYNC_PERIOD: Duration = Duration::from_mins(5);
/// The pause after the first failure to find what is terminating when the passes begin; the next ones are twice as long
/// each, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Names that wait to be taken; more are found by the next look through all namespaces.
const HEARD_NAMES: usize = 10_000;
/// How long a namespace must not have been emptied before it is reported.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum number of namespaces of which a dry run remembers what it has reported.
const REMEMBERED_REPORTS: usize = 10_000;

/// Names of terminating namespaces, as they are observed.
pub(crate) type NamespaceNames = mpsc::Receiver<Arc<str>>;

/// Gets terminating namespaces from the ownership collector's watch.
pub(crate) struct NamespaceFeed {
    names: mpsc::Sender<Arc<str>>,
    /// The number of `namespaces`, once it is known.
    resource: AtomicU32,
}

impl NamespaceFeed {
    pub(crate) fn new() -> (Self, NamespaceNames) {
        let (names, receiver) = mpsc::channel(HEARD_NAMES);
        (Self { names, resource: AtomicU32::new(u32::MAX) }, receiver)
    }
}

impl Observer for NamespaceFeed {
    fn told(&self, event: &Event) {
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

/// Since when a namespace could not be emptied, and what was reported about it.
struct Failing {
    since: Instant,
    told: String,
}

impl Failing {
    fn begun() -> Self {
        Self { since: Instant::now(), told: String::new() }
    }
}

/// The passes, and their requests under way.
struct Work {
    passes: Passes,
    sent: JoinSet<Answer>,
    questions: HashMap<Id, Question>,
}

impl Work {
    fn new(settle: Duration, dry_run: bool) -> Self {
        let settle = i64::try_from(settle.as_millis()).unwrap_or(i64::MAX);
        Self { passes: Passes::new(settle, dry_run), sent: JoinSet::new(), questions: HashMap::new() }
    }

    /// Sends what the passes ask for. While the controller is held, none begins.
    fn send(&mut self, requests: &Requests, is_held: bool, time: &Clock) {
        while let Some(question) = self.passes.poll_question(is_held, time()) {
            let (requests, asked) = (requests.clone(), question.clone());
            let request = self.sent.spawn(async move { requests.perform(&asked).await });
            self.questions.insert(request.id(), question);
        }
    }

    /// Takes an answer.
    fn take(&mut self, ended: Result<(Id, Answer), JoinError>, now: Timestamp) {
        let (id, answer) = ended.unwrap_or_else(|error| {
            tracing::error!(%error, "a request about a namespace ended by a panic");
            let reply = Reply::Failed { why: error.to_string(), may_be_at_work: true };
            (error.id(), Answer { reply, read: None })
        });
        if let Some(question) = self.questions.remove(&id) {
            self.passes.answered(&question, answer, now);
        }
    }
}

/// What is reported about the passes that have ended.
struct Reports {
    notes: Notes,
    counts: Counts,
    failures: HashMap<Arc<str>, Failing>,
}

/// Empties terminating namespaces.
pub(crate) struct NamespaceController {
    requests: Requests,
    settle: Duration,
    work: Work,
    /// No pass begins while this says true.
    held: watch::Receiver<bool>,
    /// What delays and memory go by.
    time: Clock,
    /// No controller has made passes before.
    is_first: bool,
    /// Where it is noted how many namespaces have something left to do.
    movement: Arc<Movement>,
    /// What a dry run has said of namespaces, by their UID.
    said: BTreeMap<String, Contents>,
}

impl NamespaceController {
    pub(crate) fn new(client: ApiClient, settle: Duration) -> Self {
        let trace = Arc::new(Trace::new(|_| Arc::new(NoObserver)));
        Self {
            requests: Requests { client, trace, clock: system_clock() },
            settle,
            work: Work::new(settle, false),
            held: watch::channel(false).1,
            time: steady_clock(),
            is_first: false,
            movement: Activity::default().of(Controller::Namespace),
            said: BTreeMap::new(),
        }
    }

    /// Begins nothing while this says true.
    pub(crate) fn held_while(self, held: watch::Receiver<bool>) -> Self {
        Self { held, ..self }
    }

    /// Reports everything that is deleted and measured.
    pub(crate) fn traced_by(self, trace: Trace) -> Self {
        Self { requests: Requests { trace: Arc::new(trace), ..self.requests }, ..self }
    }

    /// The clock that measures how long namespaces have been terminating.
    pub(crate) fn with_clock(self, clock: Clock) -> Self {
        Self { requests: Requests { clock, ..self.requests }, ..self }
    }

    /// Notes there how many namespaces have something left to do.
    pub(crate) fn noted_by(self, movement: Arc<Movement>) -> Self {
        Self { movement, ..self }
    }

    /// No earlier passes can have requests in progress: the server has only just started, too.
    pub(crate) fn first(self, is_first: bool) -> Self {
        Self { is_first, ..self }
    }

    /// Changes nothing, and says in the log what is in terminating namespaces.
    pub(crate) fn dry_run(self, dry_run: bool) -> Self {
        Self { work: Work::new(self.settle, dry_run), ..self }
    }

    /// Runs until `shutdown`. Each name has at most one pass at a time; one that changes during its pass gets another.
    pub(crate) async fn run(mut self, mut names: NamespaceNames, shutdown: impl Future<Output = ()>) {
        let mut shutdown = std::pin::pin!(shutdown);
        let mut resync = tokio::time::interval(SYNC_PERIOD);
        let mut held = self.held.clone();
        let mut nudges = self.movement.nudges();
        let mut nudge = 0;
        let mut is_synced = false;
        let table = self.requests.trace.table();
        let source = Controller::Namespace.event_source();
        let (notes, writer) = Notes::new(self.requests.client.clone(), table, source);
        let mut reports = Reports { notes, counts: Counts::default(), failures: HashMap::new() };
        let mut writing = JoinSet::new();
        writing.spawn(writer);
        loop {
            let newest_nudge = *nudges.borrow_and_update();
            if newest_nudge != nudge {
                nudge = newest_nudge;
                self.work.passes.hurry((self.time)());
            }
            // An error means that the sender is gone, so that nothing can hold it.
            let is_held = *held.borrow_and_update() && held.has_changed().is_ok();
            if !is_held && !is_synced {
                tokio::select! {
                    () = &mut shutdown => return,
                    terminating = self.find_terminating() => self.inherit(&terminating),
                }
                is_synced = true;
                resync.reset();
            }
            self.work.send(&self.requests, is_held, &self.time);
            while let Some(ended) = self.work.passes.poll_end() {
                self.report(&ended, &mut reports);
            }
            self.report_standing(reports.counts, is_synced, nudge);
            let wakeup = self.work.passes.next_wakeup(is_held);
            tokio::select! {
                () = &mut shutdown => return,
                Ok(()) = held.changed() => {}
                Ok(()) = nudges.changed() => {}
                () = sleep_until(&self.time, wakeup) => {}
                // Without anybody who names them, they are found by the list of all.
                Some(name) = names.recv() => self.work.passes.observed(&name, (self.time)()),
                _ = resync.tick(), if is_synced => {
                    for name in self.requests.terminating().await.unwrap_or_default() {
                        self.work.passes.listed(&name, (self.time)());
                    }
                }
                Some(answer) = self.work.sent.join_next_with_id() => self.work.take(answer, (self.time)()),
            }
        }
    }

    /// The namespaces that are terminating when the passes begin. None begins before they are known.
    async fn find_terminating(&self) -> Vec<Arc<str>> {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            match self.requests.terminating().await {
                Some(names) => return names,
                None => tokio::time::sleep(backoff.next_delay()).await,
            }
        }
    }

    /// What is terminating when the passes begin may have been in work before.
    fn inherit(&mut self, terminating: &[Arc<str>]) {
        let now = (self.time)();
        if !self.is_first {
            self.work.passes.inherit(terminating, now);
        }
        for name in terminating {
            self.work.passes.listed(name, now);
        }
    }

    fn report_standing(&self, counts: Counts, synced: bool, nudge: u64) {
        let passes = &self.work.passes;
        let standing = Standing { counts, waiting: passes.len(), synced, ..Standing::default() };
        self.requests.trace.observer().standing(&standing);
        let held = passes.waiting_for_others();
        self.movement.set_waiting(Waiting {
            moving: passes.len() - held,
            held,
            nudge,
            ..Waiting::default()
        });
    }

    /// Reports how a pass has ended.
    fn report(&mut self, ended: &Ended, reports: &mut Reports) {
        let Ended { namespace, uid, end } = ended;
        reports.counts.decisions += 1;
        self.count(&NAMESPACE_PASSES, vec![end_word(end).into()], 1.0);
        self.say(ended);
        match (end, uid) {
            (End::Failed { why, .. }, uid) => {
                tracing::debug!(namespace = %namespace, why, "the namespace could not be emptied yet");
                reports.counts.errors += 1;
                let failing = reports.failures.entry(Arc::clone(namespace)).or_insert_with(Failing::begun);
                if let Some(uid) = uid {
                    tell(&reports.notes, namespace, uid.clone(), why, failing);
                }
            }
            (End::Done { .. } | End::DryRun(_), _) => drop(reports.failures.remove(namespace)),
            (End::Again { milliseconds, unanswered: true }, Some(uid)) => {
                reports.notes.take(stays(namespace, uid.clone(), *milliseconds));
            }
            (End::Again { .. }, _) => {}
        }
    }

    fn count(&self, metric: &'static Metric, labels: Vec<Arc<str>>, value: f64) {
        self.requests.trace.observer().measured(&Measurement { metric, labels, value });
    }

    fn say(&mut self, ended: &Ended) {
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
                "a deletion of its contents may still be at work: the namespace stays until that must be over"
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

    /// Whether just this has been said of a namespace. From here on, it has.
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

/// Writes an Event about a namespace that could not be emptied for a while, and again when the reason changes.
fn tell(notes: &Notes, name: &Arc<str>, uid: Uid, why: &str, failing: &mut Failing) {
    if failing.since.elapsed() < PATIENCE || failing.told == why {
        return;
    }
    why.clone_into(&mut failing.told);
    notes.take(EventNote {
        about: namespace_key(name),
        uid,
        severity: Severity::Warning,
        reason: "NamespaceNotEmptied",
        message: format!("cannot be emptied: {why}"),
    });
}

/// An Event about a namespace that is empty and stays for a while: nothing else shows why.
fn stays(name: &Arc<str>, uid: Uid, milliseconds: i64) -> EventNote {
    let seconds = milliseconds.div_euclid(1_000) + 1;
    EventNote {
        about: namespace_key(name),
        uid,
        severity: Severity::Normal,
        reason: "NamespaceStays",
        message: format!("is empty, and stays for {seconds} s, as a deletion of its contents may be at work"),
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
#[path = "namespaces_tests.rs"]
mod tests;
