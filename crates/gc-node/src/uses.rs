//! Uses of images between two observations, as reported by the runtime's events.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use gc_cri::{ContainerEvent, CriClient, CriError};
use gc_types::UnixNanoseconds;
use prometheus_client::metrics::counter::Counter;
use tokio::time::{Instant, sleep};
use tracing::{debug, info};

use crate::clock::Ages;

/// Maximum number of references that are remembered between two observations. A node has a few hundred; further ones are counted,
/// and the next listing shows the images in use anyway.
const MAX_REFERENCES: usize = 16_384;
/// First delay before the runtime is asked for events again.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Longest delay after a failure, which usually means that the runtime is restarting.
const MAX_RETRY: Duration = Duration::from_secs(30);
/// Longest delay if the stream ends at once without an error, which means that the runtime is configured not to send events.
const MAX_PAUSE: Duration = Duration::from_mins(5);

/// Uses reported by events that no observation has included yet. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenUses(Arc<Mutex<BTreeMap<Arc<str>, UnixNanoseconds>>>);

impl SeenUses {
    /// Records a use: a container that starts or ends uses its image at that moment, whether or not a listing ever shows it.
    /// Returns the number of references that did not fit.
    pub(crate) fn record(&self, event: &ContainerEvent) -> u64 {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut dropped = 0;
        for reference in &event.image_references {
            if let Some(at) = seen.get_mut(reference) {
                *at = event.at.max(*at);
            } else if seen.len() < MAX_REFERENCES {
                seen.insert(Arc::clone(reference), event.at);
            } else {
                dropped += 1;
            }
        }
        dropped
    }

    /// Removes and returns the uses: each reference with its latest use.
    pub(crate) fn take(&self) -> BTreeMap<Arc<str>, UnixNanoseconds> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reports whether there are no uses.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// Reads the runtime's events for as long as the process lives, with growing pauses after failures. The next listing shows the uses
/// that were missed without a connection.
pub(crate) fn follow(client: CriClient, seen: SeenUses, ages: Ages, dropped: Counter) {
    tokio::spawn(async move {
        let mut pause = FIRST_RETRY;
        loop {
            let began = Instant::now();
            let longest = match read(&client, &seen, &ages, &dropped).await {
                Ok(()) => MAX_PAUSE,
                Err(CriError::Unimplemented { .. }) => {
                    info!("the runtime sends no container events; use is seen by listing");
                    return;
                }
                Err(error) => {
                    debug!("container events: {error}");
                    MAX_RETRY
                }
            };
            if began.elapsed() > longest {
                pause = FIRST_RETRY;
            }
            sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    });
}

/// Reads one stream until it ends.
async fn read(client: &CriClient, seen: &SeenUses, ages: &Ages, dropped: &Counter) -> Result<(), CriError> {
    let mut stream = std::pin::pin!(client.events().await?);
    while let Some(event) = stream.next().await {
        let mut event = event?;
        // The runtime dates its events by the wall clock.
        event.at = ages.now();
        dropped.inc_by(seen.record(&event));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gc_cri::ContainerEventKind;

    fn event(at: i64, references: Vec<Arc<str>>) -> ContainerEvent {
        ContainerEvent {
            container: "c".into(),
            kind: ContainerEventKind::Started,
            at: UnixNanoseconds(at),
            image_references: references,
        }
    }

    #[test]
    fn the_latest_use_of_each_reference_is_kept_up_to_a_bound() {
        let seen = SeenUses::default();
        for (at, reference) in [(5, "a"), (9, "b"), (3, "a"), (7, "a")] {
            assert_eq!(seen.record(&event(at, vec![reference.into()])), 0);
        }
        assert_eq!(
            seen.take(),
            BTreeMap::from([("a".into(), UnixNanoseconds(7)), ("b".into(), UnixNanoseconds(9))])
        );
        assert!(seen.is_empty());
        let many = (0..MAX_REFERENCES + 3).map(|number| Arc::from(number.to_string())).collect();
        assert_eq!(seen.record(&event(1, many)), 3);
        assert_eq!(seen.record(&event(2, vec!["0".into()])), 0, "a known reference needs no room");
    }
}
