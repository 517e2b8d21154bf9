//! The namespace controller: empties terminating namespaces (spec `api-deletion.md`, 12.5). What to ask and
//! when, and what the answers mean, is decided by `gc_retention::namespaces`; this runs the clock, and
//! [`crate::namespace_requests`] sends the requests.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use gc_kube::notes::Notes;
use gc_kube::{ApiClient, Backoff, Clock, NoObserver, Observer, steady_clock, system_clock, until};
use gc_retention::engine::{Counts, Standing};
use gc_retention::measures::{Measurement, Metric, NAMESPACE_DURATION, NAMESPACE_PASSES};
use gc_retention::namespaces::emptying::{Contents, Emptying, End};
use gc_retention::namespaces::memory::Memory;
use gc_retention::namespaces::queue::Queue;
use gc_retention::permissions::Controller;
use gc_types::{Event, EventNote, Severity, Timestamp, Uid};
use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinSet};

use crate::activity::{Activity, Movement, Waiting};
use crate::namespace_requests::{Answered, Requests};
use crate::namespace_trace::{Terminating, Trace, namespace_key};

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

/// What a pass came to, and the UID of the namespace if it was seen.
struct Passed {
    end: End,
    uid: Option<Uid>,
    /// What is left waits for others than this controller.
    is_held: bool,
}

/// Empties terminating namespaces.
#[derive(Clone)]
pub(crate) struct NamespaceController {
    requests: Requests,
    settle: Duration,
    /// No pass begins while this says true.
    held: watch::Receiver<bool>,
    /// What delays and memory go by.
    time: Clock,
    dry_run: bool,
    /// No controller has made passes before.
    is_first: bool,
    /// Where it is noted how many namespaces have something left to do.
    movement: Arc<Movement>,
    memory: Arc<Mutex<Memory>>,
    /// What a dry run has said of namespaces, by their UID.
    said: Arc<Mutex<BTreeMap<String, Contents>>>,
}

impl NamespaceController {
    pub(crate) fn new(client: ApiClient, settle: Duration) -> Self {
        let trace = Arc::new(Trace::new(|_| Arc::new(NoObserver)));
        Self {
            requests: Requests { client, trace, clock: system_clock() },
            settle,
            held: watch::channel(false).1,
            time: steady_clock(),
            dry_run: false,
            is_first: false,
            movement: Activity::default().of(Controller::Namespace),
            memory: Arc::default(),
            said: Arc::default(),
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
        Self { dry_run, ..self }
    }

    /// Runs until `shutdown`. Each name has at most one pass at a time; one that changes during its pass gets another.
    pub(crate) async fn run(self, mut names: NamespaceNames, shutdown: impl Future<Output = ()>) {
        let mut shutdown = std::pin::pin!(shutdown);
        let mut queue = Queue::new(i64::try_from(self.settle.as_millis()).unwrap_or(i64::MAX));
        let mut work: JoinSet<Passed> = JoinSet::new();
        let mut working: HashMap<Id, Arc<str>> = HashMap::new();
        let mut failures: HashMap<Arc<str>, Failing> = HashMap::new();
        // The first look is that when it begins to lead.
        let mut resync = tokio::time::interval(SYNC_PERIOD);
        resync.reset();
        let mut held = self.held.clone();
        // The namespaces in which nothing is left to do but what others have to do.
        let mut waiting_for_others: BTreeSet<Arc<str>> = BTreeSet::new();
        let mut nudges = self.movement.nudges();
        let mut nudge = 0;
        let mut counts = Counts::default();
        let mut synced = false;
        let mut has_begun = false;
        let table = self.requests.trace.table();
        let source = Controller::Namespace.event_source();
        let (notes, writer) = Notes::new(self.requests.client.clone(), table, source);
        let mut writing = JoinSet::new();
        writing.spawn(writer);
        loop {
            let standing = Standing { counts, waiting: queue.len(), synced, ..Standing::default() };
            self.requests.trace.observer().standing(&standing);
            let newest_nudge = *nudges.borrow_and_update();
            if newest_nudge != nudge {
                nudge = newest_nudge;
                waiting_for_others.clear();
                queue.hurry((self.time)());
            }
            self.movement.set_waiting(Waiting {
                moving: queue.len() - waiting_for_others.len(),
                held: waiting_for_others.len(),
                nudge,
                ..Waiting::default()
            });
            // An error means that the sender is gone, so that nothing can hold it.
            let is_held = *held.borrow_and_update() && held.has_changed().is_ok();
            if !is_held && !std::mem::replace(&mut has_begun, true) {
                tokio::select! {
                    () = &mut shutdown => return,
                    () = self.inherit(&mut queue) => {}
                }
                synced = true;
                resync.reset();
                continue;
            }
            while !is_held && let Some(name) = queue.begin((self.time)()) {
                waiting_for_others.remove(&name);
                let (controller, begun) = (self.clone(), Arc::clone(&name));
                let pass = work.spawn(async move { controller.pass(&begun).await });
                working.insert(pass.id(), name);
            }
            let wakeup = queue.next_wakeup().filter(|_| !is_held);
            let (id, passed) = tokio::select! {
                () = &mut shutdown => return,
                Ok(()) = held.changed() => continue,
                Ok(()) = nudges.changed() => continue,
                () = self.sleep_until(wakeup) => continue,
                // Without anybody who names them, they are found by the look through all.
                Some(name) = names.recv() => {
                    queue.heard(&name, (self.time)());
                    continue;
                }
                _ = resync.tick() => {
                    for name in self.requests.terminating().await.unwrap_or_default() {
                        queue.listed(&name, (self.time)());
                    }
                    continue;
                }
                Some(ended) = work.join_next_with_id() => match ended {
                    Ok((id, passed)) => (id, passed),
                    Err(error) => {
                        tracing::error!(%error, "a pass over a namespace ended by a panic");
                        let end = End::Failed { why: error.to_string(), further: false };
                        (error.id(), Passed { end, uid: None, is_held: false })
                    }
                },
            };
            let Some(name) = working.remove(&id) else { continue };
            counts.decisions += 1;
            self.count(&NAMESPACE_PASSES, vec![end_word(&passed.end).into()], 1.0);
            if passed.is_held {
                waiting_for_others.insert(Arc::clone(&name));
            }
            queue.ended(&name, &passed.end, (self.time)());
            match passed.end {
                End::Failed { why, .. } => {
                    tracing::debug!(namespace = %name, why, "the namespace could not be emptied yet");
                    counts.errors += 1;
                    let failing = failures.entry(Arc::clone(&name)).or_insert_with(Failing::begun);
                    if let Some(uid) = passed.uid {
                        tell(&notes, &name, uid, &why, failing);
                    }
                }
                End::Done { .. } | End::DryRun(_) => drop(failures.remove(&name)),
                End::Again { milliseconds, unanswered: true } => {
                    if let Some(uid) = passed.uid {
                        notes.take(stays(&name, uid, milliseconds));
                    }
                }
                End::Again { .. } => {}
            }
        }
    }

    /// What is terminating when the passes begin may have been in work before. None begins before that is known.
    async fn inherit(&self, queue: &mut Queue) {
        let begun = (self.time)();
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let terminating = loop {
            match self.requests.terminating().await {
                Some(names) => break names,
                None => tokio::time::sleep(backoff.next_delay()).await,
            }
        };
        if !self.is_first {
            self.memory().inherit(&terminating, begun);
        }
        for name in terminating {
            queue.listed(&name, (self.time)());
        }
    }

    async fn sleep_until(&self, wakeup: Option<Timestamp>) {
        match wakeup {
            Some(at) => tokio::time::sleep(until(at, (self.time)())).await,
            None => std::future::pending().await,
        }
    }

    fn count(&self, metric: &'static Metric, labels: Vec<Arc<str>>, value: f64) {
        self.requests.trace.observer().measured(&Measurement { metric, labels, value });
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One pass over the namespace of that name.
    async fn pass(&self, name: &Arc<str>) -> Passed {
        let mut pass = Emptying::new(name, self.dry_run);
        let mut terminating = Arc::new(Terminating::new(name, pass.view()));
        let mut document = Arc::default();
        let mut asked = FuturesUnordered::new();
        let end = loop {
            while let Some((id, ask)) = pass.ask(&mut self.memory(), (self.time)()) {
                asked.push(self.requests.perform(id, ask, Arc::clone(&terminating), Arc::clone(&document)));
            }
            if let Some(end) = pass.end() {
                break end.clone();
            }
            match asked.next().await {
                Some(Answered { id, reply, read }) => {
                    pass.heard(&mut self.memory(), id, reply, (self.time)());
                    if let Some(read) = read {
                        document = Arc::new(read);
                        terminating = Arc::new(Terminating::new(name, pass.view()));
                    }
                }
                None => self.sleep_until(pass.next_wakeup()).await,
            }
        };
        self.say(name, &pass.view().uid, &end);
        let uid = Some(&pass.view().uid).filter(|uid| !uid.is_empty());
        Passed { end, uid: uid.map(|uid| Uid::new(uid)), is_held: pass.waits_for_others() }
    }

    fn say(&self, namespace: &str, uid: &str, end: &End) {
        match end {
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
            End::DryRun(contents) if !self.has_said(uid, contents) => {
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
    fn has_said(&self, uid: &str, contents: &Contents) -> bool {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= REMEMBERED_REPORTS {
            said.clear();
        }
        said.insert(uid.to_owned(), contents.clone()).as_ref() == Some(contents)
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
