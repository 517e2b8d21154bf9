//! The facts that collectors of cluster objects keep of an object: a few fields, parsed from its JSON.
//!
//! Each kind of facts deserializes from a whole object and keeps only the fields that decisions need.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gc_types::{
    ForeignMark, Gvr, Marks, ObjectKey, ResourceId, ResourceInfo, ResourceVersion, Scope, Timestamp, Uid,
};
use serde::Deserialize;

use crate::certificates::SigningRequest;
use crate::jobs::Job;
use crate::lease_candidates::LeaseCandidate;
use crate::leases::Lease;
use crate::pod_certificates::PodCertificate;
use crate::pods::{Node, Pod};
use crate::storage_versions::StorageVersion;
use crate::tokens::{SecretUser, ServiceAccount, TokenSecret, TokenTracking};
use crate::volume_attributes::AttributesClass;
use crate::volumes::{Claim, Volume};
use crate::volumes_reclaim::Attachment;

macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $kind:ident: $facts:ty;)*) => {
        /// A kind that some collector watches.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $($(#[doc = $doc])* $kind,)*
        }

        impl Kind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];
        }

        /// The facts of one object.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Facts {
            $($(#[doc = $doc])* $kind($facts),)*
        }

        impl Facts {
            /// Reads the JSON of an object of this kind.
            pub fn read(kind: Kind, json: &[u8]) -> Result<Self, FactsError> {
                Ok(match kind {
                    $(Kind::$kind => Self::$kind(serde_json::from_slice(json)?),)*
                })
            }

            /// Its metadata.
            #[must_use]
            pub fn meta(&self) -> &Meta {
                match self {
                    $(Self::$kind(facts) => &facts.meta,)*
                }
            }

            /// Its metadata, mutable.
            pub fn meta_mut(&mut self) -> &mut Meta {
                match self {
                    $(Self::$kind(facts) => &mut facts.meta,)*
                }
            }

            /// Its kind.
            #[must_use]
            pub const fn kind(&self) -> Kind {
                match self {
                    $(Self::$kind(_) => Kind::$kind,)*
                }
            }
        }

        impl FactsPage {
            /// Reads the JSON of a list of objects of this kind.
            pub fn read(kind: Kind, json: &[u8]) -> Result<Self, FactsError> {
                match kind {
                    $(Kind::$kind => page(json, Facts::$kind),)*
                }
            }
        }

        impl FactsEvent {
            /// Reads a line of a watch of this kind, with the object's resourceVersion.
            pub fn read(kind: Kind, json: &[u8]) -> Result<(Self, String), FactsError> {
                match kind {
                    $(Kind::$kind => event(json, Facts::$kind),)*
                }
            }
        }
    };
}

kinds! {
    /// `v1` Pod
    Pod: Pod;
    /// `v1` Node
    Node: Node;
    /// `batch/v1` Job
    Job: Job;
    /// `certificates.k8s.io/v1` CertificateSigningRequest
    SigningRequest: SigningRequest;
    /// `v1` PersistentVolume
    Volume: Volume;
    /// `v1` PersistentVolumeClaim
    Claim: Claim;
    /// `coordination.k8s.io/v1` Lease
    Lease: Lease;
    /// `storage.k8s.io/v1` VolumeAttachment
    Attachment: Attachment;
    /// `certificates.k8s.io/v1beta1` PodCertificateRequest
    PodCertificate: PodCertificate;
    /// `coordination.k8s.io/v1beta1` LeaseCandidate
    LeaseCandidate: LeaseCandidate;
    /// `v1` Secret of type `kubernetes.io/service-account-token`, its metadata alone
    TokenSecret: TokenSecret;
    /// `v1` ServiceAccount
    ServiceAccount: ServiceAccount;
    /// The `v1` ConfigMap with the date since which uses of tokens are tracked
    TokenTracking: TokenTracking;
    /// `v1` Pod, and only the names of the Secrets that it uses
    SecretUser: SecretUser;
    /// `internal.apiserver.k8s.io/v1alpha1` StorageVersion
    StorageVersion: StorageVersion;
    /// `coordination.k8s.io/v1` Lease in `kube-system`
    SystemLease: Lease;
    /// `storage.k8s.io/v1` VolumeAttributesClass
    AttributesClass: AttributesClass;
}

/// The part of a resource that is requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only this namespace, unless it is empty.
    pub namespace: &'static str,
    /// A field selector; empty selects all.
    pub field_selector: &'static str,
    /// Only the metadata of objects.
    pub metadata_only: bool,
}

impl Kind {
    /// The number by which requests identify the kind's resource.
    #[must_use]
    pub const fn resource(self) -> ResourceId {
        ResourceId(self as u32)
    }

    /// Where the resource is served.
    #[must_use]
    pub fn info(self) -> ResourceInfo {
        let (group, resource, kind, scope) = match self {
            Self::Pod | Self::SecretUser => ("", "pods", "Pod", Scope::Namespaced),
            Self::Node => ("", "nodes", "Node", Scope::Cluster),
            Self::Job => ("batch", "jobs", "Job", Scope::Namespaced),
            Self::SigningRequest => (
                "certificates.k8s.io",
                "certificatesigningrequests",
                "CertificateSigningRequest",
                Scope::Cluster,
            ),
            Self::Volume => ("", "persistentvolumes", "PersistentVolume", Scope::Cluster),
            Self::Claim => ("", "persistentvolumeclaims", "PersistentVolumeClaim", Scope::Namespaced),
            Self::Lease | Self::SystemLease => ("coordination.k8s.io", "leases", "Lease", Scope::Namespaced),
            Self::Attachment => ("storage.k8s.io", "volumeattachments", "VolumeAttachment", Scope::Cluster),
            Self::AttributesClass => {
                ("storage.k8s.io", "volumeattributesclasses", "VolumeAttributesClass", Scope::Cluster)
            }
            Self::PodCertificate => {
                ("certificates.k8s.io", "podcertificaterequests", "PodCertificateRequest", Scope::Namespaced)
            }
            Self::LeaseCandidate => {
                ("coordination.k8s.io", "leasecandidates", "LeaseCandidate", Scope::Namespaced)
            }
            Self::TokenSecret => ("", "secrets", "Secret", Scope::Namespaced),
            Self::ServiceAccount => ("", "serviceaccounts", "ServiceAccount", Scope::Namespaced),
            Self::TokenTracking => ("", "configmaps", "ConfigMap", Scope::Namespaced),
            Self::StorageVersion => {
                ("internal.apiserver.k8s.io", "storageversions", "StorageVersion", Scope::Cluster)
            }
        };
        let version = match self {
            Self::PodCertificate | Self::LeaseCandidate => "v1beta1",
            Self::StorageVersion => "v1alpha1",
            _ => "v1",
        };
        let api_version = gc_types::api_version(group, version);
        ResourceInfo {
            id: self.resource(),
            gvr: Gvr { group: group.into(), version: version.into(), resource: resource.into() },
            kind: kind.into(),
            scope,
            served_api_versions: vec![api_version.into()],
            watched: true,
            comparable_versions: true,
        }
    }

    /// The part of the resource that is of this kind.
    #[must_use]
    pub const fn selection(self) -> Selection {
        match self {
            // The server selects them by type, so that only metadata of a Secret is ever read.
            Self::TokenSecret => Selection {
                namespace: "",
                field_selector: "type=kubernetes.io/service-account-token",
                metadata_only: true,
            },
            Self::TokenTracking => Selection {
                namespace: "kube-system",
                field_selector: "metadata.name=kube-apiserver-legacy-service-account-token-tracking",
                metadata_only: false,
            },
            Self::SystemLease => {
                Selection { namespace: "kube-system", field_selector: "", metadata_only: false }
            }
            _ => Selection { namespace: "", field_selector: "", metadata_only: false },
        }
    }

    /// The key of an object of this kind.
    #[must_use]
    pub fn key(self, namespace: &Arc<str>, name: &Arc<str>) -> ObjectKey {
        ObjectKey { resource: self.resource(), namespace: Arc::clone(namespace), name: Arc::clone(name) }
    }
}

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

/// Why facts could not be parsed.
#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    /// Not the JSON of such an object.
    #[error("cannot be parsed as an object of this kind: {0}")]
    Malformed(#[from] serde_json::Error),
}

impl Facts {
    /// Its key.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        let meta = self.meta();
        self.kind().key(&meta.namespace, &meta.name)
    }
}

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactsPage {
    /// `metadata.resourceVersion`
    pub resource_version: String,
    /// `metadata.continue`; empty on the last page.
    pub continue_token: String,
    /// Its objects.
    pub items: Vec<Facts>,
}

/// One line of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FactsEvent {
    /// An object was added or modified.
    Present(Facts),
    /// An object was deleted.
    Deleted(Facts),
    /// Everything up to this version has been sent.
    Bookmark(String),
    /// The watch has failed.
    Error {
        /// HTTP status code.
        code: u16,
        /// The server's message.
        message: String,
    },
    /// An unknown type of event.
    Unknown,
}

#[derive(Deserialize)]
struct WirePage<F> {
    #[serde(default)]
    metadata: WirePageMeta,
    items: Option<Vec<F>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WirePageMeta {
    resource_version: String,
    r#continue: Option<String>,
}

#[derive(Deserialize)]
struct WireEvent<F> {
    r#type: String,
    object: F,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireStatus {
    code: u16,
    message: String,
    metadata: WirePageMeta,
}

fn page<F: serde::de::DeserializeOwned>(json: &[u8], wrap: fn(F) -> Facts) -> Result<FactsPage, FactsError> {
    let page: WirePage<F> = serde_json::from_slice(json)?;
    Ok(FactsPage {
        resource_version: page.metadata.resource_version,
        continue_token: page.metadata.r#continue.unwrap_or_default(),
        items: page.items.unwrap_or_default().into_iter().map(wrap).collect(),
    })
}

fn event<F>(json: &[u8], wrap: fn(F) -> Facts) -> Result<(FactsEvent, String), FactsError>
where
    F: serde::de::DeserializeOwned,
{
    // Something else than an object (a Status has a `status` of another type) is read as an empty one.
    let unread = match serde_json::from_slice::<WireEvent<F>>(json) {
        Ok(WireEvent { r#type, object }) => {
            let facts = wrap(object);
            let version = facts.meta().resource_version.to_string();
            match r#type.as_str() {
                "ADDED" | "MODIFIED" => return Ok((FactsEvent::Present(facts), version)),
                "DELETED" => return Ok((FactsEvent::Deleted(facts), version)),
                _ => None,
            }
        }
        Err(error) => Some(error),
    };
    let WireEvent { r#type, .. } = serde_json::from_slice::<WireEvent<serde::de::IgnoredAny>>(json)?;
    if let (Some(error), "ADDED" | "MODIFIED" | "DELETED") = (unread, r#type.as_str()) {
        // A skipped change would leave a collector with outdated facts.
        return Err(error.into());
    }
    if !matches!(r#type.as_str(), "BOOKMARK" | "ERROR") {
        return Ok((FactsEvent::Unknown, String::new()));
    }
    let WireEvent { object, .. } = serde_json::from_slice::<WireEvent<WireStatus>>(json)?;
    let version = object.metadata.resource_version;
    Ok(match r#type.as_str() {
        "BOOKMARK" => (FactsEvent::Bookmark(version.clone()), version),
        _ => (FactsEvent::Error { code: object.code, message: object.message }, String::new()),
    })
}

/// Facts with metadata.
pub(crate) trait HasMeta {
    fn meta(&self) -> &Meta;
}

/// Objects of one kind as a watch has delivered them. A new list removes what it no longer contains.
#[derive(Debug)]
pub(crate) struct Cache<F> {
    kind: Kind,
    objects: BTreeMap<ObjectKey, (u64, F)>,
    round: u64,
    synced: bool,
}

impl<F: HasMeta> Cache<F> {
    pub(crate) fn new(kind: Kind) -> Self {
        Self { kind, objects: BTreeMap::new(), round: 0, synced: false }
    }

    /// Stores facts, and returns those that they replace.
    pub(crate) fn put(&mut self, facts: F) -> (ObjectKey, Option<F>) {
        let key = self.kind.key(&facts.meta().namespace, &facts.meta().name);
        let before = self.objects.insert(key.clone(), (self.round, facts));
        (key, before.map(|(_, facts)| facts))
    }

    pub(crate) fn remove(&mut self, key: &ObjectKey) -> Option<F> {
        self.objects.remove(key).map(|(_, facts)| facts)
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&F> {
        self.objects.get(key).map(|(_, facts)| facts)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.objects.keys()
    }

    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(crate) fn list_started(&mut self) {
        self.round += 1;
    }

    /// The list is complete: returns the objects that it did not contain.
    pub(crate) fn list_ended(&mut self) -> Vec<ObjectKey> {
        self.synced = true;
        let round = self.round;
        self.objects.iter().filter(|(_, (seen, _))| *seen != round).map(|(key, _)| key.clone()).collect()
    }

    pub(crate) fn synced(&self) -> bool {
        self.synced
    }
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

/// Removes a key from an index, and empty entries with it.
pub(crate) fn drop_from<K: Ord>(index: &mut BTreeMap<K, BTreeSet<ObjectKey>>, of: &K, key: &ObjectKey) {
    if let Some(keys) = index.get_mut(of) {
        keys.remove(key);
        if keys.is_empty() {
            index.remove(of);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    const NODE: &str = r#"{"kind":"Node","metadata":{"name":"n","uid":"u","resourceVersion":"7","labels":null},
        "spec":{"podCIDR":"10.0.0.0/24"},"status":{"conditions":[{"type":"Ready","status":"True"}]}}"#;

    #[test]
    fn lines_of_a_watch_are_distinguished() {
        let node = Facts::read(Kind::Node, NODE.as_bytes()).unwrap();
        for (line, expected) in [
            (format!(r#"{{"type":"ADDED","object":{NODE}}}"#), (FactsEvent::Present(node.clone()), "7")),
            (format!(r#"{{"type":"MODIFIED","object":{NODE}}}"#), (FactsEvent::Present(node.clone()), "7")),
            (format!(r#"{{"type":"DELETED","object":{NODE}}}"#), (FactsEvent::Deleted(node.clone()), "7")),
            (
                r#"{"type":"BOOKMARK","object":{"kind":"Node","metadata":{"resourceVersion":"9"},"status":{}}}"#.into(),
                (FactsEvent::Bookmark("9".into()), "9"),
            ),
            (
                r#"{"type":"ERROR","object":{"kind":"Status","metadata":{},"status":"Failure","code":410,"message":"old"}}"#
                    .into(),
                (FactsEvent::Error { code: 410, message: "old".into() }, ""),
            ),
            (format!(r#"{{"type":"NEW","object":{NODE}}}"#), (FactsEvent::Unknown, "")),
        ] {
            let (event, version) = FactsEvent::read(Kind::Node, line.as_bytes()).unwrap();
            assert_eq!((event, version.as_str()), expected, "{line}");
        }
        for broken in
            ["{", r#"{"type":"MODIFIED","object":{"metadata":{"name":5}}}"#, r#"{"type":"DELETED"}"#]
        {
            assert!(FactsEvent::read(Kind::Node, broken.as_bytes()).is_err(), "{broken}");
        }
    }

    #[test]
    fn pages_are_read_whole() {
        let json = format!(r#"{{"metadata":{{"resourceVersion":"8","continue":"c"}},"items":[{NODE}]}}"#);
        let page = FactsPage::read(Kind::Node, json.as_bytes()).unwrap();
        let node = Facts::read(Kind::Node, NODE.as_bytes()).unwrap();
        let expected =
            FactsPage { resource_version: "8".into(), continue_token: "c".into(), items: vec![node] };
        assert_eq!(page, expected);
        let empty = FactsPage::read(Kind::Job, br#"{"items":null}"#).unwrap();
        assert_eq!(empty.items, []);
    }
}
