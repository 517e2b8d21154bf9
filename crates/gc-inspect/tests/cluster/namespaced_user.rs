//! Queries by a user who has a Role in one namespace and no other permission: their answers, and their cost.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use gc_apiserver::RunningServer;
use gc_embedded::apiserver::{self, ServerOptions};
use gc_explain::UnreadCode;
use gc_inspect::attached::{Form, Query, QueryRequest};
use gc_inspect::gather::{self, Gatherer, Scope};
use gc_inspect::subject::Subject;
use gc_inspect::unanswered::Cause;
use gc_inspect::{answering, garbage};
use gc_kube::ApiClient;
use gc_process::preflight;
use http::Method;
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum number of requests per answer.
const MAX_REQUESTS: usize = 10;

/// Creates an object, and returns its UID.
async fn created(admin: &ApiClient, path: &str, object: Value) -> String {
    let answer = admin.call(preflight::request(Method::POST, path, Some(&object))).await.unwrap();
    let created: Value = serde_json::from_slice(&answer.body).unwrap();
    assert!(answer.head.status.is_success(), "{path}: {created}");
    created["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

/// Returns a server with the namespace `shop`, and its administrator.
async fn shop() -> (RunningServer, ApiClient) {
    let options = ServerOptions::in_process();
    let server = apiserver::serve(&options, None).await.unwrap();
    let way = server.in_process("tester");
    let admin = ApiClient::in_process(move |request| way.call(request));
    created(&admin, "/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await;
    (server, admin)
}

/// Returns a client for the user `ann`, and the log of its requests.
fn ann(server: &RunningServer) -> (ApiClient, Arc<Mutex<Vec<String>>>) {
    let way = server.in_process_as("ann", &["system:authenticated"]);
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let log = Arc::clone(&asked);
    let client = ApiClient::in_process(move |request: http::Request<_>| {
        log.lock().unwrap().push(format!("{} {}", request.method(), request.uri()));
        way.call(request)
    });
    (client, asked)
}

/// Gives the user `ann` a Role in the namespace `shop`.
async fn permit(admin: &ApiClient, rules: Value) {
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop";
    created(admin, &format!("{rbac}/roles"), json!({"metadata": {"name": "reader"}, "rules": rules})).await;
    let group = "rbac.authorization.k8s.io";
    let binding = json!({"metadata": {"name": "reader"}, "roleRef": {"apiGroup": group, "kind": "Role", "name": "reader"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "ann"}]});
    created(admin, &format!("{rbac}/rolebindings"), binding).await;
}

/// The server applies a new permission a moment after its creation.
async fn until_it_may_read(client: &ApiClient, path: &str) {
    while !client.call(preflight::request(Method::GET, path, None)).await.unwrap().head.status.is_success() {
        tokio::task::yield_now().await;
    }
}

/// A tree must distinguish absent, recreated and unreadable owners.
#[tokio::test]
async fn a_tree_says_what_became_of_owners() {
    let (server, admin) = shop().await;
    let maps = "/api/v1/namespaces/shop/configmaps";
    let other = created(&admin, maps, json!({"metadata": {"name": "other"}})).await;
    let owner = |kind: &str, name: &str, uid: &str| json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid});
    let owners = json!([owner("ConfigMap", "above", "u-above")]);
    let living =
        created(&admin, maps, json!({"metadata": {"name": "living", "ownerReferences": owners}})).await;
    let owners = json!([
        owner("ConfigMap", "gone", "u-gone"),
        owner("ConfigMap", "other", "u-former"),
        owner("Secret", "hidden", "u-hidden"),
        owner("ConfigMap", "living", &living),
    ]);
    created(&admin, maps, json!({"metadata": {"name": "leaf", "ownerReferences": owners}})).await;
    permit(&admin, json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}])).await;
    let (client, _) = ann(&server);
    until_it_may_read(&client, &format!("{maps}/leaf")).await;
    let leaf = Subject { resource: "configmaps".into(), namespace: "shop".into(), name: "leaf".into() };
    let of_leaf = || Query::Tree { objects: vec![leaf.clone()], owners: true, depth: None, full: false };
    let gatherer = Gatherer::new(client, gather::now()).await.unwrap();
    let inquiry = QueryRequest { form: Form::Text, question: of_leaf() };
    let answer = answering::answer(&gatherer, inquiry, PATIENCE).await.unwrap();
    let lines = answer.lines_with_unseen();
    let state = |object: &str| {
        let line = lines.iter().find(|line| line.contains(object)).unwrap();
        line.split_once(object).unwrap().1.trim().to_owned()
    };
    assert_eq!(state("ConfigMap/gone"), "does not exist");
    let replaced = format!("does not exist; the object with this name has UID {other}");
    assert_eq!(state("ConfigMap/other"), replaced);
    assert!(state("Secret/hidden").starts_with("cannot be read: "), "{lines:#?}");
    assert_eq!(state("ConfigMap/above"), "does not exist");
    let inquiry = QueryRequest { form: Form::Value, question: of_leaf() };
    let answer = answering::answer(&gatherer, inquiry, PATIENCE).await.unwrap();
    let answer = serde_json::to_value(answer).unwrap();
    let codes: Vec<(&Value, &Value)> = answer["answer"]["owners"]
        .as_array()
        .unwrap()
        .iter()
        .map(|owner| (&owner["name"], &owner["unreadCode"]))
        .filter(|(_, code)| !code.is_null())
        .collect();
    assert_eq!(codes, [(&json!("hidden"), &json!("Forbidden"))]);
    server.shutdown().await;
}

/// Resources that may not be read are not requested, and are named in one line.
#[tokio::test]
async fn a_report_names_what_may_not_be_read_once() {
    const MAX_REQUESTS_OF_A_REPORT: usize = 20;
    let (server, admin) = shop().await;
    let maps = "/api/v1/namespaces/shop/configmaps";
    created(&admin, maps, json!({"metadata": {"name": "idle"}})).await;
    permit(&admin, json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}])).await;
    let (client, asked) = ann(&server);
    until_it_may_read(&client, &format!("{maps}/idle")).await;
    asked.lock().unwrap().clear();
    let gatherer = Gatherer::new(client, gather::now()).await.unwrap();
    let scope = Scope { namespace: "shop".to_owned(), ..Scope::default() };
    let report = garbage::ask(&gatherer, &scope, PATIENCE).await.unwrap();
    let requests = asked.lock().unwrap().clone();
    assert!(requests.len() <= MAX_REQUESTS_OF_A_REPORT, "{}: {requests:#?}", requests.len());
    let unread: Vec<&String> = report.unseen.iter().filter(|line| line.contains("could not be")).collect();
    assert_eq!(unread.len(), 1, "{:#?}", report.unseen);
    assert!(unread[0].contains(" more): this user may not list it"), "{unread:#?}");
    assert!(report.unseen.len() <= 4, "{:#?}", report.unseen);
    server.shutdown().await;
}

#[tokio::test]
async fn a_role_in_one_namespace_is_enough() {
    let (server, admin) = shop().await;
    let create = async |path: &str, object: Value| created(&admin, path, object).await;
    let owned = |name: &str, (api_version, kind, owner, uid): (&str, &str, &str, &str)| {
        let reference = json!({"apiVersion": api_version, "kind": kind, "name": owner, "uid": uid,
            "controller": true, "blockOwnerDeletion": true});
        json!({"name": name, "labels": {"app": "web"}, "ownerReferences": [reference]})
    };
    let container = json!({"containers": [{"name": "c", "image": "i"}]});
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": container});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    let apps = "/apis/apps/v1/namespaces/shop";
    let deployment = json!({"metadata": {"name": "web"}, "spec": spec});
    let deployment = create(&format!("{apps}/deployments"), deployment).await;
    let metadata = owned("web-1", ("apps/v1", "Deployment", "web", &deployment));
    let set = create(&format!("{apps}/replicasets"), json!({"metadata": metadata, "spec": spec})).await;
    for name in ["web-1-a", "web-1-b"] {
        let metadata = owned(name, ("apps/v1", "ReplicaSet", "web-1", &set));
        let pod = json!({"metadata": metadata, "spec": container});
        create("/api/v1/namespaces/shop/pods", pod).await;
    }
    let rule = |group: &str, resources: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": ["get", "list"]});
    let rules = json!([rule("", &["pods", "configmaps"]), rule("apps", &["deployments", "replicasets"])]);
    permit(&admin, rules).await;

    let (client, asked) = ann(&server);
    until_it_may_read(&client, "/api/v1/namespaces/shop/pods/web-1-a").await;
    let subject = |resource: &str, name: &str| {
        vec![Subject { resource: resource.into(), namespace: "shop".into(), name: name.into() }]
    };
    let tree = "Deployment/web shop 0/2\n\
                └─ ReplicaSet/web-1 shop 0/2\n\
                ├─ Pod/web-1-a shop 0/1 Pending\n\
                └─ Pod/web-1-b shop 0/1 Pending\n";
    let questions = [
        (
            Query::Why { objects: subject("pods", "web-1-a") },
            "Pod/web-1-a in shop\nNothing deletes it: an owner lives.\nOwners:\n\
             ReplicaSet/web-1 (lives)\nDeployment/web (lives)\n",
        ),
        (Query::Tree { objects: subject("deploy", "web"), owners: false, depth: None, full: false }, tree),
        (
            Query::Plan { objects: subject("deploy", "web"), policy: "background".into(), full: false },
            "4 objects: 2 Pods, 1 Deployment, 1 ReplicaSet; this user may not delete Deployment/web; nothing gets stuck\n",
        ),
    ];
    for (question, expected) in questions {
        asked.lock().unwrap().clear();
        let gatherer = Gatherer::new(client.clone(), gather::now()).await.unwrap();
        let inquiry = QueryRequest { form: Form::Text, question: question.clone() };
        let answer = answering::answer(&gatherer, inquiry, PATIENCE).await.unwrap();
        let is_age = |cell: &&str| cell.ends_with('s') && cell[..cell.len() - 1].parse::<u32>().is_ok();
        let lines = answer
            .lines_with_unseen()
            .into_iter()
            .map(|line| line.split_whitespace().filter(|cell| !is_age(cell)).collect::<Vec<_>>().join(" "));
        let lines: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
        let requests = asked.lock().unwrap().clone();
        assert!(requests.len() <= MAX_REQUESTS, "{question:?}: {}: {requests:#?}", requests.len());
        let expected: Vec<&str> = expected.lines().collect();
        let has = |line: &&&str| lines.iter().any(|shown| shown == **line);
        let missing: Vec<&&str> = expected.iter().filter(|line| !has(line)).collect();
        assert!(missing.is_empty(), "{question:?}: {missing:#?} in {lines:#?}");
        assert!(!lines.iter().any(|line| line.contains("not found")), "{lines:#?}");
    }
    server.shutdown().await;
}

/// An unreadable object is never reported as absent, or as used.
#[tokio::test]
async fn what_may_not_be_read_is_not_said_to_be_absent() {
    let (server, admin) = shop().await;
    created(&admin, "/api/v1/namespaces", json!({"metadata": {"name": "bank"}})).await;
    permit(&admin, json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}])).await;
    let (client, _) = ann(&server);
    until_it_may_read(&client, "/api/v1/namespaces/shop/configmaps").await;
    let gatherer = Gatherer::new(client, gather::now()).await.unwrap();
    let object = Subject { resource: "configmaps".into(), namespace: "bank".into(), name: "vault".into() };
    let objects = || vec![object.clone()];
    for question in [
        Query::Tree { objects: objects(), owners: false, depth: None, full: false },
        Query::Tree { objects: objects(), owners: true, depth: None, full: false },
        Query::Why { objects: objects() },
        Query::Plan { objects: objects(), policy: "background".into(), full: false },
    ] {
        let inquiry = QueryRequest { form: Form::Text, question: question.clone() };
        let error = answering::answer(&gatherer, inquiry, PATIENCE).await.unwrap_err();
        assert!(
            matches!(Cause::of(&error), Some(Cause::Unread(UnreadCode::Forbidden))),
            "{question:?}: {error}"
        );
        let error = error.to_string();
        assert!(error.starts_with("configmaps/vault cannot be read: "), "{question:?}: {error}");
    }
    let error = garbage::ask(&gatherer, &Scope::default(), PATIENCE).await.unwrap_err().to_string();
    assert_eq!(error, gather::NOTHING_TO_LIST);
    server.shutdown().await;
}

/// A resource that the user may not list is not reported as the cause of a stuck deletion.
#[tokio::test]
async fn what_may_not_be_listed_is_no_root_cause() {
    let (server, admin) = shop().await;
    let maps = "/api/v1/namespaces/shop/configmaps";
    created(&admin, maps, json!({"metadata": {"name": "held"}})).await;
    let foreground = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground"});
    let request = preflight::request(Method::DELETE, &format!("{maps}/held"), Some(&foreground));
    assert!(admin.call(request).await.unwrap().head.status.is_success());
    permit(&admin, json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}])).await;
    let (client, _) = ann(&server);
    until_it_may_read(&client, maps).await;
    for (client, cause, is_forced) in [
        (
            &client,
            "ConfigMap/held: nothing that this user may list blocks it; dependents may be among",
            false,
        ),
        (&admin, "ConfigMap/held: nothing blocks it, and no garbage collector removes the finalizer", true),
    ] {
        // A collector would have acted by then.
        let gatherer = Gatherer::new(client.clone(), gather::now().after(60_000)).await.unwrap();
        let question = Query::Stuck { namespace: "shop".to_owned(), at_least: "0s".to_owned() };
        let inquiry = QueryRequest { form: Form::Text, question };
        let lines = answering::answer(&gatherer, inquiry, PATIENCE).await.unwrap().lines_with_unseen();
        assert!(lines.iter().any(|line| line.contains(cause)), "{lines:#?}");
        assert_eq!(lines.iter().any(|line| line.contains("by force:")), is_forced, "{lines:#?}");
    }
    server.shutdown().await;
}
