//! The collectors of a cluster, connected to it through gc-kube.

use std::sync::Arc;
use std::time::Duration;

use clap::{ArgAction, Args};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use gc_collectors::certificates::CertificateCollector;
use gc_collectors::engine::{Collector, Counts, Engine};
use gc_collectors::expiry::foreign::ForeignTool;
use gc_collectors::expiry::{self, ExpiryEngine, FinishedExpiry};
use gc_collectors::jobs::JobCollector;
use gc_collectors::lease_candidates::LeaseCandidateCollector;
use gc_collectors::leases::LeaseCollector;
use gc_collectors::nodes::NodeLifecycle;
use gc_collectors::permissions::{self, Controller};
use gc_collectors::pod_certificates::PodCertificateCollector;
use gc_collectors::pods::{PodCollector, TERMINATED_POD_THRESHOLD};
use gc_collectors::storage_versions::StorageVersionCollector;
use gc_collectors::tokens::{CLEAN_UP_PERIOD_MILLISECONDS, TokenCollector};
use gc_collectors::volumes::reclaim::VolumeReclaim;
use gc_collectors::volumes::{AttributesClassProtection, ClaimProtection, VolumeProtection};
use gc_external::MachinesOutside;
use gc_kube::namespaces::{NamespaceController, NamespaceFeed, NamespaceNames, NamespaceSettings, Trace};
use gc_kube::{
    ApiClient, Clock, CollectorOptions, MetadataCollector, NothingOutside, Observer, Observers, Outside,
    PolicyCollector, ResourceTable, Restraints, RetentionCollector, retention_table, system_clock,
};
use gc_types::Timestamp;
use gc_workloads::workloads;
use tokio::task::JoinHandle;

use crate::activity::{Activity, Instrumented, Settled};
use crate::collector_metrics::CollectorMetrics;
use crate::journal::Journal;
use crate::notices::{NoticeOptions, NoticeSender};
use crate::outside::{OutsideOptions, positive};

mod left_out;

use left_out::LeftOut;

/// Heading of these flags in help texts.
pub const HEADING: &str = "Collectors";

/// Enabled collectors and their settings.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = HEADING)]
pub struct ControllerOptions {
    /// Collectors to run: `name` enables one, `-name` disables it, `*` enables all others that are on by default
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    pub controllers: Vec<String>,
    /// Write Events about deletions: one about the namespace for each collector and reason, and one about each object at
    /// cluster scope
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub deletion_events: bool,
    /// Maximum number of finished pods in the cluster; 0 keeps all
    #[arg(long, value_name = "COUNT", default_value_t = TERMINATED_POD_THRESHOLD, allow_hyphen_values = true)]
    pub terminated_pod_gc_threshold: i32,
    /// Also delete node leases without an owner, not renewed for a day, whose node does not exist
    #[arg(long)]
    pub ownerless_node_leases: bool,
    /// Maintain the condition `Unused` of claims: whether a pod refers to the claim, and since when none does
    #[arg(long)]
    pub claim_unused_condition: bool,
    /// Minimum time that a legacy ServiceAccount token must be unused before it is invalidated, and invalidated
    /// before it is deleted
    #[arg(long, value_name = "DURATION", default_value = "8760h", value_parser = positive)]
    pub legacy_service_account_token_clean_up_period: Duration,
    /// Other tools whose annotations and labels let objects expire as well: kube-janitor, k8s-ttl-controller, kyverno
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = str::parse::<ForeignTool>)]
    pub foreign_expiry: Vec<ForeignTool>,
    /// API groups of aggregated API servers whose objects expire by annotation as well: those servers do not check that
    /// whoever adds an annotation may delete the object
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub expiry_aggregated_groups: Vec<String>,
    /// The webhook for notices of policies.
    #[command(flatten)]
    pub notices: NoticeOptions,
    /// Storage and machines outside the cluster.
    #[command(flatten)]
    pub outside: OutsideOptions,
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
            expiry_aggregated_groups: Vec::new(),
            notices: NoticeOptions::default(),
            outside: OutsideOptions::default(),
        }
    }
}

impl ControllerOptions {
    /// Returns the collectors that are on if no workload controller runs.
    pub fn enabled(&self) -> Result<Vec<Controller>, crate::UsageError> {
        if let Some(word) = self.controllers.iter().find(|word| workloads::is_named(word)) {
            return Err(crate::UsageError::new(format!(
                "--controllers: {word:?} is about a workload controller; only `kubegc up` has those, a cluster has \
                 kube-controller-manager for it"
            )));
        }
        self.enabled_with(&[])
    }

    /// Returns the collectors of `kubegc up`, where `*` also enables `also`. The caller has already evaluated the names of workload
    /// controllers.
    pub fn enabled_with(&self, also: &[Controller]) -> Result<Vec<Controller>, crate::UsageError> {
        let words: Vec<&String> = self.controllers.iter().filter(|word| !workloads::is_named(word)).collect();
        let mut enabled = permissions::enabled_with(&words, also).map_err(|error| {
            let others = if also.is_empty() { String::new() } else { format!(", {}", workloads::names()) };
            crate::UsageError::new(format!("--controllers: {error}{others}"))
        })?;
        // An unusable provider is reported before anything starts.
        self.outside.provider()?;
        self.notices.webhook()?;
        let of_expiry = [
            ("foreign-expiry", self.foreign_expiry.is_empty()),
            ("expiry-aggregated-groups", self.expiry_aggregated_groups.is_empty()),
        ];
        if let Some((flag, _)) = of_expiry.iter().find(|(_, is_empty)| !is_empty)
            && !enabled.contains(&Controller::Expiry)
        {
            return Err(crate::UsageError::new(format!(
                "--{flag} needs {}; add it to --controllers",
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

impl Settled for gc_ownership::Engine {
    fn rests(&self) -> bool {
        self.is_started() && self.only_polls_left()
    }

    /// Returns `None`: its timers follow a clock of their own, and none of them matters when it is at rest.
    fn due(&self) -> Option<Timestamp> {
        None
    }
}

impl Settled for ExpiryEngine {
    /// Returns true: its work is always either due at a time or in flight as a request.
    fn rests(&self) -> bool {
        true
    }

    fn due(&self) -> Option<Timestamp> {
        self.next_wakeup()
    }
}

/// Creates the audit sinks of a collector; the table names the resources of its effects.
pub type MakeSinks = dyn Fn(Controller, &ResourceTable) -> Vec<Arc<dyn Observer>> + Send + Sync;

/// Start settings of the collectors; `kubegc run` starts the owner-reference collector itself.
#[derive(Clone)]
pub struct Surroundings {
    /// Clock of the collectors.
    pub clock: Clock,
    /// Registry of their metrics, if they are exported.
    pub metrics: Option<CollectorMetrics>,
    /// Constructor of the audit sinks.
    pub sinks: Arc<MakeSinks>,
    /// Journal among the audit sinks that a server with collectors shows, if it keeps one.
    pub journal: Option<Arc<Journal>>,
    /// Restraints of the collectors.
    pub restraints: Restraints,
    /// Record of whether the collectors have anything left to do.
    pub activity: Activity,
}

impl Default for Surroundings {
    fn default() -> Self {
        Self {
            clock: system_clock(),
            metrics: None,
            sinks: crate::audit_log::log_sinks(),
            journal: None,
            restraints: Restraints::default(),
            activity: Activity::default(),
        }
    }
}

impl Surroundings {
    /// Returns the observers of a collector's decisions.
    fn observer(&self, controller: Controller, table: &ResourceTable) -> Arc<dyn Observer> {
        let mut observers = (self.sinks)(controller, table);
        observers.extend(self.metrics.as_ref().map(|metrics| metrics.observer(controller)));
        Arc::new(Observers(observers))
    }
}

/// Source of terminating namespaces for the namespace controller, and its start.
pub struct NamespaceOptions {
    /// Delay before the first pass over a terminating namespace.
    pub settle: Duration,
    /// True if the server has only just started, so no earlier request can still be in progress.
    pub is_first: bool,
    /// Names of terminating namespaces, if the owner-reference collector that observes them runs elsewhere.
    pub names: Option<NamespaceNames>,
}

/// Collectors that are running on one cluster.
#[derive(Default)]
pub struct RunningCollectors {
    stop: tokio::sync::watch::Sender<bool>,
    ownership: Option<JoinHandle<Instrumented<gc_ownership::Engine>>>,
    namespaces: Option<JoinHandle<()>>,
    retention: Vec<(Controller, JoinHandle<Counts>)>,
    others: Vec<JoinHandle<()>>,
}

impl RunningCollectors {
    /// Reports whether a collector has ended, which before [`RunningCollectors::shutdown`] only a panic can be the reason of.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ownership.as_ref().is_some_and(JoinHandle::is_finished)
            || self.namespaces.as_ref().is_some_and(JoinHandle::is_finished)
            || self.retention.iter().any(|(_, work)| work.is_finished())
            || self.others.iter().any(JoinHandle::is_finished)
    }

    /// Starts the enabled collectors, each with the client of its own identity.
    pub fn start(
        client_of: impl Fn(Controller) -> ApiClient,
        enabled: &[Controller],
        settings: &ControllerOptions,
        options: &CollectorOptions,
        namespaces: NamespaceOptions,
        observer: Option<Arc<dyn Observer>>,
        surroundings: &Surroundings,
    ) -> Self {
        let (feed, terminating) = NamespaceFeed::new();
        let mut observers: Vec<Arc<dyn Observer>> = vec![Arc::new(feed)];
        observers.extend(observer);
        let mut starter = Starter { settings, options, surroundings, running: Self::default() };
        for &controller in enabled {
            let client = client_of(controller);
            match controller {
                Controller::GarbageCollector => starter.ownership(client, std::mem::take(&mut observers)),
                // Started below: the names can be received only once.
                Controller::Namespace => {}
                Controller::PodGarbageCollector => {
                    let rules = PodCollector::new(settings.terminated_pod_gc_threshold);
                    starter.retention(controller, client, rules);
                }
                Controller::TtlAfterFinished => {
                    starter.retention(controller, client, JobCollector::default());
                }
                Controller::CertificateCleaner => {
                    starter.retention(controller, client, CertificateCollector::default());
                }
                Controller::ClaimProtection => {
                    let rules = ClaimProtection::new(settings.claim_unused_condition);
                    starter.retention(controller, client, rules);
                }
                Controller::VolumeProtection => {
                    starter.retention(controller, client, VolumeProtection::default());
                }
                Controller::AttributesClassProtection => {
                    starter.retention(controller, client, AttributesClassProtection::default());
                }
                Controller::StaleLease => {
                    let rules = LeaseCollector::new(settings.ownerless_node_leases);
                    starter.retention(controller, client, rules);
                }
                Controller::LeaseCandidate => {
                    starter.retention(controller, client, LeaseCandidateCollector::default());
                }
                Controller::PodCertificateCleaner => {
                    starter.retention(controller, client, PodCertificateCollector::default());
                }
                Controller::LegacyTokenCleaner => {
                    let period = settings.legacy_service_account_token_clean_up_period;
                    let rules = TokenCollector::new(gc_types::milliseconds(period));
                    starter.retention(controller, client, rules);
                }
                Controller::StorageVersion => {
                    starter.retention(controller, client, StorageVersionCollector::default());
                }
                Controller::VolumeReclaim => starter.volumes(client),
                Controller::NodeLifecycle => starter.nodes(client),
                Controller::RetentionPolicy => starter.policies(client),
                Controller::Expiry => starter.expiry(client),
            }
        }
        if enabled.contains(&Controller::Namespace) {
            // Terminating namespaces come from the watch of the owner-reference collector; without that collector, the periodic
            // list of all namespaces finds them.
            starter.namespaces(client_of(Controller::Namespace), namespaces, terminating);
        }
        starter.running
    }

    /// Returns the observer; if there is a webhook, it also sends notices there.
    fn with_notices(
        &mut self,
        settings: &ControllerOptions,
        table: ResourceTable,
        observer: Arc<dyn Observer>,
    ) -> Arc<dyn Observer> {
        // The webhook was checked before the start.
        let Ok(Some(webhook)) = settings.notices.webhook() else { return observer };
        let (sender, sending) = NoticeSender::new(webhook, table, system_clock()());
        self.add(|stopped| async move {
            tokio::select! {
                () = stopped => {}
                () = sending => {}
            }
        });
        Arc::new(Observers(vec![observer, Arc::new(sender)]))
    }

    /// Runs a task beside the collectors until they stop.
    pub fn add<F>(&mut self, run: impl FnOnce(BoxFuture<'static, ()>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stopped = self.stopped();
        self.others.push(tokio::spawn(run(stopped).boxed()));
    }

    /// Returns a future that completes when the collectors are stopped.
    fn stopped(&self) -> BoxFuture<'static, ()> {
        let mut stopped = self.stop.subscribe();
        // An error means that the sender is gone, which is a stop as well.
        async move { drop(stopped.wait_for(|stop| *stop).await) }.boxed()
    }

    /// Stops the collectors: nothing further is sent, and requests in flight get a moment to finish.
    pub async fn shutdown(self) {
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

/// Starts the collectors one after the other, each in its own task.
struct Starter<'a> {
    settings: &'a ControllerOptions,
    options: &'a CollectorOptions,
    surroundings: &'a Surroundings,
    running: RunningCollectors,
}

impl Starter<'_> {
    fn ownership(&mut self, client: ApiClient, mut observers: Vec<Arc<dyn Observer>>) {
        let (controller, surroundings) = (Controller::GarbageCollector, self.surroundings);
        let collector = MetadataCollector::new(client, self.options.clone())
            .restrained_by(surroundings.restraints.clone());
        observers.push(surroundings.observer(controller, &collector.table()));
        let engine = gc_ownership::Engine::new(gc_ownership::Config::default());
        let engine = Instrumented::new(engine, surroundings.activity.of(controller), 0);
        surroundings.activity.add_board(collector.board());
        let shutdown = self.running.stopped();
        let run = async move { collector.run(engine, Arc::new(Observers(observers)), shutdown).await };
        self.running.ownership = Some(tokio::spawn(run.boxed()));
    }

    fn retention<C: Collector + Send + 'static>(
        &mut self,
        controller: Controller,
        client: ApiClient,
        rules: C,
    ) {
        self.retention_outside(controller, client, rules, Arc::new(NothingOutside));
    }

    /// Starts a retention collector with its access to resources outside the cluster.
    fn retention_outside<C: Collector + Send + 'static>(
        &mut self,
        controller: Controller,
        client: ApiClient,
        rules: C,
        outside: Arc<dyn Outside>,
    ) {
        let (options, surroundings) = (self.options, self.surroundings);
        let observer = surroundings.observer(controller, &retention_table());
        // The expiry collector also has an engine (0) over all resources.
        let engine = Instrumented::collecting(Engine::new(rules), surroundings.activity.of(controller), 1);
        let collector = RetentionCollector::new(client, engine, options.concurrency, options.dry_run)
            .named(controller.event_source())
            .with_clock(Arc::clone(&surroundings.clock))
            .with_outside(outside)
            .restrained_by(surroundings.restraints.clone());
        let shutdown = self.running.stopped();
        let run = async move { collector.run(observer, shutdown).await };
        self.running.retention.push((controller, tokio::spawn(run.boxed())));
    }

    fn volumes(&mut self, client: ApiClient) {
        let options = &self.settings.outside;
        let storage = Arc::new(options.storage(client.clone()));
        let rules = VolumeReclaim::new(options.deleters());
        self.retention_outside(Controller::VolumeReclaim, client, rules, storage);
    }

    fn nodes(&mut self, client: ApiClient) {
        let (controller, options) = (Controller::NodeLifecycle, &self.settings.outside);
        match options.provider() {
            Ok(Some(provider)) => {
                let machines = Arc::new(MachinesOutside(provider));
                self.retention_outside(
                    controller,
                    client,
                    NodeLifecycle::new(options.node_policy()),
                    machines,
                );
            }
            Ok(None) => {}
            Err(error) => tracing::error!(%controller, %error, "the collector does not run"),
        }
    }

    fn policies(&mut self, client: ApiClient) {
        let (controller, surroundings) = (Controller::RetentionPolicy, self.surroundings);
        let collector = PolicyCollector::new(client, self.options.concurrency, self.options.dry_run)
            .restrained_by(surroundings.restraints.clone())
            .named(controller.event_source())
            .with_clock(Arc::clone(&surroundings.clock));
        let observer = surroundings.observer(controller, &collector.table());
        let observer = self.running.with_notices(self.settings, collector.table(), observer);
        self.running.add(|stopped| collector.run(observer, stopped));
    }

    fn expiry(&mut self, client: ApiClient) {
        let (controller, surroundings) = (Controller::Expiry, self.surroundings);
        let tools = &self.settings.foreign_expiry;
        let finishing = FinishedExpiry::default().with_foreign(tools);
        self.retention(controller, client.clone(), finishing);
        let mut by_metadata = self.options.clone();
        let finishing = expiry::FINISHING.map(|(group, name)| (group.into(), name.into()));
        by_metadata.ignored_resources.extend(finishing);
        let collector = MetadataCollector::new(client, by_metadata)
            .restrained_by(surroundings.restraints.clone())
            .named(controller.event_source())
            .with_clock(Arc::clone(&surroundings.clock));
        let engine = ExpiryEngine::default()
            .with_foreign(tools)
            .with_aggregated(&self.settings.expiry_aggregated_groups);
        let left_out = LeftOut::new(&self.settings.expiry_aggregated_groups);
        let engine = Instrumented::new(engine, surroundings.activity.of(controller), 0);
        surroundings.activity.add_board(collector.board());
        let observer = surroundings.observer(controller, &collector.table());
        let observer = Arc::new(Observers(vec![observer, Arc::new(left_out)]));
        self.running.add(|stopped| async move { drop(collector.run(engine, observer, stopped).await) });
    }

    fn namespaces(&mut self, client: ApiClient, options: NamespaceOptions, feed: NamespaceNames) {
        let surroundings = self.surroundings;
        let terminating = options.names.unwrap_or(feed);
        let settings = NamespaceSettings {
            settle: options.settle,
            is_first: options.is_first,
            dry_run: self.options.dry_run,
            concurrency: self.options.concurrency,
            restraints: surroundings.restraints.clone(),
            trace: Trace::new(|table| surroundings.observer(Controller::Namespace, table)),
            clock: Arc::clone(&surroundings.clock),
            progress: surroundings.activity.of(Controller::Namespace),
        };
        let run = NamespaceController::new(client, settings).run(terminating, self.running.stopped());
        self.running.namespaces = Some(tokio::spawn(run.boxed()));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::collections::BTreeSet;

    use bytes::Bytes;
    use gc_collectors::collectors::COLLECTORS;
    use gc_metrics::Catalogue;
    use http_body_util::Full;

    use super::*;

    /// Every flag belongs to a collector, and every collector has its flags.
    #[test]
    fn flags_are_those_of_the_table() {
        let command = ControllerOptions::augment_args(clap::Command::new("kubegc"));
        let given: BTreeSet<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
        let mut known: BTreeSet<&str> = COLLECTORS.iter().flat_map(|one| one.flags.iter().copied()).collect();
        assert!(known.insert("controllers") && known.insert("deletion-events"));
        assert_eq!(given, known);
    }

    /// Upstream's metric of running controllers names each collector of the table.
    #[tokio::test]
    async fn every_collector_that_runs_is_named_by_the_metric() {
        let mut catalogue = Catalogue::default();
        let metrics = CollectorMetrics::register(&mut catalogue);
        let surroundings = Surroundings { metrics: Some(metrics), ..Surroundings::default() };
        let broken = http::StatusCode::INTERNAL_SERVER_ERROR;
        let client = ApiClient::in_process(move |_| {
            let mut answer = http::Response::new(Full::new(Bytes::new()));
            *answer.status_mut() = broken;
            std::future::ready(answer)
        });
        let outside = OutsideOptions { cloud_exec: Some("/bin/false".into()), ..OutsideOptions::default() };
        let settings = ControllerOptions { outside, ..ControllerOptions::default() };
        let namespaces = NamespaceOptions { settle: Duration::ZERO, is_first: true, names: None };
        let options = CollectorOptions::default();
        let running = RunningCollectors::start(
            |_| client.clone(),
            &Controller::ALL,
            &settings,
            &options,
            namespaces,
            None,
            &surroundings,
        );
        running.shutdown().await;
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, catalogue.registry()).unwrap();
        let running: BTreeSet<&str> =
            text.lines().filter(|line| line.starts_with("running_managed_controllers{")).collect();
        let lines = COLLECTORS
            .map(|one| format!("running_managed_controllers{{name=\"{}\",manager=\"kubegc\"}} 1", one.name));
        assert_eq!(running, lines.iter().map(String::as_str).collect());
    }

    /// A process that leads without one of its collectors would keep others from collecting.
    #[tokio::test]
    async fn a_collector_that_panics_is_noticed() {
        let mut running = RunningCollectors::default();
        running.add(|stopped| stopped);
        assert!(!running.has_ended());
        running.add(|_| async { panic!("a defect") });
        while !running.has_ended() {
            tokio::task::yield_now().await;
        }
        running.shutdown().await;
    }
}
