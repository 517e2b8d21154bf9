//! Serves a single request, from its header to its answer: resources, watches, discovery, OpenAPI, health, pages about the server,
//! and reviews.

pub(crate) mod connections;
pub(crate) mod discovery;
pub(crate) mod extension;
pub(crate) mod forward;
pub(crate) mod health;
pub(crate) mod log_options;
pub(crate) mod openapi;
pub(crate) mod operation;
pub(crate) mod reviews;
pub(crate) mod service;
pub(crate) mod token_request;
pub(crate) mod webhooks;
pub(crate) mod websocket;
pub(crate) mod zpages;
