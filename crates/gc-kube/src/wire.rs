//! Wire formats: protobuf and JSON bodies of the API, read for their metadata.

#[cfg(any(test, fuzzing))]
pub(crate) mod encoded;
pub mod frames;
pub mod interner;
pub mod metadata;
pub mod protobuf;
