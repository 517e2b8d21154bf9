//! The collectors of a cluster, wired: the ownership engine over gc-kube, and the namespace controller.

use std::sync::Arc;
use std::time::Duration;

use clap::{ArgAction, Args};
use futures::FutureExt as _;
use gc_kube::{
    ApiClient, Clock, CollectorOptions, MetadataCollector, NothingOutside, Observer, Observers, Outside,
    PolicyCollector, ResourceTable, Restraints, RetentionCollector, retention_table, system_clock,
};
use gc_retention::certificates::CertificateCollector;
use gc_retention::engine::{Counts, Engine};
use gc_retention::expiry::foreign::ForeignTool;
use gc_retention::expiry::{self, ExpiryEngine, FinishedExpiry};
use gc_retention::jobs::JobCollector;
use gc_retention::lease_candidates::LeaseCandidateCollector;
use gc_retention::leases::LeaseCollector;
use gc_retention::nodes::NodeLifecycle;
use gc_retention::permissions::{self, Controller};
use gc_retention::pod_certificates::PodCertificateCollector;
use gc_retention::pods::{PodCollector, TERMINATED_POD_THRESHOLD};
use gc_retention::storage_versions::StorageVersionCollector;
use gc_retention::tokens::{CLEAN_UP_PERIOD_MILLISECONDS, TokenCollector};
use gc_retention::volumes::reclaim::VolumeReclaim;
use gc_retention::volumes::{AttributesClassProtection, ClaimProtection, VolumeProtection};
use gc_types::Timestamp;

use crate::activity::{Activity, Rests, Watched};
use crate::collector_metrics::CollectorMetrics;
use crate::journal::Journal;
use crate::namespace_trace::Trace;
use crate::namespaces::{NamespaceController, NamespaceFeed, NamespaceNames, NamespaceSettings};
use crate::notices::{NoticeOptions, NoticeSender};
use crate::outside::{MachinesOutside, OutsideOptions, StorageOutside, positive};

/// The heading of these flags in help texts.
pub(crate) const HEADING: &str = "Collectors";

/// Which collectors run, and with which settings.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = HEADING)]
pub(crate) struct ControllerOptions {
    /// Collectors to run: `name` enables one, `-name` disables it, `*` enables all others that are on by default
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    pub(crate) controllers: Vec<String>,
    /// Write Events about deletions: one about the namespace for each collector and reason, and one about each object at
    /// cluster scope
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) deletion_events: bool,
    /// Maximum number of finished pods in the cluster; 0 keeps all
    #[arg(long, value_name = "COUNT", default_value_t = TERMINATED_POD_THRESHOLD, allow_hyphen_values = true)]
    pub(crate) terminated_pod_gc_threshold: i32,
    /// Also delete node leases without an owner, not renewed for a day, whose node does not exist
    #[arg(long)]
    pub(crate) ownerless_node_leases: bool,
    /// Maintain the condition `Unused` of claims: whether a pod refers to the claim, and since when none does
    #[arg(long)]
    pub(crate) claim_unused_condition: bool,
    /// How long a legacy ServiceAccount token must be unused before it is invalidated, and invalidated before it is
    /// deleted
    #[arg(long, value_name = "DURATION", default_value = "8760h", value_parser = positive)]
    pub(crate) legacy_service_account_token_clean_up_period: Duration,
    /// Other tools whose annotations and labels let objects expire as well: kube-janitor, k8s-ttl-controller, kyverno
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = str::parse::<ForeignTool>)]
    pub(crate) foreign_expiry: Vec<ForeignTool>,
    #[command(flatten)]
    pub(crate) notices: NoticeOptions,
    #[command(flatten)]
    pub(crate) outside: OutsideOptions,
}

impl Default for ControllerOptions {
    fn default() -> Self {
        Self {
            controllers: vec!["*".to_owned()],
            deletion_events: true,
            terminated_pod_gc_threshold: TERMINATED_POD_THRESHOLD,
            ownerless_node_leases: false,
            claim_unused_condition: false,
            legacy_service_account_token_clean_up_period: Duration::from_millis(
                CLEAN_UP_PERIOD_MILLISECONDS.unsigned_abs(),
            ),
            foreign_expiry: Vec::new(),
            notices: NoticeOptions::default(),
            outside: OutsideOptions::default(),
        }
    }
}

impl ControllerOptions {
    /// The collectors that are on.
    pub(crate) fn enabled(&self) -> Result<Vec<Controller>, crate::UsageError> {
        self.enabled_with(&[])
    }

    /// The same where `*` switches these on as well.
    pub(crate) fn enabled_with(&self, also: &[Controller]) -> Result<Vec<Controller>, crate::UsageError> {
        let mut enabled = permissions::enabled_with(&self.controllers, also)
            .map_err(|error| crate::UsageError::new(format!("--controllers: {error}")))?;
        // Whether a provider can be used is said before anything starts.
        self.outside.provider()?;
        self.notices.webhook()?;
        if !self.foreign_expiry.is_empty() && !enabled.contains(&Controller::Expiry) {
            return Err(crate::UsageError::new(format!(
                "--foreign-expiry needs {}; add it to --controllers",
                Controller::Expiry
            )));
        }
        if !self.outside.has_provider() && enabled.contains(&Controller::NodeLifecycle) {
            let nodes = Controller::NodeLifecycle;
            if self.controllers.iter().any(|word| nodes.is_named(word)) {
                return Err(crate::UsageError::new(format!(
                    "--controllers: {nodes} needs a machine provider: --cloud-inventory, --cloud-webhook, --cloud-exec \
                     or --cloud-aws-region"
                )));
            }
            enabled.retain(|controller| *controller != nodes);
        }
        Ok(enabled)
    }
}

impl Rests for gc_ownership::Engine {
    fn rests(&self) -> bool {
        self.is_started() && self.only_polls_left()
    }

    /// Its timers follow a clock of their own, and none that counts is left when it rests.
    fn due(&self) -> Option<Timestamp> {
        None
    }
}

impl Rests for ExpiryEngine {
    /// What it has to do is due at a time, or on its way as a request.
    fn rests(&self) -> bool {
        true
    }

    fn due(&self) -> Option<Timestamp> {
        self.next_wakeup()
    }
}

/// Makes the audit sinks of a collector; the table says which resources its effects are about.
pub(crate) type MakeSinks = dyn Fn(Controller, &ResourceTable) -> Vec<Arc<dyn Observer>> + Send + Sync;

/// What the collectors other than that of owner references are started with.
#[derive(Clone)]
pub(crate) struct Surroundings {
    /// The clock that they use.
    pub(crate) clock: Clock,
    /// Where their metrics are registered, if they are exported.
    pub(crate) metrics: Option<CollectorMetrics>,
    /// The audit sinks.
    pub(crate) sinks: Arc<MakeSinks>,
    /// The journal among them that a server with collectors shows, if it keeps one.
    pub(crate) journal: Option<Arc<Journal>>,
    /// What stops them.
    pub(crate) restraints: Restraints,
    /// Where it is recorded whether they have something left to do.
    pub(crate) activity: Activity,
}

impl Default for Surroundings {
    fn default() -> Self {
        Self {
            clock: system_clock(),
            metrics: None,
            sinks: crate::run::log_sinks(),
            journal: None,
            restraints: Restraints::default(),
            activity: Activity::default(),
        }
    }
}

impl Surroundings {
    /// The observers of a collector's decisions.
    fn observer(&self, controller: Controller, table: &ResourceTable) -> Arc<dyn Observer> {
        let mut observers = (self.sinks)(controller, table);
        observers.extend(self.metrics.as_ref().map(|metrics| metrics.observer(controller)));
        Arc::new(Observers(observers))
    }
}

/// How the namespace controller learns of terminating namespaces, and when it begins.
pub(crate) struct NamespaceOptions {
    /// How long a terminating namespace is left alone first.
    pub(crate) settle: Duration,
    /// The server has only just started: no earlier request can still be in progress.
    pub(crate) is_first: bool,
    /// Their names, if the owner-reference collector that observes them runs elsewhere.
    pub(crate) names: Option<NamespaceNames>,
}

/// Collectors at work on one cluster.
pub(crate) struct RunningCollectors {
    stop: tokio::sync::watch::Sender<bool>,
    ownership: Option<tokio::task::JoinHandle<Watched<gc_ownership::Engine>>>,
    namespaces: Option<tokio::task::JoinHandle<()>>,
    retention: Vec<(Controller, tokio::task::JoinHandle<Counts>)>,
    others: Vec<tokio::task::JoinHandle<()>>,
}

impl RunningCollectors {
    /// Starts those that are on, each with the client of its own identity.
    pub(crate) fn start(
        client_of: impl Fn(Controller) -> ApiClient,
        enabled: &[Controller],
        settings: &ControllerOptions,
        options: &CollectorOptions,
        namespaces: NamespaceOptions,
        observer: Option<Arc<dyn Observer>>,
        surroundings: &Surroundings,
    ) -> Self {
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let (feed, terminating) = NamespaceFeed::new();
        let terminating = namespaces.names.unwrap_or(terminating);
        let mut observers: Vec<Arc<dyn Observer>> = vec![Arc::new(feed)];
        observers.extend(observer);
        let mut running =
            Self { stop, ownership: None, namespaces: None, retention: Vec::new(), others: Vec::new() };
        // Terminating namespaces come from the owner-reference collector's watch; without that one,
        // they are found by the periodic list of all namespaces.
        for &controller in enabled {
            let client = client_of(controller);
            let mut retain = Retain {
                controller,
                client: client.clone(),
                options,
                surroundings,
                outside: Arc::new(NothingOutside),
                stopped: stopped.clone(),
                running: &mut running.retention,
            };
            match controller {
                Controller::GarbageCollector => {
                    let collector = MetadataCollector::new(client, options.clone())
                        .restrained_by(surroundings.restraints.clone());
                    observers.extend((surroundings.sinks)(controller, &collector.table()));
                    let engine = gc_ownership::Engine::new(gc_ownership::Config::default());
                    let engine = Watched::new(engine, surroundings.activity.of(controller), 0);
                    surroundings.activity.add_board(collector.board());
                    let (observer, shutdown) =
                        (Arc::new(Observers(observers.clone())), until(stopped.clone()));
                    let run = async move { collector.run(engine, observer, shutdown).await };
                    running.ownership = Some(tokio::spawn(run.boxed()));
                }
                Controller::Namespace => {}
                Controller::PodGarbageCollector => {
                    retain.start(PodCollector::new(settings.terminated_pod_gc_threshold));
                }
                Controller::TtlAfterFinished => retain.start(JobCollector::default()),
                Controller::CertificateCleaner => retain.start(CertificateCollector::default()),
                Controller::ClaimProtection => {
                    retain.start(ClaimProtection::new(settings.claim_unused_condition));
                }
                Controller::VolumeProtection => retain.start(VolumeProtection::default()),
                Controller::AttributesClassProtection => {
                    retain.start(AttributesClassProtection::default());
                }
                Controller::StaleLease => retain.start(LeaseCollector::new(settings.ownerless_node_leases)),
                Controller::LeaseCandidate => retain.start(LeaseCandidateCollector::default()),
                Controller::PodCertificateCleaner => retain.start(PodCertificateCollector::default()),
                Controller::LegacyTokenCleaner => {
                    let period = settings.legacy_service_account_token_clean_up_period;
                    retain.start(TokenCollector::new(gc_types::milliseconds(period)));
                }
                Controller::StorageVersion => retain.start(StorageVersionCollector::default()),
                Controller::VolumeReclaim => {
                    let storage = StorageOutside::new(retain.client.clone(), &settings.outside);
                    retain.outside = Arc::new(storage);
                    retain.start(VolumeReclaim::new(settings.outside.deleters()));
                }
                Controller::NodeLifecycle => match settings.outside.provider() {
                    Ok(Some(provider)) => {
                        retain.outside = Arc::new(MachinesOutside(provider));
                        retain.start(NodeLifecycle::new(settings.outside.node_policy()));
                    }
                    Ok(None) => {}
                    Err(error) => tracing::error!(%controller, %error, "the collector does not run"),
                },
                Controller::RetentionPolicy => {
                    let collector = PolicyCollector::new(client, options.pacing, options.dry_run)
                        .restrained_by(surroundings.restraints.clone())
                        .named(controller.event_source())
                        .with_clock(Arc::clone(&surroundings.clock));
                    let shutdown = until(stopped.clone());
                    let observer = surroundings.observer(controller, &collector.table());
                    let observer = running.with_notices(settings, collector.table(), observer);
                    let run = async move { collector.run(observer, shutdown).await };
                    running.others.push(tokio::spawn(run.boxed()));
                }
                Controller::Expiry => {
                    let mut by_metadata = options.clone();
                    let finishing = expiry::FINISHING.map(|(group, name)| (group.into(), name.into()));
                    by_metadata.ignored_resources.extend(finishing);
                    let collector = MetadataCollector::new(client.clone(), by_metadata)
                        .restrained_by(surroundings.restraints.clone())
                        .named(controller.event_source())
                        .with_clock(Arc::clone(&surroundings.clock));
                    let shutdown = until(stopped.clone());
                    let tools = &settings.foreign_expiry;
                    let engine = ExpiryEngine::default().with_foreign(tools);
                    let engine = Watched::new(engine, surroundings.activity.of(controller), 0);
                    surroundings.activity.add_board(collector.board());
                    let observer = surroundings.observer(controller, &collector.table());
                    let run = async move { drop(collector.run(engine, observer, shutdown).await) };
                    running.others.push(tokio::spawn(run.boxed()));
                    retain.start(FinishedExpiry::default().with_foreign(tools));
                }
            }
        }
        if enabled.contains(&Controller::Namespace) {
            let trace = Trace::new(|table| surroundings.observer(Controller::Namespace, table));
            let settings = NamespaceSettings {
                settle: namespaces.settle,
                is_first: namespaces.is_first,
                dry_run: options.dry_run,
                pacing: options.pacing,
                restraints: surroundings.restraints.clone(),
                trace,
                clock: Arc::clone(&surroundings.clock),
                movement: surroundings.activity.of(Controller::Namespace),
            };
            let controller = NamespaceController::new(client_of(Controller::Namespace), settings);
            running.namespaces = Some(tokio::spawn(controller.run(terminating, until(stopped)).boxed()));
        }
        running
    }

    /// The observer, which also sends notices to the webhook, if there is one.
    fn with_notices(
        &mut self,
        settings: &ControllerOptions,
        table: ResourceTable,
        observer: Arc<dyn Observer>,
    ) -> Arc<dyn Observer> {
        // Whether it can be used was found out before the start.
        let Ok(Some(webhook)) = settings.notices.webhook() else { return observer };
        let (sender, sending) = NoticeSender::new(webhook, table, system_clock()());
        let stopped = until(self.stop.subscribe());
        self.others.push(tokio::spawn(
            async move {
                tokio::select! {
                    () = stopped => {}
                    () = sending => {}
                }
            }
            .boxed(),
        ));
        Arc::new(Observers(vec![observer, Arc::new(sender)]))
    }

    /// Runs something beside the collectors, until they stop.
    pub(crate) fn add<F>(&mut self, run: impl FnOnce(futures::future::BoxFuture<'static, ()>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stopped: futures::future::BoxFuture<'static, ()> = Box::pin(until(self.stop.subscribe()));
        self.others.push(tokio::spawn(run(stopped).boxed()));
    }

    /// Nothing further is sent; what is in flight gets a moment.
    pub(crate) async fn shutdown(self) {
        let Self { stop, ownership, namespaces, retention, others } = self;
        stop.send_replace(true);
        let (controllers, retention): (Vec<_>, Vec<_>) = retention.into_iter().unzip();
        let ownership = async { ownership?.await.err() };
        let namespaces = async { namespaces?.await.err() };
        let (ownership, namespaces, retention, others) = futures::join!(
            ownership,
            namespaces,
            futures::future::join_all(retention),
            futures::future::join_all(others),
        );
        if ownership.is_some() || namespaces.is_some() || others.iter().any(Result::is_err) {
            tracing::error!("a collector ended by a panic");
        }
        for (controller, ended) in controllers.into_iter().zip(retention) {
            match ended {
                Ok(counts) => tracing::debug!(%controller, ?counts, "the collector has ended"),
                Err(error) => tracing::error!(%controller, %error, "the collector ended by a panic"),
            }
        }
    }
}

/// How one retention collector is started.
struct Retain<'a> {
    controller: Controller,
    client: ApiClient,
    options: &'a CollectorOptions,
    surroundings: &'a Surroundings,
    outside: Arc<dyn Outside>,
    stopped: tokio::sync::watch::Receiver<bool>,
    running: &'a mut Vec<(Controller, tokio::task::JoinHandle<Counts>)>,
}

impl Retain<'_> {
    fn start<C: gc_retention::engine::Collector + Send + 'static>(self, rules: C) {
        let (controller, options) = (self.controller, self.options);
        let observer = self.surroundings.observer(controller, &retention_table());
        // Expiry has an engine over all resources besides (0).
        let engine = Watched::collecting(Engine::new(rules), self.surroundings.activity.of(controller), 1);
        let collector = RetentionCollector::new(self.client, engine, options.pacing, options.dry_run)
            .named(controller.event_source())
            .with_clock(Arc::clone(&self.surroundings.clock))
            .with_outside(self.outside)
            .restrained_by(self.surroundings.restraints.clone());
        let shutdown = until(self.stopped);
        let run = async move { collector.run(observer, shutdown).await };
        self.running.push((controller, tokio::spawn(run.boxed())));
    }
}

async fn until(mut stopped: tokio::sync::watch::Receiver<bool>) {
    // An error says that the sender is gone, which is a stop as well.
    let _ = stopped.wait_for(|stop| *stop).await;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use gc_retention::collectors::COLLECTORS;

    use super::*;

    /// Every flag is that of a collector, and every collector's flags are there.
    #[test]
    fn flags_are_those_of_the_table() {
        let command = ControllerOptions::augment_args(clap::Command::new("kubegc"));
        let given: BTreeSet<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
        let mut known: BTreeSet<&str> = COLLECTORS.iter().flat_map(|one| one.flags.iter().copied()).collect();
        assert!(known.insert("controllers") && known.insert("deletion-events"));
        assert_eq!(given, known);
    }
}
