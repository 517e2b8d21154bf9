//! Barriers: proof that everything that exists in a resource has been told.
//!
//! A watch that has delivered the version asked for is proof, and costs nothing. Where it lags, it is given a
//! moment; then a consistent list is made and fed to the engine. Barriers for the same place share one list,
//! which must begin after the last of them was asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use gc_types::{EffectId, Event, ResourceId, ResourceVersion};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use http_body_util::Full;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::connection::ApiClient;
use crate::resources::{Route, push_segment};
use crate::watcher::{BATCH_EVENTS, LIST_ACCEPT, PAGE_SIZE};
use crate::wire::interner::Interner;
use crate::wire::metadata::{Encoding, decode_list, decode_status};

/// How long a watch may take to deliver the version before a list is made instead.
pub const BARRIER_PATIENCE: Duration = Duration::from_millis(10);
/// So many lists for barriers run at a time.
pub const BARRIER_LISTS: usize = 4;

/// A resource, or one namespace of it.
pub(crate) type Place = (ResourceId, Option<Arc<str>>);

/// A barrier that was asked for.
#[derive(Debug)]
struct Waiting {
    effect: EffectId,
    place: Place,
    at_least: ResourceVersion,
    patient_until: Instant,
}

/// What the watches have delivered, and who waits for it.
#[derive(Debug, Default)]
pub(crate) struct Barriers {
    delivered: BTreeMap<ResourceId, ResourceVersion>,
    /// Resources inside a list, whose versions come in no order.
    listing: BTreeSet<ResourceId>,
    waiting: Vec<Waiting>,
    running: BTreeMap<Place, Vec<EffectId>>,
}

impl Barriers {
    /// Takes note of an event that comes from a resource's own list or watch.
    pub(crate) fn delivered(&mut self, event: &Event) {
        let (resource, version) = match event {
            Event::ListStarted(id) => {
                self.listing.insert(*id);
                return;
            }
            Event::ResourceGone(id) => {
                self.listing.remove(id);
                self.delivered.remove(id);
                return;
            }
            Event::Synced { resource, resource_version } => {
                self.listing.remove(resource);
                // Not the newest of both: a server restored from a backup starts over.
                self.delivered.insert(*resource, *resource_version);
                return;
            }
            Event::Progress { resource, resource_version } => (*resource, *resource_version),
            Event::Observed(object) => (object.key.resource, object.resource_version),
            Event::Removed { key, resource_version, .. } => (key.resource, *resource_version),
            _ => return,
        };
        if self.listing.contains(&resource) {
            return;
        }
        let newest = self.delivered.entry(resource).or_insert(version);
        *newest = version.max(*newest);
    }

    /// A barrier is asked for.
    pub(crate) fn ask(&mut self, effect: EffectId, place: Place, at_least: ResourceVersion, now: Instant) {
        let patience = if at_least == ResourceVersion::UNKNOWN { Duration::ZERO } else { BARRIER_PATIENCE };
        self.waiting.push(Waiting { effect, place, at_least, patient_until: now + patience });
    }

    /// The barriers that a watch has reached.
    pub(crate) fn take_reached(&mut self) -> Vec<EffectId> {
        let (delivered, listing) = (&self.delivered, &self.listing);
        let reached = |waiting: &mut Waiting| {
            waiting.at_least != ResourceVersion::UNKNOWN
                && !listing.contains(&waiting.place.0)
                && delivered.get(&waiting.place.0).is_some_and(|version| *version >= waiting.at_least)
        };
        self.waiting.extract_if(.., reached).map(|waiting| waiting.effect).collect()
    }

    /// The places that must be listed now.
    pub(crate) fn take_lists(&mut self, now: Instant) -> Vec<Place> {
        let mut places = Vec::new();
        while self.running.len() < BARRIER_LISTS {
            let due = |waiting: &&Waiting| {
                waiting.patient_until <= now && !self.running.contains_key(&waiting.place)
            };
            let Some(place) = self.waiting.iter().find(due).map(|waiting| waiting.place.clone()) else {
                break;
            };
            // Whoever asked before the list begins shares it.
            let sharing =
                self.waiting.extract_if(.., |waiting| waiting.place == place).map(|waiting| waiting.effect);
            let sharing = sharing.collect();
            self.running.insert(place.clone(), sharing);
            places.push(place);
        }
        places
    }

    /// A list is over: the barriers that it answers.
    pub(crate) fn listed(&mut self, place: &Place) -> Vec<EffectId> {
        self.running.remove(place).unwrap_or_default()
    }

    /// When somebody's patience ends, if lists may be begun.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        if self.running.len() >= BARRIER_LISTS {
            return None;
        }
        let due = self.waiting.iter().filter(|waiting| !self.running.contains_key(&waiting.place));
        due.map(|waiting| waiting.patient_until).min()
    }
}

/// Lists a place consistently, handing on what is found page by page. Answers why it could not.
pub(crate) async fn list(
    client: &ApiClient,
    route: &Route,
    namespace: Option<&str>,
    sink: &mpsc::Sender<Vec<Event>>,
) -> Result<(), String> {
    let mut interner = Interner::default();
    let mut continue_token = String::new();
    loop {
        let mut uri = format!("{}?limit={PAGE_SIZE}", route.collection(namespace.unwrap_or_default()));
        if !continue_token.is_empty() {
            uri.push_str("&continue=");
            push_segment(&mut uri, &continue_token);
        }
        let request = Request::builder()
            .method(Method::GET)
            .uri(uri)
            .header(ACCEPT, LIST_ACCEPT)
            .body(Full::default())
            .map_err(|error| error.to_string())?;
        let answer = client.call(request).await.map_err(|error| error.to_string())?;
        let encoding = Encoding::of_content_type(answer.head.headers.get(CONTENT_TYPE));
        if !answer.head.status.is_success() {
            let status = decode_status(encoding, &answer.body).unwrap_or_default();
            return Err(format!("the list was answered with {}: {}", answer.head.status, status.message));
        }
        let list = decode_list(encoding, &answer.body).map_err(|error| error.to_string())?;
        for items in list.items.chunks(BATCH_EVENTS) {
            let batch = items.iter().map(|item| Event::Found(item.observed(route.info.id, &mut interner)));
            sink.send(batch.collect()).await.map_err(|_| "the collector has ended".to_owned())?;
        }
        if list.continue_token.is_empty() {
            return Ok(());
        }
        continue_token = list.continue_token.into_owned();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PODS: ResourceId = ResourceId(1);

    fn progress(version: u64) -> Event {
        Event::Progress { resource: PODS, resource_version: ResourceVersion(version) }
    }

    #[test]
    fn a_watch_that_has_come_far_enough_is_proof() {
        let (mut barriers, now) = (Barriers::default(), Instant::now());
        barriers.ask(EffectId(1), (PODS, None), ResourceVersion(10), now);
        barriers.delivered(&progress(9));
        assert_eq!(barriers.take_reached(), []);
        barriers.delivered(&progress(10));
        assert_eq!(barriers.take_reached(), [EffectId(1)]);
        assert_eq!(barriers.take_lists(now + BARRIER_PATIENCE), []);
    }

    #[test]
    fn versions_inside_a_list_prove_nothing() {
        let (mut barriers, now) = (Barriers::default(), Instant::now());
        barriers.ask(EffectId(1), (PODS, None), ResourceVersion(10), now);
        barriers.delivered(&Event::ListStarted(PODS));
        barriers.delivered(&progress(20));
        assert_eq!(barriers.take_reached(), []);
        barriers.delivered(&Event::Synced { resource: PODS, resource_version: ResourceVersion(20) });
        assert_eq!(barriers.take_reached(), [EffectId(1)]);
    }

    #[test]
    fn impatient_barriers_share_a_list_that_began_after_them() {
        let (mut barriers, now) = (Barriers::default(), Instant::now());
        let place = (PODS, Some(Arc::from("shop")));
        barriers.ask(EffectId(1), place.clone(), ResourceVersion::UNKNOWN, now);
        barriers.ask(EffectId(2), place.clone(), ResourceVersion(10), now);
        assert_eq!(barriers.take_lists(now), std::slice::from_ref(&place));
        barriers.ask(EffectId(3), place.clone(), ResourceVersion::UNKNOWN, now);
        assert_eq!(barriers.take_lists(now), []);
        assert_eq!(barriers.listed(&place), [EffectId(1), EffectId(2)]);
        assert_eq!(barriers.take_lists(now), std::slice::from_ref(&place));
        assert_eq!(barriers.listed(&place), [EffectId(3)]);
    }
}
