//! Lists and watches complete objects and passes them on as JSON to the workload controllers.

use std::sync::Arc;

use gc_collectors::objects::{FactsError, Selection};
use gc_types::ResourceInfo;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::connection::ApiClient;
use crate::facts::{Accept, FactsWatcher, NewsLine, NewsPage, Reader, WHOLE, WatchState};
use crate::raw::{RawPage, map_object, raw_line, raw_page};
use crate::resources::Route;

/// Message about a resource's objects.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectNews {
    /// A list begins: objects that it lacks are gone.
    ListStarted,
    /// An object exists.
    Present(Value),
    /// An object is gone.
    Gone(Value),
    /// The list is complete.
    Synced,
}

/// Selection of a resource's objects, and a callback before lists.
struct ObjectReader {
    route: Route,
    namespace: String,
    field_selector: String,
    list_begins: Box<dyn Fn() + Send + Sync>,
    note: Box<dyn Fn(WatchState) + Send + Sync>,
}

fn news(present: bool, object: Value) -> ObjectNews {
    if present { ObjectNews::Present(object) } else { ObjectNews::Gone(object) }
}

impl Reader for ObjectReader {
    type News = ObjectNews;

    fn route(&self) -> &Route {
        &self.route
    }

    fn accept(&self) -> Accept {
        WHOLE
    }

    fn selection(&self) -> Selection<'_> {
        let Self { namespace, field_selector, .. } = self;
        Selection { namespace, field_selector, ..Selection::default() }
    }

    fn started(&self) -> ObjectNews {
        (self.list_begins)();
        ObjectNews::ListStarted
    }

    fn synced(&self) -> ObjectNews {
        ObjectNews::Synced
    }

    fn note(&self, state: WatchState) {
        (self.note)(state);
    }

    fn page(&self, json: &[u8]) -> Result<NewsPage<ObjectNews>, FactsError> {
        let RawPage { resource_version, continue_token, items } = raw_page(json, &self.route.info)?;
        let items = items.into_iter().map(ObjectNews::Present).collect();
        Ok(NewsPage { resource_version, continue_token, items })
    }

    fn line(&self, json: &[u8]) -> Result<(NewsLine<ObjectNews>, String), FactsError> {
        let (line, version) = raw_line(json, &self.route.info)?;
        Ok((map_object(line, news), version))
    }
}

/// Lists and watches a resource, or the part of it that a field selector selects, until `sink` is closed or the task is aborted.
/// Failures are retried with a backoff.
pub async fn watch_objects(
    client: ApiClient,
    resource: ResourceInfo,
    field_selector: &'static str,
    sink: mpsc::Sender<Vec<ObjectNews>>,
) {
    let reader = ObjectReader {
        route: Route::new(resource),
        namespace: String::new(),
        field_selector: field_selector.to_owned(),
        list_begins: Box::new(|| {}),
        note: Box::new(|_| {}),
    };
    FactsWatcher::new(client, Arc::new(reader), sink).run().await;
}

/// Watches all objects of a resource like [`watch_objects`]. Also calls `note` with each failure of the watch, and when it has
/// recovered; earlier messages may then still be in `sink`.
pub async fn watch_objects_noting(
    client: ApiClient,
    resource: ResourceInfo,
    sink: mpsc::Sender<Vec<ObjectNews>>,
    note: impl Fn(WatchState) + Send + Sync + 'static,
) {
    let reader = ObjectReader {
        route: Route::new(resource),
        namespace: String::new(),
        field_selector: String::new(),
        list_begins: Box::new(|| {}),
        note: Box::new(note),
    };
    FactsWatcher::new(client, Arc::new(reader), sink).run().await;
}

/// Watches one object by its namespace and name like [`watch_objects`]. Reads it again after each failure that may have been a
/// restart of the server. Calls `list_begins` before each list is requested.
pub async fn watch_object(
    client: ApiClient,
    resource: ResourceInfo,
    namespace: &str,
    name: &str,
    list_begins: impl Fn() + Send + Sync + 'static,
    sink: mpsc::Sender<Vec<ObjectNews>>,
) {
    let reader = ObjectReader {
        route: Route::new(resource),
        namespace: namespace.to_owned(),
        field_selector: format!("metadata.name={name}"),
        list_begins: Box::new(list_begins),
        note: Box::new(|_| {}),
    };
    FactsWatcher::new(client, Arc::new(reader), sink).relisting().run().await;
}
