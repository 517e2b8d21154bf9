//! The terminal view where no terminal of Unix is there: refused.

use std::time::Duration;

use gc_inspect::attached::Asks;
use gc_kube::ApiClient;
use gc_process::UsageError;

/// Refuses to show a cluster.
pub async fn show(
    _client: ApiClient,
    _asks: Asks,
    _namespace: &str,
    _patience: Duration,
) -> anyhow::Result<()> {
    let why = "kubegc top needs a terminal of Unix: `kubegc stuck` and the page show the same";
    Err(UsageError::new(why).into())
}
