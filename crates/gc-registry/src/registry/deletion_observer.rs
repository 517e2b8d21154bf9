//! Users of deletions, for an observer beside the server: an object does not record them.

use gc_types::PropagationPolicy;

use crate::api::UserInfo;
use crate::error::ApiError;
use crate::resource::ResourceDefinition;

/// The definition whose deletion takes its objects along.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminatingDefinition {
    /// `metadata.uid`
    pub uid: String,
    /// `metadata.deletionTimestamp`
    pub since: String,
}

/// One deletion.
#[derive(Debug)]
pub struct ObservedDeletion<'a> {
    /// Resource of the deleted object.
    pub resource: &'a ResourceDefinition,
    /// Its namespace; empty at cluster scope.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its UID.
    pub uid: &'a str,
    /// The version that was deleted.
    pub resource_version: u64,
    /// The user.
    pub user: &'a UserInfo,
    /// The program, as far as the request names it.
    pub program: &'a str,
    /// True if it was asked for as an eviction.
    pub is_eviction: bool,
    /// The policy that was asked for.
    pub policy: Option<PropagationPolicy>,
    /// The definition, where no request deletes the object.
    pub definition: Option<&'a TerminatingDefinition>,
    /// Why it was not deleted, if it was not.
    pub failure: Option<&'a ApiError>,
}

/// Observes the deletions of a server: each object once, when it is marked, or removed without having been marked. Called by
/// the request itself, so it must not block.
pub trait DeletionObserver: std::fmt::Debug + Send + Sync {
    /// An object was deleted, or could not be with its definition.
    fn observed(&self, deletion: &ObservedDeletion<'_>);
}
