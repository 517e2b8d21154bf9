//! Tests of the permissions that roles grant and withhold.

use super::*;
use serde_json::json;

fn attributes<'a>(
    verb: &'a str,
    group: &'a str,
    resource: &'a str,
    subresource: &'a str,
    namespace: &'a str,
    name: &'a str,
) -> Question<'a> {
    Question::Resource(Attributes { verb, group, version: "v1", resource, subresource, namespace, name })
}

#[test]
fn rules_match_as_upstreams_do() {
    let rule = |verbs: &str, groups: &str, resources: &str, names: &str| {
        let list = |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
        let groups = groups.split(' ').map(str::to_owned).collect();
        Rule { verbs: list(verbs), groups, resources: list(resources), names: list(names), urls: vec![] }
    };
    let get = |resource, subresource, name| attributes("get", "", resource, subresource, "n", name);
    let table = [
        (rule("get", "", "pods", ""), get("pods", "", "p"), true),
        (rule("get", "", "pods", ""), get("pods", "status", "p"), false),
        (rule("get", "", "pods/status", ""), get("pods", "status", "p"), true),
        (rule("get", "", "pods/status", ""), get("pods", "", "p"), false),
        (rule("get", "", "*/status", ""), get("pods", "status", "p"), true),
        (rule("get", "", "*", ""), get("pods", "status", "p"), true),
        (rule("get", "", "pods/*", ""), get("pods", "status", "p"), false),
        (rule("*", "*", "*", ""), get("pods", "", "p"), true),
        (rule("list", "", "pods", ""), get("pods", "", "p"), false),
        (rule("get", "apps", "pods", ""), get("pods", "", "p"), false),
        (rule("get", "", "pods", "a b"), get("pods", "", "b"), true),
        (rule("get", "", "pods", "a b"), get("pods", "", "c"), false),
        (rule("get", "", "pods", "a"), get("pods", "", ""), false),
    ];
    for (rule, question, want) in table {
        assert_eq!(rule.allows(&question), want, "{rule:?} {question:?}");
    }
    let urls = [
        ("/healthz", "/healthz", true),
        ("/api/*", "/api/v1", true),
        ("/api/*", "/apis", false),
        ("*", "/x", true),
    ];
    for (url, path, want) in urls {
        let rule = Rule { verbs: vec!["get".into()], urls: vec![url.into()], ..Rule::default() };
        assert_eq!(rule.allows(&Question::Path { verb: "get", path }), want, "{url} {path}");
    }
}

fn example() -> Rbac {
    let rbac = Rbac::default();
    rbac.change(|rules| {
        rules.apply(
            "clusterroles",
            &json!({"metadata": {"name": "reader", "labels": {"agg": "yes"}},
            "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}),
            true,
        );
        rules.apply(
            "clusterroles",
            &json!({"metadata": {"name": "gathered"},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"agg": "yes"}}]},
            "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}),
            true,
        );
        rules.apply(
            "roles",
            &json!({"metadata": {"name": "writer", "namespace": "a"},
            "rules": [{"verbs": ["update"], "apiGroups": [""], "resources": ["pods"]}]}),
            true,
        );
        rules.apply(
            "rolebindings",
            &json!({"metadata": {"name": "b", "namespace": "a"},
            "roleRef": {"kind": "Role", "name": "writer"},
            "subjects": [{"kind": "ServiceAccount", "name": "robot"}, {"kind": "User", "name": "bob"}]}),
            true,
        );
        rules.apply(
            "rolebindings",
            &json!({"metadata": {"name": "c", "namespace": "a"},
            "roleRef": {"kind": "ClusterRole", "name": "gathered"},
            "subjects": [{"kind": "Group", "name": "readers"}]}),
            true,
        );
        rules.apply(
            "clusterrolebindings",
            &json!({"metadata": {"name": "all"},
            "roleRef": {"kind": "ClusterRole", "name": "reader"},
            "subjects": [{"kind": "User", "name": "eve"}]}),
            true,
        );
    });
    rbac
}

fn user(name: &str, groups: &[&str]) -> UserInfo {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    UserInfo { name: name.into(), groups, ..UserInfo::default() }
}

#[test]
fn bindings_give_roles_to_users_groups_and_accounts() {
    let rbac = example();
    let table = [
        (user("bob", &[]), "update", "a", true),
        (user("bob", &[]), "update", "b", false),
        (user("bob", &[]), "get", "a", false),
        (user("system:serviceaccount:a:robot", &[]), "update", "a", true),
        (user("system:serviceaccount:b:robot", &[]), "update", "a", false),
        (user("x", &["readers"]), "get", "a", true),
        (user("x", &["readers"]), "get", "", false),
        (user("x", &["readers"]), "delete", "a", false),
        (user("eve", &[]), "get", "", true),
        (user("eve", &[]), "get", "b", true),
        (user("root", &["system:masters"]), "delete", "", true),
        (user("nobody", &[]), "get", "a", false),
    ];
    for (user, verb, namespace, want) in table {
        let question = attributes(verb, "", "pods", "", namespace, "p");
        assert_eq!(rbac.decide(&user, &question).allowed, want, "{user:?} {verb} {namespace}");
    }
}

#[test]
fn what_is_deleted_no_longer_counts() {
    let rbac = example();
    rbac.change(|rules| {
        rules.apply("rolebindings", &json!({"metadata": {"name": "b", "namespace": "a"}}), false);
        rules.clear("clusterroles");
    });
    for (name, verb) in [("bob", "update"), ("eve", "get")] {
        let question = attributes(verb, "", "pods", "", "a", "p");
        assert!(!rbac.decide(&user(name, &[]), &question).allowed, "{name}");
    }
}

#[test]
fn nobody_gives_more_than_he_has() {
    let rbac = example();
    let wanted = |verbs: &[&str], resources: &[&str], names: &[&str]| {
        let list = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>();
        vec![Rule {
            verbs: list(verbs),
            groups: list(&[""]),
            resources: list(resources),
            names: list(names),
            urls: vec![],
        }]
    };
    let table = [
        ("bob", wanted(&["update"], &["pods"], &[]), 0),
        ("bob", wanted(&[], &["secrets"], &[]), 0),
        ("bob", wanted(&["update"], &["pods"], &["one"]), 0),
        ("bob", wanted(&["update", "delete"], &["pods"], &[]), 1),
        ("bob", wanted(&["update"], &["pods", "pods/status", "*"], &[]), 2),
        ("bob", wanted(&["*"], &["pods"], &[]), 1),
    ];
    for (name, rules, want) in table {
        let missing = match rbac.missing(&user(name, &[]), "a", &rules) {
            MissingPermissions::Nothing => 0,
            MissingPermissions::Some(missing) => missing.len(),
            MissingPermissions::TooMany => usize::MAX,
        };
        assert_eq!(missing, want, "{rules:?}");
    }
    // A million single permissions are not compared one by one with those of a user who has only a few.
    let many: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
    let large = Rule { verbs: many.clone(), groups: vec![String::new()], resources: many, ..Rule::default() };
    assert_eq!(
        rbac.missing(
            &user("bob", &[]),
            "a",
            &[large.clone(), large.clone(), large.clone(), large.clone(), large.clone(), large.clone()]
        ),
        MissingPermissions::TooMany
    );
    rbac.change(|rules| {
        rules.apply("clusterroles", &json!({"metadata": {"name": "all"}, "rules": [everything()[0].to_value()]}), true);
        rules.apply("clusterrolebindings", &json!({"metadata": {"name": "all-of-it"},
            "roleRef": {"kind": "ClusterRole", "name": "all"}, "subjects": [{"kind": "User", "name": "ann"}]}), true);
    });
    assert_eq!(rbac.missing(&user("ann", &[]), "a", &[large.clone(), large]), MissingPermissions::Nothing);
    let master = user("root", &["system:masters"]);
    assert_eq!(rbac.missing(&master, "", &wanted(&["*"], &["*"], &[])), MissingPermissions::Nothing);
}

#[test]
fn decisions_say_where_they_come_from() {
    let rbac = example();
    rbac.change(|rules| {
        let dangling = |kind: &str| {
            json!({"metadata": {"name": format!("to-{kind}"), "namespace": "a"},
            "roleRef": {"kind": kind, "name": "none"}, "subjects": [{"kind": "User", "name": "sue"}]})
        };
        rules.apply("clusterrolebindings", &dangling("ClusterRole"), true);
        rules.apply("rolebindings", &dangling("Role"), true);
    });
    let robot = "system:serviceaccount:a:robot";
    let table = [
        (
            user("bob", &[]),
            "update",
            "a",
            r#"RBAC: allowed by RoleBinding "b/a" of Role "writer" to User "bob""#,
        ),
        (
            user(robot, &[]),
            "update",
            "a",
            r#"RBAC: allowed by RoleBinding "b/a" of Role "writer" to ServiceAccount "robot/a""#,
        ),
        (
            user("x", &["readers"]),
            "get",
            "a",
            r#"RBAC: allowed by RoleBinding "c/a" of ClusterRole "gathered" to Group "readers""#,
        ),
        (
            user("eve", &[]),
            "get",
            "b",
            r#"RBAC: allowed by ClusterRoleBinding "all" of ClusterRole "reader" to User "eve""#,
        ),
        (user("eve", &[]), "delete", "b", ""),
        (user("sue", &[]), "get", "b", r#"RBAC: clusterrole.rbac.authorization.k8s.io "none" not found"#),
        (
            user("sue", &[]),
            "get",
            "a",
            r#"RBAC: [clusterrole.rbac.authorization.k8s.io "none" not found, role.rbac.authorization.k8s.io "none" not found]"#,
        ),
    ];
    for (user, verb, namespace, want) in table {
        let question = attributes(verb, "", "pods", "", namespace, "p");
        assert_eq!(rbac.decide(&user, &question).reason, want, "{user:?} {verb} {namespace}");
    }
}

#[test]
fn aggregated_roles_have_the_rules_of_what_they_select() {
    let rbac = Rbac::default();
    let rule = |verb: &str| json!({"verbs": [verb], "apiGroups": [""], "resources": ["pods"]});
    let role = |name: &str, labels: serde_json::Value, rules: serde_json::Value| json!({"metadata": {"name": name, "uid": format!("uid-{name}"), "labels": labels}, "rules": rules});
    let aggregate = |name: &str, selectors: serde_json::Value, rules: serde_json::Value| {
        let mut role = role(name, json!({"to": "all"}), rules);
        role["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
        role
    };
    let select = json!([{"matchLabels": {"to": "all"}}, {"matchExpressions": [{"key": "more", "operator": "Exists"}]}]);
    rbac.change(|rules| {
        for role in [
            role("b", json!({"to": "all"}), json!([rule("get"), rule("list")])),
            role("a", json!({"to": "all", "more": ""}), json!([rule("list")])),
            role("c", json!({"more": ""}), json!([rule("watch")])),
            role("d", json!({"to": "none"}), json!([rule("delete")])),
            aggregate("sum", select.clone(), json!([rule("*")])),
            aggregate("nothing", json!([]), json!(null)),
            aggregate("emptied", json!([]), json!([rule("get")])),
        ] {
            rules.apply("clusterroles", &role, true);
        }
    });
    let outdated = |rbac: &Rbac| -> Vec<(String, String, serde_json::Value)> {
        let roles = rbac.rules().outdated_aggregates().into_iter();
        roles.map(|role| (role.name, role.uid, role.rules.iter().map(Rule::to_value).collect())).collect()
    };
    let sum = json!([rule("list"), rule("get"), rule("watch")]);
    assert_eq!(
        outdated(&rbac),
        [
            ("emptied".to_owned(), "uid-emptied".to_owned(), json!([])),
            ("sum".to_owned(), "uid-sum".to_owned(), sum.clone()),
        ]
    );
    rbac.change(|rules| {
        rules.apply("clusterroles", &aggregate("sum", select, sum), true);
        rules.apply("clusterroles", &aggregate("emptied", json!([]), json!([])), true);
    });
    assert_eq!(outdated(&rbac), []);
}

fn binding(name: &str, namespace: &str, subjects: &serde_json::Value) -> serde_json::Value {
    json!({"metadata": {"name": name, "namespace": namespace},
        "roleRef": {"kind": "ClusterRole", "name": "reader"}, "subjects": subjects})
}

/// Counts work instead of measuring time: the number of bindings that a decision examines, with 50,000 of each kind.
#[test]
fn a_decision_examines_the_bindings_of_its_user_alone() {
    const BINDINGS: usize = 50_000;
    let rbac = example();
    rbac.change(|rules| {
        for number in 0..BINDINGS {
            let name = format!("b-{number}");
            let subjects = json!([{"kind": "User", "name": format!("user-{number}")},
                {"kind": "Group", "name": format!("group-{}", number % 1_000)},
                {"kind": "ServiceAccount", "name": "robot", "namespace": format!("n-{number}")}]);
            rules.apply("clusterrolebindings", &binding(&name, "", &subjects), true);
            rules.apply("rolebindings", &binding(&name, "a", &subjects), true);
        }
    });
    let examined = |user: &UserInfo| {
        let rules = rbac.rules();
        rules.cluster_role_bindings.candidates(user).count()
            + rules.role_bindings["a"].candidates(user).count()
    };
    let question = attributes("delete", "", "pods", "", "a", "p");
    for (user, want) in [
        (user("nobody", &["system:authenticated"]), 0),
        (user("user-7", &[]), 2),
        (user("user-7", &["group-7"]), 100),
        (user("user-7", &["group-8", "group-8"]), 102),
        (user("system:serviceaccount:n-9:robot", &[]), 2),
        (user("bob", &[]), 1),
    ] {
        assert_eq!(examined(&user), want, "{user:?}");
        assert!(!rbac.decide(&user, &question).allowed);
    }
    assert_eq!(rbac.namespaces_of(&user("user-7", &[])), ["a"]);
    let removed = json!({"metadata": {"name": "b-7", "namespace": "a"}});
    rbac.change(|rules| rules.apply("rolebindings", &removed, false));
    assert_eq!(examined(&user("user-7", &[])), 1);
    // A replaced binding applies to its present subjects.
    let other = binding("b-7", "", &json!([{"kind": "User", "name": "bob"}]));
    rbac.change(|rules| rules.apply("clusterrolebindings", &other, true));
    assert_eq!([user("user-7", &[]), user("bob", &[])].map(|user| examined(&user)), [0, 2]);
}

/// The index finds the same bindings as an examination of every one, in the same order.
#[test]
fn bindings_are_found_as_if_all_were_examined() {
    let names = ["a", "b", "n:a", ""];
    let mut bindings = Bindings::default();
    let mut number = 0_usize;
    for kinds in
        [&["User"][..], &["Group", "User"], &["ServiceAccount"], &["ServiceAccount", "Group", "Group"]]
    {
        for first in names {
            let subjects: Vec<_> = kinds
                .iter()
                .zip(names.iter().cycle().skip_while(|name| **name != first))
                .map(|(kind, name)| json!({"kind": kind, "name": name, "namespace": names[number % 4]}))
                .collect();
            let value = binding("x", "a", &json!(subjects));
            bindings.insert(&format!("{}-{number}", (number * 7) % 5), Arc::new(Binding::from_value(&value)));
            number += 1;
        }
    }
    let mut all: Vec<_> = bindings.all().collect();
    all.sort_unstable_by_key(|(name, _)| *name);
    for name in
        ["a", "b", "system:serviceaccount:a:b", "system:serviceaccount:n:a:a", "system:serviceaccount::a"]
    {
        for groups in [&[][..], &["a"], &["b", "a"], &["n:a", ""]] {
            let user = user(name, groups);
            let found: Vec<_> = bindings.of(&user).map(|(name, ..)| name).collect();
            let scanned: Vec<_> = all
                .iter()
                .filter(|(_, binding)| binding.applies_to(&user).is_some())
                .map(|(name, _)| *name)
                .collect();
            assert_eq!(found, scanned, "{user:?}");
        }
    }
}

/// Bindings do not affect the rules of aggregated roles, so their changes must not trigger a comparison of all roles.
#[tokio::test]
async fn changes_of_bindings_compare_no_roles() {
    let rbac = example();
    rbac.changed().await;
    rbac.change(|rules| rules.apply("clusterrolebindings", &binding("b", "", &json!([])), true));
    assert!(futures::FutureExt::now_or_never(rbac.changed()).is_none());
    rbac.change(|rules| rules.apply("clusterroles", &json!({"metadata": {"name": "reader"}}), false));
    assert!(futures::FutureExt::now_or_never(rbac.changed()).is_some());
}
