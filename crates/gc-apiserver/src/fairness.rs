//! Priority and fairness: which priority level a request belongs to, by the stored FlowSchemas and
//! PriorityLevelConfigurations, and who works when there are more requests than places.
//!
//! Everything here decides and is pure; `follow::fairness` keeps the configuration up to date, and the conditions of schemas.

pub(crate) mod configuration;
pub(crate) mod dangling;
pub(crate) mod seats;
