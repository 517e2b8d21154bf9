//! Tests changes made by mutating webhooks; the outcomes are those of kube-apiserver 1.36.2.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::needless_pass_by_value, reason = "a document written in place reads best")]

mod world;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use gc_registry::admission::configured::{Outside, WebhookAnswer, WebhookCall};
use gc_registry::api::{DeleteOptions, ListOptions, Operation, WriteOptions};
use gc_registry::error::ApiError;
use serde_json::{Value, json};
use world::World;

/// Answers each webhook with the patch for its name, and records who was called in which form.
#[derive(Default)]
struct Patches {
    patches: Mutex<Vec<(&'static str, Value)>>,
    asked: Mutex<Vec<(String, String)>>,
    requests: Mutex<Vec<Value>>,
}

impl Outside for Patches {
    fn call(&self, calls: &[WebhookCall], _: &dyn Fn() -> Duration) -> Vec<WebhookAnswer> {
        calls.iter().map(|call| Ok(self.answer(call)).into()).collect()
    }

    fn spawn(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }
}

impl Patches {
    fn answer(&self, call: &WebhookCall) -> Value {
        let name = call.url.split(['/', '?']).nth(3).unwrap();
        let request = &call.body["request"];
        let version = request["resource"]["version"].as_str().unwrap();
        self.asked.lock().unwrap().push((name.to_owned(), version.to_owned()));
        self.requests.lock().unwrap().push(request.clone());
        let mut response = json!({"uid": request["uid"], "allowed": true});
        if let Some((_, patch)) = self.patches.lock().unwrap().iter().find(|(of, _)| *of == name) {
            response["patchType"] = "JSONPatch".into();
            response["patch"] = base64::engine::general_purpose::STANDARD.encode(patch.to_string()).into();
        }
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response})
    }

    fn set(&self, patches: &[(&'static str, Value)]) {
        *self.patches.lock().unwrap() = patches.to_vec();
        self.asked.lock().unwrap().clear();
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|(name, _)| name.clone()).collect()
    }
}

fn webhook(name: &str, rules: Value, more: Value) -> Value {
    let mut webhook = json!({
        "name": format!("{name}.example.com"), "clientConfig": {"url": format!("https://h/{name}")},
        "admissionReviewVersions": ["v1"], "sideEffects": "None", "rules": rules,
    });
    for (key, value) in more.as_object().unwrap() {
        webhook[key] = value.clone();
    }
    webhook
}

fn config_maps() -> Value {
    let operations = ["CREATE", "UPDATE"];
    json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": operations, "resources": ["configmaps"]}])
}

fn with_webhooks(webhooks: &[Value]) -> (World, Arc<Patches>) {
    let world = World::default();
    let patches = Arc::new(Patches::default());
    world.registry.call_outside_by(Arc::clone(&patches) as Arc<dyn Outside>);
    let configurations = "admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    world.create(configurations, json!({"metadata": {"name": "w"}, "webhooks": webhooks})).unwrap();
    (world, patches)
}

/// Returns the name of the created object, or the code and the beginning of the message.
fn outcome(result: Result<Value, ApiError>) -> String {
    match result {
        Ok(object) => object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        Err(error) => format!("{} {}", error.code, error.message),
    }
}

/// Regression test: mutations of an object's identity were undone.
#[test]
fn what_webhooks_make_of_metadata_counts_as_if_it_was_sent() {
    let replace = |path: &str, value: &str| json!([{"op": "replace", "path": path, "value": value}]);
    let remove = |path: &str| json!([{"op": "remove", "path": path}]);
    let namespace =
        "400 the namespace of the provided object does not match the namespace sent on the request";
    let nameless =
        "422 ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required";
    let immutable = |field: &str, value: &str| {
        let why = format!("metadata.{field}: Invalid value: \"{value}\": field is immutable");
        format!("422 ConfigMap \"{}\" is invalid: {why}", if field == "name" { value } else { "a" })
    };
    let absent = |field: &str| {
        format!(
            "500 Internal error occurred: error in remove for path: '/metadata/{field}': Unable to remove nonexistent \
             key: {field}: missing value"
        )
    };
    let versioned = "500 resourceVersion should not be set on objects to be created";
    let modified = "409 Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply \
                    your changes to the latest version and try again";
    let foreign = "500 Internal error occurred: no kind \"ConfigMap\" is registered for version \"v2\" in scheme \
                   \"pkg/api/legacyscheme/scheme.go:30\"";
    // The patch, and the results of a creation, a creation with a generated name, and a merge patch.
    let table = [
        (json!([]), "c".to_owned(), "g-".to_owned(), "a".to_owned()),
        (replace("/metadata/name", "other"), "other".into(), "other".into(), immutable("name", "other")),
        (replace("/metadata/generateName", "h-"), "c".into(), "h-".into(), "a".into()),
        (replace("/metadata/namespace", "other"), namespace.into(), namespace.into(), namespace.into()),
        (remove("/metadata/namespace"), "c".into(), "g-".into(), "a".into()),
        (json!([{"op": "replace", "path": "", "value": {}}]), nameless.into(), nameless.into(), "422".into()),
        // A new object has neither yet.
        (remove("/metadata/uid"), absent("uid"), absent("uid"), "a".into()),
        (
            remove("/metadata/creationTimestamp"),
            absent("creationTimestamp"),
            absent("creationTimestamp"),
            "a".into(),
        ),
        (replace("/metadata/uid", "x"), "c".into(), "g-".into(), immutable("uid", "x")),
        (replace("/metadata/creationTimestamp", "1999-01-01T00:00:00Z"), "c".into(), "g-".into(), "a".into()),
        (replace("/metadata/resourceVersion", "1"), versioned.into(), versioned.into(), modified.into()),
        (replace("/apiVersion", "v2"), foreign.into(), foreign.into(), foreign.into()),
    ];
    for (patch, created, generated, changed) in table {
        let (world, patches) = with_webhooks(&[webhook("w", config_maps(), json!({}))]);
        world.create("v1/configmaps", json!({"metadata": {"name": "a"}})).unwrap();
        patches.set(&[("w", patch.clone())]);
        let made = world.create("v1/configmaps", json!({"metadata": {"name": "c"}}));
        if let Ok(made) = &made {
            assert_ne!(made["metadata"]["uid"], "x");
            assert_ne!(made["metadata"]["creationTimestamp"], "1999-01-01T00:00:00Z");
            assert_eq!(made["metadata"]["namespace"], "default");
        }
        assert_eq!(outcome(made), created, "{patch}");
        if created == "other" {
            world.delete("v1/configmaps", "default/other", DeleteOptions::default()).unwrap();
        }
        let made = world.create("v1/configmaps", json!({"metadata": {"generateName": "g-"}}));
        let found = outcome(made);
        assert!(
            found == generated || generated.ends_with('-') && found.starts_with(&generated),
            "{patch} {found}"
        );
        let found = outcome(world.merge("v1/configmaps", "default/a", json!({"data": {"k": "v"}})));
        assert!(found == changed || changed == "422" && found.starts_with("422 "), "{patch} {found}");
    }
}

/// Regression test: the webhooks to call were selected before the first one had changed anything.
#[test]
fn later_webhooks_are_chosen_by_what_earlier_ones_left() {
    let label = json!([{"op": "add", "path": "/metadata/labels", "value": {"x": "y"}}]);
    let condition = |expression: &str| json!({"matchConditions": [{"name": "c", "expression": expression}]});
    let absent = json!({"objectSelector": {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}});
    let again = |mut more: Value| {
        more["reinvocationPolicy"] = "IfNeeded".into();
        more
    };
    let table = [
        (json!({}), json!({"objectSelector": {"matchLabels": {"x": "y"}}}), vec!["one", "two"]),
        (json!({}), absent.clone(), vec!["one"]),
        (
            json!({}),
            condition("has(object.metadata.labels) && object.metadata.labels['x'] == 'y'"),
            vec!["one", "two"],
        ),
        (json!({}), condition("!has(object.metadata.labels)"), vec!["one"]),
        // It is called again only if it applies to the object as changed.
        (again(json!({})), json!({}), vec!["one", "two", "one"]),
        (again(absent), json!({}), vec!["one", "two"]),
        (again(json!({"objectSelector": {"matchLabels": {"x": "y"}}})), json!({}), vec!["two"]),
    ];
    for (first, second, wanted) in table {
        let webhooks =
            [webhook("one", config_maps(), first.clone()), webhook("two", config_maps(), second.clone())];
        let (world, patches) = with_webhooks(&webhooks);
        // The labels are changed by the first webhook, or by the second if the first may be called again.
        let again = first["reinvocationPolicy"] == "IfNeeded";
        patches.set(&[(if again { "two" } else { "one" }, label.clone())]);
        world.create("v1/configmaps", json!({"metadata": {"name": "a"}})).unwrap();
        assert_eq!(patches.asked(), wanted, "{first} {second}");
    }
}

/// Regression test: the form of the first version was sent, regardless of the order of the rules.
#[test]
fn earlier_rules_say_in_which_form_webhooks_are_asked() {
    let version = |name: &str| {
        json!({"name": name, "served": true, "storage": name == "v1",
            "schema": {"openAPIV3Schema": {"type": "object"}}})
    };
    let definition = json!({"metadata": {"name": "things.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
        "versions": [version("v1"), version("v2"), version("v3")],
    }});
    let rule = |version: &str| json!({"apiGroups": ["example.com"], "apiVersions": [version], "operations": ["*"], "resources": ["things"]});
    for (rules, wanted) in [
        (vec!["v3", "v2"], "v3"),
        (vec!["v2", "v3"], "v2"),
        (vec!["v3", "v1"], "v1"),
        (vec!["v4", "v3", "*"], "v1"),
    ] {
        let rules: Value = rules.into_iter().map(rule).collect();
        let (world, patches) = with_webhooks(&[webhook("w", rules.clone(), json!({}))]);
        world.create("apiextensions.k8s.io/v1/customresourcedefinitions", definition.clone()).unwrap();
        let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}});
        world.create("example.com/v1/things", thing).unwrap();
        assert_eq!(*patches.asked.lock().unwrap(), [("w".to_owned(), wanted.to_owned())], "{rules}");
    }
}

/// Go's decoder skips line breaks in bytes.
#[test]
fn bytes_may_have_line_breaks() {
    let world = World::default();
    let body = json!({"metadata": {"name": "a"}, "data": {"k": "aGVs\nbG8=\r\n"}});
    assert_eq!(world.create("v1/secrets", body).unwrap()["data"], json!({"k": "aGVsbG8="}));
    let bad = json!({"metadata": {"name": "b"}, "data": {"k": "aGVs\n!!"}});
    let why = world.create("v1/secrets", bad).unwrap_err().message;
    assert!(why.ends_with("illegal base64 data at input byte 5"), "{why}");
}

/// A request seen by admission states the namespace of a namespace, which is itself; and a body states its type, although its path
/// does, too.
#[test]
fn webhooks_see_whole_requests() {
    let rules =
        json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}]);
    let (world, patches) = with_webhooks(&[webhook("w", rules, json!({}))]);
    world.create("v1/namespaces", json!({"metadata": {"name": "n"}})).unwrap();
    let pod = world::pod("p", "", json!({}), json!({}));
    world.create("v1/pods", pod).unwrap();
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    world.create_with("v1/pods/binding", "default/p", binding, WriteOptions::default()).unwrap();
    world.config_map("m", &[]);
    let collection = Operation::DeleteCollection(ListOptions::default(), DeleteOptions::default());
    world.run("v1/configmaps", "default", collection).unwrap();
    let requests = patches.requests.lock().unwrap();
    let about = |kind: &str| requests.iter().find(|request| request["kind"]["kind"] == kind).unwrap();
    assert_eq!(about("Namespace")["namespace"], "n");
    let shown = &about("Binding")["object"];
    assert_eq!(
        (&shown["apiVersion"], &shown["kind"], &shown["metadata"]["namespace"]),
        (&json!("v1"), &json!("Binding"), &json!("default"))
    );
    assert_eq!(about("ConfigMap")["object"]["metadata"].get("uid"), None, "a new object has none yet");
    let deleted = requests.iter().find(|request| request["operation"] == "DELETE").unwrap();
    assert_eq!(deleted["options"], json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}));
}
