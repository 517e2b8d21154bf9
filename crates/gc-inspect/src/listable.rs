//! Resources that a user may list.

use gc_explain::GroupResource;
use gc_kube::ApiClient;
use http::Method;
use serde_json::Value;

use gc_process::preflight;

/// Resources of a namespace that a user may list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listable(Vec<(String, String)>);

impl Listable {
    /// Reports whether a resource is among them.
    #[must_use]
    pub fn contain(&self, name: &GroupResource) -> bool {
        let is = |rule: &str, value: &str| rule == "*" || rule == value;
        self.0.iter().any(|(group, resource)| is(group, &name.group) && is(resource, &name.resource))
    }

    fn of_review(status: &Value) -> Option<Self> {
        let texts = |rule: &Value, field: &str| -> Vec<String> {
            let items = rule[field].as_array().into_iter().flatten();
            items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
        };
        let mut listable = Vec::new();
        for rule in status["resourceRules"].as_array()? {
            let may_list = texts(rule, "verbs").iter().any(|verb| verb == "list" || verb == "*");
            // A grant by name does not allow lists.
            if may_list && texts(rule, "resourceNames").is_empty() {
                for group in texts(rule, "apiGroups") {
                    listable.extend(texts(rule, "resources").into_iter().map(|name| (group.clone(), name)));
                }
            }
        }
        Some(Self(listable))
    }
}

/// Asks the server which resources of a namespace the user may list; `None` if the server's answer is incomplete. This one request
/// avoids one refusal per resource.
pub async fn listable(client: &ApiClient, namespace: &str) -> Option<Listable> {
    let review = serde_json::json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace},
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let answer = client.call(preflight::request(Method::POST, path, Some(&review))).await.ok()?;
    let review: Value = serde_json::from_slice(&answer.body).ok()?;
    let status = &review["status"];
    if !answer.head.status.is_success() || status["incomplete"] == true {
        return None;
    }
    Listable::of_review(status)
}
