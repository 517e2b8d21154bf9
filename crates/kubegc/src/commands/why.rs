//! `kubegc why`: explains why an object is, or is not, deleted.

use std::path::PathBuf;

use clap::Args;
use gc_inspect::attached::{self, Query, QueryRequest, QueryResponse};
use gc_inspect::gather::{self, Gatherer};
use gc_inspect::output::{self, Output};
use gc_inspect::sources::JournalFlags;
use gc_inspect::stuck;
use gc_inspect::target::{NamedObject, Partial, Targets};
use gc_inspect::why::{self, Answers, WhySources};
use gc_kube::ApiClient;
use gc_process::access::Access;
use gc_process::lease::LeaseFlags;
use gc_process::tasks::block_on;

use super::scope::WatchFlag;

/// Options of `kubegc why`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubegc why pod/web-1                   explain why it is deleted, when it will be, or why it is kept
  kubegc why job done -n shop -o json    print data with stable codes
  kubegc why cm/x --journal FILE         explain a deleted object from this journal
  kubegc why cm/x --audit-log FILE       say who deleted it, by the audit log of kube-apiserver")]
pub(crate) struct WhyOptions {
    #[command(flatten)]
    targets: Targets,
    #[command(flatten)]
    watch: WatchFlag,
    #[command(flatten)]
    journal: JournalFlags,
    /// Look in this audit log of kube-apiserver, in JSON lines, for who asked for a deletion
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,
    /// List the cluster, also where a server that `kubegc up` runs would answer
    #[arg(long, conflicts_with = "collector")]
    no_collector: bool,
    /// Output format: text, wide, name, json, yaml, jsonpath=…, custom-columns=…
    #[arg(short, long, default_value = "text")]
    output: Output,
    #[command(flatten)]
    access: Access,
}

/// `kubegc why`
pub(crate) fn run(options: &WhyOptions) -> anyhow::Result<()> {
    let patience = options.access.patience()?;
    block_on(async {
        let client = options.access.connect().await?;
        options.watch.repeat(async || one(options, &client, patience).await).await
    })
}

/// Queries once and prints the answer.
async fn one(options: &WhyOptions, client: &ApiClient, patience: std::time::Duration) -> anyhow::Result<()> {
    let sources = WhySources {
        journal: &options.journal,
        audit_log: options.audit_log.as_deref(),
        access: &options.access,
    };
    let gatherer = Gatherer::new(client.clone(), gather::clock(client).await).await?;
    let resolved = match options.targets.resolve(&gatherer).await {
        Ok(resolved) => resolved,
        Err(error) => {
            let answers = why::of_unserved(&sources, &options.targets, &gatherer, error).await?;
            return output::print(&answers, &options.output);
        }
    };
    let Partial { found: named, mut failures } = resolved;
    let answer = asked(options, client, &named).await;
    // A collector's graph does not record which requests the server refused.
    if let Some(answer) = answer.filter(|answer| !answer.mentions_any(&stuck::absences())) {
        output::print(&answer, &options.output)?;
        return gather::fail(failures);
    }
    let audited = why::audited(&sources, &gatherer, &named).await?;
    let mut answers = Answers::at(gatherer.now);
    for (named, audited) in named.iter().zip(audited) {
        if let Err(error) = answers.add_from(&sources, &gatherer, named, audited, patience).await {
            failures.push(error);
        }
    }
    if !answers.is_empty() {
        output::print(&answers, &options.output)?;
    }
    gather::fail(failures)
}

/// Returns the answer of the named collector, or of the server if it answers queries.
async fn asked(options: &WhyOptions, client: &ApiClient, named: &[NamedObject]) -> Option<QueryResponse> {
    let question = Query::Why { objects: attached::subjects(named) };
    let inquiry = QueryRequest::new(&options.output, question)
        .filter(|_| !options.no_collector && options.audit_log.is_none())?;
    let lease = LeaseFlags::default_name();
    attached::of_whoever_answers((&options.journal.collector, &lease), &options.access, client, &inquiry)
        .await
}
