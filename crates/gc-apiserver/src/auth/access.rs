//! Data that authentication and authorization of requests need.

use std::sync::Arc;

use super::rbac::Rbac;
use super::request_headers::RequestHeaders;
use super::static_tokens::Authenticator;
use super::tokens::TokenSigner;

/// Authentication and authorization of requests.
pub(crate) struct Access {
    /// Tokens of a file, and the administrator's.
    pub(crate) static_tokens: Authenticator,
    /// Service-account tokens.
    pub(crate) signer: TokenSigner,
    /// Proxies that say in headers who asks.
    pub(crate) front_proxy: Option<RequestHeaders>,
    /// True if requests without credentials are answered.
    pub(crate) admits_anonymous: bool,
    /// Authorizer of requests.
    pub(crate) rbac: Arc<Rbac>,
}
