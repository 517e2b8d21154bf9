//! The journal that `kubegc up` and `kubegc run` keep by default.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use http::Method;
use serde_json::{Value, json};

use super::support::{Kubegc, Signal};
use super::support_cluster::{Admin, MAPS, QUICK_LEASE, Run, ask, kubeconfig, kubegc, until};

/// Deletes an owner, and waits until its dependent is collected.
fn collect_family(admin: &Admin, name: &str) {
    let leaf = format!("{name}-leaf");
    let owner = admin.map(name, None);
    admin.map(&leaf, Some((name, &owner)));
    admin.delete(name, "Foreground");
    until("the dependent is collected", || !admin.exists(&leaf) && !admin.exists(name));
}

/// Returns the token of an account without permissions.
fn token_of_account(admin: &Admin) -> String {
    let made =
        admin.create("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "a"}}));
    assert_eq!(made["kind"], "ServiceAccount");
    let path = "/api/v1/namespaces/default/serviceaccounts/a/token";
    let token = admin
        .create(path, &json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}));
    token["status"]["token"].as_str().unwrap().to_owned()
}

fn entries(text: &str) -> Vec<Value> {
    let document: Value = serde_json::from_str(text).unwrap();
    document["items"].as_array().unwrap().clone()
}

#[test]
fn up_keeps_a_journal_that_commands_find_by_themselves() {
    let data = tempfile::tempdir().unwrap();
    let folder = data.path().to_str().unwrap();
    let flags = ["--data-dir", folder, "--workloads=off"];
    let server = Kubegc::start_with("up", flags);
    let admin = Admin::of(&server);
    collect_family(&admin, "first");
    let deletions = ["journal", "--object=cm/first-leaf", "-n", "default", "--verb=delete", "-o", "json"];
    until("it is recorded", || entries(&ask(&server, &deletions)).len() == 1);
    let entry = entries(&ask(&server, &deletions)).remove(0);
    assert_eq!(
        (&entry["outcome"], &entry["verdict"]),
        (&json!("applied"), &json!("OwnerForegroundDeleting")),
        "{entry}"
    );
    let text = ask(&server, &["journal", "-n", "default"]);
    assert!(text.contains("configmaps/first-leaf") && !text.contains("barrier"), "{text}");
    assert!(!text.contains('…'), "in a pipe, nothing is shortened: {text}");
    let text = ask(&server, &["journal", "--barriers"]);
    assert!(text.lines().any(|line| line.contains("  barrier  ")), "{text}");

    // A follower sees earlier entries and later ones.
    let mut follower = Command::new(env!("CARGO_BIN_EXE_kubegc"))
        .args(["journal", "-f", "--verb=delete", "-n", "default", "-o", "json", "--kubeconfig"])
        .arg(&server.kubeconfig)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap()["name"].clone();
    assert_eq!(next(), "first-leaf");
    collect_family(&admin, "second");
    assert_eq!(next(), "second-leaf");
    follower.kill().unwrap();
    follower.wait().unwrap();

    // Only users who may read the path see it.
    let foreign = server.folder.path().join("foreign");
    kubeconfig(&foreign, &server.url, &server.ca, &token_of_account(&admin));
    let (code, _, error) = kubegc(&["journal"], &foreign);
    assert_eq!(code, Some(1));
    assert!(error.contains(" cannot be read: 403: ") && error.lines().count() == 1, "{error}");

    // A later run of the server knows the entries of the earlier one.
    server.end(Signal::TERM);
    let server = Kubegc::start_with("up", flags);
    let why = ask(&server, &["why", "cm/first-leaf"]);
    assert!(why.starts_with("configmaps/first-leaf in default\nIt was collected at "), "{why}");
    assert!(why.contains("Z by garbage-collector-controller: "), "{why}");
    let (code, _, error) = kubegc(&["why", "cm/never"], &server.kubeconfig);
    assert_eq!(code, Some(1));
    assert!(error.contains("\"never\" not found"), "{error}");
}

#[test]
fn up_obeys_a_pause() {
    let server = Kubegc::start_collectors();
    let admin = Admin::of(&server);
    let owner = admin.map("owner", None);
    admin.map("leaf", Some(("owner", &owner)));
    assert!(ask(&server, &["pause", "--reason=lunch"]).starts_with("Paused: "));
    let mode = |admin: &Admin| admin.get("/kubegc/v1/overview").1["mode"].clone();
    until("the page says so", || mode(&admin)["reason"] == "lunch");
    admin.delete("owner", "Background");
    // Due work waits.
    admin.send(Method::POST, "/kubegc/v1/settle?timeout=300ms", &Value::Null);
    assert!(admin.exists("leaf"));
    // The Lease no longer orders a pause after the page has resumed.
    let (code, _) = admin.send(Method::POST, "/kubegc/v1/resume", &json!({}));
    assert_eq!(code, 200);
    until("it is collected", || !admin.exists("leaf"));
    assert_eq!(ask(&server, &["resume"]), "Nothing was paused or stopped.\n");
    let (code, _) = admin.send(Method::POST, "/kubegc/v1/pause", &json!({"reason": "tea"}));
    assert_eq!(code, 200);
    assert!(ask(&server, &["pause"]).ends_with("Z: tea (by kubegc-admin)).\n"));
    assert_eq!(ask(&server, &["resume"]), "Resumed.\n");
    until("the page says so", || mode(&admin)["state"] == "Acting");
}

#[test]
fn run_keeps_a_journal_without_a_flag() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let mut run = Run::start(&server, &QUICK_LEASE);
    until("it is ready", || run.is_ready() && run.leads());
    collect_family(&admin, "first");
    // The journal is read at the collector's address and, after the collector's end, from its file.
    let address = run.address().to_owned();
    let recorded = |more: &[&str]| {
        let flags = ["journal", "--object=cm/first-leaf", "-n", "default", "--verb=delete", "-o", "json"];
        entries(&ask(&server, &[&flags, more].concat()))
    };
    until("it is recorded", || recorded(&["--collector", &address]).len() == 1);
    assert_eq!(recorded(&[]).len(), 1, "a collector of this machine is found, whatever its port");
    // Another user of the machine finds the collector by the Lease.
    let home = tempfile::tempdir().unwrap();
    let kubeconfig_elsewhere = home.path().join("kubeconfig");
    std::fs::copy(&server.kubeconfig, &kubeconfig_elsewhere).unwrap();
    let (code, said, error) = kubegc(&["why", "cm/first-leaf"], &kubeconfig_elsewhere);
    assert_eq!((code, &*error), (Some(0), ""));
    assert!(said.contains("\nIt was collected at "), "{said}");
    assert!(admin.get(MAPS).0 == 200);
    run.signal(Signal::TERM);
    assert_eq!(run.wait().code(), Some(0));
    let entry = recorded(&[]).remove(0);
    assert_eq!(entry["server"].as_str().unwrap().trim_end_matches('/'), server.url);
    // Entries of other servers in the same file are not shown for this server.
    let other = Kubegc::start("apiserver");
    std::fs::create_dir_all(other.folder.path().join("data/kubegc")).unwrap();
    let file = "data/kubegc/run-journal.jsonl";
    std::fs::copy(server.folder.path().join(file), other.folder.path().join(file)).unwrap();
    assert_eq!(ask(&other, &["journal"]), "Nothing is recorded.\n");
    // They also do not hide that a user may not see this server's journal.
    let foreign = other.folder.path().join("foreign");
    kubeconfig(&foreign, &other.url, &other.ca, &token_of_account(&Admin::of(&other)));
    let (code, said, error) = kubegc(&["journal"], &foreign);
    assert_eq!((code, &*said), (Some(1), ""), "{error}");
    assert!(error.contains("whether a collector leads cannot be seen"), "{error}");
}

/// A process that was killed while writing leaves a partial line: the next entry still gets its own line.
#[test]
fn an_entry_after_a_torn_line_is_found() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let file = server.folder.path().join("torn");
    let journal = file.to_str().unwrap();
    let flags = [&QUICK_LEASE[..], &["--journal", journal]].concat();
    let recorded = |name: &str| {
        let object = format!("--object=cm/{name}-leaf");
        let line = ["journal", "--journal", journal, &object, "-n", "default", "--verb=delete", "-o", "json"];
        let (code, out, error) = kubegc(&line, &server.kubeconfig);
        assert_eq!(code, Some(0), "{error}");
        entries(&out).len()
    };
    let collect = |name: &str| {
        let mut run = Run::start(&server, &flags);
        until("it is ready", || run.is_ready() && run.leads());
        collect_family(&admin, name);
        until("it is recorded", || recorded(name) == 1);
        run.signal(Signal::TERM);
        run.wait();
    };
    collect("first");
    let mut torn = std::fs::File::options().append(true).open(&file).unwrap();
    torn.write_all(br#"{"verb":"delete","resource":"configmaps","name":"to"#).unwrap();
    collect("second");
    assert_eq!((recorded("first"), recorded("second")), (1, 1));
}

/// With `--tail 0` all entries of a server are shown, however many requests that takes, and each entry is complete in a pipe.
#[test]
fn the_whole_journal_of_a_server_is_shown() {
    const ENTRIES: usize = 10_000;
    let data = tempfile::tempdir().unwrap();
    let name = |number: usize| format!("{}-{number}", "a-long-name".repeat(8));
    let lines = (0..ENTRIES).map(|number| {
        let entry = json!({"number": number + 1, "time": "2026-09-21T14:01:00.000000Z", "verb": "delete", "outcome": "applied",
            "resource": "configmaps", "kind": "ConfigMap", "namespace": "shop", "name": name(number), "uid": format!("u-{number}"),
            "verdict": "OwnersAbsent", "message": "every owner is absent"});
        format!("{entry}\n")
    });
    std::fs::write(data.path().join("journal.jsonl"), lines.collect::<String>()).unwrap();
    let flags = ["--data-dir", data.path().to_str().unwrap(), "--workloads=off"];
    let server = Kubegc::start_with("up", flags);
    let names = ask(&server, &["journal", "--tail", "0", "-n", "shop", "-o", "name"]);
    assert_eq!(names.lines().count(), ENTRIES);
    let text = ask(&server, &["journal", "--tail", "0", "-n", "shop", "--no-headers"]);
    assert_eq!(text.lines().filter(|line| line.contains(" configmaps/a-long-name")).count(), ENTRIES);
    assert!(!text.contains('…') && text.contains(&name(ENTRIES - 1)), "in a pipe, nothing is shortened");
}

/// A deletion after which the object remains is only requested; the object counts as collected once, when it is gone.
#[test]
fn what_remains_was_only_requested_to_be_deleted() {
    let server = Kubegc::start_collectors();
    let admin = Admin::of(&server);
    let owner = admin.map("owner", None);
    let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner}]);
    for (name, finalizers) in [("gone", json!([])), ("held", json!(["acme.dev/hold"]))] {
        let metadata = json!({"name": name, "finalizers": finalizers, "ownerReferences": owners});
        admin.create(MAPS, &json!({"metadata": metadata}));
    }
    let collected = || {
        let overview = admin.get("/kubegc/v1/overview").1;
        let of_owners = overview["collected"].as_array().unwrap().iter();
        of_owners.filter_map(|one| one["total"].as_u64()).sum::<u64>()
    };
    let outcome = |name: &str| {
        let object = format!("--object=cm/{name}");
        // While the journal has entries about the other object alone, the command succeeds with a hint.
        let arguments = ["journal", &object, "-n", "default", "--verb=delete", "-o", "json"];
        let (code, found, error) = kubegc(&arguments, &server.kubeconfig);
        assert_eq!(code, Some(0), "{error}");
        entries(&found).first().map_or(Value::Null, |entry| entry["outcome"].clone())
    };
    admin.delete("owner", "Background");
    until("both deletions are in the journal", || {
        outcome("gone") == "applied" && outcome("held") == "requested"
    });
    until("one is collected", || collected() == 1);
    assert!(ask(&server, &["why", "cm/gone"]).contains("It was collected at "));
    assert!(ask(&server, &["why", "cm/held"]).contains("FinalizerHeld"));
    let path = format!("{MAPS}/held");
    assert_eq!(admin.send(Method::PATCH, &path, &json!({"metadata": {"finalizers": null}})).0, 200);
    until("the other one, too", || collected() == 2);
    assert!(ask(&server, &["why", "cm/held"]).contains("It was collected at "));
}

/// A word that no entry uses is reported as the user's mistake, not as an empty journal.
#[test]
fn unknown_words_are_refused_with_those_that_are_known() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("journal");
    std::fs::write(&file, "").unwrap();
    let asked = |flags: &[&str]| {
        let arguments = [&["journal", "--journal", file.to_str().unwrap()], flags].concat();
        let (code, _, error) = kubegc(&arguments, std::path::Path::new("/dev/null"));
        (code, error)
    };
    for (flag, wrong, near, known) in [
        ("--verb", "delte", "delete", "set-owners"),
        ("--outcome", "aplied", "applied", "clocks-disagree"),
        ("--controller", "podgc-controler", "podgc", "node-containers"),
    ] {
        let (code, error) = asked(&[flag, wrong]);
        assert_eq!(code, Some(2), "{error}");
        assert!(error.contains(&format!("'{wrong}'")) && error.contains(&format!("'{near}")), "{error}");
        assert!(error.contains(known), "{error}");
    }
    // Objects have the same notation everywhere: the namespace is a flag.
    let (code, error) = asked(&["--object", "shop/pod/web-1"]);
    assert!(
        code == Some(2) && error.contains("expected TYPE/NAME, such as pod/web-1 with -n shop"),
        "{error}"
    );
    for right in
        [["--verb", "barrier"], ["--controller", "podgc"], ["--controller", "ttl-after-finished-controller"]]
    {
        let (code, error) = asked(&right);
        assert_eq!(code, Some(0), "{right:?}: {error}");
    }
}

/// Resources may be named as in kubectl, and a word that the server does not know is named.
#[test]
fn resources_are_called_as_the_server_calls_them() {
    let server = Kubegc::start("up");
    let admin = Admin::of(&server);
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"]});
    let versions = json!([{"name": "v1", "served": true, "storage": true, "schema": schema}]);
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.acme.dev"},
        "spec": {"group": "acme.dev", "scope": "Namespaced", "names": names, "versions": versions}});
    admin.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition);
    let widgets = "/apis/acme.dev/v1/namespaces/default/widgets";
    until("widgets are served", || admin.get(widgets).0 == 200);
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "no-such-uid"});
    let metadata = json!({"name": "stray", "ownerReferences": [owner]});
    admin.create(widgets, &json!({"apiVersion": "acme.dev/v1", "kind": "Widget", "metadata": metadata}));
    until("it is collected", || admin.get(&format!("{widgets}/stray")).0 == 404);
    for flag in ["--object=wd/stray", "--resource=wd"] {
        let mut said = String::new();
        until("the journal has it", || {
            said = ask(&server, &["journal", "--verb=delete", flag, "-o", "name"]);
            said == "widgets.acme.dev/stray\n"
        });
    }
    // The journal outlives the type.
    admin.send(
        Method::DELETE,
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.acme.dev",
        &Value::Null,
    );
    until("widgets are not served", || admin.get(widgets).0 == 404);
    let why = ask(&server, &["why", "widget.acme.dev/stray"]);
    assert!(why.starts_with("widgets.acme.dev/stray in default\nIt was collected at "), "{why}");
    let (code, _, error) = kubegc(&["why", "widget/never"], &server.kubeconfig);
    assert_eq!(code, Some(2));
    assert!(error.contains("the server has no resource that is called \"widget\""), "{error}");
    let (code, said, error) = kubegc(&["journal", "--resource=podz"], &server.kubeconfig);
    assert_eq!((code, &*said), (Some(0), "Nothing is recorded.\n"));
    assert!(error.starts_with("warning: the server has no resource that is called \"podz\""), "{error}");
}

/// If a leader's pages are only for its own machine, only that machine requests them.
#[test]
fn the_pages_of_another_machine_are_not_looked_for_on_this_one() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string();
    admin.create(
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
        &json!({"metadata": {"name": "kubegc-garbage-collector", "annotations": {"kubegc.io/pages-address": "127.0.0.1:7"}},
            "spec": {"holderIdentity": "elsewhere_1", "leaseDurationSeconds": 600, "renewTime": now}}),
    );
    let (code, _, error) = kubegc(&["journal"], &server.kubeconfig);
    assert_eq!(code, Some(1), "{error}");
    let expected =
        "the collector elsewhere_1 shows its journal only on its own machine, at 127.0.0.1:7; ask there";
    assert!(error.contains(expected), "{error}");
}

/// A regression: objects of a deleted definition disappeared without an entry, and so did failures of the namespace controller; for
/// a kind that was gone, `why` claimed that there is no such resource.
#[test]
fn what_goes_with_a_definition_or_stays_in_a_namespace_is_recorded() {
    let server = Kubegc::start_with("up", ["--ephemeral", "--workloads=off"]);
    let admin = Admin::of(&server);
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    admin.create(
        definitions,
        &json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wg"]},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}}),
    );
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "x"}});
    until("widgets are served", || admin.send(Method::POST, widgets, &widget).0 == 201);
    admin.delete_at(&format!("{definitions}/widgets.example.com"), "Background");
    until("the definition is gone", || admin.get(&format!("{definitions}/widgets.example.com")).0 == 404);
    let entry = entries(&ask(
        &server,
        &["journal", "--verb=delete", "--controller=custom-resource-cleanup", "-o", "json"],
    ));
    assert_eq!(
        entry
            .iter()
            .map(|one| (&one["resource"], &one["name"], &one["outcome"], &one["verdict"]))
            .collect::<Vec<_>>(),
        [(&json!("widgets.example.com"), &json!("x"), &json!("applied"), &json!("DefinitionTerminating"))]
    );
    for called in ["wg/x", "widget/x", "widgets.example.com/x"] {
        let why = ask(&server, &["why", called]);
        assert!(why.starts_with("widgets.example.com/x in default\nIt was collected at "), "{called}: {why}");
        assert!(
            why.contains("CustomResourceDefinition/widgets.example.com: kubegc-admin at "),
            "{called}: {why}"
        );
    }
    let why = ask(&server, &["why", "wg/x"]);
    assert!(why.contains("\n(wg is taken for widgets.example.com by its letters: "), "{why}");
    let (code, _, error) = kubegc(&["why", "wg/y"], &server.kubeconfig);
    assert_eq!(code, Some(2));
    assert!(
        error.contains("no resource that is called \"wg\"")
            && error.contains("the journal has no deletion of it"),
        "{error}"
    );

    admin.create("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}}));
    let policies = "/apis/admissionregistration.k8s.io/v1";
    admin.create(&format!("{policies}/validatingadmissionpolicies"), &json!({"metadata": {"name": "keep"}, "spec": {
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"],
            "resources": ["secrets"]}]},
        "validations": [{"expression": "false", "message": "secrets stay"}]}}));
    admin.create(
        &format!("{policies}/validatingadmissionpolicybindings"),
        &json!({"metadata": {"name": "keep"},
        "spec": {"policyName": "keep", "validationActions": ["Deny"]}}),
    );
    let secret = "/api/v1/namespaces/shop/secrets";
    admin.create(secret, &json!({"metadata": {"name": "s"}}));
    until("the policy refuses", || {
        admin.send(Method::DELETE, &format!("{secret}/s?dryRun=All"), &Value::Null).0 == 422
    });
    admin.delete_at("/api/v1/namespaces/shop", "Background");
    let refused =
        ["journal", "--outcome=refused", "--controller=namespace-controller", "-n", "shop", "-o", "json"];
    until("the refusal is recorded", || !entries(&ask(&server, &refused)).is_empty());
    let entry = entries(&ask(&server, &refused)).remove(0);
    assert_eq!((&entry["resource"], &entry["verb"]), (&json!("secrets"), &json!("delete")), "{entry}");
    assert!(entry["failure"].as_str().unwrap().contains("secrets stay"), "{entry}");
}

/// A regression: the requester was only known for deletions by a collector.
#[test]
fn who_asked_for_a_deletion_is_said() {
    let server = Kubegc::start_with("up", ["--ephemeral", "--workloads=off"]);
    let admin = Admin::of(&server);
    // A finalizer holds this object, which is deleted in the foreground.
    let maps = "/api/v1/namespaces/default/configmaps";
    let held = |name: &str| json!({"metadata": {"name": name, "finalizers": ["example.com/hold"]}});
    admin.create(maps, &held("held"));
    admin.delete_at(&format!("{maps}/held"), "Foreground");
    let why = ask(&server, &["why", "cm/held", "--no-collector"]);
    assert!(why.contains("Deletion asked for by:\n  kubegc-admin at "), "{why}");
    assert!(why.contains("propagationPolicy Foreground"), "{why}");
    // A collector has finished the foreground deletion of this one.
    admin.create(maps, &json!({"metadata": {"name": "owner"}}));
    admin.delete_at(&format!("{maps}/owner"), "Foreground");
    until("it is gone", || admin.get(&format!("{maps}/owner")).0 == 404);
    let why = ask(&server, &["why", "cm/owner"]);
    assert!(why.contains("Deletion asked for by:\n  kubegc-admin at "), "{why}");
    // This one is gone, and no collector deleted it.
    admin.create(maps, &json!({"metadata": {"name": "plain"}}));
    admin.delete_at(&format!("{maps}/plain"), "Background");
    let why = ask(&server, &["why", "cm/plain"]);
    let expected = "configmaps/plain\nIt was deleted, and no collector is known to have done it.\n\nDeletion asked for by:\n  \
                    kubegc-admin at ";
    assert!(why.starts_with(expected), "{why}");
    // For a name that was used again, the last deletion counts.
    let stray = |name: &str| {
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "no-such-uid"});
        json!({"metadata": {"name": name, "ownerReferences": [owner]}})
    };
    admin.create(maps, &stray("twice"));
    until("it is collected", || admin.get(&format!("{maps}/twice")).0 == 404);
    assert!(ask(&server, &["why", "cm/twice"]).contains("It was collected at "));
    admin.create(maps, &json!({"metadata": {"name": "twice"}}));
    admin.delete_at(&format!("{maps}/twice"), "Background");
    let why = ask(&server, &["why", "cm/twice"]);
    assert!(why.contains("It was deleted, and no collector") && why.contains("  kubegc-admin at "), "{why}");
    // The audit log of a server shows it too.
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.log");
    let event = json!({"kind": "Event", "stage": "ResponseComplete", "verb": "delete", "user": {"username": "alice"},
        "objectRef": {"resource": "configmaps", "namespace": "default", "name": "plain"},
        "responseStatus": {"code": 200}, "requestReceivedTimestamp": "2026-09-21T14:01:00Z"});
    std::fs::write(&log, format!("{event}\nnonsense\n")).unwrap();
    let (code, why, error) =
        kubegc(&["why", "cm/plain", "--audit-log", log.to_str().unwrap()], &server.kubeconfig);
    assert_eq!(code, Some(0), "{error}");
    assert!(
        why.contains("  alice at 2026-09-21 14:01:00Z: DELETE of configmaps/plain in default (audit log)\n"),
        "{why}"
    );
    assert!(error.contains("1 line without an Event of audit.k8s.io"), "{error}");
    // Only users who may read the path see it.
    assert!(admin.get("/kubegc/v1/deletions?name=plain").1["items"][0]["user"] == "kubegc-admin");
    assert_eq!(admin.get("/kubegc/v1/deletions").0, 400);
}

/// A regression: a query that no entry matches exited with zero and without output, as if nothing had been done.
#[test]
fn a_question_without_an_answer_has_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("journal");
    let entry = json!({"number": 1, "time": "2026-09-21T14:01:00Z", "verb": "delete", "outcome": "applied",
        "resource": "pods", "kind": "Pod", "namespace": "shop", "name": "web", "uid": "u", "verdict": "OwnersAbsent"});
    std::fs::write(&file, format!("{entry}\n")).unwrap();
    let shown = file.to_str().unwrap();
    let none = folder.path().join("none");
    for (arguments, expected) in [
        (
            &["-n", "nope"][..],
            format!("hint: the journal of {shown} has other entries, and none for these flags\n"),
        ),
        (
            &["--object", "foo"],
            format!(
                "hint: the journal of {shown} has other entries, and none for these flags; --object foo is a UID: an object is \
                 TYPE/NAME\n"
            ),
        ),
        (&["-n", "shop"], String::new()),
        (&[], String::new()),
    ] {
        let all = [&["journal", "--journal", shown][..], arguments].concat();
        let (code, _, error) = kubegc(&all, &none);
        assert_eq!((code, error), (Some(0), expected), "{arguments:?}");
    }
}

#[test]
fn commands_that_lack_a_word_say_which() {
    let folder = tempfile::tempdir().unwrap();
    let none = folder.path().join("none");
    let (code, _, error) = kubegc(&["plan", "deploy/web", "-n", "shop"], &none);
    assert_eq!(code, Some(2));
    assert!(error.contains("did you mean `kubegc plan delete deploy/web -n shop "), "{error}");
    let output = Command::new(env!("CARGO_BIN_EXE_kubegc")).args(["policy", "new"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    for template in ["preview-namespaces", "failed-pods", "config-history"] {
        assert!(error.contains(template), "{error}");
    }
}
