//! The API behind the page: the users who may ask, the data shown to each, and the confirmation of a deletion. The page itself is
//! tested in a browser (`scripts/page`).
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "page/plugins.rs"]
mod plugins;
#[path = "page/release.rs"]
mod release;
mod support;

use http::Method;
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use support::Kubegc;

/// A response: code, `Set-Cookie`, document.
type Answer = (u16, String, Value);

async fn ask(
    client: &kube::Client,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> Answer {
    let mut request = http::Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if !body.is_null() {
        request = request.header("content-type", "application/json");
    }
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let answer = client.send(request.body(Body::from(body)).unwrap()).await.unwrap();
    let code = answer.status().as_u16();
    let cookie = answer.headers().get("set-cookie").map(|value| value.to_str().unwrap().to_owned());
    let bytes = answer.into_body().collect_bytes().await.unwrap();
    (code, cookie.unwrap_or_default(), serde_json::from_slice(&bytes).unwrap_or_default())
}

async fn get(client: &kube::Client, path: &str, headers: &[(&str, &str)]) -> Answer {
    ask(client, Method::GET, path, headers, &Value::Null).await
}

async fn create(client: &kube::Client, path: &str, object: Value) -> Value {
    let (code, _, created) = ask(client, Method::POST, path, &[], &object).await;
    assert_eq!(code, 201, "{path}: {created}");
    created
}

fn anonymous(server: &Kubegc) -> kube::Client {
    let mut config = kube::Config::new(server.url.parse().unwrap());
    config.accept_invalid_certs = true;
    kube::Client::try_from(config).unwrap()
}

#[tokio::test]
async fn a_link_opens_one_session_for_the_page_alone() {
    let server = Kubegc::start("up");
    let (client, anyone) = (server.client().await, anonymous(&server));
    let (code, _, link) = ask(&client, Method::POST, "/kubegc/v1/link", &[], &json!({})).await;
    assert_eq!(code, 201, "{link}");
    let url = link["url"].as_str().unwrap();
    let login = url.strip_prefix(&server.url).unwrap();
    let (code, cookie, _) = get(&anyone, login, &[]).await;
    assert_eq!(code, 200);
    let (cookie, attributes) = cookie.split_once(';').unwrap();
    let name = format!("__Host-kubegc-{}", server.url.rsplit_once(':').unwrap().1);
    assert_eq!(cookie.split_once('=').unwrap().0, name);
    assert_eq!(attributes, " Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=3600");
    assert_eq!(get(&anyone, login, &[]).await.0, 401, "the link is spent");
    let session = [("cookie", cookie)];
    let foreign = [("cookie", cookie), ("sec-fetch-site", "cross-site")];
    for (path, headers, code) in [
        ("/ui", &[][..], 401),
        ("/ui/app.js", &[], 401),
        ("/ui", &session, 200),
        ("/ui/app.js", &session, 200),
        ("/kubegc/v1/overview", &[], 403),
        ("/kubegc/v1/overview", &session, 200),
        ("/kubegc/v1/overview", &foreign, 403),
        ("/kubegc/v1/overview", &[("cookie", "__Host-kubegc=guessed")], 403),
        // The Kubernetes API ignores cookies.
        ("/api/v1/secrets", &session, 403),
    ] {
        let (answered, _, document) = get(&anyone, path, headers).await;
        assert_eq!(answered, code, "{path} {headers:?}: {document}");
    }
    let (_, _, overview) = get(&anyone, "/kubegc/v1/overview", &session).await;
    assert_eq!(
        overview["user"],
        json!({"name": "kubegc-admin", "seesAll": true, "mayPause": true, "mayDelete": true})
    );
    let foreign = [("cookie", cookie), ("origin", "https://evil.example")];
    let pause = ask(&anyone, Method::POST, "/kubegc/v1/pause", &foreign, &json!({})).await;
    assert_eq!(pause.0, 403);
    // A session cannot open another one, nor access anything outside the page.
    for path in ["/kubegc/v1/link", "/kubegc/v1/backup", "/kubegc/v1/reset", "/kubegc/v1/clock?advance=1h"] {
        let (code, _, answer) = ask(&anyone, Method::POST, path, &session, &json!({})).await;
        assert_eq!(code, 403, "{path}: {answer}");
    }
    let out = ask(&anyone, Method::POST, "/kubegc/v1/logout", &session, &json!({})).await;
    assert_eq!(out.0, 200);
    assert_eq!(get(&anyone, "/kubegc/v1/overview", &session).await.0, 403, "the session has ended");
}

/// A regression: a session continued after its account was deleted, and renewed itself.
#[tokio::test]
async fn a_session_ends_with_what_it_was_made_from() {
    let server = Kubegc::start("up");
    let (client, anyone) = (server.client().await, anonymous(&server));
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    create(&client, accounts, json!({"metadata": {"name": "ann"}})).await;
    let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}});
    let token = create(&client, &format!("{accounts}/ann/token"), asked).await;
    let bearer = format!("Bearer {}", token["status"]["token"].as_str().unwrap());
    let mut sessions = Vec::new();
    for headers in [
        vec![("authorization", bearer.as_str())],
        vec![("authorization", bearer.as_str()), ("impersonate-user", "bob")],
    ] {
        if headers.len() > 1 {
            let group = "rbac.authorization.k8s.io";
            let rules = json!([{"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]}]);
            let roles = "/apis/rbac.authorization.k8s.io/v1";
            create(
                &client,
                &format!("{roles}/clusterroles"),
                json!({"metadata": {"name": "as"}, "rules": rules}),
            )
            .await;
            let binding = json!({"metadata": {"name": "as"}, "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "as"},
                "subjects": [{"kind": "ServiceAccount", "name": "ann", "namespace": "default"}]});
            create(&client, &format!("{roles}/clusterrolebindings"), binding).await;
        }
        let link = loop {
            // The server recognizes a permission a moment after its creation.
            let (code, _, link) = ask(&anyone, Method::POST, "/kubegc/v1/link", &headers, &json!({})).await;
            if code == 201 {
                break link;
            }
            assert_eq!((code, headers.len()), (403, 2), "{link}");
        };
        let login = link["url"].as_str().unwrap().strip_prefix(&server.url).unwrap().to_owned();
        let (_, cookie, _) = get(&anyone, &login, &[]).await;
        sessions.push(cookie.split_once(';').unwrap().0.to_owned());
    }
    for (session, name) in sessions.iter().zip(["system:serviceaccount:default:ann", "bob"]) {
        let (code, _, overview) = get(&anyone, "/kubegc/v1/overview", &[("cookie", session)]).await;
        assert_eq!((code, &overview["user"]["name"]), (200, &json!(name)));
    }
    ask(
        &client,
        Method::DELETE,
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/as",
        &[],
        &json!({}),
    )
    .await;
    // The session was bob's only as long as ann might act as bob.
    while get(&anyone, "/kubegc/v1/overview", &[("cookie", &sessions[1])]).await.0 == 200 {
        tokio::task::yield_now().await;
    }
    assert_eq!(get(&anyone, "/kubegc/v1/overview", &[("cookie", &sessions[0])]).await.0, 200);
    let (code, _, answer) = ask(&client, Method::DELETE, &format!("{accounts}/ann"), &[], &json!({})).await;
    assert_eq!(code, 200, "{answer}");
    for session in &sessions {
        let (code, _, answer) = get(&anyone, "/kubegc/v1/overview", &[("cookie", session)]).await;
        assert_eq!(code, 403, "{answer}");
    }
}

#[tokio::test]
async fn answers_have_the_rights_of_the_user() {
    let server = Kubegc::start("up");
    let client = server.client().await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/bank";
    for namespace in ["shop", "bank"] {
        create(&client, "/api/v1/namespaces", json!({"metadata": {"name": namespace}})).await;
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        let owner = create(&client, &path, json!({"metadata": {"name": "owner"}})).await;
        let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
        let name = format!("leaf-of-{namespace}");
        create(&client, &path, json!({"metadata": {"name": name, "ownerReferences": owners}})).await;
        let held =
            json!({"metadata": {"name": format!("held-in-{namespace}"), "finalizers": ["acme.dev/hold"]}});
        create(&client, &path, held).await;
        for name in ["owner".to_owned(), format!("held-in-{namespace}")] {
            let deleted = ask(&client, Method::DELETE, &format!("{path}/{name}"), &[], &json!({})).await;
            assert!(deleted.0 < 300, "{deleted:?}");
        }
        create(
            &client,
            &format!("/api/v1/namespaces/{namespace}/secrets"),
            json!({"metadata": {"name": "key"}}),
        )
        .await;
    }
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]);
    create(&client, &format!("{rbac}/roles"), json!({"metadata": {"name": "reader"}, "rules": rules})).await;
    let binding = json!({"metadata": {"name": "ann"}, "subjects": [{"kind": "User", "name": "ann"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}});
    create(&client, &format!("{rbac}/rolebindings"), binding).await;
    let settled = ask(&client, Method::POST, "/kubegc/v1/settle?timeout=30s", &[], &Value::Null).await;
    assert_eq!(settled.0, 200, "{}", settled.2);
    let ann = [("impersonate-user", "ann"), ("impersonate-group", "system:authenticated")];
    let (code, _, overview) = get(&client, "/kubegc/v1/overview", &ann).await;
    assert_eq!(code, 200, "{overview}");
    assert_eq!(
        overview["user"],
        json!({"name": "ann", "seesAll": false, "mayPause": false, "mayDelete": true})
    );
    let names: Vec<&str> =
        overview["namespaces"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["bank"]);
    let total = |overview: &Value| -> u64 {
        overview["collected"].as_array().unwrap().iter().map(|one| one["total"].as_u64().unwrap()).sum()
    };
    assert_eq!(total(&overview), 1, "leaf-of-bank: {overview}");
    assert_eq!(overview["terminating"]["total"], 1);
    assert_eq!(overview["stuck"]["total"], 1);
    let (_, _, whole) = get(&client, "/kubegc/v1/overview", &[]).await;
    assert!(total(&whole) >= 2 && whole["stuck"]["total"] == 1, "{whole}");
    assert_eq!(whole["stuck"]["items"][0]["objectCount"], 2, "one root cause in two namespaces");
    for path in
        ["overview", "overview?namespace=shop", "map?namespace=shop", "map?namespace=bank", "search?q=e"]
    {
        let (_, _, document) = get(&client, &format!("/kubegc/v1/{path}"), &ann).await;
        let text = document.to_string();
        assert!(!text.contains("-shop") && !text.contains("\"key\""), "{path}: {text}");
    }
    let shop = "/kubegc/v1/object?resource=configmaps&namespace=shop&name=leaf-of-shop";
    assert_ne!(get(&client, shop, &ann).await.0, 200);
    let bank = "/kubegc/v1/object?resource=configmaps&namespace=bank&name=leaf-of-bank";
    let (code, _, gone) = get(&client, bank, &ann).await;
    assert_eq!((code, &gone["journal"][0]["verdict"]), (200, &json!("OwnersAbsent")), "{gone}");
    a_narrow_user_learns_and_does_nothing(&client, &ann).await;
}

/// Requests each path below `/kubegc/v1/` as a user who may only read ConfigMaps of the namespace `bank`.
async fn a_narrow_user_learns_and_does_nothing(client: &kube::Client, ann: &[(&str, &str)]) {
    const OWN: [&str; 7] = ["journal", "deletions", "backup", "clock", "settle", "reset", "fork"];
    for path in OWN.into_iter().chain(["pause", "resume", "clock?advance=1h", "fork?name=1", "backup?at=1"]) {
        for method in [Method::GET, Method::POST, Method::DELETE] {
            let path = format!("/kubegc/v1/{path}");
            let (code, _, answer) = ask(client, method.clone(), &path, ann, &json!({})).await;
            assert_eq!(code, 403, "{method} {path}: {answer}");
        }
    }
    let subject =
        |name: &str, namespace: &str| json!({"resource": "configmaps", "namespace": namespace, "name": name});
    let leaf = || {
        json!([subject("leaf-of-shop", "shop"), subject("held-in-shop", "shop"), subject("owner", "shop")])
    };
    let questions = [
        json!({"stuck": {"namespace": "", "atLeast": "0s"}}),
        json!({"stuck": {"namespace": "shop", "atLeast": "0s"}}),
        json!({"tree": {"objects": leaf(), "owners": true, "depth": null}}),
        json!({"why": {"objects": leaf()}}),
        json!({"plan": {"objects": leaf(), "policy": "background", "full": true}}),
        json!({"doctor": {"namespace": ""}}),
        json!({"why": {"objects": [{"resource": "secrets", "namespace": "shop", "name": "key"}]}}),
        json!({"why": {"objects": [subject("../../secrets/key", "shop")]}}),
        json!({"why": {"objects": [subject("key", "shop/secrets/key?x=")]}}),
        json!({"why": {"objects": [subject("x", &"n".repeat(10_000))]}}),
    ];
    for question in questions {
        for form in ["value", "text", "graph"] {
            let body = json!({"form": form, "question": question});
            let (_, _, answer) = ask(client, Method::POST, "/kubegc/v1/ask", ann, &body).await;
            let text = answer.to_string();
            // The response may repeat the request, but not the object's finalizers, dependents or content.
            for secret in ["acme.dev/hold", "OwnersAbsent", "FinalizerHeld"] {
                let is_own = question.to_string().contains("\"namespace\":\"\"");
                assert!(is_own || !text.contains(secret), "{question} as {form}: {text}");
            }
            let is_named = question.to_string().contains("-shop");
            assert!(is_named || !text.contains("-shop"), "{question} as {form}: {text}");
        }
    }
    let of = |subject: &str| format!("resource=configmaps&namespace=shop&name={subject}");
    for path in ["object", "plan", "remaining"] {
        for name in ["leaf-of-shop", "held-in-shop", "..%2F..%2Fsecrets%2Fkey", "%00", "%1b%5B2J"] {
            let (code, _, answer) = get(client, &format!("/kubegc/v1/{path}?{}", of(name)), ann).await;
            assert!((400..500).contains(&code), "{path} {name}: {code} {answer}");
        }
    }
    let order = json!({"resource": "configmaps", "namespace": "shop", "name": "held-in-shop", "uid": "x",
        "policy": "background", "objects": 1, "lostVolumes": 0});
    let (code, _, answer) = ask(client, Method::POST, "/kubegc/v1/delete", ann, &order).await;
    assert!((400..500).contains(&code), "{code} {answer}");
}

#[tokio::test]
async fn a_deletion_is_the_one_that_was_planned() {
    let server = Kubegc::start("up");
    let client = server.client().await;
    let path = "/api/v1/namespaces/default/configmaps";
    let root = create(&client, path, json!({"metadata": {"name": "root"}})).await;
    let uid = root["metadata"]["uid"].as_str().unwrap().to_owned();
    let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "root", "uid": uid}]);
    let add = async |number: usize| {
        let leaf = json!({"metadata": {"name": format!("leaf-{number}"), "ownerReferences": owners}});
        create(&client, path, leaf).await;
    };
    for number in 0..10 {
        add(number).await;
    }
    let subject = "resource=configmaps&namespace=default&name=root";
    let (code, _, plan) = get(&client, &format!("/kubegc/v1/plan?{subject}&policy=foreground"), &[]).await;
    assert_eq!((code, &plan["objects"], &plan["needsName"]), (200, &json!(11), &json!(true)), "{plan}");
    let order = |objects: usize, typed: &str, policy: &str| {
        json!({"resource": "configmaps", "namespace": "default", "name": "root", "uid": uid, "policy": policy,
               "objects": objects, "lostVolumes": 0, "typed": typed})
    };
    let send = async |order: Value| ask(&client, Method::POST, "/kubegc/v1/delete", &[], &order).await;
    for (order, code, reason) in [
        (order(11, "", "foreground"), 422, "NameNotTyped"),
        (order(11, "rot", "foreground"), 422, "NameNotTyped"),
        (order(10, "root", "foreground"), 409, "PlanChanged"),
        (order(11, "root", "sideways"), 400, "BadRequest"),
        (json!({"resource": "configmaps"}), 400, "BadRequest"),
    ] {
        let (answered, _, status) = send(order.clone()).await;
        assert_eq!((answered, &status["reason"]), (code, &json!(reason)), "{order}: {status}");
    }
    add(10).await;
    let (code, _, status) = send(order(11, "root", "foreground")).await;
    assert_eq!((code, &status["details"]["objects"]), (409, &json!(12)), "it has grown");
    assert_eq!(get(&client, &format!("{path}/root"), &[]).await.0, 200, "nothing was deleted");
    let (code, _, done) = send(order(12, "root", "foreground")).await;
    assert_eq!((code, &done["objects"]), (202, &json!(12)), "{done}");
    let settled = ask(&client, Method::POST, "/kubegc/v1/settle?timeout=30s", &[], &Value::Null).await;
    assert_eq!(settled.0, 200, "{}", settled.2);
    assert_eq!(get(&client, &format!("{path}/root"), &[]).await.0, 404);
}

/// A plan and a deletion of more objects than responses name: the stuck ones come last, and must be in the map and in the feed of
/// the deletion.
#[tokio::test]
async fn all_of_a_large_plan_is_drawn_and_followed() {
    let server = Kubegc::start("up");
    let client = server.client().await;
    let path = "/api/v1/namespaces/default/configmaps";
    let root = create(&client, path, json!({"metadata": {"name": "root"}})).await;
    let uid = root["metadata"]["uid"].as_str().unwrap().to_owned();
    let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "root", "uid": uid}]);
    let leaf = async |name: String, finalizers: Value| {
        let metadata = json!({"name": name, "ownerReferences": owners, "finalizers": finalizers});
        create(&client, path, json!({"metadata": metadata})).await;
    };
    for number in 0..1_030 {
        leaf(format!("leaf-{number}"), json!([])).await;
    }
    leaf("held".into(), json!(["acme.dev/hold"])).await;
    let bystander = json!({"metadata": {"name": "bystander", "ownerReferences": []}});
    create(&client, path, bystander).await;

    let subject = "resource=configmaps&namespace=default&name=root";
    let (code, _, plan) = get(&client, &format!("/kubegc/v1/plan?{subject}"), &[]).await;
    assert_eq!((code, &plan["objects"], &plan["omitted"]), (200, &json!(1_032), &json!(32)));
    let groups = |plan: &Value| -> Vec<(Value, Value, usize)> {
        let groups = plan["groups"].as_array().unwrap().iter();
        groups
            .map(|group| {
                (group["fate"].clone(), group["total"].clone(), group["items"].as_array().unwrap().len())
            })
            .collect()
    };
    assert_eq!(groups(&plan), [(json!("Deleted"), json!(1_031), 8), (json!("Stuck"), json!(1), 1)]);

    let id = plan["id"].as_str().unwrap();
    let selected = "selected=configmaps/default/leaf-7";
    let map = |plan: &str| format!("/kubegc/v1/map?namespace=default&plan={plan}&{selected}");
    let (code, _, drawn) = get(&client, &map(id), &[]).await;
    assert_eq!(code, 200, "{drawn}");
    let mut nodes: Vec<(&str, u64, &Value)> = drawn["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|node| node["object"]["kind"] == "ConfigMap")
        .map(|node| {
            (node["object"]["name"].as_str().unwrap(), node["count"].as_u64().unwrap(), &node["fate"])
        })
        .filter(|(name, ..)| !name.starts_with("kube-"))
        .collect();
    nodes.sort_by_key(|node| (node.0 != "root", node.1, node.0));
    assert_eq!(nodes[0], ("root", 1, &json!("Deleted")));
    let (deleted, stuck, none) = (json!("Deleted"), json!("Stuck"), Value::Null);
    assert_eq!(nodes[1..4], [("bystander", 1, &none), ("held", 1, &stuck), ("leaf-7", 1, &deleted)]);
    assert_eq!((nodes[4].1, nodes[4].2), (1_029, &deleted));
    let (code, _, forgotten) = get(&client, &map("0-0"), &[]).await;
    assert_eq!((code, &forgotten["reason"]), (404, &json!("Forgotten")));

    let order = json!({"resource": "configmaps", "namespace": "default", "name": "root", "uid": uid,
        "policy": "background", "objects": 1_032, "lostVolumes": 0, "typed": "root"});
    let (code, _, done) = ask(&client, Method::POST, "/kubegc/v1/delete", &[], &order).await;
    assert_eq!(code, 202, "{done}");
    let deletion = format!("/kubegc/v1/remaining?deletion={}", done["deletion"].as_str().unwrap());
    let end = std::time::Instant::now() + std::time::Duration::from_mins(1);
    let remaining = loop {
        let (code, _, remaining) = get(&client, &deletion, &[]).await;
        assert_eq!((code, &remaining["objects"]), (200, &json!(1_032)), "{remaining}");
        assert_ne!(remaining["remaining"], 0, "one is stuck");
        // A finalizer without a controller is reported once its patience has ended.
        if remaining["remaining"] == 1 && remaining["stuck"] == 1 {
            break remaining;
        }
        assert!(std::time::Instant::now() < end, "{remaining}");
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    };
    let causes = &remaining["causes"];
    assert_eq!((&causes["total"], &causes["items"][0]["objects"][0]["name"]), (&json!(1), &json!("held")));
    let ann = [("impersonate-user", "ann"), ("impersonate-group", "system:authenticated")];
    assert_eq!(get(&client, &deletion, &ann).await.0, 404, "it is the deletion of another user");
}

/// Returns the lines of a feed until `done`, as its reader got them.
async fn read_feed(client: &kube::Client, headers: &[(&str, &str)], done: impl Fn(&str) -> bool) -> String {
    read_feed_of(client, "from=0", headers, done).await
}

async fn read_feed_of(
    client: &kube::Client,
    query: &str,
    headers: &[(&str, &str)],
    done: impl Fn(&str) -> bool,
) -> String {
    read_until(&mut open_feed(client, query, headers).await, done).await
}

async fn open_feed(client: &kube::Client, query: &str, headers: &[(&str, &str)]) -> Body {
    let mut request = http::Request::builder().uri(format!("/kubegc/v1/feed?{query}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = client.send(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(answer.status(), 200);
    answer.into_body()
}

async fn read_until(body: &mut Body, done: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    while !done(&text) {
        let data = body.frame().await.expect("the feed does not end").unwrap().into_data().unwrap();
        text.push_str(std::str::from_utf8(&data).unwrap());
    }
    text
}

#[tokio::test]
async fn readers_of_a_feed_get_what_their_user_may_list() {
    let server = Kubegc::start_collectors();
    let client = server.client().await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/bank";
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
    for namespace in ["shop", "bank"] {
        create(&client, "/api/v1/namespaces", json!({"metadata": {"name": namespace}})).await;
    }
    create(&client, &format!("{rbac}/roles"), json!({"metadata": {"name": "reader"}, "rules": rules})).await;
    let binding = json!({"metadata": {"name": "ann"}, "subjects": [{"kind": "User", "name": "ann"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}});
    create(&client, &format!("{rbac}/rolebindings"), binding).await;
    let ann = [("impersonate-user", "ann"), ("impersonate-group", "system:authenticated")];
    let has = |text: &str, name: &str| text.contains(&format!("\"name\":\"{name}\""));
    let both = |text: &str| has(text, "leaf-of-shop") && has(text, "leaf-of-bank");
    let cascades = async {
        for namespace in ["shop", "bank"] {
            let path = format!("/api/v1/namespaces/{namespace}/configmaps");
            let owner = create(&client, &path, json!({"metadata": {"name": "owner"}})).await;
            let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
            let leaf =
                json!({"metadata": {"name": format!("leaf-of-{namespace}"), "ownerReferences": owners}});
            create(&client, &path, leaf).await;
            let deleted = ask(&client, Method::DELETE, &format!("{path}/owner"), &[], &json!({})).await;
            assert!(deleted.0 < 300, "{deleted:?}");
        }
    };
    let readers = futures::future::join_all([
        read_feed(&client, &[], both),
        read_feed(&client, &[], both),
        read_feed(&client, &[], both),
    ]);
    let of_ann = read_feed(&client, &ann, |text| has(text, "leaf-of-bank"));
    let (texts, of_ann, ()) = futures::join!(readers, of_ann, cascades);
    assert!(!of_ann.contains("shop"), "{of_ann}");
    // A later reader gets the same changes, each once.
    let late = read_feed(&client, &[], both).await;
    for text in texts.iter().chain([&late]) {
        let leaves = text.matches("\"name\":\"leaf-of-").count();
        assert_eq!(leaves, 2, "{text}");
    }
}

/// A filter searches all changes that are kept, not only the few that readers without one were sent.
#[tokio::test]
async fn the_feed_is_filtered_before_it_is_sampled() {
    let server = Kubegc::start_collectors();
    let client = server.client().await;
    let path = "/api/v1/namespaces/default/configmaps";
    let cascade = async |owner: &str, leaves: Vec<String>| {
        let created = create(&client, path, json!({"metadata": {"name": owner}})).await;
        let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": created["metadata"]["uid"]}]);
        for name in leaves {
            create(&client, path, json!({"metadata": {"name": name, "ownerReferences": owners}})).await;
        }
        let deleted = ask(&client, Method::DELETE, &format!("{path}/{owner}"), &[], &json!({})).await;
        assert!(deleted.0 < 300, "{deleted:?}");
        let settled = ask(&client, Method::POST, "/kubegc/v1/settle?timeout=30s", &[], &Value::Null).await;
        assert_eq!(settled.0, 200, "{}", settled.2);
    };
    cascade("first", vec!["needle".into()]).await;
    cascade("second", (0..300).map(|number| format!("hay-{number}")).collect()).await;
    let ended = |text: &str| text.contains("event: caught-up");
    let all = read_feed_of(&client, "", &[], ended).await;
    assert!(!all.contains("\"name\":\"needle\""), "the newest hundred are sent: {all}");
    let found = read_feed_of(&client, "namespace=default&q=NEEDLE%20ownersabsent", &[], ended).await;
    assert_eq!(found.matches("event: change").count(), 1, "{found}");
    assert!(found.contains("\"name\":\"needle\"") && !found.contains("event: skipped"), "{found}");
    let hay = read_feed_of(&client, "q=hay-", &[], ended).await;
    assert!(hay.contains("data: {\"count\":200,\"resources\":{\"configmaps\":200},\"unknown\":0}"), "{hay}");
    let none =
        read_feed_of(&client, "from=0&q=needle&namespace=shop", &[], |text| text.contains("retry")).await;
    assert!(!none.contains("needle"), "{none}");
}

/// An idle page learns of a pause from the feed, not from its next request.
#[tokio::test]
async fn a_pause_and_a_resumption_are_announced_on_the_feed() {
    let server = Kubegc::start_collectors();
    let client = server.client().await;
    let mut feed = open_feed(&client, "q=nothing", &[]).await;
    for (path, state) in [("/kubegc/v1/pause", "Paused"), ("/kubegc/v1/resume", "Acting")] {
        let (code, _, answer) = ask(&client, Method::POST, path, &[], &json!({})).await;
        assert_eq!(code, 200, "{path}: {answer}");
        let announced = format!("event: mode\ndata: {{\"state\":\"{state}\"}}\n\n");
        read_until(&mut feed, |text| text.contains(&announced)).await;
    }
}

/// A new object of the same name is a different object: its page does not show the actions about the old one.
#[tokio::test]
async fn the_journal_of_an_object_is_its_own() {
    let server = Kubegc::start_collectors();
    let client = server.client().await;
    let path = "/api/v1/namespaces/default/configmaps";
    let mut leaf = Value::Null;
    for name in ["first", "second"] {
        let owner = create(&client, path, json!({"metadata": {"name": name}})).await;
        let owners =
            json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": owner["metadata"]["uid"]}]);
        leaf = create(&client, path, json!({"metadata": {"name": "leaf", "ownerReferences": owners}})).await;
        let deleted = ask(&client, Method::DELETE, &format!("{path}/{name}"), &[], &json!({})).await;
        assert!(deleted.0 < 300, "{deleted:?}");
        let settled = ask(&client, Method::POST, "/kubegc/v1/settle?timeout=30s", &[], &Value::Null).await;
        assert_eq!(settled.0, 200, "{}", settled.2);
    }
    let question = "/kubegc/v1/object?resource=configmaps&namespace=default&name=leaf";
    let journal = async || -> Vec<String> {
        let (code, _, answer) = get(&client, question, &[]).await;
        assert_eq!(code, 200, "{answer}");
        let uid = |change: &Value| change["uid"].as_str().unwrap_or_default().to_owned();
        answer["journal"].as_array().unwrap().iter().map(uid).collect()
    };
    assert_eq!(journal().await, [leaf["metadata"]["uid"].as_str().unwrap()], "of the last one that is gone");
    create(&client, path, json!({"metadata": {"name": "leaf"}})).await;
    assert_eq!(journal().await, [""; 0], "nothing was done about the third one");
}

/// Reports whether a value has a type that JSON Schema names.
fn is_of_type(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("{other}: a type that this test does not know"),
    }
}

/// Returns the members of a value that are missing from its description, and the described members that are missing from the value.
fn undescribed(value: &Value, schema: &Value, document: &Value, at: &str) -> Vec<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let named = document.pointer(reference.trim_start_matches('#')).unwrap();
        return undescribed(value, named, document, at);
    }
    if let Some(alternatives) = schema["oneOf"].as_array() {
        let is_null = |one: &&Value| one["type"] == "null";
        let fitting = alternatives.iter().find(|one| is_null(one) == value.is_null());
        return undescribed(value, fitting.unwrap(), document, at);
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => return Vec::new(),
    };
    if !types.iter().any(|name| is_of_type(value, name)) {
        return vec![format!("{at}: {value} is not of type {types:?}")];
    }
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        return vec![format!("{at}: {value} is not among {words:?}")];
    }
    let mut found = Vec::new();
    for (place, item) in value.as_array().into_iter().flatten().enumerate() {
        found.extend(undescribed(item, &schema["items"], document, &format!("{at}[{place}]")));
    }
    let (Some(fields), Some(known)) = (value.as_object(), schema["properties"].as_object()) else {
        return found;
    };
    for (name, field) in fields {
        match known.get(name) {
            Some(inner) => found.extend(undescribed(field, inner, document, &format!("{at}.{name}"))),
            None => found.push(format!("{at}.{name} is not described")),
        }
    }
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    found.extend(
        required.filter(|name| !fields.contains_key(*name)).map(|name| format!("{at}.{name} is missing")),
    );
    found
}

/// Authors of clients read the description, not the page.
#[tokio::test]
async fn answers_are_as_they_are_described() {
    let server = Kubegc::start("up");
    let client = server.client().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let owner = create(&client, maps, json!({"metadata": {"name": "owner"}})).await;
    let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": true}]);
    create(&client, maps, json!({"metadata": {"name": "leaf", "ownerReferences": owners}})).await;
    for number in 0..8 {
        let name = format!("held-{number}");
        let metadata = json!({"name": name, "finalizers": ["acme.dev/hold"]});
        create(&client, maps, json!({"metadata": metadata})).await;
        let deleted = ask(&client, Method::DELETE, &format!("{maps}/{name}"), &[], &json!({})).await;
        assert!(deleted.0 < 300, "{deleted:?}");
    }
    let expiring = json!({"name": "expiring", "annotations": {"kubegc.io/ttl": "1h"}});
    create(&client, maps, json!({"metadata": expiring})).await;
    let (_, _, document) = get(&client, "/kubegc/v1/openapi.json", &[]).await;
    let mut found = Vec::new();
    let mut examine = async |path: &str, code: u16| {
        let (answered, _, value) = get(&client, path, &[]).await;
        assert_eq!(answered, code, "{path}: {value}");
        let (name, _) = path.split_once('?').unwrap_or((path, ""));
        let answers = &document["paths"][name]["get"]["responses"];
        let schema =
            &answers[if code == 200 { "200" } else { "default" }]["content"]["application/json"]["schema"];
        assert!(schema.is_object(), "{path}");
        found.extend(undescribed(&value, schema, &document, path));
        value
    };
    let about = |name: &str| format!("resource=configmaps&namespace=default&name={name}");
    let overview = examine("/kubegc/v1/overview", 200).await;
    assert!(overview["stuck"]["items"][0]["force"]["unlisted"].is_u64(), "{overview}");
    assert!(overview["due"]["total"] != 0, "{overview}");
    examine("/kubegc/v1/map?namespace=default", 200).await;
    let everything = examine("/kubegc/v1/map?kinds=configmaps,namespaces", 200).await;
    assert!(everything["nodes"].as_array().unwrap().iter().any(|node| node["object"]["kind"] == "Namespace"));
    assert!(
        everything["kinds"].as_array().unwrap().iter().any(|kind| kind["shown"] == false),
        "{everything}"
    );
    examine("/kubegc/v1/search?q=held", 200).await;
    // One node has the report of an agent, and the other has no agent.
    let node = create(&client, "/api/v1/nodes", json!({"metadata": {"name": "fleet-1"}})).await;
    create(&client, "/api/v1/nodes", json!({"metadata": {"name": "fleet-2"}})).await;
    let report = json!({"written": jiff::Timestamp::now().as_millisecond(), "state": {
        "disks": [{"path": "/images", "capacityBytes": 100, "usedBytes": 90}], "images": 1, "imageBytes": 2,
        "unexplainedBytes": 3, "passes": [{"collector": "images", "at": 0, "failed": true}]}});
    let lease = json!({"name": "kubegc-node-fleet-1", "labels": {"kubegc.io/report": "node"},
        "annotations": {"kubegc.io/node-report": report.to_string()},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "fleet-1", "uid": node["metadata"]["uid"]}]});
    create(&client, "/apis/coordination.k8s.io/v1/namespaces/default/leases", json!({"metadata": lease}))
        .await;
    let end = std::time::Instant::now() + std::time::Duration::from_mins(1);
    loop {
        let fleet = examine("/kubegc/v1/nodes?q=fleet", 200).await;
        if fleet["total"] == 1 && fleet["unreported"]["names"] == json!(["fleet-2"]) {
            assert_eq!(fleet["items"][0]["disks"][0]["usagePercent"], 90, "{fleet}");
            break;
        }
        assert!(std::time::Instant::now() < end, "{fleet}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    for name in ["owner", "leaf", "expiring"] {
        examine(&format!("/kubegc/v1/object?{}", about(name)), 200).await;
    }
    let owner = examine(&format!("/kubegc/v1/object?{}&dependents=true", about("owner")), 200).await;
    assert_eq!(owner["dependents"]["items"][0]["name"], "leaf", "{owner}");
    let namespace = examine("/kubegc/v1/object?resource=namespaces&name=default", 200).await;
    assert_eq!(namespace["status"]["phase"], "Active", "{namespace}");
    let held = examine(&format!("/kubegc/v1/object?{}", about("held-0")), 200).await;
    // Its holder can be queried, as on the first screen.
    assert_eq!(held["why"]["holds"][0]["objects"][0]["resource"], "configmaps", "{held}");
    examine(&format!("/kubegc/v1/plan?{}&policy=foreground", about("owner")), 200).await;
    examine(&format!("/kubegc/v1/object?{}", about("nothing")), 404).await;
    assert!(found.is_empty(), "{found:#?}");
}

/// The documents, the chart and the dashboard name the same port of the page.
#[test]
fn the_page_has_one_documented_port() {
    let read = |path: &str| std::fs::read_to_string(support::repository().join(path)).unwrap();
    let port = "10358";
    assert!(
        read("deploy/helm/kubegc/templates/statefulset.yaml")
            .contains(&format!("--ui-bind-address=0.0.0.0:{port}"))
    );
    for page in ["docs/page.md", "docs/reference/run.md"] {
        assert!(read(page).contains(&format!(":{port}")), "{page}");
    }
    for path in ["deploy/monitoring/dashboard.json", "deploy/helm/kubegc/files/dashboard.json"] {
        let dashboard: Value = serde_json::from_str(&read(path)).unwrap();
        let variables = dashboard["templating"]["list"].as_array().unwrap();
        let page = variables.iter().find(|variable| variable["label"] == "Page of kubegc").unwrap();
        assert_eq!(page["query"], json!(format!("https://localhost:{port}")), "{path}");
    }
}

/// Names, reasons and messages come from whoever writes objects. No command, in any format, prints text that would control the
/// terminal or reorder its line.
#[tokio::test]
async fn what_others_wrote_does_not_command_the_terminal() {
    const HOSTILE: &str = "x\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{7f}\u{202e}txt\u{2066}\r";
    let server = Kubegc::start_collectors();
    let client = server.client().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let owner = json!({"apiVersion": "v1", "kind": format!("Kind{HOSTILE}"), "name": format!("name{HOSTILE}"), "uid": format!("uid{HOSTILE}")});
    let absent = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": format!("gone{HOSTILE}"), "uid": format!("gone{HOSTILE}")});
    let annotations = json!({"kubegc.io/ttl": HOSTILE, "note": HOSTILE});
    for (name, owners) in
        [("held", json!([owner])), ("both", json!([owner, absent])), ("deleted", json!([absent]))]
    {
        let metadata = json!({"name": name, "annotations": annotations, "ownerReferences": owners});
        create(&client, maps, json!({"metadata": metadata})).await;
    }
    let finalizers = json!({"metadata": {"name": "stuck", "finalizers": ["example.com/never"], "ownerReferences": [owner]}});
    create(&client, maps, finalizers).await;
    ask(&client, Method::DELETE, &format!("{maps}/stuck"), &[], &json!({})).await;
    // The collector has deleted one object, so the journal has an entry.
    while get(&client, &format!("{maps}/deleted"), &[]).await.0 != 404 {
        tokio::task::yield_now().await;
    }
    let mut shown = 0;
    for command in [
        &["why", "cm/held"][..],
        &["why", "cm/both"],
        &["why", "cm/stuck"],
        &["why", "cm/deleted"],
        &["tree", "cm/held"],
        &["tree", "cm/both", "--owners"],
        &["plan", "cm/held"],
        &["stuck"],
        &["garbage"],
        &["doctor"],
        &["journal"],
        &["delete", "cm/both", "--dry-run"],
    ] {
        for form in ["text", "wide", "name", "json", "custom-columns=A:.items,B:.name", "dot"] {
            let output = std::process::Command::new(env!("CARGO_BIN_EXE_kubegc"))
                .args(command)
                .args(["-o", form])
                .env("KUBECONFIG", &server.kubeconfig)
                .output()
                .unwrap();
            for bytes in [output.stdout, output.stderr] {
                let text = String::from_utf8(bytes).unwrap();
                let hidden = text.chars().find(|&c| {
                    c.is_control() && !matches!(c, '\n' | '\t')
                        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
                });
                assert_eq!(hidden, None, "{command:?} -o {form}: {text:?}");
                shown += usize::from(text.contains("\\u{1b}") || text.contains("\\u001b"));
            }
        }
    }
    assert!(shown > 5, "only {shown} outputs show the characters that were written");
}
