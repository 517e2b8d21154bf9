//! `kubegc tree`: what depends on an object.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use gc_answers::text::{age, count};
use gc_answers::{Known, Object, Survey};
use gc_ownership::{NodeView, Presence, Tree};
use gc_types::{ObjectKey, Timestamp, Uid};
use serde_json::{Value, json};

use super::access::Access;
use super::attached::{self, Asked, AttachFlags};
use super::gather::{self, Gatherer, Scope};
use super::output::{Answer, Output};
use super::target::{Named, Targets};
use super::why;
use crate::table::Table;

/// Objects that a tree shows at most.
const LARGEST_TREE: usize = 100_000;
/// Owners above one another that a tree shows at most.
const MAX_DEPTH: usize = 20;
/// Time between two answers of `--watch`.
const WATCH_PAUSE: Duration = Duration::from_secs(5);

/// Options of `kubegc tree`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubegc tree deploy/web              show what depends on a Deployment
  kubegc tree --owners pod/web-1      show what a pod depends on, up to the roots
  kubegc tree deploy/web --depth 1    fold what is below its ReplicaSets
  kubegc tree deploy/web -o mermaid   draw it")]
pub(crate) struct TreeOptions {
    #[command(flatten)]
    targets: Targets,
    /// Show owners up to the roots, in place of dependents
    #[arg(long)]
    owners: bool,
    /// Levels to show; what is below is counted [default: all]
    #[arg(long, value_name = "LEVELS")]
    depth: Option<usize>,
    /// Repeat every five seconds
    #[arg(short, long)]
    watch: bool,
    /// Output format: text, wide, name, json, yaml, jsonpath=…, custom-columns=…, dot, mermaid
    #[arg(short, long, default_value = "text")]
    output: Output,
    #[command(flatten)]
    attach: AttachFlags,
    #[command(flatten)]
    access: Access,
}

/// Trees of objects, with what holds each of them.
pub(super) struct Forest {
    trees: Vec<Tree>,
    finalizers: BTreeMap<ObjectKey, Vec<String>>,
    /// Since when objects are being deleted.
    deleted: BTreeMap<ObjectKey, Timestamp>,
    now: Timestamp,
    /// Whether the trees lead to owners.
    owners: bool,
    depth: Option<usize>,
}

/// `kubegc tree`
pub(crate) fn tree(options: &TreeOptions) -> anyhow::Result<()> {
    let patience = options.access.patience()?;
    crate::tasks::block_on(async {
        let client = options.access.connect().await?;
        loop {
            let gatherer = Gatherer::new(client.clone(), gather::now()).await?;
            let named = options.targets.resolve(&gatherer).await?;
            let question = || Asked::Tree {
                objects: attached::subjects(&named),
                owners: options.owners,
                depth: options.depth,
            };
            match options.attach.ask(&options.access, &client, &options.output, question).await? {
                Some(answer) => {
                    gather::warn(&answer.unseen);
                    super::output::print(&answer, &options.output)?;
                }
                None => {
                    let mut forest = Forest::of(gatherer.now, options.owners, options.depth);
                    for named in &named {
                        gather::warn(forest.add(&gatherer, named, patience).await?.as_slice());
                    }
                    super::output::print(&forest, &options.output)?;
                }
            }
            if !options.watch {
                return anyhow::Ok(());
            }
            tokio::time::sleep(WATCH_PAUSE).await;
            println!();
        }
    })
}

/// An object with its owners in the place of dependents, each once: one that is shown elsewhere counts as left out.
fn owners_of(survey: &Survey, uid: &Uid, depth: usize, seen: &mut BTreeSet<Uid>) -> Option<Tree> {
    let node = survey.engine.view_of(uid)?;
    let references = survey.engine.why(uid).into_iter().flat_map(|why| why.references);
    let owners: Vec<Uid> = references.map(|(owner, _)| owner.coordinates.uid).collect();
    let mut dependents = Vec::new();
    for owner in &owners {
        if depth < MAX_DEPTH && seen.insert(owner.clone()) {
            dependents.extend(owners_of(survey, owner, depth + 1, seen));
        }
    }
    Some(Tree { node, omitted: owners.len() - dependents.len(), dependents })
}

/// The number of objects below this one that a tree has.
fn below(tree: &Tree) -> usize {
    tree.dependents.iter().map(|dependent| 1 + below(dependent)).sum()
}

impl Forest {
    /// No trees yet, at this time.
    pub(super) fn at(now: Timestamp) -> Self {
        Self {
            trees: Vec::new(),
            finalizers: BTreeMap::new(),
            deleted: BTreeMap::new(),
            now,
            owners: false,
            depth: None,
        }
    }

    /// No trees yet: of owners in the place of dependents, or down to this depth.
    pub(super) fn of(now: Timestamp, owners: bool, depth: Option<usize>) -> Self {
        Self { owners, depth, ..Self::at(now) }
    }

    /// Adds the tree of an object. What could not be seen is returned.
    pub(super) async fn add(
        &mut self,
        gatherer: &Gatherer,
        Named { resource, namespace, name }: &Named,
        patience: Duration,
    ) -> anyhow::Result<Option<String>> {
        let missing = || gather::not_found(resource, namespace, name);
        let mut survey = if self.owners {
            // Owners are read one by one.
            gatherer.empty_survey()
        } else {
            let scope = Scope { namespace: namespace.clone(), ..Scope::default() };
            gatherer.survey(&scope, patience).await?
        };
        let uid = if self.owners {
            let object = match gatherer.object(&resource.name, namespace, name).await {
                Known::Present(object) => Object::new(object),
                Known::Absent => return Err(missing()),
                Known::Unreadable(why) => bail!("{}/{name} cannot be read: {why}", resource.name),
            };
            why::observe_with_owners(gatherer, &mut survey, &object, resource.id).await;
            gatherer.complete(&mut survey).await;
            Uid::new(object.uid())
        } else {
            let observed = gatherer.observe(&mut survey, &resource.name, namespace, name).await;
            observed.with_context(missing)?
        };
        let tree = if self.owners {
            owners_of(&survey, &uid, 0, &mut BTreeSet::from([uid.clone()]))
        } else {
            survey.engine.tree(&uid, LARGEST_TREE)
        };
        let tree = tree.with_context(missing)?;
        self.note_finalizers(&tree, &survey);
        self.trees.push(tree);
        Ok(gather::unlisted_summary(&survey))
    }

    fn note_finalizers(&mut self, tree: &Tree, survey: &Survey) {
        if let Some(key) = &tree.node.key {
            let finalizers = survey.finalizers(key);
            if !finalizers.is_empty() {
                self.finalizers.insert(key.clone(), finalizers.to_vec());
            }
            if let Some(since) = survey.terminating().get(key).and_then(|metadata| metadata.deleted) {
                self.deleted.insert(key.clone(), since);
            }
        }
        tree.dependents.iter().for_each(|dependent| self.note_finalizers(dependent, survey));
    }

    fn finalizers(&self, view: &NodeView) -> &[String] {
        view.key.as_ref().and_then(|key| self.finalizers.get(key)).map_or(&[], Vec::as_slice)
    }

    /// What is to be known of an object at a glance; empty if nothing is remarkable.
    fn state(&self, view: &NodeView) -> String {
        let mut words = Vec::new();
        match view.presence {
            Presence::Gone => words.push("gone".to_owned()),
            Presence::Unseen => words.push("not seen".to_owned()),
            Presence::Observed => {}
        }
        if view.deletion.deleting {
            let since = view.key.as_ref().and_then(|key| self.deleted.get(key));
            // The deletionTimestamp of a pod is when its grace period ends.
            let since = since.map(|since| self.now.since(*since)).filter(|age| *age > 0);
            words.push(match since {
                Some(since) => format!("being deleted for {}", age(since)),
                None => "being deleted".to_owned(),
            });
        }
        if !self.finalizers(view).is_empty() {
            words.push(format!("finalizers {}", self.finalizers(view).join(" ")));
        }
        words.join(", ")
    }

    fn branch(&self, tree: &Tree, depth: usize, (own, below): (&str, &str), table: &mut Table) {
        let title = format!("{own}{}/{}", tree.node.kind, tree.node.name);
        table.row(vec![title, namespace(&tree.node).to_owned(), self.state(&tree.node)]);
        if self.depth == Some(depth)
            && let number @ 1.. = self::below(tree)
        {
            table.row(vec![format!("{below}└─ … {} below", count(number, "object"))]);
            return;
        }
        let last = tree.dependents.len();
        for (index, dependent) in tree.dependents.iter().enumerate() {
            let is_last = index + 1 == last && tree.omitted == 0;
            let (fork, bar) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            let prefixes = (&*format!("{below}{fork}"), &*format!("{below}{bar}"));
            self.branch(dependent, depth + 1, prefixes, table);
        }
        if tree.omitted > 0 {
            table.row(vec![format!("{below}└─ … {} more, or shown elsewhere", tree.omitted)]);
        }
    }

    fn value_of(&self, tree: &Tree) -> Value {
        let view = &tree.node;
        let presence = match view.presence {
            Presence::Observed => "Observed",
            Presence::Gone => "Gone",
            Presence::Unseen => "Unseen",
        };
        json!({
            "apiVersion": &*view.api_version, "kind": &*view.kind, "namespace": namespace(view), "name": &*view.name,
            "uid": view.uid.to_string(), "presence": presence, "beingDeleted": view.deletion.deleting,
            "finalizers": self.finalizers(view), "omitted": tree.omitted,
            (if self.owners { "owners" } else { "dependents" }):
                tree.dependents.iter().map(|tree| self.value_of(tree)).collect::<Vec<_>>(),
        })
    }
}

fn namespace(view: &NodeView) -> &str {
    view.key.as_ref().map_or("", |key| &key.namespace)
}

fn flatten<'a>(tree: &'a Tree, nodes: &mut Vec<&'a NodeView>, edges: &mut Vec<(usize, usize)>) {
    let own = nodes.len();
    nodes.push(&tree.node);
    for dependent in &tree.dependents {
        edges.push((own, nodes.len()));
        flatten(dependent, nodes, edges);
    }
}

impl Answer for Forest {
    fn value(&self) -> Value {
        match &self.trees[..] {
            [single] => self.value_of(single),
            several => json!({"items": several.iter().map(|tree| self.value_of(tree)).collect::<Vec<_>>()}),
        }
    }

    fn text(&self, _is_wide: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        for (number, tree) in self.trees.iter().enumerate() {
            if number > 0 {
                writeln!(out)?;
            }
            let mut table = Table::new(&["OBJECT", "NAMESPACE", "STATE"]);
            self.branch(tree, 0, ("", ""), &mut table);
            table.write(out)?;
        }
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        let (nodes, _) = self.graph().unwrap_or_default();
        nodes
    }

    fn graph(&self) -> Option<(Vec<String>, Vec<(usize, usize)>)> {
        let (mut nodes, mut edges) = (Vec::new(), Vec::new());
        self.trees.iter().for_each(|tree| flatten(tree, &mut nodes, &mut edges));
        Some((
            nodes.iter().map(|view| format!("{}/{}", view.kind.to_lowercase(), view.name)).collect(),
            edges,
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use gc_answers::Catalog;
    use gc_types::ResourceId;

    use super::*;

    const NOW: Timestamp = Timestamp(1_790_000_000_000);

    /// A leaf of two owners, which have the same root.
    fn survey() -> Survey {
        let core = br#"{"items":[{"versions":[{"version":"v1","freshness":"Current","resources":[{"resource":"configmaps",
            "responseKind":{"kind":"ConfigMap"},"scope":"Namespaced","verbs":["list","delete"]}]}]}]}"#;
        let mut survey = Survey::new(Catalog::read(core, br#"{"items":[]}"#).unwrap(), NOW);
        for (name, owners) in [("root", &[][..]), ("a", &["root"]), ("b", &["root"]), ("leaf", &["a", "b"])] {
            let owners: Vec<Value> = owners
                .iter()
                .map(|owner| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": owner}))
                .collect();
            let mut object = json!({"metadata": {"namespace": "n", "name": name, "uid": name, "resourceVersion": "1",
                "ownerReferences": owners}});
            if name == "root" {
                object["metadata"]["deletionTimestamp"] = "2026-09-21T14:08:20Z".into();
                object["metadata"]["finalizers"] = json!(["acme.io/hold"]);
            }
            survey.observe(ResourceId(0), serde_json::from_value(object).unwrap());
        }
        survey.complete();
        survey
    }

    fn shown(tree: Tree, survey: &Survey, depth: Option<usize>) -> Vec<String> {
        let mut forest = Forest { depth, ..Forest::at(NOW) };
        forest.note_finalizers(&tree, survey);
        forest.trees.push(tree);
        let mut out = Vec::new();
        forest.text(false, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        text.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn trees_lead_down_and_up_and_are_folded() {
        let survey = survey();
        let down = || survey.engine.tree(&Uid::new("root"), LARGEST_TREE).unwrap();
        let root = "ConfigMap/root n being deleted for 5m, finalizers acme.io/hold";
        assert_eq!(
            shown(down(), &survey, None),
            [
                root,
                "├─ ConfigMap/a n",
                "│ └─ … 1 more, or shown elsewhere",
                "└─ ConfigMap/b n",
                "└─ ConfigMap/leaf n"
            ]
        );
        assert_eq!(
            shown(down(), &survey, Some(1)),
            [
                root,
                "├─ ConfigMap/a n",
                "│ └─ … 1 more, or shown elsewhere",
                "└─ ConfigMap/b n",
                "└─ … 1 object below"
            ]
        );
        assert_eq!(shown(down(), &survey, Some(0)), [root, "└─ … 3 objects below"]);
        let leaf = Uid::new("leaf");
        let up = owners_of(&survey, &leaf, 0, &mut BTreeSet::from([leaf.clone()])).unwrap();
        assert_eq!(
            shown(up, &survey, None),
            [
                "ConfigMap/leaf n",
                "├─ ConfigMap/a n",
                &format!("│ └─ {root}"),
                "└─ ConfigMap/b n",
                "└─ … 1 more, or shown elsewhere"
            ]
        );
    }
}
