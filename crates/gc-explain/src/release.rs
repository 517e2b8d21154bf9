//! Removal of one finalizer by hand: the controller that should remove it and whether it is alive, the loss outside the cluster,
//! and the fate of dependents. All of it is evidence from gathered data; nothing is guessed from names that prove nothing.

mod losses;
mod remover;
#[cfg(test)]
mod tests;

use gc_ownership::ReferenceState;
use gc_types::{ObjectKey, Timestamp, Uid};
use serde_json::{Value, json};

use crate::catalog::GroupResource;
use crate::facts::Facts;
use crate::finalizers::{self, Controller, known};
use crate::object::Object;
use crate::stuck::{Diagnosis, Place};
use crate::survey::Survey;
use crate::text;

pub use remover::Liveness;

/// Maximum number of dependents that one line names.
const NAMED: usize = 5;

/// Question about one finalizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query<'a> {
    /// The object.
    pub key: &'a ObjectKey,
    /// The finalizer; required if the object has several.
    pub finalizer: Option<&'a str>,
    /// True if the server itself runs collectors.
    pub has_collectors: bool,
}

/// Reason why no finalizer can be chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoFinalizer {
    /// The object has no finalizers.
    #[error("{0} has no finalizer")]
    None(String),
    /// The object has several, and none was named.
    #[error("{object} has several finalizers: name one with --finalizer: {}", .finalizers.join(", "))]
    Several {
        /// The object.
        object: String,
        /// Finalizers of the object.
        finalizers: Vec<String>,
    },
    /// The object does not have the named finalizer, but others.
    #[error("{object} does not have the finalizer {finalizer}; it has {}", .finalizers.join(", "))]
    Other {
        /// The object.
        object: String,
        /// The named finalizer.
        finalizer: String,
        /// Finalizers of the object.
        finalizers: Vec<String>,
    },
}

/// Everything about the removal of one finalizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The object.
    pub place: Place,
    /// Version of the object that the answer is about.
    pub resource_version: String,
    /// The finalizer.
    pub finalizer: String,
    /// Index in its list, from 0.
    pub position: usize,
    /// True if it is in `spec.finalizers`, as those of namespaces are.
    pub is_in_specification: bool,
    /// The other finalizers, which keep the object.
    pub remaining: Vec<String>,
    /// Time of the deletion request; `None` if the object is not terminating.
    pub deleted: Option<Timestamp>,
    /// Software that removes it, if it is a known finalizer.
    pub known_remover: Option<&'static str>,
    /// Controllers that seem responsible, with the state of each.
    pub controllers: Vec<Controller>,
    /// Field managers that set the finalizer, with the time of their last write.
    pub set_by: Vec<String>,
    /// State of the controller, with the evidence.
    pub liveness: Liveness,
    /// Description of what is left behind.
    pub strands: String,
    /// True if that is outside the cluster; `None` for an unknown finalizer.
    pub is_outside: Option<bool>,
    /// Names in the object that refer to things outside the cluster, each with its field.
    pub outside: Vec<String>,
    /// Fate of the object and its dependents.
    pub consequences: Vec<String>,
}

impl Release {
    /// Explains why the removal requires `--force`, if it does.
    #[must_use]
    pub fn objection(&self) -> Option<String> {
        match &self.liveness {
            Liveness::Lives(evidence) => Some(format!(
                "the controller of {} lives ({evidence}): it removes the finalizer when it has cleaned up",
                self.finalizer
            )),
            Liveness::Unseen(why) => {
                Some(format!("it cannot be seen whether the controller of {} lives: {why}", self.finalizer))
            }
            Liveness::Idle(_) | Liveness::Unknown if self.deleted.is_none() => {
                let title = self.place.title();
                Some(format!("{title} is not being deleted, and needs {} until it is", self.finalizer))
            }
            Liveness::Idle(_) | Liveness::Unknown => None,
        }
    }

    /// Returns the JSON Patch that removes the finalizer, valid only for this version of this object.
    #[must_use]
    pub fn patch(&self) -> Value {
        let path = format!("/metadata/finalizers/{}", self.position);
        json!([
            {"op": "test", "path": "/metadata/uid", "value": self.place.uid},
            {"op": "test", "path": "/metadata/resourceVersion", "value": self.resource_version},
            {"op": "test", "path": path, "value": self.finalizer},
            {"op": "remove", "path": path},
        ])
    }

    /// Returns the lines of the answer, each with its heading.
    #[must_use]
    pub fn lines(&self, now: Timestamp) -> Vec<(&'static str, String)> {
        let mut lines = vec![("Finalizer", self.finalizer.clone())];
        lines.push((
            "Deletion",
            self.deleted.map_or_else(
                || "the object is not being deleted".to_owned(),
                |at| format!("asked for {}", text::ago(at, now)),
            ),
        ));
        lines.extend(self.known_remover.map(|by| ("Removed by", by.to_owned())));
        lines.extend(self.set_by.iter().map(|line| ("Set by", line.clone())));
        lines.extend(self.controllers.iter().map(|controller| ("Controller", controller.message())));
        lines.push(("Lives", self.liveness.message()));
        let place = match self.is_outside {
            Some(true) => "Leaks outside",
            Some(false) | None => "Leaves behind",
        };
        lines.push((place, self.strands.clone()));
        lines.extend(self.outside.iter().map(|line| ("Named there", line.clone())));
        lines.extend(self.consequences.iter().map(|line| ("Then", line.clone())));
        lines
    }

    /// Converts the answer to JSON.
    #[must_use]
    pub fn value(&self) -> Value {
        json!({
            "object": self.place.value(),
            "resourceVersion": self.resource_version,
            "finalizer": self.finalizer,
            "remaining": self.remaining,
            "deletionTime": self.deleted.map(|at| at.to_string()),
            "removedBy": self.known_remover,
            "controllers": self.controllers.iter().map(Controller::message).collect::<Vec<_>>(),
            "setBy": self.set_by,
            "liveness": self.liveness.code(),
            "evidence": self.liveness.message(),
            "leavesBehind": self.strands,
            "outside": self.is_outside,
            "outsideNames": self.outside,
            "consequences": self.consequences,
            "objection": self.objection(),
        })
    }
}

/// Assesses the removal of a finalizer from an object. `None` if the facts do not contain the whole object.
pub fn release(survey: &Survey, facts: &Facts, query: &Query<'_>) -> Option<Result<Release, NoFinalizer>> {
    let resource = survey.resource(query.key)?;
    let object = facts.present(&resource.name, &query.key.namespace, &query.key.name)?;
    let diagnosis = Diagnosis::new(survey, facts);
    let place = diagnosis.place(query.key, object.uid());
    let (finalizer, position, is_in_specification) = match chosen(object, &place, query.finalizer) {
        Ok(chosen) => chosen,
        Err(none) => return Some(Err(none)),
    };
    let others = finalizers_of(object).filter(|(other, ..)| *other != finalizer);
    let remaining: Vec<String> = others.map(|(other, ..)| other.to_owned()).collect();
    let known = known::find(finalizer);
    let uid = Uid::new(object.uid());
    let controllers = diagnosis.controllers(query.key, &uid, object, finalizer);
    let liveness = remover::liveness(&diagnosis, object, finalizer, &controllers, query.has_collectors);
    let now = facts.now();
    let set_by = object.finalizer_writers(finalizer).map(|writer| {
        let at =
            writer.at.map_or_else(String::new, |at| format!(", which wrote last {}", text::ago(at, now)));
        format!("field manager {}{at}", writer.manager)
    });
    Some(Ok(Release {
        resource_version: object.text("/metadata/resourceVersion").to_owned(),
        finalizer: finalizer.to_owned(),
        position,
        is_in_specification,
        deleted: object.time("/metadata/deletionTimestamp"),
        known_remover: known.map(|known| known.by),
        set_by: set_by.collect(),
        controllers,
        liveness,
        strands: finalizers::strands(finalizer),
        is_outside: known.map(|known| known.is_outside),
        outside: losses::named(object),
        consequences: consequences(survey, object, &place, (finalizer, &remaining)),
        remaining,
        place,
    }))
}

/// Returns the finalizers of an object, with those in the specification of a namespace.
#[must_use]
pub fn finalizer_names(object: &Object) -> Vec<String> {
    finalizers_of(object).map(|(name, ..)| name.to_owned()).collect()
}

/// Returns the finalizers of an object, each with its index in its list and whether that list is in the specification.
fn finalizers_of(object: &Object) -> impl Iterator<Item = (&str, usize, bool)> {
    let is_namespace = object.text("/kind") == "Namespace";
    let specified = object.texts("/spec/finalizers").enumerate().filter(move |_| is_namespace);
    let own = object.texts("/metadata/finalizers").enumerate();
    own.map(|(number, name)| (name, number, false))
        .chain(specified.map(|(number, name)| (name, number, true)))
}

fn chosen<'o>(
    object: &'o Object,
    place: &Place,
    wanted: Option<&str>,
) -> Result<(&'o str, usize, bool), NoFinalizer> {
    let all: Vec<_> = finalizers_of(object).collect();
    let names = || all.iter().map(|(name, ..)| (*name).to_owned()).collect();
    let found = match wanted {
        Some(wanted) => all.iter().find(|(name, ..)| *name == wanted),
        None if all.len() > 1 => {
            return Err(NoFinalizer::Several { object: place.title(), finalizers: names() });
        }
        None => all.first(),
    };
    match (found, wanted) {
        (Some(found), _) => Ok(*found),
        (None, Some(wanted)) if !all.is_empty() => {
            let finalizer = wanted.to_owned();
            Err(NoFinalizer::Other { object: place.title(), finalizer, finalizers: names() })
        }
        (None, _) => Err(NoFinalizer::None(place.title())),
    }
}

/// Describes what happens to the object and its dependents once the finalizer is removed.
fn consequences(
    survey: &Survey,
    object: &Object,
    place: &Place,
    (finalizer, remaining): (&str, &[String]),
) -> Vec<String> {
    if !object.is_terminating() {
        return vec![format!("{} stays; a deletion no longer waits for {finalizer}", place.title())];
    }
    if !remaining.is_empty() {
        return vec![format!("{} still waits for {}", place.title(), remaining.join(", "))];
    }
    let mut lines = vec![format!("{} is gone at once", place.title())];
    lines.extend(invisible(survey, object));
    let (mut lost, mut kept, mut unclear) = (Vec::new(), Vec::new(), Vec::new());
    for dependent in survey.engine.dependents(&Uid::new(object.uid())) {
        let title = format!("{}/{}", dependent.kind, dependent.name);
        let references = survey.engine.why(&dependent.uid).map(|why| why.references).unwrap_or_default();
        let others = || {
            let others =
                references.iter().filter(|(owner, _)| owner.coordinates.uid.to_string() != object.uid());
            others.map(|(_, state)| state)
        };
        let is_unclear = |state: &ReferenceState| {
            matches!(state, ReferenceState::Undecidable | ReferenceState::Unverified)
        };
        if others().any(|state| *state == ReferenceState::Lives) {
            kept.push(title);
        } else if others().any(is_unclear) {
            unclear.push(title);
        } else {
            lost.push(title);
        }
    }
    let line = |titles: Vec<String>, fate: &str| {
        let number = text::count(titles.len(), "dependent");
        (!titles.is_empty()).then(|| format!("{number} {fate}: {}", text::some_of(&titles, NAMED)))
    };
    lines.extend(line(lost, "deleted by the garbage collector, no other owner lives"));
    lines.extend(line(kept, "kept, another owner lives"));
    lines.extend(line(unclear, "kept while another owner cannot be looked up"));
    lines
}

/// Describes objects that can no longer be seen once their namespace or definition is gone.
fn invisible(survey: &Survey, object: &Object) -> Option<String> {
    let number = match object.text("/kind") {
        "Namespace" => survey.engine.select(|key| *key.namespace == *object.name()).len(),
        "CustomResourceDefinition" => {
            let name = GroupResource::new(object.text("/spec/group"), object.text("/spec/names/plural"));
            let id = survey.catalog.named(&name)?.id;
            survey.engine.select(|key| key.resource == id).len()
        }
        _ => return None,
    };
    let objects = text::count(number, "object");
    (number > 0).then(|| format!("{objects} of it left in the store, where nothing shows or deletes them"))
}
