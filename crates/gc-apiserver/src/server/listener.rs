//! Another listener of the process, for example for a collector's metrics or its page. It has the API server's limits on
//! connections, handshakes, headers, time and memory.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::FutureExt as _;
use gc_registry::api::UserInfo;
use http::header::{CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

use super::listener_tls::ListenerTls;
use super::unserved::unserved;
use crate::auth::authentication::standing;
use crate::exchange::body::AnswerBody;
use crate::loss_metrics::LossMetrics;
use crate::state::extension::{ExtensionAnswer, ExtensionBody};
use crate::transport::account::{Account, MemoryBudget};
use crate::transport::arrivals;
use crate::transport::clients::{AdmittedConnection, Clients, Ending, Limits};
use crate::transport::connections::{Patience, converse};
use crate::transport::lent::LentConnection;

/// A listener; see the module documentation.
#[derive(Clone)]
pub struct Listener {
    clients: Arc<Clients>,
    tls: Option<Arc<ListenerTls>>,
    patience: Patience,
}

/// Connection of a request; the code that answers reports the user. Connections without a known user are the first to end when
/// connections or memory run short, and share an eighth of the memory.
#[derive(Clone)]
pub struct Peer(Arc<AdmittedConnection>);

impl Peer {
    /// Reports that the request belongs to this user and that its credentials are valid.
    pub fn is_of(&self, user: &UserInfo) {
        self.0.client().authenticated(&user.name, standing(user));
    }

    /// Grants the connection the standing of a user, for listeners on which everybody may request everything. Its answers are still
    /// paced like those for clients without credentials.
    pub fn is_trusted(&self) {
        self.0.client().trusted();
    }

    /// Reports that the credentials of the request were invalid. After several such requests and no valid one, the connection is
    /// cut off.
    pub fn was_denied(&self) {
        self.0.client().denied();
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("has_tls", &self.tls.is_some()).finish_non_exhaustive()
    }
}

impl Listener {
    /// Creates a listener with at most this many connections, which may hold no more than half of the process's memory budget.
    #[must_use]
    pub fn new(tls: Option<Arc<ListenerTls>>, most_connections: usize) -> Self {
        let account = Account::new(MemoryBudget::of_machine());
        let clients = Clients::new(Limits::at_most(most_connections), account, LossMetrics::default());
        Self { clients, tls, patience: Patience::default() }
    }

    /// Serves requests until the process ends. Returns the actual address, in case the port was 0.
    pub async fn listen<A>(
        self,
        address: SocketAddr,
        answer: impl Fn(Request<Incoming>, Peer) -> A + Clone + Send + Sync + 'static,
    ) -> io::Result<SocketAddr>
    where
        A: Future<Output = ExtensionAnswer> + Send + 'static,
    {
        let listener = TcpListener::bind(address).await?;
        let bound = listener.local_addr()?;
        tokio::spawn(
            async move {
                loop {
                    let (stream, admitted) = arrivals::next(&listener, &self.clients).await;
                    tokio::spawn(self.clone().serve(stream, Arc::new(admitted), answer.clone()).boxed());
                }
            }
            .boxed(),
        );
        Ok(bound)
    }

    async fn serve<A>(
        self,
        stream: TcpStream,
        admitted: Arc<AdmittedConnection>,
        answer: impl Fn(Request<Incoming>, Peer) -> A + Send + Sync + 'static,
    ) where
        A: Future<Output = ExtensionAnswer> + Send + 'static,
    {
        let client = admitted.client();
        let _ = stream.set_nodelay(true);
        let (stream, slot) = LentConnection::new(stream);
        match &self.tls {
            None => self.converse(stream, &admitted, answer).await,
            Some(tls) => {
                let shaking = arrivals::shake_hands(client, tls.acceptor(), stream);
                let shaken = tokio::select! {
                    shaken = tokio::time::timeout(self.patience.handshake, shaking) => shaken,
                    () = client.asked(Ending::AtOnce) => return,
                };
                // A failed or slow handshake only affects its client.
                let Ok(Ok(stream)) = shaken else { return };
                self.converse(stream, &admitted, answer).await;
            }
        }
        arrivals::stay_silent(client, &slot, std::future::pending()).await;
    }

    async fn converse<S, A>(
        &self,
        stream: S,
        admitted: &Arc<AdmittedConnection>,
        answer: impl Fn(Request<Incoming>, Peer) -> A + Send + Sync,
    ) where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        A: Future<Output = ExtensionAnswer> + Send + 'static,
    {
        let answer = |request: Request<Incoming>| {
            let answering = match unserved(&request) {
                Some(refusal) => Err(refusal),
                None => Ok(answer(request, Peer(Arc::clone(admitted)))),
            };
            async move {
                Ok::<_, Infallible>(match answering {
                    Ok(answering) => response(answering.await),
                    Err(refusal) => refusal,
                })
            }
        };
        converse(stream, admitted.client(), self.patience, std::future::pending(), answer).await;
    }
}

/// Converts an answer to a response.
fn response(answer: ExtensionAnswer) -> Response<AnswerBody> {
    let body = match answer.body {
        ExtensionBody::Whole(bytes) => AnswerBody::Whole(bytes),
        ExtensionBody::Shared(body) => AnswerBody::Whole(body.bytes()),
        ExtensionBody::Stream(stream) => AnswerBody::Stream(stream),
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(answer.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.extend(answer.headers);
    response
}
