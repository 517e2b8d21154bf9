//! Folding of objects into groups until a map can be drawn.

use std::collections::{BTreeMap, BTreeSet};

use gc_types::Uid;

use super::{Object, State};
use crate::plan::Fate;

/// Group sizes above which objects of one kind below the same owners are folded, tried in this order until the map fits.
const FOLDED_ABOVE: [usize; 5] = [24, 12, 6, 3, 1];
/// Maximum number of members of an expanded group that get nodes of their own; the others stay folded.
const EXPANDED_MEMBERS: usize = 60;
/// Maximum number of expanded groups.
const EXPANDED_GROUPS: usize = 16;

/// An owner's index, and whether the reference blocks, names the controller, and leads nowhere.
type Owner = (usize, bool, bool, bool);
/// The group of each expanded object, by the UID that was given to expand it.
pub(super) type Parents = BTreeMap<Uid, Uid>;

/// Degree of folding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    /// Maximum number of objects of one kind below the same owners before they form a group.
    most: usize,
    /// Number of families that have groups of their own, the largest first.
    apart: usize,
}

/// Objects by the root that owns them.
pub(super) struct Families {
    /// Owners before dependents; the members of rings come last.
    order: Vec<usize>,
    /// True for objects that have dependents.
    has_dependents: Vec<bool>,
    /// Roots with dependents, ranked by the size of their families, the largest first.
    rank: BTreeMap<usize, usize>,
}

impl Families {
    pub(super) fn of(objects: &[Object], order: Vec<usize>) -> Self {
        let mut has_dependents = vec![false; objects.len()];
        for (owner, ..) in objects.iter().flat_map(|object| &object.owners) {
            has_dependents[*owner] = true;
        }
        // An object with several owners belongs to the first one.
        let mut root: Vec<usize> = (0..objects.len()).collect();
        let mut sizes: BTreeMap<usize, usize> = BTreeMap::new();
        for &place in &order {
            if let Some((owner, ..)) = objects[place].owners.first() {
                root[place] = root[*owner];
            }
            *sizes.entry(root[place]).or_default() += 1;
        }
        let mut roots: Vec<(usize, usize)> = sizes
            .into_iter()
            .filter(|(root, _)| objects[*root].owners.is_empty() && has_dependents[*root])
            .collect();
        roots.sort_by_key(|(root, size)| (std::cmp::Reverse(*size), *root));
        let rank = roots.into_iter().enumerate().map(|(rank, (root, _))| (root, rank)).collect();
        Self { order, has_dependents, rank }
    }
}

/// Removes hidden objects. Their dependents move up to their owners, and absent owners without dependents disappear.
pub(super) fn without_hidden(objects: Vec<Object>) -> Vec<Object> {
    if objects.iter().all(|object| object.is_shown) {
        return objects;
    }
    let mut owners: Vec<Vec<Owner>> = vec![Vec::new(); objects.len()];
    for place in owners_first(&objects) {
        let mut found: BTreeMap<usize, Owner> = BTreeMap::new();
        for edge in &objects[place].owners {
            let above =
                if objects[edge.0].is_shown { std::slice::from_ref(edge) } else { &owners[edge.0][..] };
            for owner in above {
                found.entry(owner.0).or_insert(*owner);
            }
        }
        owners[place] = found.into_values().collect();
    }
    let is_owner: BTreeSet<usize> = objects
        .iter()
        .enumerate()
        .filter(|(_, object)| object.is_shown)
        .flat_map(|(place, _)| owners[place].iter().map(|owner| owner.0))
        .collect();
    let is_kept = |place: usize, object: &Object| {
        object.is_shown && (object.state != State::Absent || is_owner.contains(&place))
    };
    let mut place_of = vec![None; objects.len()];
    let mut next = 0;
    for (place, object) in objects.iter().enumerate() {
        if is_kept(place, object) {
            place_of[place] = Some(next);
            next += 1;
        }
    }
    let moved = |owners: Vec<Owner>| -> Vec<Owner> {
        let moved = |(owner, blocks, controls, is_invalid): Owner| {
            Some((place_of[owner]?, blocks, controls, is_invalid))
        };
        owners.into_iter().filter_map(moved).collect()
    };
    let all = objects.into_iter().zip(owners).enumerate();
    all.filter(|(place, (object, _))| is_kept(*place, object))
        .map(|(_, (object, owners))| Object { owners: moved(owners), ..object })
        .collect()
}

/// Returns an order in which owners come before their dependents; the members of rings come last.
pub(super) fn owners_first(objects: &[Object]) -> Vec<usize> {
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

/// Properties that objects must share to be folded together.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Likeness<'a> {
    owners: BTreeSet<usize>,
    namespace: &'a str,
    api_version: &'a str,
    kind: &'a str,
    state: State,
    fate: Option<Fate>,
    has_dependents: bool,
    /// The object itself, if it gets a node of its own.
    single: Option<usize>,
}

/// Groups similar objects if there are more of them than the rule allows; all others, and each of `singles`, stay alone.
fn fold(objects: &[Object], families: &Families, rule: Rule, singles: &BTreeSet<usize>) -> Vec<Vec<usize>> {
    let mut depth = vec![0_usize; objects.len()];
    let mut layers: Vec<Vec<usize>> = Vec::new();
    for &place in &families.order {
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
        let mut alike: BTreeMap<Likeness<'_>, Vec<usize>> = BTreeMap::new();
        for place in layer {
            let object = &objects[place];
            let is_apart = families.rank.get(&place).is_some_and(|rank| *rank < rule.apart);
            let is_single = object.is_alone || is_apart || singles.contains(&place);
            let likeness = Likeness {
                owners: object.owners.iter().map(|(owner, ..)| group_of[*owner]).collect(),
                namespace: object.view.key.as_ref().map_or("", |key| &*key.namespace),
                api_version: &object.view.api_version,
                kind: &object.view.kind,
                state: object.state,
                fate: object.fate,
                has_dependents: families.has_dependents[place],
                single: is_single.then_some(place),
            };
            alike.entry(likeness).or_default().push(place);
        }
        for members in alike.into_values() {
            let parts: Vec<Vec<usize>> = if members.len() > rule.most {
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

/// Folds no more than necessary for `budget` groups: first similar objects below one owner, then the smallest families together.
pub(super) fn fitting(objects: &[Object], families: &Families, budget: usize) -> (Rule, Vec<Vec<usize>>) {
    let nothing = BTreeSet::new();
    let all = families.rank.len();
    if all <= budget {
        for most in FOLDED_ABOVE {
            let rule = Rule { most, apart: all };
            let groups = fold(objects, families, rule, &nothing);
            if groups.len() <= budget {
                return (rule, groups);
            }
        }
    }
    let with = |apart: usize| {
        let rule = Rule { most: 1, apart };
        (rule, fold(objects, families, rule, &nothing))
    };
    let (mut fits, mut too_many) = (with(0), all.min(budget));
    while fits.0.apart + 1 < too_many {
        let middle = usize::midpoint(fits.0.apart, too_many);
        let tried = with(middle);
        if tried.1.len() <= budget {
            fits = tried;
        } else {
            too_many = middle;
        }
    }
    fits
}

/// Expands the groups of these objects one after the other, and returns the group that each object was in.
pub(super) fn expand(
    objects: &[Object],
    families: &Families,
    rule: Rule,
    mut groups: Vec<Vec<usize>>,
    expanded: &[Uid],
) -> (Vec<Vec<usize>>, Parents) {
    let (mut singles, mut parents) = (BTreeSet::new(), Parents::new());
    for uid in expanded.iter().take(EXPANDED_GROUPS) {
        let is_in = |group: &&Vec<usize>| group.iter().any(|place| objects[*place].view.uid == *uid);
        let Some(group) = groups.iter().find(is_in).filter(|group| group.len() > 1) else { continue };
        for place in group.iter().take(EXPANDED_MEMBERS) {
            singles.insert(*place);
            parents.insert(objects[*place].view.uid.clone(), uid.clone());
        }
        groups = fold(objects, families, rule, &singles);
    }
    (groups, parents)
}
