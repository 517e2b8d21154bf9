//! Performs the requests of workload controllers in the registry, with the changes of the planted defect.

use gc_registry::api::{
    DeleteOptions, Operation, PatchType, RequestBody, Response, ResponseBody, WriteOptions,
};
use gc_registry::error::ApiError;
use gc_workloads::kinds::{Key, Kind as WorkloadKind};
use gc_workloads::plan::{Action, FailureReason};
use gc_workloads::runtime::{Answer, Sent};
use serde_json::{Value, json};

use super::feed::value_of;
use super::{Defect, WorkloadWorld, at, broken, kind_of};
use crate::violation::Violation;

/// Returns the response to a lost request.
pub(super) fn unavailable() -> Answer {
    Answer::Failed { reason: FailureReason::Unavailable, message: "timed out".into() }
}

fn write(value: Value) -> Operation {
    Operation::Update(RequestBody::from(value), WriteOptions::default())
}

impl WorkloadWorld {
    /// Performs a request, or pretends to if the planted defect requires it.
    pub(super) fn perform(&mut self, sent: &Sent) -> Answer {
        let mut action = sent.action.clone();
        let pretended = match (&mut action, sent.why) {
            (Action::Delete { .. }, "revision-history-limit") => self.is(Defect::HistoryKept),
            (Action::Delete { .. }, "cron") => self.is(Defect::JobsKept),
            (Action::Confirm { key, uid }, _) => {
                let (key, uid) = (key.clone(), uid.to_string());
                if !self.is_there(&key, &uid) {
                    self.unconfirmed.insert(uid.clone());
                }
                if self.is(Defect::AdoptedUnseen) {
                    return Answer::Done(Some(json!({"metadata": {"uid": uid}})));
                }
                false
            }
            (Action::Update { .. }, "retention") => self.is(Defect::ClaimsUnowned),
            (Action::Patch { patch, .. }, _) if self.is(Defect::PodsHeld) => {
                !at(patch, "/metadata/$deleteFromPrimitiveList~1finalizers").is_null()
            }
            (Action::Create { object, .. }, _) if self.is(Defect::OwnersMisnamed) => {
                if let Some(owner) = object.pointer_mut("/metadata/ownerReferences/0/uid") {
                    *owner = "00000000-0000-4000-8000-000000000000".into();
                }
                false
            }
            _ => false,
        };
        if pretended {
            return Answer::Done(None);
        }
        self.ask(action)
    }

    /// Reports whether an object exists and is not being deleted.
    fn is_there(&self, key: &Key, uid: &str) -> bool {
        match self.server.get(&kind_of(key.kind), &key.namespace, &key.name) {
            Some(Ok(object)) => value_of(&object).is_some_and(|value| {
                at(&value, "/metadata/uid") == uid && at(&value, "/metadata/deletionTimestamp").is_null()
            }),
            _ => false,
        }
    }

    /// Judges an adoption: a live read must have found the owner, and found it not being deleted.
    pub(super) fn judge_adoption(&self, sent: &Sent) -> Result<(), Violation> {
        let Action::Patch { key, patch, .. } = &sent.action else { return Ok(()) };
        let owner = at(patch, "/metadata/ownerReferences/0/uid").as_str().unwrap_or_default();
        if sent.why == "adopt" && self.unconfirmed.contains(owner) {
            return Err(broken("adopted", format!("{key} was adopted by an owner that is gone")));
        }
        Ok(())
    }

    fn ask(&self, action: Action) -> Answer {
        let key = action.key();
        let (namespace, name) = (key.namespace.to_string(), key.name.to_string());
        let place = |subresource| (namespace.as_str(), name.as_str(), subresource);
        match action {
            Action::Create { kind, object, .. } => {
                let body = RequestBody::from(object);
                self.answer(kind, (&namespace, "", ""), Operation::Create(body, WriteOptions::default()))
            }
            Action::Update { key, object } => self.answer(key.kind, place(""), write(object)),
            Action::UpdateStatus { key, object } => self.answer(key.kind, place("status"), write(object)),
            Action::Patch { key, subresource, patch } => {
                let body = RequestBody::from(patch);
                let patch = Operation::Patch(PatchType::StrategicMerge, body, WriteOptions::default());
                self.answer(key.kind, place(subresource), patch)
            }
            Action::Bind { key, uid, node } => {
                let binding = json!({"apiVersion": "v1", "kind": "Binding",
                    "metadata": {"name": name, "uid": &*uid},
                    "target": {"apiVersion": "v1", "kind": "Node", "name": &*node}});
                let body = RequestBody::from(binding);
                let operation = Operation::Create(body, WriteOptions::default());
                self.answer(key.kind, place("binding"), operation)
            }
            Action::Delete { key, uid, version, grace_seconds, propagation } => {
                let options = DeleteOptions {
                    precondition_uid: Some(uid.to_string()),
                    precondition_resource_version: version.map(|version| version.to_string()),
                    grace_period_seconds: grace_seconds.map(i64::from),
                    propagation_policy: propagation.map(str::to_owned),
                    ..DeleteOptions::default()
                };
                self.answer(key.kind, place(""), Operation::Delete(options))
            }
            // No world has CertificateSigningRequests.
            Action::ApproveCertificate { .. } | Action::SignCertificate { .. } => unavailable(),
            Action::Confirm { key, .. } => {
                self.answer(key.kind, place(""), Operation::Get { resource_version: String::new() })
            }
        }
    }

    fn answer(&self, kind: WorkloadKind, place: (&str, &str, &str), operation: Operation) -> Answer {
        match self.server.request_part(&kind_of(kind), place, operation) {
            None => unavailable(),
            Some(Ok(response)) => Answer::Done(object_of(&response)),
            Some(Err(error)) => Answer::Failed { reason: reason(&error), message: error.message },
        }
    }
}

fn object_of(response: &Response) -> Option<Value> {
    match &response.body {
        ResponseBody::Object(object) => {
            value_of(object).filter(|value| at(value, "/metadata/uid").is_string())
        }
        _ => None,
    }
}

fn reason(error: &ApiError) -> FailureReason {
    match (error.code, &*error.reason) {
        (409, "AlreadyExists") => FailureReason::AlreadyExists,
        (409, _) => FailureReason::Conflict,
        (404, _) => FailureReason::NotFound,
        (403, _) if error.message.contains("being terminated") => FailureReason::NamespaceTerminating,
        (408 | 429 | 500.., _) => FailureReason::Unavailable,
        _ => FailureReason::Refused,
    }
}
