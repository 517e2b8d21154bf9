//! Operations on a server of `kubegc up` as a whole: reset to its start, and forks.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::Context as _;
use gc_registry::Registry;
use gc_registry::storage::RangeOptions;
use tokio::sync::Mutex;

use super::Up;
use super::controllers::Controllers;
use super::reset::{Baseline, Contents};
use crate::apiserver::ServerOptions;
use crate::clock::CollectorClock;
use crate::console::MakeConsole;
use crate::workloads::WorkloadOptions;
use gc_process::collectors::{ControllerOptions, Surroundings};

/// Maximum number of concurrent forks of a server.
pub(super) const MAX_FORKS: usize = 16;

/// Settings with which a server and its forks start.
#[derive(Clone)]
pub(super) struct Recipe {
    pub(super) options: ServerOptions,
    pub(super) controllers: ControllerOptions,
    pub(super) workloads: WorkloadOptions,
    /// `None` if there is no page.
    pub(super) console: Option<MakeConsole>,
}

/// Controllers of a server, its initial store, and its forks.
pub(crate) struct Cluster {
    pub(super) controllers: Controllers,
    /// `None` if the store outlives the server.
    pub(super) baseline: Option<Baseline>,
    pub(super) clock: CollectorClock,
    /// `None` in a fork.
    pub(super) forks: Option<Forks>,
    /// Held during a reset.
    pub(super) resetting: Mutex<()>,
}

/// Forks of a server.
pub(super) struct Forks {
    recipe: Recipe,
    running: Mutex<RunningCluster>,
}

#[derive(Default)]
struct RunningCluster {
    last: u32,
    forks: BTreeMap<u32, Up>,
}

/// Reason why a server did not do what was requested.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error(
        "the store of this server is durable; only one that keeps its objects in memory (--ephemeral) can be reset"
    )]
    Durable,
    #[error("this server is a fork; fork the server that it was forked from")]
    IsFork,
    #[error("{MAX_FORKS} forks are running; end one with DELETE /kubegc/v1/fork?name=NUMBER")]
    TooMany,
    #[error("no fork has the number {0}")]
    Unknown(u32),
    #[error("name={0}: expected the number of a fork, such as name=1")]
    NoNumber(String),
    #[error("port={0}: expected a number from 0 to 65535")]
    NoPort(String),
    #[error("a fork cannot listen on port {0}: {1}")]
    PortTaken(u16, std::io::Error),
    #[error("expected no parameter, port=PORT to start a fork there, or name=NUMBER to end one")]
    Parameters,
    #[error("{0:#}")]
    Failed(#[from] anyhow::Error),
}

/// A running fork.
pub(super) struct Fork {
    pub(super) name: u32,
    pub(super) server: String,
    pub(super) kubeconfig: String,
}

impl Fork {
    fn of(name: u32, up: &Up) -> Self {
        let credentials = up.server.credentials();
        Self { name, kubeconfig: credentials.kubeconfig(), server: credentials.server }
    }
}

impl Forks {
    pub(super) fn new(recipe: Recipe) -> Self {
        Self { recipe, running: Mutex::default() }
    }
}

impl Cluster {
    /// Restores the store and the clock to their state at the start, and restarts the controllers.
    pub(super) async fn reset(&self) -> Result<(), Refusal> {
        let baseline = self.baseline.as_ref().ok_or(Refusal::Durable)?;
        let _alone = self.resetting.lock().await;
        self.controllers.stop().await;
        let restored = baseline.restore().context("cannot write the store");
        self.clock.set(0);
        self.controllers.start().await;
        self.controllers.furnish().await;
        Ok(restored?)
    }

    fn forks(&self) -> Result<&Forks, Refusal> {
        self.forks.as_ref().ok_or(Refusal::IsFork)
    }

    /// Starts a server in this process with a copy of the store, on this port of 127.0.0.1; 0 picks a free one.
    pub(super) async fn fork(&self, registry: &Arc<Registry>, port: u16) -> Result<Fork, Refusal> {
        let Forks { recipe, running } = self.forks()?;
        let mut running = running.lock().await;
        if running.forks.len() >= MAX_FORKS {
            return Err(Refusal::TooMany);
        }
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        // Before anything is copied. If the port is taken between this and the start, the start fails.
        TcpListener::bind(address).map_err(|error| Refusal::PortTaken(port, error))?;
        let registry = Arc::clone(registry);
        let stored = tokio::task::spawn_blocking(move || registry.stored(&RangeOptions::default()));
        let stored = stored.await.context("reading what is stored")?.context("cannot read what is stored")?;
        let contents = Contents::from(stored);
        let begun = self.baseline.as_ref().map(Baseline::contents);
        let options = ServerOptions {
            bind_address: Some(address),
            data_dir: None,
            ephemeral: true,
            storage: None,
            write_kubeconfig: None,
            prepared: Some(contents.store()),
            is_furnished: begun.is_some_and(|begun| begun.is_part_of(&contents)),
            ..recipe.options.clone()
        };
        let clock = CollectorClock::default();
        clock.set(self.clock.ahead());
        let recipe = Recipe { options, ..recipe.clone() };
        let up = Up::start_fork(&recipe, &clock, Surroundings::default()).await?;
        running.last += 1;
        let name = running.last;
        let fork = Fork::of(name, &up);
        running.forks.insert(name, up);
        Ok(fork)
    }

    /// Returns the running forks, by number.
    pub(super) async fn list_forks(&self) -> Result<Vec<Fork>, Refusal> {
        let running = self.forks()?.running.lock().await;
        Ok(running.forks.iter().map(|(name, up)| Fork::of(*name, up)).collect())
    }

    /// Ends a fork.
    pub(super) async fn end_fork(&self, name: u32) -> Result<(), Refusal> {
        let fork = self.forks()?.running.lock().await.forks.remove(&name);
        Box::pin(fork.ok_or(Refusal::Unknown(name))?.shutdown()).await;
        Ok(())
    }

    /// Stops the controllers and every fork.
    pub(super) async fn stop(&self) {
        self.controllers.stop().await;
        if let Some(forks) = &self.forks {
            let forks = std::mem::take(&mut forks.running.lock().await.forks);
            for fork in forks.into_values() {
                Box::pin(fork.shutdown()).await;
            }
        }
    }
}
