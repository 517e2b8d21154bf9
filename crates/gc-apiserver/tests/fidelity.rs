//! Answers that kube-apiserver 1.36.2 gave to the same requests, for kinds and paths with special rules.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test
#![allow(clippy::needless_pass_by_value, reason = "a document written in place reads best")]

mod support;

use serde_json::{Value, json};
use support::TestServer;

const APPLY: &[(&str, &str)] = &[("content-type", "application/apply-patch+yaml")];
const JSON: &[(&str, &str)] = &[("content-type", "application/json")];
const MERGE: &[(&str, &str)] = &[("content-type", "application/merge-patch+json")];
const JSON_PATCH: &[(&str, &str)] = &[("content-type", "application/json-patch+json")];
const STRATEGIC: &[(&str, &str)] = &[("content-type", "application/strategic-merge-patch+json")];

const CORE: &str = "/api/v1/namespaces/default";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// A request, its code, and the end of its message; empty if the answer is not a Status.
type Row<'r> = (&'r str, &'r str, &'r [(&'r str, &'r str)], Value, u16, &'r str);

/// Sends the requests one after another. A body that is a text is sent verbatim.
async fn play(server: &TestServer, rows: &[Row<'_>]) {
    for (method, path, headers, body, code, wanted) in rows {
        let bytes = match body {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let answer = server.send(method, path, headers, bytes).await;
        let found: Value = serde_json::from_slice(&answer.bytes).unwrap_or_default();
        let message =
            if found["kind"] == "Status" { found["message"].as_str().unwrap_or_default() } else { "" };
        assert_eq!(answer.code, *code, "{method} {path} {body}: {message}");
        assert!(message.ends_with(wanted), "{method} {path} {body}: {message}");
        assert_eq!(message.is_empty(), wanted.is_empty(), "{method} {path} {body}: {message}");
    }
}

fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

async fn with_widgets(properties: Value, subresources: Value) -> TestServer {
    let server = TestServer::start().await;
    let schema =
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": subresources,
                "schema": {"openAPIV3Schema": schema}}]},
    });
    assert_eq!(server.post(DEFINITIONS, &definition).await.code, 201);
    server
}

#[tokio::test]
async fn custom_resources_say_what_they_are() {
    let server = with_widgets(json!({"a": {"type": "integer"}}), json!({"status": {}})).await;
    let a = format!("{WIDGETS}/a");
    let status = format!("{a}/status");
    play(
        &server,
        &[
            ("POST", WIDGETS, JSON, widget("a", json!({"a": 1})), 201, ""),
            (
                "POST",
                WIDGETS,
                JSON,
                json!({"kind": "Widget", "metadata": {"name": "b"}}),
                400,
                "the API version in the data () does not match the expected API version (example.com/v1)",
            ),
            ("POST", WIDGETS, JSON, json!("{}"), 400, "Object 'Kind' is missing in '{}' ({})"),
            (
                "POST",
                WIDGETS,
                JSON,
                json!({"apiVersion": "example.com/v1", "kind": "Other", "metadata": {"name": "b"}}),
                422,
                "Other.example.com \"b\" is invalid: kind: Invalid value: \"Other\": must be Widget",
            ),
            (
                "PATCH",
                &a,
                MERGE,
                json!({"kind": "Other"}),
                422,
                "Other.example.com \"a\" is invalid: kind: Invalid value: \"Other\": must be Widget",
            ),
            (
                "PATCH",
                &a,
                MERGE,
                json!({"apiVersion": "x/v1"}),
                422,
                "Widget.x \"a\" is invalid: apiVersion: Invalid value: \"x/v1\": must be example.com/v1",
            ),
            ("PATCH", WIDGETS, MERGE, json!({}), 400, "name must be provided"),
            (
                "DELETE",
                &status,
                &[],
                Value::Null,
                405,
                "delete is not supported on resources of kind \"widgets.example.com\"",
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn nulls_and_unknown_fields_of_custom_resources_are_found() {
    let properties = json!({"a": {"type": "integer"}, "o": {"type": "object", "properties": {"x": {"type": "string"}}},
        "d": {"type": "string", "default": "q"}});
    let server = with_widgets(properties, json!({})).await;
    let strict = format!("{WIDGETS}?fieldValidation=Strict");
    let applied = |name: &str| format!("{WIDGETS}/{name}?fieldManager=m");
    play(
        &server,
        &[
            ("POST", &strict, JSON, widget("a", json!({"a": {"b": 1}})), 400, "unknown field \"spec.a.b\""),
            (
                "POST",
                &strict,
                JSON,
                widget("a", json!({"a": [{"b": 1}]})),
                400,
                "unknown field \"spec.a[0].b\"",
            ),
            (
                "POST",
                WIDGETS,
                JSON,
                widget("a", json!({"a": {"b": 1}})),
                422,
                "spec.a in body must be of type integer: \"object\"",
            ),
            ("POST", WIDGETS, JSON, widget("a", json!({"o": null})), 201, ""),
            (
                "PATCH",
                &applied("b"),
                APPLY,
                widget("b", json!({"o": null})),
                422,
                "spec.o in body must be of type object: \"null\"",
            ),
            ("PATCH", &applied("c"), APPLY, widget("c", json!({"d": null})), 201, ""),
        ],
    )
    .await;
    assert_eq!(server.get(&format!("{WIDGETS}/c")).await.json()["spec"], json!({"d": "q"}));
}

#[tokio::test]
async fn scales_are_read_as_they_are_written() {
    let replicas = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"});
    let server = with_widgets(json!({"replicas": {"type": "integer"}}), json!({"scale": replicas})).await;
    let custom = format!("{WIDGETS}/a/scale");
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let built_in = format!("{deployments}/d/scale");
    let strict = format!("{built_in}?fieldValidation=Strict");
    let scale = |version: &str, metadata: Value, replicas: i64| json!({"apiVersion": version, "kind": "Scale", "metadata": metadata, "spec": {"replicas": replicas}});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let mut unknown = scale("autoscaling/v1", json!({"name": "d"}), 1);
    unknown["spec"]["more"] = 1.into();
    play(&server, &[
        ("POST", WIDGETS, JSON, widget("a", json!({})), 201, ""),
        ("GET", &custom, &[], Value::Null, 500, "the spec replicas field \".spec.replicas\" does not exist"),
        ("PATCH", &custom, MERGE, json!({"spec": {"replicas": -1}}), 422,
            "Widget.example.com \"a\" is invalid: .spec.replicas: Invalid value: -1: should be a non-negative integer"),
        ("PATCH", &custom, MERGE, json!({"spec": {"replicas": 2}}), 200, ""),
        ("GET", &custom, &[], Value::Null, 200, ""),
        ("POST", deployments, JSON, deployment, 201, ""),
        ("PUT", &built_in, JSON, scale("autoscaling/v1", json!({"name": "d", "namespace": "x"}), 1), 400,
            "the namespace of the provided object does not match the namespace sent on the request"),
        ("PUT", &built_in, JSON, scale("extensions/v1beta1", json!({"name": "d"}), 1), 400,
            "the API version in the data (extensions/v1beta1) does not match the expected API version (autoscaling/v1)"),
        ("PUT", &strict, JSON, unknown, 400, "strict decoding error: unknown field \"spec.more\""),
    ]).await;
}

#[tokio::test]
async fn bodies_and_patches_are_decoded_as_go_does() {
    let server = TestServer::start().await;
    server.config_map("a").await;
    let maps = format!("{CORE}/configmaps");
    let (a, none) = (format!("{maps}/a"), format!("{maps}/none"));
    let forget = json!({"metadata": {"managedFields": []}});
    let of_type = "of type string";
    play(&server, &[
        ("POST", &maps, JSON, json!("{\"apiVersion\":\"v1\",\"kind\":1}"), 400,
            "json: cannot unmarshal number into Go struct field .kind of type string ({\"apiVersion\":\"v1\",\"kind\":1})"),
        ("PATCH", &a, MERGE, json!({"apiVersion": []}), 422,
            "json: cannot unmarshal array into Go struct field .apiVersion of type string"),
        ("PATCH", &a, JSON_PATCH, json!([{"op": "add", "path": "/kind", "value": true}]), 422, of_type),
        ("PATCH", &a, JSON_PATCH, json!("null"), 200, ""),
        ("PATCH", &a, STRATEGIC, json!("null"), 200, ""),
        ("PATCH", &a, MERGE, json!("null"), 400, "Invalid JSON Patch"),
        // An absent object is not found, whatever the patch contains.
        ("PATCH", &none, MERGE, json!("{"), 404, "configmaps \"none\" not found"),
        ("PATCH", &a, MERGE, json!("{"), 400, "error decoding patch: unexpected end of JSON input"),
        ("PATCH", &a, MERGE, json!("{\"a\":01}"), 400, "invalid character '1' after object key:value pair"),
        ("PATCH", &a, MERGE, json!("{\"a\":1.}"), 400, "invalid character '}' after decimal point in numeric literal"),
        ("PATCH", &a, MERGE, json!("{\"a\":1e400}"), 400, "json: cannot unmarshal number 1e400 into Go value of type float64"),
        ("DELETE", &none, JSON, json!("null"), 404, "configmaps \"none\" not found"),
        ("DELETE", &none, JSON, json!("{"), 400, "couldn't get version/kind; json parse error: unexpected end of JSON input"),
        ("PATCH", &a, MERGE, forget, 200, ""),
        ("GET", &format!("{maps}/."), &[], Value::Null, 400, "Name parameter invalid: \".\": may not be '.'"),
    ]).await;
    assert_eq!(server.get(&a).await.json()["metadata"]["managedFields"], Value::Null);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let pod = pod.to_string().replace("\"spec\":{", "\"spec\":{\"terminationGracePeriodSeconds\":-0,");
    play(&server, &[("POST", &format!("{CORE}/pods"), JSON, pod.into(), 201, "")]).await;
}

#[tokio::test]
async fn applied_numbers_are_cut_to_their_types() {
    let server = TestServer::start().await;
    let lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l?fieldManager=m";
    let service = format!("{CORE}/services/s?fieldManager=m");
    let map = format!("{CORE}/configmaps/c?fieldManager=m");
    let body = |version: &str, kind: &str, name: &str, rest: &str| {
        Value::from(format!(
            "{{\"apiVersion\":\"{version}\",\"kind\":\"{kind}\",\"metadata\":{{\"name\":\"{name}\"}},{rest}}}"
        ))
    };
    let of_lease = |seconds: &str| {
        body(
            "coordination.k8s.io/v1",
            "Lease",
            "l",
            &format!("\"spec\":{{\"leaseDurationSeconds\":{seconds}}}"),
        )
    };
    let port = "\"spec\":{\"ports\":[{\"port\":1,\"targetPort\":1e3}]}";
    let of_map = |rest: &str| body("v1", "ConfigMap", "c", rest);
    play(
        &server,
        &[
            ("PATCH", lease, APPLY, of_lease("1e3"), 201, ""),
            ("PATCH", lease, APPLY, of_lease("1.5"), 500, "cannot convert float64 to int32"),
            ("PATCH", lease, APPLY, of_lease("9223372036854775808"), 422, "Invalid value: 0: must be greater than 0"),
            ("PATCH", &service, APPLY, body("v1", "Service", "s", port), 201, ""),
            ("PATCH", &map, APPLY, of_map("\"immutable\":1e6"), 500, "expected boolean, got &{1e+06}"),
            (
                "PATCH",
                &map,
                APPLY,
                of_map("\"data\":{\"k\":[1, {\"a\": \"b\"}]}"),
                500,
                ".data.k: expected string, got &value.valueUnstructured{Value:[]interface {}{1, map[string]interface \
                 {}{\"a\":\"b\"}}}",
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn subresources_of_pods_and_accounts_have_their_words() {
    let server = TestServer::start().await;
    let pods = format!("{CORE}/pods");
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    let budget = |name: &str| {
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"a": "b"}}}})
    };
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let token = |metadata: Value, bound: Value| {
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": metadata,
            "spec": {"boundObjectRef": bound}})
    };
    let tokens = format!("{CORE}/serviceaccounts/robot/token");
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p", "namespace": "x"},
        "target": {"kind": "Node", "name": "n"}});
    let policy =
        json!({"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}], "name": "c"});
    let resize = json!({"spec": {"containers": [policy]}});
    let running = json!({"status": {"phase": "Running"}});
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    let reference =
        |name: &str, uid: &str| json!({"kind": "Pod", "apiVersion": "v1", "name": name, "uid": uid});
    play(&server, &[
        ("POST", &pods, JSON, pod, 201, ""),
        ("PATCH", &format!("{pods}/p/status"), MERGE, running, 200, ""),
        ("PATCH", &format!("{pods}/p/resize"), STRATEGIC, resize, 422,
            "spec: Forbidden: only cpu and memory resources are mutable"),
        ("POST", &format!("{pods}/p/binding"), JSON, binding, 400,
            "the namespace of the provided object does not match the namespace sent on the request"),
        ("POST", budgets, JSON, budget("one"), 201, ""),
        ("POST", budgets, JSON, budget("two"), 201, ""),
        ("POST", &format!("{pods}/p/eviction"), JSON, eviction.clone(), 500,
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."),
        ("POST", &format!("{CORE}/serviceaccounts"), JSON, account, 201, ""),
        ("POST", &tokens, JSON, token(json!({"name": "x"}), Value::Null), 422,
            "metadata.name: Invalid value: \"x\": must match the service account name if specified"),
        ("POST", &tokens, JSON, token(json!({}), reference("", "")), 400, "Name parameter required."),
    ]).await;
    let evicted = server.post(&format!("{pods}/p/eviction"), &eviction).await.json();
    assert_eq!(evicted["reason"], Value::Null);
    let refused = server.post(&tokens, &token(json!({}), reference("p", "x"))).await.json();
    assert_eq!(refused["details"], json!({"name": "p", "kind": "Pod"}));
}

#[tokio::test]
async fn bindings_name_a_role_that_can_be_looked_up() {
    let server = TestServer::start().await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let group = "rbac.authorization.k8s.io";
    let bindings = format!("{rbac}/namespaces/default/rolebindings");
    let role = json!({"apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": {"name": "give"},
        "rules": [{"apiGroups": [group], "resources": ["rolebindings"], "verbs": ["*"]}]});
    let binding = |name: &str, kind: &str, role: &str| {
        json!({"apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": kind, "name": role},
            "subjects": [{"kind": "User", "apiGroup": group, "name": "mallory"}]})
    };
    let mallory: &[(&str, &str)] = &[("content-type", "application/json"), ("impersonate-user", "mallory")];
    play(
        &server,
        &[
            ("POST", &format!("{rbac}/namespaces/default/roles"), JSON, role, 201, ""),
            ("POST", &bindings, JSON, binding("give", "Role", "give"), 201, ""),
            (
                "POST",
                &bindings,
                mallory,
                binding("b", "Nope", "x"),
                500,
                "unsupported role reference kind: \"Nope\"",
            ),
            ("POST", &bindings, mallory, binding("b", "Role", ""), 400, "Name parameter required."),
            (
                "POST",
                &bindings,
                mallory,
                binding("b", "Role", "x"),
                404,
                "rolebindings.rbac.authorization.k8s.io \"x\" not found",
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn paths_are_served_to_their_methods_alone() {
    let server = TestServer::start().await;
    server.config_map("a").await;
    let watched = "/api/v1/watch/namespaces/default/configmaps";
    let not_allowed = "the server does not allow this method on the requested resource";
    let as_table: &[(&str, &str)] = &[("accept", "application/json;as=Table;g=meta.k8s.io;v=v1")];
    let accepted = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
    play(
        &server,
        &[
            ("DELETE", watched, &[], Value::Null, 405, not_allowed),
            ("DELETE", &format!("{watched}/a"), &[], Value::Null, 405, not_allowed),
            ("GET", &format!("{CORE}/configmaps/a"), &[], Value::Null, 200, ""),
            ("GET", "/version/x", &[], Value::Null, 404, "the server could not find the requested resource"),
            ("HEAD", "/version", &[], Value::Null, 405, ""),
            ("GET", "/apis", as_table, Value::Null, 406, accepted),
            ("GET", "/apis/apps/v1", as_table, Value::Null, 406, accepted),
            (
                "GET",
                &format!("{CORE}/configmaps?timeout=1"),
                &[],
                Value::Null,
                400,
                "time: missing unit in duration \"1\"",
            ),
        ],
    )
    .await;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {"name": "x"}});
    let review = server.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).await.json();
    let members: Vec<&String> = review["metadata"].as_object().unwrap().keys().collect();
    assert_eq!(members, ["creationTimestamp"]);
}

#[tokio::test]
async fn openapi_documents_are_answered_whatever_the_method() {
    let server = TestServer::start().await;
    let known: &[(&str, &str)] = &[("if-none-match", "*")];
    let html: &[(&str, &str)] = &[("accept", "text/html")];
    let protobuf: &[(&str, &str)] =
        &[("accept", "application/com.github.proto-openapi.spec.v3@v1.0+protobuf")];
    let three = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";
    let text = "text/plain; charset=utf-8";
    for (method, path, headers, code, content_type) in [
        ("GET", "/openapi/v3", &[][..], 200, text),
        ("POST", "/openapi/v3", &[], 200, text),
        ("GET", "/openapi/v3", html, 200, text),
        ("GET", "/openapi/v3", known, 304, ""),
        ("POST", "/openapi/v3", known, 412, ""),
        ("GET", "/openapi/v3/apis/apps/v1", html, 406, ""),
        ("GET", "/openapi/v3/apis/apps/v1", protobuf, 200, three),
        ("GET", "/openapi/v3/apis/apps/v1", known, 304, ""),
        ("POST", "/openapi/v3/apis/apps/v1", known, 412, "application/json"),
        ("POST", "/openapi/v2", &[], 200, "application/json"),
        ("GET", "/openapi/v2", html, 406, ""),
        ("GET", "/openapi/v2/", &[], 404, text),
        ("GET", "/openapi/v3/nope", &[], 404, ""),
    ] {
        let answer = server.send(method, path, headers, "").await;
        assert_eq!((answer.code, answer.header("content-type")), (code, content_type), "{method} {path}");
    }
}
