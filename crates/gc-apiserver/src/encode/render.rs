//! Single objects, events and Status in the requested representation.

use std::sync::Arc;

use gc_registry::api::Object;
use gc_registry::error::ApiError;
use gc_registry::numbers::write_json;
use gc_registry::ordered::InOrder;
use serde_json::Value;

use crate::encode::negotiate::{Encoding, Form, Representation};
use crate::encode::table::{IncludeObject, Table, metadata_json};
use crate::encode::{protobuf, protobuf_answer};

/// Writes a value in an encoding. In protobuf, a value without a message of its own is written as a Status.
pub(crate) fn value(value: &Value, representation: Representation) -> Vec<u8> {
    match representation.encoding {
        Encoding::Yaml => super::yaml::written(value).into_bytes(),
        Encoding::Protobuf => {
            let mut out = Vec::new();
            protobuf_answer::document(&mut out, value);
            out
        }
        Encoding::Json => {
            let ordered = InOrder::of(value);
            if representation.pretty {
                // Indented JSON is for people: no newline at the end, as upstream.
                return serde_json::to_vec_pretty(&ordered).unwrap_or_default();
            }
            let mut out = Vec::new();
            if write_json(&mut out, &ordered).is_err() {
                out.clear();
            }
            out.push(b'\n');
            out
        }
    }
}

/// Writes one object.
pub(crate) fn object(
    object: &Object,
    representation: Representation,
    table: impl FnOnce() -> Arc<Table>,
    include: IncludeObject,
) -> Result<Vec<u8>, ApiError> {
    let mut out = Vec::new();
    match (representation.form, representation.encoding) {
        (Form::Metadata, Encoding::Protobuf) => {
            protobuf::metadata_object(&mut out, representation.meta_version(), object)?;
            return Ok(out);
        }
        (Form::Object, Encoding::Json) if !representation.pretty => {
            object.write_json(&mut out, true)?;
            out.push(b'\n');
            return Ok(out);
        }
        (Form::Object, _) => return Ok(value(object.value()?, representation)),
        (Form::Metadata, _) => metadata_json(&mut out, object, representation)?,
        (Form::Table, _) => table().single(&mut out, object, include, representation, true)?,
    }
    if representation.pretty || representation.encoding == Encoding::Yaml {
        let plain: Value = serde_json::from_slice(&out).map_err(ApiError::internal)?;
        return Ok(value(&plain, representation));
    }
    out.push(b'\n');
    Ok(out)
}
