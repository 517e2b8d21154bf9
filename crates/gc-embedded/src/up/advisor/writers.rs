//! Users who may write but not delete, against the server of `kubegc up`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use bytes::Bytes;
use gc_apiserver::{InProcess, RunningServer};
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};

use super::*;
use crate::apiserver::{self, ServerOptions};

const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const POLICIES: &str = "/apis/kubegc.io/v1alpha1/retentionpolicies";

struct Client(InProcess);

impl Client {
    async fn send(&self, method: &str, path: &str, content_type: &str, body: &Value) -> (u16, Value) {
        let request = Request::builder().method(method).uri(path).header("content-type", content_type);
        let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
        let (head, body) = self.0.call(request).await.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        (head.status.as_u16(), serde_json::from_slice(&bytes).unwrap_or_default())
    }

    async fn get(&self, path: &str) -> Value {
        self.send("GET", path, JSON, &Value::Null).await.1
    }

    async fn create(&self, path: &str, body: &Value) -> Value {
        let (code, answer) = self.send("POST", path, JSON, body).await;
        assert_eq!(code, 201, "{path}: {answer}");
        answer
    }
}

/// Source of the rule that users cannot delete through a collector.
#[derive(Clone, Copy, Debug)]
enum Rule {
    /// `kubegc up` itself.
    BuiltIn,
    /// deploy/admission, for other servers.
    Policies,
}

struct World {
    server: RunningServer,
    admin: Client,
}

impl World {
    async fn start(rule: Rule) -> Self {
        let advisor = RetentionAdvisor { expires: true, tools: Vec::new(), simulates: true };
        let advisor: Option<Arc<dyn Advisor>> = match rule {
            Rule::BuiltIn => Some(Arc::new(advisor)),
            Rule::Policies => None,
        };
        let options = ServerOptions { advisor, ..ServerOptions::in_process() };
        let server = apiserver::serve(&options, None).await.unwrap();
        let admin = Client(server.in_process("tester"));
        let world = Self { server, admin };
        if let Rule::Policies = rule {
            world.install_policies().await;
        }
        world
    }

    /// Installs deploy/admission, and returns once it is in force.
    async fn install_policies(&self) {
        let group = "/apis/admissionregistration.k8s.io/v1";
        for text in [
            include_str!("../../../../../deploy/admission/expiry.yaml"),
            include_str!("../../../../../deploy/admission/retention-policies.yaml"),
        ] {
            let objects: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
            for object in objects {
                let kind = object["kind"].as_str().unwrap().to_lowercase();
                let plural = kind.replace("policybinding", "policybindings");
                let plural = if plural == kind { kind.replace("policy", "policies") } else { plural };
                self.admin.create(&format!("{group}/{plural}"), &object).await;
            }
        }
        // A subresource cannot set an annotation, and a dry run changes nothing.
        let probe = json!({"metadata": {"annotations": {"kubegc.io/ttl": "1h"}}});
        while self.admin.send("PATCH", "/api/v1/namespaces/default/status?dryRun=All", MERGE, &probe).await.0
            == 200
        {
            tokio::task::yield_now().await;
        }
    }

    /// Grants rules to a user, in one namespace or everywhere, and returns once they are in force.
    async fn grant(&self, user: &str, namespace: Option<&str>, mut rules: Value) -> Client {
        let marker = json!({"apiGroups": ["test"], "resources": [user], "verbs": ["get"]});
        rules.as_array_mut().unwrap().push(marker);
        let (place, kind) = match namespace {
            Some(namespace) => (format!("{RBAC}/namespaces/{namespace}/"), "Role"),
            None => (format!("{RBAC}/cluster"), "ClusterRole"),
        };
        let path = |what: &str| format!("{place}{what}");
        self.admin.create(&path("roles"), &json!({"metadata": {"name": user}, "rules": rules})).await;
        let group = "rbac.authorization.k8s.io";
        let binding = json!({"metadata": {"name": user}, "roleRef": {"apiGroup": group, "kind": kind, "name": user},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}]});
        self.admin.create(&path("rolebindings"), &binding).await;
        let attributes = json!({"group": "test", "resource": user, "verb": "get", "namespace": namespace});
        let review = json!({"spec": {"user": user, "resourceAttributes": attributes}});
        let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        while self.admin.send("POST", reviews, JSON, &review).await.1["status"]["allowed"] != true {
            tokio::task::yield_now().await;
        }
        self.user(user)
    }

    fn user(&self, user: &str) -> Client {
        Client(self.server.in_process_as(user, &["system:authenticated"]))
    }
}

/// Returns rules to do everything except delete.
fn writer() -> Value {
    let verbs = ["get", "list", "watch", "create", "update", "patch", "impersonate"];
    json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": verbs}])
}

const POD: &str = "/api/v1/namespaces/shop/pods/p";
const MAP: &str = "/api/v1/namespaces/shop/configmaps/m";
const JOB: &str = "/apis/batch/v1/namespaces/shop/jobs/j";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/shop/deployments/d";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

async fn shop(rule: Rule) -> World {
    let world = World::start(rule).await;
    let admin = &world.admin;
    admin.create("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).await;
    admin.create("/api/v1/nodes", &json!({"metadata": {"name": "n"}})).await;
    let containers = json!([{"name": "c", "image": "i"}]);
    admin
        .create(
            "/api/v1/namespaces/shop/pods",
            &json!({"metadata": {"name": "p"}, "spec": {"containers": containers}}),
        )
        .await;
    let template = json!({"spec": {"containers": containers, "restartPolicy": "Never"}});
    admin
        .create(
            "/apis/batch/v1/namespaces/shop/jobs",
            &json!({"metadata": {"name": "j"}, "spec": {"template": template}}),
        )
        .await;
    let labels = json!({"app": "d"});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": containers}});
    admin
        .create(
            "/apis/apps/v1/namespaces/shop/deployments",
            &json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": labels}, "template": template}}),
        )
        .await;
    let keep = json!({"metadata": {"name": "m", "annotations": {"kubegc.io/keep": "true"}}});
    admin.create("/api/v1/namespaces/shop/configmaps", &keep).await;
    world
}

/// Returns the annotations and labels of an object that a collector acts on.
async fn marked(world: &World, path: &str) -> Value {
    let object = world.admin.get(path).await;
    let mut marks = Vec::new();
    for map in ["annotations", "labels"] {
        let members = object["metadata"][map].as_object().into_iter().flatten();
        let ours = members.filter(|(name, _)| name.contains("kubegc.io/") || name.contains("ttl"));
        marks.extend(ours.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default())));
    }
    json!(marks)
}

/// Users who may not delete cannot set an expiry, whatever way they write an object, with the marks of any tool.
#[tokio::test]
async fn whoever_may_not_delete_sets_no_expiry() {
    for rule in [Rule::BuiltIn, Rule::Policies] {
        no_expiry_by_writers(rule).await;
    }
}

async fn no_expiry_by_writers(rule: Rule) {
    let world = shop(rule).await;
    let mallory = world.grant("mallory", None, writer()).await;
    let annotated = |name: &str, text: &str| json!({"metadata": {"annotations": {name: text}}});
    let marks = [
        annotated("kubegc.io/ttl", "1s"),
        annotated("kubegc.io/expires-at", "2020-01-01T00:00:00Z"),
        annotated("kubegc.io/unused-since", "2020-01-01T00:00:00Z"),
        annotated("kubegc.io/unused-seen", "2020-01-01T00:00:00Z"),
        annotated("janitor/ttl", "1s"),
        annotated("janitor/expires", "2020-01-01"),
        annotated("k8s-ttl-controller.twin.sh/ttl", "1s"),
        json!({"metadata": {"labels": {"cleanup.kyverno.io/ttl": "1s"}}}),
    ];
    for path in [POD, MAP, JOB, DEPLOYMENT, "/api/v1/namespaces/shop", "/api/v1/nodes/n"] {
        let before = marked(&world, path).await;
        for mark in &marks {
            let live = world.admin.get(path).await;
            let mut whole = live.clone();
            let mut applied = json!({"apiVersion": live["apiVersion"], "kind": live["kind"], "metadata": {"name": live["metadata"]["name"]}});
            let mut operations = Vec::new();
            for (map, members) in mark["metadata"].as_object().unwrap() {
                let mut all = live["metadata"][map].as_object().cloned().unwrap_or_default();
                all.extend(members.as_object().unwrap().clone());
                operations.push(json!({"op": "add", "path": format!("/metadata/{map}"), "value": all}));
                whole["metadata"][map] = all.into();
                applied["metadata"][map] = members.clone();
            }
            for (method, query, content_type, body) in [
                ("PUT", "", JSON, &whole),
                ("PUT", "?dryRun=All", JSON, &whole),
                ("PATCH", "", MERGE, mark),
                ("PATCH", "", STRATEGIC, mark),
                ("PATCH", "", JSON_PATCH, &json!(operations)),
                ("PATCH", "?fieldManager=x&force=true", APPLY, &applied),
            ] {
                let (code, answer) =
                    mallory.send(method, &format!("{path}{query}"), content_type, body).await;
                assert_eq!(code, 403, "{rule:?} {method} {path} {content_type} {mark}: {answer}");
                assert_eq!(marked(&world, path).await, before, "{method} {path} {mark}");
            }
        }
    }
    let unkept = json!({"metadata": {"annotations": {"kubegc.io/keep": null}}});
    assert_eq!(mallory.send("PATCH", MAP, MERGE, &unkept).await.0, 403);
    let (code, answer) =
        mallory.send("PATCH", MAP, MERGE, &json!({"metadata": {"annotations": {"a": "b"}}})).await;
    assert_eq!(code, 200, "{answer}");
    world.server.shutdown().await;
}

/// The mark that keeps the objects of a definition may be set with only `update`, but not removed.
#[tokio::test]
async fn whoever_may_not_delete_frees_no_objects_of_a_definition() {
    for rule in [Rule::BuiltIn, Rule::Policies] {
        let world = World::start(rule).await;
        world.admin.create(DEFINITIONS, &gc_collectors::policies::definition::definition()).await;
        let path = format!("{DEFINITIONS}/retentionpolicies.kubegc.io");
        let mark = |value: Value| json!({"metadata": {"annotations": {"kubegc.io/keep-objects": value}}});
        let mallory = world.grant("mallory", None, writer()).await;
        for (value, code) in [(json!("true"), 200), (json!("false"), 403), (Value::Null, 403)] {
            let (found, answer) = mallory.send("PATCH", &path, MERGE, &mark(value.clone())).await;
            assert_eq!(found, code, "{rule:?} {value}: {answer}");
            assert_eq!(
                marked(&world, &path).await,
                json!(["kubegc.io/keep-objects=true"]),
                "{rule:?} {value}"
            );
        }
        assert_eq!(world.admin.send("PATCH", &path, MERGE, &mark(Value::Null)).await.0, 200);
        world.server.shutdown().await;
    }
}

/// No subresource changes a mark, not even for users who may delete.
#[tokio::test]
async fn a_subresource_sets_no_expiry() {
    for rule in [Rule::BuiltIn, Rule::Policies] {
        no_expiry_by_subresources(rule).await;
    }
}

async fn no_expiry_by_subresources(rule: Rule) {
    let world = shop(rule).await;
    // The built-in check ignores the annotations; a policy can only refuse the request.
    let expected = |success: u16| match rule {
        Rule::BuiltIn => success,
        Rule::Policies => 422,
    };
    let mallory = world.grant("mallory", None, writer()).await;
    let mark = json!({"metadata": {"annotations": {"kubegc.io/ttl": "1s", "janitor/ttl": "1s", "kubegc.io/stopped": "true"},
        "labels": {"cleanup.kyverno.io/ttl": "1s"}}});
    let paths = [
        format!("{POD}/status"),
        format!("{POD}/ephemeralcontainers"),
        format!("{POD}/resize"),
        format!("{JOB}/status"),
        "/api/v1/namespaces/shop/status".to_owned(),
        "/api/v1/namespaces/shop/finalize".to_owned(),
        "/api/v1/nodes/n/status".to_owned(),
    ];
    for path in &paths {
        let object = path.rsplit_once('/').unwrap().0;
        for client in [&mallory, &world.admin] {
            for content_type in [MERGE, STRATEGIC] {
                let (code, answer) = client.send("PATCH", path, content_type, &mark).await;
                // `finalize` accepts only a PUT, and some subresources ignore what else is sent.
                assert!([expected(200), 200, 405].contains(&code), "{path}: {code} {answer}");
                assert_eq!(marked(&world, object).await, json!([]), "{path}");
            }
            let mut whole = world.admin.get(object).await;
            whole["metadata"]["annotations"] = mark["metadata"]["annotations"].clone();
            let (code, answer) = client.send("PUT", path, JSON, &whole).await;
            assert!([expected(200), 200].contains(&code), "{path}: {code} {answer}");
            assert_eq!(marked(&world, object).await, json!([]), "{path}");
        }
    }
    for (pod, path) in [("q", "pods/q/binding"), ("r", "bindings")] {
        let pods = "/api/v1/namespaces/shop/pods";
        let mut copy = json!({"metadata": {"name": pod}, "spec": world.admin.get(POD).await["spec"]});
        copy["spec"].as_object_mut().unwrap().remove("nodeName");
        world.admin.create(pods, &copy).await;
        let mut binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": mark["metadata"],
            "target": {"kind": "Node", "name": "n"}});
        binding["metadata"]["name"] = pod.into();
        let path = format!("/api/v1/namespaces/shop/{path}");
        let (code, answer) = mallory.send("POST", &path, JSON, &binding).await;
        assert_eq!(code, expected(201), "{path}: {answer}");
        assert_eq!(marked(&world, &format!("{pods}/{pod}")).await, json!([]), "{path}");
    }
    world.server.shutdown().await;
}

/// `delete` on only the subresource, in another namespace or on another name is not permission to delete the object.
#[tokio::test]
async fn only_the_permission_to_delete_this_object_counts() {
    let world = shop(Rule::BuiltIn).await;
    let mark = json!({"metadata": {"annotations": {"kubegc.io/ttl": "1h"}}});
    let rule = |verbs: &[&str], resources: &[&str], names: &[&str]| json!({"apiGroups": [""], "resources": resources, "verbs": verbs, "resourceNames": names});
    let patch = || rule(&["patch"], &["configmaps", "namespaces", "pods", "pods/status"], &[]);
    let others =
        json!([patch(), rule(&["delete"], &["configmaps"], &["other"]), rule(&["*"], &["pods/status"], &[])]);
    let others = world.grant("others", None, others).await;
    assert_eq!(others.send("PATCH", MAP, MERGE, &mark).await.0, 403);
    // Nor does it permit setting an owner that does not exist.
    let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "gone"}]);
    let owned = json!({"metadata": {"ownerReferences": owners}});
    others.send("PATCH", &format!("{POD}/status"), MERGE, &owned).await;
    assert_eq!(world.admin.get(POD).await["metadata"]["ownerReferences"], Value::Null);

    let held = json!([patch(), rule(&["delete"], &["configmaps", "namespaces"], &["m", "shop"])]);
    let owner = world.grant("owner", Some("shop"), held).await;
    for path in [MAP, "/api/v1/namespaces/shop"] {
        let (code, answer) = owner.send("PATCH", path, MERGE, &mark).await;
        assert_eq!(code, 200, "{path}: {answer}");
    }
    // A writer without permission to delete may extend or remove an existing mark.
    let later = json!({"metadata": {"annotations": {"kubegc.io/ttl": "2h"}}});
    let removed = json!({"metadata": {"annotations": {"kubegc.io/ttl": null}}});
    for (body, code) in [(&later, 200), (&mark, 403), (&removed, 200), (&later, 403)] {
        assert_eq!(others.send("PATCH", MAP, MERGE, body).await.0, code, "{body}");
    }
    world.server.shutdown().await;
}

/// A policy requires `list` and `delete` on the objects that it is about, in all their namespaces.
#[tokio::test]
async fn a_policy_does_for_its_author_what_the_author_may_do() {
    for rule in [Rule::BuiltIn, Rule::Policies] {
        policies_of_writers(rule).await;
    }
}

async fn policies_of_writers(rule: Rule) {
    let world = shop(rule).await;
    world.admin.create(DEFINITIONS, &gc_collectors::policies::definition::definition()).await;
    while world.admin.send("GET", POLICIES, JSON, &Value::Null).await.0 != 200 {
        tokio::task::yield_now().await;
    }
    let mallory = world.grant("mallory", None, writer()).await;
    let policies = json!({"apiGroups": ["kubegc.io"], "resources": ["retentionpolicies"], "verbs": ["*"]});
    let all = |verbs: &[&str]| json!({"apiGroups": [""], "resources": ["configmaps", "namespaces"], "verbs": verbs});
    let reader = world.grant("reader", None, json!([policies, all(&["list"])])).await;
    let deleter = world.grant("deleter", None, json!([policies, all(&["delete"])])).await;
    let both = world.grant("both", None, json!([policies, all(&["list", "delete"])])).await;
    world.grant("local", Some("shop"), json!([all(&["list", "delete"])])).await;
    let binding = json!({"metadata": {"name": "local"}, "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "local"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "policies"}});
    world
        .admin
        .create(
            &format!("{RBAC}/clusterroles"),
            &json!({"metadata": {"name": "policies"}, "rules": [policies]}),
        )
        .await;
    world.admin.create(&format!("{RBAC}/clusterrolebindings"), &binding).await;
    let local = world.user("local");
    while local.send("GET", POLICIES, JSON, &Value::Null).await.0 != 200 {
        tokio::task::yield_now().await;
    }
    let policy = |kind: &str, include: Value| {
        json!({"apiVersion": "kubegc.io/v1alpha1", "kind": "RetentionPolicy",
        "metadata": {"name": "x"}, "spec": {"target": {"apiVersion": "v1", "kind": kind}, "maxAge": "1h",
        "condition": "object.data.password.startsWith('a')", "namespaces": {"include": include}}})
    };
    let created = |client: &Client, policy: Value| {
        let client = Client(client.0.clone());
        async move { client.send("POST", &format!("{POLICIES}?dryRun=All"), JSON, &policy).await.0 }
    };
    for (kind, include, expected) in [
        ("ConfigMap", json!([]), [403, 403, 403, 201, 403]),
        ("ConfigMap", json!(["shop"]), [403, 403, 403, 201, 201]),
        ("ConfigMap", json!(["shop", "default"]), [403, 403, 403, 201, 403]),
        ("ConfigMap", json!(["sho*"]), [403, 403, 403, 201, 403]),
        ("Namespace", json!(["shop"]), [403, 403, 403, 201, 403]),
        ("Pod", json!(["shop"]), [403, 403, 403, 403, 403]),
        ("NotServed", json!(["shop"]), [403, 403, 403, 403, 403]),
    ] {
        let mut codes = Vec::new();
        for client in [&mallory, &reader, &deleter, &both, &local] {
            codes.push(created(client, policy(kind, include.clone())).await);
        }
        assert_eq!(codes, expected, "{rule:?} {kind} {include}");
    }
    // The same applies to changing an existing one, except for changes that leave its specification alone.
    world.admin.create(POLICIES, &policy("ConfigMap", json!(["default"]))).await;
    let path = format!("{POLICIES}/x");
    for (body, code) in [
        (json!({"spec": {"namespaces": {"include": ["shop"]}}}), 403),
        (json!({"spec": {"enforce": true}}), 403),
        (json!({"spec": {"condition": "true"}}), 403),
        (json!({"metadata": {"labels": {"a": "b"}}}), 200),
    ] {
        let (found, answer) = mallory.send("PATCH", &path, MERGE, &body).await;
        assert_eq!(found, code, "{rule:?} {body}: {answer}");
    }
    world.server.shutdown().await;
}
