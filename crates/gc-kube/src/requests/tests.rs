#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test
use super::*;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use gc_controller::concurrency::Signal;
use gc_types::{
    Coordinates, DeletionState, FinalizerName, Gvr, ObservedObject, OwnerReference, PropagationPolicy,
    ResourceId, ResourceInfo, ResourceVersion, Scope, Uid,
};
use http::Response;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use smallvec::SmallVec;

const UID: &str = "0e2f1a34-5b6c-4d7e-8f90-a1b2c3d4e5f6";
const PODS: ResourceId = ResourceId(1);

/// Scripted answer: status code, content type and body.
type ScriptedAnswer = (u16, &'static str, String);

struct Fixture {
    performer: Performer,
    sent: Arc<Mutex<Vec<String>>>,
}

/// Gives scripted answers in turn, and records the requests.
fn fixture(answers: Vec<ScriptedAnswer>) -> Fixture {
    let answers = Arc::new(Mutex::new(VecDeque::from(answers)));
    let sent = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&sent);
    let client = ApiClient::in_process(move |request| {
        let (answers, log) = (Arc::clone(&answers), Arc::clone(&log));
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let line = format!("{} {} {}", head.method, head.uri, String::from_utf8_lossy(&body));
            log.lock().unwrap().push(line.trim_end().to_owned());
            let (code, content_type, body) = answers.lock().unwrap().pop_front().unwrap();
            let answer = Response::builder().status(code).header(CONTENT_TYPE, content_type);
            answer.body(Full::new(Bytes::from(body))).unwrap()
        }
    });
    let table = ResourceTable::default();
    table.insert(Arc::new(Route::new(ResourceInfo {
        id: PODS,
        gvr: Gvr { group: "".into(), version: "v1".into(), resource: "pods".into() },
        kind: "Pod".into(),
        scope: Scope::Namespaced,
        served_api_versions: vec!["v1".into()],
        watched: true,
        comparable_versions: true,
    })));
    Fixture { performer: Performer::new(client, table), sent }
}

impl Fixture {
    fn sent(&self) -> Vec<String> {
        self.sent.lock().unwrap().clone()
    }
}

fn key() -> ObjectKey {
    ObjectKey { resource: PODS, namespace: "shop".into(), name: "web".into() }
}

fn delete() -> Request {
    Request::Delete {
        key: key(),
        uid: Uid::new(UID),
        resource_version: Some(ResourceVersion(7)),
        policy: PropagationPolicy::Background,
    }
}

fn json_answer(code: u16, body: &Value) -> ScriptedAnswer {
    (code, "application/json", body.to_string())
}

fn status(code: u16, reason: &str, details: &Value) -> ScriptedAnswer {
    let body = json!({"kind": "Status", "reason": reason, "message": "m", "code": code, "details": details});
    json_answer(code, &body)
}

fn object(uid: &str, finalizers: &[&str]) -> Value {
    json!({"kind": "PartialObjectMetadata", "metadata": {
        "name": "web", "namespace": "shop", "uid": uid, "resourceVersion": "9",
        "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers,
    }})
}

fn failed_with(message: &str, retry_after_milliseconds: Option<u64>) -> Outcome {
    Outcome::Failed { message: message.into(), retry_after_milliseconds }
}

#[tokio::test]
async fn answers_become_outcomes() {
    let named = json!({"name": "web", "kind": "pods"});
    let is_left = |performed: &PerformedRequest| matches!(performed.outcome, Outcome::Applied(Some(_)));
    // The deletion of an object that its finalizers or its grace period keep was only requested.
    let mut ended = object(UID, &[]);
    ended["metadata"]["deletionGracePeriodSeconds"] = 0.into();
    let mut in_grace = ended.clone();
    in_grace["metadata"]["deletionGracePeriodSeconds"] = 30.into();
    for (shown, remains) in [(object(UID, &["x/y"]), true), (in_grace, true), (ended.clone(), false)] {
        let fixture = fixture(vec![json_answer(202, &shown)]);
        assert_eq!(is_left(&fixture.performer.perform(&delete()).await), remains, "{shown}");
    }
    for (answer, outcome, signal) in [
        (status(200, "", &Value::Null), Outcome::Applied(None), Signal::Answered),
        (json_answer(202, &ended), Outcome::Applied(None), Signal::Answered),
        (status(404, "NotFound", &named), Outcome::Absent, Signal::Answered),
        (
            status(404, "NotFound", &json!({"name": "shop", "kind": "namespaces"})),
            Outcome::Absent,
            Signal::Answered,
        ),
        // none of these proves that the object is absent.
        (
            status(404, "NotFound", &json!({"name": "other", "kind": "pods"})),
            Outcome::NotServed,
            Signal::Answered,
        ),
        (
            status(404, "NotFound", &json!({"name": "web", "kind": "pods", "group": "x"})),
            Outcome::NotServed,
            Signal::Answered,
        ),
        (status(404, "NotFound", &Value::Null), Outcome::NotServed, Signal::Answered),
        ((404, "text/plain", "404 page not found".into()), Outcome::NotServed, Signal::Answered),
        (status(409, "Conflict", &named), Outcome::Conflict, Signal::Answered),
        (
            status(403, "Forbidden", &named),
            Outcome::Refused { code: 403, message: "m".into() },
            Signal::Answered,
        ),
        (
            status(422, "Invalid", &named),
            Outcome::Refused { code: 422, message: "m".into() },
            Signal::Answered,
        ),
        (
            status(429, "TooManyRequests", &json!({"retryAfterSeconds": 2})),
            failed_with("the server answered 429: m", Some(2000)),
            Signal::Busy(Some(Duration::from_secs(2))),
        ),
        (status(503, "", &Value::Null), failed_with("the server answered 503: m", None), Signal::Busy(None)),
        (status(500, "", &Value::Null), failed_with("the server answered 500: m", None), Signal::Answered),
    ] {
        let fixture = fixture(vec![answer.clone()]);
        let performed = fixture.performer.perform(&delete()).await;
        assert_eq!(performed, PerformedRequest { outcome, signal, round_trips: 1 }, "{answer:?}");
    }
}

#[tokio::test]
async fn a_deletion_carries_uid_version_and_policy() {
    let fixture = fixture(vec![status(200, "", &Value::Null)]);
    fixture.performer.perform(&delete()).await;
    let expected = format!(
        "DELETE /api/v1/namespaces/shop/pods/web {}",
        json!({
            "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background",
            "preconditions": {"uid": UID, "resourceVersion": "7"},
        })
    );
    assert_eq!(fixture.sent(), [expected]);
}

#[tokio::test]
async fn references_are_set_under_guards() {
    let reference = OwnerReference {
        coordinates: Coordinates {
            api_version: "apps/v1".into(),
            kind: "ReplicaSet".into(),
            name: "rs".into(),
            uid: Uid::new("u"),
        },
        controller: Some(true),
        block_owner_deletion: None,
    };
    for (remaining, written) in [
        (vec![], Value::Null),
        (
            vec![reference],
            json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "u", "controller": true}]),
        ),
    ] {
        let fixture = fixture(vec![json_answer(200, &object(UID, &[]))]);
        let request = Request::SetOwners {
            key: key(),
            uid: Uid::new(UID),
            resource_version: ResourceVersion(7),
            remaining,
        };
        let performed = fixture.performer.perform(&request).await;
        let now = ObservedObject {
            key: key(),
            uid: Uid::new(UID),
            resource_version: ResourceVersion(9),
            owners: SmallVec::new(),
            deletion: DeletionState { deleting: true, ..DeletionState::default() },
            recreator: None,
        };
        assert_eq!(performed.outcome, Outcome::Applied(Some(now)));
        let patch = json!({"metadata": {"uid": UID, "resourceVersion": "7", "ownerReferences": written}});
        assert_eq!(fixture.sent(), [format!("PATCH /api/v1/namespaces/shop/pods/web {patch}")]);
    }
}

#[tokio::test]
async fn a_refused_patch_of_a_recreated_object_found_nothing() {
    let request = Request::SetOwners {
        key: key(),
        uid: Uid::new(UID),
        resource_version: ResourceVersion(7),
        remaining: vec![],
    };
    for (read, outcome) in [
        (json_answer(200, &object("another", &[])), Outcome::Absent),
        (status(404, "NotFound", &json!({"name": "web", "kind": "pods"})), Outcome::Absent),
        (json_answer(200, &object(UID, &[])), Outcome::Refused { code: 422, message: "m".into() }),
    ] {
        let fixture = fixture(vec![status(422, "Invalid", &Value::Null), read]);
        assert_eq!(fixture.performer.perform(&request).await.outcome, outcome);
    }
}

fn remove_foreground() -> Request {
    Request::RemoveFinalizer { key: key(), uid: Uid::new(UID), finalizer: FinalizerName::ForegroundDeletion }
}

/// G118: the other finalizers stay in order; removing the last one leaves null.
#[tokio::test]
async fn one_finalizer_is_taken_off() {
    for (before, after) in [
        (&["a", "foregroundDeletion", "b"][..], json!(["a", "b"])),
        (&["foregroundDeletion"][..], Value::Null),
    ] {
        let fixture = fixture(vec![
            json_answer(200, &object(UID, before)),
            json_answer(200, &object(UID, &["a", "b"])),
        ]);
        let performed = fixture.performer.perform(&remove_foreground()).await;
        assert!(matches!(performed.outcome, Outcome::Applied(_)), "{performed:?}");
        let patch = json!({"metadata": {"uid": UID, "resourceVersion": "9", "finalizers": after}});
        let path = "/api/v1/namespaces/shop/pods/web";
        assert_eq!(fixture.sent(), [format!("GET {path}"), format!("PATCH {path} {patch}")]);
    }
}

/// A transient failure is retried like a conflict; a busy server is left alone.
#[tokio::test]
async fn a_failure_of_the_moment_does_not_cost_the_removal_of_a_finalizer() {
    let found = || json_answer(200, &object(UID, &["foregroundDeletion"]));
    let removed = || json_answer(200, &object(UID, &[]));
    let fails = |code| status(code, "InternalError", &Value::Null);
    for (case, answers, done, requests) in [
        ("the patch", vec![found(), fails(500), found(), removed()], true, 4),
        ("the read", vec![fails(500), found(), removed()], true, 3),
        ("each", vec![fails(500), fails(500), fails(500), fails(500)], false, 4),
        ("busy", vec![found(), fails(503)], false, 2),
        ("forbidden", vec![fails(403)], false, 1),
    ] {
        let fixture = fixture(answers);
        let performed = fixture.performer.perform(&remove_foreground()).await;
        assert_eq!(matches!(performed.outcome, Outcome::Applied(_)), done, "{case}: {performed:?}");
        assert_eq!((performed.round_trips as usize, fixture.sent().len()), (requests, requests), "{case}");
    }
}

/// G116, G117, G114.
#[tokio::test]
async fn conflicts_repeat_it_at_most_four_times_and_a_recreated_object_is_left_alone() {
    let conflict =
        || [json_answer(200, &object(UID, &["foregroundDeletion"])), status(409, "Conflict", &Value::Null)];
    let three: Vec<_> = (0..3).flat_map(|_| conflict()).collect();
    let mut then_works = three.clone();
    then_works.push(json_answer(200, &object(UID, &["foregroundDeletion"])));
    then_works.push(json_answer(200, &object(UID, &[])));
    let performed = fixture(then_works).performer.perform(&remove_foreground()).await;
    assert_eq!((performed.outcome, performed.round_trips), (Outcome::Applied(None), 8));
    let four: Vec<_> = (0..4).flat_map(|_| conflict()).collect();
    assert_eq!(fixture(four).performer.perform(&remove_foreground()).await.outcome, Outcome::Conflict);
    let recreated = fixture(vec![json_answer(200, &object("another", &["foregroundDeletion"]))]);
    assert_eq!(recreated.performer.perform(&remove_foreground()).await.outcome, Outcome::Absent);
    assert_eq!(recreated.sent().len(), 1);
    let absent = fixture(vec![json_answer(200, &object(UID, &["a"]))]);
    let performed = absent.performer.perform(&remove_foreground()).await;
    assert!(matches!(performed.outcome, Outcome::Applied(Some(_))));
    assert_eq!(absent.sent().len(), 1);
}

/// A 2xx from something other than an API server proves nothing, so the object is read.
#[tokio::test]
async fn a_success_that_is_no_answer_of_an_api_server_is_no_outcome() {
    let page = || (200, "text/html", "<html>log in</html>".to_owned());
    let other = || json_answer(200, &json!({"error": "no upstream"}));
    let absent = || status(404, "NotFound", &json!({"name": "web", "kind": "pods"}));
    let present = || json_answer(200, &object(UID, &["x/y"]));
    let unknown = || failed_with("the answer is not that of an API server", None);
    let owners = || Request::SetOwners {
        key: key(),
        uid: Uid::new(UID),
        resource_version: ResourceVersion(7),
        remaining: vec![],
    };
    for (request, answers, outcome) in [
        (delete(), vec![page(), absent()], Outcome::Absent),
        (delete(), vec![page(), present()], unknown()),
        (delete(), vec![other(), page()], unknown()),
        (owners(), vec![page(), present()], unknown()),
        (owners(), vec![other(), absent()], Outcome::Absent),
        (Request::Read { key: key() }, vec![page()], unknown()),
        (Request::Read { key: key() }, vec![other()], unknown()),
        (Request::Read { key: key() }, vec![status(200, "", &Value::Null)], unknown()),
    ] {
        let sent = answers.len();
        let fixture = fixture(answers);
        let performed = fixture.performer.perform(&request).await;
        assert_eq!((performed.outcome, fixture.sent().len()), (outcome, sent), "{request:?}");
    }
}

/// A proxy in front of one server must not confirm its own answer: the second read of an object uses another connection.
#[tokio::test]
async fn an_absence_is_confirmed_on_another_connection() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let peers = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&peers);
    tokio::spawn(async move {
        while let Ok((mut stream, peer)) = listener.accept().await {
            let seen = Arc::clone(&seen);
            tokio::spawn(async move {
                let body = json!({"kind": "Status", "reason": "NotFound", "code": 404,
                    "details": {"name": "web", "kind": "pods"}})
                .to_string();
                let mut request = Vec::new();
                while let Ok(byte) = stream.read_u8().await {
                    request.push(byte);
                    if request.ends_with(b"\r\n\r\n") {
                        request.clear();
                        seen.lock().unwrap().push(peer);
                        let head =
                            "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length:";
                        let answer = format!("{head} {}\r\n\r\n{body}", body.len());
                        stream.write_all(answer.as_bytes()).await.unwrap();
                    }
                }
            });
        }
    });
    let table = fixture(Vec::new()).performer.table;
    let performer = Performer::new(ApiClient::plain(&address.to_string()).unwrap(), table);
    for _ in 0..2 {
        assert_eq!(performer.perform(&Request::Read { key: key() }).await.outcome, Outcome::Absent);
    }
    let peers = peers.lock().unwrap().clone();
    assert!(peers.len() == 2 && peers[0] != peers[1], "{peers:?}");
}
