//! User-configured admission: CEL policies and webhooks.
//!
//! This module decides which policies and webhooks apply, in which order, and how their answers combine. The server calls webhooks
//! through [`Outside`], between the read of an object and its write. The write is conditional on the version that was read: if it
//! loses a race, admission runs again for the new state.

mod attributes;
mod expressions;
mod mutation;
mod options;
mod policies;
mod review;
mod stored;
mod type_checking;
mod webhooks;

use serde_json::Value;

use crate::api::{RequestContext, RequestTarget, WriteOptions};
use crate::catalog::rules::Strictness;
use crate::error::ApiError;
use crate::metadata::meta;
use crate::patch::managed_fields;
use crate::registry::Registry;
use crate::registry::call::Call;
pub use crate::resource::BodyKind;
pub use crate::webhooks::{
    ConditionsReport, EndpointError, Outside, WebhookAnswer, WebhookCall, WebhookEnd, WebhookFailure,
    WebhookReport,
};
pub(crate) use attributes::Attributes;
pub(crate) use options::Options;
pub(crate) use stored::Configured;

/// Operation on an object, by admission's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// A request that is admitted but not stored, or not in this form.
#[derive(Clone, Copy, Debug)]
pub enum Admission<'a> {
    /// A review or a request for a token.
    Create(&'a WriteOptions),
    /// A connection to a pod, a node or a service.
    Connect,
}

impl Registry {
    /// Runs admission for a body that the server answers without storing it, and lets admission change it: reviews, requests for
    /// tokens, connections.
    ///
    /// Returns the warnings.
    ///
    /// # Errors
    /// Fails with the refusal of a policy or webhook.
    pub fn admit(
        &self,
        target: &RequestTarget,
        body: &mut Value,
        (admission, kind): (Admission<'_>, Option<BodyKind>),
        context: &RequestContext<'_>,
    ) -> Result<Vec<String>, ApiError> {
        let call = Call::new(self, target, context);
        let asked = match &admission {
            Admission::Create(options) => (Operation::Create, &Options::Write(options)),
            Admission::Connect => (Operation::Connect, &Options::None),
        };
        let admitted =
            call.mutate_body(body, asked, kind).and_then(|()| call.validate_body(body, asked, kind));
        let warnings = call.noted.take();
        match admitted {
            Ok(()) => Ok(warnings),
            Err(error) => Err(ApiError { warnings, ..error }),
        }
    }

    /// Reports whether any admission is configured that [`Self::admit`] would consult.
    #[must_use]
    pub fn admits(&self) -> bool {
        let configured = self.configured();
        !(configured.validates_nothing() && configured.mutates_nothing())
    }
}

impl Call<'_> {
    /// Runs mutating policies and webhooks, which may change a new state, including its name, namespace and version: the write then
    /// treats it as if a client had sent it.
    pub(crate) fn mutate_dynamically(
        &self,
        new: &mut Value,
        old: Option<&Value>,
        options: &WriteOptions,
    ) -> Result<(), ApiError> {
        let configured = self.registry.configured();
        if configured.mutates_nothing() || self.target.subresource == "scale" {
            return Ok(());
        }
        let operation = if old.is_some() { Operation::Update } else { Operation::Create };
        let options = &Options::Write(options);
        let Some(mut attributes) = Attributes::of(self, (operation, options), None, Some(new), old)? else {
            return Ok(());
        };
        let before = new.clone();
        mutation::mutate(self, &configured, &attributes, new, old)?;
        webhooks::mutate(self, &configured, &mut attributes, new, old)?;
        if *new == before {
            return Ok(());
        }
        self.restore_managers(new, &before);
        self.check_changed_kind(new)?;
        match self.rules().decode(new, (&[], &[]), crate::api::FieldValidation::Ignore) {
            Ok(_) | Err(Strictness::Strict(_)) => {}
            Err(Strictness::Undecodable(why)) => return Err(ApiError::internal(why)),
            Err(Strictness::TooLarge) => return Err(Strictness::too_large()),
        }
        Ok(())
    }

    /// Runs mutating policies and webhooks on a Scale, which they see with its managers.
    pub(crate) fn mutate_scale(
        &self,
        scale: &mut Value,
        before: &Value,
        options: &WriteOptions,
    ) -> Result<(), ApiError> {
        let configured = self.registry.configured();
        if configured.mutates_nothing() {
            return Ok(());
        }
        self.complete_body(scale, Operation::Update, Some(BodyKind::SCALE));
        let asked = (Operation::Update, &Options::Write(options));
        let attributes = Attributes::of(self, asked, Some(BodyKind::SCALE), Some(scale), Some(before))?;
        let Some(mut attributes) = attributes else { return Ok(()) };
        let sent = scale.clone();
        mutation::mutate(self, &configured, &attributes, scale, Some(before))?;
        webhooks::mutate(self, &configured, &mut attributes, scale, Some(before))?;
        self.restore_managers(scale, &sent);
        Ok(())
    }

    /// Restores the earlier managers if admission has left them unreadable.
    fn restore_managers(&self, new: &mut Value, before: &Value) {
        let managers = |object: &Value| meta::metadata(object).get("managedFields").cloned();
        let (given, known) = (managers(new), managers(before));
        if given == known {
            return;
        }
        if let Some(why) = given.as_ref().and_then(managed_fields::problem) {
            meta::set_or_remove(meta::metadata_mut(new), "managedFields", known.unwrap_or_default());
            self.note(format!(
                ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated \
                 mutating admission controller; please fix your requests: {why}"
            ));
        }
    }

    /// Runs validating policies and webhooks for a write, and mutating ones for a deletion, which they can refuse.
    pub(crate) fn validate_dynamically(
        &self,
        new: Option<&Value>,
        old: Option<&Value>,
        options: &Options<'_>,
    ) -> Result<(), ApiError> {
        let configured = self.registry.configured();
        if configured.validates_nothing() && (new.is_some() || configured.mutates_nothing()) {
            return Ok(());
        }
        let operation = match (new, old) {
            (Some(_), None) => Operation::Create,
            (Some(_), Some(_)) => Operation::Update,
            _ => Operation::Delete,
        };
        let is_scale = self.target.subresource == "scale";
        let shown = |object: Option<&Value>| -> Result<Option<Value>, ApiError> {
            match object {
                Some(object) if is_scale => self.scale_of(object).map(Some),
                other => Ok(other.cloned()),
            }
        };
        let (new, old) = (shown(new)?, shown(old)?);
        let kind = is_scale.then_some(BodyKind::SCALE);
        let attributes = Attributes::of(self, (operation, options), kind, new.as_ref(), old.as_ref())?;
        let Some(attributes) = attributes else { return Ok(()) };
        if new.is_none() {
            webhooks::admit_deletion(self, &configured, &attributes, old.as_ref())?;
        }
        policies::validate(self, &configured, &attributes, new.as_ref(), old.as_ref())?;
        webhooks::validate(self, &configured, &attributes, new.as_ref(), old.as_ref())
    }

    /// Runs mutating policies and webhooks on the body of a subresource: an eviction, a binding, a request for a token.
    pub(crate) fn mutate_body(
        &self,
        body: &mut Value,
        (operation, options): (Operation, &Options<'_>),
        kind: Option<BodyKind>,
    ) -> Result<(), ApiError> {
        let configured = self.registry.configured();
        if configured.mutates_nothing() {
            return Ok(());
        }
        self.complete_body(body, operation, kind);
        let attributes = Attributes::of(self, (operation, options), kind, Some(body), None)?;
        let Some(mut attributes) = attributes else { return Ok(()) };
        mutation::mutate(self, &configured, &attributes, body, None)?;
        webhooks::mutate(self, &configured, &mut attributes, body, None)
    }

    /// Runs validating policies and webhooks on the body of a subresource.
    pub(crate) fn validate_body(
        &self,
        body: &Value,
        (operation, options): (Operation, &Options<'_>),
        kind: Option<BodyKind>,
    ) -> Result<(), ApiError> {
        let configured = self.registry.configured();
        if configured.validates_nothing() {
            return Ok(());
        }
        let mut body = body.clone();
        self.complete_body(&mut body, operation, kind);
        let attributes = Attributes::of(self, (operation, options), kind, Some(&body), None)?;
        let Some(attributes) = attributes else { return Ok(()) };
        policies::validate(self, &configured, &attributes, Some(&body), None)?;
        webhooks::validate(self, &configured, &attributes, Some(&body), None)
    }

    /// Adds type, name and namespace from the path to the body of a subresource, because admission sees only the body.
    fn complete_body(&self, body: &mut Value, operation: Operation, kind: Option<BodyKind>) {
        let (Some(BodyKind { group, version, kind }), Some(members)) = (kind, body.as_object_mut()) else {
            return;
        };
        for (name, value) in
            [("apiVersion", gc_types::api_version(group, version)), ("kind", kind.to_owned())]
        {
            members.entry(name).or_insert_with(|| value.into());
        }
        let namespace = &self.target.namespace;
        // The options of a connection have no metadata.
        let is_object = !matches!(operation, Operation::Connect);
        if is_object && !namespace.is_empty() && meta::text(body, "namespace").is_empty() {
            meta::metadata_mut(body).insert("namespace".into(), namespace.as_str().into());
        }
    }

    fn note_all(&self, warnings: Vec<String>) {
        self.noted.borrow_mut().extend(warnings);
    }

    /// Adds a warning to a read-only request.
    pub(crate) fn note(&self, warning: String) {
        self.noted.borrow_mut().push(warning);
    }
}
