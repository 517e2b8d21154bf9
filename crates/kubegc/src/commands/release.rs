//! `kubegc release`: removes one finalizer by hand, after showing whether its controller lives and what the removal leaves behind.

#[cfg(test)]
mod tests;

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use gc_explain::Resource;
use gc_explain::release::Release;
use gc_inspect::gather::{self, Gatherer};
use gc_inspect::output::{self, Answer, Output};
use gc_inspect::release::removal::{self, remove};
use gc_inspect::release::{ReleaseAnswer, ask};
use gc_inspect::target::{NamedObject, Targets};
use gc_kube::ApiClient;
use gc_process::access::Access;
use gc_process::journal::{Journal, JournalOptions};
use gc_process::screen::{complain, stdout};
use gc_process::tasks::block_on;
use gc_process::{UsageError, reviews};
use gc_types::Timestamp;
use serde_json::Value;

use super::{NotAgreed, agreement};

/// Size of a journal that is appended to, as `kubegc run` bounds it.
const LARGEST_JOURNAL_BYTES: u64 = 64 << 20;
const OLDER_JOURNALS: u32 = 3;

/// Options of `kubegc release`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubegc release widget/a -n shop                       show what depends on its finalizer, ask, and remove it
  kubegc release widget/a --finalizer acme.dev/hold     one of several
  kubegc release widget/a --dry-run                     show it, and whether the server would accept it
  kubegc release widget/a --yes                         do not ask

Removes one finalizer, from the version of the object that was shown. It refuses where the finalizer's controller lives, and where that cannot be seen: --force does it all the same.
Exit codes: 0, it was removed (or would be); 1, it was not; 2, wrong flags.")]
pub(crate) struct ReleaseOptions {
    #[command(flatten)]
    targets: Targets,
    /// The finalizer; needed if the object has several
    #[arg(long, value_name = "FINALIZER")]
    finalizer: Option<String>,
    /// Remove it without asking
    #[arg(short, long)]
    yes: bool,
    /// Remove it even if its controller lives, or if the object is not being deleted
    #[arg(long)]
    force: bool,
    /// Only show what would be removed, and try it on the server without effect
    #[arg(long)]
    dry_run: bool,
    /// Append the removal to this journal, which `kubegc why --journal` and `kubegc journal` read
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    /// Output format: text, json, yaml, jsonpath=…, custom-columns=…
    #[arg(short, long, default_value = "text")]
    output: Output,
    #[command(flatten)]
    access: Access,
}

/// `kubegc release`
pub(crate) fn run(options: &ReleaseOptions) -> anyhow::Result<()> {
    let patience = options.access.patience()?;
    block_on(async {
        let client = options.access.connect().await?;
        let gatherer = Gatherer::new(client.clone(), gather::clock(&client).await).await?;
        let named = one(options.targets.resolve(&gatherer).await?.complete()?)?;
        let place = (named.namespace.as_str(), named.name.as_str());
        let answer = ask(&gatherer, &named.resource, place, options.finalizer.as_deref(), patience).await?;
        gather::warn(&answer.unseen);
        output::print(&Shown(&answer, gatherer.now), &options.output)?;
        perform(options, &client, &named.resource, &answer).await
    })
}

/// Returns the object, if exactly one was named.
fn one(mut named: Vec<NamedObject>) -> anyhow::Result<NamedObject> {
    match (named.pop(), named.is_empty()) {
        (Some(one), true) => Ok(one),
        _ => Err(UsageError::new("release one finalizer of one object at a time").into()),
    }
}

/// Removes the finalizer that was shown, if nothing speaks against it and the user confirms.
async fn perform(
    options: &ReleaseOptions,
    client: &ApiClient,
    resource: &Resource,
    answer: &ReleaseAnswer,
) -> anyhow::Result<()> {
    let release = &answer.release;
    if let Some(objection) = release.objection() {
        if !options.force {
            anyhow::bail!("{objection}; --force removes it all the same");
        }
        complain!("warning: {objection}");
    }
    if options.dry_run {
        remove(client, resource, answer, true).await?;
        let title = release.place.title();
        return say(options, &format!("{} would be removed from {title} (dry run).", release.finalizer));
    }
    let question = || format!("Remove {} from {}?", release.finalizer, release.place.title());
    if !options.yes && !agreement::is_agreed(&question())? {
        complain!("Nothing was removed.");
        return Err(NotAgreed.into());
    }
    remove(client, resource, answer, false).await?;
    say(options, &format!("{} was removed from {}.", release.finalizer, release.place.title()))?;
    record(client, release, options.journal.as_ref()).await;
    Ok(())
}

/// Prints a line for people; formats for programs contain only the answer.
fn say(options: &ReleaseOptions, line: &str) -> anyhow::Result<()> {
    match options.output {
        Output::Text | Output::Wide => Ok(writeln!(stdout(), "\n{line}")?),
        _ => Ok(()),
    }
}

/// Records a removal. A record that cannot be written is a warning: the finalizer is gone.
async fn record(client: &ApiClient, release: &Release, journal: Option<&PathBuf>) {
    let user = reviews::own_name(client).await;
    let user = user.unwrap_or_else(|| "a user whom the server does not name".to_owned());
    if let Err(why) = removal::write_event(client, release, &user).await {
        complain!(
            "warning: no Event about it could be written ({why}): {user} removed {} from {}",
            release.finalizer,
            release.place.title()
        );
    }
    let Some(file) = journal else { return };
    let options = JournalOptions {
        file: file.clone(),
        largest_bytes: LARGEST_JOURNAL_BYTES,
        older_files: OLDER_JOURNALS,
    };
    match Journal::open(Some(options), Some(client.address().to_owned())) {
        Ok(journal) => {
            journal.record(removal::entry(release, &user));
            journal.close();
            if journal.dropped() > 0 {
                complain!("warning: {} cannot be written", file.display());
            }
        }
        Err(error) => complain!("warning: {}: {error:#}", file.display()),
    }
}

/// The answer, at a time.
struct Shown<'a>(&'a ReleaseAnswer, Timestamp);

impl Answer for Shown<'_> {
    fn value(&self) -> Value {
        self.0.release.value()
    }

    fn text(&self, _is_wide: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        let Self(answer, now) = self;
        let place = &answer.release.place;
        let namespace = match &*place.namespace {
            "" => String::new(),
            namespace => format!(" in {namespace}"),
        };
        writeln!(out, "{}{namespace}", place.title())?;
        for (heading, line) in answer.release.lines(*now) {
            writeln!(out, "  {:<15}{line}", format!("{heading}:"))?;
        }
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        vec![self.0.release.place.reference()]
    }
}
