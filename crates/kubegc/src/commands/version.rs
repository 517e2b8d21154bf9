//! `kubegc version`: prints the version of this program and of the server.

use std::io::Write as _;

use clap::Args;
use gc_inspect::output::{self, Answer, Output};
use gc_process::access::Access;
use gc_process::preflight;
use http::Method;
use serde_json::{Value, json};

/// Options of `kubegc version`.
#[derive(Clone, Debug, Args)]
pub(crate) struct VersionOptions {
    /// Only the version of this program
    #[arg(long)]
    client: bool,
    /// Output format: text, wide, name, json, yaml, jsonpath=…, custom-columns=…
    #[arg(short, long, default_value = "text")]
    output: Output,
    #[command(flatten)]
    access: Access,
}

/// The versions, or the error if the server did not answer.
struct Versions {
    client: &'static str,
    server: Option<Result<Value, String>>,
}

#[cfg(test)]
impl Versions {
    /// Returns versions with a fixed client, because the real one changes with each release.
    fn of(server: Value) -> Self {
        Self { client: "0.0.0", server: Some(Ok(server)) }
    }
}

impl Answer for Versions {
    fn value(&self) -> Value {
        let mut value = json!({"clientVersion": {"gitVersion": format!("v{}", self.client)}});
        if let Some(Ok(server)) = &self.server {
            value["serverVersion"] = server.clone();
        }
        value
    }

    fn text(&self, _is_wide: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        writeln!(out, "Client Version: v{}", self.client)?;
        if let Some(Ok(server)) = &self.server {
            writeln!(out, "Server Version: {}", server["gitVersion"].as_str().unwrap_or("unknown"))?;
        }
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        Vec::new()
    }
}

/// `kubegc version`
pub(crate) fn run(options: &VersionOptions) -> anyhow::Result<()> {
    let server = if options.client { None } else { Some(of_server(options)?) };
    let versions = Versions { client: env!("CARGO_PKG_VERSION"), server };
    output::print(&versions, &options.output)?;
    match versions.server {
        // Like kubectl, print the version of this program in any case.
        Some(Err(why)) => Err(anyhow::anyhow!(why)),
        _ => Ok(()),
    }
}

fn of_server(options: &VersionOptions) -> anyhow::Result<Result<Value, String>> {
    let patience = options.access.patience()?;
    gc_process::tasks::block_on(async {
        let asked = async {
            let client = options.access.connect().await?;
            let answer = client.call(preflight::request(Method::GET, "/version", None)).await?;
            anyhow::ensure!(answer.head.status.is_success(), "{}", preflight::message(&answer));
            anyhow::Ok(serde_json::from_slice::<Value>(&answer.body)?)
        };
        Ok(match tokio::time::timeout(patience, asked).await {
            Ok(version) => version.map_err(|error| format!("{error:#}")),
            Err(_) => Err(format!("the server did not answer within {} s", patience.as_secs())),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_look_as_they_should() {
        let screens = output::screens(&Versions::of(json!({"gitVersion": "v1.36.2"})));
        insta::assert_snapshot!("version", screens.unwrap_or_default());
    }
}
