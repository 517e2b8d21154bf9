//! `kubegc relink`: after a restore, gives dependents the UIDs of the owners that live.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufReader, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use futures::StreamExt as _;
use gc_explain::relink::{Cluster, Evidence, Identity, Link, Patch, Relink, relink};
use gc_explain::text::{count, some_of};
use gc_explain::{Catalog, GroupResource, Resource};
use gc_kube::ApiClient;
use http::Method;
use serde_json::Value;

use super::changes::send;
use super::seal::Reader;
use super::{Incomplete, backups, prepare};
use crate::UsageError;
use crate::journal::LONGEST_LINE_BYTES;
use crate::lines::Lines;
use crate::questions::access::Access;
use crate::questions::gather::{self, Gatherer, Reading, object_path};
use crate::questions::output::{Answer, Output};
use crate::questions::scope::NamespaceFlags;
use crate::table::Table;

/// Patches in flight at a time.
const IN_FLIGHT: usize = 16;
/// How often the cluster is read and patched while controllers change what is patched.
const ROUNDS: usize = 3;
/// Resources that are named of those that could not be listed.
const NAMED_RESOURCES: usize = 3;

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
    /// What was restored: a Velero backup (tar.gz), a file of `kubegc backup`, a manifest, or a directory of manifests or of a recorder's records; - is standard input
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
    /// File with the age identities that decrypt the records of --from, as `age-keygen` writes it
    #[arg(long, value_name = "FILE", requires = "from")]
    identity: Option<PathBuf>,
    /// Before a restore: print which controllers would adopt or recreate objects, and how to pause them
    #[arg(long, conflicts_with_all = ["map", "journal", "yes"])]
    prepare: bool,
    #[command(flatten)]
    namespaces: NamespaceFlags,
    /// Restore the references; without it, they are only shown
    #[arg(long)]
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

/// Whether a text has the form of the UIDs that API servers give.
fn is_uid(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let is_hex = |part: &&str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12]) && parts.iter().all(is_hex)
}

/// `kubegc relink`
pub(crate) fn run(options: &RelinkOptions) -> anyhow::Result<()> {
    let patience = options.access.patience()?;
    let complete = crate::tasks::block_on(async {
        let client = options.access.connect().await?;
        let gatherer = Gatherer::new(client.clone(), gather::now()).await?;
        let mut evidence = evidence(options, &gatherer.catalog)?;
        if options.prepare {
            let preparation = prepare::ask(&gatherer, evidence.backup.as_ref()).await;
            gather::warn(&preparation.unseen);
            crate::questions::output::print(&preparation, &options.output)?;
            return anyhow::Ok(true);
        }
        let namespace = options.namespaces.namespace();
        let (found, unseen) = plan(&gatherer, namespace, &mut evidence, patience).await?;
        gather::warn(&unseen);
        for old in unmatched(&options.map, &found) {
            crate::screen::complain!("warning: no reference to an owner that is gone has the UID {old}");
        }
        let answer = RelinkAnswer { found: &found, is_done: options.yes, is_partial: !unseen.is_empty() };
        crate::questions::output::print(&answer, &options.output)?;
        if !options.yes || found.patches.is_empty() {
            return anyhow::Ok(found.is_complete() && unseen.is_empty());
        }
        let done = restore(&client, &gatherer, found, &mut evidence, namespace, patience).await?;
        for failure in &done.failures {
            crate::screen::complain!("error: {failure}");
        }
        crate::screen::complain!("{} changed", count(done.changed.len(), "object"));
        match done.found.outcome() {
            Some(outcome) if matches!(options.output, Output::Text | Output::Wide) => {
                writeln!(crate::screen::stdout(), "{outcome}.")?;
            }
            Some(outcome) => crate::screen::complain!("{outcome}."),
            None => {}
        }
        Ok(done.failures.is_empty() && done.found.is_complete() && unseen.is_empty())
    })?;
    if complete { Ok(()) } else { Err(Incomplete.into()) }
}

/// What was done, and what is found afterwards.
struct Done {
    changed: BTreeSet<String>,
    failures: Vec<String>,
    found: Relink,
}

/// Sends the patches, and looks again: what controllers have changed meanwhile is decided again, a few times.
async fn restore(
    client: &ApiClient,
    gatherer: &Gatherer,
    mut found: Relink,
    evidence: &mut Evidence,
    namespace: &str,
    patience: Duration,
) -> anyhow::Result<Done> {
    let mut changed = BTreeSet::new();
    let mut failures = Vec::new();
    for _ in 0..ROUNDS {
        if found.patches.is_empty() {
            break;
        }
        let failed = perform(client, &gatherer.catalog, &found.patches).await;
        let is_failed = |patch: &&Patch| failed.iter().any(|failure| failure.uid == patch.place.uid);
        changed.extend(
            found.patches.iter().filter(|patch| !is_failed(patch)).map(|patch| patch.place.uid.clone()),
        );
        failures = failed.into_iter().map(|failure| failure.message).collect();
        (found, _) = plan(gatherer, namespace, evidence, patience).await?;
    }
    Ok(Done { changed, failures, found })
}

/// The old UIDs of the map that no reference has which leads nowhere.
fn unmatched<'a>(map: &'a [(String, String)], found: &Relink) -> impl Iterator<Item = &'a str> {
    let old = map.iter().map(|(old, _)| old.as_str());
    old.filter(|old| found.links.iter().all(|link| link.old != *old))
}

/// What backup, journals and map say.
fn evidence(options: &RelinkOptions, catalog: &Catalog) -> anyhow::Result<Evidence> {
    let mut evidence = Evidence { map: options.map.iter().cloned().collect(), ..Evidence::default() };
    for path in &options.journal {
        let shown = path.display();
        let file = File::open(path).map_err(|error| UsageError::new(format!("{shown}: {error}")))?;
        let mut lines = Lines::new(BufReader::new(file), LONGEST_LINE_BYTES);
        while let Some(line) = lines.next().with_context(|| format!("cannot read {shown}"))? {
            evidence.identities.extend(line.text().and_then(|line| of_journal(line, catalog)));
        }
    }
    if let Some(path) = &options.from {
        let mut backup = backups::read(path, &mut Reader::with(options.identity.as_deref())?, catalog)?;
        for (old, new) in &options.namespace_mappings {
            if !backup.has_namespace(old) {
                let text = format!("--namespace-mappings: the backup has nothing in namespace {old:?}");
                return Err(UsageError::new(text).into());
            }
            backup.mappings.entry(old.clone()).or_default().insert(new.clone());
        }
        evidence.backup = Some(backup);
    }
    Ok(evidence)
}

/// The object of a line of a journal, if it names one.
fn of_journal(line: &[u8], catalog: &Catalog) -> Option<(String, Identity)> {
    let entry: Value = serde_json::from_slice(line).ok()?;
    let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    let (uid, name, resource) = (text("uid"), text("name"), text("resource"));
    if uid.is_empty() || name.is_empty() {
        return None;
    }
    let (resource, group) = resource.split_once('.').unwrap_or((&resource, ""));
    let resource = catalog.named(&GroupResource::new(group, resource))?;
    let kind = resource.kind.to_string();
    Some((uid, Identity { group: group.to_owned(), kind, namespace: text("namespace"), name }))
}

/// Reads the cluster and decides.
pub(in crate::questions) async fn plan(
    gatherer: &Gatherer,
    namespace: &str,
    evidence: &mut Evidence,
    patience: Duration,
) -> anyhow::Result<(Relink, Vec<String>)> {
    // Owners may be anywhere: a namespace restricts what is changed, not what is seen.
    let Ok((cluster, unseen)) = tokio::time::timeout(patience, read_cluster(gatherer)).await else {
        anyhow::bail!(
            "the lists of all resources did not end within {patience:?}; --request-timeout allows more"
        );
    };
    told_mappings(gatherer, &cluster, evidence).await;
    Ok((relink(&cluster, evidence, namespace), unseen))
}

/// Events have no owners, and there are many.
fn takes_part(resource: &Resource) -> bool {
    resource.is_collectable() && &*resource.name.resource != "events"
}

/// What is read of a resource: of volumes and their claims everything, of others the metadata.
fn reading(resource: &Resource) -> Reading {
    let is_bound = resource.name.group.is_empty()
        && matches!(&*resource.name.resource, "persistentvolumes" | "persistentvolumeclaims");
    if is_bound { Reading::Whole } else { Reading::Metadata }
}

/// Everything that lives, and what could not be listed.
async fn read_cluster(gatherer: &Gatherer) -> (Cluster, Vec<String>) {
    let cluster = std::cell::RefCell::new(Cluster::new(gatherer.catalog.clone()));
    let lists = gatherer.catalog.all().iter().filter(|resource| takes_part(resource)).map(|resource| {
        let cluster = &cluster;
        async move {
            let take = |object: &Value| cluster.borrow_mut().add(resource, object);
            let listed = gatherer.each(resource, "", reading(resource), take).await;
            (resource, listed)
        }
    });
    let listed: Vec<_> = futures::stream::iter(lists).buffer_unordered(IN_FLIGHT).collect().await;
    let mut cluster = cluster.into_inner();
    let mut unseen = Vec::new();
    for (resource, listed) in listed {
        if let Err(why) = listed {
            cluster.not_listed(resource);
            unseen.push(format!("{} ({why})", resource.name));
        }
    }
    unseen.sort();
    let summary = (!unseen.is_empty()).then(|| {
        format!(
            "{} could not be listed, so that the answer may be incomplete: {}",
            count(unseen.len(), "resource"),
            some_of(&unseen, NAMED_RESOURCES)
        )
    });
    (cluster, summary.into_iter().collect())
}

/// Takes from the Restores whose labels objects have where they put namespaces, unless somebody has said it.
async fn told_mappings(gatherer: &Gatherer, cluster: &Cluster, evidence: &mut Evidence) {
    let Some(backup) = evidence.backup.as_mut().filter(|backup| backup.mappings.is_empty()) else { return };
    let restores = GroupResource::new("velero.io", "restores");
    let Some(resource) = gatherer.catalog.named(&restores).filter(|_| !cluster.restores().is_empty()) else {
        return;
    };
    let mut told: Vec<(String, String)> = Vec::new();
    let take = |restore: &Value| {
        let name = restore["metadata"]["name"].as_str().unwrap_or_default();
        let mappings = restore["spec"]["namespaceMapping"].as_object().into_iter().flatten();
        for (old, new) in mappings.filter_map(|(old, new)| Some((old, new.as_str()?))) {
            if backup.has_namespace(old) && cluster.has_restored_into(name, new) {
                told.push((old.clone(), new.to_owned()));
            }
        }
    };
    // Whoever may not read them has the labels, and the flag.
    let _ = gatherer.each(resource, "", Reading::Whole, take).await;
    for (old, new) in told {
        backup.mappings.entry(old).or_default().insert(new);
    }
}

/// A patch that changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) uid: String,
    pub(super) message: String,
}

/// Sends the patches; gives back what failed. Each holds for one version of its object, so that a second run finishes what a
/// first one left.
pub(super) async fn perform(client: &ApiClient, catalog: &Catalog, patches: &[Patch]) -> Vec<Failure> {
    let sent = patches.iter().map(|patch| async move {
        let failure = |why: String| Failure {
            uid: patch.place.uid.clone(),
            message: format!("{}: {why}", patch.place.title()),
        };
        let Some(resource) = catalog.named(&patch.resource) else {
            return Some(failure("its resource is not served".to_owned()));
        };
        let path = object_path(resource, &patch.place.namespace, &patch.place.name);
        let sent = send(client, Method::PATCH, &path, Some(&patch.body)).await;
        sent.err().map(|error| failure(error.to_string()))
    });
    let failures: Vec<Option<Failure>> =
        futures::stream::iter(sent).buffer_unordered(IN_FLIGHT).collect().await;
    failures.into_iter().flatten().collect()
}

pub(in crate::questions) struct RelinkAnswer<'a> {
    pub(in crate::questions) found: &'a Relink,
    pub(in crate::questions) is_done: bool,
    /// Not everything could be listed.
    pub(in crate::questions) is_partial: bool,
}

impl RelinkAnswer<'_> {
    fn links(&self, is_wide: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        let wide: &[&str] = if is_wide { &["OLD UID", "NEW UID"] } else { &[] };
        let mut table =
            Table::new(&[&["ACTION", "NAMESPACE", "OBJECT", "OWNER"], wide, &["EVIDENCE"]].concat());
        let row = |link: &Link| {
            let why = match (&link.new, &link.proof) {
                (Err(left), _) => left.message().to_owned(),
                (Ok(_), proof) => proof.as_ref().map(gc_explain::relink::Proof::message).unwrap_or_default(),
            };
            let new = link.new.as_ref().map_or("-", |new| new).to_owned();
            let place = &link.place;
            let mut cells =
                vec![link.action().to_owned(), place.namespace.clone(), place.title(), link.owner.clone()];
            cells.extend(is_wide.then(|| [link.old.clone(), new]).into_iter().flatten());
            cells.push(why);
            cells
        };
        self.found.links.iter().for_each(|link| table.row(row(link)));
        table.write(out)?;
        writeln!(out)?;
        Ok(())
    }

    /// Lists what controllers did, and what only the reader can do.
    fn remarks(&self, out: &mut Vec<u8>) -> anyhow::Result<()> {
        if let Some(comparison) = &self.found.comparison {
            for (from, to) in &comparison.namespaces {
                writeln!(out, "Namespace {from} of the backup is compared with {to}.")?;
            }
            let by: Vec<String> = comparison.replaced.iter().map(|one| one.by.clone()).collect();
            if !by.is_empty() {
                let objects = count(by.len(), "object");
                let shown = some_of(&by, NAMED_RESOURCES);
                writeln!(out, "In place of {objects} of the backup, controllers have made {shown}.")?;
            }
        }
        for advice in &self.found.advice {
            let place = &advice.place;
            let namespace =
                if place.namespace.is_empty() { String::new() } else { format!("{}/", place.namespace) };
            writeln!(out, "{namespace}{}: {}", place.title(), advice.text)?;
            for command in &advice.commands {
                writeln!(out, "  try: {command}")?;
            }
        }
        Ok(())
    }
}

impl Answer for RelinkAnswer<'_> {
    fn value(&self) -> Value {
        self.found.value()
    }

    fn text(&self, is_wide: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        let Relink { links, patches, comparison, .. } = self.found;
        if !links.is_empty() {
            self.links(is_wide, out)?;
        }
        self.remarks(out)?;
        // What is done now is reported afterwards.
        if let Some(outcome) = self.found.outcome().filter(|_| !self.is_done || patches.is_empty()) {
            writeln!(out, "{outcome}.")?;
        }
        let left = links.iter().filter(|link| link.new.is_err()).count();
        match (comparison, patches.len()) {
            (Some(_), 0) if self.found.is_complete() && left == 0 && !self.is_partial => {
                writeln!(out, "Nothing to do.")?;
            }
            (None, 0) if left == 0 => writeln!(
                out,
                "No reference leads to an owner that is gone. No backup was compared: what a restore has removed is seen with --from."
            )?,
            (_, changes) => {
                let verb = if self.is_done { "Changing" } else { "Would change" };
                let (changes, left) = (count(changes, "object"), count(left, "reference"));
                writeln!(out, "{verb} {changes}; leaving {left}.")?;
            }
        }
        if !self.is_done && !patches.is_empty() {
            writeln!(out, "Nothing was changed. To do it: add --yes.")?;
        }
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        self.found.patches.iter().map(|patch| patch.place.reference()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_that_matches_nothing_is_said() {
        let map = [("a".to_owned(), "b".to_owned())];
        assert_eq!(unmatched(&map, &Relink::default()).collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn nothing_to_do_is_said_only_of_a_backup_that_was_compared() {
        let shown = |found: &Relink, is_partial: bool| {
            let mut out = Vec::new();
            RelinkAnswer { found, is_done: false, is_partial }
                .text(false, &mut out)
                .map(|()| String::from_utf8_lossy(&out).into_owned())
        };
        let compared = gc_explain::relink::Comparison { references: 2, in_place: 2, ..Default::default() };
        let compared = Relink { comparison: Some(compared), ..Relink::default() };
        assert_eq!(
            shown(&compared, false).ok().as_deref(),
            Some("2 of 2 references of the backup restored.\nNothing to do.\n")
        );
        for (found, is_partial) in [(&compared, true), (&Relink::default(), false)] {
            assert!(shown(found, is_partial).is_ok_and(|text| !text.contains("Nothing to do")));
        }
    }
}
