//! Tests conversion webhooks over real connections; a server in this process answers them.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use support::{Lines, TestServer, webhook};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const V1: &str = "/apis/example.com/v1/namespaces/default/things";
const V2: &str = "/apis/example.com/v2/namespaces/default/things";

/// Converts between `v1`, which has `spec.old`, and `v2`, which has `spec.new`.
fn convert(review: &Value) -> Value {
    let asked = &review["request"];
    let objects = asked["objects"].as_array().unwrap().iter().cloned().map(|mut object| {
        object["apiVersion"] = asked["desiredAPIVersion"].clone();
        let spec = object["spec"].as_object_mut().unwrap();
        let (from, to) =
            if asked["desiredAPIVersion"] == "example.com/v2" { ("old", "new") } else { ("new", "old") };
        let value = spec.remove(from).unwrap_or_default();
        spec.insert(to.to_owned(), value);
        object
    });
    json!({
        "kind": "ConversionReview", "apiVersion": review["apiVersion"],
        "response": {
            "uid": asked["uid"], "result": {"status": "Success"}, "convertedObjects": objects.collect::<Vec<_>>(),
        },
    })
}

async fn define(server: &TestServer, client: Value) {
    let version = |name: &str, field: &str| {
        json!({
            "name": name, "served": true, "storage": name == "v1",
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {field: {"type": "string"}}},
            }}},
        })
    };
    let webhook = json!({"conversionReviewVersions": ["v1"], "clientConfig": client});
    let definition = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [version("v1", "old"), version("v2", "new")],
            "conversion": {"strategy": "Webhook", "webhook": webhook},
        },
    });
    let answer = server.post(DEFINITIONS, &definition).await;
    assert_eq!(answer.code, 201, "{answer:?}");
}

fn thing(version: &str, name: &str, field: &str, value: &str) -> Value {
    json!({
        "apiVersion": format!("example.com/{version}"), "kind": "Thing", "metadata": {"name": name},
        "spec": {field: value},
    })
}

#[tokio::test]
async fn objects_are_served_in_versions_that_a_webhook_makes() {
    let reviews = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reviews);
    let (address, authority) = webhook::serve(move |_, review| {
        counted.fetch_add(1, Ordering::Relaxed);
        Some(convert(review))
    })
    .await;
    let server = TestServer::start().await;
    define(&server, json!({"url": format!("https://{address}/convert"), "caBundle": authority})).await;
    let mut watch = Lines::new(server.open("GET", &format!("{V2}?watch=1"), &[], "").await);
    for name in ["a", "b"] {
        assert_eq!(server.post(V1, &thing("v1", name, "old", name)).await.code, 201);
    }
    for name in ["a", "b"] {
        let event = watch.next().await.unwrap();
        assert_eq!((&event["type"], &event["object"]["spec"]), (&json!("ADDED"), &json!({"new": name})));
    }
    reviews.store(0, Ordering::Relaxed);
    let list = server.get(V2).await.json();
    assert_eq!(list["items"][1]["spec"], json!({"new": "b"}));
    let metadata = [("accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")];
    assert_eq!(server.send("GET", V2, &metadata, "").await.json()["items"][0]["metadata"]["name"], "a");
    assert_eq!(reviews.load(Ordering::Relaxed), 2, "one for each list");

    let created = server.post(V2, &thing("v2", "c", "new", "c")).await;
    assert_eq!((created.code, &created.json()["spec"]), (201, &json!({"new": "c"})));
    assert_eq!(server.get(&format!("{V1}/c")).await.json()["spec"], json!({"old": "c"}));
    let apply = [("content-type", "application/apply-patch+yaml")];
    let path = format!("{V2}/c?fieldManager=m&force=true");
    let applied = server.send("PATCH", &path, &apply, thing("v2", "c", "new", "d").to_string()).await;
    assert_eq!((applied.code, &applied.json()["spec"]), (200, &json!({"new": "d"})));
    assert_eq!(watch.next().await.unwrap()["object"]["spec"], json!({"new": "c"}));
    assert_eq!(watch.next().await.unwrap()["object"]["spec"], json!({"new": "d"}));
    assert_eq!(server.send("DELETE", &format!("{V2}/c"), &[], "").await.code, 200);
    assert_eq!(watch.next_name().await, ("DELETED".to_owned(), "c".to_owned()));
}

#[tokio::test]
async fn a_webhook_that_cannot_be_reached_fails_its_version_alone() {
    let (_, authority) = webhook::serve(|_, _| None).await;
    let server = TestServer::start().await;
    define(&server, json!({"url": "https://127.0.0.1:1/convert", "caBundle": authority})).await;
    assert_eq!(server.post(V1, &thing("v1", "a", "old", "a")).await.code, 201);
    let failed = "conversion webhook for example.com/v1, Kind=Thing failed: Post \
                  \"https://127.0.0.1:1/convert?timeout=30s\": dial tcp 127.0.0.1:1: connect: connection refused";
    for path in [format!("{V2}/a"), V2.to_owned(), format!("{V2}?watch=1")] {
        let answer = server.get(&path).await;
        assert_eq!((answer.code, answer.json()["message"].as_str().unwrap()), (500, failed), "{path}");
    }
    assert_eq!(server.get(&format!("{V1}/a")).await.code, 200);
    assert_eq!(server.config_map("m").await["metadata"]["name"], "m");
}

/// Regression test: such a write ran on the thread of the async tasks, which then waited for the webhook. Here they have a single
/// thread, which the webhook is also served on.
#[tokio::test]
async fn parameters_of_policies_are_converted_on_a_thread_that_may_wait() {
    let (address, authority) = webhook::serve(|_, review| Some(convert(review))).await;
    let server = TestServer::start().await;
    define(&server, json!({"url": format!("https://{address}/convert"), "caBundle": authority})).await;
    assert_eq!(server.post(V1, &thing("v1", "limits", "old", "forbidden")).await.code, 201);
    let admission = "/apis/admissionregistration.k8s.io/v1";
    let policy = json!({"metadata": {"name": "p"}, "spec": {
        "paramKind": {"apiVersion": "example.com/v2", "kind": "Thing"},
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": ["configmaps"]}]},
        "validations": [{"expression": "object.metadata.name != params.spec.new"}],
    }});
    let binding = json!({"metadata": {"name": "p"}, "spec": {"policyName": "p", "validationActions": ["Deny"],
        "paramRef": {"name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny"}}});
    for (resource, object) in
        [("validatingadmissionpolicies", policy), ("validatingadmissionpolicybindings", binding)]
    {
        let answer = server.post(&format!("{admission}/{resource}"), &object).await;
        assert_eq!(answer.code, 201, "{answer:?}");
    }
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "forbidden"}});
    let answer = server.post("/api/v1/namespaces/default/configmaps", &body).await;
    assert_eq!(answer.code, 422, "{answer:?}");
    server.config_map("allowed").await;
}
