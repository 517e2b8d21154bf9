//! The cleaner of legacy ServiceAccount tokens (spec `cluster-collectors.md`, section 13): a token in a Secret that
//! has been unused for long is labelled invalid, and deleted when it has been invalid for as long again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gc_types::{
    Change, EventRecord, ObjectKey, Outcome, PropagationPolicy, Request, ResourceVersion, Severity,
    Timestamp, Uid,
};
use serde::Deserialize;
use serde_json::json;

use crate::engine::{Collector, Decision, Observation, reason};
use crate::measures::ReportQueue;
use crate::objects::{Cache, Facts, HasMeta, Kind, Meta, WireMeta};

/// `--legacy-service-account-token-clean-up-period`: 365 days, in milliseconds.
pub const CLEAN_UP_PERIOD_MILLISECONDS: i64 = 365 * DAY_MILLISECONDS;
/// The label that makes the API server refuse a token: the day since which it does.
pub const INVALID_SINCE_LABEL: &str = "kubernetes.io/legacy-token-invalid-since";
const DAY_MILLISECONDS: i64 = 24 * 3_600_000;
/// Delay before a Secret that pods use is checked again, milliseconds.
const RECHECK_MILLISECONDS: i64 = DAY_MILLISECONDS;
/// How long a live list of a namespace's pods counts, milliseconds.
const LIST_MILLISECONDS: i64 = 20_000;

/// A day in UTC, counted from 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Day(i64);

impl Day {
    /// The day of a time.
    #[must_use]
    pub const fn of(time: Timestamp) -> Self {
        Self(time.0.div_euclid(DAY_MILLISECONDS))
    }

    /// Reads exactly `YYYY-MM-DD`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let date: jiff::civil::Date = text.parse().ok().filter(|_| text.len() == "YYYY-MM-DD".len())?;
        let start = date.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp();
        Some(Self::of(Timestamp(start.as_millisecond())))
    }

    /// The first moment after it.
    const fn end(self) -> Timestamp {
        Timestamp((self.0 + 1) * DAY_MILLISECONDS)
    }

    fn text(self) -> String {
        let start = jiff::Timestamp::from_millisecond(self.0 * DAY_MILLISECONDS).unwrap_or_default();
        start.strftime("%Y-%m-%d").to_string()
    }
}

/// The value of a date label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DayLabel {
    /// There is no such label.
    Absent,
    /// The label is not a date.
    Unreadable,
    /// That day.
    Day(Day),
}

impl DayLabel {
    fn read(text: Option<&str>) -> Self {
        text.map_or(Self::Absent, |text| Day::parse(text).map_or(Self::Unreadable, Self::Day))
    }
}

/// The facts of a Secret with a ServiceAccount's token, all from its metadata.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WireTokenSecret")]
pub struct TokenSecret {
    /// Its metadata.
    pub meta: Meta,
    /// Its ServiceAccount: the annotation `kubernetes.io/service-account.name`; empty if it has none.
    pub account: Arc<str>,
    /// The annotation `kubernetes.io/service-account.uid`, if it has a value.
    pub account_uid: Option<Uid>,
    /// The label `kubernetes.io/legacy-token-last-used`.
    pub last_used: DayLabel,
    /// The label `kubernetes.io/legacy-token-invalid-since`.
    pub invalid_since: DayLabel,
}

/// What verdicts need of a ServiceAccount.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WireServiceAccount")]
pub struct ServiceAccount {
    /// Its metadata.
    pub meta: Meta,
    /// Names of the Secrets that were created for it.
    pub secrets: Box<[Arc<str>]>,
}

/// The facts of the ConfigMap with the date since which uses are tracked.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WireTokenTracking")]
pub struct TokenTracking {
    /// Its metadata.
    pub meta: Meta,
    /// The day, if it is valid.
    pub since: Option<Day>,
}

/// What verdicts need of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WireSecretUser")]
pub struct SecretUser {
    /// Its metadata.
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
        let annotations = wire.metadata.annotations.as_ref();
        let labels = wire.metadata.labels.as_ref();
        let uid = annotations.and_then(|all| all.service_account_uid.as_deref());
        Self {
            account: annotations.and_then(|all| all.service_account.as_deref()).unwrap_or_default().into(),
            account_uid: uid.filter(|uid| !uid.is_empty()).map(Uid::new),
            last_used: DayLabel::read(labels.and_then(|all| all.last_used.as_deref())),
            invalid_since: DayLabel::read(labels.and_then(|all| all.invalid_since.as_deref())),
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

/// Every type of volume that names a Secret.
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

/// What to do about a token that no pod uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nothing.
    Keep,
    /// Nothing before that time.
    Later(Timestamp),
    /// Label it as invalid since today.
    Invalidate,
    /// Delete it.
    Delete,
}

/// The stage of a token. `account` is the ServiceAccount that the Secret names, if it exists; `tracked` the day since
/// which uses are tracked, if it is known. Days are compared as upstream does: the day `period_milliseconds` ago is
/// not yet long ago.
#[must_use]
pub fn stage(
    secret: &TokenSecret,
    account: Option<&ServiceAccount>,
    tracked: Option<Day>,
    period_milliseconds: i64,
    now: Timestamp,
) -> Stage {
    let meta = &secret.meta;
    let (Some(tracked), Some(created), Some(account)) = (tracked, meta.created, account) else {
        return Stage::Keep;
    };
    let same_account = secret.account_uid.as_ref().is_none_or(|uid| *uid == account.meta.uid);
    if meta.deleting || meta.keeps() || !same_account || !account.secrets.contains(&meta.name) {
        return Stage::Keep;
    }
    let not_before = |due: Timestamp| (now < due).then_some(Stage::Later(due));
    let last_used = match secret.last_used {
        DayLabel::Unreadable => return Stage::Keep,
        DayLabel::Absent => None,
        DayLabel::Day(day) => Some(day.end()),
    };
    let unused_since = [Some(tracked.end()), Some(created.after(1)), last_used].into_iter().flatten().max();
    let waits = unused_since.and_then(|since| not_before(since.after(period_milliseconds)));
    waits.unwrap_or_else(|| match secret.invalid_since {
        DayLabel::Absent | DayLabel::Unreadable => Stage::Invalidate,
        DayLabel::Day(day) => not_before(day.end().after(period_milliseconds)).unwrap_or(Stage::Delete),
    })
}

/// The Secrets that the pods of a namespace use.
#[derive(Debug)]
struct Listing {
    used: BTreeSet<Arc<str>>,
    /// When the list was complete; `None` while it is in progress.
    ended: Option<Timestamp>,
    /// The tokens that wait for it.
    waiting: BTreeSet<ObjectKey>,
}

/// The cleaner.
#[derive(Debug)]
pub struct TokenCollector {
    period_milliseconds: i64,
    secrets: Cache<TokenSecret>,
    accounts: Cache<ServiceAccount>,
    tracked: Option<Day>,
    listings: BTreeMap<Arc<str>, Listing>,
    reports: ReportQueue,
}

impl TokenCollector {
    /// How long tokens must be unused before they are invalidated, and invalid before they are deleted. Values below
    /// 1 count as 1 ms; the command line refuses them.
    #[must_use]
    pub fn new(period_milliseconds: i64) -> Self {
        Self {
            period_milliseconds: period_milliseconds.max(1),
            secrets: Cache::new(Kind::TokenSecret),
            accounts: Cache::new(Kind::ServiceAccount),
            tracked: None,
            listings: BTreeMap::new(),
            reports: ReportQueue::default(),
        }
    }

    fn account_of(&self, secret: &TokenSecret) -> Option<&ServiceAccount> {
        self.accounts.get(&Kind::ServiceAccount.key(&secret.meta.namespace, &secret.account))
    }

    fn track(&mut self, since: Option<Day>, dirty: &mut Vec<ObjectKey>) {
        if self.tracked != since {
            self.tracked = since;
            dirty.extend(self.secrets.keys().cloned());
        }
    }

    fn put_account(&mut self, account: ServiceAccount, dirty: &mut Vec<ObjectKey>) {
        let namespace = Arc::clone(&account.meta.namespace);
        dirty.extend(account.secrets.iter().map(|name| Kind::TokenSecret.key(&namespace, name)));
        self.accounts.put(account);
    }

    /// Acts, once a live list has shown that no pod of the namespace uses the Secret.
    fn unless_used(
        &mut self,
        key: &ObjectKey,
        version: ResourceVersion,
        now: Timestamp,
        act: impl FnOnce() -> Decision,
    ) -> Decision {
        let fresh = |ended: Timestamp| now.since(ended) <= LIST_MILLISECONDS;
        match self.listings.get_mut(&key.namespace) {
            Some(Listing { ended: None, waiting, .. }) => {
                waiting.insert(key.clone());
                Decision::Leave
            }
            Some(Listing { ended: Some(ended), used, .. }) if fresh(*ended) => {
                if used.contains(&key.name) {
                    return Decision::Later(now.after(RECHECK_MILLISECONDS));
                }
                act()
            }
            _ => {
                self.listings.retain(|_, listing| listing.ended.is_none_or(fresh));
                let listing =
                    Listing { used: BTreeSet::new(), ended: None, waiting: BTreeSet::from([key.clone()]) };
                self.listings.insert(Arc::clone(&key.namespace), listing);
                let list = Request::Barrier {
                    resource: Kind::SecretUser.resource(),
                    namespace: Some(Arc::clone(&key.namespace)),
                    at_least: version,
                };
                let fact = "its token was not used for long".to_owned();
                Decision::Act(list, reason(gc_types::codes::TOKEN_USE_UNKNOWN, version, &[fact]))
            }
        }
    }

    /// Reports what has become of a token on its ServiceAccount.
    fn report(&mut self, key: &ObjectKey, severity: Severity, event: &'static str, what: &str) {
        let Some(secret) = self.secrets.get(key) else { return };
        let version = secret.meta.resource_version;
        let Some(account) = self.account_of(secret) else { return };
        let message = format!("The token in Secret {} {what}", key.name);
        let why = reason(gc_types::codes::LEGACY_TOKEN_UNUSED, version, std::slice::from_ref(&message));
        let note = EventRecord {
            about: Kind::ServiceAccount.key(&account.meta.namespace, &account.meta.name),
            uid: account.meta.uid.clone(),
            severity,
            reason: event,
            message,
        };
        self.reports.event(note, why);
    }
}

impl Collector for TokenCollector {
    fn kinds(&self) -> &'static [Kind] {
        &[Kind::TokenSecret, Kind::ServiceAccount, Kind::TokenTracking]
    }

    fn clock_set(&mut self, by: i64) {
        for listing in self.listings.values_mut() {
            listing.ended = listing.ended.map(|at| at.after(by));
        }
    }

    fn observe(&mut self, observation: Observation, _now: Timestamp, dirty: &mut Vec<ObjectKey>) {
        match observation {
            Observation::ListStarted(Kind::TokenSecret) => self.secrets.list_started(),
            Observation::ListStarted(Kind::ServiceAccount) => self.accounts.list_started(),
            // Until it is listed, nothing is decided; if the list does not contain it, uses are not tracked.
            Observation::ListStarted(Kind::TokenTracking) => self.track(None, dirty),
            Observation::Observed(Facts::TokenSecret(secret)) => dirty.push(self.secrets.put(secret).0),
            Observation::Observed(Facts::ServiceAccount(account)) => self.put_account(account, dirty),
            Observation::Observed(Facts::TokenTracking(tracking)) => self.track(tracking.since, dirty),
            Observation::Found(Facts::SecretUser(pod)) => {
                if let Some(listing) = self.listings.get_mut(&pod.meta.namespace) {
                    listing.used.extend(pod.secrets);
                }
            }
            Observation::Removed(key) if key.resource == Kind::TokenSecret.resource() => {
                self.secrets.remove(&key);
            }
            Observation::Removed(key) if key.resource == Kind::ServiceAccount.resource() => {
                self.accounts.remove(&key);
            }
            Observation::Removed(key) if key.resource == Kind::TokenTracking.resource() => {
                self.track(None, dirty);
            }
            Observation::Synced(Kind::TokenSecret) => {
                for key in self.secrets.list_ended() {
                    self.secrets.remove(&key);
                }
                dirty.extend(self.secrets.keys().cloned());
            }
            Observation::Synced(Kind::ServiceAccount) => {
                for key in self.accounts.list_ended() {
                    self.accounts.remove(&key);
                }
            }
            _ => {}
        }
    }

    fn decide(&mut self, key: &ObjectKey, now: Timestamp, _dirty: &mut Vec<ObjectKey>) -> Decision {
        let Some(secret) = self.secrets.get(key) else { return Decision::Leave };
        let (uid, version) = (secret.meta.uid.clone(), secret.meta.resource_version);
        let account = self.account_of(secret);
        let request = match stage(secret, account, self.tracked, self.period_milliseconds, now) {
            Stage::Keep => return Decision::Leave,
            Stage::Later(time) => return Decision::Later(time),
            Stage::Invalidate => {
                let labels = json!({"metadata": {"labels": {INVALID_SINCE_LABEL: Day::of(now).text()}}});
                Request::Guarded {
                    key: key.clone(),
                    uid,
                    resource_version: version,
                    change: Change::Merge(labels.to_string().into()),
                }
            }
            Stage::Delete => Request::Delete {
                key: key.clone(),
                uid,
                resource_version: Some(version),
                policy: PropagationPolicy::Background,
            },
        };
        let decision = self.unless_used(key, version, now, || {
            let fact = "a live list found no pod that uses it".to_owned();
            Decision::Act(request, reason(gc_types::codes::LEGACY_TOKEN_EXPIRED, version, &[fact]))
        });
        if let Decision::Act(Request::Delete { .. }, _) = &decision {
            // Reported before: afterwards the token's ServiceAccount is no longer known.
            self.report(
                key,
                Severity::Normal,
                "DeletingLegacyToken",
                "has been refused for long and is deleted",
            );
        }
        decision
    }

    fn finished(
        &mut self,
        key: &ObjectKey,
        request: &Request,
        outcome: &Outcome,
        now: Timestamp,
        dirty: &mut Vec<ObjectKey>,
    ) {
        let applied = matches!(outcome, Outcome::Applied(_));
        match request {
            Request::Barrier { .. } => {
                let Some(listing) = self.listings.get_mut(&key.namespace) else { return };
                dirty.extend(std::mem::take(&mut listing.waiting));
                if applied {
                    listing.ended = Some(now);
                } else {
                    self.listings.remove(&key.namespace);
                }
            }
            Request::Guarded { .. } if applied => self.report(
                key,
                Severity::Warning,
                "LegacyTokenInvalidated",
                "has not been used for long and is refused from now on; to have it accepted again, take the label \
                 kubernetes.io/legacy-token-invalid-since off the Secret",
            ),
            _ => {}
        }
    }

    fn reports(&mut self) -> Option<&mut ReportQueue> {
        Some(&mut self.reports)
    }
}

#[cfg(test)]
#[path = "tokens_tests.rs"]
mod tests;
