//! Work that no request performs: deletes the instances of deleted definitions (spec `api-deletion.md`, section 9), accepts names
//! that have become free, does some of kube-controller-manager's work, and expires events.

use std::sync::{Arc, PoisonError};

use serde_json::Value;

use crate::api::{RequestContext, RequestTarget, WriteOptions};
use crate::crd::{self, CLEANUP_FINALIZER, Termination};
use crate::error::ApiError;
use crate::metadata::meta;
use crate::persist;
use crate::registry::Registry;
use crate::registry::call::{Call, WriteResult};
use crate::registry::deletion_observer::TerminatingDefinition;
use crate::resource::ResourceDefinition;
use crate::storage::{Condition, KeyValue, RangeOptions, Revision, Transaction, Write};
use crate::verbs::deletion::Deletion;

/// Maximum number of objects that one step reads from the store at once.
const PAGE: usize = 1000;
/// Minimum time between two recordings of the store's revision, in seconds: the precision of the age of events.
const CLOCK_STEP_SECONDS: i64 = 60;

impl Registry {
    /// Performs maintenance. Must be called when [`Registry::poll_maintenance`] says so, and every few seconds. Every step can be
    /// repeated, and be performed by several servers on one store. Returns the first error of this run.
    pub fn maintain(&self, context: &RequestContext<'_>) -> Result<(), ApiError> {
        self.maintenance_begins();
        let definitions = self.maintain_definitions(context);
        self.recount_quotas()?;
        self.expire_events(context)?;
        self.check_policy_types(context)?;
        // An object that cannot be deleted with its definition blocks nothing else.
        definitions
    }

    fn maintain_definitions(&self, context: &RequestContext<'_>) -> Result<(), ApiError> {
        let options = RangeOptions::default();
        let answer = self.storage.range(persist::DEFINITIONS, &options).map_err(persist::storage_error)?;
        let catalog = self.catalog();
        let Some(row) = catalog.find("apiextensions.k8s.io", "v1", "customresourcedefinitions") else {
            return Ok(());
        };
        let unsettled: Vec<_> = {
            let known = self.definitions.lock().unwrap_or_else(PoisonError::into_inner);
            let is_settled = |stored: &KeyValue| known.is_settled(&stored.key, stored.mod_revision);
            answer.items.into_iter().filter(|stored| !is_settled(stored)).collect()
        };
        // A failure for one definition must not delay the others.
        let done = unsettled.into_iter().map(|stored| self.maintain_definition(row, stored, context));
        done.fold(Ok(()), Result::and)
    }

    fn maintain_definition(
        &self,
        row: &Arc<ResourceDefinition>,
        stored: KeyValue,
        context: &RequestContext<'_>,
    ) -> Result<(), ApiError> {
        let definition = persist::decode(row, &stored)?;
        let target = RequestTarget {
            name: meta::name(&definition).to_owned(),
            subresource: "status".into(),
            ..RequestTarget::collection(row)
        };
        let call = Call::new(self, &target, context);
        if meta::is_deleting(&definition) {
            if meta::finalizers(&definition).contains(&CLEANUP_FINALIZER) {
                call.finalize_definition(stored, &definition)?;
            }
        } else if !crd::is_established(&definition) {
            call.settle_again(&stored, &definition)?;
        }
        Ok(())
    }

    /// Removes events whose last write is older than their lifetime. Their age follows from the revisions of the store at past
    /// calls of `maintain`, so no event needs to be decoded; after a restart, all events count as new.
    fn expire_events(&self, context: &RequestContext<'_>) -> Result<(), ApiError> {
        let now = context.now;
        let keep = jiff::SignedDuration::from_secs(i64::from(self.config.event_ttl_seconds));
        let newest = self.storage.revision().map_err(persist::storage_error)?;
        let mut expired: Option<Revision> = None;
        {
            let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
            let step = jiff::SignedDuration::from_secs(CLOCK_STEP_SECONDS.min(keep.as_secs().max(1)));
            if clock.back().is_none_or(|(last, _)| now.duration_since(*last) >= step) {
                clock.push_back((now, newest));
            }
            while let Some((time, revision)) = clock.front().copied() {
                if now.duration_since(time) < keep {
                    break;
                }
                clock.pop_front();
                expired = Some(revision);
            }
        }
        let Some(limit) = expired else { return Ok(()) };
        let mut after = None;
        loop {
            let options = RangeOptions { at: None, after, limit: PAGE, skips_count: true };
            let page = self.storage.range(persist::EVENTS, &options).map_err(persist::storage_error)?;
            for event in page.items.iter().filter(|event| event.mod_revision <= limit) {
                let transaction = Transaction {
                    conditions: vec![Condition {
                        key: Arc::clone(&event.key),
                        mod_revision: event.mod_revision,
                    }],
                    writes: vec![Write::Delete(Arc::clone(&event.key))],
                };
                self.storage.commit(transaction).map_err(persist::storage_error)?;
            }
            after = page.items.last().map(|item| Arc::clone(&item.key));
            if !page.more || after.is_none() {
                return Ok(());
            }
        }
    }
}

impl Call<'_> {
    /// Performs one step of the finalizing controller of definitions.
    fn finalize_definition(&self, stored: KeyValue, definition: &Value) -> Result<(), ApiError> {
        if !crd::is_established(definition) {
            return self.release_definition(&stored, Termination::NeverEstablished);
        }
        let Some(stored) = self.note_termination(stored, definition, Termination::InProgress)? else {
            return Ok(());
        };
        if self.delete_instances(definition)? {
            return Ok(());
        }
        self.release_definition(&stored, Termination::Completed)
    }

    /// Writes a stage of the deletion if it is a new one. Returns `None` if another write came first: the next run continues.
    fn note_termination(
        &self,
        stored: KeyValue,
        definition: &Value,
        stage: Termination,
    ) -> Result<Option<KeyValue>, ApiError> {
        let mut new = definition.clone();
        crd::set_termination(&mut new, stage, self.context.now);
        if new == *definition {
            return Ok(Some(stored));
        }
        let value = persist::encode(self.resource(), &new)?;
        Ok(match self.commit(&stored.key, stored.mod_revision, Some(value.clone()))? {
            WriteResult::Done(revision) => Some(KeyValue { value, mod_revision: revision, ..stored }),
            WriteResult::Raced => {
                self.registry.request_maintenance();
                None
            }
        })
    }

    /// Deletes all instances; returns whether any are left that wait for their finalizers.
    fn delete_instances(&self, definition: &Value) -> Result<bool, ApiError> {
        let text = |path: &str| definition.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
        let catalog = self.registry.catalog();
        let found = catalog.group(group).into_iter().flat_map(|group| &group.versions);
        let served: Vec<_> =
            found.flat_map(|version| &version.resources).filter(|row| *row.resource == *plural).collect();
        // In the version in which they are stored, no webhook needs to be called.
        let is_stored = |row: &&&Arc<ResourceDefinition>| {
            row.custom.as_ref().is_some_and(|custom| !custom.is_converted())
        };
        let Some(resource) = served.iter().find(is_stored).or(served.first()).copied() else {
            return Ok(false);
        };
        let owned = |field: &str| meta::text(definition, field).to_owned();
        let definition = TerminatingDefinition { uid: owned("uid"), since: owned("deletionTimestamp") };
        let deletion = Deletion { definition: Some(Arc::new(definition)), ..Deletion::default() };
        let prefix = persist::resource_prefix(resource);
        // An object that cannot be deleted must not delay the others.
        let mut left = Ok(false);
        let mut after = None;
        loop {
            let options = RangeOptions { at: None, after, limit: PAGE, skips_count: true };
            let page = self.registry.storage.range(&prefix, &options).map_err(persist::storage_error)?;
            for item in &page.items {
                let stays = self.delete_instance(resource, &prefix, item, &deletion);
                left = left.and_then(|left| Ok(left | stays?));
            }
            after = page.items.last().map(|item| Arc::clone(&item.key));
            if !page.more || after.is_none() {
                return left;
            }
        }
    }

    fn delete_instance(
        &self,
        resource: &Arc<ResourceDefinition>,
        prefix: &str,
        item: &KeyValue,
        deletion: &Deletion,
    ) -> Result<bool, ApiError> {
        let place = item.key.strip_prefix(prefix).unwrap_or_default();
        let (namespace, name) = place.split_once('/').unwrap_or(("", place));
        let target = RequestTarget {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..RequestTarget::collection(resource)
        };
        let call = Call::new(self.registry, &target, self.context);
        match call.delete_object(name, &item.key, deletion) {
            Ok(crate::verbs::deletion::DeletionResult::Removed(_)) => Ok(false),
            Ok(_) => Ok(true),
            Err(error) if error.code == 404 => Ok(false),
            Err(error) => {
                // If the object cannot even be read, that is the error to report.
                if let Ok(live) = call.decode(item) {
                    call.report_deletion(&live, item.mod_revision, deletion, Some(&error));
                }
                Err(error)
            }
        }
    }

    /// Removes the cleanup finalizer, and if it was the last one, also the definition.
    fn release_definition(&self, stored: &KeyValue, ending: Termination) -> Result<(), ApiError> {
        let mut new = self.decode(stored)?;
        crd::set_termination(&mut new, ending, self.context.now);
        let rest: Vec<String> = meta::finalizers(&new)
            .into_iter()
            .filter(|name| *name != CLEANUP_FINALIZER)
            .map(str::to_owned)
            .collect();
        let gone = rest.is_empty();
        meta::set_finalizers(&mut new, rest);
        let value = if gone { None } else { Some(persist::encode(self.resource(), &new)?) };
        if matches!(self.commit(&stored.key, stored.mod_revision, value)?, WriteResult::Raced) {
            self.registry.request_maintenance();
        }
        Ok(())
    }

    /// Accepts names that may have become free.
    fn settle_again(&self, stored: &KeyValue, definition: &Value) -> Result<(), ApiError> {
        let mut new = definition.clone();
        self.settle_definition(&mut new);
        if new != *definition {
            let value = persist::encode(self.resource(), &new)?;
            self.commit(&stored.key, stored.mod_revision, Some(value))?;
        }
        Ok(())
    }
}

/// Returns the options of writes that the server makes for itself.
pub(crate) fn own_write() -> WriteOptions {
    WriteOptions { field_manager: "kube-apiserver".into(), ..WriteOptions::default() }
}
