//! Services of type LoadBalancer, which get an address. Nothing listens on it.

use serde_json::{Value, json};

use super::Family;
use crate::kinds::{Key, Kind};
use crate::nodes::spread;
use crate::object::{Object, items, text};
use crate::plan::{Note, Plan, Request, View};
use crate::store::Change;

/// Finalizer that keeps a Service until its load balancer is deleted.
const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

pub(crate) fn wakes(change: &Change, keys: &mut Vec<Key>) {
    if let Some(service) = change.after.as_ref().filter(|service| service.key.kind == Kind::Service) {
        keys.push(service.key.clone());
    }
}

pub(crate) fn reconcile(view: &View<'_>, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(service) = view.store.get(key) else { return plan };
    let spec = service.spec();
    let wanted = spec["type"] == "LoadBalancer" && spec["loadBalancerClass"].is_null();
    if service.deleting || !wanted {
        // The controller of another class adds the same finalizer to its own Services.
        if service.has_finalizer(FINALIZER) && spec["loadBalancerClass"].is_null() {
            delete(service, &mut plan);
        }
        return plan;
    }
    if !service.has_finalizer(FINALIZER) {
        let patch = json!({"metadata": {"finalizers": [FINALIZER], "uid": &*service.uid}});
        let note = Note::normal(service, "EnsuringLoadBalancer", "Ensuring load balancer");
        plan.then(Request::patch(key, patch, "load-balancer").noting(note, None));
    }
    if !has_ingress(service) {
        let status = json!({"loadBalancer": {"ingress": ingress(view, service)}});
        let note = Note::normal(service, "EnsuredLoadBalancer", "Ensured load balancer");
        plan.then(patch_status(service, &status).noting(note, None));
    }
    plan
}

fn has_ingress(service: &Object) -> bool {
    items(&service.status()["loadBalancer"]["ingress"]).next().is_some()
}

fn patch_status(service: &Object, status: &Value) -> Request {
    let patch = json!({"metadata": {"uid": &*service.uid}, "status": status});
    Request::patch_status(&service.key, patch, "load-balancer")
}

fn delete(service: &Object, plan: &mut Plan) {
    if has_ingress(service) {
        let note = Note::normal(service, "DeletingLoadBalancer", "Deleting load balancer");
        plan.then(patch_status(service, &json!({"loadBalancer": null})).noting(note, None));
    }
    let patch =
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER], "uid": &*service.uid}});
    let note = Note::normal(service, "DeletedLoadBalancer", "Deleted load balancer");
    plan.then(Request::patch(&service.key, patch, "load-balancer").noting(note, None));
}

/// Returns an unused address for each of the Service's families.
fn ingress(view: &View<'_>, service: &Object) -> Vec<Value> {
    let asked = text(&service.spec()["loadBalancerIP"]);
    let addresses = if asked.is_empty() {
        Family::of_service(service).into_iter().map(|family| free_address(view, service, family)).collect()
    } else {
        vec![asked.to_owned()]
    };
    addresses.into_iter().map(|address| json!({"ip": address, "ipMode": "VIP"})).collect()
}

fn free_address(view: &View<'_>, service: &Object, family: Family) -> String {
    let mut number = spread(&service.uid);
    loop {
        let [_, second, third, fourth] = number.to_be_bytes();
        let address = match family {
            // From 172.24.0.0/13, or from a private IPv6 network.
            Family::V4 => format!("172.{}.{third}.{fourth}", 24 + second % 8),
            Family::V6 => format!("fd00:6b:6763::{number:x}"),
        };
        let used = view.store.all(Kind::Service).any(|other| {
            items(&other.status()["loadBalancer"]["ingress"]).any(|ingress| ingress["ip"] == address)
        });
        if !used {
            return address;
        }
        number = number.wrapping_add(1);
    }
}
