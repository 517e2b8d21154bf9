//! How a collector's pages are asked: without protection on its own machine, elsewhere over TLS with a token.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use gc_kube::ApiClient;
use serde_json::Value;

use super::access::Access;
use crate::UsageError;
use crate::run::control::{self, LeaseName, PAGES_AUTHORITY};
use crate::run::preflight;

/// The certificate of a collector is issued for this name among others, wherever it runs.
const SERVER_NAME: &str = "localhost";

/// Which collector.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct CollectorFlags {
    /// Ask the collector at its --bind-address (stuck, tree, plan, top and ui: at its --ui-bind-address; why: at either), for example through `kubectl port-forward`
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(super) collector: Option<String>,
    /// Certificate authority (PEM) of the collector's --tls-cert-file [default: what the leader writes onto its Lease]
    #[arg(long, value_name = "FILE", requires = "collector")]
    collector_certificate_authority: Option<PathBuf>,
}

impl CollectorFlags {
    /// Whether a collector was named.
    pub(super) fn is_named(&self) -> bool {
        self.collector.is_some()
    }

    /// A client of the collector that was named, if one was. What verifies its certificate is on the Lease.
    pub(super) async fn connect(&self, access: &Access, lease: &LeaseName) -> Result<Option<ApiClient>> {
        let Some(address) = &self.collector else { return Ok(None) };
        match self.over_tls(address, access, lease).await? {
            Some(client) => Ok(Some(client)),
            None => Ok(Some(ApiClient::plain(address).map_err(|error| self.wrong(&error))?)),
        }
    }

    /// A client of the page of the collector that was named, if one was. It is never asked without TLS.
    pub(crate) async fn connect_to_page(
        &self,
        access: &Access,
        lease: &LeaseName,
    ) -> Result<Option<ApiClient>> {
        let Some(address) = &self.collector else { return Ok(None) };
        let client = self.over_tls(address, access, lease).await?;
        let unknown = || {
            UsageError::new(format!(
                "--collector {address}: nothing is known to verify its certificate with: the lease {lease} cannot be read, or \
                 its holder has a certificate from elsewhere; add --collector-certificate-authority FILE"
            ))
        };
        Ok(Some(client.ok_or_else(unknown)?))
    }

    fn wrong(&self, error: &dyn std::error::Error) -> UsageError {
        let address = self.collector.as_deref().unwrap_or_default();
        UsageError::new(format!("--collector {address}: {}", preflight::one_line(error)))
    }

    /// A client with the credentials of the flags; nothing if it is not known what verifies the collector's certificate.
    async fn over_tls(&self, address: &str, access: &Access, lease: &LeaseName) -> Result<Option<ApiClient>> {
        if let Some(file) = &self.collector_certificate_authority {
            let pem = std::fs::read(file).map_err(|error| {
                UsageError::new(format!("--collector-certificate-authority {}: {error}", file.display()))
            })?;
            let client = ApiClient::configured_elsewhere(&access.of_cluster(), address, &pem, None).await;
            return Ok(Some(client.map_err(|error| self.wrong(&error))?));
        }
        let Some(pem) = of_lease(access, lease).await else { return Ok(None) };
        let access = access.of_cluster();
        let client =
            ApiClient::configured_elsewhere(&access, address, pem.as_bytes(), Some(SERVER_NAME)).await;
        Ok(Some(client.map_err(|error| self.wrong(&error))?))
    }
}

/// What the leader has written onto the Lease; nothing where it serves without TLS, or the Lease cannot be read.
async fn of_lease(access: &Access, lease: &LeaseName) -> Option<String> {
    let client = access.connect().await.ok()?;
    let lease = control::read(&client, lease).await.ok().flatten()?;
    lease["metadata"]["annotations"][PAGES_AUTHORITY].as_str().map(str::to_owned)
}

/// A JSON page of a collector.
pub(super) async fn page(client: &ApiClient, path: &str) -> Result<Value> {
    let answer = client.call(preflight::request(http::Method::GET, path, None)).await?;
    anyhow::ensure!(
        answer.head.status.is_success(),
        "{}: {}",
        answer.head.status.as_u16(),
        preflight::message(&answer)
    );
    serde_json::from_slice(&answer.body).context("the answer is not JSON")
}
