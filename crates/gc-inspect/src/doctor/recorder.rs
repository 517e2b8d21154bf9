//! Recorders of deleted objects: whether they run, what they do not record, and what policies need from them.

use std::collections::BTreeSet;

use gc_collectors::policies::unused::{Heartbeat, NOT_RECORDED, RECORDER_ERROR, RECORDER_MILLISECONDS};
use gc_explain::text::count;
use jiff::Timestamp;
use serde_json::Value;

use super::{Finding, State, finding, listed};

const CHECK: &str = "recorder";
/// Time for which a running recorder's error is reported, in seconds.
const ERROR_SECONDS: i64 = 24 * 3_600;
/// Reason of a gap that ends by itself.
const LISTING: &str = "Listing";
/// Errors that cost records.
const LOSSES: [&str; 3] = ["DiskFull", "RecordsLost", "WriteFailed"];

/// The Lease of a recorder, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecorderFacts {
    /// `namespace/name` of the Lease.
    pub(crate) lease: String,
    pub(crate) found: FoundLease,
    /// Policies that need it, each with the kind whose deletions have to be recorded.
    pub(crate) needed: Vec<(String, String)>,
}

/// The Lease, or the reason why it is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FoundLease {
    Absent,
    /// Could not be read, for this reason.
    Unread(String),
    Present(LeaseReport),
}

/// The report of a recorder in its Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeaseReport {
    renewed: Option<Timestamp>,
    recorded: BTreeSet<String>,
    /// Resources, or policy entries, that are not recorded, with the code of the reason.
    gaps: Vec<(String, String)>,
    /// Time, code and text of the last error; empty if there was none.
    error: String,
}

impl LeaseReport {
    pub(crate) fn of(lease: &Value) -> Self {
        let Heartbeat { renewed, recorded } = Heartbeat::of(lease);
        let text = |name: &str| lease["metadata"]["annotations"][name].as_str().unwrap_or_default();
        let gaps = text(NOT_RECORDED).split(',').filter_map(|gap| gap.split_once('='));
        Self {
            renewed: renewed.parse().ok(),
            recorded,
            gaps: gaps.map(|(name, reason)| (name.to_owned(), reason.to_owned())).collect(),
            error: text(RECORDER_ERROR).to_owned(),
        }
    }

    fn runs(&self, now: Timestamp) -> bool {
        let age = |renewed: Timestamp| now.duration_since(renewed).as_millis();
        self.renewed.is_some_and(|renewed| age(renewed) < i128::from(RECORDER_MILLISECONDS))
    }

    /// Returns the code of the last error, and its time.
    fn last_error(&self) -> Option<(Timestamp, &str)> {
        let (at, rest) = self.error.split_once(' ')?;
        Some((at.parse().ok()?, rest.split(':').next().unwrap_or_default()))
    }
}

/// Judges the recorders. Nothing is reported if there are none and none is needed.
pub(super) fn recorders(recorders: &[RecorderFacts], now: Timestamp, findings: &mut Vec<Finding>) {
    for RecorderFacts { lease, found, needed } in recorders {
        let policies: BTreeSet<&str> = needed.iter().map(|(policy, _)| policy.as_str()).collect();
        let policies: Vec<&str> = policies.into_iter().collect();
        let deletes = format!(
            "{} {} what is unused only while it is renewed",
            count(policies.len(), "policy"),
            if policies.len() == 1 { "deletes" } else { "delete" }
        );
        let start = format!("start `kubegc recorder --lease {lease}` (docs/recovery.md)");
        match found {
            FoundLease::Absent | FoundLease::Unread(_) if needed.is_empty() => {}
            FoundLease::Absent => {
                let message = format!("there is no lease {lease}: {deletes} ({})", policies.join(", "));
                findings.push(finding(CHECK, State::Wrong, message).about(lease).advise(start));
            }
            FoundLease::Unread(why) => {
                let message =
                    format!("whether the recorder of {} runs is not known: {why}", policies.join(", "));
                findings.push(finding(CHECK, State::Notice, message).about(lease));
            }
            FoundLease::Present(report) if report.runs(now) => {
                let problems = running(lease, report, needed, now);
                if problems.is_empty() {
                    let kinds = count(report.recorded.len(), "kind");
                    let message = format!("lease {lease} is renewed; deletions of {kinds} are recorded");
                    findings.push(finding(CHECK, State::Fine, message).about(lease));
                }
                findings.extend(problems);
            }
            FoundLease::Present(report) => {
                let last = match report.renewed {
                    Some(renewed) => format!("it was renewed last at {renewed}"),
                    None => "it was never renewed".to_owned(),
                };
                let mut message = format!("no recorder renews lease {lease}: {last}");
                if !needed.is_empty() {
                    message = format!("{message}; {deletes} ({})", policies.join(", "));
                }
                if !report.error.is_empty() {
                    message = format!("{message}; its last error: {}", report.error);
                }
                let is_quiet = needed.is_empty() && report.error.is_empty();
                let state = if is_quiet { State::Notice } else { State::Wrong };
                findings.push(finding(CHECK, state, message).about(lease).advise(start));
            }
        }
    }
}

/// Returns the problems of a running recorder.
fn running(lease: &str, report: &LeaseReport, needed: &[(String, String)], now: Timestamp) -> Vec<Finding> {
    let gaps = report.gaps.iter().map(|(resource, reason)| {
        let state = if reason == LISTING { State::Notice } else { State::Wrong };
        let message = format!("deletions of {resource} are not recorded: {reason} (lease {lease})");
        let finding = finding(CHECK, state, message).about(&format!("{lease}/{resource}"));
        match reason.as_str() {
            "NotServed" => finding.advise("correct the policy of the recorder, or install what it names"),
            "Forbidden" => {
                finding.advise(format!("let the recorder's account `list` and `watch` {resource}"))
            }
            "NotWatchable" => finding.advise("remove it from the policy of the recorder"),
            LISTING => finding,
            _ => finding.advise("its log has the error; it tries again by itself"),
        }
    });
    let mut problems = listed(CHECK, gaps);
    let missing = needed.iter().filter(|(_, kind)| !report.recorded.contains(kind));
    let missing: Vec<Finding> = missing
        .map(|(policy, kind)| {
            let message = format!(
                "policy {policy} deletes nothing: the recorder of lease {lease} does not record every deletion of {kind}"
            );
            let finding = finding(CHECK, State::Wrong, message).about(&format!("{lease}/{policy}"));
            finding.advise(format!("record {kind} in all namespaces"))
        })
        .collect();
    problems.extend(listed(CHECK, missing.into_iter()));
    if let Some((at, code)) = report.last_error()
        && now.duration_since(at).as_secs() < ERROR_SECONDS
    {
        let state = if LOSSES.contains(&code) { State::Wrong } else { State::Notice };
        let message = format!("last error of the recorder of lease {lease}: {}", report.error);
        let advice = match code {
            "DiskFull" => "give the records a larger disk, or make maxSize of its policy smaller",
            _ => "its log has more",
        };
        problems.push(finding(CHECK, state, message).about(&format!("{lease}/error")).advise(advice));
    }
    problems
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use serde_json::json;

    use super::*;

    const NOW: &str = "2027-01-02T12:00:00Z";

    fn judged(found: FoundLease, needed: &[(&str, &str)]) -> Vec<(State, String)> {
        let needed = needed.iter().map(|(policy, kind)| ((*policy).to_owned(), (*kind).to_owned())).collect();
        let facts = RecorderFacts { lease: "kube-system/r".into(), found, needed };
        let mut findings = Vec::new();
        recorders(&[facts], NOW.parse().unwrap(), &mut findings);
        findings.into_iter().map(|finding| (finding.state, finding.message)).collect()
    }

    fn lease(renewed: &str, recorded: &str, gaps: &str, error: &str) -> FoundLease {
        FoundLease::Present(LeaseReport::of(&json!({
            "metadata": {"annotations": {
                "kubegc.io/recorded": recorded, NOT_RECORDED: gaps, RECORDER_ERROR: error}},
            "spec": {"renewTime": renewed}})))
    }

    #[test]
    fn a_recorder_is_judged_by_what_it_says_and_what_is_needed_of_it() {
        let fresh = "2027-01-02T11:59:50.000000Z";
        let needs = [("unused-maps", "ConfigMap")];
        for (found, needed, expected) in [
            (FoundLease::Absent, &[][..], vec![]),
            (FoundLease::Unread("forbidden".into()), &[], vec![]),
            (
                FoundLease::Absent,
                &needs,
                vec![(
                    State::Wrong,
                    "there is no lease kube-system/r: 1 policy deletes what is unused only while it is renewed (unused-maps)",
                )],
            ),
            (
                FoundLease::Unread("forbidden".into()),
                &needs,
                vec![(State::Notice, "whether the recorder of unused-maps runs is not known: forbidden")],
            ),
            (
                lease(fresh, "ConfigMap,Pod", "", ""),
                &needs,
                vec![(State::Fine, "lease kube-system/r is renewed; deletions of 2 kinds are recorded")],
            ),
            (
                lease(fresh, "Pod", "configmap=NotServed,configmaps=Forbidden,jobs.batch=Listing", ""),
                &needs,
                vec![
                    (
                        State::Wrong,
                        "deletions of configmap are not recorded: NotServed (lease kube-system/r)",
                    ),
                    (
                        State::Wrong,
                        "deletions of configmaps are not recorded: Forbidden (lease kube-system/r)",
                    ),
                    (
                        State::Notice,
                        "deletions of jobs.batch are not recorded: Listing (lease kube-system/r)",
                    ),
                    (
                        State::Wrong,
                        "policy unused-maps deletes nothing: the recorder of lease kube-system/r does not record every deletion of ConfigMap",
                    ),
                ],
            ),
            (
                lease(fresh, "Pod", "", "2027-01-02T11:00:00Z DiskFull: no space: it is full"),
                &[],
                vec![(
                    State::Wrong,
                    "last error of the recorder of lease kube-system/r: 2027-01-02T11:00:00Z DiskFull: no space: it is full",
                )],
            ),
            (
                lease(fresh, "Pod", "", "2027-01-02T11:00:00Z LeaseFailing: 503"),
                &[],
                vec![(
                    State::Notice,
                    "last error of the recorder of lease kube-system/r: 2027-01-02T11:00:00Z LeaseFailing: 503",
                )],
            ),
            // Errors older than a day are no longer reported.
            (
                lease(fresh, "Pod", "", "2026-12-30T11:00:00Z DiskFull: no space"),
                &[],
                vec![(State::Fine, "lease kube-system/r is renewed; deletions of 1 kind are recorded")],
            ),
            (
                lease("2027-01-02T11:00:00Z", "Pod", "", ""),
                &[],
                vec![(
                    State::Notice,
                    "no recorder renews lease kube-system/r: it was renewed last at 2027-01-02T11:00:00Z",
                )],
            ),
            (
                lease("", "", "", ""),
                &needs,
                vec![(
                    State::Wrong,
                    "no recorder renews lease kube-system/r: it was never renewed; 1 policy deletes what is unused only while it is renewed (unused-maps)",
                )],
            ),
            (
                lease(
                    "2027-01-02T11:00:00Z",
                    "",
                    "",
                    "2027-01-02T11:00:00Z Stopped: the disk takes no record",
                ),
                &[],
                vec![(
                    State::Wrong,
                    "no recorder renews lease kube-system/r: it was renewed last at 2027-01-02T11:00:00Z; its last error: 2027-01-02T11:00:00Z Stopped: the disk takes no record",
                )],
            ),
        ] {
            let expected: Vec<(State, String)> =
                expected.into_iter().map(|(state, text): (State, &str)| (state, text.to_owned())).collect();
            assert_eq!(judged(found, needed), expected);
        }
    }
}
