//! Output of commands other than queries: in a pipe, and on terminals of 80 and of 160 columns.

use std::fmt::Write as _;
use std::process::Stdio;

use super::*;

/// Runs a program on a terminal of a width in columns, and passes on its output.
const ON_A_TERMINAL: &str = "import fcntl, os, pty, struct, sys, termios
pid, terminal = pty.fork()
if pid == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack('HHHH', 24, int(sys.argv[1]), 0, 0))
    os.execvp(sys.argv[2], sys.argv[2:])
try:
    while shown := os.read(terminal, 4096):
        os.write(1, shown)
except OSError:
    pass
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))";

/// Returns the binary on a terminal.
pub(super) fn on_a_terminal(columns: &str) -> Command {
    let mut command = Command::new("python3");
    command.args(["-c", ON_A_TERMINAL, columns, env!("CARGO_BIN_EXE_kubegc")]);
    command
}

/// A server with its collectors, and the texts that differ from run to run: times, secrets and places.
struct Stage {
    server: Kubegc,
    admin: Admin,
}

impl Stage {
    /// Returns the stable part of a line; `None` for a line that a quick run does not have.
    fn shown(&self, line: &str) -> Option<String> {
        if line.contains(" gone") && line.contains("next: ") {
            return None;
        }
        let folder = self.server.folder.path().to_str().unwrap();
        let line = line.replace(&self.server.url, "https://SERVER").replace(folder, "FOLDER");
        let secret = line.split_once("token=").map(|(_, secret)| secret.to_owned());
        let line = secret.map_or(line.clone(), |secret| line.replace(&secret, "TOKEN"));
        let is_of_backup = ["saved ", "restored "].iter().any(|begin| line.starts_with(begin));
        let word = |word: &str| {
            let time = word.trim_start_matches('(').trim_end_matches(':');
            match () {
                () if time.parse::<jiff::Timestamp>().is_ok() => word.replace(time, "TIME"),
                () if is_of_backup && word.parse::<u64>().is_ok() => "NUMBER".to_owned(),
                () => word.to_owned(),
            }
        };
        let line = line.split(' ').map(word).collect::<Vec<_>>().join(" ");
        let took = line.split_once(" deleted in ").map(|(what, _)| format!("{what} deleted in TIME."));
        Some(took.unwrap_or(line))
    }

    /// Runs commands after their preparation; returns their output and exit codes.
    fn said(&self, columns: Option<&str>, lines: &[&[&str]], prepare: &impl Fn(&Self)) -> String {
        prepare(self);
        let folder = self.server.folder.path();
        let mut text = String::new();
        for arguments in lines {
            let mut command =
                columns.map_or_else(|| Command::new(env!("CARGO_BIN_EXE_kubegc")), on_a_terminal);
            let arguments: Vec<String> =
                arguments.iter().map(|part| part.replace("FOLDER", folder.to_str().unwrap())).collect();
            command.args(&arguments).stdin(Stdio::null()).env("NO_COLOR", "1").env("HOME", folder);
            // `down` ends no server but its own.
            command.env("XDG_RUNTIME_DIR", folder);
            let output = command.env("KUBECONFIG", &self.server.kubeconfig).output().unwrap();
            let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap().replace('\r', "");
            let asked = self.shown(&arguments.join(" ")).unwrap_or_default();
            let _ = writeln!(text, "$ kubegc {asked}");
            for line in said.lines().filter_map(|line| self.shown(line)) {
                let _ = writeln!(text, "{}", line.trim_end());
            }
            let _ = writeln!(text, "[{}]", output.status.code().unwrap());
        }
        text
    }

    /// Compares the output of commands in a pipe and on terminals with the recorded screens.
    fn shows(&self, name: &str, lines: &[&[&str]], prepare: impl Fn(&Self)) {
        let mut text = String::new();
        let piped = self.said(None, lines, &prepare);
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(text, "==> pipe\n{piped}");
        for columns in ["80", "160"] {
            let on_terminal = self.said(Some(columns), lines, &prepare);
            let _ = if on_terminal == piped {
                writeln!(text, "==> {columns} columns: the same\n")
            } else {
                writeln!(text, "==> {columns} columns\n{on_terminal}")
            };
        }
        insta::assert_snapshot!(name, text);
    }
}

/// The binary reads the kubeconfig, the clock and the width by itself: only the varying parts are replaced.
#[test]
fn commands_look_as_they_should() {
    let server = Kubegc::start_collectors();
    let stage = Stage { admin: Admin::of(&server), server };
    let nothing = |_: &Stage| ();
    stage.shows("pause", &[&["pause", "--reason", "an incident"], &["pause"]], |stage| {
        ask(&stage.server, &["resume"]);
    });
    stage.shows("resume", &[&["resume", "--resource", "pods"], &["resume"], &["resume"]], |stage| {
        ask(&stage.server, &["pause", "--reason", "an incident"]);
    });
    let delete: [&[&str]; 3] =
        [&["delete", "cm/owner", "-y"], &["delete", "cm/owner", "-y"], &["delete", "cm/held", "--yes"]];
    stage.shows("delete", &delete, |stage| {
        let owner = stage.admin.map("owner", None);
        stage.admin.map("part", Some(("owner", &owner)));
        let (code, mut held) = stage.admin.get(&format!("{MAPS}/held"));
        if code == 200 {
            held["metadata"]["finalizers"] = json!([]);
            stage.admin.send(Method::PUT, &format!("{MAPS}/held"), &held);
        }
        let held = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "held", "finalizers": ["acme.dev/hold"]}});
        stage.admin.create(MAPS, &held);
    });
    stage.shows("policy_new", &[&["policy", "new", "failed-pods"], &["policy", "new", "mine"]], nothing);
    stage.shows("rbac", &[&["rbac"], &["rbac", "--controllers", "ttl-after"]], nothing);
    std::fs::write(stage.server.folder.path().join("policy.yaml"), "maxage: 7d\n").unwrap();
    let recorder: [&[&str]; 2] =
        [&["recorder"], &["recorder", "--records", "FOLDER/records", "--policy", "FOLDER/policy.yaml"]];
    stage.shows("recorder", &recorder, nothing);
    stage.shows("ui", &[&["ui"], &["ui", "--context", "none"]], nothing);
    stage.shows("backup", &[&["backup", "FOLDER/saved"]], |stage| {
        let _ = std::fs::remove_file(stage.server.folder.path().join("saved"));
    });
    let restore: [&[&str]; 2] = [
        &["restore", "FOLDER/saved", "--data-dir", "FOLDER/data"],
        &["restore", "FOLDER/saved", "--data-dir", "FOLDER/data"],
    ];
    stage.shows("restore", &restore, |stage| {
        let _ = std::fs::remove_dir_all(stage.server.folder.path().join("data"));
    });
    stage.shows("down", &[&["down"]], nothing);
}
