//! Stuck objects by root cause: why terminating objects remain.
//!
//! Each terminating object is held by causes of its own (a finalizer, a silent kubelet) or waits for other terminating objects
//! (blocking dependents, the contents of a namespace). Only causes become rows; objects that wait for an object with a cause are
//! listed in its row.

mod apis;
mod causes;
mod codes;
mod pods;
mod refusals;
#[cfg(test)]
pub(crate) mod tests;
mod volumes;

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use gc_types::{ObjectKey, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::admission::Admission;
use crate::facts::Facts;
use crate::finalizers::{self, Controller};
use crate::object::{Object, Writer};
use crate::survey::{Metadata, Survey};

pub use codes::Code;
pub(crate) use volumes::{narrow, users};

/// Time after a deletion before an inactive controller is reported; kube-controller-manager leaves a namespace alone for five
/// seconds.
pub const CONTROLLER_PATIENCE_MILLISECONDS: i64 = 10_000;

/// Identity of an object, as answers name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// `apiVersion`
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// `resource.group`, as command lines spell it.
    pub resource: String,
    /// Namespace; empty at cluster scope.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID; empty if unknown.
    pub uid: String,
}

impl Place {
    /// Formats as `Kind/name`.
    #[must_use]
    pub fn title(&self) -> String {
        format!("{}/{}", self.kind, self.name)
    }

    /// Formats as `resource.group/name`, as command lines spell it.
    #[must_use]
    pub fn reference(&self) -> String {
        format!("{}/{}", self.resource, self.name)
    }

    /// Converts to JSON.
    #[must_use]
    pub fn value(&self) -> Value {
        json!({
            "apiVersion": self.api_version, "kind": self.kind, "namespace": self.namespace, "name": self.name,
            "uid": self.uid,
        })
    }
}

/// A command that removes a cause by force, and what it leaves behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Force {
    /// The command.
    pub command: String,
    /// Description of what is left behind and never cleaned up.
    pub strands: String,
    /// The finalizer that it removes, if any.
    removal: Option<Removal>,
}

impl Force {
    /// Creates a command that removes no finalizer.
    #[must_use]
    pub const fn new(command: String, strands: String) -> Self {
        Self { command, strands, removal: None }
    }

    /// Creates a command that removes a finalizer.
    pub(crate) fn removing(removal: Removal, strands: String) -> Self {
        let remaining: Vec<&str> = removal.finalizers.iter().map(String::as_str).collect();
        Self { command: removal.command(&remaining), strands, removal: Some(removal) }
    }
}

/// The removal of one finalizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Removal {
    pub(crate) namespace: String,
    /// Object as command lines spell it. A namespace is spelled by its name only, because its finalizer is in the specification.
    pub(crate) object: String,
    pub(crate) is_in_specification: bool,
    pub(crate) uid: String,
    /// All finalizers that the object has.
    pub(crate) finalizers: Vec<String>,
    pub(crate) finalizer: String,
}

impl Removal {
    /// Returns the command for when these finalizers remain. It requires the same UID and finalizer, but not the same version,
    /// which a preceding command changes.
    fn command(&self, remaining: &[&str]) -> String {
        if self.is_in_specification {
            let rest: Vec<&str> = remaining.iter().copied().filter(|name| *name != self.finalizer).collect();
            return crate::commands::finalize_namespace(&self.object, &self.uid, &rest);
        }
        let place = remaining.iter().position(|name| *name == self.finalizer).unwrap_or_default();
        crate::commands::remove_finalizer(&self.namespace, &self.object, &self.uid, (place, &self.finalizer))
    }
}

/// Reason why something is stuck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Stable code.
    pub code: Code,
    /// Subject: causes with the same code and subject are one.
    pub subject: String,
    /// Human-readable message.
    pub message: String,
    /// Commands that help to diagnose or fix it, most useful first.
    pub help: Vec<String>,
    /// Command that removes it by force, if there is one.
    pub force: Option<Force>,
}

/// Evidence in a terminating object of the components that could release it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// Field managers that set them, sorted; the server sets some without one.
    pub managers: Vec<String>,
    /// Last writer of the object.
    pub touched: Option<Writer>,
}

/// One root cause with everything that it blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The cause.
    pub cause: Cause,
    /// Start of the time that the oldest object has been stuck; `None` if nothing was deleted.
    pub since: Option<Timestamp>,
    /// Objects that it blocks directly, oldest first.
    pub objects: Vec<(Place, Option<Timestamp>)>,
    /// Holders of these objects, in the same order.
    pub holders: Vec<Holders>,
    /// Objects that wait for these.
    pub waiting: Vec<Place>,
    /// Commands that free the objects after the first by force, as far as they are listed.
    pub other_forces: Vec<Force>,
    /// Number of further objects that would need such a command.
    pub unlisted_forces: usize,
}

impl Row {
    /// Returns lines with the commands that free its objects by force, and with what they leave behind.
    #[must_use]
    pub fn force_lines(&self) -> Vec<String> {
        let Some(force) = &self.cause.force else { return Vec::new() };
        let commands = std::iter::once(force).chain(&self.other_forces).map(|force| &force.command);
        let mut lines: Vec<String> = commands.map(|command| format!("by force:  {command}")).collect();
        if self.unlisted_forces > 0 {
            let more = crate::text::count(self.unlisted_forces, "more object");
            lines.push(format!("           and likewise for {more}"));
        }
        lines.push(format!("           leaves behind: {}", force.strands));
        lines
    }

    /// Returns how long it has been stuck, in milliseconds.
    #[must_use]
    pub fn age_milliseconds(&self, now: Timestamp) -> Option<i64> {
        self.since.map(|since| now.since(since).max(0))
    }

    /// Reports whether it blocks something in this namespace, or the namespace itself.
    #[must_use]
    pub fn concerns(&self, namespace: &str) -> bool {
        self.places().any(|place| {
            place.namespace == namespace || (place.kind == "Namespace" && place.name == namespace)
        })
    }

    /// Iterates over the objects that it blocks, directly or indirectly.
    pub fn places(&self) -> impl Iterator<Item = &Place> {
        self.objects.iter().map(|(place, _)| place).chain(&self.waiting)
    }

    /// Converts to JSON.
    #[must_use]
    pub fn value(&self, now: Timestamp) -> Value {
        let objects: Vec<Value> = self.objects.iter().zip(&self.holders).map(object_value).collect();
        let waiting: Vec<Value> = self.waiting.iter().map(Place::value).collect();
        json!({
            "code": self.cause.code.name(), "message": self.cause.message, "subject": self.cause.subject,
            "since": self.since.map(|since| since.to_string()),
            "ageSeconds": self.age_milliseconds(now).map(|age| age / 1000),
            "objects": objects, "waiting": waiting, "help": self.cause.help,
            "force": self.cause.force.as_ref().map(|force| json!({
                "command": force.command, "strands": force.strands, "unlisted": self.unlisted_forces,
                "others": self.other_forces.iter().map(|other| &other.command).collect::<Vec<_>>(),
            })),
        })
    }
}

fn object_value(((place, _), holders): (&(Place, Option<Timestamp>), &Holders)) -> Value {
    let mut value = place.value();
    value["finalizers"] = json!(holders.finalizers);
    value["managers"] = json!(holders.managers);
    value["lastTouched"] = holders.touched.as_ref().map_or(
        Value::Null,
        |writer| json!({"manager": writer.manager, "at": writer.at.map(|at| at.to_string())}),
    );
    value
}

/// Reason why one object remains.
pub(crate) enum Hold {
    /// Cause of its own.
    Cause(Box<Cause>),
    /// Another object that is being deleted.
    Object(ObjectKey),
}

impl Hold {
    pub(crate) fn cause(cause: Cause) -> Self {
        Self::Cause(Box::new(cause))
    }
}

pub(crate) struct Diagnosis<'a> {
    pub(crate) survey: &'a Survey,
    pub(crate) facts: &'a Facts,
    /// Controllers that seem responsible, by finalizer and field managers; found once for all objects with the same ones.
    responsible: RefCell<BTreeMap<(String, Vec<String>), Rc<Vec<Controller>>>>,
    /// Admission configuration, read once something waits for a request.
    admission: OnceCell<Admission<'a>>,
}

impl<'a> Diagnosis<'a> {
    pub(crate) fn new(survey: &'a Survey, facts: &'a Facts) -> Self {
        Self { survey, facts, responsible: RefCell::default(), admission: OnceCell::new() }
    }

    /// Returns the webhooks and policies that apply to requests of collectors.
    fn admission(&self) -> &Admission<'a> {
        self.admission.get_or_init(|| Admission::new(self.survey, self.facts))
    }

    /// Caches [`finalizers::responsible`].
    fn responsible(&self, finalizer: &str, managers: &[String]) -> Rc<Vec<Controller>> {
        let mut known = self.responsible.borrow_mut();
        let found = known.entry((finalizer.to_owned(), managers.to_vec()));
        Rc::clone(found.or_insert_with(|| Rc::new(finalizers::responsible(finalizer, managers, self.facts))))
    }
}

impl Diagnosis<'_> {
    /// Returns the place of an object.
    pub(crate) fn place(&self, key: &ObjectKey, uid: &str) -> Place {
        let (api_version, kind, resource) = match self.survey.resource(key) {
            Some(resource) => (resource.api_version(), resource.kind.to_string(), resource.name.to_string()),
            None => Default::default(),
        };
        let (namespace, name) = (key.namespace.to_string(), key.name.to_string());
        Place { api_version, kind, resource, namespace, name, uid: uid.to_owned() }
    }

    /// Returns since when an object is stuck, if it is: its deletion time is the end of its grace period.
    fn since(metadata: &Metadata) -> Option<Timestamp> {
        metadata.deleted
    }
}

/// Returns the stuck objects by cause, oldest first.
#[must_use]
pub fn diagnose(survey: &Survey, facts: &Facts) -> Vec<Row> {
    let diagnosis = Diagnosis::new(survey, facts);
    let mut found = Findings::default();
    for (key, metadata) in survey.terminating() {
        found.add(key, diagnosis.holds(key, metadata));
    }
    let mut rows = found.rows(&diagnosis);
    rows.extend(diagnosis.undecidable());
    rows.extend(diagnosis.unreclaimed());
    in_order(rows)
}

/// Returns the causes that block one object, or the objects it waits for, oldest first.
#[must_use]
pub fn diagnose_one(survey: &Survey, facts: &Facts, key: &ObjectKey) -> Vec<Row> {
    let diagnosis = Diagnosis::new(survey, facts);
    let mut found = Findings::default();
    let (mut seen, mut open) = (BTreeSet::new(), vec![key.clone()]);
    while let Some(key) = open.pop() {
        let Some(metadata) = survey.terminating().get(&key).filter(|_| seen.insert(key.clone())) else {
            continue;
        };
        let holds = diagnosis.holds(&key, metadata);
        open.extend(holds.iter().filter_map(|hold| match hold {
            Hold::Object(other) => Some(other.clone()),
            Hold::Cause(_) => None,
        }));
        found.add(&key, holds);
    }
    in_order(found.rows(&diagnosis))
}

fn in_order(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort_by(|left, right| {
        let order = |row: &Row| (row.since.is_none(), row.since, row.cause.code, row.cause.subject.clone());
        order(left).cmp(&order(right))
    });
    place_removals(&mut rows);
    rows
}

/// Makes commands that remove several finalizers of one object work in the order shown: each counts indexes in the list that the
/// commands before it leave.
fn place_removals(rows: &mut [Row]) {
    let mut removed: BTreeSet<(String, bool, String)> = BTreeSet::new();
    for row in rows {
        for force in row.cause.force.iter_mut().chain(&mut row.other_forces) {
            let Some(removal) = &force.removal else { continue };
            let place = |name: &str| (removal.uid.clone(), removal.is_in_specification, name.to_owned());
            let is_left = |name: &&str| *name == removal.finalizer || !removed.contains(&place(name));
            let remaining: Vec<&str> =
                removal.finalizers.iter().map(String::as_str).filter(is_left).collect();
            force.command = removal.command(&remaining);
            let own = place(&removal.finalizer);
            removed.insert(own);
        }
    }
}

/// Findings about terminating objects.
#[derive(Default)]
struct Findings {
    /// Causes by code and subject, as each object has them: commands and details are specific to the object.
    groups: BTreeMap<(Code, String), Vec<(ObjectKey, Cause)>>,
    /// Objects that wait for each terminating object.
    waiters: BTreeMap<ObjectKey, Vec<ObjectKey>>,
}

impl Findings {
    fn add(&mut self, key: &ObjectKey, holds: Vec<Hold>) {
        for hold in holds {
            match hold {
                Hold::Object(other) => self.waiters.entry(other).or_default().push(key.clone()),
                Hold::Cause(cause) => {
                    let group = (cause.code, cause.subject.clone());
                    self.groups.entry(group).or_default().push((key.clone(), *cause));
                }
            }
        }
    }

    fn rows(self, diagnosis: &Diagnosis) -> Vec<Row> {
        let now = diagnosis.facts.now();
        let rows = self.groups.into_values().filter_map(|held| diagnosis.row(held, &self.waiters));
        let is_early =
            |row: &Row| row.age_milliseconds(now).is_some_and(|age| age < CONTROLLER_PATIENCE_MILLISECONDS);
        rows.filter(|row| !row.cause.code.is_absence() || !is_early(row)).collect()
    }
}

impl Diagnosis<'_> {
    /// Creates the row of a root cause, with the commands for its oldest object.
    fn row(
        &self,
        mut held: Vec<(ObjectKey, Cause)>,
        waiters: &BTreeMap<ObjectKey, Vec<ObjectKey>>,
    ) -> Option<Row> {
        let terminating = self.survey.terminating();
        let place = |key: &ObjectKey| {
            let uid = terminating.get(key).map(|metadata| metadata.uid.to_string()).unwrap_or_default();
            self.place(key, &uid)
        };
        held.sort_by_cached_key(|(key, _)| (terminating.get(key).and_then(Self::since), place(key)));
        let objects: Vec<(Place, Option<Timestamp>)> =
            held.iter().map(|(key, _)| (place(key), terminating.get(key).and_then(Self::since))).collect();
        let holders = held.iter().map(|(key, _)| self.holders(key)).collect();
        let mut seen: BTreeSet<&ObjectKey> = held.iter().map(|(key, _)| key).collect();
        let mut open: Vec<&ObjectKey> = held.iter().map(|(key, _)| key).collect();
        let mut waiting = Vec::new();
        while let Some(key) = open.pop() {
            for waiter in waiters.get(key).into_iter().flatten() {
                if seen.insert(waiter) {
                    open.push(waiter);
                    waiting.push(place(waiter));
                }
            }
        }
        waiting.sort();
        let since = objects.first().and_then(|(_, since)| *since);
        let mut causes = held.into_iter().map(|(_, cause)| cause);
        let cause = causes.next()?;
        let own = cause.force.as_ref().map(|force| &force.command);
        let others: BTreeMap<String, Force> = causes
            .filter_map(|other| other.force)
            .map(|force| (force.command.clone(), force))
            .filter(|(command, _)| Some(command) != own)
            .collect();
        let mut other_forces: Vec<Force> = others.into_values().collect();
        let unlisted_forces = other_forces.len().saturating_sub(causes::COMMANDS);
        other_forces.truncate(causes::COMMANDS);
        Some(Row { cause, since, objects, holders, waiting, other_forces, unlisted_forces })
    }

    fn holders(&self, key: &ObjectKey) -> Holders {
        let Some(metadata) = self.survey.terminating().get(key) else { return Holders::default() };
        let object = self
            .survey
            .resource(key)
            .and_then(|resource| self.facts.present(&resource.name, &metadata.namespace, &metadata.name));
        let writers = object.into_iter().flat_map(|object| {
            metadata.finalizers.iter().flat_map(|finalizer| object.finalizer_writers(finalizer))
        });
        let managers: BTreeSet<String> = writers.map(|writer| writer.manager).collect();
        Holders {
            finalizers: metadata.finalizers.clone(),
            managers: managers.into_iter().collect(),
            touched: object.and_then(Object::last_writer),
        }
    }

    /// Returns the objects that can never be collected, because no owner lives and one cannot be resolved: one row per kind of
    /// owner.
    fn undecidable(&self) -> Vec<Row> {
        let engine = &self.survey.engine;
        let mut groups: BTreeMap<String, Vec<(Place, Option<Timestamp>)>> = BTreeMap::new();
        for view in engine.undecidable() {
            let Some(key) = &view.key else { continue };
            let Some(why) = engine.why(&view.uid) else { continue };
            let unreadable =
                why.references.iter().find(|(_, state)| *state == gc_ownership::ReferenceState::Undecidable);
            let Some((owner, _)) = unreadable else { continue };
            let owner = format!("{} {}", owner.coordinates.api_version, owner.coordinates.kind);
            groups.entry(owner).or_default().push((self.place(key, &view.uid.to_string()), None));
        }
        let row = |(owner, objects): (String, Vec<(Place, Option<Timestamp>)>)| Row {
            cause: Cause {
                code: Code::OwnerUnreadable,
                message: format!(
                    "owners of kind {owner} cannot be looked up, so that their dependents are never deleted"
                ),
                help: vec!["kubectl api-resources".into(), "kubectl get apiservices".into()],
                force: None,
                subject: owner,
            },
            since: None,
            holders: vec![Holders::default(); objects.len()],
            objects,
            waiting: Vec::new(),
            other_forces: Vec::new(),
            unlisted_forces: 0,
        };
        groups.into_iter().map(row).collect()
    }
}
