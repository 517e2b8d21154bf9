#![allow(clippy::unwrap_used, reason = "a test may panic")]

use gc_collectors::namespaces::emptying::{ContainedResource, Item, ServedResources};
use gc_types::Gvr;
use serde_json::json;

use super::*;
use crate::controller::tests::World;

const SETTLE_MILLISECONDS: i64 = 50;

fn name(text: &str) -> Arc<str> {
    text.into()
}

fn passes() -> Passes {
    Passes::new(SETTLE_MILLISECONDS, ConcurrencyOptions::default())
}

/// Returns a world without restraints.
fn free() -> World {
    World::new(u64::MAX)
}

fn at(milliseconds: i64) -> Now {
    let running = Duration::from_millis(u64::try_from(milliseconds).unwrap());
    Now { time: Timestamp(milliseconds), moment: Moment::from_start(running) }
}

fn answer(reply: Reply) -> Answer {
    Answer { reply, read: None, deleted: 0, signal: Some((Signal::Answered, 1)) }
}

/// Responds like a server with a terminating namespace that has one secret, which a finalizer blocks.
fn blocked(question: &Question) -> Answer {
    let secrets = || ContainedResource {
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
            Reply::Served(Arc::new(ServedResources {
                resources: vec![Arc::new(secrets())],
                groups,
                failed: vec![],
            }))
        }
        Ask::List(_) => {
            let finalizers = vec!["example.com/hold".into()];
            Reply::Items(vec![Item { name: "a".into(), deleting: true, finalizers, ..Item::default() }])
        }
        _ => Reply::Done,
    };
    let read = matches!(question.ask, Ask::Read).then(|| json!({"read": true}));
    Answer { read, deleted: u64::from(matches!(question.ask, Ask::DeleteAll(_))), ..answer(reply) }
}

fn missing(_: &Question) -> Answer {
    answer(Reply::Refused { code: 404, why: "no such namespace".into() })
}

/// Answers all requests, and returns them.
fn run(passes: &mut Passes, now: i64, world: &World, server: impl Fn(&Question) -> Answer) -> Vec<Question> {
    let mut asked = Vec::new();
    while let Some(question) = passes.poll_question(at(now), world) {
        passes.answered(&question, server(&question), at(now), world);
        asked.push(question);
    }
    asked
}

/// Answers like [`run`], until something is to be deleted.
fn run_to_deletion(passes: &mut Passes, now: i64, world: &World) -> Question {
    loop {
        let question = passes.poll_question(at(now), world).unwrap();
        if matches!(question.ask, Ask::DeleteAll(_)) {
            return question;
        }
        passes.answered(&question, blocked(&question), at(now), world);
    }
}

#[test]
fn a_namespace_that_is_gone_is_forgotten_after_one_question() {
    let (mut passes, world) = (passes(), free());
    passes.observed(&name("n"), Timestamp(0));
    let due = passes.next_wakeup(at(0), &world);
    assert_eq!((passes.len(), due), (1, Some(Timestamp(SETTLE_MILLISECONDS))));
    let early = passes.poll_question(at(SETTLE_MILLISECONDS - 1), &world);
    assert!(early.is_none(), "watches settle first");
    let asked = run(&mut passes, SETTLE_MILLISECONDS, &world, missing);
    assert_eq!(asked.iter().map(|question| &question.ask).collect::<Vec<_>>(), [&Ask::Read]);
    let end = End::Done { terminating_seconds: None };
    assert_eq!(passes.poll_end(), Some(EndedPass { namespace: name("n"), uid: None, end }));
    assert_eq!((passes.poll_end(), passes.is_empty(), passes.remembered()), (None, true, 0));
}

/// During a pause the namespace may be recreated, so a pass does not continue with what it knew before.
#[test]
fn a_pass_is_abandoned_by_a_pause_once_its_answers_have_come() {
    let (mut passes, world) = (passes(), free());
    let now = SETTLE_MILLISECONDS;
    passes.observed(&name("a"), Timestamp(0));
    let deletion = run_to_deletion(&mut passes, now, &world);
    passes.observed(&name("b"), Timestamp(now));
    world.is_held.set(true);
    assert!(passes.poll_question(at(now), &world).is_none());
    assert_eq!(passes.next_wakeup(at(now), &world), None, "nothing is due before it ends");
    passes.answered(&deletion, blocked(&deletion), at(now), &world);
    assert!(passes.poll_question(at(now), &world).is_none());
    world.is_held.set(false);
    let begun = |question: Question| (question.namespace, question.ask);
    assert_eq!(passes.poll_question(at(now), &world).map(begun), Some((name("a"), Ask::Read)));
    assert_eq!(passes.poll_question(at(now), &world).map(begun), None);
    let later = at(now + SETTLE_MILLISECONDS);
    assert_eq!(passes.poll_question(later, &world).map(begun), Some((name("b"), Ask::Read)));
    assert_eq!(passes.poll_end(), None, "an abandoned pass has not ended");
}

#[test]
fn what_is_written_is_written_into_what_was_read_last() {
    let (mut passes, world) = (passes(), free());
    passes.observed(&name("n"), Timestamp(0));
    let asked = run(&mut passes, SETTLE_MILLISECONDS, &world, blocked);
    let written = asked.iter().find(|question| matches!(question.ask, Ask::WriteStatus(_))).unwrap();
    assert_eq!((&*written.document, &*written.view.uid), (&json!({"read": true}), "u"));
    let changes: Vec<bool> = asked.iter().map(Question::changes).collect();
    // Read, discover, delete, list, read again, write.
    assert_eq!(changes, [false, false, true, false, false, true]);
}

#[test]
fn a_namespace_that_waits_for_others_is_counted_until_its_next_pass() {
    let (mut passes, world) = (passes(), free());
    passes.observed(&name("n"), Timestamp(0));
    run(&mut passes, SETTLE_MILLISECONDS, &world, blocked);
    let ended = passes.poll_end().unwrap();
    assert!(matches!(ended.end, End::Again { unanswered: false, .. }), "{ended:?}");
    assert_eq!(ended.uid, Some(Uid::new("u")));
    assert_eq!((passes.waiting_for_others(), passes.len(), passes.remembered()), (1, 1, 1));
    passes.hurry(Timestamp(60));
    let due = passes.next_wakeup(at(60), &world);
    assert_eq!((passes.waiting_for_others(), due), (0, Some(Timestamp(60))));
    assert_eq!(run(&mut passes, 60, &world, missing).len(), 1);
    assert_eq!((passes.len(), passes.remembered()), (0, 0));
}

#[test]
fn an_answer_to_a_former_pass_is_ignored() {
    let (mut passes, world, now) = (passes(), free(), at(SETTLE_MILLISECONDS));
    passes.observed(&name("n"), Timestamp(0));
    let former = passes.poll_question(now, &world).unwrap();
    passes.observed(&name("n"), now.time);
    passes.answered(&former, missing(&former), now, &world);
    assert!(passes.poll_end().is_some());
    let present = passes.poll_question(now, &world).unwrap();
    passes.answered(&former, missing(&former), now, &world);
    assert_eq!(passes.poll_end(), None);
    passes.answered(&present, missing(&present), now, &world);
    assert!(passes.poll_end().is_some());
}

#[test]
fn a_dry_run_changes_nothing_and_its_namespaces_are_emptied_when_it_ends() {
    let (mut passes, world) = (passes(), free());
    world.dry_run.set(Some(WithheldBy::DryRun));
    passes.observed(&name("n"), Timestamp(0));
    let asked = run(&mut passes, SETTLE_MILLISECONDS, &world, blocked);
    assert!(asked.iter().all(|question| !question.changes()), "{asked:?}");
    assert!(matches!(passes.poll_end().unwrap().end, End::DryRun(_)));
    assert!(passes.is_empty());
    world.dry_run.set(None);
    assert!(passes.poll_question(at(60), &world).is_none());
    let asked = run(&mut passes, 60 + SETTLE_MILLISECONDS, &world, blocked);
    assert!(asked.iter().any(Question::changes), "{asked:?}");
}

/// A dry run that begins during a pass makes it change nothing further.
#[test]
fn a_pass_is_abandoned_by_a_dry_run() {
    let (mut passes, world, now) = (passes(), free(), SETTLE_MILLISECONDS);
    passes.observed(&name("n"), Timestamp(0));
    let deletion = run_to_deletion(&mut passes, now, &world);
    world.dry_run.set(Some(WithheldBy::DryRun));
    passes.answered(&deletion, blocked(&deletion), at(now), &world);
    let asked = run(&mut passes, now, &world, blocked);
    assert!(!asked.is_empty() && asked.iter().all(|question| !question.changes()), "{asked:?}");
    assert!(matches!(passes.poll_end().unwrap().end, End::DryRun(_)));
}

#[test]
fn the_breaker_counts_what_collections_came_to_and_stops_the_next_deletion() {
    let world = World::new(3);
    let mut passes = Passes::new(0, ConcurrencyOptions::default());
    for (namespace, deleted) in [("a", 2), ("b", 0), ("c", 5)] {
        passes.observed(&name(namespace), Timestamp(0));
        let deletion = run_to_deletion(&mut passes, 0, &world);
        passes.answered(&deletion, Answer { deleted, ..blocked(&deletion) }, at(0), &world);
        run(&mut passes, 0, &world, blocked);
        assert!(matches!(passes.poll_end().unwrap().end, End::Again { .. }), "{namespace}");
    }
    assert_eq!(*world.reports.borrow(), Vec::<&str>::new());
    for (namespace, why) in [
        ("d", "collection of secrets has stopped: 7 deletions within 600 s, the limit of one window"),
        ("e", "the circuit breaker has stopped deletions of secrets"),
    ] {
        passes.observed(&name(namespace), Timestamp(0));
        let asked = run(&mut passes, 0, &world, blocked);
        assert!(asked.iter().all(|question| !matches!(question.ask, Ask::DeleteAll(_))), "{asked:?}");
        let ended = passes.poll_end().unwrap();
        assert_eq!(ended.end, End::Failed { why: why.into(), further: false }, "{namespace}");
    }
    assert_eq!(*world.reports.borrow(), ["tripped"]);
    assert!(world.breaker.borrow_mut().resume("secrets"));
    passes.hurry(Timestamp(0));
    run_to_deletion(&mut passes, 0, &world);
}

#[test]
fn what_is_excluded_from_deletion_stays() {
    let (mut passes, world) = (passes(), free());
    world.breaker.borrow_mut().keep(["secrets".into()].into());
    passes.observed(&name("n"), Timestamp(0));
    let asked = run(&mut passes, SETTLE_MILLISECONDS, &world, blocked);
    assert!(asked.iter().all(|question| !matches!(question.ask, Ask::DeleteAll(_))), "{asked:?}");
    let why = "secrets are excluded from deletion".to_owned();
    assert_eq!(passes.poll_end().unwrap().end, End::Failed { why, further: false });
}

#[test]
fn no_more_is_asked_than_the_concurrency_limit_and_the_server_allow() {
    let one = ConcurrencyOptions { initial: 1, smallest: 1, largest: 1, ..ConcurrencyOptions::default() };
    let (mut passes, world) = (Passes::new(0, one), free());
    passes.observed(&name("a"), Timestamp(0));
    passes.observed(&name("b"), Timestamp(0));
    let question = passes.poll_question(at(0), &world).unwrap();
    assert!(passes.poll_question(at(0), &world).is_none());
    assert_eq!(passes.next_wakeup(at(0), &world), None, "an answer comes first");
    let busy = Some((Signal::Busy(Some(Duration::from_millis(2_500))), 1));
    passes.answered(&question, Answer { signal: busy, ..blocked(&question) }, at(10), &world);
    assert!(passes.poll_question(at(2_509), &world).is_none());
    assert_eq!(passes.next_wakeup(at(2_509), &world), Some(Timestamp(2_510)));
    assert!(passes.poll_question(at(2_510), &world).is_some());
    passes.set_concurrency(ConcurrencyOptions { largest: 2, initial: 2, smallest: 2, ..one });
    assert!(passes.poll_question(at(2_510), &world).is_some());
}
