//! Flags of queries: the amount of output, the time range, and the source files.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use super::*;

/// Creates an owner with 25 dependents of one kind, one of which has a dependent.
fn family(admin: &Admin) {
    let owner = admin.map("owner", None);
    let mut first = String::new();
    for number in 0..25 {
        let own = admin.map(&format!("part-{number}"), Some(("owner", &owner)));
        if number == 0 {
            first = own;
        }
    }
    admin.map("below", Some(("part-0", &first)));
}

#[test]
fn depth_and_full_say_how_much_is_shown() {
    let server = Kubegc::start("apiserver");
    family(&Admin::of(&server));
    let shown = ask(&server, &["tree", "cm/owner", "--depth", "1"]);
    assert!(shown.contains("owner") && !shown.contains("ConfigMap/below"), "{shown}");
    for command in [&["tree", "cm/owner"][..], &["plan", "delete", "cm/owner"]] {
        let folded = ask(&server, command);
        let whole = ask(&server, &[command, &["--full"]].concat());
        assert!(
            !folded.contains("ConfigMap/part-24") && whole.contains("ConfigMap/part-24"),
            "{folded}\n{whole}"
        );
    }
}

#[test]
fn objects_are_named_in_files_by_the_long_flag_too() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    admin.map("a", None);
    let file = server.folder.path().join("a.yaml");
    std::fs::write(&file, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n").unwrap();
    let file = file.to_str().unwrap();
    for command in [&["tree"][..], &["why"], &["plan", "delete"]] {
        let shown = ask(&server, &[command, &["--filename", file, "-o", "name"]].concat());
        assert_eq!(shown, "configmaps/a\n", "{command:?}");
    }
}

/// Returns the times of an answer in JSON.
fn times(text: &str) -> Vec<String> {
    let answer: Value = serde_json::from_str(text).unwrap();
    let items = answer["items"].as_array().unwrap().iter();
    items.map(|entry| entry["time"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_journal_is_cut_by_number_and_time_and_followed() {
    let server = Kubegc::start_collectors();
    let admin = Admin::of(&server);
    let collect = |name: &str| {
        let owner = admin.map(name, None);
        let leaf = format!("{name}-leaf");
        admin.map(&leaf, Some((name, &owner)));
        admin.delete(name, "Background");
        until("it is collected", || !admin.exists(&leaf));
    };
    let all = ["journal", "--resource=configmaps", "--outcome=applied", "-o", "json"];
    let count = || times(&ask(&server, &all)).len();
    collect("first");
    collect("second");
    until("both are in the journal", || count() == 2);
    let (_, newest, warning) = kubegc(&[&all[..], &["--tail", "1"]].concat(), &server.kubeconfig);
    assert_eq!(warning, "warning: 1 older entries are left out; --tail 0 shows all\n");
    assert!(newest.contains("second-leaf") && !newest.contains("first-leaf"), "{newest}");
    let entries = times(&ask(&server, &all));
    let since = ask(&server, &[&all[..], &["--since-time", entries.iter().max().unwrap()]].concat());
    assert!(since.contains("second-leaf") && !since.contains("first-leaf"), "{since}");
    let (code, _, error) = kubegc(&["journal", "--since-time", "yesterday"], &server.kubeconfig);
    assert!(code == Some(2) && error.contains("--since-time: "), "{error}");

    // Later entries arrive by themselves.
    let mut child = Command::new(env!("CARGO_BIN_EXE_kubegc"))
        .args([
            "journal",
            "--follow",
            "--tail",
            "1",
            "--resource=configmaps",
            "--outcome=applied",
            "-o",
            "json",
        ])
        .env("KUBECONFIG", &server.kubeconfig)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.next().unwrap();
    assert!(first.contains("second-leaf"), "{first}");
    collect("third");
    let next = lines.next().unwrap();
    assert!(next.contains("third-leaf"), "{next}");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Rules about volumes, definitions, namespaces and kinds: the requested rule is written, and the server enforces it.
#[test]
fn each_rule_of_protection_is_written_for_its_flag() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    admin.create("/api/v1/namespaces", &json!({"metadata": {"name": "prod"}}));
    let secrets = "/api/v1/namespaces/prod/secrets";
    admin.create(secrets, &json!({"metadata": {"name": "key"}}));
    let resource = "validatingadmissionpolicies.admissionregistration.k8s.io/";
    let mut known = std::collections::BTreeSet::new();
    for flags in [
        &["--marked"][..],
        &["--volumes"],
        &["--definitions", "--namespaces"],
        &["--kinds", "secrets", "--in", "prod", "--name", "keys"],
    ] {
        let line = [&["protect"][..], flags, &["-o", "name"]].concat();
        let (code, out, error) = kubegc(&line, &server.kubeconfig);
        assert_eq!(code, Some(0), "{flags:?}: {error}");
        let names: Vec<&str> = out.lines().collect();
        assert!(!names.is_empty() && names.iter().all(|name| name.starts_with(resource)), "{flags:?}: {out}");
        assert!(
            names.iter().all(|name| known.insert((*name).to_owned())),
            "{flags:?} writes a rule of its own: {out}"
        );
    }
    // A namespace that contains objects, with their number, and a kind in its namespace.
    let (code, out, error) =
        kubegc(&["protect", "--definitions", "--namespaces", "--yes"], &server.kubeconfig);
    assert_eq!(code, Some(0), "{out}{error}");
    let kinds = ["protect", "--kinds", "secrets", "--in", "prod", "--name", "keys", "--yes"];
    let (code, out, error) = kubegc(&kinds, &server.kubeconfig);
    assert_eq!(code, Some(0), "{out}{error}");
    let refused =
        |path: &str| admin.send(Method::DELETE, &format!("{path}?dryRun=All"), &Value::Null).0 >= 400;
    until("the namespace is protected", || refused("/api/v1/namespaces/prod"));
    until("the secret is protected", || refused(&format!("{secrets}/key")));
    let elsewhere = "/api/v1/namespaces/default/secrets";
    admin.create(elsewhere, &json!({"metadata": {"name": "key"}}));
    assert!(!refused(&format!("{elsewhere}/key")), "only in prod");
}
