#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use gc_apiserver::RunningServer;
use gc_explain::release::Liveness;
use gc_explain::stuck::Place;
use gc_process::preflight;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use gc_inspect::release::removals;

use super::*;
use gc_embedded::apiserver::{self, ServerOptions};

const PATIENCE: Duration = Duration::from_secs(30);

/// Starts a server with the namespace `shop` and without collectors.
async fn shop() -> (RunningServer, ApiClient) {
    let server = apiserver::serve(&ServerOptions::in_process(), None).await.unwrap();
    let way = server.in_process("ann");
    let client = ApiClient::in_process(move |request| way.call(request));
    send(&client, Method::POST, "/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await;
    (server, client)
}

async fn send(client: &ApiClient, method: Method, path: &str, body: Value) -> Value {
    let answer = client.call(preflight::request(method, path, Some(&body))).await.unwrap();
    let value: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    assert!(answer.head.status.is_success(), "{path}: {value}");
    value
}

const MAPS: &str = "/api/v1/namespaces/shop/configmaps";

/// Creates a ConfigMap with two finalizers, and deletes it.
async fn held(client: &ApiClient) {
    let finalizers = json!(["a.acme.dev/first", "b.acme.dev/second"]);
    send(client, Method::POST, MAPS, json!({"metadata": {"name": "held", "finalizers": finalizers}})).await;
    send(client, Method::DELETE, &format!("{MAPS}/held"), json!({})).await;
}

async fn answer(
    client: &ApiClient,
    object: (&str, &str, &str),
    finalizer: Option<&str>,
) -> (Resource, ReleaseAnswer) {
    let gatherer = Gatherer::new(client.clone(), gather::now()).await.unwrap();
    let (kind, namespace, name) = object;
    let resource = gatherer.catalog.find(kind).unwrap()[0].clone();
    let answer = ask(&gatherer, &resource, (namespace, name), finalizer, PATIENCE).await.unwrap();
    (resource, answer)
}

fn place(uid: &str) -> Place {
    Place {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        resource: "configmaps".into(),
        namespace: "shop".into(),
        name: "held".into(),
        uid: uid.into(),
    }
}

/// One finalizer is removed from the version that was shown, and later queries about the object show the removal.
#[tokio::test]
async fn one_finalizer_is_removed_and_recorded() {
    let (server, client) = shop().await;
    held(&client).await;
    let (resource, shown) = answer(&client, ("cm", "shop", "held"), Some("b.acme.dev/second")).await;
    assert_eq!(shown.release.liveness, Liveness::Unknown);
    assert_eq!(shown.release.objection(), None);

    // A dry run changes nothing.
    remove(&client, &resource, &shown, true).await.unwrap();
    let present = answer(&client, ("cm", "shop", "held"), Some("b.acme.dev/second")).await.1;
    assert_eq!(present.object["metadata"]["resourceVersion"], shown.object["metadata"]["resourceVersion"]);

    // The object has changed since it was shown, so the removal must fail.
    let patch = json!({"metadata": {"annotations": {"a": "b"}}});
    let request = preflight::patch(&format!("{MAPS}/held"), "application/merge-patch+json", &patch);
    assert!(client.call(request).await.unwrap().head.status.is_success());
    let refused = remove(&client, &resource, &shown, false).await.unwrap_err().to_string();
    assert!(refused.contains("has changed since it was shown"), "{refused}");

    let (resource, shown) = answer(&client, ("cm", "shop", "held"), Some("b.acme.dev/second")).await;
    remove(&client, &resource, &shown, false).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    record(&client, &shown.release, Some(&journal)).await;
    let left = answer(&client, ("cm", "shop", "held"), None).await.1;
    assert_eq!(left.release.finalizer, "a.acme.dev/first");

    let shown_later = removals(&client, &place(&shown.release.place.uid)).await;
    assert!(shown_later[0].starts_with("ann removed the finalizer b.acme.dev/second at "), "{shown_later:?}");
    assert_eq!(removals(&client, &place("another")).await, [] as [String; 0]);
    let line = std::fs::read_to_string(&journal).unwrap();
    let entry: Value = serde_json::from_str(line.trim()).unwrap();
    assert_eq!((&entry["verb"], &entry["user"]), (&json!("remove-finalizer"), &json!("ann")));
    server.shutdown().await;
}

/// A terminating namespace accepts no Event, so the removal is recorded beside the namespace, without the object's name.
#[tokio::test]
async fn a_removal_in_a_terminating_namespace_is_recorded_beside_it() {
    let (server, client) = shop().await;
    held(&client).await;
    send(&client, Method::DELETE, "/api/v1/namespaces/shop", json!({})).await;
    let (resource, shown) = answer(&client, ("cm", "shop", "held"), Some("a.acme.dev/first")).await;
    remove(&client, &resource, &shown, false).await.unwrap();
    record(&client, &shown.release, None).await;
    assert_eq!(removals(&client, &place("")).await.len(), 1);
    let events = send(&client, Method::GET, "/api/v1/namespaces/default/events", Value::Null).await;
    let event = &events["items"][0];
    assert_eq!(event["involvedObject"]["name"], "shop");
    assert!(!event.to_string().contains("held"), "{event}");
    server.shutdown().await;
}

/// The finalizer in a namespace's specification is removed through the subresource `finalize`.
#[tokio::test]
async fn a_namespace_is_finalized() {
    let (server, client) = shop().await;
    send(&client, Method::DELETE, "/api/v1/namespaces/shop", json!({})).await;
    let (resource, shown) = answer(&client, ("ns", "", "shop"), None).await;
    assert!(shown.release.is_in_specification);
    remove(&client, &resource, &shown, true).await.unwrap();
    remove(&client, &resource, &shown, false).await.unwrap();
    let gone = client.call(preflight::request(Method::GET, "/api/v1/namespaces/shop", None)).await.unwrap();
    assert_eq!(gone.head.status, StatusCode::NOT_FOUND);
    server.shutdown().await;
}
