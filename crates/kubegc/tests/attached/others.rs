//! The collectors other than the owner-reference collector under `kubegc run`: each deletion leaves a trace, and whatever stops one
//! stops them all.

use std::path::Path;

use http::Method;
use serde_json::{Value, json};

use super::broken::{DEFINITIONS, WIDGETS, widget_definition};
use crate::support::Kubegc;
use crate::support_cluster::{
    Admin, LEASE, MAPS, OWNERS, QUICK_LEASE, Run, ask, effects, privileged_for, privileged_for_all, uid,
    until,
};
use crate::support_proxy::Proxy;

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const NAMESPACES: &str = "/api/v1/namespaces";
const TTL: &str = "ttl-after-finished-controller";
const WITH_TTL: &str = "--controllers=garbagecollector,ttl-after-finished";

/// Creates a Job that finished long ago and is due for deletion; returns its UID.
pub(crate) fn finished_job(admin: &Admin, name: &str) -> String {
    let pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
                     "spec": {"template": pod, "ttlSecondsAfterFinished": 0}});
    let made = admin.create(JOBS, &job);
    let then = "2026-01-01T00:00:00Z";
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": then});
    let status = json!({"status": {"startTime": then, "completionTime": then, "succeeded": 1,
                                   "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]}});
    let (code, patched) = admin.send(Method::PATCH, &format!("{JOBS}/{name}/status"), &status);
    assert_eq!(code, 200, "{patched}");
    uid(&made)
}

fn jobs_left(admin: &Admin) -> usize {
    admin.get(JOBS).1["items"].as_array().unwrap().len()
}

/// Returns the complete entries.
fn entries(journal: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(journal).unwrap();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Returns the audit line about an object.
fn audit_line(run: &Run, object: &str) -> Option<Value> {
    let log = run.log();
    let lines = log.lines().filter(|line| line.contains("\"kubegc::audit\""));
    let mut lines = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.find(|line| line["fields"]["object"] == object)
}

#[test]
fn a_finished_job_leaves_a_trace() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let job = finished_job(&admin, "done");
    let journal = server.folder.path().join("journal");
    let file = journal.to_str().unwrap();
    let account = privileged_for(&server, "garbagecollector,ttl-after-finished");
    let run = Run::with(&account, &[WITH_TTL, "--journal", file]);
    until("it is collected", || jobs_left(&admin) == 0);
    until("it is counted", || run.metric(&effects(TTL, "delete", "TTLExpired", "applied", 1)));
    until("it is noted", || !entries(&journal).is_empty());
    let entries = entries(&journal);
    let entry = entries.iter().find(|entry| entry["verb"] == "delete").unwrap();
    let shown = |field: &str| entry[field].as_str().unwrap_or_default();
    assert_eq!(
        [
            shown("controller"),
            shown("resource"),
            shown("namespace"),
            shown("name"),
            shown("uid"),
            shown("outcome")
        ],
        [TTL, "jobs.batch", "default", "done", &job, "requested"],
        "{entry}"
    );
    assert_eq!(shown("verdict"), "TTLExpired");
    assert!(entry["evidence"].as_array().unwrap().len() >= 2, "{entry}");
    let line = audit_line(&run, "jobs.batch default/done").unwrap();
    assert_eq!(
        ["controller", "verb", "verdict", "uid"].map(|field| &line["fields"][field]),
        [&json!(TTL), &json!("delete"), &json!("TTLExpired"), &json!(job)],
        "{line}"
    );
    let why = ask(&server, &["why", "job/done", "--journal", file]);
    assert!(why.contains(&format!(" by {TTL}: TTLExpired, ")), "{why}");
    assert_eq!(admin.refusals(403), [] as [String; 0]);
}

#[test]
fn an_emptied_namespace_leaves_a_trace_of_each_object() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let shop = uid(&admin.create(NAMESPACES, &json!({"metadata": {"name": "shop"}})));
    let maps = format!("{NAMESPACES}/shop/configmaps");
    for name in ["a", "b"] {
        admin.create(&maps, &json!({"metadata": {"name": name}}));
    }
    let journal = server.folder.path().join("journal");
    let account = privileged_for(&server, "garbagecollector,namespace");
    let run = Run::with(
        &account,
        &["--controllers=garbagecollector,namespace", "--journal", journal.to_str().unwrap()],
    );
    until("it leads", || run.is_ready() && run.leads());
    admin.delete_at(&format!("{NAMESPACES}/shop"), "Background");
    until("the namespace is gone", || admin.get(&format!("{NAMESPACES}/shop")).0 == 404);
    until("its end is noted", || entries(&journal).iter().any(|entry| entry["verb"] == "set-finalizers"));
    let entries = entries(&journal);
    let reported = |verb: &str, resource: &str| -> Vec<String> {
        let about = entries.iter().filter(|entry| {
            entry["controller"] == "namespace-controller"
                && entry["verb"] == verb
                && entry["resource"] == resource
        });
        let line = |entry: &Value| {
            assert_eq!(entry["verdict"], "NamespaceTerminating", "{entry}");
            let name = entry["name"].as_str().unwrap();
            format!("{}/{name} {}", entry["namespace"].as_str().unwrap(), entry["outcome"].as_str().unwrap())
        };
        let mut lines: Vec<String> = about.map(line).collect();
        lines.sort();
        lines
    };
    assert_eq!(reported("delete", "configmaps"), ["shop/a applied", "shop/b applied"]);
    assert_eq!(reported("set-finalizers", "namespaces"), ["/shop applied"]);
    let deleted = entries.iter().find(|entry| entry["name"] == "a" && entry["verb"] == "delete").unwrap();
    assert!(
        deleted["evidence"].to_string().contains(&format!("namespace shop ({shop}) has been terminating"))
    );
    assert!(audit_line(&run, "configmaps shop/b").is_some(), "{}", run.log());
    assert!(run.metric(&effects(
        "namespace-controller",
        "set-finalizers",
        "NamespaceTerminating",
        "applied",
        1
    )));
    assert_eq!(admin.refusals(403), [] as [String; 0]);
}

#[test]
fn a_pause_stops_every_collector() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    admin.create(NAMESPACES, &json!({"metadata": {"name": "shop"}}));
    let maps = format!("{NAMESPACES}/shop/configmaps");
    admin.create(&maps, &json!({"metadata": {"name": "a"}}));
    let account = privileged_for_all(&server);
    let flags: Vec<&str> = QUICK_LEASE
        .into_iter()
        .chain(["--controllers=garbagecollector,namespace,ttl-after-finished"])
        .collect();
    let run = Run::with(&account, &flags);
    let synced = [TTL, "namespace-controller"]
        .map(|name| format!("kubegc_collector_synced{{controller=\"{name}\"}} 1"));
    let are_synced = || synced.iter().all(|line| run.metric(line));
    until("all are at work", || run.is_ready() && run.leads() && are_synced());
    ask(&server, &["pause", "--reason=lunch"]);
    until("it is paused", || run.metric("kubegc_paused 1"));
    finished_job(&admin, "done");
    admin.delete_at(&format!("{NAMESPACES}/shop"), "Background");
    let waiting = format!("kubegc_collector_waiting{{controller=\"{TTL}\"}} 1");
    until("the job is known to be due", || run.metric(&waiting));
    // A terminating namespace is always left alone for five seconds.
    let renewed = |lease: &Value| {
        let text = lease["spec"]["renewTime"].as_str().unwrap().to_owned();
        text.parse::<jiff::Timestamp>().unwrap().as_second()
    };
    let begun = renewed(&admin.get(LEASE).1);
    until("the lease has been renewed for so long", || renewed(&admin.get(LEASE).1) > begun + 7);
    assert_eq!((jobs_left(&admin), admin.get(&format!("{maps}/a")).0), (1, 200));
    assert!(!run.page("/metrics").contains(&format!("controller=\"{TTL}\",verb=\"delete\"")));
    assert_eq!(ask(&server, &["resume"]), "Resumed.\n");
    until("the job is deleted", || jobs_left(&admin) == 0);
    until("the namespace is deleted", || admin.get(&format!("{NAMESPACES}/shop")).0 == 404);
}

/// No collector sends a request that changes anything; the log says what would be done.
#[test]
fn neither_a_dry_run_nor_an_observer_changes_anything() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let definition =
        std::fs::read_to_string(crate::support::repository().join("deploy/crds/retentionpolicies.yaml"));
    let definition: Value = serde_saphyr::from_str(&definition.unwrap()).unwrap();
    admin.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition);
    finished_job(&admin, "done");
    admin.map("stray", Some(("gone", "0e2f1a34-5b6c-4d7e-8f90-a1b2c3d4e5f6")));
    let expired = json!({"metadata": {"name": "expired", "annotations": {"kubegc.io/expires-at": "2026-01-01T00:00:00Z"}}});
    admin.create(MAPS, &expired);
    admin.create(NAMESPACES, &json!({"metadata": {"name": "shop"}}));
    admin.delete_at(&format!("{NAMESPACES}/shop"), "Background");
    let account = privileged_for_all(&server);
    for flag in ["--dry-run", "--observe"] {
        let proxy = Proxy::start(&account);
        let run = Run::with(&proxy.kubeconfig(), &[flag, "--controllers=*,expiry-controller"]);
        until("it is ready", || run.is_ready());
        let would = |object: &str| {
            let wanted = format!("\"object\":\"{object}\"");
            run.log().lines().any(|line| line.contains("dry run: would do") && line.contains(&wanted))
        };
        until("the job is reported", || would("jobs.batch default/done"));
        until("the expired one is reported", || would("configmaps default/expired"));
        until("the stray one is decided on", || match flag {
            "--dry-run" => would("configmaps default/stray"),
            _ => run.metric(&effects(OWNERS, "delete", "OwnersAbsent", "observed", 1)),
        });
        assert!(
            run.metric(&effects(TTL, "delete", "TTLExpired", "dry-run", 1)),
            "held, and not asked for again"
        );
        assert!(run.metric(&effects("expiry-controller", "delete", "ExpiredByAnnotation", "dry-run", 1)));
        let mut sent = proxy.forwarded();
        sent.retain(|request| request.method != Method::GET && !request.path.contains("/selfsubject"));
        let sent: Vec<String> =
            sent.iter().map(|request| format!("{} {}", request.method, request.path)).collect();
        assert_eq!(sent, [] as [String; 0], "{flag}");
    }
    assert_eq!((jobs_left(&admin), admin.exists("stray"), admin.exists("expired")), (1, true, true));
}

#[test]
fn the_breaker_and_the_configuration_stop_every_collector() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    for number in 0..4 {
        finished_job(&admin, &format!("done-{number}"));
    }
    let account = privileged_for(&server, "garbagecollector,ttl-after-finished");
    let path = server.folder.path().join("config.yaml");
    let write = |text: &str| {
        let header = "apiVersion: kubecontrollermanager.config.k8s.io/v1alpha1\n\
                      kind: KubeControllerManagerConfiguration\n";
        std::fs::write(&path, format!("{header}{text}")).unwrap();
    };
    write("kubegc: {keptResources: [jobs.batch], breaker: {maxDeletions: 2}}\n");
    let file = format!("--config={}", path.display());
    let run = Run::with(&account, &[WITH_TTL, &file]);
    until("all are held", || run.metric(&effects(TTL, "delete", "TTLExpired", "kept", 4)));
    assert_eq!(jobs_left(&admin), 4);

    write("kubegc: {breaker: {maxDeletions: 2}}\n");
    run.signal(crate::support::Signal::HUP);
    until("it trips", || run.metric("kubegc_breaker_tripped{resource=\"jobs.batch\"} 1"));
    until("the rest is held", || run.metric(&effects(TTL, "delete", "TTLExpired", "breaker-tripped", 2)));
    until("two have gone", || jobs_left(&admin) == 2);
    assert!(run.metric("kubegc_breaker_trips_total 1"));
    until("the lease says so", || {
        admin.get(LEASE).1["metadata"]["annotations"]["kubegc.io/tripped"]
            .as_str()
            .is_some_and(|tripped| tripped.contains("jobs.batch"))
    });
    ask(&server, &["resume", "--resource", "jobs.batch"]);
    until("the rest is deleted", || jobs_left(&admin) == 0);
}

#[test]
fn a_definition_can_keep_its_objects() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let mut definition = widget_definition();
    definition["metadata"]["annotations"] = json!({"kubegc.io/keep-objects": "true"});
    admin.create(DEFINITIONS, &definition);
    until("widgets are served", || admin.get(WIDGETS).0 == 200);
    let stray = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "stray",
        "annotations": {"kubegc.io/expires-at": "2026-01-01T00:00:00Z"}, "ownerReferences": [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "0e2f1a34-5b6c-4d7e-8f90-a1b2c3d4e5f6"}]}});
    admin.create(WIDGETS, &stray);
    let account = privileged_for_all(&server);
    let run = Run::with(&account, &["--controllers=garbagecollector,expiry-controller"]);
    until("both hold it", || {
        run.metric(&effects(OWNERS, "delete", "OwnersAbsent", "kept", 1))
            && run.metric(&effects("expiry-controller", "delete", "ExpiredByAnnotation", "kept", 1))
    });
    assert_eq!(run.state()["breaker"]["kept"], json!(["widgets.example.com"]));
    assert_eq!(admin.get(&format!("{WIDGETS}/stray")).0, 200);
    let free = json!({"metadata": {"annotations": {"kubegc.io/keep-objects": null}}});
    assert_eq!(admin.send(Method::PATCH, &format!("{DEFINITIONS}/widgets.example.com"), &free).0, 200);
    until("it is deleted", || admin.get(&format!("{WIDGETS}/stray")).0 == 404);
}

/// Without the owner-reference collector there is no star: the output of `kubegc rbac` is sufficient, also for the Lease.
#[test]
fn few_collectors_need_few_permissions() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    finished_job(&admin, "done");
    let account = privileged_for(&server, "ttl-after-finished");
    let run = Run::with(&account, &["--controllers=ttl-after-finished", "--breaker-max-deletions=1"]);
    // Jobs are deleted in the foreground, and no collector that removes that finalizer runs here.
    let is_deleted =
        |name: &str| admin.get(&format!("{JOBS}/{name}")).1["metadata"]["deletionTimestamp"].is_string();
    until("it is collected", || is_deleted("done"));
    finished_job(&admin, "next");
    until("the breaker is noted", || {
        let lease = admin.get(LEASE).1;
        lease["metadata"]["annotations"]["kubegc.io/tripped"]
            .as_str()
            .is_some_and(|text| text.contains("jobs"))
    });
    until("an Event says so", || {
        let (_, events) = admin.get("/api/v1/namespaces/kube-system/events");
        events["items"].as_array().unwrap().iter().any(|event| event["reason"] == "BreakerTripped")
    });
    assert!(!is_deleted("next"));
    ask(&server, &["resume"]);
    until("the next one is collected", || is_deleted("next"));
    assert_eq!(admin.refusals(403), [] as [String; 0]);
    assert!(run.is_ready());
}
