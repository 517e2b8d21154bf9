//! Files of the agent: a kubelet's configuration as its own or beside it, and the forms of its output.

use std::process::Command;

use serde_json::Value;

use crate::fake::{Fake, container, image, image_id, sandbox};
use crate::{EXITED, agent, said};

/// CRI's state of a running container.
const RUNNING: i32 = 1;
const HEADER: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

/// T175: a kubelet on the same node that would compete with the agent is named at the start; one that does not, or no kubelet, is
/// not.
#[test]
fn a_kubelet_that_would_fight_is_named() {
    let fake = Fake::start();
    let path = fake.folder().join("kubelet.yaml");
    let off = "imageGCHighThresholdPercent: 100\nimageGCLowThresholdPercent: 99\nimageMaximumGCAge: 0s\n";
    let early = ["--image-gc-high-threshold", "80", "--image-gc-low-threshold", "70"];
    for (content, expected) in [
        (None, None),
        (Some(String::new()), Some("the kubelet on this node also collects images")),
        (Some(HEADER.to_owned()), Some("the kubelet on this node also collects images")),
        (Some(format!("{HEADER}{off}")), None),
        (
            Some(format!("{HEADER}{off}evictionHard:\n  imagefs.available: 25%\n")),
            Some("removes every unused image once imagefs.available falls below 25%"),
        ),
        (Some("a: [".into()), Some("cannot find out whether the kubelet on this node collects as well")),
    ] {
        let _ = std::fs::remove_file(&path);
        if let Some(content) = &content {
            std::fs::write(&path, content).unwrap();
        }
        let question = ["images", "--log-level", "warn", "--kubelet-config", path.to_str().unwrap()];
        let (exit, text) = said(agent(&fake, &question).args(early));
        assert_eq!(exit, Some(0), "{content:?}: {text}");
        let warnings: Vec<&str> = text.lines().filter(|line| line.contains("WARN")).collect();
        assert_eq!(warnings.len(), usize::from(expected.is_some()), "{content:?}: {text}");
        assert!(expected.is_none_or(|words| warnings[0].contains(words)), "{content:?}: {text}");
    }
}

/// The agent accepts the kubelet's own file: the fields that concern it count, and other fields are ignored with a notice.
#[test]
fn a_configuration_of_the_kubelet_is_taken() {
    let fake = Fake::start();
    fake.state().images = (1..=2).map(|n| image(n, n)).collect();
    let path = fake.folder().join("config.yaml");
    let other = "clusterDNS: [10.96.0.10]\nmaxPods: 200\nauthentication:\n  anonymous:\n    enabled: false\n";
    let endpoint = fake.endpoint();
    std::fs::write(&path, format!("{HEADER}containerRuntimeEndpoint: {endpoint}\nimageGCHighThresholdPercent: 1\nimageGCLowThresholdPercent: 0\n{other}")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubegc"));
    command.args([
        "node",
        "--once",
        "--collect",
        "images",
        "--kubeconfig",
        "",
        "--kubelet-config",
        "/nonexistent",
    ]);
    command.args(["--minimum-image-ttl-duration", "0s"]).arg("--config").arg(&path);
    let (_, text) = said(command.arg("--data-dir").arg(fake.folder().join("state")));
    assert!(fake.state().images.is_empty(), "the thresholds of the file are crossed: {text}");
    let notice =
        "fields that do not concern collection, which are ignored: authentication, clusterDNS, maxPods";
    assert_eq!(text.matches(notice).count(), 1, "{text}");
    assert!(text.contains("INFO"), "a notice, no warning: {text}");
}

/// Images and containers can be shown in each output format.
#[test]
fn answers_come_in_every_form() {
    let fake = Fake::start();
    let layer = |digit: &str| format!("sha256:{}", digit.repeat(64));
    {
        let mut state = fake.state();
        state.images = (1..=3).map(|n| image(n, n << 30)).collect();
        state.layers = [
            (image_id(1), vec![layer("a"), layer("b")]),
            (image_id(2), vec![layer("a"), layer("c"), layer("d"), layer("e")]),
        ]
        .into();
        state.sandboxes = vec![sandbox("pod", 0)];
        state.containers = vec![container("pod", "c", 0, EXITED, 1), container("pod", "c", 1, RUNNING, 1)];
    }
    let ask = |question: &str, form: &str| {
        let (exit, text) = said(agent(&fake, &["--log-level", "warn"]).args([question, "-o", form]));
        assert_eq!(exit, Some(0), "{question} -o {form}: {text}");
        text
    };
    let document: Value = serde_json::from_str(&ask("images", "json")).unwrap();
    let of = |key: &str| -> Vec<Value> {
        document["images"].as_array().unwrap().iter().map(|one| one[key].clone()).collect()
    };
    assert_eq!(of("id"), [1, 2, 3].map(|number| Value::from(image_id(number))));
    assert_eq!(of("sizeBytes"), [1_u64, 2, 3].map(|size| Value::from(size << 30)));
    let shared = [Value::from(1_u64 << 29), Value::from(1_u64 << 29), Value::Null];
    assert_eq!(of("sharedBytes"), shared, "one of two layers, one of four, and unknown");
    assert!(of("lastUsedUnixNanoseconds")[0].is_i64() && of("lastUsedUnixNanoseconds")[1].is_null());
    // No agent has run here yet: the verdicts are those of a daemon two minutes later.
    assert_eq!(of("verdict"), ["in use", "remove when space is needed", "remove when space is needed"]);
    assert_eq!(document["firstContact"], true);

    let table = ask("images", "table");
    let cells = |line: &str| -> Vec<String> {
        line.split("   ").map(|cell| cell.trim().to_owned()).filter(|cell| !cell.is_empty()).collect()
    };
    let rows: Vec<Vec<String>> = table.lines().map(cells).collect();
    assert_eq!(rows[0], ["IMAGE", "ID", "SIZE", "SHARED", "AGE", "LAST USED", "VERDICT"]);
    let first = ["registry.example/image-1:v1", "000000000000", "1.0 GiB", "512.0 MiB", "0s", "0s", "in use"];
    assert_eq!(rows[1], first);
    assert_eq!(rows[3][3..6], ["-", "0s", "never"], "{table}");
    assert!(ask("images", "wide").contains(&image_id(1)));

    for question in ["images", "containers"] {
        let (json, yaml) = (ask(question, "json"), ask(question, "yaml"));
        let (mut json, mut yaml): (Value, Value) =
            (serde_json::from_str(&json).unwrap(), serde_saphyr::from_str(&yaml).unwrap());
        for moment in ["firstSeenUnixNanoseconds", "lastUsedUnixNanoseconds"] {
            for document in [&mut json, &mut yaml] {
                for one in document[question].as_array_mut().unwrap() {
                    one.as_object_mut().unwrap().remove(moment);
                }
            }
        }
        assert_eq!(json, yaml, "{question}");
    }
    let containers: Value = serde_json::from_str(&ask("containers", "json")).unwrap();
    let states: Vec<&Value> =
        containers["containers"].as_array().unwrap().iter().map(|one| &one["state"]).collect();
    assert_eq!(states, ["Running", "Exited"]);
    let wide = ask("containers", "wide");
    assert!(wide.contains("container-pod-c-0") && !ask("containers", "table").contains("container-pod-c-0"));
    assert!(wide.contains("No cluster is asked which pods exist"), "{wide}");
    assert!(fake.state().called("RemoveImage").is_empty() && !fake.folder().join("state").exists());
}
