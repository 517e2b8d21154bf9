//! Answers about a real server: what is stuck and why, plans compared with the outcome, and the permissions of users.

mod namespaced_user;
mod outcomes;
mod resident;
mod situations;
