//! Pages of a list without limit: a server that sends the list while reading it holds one page at a time.

use std::sync::Arc;

use super::filter::Filter;
use crate::api::{ListPages, ListRest, ListedCollection, Object};
use crate::catalog::forms;
use crate::conversion::{Converter, NO_HURRY};
use crate::error::ApiError;
use crate::metadata::object::TypeMeta;
use crate::persist;
use crate::resource::ResourceDefinition;
use crate::storage::{Blocking, Hold, Key, RangeAnswer, RangeOptions, Revision, Storage};

/// Number of objects on the first page.
pub(super) const FIRST_PAGE: usize = 1000;
/// Approximate stored size of a further page, in bytes.
const PAGE_BYTES: usize = 4 << 20;
/// Minimum and maximum number of objects read at once.
const PAGE_LIMITS: (usize, usize) = (16, 4096);
/// Number of matches at which a page of a list with selectors ends early.
pub(super) const ENOUGH_MATCHES: usize = 256;

/// Position of the next page.
#[derive(Clone)]
pub(super) struct Pages {
    pub(super) converter: Arc<Converter>,
    pub(super) storage: Arc<dyn Storage>,
    pub(super) resource: Arc<ResourceDefinition>,
    pub(super) type_meta: Arc<TypeMeta>,
    pub(super) prefix: Arc<str>,
    /// Namespace; empty for all.
    pub(super) namespace: Arc<str>,
    /// True if the list begins with the first object of its collection.
    pub(super) is_from_start: bool,
    pub(super) filter: Filter,
    /// Version of all pages.
    pub(super) at: Revision,
    /// Last key of the previous page; `None` at the end.
    pub(super) after: Option<Key>,
    /// Number of keys to read.
    pub(super) limit: usize,
    /// Keeps the version readable in the store.
    pub(super) hold: Option<Hold>,
}

impl Pages {
    /// Returns the objects that follow a page; `None` if there are none.
    pub(super) fn after(mut self, answer: &RangeAnswer) -> Option<ListRest> {
        self.hold = self.storage.hold(answer.revision);
        self.follow(answer);
        self.after.is_some().then(|| ListRest::new(Box::new(self)))
    }

    fn follow(&mut self, answer: &RangeAnswer) {
        self.at = answer.revision;
        let last = answer.items.last().map(|item| Arc::clone(&item.key));
        self.after = last.filter(|_| answer.more);
        let bytes: usize = answer.items.iter().map(|item| item.value.len()).sum();
        let of_one = (bytes / answer.items.len().max(1)).max(1);
        self.limit = (PAGE_BYTES / of_one).clamp(PAGE_LIMITS.0, PAGE_LIMITS.1);
        if self.after.is_none() {
            self.hold = None;
        }
    }

    fn objects(&self, answer: RangeAnswer) -> Result<Vec<Arc<Object>>, ApiError> {
        persist::refuse_unreadable(&self.resource, &answer.items)?;
        let stored = answer.items.into_iter().map(|item| (item.value, item.mod_revision));
        let read = self.converter.present_all(&self.resource, &self.type_meta, stored, NO_HURRY)?;
        let mut objects = Vec::with_capacity(read.len());
        for object in read {
            if self.filter.is_empty() {
                objects.push(Arc::new(object));
            } else if self.filter.matches(&object)? {
                objects.push(Arc::new(object.forgetting_what_was_decoded()));
            }
        }
        Ok(objects)
    }
}

impl ListPages for Pages {
    fn read(&mut self) -> Result<Vec<Arc<Object>>, ApiError> {
        let mut objects = Vec::new();
        while objects.len() < ENOUGH_MATCHES
            && let Some(after) = self.after.take()
        {
            let range =
                RangeOptions { at: Some(self.at), after: Some(after), limit: self.limit, skips_count: true };
            let answer = self.storage.range(&self.prefix, &range).map_err(persist::storage_error)?;
            self.follow(&answer);
            objects.append(&mut self.objects(answer)?);
        }
        Ok(objects)
    }

    fn blocks(&self) -> bool {
        matches!(self.storage.blocks(), Blocking::OnDisk | Blocking::Always)
    }

    fn again(&self) -> Box<dyn ListPages> {
        Box::new(self.clone())
    }

    fn collection(&self) -> Option<ListedCollection> {
        let is_whole = self.is_from_start && self.filter.is_empty() && forms::is_as_stored(&self.resource);
        is_whole.then(|| ListedCollection {
            prefix: persist::resource_prefix(&self.resource),
            namespace: (*self.namespace).to_owned(),
            revision: self.at,
        })
    }
}
