//! The breaker, pauses and observation, and their reports.

use super::*;
use crate::support_cluster::privileged_for;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

impl Admin {
    /// Creates a number of ConfigMaps with one owner.
    fn family(&self, owner: &str, dependents: usize) {
        let uid = self.map(owner, None);
        for number in 0..dependents {
            self.map(&format!("{owner}-{number}"), Some((owner, &uid)));
        }
    }

    fn left(&self, owner: &str, dependents: usize) -> usize {
        (0..dependents).filter(|number| self.exists(&format!("{owner}-{number}"))).count()
    }

    fn annotation(&self, name: &str) -> String {
        self.get(LEASE).1["metadata"]["annotations"][name].as_str().unwrap_or_default().to_owned()
    }
}

impl Run {
    fn sees(&self, uid: &str) {
        until("it sees the objects", || self.page("/debug/kubegc/graph").contains(uid));
    }
}

#[test]
fn a_tripped_breaker_stops_one_resource_beyond_restarts_until_it_is_resumed() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    admin.family("root", 6);
    let flags: Vec<&str> = QUICK_LEASE.into_iter().chain(["--breaker-max-deletions=3"]).collect();
    let mut run = Run::start(&server, &flags);
    until("the graph is complete", || run.is_ready() && run.leads());
    admin.delete("root", "Background");
    until("it trips", || admin.annotation("kubegc.io/tripped").contains("\"configmaps\""));
    assert_eq!(admin.left("root", 6), 3, "{}", run.log());
    assert!(run.metric("kubegc_breaker_tripped{resource=\"configmaps\"} 1"));
    assert!(run.metric("kubegc_breaker_trips_total 1") && run.metric("kubegc_requests_withheld 3"));
    assert!(run.is_ready());
    let state = run.state();
    assert_eq!(state["breaker"]["tripped"][0]["resource"], "configmaps", "{state}");
    until("an Event says so", || {
        let (_, events) = admin.get("/api/v1/namespaces/kube-system/events");
        events["items"].as_array().unwrap().iter().any(|event| {
            event["reason"] == "BreakerTripped"
                && event["involvedObject"]["kind"] == "Lease"
                && event["message"]
                    .as_str()
                    .unwrap()
                    .starts_with("collection of configmaps has stopped: 3 deletions")
        })
    });

    // Another resource is still collected.
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "ownerReferences": [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "0e2f1a34-5b6c-4d7e-8f90-a1b2c3d4e5f6"}]}});
    assert_eq!(admin.send(Method::POST, SECRETS, &secret).0, 201);
    until("the secret is collected", || admin.get(&format!("{SECRETS}/s")).0 == 404);

    // The next process knows this.
    run.signal(Signal::TERM);
    assert_eq!(run.wait().code(), Some(0), "{}", run.log());
    let run = Run::start(&server, &flags);
    until("the next one leads", || run.is_ready() && run.leads());
    until("it knows", || run.metric("kubegc_breaker_tripped{resource=\"configmaps\"} 1"));
    assert_eq!(admin.left("root", 6), 3);

    assert_eq!(
        ask(&server, &["resume", "--resource", "secrets"]),
        "secrets was not stopped by the circuit breaker.\n"
    );
    assert_eq!(
        ask(&server, &["resume", "--resource", "configmaps"]),
        "Collection resumed for: configmaps.\n"
    );
    until("the rest is collected", || admin.left("root", 6) == 0);
    assert_eq!(admin.annotation("kubegc.io/tripped"), "");
    assert_eq!(ask(&server, &["resume"]), "Nothing was paused or stopped.\n");
}

#[test]
fn pausing_stops_everything_and_resuming_goes_on() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let (code, _, error) = kubegc(&["pause"], &server.kubeconfig);
    assert_eq!(code, Some(1));
    assert!(
        error.starts_with(
            "error: nothing is paused: no collector holds the Lease kube-system/kubegc-garbage-"
        ),
        "{error}"
    );
    assert_eq!(admin.get(LEASE).0, 404);
    // Before any collector runs, the order waits for it.
    let out = ask(&server, &["pause", "--beforehand", "--reason", "not yet"]);
    assert!(
        out.starts_with(
            "Paused: collectors with the Lease kube-system/kubegc-garbage-collector send nothing"
        ),
        "{out}"
    );
    admin.family("root", 2);
    let run = Run::start(&server, &QUICK_LEASE);
    until("it leads", || run.is_ready() && run.leads());
    admin.delete("root", "Background");
    assert!(admin.annotation("kubegc.io/paused").ends_with(": not yet"));
    assert!(run.metric("kubegc_paused 1") && run.is_ready());
    assert_eq!(admin.left("root", 2), 2);
    let again = ask(&server, &["pause"]);
    assert!(again.starts_with("Already paused (") && again.ends_with(": not yet).\n"), "{again}");
    assert_eq!(ask(&server, &["resume"]), "Resumed.\n");
    until("it continues", || admin.left("root", 2) == 0);

    // This needs only kubectl's permissions while the collector runs.
    let annotate = |value: Value| {
        let patch = json!({"metadata": {"annotations": {"kubegc.io/paused": value}}});
        assert_eq!(admin.send(Method::PATCH, LEASE, &patch).0, 200);
    };
    annotate(json!("true"));
    until("it is paused", || run.metric("kubegc_paused 1"));
    admin.family("next", 2);
    run.sees("next-1");
    admin.delete("next", "Background");
    // Renewals keep the fields that others wrote.
    let renewed = admin.get(LEASE).1["spec"]["renewTime"].clone();
    until("the lease is renewed", || admin.get(LEASE).1["spec"]["renewTime"] != renewed);
    assert_eq!((admin.left("next", 2), &*admin.annotation("kubegc.io/paused")), (2, "true"));
    annotate(Value::Null);
    until("it continues again", || admin.left("next", 2) == 0);
}

#[test]
fn an_observer_agrees_with_a_collector_and_misses_one_that_is_not_there() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let journal = server.folder.path().join("observed");
    let observer =
        Run::start(&server, &["--observe", "--observe-window=10s", "--journal", journal.to_str().unwrap()]);
    let mut active = Run::start(&server, &QUICK_LEASE);
    until("both are ready", || observer.is_ready() && active.is_ready() && active.leads());
    // The active collector waits, so the observer is the first to want the finalizer removed.
    ask(&server, &["pause"]);
    until("the active one is paused", || active.metric("kubegc_paused 1"));
    admin.map("lone", None);
    admin.delete("lone", "Foreground");
    until("the observer would remove its finalizer", || observer.metric("kubegc_requests_withheld 1"));
    ask(&server, &["resume"]);
    admin.family("root", 3);
    observer.sees("root-2");
    admin.delete("root", "Background");
    until("the other one collects", || admin.left("root", 3) == 0 && !admin.exists("lone"));
    until("it agrees", || observer.metric("kubegc_observe_agreements_total{kind=\"deletion\"} 3"));
    until("on the finalizer as well", || {
        observer.metric("kubegc_observe_agreements_total{kind=\"finalizer\"} 1")
    });
    for kind in ["not-deleted", "references-not-removed", "finalizer-not-removed", "deleted-unexpectedly"] {
        assert!(
            observer.metric(&format!("kubegc_observe_disagreements_total{{kind=\"{kind}\"}} 0")),
            "{kind}"
        );
    }
    // A user's deletion of an object with a living owner is not a disagreement.
    admin.family("kept", 1);
    observer.sees("kept-0");
    admin.delete("kept-0", "Background");

    active.signal(Signal::TERM);
    assert_eq!(active.wait().code(), Some(0));
    admin.family("left", 1);
    observer.sees("left-0");
    admin.delete("left", "Background");
    until("it disagrees", || observer.metric("kubegc_observe_disagreements_total{kind=\"not-deleted\"} 1"));
    assert!(observer.metric("kubegc_observe_disagreements_total{kind=\"deleted-unexpectedly\"} 0"));
    assert!(admin.exists("left-0"), "an observer performs nothing");
    assert_eq!(observer.state()["mode"], "observe");
    until("the journal has it", || {
        let file = journal.to_str().unwrap();
        let asked = ["journal", "--journal", file, "--verb=observe", "--outcome=disagreement", "-o", "json"];
        let found: Value = serde_json::from_str(&plain(&asked)).unwrap();
        found["items"].as_array().unwrap().iter().any(|entry| {
            entry["name"] == "left-0" && entry["kind"] == "not-deleted" && entry["verdict"] == "OwnersAbsent"
        })
    });
}

#[test]
fn the_first_run_after_an_installation_may_observe_first() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    admin.map("stray", Some(("gone", "0e2f1a34-5b6c-4d7e-8f90-a1b2c3d4e5f6")));
    let started = Instant::now();
    let flags: Vec<&str> = QUICK_LEASE.into_iter().chain(["--observe-for=4s"]).collect();
    let mut first = Run::start(&server, &flags);
    until("it says until when", || !admin.annotation("kubegc.io/observe-until").is_empty());
    until("it would collect", || first.metric("kubegc_requests_withheld 1"));
    assert!(admin.exists("stray"));
    let noted = admin.annotation("kubegc.io/observe-until");
    // A restart does not start over.
    first.signal(Signal::TERM);
    first.wait();
    let second = Run::start(&server, &flags);
    until("it collects in the end", || !admin.exists("stray"));
    assert!(started.elapsed() >= Duration::from_secs(4), "{:?}", started.elapsed());
    assert_eq!(admin.annotation("kubegc.io/observe-until"), noted);
    until("it acts", || second.state()["mode"] == "act");
}

/// Runs a command that contacts no server, and returns its output.
fn plain(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_kubegc")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_journal_answers_why_something_is_gone() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let file = server.folder.path().join("journal");
    let journal = file.to_str().unwrap();
    let run = Run::start(&server, &["--journal", journal]);
    until("it is ready", || run.is_ready() && run.leads());
    admin.family("root", 1);
    run.sees("root-0");
    admin.delete("root", "Background");
    until("it is collected", || !admin.exists("root-0"));
    until("it is noted", || std::fs::read_to_string(&file).unwrap().contains("\"root-0\""));
    let why = ask(&server, &["why", "cm/root-0", "--journal", journal]);
    assert!(why.starts_with("configmaps/root-0 in default\nIt was collected at "), "{why}");
    assert!(why.contains(": OwnersAbsent, every owner is absent.\n  owner ConfigMap/root ("), "{why}");
    let table =
        plain(&["journal", "--journal", journal, "--since=1h", "--object=configmap/root-0", "-n", "default"]);
    let fields: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().skip(2).take(4).collect();
    assert_eq!(fields, ["delete", "default", "configmaps/root-0", "applied"], "{table}");
    assert_eq!(plain(&["journal", "--journal", journal, "--object=cm/never"]), "Nothing is recorded.\n");
    // Without the name of the file, the leader is found by its Lease.
    let why = ask(&server, &["why", "cm/root-0"]);
    assert!(why.starts_with("configmaps/root-0 in default\nIt was collected at "), "{why}");
    let (code, _, error) = kubegc(&["why", "cm/never"], &server.kubeconfig);
    assert_eq!(code, Some(1));
    assert!(error.contains("\"never\" not found"), "{error}");
    // The audit line contains everything that a reader of logs needs.
    let line = run.log().lines().find(|line| line.contains("kubegc::audit")).unwrap().to_owned();
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["fields"]["object"], "configmaps default/root-0", "{line}");
    assert_eq!(
        ["verb", "verdict", "outcome"].map(|field| &line["fields"][field]),
        [&json!("delete"), &json!("OwnersAbsent"), &json!("applied")]
    );
    assert!(line["fields"]["reason"].as_str().unwrap().starts_with("every owner is absent: "), "{line}");
}

#[test]
fn a_configuration_file_is_obeyed_and_read_again() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let path = server.folder.path().join("config.yaml");
    let write = |text: &str| {
        let header = "apiVersion: kubecontrollermanager.config.k8s.io/v1alpha1\n\
                      kind: KubeControllerManagerConfiguration\n";
        std::fs::write(&path, format!("{header}{text}")).unwrap();
    };
    write("generic: {leaderElection: {leaderElect: false}}\nkubegc: {keptResources: [configmaps]}\n");
    let file = format!("--config={}", path.display());
    let mut run = Run::start(&server, &[&file]);
    until("it is ready", || run.is_ready());
    admin.family("root", 1);
    run.sees("root-0");
    admin.delete("root", "Background");
    until("what is kept is held", || run.metric("kubegc_requests_withheld 1"));
    assert!(admin.exists("root-0"));
    assert_eq!(run.state()["breaker"]["kept"], json!(["configmaps"]));

    write("kubegc: {keptResources: [configmaps]\n");
    run.signal(Signal::HUP);
    until("it says what is wrong", || run.log().contains("the configuration is unchanged"));
    assert!(admin.exists("root-0"));
    write("generic: {leaderElection: {leaderElect: false}}\nkubegc: {observeFor: 1h}\n");
    run.signal(Signal::HUP);
    until("what is kept no more is deleted", || !admin.exists("root-0"));
    until("it says what needs a restart", || {
        run.log().lines().any(|line| line.contains("needs a restart") && line.contains("\"mode\""))
    });
    assert!(run.log().lines().any(|line| line.contains("takes effect") && line.contains("kept resources")));
    run.signal(Signal::TERM);
    assert_eq!(run.wait().code(), Some(0));

    write("garbageCollectorController:\n  enabled: yes\n");
    let (code, _, error) = kubegc(&["run", &file], &server.kubeconfig);
    assert_eq!((code, error.lines().count()), (Some(2), 1), "{error}");
    assert!(error.contains("config.yaml:4:3: ") && error.contains("unknown field `enabled`"), "{error}");
}

#[test]
fn other_collectors_run_when_they_are_asked_for() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let path = server.folder.path().join("config.yaml");
    std::fs::write(
        &path,
        "apiVersion: kubecontrollermanager.config.k8s.io/v1alpha1\nkind: KubeControllerManagerConfiguration\n\
         generic: {controllers: [garbagecollector, ttl-after-finished]}\n",
    )
    .unwrap();
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
                     "spec": {"template": pod, "ttlSecondsAfterFinished": 0}});
    let (code, made) = admin.send(Method::POST, jobs, &job);
    assert_eq!(code, 201, "{made}");
    let now = "2026-01-01T00:00:00Z";
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
    let status = json!({"status": {"startTime": now, "completionTime": now, "succeeded": 1,
                                   "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]}});
    let (code, patched) = admin.send(Method::PATCH, &format!("{jobs}/j/status"), &status);
    assert_eq!(code, 200, "{patched}");
    let file = format!("--config={}", path.display());
    let account = privileged_for(&server, "garbagecollector,ttl-after-finished");
    let run = Run::with(&account, &[&file]);
    until("it leads", || run.is_ready() && run.leads());
    until("the finished job is collected", || admin.get(&format!("{jobs}/j")).0 == 404);
}

#[test]
fn a_new_definition_takes_part_within_moments() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let run = Run::start(&server, &QUICK_LEASE);
    until("it is ready", || run.is_ready() && run.leads());
    let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget"});
    let version = json!({"name": "v1", "served": true, "storage": true,
                         "schema": {"openAPIV3Schema": {"type": "object"}}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(admin.send(Method::POST, definitions, &definition).0, 201);
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    until("it is served", || admin.get(widgets).0 == 200);
    let state = |name: &str| {
        let state = run.state();
        let resources = state["resources"].as_array().unwrap();
        resources.iter().find(|shown| shown["resource"] == name).map(|shown| shown["state"].clone())
    };
    until("it is synced", || state("widgets.example.com") == Some(json!("synced")));
    let owner = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    let (_, made) = admin.send(Method::POST, widgets, &owner);
    let leaf = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "leaf", "ownerReferences": [
        {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": made["metadata"]["uid"]}]}});
    assert_eq!(admin.send(Method::POST, MAPS, &leaf).0, 201);
    assert!(admin.send(Method::DELETE, &format!("{widgets}/w"), &Value::Null).0 < 300);
    until("its dependent is collected", || !admin.exists("leaf"));
    assert!(admin.send(Method::DELETE, &format!("{definitions}/widgets.example.com"), &Value::Null).0 < 300);
    until("it is forgotten", || state("widgets.example.com").is_none());
}

#[test]
fn a_server_that_is_not_there_is_waited_for_and_a_signal_ends_the_wait() {
    let server = Kubegc::start("apiserver");
    let text = std::fs::read_to_string(&server.kubeconfig).unwrap();
    let unreachable = server.folder.path().join("unreachable");
    std::fs::write(&unreachable, text.replace(&server.url, "https://127.0.0.1:1")).unwrap();
    let mut run = Run::with(&unreachable, &[]);
    until("it says so", || run.log().contains("the server cannot be reached; trying again in"));
    assert!(run.page("/healthz").starts_with("HTTP/1.1 200"));
    assert!(!run.is_ready());
    run.signal(Signal::TERM);
    assert_eq!(run.wait().code(), Some(0), "{}", run.log());

    for (flag, expected) in [
        ("--no-such-flag", "unexpected argument '--no-such-flag'"),
        ("--concurrent-gc-syncs=many", "invalid value 'many' for '--concurrent-gc-syncs <N>'"),
        ("--log-level=nonsense=x", "--log-level \"nonsense=x\" is invalid"),
        ("--controllers=unknown", "--controllers: "),
        ("--breaker-max-share=7", "--breaker-max-share 7 must be between 0 and 1"),
    ] {
        let (code, _, error) = kubegc(&["run", flag], &server.kubeconfig);
        assert_eq!(code, Some(2), "{flag}: {error}");
        assert!(error.contains(expected), "{flag}: {error}");
    }
}

#[test]
fn the_doctor_finds_what_is_wrong() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let examine = |more: &[&str]| {
        let arguments: Vec<&str> = ["doctor", "-o", "json"].iter().chain(more).copied().collect();
        let (code, out, error) = kubegc(&arguments, &server.kubeconfig);
        let answer: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{error}"));
        assert_eq!((code, error.as_str()), (Some(i32::from(answer["healthy"] != true)), ""), "{answer:#}");
        answer
    };
    let says = |answer: &Value, check: &str, state: &str, part: &str| {
        let findings = answer["items"].as_array().unwrap();
        let found = findings.iter().any(|finding| {
            finding["check"] == check
                && finding["state"] == state
                && finding["message"].as_str().unwrap().contains(part)
        });
        assert!(found, "{check} {state} {part} in {answer:#}");
    };
    let run = Run::start(&server, &QUICK_LEASE);
    until("it leads", || run.is_ready() && run.leads());
    let fine = examine(&["--subject=self", "--collector", run.address()]);
    assert_eq!(fine["healthy"], true, "{fine:#}");
    says(&fine, "leader", "ok", "holds lease kube-system/kubegc-garbage-collector");
    says(&fine, "permissions", "ok", "this user has all permissions");
    says(&fine, "collector", "ok", "leads, mode act");
    says(&fine, "stuck", "ok", "nothing is stuck");

    // There is an account without any role, an order to pause, and an object that a foreign finalizer holds.
    let held = json!({"apiVersion": "v1", "kind": "ConfigMap",
                      "metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    assert_eq!(admin.send(Method::POST, MAPS, &held).0, 201);
    admin.delete("held", "Background");
    ask(&server, &["pause", "--reason=lunch"]);
    // kube-controller-manager runs, according to its lease.
    let theirs = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "kube-controller-manager"},
        "spec": {"holderIdentity": "node-1", "leaseDurationSeconds": 3600,
                 "renewTime": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()}});
    assert_eq!(admin.send(Method::POST, theirs, &lease).0, 201);
    let sick = examine(&["--subject=system:serviceaccount:default:robot"]);
    assert_eq!(sick["healthy"], false);
    // The leader on this machine is found by its Lease.
    says(&sick, "collector", "ok", "leads, mode ");
    says(&sick, "pause", "wrong", ": lunch)");
    says(&sick, "stuck", "notice", "FinalizerHeld example.com/hold: configmaps/held -n default");
    says(&sick, "kube-controller-manager", "notice", "probably runs beside kubegc's");
    for (rule, role) in [
        ("{apiGroups: [\"*\"], resources: [\"*\"], verbs: [", "ClusterRole"),
        ("{apiGroups: [\"coordination.k8s.io\"], resources: [\"leases\"], verbs: [", "Role"),
    ] {
        says(
            &sick,
            "permissions",
            "wrong",
            &format!("system:serviceaccount:default:robot lacks the rule {rule}"),
        );
        let advice = json!(format!("add it to our {role}; `kubegc rbac` prints all that is needed"));
        let advised = sick["items"].as_array().unwrap().iter().any(|finding| {
            finding["message"].as_str().unwrap().contains(rule) && finding["advice"] == advice
        });
        assert!(advised, "{rule} {role} in {sick:#}");
    }
    let (code, out, _) = kubegc(&["doctor", "--subject=self"], &server.kubeconfig);
    assert_eq!(code, Some(1));
    assert!(out.contains("→ `kubegc resume` resumes it"), "{out}");
}

/// The manifests are not the only way to install the collector: the account of the running process counts.
#[test]
fn the_doctor_checks_the_account_that_runs() {
    const ACCOUNTS: &str = "/api/v1/namespaces/kube-system/serviceaccounts";
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let messages = |check: &str| {
        let (_, out, error) = kubegc(&["doctor", "-o", "json"], &server.kubeconfig);
        let answer: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{error}"));
        let findings = answer["items"].as_array().unwrap().iter();
        let of_check = findings.filter(|finding| finding["check"] == check);
        of_check.map(|one| one["message"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let leads = |holder: &str| {
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "kubegc-garbage-collector", "namespace": "kube-system"},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 3600, "renewTime": now}});
        let collection = LEASE.rsplit_once('/').unwrap().0;
        admin.send(Method::DELETE, LEASE, &Value::Null);
        assert_eq!(admin.send(Method::POST, collection, &lease).0, 201);
    };
    assert!(messages("permissions").is_empty());
    assert!(messages("leader")[0].contains("kubegc is not installed here"));

    // This process is outside the cluster, and its user cannot be seen; an account that does not exist is not mentioned.
    leads("laptop_1");
    let unknown = messages("permissions");
    assert!(unknown.len() == 1 && unknown[0].contains("--subject names the account"), "{unknown:?}");
    // This pod has its own account.
    assert_eq!(admin.send(Method::POST, ACCOUNTS, &json!({"metadata": {"name": "sweeper"}})).0, 201);
    let pod = json!({"metadata": {"name": "sweeper-0"}, "spec": {"serviceAccountName": "sweeper",
        "containers": [{"name": "c", "image": "kubegc"}]}});
    assert_eq!(admin.send(Method::POST, "/api/v1/namespaces/kube-system/pods", &pod).0, 201);
    leads("sweeper-0_1");
    let lacking = messages("permissions");
    let begin = "system:serviceaccount:kube-system:sweeper lacks the rule ";
    assert!(!lacking.is_empty() && lacking.iter().all(|line| line.starts_with(begin)), "{lacking:?}");
    // If the pod cannot be found, the account of the manifests counts.
    assert_eq!(admin.send(Method::POST, ACCOUNTS, &json!({"metadata": {"name": "kubegc"}})).0, 201);
    leads("laptop_1");
    let lacking = messages("permissions");
    assert!(
        lacking[0].starts_with("system:serviceaccount:kube-system:kubegc lacks the rule "),
        "{lacking:?}"
    );
}
