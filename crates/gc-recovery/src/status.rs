//! State of a recorder for metrics and its Lease: what it does not record and why, its errors, and its last write.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gc_inspect::gather;
use gc_metrics::Catalogue;
use gc_types::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// Maximum number of unrecorded resources that are named, because a Lease has a bounded size.
const LISTED_GAPS: usize = 100;
/// Maximum length of an error's text in the Lease, characters.
const LONGEST_ERROR: usize = 500;

/// Reason why a resource of the policy is not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GapReason {
    /// The server serves nothing of this name.
    NotServed,
    /// The server serves it, but it cannot be listed and watched.
    NotWatchable,
    /// Discovery of its API group fails, so it is unknown whether the server serves it.
    DiscoveryFailing,
    /// The account may not list or watch it.
    Forbidden,
    /// Its watch fails for another reason.
    WatchFailing,
    /// Being listed for the first time.
    Listing,
}

impl GapReason {
    /// Returns the stable code.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::NotServed => "NotServed",
            Self::NotWatchable => "NotWatchable",
            Self::DiscoveryFailing => "DiscoveryFailing",
            Self::Forbidden => "Forbidden",
            Self::WatchFailing => "WatchFailing",
            Self::Listing => "Listing",
        }
    }

    /// Returns the human-readable reason.
    const fn words(self) -> &'static str {
        match self {
            Self::NotServed => "the policy names what the server does not serve: none of it is recorded",
            Self::NotWatchable => "the policy names what cannot be watched: none of it is recorded",
            Self::DiscoveryFailing => "its API group cannot be discovered: what is new in it is not recorded",
            Self::Forbidden => "its deletions are not recorded: this account may not list or watch it",
            Self::WatchFailing => {
                "its watch fails; what is deleted meanwhile is recorded only if the watch can be resumed"
            }
            Self::Listing => "it is being listed",
        }
    }
}

/// Failure during recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorCode {
    /// The disk was full; the oldest records were removed.
    DiskFull,
    /// A record could not be written.
    WriteFailed,
    /// The bucket does not accept records, which wait.
    BucketFailing,
    /// Records were dropped.
    RecordsLost,
    /// The server's resources could not be determined.
    DiscoveryFailing,
    /// The Lease could not be renewed.
    LeaseFailing,
    /// The recorder ended.
    Stopped,
}

impl ErrorCode {
    const ALL: [Self; 7] = [
        Self::DiskFull,
        Self::WriteFailed,
        Self::BucketFailing,
        Self::RecordsLost,
        Self::DiscoveryFailing,
        Self::LeaseFailing,
        Self::Stopped,
    ];

    /// Returns the stable code.
    const fn name(self) -> &'static str {
        match self {
            Self::DiskFull => "DiskFull",
            Self::WriteFailed => "WriteFailed",
            Self::BucketFailing => "BucketFailing",
            Self::RecordsLost => "RecordsLost",
            Self::DiscoveryFailing => "DiscoveryFailing",
            Self::LeaseFailing => "LeaseFailing",
            Self::Stopped => "Stopped",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GapLabels {
    resource: String,
    reason: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabel {
    resource: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabel {
    error: &'static str,
}

#[derive(Clone, Debug, Default)]
struct Metrics {
    recorded: Gauge,
    unrecorded: Family<GapLabels, Gauge>,
    records: Family<ResourceLabel, Counter>,
    last_write: Gauge,
    errors: Family<ErrorLabel, Counter>,
    last_error: Family<ErrorLabel, Gauge>,
}

#[derive(Debug, Default)]
struct State {
    /// Reasons by resource, or by policy entry that matches none.
    gaps: BTreeMap<String, GapReason>,
    /// Resources that are watched.
    watched: BTreeSet<String>,
    /// Time, code and text of the last error.
    last_error: Option<(Timestamp, &'static str, String)>,
}

/// State of a recorder. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct RecorderStatus {
    state: Arc<Mutex<State>>,
    metrics: Metrics,
    /// True once the resources to record are known.
    ready: Arc<AtomicBool>,
}

/// Returns the seconds since 1970.
fn seconds(at: Timestamp) -> i64 {
    at.0.div_euclid(1_000)
}

impl RecorderStatus {
    /// Registers the metrics of a recorder. Every error is exported from the start, so that alerts notice its first occurrence.
    pub fn register(catalogue: &mut Catalogue) -> Self {
        let status = Self::default();
        let Metrics { recorded, unrecorded, records, last_write, errors, last_error } =
            status.metrics.clone();
        for code in ErrorCode::ALL {
            drop(errors.get_or_create(&ErrorLabel { error: code.name() }));
        }
        catalogue.register(
            "kubegc_recorder_resources",
            "Resources whose deletions are recorded now",
            recorded,
        );
        catalogue.register(
            "kubegc_recorder_unrecorded",
            "1 for each resource, or entry of the policy, whose deletions should be recorded and are not, with the reason",
            unrecorded,
        );
        catalogue.register("kubegc_recorder_records", "Deletions recorded", records);
        catalogue.register(
            "kubegc_recorder_last_write_timestamp_seconds",
            "When a record was written last; 0 if none was",
            last_write,
        );
        catalogue.register("kubegc_recorder_errors", "Errors of the recorder, by their code", errors);
        catalogue.register(
            "kubegc_recorder_last_error_timestamp_seconds",
            "When the error occurred last",
            last_error,
        );
        status
    }

    /// Returns the flag that is set once the resources to record are known.
    #[must_use]
    pub fn ready(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.ready)
    }

    pub(crate) fn set_ready(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a resource, which is not recorded before it is listed.
    pub(crate) fn watch(&self, resource: &str) {
        self.state().watched.insert(resource.to_owned());
        self.miss(resource, GapReason::Listing, &"");
    }

    /// Forgets a resource that is no longer served.
    pub(crate) fn forget(&self, resource: &str) {
        self.state().watched.remove(resource);
        self.close(resource);
        self.count();
    }

    /// Records that a resource is not recorded. Logs it if the reason is new.
    pub(crate) fn miss(&self, resource: &str, reason: GapReason, error: &dyn Display) {
        let before = self.state().gaps.insert(resource.to_owned(), reason);
        if before == Some(reason) {
            return;
        }
        if let Some(before) = before {
            self.metrics.unrecorded.remove(&labels(resource, before));
        }
        self.metrics.unrecorded.get_or_create(&labels(resource, reason)).set(1);
        self.count();
        match reason {
            GapReason::Listing => tracing::debug!(resource, "{}", reason.words()),
            // It may be resumed a moment later, with everything that was deleted in the meantime.
            GapReason::WatchFailing => tracing::warn!(resource, %error, "{}", reason.words()),
            _ => tracing::error!(resource, reason = reason.name(), %error, "{}", reason.words()),
        }
    }

    /// Records that a resource is recorded from now on.
    pub(crate) fn close(&self, resource: &str) {
        let Some(reason) = self.state().gaps.remove(resource) else { return };
        self.metrics.unrecorded.remove(&labels(resource, reason));
        self.count();
        if reason != GapReason::Listing {
            tracing::info!(resource, "its deletions are recorded from now on");
        }
    }

    /// Closes the gaps that do not belong to watched resources and are not among these.
    pub(crate) fn close_others(&self, open: &BTreeSet<String>) {
        let closed: Vec<String> = {
            let state = self.state();
            let is_closed = |name: &&String| !state.watched.contains(*name) && !open.contains(*name);
            state.gaps.keys().filter(is_closed).cloned().collect()
        };
        for name in closed {
            self.close(&name);
        }
    }

    fn count(&self) {
        let state = self.state();
        let recorded = state.watched.iter().filter(|name| !state.gaps.contains_key(*name)).count();
        self.metrics.recorded.set(i64::try_from(recorded).unwrap_or(i64::MAX));
    }

    /// Counts a record.
    pub(crate) fn recorded(&self, resource: &str, at: Timestamp) {
        self.metrics.records.get_or_create(&ResourceLabel { resource: resource.to_owned() }).inc();
        self.metrics.last_write.set(seconds(at));
    }

    /// Counts an error, and keeps it as the last one.
    pub(crate) fn failed(&self, code: ErrorCode, error: &dyn Display) {
        let (label, at) = (ErrorLabel { error: code.name() }, gather::now());
        self.metrics.errors.get_or_create(&label).inc();
        self.metrics.last_error.get_or_create(&label).set(seconds(at));
        let text: String = error.to_string().chars().take(LONGEST_ERROR).collect();
        self.state().last_error = Some((at, code.name(), text.replace('\n', " ")));
    }

    /// Formats the unrecorded resources for the Lease: `configmap=NotServed,secrets=Forbidden`.
    pub(crate) fn not_recorded(&self) -> String {
        let state = self.state();
        let listed = state.gaps.iter().take(LISTED_GAPS);
        let mut gaps: Vec<String> =
            listed.map(|(resource, reason)| format!("{resource}={}", reason.name())).collect();
        if state.gaps.len() > LISTED_GAPS {
            gaps.push(format!("{} more=More", state.gaps.len() - LISTED_GAPS));
        }
        gaps.join(",")
    }

    /// Formats the last error for the Lease; empty if there was none.
    pub(crate) fn last_error(&self) -> String {
        let state = self.state();
        state.last_error.as_ref().map_or_else(String::new, |(at, code, text)| format!("{at} {code}: {text}"))
    }
}

fn labels(resource: &str, reason: GapReason) -> GapLabels {
    GapLabels { resource: resource.to_owned(), reason: reason.name() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn shown(catalogue: &Catalogue) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, catalogue.registry()).unwrap();
        text
    }

    #[test]
    fn a_gap_is_shown_with_its_present_reason_and_no_longer_than_it_lasts() {
        let mut catalogue = Catalogue::default();
        let status = RecorderStatus::register(&mut catalogue);
        let has = |line: &str| shown(&catalogue).lines().any(|shown| shown == line);
        status.watch("configmaps");
        status.miss("configmap", GapReason::NotServed, &"");
        assert_eq!(status.not_recorded(), "configmap=NotServed,configmaps=Listing");
        assert!(has("kubegc_recorder_resources 0"));
        status.close("configmaps");
        assert!(has("kubegc_recorder_resources 1"));
        status.miss("configmaps", GapReason::Forbidden, &"403");
        assert!(has("kubegc_recorder_unrecorded{resource=\"configmaps\",reason=\"Forbidden\"} 1"));
        status.miss("configmaps", GapReason::WatchFailing, &"500");
        assert!(!shown(&catalogue).contains("Forbidden") && has("kubegc_recorder_resources 0"));
        // A watched resource closes its own gap; the next discovery closes that of a policy entry.
        status.close_others(&BTreeSet::new());
        assert_eq!(status.not_recorded(), "configmaps=WatchFailing");
        status.forget("configmaps");
        assert_eq!(status.not_recorded(), "");
        assert!(!shown(&catalogue).contains("unrecorded{"), "{}", shown(&catalogue));
    }

    #[test]
    fn errors_are_counted_and_the_last_one_is_kept() {
        let mut catalogue = Catalogue::default();
        let status = RecorderStatus::register(&mut catalogue);
        assert!(shown(&catalogue).contains("kubegc_recorder_errors_total{error=\"DiskFull\"} 0"));
        status.failed(ErrorCode::LeaseFailing, &"403");
        status.failed(ErrorCode::DiskFull, &"no space\nleft");
        assert!(shown(&catalogue).contains("kubegc_recorder_errors_total{error=\"DiskFull\"} 1"));
        assert!(status.last_error().ends_with("Z DiskFull: no space left"), "{}", status.last_error());
    }

    #[test]
    fn the_lease_names_a_bounded_number_of_gaps() {
        let status = RecorderStatus::default();
        for number in 0..=LISTED_GAPS {
            status.miss(&format!("r{number:03}"), GapReason::NotServed, &"");
        }
        let shown = status.not_recorded();
        assert!(shown.ends_with("r099=NotServed,1 more=More"), "{shown}");
    }
}
