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

/// What a list does not contain is gone when it ends, and not before.
#[test]
fn a_cache_forgets_what_a_list_lacks() {
    let named = |name: &str| {
        let object = format!(r#"{{"metadata":{{"name":"{name}","uid":"u"}}}}"#);
        serde_json::from_str::<crate::objects::Node>(&object).unwrap()
    };
    let key = |name: &str| Kind::Node.key(&"".into(), &name.into());
    for names_them in [true, false] {
        let mut cache = crate::objects::Cache::new(Kind::Node);
        assert!(!cache.synced());
        cache.list_started();
        for name in ["a", "b", "c"] {
            assert_eq!(cache.put(named(name)), (key(name), None));
        }
        assert_eq!((cache.list_ended(), cache.synced()), (vec![], true));
        cache.list_started();
        assert_eq!(cache.put(named("b")), (key("b"), Some(named("b"))));
        assert_eq!((cache.len(), cache.synced()), (3, true));
        if names_them {
            assert_eq!(cache.list_ended(), [key("a"), key("c")]);
        } else {
            cache.forget_unlisted();
            assert_eq!(cache.keys().collect::<Vec<_>>(), [&key("b")]);
        }
    }
}

#[test]
fn a_kind_is_looked_for_in_every_version() {
    let versions =
        |kind: Kind| kind.infos().iter().map(|info| info.gvr.version.to_string()).collect::<Vec<_>>();
    assert_eq!(versions(Kind::PodCertificate), ["v1", "v1beta1"]);
    assert_eq!(versions(Kind::LeaseCandidate), ["v1beta1"]);
    assert_eq!(versions(Kind::Pod), ["v1"]);
}

/// The zero time of Go means that there is none.
#[test]
fn times_begin_after_the_year_one() {
    let read = |text: &str| crate::objects::parse_time(Some(text)).map(|time| time.0);
    assert_eq!(read("0001-01-01T00:00:00Z"), None);
    assert_eq!(read("0001-01-01T00:00:01Z"), Some(-62_135_596_799_000));
    assert_eq!((read("soon"), crate::objects::parse_time(None)), (None, None));
}

#[test]
fn the_secret_of_a_volume_is_in_two_annotations() {
    let object = br#"{"metadata":{"name":"v","annotations":{
        "volume.kubernetes.io/provisioner-deletion-secret-name":"n",
        "volume.kubernetes.io/provisioner-deletion-secret-namespace":"ns"}}}"#;
    let Facts::Volume(volume) = Facts::read(Kind::Volume, object).unwrap() else { panic!() };
    assert_eq!(volume.secret, (Some("n".into()), Some("ns".into())));
}

/// Only these phases mean that a pod has not finished.
#[test]
fn a_pod_may_be_unfinished_in_three_phases() {
    let finished = |phase: &str| {
        let object = format!(r#"{{"metadata":{{"name":"p"}},"status":{{"phase":"{phase}"}}}}"#);
        let Facts::Pod(pod) = Facts::read(Kind::Pod, object.as_bytes()).unwrap() else { panic!() };
        pod.phase.finished()
    };
    let phases = ["Pending", "Running", "Unknown", "Succeeded", "Failed", "Odd"];
    assert_eq!(phases.map(finished), [false, false, false, true, true, true]);
}
