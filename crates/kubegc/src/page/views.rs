//! What users see: one view of everything that a user may list, shared by all pages of that user.
//!
//! A view is taken with the user's own rights, by one request at a time, and rests for a multiple of what it cost before it
//! is taken again: however many pages are open, they cost a bounded share of one core.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gc_answers::{Catalog, Resource};
use gc_apiserver::InProcess;
use gc_kube::ApiClient;
use gc_registry::api::{Attributes, UserInfo};
use gc_types::Timestamp;

use super::kept::Kept;
use crate::questions::view::{self, Lists, View};

/// Views that are kept.
const KEPT_VIEWS: usize = 32;
/// Namespaces that a user without rights everywhere is shown.
const MAXIMUM_NAMESPACES: usize = 64;
/// How long a view may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// A view is reused for this multiple of the time that it took,
const REST_FACTOR: u32 = 9;
/// but for at least and at most this time.
const REST: (Duration, Duration) = (Duration::from_millis(700), Duration::from_mins(1));

/// Users who are told apart: everything that decides what they may do.
pub(super) type Who = (String, Vec<String>);

/// The [`Who`] of a user.
pub(super) fn who(user: &UserInfo) -> Who {
    (user.name.clone(), user.groups.clone())
}

/// Who sees what: the user, and the resources that the user may list, by namespace.
type Sight = (Who, Vec<(String, Vec<String>)>);

/// The views of all users.
pub(super) struct Views(Kept<Sight, Arc<View>>);

impl Default for Views {
    fn default() -> Self {
        Self(Kept::new(KEPT_VIEWS))
    }
}

/// A view that may be shared with other requests.
pub(super) struct Shared {
    /// What the user sees.
    pub(super) view: Arc<View>,
    /// Whether that is everything.
    pub(super) sees_all: bool,
    /// When the view is taken again.
    pub(super) until: Instant,
}

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
    /// What a user sees now, or saw a moment ago.
    pub(super) async fn of(
        &self,
        user: &InProcess,
        who: Who,
        clock: Timestamp,
        runs: &dyn Fn(&str) -> bool,
    ) -> anyhow::Result<Shared> {
        let client = client(user);
        let catalog = view::catalog(&client).await?;
        let rights = rights(user, &catalog);
        let names = |resources: &[Resource]| resources.iter().map(|one| one.name.to_string()).collect();
        let seen = rights.lists.iter().map(|(namespace, all)| (namespace.clone(), names(all))).collect();
        let take = async {
            let view = Arc::new(View::take(client, rights.lists.clone(), clock, PATIENCE, runs).await?);
            let rest = (view.took * REST_FACTOR).clamp(REST.0, REST.1);
            anyhow::Ok((view, rest))
        };
        let (view, until) = self.0.of((who, seen), take).await?;
        Ok(Shared { view, sees_all: rights.all, until })
    }
}
