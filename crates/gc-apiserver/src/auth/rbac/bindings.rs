//! Index of bindings by name and by subject, so that a decision examines only the bindings of its user.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gc_registry::api::UserInfo;

use super::{Binding, SERVICE_ACCOUNT_PREFIX, Subject};

/// Names of bindings by the name of their subject.
type Names = BTreeMap<Box<str>, BTreeSet<Arc<str>>>;

/// The bindings of one namespace, or those of the whole cluster.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Bindings {
    by_name: BTreeMap<Arc<str>, Arc<Binding>>,
    /// By user name; service accounts are users, too.
    of_users: Names,
    of_groups: Names,
}

impl Bindings {
    /// Adds a binding, or replaces the one of its name.
    pub(super) fn insert(&mut self, name: &str, binding: Arc<Binding>) {
        self.remove(name);
        let name: Arc<str> = name.into();
        for subject in &binding.subjects {
            let (names, subject) = self.names_of(subject);
            names.entry(subject).or_default().insert(Arc::clone(&name));
        }
        self.by_name.insert(name, binding);
    }

    /// Removes the binding with a name.
    pub(super) fn remove(&mut self, name: &str) {
        let Some(binding) = self.by_name.remove(name) else { return };
        for subject in &binding.subjects {
            let (names, subject) = self.names_of(subject);
            if let Some(bound) = names.get_mut(&subject) {
                bound.remove(name);
                if bound.is_empty() {
                    names.remove(&subject);
                }
            }
        }
    }

    fn names_of(&mut self, subject: &Subject) -> (&mut Names, Box<str>) {
        match subject {
            Subject::User(name) => (&mut self.of_users, name.as_str().into()),
            Subject::Group(name) => (&mut self.of_groups, name.as_str().into()),
            Subject::ServiceAccount(namespace, name) => {
                (&mut self.of_users, format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}").into())
            }
        }
    }

    /// Reports whether there are no bindings.
    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Returns all bindings with their names.
    #[cfg(test)]
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &Binding)> {
        self.by_name.iter().map(|(name, binding)| (&**name, &**binding))
    }

    /// Returns the bindings that apply to a user, by name, each with the first subject that matches the user.
    pub(super) fn of<'a>(
        &'a self,
        user: &'a UserInfo,
    ) -> impl Iterator<Item = (&'a str, &'a Binding, &'a Subject)> {
        self.candidates(user).filter_map(|name| {
            let binding: &Binding = self.by_name.get(name)?;
            Some((name, binding, binding.applies_to(user)?))
        })
    }

    /// Returns the names of the bindings that may apply to a user, in order and each once.
    pub(super) fn candidates<'a>(&'a self, user: &'a UserInfo) -> impl Iterator<Item = &'a str> {
        let groups = user.groups.iter().filter_map(|group| self.of_groups.get(group.as_str()));
        let bound = self.of_users.get(user.name.as_str()).into_iter().chain(groups);
        // Merged lazily, because the first ones often decide.
        let mut sorted: Vec<_> = bound.map(|names| names.iter().peekable()).collect();
        std::iter::from_fn(move || {
            let first = sorted.iter_mut().filter_map(|names| names.peek().copied()).min()?;
            for names in &mut sorted {
                names.next_if_eq(&first);
            }
            Some(&**first)
        })
    }
}
