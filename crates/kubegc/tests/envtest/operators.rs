//! `scripts/operators` with suites that need no compiler: scripts that report like Ginkgo and Go's tests.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Reports like a suite of Ginkgo. On the kube-apiserver of this test, everything passes except flaky specs.
const GINKGO: &str = r#"#!/usr/bin/env python3
# github.com/onsi/ginkgo/v2
import json, os, subprocess, sys
flags = dict(word.lstrip("-").partition("=")[::2] for word in sys.argv[1:])
server = os.environ["KUBEBUILDER_ASSETS"] + "/kube-apiserver"
genuine = "genuine" in subprocess.run([server, "--version"], capture_output=True, text=True).stdout
controllers = os.environ["KUBEGC_ENVTEST_CONTROLLERS"]
seed = int(flags["ginkgo.seed"])
print("\x16=== RUN   TestAPIs\nRunning Suite: APIs - " + os.getcwd())
def spec(name, state, kind="It"):
    failure = {"Failure": {"Message": "expected | to\nequal"}} if state == "failed" else {}
    return {"ContainerHierarchyTexts": ["Widget"], "LeafNodeType": kind, "LeafNodeText": name, "State": state, **failure}
specs = [
    spec("", "passed", "BeforeSuite"),
    spec("is created", "passed"),
    spec("is pending", "pending"),
    spec("is converted", "passed" if genuine else "failed"),
    spec("is timed", "passed" if seed != 2 or not genuine else "timedout"),
    spec("is collected", "passed" if genuine or not controllers else "panicked"),
    spec("has one name twice", "failed"),
    spec("has one name twice", "passed"),
]
with open(flags["ginkgo.json-report"], "w") as report:
    json.dump([{"SuiteDescription": "APIs", "SpecReports": specs}], report)
print("\x16--- FAIL: TestAPIs (0.10s)\n\x16=== RUN   TestUnit\n\x16--- PASS: TestUnit (0.00s)")
"#;

/// Reports like tests of Go without Ginkgo, and must run in its own directory.
const PLAIN: &str = r#"#!/bin/sh
test -e definitions.yaml || exit 3
printf '\026=== RUN   TestOne\n\026=== RUN   TestOne/in_turn\n'
if "$KUBEBUILDER_ASSETS/kube-apiserver" --version | grep -q genuine; then
    printf '\026    --- PASS: TestOne/in_turn (0.00s)\n\026--- PASS: TestOne (0.00s)\n'
else
    printf '\026    --- FAIL: TestOne/in_turn (0.00s)\n        one_test.go:3: it waits\n\026--- FAIL: TestOne (0.00s)\n'
fi
printf '\026=== RUN   TestTwo\n\026--- SKIP: TestTwo (0.00s)\n'
"#;

/// Reports like a suite of Ginkgo whose time is over: some tests have passed, and there is no report.
const STOPPED: &str = r"#!/bin/sh
# github.com/onsi/ginkgo/v2
printf '\026=== RUN   TestUnit\n\026--- PASS: TestUnit (0.00s)\n\026=== RUN   TestAPIs\nRunning Suite: APIs - /\n'
echo 'panic: test timed out after 1s'
exit 2
";

/// Stands for a program of a genuine control plane.
const GENUINE: &str = "#!/bin/sh\necho 'Kubernetes genuine'\n";

fn program(path: &Path, text: &str) -> PathBuf {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.to_owned()
}

struct Suites {
    folder: tempfile::TempDir,
    ginkgo: PathBuf,
    plain: String,
}

impl Suites {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["genuine", "package"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        for name in ["kube-apiserver", "etcd"] {
            program(&at("genuine").join(name), GENUINE);
        }
        std::fs::write(at("package/definitions.yaml"), "").unwrap();
        let plain = program(&at("plain.test"), PLAIN);
        let plain = format!("{}@{}", plain.display(), at("package").display());
        Self { ginkgo: program(&at("widgets.test"), GINKGO), plain, folder }
    }

    fn compare(&self, causes: &str, further: &[&str]) -> (Output, String) {
        let at = |name: &str| self.folder.path().join(name);
        std::fs::write(at("causes.toml"), causes).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/operators");
        let output = Command::new(script)
            .arg(&self.ginkgo)
            .arg(&self.plain)
            .args(["--binary", env!("CARGO_BIN_EXE_kubegc"), "--causes"])
            .arg(at("causes.toml"))
            .arg("--table")
            .arg(at("table.md"))
            .args(further)
            .output()
            .unwrap();
        let table = std::fs::read_to_string(at("table.md")).unwrap_or_default();
        (output, table)
    }

    fn genuine(&self) -> String {
        self.folder.path().join("genuine").display().to_string()
    }
}

/// Returns the cells of a row up to the differences; the others are measurements.
fn counts(table: &str, suite: &str) -> Vec<String> {
    let row = table.lines().find(|line| line.starts_with(&format!("| {suite} |"))).unwrap_or_default();
    row.split('|').skip(2).take(6).map(|cell| cell.trim().to_owned()).collect()
}

const CAUSE: &str = "[[cause]]\nsuite = '^plain$'\nspec = '^TestOne'\nwhy = 'known for long'\n";

#[test]
fn suites_are_compared_with_what_is_stable_on_the_genuine_control_plane() {
    let suites = Suites::new();
    let (output, table) = suites.compare(CAUSE, &["--genuine", &suites.genuine(), "--controllers", "*"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}{table}");
    // Specs, omitted, passed on either, differences, unexplained differences.
    assert_eq!(counts(&table, "widgets"), ["6", "1", "4", "3", "1", "1"], "{table}");
    assert_eq!(counts(&table, "widgets, *"), ["6", "1", "4", "2", "2", "2"], "{table}");
    assert_eq!(counts(&table, "plain"), ["3", "0", "2", "0", "2", "0"], "{table}");
    for row in [
        "| widgets | APIs: Widget is converted | passed | failed | unexplained: expected \\| to equal |",
        "| widgets, * | APIs: Widget is collected | passed | failed | unexplained: panicked |",
        "| plain | TestOne/in_turn | passed | failed | known for long |",
        "- APIs: Widget is timed",
    ] {
        assert!(table.lines().any(|line| line == row), "{row}\n{table}");
    }
    assert!(!table.contains("TestAPIs"), "the test that runs the specs is no spec:\n{table}");
}

#[test]
fn suites_whose_differences_have_causes_succeed() {
    let suites = Suites::new();
    let causes = format!("{CAUSE}[[cause]]\nsuite = 'widgets'\nspec = 'is converted$'\nwhy = 'also known'\n");
    let (output, table) = suites.compare(&causes, &["--genuine", &suites.genuine(), "--runs", "2"]);
    assert_eq!(output.status.code(), Some(0), "{}{table}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(counts(&table, "widgets"), ["6", "1", "4", "3", "1", "0"], "{table}");
}

/// A cause that lies in the collectors explains nothing where none runs.
#[test]
fn a_cause_in_the_collectors_explains_runs_with_them() {
    let suites = Suites::new();
    let rule = "[[cause]]\nsuite = 'widgets'\nspec = 'is (converted|collected)$'\ncontrollers = true\nwhy = 'collected'\n";
    let further = ["--genuine", &suites.genuine(), "--controllers", "*", "--runs", "2"];
    let (output, table) = suites.compare(&format!("{CAUSE}{rule}"), &further);
    assert_eq!(output.status.code(), Some(1), "{}{table}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(counts(&table, "widgets"), ["6", "1", "4", "3", "1", "1"], "{table}");
    assert_eq!(counts(&table, "widgets, *"), ["6", "1", "4", "2", "2", "0"], "{table}");
}

#[test]
fn suites_without_a_reference_must_pass() {
    let suites = Suites::new();
    let (output, table) = suites.compare("", &["--runs", "1"]);
    assert_eq!(output.status.code(), Some(1), "{}{table}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(counts(&table, "widgets"), ["7", "0", "–", "4", "2", "2"], "{table}");
    assert_eq!(counts(&table, "plain"), ["3", "0", "–", "0", "2", "2"], "{table}");
}

#[test]
fn what_cannot_be_run_is_reported() {
    let suites = Suites::new();
    let missing = suites.folder.path().display().to_string();
    let (output, _) = suites.compare("", &["--genuine", &missing]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("has no program kube-apiserver"), "{error}");
}

/// A suite that is stopped on both control planes has no differences, but its specs were not compared.
#[test]
fn suites_that_do_not_end_in_time_fail() {
    let mut suites = Suites::new();
    suites.ginkgo = program(&suites.folder.path().join("stopped.test"), STOPPED);
    let (output, table) = suites.compare(CAUSE, &["--genuine", &suites.genuine(), "--runs", "1"]);
    assert_eq!(output.status.code(), Some(1), "{}{table}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(counts(&table, "stopped"), ["1", "0", "1", "1", "0", "0"], "{table}");
    assert!(table.lines().any(|line| line == "- stopped"), "{table}");
}
