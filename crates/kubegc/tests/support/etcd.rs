//! A real etcd for a test: Debian's, on loopback, in a temporary directory.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long etcd may take to listen after its start.
const START: Duration = Duration::from_secs(20);

/// A running etcd, killed when dropped.
pub struct EtcdServer {
    child: Child,
    folder: tempfile::TempDir,
    client_port: u16,
    peer_port: u16,
}

impl EtcdServer {
    /// Starts one; without etcd on this machine the test is skipped, which CI does not allow.
    pub fn start() -> Option<Self> {
        if let Err(error) = Command::new("etcd").arg("--version").output() {
            let message = format!("etcd cannot be run ({error}); install Debian's etcd-server");
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{message}");
            eprintln!("SKIPPED: {message}");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (client_port, peer_port) = (free(), free());
        let child = spawn(folder.path(), client_port, peer_port);
        let server = Self { child, folder, client_port, peer_port };
        server.wait();
        Some(server)
    }

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.client_port)
    }

    /// As if its machine had lost power.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn restart(&mut self) {
        self.child = spawn(self.folder.path(), self.client_port, self.peer_port);
        self.wait();
    }

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

fn spawn(folder: &std::path::Path, client_port: u16, peer_port: u16) -> Child {
    let (client, peer) = (format!("http://127.0.0.1:{client_port}"), format!("http://127.0.0.1:{peer_port}"));
    Command::new("etcd")
        .arg("--data-dir")
        .arg(folder.join("data"))
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}")])
        .args(["--log-level", "error", "--heartbeat-interval", "50", "--election-timeout", "250"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}
