//! The help of the program itself: its commands by task, listed with `-h` and described with `--help`.

use std::fmt::Write as _;

use clap::Command;

/// Commands by task, in the order in which users meet them.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Try", &["up", "down", "demo", "ui", "top"]),
    ("Ask", &["stuck", "why", "tree", "plan", "garbage", "journal", "doctor", "mcp"]),
    ("Operate", &["run", "node", "delete", "protect", "release", "pause", "resume", "policy", "rbac"]),
    ("Recover", &["recorder", "undo", "relink", "backup", "restore"]),
    ("Develop", &["apiserver", "envtest", "completion", "version"]),
];
/// Template without the command list, because clap cannot divide that into groups; the groups come last.
const TEMPLATE: &str = "{about-with-newline}\n{usage-heading} {usage}{after-help}\n\nOptions:\n{options}";

/// Lists the commands of a program by task.
pub(crate) fn by_task(command: Command) -> Command {
    let (short, long) = (names(), descriptions(&command));
    command.help_template(TEMPLATE).after_help(short).after_long_help(long)
}

/// Returns a line per group.
fn names() -> String {
    let mut text = String::new();
    for (group, commands) in GROUPS {
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(text, "{group:>9}  {}", commands.join(", "));
    }
    text.push_str("\nkubegc --help describes the commands, kubegc COMMAND --help each one.");
    text
}

/// Returns a line per command.
fn descriptions(command: &Command) -> String {
    let mut text = String::new();
    for (group, commands) in GROUPS {
        let gap = if text.is_empty() { "" } else { "\n" };
        let _ = writeln!(text, "{gap}{group}:");
        for name in commands {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {name:<10}  {about}");
        }
    }
    text.push_str("\nkubegc COMMAND --help describes a command.");
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::collections::BTreeSet;

    use super::*;

    /// Number of lines of a terminal.
    const SCREEN: usize = 24;

    #[test]
    fn every_command_is_in_one_group() {
        let command = crate::described();
        let all = command.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help");
        let all: BTreeSet<&str> = all.map(Command::get_name).collect();
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        assert_eq!(grouped.iter().copied().collect::<BTreeSet<_>>(), all);
        assert_eq!(grouped.len(), all.len(), "each command is in one group");
    }

    /// README.md has the same groups as the help.
    #[test]
    fn the_readme_groups_the_commands_as_the_help_does() {
        let readme =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
        for (group, names) in GROUPS {
            let start = format!("| {}: ", group.to_lowercase());
            let row = readme.lines().find(|line| line.starts_with(&start)).expect(group);
            let commands = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
            let listed = commands.split('`').skip(1).step_by(2).filter(|command| *command != "up -- CMD");
            assert_eq!(listed.collect::<BTreeSet<_>>(), names.iter().copied().collect(), "{row}");
        }
    }

    #[test]
    fn the_short_help_fits_a_screen_and_the_long_one_describes_everything() {
        let short = crate::described().render_help().to_string();
        assert!(short.lines().count() <= SCREEN, "{short}");
        assert!(short.lines().all(|line| line.chars().count() <= 80), "{short}");
        let long = crate::described().render_long_help().to_string();
        for (group, names) in GROUPS {
            assert!(short.contains(group) && long.contains(&format!("\n{group}:\n")), "{long}");
            for name in names {
                assert!(long.contains(&format!("\n  {name} ")), "{name}: {long}");
            }
        }
        assert!(!long.contains("\nCommands:"), "{long}");
    }
}
