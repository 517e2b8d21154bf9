//! Collections as they are stored, for what is known about all of their objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Registry;
use crate::catalog::forms;
use crate::persist;
use crate::resource::ResourceDefinition;
use crate::storage::{Hold, RangeAnswer, RangeOptions, Revision, StorageError, WatchStream};

impl Registry {
    /// Returns the prefixes of the keys of built-in kinds, each with the resources whose objects are served as they are stored
    /// there.
    #[must_use]
    pub fn stored_collections(&self) -> BTreeMap<String, Vec<Arc<ResourceDefinition>>> {
        let catalog = self.catalog();
        let versions = catalog.groups().iter().flat_map(|group| &group.versions);
        let mut collections: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for resource in versions.flat_map(|version| &version.resources) {
            if resource.has_verb("list") && forms::is_as_stored(resource) {
                collections.entry(persist::resource_prefix(resource)).or_default().push(Arc::clone(resource));
            }
        }
        collections
    }

    /// Reads objects of a collection as they are stored.
    ///
    /// # Errors
    /// Those of [`Storage::range`](crate::storage::Storage::range).
    pub fn stored_objects(&self, prefix: &str, options: &RangeOptions) -> Result<RangeAnswer, StorageError> {
        self.storage.range(prefix, options)
    }

    /// Keeps a revision readable, as [`Storage::hold`](crate::storage::Storage::hold) does.
    #[must_use]
    pub fn hold(&self, revision: Revision) -> Option<Hold> {
        self.storage.hold(revision)
    }

    /// Follows all changes of the store after a revision.
    ///
    /// # Errors
    /// Those of [`Storage::watch`](crate::storage::Storage::watch).
    pub fn stored_changes(&self, after: Revision) -> Result<Box<dyn WatchStream>, StorageError> {
        self.storage.watch("/", after)
    }
}
