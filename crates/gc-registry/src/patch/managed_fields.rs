//! Server-side apply and the ownership of fields (`metadata.managedFields`).
//!
//! Every write records who owns which fields: an update takes over the fields that it changes; an apply owns the fields that it
//! names, and conflicts with other owners of those that it changes.

mod compare;
mod entries;
mod last_applied;
mod merge;
mod position;
pub(crate) mod scale;
mod set;

pub use entries::MAX_UPDATE_MANAGERS;
pub use set::{FieldSet, InvalidFields, PathElement, display_path};

use serde_json::{Map, Value};

use self::compare::Comparison;
use self::entries::{Entry, Operation};
use self::position::Position;
use super::check_depth;
use crate::error::{ApiError, Cause, CauseReason, Details};
use crate::schema::Schema;

/// Manager of the fields that an object had before its first apply, if no manager was tracked until then.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Top-level and metadata fields without an owner, because the server sets them or they name the object.
const UNOWNED: [&[&str]; 12] = [
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "creationTimestamp"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
    &["metadata", "clusterName"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "resourceVersion"],
];

/// Paths that an endpoint resets, so its writers own nothing at or below them.
pub type ResetFields = &'static [&'static [&'static str]];

/// Manager and context of a write.
#[derive(Clone, Copy, Debug)]
pub struct ManagerRequest<'a> {
    /// Field manager; `unknown` if empty.
    pub manager: &'a str,
    /// `group/version` of the request.
    pub api_version: &'a str,
    /// Kind of the request.
    pub kind: &'a str,
    /// Subresource; empty for none.
    pub subresource: &'a str,
    /// Time of the request.
    pub now: jiff::Timestamp,
    /// Schema; `None` for custom resources without one.
    pub schema: Option<&'a Schema>,
    /// Fields that the endpoint resets.
    pub reset: ResetFields,
}

impl<'a> ManagerRequest<'a> {
    fn position(&self) -> Position<'a> {
        self.schema.map_or(Position::Deduced, Position::Known)
    }

    fn entry(&self, operation: Operation, fields: FieldSet) -> Entry {
        Entry {
            manager: if self.manager.is_empty() { "unknown" } else { self.manager }.to_owned(),
            operation,
            api_version: self.api_version.to_owned(),
            subresource: self.subresource.to_owned(),
            time: None,
            fields,
        }
    }

    fn time(&self) -> String {
        self.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    fn filter(&self, fields: &mut FieldSet) {
        for path in self.reset {
            fields.remove_tree(path);
        }
    }
}

/// Sets `metadata.managedFields` of an object that is about to be created (`live` is `None`) or updated.
///
/// Uses the client's own list if it is valid (not through a subresource), otherwise the live one; `[{}]` forgets all managers. An
/// object whose managers are not tracked stays that way.
pub fn update(live: Option<&Value>, new: &mut Value, request: &ManagerRequest<'_>) {
    let sent = take_managed_fields(new);
    let kept = live.and_then(|live| live.pointer("/metadata/managedFields"));
    let mut from_live = false;
    let known = if !request.subresource.is_empty() || sent.is_null() {
        from_live = true;
        None
    } else if entries::is_reset(&sent) {
        Some(Vec::new())
    } else if Some(&sent) == kept {
        from_live = true;
        None
    } else {
        let decoded = entries::decode(&sent).filter(|entries| !entries.is_empty());
        from_live = decoded.is_none();
        decoded
    };
    // In the common case of a write without changes, this costs one comparison.
    if from_live && live.is_some_and(|live| equal_but_managers(live, new)) {
        if let Some(kept) = kept {
            put_managed_fields(new, Some(kept.clone()));
        }
        return;
    }
    let mut entries = known.unwrap_or_else(|| kept.and_then(entries::decode).unwrap_or_default());
    if entries.is_empty() && live.is_some() {
        return;
    }
    update_entries(live, new, &mut entries, request);
    put_managed_fields(new, entries::encode(entries));
}

/// Returns the problem of `metadata.managedFields`, if any.
pub(crate) fn problem(managed_fields: &Value) -> Option<String> {
    let entries = managed_fields.as_array().map(Vec::as_slice).unwrap_or_default();
    entries.iter().enumerate().find_map(|(index, entry)| entries::problem(index, entry))
}

/// Assigns everything that changed from `live` to `new` to the manager of the request.
fn update_entries(live: Option<&Value>, new: &Value, entries: &mut Vec<Entry>, request: &ManagerRequest<'_>) {
    // A new object adds everything that differs from the zero value of its type.
    let mut nothing = Value::Object(Map::new());
    if let (None, Some(schema)) = (live, request.schema) {
        crate::schema::normalize(schema, &mut nothing, crate::schema::Empties::Null);
    }
    // Objects have already been checked against their schema; items that still cannot be distinguished have no owner.
    let Ok(mut comparison) = compare::compare(request.position(), live.unwrap_or(&nothing), new) else {
        return;
    };
    filter(&mut comparison, request);
    let Comparison { added, modified, removed } = comparison;
    let changed = modified.union(&added);
    for entry in entries.iter_mut() {
        entry.fields.subtract(&changed);
        entry.fields.subtract(&removed);
    }
    let taken = without_unowned(changed);
    if !taken.is_empty() {
        let mut own = request.entry(Operation::Update, taken);
        own.time = Some(request.time());
        match entries.iter_mut().find(|entry| entry.same_manager(&own)) {
            Some(entry) => {
                entry.fields.extend(&own.fields);
                entry.time = own.time;
            }
            None => entries.push(own),
        }
    }
    entries.retain(|entry| !entry.fields.is_empty());
    entries::cap_update_managers(entries);
}

/// Merges a configuration into an object like an apply, for an object whose owners do not matter.
pub(crate) fn merge(schema: &Schema, live: &Value, applied: &Value) -> Result<Value, ApiError> {
    check_depth(applied)?;
    merge::merge(Position::Known(schema), live, applied)
        .map_err(|_| ApiError::bad_request("the configuration has items that lack their keys"))
}

/// Applies a configuration: merges it into the live object (`None` creates one), removes fields that this manager applied before
/// and no longer does unless somebody else owns them, and records the ownership in `metadata.managedFields`. The result equals the
/// live object if nothing changed.
///
/// Fails with 400 for a configuration with another kind or version or with managed fields, with 409 for conflicts with other
/// managers without `force`, and with 500 for one that does not match the schema (upstream's choice).
pub fn apply(
    live: Option<&Value>,
    applied: &Value,
    request: &ManagerRequest<'_>,
    force: bool,
) -> Result<Value, ApiError> {
    check_depth(applied)?;
    check_type(applied, request)?;
    let mut base = live.cloned().unwrap_or_else(|| empty_object(request));
    let mut entries = base
        .pointer("/metadata/managedFields")
        .map_or(Some(Vec::new()), entries::decode)
        .ok_or_else(|| ApiError::new(500, "", "failed to decode managed fields"))?;
    take_managed_fields(&mut base);
    if entries.is_empty() && live.is_some() {
        // Fields from before the first apply get a separate manager, if list items can be distinguished. Items that share a key are
        // stored like any others.
        let mut errors = compare::validate(request.position(), &base);
        errors.retain(|error| !error.contains("duplicate entries for key"));
        if let Some(why) = listed(&errors) {
            let why = format!("failed to convert new object ({}) to smd typed: {why}", named(&base, request));
            return Err(ApiError::new(
                500,
                "",
                format!("failed to create manager for existing fields: {why}"),
            ));
        }
        let before = ManagerRequest { manager: BEFORE_FIRST_APPLY, ..*request };
        update_entries(None, &base, &mut entries, &before);
    }
    check_fields(applied, request)?;
    let mut outcome = apply_entries(&base, applied, entries.clone(), request, force);
    if let (Err(Failure::Conflicts(conflicts)), "kubectl") = (&outcome, request.manager) {
        // A manager that migrates from client-side to server-side apply takes over the fields that it applied before.
        if let Some(allowed) = last_applied::unchanged_fields(&base, request) {
            let rest: Vec<Conflict> =
                conflicts.iter().filter(|conflict| !allowed.contains(&conflict.path)).cloned().collect();
            outcome = if rest.is_empty() {
                apply_entries(&base, applied, entries, request, true)
            } else {
                Err(Failure::Conflicts(rest))
            };
        }
    }
    let (mut object, entries) = outcome.map_err(|failure| failure.into_api_error(request, applied))?;
    if request.manager == "kubectl" {
        last_applied::refresh(&mut object, applied);
    }
    put_managed_fields(&mut object, entries::encode(entries));
    Ok(object)
}

/// Reason why an apply failed.
enum Failure {
    Conflicts(Vec<Conflict>),
    Item(position::ItemError),
}

/// A field that another manager owns and that the configuration changes.
#[derive(Clone)]
struct Conflict {
    manager: String,
    path: Vec<PathElement>,
}

impl From<position::ItemError> for Failure {
    fn from(error: position::ItemError) -> Self {
        Self::Item(error)
    }
}

impl Failure {
    fn into_api_error(self, request: &ManagerRequest<'_>, applied: &Value) -> ApiError {
        match self {
            Self::Conflicts(conflicts) => conflict_error(&conflicts),
            Self::Item(error) => not_typed(request, applied, &error.to_string()),
        }
    }
}

fn apply_entries(
    base: &Value,
    applied: &Value,
    mut entries: Vec<Entry>,
    request: &ManagerRequest<'_>,
    force: bool,
) -> Result<(Value, Vec<Entry>), Failure> {
    let position = request.position();
    let mut fields = compare::field_set(position, applied)?;
    request.filter(&mut fields);
    let mut own = request.entry(Operation::Apply, fields);
    let previous =
        entries.iter().position(|entry| entry.same_manager(&own)).map(|index| entries.remove(index));
    let mut object = merge::merge(position, base, applied)?;
    if let Some(previous) = &previous {
        object = prune(position, object, &entries, &own, previous)?;
    }
    let mut comparison = compare::compare(position, base, &object)?;
    filter(&mut comparison, request);
    let changed = comparison.modified.union(&comparison.added);
    let mut conflicts = Vec::new();
    for entry in &mut entries {
        let taken = entry.fields.intersection(&changed);
        let manager = entry.display_manager();
        conflicts.extend(taken.paths().into_iter().map(|path| Conflict { manager: manager.clone(), path }));
        entry.fields.subtract(&taken);
        entry.fields.subtract(&comparison.removed);
    }
    if !force && !conflicts.is_empty() {
        conflicts
            .sort_by(|a, b| a.manager.cmp(&b.manager).then_with(|| set::reported_order(&a.path, &b.path)));
        return Err(Failure::Conflicts(conflicts));
    }
    entries.retain(|entry| !entry.fields.is_empty());
    own.fields = without_unowned(own.fields);
    if !own.fields.is_empty() {
        own.time = if object == *base { previous.and_then(|entry| entry.time) } else { Some(request.time()) };
        entries.push(own);
    }
    Ok((object, entries))
}

/// Removes fields that a manager applied last time and does not apply now, unless another manager owns them.
fn prune(
    position: Position<'_>,
    merged: Value,
    others: &[Entry],
    own: &Entry,
    previous: &Entry,
) -> Result<Value, position::ItemError> {
    if previous.fields.clone().difference(&own.fields).is_empty() {
        return Ok(merged);
    }
    let whole = |set: &FieldSet| compare::with_named_parents(position, set);
    let owned = others.iter().fold(own.fields.clone(), |owned, entry| owned.union(&entry.fields));
    let last = whole(&previous.fields);
    let present = whole(&compare::field_set(position, &merged)?);
    // Fields that remain without the last applied ones, and fields with an owner, are kept.
    let mut without_last = merged.clone();
    merge::remove(position, &mut without_last, &last);
    let left = whole(&compare::field_set(position, &without_last)?);
    let gone = present.clone().difference(&left).difference(&whole(&owned));
    let mut kept = merged.clone();
    merge::remove(position, &mut kept, &gone);
    // Of the rest, only fields that this manager had applied are removed.
    let remaining = whole(&compare::field_set(position, &kept)?);
    let mut pruned = merged;
    merge::remove(position, &mut pruned, &present.difference(&remaining).intersection(&last));
    Ok(pruned)
}

/// Refuses a configuration of another kind or version.
pub(crate) fn check_type(applied: &Value, request: &ManagerRequest<'_>) -> Result<(), ApiError> {
    let text = |name: &str| applied.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if (api_version, kind) != (request.api_version, request.kind) {
        return Err(ApiError::bad_request(format!("invalid object type: {}", kind_text(api_version, kind))));
    }
    Ok(())
}

fn check_fields(applied: &Value, request: &ManagerRequest<'_>) -> Result<(), ApiError> {
    if applied.pointer("/metadata/managedFields").is_some_and(|managed| !managed.is_null()) {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    match listed(&compare::validate(request.position(), applied)) {
        None => Ok(()),
        Some(why) => Err(not_typed(request, applied, &why)),
    }
}

/// Lists the reasons why an object does not match its type, in one text.
fn listed(errors: &[String]) -> Option<String> {
    match errors {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("errors:\n  {}", many.join("\n  "))),
    }
}

/// Formats `group/version, Kind=kind`, with the slash even if there is no group.
fn kind_text(api_version: &str, kind: &str) -> String {
    let slash = if api_version.contains('/') { "" } else { "/" };
    format!("{slash}{api_version}, Kind={kind}")
}

fn not_typed(request: &ManagerRequest<'_>, applied: &Value, why: &str) -> ApiError {
    let named = named(applied, request);
    ApiError::new(500, "", format!("failed to create typed patch object ({named}): {why}"))
}

/// Formats an object as messages name it: `namespace/name; group/version, Kind=kind`.
fn named(object: &Value, request: &ManagerRequest<'_>) -> String {
    let metadata = |name: &str| {
        let metadata = object.get("metadata").and_then(|metadata| metadata.get(name));
        metadata.and_then(Value::as_str).unwrap_or_default()
    };
    let kind = kind_text(request.api_version, request.kind);
    format!("{}/{}; {kind}", metadata("namespace"), metadata("name"))
}

fn conflict_error(conflicts: &[Conflict]) -> ApiError {
    let message = match conflicts {
        [one] => {
            format!(
                "Apply failed with 1 conflict: conflict with {}: {}",
                one.manager,
                display_path(&one.path)
            )
        }
        many => {
            let mut lines = Vec::new();
            for (index, conflict) in many.iter().enumerate() {
                if index == 0 || many[index - 1].manager != conflict.manager {
                    lines.push(format!("conflicts with {}:", conflict.manager));
                }
                lines.push(format!("- {}", display_path(&conflict.path)));
            }
            format!("Apply failed with {} conflicts: {}", many.len(), lines.join("\n"))
        }
    };
    let mut error = ApiError::new(409, "Conflict", message);
    error.details = Some(Box::new(Details {
        causes: conflicts
            .iter()
            .map(|conflict| Cause {
                reason: CauseReason::ManagerConflict.as_str().into(),
                message: format!("conflict with {}", conflict.manager),
                field: display_path(&conflict.path),
            })
            .collect(),
        ..Details::default()
    }));
    error
}

fn filter(comparison: &mut Comparison, request: &ManagerRequest<'_>) {
    request.filter(&mut comparison.added);
    request.filter(&mut comparison.modified);
    request.filter(&mut comparison.removed);
}

fn without_unowned(mut fields: FieldSet) -> FieldSet {
    for path in UNOWNED {
        fields.remove_named(path);
    }
    fields
}

fn empty_object(request: &ManagerRequest<'_>) -> Value {
    let mut object = Map::new();
    object.insert("apiVersion".to_owned(), request.api_version.into());
    object.insert("kind".to_owned(), request.kind.into());
    Value::Object(object)
}

/// Takes `metadata.managedFields` out of an object.
fn take_managed_fields(object: &mut Value) -> Value {
    object
        .get_mut("metadata")
        .and_then(Value::as_object_mut)
        .and_then(|metadata| metadata.remove("managedFields"))
        .unwrap_or_default()
}

fn put_managed_fields(object: &mut Value, managed_fields: Option<Value>) {
    let Some(managed_fields) = managed_fields else { return };
    let Some(object) = object.as_object_mut() else { return };
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert("managedFields".to_owned(), managed_fields);
    }
}

/// Reports whether two objects are equal but for their managed fields.
pub(crate) fn equal_but_managers(live: &Value, new: &Value) -> bool {
    let (Value::Object(live), Value::Object(new)) = (live, new) else { return false };
    live.len() == new.len()
        && live.iter().zip(new).all(|((live_name, live), (new_name, new))| {
            live_name == new_name
                && match (live, new) {
                    (Value::Object(live), Value::Object(new)) if live_name == "metadata" => live
                        .iter()
                        .filter(|(name, _)| *name != "managedFields")
                        .eq(new.iter().filter(|(name, _)| *name != "managedFields")),
                    _ => live == new,
                }
        })
}
