//! Behaviour of commands in a user's shell: completion, an end with the reader, a timely end, and lines that fit.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::Stdio;

use super::*;

fn binary(server: &Kubegc) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubegc"));
    command.env("KUBECONFIG", &server.kubeconfig).stdin(Stdio::null());
    command
}

/// Returns bash's completions for a line that ends with the cursor.
fn completed(server: &Kubegc, line: &str) -> Vec<String> {
    let script = "source <($KUBEGC completion bash); COMP_LINE=$LINE; COMP_POINT=${#COMP_LINE}
        compopt() { echo FILES; }; _kubegc; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let binary = env!("CARGO_BIN_EXE_kubegc");
    let output = Command::new("bash")
        .args(["-c", script])
        .env("KUBEGC", binary)
        .env("LINE", line.replacen("kubegc", binary, 1))
        .env("KUBECONFIG", &server.kubeconfig)
        .output()
        .unwrap();
    assert!(output.stderr.is_empty(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_flags_and_names() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    admin.map("shop", None);
    admin.map("shelf", None);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "a:b:c"}});
    admin.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role);
    for (line, expected) in [
        ("kubegc tr", &["tree"][..]),
        ("kubegc plan ", &["delete"]),
        ("kubegc tree --own", &["--owners"]),
        ("kubegc tree configm", &["configmaps"]),
        ("kubegc tree cm/sh", &["cm/shelf", "cm/shop"]),
        ("kubegc tree --owners -n default cm sho", &["shop"]),
        ("kubegc why -n kube-pu", &["kube-public"]),
        ("kubegc plan delete --cascade=b", &["background"]),
        ("kubegc why clusterrole/a:b:", &["c"]),
        ("kubegc -n default tree cm/sho", &["cm/shop"]),
        ("kubegc run --controllers garb", &["garbage-collector-controller"]),
        ("kubegc tree -n nowhere cm/", &[]),
        ("kubegc stuck --kubeconfig ", &["FILES"]),
    ] {
        assert_eq!(completed(&server, line), expected, "{line}");
    }
}

#[test]
fn an_answer_that_is_repeated_ends_with_its_reader() {
    let server = Kubegc::start("apiserver");
    let mut child = binary(&server)
        .args(["stuck", "--watch"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "Nothing is stuck.\n");
    drop(reader);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(1), ""));
}

#[test]
fn a_server_that_does_not_answer_is_given_up_in_time() {
    // Connections to it are never accepted, and never answered.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let text = format!(
        "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
         clusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}], users: [{{name: u, user: {{}}}}]}}"
    );
    std::fs::write(&kubeconfig, text).unwrap();
    let begun = Instant::now();
    let (code, _, error) = kubegc(&["stuck", "--request-timeout", "2s"], &kubeconfig);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.starts_with(&format!("error: cannot reach http://{address}/: ")), "{error}");
    // The default would be half a minute.
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn lines_fit_a_terminal() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let finalizers: Vec<String> =
        (0..6).map(|number| format!("finalizer-{number}.example.com/hold")).collect();
    let held = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held", "finalizers": finalizers}});
    admin.create(MAPS, &held);
    let tree = ["tree", "cm/held"];
    for columns in ["80", "160"] {
        let mut command = screens::on_a_terminal(columns);
        let output = command.args(tree).env("KUBECONFIG", &server.kubeconfig).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap().replace('\r', "");
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(output.status.success() && widest <= columns.parse().unwrap(), "{widest}: {text}");
        assert!(finalizers.iter().all(|finalizer| text.contains(finalizer)), "{text}");
    }
    let piped = ask(&server, &tree);
    assert_eq!(piped.lines().count(), 2, "{piped}");
}

#[test]
fn scopes_narrow_the_answers() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let other = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}});
    admin.create("/api/v1/namespaces", &other);
    let map = |namespace: &str, name: &str, metadata: Value| {
        let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        object["metadata"]["name"] = name.into();
        admin.create(&format!("/api/v1/namespaces/{namespace}/configmaps"), &object);
        object
    };
    let held = map("default", "held", json!({"finalizers": ["acme.dev/a"], "labels": {"app": "web"}}));
    map("other", "far", json!({"finalizers": ["acme.dev/b"]}));
    map("default", "idle", json!({"labels": {"app": "web"}}));
    map("default", "lazy", json!({}));
    for (namespace, name) in [("default", "held"), ("other", "far")] {
        admin.send(Method::DELETE, &format!("/api/v1/namespaces/{namespace}/configmaps/{name}"), &json!({}));
    }
    let file = server.folder.path().join("held.yaml");
    std::fs::write(&file, held.to_string()).unwrap();
    let file = file.to_str().unwrap();
    let empty = server.folder.path().join("journal");
    std::fs::write(&empty, "").unwrap();
    let empty = empty.to_str().unwrap();
    let policy = server.folder.path().join("policy.yaml");
    let text = "apiVersion: kubegc.io/v1alpha1\nkind: RetentionPolicy\nmetadata: {name: old}\n\
                spec: {target: {apiVersion: v1, kind: ConfigMap}, selector: {matchLabels: {app: web}}, maxAge: 7d}\n";
    std::fs::write(&policy, text).unwrap();
    let stuck_ids = "jsonpath={range .items[?(@.check=='stuck')]}{.id}{'\\n'}{end}";
    for (line, expected) in [
        (&["stuck", "-o", "name"][..], "configmaps/held\nconfigmaps/far\n"),
        (&["stuck", "-o", "name", "-n", "other"], "configmaps/far\n"),
        (&["stuck", "-o", "name", "-n", "other", "-A"], "configmaps/held\nconfigmaps/far\n"),
        (&["stuck", "--for", "1w2d"], "Nothing is stuck.\n"),
        (&["journal", "--journal", empty, "--since", "1d", "-n", "other", "-A"], "Nothing is recorded.\n"),
        (&["stuck", "-o", "name", "-l", "app=web"], "configmaps/held\n"),
        (&["stuck", "-o", "name", "-f", file], "configmaps/held\n"),
        (&["garbage", "-o", "name"], "configmaps/idle\nconfigmaps/lazy\n"),
        (&["garbage", "-o", "name", "-l", "app=web"], "configmaps/idle\n"),
        (&["garbage", "-n", "other"], "No unused objects found.\n"),
        (
            &["doctor", "--fail-on", "never", "-o", stuck_ids],
            "stuck/FinalizerHeld acme.dev/a\nstuck/FinalizerHeld acme.dev/b\n",
        ),
        (
            &["doctor", "--fail-on", "never", "-o", stuck_ids, "-n", "other"],
            "stuck/FinalizerHeld acme.dev/b\n",
        ),
        (
            &["policy", "check", "-o", "name", "-f", policy.to_str().unwrap()],
            "retentionpolicies.kubegc.io/old\n",
        ),
    ] {
        assert_eq!(
            kubegc(line, &server.kubeconfig),
            (Some(0), expected.to_owned(), String::new()),
            "{line:?}"
        );
    }
    for command in ["stuck", "garbage", "doctor"] {
        let (code, _, error) = kubegc(&[command, "-n", "nowhere"], &server.kubeconfig);
        assert_eq!((code, &*error), (Some(1), "error: namespace \"nowhere\" not found\n"), "{command}");
    }
}

/// If everything that was named is wrong, nothing is shown except what is wrong.
#[test]
fn what_is_wrong_is_said_and_nothing_else() {
    let server = Kubegc::start("up");
    Admin::of(&server).map("there", None);
    let file = server.folder.path().join("bad.yaml");
    std::fs::write(&file, "a: b\n").unwrap();
    let file = file.to_str().unwrap();
    let no_name = "error: a manifest of kind \"\" has no metadata.name\n";
    for (line, code, expected) in [
        (&["plan", "delete", "-f", file][..], 2, no_name),
        (&["tree", "-f", file], 2, no_name),
        (&["why", "-f", file], 2, no_name),
        (&["why", "node", "-l", "a=b"], 1, "error: no node with labels a=b in the cluster\n"),
        (&["why", "cm", "-l", "a=b"], 1, "error: no cm with labels a=b in namespace \"default\"\n"),
        (
            &["delete", "cm/there", "--dry-run=client"],
            2,
            "error: delete --dry-run: `kubegc plan delete` with the same objects shows what would be deleted\n",
        ),
    ] {
        let expected = (Some(code), String::new(), expected.to_owned());
        assert_eq!(kubegc(line, &server.kubeconfig), expected, "{line:?}");
    }
    // An empty namespace means that of the context.
    let why = ask(&server, &["why", "cm/there", "-n", ""]);
    assert!(why.starts_with("ConfigMap/there in default\n"), "{why}");
}

/// For an object that a finalizer holds, the answer names the missing owner, and the collector that deleted the object.
#[test]
fn why_says_which_collector_asked_for_a_deletion() {
    let server = Kubegc::start("up");
    let admin = Admin::of(&server);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    admin.create("/api/v1/namespaces", &namespace);
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "no-such-uid"});
    let metadata = json!({"name": "stray", "finalizers": ["acme.dev/hold"], "ownerReferences": [owner]});
    let stray = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    admin.create("/api/v1/namespaces/shop/configmaps", &stray);
    for arguments in
        [&["why", "cm/stray", "-n", "shop"][..], &["why", "cm/stray", "-n", "shop", "--no-collector"]]
    {
        let mut said = String::new();
        until("the answer says who deleted it", || {
            said = ask(&server, arguments);
            said.contains("Deletion asked for by:\n  garbage-collector-controller at ")
        });
        assert!(said.contains(": OwnersAbsent, every owner is absent (journal)\n"), "{said}");
        assert!(said.contains("Owners:\n  ConfigMap/nobody (absent)\n"), "{said}");
    }
    // A plan no longer depends on whether that owner exists.
    for more in [&[][..], &["--no-collector"]] {
        let plan = [&["plan", "delete", "ns/shop", "-o", "jsonpath={.assumedLiving}"], more].concat();
        assert_eq!(kubegc(&plan, &server.kubeconfig), (Some(3), "[]".to_owned(), String::new()));
    }
}

#[test]
fn a_deletion_that_gets_stuck_names_what_is_left() {
    let server = Kubegc::start("apiserver");
    let metadata = json!({"name": "held", "finalizers": ["acme.dev/hold"]});
    let held = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    Admin::of(&server).create(MAPS, &held);
    let (code, said, _) = kubegc(&["delete", "cm/held", "--yes"], &server.kubeconfig);
    let ends = "\nStuck: ConfigMap/held; `kubegc stuck` explains why.\n";
    assert!(code == Some(3) && said.ends_with(ends), "{code:?} {said}");
}

/// A missing object among several is an error, but the others are still deleted, as by kubectl.
#[test]
fn a_deletion_of_several_objects_passes_over_what_is_missing() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    for name in ["a", "b", "c"] {
        admin.map(name, None);
    }
    let manifest =
        |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    let list = json!({"kind": "List", "items": [manifest("Gadget", "g"), manifest("ConfigMap", "c")]});
    let file = server.folder.path().join("list.json");
    std::fs::write(&file, list.to_string()).unwrap();
    let not_found = "error: configmaps \"nothing\" not found in namespace \"default\"\n";
    let not_served = "error: the server does not serve Gadget of v1\n";
    for (line, deleted, expected) in [
        (&["delete", "cm", "nothing", "a", "b", "--yes"][..], &["a", "b"][..], not_found),
        (&["delete", "cm", "nothing", "--yes"], &[], not_found),
        (&["delete", "--yes", "-f", file.to_str().unwrap()], &["c"], not_served),
    ] {
        let (code, said, error) = kubegc(line, &server.kubeconfig);
        assert_eq!((code, &*error), (Some(1), expected), "{line:?}: {said}");
        assert!(deleted.iter().all(|name| !admin.exists(name)), "{said}");
        assert_eq!(said.is_empty(), deleted.is_empty(), "{said}");
    }
}

/// Types a line on a terminal of its own, and passes on the output.
const ANSWERED: &str = "import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
os.write(terminal, sys.argv[1].encode() + b'\\n')
try:
    while shown := os.read(terminal, 4096):
        os.write(1, shown)
except OSError:
    pass
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))";

/// The deletion of one object needs the same confirmation as that of many.
#[test]
fn a_deletion_is_confirmed_on_a_terminal_and_needs_a_flag_elsewhere() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    admin.map("one", None);
    let (code, said, error) = kubegc(&["delete", "cm/one"], &server.kubeconfig);
    assert_eq!(code, Some(2), "{said}{error}");
    let is_shown = said.contains("ConfigMap/one") && error.contains("use --yes");
    assert!(is_shown && admin.exists("one"), "the plan is shown: {said}{error}");
    let answer = |line: &str| {
        let mut command = Command::new("python3");
        command.args(["-c", ANSWERED, line, env!("CARGO_BIN_EXE_kubegc"), "delete", "cm/one"]);
        let output = command.env("KUBECONFIG", &server.kubeconfig).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    for no in ["n", "", "one"] {
        let (code, shown) = answer(no);
        assert!(code == Some(1) && shown.contains("Nothing was deleted."), "{no:?}: {code:?} {shown}");
        assert!(admin.exists("one"), "{no:?}: {shown}");
    }
    let (code, shown) = answer("y");
    assert!(code == Some(0) && !admin.exists("one"), "{code:?} {shown}");
    admin.map("one", None);
    let (code, said, error) = kubegc(&["-n", "default", "delete", "cm/one", "-y"], &server.kubeconfig);
    assert!(code == Some(0) && !admin.exists("one"), "{said}{error}");
}

/// Creates a ConfigMap that its finalizer holds, an owner with a dependent, and a Secret that nothing uses.
fn furnish(server: &Kubegc) {
    let admin = Admin::of(server);
    let held = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "held", "finalizers": ["acme.dev/hold"]}});
    admin.create(MAPS, &held);
    admin.delete("held", "Background");
    let owner = admin.map("owner", None);
    admin.map("leaf", Some(("owner", &owner)));
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "unused"}});
    admin.create("/api/v1/namespaces/default/secrets", &secret);
}

/// Every command with a table can omit the heading line, with otherwise equal output.
#[test]
fn tables_have_no_headings_where_none_are_wanted() {
    for server in [Kubegc::start("apiserver"), Kubegc::start_collectors()] {
        furnish(&server);
        for (command, heading) in [
            (&["stuck"][..], "AGE"),
            (&["stuck", "-o", "wide"], "AGE"),
            (&["tree", "cm/owner"], "OBJECT"),
            (&["plan", "delete", "cm/owner"], "FATE"),
            (&["garbage"], "FINDING"),
            (&["doctor", "--fail-on", "never"], "CHECK"),
            (&["stuck", "-o", "custom-columns=CODE:.code"], "CODE"),
        ] {
            let (_, with, error) = kubegc(command, &server.kubeconfig);
            let (_, without, _) = kubegc(&[command, &["--no-headers"]].concat(), &server.kubeconfig);
            let is_heading = |line: &&str| line.split_whitespace().next() == Some(heading);
            assert_eq!(with.lines().filter(is_heading).count(), 1, "{command:?}: {with}{error}");
            assert_eq!(without.lines().filter(is_heading).count(), 0, "{command:?}: {without}");
            assert_eq!(without.lines().count() + 1, with.lines().count(), "{command:?}: {without}");
        }
    }
}

/// `-o wide` has more columns, and `-o name` prints arguments for other commands, in every command that has it.
#[test]
fn wide_is_wider_and_names_can_be_used_again() {
    let server = Kubegc::start("apiserver");
    furnish(&server);
    for command in [&["stuck"][..], &["garbage"], &["doctor", "--fail-on", "never"]] {
        let widest = |form: &str| {
            let (_, out, error) = kubegc(&[command, &["-o", form]].concat(), &server.kubeconfig);
            let headings = out.lines().next().unwrap_or_else(|| panic!("{command:?}: {error}"));
            headings.split("  ").filter(|heading| !heading.is_empty()).count()
        };
        assert!(widest("wide") > widest("text"), "{command:?}");
    }
    for (command, expected) in [
        (&["stuck"][..], "configmaps/held"),
        (&["why", "cm/held"], "configmaps/held"),
        (&["tree", "cm/owner"], "configmaps/leaf"),
        (&["plan", "delete", "cm/owner"], "configmaps/leaf"),
        (&["garbage"], "secrets/unused"),
    ] {
        let (_, out, error) = kubegc(&[command, &["-o", "name"]].concat(), &server.kubeconfig);
        assert!(out.lines().any(|line| line == expected), "{command:?}: {out}{error}");
        for line in out.lines() {
            let (resource, name) = line.split_once('/').unwrap_or_else(|| panic!("{command:?}: {line}"));
            let is_resource =
                resource.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c));
            assert!(is_resource && !name.contains([' ', '/']), "{command:?}: {line}");
        }
    }
}
