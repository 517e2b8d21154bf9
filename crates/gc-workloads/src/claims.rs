//! Adoption and release: which of the objects that match a selector belong to an owner.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::object::Object;
use crate::plan::{Plan, Request};
use crate::selector;
use crate::store::Store;

/// Objects that belong to an owner.
#[derive(Debug, Default)]
pub(crate) struct ClaimedObjects {
    /// Objects that already belong to it.
    pub(crate) mine: Vec<Arc<Object>>,
    /// Objects to adopt.
    pub(crate) adopted: Vec<Arc<Object>>,
    /// Objects to release.
    pub(crate) released: Vec<Arc<Object>>,
}

impl ClaimedObjects {
    /// Sorts the objects of a kind in the owner's namespace. `admits` adds conditions to the selector.
    #[must_use]
    pub(crate) fn of(store: &Store, owner: &Object, kind: Kind, selects: impl Fn(&Object) -> bool) -> Self {
        let mut claimed = Self::default();
        for object in store.controlled_by(&owner.uid, kind) {
            if selects(object) {
                claimed.mine.push(Arc::clone(object));
            } else if !owner.deleting {
                claimed.released.push(Arc::clone(object));
            }
        }
        if !owner.deleting {
            let orphans = store.orphans(kind, owner.namespace());
            let orphans = orphans.filter(|object| !object.deleting && selects(object));
            claimed.adopted.extend(orphans.cloned());
        }
        claimed
    }

    /// Returns the objects that match the owner's `spec.selector`.
    #[must_use]
    pub(crate) fn by_selector(store: &Store, owner: &Object, kind: Kind) -> Self {
        let wanted = &owner.spec()["selector"];
        Self::of(store, owner, kind, |object| selector::matches(wanted, object.labels()))
    }

    /// Returns the requests that must be sent first, if any. The owner is read from the server before anything is adopted: it may
    /// have been deleted with its dependents orphaned, which the watch may not have shown yet.
    #[must_use]
    pub(crate) fn settle(&self, owner: &Object) -> Option<Plan> {
        if self.adopted.is_empty() && self.released.is_empty() {
            return None;
        }
        let mut plan = Plan::default();
        plan.together(self.released.iter().map(|object| release(object, owner)).collect());
        if !self.adopted.is_empty() {
            plan.then(Request::confirm(owner, "adopt"));
            plan.together(self.adopted.iter().map(|object| adopt(object, owner)).collect());
        }
        Some(plan)
    }
}

fn adopt(object: &Object, owner: &Object) -> Request {
    let patch = json!({"metadata": {
        "ownerReferences": [owner.controller_reference()], "uid": &*object.uid,
    }});
    Request::patch(&object.key, patch, "adopt")
}

fn release(object: &Object, owner: &Object) -> Request {
    let patch: Value = json!({"metadata": {
        "ownerReferences": [{"$patch": "delete", "uid": &*owner.uid}], "uid": &*object.uid,
    }});
    Request::patch(&object.key, patch, "release")
}
