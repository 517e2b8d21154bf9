//! Documents that describe the API, written once for all clients: discovery and OpenAPI.

pub(crate) mod discovery;
pub(crate) mod openapi;
