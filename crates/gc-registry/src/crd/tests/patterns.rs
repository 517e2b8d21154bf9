//! The size of the patterns of a definition.

use super::*;

/// Returns a pattern of host names whose labels may have letters and symbols of all scripts, with a part that tells it from others.
fn host_names(other: &str) -> String {
    let letter = r"[a-zA-Z0-9\p{S}\p{L}]";
    let label = format!(r"{letter}([a-zA-Z0-9-\p{{S}}\p{{L}}]{{0,61}}{letter})?");
    format!(r"^({letter}(-?{letter}{{0,62}})?|({label}\.)+[a-zA-Z\p{{L}}]{{2,63}}|{other})$")
}

fn with_patterns(patterns: impl Iterator<Item = String>) -> Value {
    let fields = patterns.enumerate();
    let fields =
        fields.map(|(index, pattern)| (format!("f{index}"), json!({"type": "string", "pattern": pattern})));
    prepared(with_schema(&spec_schema(&Value::Object(fields.collect()))))
}

/// The definition of OpenShift's ingresses has such a pattern three times, and others.
#[test]
fn patterns_of_international_host_names_are_accepted() {
    let patterns =
        [host_names("a"), host_names("a"), "^[a-z]+$".to_owned(), host_names("b"), host_names("a")];
    let definition = with_patterns(patterns.into_iter());
    assert_eq!(validate_create(&definition), []);
    let version = version(&definition);
    for (name, is_valid) in
        [("apps.example.com", true), ("приложения.пример.рф", true), ("-", false), ("a_b.example", false)]
    {
        let problems = version.validate(&widget(&json!({"f0": name})), None);
        assert_eq!(problems.is_empty(), is_valid, "{name}: {problems:?}");
    }
}

/// All patterns count together: each of these would be accepted alone.
#[test]
fn patterns_are_refused_that_would_take_too_much_memory_together() {
    let definition = with_patterns((0..100).map(|index| host_names(&index.to_string())));
    assert_eq!(
        texts(&validate_create(&definition)),
        [
            "spec.versions: Forbidden: the patterns of all schemas take more than 48 MiB when they are compiled: \
            shorten them or repeat less"
        ]
    );
    let one = with_patterns([r"(\pL{30}){30}".to_owned()].into_iter());
    let found = texts(&validate_create(&one));
    assert!(found[0].ends_with("Compiled regex exceeds size limit of 50331648 bytes."), "{found:?}");
}
