//! The page of `kubegc run`: a separate listener over TLS, for users whom the API server authenticates by their bearer token.
//! Questions use that token, so that answers reflect the user's permissions. Nothing is changed unless `--ui-orders` is given.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use gc_apiserver::{Audience, ExtensionAnswer, ExtensionRequest, Listener, ListenerTls, Peer};
use gc_registry::api::UserInfo;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;

use super::requester::{Cluster, Requester};
use super::{MAXIMUM_ORDER_BYTES, Page, Refusal, guard};

/// Maximum number of connections; for one more, an idle one is closed. Each reader of the feed has one.
const MAXIMUM_CONNECTIONS: usize = 512;
/// Maximum time to receive the body of an order.
const BODY_PATIENCE: Duration = Duration::from_secs(10);
/// Prefix of headers for requests on behalf of somebody else.
const IMPERSONATION: &str = "impersonate-";

/// The page, and the authentication of its users.
struct Door {
    page: Page,
    cluster: Arc<Cluster>,
}

/// Serves the page until the process ends. Returns the address (the port may have been 0).
pub async fn serve(
    address: SocketAddr,
    tls: Arc<ListenerTls>,
    page: Page,
    cluster: Cluster,
) -> anyhow::Result<SocketAddr> {
    let door = Arc::new(Door { page, cluster: Arc::new(cluster) });
    let listening = Listener::new(Some(tls), MAXIMUM_CONNECTIONS).listen(address, move |request, peer| {
        let door = Arc::clone(&door);
        async move { door.answer(request, &peer).await }
    });
    listening.await.with_context(|| format!("cannot listen on {address}"))
}

/// Returns the bearer token of a request.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

impl Door {
    async fn answer(&self, request: Request<Incoming>, peer: &Peer) -> ExtensionAnswer {
        let answer = match self.admit(request, peer).await {
            Ok((request, visitor)) => self.page.clone().answer_as(request, visitor).await,
            Err(refusal) => Some(guard::protected(refusal.answer())),
        };
        answer.unwrap_or_else(|| guard::protected(not_found().answer()))
    }

    /// Returns the request with its user. Without valid credentials, only the page itself can be requested.
    async fn admit(
        &self,
        request: Request<Incoming>,
        peer: &Peer,
    ) -> Result<(ExtensionRequest, Result<Requester, Refusal>), Refusal> {
        let (head, body) = request.into_parts();
        let path = head.uri.path().trim_end_matches('/').to_owned();
        let audience = Page::audience(&path).ok_or_else(not_found)?;
        if head.headers.keys().any(|name| name.as_str().starts_with(IMPERSONATION)) {
            let message = "the page does not impersonate: show a token of that user";
            return Err(Refusal::new(400, "BadRequest", message));
        }
        let (user, visitor) = match self.authenticate(&head.headers, &path, peer).await? {
            Some((user, visitor)) => (user, Ok(visitor)),
            None if audience == Audience::Anyone => (UserInfo::default(), Err(unauthorized())),
            None => return Err(unauthorized()),
        };
        if let (Audience::Permitted, Ok(visitor)) = (audience, &visitor) {
            let verb = head.method.as_str().to_lowercase();
            if !visitor.may_path(&verb, &path).await? {
                let message = format!(
                    "user {:?} cannot {verb} {path}: a ClusterRole with nonResourceURLs: [{path:?}] and verbs: [{verb:?}] \
                     would allow it",
                    user.name
                );
                return Err(Refusal::new(403, "Forbidden", message));
            }
        }
        let body = if head.method == Method::POST { order(body).await? } else { Bytes::new() };
        let query = gc_apiserver::query_pairs(head.uri.query().unwrap_or_default());
        let (method, headers) = (head.method, head.headers);
        Ok((ExtensionRequest { method, path, query, headers, body, user, origin: None }, visitor))
    }

    /// Authenticates the user of a request; `None` without valid credentials.
    async fn authenticate(
        &self,
        headers: &HeaderMap,
        path: &str,
        peer: &Peer,
    ) -> Result<Option<(UserInfo, Requester)>, Refusal> {
        let now = jiff::Timestamp::now().as_second();
        let token = match bearer(headers) {
            Some(token) => Some(token.to_owned()),
            None if Page::accepts_session(path) => self.page.sessions().bearer(headers, now),
            None => None,
        };
        // The token of a session is reviewed repeatedly, so a session does not outlive it.
        let Some(token) = token else { return Ok(None) };
        let found = self.cluster.visitor(&token).await?;
        match &found {
            Some((user, _)) => peer.is_of(user),
            None => peer.was_denied(),
        }
        Ok(found)
    }
}

/// Returns the body of an order, within a bounded time and size.
async fn order(body: Incoming) -> Result<Bytes, Refusal> {
    let read = tokio::time::timeout(BODY_PATIENCE, Limited::new(body, MAXIMUM_ORDER_BYTES).collect()).await;
    match read {
        Err(_) => Err(Refusal::new(408, "Timeout", "the order did not arrive in time")),
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let message = format!("an order has at most {MAXIMUM_ORDER_BYTES} bytes");
            Err(Refusal::new(413, "RequestEntityTooLarge", message))
        }
        Ok(Err(error)) => Err(Refusal::new(400, "BadRequest", format!("the order cannot be read: {error}"))),
    }
}

fn not_found() -> Refusal {
    Refusal::new(404, "NotFound", "not found; the page is at /ui, its API at /kubegc/v1/openapi.json")
}

fn unauthorized() -> Refusal {
    let message = "a bearer token of the cluster is needed, or a session: `kubegc ui --collector ADDRESS:PORT` opens one";
    Refusal::new(401, "Unauthorized", message)
}
