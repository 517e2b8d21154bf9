//! The ownership graph and the cascade engine over it.
//!
//! The engine is a synchronous, deterministic function of the events it was given: it has no clock, does no
//! I/O and iterates over nothing in hash order. An adapter feeds it ([`Engine::handle`]), performs what it
//! wants ([`Engine::poll_effect`]), tells it what became of that (`Event::Done`), and lets time pass
//! (`Event::Tick`, at the latest at [`Engine::next_wakeup`]). Behaviour: `spec/ownership-gc.md`.

mod engine;
mod graph;
pub mod model;
mod queries;

pub use engine::{Config, Engine, Stats};
pub use queries::{
    BLOCKERS_LISTED, Conclusion, DEPTH_SHOWN, DumpEdge, DumpNode, GraphDump, NodeView, Plan, PlanError,
    PlanStep, Presence, ReferenceState, Stuck, StuckCause, Tree, Why,
};
