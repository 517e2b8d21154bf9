//! Bounds on the work that goes on at once, and the line between what is done on the spot and what waits for
//! a disk or a network on a thread of its own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gc_registry::api::RequestBody;
use gc_registry::error::{ApiError, Details};
use gc_registry::storage::Blocking;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::encode::decode;
use crate::metrics::Metrics;
use crate::state::State;

/// Requests that are worked on at once (upstream: 400 reads and 200 writes).
const MAXIMUM_IN_FLIGHT: usize = 600;
/// Requests that may wait for one of those places.
const MAXIMUM_QUEUED: usize = 4096;
/// How long one may wait.
const QUEUE_PATIENCE: Duration = Duration::from_secs(15);
/// A body of JSON up to this size is decoded on the spot (well under a millisecond).
const MAXIMUM_JSON_ON_THE_SPOT: usize = 16 * 1024;
/// The same for YAML, which takes several times as long.
const MAXIMUM_YAML_ON_THE_SPOT: usize = 2 * 1024;
/// Watches that may be open at once.
const MAXIMUM_WATCHES: usize = 50_000;

/// The bounds.
pub(crate) struct Work {
    places: Arc<Semaphore>,
    queue: Arc<Semaphore>,
    watches: Arc<Semaphore>,
}

impl Default for Work {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(MAXIMUM_IN_FLIGHT)),
            queue: Arc::new(Semaphore::new(MAXIMUM_IN_FLIGHT + MAXIMUM_QUEUED)),
            watches: Arc::new(Semaphore::new(MAXIMUM_WATCHES)),
        }
    }
}

/// A request that is being worked on.
pub(crate) struct Place {
    in_flight: Gauge,
    _place: OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.in_flight.dec();
    }
}

/// How heavy a piece of work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// Reads one object.
    Read,
    /// Reads many objects, which may take milliseconds of computing.
    ReadMany,
    /// Writes.
    Write,
    /// Decodes a large body, and writes.
    WriteLarge,
    /// Writes many objects, one after the other.
    WriteMany,
}

/// Whether a body is decoded on a thread that may take its time.
pub(crate) fn takes_long_to_decode(body: &[u8], content_type: Option<&str>) -> bool {
    let yaml = content_type.is_some_and(|content_type| content_type.contains("yaml"));
    body.len() > if yaml { MAXIMUM_YAML_ON_THE_SPOT } else { MAXIMUM_JSON_ON_THE_SPOT }
}

/// Decodes the body of an object, away from the async threads if it is large.
pub(crate) async fn decode_object(
    body: Bytes,
    content_type: Option<String>,
    kind: &str,
) -> Result<RequestBody, ApiError> {
    if !takes_long_to_decode(&body, content_type.as_deref()) {
        return decode::object(&body, content_type.as_deref(), kind);
    }
    let kind = kind.to_owned();
    tokio::task::spawn_blocking(move || decode::object(&body, content_type.as_deref(), &kind))
        .await
        .unwrap_or_else(|failure| Err(ApiError::internal(format!("the body was not decoded: {failure}"))))
}

impl Work {
    /// A place for a request; 429 if too many wait already, or it took too long.
    pub(crate) async fn place(&self, metrics: &Metrics) -> Result<Place, ApiError> {
        let place = self.free_place().await.inspect_err(|_| {
            metrics.rejected.inc();
        })?;
        metrics.in_flight.inc();
        Ok(Place { in_flight: metrics.in_flight.clone(), _place: place })
    }

    async fn free_place(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(place);
        }
        let _queued = self.queue.try_acquire().map_err(|_| too_many_requests())?;
        match tokio::time::timeout(QUEUE_PATIENCE, Arc::clone(&self.places).acquire_owned()).await {
            Ok(Ok(place)) => Ok(place),
            _ => Err(too_many_requests()),
        }
    }

    /// A place for a watch.
    pub(crate) fn watch_place(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        Arc::clone(&self.watches).try_acquire_owned().map_err(|_| too_many_requests())
    }
}

/// 429 with the advice to come back in a second.
pub(crate) fn too_many_requests() -> ApiError {
    let mut error = ApiError::new(429, "TooManyRequests", "Too many requests, please try again later.");
    error.details = Some(Box::new(Details { retry_after_seconds: Some(1), ..Details::default() }));
    error
}

/// Does a piece of work where it belongs: on the spot, or on a thread that may block.
pub(crate) async fn perform<T: Send + 'static>(
    state: &Arc<State>,
    weight: Weight,
    work: impl FnOnce(&State) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let on_the_spot = match (state.registry.blocks(), weight) {
        (Blocking::Never, Weight::Read | Weight::Write) | (Blocking::OnCommit, Weight::Read) => true,
        (_, Weight::ReadMany | Weight::WriteLarge | Weight::WriteMany)
        | (Blocking::OnCommit | Blocking::Always, _) => false,
    };
    if on_the_spot {
        return work(state);
    }
    let state = Arc::clone(state);
    tokio::task::spawn_blocking(move || work(&state))
        .await
        .unwrap_or_else(|failure| Err(ApiError::internal(format!("the request was not finished: {failure}"))))
}
