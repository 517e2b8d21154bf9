//! OpenAPI documents: built when somebody asks, kept under their hashes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use gc_registry::catalog::Catalog;
use gc_registry::error::ApiError;
use gc_registry::openapi;
use http::header::{ACCEPT, CACHE_CONTROL, ETAG, HeaderValue, IF_NONE_MATCH, LOCATION, VARY};
use http::{Method, StatusCode};

use crate::negotiate::media_ranges;
use crate::service::{Answer, ApiRequest, method_not_allowed, page_not_found, text_answer};
use crate::state::State;
use crate::work::{self, Weight};

const JSON: &str = "application/json";

/// Written documents of the present catalog. Bounded by what is served: one of version 2, an index, and one
/// per group and version.
#[derive(Default)]
pub(crate) struct OpenApi {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    catalog: Option<Arc<Catalog>>,
    documents: HashMap<Which, Document>,
}

/// One of the documents.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Which {
    Two,
    Index,
    Three(String, String),
}

#[derive(Clone)]
struct Document {
    hash: String,
    bytes: Bytes,
}

impl Which {
    fn of_path(path: &str) -> Option<Self> {
        let rest = path.strip_prefix("/openapi/")?;
        match rest.split('/').collect::<Vec<_>>().as_slice() {
            ["v2"] => Some(Self::Two),
            ["v3"] => Some(Self::Index),
            ["v3", "api", version] => Some(Self::Three(String::new(), (*version).into())),
            ["v3", "apis", group, version] => Some(Self::Three((*group).into(), (*version).into())),
            _ => None,
        }
    }

    fn hash(&self, catalog: &Catalog) -> Option<String> {
        match self {
            Self::Two | Self::Index => Some(openapi::v2_hash(catalog)),
            Self::Three(group, version) => openapi::v3_hash(catalog, group, version),
        }
    }

    fn build(&self, catalog: &Catalog) -> Option<Bytes> {
        let value = match self {
            Self::Two => openapi::v2_document(catalog),
            Self::Index => openapi::v3_index(catalog),
            Self::Three(group, version) => openapi::v3_document(catalog, group, version)?,
        };
        Some(value.to_string().into())
    }
}

impl OpenApi {
    fn document(&self, catalog: &Arc<Catalog>, which: &Which) -> Option<Document> {
        {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            let current = kept.catalog.as_ref().is_some_and(|known| Arc::ptr_eq(known, catalog));
            if !current {
                // Documents whose hash stayed the same are the same: a new definition changes few of them.
                kept.documents
                    .retain(|which, document| which.hash(catalog).as_deref() == Some(document.hash.as_str()));
                kept.catalog = Some(Arc::clone(catalog));
            }
            if let Some(document) = kept.documents.get(which) {
                return Some(document.clone());
            }
        }
        // Built outside of the lock; two requests at once may do it twice.
        let document = Document { hash: which.hash(catalog)?, bytes: which.build(catalog)? };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.catalog.as_ref().is_some_and(|known| Arc::ptr_eq(known, catalog)) {
            kept.documents.insert(which.clone(), document.clone());
        }
        Some(document)
    }
}

/// Answers `/openapi/…`; `None` for any other path.
pub(crate) async fn answer(
    state: &Arc<State>,
    request: &ApiRequest,
    path: &str,
) -> Result<Option<Answer>, ApiError> {
    if !path.starts_with("/openapi/") {
        return Ok(None);
    }
    let Some(which) = Which::of_path(path) else { return Ok(Some(page_not_found())) };
    if !matches!(request.method, Method::GET | Method::HEAD) {
        return Err(method_not_allowed());
    }
    let accept = request.header(&ACCEPT).unwrap_or("*/*");
    if !media_ranges(accept).iter().any(|range| range.takes(JSON)) {
        return Err(ApiError::new(
            406,
            "NotAcceptable",
            "only the following media types are accepted: application/json",
        ));
    }
    let wanted = which.clone();
    let found = work::perform(state, Weight::ReadMany, move |state| {
        Ok(state.openapi.document(&state.registry.catalog(), &wanted))
    })
    .await?;
    let Some(document) = found else { return Ok(Some(page_not_found())) };
    if let Some(hash) = request.query.get("hash").filter(|_| matches!(which, Which::Three(..))) {
        if hash != document.hash {
            let mut answer = text_answer(StatusCode::MOVED_PERMANENTLY, JSON, Bytes::new());
            if let Ok(location) = HeaderValue::from_str(&format!("{path}?hash={}", document.hash)) {
                answer.headers_mut().insert(LOCATION, location);
            }
            return Ok(Some(answer));
        }
        let mut answer = tagged(request, document);
        answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
        return Ok(Some(answer));
    }
    Ok(Some(tagged(request, document)))
}

fn tagged(request: &ApiRequest, document: Document) -> Answer {
    let tag = format!("\"{}\"", document.hash);
    let known =
        request.header(&IF_NONE_MATCH).is_some_and(|tags| tags.split(',').any(|one| one.trim() == tag));
    let mut answer = if known {
        text_answer(StatusCode::NOT_MODIFIED, JSON, Bytes::new())
    } else {
        request.document(document.bytes, JSON)
    };
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        answer.headers_mut().insert(ETAG, tag);
    }
    answer.headers_mut().insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    answer
}
