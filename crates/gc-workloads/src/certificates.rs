//! CertificateSigningRequests for kubelets and for clients of the API server: which are approved automatically, and which approved
//! ones get a certificate of the server's own authority, on which terms.
//!
//! Only the holder of the authority's key can read requests and sign; these are the rules for it.

use serde_json::{Value, json};

use crate::kinds::{Key, Kind};
use crate::object::{Object, condition, has_condition, items, text};
use crate::plan::{Action, Plan, Request, View};
use crate::store::Change;
use crate::time::{self, Milliseconds, SECOND};

/// Signer for clients of the API server.
const API_SERVER_CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// Signer for kubelets as clients of the API server.
pub(crate) const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Signer for kubelets as servers.
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
/// Signers whose requests are signed here.
pub(crate) const SIGNERS: [&str; 3] = [API_SERVER_CLIENT, KUBELET_CLIENT, KUBELET_SERVING];

/// Maximum validity of a certificate, as set by the flag `--cluster-signing-duration`.
const LONGEST: Milliseconds = 365 * 24 * 3_600 * SECOND;
/// Minimum validity of a certificate.
const SHORTEST: Milliseconds = 600 * SECOND;
/// Time before now from which a certificate is valid, for clocks that are behind.
const BACKDATE: Milliseconds = 300 * SECOND;
/// Duration from which the time before now counts towards the validity.
const LONG: Milliseconds = 8 * 3_600 * SECOND;

/// Contents of a PKCS#10 request that these rules use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// The common name of the subject.
    pub common_name: String,
    /// The organizations of the subject.
    pub organizations: Vec<String>,
    /// Number of host names.
    pub dns_names: usize,
    /// Number of IP addresses.
    pub ip_addresses: usize,
    /// Number of email addresses.
    pub email_addresses: usize,
    /// Number of URIs.
    pub uris: usize,
}

/// Returns the start and end of the validity of a certificate that is issued now.
#[must_use]
pub fn validity(object: &Value, now: Milliseconds) -> (Milliseconds, Milliseconds) {
    let wanted = object["spec"]["expirationSeconds"].as_i64().map(|seconds| seconds.saturating_mul(SECOND));
    let duration = wanted.map_or(LONGEST, |wanted| wanted.clamp(SHORTEST, LONGEST));
    (now - BACKDATE, now + duration - if duration < LONG { 0 } else { BACKDATE })
}

/// Returns the requested usages of the certificate.
pub fn usages(object: &Value) -> impl Iterator<Item = &str> {
    items(&object["spec"]["usages"]).map(text)
}

/// Reports whether the usages are these, with or without `key encipherment`, which only RSA keys need.
fn are_usages(object: &Value, purpose: &str) -> bool {
    let mut usages: Vec<&str> = usages(object).filter(|usage| *usage != "key encipherment").collect();
    usages.sort_unstable();
    let mut expected = ["digital signature", purpose];
    expected.sort_unstable();
    usages == expected
}

/// Group of administrators.
const MASTERS: &str = "system:masters";

/// Explains why a signer does not sign a request, in upstream's words; `None` if it does.
#[must_use]
pub fn refusal(object: &Value, contents: &Contents) -> Option<String> {
    match text(&object["spec"]["signerName"]) {
        API_SERVER_CLIENT => {
            // Admission refuses it before, but signing for administrators must not depend on a single parser.
            if contents.organizations.iter().any(|organization| organization == MASTERS) {
                return Some(format!(
                    "use of {API_SERVER_CLIENT} signer with {MASTERS} group is not allowed"
                ));
            }
            let known = ["digital signature", "key encipherment", "client auth"];
            if let Some(usage) = usages(object).find(|usage| !known.contains(usage)) {
                return Some(format!("invalid usage for client certificate: {usage}"));
            }
            let missing = !usages(object).any(|usage| usage == "client auth");
            missing.then(|| "missing required usage for client certificate: client auth".to_owned())
        }
        KUBELET_CLIENT => of_kubelet(object, contents, "client auth", || {
            let Contents { dns_names, ip_addresses, email_addresses, uris, .. } = *contents;
            let names = [("DNS", dns_names), ("Email", email_addresses), ("IP", ip_addresses), ("URI", uris)];
            let (kind, _) = names.into_iter().find(|(_, count)| *count > 0)?;
            Some(format!("{kind} subjectAltNames are not allowed"))
        }),
        _ => of_kubelet(object, contents, "server auth", || {
            if contents.dns_names == 0 && contents.ip_addresses == 0 {
                return Some("DNS or IP subjectAltName is required".to_owned());
            }
            let names = [("Email", contents.email_addresses), ("URI", contents.uris)];
            let (kind, _) = names.into_iter().find(|(_, count)| *count > 0)?;
            Some(format!("{kind} subjectAltNames are not allowed"))
        }),
    }
}

/// Checks the rules for all certificates of kubelets; `names` describes what is wrong with the alternative names.
fn of_kubelet(
    object: &Value,
    contents: &Contents,
    purpose: &str,
    names: impl Fn() -> Option<String>,
) -> Option<String> {
    if contents.organizations != ["system:nodes"] {
        return Some("subject organization is not system:nodes".to_owned());
    }
    let of_usages = || {
        let mut required = ["digital signature", "key encipherment", purpose];
        required.sort_unstable();
        (!are_usages(object, purpose)).then(|| format!("usages did not match [{}]", required.join(" ")))
    };
    // Upstream checks the usages first for a server, and the name first for a client.
    let of_name = || {
        let is_node = contents.common_name.starts_with("system:node:");
        (!is_node).then(|| "subject common name does not begin with system:node:".to_owned())
    };
    if purpose == "server auth" {
        names().or_else(of_usages).or_else(of_name)
    } else {
        names().or_else(of_name).or_else(of_usages)
    }
}

/// A permission that makes a request be approved, and the message about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permission {
    /// Subresource of `certificatesigningrequests` that the requester may create.
    pub subresource: &'static str,
    /// Message of the condition `Approved`.
    pub message: &'static str,
}

const SELF_NODE_CLIENT: Permission = Permission {
    subresource: "selfnodeclient",
    message: "Auto approving self kubelet client certificate after SubjectAccessReview.",
};
const NODE_CLIENT: Permission = Permission {
    subresource: "nodeclient",
    message: "Auto approving kubelet client certificate after SubjectAccessReview.",
};

/// Returns the permissions of which any one is enough to approve a request.
#[must_use]
pub fn permissions(object: &Value, contents: &Contents) -> Vec<Permission> {
    let spec = &object["spec"];
    if spec["signerName"] != KUBELET_CLIENT || refusal(object, contents).is_some() {
        return Vec::new();
    }
    let own = (spec["username"] == *contents.common_name).then_some(SELF_NODE_CLIENT);
    own.into_iter().chain([NODE_CLIENT]).collect()
}

/// Returns the SubjectAccessReview that checks whether the requester has a permission.
#[must_use]
pub fn review(object: &Value, permission: Permission) -> Value {
    let spec = &object["spec"];
    json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
        "user": spec["username"], "uid": spec["uid"], "groups": spec["groups"], "extra": spec["extra"],
        "resourceAttributes": {"group": "certificates.k8s.io", "resource": "certificatesigningrequests", "verb": "create",
            "subresource": permission.subresource, "version": "*"},
    }})
}

fn with_condition(object: &Value, condition: Value) -> Value {
    let mut object = object.clone();
    let mut conditions: Vec<Value> = items(&object["status"]["conditions"]).cloned().collect();
    conditions.push(condition);
    object["status"]["conditions"] = conditions.into();
    object
}

/// Returns a request that is approved because of a permission.
#[must_use]
pub fn approved(object: &Value, permission: Permission) -> Value {
    let condition = json!({"type": "Approved", "status": "True", "reason": "AutoApproved", "message": permission.message});
    with_condition(object, condition)
}

/// Returns a request that its signer refuses.
#[must_use]
pub fn failed(object: &Value, refusal: &str, now: Milliseconds) -> Value {
    let condition = json!({"type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": refusal,
        "lastUpdateTime": time::format(now)});
    with_condition(object, condition)
}

/// Reconciles a request when it changes.
pub(crate) fn wakes(change: &Change, keys: &mut Vec<Key>) {
    let present = change.after.as_ref().filter(|object| object.key.kind == Kind::CertificateSigningRequest);
    keys.extend(present.map(|object| object.key.clone()));
}

fn is_issued(request: &Object) -> bool {
    !text(&request.status()["certificate"]).is_empty()
}

/// Approves requests of kubelets that have the permission.
pub(crate) fn approve(view: &View<'_>, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(request) = view.store.get(key) else { return plan };
    let decided = ["Approved", "Denied"].iter().any(|kind| condition(request.status(), kind).is_some());
    if !decided && !is_issued(request) && request.spec()["signerName"] == KUBELET_CLIENT {
        let action = Action::ApproveCertificate { key: key.clone(), object: request.value.clone() };
        plan.then(Request::new(action, "approve"));
    }
    plan
}

/// Requests a signature for an approved request.
pub(crate) fn sign(view: &View<'_>, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(request) = view.store.get(key) else { return plan };
    let status = request.status();
    let is_approved = has_condition(status, "Approved") && condition(status, "Denied").is_none();
    let is_known = SIGNERS.contains(&text(&request.spec()["signerName"]));
    if is_approved && !has_condition(status, "Failed") && !is_issued(request) && is_known {
        let (key, object) = (key.clone(), request.value.clone());
        plan.then(Request::new(Action::SignCertificate { key, object, now: view.now }, "sign"));
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(signer: &str, usages: &[&str]) -> Value {
        json!({"spec": {"signerName": signer, "usages": usages, "username": "system:node:a"}})
    }

    fn node() -> Contents {
        Contents {
            common_name: "system:node:a".to_owned(),
            organizations: vec!["system:nodes".to_owned()],
            ..Contents::default()
        }
    }

    const CLIENT: [&str; 3] = ["digital signature", "key encipherment", "client auth"];
    const SERVER: [&str; 3] = ["digital signature", "key encipherment", "server auth"];

    #[test]
    fn what_signers_refuse() {
        let anyone = Contents { common_name: "eve".to_owned(), ..Contents::default() };
        let with = |change: fn(&mut Contents)| {
            let mut contents = node();
            change(&mut contents);
            contents
        };
        let named = || with(|contents| contents.dns_names = 1);
        let masters = || with(|contents| contents.organizations = vec!["system:masters".to_owned()]);
        let both = || with(|contents| contents.organizations.push("system:masters".to_owned()));
        let table: Vec<(&str, &[&str], Contents, Option<&str>)> = vec![
            (API_SERVER_CLIENT, &CLIENT, anyone.clone(), None),
            (API_SERVER_CLIENT, &["client auth"], anyone.clone(), None),
            (
                API_SERVER_CLIENT,
                &CLIENT,
                both(),
                Some(
                    "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed",
                ),
            ),
            (
                API_SERVER_CLIENT,
                &SERVER,
                anyone.clone(),
                Some("invalid usage for client certificate: server auth"),
            ),
            (
                API_SERVER_CLIENT,
                &["digital signature"],
                anyone,
                Some("missing required usage for client certificate: client auth"),
            ),
            (KUBELET_CLIENT, &CLIENT, node(), None),
            (KUBELET_CLIENT, &["client auth", "digital signature"], node(), None),
            (
                KUBELET_CLIENT,
                &["client auth"],
                node(),
                Some("usages did not match [client auth digital signature key encipherment]"),
            ),
            (KUBELET_CLIENT, &CLIENT, masters(), Some("subject organization is not system:nodes")),
            (KUBELET_CLIENT, &CLIENT, both(), Some("subject organization is not system:nodes")),
            (KUBELET_CLIENT, &CLIENT, named(), Some("DNS subjectAltNames are not allowed")),
            (
                KUBELET_CLIENT,
                &CLIENT,
                with(|contents| contents.email_addresses = 1),
                Some("Email subjectAltNames are not allowed"),
            ),
            (
                KUBELET_CLIENT,
                &CLIENT,
                with(|contents| contents.common_name = "a".to_owned()),
                Some("subject common name does not begin with system:node:"),
            ),
            (KUBELET_SERVING, &SERVER, named(), None),
            (KUBELET_SERVING, &SERVER, with(|contents| contents.ip_addresses = 1), None),
            (KUBELET_SERVING, &SERVER, node(), Some("DNS or IP subjectAltName is required")),
            (
                KUBELET_SERVING,
                &SERVER,
                with(|contents| (contents.dns_names, contents.uris) = (1, 1)),
                Some("URI subjectAltNames are not allowed"),
            ),
            (
                KUBELET_SERVING,
                &CLIENT,
                named(),
                Some("usages did not match [digital signature key encipherment server auth]"),
            ),
        ];
        for (signer, usages, contents, expected) in table {
            let refused = refusal(&request(signer, usages), &contents);
            assert_eq!(refused.as_deref(), expected, "{signer} {usages:?} {contents:?}");
        }
    }

    #[test]
    fn a_kubelet_may_ask_for_its_own_certificate_or_for_any() {
        let subresources = |signer: &str, contents: &Contents| -> Vec<&str> {
            let all = permissions(&request(signer, &CLIENT), contents);
            all.into_iter().map(|permission| permission.subresource).collect()
        };
        let other = Contents { common_name: "system:node:b".to_owned(), ..node() };
        let person = Contents { common_name: "eve".to_owned(), ..node() };
        assert_eq!(subresources(KUBELET_CLIENT, &node()), ["selfnodeclient", "nodeclient"]);
        assert_eq!(subresources(KUBELET_CLIENT, &other), ["nodeclient"]);
        assert_eq!(subresources(KUBELET_CLIENT, &person), [""; 0]);
        assert_eq!(subresources(API_SERVER_CLIENT, &node()), [""; 0]);
    }

    #[test]
    fn how_long_a_certificate_is_valid() {
        let of = |seconds: Value| {
            let (from, until) = validity(&json!({"spec": {"expirationSeconds": seconds}}), 0);
            (from / SECOND, until / SECOND)
        };
        let year = 365 * 24 * 3_600;
        for (seconds, expected) in [
            (Value::Null, (-300, year - 300)),
            (json!(10 * year), (-300, year - 300)),
            (json!(8 * 3_600), (-300, 8 * 3_600 - 300)),
            (json!(8 * 3_600 - 1), (-300, 8 * 3_600 - 1)),
            (json!(3_600), (-300, 3_600)),
            (json!(1), (-300, 600)),
        ] {
            assert_eq!(of(seconds.clone()), expected, "{seconds}");
        }
    }
}
