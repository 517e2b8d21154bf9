//! The removal of a finalizer from the page: from the version that was shown, with the rights of the user, and recorded.

use super::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ORDER: &str = "/kubegc/v1/release";

fn about(name: &str) -> String {
    format!("resource=configmaps&namespace=default&name={name}")
}

/// A ConfigMap with these finalizers that is being deleted.
async fn held(client: &kube::Client, name: &str, finalizers: &[&str]) {
    create(client, MAPS, json!({"metadata": {"name": name, "finalizers": finalizers}})).await;
    let deleted = ask(client, Method::DELETE, &format!("{MAPS}/{name}"), &[], &json!({})).await;
    assert!(deleted.0 < 300, "{deleted:?}");
}

async fn assessment(client: &kube::Client, name: &str, finalizer: &str) -> Value {
    let path = format!("/kubegc/v1/finalizer?{}&finalizer={finalizer}", about(name));
    let (code, _, value) = get(client, &path, &[]).await;
    assert_eq!(code, 200, "{value}");
    value
}

/// The order that removes what an assessment is about.
fn order(assessment: &Value) -> Value {
    json!({"resource": "configmaps", "namespace": "default", "name": assessment["object"]["name"],
        "uid": assessment["object"]["uid"], "resourceVersion": assessment["resourceVersion"],
        "finalizer": assessment["finalizer"]})
}

async fn finalizers(client: &kube::Client, name: &str) -> Value {
    get(client, &format!("{MAPS}/{name}"), &[]).await.2["metadata"]["finalizers"].clone()
}

#[tokio::test]
async fn one_finalizer_is_released_from_the_version_that_was_shown() {
    let server = Kubegc::start("up");
    let client = server.client().await;
    let both = ["a.acme.dev/first", "b.acme.dev/second"];
    held(&client, "held", &both).await;
    let (_, _, object) = get(&client, &format!("/kubegc/v1/object?{}", about("held")), &[]).await;
    assert_eq!(object["finalizers"], json!(both));
    let shown = assessment(&client, "held", both[1]).await;
    let (_, _, document) = get(&client, "/kubegc/v1/openapi.json", &[]).await;
    let schema = &document["components"]["schemas"]["Release"];
    assert_eq!(undescribed(&shown, schema, &document, "finalizer"), [""; 0]);
    assert_eq!((&shown["objection"], &shown["liveness"]), (&Value::Null, &json!("NotFound")), "{shown}");
    let lines = shown["lines"].as_array().unwrap();
    let line = |heading: &str| lines.iter().find(|line| line["heading"] == heading).unwrap()["text"].clone();
    assert!(line("Lives").as_str().unwrap().starts_with("no: "), "{shown}");
    assert_eq!(line("Then"), "ConfigMap/held still waits for a.acme.dev/first");

    // Another version is another decision, and so is another object of the name.
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let merge = [("content-type", "application/merge-patch+json")];
    // The manager that set the finalizers does not write after the deletion: it would count as living.
    let path = format!("{MAPS}/held?fieldManager=another");
    let mut patch = http::Request::builder().method(Method::PATCH).uri(&path);
    for (name, value) in merge {
        patch = patch.header(name, value);
    }
    let patched =
        client.send(patch.body(Body::from(labels.to_string().into_bytes())).unwrap()).await.unwrap();
    assert!(patched.status().is_success());
    let present = assessment(&client, "held", both[1]).await;
    let with = |field: &str, value: Value| {
        let mut order = order(&present);
        order[field] = value;
        order
    };
    for (order, code, reason) in [
        (order(&shown), 409, "ObjectChanged"),
        (with("uid", json!("another")), 409, "ObjectChanged"),
        (with("finalizer", json!("c.acme.dev/third")), 404, "NotFound"),
        (with("finalizer", json!("")), 400, "BadRequest"),
        (with("all", json!(true)), 400, "BadRequest"),
        (json!({"resource": "configmaps", "name": "held"}), 400, "BadRequest"),
    ] {
        let (answered, _, status) = ask(&client, Method::POST, ORDER, &[], &order).await;
        assert_eq!((answered, &status["reason"]), (code, &json!(reason)), "{order}: {status}");
        if code == 409 {
            assert_eq!(status["details"]["resourceVersion"], present["resourceVersion"], "{status}");
        }
    }
    assert_eq!(get(&client, ORDER, &[]).await.0, 405);
    assert_eq!(finalizers(&client, "held").await, json!(both), "nothing was removed");

    let (code, _, done) = ask(&client, Method::POST, ORDER, &[], &order(&present)).await;
    assert_eq!(code, 200, "{done}");
    assert_eq!(done, json!({"finalizer": both[1], "remaining": [both[0]], "unrecorded": null}));
    assert_eq!(finalizers(&client, "held").await, json!([both[0]]));
    recorded(&client, &document, both[1]).await;
}

/// The removal is in the journal of the server, of the object and in an Event, each time with the user.
async fn recorded(client: &kube::Client, document: &Value, finalizer: &str) {
    let (_, _, object) = get(client, &format!("/kubegc/v1/object?{}", about("held")), &[]).await;
    let change = &object["journal"][0];
    let fields = (&change["user"], &change["finalizer"], &change["verdict"]);
    assert_eq!(fields, (&json!("kubegc-admin"), &json!(finalizer), &json!("ReleasedByHand")), "{object}");
    let schema = &document["components"]["schemas"]["Change"];
    assert_eq!(undescribed(change, schema, document, "journal"), [""; 0]);
    let path = "/kubegc/v1/journal?controller=release";
    let end = std::time::Instant::now() + std::time::Duration::from_mins(1);
    loop {
        // The journal is written behind.
        let answer = get_text(client, path).await;
        if answer.contains("ReleasedByHand") {
            assert!(answer.contains("\"user\":\"kubegc-admin\"") && answer.contains(finalizer), "{answer}");
            break;
        }
        assert!(std::time::Instant::now() < end, "{answer}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let (_, _, events) = get(client, "/api/v1/namespaces/default/events", &[]).await;
    let event =
        events["items"].as_array().unwrap().iter().find(|event| event["reason"] == "FinalizerReleased");
    assert_eq!(event.unwrap()["metadata"]["annotations"]["kubegc.io/released-by"], "kubegc-admin");
}

async fn get_text(client: &kube::Client, path: &str) -> String {
    let request = http::Request::builder().uri(path).body(Body::from(Vec::new())).unwrap();
    let answer = client.send(request).await.unwrap();
    String::from_utf8(answer.into_body().collect_bytes().await.unwrap().to_vec()).unwrap()
}

/// The garbage collector of the server lives: its finalizer goes only against an objection, and alone.
#[tokio::test]
async fn the_finalizer_of_a_living_controller_needs_an_override() {
    let server = Kubegc::start("up");
    let client = server.client().await;
    let owner = create(&client, MAPS, json!({"metadata": {"name": "owner"}})).await;
    let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": true}]);
    let leaf =
        json!({"metadata": {"name": "leaf", "ownerReferences": owners, "finalizers": ["acme.dev/hold"]}});
    create(&client, MAPS, leaf).await;
    let foreground = json!({"propagationPolicy": "Foreground"});
    let deleted = ask(&client, Method::DELETE, &format!("{MAPS}/owner"), &[], &foreground).await;
    assert!(deleted.0 < 300, "{deleted:?}");
    let shown = assessment(&client, "owner", "foregroundDeletion").await;
    assert_eq!(shown["liveness"], "Lives", "{shown}");
    let (code, _, status) = ask(&client, Method::POST, ORDER, &[], &order(&shown)).await;
    assert_eq!((code, &status["reason"]), (422, &json!("NeedsForce")), "{status}");
    assert!(status["message"].as_str().unwrap().contains("lives"), "{status}");
    assert_eq!(finalizers(&client, "owner").await, json!(["foregroundDeletion"]));
    let mut forced = order(&status["details"]);
    forced["force"] = true.into();
    let (code, _, done) = ask(&client, Method::POST, ORDER, &[], &forced).await;
    assert_eq!((code, &done["remaining"]), (200, &json!([])), "{done}");
    assert_eq!(get(&client, &format!("{MAPS}/owner"), &[]).await.0, 404);
}

/// The order is that of the user: who may read the object and not change it removes nothing, and who may not write Events learns so.
#[tokio::test]
async fn a_finalizer_is_released_with_the_rights_of_the_user() {
    let server = Kubegc::start("up");
    let client = server.client().await;
    held(&client, "held", &["acme.dev/hold"]).await;
    let group = "rbac.authorization.k8s.io";
    let api = format!("/apis/{group}/v1/namespaces/default");
    for (name, verbs) in [("reads", json!(["get", "list"])), ("changes", json!(["get", "list", "patch"]))] {
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}]);
        create(&client, &format!("{api}/roles"), json!({"metadata": {"name": name}, "rules": rules})).await;
        let binding = json!({"metadata": {"name": name}, "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": [{"kind": "User", "name": name, "apiGroup": group}]});
        create(&client, &format!("{api}/rolebindings"), binding).await;
    }
    let as_user =
        |name: &'static str| [("impersonate-user", name), ("impersonate-group", "system:authenticated")];
    let path = format!("/kubegc/v1/finalizer?{}&finalizer=acme.dev/hold", about("held"));
    let send = async |name: &'static str, headers: &[(&str, &str)]| {
        let shown = loop {
            // The server learns of a permission a moment after its creation.
            let (code, _, shown) = get(&client, &path, &as_user(name)).await;
            if code == 200 {
                break shown;
            }
        };
        // A user who cannot read the workloads of the cluster does not see whether one of them is the controller.
        assert_eq!(shown["liveness"], "Unseen", "{shown}");
        let mut order = order(&shown);
        order["force"] = true.into();
        ask(&client, Method::POST, ORDER, &[headers, &as_user(name)].concat(), &order).await
    };
    let (code, _, status) = send("reads", &[]).await;
    assert_eq!((code, &status["reason"]), (403, &json!("Forbidden")), "{status}");
    let (code, _, status) = send("changes", &[("sec-fetch-site", "cross-site")]).await;
    assert_eq!(code, 403, "an order of another site: {status}");
    assert_eq!(finalizers(&client, "held").await, json!(["acme.dev/hold"]));
    let (code, _, status) = get(&client, &path, &as_user("stranger")).await;
    assert_eq!(code, 403, "{status}");
    let (code, _, done) = send("changes", &[]).await;
    assert_eq!(code, 200, "{done}");
    assert!(done["unrecorded"].as_str().unwrap().contains("events"), "{done}");
    assert_eq!(get(&client, &format!("{MAPS}/held"), &[]).await.0, 404);
}
