//! Barriers: proof that all objects of a resource have been observed.
//!
//! A watch that has delivered the requested version is proof and costs nothing; versions count only outside of a list, and only if
//! the engine says that they can be compared. A watch that lags is given a moment ([`BARRIER_PATIENCE`]); then the resource is
//! listed and the engine gets the objects that were found:
//!
//! * from the server's cache, no older than the version asked for, where versions can be compared. Where the cache does
//!   not come that far (etcd before 3.4.31 does not report progress in other resources to it), or says nothing for
//!   [`CACHE_PATIENCE`], the store is asked as well, and without that detour for some time. One list finds out, and the
//!   others wait for that;
//! * from the store otherwise.
//!
//! Barriers for the same place share a list that begins after the last of them was requested. In any second no more lists begin
//! than resources are watched, whatever the number of owners that wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use gc_types::{EffectId, Event, Outcome, ResourceId, ResourceVersion};

use crate::Moment;
use crate::concurrency::Signal;

/// Maximum wait for a watch to deliver the version before a list is made instead.
pub const BARRIER_PATIENCE: Duration = Duration::from_millis(10);
/// Maximum number of places listed for barriers at a time; each takes one list, or two if the store overtakes the cache.
pub const BARRIER_LISTS: usize = 16;
/// Minimum number of lists per second that are allowed, however few resources are watched.
pub const BARRIER_LISTS_FLOOR: usize = 8;
/// Period over which starting lists are counted.
pub const BARRIER_WINDOW: Duration = Duration::from_secs(1);
/// Maximum wait for the server's cache before the store is queried as well. A cache that is too old reports that only after three
/// seconds.
pub const CACHE_PATIENCE: Duration = Duration::from_millis(300);
/// Time for which a server's cache is not used after it was too old.
pub const CACHE_DISTRUST: Duration = Duration::from_mins(10);

/// A resource, or one namespace of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListScope {
    /// The resource.
    pub resource: ResourceId,
    /// The namespace; all of them if absent.
    pub namespace: Option<Arc<str>>,
}

/// A list to make now. The engine gets each object that it contains as `Event::Found`, before its end is reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// Number by which its end is reported.
    pub number: u64,
    /// Resource and namespace of the list.
    pub place: ListScope,
    /// Version from which any state is new enough, so the server's cache may answer; `None` for the current state of the store.
    pub not_older_than: Option<ResourceVersion>,
}

/// Result of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListEnd {
    /// Everything was listed and passed on.
    Complete,
    /// The cache is older than required.
    CacheBehind,
    /// The resource is not served.
    NotServed,
    /// Any other failure, with a message.
    Failed(String),
}

/// Interprets a response other than a list, and its evidence about the server. Servers answer 504 if their cache does not reach the
/// requested version (`Too large resource version`), and 400 or 422 if they do not understand the request.
#[must_use]
pub fn list_refused(
    code: u16,
    message: &str,
    retry_after: Option<Duration>,
    from_cache: bool,
) -> (ListEnd, Option<Signal>) {
    if from_cache && matches!(code, 400 | 422 | 504) {
        // That a cache has to catch up says nothing about how busy the server is.
        return (ListEnd::CacheBehind, None);
    }
    let signal = Signal::of_answer(code, || retry_after);
    (ListEnd::Failed(format!("the list was answered with {code}: {message}")), Some(signal))
}

/// Result of a barrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// ID of the effect.
    pub effect: EffectId,
    /// Outcome for the engine.
    pub outcome: Outcome,
    /// Number of requests sent for it; barriers that share a list count them once.
    pub requests: u32,
}

/// A barrier that waits for its watch, or for its list to begin.
#[derive(Clone, Debug)]
struct WaitingBarrier {
    effect: EffectId,
    place: ListScope,
    at_least: ResourceVersion,
    patient_until: Moment,
}

/// Barriers that share a list.
#[derive(Clone, Debug)]
struct RunningList {
    place: ListScope,
    effects: Vec<(EffectId, ResourceVersion)>,
    /// List from the cache, while it is in progress.
    from_cache: Option<u64>,
    /// Time at which its first list began.
    begun: Moment,
    /// List from the store, while it is in progress.
    from_store: Option<u64>,
    /// Time at which the store is to be queried, unless it was.
    store_due: Option<Moment>,
    requests: u32,
}

/// Knowledge about the server's cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Cache {
    /// Not tried yet: one list determines whether the cache reaches a requested version.
    #[default]
    Unknown,
    /// Answered the last list.
    Trusted,
    /// Not used until then.
    DistrustedUntil(Moment),
}

/// Progress of the watches, waiting barriers, and the lists in flight.
#[derive(Clone, Debug, Default)]
pub struct Barriers {
    watched: BTreeSet<ResourceId>,
    delivered: BTreeMap<ResourceId, ResourceVersion>,
    /// Resources in the middle of a list, whose versions come in no order.
    listing: BTreeSet<ResourceId>,
    /// Resources whose versions are from before the server was restored, until they are synced again.
    outdated: BTreeSet<ResourceId>,
    asked: Vec<WaitingBarrier>,
    running: Vec<RunningList>,
    next_number: u64,
    /// Times at which the lists of the last second began.
    begun: VecDeque<Moment>,
    cache: Cache,
    /// Lists whose responses are no longer needed.
    cancelled: Vec<u64>,
}

impl Barriers {
    /// Records an event that comes from discovery, or from a resource's own list or watch.
    pub fn observe(&mut self, event: &Event) {
        let (resource, version) = match event {
            Event::ResourceServed(info) => {
                if info.watched {
                    self.watched.insert(info.id);
                }
                return;
            }
            Event::ListStarted(id) => {
                self.listing.insert(*id);
                return;
            }
            Event::ResourceGone(id) => {
                self.watched.remove(id);
                self.listing.remove(id);
                self.outdated.remove(id);
                self.delivered.remove(id);
                return;
            }
            Event::Synced { resource, resource_version } => {
                self.listing.remove(resource);
                self.outdated.remove(resource);
                // Not the newer of the two: a server restored from a backup starts over.
                let former = self.delivered.insert(*resource, *resource_version);
                if former.is_some_and(|former| *resource_version < former) {
                    self.history_went_back(*resource);
                }
                return;
            }
            Event::Progress { resource, resource_version } => (*resource, *resource_version),
            Event::Observed(object) => (object.key.resource, object.resource_version),
            Event::Removed { key, resource_version, .. } => (key.resource, *resource_version),
            _ => return,
        };
        if self.listing.contains(&resource) || self.outdated.contains(&resource) {
            return;
        }
        let newest = self.delivered.entry(resource).or_insert(version);
        *newest = version.max(*newest);
    }

    /// Handles a list that is older than what its watch had delivered: the deliveries of other watches, including those still to
    /// come, belong to a past history.
    fn history_went_back(&mut self, seen_by: ResourceId) {
        let others: Vec<ResourceId> = self.delivered.keys().copied().filter(|id| *id != seen_by).collect();
        for other in others {
            self.delivered.remove(&other);
            self.outdated.insert(other);
        }
    }

    /// Requests a barrier: everything up to `at_least`, or everything there is now if that is unknown.
    pub fn ask(&mut self, effect: EffectId, place: ListScope, at_least: ResourceVersion, now: Moment) {
        let patience = if at_least == ResourceVersion::UNKNOWN { Duration::ZERO } else { BARRIER_PATIENCE };
        self.asked.push(WaitingBarrier { effect, place, at_least, patient_until: now.after(patience) });
    }

    /// Returns the barriers that a watch has reached.
    pub fn take_reached(&mut self) -> Vec<Answer> {
        let (delivered, listing) = (&self.delivered, &self.listing);
        let reached = |resource: ResourceId, at_least: ResourceVersion| {
            at_least != ResourceVersion::UNKNOWN
                && !listing.contains(&resource)
                && delivered.get(&resource).is_some_and(|version| *version >= at_least)
        };
        let mut answers: Vec<Answer> = self
            .asked
            .extract_if(.., |asked| reached(asked.place.resource, asked.at_least))
            .map(|asked| answer(asked.effect, Outcome::Applied(None), 0))
            .collect();
        for running in &mut self.running {
            let resource = running.place.resource;
            for (effect, _) in running.effects.extract_if(.., |(_, at_least)| reached(resource, *at_least)) {
                let requests = std::mem::take(&mut running.requests);
                answers.push(answer(effect, Outcome::Applied(None), requests));
            }
        }
        self.running.retain(|running| {
            let needed = !running.effects.is_empty();
            if !needed {
                self.cancelled.extend(running.from_cache);
                self.cancelled.extend(running.from_store);
            }
            needed
        });
        answers
    }

    /// Returns the next list to make now, if there is one.
    pub fn poll_list(&mut self, now: Moment) -> Option<List> {
        if matches!(self.cache, Cache::DistrustedUntil(until) if until <= now) {
            self.cache = Cache::Unknown;
        }
        if !self.has_room_in_window(now) {
            return None;
        }
        let due = self.running.iter_mut().find(|running| running.store_due.is_some_and(|due| due <= now));
        if let Some(running) = due {
            let number = self.next_number;
            running.store_due = None;
            running.from_store = Some(number);
            running.requests += 1;
            let place = running.place.clone();
            self.begin(now);
            return Some(List { number, place, not_older_than: None });
        }
        if self.running.len() >= BARRIER_LISTS {
            return None;
        }
        let due = |asked: &&WaitingBarrier| asked.patient_until <= now && self.may_begin(&asked.place);
        let place = self.asked.iter().find(due)?.place.clone();
        let asks_cache = self.asks_cache(&place);
        // Every request made before the list begins shares it.
        let sharing = self.asked.extract_if(.., |asked| asked.place == place);
        let effects: Vec<_> = sharing.map(|asked| (asked.effect, asked.at_least)).collect();
        let newest = effects.iter().map(|(_, at_least)| *at_least).max();
        let not_older_than = newest.filter(|_| asks_cache);
        let number = self.next_number;
        let cached = not_older_than.is_some();
        self.running.push(RunningList {
            place: place.clone(),
            effects,
            begun: now,
            from_cache: cached.then_some(number),
            from_store: (!cached).then_some(number),
            store_due: cached.then(|| now.after(CACHE_PATIENCE)),
            requests: 1,
        });
        self.begin(now);
        Some(List { number, place, not_older_than })
    }

    fn begin(&mut self, now: Moment) {
        self.next_number += 1;
        self.begun.push_back(now);
    }

    /// Reports whether the cache can serve the barriers for a place, and should.
    fn asks_cache(&self, place: &ListScope) -> bool {
        let mut sharing = self.asked.iter().filter(|asked| asked.place == *place);
        let is_comparable = sharing.all(|asked| asked.at_least != ResourceVersion::UNKNOWN);
        is_comparable && !matches!(self.cache, Cache::DistrustedUntil(_))
    }

    /// Reports whether a list of a place may begin: none is in progress, and none is determining whether the cache can serve this
    /// one.
    fn may_begin(&self, place: &ListScope) -> bool {
        let is_finding_out =
            self.cache == Cache::Unknown && self.running.iter().any(|running| running.from_cache.is_some());
        let is_listed = self.running.iter().any(|running| running.place == *place);
        let must_wait = is_finding_out && self.asks_cache(place);
        !is_listed && !must_wait
    }

    fn has_room_in_window(&mut self, now: Moment) -> bool {
        while self.begun.front().is_some_and(|begun| begun.after(BARRIER_WINDOW) <= now) {
            self.begun.pop_front();
        }
        self.begun.len() < self.most_in_window()
    }

    /// Records that the cache could not answer. Its list cost the server nothing, and is not counted.
    fn distrust(&mut self, list_begun: Moment, now: Moment) {
        self.cache = Cache::DistrustedUntil(now.after(CACHE_DISTRUST));
        if let Some(position) = self.begun.iter().position(|begun| *begun == list_begun) {
            self.begun.remove(position);
        }
    }

    fn most_in_window(&self) -> usize {
        self.watched.len().max(BARRIER_LISTS_FLOOR)
    }

    /// Records that a page of a list has arrived, and another one is requested.
    pub fn continued(&mut self, number: u64) {
        if let Some(running) = self.running.iter_mut().find(|running| running.is_of(number)) {
            running.requests += 1;
            if running.from_cache == Some(number) {
                // The cache does answer.
                running.store_due = None;
            }
        }
    }

    /// Ends a list, and returns the barriers that are answered by it.
    pub fn finish(&mut self, number: u64, end: ListEnd, now: Moment) -> Vec<Answer> {
        let Some(position) = self.running.iter().position(|running| running.is_of(number)) else {
            return Vec::new();
        };
        let running = &mut self.running[position];
        let (was_cached, begun) = (running.from_cache == Some(number), running.begun);
        let mut is_behind = false;
        let outcome = match end {
            ListEnd::Complete => {
                if let Some(cached) = running.from_cache.filter(|_| !was_cached) {
                    // The store was faster by more than the allowed wait.
                    self.cancelled.push(cached);
                    is_behind = true;
                } else if was_cached {
                    self.cancelled.extend(running.from_store);
                    self.cache = Cache::Trusted;
                }
                Outcome::Applied(None)
            }
            ListEnd::CacheBehind if was_cached => {
                running.from_cache = None;
                if running.from_store.is_none() {
                    running.store_due = Some(now);
                }
                self.distrust(begun, now);
                return Vec::new();
            }
            ListEnd::Failed(_) | ListEnd::CacheBehind if running.has_other_than(number) => {
                // The other one may still succeed.
                if was_cached {
                    running.from_cache = None;
                } else {
                    running.from_store = None;
                }
                return Vec::new();
            }
            ListEnd::NotServed => {
                self.cancelled.extend(running.others(number));
                Outcome::NotServed
            }
            ListEnd::Failed(message) => Outcome::Failed { message, retry_after_milliseconds: None },
            ListEnd::CacheBehind => {
                let message = "the server does not know so new a version".to_owned();
                Outcome::Failed { message, retry_after_milliseconds: None }
            }
        };
        let mut requests = running.requests;
        if is_behind {
            self.distrust(begun, now);
        }
        let effects = self.running.remove(position).effects;
        let answered = effects.into_iter();
        answered.map(|(effect, _)| answer(effect, outcome.clone(), std::mem::take(&mut requests))).collect()
    }

    /// Returns the lists that were cancelled since the last call; their ends need not be reported.
    pub fn take_cancelled(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.cancelled)
    }

    /// Returns when a list may have to be made, if none ends and nothing is delivered before.
    #[must_use]
    pub fn next_due(&self) -> Option<Moment> {
        let is_full = self.running.len() >= BARRIER_LISTS;
        let asked = self.asked.iter().filter(|asked| !is_full && self.may_begin(&asked.place));
        let asked = asked.map(|asked| asked.patient_until);
        let due = self.running.iter().filter_map(|running| running.store_due).chain(asked).min()?;
        // The window has room again when the oldest of as many lists as it holds leaves it.
        let full = self.begun.len().checked_sub(self.most_in_window());
        let room = full.and_then(|position| self.begun.get(position));
        Some(room.map_or(due, |begun| due.max(begun.after(BARRIER_WINDOW))))
    }
}

impl RunningList {
    fn is_of(&self, number: u64) -> bool {
        self.from_cache == Some(number) || self.from_store == Some(number)
    }

    fn others(&self, number: u64) -> impl Iterator<Item = u64> {
        let lists = self.from_cache.into_iter().chain(self.from_store);
        lists.filter(move |list| *list != number)
    }

    fn has_other_than(&self, number: u64) -> bool {
        self.others(number).next().is_some()
    }
}

fn answer(effect: EffectId, outcome: Outcome, requests: u32) -> Answer {
    Answer { effect, outcome, requests }
}

#[cfg(test)]
mod tests;
