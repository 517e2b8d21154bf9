//! Data that authentication and authorization of requests need.

use std::sync::Arc;

use super::rbac::Rbac;
use super::request_headers::RequestHeaders;
use super::static_tokens::Authenticator;
use super::tokens::TokenSigner;

/// Authentication and authorization of requests.
pub(crate) struct Access {
    /// Tokens from a file, and the administrator's token.
    pub(crate) static_tokens: Authenticator,
    /// Service-account tokens.
    pub(crate) signer: TokenSigner,
    /// Proxies that name the user in headers.
    pub(crate) front_proxy: Option<RequestHeaders>,
    /// True if requests without credentials are served.
    pub(crate) admits_anonymous: bool,
    /// Authorizer of requests.
    pub(crate) rbac: Arc<Rbac>,
}
