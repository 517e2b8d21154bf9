//! NamespaceLifecycle (spec `api-deletion.md`, 12.4), and the protection of objects that a cluster needs.

use serde_json::Value;

use crate::error::{ApiError, Cause};
use crate::metadata::meta;
use crate::persist;
use crate::registry::call::Call;

impl Call<'_> {
    /// Implements NamespaceLifecycle for CREATE, including POST to subresources and apply that would create.
    pub(crate) fn admit_creation(&self, name: &str) -> Result<(), ApiError> {
        let Some(namespace) = self.read_namespace()? else { return Ok(()) };
        if !meta::is_deleting(&namespace)
            && namespace.pointer("/status/phase").and_then(Value::as_str) != Some("Terminating")
        {
            return Ok(());
        }
        let place = &self.target.namespace;
        let why = format!("unable to create new content in namespace {place} because it is being terminated");
        let mut error = self.forbidden(name, &why);
        if let Some(details) = &mut error.details {
            details.causes = vec![Cause {
                reason: "NamespaceTerminating".into(),
                message: format!("namespace {place} is being terminated"),
                field: "metadata.namespace".into(),
            }];
        }
        Err(error)
    }

    /// Implements NamespaceLifecycle for UPDATE: the namespace must exist, terminating or not.
    pub(crate) fn admit_update(&self) -> Result<(), ApiError> {
        self.read_namespace().map(|_| ())
    }

    /// Returns the namespace of the request; `None` for a request outside namespaces. Fails if the namespace does not exist.
    fn read_namespace(&self) -> Result<Option<Value>, ApiError> {
        let name = &self.target.namespace;
        if name.is_empty()
            || !self.resource().namespaced()
            || self.resource().is("authorization.k8s.io", "localsubjectaccessreviews")
        {
            return Ok(None);
        }
        match self.read(&persist::namespace_key(name))? {
            Some(stored) => serde_json::from_slice(&stored.value)
                .map(Some)
                .map_err(|why| ApiError::internal(format!("stored object is corrupt: {why}"))),
            None => Err(ApiError::not_found("", "namespaces", name)),
        }
    }

    /// Refuses to delete objects that a cluster needs.
    pub(crate) fn admit_deletion(&self, name: &str) -> Result<(), ApiError> {
        let resource = self.resource();
        match gc_types::undeletable(&resource.group, &resource.resource, name) {
            Some(why) => Err(self.forbidden(name, why)),
            None => Ok(()),
        }
    }
}
