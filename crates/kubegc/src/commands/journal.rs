//! `kubegc journal`: shows what the collectors did, and why.

use std::io::Write as _;

use anyhow::Result;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use gc_collectors::permissions::Controller;
use gc_inspect::gather::{self, Gatherer};
use gc_inspect::journal;
use gc_inspect::output::{self, Output};
use gc_inspect::sources::{JournalFlags, Source};
use gc_process::access::Access;
use gc_process::journal::{Found, OUTCOMES, Object, Query, Selection, VERBS, collectors, long_name};
use gc_process::tasks::block_on;
use gc_process::{UsageError, screen};
use gc_types::GoDuration;
use jiff::Timestamp;
use serde_json::Value;

use super::scope::NamespaceFlags;

/// Options of `kubegc journal`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubegc journal -f                          follow what the collectors do
  kubegc journal --verb delete -n shop       list what was deleted in a namespace, and why
  kubegc journal --object pod/web-1 -n shop  list what was done about one object")]
pub(crate) struct JournalOptions {
    #[command(flatten)]
    flags: JournalFlags,
    /// Keep running and print new entries
    #[arg(short, long)]
    follow: bool,
    /// Also show barriers, the checks before an owner is released
    #[arg(long)]
    barriers: bool,
    /// Only entries newer than this, such as 1h
    #[arg(long, value_name = "DURATION", conflicts_with = "since_time")]
    since: Option<String>,
    /// Only entries from this time on (RFC 3339)
    #[arg(long, value_name = "TIME")]
    since_time: Option<String>,
    /// Only about this object: TYPE/NAME, in the namespace of -n if that is given, or a UID
    #[arg(long, value_name = "OBJECT")]
    object: Option<String>,
    #[command(flatten)]
    namespaces: NamespaceFlags,
    /// Only about this resource, such as pods or replicasets.apps
    #[arg(long, value_name = "RESOURCE")]
    resource: Option<String>,
    /// Only with this outcome
    #[arg(long, value_name = "OUTCOME", value_parser = PossibleValuesParser::new(OUTCOMES))]
    outcome: Option<String>,
    /// Only with this verb
    #[arg(long, value_name = "VERB", value_parser = PossibleValuesParser::new(VERBS))]
    verb: Option<String>,
    /// Only from this collector, such as ttl-after-finished-controller
    #[arg(long, value_name = "NAME", hide_possible_values = true, value_parser = known_collectors())]
    controller: Option<String>,
    /// Maximum number of entries, newest first; 0 means all
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    tail: usize,
    /// Output format: text, wide, name, json, yaml, jsonpath=…, custom-columns=…; with --follow text or json
    #[arg(short, long, default_value = "text")]
    output: Output,
    #[command(flatten)]
    access: Access,
}

/// Accepts the collectors by their names, and by the names that --controllers also accepts.
fn known_collectors() -> impl TypedValueParser<Value = String> {
    let of = |name: &'static str| {
        let controller = Controller::ALL.into_iter().find(|controller| controller.name() == name);
        PossibleValue::new(name).aliases(controller.and_then(Controller::alias))
    };
    PossibleValuesParser::new(collectors().map(of)).map(|called| {
        let named = Controller::ALL.into_iter().find(|controller| controller.is_named(&called));
        named.map_or(called, |controller| controller.name().to_owned())
    })
}

/// Parses an object as all commands do; its namespace is a separate flag.
pub(super) fn object(text: &str) -> Result<Object, UsageError> {
    let expected = || {
        UsageError::new(format!(
            "object {text:?}: expected TYPE/NAME, such as pod/web-1 with -n shop, or a UID"
        ))
    };
    match Object::parse(text) {
        Ok(Object::Named { namespace: Some(_), .. }) | Err(_) => Err(expected()),
        parsed => parsed,
    }
}

impl JournalOptions {
    fn selection(&self, now: Timestamp) -> Result<Selection, UsageError> {
        let since = match (&self.since, &self.since_time) {
            (Some(text), _) => {
                let age = GoDuration::parse_with_days(text)
                    .map_err(|error| UsageError::new(format!("--since: {error}")))?;
                Some(now.checked_sub(age.to_std()).unwrap_or(Timestamp::MIN))
            }
            (None, Some(text)) => {
                Some(text.parse().map_err(|error| UsageError::new(format!("--since-time: {error}")))?)
            }
            (None, None) => None,
        };
        let object = self.object.as_deref().map(object).transpose();
        let query = Query {
            since,
            object: object.map_err(|error| UsageError::new(format!("--{error}")))?,
            namespace: Some(self.namespaces.namespace().to_owned()).filter(|name| !name.is_empty()),
            resource: self.resource.as_deref().map(long_name),
            outcome: self.outcome.clone(),
            verb: self.verb.clone(),
            controller: self.controller.clone(),
            server: None,
            before: None,
            without_barriers: !self.barriers && self.verb.is_none(),
        };
        Ok(Selection { query, tail: self.tail, ..Selection::default() })
    }
}

/// `kubegc journal`
pub(crate) fn run(options: &JournalOptions) -> Result<()> {
    let mut selection = options.selection(Timestamp::now())?;
    if options.follow && !matches!(options.output, Output::Text | Output::Json) {
        return Err(UsageError::new("--follow prints text or json").into());
    }
    block_on(async {
        let source = options.flags.find(&options.access).await?;
        let mut found = source.search(&selection).await?;
        if found.entries.is_empty() && rename(&options.access, &mut selection.query).await {
            found = source.search(&selection).await?;
        }
        warn(&found);
        if !options.follow {
            output::print(&found, &options.output)?;
            if found.entries.is_empty() {
                hint(&source, &selection.query).await;
            }
            return Ok(());
        }
        follow(options, &selection, &source, found).await
    })
}

/// Prints a hint if a journal has entries, but none that match the query: the query may be wrong.
async fn hint(source: &Source, query: &Query) {
    let any = Selection { tail: 1, ..Selection::default() };
    if *query == (Query { without_barriers: query.without_barriers, ..Query::default() })
        || source.search(&any).await.is_ok_and(|found| found.entries.is_empty())
    {
        return;
    }
    let object = match &query.object {
        Some(Object::Uid(uid)) => format!("; --object {uid} is a UID: an object is TYPE/NAME"),
        _ => String::new(),
    };
    screen::complain!("hint: the journal of {source} has other entries, and none for these flags{object}");
}

/// Replaces the resource in a query by the name that journal entries use, if the server knows it under another one. Reports whether
/// it did.
pub(super) async fn rename(access: &Access, query: &mut Query) -> bool {
    let Some(called) = query.resource_name() else { return false };
    // A journal can be read while its server is unreachable.
    let Ok(client) = access.connect().await else { return false };
    let Ok(gatherer) = Gatherer::new(client, gather::now()).await else { return false };
    match gatherer.catalog.find(called).map(|found| found[0].name.to_string()) {
        Ok(name) if name == *called => false,
        Ok(name) => {
            *called = name;
            true
        }
        Err(error) => {
            screen::complain!("warning: {error}");
            false
        }
    }
}

fn warn(found: &Found) {
    for warning in warnings(found) {
        screen::complain!("warning: {warning}");
    }
    if found.left_out > 0 {
        screen::complain!("warning: {} older entries are left out; --tail 0 shows all", found.left_out);
    }
}

/// Returns warnings about the parts of a journal that could not be read or are not kept.
pub(super) fn warnings(found: &Found) -> Vec<String> {
    let mut warnings = found.failures.clone();
    if found.unreadable > 0 {
        warnings.push(format!("{} lines are not journal entries", found.unreadable));
    }
    if found.no_longer_kept > 0 {
        warnings.push(format!(
            "this journal is kept in memory only, and its oldest {} entries are no longer kept; with a file, they would be \
             (--journal FILE of kubegc run, --data-dir of kubegc up)",
            found.no_longer_kept
        ));
    }
    warnings
}

/// Prints the entries found, and then each new one, a line each.
async fn follow(
    options: &JournalOptions,
    selection: &Selection,
    source: &Source,
    found: Found,
) -> Result<()> {
    let is_json = options.output == Output::Json;
    let show = |entry: &Value| {
        let text =
            if is_json { screen::visible_json(&entry.to_string()) } else { journal::followed_line(entry) };
        // A closed pipe ends the loop.
        Ok(writeln!(screen::stdout(), "{text}")?)
    };
    if !is_json && screen::has_headings() {
        writeln!(screen::stdout(), "{}", journal::followed_headings())?;
    }
    found.entries.iter().try_for_each(show)?;
    // Entries written between the two queries have a higher number than all those found.
    let last = found.entries.iter().filter_map(|entry| entry["number"].as_u64()).max().unwrap_or_default();
    source.follow(selection, last, show).await
}
