//! `kubegc policy check`: validates retention policies and shows what they would delete, before they are applied.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use gc_collectors::policies::engine::PolicyEngine;
use gc_collectors::policies::{GROUP, KIND, Policy, VERSION};
use gc_inspect::output::{self, Answer, Output};
use gc_inspect::target::{FileFlags, manifests};
use gc_kube::ApiClient;
use gc_kube::discovery::discover;
use gc_process::UsageError;
use gc_process::access::Access;
use gc_types::ResourceId;
use http::header::ACCEPT;
use http::{Method, Request};
use http_body_util::Full;
use serde_json::{Value, json};

const PAGE_SIZE: usize = 500;
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// Options of `kubegc policy`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Validate the policies in a file and show what they would delete; exits with 1 if a policy is invalid
    Check(Box<CheckOptions>),
    /// Print a new policy from a template; it deletes nothing until spec.enforce is set to true
    #[command(arg_required_else_help = true)]
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

/// Purpose of a new policy.
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

/// Returns a new policy as YAML.
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
    group = clap::ArgGroup::new("policies").required(true).args(["files", "filenames"]),
    after_help = "\
Examples:
  kubegc policy check policy.yaml                             validate the policies in a file
  kubegc policy check policy.yaml --kubeconfig FILE           show also what they would delete
  kubegc policy new failed-pods | kubegc policy check -f -    validate standard input

With one of --kubeconfig, --context, --cluster, --user and --token, it also shows what would be deleted from this cluster now, without changing anything."
)]
pub(crate) struct CheckOptions {
    /// File with RetentionPolicies, as YAML or JSON; - is standard input
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    manifests: FileFlags,
    /// Output format: text, wide, name, json, yaml, jsonpath=…, custom-columns=…
    #[arg(short, long, default_value = "text")]
    output: Output,
    #[command(flatten)]
    access: Access,
}

/// A policy is invalid, as the output already says: exit code 1.
#[derive(Debug, thiserror::Error)]
#[error("a policy is invalid")]
pub(crate) struct InvalidPolicy;

/// Runs a `policy` subcommand.
pub(crate) fn run(command: &PolicyCommand) -> anyhow::Result<()> {
    let options = match command {
        PolicyCommand::Check(options) => options,
        PolicyCommand::New(options) => {
            std::io::stdout().write_all(from_template(options).as_bytes())?;
            return Ok(());
        }
    };
    let mut checked = CheckedPolicies::default();
    for file in options.files.iter().chain(&options.manifests.filenames) {
        let policies = manifests(file)?;
        if policies.is_empty() {
            return Err(UsageError::new(format!("{}: contains no {KIND}", file.display())).into());
        }
        checked.policies.extend(policies.into_iter().map(CheckedPolicy::of));
    }
    if checked.is_valid() && options.access.names_a_cluster() {
        gc_process::tasks::block_on(async {
            let client = options.access.connect().await?;
            for policy in &mut checked.policies {
                policy.preview = preview(&client, &policy.object).await?;
            }
            anyhow::Ok(())
        })?;
    }
    output::print(&checked, &options.output)?;
    if checked.is_valid() { Ok(()) } else { Err(InvalidPolicy.into()) }
}

/// The policies of the files, in order.
#[derive(Debug, Default)]
pub(crate) struct CheckedPolicies {
    policies: Vec<CheckedPolicy>,
}

#[derive(Debug)]
struct CheckedPolicy {
    object: Value,
    /// Errors, each with its field.
    errors: Vec<String>,
    /// Status that the policy would have in the cluster.
    preview: Option<Value>,
}

impl CheckedPolicy {
    fn of(object: Value) -> Self {
        let mut errors: Vec<String> = Vec::new();
        let expected = format!("{GROUP}/{VERSION}");
        for (field, expected) in [("apiVersion", expected.as_str()), ("kind", KIND)] {
            if object[field] != expected {
                errors.push(format!("{field}: expected {expected:?}, found {}", object[field]));
            }
        }
        if object["metadata"]["name"].as_str().is_none_or(str::is_empty) {
            errors.push("metadata.name: is required".to_owned());
        }
        if let Err(problems) = Policy::compile(&object["spec"]) {
            errors.extend(problems.iter().map(ToString::to_string));
        }
        Self { object, errors, preview: None }
    }

    fn name(&self) -> &str {
        name(&self.object)
    }

    fn write(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        for error in &self.errors {
            writeln!(out, "{}: {error}", self.name())?;
        }
        if self.errors.is_empty() {
            writeln!(out, "{}: valid", self.name())?;
        }
        let Some(status) = &self.preview else { return Ok(()) };
        writeln!(
            out,
            "{}: {} selected, {} due now, {} kept by annotation, {} unclear",
            self.name(),
            status["selected"],
            status["due"],
            status["kept"],
            status["unclear"]
        )?;
        for example in status["examples"].as_array().into_iter().flatten() {
            let text = |field: &str| example[field].as_str().unwrap_or_default();
            let namespace = if text("namespace").is_empty() { "" } else { "/" };
            writeln!(out, "  {}{namespace}{}: {}", text("namespace"), text("name"), text("why"))?;
        }
        Ok(())
    }
}

impl CheckedPolicies {
    /// Checks the policies of a text, with this status as the preview of the first.
    #[cfg(test)]
    fn with_preview(text: &str, status: Value) -> Self {
        let policies: Vec<Value> = gc_process::yaml::from_multiple(text).unwrap_or_default();
        let mut policies: Vec<CheckedPolicy> = policies.into_iter().map(CheckedPolicy::of).collect();
        policies[0].preview = Some(status);
        Self { policies }
    }

    fn is_valid(&self) -> bool {
        self.policies.iter().all(|policy| policy.errors.is_empty())
    }
}

impl Answer for CheckedPolicies {
    fn value(&self) -> Value {
        let item = |policy: &CheckedPolicy| {
            let (name, is_valid) = (policy.name(), policy.errors.is_empty());
            json!({"name": name, "valid": is_valid, "errors": policy.errors, "preview": policy.preview})
        };
        json!({"items": self.policies.iter().map(item).collect::<Vec<_>>()})
    }

    fn text(&self, _is_wide: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        self.policies.iter().try_for_each(|policy| policy.write(out))?;
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        self.policies.iter().map(|policy| format!("retentionpolicies.{GROUP}/{}", policy.name())).collect()
    }
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or("(no name)")
}

/// Returns the status that a policy would have now, as computed by the engine that applies it in a cluster.
async fn preview(client: &ApiClient, object: &Value) -> anyhow::Result<Option<Value>> {
    let mut engine = PolicyEngine::new(object, ResourceId(0));
    let Some(policy) = engine.policy().cloned() else { return Ok(None) };
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
    Ok(Some(engine.status(&Value::Null, now)))
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

    /// Checks the policies of a file with this text.
    fn checked(text: &str) -> CheckedPolicies {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        CheckedPolicies {
            policies: manifests(file.path()).unwrap().into_iter().map(CheckedPolicy::of).collect(),
        }
    }

    fn text(checked: &CheckedPolicies) -> String {
        let mut out = Vec::new();
        checked.text(false, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn templates_are_policies_that_delete_nothing_yet() {
        for (template, name) in [
            (Template::PreviewNamespaces, None),
            (Template::FailedPods, Some("mine".to_owned())),
            (Template::ConfigHistory, Some("a: b".to_owned())),
        ] {
            let expected = name.clone().unwrap_or_else(|| template.name().to_owned());
            let checked = checked(&from_template(&NewOptions { template, name }));
            let enforced: Vec<&Value> =
                checked.policies.iter().map(|policy| &policy.object["spec"]["enforce"]).collect();
            assert_eq!(
                (text(&checked), enforced),
                (format!("{expected}: valid\n"), vec![&Value::Bool(false)])
            );
        }
    }

    #[test]
    fn each_error_has_a_line_with_its_place() {
        for (policy, lines) in [
            (GOOD.to_owned(), "old: valid\n"),
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
            (format!("{GOOD}---\n---\n{GOOD}"), "old: valid\nold: valid\n"),
        ] {
            assert_eq!(text(&checked(&policy)), lines);
        }
    }

    #[test]
    fn answers_are_data_as_well() {
        let status = json!({"selected": 2, "due": 1, "kept": 0, "unclear": 0,
            "examples": [{"namespace": "shop", "name": "a", "why": "older than 24h"}]});
        let text_of_both = format!("{GOOD}---\n{}", GOOD.replace("24h", "1y"));
        let checked = CheckedPolicies::with_preview(&text_of_both, status.clone());
        let error =
            "spec.maxAge: \"1y\" has the unknown unit \"y\"; expected one of ns, us, ms, s, m, h, d, w";
        assert_eq!(
            checked.value(),
            json!({"items": [
                {"name": "old", "valid": true, "errors": [], "preview": status},
                {"name": "old", "valid": false, "errors": [error], "preview": null},
            ]})
        );
        assert_eq!(checked.names(), ["retentionpolicies.kubegc.io/old", "retentionpolicies.kubegc.io/old"]);
        assert_eq!(
            text(&checked),
            format!(
                "old: valid\nold: 2 selected, 1 due now, 0 kept by annotation, 0 unclear\n  shop/a: older than 24h\n\
                 old: {error}\n"
            )
        );
    }

    #[test]
    fn checked_policies_look_as_they_should() {
        let checked = CheckedPolicies::with_preview(
            "metadata: {name: failed-pods}\napiVersion: kubegc.io/v1alpha1\nkind: RetentionPolicy\n\
             spec: {target: {apiVersion: v1, kind: Pod}, maxAge: 7d}\n---\n\
             metadata: {name: wrong}\napiVersion: kubegc.io/v1alpha1\nkind: RetentionPolicy\nspec: {maxage: 7d}\n",
            json!({"selected": 2, "due": 1, "kept": 0, "unclear": 0, "examples": [
                {"namespace": "shop", "name": "web-1", "why": "older than 7d"}]}),
        );
        insta::assert_snapshot!("policy_check", output::screens(&checked).unwrap());
    }
}
