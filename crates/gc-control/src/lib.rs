//! What stands between the engines, which decide, and an API server: when a request may be sent, what proves that
//! nothing was missed, what time it is.
//!
//! Everything here is a state machine without I/O, clock or randomness: it takes in what was observed and what time it
//! is, and answers what to do. `gc-kube` drives it over a network and `gc-sim` over a simulated one, so that what is
//! simulated is what ships.

pub mod backoff;
pub mod barriers;
pub mod breaker;
pub mod clocks;
pub mod controller;
pub mod engines;
pub mod namespaces;
pub mod pacing;
pub mod requests;
mod time;
pub mod watch;

pub use time::Moment;
