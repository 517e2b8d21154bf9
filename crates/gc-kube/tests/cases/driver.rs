//! The loop between watches, engine and requests: nothing may be lost in bursts, and withheld requests must not be sent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use gc_kube::breaker::{Breaker, BreakerOptions, SharedBreaker, Trip};
use gc_kube::{Observer, Restraints};
use gc_types::{
    EffectId, ObjectKey, Outcome, PropagationPolicy, Reason, Request, ResourceId, ResourceVersion, Uid,
    Verdict, WithheldBy,
};
use tokio::sync::watch;

use super::*;

/// More than fit into the queue (16) and a single take (16), together with the current batch.
const BURST: u64 = 100;

/// Returns an engine that blocks at its first object until the server has sent a number of batches, and records its events.
fn slow(observed: mpsc::UnboundedSender<String>, handed_out: Arc<AtomicUsize>) -> impl EventEngine {
    let mut stopped = false;
    Passive(move |event| {
        let Event::Observed(object) = event else { return };
        if !std::mem::replace(&mut stopped, true) {
            let deadline = std::time::Instant::now() + Duration::from_secs(5);
            let is_full = || handed_out.load(Ordering::Relaxed) >= gc_kube::QUEUED_BATCHES + 2;
            // Tasks of this worker continue on others in the meantime.
            tokio::task::block_in_place(|| {
                while !is_full() && std::time::Instant::now() < deadline {
                    std::thread::yield_now();
                }
            });
            assert!(is_full(), "the queue was never full");
        }
        let _ = observed.send(object.key.name.to_string());
    })
}

/// Regression test: events were dropped when more than seventeen batches waited, because one was taken out of the queue and not
/// delivered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_of_batches_is_told_whole() {
    let handed_out = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&handed_out);
    let client = ApiClient::in_process(move |request| {
        let counted = Arc::clone(&counted);
        async move {
            match request.uri().path() {
                "/api" => whole(200, &discovery(&["configmaps"])),
                "/apis" => whole(200, &json!({"kind": "APIGroupDiscoveryList", "items": []})),
                "/api/v1/configmaps" => {
                    // Each frame becomes a separate batch.
                    let frames = (1..=BURST).map(move |number| {
                        counted.fetch_add(1, Ordering::Relaxed);
                        let line = format!("{}\n", event("ADDED", &object(&format!("m{number}"), number)));
                        Ok(http_body::Frame::data(Bytes::from(line)))
                    });
                    let frames = futures::stream::iter(frames).chain(futures::stream::pending());
                    Response::new(StreamBody::new(frames).boxed_unsync())
                }
                _ => whole(404, &Value::Null),
            }
        }
    });
    let (observed, mut outcomes) = mpsc::unbounded_channel();
    let collector = MetadataCollector::new(client, CollectorOptions::default());
    tokio::spawn(collector.run(slow(observed, handed_out), Arc::new(NoObserver), std::future::pending()));
    for number in 1..=BURST {
        let name = tokio::time::timeout(Duration::from_secs(5), outcomes.recv()).await.unwrap().unwrap();
        assert_eq!(name, format!("m{number}"));
    }
}

/// An engine that wants a number of objects of each resource deleted once everything is listed. Like the real engine, it decides
/// again about withheld objects when they are released.
struct Deleter {
    wanted: BTreeMap<String, usize>,
    ready: VecDeque<(ResourceId, String)>,
    held: BTreeSet<(ResourceId, String)>,
    asked: BTreeMap<EffectId, (ResourceId, String)>,
    next: u64,
    outcomes: mpsc::UnboundedSender<String>,
}

impl EventEngine for Deleter {
    fn handle(&mut self, event: Event) {
        match event {
            Event::ResourceServed(info) => {
                let number = self.wanted.get(&*info.gvr.resource).copied().unwrap_or(0);
                let names = (0..number).map(|number| (info.id, format!("{}-{number}", info.gvr.resource)));
                self.ready.extend(names);
            }
            Event::Done(id, outcome) => {
                let (resource, name) = self.asked.remove(&id).unwrap();
                let word = match outcome {
                    Outcome::Applied(_) => "applied".to_owned(),
                    Outcome::Withheld(by) => {
                        self.held.insert((resource, name.clone()));
                        format!("held by {by:?}")
                    }
                    other => format!("{other:?}"),
                };
                let _ = self.outcomes.send(format!("{name} {word}"));
            }
            Event::Released(resource) => {
                let released: Vec<_> =
                    self.held.extract_if(.., |held| resource.is_none_or(|id| held.0 == id)).collect();
                self.ready.extend(released);
            }
            _ => {}
        }
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        let (resource, name) = self.ready.pop_front()?;
        self.next += 1;
        let id = EffectId(self.next);
        self.asked.insert(id, (resource, name.clone()));
        let key = ObjectKey { resource, namespace: "shop".into(), name: name.as_str().into() };
        let request = Request::Delete {
            key,
            uid: Uid::new("u"),
            resource_version: Some(ResourceVersion(1)),
            policy: PropagationPolicy::Background,
        };
        let reason = Reason { verdict: Verdict::OwnersAbsent, owners: vec![], evidence: vec![] };
        Some(Effect { id, request, reason })
    }

    fn next_wakeup(&self) -> Option<Timestamp> {
        None
    }

    fn set_clock(&mut self, _now: Timestamp) {}

    fn objects_of(&self, _resource: ResourceId) -> Option<usize> {
        None
    }
}

#[derive(Default)]
struct Trips(Mutex<Vec<Trip>>);

impl Observer for Trips {
    fn tripped(&self, trip: &Trip) {
        self.0.lock().unwrap().push(trip.clone());
    }
}

/// Creates a server that grants every deletion (or answers one with a 429 first) and counts the requests.
fn granting(sent: &Arc<Mutex<Vec<String>>>, busy: &'static str) -> ApiClient {
    let sent = Arc::clone(sent);
    ApiClient::in_process(move |request| {
        let sent = Arc::clone(&sent);
        async move {
            if request.method() == http::Method::DELETE {
                let name = request.uri().path().rsplit('/').next().unwrap().to_owned();
                let mut sent = sent.lock().unwrap();
                let first = !sent.contains(&name);
                sent.push(name.clone());
                if first && name == busy {
                    return whole(409, &json!({"kind": "Status", "code": 409, "reason": "Conflict"}));
                }
                return whole(200, &json!({"kind": "Status", "status": "Success"}));
            }
            match request.uri().path() {
                "/api" => whole(200, &discovery(&["configmaps", "pods"])),
                "/apis" => whole(200, &json!({"kind": "APIGroupDiscoveryList", "items": []})),
                "/api/v1/configmaps" | "/api/v1/pods" => stream(vec![end_of_list(5)], End::Open),
                _ => whole(404, &Value::Null),
            }
        }
    })
}

fn deleter(wanted: &[(&str, usize)]) -> (Deleter, mpsc::UnboundedReceiver<String>) {
    let (sender, outcomes) = mpsc::unbounded_channel();
    let wanted = wanted.iter().map(|(resource, number)| ((*resource).to_owned(), *number)).collect();
    let deleter = Deleter {
        wanted,
        ready: VecDeque::new(),
        held: BTreeSet::new(),
        asked: BTreeMap::new(),
        next: 0,
        outcomes: sender,
    };
    (deleter, outcomes)
}

fn guarded_by(breaker: &SharedBreaker) -> Restraints {
    Restraints { breaker: Some(breaker.clone()), ..Restraints::default() }
}

async fn take(outcomes: &mut mpsc::UnboundedReceiver<String>, number: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for _ in 0..number {
        let line = tokio::time::timeout(Duration::from_secs(5), outcomes.recv()).await;
        lines.push(line.unwrap_or_else(|_| panic!("only {lines:?}")).unwrap());
    }
    lines.sort();
    lines
}

#[tokio::test]
async fn a_tripped_breaker_holds_its_resource_alone_until_it_is_resumed() {
    let sent = Arc::default();
    let options = BreakerOptions { largest_number: Some(3), ..BreakerOptions::default() };
    let breaker = SharedBreaker::new(Breaker::new(options));
    let (engine, mut outcomes) = deleter(&[("configmaps", 5), ("pods", 2)]);
    let trips = Arc::new(Trips::default());
    let observer = Arc::<Trips>::clone(&trips);
    let collector = MetadataCollector::new(granting(&sent, ""), CollectorOptions::default());
    tokio::spawn(collector.restrained_by(guarded_by(&breaker)).run(engine, observer, std::future::pending()));
    let first = take(&mut outcomes, 7).await;
    assert_eq!(
        first,
        [
            "configmaps-0 applied",
            "configmaps-1 applied",
            "configmaps-2 applied",
            "configmaps-3 held by Breaker",
            "configmaps-4 held by Breaker",
            "pods-0 applied",
            "pods-1 applied",
        ]
    );
    assert_eq!(sent.lock().unwrap().len(), 5);
    let observed: Vec<_> = trips.0.lock().unwrap().iter().map(|trip| trip.resource.to_string()).collect();
    assert_eq!(observed, ["configmaps"], "reported once");
    assert!(breaker.change(|breaker| breaker.resume("configmaps")));
    assert_eq!(take(&mut outcomes, 2).await, ["configmaps-3 applied", "configmaps-4 applied"]);
}

#[tokio::test]
async fn what_the_server_did_not_do_is_not_counted() {
    let sent = Arc::default();
    let options = BreakerOptions { largest_number: Some(1), ..BreakerOptions::default() };
    let breaker = SharedBreaker::new(Breaker::new(options));
    let (engine, mut outcomes) = deleter(&[("pods", 1)]);
    let collector = MetadataCollector::new(granting(&sent, "pods-0"), CollectorOptions::default());
    let run = collector.restrained_by(guarded_by(&breaker)).run(
        engine,
        Arc::new(NoObserver),
        std::future::pending(),
    );
    tokio::spawn(run);
    assert_eq!(take(&mut outcomes, 1).await, ["pods-0 Conflict"]);
    let admission = breaker.lock().admit(&"pods".into(), false, Some(9), Timestamp(i64::MAX / 2));
    assert!(matches!(admission, gc_kube::breaker::Admission::Admitted(_)), "{admission:?}");
}

#[tokio::test]
async fn writes_that_are_held_are_sent_when_they_are_released() {
    let sent: Arc<Mutex<Vec<String>>> = Arc::default();
    let (holding, receiver) = watch::channel(Some(WithheldBy::Observe));
    let (engine, mut outcomes) = deleter(&[("configmaps", 1), ("pods", 1)]);
    let collector =
        MetadataCollector::new(granting(&sent, ""), CollectorOptions::default()).holding_writes(receiver);
    tokio::spawn(collector.run(engine, Arc::new(NoObserver), std::future::pending()));
    assert_eq!(take(&mut outcomes, 2).await, ["configmaps-0 held by Observe", "pods-0 held by Observe"]);
    assert!(sent.lock().unwrap().is_empty());
    holding.send_replace(None);
    assert_eq!(take(&mut outcomes, 2).await, ["configmaps-0 applied", "pods-0 applied"]);
}
