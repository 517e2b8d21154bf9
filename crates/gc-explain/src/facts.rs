//! Whole objects, gathered as answers turn out to need them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use gc_types::{Timestamp, Uid};
use serde_json::Value;

use crate::catalog::GroupResource;
use crate::object::Object;
use crate::unread::{Unread, UnreadPlace};

/// Maximum number of objects that one answer reads. Anything beyond is reported as not examined.
pub const MAX_NEEDS: usize = 5_000;

/// Something that an answer needs and that has not been gathered yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// One object; the namespace is empty at cluster scope.
    Object(GroupResource, String, String),
    /// All objects of a resource, in one namespace or, if that is empty, in all.
    List(GroupResource, String),
}

/// Knowledge about one object, or a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Knowledge<T> {
    /// Exists.
    Present(T),
    /// The server says that it does not exist.
    Absent,
    /// Could not be read, for this reason.
    Unreadable(Unread),
}

impl<T> Knowledge<T> {
    /// Returns the object or list, if it was read.
    pub const fn present(&self) -> Option<&T> {
        match self {
            Self::Present(value) => Some(value),
            Self::Absent | Self::Unreadable(_) => None,
        }
    }
}

type Place = (GroupResource, String, String);

/// Whole objects, by resource and name.
#[derive(Debug, Default)]
pub struct Facts {
    now: Timestamp,
    objects: BTreeMap<Place, Knowledge<Object>>,
    lists: BTreeMap<(GroupResource, String), Knowledge<Vec<Object>>>,
    needs: RefCell<BTreeSet<Need>>,
    asked: RefCell<usize>,
    /// Webhooks that do not answer, with the server's error about each.
    silent: BTreeMap<String, String>,
    /// Minor version of the server.
    minor: Option<u32>,
    /// Server errors for refused collector requests, by the UID of the object.
    refused: BTreeMap<Uid, String>,
}

impl Facts {
    /// Creates empty facts for an answer at this time.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        Self { now, ..Self::default() }
    }

    /// Returns the time of the answer.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Records the server's error about a webhook that does not answer.
    pub fn tell_silent_webhook(&mut self, webhook: String, message: String) {
        self.silent.insert(webhook, message);
    }

    /// Returns the server's error about a webhook that does not answer.
    #[must_use]
    pub fn silent_webhook(&self, webhook: &str) -> Option<&str> {
        self.silent.get(webhook).map(String::as_str)
    }

    /// Records the minor version of a server of Kubernetes 1.
    pub fn tell_server_minor(&mut self, minor: u32) {
        self.minor = Some(minor);
    }

    /// Minor version of the server, if it is known.
    #[must_use]
    pub const fn server_minor(&self) -> Option<u32> {
        self.minor
    }

    /// Records that the server refused a collector's request about this object, with its message.
    pub fn tell_refused(&mut self, uid: Uid, message: String) {
        self.refused.insert(uid, message);
    }

    /// Returns the server's reason for refusing the last collector request about an object, if it did.
    #[must_use]
    pub fn refused(&self, uid: &Uid) -> Option<&str> {
        self.refused.get(uid).map(String::as_str)
    }

    /// Takes the needs that were recorded since the last call and are still unknown.
    #[must_use]
    pub fn take_needs(&self) -> BTreeSet<Need> {
        self.needs.take()
    }

    fn need(&self, need: Need) {
        let mut needs = self.needs.borrow_mut();
        if *self.asked.borrow() < MAX_NEEDS && needs.insert(need) {
            *self.asked.borrow_mut() += 1;
        }
    }

    /// Reports whether needs have been recorded since [`Self::take_needs`] that are still unknown.
    #[must_use]
    pub fn has_needs(&self) -> bool {
        !self.needs.borrow().is_empty()
    }

    /// Stops gathering: the next answer is final and uses what is known.
    pub fn give_up(&mut self) {
        self.needs.take();
        *self.asked.borrow_mut() = MAX_NEEDS;
    }

    /// Reports whether more was needed than [`MAX_NEEDS`] allows.
    #[must_use]
    pub fn is_full(&self) -> bool {
        *self.asked.borrow() >= MAX_NEEDS
    }

    /// Returns one object, or records it as needed and returns `None` if it has not been gathered yet.
    pub fn object(
        &self,
        resource: &GroupResource,
        namespace: &str,
        name: &str,
    ) -> Option<&Knowledge<Object>> {
        let place = (resource.clone(), namespace.to_owned(), name.to_owned());
        if let Some(known) = self.objects.get(&place) {
            return Some(known);
        }
        for scope in [namespace, ""] {
            if let Some(Knowledge::Present(_)) = self.lists.get(&(resource.clone(), scope.to_owned())) {
                return Some(&Knowledge::Absent);
            }
        }
        let (resource, namespace, name) = place;
        self.need(Need::Object(resource, namespace, name));
        None
    }

    /// Returns one object if it was read, and records it as needed if it has not been gathered yet.
    pub fn present(&self, resource: &GroupResource, namespace: &str, name: &str) -> Option<&Object> {
        self.object(resource, namespace, name).and_then(Knowledge::present)
    }

    /// Returns all objects of a resource, in one namespace or, if that is empty, in all. If they have not been gathered yet,
    /// records the list as needed and returns `None`.
    pub fn list(&self, resource: &GroupResource, namespace: &str) -> Option<&Knowledge<Vec<Object>>> {
        let key = (resource.clone(), namespace.to_owned());
        let known = self.lists.get(&key);
        if known.is_none() {
            self.need(Need::List(key.0, key.1));
        }
        known
    }

    /// Returns the same list as [`Self::list`], empty if it could not be read or has not been gathered yet.
    pub fn all(&self, resource: &GroupResource, namespace: &str) -> &[Object] {
        self.list(resource, namespace).and_then(Knowledge::present).map_or(&[], Vec::as_slice)
    }

    /// Records an object that was read, or could not be.
    pub fn tell_object(
        &mut self,
        resource: GroupResource,
        namespace: &str,
        name: &str,
        known: Knowledge<Value>,
    ) {
        let known = match known {
            Knowledge::Present(value) => Knowledge::Present(Object::new(value)),
            Knowledge::Absent => Knowledge::Absent,
            Knowledge::Unreadable(why) => Knowledge::Unreadable(why),
        };
        self.objects.insert((resource, namespace.to_owned(), name.to_owned()), known);
    }

    /// Records a list that was read, or could not be.
    pub fn tell_list(&mut self, resource: GroupResource, namespace: &str, known: Knowledge<Vec<Value>>) {
        let known = match known {
            Knowledge::Present(items) => {
                let items: Vec<Object> = items.into_iter().map(Object::new).collect();
                for item in &items {
                    let place = (resource.clone(), item.namespace().to_owned(), item.name().to_owned());
                    self.objects.insert(place, Knowledge::Present(item.clone()));
                }
                Knowledge::Present(items)
            }
            Knowledge::Absent => Knowledge::Absent,
            Knowledge::Unreadable(why) => Knowledge::Unreadable(why),
        };
        self.lists.insert((resource, namespace.to_owned()), known);
    }

    /// Returns the objects that are being deleted.
    pub fn terminating(&self) -> impl Iterator<Item = (&GroupResource, &Object)> {
        let present =
            self.objects.iter().filter_map(|((resource, ..), known)| Some((resource, known.present()?)));
        present.filter(|(_, object)| object.is_terminating())
    }

    /// Returns the places that could not be read, in order.
    #[must_use]
    pub fn unread(&self) -> Vec<UnreadPlace> {
        let place = |(resource, namespace, name): (&GroupResource, &str, &str), why: &Unread| UnreadPlace {
            resource: resource.to_string(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            code: why.code,
            message: why.message.clone(),
        };
        let objects = self.objects.iter().filter_map(|((resource, namespace, name), known)| match known {
            Knowledge::Unreadable(why) => Some(place((resource, namespace, name), why)),
            Knowledge::Present(_) | Knowledge::Absent => None,
        });
        let lists = self.lists.iter().filter_map(|((resource, namespace), known)| match known {
            Knowledge::Unreadable(why) => Some(place((resource, namespace, ""), why)),
            Knowledge::Present(_) | Knowledge::Absent => None,
        });
        let unread: BTreeSet<UnreadPlace> = objects.chain(lists).collect();
        unread.into_iter().collect()
    }

    /// Describes the same places in words.
    #[must_use]
    pub fn unseen(&self) -> Vec<String> {
        self.unread().iter().map(ToString::to_string).collect()
    }
}
