//! Every verdict that is not about owners, one module each. Pure: a verdict is a function of a snapshot, a
//! policy and a time.

pub mod containers;
pub mod images;
pub mod namespaces;
pub mod pressure;
