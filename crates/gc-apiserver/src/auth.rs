//! Authentication and authorization: certificates, tokens, roles and escalation checks.

pub(crate) mod access;
pub(crate) mod aggregation;
pub(crate) mod authentication;
pub(crate) mod certificates;
pub(crate) mod client_certificates;
pub(crate) mod cluster_keys;
pub(crate) mod escalation;
pub(crate) mod front_proxy;
pub(crate) mod impersonation;
pub(crate) mod kubeconfig;
pub(crate) mod pki;
pub(crate) mod rbac;
pub(crate) mod request_headers;
pub(crate) mod sessions;
pub(crate) mod shared_files;
pub(crate) mod static_tokens;
pub(crate) mod tls_settings;
pub(crate) mod token_keys;
pub(crate) mod tokens;
pub(crate) mod websocket_token;
