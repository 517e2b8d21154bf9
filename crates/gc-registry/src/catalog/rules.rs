//! Dispatch by kind: the rules of built-in kinds, of custom resources, or of definitions.

use std::sync::Arc;

use serde_json::Value;

use crate::api::{FieldValidation, RequestContext, RequestTarget, decoding_warnings};
use crate::crd::{self, CustomVersion};
use crate::error::{ApiError, FieldError};
use crate::kinds;
use crate::metadata::numbers;
use crate::resource::{ResourceDefinition, Target};
use crate::schema::{self, Empties, Schema};

/// Rules for one request.
#[derive(Clone, Copy)]
pub(crate) struct Rules<'a> {
    resource: &'a ResourceDefinition,
    subresource: &'a str,
    context: &'a RequestContext<'a>,
}

/// Returns the part of a kind's rules that does not depend on the request.
fn target_of<'a>(resource: &'a ResourceDefinition, subresource: &'a str) -> Target<'a> {
    Target { subresource: (!subresource.is_empty()).then_some(subresource), ..resource.target() }
}

/// Reports whether the resource is the one for custom resource definitions.
pub(crate) fn is_definition(resource: &ResourceDefinition) -> bool {
    resource.is_of_definitions()
}

/// Returns the schema of a resource: of its built-in kind, or of the version in its definition.
pub(crate) fn schema(resource: &ResourceDefinition) -> Arc<Schema> {
    match &resource.custom {
        Some(custom) => Arc::clone(custom.schema()),
        None => schema::builtin(&resource.group, &resource.version, &resource.kind).unwrap_or_default(),
    }
}

/// Returns fields that field selectors may name in addition to name and namespace, with their values.
pub(crate) fn selectable_fields(resource: &ResourceDefinition, object: &Value) -> Vec<(String, String)> {
    match &resource.custom {
        Some(custom) => custom.selectable_values(object),
        None => kinds::selectable_fields(target_of(resource, ""), object)
            .into_iter()
            .filter(|(name, _)| !matches!(*name, "metadata.name" | "metadata.namespace"))
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    }
}

/// Returns the message for an unknown field selector, with `{}` for the field, if upstream converts the kind's field labels
/// separately.
pub(crate) fn words_for_field_labels(resource: &ResourceDefinition) -> Option<&'static str> {
    let converts = match &resource.custom {
        None => !selectable_fields(resource, &Value::Null).is_empty(),
        Some(custom) => !custom.selectable_fields().is_empty(),
    };
    converts.then(|| kinds::unknown_field_label(target_of(resource, "")))
}

impl<'a> Rules<'a> {
    pub(crate) fn new(target: &'a RequestTarget, context: &'a RequestContext<'a>) -> Self {
        Self { resource: &target.resource, subresource: &target.subresource, context }
    }

    fn target(&self) -> Target<'a> {
        target_of(self.resource, self.subresource)
    }

    fn kinds_context(&self) -> kinds::Context<'a> {
        kinds::Context { now: self.context.now, user: self.context.user }
    }

    /// Brings an external document into the form of its type: checks types, fills in defaults, and drops unknown fields, refuses
    /// them, or warns about them. Returns warnings.
    pub(crate) fn decode(
        &self,
        object: &mut Value,
        sent: (&[String], &[u8]),
        validation: FieldValidation,
    ) -> Result<Vec<String>, Strictness> {
        self.decode_with(object, sent, validation, CustomVersion::apply_defaults)
    }

    /// Decodes an object like [`Self::decode`], after an apply has merged it, and keeps its nulls.
    pub(crate) fn decode_merged(&self, object: &mut Value) -> Result<(), Strictness> {
        let defaults = CustomVersion::apply_defaults_beside_nulls;
        self.decode_with(object, (&[], &[]), FieldValidation::Ignore, defaults).map(drop)
    }

    fn decode_with(
        &self,
        object: &mut Value,
        (duplicates, text): (&[String], &[u8]),
        validation: FieldValidation,
        apply_custom_defaults: fn(&CustomVersion, &mut Value) -> bool,
    ) -> Result<Vec<String>, Strictness> {
        let mut problems: Vec<String> = Vec::new();
        if let Some(custom) = &self.resource.custom {
            let meta_schema = schema::object_meta();
            if let Some(metadata) = object.get_mut("metadata") {
                Self::check_metadata(meta_schema, metadata)?;
                problems.extend(
                    schema::unknown_fields(meta_schema, metadata)
                        .into_iter()
                        .map(|text| text.replacen("unknown field \"", "unknown field \"metadata.", 1)),
                );
                schema::normalize(meta_schema, metadata, Empties::Kept);
            }
            problems.extend(custom.prune(object));
            problems.sort();
            problems.splice(0..0, duplicates.iter().cloned());
            if !apply_custom_defaults(custom, object) {
                return Err(Strictness::TooLarge);
            }
        } else {
            let schema = schema(self.resource);
            schema::check_types(&schema, object).map_err(|why| Self::undecodable(&why))?;
            if validation != FieldValidation::Ignore {
                problems = schema::strict_problems(&schema, object, duplicates, text);
            }
            schema::normalize(&schema, object, Empties::Kept);
            if is_definition(self.resource) {
                // Defaults, examples and enumerations may contain any values.
                numbers::settle_whole(object);
            }
        }
        crate::metadata::meta::normalize(object);
        self.apply_defaults(object);
        match validation {
            FieldValidation::Ignore => Ok(Vec::new()),
            FieldValidation::Warn => Ok(decoding_warnings(problems)),
            FieldValidation::Strict if problems.is_empty() => Ok(problems),
            FieldValidation::Strict => Err(Strictness::Strict(problems)),
        }
    }

    fn check_metadata(schema: &Schema, metadata: &Value) -> Result<(), Strictness> {
        if !metadata.is_object() && !metadata.is_null() {
            return Err(Self::undecodable("json: cannot unmarshal metadata: it is not an object"));
        }
        schema::check_types(schema, metadata).map_err(|why| Self::undecodable(&why))
    }

    fn undecodable(why: &str) -> Strictness {
        Strictness::Undecodable(why.to_owned())
    }

    /// Returns a 400 for a body that does not match the type.
    pub(crate) fn bad_body(&self, why: &str) -> ApiError {
        let (kind, version) = (&self.resource.kind, &self.resource.version);
        ApiError::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"))
    }

    fn apply_defaults(&self, object: &mut Value) {
        if is_definition(self.resource) {
            crd::apply_defaults(object);
        } else if self.resource.custom.is_none() {
            kinds::apply_defaults(self.target(), object);
        }
    }

    /// Resets the fields that a create may not set: clears status, initializes the generation.
    pub(crate) fn prepare_create(&self, object: &mut Value) {
        if let Some(custom) = &self.resource.custom {
            custom.prepare_create(object);
        } else if is_definition(self.resource) {
            crd::prepare_create(object);
        } else {
            kinds::prepare_for_create(self.target(), object, &self.kinds_context());
        }
    }

    /// Restores the fields that an update may not change: keeps status or spec, and increases the generation.
    pub(crate) fn prepare_update(&self, new: &mut Value, old: &Value) {
        // A Scale changes the spec like a write of the object itself.
        let subresource = if self.subresource == "scale" { "" } else { self.subresource };
        if let Some(custom) = &self.resource.custom {
            custom.prepare_update(new, old, subresource);
        } else if is_definition(self.resource) {
            if self.subresource == "status" {
                crd::prepare_status_update(new, old);
            } else {
                crd::prepare_update(new, old);
            }
        } else {
            kinds::prepare_for_update(target_of(self.resource, subresource), new, old, &self.kinds_context());
        }
    }

    /// Completes a document as if it had been stored and read again: fills in zero values that are always encoded.
    pub(crate) fn finish(&self, object: &mut Value) {
        if self.resource.custom.is_some() {
            return;
        }
        // Definitions and APIServices are stored as JSON, which can represent empty lists.
        let as_json = matches!(&*self.resource.group, "apiextensions.k8s.io" | "apiregistration.k8s.io");
        let empties = if as_json { Empties::Kept } else { Empties::Null };
        schema::normalize(&schema(self.resource), object, empties);
    }

    /// Returns the errors of a new object, except those of its metadata.
    pub(crate) fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        if let Some(custom) = &self.resource.custom {
            custom.validate(object, None)
        } else if is_definition(self.resource) {
            crd::validate_create(object)
        } else {
            kinds::validate(self.target(), object)
        }
    }

    /// Returns the errors of an update, except those of its metadata.
    pub(crate) fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        if let Some(custom) = &self.resource.custom {
            return match self.subresource {
                "status" => custom.validate_status(new, old),
                _ => custom.validate(new, Some(old)),
            };
        }
        if is_definition(self.resource) {
            return match self.subresource {
                "status" => crd::validate_status_update(new),
                _ => crd::validate_update(new, old),
            };
        }
        kinds::validate_update(self.target(), new, old, Some(self.context.now))
    }

    /// Lets the rules that are declared with the types of a built-in kind replace the written ones.
    pub(crate) fn take_over(&self, new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
        if self.resource.custom.is_none() {
            kinds::take_over(new, old, errors);
        }
    }

    /// Warnings for a valid object.
    pub(crate) fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        if let Some(custom) = &self.resource.custom {
            custom.ratcheted(new, old)
        } else if is_definition(self.resource) {
            crd::warnings(new, old)
        } else {
            kinds::warnings(self.target(), new, old)
        }
    }
}

/// Reason why a document was not accepted.
pub(crate) enum Strictness {
    /// The document does not match the type, for this reason.
    Undecodable(String),
    /// The document has these unknown or duplicate fields, and strict validation was requested.
    Strict(Vec<String>),
    /// With its defaults, the document exceeds the size of an object.
    TooLarge,
}

impl Strictness {
    /// Returns a 413, as for an object that is too large for the store.
    pub(crate) fn too_large() -> ApiError {
        let message = format!("Request entity too large: limit is {}", schema::MAX_DEFAULTED_BYTES);
        ApiError::new(413, "RequestEntityTooLarge", message)
    }
}
