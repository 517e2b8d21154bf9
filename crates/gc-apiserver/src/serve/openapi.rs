//! OpenAPI documents: built on demand, cached by their hashes.

use std::sync::Arc;

use bytes::Bytes;
use gc_registry::error::ApiError;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH, LOCATION, VARY};
use http::{Method, StatusCode};

use crate::api_documents::openapi::{Document, DocumentName, INDEX, JSON};
use crate::encode::negotiate::media_ranges;
use crate::encode::openapi_protobuf;
use crate::exchange::{Answer, ApiRequest, page_not_found, text_answer};
use crate::state::State;
use crate::work::Weight;

/// Answers `/openapi/…`; `None` for any other path.
pub(crate) async fn answer(
    state: &Arc<State>,
    request: &ApiRequest,
    path: &str,
) -> Result<Option<Answer>, ApiError> {
    if !path.starts_with("/openapi/") {
        return Ok(None);
    }
    let Some(which) = DocumentName::of_path(path) else { return Ok(Some(page_not_found())) };
    if request.path == "/openapi/v2/" {
        return Ok(Some(page_not_found()));
    }
    // Documents accept any method, and an unknown one of version 3 gets an empty answer.
    let is_three = matches!(which, DocumentName::Three(_));
    let is_folder = request.path == "/openapi/v3/";
    if is_folder || (is_three && which.hash(&state.registry.catalog()).is_none()) {
        return Ok(Some(nothing(StatusCode::NOT_FOUND)));
    }
    let accept = request.header(&ACCEPT).unwrap_or("*/*");
    let Some(which) = negotiated(which, accept) else {
        return Ok(Some(nothing(StatusCode::NOT_ACCEPTABLE)));
    };
    let wanted = which.clone();
    let found = state
        .perform(Weight::ReadMany, move |state| {
            Ok(state.openapi.document(&state.registry.catalog(), &wanted))
        })
        .await?;
    let Some(document) = found else { return Ok(Some(page_not_found())) };
    if let Some(hash) = request.query.get("hash").filter(|_| is_three) {
        if hash != document.hash {
            let mut answer = text_answer(StatusCode::MOVED_PERMANENTLY, which.content_type(), Bytes::new());
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

/// Answers with a status code alone.
fn nothing(code: StatusCode) -> Answer {
    let mut answer = text_answer(code, JSON, Bytes::new());
    answer.headers_mut().remove(CONTENT_TYPE);
    answer
}

/// Returns the document in the first form that the client accepts; the index has one form, whatever the client accepts.
fn negotiated(which: DocumentName, accept: &str) -> Option<DocumentName> {
    if which == DocumentName::Index {
        return Some(which);
    }
    for range in media_ranges(accept) {
        if range.takes(JSON) {
            return Some(which);
        }
        if let DocumentName::Three(path) = &which
            && openapi_protobuf::three::ACCEPTED.iter().any(|name| range.takes(name))
        {
            return Some(DocumentName::ThreeProtobuf(path.clone()));
        }
        if which == DocumentName::Two && openapi_protobuf::ACCEPTED.iter().any(|name| range.takes(name)) {
            return Some(DocumentName::TwoProtobuf);
        }
    }
    None
}

/// Answers with a document and its tag. If the client already has that version, answers as HTTP requires: with 304 for reads,
/// otherwise with 412.
fn tagged(request: &ApiRequest, document: Document, content_type: &'static str) -> Answer {
    let tag = format!("\"{}\"", document.hash);
    let is_known = |tags: &str| tags.split(',').any(|one| one.trim() == tag || one.trim() == "*");
    let reads = matches!(request.method, Method::GET | Method::HEAD);
    let mut answer = match request.header(&IF_NONE_MATCH).is_some_and(is_known) {
        true if reads => nothing(StatusCode::NOT_MODIFIED),
        true if content_type == INDEX => nothing(StatusCode::PRECONDITION_FAILED),
        true => text_answer(StatusCode::PRECONDITION_FAILED, content_type, Bytes::new()),
        false => request.document(document.bytes, content_type),
    };
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        answer.headers_mut().insert(ETAG, tag);
    }
    answer.headers_mut().insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    answer
}
