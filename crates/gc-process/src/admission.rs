//! The ValidatingAdmissionPolicies of deploy/admission: without them, users have controllers delete what they may not
//! delete themselves.

use gc_collectors::permissions::Controller;
use gc_kube::ApiClient;
use http::{Method, StatusCode};
use serde_json::Value;

use crate::preflight;

/// The policy that belongs to a controller, and what users can do without it.
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

/// A controller whose policy is not installed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{controller} runs without the ValidatingAdmissionPolicyBinding {policy}: {danger}")]
pub struct UnguardedController {
    /// The name of the controller.
    pub controller: &'static str,
    policy: &'static str,
    danger: &'static str,
}

impl UnguardedController {
    /// The remedy.
    pub const ADVICE: &str = "kubectl apply -k deploy/admission";

    /// Returns an example, for tests of how it is shown.
    #[must_use]
    pub fn example() -> Self {
        let (controller, policy, danger) = POLICIES[0];
        Self { controller: controller.name(), policy, danger }
    }
}

/// Returns those of the enabled controllers whose policy is certainly not bound on the server.
pub async fn unguarded(client: &ApiClient, enabled: &[Controller]) -> Vec<UnguardedController> {
    let mut found = Vec::new();
    for (controller, policy, danger) in POLICIES.into_iter().filter(|row| enabled.contains(&row.0)) {
        // The controllers may list everything; none of them needs to get.
        let bindings = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
        let path = format!("{bindings}?fieldSelector=metadata.name%3D{policy}");
        let Ok(answer) = client.call(preflight::request(Method::GET, &path, None)).await else { continue };
        let list: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let is_absent = list["items"].as_array().is_some_and(Vec::is_empty);
        // A server before Kubernetes 1.30 has no such policies.
        if is_absent || answer.head.status == StatusCode::NOT_FOUND {
            found.push(UnguardedController { controller: controller.name(), policy, danger });
        }
    }
    found
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
}
