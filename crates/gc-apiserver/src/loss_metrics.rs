//! Metrics of connections and streams that the server ended so that other clients are served.

use gc_metrics::Catalogue;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use crate::exposition::registered;

/// Reason why a connection or a stream was ended, from a fixed set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LossLabels {
    /// `places`, `rate`, `memory`, `flood` or `refusals` for connections; `window`, `memory` or `anonymous` for streams.
    reason: &'static str,
}

/// Connections and streams that were refused or ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct LossMetrics {
    connections: Family<LossLabels, Counter>,
    streams: Family<LossLabels, Counter>,
    delayed: Counter,
}

impl LossMetrics {
    /// Registers the metrics.
    pub(crate) fn new(catalogue: &mut Catalogue) -> Self {
        Self {
            connections: registered(
                catalogue,
                "kubegc_apiserver_refused_connections",
                "Connections refused or ended: places or memory were short, too many came from one address, or their peer sent a flood of frames or of refused requests",
            ),
            streams: registered(
                catalogue,
                "kubegc_apiserver_reset_streams",
                "Streams refused or reset: their peer granted no window, memory was short, or too many had no credentials",
            ),
            delayed: registered(
                catalogue,
                "kubegc_apiserver_delayed_requests",
                "Requests without credentials that were answered later, because their connection asks too often",
            ),
        }
    }

    /// Counts a connection.
    pub(crate) fn connection(&self, reason: &'static str) {
        self.connections.get_or_create(&LossLabels { reason }).inc();
    }

    /// Counts a request whose answer is delayed.
    pub(crate) fn delayed(&self) {
        self.delayed.inc();
    }

    /// Counts a stream.
    pub(crate) fn stream(&self, reason: &'static str) {
        self.streams.get_or_create(&LossLabels { reason }).inc();
    }
}
