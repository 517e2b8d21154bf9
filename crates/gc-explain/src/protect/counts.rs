//! Objects that rules about numbers protect.

use std::collections::{BTreeMap, BTreeSet};

use gc_types::{ObjectKey, Uid};

use crate::catalog::GroupResource;
use crate::survey::Survey;
use crate::text;

/// Maximum number of objects in one ConfigMap: each takes about 150 bytes of its mebibyte.
pub const MAX_COUNTED: usize = 5_000;

/// Objects that every namespace contains by itself.
const BY_ITSELF: [(&str, &str); 2] = [("configmaps", "kube-root-ca.crt"), ("serviceaccounts", "default")];
/// Resources that are no evidence of a namespace's use.
const TRACES: [&str; 3] = ["events", "events.events.k8s.io", "leases.coordination.k8s.io"];

/// Choice of what to count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counting {
    /// Definitions with objects.
    pub definitions: bool,
    /// Namespaces that are not empty.
    pub namespaces: bool,
    /// Owners with more dependents than this.
    pub owners_above: Option<usize>,
}

impl Counting {
    /// Reports whether there is nothing to count.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the flags with which `kubegc protect` counts the same.
    #[must_use]
    pub fn flags(&self) -> String {
        let mut flags = Vec::new();
        flags.extend(self.definitions.then(|| "--definitions".to_owned()));
        flags.extend(self.namespaces.then(|| "--namespaces".to_owned()));
        flags.extend(self.owners_above.map(|number| format!("--owners-above {number}")));
        flags.join(" ")
    }
}

/// A protected object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Kind and name.
    pub title: String,
    /// Reason, as the server reports it to the user whose deletion it refuses.
    pub why: String,
}

/// More objects than [`MAX_COUNTED`] would be protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0} objects would be protected, and a ConfigMap has room for {MAX_COUNTED}: protect fewer owners (--owners-above)"
)]
pub struct TooMany(pub usize);

/// Counts in a survey of the whole cluster. Each message includes the time `at`.
pub fn count(survey: &Survey, counting: &Counting, at: &str) -> Result<BTreeMap<Uid, Counted>, TooMany> {
    let mut found: BTreeMap<Uid, (String, Vec<String>)> = BTreeMap::new();
    let mut add = |survey: &Survey, uid: Uid, why: String| {
        let Some(view) = survey.engine.view_of(&uid) else { return };
        if view.key.is_some() && view.presence == gc_ownership::Presence::Observed {
            let title = format!("{}/{}", view.kind, view.name);
            found.entry(uid).or_insert_with(|| (title, Vec::new())).1.push(why);
        }
    };
    if counting.definitions {
        for (uid, why) in definitions(survey) {
            add(survey, uid, why);
        }
    }
    if counting.namespaces {
        for (uid, why) in namespaces(survey) {
            add(survey, uid, why);
        }
    }
    if let Some(number) = counting.owners_above {
        for (uid, why) in owners(survey, number) {
            add(survey, uid, why);
        }
    }
    if found.len() > MAX_COUNTED {
        return Err(TooMany(found.len()));
    }
    let counted = |(title, whys): (String, Vec<String>)| Counted {
        title,
        why: format!("{} (as of {at}; kubegc protect counts again)", whys.join(", ")),
    };
    Ok(found.into_iter().map(|(uid, found)| (uid, counted(found))).collect())
}

/// Returns the objects of a resource, each with its UID.
fn all_of(survey: &Survey, name: &GroupResource) -> Vec<(Uid, ObjectKey)> {
    let Some(id) = survey.catalog.named(name).map(|resource| resource.id) else { return Vec::new() };
    let views = survey.engine.select(|key| key.resource == id).into_iter();
    views.filter_map(|view| Some((view.uid, view.key?))).collect()
}

fn definitions(survey: &Survey) -> Vec<(Uid, String)> {
    let definitions =
        all_of(survey, &GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions"));
    let described = |(uid, key): (Uid, ObjectKey)| {
        let (resource, group) = key.name.split_once('.')?;
        let resource = survey.catalog.named(&GroupResource::new(group, resource))?;
        // A namespace whose contents cannot be listed is not known to be empty.
        if survey.unlisted().contains_key(&resource.id) {
            return Some((uid, "its objects cannot be counted".to_owned()));
        }
        let number = survey.engine.objects_of(resource.id);
        (number > 0).then(|| (uid, format!("it has {}", text::count(number, "object"))))
    };
    definitions.into_iter().filter_map(described).collect()
}

fn namespaces(survey: &Survey) -> Vec<(Uid, String)> {
    let is_content = |key: &ObjectKey| {
        let Some(resource) = survey.resource(key) else { return false };
        let name = resource.name.to_string();
        !key.namespace.is_empty()
            && !TRACES.contains(&&*name)
            && !BY_ITSELF.iter().any(|(own, called)| *own == name && *called == &*key.name)
    };
    let mut contents: BTreeMap<String, usize> = BTreeMap::new();
    for view in survey.engine.select(is_content) {
        let namespace = view.key.map(|key| key.namespace.to_string()).unwrap_or_default();
        *contents.entry(namespace).or_default() += 1;
    }
    let described = |(uid, key): (Uid, ObjectKey)| {
        let number = contents.get(&*key.name)?;
        Some((uid, format!("it has {}", text::count(*number, "object"))))
    };
    all_of(survey, &GroupResource::new("", "namespaces")).into_iter().filter_map(described).collect()
}

fn owners(survey: &Survey, above: usize) -> Vec<(Uid, String)> {
    let mut dependents: BTreeMap<Uid, usize> = BTreeMap::new();
    for object in survey.engine.observed_objects(|_| true) {
        let owners: BTreeSet<Uid> = object.owners.iter().map(|owner| owner.coordinates.uid.clone()).collect();
        for owner in owners {
            *dependents.entry(owner).or_default() += 1;
        }
    }
    let many = dependents.into_iter().filter(|(_, number)| *number > above);
    many.map(|(uid, number)| (uid, format!("it has {}", text::count(number, "dependent")))).collect()
}
