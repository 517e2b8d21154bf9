//! Registers metrics, and describes them for documentation. A registry shows neither a family nor its labels before the first
//! sample; a [`Catalogue`] knows both from the types.
//!
//! ```
//! use gc_metrics::Catalogue;
//! use prometheus_client::encoding::EncodeLabelSet;
//! use prometheus_client::metrics::{counter::Counter, family::Family};
//!
//! #[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
//! struct Labels {
//!     verb: &'static str,
//! }
//!
//! let mut catalogue = Catalogue::default();
//! let requests = Family::<Labels, Counter>::default();
//! catalogue.register("requests", "Requests sent", requests.clone());
//! let [listed] = catalogue.entries() else { panic!() };
//! assert_eq!((listed.name().as_str(), listed.labels()), ("requests_total", vec!["verb".to_owned()]));
//! ```

use std::fmt::Debug;
use std::hash::Hash;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::{Metric, Registry};

/// A metric whose type determines the names of its labels.
pub trait LabelledMetric: Metric + TypedMetric {
    /// Returns the names of its labels, in the order of output.
    fn labels() -> Vec<String>;
}

impl<N, A> LabelledMetric for Counter<N, A>
where
    Self: Metric,
{
    fn labels() -> Vec<String> {
        Vec::new()
    }
}

impl<N, A> LabelledMetric for Gauge<N, A>
where
    Self: Metric,
{
    fn labels() -> Vec<String> {
        Vec::new()
    }
}

impl LabelledMetric for Histogram {
    fn labels() -> Vec<String> {
        Vec::new()
    }
}

impl<L, M, C> LabelledMetric for Family<L, M, C>
where
    Self: Metric,
    M: TypedMetric,
    L: EncodeLabelSet + Clone + Debug + Default + Hash + Eq + Send + Sync + 'static,
{
    /// Encodes a sample with default values and reads the names from it, because labels can only be encoded as part of a sample.
    fn labels() -> Vec<String> {
        let (family, mut registry) = (Family::<L, Gauge>::default(), Registry::default());
        drop(family.get_or_create(&L::default()));
        registry.register("sample", "", family);
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = encode(&mut text, &registry);
        let written = text.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
        let labels = written.map_or("", |(labels, _)| labels).split(',');
        labels.filter_map(|label| Some(label.split_once('=')?.0.to_owned())).collect()
    }
}

/// Description of a registered metric.
#[derive(Debug)]
pub struct Entry {
    name: String,
    /// Help text.
    pub help: String,
    kind: MetricType,
    labels: Labels,
}

/// Labels of a metric.
#[derive(Debug)]
enum Labels {
    OfType(fn() -> Vec<String>),
    Listed(&'static [&'static str]),
}

impl Entry {
    /// Returns the name by which the metric is queried.
    #[must_use]
    pub fn name(&self) -> String {
        let ending = if matches!(self.kind, MetricType::Counter) { "_total" } else { "" };
        format!("{}{ending}", self.name)
    }

    /// Returns `counter`, `gauge` or `histogram`.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.kind.as_str()
    }

    /// Returns the names of its labels.
    #[must_use]
    pub fn labels(&self) -> Vec<String> {
        match self.labels {
            Labels::OfType(labels) => labels(),
            Labels::Listed(labels) => labels.iter().map(ToString::to_string).collect(),
        }
    }
}

/// A registry of metrics, with a description of each.
#[derive(Debug, Default)]
pub struct Catalogue {
    registry: Registry,
    entries: Vec<Entry>,
}

impl Catalogue {
    /// Registers a metric, or a family of them. Pass the name of a counter without `_total`.
    pub fn register<M: LabelledMetric>(
        &mut self,
        name: impl Into<String>,
        help: impl Into<String>,
        metric: M,
    ) {
        self.add(name.into(), help.into(), Labels::OfType(M::labels), metric);
    }

    /// Registers a metric whose labels are not known from its type.
    pub fn register_with_labels<M>(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        metric: M,
    ) where
        M: Metric + TypedMetric,
    {
        self.add(name.to_owned(), help.to_owned(), Labels::Listed(labels), metric);
    }

    fn add<M: Metric + TypedMetric>(&mut self, name: String, help: String, labels: Labels, metric: M) {
        // The registry adds a full stop.
        self.registry.register(name.clone(), help.strip_suffix('.').unwrap_or(&help), metric);
        self.entries.push(Entry { name, help, kind: M::TYPE, labels });
    }

    /// Returns all registered metrics, in the order of output.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the registry to encode.
    #[must_use]
    pub const fn registry(&self) -> &Registry {
        &self.registry
    }
}

impl From<Catalogue> for Registry {
    fn from(catalogue: Catalogue) -> Self {
        catalogue.registry
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
    struct Two {
        r#type: String,
        code: u16,
    }

    #[test]
    fn every_metric_is_known_before_it_has_a_sample() {
        let mut catalogue = Catalogue::default();
        catalogue.register("sent", "Requests", Counter::<u64>::default());
        catalogue.register("age", "Age", Gauge::<f64, AtomicU64>::default());
        catalogue.register("by_two", "By two", Family::<Two, Counter>::default());
        let took =
            Family::<Two, Histogram, fn() -> Histogram>::new_with_constructor(|| Histogram::new([1.0]));
        catalogue.register("took", "Time", took);
        let listed = Family::<Vec<(&'static str, String)>, Gauge>::default();
        catalogue.register_with_labels("listed", "Data", &["class"], listed);
        let known: Vec<String> = catalogue
            .entries()
            .iter()
            .map(|entry| {
                format!("{} {} {} {}", entry.name(), entry.kind(), entry.labels().join(","), entry.help)
            })
            .collect();
        assert_eq!(
            known,
            [
                "sent_total counter  Requests",
                "age gauge  Age",
                "by_two_total counter type,code By two",
                "took histogram type,code Time",
                "listed gauge class Data",
            ]
        );
        let mut text = String::new();
        encode(&mut text, catalogue.registry()).unwrap_or_default();
        assert!(text.contains("sent_total 0") && !text.contains("by_two"), "{text}");
    }

    /// Upstream's help texts end with a full stop, and ours do not; the output must have exactly one.
    #[test]
    fn each_help_text_ends_with_one_full_stop() {
        let mut catalogue = Catalogue::default();
        catalogue.register("ours", "Requests", Counter::<u64>::default());
        catalogue.register("upstreams", "Requests sent. By type.", Counter::<u64>::default());
        let mut text = String::new();
        encode(&mut text, catalogue.registry()).unwrap_or_default();
        let help: Vec<&str> = text.lines().filter(|line| line.starts_with("# HELP")).collect();
        assert_eq!(help, ["# HELP ours Requests.", "# HELP upstreams Requests sent. By type."]);
    }
}
