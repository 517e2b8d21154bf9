//! Endpoints of Services with a selector.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::{
    ELECTION_RECORD, Family, HEADLESS, TRIGGER_TIME, addresses, has_address, hostname, is_reachable,
    pods_behind, ports_on, readiness_changed, target, wake_for_pod,
};
use crate::kinds::{Key, Kind};
use crate::object::{Object, items, map, text};
use crate::plan::{Note, Plan, Request, View};
use crate::pods;
use crate::store::Change;

/// Maximum number of addresses in Endpoints; further ones are left out.
pub const MAX_ADDRESSES: usize = 1000;
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const CONTROLLER: &str = "endpoint-controller";

/// Reconciles a Service when it changes, when a pod behind it does, and when its Endpoints are deleted.
pub(crate) fn wakes(view: &View<'_>, change: &Change, keys: &mut Vec<Key>) {
    let Some(object) = change.object() else { return };
    match object.key.kind {
        Kind::Service => keys.push(object.key.clone()),
        Kind::Endpoints => {
            let appeared = change.before.is_none() && object.label(MANAGED_BY) == Some(CONTROLLER);
            if change.after.is_none() || appeared {
                keys.push(Kind::Service.key(object.namespace(), object.name()));
            }
        }
        Kind::Pod => wake_for_pod(view, change, keys),
        _ => {}
    }
}

pub(crate) fn reconcile(view: &View<'_>, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let known = view.store.find(Kind::Endpoints, &key.namespace, &key.name);
    let Some(service) = view.store.get(key) else {
        // Nothing else may write Endpoints that serve a leader election.
        if let Some(known) = known.filter(|known| known.annotation(ELECTION_RECORD).is_none()) {
            plan.then(Request::delete(known, "service-gone"));
        }
        return plan;
    };
    let Some(pods) = pods_behind(view, service) else { return plan };
    let pods: Vec<&Object> = pods.into_iter().map(|pod| &**pod).collect();
    let (subsets, truncated) = truncate(subsets(service, &pods));
    let mut labels = map(service.labels());
    labels.insert(MANAGED_BY.into(), CONTROLLER.into());
    labels.remove(HEADLESS);
    if !has_address(service) {
        labels.insert(HEADLESS.into(), "".into());
    }
    let same = |known: &Object| {
        let shown = known.annotation(OVER_CAPACITY).is_some();
        without_versions(&known.value["subsets"]) == json!(subsets)
            && map(known.labels()) == labels
            && shown == truncated
    };
    if known.is_some_and(|known| same(known)) {
        return plan;
    }
    let shown = known.map(|known| shown_addresses(&known.value)).unwrap_or_default();
    let mut value = known.map_or_else(
        || {
            json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {
            "name": service.name(), "namespace": service.namespace()}})
        },
        |known| known.value.clone(),
    );
    let mut annotations = map(&value["metadata"]["annotations"]);
    set(&mut annotations, TRIGGER_TIME, trigger(service, &pods, &shown, known.is_none()));
    set(&mut annotations, OVER_CAPACITY, truncated.then(|| "truncated".into()));
    value["metadata"]["annotations"] = annotations.into();
    value["metadata"]["labels"] = labels.into();
    value["subsets"] = subsets.into();
    let (namespace, name) = (service.namespace(), service.name());
    plan.then(match known {
        Some(known) => {
            let message = format!("Failed to update endpoint {namespace}/{name}: {{}}");
            let note = Note::warning(known, "FailedToUpdateEndpoint", message);
            Request::update(&known.key, value, "endpoints").noting(None, note)
        }
        None => {
            let message = format!("Failed to create endpoint for service {namespace}/{name}: {{}}");
            let mut note = Note::warning(service, "FailedToCreateEndpoint", message);
            note.about =
                json!({"apiVersion": "v1", "kind": "Endpoints", "namespace": namespace, "name": name});
            Request::create(Kind::Endpoints, namespace, value, "missing").noting(None, note)
        }
    });
    plan
}

fn set(map: &mut Map<String, Value>, name: &str, value: Option<Value>) {
    match value {
        Some(value) => map.insert(name.into(), value),
        None => map.remove(name),
    };
}

/// Returns the time of the earliest change that the Endpoints do not show yet.
fn trigger(service: &Object, pods: &[&Object], shown: &BTreeMap<&str, bool>, created: bool) -> Option<Value> {
    let everything = service.spec()["publishNotReadyAddresses"] == true;
    let changed = pods.iter().filter(|pod| {
        let wanted = is_reachable(pod).then_some(everything || pod.ready);
        shown.get(text(&pod.status()["podIP"])).copied() != wanted
    });
    let times = changed.map(|pod| readiness_changed(pod)).filter(|at| !at.is_null());
    let of_service = created.then_some(&service.value["metadata"]["creationTimestamp"]);
    times.chain(of_service).min_by_key(|at| text(at).to_owned()).cloned()
}

/// Returns the addresses in Endpoints, and whether each is ready.
fn shown_addresses(endpoints: &Value) -> BTreeMap<&str, bool> {
    let of = |field: &'static str, ready: bool| {
        items(&endpoints["subsets"])
            .flat_map(move |subset| items(&subset[field]))
            .map(move |address| (text(&address["ip"]), ready))
    };
    of("notReadyAddresses", false).chain(of("addresses", true)).collect()
}

/// An address with its pod, and whether it is ready.
type Address = (IpAddr, String, bool);

/// Groups the pods' addresses by their ports.
fn subsets(service: &Object, pods: &[&Object]) -> Vec<Value> {
    let spec = service.spec();
    let everything = spec["publishNotReadyAddresses"] == true;
    let family = Family::of_service(service)[0];
    let without_ports = items(&spec["ports"]).next().is_none();
    let mut groups: BTreeMap<String, (Vec<Value>, BTreeMap<Address, Value>)> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| is_reachable(pod) && (everything || !pod.deleting)) {
        let Some(ip) = addresses(pod, family).into_iter().next() else { continue };
        let ports = ports_on(service, pod);
        if ports.is_empty() && (has_address(service) || !without_ports) {
            continue;
        }
        let mut address = json!({"ip": ip, "nodeName": pods::node_name(pod), "targetRef": target(pod)});
        if let Some(name) = hostname(service, pod) {
            address["hostname"] = name.into();
        }
        let ready = everything || pod.ready;
        let Ok(parsed) = ip.parse() else { continue };
        let group = groups.entry(json!(ports).to_string()).or_default();
        group.0 = ports;
        group.1.insert((parsed, pod.uid.to_string(), ready), address);
    }
    groups.into_values().map(|(ports, addresses)| subset(ports, &addresses)).collect()
}

fn subset(ports: Vec<Value>, addresses: &BTreeMap<Address, Value>) -> Value {
    let mut subset = Map::new();
    for (field, wanted) in [("addresses", true), ("notReadyAddresses", false)] {
        let part = addresses.iter().filter(|((_, _, ready), _)| *ready == wanted);
        let part: Vec<Value> = part.map(|(_, address)| address.clone()).collect();
        if !part.is_empty() {
            subset.insert(field.into(), part.into());
        }
    }
    if !ports.is_empty() {
        // A port without a name has no such field here.
        let named = ports.into_iter().map(crate::object::without_zeros).collect::<Vec<Value>>();
        subset.insert("ports".into(), named.into());
    }
    subset.into()
}

/// Removes addresses beyond [`MAX_ADDRESSES`], first those that are not ready, from each subset in proportion.
fn truncate(mut subsets: Vec<Value>) -> (Vec<Value>, bool) {
    let count = |subset: &Value, field: &str| items(&subset[field]).count();
    let sum = |field: &str| subsets.iter().map(|subset| count(subset, field)).sum::<usize>();
    let (ready, not_ready) = (sum("addresses"), sum("notReadyAddresses"));
    if ready + not_ready <= MAX_ADDRESSES {
        return (subsets, false);
    }
    let (field, room, total) = if ready > MAX_ADDRESSES {
        ("addresses", MAX_ADDRESSES, ready)
    } else {
        ("notReadyAddresses", MAX_ADDRESSES - ready, not_ready)
    };
    let mut left = room;
    for subset in &mut subsets {
        if field == "addresses"
            && let Some(fields) = subset.as_object_mut()
        {
            fields.remove("notReadyAddresses");
        }
        let part = (count(subset, field) * room).div_ceil(total).min(left);
        if let Some(list) = subset[field].as_array_mut() {
            list.truncate(part);
            left -= list.len();
        }
        if let Some(fields) = subset.as_object_mut() {
            fields.retain(|_, value| value.as_array().is_none_or(|list| !list.is_empty()));
        }
    }
    (subsets, true)
}

/// Returns subsets without the versions of the pods, which change more often than what is shown.
fn without_versions(subsets: &Value) -> Value {
    let mut subsets = Value::Array(items(subsets).cloned().collect());
    for subset in subsets.as_array_mut().into_iter().flatten() {
        for field in ["addresses", "notReadyAddresses"] {
            for address in subset[field].as_array_mut().into_iter().flatten() {
                if let Some(target) = address["targetRef"].as_object_mut() {
                    target.remove("resourceVersion");
                }
            }
        }
        if let Some(fields) = subset.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
    }
    subsets
}
