//! Role-based access control: keeps the rules of roles and bindings in memory and decides questions by them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use gc_registry::api::{Attributes, Authorizer, UserInfo, Write};
use gc_registry::error::ApiError;
use gc_registry::names::quoted;
use serde_json::Value;

use crate::auth::escalation;
use crate::auth::pki::MASTERS_GROUP;

mod bindings;
mod rule;

use bindings::Bindings;
use rule::HeldRule;
pub(crate) use rule::{Rule, everything};

/// The group of RBAC's own kinds.
pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";
/// Prefix of the user names of service accounts.
pub(crate) const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// An action that a user wants to be allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question<'a> {
    /// An action on a resource.
    Resource(Attributes<'a>),
    /// An action on a path that is not a resource.
    Path {
        /// Lower-case method.
        verb: &'a str,
        /// Path.
        path: &'a str,
    },
}

/// Permissions that a role would grant and that a user lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MissingPermissions {
    /// Nothing.
    Nothing,
    /// These, each as a single permission.
    Some(Vec<Rule>),
    /// The comparison would exceed [`MAXIMUM_COMPARISONS`].
    TooMany,
}

/// Maximum number of comparisons of a single permission with a rule, per write.
const MAXIMUM_COMPARISONS: usize = 5_000_000;

/// Returns the rules of a role.
pub(crate) fn rules_of(role: &Value) -> Vec<Rule> {
    role.get("rules").and_then(Value::as_array).into_iter().flatten().map(Rule::from_value).collect()
}

/// Reports whether a ClusterRole aggregates its rules from others.
pub(crate) fn is_aggregated(role: &Value) -> bool {
    role.get("aggregationRule").is_some_and(|rule| !rule.is_null())
}

/// A ClusterRole in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ClusterRole {
    uid: String,
    rules: Vec<Rule>,
    labels: BTreeMap<String, String>,
    /// Selectors of an aggregated role.
    selectors: Option<Vec<Value>>,
}

/// An aggregated ClusterRole whose rules differ from those of the roles that it selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutdatedAggregate {
    /// Its name.
    pub(crate) name: String,
    /// Its UID, so that a role that was deleted in the meantime is not created again.
    pub(crate) uid: String,
    /// The rules that it should have.
    pub(crate) rules: Vec<Rule>,
}

/// A binding in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Binding {
    /// True if the binding refers to a ClusterRole.
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

    /// Returns the text that a decision adds for a role that does not exist.
    fn absent_role(&self) -> String {
        let kind = if self.cluster_role { "clusterrole" } else { "role" };
        format!("{kind}.{GROUP} {} not found", quoted(&self.role))
    }

    /// Returns the first subject that matches the user.
    fn applies_to(&self, user: &UserInfo) -> Option<&Subject> {
        self.subjects.iter().find(|subject| match subject {
            Subject::User(name) => *name == user.name,
            Subject::Group(name) => user.groups.contains(name),
            Subject::ServiceAccount(namespace, name) => user
                .name
                .strip_prefix(SERVICE_ACCOUNT_PREFIX)
                .and_then(|rest| rest.split_once(':'))
                .is_some_and(|(ns, account)| !ns.is_empty() && ns == namespace && account == name),
        })
    }
}

/// The four kinds that rules come from, all of which are watched.
pub(crate) const RESOURCES: [&str; 4] = ["roles", "clusterroles", "rolebindings", "clusterrolebindings"];

/// A role or binding, as it was read. Servers of one process share what they read in the same objects.
#[derive(Debug)]
pub(crate) struct Grant {
    namespace: String,
    name: String,
    content: GrantContent,
}

#[derive(Debug)]
enum GrantContent {
    Role(Arc<[Rule]>),
    ClusterRole(Arc<ClusterRole>),
    Binding(Arc<Binding>),
}

impl Grant {
    /// Reads an object of one of [`RESOURCES`].
    pub(crate) fn read(resource: &str, object: &Value) -> Self {
        let meta = |name: &str| {
            object
                .pointer(&format!("/metadata/{name}"))
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let content = match resource {
            "roles" => GrantContent::Role(rules_of(object).into()),
            "clusterroles" => {
                let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
                let selectors = object.pointer("/aggregationRule/clusterRoleSelectors");
                GrantContent::ClusterRole(Arc::new(ClusterRole {
                    uid: meta("uid"),
                    rules: rules_of(object),
                    labels: labels
                        .into_iter()
                        .flatten()
                        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                        .collect(),
                    selectors: is_aggregated(object)
                        .then(|| selectors.and_then(Value::as_array).cloned().unwrap_or_default()),
                }))
            }
            _ => GrantContent::Binding(Arc::new(Binding::from_value(object))),
        };
        Self { namespace: meta("namespace"), name: meta("name"), content }
    }
}

/// All roles and bindings.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    roles: BTreeMap<(String, String), Arc<[Rule]>>,
    cluster_roles: BTreeMap<String, Arc<ClusterRole>>,
    role_bindings: BTreeMap<String, Bindings>,
    cluster_role_bindings: Bindings,
    /// Number of changes to ClusterRoles; only these affect aggregated roles.
    cluster_role_changes: u64,
}

impl Rules {
    /// Applies an object of one of [`RESOURCES`]; `present` is false for a deleted one.
    pub(crate) fn apply(&mut self, resource: &str, object: &Value, present: bool) {
        let grant = Grant::read(resource, object);
        if present {
            self.insert(resource, &grant);
            return;
        }
        self.note_change(resource);
        let Grant { namespace, name, .. } = grant;
        match resource {
            "roles" => drop(self.roles.remove(&(namespace, name))),
            "clusterroles" => drop(self.cluster_roles.remove(&name)),
            "rolebindings" => {
                if let Some(bindings) = self.role_bindings.get_mut(&namespace) {
                    bindings.remove(&name);
                    if bindings.is_empty() {
                        self.role_bindings.remove(&namespace);
                    }
                }
            }
            "clusterrolebindings" => self.cluster_role_bindings.remove(&name),
            _ => {}
        }
    }

    /// Adds what was read in an object of one of [`RESOURCES`], or replaces what the object said before.
    pub(crate) fn insert(&mut self, resource: &str, grant: &Grant) {
        self.note_change(resource);
        let Grant { namespace, name, content } = grant;
        match content {
            GrantContent::Role(rules) => {
                self.roles.insert((namespace.clone(), name.clone()), Arc::clone(rules));
            }
            GrantContent::ClusterRole(role) => {
                self.cluster_roles.insert(name.clone(), Arc::clone(role));
            }
            GrantContent::Binding(binding) if resource == "rolebindings" => {
                self.role_bindings.entry(namespace.clone()).or_default().insert(name, Arc::clone(binding));
            }
            GrantContent::Binding(binding) => self.cluster_role_bindings.insert(name, Arc::clone(binding)),
        }
    }

    /// Forgets all objects of one of [`RESOURCES`], before it is read again.
    pub(crate) fn clear(&mut self, resource: &str) {
        self.note_change(resource);
        match resource {
            "roles" => self.roles.clear(),
            "clusterroles" => self.cluster_roles.clear(),
            "rolebindings" => self.role_bindings.clear(),
            "clusterrolebindings" => self.cluster_role_bindings = Bindings::default(),
            _ => {}
        }
    }

    fn note_change(&mut self, resource: &str) {
        if resource == "clusterroles" {
            self.cluster_role_changes += 1;
        }
    }

    /// Returns the aggregated roles whose rules differ from those of the roles that they select, with the rules that they should
    /// have: each rule once, in the order of the roles' names.
    pub(crate) fn outdated_aggregates(&self) -> Vec<OutdatedAggregate> {
        let aggregated =
            self.cluster_roles.iter().filter_map(|(name, role)| Some((name, role, role.selectors.as_ref()?)));
        aggregated
            .filter_map(|(name, role, selectors)| {
                let mut seen = BTreeSet::new();
                let mut rules = Vec::new();
                for selector in selectors {
                    let selected = self
                        .cluster_roles
                        .iter()
                        .filter(|(other, role)| *other != name && selects(selector, &role.labels));
                    rules.extend(
                        selected.flat_map(|(_, role)| &role.rules).filter(|rule| seen.insert(*rule)).cloned(),
                    );
                }
                let outdated = rules != role.rules;
                outdated.then(|| OutdatedAggregate { name: name.clone(), uid: role.uid.clone(), rules })
            })
            .collect()
    }

    /// Returns the rules of the role that a binding refers to; `None` if the role does not exist.
    fn binding_rules(&self, binding: &Binding, namespace: &str) -> Option<&[Rule]> {
        if binding.cluster_role {
            self.cluster_roles.get(&binding.role).map(|role| role.rules.as_slice())
        } else {
            let key = (namespace.to_owned(), binding.role.clone());
            self.roles.get(&key).map(|rules| &**rules)
        }
    }

    /// Visits the bindings that apply to a user in a namespace (empty: only cluster-wide ones) with their rules (`None` for an
    /// absent role), until `each` returns false.
    fn visit<'a>(
        &'a self,
        user: &'a UserInfo,
        namespace: &str,
        mut each: impl FnMut(&Origin<'a>, Option<&'a [Rule]>) -> bool,
    ) {
        let cluster_wide = std::iter::once(("", &self.cluster_role_bindings));
        let local = self.role_bindings.get_key_value(namespace);
        let local = local.map(|(namespace, bindings)| (namespace.as_str(), bindings));
        for (namespace, bindings) in cluster_wide.chain(local) {
            for (name, binding, subject) in bindings.of(user) {
                let origin = Origin { namespace, name, binding, subject };
                if !each(&origin, self.binding_rules(binding, namespace)) {
                    return;
                }
            }
        }
    }

    /// Returns the namespaces in which some binding applies to a user.
    fn namespaces_of(&self, user: &UserInfo) -> Vec<String> {
        let bound = self.role_bindings.iter().filter(|(_, bindings)| bindings.of(user).next().is_some());
        bound.map(|(namespace, _)| namespace.clone()).collect()
    }

    fn decide(&self, user: &UserInfo, question: &Question<'_>) -> Decision {
        let namespace = match question {
            Question::Resource(attributes) => attributes.namespace,
            Question::Path { .. } => "",
        };
        let (mut allowed, mut problems) = (None, Vec::new());
        self.visit(user, namespace, |origin, rules| {
            match rules {
                Some(rules) if rules.iter().any(|rule| rule.allows(question)) => {
                    allowed = Some(format!("RBAC: allowed by {origin}"));
                }
                None if problems.len() < MAXIMUM_PROBLEMS => problems.push(origin.binding.absent_role()),
                _ => {}
            }
            allowed.is_none()
        });
        match (allowed, problems.as_slice()) {
            (Some(reason), _) => Decision { allowed: true, reason },
            (None, []) => Decision { allowed: false, reason: String::new() },
            (None, [one]) => Decision { allowed: false, reason: format!("RBAC: {one}") },
            (None, several) => Decision { allowed: false, reason: format!("RBAC: [{}]", several.join(", ")) },
        }
    }
}

/// Maximum number of absent roles that the reason of a decision names.
const MAXIMUM_PROBLEMS: usize = 16;

/// Origin of a rule.
struct Origin<'a> {
    /// Empty for a ClusterRoleBinding.
    namespace: &'a str,
    name: &'a str,
    binding: &'a Binding,
    /// The first subject that matches the user.
    subject: &'a Subject,
}

impl std::fmt::Display for Origin<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "ClusterRoleBinding {}", quoted(self.name))?;
        } else {
            write!(f, "RoleBinding {}", quoted(&format!("{}/{}", self.name, self.namespace)))?;
        }
        let kind = if self.binding.cluster_role { "ClusterRole" } else { "Role" };
        write!(f, " of {kind} {} to ", quoted(&self.binding.role))?;
        match self.subject {
            Subject::User(name) => write!(f, "User {}", quoted(name)),
            Subject::Group(name) => write!(f, "Group {}", quoted(name)),
            Subject::ServiceAccount(namespace, name) => {
                write!(f, "ServiceAccount {}", quoted(&format!("{name}/{namespace}")))
            }
        }
    }
}

/// Reports whether a label selector (as an object) selects labels. An invalid one selects nothing.
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
    /// True if the action is allowed.
    pub(crate) allowed: bool,
    /// Reason, or empty.
    pub(crate) reason: String,
}

/// Authorizer to consult, as in `--authorization-mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorizationMode {
    /// Allows everything.
    AlwaysAllow,
    /// Allows nothing; a later mode may still allow it.
    AlwaysDeny,
    /// Role-based access control.
    Rbac,
}

/// The authorizer of the server: the masters group may do everything, and everybody else what the modes allow (RBAC if none are
/// given).
#[derive(Debug, Default)]
pub(crate) struct Rbac {
    modes: Vec<AuthorizationMode>,
    /// Changed in place: copying for each change would cost time proportional to the number of bindings, while a change in place
    /// waits only for the decisions in progress.
    rules: RwLock<Rules>,
    changed: tokio::sync::Notify,
}

impl Rbac {
    /// Creates an authorizer with these modes, in order.
    pub(crate) fn new(modes: Vec<AuthorizationMode>) -> Self {
        Self { modes, ..Self::default() }
    }

    fn modes(&self) -> &[AuthorizationMode] {
        if self.modes.is_empty() { &[AuthorizationMode::Rbac] } else { &self.modes }
    }

    /// Returns the current rules, which do not change while the guard is held.
    pub(crate) fn rules(&self) -> RwLockReadGuard<'_, Rules> {
        // A panic may leave a change half applied; the watch that delivered it applies it again.
        self.rules.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the rules.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Rules)) {
        let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        let before = rules.cluster_role_changes;
        change(&mut rules);
        if rules.cluster_role_changes != before {
            self.changed.notify_one();
        }
    }

    /// Waits until ClusterRoles have changed since the last call returned. Supports a single caller.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Decides whether a user may do something.
    pub(crate) fn decide(&self, user: &UserInfo, question: &Question<'_>) -> Decision {
        if is_master(user) {
            return Decision { allowed: true, reason: String::new() };
        }
        let mut reasons = Vec::new();
        for mode in self.modes() {
            let reason = match mode {
                AuthorizationMode::AlwaysAllow => {
                    return Decision { allowed: true, reason: String::new() };
                }
                AuthorizationMode::AlwaysDeny => "Everything is forbidden.".to_owned(),
                AuthorizationMode::Rbac => {
                    let decision = self.rules().decide(user, question);
                    if decision.allowed {
                        return decision;
                    }
                    decision.reason
                }
            };
            reasons.extend(Some(reason).filter(|reason| !reason.is_empty()));
        }
        Decision { allowed: false, reason: reasons.join("\n") }
    }

    /// Returns the namespaces in which a user may have rights beyond the cluster-wide ones.
    pub(crate) fn namespaces_of(&self, user: &UserInfo) -> Vec<String> {
        self.rules().namespaces_of(user)
    }

    /// Returns all rules that apply to a user in a namespace, for SelfSubjectRulesReview.
    pub(crate) fn rules_for(&self, user: &UserInfo, namespace: &str) -> Vec<Rule> {
        // Upstream asks one authorizer after the other, and the first one only knows the masters.
        let may_all = is_master(user) || self.modes().contains(&AuthorizationMode::AlwaysAllow);
        let mut found = if may_all { everything().into() } else { Vec::new() };
        if !self.modes().contains(&AuthorizationMode::Rbac) {
            return found;
        }
        self.rules().visit(user, namespace, |_, rules| {
            found.extend(rules.into_iter().flatten().cloned());
            true
        });
        found
    }

    /// Returns the permissions in `wanted` that the user does not hold in the namespace.
    pub(crate) fn missing(&self, user: &UserInfo, namespace: &str, wanted: &[Rule]) -> MissingPermissions {
        let held = self.rules_for(user, namespace);
        let held: Vec<HeldRule<'_>> = held.iter().map(HeldRule::new).collect();
        // Wanted rules that one held rule covers as a whole need not be split into single permissions.
        let open: Vec<&Rule> =
            wanted.iter().filter(|rule| !held.iter().any(|held| held.covers(rule))).collect();
        let atoms = open.iter().map(|rule| rule.count()).fold(0, usize::saturating_add);
        if atoms.saturating_mul(held.len().max(1)) > MAXIMUM_COMPARISONS {
            return MissingPermissions::TooMany;
        }
        let atoms = open.into_iter().flat_map(Rule::atoms);
        let missing: Vec<Rule> = atoms.filter(|atom| !held.iter().any(|rule| rule.covers(atom))).collect();
        if missing.is_empty() { MissingPermissions::Nothing } else { MissingPermissions::Some(missing) }
    }
}

/// Reports whether a user is in the group that may do everything.
pub(crate) fn is_master(user: &UserInfo) -> bool {
    user.groups.iter().any(|group| group == MASTERS_GROUP)
}

impl Authorizer for Rbac {
    fn allows(&self, user: &UserInfo, attributes: &Attributes<'_>) -> bool {
        self.decide(user, &Question::Resource(*attributes)).allowed
    }

    fn admit(&self, user: &UserInfo, write: &Write<'_>) -> Result<(), ApiError> {
        escalation::check(self, user, write)
    }
}

#[cfg(test)]
mod tests;
