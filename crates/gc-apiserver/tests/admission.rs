//! Policies must see the options of a request, and every request that is admitted without being stored as it is.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;

use serde_json::{Value, json};
use support::TestServer;

const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const DEFAULT: &str = "/api/v1/namespaces/default";

/// Creates a policy for one operation, whose expression must hold.
async fn require(server: &TestServer, (group, resource, operation): (&str, &str, &str), expression: &str) {
    let name = format!("{}-{}", resource.replace('/', "-").replace('*', "all"), operation.to_lowercase());
    let policy = json!({
        "metadata": {"generateName": name},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [group], "apiVersions": ["*"], "operations": [operation], "resources": [resource],
            }]},
            "validations": [{"expression": expression, "message": "refused"}],
        },
    });
    let created = server.post(&format!("{ADMISSION}/validatingadmissionpolicies"), &policy).await;
    assert_eq!(created.code, 201, "{expression}: {created:?}");
    let name = created.json()["metadata"]["name"].clone();
    let binding =
        json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}});
    let path = format!("{ADMISSION}/validatingadmissionpolicybindings");
    assert_eq!(server.post(&path, &binding).await.code, 201);
}

async fn create(server: &TestServer, resource: &str, object: Value) {
    let created = server.post(&format!("{DEFAULT}/{resource}"), &object).await;
    assert_eq!(created.code, 201, "{created:?}");
}

#[tokio::test]
async fn policies_see_options_and_what_is_not_stored() {
    let server = TestServer::start().await;
    create(&server, "configmaps", json!({"metadata": {"name": "c"}})).await;
    create(&server, "secrets", json!({"metadata": {"name": "s"}})).await;
    create(&server, "serviceaccounts", json!({"metadata": {"name": "a"}})).await;
    for (name, node) in [("scheduled", "n"), ("waiting", "")] {
        let pod = json!({
            "metadata": {"name": name},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
        });
        create(&server, "pods", pod).await;
    }
    for (rule, expression) in [
        (
            ("", "configmaps", "CREATE"),
            "request.options.kind == 'CreateOptions' && (!has(request.options.fieldManager) || \
             request.options.fieldManager != 'evil')",
        ),
        (
            ("", "configmaps", "UPDATE"),
            "request.options.kind == 'UpdateOptions' && !has(request.options.fieldValidation)",
        ),
        (("", "configmaps", "DELETE"), "has(request.name)"),
        (
            ("", "secrets", "DELETE"),
            "request.options.kind == 'DeleteOptions' && (!has(request.options.gracePeriodSeconds) || \
             request.options.gracePeriodSeconds > 0) && (!has(request.options.propagationPolicy) || \
             request.options.propagationPolicy != 'Orphan') && (!has(request.options.dryRun))",
        ),
        (("", "pods", "DELETE"), "request.options.gracePeriodSeconds != 30"),
        (("", "pods/exec", "CONNECT"), "object.kind == 'PodExecOptions' && object.command[0] != 'sh'"),
        (("", "pods/portforward", "CONNECT"), "!has(object.ports) || !(80 in object.ports)"),
        (("", "services/proxy", "CONNECT"), "false"),
        (("", "serviceaccounts/token", "CREATE"), "object.spec.expirationSeconds <= 600"),
        (
            ("", "pods/eviction", "CREATE"),
            "request.kind.kind == 'Eviction' && object.metadata.name != 'waiting'",
        ),
        (("", "pods/binding", "CREATE"), "request.kind.kind == 'Binding' && object.target.name != 'n'"),
        (("authorization.k8s.io", "*", "CREATE"), "object.spec.resourceAttributes.verb != 'delete'"),
    ] {
        require(&server, rule, expression).await;
    }
    let token = |seconds: i64| json!({"spec": {"expirationSeconds": seconds}});
    let eviction =
        |pod: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}});
    let binding = json!({"metadata": {"name": "waiting"}, "target": {"kind": "Node", "name": "n"}});
    let review = |verb: &str| json!({"spec": {"resourceAttributes": {"verb": verb, "resource": "pods"}}});
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let map = json!({"metadata": {"name": "d"}});
    let table: &[(&str, &str, Value, u16)] = &[
        ("POST", "configmaps?fieldManager=evil", map.clone(), 422),
        ("POST", "configmaps?fieldManager=good", map.clone(), 201),
        ("PUT", "configmaps/d?fieldValidation=Strict", map.clone(), 422),
        ("PUT", "configmaps/d?fieldManager=evil", map, 200),
        ("DELETE", "configmaps", Value::Null, 422),
        ("DELETE", "configmaps/d", Value::Null, 200),
        ("DELETE", "secrets/s?gracePeriodSeconds=0", Value::Null, 422),
        ("DELETE", "secrets/s", json!({"propagationPolicy": "Orphan"}), 422),
        ("DELETE", "secrets/s?dryRun=All", Value::Null, 422),
        ("DELETE", "secrets/s?propagationPolicy=Background", Value::Null, 200),
        ("DELETE", "pods/scheduled", Value::Null, 422),
        ("DELETE", "pods/scheduled?gracePeriodSeconds=31&dryRun=All", Value::Null, 200),
        ("POST", "pods/scheduled/exec?command=sh", Value::Null, 422),
        ("POST", "pods/scheduled/exec?command=ls", Value::Null, 400),
        ("POST", "pods/scheduled/portforward?ports=80", Value::Null, 422),
        ("GET", "services/x/proxy", Value::Null, 422),
        ("POST", "serviceaccounts/a/token", token(3600), 422),
        ("POST", "serviceaccounts/a/token", token(600), 201),
        ("POST", "pods/waiting/eviction", eviction("waiting"), 422),
        ("POST", "pods/waiting/binding", binding, 422),
        // Admission does not run again for the deletion of an evicted pod.
        ("POST", "pods/scheduled/eviction", eviction("scheduled"), 201),
    ];
    for (method, path, body, code) in table {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let headers = [("content-type", "application/json")];
        let answer = server.send(method, &format!("{DEFAULT}/{path}"), &headers, body).await;
        assert_eq!(answer.code, *code, "{method} {path}: {answer:?}");
        if *code == 422 {
            let message = answer.json()["message"].as_str().unwrap().to_owned();
            assert!(message.ends_with("denied request: refused"), "{method} {path}: {message}");
        }
    }
    assert_eq!(server.post(reviews, &review("delete")).await.code, 422);
    assert_eq!(server.post(reviews, &review("get")).await.code, 201);
}
