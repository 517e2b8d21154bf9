//! `kubegc ui`: prints a link to the page.

use std::io::Write as _;

use clap::Args;
use gc_inspect::collector::CollectorFlags;
use gc_process::access::Access;
use gc_process::lease::LeaseFlags;
use gc_process::preflight;
use http::{Method, StatusCode};
use serde_json::{Value, json};

/// Options of `kubegc ui`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubegc ui              a link that opens the page once, within ten minutes
  kubegc ui --as ann     the page as another user sees it
  kubegc ui --collector 127.0.0.1:10358
                         the page of a `kubegc run` with --ui-bind-address, for example through `kubectl port-forward`;
                         it needs a bearer token: --token, or a kubeconfig with one")]
pub(crate) struct UiOptions {
    #[command(flatten)]
    collector: CollectorFlags,
    #[command(flatten)]
    lease: LeaseFlags,
    #[command(flatten)]
    access: Access,
}

/// `kubegc ui`
pub(crate) fn run(options: &UiOptions) -> anyhow::Result<()> {
    let link = gc_process::tasks::block_on(async {
        let collector = options.collector.connect_to_page(&options.access, &options.lease.name()).await?;
        let is_of_collector = collector.is_some();
        let serves = if collector.is_some() { "`kubegc run --ui-bind-address`" } else { "`kubegc up`" };
        // On a cluster, the collectors serve the page at another address.
        let otherwise = if collector.is_some() {
            ""
        } else {
            "; for collectors beside a cluster: `kubectl -n kube-system port-forward kubegc-0 10358` and \
             `kubegc ui --collector 127.0.0.1:10358`"
        };
        let client = match collector {
            Some(collector) => collector,
            None => options.access.connect().await?,
        };
        let mut request = preflight::request(Method::POST, "/kubegc/v1/link", Some(&json!({})));
        let json = http::HeaderValue::from_static("application/json");
        request.headers_mut().insert(http::header::CONTENT_TYPE, json);
        let answer = client.call(request).await?;
        if is_of_collector && matches!(answer.head.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            let address = options.collector.collector.as_deref().unwrap_or_default();
            anyhow::bail!(
                "{address}: {}. The page of `kubegc run` knows users by bearer tokens, and no client certificate: use the token \
                 of an account, `kubegc ui --collector {address} --token \"$(kubectl -n NAMESPACE create token ACCOUNT)\"`",
                preflight::message(&answer)
            );
        }
        anyhow::ensure!(
            answer.head.status.is_success(),
            "{} opens no page: {} ({serves} does{otherwise})",
            client.address(),
            preflight::message(&answer)
        );
        let document: Value = serde_json::from_slice(&answer.body)?;
        anyhow::Ok(document["url"].as_str().unwrap_or_default().to_owned())
    });
    writeln!(std::io::stdout(), "{}", link?)?;
    Ok(())
}
