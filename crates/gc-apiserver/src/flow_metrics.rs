//! Metrics of priority and fairness, under upstream's names and labels.

use std::sync::Arc;
use std::time::Duration;

use gc_metrics::Catalogue;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use crate::exposition::{CountedNames, Histograms, OTHERS, histograms, registered};
use crate::fairness::configuration::Flow;
use crate::fairness::seats::{Limits, Refusal};

/// Bounds of the waiting time of requests, in seconds.
const BUCKETS: [f64; 13] = [0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];

/// Labels of a priority level.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LevelLabels {
    priority_level: Arc<str>,
}

/// Labels of the requests of a flow schema.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct FlowLabels {
    priority_level: Arc<str>,
    flow_schema: Arc<str>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabels {
    priority_level: Arc<str>,
    flow_schema: Arc<str>,
    reason: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WaitLabels {
    priority_level: Arc<str>,
    flow_schema: Arc<str>,
    /// `true` if the request was eventually executed.
    execute: &'static str,
}

/// Number of requests and of the seats that they take.
struct Occupancy {
    requests: Family<FlowLabels, Gauge>,
    seats: Family<FlowLabels, Gauge>,
}

impl Occupancy {
    fn new(catalogue: &mut Catalogue, what: &str, help: &str) -> Self {
        let name = |unit: &str| format!("apiserver_flowcontrol_current_{what}_{unit}");
        Self {
            requests: registered(catalogue, name("requests"), format!("Requests that {help}")),
            seats: registered(catalogue, name("seats"), format!("Seats of requests that {help}")),
        }
    }

    fn occupied(&self, labels: &FlowLabels, width: usize) -> CountedRequest {
        let requests = self.requests.get_or_create(labels).clone();
        let seats = self.seats.get_or_create(labels).clone();
        let width = i64::try_from(width).unwrap_or(i64::MAX);
        requests.inc();
        seats.inc_by(width);
        CountedRequest { requests, seats, width }
    }
}

/// Counts a waiting or executing request until dropped.
pub(crate) struct CountedRequest {
    requests: Gauge,
    seats: Gauge,
    width: i64,
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        self.requests.dec();
        self.seats.dec_by(self.width);
    }
}

/// Counts requests by flow schema and priority level, and shows the seats of levels.
pub(crate) struct FlowMetrics {
    nominal: Family<LevelLabels, Gauge>,
    lower: Family<LevelLabels, Gauge>,
    upper: Family<LevelLabels, Gauge>,
    dispatched: Family<FlowLabels, Counter>,
    rejected: Family<RefusalLabels, Counter>,
    waited: Histograms<WaitLabels>,
    waiting: Occupancy,
    executing: Occupancy,
    pairs: CountedNames<FlowLabels>,
}

impl FlowMetrics {
    /// Registers the metrics.
    pub(crate) fn new(catalogue: &mut Catalogue) -> Self {
        let mut limit = |name: &str, help: &str| {
            registered(catalogue, format!("apiserver_flowcontrol_{name}_limit_seats"), help)
        };
        Self {
            nominal: limit("nominal", "Seats that each priority level is configured to have"),
            lower: limit("lower", "Seats that each priority level has whatever others borrow"),
            upper: limit("upper", "Seats that each priority level has with all that it may borrow"),
            dispatched: registered(
                catalogue,
                "apiserver_flowcontrol_dispatched_requests",
                "Requests that priority and fairness let through",
            ),
            rejected: registered(
                catalogue,
                "apiserver_flowcontrol_rejected_requests",
                "Requests that priority and fairness rejected",
            ),
            waited: histograms(
                catalogue,
                "apiserver_flowcontrol_request_wait_duration_seconds",
                "Time that requests waited in queues",
                || Histogram::new(BUCKETS),
            ),
            waiting: Occupancy::new(catalogue, "inqueue", "wait in queues"),
            executing: Occupancy::new(catalogue, "executing", "are worked on, watches while they start"),
            pairs: CountedNames::default(),
        }
    }

    /// Sets the seats of the configured levels.
    pub(crate) fn set_limits(&self, limits: Vec<(Arc<str>, Limits)>) {
        let families = [&self.nominal, &self.lower, &self.upper];
        families.into_iter().for_each(Family::clear);
        for (priority_level, Limits { nominal, lower, upper }) in limits {
            let labels = LevelLabels { priority_level };
            for (family, seats) in families.into_iter().zip([nominal, lower, upper]) {
                family.get_or_create(&labels).set(i64::try_from(seats).unwrap_or(i64::MAX));
            }
        }
    }

    /// Counts a request that is executing.
    pub(crate) fn dispatched(&self, flow: &Flow, width: usize) -> CountedRequest {
        let labels = self.labels(flow);
        self.dispatched.get_or_create(&labels).inc();
        self.executing.occupied(&labels, width)
    }

    /// Counts a request that is waiting.
    pub(crate) fn waiting(&self, flow: &Flow, width: usize) -> CountedRequest {
        self.waiting.occupied(&self.labels(flow), width)
    }

    /// Counts a refused request.
    pub(crate) fn rejected(&self, flow: &Flow, refusal: Refusal) {
        let FlowLabels { priority_level, flow_schema } = self.labels(flow);
        let labels = RefusalLabels { priority_level, flow_schema, reason: refusal.as_str() };
        self.rejected.get_or_create(&labels).inc();
    }

    /// Records how long a request waited.
    pub(crate) fn waited(&self, flow: &Flow, is_executed: bool, took: Duration) {
        let FlowLabels { priority_level, flow_schema } = self.labels(flow);
        let execute = if is_executed { "true" } else { "false" };
        self.waited
            .get_or_create(&WaitLabels { priority_level, flow_schema, execute })
            .observe(took.as_secs_f64());
    }

    fn labels(&self, flow: &Flow) -> FlowLabels {
        let labels =
            FlowLabels { priority_level: Arc::clone(&flow.level), flow_schema: Arc::clone(&flow.schema) };
        if self.pairs.admits(&labels) {
            labels
        } else {
            FlowLabels { priority_level: OTHERS.into(), flow_schema: OTHERS.into() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::{MAXIMUM_NAMES, exposition};

    fn flow(schema: &str) -> Flow {
        Flow { schema: schema.into(), level: "low".into(), ..Flow::default() }
    }

    /// Returns the lines of a metric, without its buckets.
    fn shown(catalogue: &Catalogue, name: &str) -> Vec<String> {
        let (_, text) = exposition(catalogue.registry(), None);
        let prefix = format!("apiserver_flowcontrol_{name}");
        let lines = text.lines().filter(|line| line.starts_with(&prefix) && !line.contains("_bucket{"));
        let mut lines: Vec<String> = lines.map(|line| line[prefix.len()..].to_owned()).collect();
        lines.sort();
        lines
    }

    #[test]
    fn requests_are_counted_while_they_wait_and_are_worked_on() {
        let mut catalogue = Catalogue::default();
        let metrics = FlowMetrics::new(&mut catalogue);
        let (executing, other) = (metrics.dispatched(&flow("a"), 3), metrics.dispatched(&flow("a"), 2));
        let waiting = metrics.waiting(&flow("b"), 4);
        metrics.waited(&flow("b"), false, Duration::from_secs(2));
        metrics.rejected(&flow("b"), Refusal::TimedOut);
        drop(other);
        let of = |schema: &str, more: &str, value: u32| {
            format!("{{priority_level=\"low\",flow_schema=\"{schema}\"{more}}} {value}")
        };
        let by_name = |name: &str| shown(&catalogue, name);
        assert_eq!(by_name("dispatched_requests_total"), [of("a", "", 2)]);
        assert_eq!(by_name("current_executing_requests"), [of("a", "", 1)]);
        assert_eq!(by_name("current_executing_seats"), [of("a", "", 3)]);
        assert_eq!(by_name("current_inqueue_requests"), [of("b", "", 1)]);
        assert_eq!(by_name("current_inqueue_seats"), [of("b", "", 4)]);
        assert_eq!(by_name("rejected_requests_total"), [of("b", ",reason=\"time-out\"", 1)]);
        let waits = by_name("request_wait_duration_seconds_count");
        assert_eq!(waits, [of("b", ",execute=\"false\"", 1)]);
        drop((executing, waiting));
        assert_eq!(by_name("current_executing_seats"), [of("a", "", 0)]);
        assert_eq!(by_name("current_inqueue_seats"), [of("b", "", 0)]);
    }

    #[test]
    fn the_seats_of_priority_levels_are_those_that_are_configured_now() {
        let mut catalogue = Catalogue::default();
        let metrics = FlowMetrics::new(&mut catalogue);
        let limits = |seats| Limits { nominal: seats, lower: 1, upper: 9 };
        metrics.set_limits(vec![("removed".into(), limits(3))]);
        metrics.set_limits(vec![("system".into(), limits(5))]);
        for (name, seats) in [("nominal", 5), ("lower", 1), ("upper", 9)] {
            let want = format!("_limit_seats{{priority_level=\"system\"}} {seats}");
            assert_eq!(shown(&catalogue, name), [want]);
        }
    }

    #[test]
    fn pairs_of_names_are_bounded() {
        let mut catalogue = Catalogue::default();
        let metrics = FlowMetrics::new(&mut catalogue);
        for number in 0..MAXIMUM_NAMES + 10 {
            drop(metrics.dispatched(&flow(&format!("s{number}")), 1));
        }
        let lines = shown(&catalogue, "dispatched_requests_total");
        assert_eq!(lines.len(), MAXIMUM_NAMES + 1);
        assert!(lines.contains(&"{priority_level=\"others\",flow_schema=\"others\"} 10".to_owned()));
    }
}
