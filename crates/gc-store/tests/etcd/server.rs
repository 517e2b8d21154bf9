//! A real etcd, and stores over it.

use std::path::Path;
use std::time::{Duration, Instant};

use gc_store::{EtcdOptions, EtcdStorage};

use crate::process::{EtcdServer, START, ServerTls};

pub(crate) struct Server(EtcdServer);

impl Server {
    /// Starts a server that answers, or returns why it cannot.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(|_| None)
    }

    pub(crate) fn start_with(tls: impl FnOnce(&Path) -> Option<ServerTls>) -> Option<Self> {
        let server = Self(EtcdServer::start_with(tls)?);
        server.wait();
        Some(server)
    }

    /// Kills the server as a power failure would.
    pub(crate) fn kill(&mut self) {
        self.0.kill();
    }

    /// Restarts the same server.
    pub(crate) fn restart(&mut self) {
        self.0.restart();
        self.wait();
    }

    pub(crate) fn endpoints(&self) -> Vec<String> {
        vec![self.0.endpoint()]
    }

    pub(crate) fn port(&self) -> u16 {
        self.0.port()
    }

    pub(crate) fn connect(&self, options: &EtcdOptions) -> EtcdStorage {
        EtcdStorage::connect(&self.endpoints(), options).unwrap()
    }

    /// Waits until the server answers, which may be later than it listens. With TLS, the test itself connects, with its own
    /// certificates.
    fn wait(&self) {
        if self.0.speaks_tls() {
            return;
        }
        let deadline = Instant::now() + START;
        let options = EtcdOptions { prefix: "/ready".to_owned(), ..quiet() };
        while let Err(error) = EtcdStorage::connect(&self.endpoints(), &options) {
            assert!(Instant::now() < deadline, "etcd does not answer: {error}; its log:\n{}", self.0.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns options for faults: on a busy machine, an election takes longer than the default timeout of a request.
pub(crate) fn patient() -> EtcdOptions {
    EtcdOptions { timeout: Duration::from_mins(1), ..quiet() }
}

/// Returns options without background activity.
pub(crate) fn quiet() -> EtcdOptions {
    EtcdOptions { compaction_interval: None, ..EtcdOptions::default() }
}
