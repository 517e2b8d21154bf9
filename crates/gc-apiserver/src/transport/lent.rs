//! A connection that returns to its lender when its user drops it, so that it can stay open without being served.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The lender's claim to a lent connection.
#[derive(Debug)]
pub(crate) struct ReturnSlot<T>(Arc<Mutex<Option<T>>>);

impl<T> ReturnSlot<T> {
    /// Takes the connection back. Returns `None` while its user still has it, or if it has already been taken.
    pub(crate) fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A connection that moves into its [`ReturnSlot`] when dropped, still open.
#[derive(Debug)]
pub(crate) struct LentConnection<T> {
    /// `None` only during the drop.
    inner: Option<T>,
    slot: Arc<Mutex<Option<T>>>,
}

impl<T> LentConnection<T> {
    /// Lends a connection. Returns it together with the slot that it will return to.
    pub(crate) fn new(inner: T) -> (Self, ReturnSlot<T>) {
        let slot = Arc::new(Mutex::new(None));
        (Self { inner: Some(inner), slot: Arc::clone(&slot) }, ReturnSlot(slot))
    }
}

impl LentConnection<TcpStream> {
    /// Waits until the peer has sent data or closed the connection.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        match &self.inner {
            Some(stream) => stream.readable().await,
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl<T: Unpin> LentConnection<T> {
    fn inner(self: Pin<&mut Self>) -> io::Result<Pin<&mut T>> {
        self.get_mut().inner.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl<T> Drop for LentConnection<T> {
    fn drop(&mut self) {
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = self.inner.take();
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for LentConnection<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.inner()?.poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for LentConnection<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.inner()?.poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner()?.poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.inner()?.poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }
}
