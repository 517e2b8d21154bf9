//! `kubegc undo`: creates deleted objects again from the records of `kubegc recorder`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use futures::StreamExt as _;
use gc_explain::stuck::Place;
use gc_explain::text::count;
use gc_explain::undo::{
    Action, Choice, Living, Presence, RESTORED_FROM, Record, Selected, Step, Undo, chosen, plan, with_owners,
};
use gc_explain::{Catalog, Known, Resource};
use gc_kube::ApiClient;
use gc_registry::selector::LabelSelector;
use gc_types::{GoDuration, Timestamp};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::Incomplete;
use super::bucket::FLUSH_PERIOD;
use super::changes::{ChangeError, send};
use super::records::{self, RecordsFlags};
use super::seal::Reader;
use crate::UsageError;
use crate::questions::access::Access;
use crate::questions::gather::{self, Gatherer, Reading, object_path};
use crate::questions::output::{Answer, Output};
use crate::questions::target::{Targets, Wanted};
use crate::table::Table;

/// Objects that are created at a time.
const IN_FLIGHT: usize = 16;
/// How often the creation of an object is tried whose definition is not established yet …
const TRIES: usize = 20;
/// … and the time between two tries.
const TRY_PAUSE: Duration = Duration::from_millis(250);
/// From this many objects of one resource in one namespace on, one list replaces the single reads.
const LIST_FROM: usize = 20;

/// Options of `kubegc undo`.
#[derive(Clone, Debug, Args)]
#[command(
    group = clap::ArgGroup::new("choice").required(true).args(["objects", "filenames", "since", "cascade"]),
    after_help = "\
Examples:
  kubegc undo deploy/web -n shop --records DIR         show what would be created again
  kubegc undo deploy/web -n shop --records DIR --yes   create it
  kubegc undo cm -l app=web -A --records DIR           the last state of each ConfigMap with these labels
  kubegc undo --since 10m --records DIR                everything that was deleted in the last ten minutes
  kubegc undo --since 10m --records s3://BUCKET/PREFIX from a bucket
  kubegc undo --since 10m --records DIR --identity KEY from encrypted records
  kubegc undo --cascade UID --records DIR              an object, by the UID that it had, with all that depended on it

Owners are created before their dependents, which get the new UIDs. What a controller recreates is left to it. Objects that exist are never overwritten. A run that was interrupted can be repeated."
)]
pub(crate) struct UndoOptions {
    #[command(flatten)]
    targets: Targets,
    /// Everything that was deleted within this time; with -n or -l, only that
    #[arg(long, value_name = "DURATION")]
    since: Option<String>,
    /// The object that had this UID, and what depended on it
    #[arg(long, value_name = "UID", conflicts_with_all = ["namespace", "all_namespaces", "selector"])]
    cascade: Option<String>,
    /// Create the objects; without it, they are only shown
    #[arg(long)]
    yes: bool,
    /// Output format: text, wide, name, json, yaml, jsonpath=…, custom-columns=…
    #[arg(short, long, default_value = "text")]
    output: Output,
    #[command(flatten)]
    records: RecordsFlags,
    /// File with the age identities that decrypt the records, as `age-keygen` writes it
    #[arg(long, value_name = "FILE", help_heading = "Records")]
    identity: Option<PathBuf>,
    #[command(flatten)]
    access: Access,
}

/// Why nothing is undone, and what to try.
fn nothing_found(place: &records::Place) -> String {
    let soon = match place {
        records::Place::Directory(_) => String::new(),
        records::Place::Bucket { .. } => {
            format!("; the recorder writes to a bucket every {} s: try again", FLUSH_PERIOD.as_secs())
        }
    };
    format!("{place} has no record of what was asked for{soon}")
}

/// `kubegc undo`
pub(crate) fn run(options: &UndoOptions) -> anyhow::Result<()> {
    let complete = crate::tasks::block_on(async {
        let client = options.access.connect().await?;
        let gatherer = Gatherer::new(client.clone(), gather::now()).await?;
        let selection = Selection::of(options, &gatherer)?;
        let mut reader = Reader::with(options.identity.as_deref())?;
        let records = options.records.read(&mut reader, selection.since).await?;
        gather::warn(reader.end()?.as_slice());
        let is_selected = |record: &Record| selection.includes(record);
        let undo = ask(&gatherer, &records, &selection.choice(&is_selected)).await;
        let place = options.records.place();
        if undo.steps.is_empty() {
            anyhow::bail!("{}", nothing_found(place));
        }
        let unrecorded: Vec<String> = selection
            .unrecorded(&records)
            .map(|wanted| format!("{place} has no record of {wanted}"))
            .collect();
        gather::warn(&unrecorded);
        crate::questions::output::print(&UndoAnswer { undo: &undo, is_done: options.yes }, &options.output)?;
        if !options.yes {
            return anyhow::Ok(unrecorded.is_empty());
        }
        let failures = perform(&client, &gatherer.catalog, &undo).await;
        for failure in &failures {
            crate::screen::complain!("error: {failure}");
        }
        Ok(failures.is_empty() && unrecorded.is_empty())
    })?;
    if complete { Ok(()) } else { Err(Incomplete.into()) }
}

/// Which records the command line is about.
pub(super) struct Selection {
    cascade: Option<String>,
    since: Option<Timestamp>,
    /// The objects; empty if all are meant.
    wanted: Vec<Wanted>,
    /// With `--since`, the only namespace; empty for all.
    namespace: String,
    labels: LabelSelector,
}

impl Selection {
    pub(super) fn of(options: &UndoOptions, gatherer: &Gatherer) -> anyhow::Result<Self> {
        let targets = &options.targets;
        let labels = LabelSelector::parse(targets.selector().unwrap_or_default())
            .map_err(|error| UsageError::new(format!("--selector: {error}")))?;
        let since = options.since.as_deref().map(GoDuration::parse_with_days).transpose();
        let since = since
            .map_err(|error| UsageError::new(format!("--since: {error}")))?
            .map(|since| gatherer.now.after(-since.to_milliseconds_rounded_up()));
        let is_named = since.is_none() && options.cascade.is_none();
        let wanted = if is_named { targets.wanted(gatherer)?.complete()? } else { Vec::new() };
        let namespace = targets.namespace().filter(|_| !is_named).unwrap_or_default().to_owned();
        Ok(Self { cascade: options.cascade.clone(), since, wanted, namespace, labels })
    }

    pub(super) fn choice<'a>(&self, is_selected: Selected<'a>) -> Choice<'a> {
        match (&self.cascade, self.since) {
            (Some(uid), _) => Choice::Cascade(uid.clone()),
            (None, Some(since)) => Choice::Since(since, is_selected),
            (None, None) => Choice::Last(is_selected),
        }
    }

    /// What is asked for and has no record.
    pub(super) fn unrecorded(&self, records: &[Record]) -> impl Iterator<Item = &Wanted> {
        self.wanted.iter().filter(|wanted| !records.iter().any(|record| wanted.is(record)))
    }

    pub(super) fn includes(&self, record: &Record) -> bool {
        let place = record.place();
        let is_in_namespace = self.namespace.is_empty()
            || place.namespace == self.namespace
            || (record.resource == "namespaces" && place.name == self.namespace);
        is_in_namespace
            && (self.wanted.is_empty() || self.wanted.iter().any(|wanted| wanted.is(record)))
            && self.labels.matches(record.object["metadata"].get("labels"))
    }
}

impl Wanted {
    /// Whether a record is of an object that is asked for, whatever its labels.
    fn is(&self, record: &Record) -> bool {
        let place = record.place();
        self.resource.name.to_string() == record.resource
            && self.name.as_ref().is_none_or(|name| *name == place.name)
            && (self.namespace == place.namespace || (self.name.is_none() && self.namespace.is_empty()))
    }
}

/// The plan: reads what is in the places of the deleted objects.
pub(in crate::questions) async fn ask(gatherer: &Gatherer, records: &[Record], choice: &Choice<'_>) -> Undo {
    let chosen = chosen(records, choice);
    let living = living(gatherer, &chosen.records).await;
    let own: BTreeSet<&str> = chosen.records.iter().map(|record| record.uid()).collect();
    let mut owners: BTreeMap<String, Place> = BTreeMap::new();
    for record in &chosen.records {
        for owner in record.object["metadata"]["ownerReferences"].as_array().into_iter().flatten() {
            let text = |field: &str| owner[field].as_str().unwrap_or_default().to_owned();
            let uid = text("uid");
            if own.contains(uid.as_str()) {
                continue;
            }
            let scope = gatherer.catalog.of_kind(&text("apiVersion"), &text("kind"));
            let is_namespaced = scope.is_some_and(Resource::is_namespaced);
            let namespace = if is_namespaced { record.place().namespace } else { String::new() };
            owners.entry(uid.clone()).or_insert_with(|| Place {
                api_version: text("apiVersion"),
                kind: text("kind"),
                resource: String::new(),
                namespace,
                name: text("name"),
                uid,
            });
        }
    }
    let looked =
        owners.into_values().map(|place| async move { (presence(gatherer, &place).await, place.uid) });
    let looked: BTreeMap<String, Presence> = futures::stream::iter(looked)
        .buffer_unordered(IN_FLIGHT)
        .map(|(presence, uid)| (uid, presence))
        .collect()
        .await;
    let mut undo = plan(&chosen, &living, &|uid| looked.get(uid).copied().unwrap_or(Presence::Absent));
    let there = looked.into_iter().filter(|(_, presence)| *presence == Presence::Lives);
    undo.known.extend(there.map(|(uid, _)| (uid.clone(), uid)));
    undo
}

/// Whether the very owner is there.
async fn presence(gatherer: &Gatherer, owner: &Place) -> Presence {
    let Some(resource) = gatherer.catalog.of_kind(&owner.api_version, &owner.kind) else {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        return if gatherer.catalog.is_unclear(group) { Presence::Unknown } else { Presence::Absent };
    };
    match gatherer.object(&resource.name, &owner.namespace, &owner.name).await {
        Known::Present(object) if object["metadata"]["uid"] != owner.uid => Presence::Absent,
        Known::Present(object) if object["metadata"]["deletionTimestamp"].is_null() => Presence::Lives,
        Known::Present(_) => Presence::Terminating,
        Known::Absent => Presence::Absent,
        Known::Unreadable(_) => Presence::Unknown,
    }
}

/// What is found in the place of each record, by the UID of the past.
async fn living(gatherer: &Gatherer, records: &[&Record]) -> BTreeMap<String, Living> {
    let mut groups: BTreeMap<(String, String), Vec<&Record>> = BTreeMap::new();
    for record in records {
        let place = record.place();
        groups.entry((place.resource, place.namespace)).or_default().push(record);
    }
    let mut found = BTreeMap::new();
    for ((resource, namespace), records) in groups {
        let (name, group) = resource.split_once('.').unwrap_or((&resource, ""));
        let name = gc_explain::GroupResource::new(group, name);
        let Some(resource) = gatherer.catalog.named(&name) else { continue };
        let by_name: BTreeMap<String, &str> =
            records.iter().map(|record| (record.place().name, record.uid())).collect();
        let mut take = |object: &Value| {
            let metadata = &object["metadata"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            if let Some(uid) = by_name.get(&text(&metadata["name"])) {
                let living = Living {
                    uid: text(&metadata["uid"]),
                    restored_from: text(&metadata["annotations"][RESTORED_FROM]),
                    is_terminating: !metadata["deletionTimestamp"].is_null(),
                };
                found.insert((*uid).to_owned(), living);
            }
        };
        if records.len() >= LIST_FROM {
            // What cannot be listed is found out by its creation.
            let _ = gatherer.each(resource, &namespace, Reading::Metadata, &mut take).await;
        } else {
            for record in records {
                let object = gatherer.object(&name, &namespace, &record.place().name).await;
                if let Known::Present(object) = object {
                    take(&object);
                }
            }
        }
    }
    found
}

/// Creates what is to be created; gives back what failed. Everything is done so that it can be done again.
pub(super) async fn perform(client: &ApiClient, catalog: &Catalog, undo: &Undo) -> Vec<String> {
    let mut known = undo.known.clone();
    let mut failures = Vec::new();
    let mut waiting: Vec<&Step> =
        undo.steps.iter().filter(|step| matches!(step.action, Action::Create | Action::Complete)).collect();
    while let Some(rank) = waiting.iter().map(|step| step.rank).min() {
        // Of the lowest rank, those whose owners are there; if there are none, of any rank.
        let is_ready = |step: &&Step| with_owners(&step.object, &known, &|_| false).is_some();
        let (mut ready, mut rest): (Vec<&Step>, Vec<&Step>) =
            waiting.into_iter().partition(|step| step.rank == rank && is_ready(step));
        if ready.is_empty() {
            (ready, rest) = rest.into_iter().partition(is_ready);
        }
        if ready.is_empty() {
            failures.extend(
                rest.iter().map(|step| format!("{}: its owner could not be created", step.place.title())),
            );
            return failures;
        }
        waiting = rest;
        let (known_now, steps) = (&known, ready.into_iter());
        let done = steps.map(|step| async move { (step, restore(client, catalog, step, known_now).await) });
        let done: Vec<_> = futures::stream::iter(done).buffer_unordered(IN_FLIGHT).collect().await;
        for (step, restored) in done {
            match restored {
                Ok(uid) => drop(known.insert(step.place.uid.clone(), uid)),
                Err(why) => failures.push(format!("{}: {why}", step.place.title())),
            }
        }
    }
    failures
}

/// The UID of the object that is there now.
async fn restore(
    client: &ApiClient,
    catalog: &Catalog,
    step: &Step,
    known: &BTreeMap<String, String>,
) -> Result<String, String> {
    let resource = served(catalog, &step.place)?;
    let path = object_path(&resource, &step.place.namespace, &step.place.name);
    let created = match step.action {
        Action::Complete => already_there(client, step, &path).await?,
        _ => {
            let object =
                with_owners(&step.object, known, &|_| false).ok_or("its owner could not be created")?;
            create(client, &resource, step, &path, object).await?
        }
    };
    if resource.name == gc_explain::GroupResource::new("", "persistentvolumeclaims") {
        bind(client, catalog, step, &created).await?;
    }
    if let Some(status) = step.status.as_ref().filter(|_| !has_written_status(&created)) {
        let uid = &created["metadata"]["uid"];
        let body = json!({"metadata": {"uid": uid}, "status": status});
        let set = send(client, Method::PATCH, &format!("{path}/status"), Some(&body)).await;
        let is_missing =
            |error: &ChangeError| error.is(StatusCode::NOT_FOUND) || error.is(StatusCode::METHOD_NOT_ALLOWED);
        let set = match set {
            // Without the subresource, the status is a part of the object.
            Err(error) if is_missing(&error) && created["status"].is_null() => {
                send(client, Method::PATCH, &path, Some(&body)).await
            }
            Err(error) if is_missing(&error) => Ok(Value::Null),
            other => other,
        };
        set.map_err(|error| format!("it was created, but not its status: {error}"))?;
    }
    Ok(created["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
}

/// Gives the volume of a claim the UID that the claim has now, if the volume still has the one that it had.
async fn bind(client: &ApiClient, catalog: &Catalog, step: &Step, claim: &Value) -> Result<(), String> {
    let volume = claim["spec"]["volumeName"].as_str().unwrap_or_default();
    let volumes = gc_explain::GroupResource::new("", "persistentvolumes");
    let Some(resource) = catalog.named(&volumes).filter(|_| !volume.is_empty()) else { return Ok(()) };
    let path = object_path(resource, "", volume);
    let found = match send(client, Method::GET, &path, None).await {
        Ok(found) => found,
        Err(error) if error.is(StatusCode::NOT_FOUND) => return Ok(()),
        Err(error) => return Err(format!("it was created, but volume {volume} could not be read: {error}")),
    };
    if found["spec"]["claimRef"]["uid"] != step.place.uid || !found["metadata"]["deletionTimestamp"].is_null()
    {
        return Ok(());
    }
    // Without the version of the old claim, the binder takes the reference for one of this claim.
    let body = json!({
        "metadata": {"uid": found["metadata"]["uid"], "resourceVersion": found["metadata"]["resourceVersion"]},
        "spec": {"claimRef": {"uid": claim["metadata"]["uid"], "resourceVersion": null}},
    });
    let bound = send(client, Method::PATCH, &path, Some(&body)).await;
    bound
        .map(drop)
        .map_err(|error| format!("it was created, but volume {volume} is not bound to it: {error}"))
}

/// Whether somebody has written the status since the object was created: a controller, or an earlier run.
fn has_written_status(object: &Value) -> bool {
    let mut writers = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    writers.any(|writer| writer["subresource"] == "status")
}

/// The resource in the version of the record.
fn served(catalog: &Catalog, place: &Place) -> Result<Resource, String> {
    let mut resource = catalog
        .of_kind(&place.api_version, &place.kind)
        .ok_or_else(|| format!("{} {} is not served", place.api_version, place.kind))?
        .clone();
    let version =
        place.api_version.split_once('/').map_or(place.api_version.as_str(), |(_, version)| version);
    resource.version = version.into();
    Ok(resource)
}

async fn create(
    client: &ApiClient,
    resource: &Resource,
    step: &Step,
    path: &str,
    mut object: Value,
) -> Result<Value, String> {
    let mut segment = String::new();
    gc_kube::push_segment(&mut segment, &step.place.namespace);
    let collection = resource.path(&segment);
    let mut has_addresses = resource.name == gc_explain::GroupResource::new("", "services");
    for attempt in 1.. {
        match send(client, Method::POST, &collection, Some(&object)).await {
            Ok(created) => return Ok(created),
            Err(error) if error.is(StatusCode::CONFLICT) => return already_there(client, step, path).await,
            // Its definition has just been created.
            Err(error) if error.is(StatusCode::NOT_FOUND) && attempt < TRIES => {
                tokio::time::sleep(TRY_PAUSE).await;
            }
            // Its address is somebody else's now.
            Err(error) if error.is(StatusCode::UNPROCESSABLE_ENTITY) && has_addresses => {
                has_addresses = false;
                without_addresses(&mut object);
            }
            Err(ChangeError::Unanswered(why)) => return Err(why),
            Err(error) => return Err(error.to_string()),
        }
    }
    Err("it was tried too often".to_owned())
}

/// Somebody was faster: an earlier run of this command, or somebody else.
async fn already_there(client: &ApiClient, step: &Step, path: &str) -> Result<Value, String> {
    let found = send(client, Method::GET, path, None).await.map_err(|error| error.to_string())?;
    let is_terminating = !found["metadata"]["deletionTimestamp"].is_null();
    if found["metadata"]["annotations"][RESTORED_FROM] == step.place.uid && !is_terminating {
        return Ok(found);
    }
    Err("another object has its name; it was not overwritten".to_owned())
}

fn without_addresses(service: &mut Value) {
    if let Some(spec) = service["spec"].as_object_mut() {
        for field in ["clusterIP", "clusterIPs", "healthCheckNodePort"] {
            spec.remove(field);
        }
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            port.as_object_mut().map(|port| port.remove("nodePort"));
        }
    }
}

/// Shows what an object gives to whom, if it does: records come from a disk or a bucket that others may write to.
fn rights(object: &Value, place: &Place, out: &mut Vec<u8>) -> anyhow::Result<()> {
    let granted: Vec<(&str, &Value)> = ["subjects", "roleRef", "rules", "aggregationRule"]
        .into_iter()
        .map(|field| (field, &object[field]))
        .filter(|(_, value)| !value.is_null())
        .collect();
    if !place.api_version.starts_with("rbac.authorization.k8s.io/") || granted.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{} grants:", place.title())?;
    for (field, value) in granted {
        writeln!(out, "  {field}: {value}")?;
    }
    Ok(())
}

pub(in crate::questions) struct UndoAnswer<'a> {
    pub(in crate::questions) undo: &'a Undo,
    pub(in crate::questions) is_done: bool,
}

impl Answer for UndoAnswer<'_> {
    fn value(&self) -> Value {
        self.undo.value()
    }

    fn text(&self, _is_wide: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        let mut table = Table::new(&["ACTION", "NAMESPACE", "OBJECT", "NOTE"]);
        for step in &self.undo.steps {
            let note = match &step.action {
                Action::Recreated(owner) => format!("{owner} recreates it"),
                Action::Impossible(why) => (*why).to_owned(),
                Action::Exists => "an object of this name exists; it stays as it is".to_owned(),
                Action::Complete => "an earlier run has created it".to_owned(),
                Action::Withheld => {
                    format!("it grants rights: name it to create it, {}", step.place.reference())
                }
                Action::Create => step.notes.join("; "),
            };
            table.row(vec![
                step.action.name().to_owned(),
                step.place.namespace.clone(),
                step.place.title(),
                note,
            ]);
        }
        table.write(out)?;
        let number =
            |wanted: fn(&Action) -> bool| self.undo.steps.iter().filter(|step| wanted(&step.action)).count();
        let created = number(|action| *action == Action::Create);
        let lost = number(|action| matches!(action, Action::Impossible(_)));
        for step in self.undo.steps.iter().filter(|step| step.action == Action::Create) {
            rights(&step.object, &step.place, out)?;
        }
        let verb = if self.is_done { "Creating" } else { "Would create" };
        writeln!(out, "\n{verb} {}; {} cannot come back.", count(created, "object"), count(lost, "object"))?;
        if !self.is_done && created > 0 {
            writeln!(out, "Nothing was changed. To do it: add --yes.")?;
        }
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        let created = self.undo.steps.iter().filter(|step| step.action == Action::Create);
        created.map(|step| step.place.reference()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_may_have_the_record_a_moment_later() {
        for (place, expected) in [
            ("/var/records", "/var/records has no record of what was asked for"),
            (
                "s3://b/a",
                "s3://b/a/ has no record of what was asked for; the recorder writes to a bucket every 10 s: try again",
            ),
        ] {
            let Ok(place) = place.parse::<records::Place>();
            assert_eq!(nothing_found(&place), expected);
        }
    }
}
