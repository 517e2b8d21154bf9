//! Requests and answers of a registry.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use crate::error::ApiError;
use crate::kubernetes::KubernetesVersion;
pub use crate::metadata::object::Object;
use crate::resource::ResourceDefinition;
pub use crate::schema::YAML_PROBLEMS;
use crate::storage::Revision;
pub use crate::user::UserInfo;

/// A question to the authorizer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes<'a> {
    /// Verb, such as `delete`.
    pub verb: &'a str,
    /// Group.
    pub group: &'a str,
    /// Version.
    pub version: &'a str,
    /// Plural name.
    pub resource: &'a str,
    /// Subresource or empty.
    pub subresource: &'a str,
    /// Namespace or empty.
    pub namespace: &'a str,
    /// Name or empty.
    pub name: &'a str,
}

/// Decides whether a user may do something. Implemented by the server (RBAC), and consulted by admission.
pub trait Authorizer: Send + Sync {
    /// Reports whether the action is allowed.
    fn allows(&self, user: &UserInfo, attributes: &Attributes<'_>) -> bool;

    /// Refuses a write because of its content, such as a role that grants more than its writer holds. Receives exactly the versions
    /// that the write replaces and stores.
    fn admit(&self, _user: &UserInfo, _write: &Write<'_>) -> Result<(), ApiError> {
        Ok(())
    }
}

/// Reads a stored object by group, resource, namespace and name.
pub type ReadStored<'a> = dyn Fn(&str, &str, &str, &str) -> Result<Option<Value>, ApiError> + 'a;

/// A write that is about to be stored.
pub struct Write<'a> {
    /// Target of the request.
    pub target: &'a RequestTarget,
    /// Object to store.
    pub new: &'a Value,
    /// The stored version that it replaces; `None` for a create.
    pub old: Option<&'a Value>,
    /// Reads other objects from the store.
    pub read: &'a ReadStored<'a>,
}

/// Context of a request that comes from outside pure code.
pub struct RequestContext<'a> {
    /// Time of the request, used for all timestamps that it writes.
    pub now: jiff::Timestamp,
    /// The user.
    pub user: &'a UserInfo,
    /// True if the server itself is the caller. User-configured admission does not see such calls, because the server's own objects
    /// must exist before anything outside can answer. No user name has this effect.
    pub is_server: bool,
    /// Returns the remaining time of the request, which is zero once its client has disconnected. Loops check it between
    /// iterations, and outside calls are limited to it.
    pub time_left: &'a (dyn Fn() -> Duration + Send + Sync),
    /// Random bits, for UIDs and generated names.
    pub entropy: &'a (dyn Fn() -> u128 + Send + Sync),
    /// Authorizer for admission.
    pub authorizer: &'a dyn Authorizer,
    /// Default of `fieldManager` (from the user agent, up to the first `/`).
    pub user_agent_manager: &'a str,
}

/// Target of a request.
#[derive(Clone, Debug)]
pub struct RequestTarget {
    /// The resource.
    pub resource: Arc<ResourceDefinition>,
    /// Namespace; empty for cluster scope or all namespaces.
    pub namespace: String,
    /// Name; empty for collections.
    pub name: String,
    /// Subresource; empty for none.
    pub subresource: String,
}

impl RequestTarget {
    /// Returns the target of all objects of a resource, in all namespaces.
    #[must_use]
    pub fn collection(resource: &Arc<ResourceDefinition>) -> Self {
        Self {
            resource: Arc::clone(resource),
            namespace: String::new(),
            name: String::new(),
            subresource: String::new(),
        }
    }
}

/// `resourceVersionMatch`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionMatch {
    /// `Exact`
    Exact,
    /// `NotOlderThan`
    NotOlderThan,
}

/// Options of list, watch and deletecollection; texts if the registry validates them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// `labelSelector`
    pub label_selector: String,
    /// `fieldSelector`
    pub field_selector: String,
    /// `limit`; 0 means no limit.
    pub limit: i64,
    /// `continue`
    pub continue_token: String,
    /// `resourceVersion`; `None` and `""` are equivalent for lists.
    pub resource_version: String,
    /// `resourceVersionMatch`
    pub resource_version_match: Option<VersionMatch>,
    /// `allowWatchBookmarks`
    pub allow_watch_bookmarks: bool,
    /// `sendInitialEvents`
    pub send_initial_events: Option<bool>,
    /// `timeoutSeconds`
    pub timeout_seconds: Option<i64>,
    /// True if the caller reads [`ObjectList::rest`]; otherwise, a list without limit is complete.
    pub in_pages: bool,
}

/// `fieldValidation`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Unknown and duplicate fields are dropped silently.
    Ignore,
    /// Unknown and duplicate fields are dropped with a warning (the default).
    #[default]
    Warn,
    /// Unknown and duplicate fields are refused.
    Strict,
}

/// Options common to writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// `dryRun=All`
    pub dry_run: bool,
    /// `fieldManager`
    pub field_manager: String,
    /// `fieldValidation`, if it was given.
    pub field_validation: Option<FieldValidation>,
    /// `force`, for apply only.
    pub force: Option<bool>,
}

impl WriteOptions {
    /// Returns the handling of unknown and duplicate fields.
    #[must_use]
    pub fn validation(&self) -> FieldValidation {
        self.field_validation.unwrap_or_default()
    }
}

/// Kinds of patch, by content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// `application/json-patch+json`
    Json,
    /// `application/merge-patch+json`
    Merge,
    /// `application/strategic-merge-patch+json`
    StrategicMerge,
    /// `application/apply-patch+yaml`
    Apply,
}

/// Options of a deletion. `propagationPolicy` is as sent, and validated by the registry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// `gracePeriodSeconds`
    pub grace_period_seconds: Option<i64>,
    /// `preconditions.uid`
    pub precondition_uid: Option<String>,
    /// `preconditions.resourceVersion`
    pub precondition_resource_version: Option<String>,
    /// `orphanDependents`
    pub orphan_dependents: Option<bool>,
    /// `propagationPolicy`, unvalidated.
    pub propagation_policy: Option<String>,
    /// `dryRun`, unvalidated.
    pub dry_run: Vec<String>,
    /// `ignoreStoreReadErrorWithClusterBreakingPotential`, which 1.36 ignores.
    pub ignore_store_read_error: bool,
}

/// Delete option that permits the deletion of an unreadable stored object (KEP-3926).
pub const UNSAFE_DELETION: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

impl DeleteOptions {
    /// Reports whether the deletion is only meant for an unreadable object. The feature is on since 1.37.
    pub(crate) fn is_unsafe(&self) -> bool {
        self.ignore_store_read_error && KubernetesVersion::chosen() >= KubernetesVersion::V1_37
    }
}

/// A request body: the decoded value, and the duplicate keys found by strict decoding, each described as kube-apiserver would, such
/// as `duplicate field "data.a"`; for YAML, a single text describes all of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestBody {
    /// The document.
    pub value: Value,
    /// Duplicate fields.
    pub duplicates: Vec<String>,
    /// The document as sent, if it was JSON: the order of its fields determines the order of errors.
    pub text: Bytes,
}

impl From<Value> for RequestBody {
    fn from(value: Value) -> Self {
        Self { value, ..Self::default() }
    }
}

/// Returns warnings for the problems found by strict decoding, with those of YAML separated.
pub(crate) fn decoding_warnings(problems: Vec<String>) -> Vec<String> {
    let lines = |problem: String| match problem.strip_prefix(YAML_PROBLEMS) {
        Some(lines) => lines.split('\n').map(|line| line.trim().to_owned()).collect(),
        None => vec![problem],
    };
    problems.into_iter().flat_map(lines).collect()
}

/// Any operation except watch.
#[derive(Clone, Debug)]
pub enum Operation {
    /// GET of one object.
    Get {
        /// `resourceVersion`
        resource_version: String,
    },
    /// GET of a collection.
    List(ListOptions),
    /// POST.
    Create(RequestBody, WriteOptions),
    /// PUT.
    Update(RequestBody, WriteOptions),
    /// PATCH.
    Patch(PatchType, RequestBody, WriteOptions),
    /// DELETE of one object.
    Delete(DeleteOptions),
    /// DELETE of a collection.
    DeleteCollection(ListOptions, DeleteOptions),
}

/// Answer to a successful request.
#[derive(Clone, Debug)]
pub struct Response {
    /// HTTP status code.
    pub code: u16,
    /// The body.
    pub body: ResponseBody,
    /// Texts of the Warning headers.
    pub warnings: Vec<String>,
}

/// Body of an answer.
#[derive(Clone, Debug)]
pub enum ResponseBody {
    /// One object.
    Object(Arc<Object>),
    /// A list.
    List(ObjectList),
    /// A Status of success.
    Status(Value),
}

/// A list as returned by the registry; the server writes it in the requested representation.
#[derive(Clone, Debug)]
pub struct ObjectList {
    /// The objects, in their stored form where possible.
    pub items: Vec<Arc<Object>>,
    /// `metadata.resourceVersion`
    pub resource_version: String,
    /// `metadata.continue`
    pub continue_token: String,
    /// `metadata.remainingItemCount`
    pub remaining_item_count: Option<u64>,
    /// Further objects of the list that have not been read yet.
    pub rest: Option<ListRest>,
}

/// Objects of a list that are read while earlier ones are sent.
pub trait ListPages: Send {
    /// Reads further objects, all at the version of the list; empty at the end.
    fn read(&mut self) -> Result<Vec<Arc<Object>>, ApiError>;

    /// Reports whether [`Self::read`] may block.
    fn blocks(&self) -> bool;

    /// Returns a second reader of the same objects.
    fn again(&self) -> Box<dyn ListPages>;

    /// Returns the collection of which the list has all objects as they are stored; `None` if it has not.
    fn collection(&self) -> Option<ListedCollection> {
        None
    }
}

/// A collection that is listed whole: every object, in the form in which it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedCollection {
    /// Prefix of the keys of the resource.
    pub prefix: String,
    /// Namespace; empty for all.
    pub namespace: String,
    /// Version of the list.
    pub revision: Revision,
}

/// Objects of a list beyond the first ones.
pub struct ListRest(Box<dyn ListPages>);

impl ListRest {
    /// Wraps the pages of a list.
    #[must_use]
    pub fn new(pages: Box<dyn ListPages>) -> Self {
        Self(pages)
    }

    /// Reads further objects; empty at the end. Fails with a 410 if the version of the list is gone.
    ///
    /// # Errors
    /// Fails with errors of the store and of the conversion.
    pub fn read(&mut self) -> Result<Vec<Arc<Object>>, ApiError> {
        self.0.read()
    }

    /// Reports whether [`Self::read`] may block.
    #[must_use]
    pub fn blocks(&self) -> bool {
        self.0.blocks()
    }

    /// Returns the collection of which the list has all objects as they are stored; `None` if it has not.
    #[must_use]
    pub fn collection(&self) -> Option<ListedCollection> {
        self.0.collection()
    }
}

impl Clone for ListRest {
    fn clone(&self) -> Self {
        Self(self.0.again())
    }
}

impl std::fmt::Debug for ListRest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListRest").finish_non_exhaustive()
    }
}

/// One event of an API watch. All watchers of a change share its objects.
#[derive(Clone, Debug)]
pub enum WatchEvent {
    /// ADDED
    Added(Arc<Object>),
    /// MODIFIED
    Modified(Arc<Object>),
    /// DELETED
    Deleted(Arc<Object>),
    /// BOOKMARK at a version; with `initial_events_end`, it has the corresponding annotation.
    Bookmark {
        /// Version.
        resource_version: String,
        /// End of the streamed initial list.
        initial_events_end: bool,
    },
    /// ERROR: the last event of the watch.
    Error(ApiError),
}
