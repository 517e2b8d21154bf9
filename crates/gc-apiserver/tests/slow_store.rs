//! A store that is reached over a network, as etcd is: callers wait for it on separate threads, and work that does not need it
//! continues.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll};
use std::thread::ThreadId;

use gc_apiserver::Clock;
use gc_registry::storage::{
    Blocking, Committed, GetAnswer, RangeAnswer, RangeOptions, Revision, Storage, StorageError, Transaction,
    WatchItem, WatchStream,
};
use gc_store::MemoryStorage;
use serde_json::json;
use support::{Lines, TestServer};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WEBHOOKS: &str = "/admissionregistration.k8s.io/";

/// A store whose calls block on a test's command. It records calls made on the thread of the async tasks.
struct Remote {
    inner: MemoryStorage,
    /// The only thread of the runtime.
    tasks: ThreadId,
    state: Mutex<RemoteState>,
    moved: Condvar,
}

#[derive(Default)]
struct RemoteState {
    /// Calls for keys with this prefix block.
    stopped: Option<&'static str>,
    /// True if the watch breaks with its next item.
    breaks: bool,
    waiting: usize,
    on_tasks: BTreeSet<String>,
}

impl Remote {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryStorage::default(),
            tasks: std::thread::current().id(),
            state: Mutex::default(),
            moved: Condvar::new(),
        })
    }

    fn call(&self, what: &str, key: &str) {
        let mut state = self.state.lock().unwrap();
        if std::thread::current().id() == self.tasks {
            // Blocking here would last forever, because the test runs on the same thread.
            state.on_tasks.insert(format!("{what} {key}"));
            return;
        }
        state.waiting += 1;
        self.moved.notify_all();
        let is_stopped =
            |state: &mut RemoteState| state.stopped.is_some_and(|stopped| key.starts_with(stopped));
        state = self.moved.wait_while(state, is_stopped).unwrap();
        state.waiting -= 1;
    }

    fn stop(&self, prefix: &'static str) {
        self.state.lock().unwrap().stopped = Some(prefix);
    }

    fn go_on(&self) {
        self.state.lock().unwrap().stopped = None;
        self.moved.notify_all();
    }

    /// Waits until a call blocks.
    async fn await_stopped(self: &Arc<Self>) {
        let remote = Arc::clone(self);
        let waiting = move || {
            let state = remote.state.lock().unwrap();
            drop(remote.moved.wait_while(state, |state| state.waiting == 0).unwrap());
        };
        tokio::task::spawn_blocking(waiting).await.unwrap();
    }

    fn on_tasks(&self) -> BTreeSet<String> {
        self.state.lock().unwrap().on_tasks.clone()
    }
}

/// The server's view of the store.
struct Shared(Arc<Remote>);

impl Storage for Shared {
    fn blocks(&self) -> Blocking {
        Blocking::Always
    }

    fn revision(&self) -> Result<Revision, StorageError> {
        self.0.call("revision", "/");
        self.0.inner.revision()
    }

    fn get(&self, key: &str, at: Option<Revision>) -> Result<GetAnswer, StorageError> {
        self.0.call("get", key);
        self.0.inner.get(key, at)
    }

    fn range(&self, prefix: &str, options: &RangeOptions) -> Result<RangeAnswer, StorageError> {
        self.0.call("range", prefix);
        self.0.inner.range(prefix, options)
    }

    fn commit(&self, transaction: Transaction) -> Result<Committed, StorageError> {
        self.0.call("commit", "/");
        self.0.inner.commit(transaction)
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn WatchStream>, StorageError> {
        self.0.call("watch", prefix);
        let inner = self.0.inner.watch(prefix, after)?;
        Ok(Box::new(Breaking { inner, remote: Arc::clone(&self.0) }))
    }

    fn compact(&self, revision: Revision) -> Result<(), StorageError> {
        self.0.call("compact", "/");
        self.0.inner.compact(revision)
    }
}

struct Breaking {
    inner: Box<dyn WatchStream>,
    remote: Arc<Remote>,
}

impl WatchStream for Breaking {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<WatchItem, StorageError>> {
        if std::mem::take(&mut self.remote.state.lock().unwrap().breaks) {
            return Poll::Ready(Err(StorageError::Unavailable("the stream broke".to_owned())));
        }
        self.inner.poll_next(context)
    }
}

async fn start() -> (TestServer, Arc<Remote>) {
    let remote = Remote::new();
    let server = TestServer::start_over(Arc::new(Shared(Arc::clone(&remote))), Clock::default()).await;
    (server, remote)
}

async fn watch(server: &TestServer) -> Lines {
    Lines::new(server.open("GET", &format!("{CONFIG_MAPS}?watch=1"), &[], "").await)
}

/// Skips events that another test caused on the same watch.
async fn await_event(lines: &mut Lines, name: &str) {
    while lines.next_name().await.1 != name {}
}

/// Covers every kind of request, and all background tasks.
#[tokio::test]
async fn nothing_asks_the_store_on_an_async_thread() {
    let (server, remote) = start().await;
    let mut events = watch(&server).await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"}, "spec": {"group": "example.com", "scope": "Cluster",
        "names": {"plural": "things", "kind": "Thing"}, "versions": [{"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    assert_eq!(server.post(definitions, &definition).await.code, 201);
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let service = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.else.example.com"}, "spec": {"group": "else.example.com", "version": "v1",
        "groupPriorityMinimum": 1, "versionPriority": 1, "insecureSkipTLSVerify": true,
        "service": {"name": "none", "namespace": "default"}}});
    assert_eq!(server.post(services, &service).await.code, 201);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
    assert_eq!(server.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await.code, 201);
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    assert_eq!(server.post(accounts, &account).await.code, 201);
    let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = server.post(&format!("{accounts}/a/token"), &asked).await;
    let token = format!("Bearer {}", token.json()["status"]["token"].as_str().unwrap());
    let body =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let review =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    let access = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let large = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"},
        "data": {"k": "v".repeat(100_000)}});
    let merge = [("content-type", "application/merge-patch+json")];
    let own = format!("{CONFIG_MAPS}/a");
    let things = "/apis/example.com/v1/things";
    let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}});
    let table: Vec<(&str, String, &[(&str, &str)], String)> = vec![
        ("POST", CONFIG_MAPS.into(), &[], body.to_string()),
        ("POST", CONFIG_MAPS.into(), &[], large.to_string()),
        ("GET", own.clone(), &[], String::new()),
        ("GET", CONFIG_MAPS.into(), &[], String::new()),
        ("GET", format!("{CONFIG_MAPS}?limit=1"), &[], String::new()),
        ("PUT", own.clone(), &[], body.to_string()),
        ("PATCH", own.clone(), &merge, r#"{"data": {"k": "w"}}"#.into()),
        ("POST", things.into(), &[], thing.to_string()),
        ("GET", format!("{things}/t"), &[], String::new()),
        ("POST", "/apis/authentication.k8s.io/v1/tokenreviews".into(), &[], review.to_string()),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".into(), &[], access.to_string()),
        ("GET", "/apis/else.example.com/v1/things".into(), &[], String::new()),
        ("GET", "/readyz".into(), &[], String::new()),
        ("GET", "/metrics".into(), &[], String::new()),
        ("GET", "/apis".into(), &[], String::new()),
        ("GET", "/openapi/v3".into(), &[], String::new()),
        ("GET", CONFIG_MAPS.into(), &[("impersonate-user", "eve")], String::new()),
        ("DELETE", own, &[], String::new()),
        ("DELETE", CONFIG_MAPS.into(), &[], String::new()),
        ("DELETE", format!("{definitions}/things.example.com"), &[], String::new()),
        ("DELETE", format!("{services}/v1.else.example.com"), &[], String::new()),
    ];
    for (method, path, headers, body) in table {
        server.send(method, &path, headers, body).await;
    }
    server.send("GET", CONFIG_MAPS, &[("authorization", &token)], "").await;
    await_event(&mut events, "b").await;
    assert_eq!(remote.on_tasks(), BTreeSet::new());
}

/// Regression test: the task that feeds the watches used to read another server's configuration before it continued.
#[tokio::test]
async fn watches_and_requests_go_on_while_the_configuration_cannot_be_read() {
    let (server, remote) = start().await;
    let mut events = watch(&server).await;
    server.config_map("before").await;
    await_event(&mut events, "before").await;
    remote.stop(WEBHOOKS);
    // Another server on the same store configures a webhook; this server reads it, and has to wait.
    let webhook = json!({"metadata": {"name": "w", "uid": "u"}, "webhooks": []}).to_string();
    let key = format!("{WEBHOOKS}validatingwebhookconfigurations/w");
    let writes = vec![gc_registry::storage::Write::Put(key.into(), webhook.into_bytes().into())];
    remote.inner.commit(Transaction { conditions: vec![], writes }).unwrap();
    remote.await_stopped().await;
    for name in ["one", "two"] {
        server.config_map(name).await;
        await_event(&mut events, name).await;
    }
    assert_eq!(server.get(&format!("{CONFIG_MAPS}/one")).await.code, 200);
    remote.go_on();
}

#[tokio::test]
async fn what_needs_no_store_goes_on_while_it_is_stopped() {
    let (server, remote) = start().await;
    let mut events = watch(&server).await;
    server.config_map("before").await;
    await_event(&mut events, "before").await;
    remote.stop("/");
    {
        let created = server.config_map("after");
        tokio::pin!(created);
        tokio::select! {
            _ = &mut created => panic!("the store is stopped"),
            () = remote.await_stopped() => {}
        }
        let access = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
        let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        assert_eq!(server.post(reviews, &access).await.code, 201);
        for path in ["/version", "/apis", "/api/v1", "/metrics"] {
            assert_eq!(server.get(path).await.code, 200, "{path}");
        }
        // The watch that feeds all others breaks, and cannot be reopened.
        remote.state.lock().unwrap().breaks = true;
        assert_eq!(server.get("/version").await.code, 200);
        remote.go_on();
        created.await;
    }
    await_event(&mut events, "after").await;
}
