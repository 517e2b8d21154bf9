//! `kubegc protect` and `kubegc release`, as an operator uses them: the API server refuses every client, the collectors do not work
//! around it, and a finalizer that was removed by hand is shown later.

use super::*;
use crate::collectors::Up;

/// Runs kubegc on this server; returns its exit code and its whole output.
fn kubegc(server: &Kubegc, arguments: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_kubegc"))
        .args(arguments)
        .arg("--kubeconfig")
        .arg(&server.kubeconfig)
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    (output.status.code().unwrap(), text)
}

fn map(name: &str, metadata: &Value) -> Value {
    let mut map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    map["metadata"]["name"] = name.into();
    map
}

#[test]
fn collectors_do_not_delete_what_is_protected() {
    let Some(up) = Up::start(&[]) else { return };
    let server = &up.server;
    up.apply(&map("owner", &json!({})));
    let uid = up.field("cm/owner", ".metadata.uid");
    let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}]);
    up.apply(&map("kept", &json!({"ownerReferences": owners})));

    let (code, text) = kubegc(server, &["protect", "cm/kept", "--reason", "the only copy"]);
    assert!(code == 0 && text.contains("the rule kubegc-protect is not in place"), "{code}: {text}");
    let (code, text) = kubegc(server, &["protect", "--marked", "--yes"]);
    assert_eq!(code, 0, "{text}");
    let refused = || {
        let outcome = super::run(server, &["delete", "cm/kept", "--dry-run=server"], "");
        !outcome.success && outcome.err.contains("protected by kubegc.io/protect: the only copy")
    };
    up.until("the refusal of kubectl", refused);
    let (code, text) = kubegc(server, &["plan", "delete", "cm/kept"]);
    assert!(code == 3 && text.contains("the only copy"), "{code}: {text}");
    let (code, text) = kubegc(server, &["doctor", "--fail-on", "never"]);
    assert!(code == 0 && text.contains("enforced: kubegc-protect"), "{code}: {text}");

    // The collector tries, and is refused like everybody else.
    up.run(&["delete", "cm/owner"]);
    let journal = || kubegc(server, &["journal", "--outcome", "protected"]).1;
    up.until("an entry of the journal", || journal().contains("kept"));
    assert!(up.exists("cm/kept"));
    let (_, text) = kubegc(server, &["why", "cm/kept"]);
    assert!(text.contains("kubegc.io/protect: the only copy"), "{text}");

    let (code, text) = kubegc(server, &["protect", "cm/kept", "--remove"]);
    assert!(code == 0 && text.contains("no longer protected"), "{code}: {text}");
    up.until_gone("cm/kept");
}

#[test]
fn a_finalizer_is_removed_by_hand_and_shown_later() {
    let Some(up) = Up::start(&[]) else { return };
    let server = &up.server;
    up.apply(&map("held", &json!({"finalizers": ["widgets.acme.dev/hold"]})));
    let (code, text) = kubegc(server, &["release", "cm/held", "--yes"]);
    assert!(code == 1 && text.contains("is not being deleted"), "{code}: {text}");
    up.run(&["delete", "cm/held", "--wait=false"]);

    let (code, text) = kubegc(server, &["release", "cm/held"]);
    assert!(code == 2 && text.contains("use --yes, or run it on a terminal"), "{code}: {text}");
    let (code, text) = kubegc(server, &["release", "cm/held", "--dry-run"]);
    assert!(
        code == 0 && text.contains("would be removed") && text.contains("ConfigMap/held is gone at once"),
        "{text}"
    );
    assert!(up.exists("cm/held"));

    // A running controller should do this.
    let operator = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "widgets-operator"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}}, "replicas": 1, "template": {"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    up.apply(&operator);
    up.status("deployment/widgets-operator", &json!({"replicas": 1, "readyReplicas": 1}));
    let (code, text) = kubegc(server, &["release", "cm/held", "--yes"]);
    assert!(
        code == 1 && text.contains("widgets-operator (1 of 1 ready)") && text.contains("--force"),
        "{text}"
    );
    up.run(&["scale", "deployment/widgets-operator", "--replicas=0"]);
    up.status("deployment/widgets-operator", &json!({"replicas": 0, "readyReplicas": 0}));

    let journal = server.folder.path().join("journal");
    let file = journal.to_str().unwrap();
    let (code, text) = kubegc(server, &["release", "cm/held", "--yes", "--journal", file]);
    assert!(code == 0 && text.contains("(scaled to 0)"), "{code}: {text}");
    up.until_gone("cm/held");
    let (code, text) = kubegc(server, &["why", "cm/held"]);
    assert!(code == 0 && text.contains("removed the finalizer widgets.acme.dev/hold at"), "{code}: {text}");
    let (_, text) = kubegc(server, &["journal", "--journal", file]);
    assert!(text.contains("remove-finalizer"), "{text}");
}

/// A command printed by `stuck` removes the finalizer of the object for which it was printed, but not of a new object with the same
/// name.
#[test]
fn printed_commands_are_about_the_object_that_was_seen() {
    let Some(up) = Up::start(&[]) else { return };
    let server = &up.server;
    let delete_held = || {
        up.apply(&map("held", &json!({"finalizers": ["widgets.acme.dev/hold"]})));
        up.run(&["delete", "cm/held", "--wait=false"]);
    };
    let printed = || {
        let (code, text) = kubegc(server, &["stuck", "-n", "default", "--for", "0s", "-o", "json"]);
        let document: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{code} {error}: {text}"));
        document["items"][0]["force"]["command"].as_str().unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    let paste = |command: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).env("KUBECONFIG", &server.kubeconfig);
        shell.output().unwrap().status.success()
    };
    delete_held();
    let old = printed();
    assert!(old.starts_with("kubectl -n default patch"), "{old}");
    up.run(&[
        "patch",
        "cm/held",
        "--type=json",
        "-p",
        r#"[{"op": "remove", "path": "/metadata/finalizers"}]"#,
    ]);
    up.until_gone("cm/held");
    delete_held();
    assert!(!paste(&old), "it was printed for another object");
    assert_eq!(up.field("cm/held", ".metadata.finalizers[0]"), "widgets.acme.dev/hold");
    assert!(paste(&printed()));
    up.until_gone("cm/held");
}
