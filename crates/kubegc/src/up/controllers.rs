//! The collectors and workload controllers of a server, which a reset stops and starts again.

use std::sync::Arc;

use gc_apiserver::{InProcess, RunningServer};
use gc_kube::{ApiClient, CollectorOptions, Observer};
use gc_registry::api::UserInfo;
use gc_retention::permissions::Controller;
use gc_workloads::plan::Settings;
use gc_workloads::runtime::Runtime;
use gc_workloads::workloads::Workload;
use tokio::sync::Mutex;

use super::{NAMESPACE_SETTLE, WORKLOADS};
use crate::accounts::{self, Account};
use crate::activity::{Movement, is_watch};
use crate::collectors::{ControllerOptions, NamespaceOptions, RunningCollectors, Surroundings};
use crate::definitions;
use crate::workloads;

/// Everything that the controllers are started with, and those that run.
pub(crate) struct Controllers {
    /// The way into the server.
    way: InProcess,
    enabled: Vec<Controller>,
    settings: ControllerOptions,
    living: Vec<Workload>,
    informers: Account,
    workload_settings: Settings,
    observer: Option<Arc<dyn Observer>>,
    surroundings: Surroundings,
    running: Mutex<Option<RunningCollectors>>,
}

/// Which controllers run.
pub(super) struct Enabled {
    pub(super) collectors: Vec<Controller>,
    pub(super) settings: ControllerOptions,
    pub(super) workloads: Vec<Workload>,
    pub(super) workload_settings: Settings,
}

impl Controllers {
    /// Binds their accounts in the server. None of them runs yet.
    pub(super) async fn bind(
        server: &RunningServer,
        enabled: Enabled,
        observer: Option<Arc<dyn Observer>>,
        surroundings: Surroundings,
    ) -> anyhow::Result<Self> {
        let Enabled { collectors, settings, workloads: living, workload_settings } = enabled;
        let informers = Account::of_informers(workloads::kinds(&living));
        let mut accounts: Vec<Account> = collectors.iter().copied().map(Account::from).collect();
        if !living.is_empty() {
            accounts.push(informers.clone());
            accounts.extend(living.iter().copied().map(Account::from));
        }
        let way = server.in_process("kubegc");
        let controllers = Self {
            way: way.clone(),
            enabled: collectors,
            settings,
            living,
            informers,
            workload_settings,
            observer,
            surroundings,
            running: Mutex::default(),
        };
        let admin = ApiClient::in_process(move |request| way.call(request));
        accounts::bind(&admin, |account| controllers.client_of_workload(account), &accounts).await?;
        if controllers.enabled.contains(&Controller::RetentionPolicy) {
            definitions::install(&admin).await?;
        }
        Ok(controllers)
    }

    fn client_of(&self, account: &Account, movement: Arc<Movement>) -> ApiClient {
        let groups = accounts::GROUPS.map(str::to_owned).to_vec();
        let way = self.way.as_user(&UserInfo { name: account.user(), groups, ..UserInfo::default() });
        ApiClient::in_process(move |request| {
            // A watch does not end; what it delivers is noted where it is taken in.
            let going = (!is_watch(request.uri())).then(|| movement.request());
            let answer = way.call(request);
            async move {
                let answer = answer.await;
                drop(going);
                answer
            }
        })
    }

    fn client_of_workload(&self, account: &Account) -> ApiClient {
        self.client_of(account, self.surroundings.activity.named(WORKLOADS))
    }

    /// Starts them all.
    pub(crate) async fn start(&self) {
        let mut running = self.running.lock().await;
        let surroundings = &self.surroundings;
        let mut collectors = RunningCollectors::start(
            |controller| self.client_of(&controller.into(), surroundings.activity.of(controller)),
            &self.enabled,
            &self.settings,
            &CollectorOptions::default(),
            NamespaceOptions { settle: NAMESPACE_SETTLE, is_first: true, heard: None },
            self.observer.clone(),
            surroundings,
        );
        if !self.living.is_empty() {
            let of_workloads = self
                .living
                .iter()
                .map(|&workload| (workload, self.client_of_workload(&workload.into())))
                .collect();
            let clients =
                workloads::Clients { informers: self.client_of_workload(&self.informers), of_workloads };
            let runtime = Runtime::new(self.workload_settings.clone(), self.living.clone());
            let clock = Arc::clone(&surroundings.clock);
            let movement = surroundings.activity.named(WORKLOADS);
            collectors.add(|stopped| workloads::run(clients, runtime, clock, movement, stopped));
        }
        *running = Some(collectors);
    }

    /// Stops them all; what is in flight gets a moment.
    pub(crate) async fn stop(&self) {
        if let Some(running) = self.running.lock().await.take() {
            running.shutdown().await;
        }
        self.surroundings.activity.forget_boards();
    }
}
