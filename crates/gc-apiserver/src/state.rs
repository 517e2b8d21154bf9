//! State that all requests share.

pub(crate) mod extension;
pub(crate) mod facts;
pub(crate) mod readings;

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gc_registry::Registry;
use gc_registry::api::{RequestContext, UserInfo};
use gc_registry::error::ApiError;
use gc_registry::storage::Blocking;
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::aggregator::Aggregator;
use crate::api_documents::discovery::Discovery;
use crate::api_documents::openapi::OpenApi;
use crate::auth::access::Access;
use crate::deadline::Caller;
use crate::encode::list_lengths::ListLengths;
use crate::exchange::watching::FrameCache;
use crate::metrics::Metrics;
use crate::state::extension::Extension;
use crate::state::facts::Facts;
use crate::state::readings::SharedReadings;
use crate::transport::clients::Clients;
use crate::transport::stop::Stop;
use crate::work::{Weight, Work};

/// Name and port by which pods reach a server; the only address of a server that does not listen.
const UNLISTENED: &str = "kubernetes.default.svc:443";

/// Clock for the timestamps and ages of objects. Keys, tokens and sessions use the machine's clock.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> jiff::Timestamp + Send + Sync>);

impl Clock {
    /// Creates a clock that a test controls.
    pub fn new(now: impl Fn() -> jiff::Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Returns the current time.
    #[must_use]
    pub fn now(&self) -> jiff::Timestamp {
        (self.0)()
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}

impl Default for Clock {
    /// Returns the machine's clock.
    fn default() -> Self {
        Self::new(jiff::Timestamp::now)
    }
}

/// State that all requests share.
pub(crate) struct State {
    /// The registry.
    pub(crate) registry: Arc<Registry>,
    /// Authentication and authorization of requests.
    pub(crate) access: Access,
    /// Aggregated servers.
    pub(crate) aggregator: Aggregator,
    /// Discovery documents.
    pub(crate) discovery: Discovery,
    /// OpenAPI documents.
    pub(crate) openapi: OpenApi,
    /// Metrics.
    pub(crate) metrics: Metrics,
    /// Bounds on concurrent work.
    pub(crate) work: Work,
    /// Encoded watch events.
    pub(crate) frames: Arc<FrameCache>,
    /// Lengths of large collections in protobuf.
    pub(crate) list_lengths: Arc<ListLengths>,
    /// Clock for the timestamps of objects.
    pub(crate) clock: Clock,
    /// Flags and start time, as shown to clients.
    pub(crate) facts: Facts,
    /// Resolves when the server stops.
    pub(crate) stop: Stop,
    /// Address on which the server listens; empty while it does not.
    pub(crate) address: OnceLock<SocketAddr>,
    /// Handler of further paths.
    pub(crate) extension: Option<Arc<dyn Extension>>,
    /// Connections, and the memory held for them.
    pub(crate) clients: Arc<Clients>,
    /// Source of random bits.
    pub(crate) random: SystemRandom,
    /// Readings that the servers of this process share.
    pub(crate) readings: Option<Arc<SharedReadings>>,
    /// True if the server listened nowhere at its start. A long list delays only its own process then, and a thread for each list
    /// would cost more than most lists do.
    pub(crate) is_for_its_process: bool,
}

impl State {
    /// Returns a `host:port` that clients on this machine can use, or the in-cluster name while the server does not listen.
    pub(crate) fn advertised(&self) -> String {
        match self.address.get() {
            Some(address) if address.ip().is_unspecified() => format!("127.0.0.1:{}", address.port()),
            Some(address) => address.to_string(),
            None => UNLISTENED.to_owned(),
        }
    }

    /// Returns random bits from the operating system.
    pub(crate) fn entropy(&self) -> u128 {
        let mut bytes = [0; 16];
        // Without random bits, names, UIDs and token ids would not be safe.
        self.random.fill(&mut bytes).expect("the operating system gives random bits");
        u128::from_le_bytes(bytes)
    }

    /// Returns a random UUID (version 4).
    pub(crate) fn uuid(&self) -> String {
        let bits = self.entropy() & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
        let digits = format!("{bits:032x}");
        format!(
            "{}-{}-{}-{}-{}",
            &digits[..8],
            &digits[8..12],
            &digits[12..16],
            &digits[16..20],
            &digits[20..]
        )
    }

    /// Calls a function with the context of a client's request.
    pub(crate) fn with_context<T>(
        &self,
        caller: &Caller,
        call: impl FnOnce(&Registry, &RequestContext<'_>) -> T,
    ) -> T {
        let entropy = || self.entropy();
        let context = RequestContext {
            now: self.clock.now(),
            user: &caller.user,
            is_server: false,
            time_left: &|| caller.deadline.time_left(),
            entropy: &entropy,
            authorizer: &*self.access.rbac,
            user_agent_manager: &caller.manager,
        };
        call(&self.registry, &context)
    }

    /// Calls a function as the server itself.
    pub(crate) fn as_server<T>(
        &self,
        manager: &str,
        call: impl FnOnce(&Registry, &RequestContext<'_>) -> T,
    ) -> T {
        let entropy = || self.entropy();
        let user = UserInfo {
            name: "system:apiserver".into(),
            groups: vec![crate::auth::pki::MASTERS_GROUP.into()],
            ..UserInfo::default()
        };
        let context = RequestContext {
            now: self.clock.now(),
            user: &user,
            is_server: true,
            time_left: &|| Duration::MAX,
            entropy: &entropy,
            authorizer: &*self.access.rbac,
            user_agent_manager: manager,
        };
        call(&self.registry, &context)
    }

    /// Runs work in place, or on a thread that may block, depending on its weight.
    pub(crate) async fn perform<T: Send + 'static>(
        self: &Arc<Self>,
        weight: Weight,
        work: impl FnOnce(&Self) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let on_the_spot = match (self.registry.blocks(), weight) {
            (Blocking::Never, Weight::Read | Weight::Write) | (Blocking::OnCommit, Weight::Read) => true,
            (Blocking::Never, Weight::ReadMany) => self.is_for_its_process,
            (_, Weight::ReadMany | Weight::ReadConverted | Weight::WriteLarge | Weight::WriteMany)
            | (Blocking::OnCommit | Blocking::OnDisk | Blocking::Always, _) => false,
        };
        // Calls to webhooks wait, so they belong on threads that may block.
        let waits = matches!(weight, Weight::Write) && self.registry.calls_outside();
        if on_the_spot && !waits {
            return work(self);
        }
        let state = Arc::clone(self);
        tokio::task::spawn_blocking(move || work(&state)).await.unwrap_or_else(|failure| {
            Err(ApiError::internal(format!("the request was not finished: {failure}")))
        })
    }
}
