//! OpenAPI documents: built on demand, cached by their hashes.

mod documents;

use std::sync::Arc;

use bytes::Bytes;
use gc_registry::error::ApiError;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH, LOCATION, VARY};
use http::{Method, StatusCode};

use self::documents::{Document, JSON, Which};
use crate::encode::negotiate::media_ranges;
use crate::encode::openapi_protobuf;
use crate::state::State;
use crate::transport::exchange::{Answer, ApiRequest, page_not_found, text_answer};
use crate::work::Weight;

pub(crate) use documents::OpenApi;

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
        return Err(ApiError::method_not_allowed());
    }
    let accept = request.header(&ACCEPT).unwrap_or("*/*");
    let which = negotiated(which, accept)?;
    let wanted = which.clone();
    let found = state
        .perform(Weight::ReadMany, move |state| {
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
