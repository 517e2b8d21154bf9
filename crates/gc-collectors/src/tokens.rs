//! Cleaner of legacy ServiceAccount tokens (spec `cluster-collectors.md`, section 13): a token in a Secret that has long been
//! unused is labelled invalid, and deleted after it has been invalid for as long again.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gc_types::{
    Change, EventRecord, ObjectKey, Outcome, PropagationPolicy, Reason, Request, ResourceVersion, Severity,
    Timestamp,
};
use serde_json::json;

use crate::engine::{Collector, Decision, EndedRequest, Observation, reason};
use crate::entry::{CHANGE, CollectorEntry, Rule, WATCH, WRITE_EVENTS, Watches, rule};
use crate::measures::ReportQueue;
use crate::objects::{Cache, DAY_MILLISECONDS, Facts, Kind};
pub use crate::objects::{Day, DayLabel, SecretUser, ServiceAccount, TokenSecret, TokenTracking};

/// `--legacy-service-account-token-clean-up-period`: 365 days, in milliseconds.
pub const CLEAN_UP_PERIOD_MILLISECONDS: i64 = 365 * DAY_MILLISECONDS;

/// Label that makes the API server refuse a token, with the day since which it does.
pub const INVALID_SINCE_LABEL: &str = "kubernetes.io/legacy-token-invalid-since";
/// Delay before a Secret that pods use is checked again, milliseconds.
const RECHECK_MILLISECONDS: i64 = DAY_MILLISECONDS;

/// Validity of a live list of a namespace's pods, milliseconds.
const LIST_MILLISECONDS: i64 = 20_000;

/// Entry of this collector in the table of collectors.
pub(crate) const COLLECTOR: CollectorEntry = CollectorEntry {
    summary: "legacy tokens",
    name: "legacy-serviceaccount-token-cleaner-controller",
    alias: Some("legacy-service-account-token-cleaner"),
    account: "legacy-service-account-token-cleaner",
    event_source: "legacy-serviceaccount-token-cleaner-controller",
    on_by_default: true,
    for_every_kind: false,
    watches: Watches::Kinds(&[Kind::TokenSecret, Kind::ServiceAccount, Kind::TokenTracking]),
    flags: &["legacy-service-account-token-clean-up-period"],
    rules: &[
        // Only the metadata of Secrets that hold tokens is read, but RBAC cannot grant that separately.
        rule("", "secrets", CHANGE),
        rule("", "serviceaccounts", WATCH),
        rule("", "pods", &["list"]),
        Rule {
            group: "",
            resource: "configmaps",
            names: &["kube-apiserver-legacy-service-account-token-tracking"],
            verbs: WATCH,
        },
        WRITE_EVENTS,
    ],
};

/// Next action on a token that no pod uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Keep it.
    Keep,
    /// Keep it until this time.
    Later(Timestamp),
    /// Label it as invalid since today.
    Invalidate,
    /// Delete it.
    Delete,
}

/// Returns the stage of a token. `account` is the ServiceAccount that the Secret names, if it exists; `tracked` is the day since
/// which uses are tracked, if known. Days are compared as upstream does: the day `period_milliseconds` ago is not yet long ago.
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

/// Secrets that the pods of a namespace use. No watch delivers pods to this collector, so two lists must agree that nothing uses a
/// Secret: a single one may have missed a pod.
#[derive(Debug)]
struct Listing {
    /// Secrets found by all its lists.
    used: BTreeSet<Arc<str>>,
    /// Time at which the last list was completed; `None` while one is in progress.
    ended: Option<Timestamp>,
    /// True for the second list.
    is_second: bool,
    /// Tokens that wait for it.
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
    /// Creates the collector. The period in milliseconds is both the time without use before a token is invalidated, and the time
    /// until an invalid one is deleted. Values below 1 count as 1 ms; the command line refuses them.
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

    /// Acts once two live lists have shown that no pod of the namespace uses the Secret.
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
            Some(Listing { ended: Some(ended), used, .. }) if fresh(*ended) && used.contains(&key.name) => {
                Decision::Later(now.after(RECHECK_MILLISECONDS))
            }
            Some(Listing { ended: Some(ended), is_second: true, .. }) if fresh(*ended) => act(),
            _ => {
                self.listings.retain(|_, listing| listing.ended.is_none_or(fresh));
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

    /// Reports an Event about a token on its ServiceAccount.
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
            // Nothing is decided before it is listed; if the list does not contain it, uses are not tracked.
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
                self.secrets.forget_unlisted();
                dirty.extend(self.secrets.keys().cloned());
            }
            Observation::Synced(Kind::ServiceAccount) => {
                self.accounts.forget_unlisted();
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
        self.unless_used(key, version, now, || {
            let fact = "two live lists found no pod that uses it".to_owned();
            Decision::Act(request, reason(gc_types::codes::LEGACY_TOKEN_EXPIRED, version, &[fact]))
        })
    }

    fn sending(&mut self, key: &ObjectKey, request: &Request, _reason: &Reason, now: Timestamp) {
        match request {
            Request::Barrier { .. } => {
                let waiting = BTreeSet::from([key.clone()]);
                let is_first = |listing: &Listing| {
                    !listing.is_second
                        && listing.ended.is_some_and(|ended| now.since(ended) <= LIST_MILLISECONDS)
                };
                let first = self.listings.remove(&key.namespace).filter(is_first);
                let is_second = first.is_some();
                let used = first.map(|first| first.used).unwrap_or_default();
                let listing = Listing { used, ended: None, is_second, waiting };
                self.listings.insert(Arc::clone(&key.namespace), listing);
            }
            // Report now, because the token's ServiceAccount is no longer known afterwards.
            Request::Delete { .. } => self.report(
                key,
                Severity::Normal,
                "DeletingLegacyToken",
                "has been refused for long and is deleted",
            ),
            _ => {}
        }
    }

    fn skipped(&mut self, key: &ObjectKey, request: &Request) {
        if let Request::Barrier { .. } = request {
            self.listings.remove(&key.namespace);
        }
    }

    fn finished(
        &mut self,
        EndedRequest { key, request, outcome, now }: EndedRequest<'_>,
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
