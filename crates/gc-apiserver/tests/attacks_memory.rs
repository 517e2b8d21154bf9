//! Attacks on the memory and the connections of a server. An attack that needs its own process runs this program again.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use gc_apiserver::{Audience, Extension, ExtensionAnswer, ExtensionBody, ExtensionRequest};
use support::TestServer;
use support::crowd::{PACED, pipelined};
use support::raw_http2::{
    CANCEL, DATA, END_STREAM, GOAWAY, PING, REFUSED_STREAM, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame, get,
    next, preface, read_to_end,
};
use support::victim::{PATIENCE, Victim, dial};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Starts the server of [`Victim`]: a test only so that this program can be started as one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_attacked_server() {
    support::victim::serve().await;
}

/// 60,000 streams whose answers the client never reads: 39 connections with 1 MB of requests used to bring down a server with 512
/// MiB.
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
    // An eighth of the budget, which is half of the limit, plus the overhead of an allocator and a debug build.
    assert!(peak <= before + 64, "{before} MiB before, {peak} MiB at most");
}

/// With 256 file descriptors, two addresses used to occupy all connections for 25 s at a time.
#[tokio::test]
async fn idle_connections_make_room_for_an_administrator() {
    let victim = Victim::start("-n 256");
    let mut held = Vec::new();
    for number in 0..300 {
        let from = ["127.0.0.2", "127.0.0.3"][number % 2];
        // Connections beyond the limit may be refused or cut off: that is the point.
        let connected = victim.connect(from, &victim.anonymous);
        if let Ok(Ok(stream)) = tokio::time::timeout(PATIENCE, connected).await {
            held.push(stream);
        }
    }
    for _ in 0..5 {
        victim.ask().await;
    }
    // Connections that never send anything do no harm either.
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(TcpStream::connect(victim.address).await.unwrap());
    }
    for _ in 0..5 {
        victim.ask().await;
    }
    assert!(held.len() > 100, "the attack took place: {}", held.len());
}

/// With a window of 1, HTTP/2 takes the complete answer into its own buffer, where it must still be accounted for.
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

/// A client without credentials is answered at once up to a number, and then at a limited pace, over HTTP/1.1 as well: 200 such
/// connections used to delay an administrator by more than a second.
#[tokio::test]
async fn floods_without_credentials_are_answered_at_a_pace() {
    let server = TestServer::start().await;
    let mut flood = server.connect(b"http/1.1", false).await;
    let begun = Instant::now();
    let flooding = tokio::spawn(async move { pipelined(&mut flood, "/livez", PACED).await });
    // A health probe beside the flood is answered.
    for _ in 0..3 {
        pipelined(&mut server.connect(b"http/1.1", false).await, "/livez", 10).await;
    }
    tokio::time::timeout(PATIENCE, flooding).await.expect("everything is answered").unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
}

/// A page that is open to everybody.
struct Page;

impl Extension for Page {
    fn audience(&self, path: &str) -> Option<Audience> {
        (path == "/page").then_some(Audience::Anyone)
    }

    fn answer(&self, _request: ExtensionRequest) -> BoxFuture<'static, Option<ExtensionAnswer>> {
        let body = ExtensionBody::Whole("page".into());
        Box::pin(async {
            Some(ExtensionAnswer { code: 200, content_type: "text/plain", headers: Vec::new(), body })
        })
    }
}

/// A browser loads the parts of a page over the page's own connection.
#[tokio::test]
async fn a_connection_stays_open_after_what_is_for_everybody() {
    let server = TestServer::start_with(Arc::new(Page)).await;
    let mut stream = server.connect(b"h2", false).await;
    stream.write_all(&preface(65_535)).await.unwrap();
    for number in [1, 3, 5] {
        stream.write_all(&get(number, "/page")).await.unwrap();
        loop {
            let frame = next(&mut stream).await.expect("the connection stays open");
            assert_ne!(frame.kind, GOAWAY, "request {number}");
            if (frame.kind, frame.stream, frame.flags & END_STREAM) == (DATA, number, END_STREAM) {
                break;
            }
        }
    }
    stream.write_all(&get(7, "/livez")).await.unwrap();
    let ended = tokio::time::timeout(PATIENCE, read_to_end(&mut stream)).await.expect("it ends");
    assert!(ended.is_asked_to_go, "{ended:?}");
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
        // An administrator's connection is limited as well, regardless of the number of requests that it may send.
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
