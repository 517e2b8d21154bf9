//! The registry: requests in, answers out.

use std::sync::Arc;
use std::task::{Context, Poll};

use crate::api::{ListOptions, Operation, RequestContext, RequestTarget, Response};
use crate::catalog::Catalog;
use crate::error::ApiError;
use crate::storage::{Blocking, Storage, StorageError};
use crate::watch::Watch;

/// What an operator may choose.
#[derive(Clone, Debug)]
pub struct Config {
    /// `--enable-garbage-collector`: whether GC finalizers are set (spec `api-deletion.md`, 3.3).
    pub garbage_collector: bool,
    /// Whether admission `OwnerReferencesPermissionEnforcement` is on.
    pub owner_references_permission_enforcement: bool,
    /// How long events are kept (`--event-ttl`), in seconds.
    pub event_ttl_seconds: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            garbage_collector: true,
            owner_references_permission_enforcement: true,
            event_ttl_seconds: 3600,
        }
    }
}

/// What an API server does with objects, over a store. Shared by all threads of the server.
pub struct Registry {
    storage: Arc<dyn Storage>,
    config: Config,
    catalog: Arc<Catalog>,
}

impl Registry {
    /// Reads the definitions of custom resources and starts the one watch on the store that feeds all API
    /// watches (see [`Registry::poll_pump`]).
    pub fn open(storage: Arc<dyn Storage>, config: Config) -> Result<Self, ApiError> {
        Ok(Self { storage, config, catalog: Arc::default() })
    }

    /// Creates what every cluster has, where it is missing: the four namespaces, the bootstrap roles and
    /// their bindings, the system priority classes.
    pub fn bootstrap(&self, context: &RequestContext<'_>) -> Result<(), ApiError> {
        let _ = (context, &self.config);
        Ok(())
    }

    /// Where calls belong: see [`Storage::blocks`].
    #[must_use]
    pub fn blocks(&self) -> Blocking {
        self.storage.blocks()
    }

    /// Whether the store answers, for health checks.
    pub fn storage_health(&self) -> Result<(), StorageError> {
        self.storage.revision().map(|_| ())
    }

    /// Everything that is served at this moment.
    #[must_use]
    pub fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog)
    }

    /// Performs one request. Subresources, and POST to them, are told by `target.subresource`.
    pub fn handle(
        &self,
        target: &RequestTarget,
        operation: Operation,
        context: &RequestContext<'_>,
    ) -> Result<Response, ApiError> {
        let _ = (target, operation, context);
        Err(ApiError::internal("under construction"))
    }

    /// Starts a watch of a collection, or of one object if `target.name` is set.
    pub fn watch(&self, target: &RequestTarget, options: &ListOptions) -> Result<Watch, ApiError> {
        let _ = (target, options);
        Err(ApiError::internal("under construction"))
    }

    /// Moves changes from the store's watch to the API watches. The server polls this from one task for as
    /// long as it lives; `Ready` tells of a broken stream, which the next call replaces (API watches that
    /// missed something are closed).
    pub fn poll_pump(&self, context: &mut Context<'_>) -> Poll<StorageError> {
        let _ = context;
        Poll::Pending
    }

    /// Whether [`Registry::maintain`] has something to do now; else wakes the task when it has.
    pub fn poll_maintenance(&self, context: &mut Context<'_>) -> Poll<()> {
        let _ = context;
        Poll::Pending
    }

    /// The work of no request: removes instances of deleted definitions, expires events. Called when
    /// [`Registry::poll_maintenance`] says so, and every few seconds.
    pub fn maintain(&self, context: &RequestContext<'_>) -> Result<(), ApiError> {
        let _ = context;
        Ok(())
    }
}
