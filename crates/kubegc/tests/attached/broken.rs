//! One broken resource among many: a dead aggregated API, a failing conversion, a list that is forbidden or never answered.
//! Everything else is collected, and the problem is visible.

use std::path::Path;
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};

use crate::support::Kubegc;
use crate::support_cluster::{Admin, MAPS, Run, kubegc, least_privileged, uid, until, within};
use crate::support_proxy::{Fault, Proxy};

pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
/// A list without an answer is given up after a minute.
const LONG: Duration = Duration::from_secs(100);

pub(crate) fn widget_definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                          "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    })
}

fn widget(admin: &Admin, name: &str) -> String {
    let object = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}});
    uid(&admin.create(WIDGETS, &object))
}

pub(crate) fn owned_by_widget(admin: &Admin, name: &str, owner: &str, owner_uid: &str) -> String {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": name,
        "ownerReferences": [{"apiVersion": "example.com/v1", "kind": "Widget", "name": owner, "uid": owner_uid}],
    }});
    uid(&admin.create(MAPS, &object))
}

/// Creates the widgets `living` and `doomed`, which own the ConfigMaps `kept` and `garbage`. Returns the UIDs of the two that stay.
pub(crate) fn owning_widgets(admin: &Admin) -> (String, String) {
    admin.create(DEFINITIONS, &widget_definition());
    until("widgets are served", || admin.get(WIDGETS).0 == 200);
    let (living, doomed) = (widget(admin, "living"), widget(admin, "doomed"));
    let kept = owned_by_widget(admin, "kept", "living", &living);
    owned_by_widget(admin, "garbage", "doomed", &doomed);
    (living, kept)
}

/// Reports whether a request lists or watches widgets, or reads a single one.
fn is_about_widgets(_: &Method, path: &str) -> bool {
    path.starts_with("/apis/example.com/v1/") && path.contains("/widgets")
}

/// Runs a doctor that asks the server and the collector, and returns its findings.
fn findings(kubeconfig: &Path, run: &Run) -> (Option<i32>, Vec<String>) {
    let arguments = ["doctor", "-o", "json", "--subject=self", "--collector", run.address()];
    let (code, out, error) = kubegc(&arguments, kubeconfig);
    let answer: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{error}"));
    let line = |finding: &Value| {
        let text = |field: &str| finding[field].as_str().unwrap().to_owned();
        format!("{} {}: {}", text("check"), text("state"), text("message"))
    };
    (code, answer["items"].as_array().unwrap().iter().map(line).collect())
}

/// Breaks widgets from the start with this fault, which is reported with these words.
fn one_resource_is_broken(fault: &Fault, why: &str) {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let (_, kept) = owning_widgets(&admin);
    let bystander = admin.map("bystander", None);
    admin.map("bystander-child", Some(("bystander", &bystander)));
    let proxy = Proxy::start(&least_privileged(&server));
    proxy.inject(is_about_widgets, fault.clone());
    let run = Run::with(&proxy.kubeconfig(), &[]);
    until("it leads", || run.leads());
    let shown = || {
        let state = run.state();
        let resources = state["resources"].as_array().cloned().unwrap_or_default();
        resources
            .into_iter()
            .find(|resource| resource["resource"] == "widgets.example.com")
            .unwrap_or_default()
    };
    // Objects without a widget are collected meanwhile, even before the outcome for widgets is known.
    admin.delete("bystander", "Background");
    until("the bystander's child is gone", || !admin.exists("bystander-child"));
    admin.delete_at(&format!("{WIDGETS}/doomed"), "Background");
    within(LONG, "it is known to fail", || shown()["state"] == "failing");
    until("it is ready all the same", || run.is_ready());

    let said = shown()["why"].as_str().unwrap().to_owned();
    assert!(said.contains(why), "{said}");
    let metrics = run.page("/metrics");
    let gauge = "kubegc_resource_state_seconds{resource=\"widgets.example.com\",state=\"failing\"}";
    assert!(metrics.contains(gauge), "{metrics}");
    let (code, found) = findings(&server.kubeconfig, &run);
    let wanted = |line: &&String| line.starts_with("collector wrong: widgets.example.com is failing since");
    assert_eq!((code, found.iter().filter(wanted).count()), (Some(1), 1), "{found:#?}");
    // A dependent whose owner cannot be looked up is left alone.
    until("it has done what it can", || run.page("/metrics").contains("kubegc_requests_in_flight 0\n"));
    assert!(admin.exists("kept") && admin.exists("garbage"));

    assert!(proxy.heal()[0] > 0);
    within(Duration::from_secs(45), "the garbage is gone", || !admin.exists("garbage"));
    until("everything is done", || run.is_idle() && run.is_synced());
    assert_eq!(admin.get(&format!("{MAPS}/kept")).1["metadata"]["uid"], *kept);
    let (_, found) = findings(&server.kubeconfig, &run);
    assert!(!found.iter().any(|line| line.starts_with("collector wrong")), "{found:#?}");
}

#[test]
fn a_backend_of_an_aggregated_api_that_is_dead() {
    one_resource_is_broken(&Fault::Answer { code: 503, retry_after: None }, "503");
}

#[test]
fn a_conversion_webhook_that_fails() {
    one_resource_is_broken(&Fault::Answer { code: 500, retry_after: None }, "500");
}

#[test]
fn a_list_that_is_forbidden() {
    one_resource_is_broken(&Fault::Answer { code: 403, retry_after: None }, "403");
}

#[test]
fn a_list_that_is_never_answered() {
    one_resource_is_broken(&Fault::Stall, "no answer within 60 s");
}

/// Lists of widgets are answered, and no watch continues them, as if the server kept no history: each list shows what has changed, and
/// they are made ever more rarely.
#[test]
fn a_list_that_no_watch_can_follow() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let (_, kept) = owning_widgets(&admin);
    let proxy = Proxy::start(&least_privileged(&server));
    let is_asked = |parameter: &'static str| {
        move |method: &Method, path: &str| is_about_widgets(method, path) && path.contains(parameter)
    };
    proxy.inject(is_asked("limit="), Fault::Delay(Duration::ZERO));
    proxy.inject(is_asked("sendInitialEvents"), Fault::Answer { code: 422, retry_after: None });
    proxy.inject(is_asked("resourceVersion="), Fault::Answer { code: 410, retry_after: None });
    let begun = Instant::now();
    let run = Run::with(&proxy.kubeconfig(), &[]);
    until("several lists were in vain", || run.leads() && proxy.hits()[2] >= 8);
    admin.delete_at(&format!("{WIDGETS}/doomed"), "Background");
    until("the garbage is gone", || !admin.exists("garbage"));
    // The pauses double from a tenth of a second, and each lasts at least half of that.
    let (elapsed, lists) = (begun.elapsed(), proxy.hits()[0]);
    let pauses = std::iter::successors(Some(Duration::from_millis(50)), |pause| Some(*pause * 2));
    let most = 2 + pauses.take_while(|pause| *pause <= elapsed).count();
    assert!((8..=most).contains(&lists), "{lists} lists in {elapsed:?}");
    assert_eq!(admin.get(&format!("{MAPS}/kept")).1["metadata"]["uid"], *kept);
}

/// A whole API group whose server is gone: it is stale in discovery, its paths return 503, and its APIService is not available.
#[test]
fn an_api_service_without_a_server_is_shown_and_holds_up_nothing_else() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let service = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1beta1.metrics.example.com"},
        "spec": {"group": "metrics.example.com", "version": "v1beta1", "groupPriorityMinimum": 100,
                 "versionPriority": 100, "service": {"namespace": "kube-system", "name": "metrics"}},
    });
    admin.create(SERVICES, &service);
    let path = format!("{SERVICES}/v1beta1.metrics.example.com");
    until("it is checked", || !admin.get(&path).1["status"]["conditions"][0].is_null());
    assert_eq!(admin.get("/apis/metrics.example.com/v1beta1").0, 503);
    // One owner has a kind in that group, so it is unknown whether it exists.
    let unknown = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "unknown", "ownerReferences": [
        {"apiVersion": "metrics.example.com/v1beta1", "kind": "Sample", "name": "s",
         "uid": "0e2f1a34-5b6c-4d7e-8f90-a1b2c3d4e5f6"}]}});
    admin.create(MAPS, &unknown);
    let run = Run::with(&least_privileged(&server), &[]);
    until("it is ready", || run.is_ready() && run.leads());
    for policy in ["Background", "Foreground", "Orphan"] {
        let lower = policy.to_lowercase();
        let root = admin.map(&lower, None);
        admin.map(&format!("{lower}-child"), Some((&lower, &root)));
        until("it sees them", || run.page("/debug/kubegc/graph").contains(&root));
        admin.delete(&lower, policy);
        until(&format!("{lower} is gone"), || !admin.exists(&lower));
    }
    until("the children are gone", || !admin.exists("background-child") && !admin.exists("foreground-child"));
    assert!(admin.exists("orphan-child") && admin.exists("unknown"));
    assert!(run.metric("kubegc_discovery_failed_groups 1"));
    let state = run.state();
    assert!(state["discovery"]["failedGroups"]["metrics.example.com/v1beta1"].is_string(), "{state}");
    let (code, found) = findings(&server.kubeconfig, &run);
    let says = |part: &str| found.iter().any(|line| line.contains(part));
    assert_eq!(code, Some(1), "{found:#?}");
    let why = "ServiceNotFound: service/metrics in \"kube-system\" is not present";
    assert!(
        says(&format!("apiservices wrong: v1beta1.metrics.example.com is not available: {why}")),
        "{found:#?}"
    );
}
