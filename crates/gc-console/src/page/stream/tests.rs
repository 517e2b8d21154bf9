#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;

use gc_embedded::apiserver::ServerOptions;
use gc_embedded::clock::CollectorClock;
use gc_embedded::console::MakeConsole;
use gc_embedded::up::Up;
use gc_embedded::workloads::WorkloadOptions;
use gc_kube::ApiClient;
use gc_process::collectors::{self, ControllerOptions};
use gc_process::preflight;
use http::Method;
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use serde_json::Value;

use super::*;
use crate::page::Page;

const DEPENDENTS: usize = 2_000;
const READERS: usize = 50;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PATIENCE: Duration = Duration::from_mins(1);
/// Time without changes after which everything in the process has run.
const REST: Duration = Duration::from_millis(20);
/// Maximum size of a change as text, with its reason and evidence.
const LONGEST_CHANGE: usize = 4 << 10;

/// Output to one reader.
#[derive(Clone, Default)]
struct Read {
    pieces: Vec<Bytes>,
    changes: usize,
    skipped: usize,
    caught_up: String,
}

impl Read {
    fn take(&mut self, piece: Bytes) {
        let text = std::str::from_utf8(&piece).unwrap();
        for event in text.split_terminator("\n\n") {
            let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            match field("event:") {
                Some("change") => self.changes += 1,
                Some("skipped") => {
                    let skipped: Value = serde_json::from_str(field("data:").unwrap()).unwrap();
                    self.skipped += usize::try_from(skipped["count"].as_u64().unwrap()).unwrap();
                }
                Some("caught-up") => field("id:").unwrap().clone_into(&mut self.caught_up),
                _ => {}
            }
        }
        self.pieces.push(piece);
    }
}

/// Reads in the background until its output is no longer used.
fn follow(mut body: UnsyncBoxBody<Bytes, gc_apiserver::CutOff>) -> watch::Receiver<Read> {
    let (sender, receiver) = watch::channel(Read::default());
    tokio::spawn(async move {
        while let Some(Ok(frame)) = body.frame().await {
            sender.send_modify(|read| frame.into_data().into_iter().for_each(|piece| read.take(piece)));
            if sender.is_closed() {
                return;
            }
        }
    });
    receiver
}

async fn start() -> (Up, Page) {
    let server = ServerOptions::in_process();
    let settings = ControllerOptions {
        controllers: vec!["garbage-collector-controller".into()],
        ..ControllerOptions::default()
    };
    let (clock, surroundings) = (CollectorClock::default(), collectors::Surroundings::default());
    let page = Page::new(clock.clone(), None);
    let console: MakeConsole = {
        let page = page.clone();
        Arc::new(move |_, _| Arc::new(page.clone()))
    };
    let workloads = WorkloadOptions::off();
    let up =
        Up::start(&server, &settings, &workloads, None, &clock, surroundings, Some(console)).await.unwrap();
    (up, page)
}

/// Every reader of a cascade gets a bounded sample with complete counts; what is sent is formatted once for all readers of a user;
/// and a reader that reads nothing costs nothing until it does.
#[tokio::test]
async fn many_readers_of_a_cascade_get_samples_that_are_written_once() {
    let (up, page) = start().await;
    let way = up.server.in_process_as("admin", &["system:masters"]);
    let client = {
        let way = way.clone();
        ApiClient::in_process(move |request| way.call(request))
    };
    let send = async |method: Method, path: &str, body: Value| {
        let answer = client.call(preflight::request(method, path, Some(&body))).await.unwrap();
        assert!(answer.head.status.is_success(), "{path}");
        serde_json::from_slice::<Value>(&answer.body).unwrap()
    };
    let owner = send(Method::POST, MAPS, json!({"metadata": {"name": "owner"}})).await;
    let owners =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
    for number in 0..DEPENDENTS {
        let metadata = json!({"name": format!("leaf-{number}"), "ownerReferences": owners});
        send(Method::POST, MAPS, json!({"metadata": metadata})).await;
    }
    let feed = page.0.feed.clone();
    let open = || way.call(preflight::request(Method::GET, "/kubegc/v1/feed?from=0", None));
    // It opens the stream, and reads nothing until everything is over.
    let idle = open().await.into_body();
    let begun = Instant::now();
    let mut readers = Vec::new();
    for _ in 0..READERS {
        readers.push(follow(open().await.into_body()));
    }
    send(Method::DELETE, &format!("{MAPS}/owner"), json!({})).await;
    up.control.settle(PATIENCE, || tokio::time::sleep(REST)).await.unwrap();
    let next = *feed.changes().borrow();
    let (total, end) = (usize::try_from(next).unwrap(), feed.place(next));
    assert!(total >= DEPENDENTS, "{total}");
    let mut all = Vec::new();
    for mut reader in readers {
        let done = tokio::time::timeout(PATIENCE, reader.wait_for(|read| read.caught_up == end)).await;
        all.push(done.expect("the reader sees the end").unwrap().clone());
    }

    let batches = usize::try_from(begun.elapsed().as_millis() / BATCH_PERIOD.as_millis()).unwrap() + 2;
    for read in &all {
        assert_eq!(read.changes + read.skipped, total, "every change is sent or counted");
        assert!(read.changes <= FIRST_ENTRIES + batches * BATCH_ENTRIES, "{} in {batches}", read.changes);
    }
    // The pieces are kept, so that no two have the same address by chance.
    let sent: Vec<&Bytes> =
        all.iter().flat_map(|read| &read.pieces).filter(|piece| piece.len() > 100).collect();
    let written: BTreeSet<_> = sent.iter().map(|piece| piece.as_ptr().addr()).collect();
    assert!(written.len() * 10 <= sent.len(), "{} of {} pieces were written", written.len(), sent.len());

    let mut late = follow(idle);
    let late =
        tokio::time::timeout(PATIENCE, late.wait_for(|read| read.caught_up == end)).await.unwrap().unwrap();
    let most = FIRST_ENTRIES.max(KEPT_BATCHES * BATCH_ENTRIES);
    assert!(late.changes <= most, "{} changes had waited for it", late.changes);
    assert_eq!(late.changes + late.skipped, total, "every change is sent or counted");
    let bytes: usize = late.pieces.iter().map(Bytes::len).sum();
    assert!(bytes <= most * LONGEST_CHANGE, "{bytes} bytes had waited for it");
    drop(late);
    up.shutdown().await;
}
