//! Recreates deleted objects from the records of a recorder.

mod answer;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt as _;
use gc_explain::stuck::Place;
use gc_explain::undo::{
    Action, Choice, ChosenRecords, CurrentObject, Index, Owners, Presence, RESTORED_FROM, Record,
    RecordPredicate, Step, Undo, chosen, plan, with_owners,
};
use gc_explain::{Catalog, Knowledge, Resource};
use gc_inspect::gather::{Gatherer, Reading, object_path};
use gc_inspect::target::WantedObjects;
use gc_kube::ApiClient;
use gc_registry::selector::LabelSelector;
use gc_types::Timestamp;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::changes::{ChangeError, send};
use super::records::RecordsFlags;
use super::seal::ReadingFlags;
pub use answer::UndoAnswer;

/// Maximum number of objects that are created concurrently.
const IN_FLIGHT: usize = 16;
/// Maximum number of attempts to create an object whose definition is not established yet …
const TRIES: usize = 20;
/// … and the time between two attempts.
const TRY_PAUSE: Duration = Duration::from_millis(250);
/// Number of objects of one resource in one namespace from which one list replaces single reads.
const LIST_FROM: usize = 20;

/// Records that a user requests.
pub struct Selection {
    /// UID of an object that is restored with all its dependents.
    pub cascade: Option<String>,
    /// Time from which deletions are selected.
    pub since: Option<Timestamp>,
    /// Selected objects; empty for all.
    pub wanted: Vec<WantedObjects>,
    /// With `since`, the only namespace; empty for all.
    pub namespace: String,
    /// Labels of the selected objects.
    pub labels: LabelSelector,
}

impl Selection {
    /// Returns the choice for [`gc_explain::undo::chosen`].
    pub fn choice<'a>(&self, is_selected: RecordPredicate<'a>) -> Choice<'a> {
        match (&self.cascade, self.since) {
            (Some(uid), _) => Choice::Cascade(uid.clone()),
            (None, Some(since)) => Choice::Since(since, is_selected),
            (None, None) => Choice::Last(is_selected),
        }
    }

    /// Reports whether a record is selected, apart from dependents of selected objects.
    #[must_use]
    pub fn includes(&self, record: &Record) -> bool {
        let place = record.place();
        let is_in_namespace = self.namespace.is_empty()
            || place.namespace == self.namespace
            || (record.resource == "namespaces" && place.name == self.namespace);
        is_in_namespace
            && (self.wanted.is_empty() || self.wanted.iter().any(|wanted| names(wanted, record)))
            && self.labels.matches(record.object["metadata"].get("labels"))
    }
}

/// Records for a selection.
pub struct FoundRecords {
    /// The choice.
    pub chosen: ChosenRecords,
    /// The chosen records.
    pub records: Vec<Record>,
    /// Requested objects without a record.
    pub missing: Vec<WantedObjects>,
    /// Message about records that could not be read, or were rejected.
    pub warning: Option<String>,
}

/// Reads the records for a selection. They are read twice: once to choose, keeping only names, owners and times, and once more for
/// the contents of the chosen ones.
pub async fn read(
    records: &RecordsFlags,
    reading: &ReadingFlags,
    selection: &Selection,
) -> anyhow::Result<FoundRecords> {
    let is_selected = |record: &Record| selection.includes(record);
    let choice = selection.choice(&is_selected);
    let (mut index, mut missing) = (Index::default(), selection.wanted.clone());
    let mut reader = reading.reader()?;
    let take = |record: Record| {
        missing.retain(|wanted| !names(wanted, &record));
        index.add(&record, &choice);
    };
    records.each(&mut reader, selection.since, take).await?;
    let warning = reader.end()?;
    let chosen = index.chosen(&choice);
    let mut found: BTreeMap<String, Record> = BTreeMap::new();
    if !chosen.records.is_empty() {
        let take = |record: Record| {
            if chosen.takes(&record) {
                found.insert(record.uid().to_owned(), record);
            }
        };
        records.each(&mut reading.reader()?, selection.since, take).await?;
    }
    // A running recorder may have removed the oldest in the meantime.
    let lost = chosen.records.len() - found.len();
    anyhow::ensure!(lost == 0, "{lost} records were removed while they were read: try again");
    Ok(FoundRecords { chosen, records: found.into_values().collect(), missing, warning })
}

/// Reports whether a record is about a requested object, regardless of labels.
#[must_use]
pub fn names(wanted: &WantedObjects, record: &Record) -> bool {
    let place = record.place();
    wanted.resource.name.to_string() == record.resource
        && wanted.name.as_ref().is_none_or(|name| *name == place.name)
        && (wanted.namespace == place.namespace || (wanted.name.is_none() && wanted.namespace.is_empty()))
}

/// Plans the undoing of a choice among these records, after reading what is in the places of the deleted objects.
pub async fn ask(gatherer: &Gatherer, records: &[Record], choice: &Choice<'_>) -> Undo {
    of_chosen(gatherer, records, &chosen(records, choice)).await
}

/// Plans the undoing of the chosen ones of these records.
pub async fn of_chosen(gatherer: &Gatherer, records: &[Record], chosen: &ChosenRecords) -> Undo {
    let taken: Vec<&Record> = records.iter().filter(|record| chosen.takes(record)).collect();
    let living = living(gatherer, &taken).await;
    let own: BTreeSet<&str> = taken.iter().map(|record| record.uid()).collect();
    let mut owners: BTreeMap<String, Place> = BTreeMap::new();
    for record in &taken {
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
    let mut looked = futures::stream::iter(looked).buffer_unordered(IN_FLIGHT);
    let (mut presences, mut revisions) = (BTreeMap::new(), BTreeMap::new());
    while let Some(((presence, revision), uid)) = looked.next().await {
        revisions.extend(revision.map(|revision| (uid.clone(), revision)));
        presences.insert(uid, presence);
    }
    let presence = |uid: &str| presences.get(uid).copied().unwrap_or(Presence::Absent);
    let mut undo = plan(records, chosen, &living, &Owners { presence: &presence, revisions: &revisions });
    let there = presences.into_iter().filter(|(_, presence)| *presence == Presence::Lives);
    undo.known.extend(there.map(|(uid, _)| (uid.clone(), uid)));
    undo
}

/// Returns whether the very owner exists, and its current revision.
async fn presence(gatherer: &Gatherer, owner: &Place) -> (Presence, Option<String>) {
    let Some(resource) = gatherer.catalog.of_kind(&owner.api_version, &owner.kind) else {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        let is_unclear = gatherer.catalog.is_unclear(group);
        return (if is_unclear { Presence::Unknown } else { Presence::Absent }, None);
    };
    match gatherer.object(&resource.name, &owner.namespace, &owner.name).await {
        Knowledge::Present(object) if object["metadata"]["uid"] != owner.uid => (Presence::Absent, None),
        Knowledge::Present(object) if object["metadata"]["deletionTimestamp"].is_null() => {
            (Presence::Lives, revision(&owner.kind, &object))
        }
        Knowledge::Present(_) => (Presence::Terminating, None),
        Knowledge::Absent => (Presence::Absent, None),
        Knowledge::Unreadable(_) => (Presence::Unknown, None),
    }
}

/// Returns the current revision of an owner whose controller keeps older ones.
fn revision(kind: &str, owner: &Value) -> Option<String> {
    let revision = match kind {
        "Deployment" => &owner["metadata"]["annotations"]["deployment.kubernetes.io/revision"],
        "StatefulSet" => &owner["status"]["updateRevision"],
        _ => return None,
    };
    revision.as_str().map(str::to_owned)
}

/// Reads the object in the place of each record, by the former UID.
async fn living(gatherer: &Gatherer, records: &[&Record]) -> BTreeMap<String, CurrentObject> {
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
                let living = CurrentObject {
                    uid: text(&metadata["uid"]),
                    restored_from: text(&metadata["annotations"][RESTORED_FROM]),
                    is_terminating: !metadata["deletionTimestamp"].is_null(),
                };
                found.insert((*uid).to_owned(), living);
            }
        };
        if records.len() >= LIST_FROM {
            // An object that cannot be listed is found by the attempt to create it.
            let _ = gatherer.each(resource, &namespace, Reading::Metadata, &mut take).await;
        } else {
            for record in records {
                let object = gatherer.object(&name, &namespace, &record.place().name).await;
                if let Knowledge::Present(object) = object {
                    take(&object);
                }
            }
        }
    }
    found
}

/// Creates the planned objects, and returns the failures. Every step can be repeated.
pub async fn perform(client: &ApiClient, catalog: &Catalog, undo: &Undo) -> Vec<String> {
    let mut known = undo.known.clone();
    let mut failures = Vec::new();
    let mut waiting: Vec<&Step> =
        undo.steps.iter().filter(|step| matches!(step.action, Action::Create | Action::Complete)).collect();
    while let Some(rank) = waiting.iter().map(|step| step.rank).min() {
        // Steps of the lowest rank whose owners exist or, if there are none, of any rank.
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

/// Creates an object, and returns the UID of the one that exists now.
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

/// Gives the volume of a claim the claim's current UID, if the volume still has the former one.
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
    let is_another = found["spec"]["claimRef"]["uid"] != step.place.uid;
    // A recycled volume is emptied, even below a claim that has been bound to it in the meantime.
    let is_recycled = found["spec"]["persistentVolumeReclaimPolicy"] == "Recycle";
    if is_another || is_recycled || !found["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    // Without the version of the old claim, the binder takes the reference to be to this claim.
    let body = json!({
        "metadata": {"uid": found["metadata"]["uid"], "resourceVersion": found["metadata"]["resourceVersion"]},
        "spec": {"claimRef": {"uid": claim["metadata"]["uid"], "resourceVersion": null}},
    });
    let bound = send(client, Method::PATCH, &path, Some(&body)).await;
    bound
        .map(drop)
        .map_err(|error| format!("it was created, but volume {volume} is not bound to it: {error}"))
}

/// Reports whether a controller or an earlier run has written the status since the object was created.
fn has_written_status(object: &Value) -> bool {
    let mut writers = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    writers.any(|writer| writer["subresource"] == "status")
}

/// Returns the resource in the version of the record.
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
            // Its address belongs to another object now.
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

/// Handles an object that already exists, created by an earlier run of this command or by somebody else.
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
