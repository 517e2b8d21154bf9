//! `kubegc stuck`: what is stuck and why, one row per root cause.

use std::io::Write as _;
use std::time::Duration;

use clap::Args;
use gc_explain::stuck::{Code, Row};
use gc_explain::text::{age, ago};
use gc_kube::ApiClient;
use gc_types::{GoDuration, Timestamp, Uid};
use serde_json::Value;

use super::access::Access;
use super::attached::{Asked, AttachFlags};
use super::gather::{self, Gatherer};
use super::output::{Answer, Output};
use super::scope::{ScopeFlags, WatchFlag};
use super::sources::JournalFlags;
use super::target::{FileFlags, Partial};
use crate::UsageError;
use crate::table::Table;
pub(super) use gc_inspect::stuck::{StuckAnswer, ask, diagnosed};

/// Objects and waiting objects that a row names unless it is wide.
const NAMED: usize = 3;

/// Something is stuck, and `--exit-code` asked to say so.
#[derive(Debug, thiserror::Error)]
#[error("something is stuck")]
pub(crate) struct SomethingStuck;

/// Options of `kubegc stuck`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubegc stuck                       list all stuck deletions, oldest first
  kubegc stuck -n shop --for 5m      only in one namespace, stuck for at least five minutes
  kubegc stuck -f app.yaml           only what holds up the objects of a manifest
  kubegc stuck --exit-code -o name   for scripts: exit with 1 if anything is stuck
  kubegc stuck -w                    repeat every five seconds")]
pub(crate) struct StuckOptions {
    #[command(flatten)]
    scope: ScopeFlags,
    #[command(flatten)]
    files: FileFlags,
    /// Only deletions stuck for at least this time
    #[arg(long = "for", value_name = "DURATION", default_value = "0s")]
    at_least: String,
    #[command(flatten)]
    watch: WatchFlag,
    /// Exit with 1 if anything is stuck
    #[arg(long)]
    exit_code: bool,
    /// Output format: text, wide, name, json, yaml, jsonpath=…, custom-columns=…
    #[arg(short, long, default_value = "text")]
    output: Output,
    #[command(flatten)]
    attach: AttachFlags,
    #[command(flatten)]
    access: Access,
}

/// `kubegc stuck`
pub(crate) fn stuck(options: &StuckOptions) -> anyhow::Result<()> {
    let at_least = GoDuration::parse_with_days(&options.at_least)
        .map_err(|error| UsageError::new(format!("--for: {error}")))?;
    let patience = options.access.patience()?;
    let anything = crate::tasks::block_on(async {
        let client = options.access.connect().await?;
        options.watch.repeat(async || one(options, &client, at_least, patience).await).await
    })?;
    if anything && options.exit_code { Err(SomethingStuck.into()) } else { Ok(()) }
}

/// Asks once and prints the answer. Whether anything is stuck.
async fn one(
    options: &StuckOptions,
    client: &ApiClient,
    at_least: GoDuration,
    patience: Duration,
) -> anyhow::Result<bool> {
    let scope = options.scope.scope();
    // A graph has no labels, and answers about everything.
    if scope.selector.is_empty() && options.files.is_empty() {
        let question = || Asked::Stuck { namespace: scope.namespace.clone(), at_least: at_least.to_string() };
        let answer = options.attach.ask(&options.access, client, &options.output, question).await?;
        // A graph does not know what the server refused its collector.
        if let Some(answer) = answer.filter(|answer| !answer.mentions_any(&absences())) {
            gather::warn(&answer.unseen);
            super::output::print(&answer, &options.output)?;
            return Ok(answer.found);
        }
    }
    let gatherer = Gatherer::new(client.clone(), gather::clock(client).await).await?;
    let Partial { found: named, failures } = options.files.named(&gatherer, &scope.namespace)?;
    let mut answer = ask(&gatherer, &scope, patience).await?;
    if answer.rows.iter().any(|row| row.cause.code.is_absence()) {
        let refused = refusals(&JournalFlags::default(), &options.access, client).await;
        answer = ask(&gatherer.knowing_refusals(refused), &scope, patience).await?;
    }
    answer.keep_older(at_least);
    if !options.files.is_empty() {
        answer.rows.retain(|row| row.places().any(|place| named.iter().any(|named| named.is_at(place))));
    }
    gather::warn(&answer.unseen);
    super::output::print(&answer, &options.output)?;
    gather::fail(failures)?;
    Ok(!answer.rows.is_empty())
}

/// Why the server refused requests of collectors, by their journal if one is found.
pub(super) async fn refusals(
    journal: &JournalFlags,
    access: &Access,
    client: &ApiClient,
) -> Vec<(Uid, String)> {
    match journal.of_server(access, client).await {
        Ok(Some(source)) => source.refusals().await,
        Ok(None) | Err(_) => Vec::new(),
    }
}

/// The codes that say that a collector has not done something.
pub(super) fn absences() -> Vec<&'static str> {
    Code::ALL.iter().filter(|code| code.is_absence()).map(|code| code.name()).collect()
}

impl Answer for StuckAnswer {
    fn value(&self) -> Value {
        self.value()
    }

    fn text(&self, is_wide: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        if self.rows.is_empty() {
            let doubt = if self.unseen.is_empty() { "" } else { " (as far as can be seen)" };
            writeln!(out, "Nothing is stuck{doubt}.")?;
            return Ok(());
        }
        let tables = Tables(self);
        let table = if is_wide { tables.wide_table() } else { tables.table() };
        table.write(out)?;
        for row in &self.rows {
            writeln!(out)?;
            explain(row, is_wide, out)?;
        }
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        let objects = self.rows.iter().flat_map(|row| &row.objects);
        let mut names: Vec<String> = objects.map(|(place, _)| place.reference()).collect();
        names.dedup();
        names
    }
}

/// The tables of an answer.
struct Tables<'a>(&'a StuckAnswer);

impl Tables<'_> {
    fn age(&self, since: Option<Timestamp>) -> String {
        since.map_or_else(|| "-".to_owned(), |since| age(self.0.now.since(since)))
    }

    /// One line for each root cause.
    fn table(&self) -> Table {
        let mut table = Table::new(&["AGE", "NAMESPACE", "OBJECT", "CAUSE"]);
        for row in &self.0.rows {
            let (namespace, object) = match row.objects.split_first() {
                Some(((first, _), [])) => (first.namespace.clone(), first.title()),
                Some(((first, _), others)) => {
                    (first.namespace.clone(), format!("{} (+{})", first.title(), others.len()))
                }
                None => (String::new(), String::new()),
            };
            table.row(vec![self.age(row.since), namespace, object, row.cause.code.name().to_owned()]);
        }
        table
    }

    /// One line for each object, with who could release it.
    fn wide_table(&self) -> Table {
        let mut table = Table::new(&[
            "AGE",
            "NAMESPACE",
            "OBJECT",
            "CAUSE",
            "HOLDS UP",
            "FINALIZERS",
            "SET BY",
            "LAST TOUCHED",
        ]);
        let list = |items: &[String]| if items.is_empty() { "-".to_owned() } else { items.join(",") };
        for row in &self.0.rows {
            for ((place, since), holders) in row.objects.iter().zip(&row.holders) {
                let touched = holders.touched.as_ref().map_or_else(
                    || "-".to_owned(),
                    |writer| match writer.at {
                        Some(at) => format!("{} by {}", ago(at, self.0.now), writer.manager),
                        None => format!("by {}", writer.manager),
                    },
                );
                table.row(vec![
                    self.age(*since),
                    place.namespace.clone(),
                    place.title(),
                    row.cause.code.name().to_owned(),
                    row.waiting.len().to_string(),
                    list(&holders.finalizers),
                    list(&holders.managers),
                    touched,
                ]);
            }
        }
        table
    }
}

fn explain(row: &Row, is_wide: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
    let some = |titles: Vec<String>| {
        let shown = if is_wide { titles.len() } else { NAMED };
        gc_explain::text::some_of(&titles, shown)
    };
    let objects = row.objects.iter().map(|(place, _)| place.title()).collect();
    writeln!(out, "{}: {}", some(objects), row.cause.message)?;
    if !row.waiting.is_empty() {
        writeln!(
            out,
            "  holds up:  {}",
            some(row.waiting.iter().map(gc_explain::stuck::Place::title).collect())
        )?;
    }
    for command in &row.cause.help {
        writeln!(out, "  try:       {command}")?;
    }
    for line in row.force_lines() {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}
