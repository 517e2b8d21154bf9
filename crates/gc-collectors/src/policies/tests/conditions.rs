//! Conditions in CEL.

use super::*;

#[test]
fn a_condition_may_ask_for_the_time() {
    let condition = "now - timestamp(object.metadata.creationTimestamp) > duration('2h')";
    let policy = Policy::compile(&spec(json!({"condition": condition}))).unwrap();
    let old = job("a", 1, json!({}));
    assert_eq!(policy.look(&old, at(HOUR)), Assessment::Aside);
    assert!(matches!(policy.look(&old, at(HOUR + 1)), Assessment::Selected(_)));
    for (condition, expected) in
        [(condition, true), ("object.now == 'now'", false), ("[1].all(now, now > 0)", false)]
    {
        let policy = Policy::compile(&spec(json!({"condition": condition}))).unwrap();
        assert_eq!(policy.depends_on_time(), expected, "{condition}");
    }
}
