//! Component that deletes the storage of a volume, and the annotation and finalizers that name it.

use std::collections::BTreeSet;
use std::sync::Arc;

use gc_types::{DeletionSecret, Storage};
use serde_json::Value;

use super::{EXTERNAL_FINALIZER, HOST_PATH_PLUGIN, IN_TREE_FINALIZER};
use crate::objects::topology::{Affinity, Labels};
use crate::objects::{Source, Volume, in_tree};

/// Storage that this process can delete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deleters {
    /// Names of CSI drivers that can be reached from here.
    pub drivers: BTreeSet<Arc<str>>,
    /// True if host paths on this machine are deleted.
    pub host_path: bool,
    /// Topology that the drivers serve, if each node has its own; empty if they serve all volumes.
    pub topology: Labels,
}

/// Component that deletes the storage of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Deleter {
    /// This process.
    Ours(Storage),
    /// Another component, which only waits for the phase `Released`.
    External,
    /// No component can, for this reason.
    Missing(String),
}

impl Deleters {
    /// Reports whether the volume belongs to one of these CSI drivers (spec 9.3).
    pub(super) fn csi(&self, volume: &Volume) -> bool {
        let known = |name: &Option<Arc<str>>| name.as_ref().is_some_and(|name| self.drivers.contains(name));
        match (&volume.provisioned_by, &volume.source) {
            (Some(_), _) => known(&volume.provisioned_by) || known(&volume.migrated_to),
            (None, Source::Csi { driver, .. }) => self.drivers.contains(driver),
            (None, _) => known(&volume.migrated_to),
        }
    }

    /// Reports whether host paths of this in-tree plugin are deleted here.
    fn in_tree(&self, plugin: &str) -> bool {
        plugin == HOST_PATH_PLUGIN && self.host_path
    }

    pub(super) fn of(&self, volume: &Volume) -> Deleter {
        if self.csi(volume) {
            return self.of_csi(volume);
        }
        let missing = |why: &str| {
            let name = &volume.meta.name;
            Deleter::Missing(format!("error getting deleter volume plugin for volume \"{name}\": {why}"))
        };
        match &volume.provisioned_by {
            _ if volume.migrated_to.as_ref().is_some_and(|driver| !driver.is_empty()) => Deleter::External,
            Some(plugin) if !plugin.starts_with("kubernetes.io/") => Deleter::External,
            Some(plugin) if **plugin != *HOST_PATH_PLUGIN => missing(&format!(
                "no volume plugin matched name: {plugin}; remove its storage by hand, then the volume and its \
                 finalizers"
            )),
            _ => match &volume.source {
                Source::Csi { .. } => Deleter::External,
                Source::HostPath { path } if self.host_path => {
                    Deleter::Ours(Storage::HostPath { path: Arc::clone(path) })
                }
                Source::HostPath { .. } => {
                    missing("host paths are deleted only with --enable-hostpath-provisioner")
                }
                Source::InTree { .. } | Source::Other => missing("no deletable volume plugin matched"),
            },
        }
    }

    fn of_csi(&self, volume: &Volume) -> Deleter {
        let name = &volume.meta.name;
        // The driver of another node would take storage that it does not know for deleted storage.
        let elsewhere =
            |affinity: &Arc<Affinity>| !self.topology.is_empty() && !affinity.fits(&self.topology);
        if volume.affinity.as_ref().is_some_and(elsewhere) {
            return Deleter::External;
        }
        let (Source::Csi { driver, handle } | Source::InTree { driver, handle }) = &volume.source else {
            return Deleter::Missing(format!(
                "volume \"{name}\" has no CSI source, and what its in-tree source is for the driver is not known; \
                 remove its storage by hand"
            ));
        };
        if !self.drivers.contains(driver) {
            return Deleter::Missing(format!(
                "volume \"{name}\" is said to be provisioned by another driver than {driver}, which it names as its \
                 source"
            ));
        }
        let claim = volume.claim.as_ref();
        let (secret_name, secret_namespace) = volume.secret.clone();
        let secret = DeletionSecret {
            name: secret_name,
            namespace: secret_namespace,
            class: Some(Arc::clone(&volume.class)).filter(|class| !class.is_empty()),
            claim: claim.map(|claim| (Arc::clone(&claim.namespace), Arc::clone(&claim.name))),
        };
        Deleter::Ours(Storage::Csi { driver: Arc::clone(driver), handle: Arc::clone(handle), secret })
    }

    /// Returns the correct value of the annotation `migrated-to` if it differs (spec 6.4); null removes it.
    pub(super) fn migration(volume: &Volume) -> Option<Value> {
        let plugin = volume.provisioned_by.as_ref()?;
        let wanted = in_tree::driver(plugin);
        (volume.migrated_to.as_deref() != wanted).then(|| wanted.into())
    }

    /// Returns the correct finalizers (spec 6.4 and 9.4).
    pub(super) fn finalizers(&self, volume: &Volume) -> Vec<Arc<str>> {
        let mut left = volume.finalizers.clone();
        let has = |list: &[Arc<str>], name: &str| list.iter().any(|present| **present == *name);
        let deletes = *volume.policy == *"Delete";
        let add = |list: &mut Vec<Arc<str>>, name: &str| {
            // The server refuses to add a finalizer to a terminating object (BEAT-PV-8).
            if !volume.meta.deleting && !has(list, name) {
                list.push(name.into());
            }
        };
        let take = |list: &mut Vec<Arc<str>>, name: &str| list.retain(|present| **present != *name);
        if let Some(plugin) = volume.provisioned_by.as_deref() {
            if in_tree::driver(plugin).is_some() {
                take(&mut left, IN_TREE_FINALIZER);
            } else if plugin.starts_with("kubernetes.io/") {
                take(&mut left, EXTERNAL_FINALIZER);
                if !deletes {
                    take(&mut left, IN_TREE_FINALIZER);
                } else if self.in_tree(plugin) {
                    add(&mut left, IN_TREE_FINALIZER);
                }
            }
        }
        if self.csi(volume) {
            if !deletes {
                take(&mut left, EXTERNAL_FINALIZER);
            } else if volume.bound() {
                add(&mut left, EXTERNAL_FINALIZER);
            }
        }
        left
    }
}
