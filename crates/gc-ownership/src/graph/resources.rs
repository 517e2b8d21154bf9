//! Served resources, and the resource that the kind of a reference leads to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gc_types::{ResourceId, ResourceInfo, ResourceVersion, Scope, Timestamp};

use super::intern::KindText;

/// Dense number of a resource within this process. Definitions that come and go use up numbers: four bytes, for which a node of the
/// graph has room, last longer than the memory of any machine.
pub(crate) type ResourceIndex = u32;
/// Stands for no resource.
pub(crate) const NO_RESOURCE: ResourceIndex = ResourceIndex::MAX;

/// State of one resource.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    pub(crate) info: ResourceInfo,
    /// True if discovery contains it.
    pub(crate) served: bool,
    /// True once its list has been complete.
    pub(crate) ever_synced: bool,
    /// True if its list is complete and its watch delivers.
    pub(crate) synced: bool,
    /// True while a list is in progress.
    pub(crate) listing: bool,
    /// Mark of objects contained in the last (or current) list.
    pub(crate) parity: bool,
    /// Version up to which every change was delivered.
    pub(crate) progress: ResourceVersion,
    /// Number of its known objects.
    pub(crate) objects: usize,
    /// Newest version that was ever delivered. An older list comes from a restored server or a stale cache: objects missing from it
    /// may well exist.
    pub(crate) delivered: ResourceVersion,
    /// Newest version in the response to a request.
    pub(crate) answered: ResourceVersion,
    /// Newest version delivered before an older list.
    pub(crate) behind_until: ResourceVersion,
    /// True if the last (or current) list contains an object that was known before it.
    pub(crate) confirmed: bool,
    /// Time at which a list contained none of the known objects, although some are referred to.
    pub(crate) vanished_at: Option<Timestamp>,
    /// True if its CustomResourceDefinition was seen to be removed, so all its objects were deleted.
    pub(crate) definition_removed: bool,
    /// Version that its last complete list claimed.
    pub(crate) listed: ResourceVersion,
    /// True if something was not decided because it was not current.
    pub(crate) is_awaited: bool,
    /// Time at which discovery ceased to contain it.
    pub(crate) withdrawn_at: Option<Timestamp>,
}

impl Resource {
    /// Reports whether its watch delivers every change. If it is not watched or not served, nothing better is to be expected.
    pub(crate) fn is_current(&self) -> bool {
        self.synced || !self.served || !self.info.watched
    }

    /// Reports whether its objects are CustomResourceDefinitions.
    pub(crate) fn is_of_definitions(&self) -> bool {
        let gvr = &self.info.gvr;
        (&*gvr.group, &*gvr.resource) == ("apiextensions.k8s.io", "customresourcedefinitions")
    }

    /// Reports whether an unknown object should have been in the list of the watch: it was left out, or was removed since.
    pub(crate) fn should_have_listed(&self, version: ResourceVersion) -> bool {
        self.info.comparable_versions && version != ResourceVersion::UNKNOWN && version <= self.listed
    }

    /// Reports whether the list or the events of the watch should have shown an unknown object: they left it out, or it was removed
    /// since.
    pub(crate) fn should_have_shown(&self, version: ResourceVersion) -> bool {
        self.info.comparable_versions
            && version != ResourceVersion::UNKNOWN
            && version <= self.listed.max(self.progress)
    }
}

/// Group and plural name of a resource.
type GroupResource = (Arc<str>, Arc<str>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Resources {
    list: Vec<Resource>,
    by_id: BTreeMap<ResourceId, ResourceIndex>,
    served: BTreeSet<ResourceIndex>,
    /// All resources with a name, served or not.
    by_name: BTreeMap<GroupResource, Vec<ResourceIndex>>,
    /// Resource by (apiVersion, kind), including the kind in lower case.
    by_kind: BTreeMap<KindText, ResourceIndex>,
}

impl Resources {
    /// Adds one resource of discovery. `None` if there is no number left for it.
    pub(crate) fn serve(&mut self, info: ResourceInfo) -> Option<ResourceIndex> {
        let known = self.by_id.get(&info.id).copied().or_else(|| self.withdrawn(&info));
        let index = if let Some(index) = known {
            let resource = &mut self.list[index as usize];
            if resource.info.id != info.id {
                // It has another watch now: anything that the former one may still deliver does not belong to it.
                self.by_id.remove(&resource.info.id);
                self.by_id.insert(info.id, index);
            }
            resource.info = info;
            resource.served = true;
            resource.withdrawn_at = None;
            resource.definition_removed = false;
            index
        } else {
            let index =
                ResourceIndex::try_from(self.list.len()).ok().filter(|&index| index != NO_RESOURCE)?;
            self.by_id.insert(info.id, index);
            self.by_name.entry(name_of(&info)).or_default().push(index);
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
                listed: ResourceVersion::UNKNOWN,
                is_awaited: false,
                withdrawn_at: None,
            });
            index
        };
        self.served.insert(index);
        self.index_kinds();
        Some(index)
    }

    /// Reports whether CustomResourceDefinitions are watched.
    pub(crate) fn has_definitions(&self) -> bool {
        self.served.iter().any(|&index| self.list[index as usize].is_of_definitions())
    }

    /// Returns the resources that a CustomResourceDefinition of this name (`plural.group`) defines: at most one is served.
    pub(crate) fn defined_by(&self, name: &str) -> Vec<ResourceIndex> {
        let Some((plural, group)) = name.split_once('.') else { return Vec::new() };
        self.by_name.get(&(group.into(), plural.into())).cloned().unwrap_or_default()
    }

    /// Returns the resource of the same name, kind and scope that was served before but is not served now.
    pub(crate) fn withdrawn(&self, info: &ResourceInfo) -> Option<ResourceIndex> {
        let is_same = |&&index: &&ResourceIndex| {
            let Resource { info: known, served, .. } = &self.list[index as usize];
            !served && (&known.kind, known.scope) == (&info.kind, info.scope)
        };
        self.by_name.get(&name_of(info))?.iter().find(is_same).copied()
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
        resource.listed = ResourceVersion::UNKNOWN;
        self.served.remove(&index);
        self.index_kinds();
        Some(index)
    }

    fn index_kinds(&mut self) {
        self.by_kind.clear();
        // A watched resource takes precedence over an unwatched one, an older one over a newer one.
        for watched in [true, false] {
            for &index in &self.served {
                let resource = &self.list[index as usize];
                if resource.info.watched != watched {
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

    /// Reports whether the last list was older than an earlier delivery, and the watch has not caught up with that yet.
    pub(crate) fn is_behind(&self, index: ResourceIndex) -> bool {
        self.get(index).is_some_and(|state| state.progress < state.behind_until)
    }

    /// Records that a list of it was older than this version, which had been delivered before.
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

fn name_of(info: &ResourceInfo) -> GroupResource {
    (Arc::clone(&info.gvr.group), Arc::clone(&info.gvr.resource))
}
