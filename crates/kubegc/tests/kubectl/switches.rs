//! Flags of `kubegc up` that change the behaviour of its collectors and simulated nodes.

use std::time::Duration;

use super::*;
use crate::collectors::{Up, bound};
use crate::driver::Driver;

/// Drivers that serve one node delete the volumes of that node, and leave those of other nodes to their own drivers.
#[test]
fn volumes_of_another_node_are_left_to_its_driver() {
    let driver = Driver::start("local.example.com");
    let endpoint = driver.endpoint();
    let arguments =
        ["--csi-endpoint", &endpoint, "--csi-topology", "example.com/node=here"].map(str::to_owned);
    let Some(up) = Up::start(&arguments) else { return };
    up.apply(
        &json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"},
        "provisioner": "local.example.com"}),
    );
    let annotations = json!({"pv.kubernetes.io/provisioned-by": "local.example.com"});
    for node in ["here", "elsewhere"] {
        driver.make_volume(node);
        let term =
            json!({"matchExpressions": [{"key": "example.com/node", "operator": "In", "values": [node]}]});
        let source = json!({"csi": {"driver": "local.example.com", "volumeHandle": node},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}});
        bound(&up, node, "Delete", &source, &annotations);
    }
    up.run(&["delete", "pvc", "here", "elsewhere", "--timeout=20s"]);
    up.until_gone("pv/here");
    up.until("the release of the other", || up.field("pv/elsewhere", ".status.phase") == "Released");
    up.pass(Duration::from_hours(24));
    // All due work is done by then.
    up.run(&["create", "--raw", "/kubegc/v1/settle?timeout=30s", "-f", "-"]);
    assert!(driver.has_volume("elsewhere") && up.exists("pv/elsewhere"));
    let asked: Vec<String> = driver.state().deletions.iter().map(|(volume, _)| volume.clone()).collect();
    assert_eq!(asked, ["here"]);
}

/// Simulated pods take their time, by the server's clock.
#[test]
fn simulated_pods_start_and_end_after_their_latencies() {
    let flags = ["--workloads=on", "--nodes=1", "--pod-start-latency=1h", "--pod-termination-latency=2h"];
    let Some(up) = Up::start(&flags.map(str::to_owned)) else { return };
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "slow"},
        "spec": {"terminationGracePeriodSeconds": 86_400, "containers": [{"name": "c", "image": "i"}]}});
    up.until("the account of pods", || up.exists("serviceaccount/default"));
    up.apply(&pod);
    up.until("its node", || !up.field("pod/slow", ".spec.nodeName").is_empty());
    assert_ne!(up.field("pod/slow", ".status.phase"), "Running");
    up.pass(Duration::from_mins(61));
    up.until("its start", || up.field("pod/slow", ".status.phase") == "Running");
    up.run(&["delete", "pod", "slow", "--wait=false"]);
    assert!(up.exists("pod/slow"));
    up.pass(Duration::from_mins(121));
    up.until_gone("pod/slow");
}
