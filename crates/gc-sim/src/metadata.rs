//! Metadata as adapters read it: from the stored text of an object, without reading the rest.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use gc_registry::api::Object;
use gc_types::{
    Coordinates, DeletionState, Marks, ObjectKey, ObservedObject, OwnerReference, ResourceId,
    ResourceVersion, Timestamp, Uid,
};
use serde::Deserialize;

/// Bytes before the metadata in every stored object.
const BEFORE: usize = b"{\"metadata\":".len();

/// The fields of metadata that are needed here. (No name, UID or finalizer needs an escape in JSON.)
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata<'a> {
    /// `name`
    pub name: &'a str,
    /// `namespace`; empty at cluster scope.
    pub namespace: &'a str,
    /// `uid`
    pub uid: &'a str,
    /// `finalizers`
    #[serde(borrow)]
    pub finalizers: Vec<&'a str>,
    /// `deletionTimestamp`
    pub deletion_timestamp: Option<&'a str>,
    /// `deletionGracePeriodSeconds`
    pub deletion_grace_period_seconds: Option<i64>,
    /// `creationTimestamp`
    pub creation_timestamp: Option<&'a str>,
    /// `annotations`
    pub annotations: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    #[serde(borrow)]
    owner_references: Vec<Reference<'a>>,
    /// Version of the object, which is not part of the stored text.
    #[serde(skip)]
    pub resource_version: ResourceVersion,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Reference<'a> {
    api_version: &'a str,
    kind: &'a str,
    name: &'a str,
    uid: &'a str,
    controller: Option<bool>,
    block_owner_deletion: Option<bool>,
}

impl<'a> Metadata<'a> {
    /// Reads the metadata of an object as stored at a revision.
    #[must_use]
    pub fn stored(object: &'a [u8], revision: u64) -> Option<Self> {
        Self::read(object.get(BEFORE..)?, revision)
    }

    /// Reads the metadata of an object in a response.
    #[must_use]
    pub fn of(object: &'a Object) -> Option<Self> {
        let Some((text, revision)) = object.stored_metadata() else {
            // The object was converted to today's schema, so it is a value.
            let value = object.metadata().ok()?;
            let mut metadata = Self::deserialize(value).ok()?;
            metadata.resource_version = ResourceVersion(value["resourceVersion"].as_str()?.parse().ok()?);
            return Some(metadata);
        };
        Self::read(text, revision.0)
    }

    fn read(text: &'a [u8], revision: u64) -> Option<Self> {
        let mut metadata: Self = serde_json::Deserializer::from_slice(text).into_iter().next()?.ok()?;
        metadata.resource_version = ResourceVersion(revision);
        Some(metadata)
    }

    /// Returns the retention annotations, if there are any.
    #[must_use]
    pub fn marks(&self) -> Option<Marks> {
        let mark = |name: &str| self.annotations.get(name).map(|text| Arc::from(&**text));
        let created = self.creation_timestamp.and_then(|text| text.parse::<jiff::Timestamp>().ok());
        let marks = Marks {
            created: created.map(|at| Timestamp(at.as_millisecond())),
            ttl: mark("kubegc.io/ttl"),
            expires_at: mark("kubegc.io/expires-at"),
            keep: mark("kubegc.io/keep"),
            ..Marks::default()
        };
        (!marks.is_empty()).then_some(marks)
    }

    /// Returns the engine's view of the object.
    #[must_use]
    pub fn observed(&self, resource: ResourceId) -> ObservedObject {
        let owners = self.owner_references.iter().map(|owner| OwnerReference {
            coordinates: Coordinates {
                api_version: owner.api_version.into(),
                kind: owner.kind.into(),
                name: owner.name.into(),
                uid: Uid::new(owner.uid),
            },
            controller: owner.controller,
            block_owner_deletion: owner.block_owner_deletion,
        });
        let foreign = |name: &&str| !matches!(*name, "foregroundDeletion" | "orphan");
        ObservedObject {
            key: ObjectKey { resource, namespace: self.namespace.into(), name: self.name.into() },
            uid: Uid::new(self.uid),
            resource_version: self.resource_version,
            owners: owners.collect(),
            deletion: DeletionState {
                deleting: self.deletion_timestamp.is_some(),
                foreground: self.finalizers.contains(&"foregroundDeletion"),
                orphan: self.finalizers.contains(&"orphan"),
                foreign_finalizers: self.finalizers.iter().any(foreign),
            },
            recreator: None,
        }
    }
}

/// Returns the engine's view of an object in a response.
#[must_use]
pub fn observed(object: &Object, resource: ResourceId) -> Option<ObservedObject> {
    Metadata::of(object).map(|metadata| metadata.observed(resource))
}
