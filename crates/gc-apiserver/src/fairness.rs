//! Priority and fairness: assigns requests to priority levels by the stored FlowSchemas and PriorityLevelConfigurations, and
//! decides which requests run when there are more of them than seats.
//!
//! The decisions in these modules are pure; `follow::fairness` keeps the configuration and the conditions of schemas up to date.

pub(crate) mod configuration;
pub(crate) mod dangling;
pub(crate) mod seats;
