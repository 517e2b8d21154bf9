//! Checks of the process around the server that the server itself cannot make.

use serde_json::Value;

use crate::error::FieldError;

/// A permission that a write needs beyond that to write: something acts on the object with permissions that its author
/// may lack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequiredPermission {
    /// The verb, such as `delete`.
    pub verb: &'static str,
    /// The objects that the writer needs it on.
    pub scope: PermissionScope,
    /// The reason, as the refusal shows it.
    pub why: &'static str,
}

/// The objects that a permission is required on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionScope {
    /// The object that is written, and not only the subresource through which it is.
    Written,
    /// All objects of a kind.
    Kind {
        /// `apiVersion` of the kind.
        api_version: String,
        /// The kind.
        kind: String,
        /// The only namespaces that matter, by name (for the kind Namespace the only objects); empty for all.
        namespaces: Vec<String>,
    },
}

/// Refuses and warns beyond the rules of the API: for kinds and annotations whose meaning is defined elsewhere.
pub trait Advisor: std::fmt::Debug + Send + Sync {
    /// Returns the problems of an object of this group and kind; any refuses the request.
    fn problems(&self, group: &str, kind: &str, object: &Value) -> Vec<FieldError>;

    /// Returns the permissions that a write needs beyond that to write. `old` is the stored object of an update.
    fn required(
        &self,
        _group: &str,
        _kind: &str,
        _new: &Value,
        _old: Option<&Value>,
    ) -> Vec<RequiredPermission> {
        Vec::new()
    }

    /// Puts back into `new` what no subresource may change, as it is in `old`, and returns the names of what was put
    /// back.
    fn restore(&self, _new: &mut Value, _old: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Returns warnings to the object's writer. `old` is the stored object of an update.
    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String>;
}
