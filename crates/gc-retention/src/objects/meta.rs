//! Metadata, as every kind of facts has it, and what is read of an object's JSON for it.

use std::sync::Arc;

use gc_types::{ForeignMark, Marks, ResourceVersion, Timestamp, Uid};
use serde::Deserialize;

/// The metadata that every decision needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Namespace; empty at cluster scope.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// UID.
    pub uid: Uid,
    /// The version that these facts were read from.
    pub resource_version: ResourceVersion,
    /// `creationTimestamp`, if it is valid.
    pub created: Option<Timestamp>,
    /// Whether it has a `deletionTimestamp`.
    pub deleting: bool,
    /// Its retention annotations, if it has any.
    pub marks: Option<Arc<Marks>>,
}

impl Meta {
    /// Whether `kubegc.io/keep` forbids kubegc to delete it.
    #[must_use]
    pub fn keeps(&self) -> bool {
        self.marks.as_ref().is_some_and(|marks| marks.keeps())
    }
}

/// Facts with metadata.
pub(crate) trait HasMeta {
    fn meta(&self) -> &Meta;
}

/// The metadata of an object in JSON.
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
    pub(crate) labels: Option<WireLabels>,
    pub(crate) annotations: Option<WireAnnotations>,
}

/// The annotations that decisions depend on.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireAnnotations {
    #[serde(rename = "pv.kubernetes.io/provisioned-by")]
    pub(crate) provisioned_by: Option<String>,
    #[serde(rename = "pv.kubernetes.io/migrated-to")]
    pub(crate) migrated_to: Option<String>,
    #[serde(rename = "volume.kubernetes.io/provisioner-deletion-secret-name")]
    pub(crate) secret_name: Option<String>,
    #[serde(rename = "volume.kubernetes.io/provisioner-deletion-secret-namespace")]
    pub(crate) secret_namespace: Option<String>,
    #[serde(rename = "kubernetes.io/service-account.name")]
    pub(crate) service_account: Option<String>,
    #[serde(rename = "kubernetes.io/service-account.uid")]
    pub(crate) service_account_uid: Option<String>,
    #[serde(rename = "kubegc.io/ttl")]
    ttl: Option<String>,
    #[serde(rename = "kubegc.io/expires-at")]
    expires_at: Option<String>,
    #[serde(rename = "kubegc.io/keep")]
    keep: Option<String>,
    #[serde(rename = "janitor/ttl")]
    janitor_ttl: Option<String>,
    #[serde(rename = "janitor/expires")]
    janitor_expires: Option<String>,
    #[serde(rename = "k8s-ttl-controller.twin.sh/ttl")]
    ttl_controller: Option<String>,
    #[serde(rename = "k8s-ttl-controller.twin.sh/refreshed-at")]
    ttl_controller_refreshed: Option<String>,
}

impl WireAnnotations {
    fn marks(&self, labels: Option<&WireLabels>, created: Option<Timestamp>) -> Option<Arc<Marks>> {
        let shared = |text: &Option<String>| text.as_deref().map(Arc::from);
        let (ttl, expires_at, keep) = (shared(&self.ttl), shared(&self.expires_at), shared(&self.keep));
        let foreign = [
            (ForeignMark::JanitorTtl, &self.janitor_ttl),
            (ForeignMark::JanitorExpires, &self.janitor_expires),
            (ForeignMark::TtlController, &self.ttl_controller),
            (ForeignMark::TtlControllerRefreshed, &self.ttl_controller_refreshed),
            (ForeignMark::Kyverno, labels.map_or(&None, |labels| &labels.kyverno)),
        ];
        let foreign = foreign.into_iter().filter_map(|(mark, text)| Some((mark, shared(text)?))).collect();
        let marks = Marks { created, ttl, expires_at, keep, foreign };
        (!marks.is_empty()).then(|| marks.into())
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireOwner {
    pub(crate) uid: String,
    pub(crate) controller: Option<bool>,
}

/// The labels that decisions depend on.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireLabels {
    #[serde(rename = "apiserver.kubernetes.io/identity")]
    pub(crate) identity: Option<String>,
    #[serde(rename = "kubernetes.io/legacy-token-last-used")]
    pub(crate) last_used: Option<String>,
    #[serde(rename = "kubernetes.io/legacy-token-invalid-since")]
    pub(crate) invalid_since: Option<String>,
    #[serde(rename = "topology.kubernetes.io/zone")]
    zone: Option<String>,
    #[serde(rename = "failure-domain.beta.kubernetes.io/zone")]
    zone_before: Option<String>,
    #[serde(rename = "cleanup.kyverno.io/ttl")]
    kyverno: Option<String>,
}

impl WireLabels {
    /// The zone, or the zones, of an object.
    pub(crate) fn zones(&self) -> Option<&str> {
        self.zone.as_deref().or(self.zone_before.as_deref())
    }
}

/// A condition as most kinds have them.
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
        Self {
            namespace: wire.namespace.as_str().into(),
            name: wire.name.as_str().into(),
            uid: Uid::new(&wire.uid),
            resource_version: ResourceVersion::parse(&wire.resource_version),
            created: parse_time(wire.creation_timestamp.as_deref()),
            deleting: wire.deletion_timestamp.is_some(),
            marks: wire
                .annotations
                .as_ref()
                .unwrap_or(&WireAnnotations::default())
                .marks(wire.labels.as_ref(), parse_time(wire.creation_timestamp.as_deref())),
        }
    }
}

/// A time in the API's format; absent, zero and invalid ones are `None`.
pub(crate) fn parse_time(text: Option<&str>) -> Option<Timestamp> {
    let time: jiff::Timestamp = text?.parse().ok()?;
    // Go's zero time is in the year 1.
    (time.as_second() > -62_135_596_800).then(|| Timestamp(time.as_millisecond()))
}

/// A time in whole seconds in the API's format.
pub(crate) fn time_text(time: Timestamp) -> String {
    let seconds = time.0.div_euclid(1000);
    jiff::Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_default()
}
