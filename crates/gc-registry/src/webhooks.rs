//! Calls to webhooks, as admission and conversion make them: what is sent, what comes back, and where a webhook is.

pub(crate) mod answer;
mod call;
pub(crate) mod service;

pub use call::{
    ConditionsReport, Outside, WebhookAnswer, WebhookCall, WebhookEnd, WebhookFailure, WebhookReport,
};
pub use service::EndpointError;
