//! A server in another process, as the target of attacks.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub, missing_docs)] // a broken assumption should stop the test; not every test uses all

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::TestServer;

/// Environment variable of the process that is the server.
const ROLE: &str = "KUBEGC_ATTACKED";
/// Maximum time to wait for any condition.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// A server in another process, with its own limits.
pub struct Victim {
    pub child: Child,
    pub address: SocketAddr,
    pub anonymous: TlsConnector,
    administrator: TlsConnector,
}

/// Serves until standard input ends, if this process was started as the server. Called from a test named `the_attacked_server`.
pub async fn serve() {
    if !is_attacked() {
        return;
    }
    let server = TestServer::start().await;
    let credentials = server.server.credentials();
    let told = json!({
        "address": server.server.address().unwrap().to_string(), "ca": credentials.ca_pem,
        "certificate": credentials.certificate_pem, "key": credentials.key_pem,
    });
    until_the_end(&told).await;
}

/// Reports whether this process was started as the server.
pub fn is_attacked() -> bool {
    std::env::var_os(ROLE).is_some()
}

/// Announces the server's address, and waits until standard input ends.
pub async fn until_the_end(told: &Value) {
    // Bypasses the capture of the test harness.
    std::io::stderr().write_all(format!("{ROLE}={told}\n").as_bytes()).unwrap();
    let until_the_end = || std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    tokio::task::spawn_blocking(until_the_end).await.unwrap().unwrap();
}

impl Victim {
    /// Starts a server under a limit of the shell's `ulimit`.
    pub fn start(limit: &str) -> Self {
        let program = std::env::current_exe().unwrap();
        let mut child = Command::new("sh")
            .args(["-c", &format!("ulimit {limit} && exec \"$0\" --exact the_attacked_server --nocapture")])
            .arg(program)
            .env(ROLE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let told = loop {
            let line = lines.next().expect("the server says where it is").unwrap();
            if let Some((_, told)) = line.split_once(&format!("{ROLE}=")) {
                break serde_json::from_str::<Value>(told).unwrap();
            }
        };
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| eprintln!("server: {line}")));
        let pem = |name: &str| told[name].as_str().unwrap().as_bytes().to_vec();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&pem("ca")).unwrap()).unwrap();
        let identity = told["key"].is_string().then(|| {
            let chain = vec![CertificateDer::from_pem_slice(&pem("certificate")).unwrap()];
            (chain, PrivateKeyDer::from_pem_slice(&pem("key")).unwrap())
        });
        Self {
            child,
            address: told["address"].as_str().unwrap().parse().unwrap(),
            anonymous: connector(&roots, None, b"h2"),
            administrator: connector(&roots, identity, b"http/1.1"),
        }
    }

    /// Returns the resident memory in MiB; `None` if the process has ended.
    pub fn resident(&self) -> Option<usize> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.split_whitespace().next()?.parse::<usize>().ok().map(|kibibytes| kibibytes >> 10)
    }

    /// Opens a connection with or without the administrator's certificate.
    pub async fn connect(
        &self,
        from: &str,
        connector: &TlsConnector,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        dial(from, self.address, connector).await
    }

    /// Requests a health check over a new connection, without credentials, as a kubelet does.
    pub async fn probe(&self, from: &str, path: &str) {
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        let asked = async {
            let mut stream = self.connect(from, &http1(&self.anonymous)).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
        };
        tokio::time::timeout(PATIENCE, asked).await.expect("the probe is answered");
    }

    /// Lists namespaces over a new connection as the administrator; returns how long that took.
    pub async fn ask(&self) -> Duration {
        self.ask_for("GET /api/v1/namespaces HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await
    }

    /// Sends a request over a new connection as the administrator; returns how long that took.
    pub async fn ask_for(&self, request: &str) -> Duration {
        let begun = Instant::now();
        let asked = async {
            let mut stream = self.connect("127.0.0.1", &self.administrator).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
        };
        tokio::time::timeout(PATIENCE, asked).await.expect("the administrator is answered");
        begun.elapsed()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a connector that negotiates HTTP/1.1.
pub fn http1(connector: &TlsConnector) -> TlsConnector {
    let mut config = connector.config().as_ref().clone();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    TlsConnector::from(Arc::new(config))
}

fn connector(
    roots: &rustls::RootCertStore,
    identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    protocol: &[u8],
) -> TlsConnector {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots.clone());
    let mut config = match identity {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).unwrap(),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    TlsConnector::from(Arc::new(config))
}

pub async fn dial(
    from: &str,
    to: SocketAddr,
    connector: &TlsConnector,
) -> std::io::Result<TlsStream<TcpStream>> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(from.parse::<IpAddr>().unwrap(), 0))?;
    connector.connect(ServerName::try_from("localhost").unwrap(), socket.connect(to).await?).await
}
