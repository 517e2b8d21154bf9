//! Aggregated API servers: groups and versions whose APIService names a Service are served by the server behind that Service.
//!
//! A [`Table`] records which server serves which group and version. It is read from the stored APIServices (`follow::aggregated`)
//! and holds the result of each server's last check: its availability, which becomes the condition of the APIService, and its
//! resources, which become part of discovery. Requests are authenticated and authorized here and then forwarded with the user in
//! their headers (`serve::forward`), under a certificate of the front-proxy authority.

mod table;

use std::sync::{Arc, PoisonError, RwLock};

pub(crate) use table::{ApiService, Availability, Key, Resource, Table, Version};

use crate::transport::dial::Identity;

/// The aggregated servers known at this moment.
pub(crate) struct Aggregator {
    table: RwLock<Arc<Table>>,
    /// Identity that this server presents to aggregated servers.
    identity: Identity,
}

impl Aggregator {
    /// Creates an aggregator without servers.
    pub(crate) fn new(identity: Identity) -> Self {
        Self { table: RwLock::default(), identity }
    }

    /// Returns the table of groups and versions that other servers serve.
    pub(crate) fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the identity that this server presents to aggregated servers.
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Replaces the table with the result of `change`.
    pub(crate) fn change(&self, change: impl FnOnce(&Table) -> Table) -> Arc<Table> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        *table = Arc::new(change(&table));
        Arc::clone(&table)
    }
}
