//! Paths that the surrounding program answers: the page and its API.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use gc_registry::api::UserInfo;
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Method, StatusCode};

use crate::auth::sessions::{Origin, Sessions};
use crate::exchange::{Answer, packed, packed_answer, text_answer};

/// Access rule for a path of an [`Extension`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Users with permission for the path (`nonResourceURLs`).
    Permitted,
    /// Any authenticated user: the extension answers with that user's permissions.
    Authenticated,
    /// Everybody.
    Anyone,
}

/// An authorized request for a path of an [`Extension`].
#[derive(Debug)]
pub struct ExtensionRequest {
    /// Method.
    pub method: Method,
    /// Decoded path, without a trailing slash.
    pub path: String,
    /// Decoded query.
    pub query: Vec<(String, String)>,
    /// Headers.
    pub headers: HeaderMap,
    /// The body of a POST; empty for other methods.
    pub body: Bytes,
    /// The user, after impersonation.
    pub user: UserInfo,
    /// Credentials that the request itself presented; `None` in a session.
    pub origin: Option<Origin>,
}

/// The body of an answer.
pub enum ExtensionBody {
    /// A complete body.
    Whole(Bytes),
    /// A complete body shared by several requests.
    Shared(Arc<SharedBody>),
    /// Chunks, each produced when the client has room for it.
    Stream(BoxStream<'static, Bytes>),
}

/// A body shared by several requests. It is compressed once, when the first client asks for that.
#[derive(Debug)]
pub struct SharedBody {
    bytes: Bytes,
    packed: OnceLock<Option<Bytes>>,
}

impl SharedBody {
    /// Creates a body of these bytes.
    #[must_use]
    pub fn new(bytes: Bytes) -> Self {
        Self { bytes, packed: OnceLock::new() }
    }

    /// Returns the bytes, uncompressed.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    /// Returns the body as an answer.
    pub(crate) fn answer(&self, content_type: &'static str, gzip: bool) -> Answer {
        let compressed = if gzip { self.packed.get_or_init(|| packed(&self.bytes)).clone() } else { None };
        match compressed {
            Some(bytes) => packed_answer(bytes, content_type),
            None => text_answer(StatusCode::OK, content_type, self.bytes.clone()),
        }
    }
}

/// Answer of an extension.
pub struct ExtensionAnswer {
    /// Status code.
    pub code: u16,
    /// Media type.
    pub content_type: &'static str,
    /// Further headers.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Body.
    pub body: ExtensionBody,
}

impl ExtensionAnswer {
    /// Creates an answer with a JSON document.
    #[must_use]
    pub fn json(code: u16, document: &serde_json::Value) -> Self {
        let body = ExtensionBody::Whole(document.to_string().into());
        Self { code, content_type: "application/json", headers: Vec::new(), body }
    }
}

impl std::fmt::Debug for ExtensionAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExtensionAnswer").field("code", &self.code).finish_non_exhaustive()
    }
}

/// A handler of further paths.
pub trait Extension: Send + Sync + 'static {
    /// Returns the access rule of a path; `None` if the path does not belong to the extension.
    fn audience(&self, path: &str) -> Option<Audience>;

    /// Returns the sessions of browsers that need no other credentials, if there are any.
    fn sessions(&self) -> Option<&Sessions> {
        None
    }

    /// Reports whether a session suffices to access a path; other credentials always do.
    fn accepts_session(&self, _path: &str) -> bool {
        false
    }

    /// Answers a request; resolves to `None` if the path does not exist.
    fn answer(&self, request: ExtensionRequest) -> BoxFuture<'static, Option<ExtensionAnswer>>;
}
