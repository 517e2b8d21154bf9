//! Metadata of all objects in scope, in the ownership engine that the collector uses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gc_ownership::{Config, Engine};
use gc_types::{
    Coordinates, DeletionState, EffectId, Event, Marks, ObjectKey, ObservedObject, Outcome, OwnerReference,
    Recreator, Request, ResourceId, ResourceVersion, Timestamp, TrackingMark, Uid,
};
use serde::Deserialize;

use crate::catalog::{Catalog, Resource};
use crate::object::parse_time;
use crate::unread::{UnlistedReason, Unread, UnreadPlace};

/// Maximum number of live reads of owners that were in no list; further owners count as unresolved.
pub const MAX_OWNER_READS: usize = 2_000;

/// Lead of the engine's clock while owners are resolved: enough for its retries, too little for its polls.
const LOOK_AHEAD_MILLISECONDS: i64 = 60;

/// Metadata of one object.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WireObject")]
pub struct Metadata {
    /// Namespace; empty at cluster scope.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// UID.
    pub uid: Uid,
    /// Resource version.
    pub resource_version: ResourceVersion,
    /// `creationTimestamp`
    pub created: Option<Timestamp>,
    /// `deletionTimestamp`
    pub deleted: Option<Timestamp>,
    /// `deletionGracePeriodSeconds`
    pub grace_seconds: Option<i64>,
    /// Finalizers.
    pub finalizers: Vec<String>,
    /// Owner references.
    pub owners: Vec<OwnerReference>,
    /// Controller or tool that recreates it.
    pub recreator: Option<Recreator>,
    /// Retention annotations, if it has any.
    pub marks: Option<Box<Marks>>,
}

#[derive(Deserialize)]
struct WireObject {
    #[serde(default)]
    metadata: WireMetadata,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireMetadata {
    namespace: String,
    name: String,
    uid: String,
    resource_version: String,
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<String>,
    deletion_grace_period_seconds: Option<i64>,
    finalizers: Option<Vec<String>>,
    owner_references: Option<Vec<WireOwner>>,
    labels: Option<WireLabels>,
    annotations: Option<WireAnnotations>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireOwner {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    controller: Option<bool>,
    block_owner_deletion: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireLabels {
    #[serde(rename = "argocd.argoproj.io/instance")]
    argo: Option<String>,
    #[serde(rename = "kustomize.toolkit.fluxcd.io/name")]
    flux: Option<String>,
    #[serde(rename = "helm.toolkit.fluxcd.io/name")]
    flux_helm: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireAnnotations {
    #[serde(rename = "argocd.argoproj.io/tracking-id")]
    argo: Option<String>,
    #[serde(rename = "meta.helm.sh/release-name")]
    helm: Option<String>,
    #[serde(rename = "kubegc.io/ttl")]
    ttl: Option<String>,
    #[serde(rename = "kubegc.io/expires-at")]
    expires_at: Option<String>,
    #[serde(rename = "kubegc.io/keep")]
    keep: Option<String>,
}

/// Returns the controller or tool that recreates an object, by its strongest mark.
fn recreator(labels: WireLabels, annotations: &mut WireAnnotations) -> Option<Recreator> {
    let marks = [
        (TrackingMark::ArgoCdTrackingId, annotations.argo.take()),
        (TrackingMark::ArgoCdInstance, labels.argo),
        (TrackingMark::FluxKustomization, labels.flux),
        (TrackingMark::FluxHelmRelease, labels.flux_helm),
        (TrackingMark::HelmRelease, annotations.helm.take()),
    ];
    marks.into_iter().find_map(|(mark, content)| mark.recreator(&content?, |name| name.into()))
}

impl From<WireObject> for Metadata {
    fn from(wire: WireObject) -> Self {
        let meta = wire.metadata;
        let time = |text: Option<String>| text.as_deref().and_then(parse_time);
        let owner = |wire: WireOwner| OwnerReference {
            coordinates: Coordinates {
                api_version: wire.api_version.into(),
                kind: wire.kind.into(),
                name: wire.name.into(),
                uid: Uid::new(&wire.uid),
            },
            controller: wire.controller,
            block_owner_deletion: wire.block_owner_deletion,
        };
        let (labels, mut annotations) =
            (meta.labels.unwrap_or_default(), meta.annotations.unwrap_or_default());
        let created = time(meta.creation_timestamp);
        let marks = Marks {
            created,
            ttl: annotations.ttl.take().map(Into::into),
            expires_at: annotations.expires_at.take().map(Into::into),
            keep: annotations.keep.take().map(Into::into),
            ..Marks::default()
        };
        Self {
            namespace: meta.namespace.into(),
            name: meta.name.into(),
            uid: Uid::new(&meta.uid),
            resource_version: ResourceVersion::parse(&meta.resource_version),
            created,
            deleted: time(meta.deletion_timestamp),
            grace_seconds: meta.deletion_grace_period_seconds,
            finalizers: meta.finalizers.unwrap_or_default(),
            owners: meta.owner_references.unwrap_or_default().into_iter().map(owner).collect(),
            recreator: recreator(labels, &mut annotations),
            marks: (!marks.is_empty()).then(|| Box::new(marks)),
        }
    }
}

impl Metadata {
    /// Returns its key.
    #[must_use]
    pub fn key(&self, resource: ResourceId) -> ObjectKey {
        ObjectKey { resource, namespace: Arc::clone(&self.namespace), name: Arc::clone(&self.name) }
    }

    /// Returns the part that the engine needs.
    #[must_use]
    pub fn observed(&self, resource: ResourceId) -> ObservedObject {
        let has = |name: &str| self.finalizers.iter().any(|finalizer| finalizer == name);
        let is_foreign = |finalizer: &String| !matches!(finalizer.as_str(), "foregroundDeletion" | "orphan");
        ObservedObject {
            key: self.key(resource),
            uid: self.uid.clone(),
            resource_version: self.resource_version,
            owners: self.owners.iter().cloned().collect(),
            deletion: DeletionState {
                deleting: self.deleted.is_some(),
                foreground: has("foregroundDeletion"),
                orphan: has("orphan"),
                foreign_finalizers: self.finalizers.iter().any(is_foreign),
            },
            recreator: self.recreator.clone(),
        }
    }
}

/// One page of a list of metadata.
#[derive(Debug, Deserialize)]
pub struct Page {
    /// Metadata of the list.
    #[serde(default)]
    metadata: PageMetadata,
    /// Objects of the page.
    #[serde(default)]
    items: Option<Vec<Metadata>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PageMetadata {
    resource_version: String,
    r#continue: Option<String>,
}

impl Page {
    /// Reads the JSON of a `PartialObjectMetadataList`, or of any list.
    pub fn read(json: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }

    /// Returns the token for the next page; `None` on the last one.
    #[must_use]
    pub fn next(&self) -> Option<&str> {
        self.metadata.r#continue.as_deref().filter(|token| !token.is_empty())
    }

    /// Returns the version of the list.
    #[must_use]
    pub fn version(&self) -> ResourceVersion {
        ResourceVersion::parse(&self.metadata.resource_version)
    }

    /// Returns its objects.
    #[must_use]
    pub fn into_items(self) -> Vec<Metadata> {
        self.items.unwrap_or_default()
    }
}

/// Metadata of all objects in scope.
#[derive(Debug)]
pub struct Survey {
    /// Resources of the server.
    pub catalog: Catalog,
    /// Ownership graph.
    pub engine: Engine,
    now: Timestamp,
    terminating: BTreeMap<ObjectKey, Metadata>,
    finalizers: BTreeMap<ObjectKey, Vec<String>>,
    marks: BTreeMap<ObjectKey, (Uid, Marks)>,
    unlisted: BTreeMap<ResourceId, UnlistedReason>,
    reads: BTreeSet<EffectId>,
    asked: usize,
}

impl Survey {
    /// Creates an empty survey, before anything is listed.
    #[must_use]
    pub fn new(catalog: Catalog, now: Timestamp) -> Self {
        // Effects that are never performed stay in flight and must not delay reads.
        let config = Config {
            awaits_lists: false,
            effects_in_flight: usize::MAX,
            startup_wait_milliseconds: 0,
            verify_patience_milliseconds: 0,
            ..Config::default()
        };
        let mut engine = Engine::new(config);
        engine.handle(Event::Tick(now));
        for resource in catalog.all().iter().filter(|resource| resource.is_collectable()) {
            engine.handle(Event::ResourceServed(resource.info()));
        }
        Self {
            catalog,
            engine,
            now,
            terminating: BTreeMap::new(),
            finalizers: BTreeMap::new(),
            marks: BTreeMap::new(),
            unlisted: BTreeMap::new(),
            reads: BTreeSet::new(),
            asked: 0,
        }
    }

    /// Adds an object that was read.
    pub fn observe(&mut self, resource: ResourceId, metadata: Metadata) {
        let key = metadata.key(resource);
        self.engine.handle(Event::Observed(metadata.observed(resource)));
        if !metadata.finalizers.is_empty() {
            self.finalizers.insert(key.clone(), metadata.finalizers.clone());
        }
        if let Some(marks) = &metadata.marks {
            self.marks.insert(key.clone(), (metadata.uid.clone(), (**marks).clone()));
        }
        if metadata.deleted.is_some() {
            self.terminating.insert(key, metadata);
        }
    }

    /// Adds an object that is known to have no finalizers and not to be terminating, so that only its owners matter.
    pub fn observe_known(&mut self, resource: ResourceId, mut object: ObservedObject) {
        object.key.resource = resource;
        self.engine.handle(Event::Observed(object));
    }

    /// Records that a resource was listed completely.
    pub fn listed(&mut self, resource: ResourceId, resource_version: ResourceVersion) {
        self.engine.handle(Event::Synced { resource, resource_version });
    }

    /// Records that a resource could not be listed, with the reason.
    pub fn not_listed(&mut self, resource: ResourceId, why: UnlistedReason) {
        self.unlisted.insert(resource, why);
    }

    /// Records that everything that can be listed has been.
    pub fn complete(&mut self) {
        self.engine.handle(Event::Discovered);
        self.engine.handle(Event::Tick(self.now.after(1)));
    }

    /// Returns the next owner to read, if any is in no list.
    pub fn next_read(&mut self) -> Option<(EffectId, ObjectKey)> {
        loop {
            while let Some(effect) = self.engine.poll_effect() {
                if let Request::Read { key } = effect.request
                    && self.asked < MAX_OWNER_READS
                {
                    self.asked += 1;
                    self.reads.insert(effect.id);
                    return Some((effect.id, key));
                }
            }
            // The engine's short delays, such as for a repeated read, are skipped.
            let horizon = self.now.after(LOOK_AHEAD_MILLISECONDS);
            let due = self.engine.next_wakeup()?.max(self.engine.now().after(1));
            if due > horizon || !self.reads.is_empty() {
                return None;
            }
            self.engine.handle(Event::Tick(due));
        }
    }

    /// Passes the result of a read to the engine.
    pub fn answer_read(&mut self, id: EffectId, outcome: Outcome) {
        if self.reads.remove(&id) {
            self.engine.handle(Event::Done(id, outcome));
        }
    }

    /// Returns the time of the survey.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// Returns the terminating objects by key.
    #[must_use]
    pub const fn terminating(&self) -> &BTreeMap<ObjectKey, Metadata> {
        &self.terminating
    }

    /// Returns the retention annotations by key, with the UIDs of their objects.
    #[must_use]
    pub const fn marks(&self) -> &BTreeMap<ObjectKey, (Uid, Marks)> {
        &self.marks
    }

    /// Returns the finalizers of an object.
    #[must_use]
    pub fn finalizers(&self, key: &ObjectKey) -> &[String] {
        self.finalizers.get(key).map_or(&[], Vec::as_slice)
    }

    /// Returns the resources that could not be listed, each with the reason.
    #[must_use]
    pub const fn unlisted(&self) -> &BTreeMap<ResourceId, UnlistedReason> {
        &self.unlisted
    }

    /// Returns the same for lists in this namespace (in all, if empty).
    pub fn unread<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = UnreadPlace> + 'a {
        self.unlisted.iter().filter_map(move |(id, why)| {
            let Unread { code, message } = why.clone().into();
            let resource = self.catalog.get(*id)?.name.to_string();
            Some(UnreadPlace {
                resource,
                namespace: namespace.to_owned(),
                name: String::new(),
                code,
                message,
            })
        })
    }

    /// Returns the resource of an object.
    #[must_use]
    pub fn resource(&self, key: &ObjectKey) -> Option<&Resource> {
        self.catalog.get(key.resource)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use gc_ownership::Conclusion;
    use serde_json::json;

    /// An owner that is in no list is read, even if nothing was listed at all.
    #[test]
    fn owners_that_were_not_listed_are_looked_up() {
        let core = br#"{"items":[{"versions":[{"version":"v1","freshness":"Current","resources":[{"resource":"configmaps",
            "responseKind":{"kind":"ConfigMap"},"scope":"Namespaced","verbs":["list","delete"]}]}]}]}"#;
        let object = json!({"metadata": {"namespace": "n", "name": "a", "uid": "u", "resourceVersion": "1", "ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "v"}]}});
        let mut survey = Survey::new(Catalog::read(core, br#"{"items":[]}"#).unwrap(), Timestamp(1_000));
        survey.observe(ResourceId(0), serde_json::from_value(object).unwrap());
        survey.complete();
        let (id, key) = survey.next_read().unwrap();
        assert_eq!((&*key.namespace, &*key.name, survey.next_read()), ("n", "gone", None));
        survey.answer_read(id, Outcome::Absent);
        assert_eq!(survey.next_read(), None);
        let why = survey.engine.why(&Uid::new("u")).unwrap();
        assert_eq!(why.conclusion, Conclusion::ToBeDeleted(gc_types::Verdict::OwnersAbsent));
    }
}
