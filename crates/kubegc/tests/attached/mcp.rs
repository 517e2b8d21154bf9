//! `kubegc mcp`, driven by the client of the protocol's own SDK: each tool answers with the permissions of the kubeconfig, nothing
//! is written, and no content of a Secret is disclosed.

use std::path::Path;
use std::process::Stdio;

use rmcp::ServiceExt as _;
use rmcp::model::{CallToolRequestParams, CallToolResult};
use rmcp::service::{RoleClient, RunningService};
use serde_json::{Value, json};

use super::consent::writes;
use crate::support::Kubegc;
use crate::support_cluster::{Admin, MAPS, until};
use crate::support_proxy::Proxy;

/// A client, and the process to which it is connected.
struct Client {
    service: RunningService<RoleClient, ()>,
    child: tokio::process::Child,
}

impl Client {
    async fn start(kubeconfig: &Path, arguments: &[&str]) -> Self {
        let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_kubegc"))
            .arg("mcp")
            .args(arguments)
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let streams = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
        Self { service: ().serve(streams).await.unwrap(), child }
    }

    /// Calls a tool; returns the text of its answer, and whether it is an error.
    async fn call(&self, name: &'static str, arguments: Value) -> (bool, String) {
        let request = CallToolRequestParams::new(name).with_arguments(arguments.as_object().unwrap().clone());
        let CallToolResult { content, is_error, .. } = self.service.call_tool(request).await.unwrap();
        let texts = content.iter().map(|block| block.as_text().unwrap().text.clone());
        (is_error == Some(true), texts.collect())
    }
}

/// Content of a Secret, encoded and in clear text.
const CONTENTS: [&str; 2] = ["aHVudGVyMg==", "hunter2"];

/// Creates a collected object for the journal, a stuck one, an owner with a dependent, and a Secret that nothing uses.
fn furnish(server: &Kubegc) {
    let admin = Admin::of(server);
    let gone = admin.map("gone", None);
    admin.map("collected", Some(("gone", &gone)));
    admin.delete("gone", "Background");
    until("it is collected", || !admin.exists("collected"));
    let owner = admin.map("owner", None);
    admin.map("leaf", Some(("owner", &owner)));
    let held = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "held", "finalizers": ["acme.dev/hold"]}});
    admin.create(MAPS, &held);
    admin.delete("held", "Background");
    let applied = json!({"data": {"password": CONTENTS[0]}}).to_string();
    let metadata = json!({"name": "unused", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": applied}});
    let secret = json!({"metadata": metadata, "data": {"password": CONTENTS[0]}, "stringData": {"again": CONTENTS[1]}});
    admin.create("/api/v1/namespaces/default/secrets", &secret);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_answer_over_the_protocol_and_write_nothing() {
    let (server, proxy) = tokio::task::spawn_blocking(|| {
        let server = Kubegc::start_collectors();
        furnish(&server);
        let proxy = Proxy::start(&server.kubeconfig);
        (server, proxy)
    })
    .await
    .unwrap();
    let client = Client::start(&proxy.kubeconfig(), &[]).await;
    let tools = client.service.list_all_tools().await.unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["stuck", "why", "tree", "plan", "garbage", "journal"]);

    let of = |object: &str| json!({"object": object, "namespace": "default"});
    let mut said = String::new();
    for (name, arguments, expected) in [
        ("stuck", json!({}), "acme.dev/hold"),
        ("stuck", json!({"namespace": "default", "atLeast": "500h"}), "Nothing is stuck"),
        ("why", of("cm/leaf"), "owner"),
        ("why", of("secret/unused"), "It will not be collected"),
        ("why", of("cm/collected"), "gone"),
        ("tree", of("cm/owner"), "leaf"),
        ("tree", json!({"object": "cm/leaf", "namespace": "default", "owners": true, "depth": 1}), "owner"),
        ("plan", of("cm/owner"), "2 objects: 2 ConfigMaps; nothing gets stuck"),
        ("plan", json!({"object": "cm/owner", "namespace": "default", "cascade": "orphan"}), "1 released"),
        ("plan", of("secret/unused"), "1 object: 1 Secret"),
        ("garbage", json!({"namespace": "default"}), "Secret/unused"),
        ("garbage", json!({"olderThan": "30d"}), "No unused objects found"),
        ("journal", json!({"object": "cm/collected", "since": "1h", "limit": 5}), "collected"),
    ] {
        let (is_error, text) = client.call(name, arguments.clone()).await;
        assert!(!is_error && text.contains(expected), "{name} {arguments}: {text}");
        said.push_str(&text);
    }
    // An error is an answer, too, and the server keeps running.
    for (name, arguments, expected) in [
        ("why", json!({}), "missing field `object`"),
        ("why", of("cm/never"), "never"),
        ("tree", of("nonsense/x"), "nonsense"),
        ("plan", json!({"object": "cm/owner", "cascade": "sideways"}), "background, foreground or orphan"),
        ("stuck", json!({"atLeast": "soon"}), "atLeast"),
    ] {
        let (is_error, text) = client.call(name, arguments.clone()).await;
        assert!(is_error && text.contains(expected), "{name} {arguments}: {text}");
        said.push_str(&text);
    }
    assert!(client.service.call_tool(CallToolRequestParams::new("delete")).await.is_err());
    for contents in CONTENTS {
        assert!(!said.contains(contents), "{said}");
    }
    assert_eq!(writes(&proxy), [""; 0]);
    let Client { service, mut child } = client;
    service.cancel().await.unwrap();
    assert!(child.wait().await.unwrap().success(), "it ends with its client");

    // Another user of the same kubeconfig only sees objects that this user may read; the proxy would ask as the administrator.
    let client = Client::start(&server.kubeconfig, &["--as", "ann"]).await;
    let (is_error, text) = client.call("why", of("secret/unused")).await;
    assert!(is_error && text.contains("ann"), "{text}");
    client.service.cancel().await.unwrap();
    tokio::task::spawn_blocking(move || drop((server, proxy))).await.unwrap();
}
