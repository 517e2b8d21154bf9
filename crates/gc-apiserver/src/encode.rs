//! Representations: bodies to values and back, as JSON, YAML, protobuf and tables.

pub(crate) mod decode;
pub(crate) mod documents;
pub(crate) mod list;
mod list_items;
pub(crate) mod list_lengths;
pub(crate) mod list_protobuf;
pub(crate) mod negotiate;
pub(crate) mod openapi_protobuf;
pub(crate) mod protobuf;
pub(crate) mod protobuf_answer;
mod protobuf_length;
pub(crate) mod protobuf_request;
pub(crate) mod protobuf_writer;
pub(crate) mod render;
pub(crate) mod stored_metadata;
pub(crate) mod table;
pub(crate) mod yaml;
