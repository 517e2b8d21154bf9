//! Tests user-configured admission: policies, and webhooks for which a fake answers.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::needless_pass_by_value, reason = "a document written in place reads best")]

mod world;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use gc_registry::admission::configured::{
    ConditionsReport, Outside, WebhookAnswer, WebhookCall, WebhookEnd, WebhookReport,
};
use gc_registry::api::{DeleteOptions, Operation, RequestContext, Response, UserInfo, WriteOptions};
use gc_registry::error::ApiError;
use serde_json::{Value, json};

use world::World;

/// Returns a world with a policy for ConfigMaps, and its binding.
fn with_policy(spec: Value, binding: Value) -> World {
    let world = World::default();
    let mut policy = json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"],
        }]},
    });
    for (key, value) in spec.as_object().unwrap() {
        policy[key] = value.clone();
    }
    let group = "admissionregistration.k8s.io/v1/";
    let policies = format!("{group}validatingadmissionpolicies");
    world.create(&policies, json!({"metadata": {"name": "p"}, "spec": policy})).unwrap();
    let mut spec = json!({"policyName": "p", "validationActions": ["Deny"]});
    for (key, value) in binding.as_object().unwrap() {
        spec[key] = value.clone();
    }
    let bindings = format!("{group}validatingadmissionpolicybindings");
    world.create(&bindings, json!({"metadata": {"name": "b"}, "spec": spec})).unwrap();
    world
}

fn config_map(name: &str, data: Value) -> Value {
    json!({"metadata": {"name": name}, "data": data})
}

fn outcome(result: Result<Value, ApiError>) -> String {
    match result {
        Ok(_) => "ok".to_owned(),
        Err(error) => format!("{} {} {}", error.code, error.reason, error.message),
    }
}

#[test]
fn policies_refuse_what_their_expressions_say() {
    let denied = |why: &str| {
        format!(
            "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: {why}"
        )
    };
    let table: Vec<(Value, Value, String)> = vec![
        (json!({"validations": [{"expression": "size(object.data) < 2"}]}), json!({"k": "v"}), "ok".into()),
        (
            json!({"validations": [{"expression": "size(object.data) < 1"}]}),
            json!({"k": "v"}),
            format!("422 Invalid {}", denied("failed expression: size(object.data) < 1")),
        ),
        (
            json!({"validations": [{"expression": "false", "message": "no", "reason": "Forbidden"}]}),
            json!({}),
            format!("403 Forbidden {}", denied("no")),
        ),
        (
            json!({
                "variables": [{"name": "n", "expression": "size(object.data)"}],
                "validations": [{
                    "expression": "variables.n > 5", "messageExpression": "'only ' + string(variables.n)",
                }],
            }),
            json!({"k": "v"}),
            format!("422 Invalid {}", denied("only 1")),
        ),
        (
            json!({"validations": [{"expression": "object.missing == 1"}]}),
            json!({}),
            format!(
                "422 Invalid {}",
                denied("expression 'object.missing == 1' resulted in error: no such key: missing")
            ),
        ),
        (
            json!({"failurePolicy": "Ignore", "validations": [{"expression": "object.missing == 1"}]}),
            json!({}),
            "ok".into(),
        ),
        (
            json!({
                "matchConditions": [{"name": "c", "expression": "request.operation == 'DELETE'"}],
                "validations": [{"expression": "false"}],
            }),
            json!({}),
            "ok".into(),
        ),
        (
            json!({"validations": [{"expression": "request.userInfo.username == 'tester' && namespaceObject.metadata.name == 'default'"}]}),
            json!({}),
            "ok".into(),
        ),
        (
            json!({"validations": [{"expression": "namespaceObject.status.phase == 'Active' && namespaceObject.metadata.resourceVersion != '' \
                && !has(dyn(namespaceObject).kind) && !has(dyn(namespaceObject).metadata.managedFields)"}]}),
            json!({}),
            "ok".into(),
        ),
        // Match conditions are shown no namespace.
        (
            json!({
                "matchConditions": [{"name": "c", "expression": "namespaceObject == null"}],
                "validations": [{"expression": "false", "message": "matched"}],
            }),
            json!({}),
            format!("422 Invalid {}", denied("matched")),
        ),
        (
            json!({
                "matchConditions": [{"name": "c", "expression": "namespaceObject.metadata.name != 'default'"}],
                "validations": [{"expression": "false", "message": "matched"}],
            }),
            json!({}),
            format!("422 Invalid {}", denied("no such key: metadata")),
        ),
    ];
    for (spec, data, expected) in table {
        let world = with_policy(spec.clone(), json!({}));
        let created = world.create("v1/configmaps", config_map("a", data));
        assert_eq!(outcome(created), expected, "{spec}");
    }
}

/// A namespace is in no namespace, whatever selectors of namespaces make of it.
#[test]
fn expressions_see_no_namespace_of_a_namespace() {
    let rule =
        json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["namespaces"]});
    let world = with_policy(
        json!({
            "matchConstraints": {"resourceRules": [rule], "namespaceSelector": {"matchLabels": {"a": "b"}}},
            "validations": [{"expression": "namespaceObject != null", "message": "in none"}],
        }),
        json!({}),
    );
    let labelled = json!({"metadata": {"name": "labelled", "labels": {"a": "b"}}});
    let refused = outcome(world.create("v1/namespaces", labelled));
    assert!(refused.starts_with("422 Invalid") && refused.ends_with("in none"), "{refused}");
    assert_eq!(outcome(world.create("v1/namespaces", json!({"metadata": {"name": "plain"}}))), "ok");
}

#[test]
fn policies_see_the_first_deletion_of_what_its_controller_finishes() {
    let rule = json!({
        "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["DELETE"],
        "resources": ["namespaces", "customresourcedefinitions"],
    });
    let world = with_policy(
        json!({
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "oldObject.metadata.name.startsWith('free')", "message": "kept"}],
        }),
        json!({}),
    );
    let definition = |group: &str| {
        json!({
            "metadata": {"name": format!("things.{group}.example.com")},
            "spec": {
                "group": format!("{group}.example.com"), "scope": "Namespaced",
                "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                }],
            },
        })
    };
    let definitions = "apiextensions.k8s.io/v1/customresourcedefinitions";
    world.create(definitions, definition("a")).unwrap();
    world.create("v1/namespaces", json!({"metadata": {"name": "n"}})).unwrap();
    world.create("v1/namespaces", json!({"metadata": {"name": "free"}})).unwrap();
    let delete = |resource: &str, name: &str| {
        outcome(world.delete(resource, name, DeleteOptions::default()).map(|_| Value::Null))
    };
    let denied = |what: &str| {
        format!(
            "422 Invalid {what} is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: kept"
        )
    };
    assert_eq!(
        [
            delete(definitions, "/things.a.example.com"),
            delete("v1/namespaces", "/n"),
            delete("v1/namespaces", "/free"),
        ],
        [
            denied(r#"customresourcedefinitions.apiextensions.k8s.io "things.a.example.com""#),
            denied(r#"namespaces "n""#),
            "ok".to_owned(),
        ]
    );
    let kept = world.get(definitions, "/things.a.example.com").unwrap();
    assert_eq!(kept["metadata"].get("deletionTimestamp"), None);
}

#[test]
fn bindings_choose_what_is_looked_at_and_what_follows() {
    let never = json!({"validations": [{"expression": "false", "message": "never"}]});
    let world = with_policy(never.clone(), json!({"validationActions": ["Warn"]}));
    let warned =
        world.create_with("v1/configmaps", "default", config_map("a", json!({})), WriteOptions::default());
    assert_eq!(
        warned.unwrap().warnings,
        ["Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': never"]
    );
    let selected = json!({"matchResources": {"objectSelector": {"matchLabels": {"a": "b"}}}});
    let world = with_policy(never.clone(), selected);
    assert_eq!(outcome(world.create("v1/configmaps", config_map("a", json!({})))), "ok");
    let labelled = json!({"metadata": {"name": "c", "labels": {"a": "b"}}});
    assert!(outcome(world.create("v1/configmaps", labelled)).starts_with("422 Invalid"));
    // Other kinds are not affected, and existing objects can be deleted only where the policy permits it.
    assert_eq!(outcome(world.create("v1/secrets", json!({"metadata": {"name": "s"}}))), "ok");
    let world = with_policy(json!({"validations": [{"expression": "oldObject == null"}]}), json!({}));
    assert_eq!(outcome(world.create("v1/configmaps", config_map("a", json!({})))), "ok");
    let deleted = world.delete("v1/configmaps", "default/a", DeleteOptions::default());
    assert_eq!(deleted.unwrap_err().code, 422);
}

#[test]
fn parameters_are_objects_that_the_binding_names() {
    let spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": "size(object.data) <= int(params.data.most)"}],
        "matchConstraints": {"resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"],
        }]},
    });
    let binding = |action: &str| json!({"paramRef": {"name": "limits", "parameterNotFoundAction": action}});
    let secret = |name: &str, count: usize| {
        let data: serde_json::Map<String, Value> =
            (0..count).map(|n| (format!("k{n}"), "eA==".into())).collect();
        json!({"metadata": {"name": name}, "data": data})
    };
    let world = with_policy(spec.clone(), binding("Deny"));
    let refused = outcome(world.create("v1/secrets", secret("a", 1)));
    assert!(
        refused.contains("no params found for policy binding with `Deny` parameterNotFoundAction"),
        "{refused}"
    );
    world.create("v1/configmaps", config_map("limits", json!({"most": "1"}))).unwrap();
    assert_eq!(outcome(world.create("v1/secrets", secret("a", 1))), "ok");
    assert!(outcome(world.create("v1/secrets", secret("b", 2))).starts_with("422 Invalid"));
    let world = with_policy(spec, binding("Allow"));
    assert_eq!(outcome(world.create("v1/secrets", secret("a", 9))), "ok");
}

#[test]
fn mutating_policies_change_objects() {
    for (mutation, expected) in [
        (
            json!({"patchType": "ApplyConfiguration", "applyConfiguration": {
                "expression": "Object{metadata: Object.metadata{labels: {'x': object.metadata.name}}}",
            }}),
            json!({"x": "a"}),
        ),
        (
            json!({"patchType": "JSONPatch", "jsonPatch": {
                "expression": "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'y': 'z'}}]",
            }}),
            json!({"y": "z"}),
        ),
    ] {
        let world = World::default();
        let group = "admissionregistration.k8s.io/v1/";
        let spec = json!({
            "failurePolicy": "Fail", "reinvocationPolicy": "Never", "mutations": [mutation],
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"],
            }]},
        });
        let policies = format!("{group}mutatingadmissionpolicies");
        world.create(&policies, json!({"metadata": {"name": "p"}, "spec": spec})).unwrap();
        let bindings = format!("{group}mutatingadmissionpolicybindings");
        world.create(&bindings, json!({"metadata": {"name": "b"}, "spec": {"policyName": "p"}})).unwrap();
        let created = world.create("v1/configmaps", config_map("a", json!({}))).unwrap();
        assert_eq!(created["metadata"]["labels"], expected);
    }
}

#[test]
fn no_name_escapes_policies() {
    let validations = json!({"validations": [{"expression": "false", "message": "no"}]});
    let world = with_policy(validations, json!({}));
    let made = |user: &str, is_server: bool| {
        let map = config_map("a", json!({}));
        let user =
            UserInfo { name: user.to_owned(), groups: vec!["system:masters".into()], ..UserInfo::default() };
        let target = world.target("v1/configmaps", "default", "");
        let outcome = world.with_context(|context| {
            let context = RequestContext { user: &user, is_server, ..*context };
            let options = WriteOptions { dry_run: true, ..WriteOptions::default() };
            world.registry.handle(&target, Operation::Create(map.into(), options), &context)
        });
        outcome.map_or_else(|error| error.code, |answer| answer.code)
    };
    assert_eq!(made("jane", false), 422);
    // Certificates, static tokens and impersonation can produce this name.
    assert_eq!(made("system:apiserver", false), 422);
    assert_eq!(made("system:apiserver", true), 201);
}

/// Reduces the remaining time of a request with each webhook call, each of which takes a second.
#[derive(Default)]
struct Slow {
    calls: AtomicU64,
}

impl Outside for Slow {
    fn call(&self, calls: &[WebhookCall], time_left: &dyn Fn() -> Duration) -> Vec<WebhookAnswer> {
        let answer = |call: &WebhookCall| {
            assert!(call.timeout <= time_left(), "{:?}", call.timeout);
            self.calls.fetch_add(1, Ordering::SeqCst);
            let uid = &call.body["request"]["uid"];
            Ok(json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
                "response": {"uid": uid, "allowed": true}}))
        };
        calls.iter().map(|call| answer(call).into()).collect()
    }

    fn spawn(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }
}

#[test]
fn webhooks_take_no_longer_than_the_request_has() {
    let world = World::default();
    let slow = Arc::new(Slow::default());
    world.registry.call_outside_by(Arc::clone(&slow) as _);
    let webhooks: Vec<Value> = (0..5)
        .map(|number| json!({
            "name": format!("w{number}.example.com"), "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "failurePolicy": "Ignore", "clientConfig": {"url": "https://h/x"}, "timeoutSeconds": 10,
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}],
        }))
        .collect();
    let configurations = "admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    world.create(configurations, json!({"metadata": {"name": "w"}, "webhooks": webhooks})).unwrap();
    let target = world.target("v1/configmaps", "default", "");
    let made = |seconds: u64| {
        let before = slow.calls.load(Ordering::SeqCst);
        let time_left =
            || Duration::from_secs(seconds.saturating_sub(slow.calls.load(Ordering::SeqCst) - before));
        let outcome = world.with_context(|context| {
            let context = RequestContext { time_left: &time_left, ..*context };
            let create = Operation::Create(config_map("a", json!({})).into(), WriteOptions::default());
            world.registry.handle(&target, create, &context)
        });
        (
            outcome.map(|answer| answer.code).map_err(|error| error.message),
            slow.calls.load(Ordering::SeqCst) - before,
        )
    };
    let why = "Timeout: request did not complete within requested timeout - context deadline exceeded";
    assert_eq!(made(3), (Err(why.to_owned()), 3), "the time ends though failures are ignored");
    assert_eq!(made(0), (Err(why.to_owned()), 0));
    assert_eq!(made(60), (Ok(201), 5), "nothing was stored before");
}

/// Answers webhook calls by path, and records them.
#[derive(Default)]
struct Fake {
    asked: Mutex<Vec<Value>>,
    reports: Mutex<Vec<WebhookReport>>,
    conditions: Mutex<Vec<ConditionsReport>>,
}

impl Outside for Fake {
    fn call(&self, calls: &[WebhookCall], _: &dyn Fn() -> Duration) -> Vec<WebhookAnswer> {
        calls.iter().map(|call| self.answer(call).into()).collect()
    }

    fn report(&self, report: WebhookReport) {
        self.reports.lock().unwrap().push(report);
    }

    fn report_conditions(&self, report: ConditionsReport) {
        self.conditions.lock().unwrap().push(report);
    }

    fn spawn(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }
}

impl Fake {
    fn answer(&self, call: &WebhookCall) -> Result<Value, String> {
        let request = &call.body["request"];
        self.asked.lock().unwrap().push(json!({
            "url": call.url, "operation": request["operation"], "labels": request["object"]["metadata"]["labels"],
        }));
        let answer = |mut response: Value| {
            response["uid"] = request["uid"].clone();
            Ok(json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}))
        };
        let patched = |name: &str| {
            let mut labels = request["object"]["metadata"]["labels"].clone();
            labels[name] = "yes".into();
            let patch = json!([{"op": "add", "path": "/metadata/labels", "value": labels}]).to_string();
            let patch = base64::engine::general_purpose::STANDARD.encode(patch);
            answer(json!({"allowed": true, "patchType": "JSONPatch", "patch": patch, "warnings": [name]}))
        };
        match call.url.split('?').next().unwrap_or_default() {
            "https://h/first" => patched("first"),
            "https://h/second" => patched("second"),
            "https://h/unfit" => {
                let patch = base64::engine::general_purpose::STANDARD
                    .encode(json!([{"op": "remove", "path": "/spec/size"}]).to_string());
                answer(json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
            }
            "https://h/yes" => answer(json!({"allowed": true})),
            "https://h/no" => answer(json!({"allowed": false, "status": {"message": "no", "code": 403}})),
            _ => Err("connection refused".to_owned()),
        }
    }
}

fn webhook(name: &str, more: Value) -> Value {
    let mut webhook = json!({
        "name": format!("{name}.example.com"), "clientConfig": {"url": format!("https://h/{name}")},
        "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
    });
    for (key, value) in more.as_object().unwrap() {
        webhook[key] = value.clone();
    }
    webhook
}

fn with_webhooks(mutating: &[Value], validating: &[Value]) -> (World, Arc<Fake>) {
    let world = World::default();
    let fake = Arc::new(Fake::default());
    world.registry.call_outside_by(Arc::clone(&fake) as Arc<dyn Outside>);
    for (kind, webhooks) in [("mutating", mutating), ("validating", validating)] {
        if !webhooks.is_empty() {
            let resource = format!("admissionregistration.k8s.io/v1/{kind}webhookconfigurations");
            world.create(&resource, json!({"metadata": {"name": "w"}, "webhooks": webhooks})).unwrap();
        }
    }
    (world, fake)
}

fn create(world: &World, options: WriteOptions) -> Result<Response, ApiError> {
    let object = json!({"metadata": {"name": "a", "labels": {"own": "1"}}});
    world.create_with("v1/configmaps", "default", object, options)
}

#[test]
fn mutating_webhooks_change_objects_one_after_the_other() {
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    let (world, fake) = with_webhooks(&[webhook("first", again), webhook("second", json!({}))], &[]);
    let created = create(&world, WriteOptions::default()).unwrap();
    let labels = world::body(&created)["metadata"]["labels"].clone();
    assert_eq!(labels, json!({"own": "1", "first": "yes", "second": "yes"}));
    assert_eq!(created.warnings, ["first", "second", "first"]);
    let asked = fake.asked.lock().unwrap().clone();
    let seen = |path: &str, labels: Value| json!({"url": format!("https://h/{path}?timeout=10s"), "operation": "CREATE", "labels": labels});
    assert_eq!(
        asked,
        [
            seen("first", json!({"own": "1"})),
            seen("second", json!({"own": "1", "first": "yes"})),
            seen("first", json!({"own": "1", "first": "yes", "second": "yes"})),
        ]
    );
}

#[test]
fn webhooks_refuse_and_unreachable_ones_do_as_their_policy_says() {
    let elsewhere = json!({"rules": [{
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"],
    }]});
    let never = json!({"matchConditions": [{"name": "c", "expression": "object.metadata.name == 'b'"}]});
    let unreachable = "500 InternalError Internal error occurred: failed calling webhook \"gone.example.com\": failed to \
                       call webhook: connection refused";
    for (webhook, expected) in [
        (webhook("no", json!({})), "403  admission webhook \"no.example.com\" denied the request: no"),
        (webhook("gone", json!({})), unreachable),
        (webhook("gone", json!({"failurePolicy": "Ignore"})), "ok"),
        (webhook("no", elsewhere), "ok"),
        (webhook("no", never), "ok"),
        (webhook("no", json!({"objectSelector": {"matchLabels": {"own": "2"}}})), "ok"),
        (webhook("no", json!({"namespaceSelector": {"matchLabels": {"x": "y"}}})), "ok"),
        (
            webhook(
                "no",
                json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}),
            ),
            "403  admission webhook \"no.example.com\" denied the request: no",
        ),
    ] {
        let (world, _) = with_webhooks(&[], std::slice::from_ref(&webhook));
        let created = create(&world, WriteOptions { dry_run: true, ..WriteOptions::default() });
        assert_eq!(outcome(created.map(|created| world::body(&created))), expected, "{webhook}");
        let created = create(&world, WriteOptions::default());
        assert_eq!(outcome(created.map(|created| world::body(&created))), expected, "{webhook}");
    }
}

#[test]
fn mutating_webhooks_are_asked_about_deletions_and_change_nothing() {
    let on_delete = json!({"rules": [{
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["configmaps"],
    }]});
    let modified = "500 InternalError Internal error occurred: admission webhook \"first.example.com\" attempted to modify \
                    the object, which is not supported for this operation";
    for (name, expected) in
        [("no", "403  admission webhook \"no.example.com\" denied the request: no"), ("first", modified)]
    {
        let (world, _) = with_webhooks(&[webhook(name, on_delete.clone())], &[]);
        create(&world, WriteOptions::default()).unwrap();
        let deleted = world.delete("v1/configmaps", "default/a", DeleteOptions::default());
        assert_eq!(outcome(deleted.map(|deleted| world::body(&deleted))), expected);
    }
}

#[test]
fn a_policy_without_its_parameters_refuses_whatever_the_actions_of_its_binding_are() {
    let spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": [{"expression": "false"}],
    });
    let param_ref = json!({"selector": {"matchLabels": {"no": "such"}}, "parameterNotFoundAction": "Deny"});
    for (failure, expected) in [
        (
            "Fail",
            "422 Invalid configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: \
             failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction",
        ),
        ("Ignore", "ok"),
    ] {
        let mut spec = spec.clone();
        spec["failurePolicy"] = failure.into();
        let binding = json!({"validationActions": ["Warn"], "paramRef": param_ref});
        let world = with_policy(spec, binding);
        assert_eq!(outcome(world.create("v1/configmaps", config_map("a", json!({})))), expected);
    }
}

#[test]
fn every_call_is_reported_with_what_it_meant_for_the_request() {
    let ignored = |name: &str| webhook(name, json!({"failurePolicy": "Ignore"}));
    let required = |name: &str| webhook(name, json!({}));
    for (is_mutating, webhook, end, code) in [
        (true, required("first"), WebhookEnd::Allowed, 201),
        (true, required("no"), WebhookEnd::Rejected(403), 403),
        (true, required("gone"), WebhookEnd::FailedClosed(503), 500),
        (true, ignored("gone"), WebhookEnd::FailedOpen(503), 201),
        (true, ignored("unfit"), WebhookEnd::NotApplied, 500),
        (false, required("yes"), WebhookEnd::Allowed, 201),
        (false, required("first"), WebhookEnd::FailedClosed(503), 500),
        (false, required("no"), WebhookEnd::Rejected(403), 403),
        (false, required("gone"), WebhookEnd::FailedClosed(503), 500),
        (false, ignored("gone"), WebhookEnd::FailedOpen(503), 201),
    ] {
        let webhooks = std::slice::from_ref(&webhook);
        let (world, fake) =
            if is_mutating { with_webhooks(webhooks, &[]) } else { with_webhooks(&[], webhooks) };
        let created = create(&world, WriteOptions::default());
        assert_eq!(created.map_or_else(|error| error.code, |created| created.code), code, "{webhook}");
        let expected = WebhookReport {
            webhook: webhook["name"].as_str().unwrap().to_owned(),
            step: if is_mutating { "admit" } else { "validating" },
            operation: "CREATE",
            took: std::time::Duration::ZERO,
            end,
        };
        assert_eq!(*fake.reports.lock().unwrap(), [expected]);
    }
}

#[test]
fn match_conditions_are_reported_with_their_errors_and_what_they_exclude() {
    let (holds, is_false, fails, other) = ("true", "1 == 2", "object.zz == 1", "object.yy == 1");
    let failed =
        "403 Forbidden admission webhook \"first.example.com\": failed to evaluate a match condition: ";
    let took = Some(std::time::Duration::ZERO);
    for (expressions, policy, errors, is_excluded, took, answer) in [
        (&[holds][..], "Fail", 0, false, None, "ok".to_owned()),
        (&[is_false], "Fail", 0, true, took, "ok".to_owned()),
        (&[fails, is_false], "Fail", 1, true, took, "ok".to_owned()),
        (&[is_false, fails], "Fail", 0, true, took, "ok".to_owned()),
        (&[fails, holds], "Ignore", 1, true, took, "ok".to_owned()),
        (&[fails, holds], "Fail", 1, false, took, format!("{failed}no such key: zz")),
        (&[fails, other], "Fail", 2, false, took, format!("{failed}[no such key: zz, no such key: yy]")),
        (&[fails, fails], "Fail", 2, false, took, format!("{failed}no such key: zz")),
    ] {
        let conditions: Vec<Value> = expressions
            .iter()
            .enumerate()
            .map(|(number, expression)| json!({"name": format!("c{number}"), "expression": expression}))
            .collect();
        let more = json!({"matchConditions": conditions, "failurePolicy": policy});
        let (world, fake) = with_webhooks(&[webhook("first", more)], &[]);
        let created = create(&world, WriteOptions::default()).map(|created| world::body(&created));
        assert_eq!(outcome(created), answer, "{expressions:?}");
        let expected = ConditionsReport {
            name: "first.example.com".to_owned(),
            kind: "webhook",
            step: "admit",
            operation: "CREATE",
            errors,
            is_excluded,
            took,
        };
        assert_eq!(*fake.conditions.lock().unwrap(), [expected], "{expressions:?}");
    }
}

#[test]
fn a_service_is_called_at_an_endpoint_that_is_ready() {
    let client = json!({"clientConfig": {"service": {"name": "s", "namespace": "default", "path": "/no"}}});
    let (world, fake) = with_webhooks(&[], &[webhook("no", client)]);
    let refused =
        |world: &World| outcome(create(world, WriteOptions::default()).map(|created| world::body(&created)));
    let none = refused(&world);
    assert!(
        none.ends_with("Post \"https://s.default.svc:443/no?timeout=10s\": service \"s\" not found"),
        "{none}"
    );
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"name": "p", "port": 443}]}});
    world.create("v1/services", service).unwrap();
    assert!(refused(&world).ends_with("no endpoints available for service \"s\""));
    let slice = json!({
        "metadata": {"name": "s-1", "labels": {"kubernetes.io/service-name": "s"}}, "addressType": "IPv4",
        "endpoints": [
            {"addresses": ["10.0.0.1"], "conditions": {"ready": false}}, {"addresses": ["10.0.0.2"]},
        ],
        "ports": [{"name": "p", "port": 8443}],
    });
    world.create("discovery.k8s.io/v1/endpointslices", slice).unwrap();
    assert!(refused(&world).ends_with("connection refused"));
    let asked = fake.asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 1);
}

#[test]
fn the_types_of_policies_are_checked_against_the_kinds_that_they_name() {
    let world =
        World::new(gc_registry::Config { checks_policy_types: true, ..gc_registry::Config::default() });
    let group = "admissionregistration.k8s.io/v1";
    let policies = format!("{group}/validatingadmissionpolicies");
    let rule = |group: &str, resource: &str| json!({"apiGroups": [group], "apiVersions": ["v1"], "operations": ["*"], "resources": [resource]});
    let error = |kind: &str, text: &str, column: usize, message: &str| {
        let mark = format!("{}^", ".".repeat(column - 1));
        format!("{kind}: ERROR: <input>:1:{column}: {message}\n | {text}\n | {mark}\n")
    };
    let deployment = "apps/v1, Kind=Deployment";
    let table: Vec<(Value, Value, Vec<String>)> = vec![
        (json!([rule("apps", "deployments")]), json!([{"expression": "object.spec.replicas > 1"}]), vec![]),
        (
            json!([rule("apps", "deployments")]),
            json!([{
                "expression": "object.spec.replicas > '1'",
                "messageExpression": "'more than ' + object.spec.replicas",
            }]),
            vec![
                error(
                    deployment,
                    "object.spec.replicas > '1'",
                    22,
                    "found no matching overload for '_>_' applied to '(int, string)'",
                ),
                error(
                    deployment,
                    "'more than ' + object.spec.replicas",
                    14,
                    "found no matching overload for '_+_' applied to '(string, int)'",
                ),
            ],
        ),
        (
            json!([rule("apps", "deployments"), rule("", "pods")]),
            json!([{"expression": "has(object.spec.template)"}]),
            vec![error("/v1, Kind=Pod", "has(object.spec.template)", 4, "undefined field 'template'")],
        ),
        (
            json!([rule("", "pods")]),
            json!([{"expression": "object.spec.containers[0].resources.limits.cpu == 'x'"}]),
            vec![error(
                "/v1, Kind=Pod",
                "object.spec.containers[0].resources.limits.cpu == 'x'",
                36,
                "undefined field 'limits'",
            )],
        ),
        (
            json!([rule("apps", "controllerrevisions")]),
            json!([{"expression": "object.data.foo == 1"}]),
            vec![error(
                "apps/v1, Kind=ControllerRevision",
                "object.data.foo == 1",
                12,
                "undefined field 'foo'",
            )],
        ),
        (json!([rule("*", "*")]), json!([{"expression": "object.nothing > 1"}]), vec![]),
        (
            json!([rule("", "configmaps")]),
            json!([{"expression": "variables.name + 1 == 2 && namespaceObject.metadata.name == request.name"}]),
            vec![error(
                "/v1, Kind=ConfigMap",
                "variables.name + 1 == 2 && namespaceObject.metadata.name == request.name",
                16,
                "found no matching overload for '_+_' applied to '(string, int)'",
            )],
        ),
    ];
    for (index, (rules, validations, expected)) in table.into_iter().enumerate() {
        let name = format!("p{index}");
        let policy = json!({"metadata": {"name": name}, "spec": {
            "matchConstraints": {"resourceRules": rules}, "validations": validations,
            "variables": [{"name": "name", "expression": "object.metadata.name"}],
        }});
        world.create(&policies, policy).unwrap();
        world.maintain();
        let status = world.get(&policies, &format!("/{name}")).unwrap()["status"].clone();
        assert_eq!(status["observedGeneration"], 1, "{status}");
        let warnings = status["typeChecking"]["expressionWarnings"].as_array().cloned().unwrap_or_default();
        let found: Vec<&str> = warnings.iter().map(|warning| warning["warning"].as_str().unwrap()).collect();
        assert_eq!(found, expected, "{validations}");
    }
    let first = world.get(&policies, "/p1").unwrap()["status"]["typeChecking"]["expressionWarnings"].clone();
    let fields: Vec<&Value> = first.as_array().unwrap().iter().map(|warning| &warning["fieldRef"]).collect();
    assert_eq!(fields, ["spec.validations[0].expression", "spec.validations[0].messageExpression"]);
    // An expression whose type does not depend on the kind is checked when it is written.
    let spec = json!({"validations": [{"expression": "namespaceObject.metadata.uid == ''"}]});
    let refused = world.create(&policies, json!({"metadata": {"name": "bad"}, "spec": spec})).unwrap_err();
    assert!(refused.message.contains("<input>:1:25: undefined field 'uid'"), "{}", refused.message);
    // A changed policy is checked again.
    world.merge(&policies, "/p1", json!({"spec": {"validations": [{"expression": "true"}]}})).unwrap();
    world.maintain();
    let status = world.get(&policies, "/p1").unwrap()["status"].clone();
    assert_eq!(status, json!({"observedGeneration": 2, "typeChecking": {}}));
}

#[test]
fn expressions_ask_what_the_user_may_do() {
    for (expression, refused, expected) in [
        ("authorizer.group('').resource('secrets').namespace('x').check('get').allowed()", "get nodes", "ok"),
        (
            "authorizer.group('').resource('secrets').namespace('x').check('get').allowed()",
            "get secrets",
            "422",
        ),
        ("authorizer.requestResource.check('paint').allowed()", "get secrets", "ok"),
        ("authorizer.requestResource.check('paint').allowed()", "paint configmaps", "422"),
        ("authorizer.path('/healthz').check('get').allowed()", "get nodes", "422"),
    ] {
        let world = with_policy(json!({"validations": [{"expression": expression}]}), json!({}));
        world.refuse(refused);
        let found = outcome(world.create("v1/configmaps", config_map("a", json!({}))));
        assert_eq!(found.split(' ').next(), Some(expected), "{expression} {found}");
    }
}
