//! Tests representations of answers, over a real connection.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;

use std::collections::BTreeSet;
use std::io::Read as _;

use prost::Message as _;
use serde_json::{Value, json};
use support::{Lines, TestServer};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const METADATA: &str = "as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// JSON is indented for tools whose output people read, unless they ask otherwise.
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

const AGGREGATED: &str = "g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

#[tokio::test]
async fn aggregated_discovery_has_an_etag() {
    let server = TestServer::start().await;
    let mut tags = BTreeSet::new();
    for encoding in ["application/json", "application/yaml", PROTOBUF] {
        let accept = format!("{encoding};{AGGREGATED}");
        let first = server.send("GET", "/apis", &[("accept", &accept)], "").await;
        assert_eq!((first.code, first.header("content-type")), (200, accept.as_str()));
        assert_eq!(first.header("cache-control"), "public");
        let tag = first.header("etag").to_owned();
        let again = server.send("GET", "/apis", &[("accept", &accept), ("if-none-match", &tag)], "").await;
        assert_eq!((again.code, again.bytes.len(), again.header("content-type")), (304, 0, ""));
        let other = [("accept", accept.as_str()), ("if-none-match", "\"OTHER\"")];
        assert_eq!(server.send("GET", "/apis", &other, "").await.code, 200);
        tags.insert(tag);
    }
    assert_eq!(tags.len(), 1, "the tag is that of the document, whatever it is written in: {tags:?}");
}

/// The same answers as kube-apiserver 1.36.2 gives; `None` is the unaggregated form.
#[tokio::test]
async fn aggregated_discovery_is_found_wherever_it_is_asked_for() {
    let server = TestServer::start().await;
    let (json, yaml) = (format!("application/json;{AGGREGATED}"), format!("application/yaml;{AGGREGATED}"));
    let protobuf = format!("{PROTOBUF};{AGGREGATED}");
    let beta = AGGREGATED.replace("v=v2", "v=v2beta1");
    let table = [
        (json.clone(), Ok(Some(&json))),
        (yaml.clone(), Ok(Some(&yaml))),
        (protobuf.clone(), Ok(Some(&protobuf))),
        (format!("application/json,{protobuf}"), Ok(Some(&protobuf))),
        (format!("{protobuf},{json},application/json"), Ok(Some(&protobuf))),
        (
            format!("{PROTOBUF};as=APIGroupDiscoveryList;profile=nopeer;v=v2;g=apidiscovery.k8s.io"),
            Ok(Some(&protobuf)),
        ),
        (format!("text/html,{protobuf};q=0"), Ok(Some(&protobuf))),
        (format!("*/*;{AGGREGATED}"), Ok(Some(&json))),
        (format!("{PROTOBUF};{beta},application/json"), Ok(None)),
        (format!("{PROTOBUF};{beta}"), Err(406)),
        (format!("application/json;{beta}"), Err(406)),
        (format!("{PROTOBUF};as=APIGroupDiscoveryList"), Err(406)),
        ("text/html".to_owned(), Err(406)),
        ("*/*".to_owned(), Ok(None)),
    ];
    for path in ["/api", "/apis"] {
        for (accept, wanted) in &table {
            let answer = server.send("GET", path, &[("accept", accept)], "").await;
            let content_type = answer.header("content-type");
            let given = match answer.code {
                200 => Ok(Some(content_type).filter(|text| text.contains("as="))),
                code => Err(code),
            };
            assert_eq!(given, wanted.map(|text| text.map(String::as_str)), "{path} {accept}");
        }
    }
    let accept = format!("application/*;{AGGREGATED}");
    for (path, code) in [("/api", 406), ("/apis", 200)] {
        assert_eq!(server.send("GET", path, &[("accept", &accept)], "").await.code, code, "{path}");
    }
    let indented = server.send("GET", "/apis", &[("accept", &format!("{json};pretty=1"))], "").await;
    assert!(indented.bytes.starts_with(b"{\n  \""), "{:?}", &indented.bytes[..20]);
}

#[derive(Clone, PartialEq, prost::Message)]
struct GroupList {
    #[prost(message, repeated, tag = "2")]
    items: Vec<Group>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Group {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Metadata>,
    #[prost(message, repeated, tag = "2")]
    versions: Vec<Version>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Version {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(message, repeated, tag = "2")]
    resources: Vec<Resource>,
    #[prost(string, tag = "3")]
    freshness: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Resource {
    #[prost(string, tag = "1")]
    resource: String,
    #[prost(message, optional, tag = "2")]
    response_kind: Option<Kind>,
    #[prost(string, tag = "3")]
    scope: String,
    #[prost(string, tag = "4")]
    singular: String,
    #[prost(string, repeated, tag = "5")]
    verbs: Vec<String>,
    #[prost(string, repeated, tag = "6")]
    short_names: Vec<String>,
    #[prost(string, repeated, tag = "7")]
    categories: Vec<String>,
    #[prost(message, repeated, tag = "8")]
    subresources: Vec<Subresource>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Subresource {
    #[prost(string, tag = "1")]
    subresource: String,
    #[prost(message, optional, tag = "2")]
    response_kind: Option<Kind>,
    #[prost(string, repeated, tag = "4")]
    verbs: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Kind {
    #[prost(string, tag = "1")]
    group: String,
    #[prost(string, tag = "2")]
    version: String,
    #[prost(string, tag = "3")]
    kind: String,
}

impl Kind {
    fn value(kind: Option<&Self>) -> Value {
        kind.map_or(
            Value::Null,
            |kind| json!({"group": kind.group, "version": kind.version, "kind": kind.kind}),
        )
    }
}

/// Returns a resource in discovery's JSON form, which omits empty lists.
fn resource_value(resource: &Resource) -> Value {
    let mut value = json!({
        "resource": resource.resource, "responseKind": Kind::value(resource.response_kind.as_ref()),
        "scope": resource.scope, "singularResource": resource.singular, "verbs": resource.verbs,
    });
    let subresources: Vec<Value> = resource
        .subresources
        .iter()
        .map(|sub| {
            let kind = Kind::value(sub.response_kind.as_ref());
            json!({"subresource": sub.subresource, "responseKind": kind, "verbs": sub.verbs})
        })
        .collect();
    for (name, list) in [
        ("shortNames", json!(resource.short_names)),
        ("categories", json!(resource.categories)),
        ("subresources", subresources.into()),
    ] {
        if list != json!([]) {
            value[name] = list;
        }
    }
    value
}

fn group_value(group: &Group) -> Value {
    let name = group.metadata.clone().unwrap_or_default().name;
    let version = |version: &Version| {
        let resources: Vec<Value> = version.resources.iter().map(resource_value).collect();
        json!({"version": version.version, "freshness": version.freshness, "resources": resources})
    };
    let versions: Vec<Value> = group.versions.iter().map(version).collect();
    json!({"metadata": if name.is_empty() { json!({}) } else { json!({"name": name}) }, "versions": versions})
}

#[tokio::test]
async fn aggregated_discovery_is_the_same_in_json_and_protobuf() {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Envelope {
        #[prost(message, optional, tag = "1")]
        type_meta: Option<TypeMeta>,
        #[prost(bytes = "vec", tag = "2")]
        raw: Vec<u8>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    struct TypeMeta {
        #[prost(string, tag = "1")]
        api_version: String,
        #[prost(string, tag = "2")]
        kind: String,
    }
    let server = TestServer::start().await;
    for path in ["/api", "/apis"] {
        let ask = async |encoding| {
            let accept = format!("{encoding};{AGGREGATED}");
            server.send("GET", path, &[("accept", &accept)], "").await
        };
        let bytes = ask(PROTOBUF).await.bytes;
        let document = Envelope::decode(bytes.strip_prefix(b"k8s\0").unwrap()).unwrap();
        let of =
            TypeMeta { api_version: "apidiscovery.k8s.io/v2".into(), kind: "APIGroupDiscoveryList".into() };
        assert_eq!(document.type_meta, Some(of));
        let read = GroupList::decode(document.raw.as_slice()).unwrap();
        let items: Vec<Value> = read.items.iter().map(group_value).collect();
        assert_eq!(Value::from(items), ask("application/json").await.json()["items"], "{path}");
    }
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
