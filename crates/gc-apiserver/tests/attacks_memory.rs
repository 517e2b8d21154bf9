//! What hostile clients do to the memory and the connections of a server: those that need a process of its own run this program again.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use support::TestServer;
use support::raw_http2::{
    CANCEL, PING, REFUSED_STREAM, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame, get, preface, read_to_end,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// In the environment of the process that is the server.
const ROLE: &str = "KUBEGC_ATTACKED";
/// How long anything is waited for.
const PATIENCE: Duration = Duration::from_mins(1);

/// A server in another process, with limits of its own.
struct Victim {
    child: Child,
    address: SocketAddr,
    anonymous: TlsConnector,
    administrator: TlsConnector,
}

/// The server of [`Victim`]: a test only so that this program can be started as one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_attacked_server() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let server = TestServer::start().await;
    let credentials = server.server.credentials();
    let told = json!({
        "address": server.server.address().unwrap().to_string(), "ca": credentials.ca_pem,
        "certificate": credentials.certificate_pem, "key": credentials.key_pem,
    });
    // Past the capture of the test harness.
    writeln!(std::io::stderr(), "{ROLE}={told}").unwrap();
    let until_the_end = || std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    tokio::task::spawn_blocking(until_the_end).await.unwrap().unwrap();
}

impl Victim {
    /// Starts a server under a limit of the shell's `ulimit`.
    fn start(limit: &str) -> Self {
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
        let chain = vec![CertificateDer::from_pem_slice(&pem("certificate")).unwrap()];
        let identity = (chain, PrivateKeyDer::from_pem_slice(&pem("key")).unwrap());
        Self {
            child,
            address: told["address"].as_str().unwrap().parse().unwrap(),
            anonymous: connector(&roots, None, b"h2"),
            administrator: connector(&roots, Some(identity), b"http/1.1"),
        }
    }

    /// Resident memory in MiB; none if the process has ended.
    fn resident(&self) -> Option<usize> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.split_whitespace().next()?.parse::<usize>().ok().map(|kibibytes| kibibytes >> 10)
    }

    /// A connection with or without the administrator's certificate.
    async fn connect(&self, from: &str, connector: &TlsConnector) -> std::io::Result<TlsStream<TcpStream>> {
        dial(from, self.address, connector).await
    }

    /// Lists namespaces over a new connection as the administrator, and says how long that took.
    async fn ask(&self) -> Duration {
        let begun = Instant::now();
        let asked = async {
            let mut stream = self.connect("127.0.0.1", &self.administrator).await.unwrap();
            let request = b"GET /api/v1/namespaces HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
            stream.write_all(request).await.unwrap();
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

async fn dial(from: &str, to: SocketAddr, connector: &TlsConnector) -> std::io::Result<TlsStream<TcpStream>> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(from.parse::<IpAddr>().unwrap(), 0))?;
    connector.connect(ServerName::try_from("localhost").unwrap(), socket.connect(to).await?).await
}

/// 60,000 streams whose answers the client does not take: 39 connections with 1 MB of requests ended a server that had 512 MiB.
#[tokio::test]
async fn answers_that_nobody_takes_do_not_end_a_server() {
    const CONNECTIONS: usize = 60;
    const STREAMS: u32 = 1000;
    let mut victim = Victim::start("-d 524288");
    victim.ask().await;
    let before = victim.resident().unwrap();
    let (sent, mut peak, mut slowest) = (Arc::new(AtomicUsize::new(0)), before, Duration::ZERO);
    let mut attacks = tokio::task::JoinSet::new();
    for number in 0..CONNECTIONS {
        let (sent, anonymous, to) = (Arc::clone(&sent), victim.anonymous.clone(), victim.address);
        let window = u32::from(number % 2 == 1);
        attacks.spawn(async move {
            if let Ok(mut stream) = dial("127.0.0.1", to, &anonymous).await {
                let mut bytes = preface(window);
                bytes.extend((0..STREAMS).flat_map(|number| get(2 * number + 1, "/livez?verbose")));
                let _ = stream.write_all(&bytes).await;
                sent.fetch_add(1, Ordering::SeqCst);
                read_to_end(&mut stream).await;
            } else {
                sent.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    while sent.load(Ordering::SeqCst) < CONNECTIONS {
        slowest = slowest.max(victim.ask().await);
        peak = peak.max(victim.resident().expect("the server lives"));
    }
    for _ in 0..10 {
        slowest = slowest.max(victim.ask().await);
        peak = peak.max(victim.resident().expect("the server lives"));
    }
    println!("RSS {before} MiB before, {peak} MiB at most; the slowest answer took {slowest:?}");
    assert_eq!(victim.child.try_wait().unwrap(), None, "the server lives");
    // An eighth of the budget, which is half of the limit; and what an allocator and a debug build add.
    assert!(peak <= before + 64, "{before} MiB before, {peak} MiB at most");
}

/// With 256 files, two addresses used to take all connections for 25 s at a time.
#[tokio::test]
async fn idle_connections_make_room_for_an_administrator() {
    let victim = Victim::start("-n 256");
    let mut held = Vec::new();
    for number in 0..300 {
        let from = ["127.0.0.2", "127.0.0.3"][number % 2];
        // Those beyond the places may be refused or cut off: that is the point.
        let connected = victim.connect(from, &victim.anonymous);
        if let Ok(Ok(stream)) = tokio::time::timeout(PATIENCE, connected).await {
            held.push(stream);
        }
    }
    for _ in 0..5 {
        victim.ask().await;
    }
    // Nor do connections that never say anything.
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(TcpStream::connect(victim.address).await.unwrap());
    }
    for _ in 0..5 {
        victim.ask().await;
    }
    assert!(held.len() > 100, "the attack took place: {}", held.len());
}

/// A window of 1 lets HTTP/2 take the whole answer into its own buffer: it is not forgotten there.
#[tokio::test]
async fn streams_without_a_window_are_few_and_are_reset() {
    const STREAMS: u32 = 90;
    let server = TestServer::start().await;
    let ended = [0, 1, 1_000].map(|window| {
        let server = &server;
        async move {
            let mut stream = server.connect(b"h2", false).await;
            let mut bytes = preface(window);
            bytes.extend((0..STREAMS).flat_map(|number| get(2 * number + 1, "/livez?verbose")));
            stream.write_all(&bytes).await.unwrap();
            (window, read_to_end(&mut stream).await)
        }
    });
    let ended = tokio::time::timeout(PATIENCE, futures::future::join_all(ended)).await;
    for (window, ended) in ended.expect("the connections end") {
        let with = |code| ended.resets.values().filter(|reset| **reset == code).count();
        let (refused, cancelled) = (with(REFUSED_STREAM), with(CANCEL));
        assert!(refused >= 60, "{window}: few streams are for those without credentials: {refused}");
        assert!(cancelled > 0 && refused + cancelled == STREAMS as usize, "{window}: {ended:?}");
        assert!(ended.is_asked_to_go, "{window}: and the connection takes no others");
    }
}

#[tokio::test]
async fn floods_of_control_frames_end_a_connection() {
    const FRAMES: usize = 100_000;
    let server = TestServer::start().await;
    let reset = |number: usize| {
        let stream = u32::try_from(2 * number + 1).unwrap();
        [get(stream, "/livez"), frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes())].concat()
    };
    let table: [(&str, Box<dyn Fn(usize) -> Vec<u8>>); 4] = [
        ("ping", Box::new(|_| frame(PING, 0, 0, &[0; 8]))),
        ("settings", Box::new(|_| frame(SETTINGS, 0, 0, &[]))),
        ("window update", Box::new(|_| frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()))),
        ("request and reset", Box::new(reset)),
    ];
    for (what, made) in table {
        // With the administrator's certificate: whoever it is, and however many requests there may be.
        let stream = server.connect(b"h2", true).await;
        let (mut read, mut write) = tokio::io::split(stream);
        let reading =
            tokio::spawn(async move { while matches!(read.read(&mut [0; 4096]).await, Ok(1..)) {} });
        let flood = async {
            write.write_all(&preface(65_535)).await?;
            for number in 0..FRAMES {
                write.write_all(&made(number)).await?;
            }
            write.flush().await
        };
        // Writing may fail before or after the end was read.
        let _ = tokio::time::timeout(PATIENCE, flood).await.expect(what);
        tokio::time::timeout(PATIENCE, reading).await.expect(what).unwrap();
    }
    assert_eq!(server.get("/livez").await.code, 200);
}
