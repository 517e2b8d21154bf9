//! Graph of a collector in this process, which replaces lists.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gc_explain::{GroupResource, Resource};
use gc_types::{ObjectKey, ObservedObject, ResourceId};

/// Maximum number of objects of one resource that are read singly because they need more than a graph has; above it, they are
/// listed.
pub const READ_SINGLY: usize = 20;

/// Resources to list, each in a namespace (everywhere, if empty).
pub type Lists = Vec<(String, Vec<Resource>)>;

/// Known objects, and the resources whose objects are all known.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// Resources by their number.
    pub resources: BTreeMap<ResourceId, GroupResource>,
    /// The requested objects.
    pub objects: Vec<ObservedObject>,
}

/// A graph that follows the cluster.
pub trait Resident: Send + Sync {
    /// Returns the objects of these resources and namespaces, for resources that are up to date.
    fn contents(&self, fits: &dyn Fn(&GroupResource, &str) -> bool) -> Contents;

    /// Reports whether this list, in a namespace or, if that is empty, of everything, may be answered from the graph.
    fn permits(&self, _: &GroupResource, _: &str) -> bool {
        true
    }
}

/// The part of a graph that a user may list.
pub struct PermittedGraph {
    whole: Arc<dyn Resident>,
    /// Resource and namespace; an empty one means everywhere.
    lists: BTreeSet<(GroupResource, String)>,
}

impl PermittedGraph {
    /// Restricts a graph to these lists.
    #[must_use]
    pub fn new(whole: Arc<dyn Resident>, lists: &Lists) -> Self {
        let names = lists.iter().flat_map(|(namespace, resources)| {
            resources.iter().map(move |resource| (resource.name.clone(), namespace.clone()))
        });
        Self { whole, lists: names.collect() }
    }
}

impl Resident for PermittedGraph {
    fn contents(&self, fits: &dyn Fn(&GroupResource, &str) -> bool) -> Contents {
        self.whole
            .contents(&|resource, namespace| self.permits(resource, namespace) && fits(resource, namespace))
    }

    fn permits(&self, resource: &GroupResource, namespace: &str) -> bool {
        let is_listed = |namespace: &str| self.lists.contains(&(resource.clone(), namespace.to_owned()));
        is_listed("") || (!namespace.is_empty() && is_listed(namespace))
    }
}

/// Reports whether an answer needs more of an object than a graph has: its finalizers, or its deletion time.
#[must_use]
pub fn needs_metadata(object: &ObservedObject) -> bool {
    let deletion = &object.deletion;
    deletion.deleting || deletion.foreground || deletion.orphan || deletion.foreign_finalizers
}

/// Objects of one list, as a graph has them.
#[derive(Debug, Default)]
pub struct KnownObjects {
    /// Objects for which the graph is enough.
    pub plain: Vec<ObservedObject>,
    /// Objects that have to be read.
    pub to_read: Vec<ObjectKey>,
}

impl Contents {
    /// Groups the objects by resource and namespace; a resource that is listed everywhere has the empty namespace.
    pub fn by_list(
        self,
        is_everywhere: impl Fn(&GroupResource) -> bool,
    ) -> BTreeMap<(GroupResource, String), KnownObjects> {
        // There may be hundreds of thousands of objects, so names are compared and copied once per list.
        let everywhere: BTreeSet<ResourceId> = self
            .resources
            .iter()
            .filter(|(_, resource)| is_everywhere(resource))
            .map(|(id, _)| *id)
            .collect();
        let nowhere: Arc<str> = "".into();
        let mut numbered: BTreeMap<(ResourceId, Arc<str>), KnownObjects> = BTreeMap::new();
        for object in self.objects {
            let id = object.key.resource;
            let namespace = if everywhere.contains(&id) { &nowhere } else { &object.key.namespace };
            let list = numbered.entry((id, Arc::clone(namespace))).or_default();
            if needs_metadata(&object) {
                list.to_read.push(object.key);
            } else {
                list.plain.push(object);
            }
        }
        let mut lists: BTreeMap<(GroupResource, String), KnownObjects> = BTreeMap::new();
        for ((id, namespace), known) in numbered {
            let Some(resource) = self.resources.get(&id) else { continue };
            let list = lists.entry((resource.clone(), namespace.to_string())).or_default();
            list.plain.extend(known.plain);
            list.to_read.extend(known.to_read);
        }
        lists
    }
}
