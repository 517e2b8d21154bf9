//! Tests admission webhooks over real connections; a server in this process answers them.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;

use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::request::Parts;
use serde_json::{Value, json};
use support::{TestServer, webhook};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Answers reviews by path: `/label` patches, `/no` refuses, `/slow` never answers, `/odd` answers with something other than a
/// review.
fn answer(path: &str, review: &Value) -> Option<Value> {
    let uid = &review["request"]["uid"];
    let response = match path {
        "/label" => {
            let patch = json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]).to_string();
            json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch)})
        }
        "/no" => json!({"uid": uid, "allowed": false, "status": {"message": "never"}}),
        "/slow" => return None,
        // The field managers that it sees determine the replicas.
        "/scale" => {
            let manager =
                |object: &str| &review["request"][object]["metadata"]["managedFields"][0]["manager"];
            let seen = manager("object") == "scaler" && manager("oldObject") == "maker";
            let replicas = if seen { 7 } else { 0 };
            let patch = json!([{"op": "add", "path": "/spec/replicas", "value": replicas}]).to_string();
            json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch)})
        }
        "/forget" => {
            let patch = json!([{"op": "add", "path": "/metadata/managedFields", "value": [{}]}]).to_string();
            json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch)})
        }
        _ => Value::Null,
    };
    Some(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}

/// Answers like servers that are not quite webhooks, by path and by the number of requests so far.
fn answer_oddly(parts: &Parts, body: &Bytes, seen: &Mutex<Vec<String>>) -> webhook::Response {
    let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
    seen.lock().unwrap().push(format!("{} {target}", parts.method));
    let reply = |code: u16, headers: &[(&str, &str)], body: String| {
        let mut reply = http::Response::builder().status(code);
        for (name, value) in headers {
            reply = reply.header(*name, *value);
        }
        reply.body(webhook::whole(body)).unwrap()
    };
    let allowed = || {
        let review: Value = serde_json::from_slice(body).unwrap();
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {"uid": review["request"]["uid"], "allowed": true}})
        .to_string()
    };
    let busy = || reply(503, &[("retry-after", "0")], String::new());
    let is_first = seen.lock().unwrap().len() == 1;
    match parts.uri.path() {
        _ if parts.method == http::Method::GET => reply(400, &[], "there is nothing to read here".to_owned()),
        "/busy" if is_first => busy(),
        "/again" if is_first => reply(429, &[("retry-after", "-5")], String::new()),
        "/ok" | "/busy" | "/again" => reply(200, &[], allowed()),
        "/html" => reply(200, &[("content-type", "text/html; charset=utf-8")], allowed()),
        "/301" => reply(301, &[("location", "/ok")], String::new()),
        "/302" => reply(302, &[("location", "ok")], String::new()),
        "/307" => reply(307, &[("location", "/ok?again=yes")], String::new()),
        "/308" => reply(308, &[("location", "./307")], String::new()),
        "/nowhere" => reply(307, &[], String::new()),
        "/loop" => reply(307, &[("location", "/loop")], String::new()),
        "/404" => reply(404, &[], "page not found".to_owned()),
        "/500" => reply(500, &[("content-type", "text/plain")], "boom\n".to_owned()),
        "/status" => reply(
            403,
            &[("content-type", "application/json")],
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "go away"})
                .to_string(),
        ),
        "/text" => reply(200, &[], "fine".to_owned()),
        "/nothing" => reply(200, &[("content-type", "application/json")], String::new()),
        "/half" => reply(200, &[], "{\"a\":".to_owned()),
        "/marked" => reply(200, &[], format!("\u{feff}{}", allowed())),
        "/yaml" => {
            let review: Value = serde_json::from_slice(body).unwrap();
            let uid = review["request"]["uid"].as_str().unwrap();
            let text = format!(
                "apiVersion: admission.k8s.io/v1\nkind: AdmissionReview\nresponse: {{uid: {uid}, allowed: true}}\n"
            );
            reply(200, &[("content-type", "application/yaml")], text)
        }
        "/packed" => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(allowed().as_bytes()).unwrap();
            let reply = http::Response::builder().header("content-encoding", "GZIP");
            reply.body(webhook::whole(encoder.finish().unwrap())).unwrap()
        }
        "/bomb" => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(&vec![b' '; 64 << 20]).unwrap();
            let reply = http::Response::builder().header("content-encoding", "gzip");
            reply.body(webhook::whole(encoder.finish().unwrap())).unwrap()
        }
        "/empty-location" => reply(307, &[("location", "")], String::new()),
        "/ftp" => reply(307, &[("location", "ftp://h/x")], String::new()),
        "/huge" => reply(200, &[], "x".repeat(4 << 20)),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn webhooks_are_called_as_a_client_in_go_calls_them() {
    let server = TestServer::start().await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let asked = Arc::clone(&seen);
    let answer = move |parts: &Parts, body: &Bytes| Some(answer_oddly(parts, body, &asked));
    let (address, bundle) = webhook::serve_signed(&["127.0.0.1"], answer).await;
    configure(&server, "validating", json!({"url": format!("https://{address}"), "caBundle": bundle}), 10)
        .await;
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/w";
    let post = |path: &str| format!("POST {path}?timeout=10s");
    let again = "POST /ok?again=yes".to_owned();
    for (at, requests, outcome) in [
        ("//ok/", vec![post("/ok")], ""),
        ("/a/../%6Fk", vec![post("/ok")], ""),
        ("/html", vec![post("/html")], ""),
        ("/307", vec![post("/307"), again.clone()], ""),
        ("/308", vec![post("/308"), "POST /307".to_owned(), again], ""),
        (
            "/301",
            vec![post("/301"), "GET /ok".to_owned()],
            "the server rejected our request for an unknown reason",
        ),
        (
            "/302",
            vec![post("/302"), "GET /ok".to_owned()],
            "the server rejected our request for an unknown reason",
        ),
        (
            "/nowhere",
            vec![post("/nowhere")],
            "the server responded with the status code 307 but did not return more information",
        ),
        (
            "/loop",
            [vec![post("/loop")], vec!["POST /loop".to_owned(); 9]].concat(),
            "stopped after 10 redirects",
        ),
        ("/busy", vec![post("/busy"), post("/busy")], ""),
        ("/404", vec![post("/404")], "the server could not find the requested resource"),
        (
            "/500",
            vec![post("/500")],
            "an error on the server (\"boom\") has prevented the request from succeeding",
        ),
        ("/status", vec![post("/status")], "go away"),
        (
            "/text",
            vec![post("/text")],
            "couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type struct",
        ),
        (
            "/nothing",
            vec![post("/nothing")],
            "0-length response with status code: 200 and content type: application/json",
        ),
        (
            "/half",
            vec![post("/half")],
            "couldn't get version/kind; json parse error: unexpected end of JSON input",
        ),
        ("/marked", vec![post("/marked")], ""),
        ("/yaml", vec![post("/yaml")], ""),
        ("/packed", vec![post("/packed")], ""),
        ("/bomb", vec![post("/bomb")], "length limit exceeded"),
        (
            "/empty-location",
            vec![post("/empty-location")],
            "the server responded with the status code 307 but did not return more information",
        ),
        ("/ftp", vec![post("/ftp")], "Post \"ftp://h/x\": unsupported protocol scheme \"ftp\""),
        ("/again", vec![post("/again"), post("/again")], ""),
        ("/huge", vec![post("/huge")], "length limit exceeded"),
    ] {
        let url = json!([{"op": "add", "path": "/webhooks/0/clientConfig/url", "value": format!("https://{address}{at}")}]);
        let headers = [("content-type", "application/json-patch+json")];
        assert_eq!(server.send("PATCH", path, &headers, url.to_string()).await.code, 200);
        seen.lock().unwrap().clear();
        let created =
            server.post(&format!("{CONFIG_MAPS}?dryRun=All"), &json!({"metadata": {"name": "a"}})).await;
        let message = created.json()["message"].as_str().unwrap_or_default().to_owned();
        assert_eq!(created.code, if outcome.is_empty() { 201 } else { 500 }, "{at} {message}");
        assert!(message.contains(outcome), "{at} {message}");
        assert_eq!(*seen.lock().unwrap(), requests, "{at}");
    }
}

/// Each call used to open a connection, with a handshake.
#[tokio::test]
async fn connections_to_webhooks_are_used_again() {
    let http2: &[&[u8]] = &[b"h2", b"http/1.1"];
    for (protocols, path, version, connections) in [
        (&[][..], "/ok", http::Version::HTTP_11, 1),
        (http2, "/ok", http::Version::HTTP_2, 1),
        (&[b"http/1.1"], "/ok", http::Version::HTTP_11, 1),
        (&[], "/close", http::Version::HTTP_11, 4),
    ] {
        let server = TestServer::start().await;
        let (opened, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let asked = Arc::clone(&seen);
        let answer = move |parts: &Parts, body: &Bytes| {
            let target = parts.uri.path();
            asked.lock().unwrap().push((parts.version, target.to_owned()));
            let review: Value = serde_json::from_slice(body).unwrap();
            let document = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "response": {"uid": review["request"]["uid"], "allowed": true}});
            let mut reply = http::Response::new(webhook::whole(document.to_string()));
            if target == "/close" {
                reply.headers_mut().insert("connection", http::HeaderValue::from_static("close"));
            }
            Some(reply)
        };
        let names = ["127.0.0.1"];
        let (address, bundle) = webhook::serve_counted(&names, protocols, Arc::clone(&opened), answer).await;
        let client = json!({"url": format!("https://{address}{path}"), "caBundle": bundle});
        configure(&server, "validating", client, 10).await;
        for _ in 0..4 {
            let map = json!({"metadata": {"name": "a"}});
            let created = server.post(&format!("{CONFIG_MAPS}?dryRun=All"), &map).await;
            assert_eq!(created.code, 201, "{created:?}");
        }
        assert_eq!(*seen.lock().unwrap(), vec![(version, path.to_owned()); 4]);
        assert_eq!(opened.load(Ordering::SeqCst), connections, "{path} {version:?}");
    }
}

/// A request whose webhook does not answer ends at its own deadline.
#[tokio::test]
async fn no_request_waits_longer_than_it_has() {
    let server = TestServer::start().await;
    let (asked, mut asks) = tokio::sync::mpsc::unbounded_channel();
    let answer = move |parts: &Parts, _: &Bytes| {
        asked.send(parts.uri.query().unwrap_or_default().to_owned()).unwrap();
        None
    };
    let (address, bundle) = webhook::serve_signed(&["127.0.0.1"], answer).await;
    let client = json!({"url": format!("https://{address}/"), "caBundle": bundle});
    configure(&server, "mutating", client, 30).await;
    let map = json!({"metadata": {"name": "a"}});
    let answer = server.post(&format!("{CONFIG_MAPS}?timeout=300ms"), &map).await;
    assert_eq!(answer.outcome(), (504, "Timeout".to_owned()));
    assert_eq!(asks.recv().await.unwrap(), "timeout=1s", "what is left, in whole seconds");
}

async fn configure(server: &TestServer, kind: &str, client: Value, timeout_seconds: u32) {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]});
    configure_for(server, kind, client, timeout_seconds, rule).await;
}

async fn configure_for(server: &TestServer, kind: &str, client: Value, timeout_seconds: u32, rule: Value) {
    let configuration = json!({
        "metadata": {"name": "w"},
        "webhooks": [{
            "name": "w.example.com", "clientConfig": client, "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "timeoutSeconds": timeout_seconds,
            "rules": [rule],
        }],
    });
    let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations");
    let answer = server.post(&path, &configuration).await;
    assert_eq!(answer.code, 201, "{answer:?}");
}

#[tokio::test]
async fn webhooks_change_and_refuse_what_is_created() {
    let server = TestServer::start().await;
    let (address, authority) = webhook::serve(answer).await;
    let client = |path: &str| json!({"url": format!("https://{address}{path}"), "caBundle": authority});
    configure(&server, "mutating", client("/label"), 10).await;
    let created = server.config_map("a").await;
    assert_eq!(created["metadata"]["labels"], json!({"a": "b"}));
    configure(&server, "validating", client("/no"), 10).await;
    let refused = server.post(CONFIG_MAPS, &json!({"metadata": {"name": "b"}})).await;
    assert_eq!(refused.code, 400);
    assert_eq!(refused.json()["message"], "admission webhook \"w.example.com\" denied the request: never");
    let metrics = server.get("/metrics").await;
    let metrics = String::from_utf8(metrics.bytes.to_vec()).unwrap();
    let labels = |step: &str| format!("name=\"w.example.com\",type=\"{step}\",operation=\"CREATE\"");
    let (admit, validating) = (labels("admit"), labels("validating"));
    let prefix = "apiserver_admission_webhook";
    for line in [
        format!("{prefix}_request_total{{{admit},code=\"200\",rejected=\"false\"}} 2"),
        format!("{prefix}_request_total{{{validating},code=\"400\",rejected=\"true\"}} 1"),
        format!("{prefix}_admission_duration_seconds_count{{{admit},rejected=\"false\"}} 2"),
        format!("{prefix}_rejection_count{{{validating},error_type=\"no_error\",rejection_code=\"400\"}} 1"),
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}\n{metrics}");
    }
}

#[tokio::test]
async fn webhooks_see_and_change_a_scale_with_its_managers() {
    let server = TestServer::start().await;
    let (address, authority) = webhook::serve(answer).await;
    let client = json!({"url": format!("https://{address}/scale"), "caBundle": authority});
    let rule = json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["UPDATE"],
        "resources": ["deployments/scale"]});
    configure_for(&server, "mutating", client, 10, rule).await;
    let pod =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": pod});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let made = json!({"metadata": {"name": "a"}, "spec": spec});
    assert_eq!(server.post(&format!("{deployments}?fieldManager=maker"), &made).await.code, 201);
    let scale = json!({"spec": {"replicas": 3}}).to_string();
    let headers = [("content-type", "application/merge-patch+json")];
    let path = format!("{deployments}/a/scale?fieldManager=scaler");
    let scaled = server.send("PATCH", &path, &headers, scale).await;
    assert_eq!(scaled.json()["spec"], json!({"replicas": 7}));
}

#[tokio::test]
async fn managers_that_a_webhook_spoils_stay_as_they_were() {
    let server = TestServer::start().await;
    let (address, authority) = webhook::serve(answer).await;
    let client = json!({"url": format!("https://{address}/forget"), "caBundle": authority});
    configure(&server, "mutating", client, 10).await;
    let made = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
    let answer = server.post(&format!("{CONFIG_MAPS}?fieldManager=maker"), &made).await;
    assert_eq!(answer.json()["metadata"]["managedFields"][0]["manager"], "maker");
    let warning = answer.headers["warning"].to_str().unwrap();
    assert_eq!(
        warning,
        "299 - \".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated \
         mutating admission controller; please fix your requests: operation must be `Apply` or `Update`\""
    );
}

#[tokio::test]
async fn what_does_not_answer_refuses_in_time() {
    let (address, authority) = webhook::serve(answer).await;
    let url = |path: &str| format!("https://{address}{path}");
    for (client, why) in [
        (json!({"url": "https://127.0.0.1:1/x", "caBundle": authority}), "connect: connection refused"),
        (json!({"url": url("/slow"), "caBundle": authority}), "context deadline exceeded"),
        (json!({"url": url("/odd"), "caBundle": authority}), "webhook response was absent"),
        (json!({"url": url("/label")}), "certificate signed by unknown authority"),
    ] {
        let server = TestServer::start().await;
        configure(&server, "validating", client.clone(), 1).await;
        let refused = server.post(CONFIG_MAPS, &json!({"metadata": {"name": "a"}})).await;
        let message = refused.json()["message"].as_str().unwrap_or_default().to_owned();
        assert_eq!(refused.code, 500, "{client} {message}");
        assert!(message.contains("failed calling webhook \"w.example.com\""), "{message}");
        assert!(message.contains(why), "{message}");
        // Everything else must still work.
        assert_eq!(
            server.post("/api/v1/namespaces/default/secrets", &json!({"metadata": {"name": "s"}})).await.code,
            201
        );
    }
}
