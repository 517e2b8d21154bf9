//! Stored policies and webhooks.

use serde_json::Value;

use crate::catalog;
use crate::error::ApiError;
use crate::persist;
use crate::storage::{RangeOptions, Revision, Storage};

/// All of the configuration, sorted by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Configured {
    /// True if the stored configuration may differ but could not be read: requests that it might judge get a 503.
    pub(crate) is_outdated: bool,
    pub(crate) mutating_webhooks: Vec<Value>,
    pub(crate) validating_webhooks: Vec<Value>,
    pub(crate) mutating_policies: Vec<Value>,
    pub(crate) mutating_bindings: Vec<Value>,
    pub(crate) validating_policies: Vec<Value>,
    pub(crate) validating_bindings: Vec<Value>,
    /// True if a policy has custom resources as parameters.
    pub(crate) has_custom_params: bool,
}

impl Configured {
    /// Reads the stored configuration, at a single revision.
    pub(crate) fn read(storage: &dyn Storage) -> Result<(Self, Revision), ApiError> {
        let found =
            storage.range(persist::ADMISSION, &RangeOptions::default()).map_err(persist::storage_error)?;
        let all = |resource: &str| -> Result<Vec<Value>, ApiError> {
            let prefix = format!("{}{resource}/", persist::ADMISSION);
            let items = found.items.iter().filter(|item| item.key.starts_with(&prefix));
            // Unreadable configuration must not permit anything; the server reports it instead.
            let parsed = items.map(|item| serde_json::from_slice(&item.value));
            parsed
                .collect::<Result<_, _>>()
                .map_err(|why| ApiError::internal(format!("stored {resource} are corrupt: {why}")))
        };
        let read = Self {
            is_outdated: false,
            mutating_webhooks: all("mutatingwebhookconfigurations")?,
            validating_webhooks: all("validatingwebhookconfigurations")?,
            mutating_policies: all("mutatingadmissionpolicies")?,
            mutating_bindings: all("mutatingadmissionpolicybindings")?,
            validating_policies: all("validatingadmissionpolicies")?,
            validating_bindings: all("validatingadmissionpolicybindings")?,
            has_custom_params: false,
        };
        Ok((read.with_params_seen(), found.revision))
    }

    pub(crate) fn mutates_nothing(&self) -> bool {
        self.mutating_webhooks.is_empty() && self.mutating_bindings.is_empty() && !self.is_outdated
    }

    pub(crate) fn validates_nothing(&self) -> bool {
        self.validating_webhooks.is_empty() && self.validating_bindings.is_empty() && !self.is_outdated
    }

    /// Reports whether writes may make outside calls: to webhooks, or, for a policy with custom resources as parameters, to a
    /// conversion webhook.
    pub(crate) fn calls_outside(&self) -> bool {
        !self.mutating_webhooks.is_empty() || !self.validating_webhooks.is_empty() || self.has_custom_params
    }

    fn with_params_seen(mut self) -> Self {
        let policies = self.validating_policies.iter().chain(&self.mutating_policies);
        let mut versions = policies.filter_map(|policy| policy["spec"]["paramKind"]["apiVersion"].as_str());
        self.has_custom_params = versions.any(|version| {
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            !catalog::has_builtin_version(group, version)
        });
        self
    }
}
