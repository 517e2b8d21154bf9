//! `kubegc tree`: what depends on an object.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use gc_answers::Survey;
use gc_ownership::{NodeView, Presence, Tree};
use serde_json::{Value, json};

use super::access::Access;
use super::gather::{self, Gatherer, Scope};
use super::output::{Answer, Output};
use super::target::{Named, Targets};
use crate::table::Table;

/// Objects that a tree shows at most.
const LARGEST_TREE: usize = 100_000;

/// Options of `kubegc tree`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubegc tree deploy/web              show what depends on a Deployment
  kubegc tree deploy/web -o mermaid   draw it")]
pub(crate) struct TreeOptions {
    #[command(flatten)]
    targets: Targets,
    /// Output format: text, wide, name, json, yaml, jsonpath=…, custom-columns=…, dot, mermaid
    #[arg(short, long, default_value = "text")]
    output: Output,
    #[command(flatten)]
    access: Access,
}

/// Trees of objects, with what holds each of them.
#[derive(Default)]
pub(super) struct Forest {
    trees: Vec<Tree>,
    finalizers: std::collections::BTreeMap<gc_types::ObjectKey, Vec<String>>,
}

/// `kubegc tree`
pub(crate) fn tree(options: &TreeOptions) -> anyhow::Result<()> {
    let patience = options.access.patience()?;
    let runtime = crate::up::runtime()?;
    let forest = runtime.block_on(async {
        let gatherer = Gatherer::new(options.access.connect().await?, gather::now()).await?;
        let mut forest = Forest::default();
        for named in options.targets.resolve(&gatherer).await? {
            gather::warn(forest.add(&gatherer, &named, patience).await?.as_slice());
        }
        anyhow::Ok(forest)
    });
    runtime.shutdown_timeout(Duration::from_millis(100));
    super::output::print(&forest?, &options.output)
}

impl Forest {
    /// Adds the tree of an object. What could not be seen is returned.
    pub(super) async fn add(
        &mut self,
        gatherer: &Gatherer,
        Named { resource, namespace, name }: &Named,
        patience: Duration,
    ) -> anyhow::Result<Option<String>> {
        let scope = Scope { namespace: namespace.clone(), ..Scope::default() };
        let mut survey = gatherer.survey(&scope, patience).await?;
        let missing = || gather::not_found(resource, namespace, name);
        let observed = gatherer.observe(&mut survey, &resource.name, namespace, name).await;
        let uid = observed.with_context(missing)?;
        let tree = survey.engine.tree(&uid, LARGEST_TREE).with_context(missing)?;
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
            words.push("being deleted".to_owned());
        }
        if !self.finalizers(view).is_empty() {
            words.push(format!("finalizers {}", self.finalizers(view).join(" ")));
        }
        words.join(", ")
    }

    fn branch(&self, tree: &Tree, own: &str, below: &str, table: &mut Table) {
        let title = format!("{own}{}/{}", tree.node.kind, tree.node.name);
        table.row(vec![title, namespace(&tree.node).to_owned(), self.state(&tree.node)]);
        let last = tree.dependents.len();
        for (index, dependent) in tree.dependents.iter().enumerate() {
            let is_last = index + 1 == last && tree.omitted == 0;
            let (fork, bar) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            self.branch(dependent, &format!("{below}{fork}"), &format!("{below}{bar}"), table);
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
            "dependents": tree.dependents.iter().map(|tree| self.value_of(tree)).collect::<Vec<_>>(),
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
            self.branch(tree, "", "", &mut table);
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
