//! The ValidatingAdmissionPolicies of deploy/admission: without them, users could have controllers delete objects that they may not
//! delete themselves.

use gc_collectors::permissions::Controller;
use gc_kube::ApiClient;
use gc_kube::requests::confirm_unserved;
use http::{Method, StatusCode};
use serde_json::Value;

use crate::preflight;

/// Policy of each controller, and what users can do without it.
const POLICIES: [(Controller, &str, &str); 2] = [
    (
        Controller::Expiry,
        "kubegc-expiry-needs-delete",
        "whoever may change an object has it deleted by an annotation, on its status too",
    ),
    (
        Controller::RetentionPolicy,
        "kubegc-retention-policy-needs-delete",
        "whoever may write a RetentionPolicy reads and deletes objects of every kind",
    ),
];

/// Group, plural name and kind of what binds such a policy.
const BINDINGS: (&str, &str, &str) =
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding");

/// A controller whose policy is not installed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{controller} runs without the ValidatingAdmissionPolicyBinding {policy}: {danger}")]
pub struct UnguardedController {
    /// Name of the controller.
    pub controller: &'static str,
    policy: &'static str,
    danger: &'static str,
}

impl UnguardedController {
    /// Remedy for a missing policy.
    pub const ADVICE: &str = "kubectl apply -k deploy/admission";

    /// Returns an example for tests of the display.
    #[must_use]
    pub fn example() -> Self {
        let (controller, policy, danger) = POLICIES[0];
        Self { controller: controller.name(), policy, danger }
    }
}

/// Returns the enabled controllers whose policy is certainly not bound on the server.
pub async fn unguarded(client: &ApiClient, enabled: &[Controller]) -> Vec<UnguardedController> {
    let mut found = Vec::new();
    for (controller, policy, danger) in POLICIES.into_iter().filter(|row| enabled.contains(&row.0)) {
        if is_unbound(client, policy).await {
            found.push(UnguardedController { controller: controller.name(), policy, danger });
        }
    }
    found
}

/// Reports whether a policy is certainly not bound.
async fn is_unbound(client: &ApiClient, policy: &str) -> bool {
    let (group, resource, kind) = BINDINGS;
    // The controllers may list everything; none of them needs to get.
    let path = format!("/apis/{group}/v1/{resource}?fieldSelector=metadata.name%3D{policy}");
    let Ok(answer) = client.call(preflight::request(Method::GET, &path, None)).await else { return false };
    // A server before Kubernetes 1.30 has no such policies; a gateway that does not reach its server says the same.
    if answer.head.status == StatusCode::NOT_FOUND {
        return confirm_unserved(client, &answer, BINDINGS).await.is_ok();
    }
    let list: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let is_list = answer.head.status.is_success() && list["kind"].as_str() == Some(&format!("{kind}List"));
    is_list && list["items"].as_array().is_some_and(Vec::is_empty)
}

/// Warns of controllers without their policy. On a server of `kubegc up`, which has the rules built in, the warning means nothing:
/// finding out needs a right that the controllers do not have.
pub async fn warn_of_unguarded(client: &ApiClient, enabled: &[Controller]) {
    for one in unguarded(client, enabled).await {
        tracing::warn!(controller = one.controller, advice = UnguardedController::ADVICE, "{one}");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::Full;
    use serde_json::json;

    use super::*;
    use gc_embedded::apiserver::{self, ServerOptions};

    #[tokio::test]
    async fn a_controller_without_its_policy_is_found() {
        let server = apiserver::serve(&ServerOptions::in_process(), None).await.unwrap();
        let way = server.in_process("tester");
        let client = ApiClient::in_process(move |request| way.call(request));
        let enabled = [Controller::GarbageCollector, Controller::Expiry];
        assert_eq!(unguarded(&client, &enabled).await, [UnguardedController::example()]);
        assert_eq!(unguarded(&client, &enabled[..1]).await, []);
        let text = include_str!("../../../deploy/admission/expiry.yaml");
        for (object, resource) in serde_saphyr::from_multiple::<Value>(text)
            .unwrap()
            .into_iter()
            .zip(["validatingadmissionpolicies", "validatingadmissionpolicybindings"])
        {
            let path = format!("/apis/admissionregistration.k8s.io/v1/{resource}?fieldValidation=Strict");
            let answer = client.call(preflight::request(Method::POST, &path, Some(&object))).await.unwrap();
            assert_eq!(answer.head.status, StatusCode::CREATED, "{}", preflight::message(&answer));
        }
        assert_eq!(unguarded(&client, &enabled).await, []);
        server.shutdown().await;
    }

    /// Answers every path with this, and discovery with documents of these groups.
    async fn is_unbound_after(code: u16, body: &str, groups: Option<&[&str]>) -> bool {
        let version = |group: &str, resource: &str, kind: &str| {
            json!({"metadata": {"name": group}, "versions": [{"version": "v1", "freshness": "Current", "resources": [
                {"resource": resource, "responseKind": {"kind": kind}, "scope": "Cluster", "verbs": ["list"]}]}]})
        };
        let list = |items: &[Value]| json!({"kind": "APIGroupDiscoveryList", "items": items}).to_string();
        let named: Option<Vec<Value>> =
            groups.map(|groups| groups.iter().map(|group| version(group, "things", "Thing")).collect());
        let (core, named) = (list(&[version("", "nodes", "Node")]), named.map(|named| list(&named)));
        let other = body.to_owned();
        let client = ApiClient::in_process(move |request: Request<Full<Bytes>>| {
            let (code, body) = match (request.uri().path(), &named) {
                ("/api", Some(_)) => (200, core.clone()),
                ("/apis", Some(named)) => (200, named.clone()),
                _ => (code, other.clone()),
            };
            let response = Response::builder().status(code).header("content-type", "application/json");
            let response = response.body(Full::new(Bytes::from(body))).unwrap();
            async move { response }
        });
        is_unbound(&client, "kubegc-expiry-needs-delete").await
    }

    /// The 404 of a gateway, and a success that is not the list, are no reason to warn.
    #[tokio::test]
    async fn only_an_api_server_proves_that_a_policy_is_unbound() {
        let (group, resource, kind) = BINDINGS;
        let list = |kind: &str| json!({"kind": format!("{kind}List"), "items": []}).to_string();
        let text = "404 page not found\n";
        let status =
            json!({"kind": "Status", "reason": "NotFound", "details": {"group": group, "kind": resource}})
                .to_string();
        for (code, body, groups, is_proven) in [
            (200, list(kind), None, true),
            (200, list("ConfigMap"), None, false),
            (200, json!({"items": []}).to_string(), None, false),
            (200, "{}".to_owned(), None, false),
            (503, list(kind), None, false),
            (404, status, None, true),
            (404, text.to_owned(), None, false),
            (404, text.to_owned(), Some(&[][..]), false),
            (404, text.to_owned(), Some(&["apps"][..]), true),
        ] {
            assert_eq!(is_unbound_after(code, &body, groups).await, is_proven, "{code} {body} {groups:?}");
        }
    }
}
