#![allow(clippy::unwrap_used, reason = "a test may panic")]

use super::*;

const NODE: &str = r#"{"kind":"Node","metadata":{"name":"n","uid":"u","resourceVersion":"7","labels":null},
    "spec":{"podCIDR":"10.0.0.0/24"},"status":{"conditions":[{"type":"Ready","status":"True"}]}}"#;

#[test]
fn lines_of_a_watch_are_distinguished() {
    let node = Facts::read(Kind::Node, NODE.as_bytes()).unwrap();
    for (line, expected) in [
        (format!(r#"{{"type":"ADDED","object":{NODE}}}"#), (FactsEvent::Present(node.clone()), "7")),
        (format!(r#"{{"type":"MODIFIED","object":{NODE}}}"#), (FactsEvent::Present(node.clone()), "7")),
        (format!(r#"{{"type":"DELETED","object":{NODE}}}"#), (FactsEvent::Deleted(node.clone()), "7")),
        (
            r#"{"type":"BOOKMARK","object":{"kind":"Node","metadata":{"resourceVersion":"9"},"status":{}}}"#.into(),
            (FactsEvent::Bookmark("9".into()), "9"),
        ),
        (
            r#"{"type":"ERROR","object":{"kind":"Status","metadata":{},"status":"Failure","code":410,"message":"old"}}"#
                .into(),
            (FactsEvent::Error { code: 410, message: "old".into() }, ""),
        ),
        (format!(r#"{{"type":"NEW","object":{NODE}}}"#), (FactsEvent::Unknown, "")),
    ] {
        let (event, version) = FactsEvent::read(Kind::Node, line.as_bytes()).unwrap();
        assert_eq!((event, version.as_str()), expected, "{line}");
    }
    for broken in ["{", r#"{"type":"MODIFIED","object":{"metadata":{"name":5}}}"#, r#"{"type":"DELETED"}"#] {
        assert!(FactsEvent::read(Kind::Node, broken.as_bytes()).is_err(), "{broken}");
    }
}

#[test]
fn pages_are_read_whole() {
    let json = format!(
        r#"{{"kind":"NodeList","apiVersion":"v1","metadata":{{"resourceVersion":"8","continue":"c"}},"items":[{NODE}]}}"#
    );
    let page = FactsPage::read(Kind::Node, json.as_bytes()).unwrap();
    let node = Facts::read(Kind::Node, NODE.as_bytes()).unwrap();
    let expected = FactsPage { resource_version: "8".into(), continue_token: "c".into(), items: vec![node] };
    assert_eq!(page, expected);
    let metadata = br#"{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1",
        "metadata":{"resourceVersion":"8"},"items":null}"#;
    assert_eq!(FactsPage::read(Kind::Job, metadata).unwrap().items, []);
}

/// A response that is not the requested list must not be read as an empty list.
#[test]
fn what_is_not_the_list_is_an_error() {
    for (body, is_list) in [
        (r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"8"},"items":[]}"#, true),
        (r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"8"},"items":null}"#, true),
        ("", false),
        ("null", false),
        ("[]", false),
        ("{}", false),
        ("<html></html>", false),
        (r#"{"items":[]}"#, false),
        (r#"{"items":null}"#, false),
        (r#"{"metadata":{"resourceVersion":"8"},"items":[]}"#, false),
        (r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"8"}}"#, false),
        (r#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}"#, false),
        (r#"{"kind":"PodList","apiVersion":"v1","items":[]}"#, false),
        (r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"8"},"items":[{}]}"#, false),
        (r#"{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"8"},"items":[]}"#, false),
        (r#"{"kind":"PodList","apiVersion":"x/v1","metadata":{"resourceVersion":"8"},"items":[]}"#, false),
        (r#"{"kind":"Status","apiVersion":"v1","metadata":{"resourceVersion":"8"},"items":[]}"#, false),
        (r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"8"}}"#, false),
    ] {
        assert_eq!(FactsPage::read(Kind::Pod, body.as_bytes()).is_ok(), is_list, "{body}");
    }
}
