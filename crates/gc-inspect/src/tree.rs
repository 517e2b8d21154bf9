//! Dependents of objects, as trees.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use gc_explain::text::{age, count, plural, thousands};
use gc_explain::tree::{Direction, Tree, tree as tree_of};
use gc_explain::{Knowledge, Metadata, Object, Survey, Unread, UnreadCode};
use gc_ownership::{NodeView, Presence};
use gc_process::table::Table;
use gc_types::{ObjectKey, Timestamp, Uid};
use serde_json::{Value, json};

use super::columns::Columns;
use super::gather::{self, Gatherer, Scope};
use super::unanswered::UnansweredReason;
use super::why::{self, LookedUp};
use crate::output::Answer;
use crate::target::NamedObject;

/// Number of unremarkable objects of one kind below the same object above which they are folded, unless `--full` is given.
const FOLDED_ABOVE: usize = 20;

/// Display options of trees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// True if they lead to owners.
    pub owners: bool,
    /// Number of levels; objects further below are counted.
    pub depth: Option<usize>,
    /// True if nothing is folded.
    pub full: bool,
}

/// Result of a live read of an owner that was not found under the UID of its reference.
#[derive(Clone, Debug, PartialEq, Eq)]
enum MissingOwner {
    /// There is no object with its name.
    Absent,
    /// The object with its name has another UID.
    Replaced(Uid),
    /// The server's answer does not tell, for this reason.
    Unreadable(Unread),
}

/// Trees of objects, with details of each object.
pub struct Forest {
    trees: Vec<Tree>,
    columns: BTreeMap<Uid, Columns>,
    finalizers: BTreeMap<ObjectKey, Vec<String>>,
    /// Deletion times of terminating objects.
    deleted: BTreeMap<ObjectKey, Timestamp>,
    /// Results of live reads of owners that were not found.
    missing: BTreeMap<Uid, MissingOwner>,
    /// `resource.group/name` of objects that the server serves.
    references: BTreeMap<Uid, String>,
    now: Timestamp,
    shape: Shape,
}

impl Forest {
    /// Creates an empty forest at this time.
    #[must_use]
    pub fn new(now: Timestamp, shape: Shape) -> Self {
        Self {
            trees: Vec::new(),
            columns: BTreeMap::new(),
            finalizers: BTreeMap::new(),
            deleted: BTreeMap::new(),
            missing: BTreeMap::new(),
            references: BTreeMap::new(),
            now,
            shape,
        }
    }

    /// Reports whether there is no tree.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.trees.is_empty()
    }

    /// Adds the tree of an object, and returns what could not be read.
    pub async fn add(
        &mut self,
        gatherer: &Gatherer,
        named: &NamedObject,
        patience: Duration,
    ) -> anyhow::Result<Option<String>> {
        let NamedObject { resource, namespace, name } = named;
        let missing = || UnansweredReason::no_object(resource, namespace, name);
        let mut looked_up = LookedUp::new();
        let (survey, uid) = if self.shape.owners {
            let object = Object::new(named.read(gatherer).await?);
            // Owners are read singly.
            let mut survey = gatherer.empty_survey();
            looked_up = why::observe_with_owners(gatherer, &mut survey, &object, resource.id).await;
            gatherer.complete(&mut survey).await;
            (survey, Uid::new(object.uid()))
        } else {
            let scope = Scope { namespace: namespace.clone(), ..Scope::default() };
            let mut survey = gatherer.contents(&scope, patience).await?;
            let is_meant = |key: &ObjectKey| {
                key.resource == resource.id && *key.namespace == **namespace && *key.name == **name
            };
            let listed = survey.engine.select(is_meant).into_iter().next().map(|view| view.uid);
            let uid = if let Some(uid) = listed {
                uid
            } else {
                // The object may have been created after its list, or the user may get but not list it.
                let metadata: Metadata = serde_json::from_value(named.read(gatherer).await?)?;
                let uid = metadata.uid.clone();
                survey.observe(resource.id, metadata);
                uid
            };
            gatherer.complete(&mut survey).await;
            (survey, uid)
        };
        let direction = if self.shape.owners { Direction::Owners } else { Direction::Dependents };
        let tree = tree_of(&survey, &uid, direction).ok_or_else(missing)?;
        let mut keys = Vec::new();
        self.note(&tree, &survey, 0, &mut keys);
        self.note_missing(&tree, &survey, &looked_up);
        self.columns.extend(gatherer.columns(keys.into_iter()).await);
        self.trees.push(tree);
        Ok(gather::unlisted_summary(&survey))
    }

    /// Records the survey's details of each object, and which objects are shown.
    fn note<'a>(&mut self, tree: &'a Tree, survey: &Survey, level: usize, shown: &mut Vec<&'a ObjectKey>) {
        let view = &tree.view;
        if let Some(resource) = survey.catalog.of_kind(&view.api_version, &view.kind) {
            self.references.insert(view.uid.clone(), format!("{}/{}", resource.name, view.name));
        }
        if let Some(key) = &tree.view.key {
            let finalizers = survey.finalizers(key);
            if !finalizers.is_empty() {
                self.finalizers.insert(key.clone(), finalizers.to_vec());
            }
            if let Some(since) = survey.terminating().get(key).and_then(|metadata| metadata.deleted) {
                self.deleted.insert(key.clone(), since);
            }
            if tree.view.presence == Presence::Observed && self.shape.depth.is_none_or(|depth| level <= depth)
            {
                shown.push(key);
            }
        }
        for below in &tree.below {
            self.note(below, survey, level + 1, shown);
        }
    }

    /// Records the results for owners that were not found under the UID of their reference.
    fn note_missing(&mut self, tree: &Tree, survey: &Survey, looked_up: &LookedUp) {
        for owner in &tree.below {
            self.note_missing(owner, survey, looked_up);
            let view = &owner.view;
            if view.presence == Presence::Observed {
                continue;
            }
            let Some(resource) = survey.catalog.of_kind(&view.api_version, &view.kind) else { continue };
            let namespace = if resource.is_namespaced() { namespace(&tree.view) } else { "" };
            let key = ObjectKey {
                resource: resource.id,
                namespace: namespace.into(),
                name: Arc::clone(&view.name),
            };
            let missing = match looked_up.get(&key) {
                Some(Knowledge::Absent) => MissingOwner::Absent,
                Some(Knowledge::Present(uid)) => MissingOwner::Replaced(uid.clone()),
                Some(Knowledge::Unreadable(why)) => MissingOwner::Unreadable(why.clone()),
                None => continue,
            };
            self.missing.insert(view.uid.clone(), missing);
        }
    }

    /// Returns whether an object exists, as far as is known, and details about an owner that was not found.
    fn presence(&self, view: &NodeView) -> (&'static str, Option<String>) {
        match (view.presence, self.missing.get(&view.uid)) {
            (Presence::Observed, _) => ("Observed", None),
            (_, Some(MissingOwner::Absent)) => ("Gone", Some("does not exist".to_owned())),
            (_, Some(MissingOwner::Replaced(uid))) => {
                ("Gone", Some(format!("does not exist; the object with this name has UID {uid}")))
            }
            (Presence::Unseen, Some(MissingOwner::Unreadable(why))) => {
                ("Unseen", Some(format!("cannot be read: {why}")))
            }
            (Presence::Gone, _) => ("Gone", Some("gone".to_owned())),
            (Presence::Unseen, None) => ("Unseen", Some("not seen".to_owned())),
        }
    }

    /// Returns the code of why a missing owner cannot be read, for programs.
    fn unread_code(&self, view: &NodeView) -> Option<UnreadCode> {
        match (view.presence, self.missing.get(&view.uid)) {
            (Presence::Unseen, Some(MissingOwner::Unreadable(why))) => Some(why.code),
            _ => None,
        }
    }

    fn finalizers(&self, view: &NodeView) -> &[String] {
        view.key.as_ref().and_then(|key| self.finalizers.get(key)).map_or(&[], Vec::as_slice)
    }

    fn terminating_since(&self, view: &NodeView) -> Option<Timestamp> {
        view.key.as_ref().and_then(|key| self.deleted.get(key)).copied()
    }

    /// Describes an object briefly; empty if it is unremarkable.
    fn state(&self, tree: &Tree) -> String {
        let view = &tree.view;
        let mut words: Vec<String> = self.presence(view).1.into_iter().collect();
        if view.deletion.deleting {
            // The deletionTimestamp of a pod is the end of its grace period.
            let since =
                self.terminating_since(view).map(|since| self.now.since(since)).filter(|age| *age > 0);
            words.push(match since {
                Some(since) => format!("being deleted for {}", age(since)),
                None => "being deleted".to_owned(),
            });
        }
        if !self.finalizers(view).is_empty() {
            words.push(format!("finalizers {}", self.finalizers(view).join(" ")));
        }
        words.extend(tree.fault.map(str::to_owned));
        if tree.is_repeated {
            words.push("also above".to_owned());
        }
        words.join(", ")
    }

    fn row(&self, prefix: &str, tree: &Tree, form: Form) -> Vec<String> {
        let columns = self.columns.get(&tree.view.uid).cloned().unwrap_or_default();
        let age = columns.created.map(|created| age(self.now.since(created))).unwrap_or_default();
        let mut row = vec![
            format!("{prefix}{}/{}", tree.view.kind, tree.view.name),
            namespace(&tree.view).to_owned(),
            columns.ready,
            columns.status,
            age,
        ];
        if form.is_wide {
            row.extend([tree.view.api_version.to_string(), tree.view.uid.to_string()]);
        }
        row.push(self.state(tree));
        row
    }

    /// Formats many objects of one kind as one line with the number in each state.
    fn folded_row(&self, prefix: &str, trees: &[&Tree]) -> Vec<String> {
        let mut statuses: BTreeMap<&str, usize> = BTreeMap::new();
        let mut add = |status| *statuses.entry(status).or_default() += 1;
        for tree in trees {
            let columns = self.columns.get(&tree.view.uid);
            add(columns.map(|columns| columns.status.as_str()).unwrap_or_default());
            let marks = [
                (tree.view.deletion.deleting, "being deleted"),
                (!self.finalizers(&tree.view).is_empty(), "with finalizers"),
                (tree.fault.is_some(), "with an invalid reference"),
            ];
            marks.into_iter().filter(|(is, _)| *is).for_each(|(_, mark)| add(mark));
        }
        statuses.remove("");
        let states: Vec<String> =
            statuses.into_iter().map(|(status, number)| format!("{} {status}", thousands(number))).collect();
        let below: usize = trees.iter().map(|tree| tree.count_below()).sum();
        let below =
            if below == 0 { String::new() } else { format!(" with {} below", count(below, "object")) };
        let kind = trees.first().map_or("object", |tree| &*tree.view.kind);
        let title = format!("{prefix}… {} {}{below}", thousands(trees.len()), plural(trees.len(), kind));
        let mut row = vec![title];
        row.resize(5, String::new());
        row.push(states.join(", "));
        row
    }

    /// Groups objects of one kind, each group being shown in one line.
    fn folded<'a>(&self, kind: &'a [Tree]) -> Vec<Vec<&'a Tree>> {
        if kind.len() <= FOLDED_ABOVE {
            return one_by_one(kind);
        }
        let is_plain =
            |tree: &&Tree| tree.below.is_empty() && tree.omitted == 0 && self.state(tree).is_empty();
        let (plain, others): (Vec<&Tree>, Vec<&Tree>) = kind.iter().partition(is_plain);
        let mut groups = match others.len() {
            0..=FOLDED_ABOVE => others.into_iter().map(|tree| vec![tree]).collect(),
            _ => vec![others],
        };
        groups.extend((!plain.is_empty()).then_some(plain));
        groups
    }

    fn branch(&self, tree: &Tree, level: usize, (own, below): (&str, &str), form: Form, table: &mut Table) {
        table.row(self.row(own, tree, form));
        if self.shape.depth == Some(level)
            && let number @ 1.. = tree.count_below()
        {
            table.row(vec![format!("{below}└─ … {} below", count(number, "object"))]);
            return;
        }
        // Dependents are sorted by kind.
        let kinds = tree.below.chunk_by(|left, right| left.view.kind == right.view.kind);
        let groups: Vec<Vec<&Tree>> =
            kinds.flat_map(|kind| if form.is_full { one_by_one(kind) } else { self.folded(kind) }).collect();
        for (index, group) in groups.iter().enumerate() {
            let is_last = index + 1 == groups.len() && tree.omitted == 0;
            let (fork, bar) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            let prefix = format!("{below}{fork}");
            match &group[..] {
                [single] => {
                    let prefixes = (&*prefix, &*format!("{below}{bar}"));
                    self.branch(single, level + 1, prefixes, form, table);
                }
                several => table.row(self.folded_row(&prefix, several)),
            }
        }
        if tree.omitted > 0 {
            table.row(vec![format!("{below}└─ … {} more", thousands(tree.omitted))]);
        }
    }

    fn value_of(&self, tree: &Tree) -> Value {
        let view = &tree.view;
        let (presence, missing) = self.presence(view);
        let columns = self.columns.get(&view.uid).cloned().unwrap_or_default();
        json!({
            "apiVersion": &*view.api_version, "kind": &*view.kind, "namespace": namespace(view), "name": &*view.name,
            "uid": view.uid.to_string(), "presence": presence, "missing": missing,
            "unreadCode": self.unread_code(view),
            "beingDeleted": view.deletion.deleting,
            "finalizers": self.finalizers(view), "omitted": tree.omitted,
            "ready": columns.ready, "status": columns.status,
            "created": columns.created.map(|time| time.to_string()),
            "terminatingSince": self.terminating_since(view).map(|time| time.to_string()),
            "fault": tree.fault, "repeated": tree.is_repeated,
            (if self.shape.owners { "owners" } else { "dependents" }):
                tree.below.iter().map(|tree| self.value_of(tree)).collect::<Vec<_>>(),
        })
    }
}

/// Form of a table.
#[derive(Clone, Copy)]
struct Form {
    /// Every object has a row of its own.
    is_full: bool,
    /// Rows have their API version and UID as well. Such a table is full.
    is_wide: bool,
}

fn one_by_one(kind: &[Tree]) -> Vec<Vec<&Tree>> {
    kind.iter().map(|tree| vec![tree]).collect()
}

fn namespace(view: &NodeView) -> &str {
    view.key.as_ref().map_or("", |key| &key.namespace)
}

/// Collects each object once, and an edge for each reference.
fn flatten<'a>(
    tree: &'a Tree,
    places: &mut BTreeMap<&'a Uid, usize>,
    nodes: &mut Vec<&'a NodeView>,
    edges: &mut Vec<(usize, usize)>,
) -> usize {
    let own = *places.entry(&tree.view.uid).or_insert_with(|| {
        nodes.push(&tree.view);
        nodes.len() - 1
    });
    for below in &tree.below {
        let place = flatten(below, places, nodes, edges);
        edges.push((own, place));
    }
    own
}

impl Answer for Forest {
    fn value(&self) -> Value {
        match &self.trees[..] {
            [single] => self.value_of(single),
            several => json!({"items": several.iter().map(|tree| self.value_of(tree)).collect::<Vec<_>>()}),
        }
    }

    fn text(&self, is_wide: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        let form = Form { is_full: is_wide || self.shape.full, is_wide };
        let wide: &[&str] = if is_wide { &["API VERSION", "UID"] } else { &[] };
        let headings = [&["OBJECT", "NAMESPACE", "READY", "STATUS", "AGE"], wide, &["STATE"]].concat();
        for (number, tree) in self.trees.iter().enumerate() {
            if number > 0 {
                writeln!(out)?;
            }
            let mut table = Table::new(&headings);
            self.branch(tree, 0, ("", ""), form, &mut table);
            table.write(out)?;
        }
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        let (mut places, mut nodes, mut edges) = (BTreeMap::new(), Vec::new(), Vec::new());
        for tree in &self.trees {
            flatten(tree, &mut places, &mut nodes, &mut edges);
        }
        nodes.iter().filter_map(|view| self.references.get(&view.uid).cloned()).collect()
    }

    fn graph(&self) -> Option<(Vec<String>, Vec<(usize, usize)>)> {
        let (mut places, mut nodes, mut edges) = (BTreeMap::new(), Vec::new(), Vec::new());
        for tree in &self.trees {
            flatten(tree, &mut places, &mut nodes, &mut edges);
        }
        Some((
            nodes.iter().map(|view| format!("{}/{}", view.kind.to_lowercase(), view.name)).collect(),
            edges,
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use gc_explain::Catalog;
    use gc_types::ResourceId;

    use super::*;

    const NOW: Timestamp = Timestamp(1_790_000_000_000);

    /// Returns a leaf with two owners that have the same root, and more siblings than are listed.
    fn survey() -> Survey {
        let core = br#"{"items":[{"versions":[{"version":"v1","freshness":"Current","resources":[{"resource":"configmaps",
            "responseKind":{"kind":"ConfigMap"},"scope":"Namespaced","verbs":["list","delete"]}]}]}]}"#;
        let mut survey = Survey::new(Catalog::read(core, br#"{"items":[]}"#).unwrap(), NOW);
        let mut objects = vec![
            ("root".to_owned(), vec![]),
            ("a".to_owned(), vec!["root"]),
            ("b".to_owned(), vec!["root"]),
            ("leaf".to_owned(), vec!["a", "b"]),
            ("many".to_owned(), vec![]),
            ("below".to_owned(), vec!["many-0"]),
        ];
        objects.extend((0..=FOLDED_ABOVE).map(|number| (format!("many-{number}"), vec!["many"])));
        objects.push(("going".to_owned(), vec![]));
        objects.extend((0..=FOLDED_ABOVE).map(|number| (format!("going-{number}"), vec!["going"])));
        for (name, owners) in objects {
            let owners: Vec<Value> = owners
                .iter()
                .map(|owner| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": owner}))
                .collect();
            let mut object = json!({"metadata": {"namespace": "n", "name": name, "uid": name, "resourceVersion": "1",
                "ownerReferences": owners}});
            if ["root", "many-7"].contains(&&*name) || name.starts_with("going-") {
                object["metadata"]["deletionTimestamp"] = "2026-09-21T14:08:20Z".into();
                object["metadata"]["finalizers"] = json!(["acme.io/hold"]);
            }
            survey.observe(ResourceId(0), serde_json::from_value(object).unwrap());
        }
        survey.complete();
        survey
    }

    fn shown(uid: &str, survey: &Survey, shape: Shape) -> Vec<String> {
        let mut forest = Forest::new(NOW, shape);
        let direction = if shape.owners { Direction::Owners } else { Direction::Dependents };
        let tree = tree_of(survey, &Uid::new(uid), direction).unwrap();
        forest.note(&tree, survey, 0, &mut Vec::new());
        let columns = |ready: &str, status: &str| Columns {
            ready: ready.to_owned(),
            status: status.to_owned(),
            created: Some(NOW.after(-60_000)),
        };
        forest.columns.insert(Uid::new("a"), columns("1/2", "Odd"));
        for number in 0..FOLDED_ABOVE {
            let status = if number < 5 { "Failed" } else { "Running" };
            forest.columns.insert(Uid::new(&format!("many-{number}")), columns("", status));
        }
        forest.trees.push(tree);
        let mut out = Vec::new();
        forest.text(false, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        text.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn trees_lead_down_and_up_and_are_folded() {
        let survey = survey();
        let down = Shape::default();
        let root = "ConfigMap/root n being deleted for 5m, finalizers acme.io/hold";
        assert_eq!(
            shown("root", &survey, down),
            [
                root,
                "├─ ConfigMap/a n 1/2 Odd 60s",
                "│ └─ ConfigMap/leaf n",
                "└─ ConfigMap/b n",
                "└─ ConfigMap/leaf n also above"
            ]
        );
        assert_eq!(
            shown("root", &survey, Shape { depth: Some(1), ..down }),
            [
                root,
                "├─ ConfigMap/a n 1/2 Odd 60s",
                "│ └─ … 1 object below",
                "└─ ConfigMap/b n",
                "└─ … 1 object below"
            ]
        );
        assert_eq!(shown("root", &survey, Shape { depth: Some(0), ..down }), [root, "└─ … 4 objects below"]);
        assert_eq!(
            shown("leaf", &survey, Shape { owners: true, ..down }),
            [
                "ConfigMap/leaf n",
                "├─ ConfigMap/a n 1/2 Odd 60s",
                &format!("│ └─ {root}"),
                "└─ ConfigMap/b n",
                &format!("└─ {root}, also above")
            ]
        );
        assert_eq!(
            shown("many", &survey, down),
            [
                "ConfigMap/many n",
                "├─ ConfigMap/many-0 n Failed 60s",
                "│ └─ ConfigMap/below n",
                "├─ ConfigMap/many-7 n Running 60s being deleted for 5m, finalizers acme.io/hold",
                "└─ … 19 ConfigMaps 4 Failed, 14 Running"
            ]
        );
        assert_eq!(
            shown("going", &survey, down),
            ["ConfigMap/going n", "└─ … 21 ConfigMaps 21 being deleted, 21 with finalizers"]
        );
        assert_eq!(shown("many", &survey, Shape { full: true, ..down }).len(), FOLDED_ABOVE + 3);
    }

    #[test]
    fn a_wide_tree_has_more_columns() {
        let survey = survey();
        let mut forest = Forest::new(NOW, Shape::default());
        forest.trees.extend(tree_of(&survey, &Uid::new("leaf"), Direction::Dependents));
        let headings = |is_wide| {
            let mut out = Vec::new();
            forest.text(is_wide, &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
        };
        assert_eq!(headings(false), ["OBJECT NAMESPACE READY STATUS AGE STATE", "ConfigMap/leaf n"]);
        let wide = ["OBJECT NAMESPACE READY STATUS AGE API VERSION UID STATE", "ConfigMap/leaf n v1 leaf"];
        assert_eq!(headings(true), wide);
    }

    /// A drawing contains each object once, and every reference.
    #[test]
    fn a_diamond_is_drawn_as_one() {
        let survey = survey();
        let mut forest = Forest::new(NOW, Shape::default());
        forest.trees.extend(tree_of(&survey, &Uid::new("root"), Direction::Dependents));
        let (nodes, edges) = forest.graph().unwrap();
        assert_eq!(nodes, ["configmap/root", "configmap/a", "configmap/leaf", "configmap/b"]);
        assert_eq!(edges, [(1, 2), (0, 1), (3, 2), (0, 3)]);
    }
}
