//! What the process around the server knows about objects that the server itself does not.

use serde_json::Value;

use crate::error::FieldError;

/// Refuses and warns beyond the rules of the API: for kinds and annotations whose meaning is defined elsewhere.
pub trait Advisor: std::fmt::Debug + Send + Sync {
    /// What is wrong with an object of this group and kind; anything refuses the request.
    fn problems(&self, group: &str, kind: &str, object: &Value) -> Vec<FieldError>;

    /// What whoever writes the object should know. `old` is the stored object of an update.
    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String>;
}
