//! Every request must be completed, whatever number it contains: debug builds panic on overflow.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;

use bytes::Bytes;
use gc_apiserver::InProcess;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use support::TestServer;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Limits of common number types, and of those that Go and this server compute with.
const INTEGERS: [i64; 14] = [
    i64::MIN,
    i64::MIN + 1,
    -62_135_596_800,
    i32::MIN as i64 - 1,
    i32::MIN as i64,
    -1,
    0,
    1,
    i32::MAX as i64,
    i32::MAX as i64 + 1,
    9_223_372_036,
    253_402_300_800,
    i64::MAX - 1,
    i64::MAX,
];
/// Texts in place of numbers, durations and quantities.
const TEXTS: [&str; 12] = [
    "9223372036854775808",
    "-9223372036854775809",
    "1e400",
    "-1e400",
    "0x10",
    "2540400h10m10.000000001s",
    "-2562047h47m16.854775808s",
    "9223372036854775807s",
    "1E1000",
    "-9E18",
    "99999999999999999999999999999999Ei",
    "9999-12-31T23:59:59.999999999Z",
];

/// Sends a request, and returns the code of the answer without waiting for the events of a watch. Fails if the request was not
/// completed.
async fn code(client: &InProcess, method: &str, path: &str, body: String) -> u16 {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    let (head, body) = client.call(request).await.into_parts();
    if head.status.is_server_error() {
        let text = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&text);
        assert!(!text.contains("not finished") && !text.contains("panic"), "{method} {path}: {text}");
    }
    head.status.as_u16()
}

#[tokio::test]
async fn numbers_in_queries_are_computed_with_safely() {
    let server = TestServer::start().await;
    server.config_map("a").await;
    let client = server.server.in_process("root");
    let texts: Vec<String> =
        INTEGERS.iter().map(i64::to_string).chain(TEXTS.map(str::to_owned)).chain([String::new()]).collect();
    let table: [(&str, &str); 9] = [
        ("GET", "limit"),
        ("GET", "resourceVersion"),
        ("GET", "resourceVersionMatch=Exact&resourceVersion"),
        ("GET", "timeout"),
        ("GET", "timeoutSeconds"),
        ("GET", "watch=1&timeoutSeconds"),
        ("GET", "watch=1&resourceVersion"),
        ("GET", "continue"),
        ("DELETE", "dryRun=All&gracePeriodSeconds"),
    ];
    for (method, parameter) in table {
        for text in &texts {
            let text = text.replace('+', "%2B").replace(':', "%3A");
            let name = if method == "DELETE" { "/a" } else { "" };
            let path = format!("{CONFIG_MAPS}{name}?{parameter}={text}");
            let code = code(&client, method, &path, String::new()).await;
            // As upstream, a watch from a version that is not a number is an internal error.
            let is_version = parameter.ends_with("resourceVersion");
            assert!(code < 500 || code == 504 || code == 500 && is_version, "{method} {path}: {code}");
        }
    }
    assert_eq!(server.get("/readyz").await.code, 200);
}

/// Returns objects that are valid except for their numbers, with the locations of these.
fn documents() -> Vec<(&'static str, Value, Vec<&'static str>)> {
    let pod = json!({"containers": [{"name": "a", "image": "a"}]});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod});
    let selector = json!({"matchLabels": {"a": "b"}});
    let ports = json!([{"port": 80}]);
    let csr =
        base64::Engine::encode(&base64::engine::general_purpose::STANDARD, include_str!("attacks/csr.pem"));
    vec![
        (
            "/api/v1/namespaces/default/pods",
            json!({"metadata": {"name": "a"}, "spec": pod}),
            vec![
                "/metadata/generation",
                "/metadata/deletionGracePeriodSeconds",
                "/spec/terminationGracePeriodSeconds",
                "/spec/activeDeadlineSeconds",
                "/spec/priority",
                "/spec/tolerations/0/tolerationSeconds",
                "/spec/containers/0/resources/limits/cpu",
                "/spec/containers/0/resources/requests/memory",
                "/spec/containers/0/ports/0/containerPort",
                "/spec/containers/0/livenessProbe/periodSeconds",
                "/spec/securityContext/runAsUser",
            ],
        ),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            json!({"metadata": {"name": "a"}, "spec": {"selector": selector, "template": template}}),
            vec![
                "/spec/replicas",
                "/spec/minReadySeconds",
                "/spec/progressDeadlineSeconds",
                "/spec/revisionHistoryLimit",
                "/spec/strategy/rollingUpdate/maxSurge",
                "/metadata/creationTimestamp",
            ],
        ),
        (
            "/apis/batch/v1/namespaces/default/jobs",
            json!({"metadata": {"name": "a"}, "spec": {"template": {"spec":
                {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}}}}),
            vec![
                "/spec/parallelism",
                "/spec/completions",
                "/spec/backoffLimit",
                "/spec/activeDeadlineSeconds",
                "/spec/ttlSecondsAfterFinished",
            ],
        ),
        (
            "/api/v1/namespaces/default/services",
            json!({"metadata": {"name": "a"}, "spec": {"selector": {"a": "b"}, "ports": ports}}),
            vec![
                "/spec/ports/0/port",
                "/spec/ports/0/targetPort",
                "/spec/ports/0/nodePort",
                "/spec/healthCheckNodePort",
                "/spec/sessionAffinityConfig/clientIP/timeoutSeconds",
            ],
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            json!({"metadata": {"name": "a"}, "spec": {}}),
            vec!["/spec/leaseDurationSeconds", "/spec/leaseTransitions", "/spec/renewTime"],
        ),
        (
            "/api/v1/namespaces/default/resourcequotas",
            json!({"metadata": {"name": "a"}, "spec": {"hard": {}}}),
            vec!["/spec/hard/pods", "/spec/hard/requests.cpu"],
        ),
        (
            "/apis/certificates.k8s.io/v1/certificatesigningrequests",
            json!({"metadata": {"name": "a"}, "spec": {"request": csr, "signerName": "example.com/a",
                "usages": ["client auth"]}}),
            vec!["/spec/expirationSeconds"],
        ),
        (
            "/api/v1/namespaces/default/serviceaccounts/default/token",
            json!({"spec": {}}),
            vec!["/spec/expirationSeconds"],
        ),
    ]
}

/// Puts a value at a pointer, and creates missing parents.
fn put(document: &mut Value, pointer: &str, value: Value) {
    let mut place = document;
    for step in pointer.split('/').skip(1) {
        place = match step.parse::<usize>() {
            Ok(index) => {
                if !place.is_array() {
                    *place = json!([{}]);
                }
                &mut place[index]
            }
            Err(_) => {
                if !place.is_object() {
                    *place = json!({});
                }
                &mut place[step]
            }
        };
    }
    *place = value;
}

#[tokio::test]
async fn numbers_in_bodies_are_computed_with_safely() {
    let server = TestServer::start().await;
    let account = json!({"metadata": {"name": "default"}});
    server.post("/api/v1/namespaces/default/serviceaccounts", &account).await;
    let client = server.server.in_process("root");
    for (path, document, places) in documents() {
        let good = code(&client, "POST", &format!("{path}?dryRun=All"), document.to_string()).await;
        assert_eq!(good, 201, "{path}");
        for place in places {
            for value in INTEGERS.iter().map(|number| json!(number)).chain(TEXTS.map(|text| json!(text))) {
                let mut document = document.clone();
                put(&mut document, place, value.clone());
                let code = code(&client, "POST", &format!("{path}?dryRun=All"), document.to_string()).await;
                assert!(code < 500, "{path} {place} {value}: {code}");
            }
        }
    }
    server.config_map("a").await;
    for number in INTEGERS {
        let options = json!({"gracePeriodSeconds": number, "dryRun": ["All"]}).to_string();
        let code = code(&client, "DELETE", &format!("{CONFIG_MAPS}/a"), options).await;
        assert!(code < 500, "{number}: {code}");
    }
    assert_eq!(server.get("/readyz").await.code, 200);
}
