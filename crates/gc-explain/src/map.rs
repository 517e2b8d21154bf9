//! The ownership graph of a namespace or around an object, folded until it can be drawn.
//!
//! Objects of one kind and state below the same owners form one group if there are many of them; the dependents of a group are
//! below the group. Each owner has groups of its own while the map has room; beyond that, the smallest families are folded
//! together, kind by kind. Ten thousand pods of a thousand ReplicaSets of one Deployment are therefore three nodes, and thirty
//! Deployments of thirty pods each are ninety.

mod fold;
mod health;

use std::collections::{BTreeMap, BTreeSet};

use gc_ownership::{Conclusion, NodeView, Presence, ReferenceState};
use gc_types::{ObjectKey, Uid};
use serde_json::{Value, json};

use crate::catalog::GroupResource;
use crate::plan::Fate;
use crate::stuck::Place;
use crate::survey::Survey;
use fold::{Families, expand, fitting, owners_first, without_hidden};
pub use health::Health;

/// Maximum number of objects in a map.
pub const LARGEST_MAP: usize = 200_000;
/// Default number of nodes to draw.
pub const DEFAULT_BUDGET: usize = 120;
/// Maximum number of nodes that can be requested.
pub const LARGEST_BUDGET: usize = 600;
/// Maximum number of members that a group names.
const NAMED_MEMBERS: usize = 25;
/// Maximum number of objects in a node whose readiness is examined; larger groups are not.
const EXAMINED_MEMBERS: usize = 500;

/// Extent of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All objects, namespaced and cluster-scoped.
    Everything,
    /// All objects in a namespace, and their owners outside of it.
    Namespace(String),
    /// An object with its owners and dependents.
    Around(Uid),
}

/// Emphasis of objects in a map, beyond the graph itself.
#[derive(Clone, Copy, Default)]
pub struct Emphasis<'a> {
    /// Fate of an object in a plan. Objects with different fates are never folded into one node.
    pub fate: Option<&'a dyn Fn(&Uid) -> Option<Fate>>,
    /// An object that gets a node of its own.
    pub alone: Option<&'a Uid>,
    /// Objects whose groups are drawn member by member.
    pub expanded: &'a [Uid],
    /// Decides whether objects of a resource are drawn; `None` draws all. Dependents of hidden objects are drawn below the owners
    /// of these.
    pub shows: Option<&'a dyn Fn(&GroupResource) -> bool>,
}

/// Objects of one resource in the extent of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindCount {
    /// Resource with its group, as queries spell it.
    pub resource: String,
    /// Kind.
    pub kind: String,
    /// Number of objects.
    pub objects: usize,
    /// True if they are drawn.
    pub is_shown: bool,
}

/// State of an object in the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Alive.
    Living,
    /// Marked for deletion.
    Terminating,
    /// All its owners are absent, so it is about to be collected.
    Orphan,
    /// Has an owner reference that cannot be resolved, and no living owner.
    InvalidReference,
    /// Others refer to it, but it does not exist.
    Absent,
}

impl State {
    /// Returns the code.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Living => "Living",
            Self::Terminating => "Terminating",
            Self::Orphan => "Orphan",
            Self::InvalidReference => "InvalidReference",
            Self::Absent => "Absent",
        }
    }
}

/// One object, or a group of similar ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The first object.
    pub place: Place,
    /// State of all its objects.
    pub state: State,
    /// Number of objects.
    pub count: usize,
    /// First members of the node, if it is a group.
    pub members: Vec<Place>,
    /// Finalizers of the first object.
    pub finalizers: Vec<String>,
    /// Number of dependents that are not in the map.
    pub omitted: usize,
    /// Fate of its objects in the plan, if the plan concerns them.
    pub fate: Option<Fate>,
    /// First member of the group that was expanded into this node and others.
    pub expanded_from: Option<Uid>,
    /// Objects whose readiness can be examined; empty if there are too many.
    pub examined: Vec<(Uid, ObjectKey)>,
    /// Readiness, once it has been examined.
    pub health: Option<Health>,
}

/// References from the objects of one node to those of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Index of the owner in `nodes`.
    pub owner: usize,
    /// Index of the dependent in `nodes`.
    pub dependent: usize,
    /// True if some of the references block the deletion of the owner.
    pub is_blocking: bool,
    /// True if some of the references name the controller.
    pub is_controller: bool,
    /// True if none of the references leads to an existing object.
    pub is_invalid: bool,
}

/// A drawable ownership graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    /// Owners before dependents, except in rings.
    pub nodes: Vec<Node>,
    /// Edges, sorted by owner and dependent.
    pub edges: Vec<Edge>,
    /// Number of objects that the map represents.
    pub objects: usize,
    /// Number of objects that were left out because there are more than [`LARGEST_MAP`], or more than fit even when folded.
    pub omitted: usize,
    /// Kinds in the extent, drawn or not, by descending number of objects.
    pub kinds: Vec<KindCount>,
}

struct Object {
    view: NodeView,
    state: State,
    fate: Option<Fate>,
    /// True if it is a node of its own.
    is_alone: bool,
    /// True if it is drawn.
    is_shown: bool,
    /// Owners, each with whether it blocks, is the controller, and has a reference that leads nowhere.
    owners: Vec<(usize, bool, bool, bool)>,
}

impl Object {
    fn new(view: NodeView, state: State) -> Self {
        Self { view, state, fate: None, is_alone: false, is_shown: true, owners: Vec::new() }
    }
}

/// Draws a map of at most `budget` nodes. `None` if there is no such object.
#[must_use]
pub fn map(survey: &Survey, extent: &Extent, budget: usize, emphasis: Emphasis<'_>) -> Option<Map> {
    let budget = budget.clamp(1, LARGEST_BUDGET);
    let (mut objects, omitted) = collect(survey, extent)?;
    for object in &mut objects {
        let uid = &object.view.uid;
        object.fate = emphasis.fate.and_then(|fate| fate(uid));
        object.is_alone =
            emphasis.alone == Some(uid) || matches!(extent, Extent::Around(root) if root == uid);
    }
    let kinds = choose(survey, &mut objects, emphasis.shows);
    let objects = without_hidden(objects);
    let families = Families::of(&objects, owners_first(&objects));
    let (rule, folded) = fitting(&objects, &families, budget);
    let (expanded, parents) = expand(&objects, &families, rule, folded, emphasis.expanded);
    let (drawn_ones, left_out) = within(&objects, expanded, budget.saturating_add(parents.len()));
    let mut map = drawn(survey, &objects, drawn_ones, omitted + left_out);
    for node in &mut map.nodes {
        node.expanded_from = parents.get(&Uid::new(&node.place.uid)).cloned();
    }
    map.kinds = kinds;
    Some(map)
}

/// Marks the objects that are drawn, and counts all of them. Objects of the plan, the selected object and absent owners are always
/// drawn.
fn choose(
    survey: &Survey,
    objects: &mut [Object],
    shows: Option<&dyn Fn(&GroupResource) -> bool>,
) -> Vec<KindCount> {
    let mut kinds: BTreeMap<GroupResource, KindCount> = BTreeMap::new();
    for object in objects {
        let resource = object.view.key.as_ref().and_then(|key| survey.resource(key));
        let Some(resource) = resource.filter(|_| object.state != State::Absent) else { continue };
        let name = &resource.name;
        let count = kinds.entry(name.clone()).or_insert_with(|| KindCount {
            resource: name.to_string(),
            kind: resource.kind.to_string(),
            objects: 0,
            is_shown: shows.is_none_or(|shows| shows(name)),
        });
        count.objects += 1;
        object.is_shown = count.is_shown || object.is_alone || object.fate.is_some();
    }
    let mut kinds: Vec<KindCount> = kinds.into_values().collect();
    kinds.sort_by(|left, right| (right.objects, &left.resource).cmp(&(left.objects, &right.resource)));
    kinds
}

/// Returns the groups that are drawn, in their order, and the number of objects in the others. Emphasized groups come first.
fn within(objects: &[Object], groups: Vec<Vec<usize>>, budget: usize) -> (Vec<Vec<usize>>, usize) {
    let is_plain = |group: &[usize]| {
        group.first().is_none_or(|place| objects[*place].fate.is_none() && !objects[*place].is_alone)
    };
    let mut order: Vec<usize> = (0..groups.len()).collect();
    order.sort_by_key(|place| is_plain(&groups[*place]));
    let kept: BTreeSet<usize> = order.into_iter().take(budget).collect();
    let mut left_out = 0;
    let mut drawn = Vec::with_capacity(kept.len());
    for (place, group) in groups.into_iter().enumerate() {
        if kept.contains(&place) {
            drawn.push(group);
        } else {
            left_out += group.len();
        }
    }
    (drawn, left_out)
}

/// Returns the objects in the extent, and how many were left out.
fn collect(survey: &Survey, extent: &Extent) -> Option<(Vec<Object>, usize)> {
    let engine = &survey.engine;
    let mut views = match extent {
        Extent::Everything => engine.select(|_| true),
        Extent::Namespace(namespace) => engine.select(|key| *key.namespace == **namespace),
        Extent::Around(uid) => around(survey, uid)?,
    };
    let omitted = views.len().saturating_sub(LARGEST_MAP);
    views.truncate(LARGEST_MAP);
    let mut places: BTreeMap<Uid, usize> =
        views.iter().enumerate().map(|(place, view)| (view.uid.clone(), place)).collect();
    let mut objects: Vec<Object> = views.into_iter().map(|view| Object::new(view, State::Living)).collect();
    // Owners outside of the namespace and absent owners are drawn as well.
    let mut next = 0;
    while let Some(uid) = objects.get(next).map(|object| object.view.uid.clone()) {
        if let Some(why) = engine.why(&uid) {
            objects[next].state = state(&why.object, why.conclusion);
            for (owner, reference) in why.references {
                let uid = owner.coordinates.uid.clone();
                let is_invalid = matches!(reference, ReferenceState::Absent(_) | ReferenceState::Undecidable);
                let place = match places.get(&uid) {
                    Some(place) => *place,
                    None => {
                        let Some(view) = engine.view_of(&uid) else { continue };
                        places.insert(uid, objects.len());
                        objects.push(Object::new(view, State::Absent));
                        objects.len() - 1
                    }
                };
                let is_controller = owner.controller == Some(true);
                let blocks = owner.block_owner_deletion == Some(true);
                objects[next].owners.push((place, blocks, is_controller, is_invalid));
            }
        }
        next += 1;
    }
    Some((objects, omitted))
}

/// Returns an object with all its direct and indirect owners and dependents.
fn around(survey: &Survey, uid: &Uid) -> Option<Vec<NodeView>> {
    let engine = &survey.engine;
    let mut views = vec![engine.view_of(uid)?];
    let mut seen = BTreeSet::from([uid.clone()]);
    let mut next = 0;
    while let Some(uid) = views.get(next).map(|view| view.uid.clone()) {
        for view in engine.dependents(&uid) {
            if views.len() <= LARGEST_MAP && seen.insert(view.uid.clone()) {
                views.push(view);
            }
        }
        next += 1;
    }
    Some(views)
}

fn state(view: &NodeView, conclusion: Conclusion) -> State {
    match conclusion {
        _ if view.presence != Presence::Observed => State::Absent,
        _ if view.deletion.deleting => State::Terminating,
        Conclusion::ToBeDeleted(_) => State::Orphan,
        Conclusion::Undecidable => State::InvalidReference,
        _ => State::Living,
    }
}

fn drawn(survey: &Survey, objects: &[Object], groups: Vec<Vec<usize>>, omitted: usize) -> Map {
    let mut map = Map { omitted, ..Map::default() };
    let mut place_of = vec![None; objects.len()];
    for (place, group) in groups.iter().enumerate() {
        for member in group {
            place_of[*member] = Some(place);
        }
        map.objects += group.len();
    }
    let mut edges: BTreeMap<(usize, usize), (bool, bool, bool)> = BTreeMap::new();
    let mut left_out = vec![0; groups.len()];
    for (number, object) in objects.iter().enumerate() {
        for (owner, blocks, is_controller, is_invalid) in &object.owners {
            match (place_of[*owner], place_of[number]) {
                (Some(owner), Some(dependent)) => {
                    let edge = edges.entry((owner, dependent)).or_insert((false, false, true));
                    *edge = (edge.0 || *blocks, edge.1 || *is_controller, edge.2 && *is_invalid);
                }
                (Some(owner), None) => left_out[owner] += 1,
                (None, _) => {}
            }
        }
    }
    map.edges = edges
        .into_iter()
        .map(|((owner, dependent), (is_blocking, is_controller, is_invalid))| Edge {
            owner,
            dependent,
            is_blocking,
            is_controller,
            is_invalid,
        })
        .collect();
    for (group, omitted) in groups.into_iter().zip(left_out) {
        let Some(first) = group.first().map(|place| &objects[*place]) else { continue };
        let finalizers = first.view.key.as_ref().map_or(&[][..], |key| survey.finalizers(key));
        let members = if group.len() > 1 { &group[..group.len().min(NAMED_MEMBERS)] } else { &[] };
        map.nodes.push(Node {
            place: place_of_view(survey, &first.view),
            state: first.state,
            count: group.len(),
            members: members.iter().map(|place| place_of_view(survey, &objects[*place].view)).collect(),
            finalizers: finalizers.to_vec(),
            omitted,
            fate: first.fate,
            expanded_from: None,
            examined: examined(&group, objects),
            health: None,
        });
    }
    map
}

/// Returns the existing objects of a group, if they are few enough to be examined.
fn examined(group: &[usize], objects: &[Object]) -> Vec<(Uid, ObjectKey)> {
    let members = group.iter().map(|place| &objects[*place]).filter(|object| object.state != State::Absent);
    if group.len() > EXAMINED_MEMBERS {
        return Vec::new();
    }
    members.filter_map(|object| Some((object.view.uid.clone(), object.view.key.clone()?))).collect()
}

/// Returns the place of an object in the graph.
#[must_use]
pub fn place_of_view(survey: &Survey, view: &NodeView) -> Place {
    let resource = view.key.as_ref().and_then(|key: &ObjectKey| survey.resource(key));
    Place {
        api_version: view.api_version.to_string(),
        kind: view.kind.to_string(),
        resource: resource.map(|resource| resource.name.to_string()).unwrap_or_default(),
        namespace: view.key.as_ref().map(|key| key.namespace.to_string()).unwrap_or_default(),
        name: view.name.to_string(),
        uid: view.uid.to_string(),
    }
}

impl Place {
    /// Converts to JSON, with the resource as queries spell it.
    #[must_use]
    pub fn full_value(&self) -> Value {
        let mut value = self.value();
        value["resource"] = self.resource.clone().into();
        value
    }
}

impl Map {
    /// Adds the readiness of its objects to each node, from the READY and STATUS cells of their tables.
    pub fn examine(&mut self, cells: &dyn Fn(&Uid) -> Option<(String, String)>) {
        for node in &mut self.nodes {
            node.health = Health::of(node.examined.iter().filter_map(|(uid, _)| cells(uid)));
        }
    }

    /// Converts to JSON.
    #[must_use]
    pub fn value(&self) -> Value {
        let node = |node: &Node| {
            json!({
                "object": node.place.full_value(), "state": node.state.name(), "count": node.count,
                "members": node.members.iter().map(Place::full_value).collect::<Vec<_>>(),
                "finalizers": node.finalizers, "omitted": node.omitted, "fate": node.fate.map(Fate::name),
                "expandedFrom": node.expanded_from.as_ref().map(ToString::to_string),
                "health": node.health.as_ref().map(Health::value),
            })
        };
        let edge = |edge: &Edge| {
            json!({"owner": edge.owner, "dependent": edge.dependent, "blocking": edge.is_blocking,
                   "controller": edge.is_controller, "invalid": edge.is_invalid})
        };
        let kind = |kind: &KindCount| json!({"resource": kind.resource, "kind": kind.kind, "objects": kind.objects, "shown": kind.is_shown});
        json!({
            "nodes": self.nodes.iter().map(node).collect::<Vec<_>>(),
            "edges": self.edges.iter().map(edge).collect::<Vec<_>>(),
            "objects": self.objects, "omitted": self.omitted,
            "kinds": self.kinds.iter().map(kind).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use crate::catalog::Catalog;
    use gc_types::{ResourceId, ResourceVersion, Timestamp};

    /// Creates a survey of ConfigMaps, each with its name, owners as `name` or `name!` (blocking), and whether it is terminating.
    fn survey(objects: &[(&str, &[&str], bool)]) -> Survey {
        let core = br#"{"items":[{"versions":[{"version":"v1","freshness":"Current","resources":[{"resource":"configmaps",
            "responseKind":{"kind":"ConfigMap"},"scope":"Namespaced","verbs":["list","delete"]}]}]}]}"#;
        let mut survey = Survey::new(Catalog::read(core, br#"{"items":[]}"#).unwrap(), Timestamp(1_000));
        for (name, owners, deleted) in objects {
            let owners: Vec<Value> = owners
                .iter()
                .map(|owner| {
                    let (name, blocks) = (owner.trim_end_matches('!'), owner.ends_with('!'));
                    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": format!("u-{name}"),
                           "blockOwnerDeletion": blocks})
                })
                .collect();
            let mut object = json!({"metadata": {"namespace": "n", "name": name, "uid": format!("u-{name}"),
                "resourceVersion": "1", "ownerReferences": owners}});
            if *deleted {
                object["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:00Z".into();
                object["metadata"]["finalizers"] = json!(["acme.dev/hold"]);
            }
            survey.observe(ResourceId(0), serde_json::from_value(object).unwrap());
        }
        survey.listed(ResourceId(0), ResourceVersion(1));
        survey.complete();
        while let Some((id, _)) = survey.next_read() {
            survey.answer_read(id, gc_types::Outcome::Absent);
        }
        survey
    }

    /// Formats each node as `name×count state`, and each edge as `owner>dependent` with its marks.
    fn shown(survey: &Survey, extent: &Extent, budget: usize) -> (Vec<String>, Vec<String>) {
        let map = map(survey, extent, budget, Emphasis::default()).unwrap();
        let name = |place: usize| map.nodes[place].place.name.clone();
        let nodes =
            map.nodes.iter().map(|node| format!("{}×{} {}", node.place.name, node.count, node.state.name()));
        let edges = map.edges.iter().map(|edge| {
            let marks = [(edge.is_blocking, "!"), (edge.is_invalid, "?")];
            let marks: String = marks.iter().filter(|(is, _)| *is).map(|(_, mark)| *mark).collect();
            format!("{}>{}{marks}", name(edge.owner), name(edge.dependent))
        });
        (nodes.collect(), edges.collect())
    }

    #[test]
    fn states_and_references_are_shown() {
        let survey = survey(&[
            ("root", &[], true),
            ("blocked", &["root!", "other"], false),
            ("other", &[], false),
            ("lost", &["gone"], false),
        ]);
        let (mut nodes, mut edges) = shown(&survey, &Extent::Namespace("n".into()), 50);
        nodes.sort();
        edges.sort();
        assert_eq!(
            nodes,
            ["blocked×1 Living", "gone×1 Absent", "lost×1 Orphan", "other×1 Living", "root×1 Terminating"]
        );
        assert_eq!(edges, ["gone>lost?", "other>blocked", "root>blocked!"]);
        let (mut nodes, _) = shown(&survey, &Extent::Around(Uid::new("u-other")), 50);
        nodes.sort();
        assert_eq!(nodes, ["blocked×1 Living", "other×1 Living", "root×1 Terminating"]);
        assert_eq!(map(&survey, &Extent::Around(Uid::new("absent")), 50, Emphasis::default()), None);
    }

    #[test]
    fn many_objects_are_folded_below_what_owns_them() {
        let names: Vec<String> = (0..300).map(|number| format!("m{number:03}")).collect();
        let leaves: Vec<(String, String)> = names
            .iter()
            .flat_map(|name| (0..2).map(move |leaf| (format!("{name}-{leaf}"), name.clone())))
            .collect();
        let owners: Vec<[&str; 1]> = leaves.iter().map(|(_, owner)| [owner.as_str()]).collect();
        let mut objects: Vec<(&str, &[&str], bool)> = vec![("root", &[], false)];
        objects.extend(names.iter().map(|name| (name.as_str(), &["root"][..], false)));
        objects
            .extend(leaves.iter().zip(&owners).map(|((leaf, _), owner)| (leaf.as_str(), &owner[..], false)));
        let survey = survey(&objects);
        let (nodes, edges) = shown(&survey, &Extent::Namespace("n".into()), 100);
        assert_eq!(nodes, ["root×1 Living", "m000×300 Living", "m000-0×600 Living"]);
        assert_eq!(edges, ["root>m000", "m000>m000-0"]);
        let drawn =
            |budget| map(&survey, &Extent::Namespace("n".into()), budget, Emphasis::default()).unwrap();
        let whole = drawn(100);
        assert_eq!((whole.objects, whole.omitted), (901, 0));
        let cut = drawn(2);
        assert_eq!((cut.objects, cut.omitted, cut.nodes[1].omitted), (301, 600, 600));
    }

    /// Creates an owner with leaves `l00`, `l01`, … that refer to it.
    fn family(leaves: usize) -> Survey {
        let names: Vec<String> = (0..leaves).map(|number| format!("l{number:02}")).collect();
        let mut objects: Vec<(&str, &[&str], bool)> = vec![("root", &[], false)];
        objects.extend(names.iter().map(|name| (name.as_str(), &["root"][..], false)));
        survey(&objects)
    }

    #[test]
    fn an_owner_with_many_leaves_is_folded_though_all_would_fit() {
        let extent = Extent::Namespace("n".into());
        assert_eq!(shown(&family(60), &extent, 120).0, ["root×1 Living", "l00×60 Living"]);
        assert_eq!(shown(&family(24), &extent, 120).0.len(), 25);
    }

    /// Creates this many roots, each with one dependent that has 30 dependents.
    fn families(roots: usize) -> Survey {
        let names: Vec<(String, String)> = (0..roots)
            .flat_map(|root| {
                let (top, middle) = (format!("r{root:02}"), format!("r{root:02}-m"));
                let leaves = (0..30).map(|leaf| (format!("r{root:02}-m-{leaf:02}"), format!("r{root:02}-m")));
                [(top.clone(), String::new()), (middle, top)].into_iter().chain(leaves).collect::<Vec<_>>()
            })
            .collect();
        let owners: Vec<[&str; 1]> = names.iter().map(|(_, owner)| [owner.as_str()]).collect();
        let objects: Vec<(&str, &[&str], bool)> = names
            .iter()
            .zip(&owners)
            .map(|((name, owner), owners)| {
                (name.as_str(), if owner.is_empty() { &[][..] } else { &owners[..] }, false)
            })
            .collect();
        survey(&objects)
    }

    #[test]
    fn each_owner_has_groups_of_its_own_for_as_long_as_there_is_room() {
        let survey = families(32);
        for extent in [Extent::Namespace("n".into()), Extent::Everything] {
            let (nodes, edges) = shown(&survey, &extent, 120);
            assert_eq!((nodes.len(), edges.len()), (96, 64), "{nodes:?}");
            assert!(nodes.contains(&"r07-m-00×30 Living".to_owned()), "{nodes:?}");
        }
        let (nodes, _) = shown(&survey, &Extent::Namespace("n".into()), 20);
        assert_eq!(nodes.len(), 18, "five families and the rest: {nodes:?}");
        assert!(nodes.contains(&"r05×27 Living".to_owned()), "{nodes:?}");
    }

    #[test]
    fn groups_are_expanded_one_below_the_other() {
        let survey = family(90);
        let expanded = [Uid::new("u-l00"), Uid::new("u-l60"), Uid::new("u-unknown")];
        let drawn = |expanded: &[Uid]| {
            let emphasis = Emphasis { expanded, ..Emphasis::default() };
            map(&survey, &Extent::Namespace("n".into()), 10, emphasis).unwrap()
        };
        assert_eq!(drawn(&[]).nodes.len(), 2);
        let some = drawn(&expanded[..1]);
        let of = |name: &str| {
            let node = some.nodes.iter().find(|node| node.place.name == name).unwrap();
            (node.count, node.expanded_from.clone())
        };
        assert_eq!(some.nodes.len(), 62, "the owner, sixty members, and the others as one");
        assert_eq!(of("l00"), (1, Some(Uid::new("u-l00"))));
        assert_eq!(of("l60"), (30, None));
        assert_eq!(drawn(&expanded).nodes.len(), 91);
    }

    #[test]
    fn what_depends_on_hidden_objects_is_drawn_below_their_owners() {
        let survey = survey(&[
            ("root", &[], false),
            ("middle", &["root"], false),
            ("leaf", &["middle!"], false),
            ("stray", &["gone"], false),
        ]);
        let mut objects = collect(&survey, &Extent::Namespace("n".into())).unwrap().0;
        for object in &mut objects {
            object.is_shown = !matches!(&*object.view.name, "middle" | "stray");
        }
        let left = without_hidden(objects);
        let owners = |object: &Object| -> Vec<String> {
            object.owners.iter().map(|(owner, ..)| left[*owner].view.name.to_string()).collect()
        };
        let left_ones: Vec<(String, Vec<String>)> =
            left.iter().map(|object| (object.view.name.to_string(), owners(object))).collect();
        let expected = [("leaf".to_owned(), vec!["root".to_owned()]), ("root".to_owned(), Vec::new())];
        assert_eq!(left_ones, expected);

        let hides = |_: &GroupResource| false;
        let leaf = Uid::new("u-leaf");
        let emphasis = Emphasis { shows: Some(&hides), alone: Some(&leaf), ..Emphasis::default() };
        let map = map(&survey, &Extent::Namespace("n".into()), 10, emphasis).unwrap();
        assert_eq!(map.nodes.len(), 1, "the selected object is always drawn");
        let counted = KindCount {
            resource: "configmaps".into(),
            kind: "ConfigMap".into(),
            objects: 4,
            is_shown: false,
        };
        assert_eq!(map.kinds, [counted]);
    }

    #[test]
    fn objects_of_different_fates_and_the_selected_one_are_not_folded_together() {
        let survey = family(60);
        let fate = |uid: &Uid| match &*uid.to_string() {
            "u-l07" => Some(Fate::Stuck),
            "u-l08" | "u-l09" => Some(Fate::Deleted),
            _ => None,
        };
        let selected = Uid::new("u-l50");
        let emphasis = Emphasis { fate: Some(&fate), alone: Some(&selected), ..Emphasis::default() };
        let nodes = |extent: &Extent, budget: usize| -> Vec<String> {
            let map = map(&survey, extent, budget, emphasis).unwrap();
            let node = |node: &Node| format!("{}×{} {:?}", node.place.name, node.count, node.fate);
            map.nodes.iter().map(node).collect()
        };
        let namespace = Extent::Namespace("n".into());
        assert_eq!(
            nodes(&namespace, 120),
            [
                "root×1 None",
                "l00×56 None",
                "l50×1 None",
                "l08×1 Some(Deleted)",
                "l09×1 Some(Deleted)",
                "l07×1 Some(Stuck)"
            ]
        );
        // Emphasised objects are drawn before the rest.
        assert_eq!(nodes(&namespace, 3), ["l50×1 None", "l08×2 Some(Deleted)", "l07×1 Some(Stuck)"]);
        assert_eq!(nodes(&Extent::Around(Uid::new("u-l50")), 2), ["root×1 None", "l50×1 None"]);
    }

    #[test]
    fn rings_are_drawn() {
        let survey = survey(&[("a", &["b"], false), ("b", &["a"], false)]);
        let (nodes, edges) = shown(&survey, &Extent::Namespace("n".into()), 50);
        assert_eq!((nodes.len(), edges.len()), (2, 2));
    }
}
