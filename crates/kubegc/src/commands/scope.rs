//! Flags that queries share: the part of the cluster to read, and whether to repeat.

use std::io::Write as _;
use std::time::Duration;

use clap::Args;
use gc_inspect::gather::Scope;

/// Interval between two answers of `--watch`.
const WATCH_PAUSE: Duration = Duration::from_secs(5);

/// One namespace, or all.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct NamespaceFlags {
    /// Only this namespace
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// All namespaces (the default); overrides -n
    #[arg(short = 'A', long)]
    all_namespaces: bool,
}

impl NamespaceFlags {
    /// Returns the namespace; empty for all.
    pub(crate) fn namespace(&self) -> &str {
        self.namespace.as_deref().filter(|_| !self.all_namespaces).unwrap_or_default()
    }
}

/// Objects of one namespace or of all, with labels or without.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ScopeFlags {
    #[command(flatten)]
    namespaces: NamespaceFlags,
    /// Only objects with these labels
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
}

impl ScopeFlags {
    pub(crate) fn scope(&self) -> Scope {
        Scope {
            namespace: self.namespaces.namespace().to_owned(),
            selector: self.selector.clone().unwrap_or_default(),
        }
    }
}

/// Flag to repeat an answer.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct WatchFlag {
    /// Repeat every five seconds
    #[arg(short, long)]
    watch: bool,
}

impl WatchFlag {
    /// Queries the cluster and prints the answer, once or, with `--watch`, repeatedly until the reader closes the output.
    pub(crate) async fn repeat<T>(
        self,
        mut answer: impl AsyncFnMut() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        loop {
            let answered = answer().await?;
            if !self.watch {
                return Ok(answered);
            }
            tokio::time::sleep(WATCH_PAUSE).await;
            writeln!(std::io::stdout())?;
        }
    }
}
