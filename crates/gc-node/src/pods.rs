//! Pods of this node, and the images that they name (spec `node-gc.md`, section 14.4).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use gc_collectors::containers::pods::{KnownPod, OracleState, PodView};
use gc_collectors::containers::{PodUid, Sandbox};
use gc_collectors::images::needs::Needs;
use gc_kube::ApiClient;
use gc_types::{GoDuration, UnixNanoseconds};
use http_body_util::Full;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tracing::{info, warn};

use crate::state::UnknownPods;
use crate::workloads::Workloads;

/// Number of pods per page of a list.
pub(crate) const PAGE: u32 = 500;
/// Maximum number of pods; a node has a few hundred, a protected namespace thousands.
const MAX_PODS: usize = 100_000;
/// Number of consecutive empty lists after which a source that had pods before is believed.
const EMPTY_CONFIRMATIONS: u32 = 3;
/// Timeout of a query within a pass, whose removals wait for it.
const REFRESH_IN_PASS: Duration = Duration::from_secs(2);
/// Minimum time for which a UID must be unknown before its pod counts as gone.
const SAFETY_DELAY: GoDuration = GoDuration::from_seconds(60);
/// Annotation of static pods with the hash of the manifest, which the runtime uses as UID.
const CONFIG_HASH_ANNOTATION: &str = "kubernetes.io/config.hash";

/// Source of knowledge about pods.
pub enum PodSource {
    /// An API server.
    Api {
        /// Client of the server.
        client: ApiClient,
        /// Name of this node.
        node: String,
        /// Namespaces whose images are kept, wherever their pods run.
        protected_namespaces: Vec<String>,
    },
    /// Static manifests: the images that they name are protected; whether other pods exist is unknown.
    Manifests(PathBuf),
    /// No source.
    None,
}

/// State of pods, kept from pass to pass.
pub struct Pods {
    source: PodSource,
    /// View for the collectors.
    pub(crate) view: PodView,
    /// Images that pods name, with or without a container yet.
    pub(crate) named_images: Vec<Arc<str>>,
    empty_answers: u32,
    /// True if the source has answered at all.
    answered: bool,
    /// Reason why the directory of static manifests could not be read.
    unreadable: Option<String>,
    /// State according to the last answer alone.
    by_answer: OracleState,
    /// True if, at the last check, no pod that runs here was in the source's list.
    of_another_node: bool,
    /// State that was last logged.
    logged: OracleState,
    /// Workloads of the cluster whose images are kept, if this is enabled.
    workloads: Option<Workloads>,
}

#[derive(Deserialize)]
struct List<T> {
    kind: String,
    metadata: ListMetadata,
    #[serde(default = "Vec::new")]
    items: Vec<T>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ListMetadata {
    r#continue: String,
}

/// Parsed parts of a pod: no environment, no arguments, no secrets.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Pod {
    metadata: PodMetadata,
    spec: PodSpec,
    status: PodStatus,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct PodMetadata {
    uid: String,
    annotations: BTreeMap<String, String>,
    deletion_timestamp: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PodSpec {
    containers: Vec<NamedImage>,
    init_containers: Vec<NamedImage>,
    ephemeral_containers: Vec<NamedImage>,
    volumes: Vec<Volume>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NamedImage {
    name: String,
    image: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Volume {
    image: Option<ImageVolume>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ImageVolume {
    reference: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PodStatus {
    phase: String,
    reason: String,
}

impl PodSpec {
    /// Returns the images that containers and volumes name.
    pub(crate) fn images(&self) -> impl Iterator<Item = &str> {
        let containers =
            self.containers.iter().chain(&self.init_containers).chain(&self.ephemeral_containers);
        let volumes = self
            .volumes
            .iter()
            .filter_map(|volume| volume.image.as_ref().map(|image| image.reference.as_str()));
        containers.map(|container| container.image.as_str()).chain(volumes).filter(|image| !image.is_empty())
    }
}

impl Pod {
    fn images(&self) -> impl Iterator<Item = &str> {
        self.spec.images()
    }

    fn is_finished(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Returns the UIDs under which a runtime may know the pod: its own, and for a static pod the hash of its manifest.
    fn uids(&self) -> impl Iterator<Item = PodUid> {
        let hash = self.metadata.annotations.get(CONFIG_HASH_ANNOTATION);
        [Some(&self.metadata.uid), hash].into_iter().flatten().filter_map(|uid| PodUid::new(uid))
    }

    fn known(&self) -> KnownPod {
        KnownPod {
            finished: self.is_finished(),
            evicted: self.status.phase == "Failed" && self.status.reason == "Evicted",
            deleting: self.metadata.deletion_timestamp.is_some(),
            init_containers: self.spec.init_containers.iter().map(|c| Arc::from(c.name.as_str())).collect(),
        }
    }
}

impl Pods {
    /// Creates the state before the first list: nothing is known.
    #[must_use]
    pub fn new(source: PodSource) -> Self {
        let state = match &source {
            PodSource::Api { .. } => OracleState::Unsynced { why: "not asked yet".into() },
            PodSource::Manifests(_) | PodSource::None => OracleState::Standalone,
        };
        let view = PodView {
            state,
            known: BTreeMap::new(),
            unknown_since: BTreeMap::new(),
            safety_delay: SAFETY_DELAY,
        };
        Self {
            source,
            named_images: Vec::new(),
            empty_answers: 0,
            answered: false,
            unreadable: None,
            by_answer: view.state.clone(),
            of_another_node: false,
            logged: view.state.clone(),
            workloads: None,
            view,
        }
    }

    /// Also keeps the images of workloads without a running pod that were scaled to zero within this time. Needs an API server.
    #[must_use]
    pub fn keeping_workload_images(self, within: Duration) -> Self {
        let PodSource::Api { client, .. } = &self.source else { return self };
        let workloads = Workloads::new(client.clone(), within);
        Self { workloads: Some(workloads), ..self }
    }

    /// Returns the images that workloads will need, as of now or of the last answer.
    pub(crate) async fn needs(&mut self) -> Needs {
        match &mut self.workloads {
            Some(workloads) => workloads.needs().await.clone(),
            None => Needs::default(),
        }
    }

    /// Queries the source. If this fails, the view answers nothing, and keeps the images that were last named.
    pub(crate) async fn refresh(&mut self) {
        match &self.source {
            PodSource::None => {}
            PodSource::Manifests(folder) => match read_manifests(folder) {
                Ok(images) => {
                    self.named_images = images;
                    self.unreadable = None;
                }
                Err(error) => {
                    warn!("static manifests: {error:#}");
                    self.unreadable = Some(format!("{error:#}"));
                }
            },
            PodSource::Api { client, node, protected_namespaces } => {
                let answer = ask(client, node, protected_namespaces).await;
                self.take(answer);
            }
        }
    }

    /// Queries the source again within a pass, as a pod may have been bound since. A server that is slow or fails is not asked
    /// again in the same pass: the images that it last named are kept.
    pub(crate) async fn refresh_in_pass(&mut self) {
        if self.unknown().is_some() {
            return;
        }
        if tokio::time::timeout(REFRESH_IN_PASS, self.refresh()).await.is_err() {
            self.take(Err(anyhow::anyhow!("no answer within {REFRESH_IN_PASS:?} during a pass")));
        }
    }

    /// Explains why the images that the pods of this node or workloads name are unknown, if they are. In that case no image is
    /// removed for its age alone: a pod may need it and be unable to pull it.
    pub(crate) fn names_unknown(&self) -> Option<&str> {
        self.unknown().or_else(|| self.workloads.as_ref().and_then(Workloads::unknown))
    }

    fn unknown(&self) -> Option<&str> {
        match &self.view.state {
            OracleState::Unsynced { why } => Some(why),
            OracleState::Synced | OracleState::Standalone => self.unreadable.as_deref(),
        }
    }

    /// Explains why the images that must be kept are not known yet, if they are not; until then nothing may be removed.
    pub(crate) fn blind_to_protection(&self) -> Option<String> {
        let PodSource::Api { protected_namespaces, .. } = &self.source else { return None };
        let OracleState::Unsynced { why } = &self.view.state else { return None };
        (!protected_namespaces.is_empty() && !self.answered).then(|| {
            format!("the images of --protect-namespace are not known yet, so that nothing is removed: {why}")
        })
    }

    /// Reports whether every pod of the node is known.
    pub(crate) fn is_synced(&self) -> bool {
        self.view.state == OracleState::Synced
    }

    /// Restores the saved state.
    pub(crate) fn restore(&mut self, unknown_since: UnknownPods) {
        self.view.unknown_since = unknown_since;
    }

    /// Compares the source with the runtime's list, and records which listed pods are unknown.
    pub(crate) fn compare(&mut self, sandboxes: &[Sandbox], listed: &BTreeSet<PodUid>, now: UnixNanoseconds) {
        self.of_another_node =
            self.by_answer == OracleState::Synced && self.view.is_of_another_node(sandboxes);
        self.believe();
        self.view.record_unknown(listed, now);
    }

    /// Describes the work that passes skip because pods are unknown.
    pub(crate) fn reservations(&self, now: UnixNanoseconds) -> Option<String> {
        let only_limits = "only limits apply to their remains";
        match &self.view.state {
            OracleState::Standalone => {
                Some(format!("No cluster is asked which pods exist (--kubeconfig), so {only_limits}."))
            }
            OracleState::Unsynced { why } => {
                Some(format!("It is not known which pods exist, so {only_limits}: {why}"))
            }
            OracleState::Synced => match self.view.awaited(now) {
                0 => None,
                pods => Some(format!(
                    "{pods} pods with remains on this node have been unknown to the cluster for less than \
                     {SAFETY_DELAY}; their remains are kept until a later pass."
                )),
            },
        }
    }

    fn take(&mut self, answer: Result<(Vec<Pod>, Vec<Pod>)>) {
        self.take_answer(answer);
        self.believe();
    }

    /// Logs any change.
    fn log_change(&mut self) {
        if self.logged == self.view.state {
            return;
        }
        match &self.view.state {
            OracleState::Synced => info!(pods = self.view.known.len(), "the pods of this node are known"),
            OracleState::Unsynced { why } => {
                warn!(
                    "it is not known which pods exist, so only limits apply, and no image is removed for its age: {why}"
                );
            }
            OracleState::Standalone => {}
        }
        self.logged = self.view.state.clone();
    }

    /// Believes an answer if it is consistent with the pods that run here.
    fn believe(&mut self) {
        self.view.state = if self.of_another_node && self.by_answer == OracleState::Synced {
            let why = "the cluster knows none of the pods that run here; is --node-name the name that it has for this node?";
            OracleState::Unsynced { why: why.to_owned() }
        } else {
            self.by_answer.clone()
        };
        self.log_change();
    }

    fn take_answer(&mut self, answer: Result<(Vec<Pod>, Vec<Pod>)>) {
        match answer {
            Ok((pods, protected)) => {
                self.empty_answers = if pods.is_empty() { self.empty_answers + 1 } else { 0 };
                if pods.is_empty() && !self.view.known.is_empty() && self.empty_answers < EMPTY_CONFIRMATIONS
                {
                    let why =
                        "the API server lists no pod of this node, which had some; asking again".to_owned();
                    self.by_answer = OracleState::Unsynced { why };
                    return;
                }
                self.view.known =
                    pods.iter().flat_map(|pod| pod.uids().map(|uid| (uid, pod.known()))).collect();
                let named =
                    pods.iter().filter(|pod| !pod.is_finished()).chain(&protected).flat_map(Pod::images);
                self.named_images = named.collect::<BTreeSet<_>>().into_iter().map(Arc::from).collect();
                self.by_answer = OracleState::Synced;
                self.answered = true;
            }
            Err(error) => self.by_answer = OracleState::Unsynced { why: format!("{error:#}") },
        }
    }
}

async fn ask(client: &ApiClient, node: &str, namespaces: &[String]) -> Result<(Vec<Pod>, Vec<Pod>)> {
    let own =
        list(client, &format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}&limit={PAGE}")).await?;
    let mut protected = Vec::new();
    for namespace in namespaces {
        protected.extend(list(client, &format!("/api/v1/namespaces/{namespace}/pods?limit={PAGE}")).await?);
    }
    Ok((own, protected))
}

async fn list(client: &ApiClient, path: &str) -> Result<Vec<Pod>> {
    let mut pods = Vec::new();
    each_page(client, path, |page| {
        pods.extend(page);
        anyhow::ensure!(pods.len() <= MAX_PODS, "more than {MAX_PODS} pods at {path}");
        Ok(())
    })
    .await?;
    Ok(pods)
}

/// Passes on a list page by page; `path` has a question mark.
pub(crate) async fn each_page<T: DeserializeOwned>(
    client: &ApiClient,
    path: &str,
    mut take: impl FnMut(Vec<T>) -> Result<()>,
) -> Result<()> {
    let mut token = String::new();
    loop {
        let mut uri = path.to_owned();
        if !token.is_empty() {
            uri.push_str("&continue=");
            gc_kube::push_segment(&mut uri, &token);
        }
        let request = http::Request::get(&uri).header(http::header::ACCEPT, "application/json");
        let request =
            request.body(Full::<Bytes>::default()).with_context(|| format!("cannot ask for {path}"))?;
        let answer = client.call(request).await.with_context(|| format!("cannot list {path}"))?;
        let status = answer.head.status;
        anyhow::ensure!(status.is_success(), "cannot list {path}: {status}");
        let page: List<T> =
            serde_json::from_slice(&answer.body).with_context(|| format!("cannot read {path}"))?;
        anyhow::ensure!(
            page.kind.ends_with("List"),
            "{path} was answered with {:?}, which is no list",
            page.kind
        );
        take(page.items)?;
        if page.metadata.r#continue.is_empty() {
            return Ok(());
        }
        token = page.metadata.r#continue;
    }
}

/// Returns the images that the manifest of a pod names.
pub(crate) fn manifest_images(text: &str) -> Result<Vec<String>, serde_saphyr::Error> {
    // Errors fit on one line: the parser's own show the surrounding text.
    let options = serde_saphyr::options! { with_snippet: false };
    let pod: Pod = serde_saphyr::from_str_with_options(text, options)?;
    Ok(pod.images().map(str::to_owned).collect())
}

fn read_manifests(folder: &PathBuf) -> Result<Vec<Arc<str>>> {
    let mut images = BTreeSet::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry.with_context(|| format!("cannot read {}", folder.display()))?.path();
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if hidden || !path.is_file() {
            continue;
        }
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        match manifest_images(&text) {
            Ok(named) => images.extend(named.into_iter().map(Arc::from)),
            Err(error) => warn!("{} is not a pod manifest: {error}", path.display()),
        }
    }
    Ok(images.into_iter().collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use serde_json::json;

    fn pod(value: serde_json::Value) -> Pod {
        serde_json::from_value(value).unwrap()
    }

    fn known(pods: &Pods) -> Vec<&str> {
        pods.view.known.keys().map(PodUid::as_str).collect()
    }

    /// The response of a broken gateway names no pods, but does not prove that there are none.
    #[tokio::test]
    async fn what_is_no_list_is_an_error() {
        for (answer, is_list) in [
            (json!({"kind": "PodList", "metadata": {}, "items": []}), true),
            (json!({"metadata": {}}), false),
            (json!({"metadata": {}, "items": []}), false),
            (json!({"kind": "Status", "metadata": {}, "status": "Success"}), false),
            (json!({}), false),
            (json!([]), false),
        ] {
            let text = answer.to_string();
            let client = ApiClient::in_process(move |_: http::Request<Full<Bytes>>| {
                let answer = http::Response::new(Full::<Bytes>::from(text.clone()));
                async move { answer }
            });
            assert_eq!(list(&client, "/api/v1/pods?limit=1").await.is_ok(), is_list, "{answer}");
        }
    }

    /// T28 and T91: images without a container are known, and static pods by the hash of their manifest.
    #[test]
    fn pods_are_known_by_what_the_runtime_calls_them() {
        let mut pods = Pods::new(PodSource::None);
        let mirror = pod(json!({
            "metadata": {"uid": "api-uid", "annotations": {"kubernetes.io/config.hash": "hash"}},
            "spec": {
                "containers": [{"name": "a", "image": "main:v1", "env": [{"name": "TOKEN", "value": "x"}]}],
                "initContainers": [{"name": "setup", "image": "init:v1"}],
                "ephemeralContainers": [{"name": "debug", "image": "debug:v1"}],
                "volumes": [{"name": "v", "image": {"reference": "volume:v1"}}, {"name": "e", "emptyDir": {}}],
            },
            "status": {"phase": "Pending"},
        }));
        let finished = pod(json!({
            "metadata": {"uid": "done", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"containers": [{"name": "a", "image": "old:v1"}]},
            "status": {"phase": "Failed", "reason": "Evicted"},
        }));
        pods.take(Ok((
            vec![mirror, finished],
            vec![pod(json!({"spec": {"containers": [{"image": "kept:v1"}]}}))],
        )));
        assert_eq!(pods.view.state, OracleState::Synced);
        assert_eq!(known(&pods), ["api-uid", "done", "hash"]);
        let done = &pods.view.known[&PodUid::new("done").unwrap()];
        assert!(done.finished && done.evicted && done.deleting);
        assert_eq!(pods.view.known[&PodUid::new("hash").unwrap()].init_containers.len(), 1);
        let named: Vec<&str> = pods.named_images.iter().map(AsRef::as_ref).collect();
        assert_eq!(
            named,
            ["debug:v1", "init:v1", "kept:v1", "main:v1", "volume:v1"],
            "finished pods name none"
        );
    }

    #[test]
    fn a_source_that_fails_or_suddenly_knows_nothing_is_not_believed() {
        let mut pods = Pods::new(PodSource::None);
        let one = || pod(json!({"metadata": {"uid": "u"}}));
        pods.take(Ok((vec![one()], vec![])));
        pods.take(Err(anyhow::anyhow!("connection refused")));
        assert_eq!(pods.view.state, OracleState::Unsynced { why: "connection refused".into() });
        assert_eq!(known(&pods), ["u"], "what was known is kept for the day it answers again");
        for _ in 1..EMPTY_CONFIRMATIONS {
            pods.take(Ok((vec![], vec![])));
            assert!(matches!(pods.view.state, OracleState::Unsynced { .. }));
        }
        pods.take(Ok((vec![], vec![])));
        assert_eq!((&pods.view.state, known(&pods).len()), (&OracleState::Synced, 0));
    }

    /// Before the server's first answer, the images of a protected namespace are unknown; after that, the last answer counts.
    #[test]
    fn nothing_is_removed_before_the_protected_namespaces_are_known() {
        let client = ApiClient::in_process(|_: http::Request<Full<Bytes>>| async {
            http::Response::new(Full::<Bytes>::default())
        });
        for (namespaces, blind) in [(vec![], false), (vec!["prod".to_owned()], true)] {
            let source =
                PodSource::Api { client: client.clone(), node: "n".into(), protected_namespaces: namespaces };
            let mut pods = Pods::new(source);
            pods.take(Err(anyhow::anyhow!("connection refused")));
            let why = pods.blind_to_protection();
            assert_eq!(why.is_some_and(|why| why.ends_with("connection refused")), blind);
            pods.take(Ok((vec![], vec![])));
            pods.take(Err(anyhow::anyhow!("connection refused")));
            assert_eq!(pods.blind_to_protection(), None);
        }
    }

    #[test]
    fn static_manifests_name_images() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write(
            "etcd.yaml",
            "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - {name: etcd, image: 'etcd:v3'}\n",
        );
        write("pod.json", r#"{"spec":{"containers":[{"name":"a","image":"b:v1"}]}}"#);
        write("notes.txt", "- not\n- a pod");
        write(".hidden.yaml", "spec: {containers: [{image: 'hidden:v1'}]}");
        let images = read_manifests(&folder.path().to_owned()).unwrap();
        assert_eq!(images, [Arc::from("b:v1"), Arc::from("etcd:v3")]);
    }
}
