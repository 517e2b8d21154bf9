//! Changes of a watch that its collector has not taken yet.
//!
//! The server wakes whoever polls a watch when it has something to deliver. The watch counts as active from that moment until it
//! has been polled to the end, so a collector that reads it later than others is waited for.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use gc_apiserver::CutOff;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body, Frame};

use super::{Activity, lock};

/// State of one watch.
pub(super) struct Delivery {
    activity: Activity,
    /// True if the watch was woken and has not been polled since.
    is_woken: AtomicBool,
    /// True if the watch delivered something, or has never been polled, and has not been polled to the end since.
    may_have_more: AtomicBool,
    reader: Mutex<Waker>,
}

impl Delivery {
    pub(super) fn new(activity: Activity) -> Self {
        let reader = Mutex::new(Waker::noop().clone());
        Self { activity, is_woken: AtomicBool::new(false), may_have_more: AtomicBool::new(true), reader }
    }

    pub(super) fn moves(&self) -> bool {
        self.is_woken.load(Ordering::Acquire) || self.may_have_more.load(Ordering::Acquire)
    }
}

impl Wake for Delivery {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.activity.happened();
        let reader = lock(&self.reader).clone();
        reader.wake();
    }
}

/// A response whose delivery is tracked if it is a watch.
pub struct TrackedAnswer {
    inner: UnsyncBoxBody<Bytes, CutOff>,
    delivery: Option<Arc<Delivery>>,
}

impl TrackedAnswer {
    pub(super) fn watch(inner: UnsyncBoxBody<Bytes, CutOff>, delivery: Arc<Delivery>) -> Self {
        Self { inner, delivery: Some(delivery) }
    }

    /// Tracks a response that ends; its request is in flight until then.
    #[must_use]
    pub fn whole(inner: UnsyncBoxBody<Bytes, CutOff>) -> Self {
        Self { inner, delivery: None }
    }
}

impl Body for TrackedAnswer {
    type Data = Bytes;
    type Error = CutOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CutOff>>> {
        let Some(delivery) = self.delivery.clone() else {
            return Pin::new(&mut self.inner).poll_frame(context);
        };
        lock(&delivery.reader).clone_from(context.waker());
        // In this order, a wake-up during the poll still counts.
        delivery.may_have_more.store(true, Ordering::Release);
        delivery.is_woken.store(false, Ordering::Release);
        let waker = Waker::from(Arc::clone(&delivery));
        let polled = Pin::new(&mut self.inner).poll_frame(&mut Context::from_waker(&waker));
        match &polled {
            Poll::Pending => delivery.may_have_more.store(false, Ordering::Release),
            Poll::Ready(_) => delivery.activity.happened(),
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use futures::channel::mpsc;
    use http_body_util::{BodyExt as _, StreamBody};

    use super::*;

    #[tokio::test]
    async fn a_watch_moves_until_all_that_it_has_was_read() {
        let activity = Activity::default();
        let movement = activity.named("collector");
        let (sink, frames) = mpsc::unbounded();
        let frame = || Ok(Frame::data(Bytes::from_static(b"{}")));
        let mut body = movement.watch(StreamBody::new(frames).boxed_unsync());
        assert!(movement.has_undelivered(), "it has never been read");
        assert!(futures::poll!(body.frame()).is_pending());
        assert!(!movement.has_undelivered(), "it has nothing");
        sink.unbounded_send(frame()).unwrap();
        assert!(movement.has_undelivered(), "it has something");
        assert!(futures::poll!(body.frame()).is_ready());
        assert!(movement.has_undelivered(), "it may have more");
        assert!(futures::poll!(body.frame()).is_pending());
        assert!(!movement.has_undelivered(), "it has nothing more");
        sink.unbounded_send(frame()).unwrap();
        drop(body);
        assert!(!movement.has_undelivered(), "it has ended");
    }
}
