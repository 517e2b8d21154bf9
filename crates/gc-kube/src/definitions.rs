//! Definitions of custom resources with an annotation that prohibits kubegc from deleting their objects.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::FutureExt as _;
use gc_collectors::objects::FactsError;
use gc_types::{Gvr, ResourceId, ResourceInfo, Scope};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::breaker::{Definitions, SharedBreaker};
use crate::connection::ApiClient;
use crate::driver::QUEUED_BATCHES;
use crate::facts::{Accept, FactsWatcher, METADATA, NewsLine, NewsPage, Reader};
use crate::raw::{RawPage, map_object, raw_line, raw_page};
use crate::resources::Route;
use gc_controller::watch::RequestEnd;

/// Annotation of a CustomResourceDefinition: any value but `false` keeps every object of the resource that it defines.
pub const KEEP_OBJECTS: &str = "kubegc.io/keep-objects";

/// Message from the watch.
enum News {
    Started,
    Synced,
    /// Name of a definition, and whether its objects are kept.
    Present(Arc<str>, bool),
    Gone(Arc<str>),
    /// Definitions cannot be listed. Even if they are not served, this does not mean that there are none: every custom resource
    /// that is served has a definition.
    Failed(String),
}

/// Keeps the breaker up to date about kept custom resources, until the future is dropped. No custom resource is deleted until the
/// definitions have been listed.
pub fn follow_definitions(client: ApiClient, breaker: SharedBreaker) -> impl Future<Output = ()> {
    breaker.change(|breaker| breaker.follow(Definitions::Unknown));
    follow(client, breaker)
}

async fn follow(client: ApiClient, breaker: SharedBreaker) {
    let (sink, mut news) = mpsc::channel(QUEUED_BATCHES);
    let mut watch = JoinSet::new();
    watch.spawn(FactsWatcher::new(client, Arc::new(DefinitionReader::new()), sink).run().boxed());
    let (mut kept, mut listed) = (BTreeSet::new(), BTreeSet::new());
    let mut is_listing = true;
    while let Some(batch) = news.recv().await {
        let before = kept.clone();
        let mut is_known = false;
        for news in batch {
            match news {
                News::Started => {
                    is_listing = true;
                    listed.clear();
                }
                News::Present(name, keeps) => {
                    if keeps {
                        listed.insert(Arc::clone(&name));
                        kept.insert(name);
                    } else {
                        listed.remove(&name);
                        kept.remove(&name);
                    }
                }
                News::Gone(name) => drop(kept.remove(&name)),
                News::Synced => {
                    kept.clone_from(&listed);
                    (is_listing, is_known) = (false, true);
                }
                News::Failed(why) => {
                    tracing::warn!(
                        why,
                        "definitions cannot be listed: no custom resource is deleted until they can"
                    );
                }
            }
        }
        if is_known || (!is_listing && kept != before) {
            breaker.change(|breaker| breaker.follow(Definitions::Kept(kept.clone())));
        }
    }
}

struct DefinitionReader {
    route: Route,
}

impl DefinitionReader {
    fn new() -> Self {
        Self { route: route("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition") }
    }
}

/// Returns the route of a cluster-scoped resource that describes served resources.
fn route(group: &str, resource: &str, kind: &str) -> Route {
    Route::new(ResourceInfo {
        id: ResourceId(0),
        gvr: Gvr { group: group.into(), version: "v1".into(), resource: resource.into() },
        kind: kind.into(),
        scope: Scope::Cluster,
        served_api_versions: Vec::new(),
        watched: true,
        comparable_versions: true,
    })
}

/// Resources that describe served resources: group, plural name, kind.
const SERVED: [(&str, &str, &str); 2] = [
    ("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition"),
    ("apiregistration.k8s.io", "apiservices", "APIService"),
];

/// Calls `changed` whenever a CustomResourceDefinition or an APIService has changed, until the future is dropped. If they cannot be
/// watched, it is never called.
pub async fn watch_served(client: ApiClient, changed: impl Fn() + Send) {
    let (sink, mut news) = mpsc::channel(QUEUED_BATCHES);
    let mut watches = JoinSet::new();
    for (group, resource, kind) in SERVED {
        let reader = Arc::new(ServedReader { route: route(group, resource, kind) });
        watches.spawn(FactsWatcher::new(client.clone(), reader, sink.clone()).run().boxed());
    }
    while news.recv().await.is_some() {
        changed();
    }
}

/// Detects only that something has changed.
struct ServedReader {
    route: Route,
}

impl Reader for ServedReader {
    type News = ();

    fn route(&self) -> &Route {
        &self.route
    }

    fn accept(&self) -> Accept {
        METADATA
    }

    fn started(&self) {}

    fn synced(&self) {}

    fn page(&self, json: &[u8]) -> Result<NewsPage<()>, FactsError> {
        let RawPage { resource_version, continue_token, .. } = raw_page(json, &self.route.info)?;
        Ok(NewsPage { resource_version, continue_token, items: Vec::new() })
    }

    fn line(&self, json: &[u8]) -> Result<(NewsLine<()>, String), FactsError> {
        let (line, version) = raw_line(json, &self.route.info)?;
        Ok((map_object(line, |_, _| ()), version))
    }
}

/// Reads one definition, which is named after its resource.
fn read(present: bool, object: &Value) -> News {
    let name: Arc<str> = object["metadata"]["name"].as_str().unwrap_or_default().into();
    if !present {
        return News::Gone(name);
    }
    let keeps = object["metadata"]["annotations"][KEEP_OBJECTS].as_str().is_some_and(|text| text != "false");
    News::Present(name, keeps)
}

impl Reader for DefinitionReader {
    type News = News;

    fn route(&self) -> &Route {
        &self.route
    }

    fn accept(&self) -> Accept {
        METADATA
    }

    fn started(&self) -> News {
        News::Started
    }

    fn synced(&self) -> News {
        News::Synced
    }

    fn failed(&self, why: &RequestEnd) -> Option<News> {
        Some(News::Failed(why.to_string()))
    }

    fn page(&self, json: &[u8]) -> Result<NewsPage<News>, FactsError> {
        let RawPage { resource_version, continue_token, items } = raw_page(json, &self.route.info)?;
        let items = items.iter().map(|object| read(true, object)).collect();
        Ok(NewsPage { resource_version, continue_token, items })
    }

    fn line(&self, json: &[u8]) -> Result<(NewsLine<News>, String), FactsError> {
        let (line, version) = raw_line(json, &self.route.info)?;
        Ok((map_object(line, |present, object| read(present, &object)), version))
    }
}
