//! `kubegc doctor`: checks everything that collection needs, and lists what is stuck.

use clap::{Args, ValueEnum};
use gc_collectors::permissions;
use gc_inspect::attached::AttachFlags;
use gc_inspect::doctor::{self, Finding, State};
use gc_inspect::examine::{Examination, examine};
use gc_inspect::formats;
use gc_inspect::output::{self, Output};
use gc_process::UsageError;
use gc_process::access::Access;
use gc_process::lease::LeaseFlags;
use gc_process::tasks::block_on;

use super::run::DEFAULT_CONTROLLERS;
use super::scope::{NamespaceFlags, WatchFlag};

/// Options of `kubegc doctor`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubegc doctor                             examine the whole cluster
  kubegc doctor -n shop                     what is stuck or left behind only in one namespace
  kubegc doctor --fail-on notice -o junit   for a pipeline: exit with 1 if anything is worth knowing")]
pub(crate) struct DoctorOptions {
    #[command(flatten)]
    namespaces: NamespaceFlags,
    #[command(flatten)]
    watch: WatchFlag,
    /// Output format: text, wide, name, json, yaml, jsonpath=…, custom-columns=…, sarif, junit
    #[arg(short, long, default_value = "text")]
    output: Form,
    /// Exit with 1 on: errors, errors and notices, or never
    #[arg(long, value_enum, default_value_t)]
    fail_on: FailOn,
    #[command(flatten)]
    access: Access,
    /// User whose permissions to check: a user name, or `self` [default: the account of the pod that leads, or that of the manifests]
    #[arg(long, value_name = "USER")]
    subject: Option<String>,
    /// Check the permissions of these collectors, named as for `kubegc run`
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = DEFAULT_CONTROLLERS,
          allow_hyphen_values = true)]
    controllers: Vec<String>,
    #[command(flatten)]
    attach: AttachFlags,
    #[command(flatten)]
    lease: LeaseFlags,
}

/// The forms of the findings.
#[derive(Clone, Debug)]
enum Form {
    /// One that all commands have.
    Common(Output),
    Sarif,
    JUnit,
}

impl std::str::FromStr for Form {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "sarif" => Self::Sarif,
            "junit" => Self::JUnit,
            text => Self::Common(
                text.parse().map_err(|error: String| format!("{error}, or, for doctor, sarif or junit"))?,
            ),
        })
    }
}

/// From which severity on the exit code is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum FailOn {
    /// Something is wrong
    #[default]
    Wrong,
    /// Something is wrong or worth knowing
    Notice,
    /// Never
    Never,
}

impl FailOn {
    fn is_met(self, findings: &[Finding]) -> bool {
        match self {
            Self::Wrong => !doctor::is_healthy(findings),
            Self::Notice => findings.iter().any(|finding| finding.state != State::Fine),
            Self::Never => false,
        }
    }
}

/// Something is wrong, as the output already says.
#[derive(Debug, thiserror::Error)]
#[error("something is wrong")]
pub(crate) struct Unhealthy;

/// `kubegc doctor`
pub(crate) fn run(options: &DoctorOptions) -> anyhow::Result<()> {
    let patience = options.access.patience()?;
    let enabled = permissions::enabled(&options.controllers)
        .map_err(|error| UsageError::new(format!("--controllers: {error}")))?;
    let examination = Examination {
        namespace: options.namespaces.namespace(),
        subject: options.subject.as_deref(),
        enabled: &enabled,
        attach: &options.attach,
        lease: options.lease.name(),
        access: &options.access,
    };
    let is_met = block_on(async {
        let client = options.access.connect().await?;
        let examined = options.watch.repeat(async || {
            let findings = doctor::diagnose(&examine(&client, &examination, patience).await?);
            match &options.output {
                Form::Common(output) => output::print(&doctor::Examination(&findings), output)?,
                Form::Sarif => output::write(&formats::sarif(&findings))?,
                Form::JUnit => output::write(&formats::junit(&findings))?,
            }
            Ok(options.fail_on.is_met(&findings))
        });
        examined.await
    })?;
    if is_met { Err(Unhealthy.into()) } else { Ok(()) }
}
