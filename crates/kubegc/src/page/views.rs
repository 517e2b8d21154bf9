//! What users see: one view of everything that a user may list, shared by all pages of that user.
//!
//! A view is taken with the user's own rights, by one request at a time, and rests for a multiple of what it cost before it
//! is taken again: however many pages are open, they cost a bounded share of one core.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gc_answers::{Catalog, Resource};
use gc_apiserver::InProcess;
use gc_kube::ApiClient;
use gc_registry::api::Attributes;
use gc_types::Timestamp;

use crate::questions::view::{self, Lists, View};

/// Views that are kept; of more, those that were not asked for the longest are dropped.
const KEPT_VIEWS: usize = 32;
/// Namespaces that a user without rights everywhere is shown.
const MAXIMUM_NAMESPACES: usize = 64;
/// How long a view may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// A view is reused for this multiple of the time that it took,
const REST_FACTOR: u32 = 9;
/// but for at least and at most this time.
const REST: (Duration, Duration) = (Duration::from_millis(700), Duration::from_mins(1));

/// Who sees what: everything that decides it.
type Sight = (String, Vec<String>, Vec<(String, Vec<String>)>);

struct Slot {
    view: tokio::sync::Mutex<Option<(Arc<View>, Instant)>>,
    asked: Mutex<Instant>,
}

/// The views of all users.
#[derive(Default)]
pub(super) struct Views(Mutex<BTreeMap<Sight, Arc<Slot>>>);

/// What a user may list.
pub(super) struct Rights {
    /// By namespace; an empty one for lists of everything.
    pub(super) lists: Lists,
    /// Whether that is all that there is.
    pub(super) all: bool,
}

/// A client that asks as this user.
pub(super) fn client(user: &InProcess) -> ApiClient {
    let way = user.clone();
    ApiClient::in_process(move |request| way.call(request))
}

/// Whether a user may list a resource in a namespace (an empty one: everywhere).
pub(super) fn may_list(user: &InProcess, group: &str, resource: &str, namespace: &str) -> bool {
    user.may(&Attributes { verb: "list", group, resource, namespace, ..Attributes::default() })
}

/// What a user may list of what is served.
pub(super) fn rights(user: &InProcess, catalog: &Catalog) -> Rights {
    let served: Vec<&Resource> = catalog.all().iter().filter(|resource| resource.is_collectable()).collect();
    let may = |resource: &Resource, namespace: &str| {
        may_list(user, &resource.name.group, &resource.name.resource, namespace)
    };
    let (everywhere, others): (Vec<&Resource>, Vec<&Resource>) =
        served.into_iter().partition(|resource| may(resource, ""));
    let all = others.is_empty();
    let mut lists: Lists = Vec::new();
    if !everywhere.is_empty() {
        lists.push((String::new(), everywhere.into_iter().cloned().collect()));
    }
    if !all {
        for namespace in user.namespaces().into_iter().take(MAXIMUM_NAMESPACES) {
            let inside: Vec<Resource> = others
                .iter()
                .filter(|resource| resource.is_namespaced() && may(resource, &namespace))
                .map(|resource| (*resource).clone())
                .collect();
            if !inside.is_empty() {
                lists.push((namespace, inside));
            }
        }
    }
    Rights { lists, all }
}

impl Views {
    fn slot(&self, sight: Sight) -> Arc<Slot> {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !slots.contains_key(&sight) && slots.len() >= KEPT_VIEWS {
            let asked = |slot: &Arc<Slot>| *slot.asked.lock().unwrap_or_else(PoisonError::into_inner);
            let oldest = slots.iter().min_by_key(|(_, slot)| asked(slot)).map(|(sight, _)| sight.clone());
            oldest.map(|sight| slots.remove(&sight));
        }
        let make =
            || Arc::new(Slot { view: tokio::sync::Mutex::new(None), asked: Mutex::new(Instant::now()) });
        let slot = slots.entry(sight).or_insert_with(make);
        *slot.asked.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        Arc::clone(slot)
    }

    /// What a user sees now, or saw a moment ago, and whether that is everything.
    pub(super) async fn of(
        &self,
        user: &InProcess,
        who: (&str, &[String]),
        clock: Timestamp,
        runs: &dyn Fn(&str) -> bool,
    ) -> anyhow::Result<(Arc<View>, Rights)> {
        let client = client(user);
        let catalog = view::catalog(&client).await?;
        let rights = rights(user, &catalog);
        let names = |resources: &[Resource]| resources.iter().map(|one| one.name.to_string()).collect();
        let seen = rights.lists.iter().map(|(namespace, all)| (namespace.clone(), names(all))).collect();
        let slot = self.slot((who.0.to_owned(), who.1.to_vec(), seen));
        let mut kept = slot.view.lock().await;
        if let Some((view, until)) = &*kept
            && Instant::now() < *until
        {
            return Ok((Arc::clone(view), rights));
        }
        let view = Arc::new(View::take(client, rights.lists.clone(), clock, PATIENCE, runs).await?);
        let rest = (view.took * REST_FACTOR).clamp(REST.0, REST.1);
        *kept = Some((Arc::clone(&view), Instant::now() + rest));
        Ok((view, rights))
    }
}
