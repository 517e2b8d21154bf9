//! `GET /kubegc/v1/journal`: the journal of the collectors of this process, for users who may read this path.
//!
//! ```text
//! GET /kubegc/v1/journal?namespace=shop&verb=delete&tail=50    {"items": […], "leftOut": 0, …}
//! GET /kubegc/v1/journal?follow=true&after=1790000000000000    one entry per line, as they are made
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt as _};
use gc_apiserver::{ExtensionAnswer, ExtensionBody};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::query::{Query, Selection};
use super::{Found, Journal};
use crate::UsageError;
use crate::endpoints::status;
use crate::user_limits::Place;

/// Path of the journal on a server with collectors and on a collector.
pub const PATH: &str = "/kubegc/v1/journal";
/// Maximum number of entries in one response.
const LARGEST_TAIL: usize = 10_000;
/// Maximum total size of their lines; if there are more, the newest are returned.
const LARGEST_ANSWER_BYTES: usize = 16 << 20;
/// Interval between the empty lines from which each end notices that the other one is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Maximum time that a client can follow before it must ask again, so credentials are checked again.
const LIFETIME: Duration = Duration::from_mins(10);

/// Answers a request of a user (an empty name stands for everybody on this machine) with these parameters.
pub async fn answer(journal: &Arc<Journal>, user: &str, parameters: &[(String, String)]) -> ExtensionAnswer {
    let (mut follow, mut after) = (false, None);
    let other = |name: &str, value: &str| {
        let wrong = |expected: &str| Err(UsageError::new(format!("{name}={value}: expected {expected}")));
        Some(match name {
            "follow" => value.parse().map(|value| follow = value).or_else(|_| wrong("true or false")),
            "after" => {
                value.parse().map(|value| after = Some(value)).or_else(|_| wrong("the number of an entry"))
            }
            _ => return None,
        })
    };
    let mut selection = match Selection::of_parameters(parameters, other) {
        Ok(selection) => selection,
        Err(error) => return refusal(400, "BadRequest", &error.to_string()),
    };
    if follow {
        return following(journal, user, selection.query, after);
    }
    selection.tail = if selection.tail == 0 { LARGEST_TAIL } else { selection.tail.min(LARGEST_TAIL) };
    selection.largest_bytes = LARGEST_ANSWER_BYTES;
    let Ok(turn) = Arc::clone(&journal.searches).acquire_owned().await else {
        return refusal(503, "ServiceUnavailable", "the journal is closed");
    };
    let journal = Arc::clone(journal);
    let search = move || {
        // A search continues after its client has gone, and keeps its turn.
        let _turn = turn;
        FoundEntries(journal.search(&selection)).value()
    };
    match tokio::task::spawn_blocking(search).await {
        Ok(document) => ExtensionAnswer::json(200, &document),
        Err(error) => refusal(500, "InternalError", &format!("the journal was not searched: {error}")),
    }
}

fn refusal(code: u16, reason: &str, message: &str) -> ExtensionAnswer {
    ExtensionAnswer::json(code, &status(code, reason, message, &json!({})))
}

/// Result in the form in which it is sent.
#[derive(Debug, Default)]
pub struct FoundEntries(pub Found);

impl FoundEntries {
    fn value(self) -> Value {
        let Found { entries, left_out, unreadable, no_longer_kept, failures, .. } = self.0;
        json!({
            "items": entries, "leftOut": left_out, "unreadable": unreadable, "noLongerKept": no_longer_kept,
            "failures": failures,
        })
    }

    /// Reads a response.
    pub fn read(mut document: Value) -> Found {
        let number = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or_default();
        let entries = document["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
        let failures = document["failures"].as_array().into_iter().flatten();
        let mut found = Found::of(VecDeque::from(entries));
        found.left_out = number(&document["leftOut"]);
        found.unreadable = number(&document["unreadable"]);
        found.no_longer_kept = document["noLongerKept"].as_u64().unwrap_or_default();
        found.failures = failures.filter_map(Value::as_str).map(str::to_owned).collect();
        found
    }
}

fn following(journal: &Arc<Journal>, user: &str, query: Query, after: Option<u64>) -> ExtensionAnswer {
    let Some(place) = journal.followers.take(user) else {
        return refusal(429, "TooManyRequests", "too many clients follow the journal; try again later");
    };
    ExtensionAnswer {
        code: 200,
        content_type: "application/jsonl",
        headers: Vec::new(),
        body: ExtensionBody::Stream(stream(journal, query, after, place)),
    }
}

struct Follower {
    journal: Arc<Journal>,
    query: Query,
    changes: watch::Receiver<u64>,
    position: u64,
    ends: Instant,
    _place: Place,
}

/// Streams the matching entries after this number, or all new ones, one per line.
fn stream(
    journal: &Arc<Journal>,
    query: Query,
    after: Option<u64>,
    place: Place,
) -> BoxStream<'static, Bytes> {
    let mut changes = journal.recent.changes();
    changes.mark_changed();
    let follower = Follower {
        position: journal.recent.position(after),
        journal: Arc::clone(journal),
        query,
        changes,
        ends: Instant::now() + LIFETIME,
        _place: place,
    };
    futures::stream::unfold(follower, |mut follower| async move {
        let piece = follower.piece().await?;
        Some((piece, follower))
    })
    .boxed()
}

impl Follower {
    /// Returns the next lines; `None` at the end.
    async fn piece(&mut self) -> Option<Bytes> {
        let quiet = Instant::now() + KEEP_ALIVE;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(self.ends) => return None,
                () = tokio::time::sleep_until(quiet) => return Some(Bytes::from_static(b"\n")),
                changed = self.changes.changed() => changed.ok()?,
            }
            let unread = self.journal.recent.since(self.position);
            self.position = unread.next;
            let mut text = String::new();
            if unread.lost > 0 {
                text.push_str(&json!({"verb": "skipped", "count": unread.lost}).to_string());
                text.push('\n');
            }
            for line in unread.lines {
                let entry = serde_json::from_str(&line).unwrap_or(Value::Null);
                if self.query.matches(&entry) {
                    text.push_str(&line);
                    text.push('\n');
                }
            }
            if !text.is_empty() {
                return Some(text.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    fn journal(numbers: std::ops::RangeInclusive<u64>) -> Arc<Journal> {
        let journal = Arc::new(Journal::open(None, None).unwrap());
        for n in numbers {
            let verb = if n == 2 { "barrier" } else { "delete" };
            journal.record(json!({"n": n, "verb": verb, "namespace": if n < 4 { "shop" } else { "bank" }}));
        }
        journal
    }

    fn parameters(query: &str) -> Vec<(String, String)> {
        gc_apiserver::query_pairs(query)
    }

    async fn ask(journal: &Arc<Journal>, query: &str) -> (u16, Value) {
        let answer = answer(journal, "jane", &parameters(query)).await;
        let ExtensionBody::Whole(body) = answer.body else { panic!("it streams") };
        (answer.code, serde_json::from_slice(&body).unwrap())
    }

    #[tokio::test]
    async fn it_answers_what_is_asked_and_refuses_what_is_not_understood() {
        let journal = journal(1..=5);
        journal.close();
        for (query, expected) in [
            ("", vec![1, 3, 4, 5]),
            ("barriers=true", vec![1, 2, 3, 4, 5]),
            ("verb=barrier", vec![2]),
            ("namespace=shop", vec![1, 3]),
            ("tail=1", vec![5]),
            ("tail=0&namespace=bank", vec![4, 5]),
        ] {
            let (code, document) = ask(&journal, query).await;
            let found = FoundEntries::read(document);
            let numbers: Vec<u64> = found.entries.iter().map(|entry| entry["n"].as_u64().unwrap()).collect();
            assert_eq!((code, numbers), (200, expected), "{query}");
            assert_eq!(found.left_out, if query == "tail=1" { 3 } else { 0 });
        }
        for (query, message) in [
            ("tail=many", "tail=many: expected a number of entries"),
            ("follow=yes", "follow=yes: expected true or false"),
            ("after=x", "after=x: expected the number of an entry"),
            (
                "verb=delte",
                "verb=delte: expected one of barrier, delete, delete-storage, event, force-delete, look-up-machine, observe, patch, read, remove, remove-finalizer, set-finalizers, set-owners, set-status, stop",
            ),
            ("barriers=1", "barriers=1: expected true or false"),
            (
                "object=a/b/c/d",
                "object \"a/b/c/d\": expected [NAMESPACE/]KIND/NAME, such as shop/pod/web-1, or a UID",
            ),
        ] {
            let (code, document) = ask(&journal, query).await;
            assert_eq!((code, document["message"].as_str().unwrap()), (400, message));
        }
        let (code, document) = ask(&journal, "names=x").await;
        assert!(code == 400 && document["message"].as_str().unwrap().starts_with("names is not known; "));
    }

    #[test]
    fn a_request_asks_the_same_as_its_selection() {
        let query = Query {
            since: Some("2026-09-21T14:03:00Z".parse().unwrap()),
            object: Some(crate::journal::Object::named(Some("shop"), "rs", "a&b")),
            namespace: Some("a b".into()),
            resource: Some("pods".into()),
            outcome: Some("applied".into()),
            verb: None,
            controller: Some("expiry-controller".into()),
            server: Some("https://c".into()),
            before: Some(1_790_000_000_000_000),
            without_barriers: true,
        };
        for query in [query, Query { verb: Some("delete".into()), ..Query::default() }] {
            let selection = Selection { query, tail: 7, ..Selection::default() };
            let text = selection.query_string();
            let read = Selection::of_parameters(&parameters(&text), |_, _| None).unwrap();
            assert_eq!(read, selection, "{text}");
        }
    }

    #[tokio::test]
    async fn followers_get_entries_as_they_are_made_and_their_number_is_bounded() {
        let journal = journal(1..=2);
        let mut pieces = Vec::new();
        for _ in 0..super::super::MAXIMUM_FOLLOWERS_OF_USER {
            let answer = answer(&journal, "jane", &parameters("follow=true&after=0&namespace=shop")).await;
            let ExtensionBody::Stream(stream) = answer.body else { panic!("{}", answer.code) };
            pieces.push(stream);
        }
        assert_eq!(ask(&journal, "follow=true").await.0, 429);
        let other = answer(&journal, "joe", &parameters("follow=true")).await;
        assert_eq!(other.code, 200, "others have places of their own");
        drop(other);
        let mut stream = pieces.remove(0);
        journal.record(json!({"n": 3, "verb": "delete", "namespace": "shop"}));
        let mut seen = Vec::new();
        while seen.len() < 2 {
            let piece = stream.next().await.unwrap();
            let text = String::from_utf8(piece.to_vec()).unwrap();
            seen.extend(text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["n"].clone()));
        }
        assert_eq!(seen, [1, 3]);
        drop(stream);
        let answer = answer(&journal, "jane", &parameters("follow=true")).await;
        assert_eq!(answer.code, 200);
    }
}
