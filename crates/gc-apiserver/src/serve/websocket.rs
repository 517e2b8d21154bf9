//! Watches over WebSocket (RFC 6455), which browsers use: each event is a message.

use std::task::Poll;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf as _, Bytes, BytesMut};
use http::header::{
    CONNECTION, HeaderValue, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::encode::negotiate::Encoding;
use crate::exchange::body::AnswerBody;
use crate::exchange::watching::WatchStream;
use crate::exchange::{Answer, ApiRequest};
use crate::transport::clients::Ending;
use crate::transport::connections::wants_web_socket;

/// Suffix that is hashed with the key (RFC 6455, 1.3).
const ACCEPT_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const VERSION: &str = "13";
/// Maximum payload of a control frame: a ping, a pong or a close.
const MAXIMUM_CONTROL: u64 = 125;
/// Payload of a close frame without an error.
const NORMAL_END: [u8; 2] = 1000_u16.to_be_bytes();

const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;

/// Sends a watch over a WebSocket; returns it if the client wants none, or none is possible.
pub(crate) fn answer(
    request: &ApiRequest,
    watch: Box<WatchStream>,
    encoding: Encoding,
) -> Result<Answer, Box<WatchStream>> {
    let Some(upgrade) = request.upgrade.clone().filter(|_| wants_web_socket(&request.headers)) else {
        return Err(watch);
    };
    let response = handshake(request);
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(response);
    }
    tokio::spawn(async move {
        // If the client has already disconnected, there is nothing to send.
        let Ok(connection) = upgrade.connection.await else { return };
        let client = upgrade.place.client();
        let sent = tokio::select! {
            sent = send(TokioIo::new(connection), watch, encoding) => sent,
            () = client.asked(Ending::AtOnce) => return,
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "a watch over WebSocket ended");
        }
    });
    Ok(response)
}

/// Returns the answer that switches protocols, or the one that refuses to.
fn handshake(request: &ApiRequest) -> Answer {
    let refused = |code, why: &'static str| {
        let mut answer = Response::new(AnswerBody::Whole(Bytes::from_static(why.as_bytes())));
        *answer.status_mut() = code;
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        answer
    };
    let Some(key) = request.header(&SEC_WEBSOCKET_KEY).filter(|key| !key.is_empty()) else {
        return refused(StatusCode::BAD_REQUEST, "mismatch challenge/response");
    };
    if request.header(&SEC_WEBSOCKET_VERSION) != Some(VERSION) {
        let mut answer = refused(StatusCode::BAD_REQUEST, "missing or bad WebSocket Version");
        answer.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static(VERSION));
        return answer;
    }
    // Browsers always name the origin of a page; upstream requires it from every client.
    if !request.header(&ORIGIN).is_some_and(is_origin) {
        return refused(StatusCode::FORBIDDEN, "");
    }
    let protocols = request.headers.get(SEC_WEBSOCKET_PROTOCOL).cloned();
    if protocols.as_ref().is_some_and(|value| value.as_bytes().contains(&b',')) {
        return refused(StatusCode::BAD_REQUEST, "");
    }
    let mut answer = Response::new(AnswerBody::Whole(Bytes::new()));
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = answer.headers_mut();
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Ok(accepted) = HeaderValue::from_str(&accepted(key)) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accepted);
    }
    if let Some(protocol) = protocols {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    answer
}

/// Reports whether an origin is an address: a path, or a URL with a scheme.
fn is_origin(text: &str) -> bool {
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    text.starts_with('/')
        || text.split_once(':').is_some_and(|(scheme, rest)| is_scheme(scheme) && !rest.is_empty())
}

fn accepted(key: &str) -> String {
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{ACCEPT_SUFFIX}").as_bytes()))
}

/// Sends events until the watch or the client ends, and answers pings in between.
async fn send<C: AsyncRead + AsyncWrite>(
    connection: C,
    mut watch: Box<WatchStream>,
    encoding: Encoding,
) -> std::io::Result<()> {
    let (mut from, mut to) = tokio::io::split(connection);
    let (mut received, mut incoming) = (BytesMut::new(), FrameReader::default());
    loop {
        tokio::select! {
            piece = std::future::poll_fn(|cx| watch.poll_piece(cx)) => match piece {
                Some(piece) => to.write_all(&messages(&piece, encoding)).await?,
                None => break,
            },
            read = from.read_buf(&mut received) => {
                if read? == 0 {
                    return Ok(());
                }
                while let Poll::Ready(control) = incoming.next(&mut received) {
                    match control {
                        Control::Ping(payload) => to.write_all(&message(PONG, &payload)).await?,
                        Control::End => {
                            to.write_all(&message(CLOSE, &NORMAL_END)).await?;
                            return to.shutdown().await;
                        }
                    }
                }
            }
        }
        to.flush().await?;
    }
    to.write_all(&message(CLOSE, &NORMAL_END)).await?;
    to.shutdown().await
}

/// Converts the events in a chunk of a watch to messages: lines of JSON, or protobuf preceded by its length.
fn messages(piece: &[u8], encoding: Encoding) -> Vec<u8> {
    let mut out = Vec::with_capacity(piece.len() + 16);
    if encoding != Encoding::Protobuf {
        for line in piece.split_inclusive(|byte| *byte == b'\n') {
            out.extend_from_slice(&message(TEXT, line));
        }
        return out;
    }
    let mut rest = piece;
    while let Some((length, following)) = rest.split_first_chunk::<4>() {
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        let (event, following) = following.split_at(length.min(following.len()));
        out.extend_from_slice(&message(BINARY, event));
        rest = following;
    }
    out
}

/// Builds a message as a single frame, unmasked as servers send them.
fn message(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0x80 | kind];
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(length @ ..126), _) => out.push(length),
        (_, Ok(length)) => {
            out.push(126);
            out.extend_from_slice(&length.to_be_bytes());
        }
        _ => {
            out.push(127);
            out.extend_from_slice(&(payload.len() as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(payload);
    out
}

/// Control message of the client.
#[derive(Debug, PartialEq, Eq)]
enum Control {
    Ping(Vec<u8>),
    /// Closed, or protocol error.
    End,
}

/// State of reading the client's frames. Data messages have no meaning here and are dropped as they arrive.
#[derive(Default)]
struct FrameReader {
    dropped: u64,
}

impl FrameReader {
    /// Returns the next control message, once it has arrived.
    fn next(&mut self, received: &mut BytesMut) -> Poll<Control> {
        loop {
            let dropped = received.len().min(usize::try_from(self.dropped).unwrap_or(usize::MAX));
            received.advance(dropped);
            self.dropped -= dropped as u64;
            if self.dropped > 0 {
                return Poll::Pending;
            }
            let Some((kind, length, header)) = header(received) else { return Poll::Pending };
            if kind & 0x8 == 0 {
                received.advance(header);
                self.dropped = length;
                continue;
            }
            if length > MAXIMUM_CONTROL || kind == CLOSE {
                return Poll::Ready(Control::End);
            }
            let end = header + usize::try_from(length).unwrap_or_default();
            if received.len() < end {
                return Poll::Pending;
            }
            let frame = received.split_to(end);
            let (mask, payload) = (&frame[header - 4..header], &frame[header..]);
            let payload = payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
            if kind == PING {
                return Poll::Ready(Control::Ping(payload));
            }
        }
    }
}

/// Returns a frame's kind, its payload length, and the length of its header with the mask, which clients must send.
fn header(received: &[u8]) -> Option<(u8, u64, usize)> {
    let (&[first, second], rest) = received.split_first_chunk::<2>()?;
    if second & 0x80 == 0 {
        return Some((CLOSE, 0, 2));
    }
    let (length, size) = match second & 0x7f {
        126 => (u64::from(u16::from_be_bytes(*rest.first_chunk()?)), 4),
        127 => (u64::from_be_bytes(*rest.first_chunk()?), 10),
        length => (u64::from(length), 2),
    };
    (received.len() >= size + 4).then_some((first & 0xf, length, size + 4))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_are_accepted_as_the_standard_says() {
        assert_eq!(accepted("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn origins_are_addresses() {
        let table = [
            ("http://x", true),
            ("https://a.example:1", true),
            ("/", true),
            ("null", false),
            ("rubbish", false),
        ];
        for (text, want) in table.into_iter().chain([("", false), (":x", false), ("1a:x", false)]) {
            assert_eq!(is_origin(text), want, "{text}");
        }
    }

    #[test]
    fn lengths_are_written_in_the_shortest_form() {
        for (length, header) in [(0, 2), (125, 2), (126, 4), (65_535, 4), (65_536, 10)] {
            assert_eq!(message(TEXT, &vec![0; length]).len(), header + length, "{length}");
        }
    }

    #[test]
    fn each_event_is_a_message() {
        let json = messages(b"{}\n{\"a\":1}\n", Encoding::Json);
        assert_eq!(json, [message(TEXT, b"{}\n"), message(TEXT, b"{\"a\":1}\n")].concat());
        let protobuf = messages(b"\0\0\0\x02ab\0\0\0\x01c", Encoding::Protobuf);
        assert_eq!(protobuf, [message(BINARY, b"ab"), message(BINARY, b"c")].concat());
    }

    fn masked(kind: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = message(kind, payload);
        frame[1] |= 0x80;
        let header = frame.len() - payload.len();
        let mask = [1, 2, 3, 4];
        let payload: Vec<u8> =
            payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
        frame.truncate(header);
        [frame, mask.to_vec(), payload].concat()
    }

    /// Control messages must be found no matter how the bytes are split.
    #[test]
    fn pings_and_closes_are_found_among_messages() {
        let ping = |text: &str| Control::Ping(text.as_bytes().to_vec());
        let table = [
            (masked(PING, b"hi"), vec![ping("hi")]),
            (
                [masked(TEXT, &[7; 300]), masked(PING, b"a"), masked(PONG, b"b"), masked(PING, b"")].concat(),
                vec![ping("a"), ping("")],
            ),
            ([masked(BINARY, &vec![7; 70_000]), masked(CLOSE, &NORMAL_END)].concat(), vec![Control::End]),
            (masked(PING, &[0; 126]), vec![Control::End]),
            (message(PING, b"without a mask"), vec![Control::End]),
        ];
        for (sent, want) in table {
            for size in [1, 3, sent.len()] {
                let (mut received, mut incoming, mut found) =
                    (BytesMut::new(), FrameReader::default(), Vec::new());
                for bytes in sent.chunks(size) {
                    received.extend_from_slice(bytes);
                    while let Poll::Ready(control) = incoming.next(&mut received) {
                        let is_end = control == Control::End;
                        found.push(control);
                        if is_end {
                            break;
                        }
                    }
                    if found.last() == Some(&Control::End) {
                        break;
                    }
                }
                assert_eq!(found, want, "in pieces of {size}");
            }
        }
    }

    proptest! {
        /// At most one control frame is buffered, whatever arrives in whatever chunks.
        #[test]
        fn what_waits_is_bounded(pieces in vec(vec(any::<u8>(), 0..300), 0..20)) {
            const MOST: usize = 14 + 125;
            let (mut received, mut incoming) = (BytesMut::new(), FrameReader::default());
            for piece in pieces {
                received.extend_from_slice(&piece);
                while let Poll::Ready(control) = incoming.next(&mut received) {
                    let Control::Ping(payload) = control else { return Ok(()) };
                    prop_assert!(payload.len() as u64 <= MAXIMUM_CONTROL);
                }
                prop_assert!(received.len() < MOST, "{} bytes wait", received.len());
            }
        }
    }
}
