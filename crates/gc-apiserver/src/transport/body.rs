//! Bodies of answers: whole, streamed in pieces, or a watch.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::stream::BoxStream;
use http_body::{Frame, SizeHint};

use crate::encode::list::ListStream;
use crate::serve::watching::WatchStream;

/// The body of an answer.
pub(crate) enum AnswerBody {
    /// All of it; empty after it was sent.
    Whole(Bytes),
    /// A long list, written as it is sent.
    List(Box<ListStream>),
    /// Events until the watch ends.
    Watch(Box<WatchStream>),
    /// Pieces that an extension makes as they are sent.
    Stream(BoxStream<'static, Bytes>),
}

impl http_body::Body for AnswerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = match self.get_mut() {
            Self::Whole(bytes) if bytes.is_empty() => None,
            Self::Whole(bytes) => Some(std::mem::take(bytes)),
            Self::List(list) => list.next_piece(),
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
