//! The measured cluster: creates, changes and deletes objects, and reads the server's count of requests.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use futures::StreamExt as _;
use gc_kube::ApiClient;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use http_body_util::Full;
use serde_json::{Value, json};

use kubegc_bench::measure::Latencies;

/// A cluster, with the load that may be put on it.
pub(crate) struct Cluster {
    pub(crate) client: ApiClient,
    /// Maximum number of requests in flight.
    pub(crate) in_flight: usize,
    /// Path of the collection of ConfigMaps.
    pub(crate) config_maps: String,
    /// Namespace of the objects.
    pub(crate) namespace: String,
}

impl Cluster {
    /// Connects, and creates the namespace if it is missing.
    pub(crate) async fn connect(
        kubeconfig: Option<&Path>,
        namespace: &str,
        in_flight: usize,
    ) -> anyhow::Result<Self> {
        let client = match kubeconfig {
            Some(file) => ApiClient::from_kubeconfig(file).await?,
            None => ApiClient::infer().await?,
        };
        let config_maps = format!("/api/v1/namespaces/{namespace}/configmaps");
        let cluster = Self { client, in_flight, config_maps, namespace: namespace.to_owned() };
        cluster.create_namespace(namespace).await?;
        Ok(cluster)
    }

    async fn create_namespace(&self, name: &str) -> anyhow::Result<()> {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let (code, answer) = self.call(Method::POST, "/api/v1/namespaces", Some(&body)).await?;
        anyhow::ensure!(
            code == 201 || code == 409,
            "namespace {name} was not created: {code} {}",
            answer["message"]
        );
        Ok(())
    }

    /// Creates the namespaces that are missing. Returns their names: that of this cluster's namespace, with a number.
    pub(crate) async fn namespaces(&self, number: u32) -> anyhow::Result<Vec<String>> {
        let names: Vec<String> = (0..number).map(|number| format!("{}-{number}", self.namespace)).collect();
        let work = names.iter().map(|name| self.create_namespace(name));
        let mut created = futures::stream::iter(work).buffer_unordered(self.in_flight);
        while let Some(answer) = created.next().await {
            answer?;
        }
        drop(created);
        Ok(names)
    }

    /// Creates an object in any collection. Returns its UID.
    pub(crate) async fn create_in(&self, collection: &str, object: &Value) -> anyhow::Result<String> {
        let (code, body) = self.call(Method::POST, collection, Some(object)).await?;
        anyhow::ensure!(code == 201, "an object was not created: {code} {}", body["message"]);
        Ok(body["metadata"]["uid"].as_str().context("a uid")?.to_owned())
    }

    /// Creates many ConfigMaps, with the configured number of requests in flight. Returns their latencies.
    pub(crate) async fn create_all(&self, objects: impl Iterator<Item = Value>) -> anyhow::Result<Latencies> {
        self.create_all_in(objects.map(|object| (self.config_maps.clone(), object))).await
    }

    /// Creates objects in any collection; see [`Cluster::create_all`].
    pub(crate) async fn create_all_in(
        &self,
        objects: impl Iterator<Item = (String, Value)>,
    ) -> anyhow::Result<Latencies> {
        let mut latencies = Latencies::default();
        let work = objects.map(|(collection, object)| async move {
            let begun = Instant::now();
            self.create_in(&collection, &object).await?;
            anyhow::Ok(begun.elapsed())
        });
        let mut made = futures::stream::iter(work).buffer_unordered(self.in_flight);
        while let Some(took) = made.next().await {
            latencies.add(took?);
        }
        Ok(latencies)
    }

    /// Creates objects and writes their status, with the configured number of requests in flight.
    pub(crate) async fn create_with_status(
        &self,
        objects: impl Iterator<Item = (String, Value, Value)>,
    ) -> anyhow::Result<()> {
        let work = objects.map(|(collection, object, status)| async move {
            self.create_in(&collection, &object).await?;
            let name = object["metadata"]["name"].as_str().context("a name")?;
            let path = format!("{collection}/{name}/status");
            let patch = json!({ "status": status });
            let (code, body) = self.call(Method::PATCH, &path, Some(&patch)).await?;
            anyhow::ensure!(code == 200, "{path} was not written: {code} {}", body["message"]);
            anyhow::Ok(())
        });
        let mut made = futures::stream::iter(work).buffer_unordered(self.in_flight);
        while let Some(answer) = made.next().await {
            answer?;
        }
        Ok(())
    }

    /// Changes the data of an object. Returns the latency.
    pub(crate) fn update(
        &self,
        path: String,
        number: u32,
    ) -> impl Future<Output = anyhow::Result<Duration>> + Send + use<> {
        let client = self.client.clone();
        async move {
            let begun = Instant::now();
            let patch = json!({"data": {"update": number.to_string()}}).to_string();
            let request = Request::builder()
                .method(Method::PATCH)
                .uri(&path)
                .header(CONTENT_TYPE, "application/merge-patch+json")
                .body(Full::new(Bytes::from(patch)))?;
            let answer = client.call(request).await?;
            anyhow::ensure!(answer.head.status.is_success(), "{path}: {}", answer.head.status);
            Ok(begun.elapsed())
        }
    }

    /// Sends a request with a JSON body, and parses the JSON response.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<(u16, Value)> {
        let is_patch = method == Method::PATCH;
        let bytes = body.map(|value| Bytes::from(value.to_string())).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, if is_patch { "application/merge-patch+json" } else { "application/json" })
            .body(Full::new(bytes))?;
        let answer = self.client.call(request).await?;
        Ok((answer.head.status.as_u16(), serde_json::from_slice(&answer.body).unwrap_or_default()))
    }

    /// Reads `apiserver_request_total`, by verb and resource; `None` if the server has no such metric.
    pub(crate) async fn requests(&self) -> Option<BTreeMap<String, f64>> {
        let request = Request::builder().uri("/metrics").body(Full::default()).ok()?;
        let answer = self.client.call(request).await.ok()?;
        let text = std::str::from_utf8(&answer.body).ok()?;
        let mut counts: BTreeMap<String, f64> = BTreeMap::new();
        for line in text.lines().filter(|line| line.starts_with("apiserver_request_total{")) {
            let (labels, value) = line.rsplit_once(' ')?;
            let label = |name: &str| {
                let rest = labels.split_once(&format!("{name}=\""))?.1;
                rest.split_once('"').map(|(value, _)| value)
            };
            let key = format!("{} {}", label("verb").unwrap_or("?"), label("resource").unwrap_or("-"));
            *counts.entry(key).or_default() += value.parse::<f64>().ok()?;
        }
        (!counts.is_empty()).then_some(counts)
    }
}

/// Prints the requests that the server counted between two readings, in total and per unit of work.
pub(crate) fn print_requests(
    before: Option<&BTreeMap<String, f64>>,
    after: Option<&BTreeMap<String, f64>>,
    units: f64,
) {
    let (Some(before), Some(after)) = (before, after) else { return };
    for (verb, count) in after {
        let more = count - before.get(verb).copied().unwrap_or_default();
        if more > 0.0 {
            println!("requests    {verb:<24} {more:>8}  {:.4} each", more / units);
        }
    }
}
