//! A connection that ends when its peer floods it with frames that merely cost work: HTTP/2 has frames that demand an answer or
//! change a setting but carry no request. Requests, and data sent to the peer, pay for such frames. Requests themselves are limited
//! until one of them has presented valid credentials: they are counted before any work is done for them.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::account::ClientStanding;
use super::clients::{Client, MAXIMUM_STREAMS};

/// Preface of an HTTP/2 connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Length of the header of a frame.
const HEADER: usize = 9;
/// Number of frames without a request that a connection may receive at once.
const BURST: u64 = 2_000;
/// Number of such frames that it may receive each second beyond that.
const PER_SECOND: u64 = 50;
/// Number of frames without a request that a connection may receive at once before it has presented valid credentials...
const ANONYMOUS_BURST: u64 = 200;
/// ...and the number that it may receive each second beyond that.
const ANONYMOUS_PER_SECOND: u64 = 10;
/// Number of requests that a connection may cancel at once, regardless of data sent to it: each cancelled request was begun.
const RESET_BURST: u64 = 1_000;
/// Number of requests that it may cancel each second beyond that.
const RESETS_PER_SECOND: u64 = 100;
/// The same before valid credentials were presented. Fewer than the number at which the library itself ends a connection, which it
/// does at once and with an error.
const ANONYMOUS_RESET_BURST: u64 = 16;
const ANONYMOUS_RESETS_PER_SECOND: u64 = 10;
/// Number of requests that a connection may begin at once before it has presented valid credentials: as many as its settings permit
/// in flight, and some that end immediately.
const REQUEST_BURST: u64 = 2 * MAXIMUM_STREAMS as u64;
/// Number of requests that it may begin each second beyond that.
const REQUESTS_PER_SECOND: u64 = 100;
/// Number of bytes sent to the peer that pay for one frame: a client grants a window for data that it has received.
const BYTES_PER_FRAME: u64 = 64;
/// Number of frames that a request pays for: a window and a priority.
const FRAMES_PER_REQUEST: u64 = 2;

const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const RST_STREAM: u8 = 0x3;
const CONTINUATION: u8 = 0x9;

/// Number of frames that a connection may receive before it must send a request or be sent data.
#[derive(Debug)]
struct Allowance {
    burst: u64,
    per_second: u64,
    frames: u64,
    /// Bytes sent that have not yet paid for a whole frame.
    bytes: u64,
    at: Instant,
}

impl Allowance {
    fn new(burst: u64, per_second: u64) -> Self {
        Self { burst, per_second, frames: burst, bytes: 0, at: Instant::now() }
    }

    fn earn(&mut self, frames: u64) {
        self.frames = self.frames.saturating_add(frames).min(self.burst.max(self.frames));
    }

    /// Credits sent bytes, without the limit of a burst: they may be acknowledged much later.
    fn sent(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        self.frames = self.frames.saturating_add(self.bytes / BYTES_PER_FRAME);
        self.bytes %= BYTES_PER_FRAME;
    }

    /// Reports whether one more frame may be received.
    fn spend(&mut self) -> bool {
        if self.frames == 0 {
            let seconds = self.at.elapsed().as_secs();
            if seconds > 0 {
                self.at = Instant::now();
                self.earn(seconds.saturating_mul(self.per_second));
            }
        }
        let is_left = self.frames > 0;
        self.frames = self.frames.saturating_sub(1);
        is_left
    }
}

/// Position in the bytes that a peer sends.
#[derive(Debug)]
enum Position {
    /// Number of bytes of the preface seen so far.
    Preface(usize),
    /// Within the header of a frame: the bytes seen, and their number.
    Header([u8; HEADER], usize),
    /// Remaining bytes of a frame.
    Payload(usize),
    /// Not HTTP/2.
    Other,
}

/// Counts the frames that a peer sends.
#[derive(Debug)]
struct Counter {
    position: Position,
    allowance: Allowance,
    resets: Allowance,
    /// Limits before the peer has presented credentials: the same as those above, and one on requests.
    anonymous: Allowance,
    anonymous_resets: Allowance,
    requests: Allowance,
}

impl Counter {
    fn new() -> Self {
        Self {
            position: Position::Preface(0),
            allowance: Allowance::new(BURST, PER_SECOND),
            resets: Allowance::new(RESET_BURST, RESETS_PER_SECOND),
            anonymous: Allowance::new(ANONYMOUS_BURST, ANONYMOUS_PER_SECOND),
            anonymous_resets: Allowance::new(ANONYMOUS_RESET_BURST, ANONYMOUS_RESETS_PER_SECOND),
            requests: Allowance::new(REQUEST_BURST, REQUESTS_PER_SECOND),
        }
    }

    /// Reads the bytes sent by a peer of this standing; returns whether it may continue.
    fn read(&mut self, mut bytes: &[u8], standing: ClientStanding) -> bool {
        while !bytes.is_empty() {
            match &mut self.position {
                Position::Other => return true,
                Position::Preface(seen) => {
                    let some = bytes.len().min(PREFACE.len() - *seen);
                    if bytes[..some] != PREFACE[*seen..*seen + some] {
                        self.position = Position::Other;
                        return true;
                    }
                    *seen += some;
                    bytes = &bytes[some..];
                    if *seen == PREFACE.len() {
                        self.position = Position::Header([0; HEADER], 0);
                    }
                }
                Position::Header(header, seen) => {
                    let some = bytes.len().min(HEADER - *seen);
                    header[*seen..*seen + some].copy_from_slice(&bytes[..some]);
                    *seen += some;
                    bytes = &bytes[some..];
                    if *seen == HEADER {
                        let header = *header;
                        if !self.count(header, standing) {
                            return false;
                        }
                    }
                }
                Position::Payload(left) => {
                    let some = bytes.len().min(*left);
                    *left -= some;
                    bytes = &bytes[some..];
                    if *left == 0 {
                        self.position = Position::Header([0; HEADER], 0);
                    }
                }
            }
        }
        true
    }

    /// Credits data sent to the peer, which pays for frames that it sends.
    fn sent(&mut self, bytes: usize) {
        for allowance in [&mut self.allowance, &mut self.anonymous, &mut self.requests] {
            allowance.sent(bytes);
        }
    }

    fn count(&mut self, [first, second, third, kind, ..]: [u8; HEADER], standing: ClientStanding) -> bool {
        let length = u32::from_be_bytes([0, first, second, third]) as usize;
        self.position =
            if length == 0 { Position::Header([0; HEADER], 0) } else { Position::Payload(length) };
        match kind {
            HEADERS => {
                self.allowance.earn(FRAMES_PER_REQUEST);
                self.anonymous.earn(FRAMES_PER_REQUEST);
                standing > ClientStanding::Anonymous || self.requests.spend()
            }
            // The library limits how many of them a header block may have.
            CONTINUATION => true,
            DATA if length > 0 => true,
            RST_STREAM => {
                (standing > ClientStanding::Anonymous || self.anonymous_resets.spend()) && self.resets.spend()
            }
            _ => (standing > ClientStanding::Anonymous || self.anonymous.spend()) && self.allowance.spend(),
        }
    }
}

/// The guarded connection.
pub(crate) struct FloodGuard<T> {
    inner: T,
    counter: Counter,
    client: Arc<Client>,
}

impl<T> FloodGuard<T> {
    /// Guards the connection of a client.
    pub(crate) fn new(inner: T, client: Arc<Client>) -> Self {
        Self { inner, counter: Counter::new(), client }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for FloodGuard<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        std::task::ready!(Pin::new(&mut this.inner).poll_read(cx, buffer))?;
        if this.counter.read(&buffer.filled()[before..], this.client.standing()) {
            return Poll::Ready(Ok(()));
        }
        this.client.losses().connection("flood");
        this.client.silence();
        let why = "the peer floods the connection with frames";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, why)))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for FloodGuard<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = std::task::ready!(Pin::new(&mut self.inner).poll_write(cx, bytes))?;
        self.counter.sent(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = std::task::ready!(Pin::new(&mut self.inner).poll_write_vectored(cx, buffers))?;
        self.counter.sent(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use super::*;

    fn frame(kind: u8, length: u8) -> Vec<u8> {
        let mut frame = vec![0, 0, length, kind, 0, 0, 0, 0, 0];
        frame.extend(vec![0; length.into()]);
        frame
    }

    /// Returns how many of 10,000 such frames are read before the connection ends.
    fn read(counter: &mut Counter, frame: &[u8], chunk: usize) -> usize {
        let all = frame.repeat(10_000);
        let read =
            all.chunks(chunk).take_while(|some| counter.read(some, ClientStanding::Authenticated)).count()
                * chunk;
        read.min(all.len()) / frame.len()
    }

    #[test]
    fn floods_end_a_connection_and_data_does_not() {
        let burst = usize::try_from(BURST).unwrap();
        let table = [
            ("ping", frame(0x6, 8), false),
            ("settings", frame(0x4, 6), false),
            ("window update", frame(0x8, 4), false),
            ("priority", frame(0x2, 5), false),
            ("reset", frame(RST_STREAM, 4), false),
            ("unknown", frame(0x55, 1), false),
            ("data without data", frame(DATA, 0), false),
            ("data", frame(DATA, 3), true),
            ("request", frame(HEADERS, 7), true),
            ("request with a window", [frame(HEADERS, 7), frame(0x8, 4)].concat(), true),
            ("request with many windows", [frame(HEADERS, 7), frame(0x8, 4).repeat(5)].concat(), false),
            ("request that is reset", [frame(HEADERS, 7), frame(RST_STREAM, 4)].concat(), false),
        ];
        for (what, frame, goes_on) in table {
            for chunk in [1, 7, frame.len()] {
                let mut counter = Counter::new();
                assert!(counter.read(PREFACE, ClientStanding::Authenticated));
                let count = read(&mut counter, &frame, chunk);
                // The clock may have allowed a few more.
                assert_eq!(count == 10_000, goes_on, "{what}, {chunk} at a time: {count}");
                assert!(goes_on || count <= burst + 1_000, "{what}: {count}");
            }
        }
    }

    #[test]
    fn what_was_sent_pays_for_the_windows_that_are_granted() {
        let mut counter = Counter::new();
        assert!(counter.read(PREFACE, ClientStanding::Authenticated));
        counter.sent(10_000 * 64);
        assert_eq!(read(&mut counter, &frame(0x8, 4), 13), 10_000);
    }

    #[test]
    fn frames_are_few_until_credentials_were_shown() {
        let mut counter = Counter::new();
        let burst = usize::try_from(ANONYMOUS_BURST).unwrap();
        let ping = frame(0x6, 8);
        assert!(counter.read(PREFACE, ClientStanding::Anonymous));
        assert!((0..burst).all(|_| counter.read(&ping, ClientStanding::Anonymous)));
        assert!((0..burst).any(|_| !counter.read(&ping, ClientStanding::Anonymous)));
        assert!((0..burst).all(|_| counter.read(&ping, ClientStanding::Authenticated)));
        let reset = frame(RST_STREAM, 4);
        let burst = usize::try_from(ANONYMOUS_RESET_BURST).unwrap();
        assert!((0..burst).all(|_| counter.read(&reset, ClientStanding::Anonymous)));
        assert!((0..burst).any(|_| !counter.read(&reset, ClientStanding::Anonymous)));
        assert!((0..burst).all(|_| counter.read(&reset, ClientStanding::Authenticated)));
    }

    #[test]
    fn requests_are_few_until_credentials_were_shown() {
        let mut counter = Counter::new();
        let burst = usize::try_from(REQUEST_BURST).unwrap();
        let request = frame(HEADERS, 7);
        assert!(counter.read(PREFACE, ClientStanding::Anonymous));
        assert!((0..burst).all(|_| counter.read(&request, ClientStanding::Anonymous)));
        // The clock may have allowed a few more.
        assert!((0..10 * burst).any(|_| !counter.read(&request, ClientStanding::Anonymous)));
        assert!((0..10 * burst).all(|_| counter.read(&request, ClientStanding::Authenticated)));
    }

    #[test]
    fn other_protocols_are_not_counted() {
        let mut counter = Counter::new();
        assert!(counter.read(b"PRI * HTTP/1.1\r\n", ClientStanding::Anonymous));
        assert_eq!(read(&mut counter, &frame(0x6, 8), 17), 10_000);
    }
}
