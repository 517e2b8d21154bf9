//! Model of `kubegc top`, as `/kubegc/v1/overview` and `/kubegc/v1/feed` describe it.

use gc_collectors::images::space::BinaryBytes;
use gc_collectors::node_report::Tally;
use gc_explain::text::{age, ahead, thousands};
use gc_inspect::subject::Subject;
use gc_kube::push_segment;
use serde::Deserialize;

/// The first screen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Overview {
    pub(crate) now: String,
    pub(crate) user: User,
    pub(crate) mode: Mode,
    #[serde(default)]
    pub(crate) stopped: Vec<StoppedResource>,
    #[serde(default)]
    pub(super) node_breaker: Option<NodeBreaker>,
    pub(crate) collected: Vec<MinuteDeletions>,
    pub(crate) terminating: List<TerminatingObject>,
    pub(crate) stuck: List<Stuck>,
    pub(crate) due: List<Due>,
    #[serde(default)]
    pub(crate) nodes: List<Node>,
    pub(crate) unseen: Vec<String>,
}

/// The user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct User {
    pub(crate) name: String,
}

/// Mode of the collectors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Mode {
    pub(crate) state: String,
    #[serde(default)]
    pub(crate) reason: String,
}

/// A resource whose collection the circuit breaker has stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct StoppedResource {
    pub(crate) resource: String,
    pub(crate) why: Option<String>,
}

/// Reason why no node is deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct NodeBreaker {
    pub(crate) missing: usize,
}

/// Deletions of one collector in the last hour, by minute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct MinuteDeletions {
    pub(crate) controller: String,
    pub(crate) total: u64,
    pub(crate) minutes: Vec<u64>,
}

/// The first of several items, and their total number.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct List<T> {
    pub(crate) total: usize,
    pub(crate) items: Vec<T>,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { total: 0, items: Vec::new() }
    }
}

impl<T> List<T> {
    /// Returns the rows of the items, and one with the number of further items.
    pub(crate) fn rows(&self, row: impl Fn(&T) -> Row) -> Vec<Row> {
        let more = self.total.saturating_sub(self.items.len());
        let last = (more > 0).then(|| {
            let text = format!("… and {} more", thousands(more));
            Row { cells: vec![String::new(), String::new(), text], ..Row::default() }
        });
        self.items.iter().map(row).chain(last).collect()
    }
}

/// An object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct ObjectPlace {
    #[serde(default)]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) resource: String,
    #[serde(default)]
    pub(crate) namespace: String,
    #[serde(default)]
    pub(crate) name: String,
}

impl ObjectPlace {
    /// Returns `Pod/web`.
    pub(crate) fn title(&self) -> String {
        format!("{}/{}", if self.kind.is_empty() { &self.resource } else { &self.kind }, self.name)
    }

    /// Returns the subject of a question about it.
    pub(crate) fn subject(&self) -> Subject {
        Subject {
            resource: self.resource.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }
}

/// A terminating object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct TerminatingObject {
    pub(crate) object: ObjectPlace,
    pub(crate) since: Option<String>,
    pub(crate) finalizers: Vec<String>,
}

/// A root cause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Stuck {
    pub(crate) code: String,
    pub(crate) message: String,
    pub(super) age_seconds: Option<i64>,
    pub(crate) objects: Vec<ObjectPlace>,
    pub(super) object_count: usize,
}

/// An expected deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Due {
    pub(super) in_seconds: i64,
    pub(crate) code: String,
    pub(crate) collector: String,
    pub(crate) message: String,
    pub(crate) object: ObjectPlace,
}

/// Report of a node's agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Node {
    pub(crate) node: String,
    pub(crate) removed: Tally,
    pub(crate) due: usize,
}

/// A change by a collector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Change {
    pub(crate) time: String,
    pub(crate) controller: String,
    pub(crate) verb: String,
    pub(crate) verdict: String,
    pub(crate) message: String,
    pub(crate) outcome: String,
    #[serde(default)]
    pub(crate) owners: Vec<Owner>,
    #[serde(default)]
    pub(crate) evidence: Vec<String>,
    pub(crate) failure: Option<String>,
    #[serde(flatten)]
    pub(crate) place: ObjectPlace,
}

/// An owner in the evidence of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Owner {
    pub(crate) kind: String,
    pub(crate) name: String,
}

impl Change {
    /// Returns reason and evidence, because the object itself may be gone and can no longer be queried.
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![
            format!("{}  {}: {}, by {}", self.time, self.verb, self.outcome, self.controller),
            format!("{}: {}", self.verdict, self.message),
        ];
        lines.extend(self.owners.iter().map(|owner| format!("owner {}/{}", owner.kind, owner.name)));
        lines.extend(self.evidence.iter().cloned());
        lines.extend(self.failure.iter().map(|failure| format!("failure: {failure}")));
        lines
    }
}

/// Changes that were not sent because there were too many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct SkippedChanges {
    pub(crate) count: u64,
    /// Number of older ones that are no longer kept, and that may or may not match the filter.
    #[serde(default)]
    pub(crate) unknown: u64,
}

/// Query for the feed. The server searches, because what it sends without a filter is only a sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WantedFeed {
    /// Namespace; empty for all.
    pub(crate) namespace: String,
    /// Text whose words a change must all contain.
    pub(crate) text: String,
}

impl WantedFeed {
    /// Returns its path on the server.
    pub(crate) fn path(&self) -> String {
        let mut path = "/kubegc/v1/feed?namespace=".to_owned();
        push_segment(&mut path, &self.namespace);
        path.push_str("&q=");
        push_segment(&mut path, &self.text);
        path
    }
}

/// A line of the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Change(Box<Change>),
    Skipped(u64),
    /// Number of changes that are no longer kept, and were not searched.
    Unsearched(u64),
}

/// A row of a table: its cells, and the object that it is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub(super) cells: Vec<String>,
    pub(crate) place: Option<ObjectPlace>,
    /// True if something is wrong here.
    pub(super) is_bad: bool,
    /// Evidence beyond that object.
    pub(crate) evidence: Vec<String>,
}

/// A listed object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ListedObject {
    pub(crate) place: ObjectPlace,
    /// READY as in `kubectl get`; empty if the server has no such column.
    pub(crate) ready: String,
    pub(crate) status: String,
    pub(super) age_milliseconds: Option<i64>,
    pub(crate) owners: Vec<String>,
    pub(crate) finalizers: Vec<String>,
    pub(crate) is_terminating: bool,
}

impl ListedObject {
    /// Returns its status, including that it is terminating, and what blocks it.
    pub(super) fn status(&self) -> String {
        let finalizers = self.finalizers.join(" ");
        match (self.is_terminating, finalizers.is_empty()) {
            (true, true) => "Terminating".to_owned(),
            (true, false) => format!("Terminating, held by {finalizers}"),
            (false, true) => self.status.clone(),
            (false, false) if self.status.is_empty() => format!("finalizers {finalizers}"),
            (false, false) => format!("{}, finalizers {finalizers}", self.status),
        }
    }

    pub(super) fn age(&self) -> String {
        self.age_milliseconds.map_or_else(|| "-".to_owned(), age)
    }

    pub(crate) fn row(&self) -> Row {
        Row {
            cells: vec![
                self.place.namespace.clone(),
                self.place.name.clone(),
                self.ready.clone(),
                self.status(),
                self.age(),
                self.owners.join(" "),
            ],
            place: Some(self.place.clone()),
            is_bad: self.is_terminating,
            ..Row::default()
        }
    }
}

impl Stuck {
    pub(crate) fn row(&self) -> Row {
        let first = self.objects.first().cloned().unwrap_or_default();
        let object = match self.object_count {
            0 => String::new(),
            1 => first.title(),
            several => format!("{} (+{})", first.title(), several - 1),
        };
        let age =
            self.age_seconds.map_or_else(|| "-".to_owned(), |seconds| age(seconds.saturating_mul(1000)));
        Row {
            cells: vec![age, first.namespace.clone(), object, self.code.clone(), self.message.clone()],
            place: (self.object_count > 0).then_some(first),
            is_bad: true,
            ..Row::default()
        }
    }
}

impl Node {
    pub(crate) fn row(&self) -> Row {
        let Tally { images, freed_bytes, containers, sandboxes, log_directories, links } = self.removed;
        let number = |number: u64| thousands(usize::try_from(number).unwrap_or(usize::MAX));
        Row {
            cells: vec![
                self.node.clone(),
                BinaryBytes(freed_bytes).to_string(),
                number(images),
                number(containers),
                number(sandboxes),
                number(log_directories + links),
                thousands(self.due),
            ],
            place: Some(ObjectPlace {
                kind: "Node".into(),
                resource: "nodes".into(),
                namespace: String::new(),
                name: self.node.clone(),
            }),
            is_bad: false,
            ..Row::default()
        }
    }
}

impl Due {
    pub(crate) fn row(&self) -> Row {
        Row {
            cells: vec![
                ahead(self.in_seconds.saturating_mul(1000)),
                self.object.namespace.clone(),
                self.object.title(),
                self.code.clone(),
                self.collector.clone(),
                self.message.clone(),
            ],
            // An image on a node is not an object that could be queried.
            place: (!self.object.resource.is_empty()).then(|| self.object.clone()),
            is_bad: false,
            ..Row::default()
        }
    }
}

impl TerminatingObject {
    /// Formats a row. `now` is the time of the overview.
    pub(crate) fn row(&self, now: &str) -> Row {
        let time = |text: &str| text.parse::<jiff::Timestamp>().ok();
        let since = self.since.as_deref().and_then(time);
        let age = since.zip(time(now)).map(|(since, now)| now.as_millisecond() - since.as_millisecond());
        Row {
            cells: vec![
                age.map_or_else(|| "-".to_owned(), gc_explain::text::age),
                self.object.namespace.clone(),
                self.object.title(),
                self.finalizers.join(" "),
            ],
            place: Some(self.object.clone()),
            is_bad: false,
            ..Row::default()
        }
    }
}

impl Line {
    pub(crate) fn row(&self) -> Row {
        let remark = |count: u64, what: &str| {
            let text = format!("{} {what}", thousands(usize::try_from(count).unwrap_or(usize::MAX)));
            Row { cells: vec![String::new(), String::new(), String::new(), text], ..Row::default() }
        };
        match self {
            Self::Skipped(count) => remark(*count, "more changes"),
            Self::Unsearched(count) => remark(*count, "older changes were not searched"),
            Self::Change(change) => {
                let clock =
                    change.time.split('T').nth(1).and_then(|time| time.get(..8)).unwrap_or(&change.time);
                let verb = match &*change.outcome {
                    "applied" => change.verb.clone(),
                    "requested" => "deletion requested".to_owned(),
                    outcome => format!("{}: {outcome}", change.verb),
                };
                Row {
                    cells: vec![
                        clock.to_owned(),
                        verb,
                        change.place.namespace.clone(),
                        change.place.title(),
                        change.verdict.clone(),
                        change.controller.clone(),
                        change.message.clone(),
                    ],
                    place: Some(change.place.clone()),
                    is_bad: matches!(&*change.outcome, "failed" | "refused" | "protected"),
                    evidence: change.lines(),
                }
            }
        }
    }
}
