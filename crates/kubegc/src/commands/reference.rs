//! `kubegc reference`: generates the pages in docs/reference from the code. A test compares both.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Arg, Args, Command};
use gc_collectors::permissions::Controller;
use gc_metrics::Catalogue;

/// Options of `kubegc reference`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Directory to write to; created if it does not exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// First line of each page.
const ORIGIN: &str =
    "`kubegc reference docs/reference` generates this page; a test compares it with the code.";
/// Heading of flags that have none.
const OTHER_FLAGS: &str = "Options";

/// Writes all pages.
pub(crate) fn run(command: Command, options: &Options) -> anyhow::Result<()> {
    let folder = &options.folder;
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create the directory {}", folder.display()))?;
    for (name, page) in [
        ("command-line.md", command_line(command)),
        ("metrics.md", metrics()),
        ("permissions.md", permissions()),
    ] {
        let path = folder.join(name);
        std::fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn command_line(mut command: Command) -> String {
    command.build();
    let mut page = format!("# Command line\n\nEvery command of kubegc, with its flags. {ORIGIN}\n");
    add_commands(&command, "kubegc", &mut page);
    page
}

fn add_commands(parent: &Command, path: &str, page: &mut String) {
    for command in parent.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help") {
        let path = format!("{path} {}", command.get_name());
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let usage = command.clone().render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ");
        // Writing to a String cannot fail, here and below.
        let _ = write!(page, "\n## {path}\n\n{}.\n\n```text\n{usage}\n```\n", cell(&about));
        let is_inherited = |one: &Arg| parent.get_arguments().any(|other| other.get_id() == one.get_id());
        let shown = |one: &&Arg| {
            let is_built_in = ["help", "version"].contains(&one.get_id().as_str());
            !one.is_hide_set() && !is_built_in && !is_inherited(one)
        };
        let arguments: Vec<&Arg> = command.get_arguments().filter(shown).collect();
        let mut headings: Vec<&str> = Vec::new();
        for argument in &arguments {
            let heading = argument.get_help_heading().unwrap_or(OTHER_FLAGS);
            if !headings.contains(&heading) {
                headings.push(heading);
            }
        }
        for heading in headings {
            let _ = write!(page, "\n{heading}:\n\n| flag | default | meaning |\n|---|---|---|\n");
            for argument in &arguments {
                if argument.get_help_heading().unwrap_or(OTHER_FLAGS) == heading {
                    let _ = writeln!(page, "{}", row(argument));
                }
            }
        }
        add_commands(command, &path, page);
    }
}

/// Returns a flag or argument as a row of a table.
fn row(argument: &Arg) -> String {
    let takes_value = argument.get_action().takes_values();
    let names: Vec<&str> =
        argument.get_value_names().unwrap_or_default().iter().map(clap::builder::Str::as_str).collect();
    let value = if takes_value { names.join(" ") } else { String::new() };
    let name = match (argument.get_short(), argument.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long}"),
        (None, Some(long)) => format!("--{long}"),
        (Some(short), None) => format!("-{short}"),
        (None, None) => String::new(),
    };
    let name = [name, value].into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    let defaults = argument.get_default_values().iter().map(|value| value.to_string_lossy());
    let default = defaults.collect::<Vec<_>>().join(",");
    let default = if default.is_empty() || !takes_value || argument.is_hide_default_value_set() {
        String::new()
    } else {
        format!("`{}`", cell(&default))
    };
    let mut meaning = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let possible = argument.get_possible_values();
    if takes_value && !possible.is_empty() {
        let words: Vec<&str> = possible.iter().map(clap::builder::PossibleValue::get_name).collect();
        let _ = write!(meaning, ": `{}`", words.join("`, `"));
    }
    if let Some(variable) = argument.get_env() {
        let _ = write!(meaning, " (environment: `{}`)", variable.to_string_lossy());
    }
    format!("| `{}` | {default} | {} |", cell(&name), cell(&meaning))
}

/// Escapes a text so that it does not end a table cell.
fn cell(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}

fn permissions() -> String {
    let mut page = format!(
        "# Permissions\n\nThe account of each collector in `kubegc up`, and what it may do. `kubegc rbac --controllers=…` \
         prints what one account\nneeds to run several of them with `kubegc run`. {ORIGIN}\n\n\
         | collector | account | on by default |\n|---|---|---|\n"
    );
    for controller in Controller::ALL {
        let on = if controller.collector().on_by_default { "yes" } else { "no" };
        let account = format!("{}{}", gc_embedded::accounts::PREFIX, controller.account());
        let _ = writeln!(page, "| `{}` | `{account}` | {on} |", controller.name());
    }
    for controller in Controller::ALL {
        let _ = write!(
            page,
            "\n## {}\n\n| API group | resource | names | verbs |\n|---|---|---|---|\n",
            controller.name()
        );
        for rule in controller.rules() {
            let group = if rule.group.is_empty() { "core" } else { rule.group };
            let (names, verbs) = (rule.names.join(", "), rule.verbs.join(", "));
            let _ = writeln!(page, "| `{group}` | `{}` | {names} | {verbs} |", rule.resource);
        }
    }
    page
}

fn metrics() -> String {
    let mut page = format!("# Metrics\n\nEvery metric that kubegc serves, with its labels. {ORIGIN}\n");
    let (mut collectors, mut agent, mut recorder) =
        (Catalogue::default(), Catalogue::default(), Catalogue::default());
    gc_process::collector_metrics::CollectorMetrics::register(&mut collectors);
    gc_inspect::stuck_metrics::StuckMetrics::register(&mut collectors);
    let mut garbage = Catalogue::default();
    gc_inspect::garbage_metrics::GarbageMetrics::register(&mut garbage);
    super::node::register_metrics(&mut agent);
    gc_recovery::status::RecorderStatus::register(&mut recorder);
    let [server, service_levels] = gc_apiserver::catalogues();
    for (heading, origin, catalogue) in [
        (
            "Collectors",
            "`kubegc run`, and `kubegc up` with `--metrics-bind-address`, at `/metrics`",
            collectors,
        ),
        ("Owner references", "`kubegc run`, at `/metrics`", super::run::metrics()),
        ("Leftovers", "`kubegc run` with `--garbage-metrics-interval`, at `/metrics`", garbage),
        ("Node agent", "`kubegc node`, at `/metrics`", agent),
        ("Recorder", "`kubegc recorder` with `--metrics-bind-address`, at `/metrics`", recorder),
        ("API server", "`kubegc apiserver` and `kubegc up`, at `/metrics`", server),
        ("Health checks", "`kubegc apiserver` and `kubegc up`, at `/metrics/slis`", service_levels),
    ] {
        let _ = write!(
            page,
            "\n## {heading}\n\n{origin}:\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n"
        );
        for entry in catalogue.entries() {
            let labels: Vec<String> = entry.labels().iter().map(|label| format!("`{label}`")).collect();
            let help = entry.help.trim_end_matches('.');
            let _ = writeln!(
                page,
                "| `{}` | {} | {} | {} |",
                entry.name(),
                entry.kind(),
                labels.join(", "),
                cell(help)
            );
        }
    }
    page
}
