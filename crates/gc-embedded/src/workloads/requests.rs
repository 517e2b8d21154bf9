//! Requests of workload controllers over HTTP, and the server's responses.

use std::collections::BTreeMap;

use bytes::Bytes;
use gc_apiserver::CertificateAuthority;
use gc_kube::ApiClient;
use gc_workloads::plan::{Action, FailureReason};
use gc_workloads::runtime::{Answer, Sent};
use gc_workloads::workloads::Workload;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use http_body_util::Full;
use serde_json::{Value, json};

use super::certificates;

pub(super) const JSON: &str = "application/json";
const STRATEGIC_MERGE: &str = "application/strategic-merge-patch+json";

/// Sends a request under its controller's account.
pub(crate) async fn perform(
    clients: &BTreeMap<Workload, ApiClient>,
    authority: &CertificateAuthority,
    sent: Sent,
) -> Answer {
    let Some(client) = clients.get(&sent.workload) else {
        return unavailable("the controller has no account");
    };
    let manager = sent.workload.field_manager();
    let shown = sent.action.key().to_string();
    let action = match certificates::prepare(client, authority, sent.action).await {
        Ok(action) => action,
        Err(answer) => return answer,
    };
    let answer = send(client, to_request(action, manager)).await;
    if let Answer::Failed { reason, message } = &answer {
        tracing::debug!(workload = %sent.workload, object = %shown, why = sent.why, ?reason, message, "not done");
    } else {
        tracing::trace!(workload = %sent.workload, object = %shown, why = sent.why, "done");
    }
    answer
}

fn to_request(action: Action, manager: &str) -> http::Result<Request<Full<Bytes>>> {
    let by = |path: String| format!("{path}?fieldManager={manager}");
    let (method, path, content_type, body) = match action {
        Action::Create { kind, namespace, object } => {
            (Method::POST, by(kind.collection_path(&namespace)), JSON, object)
        }
        Action::Update { key, object } => (Method::PUT, by(key.path()), JSON, object),
        Action::UpdateStatus { key, object } | Action::SignCertificate { key, object, .. } => {
            (Method::PUT, by(format!("{}/status", key.path())), JSON, object)
        }
        Action::Patch { key, subresource, patch } => {
            let path =
                if subresource.is_empty() { key.path() } else { format!("{}/{subresource}", key.path()) };
            (Method::PATCH, by(path), STRATEGIC_MERGE, patch)
        }
        Action::Bind { key, uid, node } => {
            let binding = json!({
                "apiVersion": "v1", "kind": "Binding", "metadata": {"name": &*key.name, "uid": &*uid},
                "target": {"apiVersion": "v1", "kind": "Node", "name": &*node},
            });
            (Method::POST, by(format!("{}/binding", key.path())), JSON, binding)
        }
        Action::Delete { key, uid, version, grace_seconds, propagation } => {
            let mut options =
                json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": &*uid}});
            if let Some(version) = version {
                options["preconditions"]["resourceVersion"] = version.to_string().into();
            }
            if let Some(seconds) = grace_seconds {
                options["gracePeriodSeconds"] = seconds.into();
            }
            if let Some(propagation) = propagation {
                options["propagationPolicy"] = propagation.into();
            }
            (Method::DELETE, key.path(), JSON, options)
        }
        Action::Confirm { key, .. } => (Method::GET, key.path(), JSON, Value::Null),
        Action::ApproveCertificate { key, object } => {
            (Method::PUT, by(format!("{}/approval", key.path())), JSON, object)
        }
    };
    let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    Request::builder()
        .method(method)
        .uri(path)
        .header(ACCEPT, JSON)
        .header(CONTENT_TYPE, content_type)
        .body(Full::new(body))
}

async fn send(client: &ApiClient, request: http::Result<Request<Full<Bytes>>>) -> Answer {
    let request = match request {
        Ok(request) => request,
        Err(error) => return unavailable(&error.to_string()),
    };
    let answer = match client.call(request).await {
        Ok(answer) => answer,
        Err(error) => return unavailable(&error.to_string()),
    };
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let code = answer.head.status.as_u16();
    match code {
        200..=299 => Answer::Done(Some(body).filter(|body| body["metadata"]["uid"].is_string())),
        code => Answer::Failed {
            reason: reason(code, &body),
            message: body["message"]
                .as_str()
                .map_or_else(|| format!("the server answered {code}"), str::to_owned),
        },
    }
}

fn reason(code: u16, body: &Value) -> FailureReason {
    let terminating = || {
        let causes = body["details"]["causes"].as_array();
        causes.into_iter().flatten().any(|cause| cause["reason"] == "NamespaceTerminating")
    };
    match (code, body["reason"].as_str().unwrap_or_default()) {
        (409, "AlreadyExists") => FailureReason::AlreadyExists,
        (409, _) => FailureReason::Conflict,
        (404, _) => FailureReason::NotFound,
        (403, _) if terminating() => FailureReason::NamespaceTerminating,
        (408 | 429, _) => FailureReason::Unavailable,
        (400..=499, _) => FailureReason::Refused,
        _ => FailureReason::Unavailable,
    }
}

pub(super) fn unavailable(message: &str) -> Answer {
    Answer::Failed { reason: FailureReason::Unavailable, message: message.to_owned() }
}
