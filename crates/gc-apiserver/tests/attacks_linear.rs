//! The cost of hostile bodies must be proportional to their size: four times the bytes take about four times the work. Work is the
//! CPU time of this process, on which other processes have little effect; `KUBEGC_ATTACK_SECONDS=1` prints it for documentation.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{TestServer, work};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
/// Number of bytes of the smaller body; the larger one has four times as many.
const SIZE: usize = 96 << 10;
const TIMES: usize = 4;
/// Maximum growth of the work for four times the bytes (a quadratic algorithm would have 16).
const MOST: u32 = 9;
/// Work that is not caused by the body: the request itself, and the resolution of the system's clock.
const REST: Duration = Duration::from_millis(60);

/// Method, path, media type and body of a request of about this many bytes.
type Made = (&'static str, String, &'static str, String);

/// Joins chunks, each made from a number, until there are about this many bytes.
fn pieces(bytes: usize, separator: &str, piece: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    let mut number = 0;
    while text.len() < bytes {
        let _ = write!(text, "{}{}", if number == 0 { "" } else { separator }, piece(number));
        number += 1;
    }
    text
}

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";

fn create(kind: &'static str, body: String) -> Made {
    ("POST", format!("{CONFIG_MAPS}?dryRun=All&fieldValidation=Strict"), kind, body)
}

fn patch(kind: &'static str, path: &str, body: String) -> Made {
    ("PATCH", format!("{path}?dryRun=All&fieldManager=attacker"), kind, body)
}

const KINDS: [(&str, fn(usize) -> Made); 14] = [
    ("an object of many keys", |bytes| {
        let keys = pieces(bytes, ",", |n| format!("\"k{n}\":\"v\""));
        create(JSON, format!("{{\"metadata\":{{\"name\":\"a\"}},\"data\":{{{keys}}}}}"))
    }),
    ("one key, over and over", |bytes| {
        let keys = pieces(bytes, ",", |_| "\"k\":\"v\"".into());
        create(JSON, format!("{{\"metadata\":{{\"name\":\"a\"}},\"data\":{{{keys}}}}}"))
    }),
    ("unknown fields", |bytes| {
        let keys = pieces(bytes, ",", |n| format!("\"u{n}\":[{n}]"));
        create(JSON, format!("{{\"metadata\":{{\"name\":\"a\"}},{keys}}}"))
    }),
    ("half-open lists", |bytes| create(JSON, "[".repeat(bytes))),
    ("half-open maps in YAML", |bytes| create(YAML, "{a: ".repeat(bytes / 4))),
    ("keys in YAML", |bytes| {
        create(
            YAML,
            format!("metadata: {{name: a}}\ndata:\n  {}", pieces(bytes, "\n  ", |n| format!("k{n}: v"))),
        )
    }),
    ("escapes", |bytes| {
        create(
            JSON,
            format!(
                "{{\"metadata\":{{\"name\":\"a\"}},\"data\":{{\"k\":\"{}\"}}}}",
                "\\u00e9".repeat(bytes / 6)
            ),
        )
    }),
    ("owner references", |bytes| {
        let owners = pieces(bytes, ",", |n| {
            format!("{{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"name\":\"n{n}\",\"uid\":\"u{n}\"}}")
        });
        create(JSON, format!("{{\"metadata\":{{\"name\":\"a\",\"ownerReferences\":[{owners}]}}}}"))
    }),
    ("managed fields", |bytes| {
        let fields = pieces(bytes, ",", |n| format!("\"f:k{n}\":{{}}"));
        create(
            JSON,
            format!(
                "{{\"metadata\":{{\"name\":\"a\",\"managedFields\":[{{\"manager\":\"m\",\"operation\":\"Update\",\
            \"apiVersion\":\"v1\",\"fieldsType\":\"FieldsV1\",\"fieldsV1\":{{\"f:data\":{{{fields}}}}}}}]}}}}"
            ),
        )
    }),
    ("moves within a list", |bytes| {
        // Half of the bytes are the list; the others move its first element to its end.
        let list = pieces(bytes / 2, ",", |n| n.to_string());
        let moves =
            pieces(bytes / 2, ",", |_| "{\"op\":\"move\",\"from\":\"/x/0\",\"path\":\"/x/-\"}".into());
        let path = format!("{CONFIG_MAPS}/victim");
        let body = format!("[{{\"op\":\"add\",\"path\":\"/x\",\"value\":[{list}]}},{moves}]");
        patch("application/json-patch+json", &path, body)
    }),
    ("tests of a large value", |bytes| {
        let text = "v".repeat(bytes / 2);
        let tests =
            pieces(bytes / 2, ",", |_| "{\"op\":\"test\",\"path\":\"/data/k\",\"value\":\"v\"}".into());
        let body = format!("[{{\"op\":\"add\",\"path\":\"/data\",\"value\":{{\"k\":\"{text}\"}}}},{tests}]");
        patch("application/json-patch+json", &format!("{CONFIG_MAPS}/victim"), body)
    }),
    ("a merge of many keys", |bytes| {
        let keys = pieces(bytes, ",", |n| format!("\"k{n}\":null,\"l{n}\":\"v\""));
        patch(
            "application/merge-patch+json",
            &format!("{CONFIG_MAPS}/victim"),
            format!("{{\"data\":{{{keys}}}}}"),
        )
    }),
    ("a strategic merge of a long list", |bytes| {
        let list = pieces(bytes, ",", |n| format!("{{\"name\":\"e{n}\",\"value\":\"v\"}}"));
        let body = format!("{{\"spec\":{{\"containers\":[{{\"name\":\"c\",\"env\":[{list}]}}]}}}}");
        patch("application/strategic-merge-patch+json", &format!("{PODS}/victim"), body)
    }),
    ("an apply of many keys", |bytes| {
        let keys = pieces(bytes, ",", |n| format!("\"k{n}\":\"v\""));
        let body = format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"b\"}},\"data\":{{{keys}}}}}"
        );
        patch("application/apply-patch+yaml", &format!("{CONFIG_MAPS}/b"), body)
    }),
];

/// Returns the minimum work of several identical requests, with the code and the size of the answer.
async fn cost(server: &TestServer, make: fn(usize) -> Made, bytes: usize) -> (Duration, u16, usize) {
    let (mut least, mut code) = (Duration::MAX, 0);
    let (method, path, kind, body) = make(bytes);
    let length = body.len();
    for _ in 0..2 {
        let before = work();
        let answer = server.send(method, &path, &[("content-type", kind)], body.clone()).await;
        least = least.min(work().saturating_sub(before));
        code = answer.code;
    }
    (least, code, length)
}

#[tokio::test]
async fn hostile_bodies_cost_as_much_as_they_are_large() {
    let server = TestServer::start().await;
    server.config_map("victim").await;
    let pod = json!({"metadata": {"name": "victim"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(server.post(PODS, &pod).await.code, 201);
    for (what, make) in KINDS {
        let (mut small, code, _) = cost(&server, make, SIZE).await;
        let (mut large, code_of_large, bytes) = cost(&server, make, TIMES * SIZE).await;
        // Measured again in case something else interfered.
        for _ in 0..3 {
            if large <= small * MOST + REST {
                break;
            }
            small = small.max(cost(&server, make, SIZE).await.0);
            large = large.min(cost(&server, make, TIMES * SIZE).await.0);
        }
        println!(
            "{what}: {code}, {code_of_large}: {small:?} for {} KB, {large:?} for {} KB",
            SIZE >> 10,
            bytes >> 10
        );
        assert!(code < 500 && code_of_large < 500, "{what}: {code} {code_of_large}");
        assert!(large <= small * MOST + REST, "{what}: {small:?}, {large:?} for {TIMES} times the bytes");
    }
    let answer: Value = server.get("/api/v1/namespaces/default").await.json();
    assert_eq!(answer["metadata"]["name"], "default");
}

const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";

/// Creates a policy that uses the contents of a ConfigMap as patterns.
async fn with_patterns(server: &TestServer) {
    let policy = json!({
        "metadata": {"name": "patterns"},
        "spec": {
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]},
            "validations": [{"expression": "!has(object.data) || object.data.all(k, !'x'.matches(object.data[k]))"}],
        },
    });
    let binding = json!({"metadata": {"name": "patterns"},
        "spec": {"policyName": "patterns", "validationActions": ["Deny"]}});
    for (resource, object) in
        [("validatingadmissionpolicies", policy), ("validatingadmissionpolicybindings", binding)]
    {
        assert_eq!(server.post(&format!("{ADMISSION}/{resource}"), &object).await.code, 201);
    }
    // This is not a valid pattern, so it is refused as soon as the policy is in force.
    let wrong = json!({"metadata": {"name": "wrong"}, "data": {"k": "("}});
    let deadline = Instant::now() + Duration::from_mins(1);
    while server.post(&format!("{CONFIG_MAPS}?dryRun=All"), &wrong).await.code == 201 {
        assert!(Instant::now() < deadline, "the policy is in force");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// These bodies were also sent to kube-apiserver 1.36.2; docs/benchmarks.md has its figures. Moves are linear, and patterns end with the
/// budget.
#[tokio::test]
async fn bodies_that_were_compared_with_kube_apiserver_are_cheap() {
    const ELEMENTS: usize = 80_000;
    const MOVES: usize = 9_000;
    const PATTERNS: usize = 1_000;
    let server = TestServer::start().await;
    server.config_map("victim").await;
    let list = (0..ELEMENTS).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let moves = |count: usize| {
        let moves = vec!["{\"op\":\"move\",\"from\":\"/x/0\",\"path\":\"/x/40000\"}"; count].join(",");
        format!("[{{\"op\":\"add\",\"path\":\"/x\",\"value\":[{list}]}},{moves}]")
    };
    let patched = async |count: usize| {
        let (_, path, kind, body) =
            patch("application/json-patch+json", &format!("{CONFIG_MAPS}/victim"), moves(count));
        let before = work();
        let answer = server.send("PATCH", &path, &[("content-type", kind)], body).await;
        (work().saturating_sub(before), answer.code)
    };
    let (few, many) = (patched(MOVES / 10).await, patched(MOVES).await);
    println!("{MOVES} moves on {ELEMENTS} elements: {many:?}; a tenth of the moves: {few:?}");
    assert_eq!((few.1, many.1), (200, 200));
    assert!(many.0 <= few.0 * 12 + REST, "{few:?} for a tenth of the moves, {many:?} for all");
    with_patterns(&server).await;
    let data: serde_json::Map<String, Value> =
        (0..PATTERNS).map(|n| (format!("k{n}"), format!("\\pL{{{}}}", 900 - n % 100).into())).collect();
    let object = json!({"metadata": {"name": "patterns"}, "data": data});
    let before = work();
    let answer = server.post(&format!("{CONFIG_MAPS}?dryRun=All"), &object).await;
    let took = work().saturating_sub(before);
    println!("{PATTERNS} patterns: {took:?}, {}: {}", answer.code, answer.json()["message"]);
    assert!((400..500).contains(&answer.code), "{}", answer.code);
    assert_eq!(server.get("/livez").await.code, 200);
}
