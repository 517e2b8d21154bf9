//! Metrics of unused objects: the answer of `kubegc garbage`, computed at an interval that a flag sets.

use std::collections::BTreeMap;
use std::time::Duration;

use gc_explain::garbage::Report;
use gc_kube::ApiClient;
use gc_metrics::Catalogue;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::garbage;
use crate::gather::{self, Gatherer, Scope};
use crate::repeated::{Pauses, look_repeatedly};

/// Minimum interval between two scans: each reads every object that may use another.
pub const SHORTEST_INTERVAL: Duration = Duration::from_mins(1);
/// Interval at which a standby checks whether it leads by now.
const STANDBY_PAUSE: Duration = Duration::from_secs(1);
/// Maximum duration of a scan.
const PATIENCE: Duration = Duration::from_mins(5);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
struct GarbageLabels {
    kind: String,
    code: &'static str,
    certainty: &'static str,
}

/// Number and size of unused objects, by kind, code and certainty. Clones share the metrics.
#[derive(Clone, Debug)]
pub struct GarbageMetrics {
    objects: Family<GarbageLabels, Gauge>,
    bytes: Family<GarbageLabels, Gauge>,
    unseen: Gauge,
    last_look: Gauge,
    failures: Counter,
}

fn whole(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

impl GarbageMetrics {
    /// Registers the metrics.
    pub fn register(catalogue: &mut Catalogue) -> Self {
        let metrics = Self {
            objects: Family::default(),
            bytes: Family::default(),
            unseen: Gauge::default(),
            last_look: Gauge::default(),
            failures: Counter::default(),
        };
        let m = metrics.clone();
        catalogue.register(
            "kubegc_garbage_objects",
            "Findings of kubegc garbage at the last look, by the kind of the object, the code and the certainty; needs --garbage-metrics-interval",
            m.objects,
        );
        catalogue.register(
            "kubegc_garbage_bytes",
            "Bytes that the deletion of these objects would free, as far as they are known",
            m.bytes,
        );
        catalogue.register(
            "kubegc_garbage_unseen",
            "Remarks on what could not be read at the last look; while there is one, nothing that may be used by it is certain",
            m.unseen,
        );
        catalogue.register(
            "kubegc_garbage_last_look_timestamp_seconds",
            "When the last look ended that did not fail; 0 before the first and on a standby",
            m.last_look,
        );
        catalogue.register(
            "kubegc_garbage_look_failures",
            "Looks for leftovers that failed; the figures are those of the last one that did not",
            m.failures,
        );
        metrics
    }

    fn show(&self, report: &Report, now: gc_types::Timestamp) {
        let mut totals: BTreeMap<GarbageLabels, (usize, u64)> = BTreeMap::new();
        for finding in &report.findings {
            let kind = finding.place.kind.clone();
            let labels =
                GarbageLabels { kind, code: finding.code.name(), certainty: finding.certainty.name() };
            let (number, bytes) = totals.entry(labels).or_default();
            *number += 1;
            *bytes = bytes.saturating_add(finding.bytes.unwrap_or_default());
        }
        self.clear();
        for (labels, (number, bytes)) in totals {
            self.objects.get_or_create(&labels).set(whole(number));
            if bytes > 0 {
                self.bytes.get_or_create(&labels).set(whole(bytes));
            }
        }
        self.unseen.set(whole(report.unseen.len()));
        self.last_look.set(now.0.div_euclid(1_000));
    }

    fn clear(&self) {
        self.objects.clear();
        self.bytes.clear();
        self.unseen.set(0);
        self.last_look.set(0);
    }

    /// Scans repeatedly until dropped, while these collectors act, so that only the leader pays for it.
    pub async fn follow(self, client: ApiClient, interval: Duration, acts: impl Fn() -> bool) {
        let pauses = Pauses { acting: interval, standby: STANDBY_PAUSE };
        look_repeatedly(pauses, acts, || self.look(&client), || self.clear()).await;
    }

    async fn look(&self, client: &ApiClient) {
        let asked = client.clone();
        let asked = gc_process::tasks::off_thread(move || async move {
            let gatherer = Gatherer::new(asked.clone(), gather::clock(&asked).await).await?;
            let everywhere = Scope::default();
            let report = garbage::ask(&gatherer, &everywhere, PATIENCE);
            let report = tokio::time::timeout(PATIENCE, report).await??;
            anyhow::Ok((report, gatherer.now))
        });
        match asked.await.map_err(anyhow::Error::from).flatten() {
            Ok((report, now)) => self.show(&report, now),
            Err(error) => {
                self.failures.inc();
                tracing::warn!("leftovers were not looked for: {error:#}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use gc_embedded::definitions::call;
    use gc_embedded::embedded::{Beginning, EmbeddedCluster};
    use http::Method;
    use serde_json::json;

    use super::*;

    fn shown(catalogue: &Catalogue) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, catalogue.registry()).unwrap();
        text
    }

    #[tokio::test]
    async fn leftovers_are_counted_by_kind_and_certainty() {
        let mut catalogue = Catalogue::default();
        let metrics = GarbageMetrics::register(&mut catalogue);
        let cluster =
            EmbeddedCluster::start(Beginning::empty(Vec::new()).with_controllers(&[])).await.unwrap();
        let way = cluster.in_process("tester");
        let client = ApiClient::in_process(move |request| way.call(request));
        let maps = "/api/v1/namespaces/default/configmaps";
        for name in ["a", "b"] {
            let map = json!({"metadata": {"name": name}, "data": {"k": "v"}});
            assert_eq!(call(&client, Method::POST, maps, Some(&map)).await.unwrap().0, 201);
        }
        metrics.look(&client).await;
        let certain = "kind=\"ConfigMap\",code=\"UnusedConfigMap\",certainty=\"Certain\"";
        let text = shown(&catalogue);
        assert!(text.contains(&format!("kubegc_garbage_objects{{{certain}}} 2")), "{text}");
        assert!(text.contains(&format!("kubegc_garbage_bytes{{{certain}}} ")), "{text}");
        // Objects that are used by then are no longer shown.
        for name in ["a", "b"] {
            assert_eq!(call(&client, Method::DELETE, &format!("{maps}/{name}"), None).await.unwrap().0, 200);
        }
        metrics.look(&client).await;
        assert!(!shown(&catalogue).contains(certain), "{}", shown(&catalogue));
        assert!(!shown(&catalogue).contains("last_look_timestamp_seconds 0"));
        cluster.shutdown().await;
        // While the server does not answer, the number is unknown, which must not look like zero.
        metrics.look(&ApiClient::plain("127.0.0.1:1").unwrap()).await;
        assert!(shown(&catalogue).contains("kubegc_garbage_look_failures_total 1"), "{}", shown(&catalogue));
    }
}
