//! POST: creating objects.

use std::collections::BTreeSet;

use serde_json::Value;

use super::list::parse_version_of_write;
use super::managed::{self, Operation};
use super::meta_validation::{self, Deduplication};
use crate::admission::configured::Options;
use crate::api::{RequestBody, Response, WriteOptions};
use crate::catalog::rules;
use crate::error::ApiError;
use crate::metadata::meta;
use crate::metadata::names::quoted;
use crate::registry::call::{Call, MAX_TURNS, WriteResult};
use crate::registry::services::Allocation;
use crate::storage::{KeyValue, Revision};
use crate::{crd, persist};

/// Number of generated names to try before a collision is reported.
const GENERATED_NAMES: usize = 8;

/// Returns a 500 for a new object that states a version. Only storing refuses it, so a dry run does not.
fn refuse_version(object: &Value, options: &WriteOptions) -> Result<(), ApiError> {
    let version = parse_version_of_write(meta::text(object, "resourceVersion"));
    if !options.dry_run && version.is_ok_and(|version| version.0 > 0) {
        return Err(ApiError::new(500, "", "resourceVersion should not be set on objects to be created"));
    }
    Ok(())
}

impl Call<'_> {
    /// Handles POST to a collection.
    pub(crate) fn create(&mut self, body: RequestBody, options: &WriteOptions) -> Result<Response, ApiError> {
        let mut object = self.take_body(body, options)?;
        self.settle_namespace(&mut object)?;
        if let Some(warning) = meta_validation::drop_duplicate_owners(&mut object, Deduplication::Request) {
            self.warnings.push(warning);
        }
        refuse_version(&object, options)?;
        self.create_object(object, options, Operation::Update)
    }

    /// Creates a decoded and defaulted document: for POST, for a PUT that may create, and for apply.
    pub(crate) fn create_object(
        &mut self,
        mut object: Value,
        options: &WriteOptions,
        operation: Operation,
    ) -> Result<Response, ApiError> {
        let given_name = meta::name(&object);
        let shown = if given_name.is_empty() { meta::text(&object, "generateName") } else { given_name };
        self.refuse_under_terminating_definition(shown)?;
        self.admit_creation(shown)?;
        // Field owners are determined before the server adds its own fields.
        if operation == Operation::Update {
            managed::update(self, None, &mut object, options);
        }
        self.mutate(&mut object, None)?;
        self.mutate_dynamically(&mut object, None, options)?;
        // Admission's changes to the name apply; its changes to the server's own fields do not.
        self.settle_namespace(&mut object)?;
        // A PUT or an apply that creates may state a version.
        if self.target.name.is_empty() {
            refuse_version(&object, options)?;
        }
        self.fill_system_fields(&mut object);
        let given_name = meta::name(&object).to_owned();
        let prefix = meta::text(&object, "generateName").to_owned();
        // Checked in the form in which it will be stored, after everything that may change it.
        self.admit_content(&object, None)?;
        let rules = self.rules();
        for turn in 1.. {
            let mut new = object.clone();
            if given_name.is_empty() && !prefix.is_empty() {
                // The name of an IPAddress is the address, so nothing may be appended.
                let name = if self.resource().is("networking.k8s.io", "ipaddresses") {
                    prefix.clone()
                } else {
                    meta::generate_name(&prefix, (self.context.entropy)())
                };
                meta::metadata_mut(&mut new).insert("name".into(), name.into());
            }
            let chosen = self.prepare_new(&mut new, options.dry_run)?;
            rules.finish(&mut new);
            let name = meta::name(&new).to_owned();
            let mut errors = self.admin_access(&new, None)?;
            errors.extend(meta_validation::validate(self.resource(), &new));
            errors.extend(self.request_signature(&new));
            errors.extend(rules.validate_create(&new));
            errors.extend(self.pod_request_signature(&new));
            errors.extend(self.privileged_containers(&new));
            rules.take_over(&new, None, &mut errors);
            if errors.is_empty() {
                errors = meta_validation::validate_last(self.resource(), &new);
            }
            if !errors.is_empty() {
                return Err(self.invalid(&name, &errors));
            }
            // A POST has no name in its path, so this is a PUT or an apply of an absent object.
            self.admit_creation_by_update()?;
            self.admit_owner_references(&new, None)?;
            self.admit_deputies(&new, None)?;
            self.validate_dynamically(Some(&new), None, &Options::Write(options))?;
            let mut charges = self.validate(&new, None)?;
            charges.extend(self.places(&new, None, &chosen, options.dry_run)?);
            let key = persist::object_key(self.resource(), &self.target.namespace, &name);
            if options.dry_run {
                self.warn_of(&new, None);
                if let Some(existing) = self.read(&key)? {
                    return Err(self.exists(&name, &existing));
                }
                let is_definition = rules::is_definition(self.resource());
                let new =
                    if is_definition { crd::before_acceptance(&new, 0) } else { self.as_if_stored(new)? };
                return Ok(self.answer_value(201, new));
            }
            meta::metadata_mut(&mut new).remove("resourceVersion");
            let encoded = self.encode(&new)?;
            match self.commit_charged(&key, Revision(0), Some(encoded.clone()), &charges)? {
                WriteResult::Done(revision) => {
                    self.warn_of(&new, None);
                    if rules::is_definition(self.resource()) {
                        return Ok(self.answer_value(201, crd::before_acceptance(&new, revision.0)));
                    }
                    return self.answer_stored(201, encoded, revision);
                }
                WriteResult::Raced if given_name.is_empty() && turn < GENERATED_NAMES => {}
                WriteResult::Raced => match self.read(&key)? {
                    Some(stored) => {
                        self.warn_of(&new, None);
                        return Err(self.exists(&name, &stored));
                    }
                    // Another request has charged the quota or taken an allocation in the meantime, or the object has been removed
                    // again.
                    None if turn < MAX_TURNS => {}
                    None => return Err(self.modified(&name)),
                },
            }
        }
        unreachable!("the loop ends by itself")
    }

    /// Completes a decoded and defaulted document like a create, for the server's own objects.
    pub(crate) fn complete_new(&self, object: &mut Value, options: &WriteOptions) -> Result<(), ApiError> {
        self.fill_system_fields(object);
        self.mutate(object, None)?;
        self.prepare_new(object, options.dry_run)?;
        self.rules().finish(object);
        managed::update(self, None, object, options);
        Ok(())
    }

    pub(crate) fn warn_of(&mut self, new: &Value, old: Option<&Value>) {
        self.warnings.extend(meta_validation::finalizer_warnings(self.resource(), new));
        self.warnings.extend(self.rules().warnings(new, old));
        if let Some(advisor) = &self.registry.config.advisor
            && self.target.subresource.is_empty()
        {
            self.warnings.extend(advisor.warnings(new, old));
        }
        let resource = self.resource();
        let is_it = |(group, kind): &&(&str, &str)| *group == &*resource.group && *kind == &*resource.kind;
        if old.is_none()
            && self.target.subresource.is_empty()
            && let Some((_, kind)) = self.registry.config.unattended.iter().find(is_it)
        {
            self.warnings.push(format!("no controller acts on {kind} here"));
        }
    }

    /// Sets the fields that only the server may set (spec 6.1, last sentence).
    fn fill_system_fields(&self, object: &mut Value) {
        let now = self.now();
        let uid = meta::new_uid((self.context.entropy)());
        let metadata = meta::metadata_mut(object);
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            metadata.remove(field);
        }
        metadata.insert("creationTimestamp".into(), now.into());
        metadata.insert("uid".into(), uid.into());
        if !self.resource().namespaced() && metadata.get("namespace").and_then(Value::as_str) == Some("") {
            metadata.remove("namespace");
        }
    }

    /// Prepares a new object; returns the allocations that the server chose for it.
    fn prepare_new(&self, new: &mut Value, dry_run: bool) -> Result<BTreeSet<Allocation>, ApiError> {
        self.rules().prepare_create(new);
        if self.resource().is("", "limitranges") && meta::name(new).is_empty() {
            let name = meta::new_uid((self.context.entropy)());
            meta::metadata_mut(new).insert("name".into(), name.into());
        }
        let chosen = self.allocate(new, None, dry_run)?;
        if self.resource().is("", "namespaces") {
            label_with_name(new);
        }
        if rules::is_definition(self.resource()) {
            self.settle_definition(new);
        }
        Ok(chosen)
    }

    /// Accepts the names of a definition, so that it is served as soon as it is stored.
    pub(crate) fn settle_definition(&self, definition: &mut Value) {
        let text =
            |path: &str| definition.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
        let catalog = self.registry.catalog();
        let resources =
            catalog.groups().iter().flat_map(|group| &group.versions).flat_map(|version| &version.resources);
        let in_use = crd::NamesInUse::of(resources.map(|resource| &**resource), &group, &plural);
        let before = definition.clone();
        if crd::settle_names(definition, &in_use, self.context.now) {
            managed::update_own_status(self, &before, definition);
        }
    }

    /// Refuses new instances while their definition is being deleted (spec 9).
    fn refuse_under_terminating_definition(&self, name: &str) -> Result<(), ApiError> {
        let resource = self.resource();
        if resource.custom.is_none() || !self.registry.is_terminating(resource) {
            return Ok(());
        }
        Err(self.forbidden(name, "create not allowed while custom resource definition is terminating"))
    }

    /// Returns the error about an object that exists, also if it cannot be read.
    fn exists(&self, name: &str, existing: &KeyValue) -> ApiError {
        let mut error = ApiError::already_exists(&self.resource().group, &self.resource().resource, name);
        if self.decode(existing).is_ok_and(|existing| meta::is_deleting(&existing)) {
            error.message = format!("object is being deleted: {}", error.message);
        }
        error
    }

    /// Checks that `metadata.name` in a body is the name in the path.
    pub(crate) fn check_name(&self, object: &Value) -> Result<(), ApiError> {
        let (given, wanted) = (meta::name(object), &self.target.name);
        if given.is_empty() {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({wanted} based on URL) was undeterminable: name must be provided"
            )));
        }
        if given != wanted {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({wanted})"
            )));
        }
        Ok(())
    }

    /// Returns upstream's error about a UID in a body that differs from that of the stored object.
    pub(crate) fn uid_conflict(&self, given: &str, stored: &str, dry_run: bool) -> ApiError {
        let why = format!("Precondition failed: UID in precondition: {given}, UID in object meta: {stored}");
        self.conflict(&self.target.name, &self.storage_error(&why, dry_run))
    }

    /// Returns upstream's message about an object that its store finds not to match the request.
    pub(crate) fn storage_error(&self, why: &str, dry_run: bool) -> String {
        let mut place = String::new();
        if !self.target.namespace.is_empty() {
            place = format!("{}/", self.target.namespace);
        }
        let name = &self.target.name;
        let resource = self.resource();
        // A dry run is refused before the storage path is known.
        let root = if dry_run { "" } else { "/registry" };
        let folder = persist::upstream_folder(resource);
        format!(
            "StorageError: invalid object, Code: 4, Key: {root}/{folder}/{place}{name}, ResourceVersion: 0, \
             AdditionalErrorMsg: {why}"
        )
    }

    /// Returns the 422 for a PUT that must state the version that it replaces. Upstream gives the plural name as the kind.
    pub(crate) fn version_required(&self) -> ApiError {
        let error = crate::error::FieldError {
            field: "metadata.resourceVersion".into(),
            reason: crate::error::CauseReason::Invalid,
            detail: "Invalid value: 0: must be specified for an update".into(),
        };
        ApiError::invalid(&self.resource().group, &self.resource().resource, &self.target.name, &[error])
    }

    /// Returns the 422 for a patch whose result is not an object of the kind.
    pub(crate) fn patch_error(document: &str, why: &str) -> ApiError {
        let error = crate::error::FieldError {
            field: "patch".into(),
            reason: crate::error::CauseReason::Invalid,
            detail: format!("Invalid value: {}: {why}", quoted(document)),
        };
        let mut error = ApiError::invalid("", "", "", &[error]);
        if let Some(details) = &mut error.details {
            details.kind = String::new();
        }
        error
    }
}

/// Sets the label that always equals the name of a namespace (spec 12.1).
pub(crate) fn label_with_name(namespace: &mut Value) {
    let name = meta::name(namespace).to_owned();
    let labels = meta::metadata_mut(namespace)
        .entry("labels")
        .or_insert_with(|| Value::Object(serde_json::Map::new()));
    if let Some(labels) = labels.as_object_mut() {
        labels.insert("kubernetes.io/metadata.name".into(), name.into());
    }
}
