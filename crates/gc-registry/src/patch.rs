//! Patches: JSON patch, merge patch, strategic merge patch, server-side apply.

mod json;
pub mod managed_fields;
mod merge;
mod shown;
mod strategic;

pub use json::{MAX_COPIED_BYTES, MAX_OPERATIONS, json_patch};
pub(crate) use json::{decodable, json_patch_of_policy, json_patch_of_webhook, unknown_members};
pub use merge::merge_patch;
pub(crate) use shown::{shown, type_name};
pub use strategic::strategic_merge_patch;

use serde_json::Value;

use crate::error::{ApiError, Details};
use crate::schema;

/// 422 as the API server words everything that a JSON patch can fail with once it could be read.
fn unprocessable() -> ApiError {
    let mut error =
        ApiError::new(422, "Invalid", "the server rejected our request due to an error in our request");
    error.details = Some(Box::new(Details::default()));
    error
}

/// Refuses patches that are nested too deeply to be walked.
fn check_depth(patch: &Value) -> Result<(), ApiError> {
    match schema::depth(patch) {
        Some(_) => Ok(()),
        None => {
            Err(ApiError::bad_request(format!("patch is nested more than {} levels deep", schema::MAX_DEPTH)))
        }
    }
}
