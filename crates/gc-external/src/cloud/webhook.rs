//! A webhook that knows the machines: one POST per lookup.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use gc_collectors::engine::MachineState;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request, Uri};
use http_body_util::Full;
use tokio::sync::Semaphore;

use crate::cloud::client::{FetchError, Https, allowed, fetch, https, shown};
use crate::cloud::protocol::{self, AnswerError};
use crate::cloud::{ANSWER_TIMEOUT, MAX_ANSWER_BYTES, Machine, Provider, ProviderError, shortened};

/// Maximum number of concurrent lookups.
const QUESTIONS_AT_A_TIME: usize = 16;
const AGENT: &str = concat!("kubegc/", env!("CARGO_PKG_VERSION"));

/// Reason why a webhook gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// Not an allowed URL.
    #[error(
        "webhook {0:?}: expected https://HOST/PATH; http:// is only allowed for this machine (127.0.0.1, ::1)"
    )]
    Url(String),
    /// The certificate authorities cannot be used.
    #[error("certificate authorities {path}: {why}")]
    Authorities {
        /// The file; empty for those of this machine.
        path: PathBuf,
        /// The error.
        why: String,
    },
    /// The token cannot be read.
    #[error("token {path}: {why}")]
    Token {
        /// The file.
        path: PathBuf,
        /// The error.
        why: String,
    },
    /// There was no connection, or it broke.
    #[error("webhook {url}: {why}")]
    Connection {
        /// URL, without parts that may be a token; the same in the other errors.
        url: String,
        /// The cause.
        why: String,
    },
    /// There was no answer in time.
    #[error("webhook {url}: no answer within {limit:?}")]
    Timeout {
        /// The URL.
        url: String,
        /// The limit.
        limit: Duration,
    },
    /// The status was not 200; redirects are not followed.
    #[error("webhook {url}: it answered {code}: {text}")]
    Status {
        /// The URL.
        url: String,
        /// The status.
        code: u16,
        /// The beginning of its message.
        text: String,
    },
    /// The answer was too large, or was cut off.
    #[error("webhook {url}: the answer could not be read, or is larger than {} KiB: {why}", MAX_ANSWER_BYTES >> 10)]
    Body {
        /// The URL.
        url: String,
        /// The error.
        why: String,
    },
    /// Not an answer to the lookup.
    #[error("webhook {url}: {error}")]
    Answer {
        /// The URL.
        url: String,
        /// The error.
        error: AnswerError,
    },
}

/// Connection settings of a webhook.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    /// The URL.
    pub url: String,
    /// PEM certificates of the trusted authorities; `None` for those of this machine.
    pub authorities: Option<PathBuf>,
    /// File with the bearer token; read again for every lookup.
    pub token: Option<PathBuf>,
    /// Timeout for an answer.
    pub timeout: Duration,
}

impl WebhookOptions {
    /// Creates the default settings for a webhook at this URL.
    #[must_use]
    pub fn new(url: &str) -> Self {
        Self { url: url.to_owned(), authorities: None, token: None, timeout: ANSWER_TIMEOUT }
    }
}

/// A client of a webhook.
#[derive(Debug)]
pub struct Webhook {
    url: Uri,
    /// URL of the webhook in messages, which become Events, without parts that may be a token.
    shown: String,
    client: Https,
    options: WebhookOptions,
    places: Arc<Semaphore>,
}

impl Webhook {
    /// Returns a client of the webhook. It connects with the first lookup.
    pub fn new(options: WebhookOptions) -> Result<Self, WebhookError> {
        let malformed = || WebhookError::Url(shown(&options.url));
        let url: Uri = options.url.parse().map_err(|_| malformed())?;
        if !allowed(&url) {
            return Err(malformed());
        }
        let secure = url.scheme_str() == Some("https");
        let client = https(options.authorities.as_deref(), options.timeout, secure).map_err(|why| {
            WebhookError::Authorities { path: options.authorities.clone().unwrap_or_default(), why }
        })?;
        let shown = shown(&options.url);
        Ok(Self { url, shown, client, options, places: Arc::new(Semaphore::new(QUESTIONS_AT_A_TIME)) })
    }

    fn token(&self) -> Result<Option<HeaderValue>, WebhookError> {
        let Some(path) = &self.options.token else { return Ok(None) };
        let failed = |why: String| WebhookError::Token { path: path.clone(), why };
        let token = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim()))
            .map_err(|_| failed("it is no token: it has characters that no header can have".to_owned()))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// Delivers a document; any successful status is enough.
    pub async fn notify(&self, content_type: &'static str, document: String) -> Result<(), WebhookError> {
        // The semaphore is never closed.
        let _place = self.places.acquire().await;
        let limit = self.options.timeout;
        let post = self.post(content_type, document.into());
        let (code, body) = tokio::time::timeout(limit, post)
            .await
            .unwrap_or_else(|_| Err(WebhookError::Timeout { url: self.shown.clone(), limit }))?;
        if (200..300).contains(&code) { Ok(()) } else { Err(self.refused(code, &body)) }
    }

    fn refused(&self, code: u16, body: &Bytes) -> WebhookError {
        let text = shortened(&String::from_utf8_lossy(body));
        WebhookError::Status { url: self.shown.clone(), code, text }
    }

    async fn ask(&self, machine: &Machine) -> Result<MachineState, WebhookError> {
        let (code, body) = self.post("application/json", protocol::question(machine).into()).await?;
        if code != 200 {
            return Err(self.refused(code, &body));
        }
        let answer = protocol::answer(machine, &body);
        answer.map_err(|error| WebhookError::Answer { url: self.shown.clone(), error })
    }

    /// Returns status and body of the answer.
    async fn post(&self, content_type: &'static str, body: Bytes) -> Result<(u16, Bytes), WebhookError> {
        let url = || self.shown.clone();
        let connection = |why: String| WebhookError::Connection { url: url(), why };
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(self.url.clone())
            .header(CONTENT_TYPE, content_type)
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, AGENT)
            .body(Full::new(body))
            .map_err(|error| connection(error.to_string()))?;
        if let Some(token) = self.token()? {
            request.headers_mut().insert(AUTHORIZATION, token);
        }
        fetch(&self.client, request, MAX_ANSWER_BYTES).await.map_err(|error| match error {
            FetchError::Connection(why) => connection(why),
            FetchError::Body(why) => WebhookError::Body { url: url(), why },
        })
    }
}

impl Provider for Webhook {
    fn look_up(&self, machine: Machine) -> BoxFuture<'_, Result<MachineState, ProviderError>> {
        Box::pin(async move {
            // The semaphore is never closed.
            let _place = self.places.acquire().await;
            let limit = self.options.timeout;
            let answer = tokio::time::timeout(limit, self.ask(&machine)).await;
            Ok(answer.unwrap_or_else(|_| Err(WebhookError::Timeout { url: self.shown.clone(), limit }))?)
        })
    }
}
