//! The collectors beyond owner references.

use futures::FutureExt as _;
use gc_kube::ApiClient;
use gc_kube::namespaces::NamespaceNames;
use gc_process::collectors::{NamespaceOptions, RunningCollectors, Surroundings};

use super::NAMESPACE_SETTLE;
use super::live::Live;
use super::options::{Mode, Settings};

/// The collectors beyond owner references, which run only on the leader.
pub(super) struct Others {
    stop: tokio::sync::oneshot::Sender<()>,
    work: tokio::task::JoinHandle<()>,
}

impl Others {
    /// Starts the collectors. They act once this process leads and any observation is over.
    pub(super) fn start(
        gated: &ApiClient,
        settings: &Settings,
        live: &Live,
        terminating: NamespaceNames,
        surroundings: Surroundings,
    ) -> Self {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let enabled = settings.other_controllers();
        let mut options = settings.collector();
        options.dry_run = settings.mode.reads_only();
        if settings.mode == Mode::Observe && !enabled.is_empty() {
            tracing::info!(
                controllers = ?enabled.iter().map(|controller| controller.name()).collect::<Vec<_>>(),
                "these collectors report what they would do, without a comparison"
            );
        }
        let (client, retention) = (gated.clone(), settings.retention.clone());
        let (mut held, mut holding) = (live.leadership.held(), live.holding.subscribe());
        let waits = !options.dry_run;
        let work = tokio::spawn(
            async move {
                let begun = async {
                    // The decisions of these collectors cannot be compared, so they start only when an observation is over.
                    let observed = holding.wait_for(|holding| !waits || holding.is_none()).await.is_ok();
                    observed && held.wait_for(|held| !*held).await.is_ok()
                };
                tokio::pin!(stopped);
                tokio::select! {
                    // False means that the election has ended, and the process with it.
                    begun = begun => if !begun { return },
                    _ = &mut stopped => return,
                }
                let running = RunningCollectors::start(
                    |_| client.clone(),
                    &enabled,
                    &retention,
                    &options,
                    NamespaceOptions { settle: NAMESPACE_SETTLE, is_first: false, names: Some(terminating) },
                    None,
                    &surroundings,
                );
                tokio::select! {
                    _ = stopped => {}
                    () = super::until(|| running.has_ended()) => {}
                }
                running.shutdown().await;
            }
            .boxed(),
        );
        Self { stop, work }
    }

    /// Reports whether a collector has ended without being stopped.
    pub(super) fn has_ended(&self) -> bool {
        self.work.is_finished()
    }

    /// Stops the collectors, and waits until they have ended.
    pub(super) async fn stop(self) {
        let _ = self.stop.send(()); // an error says that they have ended already
        if self.work.await.is_err() {
            tracing::error!("the other collectors ended by a panic");
        }
    }
}
