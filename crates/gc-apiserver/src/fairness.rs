//! Priority and fairness: which priority level a request belongs to, by the stored FlowSchemas and
//! PriorityLevelConfigurations, and who works when there are more requests than places.
//!
//! `configuration` and `seats` decide and are pure; `follow` keeps the configuration up to date.

pub(crate) mod configuration;
pub(crate) mod follow;
pub(crate) mod seats;
