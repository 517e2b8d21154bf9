//! Causes outside a collector that stop it: another replica leads, an operator's pause, the breaker.

use gc_controller::concurrency::ConcurrencyOptions;
use tokio::sync::watch;

use crate::breaker::SharedBreaker;

/// Restraints of a collector beside its engine. By default nothing stops it.
#[derive(Clone, Debug)]
pub struct Restraints {
    /// Nothing is decided or sent while this says true; what is watched stays up to date.
    pub held: watch::Receiver<bool>,
    /// Is asked before each deletion.
    pub breaker: Option<SharedBreaker>,
    /// The bounds of the concurrency, where they may change.
    pub bounds: Option<watch::Receiver<ConcurrencyOptions>>,
}

impl Default for Restraints {
    fn default() -> Self {
        Self { held: watch::channel(false).1, breaker: None, bounds: None }
    }
}

/// Ready when there is something that changes, and it has.
pub async fn changed<T>(changes: &mut Option<watch::Receiver<T>>) {
    if let Some(changes) = changes
        && changes.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}
