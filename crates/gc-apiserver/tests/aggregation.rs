//! Tests aggregated API servers: a server in this process serves a group of its own.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::StreamExt as _;
use http::request::Parts;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use support::webhook::{self, Response, whole};
use support::{Lines, TestServer};

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const NAME: &str = "backend.default.svc";
const FLUNDERS: &str = "/apis/wardle.example.com/v1alpha1/namespaces/default/flunders";

/// Requests that the aggregated server received: method and target, headers, body.
type ReceivedRequests = Arc<Mutex<Vec<(String, Vec<(String, String)>, Bytes)>>>;

fn answer(asked: &ReceivedRequests, parts: &Parts, body: &Bytes) -> Response {
    let text = |value: &http::HeaderValue| String::from_utf8(value.as_bytes().to_vec()).unwrap();
    let headers = parts.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
    asked.lock().unwrap().push((format!("{} {}", parts.method, parts.uri), headers, body.clone()));
    if parts.uri.query() == Some("watch=1") {
        let event = json!({"type": "ADDED", "object": {"metadata": {"name": "a"}}});
        let first = futures::stream::iter([Ok(Frame::data(Bytes::from(format!("{event}\n"))))]);
        let body = StreamBody::new(first.chain(futures::stream::pending()));
        return http::Response::new(BodyExt::boxed(body));
    }
    let document = match parts.uri.path() {
        "/apis/wardle.example.com/v1alpha1" => json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "wardle.example.com/v1alpha1",
            "resources": [
                {"name": "flunders", "singularName": "flunder", "namespaced": true, "kind": "Flunder",
                 "verbs": ["create", "get", "list"]},
                {"name": "flunders/status", "singularName": "", "namespaced": true, "kind": "Flunder",
                 "verbs": ["get"]},
            ],
        }),
        _ => {
            json!({"kind": "Flunder", "apiVersion": "wardle.example.com/v1alpha1", "metadata": {"name": "a"}})
        }
    };
    let created = parts.method == http::Method::POST;
    let mut response = http::Response::new(whole(document.to_string()));
    *response.status_mut() = if created { http::StatusCode::CREATED } else { http::StatusCode::OK };
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    response.headers_mut().insert("x-own", "kept".parse().unwrap());
    response
}

/// Starts an aggregated server that accepts only requests under the front-proxy authority.
async fn backend(server: &TestServer) -> (SocketAddr, String, ReceivedRequests) {
    let map = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let authentication = server.get(map).await.json();
    let authority = authentication["data"]["requestheader-client-ca-file"].as_str().unwrap();
    assert_eq!(authentication["data"]["requestheader-allowed-names"], "[\"front-proxy-client\"]");
    assert_eq!(authentication["data"]["requestheader-extra-headers-prefix"], "[\"X-Remote-Extra-\"]");
    let asked = ReceivedRequests::default();
    let noted = Arc::clone(&asked);
    let served = move |parts: &Parts, body: &Bytes| Some(answer(&noted, parts, body));
    let (address, bundle) = webhook::serve_requests(&[NAME], Some(authority), served).await;
    (address, bundle, asked)
}

fn api_service(port: u16, bundle: &str) -> Value {
    json!({
        "metadata": {"name": "v1alpha1.wardle.example.com"},
        "spec": {
            "group": "wardle.example.com", "version": "v1alpha1", "groupPriorityMinimum": 1000,
            "versionPriority": 15, "caBundle": bundle,
            "service": {"namespace": "default", "name": "backend", "port": port},
        },
    })
}

async fn with_service(server: &TestServer) {
    let service = json!({
        "metadata": {"name": "backend"}, "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    assert_eq!(server.post("/api/v1/namespaces/default/services", &service).await.code, 201);
}

/// Waits until the condition has a status; returns its status, reason and message.
async fn condition(server: &TestServer, status: &str) -> (String, String) {
    let path = format!("{SERVICES}?watch=1&fieldSelector=metadata.name=v1alpha1.wardle.example.com");
    let mut watch = Lines::new(server.open("GET", &path, &[], "").await);
    loop {
        let event = watch.next().await.unwrap();
        let condition = &event["object"]["status"]["conditions"][0];
        assert!(condition.is_null() || condition["type"] == "Available");
        if condition["status"] == status {
            let text = |key: &str| condition[key].as_str().unwrap().to_owned();
            return (text("reason"), text("message"));
        }
    }
}

#[tokio::test]
async fn requests_are_sent_on_under_the_name_of_their_user() {
    let server = TestServer::start().await;
    let (address, bundle, asked) = backend(&server).await;
    with_service(&server).await;
    assert_eq!(server.post(SERVICES, &api_service(address.port(), &bundle)).await.code, 201);
    assert_eq!(condition(&server, "True").await, ("Passed".into(), "all checks passed".into()));
    asked.lock().unwrap().clear();

    let headers = [("x-remote-user", "somebody"), ("x-own", "sent"), ("content-type", "application/json")];
    let body = json!({"kind": "Flunder"}).to_string();
    let created = server.send("POST", &format!("{FLUNDERS}?dryRun=All&a=%2F"), &headers, body.clone()).await;
    assert_eq!((created.code, created.header("x-own")), (201, "kept"));
    assert_eq!(created.json()["kind"], "Flunder");
    // The periodic checks of the server appear among the requests as well.
    let sent_on =
        || asked.lock().unwrap().extract_if(.., |(request, ..)| request.contains("/flunders")).next();
    let (request, seen, sent) = sent_on().unwrap();
    assert_eq!(request, format!("POST {FLUNDERS}?dryRun=All&a=%2F"));
    assert_eq!(sent, body);
    let all = |name: &str| -> Vec<&str> {
        seen.iter().filter(|(known, _)| known == name).map(|(_, value)| &**value).collect()
    };
    assert_eq!(all("x-remote-user"), ["kubegc-admin"]);
    assert!(all("x-remote-group").contains(&"system:masters"), "{seen:?}");
    assert_eq!((all("authorization"), all("x-own"), all("host")), (vec![], vec!["sent"], vec![NAME]));

    let as_jane = [("impersonate-user", "jane"), ("impersonate-group", "g")];
    let refused = server.send("GET", FLUNDERS, &as_jane, "").await;
    assert_eq!(refused.code, 403, "who may not ask here is not sent on");
    assert_eq!(sent_on(), None);

    let mut watch = Lines::new(server.open("GET", &format!("{FLUNDERS}?watch=1"), &[], "").await);
    assert_eq!(watch.next_name().await, ("ADDED".to_owned(), "a".to_owned()));
}

#[tokio::test]
async fn discovery_has_what_others_serve() {
    let server = TestServer::start().await;
    let (address, bundle, _) = backend(&server).await;
    with_service(&server).await;
    server.post(SERVICES, &api_service(address.port(), &bundle)).await;
    condition(&server, "True").await;
    let groups = server.get("/apis").await.json();
    let last = groups["groups"].as_array().unwrap().last().unwrap().clone();
    let version = json!({"groupVersion": "wardle.example.com/v1alpha1", "version": "v1alpha1"});
    assert_eq!(
        last,
        json!({"name": "wardle.example.com", "preferredVersion": version, "versions": [version]})
    );
    assert_eq!(server.get("/apis/wardle.example.com").await.json()["preferredVersion"], version);
    let resources = server.get("/apis/wardle.example.com/v1alpha1").await.json();
    assert_eq!(resources["resources"][0]["name"], "flunders");
    let accept = [("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")];
    let aggregated = server.send("GET", "/apis", &accept, "").await.json();
    let last = aggregated["items"].as_array().unwrap().last().unwrap().clone();
    let kind = json!({"group": "wardle.example.com", "version": "v1alpha1", "kind": "Flunder"});
    assert_eq!(
        last,
        json!({"metadata": {"name": "wardle.example.com"}, "versions": [{
            "version": "v1alpha1", "freshness": "Current", "resources": [{
                "resource": "flunders", "responseKind": kind, "scope": "Namespaced",
                "singularResource": "flunder", "verbs": ["create", "get", "list"],
                "subresources": [{"subresource": "status", "responseKind": kind, "verbs": ["get"]}],
            }],
        }]})
    );
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable_and_its_version_stale() {
    let server = TestServer::start().await;
    assert_eq!(server.post(SERVICES, &api_service(1, "")).await.code, 201);
    let missing = ("ServiceNotFound".into(), "service/backend in \"default\" is not present".into());
    assert_eq!(condition(&server, "False").await, missing);
    let refused = server.get(FLUNDERS).await;
    assert_eq!((refused.code, &*refused.bytes), (503, &b"service unavailable\n"[..]));
    assert_eq!(server.get("/apis/wardle.example.com/v1alpha1").await.code, 503);
    let accept = [("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")];
    let aggregated = server.send("GET", "/apis", &accept, "").await.json();
    let last = aggregated["items"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["versions"], json!([{"version": "v1alpha1", "freshness": "Stale"}]));
    // Everything else must still work.
    server.config_map("a").await;

    // The Service is created, and the server behind it is checked at once.
    let (address, bundle, _) = backend(&server).await;
    let patch = [("content-type", "application/merge-patch+json")];
    let change = json!({"spec": {"caBundle": bundle, "service": {"port": address.port()}}});
    let path = format!("{SERVICES}/v1alpha1.wardle.example.com");
    assert_eq!(server.send("PATCH", &path, &patch, change.to_string()).await.code, 200);
    with_service(&server).await;
    condition(&server, "True").await;
    assert_eq!(server.get(FLUNDERS).await.code, 200);
    assert_eq!(server.send("DELETE", &path, &[], "").await.code, 200);
    let mut gone = server.get(FLUNDERS).await;
    while gone.code != 404 {
        tokio::task::yield_now().await;
        gone = server.get(FLUNDERS).await;
    }
}

#[tokio::test]
async fn what_this_server_has_is_not_given_away() {
    let server = TestServer::start().await;
    let (address, bundle, asked) = backend(&server).await;
    with_service(&server).await;
    let spec = json!({"spec": {"caBundle": bundle, "service": {
        "namespace": "default", "name": "backend", "port": address.port(),
    }}});
    let patch = [("content-type", "application/merge-patch+json")];
    let answer = server.send("PATCH", &format!("{SERVICES}/v1.apps"), &patch, spec.to_string()).await;
    assert_eq!(answer.code, 200);
    server.post(SERVICES, &api_service(address.port(), &bundle)).await;
    condition(&server, "True").await;
    asked.lock().unwrap().clear();
    assert_eq!(
        server.get("/apis/apps/v1/namespaces/default/deployments").await.json()["kind"],
        "DeploymentList"
    );
    let foreign =
        asked.lock().unwrap().iter().filter(|(request, ..)| request.contains("deployments")).count();
    assert_eq!(foreign, 0);
}
