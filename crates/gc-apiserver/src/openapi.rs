//! OpenAPI documents.

use gc_registry::error::ApiError;

use crate::service::{Answer, ApiRequest};
use crate::state::State;

/// Written documents of the present catalog.
#[derive(Default)]
pub(crate) struct OpenApi {}

/// Answers `/openapi/…`; `None` for any other path.
pub(crate) fn answer(state: &State, request: &ApiRequest, path: &str) -> Result<Option<Answer>, ApiError> {
    let _ = (state, request, path);
    Ok(None)
}
