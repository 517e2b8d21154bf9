//! `kubegc run` as another user: every request that it sends carries that identity.

use http::Method;
use serde_json::json;

use crate::support::Kubegc;
use crate::support_cluster::{Admin, QUICK_LEASE, Run, until};
use crate::support_proxy::Proxy;

#[test]
fn everything_that_is_sent_carries_the_identity() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let proxy = Proxy::start(&server.kubeconfig);
    let mut arguments = vec!["--as=ann", "--as-group=collectors", "--as-group=night", "--controllers=*"];
    arguments.extend(QUICK_LEASE);
    arguments.push("--ui-bind-address=127.0.0.1:0");
    let run = Run::with(&proxy.kubeconfig(), &arguments);
    until("it leads", || run.is_ready() && run.leads());
    // The requests include lists, watches, live reads, barriers, deletions and patches, Events, passes over a namespace, and the
    // Lease.
    let owner = admin.map("owner", None);
    admin.map("leaf", Some(("owner", &owner)));
    admin.delete("owner", "Foreground");
    until("the leaf is collected", || !admin.exists("leaf") && !admin.exists("owner"));
    let shop = "/api/v1/namespaces/shop";
    admin.create("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}}));
    admin.create(&format!("{shop}/configmaps"), &json!({"metadata": {"name": "stock"}}));
    admin.delete_at(shop, "Background");
    until("the namespace is gone", || admin.get(shop).0 == 404);
    let is_sent = |method: Method, part: &str| {
        proxy.forwarded().iter().any(|sent| sent.method == method && sent.path.contains(part))
    };
    for (method, part) in [
        (Method::GET, "watch="),
        (Method::DELETE, "/configmaps/leaf"),
        (Method::PATCH, "/configmaps/owner"),
        (Method::PUT, "/namespaces/shop/finalize"),
        (Method::PUT, "/leases/kubegc-garbage-collector"),
        (Method::POST, "/events"),
        (Method::POST, "accessreviews"),
    ] {
        until(&format!("{method} {part} is sent"), || is_sent(method.clone(), part));
    }
    let others: Vec<_> = proxy
        .forwarded()
        .into_iter()
        .filter(|sent| sent.identity != ["ann", "collectors", "night"])
        .map(|sent| (sent.method, sent.path, sent.identity))
        .collect();
    assert_eq!(others, []);
}
