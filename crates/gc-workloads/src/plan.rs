//! Result of a reconciliation: requests in steps, the Events that follow them, and the time of the next one.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::tz::TimeZone;
use serde_json::Value;

use crate::kinds::{Key, Kind};
use crate::object::Object;
use crate::store::Store;
use crate::time::Milliseconds;

/// Input of a reconciliation.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Observed objects.
    pub store: &'a Store,
    /// The time.
    pub now: Milliseconds,
    /// Settings of this process.
    pub settings: &'a Settings,
    /// Failure that ended the previous plan for this object, if any.
    pub failure: Option<&'a Failure>,
}

/// Settings of the workload controllers in this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Number of simulated nodes.
    pub nodes: u32,
    /// True if the controllers in this process include the kubelets of simulated nodes; set by the runtime.
    pub keeps_nodes: bool,
    /// Time until a simulated pod becomes ready.
    pub pod_start_latency: Milliseconds,
    /// Time until the containers of a simulated pod end after its deletion.
    pub pod_termination_latency: Milliseconds,
    /// Certificate authority of the API server, in PEM.
    pub root_certificates: String,
    /// Time zones that CronJobs name, as far as they are known.
    pub time_zones: BTreeMap<String, TimeZone>,
}

/// Severity of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Normal operation.
    Normal,
    /// Something is wrong.
    Warning,
}

/// An Event to write. `{}` in the message is replaced by the name of the object in the response or, after a failure, by the
/// server's message.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// The object, in the form in which Events refer to it.
    pub about: Value,
    /// Severity of the Event.
    pub severity: Severity,
    /// Reason of the Event.
    pub reason: Cow<'static, str>,
    /// Text of the Event.
    pub message: String,
    /// Node whose kubelet reports it; empty for a controller.
    pub host: Arc<str>,
}

impl Note {
    /// Creates an Event of type Normal.
    #[must_use]
    pub fn normal(about: &Object, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self {
            about: about.reference(),
            severity: Severity::Normal,
            reason: reason.into(),
            message: message.into(),
            host: "".into(),
        }
    }

    /// Creates an Event of type Warning.
    #[must_use]
    pub fn warning(about: &Object, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::normal(about, reason, message) }
    }

    /// Makes the kubelet of a node the reporter.
    #[must_use]
    pub fn from_kubelet_of(mut self, node: &Object) -> Self {
        self.host = Arc::clone(&node.key.name);
        self
    }

    /// Makes it about a part of the object, such as `spec.containers{web}`.
    #[must_use]
    pub fn about_part(mut self, field_path: String) -> Self {
        self.about["fieldPath"] = field_path.into();
        self
    }
}

/// Request to send.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// POST an object to its collection.
    Create {
        /// Kind of the object.
        kind: Kind,
        /// Namespace of the object; empty if it is cluster-scoped.
        namespace: Arc<str>,
        /// The object.
        object: Value,
    },
    /// PUT an object, conditional on the resourceVersion that it carries.
    Update {
        /// Key of the object.
        key: Key,
        /// The object.
        object: Value,
    },
    /// PUT an object's status.
    UpdateStatus {
        /// Key of the object.
        key: Key,
        /// The object.
        object: Value,
    },
    /// PATCH an object or one of its subresources, as a strategic merge.
    Patch {
        /// Key of the object.
        key: Key,
        /// `status`, or empty.
        subresource: &'static str,
        /// Patch, which includes the UID.
        patch: Value,
    },
    /// POST a pod's binding.
    Bind {
        /// The pod.
        key: Key,
        /// UID of the object.
        uid: Arc<str>,
        /// The node.
        node: Arc<str>,
    },
    /// DELETE an object, if it still has this UID.
    Delete {
        /// Key of the object.
        key: Key,
        /// UID of the object.
        uid: Arc<str>,
        /// `resourceVersion` of the object, if the verdict depends on its contents.
        version: Option<u64>,
        /// `gracePeriodSeconds`, if not the object's own.
        grace_seconds: Option<u32>,
        /// `propagationPolicy`, if not the default.
        propagation: Option<&'static str>,
    },
    /// Approve a CertificateSigningRequest, if its requester has the permission ([`crate::certificates::permissions`]).
    ApproveCertificate {
        /// Key of the object.
        key: Key,
        /// The object.
        object: Value,
    },
    /// Sign an approved CertificateSigningRequest, or write the reason against it to its status ([`crate::certificates::refusal`]).
    SignCertificate {
        /// Key of the object.
        key: Key,
        /// The object.
        object: Value,
        /// Time from which the certificate is valid.
        now: Milliseconds,
    },
    /// GET an object from the server: the plan continues only if it has this UID and is not terminating.
    Confirm {
        /// Key of the object.
        key: Key,
        /// UID of the object.
        uid: Arc<str>,
    },
}

impl Action {
    /// Returns the key of its object; a created one may have no name yet.
    #[must_use]
    pub fn key(&self) -> Key {
        match self {
            Self::Create { kind, namespace, object } => {
                kind.key(namespace, object["metadata"]["name"].as_str().unwrap_or_default())
            }
            Self::Update { key, .. }
            | Self::UpdateStatus { key, .. }
            | Self::Patch { key, .. }
            | Self::Bind { key, .. }
            | Self::Delete { key, .. }
            | Self::ApproveCertificate { key, .. }
            | Self::SignCertificate { key, .. }
            | Self::Confirm { key, .. } => key.clone(),
        }
    }
}

/// An action, its reason, and the Events that report it.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The request.
    pub action: Action,
    /// Reason: a stable code, for logs.
    pub why: &'static str,
    /// Event to write once it is done.
    pub done: Option<Note>,
    /// Event to write if it fails.
    pub failed: Option<Note>,
}

impl Request {
    /// Creates a request with its reason.
    #[must_use]
    pub fn new(action: Action, why: &'static str) -> Self {
        Self { action, why, done: None, failed: None }
    }

    /// Creates an object in an owner's namespace.
    #[must_use]
    pub fn create(kind: Kind, namespace: &str, object: Value, why: &'static str) -> Self {
        Self::new(Action::Create { kind, namespace: namespace.into(), object }, why)
    }

    /// Updates an object.
    #[must_use]
    pub fn update(key: &Key, object: Value, why: &'static str) -> Self {
        Self::new(Action::Update { key: key.clone(), object }, why)
    }

    /// Updates the status of an object.
    #[must_use]
    pub fn update_status(key: &Key, object: Value, why: &'static str) -> Self {
        Self::new(Action::UpdateStatus { key: key.clone(), object }, why)
    }

    /// Patches an object.
    #[must_use]
    pub fn patch(key: &Key, patch: Value, why: &'static str) -> Self {
        Self::new(Action::Patch { key: key.clone(), subresource: "", patch }, why)
    }

    /// Patches the status of an object.
    #[must_use]
    pub fn patch_status(key: &Key, patch: Value, why: &'static str) -> Self {
        Self::new(Action::Patch { key: key.clone(), subresource: "status", patch }, why)
    }

    /// Deletes an object, conditional on its UID.
    #[must_use]
    pub fn delete(object: &Object, why: &'static str) -> Self {
        let (key, uid) = (object.key.clone(), Arc::clone(&object.uid));
        Self::new(Action::Delete { key, uid, version: None, grace_seconds: None, propagation: None }, why)
    }

    /// Reads an object from the server, which must find it as it is known.
    #[must_use]
    pub fn confirm(object: &Object, why: &'static str) -> Self {
        Self::new(Action::Confirm { key: object.key.clone(), uid: Arc::clone(&object.uid) }, why)
    }

    /// Adds Events.
    #[must_use]
    pub fn noting(mut self, done: impl Into<Option<Note>>, failed: impl Into<Option<Note>>) -> Self {
        self.done = done.into();
        self.failed = failed.into();
        self
    }
}

/// Plan for one object: steps one after the other, with the requests of a step together. A failure ends the plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The steps.
    pub steps: Vec<Vec<Request>>,
    /// Events without a request, which are written once everything is done.
    pub notes: Vec<Note>,
    /// Time of the next reconciliation, if nothing changes before.
    pub again_at: Option<Milliseconds>,
    /// True if the previous failure has been handled, but not its cause: reconcile again after a backoff.
    pub still_failing: bool,
}

impl Plan {
    /// Adds a request as a step of its own.
    pub fn then(&mut self, request: Request) {
        self.steps.push(vec![request]);
    }

    /// Adds requests that may be sent together.
    pub fn together(&mut self, requests: Vec<Request>) {
        if !requests.is_empty() {
            self.steps.push(requests);
        }
    }

    /// Adds requests in batches of one, two, four and so on, each of which has to succeed before the next one is sent, so that an
    /// impossible creation is not attempted hundreds of times.
    pub fn slowly(&mut self, requests: Vec<Request>) {
        let (mut rest, mut size) = (requests, 1);
        while !rest.is_empty() {
            let after = rest.split_off(size.min(rest.len()));
            self.steps.push(rest);
            (rest, size) = (after, size * 2);
        }
    }

    /// Requests a reconciliation at a time; an earlier one takes precedence.
    pub fn again_at(&mut self, at: Milliseconds) {
        self.again_at = Some(self.again_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Reports whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.notes.is_empty()
    }
}

/// Reason why a plan ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Kind of the request.
    pub action: FailedAction,
    /// Reason from the server.
    pub reason: FailureReason,
    /// Message of the server.
    pub message: String,
}

/// Kind of a failed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailedAction {
    /// A creation.
    Create(Kind),
    /// A deletion.
    Delete(Kind),
    /// Anything else.
    Other,
}

/// Reason why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureReason {
    /// The object has changed.
    Conflict,
    /// An object of this name exists.
    AlreadyExists,
    /// The object does not exist.
    NotFound,
    /// Its namespace is being deleted.
    NamespaceTerminating,
    /// A live read found another object, or a terminating one.
    NotConfirmed,
    /// The server refused the request: forbidden, invalid, over quota.
    Refused,
    /// There was no response, or one that asks for a retry.
    Unavailable,
}
