#![allow(clippy::unwrap_used, reason = "a test may panic")]

use gc_retention::namespaces::emptying::{Contained, Item, Served};
use gc_types::Gvr;
use serde_json::json;

use super::*;

const SETTLE_MILLISECONDS: i64 = 50;

fn name(text: &str) -> Arc<str> {
    text.into()
}

fn passes() -> Passes {
    Passes::new(SETTLE_MILLISECONDS, false)
}

/// What a server answers that has a terminating namespace with one secret, which a finalizer blocks.
fn blocked(question: &Question) -> Answer {
    let secrets = || Contained {
        gvr: Gvr { group: "".into(), version: "v1".into(), resource: "secrets".into() },
        kind: "Secret".into(),
        together: true,
    };
    let reply = match &question.ask {
        Ask::Read => Reply::Namespace(Box::new(View {
            uid: "u".into(),
            deleted_at: Some("2026-01-01T00:00:00Z".into()),
            finalizers: vec!["kubernetes".into()],
            ..View::default()
        })),
        Ask::Discover => {
            let groups = [(String::new(), true)].into();
            Reply::Served(Arc::new(Served { resources: vec![Arc::new(secrets())], groups, failed: vec![] }))
        }
        Ask::List(_) => {
            let finalizers = vec!["example.com/hold".into()];
            Reply::Items(vec![Item { name: "a".into(), deleting: true, finalizers, ..Item::default() }])
        }
        _ => Reply::Done,
    };
    Answer { reply, read: matches!(question.ask, Ask::Read).then(|| json!({"read": true})) }
}

fn missing(_: &Question) -> Answer {
    Answer { reply: Reply::Refused { code: 404, why: "no such namespace".into() }, read: None }
}

/// Answers every question until none is left. Returns what was asked.
fn run(passes: &mut Passes, now: i64, server: impl Fn(&Question) -> Answer) -> Vec<Question> {
    let mut asked = Vec::new();
    while let Some(question) = passes.poll_question(false, Timestamp(now)) {
        passes.answered(&question, server(&question), Timestamp(now));
        asked.push(question);
    }
    asked
}

#[test]
fn a_namespace_that_is_gone_is_forgotten_after_one_question() {
    let mut passes = passes();
    passes.observed(&name("n"), Timestamp(0));
    assert_eq!((passes.len(), passes.next_wakeup(false)), (1, Some(Timestamp(SETTLE_MILLISECONDS))));
    assert!(
        passes.poll_question(false, Timestamp(SETTLE_MILLISECONDS - 1)).is_none(),
        "watches settle first"
    );
    let asked = run(&mut passes, SETTLE_MILLISECONDS, missing);
    assert_eq!(asked.iter().map(|question| &question.ask).collect::<Vec<_>>(), [&Ask::Read]);
    let end = End::Done { terminating_seconds: None };
    assert_eq!(passes.poll_end(), Some(Ended { namespace: name("n"), uid: None, end }));
    assert_eq!((passes.poll_end(), passes.is_empty(), passes.remembered()), (None, true, 0));
}

#[test]
fn no_pass_begins_while_the_process_is_held_and_those_under_way_continue() {
    let mut passes = passes();
    passes.observed(&name("a"), Timestamp(0));
    let now = Timestamp(SETTLE_MILLISECONDS);
    let question = passes.poll_question(false, now).unwrap();
    passes.observed(&name("b"), Timestamp(0));
    assert_eq!(passes.next_wakeup(true), None, "nothing is due until the process leads again");
    passes.answered(&question, blocked(&question), now);
    let next = passes.poll_question(true, now).unwrap();
    assert_eq!((&*next.namespace, &next.ask), ("a", &Ask::Discover));
    assert!(passes.poll_question(true, now).is_none());
    assert_eq!(passes.poll_question(false, now).map(|question| question.namespace), Some(name("b")));
}

#[test]
fn what_is_written_is_written_into_what_was_read_last() {
    let mut passes = passes();
    passes.observed(&name("n"), Timestamp(0));
    let asked = run(&mut passes, SETTLE_MILLISECONDS, blocked);
    let written = asked.iter().find(|question| matches!(question.ask, Ask::WriteStatus(_))).unwrap();
    assert_eq!((&*written.document, &*written.view.uid), (&json!({"read": true}), "u"));
    let changes: Vec<bool> = asked.iter().map(Question::changes).collect();
    // Read, discover, delete, list, read again, write.
    assert_eq!(changes, [false, false, true, false, false, true]);
}

#[test]
fn a_namespace_that_waits_for_others_is_counted_until_its_next_pass() {
    let mut passes = passes();
    passes.observed(&name("n"), Timestamp(0));
    run(&mut passes, SETTLE_MILLISECONDS, blocked);
    let ended = passes.poll_end().unwrap();
    assert!(matches!(ended.end, End::Again { unanswered: false, .. }), "{ended:?}");
    assert_eq!(ended.uid, Some(Uid::new("u")));
    assert_eq!((passes.waiting_for_others(), passes.len(), passes.remembered()), (1, 1, 1));
    passes.hurry(Timestamp(60));
    assert_eq!((passes.waiting_for_others(), passes.next_wakeup(false)), (0, Some(Timestamp(60))));
    assert_eq!(run(&mut passes, 60, missing).len(), 1);
    assert_eq!((passes.len(), passes.remembered()), (0, 0));
}

#[test]
fn an_answer_to_a_former_pass_is_ignored() {
    let mut passes = passes();
    passes.observed(&name("n"), Timestamp(0));
    let former = passes.poll_question(false, Timestamp(SETTLE_MILLISECONDS)).unwrap();
    passes.observed(&name("n"), Timestamp(SETTLE_MILLISECONDS));
    passes.answered(&former, missing(&former), Timestamp(SETTLE_MILLISECONDS));
    assert!(passes.poll_end().is_some());
    let present = passes.poll_question(false, Timestamp(SETTLE_MILLISECONDS)).unwrap();
    passes.answered(&former, missing(&former), Timestamp(SETTLE_MILLISECONDS));
    assert_eq!(passes.poll_end(), None);
    passes.answered(&present, missing(&present), Timestamp(SETTLE_MILLISECONDS));
    assert!(passes.poll_end().is_some());
}

#[test]
fn a_dry_run_changes_nothing() {
    let mut passes = Passes::new(0, true);
    passes.observed(&name("n"), Timestamp(0));
    let asked = run(&mut passes, 0, blocked);
    assert!(asked.iter().all(|question| !question.changes()), "{asked:?}");
    assert!(matches!(passes.poll_end().unwrap().end, End::DryRun(_)));
}
