//! The registry: answers requests, and performs the effects of writes.

pub mod advisor;
pub(crate) mod call;
mod collections;
pub mod deletion_observer;
pub mod records;
pub mod services;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::task::{Context, Poll, Waker};

use crate::admission::Plugins;
use crate::admission::configured::Configured;
use crate::catalog::{Catalog, rules};
use crate::conversion::Converter;
use crate::definitions::{CompiledDefinitions, Definitions};
use crate::error::ApiError;
use crate::freshness::{Freshness, Subject};
use crate::hub::Hub;
use crate::persist;
use crate::resource::ResourceDefinition;
use crate::storage::{Blocking, RangeAnswer, RangeOptions, Revision, Storage, StorageError, StoreStatus};
use crate::webhooks::{EndpointError, Outside};
use crate::x509::SignatureVerifier;
use advisor::Advisor;
use deletion_observer::DeletionObserver;
use services::ServiceRanges;

/// Settings by an operator.
#[derive(Clone, Debug)]
pub struct Config {
    /// `--enable-garbage-collector`: true if GC finalizers are set (spec `api-deletion.md`, 3.3).
    pub garbage_collector: bool,
    /// Enabled admission plugins.
    pub plugins: Plugins,
    /// True if containers may be privileged (`--allow-privileged`).
    pub allow_privileged: bool,
    /// True if the server counts the usage of quotas because no kube-controller-manager does.
    pub counts_quotas: bool,
    /// True if the server aggregates the rules of ClusterRoles, which upstream's controller manager does.
    pub aggregates_roles: bool,
    /// True if the server checks the types of ValidatingAdmissionPolicies, which upstream's controller manager does.
    pub checks_policy_types: bool,
    /// Lifetime of events (`--event-ttl`), in seconds.
    pub event_ttl_seconds: u32,
    /// Parts of the control plane that run in this process, as ComponentStatuses show them.
    pub components: &'static [&'static str],
    /// Ranges for addresses and node ports of services.
    pub service_ranges: ServiceRanges,
    /// Group and kind of objects that no controller of this server acts on; creating one causes a warning.
    pub unattended: &'static [(&'static str, &'static str)],
    /// Advisor that refuses and warns beyond the rules of the API.
    pub advisor: Option<Arc<dyn Advisor>>,
    /// Observer of the users who request deletions.
    pub deletion_observer: Option<Arc<dyn DeletionObserver>>,
    /// Cache of compiled custom resource definitions, shared by the servers of this process.
    pub compiled_definitions: Option<Arc<CompiledDefinitions>>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            garbage_collector: true,
            plugins: Plugins::default(),
            allow_privileged: true,
            counts_quotas: false,
            aggregates_roles: false,
            checks_policy_types: false,
            event_ttl_seconds: 3600,
            components: &[],
            service_ranges: ServiceRanges::default(),
            unattended: &[],
            advisor: None,
            deletion_observer: None,
            compiled_definitions: None,
        }
    }
}

/// Object semantics of an API server on a store. Shared by all threads of the server.
pub struct Registry {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) config: Config,
    pub(crate) hub: Arc<Hub>,
    pub(crate) definitions: Mutex<Definitions>,
    catalog: RwLock<Arc<Catalog>>,
    maintenance: AtomicBool,
    maintenance_waker: Mutex<Option<Waker>>,
    /// Revisions of the store at past times, oldest first, for the age of events.
    pub(crate) clock: Mutex<VecDeque<(jiff::Timestamp, Revision)>>,
    configured: RwLock<Arc<Configured>>,
    pub(crate) freshness: Arc<Freshness>,
    /// Held while the definitions are read, so that an older state never replaces a newer one.
    reading_definitions: Mutex<()>,
    /// Held while webhooks and policies are read, for the same reason.
    reading_configured: Mutex<()>,
    pub(crate) converter: Arc<Converter>,
    signatures: OnceLock<SignatureVerifier>,
}

impl Registry {
    /// Reads the definitions of custom resources and starts the single watch on the store that feeds all API watches (see
    /// [`Registry::poll_pump`]).
    pub fn open(storage: Arc<dyn Storage>, config: Config) -> Result<Self, ApiError> {
        let freshness = Arc::new(Freshness::default());
        let hub = Hub::new(Arc::clone(&storage), Arc::clone(&freshness)).map_err(persist::storage_error)?;
        let hub = Arc::new(hub);
        let converter = Arc::new(Converter::new(Arc::clone(&storage)));
        let definitions = Mutex::new(Definitions::new(config.compiled_definitions.clone()));
        let registry = Self {
            storage,
            config,
            hub,
            definitions,
            catalog: RwLock::default(),
            maintenance: AtomicBool::new(true),
            maintenance_waker: Mutex::default(),
            clock: Mutex::default(),
            configured: RwLock::default(),
            freshness,
            reading_definitions: Mutex::default(),
            reading_configured: Mutex::default(),
            converter,
            signatures: OnceLock::new(),
        };
        registry.refresh_catalog()?;
        registry.refresh_configured()?;
        Ok(registry)
    }

    /// Returns how long calls may block: see [`Storage::blocks`].
    #[must_use]
    pub fn blocks(&self) -> Blocking {
        self.storage.blocks()
    }

    /// Reports whether the store answers and accepts writes, for health checks. See [`Storage::health`].
    pub fn storage_health(&self) -> Result<(), StorageError> {
        self.storage.health()
    }

    /// Ends the store, which may take seconds. See [`Storage::close`].
    pub fn close_store(&self) {
        self.storage.close();
    }

    /// Returns sizes and revisions of the store. See [`Storage::status`].
    ///
    /// # Errors
    /// Fails like [`Storage::status`].
    pub fn store_status(&self) -> Result<StoreStatus, StorageError> {
        self.storage.status()
    }

    /// Forgets everything that was superseded before a version, and returns the newest version. Pages and watches that continue
    /// from an earlier version get a 410; running watches are not disturbed. If called once per period with the result of the
    /// previous call, keeps the history of one to two periods.
    ///
    /// # Errors
    /// Fails like [`Storage::compact`] and [`Storage::revision`].
    pub fn forget_history(&self, before: Option<Revision>) -> Result<Revision, StorageError> {
        if let Some(before) = before {
            self.storage.compact(before)?;
        }
        self.storage.revision()
    }

    /// Returns stored documents unchanged, in the order of their keys, for backups. Records of servers are omitted.
    ///
    /// # Errors
    /// Fails like [`Storage::range`].
    pub fn stored(&self, options: &RangeOptions) -> Result<RangeAnswer, StorageError> {
        let mut options = options.clone();
        loop {
            let mut answer = self.storage.range("", &options)?;
            let last = answer.items.last().map(|item| Arc::clone(&item.key));
            answer.items.retain(|item| !records::is_record(&item.key));
            // A page without items would be taken for the last one.
            if !answer.items.is_empty() || !answer.more {
                return Ok(answer);
            }
            (options.at, options.after) = (Some(answer.revision), last);
        }
    }

    /// Returns everything that is currently served.
    #[must_use]
    pub fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns host and port of a Service's backend: its external name, or a ready endpoint.
    ///
    /// # Errors
    /// Fails if something is missing, or could not be read.
    pub fn endpoint(&self, namespace: &str, name: &str, port: u64) -> Result<(String, u16), EndpointError> {
        crate::webhooks::service::endpoint(&*self.storage, name, namespace, port)
    }

    /// Sets the caller of webhooks. Without one, webhooks count as unreachable.
    pub fn call_outside_by(&self, outside: Arc<dyn Outside>) {
        self.converter.call_outside_by(outside);
    }

    /// Sets the verifier of certificate requests' signatures. Without one, only the form of requests is checked.
    pub fn verify_requests_by(&self, verifier: SignatureVerifier) {
        // The first verifier stays.
        let _ = self.signatures.set(verifier);
    }

    pub(crate) fn signature_verifier(&self) -> Option<SignatureVerifier> {
        self.signatures.get().copied()
    }

    /// Reports whether writes may currently wait for webhooks.
    #[must_use]
    pub fn calls_outside(&self) -> bool {
        self.configured().calls_outside()
    }

    pub(crate) fn outside(&self) -> Option<&dyn Outside> {
        self.converter.outside()
    }

    /// Returns the settings of the server.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the policies and webhooks in force.
    pub(crate) fn configured(&self) -> Arc<Configured> {
        Arc::clone(&self.configured.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the policies and webhooks. If that fails, requests that they judge are refused until they can be read.
    fn refresh_configured(&self) -> Result<(), ApiError> {
        // Readers of the configuration do not wait for the store.
        let _order = self.reading_configured.lock().unwrap_or_else(PoisonError::into_inner);
        let read = Configured::read(&*self.storage);
        let in_force = match &read {
            Ok((configured, _)) => configured.clone(),
            Err(_) => Configured { is_outdated: true, ..(*self.configured()).clone() },
        };
        *self.configured.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(in_force);
        self.note_reading(Subject::Admission, read.map(|(_, revision)| revision))
    }

    fn note_reading(&self, subject: Subject, read: Result<Revision, ApiError>) -> Result<(), ApiError> {
        match read {
            Ok(revision) => {
                self.freshness.read(subject, revision);
                Ok(())
            }
            Err(error) => {
                self.freshness.failed(subject, &error.message);
                Err(error)
            }
        }
    }

    /// Explains why the server may judge requests by outdated definitions, webhooks or policies and cannot read the current ones,
    /// if so. Until it can, it refuses requests that depend on them.
    #[must_use]
    pub fn configuration_problem(&self) -> Option<String> {
        self.freshness.problem()
    }

    /// Moves changes from the store's watch to the API watches, and reads configuration that they affect. A single task must poll
    /// this for as long as the registry lives. `Ready` reports a broken stream, which the next call replaces (API watches that
    /// missed something are closed), or that changed configuration cannot be read: call again after a pause. This reads from the
    /// store; if that may block, poll [`Registry::poll_changes`] and [`Registry::poll_stale`] instead, so that watches do not wait
    /// for reads.
    pub fn poll_pump(&self, context: &mut Context<'_>) -> Poll<StorageError> {
        loop {
            if let Poll::Ready(broken) = self.poll_changes(context) {
                return Poll::Ready(broken);
            }
            // Definitions or admission configuration changed, possibly by another server on the same store.
            std::task::ready!(self.poll_stale(context));
            if let Err(error) = self.refresh_stale() {
                return Poll::Ready(StorageError::Unavailable(error.message));
            }
        }
    }

    /// Moves changes from the store's watch to the API watches, without reading anything. `Ready` has the meaning of
    /// [`Registry::poll_pump`]. Reopens a broken watch, so it may block as described by [`Storage::blocks`].
    pub fn poll_changes(&self, context: &mut Context<'_>) -> Poll<StorageError> {
        self.hub.poll_changes(context)
    }

    /// `Ready` while changed configuration has not been read: call [`Registry::refresh_stale`] then. For a single task.
    pub fn poll_stale(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.freshness.park(context.waker()) { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Reads the configuration that has changed since it was last read. Parts that cannot be read stay stale.
    ///
    /// # Errors
    /// Fails like [`Storage::range`].
    pub fn refresh_stale(&self) -> Result<(), ApiError> {
        let refresh = |subject, read: &dyn Fn() -> Result<(), ApiError>| {
            if self.freshness.is_stale(subject) { read() } else { Ok(()) }
        };
        let definitions = refresh(Subject::Definitions, &|| self.refresh_catalog());
        // A failure of one does not block the other.
        refresh(Subject::Admission, &|| self.refresh_configured()).and(definitions)
    }

    /// Returns the newest version of the store.
    ///
    /// # Errors
    /// Fails like [`Storage::revision`].
    pub fn newest(&self) -> Result<Revision, StorageError> {
        self.storage.revision()
    }

    /// Returns the version up to which API watches have been fed.
    #[must_use]
    pub fn watch_progress(&self) -> Revision {
        self.hub.progress()
    }

    /// Reports whether [`Registry::maintain`] has work now; otherwise wakes the task once it has.
    pub fn poll_maintenance(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut waker = self.maintenance_waker.lock().unwrap_or_else(PoisonError::into_inner);
        if self.maintenance.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        *waker = Some(context.waker().clone());
        Poll::Pending
    }

    pub(crate) fn request_maintenance(&self) {
        let mut waker = self.maintenance_waker.lock().unwrap_or_else(PoisonError::into_inner);
        self.maintenance.store(true, Ordering::Release);
        if let Some(waker) = waker.take() {
            waker.wake();
        }
    }

    pub(crate) fn maintenance_begins(&self) {
        self.maintenance.store(false, Ordering::Release);
    }

    /// Follows up a write: serves new definitions immediately, and continues the cleanup of deleted ones.
    pub(crate) fn after_write(&self, resource: &ResourceDefinition) -> Result<(), ApiError> {
        if *resource.group == *"admissionregistration.k8s.io" {
            self.refresh_configured()?;
        }
        if rules::is_definition(resource) {
            self.refresh_catalog()?;
            self.request_maintenance();
            return Ok(());
        }
        let is_counted = self.config.counts_quotas && resource.is("", "resourcequotas");
        let is_type_checked = self.config.checks_policy_types
            && resource.is("admissionregistration.k8s.io", "validatingadmissionpolicies");
        if is_counted || is_type_checked || resource.custom.is_some() && self.is_terminating(resource) {
            self.request_maintenance();
        }
        Ok(())
    }

    /// Reports whether the definition of a custom resource is being deleted.
    pub(crate) fn is_terminating(&self, resource: &ResourceDefinition) -> bool {
        let definitions = self.definitions.lock().unwrap_or_else(PoisonError::into_inner);
        definitions.is_terminating(&resource.group, &resource.resource)
    }

    /// Reads the definitions and publishes the resources that they serve. If that fails, writes of custom resources are refused
    /// until the definitions can be read.
    pub(crate) fn refresh_catalog(&self) -> Result<(), ApiError> {
        let _order = self.reading_definitions.lock().unwrap_or_else(PoisonError::into_inner);
        let read = Definitions::read(&*self.storage).map(|answer| {
            let mut definitions = self.definitions.lock().unwrap_or_else(PoisonError::into_inner);
            definitions.replace(answer.items);
            let catalog = Arc::new(Catalog::with_custom(&definitions.served()));
            *self.catalog.write().unwrap_or_else(PoisonError::into_inner) = catalog;
            answer.revision
        });
        self.note_reading(Subject::Definitions, read)
    }
}
