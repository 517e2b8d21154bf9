//! Logs go to standard error, as text or as JSON lines.

use std::io::IsTerminal as _;

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

/// Formats of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    #[default]
    Text,
    /// One JSON object per line
    Json,
}

/// Options of logging.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Logging")]
pub(crate) struct LogOptions {
    /// Format of the log on standard error
    #[arg(long, value_enum)]
    pub(crate) log_format: Option<LogFormat>,
    /// Log level, such as `info` or `gc_apiserver=debug`
    #[arg(long, env = "KUBEGC_LOG", default_value = "info")]
    pub(crate) log_level: String,
}

/// Starts logging, as text unless something else is asked for. An invalid level is an error.
pub(crate) fn start(options: &LogOptions) -> anyhow::Result<()> {
    start_as(options, options.log_format.unwrap_or_default())
}

/// The same for what runs unattended: text on a terminal, JSON elsewhere.
pub(crate) fn start_unattended(options: &LogOptions) -> anyhow::Result<()> {
    let usual = if std::io::stderr().is_terminal() { LogFormat::Text } else { LogFormat::Json };
    start_as(options, options.log_format.unwrap_or(usual))
}

fn start_as(options: &LogOptions, format: LogFormat) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&options.log_level).map_err(|error| {
        crate::UsageError::new(format!("--log-level {:?} is invalid: {error}", options.log_level))
    })?;
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
