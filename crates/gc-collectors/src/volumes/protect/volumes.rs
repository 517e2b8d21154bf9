//! Protection of bound volumes (spec `cluster-collectors.md`, section 8).

use gc_types::{ObjectKey, Timestamp};

use super::{Protection, change, protection};
use crate::engine::{Collector, Decision, Observation};
use crate::entry::{CollectorEntry, WATCH_PATCH, Watches, rule};
use crate::objects::{Cache, Facts, Kind, Volume};

/// Finalizer of volumes.
pub const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

/// Entry of this collector in the table of collectors.
pub(crate) const COLLECTOR: CollectorEntry = CollectorEntry {
    summary: "protection of volumes",
    name: "persistentvolume-protection-controller",
    alias: Some("pv-protection"),
    account: "pv-protection-controller",
    event_source: "persistentvolume-protection-controller",
    on_by_default: true,
    for_every_kind: false,
    watches: Watches::Kinds(&[Kind::Volume]),
    flags: &[],
    rules: &[rule("", "persistentvolumes", WATCH_PATCH)],
};

/// Returns the decision about a volume's protection, which depends only on its phase.
#[must_use]
pub fn volume_verdict(volume: &Volume) -> Decision {
    match protection(&volume.meta, &volume.finalizers, VOLUME_FINALIZER) {
        Protection::Missing => change(Kind::Volume, &volume.meta, &volume.finalizers, VOLUME_FINALIZER, true),
        Protection::Holding if !volume.bound() => {
            change(Kind::Volume, &volume.meta, &volume.finalizers, VOLUME_FINALIZER, false)
        }
        Protection::Holding | Protection::Settled => Decision::Leave,
    }
}

/// The PV protection controller.
#[derive(Debug)]
pub struct VolumeProtection {
    volumes: Cache<Volume>,
}

impl Default for VolumeProtection {
    fn default() -> Self {
        Self { volumes: Cache::new(Kind::Volume) }
    }
}

impl Collector for VolumeProtection {
    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Volume]
    }

    fn observe(&mut self, observation: Observation, _now: Timestamp, dirty: &mut Vec<ObjectKey>) {
        match observation {
            Observation::ListStarted(Kind::Volume) => self.volumes.list_started(),
            Observation::Observed(Facts::Volume(volume)) => dirty.push(self.volumes.put(volume).0),
            Observation::Removed(key) => drop(self.volumes.remove(&key)),
            Observation::Synced(Kind::Volume) => {
                self.volumes.forget_unlisted();
                dirty.extend(self.volumes.keys().cloned());
            }
            _ => {}
        }
    }

    fn decide(&mut self, key: &ObjectKey, _now: Timestamp, _dirty: &mut Vec<ObjectKey>) -> Decision {
        self.volumes.get(key).map_or(Decision::Leave, volume_verdict)
    }
}
