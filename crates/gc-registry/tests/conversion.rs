//! Tests custom resources in versions that a webhook converts; a fake answers for the webhook.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::needless_pass_by_value, reason = "a document written in place reads best")]

mod world;

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use gc_registry::admission::configured::{Outside, WebhookAnswer, WebhookCall};
use gc_registry::api::{DeleteOptions, ListOptions, Operation, PatchType, WriteOptions};
use serde_json::{Value, json};

use world::{World, request};

const DEFINITIONS: &str = "apiextensions.k8s.io/v1/customresourcedefinitions";
const V1: &str = "example.com/v1/things";
const V2: &str = "example.com/v2/things";

/// Converts `v1`, in which `spec.address` is `host:port`, from and to `v2`, which has separate fields.
#[derive(Default)]
struct Fake {
    /// Wanted version and names of each review.
    asked: Mutex<Vec<String>>,
    /// URL and address of the last call.
    place: Mutex<(String, Option<(String, u16)>)>,
    /// Answer to give instead of a conversion.
    broken: Mutex<Option<Result<Value, String>>>,
    /// Requests of the admission reviews.
    reviewed: Mutex<Vec<Value>>,
    /// Work that was handed over, unless it runs immediately.
    deferred: Mutex<Option<Vec<Box<dyn FnOnce() + Send>>>>,
}

impl Outside for Fake {
    fn call(&self, calls: &[WebhookCall], _: &dyn Fn() -> Duration) -> Vec<WebhookAnswer> {
        calls.iter().map(|call| self.answer(call).into()).collect()
    }

    fn spawn(&self, work: Box<dyn FnOnce() + Send>) {
        match &mut *self.deferred.lock().unwrap() {
            Some(deferred) => deferred.push(work),
            None => work(),
        }
    }
}

impl Fake {
    /// Permits every admission request, and changes its host to `patched`.
    fn review(&self, request: &Value) -> Value {
        self.reviewed.lock().unwrap().push(request.clone());
        let patch = json!([{"op": "replace", "path": "/spec/host", "value": "patched"}]).to_string();
        let patch = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, patch);
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response":
            {"uid": request["uid"], "allowed": true, "patchType": "JSONPatch", "patch": patch}})
    }

    fn answer(&self, call: &WebhookCall) -> Result<Value, String> {
        if call.body["kind"] == "AdmissionReview" {
            return Ok(self.review(&call.body["request"]));
        }
        assert_eq!(call.timeout, Duration::from_secs(30));
        *self.place.lock().unwrap() = (call.url.clone(), call.address.clone());
        if let Some(answer) = &*self.broken.lock().unwrap() {
            return answer.clone();
        }
        let asked = &call.body["request"];
        let wanted = asked["desiredAPIVersion"].as_str().unwrap();
        let objects = asked["objects"].as_array().unwrap();
        let names: Vec<&str> =
            objects.iter().map(|object| object["metadata"]["name"].as_str().unwrap()).collect();
        self.asked.lock().unwrap().push(format!("{wanted} {}", names.join(",")));
        let converted: Vec<Value> = objects.iter().map(|object| converted(object, wanted)).collect();
        Ok(json!({
            "kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
            "response": {"uid": asked["uid"], "result": {"status": "Success"}, "convertedObjects": converted},
        }))
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

fn converted(object: &Value, wanted: &str) -> Value {
    let mut object = object.clone();
    assert_ne!(object["apiVersion"], wanted, "what is there already is not asked for");
    object["apiVersion"] = wanted.into();
    let spec = &object["spec"];
    object["spec"] = if wanted == "example.com/v2" {
        let (host, port) = spec["address"].as_str().unwrap().split_once(':').unwrap();
        json!({"host": host, "port": port, "unknown": true})
    } else {
        json!({"address": format!("{}:{}", spec["host"].as_str().unwrap(), spec["port"].as_str().unwrap())})
    };
    object
}

fn version(name: &str, storage: &str, fields: &[&str]) -> Value {
    let properties: serde_json::Map<String, Value> =
        fields.iter().map(|field| ((*field).to_owned(), json!({"type": "string"}))).collect();
    json!({
        "name": name, "served": true, "storage": name == storage, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": properties},
            "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
        }}},
    })
}

fn versions(storage: &str) -> Value {
    json!([version("v1", storage, &["address"]), version("v2", storage, &["host", "port"])])
}

fn conversion() -> Value {
    json!({"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://h/convert"},
    }})
}

/// Returns a world with a custom resource stored in v1.
fn world() -> (World, Arc<Fake>) {
    let world = World::default();
    let fake = Arc::new(Fake::default());
    world.registry.call_outside_by(Arc::clone(&fake) as Arc<dyn Outside>);
    let definition = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": versions("v1"), "conversion": conversion(),
        },
    });
    world.create(DEFINITIONS, definition).unwrap();
    (world, fake)
}

fn old(name: &str, address: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"address": address}})
}

fn new(name: &str, host: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"host": host, "port": "1"}})
}

fn apply(world: &World, resource: &str, object: Value) -> Value {
    let options = WriteOptions { field_manager: "m".into(), ..WriteOptions::default() };
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    let operation = Operation::Patch(PatchType::Apply, request(object), options);
    world::body(&world.run(resource, &format!("default/{name}"), operation).unwrap())
}

fn specs(list: &Value) -> Vec<Value> {
    list.as_array().unwrap().iter().map(|object| object["spec"].clone()).collect()
}

#[test]
fn every_verb_works_in_either_version() {
    let (world, fake) = world();
    let created = world.create(V2, new("a", "h")).unwrap();
    assert_eq!(created["apiVersion"], "example.com/v2");
    assert_eq!(created["spec"], json!({"host": "h", "port": "1"}));
    assert_eq!(fake.asked(), ["example.com/v1 a", "example.com/v2 a"], "stored, and read again");

    let stored = world.get(V1, "default/a").unwrap();
    assert_eq!(
        (&stored["apiVersion"], &stored["spec"]),
        (&json!("example.com/v1"), &json!({"address": "h:1"}))
    );
    assert_eq!(fake.asked(), [""; 0], "it is stored in that version");
    let read = world.get(V2, "default/a").unwrap();
    assert_eq!(read, created);

    let mut changed = read;
    changed["spec"]["host"] = "g".into();
    assert_eq!(world.update(V2, "default/a", changed).unwrap()["spec"], json!({"host": "g", "port": "1"}));
    let patched = world.merge(V2, "default/a", json!({"spec": {"port": "2"}})).unwrap();
    assert_eq!((&patched["spec"]["port"], &patched["metadata"]["generation"]), (&json!("2"), &json!(3)));
    assert_eq!(world.get(V1, "default/a").unwrap()["spec"], json!({"address": "g:2"}));
    let with_status = world.run(
        "example.com/v2/things/status",
        "default/a",
        Operation::Patch(
            PatchType::Merge,
            request(json!({"status": {"phase": "up"}})),
            WriteOptions::default(),
        ),
    );
    assert_eq!(world::body(&with_status.unwrap())["status"], json!({"phase": "up"}));

    let applied = apply(
        &world,
        V2,
        json!({"apiVersion": "example.com/v2", "kind": "Thing", "metadata": {"name": "b"},
               "spec": {"host": "x", "port": "3"}}),
    );
    assert_eq!(applied["spec"], json!({"host": "x", "port": "3"}));
    assert_eq!(world.get(V1, "default/b").unwrap()["spec"], json!({"address": "x:3"}));

    world.delete(V2, "default/a", DeleteOptions::default()).unwrap();
    assert_eq!(world.get(V1, "default/a").unwrap_err().code, 404);
    let all = Operation::DeleteCollection(ListOptions::default(), DeleteOptions::default());
    assert_eq!(
        specs(&world::body(&world.run(V2, "default", all).unwrap())),
        [json!({"host": "x", "port": "3"})]
    );
    assert_eq!(world.get(V1, "default/b").unwrap_err().code, 404);
}

/// Webhooks and policies whose rules name another version must see the result of the conversion webhook, not the same fields under
/// another version.
#[test]
fn admission_sees_the_version_that_its_rules_name() {
    let (world, fake) = world();
    let rules = json!([{"apiGroups": ["example.com"], "apiVersions": ["v2"], "operations": ["*"],
        "resources": ["things"]}]);
    let group = "admissionregistration.k8s.io/v1/";
    let configure = |resource: &str, object: Value| {
        let mut object = object;
        object["metadata"] = json!({"name": "w"});
        world.create(&format!("{group}{resource}"), object).unwrap();
    };
    configure(
        "mutatingwebhookconfigurations",
        json!({"webhooks": [{"name": "w.example.com", "clientConfig": {"url": "https://h/admit"},
            "admissionReviewVersions": ["v1"], "sideEffects": "None", "rules": rules}]}),
    );
    let patch = "[JSONPatch{op: \"replace\", path: \"/spec/port\", value: \"9\"}]";
    configure(
        "mutatingadmissionpolicies",
        json!({"spec": {"matchConstraints": {"resourceRules": rules}, "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}]}}),
    );
    configure("mutatingadmissionpolicybindings", json!({"spec": {"policyName": "w"}}));
    configure(
        "validatingadmissionpolicies",
        json!({"spec": {"matchConstraints": {"resourceRules": rules}, "validations": [{"expression":
            "object.apiVersion == 'example.com/v2' && object.spec.host == 'patched' && object.spec.port == '9' \
             && (oldObject == null || oldObject.spec.host == 'patched') && !has(object.spec.address)"}]}}),
    );
    configure(
        "validatingadmissionpolicybindings",
        json!({"spec": {"policyName": "w", "validationActions": ["Deny"]}}),
    );
    let created = world.create(V1, old("a", "h:1")).unwrap();
    assert_eq!(created["apiVersion"], "example.com/v1");
    assert_eq!(created["spec"], json!({"address": "patched:9"}));
    assert_eq!(
        world.merge(V1, "default/a", json!({"spec": {"address": "g:2"}})).unwrap()["spec"],
        created["spec"]
    );
    let reviewed = fake.reviewed.lock().unwrap();
    let [create, update] = &reviewed[..] else { panic!("{reviewed:?}") };
    let shown = |request: &Value, object: &str| {
        (request[object]["apiVersion"].clone(), request[object]["spec"].clone())
    };
    let v2 = |host: &str| (json!("example.com/v2"), json!({"host": host, "port": "9"}));
    assert_eq!(shown(create, "object"), v2("h"));
    assert_eq!(create["oldObject"], Value::Null);
    assert_eq!((shown(update, "object"), shown(update, "oldObject")), (v2("g"), v2("patched")));
    let version = |request: &Value, key: &str| request[key]["version"].clone();
    assert_eq!((version(update, "kind"), version(update, "requestKind")), (json!("v2"), json!("v1")));
    drop(reviewed);
    // An object that cannot be converted is not judged, regardless of the failure policy.
    *fake.broken.lock().unwrap() = Some(Err("no".to_owned()));
    let refused = world.create(V1, old("b", "h:1")).unwrap_err();
    assert!(refused.message.contains("failed to convert object version"), "{}", refused.message);
}

#[test]
fn managers_of_a_version_that_is_gone_are_dropped_and_refuse_an_apply() {
    let (world, _) = world();
    let created = world.create(V2, new("a", "h")).unwrap();
    assert_eq!(created["metadata"]["managedFields"][0]["apiVersion"], "example.com/v2");
    let mut definition = world.get(DEFINITIONS, "/things.example.com").unwrap();
    definition["spec"]["versions"] = json!([version("v1", "v1", &["address"])]);
    definition["spec"]["conversion"] = json!({"strategy": "None"});
    world.update(DEFINITIONS, "/things.example.com", definition).unwrap();
    let configuration = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"},
        "spec": {"address": "g:2"}});
    let applied = || {
        let options =
            WriteOptions { field_manager: "m".into(), force: Some(true), ..WriteOptions::default() };
        let operation = Operation::Patch(PatchType::Apply, request(configuration.clone()), options);
        world.run(V1, "default/a", operation)
    };
    let refused = applied().unwrap_err();
    let why = "request to convert CR to an invalid group/version: example.com/v2";
    assert_eq!((refused.code, &*refused.message), (500, why));
    let patched = world.merge(V1, "default/a", json!({"spec": {"address": "h:2"}})).unwrap();
    assert_eq!(patched["metadata"].get("managedFields"), None);
    assert_eq!(
        world::body(&applied().unwrap())["spec"],
        json!({"address": "g:2"}),
        "nobody else owns the field"
    );
}

#[test]
fn dry_runs_ask_as_writes_do() {
    let (world, fake) = world();
    let dry = || WriteOptions { dry_run: true, ..WriteOptions::default() };
    let answer = world.create_with(V2, "default", new("a", "h"), dry()).unwrap();
    assert_eq!(world::body(&answer)["spec"], json!({"host": "h", "port": "1"}));
    assert_eq!(fake.asked(), ["example.com/v1 a", "example.com/v2 a"]);
    *fake.broken.lock().unwrap() = Some(Err("unreachable".into()));
    assert_eq!(world.create_with(V2, "default", new("a", "h"), dry()).unwrap_err().code, 500);
}

#[test]
fn a_list_asks_once() {
    let (world, fake) = world();
    for name in ["a", "b", "c"] {
        world.create(V1, old(name, &format!("{name}:1"))).unwrap();
    }
    assert_eq!(fake.asked(), [""; 0]);
    let list = world::body(&world.list(V2, "default", ListOptions::default()).unwrap());
    assert_eq!(specs(&list), ["a", "b", "c"].map(|host| json!({"host": host, "port": "1"})));
    assert_eq!(fake.asked(), ["example.com/v2 a,b,c"]);
    let page = ListOptions { label_selector: "no!=such".into(), limit: 2, ..ListOptions::default() };
    assert_eq!(world::body(&world.list(V2, "default", page).unwrap()).as_array().unwrap().len(), 2);
    assert_eq!(fake.asked(), ["example.com/v2 a,b,c"]);
}

#[test]
fn objects_stay_in_the_version_that_they_were_stored_in() {
    let (world, fake) = world();
    world.create(V1, old("a", "a:1")).unwrap();
    world.merge(DEFINITIONS, "/things.example.com", json!({"spec": {"versions": versions("v2")}})).unwrap();
    assert_eq!(fake.asked(), [""; 0], "a change of the definition rewrites nothing");
    world.create(V2, new("b", "b")).unwrap();
    assert_eq!(fake.asked(), [""; 0]);

    assert_eq!(world.get(V1, "default/a").unwrap()["spec"], json!({"address": "a:1"}));
    assert_eq!(world.get(V2, "default/b").unwrap()["spec"], json!({"host": "b", "port": "1"}));
    assert_eq!(fake.asked(), [""; 0], "each is in its version");
    let list =
        |resource| specs(&world::body(&world.list(resource, "default", ListOptions::default()).unwrap()));
    assert_eq!(list(V2), ["a", "b"].map(|host| json!({"host": host, "port": "1"})));
    assert_eq!(list(V1), [json!({"address": "a:1"}), json!({"address": "b:1"})]);
    assert_eq!(
        fake.asked(),
        ["example.com/v2 a", "example.com/v1 b"],
        "only what is in the other one is sent"
    );

    // Migrates to a new storage version by replacing each object with itself.
    let before = world.get(V2, "default/a").unwrap();
    let after = world.update(V2, "default/a", before.clone()).unwrap();
    assert_ne!(world::version(&before), world::version(&after));
    fake.asked();
    assert_eq!(world.get(V2, "default/a").unwrap(), after);
    assert_eq!(fake.asked(), [""; 0]);
    let again = world.update(V2, "default/a", after.clone()).unwrap();
    assert_eq!(world::version(&again), world::version(&after), "once");
}

#[test]
fn a_second_version_of_a_definition_finds_what_had_none() {
    let (world, fake) = world();
    let definition = json!({
        "metadata": {"name": "singles.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "singles", "kind": "Single"},
            "versions": [version("v1", "v1", &["address"])],
        },
    });
    world.create(DEFINITIONS, definition).unwrap();
    world.create("example.com/v1/singles", old("a", "a:1")).unwrap();
    let change = json!({"spec": {"versions": versions("v2"), "conversion": conversion()}});
    world.merge(DEFINITIONS, "/singles.example.com", change).unwrap();
    assert_eq!(
        world.get("example.com/v2/singles", "default/a").unwrap()["spec"],
        json!({"host": "a", "port": "1"})
    );
    assert_eq!(fake.asked(), ["example.com/v2 a"]);
    assert_eq!(world.get("example.com/v1/singles", "default/a").unwrap()["spec"], json!({"address": "a:1"}));
    assert_eq!(fake.asked(), [""; 0]);
}

fn event(kind: &str, host: &str) -> (String, Value) {
    (kind.to_owned(), json!({"host": host, "port": "1"}))
}

fn shown(events: Vec<(String, Value)>) -> Vec<(String, Value)> {
    events.into_iter().map(|(kind, object)| (kind, object["spec"].clone())).collect()
}

#[test]
fn watches_of_a_version_share_what_was_converted() {
    let (world, fake) = world();
    world.create(V1, old("a", "a:1")).unwrap();
    let mut watches: Vec<_> =
        (0..3).map(|_| world.watch(V2, "default", &ListOptions::default()).unwrap()).collect();
    assert_eq!(fake.asked(), vec!["example.com/v2 a"; 3], "each has its own initial state");
    for watch in &mut watches {
        assert_eq!(shown(world.events(watch)), [event("ADDED", "a")]);
    }
    *fake.deferred.lock().unwrap() = Some(Vec::new());
    world.merge(V1, "default/a", json!({"spec": {"address": "b:1"}})).unwrap();
    world.create(V1, old("c", "c:1")).unwrap();
    world.delete(V1, "default/c", DeleteOptions::default()).unwrap();
    for watch in &mut watches {
        assert_eq!(world.events(watch), [], "nothing is waited for where the watch is polled");
        assert!(watch.bookmark().is_none(), "no bookmark passes what was not seen");
    }
    let work = std::mem::take(fake.deferred.lock().unwrap().as_mut().unwrap());
    assert_eq!(work.len(), 1, "one converts for all");
    for work in work {
        work();
    }
    // Contains new and old states of three changes.
    assert_eq!(fake.asked(), ["example.com/v2 a,a,c,c"]);
    for watch in &mut watches {
        let wanted = [event("MODIFIED", "b"), event("ADDED", "c"), event("DELETED", "c")];
        assert_eq!(shown(world.events(watch)), wanted);
    }
    let mut own = world.watch(V1, "default", &ListOptions::default()).unwrap();
    assert_eq!(world.events(&mut own)[0].1["spec"], json!({"address": "b:1"}));
    assert_eq!(fake.asked(), [""; 0]);
}

#[test]
fn a_watch_ends_with_what_the_webhook_failed_with_and_the_next_one_asks_again() {
    let (world, fake) = world();
    let mut watch = world.watch(V2, "default", &ListOptions::default()).unwrap();
    let from = world.version();
    *fake.broken.lock().unwrap() = Some(Err("unreachable".into()));
    world.create(V1, old("a", "a:1")).unwrap();
    let events = world.events(&mut watch);
    let [(kind, status), (end, _)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((&**kind, &status["code"], &**end), ("ERROR", &json!(500), "END"));
    assert_eq!(status["message"], "conversion webhook for example.com/v1, Kind=Thing failed: unreachable");
    *fake.broken.lock().unwrap() = None;
    let options = ListOptions { resource_version: from, ..ListOptions::default() };
    let mut watch = world.watch(V2, "default", &options).unwrap();
    assert_eq!(shown(world.events(&mut watch)), [event("ADDED", "a")]);
}

#[test]
fn work_that_is_lost_fails_the_watches_that_wait_for_it() {
    let (world, fake) = world();
    let mut watch = world.watch(V2, "default", &ListOptions::default()).unwrap();
    *fake.deferred.lock().unwrap() = Some(Vec::new());
    world.create(V1, old("a", "a:1")).unwrap();
    assert_eq!(world.events(&mut watch), []);
    fake.deferred.lock().unwrap().as_mut().unwrap().clear();
    let mut context = Context::from_waker(Waker::noop());
    assert!(matches!(
        watch.poll_next(&mut context),
        Poll::Ready(Some(gc_registry::api::WatchEvent::Error(_)))
    ));
}

#[test]
fn failures_name_the_version_that_was_to_be_converted() {
    let (world, fake) = world();
    world.create(V1, old("a", "a:1")).unwrap();
    *fake.broken.lock().unwrap() = Some(Err("unreachable".into()));
    let failed = |version: &str| {
        format!("conversion webhook for example.com/{version}, Kind=Thing failed: unreachable")
    };
    let dry = || WriteOptions { dry_run: false, ..WriteOptions::default() };
    let patch = || Operation::Patch(PatchType::Merge, request(json!({"spec": {"port": "2"}})), dry());
    for (version, operation, place) in [
        ("v1", Operation::Get { resource_version: String::new() }, "default/a"),
        ("v1", Operation::List(ListOptions::default()), "default"),
        ("v2", Operation::Create(request(new("b", "b")), dry()), "default"),
        ("v1", patch(), "default/a"),
        ("v1", Operation::Delete(DeleteOptions::default()), "default/a"),
    ] {
        let error = world.run(V2, place, operation).unwrap_err();
        assert_eq!((error.code, &*error.reason, error.message), (500, "", failed(version)));
    }
    assert_eq!(world.watch(V2, "default", &ListOptions::default()).unwrap_err().code, 500);
    *fake.broken.lock().unwrap() = Some(Ok(json!({"kind": "ConversionReview"})));
    assert_eq!(
        world.get(V2, "default/a").unwrap_err().message,
        "conversion webhook for example.com/v1, Kind=Thing failed: expected webhook response of \
         apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind=ConversionReview"
    );
    // In the storage version, everything works.
    world.merge(V1, "default/a", json!({"spec": {"address": "z:1"}})).unwrap();
    world.delete(DEFINITIONS, "/things.example.com", DeleteOptions::default()).unwrap();
    world.maintain();
    assert_eq!(world.get(DEFINITIONS, "/things.example.com").unwrap_err().code, 404);
}

#[test]
fn a_webhook_is_found_by_its_url_or_behind_its_service() {
    let (world, fake) = world();
    world.create(V1, old("a", "a:1")).unwrap();
    world.get(V2, "default/a").unwrap();
    assert_eq!(*fake.place.lock().unwrap(), ("https://h/convert?timeout=30s".to_owned(), None));

    let client = json!({"url": null, "service": {"namespace": "default", "name": "converter", "path": "/c"}});
    let change = json!({"spec": {"conversion": {"webhook": {"clientConfig": client}}}});
    world.merge(DEFINITIONS, "/things.example.com", change).unwrap();
    let url = "https://converter.default.svc:443/c?timeout=30s";
    let failed = |why: &str| {
        let error = world.get(V2, "default/a").unwrap_err();
        let call = "conversion webhook for example.com/v1, Kind=Thing failed: Post";
        assert_eq!(error.message, format!("{call} \"{url}\": {why}"));
    };
    failed("service \"converter\" not found");
    let ports = json!([{"port": 443, "targetPort": 8443}]);
    world
        .create("v1/services", json!({"metadata": {"name": "converter"}, "spec": {"ports": ports}}))
        .unwrap();
    failed("no endpoints available for service \"converter\"");
    let slice = json!({
        "metadata": {"name": "converter-1", "labels": {"kubernetes.io/service-name": "converter"}},
        "addressType": "IPv4", "ports": [{"name": "", "port": 8443}],
        "endpoints": [
            {"addresses": ["10.1.2.3"], "conditions": {"ready": false}}, {"addresses": ["10.1.2.4"]},
        ],
    });
    world.create("discovery.k8s.io/v1/endpointslices", slice).unwrap();
    assert_eq!(world.get(V2, "default/a").unwrap()["spec"], json!({"host": "a", "port": "1"}));
    assert_eq!(*fake.place.lock().unwrap(), (url.to_owned(), Some(("10.1.2.4".to_owned(), 8443))));
}
