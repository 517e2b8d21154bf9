//! Component that deletes the storage of a volume with reclaim policy Delete, as far as it can be seen in the cluster.

use gc_collectors::objects::{Facts as Narrow, Kind};
use gc_collectors::volumes::reclaim::{EXTERNAL_FINALIZER, IN_TREE_FINALIZER};
use gc_collectors::volumes::{Source, Volume};

use crate::catalog::GroupResource;
use crate::facts::{Facts, Knowledge};
use crate::object::Object;
use crate::stuck::narrow;

/// Component that deletes the storage of a volume, as text for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deleter {
    /// A component that is installed.
    Seen(String),
    /// A component that cannot be seen in the cluster.
    Unseen(String),
    /// None exists, for this reason.
    Missing(String),
}

/// Returns the component that deletes the storage of a volume when its claim is gone.
pub(crate) fn deleter(object: &Object, facts: &Facts) -> Deleter {
    if let Some(failure) = failure(object) {
        return Deleter::Missing(failure);
    }
    let Some(Narrow::Volume(volume)) = narrow(Kind::Volume, object) else {
        return Deleter::Unseen("a component that is not known".to_owned());
    };
    // The component that deletes the storage usually, but not always, sets a finalizer.
    let has = |name: &str| volume.finalizers.iter().any(|finalizer| **finalizer == *name);
    let is_claimed = has(EXTERNAL_FINALIZER) || has(IN_TREE_FINALIZER);
    match (driver(&volume), &volume.source, provisioner(&volume)) {
        (Some(driver), ..) => driver_of_cluster(driver, is_claimed, facts),
        (None, _, Some(provisioner)) => Deleter::Unseen(format!("provisioner {provisioner}")),
        (None, Source::HostPath { .. }, None) if is_claimed => {
            Deleter::Unseen("the reclaim controller".to_owned())
        }
        (None, Source::HostPath { .. }, None) => Deleter::Missing(
            "no controller deletes host paths, unless it was started with --enable-hostpath-provisioner"
                .to_owned(),
        ),
        (None, _, None) => Deleter::Missing("no controller deletes storage of this kind".to_owned()),
    }
}

/// Returns the volume's own error if it could not be reclaimed.
fn failure(object: &Object) -> Option<String> {
    let message = match object.text("/status/message") {
        "" => "without a message",
        message => message,
    };
    (object.text("/status/phase") == "Failed").then(|| format!("its deletion has failed: {message}"))
}

/// Reports whether the storage of a volume belongs to a CSI driver.
pub(crate) fn has_driver(object: &Object) -> bool {
    matches!(narrow(Kind::Volume, object), Some(Narrow::Volume(volume)) if driver(&volume).is_some())
}

/// Returns the CSI driver of the storage.
fn driver(volume: &Volume) -> Option<&str> {
    let migrated = volume.migrated_to.as_deref().filter(|driver| !driver.is_empty());
    migrated.or_else(|| match &volume.source {
        Source::Csi { driver, .. } | Source::InTree { driver, .. } => Some(&**driver),
        Source::HostPath { .. } | Source::Other => None,
    })
}

/// Returns the external provisioner of a volume that does not belong to a CSI driver.
fn provisioner(volume: &Volume) -> Option<&str> {
    volume.provisioned_by.as_deref().filter(|name| !name.starts_with("kubernetes.io/"))
}

fn driver_of_cluster(driver: &str, is_claimed: bool, facts: &Facts) -> Deleter {
    let name = format!("CSI driver {driver}");
    match facts.object(&GroupResource::new("storage.k8s.io", "csidrivers"), "", driver) {
        Some(Knowledge::Present(_)) => Deleter::Seen(name),
        Some(Knowledge::Absent) if !is_claimed => {
            Deleter::Missing(format!("{name} is not installed: no CSIDriver has this name"))
        }
        Some(Knowledge::Absent) => Deleter::Unseen(format!("{name}, of which there is no CSIDriver")),
        Some(Knowledge::Unreadable(_)) | None => Deleter::Unseen(name),
    }
}

/// Reports whether a volume waits for its storage to be deleted.
pub(crate) fn awaits_deletion(volume: &Object) -> bool {
    matches!(volume.text("/status/phase"), "Released" | "Failed")
        && volume.text("/spec/persistentVolumeReclaimPolicy") == "Delete"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn who_deletes_the_storage_is_known_by_the_volume_and_the_drivers_of_the_cluster() {
        let mut facts = Facts::default();
        let drivers = GroupResource::new("storage.k8s.io", "csidrivers");
        facts.tell_object(drivers.clone(), "", "here.acme.dev", Knowledge::Present(json!({})));
        facts.tell_object(drivers.clone(), "", "gone.acme.dev", Knowledge::Absent);
        facts.tell_object(
            drivers,
            "",
            "hidden.acme.dev",
            Knowledge::Unreadable(crate::Unread::new(crate::UnreadCode::Forbidden, "forbidden")),
        );
        let csi = |driver: &str| json!({"csi": {"driver": driver, "volumeHandle": "h"}});
        let path = || json!({"hostPath": {"path": "/tmp/a"}});
        let found = |spec: Value, more: Value| {
            let mut volume =
                json!({"metadata": {"name": "v", "uid": "u", "resourceVersion": "1"}, "spec": spec});
            for (field, value) in more.as_object().into_iter().flatten() {
                volume["metadata"][field] = value.clone();
            }
            deleter(&Object::new(volume), &facts)
        };
        let none = || json!({});
        let claimed = |finalizer: &str| json!({"finalizers": [finalizer]});
        let by = |name: &str| json!({"annotations": {"pv.kubernetes.io/provisioned-by": name}});
        assert_eq!(found(csi("here.acme.dev"), none()), Deleter::Seen("CSI driver here.acme.dev".into()));
        assert_eq!(
            found(csi("hidden.acme.dev"), none()),
            Deleter::Unseen("CSI driver hidden.acme.dev".into())
        );
        assert!(matches!(found(csi("gone.acme.dev"), none()), Deleter::Missing(_)));
        assert!(matches!(found(csi("gone.acme.dev"), claimed(EXTERNAL_FINALIZER)), Deleter::Unseen(_)));
        assert!(matches!(found(path(), none()), Deleter::Missing(_)));
        assert!(matches!(found(path(), by("kubernetes.io/host-path")), Deleter::Missing(_)));
        assert!(matches!(found(path(), claimed(IN_TREE_FINALIZER)), Deleter::Unseen(_)));
        let local = Deleter::Unseen("provisioner rancher.io/local-path".into());
        assert_eq!(found(path(), by("rancher.io/local-path")), local);
        assert!(matches!(found(json!({"nfs": {"server": "s", "path": "/"}}), none()), Deleter::Missing(_)));
        let failed = json!({"spec": csi("here.acme.dev"), "status": {"phase": "Failed", "message": "busy"}});
        let failure = Deleter::Missing("its deletion has failed: busy".into());
        assert_eq!(deleter(&Object::new(failed), &facts), failure);
    }
}
