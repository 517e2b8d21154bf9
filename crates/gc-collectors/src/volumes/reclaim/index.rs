//! Volumes, claims and attachments of the reclaimer, and their indexes.

use std::sync::Arc;

use gc_types::{ObjectKey, Timestamp};

use super::{Attachment, DRIVERLESS, VolumeReclaim, plugin_name, seconds, storage_of};
use crate::measures;
use crate::objects::{Claim, Kind, Volume, drop_from};

impl VolumeReclaim {
    fn tally_volume(&mut self, volume: &Volume, add: bool) {
        let entries = [
            (0, vec![plugin_name(volume), Arc::clone(&volume.mode)]),
            (if volume.bound() { 1 } else { 2 }, vec![Arc::clone(&volume.class)]),
        ];
        for (index, labels) in entries {
            if add { self.tallies[index].add(labels) } else { self.tallies[index].remove(&labels) }
        }
    }

    fn tally_claim(&mut self, claim: &Claim, add: bool) {
        let labels = vec![
            Arc::clone(&claim.meta.namespace),
            Arc::clone(&claim.class),
            Arc::clone(&claim.attributes_class),
        ];
        let tally = &mut self.tallies[if claim.bound { 3 } else { 4 }];
        if add { tally.add(labels) } else { tally.remove(&labels) }
    }

    pub(super) fn put_volume(&mut self, volume: Volume, dirty: &mut Vec<ObjectKey>) {
        let claim = volume.claim.as_ref().map(Self::claim_key);
        let storage = storage_of(&volume);
        self.tally_volume(&volume, true);
        let uid = volume.meta.uid.clone();
        let (key, before) = self.volumes.put(volume);
        if let Some(before) = before {
            self.drop_from_indexes(&key, &before, dirty);
            if before.meta.uid != uid {
                self.forget(&key);
            }
        }
        if let Some(claim) = claim {
            self.by_claim.entry(claim).or_default().insert(key.clone());
        }
        if let Some(storage) = storage {
            self.by_storage.entry(storage).or_default().insert(key.clone());
        }
        dirty.push(key);
    }

    fn drop_from_indexes(&mut self, key: &ObjectKey, volume: &Volume, dirty: &mut Vec<ObjectKey>) {
        self.tally_volume(volume, false);
        if let Some(claim) = volume.claim.as_ref().map(Self::claim_key) {
            drop_from(&mut self.by_claim, &claim, key);
        }
        if let Some(storage) = storage_of(volume) {
            drop_from(&mut self.by_storage, &storage, key);
            // A volume that shared this storage may be deleted now; a directory may have been inside any other.
            let shared = |other: &(Arc<str>, Arc<str>)| {
                *other == storage || (*storage.0 == *DRIVERLESS && *other.0 == *DRIVERLESS)
            };
            let first =
                if *storage.0 == *DRIVERLESS { (DRIVERLESS.into(), "".into()) } else { storage.clone() };
            let sharing = self.by_storage.range(first..).take_while(|(other, _)| shared(other));
            dirty.extend(sharing.flat_map(|(_, keys)| keys).cloned());
        }
    }

    /// Forgets everything about an object that is gone.
    fn forget(&mut self, key: &ObjectKey) {
        self.gone.remove(key);
        self.recheck_at.remove(key);
        self.unattached.remove(key);
        self.failed.remove(key);
        self.destroyed.remove(key);
        self.begun.remove(key);
    }

    pub(super) fn remove_volume(&mut self, key: &ObjectKey, now: Timestamp, dirty: &mut Vec<ObjectKey>) {
        if let Some(volume) = self.volumes.remove(key) {
            self.drop_from_indexes(key, &volume, dirty);
        }
        if let Some((_, begun, plugin)) = self.begun.remove(key) {
            let labels = vec![plugin, "delete".into()];
            self.reports.observe(&measures::VOLUME_OPERATIONS, labels, seconds(now.since(begun)));
        }
        self.forget(key);
    }

    pub(super) fn put_claim(&mut self, claim: Claim, dirty: &mut Vec<ObjectKey>) {
        self.tally_claim(&claim, true);
        let (key, before) = self.claims.put(claim);
        if let Some(before) = before {
            self.tally_claim(&before, false);
        }
        dirty.extend(self.by_claim.get(&key).into_iter().flatten().cloned());
    }

    pub(super) fn remove_claim(&mut self, key: &ObjectKey, dirty: &mut Vec<ObjectKey>) {
        if let Some(claim) = self.claims.remove(key) {
            self.tally_claim(&claim, false);
        }
        dirty.extend(self.by_claim.get(key).into_iter().flatten().cloned());
    }

    pub(super) fn put_attachment(&mut self, attachment: Attachment, dirty: &mut Vec<ObjectKey>) {
        let volume = attachment.volume.clone();
        let (key, before) = self.attachments.put(attachment);
        if let Some(old) = before.and_then(|before| before.volume) {
            drop_from(&mut self.attached, &old, &key);
            dirty.push(Kind::Volume.key(&"".into(), &old));
        }
        if let Some(volume) = volume {
            self.attached.entry(Arc::clone(&volume)).or_default().insert(key);
            let volume = Kind::Volume.key(&"".into(), &volume);
            self.unattached.remove(&volume);
            dirty.push(volume);
        }
    }

    pub(super) fn remove_attachment(&mut self, key: &ObjectKey, dirty: &mut Vec<ObjectKey>) {
        let Some(volume) = self.attachments.remove(key).and_then(|gone| gone.volume) else { return };
        drop_from(&mut self.attached, &volume, key);
        dirty.push(Kind::Volume.key(&"".into(), &volume));
    }
}
