//! Pages of a backup: everything in the store as of one revision.
//!
//! ```text
//! POST /kubegc/v1/backup                          {"revision": 5120, "more": true, "items": [{"key", "createRevision", "value"}, …]}
//! POST /kubegc/v1/backup?at=5120&after=/pods/a/b  the next page
//! ```
//!
//! It is a POST because roles that let people `get` every path, for metrics and health, must not let them read Secrets.

use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures::future::BoxFuture;
use gc_apiserver::{Audience, Extension, ExtensionAnswer, ExtensionRequest};
use gc_registry::Registry;
use gc_registry::storage::{RangeOptions, Revision, StorageError};
use http::Method;
use serde_json::{Value, json};

use gc_process::endpoints::{not_allowed, refused, status};

/// Path of the pages.
pub const PATH: &str = "/kubegc/v1/backup";
/// Maximum number of objects on a page.
const PAGE_OBJECTS: usize = 200;
/// Number of bytes of values after which a page ends, but never before its first object.
const PAGE_BYTES: usize = 4 << 20;

/// The pages of a server that serves nothing else under `/kubegc/`.
#[derive(Default)]
pub struct Pages {
    /// Registry, known once the server has begun.
    registry: OnceLock<Arc<Registry>>,
}

impl Pages {
    /// Sets the registry when the server has begun.
    pub fn serve(&self, registry: &Arc<Registry>) {
        // The server begins once.
        let _ = self.registry.set(Arc::clone(registry));
    }
}

impl Extension for Pages {
    fn audience(&self, path: &str) -> Option<Audience> {
        (path == PATH).then_some(Audience::Permitted)
    }

    fn answer(&self, request: ExtensionRequest) -> BoxFuture<'static, Option<ExtensionAnswer>> {
        let registry = self.registry.get().cloned();
        Box::pin(async move {
            let (code, document) = match request.method {
                Method::POST => page(registry, request.query).await,
                _ => not_allowed(),
            };
            Some(ExtensionAnswer::json(code, &document))
        })
    }
}

/// Answers one request.
pub async fn page(registry: Option<Arc<Registry>>, query: Vec<(String, String)>) -> (u16, Value) {
    let options = match options(&query) {
        Ok(options) => options,
        Err(message) => return refused(&message),
    };
    let Some(registry) = registry else {
        return (503, status(503, "ServiceUnavailable", "the server has not begun yet", &json!({})));
    };
    // A store behind a network blocks, and a page has megabytes to encode.
    match tokio::task::spawn_blocking(move || read(&registry, &options)).await {
        Ok(answer) => answer,
        Err(error) => (500, status(500, "InternalError", &error.to_string(), &json!({}))),
    }
}

fn options(query: &[(String, String)]) -> Result<RangeOptions, String> {
    let mut options = RangeOptions { limit: PAGE_OBJECTS, skips_count: true, ..RangeOptions::default() };
    for (name, value) in query {
        match name.as_str() {
            "at" => {
                let at = value.parse().map_err(|_| format!("at={value}: expected a revision, a number"))?;
                options.at = Some(Revision(at));
            }
            "after" => options.after = Some(value.as_str().into()),
            _ => return Err(format!("unknown parameter {name:?}: expected at=REVISION and after=KEY")),
        }
    }
    Ok(options)
}

fn read(registry: &Registry, options: &RangeOptions) -> (u16, Value) {
    match registry.stored(options) {
        Ok(answer) => {
            let mut bytes = 0;
            let fitting = answer
                .items
                .iter()
                .take_while(|item| {
                    let is_first = bytes == 0;
                    bytes += item.value.len().max(1);
                    is_first || bytes <= PAGE_BYTES
                })
                .count();
            let items: Vec<Value> = answer.items[..fitting]
                .iter()
                .map(|item| {
                    json!({"key": &*item.key, "createRevision": item.create_revision.0,
                        "value": BASE64.encode(&item.value)})
                })
                .collect();
            let more = answer.more || fitting < answer.items.len();
            (200, json!({"revision": answer.revision.0, "more": more, "items": items}))
        }
        Err(error @ (StorageError::Compacted { .. } | StorageError::Future { .. })) => {
            (410, status(410, "Expired", &error.to_string(), &json!({})))
        }
        Err(error) => (500, status(500, "InternalError", &error.to_string(), &json!({}))),
    }
}
