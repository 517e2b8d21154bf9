//! Cluster policies for nodes: results of a dry run, the policy in force, and the view of the fleet.

use std::process::Command;

use serde_json::{Value, json};

use crate::cluster::{assert_rights, cluster, kubectl};
use crate::fake::{Fake, image, image_id};
use crate::{said, support};

/// Flags with a threshold that is never exceeded.
const OWN: [&str; 8] = [
    "--once",
    "--policies",
    "--collect=images",
    "--minimum-image-ttl-duration=0s",
    "--image-gc-high-threshold=100",
    "--image-gc-low-threshold=99",
    "--report-namespace=kubegc",
    "--eviction-hard=",
];
/// A threshold that every disk exceeds and none can get below.
const LOW: (i64, i64) = (1, 0);

struct World {
    server: support::Kubegc,
    kubeconfig: String,
    fake: Fake,
}

impl World {
    /// Creates a cluster with the definition, and a Node in pool `a`, with images 1 to `images`.
    fn new(images: u64) -> Option<Self> {
        let world = Self::without_definition(images)?;
        let definition = support::repository().join("deploy/crds/nodecollectionpolicies.yaml");
        kubectl(&world.server, &["apply", "--validate=false", "-f", definition.to_str().unwrap()], "");
        Some(world)
    }

    fn without_definition(images: u64) -> Option<Self> {
        let (server, kubeconfig) = cluster()?;
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1", "labels": {"pool": "a"}}});
        kubectl(&server, &["create", "--validate=false", "-f", "-"], &node.to_string());
        let fake = Fake::start();
        std::fs::create_dir_all(fake.folder().join("logs")).unwrap();
        fake.state().images = (1..=images).map(|n| image(n, n)).collect();
        Some(Self { server, kubeconfig, fake })
    }

    fn allow(&self) {
        let rights = support::repository().join("deploy/node/policies.yaml");
        kubectl(&self.server, &["apply", "--validate=false", "-f", rights.to_str().unwrap()], "");
    }

    fn apply(&self, name: &str, spec: &Value) {
        let policy = json!({"apiVersion": "kubegc.io/v1alpha1", "kind": "NodeCollectionPolicy",
            "metadata": {"name": name}, "spec": spec});
        let file = self.server.folder.path().join("policy.json");
        std::fs::write(&file, policy.to_string()).unwrap();
        // The resource may be served only a moment after its definition was accepted.
        until("the policy is taken", || {
            let mut command = Command::new("kubectl");
            command.arg("--kubeconfig").arg(&self.server.kubeconfig);
            let output = command.args(["apply", "--validate=false", "-f"]).arg(&file).output().unwrap();
            (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
        });
    }

    fn agent(&self, more: &[&str]) -> (Option<i32>, String) {
        said(&mut self.command("node-1", more))
    }

    fn command(&self, node: &str, more: &[&str]) -> Command {
        let folder = self.fake.folder();
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubegc"));
        command.args(["node", "--kubeconfig", &self.kubeconfig, "--node-name", node]);
        command.args(["--container-runtime-endpoint", &self.fake.endpoint()]);
        command.arg("--kubelet-config").arg(folder.join("kubelet.yaml"));
        for (flag, name) in
            [("--data-dir", "state"), ("--pod-logs-dir", "logs"), ("--container-log-links-dir", "links")]
        {
            command.arg(flag).arg(folder.join(name));
        }
        command.args(OWN).args(more);
        command
    }

    /// Returns the results in the status of a policy.
    fn results(&self, name: &str) -> Vec<Value> {
        let text = kubectl(&self.server, &["get", "nodecollectionpolicy", name, "-o", "json"], "");
        let policy: Value = serde_json::from_str(&text).unwrap();
        policy["status"]["nodes"].as_array().cloned().unwrap_or_default()
    }

    fn result(&self, name: &str) -> Value {
        let results = self.results(name);
        assert_eq!(results.len(), 1, "{results:?}");
        results[0].clone()
    }

    fn left(&self) -> Vec<String> {
        self.fake.state().images.iter().map(|one| one.id.clone()).collect()
    }
}

/// Waits until another process has noticed something.
fn until(what: &str, mut look: impl FnMut() -> (bool, String)) {
    let began = std::time::Instant::now();
    loop {
        let (is_so, text) = look();
        if is_so {
            return;
        }
        assert!(began.elapsed() < std::time::Duration::from_mins(1), "{what}: {text}");
    }
}

fn ids(numbers: &[u64]) -> Vec<String> {
    numbers.iter().copied().map(image_id).collect()
}

fn spec(enforce: bool, more: &Value) -> Value {
    let mut spec = json!({"enforce": enforce, "nodeSelector": {"matchLabels": {"pool": "a"}}});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

/// Nothing is removed while policies cannot be read; then a dry run reports its results, and the same policy in force removes
/// exactly those images.
#[test]
fn a_policy_reports_before_it_is_enforced() {
    let Some(world) = World::new(5) else { return };
    std::fs::write(world.fake.folder().join("kubelet.yaml"), "imageGCHighThresholdPercent: 85\n").unwrap();
    let (exit, text) = world.agent(&[]);
    assert_eq!((exit, world.left().len()), (Some(1), 5), "{text}");
    assert!(
        text.contains("the policies for this node are not known yet, so that nothing is removed"),
        "{text}"
    );
    world.allow();
    let thresholds = json!({"highPercent": LOW.0, "lowPercent": LOW.1});
    let rules = json!({
        "thresholds": thresholds, "protectedImages": ["registry.example/image-2"],
        "keepImages": [{"pattern": "registry.example/image-3", "keep": "Always"}],
    });
    world.apply("trial", &spec(false, &rules));
    until("the rights count", || {
        let (exit, text) = world.agent(&[]);
        (exit == Some(0) && !world.results("trial").is_empty(), text)
    });
    assert_eq!(world.left(), ids(&[1, 2, 3, 4, 5]), "a dry run removes nothing");
    let dry = world.result("trial");
    assert_eq!(
        (&dry["node"], &dry["state"], &dry["observedGeneration"]),
        (&json!("node-1"), &json!("DryRun"), &json!(1))
    );
    // The runtime reports nominal sizes: 1, 4 and 5 bytes.
    assert_eq!((&dry["images"], &dry["bytes"]), (&json!(3), &json!(10)), "{dry}");
    assert!(dry["kubelet"].as_str().unwrap().contains("also collects images"), "{dry}");

    world.apply("trial", &spec(true, &rules));
    let (_, text) = world.agent(&[]);
    assert_eq!(world.left(), ids(&[2, 3]), "{text}");
    let enforced = world.result("trial");
    assert_eq!((&enforced["state"], &enforced["images"]), (&json!("Enforced"), &json!(3)), "{enforced}");
    assert_eq!(enforced["firstImages"].as_array().unwrap().len(), 3);
    // The policy no longer selects the node: its own settings count again, and its entry is removed.
    kubectl(&world.server, &["label", "node", "node-1", "pool-", "--overwrite"], "");
    let (exit, text) = world.agent(&[]);
    assert_eq!((exit, world.results("trial").len()), (Some(0), 0), "{text}");
    assert_rights(
        &world.kubeconfig,
        &[
            (&["list", "nodecollectionpolicies"][..], "yes"),
            (&["patch", "nodecollectionpolicies", "--subresource=status"], "yes"),
            (&["patch", "nodecollectionpolicies"], "no"),
            (&["delete", "nodecollectionpolicies"], "no"),
        ],
    );
}

/// Without the definition there are no policies, whether or not its group is served: the node's own settings count.
#[test]
fn a_server_without_the_definition_has_no_policies() {
    let Some(world) = World::without_definition(2) else { return };
    world.allow();
    let collect = |what: &str| {
        until(what, || {
            let (_, text) = world.agent(&["--image-gc-high-threshold=1", "--image-gc-low-threshold=0"]);
            (world.left().is_empty(), text)
        });
    };
    collect("no kind of the group");
    let other = support::repository().join("deploy/crds/retentionpolicies.yaml");
    kubectl(&world.server, &["apply", "--validate=false", "-f", other.to_str().unwrap()], "");
    let served = ["wait", "--for=condition=Established", "crd/retentionpolicies.kubegc.io", "--timeout=30s"];
    kubectl(&world.server, &served, "");
    world.fake.state().images = (1..=2).map(|n| image(n, n)).collect();
    collect("another kind of the group");
}

/// Unwanted images are removed at once, while used, protected and foreign images stay; the rule for several policies is named.
#[test]
fn unwanted_images_go_and_one_policy_is_in_force() {
    let Some(world) = World::new(4) else { return };
    world.allow();
    let remove = |images: &[&str], priority: i64| json!({"removeImages": images, "priority": priority, "protectedImages": ["registry.example/image-4"]});
    world.apply("b", &spec(true, &remove(&["registry.example/image-1:v1", "registry.example/image-4*"], 7)));
    world.apply("a", &spec(true, &remove(&["registry.example/image-2:v1"], 7)));
    world.apply("z", &spec(true, &remove(&["registry.example/image-3:v1"], 0)));
    world.apply("trial", &spec(false, &remove(&["registry.example/*"], 9)));
    until("the policy in force acts", || {
        let (_, text) = world.agent(&[]);
        (world.left() == ids(&[1, 3, 4]), text)
    });
    let states = ["a", "b", "z", "trial"].map(|name| {
        let result = world.result(name);
        format!("{} {}", result["state"].as_str().unwrap(), result["message"].as_str().unwrap_or_default())
    });
    assert_eq!(states, ["Enforced ", "Superseded a is in force", "Superseded a is in force", "DryRun "]);
    // The policy in force has removed image 2 in the same pass, and image 4 is protected.
    assert_eq!(world.result("trial")["images"], 3);

    // Users who may list the Leases see the fleet.
    let fleet = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubegc"));
        command
            .args(["node", "images", "--all-nodes", "--kubeconfig"])
            .arg(&world.server.kubeconfig)
            .args(more);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let found: Value = serde_json::from_str(&fleet(&["-o", "json"])).unwrap();
    assert_eq!((&found["total"], &found["items"][0]["node"]), (&json!(1), &json!("node-1")), "{found}");
    assert_eq!(found["policies"].as_array().unwrap().len(), 4, "{found}");
    let table = fleet(&[]);
    assert!(table.starts_with("NODE ") && table.contains("\na        Enforced"), "{table}");
    assert_eq!(fleet(&["-o", "name"]), "node/node-1\n");
    let denied = Command::new(env!("CARGO_BIN_EXE_kubegc"))
        .args(["node", "images", "-A", "--kubeconfig", &world.kubeconfig])
        .output()
        .unwrap();
    assert!(
        !denied.status.success() && String::from_utf8_lossy(&denied.stderr).contains("leases"),
        "{denied:?}"
    );
}

/// A status has room for a limited number of nodes; the others report that it is full, and the entry of a node that is gone makes
/// room.
#[test]
fn a_status_is_bounded() {
    let Some(world) = World::new(1) else { return };
    world.allow();
    world.apply("all", &json!({"ages": {"maximum": "14d"}}));
    let status = |nodes: Vec<Value>| {
        let patch = json!({"status": {"nodes": nodes}}).to_string();
        let arguments =
            ["patch", "nodecollectionpolicy", "all", "--subresource=status", "--type=merge", "-p", &patch];
        kubectl(&world.server, &arguments, "");
    };
    let others = |count: usize, time: &str| -> Vec<Value> {
        (0..count).map(|n| json!({"node": format!("other-{n}"), "state": "DryRun", "time": time})).collect()
    };
    let truncated = || {
        let path = "jsonpath={.status.truncated}";
        kubectl(&world.server, &["get", "nodecollectionpolicy", "all", "-o", path], "")
    };
    status(others(200, "2999-01-01T00:00:00Z"));
    until("the rights count", || {
        let (_, text) = world.agent(&[]);
        (truncated() == "true", text)
    });
    assert_eq!(world.results("all").len(), 200);
    let refused = Command::new("kubectl")
        .args(["--kubeconfig"])
        .arg(&world.server.kubeconfig)
        .args(["patch", "nodecollectionpolicy", "all", "--subresource=status", "--type=merge", "-p"])
        .arg(json!({"status": {"nodes": others(201, "2999-01-01T00:00:00Z")}}).to_string())
        .output()
        .unwrap();
    assert!(!refused.status.success(), "the definition bounds it");
    status(others(200, "2020-01-01T00:00:00Z"));
    world.agent(&[]);
    assert_eq!(world.results("all").len(), 199, "one of a node that is gone");
    world.agent(&[]);
    let names: Vec<Value> = world.results("all").iter().map(|one| one["node"].clone()).collect();
    assert_eq!((names.len(), names.contains(&json!("node-1")), truncated().as_str()), (199, true, "false"));
}

/// The last copy among the nodes of a peer-to-peer registry stays; images not known to every mirror are removed last.
#[test]
fn the_last_copy_stays_where_mirrors_say_so() {
    let fake = Fake::start();
    std::fs::create_dir_all(fake.folder().join("logs")).unwrap();
    fake.state().images = (1..=3).map(|n| image(n, n)).collect();
    let digests: Vec<String> = fake.state().images.iter().map(|one| one.repo_digests[0].clone()).collect();
    let digest = |n: usize| digests[n - 1].split_once('@').unwrap().1.to_owned();
    // This node's own mirror has all images; the other one has the first.
    let mirrors = [mirror(vec![digest(1), digest(2), digest(3)]), mirror(vec![digest(1)])];
    let pass = |more: &[&str]| {
        let mut command = crate::agent(&fake, &[]);
        command.args(crate::ALL).arg("--minimum-image-ttl-duration=0s");
        said(command.args(more)).1
    };
    let flags = [format!("--peer-mirror={}", mirrors[0]), format!("--peer-mirror={}", mirrors[1])];
    let text = pass(&[&flags[0], &flags[1]]);
    let left: Vec<String> = fake.state().images.iter().map(|one| one.id.clone()).collect();
    assert_eq!(left, ids(&[2, 3]), "{text}");
    assert!(text.contains("no other node has a copy"), "{text}");
    // A missing mirror leaves copies unknown, so these images are removed for space after all others.
    let text = pass(&[&flags[0], &flags[1], "--peer-mirror=127.0.0.1:1"]);
    assert_eq!(fake.state().images.len(), 0, "{text}");
}

/// Starts a mirror of a node that has these digests.
fn mirror(holding: Vec<String>) -> String {
    use std::io::{BufRead as _, BufReader, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines: Vec<String> = BufReader::new(stream.try_clone().unwrap())
                .lines()
                .map_while(Result::ok)
                .take_while(|line| !line.is_empty())
                .collect();
            let has = holding.iter().any(|digest| lines[0].contains(digest.as_str()));
            let is_local = lines.iter().any(|line| line == "X-Spegel-Mirrored: true");
            let status = if has && is_local { "200 OK" } else { "404 Not Found" };
            let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        }
    });
    address
}

/// The disk of CRI-O is accounted for by cause: the fake runtime names the storage as CRI-O does.
#[test]
fn the_disk_of_cri_o_is_accounted_for() {
    let fake = Fake::start();
    let root = fake.folder().join("storage");
    for (path, kib) in [
        ("overlay/base/diff/a", 64),
        ("overlay/top/diff/b", 32),
        ("overlay/stray/diff/c", 128),
        ("overlay-images/i1/m", 4),
    ] {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, vec![1; kib << 10]).unwrap();
    }
    std::fs::create_dir_all(root.join("overlay-layers")).unwrap();
    std::fs::write(root.join("overlay-images/images.json"), r#"[{"id": "i1", "layer": "base"}]"#).unwrap();
    std::fs::write(
        root.join("overlay-layers/layers.json"),
        r#"[{"id": "base"}, {"id": "top", "parent": "base"}]"#,
    )
    .unwrap();
    fake.state().filesystem = root.join("overlay-images").display().to_string();
    let mut command = crate::agent(&fake, &[]);
    let output = command.args(["disk", "-o", "json"]).output().unwrap();
    let disk: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let kib = |cause: &str| disk["disk"]["causes"][cause].as_u64().unwrap_or_default() >> 10;
    for (cause, least) in [("images", 68), ("unreferenced", 32), ("straySnapshots", 128)] {
        assert!((least..=least + 24).contains(&kib(cause)), "{cause}: {disk}");
    }
    assert_eq!(disk["disk"]["orphans"]["snapshots"], json!([]), "nothing is removed there");
}

/// Rules by reference determine which images are always kept, which are removed after all others, and which are removed although a
/// workload will need them.
#[test]
fn rules_by_reference_count() {
    let fake = Fake::start();
    fake.state().images = (1..=3).map(|n| image(n, n)).collect();
    let rules =
        ["--keep-image", "registry.example/image-3=always", "--keep-image", "registry.example/image-2*=last"];
    let mut command = crate::agent(&fake, &[]);
    command.args(&crate::ALL[1..]).args(["--dry-run", "-o", "json"]).args(rules);
    let output = command.output().unwrap();
    let plan: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let going: Vec<&str> =
        plan["images"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(going, ids(&[1, 2]), "the larger of two equals would go first");
}
