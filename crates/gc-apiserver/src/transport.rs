//! The transport: connections, requests, queries, paths and the bodies of answers.

pub(crate) mod account;
pub(crate) mod answers;
pub(crate) mod arrivals;
pub(crate) mod bodies;
pub(crate) mod body;
pub(crate) mod channels;
pub(crate) mod clients;
pub(crate) mod connections;
pub(crate) mod dial;
pub(crate) mod doors;
pub(crate) mod exchange;
pub(crate) mod frames;
pub(crate) mod in_process;
pub(crate) mod lent;
pub(crate) mod listener;
pub(crate) mod listener_tls;
pub(crate) mod path;
pub(crate) mod peers;
pub(crate) mod query;
pub(crate) mod server;
pub(crate) mod server_config;
pub(crate) mod stall;
pub(crate) mod stop;
pub(crate) mod streams;
pub(crate) mod unserved;
