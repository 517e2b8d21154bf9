//! A server whose service is called without connections, as any user.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use gc_apiserver::InProcess;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};

use crate::support::{Answer, TestServer};

pub const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
pub const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub const JSON: &str = "application/json";
pub const JSON_PATCH: &str = "application/json-patch+json";
pub const MERGE_PATCH: &str = "application/merge-patch+json";
pub const APPLY: &str = "application/apply-patch+yaml";

/// Maximum number of polls until a review has the expected answer.
const TURNS: usize = 10_000;

pub struct World {
    pub server: TestServer,
    granted: AtomicUsize,
}

/// A user who sends requests.
#[derive(Clone)]
pub struct Client(InProcess);

impl World {
    pub async fn start() -> Self {
        Self { server: TestServer::start().await, granted: AtomicUsize::new(0) }
    }

    pub fn admin(&self) -> Client {
        Client(self.server.server.in_process("root"))
    }

    /// Returns a user without any group but `system:authenticated`.
    pub fn user(&self, name: &str) -> Client {
        Client(self.server.server.in_process_as(name, &[]))
    }

    /// Grants rules to a user by a ClusterRole, and returns once they are in force.
    pub async fn grant(&self, user: &str, rules: Value) -> Client {
        let number = self.granted.fetch_add(1, Ordering::Relaxed);
        let (name, marker) = (format!("granted-{number}"), format!("marker-{number}"));
        let mut rules = rules;
        rules
            .as_array_mut()
            .unwrap()
            .push(json!({"apiGroups": ["test"], "resources": [marker], "verbs": ["get"]}));
        let admin = self.admin();
        let role = json!({"metadata": {"name": name}, "rules": rules});
        admin.create(&format!("{RBAC}/clusterroles"), &role).await;
        let binding = json!({"metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
        admin.create(&format!("{RBAC}/clusterrolebindings"), &binding).await;
        let asked = json!({"spec": {"user": user, "resourceAttributes": {"group": "test", "resource": marker, "verb": "get"}}});
        for _ in 0..TURNS {
            let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
            if admin.post(reviews, &asked).await.json()["status"]["allowed"] == true {
                return self.user(user);
            }
            tokio::task::yield_now().await;
        }
        panic!("{name} never came into force");
    }
}

/// Returns a rule with these verbs on these resources of one group.
pub fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

impl Client {
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &[u8])],
        body: impl Into<Bytes>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).unwrap();
        let (head, body) = self.0.call(request).await.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Answer { code: head.status.as_u16(), headers: head.headers, bytes }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, &[("content-type", JSON.as_bytes())], body.to_string()).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send("PUT", path, &[("content-type", JSON.as_bytes())], body.to_string()).await
    }

    pub async fn patch(&self, path: &str, content_type: &str, body: &Value) -> Answer {
        self.send("PATCH", path, &[("content-type", content_type.as_bytes())], body.to_string()).await
    }

    pub async fn apply(&self, path: &str, body: &Value) -> Answer {
        self.patch(&format!("{path}?fieldManager=test&force=true"), APPLY, body).await
    }

    /// Creates an object that must be accepted.
    pub async fn create(&self, path: &str, body: &Value) -> Value {
        let answer = self.post(path, body).await;
        assert_eq!(answer.code, 201, "{path}: {answer:?}");
        answer.json()
    }
}

/// Returns code and message of an answer.
pub fn status_of(answer: &Answer) -> (u16, String) {
    let message = serde_json::from_slice::<Value>(&answer.bytes)
        .ok()
        .and_then(|status| status["message"].as_str().map(str::to_owned));
    (answer.code, message.unwrap_or_default())
}
