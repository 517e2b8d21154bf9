//! The control plane that test frameworks start: `kube-apiserver` and `etcd`, which this binary is where it is called so.
//!
//! controller-runtime's envtest, fabric8's kube-api-test and their like look for the two programs in a folder, pass the
//! flags of the real ones, and wait for `/healthz` and `/health`. Objects are kept in memory; the etcd answers and keeps
//! nothing. No collector runs unless `KUBEGC_ENVTEST_CONTROLLERS` names some.

mod archive;
mod assets;
mod flags;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use gc_apiserver::{GivenKeys, RunningServer};
use gc_registry::admission::Plugins;
use prometheus_client::registry::Registry;

use crate::apiserver::{self, ServerOptions};
use crate::clock::CollectorClock;
use crate::collectors::{ControllerOptions, Surroundings};
use crate::logging::{self, LogOptions};
use crate::operations::{self, PageAnswer, Pages, Protection, Shown};
use crate::up::Up;
use crate::workloads::WorkloadOptions;
use crate::{UsageError, exit};
use flags::{Flag, Given};

pub(crate) use assets::{EnvtestCommand, run};

/// Which collectors run, in the words of `--controllers`; `gc` is the collector of owner references.
const CONTROLLERS: &str = "KUBEGC_ENVTEST_CONTROLLERS";
/// Upstream's default of `--secure-port`.
const DEFAULT_PORT: u16 = 6443;
/// Upstream's default of `--service-cluster-ip-range`.
const SERVICE_RANGE: &str = "10.0.0.0/24";
/// Where etcd listens by default.
const DEFAULT_ETCD_URL: &str = "http://127.0.0.1:2379";
/// The version of Kubernetes that `--version` reports, and that archives are named by.
const KUBERNETES_VERSION: &str = "1.36.2";

const fn effective(name: &'static str) -> Flag {
    Flag { name, is_switch: false, has_effect: true }
}

const fn ignored(name: &'static str) -> Flag {
    Flag { name, is_switch: false, has_effect: false }
}

const fn switch(name: &'static str) -> Flag {
    Flag { name, is_switch: true, has_effect: false }
}

/// Flags of kube-apiserver that test frameworks and their users pass.
const APISERVER_FLAGS: &[Flag] = &[
    ignored("admission-control-config-file"),
    ignored("advertise-address"),
    Flag { has_effect: true, ..switch("allow-privileged") },
    switch("anonymous-auth"),
    ignored("api-audiences"),
    ignored("audit-log-format"),
    ignored("audit-log-maxage"),
    ignored("audit-log-maxbackup"),
    ignored("audit-log-maxsize"),
    ignored("audit-log-path"),
    ignored("audit-policy-file"),
    ignored("authentication-config"),
    ignored("authorization-config"),
    ignored("authorization-mode"),
    effective("bind-address"),
    effective("cert-dir"),
    effective("client-ca-file"),
    ignored("default-watch-cache-size"),
    effective("disable-admission-plugins"),
    effective("enable-admission-plugins"),
    switch("enable-aggregator-routing"),
    switch("enable-bootstrap-token-auth"),
    switch("enable-garbage-collector"),
    switch("enable-priority-and-fairness"),
    ignored("encryption-provider-config"),
    ignored("etcd-cafile"),
    ignored("etcd-certfile"),
    ignored("etcd-keyfile"),
    ignored("etcd-prefix"),
    ignored("etcd-servers"),
    ignored("event-ttl"),
    ignored("external-hostname"),
    ignored("feature-gates"),
    ignored("goaway-chance"),
    ignored("kubelet-preferred-address-types"),
    ignored("logging-format"),
    ignored("max-mutating-requests-inflight"),
    ignored("max-requests-inflight"),
    ignored("min-request-timeout"),
    switch("profiling"),
    ignored("proxy-client-cert-file"),
    ignored("proxy-client-key-file"),
    ignored("request-timeout"),
    ignored("requestheader-allowed-names"),
    ignored("requestheader-client-ca-file"),
    ignored("requestheader-extra-headers-prefix"),
    ignored("requestheader-group-headers"),
    ignored("requestheader-username-headers"),
    ignored("runtime-config"),
    effective("secure-port"),
    ignored("service-account-issuer"),
    ignored("service-account-jwks-uri"),
    ignored("service-account-key-file"),
    switch("service-account-lookup"),
    ignored("service-account-max-token-expiration"),
    effective("service-account-signing-key-file"),
    effective("service-cluster-ip-range"),
    effective("service-node-port-range"),
    ignored("shutdown-delay-duration"),
    ignored("storage-backend"),
    ignored("storage-media-type"),
    effective("tls-cert-file"),
    effective("tls-private-key-file"),
    effective("token-auth-file"),
    ignored("v"),
    ignored("vmodule"),
    switch("watch-cache"),
    ignored("watch-cache-sizes"),
];

/// Flags of etcd, of the same kind.
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

/// Runs the program that this process was called as, if that is one of the two.
pub(crate) fn called_as(name: &str) -> Option<ExitCode> {
    let arguments = || std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned());
    match name {
        "kube-apiserver" => Some(exit(program(name, APISERVER_FLAGS, arguments(), apiserver))),
        "etcd" => Some(exit(program(name, ETCD_FLAGS, arguments(), etcd))),
        _ => None,
    }
}

/// Reads the flags, and runs what they are for.
fn program(
    name: &str,
    known: &[Flag],
    arguments: impl Iterator<Item = String>,
    run: impl FnOnce(&Given) -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    // The real programs end with 1 where a flag is unknown, and test frameworks show what is said.
    let given = flags::parse(known, arguments)?;
    if given.help || given.version {
        let about = format!("kubegc, called as {name}: for test frameworks.");
        print!(
            "{}",
            if given.help {
                flags::help(name, &about, known)
            } else {
                format!("Kubernetes v{KUBERNETES_VERSION}\n")
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

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The keys that were given, in files.
fn given_keys(given: &Given) -> anyhow::Result<GivenKeys> {
    let file = |name: &str| given.last(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let in_folder = |name: &str| Some(file("cert-dir")?.join(name)).filter(|path| path.exists());
    let certificate = file("tls-cert-file").or_else(|| in_folder("apiserver.crt"));
    let key = file("tls-private-key-file").or_else(|| in_folder("apiserver.key"));
    let serving = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((read(&certificate)?, read(&key)?)),
        (None, None) => None,
        _ => {
            return Err(UsageError::new(
                "a certificate and a key belong together: --tls-cert-file, --tls-private-key-file",
            )
            .into());
        }
    };
    let client_authorities = file("client-ca-file").map(|path| read(&path)).transpose()?;
    let token_key = file("service-account-signing-key-file").map(|path| read(&path)).transpose()?;
    Ok(GivenKeys { serving, client_authorities, token_key })
}

/// The collectors that the environment asks for; `None` for none.
fn controllers() -> Option<Vec<String>> {
    let words = std::env::var(CONTROLLERS).ok()?;
    let words = words.split(',').map(str::trim).filter(|word| !word.is_empty());
    let long = |word: &str| if word == "gc" { "garbagecollector".to_owned() } else { word.to_owned() };
    Some(words.map(long).collect::<Vec<_>>()).filter(|words| !words.is_empty())
}

/// The plugins of a list that this server has; of the others it says that they are not there.
fn plugins(given: &Given, flag: &str) -> Vec<String> {
    let (ours, others): (Vec<&str>, Vec<&str>) =
        given.words(flag).partition(|name| Plugins::names().contains(name));
    if !others.is_empty() {
        eprintln!("kube-apiserver (kubegc): --{flag}: not there: {}", others.join(", "));
    }
    ours.into_iter().map(str::to_owned).collect()
}

/// The range of addresses of Services: the first of two, as there is one family of addresses.
fn service_range(given: &Given) -> &str {
    let given = given.last("service-cluster-ip-range").unwrap_or(SERVICE_RANGE);
    given.split(',').next().filter(|range| !range.is_empty()).unwrap_or(SERVICE_RANGE)
}

enum Running {
    Alone(RunningServer),
    Collecting(Box<Up>),
}

fn apiserver(given: &Given) -> anyhow::Result<()> {
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
    let options = ServerOptions {
        enable_admission_plugins: plugins(given, "enable-admission-plugins"),
        disable_admission_plugins: plugins(given, "disable-admission-plugins"),
        refuse_privileged: given.last("allow-privileged").is_none_or(|value| value != "true"),
        token_auth_file: given.last("token-auth-file").map(PathBuf::from),
        service_cluster_ip_range: service_range(given).to_owned(),
        service_node_port_range: given
            .last("service-node-port-range")
            .unwrap_or(apiserver::NODE_PORT_RANGE)
            .to_owned(),
        keys: given_keys(given)?,
        ..ServerOptions::ephemeral(SocketAddr::new(address, port))
    };
    apiserver::raise_file_limit();
    crate::tasks::block_on(async {
        let mut ended = apiserver::stop_signals()?;
        let running = match controllers() {
            None => Running::Alone(apiserver::serve(&options, None).await?),
            Some(controllers) => {
                let settings = ControllerOptions { controllers, ..ControllerOptions::default() };
                let clock = CollectorClock::default();
                let up = Up::start(
                    &options,
                    &settings,
                    &WorkloadOptions::off(),
                    None,
                    &clock,
                    Surroundings::default(),
                )
                .await?;
                Running::Collecting(Box::new(up))
            }
        };
        ended.recv().await;
        match running {
            Running::Alone(server) => server.shutdown().await,
            Running::Collecting(up) => up.shutdown().await,
        }
        anyhow::Ok(())
    })
}

/// What etcd says of itself.
struct EtcdHealth;

impl Pages for EtcdHealth {
    fn refresh(&self) {}

    fn unhealthy(&self) -> Option<String> {
        None
    }

    fn page(&self, path: &str, _query: &[(String, String)]) -> Option<PageAnswer> {
        let body = match path {
            "/health" => r#"{"health":"true","reason":""}"#,
            "/version" => r#"{"etcdserver":"3.6.0","etcdcluster":"3.6.0"}"#,
            _ => return None,
        };
        Some(PageAnswer::Document("application/json", body.to_owned()))
    }
}

/// The addresses of `http://host:port,…`.
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

fn etcd(given: &Given) -> anyhow::Result<()> {
    let addresses = client_addresses(given.last("listen-client-urls").unwrap_or(DEFAULT_ETCD_URL))?;
    crate::tasks::block_on(async {
        let mut ended = apiserver::stop_signals()?;
        for address in addresses {
            let ready = Arc::new(AtomicBool::new(true));
            let pages: Arc<dyn Pages> = Arc::new(EtcdHealth);
            operations::serve(
                address,
                Shown { metrics: Arc::new(Registry::default()), ready, pages: Some(pages) },
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
