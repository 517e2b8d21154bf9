#![allow(clippy::unwrap_used, reason = "a test may panic")]

use gc_apiserver::RunningServer;
use gc_explain::protect::Counting;
use gc_types::PropagationPolicy;
use http::Method;
use serde_json::{Value, json};

use super::*;
use gc_embedded::apiserver::{self, ServerOptions};
use gc_inspect::gather::Scope;
use gc_inspect::{plan, stuck};

const PATIENCE: Duration = Duration::from_secs(30);
const MAPS: &str = "/api/v1/namespaces/shop/configmaps";

/// Starts a server with the namespace `shop` and without collectors.
async fn shop() -> (RunningServer, ApiClient) {
    let server = apiserver::serve(&ServerOptions::in_process(), None).await.unwrap();
    let way = server.in_process("ann");
    let client = ApiClient::in_process(move |request| way.call(request));
    post(&client, "/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await;
    (server, client)
}

async fn post(client: &ApiClient, path: &str, body: Value) -> Value {
    let answer = client.call(preflight::request(Method::POST, path, Some(&body))).await.unwrap();
    let value: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    assert!(answer.head.status.is_success(), "{path}: {value}");
    value
}

async fn gatherer(client: &ApiClient) -> Gatherer {
    Gatherer::new(client.clone(), gather::now()).await.unwrap()
}

/// Writes a rule, and waits until the server enforces it: policies take effect a moment after they are written.
async fn enforced(client: &ApiClient, rule: Rule, example: &str) {
    let gatherer = gatherer(client).await;
    for manifest in [rule.policy(), rule.binding()] {
        apply(&gatherer, &manifest).await.unwrap();
    }
    while deleted(client, &format!("{example}?dryRun=All")).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

/// Deletes an object. Returns the server's status and message if it refuses.
async fn deleted(client: &ApiClient, path: &str) -> Result<(), (StatusCode, String)> {
    let answer = client.call(preflight::request(Method::DELETE, path, None)).await.unwrap();
    if answer.head.status.is_success() {
        Ok(())
    } else {
        Err((answer.head.status, preflight::message(&answer)))
    }
}

fn named(gatherer: &Gatherer, kind: &str, name: &str) -> NamedObject {
    let resource = gatherer.catalog.find(kind).unwrap()[0].clone();
    let namespace = if resource.is_namespaced() { "shop" } else { "" };
    NamedObject { resource, namespace: namespace.into(), name: name.into() }
}

/// No client can delete a marked object until its mark is removed, and everything that would wait for the object reports that.
#[tokio::test]
async fn a_marked_object_is_not_deleted() {
    let (server, client) = shop().await;
    post(&client, MAPS, json!({"metadata": {"name": "kept"}})).await;
    post(&client, MAPS, json!({"metadata": {"name": "other"}})).await;
    post(&client, MAPS, json!({"metadata": {"name": "labelled", "labels": {MARK: "yes"}}})).await;
    let gatherer = gatherer(&client).await;
    let kept = named(&gatherer, "cm", "kept");
    set_mark(&gatherer, &kept, Some("the only copy (ann, 2027-01-15)")).await.unwrap();
    enforced(&client, Rule::Marked, &format!("{MAPS}/kept")).await;

    let (status, message) = deleted(&client, &format!("{MAPS}/kept")).await.unwrap_err();
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(message.contains("protected by kubegc.io/protect: the only copy (ann, 2027-01-15)"), "{message}");
    assert!(deleted(&client, &format!("{MAPS}/labelled")).await.is_err());
    assert!(deleted(&client, MAPS).await.is_err(), "a collection is deleted one by one");
    deleted(&client, &format!("{MAPS}/other")).await.unwrap_or(());

    // The plan shows the protection, for the object and for its namespace.
    let plan_of = async |kind: &str, name: &str| {
        let target = vec![named(&gatherer, kind, name)];
        let planning = plan::ask(&gatherer, target, PropagationPolicy::Background, PATIENCE).await.unwrap();
        planning.complete().unwrap().radius
    };
    let refused = plan_of("cm", "kept").await.refused;
    assert!(
        refused[0].contains("refused by policy kubegc-protect: protected by kubegc.io/protect"),
        "{refused:?}"
    );
    let radius = plan_of("ns", "shop").await;
    assert!(radius.stuck.iter().any(|line| line.contains("kubegc-protect")), "{:?}", radius.stuck);

    let rules = reading::rules(&gatherer, gatherer.now).await.unwrap();
    assert_eq!(rules, [Status { policy: "kubegc-protect".into(), faults: Vec::new() }]);

    set_mark(&gatherer, &kept, None).await.unwrap();
    deleted(&client, &format!("{MAPS}/kept")).await.unwrap();
    server.shutdown().await;
}

/// The controller of Deployments copies annotations to ReplicaSets and never removes them. A copied mark protects neither old
/// revisions, nor the Deployment once its own mark is removed.
#[tokio::test]
async fn a_mark_that_a_controller_has_copied_keeps_nothing() {
    const SETS: &str = "/apis/apps/v1/namespaces/shop/replicasets";
    const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/shop/deployments";
    let (server, client) = shop().await;
    let spec = json!({"selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "nginx"}]}}});
    let owner = post(&client, DEPLOYMENTS, json!({"metadata": {"name": "web"}, "spec": spec})).await;
    let reference = |is_controller: bool| {
        json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": owner["metadata"]["uid"],
            "controller": is_controller, "blockOwnerDeletion": true}])
    };
    for (name, owners) in [("copied", reference(true)), ("owned", reference(false)), ("alone", json!([]))] {
        let metadata = json!({"name": name, "annotations": {MARK: "kept"}, "ownerReferences": owners});
        post(&client, SETS, json!({"metadata": metadata, "spec": spec})).await;
    }
    enforced(&client, Rule::Marked, &format!("{SETS}/alone")).await;

    assert!(deleted(&client, &format!("{SETS}/owned")).await.is_err());
    let gatherer = gatherer(&client).await;
    let target = vec![named(&gatherer, "rs", "copied")];
    let planning = plan::ask(&gatherer, target, PropagationPolicy::Background, PATIENCE).await.unwrap();
    let refused = planning.complete().unwrap().radius.refused;
    assert!(refused.is_empty(), "the plan asks the same rule: {refused:?}");
    deleted(&client, &format!("{SETS}/copied")).await.unwrap();
    server.shutdown().await;
}

/// An owner that waits for a protected dependent is stuck because of the protection, and no output suggests removing the dependent
/// by force.
#[tokio::test]
async fn an_owner_waits_for_its_protected_dependent() {
    let (server, client) = shop().await;
    let owner = post(&client, MAPS, json!({"metadata": {"name": "owner"}})).await;
    let reference = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner",
        "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true}]);
    let dependent = json!({"metadata": {"name": "dependent", "ownerReferences": reference, "annotations": {MARK: "kept"}}});
    post(&client, MAPS, dependent).await;
    enforced(&client, Rule::Marked, &format!("{MAPS}/dependent")).await;
    let foreground = json!({"propagationPolicy": "Foreground"});
    let request = preflight::request(Method::DELETE, &format!("{MAPS}/owner"), Some(&foreground));
    assert!(client.call(request).await.unwrap().head.status.is_success());

    let later = Gatherer::new(client.clone(), gather::now().after(600_000)).await.unwrap();
    let scope = Scope { namespace: "shop".into(), ..Scope::default() };
    let rows = stuck::ask(&later, &scope, PATIENCE).await.unwrap().rows;
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.cause.code.name(), &row.cause.force), ("Protected", &None));
    assert!(row.cause.message.contains("protected by kubegc.io/protect: kept"), "{}", row.cause.message);
    server.shutdown().await;
}

/// The command counts what an expression of a policy cannot.
#[tokio::test]
async fn objects_are_protected_by_their_numbers() {
    let (server, client) = shop().await;
    post(&client, MAPS, json!({"metadata": {"name": "content"}})).await;
    post(&client, "/api/v1/namespaces", json!({"metadata": {"name": "empty"}})).await;
    let gatherer = gatherer(&client).await;
    let counting = Counting { namespaces: true, ..Counting::default() };
    let found = reading::count(&gatherer, &counting, "8:00", PATIENCE).await.unwrap().0;
    let data: Value =
        found.iter().map(|(uid, one)| (uid.to_string(), Value::from(one.why.as_str()))).collect();
    let (namespace, name) = COUNTS;
    let counts = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name}, "data": data});
    apply(&gatherer, &counts).await.unwrap();
    enforced(&client, Rule::Counted, "/api/v1/namespaces/shop").await;
    let (_, message) = deleted(&client, "/api/v1/namespaces/shop").await.unwrap_err();
    assert!(
        message.contains("protected: it has 1 object (as of 8:00; kubegc protect counts again)"),
        "{message}"
    );
    deleted(&client, "/api/v1/namespaces/empty").await.unwrap();
    // Without the ConfigMap, the rule refuses nothing.
    deleted(&client, &format!("/api/v1/namespaces/{namespace}/configmaps/{name}")).await.unwrap();
    while deleted(&client, "/api/v1/namespaces/shop").await.is_err() {
        tokio::task::yield_now().await;
    }
    server.shutdown().await;
}

/// A rule about kinds applies only in its namespaces, and an object can be exempt.
#[tokio::test]
async fn kinds_are_protected_in_namespaces() {
    let (server, client) = shop().await;
    post(&client, "/api/v1/namespaces", json!({"metadata": {"name": "test"}})).await;
    for namespace in ["shop", "test"] {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        post(&client, &path, json!({"metadata": {"name": "a"}})).await;
    }
    post(&client, MAPS, json!({"metadata": {"name": "exempt", "annotations": {MARK: "false"}}})).await;
    let catalog = gatherer(&client).await.catalog;
    let words = |word: &str| vec![word.to_owned()];
    let rule = kinds::rule("maps", &words("cm"), &words("shop"), &catalog).unwrap();
    enforced(&client, rule, &format!("{MAPS}/a")).await;
    deleted(&client, "/api/v1/namespaces/test/configmaps/a").await.unwrap();
    deleted(&client, &format!("{MAPS}/exempt")).await.unwrap();
    let (_, message) = deleted(&client, &format!("{MAPS}/a")).await.unwrap_err();
    assert!(message.contains("protected by the rule maps about its kind"), "{message}");
    for (kinds, namespaces) in [("pods", ""), ("nodes", "shop"), ("nonsense", ""), ("cm", "Shop")] {
        let namespaces = if namespaces.is_empty() { Vec::new() } else { words(namespaces) };
        assert!(kinds::rule("x", &words(kinds), &namespaces, &catalog).is_err(), "{kinds} {namespaces:?}");
    }
    server.shutdown().await;
}
