//! Subresources with a body of another kind: scale, eviction, binding.

use serde_json::{Value, json};

use super::deletion::Deletion;
use super::update::{Change, check_apply_options};
use crate::admission::configured::{Operation as Admitted, Options};
use crate::api::{
    DeleteOptions, FieldValidation, Operation, PatchType, RequestBody, Response, UNSAFE_DELETION,
    WriteOptions, decoding_warnings,
};
use crate::error::{ApiError, CauseReason, FieldError};
use crate::metadata::meta;
use crate::registry::call::{Call, MAX_TURNS, WriteResult};
use crate::resource::{BodyKind, Target};
use crate::{kinds, patch, persist, schema};

/// Labels of a node that are copied to its pods.
const TOPOLOGY_LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// Old versions in which upstream's scheme still has a Scale.
const VERSIONS_OF_SCALE: [&str; 3] = ["extensions/v1beta1", "apps/v1beta1", "apps/v1beta2"];
const EVICTION: BodyKind = BodyKind { group: "policy", version: "v1", kind: "Eviction" };
const BINDING: BodyKind = BodyKind { group: "", version: "v1", kind: "Binding" };

impl Call<'_> {
    /// Handles requests to `…/scale`.
    pub(crate) fn scale(&mut self, operation: Operation) -> Result<Response, ApiError> {
        match operation {
            Operation::Get { .. } => {
                let object = self.live()?;
                let scale = self.scale_of(&object)?;
                Ok(self.answer_value(200, scale))
            }
            Operation::Update(body, options) => {
                let sent = body.clone();
                let scale = self.take_scale(body)?;
                self.note_unknown_of_scale(&sent, options.validation())?;
                self.check_name(&scale)?;
                self.check_namespace(&scale)?;
                self.write_scale(&Change::Scale(scale), &options)
            }
            Operation::Patch(PatchType::Apply, body, options) => self.scale_by_apply(body, &options),
            Operation::Patch(kind, body, options) => self.patch_scale(kind, &body, &options),
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    /// Handles server-side apply of a Scale: the manager owns the replicas of the scaled object.
    fn scale_by_apply(&mut self, body: RequestBody, options: &WriteOptions) -> Result<Response, ApiError> {
        check_apply_options(options)?;
        self.note_duplicates(body.duplicates, options)?;
        self.write_scale(&Change::ScaleByApply(body.value), options)
    }

    /// Refuses the result of applying to a live object's Scale if it is not a Scale, or belongs to another object.
    pub(crate) fn check_applied_scale(&self, scale: Value, live: &Value) -> Result<(), ApiError> {
        self.check_uid_of_scale(live, &scale)?;
        let scale = self.take_scale(RequestBody::from(scale))?;
        self.check_name(&scale)?;
        self.check_namespace(&scale)
    }

    fn patch_scale(
        &mut self,
        kind: PatchType,
        body: &RequestBody,
        options: &WriteOptions,
    ) -> Result<Response, ApiError> {
        for _ in 0..MAX_TURNS {
            let mut object = self.live()?;
            let unset = match &self.resource().custom {
                Some(custom) if custom.settle_replicas(&mut object)? => custom.replicas_path(),
                _ => None,
            };
            let unset = unset.map(str::to_owned);
            let mut scale = self.scale_of(&object)?;
            let before = scale.clone();
            match kind {
                PatchType::Json => patch::json_patch(&mut scale, &body.value)?,
                PatchType::Merge | PatchType::Apply => patch::merge_patch(&mut scale, &body.value)?,
                PatchType::StrategicMerge => {
                    let schema = schema::builtin("autoscaling", "v1", "Scale").unwrap_or_default();
                    patch::strategic_merge_patch(&schema, &mut scale, &body.value)?;
                }
            }
            let own_version = scale["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"];
            self.check_patched_scale(&before, &scale, kind, &body.value, options)?;
            if let (Some(path), None) = (unset, scale.pointer("/spec/replicas")) {
                let why = format!("the spec replicas field {path:?} cannot be empty");
                return Err(ApiError::bad_request(why));
            }
            self.check_uid_of_scale(&before, &scale)?;
            let scale = self.take_scale(RequestBody::from(scale))?;
            self.check_name(&scale)?;
            match self.write_scale(&Change::Scale(scale), options) {
                // The version was just read, not demanded by the client.
                Err(error) if error.code == 409 && !own_version => {}
                other => return other,
            }
        }
        Err(self.modified(&self.target.name))
    }

    /// Performs strict validation of a patched Scale, which must still be a Scale.
    fn check_patched_scale(
        &mut self,
        before: &Value,
        scale: &Value,
        kind: PatchType,
        patch: &Value,
        options: &WriteOptions,
    ) -> Result<(), ApiError> {
        let shown = || {
            let name = schema::definition_name("autoscaling", "v1", "Scale");
            patch::shown(Some(name), kind, patch, before, scale)
        };
        let text = |field: &str| scale.get(field).and_then(Value::as_str).unwrap_or_default();
        let (version, name) = (text("apiVersion"), text("kind"));
        if !matches!(version, "" | "autoscaling/v1") || !matches!(name, "" | "Scale") {
            let why = if name == "Scale" && VERSIONS_OF_SCALE.contains(&version) {
                "json: cannot unmarshal string into Go struct field ScaleStatus.status.selector of type map[string]string"
                    .to_owned()
            } else {
                schema::problem_of_other_kind(("autoscaling", "Scale"), (version, name), scale)
            };
            return Err(Self::patch_error(&shown(), &why));
        }
        let known = schema::builtin("autoscaling", "v1", "Scale").unwrap_or_default();
        if let Err(why) = schema::check_types(&known, scale) {
            return Err(Self::patch_error(&shown(), &why));
        }
        let unknown = schema::unknown_fields(&known, scale);
        match options.validation() {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => self.warnings.extend(unknown),
            FieldValidation::Strict if unknown.is_empty() => {}
            FieldValidation::Strict => {
                let why = format!("strict decoding error: {}", unknown.join(", "));
                return Err(Self::patch_error(&shown(), &why));
            }
        }
        Ok(())
    }

    /// Returns a 409 for a patch that turns the Scale into that of another object.
    fn check_uid_of_scale(&self, before: &Value, scale: &Value) -> Result<(), ApiError> {
        let (stored, given) = (meta::uid(before), meta::uid(scale));
        if given.is_empty() || given == stored {
            return Ok(());
        }
        let why = format!("Precondition failed: UID in precondition: {given}, UID in object meta: {stored}");
        let resource = self.resource();
        Err(ApiError::conflict(
            &resource.group,
            &format!("{}/scale", resource.resource),
            &self.target.name,
            &why,
        ))
    }

    fn write_scale(&mut self, change: &Change, options: &WriteOptions) -> Result<Response, ApiError> {
        let Some(written) = self.write_loop(change, options)? else {
            return Err(self.not_found(&self.target.name));
        };
        let scale = self.scale_of(&written.object)?;
        Ok(self.answer_value(written.code, scale))
    }

    /// Reports unknown fields of a Scale.
    fn note_unknown_of_scale(
        &mut self,
        body: &RequestBody,
        validation: FieldValidation,
    ) -> Result<(), ApiError> {
        let known = schema::builtin("autoscaling", "v1", "Scale").unwrap_or_default();
        let problems = schema::strict_problems(&known, &body.value, &body.duplicates, &body.text);
        match validation {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => self.warnings.extend(decoding_warnings(problems)),
            FieldValidation::Strict if problems.is_empty() => {}
            FieldValidation::Strict => {
                let why = format!("strict decoding error: {}", problems.join(", "));
                return Err(ApiError::bad_request(format!(
                    "Scale in version \"v1\" cannot be handled as a Scale: {why}"
                )));
            }
        }
        Ok(())
    }

    fn take_scale(&self, body: RequestBody) -> Result<Value, ApiError> {
        let mut scale = body.value;
        let text = |field: &str| scale.get(field).and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (text("apiVersion"), text("kind"));
        if kind == "Scale" && VERSIONS_OF_SCALE.contains(&version) {
            return Err(ApiError::bad_request(format!(
                "the API version in the data ({version}) does not match the expected API version (autoscaling/v1)"
            )));
        }
        if !matches!(version, "" | "autoscaling/v1") || !matches!(kind, "" | "Scale") {
            return Err(not_of_kind(BodyKind::SCALE, (version, kind), &scale));
        }
        let known = schema::builtin("autoscaling", "v1", "Scale").unwrap_or_default();
        schema::check_types(&known, &scale).map_err(|why| {
            ApiError::bad_request(format!("Scale in version \"v1\" cannot be handled as a Scale: {why}"))
        })?;
        schema::normalize(&known, &mut scale, schema::Empties::Kept);
        let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or_default();
        if replicas < 0 && self.resource().custom.is_none() {
            let error = FieldError {
                field: "spec.replicas".into(),
                reason: CauseReason::Invalid,
                detail: format!("Invalid value: {replicas}: must be greater than or equal to 0"),
            };
            return Err(ApiError::invalid("autoscaling", "Scale", &self.target.name, &[error]));
        }
        Ok(scale)
    }

    /// Decodes the body of a subresource with a separate kind: refuses another kind and unsuitable values, and treats unknown
    /// fields as the request specifies.
    fn take_kind(
        &mut self,
        body: &RequestBody,
        wanted: BodyKind,
        validation: FieldValidation,
    ) -> Result<Value, ApiError> {
        let BodyKind { group, version, kind } = wanted;
        let mut value = body.value.clone();
        let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
        let (given_version, given_kind) = (text("apiVersion"), text("kind"));
        let (given_group, _) = given_version.split_once('/').unwrap_or(("", given_version));
        let is_other_version = !given_version.is_empty() && given_group != group;
        if is_other_version || !(given_kind.is_empty() || given_kind == kind) {
            return Err(not_of_kind(wanted, (given_version, given_kind), &value));
        }
        let bad_body = |why: &str| {
            ApiError::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: {why}"
            ))
        };
        let known =
            schema::definition_named(&schema::definition_name(group, version, kind)).unwrap_or_default();
        schema::check_types(&known, &value).map_err(|why| bad_body(&why))?;
        let problems = schema::strict_problems(&known, &value, &body.duplicates, &body.text);
        match validation {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => self.warnings.extend(decoding_warnings(problems)),
            FieldValidation::Strict if problems.is_empty() => {}
            FieldValidation::Strict => {
                return Err(bad_body(&format!("strict decoding error: {}", problems.join(", "))));
            }
        }
        schema::normalize(&known, &mut value, schema::Empties::Kept);
        Ok(value)
    }

    pub(crate) fn scale_of(&self, object: &Value) -> Result<Value, ApiError> {
        match &self.resource().custom {
            Some(custom) => custom.scale(object),
            None => Ok(kinds::scale::scale_of(self.scale_target(), object)),
        }
    }

    pub(crate) fn apply_scale(&self, object: &mut Value, scale: &Value) -> Result<(), ApiError> {
        match &self.resource().custom {
            Some(custom) => custom.apply_scale(object, scale),
            None => {
                kinds::scale::apply_scale(scale, object);
                Ok(())
            }
        }
    }

    fn scale_target(&self) -> Target<'_> {
        let resource = self.resource();
        Target {
            group: &resource.group,
            version: &resource.version,
            resource: &resource.resource,
            subresource: Some("scale"),
        }
    }

    /// Returns the stored object, or fails with a 404.
    pub(crate) fn live(&self) -> Result<Value, ApiError> {
        match self.read(&self.key())? {
            Some(stored) => self.decode(&stored),
            None => Err(self.not_found(&self.target.name)),
        }
    }

    /// Handles POST to `…/eviction`: a deletion with the options in the body (spec 8), if a disruption budget permits it.
    pub(crate) fn evict(&mut self, body: &RequestBody, options: &WriteOptions) -> Result<Response, ApiError> {
        let name = self.target.name.clone();
        let mut eviction = self.take_kind(body, EVICTION, options.validation())?;
        self.admit_creation(&name)?;
        let asked = (Admitted::Create, &Options::Write(options));
        self.mutate_body(&mut eviction, asked, Some(EVICTION))?;
        let eviction = &eviction;
        let given = meta::name(eviction);
        if given != name {
            return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
        }
        self.check_namespace(eviction)?;
        self.validate_body(eviction, asked, Some(EVICTION))?;
        let mut delete = delete_options(eviction.get("deleteOptions"));
        if options.dry_run && delete.dry_run.is_empty() {
            delete.dry_run.push("All".into());
        }
        let mut deletion = Deletion::validate(&delete)?;
        self.spend_disruption(&name, !delete.dry_run.is_empty())?;
        self.mark_disrupted(&name, &mut deletion)?;
        self.delete_object(&name, &self.key(), &deletion)?;
        Ok(self.answer_success(201, None))
    }

    /// Handles POST to `…/binding`, or to `bindings` with the name of the pod.
    pub(crate) fn bind(&mut self, body: &RequestBody, options: &WriteOptions) -> Result<Response, ApiError> {
        let mut binding = self.take_kind(body, BINDING, options.validation())?;
        let given = meta::name(&binding).to_owned();
        let name = if self.target.name.is_empty() { given.clone() } else { self.target.name.clone() };
        if name.is_empty() {
            return Err(ApiError::bad_request("Name parameter required."));
        }
        self.admit_creation(&name)?;
        let asked = (Admitted::Create, &Options::Write(options));
        self.mutate_body(&mut binding, asked, Some(BINDING))?;
        let binding = &binding;
        if given != name {
            return Err(ApiError::bad_request("name in URL does not match name in Binding object"));
        }
        self.check_namespace(binding)?;
        let target = |field: &str| {
            binding.pointer(&format!("/target/{field}")).and_then(Value::as_str).unwrap_or_default()
        };
        let node = target("name");
        let mut errors = Vec::new();
        if !matches!(target("kind"), "" | "Node") {
            errors.push(format!(
                "target.kind: Unsupported value: {:?}: supported values: \"Node\", \"<empty>\"",
                target("kind")
            ));
        }
        if node.is_empty() {
            errors.push("target.name: Required value".to_owned());
        }
        match errors.as_slice() {
            [] => {}
            // Upstream does not report this as the client's error.
            [one] => return Err(ApiError::new(500, "", one.as_str())),
            many => return Err(ApiError::new(500, "", format!("[{}]", many.join(", ")))),
        }
        self.validate_body(binding, asked, Some(BINDING))?;
        let key: crate::storage::Key = format!("/core/pods/{}/{name}", self.target.namespace).into();
        let Some(pods) = self.registry.catalog().find("", "v1", "pods").cloned() else {
            return Err(ApiError::internal("pods are not served"));
        };
        for _ in 0..MAX_TURNS {
            let Some(stored) = self.read(&key)? else { return Err(ApiError::not_found("", "pods", &name)) };
            let live = persist::decode(&pods, &stored)?;
            let mut pod = live.clone();
            Self::check_binding(&pod, binding, &name, node, options.dry_run)?;
            self.copy_topology(&mut pod, binding, node)?;
            meta::member_map(&mut pod, "spec").insert("nodeName".into(), node.into());
            copy_annotations(&mut pod, binding);
            self.restore_from_binding(&mut pod, &live);
            self.set_scheduled(&mut pod);
            if options.dry_run {
                return Ok(self.answer_success(201, None));
            }
            let value = persist::encode(&pods, &pod)?;
            if let WriteResult::Done(_) = self.commit(&key, stored.mod_revision, Some(value))? {
                return Ok(self.answer_success(201, None));
            }
        }
        Err(self.modified(&name))
    }

    fn check_binding(
        pod: &Value,
        binding: &Value,
        name: &str,
        node: &str,
        dry_run: bool,
    ) -> Result<(), ApiError> {
        let why = |why: String| ApiError::conflict("", "pods/binding", name, &why);
        for (field, member) in [("UID", "uid"), ("ResourceVersion", "resourceVersion")] {
            let (wanted, found) = (meta::text(binding, member), meta::text(pod, member));
            if !wanted.is_empty() && wanted != found {
                let text = format!(
                    "StorageError: invalid object, Code: 4, Key: {}/pods/{}/{name}, ResourceVersion: 0, \
                     AdditionalErrorMsg: Precondition failed: {field} in precondition: {wanted}, {field} in object \
                     meta: {found}",
                    if dry_run { "" } else { "/registry" },
                    meta::text(pod, "namespace"),
                );
                return Err(ApiError::conflict("", "pods", name, &text));
            }
        }
        if meta::is_deleting(pod) {
            return Err(why(format!("pod {name} is being deleted, cannot be assigned to a host")));
        }
        let assigned = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
        if !assigned.is_empty() {
            return Err(why(format!(
                "pod {name} is already assigned to node {:?}",
                if assigned == node { node } else { assigned }
            )));
        }
        let gates = pod.pointer("/spec/schedulingGates").and_then(Value::as_array);
        if gates.is_some_and(|gates| !gates.is_empty()) {
            return Err(why(format!("pod {name} has non-empty .spec.schedulingGates")));
        }
        Ok(())
    }

    /// Copies the binding's labels to the pod, and sets the labels for its zone and region.
    fn copy_topology(&self, pod: &mut Value, binding: &Value, node: &str) -> Result<(), ApiError> {
        let mut copied =
            meta::metadata(binding).get("labels").and_then(Value::as_object).cloned().unwrap_or_default();
        if let Some(node) = self.read_object("", "nodes", "", node)? {
            for label in TOPOLOGY_LABELS {
                if let Some(value) = meta::metadata(&node).get("labels").and_then(|labels| labels.get(label))
                {
                    copied.insert(label.to_owned(), value.clone());
                }
            }
        }
        if copied.is_empty() {
            return Ok(());
        }
        let labels = meta::metadata_mut(pod).entry("labels").or_insert_with(|| json!({}));
        if let Some(labels) = labels.as_object_mut() {
            for (label, value) in copied {
                labels.entry(label).or_insert(value);
            }
        }
        Ok(())
    }

    fn set_scheduled(&self, pod: &mut Value) {
        let now = self.now();
        let status = meta::member_map(pod, "status");
        let conditions = status.entry("conditions").or_insert_with(|| json!([]));
        if let Some(conditions) = conditions.as_array_mut() {
            conditions.retain(|condition| condition["type"] != "PodScheduled");
            conditions.push(json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now}));
        }
    }
}

fn copy_annotations(pod: &mut Value, binding: &Value) {
    let Some(given) = meta::metadata(binding).get("annotations").and_then(Value::as_object) else { return };
    let annotations = meta::metadata_mut(pod).entry("annotations").or_insert_with(|| json!({}));
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.extend(given.clone());
    }
}

/// Reads `deleteOptions` of an Eviction whose types have been checked.
fn delete_options(value: Option<&Value>) -> DeleteOptions {
    let Some(value) = value.filter(|value| !value.is_null()) else { return DeleteOptions::default() };
    let text = |path: &str| value.pointer(path).and_then(Value::as_str).map(str::to_owned);
    DeleteOptions {
        grace_period_seconds: value.get("gracePeriodSeconds").and_then(Value::as_i64),
        precondition_uid: text("/preconditions/uid"),
        precondition_resource_version: text("/preconditions/resourceVersion"),
        orphan_dependents: value.get("orphanDependents").and_then(Value::as_bool),
        propagation_policy: text("/propagationPolicy"),
        dry_run: meta::texts(value.as_object().unwrap_or(&serde_json::Map::new()), "dryRun")
            .into_iter()
            .map(str::to_owned)
            .collect(),
        ignore_store_read_error: value.get(UNSAFE_DELETION).and_then(Value::as_bool).unwrap_or_default(),
    }
}

/// Returns the 400 for a body of a kind that the subresource does not accept.
fn not_of_kind(wanted: BodyKind, (version, kind): (&str, &str), body: &Value) -> ApiError {
    let (_, short) = version.split_once('/').unwrap_or(("", version));
    let why = schema::problem_of_other_kind((wanted.group, wanted.kind), (version, kind), body);
    let wanted = wanted.kind;
    ApiError::bad_request(format!("{kind} in version {short:?} cannot be handled as a {wanted}: {why}"))
}
