//! A seeded world with faults, and the oracles that judge a run.
//!
//! The API server is the real `gc-registry` over a memory store, and the collector is the real `gc-ownership` engine. Everything
//! between them (watches, requests, responses, discovery, clocks) is simulated, and fails in every way known from networks and
//! clusters. There is one thread and one `u64` seed: [`story::Story::new`] decides in advance everything that will happen,
//! [`world::run`] makes it happen, [`oracle`] judges it from the store's own log, and [`runner::shrink`] shortens the story of a
//! failure. `docs/proof.md` explains what this proves, and what it does not.

pub mod campaign;
pub mod candidates;
pub mod clients;
pub mod clocks;
pub mod collector;
pub mod defects;
pub mod kinds;
pub mod liars;
pub mod losses;
pub mod metadata;
pub mod namespaces;
pub mod oracle;
pub mod performed;
pub mod policies;
pub mod policy_verdicts;
pub mod process;
pub mod provider;
pub mod random;
pub mod requests;
pub mod restraints;
pub mod retention;
pub mod runner;
pub mod saboteur;
pub mod server;
pub mod show;
pub mod small;
pub mod story;
pub mod tenants;
pub mod truth;
pub mod verdicts;
pub mod violation;
mod watching;
pub mod workloads;
pub mod world;
