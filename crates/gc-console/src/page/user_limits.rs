//! A bounded number of places, of which no user can take all.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A limit on concurrent requests, in all and for each user.
pub(super) struct UserLimits {
    all: Arc<Semaphore>,
    /// Places that only users without any may take at once: those who have many leave room for the first of everybody else.
    reserved: usize,
    most_of_user: usize,
    /// Of users who have a place, or wait for one.
    users: Mutex<BTreeMap<String, Arc<Semaphore>>>,
}

/// A place, until this is dropped.
pub(crate) struct Place {
    _of_user: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
    _user: Arc<Semaphore>,
}

impl UserLimits {
    pub(crate) fn new(all: usize, most_of_user: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), reserved: all / 2, most_of_user, users: Mutex::default() }
    }

    fn of(&self, user: &str) -> Arc<Semaphore> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.retain(|_, places| Arc::strong_count(places) > 1);
        let places =
            users.entry(user.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(self.most_of_user)));
        Arc::clone(places)
    }

    /// A place at once, if one is free.
    pub(crate) fn take(&self, user: &str) -> Option<Place> {
        let places = self.of(user);
        let of_user = Arc::clone(&places).try_acquire_owned().ok()?;
        let is_first = places.available_permits() + 1 == self.most_of_user;
        if !is_first && self.all.available_permits() <= self.reserved {
            return None;
        }
        let of_all = Arc::clone(&self.all).try_acquire_owned().ok()?;
        Some(Place { _of_user: of_user, _of_all: of_all, _user: places })
    }

    /// A place as soon as one is free.
    pub(crate) async fn wait(&self, user: &str) -> Option<Place> {
        let places = self.of(user);
        // The semaphores are never closed.
        let of_user = Arc::clone(&places).acquire_owned().await.ok()?;
        let of_all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(Place { _of_user: of_user, _of_all: of_all, _user: places })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn no_user_takes_all_places() {
        let places = UserLimits::new(3, 2);
        let held = [places.take("ann").unwrap(), places.take("ann").unwrap()];
        assert!(places.take("ann").is_none());
        let other = places.take("bob").unwrap();
        assert!(places.take("carl").is_none(), "all are taken");
        drop((held, other));
        let crowded = UserLimits::new(8, 4);
        let held: Vec<Place> =
            ["a", "b", "c"].iter().flat_map(|user| (0..4).map_while(|_| crowded.take(user))).collect();
        assert_eq!(held.len(), 4 + 1 + 1, "whoever has a place leaves half of all to others");
        let first = crowded.take("admin").unwrap();
        assert!(crowded.take("admin").is_none());
        drop((held, first));
        assert!(places.take("ann").is_some());
        drop(places.take("carl"));
        assert!(places.users.lock().unwrap().len() <= 2, "idle users are forgotten");
    }
}
