//! The API server of the world: the real registry over a memory store. The store's transactions are all remembered, so it can be
//! put back to an earlier revision.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use gc_collectors::leases::{IDENTITY_NAMESPACE, NODE_LEASE_NAMESPACE};
use gc_registry::api::{
    Attributes, Authorizer, DeleteOptions, ListOptions, Object, ObjectList, Operation, PatchType,
    RequestBody, RequestContext, RequestTarget, Response, ResponseBody, UserInfo, VersionMatch, WriteOptions,
};
use gc_registry::error::ApiError;
use gc_registry::storage::{
    Blocking, Change, Committed, GetAnswer, RangeAnswer, RangeOptions, Revision, Storage, StorageError,
    Transaction, WatchItem, WatchStream,
};
use gc_registry::watch::Watch;
use gc_registry::{CompiledDefinitions, Config, Registry};
use gc_store::MemoryStorage;
use serde_json::{Value, json};

use crate::kinds::{KINDS, Kind, NAMESPACES};
use crate::random::Random;

/// Time at which every world begins, in milliseconds since the epoch.
pub const BEGINNING_MILLISECONDS: i64 = 1_800_000_000_000;
/// Revision of an empty store; the first transaction makes the next one.
const EMPTY: u64 = 1;

/// A memory store that remembers its transactions.
struct RecordedStore {
    store: MemoryStorage,
    log: Mutex<Vec<Transaction>>,
}

impl RecordedStore {
    /// Creates a store with this history.
    fn replay(log: &[Transaction]) -> Self {
        let store = MemoryStorage::default();
        for transaction in log {
            let unconditional = Transaction { conditions: Vec::new(), writes: transaction.writes.clone() };
            // An equal store accepted this transaction before.
            let _ = store.commit(unconditional);
        }
        Self { store, log: Mutex::new(log.to_vec()) }
    }

    fn log(&self) -> Vec<Transaction> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Storage for RecordedStore {
    fn blocks(&self) -> Blocking {
        Blocking::Never
    }

    fn revision(&self) -> Result<Revision, StorageError> {
        self.store.revision()
    }

    fn get(&self, key: &str, at: Option<Revision>) -> Result<GetAnswer, StorageError> {
        self.store.get(key, at)
    }

    fn range(&self, prefix: &str, options: &RangeOptions) -> Result<RangeAnswer, StorageError> {
        self.store.range(prefix, options)
    }

    fn commit(&self, transaction: Transaction) -> Result<Committed, StorageError> {
        let before = self.store.revision()?;
        let committed = self.store.commit(transaction.clone())?;
        if let Committed::Done(revision) = committed
            && revision > before
        {
            self.log.lock().unwrap_or_else(PoisonError::into_inner).push(transaction);
        }
        Ok(committed)
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn WatchStream>, StorageError> {
        self.store.watch(prefix, after)
    }

    fn compact(&self, revision: Revision) -> Result<(), StorageError> {
        self.store.compact(revision)
    }
}

struct Everybody;

impl Authorizer for Everybody {
    fn allows(&self, _user: &UserInfo, _attributes: &Attributes<'_>) -> bool {
        true
    }
}

/// The server, and the log of what really happened.
pub struct Server {
    storage: Arc<RecordedStore>,
    registry: Registry,
    changes: Box<dyn WatchStream>,
    user: UserInfo,
    entropy: AtomicU64,
    /// Time of the server's clock in milliseconds since the epoch.
    pub now: i64,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("now", &self.now).finish_non_exhaustive()
    }
}

/// Initial objects of every world: the namespaces and the definitions of the custom kinds.
static BEGINNING: LazyLock<Vec<Transaction>> = LazyLock::new(|| {
    let mut server = Server::over(&[], 0);
    for name in NAMESPACES.iter().chain(&["default", NODE_LEASE_NAMESPACE, IDENTITY_NAMESPACE]) {
        server.create_in("", "v1", "namespaces", "", json!({"metadata": {"name": name}}));
    }
    for kind in KINDS.iter().filter(|kind| kind.custom) {
        server.define(kind);
    }
    server.maintain();
    server.storage.log()
});

/// Every world has the same definitions.
static COMPILED: LazyLock<Arc<CompiledDefinitions>> = LazyLock::new(Arc::default);

/// A waker that wakes nothing: everything here is polled.
pub(crate) fn polled() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

impl Server {
    /// Creates a server with namespaces and definitions, and its own source of randomness.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::over(&BEGINNING, seed)
    }

    fn over(log: &[Transaction], seed: u64) -> Self {
        let storage = Arc::new(RecordedStore::replay(log));
        let newest = Revision(EMPTY + log.len() as u64);
        let (registry, changes) = Self::open(&storage, newest);
        Self {
            storage,
            registry,
            changes,
            user: UserInfo { name: "simulation".into(), ..UserInfo::default() },
            entropy: AtomicU64::new(seed),
            now: BEGINNING_MILLISECONDS,
        }
    }

    fn open(storage: &Arc<RecordedStore>, newest: Revision) -> (Registry, Box<dyn WatchStream>) {
        let shared: Arc<dyn Storage> = Arc::clone(storage) as Arc<dyn Storage>;
        let config = Config { compiled_definitions: Some(Arc::clone(&COMPILED)), ..Config::default() };
        let registry = match Registry::open(shared, config) {
            Ok(registry) => registry,
            Err(error) => panic!("a registry over a memory store opens: {error}"),
        };
        match storage.watch("/", newest) {
            Ok(changes) => (registry, changes),
            Err(error) => panic!("a memory store can be watched from now: {error}"),
        }
    }

    /// Returns the newest revision.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.storage.revision().map_or(0, |revision| revision.0)
    }

    /// Puts the store back by this number of transactions, and restarts the server. Returns the resulting revision.
    pub fn restore(&mut self, back: usize) -> u64 {
        let mut log = self.storage.log();
        let kept = log.len().saturating_sub(back).max(BEGINNING.len());
        log.truncate(kept);
        self.storage = Arc::new(RecordedStore::replay(&log));
        let newest = Revision(EMPTY + kept as u64);
        (self.registry, self.changes) = Self::open(&self.storage, newest);
        newest.0
    }

    /// Forgets the history before a revision, so watches from before it must list again.
    pub fn compact(&self) {
        // Compaction to the newest revision always succeeds.
        let _ = self.storage.compact(Revision(self.revision()));
    }

    /// Returns the changes since the last call, from the store's own log.
    pub fn changes(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        while let Poll::Ready(Ok(item)) = self.changes.poll_next(&mut polled()) {
            if let WatchItem::Change(change) = item {
                changes.push(change);
            }
        }
        changes
    }

    /// Returns everything stored under a prefix.
    #[must_use]
    pub fn stored(&self, prefix: &str) -> Vec<gc_registry::storage::KeyValue> {
        self.storage.range(prefix, &RangeOptions::default()).map(|answer| answer.items).unwrap_or_default()
    }

    /// Moves changes to the watches of the API.
    pub fn pump(&self) {
        for _ in 0..64 {
            // An error means a broken stream, which the next call replaces.
            if self.registry.poll_pump(&mut polled()).is_pending() {
                return;
            }
        }
    }

    /// Reports whether a kind is served.
    #[must_use]
    pub fn serves(&self, kind: &Kind) -> bool {
        self.registry.catalog().find(kind.group, kind.versions[0], kind.resource).is_some()
    }

    fn with_context<T>(&self, f: impl FnOnce(&RequestContext<'_>) -> T) -> T {
        let source = &self.entropy;
        let entropy = || {
            let number = source.fetch_add(1, Ordering::Relaxed);
            let mut random = Random::new(number.wrapping_mul(0xd134_2543_de82_ef95));
            u128::from(random.next()) << 64 | u128::from(random.next())
        };
        let context = RequestContext {
            now: jiff_timestamp(self.now),
            user: &self.user,
            is_server: false,
            time_left: &|| std::time::Duration::MAX,
            entropy: &entropy,
            authorizer: &Everybody,
            user_agent_manager: "simulation",
        };
        f(&context)
    }

    fn target(
        &self,
        (group, version, resource): (&str, &str, &str),
        namespace: &str,
        name: &str,
    ) -> Option<RequestTarget> {
        let catalog = self.registry.catalog();
        let row = catalog.find(group, version, resource)?;
        Some(RequestTarget {
            resource: Arc::clone(row),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: String::new(),
        })
    }

    /// Returns a request about a kind; `None` if its path is not served.
    pub fn request(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        operation: Operation,
    ) -> Option<Result<Response, ApiError>> {
        let target = self.target((kind.group, kind.versions[0], kind.resource), namespace, name)?;
        Some(self.with_context(|context| self.registry.handle(&target, operation, context)))
    }

    /// Returns a request about a subresource, or about the object itself if `subresource` is empty.
    pub fn request_part(
        &self,
        kind: &Kind,
        (namespace, name, subresource): (&str, &str, &str),
        operation: Operation,
    ) -> Option<Result<Response, ApiError>> {
        let mut target = self.target((kind.group, kind.versions[0], kind.resource), namespace, name)?;
        subresource.clone_into(&mut target.subresource);
        Some(self.with_context(|context| self.registry.handle(&target, operation, context)))
    }

    /// Sends a PATCH of a subresource, or of the object itself if that is empty.
    pub fn patch(
        &self,
        kind: &Kind,
        place: (&str, &str, &str),
        patch_type: PatchType,
        patch: Value,
    ) -> Option<Result<Arc<Object>, ApiError>> {
        let body = RequestBody::from(patch);
        let operation = Operation::Patch(patch_type, body, WriteOptions::default());
        Some(self.request_part(kind, place, operation)?.and_then(object_of))
    }

    fn create_in(&mut self, group: &str, version: &str, resource: &str, namespace: &str, object: Value) {
        if let Some(target) = self.target((group, version, resource), namespace, "") {
            let body = RequestBody::from(object);
            let operation = Operation::Create(body, WriteOptions::default());
            let result = self.with_context(|context| self.registry.handle(&target, operation, context));
            debug_assert!(result.is_ok() || self.revision() > 3, "{result:?}");
        }
    }

    /// Creates the definition of a custom kind, unless it is there.
    pub fn define(&mut self, kind: &Kind) {
        if self.serves(kind) {
            return;
        }
        self.create_in("apiextensions.k8s.io", "v1", "customresourcedefinitions", "", kind.definition());
    }

    /// Deletes the definition of a custom kind.
    pub fn undefine(&mut self, kind: &Kind) {
        let path = ("apiextensions.k8s.io", "v1", "customresourcedefinitions");
        if let Some(target) = self.target(path, "", &kind.definition_name()) {
            let operation = Operation::Delete(DeleteOptions::default());
            // If it does not exist, there is nothing to do.
            let _ = self.with_context(|context| self.registry.handle(&target, operation, context));
        }
    }

    /// Does the server's work that no request triggers.
    pub fn maintain(&mut self) {
        self.pump();
        if self.registry.poll_maintenance(&mut polled()).is_ready() {
            // An error ends only this run.
            let _ = self.with_context(|context| self.registry.maintain(context));
            self.pump();
        }
    }

    /// Sends a POST.
    pub fn create(
        &self,
        kind: &Kind,
        namespace: &str,
        object: Value,
    ) -> Option<Result<Arc<Object>, ApiError>> {
        let body = RequestBody::from(object);
        let result = self.request(kind, namespace, "", Operation::Create(body, WriteOptions::default()))?;
        Some(result.and_then(object_of))
    }

    /// Sends a PUT.
    pub fn replace(
        &self,
        kind: &Kind,
        (namespace, name): (&str, &str),
        object: Value,
    ) -> Option<Result<Arc<Object>, ApiError>> {
        let body = RequestBody::from(object);
        let result = self.request(kind, namespace, name, Operation::Update(body, WriteOptions::default()))?;
        Some(result.and_then(object_of))
    }

    /// Sends a PATCH with a merge patch; returns the object of the response.
    pub fn merge(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        patch: Value,
    ) -> Option<Result<Arc<Object>, ApiError>> {
        self.patch(kind, (namespace, name, ""), PatchType::Merge, patch)
    }

    /// Sends a GET.
    #[must_use]
    pub fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Option<Result<Arc<Object>, ApiError>> {
        let operation = Operation::Get { resource_version: String::new() };
        Some(self.request(kind, namespace, name, operation)?.and_then(object_of))
    }

    /// Sends a DELETE.
    pub fn delete(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        options: DeleteOptions,
    ) -> Option<Result<Response, ApiError>> {
        self.request(kind, namespace, name, Operation::Delete(options))
    }

    /// Lists the newest state, or that of a revision.
    #[must_use]
    pub fn list(
        &self,
        kind: &Kind,
        namespace: &str,
        at: Option<u64>,
    ) -> Option<Result<ObjectList, ApiError>> {
        let mut options = ListOptions::default();
        if let Some(at) = at {
            options.resource_version = at.to_string();
            options.resource_version_match = Some(VersionMatch::Exact);
        }
        let answer = self.request(kind, namespace, "", Operation::List(options))?;
        Some(answer.and_then(|response| match response.body {
            ResponseBody::List(list) => Ok(list),
            _ => Err(ApiError::internal("a list is answered by a list")),
        }))
    }

    /// Starts a watch after a revision.
    #[must_use]
    pub fn watch(&self, kind: &Kind, after: u64) -> Option<Result<Watch, ApiError>> {
        let target = self.target((kind.group, kind.versions[0], kind.resource), "", "")?;
        let options = ListOptions {
            resource_version: after.to_string(),
            allow_watch_bookmarks: true,
            ..ListOptions::default()
        };
        Some(self.registry.watch(&target, &options))
    }
}

fn object_of(response: Response) -> Result<Arc<Object>, ApiError> {
    match response.body {
        ResponseBody::Object(object) => Ok(object),
        _ => Err(ApiError::internal("an object is answered by an object")),
    }
}

fn jiff_timestamp(milliseconds: i64) -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(milliseconds).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
}
