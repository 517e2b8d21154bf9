//! Circuit breaker: counts the deletions of each resource over a window, and when there are more than is plausible, stops the
//! collection of that resource until an operator resumes it.
//!
//! Two limits, each per resource and window:
//!
//! * **a number of deletions**, whatever their reason. It bounds the damage of any mistake, the user's own included.
//! * **a share of the resource**, which counts only deletions whose owners were not seen being deleted:
//!   absence that was concluded from a read or a list. That an owner was seen being deleted is what cascades
//!   are made of, and a cascade may well take every object of a resource; but when more than half of a
//!   resource (and more than a handful) is to go because owners are *found missing*, the server, its backup
//!   or this collector is more likely to be wrong than the cluster.
//!
//! A third limit has no number: **a kind whose objects all vanish in one list** while others refer to them is stopped, and with it
//! the deletion of the dependents of those objects. A list that was answered by something other than the store looks like that.
//!
//! Pure: the time is passed as an argument, and nothing is sent or read here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use gc_types::{Evidence, Reason, ResourceId, ResourceVersion, Timestamp, Verdict, WithheldBy, milliseconds};

/// Number of slots into which a window is divided; it slides by one of them.
const SLOTS: i64 = 10;
/// Maximum number of counted resources; servers have a few hundred. Further ones pass uncounted and are logged.
pub const COUNTED_RESOURCES: usize = 16_384;

/// Limits of the breaker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BreakerOptions {
    /// Window over which deletions are counted.
    pub window: Duration,
    /// Maximum number of deletions of one resource in a window; `None` means no limit. The default is more than the largest
    /// supported cluster has pods (150,000) and than the largest cascade in our own benchmarks (200,000), and a quarter of what one
    /// collector can delete in ten minutes (some 2,000 per second).
    pub largest_number: Option<u64>,
    /// Maximum share of a resource (in (0, 1]) that may be deleted in a window without an owner's removal having been seen; `None`
    /// means no limit.
    pub largest_share: Option<f64>,
    /// Minimum number of deletions before the share can trip, because small resources are created and deleted as a whole. It is at
    /// least one.
    pub share_floor: u64,
}

impl Default for BreakerOptions {
    fn default() -> Self {
        Self {
            window: Duration::from_mins(10),
            largest_number: Some(300_000),
            largest_share: Some(0.5),
            share_floor: 1_000,
        }
    }
}

/// Verdict of the breaker on a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// May be sent, and is counted.
    Admitted(Ticket),
    /// May not be sent.
    Withheld(WithheldBy),
    /// May not be sent, and the breaker has just tripped for this resource.
    Tripped(Trip),
}

/// Identifies an admitted deletion, so that the right count is corrected if it deletes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    number: u64,
    inferred: bool,
}

/// A resource whose collection was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trip {
    /// `resource.group`.
    pub resource: Arc<str>,
    /// Time of the trip.
    pub since: Timestamp,
    /// Limit that was exceeded, with the figures.
    pub why: Arc<str>,
}

impl fmt::Display for Trip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "collection of {} has stopped: {}", self.resource, self.why)
    }
}

/// One slot of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slot {
    number: i64,
    /// First ticket of this slot.
    first_ticket: u64,
    deletions: u64,
    inferred: u64,
    /// Number of objects of the resource when it was first counted in the slot; `None` if they are not counted.
    objects: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct CountedDeletions {
    slots: VecDeque<Slot>,
    tripped: Option<Trip>,
}

/// API groups of Kubernetes itself, besides the core group. No definition can use one of them.
const BUILT_IN_GROUPS: [&str; 23] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "extensions",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// Definitions of custom resources that exclude their objects from deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Definitions {
    /// Not watched.
    #[default]
    NotFollowed,
    /// Have not been listed yet, so any custom resource may be excluded.
    Unknown,
    /// These resources (`resource.group`) are excluded.
    Kept(BTreeSet<Arc<str>>),
}

impl Definitions {
    fn keep(&self, resource: &str) -> bool {
        match self {
            Self::NotFollowed => false,
            Self::Unknown => {
                resource.split_once('.').is_some_and(|(_, group)| !BUILT_IN_GROUPS.contains(&group))
            }
            Self::Kept(kept) => kept.contains(resource),
        }
    }
}

/// Counts and admits deletions. See the module.
#[derive(Clone, Debug)]
pub struct Breaker {
    options: BreakerOptions,
    resources: BTreeMap<Arc<str>, CountedDeletions>,
    /// Resources that are never deleted.
    kept: BTreeSet<Arc<str>>,
    definitions: Definitions,
    trips: u64,
    next_ticket: u64,
    /// Kinds that vanished and caused a trip, by resource, with the time and whether they were resumed since.
    vanished: BTreeMap<Arc<str>, VanishedKind>,
}

/// A kind of which every object was missing from one list.
#[derive(Clone, Copy, Debug)]
struct VanishedKind {
    at: Timestamp,
    /// True if an operator has resumed it, which confirms everything that vanished until then.
    is_resumed: bool,
}

impl Breaker {
    /// Creates a breaker without any counts.
    #[must_use]
    pub fn new(options: BreakerOptions) -> Self {
        let (resources, kept) = (BTreeMap::new(), BTreeSet::new());
        Self {
            options,
            resources,
            kept,
            definitions: Definitions::default(),
            trips: 0,
            next_ticket: 0,
            vanished: BTreeMap::new(),
        }
    }

    /// Requests one deletion of a resource of which `objects` are known, if they are counted; otherwise there is no limit on the
    /// share. For `inferred`, see [`is_inferred`].
    pub fn admit(
        &mut self,
        resource: &Arc<str>,
        inferred: bool,
        objects: Option<usize>,
        now: Timestamp,
    ) -> Admission {
        if self.keeps(resource) {
            return Admission::Withheld(WithheldBy::Configuration);
        }
        let ticket = Ticket { number: self.next_ticket, inferred };
        self.next_ticket += 1;
        if !self.resources.contains_key(resource) && self.resources.len() >= COUNTED_RESOURCES {
            return Admission::Admitted(ticket);
        }
        let options = self.options;
        let counted = self.resources.entry(Arc::clone(resource)).or_default();
        if counted.tripped.is_some() {
            return Admission::Withheld(WithheldBy::Breaker);
        }
        counted.slide(&options, objects, ticket.number, now);
        if let Some(why) = counted.over(&options, inferred) {
            let trip = Trip { resource: Arc::clone(resource), since: now, why: why.into() };
            counted.tripped = Some(trip.clone());
            self.trips += 1;
            return Admission::Tripped(trip);
        }
        if let Some(slot) = counted.slots.back_mut() {
            slot.deletions += 1;
            slot.inferred += u64::from(inferred);
        }
        Admission::Admitted(ticket)
    }

    /// Requests the deletion of a dependent of an object of `resource`, all of whose objects were missing from one list at some
    /// time. Withheld until the resource is resumed. Nothing is counted.
    pub fn admit_dependent(
        &mut self,
        resource: &Arc<str>,
        vanished_at: Timestamp,
        now: Timestamp,
    ) -> Result<(), Admission> {
        if let Some(vanished) = self.vanished.get(resource)
            && vanished.is_resumed
            && vanished.at >= vanished_at
        {
            return Ok(());
        }
        let known = self.resources.len().max(self.vanished.len());
        if !self.resources.contains_key(resource) && known >= COUNTED_RESOURCES {
            return Err(Admission::Withheld(WithheldBy::Breaker));
        }
        self.vanished.insert(Arc::clone(resource), VanishedKind { at: vanished_at, is_resumed: false });
        let counted = self.resources.entry(Arc::clone(resource)).or_default();
        if counted.tripped.is_some() {
            return Err(Admission::Withheld(WithheldBy::Breaker));
        }
        let why = "every known object was missing from one list while others referred to them; what they own is \
                   kept";
        let trip = Trip { resource: Arc::clone(resource), since: now, why: why.into() };
        counted.tripped = Some(trip.clone());
        self.trips += 1;
        Err(Admission::Tripped(trip))
    }

    fn keeps(&self, resource: &str) -> bool {
        self.kept.contains(resource) || self.definitions.keep(resource)
    }

    /// Returns the reason to withhold deletions of a resource now, if any. Nothing is counted.
    #[must_use]
    pub fn holds(&self, resource: &str) -> Option<WithheldBy> {
        if self.keeps(resource) {
            return Some(WithheldBy::Configuration);
        }
        let counted = self.resources.get(resource)?;
        counted.tripped.as_ref().map(|_| WithheldBy::Breaker)
    }

    /// Corrects the count if an admitted deletion deleted nothing. It has no effect once the deletion has left the window, or after
    /// a resumption.
    pub fn refund(&mut self, resource: &str, ticket: Ticket) {
        let Some(counted) = self.resources.get_mut(resource) else { return };
        let begun = |slot: &&mut Slot| slot.first_ticket <= ticket.number;
        if let Some(slot) = counted.slots.iter_mut().rev().find(begun) {
            slot.deletions = slot.deletions.saturating_sub(1);
            slot.inferred = slot.inferred.saturating_sub(u64::from(ticket.inferred));
        }
    }

    /// Counts further deletions by a request that deleted more than the one object it was admitted for.
    pub fn count(&mut self, resource: &str, deletions: u64, now: Timestamp) {
        let Some(counted) = self.resources.get_mut(resource) else { return };
        counted.slide(&self.options, None, self.next_ticket, now);
        if let Some(slot) = counted.slots.back_mut() {
            slot.deletions = slot.deletions.saturating_add(deletions);
        }
    }

    /// Stops a resource as if it had tripped, because it had under an earlier leader.
    pub fn stop(&mut self, trip: Trip) {
        let counted = self.resources.entry(Arc::clone(&trip.resource)).or_default();
        counted.tripped.get_or_insert(trip);
    }

    /// Resumes a resource with a fresh count. Returns false if it was not stopped.
    pub fn resume(&mut self, resource: &str) -> bool {
        let was_tripped = self.resources.get(resource).is_some_and(|counted| counted.tripped.is_some());
        if was_tripped {
            self.resources.remove(resource);
            if let Some(vanished) = self.vanished.get_mut(resource) {
                vanished.is_resumed = true;
            }
        }
        was_tripped
    }

    /// Changes the limits; counts and trips stay.
    pub fn set_options(&mut self, options: BreakerOptions) {
        if options.window != self.options.window {
            // Slots of another width count from here on.
            self.resources.retain(|_, counted| counted.tripped.is_some());
        }
        self.options = options;
    }

    /// Sets the resources (`resource.group`) that are never deleted.
    pub fn keep(&mut self, kept: BTreeSet<Arc<str>>) {
        self.kept = kept;
    }

    /// Sets the information from definitions of custom resources.
    pub fn follow(&mut self, definitions: Definitions) {
        self.definitions = definitions;
    }

    /// Returns the resources that are stopped, by name.
    #[must_use]
    pub fn tripped(&self) -> Vec<Trip> {
        self.resources.values().filter_map(|counted| counted.tripped.clone()).collect()
    }

    /// Returns the resources that are never deleted, by the configuration or by their definitions.
    #[must_use]
    pub fn kept(&self) -> BTreeSet<Arc<str>> {
        let mut kept = self.kept.clone();
        if let Definitions::Kept(by_definition) = &self.definitions {
            kept.extend(by_definition.iter().cloned());
        }
        kept
    }

    /// Returns the number of trips.
    #[must_use]
    pub fn trips(&self) -> u64 {
        self.trips
    }
}

impl CountedDeletions {
    /// Drops counts outside of the window, and begins a new slot if it is time.
    fn slide(&mut self, options: &BreakerOptions, objects: Option<usize>, first_ticket: u64, now: Timestamp) {
        let window = milliseconds(options.window);
        let number = now.0.div_euclid((window / SLOTS).max(1));
        while self.slots.front().is_some_and(|slot| slot.number <= number - SLOTS) {
            self.slots.pop_front();
        }
        if self.slots.back().is_none_or(|slot| slot.number < number) {
            self.slots.push_back(Slot { number, first_ticket, ..Slot::default() });
        }
        if let (Some(slot), Some(objects)) = (self.slots.back_mut(), objects) {
            slot.objects.get_or_insert(u64::try_from(objects).unwrap_or(u64::MAX));
        }
    }

    /// Explains why one more deletion would exceed a limit.
    fn over(&self, options: &BreakerOptions, inferred: bool) -> Option<String> {
        let window = options.window.as_secs();
        let deletions = self.slots.iter().fold(0_u64, |sum, slot| sum.saturating_add(slot.deletions));
        if let Some(largest) = options.largest_number
            && deletions >= largest
        {
            return Some(format!("{deletions} deletions within {window} s, the limit of one window"));
        }
        let largest = options.largest_share.filter(|_| inferred)?;
        let found: u64 = self.slots.iter().map(|slot| slot.inferred).sum();
        let objects = self.slots.iter().filter_map(|slot| slot.objects).max()?;
        #[allow(clippy::cast_precision_loss)] // counts of objects, far below 2^52
        let over = found >= options.share_floor.max(1) && (found + 1) as f64 > largest * objects as f64;
        let percent = largest * 100.0;
        over.then(|| {
            format!(
                "{found} of {objects} objects were deleted within {window} s because their owners were found \
                 absent; the limit is {percent} %"
            )
        })
    }
}

/// Returns the kinds on whose absence a deletion is based and of which every object was missing from one list, with the time.
pub fn vanished_kinds(reason: &Reason) -> impl Iterator<Item = (ResourceId, Timestamp)> {
    reason.evidence.iter().filter_map(|fact| match fact {
        Evidence::KindVanished { resource, at } => Some((*resource, *at)),
        _ => None,
    })
}

/// Reports whether a deletion is based on owners that reads and lists only failed to find: none of them was seen to be removed, to
/// wait or to orphan. Verdicts without owners are based on the object itself.
#[must_use]
pub fn is_inferred(reason: &Reason) -> bool {
    let by_owners = !matches!(reason.verdict, Verdict::Retention(_));
    by_owners
        && !reason.evidence.iter().any(|fact| match fact {
            Evidence::RemovalSeen { resource_version, .. } => *resource_version != ResourceVersion::UNKNOWN,
            Evidence::Waiting { .. } | Evidence::Orphaning { .. } => true,
            _ => false,
        })
}

#[cfg(test)]
mod tests;
