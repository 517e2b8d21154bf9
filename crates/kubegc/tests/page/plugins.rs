//! The plugins for k9s.

use super::*;

/// Replaces `$NAME` by the selection as k9s does: in every position, and without running anything if a name is unknown.
fn substituted(argument: &str, selected: &[(&str, &str)]) -> String {
    let mut text = argument.to_owned();
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '|' | '-');
    let mut names: Vec<String> = argument
        .match_indices('$')
        .map(|(at, _)| argument[at + 1..].chars().take_while(|c| is_part(*c)).collect::<String>())
        .filter(|name| !name.is_empty())
        .collect();
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    for name in names {
        let value = selected.iter().find(|(known, _)| *known == name);
        let (_, value) = value.unwrap_or_else(|| panic!("k9s knows no ${name}: {argument}"));
        text = text.replace(&format!("${name}"), value);
    }
    text
}

/// Runs a program on a terminal on which a user types `y`, and then only empty lines.
const AGREED: &str = "import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
os.write(terminal, b'y\\n\\n')
try:
    while shown := os.read(terminal, 4096):
        os.write(1, shown)
except OSError:
    pass
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))";

#[tokio::test]
async fn the_plugins_for_k9s_run_what_they_say() {
    let file = support::repository().join("deploy/k9s/plugins.yaml");
    let plugins: Value = serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(plugins.as_object().unwrap().keys().collect::<Vec<_>>(), ["plugins"]);
    let server = Kubegc::start("up");
    let client = server.client().await;
    let path = "/api/v1/namespaces/default/configmaps";
    let root = create(&client, path, json!({"metadata": {"name": "root"}})).await;
    let owners =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "root", "uid": root["metadata"]["uid"]}]);
    create(&client, path, json!({"metadata": {"name": "leaf", "ownerReferences": owners}})).await;
    let held = json!({"metadata": {"name": "held", "finalizers": ["acme.dev/hold"]}});
    create(&client, "/api/v1/namespaces", held).await;
    let deleted = ask(&client, Method::DELETE, "/api/v1/namespaces/held", &[], &json!({})).await;
    assert!(deleted.0 < 300, "{deleted:?}");
    let kubeconfig = server.kubeconfig.to_str().unwrap();
    let configuration: Value =
        serde_saphyr::from_str(&std::fs::read_to_string(&server.kubeconfig).unwrap()).unwrap();
    let context = configuration["current-context"].as_str().unwrap();
    // A pager that shows everything, and the binary, are found first.
    let bin = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_kubegc"), bin.path().join("kubegc")).unwrap();
    std::os::unix::fs::symlink("/bin/cat", bin.path().join("cat")).unwrap();
    let pager = bin.path().join("less");
    std::fs::write(&pager, "#!/bin/sh\nexec cat\n").unwrap();
    std::fs::set_permissions(&pager, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let object =
        [("RESOURCE_NAME", "configmaps"), ("RESOURCE_GROUP", ""), ("NAME", "root"), ("NAMESPACE", "default")];
    let namespace =
        [("RESOURCE_NAME", "namespaces"), ("RESOURCE_GROUP", ""), ("NAME", "held"), ("NAMESPACE", "-")];
    let expected = [
        ("kubegc-why", "F5", object, "It will not be collected"),
        ("kubegc-tree", "F6", object, "└─ ConfigMap/leaf"),
        ("kubegc-plan", "F7", object, "2 objects: 2 ConfigMaps"),
        ("kubegc-why", "F5", namespace, "acme.dev/hold"),
        ("kubegc-stuck", "F9", namespace, "Namespace/held"),
        ("kubegc-delete", "F8", object, "configmaps/root is being deleted"),
    ];
    let names: std::collections::BTreeSet<&str> = expected.iter().map(|(name, ..)| *name).collect();
    let known = plugins["plugins"].as_object().unwrap();
    assert_eq!(known.keys().map(String::as_str).collect::<std::collections::BTreeSet<_>>(), names);
    for (name, key, selected, answer) in expected {
        let plugin = known[name].as_object().unwrap();
        // k9s refuses the whole file if one of these is missing.
        for field in ["shortCut", "description", "scopes", "command"] {
            assert!(plugin.contains_key(field), "{name} has no {field}");
        }
        for (field, value) in plugin {
            let fits = match field.as_str() {
                "shortCut" => value == key,
                "description" | "command" => value.is_string(),
                "scopes" | "args" => value.as_array().unwrap().iter().all(Value::is_string),
                "background" => value == false,
                "confirm" | "dangerous" => value == true && name == "kubegc-delete",
                _ => false,
            };
            assert!(fits, "{name}: {field}: {value}");
        }
        let mut selected = selected.to_vec();
        selected.extend([("CONTEXT", context), ("KUBECONFIG", kubeconfig)]);
        let arguments = plugin["args"].as_array().unwrap().iter();
        // k9s passes its terminal to the commands that it runs.
        let output = std::process::Command::new("/usr/bin/env")
            .args(["python3", "-c", AGREED])
            .arg(format!("/bin/{}", plugin["command"].as_str().unwrap()))
            .args(arguments.map(|argument| substituted(argument.as_str().unwrap(), &selected)))
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", bin.path().display()))
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(answer), "{name} {selected:?}: {output:?}");
    }
}
