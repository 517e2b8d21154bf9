//! Explanations why an object is, or is not, deleted.

use gc_ownership::{Conclusion, ReferenceState};
use gc_types::{Evidence, ObjectKey, OwnerReference};
use serde_json::{Value, json};

use crate::catalog::{GroupResource, Resource};
use crate::facts::{Facts, Knowledge};
use crate::forecast::{self, Forecast};
use crate::object::Object;
use crate::protect;
use crate::storage::{self, Deleter};
use crate::stuck::{self, Place, Row};
use crate::survey::Survey;
use crate::text;
use crate::unread::UnreadPlace;

/// Code of the conclusion about an object that a collector is about to delete.
pub const TO_BE_DELETED: &str = "ToBeDeleted";

/// Message if nothing shows who requested a deletion.
pub const NOTHING_SAYS: &str = "nothing in the cluster says; the audit log of the API server names the user";

/// The answer to `why`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// The object.
    pub place: Place,
    /// Stable code of the conclusion.
    pub code: &'static str,
    /// Human-readable conclusion.
    pub message: String,
    /// The expected deletion, if the object is not terminating.
    pub forecast: Option<Forecast>,
    /// Protections that keep it, or would delay its deletion.
    pub protections: Vec<String>,
    /// Causes that block its deletion.
    pub holds: Vec<Row>,
    /// Owners of the object, with the state of each reference.
    pub owners: Vec<(OwnerReference, ReferenceState)>,
    /// Owners of the object's owners up to the roots, each indented by its depth.
    pub ancestry: Vec<(usize, String)>,
    /// Requesters of the deletion, if anything shows them.
    pub requested_by: Vec<String>,
    /// Entries about it in the collectors' journal, if that was read.
    pub journal: Vec<String>,
    /// Resources that could not be read.
    pub unseen: Vec<String>,
    /// The objects and lists among them.
    pub unread: Vec<UnreadPlace>,
}

/// Answers for one object. The survey must contain it, and the facts the whole of it.
#[must_use]
pub fn why(survey: &Survey, facts: &Facts, key: &ObjectKey) -> Option<Why> {
    let resource = survey.resource(key)?;
    let object = facts.present(&resource.name, &key.namespace, &key.name)?;
    let uid = gc_types::Uid::new(object.uid());
    let known = survey.engine.why(&uid)?;
    let place = Place {
        api_version: resource.api_version(),
        kind: resource.kind.to_string(),
        resource: resource.name.to_string(),
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        uid: uid.to_string(),
    };
    let references = if object.is_terminating() {
        looked_up(known.references, object, survey, facts)
    } else {
        known.references
    };
    let mut answer = Why {
        place,
        code: "",
        message: String::new(),
        forecast: None,
        protections: Vec::new(),
        holds: Vec::new(),
        ancestry: ancestry(survey, &references, 0, &mut Vec::new()),
        owners: references,
        requested_by: requested_by(object, survey, facts),
        journal: Vec::new(),
        unseen: Vec::new(),
        unread: facts.unread(),
    };
    if object.is_terminating() {
        terminating(&mut answer, survey, facts, key, object, &known.conclusion);
    } else {
        living(&mut answer, facts, object, resource, &known.conclusion);
    }
    answer.unseen.extend(answer.unread.iter().map(ToString::to_string));
    Some(answer)
}

fn living(answer: &mut Why, facts: &Facts, object: &Object, resource: &Resource, conclusion: &Conclusion) {
    let now = facts.now();
    let outlook = forecast::outlook(object, resource, facts);
    answer.unseen = outlook.unknown.into_iter().map(|what| format!("not known: {what}")).collect();
    answer.forecast = outlook.forecast;
    answer.protections = protections(object, resource, facts);
    let kept = outlook.kept.first().map(|kept| format!("Nothing deletes it for now: {kept}."));
    if answer.forecast.is_none() {
        answer.protections.extend(outlook.kept);
    }
    let (code, message) = by_owners(conclusion);
    let by_owners_now = matches!(conclusion, Conclusion::ToBeDeleted(_));
    (answer.code, answer.message) = match &answer.forecast {
        Some(forecast) if !by_owners_now => ("WillBeDeleted", format!("It {}.", forecast.message(now))),
        None if matches!(conclusion, Conclusion::NoOwners) && time_to_live(object, resource).is_some() => {
            let seconds = time_to_live(object, resource).unwrap_or_default();
            let after = text::ahead(seconds.saturating_mul(1_000));
            let message = format!(
                "Nothing deletes it before it has finished; {after} after that it is deleted: TTLExpired, Job \
                 ttlSecondsAfterFinished {seconds}."
            );
            (code, message)
        }
        None if matches!(conclusion, Conclusion::NoOwners) && kept.is_some() => {
            (code, kept.unwrap_or_default())
        }
        None if matches!(conclusion, Conclusion::NoOwners) => (
            code,
            "It will not be collected: no owners, and no collector or policy that you can see applies."
                .into(),
        ),
        _ => (code, message),
    };
    if resource.name == GroupResource::new("", "persistentvolumes")
        && let Some((code, message)) = by_reclaim(object, facts)
    {
        (answer.code, answer.message) = (code, message);
    }
    let namespace = GroupResource::new("", "namespaces");
    if !object.namespace().is_empty()
        && facts.present(&namespace, "", object.namespace()).is_some_and(Object::is_terminating)
    {
        answer.code = "NamespaceTerminating";
        answer.message =
            "It is about to be deleted: NamespaceTerminating, its namespace is being deleted.".into();
    }
}

/// Returns the fate of a volume without claim and with reclaim policy Delete.
fn by_reclaim(volume: &Object, facts: &Facts) -> Option<(&'static str, String)> {
    if !storage::awaits_deletion(volume) {
        return None;
    }
    let begins = "It is deleted as soon as its storage is, by reclaim policy Delete:";
    Some(match storage::deleter(volume, facts) {
        Deleter::Seen(who) => ("WillBeDeleted", format!("{begins} {who} deletes it.")),
        Deleter::Unseen(who) => {
            ("WillBeDeleted", format!("{begins} {who} deletes it, if it is at work, which cannot be seen."))
        }
        Deleter::Missing(why) => (
            stuck::Code::StorageNotDeleted.name(),
            format!(
                "It stays, although its claim is gone and its reclaim policy is Delete: StorageNotDeleted, {why}."
            ),
        ),
    })
}

/// Returns how long a Job exists after it has finished, in seconds.
fn time_to_live(object: &Object, resource: &Resource) -> Option<i64> {
    let is_job = (&*resource.name.group, &*resource.name.resource) == ("batch", "jobs");
    object.number("/spec/ttlSecondsAfterFinished").filter(|_| is_job)
}

/// Returns the conclusion of the ownership engine as code and message.
fn by_owners(conclusion: &Conclusion) -> (&'static str, String) {
    match conclusion {
        Conclusion::NoOwners => ("NoOwners", "It has no owners.".into()),
        Conclusion::OwnerLives => ("OwnerLives", "Nothing deletes it: an owner lives.".into()),
        Conclusion::Undecidable => (
            "Undecidable",
            "Nothing deletes it: no owner is known to live, and one cannot be looked up.".into(),
        ),
        Conclusion::Unverified => {
            ("Unverified", "Nothing deletes it for now: an owner could not be looked up yet.".into())
        }
        Conclusion::ToBeDeleted(verdict) => {
            (TO_BE_DELETED, format!("It is about to be deleted: {}, {verdict}.", verdict.code()))
        }
        Conclusion::ToLoseReferences(verdict) => {
            let why = format!("{}, {verdict}", verdict.code());
            ("ToLoseReferences", format!("It stays, and the garbage collector removes references from it: {why}."))
        }
        Conclusion::BeingDeleted => ("BeingDeleted", "It is being deleted.".into()),
        Conclusion::WaitsForDependents(0) => (
            "WaitsForDependents",
            "It is being deleted, and nothing blocks it any more: the garbage collector removes its finalizer."
                .into(),
        ),
        Conclusion::WaitsForDependents(number) => {
            let waits = text::count(*number, "blocking dependent");
            ("WaitsForDependents", format!("It is being deleted and waits for {waits}."))
        }
        Conclusion::Orphans => {
            ("Orphans", "It is being deleted and waits until its dependents are released.".into())
        }
        Conclusion::Gone => ("Gone", "It is gone.".into()),
        Conclusion::Unseen => ("Unseen", "It was never seen; others refer to it.".into()),
    }
}

fn terminating(
    answer: &mut Why,
    survey: &Survey,
    facts: &Facts,
    key: &ObjectKey,
    object: &Object,
    conclusion: &Conclusion,
) {
    let now = facts.now();
    answer.holds = stuck::diagnose_one(survey, facts, key);
    let (code, message) = by_owners(conclusion);
    let is_pod = answer.place.resource == "pods";
    let ends = survey.terminating().get(key).and_then(|metadata| metadata.deleted);
    (answer.code, answer.message) = match (ends, answer.holds.first()) {
        (Some(ends), _) if is_pod && ends > now => {
            let grace = object.number("/metadata/deletionGracePeriodSeconds").unwrap_or(0);
            let left = text::ahead(ends.since(now));
            ("InGracePeriod", format!("It is being deleted; its grace period of {grace} s ends in {left}."))
        }
        (_, Some(first)) => {
            let more = answer.holds.len() - 1;
            let others =
                if more > 0 { format!(" (and {})", text::count(more, "other cause")) } else { String::new() };
            let cause = &first.cause;
            let held = first.objects.iter().any(|(place, _)| place.uid == answer.place.uid);
            let by = match first.objects.first() {
                Some((place, _)) if !held => format!("waits for {}: ", place.title()),
                _ => String::new(),
            };
            let code = if matches!(conclusion, Conclusion::WaitsForDependents(_) | Conclusion::Orphans) {
                code
            } else {
                "BeingDeleted"
            };
            (code, format!("Its deletion is blocked: {by}{}, {}{others}.", cause.code.name(), cause.message))
        }
        (_, None) if matches!(conclusion, Conclusion::WaitsForDependents(_) | Conclusion::Orphans) => {
            (code, message)
        }
        (Some(since), None) if now.since(since) < stuck::CONTROLLER_PATIENCE_MILLISECONDS => {
            let ago = text::ago(since, now);
            (
                "BeingDeleted",
                format!("Its deletion began {ago}: its controllers are still within their time."),
            )
        }
        _ => ("BeingDeleted", "It is being deleted, and nothing visible blocks it.".into()),
    };
}

/// Returns the protections that keep a living object or would delay its deletion.
fn protections(object: &Object, resource: &Resource, facts: &Facts) -> Vec<String> {
    let mut protections = Vec::new();
    let keep = object.annotation("kubegc.io/keep");
    if !keep.is_empty() && keep != "false" {
        protections.push(
            "annotation kubegc.io/keep: no collector of kubegc deletes it by age, number or state".into(),
        );
    }
    let mark = protect::mark(object.value());
    if !mark.is_empty() {
        protections.push(format!(
            "{}: {mark}; the API server refuses its deletion where the rule {} is in place (kubegc protect shows it)",
            protect::MARK,
            protect::PREFIX
        ));
    }
    for finalizer in object.texts("/metadata/finalizers") {
        protections.push(format!("finalizer {finalizer} would hold up its deletion"));
    }
    if (&*resource.name.group, &*resource.name.resource) == ("", "persistentvolumeclaims") {
        let users: Vec<String> =
            stuck::users(object, facts).iter().map(|pod| pod.name().to_owned()).collect();
        if !users.is_empty() {
            protections.push(format!(
                "in use by {} {}",
                text::plural(users.len(), "Pod"),
                text::some_of(&users, 3)
            ));
        }
    }
    if &*resource.name.resource == "persistentvolumes" {
        let policy = object.text("/spec/persistentVolumeReclaimPolicy");
        let claim =
            format!("{}/{}", object.text("/spec/claimRef/namespace"), object.text("/spec/claimRef/name"));
        match object.text("/status/phase") {
            "Bound" => protections.push(format!(
                "bound to claim {claim}; when the claim is deleted, the reclaim policy {policy} applies"
            )),
            "Released" if policy == "Retain" => {
                protections.push("released, and its reclaim policy Retain keeps it".into());
            }
            _ => {}
        }
    }
    protections
}

/// Returns evidence of who requested the deletion, in the object and its surroundings.
fn requested_by(object: &Object, survey: &Survey, facts: &Facts) -> Vec<String> {
    let mut found = Vec::new();
    if !object.is_terminating() {
        return found;
    }
    if let Some(condition) = object.condition("DisruptionTarget") {
        let text = |field: &str| condition[field].as_str().unwrap_or_default();
        found.push(format!("condition DisruptionTarget: {}, {}", text("reason"), text("message")));
    }
    let namespaces = GroupResource::new("", "namespaces");
    if !object.namespace().is_empty()
        && let Some(namespace) = facts.present(&namespaces, "", object.namespace())
        && namespace.is_terminating()
    {
        found.push("its namespace is being deleted".into());
    }
    for (place, key) in owners_of(object, survey) {
        if survey.terminating().contains_key(&key) {
            found.push(format!("its owner {place} is being deleted"));
        }
    }
    if !object.namespace().is_empty() {
        let events = GroupResource::new("", "events");
        let about = facts.all(&events, object.namespace()).iter().filter(|event| {
            let is_deletion = ["Killing", "Evicted", "Preempted", "TaintManagerEviction", "DeletingNode"]
                .contains(&event.text("/reason"));
            is_deletion && event.text("/involvedObject/uid") == object.uid()
        });
        found.extend(about.map(|event| {
            let source = event.text("/source/component");
            let by = if source.is_empty() { event.text("/reportingComponent") } else { source };
            format!("Event {} by {by}: {}", event.text("/reason"), event.text("/message"))
        }));
    }
    if found.is_empty() {
        found.push(NOTHING_SAYS.to_owned());
    }
    found
}

/// Resolves the owners of a terminating object. The engine does not, because they no longer decide anything, but users want to know
/// them.
fn looked_up(
    references: Vec<(OwnerReference, ReferenceState)>,
    object: &Object,
    survey: &Survey,
    facts: &Facts,
) -> Vec<(OwnerReference, ReferenceState)> {
    let look = |(owner, state): (OwnerReference, ReferenceState)| {
        let coordinates = &owner.coordinates;
        let resource = survey.catalog.of_kind(&coordinates.api_version, &coordinates.kind);
        let (ReferenceState::Unverified, Some(resource)) = (&state, resource) else { return (owner, state) };
        let namespace = if resource.is_namespaced() { object.namespace() } else { "" };
        let state = match facts.object(&resource.name, namespace, &coordinates.name) {
            Some(Knowledge::Present(found)) if found.uid() == coordinates.uid.to_string() => {
                ReferenceState::Lives
            }
            Some(Knowledge::Present(_) | Knowledge::Absent) => ReferenceState::Absent(Evidence::ReadAbsent {
                owner: coordinates.uid.clone(),
                at: facts.now(),
            }),
            Some(Knowledge::Unreadable(_)) | None => state,
        };
        (owner, state)
    };
    references.into_iter().map(look).collect()
}

fn owners_of(object: &Object, survey: &Survey) -> Vec<(String, ObjectKey)> {
    let owners = object.items("/metadata/ownerReferences");
    let key = |owner: &Value| {
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        let resource = survey.catalog.of_kind(text("apiVersion"), text("kind"))?;
        let namespace = if resource.is_namespaced() { object.namespace() } else { "" };
        let key = ObjectKey { resource: resource.id, namespace: namespace.into(), name: text("name").into() };
        Some((format!("{}/{}", text("kind"), text("name")), key))
    };
    owners.filter_map(key).collect()
}

/// Returns the keys of an object's owners, for gathering them.
#[must_use]
pub fn owners(object: &Object, survey: &Survey) -> Vec<ObjectKey> {
    owners_of(object, survey).into_iter().map(|(_, key)| key).collect()
}

/// Returns owners up to the roots, depth first, each once.
fn ancestry(
    survey: &Survey,
    references: &[(OwnerReference, ReferenceState)],
    depth: usize,
    seen: &mut Vec<gc_types::Uid>,
) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    for (owner, state) in references {
        let coordinates = &owner.coordinates;
        let (word, _) = reference(state);
        let is_again = seen.contains(&coordinates.uid);
        let again = if is_again { ", see above" } else { "" };
        lines.push((depth, format!("{}/{} ({word}{again})", coordinates.kind, coordinates.name)));
        if is_again || depth >= gc_ownership::DEPTH_SHOWN {
            continue;
        }
        seen.push(coordinates.uid.clone());
        if let Some(above) = survey.engine.why(&coordinates.uid) {
            lines.extend(ancestry(survey, &above.references, depth + 1, seen));
        }
    }
    lines
}

/// Describes the state of a reference, with the evidence.
#[must_use]
pub fn reference(state: &ReferenceState) -> (&'static str, Option<&Evidence>) {
    match state {
        ReferenceState::Lives => ("lives", None),
        ReferenceState::Waiting(evidence) => ("in foreground deletion", Some(evidence)),
        ReferenceState::Absent(evidence) => ("absent", Some(evidence)),
        ReferenceState::Orphaning(evidence) => ("orphans its dependents", Some(evidence)),
        ReferenceState::Undecidable => ("cannot be looked up, counts as living", None),
        ReferenceState::Unverified => ("not looked up yet", None),
    }
}

impl Why {
    /// Converts to JSON.
    #[must_use]
    pub fn value(&self, now: gc_types::Timestamp) -> Value {
        let owner = |(owner, state): &(OwnerReference, ReferenceState)| {
            let (word, evidence) = reference(state);
            let mut value = owner.to_json();
            value["state"] = word.into();
            value["evidence"] = evidence.map(ToString::to_string).into();
            value
        };
        json!({
            "object": self.place.value(), "conclusion": self.code, "message": self.message,
            "forecast": self.forecast.as_ref().map(|forecast| forecast.value(now)),
            "protections": self.protections,
            "holds": self.holds.iter().map(|row| row.value(now)).collect::<Vec<_>>(),
            "owners": self.owners.iter().map(owner).collect::<Vec<_>>(),
            "requestedBy": self.requested_by, "journal": self.journal, "unseen": self.unseen,
            "unread": self.unread,
        })
    }
}

/// Reports whether the dependents or contents of the object matter, so that they have to be listed. Also records what `why` needs
/// beyond the object itself; the gatherer calls it once before the survey is complete.
#[must_use]
pub fn needs_lists(object: &Object, resource: &Resource) -> bool {
    let waits = |finalizer: &str| {
        matches!(finalizer, "foregroundDeletion" | "orphan" | "customresourcecleanup.apiextensions.k8s.io")
    };
    let is_namespace = (&*resource.name.group, &*resource.name.resource) == ("", "namespaces");
    object.is_terminating() && (is_namespace || object.texts("/metadata/finalizers").any(waits))
}

/// Returns the whole object from the facts.
pub fn object<'a>(
    facts: &'a Facts,
    resource: &Resource,
    namespace: &str,
    name: &str,
) -> Option<&'a Knowledge<Object>> {
    facts.object(&resource.name, namespace, name)
}
