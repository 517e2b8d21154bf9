//! Aggregated API servers: groups and versions whose APIService names a Service are served by what is behind it.
//!
//! What is served by whom is a [`Table`], read from the stored APIServices (`follow::aggregated`), with what the last check of each
//! server found: whether it is available, which becomes the condition of the APIService, and which resources it has, which
//! become part of discovery. Requests are authenticated and authorized here, and sent on with the user in their headers
//! (`serve::forward`), under a certificate of the front-proxy authority.

mod table;

use std::sync::{Arc, PoisonError, RwLock};

pub(crate) use table::{ApiService, Availability, Key, Resource, Table, Version};

use crate::transport::dial::Identity;

/// The aggregated servers of this moment.
pub(crate) struct Aggregator {
    table: RwLock<Arc<Table>>,
    /// Identity that this server presents to aggregated servers.
    identity: Identity,
}

impl Aggregator {
    /// Without any.
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

    /// Replaces the table by what is made of it.
    pub(crate) fn change(&self, change: impl FnOnce(&Table) -> Table) -> Arc<Table> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        *table = Arc::new(change(&table));
        Arc::clone(&table)
    }
}
