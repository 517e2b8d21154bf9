#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::{Value, json};

use super::arithmetic::{max_surge, max_unavailable};
use super::*;
use crate::testing::{World, owner};
use crate::workloads::Workload;

fn world(spec: &Value) -> World {
    let mut world = World::whole();
    world.create(Kind::Deployment, owner("web", spec));
    world.settle();
    world
}

/// Returns the sets by revision, each with its wanted number of pods.
fn sets(world: &World) -> Vec<(String, i64)> {
    let mut sets: Vec<_> = world
        .of_kind(Kind::ReplicaSet)
        .into_iter()
        .map(|set| {
            let revision = set["metadata"]["annotations"][REVISION].as_str().unwrap().to_owned();
            (revision, set["spec"]["replicas"].as_i64().unwrap())
        })
        .collect();
    sets.sort();
    sets
}

fn conditions(world: &World) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let all = world.get(Kind::Deployment, "web")["status"]["conditions"].as_array().unwrap();
    all.iter().map(|one| (text(&one["type"]), text(&one["status"]), text(&one["reason"]))).collect()
}

fn set_image(world: &mut World, image: &str) {
    world.change(Kind::Deployment, "web", |value| {
        value["spec"]["template"]["spec"]["containers"][0]["image"] = image.into();
    });
    world.settle();
}

fn history(reason: &str, status: &str) -> (String, String, String) {
    ("Progressing".to_owned(), status.to_owned(), reason.to_owned())
}

fn rolling(surge: &Value, unavailable: &Value) -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}})
}

#[test]
fn a_deployment_becomes_available() {
    let world = world(&json!({"replicas": 3, "progressDeadlineSeconds": 600,
        "strategy": rolling(&json!("25%"), &json!("25%"))}));
    let deployment = world.get(Kind::Deployment, "web");
    assert_eq!(deployment["metadata"]["annotations"], json!({REVISION: "1"}));
    let name = format!("web-{}", crate::hash::pod_template_hash(&deployment["spec"]["template"], None));
    let set = world.get(Kind::ReplicaSet, &name);
    assert_eq!(
        set["metadata"]["annotations"],
        json!({REVISION: "1", DESIRED_REPLICAS: "3", MAX_REPLICAS: "4"})
    );
    assert_eq!(set["spec"]["selector"]["matchLabels"][TEMPLATE_HASH], name[4..]);
    let at = "2023-11-14T22:13:20Z";
    assert_eq!(
        deployment["status"],
        json!({
            "observedGeneration": 1, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3,
            "availableReplicas": 3, "terminatingReplicas": 0,
            "conditions": [
                {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable",
                    "message": "Deployment has minimum availability.", "lastUpdateTime": at, "lastTransitionTime": at},
                {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable",
                    "message": format!("ReplicaSet \"{name}\" has successfully progressed."),
                    "lastUpdateTime": at, "lastTransitionTime": at},
            ],
        })
    );
    assert_eq!(world.events("web"), [format!("ScalingReplicaSet Scaled up replica set {name} from 0 to 3")]);
}

#[test]
fn a_new_template_rolls_and_an_old_one_rolls_back_as_a_new_revision() {
    let mut world = world(&json!({"replicas": 3, "progressDeadlineSeconds": 600, "revisionHistoryLimit": 1,
        "strategy": rolling(&json!(1), &json!(0))}));
    set_image(&mut world, "web:2");
    assert_eq!(sets(&world), [("1".into(), 0), ("2".into(), 3)]);
    let scaled: Vec<_> = world
        .events("web")
        .iter()
        .map(|event| event.split("set ").nth(1).unwrap().split_once(' ').unwrap().1.to_owned())
        .collect();
    let expected = [
        "from 0 to 3",
        "from 0 to 1",
        "from 3 to 2",
        "from 1 to 2",
        "from 2 to 1",
        "from 2 to 3",
        "from 1 to 0",
    ];
    assert_eq!(scaled, expected);
    set_image(&mut world, "web:1");
    assert_eq!(sets(&world), [("2".into(), 0), ("3".into(), 3)]);
    let newest =
        world.of_kind(Kind::ReplicaSet).into_iter().find(|set| set["spec"]["replicas"] == 3).unwrap();
    assert_eq!(newest["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"], "1");
    // One old set is kept beside the new one.
    set_image(&mut world, "web:3");
    assert_eq!(sets(&world), [("3".into(), 0), ("4".into(), 3)]);
    assert_eq!(world.names(Kind::Pod).len(), 3);
}

#[test]
fn pods_are_recreated_only_when_the_last_old_one_is_gone() {
    let mut world = world(&json!({"replicas": 2, "strategy": {"type": "Recreate"}}));
    let pods: Vec<String> = world.names(Kind::Pod).into_iter().map(str::to_owned).collect();
    // The node is stopped, so its pods stay.
    let stop = |stopped: &'static str| {
        move |value: &mut Value| {
            value["metadata"]["annotations"]["kubegc.io/stopped"] = stopped.into();
        }
    };
    world.change(Kind::Node, "kubegc-node-0", stop("true"));
    set_image(&mut world, "web:2");
    assert_eq!(world.names(Kind::Pod), pods);
    assert_eq!(sets(&world), [("1".into(), 0)]);
    world.change(Kind::Node, "kubegc-node-0", stop("false"));
    world.settle();
    assert_eq!(sets(&world), [("1".into(), 0), ("2".into(), 2)]);
    assert!(world.names(Kind::Pod).iter().all(|name| !pods.iter().any(|old| old == name)));
}

#[test]
fn pausing_scaling_and_resuming() {
    let mut world = world(&json!({"replicas": 2, "progressDeadlineSeconds": 600,
        "strategy": rolling(&json!(1), &json!(0))}));
    world.change(Kind::Deployment, "web", |value| value["spec"]["paused"] = true.into());
    world.settle();
    set_image(&mut world, "web:2");
    assert_eq!(sets(&world), [("1".into(), 2)]);
    assert_eq!(conditions(&world)[1], history("DeploymentPaused", "Unknown"));
    world.change(Kind::Deployment, "web", |value| value["spec"]["replicas"] = 4.into());
    world.settle();
    assert_eq!(sets(&world), [("1".into(), 4)]);
    world.change(Kind::Deployment, "web", |value| value["spec"]["paused"] = false.into());
    world.settle();
    assert_eq!(sets(&world), [("1".into(), 0), ("2".into(), 4)]);
    assert_eq!(conditions(&world)[1], history("NewReplicaSetAvailable", "True"));
}

#[test]
fn a_rollout_without_progress_times_out_once() {
    let mut world = World::whole();
    let spec = json!({"replicas": 1, "progressDeadlineSeconds": 60, "strategy": rolling(&json!(1), &json!(0)),
        "template": {"spec": {"nodeSelector": {"disk": "none"}}}});
    world.create(Kind::Deployment, owner("web", &spec));
    world.settle();
    assert_eq!(conditions(&world)[1], history("ReplicaSetUpdated", "True"));
    world.pass(59);
    assert_eq!(conditions(&world)[1], history("ReplicaSetUpdated", "True"));
    world.pass(3);
    assert_eq!(conditions(&world)[1], history("ProgressDeadlineExceeded", "False"));
}

#[test]
fn several_sets_are_scaled_in_proportion() {
    // Halfway through a roll from 10 pods, with the old set stuck at 8 and the new one at 5.
    let deployment = json!({"metadata": {"name": "web", "uid": "d", "generation": 1, "annotations": {REVISION: "2"}},
        "spec": {"replicas": 30, "selector": {"matchLabels": {"app": "web"}}, "paused": true,
            "strategy": rolling(&json!(3), &json!(2)), "template": {"spec": {"image": 2}}}});
    let set = |name: &str, size: i64, image: i64, revision: &str| {
        json!({"metadata": {"name": name, "uid": name, "labels": {"app": "web"},
            "annotations": {DESIRED_REPLICAS: "10", MAX_REPLICAS: "13", REVISION: revision},
            "ownerReferences": [{"uid": "d", "controller": true}]},
            "spec": {"replicas": size, "template": {"spec": {"image": image}}}})
    };
    let objects = [
        (Kind::Deployment, deployment),
        (Kind::ReplicaSet, set("old", 8, 1, "1")),
        (Kind::ReplicaSet, set("new", 5, 2, "2")),
    ];
    let (store, settings) = (crate::testing::store(&objects), crate::plan::Settings::default());
    let view = crate::testing::view(&store, &settings);
    let plan = reconcile(&view, &Kind::Deployment.key("", "web"));
    let sizes: Vec<_> = plan
        .steps
        .iter()
        .flatten()
        .filter(|request| request.why == "scale")
        .map(|request| match &request.action {
            crate::plan::Action::Update { key, object } => {
                (key.name.to_string(), object["spec"]["replicas"].clone())
            }
            other => panic!("{other:?}"),
        })
        .collect();
    // 33 pods may exist: 8 of 13 become 20, and 5 of 13 become 13.
    assert_eq!(sizes, [("old".to_owned(), json!(20)), ("new".to_owned(), json!(13))]);
}

/// A Deployment is scaled and rolled at the same time, to the size that its only active set, or one of two, already has.
#[test]
fn a_set_of_the_right_size_does_not_keep_a_scaled_deployment_from_rolling() {
    let cases = [
        ("rolling, the set is old", rolling(&json!(1), &json!(0)), &["1"][..], "web:2", [("1", 0), ("2", 1)]),
        (
            "recreating, two sets are old",
            json!({"type": "Recreate"}),
            &["1", "2"],
            "web:3",
            [("2", 0), ("3", 1)],
        ),
        (
            "recreating, one of two is new",
            json!({"type": "Recreate"}),
            &["1", "2"],
            "web:2",
            [("1", 0), ("2", 1)],
        ),
    ];
    for (name, strategy, active, image, expected) in cases {
        let mut world = world(&json!({"replicas": 2, "revisionHistoryLimit": 1, "strategy": strategy}));
        if active.len() > 1 {
            set_image(&mut world, "web:2");
        }
        let named: Vec<String> = world.names(Kind::ReplicaSet).into_iter().map(str::to_owned).collect();
        for set in named {
            world.change(Kind::ReplicaSet, &set, |value| value["spec"]["replicas"] = 1.into());
        }
        assert_eq!(sets(&world).iter().map(|set| &*set.0).collect::<Vec<_>>(), active, "{name}");
        world.change(Kind::Deployment, "web", |value| value["spec"]["replicas"] = 1.into());
        set_image(&mut world, image);
        assert_eq!(sets(&world), expected.map(|(revision, size)| (revision.to_owned(), size)), "{name}");
    }
}

#[test]
fn surge_and_unavailability_are_numbers_or_shares() {
    for (replicas, surge, unavailable, expected) in [
        (10, json!("25%"), json!("25%"), (3, 2)),
        (1, json!("25%"), json!("25%"), (1, 0)),
        (10, json!(0), json!(0), (0, 1)),
        (2, json!(1), json!(5), (1, 2)),
        (0, json!(1), json!(1), (1, 0)),
    ] {
        let value = json!({"spec": {"replicas": replicas, "strategy": rolling(&surge, &unavailable)}});
        assert_eq!((max_surge(&value), max_unavailable(&value)), expected, "{value}");
    }
}

#[test]
fn a_foreign_set_of_the_same_name_counts_as_a_collision() {
    let mut world = World::whole();
    let deployment = owner("web", &json!({"replicas": 1}));
    let name = format!("web-{}", crate::hash::pod_template_hash(&deployment["spec"]["template"], None));
    world.create(Kind::ReplicaSet, json!({"metadata": {"name": name}, "spec": {"replicas": 0,
        "selector": {"matchLabels": {"app": "other"}}, "template": {"metadata": {"labels": {"app": "other"}}}}}));
    world.create(Kind::Deployment, deployment);
    world.settle();
    let deployment = world.get(Kind::Deployment, "web");
    assert_eq!(deployment["status"]["collisionCount"], 1);
    let other = format!("web-{}", crate::hash::pod_template_hash(&deployment["spec"]["template"], Some(1)));
    assert_eq!(world.get(Kind::ReplicaSet, &other)["status"]["readyReplicas"], 1);
}

/// The claim about speed that does not depend on the machine: the cost of a Deployment with three pods.
#[test]
fn what_a_deployment_costs_does_not_grow_with_how_many_there_are() {
    let cost = |count: usize| {
        let mut world = World::whole();
        let before = world.runtime.counts();
        for number in 0..count {
            let mut value = owner(&format!("web-{number}"), &json!({"replicas": 3}));
            let labels = json!({"app": format!("web-{number}")});
            value["spec"]["selector"]["matchLabels"] = labels.clone();
            value["spec"]["template"]["metadata"]["labels"] = labels;
            world.create(Kind::Deployment, value);
        }
        world.settle();
        let after = world.runtime.counts();
        assert_eq!(world.of_kind(Kind::Pod).len(), 3 * count);
        assert_eq!(after.failures, before.failures);
        (after.requests - before.requests, after.reconciles - before.reconciles)
    };
    // 1 ReplicaSet, 3 pods with 3 bindings and 3 statuses, 7 Events, and the statuses of the set and the Deployment. The kubelet
    // adds 3 Events for each pod, but no more than 100 at once.
    let (one, twenty) = (cost(1), cost(20));
    let expected = ((22 + 9, 19), (20 * 22 + 100, 20 * 19));
    assert_eq!((one, twenty), expected, "requests and reconciliations");
}

/// An old ReplicaSet: its revision (empty for none), its age in minutes, its wanted and its current replicas, and whether it is
/// terminating.
type Old = (&'static str, i64, i64, i64, bool);

/// Scenarios DEP-T of the specification: `revisionHistoryLimit`, the old ReplicaSets, and which of them are deleted.
#[test]
fn the_revision_history_is_that_of_the_specification() {
    const EMPTY: fn(&'static str, i64) -> Old = |revision, age| (revision, age, 0, 0, false);
    let table: [(&str, i64, Vec<Old>, &[usize]); 12] = [
        ("DEP-T01", 1, vec![EMPTY("1", 3), EMPTY("2", 2), EMPTY("3", 1)], &[0, 1]),
        (
            "DEP-T02",
            0,
            vec![EMPTY("1", 4), ("2", 3, 0, 1, false), ("3", 2, 1, 0, false), ("4", 1, 1, 1, false)],
            &[0],
        ),
        ("DEP-T03", 0, vec![EMPTY("1", 2), EMPTY("2", 1)], &[0, 1]),
        ("DEP-T04", 0, vec![("1", 2, 1, 1, false), ("2", 1, 1, 1, false)], &[]),
        ("DEP-T05", 0, vec![("1", 1, 0, 0, true)], &[]),
        ("DEP-T06", i64::from(i32::MAX), vec![EMPTY("1", 2), EMPTY("2", 1)], &[]),
        ("DEP-T07", 1, vec![EMPTY("2", 2), EMPTY("1", 1)], &[1]),
        ("DEP-T08 older", 1, vec![EMPTY("", 2), EMPTY("1", 1)], &[0]),
        ("DEP-T08 newer", 1, vec![EMPTY("1", 2), EMPTY("", 1)], &[1]),
        ("DEP-T09", 1, vec![("1", 3, 1, 1, false), EMPTY("2", 2), EMPTY("3", 1)], &[1]),
        ("DEP-T10", 1, vec![("1", 3, 1, 1, false), ("2", 2, 1, 1, false), EMPTY("3", 1)], &[]),
        ("DEP-T11", 2, vec![EMPTY("3", 4), EMPTY("1", 3), EMPTY("4", 2), EMPTY("2", 1)], &[1, 3]),
    ];
    for (id, limit, old, expected) in table {
        let mut deployment = owner("web", &json!({"revisionHistoryLimit": limit}));
        deployment["metadata"]["uid"] = "deployment".into();
        let deployment = Arc::new(Object::new(Kind::Deployment, deployment).unwrap());
        let sets = old.iter().enumerate().map(|(number, (revision, age, wanted, present, deleting))| {
            let created = crate::time::format(crate::testing::START - age * 60_000);
            let mut set = owner(&format!("web-{number}"), &json!({"replicas": wanted}));
            set["spec"]["template"]["spec"]["containers"][0]["image"] = number.to_string().into();
            set["metadata"]["uid"] = format!("set-{number}").into();
            set["metadata"]["generation"] = 1.into();
            set["metadata"]["creationTimestamp"] = created.clone();
            if *deleting {
                set["metadata"]["deletionTimestamp"] = created;
            }
            if !revision.is_empty() {
                set["metadata"]["annotations"] = json!({REVISION: revision});
            }
            set["status"] = json!({"replicas": present, "observedGeneration": 1});
            Arc::new(Object::new(Kind::ReplicaSet, set).unwrap())
        });
        let sets: Vec<Arc<Object>> = sets.collect();
        let (store, settings) = (crate::testing::store(&[]), crate::plan::Settings::default());
        let view = crate::testing::view(&store, &settings);
        let mut rollout = Rollout::new(&view, &deployment, &sets);
        rollout.clean_up();
        let requests = rollout.plan.steps.into_iter().flatten();
        let mut deleted: Vec<String> =
            requests.map(|request| request.action.key().name.to_string()).collect();
        deleted.sort();
        let expected: Vec<String> = expected.iter().map(|number| format!("web-{number}")).collect();
        assert_eq!(deleted, expected, "{id}");
    }
}

#[test]
fn a_set_that_was_never_reconciled_does_not_hide_the_terminating_pods() {
    let mut world = World::new(&[Workload::Deployment]);
    let status = |terminating: Option<i64>, generation: i64| json!({"replicas": 1, "observedGeneration": generation, "terminatingReplicas": terminating});
    for (new, expected) in
        [(status(None, 0), json!(2)), (status(None, 1), Value::Null), (status(Some(1), 1), json!(3))]
    {
        world.create(Kind::Deployment, owner("web", &json!({"replicas": 1})));
        world.settle();
        let old = world.names(Kind::ReplicaSet)[0].to_owned();
        world.change(Kind::ReplicaSet, &old, |set| set["status"] = status(Some(2), 1));
        set_image(&mut world, "web:2");
        let fresh = world.names(Kind::ReplicaSet).into_iter().find(|name| *name != old).unwrap().to_owned();
        world.change(Kind::ReplicaSet, &fresh, |set| set["status"] = new.clone());
        world.settle();
        assert_eq!(world.get(Kind::Deployment, "web")["status"]["terminatingReplicas"], expected, "{new}");
        for (kind, name) in
            [(Kind::Deployment, "web"), (Kind::ReplicaSet, &*old), (Kind::ReplicaSet, &*fresh)]
        {
            world.delete(&kind.key("default", name), None);
        }
        world.settle();
    }
}
