//! A server with its collectors and controllers in one process.

mod advisor;
mod cluster;
mod control;
mod controllers;
mod deletions;
mod failures;
pub(crate) mod reset;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use gc_apiserver::RunningServer;
use gc_collectors::permissions::Controller;
use gc_kube::Observer;
use gc_process::collectors::{ControllerOptions, Surroundings};
use gc_workloads::workloads::Workload;
use tokio::sync::Mutex;

use crate::apiserver::{self, ServerOptions};
use crate::clock::CollectorClock;
use crate::console::MakeConsole;
use crate::workloads::WorkloadOptions;
use advisor::RetentionAdvisor;
use cluster::{Cluster, Forks, Recipe};
pub use control::Control;
use controllers::{Controllers, EnabledControllers};
use reset::{Baseline, Contents};

/// Zero, because the embedded server knows immediately that a namespace is terminating, so nothing has to settle first.
const NAMESPACE_SETTLE: Duration = Duration::ZERO;

/// Control plane components whose work is done here, by their names in ComponentStatuses; the scheduler is one of the workload
/// controllers.
const COMPONENTS: [&str; 2] = ["controller-manager", "scheduler"];

/// Kinds that would have an effect in a cluster with metrics, a network or devices, but have none here; their creator is warned.
const UNATTENDED: [(&str, &str); 5] = [
    ("autoscaling", "HorizontalPodAutoscaler"),
    ("networking.k8s.io", "Ingress"),
    ("networking.k8s.io", "IngressClass"),
    ("networking.k8s.io", "NetworkPolicy"),
    ("resource.k8s.io", "ResourceClaim"),
];

/// Collectors that `*` enables here besides those that are on by default on a cluster.
const ALSO_ON: [Controller; 1] = [Controller::Expiry];

/// User who opens the page by the link that is printed, a member of `system:masters`.
pub const ADMINISTRATOR: &str = "kubegc-admin";

/// Name under which requests of workload controllers are counted.
const WORKLOADS: &str = "workload-controllers";

/// A server with its collectors.
pub struct Up {
    /// The server.
    pub server: RunningServer,
    /// Clock of the collectors, and whether they have settled.
    pub control: Control,
    cluster: Arc<Cluster>,
}

impl Up {
    /// Starts both. `observer` gets every decision about owners; the clock and the restraints of `surroundings` are those of
    /// `clock`. `console` creates a page for the server and for each fork.
    ///
    /// # Errors
    /// An option is invalid, or the server cannot listen, read its store or create what its controllers need.
    pub async fn start(
        options: &ServerOptions,
        settings: &ControllerOptions,
        workloads: &WorkloadOptions,
        observer: Option<Arc<dyn Observer>>,
        clock: &CollectorClock,
        surroundings: Surroundings,
        console: Option<MakeConsole>,
    ) -> anyhow::Result<Self> {
        let recipe = Recipe {
            options: options.clone(),
            controllers: settings.clone(),
            workloads: workloads.clone(),
            console,
        };
        Self::begin(&recipe, observer, clock, surroundings, Some(Forks::new(recipe.clone()))).await
    }

    /// Starts a fork of another server.
    async fn start_fork(
        recipe: &Recipe,
        clock: &CollectorClock,
        surroundings: Surroundings,
    ) -> anyhow::Result<Self> {
        Self::begin(recipe, None, clock, surroundings, None).await
    }

    async fn begin(
        recipe: &Recipe,
        observer: Option<Arc<dyn Observer>>,
        clock: &CollectorClock,
        surroundings: Surroundings,
        forks: Option<Forks>,
    ) -> anyhow::Result<Self> {
        let Recipe { options, controllers: settings, workloads, console } = recipe;
        let surroundings =
            Surroundings { clock: clock.clock(), restraints: clock.restraints(), ..surroundings };
        let living = workloads.enabled(&settings.controllers)?;
        let enabled = settings.enabled_with(&ALSO_ON)?;
        let console = console.as_ref().map(|make| make(clock, surroundings.journal.clone()));
        let control = Control::new(
            clock.clone(),
            surroundings.activity.clone(),
            surroundings.journal.clone(),
            console.clone(),
        );
        let surroundings = match &console {
            Some(console) => {
                Surroundings { sinks: console.sinks(Arc::clone(&surroundings.sinks)), ..surroundings }
            }
            None => surroundings,
        };
        let components: &[_] = if living.is_empty() { &COMPONENTS[..1] } else { &COMPONENTS };
        let unattended: &[_] = if living.is_empty() { &[] } else { &UNATTENDED };
        let advisor = RetentionAdvisor {
            expires: enabled.contains(&Controller::Expiry),
            tools: settings.foreign_expiry.clone(),
            simulates: living.contains(&Workload::Kubelet),
        };
        let advisor: Option<Arc<dyn gc_registry::advisor::Advisor>> = Some(Arc::new(advisor));
        let mut options = ServerOptions {
            creates_accounts: living.contains(&Workload::ServiceAccount),
            counts_quotas: true,
            aggregates_roles: true,
            checks_policy_types: true,
            components,
            unattended,
            advisor,
            deletion_observer: Some(control.deletions()),
            clock: clock.of_objects(),
            ..options.clone()
        };
        if options.is_in_memory() {
            options.prepared.get_or_insert_default();
        }
        let server = apiserver::serve(&options, Some(Arc::new(control.clone()))).await?;
        control.serve(server.registry());
        if let Some(console) = &console {
            console.serve(&server.in_process(ADMINISTRATOR));
        }
        let enabled = EnabledControllers {
            collectors: enabled,
            settings: settings.clone(),
            workloads: living,
            workload_settings: workloads.settings(server.credentials().ca_pem),
        };
        let controllers = Controllers::new(&server, enabled, observer, surroundings);
        if !options.is_furnished {
            controllers.bind().await?;
        }
        let baseline = options.prepared.as_ref().map(Baseline::of).transpose();
        let cluster = Arc::new(Cluster {
            controllers,
            baseline: baseline.context("cannot read what is stored")?,
            clock: clock.clone(),
            forks,
            resetting: Mutex::default(),
        });
        cluster.controllers.start().await;
        control.attach(&cluster);
        Ok(Self { server, control, cluster })
    }

    /// Returns the stored objects from the start of the server, before anybody could use it; `None` if the store outlives the
    /// server.
    pub(crate) fn begun(&self) -> Option<&Contents> {
        self.cluster.baseline.as_ref().map(Baseline::contents)
    }

    /// Stops the controllers and the forks, then the server and its store.
    pub async fn shutdown(self) {
        self.cluster.stop().await;
        apiserver::shutdown(self.server).await;
    }
}
