//! Role-based access control: the rules of roles and bindings, kept in memory, and the questions put to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, RwLock};

use gc_registry::api::{Attributes, Authorizer, UserInfo};
use serde_json::Value;

use crate::auth::pki::MASTERS_GROUP;

/// The group of RBAC's own kinds.
pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";
/// Prefix of the user names of service accounts.
pub(crate) const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// One rule of a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rule {
    /// `verbs`
    pub(crate) verbs: Vec<String>,
    /// `apiGroups`
    pub(crate) groups: Vec<String>,
    /// `resources`, with `/subresource` where meant.
    pub(crate) resources: Vec<String>,
    /// `resourceNames`; empty is any.
    pub(crate) names: Vec<String>,
    /// `nonResourceURLs`
    pub(crate) urls: Vec<String>,
}

/// What somebody wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question<'a> {
    /// Something with a resource.
    Resource(Attributes<'a>),
    /// Something with a path that is no resource.
    Path {
        /// Lower-case method.
        verb: &'a str,
        /// Path.
        path: &'a str,
    },
}

fn any_or(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

impl Rule {
    /// Whether this rule allows it.
    pub(crate) fn allows(&self, question: &Question<'_>) -> bool {
        match question {
            Question::Resource(wanted) => {
                any_or(&self.verbs, wanted.verb)
                    && any_or(&self.groups, wanted.group)
                    && self.allows_resource(wanted.resource, wanted.subresource)
                    && (self.names.is_empty() || self.names.iter().any(|name| name == wanted.name))
            }
            Question::Path { verb, path } => {
                any_or(&self.verbs, verb) && self.urls.iter().any(|url| url_matches(url, path))
            }
        }
    }

    fn allows_resource(&self, resource: &str, subresource: &str) -> bool {
        self.resources.iter().any(|item| match item.split_once('/') {
            _ if item == "*" => true,
            None => subresource.is_empty() && item == resource,
            Some(("*", sub)) => !subresource.is_empty() && sub == subresource,
            Some((main, sub)) => main == resource && !subresource.is_empty() && sub == subresource,
        })
    }

    fn from_value(value: &Value) -> Self {
        let list = |name: &str| -> Vec<String> {
            value
                .get(name)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(|item| item.as_str().map(str::to_owned))
                .collect()
        };
        Self {
            verbs: list("verbs"),
            groups: list("apiGroups"),
            resources: list("resources"),
            names: list("resourceNames"),
            urls: list("nonResourceURLs"),
        }
    }

    /// Takes a rule apart into rules of one verb, group, resource and name (or verb and URL) each.
    fn atoms(&self) -> Vec<Rule> {
        let one = |text: &String| vec![text.clone()];
        let mut atoms = Vec::new();
        for verb in &self.verbs {
            for url in &self.urls {
                atoms.push(Rule { verbs: one(verb), urls: one(url), ..Rule::default() });
            }
            for group in &self.groups {
                for resource in &self.resources {
                    let base = Rule {
                        verbs: one(verb),
                        groups: one(group),
                        resources: one(resource),
                        ..Rule::default()
                    };
                    if self.names.is_empty() {
                        atoms.push(base.clone());
                    }
                    for name in &self.names {
                        atoms.push(Rule { names: one(name), ..base.clone() });
                    }
                }
            }
        }
        atoms
    }

    /// Whether this rule allows all that an atom allows.
    fn covers(&self, atom: &Rule) -> bool {
        let covers = |mine: &[String], theirs: &[String]| {
            theirs.iter().all(|wanted| mine.iter().any(|have| have == "*" || have == wanted))
        };
        let resources = atom.resources.iter().all(|wanted| {
            let sub = wanted.split_once('/').map(|(_, sub)| sub);
            self.resources.iter().any(|have| {
                have == "*"
                    || have == wanted
                    || (sub.is_some()
                        && have.split_once('/').is_some_and(|(m, s)| m == "*" && Some(s) == sub))
            })
        });
        let urls = atom
            .urls
            .iter()
            .all(|wanted| self.urls.iter().any(|have| have == wanted || url_covers(have, wanted)));
        let names = self.names.is_empty()
            || (!atom.names.is_empty() && atom.names.iter().all(|name| self.names.contains(name)));
        covers(&self.verbs, &atom.verbs)
            && covers(&self.groups, &atom.groups)
            && resources
            && urls
            && (!atom.urls.is_empty() || names)
    }
}

fn url_matches(pattern: &str, path: &str) -> bool {
    pattern == "*"
        || pattern == path
        || pattern.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix))
}

fn url_covers(have: &str, wanted: &str) -> bool {
    have == "*"
        || have.strip_suffix('*').is_some_and(|prefix| wanted.trim_end_matches('*').starts_with(prefix))
}

/// The rules in a role.
pub(crate) fn rules_of(role: &Value) -> Vec<Rule> {
    role.get("rules").and_then(Value::as_array).into_iter().flatten().map(Rule::from_value).collect()
}

/// A ClusterRole in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ClusterRole {
    rules: Vec<Rule>,
    labels: BTreeMap<String, String>,
    /// Selectors of an aggregated role, whose own rules do not count.
    selectors: Option<Vec<Value>>,
}

/// A binding in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Binding {
    /// Whether it refers to a ClusterRole.
    cluster_role: bool,
    role: String,
    subjects: Vec<Subject>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    User(String),
    Group(String),
    ServiceAccount(String, String),
}

impl Binding {
    fn from_value(value: &Value) -> Self {
        let text = |value: &Value, name: &str| {
            value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let role_ref = value.get("roleRef").unwrap_or(&Value::Null);
        let namespace = value.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
        let subjects = value.get("subjects").and_then(Value::as_array).into_iter().flatten();
        Self {
            cluster_role: text(role_ref, "kind") == "ClusterRole",
            role: text(role_ref, "name"),
            subjects: subjects
                .filter_map(|subject| {
                    let name = text(subject, "name");
                    match subject.get("kind").and_then(Value::as_str)? {
                        "User" => Some(Subject::User(name)),
                        "Group" => Some(Subject::Group(name)),
                        "ServiceAccount" => {
                            let own = text(subject, "namespace");
                            let namespace = if own.is_empty() { namespace.to_owned() } else { own };
                            Some(Subject::ServiceAccount(namespace, name))
                        }
                        _ => None,
                    }
                })
                .collect(),
        }
    }

    fn applies_to(&self, user: &UserInfo) -> bool {
        self.subjects.iter().any(|subject| match subject {
            Subject::User(name) => *name == user.name,
            Subject::Group(name) => user.groups.contains(name),
            Subject::ServiceAccount(namespace, name) => user
                .name
                .strip_prefix(SERVICE_ACCOUNT_PREFIX)
                .and_then(|rest| rest.split_once(':'))
                .is_some_and(|(ns, account)| ns == namespace && account == name),
        })
    }
}

/// The four kinds that rules come from, as they are watched.
pub(crate) const RESOURCES: [&str; 4] = ["roles", "clusterroles", "rolebindings", "clusterrolebindings"];

/// All roles and bindings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    roles: BTreeMap<(String, String), Vec<Rule>>,
    cluster_roles: BTreeMap<String, ClusterRole>,
    role_bindings: BTreeMap<String, BTreeMap<String, Binding>>,
    cluster_role_bindings: BTreeMap<String, Binding>,
}

impl Rules {
    /// Takes in an object of one of [`RESOURCES`]; `present` is false for one that was deleted.
    pub(crate) fn apply(&mut self, resource: &str, object: &Value, present: bool) {
        let meta = |name: &str| {
            object
                .pointer(&format!("/metadata/{name}"))
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let (namespace, name) = (meta("namespace"), meta("name"));
        match (resource, present) {
            ("roles", true) => {
                self.roles.insert((namespace, name), rules_of(object));
            }
            ("roles", false) => {
                self.roles.remove(&(namespace, name));
            }
            ("clusterroles", true) => {
                let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
                let selectors = object.pointer("/aggregationRule/clusterRoleSelectors");
                let role = ClusterRole {
                    rules: rules_of(object),
                    labels: labels
                        .into_iter()
                        .flatten()
                        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                        .collect(),
                    selectors: selectors.and_then(Value::as_array).cloned(),
                };
                self.cluster_roles.insert(name, role);
            }
            ("clusterroles", false) => {
                self.cluster_roles.remove(&name);
            }
            ("rolebindings", true) => {
                self.role_bindings.entry(namespace).or_default().insert(name, Binding::from_value(object));
            }
            ("rolebindings", false) => {
                if let Some(bindings) = self.role_bindings.get_mut(&namespace) {
                    bindings.remove(&name);
                    if bindings.is_empty() {
                        self.role_bindings.remove(&namespace);
                    }
                }
            }
            ("clusterrolebindings", true) => {
                self.cluster_role_bindings.insert(name, Binding::from_value(object));
            }
            ("clusterrolebindings", false) => {
                self.cluster_role_bindings.remove(&name);
            }
            _ => {}
        }
    }

    /// Forgets everything of one of [`RESOURCES`], before it is read anew.
    pub(crate) fn clear(&mut self, resource: &str) {
        match resource {
            "roles" => self.roles.clear(),
            "clusterroles" => self.cluster_roles.clear(),
            "rolebindings" => self.role_bindings.clear(),
            "clusterrolebindings" => self.cluster_role_bindings.clear(),
            _ => {}
        }
    }

    /// The effective rules of a ClusterRole: its own, or those that its aggregation rule gathers.
    fn cluster_role_rules<'a>(&'a self, name: &'a str) -> Vec<&'a Rule> {
        // Aggregated roles may gather aggregated roles; each is visited once.
        let (mut seen, mut open, mut rules) = (BTreeSet::from([name]), vec![name], Vec::new());
        while let Some(name) = open.pop() {
            let Some(role) = self.cluster_roles.get(name) else { continue };
            let Some(selectors) = &role.selectors else {
                rules.extend(&role.rules);
                continue;
            };
            for (candidate, other) in &self.cluster_roles {
                if selectors.iter().any(|selector| selects(selector, &other.labels)) && seen.insert(candidate)
                {
                    open.push(candidate);
                }
            }
        }
        rules
    }

    fn binding_rules<'a>(&'a self, binding: &'a Binding, namespace: &str) -> Vec<&'a Rule> {
        if binding.cluster_role {
            self.cluster_role_rules(&binding.role)
        } else {
            let key = (namespace.to_owned(), binding.role.clone());
            self.roles.get(&key).into_iter().flatten().collect()
        }
    }

    /// Every rule that holds for a user in a namespace (empty: only cluster-wide ones), each with the text
    /// that says where it comes from.
    fn visit<'a>(
        &'a self,
        user: &UserInfo,
        namespace: &str,
        mut each: impl FnMut(&'a Rule, &dyn Fn() -> String) -> bool,
    ) {
        for (name, binding) in &self.cluster_role_bindings {
            if !binding.applies_to(user) {
                continue;
            }
            for rule in self.binding_rules(binding, "") {
                let origin = || format!("ClusterRoleBinding \"{name}\" of ClusterRole \"{}\"", binding.role);
                if !each(rule, &origin) {
                    return;
                }
            }
        }
        if namespace.is_empty() {
            return;
        }
        for (name, binding) in self.role_bindings.get(namespace).into_iter().flatten() {
            if !binding.applies_to(user) {
                continue;
            }
            for rule in self.binding_rules(binding, namespace) {
                let kind = if binding.cluster_role { "ClusterRole" } else { "Role" };
                let origin = || format!("RoleBinding \"{name}/{namespace}\" of {kind} \"{}\"", binding.role);
                if !each(rule, &origin) {
                    return;
                }
            }
        }
    }

    /// The rule's origin if something allows it.
    fn decide(&self, user: &UserInfo, question: &Question<'_>) -> Option<String> {
        let namespace = match question {
            Question::Resource(attributes) => attributes.namespace,
            Question::Path { .. } => "",
        };
        let mut found = None;
        self.visit(user, namespace, |rule, origin| {
            if rule.allows(question) {
                found = Some(format!("RBAC: allowed by {}", origin()));
            }
            found.is_none()
        });
        found
    }
}

/// Whether a label selector (as an object) selects labels. An invalid one selects nothing.
fn selects(selector: &Value, labels: &BTreeMap<String, String>) -> bool {
    let equal = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let mut expressions = selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
    equal.into_iter().all(|(key, value)| labels.get(key).map(String::as_str) == value.as_str())
        && expressions.all(|expression| {
            let key = expression.get("key").and_then(Value::as_str).unwrap_or_default();
            let label = labels.get(key);
            let listed = || {
                let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
                values.filter_map(Value::as_str).any(|value| label.is_some_and(|label| label == value))
            };
            match expression.get("operator").and_then(Value::as_str) {
                Some("In") => listed(),
                Some("NotIn") => !listed(),
                Some("Exists") => label.is_some(),
                Some("DoesNotExist") => label.is_none(),
                _ => false,
            }
        })
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    /// Whether it is allowed.
    pub(crate) allowed: bool,
    /// Why, if there is something to say.
    pub(crate) reason: String,
}

/// The authorizer of the server: the masters group may do everything, everybody else what roles say.
#[derive(Debug, Default)]
pub(crate) struct Rbac {
    rules: RwLock<Arc<Rules>>,
}

impl Rbac {
    /// The rules of this moment.
    pub(crate) fn rules(&self) -> Arc<Rules> {
        // A panic while the lock is held cannot leave it inconsistent: it guards one pointer.
        Arc::clone(&self.rules.read().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Changes the rules.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Rules)) {
        let mut rules = self.rules.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        change(Arc::make_mut(&mut rules));
    }

    /// Answers a question.
    pub(crate) fn decide(&self, user: &UserInfo, question: &Question<'_>) -> Decision {
        if is_master(user) {
            return Decision { allowed: true, reason: String::new() };
        }
        match self.rules().decide(user, question) {
            Some(reason) => Decision { allowed: true, reason },
            None => Decision { allowed: false, reason: String::new() },
        }
    }

    /// Everything that a user may do in a namespace, for SelfSubjectRulesReview.
    pub(crate) fn rules_for(&self, user: &UserInfo, namespace: &str) -> Vec<Rule> {
        let all = |list: &str| vec![list.to_owned()];
        if is_master(user) {
            let resources =
                Rule { verbs: all("*"), groups: all("*"), resources: all("*"), ..Rule::default() };
            return vec![resources, Rule { verbs: all("*"), urls: all("*"), ..Rule::default() }];
        }
        let mut found = Vec::new();
        self.rules().visit(user, namespace, |rule, _| {
            found.push(rule.clone());
            true
        });
        found
    }

    /// The atoms of `wanted` that the user does not hold in the namespace: what a role would give beyond.
    pub(crate) fn missing(&self, user: &UserInfo, namespace: &str, wanted: &[Rule]) -> Vec<Rule> {
        let held = self.rules_for(user, namespace);
        wanted
            .iter()
            .flat_map(Rule::atoms)
            .filter(|atom| !held.iter().any(|rule| rule.covers(atom)))
            .collect()
    }

    /// The rules that a reference of a binding leads to; `None` if the role does not exist.
    pub(crate) fn referenced(&self, namespace: &str, kind: &str, name: &str) -> Option<Vec<Rule>> {
        let rules = self.rules();
        if kind == "ClusterRole" {
            rules.cluster_roles.get(name)?;
            return Some(rules.cluster_role_rules(name).into_iter().cloned().collect());
        }
        rules.roles.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }
}

/// Whether a user is of the group that may do everything.
pub(crate) fn is_master(user: &UserInfo) -> bool {
    user.groups.iter().any(|group| group == MASTERS_GROUP)
}

impl Authorizer for Rbac {
    fn allows(&self, user: &UserInfo, attributes: &Attributes<'_>) -> bool {
        self.decide(user, &Question::Resource(*attributes)).allowed
    }
}

#[cfg(test)]
mod tests {
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
                "rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]}),
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
            ("bob", wanted(&["update"], &["pods"], &["one"]), 0),
            ("bob", wanted(&["update", "delete"], &["pods"], &[]), 1),
            ("bob", wanted(&["update"], &["pods", "pods/status", "*"], &[]), 2),
            ("bob", wanted(&["*"], &["pods"], &[]), 1),
        ];
        for (name, rules, want) in table {
            assert_eq!(rbac.missing(&user(name, &[]), "a", &rules).len(), want, "{rules:?}");
        }
        assert!(
            rbac.missing(&user("root", &["system:masters"]), "", &wanted(&["*"], &["*"], &[])).is_empty()
        );
    }
}
