//! `kubegc relink`: gives dependents the UIDs of their living owners after a restore.

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use gc_explain::relink::Relink;
use gc_explain::text::count;
use gc_inspect::gather::{self, Gatherer};
use gc_inspect::output::{self, Output};
use gc_process::access::Access;
use gc_process::screen::{self, complain};
use gc_process::tasks::block_on;
use gc_recovery::prepare;
use gc_recovery::relink::{self, EvidenceFiles, RelinkAnswer};
use gc_recovery::seal::ReadingFlags;

use super::Incomplete;
use super::scope::NamespaceFlags;

/// Options of `kubegc relink`.
#[derive(Clone, Debug, Args)]
#[command(
    group = clap::ArgGroup::new("evidence").required(true).multiple(true).args(["from", "map", "journal", "prepare"]),
    after_help = "\
Examples:
  kubegc relink --prepare                           before the restore: what to pause, and why
  kubegc relink --from velero-backup.tar.gz         compare the backup, and show which references would be restored
  kubegc relink --from velero-backup.tar.gz --yes   restore them
  kubegc relink --from velero-backup.tar.gz --namespace-mappings shop:shop-2
  kubegc relink --from DIR                          the same from manifests, or from the records of kubegc recorder
  kubegc relink --map OLD-UID=NEW-UID               for one owner whose UIDs are known

Velero removes the owner references of everything that it restores; other tools keep them, with UIDs that are gone. References are added or rewritten only if the backup, the journal or the map says what the owner was, and it lives: never deleted, restored, or in its place. The exit code is 1 while a reference of the backup is missing."
)]
pub(crate) struct RelinkOptions {
    /// Restored data: a Velero backup (tar.gz), a file of `kubegc backup`, a manifest, or a directory of manifests or
    /// of a recorder's records; - is standard input
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// UID of an owner that is gone, and of the object in its place (repeatable)
    #[arg(long, value_name = "OLD=NEW", value_parser = pair)]
    map: Vec<(String, String)>,
    /// Journal of a collector that names deleted objects by their UIDs (repeatable)
    #[arg(long, value_name = "FILE")]
    journal: Vec<PathBuf>,
    /// Namespaces of the backup that were restored under other names; without it, the labels of the restore say it
    #[arg(long, value_name = "OLD:NEW", value_delimiter = ',', value_parser = mapping, requires = "from")]
    namespace_mappings: Vec<(String, String)>,
    #[command(flatten)]
    reading: ReadingFlags,
    /// Before a restore: print which controllers would adopt or recreate objects, and how to pause them
    #[arg(long, conflicts_with_all = ["map", "journal", "yes"])]
    prepare: bool,
    #[command(flatten)]
    namespaces: NamespaceFlags,
    /// Restore the references; without it, they are only shown
    #[arg(short, long)]
    yes: bool,
    /// Output format: text, wide, name, json, yaml, jsonpath=…, custom-columns=…
    #[arg(short, long, default_value = "text")]
    output: Output,
    #[command(flatten)]
    access: Access,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((old, new)) => {
            let wrong = [old, new].into_iter().find(|uid| !is_uid(uid));
            wrong.map_or_else(
                || Ok((old.to_owned(), new.to_owned())),
                |wrong| Err(format!("{wrong:?} is no UID")),
            )
        }
        None => Err("expected OLD-UID=NEW-UID".to_owned()),
    }
}

fn mapping(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((old, new)) if !old.is_empty() && !new.is_empty() => Ok((old.to_owned(), new.to_owned())),
        _ => Err("expected OLD:NEW, two namespaces".to_owned()),
    }
}

/// Reports whether a text has the form of the UIDs that API servers generate.
fn is_uid(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let is_hex = |part: &&str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12]) && parts.iter().all(is_hex)
}

fn evidence_files(options: &RelinkOptions) -> EvidenceFiles<'_> {
    EvidenceFiles {
        backup: options.from.as_deref(),
        reading: Some(&options.reading),
        mappings: &options.namespace_mappings,
        journals: &options.journal,
        map: &options.map,
    }
}

/// `kubegc relink`
pub(crate) fn run(options: &RelinkOptions) -> anyhow::Result<()> {
    let patience = options.access.patience()?;
    let complete = block_on(async {
        let client = options.access.connect().await?;
        let gatherer = Gatherer::new(client.clone(), gather::now()).await?;
        let mut evidence = evidence_files(options).read(&gatherer.catalog)?;
        if options.prepare {
            let preparation = prepare::ask(&gatherer, evidence.backup.as_ref()).await;
            gather::warn(&preparation.unseen);
            output::print(&preparation, &options.output)?;
            return anyhow::Ok(true);
        }
        let namespace = options.namespaces.namespace();
        let (found, unseen) = relink::plan(&gatherer, namespace, &mut evidence, patience).await?;
        gather::warn(&unseen);
        for old in unmatched(&options.map, &found) {
            complain!("warning: no reference to an owner that is gone has the UID {old}");
        }
        let answer = RelinkAnswer { found: &found, is_done: options.yes, is_partial: !unseen.is_empty() };
        output::print(&answer, &options.output)?;
        if !options.yes || found.patches.is_empty() {
            return anyhow::Ok(found.is_complete() && unseen.is_empty());
        }
        let done = relink::restore(&client, &gatherer, found, &mut evidence, namespace, patience).await?;
        for failure in &done.failures {
            complain!("error: {failure}");
        }
        complain!("{} changed", count(done.changed.len(), "object"));
        match done.found.outcome() {
            Some(outcome) if matches!(options.output, Output::Text | Output::Wide) => {
                writeln!(screen::stdout(), "{outcome}.")?;
            }
            Some(outcome) => complain!("{outcome}."),
            None => {}
        }
        Ok(done.failures.is_empty() && done.found.is_complete() && unseen.is_empty())
    })?;
    if complete { Ok(()) } else { Err(Incomplete.into()) }
}

/// Returns the old UIDs of the map that occur in no dangling reference.
fn unmatched<'a>(map: &'a [(String, String)], found: &Relink) -> impl Iterator<Item = &'a str> {
    let old = map.iter().map(|(old, _)| old.as_str());
    old.filter(|old| found.links.iter().all(|link| link.old != *old))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_that_matches_nothing_is_said() {
        let map = [("a".to_owned(), "b".to_owned())];
        assert_eq!(unmatched(&map, &Relink::default()).collect::<Vec<_>>(), ["a"]);
    }
}
