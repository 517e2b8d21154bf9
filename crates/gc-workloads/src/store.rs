//! Observed objects by key, by owner, by node and by address.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::kinds::{Key, Kind};
use crate::object::{Object, condition, text};
use crate::resources::Amounts;
use crate::time::Milliseconds;

/// Label with the Service of an EndpointSlice.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// A change of one object.
#[derive(Clone, Debug)]
pub struct Change {
    /// The object before the change.
    pub before: Option<Arc<Object>>,
    /// The object now; `None` if it is gone.
    pub after: Option<Arc<Object>>,
}

impl Change {
    /// Returns the last known state of the object.
    #[must_use]
    pub fn object(&self) -> Option<&Arc<Object>> {
        self.after.as_ref().or(self.before.as_ref())
    }

    /// Reports whether the object appeared, disappeared, or a part of it changed.
    #[must_use]
    pub fn differs(&self, part: impl Fn(&Object) -> &Value) -> bool {
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => part(before) != part(after) || before.uid != after.uid,
            _ => true,
        }
    }
}

/// Objects that are visited together, without a lookup for each.
type Group = BTreeMap<Key, Arc<Object>>;

/// A kind, a namespace, and a label with its value.
type LabelKey = (Kind, Arc<str>, Box<str>, Box<str>);

/// All observed objects.
#[derive(Debug, Default)]
pub struct Store {
    objects: BTreeMap<Key, Arc<Object>>,
    /// Objects by the UID of the owner that manages them.
    controlled: BTreeMap<Arc<str>, Group>,
    /// Pods by node.
    on_node: BTreeMap<Box<str>, Group>,
    /// Sum of the requests of each node's unfinished pods.
    requested: BTreeMap<Box<str>, Amounts>,
    /// Pods by address.
    by_address: BTreeMap<Box<str>, Key>,
    /// Pods that wait for the scheduler.
    unscheduled: BTreeSet<Key>,
    /// Those of them for which no node was found.
    unschedulable: BTreeSet<Key>,
    /// Pods on nodes that keep others away.
    repelling: BTreeSet<Key>,
    /// Objects that nothing manages.
    orphans: Group,
    /// Pods by their labels, EndpointSlices by that of their Service, volumes by their claim.
    labelled: BTreeMap<LabelKey, Group>,
    /// UIDs that this process removed, until the watch confirms it: older observations of them are ignored.
    removed: BTreeMap<Arc<str>, Kind>,
}

impl Store {
    /// Returns an object.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<&Arc<Object>> {
        self.objects.get(key)
    }

    /// Returns an object by kind, namespace and name.
    #[must_use]
    pub fn find(&self, kind: Kind, namespace: &str, name: &str) -> Option<&Arc<Object>> {
        self.objects.get(&kind.key(namespace, name))
    }

    /// Returns all objects of a kind in a namespace, by name; the namespace is empty for cluster-scoped kinds.
    pub fn in_namespace<'a>(
        &'a self,
        kind: Kind,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
        let from = kind.key(namespace, "");
        let range = self.objects.range((Bound::Included(from), Bound::Unbounded));
        range
            .take_while(move |(key, _)| key.kind == kind && &*key.namespace == namespace)
            .map(|(_, object)| object)
    }

    /// Returns all objects of a kind.
    pub fn all(&self, kind: Kind) -> impl Iterator<Item = &Arc<Object>> {
        let range = self.objects.range((Bound::Included(kind.key("", "")), Bound::Unbounded));
        range.take_while(move |(key, _)| key.kind == kind).map(|(_, object)| object)
    }

    /// Returns the objects of a kind that this owner manages.
    pub fn controlled_by<'a>(
        &'a self,
        uid: &str,
        kind: Kind,
    ) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
        let objects = self.controlled.get(uid).into_iter().flat_map(Group::values);
        objects.filter(move |object| object.key.kind == kind)
    }

    /// Returns the object that manages this one, if it is known.
    #[must_use]
    pub fn controller_of(&self, object: &Object) -> Option<&Arc<Object>> {
        let reference = crate::object::controller_of(&object.value)?;
        let kind = Kind::of_reference(text(&reference["apiVersion"]), text(&reference["kind"]))?;
        let owner = self.find(kind, object.namespace(), text(&reference["name"]))?;
        (Some(&*owner.uid) == object.controller.as_deref()).then_some(owner)
    }

    /// Returns the pods of a namespace that have all of these labels, by name.
    #[must_use]
    pub fn pods_with<'a>(
        &'a self,
        namespace: &'a Arc<str>,
        labels: &Map<String, Value>,
    ) -> Box<dyn Iterator<Item = &'a Arc<Object>> + 'a> {
        if labels.is_empty() {
            return Box::new(self.in_namespace(Kind::Pod, namespace));
        }
        let fewest = self.rarest_label(namespace, labels);
        let wanted = labels.clone();
        let pods = fewest.into_iter().flat_map(Group::values);
        Box::new(
            pods.filter(move |pod| wanted.iter().all(|(name, value)| pod.labels().get(name) == Some(value))),
        )
    }

    /// Returns the pods with that one of these labels which the fewest pods have.
    fn rarest_label(&self, namespace: &Arc<str>, labels: &Map<String, Value>) -> Option<&Group> {
        let sets = labels.iter().map(|(name, value)| {
            self.labelled.get(&(Kind::Pod, Arc::clone(namespace), name.as_str().into(), text(value).into()))
        });
        sets.min_by_key(|set| set.map_or(0, Group::len)).flatten()
    }

    /// Returns the EndpointSlices with the label of a Service.
    pub fn slices_of(&self, namespace: &Arc<str>, service: &str) -> impl Iterator<Item = &Arc<Object>> {
        let labelled = (Kind::EndpointSlice, Arc::clone(namespace), SERVICE_NAME.into(), service.into());
        self.labelled.get(&labelled).into_iter().flat_map(Group::values)
    }

    /// Returns the volumes that name a claim.
    pub fn volumes_of(
        &self,
        namespace: &Arc<str>,
        claim: &str,
    ) -> impl Iterator<Item = &Arc<Object>> + use<'_> {
        self.claimed(Arc::clone(namespace), claim)
    }

    /// Returns the volumes that name no claim.
    pub fn free_volumes(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.claimed("".into(), "")
    }

    fn claimed(&self, namespace: Arc<str>, claim: &str) -> impl Iterator<Item = &Arc<Object>> + use<'_> {
        let claimed = (Kind::PersistentVolume, namespace, CLAIMED.into(), claim.into());
        self.labelled.get(&claimed).into_iter().flat_map(Group::values)
    }

    /// Returns the pods of a node.
    pub fn pods_on(&self, node: &str) -> impl Iterator<Item = &Arc<Object>> {
        self.on_node.get(node).into_iter().flat_map(Group::values)
    }

    /// Returns the sum of the requests of a node's unfinished pods.
    #[must_use]
    pub fn requested_on(&self, node: &str) -> Amounts {
        self.requested.get(node).cloned().unwrap_or_default()
    }

    /// Reports whether a pod has this address.
    #[must_use]
    pub fn is_address_used(&self, address: &str) -> bool {
        self.by_address.contains_key(address)
    }

    /// Returns the pods that wait for the scheduler.
    pub fn unscheduled(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.unscheduled.iter().filter_map(|key| self.objects.get(key))
    }

    /// Returns the pods for which the scheduler has found no node.
    pub fn unschedulable(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.unschedulable.iter().filter_map(|key| self.objects.get(key))
    }

    /// Returns approximately how many objects a controller visits when it reconciles this one.
    #[must_use]
    pub fn dependents(&self, key: &Key) -> usize {
        let Some(object) = self.objects.get(key) else { return 0 };
        let selector = match key.kind {
            Kind::Service => &object.spec()["selector"],
            Kind::PodDisruptionBudget => &object.spec()["selector"]["matchLabels"],
            _ => return self.controlled.get(&object.uid).map_or(0, Group::len),
        };
        let labels = selector.as_object();
        labels.and_then(|labels| self.rarest_label(&key.namespace, labels)).map_or(0, Group::len)
    }

    /// Returns the unfinished pods on nodes that have a required anti-affinity.
    pub fn repelling(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.repelling.iter().filter_map(|key| self.objects.get(key))
    }

    /// Returns the number of known objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Reports whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Takes an object that is observed now; `None` if it is not new.
    pub fn observe(&mut self, mut object: Object, now: Milliseconds) -> Option<Change> {
        if self.removed.contains_key(&object.uid) {
            return None;
        }
        let key = object.key.clone();
        let before = self.objects.get(&key).cloned();
        if let Some(known) = &before
            && known.uid == object.uid
            && object.version <= known.version
        {
            return None;
        }
        if object.deleting {
            let known = before.as_ref().filter(|known| known.uid == object.uid);
            object.deletion_observed = known.and_then(|known| known.deletion_observed).or(Some(now));
        }
        if let Some(known) = &before {
            self.forget(known);
        }
        let object = Arc::new(object);
        self.remember(&object);
        self.objects.insert(key, Arc::clone(&object));
        Some(Change { before, after: Some(object) })
    }

    /// Records that this process bound a pod, which the watch will show but the response does not.
    pub fn bound(&mut self, key: &Key, uid: &str, node: &str) -> Option<Change> {
        let before =
            self.objects.get(key).filter(|pod| &*pod.uid == uid && node_of(pod).is_none()).cloned()?;
        let mut pod = (*before).clone();
        pod.value["spec"]["nodeName"] = node.into();
        self.forget(&before);
        let pod = Arc::new(pod);
        self.remember(&pod);
        self.objects.insert(key.clone(), Arc::clone(&pod));
        Some(Change { before: Some(before), after: Some(pod) })
    }

    /// Removes an object that is gone according to the watch or to a list that lacks it.
    pub fn vanish(&mut self, key: &Key, uid: Option<&str>) -> Option<Change> {
        if let Some(uid) = uid {
            self.removed.remove(uid);
        }
        let known = self.objects.get(key)?;
        if uid.is_some_and(|uid| uid != &*known.uid) {
            return None;
        }
        let known = self.objects.remove(key)?;
        self.forget(&known);
        Some(Change { before: Some(known), after: None })
    }

    /// Records that this process removed an object: later observations of it are older.
    pub fn removed(&mut self, key: &Key, uid: &str) -> Option<Change> {
        let change = self.vanish(key, Some(uid));
        if change.is_some() {
            self.removed.insert(uid.into(), key.kind);
        }
        change
    }

    /// Removes the objects of a kind that are missing from a new list.
    pub fn retain(&mut self, kind: Kind, listed: &[Object]) -> Vec<Change> {
        let keys: BTreeSet<&Key> = listed.iter().map(|object| &object.key).collect();
        let uids: BTreeSet<&str> = listed.iter().map(|object| &*object.uid).collect();
        self.removed.retain(|uid, removed| *removed != kind || uids.contains(&**uid));
        let gone: Vec<Key> =
            self.all(kind).map(|object| &object.key).filter(|key| !keys.contains(key)).cloned().collect();
        gone.iter().filter_map(|key| self.vanish(key, None)).collect()
    }

    /// Returns the objects of a kind in a namespace that nothing manages.
    pub fn orphans<'a>(
        &'a self,
        kind: Kind,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
        let range = self.orphans.range((Bound::Included(kind.key(namespace, "")), Bound::Unbounded));
        range
            .take_while(move |(key, _)| key.kind == kind && &*key.namespace == namespace)
            .map(|(_, object)| object)
    }

    fn remember(&mut self, object: &Arc<Object>) {
        for labelled in labels_of(object) {
            self.labelled.entry(labelled).or_default().insert(object.key.clone(), Arc::clone(object));
        }
        if let Some(owner) = &object.controller {
            let group = self.controlled.entry(Arc::clone(owner)).or_default();
            group.insert(object.key.clone(), Arc::clone(object));
        } else {
            self.orphans.insert(object.key.clone(), Arc::clone(object));
        }
        if object.key.kind != Kind::Pod {
            return;
        }
        if crate::pods::is_unscheduled(object) {
            self.unscheduled.insert(object.key.clone());
            if condition(object.status(), "PodScheduled").is_some_and(|known| known["status"] == "False") {
                self.unschedulable.insert(object.key.clone());
            }
        }
        if let Some(node) = node_of(object) {
            if !object.finished && object.spec()["affinity"]["podAntiAffinity"].is_object() {
                self.repelling.insert(object.key.clone());
            }
            self.on_node.entry(node.into()).or_default().insert(object.key.clone(), Arc::clone(object));
            if !object.finished {
                self.requested.entry(node.into()).or_default().add(&Amounts::requested(&object.value));
            }
        }
        if let Some(address) = object.status()["podIP"].as_str() {
            self.by_address.insert(address.into(), object.key.clone());
        }
    }

    fn forget(&mut self, object: &Arc<Object>) {
        for labelled in labels_of(object) {
            if let Some(keys) = self.labelled.get_mut(&labelled) {
                keys.remove(&object.key);
                if keys.is_empty() {
                    self.labelled.remove(&labelled);
                }
            }
        }
        self.orphans.remove(&object.key);
        if let Some(owner) = &object.controller
            && let Some(keys) = self.controlled.get_mut(owner)
        {
            keys.remove(&object.key);
            if keys.is_empty() {
                self.controlled.remove(owner);
            }
        }
        if object.key.kind != Kind::Pod {
            return;
        }
        self.unscheduled.remove(&object.key);
        self.unschedulable.remove(&object.key);
        self.repelling.remove(&object.key);
        if let Some(node) = node_of(object)
            && let Some(keys) = self.on_node.get_mut(node)
        {
            keys.remove(&object.key);
            if keys.is_empty() {
                self.on_node.remove(node);
                self.requested.remove(node);
            } else if !object.finished
                && let Some(requested) = self.requested.get_mut(node)
            {
                requested.subtract(&Amounts::requested(&object.value));
            }
        }
        if let Some(address) = object.status()["podIP"].as_str()
            && self.by_address.get(address) == Some(&object.key)
        {
            self.by_address.remove(address);
        }
    }
}

/// Stands in for the label's name when volumes are indexed by claim.
const CLAIMED: &str = "claim";

/// Returns the labels by which an object is indexed.
fn labels_of(object: &Object) -> Vec<LabelKey> {
    let Key { kind, namespace, .. } = &object.key;
    let labels = object.labels().as_object().into_iter().flatten();
    let labelled = |(name, value): (&String, &Value)| {
        (*kind, Arc::clone(namespace), name.as_str().into(), text(value).into())
    };
    match kind {
        Kind::Pod => labels.map(labelled).collect(),
        Kind::EndpointSlice => labels.filter(|(name, _)| *name == SERVICE_NAME).map(labelled).collect(),
        Kind::PersistentVolume => {
            let claim = &object.spec()["claimRef"];
            vec![(*kind, text(&claim["namespace"]).into(), CLAIMED.into(), text(&claim["name"]).into())]
        }
        _ => Vec::new(),
    }
}

fn node_of(pod: &Object) -> Option<&str> {
    pod.spec()["nodeName"].as_str().filter(|name| !name.is_empty())
}
