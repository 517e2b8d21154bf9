//! Tables: what `kubectl get` shows.

use gc_registry::api::Object;
use gc_registry::error::ApiError;
use gc_registry::resource::ResourceDefinition;
use serde_json::{Value, json};

use crate::negotiate::Representation;
use crate::render::{self, IncludeObject};

/// The table form of one resource, at the time of one request (ages count from it).
pub(crate) struct Table {
    columns: Value,
    now: jiff::Timestamp,
}

impl Table {
    /// The table of a resource.
    pub(crate) fn of(definition: &ResourceDefinition, now: jiff::Timestamp) -> Self {
        let _ = definition;
        let columns = json!([
            {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0},
            {"name": "Created At", "type": "date", "format": "", "description": "", "priority": 0},
        ]);
        Self { columns, now }
    }

    /// `columnDefinitions`
    pub(crate) fn columns_json(&self) -> String {
        self.columns.to_string()
    }

    /// Appends one row.
    pub(crate) fn row(
        &self,
        out: &mut Vec<u8>,
        object: &Object,
        include: IncludeObject,
        representation: Representation,
    ) -> Result<(), ApiError> {
        let _ = self.now;
        let value = object.value()?;
        let cells = json!([value.pointer("/metadata/name"), value.pointer("/metadata/creationTimestamp")]);
        out.extend_from_slice(b"{\"cells\":");
        serde_json::to_writer(&mut *out, &cells).map_err(ApiError::internal)?;
        out.extend_from_slice(b",\"object\":");
        match include {
            IncludeObject::None => out.extend_from_slice(b"null"),
            IncludeObject::Metadata => render::metadata_json(out, object, representation)?,
            IncludeObject::Object => object.write_json(out, true)?,
        }
        out.push(b'}');
        Ok(())
    }

    /// A table of one row; `with_columns` is false for the later events of a watch.
    pub(crate) fn single_with(
        &self,
        out: &mut Vec<u8>,
        object: &Object,
        include: IncludeObject,
        representation: Representation,
        with_columns: bool,
    ) -> Result<(), ApiError> {
        let metadata = object.metadata()?;
        let meta = json!({"resourceVersion": metadata.get("resourceVersion")});
        let columns = if with_columns { self.columns_json() } else { "null".into() };
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

    /// A table of one row.
    pub(crate) fn single(
        &self,
        out: &mut Vec<u8>,
        object: &Object,
        include: IncludeObject,
        representation: Representation,
    ) -> Result<(), ApiError> {
        self.single_with(out, object, include, representation, true)
    }
}
