//! `kubegc doctor`: checks everything that collection needs, and lists what is stuck.
//!
//! A pure function judges the collected [`Facts`]; [`super::examine`] collects them.

mod protection;
mod recorder;
mod storage;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use anyhow::Result;
use gc_explain::lint::{Lint, Severity, argument};
use gc_explain::protect::Status;
use gc_explain::stuck::Place;
use gc_ownership::Shard;
use gc_process::admission::UnguardedController;
use gc_process::lease::control::Held;
use gc_process::lease::orders::Orders;
use gc_process::table::Table;
use jiff::Timestamp;
use serde_json::{Value, json};

pub(crate) use recorder::{FoundLease, LeaseReport, RecorderFacts};
pub(crate) use storage::StorageFacts;

use super::surveyed::Survey;

/// Maximum number of findings that one check lists; the rest is counted.
const LISTED: usize = 10;

/// State of kube-controller-manager's own garbage collector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TheirCollector {
    /// Its command line switches it off.
    Off,
    /// Its command line does not switch it off.
    On,
    /// Its command line cannot be read.
    #[default]
    Unseen,
}

/// Facts that the examination has collected.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub(crate) now: Timestamp,
    pub(crate) server: String,
    /// Remark about the server's version, if any.
    pub(crate) version: Option<String>,
    /// `namespace/name` of kubegc's Lease, and the Lease.
    pub(crate) lease: (String, Option<Held>),
    /// Shards of the collectors with the holder of each; the first one also counts as the holder of the Lease.
    pub(crate) shards: Vec<(Shard, Held)>,
    /// Reason why it could not be read.
    pub(crate) lease_unread: Option<String>,
    pub(crate) orders: Orders,
    /// kube-controller-manager's Lease.
    pub(crate) controller_manager: Option<Held>,
    /// Reason why it could not be read.
    pub(crate) controller_manager_unread: Option<String>,
    pub(crate) their_collector: TheirCollector,
    /// Account whose permissions were checked, and the missing rules.
    pub(crate) permissions: (String, Vec<MissingRule>),
    /// True if kubegc seems to be installed: there is a Lease, its account has a permission, or the command names an account.
    pub(crate) is_installed: bool,
    /// Reason why permissions could not be checked.
    pub(crate) unchecked: Vec<String>,
    /// Controllers through which users can delete objects that they may not delete themselves.
    pub(crate) unguarded: Vec<UnguardedController>,
    /// Rules of `kubegc protect`.
    pub(crate) protection: Vec<Status>,
    /// Recorders that are known or needed.
    pub(crate) recorders: Vec<RecorderFacts>,
    /// Store of an embedded server, if this user may read its metrics.
    pub(crate) storage: Option<StorageFacts>,
    /// Findings about the objects.
    pub(crate) surveyed: Survey,
    /// Unavailable APIServices, each with the reason.
    pub(crate) unavailable: BTreeMap<String, String>,
    /// True if the server is `kubegc up`, which has its own collectors.
    pub(crate) is_up: bool,
    /// Response of a collector's `/debug/kubegc/resources`, if one was queried.
    pub(crate) collector: Option<Value>,
    /// Reason why that answer could not be read.
    pub(crate) collector_error: Option<String>,
}

/// A rule that an account lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MissingRule {
    /// Kind of the role that it belongs to.
    pub role: &'static str,
    /// The rule as a role spells it.
    pub rule: String,
    /// True if collection needs it; Events are only for users.
    pub(crate) is_needed: bool,
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// As it should be.
    Fine,
    /// Worth knowing.
    Notice,
    /// Something is wrong.
    Wrong,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Fine => "ok",
            Self::Notice => "notice",
            Self::Wrong => "wrong",
        }
    }
}

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Name of the check.
    pub check: &'static str,
    /// Stable identity of the finding, for programs that compare runs.
    pub id: String,
    /// Result of the finding.
    pub state: State,
    /// The result in words.
    pub message: String,
    /// Advice on the finding.
    pub advice: Option<String>,
    /// Objects that it is about, as far as they are named.
    pub objects: Vec<Place>,
    /// Total number of these objects.
    pub total: usize,
}

fn finding(check: &'static str, state: State, message: impl Into<String>) -> Finding {
    Finding {
        check,
        id: check.to_owned(),
        state,
        message: message.into(),
        advice: None,
        objects: Vec::new(),
        total: 0,
    }
}

impl Finding {
    /// Sets the subject, for a check that covers several things.
    fn about(mut self, subject: &str) -> Self {
        self.id = format!("{}/{subject}", self.check);
        self
    }

    fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

/// Judges the collected facts.
pub fn diagnose(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![match &facts.version {
        None => finding("server", State::Fine, facts.server.clone()),
        Some(doubt) => finding("server", State::Notice, doubt.clone()),
    }];
    findings.extend(storage::storage(facts.storage.as_ref()));
    leader(facts, &mut findings);
    orders(facts, &mut findings);
    rivals(facts, &mut findings);
    permissions(facts, &mut findings);
    findings.extend(protection::protection(&facts.protection));
    recorder::recorders(&facts.recorders, facts.now, &mut findings);
    apis(&facts.surveyed, &mut findings);
    unavailable(&facts.unavailable, &mut findings);
    stuck(&facts.surveyed, &mut findings);
    if let Some(collector) = &facts.collector {
        self::collector(collector, &mut findings);
    }
    if let Some(error) = &facts.collector_error {
        let unread = finding("collector", State::Wrong, format!("its page cannot be read: {error}"));
        findings.push(unread.advise("give --collector the address of its --bind-address"));
    }
    findings.extend(facts.surveyed.lints.iter().map(of_lint));
    // Several checks may find the same problem, which is reported once.
    let mut said = BTreeSet::new();
    findings.retain(|finding| said.insert((finding.check, finding.message.clone())));
    findings
}

/// Judges only the findings about objects.
pub(crate) fn of_objects(surveyed: &Survey) -> Vec<Finding> {
    let mut findings = Vec::new();
    apis(surveyed, &mut findings);
    stuck(surveyed, &mut findings);
    findings.extend(surveyed.lints.iter().map(of_lint));
    findings
}

fn of_lint(lint: &Lint) -> Finding {
    let state = match lint.code.severity() {
        Severity::Error => State::Wrong,
        Severity::Warning | Severity::Notice => State::Notice,
    };
    let first = lint.objects.first().map(argument).unwrap_or_default();
    let message = match lint.total {
        0 | 1 => format!("{}: {first}", lint.message),
        _ => format!("{}, such as {first}", lint.message),
    };
    Finding {
        id: lint.id(),
        objects: lint.objects.clone(),
        total: lint.total,
        ..finding(lint.code.name(), state, message).advise(lint.advice.clone())
    }
}

fn leader(facts: &Facts, findings: &mut Vec<Finding>) {
    let (name, held) = &facts.lease;
    let is_held = held.as_ref().is_some_and(|held| held.is_held(facts.now));
    if facts.is_up {
        findings.push(match held {
            Some(held) if is_held => finding(
                "leader",
                State::Notice,
                format!(
                    "{} holds lease {name} beside the collectors of this server: twice the work",
                    held.holder
                ),
            )
            .advise("stop `kubegc run`, or run `kubegc apiserver` in place of `kubegc up`"),
            _ => finding("leader", State::Fine, "`kubegc up` runs the collectors in this server"),
        });
        return;
    }
    if let Some(why) = &facts.lease_unread {
        let message = format!("whether kubegc runs here is not known: {why}");
        findings.push(finding("leader", State::Notice, message));
        return;
    }
    if !facts.shards.is_empty() {
        findings.push(leaders_of_shards(facts));
        return;
    }
    findings.push(match held {
        None if !facts.is_installed => finding(
            "leader",
            State::Notice,
            format!(
                "kubegc is not installed here: there is no lease {name}, and {} has no permissions",
                facts.permissions.0
            ),
        )
        .advise("docs/operating.md describes the installation; --subject names another account"),
        None => finding("leader", State::Notice, format!("there is no lease {name}: no kubegc has led here")),
        Some(held) if held.is_held(facts.now) => {
            finding("leader", State::Fine, format!("{} holds lease {name}", held.holder))
        }
        Some(held) => {
            let last = match (&*held.holder, held.renewed) {
                ("", _) | (_, None) => "it has no holder".into(),
                (holder, Some(renewed)) => format!("{holder} renewed it last at {renewed}"),
            };
            finding("leader", State::Wrong, format!("no replica leads: lease {name} is free, {last}"))
                .advise("check the logs of kubegc's replicas; nothing is collected until one leads")
        }
    });
}

/// Checks that each shard has a leader.
fn leaders_of_shards(facts: &Facts) -> Finding {
    let (name, shards) = (&facts.lease.0, &facts.shards);
    let without = shards.iter().filter(|(_, held)| !held.is_held(facts.now));
    let without: Vec<String> = without.map(|(shard, _)| shard.to_string()).collect();
    if without.is_empty() {
        return finding(
            "leader",
            State::Fine,
            format!("each of the {} shards of lease {name} leads", shards.len()),
        );
    }
    finding(
        "leader",
        State::Wrong,
        format!("no replica leads these shards of lease {name}: {}", without.join(", ")),
    )
    .advise("check the logs of their replicas (`kubegc run --shard`); their objects wait until one leads")
}

fn orders(facts: &Facts, findings: &mut Vec<Finding>) {
    if let Some(why) = &facts.orders.paused {
        let paused = finding("pause", State::Wrong, format!("everything is paused ({why})"));
        findings.push(paused.advise("`kubegc resume` resumes it"));
    }
    match &facts.orders.tripped {
        None => {
            let message = "annotation kubegc.io/tripped of the lease cannot be parsed";
            findings.push(finding("breaker", State::Wrong, message).advise("remove or correct it"));
        }
        Some(tripped) if tripped.is_empty() => {
            if facts.lease_unread.is_none() {
                findings.push(finding("breaker", State::Fine, "nothing is stopped"));
            }
        }
        Some(tripped) => findings.extend(tripped.values().map(|trip| {
            let advice = format!(
                "check what was deleted (`kubegc journal --resource {0}`), then `kubegc resume --resource {0}`",
                trip.resource
            );
            finding("breaker", State::Wrong, trip.to_string()).advise(advice)
        })),
    }
    if let Some(until) = facts.orders.observe_until.filter(|until| *until > facts.now) {
        findings.push(finding("observation", State::Notice, format!("nothing is performed until {until}")));
    }
}

/// Checks kube-controller-manager's own collector.
fn rivals(facts: &Facts, findings: &mut Vec<Finding>) {
    const CHECK: &str = "kube-controller-manager";
    if let Some(why) = &facts.controller_manager_unread {
        findings.push(finding(CHECK, State::Notice, format!("whether it runs here is not known: {why}")));
        return;
    }
    let runs = facts.controller_manager.as_ref().is_some_and(|held| held.is_held(facts.now));
    let we_lead = facts.lease.1.as_ref().is_some_and(|held| held.is_held(facts.now));
    let advice =
        "start it with --controllers=*,-garbage-collector-controller (docs/operating.md, \"Switching over\")";
    findings.push(match (runs, facts.their_collector) {
        (false, _) if we_lead || facts.is_up => {
            finding(CHECK, State::Fine, "not found; it may use another lease")
        }
        (false, _) => finding(CHECK, State::Notice, "not found; it may use another lease"),
        (true, TheirCollector::Off) if we_lead => finding(CHECK, State::Fine, "its garbage collector is off"),
        (true, TheirCollector::Off) => finding(
            CHECK,
            State::Wrong,
            "its garbage collector is off, and kubegc does not lead: nothing is collected",
        )
        .advise("start kubegc, or enable that one again"),
        (true, TheirCollector::On) if we_lead => {
            finding(CHECK, State::Notice, "its garbage collector runs beside kubegc's: twice the work")
                .advise(advice)
        }
        (true, TheirCollector::Unseen) if we_lead => finding(
            CHECK,
            State::Notice,
            "it runs, and its flags cannot be seen: its garbage collector probably runs beside kubegc's",
        )
        .advise(advice),
        (true, _) => finding(CHECK, State::Fine, "it runs, and collects"),
    });
}

fn permissions(facts: &Facts, findings: &mut Vec<Finding>) {
    if facts.is_up {
        findings.push(finding(
            "permissions",
            State::Fine,
            "the collectors of this server have accounts of their own",
        ));
        return;
    }
    if !facts.is_installed {
        return;
    }
    let (subject, missing) = &facts.permissions;
    if missing.is_empty() && facts.unchecked.is_empty() {
        findings.push(finding(
            "permissions",
            State::Fine,
            format!("{subject} has all permissions that are needed"),
        ));
    }
    findings.extend(missing.iter().map(|MissingRule { role, rule, is_needed }| {
        let (state, what) =
            if *is_needed { (State::Wrong, "") } else { (State::Notice, ", and writes no Events") };
        finding("permissions", state, format!("{subject} lacks the rule {rule}{what}"))
            .about(rule)
            .advise(format!("add it to our {role}; `kubegc rbac` prints all that is needed"))
    }));
    findings.extend(facts.unchecked.iter().map(|what| finding("permissions", State::Notice, what.clone())));
    findings.extend(facts.unguarded.iter().map(|unguarded| {
        let found = finding("admission", State::Wrong, unguarded.to_string());
        found.about(unguarded.controller).advise(UnguardedController::ADVICE)
    }));
}

/// Consequence of a resource that cannot be read.
const WAITS: &str = "what depends on it waits, everything else is collected";

fn apis(facts: &Survey, findings: &mut Vec<Finding>) {
    let resources = &facts.unreadable;
    if resources.is_empty() && facts.undiscovered.is_empty() && facts.forbidden.is_empty() {
        findings.push(finding(
            "resources",
            State::Fine,
            format!("{} resources can be read", facts.resources),
        ));
    }
    let unexamined = facts
        .unexamined
        .iter()
        .map(|what| finding("resources", State::Notice, what.clone()).about("unexamined"));
    findings.extend(listed("resources", unexamined));
    if !facts.forbidden.is_empty() {
        let all = gc_explain::text::count(facts.forbidden.len(), "resource");
        let some = gc_explain::text::some_of(&facts.forbidden, 3);
        let message = format!("this user may not list {all}, which were not examined: {some}");
        findings.push(finding("resources", State::Notice, message).about("forbidden"));
    }
    let (converted, others): (Vec<&String>, Vec<&String>) =
        resources.iter().partition(|why| why.contains("conversion webhook"));
    for (check, unread) in [("resources", others), ("conversion", converted)] {
        let each = unread.into_iter().map(|why| {
            let subject = why.split_whitespace().next().unwrap_or_default();
            finding(check, State::Wrong, why.clone()).about(subject).advise(WAITS)
        });
        findings.extend(listed(check, each));
    }
    let groups = facts.undiscovered.iter().map(|version| {
        let message = format!("{version} cannot be discovered");
        finding("discovery", State::Wrong, message).about(version).advise(WAITS)
    });
    findings.extend(listed("discovery", groups));
}

fn unavailable(services: &BTreeMap<String, String>, findings: &mut Vec<Finding>) {
    let services = services.iter().map(|(name, why)| {
        let message = format!("{name} is not available: {why}");
        let advice =
            format!("until it is, no namespace can be deleted; `kubectl describe apiservice/{name}`");
        finding("apiservices", State::Wrong, message).about(name).advise(advice)
    });
    findings.extend(listed("apiservices", services));
}

/// Returns the first of many, and how many more there are.
fn listed(check: &'static str, all: impl ExactSizeIterator<Item = Finding>) -> Vec<Finding> {
    let more = all.len().saturating_sub(LISTED);
    let mut findings: Vec<Finding> = all.take(LISTED).collect();
    if more > 0 {
        let state = findings.last().map_or(State::Wrong, |last| last.state);
        findings.push(finding(check, state, format!("and {more} more")).about("more"));
    }
    findings
}

fn stuck(facts: &Survey, findings: &mut Vec<Finding>) {
    if facts.stuck.is_empty() {
        findings.push(if facts.forbidden.is_empty() {
            finding("stuck", State::Fine, "nothing is stuck")
        } else {
            finding("stuck", State::Notice, "nothing is stuck, as far as this user can see")
        });
    }
    findings.extend(facts.stuck.iter().map(|(cause, (number, one))| {
        let message = match number {
            1 => format!("{cause}: {one}"),
            _ => format!("{cause}: {}, such as {one}", gc_explain::text::count(*number, "object")),
        };
        finding("stuck", State::Notice, message)
            .about(cause)
            .advise(format!("`kubegc why {one}` explains it, `kubegc stuck` lists all"))
    }));
}

/// Adds the findings in a running collector's own report.
fn collector(page: &Value, findings: &mut Vec<Finding>) {
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let (version, mode) = (text(page, "version"), text(page, "mode"));
    let role = if page["leading"] == true { "leads" } else { "stands by" };
    findings.push(finding("collector", State::Fine, format!("kubegc {version} {role}, mode {mode}")));
    if version != env!("CARGO_PKG_VERSION") {
        let message = format!("this command is {}, the collector {version}", env!("CARGO_PKG_VERSION"));
        findings.push(finding("collector", State::Notice, message));
    }
    let resources: Vec<&Value> = page["resources"].as_array().into_iter().flatten().collect();
    let unsynced: Vec<Finding> = resources
        .iter()
        .filter(|resource| resource["state"] != "synced")
        .map(|resource| {
            let (name, state) = (text(resource, "resource"), text(resource, "state"));
            let (since, why) = (text(resource, "since"), text(resource, "why"));
            let why = if why.is_empty() { why } else { format!(": {why}") };
            finding("collector", State::Wrong, format!("{name} is {state} since {since}{why}"))
        })
        .collect();
    if unsynced.is_empty() {
        findings.push(finding("collector", State::Fine, format!("{} resources are synced", resources.len())));
    }
    findings.extend(listed("collector", unsynced.into_iter()));
    if let Some(why) = page["discovery"]["failing"]["why"].as_str() {
        let since = text(&page["discovery"]["failing"], "since");
        findings.push(finding("collector", State::Wrong, format!("discovery fails since {since}: {why}")));
    }
    let clock = &page["clock"];
    if clock["paused"] == true {
        let message = format!("deletions that depend on the time pause: {}", text(clock, "message"));
        let finding = finding("clock", State::Wrong, message);
        findings.push(finding.advise("synchronize the clocks; deletions then continue by themselves"));
    }
}

/// Findings as an answer.
pub struct Examination<'a>(pub &'a [Finding]);

impl crate::output::Answer for Examination<'_> {
    fn value(&self) -> Value {
        value(self.0)
    }

    fn text(&self, is_wide: bool, out: &mut Vec<u8>) -> Result<()> {
        text(self.0, is_wide, out)
    }

    fn names(&self) -> Vec<String> {
        names(self.0)
    }
}

/// Reports whether anything is wrong.
#[must_use]
pub fn is_healthy(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.state != State::Wrong)
}

/// Returns `resource/name` of each object in the findings, once.
pub(crate) fn names(findings: &[Finding]) -> Vec<String> {
    let mut known = BTreeSet::new();
    let names = findings.iter().flat_map(|finding| &finding.objects).map(Place::reference);
    names.filter(|name| known.insert(name.clone())).collect()
}

/// Writes findings in human-readable form; the wide form names all known objects.
pub fn text(findings: &[Finding], is_wide: bool, out: &mut impl Write) -> Result<()> {
    let wide: &[&str] = if is_wide { &["ID", "OBJECTS"] } else { &[] };
    let mut table = Table::new(&[&["CHECK", "STATE"], wide, &["FINDING"]].concat());
    for finding in findings {
        let mut row = vec![finding.check.to_owned(), finding.state.word().to_owned()];
        if is_wide {
            let objects: Vec<String> = finding.objects.iter().map(argument).collect();
            let objects = if objects.is_empty() { "-".to_owned() } else { objects.join(", ") };
            row.extend([finding.id.clone(), objects]);
        }
        row.push(finding.message.clone());
        table.row(row);
        if let Some(advice) = &finding.advice {
            let mut row = vec![String::new(); 2 + wide.len()];
            row.push(format!("→ {advice}"));
            table.row(row);
        }
    }
    table.write(out)
}

/// Converts findings to JSON.
#[must_use]
pub fn value(findings: &[Finding]) -> Value {
    let of = |finding: &Finding| {
        json!({"id": finding.id, "check": finding.check, "state": finding.state.word(),
               "message": finding.message, "advice": finding.advice,
               "objects": finding.objects.iter().map(Place::full_value).collect::<Vec<_>>(),
               "total": finding.total})
    };
    json!({"healthy": is_healthy(findings), "items": findings.iter().map(of).collect::<Vec<_>>()})
}

#[cfg(test)]
pub(crate) mod tests;
