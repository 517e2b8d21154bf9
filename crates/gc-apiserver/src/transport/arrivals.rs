//! Arrival of connections, at the API server's listener and at others of the process: admission, the handshake, and the silence
//! towards peers that did harm.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::clients::{AdmittedConnection, Client, Clients, Ending};
use super::doors::TURN;
use super::lent::{LentConnection, ReturnSlot};

/// Time for which a harmful peer's connection stays open unserved: a client that waits for its end does not reconnect immediately.
const SILENCE: Duration = Duration::from_secs(5);
/// Delay after a connection could not be accepted, usually because file descriptors are exhausted until some connection ends.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts the next connection that is admitted.
pub(crate) async fn next(listener: &TcpListener, clients: &Arc<Clients>) -> (TcpStream, AdmittedConnection) {
    loop {
        clients.room().await;
        match listener.accept().await {
            Ok((stream, address)) => match clients.admit(address.ip()) {
                Some(admitted) => return (stream, admitted),
                None => tracing::debug!(%address, "a connection was refused: there is no place for it"),
            },
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Performs the TLS handshake of a connection, in its turn.
pub(crate) async fn shake_hands(
    client: &Client,
    acceptor: TlsAcceptor,
    stream: LentConnection<TcpStream>,
) -> io::Result<TlsStream<LentConnection<TcpStream>>> {
    // A client that sends nothing takes no turn.
    stream.readable().await?;
    let turn = client.doors().handshake(client.address()).await;
    let accepting = acceptor.accept(stream);
    tokio::pin!(accepting);
    if let Ok(shaken) = tokio::time::timeout(TURN, &mut accepting).await {
        return shaken;
    }
    // The handshake now waits for its peer, so others may have the turn.
    drop(turn);
    accepting.await
}

/// Keeps the connection of a harmful peer open for a while, without serving it.
pub(crate) async fn stay_silent(
    client: &Client,
    slot: &ReturnSlot<TcpStream>,
    stop: impl Future<Output = ()>,
) {
    if !client.is_silenced() {
        return;
    }
    let Some(_open) = slot.take() else { return };
    client.release();
    tokio::select! {
        () = tokio::time::sleep(SILENCE) => {}
        () = client.asked(Ending::AtOnce) => {}
        () = stop => {}
    }
}
