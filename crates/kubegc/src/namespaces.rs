//! The namespace controller: empties terminating namespaces (spec `api-deletion.md`, 12.5). The verdicts are
//! `gc_retention::namespaces`; this performs the passes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt as _;
use gc_kube::discovery::{Discovered, ServedResource, discover};
use gc_kube::notes::Notes;
use gc_kube::{ApiClient, Clock, NoObserver, Observer, system_clock};
use gc_retention::engine::{Counts, Standing};
use gc_retention::measures::{Measurement, Metric, NAMESPACE_DURATION, NAMESPACE_PASSES, NAMESPACE_REQUESTS};
use gc_retention::namespaces::{Groups, Learnt, Next, Pass, Unanswered, finalizers_after};
use gc_retention::permissions::Controller;
use gc_types::{Event, EventNote, Outcome, Scope, Severity, Timestamp, Uid};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use http_body_util::Full;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::namespace_documents::{
    collection_path, condition_value, conditions, delete_options, problem, remaining, spec_finalizers,
    time_text,
};
use crate::namespace_trace::{Terminating, Trace, namespace_key};

/// Passes at a time (`--concurrent-namespace-syncs`).
const CONCURRENT_NAMESPACES: usize = 10;
/// Resources of one namespace that are emptied at a time.
const CONCURRENT_RESOURCES: usize = 8;
/// All namespaces are looked through this often (`--namespace-sync-period`).
const SYNC_PERIOD: Duration = Duration::from_mins(5);
const FIRST_RETRY: Duration = Duration::from_millis(5);
const LONGEST_RETRY: Duration = Duration::from_mins(1);
/// Names that wait to be taken; more are found by the next look through all namespaces.
const QUEUED_NAMES: usize = 10_000;
/// Tries to write a status or the finalizers over conflicts.
const CONFLICT_TRIES: usize = 5;
/// Tries of a request about the namespace itself that fails for the moment; without it, the whole pass is lost.
const OWN_TRIES: usize = 5;
/// After so long, it is not tried again in the same pass.
const OWN_PATIENCE: Duration = Duration::from_secs(2);
const PAGE_SIZE: usize = 500;
/// A namespace that could not be emptied for so long is told of.
const PATIENCE: Duration = Duration::from_secs(10);
/// So many namespaces that cannot be emptied are told of when the reason changes.
const REMEMBERED_FAILURES: usize = 10_000;
/// Of so many namespaces a dry run remembers what it has said.
const REMEMBERED_REPORTS: usize = 10_000;
const LIST_ACCEPT: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
const OBJECT_ACCEPT: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const JSON: &str = "application/json";

/// Names of terminating namespaces, as they are heard of.
pub(crate) type NamespaceNames = mpsc::Receiver<Arc<str>>;

/// Hears of terminating namespaces from the ownership collector's watch.
pub(crate) struct NamespaceFeed {
    names: mpsc::Sender<Arc<str>>,
    /// The number of `namespaces`, once it is known.
    resource: AtomicU32,
}

impl NamespaceFeed {
    pub(crate) fn new() -> (Self, NamespaceNames) {
        let (names, receiver) = mpsc::channel(QUEUED_NAMES);
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

/// What became of a pass.
enum PassEnd {
    /// Nothing more to do.
    Done,
    /// Look again then.
    Again(Duration),
    /// Try again with growing delays; soon, if the pass has come further than the one before.
    Failed {
        /// What failed.
        why: String,
        /// More is known to be empty than before.
        further: bool,
    },
    /// It would have been emptied.
    DryRun,
}

/// Since when a namespace could not be emptied, and what was told about it.
struct Failing {
    /// Since one has come further.
    passes: u32,
    since: Instant,
    told: String,
}

impl Failing {
    fn begun() -> Self {
        Self { passes: 0, since: Instant::now(), told: String::new() }
    }
}

/// Empties terminating namespaces.
#[derive(Clone)]
pub(crate) struct NamespaceController {
    client: ApiClient,
    settle: Duration,
    /// No pass begins while this says true.
    held: watch::Receiver<bool>,
    trace: Arc<Trace>,
    clock: Clock,
    dry_run: bool,
    /// What is known of groups that may be dead by now.
    groups: Arc<Mutex<Groups>>,
    /// What passes that failed in part have found empty.
    learnt: Arc<Mutex<Learnt>>,
    /// Deletions of collections that may be at work although nobody waits for their answer.
    unanswered: Arc<Mutex<Unanswered>>,
    /// The last discovery that failed nowhere, and when it was asked for.
    discovered: Arc<Mutex<Option<(Timestamp, Arc<Discovered>)>>>,
    /// UIDs of namespaces that cannot be emptied.
    failing: Arc<Mutex<BTreeMap<Arc<str>, Uid>>>,
    /// What a dry run has said of namespaces, by their UID.
    said: Arc<Mutex<BTreeMap<String, Contents>>>,
}

/// Why a request was not answered, and whether it may be carried out all the same.
struct NoAnswer {
    why: String,
    may_be_at_work: bool,
}

impl From<NoAnswer> for String {
    fn from(error: NoAnswer) -> Self {
        error.why
    }
}

/// How many objects of which resource are in a namespace, and what could not be seen of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Contents {
    found: BTreeMap<String, usize>,
    problems: String,
}

impl NamespaceController {
    pub(crate) fn new(client: ApiClient, settle: Duration) -> Self {
        Self {
            client,
            settle,
            held: watch::channel(false).1,
            trace: Arc::new(Trace::new(|_| Arc::new(NoObserver))),
            clock: system_clock(),
            dry_run: false,
            groups: Arc::default(),
            learnt: Arc::default(),
            unanswered: Arc::default(),
            discovered: Arc::default(),
            failing: Arc::default(),
            said: Arc::default(),
        }
    }

    /// Begins nothing while this says true.
    pub(crate) fn held_while(self, held: watch::Receiver<bool>) -> Self {
        Self { held, ..self }
    }

    /// Everything that is deleted, and everything that is measured, is told by this.
    pub(crate) fn traced_by(self, trace: Trace) -> Self {
        Self { trace: Arc::new(trace), ..self }
    }

    /// It goes by this clock.
    pub(crate) fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Changes nothing, and says in the log what is in terminating namespaces.
    pub(crate) fn dry_run(self, dry_run: bool) -> Self {
        Self { dry_run, ..self }
    }

    /// Runs until `shutdown`. Each name is in work at most once; one that is heard of meanwhile runs again.
    pub(crate) async fn run(self, mut names: NamespaceNames, shutdown: impl Future<Output = ()>) {
        let mut shutdown = std::pin::pin!(shutdown);
        let mut work: JoinSet<(Arc<str>, PassEnd)> = JoinSet::new();
        let mut known: HashSet<Arc<str>> = HashSet::new();
        let mut again: HashSet<Arc<str>> = HashSet::new();
        let mut failures: HashMap<Arc<str>, Failing> = HashMap::new();
        let places = Arc::new(tokio::sync::Semaphore::new(CONCURRENT_NAMESPACES));
        let mut resync = tokio::time::interval(SYNC_PERIOD);
        let mut counts = Counts::default();
        let mut synced = false;
        let (notes, writer) =
            Notes::new(self.client.clone(), self.trace.table(), Controller::Namespace.event_source());
        let mut writing = JoinSet::new();
        writing.spawn(writer);
        loop {
            let standing = Standing { counts, waiting: known.len(), synced, ..Standing::default() };
            self.trace.observer().standing(&standing);
            let (name, delay) = tokio::select! {
                () = &mut shutdown => return,
                // Without anybody who names them, they are found by the look through all.
                Some(name) = names.recv() => {
                    if known.contains(&name) {
                        again.insert(name);
                        continue;
                    }
                    (name, self.settle)
                }
                _ = resync.tick() => {
                    for name in self.terminating().await {
                        if !known.contains(&name) {
                            self.start(&mut work, &places, Arc::clone(&name), self.settle);
                            known.insert(name);
                        }
                    }
                    synced = true;
                    continue;
                }
                Some(Ok((name, end))) = work.join_next() => {
                    counts.judged += 1;
                    self.count(&NAMESPACE_PASSES, vec![end_word(&end).into()], 1.0);
                    let delay = match end {
                        PassEnd::Again(delay) => delay,
                        PassEnd::Failed { why, further } => {
                            tracing::debug!(namespace = %name, why, "the namespace could not be emptied yet");
                            counts.errors += 1;
                            let failing = failures.entry(Arc::clone(&name)).or_insert_with(Failing::begun);
                            failing.passes = if further { 0 } else { failing.passes + 1 };
                            self.tell(&notes, &name, &why, failing);
                            FIRST_RETRY.saturating_mul(1 << failing.passes.min(16)).min(LONGEST_RETRY)
                        }
                        PassEnd::Done if again.contains(&name) => Duration::ZERO,
                        PassEnd::Done | PassEnd::DryRun => {
                            again.remove(&name);
                            known.remove(&name);
                            failures.remove(&name);
                            if let Some(uid) = self.failing().remove(&name) {
                                self.learnt().forget(&uid.to_string());
                                self.unanswered().forget(&uid.to_string());
                            }
                            continue;
                        }
                    };
                    // Whatever was heard meanwhile is seen by the next pass; a change makes waiting shorter.
                    let delay = if again.remove(&name) { delay.min(Duration::from_millis(100)) } else { delay };
                    (name, delay)
                }
            };
            known.insert(Arc::clone(&name));
            self.start(&mut work, &places, name, delay);
        }
    }

    fn failing(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Uid>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes an Event about a namespace that could not be emptied for a while, and again when the reason changes.
    fn tell(&self, notes: &Notes, name: &Arc<str>, why: &str, failing: &mut Failing) {
        let Some(uid) = self.failing().get(name).cloned() else { return };
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

    fn count(&self, metric: &'static Metric, labels: Vec<Arc<str>>, value: f64) {
        self.trace.observer().measured(&Measurement { metric, labels, value });
    }

    fn start(
        &self,
        work: &mut JoinSet<(Arc<str>, PassEnd)>,
        places: &Arc<tokio::sync::Semaphore>,
        name: Arc<str>,
        delay: Duration,
    ) {
        let (mut controller, places) = (self.clone(), Arc::clone(places));
        work.spawn(async move {
            tokio::time::sleep(delay).await;
            // An error says that nobody is left who could hold it.
            let _ = controller.held.wait_for(|held| !held).await;
            let _place = places.acquire_owned().await;
            let failed = |why| PassEnd::Failed { why, further: false };
            let end = controller.pass(&name).await.unwrap_or_else(failed);
            (name, end)
        });
    }

    async fn terminating(&self) -> Vec<Arc<str>> {
        let mut names = Vec::new();
        let items = self.list("/api/v1/namespaces").await;
        for item in items.ok().flatten().unwrap_or_default() {
            if !item["metadata"]["deletionTimestamp"].is_null()
                && let Some(name) = item["metadata"]["name"].as_str()
            {
                names.push(Arc::from(name));
            }
        }
        names
    }

    async fn pass(&self, name: &str) -> Result<PassEnd, String> {
        let path = format!("/api/v1/namespaces/{name}");
        let (code, namespace) = self.call(Method::GET, &path, None).await?;
        if code == 404 {
            return Ok(PassEnd::Done);
        }
        if code != 200 {
            return Err(problem(&path, code, &namespace));
        }
        let uid = namespace["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let Some(deleted_at) = namespace["metadata"]["deletionTimestamp"].as_str() else {
            return Ok(PassEnd::Done);
        };
        if finalizers_after(&spec_finalizers(&namespace)).is_none() {
            return Ok(PassEnd::Done);
        }
        let terminating_seconds = deleted_at
            .parse::<jiff::Timestamp>()
            .map(|at| (self.clock)().0.div_euclid(1000) - at.as_second())
            .unwrap_or_default();
        if self.dry_run {
            self.show(name, &uid).await?;
            return Ok(PassEnd::DryRun);
        }
        if self.failing().len() < REMEMBERED_FAILURES {
            self.failing().insert(name.into(), Uid::new(&uid));
        }
        let terminating = Terminating { name, uid: &uid, since: deleted_at };
        self.learnt().begin(&uid, (self.clock)());
        let known = self.learnt().number(&uid);
        let pass = self.empty(terminating, terminating_seconds).await?;
        self.write_status(&path, &uid, &pass).await?;
        match pass.next(terminating_seconds) {
            Next::Retry => {
                Ok(PassEnd::Failed { why: pass.problems(), further: self.learnt().number(&uid) > known })
            }
            Next::Finalize => {
                let left = self.unanswered().wait_milliseconds(&uid, (self.clock)());
                if left > 0 {
                    tracing::info!(
                        namespace = name,
                        milliseconds = left,
                        "a deletion of a collection was not answered: the namespace stays until it must be over"
                    );
                    return Ok(PassEnd::Again(Duration::from_millis(
                        u64::try_from(left).unwrap_or_default(),
                    )));
                }
                self.finalize(&path, terminating).await?;
                self.groups().forget(&uid);
                self.learnt().forget(&uid);
                self.unanswered().forget(&uid);
                #[allow(clippy::cast_precision_loss)] // for 285 million years
                let seconds = terminating_seconds.max(0) as f64;
                self.count(&NAMESPACE_DURATION, Vec::new(), seconds);
                Ok(PassEnd::Done)
            }
            Next::Wait { seconds } => {
                // Nothing has failed: what is left is looked for in everything, when it should be gone.
                self.learnt().forget(&uid);
                Ok(PassEnd::Again(Duration::from_secs(u64::try_from(seconds).unwrap_or_default())))
            }
        }
    }

    fn groups(&self) -> MutexGuard<'_, Groups> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn learnt(&self) -> MutexGuard<'_, Learnt> {
        self.learnt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unanswered(&self) -> MutexGuard<'_, Unanswered> {
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is served; not asked for again where a pass before this one has seen all of it.
    async fn served(&self, uid: &str) -> Result<Arc<Discovered>, String> {
        let asked = (self.clock)();
        let known = self.discovered.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((before, discovered)) = known
            && self.learnt().believes(uid, before, asked)
        {
            return Ok(discovered);
        }
        let discovered = Arc::new(discover(&self.client).await.map_err(|error| error.to_string())?);
        if discovered.failed.is_empty() {
            let whole = (asked, Arc::clone(&discovered));
            *self.discovered.lock().unwrap_or_else(PoisonError::into_inner) = Some(whole);
        }
        Ok(discovered)
    }

    /// What discovery says, and what it cannot say of groups that may matter.
    async fn discover(&self, uid: &str, pass: &mut Pass) -> Result<Vec<ServedResource>, String> {
        let discovered = self.served(uid).await?;
        let deletable =
            |served: &ServedResource| served.scope == Scope::Namespaced && served.verbs.contains("delete");
        let mut groups = self.groups();
        let mut seen: BTreeMap<&str, bool> = BTreeMap::new();
        for ((group, _), served) in &discovered.resources {
            if !discovered.is_unclear(group) {
                *seen.entry(group).or_default() |= deletable(served);
            }
        }
        for (group, deletable) in seen {
            groups.discovered(group, deletable);
        }
        for failed in &discovered.failed {
            let version = failed.version.as_deref().unwrap_or("*");
            let named = format!("{}/{version}: {}", failed.group, failed.message);
            match groups.excuse(uid, &failed.group) {
                Some(why) => pass.excused.push(format!("{named} (not waited for: {why})")),
                None => pass.undiscovered.push(named),
            }
        }
        // BEAT-NS-2: without knowing of pods, nothing that they may need is taken away.
        if discovered.is_unclear("") {
            pass.failures.push("pods could not be looked for: discovery of the core group failed".to_owned());
        }
        Ok(discovered.resources.values().filter(|served| deletable(served)).cloned().collect())
    }

    /// Says what would be deleted, and why the namespace would stay all the same.
    async fn show(&self, namespace: &str, uid: &str) -> Result<(), String> {
        let mut pass = Pass::default();
        let mut contents = Contents::default();
        for served in self.discover(uid, &mut pass).await? {
            match self.list(&collection_path(&served, namespace)).await {
                Ok(items) => {
                    let objects = items.unwrap_or_default().len();
                    if objects > 0 {
                        contents.found.insert(format!("{}.{}", served.resource, served.group), objects);
                    }
                }
                Err(why) => pass.failures.push(why),
            }
        }
        contents.problems = pass.problems();
        if self.has_said(uid, &contents) {
            return Ok(());
        }
        for (resource, objects) in &contents.found {
            tracing::info!(namespace, resource, objects, "dry run: would be deleted");
        }
        match contents.problems.as_str() {
            "" => tracing::info!(namespace, "dry run: the namespace would be finalized when it is empty"),
            why => tracing::info!(namespace, why, "dry run: the namespace could not be emptied"),
        }
        Ok(())
    }

    /// Whether just this has been said of a namespace. From here on, it has.
    fn has_said(&self, uid: &str, contents: &Contents) -> bool {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= REMEMBERED_REPORTS {
            said.clear();
        }
        said.insert(uid.to_owned(), contents.clone()).as_ref() == Some(contents)
    }

    /// Deletes everything in the namespace, pods first, and reports what is left.
    async fn empty(&self, namespace: Terminating<'_>, terminating_seconds: i64) -> Result<Pass, String> {
        let uid = namespace.uid;
        let mut pass = Pass::default();
        let (pods, others): (Vec<_>, Vec<_>) = self
            .discover(uid, &mut pass)
            .await?
            .into_iter()
            .partition(|served| served.group.is_empty() && *served.resource == *"pods");
        for served in pods {
            self.empty_resource(&served, namespace, terminating_seconds, &mut pass).await;
        }
        // S15: a pod that could not be dealt with stops the pass, as one that is still there does.
        if !pass.failures.is_empty() || pass.remaining.iter().any(|left| left.objects > 0) {
            return Ok(pass);
        }
        let emptied = futures::stream::iter(others)
            .map(|served| async move {
                let mut part = Pass::default();
                self.empty_resource(&served, namespace, terminating_seconds, &mut part).await;
                (served.group, part)
            })
            .buffer_unordered(CONCURRENT_RESOURCES)
            .collect::<Vec<_>>()
            .await;
        let mut empty: BTreeMap<Arc<str>, bool> = BTreeMap::new();
        for (group, part) in emptied {
            *empty.entry(group).or_insert(true) &= part == Pass::default();
            pass.failures.extend(part.failures);
            pass.remaining.extend(part.remaining);
        }
        for (group, _) in empty.into_iter().filter(|(_, empty)| *empty) {
            self.groups().emptied(uid, &group);
        }
        pass.failures.sort();
        Ok(pass)
    }

    async fn empty_resource(
        &self,
        served: &ServedResource,
        namespace: Terminating<'_>,
        terminating_seconds: i64,
        pass: &mut Pass,
    ) {
        let path = collection_path(served, namespace.name);
        let resource = format!("{}.{}", served.resource, served.group);
        let asked = (self.clock)();
        if self.learnt().is_empty(namespace.uid, &resource, asked) {
            return;
        }
        let emptied = async {
            let together = served.verbs.contains("deletecollection");
            if !(together && self.delete_collection(served, namespace, &path).await?) {
                self.delete_each(served, namespace, &path).await?;
            }
            self.list(&path).await
        };
        match emptied.await {
            // What cannot be listed says nothing of what is there.
            Ok(None) => {}
            Ok(Some(items)) if items.is_empty() => {
                self.learnt().emptied(namespace.uid, &resource, asked);
            }
            Ok(Some(items)) => pass.remaining.push(remaining(resource, &items, terminating_seconds)),
            Err(why) => pass.failures.push(why),
        }
    }

    /// Whether the server takes the request.
    async fn delete_collection(
        &self,
        served: &ServedResource,
        namespace: Terminating<'_>,
        path: &str,
    ) -> Result<bool, String> {
        let (begun, sent) = (Instant::now(), (self.clock)());
        let answer = self.send(Method::DELETE, path, LIST_ACCEPT, Some(delete_options(None))).await;
        if answer.as_ref().is_err_and(|error| error.may_be_at_work) {
            self.unanswered().note(namespace.uid, sent);
        }
        match answer? {
            (200..=299, body) => {
                // What was there; a server that does not say has deleted it all the same.
                let items = body["items"].as_array().map(Vec::as_slice).unwrap_or_default();
                self.trace.deleted_together(served, namespace, items, begun.elapsed()).await;
                Ok(true)
            }
            (404 | 405, _) => Ok(false),
            (code, body) => Err(problem(path, code, &body)),
        }
    }

    async fn delete_each(
        &self,
        served: &ServedResource,
        namespace: Terminating<'_>,
        path: &str,
    ) -> Result<(), String> {
        for item in self.list(path).await?.unwrap_or_default() {
            let (Some(name), uid) = (item["metadata"]["name"].as_str(), item["metadata"]["uid"].as_str())
            else {
                continue;
            };
            let path = format!("{path}/{name}");
            let begun = Instant::now();
            let (code, body) =
                self.send(Method::DELETE, &path, OBJECT_ACCEPT, Some(delete_options(uid))).await?;
            let outcome = match code {
                200..=299 => Outcome::Applied(None),
                404 => Outcome::Absent,
                // It has been replaced, and is found by the next pass.
                409 => Outcome::Conflict,
                code => Outcome::Refused { code, message: problem(&path, code, &body) },
            };
            // Of what is going already, only a failure is news.
            let is_news = item["metadata"]["deletionTimestamp"].is_null();
            if is_news || matches!(outcome, Outcome::Refused { .. }) {
                self.trace.deleted(served, namespace, &item, &outcome, begun.elapsed());
            }
            match outcome {
                Outcome::Refused { code, message } if code != 405 => return Err(message),
                _ => {}
            }
        }
        Ok(())
    }

    /// The metadata of a collection; `None` if it cannot be listed at all.
    async fn list(&self, path: &str) -> Result<Option<Vec<Value>>, String> {
        let mut items = Vec::new();
        let mut page = format!("{path}?limit={PAGE_SIZE}");
        loop {
            let (code, mut body) = self.send(Method::GET, &page, LIST_ACCEPT, None).await?;
            match code {
                200 => {}
                404 | 405 => return Ok(None),
                code => return Err(problem(path, code, &body)),
            }
            match body.get_mut("items").map(Value::take) {
                Some(Value::Array(found)) => items.extend(found),
                Some(Value::Null) => {}
                // What is no list says nothing of what is there.
                _ => return Err(format!("GET {path} was answered with no list")),
            }
            match body["metadata"]["continue"].as_str() {
                Some(token) if !token.is_empty() => {
                    page = format!("{path}?limit={PAGE_SIZE}&continue=");
                    for byte in token.bytes() {
                        let _ = write!(page, "%{byte:02X}"); // writing to a String cannot fail
                    }
                }
                _ => return Ok(Some(items)),
            }
        }
    }

    async fn write_status(&self, path: &str, uid: &str, pass: &Pass) -> Result<(), String> {
        for _ in 0..CONFLICT_TRIES {
            let (code, mut namespace) = self.call(Method::GET, path, None).await?;
            if code == 404 {
                return Ok(());
            }
            if namespace["metadata"]["uid"].as_str() != Some(uid) {
                return Err(format!("{path} has been deleted and made anew meanwhile"));
            }
            let before = conditions(&namespace);
            let now = time_text((self.clock)());
            let after = pass.conditions(&before, &now);
            if after == before && namespace["status"]["phase"] == "Terminating" {
                return Ok(());
            }
            namespace["status"]["phase"] = "Terminating".into();
            namespace["status"]["conditions"] = after.iter().map(condition_value).collect();
            let (code, body) = self.call(Method::PUT, &format!("{path}/status"), Some(namespace)).await?;
            match code {
                200..=299 | 404 => return Ok(()),
                409 => {}
                code => return Err(problem(path, code, &body)),
            }
        }
        Err(format!("the status of {path} keeps changing"))
    }

    async fn finalize(&self, path: &str, terminating: Terminating<'_>) -> Result<(), String> {
        for _ in 0..CONFLICT_TRIES {
            let (code, mut namespace) = self.call(Method::GET, path, None).await?;
            if code == 404 || namespace["metadata"]["uid"].as_str() != Some(terminating.uid) {
                return Ok(());
            }
            let Some(left) = finalizers_after(&spec_finalizers(&namespace)) else { return Ok(()) };
            let version = namespace["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
            namespace["spec"]["finalizers"] = left.clone().into();
            let begun = Instant::now();
            let (code, body) = self.call(Method::PUT, &format!("{path}/finalize"), Some(namespace)).await?;
            match code {
                200..=299 => {
                    self.trace.finalized(terminating, &version, &left, begun.elapsed());
                    return Ok(());
                }
                404 => return Ok(()),
                409 => {}
                code => return Err(problem(path, code, &body)),
            }
        }
        Err(format!("the finalizers of {path} keep changing"))
    }

    /// A request about the namespace itself; what fails for the moment is tried again.
    async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Result<(u16, Value), String> {
        let begun = Instant::now();
        let mut delay = FIRST_RETRY;
        let mut answer = self.send(method.clone(), path, JSON, body.clone()).await;
        for _ in 1..OWN_TRIES {
            if matches!(answer, Ok((..500, _))) || begun.elapsed() > OWN_PATIENCE {
                break;
            }
            tokio::time::sleep(delay).await;
            delay *= 2;
            answer = self.send(method.clone(), path, JSON, body.clone()).await;
        }
        Ok(answer?)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        accept: &'static str,
        body: Option<Value>,
    ) -> Result<(u16, Value), NoAnswer> {
        let list = method == Method::GET && path.contains("?limit=");
        let verb = if list { "list" } else { verb_of(&method) };
        let mut request = Request::builder().method(method).uri(path).header(ACCEPT, accept);
        let mut bytes = Bytes::new();
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, JSON);
            bytes = body.to_string().into();
        }
        let unsent = |error: http::Error| NoAnswer { why: error.to_string(), may_be_at_work: false };
        let request = request.body(Full::new(bytes)).map_err(unsent)?;
        let answer = self.client.call(request).await;
        let code =
            answer.as_ref().map_or_else(|_| "none".into(), |answer| answer.head.status.as_str().into());
        self.count(&NAMESPACE_REQUESTS, vec![verb.into(), code], 1.0);
        let answer = answer.map_err(|error| NoAnswer {
            why: format!("{path}: {error}"),
            may_be_at_work: error.may_be_at_work(),
        })?;
        let value = serde_json::from_slice(&answer.body).unwrap_or_default();
        Ok((answer.head.status.as_u16(), value))
    }
}

fn verb_of(method: &Method) -> &'static str {
    match *method {
        Method::DELETE => "delete",
        Method::PUT => "update",
        _ => "get",
    }
}

fn end_word(end: &PassEnd) -> &'static str {
    match end {
        PassEnd::Done => "done",
        PassEnd::Again(_) => "waiting",
        PassEnd::Failed { .. } => "failed",
        PassEnd::DryRun => "dry-run",
    }
}

#[cfg(test)]
#[path = "namespaces_tests.rs"]
mod tests;
