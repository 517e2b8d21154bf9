//! Causes outside a collector that stop it: another leader, an operator's pause, the breaker.

use gc_controller::concurrency::ConcurrencyOptions;
use tokio::sync::watch;

use crate::breaker::SharedBreaker;

/// Restraints of a collector outside its engine. By default, nothing stops it.
#[derive(Clone, Debug)]
pub struct Restraints {
    /// While true, nothing is decided or sent, but watched objects stay up to date.
    pub held: watch::Receiver<bool>,
    /// Breaker to consult before each deletion.
    pub breaker: Option<SharedBreaker>,
    /// Limits of the concurrency, if they may change.
    pub bounds: Option<watch::Receiver<ConcurrencyOptions>>,
}

impl Default for Restraints {
    fn default() -> Self {
        Self { held: watch::channel(false).1, breaker: None, bounds: None }
    }
}

/// Resolves when the value changes; never resolves without one.
pub async fn changed<T>(changes: &mut Option<watch::Receiver<T>>) {
    if let Some(changes) = changes
        && changes.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}
