//! No user can grant permissions that they do not hold, however a role or a binding is written.

use serde_json::{Value, json};

use crate::world::{APPLY, Client, JSON_PATCH, MERGE_PATCH, RBAC, World, rule, status_of};

const GROUP: &str = "rbac.authorization.k8s.io";
const AGGREGATION: &str = "must have cluster-admin privileges to use the aggregationRule";

/// Creates a user who may write roles and bindings, and otherwise only holds `get` on ConfigMaps.
async fn mallory(world: &World) -> Client {
    let all = ["roles", "rolebindings", "clusterroles", "clusterrolebindings"];
    let verbs = ["get", "create", "update", "patch", "delete"];
    world.grant("mallory", json!([rule(GROUP, &all, &verbs), rule("", &["configmaps"], &["get"])])).await
}

fn cluster_role(name: &str, rules: Value, aggregation: Value) -> Value {
    let mut role = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
    if !aggregation.is_null() {
        role["aggregationRule"] = aggregation;
    }
    role
}

/// Returns an aggregation rule that selects every bootstrap role, including `cluster-admin`.
fn gather_all() -> Value {
    json!({"clusterRoleSelectors": [{"matchLabels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}]})
}

#[tokio::test]
async fn an_aggregation_rule_needs_every_right() {
    let world = World::start().await;
    let mallory = mallory(&world).await;
    let roles = format!("{RBAC}/clusterroles");
    let held = || json!([rule("", &["configmaps"], &["get"])]);
    mallory.create(&roles, &cluster_role("plain", held(), Value::Null)).await;
    world
        .admin()
        .create(
            &roles,
            &cluster_role(
                "gathering",
                json!([]),
                json!({"clusterRoleSelectors": [{"matchLabels": {"to": "some"}}]}),
            ),
        )
        .await;

    let gathering = |name: &str| cluster_role(name, held(), gather_all());
    let plain = format!("{roles}/plain");
    let patch = json!({"aggregationRule": gather_all()});
    let add = json!([{"op": "add", "path": "/aggregationRule", "value": gather_all()}]);
    let strip = json!({"aggregationRule": null});
    let strategic = "application/strategic-merge-patch+json";
    let apply = format!("{plain}?fieldManager=m&force=true");
    let absent = format!("{roles}/absent?fieldManager=m");
    let gathered = format!("{roles}/gathering");
    for answer in [
        mallory.post(&roles, &gathering("new")).await,
        mallory.put(&plain, &gathering("plain")).await,
        mallory.patch(&plain, MERGE_PATCH, &patch).await,
        mallory.patch(&plain, strategic, &patch).await,
        mallory.patch(&plain, JSON_PATCH, &add).await,
        mallory.patch(&apply, APPLY, &gathering("plain")).await,
        mallory.patch(&absent, APPLY, &gathering("absent")).await,
        // She may not loosen or remove a rule that others rely on, either.
        mallory.patch(&gathered, MERGE_PATCH, &patch).await,
        mallory.patch(&gathered, MERGE_PATCH, &strip).await,
        mallory.put(&gathered, &cluster_role("gathering", held(), Value::Null)).await,
    ] {
        let (code, message) = status_of(&answer);
        assert_eq!((code, message.ends_with(AGGREGATION)), (403, true), "{message}");
    }
    let everything = json!([
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ]);
    let ann = world.grant("ann", everything).await;
    assert_eq!(ann.post(&roles, &gathering("new")).await.code, 201);
    assert_eq!(ann.patch(&gathered, MERGE_PATCH, &patch).await.code, 200);
}

#[tokio::test]
async fn aggregation_passes_on_stored_rules_and_launders_none() {
    let world = World::start().await;
    let roles = format!("{RBAC}/clusterroles");
    let select = json!({"clusterRoleSelectors": [{"matchLabels": {"to": "sum"}}]});
    world.admin().create(&roles, &cluster_role("sum", json!([]), select)).await;
    let mallory = mallory(&world).await;
    let labelled = |name: &str, verb: &str| {
        let mut role = cluster_role(name, json!([rule("", &["configmaps"], &[verb])]), Value::Null);
        role["metadata"]["labels"] = json!({"to": "sum"});
        role
    };
    assert_eq!(mallory.post(&roles, &labelled("more", "delete")).await.code, 403);
    mallory.create(&roles, &labelled("held", "get")).await;
    let sum = format!("{roles}/sum");
    for _ in 0..10_000 {
        let stored = world.admin().get(&sum).await.json()["rules"].clone();
        if stored == json!([rule("", &["configmaps"], &["get"])]) {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("the rules never arrived: {:?}", world.admin().get(&sum).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_object_that_is_checked_is_the_object_that_is_stored() {
    const TRIES: usize = 400;
    let world = World::start().await;
    // She holds `get` on a and `delete` on b, but never `delete` on a.
    let writer = rule(GROUP, &["roles"], &["get", "create", "patch"]);
    let mallory = world
        .grant("mallory", json!([writer, rule("", &["a"], &["get"]), rule("", &["b"], &["delete"])]))
        .await;
    let role = format!("{RBAC}/namespaces/default/roles/r");
    let states = [rule("", &["a"], &["get"]), rule("", &["b"], &["delete"])];
    let first = json!({"metadata": {"name": "r"}, "rules": [states[0]]});
    mallory.create(&format!("{RBAC}/namespaces/default/roles"), &first).await;
    let flipping = tokio::spawn({
        let (mallory, role) = (mallory.clone(), role.clone());
        async move {
            for turn in 0..TRIES {
                let patch = json!({"rules": [states[turn % 2]]});
                mallory.patch(&role, MERGE_PATCH, &patch).await;
            }
        }
    });
    let verb = json!([{"op": "replace", "path": "/rules/0/verbs", "value": ["delete"]}]);
    let mut outcomes = [0, 0];
    for _ in 0..TRIES {
        let answer = mallory.patch(&role, JSON_PATCH, &verb).await;
        match answer.code {
            200 => {
                outcomes[0] += 1;
                assert_eq!(answer.json()["rules"], json!([rule("", &["b"], &["delete"])]));
            }
            403 => outcomes[1] += 1,
            409 => {}
            code => panic!("{code}: {answer:?}"),
        }
    }
    flipping.await.unwrap();
    // Moves and copies within a role are checked by their result, too.
    let reset = json!({"rules": [rule("", &["a"], &["get"]), rule("", &["b"], &["delete"])]});
    assert_eq!(mallory.patch(&role, MERGE_PATCH, &reset).await.code, 200);
    let moved = json!([{"op": "copy", "from": "/rules/1/verbs", "path": "/rules/0/verbs"}]);
    assert_eq!(mallory.patch(&role, JSON_PATCH, &moved).await.code, 403);
    let harmless = json!([{"op": "copy", "from": "/rules/0", "path": "/rules/1"}]);
    assert_eq!(mallory.patch(&role, JSON_PATCH, &harmless).await.code, 200);
}

#[tokio::test]
async fn a_binding_is_judged_by_the_role_that_is_stored() {
    let world = World::start().await;
    let mallory = mallory(&world).await;
    let namespace = format!("{RBAC}/namespaces/default");
    let binding = |name: &str, kind: &str, role: &str| {
        json!({"metadata": {"name": name}, "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
            "subjects": [{"apiGroup": GROUP, "kind": "User", "name": "mallory"}]})
    };
    let refused = mallory
        .post(&format!("{RBAC}/clusterrolebindings"), &binding("up", "ClusterRole", "cluster-admin"))
        .await;
    assert_eq!(
        status_of(&refused),
        (
            403,
            "clusterrolebindings.rbac.authorization.k8s.io \"up\" is forbidden: user \"mallory\" \
             (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n\
             {APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}\n{NonResourceURLs:[\"*\"], Verbs:[\"*\"]}"
                .to_owned()
        )
    );
    let bindings = format!("{namespace}/rolebindings");
    // Each role is bound immediately after it was written.
    for (turn, (verb, want)) in
        [("get", 201), ("delete", 403), ("get", 201), ("list", 403)].into_iter().enumerate()
    {
        let name = format!("r{turn}");
        let role = json!({"metadata": {"name": name}, "rules": [rule("", &["configmaps"], &[verb])]});
        world.admin().create(&format!("{namespace}/roles"), &role).await;
        assert_eq!(mallory.post(&bindings, &binding(&name, "Role", &name)).await.code, want, "{verb}");
    }
    let absent = mallory.post(&bindings, &binding("x", "Role", "absent")).await;
    assert_eq!(status_of(&absent), (404, format!("rolebindings.{GROUP} \"absent\" not found")));
    let may_bind = json!([rule(GROUP, &["rolebindings"], &["create"]),
        {"apiGroups": [GROUP], "resources": ["clusterroles"], "resourceNames": ["view"], "verbs": ["bind"]}]);
    let binder = world.grant("binder", may_bind).await;
    assert_eq!(binder.post(&bindings, &binding("v", "ClusterRole", "view")).await.code, 201);
    assert_eq!(binder.post(&bindings, &binding("e", "ClusterRole", "edit")).await.code, 403);
}

#[tokio::test]
async fn a_right_to_escalate_one_role_creates_no_other() {
    let world = World::start().await;
    let roles = format!("{RBAC}/namespaces/default/roles");
    let role = |name: &str| json!({"metadata": {"name": name}, "rules": [rule("", &["pods"], &["delete"])]});
    let one = json!([rule(GROUP, &["roles"], &["get", "create", "update"]),
        {"apiGroups": [GROUP], "resources": ["roles"], "resourceNames": ["one"], "verbs": ["escalate"]}]);
    let eve = world.grant("eve", one).await;
    // A POST names no object in its path, so resourceNames cannot match.
    assert_eq!(eve.post(&roles, &role("one")).await.code, 403);
    world.admin().create(&roles, &json!({"metadata": {"name": "one"}})).await;
    assert_eq!(eve.put(&format!("{roles}/one"), &role("one")).await.code, 200);
}

#[tokio::test]
async fn a_collector_without_the_rights_of_a_role_can_remove_it() {
    let world = World::start().await;
    let all = ["roles", "rolebindings", "clusterroles", "clusterrolebindings"];
    let collector =
        world.grant("collector", json!([rule(GROUP, &all, &["get", "patch", "update", "delete"])])).await;
    let metadata = |name: &str| {
        json!({"name": name, "finalizers": ["example.com/f"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]})
    };
    let rules = json!([rule("", &["secrets"], &["*"])]);
    let reference = json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": "cluster-admin"});
    let namespace = format!("{RBAC}/namespaces/default");
    let admin = world.admin();
    let aggregated = json!({"metadata": metadata("agg"), "aggregationRule": gather_all()});
    for (collection, name, object) in [
        (format!("{namespace}/roles"), "r", json!({"metadata": metadata("r"), "rules": rules})),
        (format!("{namespace}/rolebindings"), "r", json!({"metadata": metadata("r"), "roleRef": reference})),
        (format!("{RBAC}/clusterroles"), "r", json!({"metadata": metadata("r"), "rules": rules})),
        (format!("{RBAC}/clusterroles"), "agg", aggregated),
        (
            format!("{RBAC}/clusterrolebindings"),
            "r",
            json!({"metadata": metadata("r"), "roleRef": reference}),
        ),
    ] {
        admin.create(&collection, &object).await;
        let path = format!("{collection}/{name}");
        let smuggled = json!({"metadata": {"finalizers": null, "labels": {"a": "b"}}});
        assert_eq!(collector.patch(&path, MERGE_PATCH, &smuggled).await.code, 403, "{path}");
        let orphan = json!([{"op": "remove", "path": "/metadata/ownerReferences/0"}]);
        let answer = collector.patch(&path, JSON_PATCH, &orphan).await;
        assert_eq!(answer.code, 200, "{path}: {answer:?}");
        assert_eq!(collector.send("DELETE", &path, &[], "").await.code, 200, "{path}");
        let finish = json!({"metadata": {"finalizers": null}});
        assert_eq!(collector.patch(&path, MERGE_PATCH, &finish).await.code, 200, "{path}");
        assert_eq!(admin.get(&path).await.code, 404, "{path}");
    }
}

#[tokio::test]
async fn a_role_of_a_million_permissions_is_refused_unexpanded() {
    let world = World::start().await;
    let mallory = mallory(&world).await;
    let many: Vec<String> = (0..20_000).map(|n| format!("x{n}")).collect();
    let rules = json!([{"apiGroups": many, "resources": many, "verbs": many}]);
    let role = json!({"metadata": {"name": "large"}, "rules": rules});
    let refused = mallory.post(&format!("{RBAC}/namespaces/default/roles"), &role).await;
    assert_eq!(
        status_of(&refused),
        (
            403,
            format!(
                "roles.{GROUP} \"large\" is forbidden: the rules name more permissions than can be compared with those of \
                 user \"mallory\""
            )
        )
    );
    let long = json!([{"apiGroups": [""], "resources": many, "verbs": ["get"]}]);
    let refused = mallory
        .post(
            &format!("{RBAC}/namespaces/default/roles"),
            &json!({"metadata": {"name": "long"}, "rules": long}),
        )
        .await;
    let (code, message) = status_of(&refused);
    assert_eq!((code, message.lines().count()), (403, 102), "a line for 100 of them and one for the rest");
}
