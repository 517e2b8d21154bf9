//! Bounds on concurrent work, and the line between what is done in place and what waits for
//! a disk or a network on a thread of its own.

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

/// Requests that are worked on at once (upstream: 400 reads and 200 writes).
const MAXIMUM_IN_FLIGHT: usize = 600;
/// Requests that may wait for one of those places.
const MAXIMUM_QUEUED: usize = 4096;
/// Maximum wait in the queue.
const QUEUE_PATIENCE: Duration = Duration::from_secs(15);
/// A body of JSON up to this size is decoded on the spot (well under a millisecond).
const MAXIMUM_JSON_ON_THE_SPOT: usize = 16 * 1024;
/// The same for YAML, which takes several times as long.
const MAXIMUM_YAML_ON_THE_SPOT: usize = 2 * 1024;
/// Bytes that a decoded value takes besides its text.
const BYTES_PER_VALUE: usize = 128;
/// Bytes of protobuf in which there is a value, at most.
const PROTOBUF_PER_VALUE: usize = 4;
/// Bytes of JSON for which a request takes one further place...
const JSON_PER_PLACE: usize = 256 * 1024;
/// ...bytes of YAML...
const YAML_PER_PLACE: usize = 32 * 1024;
/// ...up to this many, as upstream.
const MAXIMUM_WIDTH: usize = 10;
/// Watches that may be open at once; administrators have [`WATCHES_IN_RESERVE`] beyond them.
const MAXIMUM_WATCHES: usize = 50_000;
/// Watches of one user who is not an administrator.
const MAXIMUM_WATCHES_OF_ONE: usize = 25_000;
/// Watches that are kept for administrators.
const WATCHES_IN_RESERVE: usize = 2_000;

/// The bounds.
pub(crate) struct Work {
    shared: Arc<WorkState>,
    /// Bodies that are being read, and those that are held.
    pub(crate) bodies: Arc<Bodies>,
}

struct WorkState {
    configuration: RwLock<Arc<Configuration>>,
    places: Mutex<WorkSeats>,
    watches: Mutex<Watches>,
    /// Makes the hashes of flows those of this process.
    seed: u64,
}

struct WorkSeats {
    seats: Seats,
    /// The requests to notify when they get their seats.
    queued: BTreeMap<Ticket, oneshot::Sender<()>>,
}

#[derive(Default)]
struct Watches {
    open: usize,
    of_users: BTreeMap<Arc<str>, usize>,
}

/// Locks; what a thread that panicked left behind is used as it is.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WorkSeats {
    fn call(&mut self, seated: Vec<Ticket>) {
        for ticket in seated {
            if let Some(waiting) = self.queued.remove(&ticket) {
                // One that stopped waiting gives the places back by itself.
                let _ = waiting.send(());
            }
        }
    }

    fn release(&mut self, flow: &Flow, width: usize) {
        let seated = self.seats.release(flow, width);
        self.call(seated);
    }
}

/// A request that is being worked on.
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

/// A request that waits; dropped, it gives up.
struct Waiter<'a> {
    shared: &'a WorkState,
    flow: &'a Flow,
    ticket: Ticket,
    width: usize,
    begun: Instant,
    metrics: &'a FlowMetrics,
    _waiting: CountedRequest,
    /// Result of the work; a cancelled one is dropped before it runs.
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

/// A watch that is open.
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
    /// Reads many objects, which may take milliseconds of computing, or waits for a webhook.
    ReadMany,
    /// Writes.
    Write,
    /// Decodes a large body or waits for a webhook, and writes.
    WriteLarge,
    /// Writes many objects, one after the other.
    WriteMany,
}

/// Reports whether a body is decoded on a thread that may take its time.
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

/// Returns the seats of a request, by the size of its body.
pub(crate) fn width(body: &[u8], content_type: Option<&str>) -> usize {
    let per_place = if is_yaml(content_type) { YAML_PER_PLACE } else { JSON_PER_PLACE };
    (1 + body.len() / per_place).min(MAXIMUM_WIDTH)
}

/// Bytes that a decoded body takes, about: what its values take, and the copies that are made of them on the way.
pub(crate) fn decoded_bytes(body: &[u8], content_type: Option<&str>) -> usize {
    let is_text = !content_type.is_some_and(|content_type| content_type.contains("protobuf"));
    let is_mark = |byte: &&u8| matches!(byte, b',' | b':' | b'[' | b'{' | b'\n');
    let values = if is_text { body.iter().filter(is_mark).count() } else { body.len() / PROTOBUF_PER_VALUE };
    2 * body.len() + values * BYTES_PER_VALUE
}

impl Work {
    /// The bounds by the default configuration.
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

    /// Takes over a configuration of priority and fairness.
    pub(crate) fn configure(&self, configuration: Configuration) {
        let mut places = lock(&self.shared.places);
        let seated = places.seats.configure(&configuration);
        places.call(seated);
        *self.shared.configuration.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(configuration);
    }

    /// The flow that a request belongs to.
    pub(crate) fn classify(&self, user: &UserInfo, about: RequestProperties<'_>) -> Flow {
        let configuration =
            Arc::clone(&self.shared.configuration.read().unwrap_or_else(PoisonError::into_inner));
        configuration.classify(user, about, self.shared.seed)
    }

    /// The places of a request whose body has arrived; 429 if too many wait already, or it took too long.
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

    /// The places of each priority level.
    pub(crate) fn limits(&self) -> Vec<(Arc<str>, Limits)> {
        let configuration =
            Arc::clone(&self.shared.configuration.read().unwrap_or_else(PoisonError::into_inner));
        let places = lock(&self.shared.places);
        places.seats.limits(&configuration).map(|(name, limits)| (Arc::clone(name), limits)).collect()
    }

    /// Requests that wait for a place.
    pub(crate) fn waiting(&self) -> usize {
        lock(&self.shared.places).seats.waiting()
    }

    /// A place for a watch.
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

/// 429 with the advice to come back in a second.
pub(crate) fn too_many_requests() -> ApiError {
    let mut error = ApiError::new(429, "TooManyRequests", "Too many requests, please try again later.");
    error.details = Some(Box::new(Details { retry_after_seconds: Some(1), ..Details::default() }));
    error
}
