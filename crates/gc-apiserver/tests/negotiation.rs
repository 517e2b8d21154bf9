//! Representations of answers, over a real connection.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;

use std::io::Read as _;

use serde_json::{Value, json};
use support::{Lines, TestServer};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const METADATA: &str = "as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// JSON is indented for the tools that people read it with, unless they say otherwise.
#[tokio::test]
async fn json_is_indented_for_people() {
    let server = TestServer::start().await;
    server.config_map("a").await;
    for (agent, query, indented) in [
        ("curl/8.5.0", "", true),
        ("Wget/1.21", "", true),
        ("Mozilla/5.0 (X11)", "", true),
        ("Go-http-client/2.0", "", false),
        ("kubectl/v1.36.2 curl/8", "", false),
        ("curl/8.5.0", "?pretty=false", false),
        ("curl/8.5.0", "?pretty=0", false),
        ("kubectl/v1.36.2", "?pretty=true", true),
        ("kubectl/v1.36.2", "?pretty=1", true),
    ] {
        for path in
            [format!("{CONFIG_MAPS}/a{query}"), format!("{CONFIG_MAPS}{query}"), format!("/apis{query}")]
        {
            let answer = server.send("GET", &path, &[("user-agent", agent)], "").await;
            assert_eq!(answer.bytes.starts_with(b"{\n  \""), indented, "{agent} {path}: {:?}", answer.bytes);
        }
    }
    let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion=0");
    let mut watch = Lines::new(server.open("GET", &path, &[("user-agent", "curl/8")], "").await);
    assert_eq!(watch.next_name().await, ("ADDED".to_owned(), "a".to_owned()), "an event is a line");
}

#[tokio::test]
async fn answers_take_the_form_that_was_asked_for() {
    let server = TestServer::start().await;
    let object = server.config_map("a").await;
    let path = format!("{CONFIG_MAPS}/a");
    let json_metadata = format!("application/json;{METADATA}");
    let protobuf_metadata = format!("application/vnd.kubernetes.protobuf;{METADATA}");
    let table = [
        ("", 200, "application/json", "ConfigMap"),
        ("*/*", 200, "application/json", "ConfigMap"),
        ("application/json", 200, "application/json", "ConfigMap"),
        ("application/yaml", 200, "application/yaml", ""),
        (
            "application/vnd.kubernetes.protobuf,application/json",
            200,
            "application/vnd.kubernetes.protobuf",
            "",
        ),
        ("application/vnd.kubernetes.protobuf", 200, "application/vnd.kubernetes.protobuf", ""),
        ("application/*", 406, "application/json", "Status"),
        ("text/html", 406, "application/json", "Status"),
        ("application/json;as=Table;g=meta.k8s.io;v=v1", 200, "application/json", "Table"),
        (json_metadata.as_str(), 200, "application/json", "PartialObjectMetadata"),
        (&protobuf_metadata, 200, "application/vnd.kubernetes.protobuf", ""),
    ];
    for (accept, code, content_type, kind) in table {
        let headers: &[(&str, &str)] = if accept.is_empty() { &[] } else { &[("accept", accept)] };
        let answer = server.send("GET", &path, headers, "").await;
        assert_eq!((answer.code, answer.header("content-type")), (code, content_type), "{accept}");
        if !kind.is_empty() {
            assert_eq!(answer.json()["kind"], kind, "{accept}");
        }
    }
    let yaml = server.send("GET", &path, &[("accept", "application/yaml")], "").await;
    assert_eq!(serde_saphyr::from_slice::<Value>(&yaml.bytes).unwrap(), object);
    let pretty = server.get(&format!("{path}?pretty=true")).await;
    assert!(pretty.bytes.starts_with(b"{\n  \""), "{:?}", pretty.bytes);
    assert_eq!(pretty.json(), object);
}

#[tokio::test]
async fn yaml_is_taken_in_requests() {
    let server = TestServer::start().await;
    let body = "metadata:\n  name: x\ndata:\n  k: v\n";
    let answer = server.send("POST", CONFIG_MAPS, &[("content-type", "application/yaml")], body).await;
    assert_eq!((answer.code, &answer.json()["data"]), (201, &json!({"k": "v"})));
}

#[tokio::test]
async fn metadata_is_the_same_in_json_and_protobuf() {
    let server = TestServer::start().await;
    for name in ["a", "b"] {
        server.config_map(name).await;
    }
    let accept = format!("application/vnd.kubernetes.protobuf;{METADATA_LIST}");
    let selector = format!("{CONFIG_MAPS}?fieldSelector=metadata.name!=kube-root-ca.crt");
    let protobuf = server.send("GET", &selector, &[("accept", &accept)], "").await;
    assert!(protobuf.bytes.starts_with(b"k8s\0"));
    let accept = format!("application/json;{METADATA_LIST}");
    let list = server.send("GET", &selector, &[("accept", &accept)], "").await.json();
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.len(), 2);
    for item in items {
        assert_eq!((&item["kind"], item.get("data")), (&json!("PartialObjectMetadata"), None));
        for field in ["name", "uid", "resourceVersion"] {
            let text = item["metadata"][field].as_str().unwrap();
            let found = protobuf.bytes.windows(text.len()).any(|window| window == text.as_bytes());
            assert!(found, "{field} {text} is in the protobuf list");
        }
    }
}

#[tokio::test]
async fn large_lists_are_streamed_and_compressed_when_asked() {
    let server = TestServer::start().await;
    let text = "x".repeat(4000);
    for index in 0..60 {
        let body = json!({"metadata": {"name": format!("m-{index:03}")}, "data": {"k": text}});
        assert_eq!(server.post(CONFIG_MAPS, &body).await.code, 201);
    }
    let plain = server.get(CONFIG_MAPS).await;
    assert_eq!(plain.header("content-encoding"), "");
    let packed = server.send("GET", CONFIG_MAPS, &[("accept-encoding", "gzip")], "").await;
    assert_eq!(packed.header("content-encoding"), "gzip");
    assert!(packed.bytes.len() * 10 < plain.bytes.len());
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(&packed.bytes[..]).read_to_end(&mut unpacked).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&unpacked).unwrap(), plain.json());
    let small = server.send("GET", &format!("{CONFIG_MAPS}/m-000"), &[("accept-encoding", "gzip")], "").await;
    assert_eq!(small.header("content-encoding"), "", "small answers are sent as they are");
}

#[tokio::test]
async fn aggregated_discovery_has_an_etag() {
    let server = TestServer::start().await;
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let first = server.send("GET", "/apis", &[("accept", accept)], "").await;
    assert_eq!((first.code, first.header("content-type")), (200, accept));
    let tag = first.header("etag").to_owned();
    let again = server.send("GET", "/apis", &[("accept", accept), ("if-none-match", &tag)], "").await;
    assert_eq!((again.code, again.bytes.len()), (304, 0));
}

#[tokio::test]
async fn openapi_documents_have_hashes() {
    let server = TestServer::start().await;
    let index = server.get("/openapi/v3").await.json();
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let document = server.get(&url).await;
    assert_eq!((document.code, document.header("cache-control")), (200, "public, immutable"));
    let (path, _) = url.split_once('?').unwrap();
    let moved = server.get(&format!("{path}?hash=OLD")).await;
    assert_eq!((moved.code, moved.header("location")), (301, url.as_str()));
    assert_eq!(server.get("/openapi/v2").await.json()["swagger"], "2.0");
    assert_eq!(server.get("/openapi/v3/apis/none/v1").await.code, 404);
}
