#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::{Value, json};

use super::lifecycle;
use super::scheduler::tolerates;
use crate::kinds::Kind;
use crate::plan::Settings;
use crate::runtime::{MAX_PLANS, SOON};
use crate::testing::{World, owner, store, view};
use crate::time;
use crate::workloads::Workload;

fn pod(name: &str, spec: &Value) -> Value {
    let mut whole = json!({"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Always"});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({"metadata": {"name": name, "labels": {"app": name}}, "spec": whole})
}

fn phase(world: &World, name: &str) -> Value {
    world.get(Kind::Pod, name)["status"]["phase"].clone()
}

#[test]
fn a_namespace_gets_its_furniture_again_when_it_is_taken() {
    let mut world = World::whole();
    let namespace = json!({"metadata": {"name": "default"}, "status": {"phase": "Active"}});
    world.create(Kind::Namespace, namespace);
    world.settle();
    assert_eq!(world.get(Kind::ConfigMap, "kube-root-ca.crt")["data"], json!({"ca.crt": "CA"}));
    world.delete(&Kind::ServiceAccount.key("default", "default"), None);
    world.change(Kind::ConfigMap, "kube-root-ca.crt", |value| value["data"] = json!({"ca.crt": "other"}));
    world.settle();
    assert_eq!(world.names(Kind::ServiceAccount), ["default"]);
    assert_eq!(world.get(Kind::ConfigMap, "kube-root-ca.crt")["data"], json!({"ca.crt": "CA"}));
}

#[test]
fn a_pod_runs_where_it_fits_and_says_why_it_does_not() {
    let mut world = World::whole();
    world.create(Kind::Pod, pod("plain", &json!({})));
    world.create(Kind::Pod, pod("selective", &json!({"nodeSelector": {"disk": "ssd"}})));
    let huge = json!([{"name": "c", "resources": {"requests": {"cpu": "100k"}}}]);
    world.create(Kind::Pod, pod("huge", &json!({"containers": huge})));
    let apart = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "plain"}}}]}}});
    world.create(Kind::Pod, pod("apart", &apart));
    world.settle();
    assert_eq!(phase(&world, "plain"), "Running");
    for (name, reason) in [
        ("selective", "node(s) didn't match Pod's node affinity/selector"),
        ("huge", "Insufficient cpu"),
        ("apart", "node(s) didn't match pod anti-affinity rules"),
    ] {
        let message = format!("0/1 nodes are available: 1 {reason}.");
        assert_eq!(world.get(Kind::Pod, name)["status"]["conditions"][0]["message"], message);
        assert_eq!(world.events(name), [format!("FailedScheduling {message}")]);
    }
    // A change or departure on the node makes room for them.
    world.change(Kind::Node, "kubegc-node-0", |value| value["metadata"]["labels"]["disk"] = "ssd".into());
    world.delete(&Kind::Pod.key("default", "plain"), None);
    world.settle();
    assert_eq!((phase(&world, "selective"), phase(&world, "apart")), (json!("Running"), json!("Running")));
    assert!(!world.names(Kind::Pod).contains(&"plain"));
}

/// Pods that are created at the same time do not count on the same room, however long their binding takes.
#[test]
fn a_node_gets_no_more_pods_than_fit() {
    let mut world = World::whole();
    let third = json!([{"name": "c", "resources": {"requests": {"cpu": "300"}}}]);
    for number in 0..5 {
        world.create(Kind::Pod, pod(&format!("p{number}"), &json!({"containers": third})));
    }
    world.settle_with_late_answers();
    let bound = (0..5)
        .filter(|number| world.get(Kind::Pod, &format!("p{number}"))["spec"]["nodeName"] == "kubegc-node-0");
    assert_eq!(bound.collect::<Vec<_>>(), [0, 1, 2]);
}

/// Between its creation and its start, a pod waits for only a few full rounds of others' plans, however many of those are queued.
#[test]
fn a_pod_starts_beside_ten_thousand_ending_ones() {
    const MOST_BEFORE_IT_RUNS: usize = 4 * MAX_PLANS;
    let mut world = World::whole();
    for number in 0..10_000 {
        let mut ending = pod(&format!("e{number}"), &json!({"nodeName": "kubegc-node-0"}));
        ending["metadata"]["namespace"] = "busy".into();
        ending["metadata"]["deletionTimestamp"] = time::format(world.now);
        ending["metadata"]["deletionGracePeriodSeconds"] = 30.into();
        world.create(Kind::Pod, ending);
    }
    // Another pod that waits for the scheduler, in the busy namespace itself.
    let mut other = pod("other", &json!({}));
    other["metadata"]["namespace"] = "busy".into();
    world.create(Kind::Pod, other);
    world.create(Kind::ReplicaSet, owner("web", &json!({"replicas": 1})));
    let mut requests = 0;
    let is_running = |world: &World| {
        let mut pods = world.of_kind(Kind::Pod).into_iter();
        pods.any(|pod| pod["metadata"]["namespace"] == "default" && pod["status"]["phase"] == "Running")
    };
    while !is_running(&world) {
        requests += world.send_together();
        assert!(requests <= MOST_BEFORE_IT_RUNS, "{requests} requests were sent for others before it");
    }
    assert_ne!(world.objects[&Kind::Pod.key("busy", "other")]["spec"]["nodeName"], Value::Null);
    assert!(world.objects.len() > 9_000, "the others have not ended by then");
}

#[test]
fn a_lease_is_renewed_and_a_stopped_node_loses_its_pods() {
    let mut world = World::whole();
    world.create(Kind::Pod, pod("a", &json!({"tolerations": [
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
    ]})));
    world.settle();
    let renewed = |world: &World| {
        let leases = world.of_kind(Kind::Lease);
        leases[0]["spec"]["renewTime"].as_str().unwrap().to_owned()
    };
    assert_eq!(renewed(&world), "2023-11-14T22:13:20.000000Z");
    world.pass(25);
    assert_eq!(renewed(&world), "2023-11-14T22:13:40.000000Z");
    world.change(Kind::Node, "kubegc-node-0", |value| {
        value["metadata"]["annotations"]["kubegc.io/stopped"] = "true".into();
    });
    world.pass(60);
    assert_eq!(renewed(&world), "2023-11-14T22:13:40.000000Z");
    let node = world.get(Kind::Node, "kubegc-node-0");
    assert_eq!(node["status"]["conditions"][3]["reason"], "NodeStatusUnknown");
    let readiness = |world: &World| {
        let conditions = world.get(Kind::Pod, "a")["status"]["conditions"].clone();
        ["Ready", "ContainersReady"].map(|kind| {
            let one = conditions.as_array().unwrap().iter().find(|one| one["type"] == kind).unwrap();
            one["status"].clone()
        })
    };
    assert_eq!(readiness(&world), ["False", "True"], "nothing is known of the pods of a silent node");
    assert!(world.events("a").contains(&"NodeNotReady Node is not ready".to_owned()));
    let stopped = |world: &mut World, stopped: &str| {
        world.change(Kind::Node, "kubegc-node-0", |value| {
            value["metadata"]["annotations"]["kubegc.io/stopped"] = stopped.into();
        });
    };
    stopped(&mut world, "false");
    world.settle();
    assert_eq!(readiness(&world), ["True", "True"], "the node reports again");
    stopped(&mut world, "true");
    world.pass(60);
    let node = world.get(Kind::Node, "kubegc-node-0");
    let effects: Vec<_> =
        node["spec"]["taints"].as_array().unwrap().iter().map(|taint| taint["effect"].clone()).collect();
    assert_eq!(effects, ["NoSchedule", "NoExecute"]);
    assert_eq!(world.get(Kind::Pod, "a")["metadata"]["deletionTimestamp"], Value::Null);
    world.pass(300);
    assert_ne!(world.get(Kind::Pod, "a")["metadata"]["deletionTimestamp"], Value::Null);
    // The node comes back: the taints are removed, and so is the terminating pod.
    stopped(&mut world, "false");
    world.settle();
    assert_eq!(world.get(Kind::Node, "kubegc-node-0")["spec"]["taints"], json!([]));
    assert!(world.names(Kind::Pod).is_empty());
}

#[test]
fn two_pods_do_not_take_the_same_port_of_a_node() {
    let mut world = World::whole();
    let with = |name: &str, port: Value| pod(name, &json!({"containers": [{"name": "c", "ports": [port]}]}));
    let table = [
        ("a", json!({"hostPort": 80, "hostIP": "127.0.0.1"}), true),
        ("other-address", json!({"hostPort": 80, "hostIP": "127.0.0.2", "protocol": "TCP"}), true),
        ("other-protocol", json!({"hostPort": 80, "protocol": "UDP"}), true),
        ("no-host-port", json!({"containerPort": 80}), true),
        ("same", json!({"hostPort": 80, "hostIP": "127.0.0.1", "protocol": "TCP"}), false),
        ("all-addresses", json!({"hostPort": 80}), false),
    ];
    for (name, port, runs) in table {
        world.create(Kind::Pod, with(name, port));
        world.settle();
        assert_eq!(phase(&world, name) == "Running", runs, "{name}");
    }
    let message = "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.";
    assert_eq!(world.events("same"), [format!("FailedScheduling {message}")]);
    world.delete(&Kind::Pod.key("default", "a"), None);
    world.settle();
    assert_eq!(phase(&world, "same"), "Running");
}

#[test]
fn a_node_of_this_process_is_not_silent_when_the_clock_is_set_ahead() {
    let node = |stopped: &str| {
        json!({"metadata": {"name": "n", "uid": "n", "creationTimestamp": "2023-11-14T20:00:00Z",
            "annotations": {"kubegc.io/simulated": "true", "kubegc.io/stopped": stopped}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    };
    for (keeps_nodes, stopped, silent) in
        [(true, "false", false), (true, "true", true), (false, "false", true)]
    {
        let store = store(&[(Kind::Node, node(stopped))]);
        let settings = Settings { keeps_nodes, ..Settings::default() };
        let plan = lifecycle::reconcile_node(&view(&store, &settings), &Kind::Node.key("", "n"));
        let why: Vec<_> = plan.steps.iter().flatten().map(|request| request.why).collect();
        assert_eq!(why.contains(&"silent"), silent, "{keeps_nodes} {stopped}");
    }
}

#[test]
fn a_readiness_gate_decides_whether_a_pod_is_ready() {
    let mut world = World::whole();
    world.create(Kind::Pod, pod("a", &json!({"readinessGates": [{"conditionType": "example.com/in"}]})));
    world.settle();
    let ready = |world: &World| {
        let conditions = world.get(Kind::Pod, "a")["status"]["conditions"].clone();
        conditions.as_array().unwrap().iter().find(|one| one["type"] == "Ready").unwrap()["status"].clone()
    };
    let mut shown = vec![ready(&world)];
    for status in ["True", "False"] {
        world.change(Kind::Pod, "a", |value| {
            let conditions = value["status"]["conditions"].as_array_mut().unwrap();
            conditions.retain(|one| one["type"] != "example.com/in");
            conditions.push(json!({"type": "example.com/in", "status": status}));
        });
        world.settle();
        shown.push(ready(&world));
    }
    assert_eq!(shown, ["False", "True", "False"]);
}

#[test]
fn pods_complete_fail_and_restart_on_request() {
    let mut world = World::whole();
    let annotated = |name: &str, policy: &str, annotations: Value| {
        let mut pod = pod(name, &json!({"restartPolicy": policy}));
        pod["metadata"]["annotations"] = annotations;
        pod
    };
    world.create(Kind::Pod, annotated("slow", "Never", json!({"kubegc.io/completes-after": "5s"})));
    world.create(Kind::Pod, annotated("bad", "Never", json!({"kubegc.io/fails": "3"})));
    world.create(Kind::Pod, annotated("loop", "OnFailure", json!({"kubegc.io/fails": "true"})));
    world.settle();
    assert_eq!((phase(&world, "slow"), phase(&world, "bad")), (json!("Running"), json!("Failed")));
    let ended = &world.get(Kind::Pod, "bad")["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&ended["exitCode"], &ended["reason"]), (&json!(3), &json!("Error")));
    world.pass(5);
    assert_eq!(phase(&world, "slow"), "Succeeded");
    let looping = |world: &World| world.get(Kind::Pod, "loop")["status"]["containerStatuses"][0].clone();
    // The first restart is immediate, the later ones follow after 10 s, 20 s and so on.
    let crashed = json!({"waiting": {"reason": "CrashLoopBackOff"}});
    assert_eq!((&looping(&world)["state"], &looping(&world)["restartCount"]), (&crashed, &json!(1)));
    for (seconds, restarts) in [(4, 1), (1, 2), (19, 2), (1, 3), (39, 3), (1, 4)] {
        world.pass(seconds);
        assert_eq!(looping(&world)["restartCount"], restarts);
    }
}

/// A container that ran for longer than ten minutes is restarted immediately, however often it failed before.
#[test]
fn a_long_run_ends_the_pauses_between_restarts() {
    let mut world = World::whole();
    for (name, after) in [("short", "600s"), ("long", "601s")] {
        let mut pod = pod(name, &json!({}));
        pod["metadata"]["annotations"] = json!({"kubegc.io/fails": "1", "kubegc.io/completes-after": after});
        world.create(Kind::Pod, pod);
    }
    world.settle();
    world.pass(1202);
    let status = |name: &str| world.get(Kind::Pod, name)["status"]["containerStatuses"][0].clone();
    assert!(status("short")["state"]["waiting"].is_object());
    assert!(status("long")["state"]["running"].is_object());
    assert_eq!(status("long")["lastState"]["terminated"]["exitCode"], 1);
    assert_eq!((&status("short")["restartCount"], &status("long")["restartCount"]), (&json!(1), &json!(2)));
}

#[test]
fn an_annotation_that_is_not_understood_is_reported() {
    let mut world = World::whole();
    let mut bad = pod("a", &json!({}));
    bad["metadata"]["annotations"] = json!({"kubegc.io/fails": "300", "kubegc.io/completes-after": "5 s"});
    world.create(Kind::Pod, bad);
    world.settle();
    assert_eq!(phase(&world, "a"), "Running");
    let events = world.events("a");
    let reported: Vec<_> = events.iter().filter(|event| event.starts_with("InvalidAnnotation ")).collect();
    assert_eq!(
        reported,
        [
            "InvalidAnnotation annotation kubegc.io/completes-after is ignored: \"5 s\" has the unknown unit \" s\"; \
         expected one of ns, us, ms, s, m, h",
            "InvalidAnnotation annotation kubegc.io/fails is ignored: \"300\" is neither true nor false nor an exit code \
         from 0 to 255",
        ]
    );
}

#[test]
fn a_changed_specification_is_observed_while_the_containers_run() {
    let mut world = World::whole();
    world.create(Kind::Pod, pod("a", &json!({})));
    world.settle();
    let before = world.get(Kind::Pod, "a")["status"].clone();
    assert_eq!(before["observedGeneration"], world.get(Kind::Pod, "a")["metadata"]["generation"]);
    world.pass(5);
    world.change(Kind::Pod, "a", |value| {
        value["spec"]["ephemeralContainers"] = json!([{"name": "debugger", "image": "i"}]);
    });
    world.settle();
    let pod = world.get(Kind::Pod, "a");
    assert_ne!(pod["metadata"]["generation"], before["observedGeneration"]);
    assert_eq!(pod["status"]["observedGeneration"], pod["metadata"]["generation"]);
    let status = pod["status"].clone();
    assert_eq!(status["phase"], "Running");
    assert_eq!(status["containerStatuses"], before["containerStatuses"], "nothing was restarted");
    assert_eq!(status["podIP"], before["podIP"]);
    let ephemeral = &status["ephemeralContainerStatuses"];
    assert_eq!(
        (&ephemeral[0]["name"], &ephemeral[0]["state"]),
        (&json!("debugger"), &before["containerStatuses"][0]["state"])
    );
    assert_eq!(ephemeral.as_array().map(Vec::len), Some(1));
}

#[test]
fn readiness_gates_and_deadlines_are_obeyed() {
    let mut world = World::whole();
    world
        .create(Kind::Pod, pod("gated", &json!({"readinessGates": [{"conditionType": "example.com/gate"}]})));
    world.create(Kind::Pod, pod("short", &json!({"activeDeadlineSeconds": 5})));
    world.settle();
    let ready = |world: &World, name: &str| {
        let conditions = world.get(Kind::Pod, name)["status"]["conditions"].clone();
        let found = conditions.as_array().unwrap().iter().find(|known| known["type"] == "Ready").cloned();
        found.unwrap()["status"].clone()
    };
    let set = |world: &mut World, name: &str, kind: &str, status: &str| {
        world.change(Kind::Pod, name, |value| {
            let conditions = value["status"]["conditions"].as_array_mut().unwrap();
            conditions.retain(|known| known["type"] != kind);
            conditions.push(json!({"type": kind, "status": status}));
        });
        world.settle();
    };
    assert_eq!(ready(&world, "gated"), "False");
    for status in ["True", "False"] {
        set(&mut world, "gated", "example.com/gate", status);
        assert_eq!(ready(&world, "gated"), status);
    }
    assert_eq!(phase(&world, "short"), "Running");
    world.pass(5);
    let status = &world.get(Kind::Pod, "short")["status"];
    assert_eq!((&status["phase"], &status["reason"]), (&json!("Failed"), &json!("DeadlineExceeded")));
    assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["exitCode"], 143);
}

/// A simulated node has room for far more pods than a kubelet's, which still gets its share.
#[test]
fn a_pod_gets_the_node_with_the_fewest_pods_whatever_its_size() {
    let mut world = World::whole();
    world
        .create(Kind::Node, json!({"metadata": {"name": "real"}, "status": {"allocatable": {"pods": "10"}}}));
    for number in 0..6 {
        world.create(Kind::Pod, pod(&format!("p{number}"), &json!({})));
    }
    world.settle();
    let nodes = (0..6).map(|number| world.get(Kind::Pod, &format!("p{number}"))["spec"]["nodeName"].clone());
    let on_real = nodes.filter(|node| node == "real").count();
    assert_eq!(on_real, 3);
}

#[test]
fn a_nodes_own_kubelet_keeps_it() {
    let mut world = World::whole();
    world
        .create(Kind::Node, json!({"metadata": {"name": "real"}, "status": {"allocatable": {"pods": "10"}}}));
    world.create(Kind::Pod, pod("a", &json!({"nodeName": "real"})));
    world.settle();
    assert_eq!(world.get(Kind::Pod, "a")["status"], Value::Null);
    // Nor is a deleted node recreated.
    world.delete(&Kind::Node.key("", "kubegc-node-0"), None);
    world.pass(60);
    assert_eq!(world.names(Kind::Node), ["real"]);
}

#[test]
fn tolerations_tolerate() {
    let taint = json!({"key": "k", "value": "v", "effect": "NoSchedule"});
    for (toleration, expected) in [
        (json!({"operator": "Exists"}), true),
        (json!({"key": "k", "operator": "Exists"}), true),
        (json!({"key": "k", "value": "v"}), true),
        (json!({"key": "k", "operator": "Equal", "value": "w"}), false),
        (json!({"key": "other", "operator": "Exists"}), false),
        (json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}), false),
    ] {
        assert_eq!(tolerates(&toleration, &taint), expected, "{toleration}");
    }
}

#[test]
fn a_node_rejects_a_pod_that_names_it_and_does_not_fit() {
    let node = "kubegc-node-0";
    let on = |name: &str, spec: Value| {
        let mut value = pod(name, &spec);
        value["spec"]["nodeName"] = node.into();
        value
    };
    let port = |number: u16| json!({"containers": [{"name": "c", "ports": [{"hostPort": number}]}]});
    let asks = |requests: Value| json!({"containers": [{"name": "c", "resources": {"requests": requests}}]});
    let affinity = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}}}});
    let table = [
        ("first", port(80), None),
        (
            "port",
            port(80),
            Some((
                "NodePorts",
                "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
            )),
        ),
        ("other-port", port(81), None),
        ("half", asks(json!({"cpu": "600"})), None),
        (
            "cpu",
            asks(json!({"cpu": "500"})),
            Some((
                "OutOfcpu",
                "Node didn't have enough resource: cpu, requested: 500000, used: 600000, capacity: 1000000",
            )),
        ),
        (
            "huge-pages",
            asks(json!({"hugepages-2Mi": "2Mi"})),
            Some((
                "OutOfhugepages-2Mi",
                "Node didn't have enough resource: hugepages-2Mi, requested: 2097152, used: 0, capacity: 0",
            )),
        ),
        ("unknown-device", asks(json!({"example.com/gpu": "1"})), None),
        (
            "selector",
            json!({"nodeSelector": {"disk": "ssd"}}),
            Some((
                "NodeAffinity",
                "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
            )),
        ),
        (
            "affinity",
            affinity,
            Some((
                "NodeAffinity",
                "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
            )),
        ),
        (
            "windows",
            json!({"os": {"name": "windows"}}),
            Some(("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")),
        ),
        ("linux", json!({"os": {"name": "linux"}}), None),
    ];
    let mut world = World::whole();
    for (name, spec, _) in &table {
        world.create(Kind::Pod, on(name, spec.clone()));
        world.settle();
    }
    assert_eq!(phase(&world, "port"), Value::Null, "a rejection takes a second");
    world.pass(1);
    for (name, _, rejection) in &table {
        let status = world.get(Kind::Pod, name)["status"].clone();
        let Some((reason, message)) = rejection else {
            assert_eq!(status["phase"], "Running", "{name}");
            continue;
        };
        let expected = json!({"phase": "Failed", "reason": reason, "message": format!("Pod was rejected: {message}"),
            "startTime": "2023-11-14T22:13:21Z", "observedGeneration": 1, "conditions": []});
        assert_eq!(status, expected, "{name}");
        assert_eq!(world.events(name), [format!("{reason} {message}")]);
    }
    // A running pod is not rejected because of later changes, and an ended one makes room.
    world.change(Kind::Pod, "port", |value| value["metadata"]["labels"]["app"] = "other".into());
    world.delete(&Kind::Pod.key("default", "first"), None);
    world.create(Kind::Pod, on("next", port(80)));
    world.settle();
    assert_eq!(phase(&world, "next"), "Running");
}

#[test]
fn of_two_waiting_pods_with_the_same_port_the_older_one_runs() {
    let mut world = World::whole();
    let with_port = |name: &str| {
        let containers = json!([{"name": "c", "ports": [{"hostPort": 80}]}]);
        pod(name, &json!({"nodeName": "kubegc-node-0", "containers": containers}))
    };
    world.create(Kind::Pod, with_port("b"));
    world.now += 1_000;
    world.create(Kind::Pod, with_port("a"));
    world.pass(2);
    assert_eq!((phase(&world, "b"), phase(&world, "a")), (json!("Running"), json!("Failed")));
}

#[test]
fn a_kubelet_reports_what_becomes_of_containers() {
    let mut world = World::whole();
    let containers = json!([{"name": "web", "image": "web:1"}, {"name": "log", "image": "log:1"}]);
    let init = json!([{"name": "setup", "image": "web:1"}]);
    world.create(Kind::Pod, pod("a", &json!({"containers": containers, "initContainers": init})));
    world.settle();
    let pulled = |image: &str| {
        format!(
            "Pulled Container image \"{image}\" already present on machine and can be accessed by the pod"
        )
    };
    let (created, started) = ("Created Container created".to_owned(), "Started Container started".to_owned());
    let mut expected = vec!["Scheduled Successfully assigned default/a to kubegc-node-0".to_owned()];
    for image in ["web:1", "web:1", "log:1"] {
        expected.extend([pulled(image), created.clone(), started.clone()]);
    }
    assert_eq!(world.events("a"), expected);
    world.delete(&Kind::Pod.key("default", "a"), None);
    world.settle();
    expected.extend(["web", "log"].map(|name| format!("Killing Stopping container {name}")));
    assert_eq!(world.events("a"), expected);
    // A failed container is restarted without its init containers.
    let mut fails = pod("b", &json!({"initContainers": init}));
    fails["metadata"]["annotations"] = json!({"kubegc.io/fails": "true"});
    let uid = world.create(Kind::Pod, fails)["metadata"]["uid"].clone();
    world.pass(15);
    let back_off =
        format!("BackOff Back-off restarting failed container c in pod b_default({})", uid.as_str().unwrap());
    let events = world.events("b");
    assert_eq!(events[events.len() - 1], back_off);
    let counts: Vec<_> = world
        .of_kind(Kind::Event)
        .into_iter()
        .filter(|event| event["involvedObject"]["name"] == "b" && event["reason"] == "Started")
        .map(|event| (event["involvedObject"]["fieldPath"].clone(), event["count"].clone()))
        .collect();
    let of = |path: &str, count: i64| (json!(path), json!(count));
    assert_eq!(counts, [of("spec.initContainers{setup}", 1), of("spec.containers{c}", 3)]);
}

#[test]
fn a_pod_waits_for_its_resource_claims() {
    let mut world = World::whole();
    let claims = json!([
        {"name": "gpu", "resourceClaimName": "shared"},
        {"name": "nic", "resourceClaimTemplateName": "nic"},
    ]);
    world.create(Kind::Pod, pod("a", &json!({"resourceClaims": claims})));
    world.settle();
    assert_eq!(world.get(Kind::Pod, "a")["status"], Value::Null, "the pod is left as it is");
    world.change(Kind::Pod, "a", |value| {
        value["status"]["resourceClaimStatuses"] = json!([{"name": "nic"}]);
    });
    world.settle();
    assert_eq!(world.get(Kind::Pod, "a")["spec"]["nodeName"], Value::Null, "one claim is not needed, one is");
    world.create(Kind::ResourceClaim, json!({"metadata": {"name": "shared"}, "spec": {}}));
    world.settle();
    let message = "0/1 nodes are available: 1 cannot allocate all claims.";
    assert_eq!(world.events("a"), [format!("FailedScheduling {message}")]);
    let allocate = |world: &mut World, host: &str| {
        let field = json!({"key": "metadata.name", "operator": "In", "values": [host]});
        let selector = json!({"nodeSelectorTerms": [{"matchFields": [field]}]});
        world.change(Kind::ResourceClaim, "shared", |value| {
            value["status"]["allocation"] = json!({"nodeSelector": selector});
        });
        world.settle();
    };
    allocate(&mut world, "elsewhere");
    assert_eq!(phase(&world, "a"), Value::Null);
    allocate(&mut world, "kubegc-node-0");
    assert_eq!(phase(&world, "a"), "Running");
}

/// A deleted pod ends when its containers have ended, or are killed at the end of the grace period.
#[test]
fn a_deleted_pod_ends_after_its_time() {
    struct Case {
        name: &'static str,
        annotation: Option<&'static str>,
        grace: u32,
        /// Milliseconds from the deletion to the end, and the exit code.
        ends: (i64, i64),
        /// True if an Event reports the stopping of the containers when it begins; otherwise when they have ended.
        is_reported: bool,
    }
    let latency = 100;
    for Case { name, annotation, grace, ends: (after, code), is_reported } in [
        Case { name: "by default", annotation: None, grace: 30, ends: (latency, 143), is_reported: false },
        Case { name: "short", annotation: Some("20ms"), grace: 30, ends: (20, 143), is_reported: false },
        Case { name: "long", annotation: Some("5s"), grace: 30, ends: (5000, 143), is_reported: true },
        Case { name: "killed", annotation: Some("5s"), grace: 2, ends: (2000, 137), is_reported: true },
        Case { name: "at once", annotation: Some("0s"), grace: 30, ends: (0, 143), is_reported: false },
        Case {
            name: "unknown",
            annotation: Some("soon"),
            grace: 30,
            ends: (latency, 143),
            is_reported: false,
        },
    ] {
        let settings = Settings { pod_termination_latency: latency, ..Settings::default() };
        let mut world = World::with(settings, Workload::ALL);
        let mut value = pod("a", &json!({}));
        // A finalizer keeps the object, which shows how it ended.
        value["metadata"]["finalizers"] = json!(["example.com/hold"]);
        if let Some(annotation) = annotation {
            value["metadata"]["annotations"] = json!({"kubegc.io/terminates-after": annotation});
        }
        world.create(Kind::Pod, value);
        world.settle();
        // The timestamp has whole seconds only.
        world.now += 730;
        let deleted = world.now;
        world.delete(&Kind::Pod.key("default", "a"), Some(grace));
        world.settle();
        let killing = |world: &World| world.events("a").iter().any(|event| event.starts_with("Killing"));
        if after > 0 {
            assert_eq!(phase(&world, "a"), "Running", "{name}");
            assert_eq!(world.runtime.moving() > 0, after < SOON, "{name}");
            assert_eq!(killing(&world), is_reported, "{name}");
            let observed = &world.get(Kind::Pod, "a")["status"]["observedGeneration"];
            assert_eq!(observed, if is_reported { 2 } else { 1 }, "{name}");
            let due = world.runtime.next_timer();
            assert!(due.is_some_and(|at| at <= deleted + after), "{name}: {due:?}");
            world.now = deleted + after - 1;
            world.settle();
            assert_eq!(phase(&world, "a"), "Running", "{name}");
            world.now += 1;
            world.settle();
        }
        let status = &world.get(Kind::Pod, "a")["status"];
        let ended = &status["containerStatuses"][0]["state"]["terminated"];
        assert_eq!((&status["phase"], &ended["exitCode"]), (&json!("Failed"), &json!(code)), "{name}");
        assert!(killing(&world), "{name}");
        assert_eq!(world.runtime.moving(), 0, "{name}");
    }
}
