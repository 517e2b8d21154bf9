//! Notices before deletions.

use super::*;

/// Returns the object that an effect announces, and its message.
fn noticed(effect: &Effect) -> (String, String) {
    let Request::RecordEvent(note) = &effect.request else { panic!("{effect:?}") };
    assert_eq!((note.reason, effect.reason.code()), ("RetentionNotice", "DeletionNotice"));
    (note.about.name.to_string(), note.message.clone())
}

/// Each object is announced once, a day before its deletion; one that is already due waits for a day after its notice.
#[test]
fn a_deletion_is_announced_and_waits() {
    let rules = json!({"maxAge": "48h", "notice": {"before": "24h"}});
    let objects = [job("old", 99, json!({})), job("middle", 30, json!({})), job("young", 1, json!({}))];
    let mut engine = engine(&spec(rules.clone()), &objects);
    let first: Vec<_> = std::iter::from_fn(|| engine.poll_effect()).map(|effect| noticed(&effect)).collect();
    let says = |at: &str, created: &str| {
        format!("Will be deleted at {at} or later: created at {created}, older than spec.maxAge")
    };
    assert_eq!(
        first,
        [
            ("old".to_owned(), says("2027-01-16T08:00:00Z", "2027-01-11T05:00:00Z")),
            ("middle".to_owned(), says("2027-01-16T08:00:00Z", "2027-01-14T02:00:00Z")),
        ]
    );
    assert_eq!(engine.status(&Value::Null, at(0))["noticedUntil"], "2027-01-16T02:00:00Z");
    assert_eq!(engine.status(&Value::Null, at(0))["due"], 0);
    engine.tick(at(24 * HOUR - 1));
    let then: Vec<_> = std::iter::from_fn(|| engine.poll_effect()).map(|effect| noticed(&effect).0).collect();
    assert_eq!(then, ["young"]);
    engine.tick(at(24 * HOUR));
    let gone: BTreeSet<String> = deleted_now(&mut engine).into_iter().collect();
    assert_eq!(gone, BTreeSet::from(["old".to_owned(), "middle".to_owned()]));
    // Its notice was late, so its deletion is equally late.
    engine.tick(at(48 * HOUR - 2));
    assert_eq!(deleted_now(&mut engine), [""; 0]);
    engine.tick(at(48 * HOUR - 1));
    assert_eq!(deleted_now(&mut engine), ["young"]);

    // A later process gives no notice twice, and objects that it sees for the first time wait.
    let status = json!({"observedGeneration": 3, "observedSpec": super::engine::digest(&spec(rules.clone())),
        "due": 0, "noticedUntil": "2027-01-16T02:00:00Z"});
    let mut next = engine_of(&spec(rules), &status);
    next.list_started();
    for object in &objects {
        observe(&mut next, object);
    }
    next.synced();
    next.tick(at(HOUR));
    assert_eq!(deleted_now(&mut next), ["old"]);
    observe(&mut next, &job("new", 60, json!({})));
    next.tick(at(2 * HOUR));
    let then: Vec<_> = std::iter::from_fn(|| next.poll_effect()).map(|effect| noticed(&effect).0).collect();
    assert_eq!(then, ["new"]);
    // The same name with another UID is another object.
    next.removed("shop", "new");
    observe(&mut next, &job("new", 60, json!({"/metadata/uid": "other"})));
    next.tick(at(3 * HOUR));
    let then: Vec<_> = std::iter::from_fn(|| next.poll_effect()).map(|effect| noticed(&effect).0).collect();
    assert_eq!(then, ["new"]);
    next.tick(at(25 * HOUR));
    assert_eq!(noticed(&next.poll_effect().unwrap()).0, "young");
    assert_eq!(deleted_now(&mut next), ["middle"]);
}
