//! DELETE of one object (spec `api-deletion.md`, sections 2.3, 3, 4, 8, 9, 12.2, 13).

use std::sync::Arc;

use gc_types::PropagationPolicy;
use serde_json::{Map, Value, json};

use super::update::has_spec_finalizers;
use crate::admission::configured::Options;
use crate::api::{Attributes, DeleteOptions, Response, ResponseBody, UNSAFE_DELETION};
use crate::catalog::rules;
use crate::crd::{self, CLEANUP_FINALIZER, Termination};
use crate::error::{ApiError, CauseReason, FieldError};
use crate::metadata::meta;
use crate::metadata::names::quoted;
use crate::metadata::object::Object;
use crate::persist;
use crate::registry::call::{Call, MAX_TURNS, WriteResult};
use crate::registry::deletion_observer::{ObservedDeletion, TerminatingDefinition};
use crate::resource::DefaultGarbageCollection;
use crate::storage::{Condition, Key, KeyValue, Revision, StorageError, Transaction, Write};

/// Finalizer under which dependents are orphaned.
pub const ORPHAN: &str = "orphan";
/// Finalizer under which dependents are deleted first.
pub const FOREGROUND: &str = "foregroundDeletion";

/// Additional verb required to delete an object that cannot be read.
const UNSAFE_VERB: &str = "unsafe-delete-ignore-read-errors";

/// Warning for the deletion of a job that names no policy.
const JOB_WARNING: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to \
     remove them or set propagationPolicy=Orphan to suppress this warning";

/// Validated options of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Deletion {
    pub(crate) grace: Option<i64>,
    pub(crate) uid: Option<String>,
    /// True if the UID is that of a listed object, not one given by a client.
    pub(crate) is_of_listed: bool,
    pub(crate) resource_version: Option<String>,
    pub(crate) orphan_dependents: Option<bool>,
    pub(crate) policy: Option<PropagationPolicy>,
    pub(crate) dry_run: bool,
    /// Definition whose deletion includes the object, if no request deletes it.
    pub(crate) definition: Option<Arc<TerminatingDefinition>>,
}

impl Deletion {
    /// Returns the options with the grace period of a pod, even if the client chose none.
    fn within(&self, grace: &Grace) -> Self {
        let grace = match grace {
            Grace::Graceful { seconds, first: true, .. } => Some(*seconds),
            _ => self.grace,
        };
        Self { grace, ..self.clone() }
    }

    /// Returns the options as admission shows them.
    fn shown(&self) -> Map<String, Value> {
        let mut shown = Map::new();
        if let Some(seconds) = self.grace {
            shown.insert("gracePeriodSeconds".into(), seconds.into());
        }
        let uid = if self.is_of_listed { &None } else { &self.uid };
        let preconditions = [("uid", uid), ("resourceVersion", &self.resource_version)];
        let given = preconditions.into_iter().filter_map(|(field, wanted)| Some((field, wanted.as_ref()?)));
        let preconditions: Map<String, Value> =
            given.map(|(field, wanted)| (field.into(), wanted.as_str().into())).collect();
        if !preconditions.is_empty() {
            shown.insert("preconditions".into(), preconditions.into());
        }
        if let Some(orphan) = self.orphan_dependents {
            shown.insert("orphanDependents".into(), orphan.into());
        }
        if let Some(policy) = self.policy {
            shown.insert("propagationPolicy".into(), policy.name().into());
        }
        shown
    }

    /// Validates the options of a deletion (spec 2.3).
    pub(crate) fn validate(options: &DeleteOptions) -> Result<Self, ApiError> {
        let mut errors = Vec::new();
        let mut error = |field: &str, reason, detail: String| {
            errors.push(FieldError { field: field.into(), reason, detail });
        };
        let given = options.propagation_policy.as_deref();
        let policy = given.and_then(PropagationPolicy::named);
        if let (Some(other), None) = (given, policy) {
            let detail = format!(
                "Unsupported value: {}: supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"",
                quoted(other)
            );
            error("propagationPolicy", CauseReason::NotSupported, detail);
        }
        if let (Some(_), Some(given)) = (options.orphan_dependents, &options.propagation_policy) {
            let detail = format!(
                "Invalid value: {}: orphanDependents and deletionPropagation cannot be both set",
                quoted(given)
            );
            error("propagationPolicy", CauseReason::Invalid, detail);
        }
        if !options.dry_run.iter().all(|value| value == "All") {
            let detail = format!("Unsupported value: {}: supported values: \"All\"", json!(options.dry_run));
            error("dryRun", CauseReason::NotSupported, detail);
        }
        if options.is_unsafe() {
            let others = [
                ("propagationPolicy", options.propagation_policy.is_some()),
                ("orphanDependents", options.orphan_dependents.is_some()),
                ("gracePeriodSeconds", options.grace_period_seconds.is_some()),
                (
                    "preconditions",
                    options.precondition_uid.is_some() || options.precondition_resource_version.is_some(),
                ),
            ];
            for (other, _) in others.into_iter().filter(|(_, is_set)| *is_set) {
                let detail = format!("Invalid value: true: cannot be set together with .{other}");
                error(UNSAFE_DELETION, CauseReason::Invalid, detail);
            }
        }
        if !errors.is_empty() {
            return Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &errors));
        }
        Ok(Self {
            grace: options.grace_period_seconds.map(|seconds| if seconds < 0 { 1 } else { seconds }),
            uid: options.precondition_uid.clone(),
            is_of_listed: false,
            resource_version: options.precondition_resource_version.clone(),
            orphan_dependents: options.orphan_dependents,
            policy,
            dry_run: !options.dry_run.is_empty(),
            definition: None,
        })
    }
}

/// Result of a deletion.
pub(crate) enum DeletionResult {
    /// The object is gone (or would be), with its last stored state, at the version of the removal.
    Removed(KeyValue),
    /// The object remains for now, in this state.
    Kept(KeyValue),
    /// Like [`DeletionResult::Kept`], for a dry run.
    WouldKeep(Value),
}

/// Graceful deletion of an object (spec 3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
enum Grace {
    /// Nothing to wait for.
    Neither,
    /// The object is already waiting, for no longer than requested.
    Pending,
    /// The object must wait: deletionTimestamp, deletionGracePeriodSeconds, and whether the generation increases.
    Graceful { at: jiff::Timestamp, seconds: i64, first: bool },
}

impl Call<'_> {
    /// Handles DELETE of the object that the request names.
    pub(crate) fn delete(&mut self, options: &DeleteOptions) -> Result<Response, ApiError> {
        let deletion = Deletion::validate(options)?;
        if options.is_unsafe() {
            return self.delete_unreadable(&deletion);
        }
        self.warn_of_orphans(&deletion);
        let deleted = self.delete_object(&self.target.name, &self.key(), &deletion)?;
        self.deletion_response(&deletion, deleted)
    }

    /// Handles a DELETE that is only meant for an object that cannot be read. Its finalizers cannot be read either, so they do not count,
    /// and admission is shown an object without content.
    fn delete_unreadable(&mut self, deletion: &Deletion) -> Result<Response, ApiError> {
        let (target, resource) = (self.target, self.resource());
        let seen = self.refuse_unreadable_deletion()?;
        self.admit_deletion(&target.name)?;
        let api_version = gc_types::api_version(&resource.group, &resource.version);
        let unknown = json!({"apiVersion": api_version, "kind": &*resource.kind, "metadata": {}});
        let mut shown = deletion.shown();
        shown.insert(UNSAFE_DELETION.into(), true.into());
        self.validate_dynamically(None, Some(&unknown), &Options::Delete(&shown, deletion.dry_run))?;
        if !deletion.dry_run {
            let key = self.key();
            let condition = seen.map(|mod_revision| Condition { key: Arc::clone(&key), mod_revision });
            let transaction =
                Transaction { conditions: Vec::from_iter(condition), writes: vec![Write::Delete(key)] };
            if let WriteResult::Raced = self.commit_transaction(transaction)? {
                return Err(self.modified(&target.name));
            }
        }
        let details = json!({"name": target.name, "kind": &*resource.kind});
        let mut answer = self.answer_success(200, Some(details));
        if let ResponseBody::Status(status) = &mut answer.body {
            // Upstream writes it where it has no object.
            status["code"] = answer.code.into();
        }
        Ok(answer)
    }

    /// Fails if the user may not delete an object that cannot be read, or if the object can be read. Otherwise, returns its revision,
    /// unless the store cannot read even that.
    fn refuse_unreadable_deletion(&self) -> Result<Option<Revision>, ApiError> {
        let (target, resource) = (self.target, self.resource());
        let attributes = Attributes {
            verb: UNSAFE_VERB,
            group: &resource.group,
            version: &resource.version,
            resource: &resource.resource,
            subresource: "",
            namespace: &target.namespace,
            name: &target.name,
        };
        if !self.context.authorizer.allows(self.context.user, &attributes) {
            let why = format!("not permitted to do {}, reason: ", quoted(UNSAFE_VERB));
            return Err(ApiError::forbidden(&resource.group, &resource.resource, &target.name, &why));
        }
        self.check_time()?;
        let stored = match self.registry.storage.get(&self.key(), None) {
            Ok(answer) => answer.item.ok_or_else(|| self.not_found(&target.name))?,
            Err(StorageError::Broken(_)) => return Ok(None),
            Err(error) => return Err(persist::storage_error(error)),
        };
        if serde_json::from_slice::<Map<String, Value>>(&stored.value).is_err() {
            return Ok(Some(stored.mod_revision));
        }
        // A webhook that does not answer is no damage.
        self.decode(&stored)?;
        let why = self.storage_error(
            "unsafe deletion is not allowed because the object is decodable from storage",
            false,
        );
        Err(self.conflict(&target.name, &why))
    }

    pub(crate) fn warn_of_orphans(&mut self, deletion: &Deletion) {
        if self.resource().is("batch", "jobs")
            && deletion.policy.is_none()
            && deletion.orphan_dependents.is_none()
        {
            self.warnings.push(JOB_WARNING.to_owned());
        }
    }

    /// Returns the response to a deletion (spec 4).
    fn deletion_response(
        &mut self,
        deletion: &Deletion,
        deleted: DeletionResult,
    ) -> Result<Response, ApiError> {
        // S01: the only unfinished deletion that the status code reveals.
        let kept = if deletion.orphan_dependents == Some(false) { 202 } else { 200 };
        match deleted {
            DeletionResult::Kept(stored) => self.answer_stored(kept, stored.value, stored.mod_revision),
            DeletionResult::WouldKeep(object) => Ok(self.answer_value(kept, object)),
            DeletionResult::Removed(stored) if self.resource().returns_deleted_object => {
                self.answer_stored(200, stored.value, stored.mod_revision)
            }
            DeletionResult::Removed(stored) => {
                // Its name and UID are the same in every version.
                let object = Object::from_stored(self.type_meta(), stored.value, stored.mod_revision);
                let metadata = object.metadata()?;
                let mut details = json!({"name": metadata["name"], "kind": &*self.resource().resource, "uid": metadata["uid"]});
                if !self.resource().group.is_empty() {
                    details["group"] = (*self.resource().group).into();
                }
                Ok(self.answer_success(200, Some(details)))
            }
        }
    }

    /// Deletes one object of the resource.
    pub(crate) fn delete_object(
        &self,
        name: &str,
        key: &Key,
        deletion: &Deletion,
    ) -> Result<DeletionResult, ApiError> {
        if (self.resource().is("", "namespaces") || rules::is_definition(self.resource()))
            && let Some(deleted) = self.delete_marked_first(name, key, deletion)?
        {
            return Ok(deleted);
        }
        self.delete_generic(name, key, deletion)
    }

    fn delete_generic(&self, name: &str, key: &Key, deletion: &Deletion) -> Result<DeletionResult, ApiError> {
        let mut deletion = deletion.clone();
        let mut last_written: Option<KeyValue> = None;
        for turn in 0..MAX_TURNS {
            let Some(stored) = self.read(key)? else {
                // The object may have been removed between the two steps of a graceful deletion.
                return match last_written {
                    Some(stored) => Ok(DeletionResult::Removed(stored)),
                    None => Err(self.not_found(name)),
                };
            };
            let live = self.decode(&stored)?;
            self.check_preconditions(name, &live, &deletion, turn == 0)?;
            let grace = self.grace(&live, &deletion);
            if grace == Grace::Pending {
                return Ok(DeletionResult::Kept(stored));
            }
            self.admit_deletion(name)?;
            self.validate_deletion(&live, || deletion.within(&grace))?;
            let finalizers = self.gc_finalizers(&live, &deletion);
            let finished = finalizers.is_empty() && !matches!(grace, Grace::Graceful { .. });
            if finished {
                if deletion.dry_run {
                    return Ok(DeletionResult::Removed(stored));
                }
                let released = self.released_places(&live)?;
                match self.commit_charged(key, stored.mod_revision, None, &released)? {
                    WriteResult::Done(revision) => {
                        self.report_deletion(&live, stored.mod_revision, &deletion, None);
                        return Ok(DeletionResult::Removed(KeyValue { mod_revision: revision, ..stored }));
                    }
                    WriteResult::Raced => continue,
                }
            }
            let mut new = live.clone();
            self.mark(&mut new, &grace, &finalizers);
            let waits =
                !finalizers.is_empty() || matches!(grace, Grace::Graceful { seconds, .. } if seconds > 0);
            if deletion.dry_run {
                if waits {
                    return Ok(DeletionResult::WouldKeep(new));
                }
                let value = self.encode(&new)?;
                return Ok(DeletionResult::Removed(KeyValue { value, ..stored }));
            }
            let value = self.encode(&new)?;
            let written = if value == stored.value {
                stored
            } else {
                match self.commit(key, stored.mod_revision, Some(value.clone()))? {
                    WriteResult::Done(revision) => {
                        self.report_deletion(&live, stored.mod_revision, &deletion, None);
                        KeyValue { value, mod_revision: revision, ..stored }
                    }
                    WriteResult::Raced => continue,
                }
            };
            if waits {
                return Ok(DeletionResult::Kept(written));
            }
            // The second step removes the version written by the first.
            if deletion.resource_version.is_some() {
                deletion.resource_version = Some(written.mod_revision.to_string());
            }
            deletion.grace = Some(0);
            last_written = Some(written);
        }
        Err(self.modified(name))
    }

    /// Reports the user who deleted the object, or that it could not be deleted. An object that was already terminating is not
    /// reported again.
    pub(crate) fn report_deletion(
        &self,
        live: &Value,
        revision: Revision,
        deletion: &Deletion,
        failure: Option<&ApiError>,
    ) {
        let Some(observer) = &self.registry.config.deletion_observer else { return };
        if meta::is_deleting(live) {
            return;
        }
        observer.observed(&ObservedDeletion {
            resource: self.resource(),
            namespace: meta::text(live, "namespace"),
            name: meta::name(live),
            uid: meta::uid(live),
            resource_version: revision.0,
            user: self.context.user,
            program: self.context.user_agent_manager,
            is_eviction: self.target.subresource == "eviction",
            policy: deletion.policy,
            definition: deletion.definition.as_deref(),
            failure,
        });
    }

    /// Runs admission for a deletion, with options in the form that admission sees. These are built lazily, because most servers
    /// have no admission configured.
    fn validate_deletion(&self, live: &Value, seen: impl FnOnce() -> Deletion) -> Result<(), ApiError> {
        // Evictions were already admitted as evictions.
        if self.target.subresource == "eviction" || !self.registry.admits() {
            return Ok(());
        }
        let deletion = seen();
        self.validate_dynamically(None, Some(live), &Options::Delete(&deletion.shown(), deletion.dry_run))
    }

    /// Checks the preconditions; `first` stands for spec 3.1 step 3, whose errors name the Kind.
    pub(crate) fn check_preconditions(
        &self,
        name: &str,
        live: &Value,
        deletion: &Deletion,
        first: bool,
    ) -> Result<(), ApiError> {
        let resource = self.resource();
        let kind = if first { &resource.kind } else { &resource.resource };
        // Events of both groups are stored as a single kind.
        let group = if first && &*resource.group == "events.k8s.io" { "" } else { &*resource.group };
        if let Some(uid) = &deletion.uid
            && uid != meta::uid(live)
        {
            let why = format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been \
                 deleted and then recreated",
                meta::uid(live)
            );
            return Err(ApiError::conflict(group, kind, name, &why));
        }
        let version = meta::text(live, "resourceVersion");
        if let Some(wanted) = &deletion.resource_version
            && wanted != version
        {
            let why = format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
                 ({version}). The object might have been modified"
            );
            return Err(ApiError::conflict(group, kind, name, &why));
        }
        Ok(())
    }

    /// Determines the grace period (spec 3.2 and 8).
    fn grace(&self, live: &Value, deletion: &Deletion) -> Grace {
        if !self.resource().graceful_deletion {
            return Grace::Neither;
        }
        if !meta::is_deleting(live) {
            let seconds = pod_grace_period(live, deletion.grace);
            let at = after(self.context.now, seconds);
            return Grace::Graceful { at, seconds, first: true };
        }
        let stored = match meta::grace_period(live) {
            None | Some(0) => return Grace::Neither,
            Some(seconds) if seconds < 0 => 1,
            Some(seconds) => seconds,
        };
        match deletion.grace {
            Some(wanted) if wanted < stored => {
                let marked = meta::text(live, "deletionTimestamp").parse().unwrap_or(self.context.now);
                let at = after(marked, wanted - stored);
                if at < self.context.now {
                    let seconds = i64::from(wanted != 0);
                    Grace::Graceful { at: self.context.now, seconds, first: false }
                } else {
                    Grace::Graceful { at, seconds: wanted, first: false }
                }
            }
            _ => Grace::Pending,
        }
    }

    /// Returns the finalizers by the rules of spec 3.3.
    fn gc_finalizers(&self, live: &Value, deletion: &Deletion) -> Vec<String> {
        let before = finalizers(live);
        if !self.registry.config.garbage_collector {
            return before;
        }
        let has = |name: &str| before.iter().any(|finalizer| finalizer == name);
        let default = self.resource().default_garbage_collection;
        let chosen = match (deletion.orphan_dependents, deletion.policy) {
            // The first rule that applies decides; without one, there is no finalizer.
            _ if default == DefaultGarbageCollection::Unsupported => None,
            (Some(true), _) | (None, Some(PropagationPolicy::Orphan)) => Some(ORPHAN),
            (None, Some(PropagationPolicy::Foreground)) => Some(FOREGROUND),
            (None, None) if has(ORPHAN) => Some(ORPHAN),
            (None, None) if has(FOREGROUND) => Some(FOREGROUND),
            (None, None) if default == DefaultGarbageCollection::Orphan => Some(ORPHAN),
            (Some(false), _) | (None, Some(PropagationPolicy::Background) | None) => None,
        };
        with_gc_finalizer(before, chosen)
    }

    /// Marks an object as deleted (spec 3.1 step 8 c to e, and 3.4).
    fn mark(&self, object: &mut Value, grace: &Grace, finalizers: &[String]) {
        meta::set_finalizers(object, finalizers.to_vec());
        let generation = meta::generation(object);
        let deleting = meta::is_deleting(object);
        let now = self.now();
        let marked: Option<jiff::Timestamp> = meta::text(object, "deletionTimestamp").parse().ok();
        let metadata = meta::metadata_mut(object);
        match grace {
            Grace::Graceful { at, seconds, first } => {
                metadata.insert("deletionTimestamp".into(), meta::time(*at).into());
                metadata.insert("deletionGracePeriodSeconds".into(), (*seconds).into());
                if *first && generation > 0 {
                    metadata.insert("generation".into(), (generation + 1).into());
                }
            }
            Grace::Neither | Grace::Pending => {
                if !deleting && generation > 0 {
                    metadata.insert("generation".into(), (generation + 1).into());
                }
                if marked.is_none_or(|marked| marked > self.context.now) {
                    metadata.insert("deletionTimestamp".into(), now.into());
                }
                metadata.insert("deletionGracePeriodSeconds".into(), 0.into());
            }
        }
    }

    /// Handles the first DELETE of a namespace or definition, which only marks it and leaves the rest to its controller (spec 9,
    /// 12.2).
    ///
    /// Returns `None` if it is already marked and the generic deletion follows.
    fn delete_marked_first(
        &self,
        name: &str,
        key: &Key,
        deletion: &Deletion,
    ) -> Result<Option<DeletionResult>, ApiError> {
        let is_namespace = self.resource().is("", "namespaces");
        for _ in 0..MAX_TURNS {
            let Some(stored) = self.read(key)? else { return Err(self.not_found(name)) };
            let live = self.decode(&stored)?;
            self.check_special_preconditions(name, &live, deletion)?;
            if meta::is_deleting(&live) {
                let is_kept = is_namespace && has_spec_finalizers(&live);
                return Ok(is_kept.then_some(DeletionResult::Kept(stored)));
            }
            self.admit_deletion(name)?;
            // A deletion that races with another one must not delete a different object.
            let exact = || Deletion { uid: Some(meta::uid(&live).to_owned()), ..deletion.clone() };
            self.validate_deletion(&live, exact)?;
            let mut new = live.clone();
            if is_namespace {
                meta::set_finalizers(&mut new, namespace_finalizers(&live, deletion));
                meta::member_map(&mut new, "status").insert("phase".into(), "Terminating".into());
            } else {
                meta::set_finalizers(&mut new, definition_finalizers(&live));
                crd::set_termination(&mut new, Termination::Pending, self.context.now);
            }
            meta::metadata_mut(&mut new).insert("deletionTimestamp".into(), self.now().into());
            if let Some(deleted) = self.write_mark(key, &stored, new, deletion)? {
                if !deletion.dry_run {
                    self.report_deletion(&live, stored.mod_revision, deletion, None);
                }
                return Ok(Some(deleted));
            }
        }
        Err(self.modified(name))
    }

    /// Writes the first mark; `None` if another write came first.
    fn write_mark(
        &self,
        key: &Key,
        stored: &KeyValue,
        new: Value,
        deletion: &Deletion,
    ) -> Result<Option<DeletionResult>, ApiError> {
        if deletion.dry_run {
            return Ok(Some(DeletionResult::WouldKeep(new)));
        }
        let value = persist::encode(self.resource(), &new)?;
        Ok(match self.commit(key, stored.mod_revision, Some(value.clone()))? {
            WriteResult::Done(revision) => {
                Some(DeletionResult::Kept(KeyValue { value, mod_revision: revision, ..stored.clone() }))
            }
            WriteResult::Raced => None,
        })
    }

    /// Checks preconditions with the messages of namespaces and definitions.
    fn check_special_preconditions(
        &self,
        name: &str,
        live: &Value,
        deletion: &Deletion,
    ) -> Result<(), ApiError> {
        let checks = [
            (&deletion.uid, "uid", "UID"),
            (&deletion.resource_version, "resourceVersion", "ResourceVersion"),
        ];
        for (wanted, field, shown) in checks {
            let actual = meta::text(live, field);
            if let Some(wanted) = wanted
                && wanted != actual
            {
                let why = format!(
                    "Precondition failed: {shown} in precondition: {wanted}, {shown} in object meta: {actual}"
                );
                return Err(self.conflict(name, &why));
            }
        }
        Ok(())
    }
}

/// Returns the finalizers of a namespace after its first DELETE (spec 12.2).
fn namespace_finalizers(live: &Value, deletion: &Deletion) -> Vec<String> {
    let before = finalizers(live);
    match (deletion.orphan_dependents, deletion.policy) {
        (Some(true), _) | (None, Some(PropagationPolicy::Orphan)) => with_gc_finalizer(before, Some(ORPHAN)),
        (Some(false), _) | (None, Some(PropagationPolicy::Foreground)) => {
            with_gc_finalizer(before, Some(FOREGROUND))
        }
        (None, Some(PropagationPolicy::Background)) => with_gc_finalizer(before, None),
        (None, None) => before,
    }
}

/// Returns the finalizers of a definition after its first DELETE (spec 9).
fn definition_finalizers(live: &Value) -> Vec<String> {
    let mut after = finalizers(live);
    if !after.iter().any(|finalizer| finalizer == CLEANUP_FINALIZER) {
        after.push(CLEANUP_FINALIZER.to_owned());
    }
    after
}

fn finalizers(object: &Value) -> Vec<String> {
    meta::finalizers(object).into_iter().map(str::to_owned).collect()
}

/// Returns the list without the two GC finalizers and with the chosen one at the end; unchanged if that is the same set.
fn with_gc_finalizer(before: Vec<String>, chosen: Option<&str>) -> Vec<String> {
    let mut after: Vec<String> =
        before.iter().filter(|finalizer| *finalizer != ORPHAN && *finalizer != FOREGROUND).cloned().collect();
    after.extend(chosen.map(str::to_owned));
    let same = after.len() == before.len() && after.iter().all(|finalizer| before.contains(finalizer));
    if same { before } else { after }
}

/// Returns the grace period of a pod at its first DELETE, in seconds (spec 8).
fn pod_grace_period(pod: &Value, asked: Option<i64>) -> i64 {
    let own = || pod.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64);
    let seconds = asked.or_else(own).unwrap_or_default();
    let text = |path: &str| pod.pointer(path).and_then(Value::as_str).unwrap_or_default();
    if text("/spec/nodeName").is_empty() || matches!(text("/status/phase"), "Failed" | "Succeeded") {
        return 0;
    }
    if seconds < 0 { 1 } else { seconds }
}

fn after(time: jiff::Timestamp, seconds: i64) -> jiff::Timestamp {
    // No clock reaches a time that is out of range, so the given time does as well.
    time.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap_or(time)
}
