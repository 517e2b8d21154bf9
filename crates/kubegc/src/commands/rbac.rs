//! `kubegc rbac`: prints the permissions that `kubegc run` needs, as manifests. deploy/run is this command's output; a test
//! compares them.

use std::fmt::Write as _;
use std::io::Write as _;

use clap::Args;
use gc_collectors::permissions::{self, NeededRule};
use gc_ownership::Shard;
use gc_process::UsageError;
use gc_process::lease::LeaseName;

use super::run::DEFAULT_CONTROLLERS;

/// Options of `kubegc rbac`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Grant what these collectors need, named as for `kubegc run`
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = DEFAULT_CONTROLLERS,
          allow_hyphen_values = true)]
    controllers: Vec<String>,
    /// Grant the Events about deletions, as for `kubegc run`
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = clap::ArgAction::Set)]
    deletion_events: bool,
    /// Grant instead what the agents of nodes need for policies (`kubegc node --policies`), beside deploy/node/daemonset.yaml
    #[arg(long, conflicts_with_all = ["controllers", "deletion_events"])]
    node_policies: bool,
    /// Grant what --garbage-metrics-interval of `kubegc run` needs: lists of everything
    #[arg(long)]
    garbage_metrics: bool,
    /// Grant the Leases of this many shards (--shard of `kubegc run`)
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = shard_count)]
    shards: u32,
    /// Name of the ServiceAccount, and of its roles and bindings
    #[arg(long, value_name = "NAME", default_value = "kubegc")]
    name: String,
    /// Namespace of the ServiceAccount
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    namespace: String,
    /// Name of the Lease
    #[arg(long, value_name = "NAME", default_value = "kubegc-garbage-collector")]
    leader_elect_resource_name: String,
    /// Namespace of the Lease
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    leader_elect_resource_namespace: String,
}

/// Rules that the protection of metrics and pages needs.
const PAGES_RULES: &str = "\
# Whose token it is and what its user may read: for the page, and for metrics on an address other than loopback.
- apiGroups: [\"authentication.k8s.io\"]
  resources: [\"tokenreviews\"]
  verbs: [\"create\"]
- apiGroups: [\"authorization.k8s.io\"]
  resources: [\"subjectaccessreviews\"]
  verbs: [\"create\"]
";

/// Prints the manifests.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if options.node_policies {
        std::io::stdout().write_all(of_agents(options).as_bytes())?;
        return Ok(());
    }
    let enabled = permissions::enabled(&options.controllers)
        .map_err(|error| UsageError::new(format!("--controllers: {error}")))?;
    let events = options.deletion_events.then_some(&permissions::DELETION_EVENTS);
    let garbage = options.garbage_metrics.then_some(&permissions::LOOK_FOR_GARBAGE);
    let rules = permissions::needed_with(&enabled, events.into_iter().chain(garbage));
    std::io::stdout().write_all(manifests(options, &rules).as_bytes())?;
    Ok(())
}

/// Returns the permissions that the agents of nodes need for policies: to read them, and to write results into their status.
fn of_agents(options: &Options) -> String {
    let Options { name, namespace, .. } = options;
    format!(
        "# For --policies (docs/node-policy.md), beside the rights of daemonset.yaml: the output of\n\
         # `kubegc rbac --node-policies --namespace {namespace}`.\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: {name}-node-policies\nrules:\n\
         - apiGroups: [\"kubegc.io\"]\n  resources: [\"nodecollectionpolicies\"]\n  verbs: [\"list\"]\n\
         - apiGroups: [\"kubegc.io\"]\n  resources: [\"nodecollectionpolicies/status\"]\n  verbs: [\"patch\"]\n\
         ---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata:\n  name: {name}-node-policies\n\
         roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: ClusterRole\n  name: {name}-node-policies\n\
         subjects:\n- kind: ServiceAccount\n  name: {name}-node\n  namespace: {namespace}\n"
    )
}

fn shard_count(text: &str) -> Result<u32, String> {
    let count = text.parse::<u32>().map_err(|error| error.to_string())?;
    Shard::new(0, count).map(Shard::count).map_err(|error| error.to_string())
}

/// Returns the names of the Leases: that with the orders, and one for each shard.
fn leases(options: &Options) -> Vec<String> {
    let lease = LeaseName {
        namespace: options.leader_elect_resource_namespace.clone(),
        name: options.leader_elect_resource_name.clone(),
    };
    let shards = (0..options.shards).filter_map(|index| Shard::new(index, options.shards).ok());
    let of_shards = shards.filter(|shard| !shard.is_whole()).map(|shard| lease.of_shard(shard).name);
    std::iter::once(lease.name.clone()).chain(of_shards).collect()
}

fn manifests(options: &Options, rules: &[NeededRule]) -> String {
    let Options { name, namespace, .. } = options;
    let leases = leases(options);
    let lease_namespace = &options.leader_elect_resource_namespace;
    let mut text =
        String::from("# What `kubegc run` asks for, and nothing else: the output of `kubegc rbac`.\n");
    text.push_str("apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n");
    let _ = writeln!(text, "  name: {name}\nrules:"); // writing to a String cannot fail, here and below
    for NeededRule { group, resource, names, verbs } in rules {
        let _ = writeln!(text, "- apiGroups: [\"{group}\"]\n  resources: [\"{resource}\"]");
        if !names.is_empty() {
            let _ = writeln!(text, "  resourceNames: {names:?}");
        }
        let _ = writeln!(text, "  verbs: {verbs:?}");
    }
    text.push_str(PAGES_RULES);
    // Reading orders from the Lease, and recording trips of the breaker there, needs these verbs; a rule for `*` may grant some of
    // them.
    let everywhere = rules.iter().find(|rule| (rule.group, rule.resource) == ("*", "*"));
    let is_granted = |verb: &&str| everywhere.is_some_and(|star| star.verbs.contains(verb));
    let mut lease_verbs = vec!["get", "update"];
    lease_verbs.extend(["list", "patch", "watch"].into_iter().filter(|verb| !is_granted(verb)));
    let writes_events = rules.iter().any(|rule| (rule.group, rule.resource) == ("", "events"));
    let events = if writes_events {
        ""
    } else {
        "- apiGroups: [\"\"]\n  resources: [\"events\"]\n  verbs: [\"create\"]\n"
    };
    let subject = format!("subjects:\n- kind: ServiceAccount\n  name: {name}\n  namespace: {namespace}\n");
    let _ = write!(
        text,
        "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata:\n  name: {name}\n\
         roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: ClusterRole\n  name: {name}\n{subject}\
         ---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata:\n  name: {name}-leader-election\n  \
         namespace: {lease_namespace}\nrules:\n\
         # A request to create has no name yet, so that this cannot be narrowed to one.\n\
         - apiGroups: [\"coordination.k8s.io\"]\n  resources: [\"leases\"]\n  verbs: [\"create\"]\n\
         - apiGroups: [\"coordination.k8s.io\"]\n  resources: [\"leases\"]\n  resourceNames: {leases:?}\n  \
         verbs: {lease_verbs:?}\n{events}\
         ---\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata:\n  name: {name}-leader-election\n  \
         namespace: {lease_namespace}\n\
         roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: Role\n  name: {name}-leader-election\n{subject}"
    );
    text
}
