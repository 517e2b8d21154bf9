//! A bounded number of places that no single user can take up completely.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A limit on concurrent requests, in all and for each user.
pub struct UserLimits {
    shared: Arc<Semaphore>,
    /// Places for users who have none yet: users with many places leave room for the first place of everybody else.
    reserved: Arc<Semaphore>,
    most_of_user: usize,
    /// Semaphores of users who have a place, or wait for one.
    users: Mutex<BTreeMap<String, Arc<Semaphore>>>,
}

/// A place that is held until this is dropped.
#[derive(Debug)]
pub struct Place {
    _of_user: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
    _user: Arc<Semaphore>,
}

impl UserLimits {
    /// Creates a limit of this many places in all and for each user; half of all places are reserved for each user's first.
    #[must_use]
    pub fn new(all: usize, most_of_user: usize) -> Self {
        let (shared, reserved) = (Semaphore::new(all.div_ceil(2)), Semaphore::new(all / 2));
        Self { shared: Arc::new(shared), reserved: Arc::new(reserved), most_of_user, users: Mutex::default() }
    }

    fn of(&self, user: &str) -> Arc<Semaphore> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.retain(|_, places| Arc::strong_count(places) > 1);
        let places =
            users.entry(user.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(self.most_of_user)));
        Arc::clone(places)
    }

    /// Reports whether the place that was just taken is the only one of its user.
    fn is_first(&self, places: &Semaphore) -> bool {
        places.available_permits() + 1 == self.most_of_user
    }

    /// Returns a place if one is free now.
    pub fn take(&self, user: &str) -> Option<Place> {
        let places = self.of(user);
        let of_user = Arc::clone(&places).try_acquire_owned().ok()?;
        let shared = Arc::clone(&self.shared).try_acquire_owned();
        let of_all = match shared {
            Err(_) if self.is_first(&places) => Arc::clone(&self.reserved).try_acquire_owned().ok()?,
            shared => shared.ok()?,
        };
        Some(Place { _of_user: of_user, _of_all: of_all, _user: places })
    }

    /// Returns a place as soon as one is free. A user's first place does not wait for further places of others.
    pub async fn wait(&self, user: &str) -> Option<Place> {
        let places = self.of(user);
        // The semaphores are never closed.
        let of_user = Arc::clone(&places).acquire_owned().await.ok()?;
        let shared = Arc::clone(&self.shared).acquire_owned();
        let of_all = if self.is_first(&places) {
            tokio::select! {
                biased;
                place = shared => place,
                place = Arc::clone(&self.reserved).acquire_owned() => place,
            }
        } else {
            shared.await
        };
        Some(Place { _of_user: of_user, _of_all: of_all.ok()?, _user: places })
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

    #[tokio::test]
    async fn the_first_place_of_a_user_does_not_wait_for_further_ones_of_others() {
        let limits = UserLimits::new(4, 4);
        let held = [limits.wait("ann").await, limits.wait("ann").await];
        let mut further = Box::pin(limits.wait("ann"));
        assert!(futures::poll!(further.as_mut()).is_pending());
        let first = limits.wait("bob").await;
        assert!(first.is_some());
        assert!(futures::poll!(further.as_mut()).is_pending(), "one of the two that are left is for others");
        drop(held);
        assert!(further.await.is_some());
    }
}
