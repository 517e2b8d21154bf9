//! `kubegc plan delete` and `kubegc delete`: what a deletion leads to, and the deletion itself.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use gc_explain::plan::{BlastRadius, Fate, Item, LostVolume, Target, gibibytes, plan as plan_deletion};
use gc_explain::text::{count, thousands};
use gc_explain::{Facts, GroupResource, Known, Metadata, Survey};
use gc_kube::ApiClient;
use gc_types::{PropagationPolicy, ResourceId};
use http::Method;
use serde_json::{Value, json};

use super::access::Access;
use super::attached::{self, Asked, AttachFlags};
use super::follow;
use super::gather::{self, Gatherer, Scope};
use super::output::{Answer, Output};
use super::probe::Probes;
use super::scope::WatchFlag;
use super::target::{Named, Partial, Targets};
use super::unanswered::NotDeleted;
use crate::UsageError;
use crate::preflight;
use crate::table::Table;

/// More objects of one kind and fate are folded into one line, unless `--full` is given.
const FOLDED_ABOVE: usize = 20;
/// `kubegc delete` asks before it deletes more objects than this.
const ASKED_ABOVE: usize = 10;
/// Objects that a plan concerns at most.
const LARGEST_PLAN: usize = 500_000;
/// Something of a plan would hang.
#[derive(Debug, thiserror::Error)]
#[error("part of the deletion would be refused or get stuck")]
pub(crate) struct SomethingHangs;

/// What can be planned.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PlanCommand {
    /// Show everything that a deletion would lead to, without deleting anything
    Delete(Box<PlanOptions>),
    /// What nothing else is: most likely an object.
    #[command(external_subcommand)]
    Other(Vec<String>),
}

/// Options of `kubegc plan delete`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubegc plan delete ns/shop                  everything in a namespace, its volumes, and what would get stuck
  kubegc plan delete crd/widgets.acme.dev     a definition with its objects
  kubegc plan delete pods -l app=web -A       objects by their labels, in all namespaces
  kubegc plan delete -f app.yaml -o mermaid   a drawing
Exit codes: 0, everything would be deleted; 1, it could not be planned; 2, wrong flags; 3, part of the deletion would be refused or get stuck.")]
pub(crate) struct PlanOptions {
    #[command(flatten)]
    targets: Targets,
    /// What happens to dependents
    #[arg(long, value_enum, default_value_t = Cascade::Background)]
    cascade: Cascade,
    /// List every object instead of counting those of the same kind
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    watch: WatchFlag,
    /// Output format: text, wide, name, json, yaml, jsonpath=…, custom-columns=…, dot, mermaid
    #[arg(short, long, default_value = "text")]
    output: Output,
    #[command(flatten)]
    attach: AttachFlags,
    #[command(flatten)]
    access: Access,
}

/// Options of `kubegc delete`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubegc delete deploy/web        show the plan, delete, and follow the deletion to its end
  kubegc delete ns/shop --yes     delete without asking
Exit codes: 0, everything is gone; 1, it failed; 2, wrong flags; 3, part of it was refused or is stuck.")]
pub(crate) struct DeleteOptions {
    #[command(flatten)]
    targets: Targets,
    /// What happens to dependents
    #[arg(long, value_enum, default_value_t = Cascade::Background)]
    cascade: Cascade,
    /// Delete without asking
    #[arg(short, long)]
    yes: bool,
    /// kubectl's; here it is another command.
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "client")]
    dry_run: Option<String>,
    #[command(flatten)]
    access: Access,
}

/// kubectl's names of propagation policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cascade {
    /// Delete the object at once, its dependents after it
    Background,
    /// Delete the object after the dependents that block it
    Foreground,
    /// Delete the object and keep its dependents
    Orphan,
}

impl Cascade {
    pub(super) const fn policy(self) -> PropagationPolicy {
        match self {
            Self::Background => PropagationPolicy::Background,
            Self::Foreground => PropagationPolicy::Foreground,
            Self::Orphan => PropagationPolicy::Orphan,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        self.policy().name()
    }
}

/// What came of planning a deletion.
pub(super) struct Planning {
    /// The plan for the objects that were found.
    pub(super) radius: BlastRadius,
    /// What could not be seen.
    pub(super) unseen: Vec<String>,
    /// The objects that were found.
    pub(super) targets: Vec<(Named, Target)>,
    /// Why nothing is planned for the others.
    pub(super) failures: Vec<anyhow::Error>,
}

impl Planning {
    /// An error if there are objects for which nothing is planned.
    pub(super) fn complete(mut self) -> anyhow::Result<Self> {
        gather::fail(std::mem::take(&mut self.failures))?;
        Ok(self)
    }

    /// Shows the plan, unless it is about nothing.
    fn show(&self, full: bool, output: &Output) -> anyhow::Result<()> {
        if self.targets.is_empty() {
            return Ok(());
        }
        gather::warn(&self.unseen);
        super::output::print(&Planned { radius: &self.radius, full }, output)
    }
}

/// A plan with how it is shown.
pub(super) struct Planned<'a> {
    pub(super) radius: &'a BlastRadius,
    pub(super) full: bool,
}

/// `kubegc plan delete`
pub(crate) fn plan(command: &PlanCommand) -> anyhow::Result<()> {
    let options = match command {
        PlanCommand::Delete(options) => options,
        PlanCommand::Other(given) => {
            let given = given.join(" ");
            let meant = format!("did you mean `kubegc plan delete {given}`?");
            return Err(
                UsageError::new(format!("plan {given}: deletions are what is planned; {meant}")).into()
            );
        }
    };
    let patience = options.access.patience()?;
    let hangs = crate::tasks::block_on(async {
        let client = options.access.connect().await?;
        options.watch.repeat(async || one(options, &client, patience).await).await
    })?;
    if hangs { Err(SomethingHangs.into()) } else { Ok(()) }
}

/// Asks once and prints the plan. Whether something would hang.
async fn one(options: &PlanOptions, client: &ApiClient, patience: Duration) -> anyhow::Result<bool> {
    let gatherer = Gatherer::new(client.clone(), gather::clock(client).await).await?;
    let Partial { found: named, failures } = options.targets.resolve(&gatherer).await?;
    if named.is_empty() {
        gather::fail(failures)?;
        return Ok(false);
    }
    let question = || Asked::Plan {
        objects: attached::subjects(&named),
        policy: options.cascade.name().to_lowercase(),
        full: options.full,
    };
    if let Some(answer) = options.attach.ask(&options.access, client, &options.output, question).await? {
        gather::warn(&answer.unseen);
        super::output::print(&answer, &options.output)?;
        gather::fail(failures)?;
        return Ok(answer.found);
    }
    let planning = ask(&gatherer, named, options.cascade.policy(), patience).await?;
    planning.show(options.full, &options.output)?;
    gather::fail(failures.into_iter().chain(planning.failures).collect())?;
    Ok(planning.radius.hangs())
}

/// Gathers and plans. An object that is missing is no reason not to plan for the others.
pub(super) async fn ask(
    gatherer: &Gatherer,
    named: Vec<Named>,
    policy: PropagationPolicy,
    patience: Duration,
) -> anyhow::Result<Planning> {
    // What depends on an object in a namespace is in that namespace.
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
                let Named { resource, namespace, name } = &named;
                let target = Target {
                    key: metadata.key(resource.id),
                    uid: metadata.uid.clone(),
                    policy: Some(policy),
                };
                facts.tell_object(resource.name.clone(), namespace, name, Known::Present(object));
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
        // Whoever may list nothing everywhere may be allowed to list there.
        scope.namespace = only;
        survey = gatherer.survey(&scope, patience).await?;
    }
    for (resource, metadata) in found {
        // It could be read and may not be listed.
        survey.observe(resource, metadata);
    }
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
        radius = planned(gatherer, &survey, &mut facts, &targets).await?;
    }
    planning.radius = BlastRadius { forbidden, ..radius };
    planning.unseen.extend(gather::unlisted_summary(&survey));
    let unread = facts.unseen().into_iter().take(1);
    planning.unseen.extend(unread.map(|first| format!("not everything could be read: {first}")));
    Ok(planning)
}

/// The namespace that is to be deleted, if it is one and nothing else.
fn only_namespace(targets: &[(Named, Target)]) -> Option<String> {
    let [(named, _)] = targets else { return None };
    let is_namespace = named.resource.name == GroupResource::new("", "namespaces");
    is_namespace.then(|| named.name.clone())
}

/// Whether this user may list nothing of what was asked for.
fn nothing_is_listed(survey: &Survey) -> bool {
    let listable = survey.catalog.all().iter().filter(|resource| resource.is_collectable()).count();
    survey.unlisted().len() >= listable
}

/// The objects that the user who asks may not delete. A server that does not say forbids nothing.
async fn forbidden(client: &ApiClient, targets: &[(Named, Target)]) -> Vec<String> {
    let mut of_all: BTreeMap<(ResourceId, &str), bool> = BTreeMap::new();
    let mut forbidden = Vec::new();
    for (named, _) in targets {
        let place = (named.resource.id, named.namespace.as_str());
        // One object is asked about by its name, which one answer decides.
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

/// Whether the user who asks may delete the object of this name, or every one in its place.
async fn may_delete(client: &ApiClient, named: &Named, name: &str) -> bool {
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

/// An object, and its metadata.
async fn with_metadata(gatherer: &Gatherer, named: &Named) -> anyhow::Result<(Value, Metadata)> {
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

impl Answer for Planned<'_> {
    fn value(&self) -> Value {
        self.radius.value()
    }

    fn text(&self, is_wide: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        let radius = self.radius;
        writeln!(out, "{}", radius.summary())?;
        for (heading, lines) in
            [("Refused", &radius.refused), ("Hangs", &radius.hangs), ("Recreated", &radius.recreated)]
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

impl Planned<'_> {
    fn table(&self, is_wide: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        let mut table = Table::new(&["FATE", "NAMESPACE", "OBJECT", "REMARK"]);
        for ((fate, kind), items) in self.radius.groups() {
            let shown = if self.full || is_wide || items.len() <= FOLDED_ABOVE { items.len() } else { 0 };
            for item in &items[..shown] {
                let mut remarks = item.remarks.clone();
                if item.is_terminating {
                    remarks.insert(0, "already being deleted".into());
                }
                table.row(vec![
                    fate.name().into(),
                    item.namespace.to_string(),
                    item.title(),
                    remarks.join("; "),
                ]);
            }
            if shown == 0 {
                table.row(vec![fate.name().into(), String::new(), format!("… {}", count(items.len(), kind))]);
            }
        }
        table.write(out)
    }
}

/// `kubegc delete`
pub(crate) fn delete(options: &DeleteOptions) -> anyhow::Result<()> {
    if options.dry_run.is_some() {
        let what = "delete --dry-run: `kubegc plan delete` with the same objects shows what would be deleted";
        return Err(UsageError::new(what).into());
    }
    let patience = options.access.patience()?;
    crate::tasks::block_on(async {
        let client = options.access.connect().await?;
        let gatherer = Gatherer::new(client.clone(), gather::clock(&client).await).await?;
        let Partial { found: named, failures } = options.targets.resolve(&gatherer).await?;
        let mut planning = ask(&gatherer, named, options.cascade.policy(), patience).await?;
        planning.show(false, &Output::Text)?;
        planning.failures.splice(..0, failures);
        if planning.targets.is_empty() {
            return gather::fail(planning.failures);
        }
        if !is_agreed(options, &planning.radius)? {
            writeln!(crate::screen::stdout(), "Nothing was deleted.")?;
            return gather::fail(planning.failures);
        }
        let unsent = send_all(&client, &planning.targets, options.cascade).await?;
        let ended = if unsent.is_empty() {
            follow::follow(&gatherer, &planning.radius, patience).await
        } else {
            if unsent.len() < planning.targets.len() {
                writeln!(
                    crate::screen::stdout(),
                    "Not followed: not everything that was planned is being deleted."
                )?;
            }
            Ok(())
        };
        planning.failures.extend(unsent);
        gather::fail(planning.failures)?;
        ended
    })
}

/// Asks for the deletions. Why some were not accepted.
async fn send_all(
    client: &ApiClient,
    targets: &[(Named, Target)],
    cascade: Cascade,
) -> anyhow::Result<Vec<anyhow::Error>> {
    let mut failures = Vec::new();
    for (named, target) in targets {
        let is_sent = match send(client, named, target, cascade).await {
            Ok(()) => true,
            // The deletion of another object may have taken it along.
            Err(error) if error.downcast_ref::<NotDeleted>().is_some_and(NotDeleted::is_gone) => false,
            Err(error) => {
                failures.push(error);
                continue;
            }
        };
        let ending = if is_sent { "is being deleted" } else { "is gone already" };
        writeln!(crate::screen::stdout(), "{}/{} {ending}.", named.resource.name, named.name)?;
    }
    Ok(failures)
}

/// Whether a plan needs to be confirmed: much is deleted, or what cannot be created again, or something hangs.
pub(super) fn needs_confirmation(radius: &BlastRadius) -> bool {
    let going = radius.items.len() - radius.count(Fate::Released);
    going > ASKED_ABOVE || !radius.lost_volumes.is_empty() || radius.hangs()
}

/// Asks where a plan needs to be confirmed.
fn is_agreed(options: &DeleteOptions, radius: &BlastRadius) -> anyhow::Result<bool> {
    if options.yes || !needs_confirmation(radius) {
        return Ok(true);
    }
    if !std::io::stdin().is_terminal() {
        return Err(UsageError::new("this needs confirmation: use --yes, or run it on a terminal").into());
    }
    print!("\nDelete? [y/N] ");
    std::io::stdout().flush()?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

/// Asks for one deletion.
pub(super) async fn send(
    client: &ApiClient,
    named: &Named,
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
