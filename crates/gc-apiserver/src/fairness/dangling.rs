//! The condition of a flow schema that reports whether its priority level exists.

use serde_json::{Value, json};

/// Returns the names and new statuses of the schemas whose condition is out of date.
pub(crate) fn changed(schemas: &[Value], levels: &[Value], now: jiff::Timestamp) -> Vec<(String, Value)> {
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let levels: Vec<String> = levels.iter().map(name).collect();
    let mut changed = Vec::new();
    for schema in schemas {
        let level = schema["spec"]["priorityLevelConfiguration"]["name"].as_str().unwrap_or_default();
        let mut wanted = condition(level, levels.iter().any(|known| known == level));
        let known = schema["status"]["conditions"].as_array().into_iter().flatten();
        let known = known.into_iter().find(|condition| condition["type"] == "Dangling");
        let is_same = |key: &&str| known.is_some_and(|known| known[*key] == wanted[*key]);
        if ["status", "reason", "message"].iter().all(is_same) {
            continue;
        }
        let since = known.filter(|known| known["status"] == wanted["status"]);
        wanted["lastTransitionTime"] = match since.map(|known| &known["lastTransitionTime"]) {
            Some(since) if since.is_string() => since.clone(),
            _ => now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into(),
        };
        changed.push((name(schema), json!({"conditions": [wanted]})));
    }
    changed
}

fn condition(level: &str, is_there: bool) -> Value {
    let what = format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?}");
    let (status, reason, message) = if is_there {
        ("False", "Found", format!("{what} and it exists"))
    } else {
        ("True", "NotFound", format!("{what} but there is no such object"))
    };
    json!({"type": "Dangling", "status": status, "reason": reason, "message": message})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_says_whether_its_level_is_there() {
        let schema = |conditions: Value| {
            json!({
                "metadata": {"name": "s"}, "spec": {"priorityLevelConfiguration": {"name": "p"}},
                "status": {"conditions": conditions},
            })
        };
        let now = "2026-01-02T03:04:05Z".parse().expect("a time");
        let found = json!({
            "type": "Dangling", "status": "False", "reason": "Found", "lastTransitionTime": "2026-01-02T03:04:05Z",
            "message": "This FlowSchema references the PriorityLevelConfiguration object named \"p\" and it exists",
        });
        let missing = json!({
            "type": "Dangling", "status": "True", "reason": "NotFound", "lastTransitionTime": "2026-01-02T03:04:05Z",
            "message": "This FlowSchema references the PriorityLevelConfiguration object named \"p\" but there is no \
                        such object",
        });
        let level = [json!({"metadata": {"name": "p"}})];
        for (levels, before, wanted) in [
            (&level[..], Value::Null, Some(&found)),
            (&level[..], json!([found]), None),
            (&[], json!([found]), Some(&missing)),
            (&[], json!([missing]), None),
        ] {
            let wanted: Vec<_> =
                wanted.map(|wanted| ("s".to_owned(), json!({"conditions": [wanted]}))).into_iter().collect();
            assert_eq!(changed(&[schema(before)], levels, now), wanted);
        }
    }
}
