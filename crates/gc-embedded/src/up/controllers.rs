//! Collectors and workload controllers of a server, which a reset stops and starts again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use gc_apiserver::{CertificateAuthority, InProcess, RunningServer};
use gc_collectors::permissions::Controller;
use gc_kube::{ApiClient, CollectorOptions, Observer};
use gc_registry::api::UserInfo;
use gc_workloads::plan::Settings;
use gc_workloads::runtime::Runtime;
use gc_workloads::workloads::Workload;
use http::Method;
use serde_json::Value;
use tokio::sync::Mutex;

use super::{NAMESPACE_SETTLE, WORKLOADS};
use crate::accounts::{self, Account};
use crate::definitions;
use crate::workloads;
use gc_process::activity::{ActivityTracker, TrackedAnswer, is_watch};
use gc_process::collectors::{ControllerOptions, NamespaceOptions, RunningCollectors, Surroundings};
use gc_process::preflight;

/// Interval at which namespaces are checked for the objects that they should contain, and the maximum wait.
const FURNISHING_PAUSE: Duration = Duration::from_millis(2);
const FURNISHING_PATIENCE: Duration = Duration::from_secs(5);

/// Everything that the controllers are started with, and the running ones.
pub(crate) struct Controllers {
    /// Access to the server.
    way: InProcess,
    authority: Arc<CertificateAuthority>,
    enabled: Vec<Controller>,
    settings: ControllerOptions,
    living: Vec<Workload>,
    informers: Account,
    workload_settings: Settings,
    accounts: Vec<Account>,
    observer: Option<Arc<dyn Observer>>,
    surroundings: Surroundings,
    running: Mutex<Option<RunningCollectors>>,
}

/// Returns the list of the objects that a controller puts into each namespace, if it does.
fn in_each_namespace(workload: Workload) -> Option<&'static str> {
    match workload {
        Workload::ServiceAccount => Some("/api/v1/serviceaccounts?fieldSelector=metadata.name%3Ddefault"),
        Workload::RootCertificates => {
            Some("/api/v1/configmaps?fieldSelector=metadata.name%3Dkube-root-ca.crt")
        }
        _ => None,
    }
}

/// Reports whether these lists have an object for each active namespace.
async fn is_furnished(client: &ApiClient, lists: &[&str]) -> bool {
    let listed = async |path: &str| -> Option<Value> {
        let answer = client.call(preflight::request(Method::GET, path, None)).await.ok()?;
        serde_json::from_slice(&answer.body).ok()
    };
    let Some(namespaces) = listed("/api/v1/namespaces").await else { return false };
    let items = namespaces["items"].as_array().into_iter().flatten();
    let active = items.filter(|namespace| namespace["metadata"]["deletionTimestamp"].is_null());
    let names: BTreeSet<&str> = active.filter_map(|one| one["metadata"]["name"].as_str()).collect();
    for path in lists {
        let Some(found) = listed(path).await else { return false };
        let items = found["items"].as_array().into_iter().flatten();
        let having: BTreeSet<&str> = items.filter_map(|one| one["metadata"]["namespace"].as_str()).collect();
        if !names.is_subset(&having) {
            return false;
        }
    }
    true
}

/// Enabled controllers.
pub(super) struct EnabledControllers {
    pub(super) collectors: Vec<Controller>,
    pub(super) settings: ControllerOptions,
    pub(super) workloads: Vec<Workload>,
    pub(super) workload_settings: Settings,
}

impl Controllers {
    /// Creates the set, before any of them runs.
    pub(super) fn new(
        server: &RunningServer,
        enabled: EnabledControllers,
        observer: Option<Arc<dyn Observer>>,
        surroundings: Surroundings,
    ) -> Self {
        let EnabledControllers { collectors, settings, workloads: living, workload_settings } = enabled;
        let informers = Account::of_informers(workloads::kinds(&living));
        let mut accounts: Vec<Account> = collectors.iter().copied().map(Account::from).collect();
        if !living.is_empty() {
            accounts.push(informers.clone());
            accounts.extend(living.iter().copied().map(Account::from));
        }
        Self {
            way: server.in_process("kubegc"),
            authority: Arc::clone(server.certificate_authority()),
            enabled: collectors,
            settings,
            living,
            informers,
            workload_settings,
            accounts,
            observer,
            surroundings,
            running: Mutex::default(),
        }
    }

    /// Binds their accounts in the server, and defines their kinds.
    pub(super) async fn bind(&self) -> anyhow::Result<()> {
        let way = self.way.clone();
        let admin = ApiClient::in_process(move |request| way.call(request));
        accounts::bind(&admin, |account| self.client_of_workload(account), &self.accounts).await?;
        if self.enabled.contains(&Controller::RetentionPolicy) {
            definitions::install(&admin).await?;
        }
        Ok(())
    }

    fn client_of(&self, account: &Account, movement: Arc<ActivityTracker>) -> ApiClient {
        let groups = accounts::GROUPS.map(str::to_owned).to_vec();
        let way = self.way.as_user(&UserInfo { name: account.user(), groups, ..UserInfo::default() });
        ApiClient::in_process(move |request| {
            let watches = is_watch(request.uri()).then(|| Arc::clone(&movement));
            let going = movement.request();
            let answer = way.call(request);
            async move {
                let answer = answer.await.map(|body| match watches {
                    Some(movement) => movement.watch(body),
                    None => TrackedAnswer::whole(body),
                });
                drop(going);
                answer
            }
        })
    }

    fn client_of_workload(&self, account: &Account) -> ApiClient {
        self.client_of(account, self.surroundings.activity.named(WORKLOADS))
    }

    /// Starts all of them.
    pub(crate) async fn start(&self) {
        let mut running = self.running.lock().await;
        let surroundings = &self.surroundings;
        let mut collectors = RunningCollectors::start(
            |controller| self.client_of(&controller.into(), surroundings.activity.of(controller)),
            &self.enabled,
            &self.settings,
            &CollectorOptions::default(),
            NamespaceOptions { settle: NAMESPACE_SETTLE, is_first: true, names: None },
            self.observer.clone(),
            surroundings,
        );
        if !self.living.is_empty() {
            let of_workloads = self
                .living
                .iter()
                .map(|&workload| (workload, self.client_of_workload(&workload.into())))
                .collect();
            let clients = workloads::Clients {
                informers: self.client_of_workload(&self.informers),
                of_workloads,
                authority: Arc::clone(&self.authority),
            };
            let runtime = Runtime::new(self.workload_settings.clone(), self.living.clone());
            let clock = Arc::clone(&surroundings.clock);
            let movement = surroundings.activity.named(WORKLOADS);
            let clock_changed = surroundings.restraints.held.clone();
            collectors
                .add(|stopped| workloads::run(clients, runtime, clock, clock_changed, movement, stopped));
        }
        *running = Some(collectors);
    }

    /// Waits until every namespace has the objects that its controllers create in it: the account `default`, and the server's
    /// certificates.
    pub(crate) async fn furnish(&self) {
        let wanted: Vec<&str> =
            self.living.iter().filter_map(|workload| in_each_namespace(*workload)).collect();
        if wanted.is_empty() {
            return;
        }
        let way = self.way.clone();
        let client = ApiClient::in_process(move |request| way.call(request));
        let furnished = async {
            while !is_furnished(&client, &wanted).await {
                tokio::time::sleep(FURNISHING_PAUSE).await;
            }
        };
        if tokio::time::timeout(FURNISHING_PATIENCE, furnished).await.is_err() {
            tracing::warn!("a namespace still lacks the account `default` or the server's certificates");
        }
    }

    /// Stops all of them; requests in flight get a moment to end.
    pub(crate) async fn stop(&self) {
        if let Some(running) = self.running.lock().await.take() {
            running.shutdown().await;
        }
        self.surroundings.activity.forget_boards();
    }
}
