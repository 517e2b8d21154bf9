//! Tests authorization over a real connection.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use gc_apiserver::Clock;
use serde_json::{Value, json};
use support::{Answer, TestServer};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";

/// Repeats a request until it is answered with a code: roles take effect a moment after they are written.
async fn until(
    server: &TestServer,
    code: u16,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let mut last = None;
    for _ in 0..200 {
        let answer = server.send(method, path, headers, body.to_owned()).await;
        if answer.code == code {
            return answer;
        }
        last = Some(answer);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{method} {path} was never answered with {code}: {last:?}");
}

async fn give(server: &TestServer, user: &str, name: &str, rules: Value) {
    let role = json!({"metadata": {"name": name}, "rules": rules});
    assert_eq!(server.post(ROLES, &role).await.code, 201);
    let binding = json!({"metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
    assert_eq!(server.post(BINDINGS, &binding).await.code, 201);
}

#[tokio::test]
async fn credentials_decide_who_asks() {
    let server = TestServer::start().await;
    let me = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let answer = server.post(me, &review).await;
    assert_eq!(answer.code, 201, "{answer:?}");
    let groups = json!(["system:masters", "system:authenticated"]);
    assert_eq!(answer.json()["status"]["userInfo"], json!({"username": "kubegc-admin", "groups": groups}));
    let table = [
        ("Bearer wrong", 401, "Unauthorized"),
        ("Bearer ", 403, "Forbidden"),
        ("Basic dXNlcjpwYXNz", 403, "Forbidden"),
    ];
    for (header, code, reason) in table {
        let answer = server.send("GET", CONFIG_MAPS, &[("authorization", header)], "").await;
        assert_eq!(answer.outcome(), (code, reason.to_owned()), "{header}");
    }
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        let answer = server.send("GET", path, &[("authorization", "none")], "").await;
        assert_eq!(answer.code, 200, "{path} is open to anybody");
    }
    assert_eq!(server.send("GET", "/metrics", &[("authorization", "none")], "").await.code, 403);
}

#[tokio::test]
async fn metrics_are_shown_whatever_the_method_and_compressed_for_who_takes_that() {
    let server = TestServer::start().await;
    for path in ["/metrics", "/metrics/slis"] {
        for method in ["GET", "POST", "OPTIONS", "PUT"] {
            let answer = server.send(method, path, &[], "").await;
            assert_eq!((answer.code, answer.header("content-encoding")), (200, ""), "{method} {path}");
            assert!(answer.header("process-start-time-unix").parse::<u64>().is_ok());
        }
        assert_eq!(server.send("DELETE", path, &[], "").await.code, 405, "nothing is reset");
        for (accepted, encoding) in
            [("gzip", "gzip"), ("br, gzip;q=0.5", "gzip"), ("gzip;q=0", ""), ("br", "")]
        {
            let answer = server.send("GET", path, &[("accept-encoding", accepted)], "").await;
            assert_eq!(answer.header("content-encoding"), encoding, "{path} {accepted}");
        }
    }
}

#[tokio::test]
async fn head_says_how_long_the_answer_would_be() {
    let server = TestServer::start().await;
    for path in ["/healthz", "/readyz/ping", "/nothing", "/apis", "/flagz"] {
        let (answer, head) = (server.get(path).await, server.send("HEAD", path, &[], "").await);
        assert_eq!(head.code, answer.code, "{path}");
        assert_eq!(head.header("content-length"), answer.bytes.len().to_string(), "{path}");
        let options = if matches!(path, "/healthz" | "/nothing") { "nosniff" } else { "" };
        assert_eq!(head.header("x-content-type-options"), options, "{path}");
    }
    for path in ["/.well-known/openid-configuration", "/openid/v1/jwks"] {
        assert_eq!(server.get(path).await.header("cache-control"), "public, max-age=3600", "{path}");
    }
}

/// The bootstrap roles are bound as upstream: `system:monitoring` may read both pages, and profiling is not available.
#[tokio::test]
async fn pages_about_the_server_are_for_those_who_monitor_it() {
    let server = TestServer::start().await;
    let monitor = [("impersonate-user", "m"), ("impersonate-group", "system:monitoring")];
    let stranger = [("impersonate-user", "m"), ("impersonate-group", "system:authenticated")];
    for page in ["/flagz", "/statusz"] {
        for (headers, code) in
            [(&[][..], 200), (&monitor, 200), (&stranger, 403), (&[("authorization", "none")], 403)]
        {
            assert_eq!(server.send("GET", page, headers, "").await.code, code, "{page} {headers:?}");
        }
        for (method, path, code) in [("POST", page.to_owned(), 200), ("GET", format!("{page}/"), 404)] {
            assert_eq!(server.send(method, &path, &[], "").await.code, code, "{method} {path}");
        }
    }
    for page in ["/debug/pprof", "/debug/pprof/", "/debug/pprof/heap", "/debug/flags/v"] {
        let answer = server.get(page).await;
        assert_eq!((answer.code, text_of(&answer)), (404, "404 page not found\n".to_owned()), "{page}");
        assert_eq!(server.send("GET", page, &stranger, "").await.code, 403, "{page}");
    }
}

#[tokio::test]
async fn pages_about_the_server_are_text_json_and_yaml() {
    let server = TestServer::start().await;
    let plain = server.get("/flagz").await;
    assert_eq!(plain.header("content-type"), "text/plain; charset=utf-8");
    let lines = text_of(&plain);
    assert!(
        lines.starts_with("\napiserver flagz\nWarning: ") && lines.ends_with("\nfeature-gates:A=true\n"),
        "{lines}"
    );
    for (version, warnings) in [("v1beta1", 0), ("v1alpha1", 1)] {
        for (page, kind) in [("/flagz", "Flagz"), ("/statusz", "Statusz")] {
            let form = |encoding: &str| format!("{encoding};g=config.k8s.io;v={version};as={kind}");
            let json = server.send("GET", page, &[("accept", &form("application/json"))], "").await;
            assert_eq!((json.code, json.header("content-type")), (200, form("application/json").as_str()));
            assert_eq!(json.headers.get_all("warning").iter().count(), warnings, "{page} {version}");
            let yaml = server.send("GET", page, &[("accept", &form("application/yaml"))], "").await;
            let yaml: Value = serde_saphyr::from_slice(&yaml.bytes).unwrap();
            let mut wanted = json!({
                "apiVersion": format!("config.k8s.io/{version}"), "kind": kind, "metadata": {"name": "apiserver"},
            });
            if kind == "Flagz" {
                wanted["flags"] = json!({"feature-gates": "A=true"});
            } else {
                for name in ["startTime", "uptimeSeconds"] {
                    wanted[name] = json.json()[name].clone();
                }
                wanted["goVersion"] = "".into();
                wanted["binaryVersion"] = "1.36.2+kubegc".into();
                wanted["emulationVersion"] = "1.36".into();
                let paths = ["/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz", "/version"];
                wanted["paths"] = json!(paths);
            }
            assert_eq!(json.json(), wanted);
            // A second may have passed between the two requests.
            if kind == "Statusz" {
                wanted["uptimeSeconds"] = yaml["uptimeSeconds"].clone();
            }
            assert_eq!(yaml, wanted);
        }
    }
    let refused = server.send("GET", "/statusz", &[("accept", "application/json")], "").await;
    let why = "only the following media types are accepted: application/json, application/yaml, text/plain";
    assert_eq!((refused.code, &refused.json()["message"]), (406, &json!(why)));
}

fn text_of(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.bytes).into_owned()
}

#[tokio::test]
async fn health_checks_have_names_and_can_be_excluded() {
    let server = TestServer::start().await;
    let cases = [
        ("/livez/etcd", 200, "ok"),
        ("/healthz/poststarthook/rbac/bootstrap-roles", 200, "ok"),
        ("/readyz/shutdown", 200, "ok"),
        ("/livez/shutdown", 404, ""),
        ("/livez/nonsense", 404, ""),
    ];
    for (path, code, text) in cases {
        let answer = server.send("GET", path, &[], "").await;
        assert_eq!((answer.code, text_of(&answer).contains(text)), (code, true), "{path}: {answer:?}");
    }
    let answer = server.send("GET", "/readyz?verbose&exclude=etcd&exclude=odd", &[], "").await;
    for line in [
        "[+]ping ok",
        "[+]etcd excluded: ok",
        "[+]poststarthook/bootstrap-controller ok",
        "warn: some health checks cannot be excluded: no matches for \"odd\"",
        "readyz check passed",
    ] {
        assert!(text_of(&answer).lines().any(|found| found == line), "{line}: {answer:?}");
    }
    let levels = server.send("GET", "/metrics/slis", &[], "").await;
    for line in [
        "kubernetes_healthcheck{name=\"etcd\",type=\"livez\"} 1",
        "kubernetes_healthchecks_total{name=\"etcd\",type=\"livez\",status=\"success\"} 2",
    ] {
        assert!(text_of(&levels).lines().any(|found| found == line), "{line}: {levels:?}");
    }
}

#[tokio::test]
async fn the_client_certificate_is_the_administrator() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let server = TestServer::start().await;
    let mut stream = server.connect(b"http/1.1", true).await;
    let head = format!("GET {CONFIG_MAPS} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
}

/// Sends a request with this certificate, and optionally a token; returns the answer.
async fn answered_as(
    server: &TestServer,
    shown: (&rcgen::Certificate, &rcgen::KeyPair),
    authorization: &str,
    path: &str,
) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let key = rustls::pki_types::PrivateKeyDer::try_from(shown.1.serialize_der()).unwrap();
    let mut stream = server.connect_as(b"http/1.1", Some((vec![shown.0.der().clone()], key))).await;
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{authorization}connection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_certificate_that_proves_nothing_is_a_401_and_not_a_broken_connection() {
    let server = TestServer::start().await;
    let key = rcgen::KeyPair::generate().unwrap();
    let mut wanted = rcgen::CertificateParams::new(["somebody".to_owned()]).unwrap();
    wanted.distinguished_name.push(rcgen::DnType::CommonName, "kubegc-admin");
    wanted.distinguished_name.push(rcgen::DnType::OrganizationName, "system:masters");
    let foreign = wanted.clone().self_signed(&key).unwrap();
    wanted.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let expired = wanted.self_signed(&key).unwrap();
    let token = format!("authorization: Bearer {}\r\n", support::TOKEN);
    for (certificate, authorization, path, expected) in [
        (&foreign, "", CONFIG_MAPS, "HTTP/1.1 401"),
        (&expired, "", CONFIG_MAPS, "HTTP/1.1 401"),
        // A certificate that proves nothing is refused even where anonymous requests are answered.
        (&foreign, "", "/version", "HTTP/1.1 401"),
        (&foreign, "authorization: Bearer wrong\r\n", CONFIG_MAPS, "HTTP/1.1 401"),
        (&foreign, &token, CONFIG_MAPS, "HTTP/1.1 200"),
    ] {
        let answer = answered_as(&server, (certificate, &key), authorization, path).await;
        assert!(answer.starts_with(expected), "{path} {authorization}: {answer}");
        assert!(!expected.ends_with("401") || answer.contains(r#""reason":"Unauthorized""#), "{answer}");
    }
}

#[tokio::test]
async fn impersonation_needs_permission_and_takes_rights_away() {
    let server = TestServer::start().await;
    give(
        &server,
        "ann",
        "reader",
        json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]),
    )
    .await;
    let ann = [("impersonate-user", "ann")];
    until(&server, 200, "GET", CONFIG_MAPS, &ann, "").await;
    let denied = server.send("DELETE", &format!("{CONFIG_MAPS}/a"), &ann, "").await;
    assert_eq!(denied.outcome(), (403, "Forbidden".to_owned()));
    let message = denied.json()["message"].as_str().unwrap().to_owned();
    assert_eq!(
        message,
        r#"configmaps "a" is forbidden: User "ann" cannot delete resource "configmaps" in API group "" in the namespace "default""#
    );
    let groups_only = server.send("GET", CONFIG_MAPS, &[("impersonate-group", "g")], "").await;
    assert_eq!(groups_only.code, 400);
}

#[tokio::test]
async fn nobody_grants_what_he_has_not() {
    let server = TestServer::start().await;
    give(&server, "eve", "role-writer", json!([
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
    ])).await;
    let eve = [("impersonate-user", "eve")];
    let role = |verb: &str| {
        json!({"metadata": {"name": verb}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": [verb]}]}).to_string()
    };
    until(&server, 201, "POST", ROLES, &eve, &role("get")).await;
    // The verb "*" on roles includes escalate, which is the right to grant more.
    assert_eq!(server.send("POST", ROLES, &eve, role("delete")).await.code, 201);

    give(&server, "mallory", "plain-writer", json!([
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["create", "get", "patch", "update"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
    ])).await;
    let mallory = [("impersonate-user", "mallory"), ("content-type", "application/json")];
    let own = json!({"metadata": {"name": "own"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]});
    until(&server, 201, "POST", ROLES, &mallory, &own.to_string()).await;
    let more = json!({"metadata": {"name": "more"}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    assert_eq!(server.send("POST", ROLES, &mallory, more.to_string()).await.code, 403);
    let patch = json!([{"op": "replace", "path": "/rules/0/verbs", "value": ["delete"]}]).to_string();
    let patching = [("impersonate-user", "mallory"), ("content-type", "application/json-patch+json")];
    assert_eq!(server.send("PATCH", &format!("{ROLES}/own"), &patching, patch).await.code, 403);
    let binding = json!({"metadata": {"name": "up"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "mallory"}]});
    assert_eq!(server.send("POST", BINDINGS, &mallory, binding.to_string()).await.code, 403);
}

#[tokio::test]
async fn service_account_tokens_work_until_their_account_goes() {
    let server = TestServer::start().await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = server.post(accounts, &json!({"metadata": {"name": "robot"}})).await;
    assert_eq!(account.code, 201);
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}});
    let issued = server.post(&format!("{accounts}/robot/token"), &request).await;
    assert_eq!(issued.code, 201, "{issued:?}");
    let token = issued.json()["status"]["token"].as_str().unwrap().to_owned();
    let review =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let status = server.post(reviews, &review).await.json()["status"].clone();
    assert_eq!(status["authenticated"], true);
    assert_eq!(status["user"]["username"], "system:serviceaccount:default:robot");
    assert_eq!(
        status["user"]["groups"],
        json!(["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"])
    );
    give(
        &server,
        "system:serviceaccount:default:robot",
        "robot",
        json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]),
    )
    .await;
    let bearer = format!("Bearer {token}");
    let as_robot = [("authorization", bearer.as_str())];
    until(&server, 200, "GET", CONFIG_MAPS, &as_robot, "").await;
    let too_short = json!({"spec": {"expirationSeconds": 5}});
    assert_eq!(server.post(&format!("{accounts}/robot/token"), &too_short).await.code, 422);
    assert_eq!(server.send("DELETE", &format!("{accounts}/robot"), &[], "").await.code, 200);
    assert_eq!(server.send("GET", CONFIG_MAPS, &as_robot, "").await.code, 401);
    assert_eq!(server.post(&format!("{accounts}/robot/token"), &request).await.code, 404);
}

#[tokio::test]
async fn a_token_ends_a_minute_after_its_account_or_pod_was_deleted() {
    let now = Arc::new(AtomicI64::new(1_000_000));
    let clock = Arc::clone(&now);
    let server = TestServer::start_at(Clock::new(move || {
        jiff::Timestamp::from_second(clock.load(Ordering::SeqCst)).unwrap()
    }))
    .await;
    let (accounts, pods) = ("/api/v1/namespaces/default/serviceaccounts", "/api/v1/namespaces/default/pods");
    let held = |name: &str| json!({"name": name, "finalizers": ["example.com/held"]});
    for name in ["gone", "kept"] {
        assert_eq!(server.post(accounts, &json!({"metadata": held(name)})).await.code, 201);
    }
    let spec = json!({"serviceAccountName": "kept", "containers": [{"name": "c", "image": "i"}]});
    assert_eq!(server.post(pods, &json!({"metadata": held("p"), "spec": spec})).await.code, 201);
    let mut tokens = Vec::new();
    for (account, bound) in
        [("gone", Value::Null), ("kept", json!({"kind": "Pod", "apiVersion": "v1", "name": "p"}))]
    {
        let request = json!({"spec": {"expirationSeconds": 600, "boundObjectRef": bound}});
        let issued = server.post(&format!("{accounts}/{account}/token"), &request).await;
        assert_eq!(issued.code, 201, "{issued:?}");
        tokens.push(issued.json()["status"]["token"].clone());
    }
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let are_good = || async {
        let mut found = Vec::new();
        for token in &tokens {
            let review = server.post(reviews, &json!({"spec": {"token": token}})).await;
            found.push(review.json()["status"]["authenticated"] == true);
        }
        found
    };
    assert_eq!(are_good().await, [true, true]);
    for path in [format!("{accounts}/gone"), format!("{pods}/p?gracePeriodSeconds=0")] {
        let deleted = server.send("DELETE", &path, &[], "").await;
        assert_eq!(deleted.code, 200, "{deleted:?}");
        assert!(
            server.get(path.split('?').next().unwrap()).await.json()["metadata"]["deletionTimestamp"]
                .is_string()
        );
    }
    for (seconds, wanted) in [(0, true), (60, true), (1, false), (3600, false)] {
        now.fetch_add(seconds, Ordering::SeqCst);
        assert_eq!(are_good().await, [wanted, wanted], "{seconds} s later");
    }
}

#[tokio::test]
async fn access_reviews_tell_what_roles_say() {
    let server = TestServer::start().await;
    give(
        &server,
        "ann",
        "reader",
        json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]),
    )
    .await;
    let ann = [("impersonate-user", "ann"), ("content-type", "application/json")];
    until(&server, 404, "GET", &format!("{CONFIG_MAPS}/none"), &ann, "").await;
    let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let asked = |user: &str, verb: &str, namespace: &str| json!({"spec": {"user": user, "resourceAttributes": {"verb": verb, "resource": "configmaps", "namespace": namespace}}});
    let table = [
        (asked("ann", "get", "default"), true),
        (asked("ann", "delete", "default"), false),
        (asked("ann", "get", "other"), false),
        (
            json!({"spec": {"user": "x", "groups": ["system:masters"], "nonResourceAttributes": {"verb": "get", "path": "/metrics"}}}),
            true,
        ),
        (json!({"spec": {"user": "x", "nonResourceAttributes": {"verb": "get", "path": "/metrics"}}}), false),
    ];
    for (review, want) in table {
        let answer = server.post(reviews, &review).await;
        assert_eq!((answer.code, &answer.json()["status"]["allowed"]), (201, &json!(want)), "{review}");
    }
    assert_eq!(server.post(reviews, &json!({"spec": {"user": "x"}})).await.code, 422);
    let rules = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let answer =
        server.send("POST", rules, &ann, json!({"spec": {"namespace": "default"}}).to_string()).await;
    let listed = answer.json()["status"]["resourceRules"].clone();
    let expected = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]});
    assert!(listed.as_array().unwrap().contains(&expected), "{listed}");
}
