//! Facts about a Secret with a token, its ServiceAccount, and the pods that use it.

use std::collections::BTreeSet;
use std::sync::Arc;

use gc_types::{Timestamp, Uid};
use serde::Deserialize;

use super::meta::{HasMeta, Meta, WireMeta};

pub(crate) const DAY_MILLISECONDS: i64 = 24 * 3_600_000;

/// A day in UTC, counted from 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Day(pub(crate) i64);

impl Day {
    /// Returns the day of a time.
    #[must_use]
    pub const fn of(time: Timestamp) -> Self {
        Self(time.0.div_euclid(DAY_MILLISECONDS))
    }

    /// Parses exactly `YYYY-MM-DD`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let date: jiff::civil::Date = text.parse().ok().filter(|_| text.len() == "YYYY-MM-DD".len())?;
        let start = date.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp();
        Some(Self::of(Timestamp(start.as_millisecond())))
    }

    /// Returns the first moment after it.
    pub(crate) const fn end(self) -> Timestamp {
        Timestamp((self.0 + 1) * DAY_MILLISECONDS)
    }

    pub(crate) fn text(self) -> String {
        let start = jiff::Timestamp::from_millisecond(self.0 * DAY_MILLISECONDS).unwrap_or_default();
        start.strftime("%Y-%m-%d").to_string()
    }
}

/// Value of a date label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DayLabel {
    /// The label is absent.
    Absent,
    /// The label is not a date.
    Unreadable,
    /// The label is this day.
    Day(Day),
}

impl DayLabel {
    fn read(text: Option<&str>) -> Self {
        text.map_or(Self::Absent, |text| Day::parse(text).map_or(Self::Unreadable, Self::Day))
    }
}

/// Facts about a Secret with a ServiceAccount's token, all from its metadata.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WireTokenSecret")]
pub struct TokenSecret {
    /// Metadata of the Secret.
    pub meta: Meta,
    /// ServiceAccount of the Secret, from the annotation `kubernetes.io/service-account.name`; empty if it has none.
    pub account: Arc<str>,
    /// The annotation `kubernetes.io/service-account.uid`, if it has a value.
    pub account_uid: Option<Uid>,
    /// The label `kubernetes.io/legacy-token-last-used`.
    pub last_used: DayLabel,
    /// The label `kubernetes.io/legacy-token-invalid-since`.
    pub invalid_since: DayLabel,
}

/// Fields of a ServiceAccount that verdicts use.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WireServiceAccount")]
pub struct ServiceAccount {
    /// Metadata of the ServiceAccount.
    pub meta: Meta,
    /// Names of the Secrets that were created for it.
    pub secrets: Box<[Arc<str>]>,
}

/// Facts about the ConfigMap with the date since which uses are tracked.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WireTokenTracking")]
pub struct TokenTracking {
    /// Metadata of the ConfigMap.
    pub meta: Meta,
    /// The day, if it is valid.
    pub since: Option<Day>,
}

/// Fields of a pod that verdicts use.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WireSecretUser")]
pub struct SecretUser {
    /// Metadata of the object.
    pub meta: Meta,
    /// Names of all Secrets that it uses.
    pub secrets: BTreeSet<Arc<str>>,
}

impl HasMeta for TokenSecret {
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

impl HasMeta for ServiceAccount {
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireTokenSecret {
    metadata: WireMeta,
}

impl From<WireTokenSecret> for TokenSecret {
    fn from(wire: WireTokenSecret) -> Self {
        let WireMeta { annotations, labels, .. } = &wire.metadata;
        let uid = annotations.service_account_uid.as_deref();
        Self {
            account: annotations.service_account.clone().unwrap_or_default(),
            account_uid: uid.filter(|uid| !uid.is_empty()).map(Uid::new),
            last_used: DayLabel::read(labels.last_used.as_deref()),
            invalid_since: DayLabel::read(labels.invalid_since.as_deref()),
            meta: Meta::from(&wire.metadata),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireServiceAccount {
    metadata: WireMeta,
    secrets: Option<Vec<WireNamed>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireNamed {
    name: Option<String>,
}

impl WireNamed {
    fn into_name(self) -> Option<Arc<str>> {
        self.name.filter(|name| !name.is_empty()).map(Arc::from)
    }
}

impl From<WireServiceAccount> for ServiceAccount {
    fn from(wire: WireServiceAccount) -> Self {
        let secrets = wire.secrets.into_iter().flatten().filter_map(WireNamed::into_name).collect();
        Self { secrets, meta: Meta::from(&wire.metadata) }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireTokenTracking {
    metadata: WireMeta,
    data: Option<WireTrackingData>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireTrackingData {
    since: Option<String>,
}

impl From<WireTokenTracking> for TokenTracking {
    fn from(wire: WireTokenTracking) -> Self {
        let since = wire.data.and_then(|data| data.since);
        Self { since: since.as_deref().and_then(Day::parse), meta: Meta::from(&wire.metadata) }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireSecretUser {
    metadata: WireMeta,
    spec: WireUserSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireUserSpec {
    image_pull_secrets: Option<Vec<WireNamed>>,
    containers: Option<Vec<WireContainer>>,
    init_containers: Option<Vec<WireContainer>>,
    ephemeral_containers: Option<Vec<WireContainer>>,
    volumes: Option<Vec<WireVolume>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireContainer {
    env: Option<Vec<WireVariable>>,
    env_from: Option<Vec<WireVariables>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireVariable {
    value_from: Option<WireValueSource>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireValueSource {
    secret_key_ref: Option<WireNamed>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireVariables {
    secret_ref: Option<WireNamed>,
}

/// All types of volumes that name a Secret.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireVolume {
    secret: Option<WireSecretName>,
    azure_file: Option<WireSecretName>,
    projected: Option<WireProjected>,
    csi: Option<WirePublishSecret>,
    cephfs: Option<WireVariables>,
    cinder: Option<WireVariables>,
    flex_volume: Option<WireVariables>,
    iscsi: Option<WireVariables>,
    rbd: Option<WireVariables>,
    #[serde(rename = "scaleIO")]
    scale_io: Option<WireVariables>,
    storageos: Option<WireVariables>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSecretName {
    secret_name: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireProjected {
    sources: Option<Vec<WireProjectedSource>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireProjectedSource {
    secret: Option<WireNamed>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WirePublishSecret {
    node_publish_secret_ref: Option<WireNamed>,
}

impl WireContainer {
    fn secrets(self) -> impl Iterator<Item = Arc<str>> {
        let single = self.env.into_iter().flatten().filter_map(|one| one.value_from?.secret_key_ref);
        let whole = self.env_from.into_iter().flatten().filter_map(|one| one.secret_ref);
        single.chain(whole).filter_map(WireNamed::into_name)
    }
}

impl WireVolume {
    fn secrets(self) -> impl Iterator<Item = Arc<str>> {
        let by_name = [self.secret, self.azure_file].into_iter().flatten();
        let by_name = by_name.map(|volume| WireNamed { name: volume.secret_name });
        let by_reference =
            [self.cephfs, self.cinder, self.flex_volume, self.iscsi, self.rbd, self.scale_io, self.storageos];
        let by_reference = by_reference.into_iter().flatten().filter_map(|volume| volume.secret_ref);
        let projected = self.projected.into_iter().filter_map(|volume| volume.sources).flatten();
        let projected = projected.filter_map(|source| source.secret);
        let published = self.csi.into_iter().filter_map(|volume| volume.node_publish_secret_ref);
        by_name.chain(by_reference).chain(projected).chain(published).filter_map(WireNamed::into_name)
    }
}

impl From<WireSecretUser> for SecretUser {
    fn from(wire: WireSecretUser) -> Self {
        let spec = wire.spec;
        let containers = [spec.containers, spec.init_containers, spec.ephemeral_containers];
        let pulled = spec.image_pull_secrets.into_iter().flatten().filter_map(WireNamed::into_name);
        let secrets = pulled
            .chain(containers.into_iter().flatten().flatten().flat_map(WireContainer::secrets))
            .chain(spec.volumes.into_iter().flatten().flat_map(WireVolume::secrets))
            .collect();
        Self { secrets, meta: Meta::from(&wire.metadata) }
    }
}
