//! The accounts of the collectors of `kubegc up`: each calls as its own, which is allowed exactly what
//! `gc_retention::permissions` says.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use gc_kube::ApiClient;
use gc_retention::permissions::Controller;
use http::Method;
use serde_json::{Value, json};

use crate::definitions::call;

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const NAMESPACE: &str = "kube-system";
/// The server learns of rules by a watch of its own. So long it may take, and so often it is asked.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(2);
/// Tries to bring a role or a binding up to date.
const TRIES: usize = 5;
/// The groups of every service account of the namespace.
pub(crate) const GROUPS: [&str; 3] =
    ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"];

/// The user name of a collector's account.
pub(crate) fn user(controller: Controller) -> String {
    format!("system:serviceaccount:{NAMESPACE}:{}", controller.identity())
}

fn role(controller: Controller) -> Value {
    let rules: Vec<Value> = controller
        .rules()
        .iter()
        .map(|rule| {
            let mut value =
                json!({"apiGroups": [rule.group], "resources": [rule.resource], "verbs": rule.verbs});
            if !rule.names.is_empty() {
                value["resourceNames"] = json!(rule.names);
            }
            value
        })
        .collect();
    json!({"metadata": {"name": name(controller)}, "rules": rules})
}

fn binding(controller: Controller) -> Value {
    let name = name(controller);
    json!({"metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": controller.identity()}]})
}

/// Not upstream's `system:controller:`, whose rules are others.
fn name(controller: Controller) -> String {
    format!("kubegc:{}", controller.name())
}

/// Binds the accounts of these collectors to their rules, and waits until that is in force. `admin` may do everything;
/// `account_of` makes the client of an account.
pub(crate) async fn bind(
    admin: &ApiClient,
    account_of: impl Fn(Controller) -> ApiClient,
    controllers: &[Controller],
) -> anyhow::Result<()> {
    for &controller in controllers {
        put(admin, ROLES, &role(controller)).await?;
        put(admin, BINDINGS, &binding(controller)).await?;
    }
    let deadline = Instant::now() + PATIENCE;
    for &controller in controllers {
        let account = account_of(controller);
        while !is_allowed(&account, controller).await? {
            anyhow::ensure!(
                Instant::now() < deadline,
                "the permissions of {controller} do not come into force"
            );
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(())
}

/// Makes an object, or brings the one that is there up to date. Another server on the same store may do so at the same time.
async fn put(admin: &ApiClient, collection: &str, wanted: &Value) -> anyhow::Result<()> {
    let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
    let path = format!("{collection}/{name}");
    for _ in 0..TRIES {
        match call(admin, Method::POST, collection, Some(wanted)).await? {
            (200..=299, _) => return Ok(()),
            (409, _) => {}
            (code, body) => anyhow::bail!("cannot make {name}: {code} {}", body["message"]),
        }
        match call(admin, Method::PUT, &path, Some(wanted)).await? {
            (200..=299, _) => return Ok(()),
            (404 | 409, _) => {}
            (code, body) => anyhow::bail!("cannot bring {name} up to date: {code} {}", body["message"]),
        }
    }
    anyhow::bail!("{name} keeps changing")
}

async fn is_allowed(account: &ApiClient, controller: Controller) -> anyhow::Result<bool> {
    let rule = controller.rules().first().context("a collector without permissions")?;
    let attributes = json!({"group": rule.group, "resource": rule.resource, "verb": rule.verbs.first()});
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes}});
    let (_, answer) = call(account, Method::POST, REVIEWS, Some(&review)).await?;
    Ok(answer["status"]["allowed"] == true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_bound_to_its_own_rules() {
        let lease = Controller::LeaseCandidate;
        let expected = json!({"metadata": {"name": "kubegc:stale-leasecandidate-controller"}, "rules": [
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leasecandidates"],
                "verbs": ["list", "watch", "delete"]}]});
        assert_eq!(role(lease), expected);
        assert_eq!(binding(lease)["subjects"][0]["name"], "stale-leasecandidate-controller");
        assert_eq!(user(lease), "system:serviceaccount:kube-system:stale-leasecandidate-controller");
        let named = role(Controller::LegacyTokenCleaner)["rules"][3].clone();
        let tracking = "kube-apiserver-legacy-service-account-token-tracking";
        assert_eq!(named["resourceNames"], json!([tracking]));
    }
}
