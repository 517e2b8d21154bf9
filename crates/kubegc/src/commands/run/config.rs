//! The configuration file: the fields of a `KubeControllerManagerConfiguration` that concern collection, and a section `kubegc` for
//! settings that upstream lacks.
//!
//! Parsing is strict: an unknown field, a wrong type or an impossible value is an error with its line and column. The parser knows
//! the sections of other controllers by name, and ignores them. Upstream writes field names with a capital letter at the upper
//! levels (`GarbageCollectorController`); the usual form (`garbageCollectorController`) is accepted as well.

use std::collections::BTreeSet;
use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use gc_ownership::Shard;
use gc_process::UsageError;
use gc_types::GoDuration;
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

const API_VERSION: &str = "kubecontrollermanager.config.k8s.io/v1alpha1";
const KIND: &str = "KubeControllerManagerConfiguration";
/// Maximum size of a configuration file, in bytes.
const LARGEST_FILE: u64 = 1 << 20;
/// The top-level fields as upstream names them, in lower case.
const SECTIONS: [&str; 32] = [
    "apiversion",
    "kind",
    "generic",
    "garbagecollectorcontroller",
    "podgccontroller",
    "kubegc",
    // Sections of other controllers:
    "attachdetachcontroller",
    "cronjobcontroller",
    "csrsigningcontroller",
    "daemonsetcontroller",
    "deploymentcontroller",
    "deprecatedcontroller",
    "devicetaintevictioncontroller",
    "endpointcontroller",
    "endpointslicecontroller",
    "endpointslicemirroringcontroller",
    "ephemeralvolumecontroller",
    "expandcontroller",
    "hpacontroller",
    "jobcontroller",
    "kubecloudshared",
    "legacysatokencleaner",
    "namespacecontroller",
    "nodeipamcontroller",
    "nodelifecyclecontroller",
    "persistentvolumebindercontroller",
    "replicasetcontroller",
    "replicationcontroller",
    "resourcequotacontroller",
    "sacontroller",
    "ttlafterfinishedcontroller",
    "validatingadmissionpolicystatuscontroller",
];
/// Further sections of other controllers that only some versions have.
const MORE_SECTIONS: [&str; 4] = [
    "servicecontroller",
    "statefulsetcontroller",
    "resourceclaimcontroller",
    "storageversionmigratorcontroller",
];

/// A duration as Go writes it, such as `2m0s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Duration(pub(super) std::time::Duration);

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let parse = |text: &str| match text.parse::<GoDuration>() {
            Ok(duration) if duration >= GoDuration::ZERO => Ok(Self(duration.to_std())),
            Ok(_) => Err(format!("the duration {text} is negative")),
            Err(error) => Err(error.to_string()),
        };
        deserializer.deserialize_str(Text { expected: "a duration such as 2m0s", parse })
    }
}

/// Parses a field from its text. Errors carry their position in the file.
struct Text<F> {
    expected: &'static str,
    parse: F,
}

impl<T, F: Fn(&str) -> Result<T, String>> Visitor<'_> for Text<F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).map_err(E::custom)
    }
}

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct File {
    pub(super) generic: Generic,
    pub(super) garbage_collector: GarbageCollector,
    pub(super) pod_gc: PodGc,
    pub(super) kubegc: Ours,
    /// Sections of other controllers, as written.
    pub(super) others: Vec<String>,
}

/// Upstream's section with the settings that all its controllers share.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Generic {
    #[serde(alias = "ClientConnection")]
    pub(super) client_connection: ClientConnection,
    #[serde(alias = "LeaderElection")]
    pub(super) leader_election: LeaderElection,
    #[serde(alias = "Controllers")]
    pub(super) controllers: Option<Vec<String>>,
    // Accepted, but without effect here.
    #[serde(alias = "Port", deserialize_with = "ignored")]
    port: (),
    #[serde(alias = "Address", deserialize_with = "ignored")]
    address: (),
    #[serde(alias = "MinResyncPeriod", deserialize_with = "ignored")]
    min_resync_period: (),
    #[serde(alias = "ControllerStartInterval", deserialize_with = "ignored")]
    controller_start_interval: (),
    #[serde(alias = "Debugging", deserialize_with = "ignored")]
    debugging: (),
    #[serde(alias = "LeaderMigrationEnabled", deserialize_with = "ignored")]
    leader_migration_enabled: (),
    #[serde(alias = "LeaderMigration", deserialize_with = "ignored")]
    leader_migration: (),
}

fn ignored<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    IgnoredAny::deserialize(deserializer).map(drop)
}

/// Settings of the connection to the server.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ClientConnection {
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) qps: Option<f64>,
    pub(super) burst: Option<u32>,
    #[serde(deserialize_with = "ignored")]
    content_type: (),
    #[serde(deserialize_with = "ignored")]
    accept_content_types: (),
}

/// Settings of leader election.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct LeaderElection {
    pub(super) leader_elect: Option<bool>,
    pub(super) lease_duration: Option<Duration>,
    pub(super) renew_deadline: Option<Duration>,
    pub(super) retry_period: Option<Duration>,
    pub(super) resource_name: Option<String>,
    pub(super) resource_namespace: Option<String>,
    #[serde(deserialize_with = "leases_only")]
    resource_lock: (),
}

fn leases_only<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    let parse = |lock: &str| match lock {
        "" | "leases" => Ok(()),
        _ => Err(format!("{lock:?}: only \"leases\" is supported")),
    };
    deserializer.deserialize_str(Text { expected: "\"leases\"", parse })
}

/// Upstream's section on this collector.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct GarbageCollector {
    #[serde(alias = "EnableGarbageCollector")]
    pub(super) enable_garbage_collector: Option<bool>,
    #[serde(rename = "concurrentGCSyncs", alias = "ConcurrentGCSyncs", alias = "concurrentGcSyncs")]
    pub(super) concurrent_syncs: Option<u16>,
    #[serde(rename = "gcIgnoredResources", alias = "GCIgnoredResources")]
    pub(super) ignored_resources: Option<Vec<GroupResource>>,
}

/// A resource in any version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupResource {
    #[serde(default, alias = "Group")]
    pub(super) group: String,
    #[serde(alias = "Resource")]
    pub(super) resource: String,
}

/// Upstream's section on pods.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct PodGc {
    #[serde(rename = "terminatedPodGCThreshold", alias = "TerminatedPodGCThreshold")]
    pub(super) terminated_pod_threshold: Option<i32>,
}

/// Settings of this program that upstream lacks.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Ours {
    /// Address for metrics and health.
    pub(super) bind_address: Option<std::net::SocketAddr>,
    pub(super) observe_for: Option<Duration>,
    #[serde(deserialize_with = "shard")]
    pub(super) shard: Option<Shard>,
    /// Resources (`resource.group`) whose objects are never deleted.
    pub(super) kept_resources: Option<Vec<String>>,
    pub(super) ownerless_node_leases: Option<bool>,
    pub(super) claim_unused_condition: Option<bool>,
    pub(super) deletion_events: Option<bool>,
    pub(super) breaker: Breaker,
    pub(super) journal: Journal,
    pub(super) ui: Ui,
}

fn shard<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Shard>, D::Error> {
    let parse = |text: &str| text.parse::<Shard>().map(Some).map_err(|error| error.to_string());
    deserializer.deserialize_str(Text { expected: "a shard such as 0/4", parse })
}

/// Settings of the page.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Ui {
    pub(super) bind_address: Option<std::net::SocketAddr>,
    pub(super) orders: Option<bool>,
}

/// Limits of the circuit breaker.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Breaker {
    pub(super) window: Option<Duration>,
    pub(super) max_deletions: Option<u64>,
    pub(super) max_share: Option<f64>,
    pub(super) share_floor: Option<u64>,
}

/// Settings of the journal.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Journal {
    pub(super) file: Option<PathBuf>,
    #[serde(rename = "maxSizeMiB")]
    pub(super) max_size: Option<u32>,
    pub(super) max_files: Option<u32>,
}

/// Name of a top-level field.
struct Section(String);

impl<'de> Deserialize<'de> for Section {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let parse = |name: &str| {
            let lower = name.to_lowercase();
            let is_known = SECTIONS.contains(&&*lower) || MORE_SECTIONS.contains(&&*lower);
            if is_known { Ok(Self(name.to_owned())) } else { Err(format!("unknown field {name:?}")) }
        };
        deserializer.deserialize_str(Text { expected: "the name of a field", parse })
    }
}

impl<'de> Deserialize<'de> for File {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FileVisitor)
    }
}

struct FileVisitor;

impl<'de> Visitor<'de> for FileVisitor {
    type Value = File;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {KIND}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<File, A::Error> {
        let (mut file, mut header) = (File::default(), [false; 2]);
        let mut seen = BTreeSet::new();
        while let Some(Section(name)) = map.next_key()? {
            if !seen.insert(name.to_lowercase()) {
                return Err(A::Error::custom(format!("{name} is there twice")));
            }
            match &*name.to_lowercase() {
                "apiversion" => header[0] = expected(&name, API_VERSION, &map.next_value::<String>()?)?,
                "kind" => header[1] = expected(&name, KIND, &map.next_value::<String>()?)?,
                "generic" => file.generic = section(&mut map, &name)?,
                "garbagecollectorcontroller" => file.garbage_collector = section(&mut map, &name)?,
                "podgccontroller" => file.pod_gc = section(&mut map, &name)?,
                "kubegc" => file.kubegc = section(&mut map, &name)?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    file.others.push(name);
                }
            }
        }
        match header {
            [true, true] => Ok(file),
            [true, false] => Err(A::Error::custom(format!("kind is missing, expected {KIND:?}"))),
            _ => Err(A::Error::custom(format!("apiVersion is missing, expected {API_VERSION:?}"))),
        }
    }
}

/// Parses a section. Errors in it begin with its name.
fn section<'de, A: MapAccess<'de>, T: Deserialize<'de>>(map: &mut A, name: &str) -> Result<T, A::Error> {
    map.next_value().map_err(|error| A::Error::custom(format!("{name}: {error}")))
}

fn expected<E: serde::de::Error>(field: &str, expected: &str, found: &str) -> Result<bool, E> {
    if found == expected {
        return Ok(true);
    }
    Err(E::custom(format!("{field}: expected {expected:?}, found {found:?}")))
}

/// Reads a file. Returns a usage error with the position of anything that is wrong.
pub(super) fn read(path: &Path) -> Result<File, UsageError> {
    let shown = path.display();
    let mut text = String::new();
    let opened =
        std::fs::File::open(path).and_then(|file| file.take(LARGEST_FILE + 1).read_to_string(&mut text));
    match opened {
        Err(error) => return Err(UsageError::new(format!("--config {shown}: {error}"))),
        Ok(_) if text.len() as u64 > LARGEST_FILE => {
            return Err(UsageError::new(format!("--config {shown}: larger than {} MiB", LARGEST_FILE >> 20)));
        }
        Ok(_) => {}
    }
    parse(&text).map_err(|error| UsageError::new(format!("--config {shown}:{error}")))
}

/// Parses the text of a file. Errors begin with `LINE:COLUMN: `.
pub(super) fn parse(text: &str) -> Result<File, String> {
    gc_process::yaml::from_str(text).map_err(|error| {
        let said = error.to_string();
        let (said, place) = said.rsplit_once(" at line ").unwrap_or((&said, "1, column 1"));
        let (line, column) = place.split_once(", column ").unwrap_or(("1", "1"));
        format!("{line}:{column}: {said}")
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test
    use super::*;

    const HEADER: &str = "apiVersion: kubecontrollermanager.config.k8s.io/v1alpha1\nkind: KubeControllerManagerConfiguration\n";

    #[test]
    fn upstreams_file_is_read_in_both_spellings() {
        let upstream = "Generic:\n  ClientConnection: {qps: 50, burst: 100, contentType: x, kubeconfig: /k}\n  \
             Port: 10257\n  MinResyncPeriod: 12h0m0s\n  Controllers: ['*', '-job-controller']\n  \
             LeaderElection: {leaderElect: true, resourceLock: leases, leaseDuration: 15s}\n\
             GarbageCollectorController:\n  EnableGarbageCollector: true\n  ConcurrentGCSyncs: 20\n  \
             GCIgnoredResources: [{Group: '', Resource: events}]\n\
             PodGCController: {TerminatedPodGCThreshold: 7}\n\
             DeploymentController: {ConcurrentDeploymentSyncs: 5}\n";
        let ours = "generic:\n  clientConnection: {qps: 50, burst: 100, kubeconfig: /k}\n  \
             controllers: ['*', '-job-controller']\n  \
             leaderElection: {leaderElect: true, leaseDuration: 15s}\n\
             garbageCollectorController:\n  enableGarbageCollector: true\n  concurrentGCSyncs: 20\n  \
             gcIgnoredResources: [{group: '', resource: events}]\n\
             podGCController: {terminatedPodGCThreshold: 7}\n";
        let expected = File {
            generic: Generic {
                client_connection: ClientConnection {
                    kubeconfig: Some("/k".into()),
                    qps: Some(50.0),
                    burst: Some(100),
                    ..ClientConnection::default()
                },
                leader_election: LeaderElection {
                    leader_elect: Some(true),
                    lease_duration: Some(Duration(std::time::Duration::from_secs(15))),
                    ..LeaderElection::default()
                },
                controllers: Some(vec!["*".into(), "-job-controller".into()]),
                ..Generic::default()
            },
            garbage_collector: GarbageCollector {
                enable_garbage_collector: Some(true),
                concurrent_syncs: Some(20),
                ignored_resources: Some(vec![GroupResource {
                    group: String::new(),
                    resource: "events".into(),
                }]),
            },
            pod_gc: PodGc { terminated_pod_threshold: Some(7) },
            ..File::default()
        };
        assert_eq!(parse(&format!("{HEADER}{ours}")).unwrap(), expected);
        let others = File { others: vec!["DeploymentController".into()], ..expected };
        assert_eq!(parse(&format!("{HEADER}{upstream}")).unwrap(), others);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (text, expected) in [
            ("kind: KubeControllerManagerConfiguration\n", "apiVersion is missing, expected"),
            ("apiVersion: v1\nkind: Pod\n", "apiVersion: expected \"kubecontroller"),
            ("- a\n", "invalid type: sequence, expected a KubeControllerManagerConfiguration"),
            ("{", ": "),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{error} for {text:?}");
            let place: Vec<&str> = error.split(':').take(2).collect();
            assert!(place.iter().all(|number| number.parse::<u32>().is_ok()), "{error}");
        }
        for (lines, expected) in [
            ("kubegc: {}\nKubegc: {observeFor: 1h}\n", "1:1: Kubegc is there twice"),
            ("garbageColectorController: {}\n", "3:1: unknown field \"garbageColectorController\""),
            (
                "garbageCollectorController:\n  enableGarbageColector: true\n",
                "4:3: garbageCollectorController: unknown field `enableGarbageColector`",
            ),
            ("garbageCollectorController:\n  concurrentGCSyncs: many\n", "4:22: "),
            ("garbageCollectorController:\n  concurrentGCSyncs: -1\n", "4:22: "),
            ("kubegc:\n  breaker:\n    window: soon\n", "5:13: "),
            ("kubegc:\n  breaker:\n    window: -1s\n", "5:13: "),
            ("kubegc:\n  bindAddress: here\n", "4:16: "),
            ("generic:\n  leaderElection:\n    resourceLock: endpoints\n", "5:19: "),
            ("kubegc:\n  journal: {maxSizeMiB: 1, file: j, colour: red}\n", "4:"),
        ] {
            let error = parse(&format!("{HEADER}{lines}")).unwrap_err();
            assert!(error.starts_with(expected), "{error:?} where {expected:?} was expected");
        }
    }
}
