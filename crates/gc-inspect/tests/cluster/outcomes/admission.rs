//! Admission policies and webhooks as obstacles to a plan: they refuse, do not answer, or change nothing.

use std::net::SocketAddr;

use http::Method;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::World;
use super::graphs::{Graph, Random};

#[allow(dead_code, unreachable_pub, reason = "its other users need more of it")]
#[path = "../../../../gc-apiserver/tests/support/webhook.rs"]
mod webhook;

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
/// Label of all obstacles.
const OBSTACLE: &str = "acme.dev/obstacle";
/// Seed of a separate generator, which keeps the graphs unchanged.
const SALT: u64 = 0x00ad_0155_1014;

/// An obstacle in the namespace of a graph. Those that refuse deletions refuse the objects with even numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// A policy that refuses deletions.
    KeepingPolicy,
    /// A policy that refuses the removal of owner references.
    ReferencePolicy,
    /// A policy that only warns.
    WarningPolicy,
    /// A webhook that refuses deletions.
    RefusingWebhook,
    /// A webhook that nothing answers for.
    DeadWebhook,
    /// A webhook that nothing answers for, without which the server continues.
    IgnoredWebhook,
    /// A webhook whose Service does not exist.
    LostWebhook,
    /// A webhook that accepts connections and never responds.
    SilentWebhook,
}

/// The listening webhooks.
pub(super) struct Hooks {
    refusing: (SocketAddr, String),
    silent: (TcpListener, SocketAddr),
}

impl Hooks {
    pub(super) async fn start() -> Self {
        let refusing = webhook::serve(|_, review| {
            let request = &review["request"];
            let name = request["oldObject"]["metadata"]["name"].as_str().unwrap_or_default();
            let response = json!({"uid": request["uid"], "allowed": !is_even(name), "status": {"message": "it is kept"}});
            Some(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
        })
        .await;
        // The kernel accepts connections to it.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = silent.local_addr().unwrap();
        Self { refusing, silent: (silent, address) }
    }

    fn webhook(&self, rule: Rule, seed: u64, resources: &[&str]) -> Value {
        let client = match rule {
            Rule::RefusingWebhook => {
                json!({"url": format!("https://{}/", self.refusing.0), "caBundle": self.refusing.1})
            }
            Rule::SilentWebhook => json!({"url": format!("https://{}/", self.silent.1)}),
            Rule::LostWebhook => json!({"service": {"namespace": "default", "name": "absent"}}),
            _ => json!({"url": "https://127.0.0.1:1/"}),
        };
        let failure = if rule == Rule::IgnoredWebhook { "Ignore" } else { "Fail" };
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": format!("g{seed}"), "labels": {OBSTACLE: "1"}},
            "webhooks": [{
                "name": format!("check-g{seed}.acme.dev"), "failurePolicy": failure, "sideEffects": "None",
                "admissionReviewVersions": ["v1"], "clientConfig": client, "timeoutSeconds": 1,
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": format!("g{seed}")}},
                "rules": [{"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": resources}],
            }],
        })
    }
}

fn is_even(name: &str) -> bool {
    name.ends_with(['0', '2', '4', '6', '8'])
}

fn policy(rule: Rule, seed: u64, resources: &[&str]) -> [Value; 2] {
    let name = format!("g{seed}");
    let (operation, expression) = if rule == Rule::ReferencePolicy {
        let count = |object: &str| format!("size({object}.metadata.?ownerReferences.orValue([]))");
        ("UPDATE", format!("{} >= {}", count("object"), count("oldObject")))
    } else {
        ("DELETE", "!oldObject.metadata.name.matches('[02468]$')".to_owned())
    };
    let action = if rule == Rule::WarningPolicy { "Warn" } else { "Deny" };
    let rules = json!([{"operations": [operation], "apiGroups": [""], "apiVersions": ["v1"], "resources": resources}]);
    let spec = json!({"failurePolicy": "Fail", "matchConstraints": {"resourceRules": rules},
                      "validations": [{"expression": expression, "message": "it is kept"}]});
    let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": name}});
    let binding = json!({"policyName": name, "validationActions": [action],
                         "matchResources": {"namespaceSelector": selector}});
    let object = |kind: &str, spec: Value| json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name, "labels": {OBSTACLE: "1"}}, "spec": spec});
    [object("ValidatingAdmissionPolicy", spec), object("ValidatingAdmissionPolicyBinding", binding)]
}

/// Creates an obstacle to the deletions in a graph's namespace. Returns its description for messages.
pub(super) async fn obstruct(world: &World, hooks: &Hooks, graph: &Graph) -> String {
    let mut random = Random(graph.seed ^ SALT);
    let rule = match random.below(100) {
        0..38 => Rule::KeepingPolicy,
        38..58 => Rule::ReferencePolicy,
        58..64 => Rule::WarningPolicy,
        64..78 => Rule::RefusingWebhook,
        78..84 => Rule::DeadWebhook,
        84..90 => Rule::IgnoredWebhook,
        90..97 => Rule::LostWebhook,
        // Each of its responses costs a second.
        _ => Rule::SilentWebhook,
    };
    let mut resources: Vec<&str> = Vec::new();
    for (resource, percent) in [
        ("configmaps", 70),
        ("secrets", 50),
        ("pods", 40),
        ("persistentvolumeclaims", 40),
        ("namespaces", 15),
    ] {
        if random.chance(percent) {
            resources.push(resource);
        }
    }
    if resources.is_empty() {
        resources.push("configmaps");
    }
    match rule {
        Rule::KeepingPolicy | Rule::ReferencePolicy | Rule::WarningPolicy => {
            let [policy, binding] = policy(rule, graph.seed, &resources);
            world.expect(Method::POST, POLICIES, &policy).await;
            world.expect(Method::POST, BINDINGS, &binding).await;
        }
        _ => {
            world.expect(Method::POST, WEBHOOKS, &hooks.webhook(rule, graph.seed, &resources)).await;
        }
    }
    format!("{rule:?} about {resources:?}")
}

/// Removes all obstacles.
pub(super) async fn clear(world: &World) {
    for path in [WEBHOOKS, BINDINGS, POLICIES] {
        world.expect(Method::DELETE, &format!("{path}?labelSelector={OBSTACLE}"), &Value::Null).await;
    }
}
