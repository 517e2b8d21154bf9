//! `kubegc protect`: has the API server refuse deletions that must not happen, for every client.

mod kinds;
#[cfg(test)]
mod tests;

use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use gc_explain::protect::{COUNTED, COUNTED_AT, COUNTS, Counted, Counting, MARK, Rule, Status};
use gc_explain::text::count;
use gc_inspect::gather::{self, Gatherer};
use gc_inspect::output::{self, Answer, Output};
use gc_inspect::protect as reading;
use gc_inspect::target::{NamedObject, Targets};
use gc_kube::ApiClient;
use gc_process::access::Access;
use gc_process::screen::{complain, stdout};
use gc_process::table::Table;
use gc_process::tasks::block_on;
use gc_process::{UsageError, preflight, reviews};
use http::StatusCode;
use serde_json::{Value, json};

/// Field manager of everything this command writes.
const FIELD_MANAGER: &str = "kubegc-protect";
/// The resource of the rules.
const POLICIES: &str = "validatingadmissionpolicies.admissionregistration.k8s.io";
/// Maximum length of a reason, in bytes.
const LONGEST_REASON: usize = 500;
/// Maximum number of protected objects named.
const NAMED: usize = 20;

/// Options of `kubegc protect`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubegc protect                                        show the rules of the server, and whether they are enforced
  kubegc protect ns/prod pvc/data --reason 'only copy'  protect these objects
  kubegc protect pvc/data --remove                      end their protection
  kubegc protect --marked --volumes --yes               write the rules about marked objects, and about bound claims and volumes
  kubegc protect --definitions --namespaces --yes       count now, and protect definitions with objects and namespaces that are not empty
  kubegc protect --owners-above 50 --yes                count now, and protect owners of more than 50 dependents
  kubegc protect --kinds secrets,pvc --in prod --yes    protect kinds in namespaces
  kubegc protect --marked -o yaml                       print the manifests

The rules are ValidatingAdmissionPolicies: there is nothing to keep running, and they hold for every client. The annotation kubegc.io/protect=false exempts one object from every rule.")]
pub(crate) struct ProtectOptions {
    #[command(flatten)]
    targets: Targets,
    /// Why the objects must not be deleted; the server says it to whoever tries
    #[arg(long, value_name = "TEXT", default_value = "it must not be deleted")]
    reason: String,
    /// End the protection of the objects
    #[arg(long, conflicts_with = "reason")]
    remove: bool,
    #[command(flatten)]
    rules: RuleFlags,
    /// Write the rules; without it they are only shown
    #[arg(short, long)]
    yes: bool,
    /// Output format: text, json, yaml, name, jsonpath=…, custom-columns=…
    #[arg(short, long, default_value = "text")]
    output: Output,
    #[command(flatten)]
    access: Access,
}

/// Which rules.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Rules")]
struct RuleFlags {
    /// Refuse the deletion of objects with the annotation or label kubegc.io/protect
    #[arg(long)]
    marked: bool,
    /// Refuse the deletion of claims and volumes while they are bound
    #[arg(long)]
    volumes: bool,
    /// Refuse the deletion of definitions that have objects, as counted now
    #[arg(long)]
    definitions: bool,
    /// Refuse the deletion of namespaces that are not empty, as counted now
    #[arg(long)]
    namespaces: bool,
    /// Refuse the deletion of owners of more dependents than this, as counted now
    #[arg(long, value_name = "NUMBER")]
    owners_above: Option<usize>,
    /// Refuse the deletion of objects of these kinds
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    kinds: Vec<String>,
    /// With --kinds, only in these namespaces
    #[arg(long = "in", value_name = "NAMESPACES", value_delimiter = ',', requires = "kinds")]
    namespaces_of_kinds: Vec<String>,
    /// With --kinds, the name of the rule, of which there may be several
    #[arg(long = "name", value_name = "NAME", requires = "kinds", default_value = "default")]
    name_of_kinds: String,
}

impl RuleFlags {
    fn counting(&self) -> Counting {
        Counting {
            definitions: self.definitions,
            namespaces: self.namespaces,
            owners_above: self.owners_above,
        }
    }

    fn rules(&self, gatherer: &Gatherer) -> anyhow::Result<Vec<Rule>> {
        let mut rules = Vec::new();
        rules.extend(self.marked.then_some(Rule::Marked));
        rules.extend(self.volumes.then_some(Rule::Volumes));
        rules.extend((!self.counting().is_empty()).then_some(Rule::Counted));
        if !self.kinds.is_empty() {
            rules.push(kinds::rule(
                &self.name_of_kinds,
                &self.kinds,
                &self.namespaces_of_kinds,
                &gatherer.catalog,
            )?);
        }
        Ok(rules)
    }
}

/// `kubegc protect`
pub(crate) fn run(options: &ProtectOptions) -> anyhow::Result<()> {
    let patience = options.access.patience()?;
    block_on(async {
        let client = options.access.connect().await?;
        let gatherer = Gatherer::new(client.clone(), gather::clock(&client).await).await?;
        let rules = options.rules.rules(&gatherer)?;
        match (options.targets.is_given(), rules.is_empty()) {
            (true, true) => mark_all(options, &gatherer).await,
            (true, false) => Err(UsageError::new("protect either objects or rules at a time").into()),
            (false, false) => write_rules(options, &gatherer, rules, patience).await,
            (false, true) => show_rules(options, &gatherer).await,
        }
    })
}

/// Shows the rules that the server has.
async fn show_rules(options: &ProtectOptions, gatherer: &Gatherer) -> anyhow::Result<()> {
    let rules = reading::rules(gatherer, gatherer.now).await?;
    output::print(&RulesShown(rules), &options.output)
}

/// Sets or removes the mark on the objects.
async fn mark_all(options: &ProtectOptions, gatherer: &Gatherer) -> anyhow::Result<()> {
    if options.reason.len() > LONGEST_REASON
        || options.reason.contains(char::is_control)
        || options.reason.is_empty()
    {
        let why = format!("--reason: one line of 1 to {LONGEST_REASON} bytes");
        return Err(UsageError::new(why).into());
    }
    let client = gatherer.client();
    let mut named = options.targets.resolve(gatherer).await?;
    let mark = if options.remove {
        None
    } else {
        let user = reviews::own_name(client).await.unwrap_or_else(|| "a user".to_owned());
        let today = jiff::Timestamp::now().strftime("%Y-%m-%d");
        Some(format!("{} ({user}, {today})", options.reason))
    };
    let mut out = stdout();
    for one in &named.found {
        match set_mark(gatherer, one, mark.as_deref()).await {
            Ok(()) => {
                let what = if options.remove { "is no longer protected" } else { "is protected" };
                writeln!(out, "{}/{} {what}.", one.resource.name, one.name)?;
            }
            Err(error) => named.failures.push(error),
        }
    }
    let marked = Rule::Marked.name();
    let rules = reading::rules(gatherer, gatherer.now).await.unwrap_or_default();
    let is_enforced =
        rules.iter().any(|rule| rule.policy == marked && rule.faults.iter().all(|fault| !fault.is_open));
    if !options.remove && !is_enforced {
        complain!(
            "warning: the rule {marked} is not in place, and nothing refuses the deletion: kubegc protect --marked --yes"
        );
    }
    gather::fail(named.failures)
}

/// Sets or removes the mark on one object. Fails if the object has been replaced meanwhile.
async fn set_mark(gatherer: &Gatherer, named: &NamedObject, mark: Option<&str>) -> anyhow::Result<()> {
    let object = named.read(gatherer).await?;
    let mut metadata = json!({"uid": object["metadata"]["uid"], "annotations": {MARK: mark}});
    if mark.is_none() && !object["metadata"]["labels"][MARK].is_null() {
        metadata["labels"] = json!({MARK: null});
    }
    let mut path = gather::object_path(&named.resource, &named.namespace, &named.name);
    path.push_str("?fieldManager=");
    path.push_str(FIELD_MANAGER);
    let patch = json!({"metadata": metadata});
    send(gatherer.client(), &path, "application/merge-patch+json", &patch)
        .await
        .with_context(|| format!("{}/{}", named.resource.name, named.name))
}

/// Shows rules and writes them.
async fn write_rules(
    options: &ProtectOptions,
    gatherer: &Gatherer,
    rules: Vec<Rule>,
    patience: Duration,
) -> anyhow::Result<()> {
    let counting = options.rules.counting();
    let mut plan = Plan { rules, counts: None, counted: Vec::new(), is_written: options.yes };
    if !counting.is_empty() {
        let at = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let (found, unseen) = reading::count(gatherer, &counting, &at, patience).await?;
        gather::warn(unseen.as_slice());
        let (namespace, name) = COUNTS;
        let data: Value =
            found.iter().map(|(uid, one)| (uid.to_string(), Value::from(one.why.as_str()))).collect();
        plan.counts = Some(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": namespace, "name": name,
                "annotations": {COUNTED_AT: at, COUNTED: counting.flags()}},
            "data": data,
        }));
        plan.counted = found.into_values().collect();
    }
    // Write the counts first: a rule without them refuses nothing.
    if options.yes {
        for manifest in plan.manifests() {
            apply(gatherer, &manifest).await?;
        }
    }
    output::print(&plan, &options.output)
}

/// Applies a manifest.
async fn apply(gatherer: &Gatherer, manifest: &Value) -> anyhow::Result<()> {
    let text = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("/apiVersion"), text("/kind"));
    let resource = gatherer.catalog.of_kind(api_version, kind);
    let resource = resource.with_context(|| {
        format!("the server does not serve {kind} of {api_version}: Kubernetes 1.30 does")
    })?;
    let mut path = gather::object_path(resource, text("/metadata/namespace"), text("/metadata/name"));
    path.push_str("?force=true&fieldManager=");
    path.push_str(FIELD_MANAGER);
    send(gatherer.client(), &path, "application/apply-patch+yaml", manifest)
        .await
        .with_context(|| format!("{kind}/{}", text("/metadata/name")))
}

async fn send(
    client: &ApiClient,
    path: &str,
    content_type: &'static str,
    body: &Value,
) -> anyhow::Result<()> {
    let answer = client.call(preflight::patch(path, content_type, body)).await?;
    match answer.head.status {
        status if status.is_success() => Ok(()),
        StatusCode::CONFLICT => anyhow::bail!("it was replaced meanwhile: {}", preflight::message(&answer)),
        _ => anyhow::bail!("{}", preflight::message(&answer)),
    }
}

/// Rules that are written or would be written.
struct Plan {
    rules: Vec<Rule>,
    counts: Option<Value>,
    counted: Vec<Counted>,
    is_written: bool,
}

impl Plan {
    fn manifests(&self) -> Vec<Value> {
        let rules = self.rules.iter().flat_map(|rule| [rule.policy(), rule.binding()]);
        self.counts.iter().cloned().chain(rules).collect()
    }
}

impl Answer for Plan {
    fn value(&self) -> Value {
        json!({"apiVersion": "v1", "kind": "List", "items": self.manifests()})
    }

    fn text(&self, is_wide: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        for rule in &self.rules {
            let state = if self.is_written { "written" } else { "would be written (--yes writes it)" };
            writeln!(out, "{}: {state}", rule.name())?;
            for line in rule.explanation() {
                writeln!(out, "  {line}")?;
            }
        }
        if self.counts.is_none() {
            return Ok(());
        }
        writeln!(out, "\n{} protected by their numbers:", count(self.counted.len(), "object"))?;
        let shown = if is_wide { self.counted.len() } else { NAMED };
        for one in self.counted.iter().take(shown) {
            writeln!(out, "  {}: {}", one.title, one.why)?;
        }
        if self.counted.len() > shown {
            writeln!(out, "  … and {} more; -o wide lists them", self.counted.len() - shown)?;
        }
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        self.rules.iter().map(|rule| format!("{POLICIES}/{}", rule.name())).collect()
    }
}

/// The rules that a server has.
struct RulesShown(Vec<Status>);

impl Answer for RulesShown {
    fn value(&self) -> Value {
        let fault = |fault: &gc_explain::protect::Fault| json!({"open": fault.is_open, "message": fault.message, "command": fault.command});
        let rule = |rule: &Status| json!({"policy": rule.policy, "faults": rule.faults.iter().map(fault).collect::<Vec<_>>()});
        json!({"items": self.0.iter().map(rule).collect::<Vec<_>>()})
    }

    fn text(&self, _is_wide: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        if self.0.is_empty() {
            writeln!(
                out,
                "No rule of kubegc protect is in place.\n  try:       kubegc protect --marked --yes"
            )?;
            return Ok(());
        }
        let mut table = Table::new(&["RULE", "STATE"]);
        for rule in &self.0 {
            let state = match &rule.faults[..] {
                [] => "enforced".to_owned(),
                faults => faults.iter().map(|fault| fault.message.as_str()).collect::<Vec<_>>().join("; "),
            };
            table.row(vec![rule.policy.clone(), state]);
        }
        table.write(out)?;
        for fault in self.0.iter().flat_map(|rule| &rule.faults) {
            writeln!(out, "  try:       {}", fault.command)?;
        }
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        self.0.iter().map(|rule| format!("{POLICIES}/{}", rule.policy)).collect()
    }
}
