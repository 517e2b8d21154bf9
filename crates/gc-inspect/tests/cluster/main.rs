//! Answers about a real server: what is stuck and why, plans that come true, and the rights of users.

mod namespaced_user;
mod outcomes;
mod resident;
mod situations;
