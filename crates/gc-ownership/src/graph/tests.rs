#![allow(clippy::unwrap_used, reason = "tests may panic")]

use gc_types::{Coordinates, DeletionState, Gvr, ResourceInfo, Scope};

use super::*;

fn info(id: u32, kind: &str, scope: Scope) -> ResourceInfo {
    ResourceInfo {
        id: ResourceId(id),
        gvr: Gvr { group: "".into(), version: "v1".into(), resource: kind.to_lowercase().into() },
        kind: kind.into(),
        scope,
        served_api_versions: vec!["v1".into()],
        watched: true,
        comparable_versions: true,
    }
}

fn reference(name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        coordinates: Coordinates {
            api_version: "v1".into(),
            kind: "Secret".into(),
            name: name.into(),
            uid: Uid::new(uid),
        },
        controller: None,
        block_owner_deletion: None,
    }
}

/// Returns a graph without objects, and the resources of Secrets and of Nodes.
fn empty() -> (Graph, ResourceIndex, ResourceIndex) {
    let mut graph = Graph::new();
    let secrets = graph.resources.serve(info(0, "Secret", Scope::Namespaced)).unwrap();
    let nodes = graph.resources.serve(info(1, "Node", Scope::Cluster)).unwrap();
    (graph, secrets, nodes)
}

/// What is stored of an object is what was observed of it: each value of each field, in the order written.
#[test]
fn an_object_comes_back_as_it_was_observed() {
    let (mut graph, secrets, _) = empty();
    let booleans = [None, Some(false), Some(true)];
    let mut owners = Vec::new();
    for controller in booleans {
        for block_owner_deletion in booleans {
            for name in ["a", "another"] {
                owners.push(OwnerReference { controller, block_owner_deletion, ..reference(name, "a") });
            }
        }
    }
    owners.push(reference("x", "0d6c8a3e-7f3b-4c9e-8f52-000000000001"));
    for bits in 0..16_u32 {
        let bit = |number: u32| bits & 1 << number != 0;
        let object = ObservedObject {
            key: ObjectKey { resource: ResourceId(0), namespace: "n".into(), name: "p".into() },
            uid: Uid::new("p"),
            resource_version: ResourceVersion(u64::from(bits) + 5),
            owners: owners.iter().skip(bits as usize).cloned().collect(),
            deletion: DeletionState {
                deleting: bit(0),
                foreground: bit(1),
                orphan: bit(2),
                foreign_finalizers: bit(3),
            },
            recreator: bit(0).then(|| Recreator::Helm("web".into())),
        };
        let (node, _) = graph.place(&object.uid, &object.key, secrets);
        graph.set_state(node, object.resource_version, object.deletion);
        graph.set_recreator(node, object.recreator.as_ref());
        for lost in graph.set_owners(node, &object.owners) {
            if graph.is_live(lost.owner) {
                graph.prune(lost.owner);
            }
        }
        assert_eq!(graph.object(node), object);
        assert!(graph.owners_equal(node, &object.owners));
        assert_eq!(graph.verify(), [""; 0]);
        for (number, changed) in changes(&object.owners).into_iter().enumerate() {
            assert!(!graph.owners_equal(node, &changed), "change {number} of {changed:?}");
        }
    }
}

/// Returns references that differ from these in one field each.
fn changes(owners: &[OwnerReference]) -> Vec<Vec<OwnerReference>> {
    let fields: [fn(&mut OwnerReference); 6] = [
        |owner| owner.coordinates.api_version = "v2".into(),
        |owner| owner.coordinates.kind = "ConfigMap".into(),
        |owner| owner.coordinates.name = "changed".into(),
        |owner| owner.coordinates.uid = Uid::new("changed"),
        |owner| owner.controller = if owner.controller.is_none() { Some(false) } else { None },
        |owner| owner.block_owner_deletion = Some(owner.block_owner_deletion != Some(true)),
    ];
    let changed = fields.into_iter().map(|change| {
        let mut owners = owners.to_vec();
        change(&mut owners[0]);
        owners
    });
    let [shorter, longer] = [owners[1..].to_vec(), [owners, &[reference("a", "a")]].concat()];
    changed.chain([shorter, longer]).collect()
}

/// A reference leads to the owner's place if kind, scope, namespace and name agree; a rename changes where it leads, not what it says.
#[test]
fn references_lead_where_they_say() {
    let (mut graph, secrets, nodes) = empty();
    let place = |graph: &mut Graph, uid: &str, namespace: &str, name: &str| {
        let resource = if namespace.is_empty() { nodes } else { secrets };
        let key =
            ObjectKey { resource: ResourceId(resource), namespace: namespace.into(), name: name.into() };
        graph.place(&Uid::new(uid), &key, resource).0
    };
    let a = place(&mut graph, "a", "n", "a");
    let dependents =
        [("p", "n", "a"), ("q", "m", "a"), ("r", "n", "b"), ("s", "", "a")].map(|(uid, namespace, name)| {
            let node = place(&mut graph, uid, namespace, uid);
            graph.set_owners(node, &[reference(name, "a")]);
            graph.edges_of(node).next().unwrap()
        });
    let state = |graph: &Graph| {
        dependents.map(|edge| (graph.matches(edge), graph.edge_name(edge).to_owned(), graph.target(edge)))
    };
    let (n, m) = (graph.namespace(a), graph.namespace(graph.dependent(dependents[1])));
    let row = |matches: bool, name: &str, namespace: NamespaceId| {
        (matches, name.to_owned(), Target::Place(secrets, namespace))
    };
    let nowhere = (false, "a".to_owned(), Target::InvalidScope);
    assert_eq!(state(&graph), [row(true, "a", n), row(false, "a", m), row(false, "b", n), nowhere.clone()]);
    for (name, leads) in [("b", [false, true]), ("c", [false, false]), ("a", [true, false])] {
        assert_eq!(place(&mut graph, "a", "n", name), a);
        let expected = [row(leads[0], "a", n), row(false, "a", m), row(leads[1], "b", n), nowhere.clone()];
        assert_eq!(state(&graph), expected, "named {name}");
        assert_eq!(graph.verify(), [""; 0], "named {name}");
    }
}

/// Which departures leave a trace for dependents, and that nothing is left when the last of them goes.
#[test]
fn a_node_is_kept_while_something_refers_to_it() {
    for (how, [gone, reported, by_read], version) in [
        (Departure::Removed(ResourceVersion(9)), [true, false, false], 9),
        (Departure::Reported(ResourceVersion(9)), [true, true, false], 9),
        (Departure::ReadAbsent(77), [true, false, true], 77),
        (Departure::Unproven, [false; 3], 0),
    ] {
        let (mut graph, secrets, _) = empty();
        let place = |graph: &mut Graph, name: &str| {
            let key = ObjectKey { resource: ResourceId(0), namespace: name.into(), name: name.into() };
            graph.place(&Uid::new(name), &key, secrets).0
        };
        let (a, p) = (place(&mut graph, "a"), place(&mut graph, "p"));
        graph.set_owners(p, &[reference("a", "a")]);
        graph.set_state(a, ResourceVersion(5), DeletionState { deleting: true, ..DeletionState::default() });
        graph.set_recreator(a, Some(&Recreator::Helm("web".into())));
        assert_eq!((graph.objects(), graph.virtual_owners(), graph.references()), (2, 0, 1));
        assert!(!graph.prune(a));
        assert_eq!(graph.depart(a, how).len(), 0);
        let state = [graph.has(a, Flag::GONE), graph.is_reported_gone(a), graph.has(a, Flag::GONE_BY_READ)];
        assert_eq!(
            (state, graph.version(a)),
            ([gone, reported, by_read], ResourceVersion(version)),
            "{how:?}"
        );
        assert!(!graph.has(a, Flag::DELETING));
        assert_eq!((graph.objects(), graph.virtual_owners(), graph.references()), (1, 1, 1), "{how:?}");
        assert_eq!(graph.verify(), [""; 0], "{how:?}");
        assert!(!graph.prune(a), "p refers to it");
        let unlinked: Vec<NodeId> = graph.depart(p, how).iter().map(|lost| lost.owner).collect();
        assert_eq!(unlinked, [a]);
        assert!(graph.prune(a) && graph.prune(p), "{how:?}");
        assert_eq!((graph.objects(), graph.virtual_owners(), graph.references()), (0, 0, 0), "{how:?}");
        assert_eq!(graph.verify(), [""; 0], "{how:?}");
    }
}
