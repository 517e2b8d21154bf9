//! Parses flags as Go programs do: one dash or two, the value after `=` or as the next word.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// A flag that the real program has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flag {
    pub(super) name: &'static str,
    /// The flag may be given without a value, and never takes the next word.
    pub(super) is_switch: bool,
    /// Effect of the flag here.
    pub(super) effect: Effect,
}

/// Effect of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Same effect as in the real program.
    Full,
    /// Accepted, without effect.
    None,
    /// Refused with an error.
    Refused,
}

/// The flags that were given, by name and in order, and those without effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GivenFlags {
    values: BTreeMap<&'static str, Vec<String>>,
    /// Known flags that have no effect here.
    pub(super) without_effect: BTreeSet<&'static str>,
    /// True if `--help` was given.
    pub(super) help: bool,
    /// True if `--version` was given.
    pub(super) version: bool,
}

impl GivenFlags {
    /// Returns the last value given for a flag.
    pub(super) fn last(&self, name: &str) -> Option<&str> {
        self.values.get(name)?.last().map(String::as_str)
    }

    /// Returns all values given for a flag, in order.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.values.get(name).into_iter().flatten().map(String::as_str)
    }

    /// Returns every flag that was given, with its value, or a list of values.
    pub(super) fn shown(&self) -> BTreeMap<String, String> {
        let shown = |values: &[String]| match values {
            [one] => one.clone(),
            several => format!("[{}]", several.join(",")),
        };
        self.values.iter().map(|(name, values)| ((*name).to_owned(), shown(values))).collect()
    }

    /// Parses a boolean flag as Go does; `None` if it was not given.
    pub(super) fn switch(&self, name: &str) -> Result<Option<bool>, FlagError> {
        let Some(text) = self.last(name) else { return Ok(None) };
        match text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Some(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Some(false)),
            _ => Err(FlagError::NoSwitch { name: name.to_owned(), text: text.to_owned() }),
        }
    }

    /// Returns the words of a list, which may be spread over several flags.
    pub(super) fn words(&self, name: &str) -> impl Iterator<Item = &str> {
        self.all(name).flat_map(|list| list.split(',')).map(str::trim).filter(|word| !word.is_empty())
    }
}

/// The reason why arguments are refused, as a line for the user.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FlagError {
    /// A flag that the real program does not have either.
    #[error("unknown flag: --{0}")]
    Unknown(String),
    /// A flag that the real program has, and whose purpose this one cannot fulfil.
    #[error("--{0} is not supported: without it, requests would be let in that it is to refuse")]
    Refused(String),
    /// A boolean flag whose value is neither true nor false.
    #[error(
        "invalid argument {text:?} for \"--{name}\" flag: strconv.ParseBool: parsing {text:?}: invalid syntax"
    )]
    NoSwitch {
        /// The flag.
        name: String,
        /// The given text.
        text: String,
    },
    /// The arguments end before the flag's value.
    #[error("flag needs an argument: --{0}")]
    NoValue(String),
    /// An argument that is not a flag.
    #[error("unknown argument {0:?}: only flags are expected")]
    NoFlag(String),
}

/// Parses arguments with a table of flags.
pub(super) fn parse(
    known: &[Flag],
    arguments: impl IntoIterator<Item = String>,
) -> Result<GivenFlags, FlagError> {
    let mut given = GivenFlags::default();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let Some(text) = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')) else {
            return Err(FlagError::NoFlag(argument));
        };
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        match name {
            "help" | "h" => given.help = true,
            "version" => given.version = true,
            _ => {
                let flag = known.iter().find(|flag| flag.name == name);
                let flag = flag.ok_or_else(|| FlagError::Unknown(name.to_owned()))?;
                let value = match value {
                    Some(value) => value,
                    None if flag.is_switch => "true".to_owned(),
                    None => arguments.next().ok_or_else(|| FlagError::NoValue(name.to_owned()))?,
                };
                given.values.entry(flag.name).or_default().push(value);
                match flag.effect {
                    Effect::Full => {}
                    Effect::None => _ = given.without_effect.insert(flag.name),
                    Effect::Refused => return Err(FlagError::Refused(name.to_owned())),
                }
            }
        }
    }
    Ok(given)
}

/// Returns the `--help` text: one line per flag.
pub(super) fn help(program: &str, about: &str, known: &[Flag]) -> String {
    let mut text = format!("{about}\n\nUsage:\n  {program} [flags]\n\nFlags:\n");
    for flag in known {
        let value = if flag.is_switch { "" } else { " string" };
        let remark = match flag.effect {
            Effect::Full => "",
            Effect::None => "   (accepted without effect)",
            Effect::Refused => "   (refused)",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "      --{}{value}{remark}", flag.name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [Flag; 4] = [
        Flag { name: "secure-port", is_switch: false, effect: Effect::Full },
        Flag { name: "allow-privileged", is_switch: true, effect: Effect::None },
        Flag { name: "etcd-servers", is_switch: false, effect: Effect::None },
        Flag { name: "authorization-config", is_switch: false, effect: Effect::Refused },
    ];

    fn read(line: &str) -> Result<GivenFlags, FlagError> {
        parse(&KNOWN, line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn values_stand_after_an_equals_sign_or_as_the_next_word() {
        let expected =
            read("--secure-port=1 --allow-privileged --etcd-servers=http://a=b").unwrap_or_default();
        assert_eq!(expected.last("secure-port"), Some("1"));
        assert_eq!(expected.last("etcd-servers"), Some("http://a=b"));
        assert_eq!(expected.last("allow-privileged"), Some("true"));
        assert_eq!(expected.without_effect, ["allow-privileged", "etcd-servers"].into());
        for line in [
            "--secure-port 1 --allow-privileged --etcd-servers http://a=b",
            "-secure-port 1 -etcd-servers=http://a=b --allow-privileged=true",
        ] {
            assert_eq!(read(line), Ok(expected.clone()), "{line}");
        }
        let twice = read("--secure-port 1 --secure-port 2 --allow-privileged").unwrap_or_default();
        assert_eq!(twice.last("secure-port"), Some("2"));
        let shown = [("allow-privileged", "true"), ("secure-port", "[1,2]")];
        assert_eq!(twice.shown(), shown.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    }

    #[test]
    fn what_the_real_program_does_not_know_is_refused() {
        for (line, expected) in [
            ("--insecure-port=0", FlagError::Unknown("insecure-port".into())),
            ("--secure-port", FlagError::NoValue("secure-port".into())),
            ("--authorization-config=f", FlagError::Refused("authorization-config".into())),
            // A switch does not take the next word.
            ("--allow-privileged false", FlagError::NoFlag("false".into())),
        ] {
            assert_eq!(read(line), Err(expected), "{line}");
        }
    }

    #[test]
    fn help_names_each_flag_at_the_beginning_of_its_line() {
        let text = help("kube-apiserver", "About.", &KNOWN);
        let flags: Vec<&str> = text.lines().filter(|line| line.trim_start().starts_with("--")).collect();
        assert_eq!(flags.len(), 4);
        assert!(flags[1].contains("without effect"), "{text}");
    }
}
