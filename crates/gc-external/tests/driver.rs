//! Tests the client against a driver whose volumes are directories, and which misbehaves on request.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

#[path = "support/driver.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "shared with the tests of kubegc")]
mod driver;
#[path = "../../gc-cri/tests/support/grpc.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "shared with the tests of gc-cri and kubegc")]
mod grpc;

use std::collections::HashMap;
use std::time::Duration;

use driver::{Driver, Mood};
use gc_external::csi::{CsiClient, DriverEndpoint, DriverVolume, Options};

const NAME: &str = "disk.example.com";

fn client(driver: &Driver, call_timeout: Duration) -> CsiClient {
    CsiClient::new(DriverEndpoint::parse(&driver.endpoint()).unwrap(), Options { call_timeout })
}

fn patient(driver: &Driver) -> CsiClient {
    client(driver, Duration::from_secs(20))
}

#[tokio::test]
async fn a_volume_is_deleted_with_its_secrets_and_once_more_without_harm() {
    let driver = Driver::start(NAME);
    driver.make_volume("v1");
    driver.make_volume("v2");
    let client = patient(&driver);
    let secrets = HashMap::from([("user".to_owned(), "me".to_owned())]);
    client.delete_volume("v1", secrets.clone()).await.unwrap();
    assert!(!driver.has_volume("v1") && driver.has_volume("v2"));
    client.delete_volume("v1", HashMap::new()).await.unwrap();
    let asked = driver.state().deletions.clone();
    assert_eq!(asked, [("v1".to_owned(), secrets), ("v1".to_owned(), HashMap::new())]);
}

#[tokio::test]
async fn failures_are_reported_and_a_wrong_driver_gets_no_request() {
    let driver = Driver::start(NAME);
    driver.make_volume("v");
    let client = client(&driver, Duration::from_secs(2));
    for (mood, expected, asked) in [
        (
            Mood::Fails(14, "the array is rebooting".into()),
            "DeleteVolume: rpc error: code = Unavailable desc = the array is rebooting",
            1,
        ),
        (
            Mood::Fails(9, "in use".into()),
            "DeleteVolume: rpc error: code = FailedPrecondition desc = in use",
            1,
        ),
        (
            Mood::Named("other.example.com".into()),
            "calls itself \"other.example.com\", not \"disk.example.com\"",
            0,
        ),
        (Mood::NotReady, "CSI driver disk.example.com is not ready", 0),
        (Mood::NoController, "does not advertise the controller service", 0),
        (Mood::NoDeletion, "does not advertise CREATE_DELETE_VOLUME", 0),
        (Mood::Garbage, "GetPluginInfo: rpc error: code = Internal", 0),
        (Mood::Silent, "GetPluginInfo: rpc error: code = DeadlineExceeded desc = no answer within 2s", 0),
    ] {
        driver.be(mood.clone());
        driver.state().deletions.clear();
        let error = client.delete_volume("v", HashMap::new()).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{mood:?}: {error}");
        assert_eq!(error.is_in_use(), matches!(mood, Mood::Fails(9, _)), "{mood:?}");
        assert_eq!(driver.state().deletions.len(), asked, "{mood:?}");
        assert!(driver.has_volume("v"), "{mood:?}");
    }
}

#[tokio::test]
async fn volumes_are_listed_over_all_pages_with_their_sizes() {
    let driver = Driver::start(NAME);
    let client = patient(&driver);
    assert_eq!(client.list_volumes().await.unwrap(), []);
    for name in ["a", "b", "c", "d", "e"] {
        driver.make_volume(name);
    }
    driver.state().sizes.insert("b".to_owned(), (1 << 30, vec!["node-1".to_owned()]));
    driver.state().sizes.insert("c".to_owned(), (-1, Vec::new()));
    let listed = client.list_volumes().await.unwrap();
    let of = |handle: &str, bytes, nodes: &[&str]| DriverVolume {
        handle: handle.to_owned(),
        bytes,
        nodes: nodes.iter().map(ToString::to_string).collect(),
    };
    let expected = [
        of("a", None, &[]),
        of("b", Some(1 << 30), &["node-1"]),
        of("c", None, &[]),
        of("d", None, &[]),
        of("e", None, &[]),
    ];
    assert_eq!(listed, expected);
    for (mood, part) in [
        (Mood::NoLists, "does not advertise LIST_VOLUMES"),
        (Mood::NoController, "does not advertise the controller service"),
        (Mood::Named("other.example.com".into()), "calls itself \"other.example.com\""),
        (Mood::NotReady, "is not ready"),
        (Mood::Circle, "leads to a page that it has shown"),
        (Mood::Garbage, "rpc error"),
    ] {
        driver.be(mood.clone());
        let error = client.list_volumes().await.unwrap_err().to_string();
        assert!(error.contains(part), "{mood:?}: {error}");
    }
    assert!(driver.state().deletions.is_empty());
}

#[tokio::test]
async fn a_driver_that_is_away_is_found_again() {
    let mut driver = Driver::start(NAME);
    driver.make_volume("v");
    let client = patient(&driver);
    driver.stop();
    let error = client.delete_volume("v", HashMap::new()).await.unwrap_err().to_string();
    assert!(error.starts_with("cannot reach CSI driver disk.example.com at unix:///"), "{error}");
    driver.listen();
    // The connection of the first call may still have to time out.
    for _ in 0..3 {
        if client.delete_volume("v", HashMap::new()).await.is_ok() {
            break;
        }
    }
    assert!(!driver.has_volume("v"));
}
