//! A registry on a memory store, with a clock and an authorizer that tests control.
#![allow(dead_code, unreachable_pub)] // Each test file uses a part of it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use gc_registry::api::{
    Attributes, Authorizer, DeleteOptions, ListOptions, Operation, PatchType, RequestBody, RequestContext,
    RequestTarget, Response, ResponseBody, UserInfo, WatchEvent, WriteOptions,
};
use gc_registry::error::ApiError;
use gc_registry::storage::Storage;
use gc_registry::watch::Watch;
use gc_registry::{Config, Registry};
use gc_store::MemoryStorage;
use serde_json::{Value, json};

/// Refuses the attributes in its list, written as `verb resource[/subresource]`, and permits everything else.
#[derive(Default)]
pub struct Rules {
    refused: Mutex<BTreeSet<String>>,
}

impl Authorizer for Rules {
    fn allows(&self, _user: &UserInfo, attributes: &Attributes<'_>) -> bool {
        let mut text = format!("{} {}", attributes.verb, attributes.resource);
        if !attributes.subresource.is_empty() {
            text.push('/');
            text.push_str(attributes.subresource);
        }
        !self.refused.lock().unwrap().contains(&text)
    }
}

pub struct World {
    pub registry: Registry,
    pub storage: Arc<MemoryStorage>,
    pub rules: Rules,
    user: UserInfo,
    random: AtomicU64,
    now: Mutex<jiff::Timestamp>,
}

/// Splits `group/version/resource[/subresource]`, or `version/resource[/subresource]` for core.
fn split(resource: &str) -> (&str, &str, &str, &str) {
    let parts: Vec<&str> = resource.split('/').collect();
    match parts.as_slice() {
        [version, resource] => ("", version, resource, ""),
        [group, version, resource]
            if group.contains('.') || matches!(*group, "apps" | "batch" | "policy" | "autoscaling") =>
        {
            (group, version, resource, "")
        }
        [version, resource, subresource] => ("", version, resource, subresource),
        [group, version, resource, subresource] => (group, version, resource, subresource),
        _ => panic!("not a resource: {resource}"),
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new(Config::default())
    }
}

impl World {
    pub fn new(config: Config) -> Self {
        let storage = Arc::new(MemoryStorage::default());
        Self::over(Arc::clone(&storage) as _, storage, config)
    }

    /// Creates a registry that accesses a store through another one, which may fail.
    pub fn over(seen: Arc<dyn Storage>, storage: Arc<MemoryStorage>, config: Config) -> Self {
        let registry = Registry::open(seen, config).unwrap();
        let world = Self {
            registry,
            storage,
            rules: Rules::default(),
            user: UserInfo { name: "tester".into(), ..UserInfo::default() },
            random: AtomicU64::new(1),
            now: Mutex::new("2026-01-01T00:00:00Z".parse().unwrap()),
        };
        world
            .with_context(|context| {
                world.registry.bootstrap(context, &gc_registry::bootstrap::ServerFacts::default())
            })
            .unwrap();
        world
    }

    pub fn with_context<T>(&self, f: impl FnOnce(&RequestContext<'_>) -> T) -> T {
        let entropy = || {
            let number = self.random.fetch_add(1, Ordering::Relaxed);
            u128::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)
        };
        let context = RequestContext {
            now: *self.now.lock().unwrap(),
            user: &self.user,
            is_server: false,
            time_left: &|| std::time::Duration::MAX,
            entropy: &entropy,
            authorizer: &self.rules,
            user_agent_manager: "test",
        };
        f(&context)
    }

    pub fn refuse(&self, what: &str) {
        self.rules.refused.lock().unwrap().insert(what.to_owned());
    }

    pub fn allow_all(&self) {
        self.rules.refused.lock().unwrap().clear();
    }

    pub fn advance(&self, seconds: i64) {
        let mut now = self.now.lock().unwrap();
        *now = now.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap();
    }

    pub fn target(&self, resource: &str, namespace: &str, name: &str) -> RequestTarget {
        let (group, version, plural, subresource) = split(resource);
        let catalog = self.registry.catalog();
        let row = catalog.find(group, version, plural).unwrap_or_else(|| panic!("{resource} is not served"));
        RequestTarget {
            resource: Arc::clone(row),
            namespace: if row.namespaced() { namespace.to_owned() } else { String::new() },
            name: name.to_owned(),
            subresource: subresource.to_owned(),
        }
    }

    pub fn run(&self, resource: &str, place: &str, operation: Operation) -> Result<Response, ApiError> {
        let (namespace, name) = place.split_once('/').unwrap_or((place, ""));
        let target = self.target(resource, namespace, name);
        self.with_context(|context| self.registry.handle(&target, operation, context))
    }

    pub fn create(&self, resource: &str, object: Value) -> Result<Value, ApiError> {
        self.create_with(resource, "default", object, WriteOptions::default()).map(|response| body(&response))
    }

    pub fn create_with(
        &self,
        resource: &str,
        place: &str,
        object: Value,
        options: WriteOptions,
    ) -> Result<Response, ApiError> {
        self.run(resource, place, Operation::Create(request(object), options))
    }

    /// Creates a ConfigMap in the namespace default with these finalizers.
    pub fn config_map(&self, name: &str, finalizers: &[&str]) -> Value {
        self.create("v1/configmaps", json!({"metadata": {"name": name, "finalizers": finalizers}})).unwrap()
    }

    pub fn get(&self, resource: &str, place: &str) -> Result<Value, ApiError> {
        self.run(resource, place, Operation::Get { resource_version: String::new() })
            .map(|response| body(&response))
    }

    pub fn update(&self, resource: &str, place: &str, object: Value) -> Result<Value, ApiError> {
        self.run(resource, place, Operation::Update(request(object), WriteOptions::default()))
            .map(|response| body(&response))
    }

    pub fn merge(&self, resource: &str, place: &str, patch: Value) -> Result<Value, ApiError> {
        self.run(resource, place, Operation::Patch(PatchType::Merge, request(patch), WriteOptions::default()))
            .map(|response| body(&response))
    }

    pub fn delete(&self, resource: &str, place: &str, options: DeleteOptions) -> Result<Response, ApiError> {
        self.run(resource, place, Operation::Delete(options))
    }

    pub fn list(&self, resource: &str, namespace: &str, options: ListOptions) -> Result<Response, ApiError> {
        self.run(resource, namespace, Operation::List(options))
    }

    pub fn watch(&self, resource: &str, namespace: &str, options: &ListOptions) -> Result<Watch, ApiError> {
        let target = self.target(resource, namespace, "");
        self.registry.watch(&target, options)
    }

    pub fn version(&self) -> String {
        match self.list("v1/nodes", "", ListOptions::default()).unwrap().body {
            ResponseBody::List(list) => list.resource_version,
            other => panic!("{other:?}"),
        }
    }

    pub fn maintain(&self) {
        self.with_context(|context| self.registry.maintain(context)).unwrap();
    }

    /// Returns all pending events of a watch, as `TYPE name` (or `BOOKMARK`, `ERROR reason`, `END`).
    pub fn events(&self, watch: &mut Watch) -> Vec<(String, Value)> {
        let mut context = Context::from_waker(Waker::noop());
        let newest: u64 = self.version().parse().unwrap();
        while self.registry.watch_progress().0 < newest {
            if let Poll::Ready(error) = self.registry.poll_pump(&mut context) {
                panic!("{error}");
            }
        }
        let mut events = Vec::new();
        while let Poll::Ready(event) = watch.poll_next(&mut context) {
            let (kind, object) = match event {
                None => {
                    events.push(("END".to_owned(), Value::Null));
                    break;
                }
                Some(WatchEvent::Added(object)) => ("ADDED", (**object.value().unwrap()).clone()),
                Some(WatchEvent::Modified(object)) => ("MODIFIED", (**object.value().unwrap()).clone()),
                Some(WatchEvent::Deleted(object)) => ("DELETED", (**object.value().unwrap()).clone()),
                Some(WatchEvent::Bookmark { resource_version, .. }) => ("BOOKMARK", resource_version.into()),
                Some(WatchEvent::Error(error)) => ("ERROR", error.to_status()),
            };
            events.push((kind.to_owned(), object));
        }
        events
    }
}

pub fn request(value: Value) -> RequestBody {
    RequestBody::from(value)
}

/// Returns the body of an answer as JSON.
pub fn body(response: &Response) -> Value {
    match &response.body {
        ResponseBody::Object(object) => {
            let mut text = Vec::new();
            object.write_json(&mut text, true).unwrap();
            let written: Value = serde_json::from_slice(&text).unwrap();
            assert_eq!(written, **object.value().unwrap(), "the two ways out agree");
            written
        }
        ResponseBody::Status(status) => status.clone(),
        ResponseBody::List(list) => {
            list.items.iter().map(|object| (**object.value().unwrap()).clone()).collect()
        }
    }
}

pub fn policy(policy: &str) -> DeleteOptions {
    DeleteOptions { propagation_policy: Some(policy.to_owned()), ..DeleteOptions::default() }
}

pub fn grace(seconds: i64) -> DeleteOptions {
    DeleteOptions { grace_period_seconds: Some(seconds), ..DeleteOptions::default() }
}

pub fn finalizers(object: &Value) -> Vec<String> {
    let list = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

pub fn preconditions(uid: Option<&str>, version: Option<&str>) -> DeleteOptions {
    DeleteOptions {
        precondition_uid: uid.map(str::to_owned),
        precondition_resource_version: version.map(str::to_owned),
        ..DeleteOptions::default()
    }
}

pub fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap()
}

pub fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap()
}

/// Returns a pod with one container, on a node if `node` is not empty.
pub fn pod(name: &str, node: &str, spec: Value, metadata: Value) -> Value {
    let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    if !node.is_empty() {
        pod["spec"]["nodeName"] = node.into();
    }
    for (part, values) in [("spec", spec), ("metadata", metadata)] {
        for (key, value) in values.as_object().into_iter().flatten() {
            pod[part][key] = value.clone();
        }
    }
    pod
}

/// Returns types of events, with the names of their objects.
pub fn kinds(events: &[(String, Value)]) -> Vec<String> {
    events
        .iter()
        .map(|(kind, object)| match object.pointer("/metadata/name").and_then(Value::as_str) {
            Some(name) => format!("{kind} {name}"),
            None => kind.clone(),
        })
        .collect()
}
