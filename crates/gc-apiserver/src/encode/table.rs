//! Tables, as shown by `kubectl get`.

use std::borrow::Cow;
use std::sync::Arc;

use gc_registry::api::Object;
use gc_registry::error::ApiError;
use gc_registry::numbers::write_json;
use gc_registry::ordered::InOrder;
use gc_registry::resource::{ResourceDefinition, Target};
use gc_registry::{kinds, names};
use serde_json::{Value, json};

use crate::encode::negotiate::Representation;

/// Part of each object that a table's rows carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum IncludeObject {
    /// Nothing.
    None,
    /// The metadata (the default).
    Metadata,
    /// All.
    Object,
}

impl IncludeObject {
    /// Parses the `includeObject` parameter.
    pub(crate) fn parse(text: Option<&str>) -> Result<Self, ApiError> {
        match text {
            None | Some("" | "Metadata") => Ok(Self::Metadata),
            Some("None") => Ok(Self::None),
            Some("Object") => Ok(Self::Object),
            Some(other) => Err(ApiError::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', \
                 'Object', 'None', or empty",
                names::quoted(other)
            ))),
        }
    }
}

/// The table form of one resource, at the time of one request (ages count from it).
pub(crate) struct Table {
    definition: Arc<ResourceDefinition>,
    now: jiff::Timestamp,
    of_scales: bool,
}

impl Table {
    /// Creates the table of a resource.
    pub(crate) fn of(definition: &Arc<ResourceDefinition>, now: jiff::Timestamp) -> Self {
        Self { definition: Arc::clone(definition), now, of_scales: false }
    }

    /// Returns the table for a kind: unchanged, or with the columns of Scales.
    pub(crate) fn for_kind(self, kind: &str) -> Self {
        Self { of_scales: kind == "Scale" && *self.definition.kind != *kind, ..self }
    }

    fn target(&self) -> Target<'_> {
        let definition = &self.definition;
        if self.of_scales {
            return Target { group: "autoscaling", version: "v1", resource: "scales", subresource: None };
        }
        Target {
            group: &definition.group,
            version: &definition.version,
            resource: &definition.resource,
            subresource: None,
        }
    }

    /// Returns the `columnDefinitions`.
    pub(crate) fn columns(&self) -> Value {
        match &self.definition.custom {
            Some(custom) if !self.of_scales => custom
                .columns()
                .iter()
                .map(|column| {
                    json!({
                        "name": *column.name, "type": *column.r#type, "format": *column.format,
                        "description": *column.description, "priority": column.priority,
                    })
                })
                .collect(),
            _ => kinds::columns(self.target()).iter().map(kinds::Column::to_value).collect(),
        }
    }

    fn cells(&self, object: &Value) -> Vec<Value> {
        match &self.definition.custom {
            Some(custom) if !self.of_scales => {
                custom.columns().iter().map(|column| column.cell(object, self.now)).collect()
            }
            _ => kinds::cells(self.target(), object, self.now),
        }
    }

    /// Reports whether the kind has no columns of its own upstream, where such tables are built elsewhere.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(
            (&*self.definition.group, &*self.definition.resource),
            ("storage.k8s.io", "csistoragecapacities")
                | ("rbac.authorization.k8s.io", "roles" | "clusterroles")
                | ("", "limitranges")
                | ("apiextensions.k8s.io", "customresourcedefinitions")
                | ("apiregistration.k8s.io", "apiservices")
        )
    }

    /// Appends one row.
    pub(crate) fn row(
        &self,
        out: &mut Vec<u8>,
        object: &Object,
        include: IncludeObject,
        representation: Representation,
    ) -> Result<(), ApiError> {
        let value = object.value()?;
        out.extend_from_slice(b"{\"cells\":");
        write_json(out, &self.cells(value)).map_err(ApiError::internal)?;
        let conditions = match self.definition.custom {
            None => kinds::row_conditions(self.target(), value),
            Some(_) => Vec::new(),
        };
        if !conditions.is_empty() {
            out.extend_from_slice(b",\"conditions\":");
            serde_json::to_writer(&mut *out, &conditions).map_err(ApiError::internal)?;
        }
        out.extend_from_slice(b",\"object\":");
        match include {
            IncludeObject::None => out.extend_from_slice(b"null"),
            IncludeObject::Metadata => metadata_json(out, object, representation)?,
            IncludeObject::Object => object.write_json(out, true)?,
        }
        out.push(b'}');
        Ok(())
    }

    /// Appends a table with one row; all but the first event of a watch omit the columns.
    pub(crate) fn single(
        &self,
        out: &mut Vec<u8>,
        object: &Object,
        include: IncludeObject,
        representation: Representation,
        with_columns: bool,
    ) -> Result<(), ApiError> {
        let metadata = object.metadata()?;
        // An object from a dry run has no version.
        let meta = match metadata.get("resourceVersion") {
            Some(version) => json!({"resourceVersion": version}),
            None => json!({}),
        };
        let columns = if with_columns { self.columns() } else { Value::Null };
        out.extend_from_slice(
            format!(
                "{{\"kind\":\"Table\",\"apiVersion\":\"{}\",\"metadata\":{meta},\"columnDefinitions\":{columns},\"rows\":[",
                representation.meta_version()
            )
            .as_bytes(),
        );
        self.row(out, object, include, representation)?;
        out.extend_from_slice(b"]}");
        Ok(())
    }
}

/// Annotation for a former field of DaemonSets, which upstream adds to the object but not to metadata shown alone.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Reports whether the metadata shown alone lacks an annotation of the object.
pub(crate) fn hides_annotation(object: &Object) -> bool {
    &*object.type_meta().kind == "DaemonSet" && &*object.type_meta().api_version == "apps/v1"
}

/// Returns the `metadata` as shown without the rest of the object.
pub(crate) fn shown_metadata(object: &Object) -> Result<Cow<'_, Value>, ApiError> {
    let metadata = object.metadata()?;
    let annotations = metadata.get("annotations").and_then(Value::as_object);
    let Some(annotations) = annotations.filter(|all| all.contains_key(TEMPLATE_GENERATION)) else {
        return Ok(Cow::Borrowed(metadata));
    };
    if !hides_annotation(object) {
        return Ok(Cow::Borrowed(metadata));
    }
    let mut rest = annotations.clone();
    rest.remove(TEMPLATE_GENERATION);
    let mut metadata = metadata.clone();
    if let Some(members) = metadata.as_object_mut() {
        members.remove("annotations");
        if !rest.is_empty() {
            members.insert("annotations".into(), rest.into());
        }
    }
    Ok(Cow::Owned(metadata))
}

/// Appends PartialObjectMetadata as JSON.
pub(crate) fn metadata_json(
    out: &mut Vec<u8>,
    object: &Object,
    representation: Representation,
) -> Result<(), ApiError> {
    let metadata = shown_metadata(object)?;
    out.extend_from_slice(b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"");
    out.extend_from_slice(representation.meta_version().as_bytes());
    out.extend_from_slice(b"\",\"metadata\":");
    serde_json::to_writer(&mut *out, &InOrder::of_metadata(&metadata)).map_err(ApiError::internal)?;
    out.push(b'}');
    Ok(())
}
