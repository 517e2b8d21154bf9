//! Requests for paths of an [`Extension`].

use std::sync::Arc;

use bytes::Bytes;
use gc_registry::error::ApiError;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, StatusCode};

use crate::auth::sessions::Origin;
use crate::exchange::body::AnswerBody;
use crate::exchange::{Answer, ApiRequest, compressible, page_not_found, text_answer};
use crate::state::State;
use crate::state::extension::{Extension, ExtensionAnswer, ExtensionBody, ExtensionRequest};

/// Answers a request for a path of the extension.
pub(crate) async fn answer(
    state: &Arc<State>,
    extension: &Arc<dyn Extension>,
    request: &mut ApiRequest,
    origin: Option<Origin>,
) -> Result<Answer, ApiError> {
    let body = match request.method {
        Method::POST => request.read_body(&state.work.bodies).await?,
        _ => Bytes::new(),
    };
    let answered = extension
        .answer(ExtensionRequest {
            method: request.method.clone(),
            path: trimmed(&request.path).to_owned(),
            query: request.query.0.clone(),
            headers: request.headers.clone(),
            body,
            user: request.user.clone(),
            origin,
        })
        .await;
    let Some(ExtensionAnswer { code, content_type, headers, body }) = answered else {
        return Ok(page_not_found());
    };
    let mut answer = match body {
        ExtensionBody::Whole(bytes) => compressible(bytes, content_type, request.takes_gzip()),
        ExtensionBody::Shared(body) => body.answer(content_type, request.takes_gzip()),
        ExtensionBody::Stream(stream) => {
            let stop = state.stop.clone();
            let stream = futures::StreamExt::take_until(stream, stop);
            let mut answer = text_answer(StatusCode::OK, content_type, Bytes::new());
            *answer.body_mut() = AnswerBody::Stream(Box::pin(stream));
            answer
        }
    };
    *answer.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    for (name, value) in headers {
        answer.headers_mut().append(name, value);
    }
    Ok(answer)
}

/// Returns a path in the form that extensions expect.
pub(crate) fn trimmed(path: &str) -> &str {
    path.trim_end_matches('/')
}
