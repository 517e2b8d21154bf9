//! Limits on concurrent work, and the decision which work runs in place and which waits for a disk or a network on a separate
//! thread.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use gc_registry::api::{RequestBody, UserInfo};
use gc_registry::error::{ApiError, Details};
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::oneshot;

use crate::encode::decode;
use crate::fairness::configuration::{Configuration, Flow, RequestProperties};
use crate::fairness::seats::{Decision, Limits, Refusal, Seats, Ticket};
use crate::flow_metrics::{CountedRequest, FlowMetrics};
use crate::metrics::Metrics;
use crate::transport::account::Account;
use crate::transport::bodies::Bodies;

/// Maximum number of requests executed at once (upstream: 400 reads and 200 writes).
const MAXIMUM_IN_FLIGHT: usize = 600;
/// Maximum number of requests that wait for a seat.
const MAXIMUM_QUEUED: usize = 4096;
/// Maximum time in the queue.
const QUEUE_PATIENCE: Duration = Duration::from_secs(15);
/// Maximum size of a JSON body that is decoded in place (well under a millisecond).
const MAXIMUM_JSON_ON_THE_SPOT: usize = 16 * 1024;
/// Maximum size of a YAML body that is decoded in place; YAML takes several times as long.
const MAXIMUM_YAML_ON_THE_SPOT: usize = 2 * 1024;
/// Memory of a decoded value in addition to its text, in bytes.
const BYTES_PER_VALUE: usize = 128;
/// Minimum number of protobuf bytes per value.
const PROTOBUF_PER_VALUE: usize = 4;
/// Number of JSON bytes for which a request takes a further seat...
const JSON_PER_PLACE: usize = 256 * 1024;
/// ...number of YAML bytes...
const YAML_PER_PLACE: usize = 32 * 1024;
/// ...and the maximum number of seats, as upstream.
const MAXIMUM_WIDTH: usize = 10;
/// Maximum number of open watches; administrators have [`WATCHES_IN_RESERVE`] in addition.
const MAXIMUM_WATCHES: usize = 50_000;
/// Maximum number of watches of one user who is not an administrator.
const MAXIMUM_WATCHES_OF_ONE: usize = 25_000;
/// Number of watches reserved for administrators.
const WATCHES_IN_RESERVE: usize = 2_000;

/// Limits on concurrent work.
pub(crate) struct Work {
    shared: Arc<WorkState>,
    /// Bodies that are being read or held.
    pub(crate) bodies: Arc<Bodies>,
}

struct WorkState {
    configuration: RwLock<Arc<Configuration>>,
    places: Mutex<WorkSeats>,
    watches: Mutex<Watches>,
    /// Makes hashes of flows specific to this process.
    seed: u64,
}

struct WorkSeats {
    seats: Seats,
    /// Channels that notify waiting requests when they get their seats.
    queued: BTreeMap<Ticket, oneshot::Sender<()>>,
}

#[derive(Default)]
struct Watches {
    open: usize,
    of_users: BTreeMap<Arc<str>, usize>,
}

/// Locks a mutex; the state left behind by a thread that panicked is used as it is.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WorkSeats {
    fn call(&mut self, seated: Vec<Ticket>) {
        for ticket in seated {
            if let Some(waiting) = self.queued.remove(&ticket) {
                // A waiter that has left gives its seats back itself.
                let _ = waiting.send(());
            }
        }
    }

    fn release(&mut self, flow: &Flow, width: usize) {
        let seated = self.seats.release(flow, width);
        self.call(seated);
    }
}

/// A request in execution, and its seats.
pub(crate) struct Seat {
    shared: Arc<WorkState>,
    flow: Flow,
    width: usize,
    in_flight: Gauge,
    _executing: CountedRequest,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.in_flight.dec();
        lock(&self.shared.places).release(&self.flow, self.width);
    }
}

/// A waiting request; dropping it gives up.
struct Waiter<'a> {
    shared: &'a WorkState,
    flow: &'a Flow,
    ticket: Ticket,
    width: usize,
    begun: Instant,
    metrics: &'a FlowMetrics,
    _waiting: CountedRequest,
    /// Outcome of the wait, for metrics; a dropped future counts as cancelled.
    end: Result<(), Refusal>,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.metrics.waited(self.flow, self.end.is_ok(), self.begun.elapsed());
        let Err(refusal) = self.end else { return };
        self.metrics.rejected(self.flow, refusal);
        let mut places = lock(&self.shared.places);
        places.queued.remove(&self.ticket);
        if !places.seats.give_up(self.flow, self.ticket) {
            places.release(self.flow, self.width);
        }
    }
}

/// An open watch.
pub(crate) struct WatchPlace {
    shared: Arc<WorkState>,
    user: Arc<str>,
}

impl Drop for WatchPlace {
    fn drop(&mut self) {
        let mut watches = lock(&self.shared.watches);
        watches.open -= 1;
        if let Some(count) = watches.of_users.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                watches.of_users.remove(&self.user);
            }
        }
    }
}

/// Cost class of a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// Reads one object.
    Read,
    /// Reads many objects, which may take milliseconds of computation.
    ReadMany,
    /// Waits for a webhook, and reads.
    ReadConverted,
    /// Writes.
    Write,
    /// Decodes a large body or waits for a webhook, and writes.
    WriteLarge,
    /// Writes many objects in sequence.
    WriteMany,
}

/// Reports whether a body must be decoded on a thread that may block.
pub(crate) fn takes_long_to_decode(body: &[u8], content_type: Option<&str>) -> bool {
    body.len() > if is_yaml(content_type) { MAXIMUM_YAML_ON_THE_SPOT } else { MAXIMUM_JSON_ON_THE_SPOT }
}

fn is_yaml(content_type: Option<&str>) -> bool {
    content_type.is_some_and(|content_type| content_type.contains("yaml"))
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

/// Returns the number of seats of a request, by the size of its body.
pub(crate) fn width(body: &[u8], content_type: Option<&str>) -> usize {
    let per_place = if is_yaml(content_type) { YAML_PER_PLACE } else { JSON_PER_PLACE };
    (1 + body.len() / per_place).min(MAXIMUM_WIDTH)
}

/// Returns the approximate memory of a decoded body: its values, and the copies made of them during execution.
pub(crate) fn decoded_bytes(body: &[u8], content_type: Option<&str>) -> usize {
    let is_text = !content_type.is_some_and(|content_type| content_type.contains("protobuf"));
    let is_mark = |byte: &&u8| matches!(byte, b',' | b':' | b'[' | b'{' | b'\n');
    let values = if is_text { body.iter().filter(is_mark).count() } else { body.len() / PROTOBUF_PER_VALUE };
    2 * body.len() + values * BYTES_PER_VALUE
}

impl Work {
    /// Creates the limits of the default configuration.
    pub(crate) fn new(seed: u64, account: &Account) -> Self {
        let configuration = Configuration::default();
        let seats = Seats::new(MAXIMUM_IN_FLIGHT, MAXIMUM_QUEUED, &configuration);
        let shared = WorkState {
            configuration: RwLock::new(Arc::new(configuration)),
            places: Mutex::new(WorkSeats { seats, queued: BTreeMap::new() }),
            watches: Mutex::default(),
            seed,
        };
        Self { shared: Arc::new(shared), bodies: Arc::new(Bodies::new(account)) }
    }

    /// Applies a configuration of priority and fairness.
    pub(crate) fn configure(&self, configuration: Arc<Configuration>) {
        let mut places = lock(&self.shared.places);
        let seated = places.seats.configure(&configuration);
        places.call(seated);
        *self.shared.configuration.write().unwrap_or_else(PoisonError::into_inner) = configuration;
    }

    /// Returns the flow that a request belongs to.
    pub(crate) fn classify(&self, user: &UserInfo, about: RequestProperties<'_>) -> Flow {
        let configuration =
            Arc::clone(&self.shared.configuration.read().unwrap_or_else(PoisonError::into_inner));
        configuration.classify(user, about, self.shared.seed)
    }

    /// Takes seats for a request whose body has arrived. Fails with a 429 if too many requests wait already, or the wait took too
    /// long.
    pub(crate) async fn place(&self, metrics: &Metrics, flow: &Flow, width: usize) -> Result<Seat, ApiError> {
        let width = self.seated(&metrics.flows, flow, width).await.inspect_err(|_| {
            metrics.rejected.inc();
        })?;
        metrics.in_flight.inc();
        let (shared, flow, in_flight) = (Arc::clone(&self.shared), flow.clone(), metrics.in_flight.clone());
        let executing = metrics.flows.dispatched(&flow, width);
        Ok(Seat { shared, flow, width, in_flight, _executing: executing })
    }

    async fn seated(&self, metrics: &FlowMetrics, flow: &Flow, width: usize) -> Result<usize, ApiError> {
        let (ticket, called, width) = {
            let mut places = lock(&self.shared.places);
            let width = places.seats.width(flow, width);
            match places.seats.request(flow, width) {
                Decision::Seated => return Ok(width),
                Decision::Refused(refusal) => {
                    metrics.rejected(flow, refusal);
                    return Err(too_many_requests());
                }
                Decision::Waits(ticket) => {
                    let (call, called) = oneshot::channel();
                    places.queued.insert(ticket, call);
                    (ticket, called, width)
                }
            }
        };
        let mut waiter = Waiter {
            shared: &self.shared,
            flow,
            ticket,
            width,
            begun: Instant::now(),
            metrics,
            _waiting: metrics.waiting(flow, width),
            end: Err(Refusal::Cancelled),
        };
        if let Ok(Ok(())) = tokio::time::timeout(QUEUE_PATIENCE, called).await {
            waiter.end = Ok(());
            return Ok(width);
        }
        waiter.end = Err(Refusal::TimedOut);
        Err(too_many_requests())
    }

    /// Returns the seats of each priority level.
    pub(crate) fn limits(&self) -> Vec<(Arc<str>, Limits)> {
        let configuration =
            Arc::clone(&self.shared.configuration.read().unwrap_or_else(PoisonError::into_inner));
        let places = lock(&self.shared.places);
        places.seats.limits(&configuration).map(|(name, limits)| (Arc::clone(name), limits)).collect()
    }

    /// Returns the number of requests that wait for a seat.
    pub(crate) fn waiting(&self) -> usize {
        lock(&self.shared.places).seats.waiting()
    }

    /// Reserves a watch.
    pub(crate) fn watch_place(&self, user: &str, flow: &Flow) -> Result<WatchPlace, ApiError> {
        let mut watches = lock(&self.shared.watches);
        let reserve = if flow.exempt { WATCHES_IN_RESERVE } else { 0 };
        let of_user = watches.of_users.get(user).copied().unwrap_or(0);
        if watches.open >= MAXIMUM_WATCHES + reserve || !flow.exempt && of_user >= MAXIMUM_WATCHES_OF_ONE {
            return Err(too_many_requests());
        }
        let user: Arc<str> = user.into();
        watches.open += 1;
        *watches.of_users.entry(Arc::clone(&user)).or_default() += 1;
        Ok(WatchPlace { shared: Arc::clone(&self.shared), user })
    }
}

/// Returns a 429 that advises the client to retry after a second.
pub(crate) fn too_many_requests() -> ApiError {
    let mut error = ApiError::new(429, "TooManyRequests", "Too many requests, please try again later.");
    error.details = Some(Box::new(Details { retry_after_seconds: Some(1), ..Details::default() }));
    error
}
