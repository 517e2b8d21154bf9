//! A real etcd for a test: Debian's, on loopback, in a temporary directory.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gc_store::{EtcdOptions, EtcdStorage};
use tempfile::TempDir;

/// How long etcd may take to answer after its start.
const START: Duration = Duration::from_secs(20);

pub(crate) struct Server {
    child: Child,
    directory: TempDir,
    client_port: u16,
    peer_port: u16,
    /// Certificate, key and authority, if it speaks TLS.
    tls: Option<[PathBuf; 3]>,
}

impl Server {
    /// Starts a server, or says why there is none.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(|_| None)
    }

    pub(crate) fn start_with(tls: impl FnOnce(&TempDir) -> Option<[PathBuf; 3]>) -> Option<Self> {
        if let Err(error) = Command::new("etcd").arg("--version").output() {
            let message = format!("etcd cannot be run ({error}); install Debian's etcd-server");
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{message}");
            eprintln!("SKIPPED: {message}");
            return None;
        }
        let directory = TempDir::new().unwrap();
        let tls = tls(&directory);
        let (client_port, peer_port) = (free_port(), free_port());
        let child = spawn(&directory, client_port, peer_port, tls.as_ref());
        let server = Self { child, directory, client_port, peer_port, tls };
        server.wait();
        Some(server)
    }

    /// As if the machine had lost its power.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The same server, again.
    pub(crate) fn restart(&mut self) {
        self.child = spawn(&self.directory, self.client_port, self.peer_port, self.tls.as_ref());
        self.wait();
    }

    pub(crate) fn endpoints(&self) -> Vec<String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        vec![format!("{scheme}://127.0.0.1:{}", self.client_port)]
    }

    pub(crate) fn connect(&self, options: &EtcdOptions) -> EtcdStorage {
        EtcdStorage::connect(&self.endpoints(), options).unwrap()
    }

    fn wait(&self) {
        let deadline = Instant::now() + START;
        // Whether it answers is known when it does; there is nothing to be woken by.
        while std::net::TcpStream::connect(("127.0.0.1", self.client_port)).is_err() {
            assert!(Instant::now() < deadline, "etcd does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        if self.tls.is_some() {
            return;
        }
        loop {
            let options = EtcdOptions { prefix: "/ready".to_owned(), ..quiet() };
            match EtcdStorage::connect(&self.endpoints(), &options) {
                Ok(_) => return,
                Err(error) => assert!(Instant::now() < deadline, "etcd does not answer: {error}"),
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Options with which nothing happens that a test does not ask for.
pub(crate) fn quiet() -> EtcdOptions {
    EtcdOptions { compaction_interval: None, ..EtcdOptions::default() }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn spawn(directory: &TempDir, client_port: u16, peer_port: u16, tls: Option<&[PathBuf; 3]>) -> Child {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let client = format!("{scheme}://127.0.0.1:{client_port}");
    let peer = format!("http://127.0.0.1:{peer_port}");
    let mut command = Command::new("etcd");
    command
        .arg("--data-dir")
        .arg(directory.path().join("data"))
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}")])
        .args(["--log-level", "error", "--heartbeat-interval", "50", "--election-timeout", "250"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if let Some([certificate, key, authority]) = tls {
        command.arg("--client-cert-auth").arg("--cert-file").arg(certificate);
        command.arg("--key-file").arg(key).arg("--trusted-ca-file").arg(authority);
    }
    command.spawn().unwrap()
}
