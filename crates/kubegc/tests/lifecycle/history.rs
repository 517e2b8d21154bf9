//! Flags that bound the history of the store.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::{PATIENCE, config_maps, create, support};
use support::{Kubegc, Signal};

fn start(arguments: &[&str]) -> Kubegc {
    Kubegc::start_with("apiserver", ["--ephemeral"].iter().chain(arguments).copied())
}

/// Sends a GET, and returns the code of its refusal.
async fn refusal(client: &kube::Client, path: &str) -> Option<u16> {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    match client.request::<Value>(request).await {
        Err(kube::Error::Api(status)) => Some(status.code),
        other => {
            other.unwrap();
            None
        }
    }
}

/// Sends a GET until it is refused with this code.
async fn until_refused(client: &kube::Client, path: &str, code: u16) {
    let asked = async {
        while refusal(client, path).await != Some(code) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.unwrap();
}

/// All pages of a list belong to one revision, which is eventually forgotten.
#[tokio::test]
async fn history_ends_after_an_interval() {
    let server = start(&["--compaction-interval=50ms"]);
    let maps = config_maps(&server).await;
    for name in ["a", "b"] {
        create(&maps, name).await;
    }
    let page = maps.list(&ListParams::default().limit(1)).await.unwrap();
    let token = page.metadata.continue_.unwrap();
    create(&maps, "c").await;
    let next = format!("/api/v1/namespaces/default/configmaps?limit=1&continue={token}");
    until_refused(&server.client().await, &next, 410).await;
}

/// Superseded versions are forgotten if they are too large together, even if they are young.
#[tokio::test]
async fn history_has_a_size() {
    let server = start(&["--compaction-interval=0s", "--history-size=1Mi"]);
    let maps: Api<ConfigMap> = config_maps(&server).await;
    let first = create(&maps, "a").await.metadata.resource_version.unwrap();
    let at = format!(
        "/api/v1/namespaces/default/configmaps?resourceVersion={first}&resourceVersionMatch=Exact&limit=500"
    );
    let client = server.client().await;
    let change = async |number: usize| {
        let text = number.to_string() + &"x".repeat(400_000);
        let patch = Patch::Merge(json!({"data": {"k": text}}));
        maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    };
    change(0).await;
    assert_eq!(refusal(&client, &at).await, None, "within the size");
    for number in 1..5 {
        change(number).await;
    }
    assert_eq!(refusal(&client, &at).await, Some(410));
}

/// Objects that do not fit into memory are read from the data file, in lists, gets, changes and after a restart.
#[tokio::test]
async fn objects_beyond_the_memory_are_read_from_disk() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = format!("--data-dir={}", folder.path().display());
    let start =
        || Kubegc::start_with("apiserver", [&*data_dir, "--object-memory=0", "--compaction-interval=50ms"]);
    let server = start();
    let maps: Api<ConfigMap> = config_maps(&server).await;
    let names = ["a", "b", "c"];
    let mut created = Vec::new();
    for name in names {
        created.push(create(&maps, name).await);
    }
    let client = server.client().await;
    let on_disk = async || {
        let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
        let text = client.request_text(request).await.unwrap();
        let name = "kubegc_apiserver_storage_disk_only_bytes ";
        text.lines().find_map(|line| line.strip_prefix(name)?.parse::<u64>().ok()).unwrap()
    };
    // Changes leave the history after an interval.
    let until = async {
        while on_disk().await == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, until).await.unwrap();
    for object in &created {
        assert_eq!(maps.get(object.metadata.name.as_ref().unwrap()).await.unwrap(), *object);
    }
    let listed = async |maps: &Api<ConfigMap>| {
        let all = maps.list(&ListParams::default()).await.unwrap().items;
        all.into_iter()
            .filter(|map| names.contains(&&**map.metadata.name.as_ref().unwrap()))
            .collect::<Vec<_>>()
    };
    assert_eq!(listed(&maps).await, created);
    maps.delete("b", &kube::api::DeleteParams::default()).await.unwrap();
    server.end(Signal::TERM);
    let server = start();
    let maps = config_maps(&server).await;
    assert_eq!(listed(&maps).await, [created[0].clone(), created[2].clone()]);
}

/// A server that is asked to stop closes its data file in order: the next start reads the index of the keys, and no values.
#[tokio::test]
async fn a_stop_leaves_an_index_to_the_next_start() {
    for (subcommand, signal) in
        [("apiserver", Signal::TERM), ("apiserver", Signal::INT), ("up", Signal::TERM)]
    {
        let folder = tempfile::tempdir().unwrap();
        let data_dir = format!("--data-dir={}", folder.path().join("data").display());
        let log = folder.path().join("log");
        let start = || Kubegc::start_logged(&log, subcommand, [&*data_dir, "--object-memory=0"]);
        let server = start();
        let created = create(&config_maps(&server).await, "a").await;
        let (status, _) = server.end(signal);
        assert!(status.success(), "{subcommand} ended by {signal:?}: {status}");
        let server = start();
        let text = std::fs::read_to_string(&log).unwrap();
        assert!(text.contains("read the index of the data file"), "{subcommand} after {signal:?}: {text}");
        assert_eq!(config_maps(&server).await.get("a").await.unwrap(), created);
    }
}
