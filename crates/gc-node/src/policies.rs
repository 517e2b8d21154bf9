//! Policies of the cluster for this node: those that select it, the one in force, and its results in their status (spec
//! `node-gc.md`, section 23).

use std::collections::BTreeMap;
use std::hash::Hasher as _;

use anyhow::{Context as _, Result, ensure};
use fnv::FnvHasher;
use gc_collectors::node_policies::result::{MOST_NODES, NodeResult, State};
use gc_collectors::node_policies::{
    ImageSettings, KIND, ListedPolicy, Moment, NodePolicy, RESOURCE, Role, roles,
};
use gc_collectors::policies::{GROUP, VERSION};
use gc_kube::{ApiClient, push_segment};
use gc_types::Timestamp;
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use tracing::{debug, info, warn};

use crate::config::NodeConfig;
use crate::requests::{APPLY, JSON_PATCH, exchange, list, node_target, read};

/// Maximum number of policies in a cluster.
const MAX_POLICIES: usize = 100;
/// Maximum length of a field manager's name that servers accept, without our prefix.
const LONGEST_MANAGER: usize = 100;
/// Field manager of fields that do not concern a single node.
const SHARED_MANAGER: &str = "kubegc-nodes";

/// Describes how the configuration of this node's kubelet disagrees with settings of the agent.
pub type CheckKubelet = Box<dyn Fn(&NodeConfig) -> Vec<String> + Send + Sync>;

/// A policy of the cluster, with its status.
struct Listed {
    uid: String,
    generation: i64,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    nodes: Vec<NodeResult>,
    truncated: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PolicyObject {
    metadata: Metadata,
    spec: Value,
    /// Status, parsed separately: one that cannot be parsed does not hide its policy.
    status: Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: String,
    uid: String,
    generation: i64,
}

/// Knowledge about the policies, as of the last answer.
pub(crate) struct Policies {
    client: ApiClient,
    node: String,
    pub(crate) check_kubelet: CheckKubelet,
    /// Settings of the node itself.
    pub(crate) own: ImageSettings,
    listed: Vec<Listed>,
    compiled: Vec<ListedPolicy>,
    labels: BTreeMap<String, String>,
    /// Reason why the policies are not known; `None` once they were listed.
    unknown: Option<String>,
    /// Failure that was last logged.
    logged: Option<String>,
    /// Policy in force that was last logged.
    in_force: Option<String>,
    has_warned: bool,
}

impl Policies {
    pub(crate) fn new(
        client: ApiClient,
        node: String,
        own: ImageSettings,
        check_kubelet: CheckKubelet,
    ) -> Self {
        Self {
            client,
            node,
            check_kubelet,
            own,
            listed: Vec::new(),
            compiled: Vec::new(),
            labels: BTreeMap::new(),
            unknown: Some("they were not asked for yet".to_owned()),
            logged: None,
            in_force: None,
            has_warned: false,
        }
    }

    /// Returns the reason why the policies are unknown if they never were known since the start.
    pub(crate) fn unknown(&self) -> Option<&str> {
        self.unknown.as_deref()
    }

    /// Lists the policies, and reads the labels of this node. If this fails, the last answer counts.
    pub(crate) async fn refresh(&mut self) {
        match self.ask().await {
            Ok((labels, objects)) => {
                (self.unknown, self.logged) = (None, None);
                self.labels = labels;
                self.compiled = objects.iter().map(compiled).collect();
                self.listed = objects.into_iter().map(listed).collect();
            }
            Err(error) => {
                let why = format!("{error:#}");
                if self.logged.as_ref() != Some(&why) {
                    warn!("it is not known which policies there are for this node: {why}");
                }
                self.unknown = self.unknown.take().map(|_| why.clone());
                self.logged = Some(why);
            }
        }
    }

    async fn ask(&self) -> Result<(BTreeMap<String, String>, Vec<PolicyObject>)> {
        let node = read(&self.client, &node_target(&self.node)).await?;
        let node = node.with_context(|| format!("there is no Node {:?}", self.node))?;
        let labels = node["metadata"]["labels"].clone();
        let labels = if labels.is_null() { BTreeMap::new() } else { serde_json::from_value(labels)? };
        // A server without the definition has no policies.
        let query = format!("limit={}", MAX_POLICIES + 1);
        let list = list(&self.client, (GROUP, VERSION, RESOURCE, KIND), &query).await?;
        let Some(list) = list else { return Ok((labels, Vec::new())) };
        let objects: Vec<PolicyObject> =
            serde_json::from_value(list["items"].clone()).context("cannot read the policies")?;
        let more = list["metadata"]["continue"].as_str().is_some_and(|token| !token.is_empty());
        ensure!(!more && objects.len() <= MAX_POLICIES, "there are more than {MAX_POLICIES} policies");
        Ok((labels, objects))
    }

    /// Returns the roles of the policies on this node.
    pub(crate) fn roles(&self) -> Vec<(&str, Role<'_>)> {
        roles(&self.compiled, &self.labels)
    }

    /// Returns the settings of this node: its own, or those of the policy in force.
    pub(crate) fn settings(&mut self, now: Timestamp) -> ImageSettings {
        let found = self.roles().into_iter().find_map(|(name, role)| match role {
            Role::Enforced(policy) => Some((name.to_owned(), policy.applied_to(&self.own, Moment::At(now)))),
            _ => None,
        });
        let (name, settings) = match found {
            Some((name, Ok(settings))) => (Some(name), settings),
            // The result of the policy reports the error.
            Some((_, Err(_))) | None => (None, self.own.clone()),
        };
        if self.in_force != name {
            match &name {
                Some(name) => info!(policy = name, "a policy is in force on this node"),
                None => info!("no policy is in force on this node"),
            }
            self.in_force = name;
        }
        settings
    }

    /// Returns the policies in a dry run, each with the settings that it would give this node, or the reason why it cannot.
    pub(crate) fn dry_runs(&self) -> Vec<(String, Result<ImageSettings, String>)> {
        let dry = |(name, role): (&str, Role<'_>)| match role {
            Role::DryRun(policy) => Some((name.to_owned(), policy.applied_to(&self.own, Moment::InAWindow))),
            _ => None,
        };
        self.roles().into_iter().filter_map(dry).collect()
    }

    /// Returns a result for each policy that concerns this node, without figures.
    pub(crate) fn blank_results(&self, now: Timestamp) -> BTreeMap<String, NodeResult> {
        let time = jiff::Timestamp::from_millisecond(now.0).unwrap_or_default();
        let blank = |(name, role): (&str, Role<'_>)| {
            let (state, message) = match role {
                Role::DryRun(_) => (State::DryRun, String::new()),
                Role::Enforced(policy) => self.of_enforced(policy, now),
                Role::Superseded(by) => (State::Superseded, format!("{by} is in force")),
                Role::Invalid(why) => (State::Invalid, why.to_owned()),
            };
            let result = NodeResult {
                node: self.node.clone(),
                state,
                observed_generation: self.listed(name).map_or(0, |listed| listed.generation),
                time: time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
                message,
                ..NodeResult::default()
            };
            (name.to_owned(), result)
        };
        self.roles().into_iter().map(blank).collect()
    }

    fn of_enforced(&self, policy: &NodePolicy, now: Timestamp) -> (State, String) {
        match policy.applied_to(&self.own, Moment::At(now)) {
            Err(why) => (State::Invalid, why),
            Ok(_) if policy.is_open(Moment::At(now)) => (State::Enforced, String::new()),
            Ok(_) => (State::Enforced, "outside its windows: images go for space only".to_owned()),
        }
    }

    fn listed(&self, name: &str) -> Option<&Listed> {
        let place = self.compiled.iter().position(|one| *one.name == *name)?;
        self.listed.get(place)
    }

    /// Writes the results that have changed, removes this node's entries where it has no result any more, and removes one entry
    /// that its node has not renewed for a day. The next pass repairs a failure.
    pub(crate) async fn report(&mut self, results: &BTreeMap<String, NodeResult>, now: Timestamp) {
        let mut failure = None;
        for (policy, listed) in self.compiled.iter().zip(&self.listed) {
            let done = self.report_one(&policy.name, listed, results.get(&*policy.name), now).await;
            if let Err(error) = done {
                failure.get_or_insert(format!("{}: {error:#}", policy.name));
            }
        }
        match failure {
            None => self.has_warned = false,
            Some(why) if std::mem::replace(&mut self.has_warned, true) => {
                debug!("a result was not written: {why}");
            }
            Some(why) => warn!("the result of a policy was not written into its status: {why}"),
        }
    }

    async fn report_one(
        &self,
        name: &str,
        listed: &Listed,
        result: Option<&NodeResult>,
        now: Timestamp,
    ) -> Result<()> {
        let nodes = &listed.status.nodes;
        let own = nodes.iter().find(|one| one.node == self.node);
        let is_full = nodes.len() >= MOST_NODES;
        match (result, own) {
            (None, None) => {}
            (None, Some(_)) => {
                self.apply(name, listed, &self.manager(), json!({})).await?;
            }
            (Some(result), Some(before)) if result.adds_nothing_to(before) => {}
            (Some(_), None) if is_full => self.set_truncated(name, listed, true).await?,
            (Some(result), _) => {
                let status = json!({"nodes": [result]});
                let code = self.apply(name, listed, &self.manager(), status).await?;
                // Other nodes were faster.
                if code == StatusCode::UNPROCESSABLE_ENTITY && own.is_none() {
                    self.set_truncated(name, listed, true).await?;
                } else {
                    ensure!(code.is_success(), "{code}");
                    if !is_full {
                        self.set_truncated(name, listed, false).await?;
                    }
                }
            }
        }
        let forgotten = nodes.iter().position(|one| one.node != self.node && one.is_forgotten(now));
        if let Some(place) = forgotten {
            self.forget(name, place, &nodes[place]).await?;
        }
        Ok(())
    }

    async fn set_truncated(&self, name: &str, listed: &Listed, truncated: bool) -> Result<()> {
        if listed.status.truncated == truncated {
            return Ok(());
        }
        self.apply(name, listed, SHARED_MANAGER, json!({"truncated": truncated})).await.map(|_| ())
    }

    /// Applies the part of a status that a manager owns by server-side apply: either only entries of this node, or only shared
    /// fields.
    async fn apply(&self, name: &str, listed: &Listed, manager: &str, status: Value) -> Result<StatusCode> {
        let mut path = status_path(name);
        path.push_str("?force=true&fieldManager=");
        push_segment(&mut path, manager);
        // The UID keeps the entry from the status of a policy that was created again.
        let object = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": KIND,
            "metadata": {"name": name, "uid": listed.uid}, "status": status,
        });
        let (code, answer) = exchange(&self.client, Method::PATCH, &path, APPLY, &object).await?;
        let is_expected = code.is_success() || code == StatusCode::UNPROCESSABLE_ENTITY;
        ensure!(is_expected, "{code} {}", answer["message"].as_str().unwrap_or_default());
        Ok(code)
    }

    /// Removes an entry that is still as listed.
    async fn forget(&self, name: &str, place: usize, entry: &NodeResult) -> Result<()> {
        let at = |field: &str| format!("/status/nodes/{place}{field}");
        let patch = json!([
            {"op": "test", "path": at("/node"), "value": entry.node},
            {"op": "test", "path": at("/time"), "value": entry.time},
            {"op": "remove", "path": at("")},
        ]);
        let (code, answer) =
            exchange(&self.client, Method::PATCH, &status_path(name), JSON_PATCH, &patch).await?;
        // Other nodes see the entry as well, and one of them is first.
        let is_done = code.is_success() || code == StatusCode::UNPROCESSABLE_ENTITY;
        ensure!(is_done, "{code} {}", answer["message"].as_str().unwrap_or_default());
        Ok(())
    }

    /// Returns the field manager of this node. Long names are shortened but stay distinct.
    fn manager(&self) -> String {
        manager(&self.node)
    }
}

fn manager(node: &str) -> String {
    if node.len() <= LONGEST_MANAGER {
        return format!("kubegc-node-{node}");
    }
    // The name of a manager outlives the process and this version, so its hash must stay the same.
    let mut hash = FnvHasher::default();
    hash.write(node.as_bytes());
    let start: String = node.chars().take(LONGEST_MANAGER - 20).collect();
    format!("kubegc-node-{start}-{:016x}", hash.finish())
}

fn collection() -> String {
    format!("/apis/{GROUP}/{VERSION}/{RESOURCE}")
}

fn status_path(name: &str) -> String {
    let mut path = collection();
    path.push('/');
    push_segment(&mut path, name);
    path.push_str("/status");
    path
}

fn compiled(object: &PolicyObject) -> ListedPolicy {
    let policy = NodePolicy::compile(&object.spec).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        problems.join("; ")
    });
    ListedPolicy { name: object.metadata.name.as_str().into(), policy }
}

fn listed(object: PolicyObject) -> Listed {
    let Metadata { uid, generation, .. } = object.metadata;
    Listed { uid, generation, status: serde_json::from_value(object.status).unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managers_of_nodes_differ() {
        let long = |end: &str| format!("{}{end}", "n".repeat(240));
        let [a, b] = ["a", "b"].map(|end| manager(&long(end)));
        assert_ne!(a, b);
        assert!(a.len() <= 128 && b.len() <= 128, "{a}");
        assert_eq!(manager("node-1"), "kubegc-node-node-1");
        // This manager owns entries that earlier versions have written.
        assert_eq!(&a[a.len() - 17..], "-62e49b238aa6c14c");
    }
}
