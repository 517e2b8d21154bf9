//! API documents that passes over namespaces read and write.

use gc_types::Timestamp;
use serde_json::{Value, json};

use super::Condition;
use super::emptying::{Item, View};

/// Formats a time as the API writes it.
fn time_text(time: Timestamp) -> String {
    let time = jiff::Timestamp::from_millisecond(time.0).unwrap_or_default();
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Parses a namespace from the server's response at that time.
#[must_use]
pub fn view(namespace: &Value, now: Timestamp) -> View {
    let metadata = &namespace["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let deleted_at = metadata["deletionTimestamp"].as_str().map(str::to_owned);
    let terminating_seconds = deleted_at
        .as_deref()
        .and_then(|at| at.parse::<jiff::Timestamp>().ok())
        .map(|at| now.0.div_euclid(1000) - at.as_second())
        .unwrap_or_default();
    View {
        uid: text(&metadata["uid"]),
        resource_version: text(&metadata["resourceVersion"]),
        deleted_at,
        terminating_seconds,
        finalizers: texts(&namespace["spec"]["finalizers"]),
        says_terminating: namespace["status"]["phase"] == "Terminating",
        conditions: conditions(namespace),
        read_at: time_text(now),
    }
}

/// Parses the metadata of an object in a list.
#[must_use]
pub fn item(object: &Value) -> Item {
    let metadata = &object["metadata"];
    let text = |field: &str| metadata[field].as_str().map(str::to_owned);
    Item {
        name: text("name").unwrap_or_default(),
        uid: text("uid"),
        resource_version: text("resourceVersion").unwrap_or_default(),
        deleting: !metadata["deletionTimestamp"].is_null(),
        finalizers: texts(&metadata["finalizers"]),
        grace_seconds: metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or_default(),
    }
}

/// Returns the namespace with these conditions and the phase `Terminating`, to be written through `status`.
#[must_use]
pub fn with_status(namespace: &Value, conditions: &[Condition]) -> Value {
    let mut written = namespace.clone();
    let status = part(&mut written, "status");
    status["phase"] = "Terminating".into();
    status["conditions"] = conditions.iter().map(condition_value).collect();
    written
}

/// Returns the namespace with these `spec.finalizers`, to be written through `finalize`.
#[must_use]
pub fn with_finalizers(namespace: &Value, left: &[String]) -> Value {
    let mut written = namespace.clone();
    part(&mut written, "spec")["finalizers"] = left.into();
    written
}

/// Returns a part of a document, created as an object if it is missing.
fn part<'a>(document: &'a mut Value, name: &str) -> &'a mut Value {
    let object = |value: &mut Value| {
        if !value.is_object() {
            *value = json!({});
        }
    };
    object(document);
    object(&mut document[name]);
    &mut document[name]
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn conditions(namespace: &Value) -> Vec<Condition> {
    let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let list = namespace["status"]["conditions"].as_array();
    list.into_iter()
        .flatten()
        .map(|value| Condition {
            kind: text(value, "type"),
            status: text(value, "status"),
            reason: text(value, "reason"),
            message: text(value, "message"),
            last_transition_time: text(value, "lastTransitionTime"),
        })
        .collect()
}

fn condition_value(condition: &Condition) -> Value {
    json!({
        "type": condition.kind, "status": condition.status, "reason": condition.reason,
        "message": condition.message, "lastTransitionTime": condition.last_transition_time,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_was_read_with_that_one_change() {
        let namespace = json!({
            "metadata": {"name": "n", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"},
                "deletionTimestamp": "2026-11-22T10:00:00Z"},
            "spec": {"finalizers": ["kubernetes", "example.com/x"]},
            "status": {"phase": "Active", "conditions": [
                {"type": "T", "status": "True", "reason": "R", "message": "M", "lastTransitionTime": "then"}]},
        });
        let now = Timestamp(
            "2026-11-22T10:00:42.9Z".parse::<jiff::Timestamp>().unwrap_or_default().as_millisecond(),
        );
        let expected = View {
            uid: "u".into(),
            resource_version: "7".into(),
            deleted_at: Some("2026-11-22T10:00:00Z".into()),
            terminating_seconds: 42,
            finalizers: vec!["kubernetes".into(), "example.com/x".into()],
            says_terminating: false,
            conditions: vec![Condition {
                kind: "T".into(),
                status: "True".into(),
                reason: "R".into(),
                message: "M".into(),
                last_transition_time: "then".into(),
            }],
            read_at: "2026-11-22T10:00:42Z".into(),
        };
        assert_eq!(view(&namespace, now), expected);
        let said = with_status(&namespace, &expected.conditions);
        assert_eq!(view(&said, now), View { says_terminating: true, ..expected.clone() });
        assert_eq!(said["metadata"], namespace["metadata"]);
        let finalized = with_finalizers(&namespace, &["example.com/x".into()]);
        assert_eq!(view(&finalized, now), View { finalizers: vec!["example.com/x".into()], ..expected });
        assert_eq!(finalized["status"], namespace["status"]);
    }

    #[test]
    fn nonsense_reads_as_nothing() {
        for nonsense in [json!(null), json!([]), json!({"metadata": 1, "spec": "x", "status": [1]})] {
            let expected = View { read_at: "1970-01-01T00:00:00Z".into(), ..View::default() };
            assert_eq!(view(&nonsense, Timestamp(0)), expected);
            assert_eq!(item(&nonsense), Item::default());
            assert!(view(&with_status(&nonsense, &[]), Timestamp(0)).says_terminating);
            let finalized = with_finalizers(&nonsense, &["a".into()]);
            assert_eq!(view(&finalized, Timestamp(0)).finalizers, ["a"]);
        }
    }

    #[test]
    fn an_object_of_a_list_is_read_whole() {
        let object = json!({"metadata": {"name": "p", "uid": "u", "resourceVersion": "7", "finalizers": ["a/b", "c"],
            "deletionTimestamp": "2026-11-22T10:00:00Z", "deletionGracePeriodSeconds": 30}});
        let expected = Item {
            name: "p".into(),
            uid: Some("u".into()),
            resource_version: "7".into(),
            deleting: true,
            finalizers: vec!["a/b".into(), "c".into()],
            grace_seconds: 30,
        };
        assert_eq!(item(&object), expected);
    }
}
