//! EndpointSlices of Services without a selector, which mirror Endpoints that a user writes.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Value, json};

use super::slices::{MANAGED_BY, identity, port_key, same};
use super::{ELECTION_RECORD, Family, SERVICE_NAME, TRIGGER_TIME, name_prefix};
use crate::kinds::{Key, Kind};
use crate::object::{Object, items, map, text};
use crate::plan::{Note, Plan, Request, View};
use crate::store::Change;

/// Maximum number of addresses in a subset that are mirrored.
pub const MAX_MIRRORED: usize = 1000;
const CONTROLLER: &str = "endpointslicemirroring-controller.k8s.io";
const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Reconciles Endpoints when they, their Service or a mirrored slice change.
pub(crate) fn wakes(change: &Change, keys: &mut Vec<Key>) {
    let Some(object) = change.object() else { return };
    match object.key.kind {
        Kind::Endpoints | Kind::Service => keys.push(Kind::Endpoints.key(object.namespace(), object.name())),
        Kind::EndpointSlice => {
            let both = [&change.before, &change.after].into_iter().flatten();
            let managed = both.filter(|slice| slice.label(MANAGED_BY) == Some(CONTROLLER));
            let names = managed.filter_map(|slice| slice.label(SERVICE_NAME));
            keys.extend(names.map(|name| Kind::Endpoints.key(object.namespace(), name)));
        }
        _ => {}
    }
}

pub(crate) fn reconcile(view: &View<'_>, key: &Key) -> Plan {
    let slices = view.store.slices_of(&key.namespace, &key.name);
    let slices = slices.filter(|slice| slice.label(MANAGED_BY) == Some(CONTROLLER) && !slice.deleting);
    let mut slices: Vec<Arc<Object>> = slices.cloned().collect();
    let service = view.store.find(Kind::Service, &key.namespace, &key.name);
    let mirrored = service.is_some_and(|service| service.spec()["selector"].is_null());
    let Some(endpoints) = view.store.get(key).filter(|endpoints| mirrored && is_mirrored(endpoints)) else {
        let mut plan = Plan::default();
        plan.together(slices.iter().map(|slice| Request::delete(slice, "not-mirrored")).collect());
        return plan;
    };
    let mut plan = Plan::default();
    let (mut create, mut update) = (Vec::new(), Vec::new());
    let mut surplus = Vec::new();
    for ((family, _), (ports, wanted)) in wanted(endpoints, &mut plan) {
        let matches = |slice: &Arc<Object>| {
            slice.value["addressType"] == family.name()
                && port_key(&sorted(&slice.value["ports"])) == port_key(&ports)
        };
        let (mut known, others): (Vec<_>, Vec<_>) = slices.into_iter().partition(matches);
        slices = others;
        surplus.extend(known.drain(1.min(known.len())..));
        let new = new_slice(endpoints, family, &ports, &wanted.values().collect::<Vec<_>>());
        match known.pop() {
            Some(slice) if shows(&slice, &wanted) => {}
            Some(slice) => update.push((slice, new)),
            None => create.push(new),
        }
    }
    surplus.extend(slices);
    // A surplus slice is reused as one that is needed.
    while let Some(position) = surplus.iter().position(|slice: &Arc<Object>| {
        create.last().is_some_and(|new: &Value| new["addressType"] == slice.value["addressType"])
    }) {
        if let Some(new) = create.pop() {
            update.push((surplus.remove(position), new));
        }
    }
    let mut requests = Vec::new();
    if !endpoints.deleting {
        let namespace = endpoints.namespace();
        let missing = |new| Request::create(Kind::EndpointSlice, namespace, new, "missing");
        requests.extend(create.into_iter().map(missing));
    }
    for (slice, new) in update {
        let mut value = slice.value.clone();
        for field in ["ports", "endpoints"] {
            value[field] = new[field].clone();
        }
        for field in ["labels", "annotations", "ownerReferences"] {
            value["metadata"][field] = new["metadata"][field].clone();
        }
        requests.push(Request::update(&slice.key, value, "endpoints"));
    }
    requests.extend(surplus.iter().map(|slice| Request::delete(slice, "surplus")));
    plan.together(requests);
    plan
}

fn is_mirrored(endpoints: &Object) -> bool {
    endpoints.label(SKIP_MIRROR) != Some("true") && endpoints.annotation(ELECTION_RECORD).is_none()
}

type WantedSlices = BTreeMap<(Family, String), (Vec<Value>, BTreeMap<String, Value>)>;

/// Returns the endpoints by family and ports, and notes what cannot be mirrored.
fn wanted(endpoints: &Object, plan: &mut Plan) -> WantedSlices {
    let mut wanted = WantedSlices::new();
    let (mut invalid, mut skipped) = (0, 0);
    for subset in items(&endpoints.value["subsets"]) {
        let ports = ports(&subset["ports"]);
        let ready = items(&subset["addresses"]).map(|address| (address, true));
        let all = ready.chain(items(&subset["notReadyAddresses"]).map(|address| (address, false)));
        let mut added = 0;
        for (address, ready) in all {
            if added == MAX_MIRRORED {
                skipped += 1;
                continue;
            }
            let Ok(ip) = text(&address["ip"]).parse::<IpAddr>() else {
                invalid += 1;
                continue;
            };
            added += 1;
            let group = wanted.entry((Family::of(ip), port_key(&ports))).or_default();
            group.0.clone_from(&ports);
            let endpoint = endpoint(address, ip, ready);
            group.1.insert(identity(&endpoint), endpoint);
        }
    }
    if invalid > 0 {
        let message = format!("Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices");
        plan.notes.push(Note::warning(endpoints, "InvalidIPAddress", message));
    }
    if skipped > 0 {
        let message = format!(
            "A max of {MAX_MIRRORED} addresses can be mirrored to EndpointSlices per Endpoints subset. {skipped} \
             addresses were skipped"
        );
        plan.notes.push(Note::warning(endpoints, "TooManyAddressesToMirror", message));
    }
    wanted
}

fn ports(ports: &Value) -> Vec<Value> {
    let shown = items(ports).map(|port| {
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        let mut shown = json!({"name": text(&port["name"]), "port": port["port"], "protocol": protocol});
        if !port["appProtocol"].is_null() {
            shown["appProtocol"] = port["appProtocol"].clone();
        }
        shown
    });
    sorted(&shown.collect::<Vec<_>>().into())
}

fn sorted(list: &Value) -> Vec<Value> {
    let mut sorted: Vec<Value> = items(list).cloned().collect();
    sorted.sort_by_key(Value::to_string);
    sorted
}

fn endpoint(address: &Value, ip: IpAddr, ready: bool) -> Value {
    let mut endpoint = json!({"addresses": [ip.to_string()], "conditions": {"ready": ready}});
    for field in ["targetRef", "nodeName", "hostname"] {
        if !address[field].is_null() {
            endpoint[field] = address[field].clone();
        }
    }
    endpoint
}

fn shows(slice: &Object, wanted: &BTreeMap<String, Value>) -> bool {
    let shown: Vec<&Value> = items(&slice.value["endpoints"]).collect();
    shown.len() == wanted.len()
        && shown.iter().all(|one| wanted.get(&identity(one)).is_some_and(|wanted| same(one, wanted)))
}

fn new_slice(endpoints: &Object, family: Family, ports: &[Value], shown: &[&Value]) -> Value {
    let mut labels = map(endpoints.labels());
    labels.insert(SERVICE_NAME.into(), endpoints.name().into());
    labels.insert(MANAGED_BY.into(), CONTROLLER.into());
    let mut annotations = map(&endpoints.value["metadata"]["annotations"]);
    annotations.retain(|name, _| name != TRIGGER_TIME && name != LAST_APPLIED);
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "generateName": name_prefix(endpoints.name()), "namespace": endpoints.namespace(), "labels": labels,
            "annotations": annotations, "ownerReferences": [endpoints.controller_reference()],
        },
        "addressType": family.name(), "ports": ports, "endpoints": shown,
    })
}
