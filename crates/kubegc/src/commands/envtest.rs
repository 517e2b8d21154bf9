//! The control plane that test frameworks start: called as `kube-apiserver` or `etcd`, this binary acts as that program.
//!
//! controller-runtime's envtest, fabric8's kube-api-test and similar frameworks expect the two programs in a directory, pass the
//! flags of the real ones, and wait for `/healthz` and `/health`. The API server keeps objects in memory; the etcd only answers and
//! stores nothing. No collector runs unless `KUBEGC_ENVTEST_CONTROLLERS` enables some.

mod access;
mod apiserver_flags;
mod archive;
mod assets;
mod flags;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gc_apiserver::RunningServer;
use gc_embedded::apiserver::{self, ServerOptions};
use gc_embedded::clock::CollectorClock;
use gc_embedded::up::Up;
use gc_embedded::workloads::WorkloadOptions;
use gc_process::UsageError;
use gc_process::collectors::{ControllerOptions, Surroundings};
use gc_process::logging::{self, LogOptions};
use gc_process::operations::{self, OperationsPages, PageAnswer, Pages, Protection};
use gc_registry::admission::Plugins;
use gc_registry::kubernetes::KubernetesVersion;
use prometheus_client::registry::Registry;

use crate::exit;
use apiserver_flags::{ABSENT_PLUGINS, APISERVER_FLAGS, PERMANENT_PLUGINS, effective, ignored, switch};
pub(crate) use assets::{EnvtestCommand, run};
use flags::{Flag, GivenFlags};

/// Enabled collectors and workload controllers, as in `--controllers`; `gc` is the collector of owner references.
const CONTROLLERS: &str = "KUBEGC_ENVTEST_CONTROLLERS";
/// Has `*` enable the workload controllers as well, as `--workloads` does.
const WORKLOADS: &str = "KUBEGC_ENVTEST_WORKLOADS";
const ENABLE_PLUGINS: &str = "enable-admission-plugins";
/// Upstream's default of `--secure-port`.
const DEFAULT_PORT: u16 = 6443;
/// Upstream's default of `--service-cluster-ip-range`.
const SERVICE_RANGE: &str = "10.0.0.0/24";
/// Address on which etcd listens by default.
const DEFAULT_ETCD_URL: &str = "http://127.0.0.1:2379";
/// The Kubernetes version to serve. It overrides the version in the name of the program's directory.
const KUBERNETES_VERSION: &str = "KUBEGC_ENVTEST_KUBERNETES_VERSION";

/// The flags of etcd that test frameworks and their users pass.
const ETCD_FLAGS: &[Flag] = &[
    ignored("advertise-client-urls"),
    ignored("auto-compaction-mode"),
    ignored("auto-compaction-retention"),
    ignored("data-dir"),
    ignored("election-timeout"),
    ignored("heartbeat-interval"),
    ignored("initial-advertise-peer-urls"),
    ignored("initial-cluster"),
    ignored("initial-cluster-state"),
    ignored("initial-cluster-token"),
    effective("listen-client-urls"),
    ignored("listen-peer-urls"),
    ignored("log-level"),
    ignored("log-outputs"),
    ignored("logger"),
    ignored("max-request-bytes"),
    ignored("max-txn-ops"),
    ignored("name"),
    ignored("quota-backend-bytes"),
    ignored("snapshot-count"),
    switch("unsafe-no-fsync"),
    ignored("wal-dir"),
];

/// Set by the script that stands in for etcd in an archive, to select one of the two programs.
const PROGRAM: &str = "KUBEGC_ENVTEST_PROGRAM";

/// Runs the program under whose name this process was started, if that is one of the two.
pub(crate) fn called_as(name: &str) -> Option<ExitCode> {
    let is_etcd =
        name == "kube-apiserver" && std::env::var_os(PROGRAM).is_some_and(|program| program == "etcd");
    let name = if is_etcd { "etcd" } else { name };
    let arguments = || std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned());
    match name {
        "kube-apiserver" => Some(exit(program(name, APISERVER_FLAGS, arguments(), apiserver))),
        "etcd" => Some(exit(program(name, ETCD_FLAGS, arguments(), etcd))),
        _ => None,
    }
}

/// Returns the Kubernetes version that a program in a directory serves: the one in the environment, or else the one in the name
/// that setup-envtest gives such a directory, `1.37.0-linux-amd64`.
fn kubernetes_version() -> Result<KubernetesVersion, UsageError> {
    if let Ok(text) = std::env::var(KUBERNETES_VERSION) {
        return text.parse().map_err(|error| UsageError::new(format!("{KUBERNETES_VERSION}: {error}")));
    }
    let program = std::env::current_exe().ok();
    let folder = program.as_deref().and_then(|program| program.parent()?.file_name()?.to_str());
    Ok(folder.and_then(version_of_folder).unwrap_or_default())
}

fn version_of_folder(name: &str) -> Option<KubernetesVersion> {
    let (release, _) = name.split_once('-')?;
    let (minor, _) = release.rsplit_once('.')?;
    minor.parse().ok()
}

/// Parses the flags and runs the program.
fn program(
    name: &str,
    known: &[Flag],
    arguments: impl Iterator<Item = String>,
    run: impl FnOnce(&GivenFlags) -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    // The real programs exit with 1 on an unknown flag, and test frameworks show their output.
    let given = flags::parse(known, arguments)?;
    let kubernetes_version = kubernetes_version()?;
    if given.help || given.version {
        let about = format!("kubegc, called as {name}: for test frameworks.");
        print!(
            "{}",
            if given.help {
                flags::help(name, &about, known)
            } else {
                format!("Kubernetes v{}\n", kubernetes_version.release())
            }
        );
        return Ok(ExitCode::SUCCESS);
    }
    if !given.without_effect.is_empty() {
        let names: Vec<String> = given.without_effect.iter().map(|name| format!("--{name}")).collect();
        eprintln!("{name} (kubegc): accepted without effect: {}", names.join(", "));
    }
    logging::start(&LogOptions::text("warn"))?;
    run(&given)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the collectors that the environment enables; `None` for none.
fn controllers() -> Option<Vec<String>> {
    let words = std::env::var(CONTROLLERS).ok()?;
    let words = words.split(',').map(str::trim).filter(|word| !word.is_empty());
    let long = |word: &str| if word == "gc" { "garbagecollector".to_owned() } else { word.to_owned() };
    Some(words.map(long).collect::<Vec<_>>()).filter(|words| !words.is_empty())
}

/// The workload controllers of a server with these controllers: those that are named, and with `*` all of them if the environment
/// says so.
fn workloads(switch: Option<&str>, controllers: &[String]) -> Result<WorkloadOptions, UsageError> {
    match switch {
        Some("on") => Ok(WorkloadOptions::default()),
        Some("off" | "") | None => Ok(WorkloadOptions::named(controllers)),
        Some(other) => Err(UsageError::new(format!("{WORKLOADS}: expected on or off, and not {other:?}"))),
    }
}

/// The plugins of a list that this server has. It says which are not there, and which stay on.
fn plugins(given: &GivenFlags, flag: &str) -> anyhow::Result<Vec<String>> {
    let (mut ours, mut others) = (Vec::new(), Vec::new());
    for name in given.words(flag) {
        if Plugins::names().contains(&name) {
            ours.push(name.to_owned());
        } else if ABSENT_PLUGINS.contains(&name) || PERMANENT_PLUGINS.contains(&name) {
            others.push(name);
        } else {
            return Err(UsageError::new(format!("{flag} plugin {name:?} is unknown")).into());
        }
    }
    // Asking for a plugin that is always on has its effect.
    others.retain(|name| flag != ENABLE_PLUGINS || !PERMANENT_PLUGINS.contains(name));
    if !others.is_empty() {
        eprintln!("kube-apiserver (kubegc): --{flag}: without effect: {}", others.join(", "));
    }
    Ok(ours)
}

/// Returns the address range of Services: the first of two, because there is one address family.
fn service_range(given: &GivenFlags) -> &str {
    let given = given.last("service-cluster-ip-range").unwrap_or(SERVICE_RANGE);
    given.split(',').next().filter(|range| !range.is_empty()).unwrap_or(SERVICE_RANGE)
}

enum RunningProgram {
    Alone(RunningServer),
    Collecting(Box<Up>),
}

fn apiserver(given: &GivenFlags) -> anyhow::Result<()> {
    let number =
        |name: &str, text: &str| UsageError::new(format!("--{name} {text}: not a number from 0 to 65535"));
    let port = match given.last("secure-port") {
        Some(text) => text.parse().map_err(|_| number("secure-port", text))?,
        None => DEFAULT_PORT,
    };
    let address = match given.last("bind-address") {
        Some(text) => text
            .parse::<IpAddr>()
            .map_err(|_| UsageError::new(format!("--bind-address {text}: not an IP address")))?,
        // A server for tests need not be reachable from elsewhere.
        None => Ipv4Addr::LOCALHOST.into(),
    };
    let mut enabled = plugins(given, ENABLE_PLUGINS)?;
    // On by default in the real program. Frameworks know that, and turn it off where no controller creates ServiceAccounts.
    enabled.push("ServiceAccount".to_owned());
    let options = ServerOptions {
        kubernetes_version: kubernetes_version()?,
        enable_admission_plugins: enabled,
        disable_admission_plugins: plugins(given, "disable-admission-plugins")?,
        refuse_privileged: !given.switch("allow-privileged")?.unwrap_or(false),
        event_ttl_seconds: access::event_seconds(given)?,
        access: access::access(given)?,
        token_auth_file: given.last("token-auth-file").map(PathBuf::from),
        service_cluster_ip_range: service_range(given).to_owned(),
        service_node_port_range: given
            .last("service-node-port-range")
            .unwrap_or(apiserver::NODE_PORT_RANGE)
            .to_owned(),
        keys: access::keys(given)?,
        given: Some(given.shown()),
        // With collectors, whose clock tests set ahead, the identity would expire at once.
        keeps_identity: controllers().is_none(),
        ..ServerOptions::ephemeral(SocketAddr::new(address, port))
    };
    apiserver::raise_file_limit();
    gc_process::tasks::block_on(async {
        let mut ended = apiserver::stop_signals()?;
        let running = match controllers() {
            None => RunningProgram::Alone(apiserver::serve(&options, None).await?),
            Some(controllers) => {
                let workloads = workloads(std::env::var(WORKLOADS).ok().as_deref(), &controllers)?;
                let settings = ControllerOptions { controllers, ..ControllerOptions::default() };
                let clock = CollectorClock::default();
                let up =
                    Up::start(&options, &settings, &workloads, None, &clock, Surroundings::default(), None)
                        .await?;
                RunningProgram::Collecting(Box::new(up))
            }
        };
        ended.recv().await;
        match running {
            RunningProgram::Alone(server) => server.shutdown().await,
            RunningProgram::Collecting(up) => up.shutdown().await,
        }
        anyhow::Ok(())
    })
}

/// Answers requests to etcd's health endpoint.
struct EtcdHealth;

impl Pages for EtcdHealth {
    fn refresh(&self) {}

    fn unhealthy(&self) -> Option<String> {
        None
    }

    fn page(&self, _user: &str, path: &str, _query: &[(String, String)]) -> Option<PageAnswer> {
        let body = match path {
            "/health" => r#"{"health":"true","reason":""}"#,
            "/version" => r#"{"etcdserver":"3.6.0","etcdcluster":"3.6.0"}"#,
            _ => return None,
        };
        Some(PageAnswer::Document("application/json", body.to_owned()))
    }
}

/// Parses the addresses in `http://host:port,…`.
fn client_addresses(urls: &str) -> anyhow::Result<Vec<SocketAddr>> {
    let mut found = Vec::new();
    for url in urls.split(',') {
        let refused = || UsageError::new(format!("--listen-client-urls {url}: expected http://HOST:PORT"));
        let place =
            url.strip_prefix("http://").map(|place| place.trim_end_matches('/')).ok_or_else(refused)?;
        found.push(place.to_socket_addrs().map_err(|_| refused())?.next().ok_or_else(refused)?);
    }
    Ok(found)
}

fn etcd(given: &GivenFlags) -> anyhow::Result<()> {
    let addresses = client_addresses(given.last("listen-client-urls").unwrap_or(DEFAULT_ETCD_URL))?;
    gc_process::tasks::block_on(async {
        let mut ended = apiserver::stop_signals()?;
        for address in addresses {
            let ready = Arc::new(AtomicBool::new(true));
            let pages: Arc<dyn Pages> = Arc::new(EtcdHealth);
            operations::serve(
                address,
                OperationsPages { metrics: Arc::new(Registry::default()), ready, pages: Some(pages) },
                Arc::new(Protection::Open),
            )
            .await?;
        }
        ended.recv().await;
        anyhow::Ok(())
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use super::*;

    #[test]
    fn folders_of_setup_envtest_name_versions() {
        for (name, expected) in [
            ("1.36.2-linux-amd64", Some(KubernetesVersion::V1_36)),
            ("1.37.0-darwin-arm64", Some(KubernetesVersion::V1_37)),
            ("1.35.0-linux-amd64", None),
            ("1.37-linux-amd64", None),
            ("1.37.0", None),
            ("bin", None),
        ] {
            assert_eq!(version_of_folder(name), expected, "{name}");
        }
    }

    #[test]
    fn workload_controllers_are_named_or_switched_on() {
        let enabled = |switch, words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            workloads(switch, &words).unwrap().enabled(&words).unwrap().len()
        };
        let all = enabled(Some("on"), &["*"]);
        assert!(all > 2);
        for (switch, words, expected) in [
            (None, &["*"][..], 0),
            (None, &["*", "-job-controller"], 0),
            (Some("off"), &["gc"], 0),
            (Some(""), &["gc", "job-controller"], 1),
            (Some("on"), &["gc", "job-controller", "kube-scheduler"], 2),
            (Some("on"), &["*", "-job-controller"], all - 1),
        ] {
            assert_eq!(enabled(switch, words), expected, "{switch:?} {words:?}");
        }
        assert!(workloads(Some("yes"), &[]).unwrap_err().to_string().contains("KUBEGC_ENVTEST_WORKLOADS"));
    }

    #[test]
    fn urls_of_clients_are_addresses() {
        let one = |text: &str| text.parse::<SocketAddr>().unwrap();
        for (urls, expected) in [
            ("http://127.0.0.1:2379", vec![one("127.0.0.1:2379")]),
            ("http://0.0.0.0:1/,http://127.0.0.1:2", vec![one("0.0.0.0:1"), one("127.0.0.1:2")]),
        ] {
            assert_eq!(client_addresses(urls).unwrap(), expected);
        }
        for urls in ["https://127.0.0.1:1", "127.0.0.1:1", "http://127.0.0.1", "http://127.0.0.1:x", ""] {
            assert!(client_addresses(urls).unwrap_err().is::<UsageError>(), "{urls}");
        }
    }
}
