//! Metadata that every kind of facts has, and its representation in an object's JSON.

use std::sync::Arc;

use gc_types::{Marks, ResourceVersion, Texts, Timestamp, Uid, read_texts};
use serde::Deserialize;

/// Metadata that every decision needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Namespace; empty at cluster scope.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// UID.
    pub uid: Uid,
    /// Version that these facts were read from.
    pub resource_version: ResourceVersion,
    /// `creationTimestamp`, if it is valid.
    pub created: Option<Timestamp>,
    /// True if it has a `deletionTimestamp`.
    pub deleting: bool,
    /// Retention annotations of the object, if it has any.
    pub marks: Option<Arc<Marks>>,
}

impl Meta {
    /// Reports whether `kubegc.io/keep` forbids kubegc to delete it.
    #[must_use]
    pub fn keeps(&self) -> bool {
        self.marks.as_ref().is_some_and(|marks| marks.keeps())
    }
}

/// Facts with metadata.
pub(crate) trait HasMeta {
    fn meta(&self) -> &Meta;
}

/// Metadata of an object in JSON.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WireMeta {
    namespace: String,
    name: String,
    uid: String,
    resource_version: String,
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<String>,
    pub(crate) deletion_grace_period_seconds: Option<i64>,
    pub(crate) generation: i64,
    pub(crate) finalizers: Option<Vec<String>>,
    pub(crate) owner_references: Option<Vec<WireOwner>>,
    #[serde(deserialize_with = "read_texts")]
    pub(crate) labels: WireLabels,
    #[serde(deserialize_with = "read_texts")]
    pub(crate) annotations: WireAnnotations,
}

/// Annotations that decisions depend on.
#[derive(Debug, Default)]
pub(crate) struct WireAnnotations {
    pub(crate) provisioned_by: Option<Arc<str>>,
    pub(crate) migrated_to: Option<Arc<str>>,
    pub(crate) secret_name: Option<Arc<str>>,
    pub(crate) secret_namespace: Option<Arc<str>>,
    pub(crate) service_account: Option<Arc<str>>,
    pub(crate) service_account_uid: Option<Arc<str>>,
    marks: Marks,
}

impl Texts for WireAnnotations {
    fn text_mut(&mut self, name: &[u8]) -> Option<&mut Option<Arc<str>>> {
        Some(match name {
            b"pv.kubernetes.io/provisioned-by" => &mut self.provisioned_by,
            b"pv.kubernetes.io/migrated-to" => &mut self.migrated_to,
            b"volume.kubernetes.io/provisioner-deletion-secret-name" => &mut self.secret_name,
            b"volume.kubernetes.io/provisioner-deletion-secret-namespace" => &mut self.secret_namespace,
            b"kubernetes.io/service-account.name" => &mut self.service_account,
            b"kubernetes.io/service-account.uid" => &mut self.service_account_uid,
            _ => return self.marks.annotation_mut(name),
        })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireOwner {
    pub(crate) uid: String,
    pub(crate) controller: Option<bool>,
}

/// Labels that decisions depend on.
#[derive(Debug, Default)]
pub(crate) struct WireLabels {
    pub(crate) identity: Option<Arc<str>>,
    pub(crate) last_used: Option<Arc<str>>,
    pub(crate) invalid_since: Option<Arc<str>>,
    zone: Option<Arc<str>>,
    zone_before: Option<Arc<str>>,
    marks: Marks,
}

impl Texts for WireLabels {
    fn text_mut(&mut self, name: &[u8]) -> Option<&mut Option<Arc<str>>> {
        Some(match name {
            b"apiserver.kubernetes.io/identity" => &mut self.identity,
            b"kubernetes.io/legacy-token-last-used" => &mut self.last_used,
            b"kubernetes.io/legacy-token-invalid-since" => &mut self.invalid_since,
            b"topology.kubernetes.io/zone" => &mut self.zone,
            b"failure-domain.beta.kubernetes.io/zone" => &mut self.zone_before,
            _ => return self.marks.label_mut(name),
        })
    }
}

impl WireLabels {
    /// Returns the zone or zones of an object.
    pub(crate) fn zones(&self) -> Option<&str> {
        self.zone.as_deref().or(self.zone_before.as_deref())
    }
}

/// A condition in the form that most kinds use.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WireCondition {
    pub(crate) r#type: String,
    pub(crate) status: String,
    pub(crate) last_transition_time: Option<String>,
    pub(crate) last_update_time: Option<String>,
}

impl WireMeta {
    pub(crate) fn finalizers(&self) -> Vec<Arc<str>> {
        self.finalizers.iter().flatten().map(|finalizer| finalizer.as_str().into()).collect()
    }
}

impl From<&WireMeta> for Meta {
    fn from(wire: &WireMeta) -> Self {
        let created = parse_time(wire.creation_timestamp.as_deref());
        let marks = Marks { created, ..wire.annotations.marks.clone().with_labels(&wire.labels.marks) };
        Self {
            namespace: wire.namespace.as_str().into(),
            name: wire.name.as_str().into(),
            uid: Uid::new(&wire.uid),
            resource_version: ResourceVersion::parse(&wire.resource_version),
            created,
            deleting: wire.deletion_timestamp.is_some(),
            marks: (!marks.is_empty()).then(|| marks.into()),
        }
    }
}

/// Parses a time in the API's format; `None` if absent, zero or invalid.
pub(crate) fn parse_time(text: Option<&str>) -> Option<Timestamp> {
    let time: jiff::Timestamp = text?.parse().ok()?;
    // Go's zero time is in the year 1.
    (time.as_second() > -62_135_596_800).then(|| Timestamp(time.as_millisecond()))
}

/// Formats a time in whole seconds in the API's format.
pub(crate) fn time_text(time: Timestamp) -> String {
    let seconds = time.0.div_euclid(1000);
    jiff::Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_default()
}
