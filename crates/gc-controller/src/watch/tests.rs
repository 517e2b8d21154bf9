//! Histories of lists and watches. The same over HTTP is in `gc-kube/tests/watching.rs`, and over the registry with faults in
//! `gc-sim`.

use super::*;

/// One step of a history.
enum Step<'a> {
    /// This is requested.
    Ask(Ask),
    /// A page is read: its version, and where the next one begins.
    Page(&'a str, &'a str),
    /// The newest version of the server is read.
    Newest(&'a str),
    /// The watch is answered.
    Opened,
    /// Delivers an object at this version.
    Reached(&'a str),
    /// The watch reports its progress.
    Bookmark(&'a str, bool),
    /// The request ends after this many seconds.
    Ends(RequestEnd, u64),
    /// These signals have been given since.
    Signals(Vec<Signal>),
}

use Step::{Ask as Asks, Bookmark, Ends, Newest, Opened, Page, Reached, Signals};

fn live(what: &str, streamed: bool, steps: Vec<Step<'_>>) {
    live_of(ListWatch::new(streamed), what, steps);
}

fn live_of(mut protocol: ListWatch, what: &str, steps: Vec<Step<'_>>) {
    for (index, step) in steps.into_iter().enumerate() {
        match step {
            Asks(expected) => assert_eq!(protocol.ask(0.0), expected, "{what}, step {index}"),
            Page(version, token) => protocol.page_read(version, token),
            Newest(version) => protocol.newest_read(version),
            Opened => protocol.opened(),
            Reached(version) => protocol.reached(version),
            Bookmark(version, ends_list) => protocol.bookmark(version, ends_list),
            Ends(ended, seconds) => protocol.ended(&ended, Duration::from_secs(seconds), 1.0),
            Signals(expected) => {
                let given: Vec<Signal> = std::iter::from_fn(|| protocol.poll_signal()).collect();
                assert_eq!(given, expected, "{what}, step {index}");
            }
        }
    }
}

fn page(token: &str) -> Step<'static> {
    Asks(Ask::Page { is_paged: true, continue_token: token.to_owned() })
}

fn watch(from: &str) -> Step<'static> {
    Asks(Ask::Watch { from: Some(from.to_owned()), seconds: WATCH_SECONDS })
}

fn wait(milliseconds: u64) -> Step<'static> {
    Asks(Ask::Wait(Duration::from_millis(milliseconds)))
}

fn refused(code: u16) -> RequestEnd {
    RequestEnd::Refused { code, message: "m".to_owned(), retry_after: None }
}

fn cut() -> RequestEnd {
    RequestEnd::Unreachable("cut".to_owned())
}

fn synced(version: u64) -> Signal {
    Signal::Synced(ResourceVersion(version))
}

fn failing(why: RequestEnd, was_synced: bool) -> Signal {
    Signal::Failing { why, was_synced }
}

#[test]
fn a_list_in_pages_goes_over_into_watches() {
    live(
        "pages, and watches that end in time",
        false,
        vec![
            page(""),
            Signals(vec![Signal::ListStarted]),
            Page("5", "a"),
            page("a"),
            Signals(vec![]),
            Page("5", ""),
            Signals(vec![synced(5)]),
            watch("5"),
            Opened,
            Reached("6"),
            Bookmark("9", false),
            Signals(vec![Signal::Progress(ResourceVersion(9))]),
            Ends(RequestEnd::Finished, 291),
            Signals(vec![]),
            watch("9"),
        ],
    );
    live(
        "a page is not answered: the list begins again, later and later",
        false,
        vec![
            page(""),
            Page("5", "a"),
            page("a"),
            Ends(cut(), 0),
            Signals(vec![Signal::ListStarted, failing(cut(), false)]),
            wait(100),
            page(""),
            Signals(vec![Signal::ListStarted]),
            Ends(refused(403), 0),
            wait(200),
            page(""),
            Page("7", ""),
            Signals(vec![failing(refused(403), false), Signal::ListStarted, synced(7)]),
            // It may be another server now, whose progress the list has shown.
            watch("7"),
        ],
    );
    live(
        "a token that expired: the list is asked for whole",
        false,
        vec![page(""), Page("5", "a"), page("a"), Ends(refused(410), 0), wait(100), whole()],
    );
}

fn whole() -> Step<'static> {
    Asks(Ask::Page { is_paged: false, continue_token: String::new() })
}

/// A list that is too slow for pages and too large to be read whole is not lost: it is tried in pages again, and whole again if
/// their token expires once more.
#[test]
fn pages_come_back() {
    for why in [
        RequestEnd::TooLarge,
        RequestEnd::Unreachable("no answer within 60 s".to_owned()),
        refused(410),
        refused(500),
    ] {
        live(
            "a token that expired, and a whole list that fails",
            false,
            vec![
                page(""),
                Page("5", "a"),
                page("a"),
                Ends(refused(410), 0),
                wait(100),
                whole(),
                Ends(why.clone(), 60),
                wait(100),
                page(""),
                Page("7", "b"),
                page("b"),
                Ends(refused(410), 0),
                wait(200),
                whole(),
                Page("8", ""),
                watch("8"),
            ],
        );
    }
}

/// Pages have fewer objects if those are large, and more again if they are small.
#[test]
fn page_sizes_follow_the_size_of_objects() {
    let mut protocol = ListWatch::new(false);
    let fail = |protocol: &mut ListWatch, ended: &RequestEnd, seconds| {
        assert!(matches!(protocol.ask(0.0), Ask::Page { is_paged: true, .. }));
        protocol.ended(ended, Duration::from_secs(seconds), 0.0);
        assert!(matches!(protocol.ask(0.0), Ask::Wait(_)));
        protocol.page_size(1000)
    };
    assert_eq!(protocol.page_size(1000), 1000);
    assert_eq!(fail(&mut protocol, &RequestEnd::TooLarge, 1), 250);
    assert_eq!(fail(&mut protocol, &RequestEnd::TooLarge, 1), 62);
    assert_eq!(fail(&mut protocol, &cut(), 1), 62, "a connection that breaks says nothing about the size");
    assert_eq!(fail(&mut protocol, &cut(), 60), 31, "one that took so long does");
    for (bytes, size) in [
        (LARGE_PAGE_BYTES + 1, 15),
        (LARGE_PAGE_BYTES, 15),
        (LARGE_PAGE_BYTES / 4, 15),
        (LARGE_PAGE_BYTES / 4 - 1, 31),
        (0, 62),
    ] {
        protocol.page_came(bytes);
        assert_eq!(protocol.page_size(1000), size, "{bytes}");
    }
    for _ in 0..20 {
        fail(&mut protocol, &RequestEnd::TooLarge, 1);
    }
    assert_eq!(protocol.page_size(500), 1);
}

#[test]
fn a_streamed_list_goes_over_into_a_watch_or_is_given_up() {
    let stream = || Asks(Ask::Watch { from: None, seconds: WATCH_SECONDS });
    live(
        "it is served",
        true,
        vec![
            stream(),
            Opened,
            Signals(vec![Signal::ListStarted]),
            Reached("3"),
            Bookmark("5", true),
            Signals(vec![synced(5)]),
            Reached("6"),
            Ends(RequestEnd::Finished, 300),
            watch("6"),
        ],
    );
    for (ended, opened) in
        [(refused(422), false), (refused(500), true), (RequestEnd::Silent(STREAMED_LIST_SILENCE), true)]
    {
        let mut steps = vec![stream()];
        steps.extend(opened.then_some(Opened));
        steps.extend([Ends(ended, 0), page("")]);
        live("it is not", true, steps);
    }
    live("it is forbidden to be busy", true, vec![stream(), Ends(refused(429), 0), wait(100), stream()]);
}

#[test]
fn a_watch_that_breaks_is_resumed_where_it_was() {
    let listed = || vec![page(""), Page("5", ""), watch("5"), Opened, Reached("6")];
    let with = |more: Vec<Step<'static>>| listed().into_iter().chain(more).collect::<Vec<_>>();
    let listed = || vec![Signal::ListStarted, synced(5)];
    live(
        "it is cut, and the server is as far",
        false,
        with(vec![
            Signals(listed()),
            Ends(cut(), 20),
            Signals(vec![failing(cut(), true), Signal::Stale]),
            wait(100),
            Asks(Ask::Newest),
            Newest("6"),
            watch("6"),
            Opened,
            Signals(vec![synced(6)]),
        ]),
    );
    let gone = || RequestEnd::Refused {
        code: 410,
        message: "the server was restored to an earlier version".to_owned(),
        retry_after: None,
    };
    live(
        "the server was restored to an earlier version",
        false,
        with(vec![
            Ends(cut(), 20),
            wait(100),
            Asks(Ask::Newest),
            Newest("4"),
            Signals([listed(), vec![failing(cut(), true), Signal::Stale, failing(gone(), true)]].concat()),
            wait(100),
            page(""),
        ]),
    );
    live(
        "what it missed is gone: reported as stale once",
        false,
        with(vec![
            Ends(refused(410), 20),
            Signals([listed(), vec![failing(refused(410), true), Signal::Stale]].concat()),
            wait(100),
            page(""),
            Ends(refused(500), 0),
            Signals(vec![Signal::ListStarted, failing(refused(500), true)]),
        ]),
    );
    live(
        "the server ends it early: it may be going down",
        false,
        with(vec![
            Ends(RequestEnd::Finished, 20),
            Signals(listed()),
            Asks(Ask::Newest),
            Newest("6"),
            watch("6"),
        ]),
    );
    live(
        "at once: with a pause",
        false,
        with(vec![Ends(RequestEnd::Finished, 0), wait(100), Asks(Ask::Newest)]),
    );
    live(
        "not served any more: it is listed again when it is",
        false,
        with(vec![
            Ends(refused(404), 0),
            Signals([listed(), vec![Signal::NotServed, failing(refused(404), true), Signal::Stale]].concat()),
            wait(100),
            page(""),
        ]),
    );
    live(
        "the server asks for patience",
        false,
        with(vec![
            Ends(
                RequestEnd::Refused {
                    code: 429,
                    message: String::new(),
                    retry_after: Some(Duration::from_secs(7)),
                },
                0,
            ),
            wait(7_000),
            watch("6"),
        ]),
    );
}

/// A cheap list is made again after a failure that may have been a restart, however far the server has progressed.
#[test]
fn a_cheap_list_is_read_again() {
    live_of(
        ListWatch::new(false).relisting(),
        "it is cut, and ends in time later",
        vec![
            page(""),
            Page("5", ""),
            watch("5"),
            Opened,
            Reached("6"),
            Ends(cut(), 20),
            wait(100),
            page(""),
            Page("6", ""),
            watch("6"),
            Opened,
            Ends(RequestEnd::Finished, u64::from(WATCH_SECONDS)),
            watch("6"),
        ],
    );
}

/// Lists are answered each time and no watch follows them, as with a server that keeps no history: the pauses before them grow, and
/// begin again after a watch that lasted.
#[test]
fn lists_that_no_watch_follows_are_made_ever_more_rarely() {
    let early = || RequestEnd::Finished;
    let pauses = [100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000];
    let endings: [(&str, bool, fn() -> RequestEnd, u64); 7] = [
        ("its version is gone", false, || refused(410), 0),
        ("its version is gone, after a while", false, || refused(410), 30),
        ("it is not served", false, || refused(404), 0),
        ("it is refused", false, || refused(400), 0),
        ("it cannot be answered", false, || refused(422), 0),
        ("it is cut, and lists are cheap", true, cut, 0),
        ("it ends early, and lists are cheap", true, early, 2),
    ];
    for (what, relists, ending, seconds) in endings {
        let mut steps = vec![page("")];
        for pause in pauses {
            steps.extend([Page("5", ""), watch("5"), Opened, Ends(ending(), seconds), wait(pause), page("")]);
        }
        steps.extend([Page("5", ""), watch("5"), Opened, Ends(ending(), 31), wait(100), page("")]);
        let protocol = ListWatch::new(false);
        live_of(if relists { protocol.relisting() } else { protocol }, what, steps);
    }
    let restored =
        |pause| [watch("5"), Ends(cut(), 0), wait(100), Asks(Ask::Newest), Newest("4"), wait(pause)];
    let mut steps = vec![page("")];
    for pause in [100, 100, 200, 400, 800] {
        steps.push(Page("5", ""));
        steps.extend(restored(pause));
        steps.push(page(""));
    }
    live("one of two servers is behind the other", false, steps);
}

/// What a watch is waited for, and what is known meanwhile.
#[test]
fn the_silence_that_is_tolerated_follows_what_was_asked() {
    let mut streamed = ListWatch::new(true);
    assert_eq!(
        (streamed.is_listed(), streamed.is_listing(), streamed.patience()),
        (false, false, WATCH_OVERTIME)
    );
    assert!(matches!(streamed.ask(0.0), Ask::Watch { from: None, .. }));
    assert_eq!(
        (streamed.is_listed(), streamed.is_listing(), streamed.patience()),
        (false, true, STREAMED_LIST_SILENCE)
    );
    streamed.opened();
    // Nothing in the list is a version to resume from.
    streamed.reached("4");
    assert!(!streamed.is_listed());
    streamed.bookmark("5", true);
    let patience = |seconds: u32| Duration::from_secs(u64::from(seconds)) + WATCH_OVERTIME;
    assert_eq!(
        (streamed.is_listed(), streamed.is_listing(), streamed.patience()),
        (true, false, patience(WATCH_SECONDS))
    );
    streamed.reached("");
    streamed.ended(&RequestEnd::Finished, Duration::from_secs(u64::from(WATCH_SECONDS)), 0.0);
    // Watches end at different times: between once and twice the shortest.
    let expected = Ask::Watch { from: Some("5".to_owned()), seconds: WATCH_SECONDS + WATCH_SECONDS / 2 };
    assert_eq!(streamed.ask(0.5), expected);
    assert_eq!(streamed.patience(), patience(WATCH_SECONDS + WATCH_SECONDS / 2));
}
