//! Questions of the page: with the permissions of one user, about everything that the user may list.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::ValueEnum as _;
use gc_collectors::permissions::Controller;
use gc_explain::map::{Emphasis, Extent, Map, map, place_of_view};
use gc_explain::nodes::Nodes;
use gc_explain::plan::BlastRadius;
use gc_explain::release::finalizer_names;
use gc_explain::stuck::{Place, Row};
pub use gc_explain::tree::Tree;
use gc_explain::tree::{Direction, tree as tree_of};
use gc_explain::upcoming::{Horizon, Outlook, upcoming};
use gc_explain::why::Why;
use gc_explain::{Catalog, Facts, GroupResource, Knowledge, Metadata, Object, Resource, Survey};
use gc_kube::ApiClient;
use gc_types::{ObjectKey, Timestamp, Uid};
use serde_json::Value;

pub use super::columns::Columns;
use super::gather::{self, Gatherer, Scope};
pub use super::listable::listable;
use super::plan::{self, Cascade, Planning, ShownPlan};
pub use super::resident::Lists;
use super::resident::Resident;
use super::tree::{Forest, Shape};
use super::unanswered::UnansweredReason;
use super::why;
use crate::output::Answer as _;
use crate::release::ReleaseAnswer;
use crate::release::removal::{self, RemovalError};
use crate::stuck;
pub use crate::subject::{ConfirmedPlan, Subject};
use crate::target::NamedObject;

/// Period for which deletions are forecast.
const DUE_WITHIN_MILLISECONDS: i64 = 24 * 3_600_000;
/// Maximum number of expected deletions to name in each namespace.
const DUE_NAMED: usize = 200;
/// Maximum number of an object's conditions to show.
const CONDITIONS_SHOWN: usize = 20;
/// Annotation that repeats the contents of an object, and does not count as metadata.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Everything that a user may see, at one time.
pub struct View {
    /// Metadata.
    pub survey: Survey,
    /// Time of the view.
    pub now: Timestamp,
    /// Stuck objects, by root cause.
    pub stuck: Vec<Row>,
    /// Resources that could not be read.
    pub unseen: Vec<String>,
    /// Deletions within a day, by the clock of the collectors.
    pub due: Outlook,
    /// Reports of node agents.
    pub nodes: Nodes,
    /// Time by the clock of the collectors.
    pub clock: Timestamp,
    /// Duration of taking the view.
    pub took: Duration,
}

/// Returns the resources that discovery reports to the client's user.
pub async fn catalog(client: &ApiClient) -> anyhow::Result<Catalog> {
    Ok(Gatherer::new(client.clone(), gather::now()).await?.catalog)
}

impl View {
    /// Lists these resources, or takes them from a graph in this process, and diagnoses the result. Forecasts only what running
    /// collectors will delete.
    pub async fn take(
        client: ApiClient,
        lists: Lists,
        clock: Timestamp,
        patience: Duration,
        runs: &dyn Fn(&str) -> bool,
        resident: Option<Arc<dyn Resident>>,
    ) -> anyhow::Result<Self> {
        let begun = Instant::now();
        // The graph has no expiry annotations, but lists do.
        let resident = resident.filter(|_| !runs(Controller::Expiry.name()));
        let gatherer = Gatherer::new(client, gather::now()).await?.beside(resident);
        let mut survey = gatherer.empty_survey();
        let namespaces: Vec<String> = lists.iter().map(|(namespace, _)| namespace.clone()).collect();
        let lists: Vec<(Scope, Vec<Resource>)> = lists
            .into_iter()
            .map(|(namespace, resources)| (Scope { namespace, ..Scope::default() }, resources))
            .collect();
        gatherer.list_all(&mut survey, &lists, patience).await?;
        gatherer.complete(&mut survey).await;
        let stuck = stuck::diagnosed(&gatherer, &survey, &Scope::default()).await;
        let mut facts = Facts::at(clock);
        let until = clock.after(DUE_WITHIN_MILLISECONDS);
        let horizon = Horizon { namespaces: &namespaces, until, limit: DUE_NAMED, runs };
        let mut due = gatherer.answer(&mut facts, |facts| upcoming(&survey, facts, &horizon)).await;
        let leases = gatherer.node_reports(&lists).await;
        let ahead = clock.since(gatherer.now);
        let mut nodes = Nodes::read(&leases, gatherer.now, (&mut due, ahead));
        nodes.expect(node_names(&survey));
        due.unknown.extend(nodes.unseen());
        Ok(Self {
            survey,
            now: gatherer.now,
            stuck: stuck.rows,
            unseen: stuck.unseen,
            due,
            nodes,
            clock,
            took: begun.elapsed(),
        })
    }

    /// Reports whether the view contains the object with a UID.
    #[must_use]
    pub fn has(&self, uid: &Uid) -> bool {
        let found = self.survey.engine.view_of(uid);
        found.is_some_and(|view| view.presence == gc_ownership::Presence::Observed)
    }

    /// Returns the first dependents of an object, and their total number.
    #[must_use]
    pub fn dependents(&self, uid: &Uid, most: usize) -> (Vec<Place>, usize) {
        let all = self.survey.engine.dependents(uid);
        let first = all.iter().take(most).map(|view| place_of_view(&self.survey, view)).collect();
        (first, all.len())
    }

    /// Reports whether the view contains this namespace.
    #[must_use]
    pub fn has_namespace(&self, name: &str) -> bool {
        self.uid_of(&format!("namespaces//{name}")).is_some()
    }

    /// Returns the UID of the object `resource/namespace/name`, if the view contains it.
    #[must_use]
    pub fn uid_of(&self, reference: &str) -> Option<Uid> {
        let mut words = reference.splitn(3, '/');
        let (resource, namespace, name) = (words.next()?, words.next()?, words.next()?);
        let resource = self.survey.catalog.find(resource).ok()?.first()?.id;
        let is_it =
            |key: &ObjectKey| key.resource == resource && *key.namespace == *namespace && *key.name == *name;
        self.survey.engine.select(is_it).first().map(|view| view.uid.clone())
    }

    /// Returns the map of a namespace or, if the name is empty, of everything.
    #[must_use]
    pub fn map_of_namespace(&self, namespace: &str, budget: usize, emphasis: Emphasis<'_>) -> Option<Map> {
        let extent = match namespace {
            "" => Extent::Everything,
            name => Extent::Namespace(name.to_owned()),
        };
        map(&self.survey, &extent, budget, emphasis)
    }

    /// Returns the map around an object.
    #[must_use]
    pub fn map_around(&self, uid: &str, budget: usize, emphasis: Emphasis<'_>) -> Option<Map> {
        map(&self.survey, &Extent::Around(Uid::new(uid)), budget, emphasis)
    }
}

/// Data for a question about an object.
pub struct Question {
    gatherer: Gatherer,
    client: ApiClient,
    named: NamedObject,
    patience: Duration,
}

/// The part of an object that is shown: nothing of its contents.
pub struct ObjectSummary {
    /// The metadata.
    pub metadata: Value,
    /// The phase and conditions.
    pub condition: Value,
    /// The finalizers; those of a namespace's specification are among them.
    pub finalizers: Vec<String>,
}

/// A planned deletion that can be requested.
pub struct PlannedDeletion {
    /// Consequences of the deletion.
    pub radius: BlastRadius,
    /// Resources that could not be read.
    pub unseen: Vec<String>,
    target: gc_explain::plan::Target,
    cascade: Cascade,
}

/// Returns the propagation policy of this name.
#[must_use]
pub fn cascade(name: &str) -> Option<Cascade> {
    Cascade::from_str(name, true).ok()
}

impl Question {
    /// Creates a question about one object.
    pub async fn about(client: ApiClient, subject: &Subject, patience: Duration) -> anyhow::Result<Self> {
        let gatherer = Gatherer::new(client, gather::now()).await?;
        Self::from(gatherer, subject, patience)
    }

    /// Creates a question that is answered from what this gatherer reads.
    pub fn from(gatherer: Gatherer, subject: &Subject, patience: Duration) -> anyhow::Result<Self> {
        let client = gatherer.client().clone();
        let found = gatherer.catalog.find(&subject.resource).map_err(gc_process::UsageError::new)?;
        let resource = (*found.first().context("the resource is not served")?).clone();
        let namespace = if resource.is_namespaced() { subject.namespace.clone() } else { String::new() };
        let named = NamedObject { resource, namespace, name: subject.name.clone() };
        Ok(Self { gatherer, client, named, patience })
    }

    /// Returns the resource of the object.
    pub fn resource(&self) -> &gc_explain::GroupResource {
        &self.named.resource.name
    }

    /// Returns the time of the answers.
    pub fn now(&self) -> Timestamp {
        self.gatherer.now
    }

    /// Explains why it is, or is not, deleted; `None` if there is no such object.
    pub async fn why(&self) -> anyhow::Result<Option<Why>> {
        why::ask(&self.gatherer, &self.named, self.patience).await
    }

    /// Returns the answer of [`Question::why`] as `kubegc why` prints it.
    pub async fn why_text(&self) -> anyhow::Result<String> {
        let NamedObject { resource, namespace, name } = &self.named;
        let why = self.why().await?.ok_or_else(|| UnansweredReason::no_object(resource, namespace, name))?;
        printed(|out| why::text(&why, out))
    }

    /// Returns the dependents of the object, as `kubegc tree` prints them.
    pub async fn tree_text(&self) -> anyhow::Result<String> {
        let mut forest = Forest::new(self.gatherer.now, Shape::default());
        let unseen = forest.add(&self.gatherer, &self.named, self.patience).await?;
        let text = printed(|out| forest.text(false, out))?;
        Ok(unseen.map(|unseen| format!("{text}warning: {unseen}\n")).unwrap_or(text))
    }

    /// Returns the metadata of the object without its contents, its condition and its finalizers; `None` if there is no such object.
    pub async fn summary(&self) -> anyhow::Result<Option<ObjectSummary>> {
        let NamedObject { resource, namespace, name } = &self.named;
        match self.gatherer.object(&resource.name, namespace, name).await {
            Knowledge::Present(object) => Ok(Some(ObjectSummary {
                metadata: metadata_only(&object),
                condition: condition(&object),
                finalizers: finalizer_names(&Object::new(object)),
            })),
            Knowledge::Absent => Ok(None),
            Knowledge::Unreadable(why) => Err(UnansweredReason::unreadable(resource, name, why).into()),
        }
    }

    /// Plans its deletion.
    pub async fn plan(&self, cascade: Cascade) -> anyhow::Result<PlannedDeletion> {
        let named = vec![self.named.clone()];
        let planning = plan::ask(&self.gatherer, named, cascade.policy(), self.patience).await?;
        let Planning { radius, unseen, targets, .. } = planning.complete()?;
        let (_, target) = targets.into_iter().next().context("the object is not there")?;
        Ok(PlannedDeletion { radius, unseen, target, cascade })
    }

    /// Assesses the removal of one of its finalizers by hand.
    pub async fn release(&self, finalizer: &str) -> anyhow::Result<ReleaseAnswer> {
        let NamedObject { resource, namespace, name } = &self.named;
        let place = (namespace.as_str(), name.as_str());
        crate::release::ask(&self.gatherer, resource, place, Some(finalizer), self.patience).await
    }

    /// Removes the finalizer that was assessed.
    pub async fn remove_finalizer(&self, answer: &ReleaseAnswer) -> Result<(), RemovalError> {
        removal::remove(&self.client, &self.named.resource, answer, false).await
    }

    /// Deletes it.
    pub async fn delete(&self, planned: &PlannedDeletion) -> anyhow::Result<()> {
        plan::send(&self.client, &self.named, &planned.target, planned.cascade).await
    }
}

/// Returns the READY and STATUS columns of these objects, as far as the user may read them and a few requests suffice.
pub async fn columns(client: &ApiClient, objects: &[(Resource, Metadata)]) -> BTreeMap<Uid, Columns> {
    let Ok(gatherer) = Gatherer::new(client.clone(), gather::now()).await else { return BTreeMap::new() };
    let keys: Vec<ObjectKey> = objects
        .iter()
        .filter_map(|(resource, metadata)| Some(metadata.key(gatherer.catalog.named(&resource.name)?.id)))
        .collect();
    gatherer.columns(keys.iter()).await
}

/// Returns objects of one kind in a namespace (everywhere, if empty), with their metadata.
pub async fn objects(
    client: &ApiClient,
    kind: &str,
    namespace: &str,
) -> anyhow::Result<Vec<(Resource, Metadata)>> {
    let gatherer = Gatherer::new(client.clone(), gather::now()).await?;
    let found = gatherer.catalog.find(kind).map_err(gc_process::UsageError::new)?;
    let mut objects = Vec::new();
    for resource in found {
        let namespace = if resource.is_namespaced() { namespace } else { "" };
        let listed = gatherer.objects(resource, namespace).await?;
        objects.extend(listed.into_iter().map(|metadata| (resource.clone(), metadata)));
    }
    Ok(objects)
}

/// The objects of a kind, each with its dependents.
pub struct KindTrees {
    /// Trees, sorted by key.
    pub trees: Vec<Tree>,
    /// Number of objects of the kind that were left out because there are too many.
    pub omitted: usize,
    /// Columns of the objects in the trees.
    pub columns: BTreeMap<Uid, Columns>,
    /// Survey of what was listed.
    pub survey: Survey,
    /// Time of the lists.
    pub now: Timestamp,
    /// Line about what could not be listed.
    pub unseen: Option<String>,
}

impl KindTrees {
    /// Returns the place of an object in a tree.
    #[must_use]
    pub fn place(&self, tree: &Tree) -> Place {
        place_of_view(&self.survey, &tree.view)
    }

    /// Returns the finalizers of an object of a tree.
    #[must_use]
    pub fn finalizers(&self, tree: &Tree) -> &[String] {
        tree.view.key.as_ref().map_or(&[], |key| self.survey.finalizers(key))
    }
}

/// Lists the objects of a kind with their dependents in a namespace (everywhere, if empty). For a cluster-scoped kind, lists all
/// objects with their dependents in that namespace. All trees together have at most `most` objects.
pub async fn trees_of_kind(
    client: &ApiClient,
    kind: &str,
    namespace: &str,
    most: usize,
    patience: Duration,
) -> anyhow::Result<KindTrees> {
    let gatherer = Gatherer::new(client.clone(), gather::now()).await?;
    let found = gatherer.catalog.find(kind).map_err(gc_process::UsageError::new)?;
    let kinds: Vec<Resource> = found.into_iter().cloned().collect();
    let scope = Scope { namespace: namespace.to_owned(), ..Scope::default() };
    let mut survey = gatherer.contents(&scope, patience).await?;
    let is_apart = |resource: &&Resource| !namespace.is_empty() && !resource.is_namespaced();
    let apart: Vec<Resource> = kinds.iter().filter(is_apart).cloned().collect();
    if !apart.is_empty() {
        gatherer.list_all(&mut survey, &[(Scope::default(), apart)], patience).await?;
    }
    gatherer.complete(&mut survey).await;
    let unseen = gather::unlisted_summary(&survey);
    if kinds.iter().all(|resource| survey.unlisted().contains_key(&resource.id)) {
        anyhow::bail!(unseen.unwrap_or_default());
    }
    let mut roots = survey.engine.select(|key| kinds.iter().any(|resource| resource.id == key.resource));
    roots.retain(|view| view.presence == gc_ownership::Presence::Observed);
    roots.sort_by(|left, right| left.key.cmp(&right.key));
    let (mut trees, mut size) = (Vec::new(), 0);
    for root in &roots {
        let Some(tree) = tree_of(&survey, &root.uid, Direction::Dependents) else { continue };
        size += 1 + tree.count_below();
        if size > most {
            break;
        }
        trees.push(tree);
    }
    let mut keys = Vec::new();
    for tree in &trees {
        add_keys(tree, &mut keys);
    }
    let columns = gatherer.columns(keys.into_iter()).await;
    let omitted = roots.len() - trees.len();
    Ok(KindTrees { trees, omitted, columns, now: gatherer.now, unseen, survey })
}

fn add_keys<'a>(tree: &'a Tree, keys: &mut Vec<&'a ObjectKey>) {
    keys.extend(&tree.view.key);
    tree.below.iter().for_each(|below| add_keys(below, keys));
}

/// Returns the names of the Nodes that were listed.
fn node_names(survey: &Survey) -> Vec<String> {
    let nodes = survey.catalog.named(&GroupResource::new("", "nodes")).map(|nodes| nodes.id);
    let is_there = |view: &gc_ownership::NodeView| view.presence == gc_ownership::Presence::Observed;
    let found = nodes.map(|nodes| survey.engine.select(|key| key.resource == nodes)).unwrap_or_default();
    found.into_iter().filter(is_there).map(|view| view.name.to_string()).collect()
}

fn printed(print: impl FnOnce(&mut Vec<u8>) -> anyhow::Result<()>) -> anyhow::Result<String> {
    let mut out = Vec::new();
    print(&mut out)?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

impl PlannedDeletion {
    /// Returns the plan as `kubegc plan delete` prints it.
    pub fn text(&self) -> anyhow::Result<String> {
        printed(|out| ShownPlan { radius: &self.radius, full: false }.text(false, out))
    }

    /// Returns the figures to confirm.
    #[must_use]
    pub fn to_confirm(&self) -> ConfirmedPlan {
        ConfirmedPlan::of(&self.radius, &self.target)
    }

    /// Reports whether the deletion is within what was confirmed.
    #[must_use]
    pub fn is_within(&self, confirmed: &ConfirmedPlan) -> bool {
        let now = self.to_confirm();
        now.uid == confirmed.uid
            && now.objects <= confirmed.objects
            && now.lost_volumes <= confirmed.lost_volumes
    }

    /// Returns the UID of the object.
    #[must_use]
    pub fn uid(&self) -> String {
        self.target.uid.to_string()
    }

    /// Returns the number of deleted objects.
    #[must_use]
    pub fn objects(&self) -> usize {
        self.to_confirm().objects
    }

    /// Reports whether enough objects are deleted that the name has to be typed.
    #[must_use]
    pub fn needs_name(&self) -> bool {
        plan::needs_confirmation(&self.radius)
    }
}

/// Returns an object without its contents: `apiVersion`, `kind` and the metadata, except for annotations that repeat the contents.
fn metadata_only(object: &Value) -> Value {
    let mut metadata = object["metadata"].clone();
    if let Some(fields) = metadata.as_object_mut() {
        fields.remove("managedFields");
        if let Some(annotations) = fields.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
        }
    }
    serde_json::json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": metadata})
}

/// Returns only the phase and the conditions of an object's status.
fn condition(object: &Value) -> Value {
    let status = &object["status"];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let listed = status["conditions"].as_array().into_iter().flatten().take(CONDITIONS_SHOWN);
    let conditions: Vec<Value> = listed
        .filter(|one| one["type"].is_string())
        .map(|one| {
            let field = |name: &str| text(&one[name]);
            serde_json::json!({"type": field("type"), "status": field("status"), "reason": field("reason"),
                "message": field("message"), "since": field("lastTransitionTime")})
        })
        .collect();
    serde_json::json!({"phase": text(&status["phase"]), "conditions": conditions})
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn phase_and_conditions_are_all_that_is_shown_of_a_status() {
        let object = json!({"kind": "Pod", "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [
            {"type": "Ready", "status": "False", "reason": "Unready", "message": "no", "lastTransitionTime": "t"},
            {"status": "True"}, 7]}});
        let expected = json!({"phase": "Running", "conditions": [
            {"type": "Ready", "status": "False", "reason": "Unready", "message": "no", "since": "t"}]});
        assert_eq!(condition(&object), expected);
        assert_eq!(condition(&json!({"data": {}})), json!({"phase": null, "conditions": []}));
    }

    #[test]
    fn nothing_of_the_contents_is_shown() {
        let object = json!({"apiVersion": "v1", "kind": "Secret", "data": {"a": "Yg=="}, "metadata": {
            "name": "s", "managedFields": [{}], "annotations": {LAST_APPLIED: "{\"data\":{}}", "team": "a"}}});
        assert_eq!(
            metadata_only(&object),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "annotations": {"team": "a"}}})
        );
    }
}
