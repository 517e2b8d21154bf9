//! Reports deletions with their users to an observer outside the server, because an object does not record them.

use gc_types::PropagationPolicy;

use crate::api::UserInfo;
use crate::error::ApiError;
use crate::resource::ResourceDefinition;

/// A definition whose deletion includes its objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminatingDefinition {
    /// `metadata.uid`
    pub uid: String,
    /// `metadata.deletionTimestamp`
    pub since: String,
}

/// A deletion.
#[derive(Debug)]
pub struct ObservedDeletion<'a> {
    /// Resource of the deleted object.
    pub resource: &'a ResourceDefinition,
    /// Namespace of the object; empty at cluster scope.
    pub namespace: &'a str,
    /// Name of the object.
    pub name: &'a str,
    /// UID of the object.
    pub uid: &'a str,
    /// Version that was deleted.
    pub resource_version: u64,
    /// The user.
    pub user: &'a UserInfo,
    /// Program, if the request names it.
    pub program: &'a str,
    /// True if the deletion was requested as an eviction.
    pub is_eviction: bool,
    /// Requested policy.
    pub policy: Option<PropagationPolicy>,
    /// Definition, if no request deletes the object.
    pub definition: Option<&'a TerminatingDefinition>,
    /// Reason why the object was not deleted, if so.
    pub failure: Option<&'a ApiError>,
}

/// Observes the deletions of a server: each object once, when it is marked, or when it is removed without having been marked.
/// Called by the request itself, so it must not block.
pub trait DeletionObserver: std::fmt::Debug + Send + Sync {
    /// Called when an object was deleted, or could not be deleted with its definition.
    fn observed(&self, deletion: &ObservedDeletion<'_>);
}
