//! The transport: connections in both directions, the memory held for them, queries and paths.

pub(crate) mod account;
pub(crate) mod arrivals;
pub(crate) mod bodies;
pub(crate) mod channels;
pub(crate) mod clients;
pub(crate) mod connections;
pub(crate) mod dial;
pub(crate) mod doors;
pub(crate) mod frames;
pub(crate) mod lent;
pub(crate) mod pace;
pub(crate) mod path;
pub(crate) mod query;
pub(crate) mod stall;
pub(crate) mod stop;
pub(crate) mod streams;
pub(crate) mod turns;
