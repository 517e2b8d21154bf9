//! Ports for servers of tests that cannot choose one themselves. Shared by path.

use std::net::Ipv4Addr;

use tokio::net::TcpSocket;

/// A port of a server from before its start until the end of its test, also while the server is down.
///
/// A port that was merely seen to be free can be taken by a server of another test before this one listens. This port is bound
/// without a listener: the system gives it to no one who asks for any port, and `SO_REUSEADDR`, which servers set, lets them bind it.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _bound: TcpSocket,
}

impl Port {
    /// Reserves a port of loopback.
    pub fn reserve() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        Self { number: socket.local_addr().unwrap().port(), _bound: socket }
    }

    pub fn number(&self) -> u16 {
        self.number
    }
}
