//! A real etcd for a test or a benchmark: Debian's, on loopback, in a temporary directory. Shared by path.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Timeout for etcd to listen, and to answer, after its start.
pub const START: Duration = Duration::from_secs(20);

/// The files of a server that speaks TLS.
#[derive(Debug)]
pub struct ServerTls {
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub authority: PathBuf,
}

/// A running etcd, killed when dropped.
#[derive(Debug)]
pub struct EtcdServer {
    child: Child,
    folder: TempDir,
    client_port: u16,
    peer_port: u16,
    tls: Option<ServerTls>,
}

impl EtcdServer {
    /// Starts one; without etcd on this machine the test is skipped, which CI does not allow.
    pub fn start() -> Option<Self> {
        Self::start_with(|_| None)
    }

    /// Starts one with the files created in its directory.
    pub fn start_with(tls: impl FnOnce(&Path) -> Option<ServerTls>) -> Option<Self> {
        if let Err(error) = Command::new("etcd").arg("--version").output() {
            let message = format!("etcd cannot be run ({error}); install Debian's etcd-server");
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{message}");
            eprintln!("SKIPPED: {message}");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let tls = tls(folder.path());
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (client_port, peer_port) = (free(), free());
        let child = spawn(folder.path(), client_port, peer_port, tls.as_ref());
        let server = Self { child, folder, client_port, peer_port, tls };
        server.wait();
        Some(server)
    }

    pub fn endpoint(&self) -> String {
        endpoint(self.client_port, self.tls.as_ref())
    }

    pub fn speaks_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// As if its machine had lost power.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The same server, again.
    pub fn restart(&mut self) {
        self.child = spawn(self.folder.path(), self.client_port, self.peer_port, self.tls.as_ref());
        self.wait();
    }

    /// Polls whether it listens, because there is no notification.
    fn wait(&self) {
        let deadline = Instant::now() + START;
        while TcpStream::connect(("127.0.0.1", self.client_port)).is_err() {
            assert!(Instant::now() < deadline, "etcd does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn endpoint(port: u16, tls: Option<&ServerTls>) -> String {
    format!("{}://127.0.0.1:{port}", if tls.is_some() { "https" } else { "http" })
}

fn spawn(folder: &Path, client_port: u16, peer_port: u16, tls: Option<&ServerTls>) -> Child {
    let (client, peer) = (endpoint(client_port, tls), endpoint(peer_port, None));
    let mut command = Command::new("etcd");
    command
        .arg("--data-dir")
        .arg(folder.join("data"))
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}")])
        .args(["--log-level", "error", "--heartbeat-interval", "50", "--election-timeout", "250"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if let Some(tls) = tls {
        command.arg("--client-cert-auth").arg("--cert-file").arg(&tls.certificate);
        command.arg("--key-file").arg(&tls.key).arg("--trusted-ca-file").arg(&tls.authority);
    }
    command.spawn().unwrap()
}
