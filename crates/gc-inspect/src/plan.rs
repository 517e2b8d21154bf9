//! Plans of deletions, and the deletions themselves.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use clap::ValueEnum;
use gc_explain::plan::{BlastRadius, Fate, Item, LostVolume, Target, gibibytes, plan as plan_deletion};
use gc_explain::text::{count, thousands};
use gc_explain::{Facts, GroupResource, Knowledge, Metadata, Resource, Survey};
use gc_kube::ApiClient;
use gc_process::preflight;
use gc_process::table::Table;
use gc_types::{PropagationPolicy, ResourceId};
use http::Method;
use serde_json::{Value, json};

use super::gather::{self, Gatherer, Scope};
use super::listable::listable;
use super::probe::Probes;
use super::unanswered::NotDeleted;
use crate::output::{Answer, Output};
use crate::target::NamedObject;

/// More objects of one kind and fate are folded into one line, unless `--full` is given.
const FOLDED_ABOVE: usize = 20;
/// Number of deleted objects above which the page asks for the name.
const ASKED_ABOVE: usize = 10;
/// Maximum number of objects in a plan.
const LARGEST_PLAN: usize = 500_000;
/// kubectl's names of propagation policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Cascade {
    /// Delete the object at once, its dependents after it
    Background,
    /// Delete the object after the dependents that block it
    Foreground,
    /// Delete the object and keep its dependents
    Orphan,
}

impl Cascade {
    /// Returns the propagation policy.
    #[must_use]
    pub const fn policy(self) -> PropagationPolicy {
        match self {
            Self::Background => PropagationPolicy::Background,
            Self::Foreground => PropagationPolicy::Foreground,
            Self::Orphan => PropagationPolicy::Orphan,
        }
    }

    /// Returns its name in the API, such as `Background`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.policy().name()
    }
}

/// Result of planning a deletion.
pub struct Planning {
    /// Plan for the objects that were found.
    pub radius: BlastRadius,
    /// Resources that could not be read.
    pub unseen: Vec<String>,
    /// Objects that were found.
    pub targets: Vec<(NamedObject, Target)>,
    /// Errors for the objects that are not in the plan.
    pub failures: Vec<anyhow::Error>,
}

impl Planning {
    /// Returns an error if any object is not in the plan.
    pub fn complete(mut self) -> anyhow::Result<Self> {
        gather::fail(std::mem::take(&mut self.failures))?;
        Ok(self)
    }

    /// Prints the plan, unless it is empty.
    pub fn show(&self, full: bool, output: &Output) -> anyhow::Result<()> {
        if self.targets.is_empty() {
            return Ok(());
        }
        gather::warn(&self.unseen);
        crate::output::print(&ShownPlan { radius: &self.radius, full }, output)
    }
}

/// A plan, with its display options.
pub struct ShownPlan<'a> {
    /// The plan.
    pub radius: &'a BlastRadius,
    /// True if every object is listed.
    pub full: bool,
}

/// Gathers and plans. Missing objects do not prevent a plan for the others.
pub async fn ask(
    gatherer: &Gatherer,
    named: Vec<NamedObject>,
    policy: PropagationPolicy,
    patience: Duration,
) -> anyhow::Result<Planning> {
    // Dependents of a namespaced object are in its namespace.
    let namespace = match named.split_first() {
        Some((first, others)) if others.iter().all(|other| other.namespace == first.namespace) => {
            first.namespace.clone()
        }
        _ => String::new(),
    };
    let mut facts = Facts::at(gatherer.now);
    let namespaces = GroupResource::new("", "namespaces");
    if named.iter().any(|named| named.resource.name == namespaces)
        && let Some(minor) = gatherer.server_minor().await
    {
        facts.tell_server_minor(minor);
    }
    let mut planning = Planning {
        radius: BlastRadius::default(),
        unseen: Vec::new(),
        targets: Vec::new(),
        failures: Vec::new(),
    };
    let mut found = Vec::new();
    for named in named {
        match with_metadata(gatherer, &named).await {
            Ok((object, metadata)) => {
                let NamedObject { resource, namespace, name } = &named;
                let target = Target {
                    key: metadata.key(resource.id),
                    uid: metadata.uid.clone(),
                    policy: Some(policy),
                };
                facts.tell_object(resource.name.clone(), namespace, name, Knowledge::Present(object));
                found.push((resource.id, metadata));
                planning.targets.push((named, target));
            }
            Err(error) => planning.failures.push(error),
        }
    }
    if planning.targets.is_empty() {
        return Ok(planning);
    }
    let mut scope = Scope { namespace, ..Scope::default() };
    let mut survey = gatherer.survey(&scope, patience).await?;
    if let Some(only) = only_namespace(&planning.targets).filter(|_| nothing_is_listed(&survey)) {
        // A user who may not list everywhere may still list in this namespace.
        scope.namespace = only;
        survey = gatherer.survey(&scope, patience).await?;
    }
    let observe_targets = |survey: &mut Survey| {
        // These objects could be read, although they may not be listed.
        for (resource, metadata) in &found {
            survey.observe(*resource, metadata.clone());
        }
    };
    observe_targets(&mut survey);
    let forbidden = forbidden(gatherer.client(), &planning.targets).await;
    let targets: Vec<Target> = planning.targets.iter().map(|(_, target)| target.clone()).collect();
    let mut radius = planned(gatherer, &survey, &mut facts, &targets).await?;
    let mut probes = Probes::default();
    while probes.tell(gatherer, &radius, &mut facts).await {
        radius = planned(gatherer, &survey, &mut facts, &targets).await?;
    }
    let lost = radius.lost_volumes.iter().chain(&radius.lost_when_released).map(|volume| &volume.name);
    let reached: Vec<&String> = lost.chain(&radius.retained_volumes).collect();
    if !scope.namespace.is_empty() && !reached.is_empty() {
        let volumes = GroupResource::new("", "persistentvolumes");
        for volume in reached {
            gatherer.observe(&mut survey, &volumes, "", volume).await;
        }
        list_cluster_scope(gatherer, &mut survey, patience).await?;
        radius = planned(gatherer, &survey, &mut facts, &targets).await?;
        let is_elsewhere =
            |item: &Item| item.namespace.is_empty() && item.kind.resource != "persistentvolumes";
        if radius.items.iter().any(is_elsewhere) {
            // Its dependents may be in any namespace.
            survey = gatherer.survey(&Scope::default(), patience).await?;
            observe_targets(&mut survey);
            radius = planned(gatherer, &survey, &mut facts, &targets).await?;
        }
        // Webhooks may also decide about objects that are deleted with a volume.
        while probes.tell(gatherer, &radius, &mut facts).await {
            radius = planned(gatherer, &survey, &mut facts, &targets).await?;
        }
    }
    planning.radius = BlastRadius { forbidden, ..radius };
    planning.unseen.extend(gather::unlisted_summary(&survey));
    let unread = facts.unseen().into_iter().take(1);
    planning.unseen.extend(unread.map(|first| format!("not everything could be read: {first}")));
    Ok(planning)
}

/// Adds cluster-scoped objects to a survey of one namespace, as far as this user may list them: a volume that is deleted with its
/// claim may own some.
async fn list_cluster_scope(
    gatherer: &Gatherer,
    survey: &mut Survey,
    patience: Duration,
) -> anyhow::Result<()> {
    let rules = listable(gatherer.client(), "default").await;
    let may_list = |resource: &&Resource| rules.as_ref().is_none_or(|rules| rules.contain(&resource.name));
    let everywhere = Scope::default();
    let resources = gatherer.examined(&everywhere);
    let resources =
        resources.filter(|resource| !resource.is_namespaced()).filter(may_list).cloned().collect();
    gatherer.list_all(survey, &[(everywhere.clone(), resources)], patience).await
}

/// Returns the namespace to delete, if that is the only target.
fn only_namespace(targets: &[(NamedObject, Target)]) -> Option<String> {
    let [(named, _)] = targets else { return None };
    let is_namespace = named.resource.name == GroupResource::new("", "namespaces");
    is_namespace.then(|| named.name.clone())
}

/// Reports whether this user may not list any of the requested resources.
fn nothing_is_listed(survey: &Survey) -> bool {
    let listable = survey.catalog.all().iter().filter(|resource| resource.is_collectable()).count();
    survey.unlisted().len() >= listable
}

/// Returns the objects that the requesting user may not delete. A server that does not answer forbids nothing.
async fn forbidden(client: &ApiClient, targets: &[(NamedObject, Target)]) -> Vec<String> {
    let mut of_all: BTreeMap<(ResourceId, &str), bool> = BTreeMap::new();
    let mut forbidden = Vec::new();
    for (named, _) in targets {
        let place = (named.resource.id, named.namespace.as_str());
        // A single object is queried by its name, which takes one request.
        let may_delete_all = match of_all.get(&place) {
            Some(known) => *known,
            None if targets.len() == 1 => false,
            None => {
                let answer = may_delete(client, named, "").await;
                of_all.insert(place, answer);
                answer
            }
        };
        if !may_delete_all && !may_delete(client, named, &named.name).await {
            forbidden.push(format!("{}/{}", named.resource.kind, named.name));
        }
    }
    forbidden
}

/// Reports whether the requesting user may delete the object of this name, or every object of its resource and namespace.
async fn may_delete(client: &ApiClient, named: &NamedObject, name: &str) -> bool {
    let GroupResource { group, resource } = &named.resource.name;
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {
            "verb": "delete", "group": &**group, "resource": &**resource, "namespace": named.namespace, "name": name,
        }},
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let answer = client.call(preflight::request(Method::POST, path, Some(&review))).await;
    let document = answer.ok().and_then(|answer| serde_json::from_slice::<Value>(&answer.body).ok());
    document.is_none_or(|document| document["status"]["allowed"] != false)
}

/// Returns an object, and its metadata.
async fn with_metadata(gatherer: &Gatherer, named: &NamedObject) -> anyhow::Result<(Value, Metadata)> {
    let object = named.read(gatherer).await?;
    let metadata = serde_json::from_value(object.clone()).context("the object's metadata cannot be read")?;
    Ok((object, metadata))
}

async fn planned(
    gatherer: &Gatherer,
    survey: &Survey,
    facts: &mut Facts,
    targets: &[Target],
) -> anyhow::Result<BlastRadius> {
    Ok(gatherer.answer(facts, |facts| plan_deletion(survey, facts, targets, LARGEST_PLAN)).await?)
}

impl Answer for ShownPlan<'_> {
    fn value(&self) -> Value {
        self.radius.value()
    }

    fn text(&self, is_wide: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        let radius = self.radius;
        writeln!(out, "{}", radius.summary())?;
        for (heading, lines) in
            [("Refused", &radius.refused), ("Stuck", &radius.stuck), ("Recreated", &radius.recreated)]
        {
            section(heading, lines, self.full || is_wide, out)?;
        }
        let shown = |volume: &LostVolume| {
            let size = volume.bytes.map_or_else(String::new, |bytes| format!(", {}", gibibytes(bytes)));
            format!("{} of claim {}{size}", volume.name, volume.claim)
        };
        for (heading, volumes) in [
            ("Volumes lost", &radius.lost_volumes),
            ("Volumes lost when their claims are released", &radius.lost_when_released),
        ] {
            section(heading, &volumes.iter().map(shown).collect::<Vec<_>>(), true, out)?;
        }
        section("Admission webhooks and policies that may refuse", &radius.webhooks, is_wide, out)?;
        section("Volumes that stay without a claim", &radius.retained_volumes, true, out)?;
        section("Owners that cannot be looked up and count as living", &radius.assumed_living, is_wide, out)?;
        if radius.items.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
        self.table(is_wide, out)
    }

    fn names(&self) -> Vec<String> {
        let going = self.radius.items.iter().filter(|item| item.fate != Fate::Released);
        going.map(Item::reference).collect()
    }

    fn graph(&self) -> Option<(Vec<String>, Vec<(usize, usize)>)> {
        let label = |item: &Item| format!("{} ({})", item.title(), item.fate.name());
        let place = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let edges = self.radius.edges.iter().map(|(owner, dependent)| (place(*owner), place(*dependent)));
        Some((self.radius.items.iter().map(label).collect(), edges.collect()))
    }
}

fn section(heading: &str, lines: &[String], is_whole: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{heading}:")?;
    let shown = if is_whole { lines.len() } else { FOLDED_ABOVE };
    for line in lines.iter().take(shown) {
        writeln!(out, "  {line}")?;
    }
    if lines.len() > shown {
        writeln!(out, "  … and {} more; --full lists them", thousands(lines.len() - shown))?;
    }
    Ok(())
}

impl ShownPlan<'_> {
    fn table(&self, is_wide: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        let wide: &[&str] = if is_wide { &["API VERSION", "UID"] } else { &[] };
        let mut table = Table::new(&[&["FATE", "NAMESPACE", "OBJECT"], wide, &["REMARK"]].concat());
        for ((fate, kind), items) in self.radius.groups() {
            let shown = if self.full || is_wide || items.len() <= FOLDED_ABOVE { items.len() } else { 0 };
            for item in &items[..shown] {
                let mut remarks = item.remarks.clone();
                if item.is_terminating {
                    remarks.insert(0, "already being deleted".into());
                }
                let mut row = vec![fate.name().into(), item.namespace.to_string(), item.title()];
                if is_wide {
                    row.extend([item.kind.api_version.clone(), item.uid.to_string()]);
                }
                row.push(remarks.join("; "));
                table.row(row);
            }
            if shown == 0 {
                table.row(vec![fate.name().into(), String::new(), format!("… {}", count(items.len(), kind))]);
            }
        }
        table.write(out)
    }
}

/// Reports whether a plan needs confirmation: it deletes many objects or ones that cannot be recreated, or something gets stuck.
#[must_use]
pub fn needs_confirmation(radius: &BlastRadius) -> bool {
    let going = radius.items.len() - radius.count(Fate::Released);
    going > ASKED_ABOVE || !radius.lost_volumes.is_empty() || radius.would_get_stuck()
}

/// Requests one deletion.
pub async fn send(
    client: &ApiClient,
    named: &NamedObject,
    target: &Target,
    cascade: Cascade,
) -> anyhow::Result<()> {
    let body = json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": cascade.name(),
        "preconditions": {"uid": target.uid.to_string()},
    });
    let path = gather::object_path(&named.resource, &named.namespace, &named.name);
    let answer = client.call(preflight::request(Method::DELETE, &path, Some(&body))).await?;
    if answer.head.status.is_success() {
        return Ok(());
    }
    let object = format!("{}/{}", named.resource.name, named.name);
    Err(NotDeleted { object, message: preflight::message(&answer), status: answer.head.status }.into())
}
