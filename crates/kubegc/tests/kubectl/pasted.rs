//! Every command that `stuck` prints, in every situation, is pasted into a shell in the printed order, and must work.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use gc_explain::stuck::Row;
use gc_inspect::gather::Scope;
use gc_inspect::stuck;

use super::support::Kubegc;
use crate::situations::{Situation, World, situations};

const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum time of a command in seconds.
const LONGEST: &str = "20";
/// Commands about pods' logs, which this server does not have because it runs no pods.
const LOOKS: [&str; 1] = ["kubectl -n $NAMESPACE logs "];

/// Returns the commands that a row prints, in their order. Some advice is a sentence. `kubegc release` and the command that removes
/// the same finalizer by force are alternatives.
fn printed(row: &Row, releases: bool) -> Vec<String> {
    let is_release = |line: &String| line.starts_with("kubegc release ");
    let has_release = row.cause.help.iter().any(is_release);
    let help = row.cause.help.iter().filter(|line| releases || !is_release(line)).cloned();
    let forces = row.cause.force.iter().chain(&row.other_forces).skip(usize::from(has_release && releases));
    let forces = forces.map(|force| force.command.clone());
    let is_command =
        |line: &String| ["kubectl ", "kubegc ", "echo "].iter().any(|word| line.starts_with(word));
    help.chain(forces).filter(is_command).collect()
}

/// Returns the rows of a situation: those of its namespace, or those about the given object.
async fn rows(world: &World, situation: &Situation, namespace: &str) -> Vec<Row> {
    let gatherer = world.gatherer(situation.later_seconds).await;
    let ask = situation.ask.replace("ns/.", &format!("ns/{namespace}"));
    let named = World::named(&gatherer, namespace, &ask);
    let is_wide = named.namespace.is_empty() && !situation.ask.starts_with("ns/");
    let scope = if is_wide { String::new() } else { namespace.to_owned() };
    let rows =
        stuck::ask(&gatherer, &Scope { namespace: scope, ..Scope::default() }, PATIENCE).await.unwrap().rows;
    let is_own = |row: &Row| {
        let mut places = row.objects.iter().map(|(place, _)| place).chain(&row.waiting);
        !is_wide || places.any(|place| place.name == named.name)
    };
    rows.into_iter().filter(is_own).collect()
}

/// Runs a line as a user would who confirms every prompt. Returns its exit code and its output.
fn pasted(server: &Kubegc, line: &str) -> (i32, String) {
    let mut line = line.to_owned();
    if line.starts_with("kubegc release ") {
        line.push_str(" --yes");
    } else if line.contains(" delete ") && !line.contains("--raw") {
        // No kubelet ends pods here.
        line.push_str(" --wait=false");
    }
    let binary = Path::new(env!("CARGO_BIN_EXE_kubegc")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let output = std::process::Command::new("timeout")
        .args([LONGEST, "sh", "-c", &line])
        .env("KUBECONFIG", &server.kubeconfig)
        .env("HOME", server.folder.path())
        .env("PATH", path)
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (output.status.code().unwrap(), text)
}

#[test]
fn every_command_that_is_printed_for_a_situation_works() {
    let Some(server) = super::server() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut world = runtime.block_on(World::on(&server.kubeconfig));
    let situations = situations();
    let (mut wrong, mut run) = (Vec::new(), BTreeSet::new());
    for (number, situation) in situations.iter().enumerate().filter(|(_, one)| !one.stuck.is_empty()) {
        let namespace = format!("s{number:02}");
        runtime.block_on(world.build(situation, &namespace));
        for row in runtime.block_on(rows(&world, situation, &namespace)) {
            for line in printed(&row, number % 2 == 0) {
                if !run.insert(line.clone()) {
                    continue;
                }
                let (code, text) = pasted(&server, &line);
                // Exit code 1 of `doctor` means that it has found a problem, as it does here: no collector runs.
                let is_right = code == 0 || (code == 1 && line.starts_with("kubegc doctor"));
                let is_look =
                    LOOKS.iter().any(|look| line.starts_with(&look.replace("$NAMESPACE", &namespace)));
                if !is_right && !is_look {
                    wrong.push(format!(
                        "{}: {}: {line}: {code}: {text}",
                        situation.name,
                        row.cause.code.name()
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} commands do not work:\n{}", wrong.len(), run.len(), wrong.join("\n"));
    assert!(run.len() > 60, "{}", run.len());
}
