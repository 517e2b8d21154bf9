//! Metrics of admission webhooks, and of the match conditions of webhooks and policies, under upstream's names and labels.

use std::sync::Arc;

use gc_metrics::Catalogue;
use gc_registry::admission::configured::{ConditionsReport, WebhookEnd, WebhookReport};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use crate::exposition::{CountedNames, Histograms, OTHERS, histograms, registered};

/// Largest code that is counted individually, as upstream does: a broken webhook must not create a metric for each number.
const HIGHEST_CODE: u16 = 600;
/// Bounds of the durations, in seconds.
const BUCKETS: [f64; 8] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];

/// Bounds of the duration of match conditions, in seconds.
const CONDITION_BUCKETS: [f64; 7] = [0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25];

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConditionLabels {
    name: String,
    kind: &'static str,
    r#type: &'static str,
    operation: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    name: String,
    r#type: &'static str,
    operation: &'static str,
    rejected: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    name: String,
    r#type: &'static str,
    operation: &'static str,
    code: u16,
    rejected: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RejectionLabels {
    name: String,
    r#type: &'static str,
    operation: &'static str,
    error_type: &'static str,
    rejection_code: u16,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailOpenLabels {
    name: String,
    r#type: &'static str,
}

/// Metrics of calls to admission webhooks.
#[derive(Clone)]
pub(crate) struct WebhookMetrics {
    durations: Histograms<DurationLabels>,
    requests: Family<RequestLabels, Counter>,
    // Upstream's names of these two counters do not end in `_total`, which this library appends to every counter, so they are
    // gauges.
    rejections: Family<RejectionLabels, Gauge>,
    fail_open: Family<FailOpenLabels, Gauge>,
    condition_errors: Family<ConditionLabels, Counter>,
    condition_exclusions: Family<ConditionLabels, Counter>,
    condition_durations: Histograms<ConditionLabels>,
    names: Arc<CountedNames<String>>,
}

impl WebhookMetrics {
    /// Registers the metrics.
    pub(crate) fn new(catalogue: &mut Catalogue) -> Self {
        let webhook = |name: &str| format!("apiserver_admission_webhook_{name}");
        let condition = |name: &str| format!("apiserver_admission_match_condition_{name}");
        Self {
            durations: histograms(
                catalogue,
                &webhook("admission_duration_seconds"),
                "Time that calls of admission webhooks took",
                || Histogram::new(BUCKETS),
            ),
            requests: registered(
                catalogue,
                webhook("request"),
                "Calls of admission webhooks by the code of their answer",
            ),
            rejections: registered(
                catalogue,
                webhook("rejection_count"),
                "Requests that were refused by an admission webhook, or because its call failed",
            ),
            fail_open: registered(
                catalogue,
                webhook("fail_open_count"),
                "Failed calls of admission webhooks that were ignored",
            ),
            condition_errors: registered(
                catalogue,
                condition("evaluation_errors"),
                "Match conditions that could not be evaluated",
            ),
            condition_exclusions: registered(
                catalogue,
                condition("exclusions"),
                "Requests that a webhook was not asked about because of its match conditions",
            ),
            condition_durations: histograms(
                catalogue,
                &condition("evaluation_seconds"),
                "Time that match conditions took that did not all hold",
                || Histogram::new(CONDITION_BUCKETS),
            ),
            names: Arc::default(),
        }
    }

    /// Counts a finished call.
    pub(crate) fn count(&self, report: &WebhookReport) {
        let (name, r#type, operation) = (self.name(&report.webhook), report.step, report.operation);
        let (code, error_type) = match report.end {
            WebhookEnd::Allowed => (200, None),
            WebhookEnd::Rejected(code) => (code, Some("no_error")),
            WebhookEnd::FailedClosed(code) => (code, Some("calling_webhook_error")),
            WebhookEnd::FailedOpen(code) => (code, None),
            WebhookEnd::NotApplied => (0, Some("apiserver_internal_error")),
        };
        let code = code.min(HIGHEST_CODE);
        let rejected = if error_type.is_some() { "true" } else { "false" };
        let durations = DurationLabels { name: name.clone(), r#type, operation, rejected };
        self.durations.get_or_create(&durations).observe(report.took.as_secs_f64());
        let requests = RequestLabels { name: name.clone(), r#type, operation, code, rejected };
        self.requests.get_or_create(&requests).inc();
        if let Some(error_type) = error_type {
            let rejection =
                RejectionLabels { name: name.clone(), r#type, operation, error_type, rejection_code: code };
            self.rejections.get_or_create(&rejection).inc();
        }
        if matches!(report.end, WebhookEnd::FailedOpen(_)) {
            self.fail_open.get_or_create(&FailOpenLabels { name, r#type }).inc();
        }
    }

    /// Counts an evaluation of match conditions.
    pub(crate) fn count_conditions(&self, report: &ConditionsReport) {
        let &ConditionsReport { kind, step, operation, errors, is_excluded, took, .. } = report;
        if errors == 0 && took.is_none() {
            return;
        }
        let labels = ConditionLabels { name: self.name(&report.name), kind, r#type: step, operation };
        if errors > 0 {
            self.condition_errors.get_or_create(&labels).inc_by(errors as u64);
        }
        if is_excluded {
            self.condition_exclusions.get_or_create(&labels).inc();
        }
        if let Some(took) = took {
            self.condition_durations.get_or_create(&labels).observe(took.as_secs_f64());
        }
    }

    fn name(&self, name: &str) -> String {
        if self.names.admits(name) { name } else { OTHERS }.to_owned()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::time::Duration;

    use super::*;
    use crate::exposition::MAXIMUM_NAMES;

    fn report(webhook: &str, end: WebhookEnd) -> WebhookReport {
        WebhookReport {
            webhook: webhook.to_owned(),
            step: "validating",
            operation: "CREATE",
            took: Duration::from_millis(50),
            end,
        }
    }

    /// Returns the exposed metrics without durations and comments.
    fn exposed(catalogue: &Catalogue) -> Vec<String> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, catalogue.registry()).unwrap();
        let kept =
            |line: &&str| !line.starts_with('#') && !line.contains("_bucket{") && !line.contains("_sum{");
        let mut lines: Vec<String> = text.lines().filter(kept).map(str::to_owned).collect();
        lines.sort();
        lines
    }

    #[test]
    fn calls_are_counted_by_what_they_meant_for_the_request() {
        let mut catalogue = Catalogue::default();
        let metrics = WebhookMetrics::new(&mut catalogue);
        for end in [
            WebhookEnd::Allowed,
            WebhookEnd::Rejected(403),
            WebhookEnd::FailedClosed(503),
            WebhookEnd::FailedOpen(503),
            WebhookEnd::NotApplied,
            WebhookEnd::Rejected(700),
        ] {
            metrics.count(&report("w", end));
        }
        let prefix = "apiserver_admission_webhook";
        let call = "name=\"w\",type=\"validating\",operation=\"CREATE\"";
        let durations = |rejected: &str, count: u32| {
            format!("{prefix}_admission_duration_seconds_count{{{call},rejected=\"{rejected}\"}} {count}")
        };
        let request = |code: u32, rejected: &str| {
            format!("{prefix}_request_total{{{call},code=\"{code}\",rejected=\"{rejected}\"}} 1")
        };
        let rejection = |error: &str, code: u32| {
            format!("{prefix}_rejection_count{{{call},error_type=\"{error}\",rejection_code=\"{code}\"}} 1")
        };
        assert_eq!(
            exposed(&catalogue),
            [
                durations("false", 2),
                durations("true", 4),
                format!("{prefix}_fail_open_count{{name=\"w\",type=\"validating\"}} 1"),
                rejection("apiserver_internal_error", 0),
                rejection("calling_webhook_error", 503),
                rejection("no_error", 403),
                rejection("no_error", 600),
                request(0, "true"),
                request(200, "false"),
                request(403, "true"),
                request(503, "false"),
                request(503, "true"),
                request(600, "true"),
            ]
        );
    }

    #[test]
    fn match_conditions_are_counted_where_they_do_not_all_hold() {
        let mut catalogue = Catalogue::default();
        let metrics = WebhookMetrics::new(&mut catalogue);
        let took = Some(Duration::from_millis(2));
        for (errors, is_excluded, took) in [(0, false, None), (0, true, took), (2, false, took)] {
            metrics.count_conditions(&ConditionsReport {
                name: "w".to_owned(),
                kind: "webhook",
                step: "admit",
                operation: "CREATE",
                errors,
                is_excluded,
                took,
            });
        }
        let line = |metric: &str, value: u32| {
            let labels = "name=\"w\",kind=\"webhook\",type=\"admit\",operation=\"CREATE\"";
            format!("apiserver_admission_match_condition_{metric}{{{labels}}} {value}")
        };
        assert_eq!(
            exposed(&catalogue),
            [
                line("evaluation_errors_total", 2),
                line("evaluation_seconds_count", 2),
                line("exclusions_total", 1)
            ]
        );
    }

    #[test]
    fn names_are_bounded() {
        let mut catalogue = Catalogue::default();
        let metrics = WebhookMetrics::new(&mut catalogue);
        for number in 0..MAXIMUM_NAMES + 10 {
            metrics.count(&report(&format!("w{number}"), WebhookEnd::Allowed));
        }
        let lines = exposed(&catalogue);
        assert_eq!(lines.len(), 2 * (MAXIMUM_NAMES + 1));
        assert!(
            lines.iter().any(|line| line.contains("name=\"others\"") && line.ends_with(" 10")),
            "{lines:?}"
        );
    }
}
