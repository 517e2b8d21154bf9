//! Metrics of stuck objects: the answer of `kubegc stuck`, computed periodically from the collectors' graph.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use gc_explain::stuck::{Code, Row};
use gc_kube::{ApiClient, Clock};
use gc_metrics::Catalogue;
use gc_types::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::repeated::{Pauses, look_repeatedly};
use crate::resident::Resident;
use crate::stuck;

/// Minimum pause between two checks.
const CHECK_PERIOD: Duration = Duration::from_mins(1);
/// Maximum duration of a check.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabel {
    cause: &'static str,
}

/// Number of stuck objects, by the stable code of the cause. Clones share the metrics.
#[derive(Clone, Debug)]
pub struct StuckMetrics {
    root_causes: Family<CauseLabel, Gauge>,
    oldest: Family<CauseLabel, Gauge<f64, AtomicU64>>,
    failures: Counter,
}

/// The cluster to check.
pub struct WatchedCluster {
    /// Client for objects that are missing from the graph.
    pub client: ApiClient,
    /// Graph of the collectors, if they have one.
    pub resident: Option<Arc<dyn Resident>>,
    /// Clock of the collectors in this process.
    pub clock: Clock,
}

impl StuckMetrics {
    /// Registers the metrics. Every cause is exported from the start, so that alerts have a value before anything is stuck.
    pub fn register(catalogue: &mut Catalogue) -> Self {
        let metrics =
            Self { root_causes: Family::default(), oldest: Family::default(), failures: Counter::default() };
        let m = metrics.clone();
        catalogue.register(
            "kubegc_stuck_root_causes",
            "Root causes that hold up deletions, by their code, at the last check; 0 on a standby",
            m.root_causes,
        );
        catalogue.register(
            "kubegc_stuck_oldest_seconds",
            "How long the oldest of them had lasted then",
            m.oldest,
        );
        catalogue.register(
            "kubegc_stuck_check_failures",
            "Checks of what is stuck that failed; the figures are those of the last one that did not",
            m.failures,
        );
        metrics.show(&[], Timestamp(0));
        metrics
    }

    fn show(&self, rows: &[Row], now: Timestamp) {
        for code in Code::ALL {
            let label = CauseLabel { cause: code.name() };
            let of_code = rows.iter().filter(|row| row.cause.code == *code);
            let number = i64::try_from(of_code.clone().count()).unwrap_or(i64::MAX);
            self.root_causes.get_or_create(&label).set(number);
            let oldest = of_code.filter_map(|row| row.age_milliseconds(now)).max().unwrap_or_default();
            let oldest = Duration::from_millis(u64::try_from(oldest).unwrap_or_default());
            self.oldest.get_or_create(&label).set(oldest.as_secs_f64());
        }
    }

    /// Checks repeatedly until dropped, while these collectors act; other processes report on what they collect.
    pub async fn follow(self, watched: WatchedCluster, acts: impl Fn() -> bool) {
        // At first, the graph knows nothing.
        tokio::time::sleep(CHECK_PERIOD).await;
        let pauses = Pauses { acting: CHECK_PERIOD, standby: CHECK_PERIOD };
        look_repeatedly(pauses, acts, || self.check(&watched), || self.show(&[], Timestamp(0))).await;
    }

    async fn check(&self, watched: &WatchedCluster) {
        let (client, resident) = (watched.client.clone(), watched.resident.clone());
        let now = (watched.clock)();
        let asked =
            gc_process::tasks::off_thread(move || stuck::stuck_beside(client, resident, now, PATIENCE));
        match asked.await.map_err(anyhow::Error::from).flatten() {
            Ok(rows) => self.show(&rows, now),
            Err(error) => {
                self.failures.inc();
                tracing::warn!("what is stuck was not found: {error:#}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use http::{Method, StatusCode};
    use serde_json::{Value, json};

    use super::*;
    use gc_embedded::apiserver::{self, ServerOptions};
    use gc_kube::system_clock;
    use gc_process::preflight;

    const MAPS: &str = "/api/v1/namespaces/default/configmaps";

    fn shown(catalogue: &Catalogue) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, catalogue.registry()).unwrap();
        text
    }

    #[tokio::test]
    async fn what_is_stuck_is_counted_by_its_cause() {
        let mut catalogue = Catalogue::default();
        let metrics = StuckMetrics::register(&mut catalogue);
        for code in Code::ALL {
            let line = format!("kubegc_stuck_root_causes{{cause=\"{}\"}} 0", code.name());
            assert!(shown(&catalogue).contains(&line), "{line}");
        }
        let options = ServerOptions::in_process();
        let server = apiserver::serve(&options, None).await.unwrap();
        let way = server.in_process("tester");
        let client = ApiClient::in_process(move |request| way.call(request));
        let send = async |method: Method, path: &str, body: &Value| {
            let answer = client.call(preflight::request(method, path, Some(body))).await.unwrap();
            assert!(answer.head.status < StatusCode::BAD_REQUEST, "{path}: {answer:?}");
        };
        for (name, finalizer) in [("a", "acme.dev/a"), ("b", "acme.dev/b"), ("b2", "acme.dev/b")] {
            send(Method::POST, MAPS, &json!({"metadata": {"name": name, "finalizers": [finalizer]}})).await;
            send(Method::DELETE, &format!("{MAPS}/{name}"), &json!({})).await;
        }
        let watched = WatchedCluster { client: client.clone(), resident: None, clock: system_clock() };
        metrics.check(&watched).await;
        let text = shown(&catalogue);
        let held = "kubegc_stuck_root_causes{cause=\"FinalizerHeld\"}";
        assert!(text.contains(&format!("{held} 2")), "two finalizers hold three objects: {text}");
        // While the server does not answer, the number is unknown, which must not look like zero.
        server.shutdown().await;
        let nowhere = ApiClient::plain("127.0.0.1:1").unwrap();
        metrics.check(&WatchedCluster { client: nowhere, resident: None, clock: system_clock() }).await;
        let text = shown(&catalogue);
        assert!(text.contains(&format!("{held} 2")), "{text}");
        assert!(text.contains("kubegc_stuck_check_failures_total 1"), "{text}");
    }

    #[test]
    fn the_oldest_of_a_cause_is_shown() {
        let mut catalogue = Catalogue::default();
        let metrics = StuckMetrics::register(&mut catalogue);
        let row = |code, since| {
            let cause = gc_explain::stuck::Cause {
                code,
                subject: String::new(),
                message: String::new(),
                help: Vec::new(),
                force: None,
            };
            let since = Some(Timestamp(since));
            let (objects, holders, waiting) = (Vec::new(), Vec::new(), Vec::new());
            Row { cause, since, objects, holders, waiting, other_forces: Vec::new(), unlisted_forces: 0 }
        };
        let rows = [row(Code::ClaimInUse, 4_000), row(Code::ClaimInUse, 1_000), row(Code::NodeGone, 9_000)];
        metrics.show(&rows, Timestamp(10_000));
        let text = shown(&catalogue);
        for line in [
            "kubegc_stuck_root_causes{cause=\"ClaimInUse\"} 2",
            "kubegc_stuck_oldest_seconds{cause=\"ClaimInUse\"} 9.0",
            "kubegc_stuck_oldest_seconds{cause=\"NodeGone\"} 1.0",
            "kubegc_stuck_oldest_seconds{cause=\"VolumeInUse\"} 0.0",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
        }
    }
}
