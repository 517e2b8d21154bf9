//! The embedded Kubernetes-compatible API server: HTTP over the registry.
//!
//! A request goes through the same stations as in kube-apiserver: its path says what it is about (`path`),
//! credentials say who asks (`authentication`), roles say whether that is allowed (`rbac`), the body is
//! decoded (`decode`), the registry does it, and the answer is written in the representation that was
//! negotiated (`negotiate`, `render`, `list`, `watching`).

mod answers;
mod authentication;
mod body;
mod decode;
mod discovery;
mod documents;
mod escalation;
mod exchange;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod health;
mod in_process;
mod kubeconfig;
mod list;
mod metrics;
mod negotiate;
mod openapi;
mod openapi_protobuf;
mod path;
mod pki;
mod protobuf;
mod protobuf_request;
mod protobuf_writer;
mod query;
mod rbac;
mod render;
mod reviews;
mod server;
mod service;
mod stall;
mod state;
mod stored_metadata;
mod table;
mod token_request;
mod tokens;
mod watching;
mod work;

pub use in_process::InProcess;
pub use kubeconfig::ClientCredentials;
pub use pki::PkiError;
pub use server::{RunningServer, Server, ServerConfig, StartError};
