//! Resource names and quantities: limits, requests, capacities, quotas.

use std::collections::{BTreeMap, BTreeSet};

use gc_types::Quantity;

use super::names::{dns_label, qualified_name};
use crate::error::CauseReason;
use crate::kinds::prelude::*;
use crate::metadata::quantity;

const HUGE_PAGES: &str = "hugepages-";
const REQUESTS: &str = "requests.";
/// Resources that can be counted per kind.
const COUNTED: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
];

/// Rule for resource names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    Container,
    Pod,
    Quota,
    /// Limits that belong to neither pods nor containers.
    Any,
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.split('/').next().is_some_and(|domain| domain.ends_with("kubernetes.io"))
}

pub(crate) fn is_huge_page(name: &str) -> bool {
    name.starts_with(HUGE_PAGES)
}

fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with(REQUESTS) && qualified_name(&format!("{REQUESTS}{name}")).is_empty()
}

fn is_standard_container_resource(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage") || is_huge_page(name)
}

pub(crate) fn is_standard_quota_resource(name: &str) -> bool {
    matches!(
        name,
        "cpu"
            | "memory"
            | "ephemeral-storage"
            | "requests.cpu"
            | "requests.memory"
            | "requests.storage"
            | "requests.ephemeral-storage"
            | "limits.cpu"
            | "limits.memory"
            | "limits.ephemeral-storage"
    ) || COUNTED.contains(&name)
        || is_huge_page(name)
        || name.strip_prefix(REQUESTS).is_some_and(is_huge_page)
}

fn is_standard(name: &str) -> bool {
    is_standard_quota_resource(name) || name == "storage"
}

/// Reports whether quantities of this resource must be whole numbers.
fn is_integer(name: &str) -> bool {
    COUNTED.contains(&name) || is_extended(name)
}

/// Reports whether the limit of a resource may exceed its request: for native ones, all but huge pages.
pub(crate) fn is_overcommit_allowed(name: &str) -> bool {
    is_native(name) && !is_huge_page(name)
}

/// Returns the sum of the containers' requests (or limits: `list` is `requests` or `limits`) for each resource that one of them
/// names: the regular and the restarting init containers together, or one of the other init containers together with the restarting
/// ones before it.
pub(crate) fn of_containers(spec: &Value, list: &str) -> BTreeMap<String, Quantity> {
    type Sums = BTreeMap<String, Quantity>;
    let containers = |kind: &str| spec.get(kind).and_then(Value::as_array).into_iter().flatten();
    let shares = |container: &Value| -> Vec<(String, Quantity)> {
        let named = container.get("resources").and_then(|resources| resources.get(list)?.as_object());
        let read = |value: &Value| quantity::of(value).and_then(Result::ok);
        named.into_iter().flatten().filter_map(|(name, value)| Some((name.clone(), read(value)?))).collect()
    };
    let (mut together, mut restarting, mut most) = (Sums::new(), Sums::new(), Sums::new());
    for (name, share) in containers("containers").flat_map(shares) {
        let sum = together.entry(name).or_default();
        *sum = *sum + share;
    }
    for container in containers("initContainers") {
        for (name, share) in shares(container) {
            let here = restarting.get(&name).copied().unwrap_or_default() + share;
            if text(container, &["restartPolicy"]) == "Always" {
                restarting.insert(name.clone(), here);
            }
            let peak = most.entry(name).or_insert(here);
            if here.exceeds(*peak) {
                *peak = here;
            }
        }
    }
    for (name, share) in restarting {
        let sum = together.entry(name).or_default();
        *sum = *sum + share;
    }
    for (name, peak) in most {
        let sum = together.entry(name).or_insert(peak);
        if peak.exceeds(*sum) {
            *sum = peak;
        }
    }
    together
}

/// Validates the name of a resource at its key.
pub(crate) fn resource_name(field: &Field<'_, '_>, name: &str, names: Names, report: &mut Report) {
    let before = report.errors.len();
    report.each_of(field, name, qualified_name(name));
    let is_qualified = report.errors.len() == before;
    let plain = !name.contains('/');
    if is_qualified && plain && !is_standard(name) {
        report.invalid_text(field, name, "must be a standard resource type or fully qualified");
    }
    match names {
        Names::Container if plain => {
            if !is_standard_container_resource(name) {
                report.invalid_text(field, name, "must be a standard resource for containers");
            }
        }
        Names::Container => {
            if !is_native(name) && !is_extended(name) {
                report.invalid_text(field, name, "doesn't follow extended resource name standard");
            }
        }
        Names::Pod => {
            let supported = matches!(name, "cpu" | "memory") || is_huge_page(name);
            if report.errors.len() == before && !supported {
                report.not_supported_shown(field, &quoted(name), &["cpu", "hugepages-", "memory"]);
            }
        }
        Names::Quota => {
            if plain && !is_standard_quota_resource(name) {
                report.invalid_text(field, name, "must be a standard resource for quota");
            }
        }
        Names::Any => {}
    }
}

/// Validates a quantity: not negative, and a whole number if the resource is counted.
pub(crate) fn resource_quantity(field: &Field<'_, '_>, name: &str, report: &mut Report) {
    let Some(quantity) = field.quantity() else { return };
    if quantity.is_negative() {
        report.invalid(field, NOT_NEGATIVE);
    }
    if is_integer(name) && quantity.milli_value() % 1000 != 0 {
        report.invalid(field, "must be an integer");
    }
}

pub(crate) fn positive_quantity(field: &Field<'_, '_>, report: &mut Report) {
    if field.quantity().is_some_and(|quantity| quantity.is_negative() || quantity.is_zero()) {
        report.invalid(field, POSITIVE);
    }
}

/// Validates a quantity that must not be negative after rounding to a whole number.
pub(crate) fn basic_quantity(field: &Field<'_, '_>, report: &mut Report) {
    if let Some(quantity) = field.quantity()
        && quantity.value() < 0
    {
        report.invalid_shown(field, &quantity.value(), "must be a valid resource quantity");
    }
}

/// Validates limits and requests of a container or a pod. `claims` are the names of the pod's claims.
pub(crate) fn requirements(
    field: &Field<'_, '_>,
    names: Names,
    claims: &BTreeSet<&str>,
    report: &mut Report,
) {
    let (limits, requests) = (field.get("limits"), field.get("requests"));
    let (mut any_compute, mut any_huge_page) = (false, false);
    for (name, limit) in limits.entries() {
        resource_name(&limit, name, names, report);
        resource_quantity(&limit, name, report);
        any_huge_page |= huge_page_quantity(&limit, name, report);
        any_compute |= matches!(name, "cpu" | "memory");
    }
    for (name, request) in requests.entries() {
        resource_name(&request, name, names, report);
        resource_quantity(&request, name, report);
        let limit = limits.get(name).quantity();
        if let (Some(wanted), Some(limit)) = (request.quantity(), limit) {
            let differs = wanted.exceeds(limit) || limit.exceeds(wanted);
            let shown = quoted(&wanted.to_string());
            if differs && !is_overcommit_allowed(name) {
                let why = format!("must be equal to {name} limit of {limit}");
                report.invalid_shown(&requests, &shown, &why);
            } else if wanted.exceeds(limit) {
                let why = format!("must be less than or equal to {name} limit of {limit}");
                report.invalid_shown(&requests, &shown, &why);
            }
        } else if limit.is_none() && !is_overcommit_allowed(name) {
            report.required(&limits, "Limit must be set for non overcommitable resources");
        }
        any_huge_page |= huge_page_quantity(&request, name, report);
        any_compute |= matches!(name, "cpu" | "memory");
    }
    if any_huge_page && !any_compute {
        report.forbidden(field, "HugePages require cpu or memory");
    }
    claim_names(&field.get("claims"), claims, report);
}

/// Checks that huge pages are requested in whole pages. Returns whether the resource is one of them.
fn huge_page_quantity(field: &Field<'_, '_>, name: &str, report: &mut Report) -> bool {
    let Some(size) = name.strip_prefix(HUGE_PAGES) else { return false };
    if let Some(quantity) = field.quantity() {
        let size = Quantity::parse(size).map(Quantity::value).unwrap_or_default();
        if size <= 0 || quantity.value() % size != 0 {
            let why = format!("{quantity} is not positive integer multiple of {name}");
            report.invalid_shown(field, &quoted(&quantity.to_string()), &why);
        }
    }
    true
}

/// Checks that the claims used by a container are claims of its pod, and that each of them, or of their requests, is used only
/// once.
fn claim_names(field: &Field<'_, '_>, claims: &BTreeSet<&str>, report: &mut Report) {
    let mut whole = BTreeSet::new();
    let mut requests = BTreeSet::new();
    let mut with_requests = BTreeSet::new();
    for claim in field.items() {
        let (name, request) = (claim.text_of("name"), claim.text_of("request"));
        if name.is_empty() {
            report.required(&claim, "");
            continue;
        }
        if whole.contains(name) {
            report.duplicate_text(&claim, name);
        } else if request.is_empty() {
            whole.insert(name);
            if with_requests.contains(name) {
                report.duplicate_text(&claim, name);
            }
        } else {
            report.each(&claim.get("request"), dns_label(request));
            if !requests.insert((name, request)) {
                report.duplicate_text(&claim, &format!("{name}/{request}"));
            }
            with_requests.insert(name);
        }
        if !claims.contains(name) {
            let known = if claims.is_empty() {
                " which is empty".to_owned()
            } else {
                format!(": {}", claims.iter().copied().collect::<Vec<_>>().join(", "))
            };
            report.push(
                &claim,
                CauseReason::NotFound,
                format!(
                    "Not found: {}: must be one of the names in pod.spec.resourceClaims{known}",
                    quoted(name)
                ),
            );
        }
    }
}
