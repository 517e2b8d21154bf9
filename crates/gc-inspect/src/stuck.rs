//! Stuck deletions of a cluster and their root causes.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use gc_explain::stuck::{Code, Row, diagnose};
use gc_explain::text::{age, ago};
use gc_explain::{Survey, UnreadPlace};
use gc_kube::ApiClient;
use gc_process::access::Access;
use gc_process::table::Table;
use gc_types::{GoDuration, Timestamp, Uid};
use serde_json::{Value, json};

use crate::gather::{self, Gatherer, Scope};
use crate::output::Answer;
use crate::resident::Resident;
use crate::sources::JournalFlags;

/// Answer of `kubegc stuck`.
pub struct StuckAnswer {
    /// One row per root cause, the oldest first.
    pub rows: Vec<Row>,
    /// Time of the answer.
    pub now: Timestamp,
    /// Messages about everything that could not be read.
    pub unseen: Vec<String>,
    /// The objects and lists among these.
    unread: Vec<UnreadPlace>,
}

impl StuckAnswer {
    /// Converts the answer to JSON, as `kubegc stuck -o json` prints it.
    #[must_use]
    pub fn value(&self) -> Value {
        let items: Vec<Value> = self.rows.iter().map(|row| row.value(self.now)).collect();
        json!({"items": items, "unseen": self.unseen, "unread": self.unread})
    }

    /// Keeps only rows that have been stuck for at least this long.
    pub fn keep_older(&mut self, at_least: GoDuration) {
        let enough = gc_types::milliseconds(at_least.to_std());
        self.rows.retain(|row| row.age_milliseconds(self.now).unwrap_or(i64::MAX) >= enough);
    }
}

/// Gathers and diagnoses.
pub async fn ask(gatherer: &Gatherer, scope: &Scope, patience: Duration) -> anyhow::Result<StuckAnswer> {
    gatherer.check_namespace(scope).await?;
    let survey = gatherer.survey(scope, patience).await?;
    let listable = survey.catalog.all().iter().filter(|resource| resource.is_collectable()).count();
    if scope.namespace.is_empty() && survey.unlisted().len() == listable {
        bail!(gather::NOTHING_TO_LIST);
    }
    Ok(diagnosed(gatherer, &survey, scope).await)
}

/// Diagnoses a survey.
pub async fn diagnosed(gatherer: &Gatherer, survey: &Survey, scope: &Scope) -> StuckAnswer {
    let mut facts = gatherer.facts();
    let mut rows = gatherer.answer(&mut facts, |facts| diagnose(survey, facts)).await;
    if !scope.namespace.is_empty() {
        rows.retain(|row| row.concerns(&scope.namespace));
    }
    let mut unseen: Vec<String> = gather::unlisted_summary(survey).into_iter().collect();
    let unread = facts.unread();
    if let Some(first) = unread.first() {
        unseen.push(match unread.len() {
            1 => format!("not everything could be read: {first}"),
            many => format!("{many} objects and lists could not be read, such as {first}"),
        });
    }
    let unread = survey.unread(&scope.namespace).chain(unread).collect();
    StuckAnswer { rows, now: gatherer.now, unseen, unread }
}

/// Finds the stuck objects in the cluster of a client, and returns them as `kubegc stuck -o json` prints them. `patience` limits
/// the time for lists.
///
/// # Errors
/// The cluster cannot be read.
pub async fn stuck_in(client: ApiClient, patience: Duration) -> anyhow::Result<Value> {
    let now = gather::clock(&client).await;
    let gatherer = gather::Gatherer::new(client, now).await?;
    Ok(ask(&gatherer, &gather::Scope::default(), patience).await?.value())
}

/// Maximum number of objects and waiting objects that a row names, unless it is wide.
const NAMED: usize = 3;

/// Answers `kubegc stuck` for the cluster of a client at this time of its collectors, from the graph as far as possible.
pub async fn stuck_beside(
    client: ApiClient,
    resident: Option<Arc<dyn Resident>>,
    now: Timestamp,
    patience: Duration,
) -> anyhow::Result<Vec<Row>> {
    let gatherer = Gatherer::new(client, now).await?.beside(resident);
    Ok(ask(&gatherer, &Scope::default(), patience).await?.rows)
}

/// Returns the server's errors for refused collector requests, from the journal if one is found.
pub async fn refusals(journal: &JournalFlags, access: &Access, client: &ApiClient) -> Vec<(Uid, String)> {
    match journal.of_server(access, client).await {
        Ok(Some(source)) => source.refusals().await,
        Ok(None) | Err(_) => Vec::new(),
    }
}

/// Returns the codes which mean that a collector has not acted.
#[must_use]
pub fn absences() -> Vec<&'static str> {
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

/// Tables of an answer.
struct Tables<'a>(&'a StuckAnswer);

impl Tables<'_> {
    fn age(&self, since: Option<Timestamp>) -> String {
        since.map_or_else(|| "-".to_owned(), |since| age(self.0.now.since(since)))
    }

    /// Returns a table with one line for each root cause.
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

    /// Returns a table with one line for each object, including who could release it.
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
