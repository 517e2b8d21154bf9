//! Runs the same tests of one operator twice: once by waiting until nothing is left to do, and once by polling as with envtest.
//! docs/testing.md compares their lines and seconds.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, Resource as _, ResourceExt as _};
use kube_runtime::controller::Action;
use kubegc_testing::Cluster;
use serde_json::json;

/// Interval of polling, and the time after which a test concludes that nothing will happen, as in Kubebuilder's tutorial for
/// envtest.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
const CONSISTENT_FOR: Duration = Duration::from_secs(10);
const POLL_TIMEOUT: Duration = Duration::from_secs(10);

/// Reconciles: each ConfigMap with the label `token` gets a Secret of the same name, and loses the Secret with the label.
async fn reconcile(map: Arc<ConfigMap>, client: Arc<Client>) -> Result<Action, kube::Error> {
    let secrets: Api<Secret> = Api::namespaced((*client).clone(), "default");
    let secret = secrets.get_opt(&map.name_any()).await?;
    let is_wanted = map.labels().contains_key("token") && map.metadata.deletion_timestamp.is_none();
    match (is_wanted, secret) {
        (true, None) => {
            let metadata = ObjectMeta {
                name: Some(map.name_any()),
                owner_references: map.controller_owner_ref(&()).map(|owner| vec![owner]),
                ..ObjectMeta::default()
            };
            let secret = Secret { metadata, ..Secret::default() };
            secrets.create(&PostParams::default(), &secret).await?;
        }
        (false, Some(secret)) => {
            secrets.delete(&secret.name_any(), &DeleteParams::default()).await?;
        }
        (true, Some(_)) | (false, None) => {}
    }
    Ok(Action::await_change())
}

/// A cluster with the operator running in it.
struct Bench {
    cluster: Cluster,
    maps: Api<ConfigMap>,
    secrets: Api<Secret>,
    operator: tokio::task::JoinHandle<()>,
}

impl Bench {
    async fn start() -> Self {
        let cluster = Cluster::start().await.unwrap();
        let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), "default");
        let secrets: Api<Secret> = Api::namespaced(cluster.client(), "default");
        let config = kube_runtime::watcher::Config::default;
        let controller = kube_runtime::Controller::new(maps.clone(), config())
            .owns(secrets.clone(), config())
            .run(reconcile, |_, _, _| Action::await_change(), Arc::new(cluster.client()));
        let operator = tokio::spawn(controller.for_each(|_| std::future::ready(())));
        Self { cluster, maps, secrets, operator }
    }

    async fn create(&self, labels: &[(&str, &str)]) {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let metadata = ObjectMeta { name: Some("app".into()), labels: Some(labels), ..ObjectMeta::default() };
        let map = ConfigMap { metadata, ..ConfigMap::default() };
        self.maps.create(&PostParams::default(), &map).await.unwrap();
    }

    async fn label(&self, value: Option<&str>) {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"token": value}}}));
        self.maps.patch("app", &PatchParams::default(), &patch).await.unwrap();
    }

    async fn has_secret(&self) -> bool {
        self.secrets.get_opt("app").await.unwrap().is_some()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.operator.abort();
    }
}

async fn eventually<F: Future<Output = bool>>(holds: impl Fn() -> F) {
    let deadline = Instant::now() + POLL_TIMEOUT;
    while !holds().await {
        assert!(Instant::now() < deadline, "not within {POLL_TIMEOUT:?}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn consistently<F: Future<Output = bool>>(holds: impl Fn() -> F, how_long: Duration) {
    let end = Instant::now() + how_long;
    while Instant::now() < end {
        assert!(holds().await, "not for {how_long:?}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn by_settling() -> Vec<bool> {
    let bench = Bench::start().await;
    let mut found = Vec::new();
    // Nothing is created without the label.
    bench.create(&[]).await;
    bench.cluster.settle().await.unwrap();
    found.push(bench.has_secret().await);
    // The label brings a Secret,
    bench.label(Some("yes")).await;
    bench.cluster.settle().await.unwrap();
    found.push(bench.has_secret().await);
    // which is recreated after a deletion,
    bench.secrets.delete("app", &DeleteParams::default()).await.unwrap();
    bench.cluster.settle().await.unwrap();
    found.push(bench.has_secret().await);
    // and is deleted with the label,
    bench.label(None).await;
    bench.cluster.settle().await.unwrap();
    found.push(bench.has_secret().await);
    // or with its owner.
    bench.label(Some("yes")).await;
    bench.cluster.settle().await.unwrap();
    found.push(bench.has_secret().await);
    bench.maps.delete("app", &DeleteParams::background()).await.unwrap();
    bench.cluster.settle().await.unwrap();
    found.push(bench.has_secret().await);
    found
}

/// Polls for the states that `by_settling` waits for. To show that something does not happen, waits for `quiet`. Without a
/// collector, as in envtest, the last two waits would time out.
async fn by_polling(quiet: Duration) -> Vec<bool> {
    let bench = Bench::start().await;
    let mut found = Vec::new();
    bench.create(&[]).await;
    consistently(|| async { !bench.has_secret().await }, quiet).await;
    found.push(bench.has_secret().await);
    bench.label(Some("yes")).await;
    eventually(|| bench.has_secret()).await;
    found.push(bench.has_secret().await);
    let uid = bench.secrets.get("app").await.unwrap().metadata.uid;
    bench.secrets.delete("app", &DeleteParams::default()).await.unwrap();
    // The old Secret may still exist.
    eventually(|| async {
        let found = bench.secrets.get_opt("app").await.unwrap();
        found.is_some_and(|secret| secret.metadata.uid != uid)
    })
    .await;
    found.push(bench.has_secret().await);
    bench.label(None).await;
    eventually(|| async { !bench.has_secret().await }).await;
    // The operator might recreate the Secret.
    consistently(|| async { !bench.has_secret().await }, quiet).await;
    found.push(bench.has_secret().await);
    bench.label(Some("yes")).await;
    eventually(|| bench.has_secret()).await;
    found.push(bench.has_secret().await);
    bench.maps.delete("app", &DeleteParams::background()).await.unwrap();
    eventually(|| async { !bench.has_secret().await }).await;
    consistently(|| async { !bench.has_secret().await }, quiet).await;
    found.push(bench.has_secret().await);
    found
}

#[tokio::test]
async fn settling_finds_what_polling_finds() {
    let begun = Instant::now();
    let settled = by_settling().await;
    let settling = begun.elapsed();
    // With `KUBEGC_SITUATIONS=whole`, the test waits as long as Kubebuilder's tutorial does.
    let is_whole = std::env::var_os("KUBEGC_SITUATIONS").is_some();
    let begun = Instant::now();
    let polled = by_polling(if is_whole { CONSISTENT_FOR } else { POLL_INTERVAL }).await;
    println!("settling: {settling:?}; polling: {:?}", begun.elapsed());
    // Without the label; with it; after a deletion; without the label; with it again; and without the owner.
    assert_eq!(settled, [false, true, true, false, true, false]);
    assert_eq!(polled, settled);
}
