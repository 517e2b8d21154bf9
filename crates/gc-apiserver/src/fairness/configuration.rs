//! Flow schemas and priority levels, ready to classify requests.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use gc_registry::api::UserInfo;
use gc_registry::bootstrap::flow_control;
use serde_json::Value;

/// Name of the level that never waits.
const EXEMPT: &str = "exempt";
/// Name of the level for requests that no schema matches.
const CATCH_ALL: &str = "catch-all";
/// Maximum number of queues per level.
const MAXIMUM_QUEUES: usize = 10_000;

/// Properties of a request that schemas match on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestProperties<'a> {
    /// A resource; the namespace is empty for cluster-scoped ones and across namespaces.
    Resource { verb: &'a str, group: &'a str, resource: &'a str, subresource: &'a str, namespace: &'a str },
    /// Any other path.
    Path { verb: &'a str, path: &'a str },
}

/// Classification of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flow {
    /// Name of the flow schema.
    pub(crate) schema: Arc<str>,
    /// UID of the flow schema; empty if it is not stored.
    pub(crate) schema_uid: Arc<str>,
    /// UID of the priority level; empty if it is not stored.
    pub(crate) level_uid: Arc<str>,
    /// Name of the priority level.
    pub(crate) level: Arc<str>,
    /// True if requests of the level never wait.
    pub(crate) exempt: bool,
    /// Distinguishes the flows of one level.
    pub(crate) hash: u64,
}

impl Flow {
    /// Returns the headers that name the schema and the level of a request.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [
            ("x-kubernetes-pf-flowschema-uid", &*self.schema_uid),
            ("x-kubernetes-pf-prioritylevel-uid", &*self.level_uid),
        ];
        all.into_iter().filter(|(_, uid)| !uid.is_empty())
    }
}

/// Concurrency shares of a priority level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    pub(crate) uid: Arc<str>,
    pub(crate) exempt: bool,
    /// Share of the seats, relative to the shares of the other levels.
    pub(crate) shares: u64,
    /// Percentage of its seats that other levels may borrow.
    pub(crate) lendable_percent: u64,
    /// Percentage of its own seats that it may borrow in addition.
    pub(crate) borrowing_percent: Option<u64>,
    pub(crate) queues: Option<Queues>,
}

/// Queues for requests that find no seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queues {
    pub(crate) count: usize,
    /// Number of queues that one flow may use.
    pub(crate) hand: usize,
    pub(crate) length: usize,
}

#[derive(Debug)]
struct Schema {
    name: Arc<str>,
    uid: Arc<str>,
    level: Arc<str>,
    precedence: i64,
    distinguisher: Distinguisher,
    rules: Vec<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Distinguisher {
    None,
    User,
    Namespace,
}

/// Flow schemas and priority levels.
#[derive(Debug)]
pub(crate) struct Configuration {
    schemas: Vec<Schema>,
    pub(crate) levels: BTreeMap<Arc<str>, Level>,
}

impl Default for Configuration {
    fn default() -> Self {
        Self::new(&[], &[])
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn number(value: &Value, name: &str, default: u64) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or(default)
}

impl Configuration {
    /// Reads the stored objects. Without any, upstream's defaults apply; the two mandatory levels always do.
    pub(crate) fn new(schemas: &[Value], levels: &[Value]) -> Self {
        let (mut all_schemas, mut all_levels) = (schemas.to_vec(), levels.to_vec());
        let nothing_stored = schemas.is_empty() && levels.is_empty();
        let add = |all: &mut Vec<Value>, defaults: Vec<Value>| {
            for default in defaults {
                let name = text(&default, "/metadata/name");
                let missing = !all.iter().any(|one| text(one, "/metadata/name") == name);
                if missing && (nothing_stored || matches!(name, EXEMPT | CATCH_ALL)) {
                    all.push(default);
                }
            }
        };
        add(&mut all_schemas, flow_control::flow_schemas());
        add(&mut all_levels, flow_control::priority_levels());
        let levels: BTreeMap<Arc<str>, Level> = all_levels
            .iter()
            .map(|level| (Arc::from(text(level, "/metadata/name")), Level::of(level)))
            .collect();
        let mut schemas: Vec<Schema> = all_schemas.iter().map(Schema::of).collect();
        // Requests of a schema whose level is missing would have no seats.
        schemas.retain(|schema| levels.contains_key(&schema.level));
        schemas.sort_by(|one, other| (one.precedence, &one.name).cmp(&(other.precedence, &other.name)));
        Self { schemas, levels }
    }

    /// Returns the flow of a request. `seed` makes hashes specific to this process.
    pub(crate) fn classify(&self, user: &UserInfo, about: RequestProperties<'_>, seed: u64) -> Flow {
        let found = self.schemas.iter().find(|schema| schema.matches(user, about));
        let level = found.map_or_else(|| CATCH_ALL.into(), |schema| Arc::clone(&schema.level));
        let mut hasher = DefaultHasher::new();
        seed.hash(&mut hasher);
        if let Some(schema) = found {
            schema.name.hash(&mut hasher);
            match (schema.distinguisher, about) {
                (Distinguisher::User, _) => user.name.hash(&mut hasher),
                (Distinguisher::Namespace, RequestProperties::Resource { namespace, .. }) => {
                    namespace.hash(&mut hasher);
                }
                _ => {}
            }
        }
        let entitled = self.levels.get(&level);
        Flow {
            schema: found.map_or_else(|| CATCH_ALL.into(), |schema| Arc::clone(&schema.name)),
            schema_uid: found.map_or_else(|| "".into(), |schema| Arc::clone(&schema.uid)),
            level_uid: entitled.map_or_else(|| "".into(), |level| Arc::clone(&level.uid)),
            exempt: entitled.is_some_and(|level| level.exempt),
            level,
            hash: hasher.finish(),
        }
    }
}

impl Level {
    fn of(object: &Value) -> Self {
        let spec = &object["spec"];
        let limited = &spec["limited"];
        let exempt = text(spec, "/type") == "Exempt";
        // An exempt level has no share unless it configures one.
        let (shared, default_shares) = if exempt { (&spec["exempt"], 0) } else { (limited, 30) };
        let queuing = &limited["limitResponse"]["queuing"];
        let queues = (text(limited, "/limitResponse/type") == "Queue").then(|| {
            let size = |name, default| usize::try_from(number(queuing, name, default)).unwrap_or(1).max(1);
            let count = size("queues", 64).min(MAXIMUM_QUEUES);
            Queues { count, hand: size("handSize", 8).min(count), length: size("queueLengthLimit", 50) }
        });
        Self {
            uid: text(object, "/metadata/uid").into(),
            exempt,
            shares: number(shared, "nominalConcurrencyShares", default_shares),
            lendable_percent: number(shared, "lendablePercent", 0).min(100),
            borrowing_percent: limited.get("borrowingLimitPercent").and_then(Value::as_u64),
            queues,
        }
    }
}

fn items<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

/// Reports whether a rule's list contains a name or the wildcard.
fn names(rule: &Value, list: &str, wanted: &str) -> bool {
    items(rule, list).any(|item| item == "*" || item == wanted)
}

impl Schema {
    fn of(object: &Value) -> Self {
        let spec = &object["spec"];
        Self {
            name: text(object, "/metadata/name").into(),
            uid: text(object, "/metadata/uid").into(),
            level: text(spec, "/priorityLevelConfiguration/name").into(),
            precedence: spec.get("matchingPrecedence").and_then(Value::as_i64).unwrap_or(1000),
            distinguisher: match text(spec, "/distinguisherMethod/type") {
                "ByUser" => Distinguisher::User,
                "ByNamespace" => Distinguisher::Namespace,
                _ => Distinguisher::None,
            },
            rules: items(spec, "rules").cloned().collect(),
        }
    }

    fn matches(&self, user: &UserInfo, about: RequestProperties<'_>) -> bool {
        self.rules.iter().any(|rule| {
            items(rule, "subjects").any(|subject| is_subject(subject, user))
                && match about {
                    RequestProperties::Resource { .. } => {
                        items(rule, "resourceRules").any(|rule| is_about_resource(rule, about))
                    }
                    RequestProperties::Path { verb, path } => items(rule, "nonResourceRules")
                        .any(|rule| names(rule, "verbs", verb) && is_about_path(rule, path)),
                }
        })
    }
}

fn is_subject(subject: &Value, user: &UserInfo) -> bool {
    match text(subject, "/kind") {
        "User" => matches!(text(subject, "/user/name"), name if name == "*" || name == user.name),
        "Group" => {
            let name = text(subject, "/group/name");
            name == "*" || user.groups.iter().any(|group| group == name)
        }
        "ServiceAccount" => {
            let (namespace, name) =
                (text(subject, "/serviceAccount/namespace"), text(subject, "/serviceAccount/name"));
            let account =
                user.name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
            account.is_some_and(|(its_namespace, its_name)| {
                its_namespace == namespace && (name == "*" || its_name == name)
            })
        }
        _ => false,
    }
}

fn is_about_resource(rule: &Value, about: RequestProperties<'_>) -> bool {
    let RequestProperties::Resource { verb, group, resource, subresource, namespace } = about else {
        return false;
    };
    let is_named = |item: &Value| match item.as_str().unwrap_or_default() {
        "*" => true,
        name if subresource.is_empty() => name == resource,
        name => name.split_once('/') == Some((resource, subresource)),
    };
    names(rule, "verbs", verb)
        && names(rule, "apiGroups", group)
        && items(rule, "resources").any(is_named)
        && match namespace {
            "" => rule["clusterScope"] == true,
            namespace => names(rule, "namespaces", namespace),
        }
}

fn is_about_path(rule: &Value, path: &str) -> bool {
    items(rule, "nonResourceURLs").any(|item| match item.as_str().unwrap_or_default() {
        "*" => true,
        pattern => match pattern.strip_suffix('*') {
            Some(prefix) => path.starts_with(prefix),
            None => pattern == path,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn user(name: &str, groups: &[&str]) -> UserInfo {
        let groups = groups.iter().chain(&["system:authenticated"]).map(ToString::to_string).collect();
        UserInfo { name: name.into(), groups, ..UserInfo::default() }
    }

    fn on<'a>(verb: &'a str, group: &'a str, resource: &'a str, namespace: &'a str) -> RequestProperties<'a> {
        RequestProperties::Resource { verb, group, resource, subresource: "", namespace }
    }

    #[test]
    fn requests_belong_where_they_belong_upstream() {
        let defaults = Configuration::default();
        let admin = user("admin", &["system:masters"]);
        let node = user("system:node:a", &["system:nodes"]);
        let collector = user(
            "system:serviceaccount:kube-system:generic-garbage-collector",
            &["system:serviceaccounts", "system:serviceaccounts:kube-system"],
        );
        let account = user("system:serviceaccount:default:app", &["system:serviceaccounts"]);
        let person = user("eve", &[]);
        let leases = "coordination.k8s.io";
        let table = [
            (&admin, on("create", "", "pods", "a"), "exempt"),
            (&admin, RequestProperties::Path { verb: "get", path: "/metrics" }, "exempt"),
            (&person, RequestProperties::Path { verb: "get", path: "/readyz" }, "exempt"),
            (&person, RequestProperties::Path { verb: "get", path: "/readyz/etcd" }, "global-default"),
            (&person, RequestProperties::Path { verb: "post", path: "/readyz" }, "global-default"),
            (&node, on("update", leases, "leases", "kube-node-lease"), "node-high"),
            (&node, on("update", "", "nodes", ""), "node-high"),
            (&node, on("list", "", "pods", ""), "system"),
            (&collector, on("update", leases, "leases", "kube-system"), "leader-election"),
            (&collector, on("delete", "", "pods", "a"), "workload-high"),
            (&account, on("delete", "", "pods", "a"), "workload-low"),
            (&person, on("delete", "", "pods", "a"), "global-default"),
        ];
        for (user, about, want) in table {
            assert_eq!(&*defaults.classify(user, about, 0).level, want, "{} {about:?}", user.name);
        }
    }

    #[test]
    fn flows_are_told_apart_by_what_the_schema_names() {
        let defaults = Configuration::default();
        let hash =
            |user: &UserInfo, namespace| defaults.classify(user, on("get", "", "pods", namespace), 7).hash;
        let (eve, bob) = (user("eve", &[]), user("bob", &[]));
        assert_eq!(hash(&eve, "a"), hash(&eve, "b"), "by user");
        assert_ne!(hash(&eve, "a"), hash(&bob, "a"), "by user");
        let account = user("system:serviceaccount:kube-system:x", &["system:serviceaccounts"]);
        assert_ne!(hash(&account, "a"), hash(&account, "b"), "by namespace");
    }

    #[test]
    fn stored_objects_count_and_the_mandatory_ones_cannot_be_missing() {
        let level = json!({"metadata": {"name": "mine", "uid": "u-level"}, "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 7, "lendablePercent": 10, "borrowingLimitPercent": 50,
            "limitResponse": {"type": "Queue", "queuing": {"queues": 4, "handSize": 9, "queueLengthLimit": 2}}}}});
        let schema = |name: &str, level: &str, precedence: u32| {
            json!({"metadata": {"name": name, "uid": "u-schema"}, "spec": {
                "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence,
                "rules": [{"subjects": [{"kind": "User", "user": {"name": "eve"}}], "resourceRules": [
                    {"verbs": ["get"], "apiGroups": ["apps"], "resources": ["deployments/scale"], "namespaces": ["a"]}]}]}})
        };
        let stored =
            Configuration::new(&[schema("first", "missing", 5), schema("second", "mine", 6)], &[level]);
        let scale = |namespace| RequestProperties::Resource {
            verb: "get",
            group: "apps",
            resource: "deployments",
            subresource: "scale",
            namespace,
        };
        let flow = stored.classify(&user("eve", &[]), scale("a"), 0);
        assert_eq!((&*flow.level, &*flow.schema_uid, &*flow.level_uid), ("mine", "u-schema", "u-level"));
        assert_eq!(&*stored.classify(&user("eve", &[]), scale("b"), 0).level, "catch-all");
        assert!(stored.classify(&user("root", &["system:masters"]), scale("b"), 0).exempt);
        assert_eq!(
            stored.levels["mine"],
            Level {
                uid: "u-level".into(),
                exempt: false,
                shares: 7,
                lendable_percent: 10,
                borrowing_percent: Some(50),
                queues: Some(Queues { count: 4, hand: 4, length: 2 }),
            }
        );
    }
}
