//! Claims and volumes that are in use.

use std::collections::BTreeMap;

use gc_collectors::objects::{Facts as Narrow, Kind};
use gc_collectors::volumes::in_use;
use gc_types::{ObjectKey, Timestamp, Uid};

use super::causes::COMMANDS;
use super::{CONTROLLER_PATIENCE_MILLISECONDS, Cause, Code, Diagnosis, Force, Hold, Holders, Row};
use crate::catalog::GroupResource;
use crate::commands::kubectl;
use crate::facts::{Facts, Knowledge};
use crate::object::Object;
use crate::storage::{self, Deleter};
use crate::survey::Metadata;
use crate::text;

/// Maximum number of pods that one message names.
const NAMED: usize = 3;
/// Kinds that recreate their pods until they are scaled down.
const SCALED: [&str; 3] = ["Deployment", "ReplicaSet", "StatefulSet"];

/// Time after which the storage of a volume should be deleted, before it is reported.
const STORAGE_PATIENCE_MILLISECONDS: i64 = 600_000;

/// Reads an object as the retention module of its kind does.
pub(crate) fn narrow(kind: Kind, object: &Object) -> Option<Narrow> {
    let json = serde_json::to_vec(object.value()).ok()?;
    Narrow::read(kind, &json).ok()
}

/// Returns the pods that use a claim, by the rule of the protection controller.
pub(crate) fn users<'a>(claim: &Object, facts: &'a Facts) -> Vec<&'a Object> {
    let Some(Narrow::Claim(read)) = narrow(Kind::Claim, claim) else { return Vec::new() };
    let pods = facts.all(&GroupResource::new("", "pods"), claim.namespace());
    let uses =
        |pod: &&Object| matches!(narrow(Kind::Pod, pod), Some(Narrow::Pod(pod)) if in_use(&read, &pod));
    pods.iter().filter(uses).collect()
}

impl Diagnosis<'_> {
    fn terminating_key(&self, resource: &GroupResource, namespace: &str, name: &str) -> Option<ObjectKey> {
        let id = self.survey.catalog.named(resource)?.id;
        let key = ObjectKey { resource: id, namespace: namespace.into(), name: name.into() };
        self.survey.terminating().contains_key(&key).then_some(key)
    }

    pub(super) fn claim(&self, key: &ObjectKey, metadata: &Metadata, object: Option<&Object>) -> Vec<Hold> {
        const FINALIZER: &str = "kubernetes.io/pvc-protection";
        let Some(claim) = object else { return Vec::new() };
        let pods = GroupResource::new("", "pods");
        if self.facts.list(&pods, &metadata.namespace).is_none() {
            return Vec::new();
        }
        let (mut holds, mut living) = (Vec::new(), Vec::new());
        for pod in users(claim, self.facts) {
            match self.terminating_key(&pods, pod.namespace(), pod.name()) {
                Some(pod) => holds.push(Hold::Object(pod)),
                None => living.push(pod),
            }
        }
        if !living.is_empty() {
            let names: Vec<String> = living.iter().map(|pod| pod.name().to_owned()).collect();
            holds.push(Hold::cause(Cause {
                code: Code::ClaimInUse,
                subject: format!("{}/{}", metadata.namespace, metadata.name),
                message: format!(
                    "in use by {} {}",
                    text::plural(names.len(), "Pod"),
                    text::some_of(&names, NAMED)
                ),
                help: self.ends_of(&living),
                force: Some(self.without(key, metadata, FINALIZER)),
            }));
        }
        if holds.is_empty() {
            holds.push(self.unprotected(key, metadata, FINALIZER, "no pod uses the claim"));
        }
        holds
    }

    /// Returns commands that end these pods: controllers that would recreate them are scaled down, other pods are deleted.
    fn ends_of(&self, pods: &[&Object]) -> Vec<String> {
        let controller = |uid: &Uid| {
            let owners = self.survey.engine.owners_of(uid);
            owners.into_iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.coordinates)
        };
        let mut commands = Vec::new();
        for pod in pods {
            let mut above = controller(&Uid::new(pod.uid()));
            if let Some(set) = above.clone().filter(|owner| &*owner.kind == "ReplicaSet") {
                above = controller(&set.uid).or(above);
            }
            let scaled = above.filter(|owner| SCALED.contains(&&*owner.kind));
            let command = match scaled {
                Some(owner) => {
                    let target = format!("{}/{}", owner.kind.to_lowercase(), owner.name);
                    kubectl(pod.namespace(), &["scale", &target, "--replicas=0"])
                }
                None => kubectl(pod.namespace(), &["delete", &format!("pod/{}", pod.name())]),
            };
            if !commands.contains(&command) && commands.len() < COMMANDS {
                commands.push(command);
            }
        }
        if let Some(first) = pods.first() {
            commands.insert(0, kubectl(first.namespace(), &["describe", &format!("pod/{}", first.name())]));
        }
        commands
    }

    fn unprotected(&self, key: &ObjectKey, metadata: &Metadata, finalizer: &str, fact: &str) -> Hold {
        Hold::cause(Cause {
            code: Code::ProtectionNotReleased,
            subject: finalizer.to_owned(),
            message: format!(
                "{fact}, and the protection controller has not removed {finalizer}; is it running?"
            ),
            help: vec!["kubegc doctor".into()],
            force: Some(self.without(key, metadata, finalizer)),
        })
    }

    pub(super) fn volume(&self, key: &ObjectKey, metadata: &Metadata, object: Option<&Object>) -> Vec<Hold> {
        const FINALIZER: &str = "kubernetes.io/pv-protection";
        let Some(volume) = object else { return Vec::new() };
        let (namespace, name) = (volume.text("/spec/claimRef/namespace"), volume.text("/spec/claimRef/name"));
        let claims = GroupResource::new("", "persistentvolumeclaims");
        if volume.text("/status/phase") != "Bound" || name.is_empty() {
            return vec![self.unprotected(key, metadata, FINALIZER, "no claim is bound to the volume")];
        }
        if let Some(claim) = self.terminating_key(&claims, namespace, name) {
            return vec![Hold::Object(claim)];
        }
        match self.facts.object(&claims, namespace, name) {
            None => Vec::new(),
            Some(Knowledge::Absent) => {
                vec![self.unprotected(
                    key,
                    metadata,
                    FINALIZER,
                    &format!("its claim {namespace}/{name} is gone"),
                )]
            }
            Some(_) => vec![Hold::cause(Cause {
                code: Code::VolumeInUse,
                subject: metadata.name.to_string(),
                message: format!("bound to PersistentVolumeClaim {namespace}/{name}"),
                help: vec![
                    kubectl(namespace, &["describe", &format!("pvc/{name}")]),
                    kubectl(namespace, &["delete", &format!("pvc/{name}")]),
                ],
                force: Some(self.without(key, metadata, FINALIZER)),
            })],
        }
    }

    /// Returns volumes whose claim is gone and whose storage should be deleted but is not, one row per reason.
    pub(super) fn unreclaimed(&self) -> Vec<Row> {
        let name = GroupResource::new("", "persistentvolumes");
        let Some(resource) = self.survey.catalog.named(&name) else { return Vec::new() };
        if self.survey.engine.select(|key| key.resource == resource.id).is_empty() {
            return Vec::new();
        }
        let now = self.facts.now();
        let mut groups: BTreeMap<String, Vec<(Option<Timestamp>, &Object)>> = BTreeMap::new();
        let awaits = |volume: &&Object| !volume.is_terminating() && storage::awaits_deletion(volume);
        for volume in self.facts.all(&name, "").iter().filter(awaits) {
            let since = volume.time("/status/lastPhaseTransitionTime");
            let waits = since.map_or(i64::MAX, |since| now.since(since));
            let reason = match storage::deleter(volume, self.facts) {
                Deleter::Missing(why) if waits >= CONTROLLER_PATIENCE_MILLISECONDS => why,
                Deleter::Seen(who) | Deleter::Unseen(who) if waits >= STORAGE_PATIENCE_MILLISECONDS => {
                    format!("{who} has not deleted it")
                }
                _ => continue,
            };
            groups.entry(reason).or_default().push((since, volume));
        }
        groups.into_iter().filter_map(|(reason, volumes)| self.unreclaimed_row(reason, volumes)).collect()
    }

    fn unreclaimed_row(&self, reason: String, mut volumes: Vec<(Option<Timestamp>, &Object)>) -> Option<Row> {
        volumes.sort_by_key(|(since, volume)| (since.is_none(), *since, volume.name().to_owned()));
        let (since, first) = *volumes.first()?;
        let reference = format!("pv/{}", first.name());
        let id = self.survey.catalog.named(&GroupResource::new("", "persistentvolumes"))?.id;
        let place = |volume: &Object| {
            let key = ObjectKey { resource: id, namespace: "".into(), name: volume.name().into() };
            self.place(&key, volume.uid())
        };
        let forced = |volume: &Object| {
            let command = kubectl("", &["delete", &format!("pv/{}", volume.name())]);
            Force::new(command, "its storage, which is then to be deleted by hand".to_owned())
        };
        let objects = volumes.iter().map(|(since, volume)| (place(volume), *since)).collect();
        let holders = volumes.iter().map(|(_, volume)| Holders {
            finalizers: volume.texts("/metadata/finalizers").map(str::to_owned).collect(),
            managers: Vec::new(),
            touched: volume.last_writer(),
        });
        Some(Row {
            cause: Cause {
                code: Code::StorageNotDeleted,
                message: format!("its claim is gone, and its storage is not deleted: {reason}"),
                help: vec![kubectl("", &["describe", &reference])],
                force: Some(forced(first)),
                subject: reason,
            },
            since,
            objects,
            holders: holders.collect(),
            waiting: Vec::new(),
            other_forces: volumes.iter().skip(1).take(COMMANDS).map(|(_, volume)| forced(volume)).collect(),
            unlisted_forces: volumes.len().saturating_sub(COMMANDS + 1),
        })
    }

    /// Returns the cause for a finalizer of the storage sidecars.
    pub(super) fn storage_finalizer(
        &self,
        key: &ObjectKey,
        metadata: &Metadata,
        object: &Object,
        finalizer: &str,
    ) -> Cause {
        let attachments = self.facts.all(&GroupResource::new("storage.k8s.io", "volumeattachments"), "");
        let attached = attachments
            .iter()
            .find(|attachment| attachment.text("/spec/source/persistentVolumeName") == &*metadata.name);
        if let Some(attachment) = attached.filter(|attachment| attachment.name() != object.name()) {
            let node = attachment.text("/spec/nodeName");
            return Cause {
                code: Code::VolumeAttached,
                subject: metadata.name.to_string(),
                message: format!("attached to node {node} by VolumeAttachment {}", attachment.name()),
                help: vec![kubectl("", &["describe", &format!("volumeattachment/{}", attachment.name())])],
                force: Some(self.without(key, metadata, finalizer)),
            };
        }
        let driver = match object.text("/spec/csi/driver") {
            "" => object.text("/spec/attacher"),
            driver => driver,
        };
        let mark = if driver.is_empty() { finalizer } else { driver };
        self.held(key, metadata, Some(object), finalizer, mark)
    }
}
