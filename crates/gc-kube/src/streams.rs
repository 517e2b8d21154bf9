//! Choice of the connection for a request, a list or a watch.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Number of lists and watches per connection. Servers accept 100 to 250 streams per connection and delay further ones.
pub(crate) const WATCHES_PER_CONNECTION: usize = 64;

/// Number of requests in flight on a connection before the next one is used. Servers accept 100 to 250 streams per connection, and
/// one that carries many is cheaper than several with few: a single packet and a single wake-up deliver several answers.
pub(crate) const STREAMS_PER_CONNECTION: usize = 64;

/// Number of requests in flight on each connection.
pub(crate) struct Streams(Vec<Arc<AtomicUsize>>);

/// A request in flight, until it is dropped.
pub(crate) struct Stream(Arc<AtomicUsize>);

impl Streams {
    pub(crate) fn new(connections: usize) -> Self {
        Self((0..connections).map(|_| Arc::default()).collect())
    }

    /// Chooses the connection of the next request, other than `apart_from` if there are several. Requests sent at the same moment
    /// may see each other's counts late: the counts spread the load but do not limit it.
    pub(crate) fn begin(&self, apart_from: Option<usize>) -> (usize, Stream) {
        let connection = choose(self.0.iter().map(|count| count.load(Ordering::Relaxed)));
        let connection =
            if Some(connection) == apart_from { (connection + 1) % self.0.len() } else { connection };
        let count = Arc::clone(&self.0[connection]);
        count.fetch_add(1, Ordering::Relaxed);
        (connection, Stream(count))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Connections of lists and watches: as many as are needed, and one to spare.
pub(crate) struct WatchConnections<S>(Mutex<Vec<(S, Arc<AtomicUsize>)>>);

impl<S: Clone> WatchConnections<S> {
    pub(crate) fn new() -> Self {
        Self(Mutex::default())
    }

    /// Returns the connection of the next list or watch, which counts until the `Stream` is dropped. Unused connections are closed.
    pub(crate) fn begin(&self, make: impl FnOnce() -> S) -> (S, Stream) {
        let mut connections = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut has_spare = false;
        connections.retain(|(_, count)| {
            let is_idle = count.load(Ordering::Relaxed) == 0;
            !is_idle || !std::mem::replace(&mut has_spare, true)
        });
        let has_room =
            |(_, count): &&(S, Arc<AtomicUsize>)| count.load(Ordering::Relaxed) < WATCHES_PER_CONNECTION;
        let (service, count) = match connections.iter().find(has_room) {
            Some((service, count)) => (service.clone(), Arc::clone(count)),
            None => {
                let (service, count) = (make(), Arc::default());
                connections.push((S::clone(&service), Arc::clone(&count)));
                (service, count)
            }
        };
        count.fetch_add(1, Ordering::Relaxed);
        (service, Stream(count))
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// Returns the first connection with room; if there is none, the first of those with the fewest requests.
fn choose(counts: impl Iterator<Item = usize> + Clone) -> usize {
    let with_room = counts.clone().position(|count| count < STREAMS_PER_CONNECTION);
    let emptiest =
        || counts.enumerate().min_by_key(|(_, count)| *count).map_or(0, |(connection, _)| connection);
    with_room.unwrap_or_else(emptiest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_filled_one_after_the_other() {
        const FULL: usize = STREAMS_PER_CONNECTION;
        for (counts, chosen) in [
            (vec![0, 0, 0], 0),
            (vec![FULL - 1, 0, 0], 0),
            (vec![FULL, 0, 0], 1),
            (vec![FULL - 1, FULL, FULL], 0),
            (vec![FULL, FULL, FULL], 0),
            (vec![FULL + 2, FULL + 1, FULL + 1], 1),
        ] {
            assert_eq!(choose(counts.iter().copied()), chosen, "{counts:?}");
        }
    }

    #[test]
    fn connections_of_watches_that_have_ended_are_closed() {
        let connections = WatchConnections::new();
        let mut made = 0..;
        let mut open: Vec<_> = (0..3 * WATCHES_PER_CONNECTION)
            .map(|_| connections.begin(|| made.next().unwrap_or_default()))
            .collect();
        assert_eq!(open.last().map(|(connection, _)| *connection), Some(2));
        // Definitions are created and deleted a thousand times.
        open.clear();
        for _ in 0..1_000 {
            open.push(connections.begin(|| made.next().unwrap_or_default()));
            open.truncate(1);
        }
        assert_eq!((connections.count(), made.next()), (1, Some(3)));
    }

    #[test]
    fn a_request_counts_until_it_is_dropped() {
        let streams = Streams::new(2);
        let mut in_flight: Vec<_> = (0..STREAMS_PER_CONNECTION).map(|_| streams.begin(None)).collect();
        assert!(in_flight.iter().all(|(connection, _)| *connection == 0));
        assert_eq!(streams.begin(None).0, 1);
        in_flight.pop();
        assert_eq!(streams.begin(None).0, 0);
        assert_eq!([Some(0), Some(1)].map(|apart_from| streams.begin(apart_from).0), [1, 0]);
    }
}
