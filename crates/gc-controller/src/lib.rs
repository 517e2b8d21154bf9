//! The layer between the deciding engines and an API server: when a request may be sent, what proves completeness, and what time it
//! is.
//!
//! Everything here is a state machine without I/O, clock or randomness: it takes observations and the time, and returns what to do.
//! `gc-kube` drives it over a network and `gc-sim` over a simulated one, so that the simulation tests what ships.
//!
//! ```
//! use std::time::Duration;
//!
//! use gc_controller::backoff::Backoff;
//!
//! // Chance is an argument, as time is: here the longest of each delay.
//! let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(300));
//! let delays = [backoff.next_delay(1.0), backoff.next_delay(1.0), backoff.next_delay(1.0)];
//! assert_eq!(delays.map(|delay| delay.as_millis()), [100, 200, 300]);
//! ```

pub mod backoff;
pub mod barriers;
pub mod breaker;
pub mod clocks;
pub mod concurrency;
pub mod controller;
pub mod election;
pub mod engines;
pub mod namespaces;
pub mod requests;
mod time;
pub mod watch;

pub use time::Moment;
