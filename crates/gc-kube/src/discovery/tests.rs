#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test
use super::*;
use http::Response;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Barrier;

fn server(documents: Vec<(&'static str, u16, Value)>) -> ApiClient {
    let documents = Arc::new(documents);
    ApiClient::in_process(move |request| {
        let documents = Arc::clone(&documents);
        async move {
            let found = documents.iter().find(|(path, ..)| *path == request.uri().path());
            let (code, body) = found.map_or((404, Value::Null), |(_, code, body)| (*code, body.clone()));
            Response::builder().status(code).body(Full::new(Bytes::from(body.to_string()))).unwrap()
        }
    })
}

/// Formats each resource as `group/resource version kind scope collectable shares-the-store [served]`.
fn lines(discovered: &Discovery) -> Vec<String> {
    discovered
        .resources
        .values()
        .map(|served| {
            format!(
                "{}/{} {} {} {:?} {} {} {:?}",
                served.group,
                served.resource,
                served.version,
                served.kind,
                served.scope,
                served.is_collectable(),
                served.comparable_versions,
                served.served_api_versions.iter().map(|text| &**text).collect::<Vec<_>>(),
            )
        })
        .collect()
}

fn resource(name: &str, kind: &str, scope: &str, verbs: &[&str]) -> Value {
    json!({"resource": name, "responseKind": {"group": "", "version": "", "kind": kind},
        "scope": scope, "verbs": verbs, "subresources": [{"subresource": "status"}]})
}

const ALL: &[&str] = &["delete", "get", "list", "watch"];

fn aggregated(groups: &Value) -> Value {
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": groups})
}

#[tokio::test]
async fn aggregated_discovery_is_read_and_a_stale_version_fails_alone() {
    let core = aggregated(&json!([{"metadata": {"name": ""}, "versions": [{
    "version": "v1", "freshness": "Current", "resources": [
        resource("pods", "Pod", "Namespaced", ALL),
        resource("nodes", "Node", "Cluster", ALL),
        resource("bindings", "Binding", "Namespaced", &["create"]),
    ]}]}]));
    let groups = aggregated(&json!([
        {"metadata": {"name": "autoscaling"}, "versions": [
            {"version": "v2", "freshness": "Current",
                "resources": [resource("horizontalpodautoscalers", "HorizontalPodAutoscaler", "Namespaced", ALL)]},
            {"version": "v1", "freshness": "Current",
                "resources": [resource("horizontalpodautoscalers", "HorizontalPodAutoscaler", "Namespaced", ALL)]},
        ]},
        {"metadata": {"name": "dead.example.com"}, "versions": [{"version": "v1", "freshness": "Stale",
            "resources": [resource("ghosts", "Ghost", "Namespaced", ALL)]}]},
        {"metadata": {"name": "far.example.com"}, "versions": [{"version": "v1", "freshness": "Current",
            "resources": [resource("stars", "Star", "Cluster", ALL)]}]},
    ]));
    let services = json!({"items": [
        {"spec": {"group": "far.example.com", "version": "v1", "service": {"name": "far"}}},
        {"spec": {"group": "autoscaling", "version": "v2"}},
    ]});
    let client = server(vec![
        ("/api", 200, core),
        ("/apis", 200, groups),
        ("/apis/apiregistration.k8s.io/v1/apiservices", 200, services),
    ]);
    let discovered = discover(&client).await.unwrap();
    assert_eq!(
        lines(&discovered),
        [
            "/bindings v1 Binding Namespaced false true [\"v1\"]",
            "/nodes v1 Node Cluster true true [\"v1\"]",
            "/pods v1 Pod Namespaced true true [\"v1\"]",
            "autoscaling/horizontalpodautoscalers v2 HorizontalPodAutoscaler Namespaced true true [\"autoscaling/v2\", \"autoscaling/v1\"]",
            "far.example.com/stars v1 Star Cluster true false [\"far.example.com/v1\"]",
        ]
    );
    let failed = FailedGroup {
        group: "dead.example.com".into(),
        version: Some("v1".into()),
        message: "the server could not refresh it".into(),
    };
    assert_eq!(discovered.failed, [failed]);
    assert!(discovered.is_unclear("dead.example.com") && !discovered.is_unclear("autoscaling"));
}

/// G123: subresources are skipped, the preferred version comes first, and a failing group only affects itself.
#[tokio::test]
async fn the_older_form_is_read_where_there_is_no_other() {
    let client = server(vec![
        ("/api", 200, json!({"kind": "APIVersions", "versions": ["v1"]})),
        (
            "/api/v1",
            200,
            json!({"kind": "APIResourceList", "resources": [
                {"name": "pods", "kind": "Pod", "namespaced": true, "verbs": ALL},
                {"name": "pods/status", "kind": "Pod", "namespaced": true, "verbs": ["get"]},
                {"name": "services", "kind": "Service", "namespaced": true},
            ]}),
        ),
        (
            "/apis",
            200,
            json!({"kind": "APIGroupList", "groups": [
                {"name": "apps", "versions": [{"version": "v1beta1"}, {"version": "v1"}],
                    "preferredVersion": {"version": "v1"}},
                {"name": "acme", "versions": [{"version": "v1"}], "preferredVersion": {"version": "v1"}},
            ]}),
        ),
        (
            "/apis/apps/v1",
            200,
            json!({"resources": [{"name": "deployments", "kind": "Deployment", "namespaced": true, "verbs": ALL}]}),
        ),
        (
            "/apis/apps/v1beta1",
            200,
            json!({"resources": [{"name": "deployments", "kind": "Deployment", "namespaced": true, "verbs": ALL}]}),
        ),
        ("/apis/acme/v1", 503, json!({"kind": "Status", "message": "the extension is away"})),
    ]);
    let discovered = discover(&client).await.unwrap();
    assert_eq!(
        lines(&discovered),
        [
            "/pods v1 Pod Namespaced true true [\"v1\"]",
            "/services v1 Service Namespaced false true [\"v1\"]",
            "apps/deployments v1 Deployment Namespaced true true [\"apps/v1\", \"apps/v1beta1\"]",
        ]
    );
    let failed: Vec<_> = discovered.failed.iter().map(|failed| (&*failed.group, &*failed.message)).collect();
    assert_eq!(failed, [("acme", "GET /apis/acme/v1 was answered with 503: the extension is away")]);
}

#[tokio::test]
async fn a_server_that_says_nothing_usable_is_an_error() {
    for (code, body) in [(403, json!({"kind": "Status", "message": "no"})), (200, json!([1]))] {
        let client = server(vec![("/api", code, body)]);
        assert!(discover(&client).await.is_err(), "{code}");
    }
}

/// One half of the served resources is known although the other half cannot be seen; nothing is concluded about the latter.
#[tokio::test]
async fn one_half_that_fails_leaves_the_other() {
    let group = |name: &str, resource_name: &str| {
        aggregated(
            &json!([{"metadata": {"name": name}, "versions": [{"version": "v1", "freshness": "Current",
            "resources": [resource(resource_name, "Kind", "Namespaced", ALL)]}]}]),
        )
    };
    let away = || json!({"kind": "Status", "message": "away"});
    for (core, named, seen, unclear) in [
        ((503, away()), (200, group("apps", "deployments")), "apps", [true, false]),
        ((200, group("", "pods")), (503, away()), "", [false, true]),
    ] {
        let client = server(vec![("/api", core.0, core.1), ("/apis", named.0, named.1)]);
        let discovered = discover(&client).await.unwrap();
        assert_eq!(discovered.resources.keys().map(|(group, _)| &**group).collect::<Vec<_>>(), [seen]);
        assert_eq!(["", "apps"].map(|group| discovered.is_unclear(group)), unclear);
    }
}

/// In the older form of discovery, a dead aggregated API is given a short time, and delays no other group.
#[tokio::test]
async fn a_group_that_does_not_answer_fails_alone() {
    let (asked, both_asked) = (Arc::new(Barrier::new(2)), Arc::new(AtomicBool::new(false)));
    let seen = Arc::clone(&both_asked);
    let client = ApiClient::in_process(move |request| {
        let (asked, seen) = (Arc::clone(&asked), Arc::clone(&seen));
        async move {
            let group = |name: &str| json!({"name": name, "versions": [{"version": "v1"}]});
            let body = match request.uri().path() {
                "/api" => json!({"kind": "APIVersions", "versions": ["v1"]}),
                "/apis" => {
                    json!({"kind": "APIGroupList", "groups": [group("dead"), group("far"), group("alive")]})
                }
                "/apis/dead/v1" | "/apis/far/v1" => {
                    asked.wait().await;
                    seen.store(true, Ordering::SeqCst);
                    std::future::pending().await
                }
                "/api/v1" | "/apis/alive/v1" => {
                    json!({"resources": [{"name": "things", "kind": "Thing", "namespaced": true, "verbs": ALL}]})
                }
                _ => Value::Null,
            };
            Response::new(Full::new(Bytes::from(body.to_string())))
        }
    });
    let discovered = discover(&client).await.unwrap();
    assert!(both_asked.load(Ordering::SeqCst), "both at once, not one after the other");
    let failed: Vec<_> = discovered.failed.iter().map(|failed| &*failed.group).collect();
    assert_eq!(failed, ["dead", "far"]);
    assert_eq!(discovered.resources.keys().map(|(group, _)| &**group).collect::<Vec<_>>(), ["", "alive"]);
}
