//! ResourceQuota: limits the usage of a namespace. A write is charged in its own transaction, so that two concurrent writes cannot
//! exceed a quota, and a failed write is not charged.

pub(crate) mod pods;
mod recount;

use std::collections::{BTreeMap, BTreeSet};

use gc_types::Quantity;
use serde_json::Value;

use self::pods::Amounts;
use crate::admission::Request;
use crate::error::ApiError;
use crate::kinds::access::{at, flag, integer, list, members, text};
use crate::metadata::meta;
use crate::metadata::quantity;
use crate::persist;
use crate::registry::call::Charge;
use crate::resource::ResourceDefinition;
use crate::storage::RangeOptions;

/// Core resources that quotas also count by their plain names.
const COUNTED_BY_NAME: [&str; 6] = [
    "configmaps",
    "persistentvolumeclaims",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
];

/// Suffix of the names under which devices of a class are counted.
const PER_DEVICE_CLASS: &str = ".deviceclass.resource.k8s.io/devices";

/// Returns the charges of a write; fails with a 403 if a quota does not permit it.
pub(crate) fn charges(request: &Request<'_>, new: &Value) -> Result<Vec<Charge>, ApiError> {
    let resource = request.call.resource();
    let grows = ["services", "persistentvolumeclaims"].iter().any(|name| resource.is("", name));
    let changes_scope =
        resource.is("", "pods") && request.old.is_some_and(|old| pods::ends(old) != pods::ends(new));
    let is_object = request.call.target.subresource.is_empty();
    let is_counted = is_object && (request.old.is_none() || grows || changes_scope) || request.resizes();
    if request.namespace().is_empty() || !is_counted {
        return Ok(Vec::new());
    }
    let catalog = request.call.registry.catalog();
    let Some(definition) = catalog.find("", "v1", "resourcequotas") else { return Ok(Vec::new()) };
    let prefix = persist::collection_prefix(definition, request.namespace());
    let stored = request
        .call
        .registry
        .storage
        .range(&prefix, &RangeOptions::default())
        .map_err(persist::storage_error)?;
    let mut charges = Vec::new();
    if stored.items.is_empty() {
        return Ok(charges);
    }
    let needed = needed(request, new);
    for item in &stored.items {
        let mut quota = persist::decode(definition, item)?;
        if let Some(used) = judge(request, new, &quota, &needed)? {
            quota["status"]["used"] = written(&used);
            charges.push(Charge {
                key: std::sync::Arc::clone(&item.key),
                revision: item.mod_revision,
                value: Some(persist::encode(definition, &quota)?),
            });
        }
    }
    Ok(charges)
}

/// Returns amounts in the form of a status.
fn written(amounts: &Amounts) -> Value {
    Value::Object(amounts.iter().map(|(name, amount)| (name.clone(), amount.to_string().into())).collect())
}

/// Returns the usage of an object.
fn usage(resource: &ResourceDefinition, object: &Value) -> Amounts {
    let one = Quantity::from_units(1);
    let mut found = Amounts::new();
    if resource.is("", "pods") {
        return pods::usage(object);
    }
    found.insert(format!("count/{}", gc_types::group_resource(&resource.group, &resource.resource)), one);
    if resource.group.is_empty() && COUNTED_BY_NAME.contains(&&*resource.resource) {
        found.insert(resource.resource.to_string(), one);
    }
    if resource.is("", "services") {
        service(object, &mut found);
    }
    if resource.is("", "persistentvolumeclaims") {
        claim(object, &mut found);
    }
    if resource.is("resource.k8s.io", "resourceclaims") {
        devices(object, &mut found);
    }
    found
}

/// Adds the maximum number of devices that a claim may get, by class: of alternatives, the one that needs the most.
fn devices(claim: &Value, found: &mut Amounts) {
    /// Maximum number of devices of one claim.
    const MOST_DEVICES: i64 = 32;
    let count = |request: &Value| match text(request, &["allocationMode"]) {
        "ExactCount" => integer(request, &["count"]).unwrap_or_default(),
        "All" => MOST_DEVICES,
        _ => 0,
    };
    for request in list(claim, &["spec", "devices", "requests"]) {
        let alternatives = list(request, &["firstAvailable"]);
        let asked = if alternatives.is_empty() { at(request, &["exactly"]) } else { None };
        let mut most: BTreeMap<String, i64> = BTreeMap::new();
        for one in alternatives.iter().chain(asked) {
            let name = format!("{}{PER_DEVICE_CLASS}", text(one, &["deviceClassName"]));
            let known = most.entry(name).or_default();
            *known = count(one).max(*known);
        }
        for (name, count) in most {
            let sum = found.entry(name).or_default();
            *sum = *sum + Quantity::from_units(count);
        }
    }
}

fn service(object: &Value, found: &mut Amounts) {
    let ports = list(object, &["spec", "ports"]);
    let kind = text(object, &["spec", "type"]);
    let with_port = ports.iter().filter(|port| integer(port, &["nodePort"]).is_some_and(|port| port != 0));
    let allocates = flag(object, &["spec", "allocateLoadBalancerNodePorts"]) != Some(false);
    let node_ports = match kind {
        "NodePort" => ports.len(),
        "LoadBalancer" if allocates => ports.len(),
        "LoadBalancer" => with_port.count(),
        _ => 0,
    };
    found.insert(
        "services.nodeports".into(),
        Quantity::from_units(i64::try_from(node_ports).unwrap_or(i64::MAX)),
    );
    found.insert("services.loadbalancers".into(), Quantity::from_units((kind == "LoadBalancer").into()));
}

fn claim(object: &Value, found: &mut Amounts) {
    let size = at(object, &["spec", "resources", "requests", "storage"]);
    let size = size.and_then(quantity::of).and_then(Result::ok);
    let class = text(object, &["spec", "storageClassName"]);
    let of_class = |name: &str| format!("{class}.storageclass.storage.k8s.io/{name}");
    if !class.is_empty() {
        found.insert(of_class("persistentvolumeclaims"), Quantity::from_units(1));
    }
    if let Some(size) = size {
        found.insert("requests.storage".into(), size);
        if !class.is_empty() {
            found.insert(of_class("requests.storage"), size);
        }
    }
}

/// Returns the additional usage of a write.
fn needed(request: &Request<'_>, new: &Value) -> Amounts {
    let mut needed = usage(request.call.resource(), new);
    if let Some(old) = request.old {
        for (name, amount) in usage(request.call.resource(), old) {
            let rest = needed.get(&name).copied().unwrap_or_default().without(amount);
            needed.insert(name, rest);
        }
    }
    needed.retain(|_, amount| !amount.is_zero());
    needed
}

/// Returns the new usage of a quota; `None` if the quota does not apply to the object.
fn judge(
    request: &Request<'_>,
    new: &Value,
    quota: &Value,
    needed: &Amounts,
) -> Result<Option<Amounts>, ApiError> {
    let hard = pods::amounts(members(quota, &["status", "hard"]));
    let mut used = pods::amounts(members(quota, &["status", "used"]));
    let resource = request.call.resource();
    let everything = usage(resource, new);
    let is_pod = resource.is("", "pods");
    let asked = |name: &str| is_pod && pods::is_asked(name);
    let concerned: BTreeSet<&str> = hard
        .keys()
        .map(String::as_str)
        .filter(|name| everything.contains_key(*name) || asked(name))
        .collect();
    if concerned.is_empty() || !in_scopes(resource, new, quota) {
        return Ok(None);
    }
    let name = meta::name(quota);
    if is_pod && let Some(why) = pods::unspecified(new, &concerned) {
        return Err(request.forbidden(new, &format!("failed quota: {name}: {why}")));
    }
    let unknown: Vec<&str> = concerned.iter().copied().filter(|name| !used.contains_key(*name)).collect();
    if !unknown.is_empty() {
        let all = concerned.iter().copied().collect::<Vec<_>>().join(",");
        return Err(request.forbidden(new, &format!("status unknown for quota: {name}, resources: {all}")));
    }
    // An object that was in other scopes before is charged completely.
    let is_new_here = request.old.is_some_and(|old| !in_scopes(resource, old, quota));
    let needed = if is_new_here { &everything } else { needed };
    let asks: Vec<(&String, &Quantity)> =
        needed.iter().filter(|(name, _)| hard.contains_key(*name)).collect();
    if asks.is_empty() {
        return Ok(None);
    }
    let sum = |name: &String, amount: Quantity| used.get(name).copied().unwrap_or_default() + amount;
    let exceeded: Vec<(&String, &Quantity)> = asks
        .iter()
        .copied()
        .filter(|(name, amount)| sum(name, **amount).exceeds(hard.get(*name).copied().unwrap_or_default()))
        .collect();
    if exceeded.is_empty() {
        let charged: Vec<(String, Quantity)> =
            asks.iter().map(|(name, amount)| ((*name).clone(), sum(name, **amount))).collect();
        used.extend(charged);
        return Ok(Some(used));
    }
    let show = |amount: &dyn Fn(&String) -> Quantity| {
        let texts: Vec<String> =
            exceeded.iter().map(|(name, _)| format!("{name}={}", amount(name))).collect();
        texts.join(",")
    };
    let of = |amounts: &Amounts, name: &String| amounts.get(name).copied().unwrap_or_default();
    let why = format!(
        "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
        show(&|name| of(needed, name)),
        show(&|name| of(&used, name)),
        show(&|name| of(&hard, name))
    );
    Err(request.forbidden(new, &why))
}

/// Reports whether an object is in all scopes of a quota.
fn in_scopes(resource: &ResourceDefinition, object: &Value, quota: &Value) -> bool {
    let is_claim = resource.is("", "persistentvolumeclaims");
    let is_pod = resource.is("", "pods");
    let scopes = list(quota, &["spec", "scopes"]).iter().filter_map(Value::as_str);
    let plain = scopes.map(|scope| (scope, "Exists", &[][..]));
    let expressions = list(quota, &["spec", "scopeSelector", "matchExpressions"]).iter();
    let selected = expressions.map(|expression| {
        let values = list(expression, &["values"]);
        (text(expression, &["scopeName"]), text(expression, &["operator"]), values)
    });
    plain.chain(selected).all(|(scope, operator, values)| match (is_pod, is_claim) {
        (true, _) => pods::in_scope(object, scope, operator, values),
        (_, true) => scope == "VolumeAttributesClass" && has_class(object, operator, values),
        _ => false,
    })
}

/// Reports whether a claim has, had or will have one of these VolumeAttributesClasses.
fn has_class(claim: &Value, operator: &str, values: &[Value]) -> bool {
    let paths: [&[&str]; 3] = [
        &["spec", "volumeAttributesClassName"],
        &["status", "currentVolumeAttributesClassName"],
        &["status", "modifyVolumeStatus", "targetVolumeAttributesClassName"],
    ];
    let mut names = paths.iter().map(|path| text(claim, path)).filter(|name| !name.is_empty()).peekable();
    let listed = |name: &str| values.iter().any(|value| value == name);
    match operator {
        "In" => names.any(listed),
        // A claim without a class has none of the listed ones.
        "NotIn" => names.peek().is_none() || names.any(|name| !listed(name)),
        "DoesNotExist" => names.peek().is_none(),
        _ => names.peek().is_some(),
    }
}
