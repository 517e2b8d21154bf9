//! What stands on the wire: protobuf and JSON bodies of the API, as far as metadata goes.

#[cfg(any(test, fuzzing))]
pub(crate) mod encoded;
pub mod frames;
pub mod interner;
pub mod metadata;
pub mod protobuf;
