//! Registration of metrics, and their text in the format that a client requests.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use gc_metrics::{Catalogue, LabelledMetric};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::encode::negotiate;

/// The format for clients that name it in `Accept`.
const OPEN_METRICS_TYPE: &str = "application/openmetrics-text";
/// The same content type with the version that is written.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The format for all other clients, as upstream sends it.
const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
/// The last line of OpenMetrics.
const END: &str = "# EOF";
/// Maximum number of client-supplied label values that are counted separately; all others share one.
pub(crate) const MAXIMUM_NAMES: usize = 500;
/// The shared value.
pub(crate) const OTHERS: &str = "others";

/// A family of histograms, one for each set of labels.
pub(crate) type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// Registers a metric or a family of metrics, and returns it.
pub(crate) fn registered<M>(catalogue: &mut Catalogue, name: impl Into<String>, help: impl Into<String>) -> M
where
    M: LabelledMetric + Clone + Default,
{
    let metric = M::default();
    catalogue.register(name, help, metric.clone());
    metric
}

/// Registers histograms with these bounds, and returns them.
pub(crate) fn histograms<L>(
    catalogue: &mut Catalogue,
    name: &str,
    help: &str,
    make: fn() -> Histogram,
) -> Histograms<L>
where
    L: EncodeLabelSet + std::fmt::Debug + Clone + Default + std::hash::Hash + Eq + Send + Sync + 'static,
{
    let family = Family::new_with_constructor(make);
    catalogue.register(name, help, Family::clone(&family));
    family
}

/// Label values that are counted separately, limited so that clients cannot create any number of metrics.
#[derive(Debug)]
pub(crate) struct CountedNames<T>(Mutex<BTreeSet<T>>);

impl<T> Default for CountedNames<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Ord> CountedNames<T> {
    /// Reports whether this value is counted separately: it already was, or there is room for it.
    pub(crate) fn admits<N>(&self, name: &N) -> bool
    where
        T: std::borrow::Borrow<N>,
        N: Ord + ToOwned<Owned = T> + ?Sized,
    {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.contains(name) || (names.len() < MAXIMUM_NAMES && names.insert(name.to_owned()))
    }
}

/// Returns the content type and the text of metrics: OpenMetrics if `accept` asks for it by name, otherwise the text format of
/// Prometheus, which every scraper reads.
#[must_use]
pub fn exposition(registry: &Registry, accept: Option<&str>) -> (&'static str, String) {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = encode(&mut text, registry);
    let accepted = negotiate::media_ranges(accept.unwrap_or_default());
    if accepted.iter().any(|range| range.names(OPEN_METRICS_TYPE)) {
        (OPEN_METRICS, text)
    } else {
        (PLAIN, plain(&text))
    }
}

/// Converts OpenMetrics to the text format 0.0.4: comments use the name of a counter's sample, types unknown to the format are
/// renamed, and units and the end marker are removed.
fn plain(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(name), words) => help = Some((name, words.unwrap_or_default())),
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", kind),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    _ => ("", kind),
                };
                if let Some((_, words)) = help.take().filter(|(helped, _)| *helped == name) {
                    text.extend(["# HELP ", name, suffix, " ", words, "\n"]);
                }
                text.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
            }
            (Some("#"), ..) => {}
            _ if line == END => {}
            _ => text.extend([line, "\n"]),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::metrics::histogram::Histogram;
    use prometheus_client::metrics::info::Info;
    use prometheus_client::registry::Unit;

    use super::*;

    fn registry() -> Registry {
        let mut registry = Registry::default();
        let (asked, open, took) = (Counter::<u64>::default(), Gauge::<i64>::default(), Histogram::new([1.0]));
        asked.inc();
        open.set(2);
        took.observe(0.5);
        registry.register("asked", "Requests", asked);
        registry.register("open", "Watches", open);
        registry.register_with_unit("took", "Time", Unit::Seconds, took);
        registry.register("build", "What runs", Info::new([("version", "1")]));
        registry
    }

    #[test]
    fn the_text_format_is_written_for_whoever_does_not_ask_for_another() {
        let want = "# HELP asked_total Requests.\n# TYPE asked_total counter\nasked_total 1\n\
                    # HELP open Watches.\n# TYPE open gauge\nopen 2\n\
                    # HELP took_seconds Time.\n# TYPE took_seconds histogram\ntook_seconds_sum 0.5\n\
                    took_seconds_count 1\ntook_seconds_bucket{le=\"1.0\"} 1\ntook_seconds_bucket{le=\"+Inf\"} 1\n\
                    # HELP build_info What runs.\n# TYPE build_info gauge\nbuild_info{version=\"1\"} 1\n";
        for accept in [None, Some("*/*"), Some("text/plain"), Some("application/json"), Some("")] {
            assert_eq!(exposition(&registry(), accept), (PLAIN, want.to_owned()), "{accept:?}");
        }
    }

    #[test]
    fn open_metrics_is_written_for_whoever_asks_for_it() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        for accept in ["application/openmetrics-text", prometheus] {
            let (content_type, text) = exposition(&registry(), Some(accept));
            assert_eq!(content_type, OPEN_METRICS);
            assert!(text.contains("# TYPE asked counter\nasked_total 1\n"), "{text}");
            assert!(text.ends_with("# EOF\n"), "{text}");
        }
    }
}
