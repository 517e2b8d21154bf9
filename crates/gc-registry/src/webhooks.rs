//! Calls to admission and conversion webhooks: their requests, their answers, and the addresses of webhooks.

pub(crate) mod answer;
mod call;
pub(crate) mod service;

pub use call::{
    ConditionsReport, Outside, WebhookAnswer, WebhookCall, WebhookEnd, WebhookFailure, WebhookReport,
};
pub use service::EndpointError;
