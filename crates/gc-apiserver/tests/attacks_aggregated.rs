//! Aggregated API servers that misbehave: whatever one of them answers, all other requests must be served, and little memory held
//! for it.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;

use bytes::Bytes;
use futures::StreamExt as _;
use http::request::Parts;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use support::webhook::{self, Response, whole};
use support::{Lines, TestServer};

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const NAME: &str = "v1.bad.example.com";
const GROUP_VERSION: &str = "/apis/bad.example.com/v1";

/// Returns the resident memory in MiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<usize>().unwrap() >> 10
}

fn of(document: impl Into<Bytes>) -> Response {
    let mut response = http::Response::new(whole(document));
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    response
}

fn endless() -> Response {
    let piece = || Ok(Frame::data(Bytes::from(vec![b' '; 64 * 1024])));
    http::Response::new(BodyExt::boxed(StreamBody::new(futures::stream::repeat_with(piece))))
}

/// Answers with a beginning, followed by silence.
fn stuck() -> Response {
    let first = futures::stream::iter([Ok(Frame::data(Bytes::from_static(b"{\"kind\":")))]);
    http::Response::new(BodyExt::boxed(StreamBody::new(first.chain(futures::stream::pending()))))
}

fn list(resources: &[Value]) -> Response {
    of(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "bad.example.com/v1",
        "resources": resources})
    .to_string())
}

fn resource(name: &str) -> Value {
    json!({"name": name, "singularName": "", "namespaced": true, "kind": "Bad", "verbs": ["get"]})
}

/// Answers with many resources that have a subresource each: comparing them pairwise would take minutes.
fn many() -> Response {
    let names = (0..6_000).flat_map(|number| [format!("r{number}"), format!("r{number}/status")]);
    list(&names.map(|name| resource(&name)).collect::<Vec<_>>())
}

fn redirect() -> Response {
    let mut response = http::Response::new(whole(""));
    *response.status_mut() = http::StatusCode::FOUND;
    response.headers_mut().insert("location", GROUP_VERSION.parse().unwrap());
    response
}

fn large_header() -> Response {
    let mut response = list(&[]);
    response.headers_mut().insert("x-large", "x".repeat(1 << 20).parse().unwrap());
    response
}

type Answer = fn() -> Option<Response>;

/// Answers of the server to any request, and whether it counts as available then.
const KINDS: [(&str, Answer, &str); 12] = [
    ("nothing", || None, "False"),
    ("an answer that never ends", || Some(endless()), "False"),
    ("an answer that stops", || Some(stuck()), "False"),
    ("a header of a mebibyte", || Some(large_header()), "False"),
    ("a redirect to itself", || Some(redirect()), "False"),
    ("no JSON", || Some(of("<html>")), "True"),
    ("JSON of 100,000 levels", || Some(of("[".repeat(100_000))), "True"),
    ("bytes that are no text", || Some(of(vec![0xff; 4096])), "True"),
    ("another kind", || Some(of(r#"{"kind": "PodList", "items": [null, 1, "x"]}"#)), "True"),
    ("resources that are none", || Some(list(&[json!(null), json!(1), json!({"name": 7})])), "True"),
    (
        "names of others",
        || Some(list(&["../../../api", "a/b/c/d", "", "/", "\u{1b}[31m", "pods"].map(resource))),
        "True",
    ),
    ("12,000 resources", || Some(many()), "True"),
];

async fn await_condition(server: &TestServer, what: &str, status: &str) {
    let path = format!("{SERVICES}?watch=1&fieldSelector=metadata.name={NAME}");
    let mut watch = Lines::new(server.open("GET", &path, &[], "").await);
    loop {
        let event = watch.next().await.expect(what);
        let condition = &event["object"]["status"]["conditions"][0];
        let was_checked = condition["reason"] == "FailedDiscoveryCheck" || condition["reason"] == "Passed";
        if was_checked {
            assert_eq!(condition["status"], status, "{what}: {condition}");
            return;
        }
    }
}

async fn beside(what: &str, answer: Answer, status: &str) {
    let server = TestServer::start().await;
    let served = move |_: &Parts, _: &Bytes| answer();
    let (address, bundle) = webhook::serve_requests(&["bad.default.svc"], None, served).await;
    let service = json!({"metadata": {"name": "bad"},
        "spec": {"type": "ExternalName", "externalName": "localhost"}});
    assert_eq!(server.post("/api/v1/namespaces/default/services", &service).await.code, 201);
    let before = resident();
    let service = json!({"metadata": {"name": NAME}, "spec": {
        "group": "bad.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
        "caBundle": bundle, "service": {"namespace": "default", "name": "bad", "port": address.port()},
    }});
    assert_eq!(server.post(SERVICES, &service).await.code, 201);
    await_condition(&server, what, status).await;
    let accept = [("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")];
    for path in ["/api", "/apis"] {
        for headers in [&[][..], &accept] {
            let answer = server.send("GET", path, headers, "").await;
            assert_eq!(answer.code, 200, "{what}: {path}");
            // Documents must be readable for typed clients, and this server's own APIs must be unchanged.
            assert!(answer.json().is_object(), "{what}: {path}");
        }
    }
    let pods = server.get("/api/v1/namespaces/default/pods").await;
    assert_eq!((pods.code, &pods.json()["kind"]), (200, &json!("PodList")), "{what}");
    server.config_map("a").await;
    if status == "False" {
        assert_eq!(server.get(&format!("{GROUP_VERSION}/things")).await.code, 503, "{what}");
    }
    assert_eq!(server.get("/readyz").await.code, 200, "{what}");
    let after = resident();
    println!("{what}: {before} MiB before, {after} after");
    assert!(after <= before + 96, "{what}: {before} MiB before, {after} after");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_an_aggregated_server_answers_others_are_answered() {
    for (what, answer, status) in KINDS {
        beside(what, answer, status).await;
    }
}
