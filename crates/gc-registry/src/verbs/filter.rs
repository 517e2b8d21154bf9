//! Selection of a collection's objects by labels and fields.

use std::sync::Arc;

use crate::api::ListOptions;
use crate::catalog::rules;
use crate::error::ApiError;
use crate::metadata::object::Object;
use crate::metadata::selector::{FieldSelector, LabelSelector};
use crate::resource::ResourceDefinition;

/// The two selectors of a list, watch or deletecollection.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    resource: Arc<ResourceDefinition>,
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Filter {
    pub(crate) fn parse(resource: &Arc<ResourceDefinition>, options: &ListOptions) -> Result<Self, ApiError> {
        let labels = LabelSelector::parse(&options.label_selector)?;
        let fields = if options.field_selector.is_empty() {
            FieldSelector::default()
        } else {
            let known: Vec<String> = rules::selectable_fields(resource, &serde_json::Value::Null)
                .into_iter()
                .map(|(name, _)| name)
                .collect();
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            FieldSelector::parse(
                &options.field_selector,
                &known,
                rules::words_for_field_labels(resource),
                resource.namespaced(),
            )?
        };
        Ok(Self { resource: Arc::clone(resource), labels, fields })
    }

    /// Reports whether everything matches.
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Returns the only name that can match, if there is one.
    pub(crate) fn exact_name(&self) -> Option<&str> {
        self.fields.exact_name()
    }

    pub(crate) fn matches(&self, object: &Object) -> Result<bool, ApiError> {
        if self.is_empty() {
            return Ok(true);
        }
        if self.fields.needs_object() {
            let value = object.value()?;
            let fields = rules::selectable_fields(&self.resource, value);
            let metadata = object.metadata()?;
            return Ok(self.labels.matches(metadata.get("labels")) && self.fields.matches(metadata, &fields));
        }
        let metadata = object.metadata()?;
        Ok(self.labels.matches(metadata.get("labels")) && self.fields.matches(metadata, &[]))
    }
}
