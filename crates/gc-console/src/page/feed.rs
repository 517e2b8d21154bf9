//! Feed of the collectors' changes: a ring of the most recent ones for all readers, and counts of the last hour.
//!
//! A deleted object is counted once, when it is gone: immediately, or when nothing blocks it any more after its deletion was
//! requested.
//!
//! A reader costs no memory except for its position in the ring. A slow reader gets the most recent changes, and the number of
//! those that were skipped.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use gc_collectors::engine::CollectorState;
use gc_collectors::measures::{self, Metric};
use gc_collectors::permissions::Controller;
use gc_kube::{Observer, ResourceTable};
use gc_process::journal::{entry, verb};
use gc_types::{Change, Effect, Event, ObjectKey, Outcome, Request, Uid};
use serde_json::Value;
use tokio::sync::watch;

/// Number of changes that are kept.
const KEPT_ENTRIES: usize = 4096;
/// Maximum length of a filter's text, in characters.
const LONGEST_FILTER: usize = 256;
/// Number of minutes that are counted.
pub(crate) const MINUTES: usize = 60;
/// Maximum number of kinds of changes that are counted separately in one minute; others are counted without their namespace and
/// resource.
const COUNTED_APART: usize = 2048;

/// Maximum number of objects that are tracked after their deletion was requested; further ones are counted immediately.
const PENDING: usize = 16_384;

/// Subject of a change, as permissions refer to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChangeSubject {
    /// API group.
    pub(crate) group: Arc<str>,
    /// Plural name; empty if unknown.
    pub(crate) resource: Arc<str>,
    /// Namespace; empty at cluster scope.
    pub(crate) namespace: Arc<str>,
}

impl ChangeSubject {
    /// Returns the subject of changes to nodes.
    pub(crate) fn of_nodes() -> Self {
        Self { resource: "nodes".into(), ..Self::default() }
    }
}

/// Content of a change.
enum Content {
    /// The effect of a collector, which is formatted when the first reader needs it.
    Effect(Box<FinishedEffect>),
    /// The order of a user, as the journal has it.
    Order(Value),
}

struct FinishedEffect {
    effect: Effect,
    outcome: Outcome,
    round_trips: u32,
    took: Duration,
    controller: &'static str,
    table: ResourceTable,
}

/// One change.
pub(crate) struct Entry {
    /// Number of the entry; numbers increase by one.
    pub(crate) number: u64,
    /// Subject of the change.
    pub(crate) about: ChangeSubject,
    /// The name of the object.
    pub(crate) name: Arc<str>,
    content: Content,
    time: jiff::Timestamp,
    /// Written when the first reader needs it.
    json: OnceLock<Arc<str>>,
    /// Text that filters search, in lower case; built when the first filter needs it.
    words: OnceLock<Box<str>>,
}

impl Entry {
    /// Converts to JSON, like a line of the journal.
    pub(crate) fn value(&self) -> Value {
        let mut value = match &self.content {
            Content::Effect(finished) => {
                let FinishedEffect { effect, outcome, round_trips, took, controller, table } = &**finished;
                let mut value = entry(effect, outcome, *round_trips, *took, table);
                value["controller"] = (*controller).into();
                value
            }
            Content::Order(value) => value.clone(),
        };
        value["time"] = self.time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string().into();
        value["number"] = self.number.into();
        value
    }

    /// Returns the text that filters search: the part of the change that a reader sees without opening it.
    fn words(&self) -> &str {
        self.words.get_or_init(|| {
            let value = self.value();
            let text = |field: &str| value[field].as_str().unwrap_or_default();
            let seen = ["namespace", "verb", "verdict", "message", "controller", "outcome"];
            // The form that readers see, and type.
            let object = format!("{}/{}", text("kind"), text("name"));
            let texts: Vec<&str> = std::iter::once(&*object).chain(seen.map(text)).collect();
            texts.join(" ").to_lowercase().into()
        })
    }

    /// Returns the JSON text, built once for all readers.
    pub(crate) fn json(&self) -> &Arc<str> {
        self.json.get_or_init(|| self.value().to_string().into())
    }
}

/// Selection of changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Filter {
    /// Namespace; empty for all.
    namespace: String,
    /// Words in lower case; a change must contain all of them.
    words: Vec<String>,
}

impl Filter {
    /// Creates a filter for a namespace, unless that is empty, and all words of this text, of which [`LONGEST_FILTER`] characters
    /// count.
    pub(crate) fn new(namespace: &str, text: &str) -> Self {
        let text: String = text.chars().take(LONGEST_FILTER).collect::<String>().to_lowercase();
        let words = text.split_whitespace().map(str::to_owned).collect();
        Self { namespace: namespace.to_owned(), words }
    }

    /// Reports whether it accepts everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.namespace.is_empty() && self.words.is_empty()
    }

    /// Reports whether it accepts this change.
    pub(crate) fn fits(&self, entry: &Entry) -> bool {
        (self.namespace.is_empty() || *entry.about.namespace == *self.namespace)
            && self.words.iter().all(|word| entry.words().contains(word.as_str()))
    }
}

#[derive(Default)]
struct Minute {
    /// Minutes since the epoch.
    number: i64,
    /// Deletions by collector and subject.
    deletions: BTreeMap<(&'static str, ChangeSubject), u64>,
}

#[derive(Default)]
struct Ring {
    entries: VecDeque<Arc<Entry>>,
    next: u64,
    minutes: VecDeque<Minute>,
    controllers: BTreeSet<&'static str>,
    pending: BTreeMap<(ChangeSubject, Arc<str>), PendingDeletion>,
}

/// A deletion that a collector has requested, of an object that still exists.
struct PendingDeletion {
    uid: Uid,
    controller: &'static str,
}

/// Feed of this process's collectors.
#[derive(Clone)]
pub(crate) struct Feed(Arc<PageState>);

struct PageState {
    /// Start time of the server, which distinguishes its numbers from those of other runs.
    run: i64,
    ring: Mutex<Ring>,
    next: watch::Sender<u64>,
    /// Number of pending deletions, so that most removals need no lock.
    pending: AtomicUsize,
    node_breaker: Mutex<Option<NodeBreaker>>,
}

/// Reason why no node is deleted: too many machines are missing at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeBreaker {
    /// Number of existing nodes whose machines are missing.
    pub(crate) missing: u64,
    /// Time since which no node is deleted.
    pub(crate) since: jiff::Timestamp,
}

impl Default for Feed {
    fn default() -> Self {
        Self(Arc::new(PageState {
            run: jiff::Timestamp::now().as_millisecond(),
            ring: Mutex::default(),
            next: watch::Sender::new(0),
            pending: AtomicUsize::new(0),
            node_breaker: Mutex::default(),
        }))
    }
}

/// Changes that a reader has not seen.
pub(crate) struct Unread {
    /// Changes, oldest first.
    pub(crate) entries: Vec<Arc<Entry>>,
    /// Number of older ones that are no longer kept.
    pub(crate) lost: u64,
}

/// Deletions of one collector in the last hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HourlyDeletions {
    /// Name of the collector.
    pub(crate) controller: &'static str,
    /// Number in each minute, the last one being the current one.
    pub(crate) minutes: Vec<u64>,
}

impl Feed {
    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.0.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the observer for one collector.
    pub(crate) fn observer(&self, controller: Controller, table: &ResourceTable) -> Arc<dyn Observer> {
        self.lock().controllers.insert(controller.name());
        self.observer_of(controller.name(), table)
    }

    /// Returns the observer for a component that is not a collector.
    pub(crate) fn observer_of(&self, name: &'static str, table: &ResourceTable) -> Arc<dyn Observer> {
        Arc::new(FeedObserver { feed: self.clone(), controller: name, table: table.clone() })
    }

    /// Announces collectors that will run, and which count before they have begun.
    pub(crate) fn expect(&self, controllers: &[Controller]) {
        self.lock().controllers.extend(controllers.iter().map(|controller| controller.name()));
    }

    /// Returns the names of the running collectors.
    pub(crate) fn controllers(&self) -> BTreeSet<&'static str> {
        self.lock().controllers.clone()
    }

    /// Returns a channel with the number of the next change, which is notified of new ones.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.0.next.subscribe()
    }

    /// Returns the number of the oldest change that is kept.
    pub(crate) fn first(&self) -> u64 {
        let ring = self.lock();
        ring.entries.front().map_or(ring.next, |entry| entry.number)
    }

    /// Returns a reader's position before the change of this number.
    pub(crate) fn place(&self, number: u64) -> String {
        format!("{}-{number}", self.0.run)
    }

    /// Returns the number of a position, which may be given alone; `None` if it belongs to another run of the server.
    pub(crate) fn number(&self, place: &str) -> Option<u64> {
        let number = match place.split_once('-') {
            Some((run, number)) => Some(number).filter(|_| run.parse() == Ok(self.0.run))?,
            None => place,
        };
        number.parse().ok().filter(|number| *number <= *self.0.next.borrow())
    }

    /// Returns the last report of the nodes' circuit breaker, if it is open.
    pub(crate) fn node_breaker(&self) -> Option<NodeBreaker> {
        *self.0.node_breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the changes from this number on.
    pub(crate) fn since(&self, from: u64) -> Unread {
        let ring = self.lock();
        let first = ring.entries.front().map_or(ring.next, |entry| entry.number);
        let skip = usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX);
        Unread {
            entries: ring.entries.iter().skip(skip).cloned().collect(),
            lost: first.saturating_sub(from),
        }
    }

    /// Returns the most recent changes of an object, newest first. Without its UID, those of the last object of that name: an
    /// earlier one is another object.
    pub(crate) fn of_object(
        &self,
        about: &ChangeSubject,
        name: &str,
        uid: Option<&Uid>,
        most: usize,
    ) -> Vec<Value> {
        let ring = self.lock();
        let named = |entry: &&Arc<Entry>| *entry.name == *name && entry.about == *about;
        let named: Vec<Arc<Entry>> = ring.entries.iter().rev().filter(named).cloned().collect();
        drop(ring);
        let named: Vec<Value> = named.iter().map(|entry| entry.value()).collect();
        let of = |value: &Value| value["uid"].as_str().map(Uid::new);
        let uid = uid.cloned().or_else(|| named.iter().find_map(of));
        // A change without a UID may be about this object.
        let fits = |value: &Value| of(value).is_none_or(|one| Some(&one) == uid.as_ref());
        named.into_iter().filter(fits).take(most).collect()
    }

    /// Returns deletions in the last hour by collector, restricted to what may be seen.
    pub(crate) fn collected(
        &self,
        now: jiff::Timestamp,
        may_see: &mut dyn FnMut(&ChangeSubject) -> bool,
    ) -> Vec<HourlyDeletions> {
        let last = now.as_second().div_euclid(60);
        let ring = self.lock();
        let mut collected: BTreeMap<&'static str, Vec<u64>> =
            ring.controllers.iter().map(|controller| (*controller, vec![0; MINUTES])).collect();
        for minute in &ring.minutes {
            let Ok(ago) = usize::try_from(last - minute.number) else { continue };
            let Some(place) = (MINUTES - 1).checked_sub(ago) else { continue };
            for ((controller, about), count) in &minute.deletions {
                if may_see(about) {
                    collected.entry(controller).or_insert_with(|| vec![0; MINUTES])[place] += count;
                }
            }
        }
        collected.into_iter().map(|(controller, minutes)| HourlyDeletions { controller, minutes }).collect()
    }

    fn write(&self, observer: &FeedObserver, key: &ObjectKey, happened: (&Effect, &Outcome, u32, Duration)) {
        let (effect, outcome, round_trips, took) = happened;
        let about = observer.subject(key);
        let now = jiff::Timestamp::now();
        let mut ring = self.lock();
        ring.count_deletion(minute_of(now), observer.controller, (&about, &key.name), (effect, outcome));
        self.0.pending.store(ring.pending.len(), Ordering::Release);
        let finished = FinishedEffect {
            effect: effect.clone(),
            outcome: outcome.clone(),
            round_trips,
            took,
            controller: observer.controller,
            table: observer.table.clone(),
        };
        let content = Content::Effect(Box::new(finished));
        self.push(ring, (about, Arc::clone(&key.name)), now, content);
    }

    /// Writes down the order of a user, as the journal has it.
    pub(crate) fn record(&self, about: ChangeSubject, name: &str, entry: Value) {
        let (ring, now) = (self.lock(), jiff::Timestamp::now());
        self.push(ring, (about, name.into()), now, Content::Order(entry));
    }

    fn push(
        &self,
        mut ring: MutexGuard<'_, Ring>,
        (about, name): (ChangeSubject, Arc<str>),
        time: jiff::Timestamp,
        content: Content,
    ) {
        if ring.entries.len() >= KEPT_ENTRIES {
            ring.entries.pop_front();
        }
        let number = ring.next;
        ring.next += 1;
        let (json, words) = (OnceLock::new(), OnceLock::new());
        ring.entries.push_back(Arc::new(Entry { number, about, name, content, time, json, words }));
        let next = ring.next;
        drop(ring);
        // Another change may have been announced in the meantime.
        self.0.next.send_modify(|known| *known = next.max(*known));
    }
}

impl Feed {
    /// Handles an object that is gone, identified by its UID or, without one, by its name.
    fn gone(&self, observer: &FeedObserver, key: &ObjectKey, uid: Option<&Uid>) {
        if self.0.pending.load(Ordering::Acquire) == 0 {
            return;
        }
        let about = observer.subject(key);
        let mut ring = self.lock();
        ring.end_deletion(minute_of(jiff::Timestamp::now()), (&about, &key.name), uid);
        self.0.pending.store(ring.pending.len(), Ordering::Release);
    }
}

/// Returns the minutes since the epoch.
fn minute_of(time: jiff::Timestamp) -> i64 {
    time.as_second().div_euclid(60)
}

impl Ring {
    /// Counts a deletion after which the object is gone, and remembers one after which it remains.
    fn count_deletion(
        &mut self,
        minute: i64,
        controller: &'static str,
        (about, name): (&ChangeSubject, &Arc<str>),
        (effect, outcome): (&Effect, &Outcome),
    ) {
        let Some(uid) = uid_of(&effect.request) else { return };
        match outcome {
            Outcome::Applied(Some(_)) if is_deletion(&effect.request) => {
                let place = (about.clone(), Arc::clone(name));
                let is_known = self.pending.get(&place).is_some_and(|pending| pending.uid == *uid);
                if !is_known && self.pending.len() >= PENDING {
                    self.count(minute, controller, about);
                } else if !is_known {
                    self.pending.insert(place, PendingDeletion { uid: uid.clone(), controller });
                }
            }
            // Immediately, or with its last finalizer.
            Outcome::Applied(None) => {
                let was_pending = self.end_deletion(minute, (about, name), Some(uid));
                if !was_pending && is_deletion(&effect.request) {
                    self.count(minute, controller, about);
                }
            }
            _ => {}
        }
    }

    /// Counts a pending deletion whose object is gone, for the collector that requested it first. Returns whether there was one.
    fn end_deletion(
        &mut self,
        minute: i64,
        (about, name): (&ChangeSubject, &Arc<str>),
        uid: Option<&Uid>,
    ) -> bool {
        let place = (about.clone(), Arc::clone(name));
        let is_it = self.pending.get(&place).is_some_and(|pending| uid.is_none_or(|uid| pending.uid == *uid));
        let Some(pending) = is_it.then(|| self.pending.remove(&place)).flatten() else { return false };
        self.count(minute, pending.controller, about);
        true
    }

    fn count(&mut self, minute: i64, controller: &'static str, about: &ChangeSubject) {
        if self.minutes.back().is_none_or(|last| last.number != minute) {
            if self.minutes.len() >= MINUTES {
                self.minutes.pop_front();
            }
            self.minutes.push_back(Minute { number: minute, ..Minute::default() });
        }
        let Some(minute) = self.minutes.back_mut() else { return };
        let full = minute.deletions.len() >= COUNTED_APART;
        let key = (controller, about.clone());
        let key = if full && !minute.deletions.contains_key(&key) {
            (controller, ChangeSubject::default())
        } else {
            key
        };
        *minute.deletions.entry(key).or_default() += 1;
    }
}

/// Returns the UID of the object that a request deletes, or may remove.
fn uid_of(request: &Request) -> Option<&Uid> {
    match request {
        Request::Delete { uid, .. }
        | Request::RemoveFinalizer { uid, .. }
        | Request::Guarded { uid, change: Change::ForceDelete, .. } => Some(uid),
        _ => None,
    }
}

fn is_deletion(request: &Request) -> bool {
    matches!(request, Request::Delete { .. } | Request::Guarded { change: Change::ForceDelete, .. })
}

struct FeedObserver {
    feed: Feed,
    controller: &'static str,
    table: ResourceTable,
}

impl FeedObserver {
    /// Returns the subject of a change of an object.
    fn subject(&self, key: &ObjectKey) -> ChangeSubject {
        let route = self.table.get(key.resource);
        ChangeSubject {
            group: route.as_ref().map(|route| Arc::clone(&route.info.gvr.group)).unwrap_or_default(),
            resource: route.as_ref().map(|route| Arc::clone(&route.info.gvr.resource)).unwrap_or_default(),
            namespace: Arc::clone(&key.namespace),
        }
    }
}

impl Observer for FeedObserver {
    fn observed(&self, event: &Event) {
        if let Event::Removed { key, uid, .. } = event {
            self.feed.gone(self, key, Some(uid));
        }
    }

    fn gone(&self, key: &ObjectKey) {
        self.feed.gone(self, key, None);
    }

    fn standing(&self, standing: &CollectorState) {
        let read =
            |metric: &Metric| standing.gauges.iter().find(|one| one.metric == metric).map(|one| one.value);
        let Some(open) = read(&measures::NODE_BREAKER) else { return };
        let missing = read(&measures::NODES_MISSING).unwrap_or_default();
        let mut known = self.feed.0.node_breaker.lock().unwrap_or_else(PoisonError::into_inner);
        let since = known.map_or_else(jiff::Timestamp::now, |known| known.since);
        // A gauge counts whole nodes.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let missing = missing.round() as u64;
        *known = (open > 0.0).then_some(NodeBreaker { missing, since });
    }

    fn finished(&self, effect: &Effect, outcome: &Outcome, round_trips: u32, took: Duration) {
        // Reads, barriers and Events change nothing.
        let key = match &effect.request {
            Request::Delete { key, .. }
            | Request::SetOwners { key, .. }
            | Request::RemoveFinalizer { key, .. }
            | Request::Guarded { key, .. } => key,
            Request::Outside { key, .. } if verb(&effect.request) == "delete-storage" => key,
            Request::Outside { .. }
            | Request::Read { .. }
            | Request::RecordEvent(_)
            | Request::Barrier { .. } => {
                return;
            }
        };
        self.feed.write(self, key, (effect, outcome, round_trips, took));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use gc_collectors::measures::Measurement;
    use gc_types::{
        DeletionState, EffectId, ObservedObject, PropagationPolicy, Reason, ResourceId, ResourceVersion,
        Verdict,
    };

    fn deletion(namespace: &str, name: &str) -> Effect {
        let key = ObjectKey { resource: ResourceId(7), namespace: namespace.into(), name: name.into() };
        let policy = PropagationPolicy::Background;
        Effect {
            id: EffectId(1),
            request: Request::Delete { key, uid: Uid::new("u"), resource_version: None, policy },
            reason: Reason { verdict: Verdict::OwnersAbsent, owners: Vec::new(), evidence: Vec::new() },
        }
    }

    fn record(feed: &Feed, objects: &[(&str, &str)]) {
        let observer = feed.observer(Controller::GarbageCollector, &ResourceTable::default());
        for (namespace, name) in objects {
            observer.finished(&deletion(namespace, name), &Outcome::Applied(None), 1, Duration::ZERO);
        }
    }

    #[test]
    fn a_slow_reader_loses_the_oldest_and_knows_how_many() {
        let feed = Feed::default();
        let names: Vec<String> = (0..KEPT_ENTRIES + 3).map(|number| format!("o{number}")).collect();
        let objects: Vec<(&str, &str)> = names.iter().map(|name| ("n", name.as_str())).collect();
        record(&feed, &objects);
        let all = feed.since(0);
        let last = u64::try_from(KEPT_ENTRIES).unwrap() + 3;
        assert_eq!((all.entries.len(), all.lost), (KEPT_ENTRIES, 3));
        assert_eq!(*all.entries[0].name, *"o3");
        let newest = feed.since(last - 2);
        assert_eq!((newest.entries.len(), newest.lost), (2, 0));
        assert_eq!(feed.since(last).entries.len(), 0);
        assert_eq!(*feed.changes().borrow(), last);
    }

    #[test]
    fn a_filter_wants_all_its_words_in_its_namespace() {
        let feed = Feed::default();
        record(&feed, &[("shop", "cart-1"), ("bank", "cart-2")]);
        let entries = feed.since(0).entries;
        let fitting = |namespace: &str, text: &str| -> Vec<&str> {
            let filter = Filter::new(namespace, text);
            entries.iter().filter(|entry| filter.fits(entry)).map(|entry| &*entry.name).collect()
        };
        for (namespace, text, names) in [
            ("", "", &["cart-1", "cart-2"][..]),
            ("shop", "", &["cart-1"]),
            ("", "CART-2", &["cart-2"]),
            ("", "/cart-2", &["cart-2"]),
            ("", "ownersabsent delete cart", &["cart-1", "cart-2"]),
            ("shop", "cart-2", &[]),
            ("", "shop garbage-collector", &["cart-1"]),
        ] {
            assert_eq!(fitting(namespace, text), names, "{namespace} {text}");
        }
    }

    #[test]
    fn a_place_is_of_one_run() {
        let feed = Feed::default();
        record(&feed, &[("shop", "a"), ("shop", "b")]);
        let other = format!("{}-1", feed.0.run - 1);
        for (place, number) in [
            (&*feed.place(0), Some(0)),
            (&feed.place(2), Some(2)),
            (&feed.place(3), None),
            (&other, None),
            ("1", Some(1)),
            ("3", None),
            ("", None),
            ("-", None),
            ("x-1", None),
        ] {
            assert_eq!(feed.number(place), number, "{place:?}");
        }
    }

    #[test]
    fn the_breaker_of_nodes_is_known_while_it_is_open() {
        let feed = Feed::default();
        let observer = feed.observer(Controller::NodeLifecycle, &ResourceTable::default());
        let reading = |metric, value| Measurement { metric, labels: Vec::new(), value };
        let say = |open, missing| {
            let gauges =
                vec![reading(&measures::NODE_BREAKER, open), reading(&measures::NODES_MISSING, missing)];
            observer.standing(&CollectorState { gauges, ..CollectorState::default() });
        };
        say(0.0, 1.0);
        assert_eq!(feed.node_breaker(), None);
        say(1.0, 4.0);
        let first = feed.node_breaker().unwrap();
        say(1.0, 5.0);
        assert_eq!(feed.node_breaker(), Some(NodeBreaker { missing: 5, ..first }), "it opened once");
        // Reports of other collectors are not about nodes.
        feed.observer(Controller::GarbageCollector, &ResourceTable::default())
            .standing(&CollectorState::default());
        assert!(feed.node_breaker().is_some());
        say(0.0, 0.0);
        assert_eq!(feed.node_breaker(), None);
    }

    /// A pod that is given time to end, and a dependent that is deleted in the foreground, are counted once, when they are gone.
    #[test]
    fn an_object_is_counted_once_when_it_is_gone() {
        let feed = Feed::default();
        let collectors = [Controller::GarbageCollector, Controller::PodGarbageCollector];
        let [owners, pods] =
            collectors.map(|controller| feed.observer(controller, &ResourceTable::default()));
        let count = || {
            let collected = feed.collected(jiff::Timestamp::now(), &mut |_| true);
            let total = |controller: Controller| {
                let own = collected.iter().find(|one| one.controller == controller.name());
                own.map_or(0, |own| own.minutes.iter().sum::<u64>())
            };
            collectors.map(total)
        };
        let said = |observer: &Arc<dyn Observer>, effect: &Effect, remains: bool| {
            let Request::Delete { key, uid, .. } = &effect.request else { panic!("it deletes") };
            let object = ObservedObject {
                key: key.clone(),
                uid: uid.clone(),
                resource_version: ResourceVersion(1),
                deletion: DeletionState { deleting: true, ..DeletionState::default() },
                owners: [].into_iter().collect(),
                recreator: None,
            };
            observer.finished(effect, &Outcome::Applied(remains.then_some(object)), 1, Duration::ZERO);
        };
        let (web, cart) = (deletion("shop", "web"), deletion("shop", "cart"));
        said(&owners, &web, true);
        said(&owners, &cart, true);
        assert_eq!(count(), [0, 0], "they were only requested");
        let outcomes =
            feed.since(0).entries.iter().map(|entry| entry.value()["outcome"].clone()).collect::<Vec<_>>();
        assert_eq!(outcomes, ["requested", "requested"]);
        // Another collector finishes what the first one has requested.
        said(&pods, &web, false);
        assert_eq!(count(), [1, 0]);
        let key =
            |name: &str| ObjectKey { resource: ResourceId(7), namespace: "shop".into(), name: name.into() };
        let removed = |name: &str, uid: &str| Event::Removed {
            key: key(name),
            uid: Uid::new(uid),
            resource_version: ResourceVersion(9),
        };
        owners.observed(&removed("cart", "another"));
        assert_eq!(count(), [1, 0], "an earlier object of the name");
        owners.observed(&removed("cart", "u"));
        owners.observed(&removed("cart", "u"));
        owners.observed(&removed("web", "u"));
        assert_eq!(count(), [2, 0]);
        said(&pods, &cart, true);
        pods.gone(&key("cart"));
        assert_eq!(count(), [2, 1]);
    }

    #[test]
    fn counts_are_of_what_may_be_seen() {
        let feed = Feed::default();
        record(&feed, &[("shop", "a"), ("shop", "b"), ("bank", "c")]);
        let now = jiff::Timestamp::now();
        let mut in_shop = |about: &ChangeSubject| &*about.namespace == "shop";
        let collected = feed.collected(now, &mut in_shop);
        assert_eq!(collected.len(), 1);
        // The minute may have ended in the meantime.
        assert_eq!(collected[0].minutes.iter().sum::<u64>(), 2);
        let later = now + jiff::SignedDuration::from_mins(61);
        assert_eq!(feed.collected(later, &mut |_| true)[0].minutes, [0; MINUTES]);
    }
}
