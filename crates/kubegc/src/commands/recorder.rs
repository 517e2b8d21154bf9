//! `kubegc recorder`: keeps the last state of deleted objects. It is a separate process with its own account, which may read what
//! it records, and nothing else.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use gc_embedded::apiserver::stop_signals;
use gc_inspect::gather;
use gc_metrics::Catalogue;
use gc_process::UsageError;
use gc_process::access::Access;
use gc_process::logging::{self, LogOptions};
use gc_process::operations::{self, OperationsPages, Protection, TlsFlags};
use gc_process::tasks::block_on;
use gc_recovery::heartbeat::RecorderLease;
use gc_recovery::policy::RecordingPolicy;
use gc_recovery::records::RecordsFlags;
use gc_recovery::signing::SigningKey;
use gc_recovery::status::RecorderStatus;
use gc_recovery::{recorder, seal};

/// Options of `kubegc recorder`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubegc recorder --records /var/lib/kubegc/records
  kubegc recorder --records DIR --policy recorder.yaml
  kubegc recorder --records s3://backups/shop --s3-region eu-central-1
  kubegc recorder --records DIR --signing-key FILE   sign, so that no one else can write records
  kubegc recorder --records DIR --signing-key FILE --recipient age1…
                                                     encrypt as well, so that only the owner of the key can read

The policy (YAML) says what is recorded; these are the defaults:
  resources: ['*']                        # such as deployments.apps; a star matches any text
  namespaces: {include: [], exclude: []}  # all namespaces
  secrets: []                             # NAMESPACE/NAME of each Secret that is recorded
  maxAge: 7d
  maxSize: 1Gi

Events and Leases are never recorded, Secrets only when they are listed. The directory is readable by its owner alone. With --signing-key, `kubegc undo --recorder-key FILE.pub` believes the records of this recorder alone. With --recipient, they are encrypted to age public keys as well (`age-keygen` makes a pair); `kubegc undo --identity FILE` reads them. What is deleted while the recorder does not run is not recorded.")]
pub(crate) struct RecorderOptions {
    /// File with the policy, YAML or JSON
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    #[command(flatten)]
    records: RecordsFlags,
    /// Encrypt records to this age public key (repeatable: each of the keys reads them)
    #[arg(long, value_name = "AGE1…", value_parser = seal::recipient, requires = "signing_key", help_heading = "Records")]
    recipient: Vec<seal::Recipient>,
    /// Sign records with the key in this file, which is made if it does not exist; its public key is in FILE.pub
    #[arg(long, value_name = "FILE", help_heading = "Records")]
    signing_key: Option<PathBuf>,
    /// Renew this Lease, which says what is recorded: policies delete what is unused only while it is renewed (default: none; such policies expect kube-system/kubegc-recorder)
    #[arg(long, value_name = "NAMESPACE/NAME")]
    lease: Option<RecorderLease>,
    /// Address for metrics of what is recorded and what is not, and health [default: none]; on an address other than loopback metrics need TLS and a token
    #[arg(long, help_heading = operations::PAGES_HEADING, value_name = "ADDRESS:PORT")]
    metrics_bind_address: Option<SocketAddr>,
    #[command(flatten)]
    tls: TlsFlags,
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    log: LogOptions,
}

/// `kubegc recorder`: runs until it is stopped.
pub(crate) fn run(options: &RecorderOptions) -> anyhow::Result<()> {
    logging::start(&options.log)?;
    let policy = match &options.policy {
        None => RecordingPolicy::read("")?,
        Some(path) => {
            let shown = path.display();
            let text = std::fs::read_to_string(path)
                .map_err(|error| UsageError::new(format!("{shown}: {error}")))?;
            RecordingPolicy::read(&text).map_err(|error| UsageError::new(format!("{shown}: {error}")))?
        }
    };
    block_on(async {
        let mut stop = stop_signals()?;
        let client = options.access.connect().await?;
        let mut writer = seal::Writer::to(&options.recipient);
        if let Some(file) = &options.signing_key {
            let key = SigningKey::open(file)?;
            tracing::info!(key = %key.public(), "signing records; undo --recorder-key names this key");
            writer = writer.signed_by(key);
        }
        let mut catalogue = Catalogue::default();
        let status = RecorderStatus::register(&mut catalogue);
        if let Some(address) = options.metrics_bind_address {
            let shown =
                OperationsPages { metrics: Arc::new(catalogue.into()), ready: status.ready(), pages: None };
            let protection = Protection::of(address, &options.tls, Some(&client))?;
            let address = operations::serve(address, shown, Arc::new(protection)).await?;
            tracing::info!(%address, "metrics and health");
        }
        let mut sink = options.records.open(writer, policy.bounds(), gather::now(), status).await?;
        let done = tokio::select! {
            done = recorder::record_with_lease(client, policy, &mut sink, options.lease.clone()) => done,
            _ = stop.recv() => Ok(()),
        };
        done.and(sink.close().await)
    })
}
