//! The page of `kubegc run`: the users who may ask, the data shown to each, and the orders that it accepts.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;
use kube::client::Body;
use serde_json::{Value, json};

use crate::support::Kubegc;
use crate::support_cluster::{Admin, LEASE, QUICK_LEASE, Run, kubeconfig, kubegc, privileged_for_all, until};
use crate::support_proxy::{Fault, Proxy};

/// A response: code, `Set-Cookie`, document.
pub(super) type Answer = (u16, String, Value);

/// Sends requests to the page of a collector, whatever its certificate.
pub(super) struct Browser {
    runtime: tokio::runtime::Runtime,
    client: kube::Client,
}

impl Browser {
    pub(super) fn of(address: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut config = kube::Config::new(format!("https://{address}").parse().unwrap());
        config.accept_invalid_certs = true;
        let client = {
            let _entered = runtime.enter();
            kube::Client::try_from(config).unwrap()
        };
        Self { runtime, client }
    }

    pub(super) fn ask(&self, method: Method, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        let mut request = http::Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut text = Vec::new();
        if !body.is_null() {
            request = request.header("content-type", "application/json");
            text = body.to_string().into_bytes();
        }
        self.runtime.block_on(async {
            let answer = self.client.send(request.body(Body::from(text)).unwrap()).await.unwrap();
            let code = answer.status().as_u16();
            let cookie = answer.headers().get("set-cookie").map(|value| value.to_str().unwrap().to_owned());
            let bytes = answer.into_body().collect_bytes().await.unwrap();
            (code, cookie.unwrap_or_default(), serde_json::from_slice(&bytes).unwrap_or_default())
        })
    }

    fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.ask(Method::GET, path, headers, &Value::Null)
    }

    /// Reads the feed as this user until it has this text, and returns it.
    fn feed_until(&self, headers: &[(&str, &str)], text: &str) -> String {
        let mut request = http::Request::builder().uri("/kubegc/v1/feed?from=0");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.runtime.block_on(async {
            let answer = self.client.send(request.body(Body::empty()).unwrap()).await.unwrap();
            assert_eq!(answer.status(), 200);
            let (mut body, mut read) = (answer.into_body(), String::new());
            while !read.contains(text) {
                let frame = http_body_util::BodyExt::frame(&mut body).await.expect("it does not end");
                read.push_str(std::str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap());
            }
            read
        })
    }
}

/// A server with two namespaces, a collector with a page, and two accounts: one that may do everything, and one with a Role in the
/// namespace `bank`.
pub(super) struct PageWorld {
    server: Kubegc,
    pub(super) admin: Admin,
    pub(super) run: Run,
    pub(super) browser: Browser,
    address: String,
    pub(super) tokens: [String; 2],
}

fn account(admin: &Admin, namespace: &str, name: &str) -> String {
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    admin.create(&accounts, &json!({"metadata": {"name": name}}));
    let ask = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let made = admin.create(&format!("{accounts}/{name}/token"), &ask);
    made["status"]["token"].as_str().unwrap().to_owned()
}

fn place(arguments: &[&str]) -> PageWorld {
    place_behind(arguments, Path::to_owned)
}

/// Returns the same world with a collector that reaches the server by a detour.
pub(super) fn place_behind(arguments: &[&str], lead: impl FnOnce(&Path) -> PathBuf) -> PageWorld {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    for namespace in ["shop", "bank"] {
        admin.create("/api/v1/namespaces", &json!({"metadata": {"name": namespace}}));
    }
    let tokens = [account(&admin, "kube-system", "root"), account(&admin, "bank", "ann")];
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let subject = |namespace: &str, name: &str| json!([{"kind": "ServiceAccount", "namespace": namespace, "name": name}]);
    let role =
        |kind: &str, name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    admin.create(
        &format!("{rbac}/clusterrolebindings"),
        &json!({"metadata": {"name": "root"}, "subjects": subject("kube-system", "root"),
            "roleRef": role("ClusterRole", "cluster-admin")}),
    );
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "delete"]}]);
    admin.create(
        &format!("{rbac}/namespaces/bank/roles"),
        &json!({"metadata": {"name": "reader"}, "rules": rules}),
    );
    admin.create(
        &format!("{rbac}/namespaces/bank/rolebindings"),
        &json!({"metadata": {"name": "ann"}, "subjects": subject("bank", "ann"), "roleRef": role("Role", "reader")}),
    );
    let mut all = vec!["--ui-bind-address=127.0.0.1:0"];
    all.extend(QUICK_LEASE);
    all.extend(arguments);
    let run = Run::with(&lead(&privileged_for_all(&server)), &all);
    let address = address_of(&run);
    let browser = Browser::of(&address);
    PageWorld { server, admin, run, browser, address, tokens }
}

impl PageWorld {
    /// Creates a cascade, a held object and a Secret in each namespace, and waits for the end of the cascades.
    fn furnish(&self) {
        self.begin_cascades();
        for namespace in ["shop", "bank"] {
            let leaf = format!("/api/v1/namespaces/{namespace}/configmaps/leaf-of-{namespace}");
            until("the leaf is deleted", || self.admin.get(&leaf).0 == 404);
        }
    }

    fn begin_cascades(&self) {
        for namespace in ["shop", "bank"] {
            let path = format!("/api/v1/namespaces/{namespace}/configmaps");
            let owner = self.admin.create(&path, &json!({"metadata": {"name": "owner"}}));
            let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
            let leaf =
                json!({"metadata": {"name": format!("leaf-of-{namespace}"), "ownerReferences": owners}});
            self.admin.create(&path, &leaf);
            let held = json!({"metadata": {"name": format!("held-in-{namespace}"), "finalizers": ["acme.dev/hold"]}});
            self.admin.create(&path, &held);
            let secrets = format!("/api/v1/namespaces/{namespace}/secrets");
            self.admin.create(&secrets, &json!({"metadata": {"name": "key"}}));
        }
        until("it is ready", || self.run.is_ready() && self.run.leads());
        for namespace in ["shop", "bank"] {
            let path = format!("/api/v1/namespaces/{namespace}/configmaps");
            for name in ["owner".to_owned(), format!("held-in-{namespace}")] {
                self.admin.delete_at(&format!("{path}/{name}"), "Background");
            }
        }
    }

    fn kubeconfig(&self, name: &str, token: &str) -> PathBuf {
        let file = self.server.folder.path().join(name);
        kubeconfig(&file, &self.server.url, &self.server.ca, token);
        file
    }
}

/// Returns a header with a bearer token.
fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

fn link(place: &PageWorld, file: &Path) -> String {
    let (code, out, error) = kubegc(&["ui", "--collector", &place.address], file);
    assert_eq!((code, error.as_str()), (Some(0), ""), "{out}");
    out.trim().strip_prefix(&format!("https://{}", place.address)).unwrap().to_owned()
}

#[test]
fn users_see_what_they_may_list_and_change_nothing() {
    let place = place(&[]);
    place.furnish();
    let PageWorld { admin, browser, tokens: [root, ann], .. } = &place;
    let (root, ann) = (bearer(root), bearer(ann));
    let (root, ann) = ([("authorization", root.as_str())], [("authorization", ann.as_str())]);

    // Nothing is shown without credentials, with unknown credentials, or on behalf of others.
    let json_of = |name: &str| format!("/kubegc/v1/{name}");
    for path in ["overview", "map", "search", "object", "plan", "feed", "openapi.json"] {
        assert_eq!(browser.get(&json_of(path), &[]).0, 401, "{path}");
        assert_eq!(browser.get(&json_of(path), &[("authorization", "Bearer guessed")]).0, 401, "{path}");
    }
    for (path, headers, code) in [
        ("/ui", &[][..], 401),
        ("/ui", &root, 200),
        ("/metrics", &root, 404),
        ("/kubegc/v1/journal", &root, 404),
        ("/kubegc/v1/overview", &[root[0], ("impersonate-user", "ann")], 400),
        ("/kubegc/v1/overview", &[root[0], ("sec-fetch-site", "cross-site")], 403),
        ("/kubegc/v1/openapi.json", &ann, 200),
    ] {
        assert_eq!(browser.get(path, headers).0, code, "{path} {headers:?}");
    }

    let (code, _, overview) = browser.get("/kubegc/v1/overview", &ann);
    assert_eq!(code, 200, "{overview}");
    let user = "system:serviceaccount:bank:ann";
    assert_eq!(
        overview["user"],
        json!({"name": user, "seesAll": false, "mayPause": false, "mayDelete": false})
    );
    assert_eq!((&overview["mode"], &overview["stopped"]), (&json!({"state": "Acting"}), &json!([])));
    assert_eq!(overview["namespaces"], json!([{"name": "bank", "objects": 1}]), "what is held");
    let total = |overview: &Value| -> u64 {
        overview["collected"].as_array().unwrap().iter().map(|one| one["total"].as_u64().unwrap()).sum()
    };
    assert_eq!(total(&overview), 1, "leaf-of-bank: {overview}");
    assert_eq!((&overview["terminating"]["total"], &overview["stuck"]["total"]), (&json!(1), &json!(1)));
    for path in
        ["overview", "overview?namespace=shop", "map?namespace=shop", "map?namespace=bank", "search?q=e"]
    {
        let text = browser.get(&json_of(path), &ann).2.to_string();
        assert!(!text.contains("shop") && !text.contains("\"key\""), "{path}: {text}");
    }
    let object = |namespace: &str| {
        let path = format!("object?resource=configmaps&namespace={namespace}&name=leaf-of-{namespace}");
        browser.get(&json_of(&path), &ann)
    };
    assert_ne!(object("shop").0, 200);
    let (code, _, gone) = object("bank");
    assert_eq!((code, &gone["journal"][0]["verdict"]), (200, &json!("OwnersAbsent")), "{gone}");
    let feed = browser.feed_until(&ann, "leaf-of-bank");
    assert!(!feed.contains("shop"), "{feed}");

    let (_, _, whole) = browser.get("/kubegc/v1/overview", &root);
    assert_eq!(whole["user"]["seesAll"], true);
    assert_eq!((total(&whole), &whole["stuck"]["items"][0]["objectCount"]), (2, &json!(2)), "{whole}");
    browser.feed_until(&root, "leaf-of-shop");

    // Even a user with all permissions can change nothing here.
    let order = json!({"resource": "configmaps", "namespace": "bank", "name": "owner", "uid": "u",
        "policy": "background", "objects": 1, "lostVolumes": 0});
    for path in ["delete", "pause", "resume"] {
        let body = if path == "delete" { &order } else { &json!({}) };
        let (code, _, status) = browser.ask(Method::POST, &json_of(path), &root, body);
        assert_eq!((code, &status["reason"]), (403, &json!("ReadOnly")), "{path}");
    }

    // After a Role is deleted, its user sees nothing.
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/bank/rolebindings/ann";
    admin.delete_at(bindings, "Background");
    admin.delete_at("/api/v1/namespaces/bank/serviceaccounts/ann", "Background");
    until("the token is no longer known", || browser.get("/kubegc/v1/overview", &ann).0 == 401);
}

#[test]
fn a_link_opens_a_session_that_gives_orders_with_the_rights_of_its_user() {
    let place = place(&["--ui-orders"]);
    place.furnish();
    let PageWorld { admin, browser, tokens: [root, ann], .. } = &place;
    let maps = "/api/v1/namespaces/bank/configmaps";
    let owned = admin.create(maps, &json!({"metadata": {"name": "owned"}}));
    let files = [place.kubeconfig("root", root), place.kubeconfig("ann", ann)];

    let (code, out, error) = kubegc(&["ui", "--collector", &place.address], &files[1]);
    assert_eq!((code, out.as_str()), (Some(2), ""), "whoever cannot read the Lease names the authority");
    assert!(error.contains("add --collector-certificate-authority FILE"), "{error}");
    let lease = admin.get(LEASE).1;
    let authority =
        lease["metadata"]["annotations"]["kubegc.io/pages-certificate-authority"].as_str().unwrap();
    let pem = place.server.folder.path().join("page.pem");
    std::fs::write(&pem, authority).unwrap();
    let by_file =
        ["ui", "--collector", &place.address, "--collector-certificate-authority", pem.to_str().unwrap()];
    let (code, out, error) = kubegc(&by_file, &files[1]);
    assert_eq!(code, Some(0), "{error}");
    let of_ann = out.trim().strip_prefix(&format!("https://{}", place.address)).unwrap().to_owned();

    let session = |login: &str| {
        let (code, cookie, _) = browser.get(login, &[]);
        assert_eq!(code, 200, "{login}");
        assert_eq!(browser.get(login, &[]).0, 401, "the link is spent");
        cookie.split_once(';').unwrap().0.to_owned()
    };
    let (root, ann) = (session(&link(&place, &files[0])), session(&of_ann));
    let (root, ann) = ([("cookie", root.as_str())], [("cookie", ann.as_str())]);
    let overview = |headers: &[(&str, &str)]| browser.get("/kubegc/v1/overview", headers).2;
    assert_eq!(overview(&ann)["user"]["mayDelete"], true);
    assert_eq!(overview(&root)["user"]["mayPause"], true);

    let order = |namespace: &str, uid: &Value| {
        json!({"resource": "configmaps", "namespace": namespace, "name": "owned", "uid": uid,
            "policy": "background", "objects": 1, "lostVolumes": 0})
    };
    let post = |path: &str, headers: &[(&str, &str)], body: &Value| {
        browser.ask(Method::POST, &format!("/kubegc/v1/{path}"), headers, body)
    };
    let elsewhere =
        admin.create("/api/v1/namespaces/shop/configmaps", &json!({"metadata": {"name": "owned"}}));
    let refused = post("delete", &ann, &order("shop", &elsewhere["metadata"]["uid"]));
    assert!(refused.0 >= 400, "{refused:?}");
    let deleted = post("delete", &ann, &order("bank", &owned["metadata"]["uid"]));
    assert_eq!(deleted.0, 202, "{deleted:?}");
    assert_eq!(admin.get(&format!("{maps}/owned")).0, 404);
    assert_eq!(admin.get("/api/v1/namespaces/shop/configmaps/owned").0, 200);

    // Orders to all collectors need a permission of their own.
    assert_eq!(post("pause", &ann, &json!({})).0, 403);
    assert_eq!(post("pause", &root, &json!({"reason": "lunch"})).0, 200);
    until("the collectors are paused", || place.run.state()["paused"].is_string());
    let mode = overview(&ann)["mode"].clone();
    assert_eq!((&mode["state"], &mode["reason"]), (&json!("Paused"), &json!("lunch")), "{mode}");
    assert_eq!(post("resume", &root, &json!({})).0, 200);
    until("they are resumed", || overview(&ann)["mode"]["state"] == "Acting");
    assert_eq!(post("logout", &ann, &json!({})).0, 200);
    assert_eq!(browser.get("/kubegc/v1/overview", &ann).0, 401);
}

/// A deletion that has happened is reported as such, even if nothing can be read right after it.
#[test]
fn a_deletion_that_happened_is_no_error() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let token = account(&admin, "kube-system", "root");
    admin.create(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        &json!({"metadata": {"name": "root"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "kube-system", "name": "root"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}}),
    );
    let maps = "/api/v1/namespaces/default/configmaps";
    let owned = admin.create(maps, &json!({"metadata": {"name": "owned"}}));
    let proxy = Proxy::start(&privileged_for_all(&server));
    let mut arguments = vec!["--ui-bind-address=127.0.0.1:0", "--ui-orders"];
    arguments.extend(QUICK_LEASE);
    let run = Run::with(&proxy.kubeconfig(), &arguments);
    let browser = Browser::of(&address_of(&run));
    let (token, is_deleted) = (bearer(&token), Arc::new(AtomicBool::new(false)));
    let headers = [("authorization", token.as_str())];
    until("the page knows the user", || browser.get("/kubegc/v1/overview", &headers).0 == 200);
    let seen = Arc::clone(&is_deleted);
    let follows_deletion = move |method: &Method, path: &str| {
        let is_deletion = method == Method::DELETE && path.contains("/configmaps/owned");
        seen.fetch_or(is_deletion, Ordering::Relaxed) && !is_deletion
    };
    proxy.inject(follows_deletion, Fault::Answer { code: 500, retry_after: None });
    let order = json!({"resource": "configmaps", "namespace": "default", "name": "owned",
        "uid": owned["metadata"]["uid"], "policy": "background", "objects": 1, "lostVolumes": 0});
    let answer = browser.ask(Method::POST, "/kubegc/v1/delete", &headers, &order);
    assert_eq!(answer.0, 202, "{answer:?}");
    assert!(is_deleted.load(Ordering::Relaxed));
    assert_eq!(admin.get(&format!("{maps}/owned")).0, 404);
    proxy.heal();
}

/// With a page, the Lease names the authority of its certificate; the pages on loopback have no certificate.
#[test]
fn a_collector_on_loopback_is_asked_without_tls_also_if_its_page_has_it() {
    let place = place(&[]);
    place.furnish();
    until("the Lease names the authority", || {
        let annotations = &place.admin.get(LEASE).1["metadata"]["annotations"];
        annotations["kubegc.io/pages-certificate-authority"].is_string()
    });
    let root = place.kubeconfig("root", &place.tokens[0]);
    let port = place.run.address().rsplit_once(':').unwrap().1;
    for address in [place.run.address(), &format!("localhost:{port}")] {
        let (code, out, error) = kubegc(&["journal", "-A", "--collector", address], &root);
        assert!(code == Some(0) && out.contains("leaf-of-bank"), "{address}: {out}{error}");
        let doctor = ["doctor", "--subject=self", "-o", "json", "--collector", address];
        let (_, out, error) = kubegc(&doctor, &root);
        let answer: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{error}"));
        let findings = answer["items"].as_array().unwrap();
        let of_collector: Vec<&Value> =
            findings.iter().filter(|finding| finding["check"] == "collector").collect();
        assert!(of_collector.iter().any(|finding| finding["state"] == "ok"), "{address}: {answer:#}");
        assert!(!out.contains("--bind-address"), "{address}: no advice to do what was done: {out}");
    }
    // The page itself is requested over TLS.
    let (code, out, error) = kubegc(&["stuck", "--collector", &place.address], &root);
    assert!(code == Some(0) && out.contains("held-in-bank"), "{out}{error}");
}

/// The page knows users by tokens: a user with a certificate is shown how to get one.
#[test]
fn a_user_with_a_client_certificate_learns_the_command_that_opens_the_page() {
    let place = place(&[]);
    until("it leads", || place.run.is_ready() && place.run.leads());
    let authority = |lease: Value| {
        lease["metadata"]["annotations"]["kubegc.io/pages-certificate-authority"].as_str().map(str::to_owned)
    };
    until("the Lease names the authority", || authority(place.admin.get(LEASE).1).is_some());
    let pem = place.server.folder.path().join("page.pem");
    std::fs::write(&pem, authority(place.admin.get(LEASE).1).unwrap()).unwrap();
    let of_user = rcgen::generate_simple_self_signed(["ann".to_owned()]).unwrap();
    let (certificate, key) =
        (place.server.folder.path().join("ann.crt"), place.server.folder.path().join("ann.key"));
    std::fs::write(&certificate, of_user.cert.pem()).unwrap();
    std::fs::write(&key, of_user.signing_key.serialize_pem()).unwrap();
    let file = place.server.folder.path().join("ann.kubeconfig");
    let configuration = json!({"apiVersion": "v1", "kind": "Config", "current-context": "ann",
        "clusters": [{"name": "c", "cluster": {"server": place.server.url, "certificate-authority": place.server.ca}}],
        "users": [{"name": "ann", "user": {"client-certificate": certificate, "client-key": key}}],
        "contexts": [{"name": "ann", "context": {"cluster": "c", "user": "ann"}}]});
    std::fs::write(&file, configuration.to_string()).unwrap();
    let arguments =
        ["ui", "--collector", &place.address, "--collector-certificate-authority", pem.to_str().unwrap()];
    let (code, out, error) = kubegc(&arguments, &file);
    assert_eq!((code, out.as_str()), (Some(1), ""), "{error}");
    let command = format!(
        "`kubegc ui --collector {} --token \"$(kubectl -n NAMESPACE create token ACCOUNT)\"`",
        place.address
    );
    assert!(error.contains(&command), "{error}");

    // The command works with the token that kubectl would print.
    let arguments = [&arguments[..], &["--token", &place.tokens[1]]].concat();
    let (code, out, error) = kubegc(&arguments, &file);
    assert!(code == Some(0) && out.starts_with("https://"), "{out}{error}");
}

/// Returns the address of the page as reported by this process.
pub(super) fn address_of(run: &Run) -> String {
    let mut address = String::new();
    until("the page is served", || {
        let log = run.log();
        let mut lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let page = lines.find_map(|line| line["fields"]["page"].as_str().map(str::to_owned));
        address = page.map(|page| page.replace("https://", "").replace("/ui", "")).unwrap_or_default();
        !address.is_empty()
    });
    address
}

#[test]
fn the_page_says_what_the_collectors_are_doing() {
    let place = place(&["--breaker-max-deletions=1"]);
    place.begin_cascades();
    let account = privileged_for_all(&place.server);
    let others = [
        (&["--ui-bind-address=127.0.0.1:0"][..], "Standby"),
        (&["--ui-bind-address=127.0.0.1:0", "--dry-run"], "DryRun"),
        (&["--ui-bind-address=127.0.0.1:0", "--observe"], "Observing"),
    ];
    let tokens = place.tokens.each_ref().map(|token| bearer(token));
    let [root, ann] = tokens.each_ref().map(|token| [("authorization", token.as_str())]);
    for (arguments, mode) in others {
        let run = Run::with(&account, arguments);
        let browser = Browser::of(&address_of(&run));
        let (code, _, overview) = browser.get("/kubegc/v1/overview", &root);
        assert_eq!((code, &overview["mode"]), (200, &json!({"state": mode})), "{overview}");
    }
    let stopped = |headers: &[(&str, &str)]| {
        let overview = place.browser.get("/kubegc/v1/overview", headers).2;
        overview["stopped"][0].clone()
    };
    until("the breaker trips", || stopped(&root).is_object());
    assert_eq!(
        (&stopped(&root)["resource"], stopped(&root)["why"].is_string()),
        (&json!("configmaps"), true)
    );
    assert_eq!(
        (&stopped(&ann)["resource"], &stopped(&ann)["why"]),
        (&json!("configmaps"), &Value::Null),
        "the reason counts objects of all namespaces"
    );
}
