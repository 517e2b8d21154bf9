//! Values that several requests share: computed by one of them at a time, and again only after they have expired.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A bounded number of values by key; when it is full, the least recently used value is dropped.
pub(super) struct TtlCache<K, V> {
    most: usize,
    slots: Mutex<BTreeMap<K, Arc<Slot<V>>>>,
}

struct Slot<V> {
    /// The value and when it expires. Locked while the value is computed, so that others wait for it.
    value: tokio::sync::Mutex<Option<(V, Instant)>>,
    asked: Mutex<Instant>,
}

impl<K: Ord + Clone, V: Clone> TtlCache<K, V> {
    /// Creates a cache of at most this number of values.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, slots: Mutex::default() }
    }

    fn slot(&self, key: K) -> Arc<Slot<V>> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if !slots.contains_key(&key) && slots.len() >= self.most {
            let asked = |slot: &Arc<Slot<V>>| *slot.asked.lock().unwrap_or_else(PoisonError::into_inner);
            let oldest = slots.iter().min_by_key(|(_, slot)| asked(slot)).map(|(key, _)| key.clone());
            oldest.map(|key| slots.remove(&key));
        }
        let make = || {
            let (value, asked) = (tokio::sync::Mutex::new(None), Mutex::new(Instant::now()));
            Arc::new(Slot { value, asked })
        };
        let slot = slots.entry(key).or_insert_with(make);
        *slot.asked.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        Arc::clone(slot)
    }

    /// Returns the value of a key and when it expires. If there is none, computes it with `make`, which also returns how long it is
    /// valid. Requests for the same key wait in the meantime. Failures are not cached.
    pub(crate) async fn of<E>(
        &self,
        key: K,
        make: impl Future<Output = Result<(V, Duration), E>>,
    ) -> Result<(V, Instant), E> {
        let slot = self.slot(key);
        let mut kept = slot.value.lock().await;
        if let Some((value, until)) = &*kept
            && Instant::now() < *until
        {
            return Ok((value.clone(), *until));
        }
        let (value, valid) = make.await?;
        let until = Instant::now() + valid;
        *kept = Some((value.clone(), until));
        Ok((value, until))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const LONG: Duration = Duration::from_hours(1);

    fn made<V>(value: V, valid: Duration) -> impl Future<Output = Result<(V, Duration), ()>> {
        std::future::ready(Ok((value, valid)))
    }

    #[tokio::test]
    async fn concurrent_requests_share_one_value() {
        let (kept, times) = (TtlCache::new(4), AtomicUsize::new(0));
        let make = || async {
            tokio::task::yield_now().await;
            Ok::<_, ()>((times.fetch_add(1, Ordering::Relaxed), LONG))
        };
        let all = futures::future::join_all((0..10).map(|_| kept.of("a", make()))).await;
        assert_eq!(all.into_iter().map(|one| one.unwrap().0).collect::<Vec<_>>(), [0; 10]);
        assert_eq!(times.into_inner(), 1);
    }

    #[tokio::test]
    async fn what_has_expired_or_failed_is_made_again() {
        let kept = TtlCache::new(4);
        assert_eq!(kept.of("a", async { Err::<(u8, Duration), _>("no") }).await.map(|one| one.0), Err("no"));
        assert_eq!(kept.of("a", made(1, Duration::ZERO)).await.unwrap().0, 1);
        assert_eq!(kept.of("a", made(2, LONG)).await.unwrap().0, 2);
        assert_eq!(kept.of("a", made(3, LONG)).await.unwrap().0, 2);
    }

    #[tokio::test]
    async fn the_least_recently_used_value_makes_room() {
        let kept = TtlCache::new(2);
        for (key, value) in [("a", 1), ("b", 2), ("a", 3), ("c", 4)] {
            kept.of(key, made(value, LONG)).await.unwrap();
        }
        let found = ["a", "c", "b"].map(|key| kept.of(key, made(9, LONG)));
        let found: Vec<u8> =
            futures::future::join_all(found).await.into_iter().map(|one| one.unwrap().0).collect();
        assert_eq!(found, [1, 4, 9]);
    }
}
