//! Lists and watches of whole objects, handed on as JSON: what workload controllers see.

use std::sync::Arc;

use gc_retention::objects::{FactsError, Selection};
use gc_types::ResourceInfo;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::connection::ApiClient;
use crate::facts::{Accept, FactsWatcher, NewsLine, NewsPage, Reader, WHOLE};
use crate::raw::{RawPage, map_object, raw_line, raw_page};
use crate::resources::Route;

/// What is learned of the objects of a resource.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectNews {
    /// A list begins: what it lacks is gone.
    ListStarted,
    /// An object is there.
    Present(Value),
    /// An object is gone.
    Gone(Value),
    /// The list is complete.
    Synced,
}

#[derive(Debug)]
struct ObjectReader {
    route: Route,
    field_selector: &'static str,
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

    fn selection(&self) -> Selection {
        Selection { field_selector: self.field_selector, ..Selection::default() }
    }

    fn started(&self) -> ObjectNews {
        ObjectNews::ListStarted
    }

    fn synced(&self) -> ObjectNews {
        ObjectNews::Synced
    }

    fn page(&self, json: &[u8]) -> Result<NewsPage<ObjectNews>, FactsError> {
        let RawPage { resource_version, continue_token, items } = raw_page(json)?;
        let items = items.into_iter().map(ObjectNews::Present).collect();
        Ok(NewsPage { resource_version, continue_token, items })
    }

    fn line(&self, json: &[u8]) -> Result<(NewsLine<ObjectNews>, String), FactsError> {
        let (line, version) = raw_line(json)?;
        Ok((map_object(line, news), version))
    }
}

/// Lists and watches a resource, or the part of it that a field selector selects, until `sink` is closed or the task is
/// aborted. Failures are retried with a backoff.
pub async fn watch_objects(
    client: ApiClient,
    resource: ResourceInfo,
    field_selector: &'static str,
    sink: mpsc::Sender<Vec<ObjectNews>>,
) {
    let reader = ObjectReader { route: Route::new(resource), field_selector };
    FactsWatcher::new(client, Arc::new(reader), sink).run().await;
}
