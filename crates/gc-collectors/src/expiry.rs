//! Time to live and expiry of single objects of any kind, by annotation: `kubegc.io/ttl` (a duration after the creation or, for
//! Jobs and Pods, after they finished), `kubegc.io/expires-at` (RFC 3339), `kubegc.io/keep`.
//!
//! A value that cannot be parsed deletes nothing and is reported by an Event. If both times are given, the earlier one counts. An
//! object that carries `kubegc.io/keep` is ignored by this and every other collector that decides by age, number or state; it is
//! still deleted with its owner, and with its namespace.
//!
//! Adding such an annotation deletes the object in the end, so kubegc's API server checks whether the writer may delete it. It
//! cannot check objects that an aggregated API server serves: there, annotations count only in API groups that are named.

pub mod foreign;
mod sooner;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use foreign::ForeignTool;
pub use sooner::deletes_sooner;

use gc_types::{
    Effect, EffectId, Event, EventRecord, GoDuration, GoDurationError, Marks, ObjectKey, ObservedObject,
    Outcome, PropagationPolicy, Reason, Request, ResourceId, ResourceInfo, ResourceVersion, Severity,
    Timestamp, Uid,
};

use crate::engine::{Collector, Counts, Decision, Engine, FIRST_EVENT, Observation, reason};
use crate::entry::{CollectorEntry, WATCH_DELETE, WRITE_EVENTS, Watches, rule};
use crate::measures::ReportQueue;
use crate::objects::{Facts, HasMeta as _, Kind, Meta, parse_time, time_text};

/// Reason of the Event about an invalid annotation.
pub const INVALID_ANNOTATION: &str = "InvalidRetentionAnnotation";

/// Maximum number of queued Events about invalid annotations; further objects are reported when they change again.
pub const WAITING_EVENTS: usize = 1_000;

/// Resources whose TTL begins when they finish: [`FinishedExpiry`] watches the complete objects.
pub const FINISHING: [(&str, &str); 2] = [("", "pods"), ("batch", "jobs")];

/// Entry of this collector in the table of collectors.
pub(crate) const COLLECTOR: CollectorEntry = CollectorEntry {
    summary: "retention by annotation",
    name: "expiry-controller",
    alias: None,
    account: "expiry-controller",
    event_source: "expiry-controller",
    on_by_default: false,
    for_every_kind: true,
    watches: Watches::Everything,
    flags: &["expiry-aggregated-groups", "foreign-expiry"],
    rules: &[rule("*", "*", WATCH_DELETE), WRITE_EVENTS],
};

/// Reason why annotations cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMark {
    /// `kubegc.io/ttl` is not a duration.
    #[error("annotation kubegc.io/ttl: {0}")]
    Ttl(#[from] GoDurationError),
    /// `kubegc.io/ttl` is below zero.
    #[error("annotation kubegc.io/ttl: {0:?} is negative; expected a duration such as \"36h\"")]
    NegativeTtl(Arc<str>),
    /// `kubegc.io/expires-at` is not a time.
    #[error(
        "annotation kubegc.io/expires-at: {0:?} is not a time; expected RFC 3339, such as \"2027-01-31T12:00:00Z\""
    )]
    ExpiresAt(Arc<str>),
    /// `kubegc.io/keep` is neither of its two values.
    #[error("annotation kubegc.io/keep: {0:?} is neither \"true\" nor \"false\"; the object is kept")]
    Keep(Arc<str>),
    /// An annotation or label of another tool.
    #[error("{key}: {text:?} is not understood; expected {expected}")]
    Foreign {
        /// Key of the annotation.
        key: &'static str,
        /// Value of the annotation.
        text: Arc<str>,
        /// Expected form.
        expected: &'static str,
    },
    /// The object belongs to an aggregated API server.
    #[error(
        "its annotations of expiry have no effect: an aggregated API server serves it, or it is not known that none does, and \
         such a server is not asked whether writers may delete; --expiry-aggregated-groups={group} makes them count"
    )]
    Unchecked {
        /// The API group.
        group: Arc<str>,
    },
}

/// Reports whether annotations on objects of this resource count: either the API server itself serves it and checks whether a
/// writer may delete the object, or its API group is one of these.
#[must_use]
pub fn is_honoured(info: &ResourceInfo, aggregated_groups: &[String]) -> bool {
    // Versions are comparable if the API server has the resource in its own store.
    info.comparable_versions || aggregated_groups.iter().any(|group| **group == *info.gvr.group)
}

/// Returns when an object expires by its annotations, and by which. `begins` is the start of its time to live, if that is known
/// yet; the annotations of `tools` count as well.
pub fn expiry(
    marks: &Marks,
    begins: Option<Timestamp>,
    tools: &[ForeignTool],
) -> Result<Option<(Timestamp, String)>, BadMark> {
    let foreign = foreign::expiry(marks, tools)?;
    let by_ttl = match &marks.ttl {
        None => None,
        Some(text) => {
            let milliseconds = time_to_live(text)?;
            begins.map(|begins| (begins.after(milliseconds), format!("its kubegc.io/ttl of {text} is over")))
        }
    };
    let by_time = match &marks.expires_at {
        None => None,
        Some(text) => Some((expires_at(text)?, format!("its kubegc.io/expires-at is {text}"))),
    };
    if let Some(keep) = &marks.keep
        && !matches!(&**keep, "true" | "false")
    {
        return Err(BadMark::Keep(Arc::clone(keep)));
    }
    if marks.keeps() {
        return Ok(None);
    }
    Ok(by_ttl.into_iter().chain(by_time).chain(foreign).min_by_key(|(at, _)| *at))
}

/// Parses `kubegc.io/ttl`, into milliseconds.
fn time_to_live(text: &Arc<str>) -> Result<i64, BadMark> {
    let ttl = GoDuration::parse_with_days(text)?;
    if ttl.0 < 0 {
        return Err(BadMark::NegativeTtl(Arc::clone(text)));
    }
    Ok(ttl.to_milliseconds_rounded_up())
}

/// Parses `kubegc.io/expires-at`.
fn expires_at(text: &Arc<str>) -> Result<Timestamp, BadMark> {
    parse_time(Some(text)).ok_or_else(|| BadMark::ExpiresAt(Arc::clone(text)))
}

/// An object with annotations.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MarkedObject {
    uid: Uid,
    resource_version: ResourceVersion,
    deleting: bool,
    /// Time of the deletion with the reason.
    expiry: Result<Option<(Timestamp, String)>, BadMark>,
}

impl MarkedObject {
    fn verdict(&self, key: &ObjectKey, policy: PropagationPolicy, now: Timestamp) -> Decision {
        let Ok(Some((at, why))) = &self.expiry else { return Decision::Leave };
        if self.deleting {
            return Decision::Leave;
        }
        if now < *at {
            return Decision::Later(*at);
        }
        let request = Request::Delete {
            key: key.clone(),
            uid: self.uid.clone(),
            resource_version: Some(self.resource_version),
            policy,
        };
        let facts = [why.clone(), format!("since {}", time_text(*at))];
        Decision::Act(request, reason(gc_types::codes::EXPIRED_BY_ANNOTATION, self.resource_version, &facts))
    }
}

/// Objects with annotations, and the Events about invalid ones.
#[derive(Debug, Default)]
struct MarkedCache {
    objects: BTreeMap<ObjectKey, MarkedObject>,
    /// Objects that a list in progress has not contained yet.
    unseen: BTreeMap<ResourceId, BTreeSet<ObjectKey>>,
    events: VecDeque<EventRecord>,
    counts: ExpiryCounts,
    /// Resources whose writers were never checked for the permission to delete, with their API groups.
    unchecked: BTreeMap<ResourceId, Arc<str>>,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpiryCounts {
    /// Number of objects with annotations, now.
    pub annotated: u64,
    /// Number of objects with invalid annotations, now.
    pub invalid: u64,
    /// Number of invalid annotations seen so far.
    pub invalid_seen: u64,
}

impl MarkedCache {
    /// Adds an object. An invalid annotation is reported once, and again when it changes.
    fn put(&mut self, key: ObjectKey, marked: MarkedObject, dirty: &mut Vec<ObjectKey>) {
        let before = self.objects.get(&key);
        let is_reported =
            before.is_some_and(|before| before.uid == marked.uid && before.expiry == marked.expiry);
        if !is_reported && marked.expiry != Ok(None) {
            let unchecked = self
                .unchecked
                .get(&key.resource)
                .map(|group| BadMark::Unchecked { group: Arc::clone(group) });
            if let Some(bad) = unchecked.as_ref().or(marked.expiry.as_ref().err()) {
                self.report(&key, &marked.uid, bad);
            }
        }
        self.seen(&key);
        self.objects.insert(key.clone(), marked);
        dirty.push(key);
    }

    fn report(&mut self, key: &ObjectKey, uid: &Uid, bad: &BadMark) {
        self.counts.invalid_seen += 1;
        if self.events.len() < WAITING_EVENTS {
            self.events.push_back(EventRecord {
                about: key.clone(),
                uid: uid.clone(),
                severity: Severity::Warning,
                reason: INVALID_ANNOTATION,
                message: bad.to_string(),
            });
        }
    }

    /// Records whether the writers of a resource were checked, according to discovery. The known objects are kept, because that may
    /// change later.
    fn served(&mut self, info: &ResourceInfo, is_checked: bool, dirty: &mut Vec<ObjectKey>) {
        let was_checked = if is_checked {
            self.unchecked.remove(&info.id).is_none()
        } else {
            self.unchecked.insert(info.id, Arc::clone(&info.gvr.group)).is_none()
        };
        if was_checked != is_checked {
            dirty.extend(self.objects.keys().filter(|key| key.resource == info.id).cloned());
        }
    }

    fn seen(&mut self, key: &ObjectKey) {
        if let Some(unseen) = self.unseen.get_mut(&key.resource) {
            unseen.remove(key);
        }
    }

    fn remove(&mut self, key: &ObjectKey) {
        self.seen(key);
        self.objects.remove(key);
    }

    fn list_started(&mut self, resource: ResourceId) {
        let keys = self.objects.keys().filter(|key| key.resource == resource).cloned().collect();
        self.unseen.insert(resource, keys);
    }

    /// Completes a list: objects that it did not contain are gone.
    fn list_ended(&mut self, resource: ResourceId) -> BTreeSet<ObjectKey> {
        let gone = self.unseen.remove(&resource).unwrap_or_default();
        for key in &gone {
            self.objects.remove(key);
        }
        gone
    }

    fn counts(&self) -> ExpiryCounts {
        ExpiryCounts {
            annotated: self.objects.len() as u64,
            invalid: self.objects.values().filter(|marked| marked.expiry.is_err()).count() as u64,
            ..self.counts
        }
    }
}

/// Collector for every kind, from metadata only.
#[derive(Debug, Default)]
struct MarkedCollector {
    cache: MarkedCache,
}

impl Collector for MarkedCollector {
    fn kinds(&self) -> &'static [Kind] {
        &[]
    }

    fn observe(&mut self, _observation: Observation, _now: Timestamp, _dirty: &mut Vec<ObjectKey>) {}

    fn decide(&mut self, key: &ObjectKey, now: Timestamp, _dirty: &mut Vec<ObjectKey>) -> Decision {
        let is_checked = !self.cache.unchecked.contains_key(&key.resource);
        let marked = self.cache.objects.get(key).filter(|_| is_checked);
        marked.map_or(Decision::Leave, |marked| marked.verdict(key, PropagationPolicy::Background, now))
    }
}

/// The collector of annotated objects of every kind except those in [`FINISHING`]. Driven like the owner-reference collector: it
/// takes events and is polled for effects. Only annotated objects are kept in memory.
#[derive(Debug)]
pub struct ExpiryEngine {
    engine: Engine<MarkedCollector>,
    /// The last observed object, whose annotations are not known before the next event.
    last: Option<ObservedObject>,
    next_event: u64,
    tools: Vec<ForeignTool>,
    /// API groups of aggregated servers whose objects expire as well.
    aggregated_groups: Vec<String>,
}

fn unreadable() -> Reason {
    reason(gc_types::codes::INVALID_ANNOTATION, ResourceVersion::UNKNOWN, &[])
}

impl Default for ExpiryEngine {
    fn default() -> Self {
        Self {
            engine: Engine::new(MarkedCollector::default()),
            last: None,
            next_event: FIRST_EVENT,
            tools: Vec::new(),
            aggregated_groups: Vec::new(),
        }
    }
}

impl ExpiryEngine {
    /// Adds support for the annotations of these tools.
    #[must_use]
    pub fn with_foreign(self, tools: &[ForeignTool]) -> Self {
        Self { tools: tools.to_vec(), ..self }
    }

    /// Adds support for the annotations of objects in these API groups, whichever server serves them.
    #[must_use]
    pub fn with_aggregated(self, groups: &[String]) -> Self {
        Self { aggregated_groups: groups.to_vec(), ..self }
    }

    /// Takes an event.
    pub fn handle(&mut self, event: Event) {
        if let Event::Marked { key, marks } = event {
            if !foreign::are_meant(&marks, &self.tools) {
                return self.nothing_followed();
            }
            let Some(object) = self.last.take().filter(|object| object.key == key) else { return };
            let marked = MarkedObject {
                uid: object.uid,
                resource_version: object.resource_version,
                deleting: object.deletion.deleting,
                expiry: expiry(&marks, marks.created, &self.tools),
            };
            self.engine.update(|collector, _, dirty| collector.cache.put(key, marked, dirty));
            return;
        }
        self.nothing_followed();
        match event {
            Event::Observed(object) => self.last = Some(object),
            Event::ResourceServed(info) => {
                let is_checked = is_honoured(&info, &self.aggregated_groups);
                self.engine.update(|collector, _, dirty| collector.cache.served(&info, is_checked, dirty));
            }
            Event::Removed { key, .. } => self.remove(&key),
            Event::ListStarted(resource) => {
                self.engine.update(|collector, _, _| collector.cache.list_started(resource));
            }
            Event::Synced { resource, .. } => {
                let was_listed = self.engine.collector().cache.unseen.contains_key(&resource);
                let gone = self.engine.update(|collector, _, _| collector.cache.list_ended(resource));
                for key in &gone {
                    self.engine.forget(key);
                }
                if was_listed {
                    self.engine.forget_done(resource);
                }
            }
            Event::ResourceGone(resource) => {
                let gone = self.engine.update(|collector, _, _| {
                    collector.cache.unchecked.remove(&resource);
                    collector.cache.list_started(resource);
                    collector.cache.list_ended(resource)
                });
                for key in &gone {
                    self.engine.forget(key);
                }
            }
            // The object is not reconciled again until it changes or is released.
            Event::Done(id, Outcome::Withheld(_)) => self.engine.skip(id),
            Event::Done(id, outcome) => self.engine.finish(id, &outcome),
            Event::Released(resource) => self.engine.release(resource),
            Event::Tick(now) => self.engine.tick(now),
            _ => {}
        }
    }

    /// Handles a last observed object without annotations.
    fn nothing_followed(&mut self) {
        if let Some(object) = self.last.take() {
            self.remove(&object.key);
        }
    }

    fn remove(&mut self, key: &ObjectKey) {
        if self.engine.collector().cache.objects.contains_key(key) {
            self.engine.update(|collector, _, _| collector.cache.remove(key));
            self.engine.forget(key);
        }
    }

    /// Sets the time after the wall clock was set, forward or back.
    pub fn set_clock(&mut self, now: Timestamp) {
        self.engine.set_clock(now);
    }

    /// Returns the next thing to do, or `None` if there is nothing to do now.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.nothing_followed();
        if let Some(note) = self.engine.update(|collector, _, _| collector.cache.events.pop_front()) {
            let id = EffectId(self.next_event);
            self.next_event += 1;
            return Some(Effect { id, request: Request::RecordEvent(note), reason: unreadable() });
        }
        self.engine.poll_effect()
    }

    /// Returns when it needs the next `Event::Tick`, if at all.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        self.engine.next_wakeup()
    }

    /// Returns the counters.
    #[must_use]
    pub fn counts(&self) -> (Counts, ExpiryCounts) {
        (self.engine.counts(), self.engine.collector().cache.counts())
    }
}

/// Annotated Jobs and Pods, whose time to live begins when they finish.
#[derive(Debug, Default)]
pub struct FinishedExpiry {
    cache: MarkedCache,
    reports: ReportQueue,
    tools: Vec<ForeignTool>,
}

impl FinishedExpiry {
    /// Adds support for the annotations of these tools.
    #[must_use]
    pub fn with_foreign(self, tools: &[ForeignTool]) -> Self {
        Self { tools: tools.to_vec(), ..self }
    }

    fn put(&mut self, kind: Kind, meta: &Meta, finished: Option<Timestamp>, dirty: &mut Vec<ObjectKey>) {
        let key = kind.key(&meta.namespace, &meta.name);
        match meta.marks.as_ref().filter(|marks| foreign::are_meant(marks, &self.tools)) {
            None => self.cache.remove(&key),
            Some(marks) => {
                let marked = MarkedObject {
                    uid: meta.uid.clone(),
                    resource_version: meta.resource_version,
                    deleting: meta.deleting,
                    expiry: expiry(marks, finished, &self.tools),
                };
                self.cache.put(key, marked, dirty);
                while let Some(note) = self.cache.events.pop_front() {
                    self.reports.event(note, unreadable());
                }
            }
        }
    }
}

impl Collector for FinishedExpiry {
    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Pod, Kind::Job]
    }

    fn observe(&mut self, observation: Observation, _now: Timestamp, dirty: &mut Vec<ObjectKey>) {
        match observation {
            Observation::ListStarted(kind) => self.cache.list_started(kind.resource()),
            Observation::Observed(Facts::Pod(pod)) => {
                let finished = pod.finished;
                self.put(Kind::Pod, pod.meta(), finished, dirty);
            }
            Observation::Observed(Facts::Job(job)) => {
                let finished = job.finished;
                self.put(Kind::Job, job.meta(), finished, dirty);
            }
            Observation::Removed(key) => self.cache.remove(&key),
            Observation::Synced(kind) => drop(self.cache.list_ended(kind.resource())),
            _ => {}
        }
    }

    fn decide(&mut self, key: &ObjectKey, now: Timestamp, _dirty: &mut Vec<ObjectKey>) -> Decision {
        // Like the Job collector, delete a Job after its pods.
        let policy = if key.resource == Kind::Job.resource() {
            PropagationPolicy::Foreground
        } else {
            PropagationPolicy::Background
        };
        let marked = self.cache.objects.get(key);
        marked.map_or(Decision::Leave, |marked| marked.verdict(key, policy, now))
    }

    fn reports(&mut self) -> Option<&mut ReportQueue> {
        Some(&mut self.reports)
    }
}
