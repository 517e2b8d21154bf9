//! Errors as Kubernetes' `Status` objects.

use std::borrow::Cow;
use std::collections::BTreeSet;

use gc_types::group_resource;
use serde_json::{Map, Value, json};

/// An error of a field, which becomes a cause of a 422.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Path, such as `metadata.finalizers[0]`.
    pub field: String,
    /// Cause reason, such as `FieldValueInvalid`.
    pub reason: CauseReason,
    /// Description without the path, such as `Invalid value: "x": must be …`.
    pub detail: String,
}

/// The `reason` of a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CauseReason {
    /// `FieldValueInvalid`
    Invalid,
    /// `FieldValueRequired`
    Required,
    /// `FieldValueNotSupported`
    NotSupported,
    /// `FieldValueForbidden`
    Forbidden,
    /// `FieldValueDuplicate`
    Duplicate,
    /// `FieldValueTooLong`
    TooLong,
    /// `FieldValueTooMany`
    TooMany,
    /// `FieldValueNotFound`
    NotFound,
    /// `FieldValueTypeInvalid`
    TypeInvalid,
    /// `InternalError`
    Internal,
    /// `FieldManagerConflict`
    ManagerConflict,
    /// `NamespaceTerminating`
    NamespaceTerminating,
    /// `DisruptionBudget`
    DisruptionBudget,
    /// `NodeCapacity`
    NodeCapacity,
    /// `UnsupportedPlatform`
    UnsupportedPlatform,
    /// `UnexpectedServerResponse`
    UnexpectedServerResponse,
}

impl CauseReason {
    /// Returns the text on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "FieldValueInvalid",
            Self::Required => "FieldValueRequired",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::Duplicate => "FieldValueDuplicate",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::NotFound => "FieldValueNotFound",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
            Self::ManagerConflict => "FieldManagerConflict",
            Self::NamespaceTerminating => "NamespaceTerminating",
            Self::DisruptionBudget => "DisruptionBudget",
            Self::NodeCapacity => "NodeCapacity",
            Self::UnsupportedPlatform => "UnsupportedPlatform",
            Self::UnexpectedServerResponse => "UnexpectedServerResponse",
        }
    }
}

/// A failed request, sent to the client as a `Status`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// HTTP status code.
    pub code: u16,
    /// `reason`, such as `NotFound`; omitted if empty.
    pub reason: Cow<'static, str>,
    /// `message`.
    pub message: String,
    /// `details`, if any (name, group, kind, uid, causes, retryAfterSeconds).
    pub details: Option<Box<Details>>,
    /// Warnings from decoding, before the request failed.
    pub warnings: Vec<String>,
    /// `metadata.continue` of a list that cannot continue as it began; omitted if empty.
    pub continue_token: String,
    /// True if a controller is expected to create the missing object, so the request may succeed a moment later.
    pub is_awaited: bool,
}

/// `details` of a `Status`. Empty members are omitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// Name of the object.
    pub name: String,
    /// API group.
    pub group: String,
    /// Plural resource or Kind, as the spec says for each error.
    pub kind: String,
    /// UID of the object.
    pub uid: String,
    /// Causes.
    pub causes: Vec<Cause>,
    /// Seconds to wait before the next attempt.
    pub retry_after_seconds: Option<u32>,
}

/// One cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Reason; omitted if empty.
    pub reason: String,
    /// Message.
    pub message: String,
    /// Field; omitted if empty.
    pub field: String,
}

impl ApiError {
    /// Creates an error without details.
    #[must_use]
    pub fn new(code: u16, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        let (reason, message) = (reason.into(), message.into());
        Self {
            code,
            reason,
            message,
            details: None,
            warnings: Vec::new(),
            continue_token: String::new(),
            is_awaited: false,
        }
    }

    /// Returns a 400.
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// Returns the 504 of a request whose deadline has passed, in upstream's wording.
    #[must_use]
    pub fn out_of_time() -> Self {
        let why = "Timeout: request did not complete within requested timeout - context deadline exceeded";
        Self { details: Some(Box::default()), ..Self::new(504, "Timeout", why) }
    }

    /// Returns a 405, in upstream's wording.
    #[must_use]
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self { details: Some(Box::default()), ..Self::new(405, "MethodNotAllowed", message) }
    }

    /// Returns a 500.
    #[must_use]
    pub fn internal(message: impl std::fmt::Display) -> Self {
        let mut error = Self::new(500, "InternalError", format!("Internal error occurred: {message}"));
        error.details = Some(Box::new(Details {
            causes: vec![Cause { reason: String::new(), message: message.to_string(), field: String::new() }],
            ..Details::default()
        }));
        error
    }

    /// Returns the 404 for an object; `resource` is the plural name.
    #[must_use]
    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        Self::about(404, "NotFound", group, resource, name, "not found")
    }

    /// Returns a 409 AlreadyExists.
    #[must_use]
    pub fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        Self::about(409, "AlreadyExists", group, resource, name, "already exists")
    }

    /// Returns a 409 Conflict; `kind` is the plural name or the Kind, as the spec requires.
    #[must_use]
    pub fn conflict(group: &str, kind: &str, name: &str, why: &str) -> Self {
        let mut error = Self::about(409, "Conflict", group, kind, name, "");
        error.message =
            format!("Operation cannot be fulfilled on {} \"{name}\": {why}", group_resource(group, kind));
        error
    }

    /// Returns a 403.
    #[must_use]
    pub fn forbidden(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let mut error = Self::about(403, "Forbidden", group, resource, name, "");
        error.message = if resource.is_empty() && group.is_empty() {
            format!("forbidden: {why}")
        } else if name.is_empty() {
            format!("{} is forbidden: {why}", group_resource(group, resource))
        } else {
            format!("{} \"{name}\" is forbidden: {why}", group_resource(group, resource))
        };
        error
    }

    /// Returns a 422 with one cause per field error; `kind` is the Kind.
    #[must_use]
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let mut error = Self::about(422, "Invalid", group, kind, name, "");
        // The message contains a repeated error once; the causes contain it each time.
        let mut said = BTreeSet::new();
        let texts = errors.iter().map(|e| format!("{}: {}", e.field, e.detail));
        let texts: Vec<String> = texts.filter(|text| said.insert(text.clone())).collect();
        let list = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        error.message = format!("{} \"{name}\" is invalid: {list}", group_resource(group, kind));
        if let Some(details) = &mut error.details {
            details.causes = errors
                .iter()
                .map(|e| Cause {
                    reason: e.reason.as_str().into(),
                    message: e.detail.clone(),
                    field: e.field.clone(),
                })
                .collect();
        }
        error
    }

    fn about(code: u16, reason: &'static str, group: &str, kind: &str, name: &str, what: &str) -> Self {
        Self {
            message: format!("{} \"{name}\" {what}", group_resource(group, kind)),
            details: Some(Box::new(Details {
                name: name.into(),
                group: group.into(),
                kind: kind.into(),
                ..Details::default()
            })),
            ..Self::new(code, reason, "")
        }
    }

    /// Returns the `Status` object.
    #[must_use]
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {},
            "status": "Failure", "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = (*self.reason).into();
        }
        if !self.continue_token.is_empty() {
            status["metadata"]["continue"] = self.continue_token.as_str().into();
        }
        if let Some(details) = &self.details {
            status["details"] = details.to_value();
        }
        status
    }
}

impl Details {
    fn to_value(&self) -> Value {
        let mut map = Map::new();
        for (key, text) in
            [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)]
        {
            if !text.is_empty() {
                map.insert(key.into(), text.as_str().into());
            }
        }
        if !self.causes.is_empty() {
            map.insert("causes".into(), self.causes.iter().map(Cause::to_value).collect());
        }
        if let Some(seconds) = self.retry_after_seconds {
            map.insert("retryAfterSeconds".into(), seconds.into());
        }
        Value::Object(map)
    }
}

impl Cause {
    fn to_value(&self) -> Value {
        let mut map = Map::new();
        for (key, text) in [("reason", &self.reason), ("message", &self.message), ("field", &self.field)] {
            if !text.is_empty() {
                map.insert(key.into(), text.as_str().into());
            }
        }
        Value::Object(map)
    }
}
