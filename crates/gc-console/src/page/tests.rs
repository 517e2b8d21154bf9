#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;

use gc_inspect::attached::{Form, Query};

use super::*;

/// The description must contain each path that is served, and each question.
#[test]
fn everything_that_is_served_is_described() {
    let document: Value = serde_json::from_str(include_str!("openapi.json")).unwrap();
    let described: BTreeSet<&str> =
        document["paths"].as_object().unwrap().keys().filter_map(|path| path.strip_prefix(API)).collect();
    assert!(described.iter().all(|path| Page::audience(&format!("{API}{path}")).is_some()));
    let served: BTreeSet<&str> = SERVED.into_iter().chain(["pause", "resume"]).collect();
    assert_eq!(described, served);
    let inquiry = &document["paths"]["/kubegc/v1/ask"]["post"]["requestBody"]["content"]["application/json"]
        ["schema"]["properties"];
    let subject = || Subject { resource: "pods".into(), namespace: "a".into(), name: "b".into() };
    let questions = [
        Query::Stuck { namespace: String::new(), at_least: "0s".into() },
        Query::Tree { objects: vec![subject()], owners: false, depth: None, full: false },
        Query::Why { objects: vec![subject()] },
        Query::Plan { objects: vec![subject()], policy: "orphan".into(), full: false },
        Query::Doctor { namespace: String::new() },
    ];
    let alternatives = inquiry["question"]["oneOf"].as_array().unwrap();
    assert_eq!(alternatives.len(), questions.len());
    for (question, described) in questions.into_iter().zip(alternatives) {
        let sent = serde_json::to_value(question).unwrap();
        let names = |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
        assert_eq!(names(&sent), names(&described["properties"]));
        let name = &names(&sent)[0];
        let inner = &described["properties"][name]["properties"];
        let fields = |value: &Value| names(value).into_iter().collect::<BTreeSet<_>>();
        assert_eq!(fields(&sent[name]), fields(inner), "{name}");
    }
    let forms = [Form::Value, Form::Text, Form::Wide, Form::Names, Form::Graph];
    assert_eq!(inquiry["form"]["enum"], serde_json::to_value(forms).unwrap());
}

#[test]
fn only_orders_to_all_collectors_need_a_permission_of_their_own() {
    let table = [
        ("/ui", Some(Audience::Anyone)),
        ("/ui/app.js", Some(Audience::Anyone)),
        ("/uix", None),
        ("/kubegc/v1/overview", Some(Audience::Authenticated)),
        ("/kubegc/v1/delete", Some(Audience::Authenticated)),
        ("/kubegc/v1/pause", Some(Audience::Permitted)),
        ("/kubegc/v1/overview/x", None),
        ("/api/v1/pods", None),
    ];
    for (path, audience) in table {
        assert_eq!(Page::audience(path), audience, "{path}");
    }
}

/// The cookie of a session gives access to the page and its requests, but not to another session or to administrators' requests.
#[test]
fn a_session_opens_the_page_alone() {
    for (path, expected) in [
        ("/ui", true),
        ("/ui/app.js", true),
        ("/kubegc/v1/overview", true),
        ("/kubegc/v1/pause", true),
        ("/kubegc/v1/logout", true),
        ("/kubegc/v1/link", false),
        ("/kubegc/v1/backup", false),
        ("/kubegc/v1/clock", false),
        ("/kubegc/v1/journal", false),
        ("/api/v1/secrets", false),
    ] {
        assert_eq!(Page::accepts_session(path), expected, "{path}");
    }
}

/// A user who repeatedly asks and leaves has no more work done at a time than one who waits.
#[tokio::test]
async fn a_question_whose_client_has_gone_keeps_its_turn() {
    let page = Page::new(CollectorClock::default(), None);
    let user = UserInfo { name: "ann".into(), ..UserInfo::default() };
    let (end, _) = tokio::sync::watch::channel(false);
    for _ in 0..ANSWERED_AT_ONCE_OF_USER {
        let (begin, begun) = tokio::sync::oneshot::channel();
        let mut ended = end.subscribe();
        let asking = page.in_turn(&user, move || async move {
            begin.send(()).unwrap();
            ended.wait_for(|ended| *ended).await.unwrap();
            Ok(())
        });
        tokio::select! {
            _ = asking => panic!("it does not end by itself"),
            begun = begun => begun.unwrap(),
        }
    }
    assert!(page.0.turns.take("ann").is_none());
    assert!(page.0.turns.take("bob").is_some());
    end.send_replace(true);
    assert!(page.0.turns.wait("ann").await.is_some());
}
