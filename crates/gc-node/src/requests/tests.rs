#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::{Arc, Mutex};

use gc_collectors::node_policies::{ImageSettings, KIND, RESOURCE, Role};
use gc_collectors::policies::{GROUP, VERSION};
use http::Response;
use serde_json::json;

use super::*;
use crate::policies::Policies;

type Scripted = (u16, &'static str, String);

const NODE: &str = "/api/v1/nodes/node-1";
const POLICIES: &str = "/apis/kubegc.io/v1alpha1/nodecollectionpolicies";

fn document(code: u16, body: &Value) -> Scripted {
    (code, JSON, body.to_string())
}

fn status(reason: &str, details: &Value) -> Scripted {
    let body =
        json!({"kind": "Status", "apiVersion": "v1", "reason": reason, "code": 404, "details": details});
    document(404, &body)
}

/// A server whose responses by path can be replaced; the last one is for every other path.
#[derive(Clone)]
struct Server(Arc<Mutex<(Vec<(&'static str, Scripted)>, Scripted)>>);

impl Server {
    fn new() -> Self {
        Self(Arc::new(Mutex::new((Vec::new(), (503, "text/plain", String::new())))))
    }

    fn answer(&self, paths: Vec<(&'static str, Scripted)>, others: Scripted) {
        *self.0.lock().unwrap() = (paths, others);
    }

    fn client(&self) -> ApiClient {
        let this = self.clone();
        ApiClient::in_process(move |request: Request<Full<Bytes>>| {
            let (paths, others) = this.0.lock().unwrap().clone();
            let found = paths.into_iter().find(|(path, _)| *path == request.uri().path());
            let (code, content_type, body) = found.map_or(others, |(_, answer)| answer);
            async move {
                let answer = Response::builder().status(code).header(CONTENT_TYPE, content_type);
                answer.body(Full::new(Bytes::from(body))).unwrap()
            }
        })
    }
}

fn node() -> Scripted {
    document(200, &json!({"kind": "Node", "metadata": {"name": "node-1", "labels": {"pool": "a"}}}))
}

fn one_policy() -> Scripted {
    let policy = json!({"metadata": {"name": "keep", "uid": "u", "generation": 1},
        "spec": {"enforce": true, "protectedImages": ["registry.example/base"]}});
    document(200, &json!({"kind": format!("{KIND}List"), "metadata": {}, "items": [policy]}))
}

/// Returns a server's discovery with these groups; the core group always has nodes.
fn discovery(groups: &Value) -> Vec<(&'static str, Scripted)> {
    let list = |items: &Value| json!({"kind": "APIGroupDiscoveryList", "items": items});
    let core = json!([{"metadata": {"name": ""}, "versions": [served("v1", "nodes", "Node")]}]);
    vec![("/api", document(200, &list(&core))), ("/apis", document(200, &list(groups)))]
}

fn served(version: &str, resource: &str, kind: &str) -> Value {
    json!({"version": version, "freshness": "Current", "resources": [
        {"resource": resource, "responseKind": {"kind": kind}, "scope": "Cluster", "verbs": ["list"]}]})
}

fn apps() -> Value {
    json!({"metadata": {"name": "apps"}, "versions": [served("v1", "deployments", "Deployment")]})
}

fn page() -> Scripted {
    (404, "text/html", "<html><head><title>404 Not Found</title></head></html>".to_owned())
}

/// Returns the response of an API server for a path that it does not serve, which many gateways give for any path.
fn text() -> Scripted {
    (404, "text/plain; charset=utf-8", "404 page not found\n".to_owned())
}

/// Returns every 404 that proves nothing, as a response about an object or a list of this group, resource and kind.
fn doubtful(group: &str, resource: &str, kind: &str, name: &str) -> Vec<Scripted> {
    let named = |group: &str, kind: &str, name: &str| json!({"group": group, "kind": kind, "name": name});
    let mut shapes = vec![
        page(),
        text(),
        (404, "text/plain", String::new()),
        document(404, &json!({})),
        document(404, &Value::Null),
        document(404, &json!({"reason": "NotFound", "details": named(group, resource, name)})),
        document(404, &json!({"kind": "Error", "reason": "NotFound", "details": named(group, kind, name)})),
        status("NotFound", &Value::Null),
        status("NotFound", &json!({})),
    ];
    for reason in ["", "Forbidden", "Gone", "ServiceUnavailable", "notfound"] {
        shapes.push(status(reason, &named(group, resource, name)));
    }
    for (group, kind, name) in [
        (group, "configmaps", name),
        ("example.com", resource, name),
        (group, resource, "another"),
        ("", "namespaces", "another"),
    ] {
        shapes.push(status("NotFound", &named(group, kind, name)));
    }
    shapes
}

fn settings() -> ImageSettings {
    crate::NodeConfig::of_tests().image_settings()
}

#[tokio::test]
async fn no_404_but_that_of_an_api_server_ends_policies() {
    let server = Server::new();
    let mut policies =
        Policies::new(server.client(), "node-1".to_owned(), settings(), Box::new(|_| Vec::new()));
    let is_in_force = |policies: &Policies| {
        let roles = policies.roles();
        roles.iter().any(|(name, role)| *name == "keep" && matches!(role, Role::Enforced(_)))
    };
    // Before the first proof, the policies are unknown, and nothing may be removed.
    server.answer(vec![(NODE, node())], page());
    policies.refresh().await;
    assert!(policies.unknown().is_some());
    server.answer(vec![(NODE, node()), (POLICIES, one_policy())], text());
    policies.refresh().await;
    assert!(policies.unknown().is_none() && is_in_force(&policies));

    let unclear =
        json!({"metadata": {"name": GROUP}, "versions": [{"version": VERSION, "freshness": "Stale"}]});
    let known = json!({"metadata": {"name": GROUP}, "versions": [served(VERSION, RESOURCE, KIND)]});
    for shape in doubtful(GROUP, RESOURCE, KIND, "") {
        let is_unserved = [json!([apps(), unclear]), json!([apps(), known]), json!([])];
        let mut others: Vec<_> = is_unserved.iter().map(|groups| discovery(groups)).collect();
        // One gateway answers every path this way, and one passes on the Node.
        others.push(Vec::new());
        others.push(vec![("/apis", document(200, &json!({})))]);
        others.push(vec![("/api", document(200, &json!({"kind": "APIVersions", "versions": ["v1"]})))]);
        for mut paths in others {
            paths.push((NODE, node()));
            server.answer(paths.clone(), shape.clone());
            policies.refresh().await;
            assert!(is_in_force(&policies), "{shape:?} {paths:?}");
        }
        server.answer(Vec::new(), shape.clone());
        policies.refresh().await;
        assert!(is_in_force(&policies), "also of the Node: {shape:?}");
    }
    // Another Node, or a document without one, does not select other policies.
    for other in [json!({}), json!({"kind": "Node", "metadata": {"name": "node-2"}})] {
        server.answer(vec![(NODE, document(200, &other)), (POLICIES, one_policy())], text());
        policies.refresh().await;
        assert!(is_in_force(&policies), "{other}");
    }

    // This one is genuine: the definition is gone, which a server reports with a page of text, and its discovery confirms.
    let mut paths = discovery(&json!([apps()]));
    paths.push((NODE, node()));
    server.answer(paths, text());
    policies.refresh().await;
    assert!(policies.unknown().is_none() && policies.roles().is_empty());
}

#[tokio::test]
async fn a_status_that_names_the_resource_needs_no_second_answer() {
    let server = Server::new();
    for kind in [RESOURCE, KIND] {
        server.answer(Vec::new(), status("NotFound", &json!({"group": GROUP, "kind": kind})));
        let found = list(&server.client(), (GROUP, VERSION, RESOURCE, KIND), "limit=1").await.unwrap();
        assert_eq!(found, None);
    }
    server.answer(Vec::new(), document(200, &json!({"kind": "PodList", "items": []})));
    list(&server.client(), (GROUP, VERSION, RESOURCE, KIND), "limit=1").await.unwrap_err();
}

#[tokio::test]
async fn an_object_is_absent_only_by_proof() {
    let server = Server::new();
    let object = RequestedObject {
        group: "coordination.k8s.io",
        resource: "leases",
        kind: "Lease",
        namespace: "kubegc",
        name: "kubegc-node-node-1",
    };
    let target = ReadTarget { version: "v1", object };
    let path = "/apis/coordination.k8s.io/v1/namespaces/kubegc/leases/kubegc-node-node-1";
    assert_eq!(target.path(), path);
    let asked = async |answer: Scripted| {
        server.answer(vec![(path, answer)], text());
        read(&server.client(), &target).await
    };
    for shape in doubtful(object.group, object.resource, object.kind, object.name) {
        assert!(asked(shape.clone()).await.is_err(), "{shape:?}");
    }
    for kind in ["leases", "Lease"] {
        let details = json!({"group": object.group, "kind": kind, "name": object.name});
        assert_eq!(asked(status("NotFound", &details)).await.unwrap(), None);
    }
    let namespace = json!({"kind": "namespaces", "name": "kubegc"});
    assert_eq!(asked(status("NotFound", &namespace)).await.unwrap(), None);
    let lease = json!({"kind": "Lease", "metadata": {"name": object.name}});
    assert_eq!(asked(document(200, &lease)).await.unwrap(), Some(lease));
    asked(document(200, &json!({}))).await.unwrap_err();
    asked(document(200, &json!({"kind": "Lease", "metadata": {"name": "other"}}))).await.unwrap_err();
}
