//! Processing of custom resources: pruning, defaults, preparation of writes, conversion, scale.

use serde_json::{Map, Value, json};

use super::{CustomVersion, cel, field, validate};
use crate::error::{ApiError, CauseReason, FieldError};
use crate::metadata::numbers;
use crate::schema;

/// Reports whether two objects differ outside their metadata.
fn content_differs(a: &Value, b: &Value) -> bool {
    let content = |value: &Value| -> Vec<(String, Value)> {
        value
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(name, _)| *name != "metadata")
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    };
    content(a) != content(b)
}

fn set_generation(object: &mut Value, generation: i64) {
    if let Some(map) = object.as_object_mut() {
        let metadata = map.entry("metadata").or_insert_with(|| json!({}));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("generation".into(), generation.into());
        }
    }
}

fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or_default()
}

impl CustomVersion {
    /// Drops the fields that the schema does not specify; returns them in the wording of strict decoding, such as `unknown field
    /// "spec.colour"`.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        let unknown = schema::unknown_fields(&self.schema, object);
        if !unknown.is_empty() {
            schema::prune(&self.schema, object);
        }
        unknown
    }

    /// Fills in the defaults of the schema, and drops nulls that the schema does not permit. Returns false if the defaults exceed
    /// the size of an object.
    pub fn apply_defaults(&self, object: &mut Value) -> bool {
        schema::apply_defaults(&self.schema, object)
    }

    /// Fills in the defaults of an applied object. Nulls stay, so that they are refused.
    pub fn apply_defaults_beside_nulls(&self, object: &mut Value) -> bool {
        schema::apply_defaults_beside_nulls(&self.schema, object)
    }

    /// Prepares an object for its creation: generation 1, and no status if status is a subresource.
    pub fn prepare_create(&self, object: &mut Value) {
        if self.has_status
            && let Some(map) = object.as_object_mut()
        {
            map.remove("status");
        }
        set_generation(object, 1);
        numbers::settle_whole(object);
    }

    /// Prepares an update. The main endpoint keeps the stored status if status is a subresource; the status endpoint keeps
    /// everything else, even metadata other than managedFields. At the main endpoint, increases the generation if anything outside
    /// metadata changes.
    pub fn prepare_update(&self, object: &mut Value, stored: &Value, subresource: &str) {
        if subresource == "status" {
            keep_all_but_status(object, stored);
            numbers::settle_whole(object);
            return;
        }
        if self.has_status
            && let Some(map) = object.as_object_mut()
        {
            match stored.get("status") {
                Some(status) => {
                    map.insert("status".into(), status.clone());
                }
                None => {
                    map.remove("status");
                }
            }
        }
        let raised = i64::from(content_differs(object, stored));
        set_generation(object, generation(stored).saturating_add(raised));
        numbers::settle_whole(object);
    }

    /// Checks an object against kind, schema and scale. With `stored`, checks it as an update, which skips unchanged parts.
    /// Metadata is checked elsewhere, as for all kinds.
    #[must_use]
    pub fn validate(&self, object: &Value, stored: Option<&Value>) -> Vec<FieldError> {
        let mut problems = self.validate_type(object);
        if !problems.is_empty() {
            return problems;
        }
        problems.extend(validate::values(&self.schema, "", object, stored));
        self.validate_scale_spec(object, &mut problems);
        self.validate_scale_status(object, &mut problems);
        validate::embedded_resources(&self.schema, "", object, &mut problems);
        self.validate_list_types(object, stored, &mut problems);
        self.validate_rules(object, stored, &mut problems);
        problems
    }

    /// Evaluates rules, but only for values of the correct shape.
    fn validate_rules(&self, object: &Value, stored: Option<&Value>, problems: &mut Vec<FieldError>) {
        if self.programs.is_empty() {
            return;
        }
        let blocks = |problem: &FieldError| {
            use CauseReason::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
            matches!(problem.reason, NotSupported | Required | TooLong | TooMany | TypeInvalid)
        };
        if problems.iter().any(blocks) {
            let why = "some validation rules were not checked because the object was invalid; correct the \
                       existing errors to complete validation";
            problems.push(field::error("<nil>", CauseReason::Invalid, format!("Invalid value: null: {why}")));
        } else {
            let changed = cel::RuleSelection::Changed;
            problems.extend(cel::check(&self.schema, &self.programs, "", object, stored, changed));
        }
    }

    /// Returns a warning for each rule violated by a stored part that does not change.
    #[must_use]
    pub fn ratcheted(&self, object: &Value, stored: Option<&Value>) -> Vec<String> {
        if stored.is_none() || self.programs.is_empty() {
            return Vec::new();
        }
        cel::check(&self.schema, &self.programs, "", object, stored, cel::RuleSelection::Unchanged)
            .into_iter()
            .map(|problem| format!("{}: {}", problem.field, problem.detail))
            .collect()
    }

    /// Checks an update of the status endpoint.
    #[must_use]
    pub fn validate_status(&self, object: &Value, stored: &Value) -> Vec<FieldError> {
        let mut problems = self.validate_type(object);
        if !problems.is_empty() {
            return problems;
        }
        if let (Some(status), Some(schema)) = (object.get("status"), self.schema.field("status")) {
            let old = stored.get("status");
            problems.extend(validate::values(schema, "status", status, old));
        }
        self.validate_scale_status(object, &mut problems);
        validate::embedded_resources(&self.schema, "", object, &mut problems);
        self.validate_list_types(object, Some(stored), &mut problems);
        self.validate_rules(object, Some(stored), &mut problems);
        problems
    }

    fn validate_list_types(&self, object: &Value, stored: Option<&Value>, problems: &mut Vec<FieldError>) {
        let mut old_problems = Vec::new();
        if let Some(stored) = stored {
            validate::list_types(&self.schema, "", stored, &mut old_problems);
        }
        if old_problems.is_empty() {
            validate::list_types(&self.schema, "", object, problems);
        }
    }

    fn validate_type(&self, object: &Value) -> Vec<FieldError> {
        let mut problems = Vec::new();
        for (name, wanted) in [("kind", &*self.kind), ("apiVersion", &*self.api_version)] {
            let actual = object[name].as_str().unwrap_or_default();
            if actual != wanted {
                problems.push(field::invalid_text(name, actual, &format!("must be {wanted}")));
            }
        }
        problems
    }

    fn validate_scale_spec(&self, object: &Value, problems: &mut Vec<FieldError>) {
        if let Some(scale) = &self.scale {
            check_replicas(object, &scale.spec_replicas, problems);
        }
    }

    fn validate_scale_status(&self, object: &Value, problems: &mut Vec<FieldError>) {
        let Some(scale) = &self.scale else { return };
        check_replicas(object, &scale.status_replicas, problems);
        if let Some(path) = &scale.label_selector
            && let Some(other) = nested(object, path).filter(|value| !value.is_string())
        {
            let why = wrong_accessor(path, other, "string");
            problems.push(field::invalid_text(path.to_string(), "", &why));
        }
    }

    /// Returns the `Scale` of an object (`autoscaling/v1`).
    pub fn scale(&self, object: &Value) -> Result<Value, ApiError> {
        let Some(scale) = &self.scale else {
            return Err(ApiError::internal("the resource has no scale subresource"));
        };
        let Some(replicas) = nested(object, &scale.spec_replicas) else {
            return Err(ApiError::internal(format!(
                "the spec replicas field \"{}\" does not exist",
                scale.spec_replicas
            )));
        };
        let replicas = whole_number(&scale.spec_replicas, replicas)?;
        let current = match nested(object, &scale.status_replicas) {
            Some(value) => whole_number(&scale.status_replicas, value)?,
            None => 0,
        };
        let mut metadata = Map::new();
        for name in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            if let Some(value) = object["metadata"].get(name) {
                metadata.insert(name.into(), value.clone());
            }
        }
        let mut spec = json!({});
        if replicas != 0 {
            spec["replicas"] = replicas.into();
        }
        let mut status = json!({"replicas": current});
        if let Some(selector) = scale.label_selector.as_ref().and_then(|path| nested(object, path)) {
            status["selector"] = selector.clone();
        }
        Ok(json!({
            "kind": "Scale", "apiVersion": "autoscaling/v1",
            "metadata": metadata, "spec": spec, "status": status,
        }))
    }

    /// Returns the path of the replicas in objects of this version, if they have a Scale.
    #[must_use]
    pub fn replicas_path(&self) -> Option<&str> {
        self.scale.as_ref().map(|scale| &*scale.spec_replicas)
    }

    /// Sets the replicas of an object without any to 0, because the write of its `Scale` may be the first to set them. Returns
    /// whether they were missing.
    pub fn settle_replicas(&self, object: &mut Value) -> Result<bool, ApiError> {
        match &self.scale {
            Some(scale) if nested(object, &scale.spec_replicas).is_none() => {
                set_nested(object, &scale.spec_replicas, 0.into())?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Writes the wanted replicas of a `Scale` into an object.
    pub fn apply_scale(&self, object: &mut Value, wanted: &Value) -> Result<(), ApiError> {
        let Some(scale) = &self.scale else {
            return Err(ApiError::internal("the resource has no scale subresource"));
        };
        // Zero replicas are omitted on the wire.
        let replicas = match &wanted["spec"]["replicas"] {
            Value::Null => 0,
            value => whole_number("spec.replicas", value)?,
        };
        set_nested(object, &scale.spec_replicas, replicas.into())
    }

    /// Returns the values of the fields that field selectors may name, except those of metadata.
    #[must_use]
    pub fn selectable_values(&self, object: &Value) -> Vec<(String, String)> {
        let value_of = |path: &str| match nested(object, path) {
            Some(Value::String(text)) => text.clone(),
            None | Some(Value::Null) => String::new(),
            Some(other) => field::printed(other),
        };
        self.selectable_fields.iter().map(|path| (path.to_string(), value_of(path))).collect()
    }
}

/// Restores everything but the status at the status endpoint, except the metadata that is compared (resourceVersion, uid) or
/// written (managedFields) with the request.
fn keep_all_but_status(object: &mut Value, stored: &Value) {
    let Some(new) = object.as_object_mut() else { return };
    let status = new.remove("status");
    let metadata = new.remove("metadata").unwrap_or_default();
    let mut kept = stored.clone();
    if let Some(kept) = kept.as_object_mut() {
        match status {
            Some(status) => kept.insert("status".into(), status),
            None => kept.remove("status"),
        };
        for name in ["apiVersion", "kind"] {
            if let Some(value) = new.remove(name) {
                kept.insert(name.into(), value);
            }
        }
        if let Some(kept_metadata) = kept.get_mut("metadata").and_then(Value::as_object_mut) {
            for name in ["resourceVersion", "uid", "managedFields"] {
                match metadata.get(name) {
                    Some(value) => kept_metadata.insert(name.into(), value.clone()),
                    None => kept_metadata.remove(name),
                };
            }
        }
    }
    *object = kept;
}

/// Returns the value at a path such as `.spec.replicas`.
fn nested<'v>(object: &'v Value, path: &str) -> Option<&'v Value> {
    path.trim_start_matches('.').split('.').try_fold(object, |value, name| value.as_object()?.get(name))
}

fn set_nested(object: &mut Value, path: &str, value: Value) -> Result<(), ApiError> {
    let mut place = object;
    for name in path.trim_start_matches('.').split('.') {
        let Some(map) = place.as_object_mut() else {
            return Err(ApiError::internal(format!("value cannot be set because {path} is not an object")));
        };
        place = map.entry(name).or_insert_with(|| json!({}));
    }
    *place = value;
    Ok(())
}

pub(crate) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

fn wrong_accessor(path: &str, value: &Value, wanted: &str) -> String {
    let printed = value.as_str().map_or_else(|| field::printed(value), str::to_owned);
    format!("{path} accessor error: {printed} is of the type {}, expected {wanted}", go_type(value))
}

fn whole_number(path: &str, value: &Value) -> Result<i64, ApiError> {
    value.as_i64().ok_or_else(|| ApiError::internal(wrong_accessor(path, value, "int64")))
}

fn check_replicas(object: &Value, path: &str, problems: &mut Vec<FieldError>) {
    let Some(value) = nested(object, path) else { return };
    let Some(replicas) = value.as_i64() else {
        problems.push(field::invalid(path, &0.into(), &wrong_accessor(path, value, "int64")));
        return;
    };
    if replicas < 0 {
        problems.push(field::invalid(path, value, "should be a non-negative integer"));
    } else if replicas > i64::from(i32::MAX) {
        let why = format!("should be less than or equal to {}", i32::MAX);
        problems.push(field::invalid(path, value, &why));
    }
}
