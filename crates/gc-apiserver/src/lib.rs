//! The embedded Kubernetes-compatible API server: HTTP over the registry.
//!
//! A request passes the same stages as in kube-apiserver: its path is parsed (`transport::path`), its credentials identify the user
//! (`auth::authentication`), roles decide whether it is allowed (`auth::rbac`), the body is decoded (`encode::decode`), the
//! registry executes it, and the answer is written in the negotiated representation (`encode::{negotiate, render, list}`,
//! `exchange::watching`).

mod aggregator;
mod api_documents;
mod auth;
mod deadline;
mod encode;
mod exchange;
mod exposition;
mod fairness;
mod flow_metrics;
mod follow;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod identity;
mod loss_metrics;
mod metrics;
mod serve;
mod server;
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
pub use server::config::{AccessConfig, ClusterConfig, ServerConfig};
pub use server::in_process::{InProcess, WeakInProcess};
pub use server::listener::{Listener, Peer};
pub use server::listener_tls::ListenerTls;
pub use server::peers::PeerTiming;
pub use server::{RunningServer, Server, StartError};
pub use state::Clock;
pub use state::extension::{
    Audience, Extension, ExtensionAnswer, ExtensionBody, ExtensionRequest, SharedBody,
};
pub use state::readings::SharedReadings;
pub use transport::account::MemoryBudget;
pub use transport::query::query_pairs;
pub use transport::streams::CutOff;
