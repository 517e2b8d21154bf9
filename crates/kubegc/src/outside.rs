//! What collectors do outside the API server: storage behind CSI drivers and in folders, machines at providers.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use clap::Args;
use futures::future::BoxFuture;
use gc_cloud::{Ec2, Ec2Options, Exec, Inventory, Machine, Provider, Webhook, WebhookOptions};
use gc_csi::{CsiClient, DriverEndpoint};
use gc_kube::{ApiClient, Outside, OutsideAnswer};
use gc_retention::engine::StorageFailure;
use gc_retention::nodes::NodePolicy;
use gc_retention::volumes::reclaim::Deleters;
use gc_retention::volumes::secrets::{self, SecretPlace, SecretSource};
use gc_types::{DeletionSecret, GoDuration, ObjectKey, OutsideCall, Storage};
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use serde_json::Value;

use crate::UsageError;

/// Headings in help texts.
const HEADING_STORAGE: &str = "Reclaim of volumes";
const HEADING_MACHINES: &str = "Nodes without machines";

/// Options of the collectors of volumes and nodes.
#[derive(Clone, Debug, Args)]
pub(crate) struct OutsideOptions {
    /// Delete the volumes of this CSI driver through its socket: DRIVER=unix:///PATH (repeatable)
    #[arg(long, help_heading = HEADING_STORAGE, value_name = "DRIVER=SOCKET", value_parser = DriverEndpoint::parse)]
    pub(crate) csi_endpoint: Vec<DriverEndpoint>,
    /// Timeout of each call to a CSI driver
    #[arg(long, help_heading = HEADING_STORAGE, value_name = "DURATION", default_value = "10s", value_parser = positive)]
    pub(crate) csi_timeout: Duration,
    /// Label of the node that the CSI drivers serve, if each node has its own; volumes whose node affinity does not
    /// match are left alone (repeatable)
    #[arg(long, help_heading = HEADING_STORAGE, value_name = "KEY=VALUE", requires = "csi_endpoint", value_parser = label)]
    pub(crate) csi_topology: Vec<(String, String)>,
    /// Delete the directories of released host-path volumes on this machine; for clusters of one machine
    #[arg(long, help_heading = HEADING_STORAGE)]
    pub(crate) enable_hostpath_provisioner: bool,
    /// Read the existing machines from this inventory file
    #[arg(long, help_heading = HEADING_MACHINES, value_name = "FILE", group = "provider")]
    pub(crate) cloud_inventory: Option<PathBuf>,
    /// Ask this webhook whether machines exist
    #[arg(long, help_heading = HEADING_MACHINES, value_name = "URL", group = "provider")]
    pub(crate) cloud_webhook: Option<String>,
    /// Certificate authorities for the webhook [default: those of this machine]
    #[arg(long, help_heading = HEADING_MACHINES, value_name = "FILE", requires = "cloud_webhook")]
    pub(crate) cloud_webhook_ca_file: Option<PathBuf>,
    /// File with the bearer token for the webhook
    #[arg(long, help_heading = HEADING_MACHINES, value_name = "FILE", requires = "cloud_webhook")]
    pub(crate) cloud_webhook_token_file: Option<PathBuf>,
    /// Run this command to find out whether machines exist
    #[arg(long, help_heading = HEADING_MACHINES, value_name = "PATH", group = "provider")]
    pub(crate) cloud_exec: Option<PathBuf>,
    /// Argument of the command of --cloud-exec (repeatable)
    #[arg(long, help_heading = HEADING_MACHINES, value_name = "ARGUMENT", requires = "cloud_exec", allow_hyphen_values = true)]
    pub(crate) cloud_exec_argument: Vec<String>,
    /// Ask AWS EC2 in this region whether machines exist; credentials come from the environment or the instance role
    #[arg(long, help_heading = HEADING_MACHINES, value_name = "REGION", group = "provider")]
    pub(crate) cloud_aws_region: Option<String>,
    /// Endpoint of EC2 [default: the region's public endpoint]
    #[arg(long, help_heading = HEADING_MACHINES, value_name = "URL", requires = "cloud_aws_region")]
    pub(crate) cloud_aws_endpoint: Option<String>,
    /// Timeout of each question to a machine provider
    #[arg(long, help_heading = HEADING_MACHINES, value_name = "DURATION", default_value = "10s", value_parser = positive)]
    pub(crate) cloud_timeout: Duration,
    /// Time between two questions about the machine of a node that is not ready
    #[arg(long, help_heading = HEADING_MACHINES, value_name = "DURATION", default_value = "5s", value_parser = positive)]
    pub(crate) node_monitor_period: Duration,
    /// Number of consecutive answers that a machine does not exist before its node is deleted
    #[arg(long, help_heading = HEADING_MACHINES, value_name = "COUNT", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) node_missing_confirmations: u32,
    /// Minimum time between the first and the last of those answers
    #[arg(long, help_heading = HEADING_MACHINES, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    pub(crate) node_missing_period: Duration,
    /// Delete no node while more than this fraction of all machines is missing
    #[arg(long, help_heading = HEADING_MACHINES, value_name = "PART", default_value_t = 0.2, value_parser = part)]
    pub(crate) node_breaker_fraction: f64,
    /// Delete no node; write an Event about each node that would be deleted
    #[arg(long, help_heading = HEADING_MACHINES)]
    pub(crate) node_deletion_dry_run: bool,
}

impl Default for OutsideOptions {
    fn default() -> Self {
        let policy = NodePolicy::default();
        Self {
            csi_endpoint: Vec::new(),
            csi_timeout: gc_csi::Options::default().call_timeout,
            csi_topology: Vec::new(),
            enable_hostpath_provisioner: false,
            cloud_inventory: None,
            cloud_webhook: None,
            cloud_webhook_ca_file: None,
            cloud_webhook_token_file: None,
            cloud_exec: None,
            cloud_exec_argument: Vec::new(),
            cloud_aws_region: None,
            cloud_aws_endpoint: None,
            cloud_timeout: gc_cloud::ANSWER_TIMEOUT,
            node_monitor_period: Duration::from_secs(5),
            node_missing_confirmations: policy.confirmations,
            node_missing_period: Duration::from_mins(1),
            node_breaker_fraction: policy.breaker_fraction,
            node_deletion_dry_run: false,
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    text.parse::<GoDuration>().map(GoDuration::to_std).map_err(|error| error.to_string())
}

pub(crate) fn positive(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("it must be more than 0".to_owned()),
        duration => Ok(duration),
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}

fn part(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(part) if (0.0..=1.0).contains(&part) => Ok(part),
        _ => Err("expected a number from 0 to 1".to_owned()),
    }
}

impl OutsideOptions {
    /// What storage can be destroyed.
    pub(crate) fn deleters(&self) -> Deleters {
        Deleters {
            drivers: self.csi_endpoint.iter().map(|endpoint| endpoint.driver().into()).collect(),
            host_path: self.enable_hostpath_provisioner,
            topology: self
                .csi_topology
                .iter()
                .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
                .collect(),
        }
    }

    /// When a node is deleted.
    pub(crate) fn node_policy(&self) -> NodePolicy {
        NodePolicy {
            period_milliseconds: gc_types::milliseconds(self.node_monitor_period),
            confirmations: self.node_missing_confirmations,
            missing_milliseconds: gc_types::milliseconds(self.node_missing_period),
            breaker_fraction: self.node_breaker_fraction,
            dry_run: self.node_deletion_dry_run,
        }
    }

    /// Whether a machine provider is configured.
    pub(crate) fn has_provider(&self) -> bool {
        self.cloud_inventory.is_some()
            || self.cloud_webhook.is_some()
            || self.cloud_exec.is_some()
            || self.cloud_aws_region.is_some()
    }

    /// Who knows machines.
    pub(crate) fn provider(&self) -> Result<Option<Arc<dyn Provider>>, UsageError> {
        let unusable =
            |flag: &str, error: &dyn std::fmt::Display| UsageError::new(format!("{flag}: {error}"));
        if let Some(path) = &self.cloud_inventory {
            let inventory =
                Inventory::open(path.clone()).map_err(|error| unusable("--cloud-inventory", &error))?;
            return Ok(Some(Arc::new(inventory)));
        }
        if let Some(url) = &self.cloud_webhook {
            let options = WebhookOptions {
                url: url.clone(),
                authorities: self.cloud_webhook_ca_file.clone(),
                token: self.cloud_webhook_token_file.clone(),
                timeout: self.cloud_timeout,
            };
            let webhook = Webhook::new(options).map_err(|error| unusable("--cloud-webhook", &error))?;
            return Ok(Some(Arc::new(webhook)));
        }
        if let Some(path) = &self.cloud_exec {
            let exec = Exec::new(path.clone(), self.cloud_exec_argument.clone(), self.cloud_timeout)
                .map_err(|error| unusable("--cloud-exec", &error))?;
            return Ok(Some(Arc::new(exec)));
        }
        if let Some(region) = &self.cloud_aws_region {
            let options = Ec2Options {
                endpoint: self.cloud_aws_endpoint.clone(),
                timeout: self.cloud_timeout,
                ..Ec2Options::new(region)
            };
            let ec2 = Ec2::new(options).map_err(|error| unusable("--cloud-aws-region", &error))?;
            return Ok(Some(Arc::new(ec2)));
        }
        Ok(None)
    }
}

/// Storage of the drivers and folders that the options name.
pub(crate) struct StorageOutside {
    client: ApiClient,
    drivers: Arc<BTreeMap<String, CsiClient>>,
    host_path: bool,
}

impl StorageOutside {
    /// Secrets and storage classes are read by `client`. Must be made within a tokio runtime.
    pub(crate) fn new(client: ApiClient, options: &OutsideOptions) -> Self {
        let calls = gc_csi::Options { call_timeout: options.csi_timeout };
        let client_of = |endpoint: &DriverEndpoint| {
            (endpoint.driver().to_owned(), CsiClient::new(endpoint.clone(), calls))
        };
        let drivers = options.csi_endpoint.iter().map(client_of).collect();
        Self { client, drivers: Arc::new(drivers), host_path: options.enable_hostpath_provisioner }
    }
}

impl Outside for StorageOutside {
    fn call(&self, key: ObjectKey, call: OutsideCall) -> BoxFuture<'static, OutsideAnswer> {
        let (client, drivers, host_path) = (self.client.clone(), Arc::clone(&self.drivers), self.host_path);
        Box::pin(async move {
            let OutsideCall::DeleteStorage(storage) = call else {
                return OutsideAnswer::Machine(Err("machines are not known here".to_owned()));
            };
            match *storage {
                Storage::Csi { driver, handle, secret } => {
                    let Some(driver) = drivers.get(&*driver) else {
                        return refused(format!("no endpoint of CSI driver {driver} is known"));
                    };
                    let (secrets, remark) = secrets(&client, &key.name, &secret).await;
                    let result = driver.delete_volume(&handle, secrets).await;
                    let failed = |error: gc_csi::CsiError| StorageFailure {
                        in_use: error.is_in_use(),
                        message: error.to_string(),
                    };
                    OutsideAnswer::Storage(remark, result.map_err(failed))
                }
                Storage::HostPath { path } if host_path => {
                    let removed = tokio::task::spawn_blocking(move || remove_folder(Path::new(&*path))).await;
                    match removed {
                        Ok(Ok(())) => OutsideAnswer::Storage(None, Ok(())),
                        Ok(Err(message)) => refused(message),
                        Err(error) => refused(error.to_string()),
                    }
                }
                Storage::HostPath { .. } => refused("host paths are not deleted here".to_owned()),
            }
        })
    }
}

fn refused(message: String) -> OutsideAnswer {
    OutsideAnswer::Storage(None, Err(StorageFailure { in_use: false, message }))
}

/// Why something could not be read from the API server.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error("it does not exist")]
    Absent,
    #[error("the server answered {0}")]
    Refused(StatusCode),
    #[error("{0}")]
    Unreadable(String),
}

async fn read(client: &ApiClient, path: String) -> Result<Value, ReadError> {
    let unreadable = |error: &dyn std::fmt::Display| ReadError::Unreadable(error.to_string());
    let request = Request::builder()
        .method(Method::GET)
        .uri(path)
        .header(http::header::ACCEPT, "application/json")
        .body(Full::default())
        .map_err(|error| unreadable(&error))?;
    let answer = client.call(request).await.map_err(|error| unreadable(&error))?;
    match answer.head.status {
        StatusCode::OK => serde_json::from_slice(&answer.body).map_err(|error| unreadable(&error)),
        StatusCode::NOT_FOUND => Err(ReadError::Absent),
        status => Err(ReadError::Refused(status)),
    }
}

/// The secrets of a deletion, and what is to be said about them. Where they are not to be had, the driver is asked
/// without: it knows best whether it needs them (spec 9.7).
async fn secrets(
    client: &ApiClient,
    volume: &str,
    secret: &DeletionSecret,
) -> (HashMap<String, String>, Option<String>) {
    let without =
        |why: String| (HashMap::new(), Some(format!("{why}; the storage is deleted without secrets")));
    let place = match secrets::source(secret) {
        SecretSource::None => return (HashMap::new(), None),
        SecretSource::Secret(place) => place,
        SecretSource::Class(class) => {
            let path = format!("/apis/storage.k8s.io/v1/storageclasses/{class}");
            let parameters = match read(client, path).await {
                Ok(found) => serde_json::from_value(found["parameters"].clone()).unwrap_or_default(),
                // Nothing says that there ever were any.
                Err(ReadError::Absent) => return (HashMap::new(), None),
                Err(error) => return without(format!("storage class {class}: {error}")),
            };
            match secrets::of_class(&parameters, volume, secret) {
                Ok(Some(place)) => place,
                Ok(None) => return (HashMap::new(), None),
                Err(error) => return without(format!("storage class {class}: {error}")),
            }
        }
    };
    match read_secret(client, &place).await {
        Ok(secrets) => (secrets, None),
        Err(error) => without(format!("secret {}/{}: {error}", place.namespace, place.name)),
    }
}

async fn read_secret(client: &ApiClient, place: &SecretPlace) -> Result<HashMap<String, String>, ReadError> {
    let SecretPlace { namespace, name } = place;
    let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    if !plain(namespace) || !plain(name) {
        return Err(ReadError::Unreadable("that is no name".to_owned()));
    }
    let found = read(client, format!("/api/v1/namespaces/{namespace}/secrets/{name}")).await?;
    let mut secrets = HashMap::new();
    for (key, value) in found["data"].as_object().into_iter().flatten() {
        let bytes = base64::engine::general_purpose::STANDARD.decode(value.as_str().unwrap_or_default());
        let text = bytes.ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let text = text.ok_or_else(|| ReadError::Unreadable(format!("{key} is no text")))?;
        secrets.insert(key.clone(), text);
    }
    Ok(secrets)
}

/// What upstream's deleter of host paths takes: something below a folder `/tmp`.
fn is_below_tmp(path: &str) -> bool {
    path.match_indices("/tmp/").any(|(at, found)| path.len() > at + found.len())
}

/// Removes a folder of a host-path volume with all that is in it; one that is not there is removed.
fn remove_folder(path: &Path) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt as _;
    let shown = path.display();
    let unsupported = || format!("host_path deleter only supports /tmp/.+ but received provided {shown}");
    let climbs = path.components().any(|part| part == std::path::Component::ParentDir);
    if !path.is_absolute() || climbs || !path.to_str().is_some_and(is_below_tmp) {
        return Err(unsupported());
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(unsupported()) };
    // Links on the way must not lead elsewhere.
    let parent = match parent.canonicalize() {
        Ok(parent) => parent,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(format!("{shown}: {error}")),
    };
    let folder = parent.join(name);
    if !folder.to_str().is_some_and(is_below_tmp) {
        return Err(format!("{shown} leads to {}, which is not below /tmp", folder.display()));
    }
    let failed = |error: std::io::Error| format!("{shown}: {error}");
    let metadata = match std::fs::symlink_metadata(&folder) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if !metadata.is_dir() {
        // Also a link, which is removed itself, and not its target.
        return std::fs::remove_file(&folder).map_err(failed);
    }
    if std::fs::metadata(&parent).map_err(failed)?.dev() != metadata.dev() {
        return Err(format!("{shown} is a mount point; it is not deleted"));
    }
    std::fs::remove_dir_all(&folder).map_err(failed)
}

/// Machines of a provider.
pub(crate) struct MachinesOutside(pub(crate) Arc<dyn Provider>);

impl Outside for MachinesOutside {
    fn call(&self, key: ObjectKey, call: OutsideCall) -> BoxFuture<'static, OutsideAnswer> {
        let provider = Arc::clone(&self.0);
        Box::pin(async move {
            let OutsideCall::LookUpMachine { provider_id } = call else {
                return refused("storage is not known here".to_owned());
            };
            let machine = Machine { node: key.name.to_string(), provider_id: provider_id.to_string() };
            OutsideAnswer::Machine(provider.look_up(machine).await.map_err(|error| error.to_string()))
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn only_folders_below_tmp_are_removed() {
        // Not named /tmp itself, so that the folder is the test's own wherever temporary files are kept.
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let tmp = root.join("tmp");
        let make = |path: &Path| {
            std::fs::create_dir_all(path.join("sub")).unwrap();
            std::fs::write(path.join("sub/file"), "x").unwrap();
        };
        make(&tmp.join("a"));
        make(&root.join("outside/b"));
        std::os::unix::fs::symlink(root.join("outside"), tmp.join("link")).unwrap();
        remove_folder(&tmp.join("a")).unwrap();
        assert!(!tmp.join("a").exists() && tmp.exists());
        remove_folder(&tmp.join("a")).unwrap();
        remove_folder(&tmp.join("never/was")).unwrap();
        // The link itself is removed.
        remove_folder(&tmp.join("link")).unwrap();
        assert!(root.join("outside/b/sub/file").exists() && !tmp.join("link").exists());
        for path in ["/etc", "/tmp", "/tmp/", "tmp/a", "/tmp/../etc", "/tmp/a/../../etc", "/temp/x", "/"] {
            let why = remove_folder(Path::new(path)).unwrap_err();
            assert!(why.starts_with("host_path deleter only supports /tmp/.+"), "{path}: {why}");
        }
    }

    #[test]
    fn links_on_the_way_lead_nowhere_else() {
        // Where temporary files are themselves below /tmp, everything is; then there is nothing to see here.
        let root =
            tempfile::Builder::new().prefix("kubegc-links").tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let root = root.path().canonicalize().unwrap();
        if is_below_tmp(root.to_str().unwrap()) {
            return;
        }
        std::fs::create_dir_all(root.join("tmp")).unwrap();
        std::fs::create_dir_all(root.join("outside/b")).unwrap();
        std::os::unix::fs::symlink(root.join("outside"), root.join("tmp/link")).unwrap();
        let why = remove_folder(&root.join("tmp/link/b")).unwrap_err();
        assert!(why.ends_with("which is not below /tmp"), "{why}");
        assert!(root.join("outside/b").exists());
    }
}
