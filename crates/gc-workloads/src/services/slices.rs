//! EndpointSlices of Services with a selector: the pods behind them, at most [`MAX_ENDPOINTS`] per slice, changing as few slices as
//! possible.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{
    Family, HEADLESS, SERVICE_NAME, TRIGGER_TIME, addresses, has_address, hostname, is_reachable,
    name_prefix, pods_behind, ports_on, readiness_changed, target, wake_for_pod,
};
use crate::kinds::{Key, Kind};
use crate::object::{Object, items, map, text};
use crate::plan::{Note, Plan, Request, View};
use crate::pods;
use crate::store::Change;

/// Maximum number of endpoints in a slice.
pub const MAX_ENDPOINTS: usize = 100;
/// Label with the manager of a slice.
pub(super) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const CONTROLLER: &str = "endpointslice-controller.k8s.io";
const ZONE: &str = "topology.kubernetes.io/zone";

/// Reconciles a Service when it changes, when one of its slices does, when a pod behind it does, and when the node of one appears
/// or moves to another zone.
pub(crate) fn wakes(view: &View<'_>, change: &Change, keys: &mut Vec<Key>) {
    let Some(object) = change.object() else { return };
    match object.key.kind {
        Kind::Service => keys.push(object.key.clone()),
        Kind::EndpointSlice => {
            let both = [&change.before, &change.after].into_iter().flatten();
            let managed = both.filter(|slice| slice.label(MANAGED_BY) == Some(CONTROLLER));
            let services = managed.filter_map(|slice| slice.label(SERVICE_NAME));
            keys.extend(services.map(|name| Kind::Service.key(object.namespace(), name)));
        }
        Kind::Pod => wake_for_pod(view, change, keys),
        Kind::Node if change.differs(|node| &node.labels()[ZONE]) => {
            for pod in view.store.pods_on(object.name()) {
                let appeared = Change { before: None, after: Some(Arc::clone(pod)) };
                wake_for_pod(view, &appeared, keys);
            }
        }
        _ => {}
    }
}

pub(crate) fn reconcile(view: &View<'_>, key: &Key) -> Plan {
    let Some(service) = view.store.get(key) else { return Plan::default() };
    let Some(pods) = pods_behind(view, service) else { return Plan::default() };
    let existing: Vec<&Arc<Object>> = view
        .store
        .slices_of(&key.namespace, service.name())
        .filter(|slice| slice.label(MANAGED_BY) == Some(CONTROLLER) && !slice.deleting)
        // Slices that an orphaning deletion has released stay: upstream checks a second later, and finds no Service.
        .filter(|slice| !service.deleting || slice.controls_of(service))
        .collect();
    let mut work = Work::new(service, &existing);
    let families = Family::of_service(service);
    for &family in &families {
        let of_family = existing.iter().filter(|slice| slice.value["addressType"] == family.name());
        work.family(view, family, &pods, of_family.copied());
    }
    let served = |slice: &Object| families.iter().any(|family| slice.value["addressType"] == family.name());
    work.surplus.extend(existing.iter().filter(|slice| !served(slice)).map(|slice| Arc::clone(slice)));
    work.plan()
}

/// Endpoints with the same ports.
#[derive(Debug, Default)]
struct Group {
    ports: Vec<Value>,
    /// Endpoints by identity.
    endpoints: BTreeMap<String, Value>,
    known: Vec<Arc<Object>>,
}

/// Changes to a Service's slices.
struct Work<'a> {
    service: &'a Object,
    labels: Map<String, Value>,
    create: Vec<Value>,
    update: Vec<(Key, Value)>,
    surplus: Vec<Arc<Object>>,
    /// Serving state of the published endpoints, by identity.
    shown: BTreeMap<String, Value>,
    /// Times of the changes that this plan shows.
    triggers: Vec<Value>,
}

impl<'a> Work<'a> {
    fn new(service: &'a Object, existing: &[&Arc<Object>]) -> Self {
        let mut labels = labels_of_users(service.labels());
        if !has_address(service) {
            labels.insert(HEADLESS.into(), "".into());
        }
        labels.insert(SERVICE_NAME.into(), service.name().into());
        labels.insert(MANAGED_BY.into(), CONTROLLER.into());
        let endpoints = existing.iter().flat_map(|slice| items(&slice.value["endpoints"]));
        let shown =
            endpoints.map(|shown| (identity(shown), shown["conditions"]["serving"].clone())).collect();
        let (create, update, surplus) = (Vec::new(), Vec::new(), Vec::new());
        Self { service, labels, create, update, surplus, shown, triggers: Vec::new() }
    }

    fn family<'s>(
        &mut self,
        view: &View<'_>,
        family: Family,
        pods: &[&Arc<Object>],
        existing: impl Iterator<Item = &'s Arc<Object>>,
    ) {
        let mut groups: BTreeMap<String, Group> = BTreeMap::new();
        for pod in pods.iter().filter(|pod| is_reachable(pod)) {
            let ports = ports_on(self.service, pod);
            let group = groups.entry(port_key(&ports)).or_default();
            group.ports = ports;
            let node = view.store.find(Kind::Node, "", pods::node_name(pod));
            // A pod on an unknown node is shown once the node is known.
            if node.is_none() && self.service.spec()["publishNotReadyAddresses"] != true {
                continue;
            }
            let addresses = addresses(pod, family);
            if !addresses.is_empty() {
                let endpoint = endpoint(self.service, pod, node, &addresses);
                group.endpoints.insert(identity(&endpoint), endpoint);
            }
        }
        let (created, surplus) = (self.create.len(), self.surplus.len());
        let mut count = 0;
        for slice in existing {
            count += 1;
            let ports = port_key(&sorted(&slice.value["ports"]));
            match groups.get_mut(&ports).filter(|_| slice.controls_of(self.service)) {
                Some(group) => group.known.push(Arc::clone(slice)),
                None => self.surplus.push(Arc::clone(slice)),
            }
        }
        for group in groups.into_values() {
            self.group(family, group, pods);
        }
        // A Service always has at least one slice, even if it is empty.
        let kept = count - (self.surplus.len() - surplus);
        if kept == 0 && self.create.len() == created {
            let only = self.surplus[surplus..].first().filter(|_| count == 1);
            if only.is_some_and(|slice| self.is_placeholder(slice)) {
                self.surplus.pop();
            } else {
                self.create.push(self.slice(family, &[], &[]));
            }
        }
        self.recycle(family);
    }

    /// Distributes endpoints with the same ports: those that are published stay where they are, changed slices are filled first,
    /// then the fullest unchanged slice with room for all that is left, then new ones.
    fn group(&mut self, family: Family, group: Group, pods: &[&Arc<Object>]) {
        let Group { ports, mut endpoints, known } = group;
        let (mut changed, mut unchanged): (Vec<(Arc<Object>, Vec<Value>)>, Vec<_>) = Default::default();
        for slice in known {
            let before: Vec<&Value> = items(&slice.value["endpoints"]).collect();
            let mut differs = false;
            let mut after = Vec::new();
            for shown in &before {
                if let Some(wanted) = endpoints.remove(&identity(shown)) {
                    if !same(shown, &wanted) {
                        differs = true;
                        if shown["conditions"]["serving"] != wanted["conditions"]["serving"] {
                            self.trigger(&wanted, pods);
                        }
                    }
                    after.push(wanted);
                }
            }
            let relabelled = labels_of_users(slice.labels()) != labels_of_users(self.service.labels());
            if after.is_empty() && !before.is_empty() {
                self.surplus.push(slice);
            } else if differs || relabelled || after.len() != before.len() {
                changed.push((slice, after));
            } else {
                unchanged.push((slice, after));
            }
        }
        for (identity, added) in &endpoints {
            // The endpoint may only have moved to a slice with other ports.
            if self.shown.get(identity) != Some(&added["conditions"]["serving"]) {
                self.trigger(added, pods);
            }
        }
        let mut left: VecDeque<Value> = endpoints.into_values().collect();
        changed.sort_by_key(|(_, endpoints)| std::cmp::Reverse(endpoints.len()));
        for (_, endpoints) in &mut changed {
            fill(endpoints, &mut left);
        }
        while !left.is_empty() {
            let room = |(_, endpoints): &&(Arc<Object>, Vec<Value>)| MAX_ENDPOINTS - endpoints.len();
            let fitting =
                unchanged.iter().filter(|slice| left.len() < MAX_ENDPOINTS && room(slice) >= left.len());
            let fullest = fitting.min_by_key(room).map(|(slice, _)| Arc::clone(slice));
            let position =
                fullest.and_then(|slice| unchanged.iter().position(|(one, _)| one.key == slice.key));
            if let Some(position) = position {
                let (slice, mut endpoints) = unchanged.remove(position);
                fill(&mut endpoints, &mut left);
                changed.push((slice, endpoints));
            } else {
                let mut endpoints = Vec::new();
                fill(&mut endpoints, &mut left);
                self.create.push(self.slice(family, &ports, &endpoints));
            }
        }
        for (slice, endpoints) in changed {
            let mut value = slice.value.clone();
            value["endpoints"] = endpoints.into();
            value["metadata"]["labels"] = self.labels.clone().into();
            self.update.push((slice.key.clone(), value));
        }
    }

    /// Records the time at which a pod began or ceased to be ready as a trigger of this plan.
    fn trigger(&mut self, endpoint: &Value, pods: &[&Arc<Object>]) {
        let name = &endpoint["targetRef"]["name"];
        let pod = pods.iter().find(|pod| name == pod.name());
        self.triggers.extend(pod.map(|pod| readiness_changed(pod).clone()).filter(|at| !at.is_null()));
    }

    fn is_placeholder(&self, slice: &Object) -> bool {
        slice.controls_of(self.service)
            && items(&slice.value["endpoints"]).next().is_none()
            && items(&slice.value["ports"]).next().is_none()
            && map(slice.labels()) == self.labels
    }

    fn slice(&self, family: Family, ports: &[Value], endpoints: &[Value]) -> Value {
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "generateName": name_prefix(self.service.name()), "namespace": self.service.namespace(),
                "labels": self.labels, "ownerReferences": [self.service.controller_reference()],
            },
            "addressType": family.name(), "ports": ports, "endpoints": endpoints,
        })
    }

    /// Changes slices that would be deleted into those that would be created.
    fn recycle(&mut self, family: Family) {
        let mut index = 0;
        while index < self.surplus.len() && !self.create.is_empty() {
            let slice = &self.surplus[index];
            let fits = slice.value["addressType"] == family.name()
                && self.create.last().is_some_and(|new| new["addressType"] == family.name())
                && slice.controls_of(self.service);
            if !fits {
                index += 1;
                continue;
            }
            let slice = self.surplus.remove(index);
            if let Some(new) = self.create.pop() {
                let mut value = slice.value.clone();
                for part in ["ports", "endpoints"] {
                    value[part] = new[part].clone();
                }
                value["metadata"]["labels"] = new["metadata"]["labels"].clone();
                self.update.push((slice.key.clone(), value));
            }
        }
    }

    fn plan(mut self) -> Plan {
        let mut plan = Plan::default();
        let created = &self.service.value["metadata"]["creationTimestamp"];
        if self.update.is_empty() && self.surplus.is_empty() {
            self.triggers.push(created.clone());
        }
        let trigger = self.triggers.iter().min_by_key(|at| text(at).to_owned()).cloned();
        let failed = |what: &str| {
            let (namespace, name) = (self.service.namespace(), self.service.name());
            let message = format!("Error {what} Endpoint Slices for Service {namespace}/{name}: {{}}");
            Note::warning(self.service, "FailedToUpdateEndpointSlices", message)
        };
        let mut requests = Vec::new();
        if !self.service.deleting {
            for mut slice in self.create {
                annotate(&mut slice, trigger.as_ref());
                let namespace = self.service.namespace();
                let request = Request::create(Kind::EndpointSlice, namespace, slice, "missing");
                requests.push(request.noting(None, failed("updating")));
            }
        }
        for (key, mut slice) in self.update {
            annotate(&mut slice, trigger.as_ref());
            requests.push(Request::update(&key, slice, "endpoints").noting(None, failed("updating")));
        }
        for slice in &self.surplus {
            requests.push(Request::delete(slice, "surplus").noting(None, failed("updating")));
        }
        plan.together(requests);
        plan
    }
}

fn annotate(slice: &mut Value, trigger: Option<&Value>) {
    let mut annotations = map(&slice["metadata"]["annotations"]);
    match trigger {
        Some(trigger) => annotations.insert(TRIGGER_TIME.into(), trigger.clone()),
        None => annotations.remove(TRIGGER_TIME),
    };
    slice["metadata"]["annotations"] = annotations.into();
}

/// Moves endpoints into a slice until it is full.
fn fill(slice: &mut Vec<Value>, left: &mut VecDeque<Value>) {
    let room = MAX_ENDPOINTS.saturating_sub(slice.len()).min(left.len());
    slice.extend(left.drain(..room));
}

fn endpoint(service: &Object, pod: &Object, node: Option<&Arc<Object>>, addresses: &[String]) -> Value {
    let (serving, terminating) = (pod.ready, pod.deleting);
    let ready = service.spec()["publishNotReadyAddresses"] == true || (serving && !terminating);
    let mut endpoint = json!({
        "addresses": addresses,
        "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
        "targetRef": target(pod),
    });
    let node_name = pods::node_name(pod);
    let zone = node.and_then(|node| node.label(ZONE)).filter(|zone| !zone.is_empty());
    let optional = [
        ("nodeName", Some(node_name).filter(|name| !name.is_empty())),
        ("zone", zone),
        ("hostname", hostname(service, pod)),
    ];
    for (field, value) in optional {
        if let Some(value) = value {
            endpoint[field] = value.into();
        }
    }
    endpoint
}

/// Returns the identity of an endpoint: its addresses, host name and pod.
pub(super) fn identity(endpoint: &Value) -> String {
    let target = &endpoint["targetRef"];
    let addresses = sorted(&endpoint["addresses"]);
    json!([addresses, endpoint["hostname"], target["namespace"], target["name"]]).to_string()
}

/// Reports whether two versions of an endpoint are equivalent.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    let target = |endpoint: &Value| {
        let mut target = map(&endpoint["targetRef"]);
        target.remove("resourceVersion");
        target
    };
    ["nodeName", "zone", "conditions"].iter().all(|field| a[*field] == b[*field]) && target(a) == target(b)
}

fn sorted(list: &Value) -> Vec<Value> {
    let mut sorted: Vec<Value> = items(list).cloned().collect();
    sorted.sort_by_key(Value::to_string);
    sorted
}

/// Returns the key that identifies slices with the same ports.
pub(super) fn port_key(ports: &[Value]) -> String {
    json!(ports).to_string()
}

/// Returns the labels that are not the controller's own.
fn labels_of_users(labels: &Value) -> Map<String, Value> {
    let mut labels = map(labels);
    labels.retain(|name, _| !matches!(name.as_str(), SERVICE_NAME | MANAGED_BY | HEADLESS));
    labels
}

impl Object {
    /// Reports whether one of its owner references names a Service.
    fn controls_of(&self, service: &Self) -> bool {
        items(&self.value["metadata"]["ownerReferences"]).any(|owner| {
            owner["uid"] == *service.uid && owner["kind"] == "Service" && owner["apiVersion"] == "v1"
        })
    }
}
