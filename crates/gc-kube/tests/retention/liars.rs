//! The transport lies to collectors that delete because something is missing: lists are empty, and live reads and lists before a
//! deletion get answers that no store gave. Used objects must stay; unused ones must be deleted.

use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;

use futures::StreamExt as _;
use gc_collectors::storage_versions::StorageVersionCollector;
use gc_collectors::tokens::{CLEAN_UP_PERIOD_MILLISECONDS, TokenCollector};
use http::Response;
use http_body_util::StreamBody;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Frame;

use super::*;

pub(super) const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// Number of requests that each liar must receive: an answer that proves nothing is requested again.
const ASKED: usize = 2;

/// An answer that replaces the server's.
#[derive(Clone)]
pub(super) struct Lie {
    code: u16,
    content_type: &'static str,
    /// `None` for the server's own list without its items.
    body: Option<Bytes>,
    /// True if the server's answer follows.
    continues: bool,
}

pub(super) fn lie(code: u16, content_type: &'static str, body: impl Into<Bytes>) -> Lie {
    Lie { code, content_type, body: Some(body.into()), continues: false }
}

impl Lie {
    /// Returns the same lie, followed by the server's answer.
    pub(super) fn and_the_truth(self) -> Self {
        Self { continues: true, ..self }
    }
}

const EMPTY: Lie = Lie { code: 200, content_type: JSON, body: None, continues: false };

/// Lies about one path: the first requests get one lie each, and all others the last.
struct Liar {
    is_lied_about: Box<dyn Fn(&str) -> bool + Send + Sync>,
    first: Mutex<VecDeque<Lie>>,
    last: Option<Lie>,
    asked: AtomicUsize,
}

/// All liars of a world.
#[derive(Default)]
pub(super) struct Liars(Mutex<Vec<Liar>>);

impl Liars {
    /// Returns the lie to a request, if there is one.
    pub(super) fn lie_to(&self, request: &Request<Full<Bytes>>) -> Option<Lie> {
        let path = request.uri().path_and_query()?.as_str();
        let liars = self.0.lock().unwrap();
        let liar =
            liars.iter().find(|liar| *request.method() == Method::GET && (liar.is_lied_about)(path))?;
        liar.asked.fetch_add(1, Ordering::Relaxed);
        liar.first.lock().unwrap().pop_front().or_else(|| liar.last.clone())
    }

    pub(super) fn add(
        &self,
        is_lied_about: impl Fn(&str) -> bool + Send + Sync + 'static,
        first: Vec<Lie>,
        last: Option<Lie>,
    ) {
        self.0.lock().unwrap().push(Liar {
            is_lied_about: Box::new(is_lied_about),
            first: Mutex::new(first.into()),
            last,
            asked: AtomicUsize::new(0),
        });
    }

    /// Sets the answers to lists of a collection.
    fn lists(&self, collection: &str, first: Vec<Lie>, last: Option<Lie>) {
        let page = format!("{collection}?limit=");
        self.add(move |path| path.starts_with(&page), first, last);
    }

    /// Sets the answers to successive watches of a collection, which the server serves after that.
    pub(super) fn watches(&self, collection: &str, lies: Vec<Lie>) {
        let watch = format!("{collection}?watch=true");
        self.add(move |path| path.starts_with(&watch), lies, None);
    }

    /// Counts the requests with this path prefix, which the server answers.
    pub(super) fn counts(&self, path: String) {
        self.add(move |asked| asked.starts_with(&path), Vec::new(), None);
    }

    /// Makes every list of a collection empty, including those that watches ask for.
    fn empties(&self, collection: &str) {
        self.lists(collection, Vec::new(), Some(EMPTY));
        self.0.lock().unwrap().last().unwrap().asked.store(ASKED, Ordering::Relaxed);
    }

    /// Returns the number of remaining lies.
    pub(super) fn left_to_say(&self) -> usize {
        self.0.lock().unwrap().iter().map(|liar| liar.first.lock().unwrap().len()).sum()
    }

    /// Sets the answer to reads of an object.
    fn reads(&self, object: String, last: Lie) {
        self.add(move |path| path == object, Vec::new(), Some(last));
    }

    /// Returns the smallest number of requests that a liar received.
    pub(super) fn asked(&self) -> usize {
        self.0.lock().unwrap().iter().map(|liar| liar.asked.load(Ordering::Relaxed)).min().unwrap_or_default()
    }
}

/// Returns the answer with the lie applied.
pub(super) async fn told<E>(
    lie: Option<Lie>,
    answer: Response<UnsyncBoxBody<Bytes, E>>,
) -> Response<UnsyncBoxBody<Bytes, E>>
where
    E: std::fmt::Debug + Send + 'static,
{
    let Some(Lie { code, content_type, body, continues }) = lie else { return answer };
    if let (true, Some(body)) = (continues, &body) {
        let first = futures::stream::iter([Ok(Frame::data(body.clone()))]);
        return answer.map(|rest| {
            let rest = futures::stream::unfold(rest, |mut rest| async { Some((rest.frame().await?, rest)) });
            StreamBody::new(first.chain(rest)).boxed_unsync()
        });
    }
    let body = match body {
        Some(body) => body,
        None => {
            let bytes = answer.into_body().collect().await.unwrap().to_bytes();
            let mut list: Value = serde_json::from_slice(&bytes).unwrap();
            list["items"] = json!([]);
            list.to_string().into()
        }
    };
    let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
    Response::builder().status(code).header("content-type", content_type).body(body).unwrap()
}

/// Returns answers to a read of an object of the core group, none of which proves that it is gone.
fn answers_of_no_store(plural: &str, kind: &str, name: &str) -> Vec<Lie> {
    answers_of_no_store_in(("", "v1"), plural, kind, name)
}

/// Returns answers to a read of an object of a group, with its apiVersion, none of which proves that it is gone.
fn answers_of_no_store_in(
    (group, api_version): (&str, &str),
    plural: &str,
    kind: &str,
    name: &str,
) -> Vec<Lie> {
    let details = json!({"name": name, "kind": plural, "group": group});
    let status = |code: u16, reason: &str, member: &str, value: Value| {
        let mut details = details.clone();
        details[member] = value;
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code,
            "details": details});
        lie(code, JSON, status.to_string())
    };
    let without_details = json!({"kind": "Status", "apiVersion": "v1", "reason": "NotFound", "code": 404});
    let object = |kind: &str, name: &str| {
        let metadata = json!({"name": name, "uid": "another", "resourceVersion": "7"});
        lie(200, JSON, json!({"kind": kind, "apiVersion": api_version, "metadata": metadata}).to_string())
    };
    vec![
        lie(404, "text/plain", "404 page not found"),
        lie(404, "text/html", "<html></html>"),
        lie(404, JSON, ""),
        lie(404, JSON, "{}"),
        lie(404, JSON, without_details.to_string()),
        status(404, "NotFound", "name", "another".into()),
        status(404, "NotFound", "kind", "secrets".into()),
        status(404, "NotFound", "group", "another.example.com".into()),
        status(404, "Gone", "name", name.into()),
        status(410, "NotFound", "name", name.into()),
        lie(200, JSON, "{}"),
        lie(200, JSON, "null"),
        lie(200, "text/html", "<html></html>"),
        lie(200, JSON, &br#"{"metadata":{"name":"#[..]),
        lie(200, JSON, &b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"[..]),
        lie(200, PROTOBUF, &b"k8s\0\n'\n\x0emeta.k8s.io/v1\x12\x15PartialObjectMetadata"[..]),
        object(kind, "another"),
        object("Secret", name),
    ]
}

/// Returns answers to a list of a kind's objects that are not such a list.
fn answers_that_are_no_list(kind: &str) -> Vec<Lie> {
    let list = |kind: &str, version: Value, items: Value| {
        let list = json!({"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items});
        lie(200, JSON, list.to_string())
    };
    let of_kind = format!("{kind}List");
    let no_items = json!({"kind": of_kind, "apiVersion": "v1", "metadata": {"resourceVersion": "9"}});
    vec![
        lie(200, JSON, "{}"),
        lie(200, JSON, "null"),
        lie(200, "text/html", "<html></html>"),
        lie(404, "text/plain", "404 page not found"),
        list("Status", "9".into(), json!([])),
        list("SecretList", "9".into(), json!([])),
        list(&of_kind, Value::Null, json!([])),
        list(&of_kind, "".into(), json!([])),
        lie(200, JSON, no_items.to_string()),
        lie(200, PROTOBUF, ""),
        lie(200, JSON, &b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"[..]),
    ]
}

impl World {
    /// Advances the collectors' clock until a condition holds.
    pub(super) async fn until_later(
        &self,
        what: &str,
        milliseconds: i64,
        mut holds: impl AsyncFnMut() -> bool,
    ) {
        let deadline = Instant::now() + PATIENCE;
        while !holds().await {
            assert!(Instant::now() < deadline, "{what} did not come about");
            self.pass(milliseconds);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until a pod has failed or is gone.
    pub(super) async fn until_ended(&self, pod: &str) {
        let path = format!("{PODS}/{pod}");
        let has_ended = async || {
            let (code, pod) = self.get(&path).await;
            code == 404 || pod["status"]["phase"] == "Failed"
        };
        self.until_later("the end of what has no node", 10_000, has_ended).await;
    }

    /// Asserts that these pods still run.
    pub(super) async fn assert_running<'a>(&self, pods: impl IntoIterator<Item = &'a str>) {
        for name in pods {
            let (code, pod) = self.get(&format!("{PODS}/{name}")).await;
            assert_eq!((code, &pod["status"]["phase"]), (200, &json!("Running")), "{name}");
        }
    }

    async fn until_all_have_lied(&self) {
        self.until_later("every lie", 10_000, async || self.liars.asked() >= ASKED).await;
    }
}

impl RunningCollector {
    pub(super) async fn stop(self) {
        let _ = self.stop.send(());
        self.work.await.unwrap();
    }
}

/// Creates nodes that no list contains, and whose reads get answers that do not prove that they are gone; returns their names.
async fn nodes_that_are_denied(world: &World) -> Vec<String> {
    let mut names = Vec::new();
    for index in 0..answers_of_no_store("nodes", "Node", "").len() {
        let name = format!("n{index}");
        world.create(NODES, json!({"metadata": {"name": name}})).await;
        let answer = answers_of_no_store("nodes", "Node", &name).swap_remove(index);
        world.liars.reads(format!("{NODES}/{name}"), answer);
        names.push(name);
    }
    world.liars.empties(NODES);
    names
}

#[tokio::test]
async fn pods_stay_whatever_is_said_of_their_nodes() {
    let world = World::start().await;
    let names = nodes_that_are_denied(&world).await;
    for name in names.iter().map(String::as_str).chain(["nowhere"]) {
        world.create(PODS, pod(name, name)).await;
        world.patch(&format!("{PODS}/{name}/status"), json!({"status": {"phase": "Running"}})).await;
    }
    let running = world.collect(Controller::PodGarbageCollector, PodCollector::new(0), NothingOutside).await;
    world.until_ended("nowhere").await;
    world.until_all_have_lied().await;
    running.stop().await;
    world.assert_running(names.iter().map(String::as_str)).await;
}

#[tokio::test]
async fn leases_stay_whatever_is_said_of_their_nodes() {
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let world = World::start().await;
    let names = nodes_that_are_denied(&world).await;
    let spec = json!({"leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z"});
    for name in names.iter().map(String::as_str).chain(["nowhere"]) {
        world.create(LEASES, json!({"metadata": {"name": name}, "spec": spec})).await;
    }
    let running = world.collect(Controller::StaleLease, LeaseCollector::new(true), NothingOutside).await;
    world.until_gone(&format!("{LEASES}/nowhere")).await;
    world.until_all_have_lied().await;
    running.stop().await;
    for name in names {
        assert_eq!(world.get(&format!("{LEASES}/{name}")).await.0, 200, "{name}");
    }
}

#[tokio::test]
async fn claims_stay_whatever_is_said_of_the_pods_that_use_them() {
    let world = World::start().await;
    let answers = answers_that_are_no_list("Pod");
    let namespaces: Vec<String> = (0..answers.len()).map(|index| format!("shop{index}")).collect();
    let path = |namespace: &str| format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims");
    for (namespace, answer) in namespaces.iter().zip(answers) {
        world.create("/api/v1/namespaces", json!({"metadata": {"name": namespace}})).await;
        world.create(&path(namespace), claim("data")).await;
        let mut user = pod("user", "n");
        user["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
        let pods = format!("/api/v1/namespaces/{namespace}/pods");
        world.create(&pods, user).await;
        world.liars.lists(&pods, Vec::new(), Some(answer));
    }
    world.liars.empties("/api/v1/pods");
    world.create(CLAIMS, claim("unused")).await;
    let running =
        world.collect(Controller::ClaimProtection, ClaimProtection::new(false), NothingOutside).await;
    let unused = format!("{CLAIMS}/unused");
    for path in namespaces.iter().map(|namespace| format!("{}/data", path(namespace))).chain([unused.clone()])
    {
        world.delete(&path).await;
    }
    world.until_gone(&unused).await;
    world.until_all_have_lied().await;
    running.stop().await;
    for namespace in namespaces {
        let (code, claim) = world.get(&format!("{}/data", path(&namespace))).await;
        let finalizers = json!(["kubernetes.io/pvc-protection"]);
        assert_eq!((code, &claim["metadata"]["finalizers"]), (200, &finalizers), "{namespace}");
    }
}

pub(super) fn reclaimer() -> VolumeReclaim {
    VolumeReclaim::new(Deleters { drivers: ["disk.example.com".into()].into(), ..Deleters::default() })
}

pub(super) async fn bound_volume(world: &World, name: &str, claim: (&str, &str)) {
    let mut made = volume(name, "Delete", claim.1);
    made["spec"]["claimRef"]["name"] = claim.0.into();
    world.create(VOLUMES, made).await;
    let path = format!("{VOLUMES}/{name}");
    world.patch(&format!("{path}/status"), json!({"status": {"phase": "Bound"}})).await;
    // No protection controller runs here.
    world.patch(&path, json!({"metadata": {"finalizers": null}})).await;
}

#[tokio::test]
async fn volumes_stay_whatever_is_said_of_their_claims() {
    let world = World::start().await;
    let count = answers_of_no_store("", "", "").len();
    for index in 0..count {
        let name = format!("v{index}");
        let made = world.create(CLAIMS, claim(&name)).await;
        world.patch(&format!("{CLAIMS}/{name}"), json!({"spec": {"volumeName": name}})).await;
        bound_volume(&world, &name, (&name, made["metadata"]["uid"].as_str().unwrap())).await;
        let plural = "persistentvolumeclaims";
        let answer = answers_of_no_store(plural, "PersistentVolumeClaim", &name).swap_remove(index);
        world.liars.reads(format!("{CLAIMS}/{name}"), answer);
    }
    bound_volume(&world, "gone", ("none", "none")).await;
    world.liars.empties("/api/v1/persistentvolumeclaims");
    let outside = answers();
    let running = world.collect(Controller::VolumeReclaim, reclaimer(), outside.clone()).await;
    world.until_gone(&format!("{VOLUMES}/gone")).await;
    world.until_all_have_lied().await;
    running.stop().await;
    for index in 0..count {
        let (code, volume) = world.get(&format!("{VOLUMES}/v{index}")).await;
        assert_eq!((code, &volume["status"]["phase"]), (200, &json!("Bound")), "v{index}");
    }
    let calls = outside.calls.lock().unwrap().clone();
    assert!(calls.iter().all(|call| call.starts_with("gone ")), "{calls:?}");
}

#[tokio::test]
async fn storage_stays_whatever_is_said_of_its_attachments() {
    const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";
    let world = World::start().await;
    bound_volume(&world, "v", ("none", "none")).await;
    let attachment = json!({"metadata": {"name": "a"}, "spec": {"attacher": "disk.example.com", "nodeName": "n",
        "source": {"persistentVolumeName": "v"}}});
    world.create(ATTACHMENTS, attachment).await;
    let lies: Vec<Lie> = answers_that_are_no_list("VolumeAttachment").into_iter().step_by(2).collect();
    let count = lies.len();
    world.liars.lists(ATTACHMENTS, [EMPTY].into_iter().chain(lies).collect(), None);
    let outside = answers();
    let running = world.collect(Controller::VolumeReclaim, reclaimer(), outside.clone()).await;
    // After the watch's list and all lies, the server itself answers twice.
    world.until_later("every lie", 2_000, async || world.liars.asked() >= 1 + count + 2).await;
    assert_eq!(*outside.calls.lock().unwrap(), Vec::<String>::new());
    world.delete(&format!("{ATTACHMENTS}/a")).await;
    let path = format!("{VOLUMES}/v");
    world.until_later("the end of the volume", 1_000, async || world.get(&path).await.0 == 404).await;
    running.stop().await;
}

#[tokio::test]
async fn classes_stay_whatever_is_said_of_the_claims_that_name_them() {
    const CLASSES: &str = "/apis/storage.k8s.io/v1/volumeattributesclasses";
    let world = World::start().await;
    let class =
        json!({"metadata": {"name": "gold"}, "driverName": "disk.example.com", "parameters": {"iops": "9"}});
    world.create(CLASSES, class).await;
    let mut user = claim("data");
    user["spec"]["volumeAttributesClassName"] = "gold".into();
    world.create(CLAIMS, user).await;
    world.patch(&format!("{CLAIMS}/data"), json!({"metadata": {"finalizers": null}})).await;
    let lies: Vec<Lie> =
        answers_that_are_no_list("PersistentVolumeClaim").into_iter().skip(1).step_by(2).collect();
    let count = lies.len();
    let all = "/api/v1/persistentvolumeclaims";
    world.liars.lists(all, [EMPTY].into_iter().chain(lies).collect(), None);
    let collector = AttributesClassProtection::default();
    let running = world.collect(Controller::AttributesClassProtection, collector, NothingOutside).await;
    let path = format!("{CLASSES}/gold");
    world.until("the finalizer", &path, |_, class| class["metadata"]["finalizers"].is_array()).await;
    world.delete(&path).await;
    world.until_later("every lie", 2_000, async || world.liars.asked() >= 1 + count + 2).await;
    assert_eq!(world.get(&path).await.0, 200);
    world.delete(&format!("{CLAIMS}/data")).await;
    world.until_later("the end of the class", 1_000, async || world.get(&path).await.0 == 404).await;
    running.stop().await;
}

/// Creates legacy tokens of an account in a namespace, each refused for years.
async fn refused_tokens(world: &World, namespace: &str, names: &[&str]) {
    let path = |plural: &str| format!("/api/v1/namespaces/{namespace}/{plural}");
    let listed: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
    let account = json!({"metadata": {"name": "builder"}, "secrets": listed});
    let account = world.create(&path("serviceaccounts"), account).await;
    let annotations = json!({"kubernetes.io/service-account.name": "builder",
        "kubernetes.io/service-account.uid": account["metadata"]["uid"]});
    let labels = json!({"kubernetes.io/legacy-token-invalid-since": "2020-01-02"});
    for name in names {
        let secret = json!({"metadata": {"name": name, "annotations": annotations, "labels": labels},
            "type": "kubernetes.io/service-account-token", "data": {"token": "c2VjcmV0"}});
        world.create(&path("secrets"), secret).await;
    }
}

#[tokio::test]
async fn tokens_stay_whatever_is_said_of_the_pods_that_mount_them() {
    let world = World::start().await;
    let no_lists = answers_that_are_no_list("Pod").into_iter().map(|answer| (Vec::new(), Some(answer)));
    // The last lie is the server's list without its items; it is followed by the truth.
    let lies: Vec<(Vec<Lie>, Option<Lie>)> = no_lists.chain([(vec![EMPTY], None)]).collect();
    let namespaces: Vec<String> = (0..lies.len()).map(|index| format!("shop{index}")).collect();
    for (namespace, (first, last)) in namespaces.iter().zip(lies) {
        world.create("/api/v1/namespaces", json!({"metadata": {"name": namespace}})).await;
        refused_tokens(&world, namespace, &["mounted"]).await;
        let mut user = pod("user", "n");
        user["spec"]["volumes"] = json!([{"name": "v", "secret": {"secretName": "mounted"}}]);
        let pods = format!("/api/v1/namespaces/{namespace}/pods");
        world.create(&pods, user).await;
        world.liars.lists(&pods, first, last);
    }
    refused_tokens(&world, "default", &["unused"]).await;
    let tracking =
        "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking";
    world.patch(tracking, json!({"data": {"since": "2020-01-01"}})).await;
    world.pass(367 * 24 * HOUR);
    let collector = TokenCollector::new(CLEAN_UP_PERIOD_MILLISECONDS);
    let running = world.collect(Controller::LegacyTokenCleaner, collector, NothingOutside).await;
    world.until_gone("/api/v1/namespaces/default/secrets/unused").await;
    // Anything less than a list proves nothing, however long it takes.
    world.until_later("every lie", 500, async || world.liars.asked() >= ASKED).await;
    running.stop().await;
    for namespace in namespaces {
        let path = format!("/api/v1/namespaces/{namespace}/secrets/mounted");
        assert_eq!(world.get(&path).await.0, 200, "{namespace}");
    }
}

#[tokio::test]
async fn storage_versions_stay_whatever_is_said_of_the_leases_of_their_servers() {
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let world = World::start().await;
    small::define(&world, "internal.apiserver.k8s.io", "v1alpha1", "StorageVersion", "Cluster").await;
    let answers = |name: &str| {
        answers_of_no_store_in(("coordination.k8s.io", "coordination.k8s.io/v1"), "leases", "Lease", name)
    };
    let count = answers("").len();
    let servers: Vec<String> = (0..count).map(|index| format!("apiserver-{index}")).collect();
    for (index, server) in servers.iter().enumerate() {
        let labels = json!({"apiserver.kubernetes.io/identity": "kube-apiserver"});
        world.create(LEASES, json!({"metadata": {"name": server, "labels": labels}, "spec": {}})).await;
        world.liars.reads(format!("{LEASES}/{server}"), answers(server).swap_remove(index));
    }
    world.liars.empties(LEASES);
    for server in servers.iter().map(String::as_str).chain(["nowhere"]) {
        let version = json!({"metadata": {"name": server}, "spec": {}});
        small::create(&world, small::VERSION, small::VERSIONS, version).await;
        let entry = json!({"apiServerID": server, "encodingVersion": "v1", "decodableVersions": ["v1"]});
        let path = format!("{}/{server}/status", small::VERSIONS);
        world.patch(&path, json!({"status": {"storageVersions": [entry]}})).await;
    }
    let collector = StorageVersionCollector::default();
    let running = world.collect(Controller::StorageVersion, collector, NothingOutside).await;
    world.until_gone(&format!("{}/nowhere", small::VERSIONS)).await;
    world.until_all_have_lied().await;
    running.stop().await;
    for server in servers {
        let (code, version) = world.get(&format!("{}/{server}", small::VERSIONS)).await;
        let entries = version["status"]["storageVersions"].as_array().map(Vec::len);
        assert_eq!((code, entries), (200, Some(1)), "{server}");
    }
}
