//! OpenAPI documents: built on demand, cached by their hashes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use gc_registry::catalog::Catalog;
use gc_registry::error::ApiError;
use gc_registry::openapi;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH, LOCATION, VARY};
use http::{Method, StatusCode};

use crate::encode::negotiate::media_ranges;
use crate::encode::openapi_protobuf;
use crate::state::State;
use crate::transport::exchange::{Answer, ApiRequest, method_not_allowed, page_not_found, text_answer};
use crate::work::{self, Weight};

const JSON: &str = "application/json";

/// Written documents of the present catalog. Bounded by what is served: two of version 2, an index, and one
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
    /// The same as protobuf.
    TwoProtobuf,
    Index,
    /// A document of version 3 by its path in the index.
    Three(String),
}

#[derive(Clone)]
struct Document {
    hash: String,
    bytes: Bytes,
}

impl Which {
    fn of_path(path: &str) -> Option<Self> {
        let rest = path.strip_prefix("/openapi/")?;
        match rest.trim_end_matches('/') {
            "v2" => Some(Self::Two),
            "v3" => Some(Self::Index),
            other => other.strip_prefix("v3/").map(|path| Self::Three(path.into())),
        }
    }

    fn content_type(&self) -> &'static str {
        if *self == Self::TwoProtobuf { openapi_protobuf::CONTENT_TYPE } else { JSON }
    }

    fn hash(&self, catalog: &Catalog) -> Option<String> {
        match self {
            Self::Two | Self::TwoProtobuf | Self::Index => Some(openapi::v2_hash(catalog)),
            Self::Three(path) => openapi::v3_hash(catalog, path),
        }
    }

    fn build(&self, catalog: &Catalog) -> Option<Bytes> {
        let value = match self {
            Self::Two => openapi::v2_document(catalog),
            Self::TwoProtobuf => {
                return Some(openapi_protobuf::encode(&openapi::v2_document(catalog)).into());
            }
            Self::Index => openapi::v3_index(catalog),
            Self::Three(path) => openapi::v3_document(catalog, path)?,
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
    // The documents of version 3 are answered whatever the method, and an unknown one with nothing at all.
    let is_three = matches!(which, Which::Three(_));
    let is_folder = request.path == "/openapi/v3/";
    if is_folder || (is_three && which.hash(&state.registry.catalog()).is_none()) {
        let mut answer = text_answer(StatusCode::NOT_FOUND, JSON, Bytes::new());
        answer.headers_mut().remove(CONTENT_TYPE);
        return Ok(Some(answer));
    }
    if !is_three && !matches!(request.method, Method::GET | Method::HEAD) {
        return Err(method_not_allowed());
    }
    let accept = request.header(&ACCEPT).unwrap_or("*/*");
    let which = negotiated(which, accept)?;
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
        let mut answer = tagged(request, document, which.content_type());
        answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
        return Ok(Some(answer));
    }
    Ok(Some(tagged(request, document, which.content_type())))
}

/// The document in the first form that the client takes.
fn negotiated(which: Which, accept: &str) -> Result<Which, ApiError> {
    for range in media_ranges(accept) {
        if range.takes(JSON) {
            return Ok(which);
        }
        if which == Which::Two && openapi_protobuf::ACCEPTED.iter().any(|name| range.takes(name)) {
            return Ok(Which::TwoProtobuf);
        }
    }
    let message = "only the following media types are accepted: application/json";
    Err(ApiError::new(406, "NotAcceptable", message))
}

fn tagged(request: &ApiRequest, document: Document, content_type: &'static str) -> Answer {
    let tag = format!("\"{}\"", document.hash);
    let known =
        request.header(&IF_NONE_MATCH).is_some_and(|tags| tags.split(',').any(|one| one.trim() == tag));
    let mut answer = if known {
        text_answer(StatusCode::NOT_MODIFIED, content_type, Bytes::new())
    } else {
        request.document(document.bytes, content_type)
    };
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        answer.headers_mut().insert(ETAG, tag);
    }
    answer.headers_mut().insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    answer
}
