//! Priority levels and flow schemas of every cluster (kube-apiserver's mandatory and suggested ones).

use serde_json::{Value, json};

/// Name, shares, percentage that may be lent, and number of queues with the hand size; without queues, excess requests are refused.
type Level = (&'static str, u32, u32, Option<(u32, u32)>);

const LEVELS: [Level; 7] = [
    ("catch-all", 5, 0, None),
    ("system", 30, 33, Some((64, 6))),
    ("node-high", 40, 25, Some((64, 6))),
    ("leader-election", 10, 0, Some((16, 4))),
    ("workload-high", 40, 50, Some((128, 6))),
    ("workload-low", 100, 90, Some((128, 6))),
    ("global-default", 20, 50, Some((128, 6))),
];
/// Maximum number of requests waiting in one queue.
const QUEUE_LENGTH_LIMIT: u32 = 50;

/// Returns the PriorityLevelConfigurations.
#[must_use]
pub fn priority_levels() -> Vec<Value> {
    let exempt = json!({"metadata": metadata("exempt"), "spec": {"type": "Exempt",
        "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}}});
    let limited = LEVELS.iter().map(|(name, shares, lendable, queues)| {
        let response = match queues {
            Some((queues, hand)) => json!({"type": "Queue", "queuing": {
                "queues": queues, "handSize": hand, "queueLengthLimit": QUEUE_LENGTH_LIMIT}}),
            None => json!({"type": "Reject"}),
        };
        json!({"metadata": metadata(name), "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": shares, "lendablePercent": lendable, "limitResponse": response}}})
    });
    std::iter::once(exempt).chain(limited).collect()
}

/// Returns the FlowSchemas.
#[must_use]
pub fn flow_schemas() -> Vec<Value> {
    let everyone = || groups(&["system:unauthenticated", "system:authenticated"]);
    let all = |subjects: Value| {
        json!([{"subjects": subjects,
        "resourceRules": [resources(&["*"], "*", &["*"], true)],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]}])
    };
    let (by_user, by_namespace) = (Some("ByUser"), Some("ByNamespace"));
    let mut electors = vec![user("system:kube-controller-manager"), user("system:kube-scheduler")];
    electors.push(kube_system_accounts());
    let schemas = [
        ("exempt", "exempt", 1, None, all(groups(&["system:masters"]))),
        ("catch-all", "catch-all", 10_000, by_user, all(everyone())),
        (
            "probes",
            "exempt",
            2,
            None,
            json!([{"subjects": everyone(), "nonResourceRules": [
                {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}]}]),
        ),
        (
            "system-leader-election",
            "leader-election",
            100,
            by_user,
            json!([{"subjects": electors, "resourceRules": [
                resources(&["get", "create", "update"], "coordination.k8s.io", &["leases"], false)]}]),
        ),
        (
            "system-node-high",
            "node-high",
            400,
            by_user,
            json!([{"subjects": groups(&["system:nodes"]), "resourceRules": [
                resources(&["*"], "", &["nodes", "nodes/status"], true),
                resources(&["*"], "coordination.k8s.io", &["leases"], false)]}]),
        ),
        ("system-nodes", "system", 500, by_user, all(groups(&["system:nodes"]))),
        (
            "kube-controller-manager",
            "workload-high",
            800,
            by_namespace,
            all(json!([user("system:kube-controller-manager")])),
        ),
        ("kube-scheduler", "workload-high", 800, by_namespace, all(json!([user("system:kube-scheduler")]))),
        (
            "kube-system-service-accounts",
            "workload-high",
            900,
            by_namespace,
            all(json!([kube_system_accounts()])),
        ),
        ("service-accounts", "workload-low", 9000, by_user, all(groups(&["system:serviceaccounts"]))),
        ("global-default", "global-default", 9900, by_user, all(everyone())),
    ];
    schemas
        .into_iter()
        .map(|(name, level, precedence, distinguisher, rules)| {
            let mut schema = json!({"metadata": metadata(name), "spec": {
                "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence, "rules": rules}});
            if let Some(distinguisher) = distinguisher {
                schema["spec"]["distinguisherMethod"] = json!({"type": distinguisher});
            }
            schema
        })
        .collect()
}

/// Returns the status of a schema whose priority level exists.
pub(super) fn found(schema: &Value, now: jiff::Timestamp) -> Value {
    let level = schema.pointer("/spec/priorityLevelConfiguration/name").and_then(Value::as_str);
    let message = format!(
        "This FlowSchema references the PriorityLevelConfiguration object named {:?} and it exists",
        level.unwrap_or_default()
    );
    json!({"conditions": [{"type": "Dangling", "status": "False", "reason": "Found", "message": message,
        "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()}]})
}

fn metadata(name: &str) -> Value {
    json!({"name": name, "annotations": {"apf.kubernetes.io/autoupdate-spec": "true"}})
}

fn groups(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"kind": "Group", "group": {"name": name}})).collect()
}

fn user(name: &str) -> Value {
    json!({"kind": "User", "user": {"name": name}})
}

fn kube_system_accounts() -> Value {
    json!({"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "kube-system"}})
}

fn resources(verbs: &[&str], group: &str, resources: &[&str], cluster_scope: bool) -> Value {
    let mut rule = json!({"verbs": verbs, "apiGroups": [group], "resources": resources, "namespaces": ["*"]});
    if cluster_scope {
        rule["clusterScope"] = true.into();
    }
    rule
}
