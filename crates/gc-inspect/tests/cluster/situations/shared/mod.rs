//! Situations that users ask about, and the server on which they are created. Shared by path with the tests of the binary.

mod further;
mod objects;
mod table;

use std::collections::BTreeMap;
use std::path::Path;

use gc_embedded::apiserver::{self, ServerOptions};
use gc_inspect::gather::{self, Gatherer};
use gc_inspect::target::NamedObject;
use gc_kube::ApiClient;
use gc_process::preflight;
use http::Method;
use serde_json::{Value, json};

pub(crate) use objects::{deployment, held, map, node, pod};
pub(crate) use table::situations;

/// Placeholder in a manifest for the namespace of its situation.
const NAMESPACE: &str = "$NAMESPACE";
/// Prefix of a `Kind/name` that stands for its UID.
const UID: &str = "$UID:";

/// One situation: what is created, what is then deleted, how much later the questions are asked, and the answers.
pub(crate) struct Situation {
    pub(crate) name: &'static str,
    /// Manifests. `owners` names owners as `Kind/name`, with `!` if it blocks and `*` if it controls; `status` is set after the
    /// creation.
    pub(crate) make: Vec<Value>,
    /// Objects that are deleted, with kubectl's name of the propagation policy.
    pub(crate) delete: &'static [(&'static str, &'static str)],
    pub(crate) ask: &'static str,
    pub(crate) later_seconds: i64,
    /// Root causes: code, objects, and the objects that wait for them.
    pub(crate) stuck: &'static [&'static str],
    /// Code, and part of the message.
    pub(crate) why: (&'static str, &'static str),
    /// Summary of the plan to delete the object in the background.
    pub(crate) plan: &'static str,
}

pub(crate) struct World {
    /// The embedded server; `None` if the server is external.
    server: Option<gc_apiserver::RunningServer>,
    pub(crate) client: ApiClient,
    pub(crate) uids: BTreeMap<String, String>,
}

impl World {
    pub(crate) async fn start() -> Self {
        if let Some(file) = std::env::var_os("KUBEGC_TEST_KUBECONFIG") {
            return Self::on(Path::new(&file)).await;
        }
        let options = ServerOptions::in_process();
        let server = apiserver::serve(&options, None).await.unwrap();
        let way = server.in_process("tester");
        let client = ApiClient::in_process(move |request| way.call(request));
        Self { server: Some(server), client, uids: BTreeMap::new() }
    }

    /// Connects to the empty server that a kubeconfig names.
    pub(crate) async fn on(kubeconfig: &Path) -> Self {
        let client = ApiClient::from_kubeconfig(kubeconfig).await.unwrap();
        Self { server: None, client, uids: BTreeMap::new() }
    }

    pub(crate) async fn end(self) {
        if let Some(server) = self.server {
            server.shutdown().await;
        }
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Value {
        let mut request = preflight::request(method.clone(), path, body);
        if method == Method::PATCH {
            let merge = http::HeaderValue::from_static("application/merge-patch+json");
            request.headers_mut().insert(http::header::CONTENT_TYPE, merge);
        }
        let answer = self.client.call(request).await.unwrap();
        let value: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        assert!(answer.head.status.is_success(), "{method} {path}: {value}");
        value
    }

    pub(crate) async fn gatherer(&self, later_seconds: i64) -> Gatherer {
        let now = gather::now().after(later_seconds * 1000);
        Gatherer::new(self.client.clone(), now).await.unwrap()
    }

    pub(crate) fn named(gatherer: &Gatherer, namespace: &str, object: &str) -> NamedObject {
        let (kind, name) = object.split_once('/').unwrap();
        let resource = gatherer.catalog.find(kind).unwrap()[0].clone();
        let namespace = if resource.is_namespaced() { namespace.to_owned() } else { String::new() };
        NamedObject { resource, namespace, name: name.to_owned() }
    }

    pub(crate) async fn build(&mut self, situation: &Situation, namespace: &str) {
        let document = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        self.send(Method::POST, "/api/v1/namespaces", Some(&document)).await;
        for manifest in &situation.make {
            self.create(manifest, namespace).await;
        }
        for (object, policy) in situation.delete {
            let gatherer = self.gatherer(0).await;
            let object = if *object == "ns/." { format!("ns/{namespace}") } else { (*object).to_owned() };
            let NamedObject { resource, namespace, name } = Self::named(&gatherer, namespace, &object);
            let path = gather::object_path(&resource, &namespace, &name);
            let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy});
            self.send(Method::DELETE, &path, Some(&options)).await;
        }
        // The controller of a namespace writes these conditions while it is being deleted.
        for manifest in situation.make.iter().filter(|manifest| manifest["kind"] == "NamespaceStatus") {
            let path = format!("/api/v1/namespaces/{namespace}/status");
            self.send(Method::PATCH, &path, Some(&json!({"status": manifest["status"]}))).await;
        }
    }

    pub(crate) async fn create(&mut self, manifest: &Value, namespace: &str) {
        if manifest["kind"] == "NamespaceStatus" {
            return;
        }
        // Some manifests contain the namespace of the situation, and UIDs.
        let mut text = manifest.to_string().replace(NAMESPACE, namespace);
        for (object, uid) in &self.uids {
            let known = object.strip_prefix(namespace).map(|title| format!("{UID}{}", title.trim_start()));
            text = known.map_or_else(|| text.clone(), |known| text.replace(&known, uid));
        }
        let mut manifest: Value = serde_json::from_str(&text).unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let owners = manifest["metadata"].as_object_mut().unwrap().remove("owners").unwrap_or_default();
        let references: Vec<Value> = owners
            .as_array()
            .into_iter()
            .flatten()
            .map(|owner| {
                let owner = text(owner);
                let title = owner.trim_end_matches(['!', '*']);
                let (kind, name) = title.split_once('/').unwrap();
                let uid = self.uids.get(&format!("{namespace} {title}")).cloned();
                let uid = uid.unwrap_or_else(|| "0e2f1a34-5b6c-4d7e-8f90-a1b2c3d4e5f6".into());
                let (api_version, kind) = match kind {
                    "ReplicaSet" | "Deployment" => ("apps/v1", kind),
                    "Job" => ("batch/v1", kind),
                    "Unserved" => ("absent.example/v1", kind),
                    _ => ("v1", kind),
                };
                json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid,
                       "blockOwnerDeletion": owner.contains('!'), "controller": owner.contains('*')})
            })
            .collect();
        if !references.is_empty() {
            manifest["metadata"]["ownerReferences"] = references.into();
        }
        let status = manifest.as_object_mut().unwrap().remove("status");
        let gatherer = self.gatherer(0).await;
        let (api_version, kind) = (text(&manifest["apiVersion"]), text(&manifest["kind"]));
        let mut resource = gatherer.catalog.of_kind(&api_version, &kind).cloned();
        // A definition is served a moment after its creation.
        while resource.is_none() {
            resource = self.gatherer(0).await.catalog.of_kind(&api_version, &kind).cloned();
        }
        let resource = resource.unwrap();
        let namespace_of = if resource.is_namespaced() { namespace } else { "" };
        let created = self.send(Method::POST, &resource.path(namespace_of), Some(&manifest)).await;
        let name = text(&created["metadata"]["name"]);
        self.uids.insert(format!("{namespace} {kind}/{name}"), text(&created["metadata"]["uid"]));
        if let Some(status) = status {
            let path = format!("{}/status", gather::object_path(&resource, namespace_of, &name));
            self.send(Method::PATCH, &path, Some(&json!({"status": status}))).await;
        }
    }
}
