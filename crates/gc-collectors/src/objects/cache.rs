//! The objects of one kind.

use std::collections::{BTreeMap, BTreeSet};

use gc_types::ObjectKey;

use super::kind::Kind;
use super::meta::HasMeta;

/// Objects of one kind as a watch has delivered them. A new list removes those that it no longer contains.
#[derive(Debug)]
pub(crate) struct Cache<F> {
    kind: Kind,
    objects: BTreeMap<ObjectKey, (u64, F)>,
    round: u64,
    synced: bool,
}

impl<F: HasMeta> Cache<F> {
    pub(crate) fn new(kind: Kind) -> Self {
        Self { kind, objects: BTreeMap::new(), round: 0, synced: false }
    }

    /// Stores facts, and returns those that they replace.
    pub(crate) fn put(&mut self, facts: F) -> (ObjectKey, Option<F>) {
        let key = self.kind.key(&facts.meta().namespace, &facts.meta().name);
        let before = self.objects.insert(key.clone(), (self.round, facts));
        (key, before.map(|(_, facts)| facts))
    }

    pub(crate) fn remove(&mut self, key: &ObjectKey) -> Option<F> {
        self.objects.remove(key).map(|(_, facts)| facts)
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&F> {
        self.objects.get(key).map(|(_, facts)| facts)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.objects.keys()
    }

    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(crate) fn list_started(&mut self) {
        self.round += 1;
    }

    /// Completes a list, and returns the objects that it did not contain.
    pub(crate) fn list_ended(&mut self) -> Vec<ObjectKey> {
        self.synced = true;
        let round = self.round;
        self.objects.iter().filter(|(_, (seen, _))| *seen != round).map(|(key, _)| key.clone()).collect()
    }

    /// Completes a list, and removes the objects that it did not contain.
    pub(crate) fn forget_unlisted(&mut self) {
        self.synced = true;
        let round = self.round;
        self.objects.retain(|_, (seen, _)| *seen == round);
    }

    pub(crate) fn synced(&self) -> bool {
        self.synced
    }
}

/// Removes a key from an index, and the entry if that becomes empty.
pub(crate) fn drop_from<K: Ord>(index: &mut BTreeMap<K, BTreeSet<ObjectKey>>, of: &K, key: &ObjectKey) {
    if let Some(keys) = index.get_mut(of) {
        keys.remove(key);
        if keys.is_empty() {
            index.remove(of);
        }
    }
}
