//! The embedded Kubernetes-compatible API server: HTTP over the registry.
//!
//! A request passes the same stages as in kube-apiserver: its path says what it is about (`transport::path`),
//! credentials say who asks (`auth::authentication`), roles say whether that is allowed (`auth::rbac`), the body is
//! decoded (`encode::decode`), the registry does it, and the answer is written in the representation that was
//! negotiated (`encode::{negotiate, render, list}`, `serve::watching`).

mod aggregator;
mod auth;
mod deadline;
mod encode;
mod exposition;
mod fairness;
mod flow_metrics;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod identity;
mod loss_metrics;
mod metrics;
mod own;
mod serve;
mod state;
mod transport;
mod webhook_metrics;
mod work;
mod x509;

pub use auth::certificates::{
    CertificateAuthority, CertificateRequest, CertificateTerms, CertificateUsage, SigningError,
};
pub use auth::cluster_keys::{ClusterSecret, ClusterSecretError};
pub use auth::kubeconfig::ClientCredentials;
pub use auth::pki::{GivenKeys, PkiError, write_private};
pub use auth::rbac::AuthorizationMode;
pub use auth::request_headers::RequestHeaders;
pub use auth::sessions::{
    BearerToken, LINK_SECONDS, Origin, SESSION_SECONDS, SessionSource, Sessions, session_cookie,
};
pub use auth::tls_settings::{TlsSettingError, TlsSettings};
pub use auth::tokens::TokenSettings;
pub use exposition::exposition;
pub use metrics::catalogues;
pub use serve::extension::{
    Audience, Extension, ExtensionAnswer, ExtensionBody, ExtensionRequest, SharedBody,
};
pub use state::Clock;
pub use transport::account::MemoryBudget;
pub use transport::in_process::{InProcess, WeakInProcess};
pub use transport::listener::{Listener, Peer};
pub use transport::listener_tls::ListenerTls;
pub use transport::peers::PeerTiming;
pub use transport::query::query_pairs;
pub use transport::server::{RunningServer, Server, StartError};
pub use transport::server_config::{AccessConfig, ClusterConfig, ServerConfig};
