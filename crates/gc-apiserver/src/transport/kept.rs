//! A connection that is handed back when whoever served it has let it fall: so that it can stay open without being served.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Where a connection is handed back.
#[derive(Debug)]
pub(crate) struct Returned<T>(Arc<Mutex<Option<T>>>);

impl<T> Returned<T> {
    /// Takes the connection, if it is no longer used.
    pub(crate) fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The connection.
#[derive(Debug)]
pub(crate) struct TtlCache<T> {
    /// Only taken when it is dropped.
    inner: Option<T>,
    returned: Arc<Mutex<Option<T>>>,
}

impl<T> TtlCache<T> {
    /// A connection, and the place where it is handed back.
    pub(crate) fn new(inner: T) -> (Self, Returned<T>) {
        let returned = Arc::new(Mutex::new(None));
        (Self { inner: Some(inner), returned: Arc::clone(&returned) }, Returned(returned))
    }
}

impl TtlCache<TcpStream> {
    /// Waits until something was received.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        match &self.inner {
            Some(stream) => stream.readable().await,
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl<T: Unpin> TtlCache<T> {
    fn inner(self: Pin<&mut Self>) -> io::Result<Pin<&mut T>> {
        self.get_mut().inner.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl<T> Drop for TtlCache<T> {
    fn drop(&mut self) {
        *self.returned.lock().unwrap_or_else(PoisonError::into_inner) = self.inner.take();
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for TtlCache<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.inner()?.poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for TtlCache<T> {
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
