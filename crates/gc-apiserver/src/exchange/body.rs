//! Bodies of answers: complete, streamed in chunks, or a watch.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::stream::BoxStream;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body::{Frame, SizeHint};

use crate::encode::list::ListStream;
use crate::exchange::watching::WatchStream;
use crate::transport::streams::{CutOff, HeldBody};

/// Memory of a watch, or of an extension's stream, in bytes, in addition to the chunk being sent.
const STREAM_BYTES: usize = 16 * 1024;
/// The Status of a 429, prepared in advance.
const TOO_MANY_REQUESTS: &[u8] = br#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Too many requests, please try again later.","reason":"TooManyRequests","details":{"retryAfterSeconds":1},"code":429}"#;

/// The body of an answer.
pub(crate) enum AnswerBody {
    /// The complete body; empty once sent.
    Whole(Bytes),
    /// A long list, encoded while it is sent.
    List(Box<ListStream>),
    /// Events, until the watch ends.
    Watch(Box<WatchStream>),
    /// Chunks that an extension produces while they are sent.
    Stream(BoxStream<'static, Bytes>),
}

impl http_body::Body for AnswerBody {
    type Data = Bytes;
    type Error = CutOff;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, CutOff>>> {
        let bytes = match self.get_mut() {
            Self::Whole(bytes) if bytes.is_empty() => None,
            Self::Whole(bytes) => Some(std::mem::take(bytes)),
            Self::List(list) => match std::task::ready!(list.poll_piece(cx)) {
                None if list.is_cut_off() => return Poll::Ready(Some(Err(CutOff))),
                piece => piece,
            },
            Self::Watch(watch) => std::task::ready!(watch.poll_piece(cx)),
            Self::Stream(stream) => std::task::ready!(stream.as_mut().poll_next(cx)),
        };
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::List(_) | Self::Watch(_) | Self::Stream(_) => SizeHint::default(),
        }
    }
}

impl HeldBody for AnswerBody {
    fn held_bytes(&self) -> usize {
        match self {
            // Shared bytes are not charged, because they were not made for this client.
            Self::Whole(bytes) if !bytes.is_unique() => 0,
            Self::Whole(bytes) => bytes.len(),
            Self::List(list) => list.held_bytes(),
            Self::Watch(_) | Self::Stream(_) => STREAM_BYTES,
        }
    }

    fn is_open_ended(&self) -> bool {
        matches!(self, Self::Watch(_) | Self::Stream(_))
    }

    fn too_many_requests() -> Response<Self> {
        let mut answer = Response::new(Self::Whole(Bytes::from_static(TOO_MANY_REQUESTS)));
        *answer.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        answer
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use super::*;

    #[test]
    fn the_answer_without_room_is_that_of_too_many_requests() {
        let text: serde_json::Value = serde_json::from_slice(TOO_MANY_REQUESTS).unwrap();
        assert_eq!(text, crate::work::too_many_requests().to_status());
    }
}
