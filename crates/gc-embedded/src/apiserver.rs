//! `kubegc apiserver`: the embedded API server on its own.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use futures::FutureExt as _;
use gc_apiserver::{
    AccessConfig, ClusterConfig, ClusterSecret, Extension, GivenKeys, MemoryBudget, RunningServer, Server,
    ServerConfig, SharedReadings, StartError,
};
use gc_process::logging::{self, LogOptions};
use gc_process::{UsageError, kubeconfig};
use gc_registry::admission::{Plugin, Plugins};
use gc_registry::advisor::Advisor;
use gc_registry::deletion_observer::DeletionObserver;
use gc_registry::kubernetes::KubernetesVersion;
use gc_registry::services::{RangeError, ServiceRanges};
use gc_registry::storage::Storage;
use gc_registry::{CompiledDefinitions, Registry};
use gc_store::{
    EtcdOptions, EtcdStorage, EtcdTls, HistoryOptions, MemoryOptions, MemoryStorage, RedbOptions, RedbStorage,
};
use gc_types::GoDuration;

use crate::backup_pages::Pages;

/// Default of `--bind-address`.
const DEFAULT_ADDRESS: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7443));

/// Default of `--service-cluster-ip-range`, like kubeadm's.
const SERVICE_RANGE: &str = "10.96.0.0/12";
/// Default of `--service-node-port-range`.
pub const NODE_PORT_RANGE: &str = "30000-32767";

/// Defaults of `--compaction-interval` and `--history-size`.
const COMPACTION_SECONDS: i64 = 300;
const HISTORY_BYTES: u64 = 64 << 20;
/// Minimum of `--history-size`: below it, no watch could be resumed.
const MINIMUM_HISTORY_BYTES: u64 = 1 << 20;

/// Default of `--object-memory`.
const OBJECT_BYTES: u64 = 256 << 20;

/// Text shown in place of a secret.
const CLASSIFIED: &str = "CLASSIFIED";

fn interval(text: &str) -> Result<GoDuration, String> {
    match text.parse::<GoDuration>() {
        Ok(interval) if interval < GoDuration::ZERO => Err("it must not be negative".to_owned()),
        parsed => parsed.map_err(|error| error.to_string()),
    }
}

fn history_bytes(text: &str) -> Result<u64, String> {
    match gc_types::parse_quantity(text).and_then(|bytes| u64::try_from(bytes).ok()) {
        Some(bytes) if bytes >= MINIMUM_HISTORY_BYTES => Ok(bytes),
        Some(_) => Err(format!("expected at least {}Mi", MINIMUM_HISTORY_BYTES >> 20)),
        None => Err("expected a quantity of bytes, such as 64Mi".to_owned()),
    }
}

fn object_bytes(text: &str) -> Result<u64, String> {
    gc_types::parse_quantity(text)
        .and_then(|bytes| u64::try_from(bytes).ok())
        .ok_or_else(|| "expected a quantity of bytes, such as 256Mi".to_owned())
}

/// Where objects are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StorageKind {
    /// A file in the data directory
    Redb,
    /// In memory; lost when the server stops
    Memory,
    /// In etcd, which several servers can share
    Etcd,
}

/// Options of the embedded server; `kubegc up` has the same.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "API server")]
pub struct ServerOptions {
    /// Address to listen on; port 0 picks a free port [default: 127.0.0.1:7443]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub bind_address: Option<SocketAddr>,
    /// Directory for data and keys [default: kubegc in the user's data directory]
    #[arg(long, value_name = "DIR", conflicts_with = "ephemeral")]
    pub data_dir: Option<PathBuf>,
    /// Keep everything in memory, including keys, and leave nothing behind
    #[arg(long)]
    pub ephemeral: bool,
    /// Version of Kubernetes whose API to serve: 1.36 or 1.37
    #[arg(long, value_name = "VERSION", default_value_t)]
    pub kubernetes_version: KubernetesVersion,
    /// Where to keep objects [default: redb, or memory with --ephemeral]
    #[arg(long, value_enum)]
    pub storage: Option<StorageKind>,
    /// Endpoints of etcd, for --storage etcd
    #[arg(long, value_name = "URL", value_delimiter = ',', default_value = "http://127.0.0.1:2379")]
    pub etcd_endpoints: Vec<String>,
    /// Prefix of all keys in etcd
    #[arg(long, value_name = "PREFIX", default_value = "/kubegc")]
    pub etcd_prefix: String,
    /// Certificate authority for etcd's certificate
    #[arg(long, value_name = "FILE")]
    pub etcd_cafile: Option<PathBuf>,
    /// Client certificate for etcd
    #[arg(long, value_name = "FILE", requires = "etcd_keyfile", requires = "etcd_cafile")]
    pub etcd_certfile: Option<PathBuf>,
    /// Key of the client certificate for etcd
    #[arg(long, value_name = "FILE", requires = "etcd_certfile")]
    pub etcd_keyfile: Option<PathBuf>,
    /// Interval of compaction: superseded versions are kept for one to two intervals, for pages of lists and watches that resume;
    /// 0s: as long as there is room
    #[arg(long, value_name = "DURATION", default_value = "5m0s", value_parser = interval)]
    pub compaction_interval: GoDuration,
    /// Maximum size of the superseded versions that this server holds for pages of lists and watches, at any age
    #[arg(long, value_name = "BYTES", default_value = "64Mi", value_parser = history_bytes)]
    pub history_size: u64,
    /// Maximum size of the objects that --storage redb holds in memory; the others are read from the data file
    #[arg(long, value_name = "BYTES", default_value = "256Mi", value_parser = object_bytes)]
    pub object_memory: u64,
    /// File with a secret, 32 random bytes in base64, with which the servers on one etcd share their certificate authority and keys,
    /// so that each accepts the tokens and kubeconfigs of all; further lines are former secrets
    #[arg(long, value_name = "FILE")]
    pub cluster_key_file: Option<PathBuf>,
    /// Address at which pods and other servers reach this server, for the Service `kubernetes` [default: the address of
    /// --bind-address, or this host's own if that is a loopback address]
    #[arg(long, value_name = "IP")]
    pub advertise_address: Option<IpAddr>,
    /// Bearer token of an administrator
    #[arg(long, env = "KUBEGC_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// File with more bearer tokens, one `token,user,uid,"group,group"` per line
    #[arg(long, value_name = "FILE")]
    pub token_auth_file: Option<PathBuf>,
    /// Additional host name or address for the serving certificate (repeatable)
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    pub tls_san: Vec<String>,
    /// Give Services their addresses from this range
    #[arg(long, value_name = "CIDR", default_value = SERVICE_RANGE)]
    pub service_cluster_ip_range: String,
    /// Give Services their node ports from this range
    #[arg(long, value_name = "FIRST-LAST", default_value = NODE_PORT_RANGE)]
    pub service_node_port_range: String,
    /// Turn on this admission plugin in addition to the default ones (repeatable)
    #[arg(long, value_name = "PLUGIN", value_delimiter = ',')]
    pub enable_admission_plugins: Vec<String>,
    /// Turn off this admission plugin (repeatable)
    #[arg(long, value_name = "PLUGIN", value_delimiter = ',')]
    pub disable_admission_plugins: Vec<String>,
    /// Write the administrator's kubeconfig to this file; an existing file gets another context and keeps the rest
    /// [default: a file in the data directory, or in a temporary directory]
    #[arg(long, value_name = "FILE")]
    pub write_kubeconfig: Option<PathBuf>,
    /// Memory that the server may hold for its clients, such as 512Mi [default: half of the machine's, or of the cgroup's or
    /// the process's limit]
    #[arg(long, value_name = "BYTES")]
    pub memory_budget: Option<MemoryBudget>,
    /// True if the server does not listen at its start.
    #[arg(skip)]
    pub in_process: bool,
    /// True if a controller creates the ServiceAccount `default` in each namespace, so that pods can require one.
    #[arg(skip)]
    pub creates_accounts: bool,
    /// True to count quotas, like kube-controller-manager.
    #[arg(skip)]
    pub counts_quotas: bool,
    /// True to gather the rules of aggregated ClusterRoles, like kube-controller-manager.
    #[arg(skip)]
    pub aggregates_roles: bool,
    /// True to check the types of ValidatingAdmissionPolicies, like kube-controller-manager.
    #[arg(skip)]
    pub checks_policy_types: bool,
    /// Parts of the control plane that run beside the server.
    #[arg(skip)]
    pub components: &'static [&'static str],
    /// Group and kind of objects that no controller acts on; their creator is warned.
    #[arg(skip)]
    pub unattended: &'static [(&'static str, &'static str)],
    /// Advisor that refuses and warns beyond the rules of the API.
    #[arg(skip)]
    pub advisor: Option<Arc<dyn Advisor>>,
    /// Observer of the users who request deletions.
    #[arg(skip)]
    pub deletion_observer: Option<Arc<dyn DeletionObserver>>,
    /// True if no container may be privileged.
    #[arg(skip)]
    pub refuse_privileged: bool,
    /// Keys that are set by other flags.
    #[arg(skip)]
    pub keys: GivenKeys,
    /// Authentication and authorization, as set by other flags.
    #[arg(skip)]
    pub access: AccessConfig,
    /// Lifetime of Events, if not the default.
    #[arg(skip)]
    pub event_ttl_seconds: Option<u32>,
    /// The store to serve instead of a new one.
    #[arg(skip)]
    pub prepared: Option<Arc<MemoryStorage>>,
    /// True if the store already contains what a server of this process creates at its start, including accounts and definitions of
    /// controllers.
    #[arg(skip)]
    pub is_furnished: bool,
    /// Compiled definitions that the servers of this process share.
    #[arg(skip)]
    pub compiled_definitions: Option<Arc<CompiledDefinitions>>,
    /// Where they share what they read in objects that their stores share.
    #[arg(skip)]
    pub readings: Option<Arc<SharedReadings>>,
    /// The server keeps its identity Lease.
    #[arg(skip)]
    pub keeps_identity: bool,
    /// Flags that were given under other names, which `/flagz` shows in place of these.
    #[arg(skip)]
    pub given: Option<BTreeMap<String, String>>,
    /// Clock for the timestamps of objects.
    #[arg(skip)]
    pub clock: gc_apiserver::Clock,
}

impl ServerOptions {
    /// Creates options for a server with everything in memory, at this address.
    #[must_use]
    pub fn ephemeral(bind_address: SocketAddr) -> Self {
        Self { bind_address: Some(bind_address), in_process: false, ..Self::in_process() }
    }

    /// Creates options for a server with everything in memory, for callers in this process.
    #[must_use]
    pub fn in_process() -> Self {
        Self {
            bind_address: None,
            in_process: true,
            data_dir: None,
            ephemeral: true,
            kubernetes_version: KubernetesVersion::default(),
            storage: None,
            etcd_endpoints: Vec::new(),
            etcd_prefix: String::new(),
            etcd_cafile: None,
            etcd_certfile: None,
            etcd_keyfile: None,
            compaction_interval: GoDuration::from_seconds(COMPACTION_SECONDS),
            history_size: HISTORY_BYTES,
            object_memory: OBJECT_BYTES,
            cluster_key_file: None,
            advertise_address: None,
            token: None,
            token_auth_file: None,
            tls_san: Vec::new(),
            service_cluster_ip_range: SERVICE_RANGE.to_owned(),
            service_node_port_range: NODE_PORT_RANGE.to_owned(),
            enable_admission_plugins: Vec::new(),
            disable_admission_plugins: Vec::new(),
            write_kubeconfig: None,
            memory_budget: None,
            creates_accounts: false,
            counts_quotas: false,
            aggregates_roles: false,
            checks_policy_types: false,
            components: &[],
            unattended: &[],
            advisor: None,
            deletion_observer: None,
            refuse_privileged: false,
            keys: GivenKeys::default(),
            access: AccessConfig::default(),
            event_ttl_seconds: None,
            prepared: None,
            is_furnished: false,
            compiled_definitions: None,
            readings: None,
            keeps_identity: false,
            given: None,
            clock: gc_apiserver::Clock::default(),
        }
    }

    /// Returns where the server listens.
    fn address(&self) -> Option<SocketAddr> {
        self.bind_address.or((!self.in_process).then_some(DEFAULT_ADDRESS))
    }

    /// Reports whether the store is lost with the process.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        matches!(self.storage, Some(StorageKind::Memory)) || (self.storage.is_none() && self.ephemeral)
    }

    /// Adapts the options for a server that runs for a single command: it uses a free port, and keeps nothing unless it has a data
    /// directory.
    pub fn for_a_command(&mut self) {
        self.bind_address.get_or_insert(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        self.ephemeral |= self.data_dir.is_none() && self.storage.is_none();
    }

    /// Returns the enabled admission plugins.
    pub fn plugins(&self) -> Result<Plugins, UsageError> {
        let mut plugins = Plugins::default().with(Plugin::ServiceAccount, self.creates_accounts);
        for (names, flag, on) in [
            (&self.enable_admission_plugins, "enable", true),
            (&self.disable_admission_plugins, "disable", false),
        ] {
            for name in names {
                plugins = plugins
                    .with_named(name, on)
                    .map_err(|error| UsageError::new(format!("--{flag}-admission-plugins: {error}")))?;
            }
        }
        Ok(plugins)
    }

    /// Returns the ranges from which Services get addresses and node ports.
    pub fn service_ranges(&self) -> Result<ServiceRanges, UsageError> {
        let refused = |flag: &str, error: &RangeError| UsageError::new(format!("--{flag}: {error}"));
        ServiceRanges::default()
            .with_addresses(&self.service_cluster_ip_range)
            .map_err(|error| refused("service-cluster-ip-range", &error))?
            .with_node_ports(&self.service_node_port_range)
            .map_err(|error| refused("service-node-port-range", &error))
    }

    /// Returns flags with their values for `/flagz`, without secrets.
    fn flags(&self) -> BTreeMap<String, String> {
        let mut flags = self.given.clone().unwrap_or_else(|| {
            let path = |path: &Option<PathBuf>| {
                path.as_ref().map_or_else(String::new, |path| path.display().to_string())
            };
            let list = |list: &[String]| format!("[{}]", list.join(","));
            let storage = self.storage.and_then(|kind| kind.to_possible_value());
            let flags = [
                ("bind-address", self.address().map_or_else(String::new, |address| address.to_string())),
                ("data-dir", path(&self.data_dir)),
                ("ephemeral", self.ephemeral.to_string()),
                ("kubernetes-version", self.kubernetes_version.to_string()),
                ("storage", storage.map_or_else(String::new, |value| value.get_name().to_owned())),
                ("etcd-endpoints", list(&self.etcd_endpoints)),
                ("etcd-prefix", self.etcd_prefix.clone()),
                ("etcd-cafile", path(&self.etcd_cafile)),
                ("etcd-certfile", path(&self.etcd_certfile)),
                ("etcd-keyfile", path(&self.etcd_keyfile)),
                ("compaction-interval", self.compaction_interval.to_string()),
                ("history-size", self.history_size.to_string()),
                ("object-memory", self.object_memory.to_string()),
                ("cluster-key-file", path(&self.cluster_key_file)),
                (
                    "advertise-address",
                    self.advertise_address.map_or_else(String::new, |address| address.to_string()),
                ),
                ("token", self.token.clone().unwrap_or_default()),
                ("token-auth-file", path(&self.token_auth_file)),
                ("tls-san", list(&self.tls_san)),
                ("service-cluster-ip-range", self.service_cluster_ip_range.clone()),
                ("service-node-port-range", self.service_node_port_range.clone()),
                ("enable-admission-plugins", list(&self.enable_admission_plugins)),
                ("disable-admission-plugins", list(&self.disable_admission_plugins)),
                ("allow-privileged", (!self.refuse_privileged).to_string()),
                ("write-kubeconfig", path(&self.write_kubeconfig)),
                (
                    "memory-budget",
                    self.memory_budget.map_or_else(String::new, |budget| budget.bytes().to_string()),
                ),
            ];
            flags.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
        });
        for (name, value) in &mut flags {
            // URLs may contain passwords before an @.
            if name == "token" && !value.is_empty() || value.contains('@') {
                CLASSIFIED.clone_into(value);
            }
        }
        // This process cannot be profiled over HTTP, whatever was requested.
        flags.insert("profiling".to_owned(), "false".to_owned());
        flags
    }

    fn compaction_period(&self) -> Option<Duration> {
        (self.compaction_interval > GoDuration::ZERO).then(|| self.compaction_interval.to_std())
    }

    fn history(&self) -> HistoryOptions {
        let bytes = usize::try_from(self.history_size).unwrap_or(usize::MAX);
        HistoryOptions { bytes, ..HistoryOptions::default() }
    }

    /// Returns the directory for data and keys; `None` if nothing is kept.
    pub fn data_dir(&self) -> anyhow::Result<Option<PathBuf>> {
        match (&self.data_dir, self.ephemeral) {
            (_, true) => Ok(None),
            (Some(folder), false) => Ok(Some(folder.clone())),
            (None, false) => Ok(Some(kubeconfig::default_data_dir()?)),
        }
    }
}

/// Options of `kubegc apiserver`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    #[command(flatten)]
    server: ServerOptions,
    /// Allow privileged containers, as kube-apiserver's flag does (`kubegc up` always allows them)
    #[arg(long)]
    allow_privileged: bool,
    #[command(flatten)]
    log: LogOptions,
}

/// Runs until SIGINT or SIGTERM.
pub fn run(options: &Options) -> anyhow::Result<()> {
    logging::start(&options.log)?;
    raise_file_limit();
    gc_process::tasks::block_on(async {
        let mut ended = stop_signals()?;
        check_kubeconfig(&options.server)?;
        let pages = Arc::new(Pages::default());
        let settings = ServerOptions {
            refuse_privileged: !options.allow_privileged,
            keeps_identity: true,
            ..options.server.clone()
        };
        let server = serve(&settings, Some(pages.clone())).await?;
        pages.serve(server.registry());
        let ready = write_kubeconfig(&options.server, &server).and_then(|kubeconfig| {
            print_ready(&server, kubeconfig.path())?;
            Ok(kubeconfig)
        });
        if ready.is_ok() {
            ended.recv().await;
        }
        shutdown(server).await;
        ready.map(drop)
    })
}

/// Stops a server, then its store: what that leaves to the next start must not depend on who drops it last, and when.
pub(crate) async fn shutdown(server: RunningServer) {
    let registry = Arc::clone(server.registry());
    server.shutdown().await;
    if tokio::task::spawn_blocking(move || registry.close_store()).await.is_err() {
        tracing::error!("the store ended by a panic");
    }
}

/// A kubeconfig that was written, and the directory that was created only for it.
pub struct WrittenKubeconfig {
    path: PathBuf,
    /// Temporary directory, removed when this is dropped.
    _temporary: Option<TemporaryFolder>,
}

impl WrittenKubeconfig {
    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Refuses to write to a file that is not a kubeconfig, before anything starts.
pub fn check_kubeconfig(options: &ServerOptions) -> anyhow::Result<()> {
    options.write_kubeconfig.as_deref().map_or(Ok(()), |file| kubeconfig::read(file).map(drop))
}

/// Opens the store and starts the server. Writes no kubeconfig.
pub async fn serve(
    options: &ServerOptions,
    extension: Option<Arc<dyn Extension>>,
) -> anyhow::Result<RunningServer> {
    let version = options.kubernetes_version.choose();
    version.map_err(|error| UsageError::new(format!("--kubernetes-version: {error}")))?;
    let data_dir = options.data_dir()?;
    let default = gc_registry::Config::default();
    let settings = gc_registry::Config {
        plugins: options.plugins()?,
        event_ttl_seconds: options.event_ttl_seconds.unwrap_or(default.event_ttl_seconds),
        allow_privileged: !options.refuse_privileged,
        counts_quotas: options.counts_quotas,
        aggregates_roles: options.aggregates_roles,
        checks_policy_types: options.checks_policy_types,
        components: options.components,
        service_ranges: options.service_ranges()?,
        unattended: options.unattended,
        advisor: options.advisor.clone(),
        deletion_observer: options.deletion_observer.clone(),
        compiled_definitions: options.compiled_definitions.clone(),
        ..default
    };
    let kind =
        options.storage.unwrap_or(if options.ephemeral { StorageKind::Memory } else { StorageKind::Redb });
    let cluster = cluster(kind, options)?;
    let opened = match &options.prepared {
        // Nothing is waited for.
        Some(prepared) => Registry::open(Arc::clone(prepared) as Arc<dyn Storage>, settings),
        None => {
            let (folder, asked) = (data_dir.clone(), options.clone());
            let storage =
                tokio::task::spawn_blocking(move || open_storage(kind, folder.as_deref(), &asked)).await??;
            tokio::task::spawn_blocking(move || Registry::open(storage, settings)).await?
        }
    };
    let registry = opened.context("cannot read the stored objects")?;
    let mut hosts = host_names();
    hosts.extend(options.tls_san.iter().cloned());
    let config = ServerConfig {
        listen: options.address(),
        data_dir,
        admin_token: options.token.clone(),
        token_auth_file: options.token_auth_file.clone(),
        hosts,
        keys: options.keys.clone(),
        access: options.access.clone(),
        flags: options.flags(),
        identity_host: host_names().into_iter().next().filter(|_| options.keeps_identity),
        clock: options.clock.clone(),
        extension,
        memory_budget: options.memory_budget.unwrap_or_else(MemoryBudget::of_machine),
        is_bootstrapped: options.is_furnished,
        advertise: options.advertise_address,
        history_period: options.compaction_period(),
        cluster,
        readings: options.readings.clone(),
    };
    Server::start(config, Arc::new(registry)).await.map_err(suggest_port)
}

/// Writes the administrator's kubeconfig to the requested file, or to the default one.
pub fn write_kubeconfig(
    options: &ServerOptions,
    server: &RunningServer,
) -> anyhow::Result<WrittenKubeconfig> {
    if let Some(file) = &options.write_kubeconfig {
        kubeconfig::merge(file, &server.credentials())?;
        return Ok(WrittenKubeconfig { path: file.clone(), _temporary: None });
    }
    let (path, temporary) = match options.data_dir()? {
        Some(folder) => (folder.join(kubeconfig::FILE_NAME), None),
        None => {
            let folder = TemporaryFolder::new()?;
            (folder.0.join("kubeconfig"), Some(folder))
        }
    };
    server.credentials().write_kubeconfig(&path)?;
    Ok(WrittenKubeconfig { path, _temporary: temporary })
}

/// Suggests a free port if the requested one is taken.
fn suggest_port(error: StartError) -> anyhow::Error {
    let StartError::Listen { address, error: cause } = &error else { return error.into() };
    if cause.kind() != std::io::ErrorKind::AddrInUse {
        return error.into();
    }
    let free = std::net::TcpListener::bind((address.ip(), 0)).and_then(|listener| listener.local_addr());
    match free {
        Ok(free) => anyhow::anyhow!("{error}; this one is free: --bind-address {free}"),
        Err(_) => error.into(),
    }
}

fn open_storage(
    kind: StorageKind,
    data_dir: Option<&Path>,
    options: &ServerOptions,
) -> anyhow::Result<Arc<dyn Storage>> {
    Ok(match (kind, data_dir) {
        (StorageKind::Etcd, _) => {
            Arc::new(EtcdStorage::connect(&options.etcd_endpoints, &etcd_options(options)?)?)
        }
        (StorageKind::Memory, _) => {
            let settings = MemoryOptions { history: options.history(), ..MemoryOptions::default() };
            Arc::new(MemoryStorage::new(settings))
        }
        (StorageKind::Redb, Some(folder)) => {
            // Keys are created after the first store, so a directory that contains only keys has lost its objects.
            anyhow::ensure!(
                RedbStorage::exists(folder) || !folder.join("pki/ca.crt").exists(),
                "{} has keys and no store: restore the store, or remove the directory pki to start over",
                folder.display()
            );
            let settings = RedbOptions {
                history: options.history(),
                value_memory: options.object_memory,
                ..RedbOptions::default()
            };
            Arc::new(RedbStorage::open(folder, settings)?)
        }
        (StorageKind::Redb, None) => {
            anyhow::bail!("--storage redb needs a data directory, which --ephemeral has not")
        }
    })
}

/// Returns the settings for other servers on a store that several can share.
fn cluster(kind: StorageKind, options: &ServerOptions) -> anyhow::Result<Option<ClusterConfig>> {
    let Some(file) = &options.cluster_key_file else {
        return Ok((kind == StorageKind::Etcd).then(ClusterConfig::default));
    };
    if kind != StorageKind::Etcd {
        let why = "--cluster-key-file: only servers with --storage etcd share a store";
        return Err(UsageError::new(why).into());
    }
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    if std::fs::metadata(file).is_ok_and(|found| gc_host::is_open_to_others(&found)) {
        tracing::warn!(path = %file.display(), "others can read the secret of the cluster: make the file private");
    }
    let secret: ClusterSecret = text
        .parse()
        .map_err(|error| UsageError::new(format!("--cluster-key-file {}: {error}", file.display())))?;
    Ok(Some(ClusterConfig { secret: Some(secret), ..ClusterConfig::default() }))
}

fn etcd_options(options: &ServerOptions) -> anyhow::Result<EtcdOptions> {
    let read =
        |path: &PathBuf| std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let identity = match (&options.etcd_certfile, &options.etcd_keyfile) {
        (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
        _ => None,
    };
    let tls = match &options.etcd_cafile {
        Some(ca) => Some(EtcdTls { ca: read(ca)?, identity }),
        None => None,
    };
    let budget = options.memory_budget.unwrap_or_else(MemoryBudget::of_machine);
    Ok(EtcdOptions {
        prefix: options.etcd_prefix.clone(),
        tls,
        largest_list: usize::try_from(budget.bytes()).unwrap_or(usize::MAX),
        compaction_interval: options.compaction_period(),
        history: options.history(),
        ..EtcdOptions::default()
    })
}

/// Prints how to use the server. The last line says that it is ready.
pub fn print_ready(server: &RunningServer, kubeconfig: &Path) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "export KUBECONFIG={}", kubeconfig.display())?;
    writeln!(out, "kubegc API server is ready on {}", server.credentials().server)
}

/// A directory that only its owner can read, and that is removed when this is dropped.
pub struct TemporaryFolder(pub PathBuf);

impl TemporaryFolder {
    /// Creates the directory below the system's temporary one.
    pub fn new() -> anyhow::Result<Self> {
        let started = jiff::Timestamp::now().as_nanosecond();
        let folder = std::env::temp_dir().join(format!("kubegc-{}-{started}", std::process::id()));
        gc_host::new_private_directory(&folder).with_context(|| {
            format!("cannot create the directory {} for the kubeconfig", folder.display())
        })?;
        Ok(Self(folder))
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // It may already have been removed, and an error could not be reported here.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the names of this machine, for the serving certificate.
fn host_names() -> Vec<String> {
    let name = gc_host::host_name();
    let valid =
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'));
    if valid { vec![name] } else { Vec::new() }
}

/// Raises the limit of open files: ten thousand watches are ten thousand files, but the usual soft limit is 1024.
pub fn raise_file_limit() {
    if let Err(error) = gc_host::raise_file_limit() {
        tracing::warn!(%error, "the limit on open files stays as it is");
    }
}

/// Returns a channel that receives both SIGINT and SIGTERM.
pub fn stop_signals() -> anyhow::Result<tokio::sync::mpsc::Receiver<()>> {
    let (send, receive) = tokio::sync::mpsc::channel(1);
    let mut signals = gc_host::StopSignals::new().context("cannot listen for signals")?;
    tokio::spawn(
        async move {
            loop {
                signals.recv().await;
                let _ = send.try_send(());
            }
        }
        .boxed(),
    );
    Ok(receive)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn flags_are_shown_without_secrets() {
        let address = "127.0.0.1:6443".parse().unwrap();
        let mut options = ServerOptions { token: Some("hush".into()), ..ServerOptions::ephemeral(address) };
        options.etcd_endpoints = vec!["https://a:hush@etcd:2379".into(), "https://etcd:2379".into()];
        let flags = options.flags();
        for (name, value) in [
            ("token", CLASSIFIED),
            ("etcd-endpoints", CLASSIFIED),
            ("bind-address", "127.0.0.1:6443"),
            ("ephemeral", "true"),
            ("storage", ""),
            ("tls-san", "[]"),
            ("profiling", "false"),
        ] {
            assert_eq!(flags[name], value, "{name}");
        }
        assert!(!flags.values().any(|value| value.contains("hush")), "{flags:?}");
        options.given = Some(
            [("profiling", "true"), ("etcd-servers", "http://a:hush@b"), ("v", "2")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
        );
        let shown = [("etcd-servers", CLASSIFIED), ("profiling", "false"), ("v", "2")];
        assert_eq!(options.flags(), shown.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    }

    #[test]
    fn each_flag_of_the_server_is_shown() {
        let command = Options::augment_args(clap::Command::new("apiserver"));
        let address = "127.0.0.1:6443".parse().unwrap();
        let mut shown: BTreeSet<String> = ServerOptions::ephemeral(address).flags().into_keys().collect();
        assert!(shown.remove("profiling"));
        let about_logs = LogOptions::augment_args(clap::Command::new("logs"));
        let names = |command: &clap::Command| -> BTreeSet<String> {
            command.get_arguments().filter_map(|one| one.get_long()).map(str::to_owned).collect()
        };
        assert_eq!(shown, &names(&command) - &names(&about_logs));
    }

    #[test]
    fn keys_without_a_store_are_a_store_that_was_lost() {
        let folder = tempfile::tempdir().unwrap();
        let open = || {
            open_storage(
                StorageKind::Redb,
                Some(folder.path()),
                &ServerOptions::ephemeral("127.0.0.1:0".parse().unwrap()),
            )
        };
        std::fs::create_dir(folder.path().join("pki")).unwrap();
        drop(open().unwrap());
        std::fs::write(folder.path().join("pki/ca.crt"), "").unwrap();
        drop(open().unwrap());
        std::fs::remove_file(folder.path().join("kubegc.redb")).unwrap();
        let error = open().err().unwrap().to_string();
        assert!(error.contains("has keys and no store"), "{error}");
        assert!(!folder.path().join("kubegc.redb").exists());
    }
}
