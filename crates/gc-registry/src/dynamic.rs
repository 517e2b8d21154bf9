//! Admission that users configure: policies in CEL, and webhooks.
//!
//! What is asked, in which order, about what, and how the answers combine is decided here. Webhooks are called by the
//! server through [`Outside`], between the read of an object and its write, which is conditional on the version that was
//! read: what loses a race is asked again about the new state.

mod attributes;
mod configured;
mod expressions;
mod mutation;
mod outside;
mod policies;
mod review;
pub(crate) mod service;
mod type_checking;
mod webhooks;

use serde_json::Value;

use crate::api::WriteOptions;
use crate::call::Call;
use crate::error::ApiError;
use crate::meta;
use crate::rules::Strictness;

pub(crate) use attributes::Attributes;
pub(crate) use configured::{Configured, PREFIX};
pub use outside::{
    ConditionsReport, Outside, WebhookAnswer, WebhookCall, WebhookEnd, WebhookFailure, WebhookReport,
};
pub use service::EndpointError;

/// What a write does to an object, as admission names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

impl Call<'_> {
    /// Lets mutating policies and webhooks change a new state.
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
        let Some(attributes) = Attributes::of(self, operation, Some(new), old, options.dry_run)? else {
            return Ok(());
        };
        let before = new.clone();
        mutation::mutate(self, &configured, &attributes, new, old)?;
        webhooks::mutate(self, &configured, &attributes, new, old)?;
        if *new == before {
            return Ok(());
        }
        self.check_kind(new)?;
        match self.rules().decode(new, (&[], &[]), crate::api::FieldValidation::Ignore) {
            Ok(_) | Err(Strictness::Strict(_)) => {}
            Err(Strictness::Undecodable(why)) => return Err(ApiError::internal(why)),
        }
        // What names the object is not theirs to change.
        for field in ["name", "namespace", "uid", "creationTimestamp"] {
            let value = meta::metadata(&before).get(field).cloned().unwrap_or_default();
            meta::set_or_remove(meta::metadata_mut(new), field, value);
        }
        Ok(())
    }

    /// Asks validating policies and webhooks about a write.
    pub(crate) fn validate_dynamically(
        &self,
        new: Option<&Value>,
        old: Option<&Value>,
        dry_run: bool,
    ) -> Result<(), ApiError> {
        let configured = self.registry.configured();
        if configured.validates_nothing() {
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
        let Some(attributes) = Attributes::of(self, operation, new.as_ref(), old.as_ref(), dry_run)? else {
            return Ok(());
        };
        policies::validate(self, &configured, &attributes, new.as_ref(), old.as_ref())?;
        webhooks::validate(self, &configured, &attributes, new.as_ref(), old.as_ref())
    }

    fn note_all(&self, warnings: Vec<String>) {
        self.noted.borrow_mut().extend(warnings);
    }

    /// A warning about a request that is only read.
    pub(crate) fn note(&self, warning: String) {
        self.noted.borrow_mut().push(warning);
    }
}
