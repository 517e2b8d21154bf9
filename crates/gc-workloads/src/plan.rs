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
    /// True if the controllers of this process include the kubelets of simulated nodes; the runtime sets it.
    pub keeps_nodes: bool,
    /// Time until a simulated pod becomes ready.
    pub pod_start_latency: Milliseconds,
    /// Time until the containers of a simulated pod end after its deletion.
    pub pod_termination_latency: Milliseconds,
    /// The certificate authority of the API server, in PEM.
    pub root_certificates: String,
    /// The time zones that CronJobs name, as far as they are known.
    pub time_zones: BTreeMap<String, TimeZone>,
}

/// The severity of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Business as usual.
    Normal,
    /// Something is wrong.
    Warning,
}

/// An Event to be written. `{}` in the message becomes the name of the object that the request answered with, or, after a
/// failure, what the server said.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// The object it is about, as Events refer to it.
    pub about: Value,
    /// Its severity.
    pub severity: Severity,
    /// Its reason.
    pub reason: Cow<'static, str>,
    /// Text of the Event.
    pub message: String,
    /// The node whose kubelet reports it; empty for a controller.
    pub host: Arc<str>,
}

impl Note {
    /// An Event of type Normal.
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

    /// An Event of type Warning.
    #[must_use]
    pub fn warning(about: &Object, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::normal(about, reason, message) }
    }

    /// Reported by the kubelet of a node.
    #[must_use]
    pub fn from_kubelet_of(mut self, node: &Object) -> Self {
        self.host = Arc::clone(&node.key.name);
        self
    }

    /// About a part of the object, such as `spec.containers{web}`.
    #[must_use]
    pub fn about_part(mut self, field_path: String) -> Self {
        self.about["fieldPath"] = field_path.into();
        self
    }
}

/// Request to send.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// POST an object into its collection.
    Create {
        /// Its kind.
        kind: Kind,
        /// Its namespace; empty if it has none.
        namespace: Arc<str>,
        /// The object.
        object: Value,
    },
    /// PUT an object, guarded by the resourceVersion it carries.
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
        /// The patch; it names the UID.
        patch: Value,
    },
    /// POST a pod's binding.
    Bind {
        /// The pod.
        key: Key,
        /// Its UID.
        uid: Arc<str>,
        /// The node.
        node: Arc<str>,
    },
    /// DELETE an object, if it still has this UID.
    Delete {
        /// Key of the object.
        key: Key,
        /// Its UID.
        uid: Arc<str>,
        /// Its resourceVersion, where the verdict depends on its contents.
        version: Option<u64>,
        /// `gracePeriodSeconds`, where not the object's own.
        grace_seconds: Option<u32>,
        /// `propagationPolicy`, where not the default.
        propagation: Option<&'static str>,
    },
    /// Approve a CertificateSigningRequest, if whoever made it may have it approved ([`crate::certificates::permissions`]).
    ApproveCertificate {
        /// Key of the object.
        key: Key,
        /// The object.
        object: Value,
    },
    /// Sign an approved CertificateSigningRequest, or say on it why not ([`crate::certificates::refusal`]).
    SignCertificate {
        /// Key of the object.
        key: Key,
        /// The object.
        object: Value,
        /// From when on the certificate is valid.
        now: Milliseconds,
    },
    /// GET an object from the server: the plan continues only if it has this UID and is not being deleted.
    Confirm {
        /// Key of the object.
        key: Key,
        /// Its UID.
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

/// An action, why it is taken, and the Events that report it.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The request.
    pub action: Action,
    /// Why: a stable code, for logs.
    pub why: &'static str,
    /// Written once it is done.
    pub done: Option<Note>,
    /// Written if it fails.
    pub failed: Option<Note>,
}

impl Request {
    /// An action with its reason.
    #[must_use]
    pub fn new(action: Action, why: &'static str) -> Self {
        Self { action, why, done: None, failed: None }
    }

    /// A new object in an owner's namespace.
    #[must_use]
    pub fn create(kind: Kind, namespace: &str, object: Value, why: &'static str) -> Self {
        Self::new(Action::Create { kind, namespace: namespace.into(), object }, why)
    }

    /// Another content of an object.
    #[must_use]
    pub fn update(key: &Key, object: Value, why: &'static str) -> Self {
        Self::new(Action::Update { key: key.clone(), object }, why)
    }

    /// Another status of an object.
    #[must_use]
    pub fn update_status(key: &Key, object: Value, why: &'static str) -> Self {
        Self::new(Action::UpdateStatus { key: key.clone(), object }, why)
    }

    /// A patch of an object.
    #[must_use]
    pub fn patch(key: &Key, patch: Value, why: &'static str) -> Self {
        Self::new(Action::Patch { key: key.clone(), subresource: "", patch }, why)
    }

    /// A patch of an object's status.
    #[must_use]
    pub fn patch_status(key: &Key, patch: Value, why: &'static str) -> Self {
        Self::new(Action::Patch { key: key.clone(), subresource: "status", patch }, why)
    }

    /// A deletion, guarded by the UID.
    #[must_use]
    pub fn delete(object: &Object, why: &'static str) -> Self {
        let (key, uid) = (object.key.clone(), Arc::clone(&object.uid));
        Self::new(Action::Delete { key, uid, version: None, grace_seconds: None, propagation: None }, why)
    }

    /// A live read that must find the object as it is known.
    #[must_use]
    pub fn confirm(object: &Object, why: &'static str) -> Self {
        Self::new(Action::Confirm { key: object.key.clone(), uid: Arc::clone(&object.uid) }, why)
    }

    /// With Events.
    #[must_use]
    pub fn noting(mut self, done: impl Into<Option<Note>>, failed: impl Into<Option<Note>>) -> Self {
        self.done = done.into();
        self.failed = failed.into();
        self
    }
}

/// Plan for one object: steps one after the other, the requests of a step together. What fails ends the plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The steps.
    pub steps: Vec<Vec<Request>>,
    /// Events that belong to no request, written once everything is done.
    pub notes: Vec<Note>,
    /// When to look again, if nothing changes before.
    pub again_at: Option<Milliseconds>,
    /// The previous failure has been dealt with, but its cause has not: look again after a backoff.
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

    /// Adds requests of which one has to succeed before two are sent, then four, and so on: what cannot be created is not
    /// asked for hundreds of times.
    pub fn slowly(&mut self, requests: Vec<Request>) {
        let (mut rest, mut size) = (requests, 1);
        while !rest.is_empty() {
            let after = rest.split_off(size.min(rest.len()));
            self.steps.push(rest);
            (rest, size) = (after, size * 2);
        }
    }

    /// Looks again at a time, or earlier if that was wanted already.
    pub fn again_at(&mut self, at: Milliseconds) {
        self.again_at = Some(self.again_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Reports whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.notes.is_empty()
    }
}

/// Why a plan ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Kind of the request.
    pub action: FailedAction,
    /// The server's reason.
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

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureReason {
    /// The object has changed.
    Conflict,
    /// There is an object of that name.
    AlreadyExists,
    /// There is no such object.
    NotFound,
    /// Its namespace is being deleted.
    NamespaceTerminating,
    /// A live read showed another object, or one that is being deleted.
    NotConfirmed,
    /// The server refused: forbidden, invalid, over quota.
    Refused,
    /// No answer, or one that asks to try again.
    Unavailable,
}
