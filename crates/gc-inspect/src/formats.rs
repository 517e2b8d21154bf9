//! Findings in the formats of other programs: SARIF for code scanning, JUnit for test reports.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use gc_explain::lint::argument;
use serde_json::{Value, json};

use super::doctor::{Finding, State};

/// Formats problems as SARIF 2.1.0.
#[must_use]
pub fn sarif(findings: &[Finding]) -> Vec<u8> {
    let found: Vec<&Finding> = findings.iter().filter(|finding| finding.state != State::Fine).collect();
    let checks: BTreeSet<&str> = found.iter().map(|finding| finding.check).collect();
    let rules: Vec<Value> =
        checks.into_iter().map(|check| json!({"id": check, "shortDescription": {"text": check}})).collect();
    let results: Vec<Value> = found
        .into_iter()
        .map(|finding| {
            let level = if finding.state == State::Wrong { "error" } else { "warning" };
            let locations: Vec<Value> = finding
                .objects
                .iter()
                .map(|place| json!({"logicalLocations": [{"fullyQualifiedName": argument(place), "kind": "resource"}]}))
                .collect();
            let advice = finding.advice.as_ref().map(|advice| format!(" ({advice})")).unwrap_or_default();
            json!({
                "ruleId": finding.check, "level": level, "message": {"text": format!("{}{advice}", finding.message)},
                "locations": locations, "partialFingerprints": {"kubegcId/v1": finding.id},
            })
        })
        .collect();
    let document = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {"name": "kubegc", "version": env!("CARGO_PKG_VERSION"), "rules": rules}},
            "results": results,
        }],
    });
    let mut text = format!("{document:#}").into_bytes();
    text.push(b'\n');
    text
}

/// Formats findings as JUnit test cases; those that are wrong have failed.
#[must_use]
pub fn junit(findings: &[Finding]) -> Vec<u8> {
    let failures = findings.iter().filter(|finding| finding.state == State::Wrong).count();
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(
        text,
        "<testsuites>\n  <testsuite name=\"kubegc doctor\" tests=\"{}\" failures=\"{failures}\">",
        findings.len()
    );
    for finding in findings {
        let (class, name) = (escaped(finding.check), escaped(&finding.id));
        let (message, advice) =
            (escaped(&finding.message), escaped(finding.advice.as_deref().unwrap_or_default()));
        let content = match finding.state {
            State::Wrong => format!("<failure message=\"{message}\">{advice}</failure>"),
            State::Notice => format!("<system-out>notice: {message} {advice}</system-out>"),
            State::Fine => format!("<system-out>{message}</system-out>"),
        };
        let _ = writeln!(text, "    <testcase classname=\"{class}\" name=\"{name}\">{content}</testcase>");
    }
    text.push_str("  </testsuite>\n</testsuites>\n");
    text.into_bytes()
}

/// Escapes text for XML, which does not allow control characters.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(' '),
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;
    use crate::doctor::tests::sick;

    #[test]
    fn findings_are_written_for_other_programs() {
        let findings = sick();
        let document: Value = serde_json::from_slice(&sarif(&findings)).unwrap();
        let results = document["runs"][0]["results"].as_array().unwrap();
        let shown: Vec<(&str, &str, &str)> = results
            .iter()
            .map(|result| {
                let text =
                    |pointer: &str| result.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
                (text("/ruleId"), text("/level"), text("/partialFingerprints/kubegcId~1v1"))
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("pause", "error", "pause"),
                ("DanglingReference", "warning", "DanglingReference/ReplicaSet.apps/v1")
            ]
        );
        assert_eq!(
            results[1]["locations"][0]["logicalLocations"][0]["fullyQualifiedName"],
            "pods/web-1 -n shop"
        );
        let text = String::from_utf8(junit(&findings)).unwrap();
        assert!(text.contains("failures=\"1\""), "{text}");
        assert!(
            text.contains(
                "<testcase classname=\"pause\" name=\"pause\"><failure message=\"everything is paused (&lt;me&gt; &amp; co)\">\
                 `kubegc resume` resumes it</failure></testcase>"
            ),
            "{text}"
        );
        assert_eq!(escaped("a\u{1b}[1m\n"), "a\u{fffd}[1m ");
    }
}
