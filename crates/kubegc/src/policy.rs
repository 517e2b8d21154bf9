//! `kubegc policy check`: validates retention policies and shows what they would delete, before they are applied.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use gc_kube::ApiClient;
use gc_kube::discovery::discover;
use gc_retention::policies::engine::PolicyEngine;
use gc_retention::policies::{GROUP, KIND, Policy, VERSION};
use gc_types::ResourceId;
use http::header::ACCEPT;
use http::{Method, Request};
use http_body_util::Full;
use serde_json::Value;

use crate::UsageError;
use crate::questions::access::Access;

const PAGE_SIZE: usize = 500;
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// Options of `kubegc policy`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Validate the policies in a file and show what they would delete; exits with 1 if a policy is invalid
    Check(CheckOptions),
    /// Print a new policy from a template; it deletes nothing until spec.enforce is set to true
    New(NewOptions),
}

/// Options of `kubegc policy new`.
#[derive(Clone, Debug, Args)]
pub(crate) struct NewOptions {
    /// The template
    template: Template,
    /// Name of the policy [default: that of the template]
    #[arg(long)]
    name: Option<String>,
}

/// What a new policy is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Template {
    /// Delete preview namespaces a week after their creation, with notice a day before
    PreviewNamespaces,
    /// Keep the 20 newest failed pods of each namespace, for at most a week
    FailedPods,
    /// Delete ConfigMaps that are older than 30 days and not among the 3 newest of their app
    ConfigHistory,
}

impl Template {
    const fn name(self) -> &'static str {
        match self {
            Self::PreviewNamespaces => "preview-namespaces",
            Self::FailedPods => "failed-pods",
            Self::ConfigHistory => "config-history",
        }
    }

    const fn spec(self) -> &'static str {
        match self {
            Self::PreviewNamespaces => {
                "  target: {apiVersion: v1, kind: Namespace}
  # The names of the namespaces themselves; a star matches any text.
  namespaces: {include: [\"preview-*\"]}
  maxAge: 7d
  # Announced by an Event, and to --notice-webhook. To keep one: kubectl annotate namespace NAME kubegc.io/keep=true
  notice: {before: 24h}
"
            }
            Self::FailedPods => {
                "  target: {apiVersion: v1, kind: Pod}
  fields: [{path: .status.phase, operator: In, values: [Failed]}]
  # Either is enough: beyond the newest 20, or older than a week.
  any:
    keepNewest: {count: 20, per: Namespace, orderBy: Finished}
    maxAge: 7d
"
            }
            Self::ConfigHistory => {
                "  target: {apiVersion: v1, kind: ConfigMap}
  # Only what a release leaves behind; without a selector, all ConfigMaps would be selected.
  selector: {matchExpressions: [{key: app.kubernetes.io/version, operator: Exists}]}
  # Both must apply: older than 30 days, and not among the newest 3.
  all:
    keepNewest: {count: 3, per: Label, label: app.kubernetes.io/name}
    maxAge: 30d
"
            }
        }
    }
}

/// A policy as YAML.
fn from_template(options: &NewOptions) -> String {
    let name = options.name.as_deref().unwrap_or(options.template.name());
    format!(
        "# kubegc policy check FILE --kubeconfig FILE shows what it would delete.\n\
         apiVersion: {GROUP}/{VERSION}\nkind: {KIND}\nmetadata: {{name: {}}}\nspec:\n{}  \
         # Nothing is deleted until this is true; until then, the status shows what would be.\n  enforce: false\n",
        Value::from(name),
        options.template.spec()
    )
}

/// Options of `kubegc policy check`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "With one of --kubeconfig, --context, --cluster, --user and --token, it also shows what would be deleted from this cluster \
                  now, without changing anything."
)]
pub(crate) struct CheckOptions {
    /// File with RetentionPolicies, as YAML or JSON; - is standard input
    file: PathBuf,
    #[command(flatten)]
    access: Access,
}

/// A policy is invalid, and the output says so: exit code 1.
#[derive(Debug, thiserror::Error)]
#[error("a policy is invalid")]
pub(crate) struct Misunderstood;

/// Runs it.
pub(crate) fn run(command: &PolicyCommand) -> anyhow::Result<()> {
    let options = match command {
        PolicyCommand::Check(options) => options,
        PolicyCommand::New(options) => {
            std::io::stdout().write_all(from_template(options).as_bytes())?;
            return Ok(());
        }
    };
    let text = if options.file.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(&options.file)
    };
    let shown = options.file.display();
    let text = text.map_err(|error| UsageError::new(format!("{shown}: {error}")))?;
    let documents = documents(&text).map_err(|error| UsageError::new(format!("{shown}: {error}")))?;
    if documents.is_empty() {
        return Err(UsageError::new(format!("{shown}: contains no {KIND}")).into());
    }
    let mut out = String::new();
    let faults: usize = documents.iter().map(|object| check(object, &mut out)).sum();
    if faults == 0 && options.access.names_a_cluster() {
        crate::tasks::block_on(async {
            let client = options.access.connect().await?;
            for object in &documents {
                preview(&client, object, &mut out).await?;
            }
            anyhow::Ok(())
        })?;
    }
    std::io::stdout().write_all(out.as_bytes())?;
    if faults == 0 { Ok(()) } else { Err(Misunderstood.into()) }
}

fn documents(text: &str) -> Result<Vec<Value>, serde_saphyr::Error> {
    let found: Vec<Value> = crate::yaml::from_multiple(text)?;
    Ok(found.into_iter().filter(|document| !document.is_null()).collect())
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or("(no name)")
}

/// Prints each fault of a document on a line of its own; returns how many there are.
fn check(object: &Value, out: &mut String) -> usize {
    let mut faults: Vec<String> = Vec::new();
    let expected = format!("{GROUP}/{VERSION}");
    for (field, expected) in [("apiVersion", expected.as_str()), ("kind", KIND)] {
        if object[field] != expected {
            faults.push(format!("{field}: expected {expected:?}, found {}", object[field]));
        }
    }
    if object["metadata"]["name"].as_str().is_none_or(str::is_empty) {
        faults.push("metadata.name: is required".to_owned());
    }
    if let Err(problems) = Policy::compile(&object["spec"]) {
        faults.extend(problems.iter().map(ToString::to_string));
    }
    // Writing to a String cannot fail, here and below.
    for fault in &faults {
        let _ = writeln!(out, "{}: {fault}", name(object));
    }
    if faults.is_empty() {
        let _ = writeln!(out, "{}: understood", name(object));
    }
    faults.len()
}

/// What would go now, by the engine that decides it in a cluster.
async fn preview(client: &ApiClient, object: &Value, out: &mut String) -> anyhow::Result<()> {
    let mut engine = PolicyEngine::new(object, ResourceId(0));
    let Some(policy) = engine.policy().cloned() else { return Ok(()) };
    let discovered = discover(client).await?;
    let group = policy.api_version.split_once('/').map_or("", |(group, _)| group);
    let served = discovered
        .resources
        .values()
        .find(|served| *served.group == *group && served.kind == policy.kind)
        .with_context(|| format!("{}: {} {} is not served", name(object), policy.api_version, policy.kind))?;
    let root = if group.is_empty() { "/api" } else { "/apis" };
    let collection = format!("{root}/{}/{}", policy.api_version, served.resource);
    let now = gc_kube::system_clock()();
    engine.list_started();
    let mut token = String::new();
    loop {
        let page = list(client, &collection, &token, policy.needs_content()).await?;
        for item in page["items"].as_array().into_iter().flatten() {
            let text = |field: &str| item["metadata"][field].as_str().unwrap_or_default();
            engine.observed(text("namespace"), text("name"), policy.look(item, now));
        }
        page["metadata"]["continue"].as_str().unwrap_or_default().clone_into(&mut token);
        if token.is_empty() {
            break;
        }
    }
    engine.synced();
    engine.tick(now);
    let status = engine.status(&Value::Null, now);
    let _ = writeln!(
        out,
        "{}: {} selected, {} due now, {} kept by annotation, {} unclear",
        name(object),
        status["selected"],
        status["due"],
        status["kept"],
        status["unclear"]
    );
    for example in status["examples"].as_array().into_iter().flatten() {
        let text = |field: &str| example[field].as_str().unwrap_or_default();
        let namespace = if text("namespace").is_empty() { "" } else { "/" };
        let _ = writeln!(out, "  {}{namespace}{}: {}", text("namespace"), text("name"), text("why"));
    }
    Ok(())
}

async fn list(client: &ApiClient, collection: &str, token: &str, whole: bool) -> anyhow::Result<Value> {
    let mut uri = format!("{collection}?limit={PAGE_SIZE}");
    if !token.is_empty() {
        uri.push_str("&continue=");
        gc_kube::push_segment(&mut uri, token);
    }
    let accept = if whole { "application/json" } else { METADATA };
    let request =
        Request::builder().method(Method::GET).uri(&uri).header(ACCEPT, accept).body(Full::default())?;
    let answer = client.call(request).await.with_context(|| format!("no answer to {uri}"))?;
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    anyhow::ensure!(
        answer.head.status.is_success(),
        "{collection} was answered with {}: {}",
        answer.head.status.as_u16(),
        body["message"].as_str().unwrap_or("(no message)")
    );
    Ok(body)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    const GOOD: &str = "apiVersion: kubegc.io/v1alpha1\nkind: RetentionPolicy\nmetadata: {name: old}\n\
        spec: {target: {apiVersion: v1, kind: ConfigMap}, maxAge: 24h}\n";

    #[test]
    fn templates_are_policies_that_delete_nothing_yet() {
        for (template, name) in [
            (Template::PreviewNamespaces, None),
            (Template::FailedPods, Some("mine".to_owned())),
            (Template::ConfigHistory, Some("a: b".to_owned())),
        ] {
            let expected = name.clone().unwrap_or_else(|| template.name().to_owned());
            let text = from_template(&NewOptions { template, name });
            let objects = documents(&text).unwrap();
            let mut out = String::new();
            assert_eq!(check(&objects[0], &mut out), 0, "{out}");
            assert_eq!(
                (name_of(&objects), &objects[0]["spec"]["enforce"]),
                (&*expected, &Value::Bool(false))
            );
        }
    }

    fn name_of(objects: &[Value]) -> &str {
        assert_eq!(objects.len(), 1);
        name(&objects[0])
    }

    #[test]
    fn each_fault_has_a_line_with_its_place() {
        for (text, lines) in [
            (GOOD.to_owned(), "old: understood\n"),
            (
                GOOD.replace("24h", "1y").replace("name: old", "x: y"),
                "(no name): metadata.name: is required\n\
                 (no name): spec.maxAge: \"1y\" has the unknown unit \"y\"; expected one of ns, us, ms, s, m, h, d, w\n",
            ),
            (
                GOOD.replace("kind: RetentionPolicy", "kind: Retention").replace(", maxAge: 24h", ""),
                "old: kind: expected \"RetentionPolicy\", found \"Retention\"\n\
                 old: spec: at least one of keepNewest, maxAge and ttlAfter is required; without them nothing is due\n",
            ),
        ] {
            let mut out = String::new();
            for object in documents(&text).unwrap() {
                check(&object, &mut out);
            }
            assert_eq!(out, lines);
        }
        assert_eq!(documents(&format!("{GOOD}---\n---\n{GOOD}")).unwrap().len(), 2);
        assert!(documents("a: [").is_err());
    }
}
