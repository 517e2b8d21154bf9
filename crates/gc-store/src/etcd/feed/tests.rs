#![allow(clippy::unwrap_used)] // tests
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use gc_store_api::{KeyValue, WatchItem, WatchStream as _, Write};

use super::super::impostor::{Body, Impostor, Responder, framed, pieces, slowly, whole};
use super::super::protocol::{EventType, KeyValue as Stored, RangeResponse, WatchRequest, WatchResponse};
use super::super::tests::{by, connect, header, impostor, put, stored, transaction};
use super::*;

/// Revision at which the feeds begin.
const BEGIN: u64 = 10;
const PATIENCE: Duration = Duration::from_secs(20);

fn change(
    revision: u64,
    key: &str,
    value: Option<&'static str>,
    previous: Option<&'static str>,
) -> Arc<Change> {
    let bytes = |value: &'static str| bytes::Bytes::from_static(value.as_bytes());
    let previous = previous.map(|value| KeyValue {
        key: key.into(),
        value: bytes(value),
        create_revision: Revision(1),
        mod_revision: Revision(1),
    });
    Arc::new(Change { revision: Revision(revision), key: key.into(), value: value.map(bytes), previous })
}

/// Returns a change that takes six bytes besides its structure.
fn six(revision: u64) -> Arc<Change> {
    change(revision, "/a", Some("four"), Some("xx"))
}

fn feed(changes: usize, bytes: usize) -> Feed {
    Feed::new(Names::new("/kubegc"), Revision(BEGIN), HistoryOptions { changes, bytes }, 100)
}

/// Returns the revisions from which a watch can join.
fn joinable(feed: &Feed) -> Vec<u64> {
    (0..30).filter(|after| feed.join("/", Revision(*after)).is_some()).collect()
}

/// Returns the changes that a stream delivers without waiting.
fn delivered(stream: &mut HubStream) -> Vec<(u64, String)> {
    let mut changes = Vec::new();
    let mut context = Context::from_waker(Waker::noop());
    while let Poll::Ready(Ok(WatchItem::Change(change))) = stream.poll_next(&mut context) {
        changes.push((change.revision.0, change.key.to_string()));
    }
    changes
}

fn pairs(expected: &[(u64, &str)]) -> Vec<(u64, String)> {
    expected.iter().map(|(revision, key)| (*revision, (*key).to_owned())).collect()
}

#[test]
fn the_window_keeps_as_much_as_its_bounds_allow() {
    const ALL: usize = usize::MAX;
    let two = 2 * (CHANGE_BYTES + 6);
    let deletion = |revision| change(revision, "/a", None, Some("sixsix"));
    let creation = |revision| change(revision, "/a", Some("sixsix"), None);
    let rows: [(&str, usize, usize, Vec<Arc<Change>>, Vec<u64>); 9] = [
        ("nothing", 0, 0, vec![], vec![10]),
        ("as many as allowed", 2, ALL, vec![six(11), six(12)], vec![10, 11, 12]),
        ("one more", 2, ALL, vec![six(11), six(12), six(13)], vec![11, 12, 13]),
        ("two more", 2, ALL, vec![six(11), six(12), six(13), six(14)], vec![12, 13, 14]),
        ("as large as allowed", ALL, two, vec![deletion(11), creation(12)], vec![10, 11, 12]),
        ("larger by one byte", ALL, two - 1, vec![creation(11), deletion(12)], vec![11, 12]),
        ("larger by a change", ALL, two, vec![six(11), six(12), six(13)], vec![11, 12, 13]),
        (
            "a transaction goes as a whole",
            2,
            ALL,
            vec![six(11), change(11, "/b", None, None), six(12)],
            vec![11, 12],
        ),
        ("one that is too large alone", ALL, 1, vec![six(11)], vec![11]),
    ];
    for (name, changes, bytes, sent, expected) in rows {
        let one_by_one = feed(changes, bytes);
        for change in &sent {
            one_by_one.extend(std::slice::from_ref(change), change.revision);
        }
        let at_once = feed(changes, bytes);
        at_once.extend(&sent, sent.last().map_or(Revision(BEGIN), |last| last.revision));
        for feed in [one_by_one, at_once] {
            assert_eq!(joinable(&feed), expected, "{name}");
        }
    }
}

#[test]
fn what_is_compacted_is_forgotten_and_makes_room() {
    let feed = feed(usize::MAX, 2 * (CHANGE_BYTES + 6));
    feed.extend(&[six(11), six(12)], Revision(12));
    feed.compacted(Revision(11));
    assert_eq!(joinable(&feed), [11, 12]);
    feed.extend(&[six(13)], Revision(13));
    assert_eq!(joinable(&feed), [11, 12, 13], "there was room for a second one");
    feed.compacted(Revision(10));
    assert_eq!(joinable(&feed), [11, 12, 13], "compaction does not go back");
    feed.extend(&[six(14)], Revision(14));
    assert_eq!(joinable(&feed), [12, 13, 14]);
    feed.extend(&[six(15)], Revision(15));
    assert_eq!(joinable(&feed), [13, 14, 15]);
    feed.compacted(Revision(99));
    assert_eq!(joinable(&feed), [15], "nothing is known of what follows");
}

#[test]
fn progress_does_not_go_back() {
    let feed = feed(9, usize::MAX);
    for (until, reached) in [(12, 12), (11, 12), (15, 15)] {
        feed.extend(&[], Revision(until));
        assert_eq!(feed.reached(), Revision(reached));
    }
    assert_eq!(joinable(&feed), [10, 11, 12, 13, 14, 15]);
}

#[test]
fn a_watcher_gets_each_change_of_its_prefix_after_its_revision_once() {
    let feed = feed(9, usize::MAX);
    let change = |revision, key| change(revision, key, Some("v"), None);
    feed.extend(
        &[change(11, "/p/a"), change(12, "/p/b"), change(12, "/q/b"), change(13, "/p/c")],
        Revision(13),
    );
    let mut streams: Vec<(HubStream, &[(u64, &str)])> = vec![
        (feed.join("/p/", Revision(10)).unwrap(), &[(11, "/p/a"), (12, "/p/b"), (13, "/p/c"), (14, "/p/d")]),
        (feed.join("/p/", Revision(12)).unwrap(), &[(13, "/p/c"), (14, "/p/d")]),
        (feed.join("/q/", Revision(11)).unwrap(), &[(12, "/q/b")]),
        (feed.join("/p/", Revision(13)).unwrap(), &[(14, "/p/d")]),
    ];
    feed.extend(&[change(14, "/p/d")], Revision(14));
    for (stream, expected) in &mut streams {
        assert_eq!(delivered(stream), pairs(expected));
    }
}

fn event(revision: i64, key: &str) -> Event {
    Event { kv: Some(stored(key, "v", revision)), ..Event::default() }
}

/// The changes of one transaction have the order of their keys, and what is no data is no change.
#[test]
fn events_become_changes_in_the_order_of_their_keys() {
    let feed = feed(9, usize::MAX);
    let mark = Event {
        kv: Some(Stored {
            key: "/kubegc/meta/mark".into(),
            mod_revision: 12,
            version: 3,
            ..Stored::default()
        }),
        ..Event::default()
    };
    let changes = feed.changes(vec![event(11, "/z"), event(12, "/b"), mark, event(12, "/a")]).unwrap();
    let found: Vec<_> = changes.iter().map(|change| (change.revision.0, change.key.to_string())).collect();
    assert_eq!(found, pairs(&[(11, "/z"), (12, "/a"), (12, "/b")]));
    let deletion = Event { r#type: EventType::Delete.into(), ..event(13, "/a") };
    assert!(feed.changes(vec![deletion]).is_err(), "the previous value was compacted");
}

#[tokio::test]
async fn a_search_needs_all_changes_between_its_revisions() {
    let feed = feed(9, usize::MAX);
    let mine = |revision| change(revision, "/a", Some("mine"), None);
    feed.extend(&[mine(11), change(12, "/a", None, Some("mine")), mine(13)], Revision(14));
    let creation = transaction(&[("/a", 0)], vec![put("/a", "mine")]);
    let rows: [(u64, u64, Option<&[u64]>); 5] = [
        (9, 14, None),
        (10, 14, Some(&[11, 13])),
        (11, 14, Some(&[13])),
        (13, 14, Some(&[])),
        // The changes after `until` are searched, too.
        (10, 12, Some(&[11, 13])),
    ];
    for (since, until, expected) in rows {
        let found = feed.search(&creation, Revision(since), Revision(until)).await;
        let found = found.map(|found| found.iter().map(|revision| revision.0).collect::<Vec<_>>());
        assert_eq!(found.as_deref(), expected, "after {since} until {until}");
    }
}

#[tokio::test]
async fn a_search_waits_for_the_changes_that_are_to_come_and_gives_up() {
    let feed = feed(9, usize::MAX);
    let deletion = transaction(&[("/a", 4)], vec![Write::Delete("/a".into())]);
    let search = feed.search(&deletion, Revision(10), Revision(12));
    let arrival = async {
        // The search waits by then.
        tokio::time::sleep(LOOK).await;
        feed.extend(&[], Revision(12));
    };
    assert_eq!(tokio::join!(search, arrival).0, Some(Vec::new()));
    let begun = Instant::now();
    assert_eq!(feed.search(&deletion, Revision(10), Revision(13)).await, None);
    assert!(begun.elapsed() >= SEARCH_PATIENCE, "{:?}", begun.elapsed());
}

/// A quarter of a million changes, or 256 MiB.
#[test]
fn a_watcher_may_have_missed_as_much_as_the_bounds_allow() {
    let of = |changes, bytes| Missed { changes: std::iter::repeat_n(six(11), changes).collect(), bytes };
    for (missed, expected) in [
        (of(262_144, 256 << 20), false),
        (of(262_145, 0), true),
        (of(0, (256 << 20) + 1), true),
        (of(0, 0), false),
    ] {
        let figures = (missed.changes.len(), missed.bytes);
        assert_eq!(missed.is_too_much(), expected, "{figures:?}");
    }
    let mut missed = of(0, 0);
    for (revision, bytes) in [(11, 262), (12, 524), (13, 786)] {
        missed.add(six(revision));
        assert_eq!(missed.bytes, bytes);
    }
    let revisions: Vec<u64> = missed.changes.iter().map(|change| change.revision.0).collect();
    assert_eq!(revisions, [11, 12, 13]);
}

#[test]
fn a_watch_fails_for_ever_or_for_a_while() {
    let status = |code, message: &str| CallError::Status(tonic::Status::new(code, message));
    let broken = |reason: &str| StorageError::Broken(reason.to_owned());
    let unavailable = |reason: &str| StorageError::Unavailable(reason.to_owned());
    let large = "decoded message length too large: found 9";
    let rows = [
        (CallError::Endpoint("no URL".to_owned()), broken("no URL")),
        (status(tonic::Code::PermissionDenied, "denied"), broken("denied")),
        (status(tonic::Code::OutOfRange, large), broken(large)),
        (status(tonic::Code::OutOfRange, "compacted"), unavailable("compacted")),
        (status(tonic::Code::Unavailable, "later"), unavailable("later")),
        (CallError::Silent, unavailable("the member of etcd does not answer")),
    ];
    for (error, expected) in rows {
        assert_eq!(failed(&error), expected);
    }
}

fn events(events: &[(i64, &str)]) -> Vec<u8> {
    let events = events.iter().map(|(revision, key)| event(*revision, key)).collect();
    framed(&WatchResponse { events, ..WatchResponse::default() })
}

/// Returns a message that says only that nothing changed up to a revision.
fn progress(revision: i64) -> Vec<u8> {
    framed(&WatchResponse { header: Some(header(revision)), ..WatchResponse::default() })
}

/// Answers watches that begin at one revision, and no other, such as that of the store itself.
fn from(start: i64, body: impl Fn() -> Body + Send + Sync + 'static) -> Responder {
    by(move |request: WatchRequest| match request.create_request {
        Some(created) if created.start_revision == start => body(),
        _ => pieces(Vec::new(), false),
    })
}

/// Lets a watcher catch up after revision 5 beside a feed that knows what is after 10.
fn caught_up(body: fn() -> Body, patience: Duration) -> (Impostor, Result<Vec<(u64, String)>, StorageError>) {
    let impostor = impostor([("Watch", from(6, body))]);
    let store = connect(&impostor);
    let feed = feed(9, usize::MAX);
    feed.extend(&[change(11, "/p/k", Some("v"), None), change(12, "/p/l", Some("v"), None)], Revision(12));
    let client = store.client.clone();
    let runtime = store.runtime.as_ref().unwrap();
    let stream = runtime.block_on(feed.catch_up(&client, "/p/", Revision(5), patience));
    (impostor, stream.map(|mut stream| delivered(&mut stream)))
}

#[test]
fn a_watcher_that_is_behind_reads_what_the_window_lacks() {
    const LATER: [(u64, &str); 2] = [(11, "/p/k"), (12, "/p/l")];
    let rows: [(&str, fn() -> Body, &[(u64, &str)]); 4] = [
        (
            "changes",
            || pieces(vec![events(&[(6, "/p/a"), (6, "/q/a"), (10, "/p/b")])], false),
            &[(6, "/p/a"), (10, "/p/b")],
        ),
        (
            "in two parts",
            || pieces(vec![events(&[(6, "/p/a")]), events(&[(10, "/q/b")])], false),
            &[(6, "/p/a")],
        ),
        ("none", || pieces(vec![progress(10)], false), &[]),
        ("more than needed", || pieces(vec![events(&[(9, "/p/a"), (11, "/p/k")])], false), &[(9, "/p/a")]),
    ];
    for (name, body, before) in rows {
        let (impostor, found) = caught_up(body, PATIENCE);
        assert_eq!(found, Ok(pairs(&[before, &LATER].concat())), "{name}");
        let requests: Vec<WatchCreateRequest> = impostor
            .requests::<WatchRequest>("Watch")
            .into_iter()
            .filter_map(|sent| sent.create_request)
            .collect();
        let expected = |start_revision| WatchCreateRequest {
            key: "/kubegc/".into(),
            range_end: "/kubegc0".into(),
            start_revision,
            progress_notify: true,
            prev_kv: true,
            fragment: true,
        };
        assert!(requests.contains(&expected(6)), "{name}: {requests:?}");
    }
}

#[test]
fn catching_up_fails_with_its_watch() {
    let unavailable = |reason: &str| Err(StorageError::Unavailable(reason.to_owned()));
    let rows: [(&str, fn() -> Body, Duration, Result<Vec<(u64, String)>, StorageError>); 4] = [
        (
            "an end",
            || pieces(vec![events(&[(6, "/p/a")])], true),
            PATIENCE,
            unavailable("etcd ended the watch"),
        ),
        (
            "silence",
            || pieces(vec![progress(6)], false),
            Duration::from_millis(300),
            unavailable("etcd did not send its history in time"),
        ),
        (
            "compaction",
            || {
                let compacted =
                    WatchResponse { canceled: true, compact_revision: 8, ..WatchResponse::default() };
                pieces(vec![framed(&compacted)], false)
            },
            PATIENCE,
            Err(StorageError::Compacted { requested: Revision(5), oldest: Revision(8) }),
        ),
        (
            "a change of the past",
            || pieces(vec![events(&[(5, "/p/a")])], false),
            PATIENCE,
            Err(StorageError::Broken(
                "etcd's answer cannot be believed: a change of revision 5 after revision 5".to_owned(),
            )),
        ),
    ];
    for (name, body, patience, expected) in rows {
        assert_eq!(caught_up(body, patience).1, expected, "{name}");
    }
}

/// Each response has its own patience, and all together twelve times as much.
#[test]
fn catching_up_may_take_longer_than_one_response() {
    let slow = || {
        let useless = (0..20).map(|_| progress(6));
        slowly(useless.chain([events(&[(10, "/p/a")])]).collect(), Duration::from_millis(20))
    };
    let (_, found) = caught_up(slow, Duration::from_secs(3));
    assert_eq!(found, Ok(pairs(&[(10, "/p/a"), (11, "/p/k"), (12, "/p/l")])));
}

/// Opens watches until there were several, and returns how long that took.
fn time_of_watches(times: usize, body: impl Fn(i64) -> Body + Send + Sync + 'static) -> Duration {
    let watch = by(move |request: WatchRequest| body(request.create_request.unwrap().start_revision));
    let impostor = impostor([("Watch", watch)]);
    let begun = Instant::now();
    let _store = connect(&impostor);
    impostor.await_asked("Watch", times);
    begun.elapsed()
}

/// The pauses before a watch is resumed grow only while the watches deliver nothing.
#[test]
fn a_watch_that_ends_is_resumed_at_once_if_it_delivered_something() {
    let idle = time_of_watches(5, |_| pieces(Vec::new(), true));
    assert!(idle >= Duration::from_millis(100 + 200 + 400 + 800), "{idle:?}");
    // With growing pauses, these would take 23 s.
    let useful = time_of_watches(15, |start| pieces(vec![events(&[(start, "/p/a")])], true));
    assert!(useful < Duration::from_secs(15), "{useful:?}");
}

/// A history that was compacted before it was read ends all watches, and the feed starts over at the newest revision.
#[test]
fn a_compacted_watch_ends_all_watchers_and_starts_over() {
    let compacted = || {
        let response = WatchResponse { canceled: true, compact_revision: 15, ..WatchResponse::default() };
        pieces(vec![framed(&response)], false)
    };
    let range =
        by(|_: RangeRequest| whole(&RangeResponse { header: Some(header(20)), ..RangeResponse::default() }));
    let impostor = impostor([("Watch", from(11, compacted)), ("Range", range)]);
    let store = connect(&impostor);
    // The second watch begins after the newest revision.
    impostor.await_asked("Watch", 2);
    let starts: Vec<i64> = impostor
        .requests::<WatchRequest>("Watch")
        .into_iter()
        .filter_map(|sent| Some(sent.create_request?.start_revision))
        .collect();
    assert_eq!(starts, [11, 21]);
    assert_eq!(joinable(&store.feed), [20]);
    assert_eq!(store.feed.reached(), Revision(20));
}
