//! Priority and fairness: which priority level a request belongs to, by the stored FlowSchemas and
//! PriorityLevelConfigurations, and who works when there are more requests than places.
//!
//! `configuration`, `dangling` and `seats` decide and are pure; `follow` keeps the configuration up to date, and the schemas' conditions.

pub(crate) mod configuration;
mod dangling;
pub(crate) mod follow;
pub(crate) mod seats;
