//! Connection of the commands to a cluster: kubectl's flags, with kubectl's meaning.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use gc_kube::ApiClient;
use gc_kube::connection::{Access as ClusterAccess, ConnectError, REQUEST_TIMEOUT, Token};
use gc_types::GoDuration;

use crate::kubeconfig::{Caller, Found};
use crate::{UsageError, preflight};

/// Heading of these flags in help texts.
pub const HEADING: &str = "Cluster options";

/// Flags that select the cluster and the user.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = HEADING)]
pub struct Access {
    /// Kubeconfig file [default: $KUBECONFIG, ~/.kube/config, or the service account of this pod]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    context: ContextFlags,
    /// Give up after this time
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    request_timeout: String,
}

/// Selection from a kubeconfig, or replacements of it.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = HEADING)]
pub struct ContextFlags {
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Cluster of the kubeconfig
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// User of the kubeconfig
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// URL of the API server, in place of the kubeconfig's
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Bearer token, in place of the kubeconfig's credentials
    #[arg(long, value_name = "TOKEN")]
    token: Option<Token>,
    /// Impersonate this user
    #[arg(long = "as", value_name = "USER")]
    impersonate: Option<String>,
    /// Impersonate this group (repeatable)
    #[arg(long = "as-group", value_name = "GROUP", requires = "impersonate")]
    impersonate_groups: Vec<String>,
}

impl ContextFlags {
    /// Reports whether a flag selects a cluster.
    fn names_a_cluster(&self) -> bool {
        let named = [&self.context, &self.cluster, &self.user, &self.server];
        self.token.is_some() || named.into_iter().any(Option::is_some)
    }

    /// Reports whether any flag was given.
    #[must_use]
    pub fn is_given(&self) -> bool {
        self.names_a_cluster() || self.impersonate.is_some()
    }

    /// Resolves the flags with this kubeconfig.
    pub(crate) fn with_kubeconfig(&self, kubeconfig: Option<PathBuf>, caller: Caller) -> ClusterAccess {
        // The credentials of a server on this machine are for no other server, and neither are those of a pod.
        let is_open = kubeconfig.is_none() && self.server.is_none();
        let found = if is_open { caller.find() } else { Found::Nowhere };
        let account = found == Found::Account;
        let local = match found {
            Found::Local(file) => Some(file),
            Found::Environment | Found::Account | Found::Home | Found::Nowhere => None,
        };
        ClusterAccess {
            kubeconfig: kubeconfig.or(local),
            account,
            context: self.context.clone(),
            cluster: self.cluster.clone(),
            user: self.user.clone(),
            server: self.server.clone(),
            token: self.token.clone(),
            impersonate: self.impersonate.clone(),
            impersonate_groups: self.impersonate_groups.clone(),
        }
    }

    /// Returns a client of the cluster that the flags select, with this kubeconfig. An unusable configuration is a usage error.
    pub async fn client(
        &self,
        kubeconfig: Option<&PathBuf>,
        caller: Caller,
    ) -> Result<ApiClient, UsageError> {
        let access = self.with_kubeconfig(kubeconfig.cloned(), caller);
        ApiClient::configured(&access).await.map_err(|error| {
            let message = preflight::one_line(&error);
            UsageError::new(match (kubeconfig, &error) {
                (Some(file), _) if !message.contains(&*file.to_string_lossy()) => {
                    format!("{}: {message}", file.display())
                }
                (None, ConnectError::Configuration(_)) => format!(
                    "{message}; use --kubeconfig FILE, set $KUBECONFIG, or start a server with `kubegc up`"
                ),
                _ => message,
            })
        })
    }
}

/// Parses a duration as kubectl does: plain seconds are allowed, and 0 means no limit.
pub fn patience(text: &str) -> Result<Duration, UsageError> {
    let parsed = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => text
            .parse::<GoDuration>()
            .map_err(|error| UsageError::new(format!("--request-timeout: {error}")))?
            .to_std(),
    };
    Ok(if parsed.is_zero() { Duration::from_hours(24) } else { parsed })
}

impl Access {
    /// Returns the time limit of the whole command.
    pub fn patience(&self) -> Result<Duration, UsageError> {
        patience(&self.request_timeout)
    }

    /// Reports whether a flag selects a cluster.
    #[must_use]
    pub fn names_a_cluster(&self) -> bool {
        self.kubeconfig.is_some() || self.context.names_a_cluster()
    }

    /// Converts the flags to a cluster and user.
    #[must_use]
    pub fn of_cluster(&self) -> ClusterAccess {
        self.context.with_kubeconfig(self.kubeconfig.clone(), Caller::Person)
    }

    /// Returns a client of the cluster after the server has answered.
    pub async fn connect(&self) -> anyhow::Result<ApiClient> {
        let client = self.context.client(self.kubeconfig.as_ref(), Caller::Person).await?;
        // A server that does not answer is given up in time, too.
        let client = client.with_request_timeout(self.patience()?.min(REQUEST_TIMEOUT));
        preflight::reach(&client, false).await?;
        Ok(client)
    }
}
