//! Impersonation: a request is answered as if another user had sent it, by the rules of `ConstrainedImpersonation` (on by default
//! since 1.36) and of the older verb `impersonate`.

use std::borrow::Cow;

use gc_registry::api::{Attributes, UserInfo};
use gc_registry::error::ApiError;
use gc_registry::names;
use http::HeaderMap;

use crate::auth::authentication::{
    ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, forbidden, refused, service_account_groups,
    split_service_account,
};
use crate::auth::pki::MASTERS_GROUP;
use crate::auth::rbac::{Question, Rbac};
use crate::exchange::header_text;

const GROUP: &str = "authentication.k8s.io";
const NODE_PREFIX: &str = "system:node:";
const NODES: &str = "system:nodes";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// From this number of groups or extra values, one wildcard question precedes the single ones.
const MANY: usize = 4;

/// Returns the user that the Impersonate- headers name, exactly as written; `None` without such headers.
pub(crate) fn wanted(headers: &HeaderMap) -> Result<Option<UserInfo>, ApiError> {
    let first = |name: &str| headers.get(name).map(header_text).unwrap_or_default().to_owned();
    let user = UserInfo {
        name: first("impersonate-user"),
        uid: first("impersonate-uid"),
        groups: headers
            .get_all("impersonate-group")
            .iter()
            .map(|value| header_text(value).to_owned())
            .collect(),
        extra: wanted_extra(headers)?,
    };
    if !user.name.is_empty() {
        return Ok(Some(user));
    }
    if user.uid.is_empty() && user.groups.is_empty() && user.extra.is_empty() {
        return Ok(None);
    }
    Err(ApiError::bad_request(format!("requested {} without impersonating a user name", in_go(&user))))
}

fn wanted_extra(headers: &HeaderMap) -> Result<Vec<(String, Vec<String>)>, ApiError> {
    let mut extra: Vec<(String, Vec<String>)> = Vec::new();
    for (name, value) in headers {
        let Some(key) = name.as_str().strip_prefix("impersonate-extra-") else { continue };
        let key = crate::transport::query::decode_exactly(key)
            .ok_or_else(|| ApiError::bad_request(format!("the name of header {name} is not UTF-8")))?;
        extra.push((key, vec![header_text(value).to_owned()]));
    }
    // A stable sort: the values of one key keep their order.
    extra.sort_by(|(a, _), (b, _)| a.cmp(b));
    extra.dedup_by(|(key, values), (kept, all)| {
        let same = key == kept;
        if same {
            all.append(values);
        }
        same
    });
    Ok(extra)
}

/// Formats the user as Go's `%#v` does, for upstream's message.
fn in_go(user: &UserInfo) -> String {
    let texts = |list: &[String]| list.iter().map(|text| names::quoted(text)).collect::<Vec<_>>().join(", ");
    let groups = if user.groups.is_empty() {
        "[]string(nil)".to_owned()
    } else {
        format!("[]string{{{}}}", texts(&user.groups))
    };
    let extra: Vec<String> = user
        .extra
        .iter()
        .map(|(key, values)| format!("{}:[]string{{{}}}", names::quoted(key), texts(values)))
        .collect();
    let extra = if extra.is_empty() {
        "map[string][]string(nil)".to_owned()
    } else {
        format!("map[string][]string{{{}}}", extra.join(", "))
    };
    format!(
        "&user.DefaultInfo{{Name:{}, UID:{}, Groups:{groups}, Extra:{extra}}}",
        names::quoted(&user.name),
        names::quoted(&user.uid)
    )
}

/// One way to be allowed to impersonate. They are tried in this order, and the first refusal is the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// A service account impersonates the node that its token is bound to.
    AssociatedNode,
    /// Any node.
    ArbitraryNode,
    /// A service account.
    ServiceAccount,
    /// Any other user, with groups, UID and extra.
    UserInfo,
    /// The verb `impersonate`, for everything.
    Legacy,
}

impl Mode {
    const ALL: [Self; 5] =
        [Self::AssociatedNode, Self::ArbitraryNode, Self::ServiceAccount, Self::UserInfo, Self::Legacy];

    fn name(self) -> &'static str {
        match self {
            Self::AssociatedNode => "associated-node",
            Self::ArbitraryNode => "arbitrary-node",
            Self::ServiceAccount => "serviceaccount",
            Self::UserInfo => "user-info",
            Self::Legacy => "",
        }
    }

    /// Reports whether the mode can apply to this user at all.
    fn applies(self, requestor: &UserInfo, wanted: &UserInfo) -> bool {
        let only_name = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let node = node_name(&wanted.name);
        let account = split_service_account(&wanted.name);
        match self {
            Self::AssociatedNode => {
                only_name
                    && node.is_some()
                    && split_service_account(&requestor.name).is_some()
                    && bound_node(requestor) == node
            }
            Self::ArbitraryNode => only_name && node.is_some(),
            Self::ServiceAccount => only_name && account.is_some(),
            Self::UserInfo => node.is_none() && account.is_none(),
            Self::Legacy => true,
        }
    }
}

fn node_name(user: &str) -> Option<&str> {
    user.strip_prefix(NODE_PREFIX).filter(|name| names::dns_subdomain(name).is_empty())
}

/// Returns the node that a service account's token is bound to.
fn bound_node(user: &UserInfo) -> Option<&str> {
    match user.extra.iter().find(|(key, _)| key == NODE_NAME)?.1.as_slice() {
        [one] => Some(one),
        _ => None,
    }
}

/// Returns the user that a request is answered as. The requester must be allowed to make the request by impersonation, and to
/// impersonate this user.
pub(crate) fn impersonate(
    rbac: &Rbac,
    requestor: &UserInfo,
    wanted: &UserInfo,
    request: &Question<'_>,
) -> Result<UserInfo, ApiError> {
    let mut refusal = None;
    for mode in Mode::ALL {
        if !mode.applies(requestor, wanted) {
            continue;
        }
        match (Attempt { rbac, requestor, mode }).stand_in(wanted, request) {
            Ok(user) => return Ok(user),
            Err(error) => refusal = refusal.or(Some(error)),
        }
    }
    Err(refusal.unwrap_or_else(|| ApiError::internal("all impersonation modes failed")))
}

/// One mode, tried for one requested user.
struct Attempt<'a> {
    rbac: &'a Rbac,
    requestor: &'a UserInfo,
    mode: Mode,
}

impl Attempt<'_> {
    fn stand_in(&self, wanted: &UserInfo, request: &Question<'_>) -> Result<UserInfo, ApiError> {
        let constrained = self.mode != Mode::Legacy;
        if constrained {
            self.allowed_on(request)?;
        }
        let verb = if constrained {
            Cow::Owned(format!("impersonate:{}", self.mode.name()))
        } else {
            Cow::Borrowed("impersonate")
        };
        let mut user = wanted.clone();
        self.allowed_name(&verb, wanted, &mut user)?;
        if !wanted.uid.is_empty() {
            self.ask(&verb, GROUP, "uids", "", "", &wanted.uid)?;
        }
        self.allowed_groups(&verb, &wanted.groups)?;
        self.allowed_extra(&verb, &wanted.extra)?;
        let implied = match user.name.as_str() {
            ANONYMOUS => Some(UNAUTHENTICATED),
            _ if user.groups.iter().any(|group| group == UNAUTHENTICATED) => None,
            _ => Some(AUTHENTICATED),
        };
        if let Some(implied) = implied.filter(|implied| !user.groups.iter().any(|group| group == implied)) {
            user.groups.push(implied.to_owned());
        }
        Ok(user)
    }

    /// Reports whether the requester may make this request in this mode.
    fn allowed_on(&self, request: &Question<'_>) -> Result<(), ApiError> {
        let verb = |verb: &str| format!("impersonate-on:{}:{verb}", self.mode.name());
        match *request {
            Question::Resource(attributes) => {
                self.decide(&Question::Resource(Attributes { verb: &verb(attributes.verb), ..attributes }))
            }
            Question::Path { verb: asked, path } => self.decide(&Question::Path { verb: &verb(asked), path }),
        }
    }

    fn allowed_name(&self, verb: &str, wanted: &UserInfo, user: &mut UserInfo) -> Result<(), ApiError> {
        let constrained = self.mode != Mode::Legacy;
        if let Some((namespace, name)) = split_service_account(&wanted.name) {
            if wanted.groups.is_empty() {
                user.groups = service_account_groups(namespace);
            }
            return self.ask(verb, self.group(), "serviceaccounts", "", namespace, name);
        }
        if let (true, Some(node)) = (constrained, node_name(&wanted.name)) {
            user.groups = vec![NODES.to_owned()];
            // A service account may impersonate the node that it runs on, whichever that is.
            let name = if self.mode == Mode::AssociatedNode { "*" } else { node };
            return self.ask(verb, GROUP, "nodes", "", "", name);
        }
        self.ask(verb, self.group(), "users", "", "", &wanted.name)
    }

    fn allowed_groups(&self, verb: &str, groups: &[String]) -> Result<(), ApiError> {
        let group = self.group();
        if self.mode != Mode::Legacy {
            for (bad, why) in [
                ("", "impersonating the empty string group is not allowed"),
                (MASTERS_GROUP, "impersonating the system:masters group is not allowed"),
            ] {
                if groups.iter().any(|name| name == bad) {
                    let asked = attributes(verb, group, "groups", "", "", bad);
                    return Err(forbidden(self.requestor, &asked, why));
                }
            }
            if groups.len() >= MANY && self.ask(verb, group, "groups", "", "", "*").is_ok() {
                return Ok(());
            }
        }
        groups.iter().try_for_each(|name| self.ask(verb, group, "groups", "", "", name))
    }

    fn allowed_extra(&self, verb: &str, extra: &[(String, Vec<String>)]) -> Result<(), ApiError> {
        const RESOURCE: &str = "userextras";
        if self.mode != Mode::Legacy {
            if let Some(why) = bad_extra(extra) {
                return Err(forbidden(self.requestor, &attributes(verb, GROUP, RESOURCE, "", "", ""), &why));
            }
            let many = extra.iter().map(|(_, values)| values.len()).sum::<usize>() >= MANY;
            if many && self.ask(verb, GROUP, RESOURCE, "*", "", "*").is_ok() {
                return Ok(());
            }
        }
        extra.iter().try_for_each(|(key, values)| {
            values.iter().try_for_each(|value| self.ask(verb, GROUP, RESOURCE, key, "", value))
        })
    }

    /// Returns the API group of users, groups and service accounts in this mode's questions.
    fn group(&self) -> &'static str {
        if self.mode == Mode::Legacy { "" } else { GROUP }
    }

    fn ask(
        &self,
        verb: &str,
        group: &str,
        resource: &str,
        subresource: &str,
        namespace: &str,
        name: &str,
    ) -> Result<(), ApiError> {
        self.decide(&Question::Resource(attributes(verb, group, resource, subresource, namespace, name)))
    }

    fn decide(&self, question: &Question<'_>) -> Result<(), ApiError> {
        let decision = self.rbac.decide(self.requestor, question);
        if decision.allowed { Ok(()) } else { Err(refused(self.requestor, question, &decision.reason)) }
    }
}

fn attributes<'a>(
    verb: &'a str,
    group: &'a str,
    resource: &'a str,
    subresource: &'a str,
    namespace: &'a str,
    name: &'a str,
) -> Attributes<'a> {
    Attributes { verb, group, version: "v1", resource, subresource, namespace, name }
}

/// Returns the extra attribute that the constrained modes refuse, if any.
fn bad_extra(extra: &[(String, Vec<String>)]) -> Option<String> {
    extra.iter().find_map(|(key, values)| {
        if key.is_empty() {
            Some("impersonating the empty string key in extra is not allowed".into())
        } else if !is_domain_prefixed_path(key) {
            Some(format!(
                "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: {}: must be a \
                 domain-prefixed path (such as \"acme.io/foo\")",
                names::quoted(key)
            ))
        } else if key.chars().any(char::is_uppercase) {
            Some(format!(
                "impersonating a non-lowercase key in extra is not allowed: {}",
                names::quoted(key)
            ))
        } else if values.iter().any(String::is_empty) {
            Some("impersonating the empty string value in extra is not allowed".into())
        } else {
            None
        }
    })
}

fn is_domain_prefixed_path(key: &str) -> bool {
    key.split_once('/').is_some_and(|(domain, path)| {
        names::dns_subdomain(domain).is_empty()
            && !path.is_empty()
            && path.chars().all(|c| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(c))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};
    use serde_json::json;

    fn headers(list: &[(&str, &[u8])]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    fn user(name: &str, uid: &str, groups: &[&str], extra: &[(&str, &[&str])]) -> UserInfo {
        let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        UserInfo {
            name: name.into(),
            uid: uid.into(),
            groups: owned(groups),
            extra: extra.iter().map(|(key, values)| ((*key).to_owned(), owned(values))).collect(),
        }
    }

    #[test]
    fn headers_are_read_whole_or_refused() {
        let table: [(&[(&str, &[u8])], Result<Option<UserInfo>, &str>); 9] = [
            (&[], Ok(None)),
            (&[("impersonate-user", b"")], Ok(None)),
            (&[("impersonate-user", b"ann")], Ok(Some(user("ann", "", &[], &[])))),
            (&[("impersonate-user", "jürgen".as_bytes())], Ok(Some(user("jürgen", "", &[], &[])))),
            (
                &[
                    ("impersonate-user", b"ann"),
                    ("impersonate-group", "büro".as_bytes()),
                    ("impersonate-group", b"b"),
                ],
                Ok(Some(user("ann", "", &["büro", "b"], &[]))),
            ),
            (
                &[
                    ("impersonate-user", b"ann"),
                    ("impersonate-uid", b"7"),
                    ("impersonate-extra-b", b"2"),
                    ("impersonate-extra-acme.io%2fproject", b"x"),
                    ("impersonate-extra-b", b"1"),
                ],
                Ok(Some(user("ann", "7", &[], &[("acme.io/project", &["x"]), ("b", &["2", "1"])]))),
            ),
            (
                &[("impersonate-group", b"g")],
                Err(
                    r#"requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"g"}, Extra:map[string][]string(nil)} without impersonating a user name"#,
                ),
            ),
            (
                &[("impersonate-extra-k", b"v"), ("impersonate-uid", b"1")],
                Err(
                    r#"requested &user.DefaultInfo{Name:"", UID:"1", Groups:[]string(nil), Extra:map[string][]string{"k":[]string{"v"}}} without impersonating a user name"#,
                ),
            ),
            (
                &[("impersonate-user", b"ann"), ("impersonate-extra-%ff", b"v")],
                Err("the name of header impersonate-extra-%ff is not UTF-8"),
            ),
        ];
        for (given, want) in table {
            let got = wanted(&headers(given)).map_err(|error| {
                assert_eq!(error.code, 400);
                error.message
            });
            assert_eq!(got, want.map_err(str::to_owned), "{given:?}");
        }
    }

    /// Returns an authorizer under which the user `ann` holds exactly these rules.
    fn rbac(rules: &serde_json::Value) -> Rbac {
        let rbac = Rbac::default();
        rbac.change(|all| {
            all.apply("clusterroles", &json!({"metadata": {"name": "r"}, "rules": rules}), true);
            all.apply(
                "clusterrolebindings",
                &json!({"metadata": {"name": "r"}, "roleRef": {"kind": "ClusterRole", "name": "r"},
                    "subjects": [{"kind": "User", "name": "ann"}]}),
                true,
            );
        });
        rbac
    }

    fn rule(verb: &str, group: &str, resource: &str, names: &[&str]) -> serde_json::Value {
        json!({"verbs": [verb], "apiGroups": [group], "resources": [resource], "resourceNames": names})
    }

    /// Returns the groups or the refusal when `ann` impersonates a user while listing pods in the namespace `n`.
    fn outcome(rules: &serde_json::Value, wanted: &UserInfo) -> Result<Vec<String>, String> {
        let ann = user("ann", "", &["system:authenticated"], &[]);
        let request = Question::Resource(Attributes {
            verb: "list",
            version: "v1",
            resource: "pods",
            namespace: "n",
            ..Attributes::default()
        });
        impersonate(&rbac(rules), &ann, wanted, &request)
            .map(|user| user.groups)
            .map_err(|error| error.message)
    }

    #[test]
    fn each_part_of_a_user_is_allowed_by_itself() {
        let auth = "authentication.k8s.io";
        let users =
            rule("impersonate", "", "users", &["bob", "jürgen", "system:anonymous", "system:node:n1"]);
        let authenticated = || Ok(vec!["system:authenticated".to_owned()]);
        let on = |mode: &str| {
            let refused = format!("impersonate-on:{mode}:list");
            Err(format!(
                r#"pods is forbidden: User "ann" cannot {refused} resource "pods" in API group "" in the namespace "n""#
            ))
        };
        let group = |names: &[&str]| rule("impersonate", "", "groups", names);
        let account = user("system:serviceaccount:n:robot", "", &[], &[]);
        let accounts = |names: &[&str]| rule("impersonate", "", "serviceaccounts", names);
        let ok = |groups: &[&str]| Ok(groups.iter().map(|group| (*group).to_owned()).collect());
        let extra = rule("impersonate", auth, "userextras/acme.io/p", &["x"]);
        let table = [
            (json!([users]), user("bob", "", &[], &[]), authenticated()),
            (json!([users]), user("jürgen", "", &[], &[]), authenticated()),
            (json!([users]), user("eve", "", &[], &[]), on("user-info")),
            (json!([users]), user("system:anonymous", "", &[], &[]), ok(&["system:unauthenticated"])),
            (json!([users]), user("bob", "", &["büro"], &[]), on("user-info")),
            (
                json!([users, group(&["büro"])]),
                user("bob", "", &["büro"], &[]),
                ok(&["büro", "system:authenticated"]),
            ),
            (json!([users, group(&["a"])]), user("bob", "", &["a", "system:masters"], &[]), on("user-info")),
            (
                json!([users, group(&["system:unauthenticated"])]),
                user("bob", "", &["system:unauthenticated"], &[]),
                ok(&["system:unauthenticated"]),
            ),
            (json!([users]), user("bob", "7", &[], &[]), on("user-info")),
            (
                json!([users, rule("impersonate", auth, "uids", &["7"])]),
                user("bob", "7", &[], &[]),
                authenticated(),
            ),
            (json!([users]), user("bob", "", &[], &[("acme.io/p", &["x"])]), on("user-info")),
            (json!([users, extra]), user("bob", "", &[], &[("acme.io/p", &["x"])]), authenticated()),
            (json!([users, extra]), user("bob", "", &[], &[("acme.io/p", &["x", "y"])]), on("user-info")),
            (json!([users]), account.clone(), on("serviceaccount")),
            (
                json!([accounts(&["robot"])]),
                account,
                ok(&["system:serviceaccounts", "system:serviceaccounts:n", "system:authenticated"]),
            ),
            // This is not the name of a service account, so it is a user like any other.
            (json!([accounts(&[])]), user("system:serviceaccount:n:a:b", "", &[], &[]), on("user-info")),
            (json!([accounts(&[])]), user("system:serviceaccount:n:A", "", &[], &[]), on("user-info")),
            (json!([users]), user("system:node:n1", "", &[], &[]), authenticated()),
        ];
        for (rules, wanted, want) in table {
            assert_eq!(outcome(&rules, &wanted), want, "{wanted:?} by {rules}");
        }
    }

    #[test]
    fn constrained_modes_need_the_right_on_the_request_and_on_the_user() {
        let auth = "authentication.k8s.io";
        let on = |mode: &str, verb: &str| rule(&format!("impersonate-on:{mode}:{verb}"), "", "pods", &[]);
        let as_user = rule("impersonate:user-info", auth, "users", &["bob"]);
        let refused = |what: &str| Err(format!("{what} at the cluster scope"));
        let table = [
            (json!([on("user-info", "list"), as_user]), user("bob", "", &[], &[]), Ok(vec!["system:authenticated".to_owned()])),
            (
                json!([on("user-info", "list")]),
                user("bob", "", &[], &[]),
                refused(r#"users.authentication.k8s.io "bob" is forbidden: User "ann" cannot impersonate:user-info resource "users" in API group "authentication.k8s.io""#),
            ),
            (
                json!([on("user-info", "get"), as_user]),
                user("bob", "", &[], &[]),
                Err(r#"pods is forbidden: User "ann" cannot impersonate-on:user-info:list resource "pods" in API group "" in the namespace "n""#.to_owned()),
            ),
            (
                json!([on("user-info", "list"), as_user, rule("impersonate:user-info", auth, "groups", &[])]),
                user("bob", "", &["system:masters"], &[]),
                Err(r#"groups.authentication.k8s.io "system:masters" is forbidden: User "ann" cannot impersonate:user-info resource "groups" in API group "authentication.k8s.io" at the cluster scope: impersonating the system:masters group is not allowed"#.to_owned()),
            ),
            (
                json!([on("arbitrary-node", "list"), rule("impersonate:arbitrary-node", auth, "nodes", &["n1"])]),
                user("system:node:n1", "", &[], &[]),
                Ok(vec!["system:nodes".to_owned(), "system:authenticated".to_owned()]),
            ),
        ];
        for (rules, wanted, want) in table {
            assert_eq!(outcome(&rules, &wanted), want, "{wanted:?} by {rules}");
        }
    }

    #[test]
    fn extra_keys_are_domain_prefixed_paths() {
        let table = [
            ("acme.io/p", true),
            ("acme.io/p/q-1", true),
            ("acme.io/", false),
            ("/p", false),
            ("p", false),
            ("acme_io/p", false),
            ("acme.io/a b", false),
        ];
        for (key, want) in table {
            assert_eq!(is_domain_prefixed_path(key), want, "{key}");
        }
    }
}
