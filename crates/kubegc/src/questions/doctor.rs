//! `kubegc doctor`: checks everything that collection needs, and lists what is stuck.
//!
//! What was found out ([`Facts`]) is judged by a pure function; finding it out is in [`super::examine`].

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Result;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::run::control::Orders;
use crate::table::Table;

/// Maximum number of findings that one check lists; the rest is counted.
const LISTED: usize = 10;

/// A Lease as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) holder: String,
    pub(super) renewed: Option<Timestamp>,
    pub(super) seconds: i64,
}

impl Held {
    /// Reads a Lease.
    pub(super) fn of(lease: &Value) -> Self {
        let spec = &lease["spec"];
        Self {
            holder: spec["holderIdentity"].as_str().unwrap_or_default().to_owned(),
            renewed: spec["renewTime"].as_str().and_then(|text| text.parse().ok()),
            seconds: spec["leaseDurationSeconds"].as_i64().unwrap_or(0),
        }
    }

    fn is_held(&self, now: Timestamp) -> bool {
        let until = self.renewed.map(|renewed| renewed.as_second().saturating_add(self.seconds));
        !self.holder.is_empty() && until.is_some_and(|until| until >= now.as_second())
    }
}

/// Whether kube-controller-manager's own garbage collector is switched off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TheirCollector {
    /// Its command line says so.
    Off,
    /// Its command line does not say so.
    On,
    /// Its command line cannot be seen.
    #[default]
    Unseen,
}

/// What was found out.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) now: Timestamp,
    pub(super) server: String,
    /// What is to be said about the server's version.
    pub(super) version: Option<String>,
    /// `namespace/name` of our Lease, and the Lease.
    pub(super) lease: (String, Option<Held>),
    pub(super) orders: Orders,
    /// kube-controller-manager's Lease.
    pub(super) controller_manager: Option<Held>,
    pub(super) their_collector: TheirCollector,
    /// Whose permissions were checked, and which rules are missing.
    pub(super) permissions: (String, Vec<String>),
    /// What could not be checked.
    pub(super) unchecked: Vec<String>,
    /// Resources that are read, and those that cannot be, each with why.
    pub(super) resources: usize,
    pub(super) unreadable: Vec<String>,
    /// Group versions that discovery could not see.
    pub(super) undiscovered: Vec<String>,
    /// APIServices that are not available, with why.
    pub(super) unavailable: BTreeMap<String, String>,
    /// What is stuck, by root cause: how many objects, and one of them.
    pub(super) stuck: BTreeMap<String, (usize, String)>,
    /// The answer of a collector's `/debug/kubegc/resources`, if one was asked.
    pub(super) collector: Option<Value>,
    /// Why that answer could not be read.
    pub(super) collector_error: Option<String>,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// In order.
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

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) state: State,
    pub(super) message: String,
    /// What to do about it.
    pub(super) advice: Option<String>,
}

fn finding(check: &'static str, state: State, message: impl Into<String>) -> Finding {
    Finding { check, state, message: message.into(), advice: None }
}

impl Finding {
    fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

/// Judges what was found out.
pub(super) fn diagnose(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![match &facts.version {
        None => finding("server", State::Fine, facts.server.clone()),
        Some(doubt) => finding("server", State::Notice, doubt.clone()),
    }];
    leader(facts, &mut findings);
    orders(facts, &mut findings);
    rivals(facts, &mut findings);
    permissions(facts, &mut findings);
    apis(facts, &mut findings);
    stuck(facts, &mut findings);
    if let Some(collector) = &facts.collector {
        self::collector(collector, &mut findings);
    }
    if let Some(error) = &facts.collector_error {
        let unread = finding("collector", State::Wrong, format!("its page cannot be read: {error}"));
        findings.push(unread.advise("give --collector the address of its --bind-address"));
    }
    findings
}

fn leader(facts: &Facts, findings: &mut Vec<Finding>) {
    let (name, held) = &facts.lease;
    findings.push(match held {
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
        Some(tripped) if tripped.is_empty() => findings.push(finding("breaker", State::Fine, "nothing is stopped")),
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

/// kube-controller-manager's own collector.
fn rivals(facts: &Facts, findings: &mut Vec<Finding>) {
    const CHECK: &str = "kube-controller-manager";
    let runs = facts.controller_manager.as_ref().is_some_and(|held| held.is_held(facts.now));
    let we_lead = facts.lease.1.as_ref().is_some_and(|held| held.is_held(facts.now));
    let advice =
        "start it with --controllers=*,-garbage-collector-controller (docs/operating.md, \"Switching over\")";
    findings.push(match (runs, facts.their_collector) {
        (false, _) if we_lead => finding(CHECK, State::Fine, "does not run here, or under another lease"),
        (false, _) => finding(CHECK, State::Notice, "does not run here, or under another lease"),
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
    let (subject, missing) = &facts.permissions;
    if missing.is_empty() && facts.unchecked.is_empty() {
        findings.push(finding(
            "permissions",
            State::Fine,
            format!("{subject} has all permissions that are needed"),
        ));
    }
    findings.extend(missing.iter().map(|rule| {
        finding("permissions", State::Wrong, format!("{subject} lacks a rule")).advise(format!("add {rule}"))
    }));
    findings.extend(facts.unchecked.iter().map(|what| finding("permissions", State::Notice, what.clone())));
}

fn apis(facts: &Facts, findings: &mut Vec<Finding>) {
    let resources = &facts.unreadable;
    if resources.is_empty() && facts.undiscovered.is_empty() {
        findings.push(finding(
            "resources",
            State::Fine,
            format!("{} resources can be read", facts.resources),
        ));
    }
    let waits = "what depends on it waits, everything else is collected";
    let each = resources.iter().map(|why| finding("resources", State::Wrong, why.clone()).advise(waits));
    findings.extend(listed("resources", each));
    let groups = facts.undiscovered.iter().map(|version| {
        finding("discovery", State::Wrong, format!("{version} cannot be discovered")).advise(waits)
    });
    findings.extend(listed("discovery", groups));
    let services = facts.unavailable.iter().map(|(name, why)| {
        finding("apiservices", State::Wrong, format!("{name} is not available: {why}")).advise(waits)
    });
    findings.extend(listed("apiservices", services));
}

/// The first of many, and how many more there are.
fn listed(check: &'static str, all: impl ExactSizeIterator<Item = Finding>) -> Vec<Finding> {
    let more = all.len().saturating_sub(LISTED);
    let mut findings: Vec<Finding> = all.take(LISTED).collect();
    if more > 0 {
        findings.push(finding(check, State::Wrong, format!("and {more} more")));
    }
    findings
}

fn stuck(facts: &Facts, findings: &mut Vec<Finding>) {
    if facts.stuck.is_empty() {
        findings.push(finding("stuck", State::Fine, "nothing is stuck"));
    }
    findings.extend(facts.stuck.iter().map(|(cause, (number, one))| {
        let message = format!("{cause}: {}, such as {one}", gc_answers::text::count(*number, "object"));
        finding("stuck", State::Notice, message)
            .advise(format!("`kubegc why {one}` explains it, `kubegc stuck` lists all"))
    }));
}

/// What a running collector says of itself.
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
pub(super) struct Examined<'a>(pub(super) &'a [Finding]);

impl super::output::Answer for Examined<'_> {
    fn value(&self) -> Value {
        value(self.0)
    }

    fn text(&self, _is_wide: bool, out: &mut Vec<u8>) -> Result<()> {
        text(self.0, out)
    }

    fn names(&self) -> Vec<String> {
        self.0.iter().map(|finding| finding.check.to_owned()).collect()
    }
}

/// Whether anything is wrong.
pub(super) fn is_healthy(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.state != State::Wrong)
}

/// For people.
pub(super) fn text(findings: &[Finding], out: &mut impl Write) -> Result<()> {
    let mut table = Table::new(&["CHECK", "STATE", "FINDING"]);
    for finding in findings {
        let row = [finding.check, finding.state.word(), &finding.message];
        table.row(row.iter().map(ToString::to_string).collect());
        if let Some(advice) = &finding.advice {
            table.row(vec![String::new(), String::new(), format!("→ {advice}")]);
        }
    }
    table.write(out)
}

/// For programs.
pub(super) fn value(findings: &[Finding]) -> Value {
    let of = |finding: &Finding| {
        json!({"check": finding.check, "state": finding.state.word(), "message": finding.message,
               "advice": finding.advice})
    };
    json!({"healthy": is_healthy(findings), "findings": findings.iter().map(of).collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test
    use super::*;
    use gc_kube::breaker::Trip;

    fn held(holder: &str, age: i64) -> Held {
        let renewed = Some(Timestamp::from_second(1_790_000_000 - age).unwrap());
        Held { holder: holder.into(), renewed, seconds: 15 }
    }

    fn healthy() -> Facts {
        Facts {
            now: Timestamp::from_second(1_790_000_000).unwrap(),
            server: "v1.36.2 at https://c".into(),
            lease: ("kube-system/kubegc".into(), Some(held("a", 2))),
            orders: Orders { tripped: Some(BTreeMap::new()), ..Orders::default() },
            permissions: ("kubegc".into(), vec![]),
            resources: 60,
            ..Facts::default()
        }
    }

    #[test]
    fn each_thing_that_is_wrong_is_told_with_what_to_do() {
        let trip = Trip { resource: "pods".into(), since: gc_types::Timestamp(0), why: "too many".into() };
        let map = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        let one = |key: &str| BTreeMap::from([(key.to_owned(), (2, "x/y".to_owned()))]);
        let change = |change: &dyn Fn(&mut Facts)| {
            let mut facts = healthy();
            change(&mut facts);
            facts
        };
        let cases: Vec<(Facts, &str, &str)> = vec![
            (change(&|f| f.version = Some("old".into())), "server", "notice old"),
            (
                change(&|f| f.lease.1 = None),
                "leader",
                "notice there is no lease kube-system/kubegc: no kubegc has led here",
            ),
            (
                change(&|f| f.lease.1 = Some(held("a", 60))),
                "leader",
                "wrong no replica leads: lease kube-system/kubegc is free, a renewed it last at 2026-09-21T14:12:20Z",
            ),
            (
                change(&|f| f.lease.1 = Some(held("", 1))),
                "leader",
                "wrong no replica leads: lease kube-system/kubegc is free, it has no holder",
            ),
            (change(&|f| f.orders.paused = Some("me".into())), "pause", "wrong everything is paused (me)"),
            (
                change(&|f| f.orders.tripped = Some(BTreeMap::from([("pods".into(), trip.clone())]))),
                "breaker",
                "wrong collection of pods has stopped: too many",
            ),
            (
                change(&|f| f.orders.tripped = None),
                "breaker",
                "wrong annotation kubegc.io/tripped of the lease cannot be parsed",
            ),
            (
                change(&|f| f.orders.observe_until = Some(Timestamp::from_second(1_790_000_600).unwrap())),
                "observation",
                "notice nothing is performed until 2026-09-21T14:23:20Z",
            ),
            (
                change(&|f| {
                    f.controller_manager = Some(held("kcm", 1));
                    f.their_collector = TheirCollector::On;
                }),
                "kube-controller-manager",
                "notice its garbage collector runs beside kubegc's: twice the work",
            ),
            (
                change(&|f| {
                    f.controller_manager = Some(held("kcm", 1));
                    f.their_collector = TheirCollector::Off;
                    f.lease.1 = None;
                }),
                "kube-controller-manager",
                "wrong its garbage collector is off, and kubegc does not lead: nothing is collected",
            ),
            (
                change(&|f| f.permissions.1 = vec!["{verbs: [delete]}".into()]),
                "permissions",
                "wrong kubegc lacks a rule",
            ),
            (change(&|f| f.unreadable = vec!["widgets: 500".into()]), "resources", "wrong widgets: 500"),
            (
                change(&|f| f.undiscovered = vec!["metrics.k8s.io/v1beta1".into()]),
                "discovery",
                "wrong metrics.k8s.io/v1beta1 cannot be discovered",
            ),
            (
                change(&|f| f.unavailable = map("v1.metrics", "no endpoints")),
                "apiservices",
                "wrong v1.metrics is not available: no endpoints",
            ),
            (
                change(&|f| f.stuck = one("FinalizerHeld a.b/c")),
                "stuck",
                "notice FinalizerHeld a.b/c: 2 objects, such as x/y",
            ),
            (
                change(&|f| f.collector_error = Some("a:1 does not answer".into())),
                "collector",
                "wrong its page cannot be read: a:1 does not answer",
            ),
            (
                change(&|f| {
                    f.collector = Some(json!({"version": "0", "mode": "act", "leading": true, "resources": [
                        {"resource": "widgets", "state": "stale", "since": "t", "why": "500"}]}));
                }),
                "collector",
                "wrong widgets is stale since t: 500",
            ),
            (
                change(&|f| {
                    f.collector = Some(json!({"version": env!("CARGO_PKG_VERSION"), "mode": "act",
                        "leading": true, "resources": [], "clock": {"paused": true, "message": "a day ahead"}}));
                }),
                "clock",
                "wrong deletions that depend on the time pause: a day ahead",
            ),
        ];
        let shown = |findings: &[Finding], check: &str| -> Vec<String> {
            let own = findings.iter().filter(|finding| finding.check == check);
            own.map(|finding| format!("{} {}", finding.state.word(), finding.message)).collect()
        };
        let fine = diagnose(&healthy());
        assert!(is_healthy(&fine) && fine.iter().all(|finding| finding.state == State::Fine), "{fine:#?}");
        for (facts, check, expected) in cases {
            let findings = diagnose(&facts);
            assert!(shown(&findings, check).contains(&expected.to_owned()), "{check}: {findings:#?}");
            assert_eq!(is_healthy(&findings), !expected.starts_with("wrong"), "{expected}");
            let wrong = findings.iter().filter(|finding| finding.state == State::Wrong);
            assert!(
                wrong.clone().all(|finding| finding.advice.is_some() || finding.check == "collector"),
                "{expected}"
            );
        }
    }

    #[test]
    fn many_findings_are_counted() {
        let unreadable = (0..13).map(|number| format!("r{number}")).collect();
        let findings = diagnose(&Facts { unreadable, ..healthy() });
        let own: Vec<&str> = findings
            .iter()
            .filter(|finding| finding.check == "resources")
            .map(|finding| &*finding.message)
            .collect();
        assert_eq!((own.len(), own[0], own[10]), (11, "r0", "and 3 more"));
    }
}
