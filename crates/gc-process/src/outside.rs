//! Options for the collectors' work outside the API server: storage behind CSI drivers and in directories, machines at providers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use gc_collectors::nodes::NodePolicy;
use gc_collectors::volumes::reclaim::Deleters;
use gc_external::StorageOutside;
use gc_external::cloud::{self, Ec2, Ec2Options, Exec, Inventory, Provider, Webhook, WebhookOptions};
use gc_external::csi::{self, DriverEndpoint};
use gc_kube::ApiClient;
use gc_types::GoDuration;

use crate::UsageError;

/// Headings in help texts.
const HEADING_STORAGE: &str = "Reclaim of volumes";
const HEADING_MACHINES: &str = "Nodes without machines";

/// Options of the collectors of volumes and nodes.
#[derive(Clone, Debug, Args)]
pub struct OutsideOptions {
    /// Delete the volumes of this CSI driver through its socket: DRIVER=unix:///PATH (repeatable)
    #[arg(long, help_heading = HEADING_STORAGE, value_name = "DRIVER=SOCKET", value_parser = DriverEndpoint::parse)]
    pub csi_endpoint: Vec<DriverEndpoint>,
    /// Timeout of each call to a CSI driver
    #[arg(long, help_heading = HEADING_STORAGE, value_name = "DURATION", default_value = "10s", value_parser = positive)]
    pub csi_timeout: Duration,
    /// Label of the node that the CSI drivers serve, if each node has its own; volumes whose node affinity does not
    /// match are left alone (repeatable)
    #[arg(long, help_heading = HEADING_STORAGE, value_name = "KEY=VALUE", requires = "csi_endpoint", value_parser = label)]
    pub csi_topology: Vec<(String, String)>,
    /// Delete the directories of released host-path volumes on this machine; for clusters of one machine
    #[arg(long, help_heading = HEADING_STORAGE)]
    pub enable_hostpath_provisioner: bool,
    /// Read the existing machines from this inventory file
    #[arg(long, help_heading = HEADING_MACHINES, value_name = "FILE", group = "provider")]
    pub cloud_inventory: Option<PathBuf>,
    /// Age from which an inventory is too old, by its date or else by that of its file
    #[arg(long, help_heading = HEADING_MACHINES, value_name = "DURATION", default_value = "15m", value_parser = positive)]
    pub cloud_inventory_max_age: Duration,
    /// Ask this webhook whether machines exist
    #[arg(long, help_heading = HEADING_MACHINES, value_name = "URL", group = "provider")]
    pub cloud_webhook: Option<String>,
    /// Certificate authorities for the webhook [default: those of this machine]
    #[arg(long, help_heading = HEADING_MACHINES, value_name = "FILE", requires = "cloud_webhook")]
    pub cloud_webhook_ca_file: Option<PathBuf>,
    /// File with the bearer token for the webhook
    #[arg(long, help_heading = HEADING_MACHINES, value_name = "FILE", requires = "cloud_webhook")]
    pub cloud_webhook_token_file: Option<PathBuf>,
    /// Run this command to find out whether machines exist
    #[arg(long, help_heading = HEADING_MACHINES, value_name = "PATH", group = "provider")]
    pub cloud_exec: Option<PathBuf>,
    /// Argument of the command of --cloud-exec (repeatable)
    #[arg(long, help_heading = HEADING_MACHINES, value_name = "ARGUMENT", requires = "cloud_exec", allow_hyphen_values = true)]
    pub cloud_exec_argument: Vec<String>,
    /// Ask AWS EC2 in this region whether machines exist; credentials are found as by the AWS SDKs, but for profiles
    #[arg(long, help_heading = HEADING_MACHINES, value_name = "REGION", group = "provider")]
    pub cloud_aws_region: Option<String>,
    /// Endpoint of EC2 [default: the region's public endpoint]
    #[arg(long, help_heading = HEADING_MACHINES, value_name = "URL", requires = "cloud_aws_region")]
    pub cloud_aws_endpoint: Option<String>,
    /// Timeout of each question to a machine provider
    #[arg(long, help_heading = HEADING_MACHINES, value_name = "DURATION", default_value = "10s", value_parser = positive)]
    pub cloud_timeout: Duration,
    /// Time between two questions about the machine of a node that is not ready
    #[arg(long, help_heading = HEADING_MACHINES, value_name = "DURATION", default_value = "5s", value_parser = positive)]
    pub node_monitor_period: Duration,
    /// Number of consecutive answers that a machine does not exist before its node is deleted
    #[arg(long, help_heading = HEADING_MACHINES, value_name = "COUNT", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(2..))]
    pub node_missing_confirmations: u32,
    /// Minimum time between the first and the last of those answers
    #[arg(long, help_heading = HEADING_MACHINES, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    pub node_missing_period: Duration,
    /// Delete no node while more than this fraction of all machines is missing
    #[arg(long, help_heading = HEADING_MACHINES, value_name = "PART", default_value_t = 0.2, value_parser = part)]
    pub node_breaker_fraction: f64,
    /// Delete no node; write an Event about each node that would be deleted
    #[arg(long, help_heading = HEADING_MACHINES)]
    pub node_deletion_dry_run: bool,
}

impl Default for OutsideOptions {
    fn default() -> Self {
        let policy = NodePolicy::default();
        Self {
            csi_endpoint: Vec::new(),
            csi_timeout: csi::Options::default().call_timeout,
            csi_topology: Vec::new(),
            enable_hostpath_provisioner: false,
            cloud_inventory: None,
            cloud_inventory_max_age: cloud::INVENTORY_MAX_AGE,
            cloud_webhook: None,
            cloud_webhook_ca_file: None,
            cloud_webhook_token_file: None,
            cloud_exec: None,
            cloud_exec_argument: Vec::new(),
            cloud_aws_region: None,
            cloud_aws_endpoint: None,
            cloud_timeout: cloud::ANSWER_TIMEOUT,
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

/// Parses a duration that must be more than zero, for the command line.
pub fn positive(text: &str) -> Result<Duration, String> {
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
    /// Returns the deleters of storage.
    #[must_use]
    pub fn deleters(&self) -> Deleters {
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

    /// Returns the storage of the configured drivers and directories; `client` reads secrets. Must be called within a tokio
    /// runtime.
    pub fn storage(&self, client: ApiClient) -> StorageOutside {
        let calls = csi::Options { call_timeout: self.csi_timeout };
        StorageOutside::new(client, &self.csi_endpoint, calls, self.enable_hostpath_provisioner)
    }

    /// Returns the conditions for deleting a node.
    #[must_use]
    pub fn node_policy(&self) -> NodePolicy {
        NodePolicy {
            period_milliseconds: gc_types::milliseconds(self.node_monitor_period),
            confirmations: self.node_missing_confirmations,
            missing_milliseconds: gc_types::milliseconds(self.node_missing_period),
            provider_delay_milliseconds: self
                .cloud_inventory
                .as_ref()
                .map_or(0, |_| gc_types::milliseconds(self.cloud_inventory_max_age)),
            breaker_fraction: self.node_breaker_fraction,
            dry_run: self.node_deletion_dry_run,
        }
    }

    /// Reports whether a machine provider is configured.
    #[must_use]
    pub fn has_provider(&self) -> bool {
        self.cloud_inventory.is_some()
            || self.cloud_webhook.is_some()
            || self.cloud_exec.is_some()
            || self.cloud_aws_region.is_some()
    }

    /// Returns the machine provider.
    pub fn provider(&self) -> Result<Option<Arc<dyn Provider>>, UsageError> {
        let unusable =
            |flag: &str, error: &dyn std::fmt::Display| UsageError::new(format!("{flag}: {error}"));
        if let Some(path) = &self.cloud_inventory {
            let inventory = Inventory::open_within(path.clone(), self.cloud_inventory_max_age)
                .map_err(|error| unusable("--cloud-inventory", &error))?;
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
