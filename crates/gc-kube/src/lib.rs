//! The API-server client: discovery, metadata watches, execution of effects as requests, concurrency.
//!
//! ```text
//!   discovery ─▶ supervisor ─▶ one watcher per resource ─ events ─▶ ┌─────────┐
//!                    ▲ CRDs, APIServices, paths not served          │ Driver  │─▶ Controller (gc-controller): restraints
//!                    └──────────────────────────────────────────────│         │◀─ steps           └▶ engine
//!   API server ◀── requests, as many as the concurrency allows ──────────└─────────┘
//! ```
//!
//! The same code serves the embedded server and any real one: [`connection::ApiClient`] hides whether a request is sent over HTTP/2
//! or is a call in the same process. In general, only the metadata of objects is requested and kept; the retention collectors,
//! whose verdicts need more, watch their few kinds completely and keep narrow facts.
//!
//! ```
//! use bytes::Bytes;
//! use gc_kube::ApiClient;
//! use http_body_util::Full;
//!
//! // A server in the same process: any HTTP service.
//! let client = ApiClient::in_process(|request: http::Request<Full<Bytes>>| async move {
//!     http::Response::new(Full::new(Bytes::from(format!("{{\"path\":\"{}\"}}", request.uri().path()))))
//! });
//! assert_eq!(client.namespace(), "default");
//! ```

mod backoff;
mod barrier;
pub mod breaker;
mod clock;
mod collector;
pub mod connection;
mod definitions;
pub mod discovery;
mod driver;
pub mod event_recorder;
mod facts;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod namespaces;
mod objects;
mod observer;
mod policies;
mod raw;
pub mod requests;
mod resources;
mod restraints;
mod retention;
mod server_clock;
mod status;
mod streams;
mod supervisor;
mod watcher;
pub mod wire;

pub use backoff::Backoff;
pub use clock::{Clock, moment, steady_clock, system_clock};
pub use collector::{CollectorOptions, MetadataCollector};
pub use connection::ApiClient;
pub use definitions::{KEEP_OBJECTS, follow_definitions, watch_served};
pub use driver::{ControllerSurroundings, QUEUED_BATCHES, SHUTDOWN_GRACE};
pub use facts::WatchState;
pub use gc_controller::clocks::Agreement;
pub use gc_controller::concurrency;
pub use gc_controller::controller::until;
pub use gc_controller::election;
pub use gc_controller::engines::EventEngine;
pub use objects::{ObjectNews, watch_object, watch_objects, watch_objects_noting};
pub use observer::{NoObserver, Observer, Observers};
pub use policies::PolicyCollector;
pub use resources::{ResourceTable, Route, push_segment};
pub use restraints::{Restraints, changed};
pub use retention::{NothingOutside, Outside, OutsideAnswer, RetentionCollector, retention_table};
pub use server_clock::SharedServerClock;
pub use status::{DiscoveryStatus, ResourceStatus, StatusBoard, SyncState};
pub use supervisor::{DISCOVERY_PAUSE, DISCOVERY_PERIOD, VANISHED_PATIENCE};
pub use watcher::{BATCH_EVENTS, PAGE_SIZE, retry_after};
