//! Orders of operators: annotations on the leader's Lease. They need only kubectl's permissions, work from anywhere, reach every
//! replica and outlive each of them.
//!
//! | annotation | meaning |
//! |---|---|
//! | `kubegc.io/paused` | anything but empty or `false`: nothing is sent |
//! | `kubegc.io/tripped` | the resources that the breaker stopped, as JSON; taking one out resumes it |
//! | `kubegc.io/observe-until` | until when the first run after an installation only observes |
//! | `kubegc.io/observed-by` | UID of the service account that began this observation |
//! | `kubegc.io/resumed-at` | when `kubegc resume` ended the last pause |
//!
//! An order ends only if a newer version of the Lease that showed it no longer has it, or by a later `kubegc.io/resumed-at`. A
//! Lease that was deleted and created again, or restored from an older snapshot of etcd, ends nothing: orders that it lacks are
//! written back, including stopped resources that cannot be read, and of two ends of an observation the later one.
//!
//! Shards follow these orders on the one Lease without a suffix, beside the Lease of each that is for its election (`shards.rs`).
//!
//! `kubegc.io/pages-certificate-authority` and `kubegc.io/pages-address` are not orders: in them, the leader publishes the
//! authority that verifies the certificate of its pages, and the address of the pages if they are only for its machine.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::bail;
use gc_kube::breaker::{Breaker, BreakerOptions, SharedBreaker, Trip};
use gc_kube::connection::Answer;
use gc_kube::requests::ObjectAnswer;
use gc_kube::{ApiClient, ObjectNews, QUEUED_BATCHES, watch_object};
use gc_types::{Gvr, ResourceId, ResourceInfo, Scope};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use super::LeaseName;
use super::election::Leadership;
pub use super::orders::Orders;
use super::orders::{TRIPPED, is_of_installation};
use super::orders_file::{LeaseRecord, OrdersFile};
use crate::preflight::{self, ForbiddenRequest};

/// Annotation with the authority (PEM) of the leader's self-signed pages certificate.
pub const PAGES_AUTHORITY: &str = "kubegc.io/pages-certificate-authority";
/// Annotation with the address of the leader's pages, if they are only for its machine.
pub const PAGES_ADDRESS: &str = "kubegc.io/pages-address";
/// Pause between attempts to write to the Lease.
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of attempts to write an annotation while others keep changing the Lease.
const TRIES: usize = 8;

/// Holder of a Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Identity of the holder; empty without one.
    pub holder: String,
    /// Time of the last renewal.
    pub renewed: Option<jiff::Timestamp>,
    /// Validity of a renewal in seconds.
    pub seconds: i64,
}

impl Held {
    /// Reads a Lease.
    #[must_use]
    pub fn of(lease: &Value) -> Self {
        let spec = &lease["spec"];
        Self {
            holder: spec["holderIdentity"].as_str().unwrap_or_default().to_owned(),
            renewed: spec["renewTime"].as_str().and_then(|text| text.parse().ok()),
            seconds: spec["leaseDurationSeconds"].as_i64().unwrap_or(0),
        }
    }

    /// Reports whether the Lease is held at this time.
    #[must_use]
    pub fn is_held(&self, now: jiff::Timestamp) -> bool {
        let until = self.renewed.map(|renewed| renewed.as_second().saturating_add(self.seconds));
        !self.holder.is_empty() && until.is_some_and(|until| until >= now.as_second())
    }

    /// Reports whether a collector has ever held the Lease: orders may be written before one starts.
    #[must_use]
    pub fn was_ever_held(&self) -> bool {
        !self.holder.is_empty() || self.renewed.is_some()
    }
}

#[derive(Debug, Default)]
struct SeenOrders {
    /// Newest version of the Lease that was seen. Versions arrive on two paths, and not in order.
    version: u64,
    /// UID of the Lease; empty before the first was seen.
    uid: String,
    /// Last renewal by a collector, as of the start of this process.
    renewed_before: Option<jiff::Timestamp>,
    orders: Orders,
    /// Time at which the pause was first seen.
    paused_at: jiff::Timestamp,
    /// True if the Lease has shown the pause since it was created or restored: only then does its absence mean something.
    pause_announced: bool,
    /// True if the Lease has shown the observation since then.
    observation_announced: bool,
    /// Time at which unreadable stopped resources were first seen.
    unreadable_at: jiff::Timestamp,
    /// True if the Lease has shown these since then.
    unreadable_announced: bool,
    /// Stopped resources that the Lease has shown: only for these does absence mean something.
    announced: BTreeSet<Arc<str>>,
}

/// Takes in the orders of the Lease and passes them on. Clones share the state.
#[derive(Clone, Debug)]
pub struct Control {
    seen: Arc<Mutex<SeenOrders>>,
    leadership: Leadership,
    breaker: SharedBreaker,
    orders: watch::Sender<Orders>,
    /// True if orders outlive their Lease.
    keeps_orders: bool,
    /// File in which orders outlive the process.
    file: Option<OrdersFile>,
}

impl Control {
    /// Creates the control of collectors beside their server: only a pause stops them, and a reset of the server ends it.
    #[must_use]
    pub fn beside_server() -> Self {
        let breaker = SharedBreaker::new(Breaker::new(BreakerOptions::default()));
        Self { keeps_orders: false, ..Self::new(Leadership::always(), breaker) }
    }

    /// Creates a control that applies orders to this leadership and this breaker.
    #[must_use]
    pub fn new(leadership: Leadership, breaker: SharedBreaker) -> Self {
        let orders = watch::Sender::default();
        Self { seen: Arc::default(), leadership, breaker, orders, keeps_orders: true, file: None }
    }

    /// Creates the control for a Lease that carries no orders: that of a shard.
    #[must_use]
    pub fn without_orders() -> Self {
        let breaker = SharedBreaker::new(Breaker::new(BreakerOptions::default()));
        Self { keeps_orders: false, ..Self::new(Leadership::none(), breaker) }
    }

    /// Also keeps the orders of this Lease beside the journal, and begins with those that are already there.
    #[must_use]
    pub fn remembering(self, journal: &Path, server: &str, lease: &LeaseName) -> Self {
        let file = OrdersFile::beside(journal, format!("{server} {lease}"));
        if let Some(LeaseRecord { uid, version, orders }) = file.read() {
            let mut seen = self.lock();
            (seen.uid, seen.version) = (uid, version);
            self.take_in(&mut seen, orders, false);
        }
        Self { file: Some(file), ..self }
    }

    fn lock(&self) -> MutexGuard<'_, SeenOrders> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a receiver of the current orders.
    #[must_use]
    pub fn orders(&self) -> watch::Receiver<Orders> {
        self.orders.subscribe()
    }

    /// Takes in a Lease from the watch or from the response to a write.
    pub fn saw(&self, lease: &Value) {
        self.saw_since(lease, 0);
    }

    /// Takes in a Lease that was read after version `known` had been seen. An older version comes from a restored backup: its
    /// orders are followed, but an earlier order must be noted in it again before it can end anything. The same applies to a Lease
    /// that was created again.
    fn saw_since(&self, lease: &Value, known: u64) {
        let version = lease["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse::<u64>().ok());
        let uid = lease["metadata"]["uid"].as_str().unwrap_or_default();
        let mut seen = self.lock();
        let is_older = version.is_some_and(|version| version < known);
        if version.is_some_and(|version| version < seen.version) && !is_older {
            return;
        }
        let is_lost = is_older || (!seen.uid.is_empty() && seen.uid != uid);
        if is_lost {
            seen.forget_announcements();
        }
        seen.version = version.unwrap_or(seen.version);
        uid.clone_into(&mut seen.uid);
        self.take_in(&mut seen, Orders::of_lease(lease), is_lost);
    }

    /// Applies these orders, and earlier ones that remain in force although they are not among them.
    fn take_in(&self, seen: &mut SeenOrders, mut orders: Orders, is_lost: bool) {
        if let Some(tripped) = &orders.tripped {
            self.follow_trips(seen, tripped);
            self.resume_since(seen.orders.resumed_at, &orders);
        }
        if self.keeps_orders {
            seen.keep(&mut orders);
        }
        if orders.paused != seen.orders.paused {
            match &orders.paused {
                Some(why) => tracing::warn!(why, "paused: nothing is sent until `kubegc resume`"),
                None => tracing::info!("resumed"),
            }
        }
        self.leadership.pause(orders.hold_everything());
        if orders.unreadable.is_some() && orders.unreadable != seen.orders.unreadable {
            tracing::warn!(
                annotation = TRIPPED,
                "the annotation cannot be parsed; nothing is sent until it is corrected, or `kubegc resume`"
            );
        }
        if orders != seen.orders || is_lost {
            seen.orders = orders.clone();
            self.orders.send_replace(orders.clone());
            // Losing the Lease is no reason to forget: its version later shows that it was lost.
            if let Some(file) = self.file.as_ref().filter(|_| !is_lost) {
                file.write(&LeaseRecord { uid: seen.uid.clone(), version: seen.version, orders });
            }
        }
    }

    /// Notes that the Lease is gone; `uid` is that of the deleted Lease, if known. Its orders remain, and are written into the next
    /// one.
    fn lost(&self, uid: Option<&str>) {
        let mut seen = self.lock();
        if self.keeps_orders && !seen.uid.is_empty() && uid.is_none_or(|uid| uid == seen.uid) {
            seen.forget_announcements();
            let orders = seen.orders.clone();
            self.orders.send_replace(orders);
        }
    }

    /// Returns the orders to write on a new Lease.
    #[must_use]
    pub fn standing(&self) -> Orders {
        let mut standing = self.lock().orders.clone();
        // Unreadable orders stop everything, including these resources.
        if let Some(tripped) = &mut standing.tripped {
            let local = self.breaker.lock().tripped();
            tripped.extend(local.into_iter().map(|trip| (Arc::clone(&trip.resource), trip)));
        }
        standing
    }

    fn follow_trips(&self, seen: &mut SeenOrders, tripped: &BTreeMap<Arc<str>, Trip>) {
        let local: BTreeSet<Arc<str>> =
            self.breaker.lock().tripped().into_iter().map(|trip| trip.resource).collect();
        for (resource, trip) in tripped {
            seen.announced.insert(Arc::clone(resource));
            if !local.contains(resource) {
                tracing::warn!("{trip} (as the Lease says)");
                self.breaker.change(|breaker| breaker.stop(trip.clone()));
            }
        }
        let resumed: Vec<Arc<str>> =
            seen.announced.iter().filter(|resource| !tripped.contains_key(*resource)).cloned().collect();
        for resource in resumed {
            seen.announced.remove(&resource);
            if self.breaker.change(|breaker| breaker.resume(&resource)) {
                tracing::info!(%resource, "collection is resumed");
            }
        }
    }

    /// Resumes everything that was stopped before an operator resumed, even if the Lease never showed it.
    fn resume_since(&self, known: Option<jiff::Timestamp>, orders: &Orders) {
        let Some(resumed) = orders.resumed_at.filter(|at| known.is_none_or(|known| *at > known)) else {
            return;
        };
        let shown =
            |resource: &str| orders.tripped.as_ref().is_some_and(|tripped| tripped.contains_key(resource));
        let local = self.breaker.lock().tripped();
        let is_ended = |trip: &Trip| trip.since.0 < resumed.as_millisecond() && !shown(&trip.resource);
        for Trip { resource, .. } in local.into_iter().filter(is_ended) {
            if self.breaker.change(|breaker| breaker.resume(&resource)) {
                tracing::info!(%resource, "collection is resumed");
            }
        }
    }

    /// Returns the orders that are in force but not in the Lease.
    fn unannounced(&self) -> Orders {
        let seen = self.lock();
        let mut missing = Orders::none();
        // An annotation that cannot be read is never overwritten.
        if seen.orders.tripped.is_some() || seen.version == 0 {
            let tripped = self.breaker.lock().tripped().into_iter();
            let tripped = tripped.filter(|trip| !seen.announced.contains(&trip.resource));
            missing.tripped = Some(tripped.map(|trip| (Arc::clone(&trip.resource), trip)).collect());
        }
        if self.keeps_orders && !seen.pause_announced {
            missing.paused.clone_from(&seen.orders.paused);
        }
        if self.keeps_orders && !seen.unreadable_announced {
            missing.unreadable.clone_from(&seen.orders.unreadable);
        }
        if self.keeps_orders && !seen.observation_announced {
            missing.observe_until = seen.orders.observe_until;
            missing.observed_by.clone_from(&seen.orders.observed_by);
        }
        missing
    }

    /// Lists and watches the Lease until the task is aborted.
    pub async fn follow(self, client: ApiClient, lease: LeaseName) {
        let (sink, mut news) = mpsc::channel(QUEUED_BATCHES);
        let known = Arc::<AtomicU64>::default();
        let (control, before) = (self.clone(), Arc::clone(&known));
        let list_begins = move || before.store(control.lock().version, Ordering::Relaxed);
        let wanted = (client.clone(), lease.clone());
        let watch = watch_object(client, leases(), &lease.namespace, &lease.name, list_begins, sink);
        let obey = async {
            let (mut is_listing, mut is_listed) = (false, false);
            while let Some(batch) = news.recv().await {
                for news in batch {
                    match news {
                        ObjectNews::ListStarted => (is_listing, is_listed) = (true, false),
                        ObjectNews::Present(lease) if is_listing => {
                            is_listed = true;
                            self.saw_since(&lease, known.load(Ordering::Relaxed));
                        }
                        ObjectNews::Present(lease) => self.saw(&lease),
                        ObjectNews::Synced => {
                            // A backup may be older than the Lease.
                            if std::mem::take(&mut is_listing) && !is_listed {
                                self.lost(None);
                            }
                        }
                        ObjectNews::Gone(gone) => {
                            self.lost(gone["metadata"]["uid"].as_str().or(Some("")));
                            if !self.keeps_orders {
                                // Beside a server that was reset, the Lease exists again and can be annotated as before.
                                let _ = offer(&wanted.0, &wanted.1).await;
                            }
                        }
                    }
                }
            }
        };
        tokio::join!(watch, obey);
    }

    /// Reads the Lease once.
    pub async fn look(&self, client: &ApiClient, lease: &LeaseName) -> anyhow::Result<()> {
        let known = self.lock().version;
        match read(client, lease).await? {
            Some(value) => {
                self.lock().renewed_before = Held::of(&value).renewed;
                self.saw_since(&value, known);
            }
            None if self.keeps_orders => self.lock().forget_announcements(),
            None => {}
        }
        Ok(())
    }

    /// Writes every new trip of the breaker into the Lease, with an Event about it, and every order that the Lease has lost, until
    /// the task is aborted.
    pub async fn announce(self, client: ApiClient, lease: LeaseName) {
        let (mut changes, mut orders) = (self.breaker.changes(), self.orders());
        let mut reported: BTreeSet<Arc<str>> = BTreeSet::new();
        loop {
            let missing = self.unannounced();
            let trips: Vec<&Trip> = missing.tripped.iter().flat_map(BTreeMap::values).collect();
            reported.retain(|resource| trips.iter().any(|trip| trip.resource == *resource));
            if missing == Orders::none() {
                // A restored backup may hold a Lease without these orders.
                let changed = tokio::select! {
                    changed = changes.changed() => changed,
                    changed = orders.changed() => changed,
                };
                if changed.is_err() {
                    return;
                }
                continue;
            }
            match edit(&client, &lease, |orders| orders.restore(&missing)).await {
                Ok((_, written)) => {
                    for trip in trips {
                        if reported.insert(Arc::clone(&trip.resource)) {
                            write_event(&client, &lease, &written, "BreakerTripped", &trip.to_string()).await;
                        }
                    }
                    self.saw(&written);
                    if self.unannounced() != missing {
                        continue;
                    }
                }
                Err(error) => {
                    tracing::warn!("orders and stopped resources cannot be recorded on the lease: {error:#}");
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Returns the end of the observation in the first run after an installation: the time in the Lease, or this long from now. The
    /// end of an observation that another installation began has no meaning for this one.
    pub async fn observe_until(
        &self,
        client: &ApiClient,
        lease: &LeaseName,
        period: Duration,
    ) -> jiff::Timestamp {
        let installation = installation(client).await;
        let mut orders = self.orders();
        let begun = jiff::Timestamp::now();
        let renewed = self.lock().renewed_before;
        let is_ours = |orders: &Orders| {
            orders.observe_until.is_some_and(|until| until > begun)
                || is_of_installation(orders, installation.as_deref(), renewed, begun)
        };
        loop {
            let until = Some(orders.borrow_and_update().clone()).filter(&is_ours);
            if let Some(until) = until.and_then(|orders| orders.observe_until) {
                return until;
            }
            if self.leadership.leads() {
                let until = jiff::Timestamp::now() + period;
                let set = |orders: &mut Orders| {
                    if !is_ours(orders) {
                        orders.observe_until = Some(until);
                        orders.observed_by.clone_from(&installation);
                    }
                };
                match edit(client, lease, set).await {
                    Ok((_, written)) => self.saw(&written),
                    Err(error) => tracing::warn!("the end of the observation cannot be recorded: {error:#}"),
                }
            }
            // The leader writes it, and its write shows here.
            let _ = tokio::time::timeout(PAUSE, orders.changed()).await;
        }
    }
}

impl SeenOrders {
    /// Notes that the Lease was lost or restored: from now on, an order that it does not show is not thereby ended.
    fn forget_announcements(&mut self) {
        self.announced.clear();
        self.pause_announced = false;
        self.observation_announced = false;
        self.unreadable_announced = false;
    }

    /// Adds the orders that remain in force although the Lease does not show them.
    fn keep(&mut self, orders: &mut Orders) {
        if orders.paused.is_some() {
            if self.orders.paused.is_none() {
                self.paused_at = jiff::Timestamp::now();
            }
            self.pause_announced = true;
        } else if let Some(pause) = self.orders.paused.as_ref().filter(|_| !self.pause_announced)
            && !orders.resumes(pause, self.paused_at)
        {
            orders.paused = Some(pause.clone());
        }
        if orders.tripped.is_none() {
            if self.orders.unreadable.is_none() {
                self.unreadable_at = jiff::Timestamp::now();
            }
            self.unreadable_announced = true;
        } else if self.orders.unreadable.is_some()
            && !self.unreadable_announced
            && orders.resumed_at.is_none_or(|at| at <= self.unreadable_at)
        {
            orders.tripped = None;
            orders.unreadable.clone_from(&self.orders.unreadable);
        }
        // While the Lease is lost, the later end counts: an earlier one comes from a snapshot.
        if self.observation_announced || self.orders.observe_until <= orders.observe_until {
            self.observation_announced = orders.observe_until.is_some();
        } else {
            orders.observe_until = self.orders.observe_until;
            orders.observed_by.clone_from(&self.orders.observed_by);
        }
    }
}

/// Returns the UID of our own user: a service account has a new one after each installation. `None` if the user has none, or the
/// server does not report it.
async fn installation(client: &ApiClient) -> Option<String> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer = client.call(preflight::request(Method::POST, path, Some(&review))).await.ok()?;
    let value: Value = serde_json::from_slice(&answer.body).ok()?;
    let uid = value["status"]["userInfo"]["uid"].as_str().filter(|uid| !uid.is_empty())?;
    answer.head.status.is_success().then(|| uid.to_owned())
}

/// Returns the resource of Leases, for the follower.
fn leases() -> ResourceInfo {
    ResourceInfo {
        id: ResourceId(0),
        gvr: Gvr { group: "coordination.k8s.io".into(), version: "v1".into(), resource: "leases".into() },
        kind: "Lease".into(),
        scope: Scope::Namespaced,
        served_api_versions: Vec::new(),
        watched: true,
        comparable_versions: true,
    }
}

fn refused(verb: &str, lease: &LeaseName, answer: &Answer) -> anyhow::Error {
    match answer.head.status {
        StatusCode::FORBIDDEN => ForbiddenRequest {
            verbs: vec![verb.into()],
            group: "coordination.k8s.io".into(),
            resource: "leases".into(),
            namespace: lease.namespace.clone(),
        }
        .into(),
        status => anyhow::anyhow!("{verb} lease: {}: {}", status.as_u16(), preflight::message(answer)),
    }
}

/// Reads the Lease; `None` if the server proves that there is none.
pub async fn read(client: &ApiClient, lease: &LeaseName) -> anyhow::Result<Option<Value>> {
    let answer = client.call(preflight::request(Method::GET, &lease.path(), None)).await?;
    match lease.answered(&answer) {
        ObjectAnswer::Found(found) => Ok(Some(found)),
        ObjectAnswer::Absent => Ok(None),
        ObjectAnswer::Doubtful if answer.head.status.is_success() => {
            bail!("get lease: the answer is not the lease {lease}")
        }
        ObjectAnswer::Doubtful => Err(refused("get", lease, &answer)),
    }
}

/// Creates a Lease without a holder and without orders if there is none: orders are annotations, and `kubectl annotate` needs an
/// object.
pub async fn offer(client: &ApiClient, lease: &LeaseName) -> anyhow::Result<()> {
    let metadata = json!({"name": lease.name, "namespace": lease.namespace});
    let body = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata});
    let answer = client.call(preflight::request(Method::POST, &lease.collection(), Some(&body))).await?;
    match answer.head.status {
        StatusCode::CONFLICT => Ok(()),
        status if status.is_success() => Ok(()),
        _ => Err(refused("create", lease, &answer)),
    }
}

/// Changes the orders on a Lease, and creates one without a holder if there is none. Returns the previous orders and the resulting
/// Lease, which is null if there is none and nothing had to be ordered.
pub async fn edit(
    client: &ApiClient,
    lease: &LeaseName,
    change: impl Fn(&mut Orders),
) -> anyhow::Result<(Orders, Value)> {
    for _ in 0..TRIES {
        let present = read(client, lease).await?;
        let before = present.as_ref().map_or_else(Orders::none, Orders::of_lease);
        let mut orders = before.clone();
        change(&mut orders);
        let (verb, request) = match &present {
            _ if orders == before => return Ok((before, present.unwrap_or_default())),
            // Without orders there is nothing to resume.
            None if Orders { resumed_at: None, ..orders.clone() } == before => {
                return Ok((before, Value::Null));
            }
            Some(present) => {
                let version = &present["metadata"]["resourceVersion"];
                let patch =
                    json!({"metadata": {"resourceVersion": version, "annotations": orders.annotations()}});
                ("patch", preflight::patch(&lease.path(), "application/merge-patch+json", &patch))
            }
            None => {
                let body = json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"name": lease.name, "namespace": lease.namespace,
                                 "annotations": orders.new_annotations()},
                });
                ("create", preflight::request(Method::POST, &lease.collection(), Some(&body)))
            }
        };
        let answer = client.call(request).await?;
        match answer.head.status {
            StatusCode::CONFLICT => {}
            status if status.is_success() => return Ok((before, serde_json::from_slice(&answer.body)?)),
            _ => return Err(refused(verb, lease, &answer)),
        }
    }
    bail!("lease {}/{} keeps changing", lease.namespace, lease.name)
}

/// Writes a Kubernetes Event about the Lease. A failure does not affect anything else.
async fn write_event(client: &ApiClient, lease: &LeaseName, written: &Value, reason: &str, message: &str) {
    let now = jiff::Timestamp::now();
    let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let source = gc_kube::event_recorder::EVENT_SOURCE;
    let event = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": format!("{}.{:x}", lease.name, now.as_nanosecond()), "namespace": lease.namespace},
        "involvedObject": {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "namespace": lease.namespace,
                           "name": lease.name, "uid": written["metadata"]["uid"]},
        "reason": reason, "message": message, "type": "Warning", "source": {"component": source},
        "reportingComponent": source, "reportingInstance": "",
        "firstTimestamp": time, "lastTimestamp": time, "count": 1, "eventTime": null,
    });
    let path = format!("/api/v1/namespaces/{}/events", lease.namespace);
    match client.call(preflight::request(Method::POST, &path, Some(&event))).await {
        Ok(answer) if answer.head.status.is_success() => {}
        Ok(answer) => {
            tracing::warn!(code = answer.head.status.as_u16(), reason, "the server rejected an Event");
        }
        Err(error) => tracing::warn!(%error, reason, "an Event could not be written"),
    }
}
