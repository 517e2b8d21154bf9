//! Checks by the surrounding process that the server itself cannot make.

use serde_json::Value;

use crate::error::FieldError;

/// A permission that a write needs in addition to the write itself: something acts on the object with permissions that its author
/// may lack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequiredPermission {
    /// Verb, such as `delete`.
    pub verb: &'static str,
    /// Objects for which the writer needs the permission.
    pub scope: PermissionScope,
    /// Reason, as shown in the refusal.
    pub why: &'static str,
}

/// Objects for which a permission is required.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionScope {
    /// The written object itself, even if it is written through a subresource.
    Written,
    /// All objects of a kind.
    Kind {
        /// `apiVersion` of the kind.
        api_version: String,
        /// Kind.
        kind: String,
        /// Names of the only relevant namespaces (for the kind Namespace, of the only objects); empty for all.
        namespaces: Vec<String>,
    },
}

/// Refuses objects and warns beyond the rules of the API, for kinds and annotations whose meaning is defined elsewhere.
pub trait Advisor: std::fmt::Debug + Send + Sync {
    /// Returns the errors of an object of this group and kind; any error refuses the request.
    fn problems(&self, group: &str, kind: &str, object: &Value) -> Vec<FieldError>;

    /// Returns the permissions that a write needs in addition to the write itself. `old` is the stored object of an update.
    fn required(
        &self,
        _group: &str,
        _kind: &str,
        _new: &Value,
        _old: Option<&Value>,
    ) -> Vec<RequiredPermission> {
        Vec::new()
    }

    /// Restores fields in `new` that no subresource may change to those of `old`, and returns their names.
    fn restore(&self, _new: &mut Value, _old: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Returns warnings for the object's writer. `old` is the stored object of an update.
    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String>;
}
