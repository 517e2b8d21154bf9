//! The served resources, and which one the kind of a reference leads to.

use std::collections::BTreeMap;
use std::sync::Arc;

use gc_types::{ResourceId, ResourceInfo, ResourceVersion, Scope, Timestamp};

use super::intern::KindText;

/// Dense number of a resource within this process.
pub(crate) type ResourceIndex = u16;
/// "No resource."
pub(crate) const NO_RESOURCE: ResourceIndex = u16::MAX;

/// The state of one resource.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    pub(crate) info: ResourceInfo,
    /// Discovery contains it.
    pub(crate) served: bool,
    /// Its list was complete at least once.
    pub(crate) ever_synced: bool,
    /// Its list is complete and its watch delivers.
    pub(crate) synced: bool,
    /// A list is in progress.
    pub(crate) listing: bool,
    /// The mark of objects contained in the last (or present) list.
    pub(crate) parity: bool,
    /// Every change up to this version was delivered.
    pub(crate) progress: ResourceVersion,
    /// Number of its known objects.
    pub(crate) objects: usize,
    /// The newest version that was ever delivered. An older list comes from a restored server or from a stale cache:
    /// objects missing from it may well exist.
    pub(crate) delivered: ResourceVersion,
    /// The newest version in the answer to a request.
    pub(crate) answered: ResourceVersion,
    /// The newest version delivered before an older list.
    pub(crate) behind_until: ResourceVersion,
    /// The last (or present) list contains an object that was known before it.
    pub(crate) confirmed: bool,
    /// When a list contained none of the objects that were known, although some are referred to.
    pub(crate) vanished_at: Option<Timestamp>,
    /// Its CustomResourceDefinition was seen to be removed, so all its objects were deleted.
    pub(crate) definition_removed: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Resources {
    list: Vec<Resource>,
    by_id: BTreeMap<ResourceId, ResourceIndex>,
    /// (apiVersion, kind), also with the kind in lower case, to the resource.
    by_kind: BTreeMap<KindText, ResourceIndex>,
}

impl Resources {
    /// Takes one resource of discovery. `None` if there are more resources than any server has (65,535).
    pub(crate) fn serve(&mut self, info: ResourceInfo) -> Option<ResourceIndex> {
        let known = self.by_id.get(&info.id).copied().or_else(|| self.withdrawn(&info));
        let index = if let Some(index) = known {
            let resource = &mut self.list[index as usize];
            if resource.info.id != info.id {
                // It is another watch: what the former one may still say is not for this one.
                self.by_id.remove(&resource.info.id);
                self.by_id.insert(info.id, index);
            }
            resource.info = info;
            resource.served = true;
            resource.definition_removed = false;
            index
        } else {
            let index =
                ResourceIndex::try_from(self.list.len()).ok().filter(|&index| index != NO_RESOURCE)?;
            self.by_id.insert(info.id, index);
            self.list.push(Resource {
                info,
                served: true,
                ever_synced: false,
                synced: false,
                listing: false,
                parity: false,
                progress: ResourceVersion::UNKNOWN,
                objects: 0,
                delivered: ResourceVersion::UNKNOWN,
                answered: ResourceVersion::UNKNOWN,
                behind_until: ResourceVersion::UNKNOWN,
                confirmed: false,
                vanished_at: None,
                definition_removed: false,
            });
            index
        };
        self.index_kinds();
        Some(index)
    }

    /// The resources that a CustomResourceDefinition of this name (`plural.group`) defines: at most one is served.
    pub(crate) fn defined_by(&self, name: &str) -> Vec<ResourceIndex> {
        let Some((plural, group)) = name.split_once('.') else { return Vec::new() };
        let is_defined = |info: &ResourceInfo| (&*info.gvr.resource, &*info.gvr.group) == (plural, group);
        self.iter().filter(|(_, resource)| is_defined(&resource.info)).map(|(index, _)| index).collect()
    }

    /// The resource of the same name, kind and scope that was served before and is not served now.
    pub(crate) fn withdrawn(&self, info: &ResourceInfo) -> Option<ResourceIndex> {
        let is_same = |known: &ResourceInfo| {
            (&known.gvr.group, &known.gvr.resource, &known.kind, known.scope)
                == (&info.gvr.group, &info.gvr.resource, &info.kind, info.scope)
        };
        self.iter().find(|(_, resource)| !resource.served && is_same(&resource.info)).map(|(index, _)| index)
    }

    pub(crate) fn withdraw(&mut self, id: ResourceId) -> Option<ResourceIndex> {
        let index = *self.by_id.get(&id)?;
        let resource = &mut self.list[index as usize];
        resource.served = false;
        resource.synced = false;
        resource.listing = false;
        resource.ever_synced = false;
        resource.progress = ResourceVersion::UNKNOWN;
        resource.delivered = ResourceVersion::UNKNOWN;
        resource.answered = ResourceVersion::UNKNOWN;
        resource.behind_until = ResourceVersion::UNKNOWN;
        resource.vanished_at = None;
        self.index_kinds();
        Some(index)
    }

    fn index_kinds(&mut self) {
        self.by_kind.clear();
        // A watched resource takes precedence over an unwatched one, an older one over a newer one.
        for watched in [true, false] {
            for (index, resource) in (0..).zip(&self.list) {
                if !resource.served || resource.info.watched != watched {
                    continue;
                }
                let lower: Arc<str> = resource.info.kind.to_lowercase().into();
                for api_version in &resource.info.served_api_versions {
                    for kind in [&resource.info.kind, &lower] {
                        self.by_kind
                            .entry(KindText { api_version: api_version.clone(), kind: kind.clone() })
                            .or_insert(index);
                    }
                }
            }
        }
    }

    pub(crate) fn resolve(&self, text: &KindText) -> ResourceIndex {
        self.by_kind.get(text).copied().unwrap_or(NO_RESOURCE)
    }

    pub(crate) fn index(&self, id: ResourceId) -> Option<ResourceIndex> {
        self.by_id.get(&id).copied()
    }

    pub(crate) fn get(&self, index: ResourceIndex) -> Option<&Resource> {
        self.list.get(index as usize)
    }

    pub(crate) fn get_mut(&mut self, index: ResourceIndex) -> Option<&mut Resource> {
        self.list.get_mut(index as usize)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ResourceIndex, &Resource)> {
        (0..).zip(&self.list)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Resource> {
        self.list.iter_mut()
    }

    /// Whether the last list was older than an earlier delivery, and the watch has not caught up with that yet.
    pub(crate) fn is_behind(&self, index: ResourceIndex) -> bool {
        self.get(index).is_some_and(|state| state.progress < state.behind_until)
    }

    /// A list of it was older than this version, which had been delivered before.
    pub(crate) fn went_back(&mut self, index: ResourceIndex, delivered: ResourceVersion) {
        if let Some(state) = self.get_mut(index) {
            state.delivered = delivered;
            state.behind_until = delivered;
        }
    }

    pub(crate) fn is_namespaced(&self, index: ResourceIndex) -> bool {
        self.get(index).is_some_and(|resource| resource.info.scope == Scope::Namespaced)
    }
}
