//! Gives dependents the new UIDs of their owners after a restore.

mod answer;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use futures::StreamExt as _;
use gc_explain::relink::{Cluster, Evidence, Identity, Patch, Relink, relink};
use gc_explain::text::{count, some_of};
use gc_explain::{Catalog, GroupResource, Resource};
use gc_inspect::gather::{Gatherer, Reading, object_path};
use gc_kube::ApiClient;
use gc_process::UsageError;
use gc_process::journal::LONGEST_LINE_BYTES;
use gc_process::lines::Lines;
use http::Method;
use serde_json::Value;

use super::backups;
use super::changes::send;
use super::seal::ReadingFlags;
pub use answer::RelinkAnswer;

/// Maximum number of concurrent patches.
const IN_FLIGHT: usize = 16;
/// Maximum number of rounds of reading and patching while controllers change the same objects.
const ROUNDS: usize = 3;
/// Maximum number of unlisted resources that are named.
const NAMED_RESOURCES: usize = 3;

/// Result of a relink.
pub struct Relinked {
    /// UIDs of the changed objects.
    pub changed: BTreeSet<String>,
    /// An error for each object that was not changed.
    pub failures: Vec<String>,
    /// Findings afterwards.
    pub found: Relink,
}

/// Sends the patches, and plans again: objects that controllers have changed in the meantime are decided again, a few times.
pub async fn restore(
    client: &ApiClient,
    gatherer: &Gatherer,
    mut found: Relink,
    evidence: &mut Evidence,
    namespace: &str,
    patience: Duration,
) -> anyhow::Result<Relinked> {
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
    Ok(Relinked { changed, failures, found })
}

/// Files that show what owners were, and the owners that a user names.
#[derive(Clone, Copy, Debug, Default)]
pub struct EvidenceFiles<'a> {
    /// The restored backup: a Velero archive, a file of `kubegc backup`, manifests or the directory of a recorder; `-` is standard
    /// input.
    pub backup: Option<&'a Path>,
    /// Keys for decrypting and verifying it, if it is the directory of a recorder.
    pub reading: Option<&'a ReadingFlags>,
    /// Namespaces of the backup that were restored under other names.
    pub mappings: &'a [(String, String)],
    /// Journals that name deleted objects by their UIDs.
    pub journals: &'a [PathBuf],
    /// UIDs of former owners, with the UIDs of the objects in their places.
    pub map: &'a [(String, String)],
}

impl EvidenceFiles<'_> {
    /// Reads the files. Mapping a namespace that the backup does not contain is a usage error.
    pub fn read(&self, catalog: &Catalog) -> anyhow::Result<Evidence> {
        let mut evidence = Evidence { map: self.map.iter().cloned().collect(), ..Evidence::default() };
        for path in self.journals {
            let shown = path.display();
            let file = File::open(path).map_err(|error| UsageError::new(format!("{shown}: {error}")))?;
            let mut lines = Lines::new(BufReader::new(file), LONGEST_LINE_BYTES);
            while let Some(line) = lines.next().with_context(|| format!("cannot read {shown}"))? {
                evidence.identities.extend(line.text().and_then(|line| of_journal(line, catalog)));
            }
        }
        if let Some(path) = self.backup {
            let mut reader = self.reading.map(ReadingFlags::reader).transpose()?.unwrap_or_default();
            let mut backup = backups::read(path, &mut reader, catalog)?;
            for (old, new) in self.mappings {
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
}

/// Returns the object of a line of a journal, if it names one.
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

/// Reads the cluster and plans.
pub async fn plan(
    gatherer: &Gatherer,
    namespace: &str,
    evidence: &mut Evidence,
    patience: Duration,
) -> anyhow::Result<(Relink, Vec<String>)> {
    // Owners may be anywhere: a namespace restricts what is changed, not what is read.
    let Ok((cluster, unseen)) = tokio::time::timeout(patience, read_cluster(gatherer)).await else {
        anyhow::bail!(
            "the lists of all resources did not end within {patience:?}; --request-timeout allows more"
        );
    };
    told_mappings(gatherer, &cluster, evidence).await;
    Ok((relink(&cluster, evidence, namespace), unseen))
}

/// Reports whether a resource takes part. Events have no owners, and are numerous.
fn takes_part(resource: &Resource) -> bool {
    resource.is_collectable() && &*resource.name.resource != "events"
}

/// Returns the part of a resource that is read: whole volumes and claims, and the metadata of others.
fn reading(resource: &Resource) -> Reading {
    let is_bound = resource.name.group.is_empty()
        && matches!(&*resource.name.resource, "persistentvolumes" | "persistentvolumeclaims");
    if is_bound { Reading::Whole } else { Reading::Metadata }
}

/// Reads all objects in the cluster; also returns what could not be listed.
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

/// Takes the namespace mappings from the Restores that objects' labels name, unless the user gave them.
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
    // A user who may not read them can use the labels and the flag.
    let _ = gatherer.each(resource, "", Reading::Whole, take).await;
    for (old, new) in told {
        backup.mappings.entry(old).or_default().insert(new);
    }
}

/// A patch that changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// UID of the object.
    pub uid: String,
    /// The object, and why it was not changed.
    pub message: String,
}

/// Sends the patches, and returns those that failed. Each is valid for one version of its object, so that a second run finishes
/// what a first one left.
pub async fn perform(client: &ApiClient, catalog: &Catalog, patches: &[Patch]) -> Vec<Failure> {
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
