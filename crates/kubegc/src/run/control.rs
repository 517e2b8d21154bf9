//! Orders of operators: annotations of the leader's Lease, so that they work from anywhere with kubectl's rights, reach
//! every replica and outlive each of them.
//!
//! | annotation | meaning |
//! |---|---|
//! | `kubegc.io/paused` | anything but empty or `false`: nothing is sent |
//! | `kubegc.io/tripped` | the resources that the breaker stopped, as JSON; taking one out resumes it |
//! | `kubegc.io/observe-until` | until when the first run after an installation only observes |
//!
//! `kubegc.io/pages-certificate-authority` and `kubegc.io/pages-address` are no orders: the leader writes there what verifies the
//! certificate of its pages, and where they are if they are for its machine alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::bail;
use gc_kube::breaker::{Breaker, BreakerOptions, SharedBreaker, Trip};
use gc_kube::connection::Answer;
use gc_kube::{ApiClient, ObjectNews, QUEUED_BATCHES, watch_object};
use gc_types::{Gvr, ResourceId, ResourceInfo, Scope, Timestamp};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use super::lease::Leadership;
use super::preflight::{self, Forbidden};

const PAUSED: &str = "kubegc.io/paused";
const TRIPPED: &str = "kubegc.io/tripped";
const OBSERVE_UNTIL: &str = "kubegc.io/observe-until";
/// The authority (PEM) of the self-signed certificate that the leader's pages have.
pub(crate) const PAGES_AUTHORITY: &str = "kubegc.io/pages-certificate-authority";
/// The address of the leader's pages, if they are for its machine alone.
pub(crate) const PAGES_ADDRESS: &str = "kubegc.io/pages-address";
/// Pause between tries to write to the Lease.
const PAUSE: Duration = Duration::from_secs(1);
/// An annotation is written at most so often when others keep changing the Lease.
const TRIES: usize = 8;

/// Which Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseName {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl std::fmt::Display for LeaseName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl LeaseName {
    fn collection(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }

    fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }
}

/// Who holds a Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Who; empty if no one does.
    pub(crate) holder: String,
    /// When it was renewed last.
    pub(crate) renewed: Option<jiff::Timestamp>,
    /// How long a renewal lasts, seconds.
    pub(crate) seconds: i64,
}

impl Held {
    /// Reads a Lease.
    pub(crate) fn of(lease: &Value) -> Self {
        let spec = &lease["spec"];
        Self {
            holder: spec["holderIdentity"].as_str().unwrap_or_default().to_owned(),
            renewed: spec["renewTime"].as_str().and_then(|text| text.parse().ok()),
            seconds: spec["leaseDurationSeconds"].as_i64().unwrap_or(0),
        }
    }

    /// Whether it is held at this time.
    pub(crate) fn is_held(&self, now: jiff::Timestamp) -> bool {
        let until = self.renewed.map(|renewed| renewed.as_second().saturating_add(self.seconds));
        !self.holder.is_empty() && until.is_some_and(|until| until >= now.as_second())
    }

    /// Whether a collector has ever held it: orders may be written before one starts.
    pub(crate) fn was_ever_held(&self) -> bool {
        !self.holder.is_empty() || self.renewed.is_some()
    }
}

/// What a Lease orders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Orders {
    /// Why everything is paused, if it is.
    pub(crate) paused: Option<String>,
    /// What the breaker has stopped; `None` if that cannot be read.
    pub(crate) tripped: Option<BTreeMap<Arc<str>, Trip>>,
    /// Until when the first run only observes.
    pub(crate) observe_until: Option<jiff::Timestamp>,
}

impl Orders {
    /// Reads the annotations of a Lease; without a Lease there are no orders.
    pub(crate) fn of_lease(lease: &Value) -> Self {
        let text = |name: &str| lease["metadata"]["annotations"][name].as_str().unwrap_or_default().trim();
        let paused = text(PAUSED);
        let tripped = match text(TRIPPED) {
            "" => Some(BTreeMap::new()),
            json => read_trips(json),
        };
        Self {
            paused: (!paused.is_empty() && !paused.eq_ignore_ascii_case("false")).then(|| paused.to_owned()),
            tripped,
            observe_until: text(OBSERVE_UNTIL).parse().ok(),
        }
    }

    /// The annotations, for a merge patch.
    pub(super) fn annotations(&self) -> Value {
        let tripped = self.tripped.as_ref().filter(|tripped| !tripped.is_empty()).map(|tripped| {
            let entries = tripped.values().map(|trip| {
                let since = jiff::Timestamp::from_millisecond(trip.since.0).unwrap_or_default();
                (trip.resource.to_string(), json!({"since": since.to_string(), "why": &*trip.why}))
            });
            Value::Object(entries.collect()).to_string()
        });
        json!({
            PAUSED: self.paused, TRIPPED: tripped,
            OBSERVE_UNTIL: self.observe_until.map(|until| until.to_string()),
        })
    }
}

fn read_trips(text: &str) -> Option<BTreeMap<Arc<str>, Trip>> {
    let entries: serde_json::Map<String, Value> = serde_json::from_str(text).ok()?;
    let trip = |(resource, value): (String, Value)| {
        let resource: Arc<str> = resource.into();
        let since = value["since"].as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok());
        let since = Timestamp(since.unwrap_or_default().as_millisecond());
        let why = value["why"].as_str().unwrap_or("no reason is noted").into();
        (Arc::clone(&resource), Trip { resource, since, why })
    };
    Some(entries.into_iter().map(trip).collect())
}

#[derive(Debug, Default)]
struct Seen {
    /// Newest version of the Lease that was seen. Answers come by two ways, and not in order.
    version: u64,
    orders: Orders,
    /// Stopped resources that the Lease has shown: only of those does it mean something that it no longer does.
    announced: BTreeSet<Arc<str>>,
}

/// Takes in what the Lease says and passes it on. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    seen: Arc<Mutex<Seen>>,
    leadership: Leadership,
    breaker: SharedBreaker,
    orders: watch::Sender<Orders>,
}

impl Control {
    /// Of collectors beside their server: only a pause stops them.
    pub(crate) fn beside_server() -> Self {
        Self::new(Leadership::always(), SharedBreaker::new(Breaker::new(BreakerOptions::default())))
    }

    pub(super) fn new(leadership: Leadership, breaker: SharedBreaker) -> Self {
        Self { seen: Arc::default(), leadership, breaker, orders: watch::Sender::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The orders, as they change.
    pub(crate) fn orders(&self) -> watch::Receiver<Orders> {
        self.orders.subscribe()
    }

    /// Takes in a Lease, as the watch delivers it or as an answer to a write.
    pub(crate) fn saw(&self, lease: &Value) {
        self.saw_since(lease, 0);
    }

    /// The same, of a Lease that was read after this version of it had been seen. An older one is what a restored backup
    /// holds: it is obeyed, and what the breaker stopped has to be noted in it again before it can resume anything.
    fn saw_since(&self, lease: &Value, known: u64) {
        let version = lease["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse::<u64>().ok());
        let mut seen = self.lock();
        if let Some(version) = version {
            if version < known {
                seen.announced.clear();
            } else if version < seen.version {
                return;
            }
            seen.version = version;
        }
        let orders = Orders::of_lease(lease);
        if orders.paused != seen.orders.paused {
            match &orders.paused {
                Some(why) => tracing::warn!(why, "paused: nothing is sent until `kubegc resume`"),
                None => tracing::info!("resumed"),
            }
        }
        self.leadership.pause(orders.paused.is_some());
        match &orders.tripped {
            Some(tripped) => self.follow_trips(&mut seen, tripped),
            None => tracing::warn!(
                annotation = TRIPPED,
                "the annotation cannot be parsed; stopped resources remain stopped"
            ),
        }
        if orders != seen.orders {
            seen.orders = orders.clone();
            self.orders.send_replace(orders);
        }
    }

    fn follow_trips(&self, seen: &mut Seen, tripped: &BTreeMap<Arc<str>, Trip>) {
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

    /// What was stopped here and is not in the Lease yet.
    fn unannounced(&self) -> Vec<Trip> {
        let seen = self.lock();
        let tripped = self.breaker.lock().tripped();
        tripped.into_iter().filter(|trip| !seen.announced.contains(&trip.resource)).collect()
    }

    /// Lists and watches the Lease until the task is aborted.
    pub(crate) async fn follow(self, client: ApiClient, lease: LeaseName) {
        let (sink, mut news) = mpsc::channel(QUEUED_BATCHES);
        let known = Arc::<AtomicU64>::default();
        let (control, before) = (self.clone(), Arc::clone(&known));
        let list_begins = move || before.store(control.lock().version, Ordering::Relaxed);
        let watch = watch_object(client, leases(), &lease.namespace, &lease.name, list_begins, sink);
        let obey = async {
            let mut is_listing = false;
            while let Some(batch) = news.recv().await {
                for news in batch {
                    match news {
                        ObjectNews::ListStarted => is_listing = true,
                        ObjectNews::Present(lease) if is_listing => {
                            self.saw_since(&lease, known.load(Ordering::Relaxed));
                        }
                        ObjectNews::Present(lease) => self.saw(&lease),
                        ObjectNews::Synced => is_listing = false,
                        // Its orders remain until it is there again.
                        ObjectNews::Gone(_) => {}
                    }
                }
            }
        };
        tokio::join!(watch, obey);
    }

    /// Reads the Lease once.
    pub(super) async fn look(&self, client: &ApiClient, lease: &LeaseName) -> anyhow::Result<()> {
        let known = self.lock().version;
        if let Some(value) = read(client, lease).await? {
            self.saw_since(&value, known);
        }
        Ok(())
    }

    /// Writes every new trip into the Lease, with an Event about it, until the task is aborted.
    pub(super) async fn announce(self, client: ApiClient, lease: LeaseName) {
        let (mut changes, mut orders) = (self.breaker.changes(), self.orders());
        let mut reported: BTreeSet<Arc<str>> = BTreeSet::new();
        loop {
            let trips = self.unannounced();
            reported.retain(|resource| trips.iter().any(|trip| trip.resource == *resource));
            if trips.is_empty() {
                // A restored backup may hold a Lease without them.
                let changed = tokio::select! {
                    changed = changes.changed() => changed,
                    changed = orders.changed() => changed,
                };
                if changed.is_err() {
                    return;
                }
                continue;
            }
            let add = |orders: &mut Orders| {
                let tripped = orders.tripped.get_or_insert_default();
                tripped.extend(trips.iter().map(|trip| (Arc::clone(&trip.resource), trip.clone())));
            };
            match edit(&client, &lease, add).await {
                Ok((_, written)) => {
                    for trip in &trips {
                        if reported.insert(Arc::clone(&trip.resource)) {
                            write_event(&client, &lease, &written, "BreakerTripped", &trip.to_string()).await;
                        }
                    }
                    self.saw(&written);
                }
                Err(error) => {
                    tracing::warn!("what the breaker stopped cannot be recorded on the lease: {error:#}");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Until when the first run after an installation observes: as the Lease says, or from now on for this long.
    pub(super) async fn observe_until(
        &self,
        client: &ApiClient,
        lease: &LeaseName,
        period: Duration,
    ) -> jiff::Timestamp {
        let mut orders = self.orders();
        loop {
            if let Some(until) = orders.borrow_and_update().observe_until {
                return until;
            }
            if self.leadership.leads() {
                let until = jiff::Timestamp::now() + period;
                let set = |orders: &mut Orders| {
                    orders.observe_until.get_or_insert(until);
                };
                match edit(client, lease, set).await {
                    Ok((_, written)) => self.saw(&written),
                    Err(error) => tracing::warn!("the end of the observation cannot be recorded: {error:#}"),
                }
            }
            // The leader writes it; what was written shows here.
            let _ = tokio::time::timeout(PAUSE, orders.changed()).await;
        }
    }
}

/// Leases, for the follower.
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
        StatusCode::FORBIDDEN => Forbidden {
            verbs: vec![verb.into()],
            group: "coordination.k8s.io".into(),
            resource: "leases".into(),
            namespace: lease.namespace.clone(),
        }
        .into(),
        status => anyhow::anyhow!("{verb} lease: {}: {}", status.as_u16(), preflight::message(answer)),
    }
}

/// The Lease, if it exists.
pub(crate) async fn read(client: &ApiClient, lease: &LeaseName) -> anyhow::Result<Option<Value>> {
    let answer = client.call(preflight::request(Method::GET, &lease.path(), None)).await?;
    match answer.head.status {
        StatusCode::NOT_FOUND => Ok(None),
        status if status.is_success() => Ok(Some(serde_json::from_slice(&answer.body)?)),
        _ => Err(refused("get", lease, &answer)),
    }
}

/// Changes the orders on a Lease, and makes one without a holder if there is none. Answers the orders before and the
/// Lease as it is then: null if there is none and nothing had to be ordered.
pub(crate) async fn edit(
    client: &ApiClient,
    lease: &LeaseName,
    change: impl Fn(&mut Orders),
) -> anyhow::Result<(Orders, Value)> {
    for _ in 0..TRIES {
        let present = read(client, lease).await?;
        let before = present
            .as_ref()
            .map_or_else(|| Orders { tripped: Some(BTreeMap::new()), ..Orders::default() }, Orders::of_lease);
        let mut orders = before.clone();
        change(&mut orders);
        let (verb, request) = match &present {
            _ if orders == before => return Ok((before, present.unwrap_or_default())),
            Some(present) => {
                let version = &present["metadata"]["resourceVersion"];
                let patch =
                    json!({"metadata": {"resourceVersion": version, "annotations": orders.annotations()}});
                let mut request = preflight::request(Method::PATCH, &lease.path(), Some(&patch));
                let kind = http::HeaderValue::from_static("application/merge-patch+json");
                request.headers_mut().insert(http::header::CONTENT_TYPE, kind);
                ("patch", request)
            }
            None => {
                let mut annotations = orders.annotations();
                if let Some(fields) = annotations.as_object_mut() {
                    fields.retain(|_, value| !value.is_null());
                }
                let body = json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"name": lease.name, "namespace": lease.namespace, "annotations": annotations},
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

/// A Kubernetes Event about the Lease. If it fails, everything else continues.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test
    use super::*;

    fn lease(version: u64, annotations: &Value) -> Value {
        json!({"metadata": {"resourceVersion": version.to_string(), "annotations": annotations}})
    }

    fn trip(resource: &str) -> Trip {
        Trip { resource: resource.into(), since: Timestamp(1_790_000_000_000), why: "w".into() }
    }

    #[test]
    fn orders_are_read_as_they_are_written() {
        let orders = Orders {
            paused: Some("2026-09-21T14:13:20Z: maintenance".into()),
            tripped: Some(BTreeMap::from([("pods".into(), trip("pods"))])),
            observe_until: Some(jiff::Timestamp::from_second(1_790_000_000).unwrap()),
        };
        assert_eq!(Orders::of_lease(&lease(1, &orders.annotations())), orders);
        let none = Orders { tripped: Some(BTreeMap::new()), ..Orders::default() };
        for annotations in [
            json!(null),
            json!({PAUSED: "", TRIPPED: " ", OBSERVE_UNTIL: "soon"}),
            json!({PAUSED: "False", TRIPPED: "{}"}),
            none.annotations(),
        ] {
            assert_eq!(Orders::of_lease(&lease(1, &annotations)), none, "{annotations}");
        }
        for written in ["[]", "pods", "{"] {
            assert_eq!(Orders::of_lease(&lease(1, &json!({TRIPPED: written}))).tripped, None, "{written}");
        }
        // Written by hand, it may have as few fields as possible.
        let by_hand = Orders::of_lease(&lease(1, &json!({PAUSED: "true", TRIPPED: "{\"pods\": 1}"})));
        assert_eq!(by_hand.paused.as_deref(), Some("true"));
        assert_eq!(&*by_hand.tripped.unwrap()["pods"].why, "no reason is noted");
    }

    fn control() -> (Control, SharedBreaker, Leadership) {
        let options = BreakerOptions { largest_number: Some(0), ..BreakerOptions::default() };
        let (breaker, leadership) = (SharedBreaker::new(Breaker::new(options)), Leadership::always());
        (Control::new(leadership.clone(), breaker.clone()), breaker, leadership)
    }

    fn stopped(breaker: &SharedBreaker) -> Vec<String> {
        breaker.lock().tripped().iter().map(|trip| trip.resource.to_string()).collect()
    }

    #[test]
    fn the_lease_stops_and_resumes() {
        let (control, breaker, _) = control();
        let tripped = |names: &[&str]| {
            let tripped = names.iter().map(|name| (Arc::from(*name), trip(name))).collect();
            Orders { tripped: Some(tripped), ..Orders::default() }.annotations()
        };
        // Found by a process that starts after the trip.
        control.saw(&lease(5, &tripped(&["pods", "secrets"])));
        assert_eq!(stopped(&breaker), ["pods", "secrets"]);
        control.saw(&lease(6, &tripped(&["secrets"])));
        assert_eq!(stopped(&breaker), ["secrets"]);
        // An older answer comes late; one that cannot be read changes nothing.
        control.saw(&lease(4, &tripped(&[])));
        control.saw(&lease(7, &json!({TRIPPED: "?"})));
        assert_eq!(stopped(&breaker), ["secrets"]);
        control.saw(&lease(8, &tripped(&[])));
        assert_eq!(stopped(&breaker), [""; 0]);
    }

    #[test]
    fn the_lease_of_a_restored_backup_is_obeyed_and_resumes_nothing() {
        let (control, breaker, leadership) = control();
        let is_paused = || !leadership.may_act();
        let shown =
            Orders { tripped: Some(BTreeMap::from([("pods".into(), trip("pods"))])), ..Orders::default() };
        control.saw(&lease(9, &shown.annotations()));
        assert_eq!((stopped(&breaker).len(), control.unannounced().len()), (1, 0));
        // Read after that, and older: history went back.
        control.saw_since(&lease(4, &json!({PAUSED: "maintenance"})), 9);
        assert!(is_paused());
        assert_eq!((stopped(&breaker).len(), control.unannounced().len()), (1, 1));
        // What comes after it counts, although its version was seen before.
        control.saw(&lease(5, &shown.annotations()));
        assert!(!is_paused());
        control.saw(&lease(6, &json!({})));
        assert_eq!(stopped(&breaker), [""; 0]);
        // An answer that was overtaken on its way is only late.
        control.saw(&lease(8, &json!({PAUSED: "maintenance"})));
        control.saw_since(&lease(7, &json!({})), 6);
        assert!(is_paused());
    }

    #[test]
    fn a_trip_that_the_lease_does_not_show_yet_is_not_resumed_by_it() {
        let (control, breaker, _) = control();
        breaker.change(|breaker| drop(breaker.admit(&"pods".into(), false, Some(1), Timestamp(1))));
        control.saw(&lease(5, &json!({})));
        assert_eq!(stopped(&breaker), ["pods"]);
        assert_eq!(control.unannounced().len(), 1);
        let shown =
            Orders { tripped: Some(BTreeMap::from([("pods".into(), trip("pods"))])), ..Orders::default() };
        control.saw(&lease(6, &shown.annotations()));
        assert_eq!((stopped(&breaker).len(), control.unannounced().len()), (1, 0));
        control.saw(&lease(7, &json!({})));
        assert_eq!(stopped(&breaker), [""; 0]);
        // And the next trip is a new one.
        breaker.change(|breaker| drop(breaker.admit(&"pods".into(), false, Some(1), Timestamp(2))));
        control.saw(&lease(8, &json!({})));
        assert_eq!((stopped(&breaker).len(), control.unannounced().len()), (1, 1));
    }

    #[test]
    fn pausing_holds_everything_at_once() {
        let (control, _, leadership) = control();
        let held = leadership.held();
        assert!(leadership.may_act() && !*held.borrow());
        control.saw(&lease(5, &json!({PAUSED: "true"})));
        assert!(!leadership.may_act() && leadership.leads() && *held.borrow());
        control.saw(&lease(6, &json!({})));
        assert!(leadership.may_act() && !*held.borrow());
    }

    /// The follower begins before there is a Lease, and takes in what others write to it.
    #[tokio::test]
    async fn orders_on_a_lease_that_comes_later_are_followed() {
        let options = crate::apiserver::ServerOptions::in_process();
        let server = crate::apiserver::serve(&options, None).await.unwrap();
        let way = server.in_process("tester");
        let client = ApiClient::in_process(move |request| way.call(request));
        let name = LeaseName { namespace: "kube-system".into(), name: "kubegc".into() };
        let other = LeaseName { name: "other".into(), ..name.clone() };
        let (control, _, leadership) = control();
        let (mut orders, mut held) = (control.orders(), leadership.held());
        let following = tokio::spawn(control.follow(client.clone(), name.clone()));
        edit(&client, &other, |orders| orders.paused = Some("not ours".into())).await.unwrap();
        for reason in ["lunch", "dinner"] {
            edit(&client, &name, |orders| orders.paused = Some(reason.into())).await.unwrap();
            orders.wait_for(|orders| orders.paused.as_deref() == Some(reason)).await.unwrap();
        }
        edit(&client, &name, |orders| orders.paused = None).await.unwrap();
        held.wait_for(|held| !*held).await.unwrap();
        following.abort();
        server.shutdown().await;
    }

    /// Without orders there is nothing to write, and a Lease that only has orders was never held.
    #[tokio::test]
    async fn a_lease_is_made_only_for_orders() {
        let options = crate::apiserver::ServerOptions::in_process();
        let server = crate::apiserver::serve(&options, None).await.unwrap();
        let way = server.in_process("tester");
        let client = ApiClient::in_process(move |request| way.call(request));
        let name = LeaseName { namespace: "kube-system".into(), name: "kubegc".into() };
        let resume = |orders: &mut Orders| {
            orders.paused = None;
            orders.tripped = Some(BTreeMap::new());
        };
        assert_eq!(edit(&client, &name, resume).await.unwrap().1, Value::Null);
        assert_eq!(read(&client, &name).await.unwrap(), None);
        edit(&client, &name, |orders| orders.paused = Some("lunch".into())).await.unwrap();
        let (before, lease) = edit(&client, &name, resume).await.unwrap();
        assert_eq!(before.paused.as_deref(), Some("lunch"));
        assert!(!Held::of(&lease).was_ever_held());
        server.shutdown().await;
    }
}
