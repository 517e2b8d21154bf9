//! Accounts of the collectors of `kubegc up`: each authenticates as its own, which has exactly the permissions in
//! `gc_collectors::permissions`.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use gc_collectors::permissions::Controller;
use gc_kube::ApiClient;
use gc_workloads::kinds::Kind;
use gc_workloads::workloads::Workload;
use http::Method;
use serde_json::{Value, json};

use crate::definitions::call;

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const NAMESPACE: &str = "kube-system";
/// Prefix of the names of kubegc's accounts, because the server binds upstream's rules to accounts with upstream's names.
pub const PREFIX: &str = "kubegc-";
/// Maximum time for the server to apply rules, which it observes by a watch, and the interval of the checks.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(2);
/// Maximum number of attempts to update a role or a binding.
const TRIES: usize = 5;
/// Groups of every service account in the namespace.
pub const GROUPS: [&str; 3] =
    ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"];

/// Reports whether a user is one of this process's accounts.
#[must_use]
pub fn is_of_this_process(user: &str) -> bool {
    let name = user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.strip_prefix(NAMESPACE));
    name.is_some_and(|rest| rest.strip_prefix(':').is_some_and(|name| name.starts_with(PREFIX)))
}

/// An account of this process, with its permissions.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// Name of its role without the prefix.
    name: String,
    /// The name of the ServiceAccount.
    identity: String,
    rules: Vec<Value>,
}

/// Returns a rule of a ClusterRole.
fn to_json(group: &str, resource: &str, names: &[&str], verbs: &[&str]) -> Value {
    let mut rule = json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
    if !names.is_empty() {
        rule["resourceNames"] = json!(names);
    }
    rule
}

impl From<Controller> for Account {
    fn from(controller: Controller) -> Self {
        let rules = controller.rules().iter();
        Self {
            name: controller.name().to_owned(),
            identity: format!("{PREFIX}{}", controller.account()),
            rules: rules.map(|rule| to_json(rule.group, rule.resource, rule.names, rule.verbs)).collect(),
        }
    }
}

impl From<Workload> for Account {
    fn from(workload: Workload) -> Self {
        let rules = workload.rules().iter();
        Self {
            name: workload.name().to_owned(),
            identity: format!("{PREFIX}{}", workload.identity()),
            rules: rules.map(|rule| to_json(rule.group, rule.resource, rule.names, rule.verbs)).collect(),
        }
    }
}

impl Account {
    /// Returns the account whose watches all workload controllers share.
    pub fn of_informers(kinds: impl IntoIterator<Item = Kind>) -> Self {
        let rules = kinds.into_iter().map(|kind| {
            let served = kind.served();
            json!({"apiGroups": [served.group], "resources": [served.resource], "verbs": ["list", "watch"]})
        });
        let (name, identity) = ("shared-informers".to_owned(), format!("{PREFIX}shared-informers"));
        Self { name, identity, rules: rules.collect() }
    }

    /// Returns its user name.
    #[must_use]
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{NAMESPACE}:{}", self.identity)
    }

    /// Returns its role name. It does not use upstream's `system:controller:`, which has other rules.
    fn role_name(&self) -> String {
        format!("kubegc:{}", self.name)
    }

    fn role(&self) -> Value {
        json!({"metadata": {"name": self.role_name(), "labels": default_rights()}, "rules": self.rules})
    }

    fn binding(&self) -> Value {
        let name = self.role_name();
        json!({"metadata": {"name": name, "labels": default_rights()},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": self.identity}]})
    }
}

/// Returns the label of rights that a server makes for itself. Nothing is missing where the account of such a binding is not an object.
fn default_rights() -> Value {
    json!({"kubernetes.io/bootstrapping": "rbac-defaults"})
}

/// Binds accounts to their rules, and waits until these are in force. `admin` may do everything; `client_of` creates the client of
/// an account.
pub async fn bind(
    admin: &ApiClient,
    client_of: impl Fn(&Account) -> ApiClient,
    accounts: &[Account],
) -> anyhow::Result<()> {
    for account in accounts {
        put(admin, ROLES, &account.role()).await?;
        put(admin, BINDINGS, &account.binding()).await?;
    }
    let deadline = Instant::now() + PATIENCE;
    for account in accounts {
        let client = client_of(account);
        while !is_allowed(&client, account).await? {
            anyhow::ensure!(
                Instant::now() < deadline,
                "the permissions of {} do not come into force",
                account.name
            );
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(())
}

/// Creates an object, or updates the existing one. Another server on the same store may do so at the same time.
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

async fn is_allowed(client: &ApiClient, account: &Account) -> anyhow::Result<bool> {
    let rule = account.rules.first().context("an account without permissions")?;
    let resource = rule["resources"][0].as_str().unwrap_or_default();
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let attributes = json!({"group": rule["apiGroups"][0], "resource": resource, "subresource": subresource,
        "verb": rule["verbs"][0]});
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes}});
    let (_, answer) = call(client, Method::POST, REVIEWS, Some(&review)).await?;
    Ok(answer["status"]["allowed"] == true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_bound_to_its_own_rules() {
        let lease = Account::from(Controller::LeaseCandidate);
        let expected = json!({"metadata": {"name": "kubegc:stale-leasecandidate-controller", "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}, "rules": [
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leasecandidates"],
                "verbs": ["list", "watch", "delete"]}]});
        assert_eq!(lease.role(), expected);
        // `kubegc garbage` leaves such bindings out: their accounts are not objects.
        assert_eq!(lease.binding()["metadata"], expected["metadata"]);
        assert_eq!(lease.binding()["subjects"][0]["name"], "kubegc-stale-leasecandidate-controller");
        assert_eq!(lease.user(), "system:serviceaccount:kube-system:kubegc-stale-leasecandidate-controller");
        let named = Account::from(Controller::LegacyTokenCleaner).role()["rules"][3].clone();
        let tracking = "kube-apiserver-legacy-service-account-token-tracking";
        assert_eq!(named["resourceNames"], json!([tracking]));
    }
}
