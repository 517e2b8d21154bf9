//! Sums of a pod's requests, and its usage in quotas.

use std::collections::{BTreeMap, BTreeSet};

use gc_types::Quantity;
use serde_json::Value;

use crate::kinds::access::{Members, at, list, members, text};
use crate::kinds::quality_of_service;
use crate::metadata::quantity;

/// Amounts of resources, by name.
pub(crate) type Amounts = BTreeMap<String, Quantity>;

/// Resources that every container must specify if a quota limits them.
const ASKED: [&str; 6] = ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];

/// Reads the amounts in a list of resources.
pub(crate) fn amounts(list: Option<&Members>) -> Amounts {
    let read = |(name, value): (&String, &Value)| Some((name.clone(), quantity::of(value)?.ok()?));
    list.into_iter().flatten().filter_map(read).collect()
}

/// Adds amounts to others.
pub(super) fn add(to: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = to.get(name).copied().unwrap_or_default() + *amount;
        to.insert(name.clone(), sum);
    }
}

fn raise(to: &mut Amounts, others: &Amounts) {
    for (name, amount) in others {
        if to.get(name).is_none_or(|have| amount.exceeds(*have)) {
            to.insert(name.clone(), *amount);
        }
    }
}

/// Returns requests and limits of a whole pod: of its containers together, of the init container that needs more, or those of the
/// pod itself; plus its overhead.
pub(crate) fn totals(pod: &Value) -> (Amounts, Amounts) {
    let overhead = amounts(members(pod, &["spec", "overhead"]));
    let mut requests = total(pod, "requests");
    add(&mut requests, &overhead);
    let mut limits = total(pod, "limits");
    for (name, amount) in &overhead {
        // A pod without a limit does not get one from its overhead.
        if let Some(limit) = limits.get_mut(name).filter(|limit| !limit.is_zero()) {
            *limit = *limit + *amount;
        }
    }
    (requests, limits)
}

fn total(pod: &Value, field: &str) -> Amounts {
    let of = |container: &Value| amounts(members(container, &["resources", field]));
    let mut sum = Amounts::new();
    for container in list(pod, &["spec", "containers"]) {
        add(&mut sum, &of(container));
    }
    // Init containers run in sequence, alongside earlier ones that never end.
    let (mut lasting, mut peak) = (Amounts::new(), Amounts::new());
    for container in list(pod, &["spec", "initContainers"]) {
        let mut here = of(container);
        if text(container, &["restartPolicy"]) == "Always" {
            add(&mut sum, &here);
            add(&mut lasting, &here);
            here.clone_from(&lasting);
        } else {
            add(&mut here, &lasting);
        }
        raise(&mut peak, &here);
    }
    raise(&mut sum, &peak);
    for (name, amount) in amounts(members(pod, &["spec", "resources", field])) {
        sum.insert(name, amount);
    }
    sum
}

/// Returns the usage of a pod in quotas.
pub(super) fn usage(pod: &Value) -> Amounts {
    let mut usage = Amounts::new();
    let one = Quantity::from_units(1);
    usage.insert("count/pods".into(), one);
    if matches!(text(pod, &["status", "phase"]), "Succeeded" | "Failed") {
        return usage;
    }
    usage.insert("pods".into(), one);
    let (requests, limits) = totals(pod);
    usage.extend(compute(&requests, &limits));
    usage
}

fn compute(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut found = Amounts::new();
    for (name, amount) in requests {
        let is_huge = name.starts_with("hugepages-");
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || is_huge {
            found.insert(name.clone(), *amount);
            found.insert(format!("requests.{name}"), *amount);
        } else if name.contains('/') {
            found.insert(format!("requests.{name}"), *amount);
        }
    }
    for (name, amount) in limits {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            found.insert(format!("limits.{name}"), *amount);
        }
    }
    found
}

/// Reports whether containers must specify a resource that a quota limits.
pub(super) fn is_asked(name: &str) -> bool {
    ASKED.contains(&name)
}

/// Returns the limited resources that containers do not specify.
pub(super) fn unspecified(pod: &Value, bounded: &BTreeSet<&str>) -> Option<String> {
    let asked: Vec<&str> = ASKED.into_iter().filter(|name| bounded.contains(name)).collect();
    let said_by = |resources: Option<&Value>| {
        let of = |field: &str| amounts(resources.and_then(|resources| members(resources, &[field])));
        compute(&of("requests"), &of("limits"))
    };
    let whole = said_by(at(pod, &["spec", "resources"]));
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for container in list(pod, &["spec", "containers"]).iter().chain(list(pod, &["spec", "initContainers"])) {
        let said = said_by(container.get("resources"));
        for name in &asked {
            if !said.contains_key(*name) && !whole.contains_key(*name) {
                missing.entry(name).or_default().insert(text(container, &["name"]));
            }
        }
    }
    let texts: Vec<String> = missing
        .iter()
        .map(|(name, containers)| {
            format!("{name} for: {}", containers.iter().copied().collect::<Vec<_>>().join(","))
        })
        .collect();
    (!texts.is_empty()).then(|| format!("must specify {}", texts.join("; ")))
}

/// Reports whether a pod ends by itself after a time, which the scopes `Terminating` and `NotTerminating` distinguish.
pub(super) fn ends(pod: &Value) -> bool {
    at(pod, &["spec", "activeDeadlineSeconds"]).is_some()
}

/// Reports whether a pod is in a scope of a quota.
pub(super) fn in_scope(pod: &Value, scope: &str, operator: &str, values: &[Value]) -> bool {
    let ends = ends(pod);
    let is_best_effort = quality_of_service(pod) == "BestEffort";
    match scope {
        "Terminating" => ends,
        "NotTerminating" => !ends,
        "BestEffort" => is_best_effort,
        "NotBestEffort" => !is_best_effort,
        "CrossNamespacePodAffinity" => crosses_namespaces(pod),
        "PriorityClass" => {
            let class = text(pod, &["spec", "priorityClassName"]);
            let listed = values.iter().any(|value| value == class);
            match operator {
                "In" => !class.is_empty() && listed,
                "NotIn" => !listed,
                "DoesNotExist" => class.is_empty(),
                _ => !class.is_empty(),
            }
        }
        _ => false,
    }
}

fn crosses_namespaces(pod: &Value) -> bool {
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let path = |list_name| ["spec", "affinity", kind, list_name];
        let required = list(pod, &path("requiredDuringSchedulingIgnoredDuringExecution")).iter();
        let preferred = list(pod, &path("preferredDuringSchedulingIgnoredDuringExecution"));
        required
            .chain(preferred.iter().filter_map(|term| term.get("podAffinityTerm")))
            .any(|term| !list(term, &["namespaces"]).is_empty() || at(term, &["namespaceSelector"]).is_some())
    })
}
