//! The page of a server, as far as the server needs it. A server without one works the same.

use std::sync::Arc;

use futures::future::BoxFuture;
use gc_apiserver::{Extension, InProcess};
use gc_kube::{Observer, ResourceTable};
use gc_process::collectors::MakeSinks;
use gc_process::journal::Journal;
use gc_registry::api::UserInfo;

use crate::clock::CollectorClock;

/// Makes the page of a server, and of each of its forks, which has a clock and a journal (or none) of its own.
pub type MakeConsole = Arc<dyn Fn(&CollectorClock, Option<Arc<Journal>>) -> Arc<dyn Console> + Send + Sync>;

/// A page that shows the actions of the collectors. It answers its own paths as an [`Extension`].
pub trait Console: Extension {
    /// Returns audit sinks that feed both the page and `others`.
    fn sinks(&self, others: Arc<MakeSinks>) -> Arc<MakeSinks>;

    /// Returns an observer that reports deletions by the server itself to the page, under this name of a collector.
    fn observer_of(&self, name: &'static str, table: &ResourceTable) -> Arc<dyn Observer>;

    /// Receives access to the server once it has begun; requests act as its administrator.
    fn serve(&self, server: &InProcess);

    /// Follows the orders on the collectors' Lease until the future is dropped.
    fn follow_orders(&self) -> BoxFuture<'static, ()>;

    /// Returns a single-use link that opens a session of this user, or `None` while the server does not listen.
    fn link(&self, user: UserInfo) -> Option<String>;
}
