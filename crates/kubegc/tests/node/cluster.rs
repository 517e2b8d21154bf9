//! The agent with a cluster: the pods of this node, and the permissions of the shipped manifest.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::fake::{Fake, container, image, image_id, sandbox};
use crate::{ALL, EXITED, said, support};

/// Returns a server with the permissions of `deploy/node/daemonset.yaml` for the agent's account, and a configuration with that
/// account's token.
pub(super) fn cluster() -> Option<(support::Kubegc, String)> {
    if !Command::new("kubectl")
        .arg("version")
        .arg("--client")
        .output()
        .is_ok_and(|output| output.status.success())
    {
        assert!(std::env::var_os("CI").is_none(), "kubectl is not on PATH, and CI must have it");
        eprintln!("SKIPPED: kubectl is not on PATH");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens.csv");
    let account = "agent-token,system:serviceaccount:kubegc:kubegc-node,1,\"system:serviceaccounts,system:authenticated\"\n";
    std::fs::write(&tokens, account).unwrap();
    let arguments = ["--ephemeral", "--token-auth-file", tokens.to_str().unwrap()];
    let server = support::Kubegc::start_with("apiserver", arguments);
    let manifest = support::repository().join("deploy/node/daemonset.yaml");
    kubectl(&server, &["apply", "--validate=false", "-f", manifest.to_str().unwrap()], "");
    let kubeconfig = configuration(&server, "agent-token");
    Some((server, kubeconfig))
}

/// Returns a configuration with this token.
fn configuration(server: &support::Kubegc, token: &str) -> String {
    let text = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server.url, "certificate-authority": server.ca}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": token}}],
    });
    let path = server.folder.path().join(format!("{token}.kubeconfig"));
    std::fs::write(&path, text.to_string()).unwrap();
    path.display().to_string()
}

pub(super) fn kubectl(server: &support::Kubegc, arguments: &[&str], input: &str) -> String {
    let mut command = Command::new("kubectl");
    command.arg("--kubeconfig").arg(&server.kubeconfig).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "kubectl {arguments:?}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// T28, and the permissions in the manifest: they suffice to know pods and to write Events of the Node, and for nothing else.
#[test]
fn a_cluster_says_what_must_stay_and_takes_events() {
    let Some((server, kubeconfig)) = cluster() else { return };
    let pod = |name: &str, namespace: &str, node: &str, image: &str| {
        let pod = serde_json::json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": image}]},
        });
        kubectl(&server, &["create", "--validate=false", "-f", "-"], &pod.to_string());
    };
    kubectl(&server, &["create", "namespace", "prod"], "");
    pod("waiting", "default", "node-1", "registry.example/image-2:v1");
    pod("elsewhere", "default", "node-2", "registry.example/image-3:v1");
    pod("kept", "prod", "node-2", "registry.example/image-4:v1");
    let fake = Fake::start();
    std::fs::create_dir_all(fake.folder().join("logs")).unwrap();
    fake.state().images = (1..=4).map(|n| image(n, n)).collect();
    let common = ["--minimum-image-ttl-duration=0s", "--node-name", "node-1", "--protect-namespace", "prod"];

    // Without a server, or with one whose credentials are refused, the images to keep are unknown, so all are kept.
    let nowhere = configuration(&server, "unknown-token");
    let (exit, text) = said(with_cluster(&fake, &nowhere).args(ALL).args(common));
    assert_eq!((exit, fake.state().images.len()), (Some(1), 4), "{text}");
    assert!(text.contains("error: the images of --protect-namespace are not known yet"), "{text}");
    assert!(text.contains("it is not known which pods exist, so only limits apply"), "{text}");

    let (exit, text) = said(with_cluster(&fake, &kubeconfig).args(ALL).args(common));
    assert_eq!(exit, Some(1), "two images cannot go, so the threshold is not reached: {text}");
    let left: Vec<String> = fake.state().images.iter().map(|one| one.id.clone()).collect();
    assert_eq!(left, [image_id(2), image_id(4)], "{text}");

    let events = kubectl(&server, &["get", "events", "--namespace", "default", "-o", "json"], "");
    let events: serde_json::Value = serde_json::from_str(&events).unwrap();
    let event = &events["items"][0];
    assert_eq!(events["items"].as_array().unwrap().len(), 1, "{events}");
    assert_eq!(
        event["involvedObject"],
        serde_json::json!({"apiVersion": "v1", "kind": "Node", "name": "node-1"})
    );
    assert_eq!(
        (&event["reason"], &event["type"], &event["count"]),
        (&"FreeDiskSpaceFailed".into(), &"Warning".into(), &1.into())
    );
    let message = event["message"].as_str().unwrap();
    assert!(
        message.contains("Largest remaining images: registry.example/image-4:v1 (4 B, in use)"),
        "{message}"
    );

    assert_rights(
        &kubeconfig,
        &[
            (&["list", "pods", "--all-namespaces"][..], "yes"),
            (&["create", "events", "--namespace", "default"], "yes"),
            (&["create", "events", "--namespace", "prod"], "no"),
            (&["delete", "pods", "--namespace", "default"], "no"),
            (&["get", "secrets", "--namespace", "default"], "no"),
            (&["patch", "nodes"], "no"),
        ],
    );
}

/// Checks with this kubeconfig which requests are allowed.
pub(super) fn assert_rights(kubeconfig: &str, rights: &[(&[&str], &str)]) {
    for (question, expected) in rights {
        let mut command = Command::new("kubectl");
        command.args(["--kubeconfig", kubeconfig, "auth", "can-i"]).args(*question);
        let answer = String::from_utf8(command.output().unwrap().stdout).unwrap();
        assert_eq!(answer.trim(), *expected, "{question:?}");
    }
}

/// A pod that is bound while images are being removed has no container yet, and may not be able to pull its image. Its image is
/// recognized in every spelling of its name.
#[test]
fn a_pod_that_is_bound_during_a_pass_keeps_its_image() {
    let Some((server, kubeconfig)) = cluster() else { return };
    let pod = |name: &str, image: &str| {
        let container = serde_json::json!({"name": "c", "image": image, "imagePullPolicy": "Never"});
        serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"nodeName": "node-1", "containers": [container]}})
    };
    let first = pod("before", "index.docker.io/library/nginx:2");
    kubectl(&server, &["create", "--validate=false", "-f", "-"], &first.to_string());
    let fake = Fake::start();
    let late = server.folder.path().join("late.json");
    std::fs::write(&late, pod("late", "docker.io/nginx:1").to_string()).unwrap();
    let administrator = server.kubeconfig.clone();
    {
        let mut state = fake.state();
        state.images = (1..=3).map(|n| image(n, n)).collect();
        for n in [1, 2] {
            state.images[n - 1].repo_tags = vec![format!("docker.io/library/nginx:{n}")];
        }
        // An image is read for its layers, and once more before it is removed: the pod is bound at that moment.
        let mut read = 0;
        state.rule(move |_, method, id| {
            if method == "ImageStatus" && id == image_id(1) {
                read += 1;
                if read == 2 {
                    let mut command = Command::new("kubectl");
                    command.arg("--kubeconfig").arg(&administrator).args([
                        "create",
                        "--validate=false",
                        "-f",
                    ]);
                    assert!(command.arg(&late).stdout(Stdio::null()).status().unwrap().success());
                }
            }
            None
        });
    }
    let flags = ["--node-name=node-1", "--minimum-image-ttl-duration=0s"];
    let (exit, text) = said(with_cluster(&fake, &kubeconfig).args(ALL).args(flags));
    let left: Vec<String> = fake.state().images.iter().map(|one| one.id.clone()).collect();
    assert_eq!((exit, left), (Some(1), vec![image_id(1), image_id(2)]), "{text}");
    kubectl(&server, &["get", "pod", "late"], "");
}

/// Images of workloads without running pods: some always stay, some are removed after all others, and some are treated like any
/// other.
#[test]
fn images_that_workloads_will_need_go_last() {
    let Some((server, kubeconfig)) = cluster() else { return };
    let annotated = |value: &str| serde_json::json!({"kubegc.io/keep-images": value});
    let make = |version: &str, kind: &str, name: &str, namespace: &str, annotations: &Value, spec: Value| {
        let object = serde_json::json!({"apiVersion": version, "kind": kind,
            "metadata": {"name": name, "namespace": namespace, "annotations": annotations}, "spec": spec});
        kubectl(&server, &["create", "--validate=false", "-f", "-"], &object.to_string());
    };
    let template = |n: u64, restart: &str| {
        let container = serde_json::json!({"name": "c", "image": format!("registry.example/image-{n}:v1")});
        serde_json::json!({"metadata": {"labels": {"app": "a"}},
            "spec": {"restartPolicy": restart, "containers": [container]}})
    };
    let scaled = |n: u64, replicas: u32| {
        serde_json::json!({"replicas": replicas, "selector": {"matchLabels": {"app": "a"}},
            "template": template(n, "Always")})
    };
    let none = Value::Null;
    let kept = serde_json::json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "kept", "annotations": annotated("always")}});
    kubectl(&server, &["create", "-f", "-"], &kept.to_string());
    let nightly = serde_json::json!({"schedule": "0 3 * * *",
        "jobTemplate": {"spec": {"template": template(1, "Never")}}});
    make("batch/v1", "CronJob", "nightly", "default", &none, nightly);
    make("apps/v1", "Deployment", "idle", "default", &none, scaled(2, 0));
    make("apps/v1", "Deployment", "unneeded", "default", &annotated("never"), scaled(3, 0));
    let each_node = serde_json::json!({"selector": {"matchLabels": {"app": "a"}},
        "template": template(4, "Always")});
    make("apps/v1", "DaemonSet", "agent", "default", &annotated("always"), each_node);
    make("apps/v1", "StatefulSet", "db", "kept", &none, scaled(5, 1));
    make("apps/v1", "Deployment", "elsewhere", "default", &none, scaled(6, 3));
    let fake = Fake::start();
    // The largest of those that were never used are removed first.
    fake.state().images = (1..=6).map(|n| image(n, 10 - n)).collect();
    let keeping = ["--keep-workload-images", "168h"];
    let going = |flags: &[&str]| {
        let mut command = with_cluster(&fake, &kubeconfig);
        command.args(&ALL[1..]).args(["--node-name=n", "--dry-run", "-o", "json"]).args(flags);
        let output = command.output().unwrap();
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        let plan: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{log}"));
        let images = plan["images"].as_array().unwrap().iter();
        (images.map(|one| one["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>(), log)
    };
    let ids = |numbers: &[u64]| numbers.iter().copied().map(image_id).collect::<Vec<_>>();
    assert_eq!(going(&[]).0, ids(&[1, 2, 3, 4, 5, 6]));
    let (found, log) = going(&keeping);
    assert_eq!(found, ids(&[1, 2, 3, 4, 5, 6]), "the rights are missing");
    assert!(
        log.contains("it is not known which images workloads will need: ") && log.contains("403"),
        "{log}"
    );
    let rights = support::repository().join("deploy/node/workloads.yaml");
    kubectl(&server, &["apply", "--validate=false", "-f", rights.to_str().unwrap()], "");
    let began = std::time::Instant::now();
    loop {
        let (found, log) = going(&keeping);
        if found == ids(&[3, 6, 1, 2]) {
            break;
        }
        assert!(began.elapsed() < std::time::Duration::from_secs(30), "{found:?}: {log}");
    }
    let mut command = with_cluster(&fake, &kubeconfig);
    command.args(ALL).args(["--node-name=n", "--minimum-image-ttl-duration=0s"]).args(keeping);
    let (_, text) = said(&mut command);
    let left: Vec<String> = fake.state().images.iter().map(|one| one.id.clone()).collect();
    assert_eq!(left, ids(&[4, 5]), "{text}");
    assert!(text.contains("protected by kubegc.io/keep-images"), "{text}");
}

/// Removals and due images are reported on a Lease that the Node owns, with the permissions of the manifest.
#[test]
fn what_is_removed_and_due_is_reported() {
    let Some((server, kubeconfig)) = cluster() else { return };
    let fake = Fake::start();
    std::fs::create_dir_all(fake.folder().join("logs")).unwrap();
    fake.state().images = (1..=3).map(|n| image(n, n)).collect();
    let common = ["--node-name", "node-1", "--collect", "images"];
    let reports = ["--report-namespace", "kubegc"];
    let pass =
        |options: &[&str]| said(with_cluster(&fake, &kubeconfig).arg("--once").args(common).args(options)).1;
    // They are too young to be removed for space, even if this machine's disk is full.
    let aging = ["--minimum-image-ttl-duration=1h", "--maximum-image-unused-duration=12h"];
    let all = [&["--minimum-image-ttl-duration=0s"][..], &ALL[1..]].concat();

    let text = pass(&[&reports[..], &aging[..]].concat());
    assert!(text.contains("not on the page of the cluster") && text.contains("there is no Node"), "{text}");
    let node = serde_json::json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}});
    kubectl(&server, &["create", "--validate=false", "-f", "-"], &node.to_string());
    let uid = kubectl(&server, &["get", "node", "node-1", "-o", "jsonpath={.metadata.uid}"], "");
    let lease = || -> serde_json::Value {
        let text = kubectl(
            &server,
            &["get", "lease", "kubegc-node-node-1", "--namespace", "kubegc", "-o", "json"],
            "",
        );
        serde_json::from_str(&text).unwrap()
    };
    let report = |lease: &serde_json::Value| -> serde_json::Value {
        serde_json::from_str(lease["metadata"]["annotations"]["kubegc.io/node-report"].as_str().unwrap())
            .unwrap()
    };

    let text = pass(&[&reports[..], &aging[..]].concat());
    assert!(!text.contains("not on the page"), "{text}");
    let first = lease();
    let owners = serde_json::json!([{"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": uid}]);
    let metadata = &first["metadata"];
    assert_eq!(
        (&metadata["ownerReferences"], &metadata["labels"]["kubegc.io/report"]),
        (&owners, &"node".into())
    );
    let told = report(&first);
    assert_eq!((&told["removed"], &told["dueTotal"]), (&serde_json::json!([]), &3.into()), "{told}");
    // The node's state is reported whether or not the pass succeeded: this machine's disk may be full.
    let state = &told["state"];
    assert_eq!((&state["images"], &state["passes"][0]["collector"]), (&3.into(), &"images".into()), "{told}");
    assert!(state["disks"][0]["capacityBytes"].as_u64() > Some(0), "{told}");
    assert_eq!(state["unexplainedBytes"], serde_json::Value::Null, "only containerd tells it: {told}");
    let ahead = told["due"][0]["at"].as_i64().unwrap() - told["written"].as_i64().unwrap();
    // The time is rounded to the minute, and an earlier pass saw the images first.
    assert!((11 * 3_600_000..=12 * 3_600_000).contains(&ahead), "{told}");

    // The next pass, in another process, continues the report.
    for (left, images) in [(0, 3), (0, 3)] {
        pass(&[&reports[..], &all].concat());
        assert_eq!(fake.state().images.len(), left);
        let told = report(&lease());
        let removed: i64 =
            told["removed"].as_array().unwrap().iter().map(|slot| slot["images"].as_i64().unwrap()).sum();
        assert_eq!((removed, &told["dueTotal"]), (images, &0.into()), "{told}");
    }
    pass(&[&["--report-namespace", ""][..], &all].concat());
    assert_rights(
        &kubeconfig,
        &[
            (&["get", "nodes"][..], "yes"),
            (&["create", "leases", "--namespace", "kubegc"], "yes"),
            (&["list", "leases", "--namespace", "kubegc"], "no"),
            (&["patch", "leases", "--namespace", "kube-node-lease"], "no"),
            (&["patch", "nodes"], "no"),
        ],
    );
}

/// The shipped DaemonSet uses only existing options, and has no more permissions than the agent needs.
#[test]
fn the_shipped_manifest_fits_the_agent() {
    let text = std::fs::read_to_string(support::repository().join("deploy/node/daemonset.yaml")).unwrap();
    let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple(&text).unwrap();
    let of_kind = |kind: &str| documents.iter().find(|one| one["kind"] == kind).unwrap();
    let pod = &of_kind("DaemonSet")["spec"]["template"]["spec"];
    let agent = &pod["containers"][0];
    let missing = "--container-runtime-endpoint=unix:///nonexistent/cri.sock".to_owned();
    let arguments = agent["args"].as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned());
    let arguments =
        arguments.filter(|one| !one.starts_with("--container-runtime-endpoint=")).chain([missing]);
    let (exit, text) = said(Command::new(env!("CARGO_BIN_EXE_kubegc")).args(arguments));
    assert_eq!((exit, text.contains("cannot reach the container runtime")), (Some(1), true), "{text}");

    let privileges = serde_json::json!({
        "runAsUser": 0, "privileged": false, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"], "add": ["DAC_OVERRIDE"]}, "seccompProfile": {"type": "RuntimeDefault"},
    });
    assert_eq!(agent["securityContext"], privileges);
    assert!(["hostNetwork", "hostPID", "hostIPC"].iter().all(|name| pod[*name].is_null()));
    let writable: BTreeSet<&str> = agent["volumeMounts"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|mount| mount["readOnly"] != true)
        .map(|mount| mount["mountPath"].as_str().unwrap())
        .collect();
    assert_eq!(writable, ["/var/lib/kubegc", "/var/log/containers", "/var/log/pods"].into());
    let rule = |group: &str, resource: &str, verbs: &[&str]| serde_json::json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
    // The API server reviews the users who read its metrics.
    let cluster_rules = serde_json::json!([
        rule("", "pods", &["list"]),
        rule("", "nodes", &["get"]),
        rule("authentication.k8s.io", "tokenreviews", &["create"]),
        rule("authorization.k8s.io", "subjectaccessreviews", &["create"]),
    ]);
    assert_eq!(of_kind("ClusterRole")["rules"], cluster_rules);
    let roles: Vec<_> = documents.iter().filter(|one| one["kind"] == "Role").collect();
    let rules: Vec<_> = roles.iter().map(|role| (&role["metadata"]["namespace"], &role["rules"])).collect();
    let events = serde_json::json!([rule("", "events", &["create", "patch"])]);
    let leases = serde_json::json!([rule("coordination.k8s.io", "leases", &["get", "create", "patch"])]);
    assert_eq!(rules, [(&"default".into(), &events), (&"kubegc".into(), &leases)]);
}

pub(super) fn with_cluster(fake: &Fake, kubeconfig: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubegc"));
    command.args(["node", "--kubeconfig", kubeconfig, "--kubelet-config", "/nonexistent"]);
    // The free space on this machine's disk must not matter.
    command.args(["--container-runtime-endpoint", &fake.endpoint(), "--eviction-hard", ""]);
    for (flag, name) in
        [("--data-dir", "state"), ("--pod-logs-dir", "logs"), ("--container-log-links-dir", "links")]
    {
        command.arg(flag).arg(fake.folder().join(name));
    }
    command
}

/// The leftovers of a deleted pod are removed once the pod has been unknown for a minute, even if each pass is a separate process;
/// until then, the reason for keeping them is reported.
#[test]
fn single_passes_find_pods_gone_in_the_end() {
    let Some((server, kubeconfig)) = cluster() else { return };
    let pod = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "live", "namespace": "default"},
        "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": "registry.example/image-1:v1"}]},
    });
    kubectl(&server, &["create", "--validate=false", "-f", "-"], &pod.to_string());
    let live = kubectl(&server, &["get", "pod", "live", "-o", "jsonpath={.metadata.uid}"], "");
    let fake = Fake::start();
    let logs = fake.folder().join("logs/default_old_aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee");
    std::fs::create_dir_all(&logs).unwrap();
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_hours(1);
    std::fs::File::open(&logs).unwrap().set_modified(long_ago).unwrap();
    const READY: i32 = 0;
    const NOT_READY: i32 = 1;
    {
        let mut state = fake.state();
        state.sandboxes = vec![sandbox(&live, READY), sandbox("gone", NOT_READY), sandbox("odd", READY)];
        for pod in [&live, "gone", "odd"] {
            state.containers.push(container(pod, "c", 0, EXITED, 1));
        }
    }
    let left =
        || -> Vec<String> { fake.state().containers.iter().map(|one| one.pod_sandbox_id.clone()).collect() };
    let all = [format!("sandbox-{live}"), "sandbox-gone".into(), "sandbox-odd".into()];
    let pass = |options: &[&str]| {
        let (exit, text) =
            said(with_cluster(&fake, &kubeconfig).args(options).args(["--collect", "containers"]));
        assert_eq!(exit, Some(0), "{text}");
        text
    };
    let here = ["--node-name", "node-1"];
    let once = [&here[..], &["--once"]].concat();
    let dry = [&here[..], &["--dry-run"]].concat();
    let state = fake.folder().join("state/pods.json");
    let saved = || -> serde_json::Value { serde_json::from_slice(&std::fs::read(&state).unwrap()).unwrap() };
    // This changes the state as if the agent had seen them unknown an hour ago.
    let an_hour_later = || {
        let mut saved = saved();
        for since in saved["unknownSince"].as_object_mut().unwrap().values_mut() {
            *since = (since.as_i64().unwrap() - 3_600_000_000_000).into();
        }
        std::fs::write(&state, saved.to_string()).unwrap();
    };

    pass(&once);
    assert_eq!((left(), logs.exists()), (all.to_vec(), true), "the time is not known yet");
    assert_eq!(saved()["unknownSince"].as_object().unwrap().len(), 3);
    let waits = "3 pods with remains on this node have been unknown to the cluster for less than 1m0s";
    let text = pass(&dry);
    assert!(text.contains("No container would be removed.") && text.contains(waits), "{text}");

    an_hour_later();
    // With a wrong name, or that of another node, all pods that run here are unknown there.
    let elsewhere = ["--node-name", "node-2"];
    let doubt = "the cluster knows none of the pods that run here; is --node-name";
    let text = pass(&[&elsewhere[..], &["--dry-run"]].concat());
    assert!(text.contains("No container would be removed.") && text.contains(doubt), "{text}");
    let mut command = with_cluster(&fake, &kubeconfig);
    let answer = command.args(&dry).args(["--collect", "containers", "-o", "json"]).output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&answer.stdout).expect("one document");
    assert_eq!(
        (&document["containers"][0]["reason"], &document["reservations"]),
        (&"PodGone".into(), &serde_json::Value::Null)
    );
    assert_eq!(left(), all, "a dry run removes nothing");

    pass(&once);
    assert_eq!(left(), [&*all[0], &*all[2]], "what runs is not gone, whatever the cluster says");
    let sandboxes: Vec<String> = fake.state().sandboxes.iter().map(|one| one.id.clone()).collect();
    assert_eq!((sandboxes, logs.exists()), (vec![all[0].clone(), all[2].clone()], false));

    // A pass that has doubts starts over.
    an_hour_later();
    pass(&[&elsewhere[..], &["--once"]].concat());
    assert!(saved()["unknownSince"].as_object().unwrap().is_empty());
}
