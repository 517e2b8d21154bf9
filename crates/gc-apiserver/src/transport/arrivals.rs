//! The arrival of connections, at the API server's listener and at others of the process: who is let in, the handshake, and the silence
//! towards those that did harm.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::clients::{AdmittedConnection, Client, Clients, Ending};
use super::doors::TURN;
use super::lent::{LentConnection, ReturnSlot};

/// How long a connection stays open, and is not served, whose peer does harm: whoever waits for its end does not come again at once.
const SILENCE: Duration = Duration::from_secs(5);
/// Delay after a connection could not be accepted: file descriptors are short, mostly, until some connection ends.
const PAUSE: Duration = Duration::from_millis(100);

/// The next connection for which there is a place.
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

/// Makes a connection one of TLS, in its turn.
pub(crate) async fn shake_hands(
    client: &Client,
    acceptor: TlsAcceptor,
    stream: LentConnection<TcpStream>,
) -> io::Result<TlsStream<LentConnection<TcpStream>>> {
    // Whoever says nothing waits for no turn.
    stream.readable().await?;
    let turn = client.doors().handshake(client.address()).await;
    let accepting = acceptor.accept(stream);
    tokio::pin!(accepting);
    if let Ok(shaken) = tokio::time::timeout(TURN, &mut accepting).await {
        return shaken;
    }
    // It waits for its peer, and leaves its turn to others.
    drop(turn);
    accepting.await
}

/// Keeps a connection open for a while that is not served any longer, if its peer did harm.
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
