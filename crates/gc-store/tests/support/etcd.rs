//! A real etcd for a test or a benchmark: Debian's, on loopback, in a temporary directory. Shared by path.

#[path = "port.rs"]
pub mod port;

use std::fs::File;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use port::Port;
use tempfile::TempDir;

/// Timeout for etcd to listen, and to answer, after its start.
pub const START: Duration = Duration::from_secs(20);

/// Files of a server with TLS.
#[derive(Clone, Debug)]
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
    client_port: Port,
    tls: Option<ServerTls>,
    /// Index of the server in its cluster, and the peer ports of all members.
    member: usize,
    peer_ports: Arc<[Port]>,
    /// Further flags.
    flags: Vec<String>,
}

impl EtcdServer {
    /// Starts a server, unless etcd is missing.
    pub fn start() -> Option<Self> {
        Self::start_with(|_| None)
    }

    /// Starts a server with the files that `tls` creates in its directory.
    pub fn start_with(tls: impl FnOnce(&Path) -> Option<ServerTls>) -> Option<Self> {
        if !is_installed() {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let tls = tls(folder.path());
        let server = Self::spawn(folder, tls, 0, Arc::new([Port::reserve()]), &[]);
        server.wait();
        Some(server)
    }

    /// Starts the members of one cluster.
    #[allow(dead_code)] // Not every test has several.
    pub fn start_cluster(members: usize) -> Option<Vec<Self>> {
        Self::start_cluster_with(members, None, &[])
    }

    /// Starts the members of one cluster, with these files and further flags.
    #[allow(dead_code)] // Not every test has several.
    pub fn start_cluster_with(members: usize, tls: Option<&ServerTls>, flags: &[&str]) -> Option<Vec<Self>> {
        if !is_installed() {
            return None;
        }
        let ports: Arc<[Port]> = (0..members).map(|_| Port::reserve()).collect();
        let start = |member| {
            Self::spawn(tempfile::tempdir().unwrap(), tls.cloned(), member, Arc::clone(&ports), flags)
        };
        let servers: Vec<Self> = (0..members).map(start).collect();
        servers.iter().for_each(Self::wait);
        Some(servers)
    }

    fn spawn(
        folder: TempDir,
        tls: Option<ServerTls>,
        member: usize,
        peer_ports: Arc<[Port]>,
        flags: &[&str],
    ) -> Self {
        let client_port = Port::reserve();
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let child = spawn(folder.path(), client_port.number(), (member, &peer_ports), tls.as_ref(), &flags);
        Self { child, folder, client_port, tls, member, peer_ports, flags }
    }

    pub fn endpoint(&self) -> String {
        endpoint(self.client_port.number(), self.tls.as_ref())
    }

    #[allow(dead_code)] // Not every test needs it.
    pub fn port(&self) -> u16 {
        self.client_port.number()
    }

    pub fn speaks_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Kills the server as a power failure would.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Restarts the same server.
    pub fn restart(&mut self) {
        let member = (self.member, &*self.peer_ports);
        self.child = spawn(self.folder.path(), self.port(), member, self.tls.as_ref(), &self.flags);
        self.wait();
    }

    /// Stops the process, which keeps its connections open but answers nothing, or resumes it.
    #[allow(dead_code)] // Not every test does.
    pub fn freeze(&self, is_frozen: bool) {
        let signal = if is_frozen { "-STOP" } else { "-CONT" };
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Returns the server's log, which explains why it ended, if it did, for example because of a full disk.
    pub fn log(&self) -> String {
        std::fs::read_to_string(log_file(self.folder.path())).unwrap_or_default()
    }

    /// Polls until the server listens, because there is no notification.
    fn wait(&self) {
        let deadline = Instant::now() + START;
        while TcpStream::connect(("127.0.0.1", self.port())).is_err() {
            assert!(Instant::now() < deadline, "etcd does not listen; its log:\n{}", self.log());
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

fn log_file(folder: &Path) -> PathBuf {
    folder.join("log")
}

fn endpoint(port: u16, tls: Option<&ServerTls>) -> String {
    format!("{}://127.0.0.1:{port}", if tls.is_some() { "https" } else { "http" })
}

/// Reports whether etcd is installed. Without it, tests are skipped, which CI does not allow.
fn is_installed() -> bool {
    let Err(error) = Command::new("etcd").arg("--version").output() else { return true };
    let message = format!("etcd cannot be run ({error}); install Debian's etcd-server");
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{message}");
    eprintln!("SKIPPED: {message}");
    false
}

fn spawn(
    folder: &Path,
    client_port: u16,
    (member, peer_ports): (usize, &[Port]),
    tls: Option<&ServerTls>,
    flags: &[String],
) -> Child {
    let (client, peer) = (endpoint(client_port, tls), endpoint(peer_ports[member].number(), None));
    let name = |member: usize| format!("m{member}");
    let members = peer_ports.iter().enumerate();
    let cluster: Vec<String> =
        members.map(|(member, port)| format!("{}={}", name(member), endpoint(port.number(), None))).collect();
    let mut command = Command::new("etcd");
    command
        .args(["--name", &name(member)])
        .arg("--data-dir")
        .arg(folder.join("data"))
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &cluster.join(",")])
        .args(["--log-level", "error", "--heartbeat-interval", "50", "--election-timeout", "250"])
        .args(flags)
        .stdout(Stdio::null())
        .stderr(File::options().create(true).append(true).open(log_file(folder)).unwrap());
    if let Some(tls) = tls {
        command.arg("--client-cert-auth").arg("--cert-file").arg(&tls.certificate);
        command.arg("--key-file").arg(&tls.key).arg("--trusted-ca-file").arg(&tls.authority);
    }
    command.spawn().unwrap()
}
