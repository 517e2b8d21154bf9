//! Tests the client against a runtime that misbehaves on request: lists too long for one message, streams that break, old protocol
//! versions, silence, restarts.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

#[path = "support/fake.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "shared with the tests of kubegc")]
mod fake;
#[path = "support/grpc.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "shared with the tests of gc-external and kubegc")]
mod grpc;
#[path = "support/messages.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "shared with the tests of kubegc")]
mod messages;

use std::collections::BTreeSet;
use std::time::Duration;

use fake::{Answer, Fake, code, container, image, image_id, sandbox};
use futures::StreamExt as _;
use gc_collectors::containers::{ContainerId, SandboxId};
use gc_collectors::images::ImageId;
use gc_collectors::images::usage::{ImageIndex, usage};
use gc_cri::{ContainerEventKind, CriClient, CriError, Endpoint, Options};
use messages as cri;
use prost::Message as _;

async fn connect(fake: &Fake) -> CriClient {
    try_connect(fake).await.unwrap()
}

async fn try_connect(fake: &Fake) -> Result<CriClient, CriError> {
    let options = Options { request_timeout: Duration::from_secs(20), ..Default::default() };
    let endpoint = Endpoint::parse(&fake.endpoint()).unwrap();
    CriClient::connect(endpoint, options).await.map(|(client, _)| client)
}

fn populate(fake: &Fake, pods: usize, containers_each: u32) {
    let mut state = fake.state();
    for pod in (0..pods).map(|n| format!("pod-{n}")) {
        state.sandboxes.push(sandbox(&pod, i32::from(pod.ends_with('1'))));
        let each = (0..containers_each).map(|n| container(&pod, "c", n, i32::try_from(n % 4).unwrap(), 1));
        state.containers.extend(each);
    }
}

async fn list(client: &CriClient) -> Result<(BTreeSet<String>, BTreeSet<String>), CriError> {
    let sandboxes = client.sandboxes().await?;
    let containers = client.containers(&sandboxes).await?;
    let ids = |list: Vec<&str>| list.into_iter().map(String::from).collect();
    Ok((
        ids(sandboxes.iter().map(|one| one.id.as_str()).collect()),
        ids(containers.iter().map(|one| one.container.id.as_str()).collect()),
    ))
}

fn expected(fake: &Fake) -> (BTreeSet<String>, BTreeSet<String>) {
    let state = fake.state();
    (
        state.sandboxes.iter().map(|one| one.id.clone()).collect(),
        state.containers.iter().map(|one| one.id.clone()).collect(),
    )
}

/// T144: a list that does not fit into one message is requested in parts, which together are complete.
#[tokio::test]
async fn lists_too_long_for_one_message_are_asked_for_in_parts() {
    let fake = Fake::start();
    populate(&fake, 10, 12);
    let client = connect(&fake).await;
    let one = fake.state().containers[0].encoded_len() + 8;
    // (limit in containers, requests): all at once, by state, by state and sandbox.
    for (limit, calls) in [(1000, 1), (40, 1 + 4), (10, 1 + 4 + 4 * 10)] {
        fake.state().send_limit = one * limit;
        fake.state().calls.clear();
        assert_eq!(list(&client).await.unwrap(), expected(&fake), "limit {limit}");
        assert_eq!(fake.state().called("ListContainers").len(), calls, "limit {limit}");
    }
    // Sandboxes by state.
    let one = fake.state().sandboxes[0].encoded_len() + 8;
    fake.state().send_limit = one * 9;
    assert_eq!(client.sandboxes().await.unwrap().len(), 10);
    // A list that still does not fit is an error, never a part.
    fake.state().send_limit = one;
    assert!(matches!(client.sandboxes().await, Err(CriError::TooLarge { call: "ListPodSandbox", .. })));
    assert!(
        matches!(client.containers(&[]).await, Ok(list) if list.is_empty()) || list(&client).await.is_err()
    );
}

/// T144: CRI-O sends messages far over gRPC's own limit of 4 MiB.
#[tokio::test]
async fn an_answer_of_twenty_mebibytes_is_read() {
    let fake = Fake::start();
    {
        let mut state = fake.state();
        for number in 0..20_000 {
            let mut one = image(number, 1);
            one.repo_tags = vec![format!("registry.example/{number}:{}", "x".repeat(1000))];
            state.images.push(one);
        }
        let listed = cri::ListImagesResponse { images: state.images.clone() };
        assert!(listed.encoded_len() > 20 << 20);
    }
    assert_eq!(connect(&fake).await.images().await.unwrap().images.len(), 20_000);
}

/// T145: a runtime without streams is asked for them only once.
#[tokio::test]
async fn streams_are_used_where_they_are_and_asked_for_once_where_they_are_not() {
    let mut fake = Fake::start();
    populate(&fake, 3, 40);
    fake.state().images = (0..100).map(|n| image(n, 1)).collect();
    let client = connect(&fake).await;
    for _ in 0..2 {
        assert_eq!(list(&client).await.unwrap(), expected(&fake));
        assert_eq!(client.images().await.unwrap().images.len(), 100);
    }
    let count = |fake: &Fake, start: &str| {
        fake.state().calls.iter().filter(|(method, _)| method.starts_with(start)).count()
    };
    assert_eq!((count(&fake, "Stream"), count(&fake, "List")), (1, 6));
    // A runtime that comes back may be a newer one.
    fake.stop();
    assert!(client.images().await.unwrap_err().is_outage());
    fake.state().stream_chunk = Some(7);
    fake.state().calls.clear();
    fake.listen();
    assert_eq!(list(&client).await.unwrap(), expected(&fake));
    assert_eq!(client.images().await.unwrap().images.len(), 100);
    assert_eq!((count(&fake, "Stream"), count(&fake, "List")), (3, 0));
}

/// T146: messages before the break are not used.
#[tokio::test]
async fn a_broken_stream_is_an_error() {
    let fake = Fake::start();
    fake.state().rule(|_, method, _| {
        let part = cri::ListImagesResponse { images: (0..3000).map(|n| image(n, 1)).collect() };
        (method == "StreamImages").then(|| Answer::Broken(vec![part.encode_to_vec()]))
    });
    let client = connect(&fake).await;
    let error = client.images().await.unwrap_err().to_string();
    assert!(error.starts_with("StreamImages: "), "{error}");
    assert!(fake.state().called("ListImages").is_empty(), "no other way is tried behind its back");
}

/// T149: the failures of the handshake are distinguished.
#[tokio::test]
async fn what_is_not_cri_v1_is_refused_with_the_reason() {
    let fake = Fake::start();
    fake.state().api = "runtime.v1alpha2.";
    let error = try_connect(&fake).await.unwrap_err();
    assert!(
        matches!(&error, CriError::NotCri { why, .. } if why.contains("v1alpha2 alone is not enough")),
        "{error}"
    );
    fake.state().api = "runtime.v1.";
    let whole = cri::Version {
        version: "0.1.0".into(),
        runtime_name: "fake".into(),
        runtime_version: "1".into(),
        runtime_api_version: "v1".into(),
    };
    for wrong in [
        cri::Version { version: "0.2.0".into(), ..whole.clone() },
        cri::Version { runtime_name: String::new(), ..whole.clone() },
        cri::Version { runtime_version: String::new(), ..whole.clone() },
        cri::Version { runtime_api_version: String::new(), ..whole.clone() },
    ] {
        fake.state().rule(move |_, method, _| (method == "Version").then(|| Answer::one(&wrong)));
        assert!(matches!(try_connect(&fake).await, Err(CriError::NotCri { .. })));
    }
    // A runtime that is still starting is not taken for something else.
    fake.state().rule(|_, _, _| Some(Answer::failure(code::UNAVAILABLE, "server is not initialized yet")));
    assert!(matches!(try_connect(&fake).await, Err(CriError::Unavailable { .. })));
    // A socket of another service.
    let path = fake.folder().join("other.sock");
    let other = tokio::net::UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = other.accept().await {
            let _ =
                tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let endpoint = Endpoint::parse(path.to_str().unwrap()).unwrap();
    let error = CriClient::connect(endpoint, Options::default()).await.unwrap_err();
    assert!(matches!(error, CriError::NotCri { .. }), "{error}");
    let endpoint = Endpoint::parse(fake.folder().join("absent.sock").to_str().unwrap()).unwrap();
    assert!(matches!(
        CriClient::connect(endpoint, Options::default()).await,
        Err(CriError::Unreachable { .. })
    ));
}

/// T150.
#[tokio::test]
async fn the_runtime_says_whether_it_is_ready() {
    let fake = Fake::start();
    let client = connect(&fake).await;
    assert!(client.is_ready().await.unwrap());
    fake.state().ready = false;
    assert!(!client.is_ready().await.unwrap());
    fake.state().rule(|_, method, _| {
        (method == "Status").then(|| Answer::one(&cri::StatusResponse { status: None }))
    });
    assert!(!client.is_ready().await.unwrap());
}

/// T19, T21 to T23: every spelling that runtimes use for the image of a container, through the client.
#[tokio::test]
async fn every_spelling_of_an_image_counts_as_use() {
    let fake = Fake::start();
    let digits = image_id(1).trim_start_matches("sha256:").to_owned();
    let bare = cri::ImageSpec::default();
    let named = |text: &str| cri::ImageSpec { image: text.into() };
    let digest = image(1, 1).repo_digests[0].clone();
    let cases = [
        ("the identifier", named("user/text"), String::new(), image_id(1)),
        ("a reference that is the identifier", bare.clone(), image_id(1), String::new()),
        ("CRI-O's reference, a repo digest", bare.clone(), digest.clone(), String::new()),
        ("the digest in the specification", named(&digest), String::new(), String::new()),
        ("a tag", named("registry.example/image-1:v1"), String::new(), String::new()),
        ("bare digits", bare, digits, String::new()),
    ];
    let client = connect(&fake).await;
    fake.state().images = vec![image(1, 1), image(2, 1)];
    for (case, spec, image_ref, id) in cases {
        let mut one = container("pod", "c", 0, 2, 9);
        (one.image, one.image_ref, one.image_id) = (Some(spec), image_ref, id);
        fake.state().containers = vec![one];
        let listed = client.images().await.unwrap().images;
        let containers: Vec<_> =
            client.containers(&[]).await.unwrap().into_iter().map(|one| one.images).collect();
        let found = usage(&ImageIndex::new(&listed), &containers, &[]);
        assert_eq!(found.in_use, [ImageId::new(&image_id(1)).unwrap()].into(), "{case}");
        assert!(found.unreadable.is_empty(), "{case}");
    }
}

/// T27: a container that is not understood may use any image.
#[tokio::test]
async fn a_container_that_lacks_a_part_names_no_image() {
    let fake = Fake::start();
    let client = connect(&fake).await;
    let whole = container("pod", "c", 0, 2, 1);
    for broken in
        [cri::Container { metadata: None, ..whole.clone() }, cri::Container { image: None, ..whole.clone() }]
    {
        fake.state().containers = vec![broken];
        let listed = client.containers(&[]).await.unwrap();
        assert!(listed[0].images.references.is_empty());
    }
    fake.state().containers = vec![cri::Container { id: String::new(), ..whole }];
    assert!(matches!(client.containers(&[]).await, Err(CriError::Malformed { call: "ListContainers", .. })));
}

/// T143: an image without a full identifier is never named to the runtime.
#[tokio::test]
async fn images_without_a_full_identifier_are_left_out() {
    let fake = Fake::start();
    let with = |id: &str| cri::Image { id: id.into(), ..image(1, 1) };
    fake.state().images = vec![image(1, 1), with(""), with("sha256:12ab"), with("12ab")];
    let listed = connect(&fake).await.images().await.unwrap();
    assert_eq!((listed.images.len(), listed.without_identifier), (1, 3));
}

/// T147: a timeout is an outage; the next listing shows the outcome.
#[tokio::test]
async fn silence_ends_with_the_limit() {
    let fake = Fake::start();
    fake.state().rule(|_, method, _| (method != "Version").then_some(Answer::Silence));
    let options = Options { request_timeout: Duration::from_millis(200), ..Default::default() };
    let endpoint = Endpoint::parse(&fake.endpoint()).unwrap();
    let (client, _) = CriClient::connect(endpoint, options).await.unwrap();
    let image = ImageId::new(&image_id(1)).unwrap();
    for error in [
        client.images().await.unwrap_err(),
        client.remove_image(&image, "").await.unwrap_err(),
        client.is_ready().await.unwrap_err(),
    ] {
        assert!(matches!(error, CriError::Timeout { .. }) && error.is_outage(), "{error}");
    }
}

/// T25, T86, T87, T110 and T139: removing an absent object succeeds, and a sandbox that does not stop is not removed.
#[tokio::test]
async fn removals_take_absence_for_success() {
    let fake = Fake::start();
    let client = connect(&fake).await;
    fake.state().rule(|_, method, _| {
        let removal = method.starts_with("Remove") || method.starts_with("Stop");
        removal.then(|| Answer::failure(code::NOT_FOUND, "gone"))
    });
    let (container, sandbox) = (ContainerId::new("c").unwrap(), SandboxId::new("s").unwrap());
    client.remove_image(&ImageId::new(&image_id(1)).unwrap(), "").await.unwrap();
    client.remove_container(&container).await.unwrap();
    client.stop_container(&container, 0).await.unwrap();
    client.remove_sandbox(&sandbox).await.unwrap();
    assert_eq!(client.container_details(&container).await.unwrap(), None);
    assert_eq!(client.image(&ImageId::new(&image_id(1)).unwrap()).await.unwrap(), None);
    fake.state().calls.clear();
    fake.state().rule(|_, method, _| {
        (method == "StopPodSandbox").then(|| Answer::failure(code::UNKNOWN, "netns is busy"))
    });
    let error = client.remove_sandbox(&sandbox).await.unwrap_err();
    assert!(
        matches!(&error, CriError::Refused { call: "StopPodSandbox", message } if message == "netns is busy")
    );
    assert!(fake.state().called("RemovePodSandbox").is_empty());
}

/// T17 and T152.
#[tokio::test]
async fn events_report_use_and_may_end_at_once() {
    let fake = Fake::start();
    let client = connect(&fake).await;
    assert_eq!(client.events().await.unwrap().count().await, 0, "a stream that ends at once is no error");
    let status = cri::ContainerStatus {
        id: "c".into(),
        image: Some(cri::ImageSpec { image: "registry.example/image-1:v1".into() }),
        image_ref: image_id(1),
        mounts: vec![cri::StatusMount { image: Some(cri::ImageSpec { image: image_id(2) }) }],
        ..Default::default()
    };
    let other = cri::ContainerStatus { id: "other".into(), image_ref: image_id(3), ..Default::default() };
    let event = cri::ContainerEvent {
        container_id: "c".into(),
        container_event_type: 2,
        created_at: 77,
        containers_statuses: vec![status, other],
    };
    let unknown = cri::ContainerEvent { container_event_type: 9, ..event.clone() };
    fake.state().rule(move |_, method, _| {
        let messages = vec![unknown.encode_to_vec(), event.encode_to_vec()];
        (method == "GetContainerEvents").then_some(Answer::Broken(messages))
    });
    let found: Vec<_> = client.events().await.unwrap().take(2).collect().await;
    assert_eq!(found.len(), 2, "{found:?}");
    let event = found[0].as_ref().unwrap();
    assert_eq!((event.container.as_str(), event.kind, event.at.0), ("c", ContainerEventKind::Stopped, 77));
    let references: BTreeSet<&str> = event.image_references.iter().map(AsRef::as_ref).collect();
    let (one, two) = (image_id(1), image_id(2));
    assert_eq!(references, [one.as_str(), two.as_str(), "registry.example/image-1:v1"].into());
    assert!(found[1].is_err(), "a break is reported");
}

/// T148: the same client continues after a restart.
#[tokio::test]
async fn a_runtime_that_comes_back_is_found_again() {
    let mut fake = Fake::start();
    fake.state().images = vec![image(1, 1)];
    let client = connect(&fake).await;
    for _ in 0..3 {
        assert_eq!(client.images().await.unwrap().images.len(), 1);
        fake.stop();
        assert!(client.images().await.unwrap_err().is_outage());
        fake.listen();
    }
    assert_eq!(client.images().await.unwrap().images.len(), 1);
}
