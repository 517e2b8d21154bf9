#![allow(clippy::unwrap_used, reason = "a test may panic")]

use gc_inspect::plan::Cascade;
use gc_inspect::subject::ConfirmedPlan;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::termion::event::Key;
use serde_json::json;

use super::app::{App, Content, Input, KEPT_LINES, News, Order, ShownPlan, View};
use super::draw::draw;
use super::model::{Change, Line, ListedObject, ObjectPlace, Overview, WantedFeed};
use super::xray::{Branch, Forest};

fn overview() -> Overview {
    let object = |kind: &str, resource: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "resource": resource, "namespace": "shop", "name": name, "uid": "u"});
    let mut minutes = vec![0; 60];
    (minutes[40], minutes[58], minutes[59]) = (3, 40, 1200);
    serde_json::from_value(json!({
        "now": "2026-01-02T03:04:05Z", "clock": "2026-01-02T03:04:05Z", "clockAheadSeconds": 0, "tookMilliseconds": 3,
        "user": {"name": "kubegc-admin", "seesAll": true, "mayPause": true}, "mode": {"state": "Acting"},
        "namespaces": [], "kinds": [],
        "collected": [{"controller": "garbage-collector-controller", "total": 1243, "minutes": minutes}],
        "terminating": {"total": 1, "items": [{"object": object("ConfigMap", "configmaps", "cart-index"),
            "since": "2026-01-02T02:58:05Z", "finalizers": ["search.example.com/release-index"]}]},
        "stuck": {"total": 2, "items": [
            {"code": "FinalizerWithoutController", "message": "Nothing removes search.example.com/release-index.",
             "subject": "", "since": null, "ageSeconds": 360, "objects": [object("ConfigMap", "configmaps", "cart-index")],
             "waiting": [], "help": [], "force": null, "objectCount": 1, "waitingCount": 0},
            {"code": "WebhookUnreachable", "message": "The webhook does not answer.", "subject": "", "since": null,
             "ageSeconds": 90, "objects": [object("Pod", "pods", "web-0")], "waiting": [], "help": [], "force": null,
             "objectCount": 12, "waitingCount": 0}]},
        "due": {"total": 2, "items": [{"at": "", "inSeconds": 1800, "code": "TtlExpired",
            "collector": "ttl-after-finished-controller", "detail": "", "message": "is deleted in 30 min",
            "object": object("Job", "jobs.batch", "import-0412")},
            {"at": "", "inSeconds": 7200, "code": "ImageUnusedTooLong", "collector": "node-images", "detail": "",
            "message": "unused on node-1 for the maximum age",
            "object": {"kind": "Image", "resource": "", "namespace": "", "name": "registry.example/web:v1"}}]},
        "nodes": {"total": 2, "removed": {}, "items": [
            {"node": "node-1", "removed": {"images": 4, "freedBytes": 1_288_490_188, "containers": 12, "sandboxes": 3,
             "logDirectories": 2, "links": 5}, "due": 1, "reported": ""},
            {"node": "node-2", "removed": {}, "due": 0, "reported": ""}]},
        "unseen": [],
    }))
    .unwrap()
}

fn change(number: usize) -> Line {
    Line::Change(Box::new(Change {
        time: "2026-01-02T03:04:05.678Z".into(),
        controller: "garbage-collector-controller".into(),
        verb: "delete".into(),
        verdict: "OwnersAbsent".into(),
        message: "its owners are absent".into(),
        outcome: if number == 1 { "failed".into() } else { "applied".into() },
        owners: vec![super::model::Owner { kind: "ReplicaSet".into(), name: "web".into() }],
        evidence: vec!["ReplicaSet/web was removed at 03:04:01".into()],
        failure: None,
        place: place("Pod", "pods", &format!("web-{number}")),
    }))
}

fn place(kind: &str, resource: &str, name: &str) -> ObjectPlace {
    ObjectPlace { kind: kind.into(), resource: resource.into(), namespace: "shop".into(), name: name.into() }
}

fn shown() -> App {
    let mut app = App::new("https://127.0.0.1:6443", "");
    app.learn(News::Overview { namespace: String::new(), answer: Ok(Box::new(overview())) });
    app.learn(News::Feed(Ok(())));
    app
}

fn press(app: &mut App, keys: &str) -> Vec<Order> {
    let key = |c| if c == '\u{1b}' { Key::Esc } else { Key::Char(c) };
    keys.chars().flat_map(|c| app.key(key(c))).collect()
}

fn picture(app: &App, width: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, 16)).unwrap();
    terminal.draw(|frame| draw(app, frame)).unwrap();
    terminal.backend().to_string()
}

/// Compares the screens at both widths.
fn assert_pictures(name: &str, app: &App) {
    for width in [80, 160] {
        insta::assert_snapshot!(format!("{name}_{width}"), picture(app, width));
    }
}

#[test]
fn the_tables_look_so() {
    let mut app = shown();
    assert_pictures("stuck", &app);
    app.learn(News::Lines(vec![change(0), Line::Skipped(1234), change(1)]));
    press(&mut app, "2");
    assert_pictures("feed", &app);
    press(&mut app, "3");
    assert_pictures("due", &app);
    press(&mut app, "4");
    assert_pictures("terminating", &app);
    press(&mut app, "5");
    assert_pictures("nodes", &app);
    press(&mut app, ":po\n");
    let listed = ListedObject {
        place: place("Pod", "pods", "web-0"),
        ready: "0/1".into(),
        status: "CrashLoopBackOff".into(),
        age_milliseconds: Some(7_200_000),
        owners: vec!["ReplicaSet/web".into()],
        finalizers: vec!["example.com/f".into()],
        is_terminating: true,
    };
    let sibling = |number: usize| ListedObject {
        place: place("Pod", "pods", &format!("storefront-checkout-gateway-5d8f7c9b44-xk2v{number}")),
        is_terminating: false,
        finalizers: Vec::new(),
        ..listed.clone()
    };
    let all = vec![listed.clone(), sibling(0), sibling(1)];
    app.learn(News::Objects { kind: "po".into(), namespace: String::new(), answer: Ok(all) });
    assert_pictures("objects", &app);
    // Siblings must look different, and their state must be readable, on every terminal.
    for width in [80, 120, 200] {
        let shown = picture(&app, width);
        for part in ["-5d8f7c9b44-xk2v0 ", "-5d8f7c9b44-xk2v1 ", "READY", " 0/1 ", "CrashLoopBackOff"] {
            assert!(shown.contains(part), "{width}, {part}:\n{shown}");
        }
    }
}

#[test]
fn what_is_missing_is_named() {
    let mut app = App::new("https://127.0.0.1:6443", "shop");
    assert_pictures("before_the_first_answer", &app);
    app.learn(News::Overview { namespace: "shop".into(), answer: Err("the server does not answer".into()) });
    app.learn(News::Feed(Err("The feed needs a server that `kubegc up` runs.".into())));
    press(&mut app, "2");
    assert_pictures("without_answers", &app);
    let mut app = shown();
    press(&mut app, "/nothing like it");
    assert_pictures("filter_without_rows", &app);
}

#[test]
fn the_help_shows_the_keys() {
    let mut app = shown();
    press(&mut app, "?");
    assert_pictures("help", &app);
    press(&mut app, "\u{1b}");
    assert_eq!(app.pane, None);
}

fn plan(app: &mut App, cascade: Cascade, needs_name: bool) -> ConfirmedPlan {
    let confirmed = ConfirmedPlan { uid: "u".into(), objects: 3, lost_volumes: 1 };
    let lines = vec!["3 objects: 1 ConfigMap, 2 Pods; nothing gets stuck".into()];
    let plan = ShownPlan { lines, confirmed: confirmed.clone(), needs_name };
    let about = place("ConfigMap", "configmaps", "cart-index");
    app.learn(News::Planned(cascade, about, Ok(Box::new(plan))));
    confirmed
}

#[test]
fn nothing_is_deleted_before_its_plan_was_shown_and_confirmed() {
    let mut app = shown();
    let about = place("ConfigMap", "configmaps", "cart-index");
    let order = Order::Explain(Content::Plan(Cascade::Background), about.clone());
    assert_eq!(press(&mut app, "d"), [order]);
    // The plan has not arrived yet.
    assert_eq!(press(&mut app, "x\n"), []);
    assert_eq!(app.input, Input::Keys);
    plan(&mut app, Cascade::Background, true);
    assert_pictures("plan", &app);
    // The plan with another policy replaces it, and a late answer is ignored.
    let order = Order::Explain(Content::Plan(Cascade::Foreground), about.clone());
    assert_eq!(press(&mut app, "f"), [order]);
    plan(&mut app, Cascade::Background, false);
    assert_eq!(press(&mut app, "x\n"), []);
    let confirmed = plan(&mut app, Cascade::Foreground, true);
    for wrong in ["xy\n", "xcart\n", "x\n", "xcart-index\u{1b}"] {
        assert_eq!(press(&mut app, wrong), [], "{wrong:?}");
        assert_eq!(app.message, "Nothing was deleted");
    }
    press(&mut app, "x");
    assert_pictures("confirmation", &app);
    let subject = about.subject();
    let order = Order::Delete { subject, cascade: Cascade::Foreground, confirmed, is_named: true };
    assert_eq!(press(&mut app, "cart-index\n"), [order]);
    assert_eq!(app.pane, None);
}

#[test]
fn a_small_plan_is_confirmed_with_y() {
    let mut app = shown();
    press(&mut app, "d");
    let confirmed = plan(&mut app, Cascade::Background, false);
    assert_eq!(press(&mut app, "xn\n"), []);
    let subject = place("ConfigMap", "configmaps", "cart-index").subject();
    let order = Order::Delete { subject, cascade: Cascade::Background, confirmed, is_named: false };
    assert_eq!(press(&mut app, "xy\n"), [order]);
}

#[test]
fn commands_lead_to_views_and_kinds() {
    let objects =
        |kind: &str, namespace: &str| Order::Objects { kind: kind.into(), namespace: namespace.into() };
    let all = || Order::Overview(String::new());
    let of = |namespace: &str| Order::Overview(namespace.into());
    let table: [(&str, View, Vec<Order>); 13] = [
        (":due\n", View::Due, vec![]),
        (":feed\n", View::Feed, vec![]),
        (":term\n", View::Terminating, vec![]),
        (":stuck shop\n", View::Stuck, vec![of("shop")]),
        (":deploy\n", View::Objects, vec![objects("deploy", "")]),
        (":pods shop\n", View::Objects, vec![of("shop"), objects("pods", "shop")]),
        (":ns shop\n", View::Stuck, vec![of("shop")]),
        ("5", View::Nodes, vec![]),
        (":freed\n", View::Nodes, vec![]),
        ("6", View::Objects, vec![objects("pods", "")]),
        ("0", View::Stuck, vec![all()]),
        (":q\n", View::Stuck, vec![Order::Quit]),
        ("q", View::Stuck, vec![Order::Quit]),
    ];
    for (keys, view, orders) in table {
        let mut app = shown();
        assert_eq!((press(&mut app, keys), app.view), (orders, view), "{keys:?}");
    }
    let mut app = shown();
    press(&mut app, ":du\u{1b}");
    assert_eq!((app.view, &app.input), (View::Stuck, &Input::Keys));
}

#[test]
fn answers_to_earlier_questions_are_ignored() {
    let mut app = shown();
    press(&mut app, ":ns shop\n");
    app.learn(News::Overview { namespace: String::new(), answer: Ok(Box::new(overview())) });
    assert_eq!(app.overview, None);
    press(&mut app, ":pods\n:deploy\n");
    app.learn(News::Objects { kind: "pods".into(), namespace: "shop".into(), answer: Ok(Vec::new()) });
    assert_eq!(app.objects, None);
}

#[test]
fn the_feed_is_bounded_and_holds_still_under_the_cursor() {
    let mut app = shown();
    app.learn(News::Lines((0..10).map(change).collect()));
    press(&mut app, "2jj");
    let under = |app: &App| app.rows()[app.selected(app.rows().len())].cells[3].clone();
    assert_eq!(under(&app), "Pod/web-7");
    app.learn(News::Lines((10..15).map(change).collect()));
    assert_eq!(under(&app), "Pod/web-7");
    press(&mut app, "g");
    app.learn(News::Lines((15..2 * KEPT_LINES).map(change).collect()));
    assert_eq!((app.feed.len(), under(&app)), (KEPT_LINES, format!("Pod/web-{}", 2 * KEPT_LINES - 1)));
}

#[test]
fn objects_are_listed_again_after_a_deletion() {
    let mut app = shown();
    press(&mut app, ":pods shop\n");
    let listed = Order::Objects { kind: "pods".into(), namespace: "shop".into() };
    assert_eq!(
        app.learn(News::Deleted(Ok("pods/web-0 is being deleted".into()))),
        std::slice::from_ref(&listed)
    );
    assert_eq!(app.message, "pods/web-0 is being deleted");
    assert_eq!(app.key(Key::Ctrl('r')), [Order::Overview("shop".into()), listed]);
    press(&mut app, "1");
    assert_eq!(app.learn(News::Deleted(Err("refused".into()))), []);
}

#[test]
fn explanations_are_wrapped() {
    let mut app = shown();
    press(&mut app, "w");
    let about = place("ConfigMap", "configmaps", "cart-index");
    let lines = vec!["Its deletion is blocked: FinalizerHeld. ".repeat(3), "  try:       kubectl get".into()];
    app.learn(News::Explained(Content::Why, about, Ok(lines)));
    // Nothing of it is truncated.
    assert_eq!(picture(&app, 80).matches("FinalizerHeld.").count(), 3, "{}", picture(&app, 80));
}

#[test]
fn a_change_is_explained_though_its_object_is_gone() {
    let mut app = shown();
    app.learn(News::Lines(vec![change(0)]));
    assert_eq!(press(&mut app, "2\n"), [], "nothing has to be asked");
    assert_pictures("change", &app);
}

#[test]
fn commands_and_filters_work_while_a_pane_is_open() {
    let mut app = shown();
    press(&mut app, "?/metadata");
    assert_eq!(app.pane.as_ref().unwrap().shown(), [" y              its metadata"]);
    press(&mut app, "\n\u{1b}");
    assert!(app.pane.as_ref().unwrap().shown().len() > 10, "Esc clears the filter first");
    assert_eq!(press(&mut app, ":due\n"), []);
    assert_eq!((app.view, &app.pane), (View::Due, &None));
}

#[test]
fn trees_are_moved_sideways() {
    let mut app = shown();
    press(&mut app, "t");
    let about = place("ConfigMap", "configmaps", "cart-index");
    let long = format!("└─ {} the end", "a".repeat(100));
    app.learn(News::Explained(Content::Tree, about, Ok(vec![long])));
    assert!(!picture(&app, 80).contains("the end"));
    for _ in 0..3 {
        app.key(Key::Right);
    }
    assert!(picture(&app, 80).contains("the end"));
    for _ in 0..9 {
        app.key(Key::Left);
    }
    assert!(picture(&app, 80).contains("└─"));
}

#[test]
fn the_breaker_and_the_collectors_are_shown_and_ordered() {
    let mut app = shown();
    let mut overview = overview();
    overview.stopped = serde_json::from_value(json!([{"resource": "jobs.batch", "why": null}])).unwrap();
    app.learn(News::Overview { namespace: String::new(), answer: Ok(Box::new(overview)) });
    assert!(picture(&app, 80).contains("Acting, but the breaker has stopped jobs.batch"));
    assert_eq!(press(&mut app, ":resume jobs.batch\n"), [Order::Resume("jobs.batch".into())]);
    assert_eq!(press(&mut app, ":pause a  release\n"), [Order::Pause("a  release".into())]);
    assert_eq!(press(&mut app, ":resume\n"), [Order::Resume(String::new())]);
    let refreshed = app.learn(News::Obeyed(Err("403: no".into())));
    assert_eq!((refreshed, &*app.message), (vec![Order::Overview(String::new())], "403: no"));
    press(&mut app, ":collected\n");
    assert_pictures("collected", &app);
}

#[test]
fn the_breaker_of_nodes_is_shown() {
    let mut app = shown();
    let mut overview = overview();
    overview.node_breaker = serde_json::from_value(json!({"missing": 4, "since": ""})).unwrap();
    app.learn(News::Overview { namespace: String::new(), answer: Ok(Box::new(overview)) });
    assert!(picture(&app, 80).contains("Acting  No node is deleted: 4 machines missing"));
}

#[test]
fn what_is_due_is_not_denied_where_no_collector_was_asked() {
    let mut app = shown();
    let mut overview = overview();
    overview.mode.state = "Unknown".into();
    overview.due = super::model::List::default();
    app.learn(News::Overview { namespace: String::new(), answer: Ok(Box::new(overview)) });
    press(&mut app, "3");
    assert!(picture(&app, 160).contains("--collector asks those that run"));
}

#[test]
fn what_is_not_listed_is_counted() {
    let mut app = shown();
    let mut overview = overview();
    overview.due.total = 1_202;
    app.learn(News::Overview { namespace: String::new(), answer: Ok(Box::new(overview)) });
    press(&mut app, "3");
    assert!(picture(&app, 80).contains("… and 1,200 more"));
}

#[test]
fn filters_narrow_every_table() {
    let mut app = shown();
    press(&mut app, "/WEBHOOK\n");
    assert_eq!(app.rows().len(), 1);
    press(&mut app, "\u{1b}");
    assert_eq!(app.rows().len(), 2);
}

#[test]
fn the_feed_that_the_server_has_filtered_is_shown_whole() {
    let mut app = shown();
    app.learn(News::Lines(vec![change(0)]));
    press(&mut app, "2/applied\n");
    assert_eq!(app.rows().len(), 0);
    let wanted = WantedFeed { namespace: String::new(), text: "applied".into() };
    assert_eq!(app.wanted_feed(), wanted);
    app.learn(News::FeedOf(wanted));
    app.learn(News::Lines(vec![Line::Skipped(7), change(2)]));
    assert_eq!(app.rows().len(), 2);
    press(&mut app, ":ns shop\n");
    assert_eq!(app.wanted_feed(), WantedFeed { namespace: "shop".into(), text: "applied".into() });
}

#[test]
fn control_characters_do_not_reach_the_terminal() {
    let mut app = shown();
    let mut overview = overview();
    overview.stuck.items[0].objects[0].name = "a\u{1b}[2J\u{7}b\r\n".into();
    overview.mode.state = "Paused".into();
    overview.mode.reason = "\u{1b}]0;owned\u{7}".into();
    app.learn(News::Overview { namespace: String::new(), answer: Ok(Box::new(overview)) });
    let picture = picture(&app, 160);
    assert!(picture.contains("ConfigMap/a"), "{picture}");
    assert!(picture.chars().all(|c| c == '\n' || !c.is_control()));
}

fn branch(kind: &str, name: &str, status: &str, below: Vec<Branch>) -> Branch {
    let resource = format!("{}s", kind.to_lowercase());
    let object = ListedObject {
        place: place(kind, &resource, name),
        status: status.into(),
        age_milliseconds: Some(7_200_000),
        ..ListedObject::default()
    };
    Branch { uid: format!("uid-{name}"), object, below, ..Branch::default() }
}

/// Returns two Deployments: one with a pod that does not start and one that is terminating, and one with nothing.
fn forest() -> Forest {
    let pod = |end: &str, status| {
        let name = format!("storefront-checkout-gateway-5d8f7c9b44-{end}");
        branch("Pod", &name, status, Vec::new())
    };
    let (mut failing, mut held) = (pod("xk2v0", "CrashLoopBackOff"), pod("xk2v1", "Running"));
    failing.object.ready = "0/1".into();
    (held.object.is_terminating, held.object.finalizers) = (true, vec!["example.com/f".into()]);
    let set = branch("ReplicaSet", "storefront-checkout-gateway-5d8f7c9b44", "", vec![failing, held]);
    let mut other = branch("ReplicaSet", "storefront-checkout-gateway-66b7d8c5f", "", Vec::new());
    other.remark = "also above".into();
    let mut first = branch("Deployment", "storefront-checkout-gateway", "", vec![set, other]);
    (first.object.ready, first.omitted) = ("1/2".into(), 3);
    Forest { trees: vec![first, branch("Deployment", "web", "", Vec::new())], omitted: 1, unseen: None }
}

fn xray(app: &mut App, namespace: &str, forest: Forest) {
    app.learn(News::Forest { kind: "deploy".into(), namespace: namespace.into(), answer: Ok(forest) });
}

fn selected_object(app: &App) -> String {
    let rows = app.rows();
    rows[app.selected(rows.len())].cells[1].clone()
}

#[test]
fn an_xray_shows_what_objects_own() {
    let mut app = shown();
    let order = Order::Xray { kind: "deploy".into(), namespace: String::new() };
    assert_eq!(press(&mut app, ":xray deploy\n"), std::slice::from_ref(&order));
    assert_eq!(app.view, View::Objects);
    xray(&mut app, "", forest());
    for width in [80, 120, 200] {
        let shown = picture(&app, width);
        insta::assert_snapshot!(format!("xray_{width}"), shown);
        for part in ["-5d8f7c9b44-xk2v0 ", "-5d8f7c9b44-xk2v1 ", " 0/1 ", "CrashLoopBackOff", "xray deploy 3"]
        {
            assert!(shown.contains(part), "{width}, {part}:\n{shown}");
        }
    }
    // The selected object is explained and planned like in other tables.
    press(&mut app, "jj");
    let pod = place("Pod", "pods", "storefront-checkout-gateway-5d8f7c9b44-xk2v0");
    for (key, content) in [
        ("w", Content::Why),
        ("y", Content::Metadata),
        ("t", Content::Tree),
        ("d", Content::Plan(Cascade::Background)),
    ] {
        assert_eq!(press(&mut app, key), [Order::Explain(content, pod.clone())]);
        press(&mut app, "\u{1b}");
    }
    let gone = News::Deleted(Ok("pods/x is being deleted".into()));
    assert_eq!(app.learn(gone), std::slice::from_ref(&order), "the trees are listed again");
    // Another kind is a table again, and so is an answer for it.
    press(&mut app, ":pods\n");
    xray(&mut app, "", forest());
    assert!(app.xray.is_none() && app.rows().is_empty());
}

#[test]
fn branches_open_and_close() {
    let mut app = shown();
    press(&mut app, ":xray deploy\n");
    xray(&mut app, "", forest());
    let count = |app: &App| app.rows().len();
    // Two Deployments, two ReplicaSets, two pods, and what is left out of each.
    assert_eq!(count(&app), 8);
    press(&mut app, "j ");
    assert_eq!(
        (count(&app), selected_object(&app)),
        (6, "├─ ▸ ReplicaSet/storefront-checkout-gateway-5d8f7c9b44".into())
    );
    // Open and closed branches stay after another answer.
    xray(&mut app, "", forest());
    assert_eq!(count(&app), 6);
    press(&mut app, "l");
    assert_eq!(count(&app), 8);
    press(&mut app, "l");
    assert!(selected_object(&app).starts_with("│  ├─ Pod/"), "{}", selected_object(&app));
    press(&mut app, "hh");
    assert_eq!(
        (count(&app), selected_object(&app)),
        (6, "├─ ▸ ReplicaSet/storefront-checkout-gateway-5d8f7c9b44".into())
    );
    press(&mut app, "h");
    assert_eq!(selected_object(&app), "▾ Deployment/storefront-checkout-gateway");
    press(&mut app, "x");
    assert_eq!(count(&app), 3);
    press(&mut app, "G \n");
    assert_eq!(app.message, "There is no object on this line");
    // A filter shows matches with what leads to them, open or not.
    press(&mut app, "/crashloop\n");
    let objects: Vec<String> = app.rows().iter().map(|row| row.cells[1].chars().take(12).collect()).collect();
    assert_eq!(objects, ["▾ Deployment", "├─ ▾ Replica", "│  └─ Pod/st", "└─ … and 3 m", "… and 1 more"]);
    press(&mut app, "\u{1b}x");
    assert_eq!(count(&app), 8);
    // Large forests are closed at first.
    let many = (0..2_000).map(|number| {
        branch(
            "Deployment",
            &format!("d-{number}"),
            "",
            vec![branch("Pod", &format!("p-{number}"), "", Vec::new())],
        )
    });
    let many = Forest { trees: many.collect(), ..Forest::default() };
    press(&mut app, ":xray deploy\n");
    xray(&mut app, "", many);
    assert_eq!(count(&app), 2_000);
}

#[test]
fn an_xray_stays_in_its_namespace() {
    let mut app = shown();
    let order = |namespace: &str| Order::Xray { kind: "deploy".into(), namespace: namespace.into() };
    let overview = |namespace: &str| Order::Overview(namespace.into());
    assert_eq!(press(&mut app, ":xray deploy shop\n"), [overview("shop"), order("shop")]);
    // This answer about another namespace was requested earlier.
    xray(&mut app, "", forest());
    assert!(app.rows().is_empty());
    xray(&mut app, "shop", forest());
    insta::assert_snapshot!("xray_of_a_namespace_80", picture(&app, 80));
    assert_eq!(app.key(Key::Ctrl('r')), [overview("shop"), order("shop")]);
    assert_eq!(press(&mut app, ":ns other\n"), [overview("other"), order("other")]);
    assert!(app.rows().is_empty());
    assert_eq!(press(&mut app, ":xray\n"), []);
    assert_eq!(app.message, "Which kind? For example :xray deploy");
    let failed =
        News::Forest { kind: "deploy".into(), namespace: "other".into(), answer: Err("403: no".into()) };
    app.learn(failed);
    assert!(picture(&app, 80).contains(" 403: no"));
}
