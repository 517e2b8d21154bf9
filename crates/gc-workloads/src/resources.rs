//! Amounts of resources that pods request and nodes have.

use std::collections::BTreeMap;

use gc_types::{Quantity, parse_quantity};
use serde_json::Value;

use crate::object::items;

/// Amounts by resource name: CPU in thousandths, everything else in whole units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts(BTreeMap<Box<str>, i128>);

/// Parses one quantity of a resource.
fn amount(name: &str, value: &Value) -> i128 {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return 0,
    };
    if name != "cpu" {
        return parse_quantity(&text).unwrap_or_default();
    }
    // A thousandth of a CPU is the smallest unit, so "1m" must not be rounded up to one.
    Quantity::parse(&text).map(Quantity::milli_value).unwrap_or_default()
}

impl Amounts {
    /// Parses a `ResourceList`.
    #[must_use]
    pub fn read(list: &Value) -> Self {
        let entries = list.as_object().into_iter().flatten();
        Self(entries.map(|(name, value)| (name.as_str().into(), amount(name, value))).collect())
    }

    /// Sums the requests of a pod: those of its containers or its largest init container, plus its overhead. Restartable init
    /// containers count as containers. Each pod takes one of `pods`.
    #[must_use]
    pub fn requested(pod: &Value) -> Self {
        let mut sum = Self::default();
        for container in items(&pod["spec"]["containers"]) {
            sum.add(&Self::read(&container["resources"]["requests"]));
        }
        let (mut peak, mut restartable) = (Self::default(), Self::default());
        for container in items(&pod["spec"]["initContainers"]) {
            let wanted = Self::read(&container["resources"]["requests"]);
            if container["restartPolicy"] == "Always" {
                sum.add(&wanted);
                restartable.add(&wanted);
                peak.raise(&restartable);
            } else {
                let mut together = restartable.clone();
                together.add(&wanted);
                peak.raise(&together);
            }
        }
        sum.raise(&peak);
        let of_pod = Self::read(&pod["spec"]["resources"]["requests"]);
        for (name, wanted) in of_pod.0 {
            sum.0.insert(name, wanted);
        }
        sum.add(&Self::read(&pod["spec"]["overhead"]));
        sum.0.insert("pods".into(), 1);
        sum
    }

    /// Adds other amounts.
    pub fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            *self.0.entry(name.clone()).or_default() += amount;
        }
    }

    /// Subtracts other amounts.
    pub fn subtract(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            *self.0.entry(name.clone()).or_default() -= amount;
        }
    }

    fn raise(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let mine = self.0.entry(name.clone()).or_default();
            *mine = (*mine).max(*amount);
        }
    }

    /// Returns the amount of one resource.
    #[must_use]
    pub fn get(&self, name: &str) -> i128 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Reports whether a resource is listed.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Keeps the resources with these names.
    pub fn retain(&mut self, keeps: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| keeps(name));
    }

    /// Returns the wanted resources that do not fit into `self`, the free amounts.
    pub fn lacking<'a>(&'a self, wanted: &'a Self) -> impl Iterator<Item = &'a str> {
        wanted
            .0
            .iter()
            .filter(|(name, amount)| **amount > 0 && self.get(name) < **amount)
            .map(|(name, _)| &**name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_requests_its_containers_or_its_largest_init_container() {
        let container = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu, "memory": "1Mi"}}});
        let pod = json!({"spec": {
            "containers": [container("250m"), container("0.5")],
            "initContainers": [container("2")],
            "overhead": {"cpu": "1m"},
        }});
        let expected = json!({"cpu": "2001m", "memory": 2 << 20, "pods": 1});
        assert_eq!(Amounts::requested(&pod), Amounts::read(&expected));
        let free = Amounts::read(&json!({"cpu": 2, "memory": "1Gi", "pods": 0}));
        assert_eq!(free.lacking(&Amounts::requested(&pod)).collect::<Vec<_>>(), ["cpu", "pods"]);
    }

    #[test]
    fn processors_are_counted_in_thousandths_in_every_form() {
        for (text, thousandths) in [
            ("2", 2_000),
            ("0.5", 500),
            ("250m", 250),
            ("1.5m", 2),
            ("1e-1", 100),
            ("1k", 1_000_000),
            ("x", 0),
        ] {
            assert_eq!(amount("cpu", &text.into()), thousandths, "{text}");
        }
    }
}
