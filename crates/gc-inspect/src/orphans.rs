//! Volumes that CSI drivers have and no PersistentVolume names.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use gc_explain::GroupResource;
use gc_explain::garbage::{Report, StoredVolume, UsedStorage};
use serde_json::Value;

use super::gather::{Gatherer, Reading};

/// Resources that may use storage: group, plural name, and how their objects are recorded. Volumes come last, so that one bound
/// after the driver's listing is known.
const USERS: [(&str, &str, fn(&mut UsedStorage, &Value)); 4] = [
    ("storage.k8s.io", "storageclasses", UsedStorage::class),
    ("", "persistentvolumeclaims", UsedStorage::claim),
    ("snapshot.storage.k8s.io", "volumesnapshotcontents", UsedStorage::snapshot),
    ("", "persistentvolumes", UsedStorage::volume),
];

/// Reads which storage of these drivers the cluster uses, and reports the rest. Call it after the drivers have listed their
/// volumes. `exclusive` lists the drivers whose storage no other cluster uses.
///
/// # Errors
/// The PersistentVolumes cannot be listed.
pub async fn ask(
    gatherer: &Gatherer,
    listed: &BTreeMap<String, Vec<StoredVolume>>,
    exclusive: &BTreeSet<String>,
) -> anyhow::Result<Report> {
    let mut used = UsedStorage::default();
    for (group, name, note) in USERS {
        let Some(resource) = gatherer.catalog.named(&GroupResource::new(group, name)) else { continue };
        let read = gatherer.each(resource, "", Reading::Whole, |object| note(&mut used, object)).await;
        match read {
            Ok(()) => {}
            Err(why) if name == "persistentvolumes" => bail!("{name} could not be listed: {why}"),
            Err(why) => used.unseen(format!("{} could not be listed: {why}", resource.name)),
        }
    }
    Ok(used.orphans(listed, exclusive))
}
