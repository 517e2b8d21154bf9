//! PUT and PATCH: the read-modify-write loop.

use serde_json::Value;

use super::create;
use super::list::parse_version_of_write;
use super::managed::{self, Operation};
use super::meta_validation::{self, Deduplication};
use crate::admission::configured::Options;
use crate::api::{FieldValidation, PatchType, RequestBody, Response, WriteOptions, decoding_warnings};
use crate::catalog::rules::{self, Strictness};
use crate::error::{ApiError, CauseReason, FieldError};
use crate::metadata::meta;
use crate::persist::StoredForm;
use crate::registry::call::{Call, MAX_TURNS, WriteResult};
use crate::storage::KeyValue;
use crate::{patch, schema};

/// Source of the new state.
pub(crate) enum Change {
    /// The body of a PUT, decoded and defaulted.
    Put(Value),
    /// A patch of the live state.
    Patch(PatchType, RequestBody),
    /// A server-side apply.
    Apply(Value),
    /// Wanted replicas of a Scale, and the preconditions in its metadata.
    Scale(Value),
    /// A server-side apply of a Scale.
    ScaleByApply(Value),
}

/// Result of a completed write, before it is converted to the form of the endpoint.
pub(crate) struct WrittenObject {
    pub(crate) code: u16,
    pub(crate) object: Value,
    /// Stored form, if the object is stored as it is returned.
    pub(crate) stored: Option<KeyValue>,
}

fn patch_options_error(field: &str, reason: CauseReason, detail: &str) -> ApiError {
    let error = FieldError { field: field.into(), reason, detail: detail.into() };
    ApiError::invalid("meta.k8s.io", "PatchOptions", "", &[error])
}

/// Checks that an apply names its manager.
pub(crate) fn check_apply_options(options: &WriteOptions) -> Result<(), ApiError> {
    if options.field_manager.is_empty() {
        let why = "Required value: is required for apply patch";
        return Err(patch_options_error("fieldManager", CauseReason::Required, why));
    }
    Ok(())
}

impl Call<'_> {
    /// Handles PUT of an object, or of its subresource with the same kind.
    pub(crate) fn update(&mut self, body: RequestBody, options: &WriteOptions) -> Result<Response, ApiError> {
        let mut object = self.take_body(body, options)?;
        self.settle_namespace(&mut object)?;
        self.check_name(&object)?;
        if let Some(warning) = meta_validation::drop_duplicate_owners(&mut object, Deduplication::Request) {
            self.warnings.push(warning);
        }
        self.write(&Change::Put(object), options)
    }

    /// Handles PATCH.
    pub(crate) fn patch(
        &mut self,
        kind: PatchType,
        body: RequestBody,
        options: &WriteOptions,
    ) -> Result<Response, ApiError> {
        let change = self.patch_change(kind, body, options)?;
        self.write(&change, options)
    }

    /// Checks a patch request as far as possible without the live object.
    pub(crate) fn patch_change(
        &mut self,
        kind: PatchType,
        body: RequestBody,
        options: &WriteOptions,
    ) -> Result<Change, ApiError> {
        if kind != PatchType::Apply {
            if options.force.is_some() {
                let why = "Forbidden: may not be specified for non-apply patch";
                return Err(patch_options_error("force", CauseReason::Forbidden, why));
            }
            return Ok(Change::Patch(kind, body));
        }
        check_apply_options(options)?;
        self.apply_change(body, options)
    }

    fn apply_change(&mut self, body: RequestBody, options: &WriteOptions) -> Result<Change, ApiError> {
        let object = body.value;
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (version, kind) = (text("apiVersion"), text("kind"));
        let resource = self.resource();
        if version != resource.api_version() || kind != *resource.kind {
            let (group, short) = version.split_once('/').unwrap_or(("", &version));
            let why = format!("invalid object type: {group}/{short}, Kind={kind}");
            return Err(ApiError::bad_request(why));
        }
        if meta::metadata(&object).get("managedFields").is_some_and(|fields| !fields.is_null()) {
            return Err(ApiError::bad_request("metadata.managedFields must be nil"));
        }
        self.check_namespace(&object)?;
        // An apply to an existing object may omit its name; a new object needs one.
        if !meta::name(&object).is_empty() {
            self.check_name(&object)?;
        }
        // The merge reports unknown fields and values of the wrong type. Defaults are not filled in, because the manager would own
        // them.
        self.note_duplicates(body.duplicates, options)?;
        Ok(Change::Apply(object))
    }

    /// Reports duplicate fields of an applied document.
    pub(crate) fn note_duplicates(
        &mut self,
        duplicates: Vec<String>,
        options: &WriteOptions,
    ) -> Result<(), ApiError> {
        match options.validation() {
            FieldValidation::Strict if !duplicates.is_empty() => Err(ApiError::bad_request(format!(
                "error strict decoding YAML: error converting YAML to JSON: {}",
                duplicates.join(", ")
            ))),
            FieldValidation::Warn => {
                self.warnings.extend(decoding_warnings(duplicates));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Performs a change, and returns the whole object.
    pub(crate) fn write(&mut self, change: &Change, options: &WriteOptions) -> Result<Response, ApiError> {
        let Some(written) = self.write_loop(change, options)? else {
            return self.create_by_update(change, options);
        };
        match written.stored {
            Some(stored) => self.answer_stored(written.code, stored.value, stored.mod_revision),
            None => Ok(self.answer_value(written.code, written.object)),
        }
    }

    /// Handles an absent object, which apply and, for some kinds, PUT create.
    fn create_by_update(&mut self, change: &Change, options: &WriteOptions) -> Result<Response, ApiError> {
        let name = &self.target.name;
        match change {
            Change::Put(object) if self.resource().update_creates && self.target.subresource.is_empty() => {
                let uid = meta::uid(object);
                if !uid.is_empty() {
                    return Err(self.uid_conflict(uid, "", options.dry_run));
                }
                self.create_object(object.clone(), options, Operation::Update)
            }
            Change::Apply(configuration) if self.target.subresource.is_empty() => {
                let uid = meta::uid(configuration);
                if !uid.is_empty() {
                    let why = format!(
                        "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                    );
                    return Err(self.conflict(name, &why));
                }
                let mut object = managed::apply(self, None, configuration, options)?;
                self.refuse_unstored(&object)?;
                self.settle_namespace(&mut object)?;
                self.check_name(&object)?;
                self.finish_decoding(&mut object)?;
                if let Some(warning) =
                    meta_validation::drop_duplicate_owners(&mut object, Deduplication::Patch)
                {
                    self.warnings.push(warning);
                }
                self.create_object(object, options, Operation::Apply)
            }
            _ => Err(self.not_found(name)),
        }
    }

    /// Returns a 500 for an apply, in a version of a custom resource, that sets fields which the storage version lacks.
    fn refuse_unstored(&self, object: &Value) -> Result<(), ApiError> {
        let Some(custom) = &self.resource().custom else { return Ok(()) };
        let unknown = custom.not_stored(object);
        let Some(path) = unknown.first().and_then(|text| text.split('"').nth(1)) else { return Ok(()) };
        let why = format!("failed to convert new object: .{path}: field not declared in schema");
        Err(ApiError::new(500, "", why))
    }

    /// Sets defaults in the result of an apply.
    fn finish_decoding(&self, object: &mut Value) -> Result<(), ApiError> {
        match self.rules().decode_merged(object) {
            Ok(()) | Err(Strictness::Strict(_)) => Ok(()),
            Err(Strictness::Undecodable(why)) => Err(self.rules().bad_body(&why)),
            Err(Strictness::TooLarge) => Err(Strictness::too_large()),
        }
    }

    /// Reads, changes and writes until no other write interferes. Returns `None` if the object does not exist.
    pub(crate) fn write_loop(
        &mut self,
        change: &Change,
        options: &WriteOptions,
    ) -> Result<Option<WrittenObject>, ApiError> {
        let key = self.key();
        let warnings = self.warnings.clone();
        for _ in 0..MAX_TURNS {
            self.warnings.clone_from(&warnings);
            let Some(stored) = self.read(&key)? else { return Ok(None) };
            let live = self.decode(&stored)?;
            let (mut new, version_given) = self.new_state(change, &live, options)?;
            if matches!(change, Change::Patch(..) | Change::Put(_)) {
                // Managers do not own fields that admission and the rules of the kind add to their input.
                managed::update(self, Some(&live), &mut new, options);
            }
            self.admit_update()?;
            self.mutate(&mut new, Some(&live))?;
            self.mutate_dynamically(&mut new, Some(&live), options)?;
            // Admission may have set another namespace, or an older version.
            self.check_namespace(&new)?;
            self.check_version(&new, &live)?;
            self.carry_over(&mut new, &live, options.dry_run);
            let rules = self.rules();
            rules.prepare_update(&mut new, &live);
            let chosen = self.allocate(&mut new, Some(&live), options.dry_run)?;
            self.keep_what_is_the_servers(&mut new, &live);
            self.restore_from_subresource(&mut new, &live);
            rules.finish(&mut new);
            self.admit_content(&new, Some(&live))?;
            let mut errors = self.admin_access(&new, Some(&live))?;
            let subresource = &self.target.subresource;
            errors.extend(meta_validation::validate_update(self.resource(), subresource, &new, &live));
            errors.extend(self.request_signature(&new));
            errors.extend(rules.validate_update(&new, &live));
            errors.extend(self.privileged_containers(&new));
            rules.take_over(&new, Some(&live), &mut errors);
            if errors.is_empty() {
                errors = self.pod_request_signer(&new, &live);
            }
            if !errors.is_empty() {
                return Err(self.invalid(meta::name(&new), &errors));
            }
            self.admit_owner_references(&new, Some(&live))?;
            self.admit_deputies(&new, Some(&live))?;
            self.admit_certificate(&new, &live)?;
            self.validate_dynamically(Some(&new), Some(&live), &Options::Write(options))?;
            let mut charges = self.validate(&new, Some(&live))?;
            charges.extend(self.places(&new, Some(&live), &chosen, options.dry_run)?);
            let mut before_acceptance = None;
            // A dry run returns the input: names are only accepted after a definition has been stored.
            if rules::is_definition(self.resource()) && !meta::is_deleting(&new) && !options.dry_run {
                let before = new.clone();
                self.settle_definition(&mut new);
                before_acceptance = (before["status"] != new["status"]).then_some(before);
            }
            if self.completes_deletion(&new, &live) {
                if options.dry_run {
                    return Ok(Some(WrittenObject { code: 200, object: new, stored: None }));
                }
                let released = self.released_places(&live)?;
                match self.commit_charged(&key, stored.mod_revision, None, &released)? {
                    WriteResult::Done(_) => {
                        return Ok(Some(WrittenObject { code: 200, object: new, stored: None }));
                    }
                    WriteResult::Raced if version_given => return Err(self.modified(&self.target.name)),
                    WriteResult::Raced => continue,
                }
            }
            self.warn_of(&new, Some(&live));
            let unchanged = managed::same_but_for_times(&new, &live)
                && self.is_in_storage_version(&stored)
                && self.is_stored_as_shown(&stored, &live);
            if unchanged {
                return Ok(Some(WrittenObject { code: 200, object: live, stored: Some(stored) }));
            }
            if options.dry_run {
                return Ok(Some(WrittenObject { code: 200, object: self.as_if_stored(new)?, stored: None }));
            }
            let encoded = self.encode(&new)?;
            match self.commit_charged(&key, stored.mod_revision, Some(encoded.clone()), &charges)? {
                WriteResult::Done(revision) => {
                    let stored = KeyValue { value: encoded, mod_revision: revision, ..stored };
                    meta::metadata_mut(&mut new)
                        .insert("resourceVersion".into(), revision.to_string().into());
                    if let Some(mut shown) = before_acceptance {
                        // Upstream only accepts names after it has answered.
                        shown["metadata"]["resourceVersion"] = revision.to_string().into();
                        return Ok(Some(WrittenObject { code: 200, object: shown, stored: None }));
                    }
                    return Ok(Some(WrittenObject { code: 200, object: new, stored: Some(stored) }));
                }
                WriteResult::Raced if version_given => return Err(self.modified(&self.target.name)),
                WriteResult::Raced => {}
            }
        }
        Err(self.modified(&self.target.name))
    }

    /// Reports whether an object is stored in the current storage version. If not, it is written even without changes, which is how
    /// objects are migrated to a new storage version.
    fn is_in_storage_version(&self, stored: &KeyValue) -> bool {
        let custom = self.resource().custom.as_ref();
        custom.is_none_or(|custom| {
            StoredForm::of(custom, &stored.value).api_version == &**custom.storage_api_version()
        })
    }

    /// Reports whether an object is stored in the form that is returned. Upstream returns the phase of a new claim and the labels
    /// of a new Job as defaults, and stores them with the first update, which is a write even without changes.
    fn is_stored_as_shown(&self, stored: &KeyValue, live: &Value) -> bool {
        let resource = self.resource();
        let labelled =
            || meta::metadata(live).get("labels").is_some_and(|labels| labels["controller-uid"].is_string());
        let shows_defaults = resource.is("", "persistentvolumeclaims")
            || resource.is("batch", "jobs") && labelled() && live["spec"]["manualSelector"] != true;
        !shows_defaults || stored.create_revision != stored.mod_revision
    }

    /// Returns the state that the client wants, and whether it insists on the version that it states.
    fn new_state(
        &mut self,
        change: &Change,
        live: &Value,
        options: &WriteOptions,
    ) -> Result<(Value, bool), ApiError> {
        match change {
            Change::Put(object) => {
                let uid = meta::uid(object);
                if !uid.is_empty() && uid != meta::uid(live) {
                    return Err(self.uid_conflict(uid, meta::uid(live), options.dry_run));
                }
                let given = self.check_version(object, live)?;
                if !given && self.resource().update_needs_version && self.target.subresource != "scale" {
                    return Err(self.version_required());
                }
                Ok((object.clone(), given))
            }
            Change::Patch(kind, body) => {
                let new = self.patched(*kind, body, live, options)?;
                // The patch starts from the live version; if it sets one itself, that is required.
                let given = body_names_version(*kind, &body.value);
                let names_one = self.check_version(&new, live)?;
                if !names_one && self.resource().update_needs_version && self.target.subresource != "scale" {
                    return Err(self.version_required());
                }
                Ok((new, given))
            }
            Change::Apply(configuration) => {
                let given = self.check_version(configuration, live)?;
                let mut new = managed::apply(self, Some(live), configuration, options)?;
                self.refuse_unstored(&new)?;
                self.finish_decoding(&mut new)?;
                if let Some(warning) = meta_validation::drop_duplicate_owners(&mut new, Deduplication::Patch)
                {
                    self.warnings.push(warning);
                }
                Ok((new, given))
            }
            Change::Scale(scale) => {
                let uid = meta::uid(scale);
                if !uid.is_empty() && uid != meta::uid(live) {
                    return Err(self.uid_conflict(uid, meta::uid(live), options.dry_run));
                }
                let given = self.check_version(scale, live)?;
                let before = managed::scale_with_managers(self, live)?;
                let mut scale = managed::update_scale(self, &before, scale, options);
                self.mutate_scale(&mut scale, &before, options)?;
                Ok((self.scaled(live, &scale)?, given))
            }
            Change::ScaleByApply(configuration) => {
                let before = managed::scale_with_managers(self, live)?;
                let mut scale = managed::apply_to_scale(self, &before, configuration, options)?;
                self.mutate_scale(&mut scale, &before, options)?;
                self.check_applied_scale(scale.clone(), live)?;
                let given = self.check_version(configuration, live)?;
                Ok((self.scaled(live, &scale)?, given))
            }
        }
    }

    /// Returns an object with the replicas of a Scale, and their managers.
    fn scaled(&self, live: &Value, scale: &Value) -> Result<Value, ApiError> {
        let mut new = live.clone();
        self.apply_scale(&mut new, scale)?;
        managed::hand_over(self, scale, &mut new);
        Ok(new)
    }

    /// Reports whether a document states a version; fails with a 409 if it is not the stored one.
    fn check_version(&self, object: &Value, live: &Value) -> Result<bool, ApiError> {
        let given = meta::text(object, "resourceVersion");
        if matches!(given, "" | "0") {
            return Ok(false);
        }
        if given == meta::text(live, "resourceVersion") {
            return Ok(true);
        }
        parse_version_of_write(given)?;
        Err(self.modified(&self.target.name))
    }

    fn patched(
        &mut self,
        kind: PatchType,
        body: &RequestBody,
        live: &Value,
        options: &WriteOptions,
    ) -> Result<Value, ApiError> {
        let mut new = live.clone();
        let mut odd = Vec::new();
        match kind {
            PatchType::Json => {
                patch::json_patch(&mut new, &body.value)?;
                odd = patch::unknown_members(&body.value);
            }
            PatchType::Merge => patch::merge_patch(&mut new, &body.value)?,
            PatchType::StrategicMerge | PatchType::Apply => {
                let schema = rules::schema(self.resource());
                patch::strategic_merge_patch(&schema, &mut new, &body.value)?;
            }
        }
        let name = patch::type_name(self.resource());
        let refused = |document: &Value, why: &str| {
            Self::patch_error(&patch::shown(name.clone(), kind, &body.value, live, document), why)
        };
        if kind == PatchType::StrategicMerge && self.resource().custom.is_none() {
            // For such a patch, errors show the patch itself, not its result.
            schema::restore(&rules::schema(self.resource()), &mut new)
                .map_err(|why| refused(&Value::Null, &why))?;
            // Kind and version are those of the stored object, whatever the document states.
            if let Some(members) = new.as_object_mut() {
                members.insert("apiVersion".into(), self.resource().api_version().into());
                members.insert("kind".into(), (&*self.resource().kind).into());
            }
        }
        if let Some(error) = self.wrong_custom_type(&new) {
            return Err(error);
        }
        if let Err(error) = self.check_kind(&mut new) {
            if self.resource().custom.is_some() || !matches!(kind, PatchType::Json | PatchType::Merge) {
                return Err(error);
            }
            // An error in the patched object is reported for the patch, because there is no body.
            let why = error.message.split_once(": ").map_or(&*error.message, |(_, why)| why);
            return Err(refused(&new, why));
        }
        let document = new.clone();
        if options.validation() == FieldValidation::Warn {
            self.warnings.append(&mut odd);
        }
        let decoded = match self.rules().decode(&mut new, (&body.duplicates, &[]), options.validation()) {
            Ok(_) if options.validation() == FieldValidation::Strict && !odd.is_empty() => {
                Err(Strictness::Strict(odd))
            }
            Err(Strictness::Strict(problems)) => Err(Strictness::Strict([odd, problems].concat())),
            decoded => decoded,
        };
        match decoded {
            Ok(warnings) => self.warnings.extend(warnings),
            Err(Strictness::Undecodable(why)) if self.resource().custom.is_some() => {
                return Err(self.rules().bad_body(&why));
            }
            Err(Strictness::Undecodable(why)) => return Err(refused(&document, &why)),
            Err(Strictness::TooLarge) => return Err(Strictness::too_large()),
            Err(Strictness::Strict(problems)) => {
                let why = format!("strict decoding error: {}", problems.join(", "));
                return Err(refused(&document, &why));
            }
        }
        self.check_namespace(&new)?;
        self.check_name(&new)?;
        if let Some(warning) = meta_validation::drop_duplicate_owners(&mut new, Deduplication::Patch) {
            self.warnings.push(warning);
        }
        Ok(new)
    }

    /// Returns the error for a patch that changes the kind or version of a custom resource.
    fn wrong_custom_type(&self, new: &Value) -> Option<ApiError> {
        let resource = self.resource();
        let wanted = [("kind", resource.kind.to_string()), ("apiVersion", resource.api_version())];
        resource.custom.as_ref()?;
        let given = |name: &str| new.get(name).and_then(Value::as_str).filter(|given| !given.is_empty());
        let errors: Vec<FieldError> = wanted
            .into_iter()
            .filter_map(|(name, wanted)| {
                let given = given(name).filter(|given| *given != wanted)?;
                let detail = format!("Invalid value: {given:?}: must be {wanted}");
                Some(FieldError { field: name.into(), reason: CauseReason::Invalid, detail })
            })
            .collect();
        let (group, _) = given("apiVersion").unwrap_or_default().split_once('/').unwrap_or_default();
        let kind = given("kind").unwrap_or(&resource.kind);
        (!errors.is_empty()).then(|| ApiError::invalid(group, kind, &self.target.name, &errors))
    }

    /// Copies metadata fields that a request may omit (spec 6.1).
    fn carry_over(&self, new: &mut Value, live: &Value, dry_run: bool) {
        let old = meta::metadata(live);
        let namespace = self.target.namespace.as_str();
        let metadata = meta::metadata_mut(new);
        for field in ["creationTimestamp", "generation", "resourceVersion"] {
            match old.get(field) {
                Some(value) => metadata.insert(field.into(), value.clone()),
                None => metadata.remove(field),
            };
        }
        for field in ["uid", "deletionGracePeriodSeconds", "generateName"] {
            if let (false, Some(value)) = (metadata.contains_key(field), old.get(field)) {
                metadata.insert(field.into(), value.clone());
            }
        }
        // An existing mark is kept regardless of the request; validation refuses a new one.
        if let Some(value) = old.get("deletionTimestamp") {
            metadata.insert("deletionTimestamp".into(), value.clone());
        }
        if namespace.is_empty() {
            metadata.remove("namespace");
        } else {
            metadata.insert("namespace".into(), namespace.into());
        }
        if !dry_run {
            // The store drops this field.
            metadata.remove("selfLink");
        }
    }

    /// Restores, after the rules of the kind have run, fields that no rule may lose.
    fn keep_what_is_the_servers(&self, new: &mut Value, live: &Value) {
        if self.resource().is("", "pods") && self.target.subresource == "status" {
            let old = meta::metadata(live).get("ownerReferences").cloned().unwrap_or_default();
            meta::set_or_remove(meta::metadata_mut(new), "ownerReferences", old);
        }
        if self.resource().is("", "namespaces") {
            create::label_with_name(new);
        }
    }

    /// Reports whether this update removes the object (spec 6.3).
    fn completes_deletion(&self, new: &Value, live: &Value) -> bool {
        meta::finalizers(new).is_empty()
            && meta::is_deleting(live)
            && meta::grace_period(live).unwrap_or_default() == 0
            && !(self.resource().is("", "namespaces") && has_spec_finalizers(new))
    }
}

/// Reports whether a namespace has `spec.finalizers`.
pub(crate) fn has_spec_finalizers(namespace: &Value) -> bool {
    namespace.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty())
}

/// Reports whether a patch sets a resourceVersion.
fn body_names_version(kind: PatchType, patch: &Value) -> bool {
    match kind {
        PatchType::Json => patch.as_array().into_iter().flatten().any(|operation| {
            let field = operation.get("path").and_then(Value::as_str).unwrap_or_default();
            field.starts_with("/metadata/resourceVersion")
        }),
        _ => patch.pointer("/metadata/resourceVersion").is_some_and(|version| !version.is_null()),
    }
}
