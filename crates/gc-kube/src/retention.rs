//! The loop that feeds a retention collector from watches and performs what it decides.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gc_retention::engine::{Collecting, Counts, Observation};
use gc_retention::objects::{Facts, Kind};
use gc_types::{Effect, Outcome, Request, Timestamp};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::collector::{Observer, QUEUED_BATCHES, SHUTDOWN_GRACE};
use crate::connection::ApiClient;
use crate::facts::{FactsWatcher, list_live};
use crate::pacing::{Pacer, PacingOptions, Signal};
use crate::requests::{Performed, Performer};
use crate::resources::{ResourceTable, Route};

/// The collector is told the time at least so often.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// A retention collector over one API server.
#[derive(Debug)]
pub struct RetentionCollector<C> {
    client: ApiClient,
    collecting: C,
    pacing: PacingOptions,
    dry_run: bool,
}

/// What a request came to, and what a live list found.
struct Done {
    performed: Performed,
    found: Vec<Facts>,
}

struct Flying {
    effect: Effect,
    begun: std::time::Instant,
}

struct Driver<C> {
    collecting: C,
    client: ApiClient,
    performer: Performer,
    observer: Arc<dyn Observer>,
    pacer: Pacer,
    dry_run: bool,
    /// Effects that wait for a place; the collector bounds how many it has in flight.
    pending: VecDeque<Effect>,
    flying: HashMap<tokio::task::Id, Flying>,
    requests: JoinSet<Done>,
    now: Timestamp,
}

impl<C: Collecting> RetentionCollector<C> {
    /// Nothing is sent before [`RetentionCollector::run`]; with `dry_run` nothing is changed at all.
    #[must_use]
    pub fn new(client: ApiClient, collecting: C, pacing: PacingOptions, dry_run: bool) -> Self {
        Self { client, collecting, pacing, dry_run }
    }

    /// Runs until `shutdown` is ready; then sends nothing further, gives what is in flight [`SHUTDOWN_GRACE`],
    /// and answers what has been counted.
    pub async fn run(self, observer: Arc<dyn Observer>, shutdown: impl Future<Output = ()>) -> Counts {
        let (sink, observations) = mpsc::channel(QUEUED_BATCHES);
        let mut watches = JoinSet::new();
        for kind in self.collecting.kinds() {
            watches.spawn(FactsWatcher::new(self.client.clone(), *kind, sink.clone()).run());
        }
        drop(sink);
        let table = ResourceTable::default();
        for kind in Kind::ALL {
            table.insert(Arc::new(Route::new(kind.info())));
        }
        let mut driver = Driver {
            collecting: self.collecting,
            performer: Performer::new(self.client.clone(), table),
            client: self.client,
            observer,
            pacer: Pacer::new(self.pacing),
            dry_run: self.dry_run,
            pending: VecDeque::new(),
            flying: HashMap::new(),
            requests: JoinSet::new(),
            now: Timestamp::default(),
        };
        driver.run(observations, shutdown).await;
        driver.land().await;
        watches.abort_all();
        driver.collecting.counts()
    }
}

impl<C: Collecting> Driver<C> {
    async fn run(
        &mut self,
        mut observations: mpsc::Receiver<Vec<Observation>>,
        shutdown: impl Future<Output = ()>,
    ) {
        let mut shutdown = std::pin::pin!(shutdown);
        self.tick();
        loop {
            let paused_until = self.act();
            let wake = self.next_wake(paused_until);
            tokio::select! {
                biased;
                () = &mut shutdown => return,
                Some(done) = self.requests.join_next_with_id() => self.take_done(done),
                batch = observations.recv() => {
                    let Some(batch) = batch else { return };
                    self.tick();
                    for observation in batch {
                        self.collecting.observe(observation);
                    }
                }
                () = tokio::time::sleep_until(wake) => self.tick(),
            }
        }
    }

    fn tick(&mut self) {
        let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let milliseconds = i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX);
        self.now = self.now.max(Timestamp(milliseconds));
        self.collecting.tick(self.now);
    }

    /// Asks for effects and sends what may go. Answers until when nothing may go, if the pacing says so.
    fn act(&mut self) -> Option<std::time::Instant> {
        while let Some(effect) = self.collecting.poll_effect() {
            self.observer.decided(&effect);
            if self.dry_run && matches!(effect.request, Request::Delete { .. } | Request::Guarded { .. }) {
                // Taken as done, so that it is decided once and not again and again.
                self.observer.finished(&effect, &Outcome::Applied(None), 0, Duration::ZERO);
                self.collecting.finish(effect.id, &Outcome::Applied(None));
                continue;
            }
            self.pending.push_back(effect);
        }
        while let Some(effect) = self.pending.pop_front() {
            let now = std::time::Instant::now();
            if let Err(until) = self.pacer.begin(now) {
                self.pending.push_front(effect);
                return until;
            }
            let (client, performer) = (self.client.clone(), self.performer.clone());
            let request = effect.request.clone();
            let task = self.requests.spawn(async move { perform(&client, &performer, &request).await });
            self.flying.insert(task.id(), Flying { effect, begun: now });
        }
        None
    }

    fn take_done(&mut self, done: Result<(tokio::task::Id, Done), tokio::task::JoinError>) {
        self.tick();
        let (id, done) = match done {
            Ok(answer) => answer,
            // A request that died without an answer: its fate is unknown.
            Err(error) => (error.id(), Done { performed: unknown(error.to_string()), found: Vec::new() }),
        };
        let Some(Flying { effect, begun }) = self.flying.remove(&id) else { return };
        let now = std::time::Instant::now();
        let took = now.saturating_duration_since(begun);
        let Performed { outcome, signal, round_trips } = done.performed;
        let request_begun = now.checked_sub(took / round_trips.max(1)).unwrap_or(begun);
        self.pacer.finish(request_begun, now, signal);
        for facts in done.found {
            self.collecting.observe(Observation::Found(facts));
        }
        self.observer.finished(&effect, &outcome, round_trips, took);
        self.collecting.finish(effect.id, &outcome);
    }

    fn next_wake(&self, paused_until: Option<std::time::Instant>) -> Instant {
        let now = Instant::now();
        let mut wake = now + LONGEST_SLEEP;
        if let Some(at) = self.collecting.next_wakeup() {
            let milliseconds = u64::try_from(at.0.saturating_sub(self.now.0)).unwrap_or_default();
            wake = wake.min(now + Duration::from_millis(milliseconds));
        }
        match paused_until {
            Some(until) => wake.min(until.into()),
            None => wake,
        }
    }

    /// Sends nothing further, and waits a little for what is in flight.
    async fn land(&mut self) {
        let deadline = Instant::now() + SHUTDOWN_GRACE;
        while let Ok(Some(done)) = tokio::time::timeout_at(deadline, self.requests.join_next_with_id()).await
        {
            self.take_done(done);
        }
        self.requests.abort_all();
    }
}

async fn perform(client: &ApiClient, performer: &Performer, request: &Request) -> Done {
    let Request::Barrier { resource, namespace, .. } = request else {
        return Done { performed: performer.perform(request).await, found: Vec::new() };
    };
    let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.resource() == *resource) else {
        return Done { performed: unknown("no such resource is watched".to_owned()), found: Vec::new() };
    };
    match list_live(client, kind, namespace.as_deref().unwrap_or_default()).await {
        Ok(found) => {
            let outcome = Outcome::Applied(None);
            Done { performed: Performed { outcome, signal: Signal::Answered, round_trips: 1 }, found }
        }
        Err(error) => Done { performed: unknown(error.to_string()), found: Vec::new() },
    }
}

fn unknown(message: String) -> Performed {
    let outcome = Outcome::Failed { message, retry_after_milliseconds: None };
    Performed { outcome, signal: Signal::Answered, round_trips: 1 }
}
