//! A small in-memory server for a runtime in tests.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::kinds::{Key, Kind};
use crate::object::Object;
use crate::plan::{Action, FailureReason, Settings, View};
use crate::runtime::{Answer, Observation, Runtime};
use crate::store::Store;
use crate::time;
use crate::workloads::Workload;

/// Start of tests: 2023-11-14T22:13:20Z.
pub(crate) const START: i64 = 1_700_000_000_000;
/// A limit on requests that no test needs to reach.
const MOST_REQUESTS: usize = 20_000;

/// A server, and the controllers that work on it.
pub(crate) struct World {
    pub(crate) objects: BTreeMap<Key, Value>,
    pub(crate) runtime: Runtime,
    pub(crate) now: i64,
    /// Sent requests, as `verb kind/name`.
    pub(crate) log: Vec<String>,
    /// Kinds whose creation is refused.
    pub(crate) refused: Vec<Kind>,
    version: u64,
}

impl World {
    pub(crate) fn new(workloads: &[Workload]) -> Self {
        Self::with(Settings::default(), workloads)
    }

    pub(crate) fn with(settings: Settings, workloads: &[Workload]) -> Self {
        let settings = Settings { nodes: 1, root_certificates: "CA".into(), ..settings };
        let mut runtime = Runtime::new(settings, workloads.to_vec());
        for kind in runtime.kinds() {
            runtime.observe(Observation::Listed(kind, Vec::new()), START);
        }
        let mut world = Self {
            objects: BTreeMap::new(),
            runtime,
            now: START,
            log: Vec::new(),
            refused: Vec::new(),
            version: 0,
        };
        world.settle();
        world
    }

    /// Creates a world with all controllers.
    pub(crate) fn whole() -> Self {
        Self::new(Workload::ALL)
    }

    fn report(&mut self, key: &Key, gone: Option<Value>) {
        let observation = match gone {
            Some(value) => Observation::Gone(key.kind, value),
            None => Observation::Present(key.kind, self.objects[key].clone()),
        };
        if self.runtime.kinds().contains(&key.kind) {
            self.runtime.observe(observation, self.now);
        }
    }

    /// Stores an object under a new version; it is removed if it is terminating and has no finalizers.
    fn put(&mut self, key: &Key, mut value: Value) -> Value {
        self.version += 1;
        value["metadata"]["resourceVersion"] = self.version.to_string().into();
        let metadata = &value["metadata"];
        let held = metadata["finalizers"].as_array().is_some_and(|all| !all.is_empty());
        let grace = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
        if !metadata["deletionTimestamp"].is_null() && !held && grace == 0 {
            self.objects.remove(key);
            self.report(key, Some(value.clone()));
        } else {
            self.objects.insert(key.clone(), value.clone());
            self.report(key, None);
        }
        value
    }

    /// Creates an object as a user.
    pub(crate) fn create(&mut self, kind: Kind, mut value: Value) -> Value {
        let number = self.version + 1;
        let metadata = &mut value["metadata"];
        if metadata["name"].is_null() {
            let prefix = metadata["generateName"].as_str().unwrap();
            metadata["name"] = format!("{prefix}{number}").into();
        }
        if kind.served().namespaced && metadata["namespace"].is_null() {
            metadata["namespace"] = "default".into();
        }
        metadata["uid"] = format!("{}-{number}", kind.served().resource).into();
        metadata["creationTimestamp"] = time::format(self.now);
        metadata["generation"] = 1.into();
        value["apiVersion"] = kind.api_version().into();
        value["kind"] = kind.name().into();
        let key = kind.key(
            value["metadata"]["namespace"].as_str().unwrap_or_default(),
            value["metadata"]["name"].as_str().unwrap(),
        );
        self.put(&key, value)
    }

    /// Changes an object as a user.
    pub(crate) fn change(&mut self, kind: Kind, name: &str, change: impl FnOnce(&mut Value)) {
        let namespace = if kind.served().namespaced { "default" } else { "" };
        let key = kind.key(namespace, name);
        let mut value = self.objects[&key].clone();
        let before = value["spec"].clone();
        change(&mut value);
        if value["spec"] != before {
            value["metadata"]["generation"] = (value["metadata"]["generation"].as_i64().unwrap() + 1).into();
        }
        self.put(&key, value);
    }

    /// Deletes an object as a user.
    pub(crate) fn delete(&mut self, key: &Key, grace: Option<u32>) -> Option<Value> {
        let mut value = self.objects.get(key)?.clone();
        let own = value["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
        let bound = key.kind == Kind::Pod && value["spec"]["nodeName"].is_string();
        let grace = grace.map_or(if bound { own } else { 0 }, i64::from);
        value["metadata"]["deletionTimestamp"] = time::format(self.now);
        value["metadata"]["deletionGracePeriodSeconds"] = grace.into();
        if grace > 0 {
            value["metadata"]["generation"] = (value["metadata"]["generation"].as_i64().unwrap() + 1).into();
        }
        Some(self.put(key, value))
    }

    pub(crate) fn get(&self, kind: Kind, name: &str) -> &Value {
        let namespace = if kind.served().namespaced { "default" } else { "" };
        &self.objects[&kind.key(namespace, name)]
    }

    pub(crate) fn of_kind(&self, kind: Kind) -> Vec<&Value> {
        self.objects.iter().filter(|(key, _)| key.kind == kind).map(|(_, value)| value).collect()
    }

    pub(crate) fn names(&self, kind: Kind) -> Vec<&str> {
        self.of_kind(kind).into_iter().map(|value| value["metadata"]["name"].as_str().unwrap()).collect()
    }

    /// Returns the reasons and messages of the Events of an object.
    pub(crate) fn events(&self, name: &str) -> Vec<String> {
        let mut events: Vec<_> = self
            .of_kind(Kind::Event)
            .into_iter()
            .filter(|event| event["involvedObject"]["name"] == name)
            .map(|event| {
                (event["metadata"]["uid"].as_str().unwrap().len(), event["metadata"]["uid"].clone(), event)
            })
            .collect();
        events.sort_by_key(|(length, uid, _)| (*length, uid.as_str().unwrap().to_owned()));
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        events
            .into_iter()
            .map(|(_, _, event)| format!("{} {}", text(&event["reason"]), text(&event["message"])))
            .collect()
    }

    /// Advances the time, and handles everything that becomes due.
    pub(crate) fn pass(&mut self, seconds: i64) {
        self.settle();
        let end = self.now + seconds * 1000;
        while let Some(at) = self.runtime.next_timer().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.settle();
        }
        self.now = end;
        self.settle();
    }

    /// Answers requests until there are none.
    pub(crate) fn settle(&mut self) {
        for _ in 0..MOST_REQUESTS {
            let Some(sent) = self.runtime.next_request(self.now) else { return };
            let key = sent.action.key();
            let answer = self.perform(sent.action);
            if key.kind != Kind::Event {
                let done = if matches!(answer, Answer::Done(_)) { "" } else { " failed" };
                self.log.push(format!("{} {} {}{done}", sent.workload, sent.why, key));
            }
            self.runtime.answered(sent.id, answer, self.now);
        }
        panic!("it does not come to rest: {:#?}", &self.log[self.log.len() - 20..]);
    }

    /// Sends all requests that can be sent before answering the first of them, and repeats that until there are none.
    pub(crate) fn settle_with_late_answers(&mut self) {
        for _ in 0..MOST_REQUESTS {
            if self.send_together() == 0 {
                return;
            }
        }
        panic!("it does not come to rest");
    }

    /// Sends all requests that can be sent before answering the first of them, then answers them. Returns their number.
    pub(crate) fn send_together(&mut self) -> usize {
        let sent: Vec<_> = std::iter::from_fn(|| self.runtime.next_request(self.now)).collect();
        let count = sent.len();
        for sent in sent {
            let answer = self.perform(sent.action);
            self.runtime.answered(sent.id, answer, self.now);
        }
        count
    }

    fn perform(&mut self, action: Action) -> Answer {
        let failed = |reason| Answer::Failed { reason, message: format!("{reason:?}") };
        let key = action.key();
        let known = self.objects.get(&key).cloned();
        match action {
            Action::Create { kind, object, .. } => {
                if self.refused.contains(&kind) {
                    return failed(FailureReason::Refused);
                }
                if known.is_some() && !key.name.is_empty() {
                    return failed(FailureReason::AlreadyExists);
                }
                Answer::Done(Some(self.create(kind, object)))
            }
            Action::Update { object, .. } | Action::UpdateStatus { object, .. }
                if known.as_ref().is_none_or(|known| {
                    known["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"]
                }) =>
            {
                failed(if known.is_none() { FailureReason::NotFound } else { FailureReason::Conflict })
            }
            Action::Update { mut object, .. } => {
                let known = known.unwrap();
                if known["spec"] != object["spec"] {
                    let generation = known["metadata"]["generation"].as_i64().unwrap_or_default();
                    object["metadata"]["generation"] = (generation + 1).into();
                }
                object["status"] = known["status"].clone();
                Answer::Done(Some(self.put(&key, object)))
            }
            Action::UpdateStatus { object, .. } => {
                let mut known = known.unwrap();
                known["status"] = object["status"].clone();
                known["metadata"]["annotations"] = object["metadata"]["annotations"].clone();
                Answer::Done(Some(self.put(&key, known)))
            }
            Action::Patch { patch, .. } => {
                let Some(mut known) = known else { return failed(FailureReason::NotFound) };
                merge(&mut known, &patch);
                Answer::Done(Some(self.put(&key, known)))
            }
            Action::Bind { node, .. } => {
                let Some(mut known) = known else { return failed(FailureReason::NotFound) };
                known["spec"]["nodeName"] = (*node).into();
                self.put(&key, known);
                Answer::Done(None)
            }
            Action::Delete { uid, grace_seconds, .. } => match known {
                Some(known) if known["metadata"]["uid"] == *uid => {
                    Answer::Done(self.delete(&key, grace_seconds))
                }
                _ => failed(FailureReason::NotFound),
            },
            Action::ApproveCertificate { object, .. } | Action::SignCertificate { object, .. } => {
                Answer::Done(Some(object))
            }
            Action::Confirm { .. } => {
                known.map_or(failed(FailureReason::NotFound), |known| Answer::Done(Some(known)))
            }
        }
    }
}

/// Applies as much of a strategic merge as the controllers need.
fn merge(known: &mut Value, patch: &Value) {
    for (name, part) in patch.as_object().unwrap() {
        match (name.as_str(), part) {
            ("ownerReferences" | "conditions", Value::Array(parts)) => {
                let field = if name == "conditions" { "type" } else { "uid" };
                let mut list = known[name].as_array().cloned().unwrap_or_default();
                for part in parts {
                    list.retain(|entry| entry[field] != part[field]);
                    if part["$patch"] != "delete" {
                        list.push(part.clone());
                    }
                }
                known[name] = list.into();
            }
            ("$deleteFromPrimitiveList/finalizers", Value::Array(gone)) => {
                let left = known["finalizers"].as_array().cloned().unwrap_or_default();
                known["finalizers"] = left.into_iter().filter(|one| !gone.contains(one)).collect();
            }
            (_, Value::Object(_)) => {
                if !known[name].is_object() {
                    known[name] = json!({});
                }
                merge(&mut known[name], part);
            }
            (_, Value::Null) => {
                known.as_object_mut().unwrap().remove(name);
            }
            _ => known[name] = part.clone(),
        }
    }
}

/// Returns a store with these objects.
pub(crate) fn store(objects: &[(Kind, Value)]) -> Store {
    let mut store = Store::default();
    for (kind, value) in objects {
        store.observe(Object::new(*kind, value.clone()).unwrap(), START);
    }
    store
}

/// Returns a controller's view of a store at the start.
pub(crate) fn view<'a>(store: &'a Store, settings: &'a Settings) -> View<'a> {
    View { store, now: START, settings, failure: None }
}

/// Returns a Deployment, ReplicaSet, StatefulSet or similar with this specification, whose pods are labelled `app: web`.
pub(crate) fn owner(name: &str, spec: &Value) -> Value {
    let mut whole = json!({
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "web:1"}], "restartPolicy": "Always"}},
    });
    merge(&mut whole, spec);
    json!({"metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}}, "spec": whole})
}
