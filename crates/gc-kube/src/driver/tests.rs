#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;

use bytes::Bytes;
use gc_types::{Severity, Uid};
use http::{Method, Response};
use http_body_util::Full;

use super::*;
use crate::connection::RequestError;
use crate::observer::NoObserver;
use crate::retention::retention_table;

/// Every file that sends requests other than GET, and the origin of its client.
const WRITERS: [(&str, &str); 4] = [
    ("event_recorder.rs", "of `Setup::driver` and `ControllerSurroundings::new`"),
    ("namespaces/requests.rs", "of `ControllerSurroundings::reading_only`"),
    ("policies.rs", "of `Setup`"),
    ("requests.rs", "of `Setup`"),
];

fn files(folder: &Path, into: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, into);
        } else {
            into.push(path);
        }
    }
}

/// A new writer must get its client from the gate, and be added here and below.
#[test]
fn every_writer_is_known() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut all = Vec::new();
    files(&root, &mut all);
    let writes = |text: &str| {
        ["POST", "PUT", "PATCH", "DELETE"].iter().any(|verb| text.contains(&format!("Method::{verb}")))
    };
    let found: BTreeSet<String> = all
        .iter()
        .filter(|path| !path.ends_with("tests.rs"))
        .filter(|path| {
            let text = std::fs::read_to_string(path).unwrap();
            let code = text.split("mod tests {").next().unwrap_or_default();
            writes(code)
        })
        .map(|path| path.strip_prefix(&root).unwrap().to_string_lossy().into_owned())
        .collect();
    let known: BTreeSet<String> = WRITERS.iter().map(|(file, _)| (*file).to_owned()).collect();
    assert_eq!(found, known);
}

type Log = Arc<Mutex<Vec<Method>>>;

/// Creates a server that records its requests, and grants all of them.
fn server() -> (ApiClient, Log) {
    let log = Log::default();
    let seen = Arc::clone(&log);
    let client = ApiClient::in_process(move |request: http::Request<Full<Bytes>>| {
        seen.lock().unwrap().push(request.method().clone());
        async move { Response::new(Full::new(Bytes::from_static(b"{}"))) }
    });
    (client, log)
}

async fn write(client: &ApiClient) -> bool {
    let request = http::Request::builder().method(Method::PATCH).uri("/x").body(Full::default()).unwrap();
    !matches!(client.call(request).await, Err(RequestError::Gated))
}

fn note() -> EventRecord {
    EventRecord {
        about: gc_collectors::objects::Kind::Node.key(&"".into(), &"n".into()),
        uid: Uid::new("u"),
        severity: Severity::Normal,
        reason: "Test",
        message: "m".to_owned(),
    }
}

fn setup(client: &ApiClient, is_dry_run: bool) -> Setup {
    Setup::new(client.clone(), retention_table(), ConcurrencyOptions::default(), is_dry_run)
}

/// No writer may bypass the gate in a dry run, whether it checks or not.
#[tokio::test]
async fn a_dry_run_changes_nothing_whoever_writes() {
    for is_dry_run in [false, true] {
        let (client, log) = server();
        // The clients of requests, statuses and collections.
        assert_eq!(write(&setup(&client, is_dry_run).client).await, !is_dry_run);
        let by = |is: bool| is.then_some(WithheldBy::Observe);
        let (sender, holding) = watch::channel(by(is_dry_run));
        let mut held = setup(&client, false);
        held.hold_writes(holding);
        assert_eq!(write(&held.client).await, !is_dry_run);
        sender.send_replace(by(!is_dry_run));
        assert_eq!(write(&held.client).await, is_dry_run, "asked at each request");
        let (surroundings, writer) = ControllerSurroundings::new(
            &Restraints::default(),
            is_dry_run,
            &client,
            retention_table(),
            Arc::new(NoObserver),
            "test",
        );
        assert_eq!(write(&surroundings.reading_only(&client)).await, !is_dry_run);
        // Events: one that is noted, and one that is recorded without a check.
        let before = log.lock().unwrap().len();
        surroundings.note(note());
        surroundings.recorder.record(EventRecord { reason: "Other", ..note() });
        drop(surroundings);
        writer.await;
        let written = log.lock().unwrap().len() - before;
        assert_eq!(written, if is_dry_run { 0 } else { 2 });
        assert_eq!(
            log.lock().unwrap().iter().filter(|method| **method != Method::GET).count(),
            if is_dry_run { 1 } else { 5 }
        );
    }
}
