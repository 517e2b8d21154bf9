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

/// Returns the 422 that the API server gives for every failure of a readable JSON patch.
fn unprocessable() -> ApiError {
    let mut error =
        ApiError::new(422, "Invalid", "the server rejected our request due to an error in our request");
    error.details = Some(Box::new(Details::default()));
    error
}

/// Refuses patches that are nested too deeply for recursion.
fn check_depth(patch: &Value) -> Result<(), ApiError> {
    match schema::depth(patch) {
        Some(_) => Ok(()),
        None => {
            Err(ApiError::bad_request(format!("patch is nested more than {} levels deep", schema::MAX_DEPTH)))
        }
    }
}
