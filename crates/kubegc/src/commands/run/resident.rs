//! The graph of the owner-reference collector, for queries.

use std::collections::{BTreeMap, BTreeSet};

use gc_explain::GroupResource;
use gc_inspect::resident::{Contents, Resident};
use gc_kube::{ResourceTable, StatusBoard, SyncState};

use super::metrics::SharedEngine;

/// The graph, with its resources and whether they are synchronized.
pub(super) struct ResidentGraph {
    pub(super) engine: SharedEngine,
    pub(super) table: ResourceTable,
    pub(super) board: StatusBoard,
}

impl Resident for ResidentGraph {
    fn contents(&self, fits: &dyn Fn(&GroupResource, &str) -> bool) -> Contents {
        let synced = self.board.all().into_iter().filter(|(_, status)| status.state == SyncState::Synced);
        let resources = synced.filter_map(|(id, _)| {
            let route = self.table.get(id)?;
            Some((id, GroupResource::new(&route.info.gvr.group, &route.info.gvr.resource)))
        });
        let resources: BTreeMap<_, _> = resources.collect();
        let everywhere: BTreeSet<_> =
            resources.iter().filter(|(_, resource)| fits(resource, "")).map(|(id, _)| *id).collect();
        let in_namespace =
            |id, namespace: &str| resources.get(&id).is_some_and(|resource| fits(resource, namespace));
        // The lock stops the collector meanwhile, so do nothing else with the objects here.
        let objects = self.engine.lock().observed_objects(|key| {
            everywhere.contains(&key.resource) || in_namespace(key.resource, &key.namespace)
        });
        Contents { resources, objects }
    }
}
