#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test
use bytes::Bytes;
use gc_types::Timestamp;
use http_body_util::Full;

use super::*;
use crate::lease::orders::{OBSERVE_UNTIL, PAUSED, RESUMED_AT};

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
        unreadable: None,
        observe_until: Some(jiff::Timestamp::from_second(1_790_000_000).unwrap()),
        observed_by: Some("1c7f".into()),
        resumed_at: Some(jiff::Timestamp::from_second(1_780_000_000).unwrap()),
    };
    assert_eq!(Orders::of_lease(&lease(1, &orders.annotations())), orders);
    let none = Orders::none();
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
    let unreadable = Orders { paused: Some("lunch".into()), tripped: None, ..Orders::default() };
    assert_eq!(unreadable.annotations().get(TRIPPED), None, "what cannot be read stays as it is");
    // A hand-written Lease may have only the required fields.
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

/// Returns the number of stopped resources that are not in the Lease.
fn unannounced(control: &Control) -> usize {
    control.unannounced().tripped.map_or(0, |tripped| tripped.len())
}

fn lease_of(uid: &str, version: u64, annotations: &Value) -> Value {
    let mut lease = lease(version, annotations);
    lease["metadata"]["uid"] = uid.into();
    lease
}

/// Neither a Lease that was created again nor one from an older snapshot ends a pause; a newer version of the Lease that shows the
/// pause does, and so does `kubegc resume` on a Lease that does not show it.
#[test]
fn orders_outlive_their_lease() {
    const PAUSE: &str = "2026-09-21T14:13:20Z: restoring etcd";
    let paused = json!({PAUSED: PAUSE, OBSERVE_UNTIL: "2026-09-24T14:00:00Z"});
    let created_again = |control: &Control| control.saw(&lease_of("b", 9, &json!({})));
    let put_back = |control: &Control| control.saw_since(&lease_of("a", 4, &json!({})), 8);
    for (lost, uid, version) in
        [(&created_again as &dyn Fn(&Control), "b", 10), (&put_back as &dyn Fn(&Control), "a", 5)]
    {
        let (control, _, leadership) = control();
        let is_paused = || !leadership.may_act();
        control.saw(&lease_of("a", 8, &paused));
        assert_eq!(control.unannounced(), Orders::none());
        lost(&control);
        assert!(is_paused());
        let missing = control.unannounced();
        assert_eq!(missing.paused.as_deref(), Some(PAUSE));
        assert!(missing.observe_until.is_some());
        assert_eq!(control.standing().paused.as_deref(), Some(PAUSE));
        // The pause is written back, and then resumed.
        control.saw(&lease_of(uid, version, &paused));
        assert!(is_paused());
        assert_eq!(control.unannounced(), Orders::none());
        control.saw(&lease_of(uid, version + 1, &json!({})));
        assert!(!is_paused());

        let (control, _, leadership) = self::control();
        let is_paused = || !leadership.may_act();
        control.saw(&lease_of("a", 8, &paused));
        lost(&control);
        for (resumed, expected) in [("2026-09-21T14:13:19Z", true), ("2026-09-21T14:13:21Z", false)] {
            control.saw(&lease_of(uid, version, &json!({RESUMED_AT: resumed})));
            assert_eq!(is_paused(), expected, "resumed at {resumed}");
        }
    }
}

/// A process that ends while etcd is restored begins with the earlier orders.
#[test]
fn orders_outlive_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal.jsonl");
    let name = LeaseName { namespace: "kube-system".into(), name: "kubegc".into() };
    let began = |server: &str| {
        let (control, breaker, leadership) = control();
        (control.remembering(&journal, server, &name), breaker, leadership)
    };
    let shown = Orders {
        paused: Some("restoring etcd".into()),
        tripped: Some(BTreeMap::from([("pods".into(), trip("pods"))])),
        ..Orders::none()
    };
    began("https://a").0.saw(&lease_of("a", 9, &shown.annotations()));
    let (control, breaker, leadership) = began("https://a");
    assert!(!leadership.may_act());
    assert_eq!(stopped(&breaker), ["pods"]);
    // The Lease from the older snapshot ends nothing; a newer one does.
    control.saw_since(&lease_of("a", 4, &json!({})), 9);
    assert!(!leadership.may_act());
    assert_eq!((stopped(&breaker).len(), unannounced(&control)), (1, 1));
    let (control, breaker, leadership) = began("https://a");
    control.saw(&lease_of("a", 10, &json!({})));
    assert!(leadership.may_act());
    assert_eq!(stopped(&breaker), [""; 0]);
    assert!(began("https://b").2.may_act(), "the orders of another server");
}

#[test]
fn stopped_resources_that_cannot_be_read_stop_everything() {
    let (control, breaker, leadership) = control();
    control.saw(&lease(5, &json!({TRIPPED: "?"})));
    assert!(!leadership.may_act());
    breaker.change(|breaker| drop(breaker.admit(&"pods".into(), false, Some(1), Timestamp(1))));
    assert_eq!(unannounced(&control), 0, "nothing is written over them");
    control.saw(&lease(6, &json!({TRIPPED: "{}"})));
    assert!(leadership.may_act());
    assert_eq!(unannounced(&control), 1);
}

/// An annotation that cannot be read is an order as well: it outlives its Lease and the process until it is corrected or resumed.
#[test]
fn stopped_resources_that_cannot_be_read_outlive_their_lease() {
    let created_again = |control: &Control, shown: &Value| control.saw(&lease_of("b", 9, shown));
    let put_back = |control: &Control, shown: &Value| control.saw_since(&lease_of("a", 4, shown), 8);
    for (lost, uid, version) in [
        (&created_again as &dyn Fn(&Control, &Value), "b", 10),
        (&put_back as &dyn Fn(&Control, &Value), "a", 5),
    ] {
        let began = || {
            let (control, breaker, leadership) = control();
            control.saw(&lease_of("a", 8, &json!({TRIPPED: "{pods"})));
            assert_eq!(control.unannounced(), Orders::none());
            (control, breaker, leadership)
        };
        let (control, breaker, leadership) = began();
        let shown = Orders {
            tripped: Some(BTreeMap::from([("secrets".into(), trip("secrets"))])),
            ..Orders::default()
        };
        lost(&control, &shown.annotations());
        assert!(!leadership.may_act(), "{uid}");
        assert_eq!(stopped(&breaker), ["secrets"], "what the other Lease stops is stopped, too");
        let mut written = shown.clone();
        written.restore(&control.unannounced());
        assert_eq!(written.annotations()[TRIPPED], "{pods");
        assert_eq!(control.standing().new_annotations()[TRIPPED], "{pods");
        control.saw(&lease_of(uid, version, &written.annotations()));
        assert!(!leadership.may_act());
        assert_eq!(control.unannounced(), Orders::none());
        control.saw(&lease_of(uid, version + 1, &json!({TRIPPED: "{}"})));
        assert!(leadership.may_act(), "corrected");

        let (control, _, leadership) = began();
        lost(&control, &json!({RESUMED_AT: "2020-01-01T00:00:00Z"}));
        assert!(!leadership.may_act(), "resumed before");
        let later = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(1);
        control.saw(&lease_of(uid, version, &json!({RESUMED_AT: later.to_string()})));
        assert!(leadership.may_act(), "resumed after");
    }
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal.jsonl");
    let name = LeaseName { namespace: "kube-system".into(), name: "kubegc".into() };
    let began = || {
        let (control, _, leadership) = control();
        (control.remembering(&journal, "https://a", &name), leadership)
    };
    began().0.saw(&lease_of("a", 9, &json!({TRIPPED: "{pods"})));
    let (control, leadership) = began();
    control.saw_since(&lease_of("a", 4, &json!({})), 9);
    assert!(!leadership.may_act());
    assert_eq!(control.unannounced().unreadable.as_deref(), Some("{pods"));
}

/// A snapshot may hold the end of an older observation; the later end remains, and is written back.
#[test]
fn the_later_end_of_an_observation_remains() {
    let (control, ..) = control();
    let later = json!({OBSERVE_UNTIL: "2026-09-24T14:00:00Z", "kubegc.io/observed-by": "new"});
    let older = json!({OBSERVE_UNTIL: "2026-08-01T00:00:00Z", "kubegc.io/observed-by": "old"});
    control.saw(&lease_of("a", 8, &later));
    control.saw_since(&lease_of("a", 4, &older), 8);
    let expected = Orders::of_lease(&lease(1, &later));
    assert_eq!(*control.orders().borrow(), expected);
    let mut written = Orders::of_lease(&lease(1, &older));
    written.restore(&control.unannounced());
    assert_eq!(written, expected);
    control.saw(&lease_of("a", 5, &written.annotations()));
    assert_eq!(control.unannounced(), Orders::none());
    control.saw(&lease_of("a", 6, &json!({})));
    assert_eq!(control.orders().borrow().observe_until, None, "an operator removed it");
}

/// `kubegc resume` after the Lease was lost ends earlier stops, although this Lease never showed them.
#[test]
fn a_newer_resume_ends_trips_that_a_lost_lease_does_not_show() {
    let since = jiff::Timestamp::from_millisecond(trip("pods").since.0).unwrap();
    let later = |seconds| (since + jiff::SignedDuration::from_secs(seconds)).to_string();
    for (resumed, expected) in [(-1, &["pods"][..]), (1, &[])] {
        let (control, breaker, _) = control();
        let shown =
            Orders { tripped: Some(BTreeMap::from([("pods".into(), trip("pods"))])), ..Orders::default() };
        control.saw(&lease_of("a", 8, &shown.annotations()));
        control.saw(&lease_of("b", 9, &json!({})));
        assert_eq!(stopped(&breaker), ["pods"]);
        control.saw(&lease_of("b", 10, &json!({RESUMED_AT: later(resumed)})));
        assert_eq!(stopped(&breaker), expected, "{resumed}");
    }
}

#[test]
fn the_lease_stops_and_resumes() {
    let (control, breaker, _) = control();
    let tripped = |names: &[&str]| {
        let tripped = names.iter().map(|name| (Arc::from(*name), trip(name))).collect();
        Orders { tripped: Some(tripped), ..Orders::default() }.annotations()
    };
    // A process that starts after the trip finds it.
    control.saw(&lease(5, &tripped(&["pods", "secrets"])));
    assert_eq!(stopped(&breaker), ["pods", "secrets"]);
    control.saw(&lease(6, &tripped(&["secrets"])));
    assert_eq!(stopped(&breaker), ["secrets"]);
    // An older response that arrives late changes nothing, and neither does one that cannot be read.
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
    assert_eq!((stopped(&breaker).len(), unannounced(&control)), (1, 0));
    // This Lease was read later but is older: its history was reset.
    control.saw_since(&lease(4, &json!({PAUSED: "maintenance"})), 9);
    assert!(is_paused());
    assert_eq!((stopped(&breaker).len(), unannounced(&control)), (1, 1));
    // Later orders count, although their version was seen before.
    control.saw(&lease(5, &shown.annotations()));
    assert!(!is_paused());
    control.saw(&lease(6, &json!({})));
    assert_eq!(stopped(&breaker), [""; 0]);
    // A response that was overtaken is merely late.
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
    assert_eq!(unannounced(&control), 1);
    let shown =
        Orders { tripped: Some(BTreeMap::from([("pods".into(), trip("pods"))])), ..Orders::default() };
    control.saw(&lease(6, &shown.annotations()));
    assert_eq!((stopped(&breaker).len(), unannounced(&control)), (1, 0));
    control.saw(&lease(7, &json!({})));
    assert_eq!(stopped(&breaker), [""; 0]);
    // The next trip is a new one.
    breaker.change(|breaker| drop(breaker.admit(&"pods".into(), false, Some(1), Timestamp(2))));
    control.saw(&lease(8, &json!({})));
    assert_eq!((stopped(&breaker).len(), unannounced(&control)), (1, 1));
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

/// The follower starts before there is a Lease, and takes in what others write to it.
#[tokio::test]
async fn orders_on_a_lease_that_comes_later_are_followed() {
    let options = gc_embedded::apiserver::ServerOptions::in_process();
    let server = gc_embedded::apiserver::serve(&options, None).await.unwrap();
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

/// A deleted Lease comes back with its orders, and can be resumed as usual.
#[tokio::test]
async fn a_deleted_lease_comes_back_with_its_orders() {
    for ordered in [json!({PAUSED: "restoring etcd"}), json!({TRIPPED: "{pods"})] {
        comes_back_with(&Orders::of_lease(&lease(1, &ordered))).await;
    }
}

async fn comes_back_with(ordered: &Orders) {
    let options = gc_embedded::apiserver::ServerOptions::in_process();
    let server = gc_embedded::apiserver::serve(&options, None).await.unwrap();
    let way = server.in_process("tester");
    let client = ApiClient::in_process(move |request| way.call(request));
    let name = LeaseName { namespace: "kube-system".into(), name: "kubegc".into() };
    let (control, _, leadership) = control();
    let (mut orders, mut held) = (control.orders(), leadership.held());
    let tasks = [
        tokio::spawn(control.clone().follow(client.clone(), name.clone())),
        tokio::spawn(control.announce(client.clone(), name.clone())),
    ];
    edit(&client, &name, |orders| orders.clone_from(ordered)).await.unwrap();
    orders.wait_for(|orders| orders == ordered).await.unwrap();
    let request = preflight::request(Method::DELETE, &name.path(), None);
    assert!(client.call(request).await.unwrap().head.status.is_success());
    let again = async {
        loop {
            if let Some(lease) = read(&client, &name).await.unwrap() {
                break Orders::of_lease(&lease);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert_eq!(again.await, *ordered);
    assert!(*held.borrow());
    edit(&client, &name, |orders| orders.resume(jiff::Timestamp::now())).await.unwrap();
    held.wait_for(|held| !*held).await.unwrap();
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    server.shutdown().await;
}

/// Without orders there is nothing to write, and a Lease that only has orders counts as never held.
#[tokio::test]
async fn a_lease_is_made_only_for_orders() {
    let options = gc_embedded::apiserver::ServerOptions::in_process();
    let server = gc_embedded::apiserver::serve(&options, None).await.unwrap();
    let way = server.in_process("tester");
    let client = ApiClient::in_process(move |request| way.call(request));
    let name = LeaseName { namespace: "kube-system".into(), name: "kubegc".into() };
    let resume = |orders: &mut Orders| orders.resume(jiff::Timestamp::now());
    assert_eq!(edit(&client, &name, resume).await.unwrap().1, Value::Null);
    assert_eq!(read(&client, &name).await.unwrap(), None);
    edit(&client, &name, |orders| orders.paused = Some("lunch".into())).await.unwrap();
    let (before, lease) = edit(&client, &name, resume).await.unwrap();
    assert_eq!(before.paused.as_deref(), Some("lunch"));
    assert!(!Held::of(&lease).was_ever_held());
    server.shutdown().await;
}

/// A 404 that does not name the Lease proves nothing, and neither does a success that is not the Lease: a gateway's response must
/// not end a pause.
#[tokio::test]
async fn only_an_api_server_proves_that_there_is_no_lease() {
    let name = LeaseName { namespace: "kube-system".into(), name: "kubegc".into() };
    let status = |details: Value| {
        json!({"kind": "Status", "apiVersion": "v1", "reason": "NotFound", "details": details}).to_string()
    };
    let of_lease =
        |name: &str| status(json!({"group": "coordination.k8s.io", "kind": "leases", "name": name}));
    let found = json!({"kind": "Lease", "metadata": {"name": "kubegc"}});
    let absent = Ok(None);
    let unknown = Err(());
    for (code, body, expected) in [
        (404, of_lease("kubegc"), absent.clone()),
        (404, status(json!({"kind": "namespaces", "name": "kube-system"})), absent),
        (404, of_lease("other"), unknown.clone()),
        (404, status(json!({"kind": "pods", "name": "kubegc"})), unknown.clone()),
        (404, status(json!({})), unknown.clone()),
        (404, "404 page not found\n".to_owned(), unknown.clone()),
        (404, "<html>not found</html>".to_owned(), unknown.clone()),
        (404, String::new(), unknown.clone()),
        (404, found.to_string(), unknown.clone()),
        (200, "{}".to_owned(), unknown.clone()),
        (200, "null".to_owned(), unknown.clone()),
        (200, json!({"kind": "Lease", "metadata": {"name": "other"}}).to_string(), unknown.clone()),
        (200, json!({"kind": "LeaseList", "items": []}).to_string(), unknown),
        (200, found.to_string(), Ok(Some(found))),
    ] {
        let answer = body.clone();
        let client = ApiClient::in_process(move |_| {
            let response = http::Response::builder().status(code).header("content-type", "application/json");
            let response = response.body(Full::new(Bytes::from(answer.clone()))).unwrap();
            async move { response }
        });
        assert_eq!(read(&client, &name).await.map_err(drop), expected, "{code} {body}");
    }
}
