//! What stands on the wire: protobuf and JSON bodies of the API, as far as metadata goes.

pub mod frames;
pub mod interner;
pub mod metadata;
pub mod protobuf;
