//! Attacks by hostile clients, with one test for each statement of SECURITY.md that they would break.
#![allow(clippy::unwrap_used, clippy::needless_pass_by_value, unreachable_pub)] // a broken assumption should stop the test; json! makes values

#[path = "../support/mod.rs"]
mod support;

mod authorization;
mod escalation;
mod impersonation;
mod world;
