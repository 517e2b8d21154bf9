//! Whole objects, gathered as answers turn out to need them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use gc_types::{Timestamp, Uid};
use serde_json::Value;

use crate::catalog::GroupResource;
use crate::object::Object;
use crate::unread::{Unread, UnreadPlace};

/// Objects that one answer asks for at most. What exceeds this is reported as not examined.
pub const MAX_NEEDS: usize = 5_000;

/// Something that an answer needs and that was not gathered yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// One object; the namespace is empty at cluster scope.
    Object(GroupResource, String, String),
    /// All objects of a resource, in one namespace or (with an empty one) in all.
    List(GroupResource, String),
}

/// Knowledge about one object, or a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Knowledge<T> {
    /// It exists.
    Present(T),
    /// The server says that it does not exist.
    Absent,
    /// It could not be read: why.
    Unreadable(Unread),
}

impl<T> Knowledge<T> {
    /// The object or list, if it was read.
    pub const fn present(&self) -> Option<&T> {
        match self {
            Self::Present(value) => Some(value),
            Self::Absent | Self::Unreadable(_) => None,
        }
    }
}

type Place = (GroupResource, String, String);

/// Whole objects, by where they are.
#[derive(Debug, Default)]
pub struct Facts {
    now: Timestamp,
    objects: BTreeMap<Place, Knowledge<Object>>,
    lists: BTreeMap<(GroupResource, String), Knowledge<Vec<Object>>>,
    needs: RefCell<BTreeSet<Need>>,
    asked: RefCell<usize>,
    /// Webhooks that do not answer, with what the server says of them.
    silent: BTreeMap<String, String>,
    /// Minor version of the server.
    minor: Option<u32>,
    /// Answers of the server that refused requests of a collector, by the UID of the object.
    refused: BTreeMap<Uid, String>,
}

impl Facts {
    /// Nothing is known yet, at this time.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        Self { now, ..Self::default() }
    }

    /// The time of the answer.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// A webhook does not answer, as the server says.
    pub fn tell_silent_webhook(&mut self, webhook: String, message: String) {
        self.silent.insert(webhook, message);
    }

    /// Returns the server's error about a webhook that does not answer.
    #[must_use]
    pub fn silent_webhook(&self, webhook: &str) -> Option<&str> {
        self.silent.get(webhook).map(String::as_str)
    }

    /// The server is Kubernetes 1 of this minor version.
    pub fn tell_server_minor(&mut self, minor: u32) {
        self.minor = Some(minor);
    }

    /// Minor version of the server, if it is known.
    #[must_use]
    pub const fn server_minor(&self) -> Option<u32> {
        self.minor
    }

    /// A request of a collector about this object was refused, and the server said why.
    pub fn tell_refused(&mut self, uid: Uid, message: String) {
        self.refused.insert(uid, message);
    }

    /// Why the last request of a collector about an object was refused, if it was.
    #[must_use]
    pub fn refused(&self, uid: &Uid) -> Option<&str> {
        self.refused.get(uid).map(String::as_str)
    }

    /// Takes the facts that were requested since the last call and are unknown.
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

    /// Reports whether something was asked for since [`Self::take_needs`] that is not known.
    #[must_use]
    pub fn has_needs(&self) -> bool {
        !self.needs.borrow().is_empty()
    }

    /// Nothing more will be read: the next answer is the last one, from what is known.
    pub fn give_up(&mut self) {
        self.needs.take();
        *self.asked.borrow_mut() = MAX_NEEDS;
    }

    /// Reports whether something was needed that exceeds [`MAX_NEEDS`].
    #[must_use]
    pub fn is_full(&self) -> bool {
        *self.asked.borrow() >= MAX_NEEDS
    }

    /// One object. `None`: not gathered yet, and needed from now on.
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

    /// One object, if it was read. What was not gathered yet is needed from now on.
    pub fn present(&self, resource: &GroupResource, namespace: &str, name: &str) -> Option<&Object> {
        self.object(resource, namespace, name).and_then(Knowledge::present)
    }

    /// All objects of a resource, in one namespace or (with an empty one) in all. `None`: not gathered yet, and needed
    /// from now on.
    pub fn list(&self, resource: &GroupResource, namespace: &str) -> Option<&Knowledge<Vec<Object>>> {
        let key = (resource.clone(), namespace.to_owned());
        let known = self.lists.get(&key);
        if known.is_none() {
            self.need(Need::List(key.0, key.1));
        }
        known
    }

    /// The same, empty where it could not be read or was not gathered yet.
    pub fn all(&self, resource: &GroupResource, namespace: &str) -> &[Object] {
        self.list(resource, namespace).and_then(Knowledge::present).map_or(&[], Vec::as_slice)
    }

    /// An object was read, or could not be.
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

    /// A list was read, or could not be.
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

    /// The objects that are being deleted.
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

    /// The same in words.
    #[must_use]
    pub fn unseen(&self) -> Vec<String> {
        self.unread().iter().map(ToString::to_string).collect()
    }
}
