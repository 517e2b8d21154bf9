//! The ownership graph of a namespace or around an object, folded until it can be drawn.
//!
//! Objects of one kind and state below the same owners are one group if there are many of them; what depends on a group is
//! below the group. So ten thousand pods of a thousand ReplicaSets of one Deployment are three nodes.

use std::collections::{BTreeMap, BTreeSet};

use gc_ownership::{Conclusion, NodeView, Presence, ReferenceState};
use gc_types::{ObjectKey, Uid};
use serde_json::{Value, json};

use crate::plan::Fate;
use crate::stuck::Place;
use crate::survey::Survey;

/// Objects that a map takes in at most.
pub const LARGEST_MAP: usize = 200_000;
/// Nodes that are drawn unless the question says otherwise.
pub const DEFAULT_BUDGET: usize = 120;
/// Nodes that can be asked for.
pub const LARGEST_BUDGET: usize = 600;
/// Members that a group names.
const NAMED_MEMBERS: usize = 25;
/// More objects of one kind below the same owners are folded: what is tried, until the map fits.
const FOLDED_ABOVE: [usize; 5] = [24, 12, 6, 3, 1];

/// What a map shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Everything in a namespace, and the owners outside of it.
    Namespace(String),
    /// An object with its owners and dependents.
    Around(Uid),
}

/// What a map shows of its objects besides the graph.
#[derive(Clone, Copy, Default)]
pub struct Emphasis<'a> {
    /// What a plan makes of an object. Objects that meet different fates are never folded into one node.
    pub fate: Option<&'a dyn Fn(&Uid) -> Option<Fate>>,
    /// An object that is a node of its own.
    pub alone: Option<&'a Uid>,
}

/// What an object is in the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It lives.
    Living,
    /// It is being deleted.
    Terminating,
    /// All its owners are absent: it is about to be collected.
    Orphan,
    /// It has a reference that cannot be looked up, and no owner that lives.
    InvalidReference,
    /// Others refer to it, and it is not there.
    Absent,
}

impl State {
    /// The code.
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

/// One object, or several like it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// What is shown of the first one.
    pub place: Place,
    /// State of all of them.
    pub state: State,
    /// How many there are.
    pub count: usize,
    /// The first of them, if there are several.
    pub members: Vec<Place>,
    /// Finalizers of the first one.
    pub finalizers: Vec<String>,
    /// Objects that depend on it and are not in the map.
    pub omitted: usize,
    /// What the plan makes of all of them, if it concerns them.
    pub fate: Option<Fate>,
}

/// References of the objects of one node to those of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Place of the owner in `nodes`.
    pub owner: usize,
    /// Place of the dependent in `nodes`.
    pub dependent: usize,
    /// Some of them block the deletion of the owner.
    pub is_blocking: bool,
    /// Some of them name the controller.
    pub is_controller: bool,
    /// None of them leads to an object that is there.
    pub is_invalid: bool,
}

/// The map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    /// Owners before dependents, except in rings.
    pub nodes: Vec<Node>,
    /// By owner and dependent.
    pub edges: Vec<Edge>,
    /// Objects that the map stands for.
    pub objects: usize,
    /// Objects that are not in it, because there are more than [`LARGEST_MAP`] or than fit however they are folded.
    pub omitted: usize,
}

struct Object {
    view: NodeView,
    state: State,
    fate: Option<Fate>,
    /// It is a node of its own.
    is_alone: bool,
    /// Owner, whether it blocks, whether it is the controller, whether the reference leads nowhere.
    owners: Vec<(usize, bool, bool, bool)>,
}

impl Object {
    fn new(view: NodeView, state: State) -> Self {
        Self { view, state, fate: None, is_alone: false, owners: Vec::new() }
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
    let order = owners_first(&objects);
    let mut folded = Vec::new();
    for most in FOLDED_ABOVE {
        folded = fold(&objects, &order, most);
        if folded.len() <= budget {
            break;
        }
    }
    let (drawn_ones, left_out) = within(&objects, folded, budget);
    Some(drawn(survey, &objects, drawn_ones, omitted + left_out))
}

/// The groups that are drawn, in their order, and how many objects the others have. What is emphasised comes before the rest.
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

/// The objects in question, and how many were left out.
fn collect(survey: &Survey, extent: &Extent) -> Option<(Vec<Object>, usize)> {
    let engine = &survey.engine;
    let mut views = match extent {
        Extent::Namespace(namespace) => engine.select(|key| *key.namespace == **namespace),
        Extent::Around(uid) => around(survey, uid)?,
    };
    let omitted = views.len().saturating_sub(LARGEST_MAP);
    views.truncate(LARGEST_MAP);
    let mut places: BTreeMap<Uid, usize> =
        views.iter().enumerate().map(|(place, view)| (view.uid.clone(), place)).collect();
    let mut objects: Vec<Object> = views.into_iter().map(|view| Object::new(view, State::Living)).collect();
    // Owners outside of the namespace, and owners that are not there, are drawn as well.
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

/// An object, its owners and its dependents, however far.
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

/// An order in which owners come before their dependents; the members of rings come last.
fn owners_first(objects: &[Object]) -> Vec<usize> {
    let mut dependents: Vec<Vec<usize>> = vec![Vec::new(); objects.len()];
    let mut open: Vec<usize> = objects.iter().map(|object| object.owners.len()).collect();
    for (place, object) in objects.iter().enumerate() {
        for (owner, ..) in &object.owners {
            dependents[*owner].push(place);
        }
    }
    let mut order: Vec<usize> = (0..objects.len()).filter(|place| open[*place] == 0).collect();
    let mut next = 0;
    while let Some(place) = order.get(next).copied() {
        for &dependent in &dependents[place] {
            open[dependent] -= 1;
            if open[dependent] == 0 {
                order.push(dependent);
            }
        }
        next += 1;
    }
    order.extend((0..objects.len()).filter(|place| open[*place] > 0));
    order
}

/// Groups of objects: of one kind, state and fate below the same groups, if there are more of them than `most`; others alone.
fn fold(objects: &[Object], order: &[usize], most: usize) -> Vec<Vec<usize>> {
    let mut depth = vec![0_usize; objects.len()];
    let mut layers: Vec<Vec<usize>> = Vec::new();
    for &place in order {
        let above =
            objects[place].owners.iter().map(|(owner, ..)| depth[*owner] + 1).max().unwrap_or_default();
        depth[place] = above.min(objects.len());
        if layers.len() <= depth[place] {
            layers.resize(depth[place] + 1, Vec::new());
        }
        layers[depth[place]].push(place);
    }
    let mut group_of = vec![usize::MAX; objects.len()];
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for layer in layers {
        let mut alike: BTreeMap<(BTreeSet<usize>, &str, &str, State, Option<Fate>, bool), Vec<usize>> =
            BTreeMap::new();
        for place in layer {
            let object = &objects[place];
            let owners = object.owners.iter().map(|(owner, ..)| group_of[*owner]).collect();
            let Object { view, state, fate, is_alone, .. } = object;
            let kind = (owners, &*view.api_version, &*view.kind, *state, *fate, *is_alone);
            alike.entry(kind).or_default().push(place);
        }
        for members in alike.into_values() {
            let parts: Vec<Vec<usize>> = if members.len() > most {
                vec![members]
            } else {
                members.into_iter().map(|one| vec![one]).collect()
            };
            for part in parts {
                for place in &part {
                    group_of[*place] = groups.len();
                }
                groups.push(part);
            }
        }
    }
    groups
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
        });
    }
    map
}

/// An object of the graph as answers name it.
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
    /// As data, with the resource as questions take it.
    #[must_use]
    pub fn full_value(&self) -> Value {
        let mut value = self.value();
        value["resource"] = self.resource.clone().into();
        value
    }
}

impl Map {
    /// As data.
    #[must_use]
    pub fn value(&self) -> Value {
        let node = |node: &Node| {
            json!({
                "object": node.place.full_value(), "state": node.state.name(), "count": node.count,
                "members": node.members.iter().map(Place::full_value).collect::<Vec<_>>(),
                "finalizers": node.finalizers, "omitted": node.omitted, "fate": node.fate.map(Fate::name),
            })
        };
        let edge = |edge: &Edge| {
            json!({"owner": edge.owner, "dependent": edge.dependent, "blocking": edge.is_blocking,
                   "controller": edge.is_controller, "invalid": edge.is_invalid})
        };
        json!({
            "nodes": self.nodes.iter().map(node).collect::<Vec<_>>(),
            "edges": self.edges.iter().map(edge).collect::<Vec<_>>(),
            "objects": self.objects, "omitted": self.omitted,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use crate::catalog::Catalog;
    use gc_types::{ResourceId, ResourceVersion, Timestamp};

    /// A survey of ConfigMaps: name, owners as `name` or `name!` (blocking), whether it is being deleted.
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

    /// `name×count state` of each node, and `owner>dependent` of each edge with its marks.
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

    /// An owner with leaves `l00`, `l01`, … that name it.
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

    #[test]
    fn objects_of_different_fates_and_the_selected_one_are_not_folded_together() {
        let survey = family(60);
        let fate = |uid: &Uid| match &*uid.to_string() {
            "u-l07" => Some(Fate::Hangs),
            "u-l08" | "u-l09" => Some(Fate::Deleted),
            _ => None,
        };
        let selected = Uid::new("u-l50");
        let emphasis = Emphasis { fate: Some(&fate), alone: Some(&selected) };
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
                "l07×1 Some(Hangs)"
            ]
        );
        // What is emphasised is drawn before the rest.
        assert_eq!(nodes(&namespace, 3), ["l50×1 None", "l08×2 Some(Deleted)", "l07×1 Some(Hangs)"]);
        assert_eq!(nodes(&Extent::Around(Uid::new("u-l50")), 2), ["root×1 None", "l50×1 None"]);
    }

    #[test]
    fn rings_are_drawn() {
        let survey = survey(&[("a", &["b"], false), ("b", &["a"], false)]);
        let (nodes, edges) = shown(&survey, &Extent::Namespace("n".into()), 50);
        assert_eq!((nodes.len(), edges.len()), (2, 2));
    }
}
