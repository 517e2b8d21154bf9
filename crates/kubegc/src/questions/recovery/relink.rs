//! `kubegc relink`: after a restore, gives dependents the UIDs of the owners that live.

use std::fs::File;
use std::io::{BufReader, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use futures::StreamExt as _;
use gc_answers::relink::{Evidence, Identity, Patch, Relink, relink};
use gc_answers::text::count;
use gc_answers::{Catalog, GroupResource, Object};
use gc_kube::ApiClient;
use http::Method;
use serde_json::Value;

use super::changes::send;
use super::{Incomplete, velero};
use crate::UsageError;
use crate::journal::LONGEST_LINE_BYTES;
use crate::lines::Lines;
use crate::questions::access::Access;
use crate::questions::gather::{self, Gatherer, Reading, Scope, object_path};
use crate::questions::output::{Answer, Output};
use crate::questions::scope::NamespaceFlags;
use crate::table::Table;

/// Patches in flight at a time.
const IN_FLIGHT: usize = 16;

/// Options of `kubegc relink`.
#[derive(Clone, Debug, Args)]
#[command(
    group = clap::ArgGroup::new("evidence").required(true).multiple(true).args(["from", "map", "journal"]),
    after_help = "\
Examples:
  kubegc relink --from velero-backup.tar.gz         show which references would be rewritten
  kubegc relink --from velero-backup.tar.gz --yes   rewrite them
  kubegc relink --map OLD-UID=NEW-UID               for one owner whose UIDs are known

After a restore, dependents have the UIDs of owners that no longer exist, and a collector deletes them. Pause the collectors before restoring (kubegc pause; or stop kube-controller-manager), relink, and resume. A reference is rewritten only if the backup, the journal or the map says what its UID was, and an object of the same kind lives in its place."
)]
pub(crate) struct RelinkOptions {
    /// Velero backup that was restored (tar.gz); - is standard input
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// UID of an owner that is gone, and of the object in its place (repeatable)
    #[arg(long, value_name = "OLD=NEW", value_parser = pair)]
    map: Vec<(String, String)>,
    /// Journal of a collector that names deleted objects by their UIDs (repeatable)
    #[arg(long, value_name = "FILE")]
    journal: Vec<PathBuf>,
    #[command(flatten)]
    namespaces: NamespaceFlags,
    /// Rewrite the references; without it, they are only shown
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
        let evidence = evidence(options, &gatherer.catalog)?;
        let namespace = options.namespaces.namespace();
        let (found, unseen) = plan(&gatherer, namespace, &evidence, patience).await?;
        gather::warn(&unseen);
        for old in unmatched(&options.map, &found) {
            eprintln!("warning: no reference to an owner that is gone has the UID {old}");
        }
        crate::questions::output::print(
            &RelinkAnswer { found: &found, is_done: options.yes },
            &options.output,
        )?;
        if !options.yes {
            return anyhow::Ok(true);
        }
        let failures = perform(&client, &gatherer.catalog, &found.patches).await;
        for failure in &failures {
            eprintln!("error: {failure}");
        }
        eprintln!("{} changed", count(found.patches.len() - failures.len(), "object"));
        Ok(failures.is_empty())
    })?;
    if complete { Ok(()) } else { Err(Incomplete.into()) }
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
        let shown = path.display();
        let identities = if path.as_os_str() == "-" {
            velero::identities(std::io::stdin().lock())
        } else {
            let file = File::open(path).map_err(|error| UsageError::new(format!("{shown}: {error}")))?;
            velero::identities(BufReader::new(file))
        };
        evidence.identities.extend(identities.with_context(|| format!("{shown} cannot be read"))?);
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
    evidence: &Evidence,
    patience: Duration,
) -> anyhow::Result<(Relink, Vec<String>)> {
    // Owners may be anywhere: a namespace restricts what is changed, not what is seen.
    let survey = gatherer.survey(&Scope::default(), patience).await?;
    let mut unseen: Vec<String> = gather::unlisted_summary(&survey).into_iter().collect();
    let mut volumes = Vec::new();
    if let Some(resource) = gatherer.catalog.named(&GroupResource::new("", "persistentvolumes"))
        && namespace.is_empty()
        && let Err(why) = gatherer
            .each(resource, "", Reading::Whole, |object| volumes.push(Object::new(object.clone())))
            .await
    {
        unseen.push(format!("persistentvolumes could not be listed: {why}"));
    }
    let mut found = relink(&survey, &volumes, evidence);
    if !namespace.is_empty() {
        found.links.retain(|link| link.place.namespace == namespace);
        found.patches.retain(|patch| patch.place.namespace == namespace);
    }
    Ok((found, unseen))
}

/// Sends the patches; gives back what failed. Each holds for one version of its object, so that a second run finishes what a
/// first one left.
pub(super) async fn perform(client: &ApiClient, catalog: &Catalog, patches: &[Patch]) -> Vec<String> {
    let sent = patches.iter().map(|patch| async move {
        let Some(resource) = catalog.named(&patch.resource) else {
            return Some(format!("{}: its resource is not served", patch.place.title()));
        };
        let path = object_path(resource, &patch.place.namespace, &patch.place.name);
        let sent = send(client, Method::PATCH, &path, Some(&patch.body)).await;
        sent.err().map(|error| format!("{}: {error}", patch.place.title()))
    });
    let failures: Vec<Option<String>> =
        futures::stream::iter(sent).buffer_unordered(IN_FLIGHT).collect().await;
    failures.into_iter().flatten().collect()
}

pub(in crate::questions) struct RelinkAnswer<'a> {
    pub(in crate::questions) found: &'a Relink,
    pub(in crate::questions) is_done: bool,
}

impl Answer for RelinkAnswer<'_> {
    fn value(&self) -> Value {
        self.found.value()
    }

    fn text(&self, _is_wide: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        let Relink { links, patches } = self.found;
        if links.is_empty() {
            writeln!(out, "Every reference leads to an object that exists.")?;
            return Ok(());
        }
        let mut table = Table::new(&["NAMESPACE", "OBJECT", "OWNER", "OLD UID", "NEW UID"]);
        for link in links {
            let new = match &link.new {
                Ok(new) => new.clone(),
                Err(left) => format!("- ({})", left.message()),
            };
            table.row(vec![
                link.place.namespace.clone(),
                link.place.title(),
                link.owner.clone(),
                link.old.clone(),
                new,
            ]);
        }
        table.write(out)?;
        let left = links.iter().filter(|link| link.new.is_err()).count();
        let verb = if self.is_done { "Changing" } else { "Would change" };
        writeln!(out, "\n{verb} {}; leaving {}.", count(patches.len(), "object"), count(left, "reference"))?;
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
}
