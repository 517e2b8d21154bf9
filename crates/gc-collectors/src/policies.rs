//! Retention by policy: `RetentionPolicy` objects (`kubegc.io/v1alpha1`, cluster-scoped) that define which objects of a kind are
//! deleted, and when.
//!
//! [`Policy::compile`] validates a `spec`, [`Policy::look`] assesses an object, [`engine::PolicyEngine`] decides,
//! [`roster::Roster`] holds all policies of a collector, and [`definition`] is the CustomResourceDefinition. Nothing is deleted by
//! an invalid policy, nor an object on which the condition cannot be evaluated or which carries `kubegc.io/keep`.

pub mod cron;
pub mod definition;
pub mod engine;
mod look;
pub mod roster;
mod status;
#[cfg(test)]
mod tests;
pub mod unused;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use gc_types::{Evidence, GoDuration, ObjectKey, PropagationPolicy, Reason, codes};
use serde::Deserialize;
use serde_json::Value;

use crate::entry::{CollectorEntry, WATCH, WATCH_DELETE, WRITE_EVENTS, Watches, rule};

use cron::Schedule;
pub use look::{Assessment, Group, Item, name_matches};
use unused::{Unused, WireUnused};

/// Group of the policies.
pub const GROUP: &str = "kubegc.io";
/// Version of the policies.
pub const VERSION: &str = "v1alpha1";
/// Kind of the policies.
pub const KIND: &str = "RetentionPolicy";
/// Resource of the policies.
pub const RESOURCE: &str = "retentionpolicies";
/// Default of `spec.maxDeletionsPerRun`.
pub const DELETIONS_PER_RUN: u32 = 100;
/// Maximum of `spec.maxDeletionsPerRun`.
pub const MOST_DELETIONS_PER_RUN: u32 = 10_000;
/// Time for which the value of `now` in conditions is used before all objects are assessed again, milliseconds.
pub const NOW_PERIOD_MILLISECONDS: i64 = 60_000;
/// Maximum cost of a condition for one object, in steps.
pub const CONDITION_BUDGET: u64 = 100_000;
/// Namespaces in which nothing is selected unless `spec.namespaces.include` contains their exact names.
pub const SYSTEM_NAMESPACES: [&str; 3] = ["kube-node-lease", "kube-public", "kube-system"];

/// Prefix of the fact that names the policy of a deletion.
const NAMED: &str = "retention policy ";

/// Returns the fact that names the policy of a deletion.
fn fact(policy: &str) -> String {
    format!("{NAMED}{policy}")
}

/// Returns the policy by which a deletion is due, as its reason names it.
#[must_use]
pub fn named_in(reason: &Reason) -> Option<&str> {
    let mut facts = reason.evidence.iter().rev().filter(|_| reason.code() == codes::DUE_BY_POLICY);
    facts.find_map(|fact| match fact {
        Evidence::Fact(text) => text.strip_prefix(NAMED),
        _ => None,
    })
}

/// Entry of this collector in the table of collectors.
pub(crate) const COLLECTOR: CollectorEntry = CollectorEntry {
    summary: "retention by policy",
    name: "retention-policy-controller",
    alias: None,
    account: "retention-policy-controller",
    event_source: "retention-policy-controller",
    on_by_default: true,
    for_every_kind: true,
    watches: Watches::ByPolicies,
    flags: &[
        "notice-webhook",
        "notice-webhook-ca-file",
        "notice-webhook-timeout",
        "notice-webhook-token-file",
    ],
    rules: &[
        rule("kubegc.io", "retentionpolicies", WATCH),
        rule("kubegc.io", "retentionpolicies/status", &["patch"]),
        rule("*", "*", WATCH_DELETE),
        WRITE_EVENTS,
    ],
};

/// One error in a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Path of the field, such as `spec.maxAge`.
    pub field: String,
    /// The error, and the expected form.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// A compiled policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// `apiVersion` of its objects.
    pub api_version: Arc<str>,
    /// Kind of its objects.
    pub kind: Arc<str>,
    /// True if anything is actually deleted.
    pub enforce: bool,
    /// Schedule of its runs.
    pub schedule: Schedule,
    /// Maximum number of deletions per run.
    pub most_per_run: usize,
    /// Propagation to dependents.
    pub propagation: PropagationPolicy,
    namespaces: Namespaces,
    labels: Vec<Requirement>,
    fields: Vec<(Vec<String>, Requirement)>,
    condition: Option<gc_cel::Program>,
    rules: Rules,
    /// Time between the notice and the deletion, milliseconds.
    notice_milliseconds: Option<i64>,
}

/// Rules that make a selected object due.
#[derive(Clone, Debug, PartialEq)]
struct Rules {
    join: Join,
    newest: Option<Newest>,
    max_age_milliseconds: Option<i64>,
    ttl: Option<Ttl>,
    /// Rule about unused objects, which excludes all others.
    unused: Option<Unused>,
}

/// Combination of several rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Join {
    /// One of them, written in `spec` itself, is enough.
    Top,
    /// One of them, written in `spec.any`, is enough.
    Any,
    /// All of them, written in `spec.all`, must apply.
    All,
}

impl Join {
    /// Returns the path of the rules in a policy.
    const fn path(self) -> &'static str {
        match self {
            Self::Top => "spec",
            Self::Any => "spec.any",
            Self::All => "spec.all",
        }
    }
}

impl Rules {
    const NONE: Self =
        Self { join: Join::Top, newest: None, max_age_milliseconds: None, ttl: None, unused: None };

    fn has_time(&self) -> bool {
        self.max_age_milliseconds.is_some() || self.ttl.is_some() || self.unused.is_some()
    }

    /// Reports whether an object that is surplus in its group, or too old, is due.
    fn apply(&self, is_surplus: bool, is_expired: bool) -> bool {
        match self.join {
            Join::Top | Join::Any => is_surplus || is_expired,
            Join::All => (is_surplus || self.newest.is_none()) && (is_expired || !self.has_time()),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Namespaces {
    include: Vec<String>,
    exclude: Vec<String>,
}

/// A requirement on a label or a field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Requirement {
    pub(crate) key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

#[derive(Clone, Debug, PartialEq)]
struct Newest {
    count: usize,
    per: Per,
    by_finish: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Per {
    Cluster,
    Namespace,
    Owner,
    Label(String),
}

/// A duration after a condition changed to a status.
#[derive(Clone, Debug, PartialEq)]
struct Ttl {
    milliseconds: i64,
    condition: String,
    status: String,
}

impl Policy {
    /// Parses a `spec`; reports all errors at once.
    pub fn compile(spec: &Value) -> Result<Self, Vec<Problem>> {
        let wire = WireSpec::deserialize(spec)
            .map_err(|error| vec![Problem { field: "spec".into(), message: error.to_string() }])?;
        let mut problems = Problems { found: Vec::new(), place: Join::Top.path() };
        let policy = wire.understand(&mut problems);
        if problems.found.is_empty() { Ok(policy) } else { Err(problems.found) }
    }

    /// Creates the stand-in for an invalid policy, which selects nothing.
    fn none() -> Self {
        Self {
            api_version: "".into(),
            kind: "".into(),
            enforce: false,
            schedule: Schedule::Continuous,
            most_per_run: 0,
            propagation: PropagationPolicy::Background,
            namespaces: Namespaces::default(),
            labels: Vec::new(),
            fields: Vec::new(),
            condition: None,
            rules: Rules::NONE,
            notice_milliseconds: None,
        }
    }

    /// Returns the time between the notice and the deletion in milliseconds, if there are notices.
    fn notice(&self) -> Option<i64> {
        self.notice_milliseconds.filter(|_| self.enforce)
    }

    /// Returns the number of newest objects per group that it keeps, if any.
    #[must_use]
    pub fn newest(&self) -> Option<usize> {
        self.rules.newest.as_ref().map(|newest| newest.count)
    }

    /// Reports whether its condition depends on the time, so that all objects have to be assessed periodically.
    #[must_use]
    pub fn depends_on_time(&self) -> bool {
        self.condition.as_ref().is_some_and(|condition| condition.free_names().iter().any(|name| name == NOW))
    }

    /// Reports whether whole objects have to be read, because their metadata is not enough.
    #[must_use]
    pub fn needs_content(&self) -> bool {
        let beyond_metadata =
            |(path, _): &(Vec<String>, _)| path.first().is_some_and(|first| first != "metadata");
        self.condition.is_some()
            || self.rules.ttl.is_some()
            || self.rules.newest.as_ref().is_some_and(|newest| newest.by_finish)
            || self.fields.iter().any(beyond_metadata)
    }
}

impl Policy {
    /// Returns the Lease of the recorder that the policy needs, if it deletes unused objects.
    #[must_use]
    pub fn recorder(&self) -> Option<&Arc<str>> {
        self.rules.unused.as_ref().map(|unused| &unused.recorder)
    }

    /// Returns the command that restores an object that it has deleted.
    fn undo_command(&self, key: &ObjectKey) -> String {
        let namespace =
            if key.namespace.is_empty() { String::new() } else { format!(" -n {}", key.namespace) };
        let kind = unused::kind_name(&self.api_version, &self.kind).to_lowercase();
        format!("kubegc undo {kind}/{}{namespace} --records DIR", key.name)
    }
}

/// Errors in a policy that have been found so far.
pub(crate) struct Problems {
    pub(crate) found: Vec<Problem>,
    /// Path of the part that is being read.
    pub(crate) place: &'static str,
}

impl Problems {
    pub(crate) fn add(&mut self, field: &str, message: impl Into<String>) {
        self.found.push(Problem { field: format!("{}.{field}", self.place), message: message.into() });
    }

    fn add_at(&mut self, path: &str, message: impl Into<String>) {
        self.found.push(Problem { field: path.to_owned(), message: message.into() });
    }

    /// Returns the value, or a default after recording an error.
    pub(crate) fn take<T>(&mut self, field: &str, value: Result<T, impl fmt::Display>) -> Option<T> {
        match value {
            Ok(value) => Some(value),
            Err(error) => {
                self.add(field, error.to_string());
                None
            }
        }
    }

    fn duration(&mut self, field: &str, text: &str) -> i64 {
        let parsed = self.take(field, GoDuration::parse_with_days(text));
        let parsed = parsed.unwrap_or(GoDuration::from_seconds(1));
        if parsed.0 <= 0 {
            self.add(field, format!("{text:?} is not a positive duration"));
        }
        parsed.to_milliseconds_rounded_up()
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields, expecting = "the spec of a retention policy")]
struct WireSpec {
    enforce: bool,
    target: WireTarget,
    namespaces: WireNamespaces,
    selector: WireSelector,
    fields: Vec<WireField>,
    condition: Option<String>,
    keep_newest: Option<WireNewest>,
    max_age: Option<String>,
    ttl_after: Option<WireTtl>,
    unused: Option<WireUnused>,
    any: Option<WireRules>,
    all: Option<WireRules>,
    notice: Option<WireNotice>,
    schedule: Option<String>,
    max_deletions_per_run: Option<i64>,
    propagation_policy: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct WireRules {
    keep_newest: Option<WireNewest>,
    max_age: Option<String>,
    ttl_after: Option<WireTtl>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireNotice {
    before: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct WireTarget {
    api_version: String,
    kind: String,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WireNamespaces {
    include: Vec<String>,
    exclude: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(crate) struct WireSelector {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<WireExpression>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireExpression {
    key: String,
    operator: Operator,
    #[serde(default)]
    values: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireField {
    path: String,
    operator: Operator,
    #[serde(default)]
    values: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WireNewest {
    count: i64,
    #[serde(default)]
    per: Option<String>,
    #[serde(default)]
    label: Option<String>,
    #[serde(default)]
    order_by: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WireTtl {
    duration: String,
    condition: String,
    #[serde(default)]
    status: Option<String>,
}

/// Kinds that no policy may select, each with the reason.
fn refused(group: &str, kind: &str) -> Option<&'static str> {
    match (group, kind) {
        (GROUP, _) => Some("a policy cannot select policies"),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            Some("deleting a definition deletes all of its objects")
        }
        ("apiregistration.k8s.io", "APIService") => Some("deleting an APIService removes a whole API"),
        ("", "Node" | "PersistentVolume") => {
            Some("it stands for a machine or storage, and has a collector of its own")
        }
        _ => None,
    }
}

impl WireSpec {
    fn understand(self, problems: &mut Problems) -> Policy {
        let WireTarget { api_version, kind } = &self.target;
        if kind.is_empty() {
            problems.add("target.kind", "is required");
        }
        if api_version.is_empty() {
            problems.add("target.apiVersion", "is required");
        }
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        if let Some(why) = refused(group, kind) {
            problems.add("target", format!("{kind} cannot be the target of a policy: {why}"));
        }
        let (finishes, secret) = (
            matches!((group, kind.as_str()), ("", "Pod") | ("batch", "Job")),
            group.is_empty() && kind == "Secret",
        );
        let top =
            WireRules { keep_newest: self.keep_newest, max_age: self.max_age, ttl_after: self.ttl_after };
        let unused = self.unused.map(|unused| unused.understand(secret, problems));
        let rules = match unused {
            Some(_) if top.is_empty() && self.any.is_none() && self.all.is_none() => {
                Rules { unused, ..Rules::NONE }
            }
            Some(_) => {
                problems.add("unused", "no other rule is written beside it");
                Rules::NONE
            }
            None => rules(top, self.any, self.all, finishes, problems),
        };
        let labels = labels(self.selector, problems);
        let fields = fields(self.fields, problems);
        let condition = self.condition.as_deref().and_then(|text| condition(text, problems));
        let notice = self.notice.map(|notice| {
            if rules.newest.is_some() {
                problems.add("notice", "keepNewest does not say beforehand when an object is due; notice is for maxAge and ttlAfter");
            }
            problems.duration("notice.before", &notice.before)
        });
        let schedule = self
            .schedule
            .map_or(Some(Schedule::Continuous), |text| problems.take("schedule", Schedule::parse(&text)));
        for (index, pattern) in self.namespaces.include.iter().chain(&self.namespaces.exclude).enumerate() {
            let usable = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '*');
            if pattern.is_empty() || !pattern.chars().all(usable) {
                problems.add(
                    "namespaces",
                    format!(
                        "{pattern:?} (number {}) is no name of a namespace, with * for any text",
                        index + 1
                    ),
                );
            }
        }
        let policy = Policy {
            api_version: api_version.as_str().into(),
            kind: kind.as_str().into(),
            enforce: self.enforce,
            schedule: schedule.unwrap_or(Schedule::Continuous),
            most_per_run: most_per_run(self.max_deletions_per_run, problems),
            propagation: propagation(self.propagation_policy.as_deref(), problems),
            namespaces: Namespaces { include: self.namespaces.include, exclude: self.namespaces.exclude },
            labels,
            fields,
            condition,
            rules,
            notice_milliseconds: notice,
        };
        if secret && policy.needs_content() {
            problems
                .add("target", "the contents of Secrets are never read: select them by labels and metadata");
        }
        policy
    }
}

/// Parses the rules of a policy, from one of the three places where they may be written.
fn rules(
    top: WireRules,
    any: Option<WireRules>,
    all: Option<WireRules>,
    finishes: bool,
    problems: &mut Problems,
) -> Rules {
    if usize::from(!top.is_empty()) + usize::from(any.is_some()) + usize::from(all.is_some()) > 1 {
        problems.add_at(
            "spec",
            "keepNewest, maxAge and ttlAfter are written either in spec, or in any, or in all",
        );
    }
    let (join, wire) = match (any, all) {
        (None, None) => (Join::Top, top),
        (Some(any), _) => (Join::Any, any),
        (None, Some(all)) => (Join::All, all),
    };
    if wire.is_empty() {
        let message =
            "at least one of keepNewest, maxAge and ttlAfter is required; without them nothing is due";
        problems.add_at(join.path(), message);
    }
    problems.place = join.path();
    let rules = Rules {
        join,
        newest: wire.keep_newest.map(|newest| newest.understand(finishes, problems)),
        max_age_milliseconds: wire.max_age.map(|text| problems.duration("maxAge", &text)),
        ttl: wire.ttl_after.map(|ttl| ttl.understand(finishes, problems)),
        unused: None,
    };
    problems.place = "spec";
    rules
}

impl WireRules {
    fn is_empty(&self) -> bool {
        self.keep_newest.is_none() && self.max_age.is_none() && self.ttl_after.is_none()
    }
}

fn propagation(said: Option<&str>, problems: &mut Problems) -> PropagationPolicy {
    let Some(said) = said else { return PropagationPolicy::Background };
    PropagationPolicy::named(said).unwrap_or_else(|| {
        problems.add("propagationPolicy", format!("{said:?} is none of Background, Foreground and Orphan"));
        PropagationPolicy::Background
    })
}

fn most_per_run(said: Option<i64>, problems: &mut Problems) -> usize {
    let most = said.map_or(Ok(DELETIONS_PER_RUN), u32::try_from).unwrap_or_default();
    if !(1..=MOST_DELETIONS_PER_RUN).contains(&most) {
        problems.add("maxDeletionsPerRun", format!("must be between 1 and {MOST_DELETIONS_PER_RUN}"));
    }
    most as usize
}

fn requirement(
    place: &str,
    key: String,
    operator: Operator,
    values: Vec<String>,
    problems: &mut Problems,
) -> Requirement {
    match operator {
        Operator::In | Operator::NotIn if values.is_empty() => {
            problems.add(place, "values are required for In and NotIn");
        }
        Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
            problems.add(place, "values make no sense for Exists and DoesNotExist");
        }
        _ => {}
    }
    Requirement { key, operator, values }
}

pub(crate) fn labels(selector: WireSelector, problems: &mut Problems) -> Vec<Requirement> {
    let mut labels: Vec<Requirement> = selector
        .match_labels
        .into_iter()
        .map(|(key, value)| Requirement { key, operator: Operator::In, values: vec![value] })
        .collect();
    for (index, expression) in selector.match_expressions.into_iter().enumerate() {
        let place = format!("selector.matchExpressions[{index}]");
        let WireExpression { key, operator, values } = expression;
        labels.push(requirement(&place, key, operator, values, problems));
    }
    labels
}

fn fields(wire: Vec<WireField>, problems: &mut Problems) -> Vec<(Vec<String>, Requirement)> {
    let mut fields = Vec::new();
    for (index, WireField { path, operator, values }) in wire.into_iter().enumerate() {
        let place = format!("fields[{index}]");
        match field_path(&path) {
            Some(steps) => fields.push((steps, requirement(&place, path, operator, values, problems))),
            None => problems.add(
                &format!("{place}.path"),
                format!("{path:?} is no path; expected such as \".status.phase\" or \".metadata.annotations['a/b']\""),
            ),
        }
    }
    fields
}

/// Splits `.a.b['c.d/e']` into its steps.
fn field_path(path: &str) -> Option<Vec<String>> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix("['") {
            let (step, after) = quoted.split_once("']")?;
            steps.push(step.to_owned());
            rest = after;
        } else {
            let plain = rest.strip_prefix('.')?;
            let end = plain.find(['.', '[']).unwrap_or(plain.len());
            steps.push(plain[..end].to_owned());
            rest = &plain[end..];
        }
    }
    (!steps.is_empty() && steps.iter().all(|step| !step.is_empty())).then_some(steps)
}

fn condition(text: &str, problems: &mut Problems) -> Option<gc_cel::Program> {
    let program = problems.take("condition", gc_cel::Program::compile(text))?;
    if let Some(name) = program.free_names().into_iter().find(|name| name != "object" && name != NOW) {
        problems.add(
            "condition",
            format!("undeclared reference to '{name}'; the object is called 'object' and the time 'now'"),
        );
        return None;
    }
    Some(program)
}

impl WireNewest {
    fn understand(self, finishes: bool, problems: &mut Problems) -> Newest {
        let count = usize::try_from(self.count).unwrap_or_else(|_| {
            problems.add("keepNewest.count", "must not be negative");
            0
        });
        let label = self.label.filter(|label| !label.is_empty());
        let per = match (self.per.as_deref().unwrap_or("Cluster"), label) {
            ("Cluster", None) => Per::Cluster,
            ("Namespace", None) => Per::Namespace,
            ("Owner", None) => Per::Owner,
            ("Label", Some(label)) => Per::Label(label),
            ("Label", None) => {
                problems.add("keepNewest.label", "is required with per: Label");
                Per::Cluster
            }
            ("Cluster" | "Namespace" | "Owner", Some(_)) => {
                problems.add("keepNewest.label", "makes sense with per: Label only");
                Per::Cluster
            }
            (other, _) => {
                problems.add(
                    "keepNewest.per",
                    format!("{other:?} is none of Cluster, Namespace, Owner and Label"),
                );
                Per::Cluster
            }
        };
        let by_finish = match self.order_by.as_deref() {
            None | Some("Created") => false,
            Some("Finished") if finishes => true,
            Some("Finished") => {
                problems.add("keepNewest.orderBy", "Finished is for Pods and Jobs only");
                false
            }
            Some(other) => {
                problems.add("keepNewest.orderBy", format!("{other:?} is neither Created nor Finished"));
                false
            }
        };
        Newest { count, per, by_finish }
    }
}

impl WireUnused {
    fn understand(self, is_secret: bool, problems: &mut Problems) -> Unused {
        let recorder = self.recorder.unwrap_or_else(|| unused::RECORDER.to_owned());
        if unused::lease_name(&recorder).is_none() {
            problems.add("unused.recorder", format!("{recorder:?} is not NAMESPACE/NAME of a Lease"));
        }
        if is_secret {
            problems.add("unused", "Secrets are not recorded as a kind, so that none could be restored");
        }
        Unused { milliseconds: problems.duration("unused.for", &self.duration), recorder: recorder.into() }
    }
}

impl WireTtl {
    fn understand(self, finishes: bool, problems: &mut Problems) -> Ttl {
        if self.condition.is_empty() {
            problems.add("ttlAfter.condition", "is required");
        }
        let status = self.status.unwrap_or_else(|| "True".to_owned());
        if !matches!(status.as_str(), "True" | "False" | "Unknown") {
            problems.add("ttlAfter.status", format!("{status:?} is none of True, False and Unknown"));
        }
        if self.condition == FINISHED && (!finishes || status != "True") {
            problems.add("ttlAfter.condition", "Finished is for Pods and Jobs only, with status True");
        }
        let milliseconds = problems.duration("ttlAfter.duration", &self.duration);
        Ttl { milliseconds, condition: self.condition, status }
    }
}

/// Name of the time in conditions.
const NOW: &str = "now";

/// Condition of Pods and Jobs that stands for their end, successful or not.
const FINISHED: &str = "Finished";
