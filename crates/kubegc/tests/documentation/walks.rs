//! Walks through the pages as a reader does: their blocks run in order, in an empty directory, beside a server of their own.
//!
//! Marks of a block carry what a page cannot: `setup` runs before it; `starts` makes each of its lines a server that prints this
//! text (and is ended by the next line of the block, or by the end of the page); `file` is the name under which it is saved,
//! `exits` the exit code, and `terminal` the typed input. Manifests are applied as a dry run of the server; code in other languages
//! is compiled.

use std::fmt::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use super::blocks::{Block, of_the_book};
use crate::support::{Kubegc, repository};

/// Directories of a clone that commands name.
const OF_THE_CLONE: [&str; 4] = ["conformance", "crates", "deploy", "scripts"];
/// kubegc with a free port if a page names none: several pages run at once.
const KUBEGC: &str = r#"#!/bin/bash
case " $1 ${*%% -- *} " in
*" --bind-address"*) ;;
" up "* | " apiserver "* | " run "*) set -- "$1" --bind-address 127.0.0.1:0 "${@:2}" ;;
esac
exec "$KUBEGC" "$@"
"#;
/// Trap that names the block and the failed command. A block with its own exit code removes it.
const TRAP: &str = "trap 'echo \"$at: exit code $?: $BASH_COMMAND\" >&2' ERR\n";
/// Functions of the script that runs a page.
const PRELUDE: &str = r#"set -Eeuo pipefail
at=beginning
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT
fail() { echo "$at: $*" >&2; exit 1; }
server=
# Runs a line in the background until it prints a text, and pastes the line for KUBECONFIG, as a reader does.
start() {
  local log; log=$(mktemp "$TMPDIR/server.XXXXXX")
  bash -c "exec $2" >"$log" 2>&1 </dev/null &
  server=$!
  for ((i = 0; i < 1200; i++)); do
    if grep -qF -- "$1" "$log"; then
      eval "$(grep -o 'export KUBECONFIG=.*' "$log" | head -n 1 || true)"
      return
    fi
    kill -0 "$server" 2>/dev/null || break
    sleep 0.05
  done
  cat "$log" >&2
  fail "did not print '$1': $2"
}
end() { kill "$server"; wait "$server" || true; }
# Compares the heading of what a command prints with that of the page, and shows the command that a difference is about.
prints() {
  local expected=$1 command=$2 output
  output=$(eval "$command" 2>&1) || fail "$command: $output"
  echo "$output"
  [[ $expected =~ ^[A-Z\ -]+$ ]] || return 0
  [ "$(head -n 1 <<<"$output" | xargs)" = "$(xargs <<<"$expected")" ] || fail "$command printed $output"
}
"#;

/// Quotes a text for a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Returns the lines of a shell block, each joined with its continuation lines.
fn joined(block: &Block) -> Vec<String> {
    let text = block.text().replace("\\\n", " ");
    let is_command = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    text.lines().filter(is_command).map(str::to_owned).collect()
}

/// Returns the commands that run a shell block, according to its marks.
fn shell(block: &Block) -> String {
    let text = block.text();
    if let Some(printed) = block.marks.get("starts") {
        let start = |line: &String| format!("start {} {}\n", quoted(printed), quoted(line));
        return joined(block).iter().map(start).collect::<Vec<_>>().join("end\n");
    }
    if let Some(typed) = block.marks.get("terminal") {
        return format!("printf '%s\\n' {} | script -qec {} /dev/null\n", quoted(typed), quoted(&text));
    }
    match block.marks.get("exits") {
        Some(code) => format!(
            "set +e; trap - ERR; ( set -e\n{text}\n); code=$?; set -e\n[ \"$code\" = {code} ] || fail \"exit code $code\"\n"
        ),
        None => format!("{text}\n"),
    }
}

/// Returns the commands that run a session and compare the headings of its output.
fn session(block: &Block) -> String {
    let mut script = String::new();
    let mut lines = block.lines.iter().peekable();
    while let Some(line) = lines.next() {
        if let Some(command) = line.strip_prefix("$ ") {
            let heading = lines.peek().filter(|next| !next.starts_with("$ ")).map_or("", |next| next);
            writeln!(script, "prints {} {}", quoted(heading), quoted(command)).unwrap();
        }
    }
    script
}

/// Returns the command that checks a block saved as a file.
fn check(language: &str, file: &str) -> String {
    match language {
        "yaml" => format!("kubectl apply --dry-run=server -f {file}\n"),
        "json" => format!("python3 -m json.tool {file} >/dev/null\n"),
        "python" => format!("python3 -m py_compile {file}\n"),
        "js" => format!("node --check {file}\n"),
        _ => format!("python3 -c 'import sys, tomllib; tomllib.load(open(sys.argv[1], \"rb\"))' {file}\n"),
    }
}

/// Returns the script that runs a page.
fn script(page: &str, blocks: &[Block]) -> String {
    let mut script = PRELUDE.to_owned();
    for block in blocks.iter().filter(|block| block.is_walked()) {
        script.push_str(TRAP);
        let setup = block.marks.get("setup").unwrap_or(":");
        writeln!(script, "at={page}:{}\necho \"== $at\"\n{setup}", block.number).unwrap();
        script += &match block.language.as_str() {
            "sh" => shell(block),
            "console" => session(block),
            language => {
                let ending = if language == "js" { "mjs" } else { language };
                let named = block.marks.get("file").map(str::to_owned);
                let file = named.clone().unwrap_or_else(|| format!("block-{}.{ending}", block.number));
                let is_manifest =
                    language != "yaml" || block.lines.iter().any(|line| line.starts_with("kind:"));
                let saved = format!("cat >{file} <<'END-OF-BLOCK'\n{}\nEND-OF-BLOCK\n", block.text());
                saved
                    + &if is_manifest && !is_of_kubegc(block) {
                        check(language, &file)
                    } else {
                        String::new()
                    }
            }
        };
    }
    script
}

/// Reports whether a block is a file that only kubegc reads and no server knows: a command of the page reads it.
fn is_of_kubegc(block: &Block) -> bool {
    ["MachineInventory", "KubeControllerManagerConfiguration"]
        .iter()
        .any(|kind| block.lines.contains(&format!("kind: {kind}")))
}

/// Runs the blocks of a page in an empty directory, beside a server that `$KUBECONFIG` and `~/.kube/config` name.
fn walk(page: &str) {
    if !has_programs() {
        return;
    }
    let book = of_the_book();
    let server = Kubegc::start("up");
    let folder = tempfile::tempdir().unwrap();
    let root = repository();
    for name in OF_THE_CLONE {
        symlink(root.join(name), folder.path().join(name)).unwrap();
    }
    for name in ["bin", "tmp", ".kube"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    let program = folder.path().join("bin/kubegc");
    std::fs::write(&program, KUBEGC).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let kubeconfig = folder.path().join(".kube/config");
    std::fs::copy(&server.kubeconfig, &kubeconfig).unwrap();
    let file = folder.path().join("page.sh");
    std::fs::write(&file, script(page, &book[page])).unwrap();
    assert!(
        run(&file, folder.path(), &kubeconfig),
        "the last lines above say which command of {page} failed"
    );
}

/// Runs a script to its end; reports whether it succeeded. It prints its commands, and ends everything that it started.
fn run(file: &Path, folder: &Path, kubeconfig: &Path) -> bool {
    let python = repository().join("target/python/bin");
    let path = std::env::var("PATH").unwrap();
    let status = Command::new("bash")
        .arg(file)
        .current_dir(folder)
        .env("PATH", format!("{}:{path}:{}", folder.join("bin").display(), python.display()))
        .env("KUBEGC", env!("CARGO_BIN_EXE_kubegc"))
        .env("KUBECONFIG", kubeconfig)
        .env("HOME", folder)
        .env("TMPDIR", folder.join("tmp"))
        .env_remove("XDG_DATA_HOME")
        .stdin(Stdio::null())
        .status()
        .unwrap();
    status.success()
}

/// Reports whether the programs that pages call are installed; CI must have them.
fn has_programs() -> bool {
    let is_missing =
        |name: &&str| !Command::new("which").arg(name).output().is_ok_and(|output| output.status.success());
    let missing: Vec<&str> = ["kubectl", "python3", "node", "jq", "curl", "script"]
        .into_iter()
        .filter(|name| is_missing(name))
        .collect();
    assert!(missing.is_empty() || std::env::var_os("CI").is_none(), "CI must have {missing:?}");
    if !missing.is_empty() {
        eprintln!("SKIPPED: {missing:?} not found");
    }
    missing.is_empty()
}

/// Defines a test for each page, and their list.
macro_rules! walks {
    ($($name:ident: $page:literal,)+) => {
        $(#[test]
        fn $name() {
            walk($page);
        })+

        const PAGES: &[&str] = &[$($page),+];
    };
}

walks! {
    readme: "README.md",
    backup: "docs/backup.md",
    garbage: "docs/garbage.md",
    journal: "docs/journal.md",
    machines: "docs/machines.md",
    mcp: "docs/mcp.md",
    node_policy: "docs/node-policy.md",
    operating: "docs/operating.md",
    page: "docs/page.md",
    questions: "docs/questions.md",
    quickstart: "docs/quickstart.md",
    recovery: "docs/recovery.md",
    retention_policy: "docs/retention-policy.md",
    running: "docs/run.md",
    testing: "docs/testing.md",
    tutorial_recovery: "docs/tutorial-recovery.md",
    tutorial: "docs/tutorial.md",
    uninstall: "docs/uninstall.md",
    workloads: "docs/workloads.md",
}

/// Runs the quickstart from its first command to a cascade, on a control plane from which kubegc takes over the owner-reference
/// collector.
#[test]
fn a_stranger_protects_a_cluster() {
    if has_programs() {
        let mut script = Command::new(repository().join("scripts/first-mile"));
        assert!(script.args(["--binary", env!("CARGO_BIN_EXE_kubegc")]).status().unwrap().success());
    }
}

#[test]
fn every_page_with_commands_is_walked() {
    let book = of_the_book();
    let with_commands: Vec<&str> = book
        .iter()
        .filter(|(_, blocks)| blocks.iter().any(Block::is_walked))
        .map(|(page, _)| page.as_str())
        .collect();
    assert_eq!(with_commands, PAGES);
}
