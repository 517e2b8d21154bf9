//! Views of users: one of everything that a user may list, shared by all pages of that user.
//!
//! A view is taken with the user's own permissions, by one request at a time, and is not taken again before a multiple of its
//! duration has passed: however many pages are open, they cost a bounded share of one core.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gc_explain::Resource;
use gc_inspect::resident::Resident;
use gc_inspect::view::View;
use gc_types::Timestamp;

use super::requester::{Requester, Rights, UserKey};
use super::ttl_cache::TtlCache;

/// Maximum number of views that are kept.
const KEPT_VIEWS: usize = 32;
/// Maximum time to build a view.
const PATIENCE: Duration = Duration::from_secs(30);
/// Multiple of its duration for which a view is reused,
pub(super) const REST_FACTOR: u32 = 9;
/// but at least and at most this time.
const REST: (Duration, Duration) = (Duration::from_millis(700), Duration::from_mins(1));

/// Key of a view: the user, and the resources that the user may list, by namespace.
type ViewKey = (UserKey, Vec<(String, Vec<String>)>);

/// Views of all users.
pub(super) struct Views(TtlCache<ViewKey, Arc<View>>);

impl Default for Views {
    fn default() -> Self {
        Self(TtlCache::new(KEPT_VIEWS))
    }
}

/// A view that may be shared with other requests.
pub(super) struct SharedView {
    /// The view.
    pub(crate) view: Arc<View>,
    /// Permissions of the user to list.
    pub(super) rights: Arc<Rights>,
    /// Time at which the view is taken again.
    pub(crate) until: Instant,
}

impl Views {
    /// Returns a user's view, which is at most a moment old.
    pub(crate) async fn of(
        &self,
        visitor: &Requester,
        who: UserKey,
        clock: Timestamp,
        runs: &dyn Fn(&str) -> bool,
        resident: Option<Arc<dyn Resident>>,
    ) -> anyhow::Result<SharedView> {
        let rights = visitor.rights().await?;
        let names = |resources: &[Resource]| resources.iter().map(|one| one.name.to_string()).collect();
        let seen = rights.lists.iter().map(|(namespace, all)| (namespace.clone(), names(all))).collect();
        let take = async {
            let lists = rights.lists.clone();
            let view = View::take(visitor.client(), lists, clock, PATIENCE, runs, resident).await?;
            let rest = (view.took * REST_FACTOR).clamp(REST.0, REST.1);
            anyhow::Ok((Arc::new(view), rest))
        };
        let (view, until) = self.0.of((who, seen), take).await?;
        Ok(SharedView { view, rights, until })
    }
}
