//! Forwards requests to aggregated servers, on behalf of the user who made them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _};
use gc_registry::admission::configured::EndpointError;
use gc_registry::api::UserInfo;
use gc_registry::error::ApiError;
use http::header::{
    AUTHORIZATION, CONNECTION, HOST, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Full, Limited};
use hyper::body::Incoming;
use tokio::time::Instant;

use crate::aggregator::{ApiService, Availability, Resource};
use crate::auth::request_headers::RequestHeaders;
use crate::exchange::body::AnswerBody;
use crate::exchange::{Answer, ApiRequest, RequestBytes, text_answer};
use crate::state::State;
use crate::transport::dial::{Connection, Peer, dial};
use crate::transport::path::{self, Route};
use crate::work::Weight;

/// Time within which the answer to a request without a deadline must begin.
const ANSWER_PATIENCE: Duration = Duration::from_mins(1);
/// Maximum duration of one availability check.
const CHECK_PATIENCE: Duration = Duration::from_secs(5);
/// Maximum size of a discovery document, in bytes.
const LARGEST_DISCOVERY: usize = 3 * 1024 * 1024;

/// Subresources that are connections, which last for as long as both sides want.
const CONNECTIONS: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// Reports whether a header belongs to one connection, or must be hidden from another server.
fn stays_here(name: &HeaderName) -> bool {
    [CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE]
        .contains(name)
        || matches!(name.as_str(), "keep-alive" | "proxy-connection")
}

/// Reports whether a header could make the other server believe in another user, including the headers by which proxies name users
/// here.
fn claims_a_user(name: &HeaderName, proxies: Option<&RequestHeaders>) -> bool {
    *name == AUTHORIZATION
        || name.as_str().starts_with("impersonate-")
        || name.as_str().starts_with("x-remote-")
        || proxies.is_some_and(|proxies| proxies.names_a_user(name))
}

/// Escapes a key of extra attributes for use in the name of a header: characters that no name may contain are percent-encoded.
fn escaped(key: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte);
    key.bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// Returns the headers that name a user.
fn user_headers(user: &UserInfo) -> Result<HeaderMap, http::Error> {
    let mut headers = HeaderMap::new();
    let mut add = |name: String, value: &str| -> Result<(), http::Error> {
        headers.append(HeaderName::from_bytes(name.as_bytes())?, HeaderValue::from_bytes(value.as_bytes())?);
        Ok(())
    };
    add("x-remote-user".into(), &user.name)?;
    if !user.uid.is_empty() {
        add("x-remote-uid".into(), &user.uid)?;
    }
    for group in &user.groups {
        add("x-remote-group".into(), group)?;
    }
    for (key, values) in &user.extra {
        for value in values {
            add(format!("x-remote-extra-{}", escaped(key)), value)?;
        }
    }
    Ok(headers)
}

/// Answers with a 503 like that of upstream's proxy.
fn unavailable(why: &str) -> Answer {
    let code = StatusCode::SERVICE_UNAVAILABLE;
    let mut answer = text_answer(code, "text/plain; charset=utf-8", format!("{why}\n"));
    answer.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    answer
}

/// Returns the address of the server behind a Service, or the condition that explains why there is none.
async fn peer(state: &Arc<State>, service: &ApiService) -> Result<Peer, Availability> {
    let (namespace, name, port) = service.service.clone();
    let asked = (namespace.clone(), name.clone());
    let found = state
        .perform(Weight::Read, move |state| Ok(state.registry.endpoint(&asked.0, &asked.1, port.into())));
    let unreadable = |error: ApiError| Err(EndpointError::Unreadable(error.message));
    match found.await.unwrap_or_else(unreadable) {
        Ok(address) => Ok(Peer { name: service.host(), address, trust: service.trust.clone() }),
        Err(error) => Err(match error {
            EndpointError::NoService(_) => Availability::failed(
                "ServiceNotFound",
                format!("service/{name} in {namespace:?} is not present"),
            ),
            EndpointError::NoPort(..) => Availability::failed(
                "ServicePortError",
                format!("service/{name} in {namespace:?} is not listening on port {port}"),
            ),
            EndpointError::NoEndpoints(_) => Availability::failed(
                "MissingEndpoints",
                format!("endpointslices for service/{name} in {namespace:?} have no addresses"),
            ),
            EndpointError::Unreadable(why) => Availability::failed(
                "ServiceAccessError",
                format!("service/{name} in {namespace:?} cannot be checked due to: {why}"),
            ),
        }),
    }
}

/// Forwards a request, and returns its answer.
pub(crate) async fn forward(
    state: &Arc<State>,
    request: &mut ApiRequest,
    service: &ApiService,
    route: &Route,
) -> Result<Answer, ApiError> {
    if !service.availability.is_available {
        return Ok(unavailable("service unavailable"));
    }
    let is_watch = matches!(route, Route::Resource(target)
        if path::resource_verb(&request.method, target, &request.query) == Some("watch"));
    let is_connection =
        matches!(route, Route::Resource(target) if CONNECTIONS.contains(&target.subresource.as_str()));
    let end = if is_watch || is_connection {
        None
    } else {
        request.limit_time()?;
        Some(request.deadline.end().into())
    };
    let watching = if is_watch {
        Some(state.metrics.watch(state.work.watch_place(&request.user.name, &request.flow)?))
    } else {
        None
    };
    let place = state.work.place(&state.metrics, &request.flow, 1).await?;
    let Ok(peer) = peer(state, service).await else { return Ok(unavailable("service unavailable")) };
    let mut headers = HeaderMap::new();
    for (name, value) in &request.headers {
        if !stays_here(name) && !claims_a_user(name, state.access.front_proxy.as_ref()) && *name != HOST {
            headers.append(name, value.clone());
        }
    }
    headers.extend(user_headers(&request.user).map_err(|why| {
        ApiError::bad_request(format!("the user cannot be named to the aggregated server: {why}"))
    })?);
    let body = std::mem::replace(&mut request.body, nothing());
    let sent = send(state, &peer, &request.method, &request.target, headers, body);
    let patience = end.unwrap_or_else(|| Instant::now() + ANSWER_PATIENCE);
    match tokio::time::timeout_at(patience, sent).await {
        Ok(Ok((connection, response))) => {
            drop(place);
            Ok(answer(state, response, end, (connection, watching)))
        }
        Ok(Err(why)) => Ok(unavailable(&format!("error trying to reach service: {why}"))),
        Err(_) => Ok(unavailable("error trying to reach service: context deadline exceeded")),
    }
}

fn nothing() -> RequestBytes {
    Empty::new().map_err(|never| match never {}).boxed()
}

async fn send(
    state: &State,
    peer: &Peer,
    method: &Method,
    target: &str,
    headers: HeaderMap,
    body: RequestBytes,
) -> Result<(Connection<RequestBytes>, http::Response<Incoming>), String> {
    let mut connection = dial(peer, Some(state.aggregator.identity())).await?;
    let mut request = Request::builder()
        .method(method)
        .uri(target)
        .header(HOST, &peer.name)
        .body(body)
        .map_err(|why| why.to_string())?;
    request.headers_mut().extend(headers);
    let response = connection.sender.send_request(request).await.map_err(|why| why.to_string())?;
    Ok((connection, response))
}

/// Passes the answer on as it arrives, until the deadline if there is one; `T` is held until the end.
fn answer<T: Send + 'static>(
    state: &State,
    response: http::Response<Incoming>,
    end: Option<Instant>,
    held: T,
) -> Answer {
    let (head, body) = response.into_parts();
    let pieces = futures::stream::unfold((body, held), |(mut body, held)| async {
        loop {
            match body.frame().await?.map(http_body::Frame::into_data) {
                Ok(Ok(data)) => return Some((data, (body, held))),
                Ok(Err(_)) => {}
                Err(error) => {
                    tracing::debug!(%error, "the answer of an aggregated server broke off");
                    return None;
                }
            }
        }
    });
    let ended = async move {
        match end {
            Some(end) => tokio::time::sleep_until(end).await,
            None => std::future::pending().await,
        }
    };
    let ended = futures::future::select(state.stop.clone(), Box::pin(ended)).map(drop);
    let stream = pieces.take_until(ended);
    let mut answer = http::Response::new(AnswerBody::Stream(Box::pin(stream)));
    *answer.status_mut() = head.status;
    for (name, value) in &head.headers {
        if !stays_here(name) {
            answer.headers_mut().append(name, value.clone());
        }
    }
    answer
}

/// Checks a server by requesting its resources. Returns its availability and its answer.
pub(crate) async fn check(
    state: &Arc<State>,
    service: &ApiService,
) -> (Availability, Option<Arc<[Resource]>>) {
    let peer = match peer(state, service).await {
        Ok(peer) => peer,
        Err(unavailable) => return (unavailable, None),
    };
    let url = format!("https://{}:{}{}", peer.address.0, peer.address.1, service.path());
    let failed = |why: String| (Availability::failed("FailedDiscoveryCheck", why), None);
    match tokio::time::timeout(CHECK_PATIENCE, discovery(state, &peer, &service.path())).await {
        Ok(Ok((status, document))) if status.is_success() => (Availability::passed(), document),
        Ok(Ok((status, _))) => failed(format!(
            "failing or missing response from {url}: bad status from {url}: {}",
            status.as_u16()
        )),
        Ok(Err(why)) => failed(format!("failing or missing response from {url}: Get {url:?}: {why}")),
        Err(_) => {
            failed(format!("failing or missing response from {url}: Get {url:?}: context deadline exceeded"))
        }
    }
}

async fn discovery(
    state: &State,
    peer: &Peer,
    path: &str,
) -> Result<(StatusCode, Option<Arc<[Resource]>>), String> {
    let user = UserInfo {
        name: "system:kube-aggregator".into(),
        groups: vec![crate::auth::pki::MASTERS_GROUP.into()],
        ..UserInfo::default()
    };
    let mut connection = dial::<Full<Bytes>>(peer, Some(state.aggregator.identity())).await?;
    let mut request = Request::builder()
        .uri(path)
        .header(HOST, &peer.name)
        .header("accept", "application/json")
        .body(Full::default())
        .map_err(|why| why.to_string())?;
    request.headers_mut().extend(user_headers(&user).map_err(|why| why.to_string())?);
    let response = connection.sender.send_request(request).await.map_err(|why| why.to_string())?;
    let status = response.status();
    let body = Limited::new(response.into_body(), LARGEST_DISCOVERY);
    let bytes = body.collect().await.map_err(|why| why.to_string())?.to_bytes();
    Ok((status, Resource::list(&bytes)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn a_user_is_named_with_groups_and_escaped_extras() {
        let user = UserInfo {
            name: "jürgen".into(),
            uid: "7".into(),
            groups: vec!["a".into(), "b".into()],
            extra: vec![("example.com/Scope".into(), vec!["x".into(), "y".into()])],
        };
        let headers = user_headers(&user).unwrap();
        let shown: Vec<(String, String)> = headers
            .iter()
            .map(|(name, value)| (name.to_string(), String::from_utf8(value.as_bytes().to_vec()).unwrap()))
            .collect();
        let wanted = [
            ("x-remote-user", "jürgen"),
            ("x-remote-uid", "7"),
            ("x-remote-group", "a"),
            ("x-remote-group", "b"),
            ("x-remote-extra-example.com%2fscope", "x"),
            ("x-remote-extra-example.com%2fscope", "y"),
        ];
        assert_eq!(shown, wanted.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert!(user_headers(&UserInfo { name: "a\nb".into(), ..UserInfo::default() }).is_err());
    }

    #[test]
    fn nobody_names_a_user_for_others() {
        let proxies = RequestHeaders {
            user: vec!["X-User".into()],
            groups: vec!["X-Groups".into()],
            extra_prefixes: vec!["X-Extra-".into()],
            ..RequestHeaders::default()
        };
        for (name, claims) in [
            ("authorization", true),
            ("x-user", true),
            ("x-groups", true),
            ("x-extra-a", true),
            ("impersonate-user", true),
            ("x-remote-group", true),
            ("x-remote-extra-a", true),
            ("accept", false),
        ] {
            assert_eq!(claims_a_user(&HeaderName::from_static(name), Some(&proxies)), claims, "{name}");
        }
    }
}
