//! Logs go to standard error, as text or as JSON lines.

use std::io::IsTerminal as _;

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

/// Filter for a warning that kube-rs logs with every connection whose certificate is not verified; we log it once.
const UNVERIFIED_ONCE: &str = "kube_client::client::tls=error";

/// Formats of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people
    #[default]
    Text,
    /// One JSON object per line
    Json,
}

/// Options of logging.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Logging")]
pub struct LogOptions {
    /// Format of the log on standard error [default: text; json for `run` and `node` without a terminal]
    #[arg(long, value_enum)]
    pub log_format: Option<LogFormat>,
    /// Log level, such as `info` or `gc_apiserver=debug` [default: info; warn beside a command of `up`]
    #[arg(long, env = "KUBEGC_LOG")]
    pub log_level: Option<String>,
}

impl LogOptions {
    /// Creates the options of a text log at this level.
    #[must_use]
    pub fn text(level: &str) -> Self {
        Self { log_format: Some(LogFormat::Text), log_level: Some(level.to_owned()) }
    }
}

/// Starts logging, as text unless another format is requested. An invalid level is an error.
pub fn start(options: &LogOptions) -> anyhow::Result<()> {
    start_as(options, options.log_format.unwrap_or_default())
}

/// Starts logging of an unattended process: text on a terminal, JSON elsewhere.
pub fn start_unattended(options: &LogOptions) -> anyhow::Result<()> {
    let usual = if std::io::stderr().is_terminal() { LogFormat::Text } else { LogFormat::Json };
    start_as(options, options.log_format.unwrap_or(usual))
}

/// Returns a word of a filter that is not a level and does not name a target with a level: the filter would take it for a target.
fn unknown_level(filter: &str) -> Option<&str> {
    let words = filter.split(',').map(str::trim).filter(|word| !word.is_empty());
    let is_target = |word: &&str| word.contains(['=', '[']);
    words
        .filter(|word| !is_target(word))
        .find(|word| word.parse::<tracing_subscriber::filter::LevelFilter>().is_err())
}

/// Returns the filter with our defaults, which it may override.
fn with_defaults(filter: &str) -> String {
    if filter.contains("kube_client") { filter.to_owned() } else { format!("{UNVERIFIED_ONCE},{filter}") }
}

fn start_as(options: &LogOptions, format: LogFormat) -> anyhow::Result<()> {
    let level = options.log_level.as_deref().unwrap_or("info");
    let invalid = |why: String| crate::UsageError::new(format!("--log-level {level:?} is invalid: {why}"));
    if let Some(word) = unknown_level(level) {
        return Err(invalid(format!(
            "{word:?} is not a level; expected off, error, warn, info, debug or trace, or TARGET=LEVEL such as \
             gc_apiserver=debug"
        ))
        .into());
    }
    let filter = EnvFilter::try_new(with_defaults(level)).map_err(|error| invalid(error.to_string()))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let installed = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    // A program that embeds this one may have set up logging already; its setup is kept.
    drop(installed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_completed_unless_it_says_otherwise() {
        assert_eq!(with_defaults("info"), "kube_client::client::tls=error,info");
        assert_eq!(with_defaults("info,kube_client=debug"), "info,kube_client=debug");
    }

    #[test]
    fn a_mistyped_level_is_refused() {
        for (filter, unknown) in [
            ("info", None),
            ("DEBUG", None),
            ("warn,gc_apiserver=debug", None),
            ("gc_kube[span]=trace, error", None),
            ("", None),
            ("bogus", Some("bogus")),
            ("info,debgu", Some("debgu")),
        ] {
            assert_eq!(unknown_level(filter), unknown, "{filter}");
        }
    }
}
