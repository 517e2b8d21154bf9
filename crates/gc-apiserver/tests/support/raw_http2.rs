//! HTTP/2 written by hand, for frames that no library would send.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub, missing_docs)] // a broken assumption should stop the test; not every test uses all

use std::collections::BTreeMap;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

pub const DATA: u8 = 0;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
const HEADERS: u8 = 1;
/// Flags of a request without a body.
const WHOLE: u8 = 0x5;
const ACK: u8 = 0x1;
/// Flag of the last frame of an answer.
pub const END_STREAM: u8 = 0x1;
/// Error codes.
pub const REFUSED_STREAM: u32 = 7;
pub const CANCEL: u32 = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Returns the beginning of a connection on which the server may send `window` bytes of each answer.
pub fn preface(window: u32) -> Vec<u8> {
    let initial_window = [&[0, 4][..], &window.to_be_bytes()].concat();
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &frame(SETTINGS, 0, 0, &initial_window)].concat()
}

/// Returns a GET without credentials. The number of its stream must be odd, and larger than all before.
pub fn get(stream: u32, path: &str) -> Vec<u8> {
    let length = u8::try_from(path.len()).unwrap();
    // GET and https come from the static table of HPACK; path and authority are literals.
    let block = [&[0x82, 0x87, 0x04, length], path.as_bytes(), &[0x01, 9], b"localhost"].concat();
    frame(HEADERS, WHOLE, stream, &block)
}

/// Reads the next frame; `None` once the connection has ended. Acknowledges settings and pings, so that the server sees a live
/// peer.
pub async fn next(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Option<Frame> {
    let mut header = [0; 9];
    stream.read_exact(&mut header).await.ok()?;
    let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).await.ok()?;
    let [_, _, _, kind, flags, id @ ..] = header;
    if matches!(kind, SETTINGS | PING) && flags & ACK == 0 {
        let answer = if kind == PING { payload.as_slice() } else { &[] };
        stream.write_all(&frame(kind, ACK, 0, answer)).await.ok()?;
        stream.flush().await.ok()?;
    }
    Some(Frame { kind, flags, stream: u32::from_be_bytes(id), payload })
}

/// End of a connection.
#[derive(Debug, Default)]
pub struct ConnectionEnd {
    /// Streams that were reset, with their error codes.
    pub resets: BTreeMap<u32, u32>,
    pub is_asked_to_go: bool,
    /// Number of bytes of answers.
    pub data: usize,
}

/// Reads until the connection ends.
pub async fn read_to_end(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> ConnectionEnd {
    let mut ended = ConnectionEnd::default();
    while let Some(frame) = next(stream).await {
        match frame.kind {
            RST_STREAM => {
                let code = u32::from_be_bytes(frame.payload.try_into().unwrap());
                ended.resets.insert(frame.stream, code);
            }
            GOAWAY => ended.is_asked_to_go = true,
            DATA => ended.data += frame.payload.len(),
            _ => {}
        }
    }
    ended
}
