//! A request as received, and the forms of answers.

pub(crate) mod answers;
pub(crate) mod body;
pub(crate) mod watching;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gc_registry::api::UserInfo;
use gc_registry::error::ApiError;
use gc_types::GoDuration;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, EXPECT, HeaderValue, USER_AGENT, VARY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, Method, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use http_body_util::combinators::BoxBody;

use crate::deadline::{Caller, Deadline};
use crate::encode::list::GZIP_FROM;
use crate::encode::negotiate::{self, Purpose, Representation};
use crate::exchange::body::AnswerBody;
use crate::fairness::configuration::Flow;
use crate::transport::account::{Charge, OverBudget};
use crate::transport::bodies::{Bodies, Held, MAXIMUM_BODY, NoRoom};
use crate::transport::clients::{AnonymousStream, Client};
use crate::transport::connections::Upgrade;
use crate::transport::query::Query;
use crate::work;

/// Maximum number of bytes beyond [`MAXIMUM_BODY`] that are read and dropped, so that the client sees the answer.
const MAXIMUM_DRAINED: usize = 64 * 1024 * 1024;
/// Maximum time to receive a body.
const BODY_PATIENCE: Duration = Duration::from_mins(1);
/// Maximum time to receive the rest of a body that is dropped.
const DRAIN_PATIENCE: Duration = Duration::from_secs(5);
/// Maximum time that a refusal waits for the rest of its request's body.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(1);
/// `Content-Type` of plain text.
pub(crate) const PLAIN: &str = "text/plain; charset=utf-8";
/// Maximum length of a default field manager.
const MAXIMUM_MANAGER: usize = 128;

/// Reason why the body of a request broke off.
pub(crate) type BodyError = Box<dyn std::error::Error + Send + Sync>;
/// The body of a request, from a connection or from this process.
pub(crate) type RequestBytes = BoxBody<Bytes, BodyError>;
/// An answer.
pub(crate) type Answer = Response<AnswerBody>;

/// A request whose body is not read yet.
pub(crate) struct ApiRequest {
    /// Method.
    pub(crate) method: Method,
    /// Path and query as received.
    pub(crate) target: String,
    /// Decoded path.
    pub(crate) path: String,
    /// Query.
    pub(crate) query: Query,
    /// Headers.
    pub(crate) headers: HeaderMap,
    /// The body, until it is read.
    pub(crate) body: RequestBytes,
    /// The user.
    pub(crate) user: UserInfo,
    /// Flow of priority and fairness that the request belongs to, once the user is known.
    pub(crate) flow: Flow,
    /// Time of arrival, by the clock that objects are stamped with.
    pub(crate) now: jiff::Timestamp,
    /// Deadline, which does not apply to a watch or a connection.
    pub(crate) deadline: Deadline,
    /// The body, once it has been read, and the memory reserved for it.
    pub(crate) read: Option<(Bytes, Option<Held>)>,
    /// Handle for switching the connection to another protocol.
    pub(crate) upgrade: Option<Upgrade>,
    /// The connection that the request came on; `None` within this process.
    pub(crate) client: Option<Arc<Client>>,
    /// True if other requests share the connection (HTTP/2).
    pub(crate) is_multiplexed: bool,
    /// Stream slot that a request without valid credentials occupies.
    pub(crate) anonymous: Option<AnonymousStream>,
    /// True if the stream is refused instead of answered.
    pub(crate) is_refused: bool,
}

impl ApiRequest {
    /// Returns a header as text.
    pub(crate) fn header(&self, name: &http::HeaderName) -> Option<&str> {
        self.headers.get(name).map(header_text)
    }

    /// Returns the representation of the answer.
    pub(crate) fn representation(&self, purpose: Purpose) -> Result<Representation, ApiError> {
        negotiate::negotiate(self.header(&ACCEPT), self.is_pretty(), purpose)
    }

    /// Reports whether JSON is indented: as the client asks, and by default for clients whose output people read directly.
    pub(crate) fn is_pretty(&self) -> bool {
        const READ_BY_PEOPLE: [&str; 3] = ["curl", "Wget", "Mozilla/5.0"];
        match self.query.get("pretty").filter(|text| !text.is_empty()) {
            Some(text) => matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True"),
            None => {
                let agent = self.header(&USER_AGENT).unwrap_or_default();
                READ_BY_PEOPLE.iter().any(|name| agent.starts_with(name))
            }
        }
    }

    /// Charges bytes to the connection, if there is one; fails with a 429 if there is no room for them.
    pub(crate) fn charge(&self, bytes: usize) -> Result<Option<Charge>, ApiError> {
        let charge = self.client.as_ref().map(|client| client.charge(bytes)).transpose();
        charge.map_err(|OverBudget| work::too_many_requests())
    }

    pub(crate) fn takes_gzip(&self) -> bool {
        self.header(&ACCEPT_ENCODING).is_some_and(|text| {
            text.split(',').any(|one| {
                let (name, weight) = one.split_once(';').unwrap_or((one, ""));
                let weight = weight.trim().strip_prefix("q=").map(str::parse::<f32>);
                name.trim() == "gzip" && !matches!(weight, Some(Ok(weight)) if weight <= 0.0)
            })
        })
    }

    /// Returns the default field manager: the user agent up to its first slash.
    pub(crate) fn manager(&self) -> String {
        let agent = self.header(&USER_AGENT).unwrap_or_default();
        let name = agent.split('/').next().unwrap_or_default();
        name.chars().filter(|c| !c.is_control()).take(MAXIMUM_MANAGER).collect()
    }

    /// Applies `?timeout=`, which can shorten the time of a request but not extend it; zero and negative values are ignored.
    pub(crate) fn limit_time(&mut self) -> Result<(), ApiError> {
        let Some(text) = self.query.get("timeout").filter(|text| !text.is_empty()) else { return Ok(()) };
        let Ok(timeout) = text.parse::<GoDuration>() else {
            let number = text.trim_start_matches(['+', '-']);
            let has_unit = number.is_empty() || number.bytes().any(|byte| !byte.is_ascii_digit());
            let what = if has_unit { "invalid duration" } else { "missing unit in duration" };
            return Err(ApiError::bad_request(format!(
                "invalid timeout specified in the request URL - time: {what} {text:?}"
            )));
        };
        if timeout > GoDuration::ZERO {
            self.deadline.shorten(timeout.to_std());
        }
        Ok(())
    }

    /// Returns the user and the deadline of the request.
    pub(crate) fn caller(&self) -> Caller {
        Caller { user: self.user.clone(), manager: self.manager(), deadline: self.deadline.clone() }
    }

    /// Reads the whole body, once. Fails with 413 beyond the limit, 429 if there is no room for it, 504 if it takes too long, and
    /// 400 if it breaks off. A request whose body has not arrived occupies no seat.
    pub(crate) async fn read_body(&mut self, bodies: &Arc<Bodies>) -> Result<Bytes, ApiError> {
        if let Some((bytes, _)) = &self.read {
            return Ok(bytes.clone());
        }
        if self.body.is_end_stream() {
            return Ok(Bytes::new());
        }
        let exempt = self.flow.exempt;
        let held = bodies.begin(&self.user.name, exempt, self.client.as_deref()).await;
        let mut held = held.map_err(|NoRoom| work::too_many_requests())?;
        match tokio::time::timeout(BODY_PATIENCE, collect(&mut self.body, &mut held)).await {
            Ok(Ok(bytes)) => {
                held.arrived();
                self.read = Some((bytes.clone(), Some(held)));
                Ok(bytes)
            }
            Ok(Err(Unread::TooLarge)) => {
                let _ = tokio::time::timeout(DRAIN_PATIENCE, drain(&mut self.body, MAXIMUM_DRAINED)).await;
                Err(ApiError::new(
                    413,
                    "RequestEntityTooLarge",
                    format!("Request entity too large: limit is {MAXIMUM_BODY}"),
                ))
            }
            Ok(Err(Unread::NoRoom)) => Err(work::too_many_requests()),
            Ok(Err(Unread::Broken(error))) => {
                Err(ApiError::bad_request(format!("the body of the request broke off: {error}")))
            }
            Err(_) => Err(ApiError::new(
                504,
                "Timeout",
                format!(
                    "Timeout: the body of the request did not arrive within {} s",
                    BODY_PATIENCE.as_secs()
                ),
            )),
        }
    }

    /// Reads and drops the body of a refused request, within bounds: curl loses the answer if an HTTP/2 stream ends while curl
    /// still sends the body. A client that sent `Expect` is not asked for its body.
    pub(crate) async fn drop_body(&mut self) {
        if !self.headers.contains_key(EXPECT) {
            let _ = tokio::time::timeout(REFUSAL_PATIENCE, drain(&mut self.body, MAXIMUM_BODY)).await;
        }
    }
}

/// Reason why a body was not read.
enum Unread {
    TooLarge,
    NoRoom,
    Broken(BodyError),
}

async fn collect(body: &mut RequestBytes, held: &mut Held) -> Result<Bytes, Unread> {
    let mut all = Vec::new();
    let mut first: Option<Bytes> = None;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(Unread::Broken)?.into_data() else { continue };
        if all.len() + first.as_ref().map_or(0, Bytes::len) + data.len() > MAXIMUM_BODY {
            return Err(Unread::TooLarge);
        }
        held.add(data.len()).map_err(|NoRoom| Unread::NoRoom)?;
        match first.take() {
            None if all.is_empty() => first = Some(data),
            None => append(&mut all, &data)?,
            Some(begun) => {
                append(&mut all, &begun)?;
                append(&mut all, &data)?;
            }
        }
    }
    Ok(first.unwrap_or_else(|| all.into()))
}

/// Appends to a body. If memory is exhausted, only the request fails, not the process.
fn append(all: &mut Vec<u8>, data: &[u8]) -> Result<(), Unread> {
    all.try_reserve(data.len()).map_err(|_| Unread::NoRoom)?;
    all.extend_from_slice(data);
    Ok(())
}

async fn drain(body: &mut RequestBytes, maximum: usize) {
    let mut dropped = 0;
    while let Some(Ok(frame)) = body.frame().await {
        dropped += frame.data_ref().map_or(0, Bytes::len);
        if dropped > maximum {
            return;
        }
    }
}

/// Refuses a request with a header that is not text, because its meaning could not be taken into account.
pub(crate) fn refuse_unreadable(headers: &HeaderMap) -> Result<(), ApiError> {
    match headers.iter().find(|(_, value)| std::str::from_utf8(value.as_bytes()).is_err()) {
        Some((name, _)) => Err(ApiError::bad_request(format!("the header {name} is not valid UTF-8"))),
        None => Ok(()),
    }
}

/// Returns a header as text; only headers that passed [`refuse_unreadable`] are read.
pub(crate) fn header_text(value: &HeaderValue) -> &str {
    std::str::from_utf8(value.as_bytes()).unwrap_or_default()
}

/// Answers a path that does not exist.
pub(crate) fn page_not_found() -> Answer {
    let mut answer = text_answer(StatusCode::NOT_FOUND, PLAIN, "404 page not found\n");
    answer.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

/// Answers with a text.
pub(crate) fn text_answer(code: StatusCode, content_type: &'static str, text: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(AnswerBody::Whole(text.into()));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Builds a complete answer, compressed if it is large and the client accepts gzip.
pub(crate) fn whole(bytes: impl Into<Bytes>, representation: Representation, gzip: bool) -> Answer {
    compressible(bytes.into(), representation.content_type(), gzip)
}

/// Builds a complete answer like [`whole`], with any content type.
pub(crate) fn compressible(bytes: Bytes, content_type: &'static str, gzip: bool) -> Answer {
    match gzip.then(|| packed(&bytes)).flatten() {
        Some(packed) => packed_answer(packed, content_type),
        None => text_answer(StatusCode::OK, content_type, bytes),
    }
}

/// Compresses the bytes with gzip, if that pays off.
pub(crate) fn packed(bytes: &[u8]) -> Option<Bytes> {
    if bytes.len() > GZIP_FROM { gzipped(bytes) } else { None }
}

/// Compresses the bytes with gzip.
pub(crate) fn gzipped(bytes: &[u8]) -> Option<Bytes> {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(1));
    encoder.write_all(bytes).and_then(|()| encoder.finish()).ok().map(Bytes::from)
}

/// Builds an answer whose body is already compressed.
pub(crate) fn packed_answer(packed: Bytes, content_type: &'static str) -> Answer {
    let mut response = text_answer(StatusCode::OK, content_type, packed);
    response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    response
}

impl ApiRequest {
    /// Answers with a document, compressed if that pays off.
    pub(crate) fn document(&self, bytes: Bytes, content_type: &'static str) -> Answer {
        compressible(bytes, content_type, self.takes_gzip())
    }
}
