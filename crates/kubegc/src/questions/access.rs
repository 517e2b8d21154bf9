//! How the commands reach a cluster: kubectl's flags, with kubectl's meaning.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use gc_kube::ApiClient;
use gc_kube::connection::{Access as ClusterAccess, ConnectError, REQUEST_TIMEOUT, Token};
use gc_types::GoDuration;

use crate::UsageError;
use crate::run::preflight;

/// The heading of these flags in help texts.
pub(super) const HEADING: &str = "Cluster options";

/// Which cluster, as whom.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = HEADING)]
pub(crate) struct Access {
    /// Kubeconfig file [default: $KUBECONFIG, ~/.kube/config, or the service account of this pod]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Cluster of the kubeconfig
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// User of the kubeconfig
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Bearer token, in place of the kubeconfig's credentials
    #[arg(long, value_name = "TOKEN")]
    token: Option<Token>,
    /// Impersonate this user
    #[arg(long = "as", value_name = "USER")]
    impersonate: Option<String>,
    /// Impersonate this group (repeatable)
    #[arg(long = "as-group", value_name = "GROUP")]
    impersonate_groups: Vec<String>,
    /// Give up after this time
    #[arg(long, value_name = "DURATION", default_value = "60s", alias = "timeout")]
    request_timeout: String,
}

impl Access {
    /// How long everything may take.
    pub(crate) fn patience(&self) -> Result<Duration, UsageError> {
        // kubectl takes plain seconds, too, and 0 for no limit.
        let text = &self.request_timeout;
        let seconds = text.parse::<u64>().ok().map(Duration::from_secs);
        let parsed = match seconds {
            Some(seconds) => seconds,
            None => text
                .parse::<GoDuration>()
                .map_err(|error| UsageError::new(format!("--request-timeout: {error}")))?
                .to_std(),
        };
        Ok(if parsed.is_zero() { Duration::from_hours(24) } else { parsed })
    }

    /// Whether a flag says which cluster is meant.
    pub(crate) fn names_a_cluster(&self) -> bool {
        let named = [&self.context, &self.cluster, &self.user];
        self.kubeconfig.is_some() || self.token.is_some() || named.into_iter().any(Option::is_some)
    }

    /// What the flags say.
    pub(super) fn of_cluster(&self) -> ClusterAccess {
        ClusterAccess {
            kubeconfig: self.kubeconfig.clone().or_else(crate::kubeconfig::of_local_server),
            context: self.context.clone(),
            cluster: self.cluster.clone(),
            user: self.user.clone(),
            token: self.token.clone(),
            impersonate: self.impersonate.clone(),
            impersonate_groups: self.impersonate_groups.clone(),
        }
    }

    /// A client of the cluster, which has answered.
    pub(crate) async fn connect(&self) -> anyhow::Result<ApiClient> {
        let access = self.of_cluster();
        let client = ApiClient::configured(&access).await.map_err(|error| {
            let message = preflight::one_line(&error);
            UsageError::new(match (&self.kubeconfig, &error) {
                (Some(file), _) if !message.contains(&*file.to_string_lossy()) => {
                    format!("{}: {message}", file.display())
                }
                (None, ConnectError::Configuration(_)) => format!(
                    "{message}; use --kubeconfig FILE, set $KUBECONFIG, or start a server with `kubegc up`"
                ),
                _ => message,
            })
        })?;
        // A server that hangs is given up in time, too.
        let client = client.with_request_timeout(self.patience()?.min(REQUEST_TIMEOUT));
        preflight::reach(&client, false).await?;
        Ok(client)
    }
}
