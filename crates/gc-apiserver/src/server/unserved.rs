//! Requests that Go's HTTP/1 server refuses before it parses them further: a proxy in front might interpret them differently than
//! this server does.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, EXPECT, HOST, HeaderValue, TRANSFER_ENCODING};
use http::{Request, StatusCode, Version};

use crate::exchange::{Answer, PLAIN, text_answer};

/// Bytes allowed in a `Host` besides letters and digits.
const HOST_BYTES: &[u8] = b"!$%&()*+,-.:;=[]'_~";

/// Returns the answer to a request that must not be served; the connection ends with it.
pub(crate) fn unserved<B>(request: &Request<B>) -> Option<Answer> {
    if !matches!(request.version(), Version::HTTP_10 | Version::HTTP_11) {
        return None;
    }
    let mut answer =
        bad_host(request).or_else(|| bad_coding(request)).or_else(|| bad_expectation(request))?;
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    Some(answer)
}

fn bad_host<B>(request: &Request<B>) -> Option<Answer> {
    let hosts: Vec<&HeaderValue> = request.headers().get_all(HOST).iter().collect();
    let is_valid = |host: &HeaderValue| {
        host.as_bytes().iter().all(|byte| byte.is_ascii_alphanumeric() || HOST_BYTES.contains(byte))
    };
    let why = match hosts.as_slice() {
        [] if request.version() == Version::HTTP_11 => ": missing required Host header",
        [] => return None,
        [host] if is_valid(host) => return None,
        [_] => ": malformed Host header",
        _ => "",
    };
    Some(text_answer(StatusCode::BAD_REQUEST, PLAIN, format!("400 Bad Request{why}")))
}

fn bad_coding<B>(request: &Request<B>) -> Option<Answer> {
    let codings: Vec<&HeaderValue> = request.headers().get_all(TRANSFER_ENCODING).iter().collect();
    match codings.as_slice() {
        [] => None,
        [coding] if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => None,
        _ => Some(text_answer(StatusCode::NOT_IMPLEMENTED, PLAIN, "Unsupported transfer encoding")),
    }
}

fn bad_expectation<B>(request: &Request<B>) -> Option<Answer> {
    let expected = request.headers().get(EXPECT)?.as_bytes();
    if expected.is_empty() || expected.eq_ignore_ascii_case(b"100-continue") {
        return None;
    }
    let mut answer = text_answer(StatusCode::EXPECTATION_FAILED, PLAIN, Bytes::new());
    answer.headers_mut().remove(CONTENT_TYPE);
    Some(answer)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use super::*;

    /// The same answers as kube-apiserver 1.36.2 gives.
    #[test]
    fn what_others_may_read_otherwise_is_not_served() {
        let table: [(Version, &[(&str, &str)], Option<u16>); 14] = [
            (Version::HTTP_11, &[("host", "a.example:6443")], None),
            (Version::HTTP_11, &[("host", "[::1]:6443")], None),
            (Version::HTTP_11, &[("host", "")], None),
            (Version::HTTP_11, &[], Some(400)),
            (Version::HTTP_10, &[], None),
            (Version::HTTP_2, &[], None),
            (Version::HTTP_11, &[("host", "a"), ("host", "b")], Some(400)),
            (Version::HTTP_11, &[("host", "a b")], Some(400)),
            (Version::HTTP_11, &[("host", "a/b")], Some(400)),
            (Version::HTTP_11, &[("host", "a"), ("transfer-encoding", "chunked")], None),
            (Version::HTTP_11, &[("host", "a"), ("transfer-encoding", "gzip, chunked")], Some(501)),
            (Version::HTTP_11, &[("host", "a"), ("expect", "100-Continue")], None),
            (Version::HTTP_11, &[("host", "a"), ("expect", "other")], Some(417)),
            (Version::HTTP_2, &[("expect", "other")], None),
        ];
        for (version, headers, code) in table {
            let mut request = Request::new(());
            *request.version_mut() = version;
            for (name, value) in headers {
                request.headers_mut().append(*name, HeaderValue::from_static(value));
            }
            let answer = unserved(&request);
            assert_eq!(
                answer.as_ref().map(|answer| answer.status().as_u16()),
                code,
                "{version:?} {headers:?}"
            );
            assert!(answer.is_none_or(|answer| answer.headers()[CONNECTION] == "close"));
        }
    }
}
