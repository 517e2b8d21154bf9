//! The numbered scenarios, and further ones.

use super::*;

#[test]
fn the_scenarios_of_reclaim() {
    let released = json!({"status": {"phase": "Released"}});
    let policy = |policy: &str| json!({"spec": {"persistentVolumeReclaimPolicy": policy}});
    let path = host("/tmp/a");
    let destroyed = ["read data", "phase v Released", "list attachments", "destroy v /tmp/a", "delete v"];
    let unmatched =
        "error getting deleter volume plugin for volume \"v\": no deletable volume plugin matched";
    let gluster = "error getting deleter volume plugin for volume \"v\": no volume plugin matched name: \
                   kubernetes.io/glusterfs; remove its storage by hand, then the volume and its finalizers";
    let failed = |event: &str, message: &str| {
        vec![
            "read data".to_owned(),
            "phase v Released".to_owned(),
            format!("Warning {event} {message}"),
            format!("phase v Failed {message}"),
        ]
    };
    let unknown = "volume \"v\" has no CSI source, and what its in-tree source is for the driver is not known; remove \
                   its storage by hand";
    let moved = json!({
        "metadata": {"annotations": {"pv.kubernetes.io/provisioned-by": "kubernetes.io/aws-ebs",
            "pv.kubernetes.io/migrated-to": BLOCK_DRIVER}},
        "spec": {"awsElasticBlockStore": {"volumeID": "aws://us-east-1a/vol-1"}},
    });
    let only = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    let marked = only(&["read data", "phase v Released"]);
    for (scenario, more, expected) in [
        (
            "PV-T01",
            both(
                &path,
                &json!({"metadata": {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}}}),
            ),
            only(&destroyed),
        ),
        ("PV-T02", path.clone(), only(&destroyed)),
        ("PV-T03", json!({"spec": {"nfs": {"server": "s"}}}), failed("VolumeFailedDelete", unmatched)),
        (
            "CSI-T10",
            both(
                &moved,
                &json!({"metadata": {"finalizers": ["kubernetes.io/pv-protection", EXTERNAL_FINALIZER]}}),
            ),
            only(&[
                "read data",
                "phase v Released",
                "list attachments",
                "destroy v csi vol-1",
                "delete v",
                "finalizers v kubernetes.io/pv-protection",
            ]),
        ),
        (
            "CSI-T10, an unknown handle",
            both(
                &moved,
                &json!({"metadata": {"finalizers": ["kubernetes.io/pv-protection", EXTERNAL_FINALIZER]},
                    "spec": {"awsElasticBlockStore": {"volumeID": "aws://a/1"}}}),
            ),
            vec![
                "read data".to_owned(),
                "phase v Released".to_owned(),
                format!("Warning VolumeFailedDelete {unknown}"),
                format!("phase v Released {unknown}"),
            ],
        ),
        (
            "PV-T09",
            both(&provisioned("external.io/test"), &json!({"spec": {"csi": {"driver": "external.io/test"}}})),
            marked.clone(),
        ),
        (
            "PV-T10",
            json!({"spec": {"csi": {"driver": "other.example.com", "volumeHandle": "h"}}}),
            marked.clone(),
        ),
        (
            "PV-T11",
            json!({"metadata": {"annotations": {"pv.kubernetes.io/provisioned-by": "kubernetes.io/gce-pd",
            "pv.kubernetes.io/migrated-to": "pd.csi.storage.gke.io"}}}),
            marked.clone(),
        ),
        (
            "PV-T16",
            policy("Scrap"),
            failed("VolumeUnknownReclaimPolicy", "Volume has unrecognized PersistentVolumeReclaimPolicy"),
        ),
        ("PV-T17", both(&path, &policy("Retain")), marked.clone()),
        ("PV-T17, again", both(&both(&path, &policy("Retain")), &released), only(&[])),
        (
            "PV-T19",
            both(&path, &json!({"status": {"phase": "Failed", "message": "old"}})),
            only(&["read data", "list attachments", "destroy v /tmp/a", "delete v"]),
        ),
        (
            // Nothing is recycled, and the status says so, whatever uses the claim: PV-T33, PV-T34 and PV-T36 to PV-T38 as well.
            "PV-T35",
            both(&path, &policy("Recycle")),
            failed("VolumeFailedRecycle", "No recycler plugin found for the volume!"),
        ),
        (
            "PV-T44",
            both(
                &provisioned("kubernetes.io/glusterfs"),
                &json!({"metadata": {
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [IN_TREE_FINALIZER]}}),
            ),
            failed("VolumeFailedDelete", gluster),
        ),
        (
            "PV-T14",
            both(
                &both(&path, &provisioned(HOST_PATH_PLUGIN)),
                &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z",
                    "finalizers": ["kubernetes.io/pv-protection", IN_TREE_FINALIZER]}}),
            ),
            only(&[
                "read data",
                "phase v Released",
                "list attachments",
                "destroy v /tmp/a",
                "finalizers v kubernetes.io/pv-protection",
            ]),
        ),
        (
            "PV-T39",
            json!({"spec": {"persistentVolumeReclaimPolicy": "Recycle", "claimRef": null},
                "status": {"phase": "Available"}}),
            only(&[]),
        ),
        (
            // Upstream leaves the finalizer (BEAT-CSI-4).
            "CSI-T07",
            both(&csi("h"), &json!({"status": {"phase": "Failed"}})),
            only(&[
                "read data",
                "list attachments",
                "destroy v csi h",
                "delete v",
                "finalizers v kubernetes.io/pv-protection",
            ]),
        ),
        ("available", json!({"spec": {"claimRef": null}, "status": {"phase": "Available"}}), only(&[])),
        (
            "reserved",
            json!({"spec": {"claimRef": {"uid": null}}, "status": {"phase": "Available"}}),
            only(&[]),
        ),
        (
            "CSI-T01",
            csi("h"),
            only(&[
                "read data",
                "phase v Released",
                "list attachments",
                "destroy v csi h",
                "delete v",
                "finalizers v kubernetes.io/pv-protection",
            ]),
        ),
        (
            "CSI-T03",
            both(&csi("h"), &policy("Retain")),
            only(&["finalizers v kubernetes.io/pv-protection", "read data", "phase v Released"]),
        ),
        (
            "CSI-T04",
            both(
                &both(&csi("h"), &released),
                &json!({"metadata": {"finalizers": ["kubernetes.io/pv-protection"],
            "deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            ),
            only(&["read data"]),
        ),
        (
            "CSI-T06",
            both(
                &both(&csi("h"), &released),
                &both(&policy("Retain"), &json!({"metadata": {"finalizers": []}})),
            ),
            only(&[]),
        ),
        ("CSI-T08", both(&csi("h"), &both(&provisioned("other.example.com"), &released)), only(&[])),
        (
            "CSI-T09",
            both(&csi("h"), &both(&released, &json!({"metadata": {"annotations": null}}))),
            only(&[
                "read data",
                "list attachments",
                "destroy v csi h",
                "delete v",
                "finalizers v kubernetes.io/pv-protection",
            ]),
        ),
        (
            "BEAT-CSI-4",
            json!({
                "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z",
                    "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER},
                    "finalizers": ["kubernetes.io/pv-protection", EXTERNAL_FINALIZER]},
                "spec": {"claimRef": null, "csi": {"driver": DRIVER, "volumeHandle": "h"}},
                "status": {"phase": "Available"},
            }),
            only(&["list attachments", "destroy v csi h", "finalizers v kubernetes.io/pv-protection"]),
        ),
    ] {
        let mut world = World::new(deleters());
        world.put_volume(volume("v", &more));
        world.run();
        assert_eq!(world.took(), expected, "{scenario}");
        // A settled volume stays settled.
        world.pass(3_600_000);
        assert_eq!(world.took(), Vec::<String>::new(), "{scenario}");
    }
}

#[test]
fn the_scenarios_of_finalizers() {
    let foreign = "example.com/f";
    let of = |by: Option<&str>, policy: &str, finalizers: &[&str]| {
        let mut more = json!({"metadata": {"finalizers": finalizers},
            "spec": {"persistentVolumeReclaimPolicy": policy, "hostPath": {"path": "/tmp/a"}}});
        if let Some(by) = by {
            more["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"] = by.into();
        }
        volume("v", &more)
    };
    let path = Some(HOST_PATH_PLUGIN);
    for (scenario, object, expected) in [
        ("PV-T23", of(Some("other.example.com"), "Delete", &[EXTERNAL_FINALIZER]), &[EXTERNAL_FINALIZER][..]),
        ("PV-T24", of(Some("other.example.com"), "Delete", &[]), &[]),
        ("PV-T25", of(path, "Delete", &[foreign]), &[foreign, IN_TREE_FINALIZER]),
        ("PV-T26", of(path, "Delete", &[]), &[IN_TREE_FINALIZER]),
        ("PV-T27", of(path, "Delete", &[EXTERNAL_FINALIZER]), &[IN_TREE_FINALIZER]),
        ("PV-T27", of(path, "Delete", &[EXTERNAL_FINALIZER, foreign]), &[foreign, IN_TREE_FINALIZER]),
        (
            "PV-T28",
            of(Some("kubernetes.io/gce-pd"), "Delete", &[EXTERNAL_FINALIZER, IN_TREE_FINALIZER]),
            &[EXTERNAL_FINALIZER],
        ),
        ("PV-T29", of(None, "Delete", &[EXTERNAL_FINALIZER]), &[EXTERNAL_FINALIZER]),
        ("PV-T30", of(None, "Delete", &[]), &[]),
        ("PV-T31", of(path, "Retain", &[]), &[]),
        ("PV-T31", of(path, "Recycle", &[]), &[]),
        ("PV-T32", of(path, "Retain", &[IN_TREE_FINALIZER]), &[]),
        // BEAT-PV-6: nothing could ever remove the finalizer.
        ("BEAT-PV-6", of(Some("kubernetes.io/rbd"), "Delete", &[]), &[]),
        // CSI-T02, and BEAT-PV-8
        ("CSI-T02", of(Some(DRIVER), "Delete", &[foreign]), &[foreign, EXTERNAL_FINALIZER]),
    ] {
        let expected: Vec<Arc<str>> = expected.iter().map(|name| Arc::from(*name)).collect();
        let read = |object: &Value| serde_json::from_value::<Volume>(object.clone()).unwrap();
        assert_eq!(deleters().finalizers(&read(&object)), expected, "{scenario}");
        let mut terminating = object;
        terminating["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        let facts = read(&terminating);
        let added = deleters().finalizers(&facts).into_iter().any(|name| !facts.finalizers.contains(&name));
        assert!(!added, "{scenario}: added while it is being deleted");
    }
}

#[test]
fn annotations_of_migrated_plugins_are_kept_up() {
    let of = |by: &str, to: Option<&str>| {
        let more = json!({"metadata": {"annotations": {
            "pv.kubernetes.io/provisioned-by": by, "pv.kubernetes.io/migrated-to": to}}});
        serde_json::from_value::<Volume>(volume("v", &more)).unwrap()
    };
    for (object, expected) in [
        (of("kubernetes.io/aws-ebs", None), Some(json!("ebs.csi.aws.com"))),
        (of("kubernetes.io/aws-ebs", Some("ebs.csi.aws.com")), None),
        (of("kubernetes.io/host-path", Some("x")), Some(Value::Null)),
        (of("disk.example.com", None), None),
    ] {
        assert_eq!(Deleters::migration(&object), expected, "{object:?}");
    }
}

/// PV-T04: the deleter is not enabled; CSI-T20: the driver of each node deletes what that node reaches.
#[test]
fn what_others_have_to_destroy_is_left_to_them() {
    let off = "error getting deleter volume plugin for volume \"v\": host paths are deleted only with \
               --enable-hostpath-provisioner";
    let affinity = |zone: &str| {
        json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]}}}})
    };
    let near = Deleters { topology: [("zone".into(), "a".into())].into(), ..deleters() };
    let destroyed = [
        "read data",
        "phase v Released",
        "list attachments",
        "destroy v csi h",
        "delete v",
        "finalizers v kubernetes.io/pv-protection",
    ];
    let warned = [
        "read data".to_owned(),
        "phase v Released".to_owned(),
        format!("Warning VolumeFailedDelete {off}"),
        format!("phase v Failed {off}"),
    ];
    for (scenario, deleters, more, expected) in [
        (
            "PV-T04",
            Deleters { host_path: false, ..deleters() },
            host("/tmp/a"),
            &warned.each_ref().map(String::as_str)[..],
        ),
        ("CSI-T20", near.clone(), both(&csi("h"), &affinity("b")), &destroyed[..2]),
        ("CSI-T20, its own", near.clone(), both(&csi("h"), &affinity("a")), &destroyed),
        ("CSI-T20, from everywhere", near, csi("h"), &destroyed),
        ("one driver for all", deleters(), both(&csi("h"), &affinity("b")), &destroyed),
    ] {
        let mut world = World::new(deleters);
        world.put_volume(volume("v", &more));
        world.run();
        assert_eq!(world.took(), expected, "{scenario}");
    }
}

/// PV-T07, PV-T08, PV-T12, PV-T13, PV-T42
#[test]
fn claims_that_live_hold_their_volume() {
    for (scenario, claims, more, expected) in [
        ("PV-T07", vec![claim("data", "u-data", "v")], host("/tmp/a"), vec![]),
        ("it may be bound still", vec![claim("data", "u-data", "")], host("/tmp/a"), vec![]),
        (
            "PV-T08",
            vec![claim("data", "u-new", "")],
            host("/tmp/a"),
            vec!["read data", "phase v Released", "list attachments", "destroy v /tmp/a", "delete v"],
        ),
        (
            "PV-T12",
            vec![claim("data", "u-data", "w")],
            both(&host("/tmp/a"), &provisioned(HOST_PATH_PLUGIN)),
            vec![
                "finalizers v kubernetes.io/pv-protection,kubernetes.io/pv-controller",
                "phase v Released",
                "list attachments",
                "destroy v /tmp/a",
                "delete v",
                "finalizers v kubernetes.io/pv-protection",
            ],
        ),
        (
            "PV-T13",
            vec![claim("data", "u-data", "w")],
            both(
                &provisioned("other.example.com"),
                &json!({"spec": {"csi": {"driver": "other.example.com"}}}),
            ),
            vec!["phase v Released"],
        ),
        (
            "CSI-T05",
            vec![claim("data", "u-data", "v")],
            both(&csi("h"), &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
            vec![],
        ),
        ("made by hand", vec![claim("data", "u-data", "w")], host("/tmp/a"), vec![]),
        (
            "PV-T42",
            vec![claim("data", "u-data", "v")],
            both(&host("/tmp/a"), &json!({"status": {"phase": "Released", "message": "x"}})),
            vec!["phase v Bound"],
        ),
    ] {
        let mut world = World::new(deleters());
        for claim in claims {
            world.put(Kind::Claim, claim);
        }
        world.put_volume(volume("v", &more));
        world.run();
        assert_eq!(world.took(), expected, "{scenario}");
    }
}

#[test]
fn what_ends_is_noticed_at_once() {
    // PV-T21: the removal of the claim is observed.
    let mut world = World::new(deleters());
    world.put(Kind::Claim, claim("data", "u-data", "v"));
    world.put_volume(volume(
        "v",
        &json!({"spec": {"csi": {"driver": "other.example.com", "volumeHandle": "h"}}}),
    ));
    world.run();
    assert_eq!(world.took(), Vec::<String>::new());
    world.remove(&claim_key("data"));
    world.run();
    assert_eq!(world.took(), ["read data", "phase v Released"], "PV-T21");

    // PV-T22: a bound volume is removed; reporting its claim as lost is part of binding.
    let mut world = World::new(deleters());
    world.put(Kind::Claim, claim("data", "u-data", "v"));
    world.put_volume(volume("v", &host("/tmp/a")));
    world.run();
    world.remove(&volume_key("v"));
    world.run();
    let engine: &mut dyn crate::engine::AnyCollector = &mut world.engine;
    assert_eq!(engine.take_measurement(), None, "PV-T22");
    assert_eq!(world.took(), Vec::<String>::new(), "PV-T22");

    // PV-T06: the volume is removed just before its storage.
    let mut world = World::new(deleters());
    world.put_volume(volume("v", &both(&host("/tmp/a"), &json!({"status": {"phase": "Released"}}))));
    let destroy = world.run_up_to_the_call();
    world.remove(&volume_key("v"));
    assert_eq!(world.perform(&destroy), Outcome::Absent);
    world.engine.finish(destroy.id, &Outcome::Absent);
    world.pass(3_600_000);
    assert_eq!(world.took(), Vec::<String>::new(), "PV-T06");
}

/// CSI-T19: the storage is deleted, but the volume object could not be. Another call would find nothing, and is not needed.
#[test]
fn a_deletion_of_the_volume_that_fails_is_repeated() {
    let mut world = World::new(deleters());
    world.put_volume(volume("v", &both(&csi("h"), &json!({"status": {"phase": "Released"}}))));
    let failed = Outcome::Failed { message: "500".into(), retry_after_milliseconds: None };
    let mut failures = 0;
    while failures < 2 {
        let effect = world.engine.poll_effect().unwrap();
        let outcome = match &effect.request {
            Request::Delete { .. } => {
                failures += 1;
                failed.clone()
            }
            _ => world.perform(&effect),
        };
        world.engine.finish(effect.id, &outcome);
        world.now += 100;
        world.engine.tick(at(world.now));
    }
    world.pass(1_000);
    assert_eq!(world.get("v")["metadata"]["finalizers"], json!(["kubernetes.io/pv-protection"]));
    assert_ne!(world.get("v")["metadata"]["deletionTimestamp"], Value::Null);
}

/// PV-T42 once more: the claim exists, but the watch has not delivered it.
#[test]
fn a_claim_that_only_a_live_read_knows_holds_its_volume() {
    let mut world = World::new(deleters());
    world.objects.insert(
        claim_key("data"),
        both(&claim("data", "u-data", "v"), &json!({"metadata": {"resourceVersion": "9"}})),
    );
    world.put_volume(volume("v", &both(&host("/tmp/a"), &json!({"status": {"phase": "Released"}}))));
    world.run();
    assert_eq!(world.took(), ["read data"]);
    world.pass(WATCH_PATIENCE_MILLISECONDS);
    assert_eq!(world.took(), ["read data"]);
}

/// PV-T18, PV-T40, PV-T41, CSI-T21, CSI-T22
#[test]
fn what_changes_at_the_last_moment_counts() {
    let mut world = World::new(deleters());
    world.put_volume(volume(
        "v",
        &both(&csi("h"), &json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}})),
    ));
    world.run();
    assert_eq!(world.calls(), 0);
    world.change(&volume_key("v"), &json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}}));
    world.run();
    assert_eq!(world.calls(), 1, "PV-T18");

    // The policy becomes Retain after the decision: the precondition of the call refuses it.
    let mut world = World::new(deleters());
    world.put_volume(volume("v", &both(&csi("h"), &json!({"status": {"phase": "Released"}}))));
    let destroy = world.run_up_to_the_call();
    world.change(&volume_key("v"), &json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}}));
    assert_eq!(world.perform(&destroy), Outcome::Conflict);
    world.engine.finish(destroy.id, &Outcome::Conflict);
    world.pass(3_600_000);
    assert_eq!(world.calls(), 0, "PV-T41");

    // Another volume takes the name while the driver works.
    let mut world = World::new(deleters());
    world.put_volume(volume("v", &both(&csi("h"), &json!({"status": {"phase": "Released"}}))));
    let destroy = world.run_up_to_the_call();
    world.remove(&volume_key("v"));
    world.put(Kind::Claim, claim("data", "u-data", "v"));
    world.put_volume(volume("v", &both(&csi("new"), &json!({"metadata": {"uid": "u-other"}}))));
    world.engine.observe(Observation::StorageDeletion {
        volume: volume_key("v"),
        uid: Uid::new("u-v"),
        remark: None,
        result: Ok(()),
    });
    world.engine.finish(destroy.id, &Outcome::Applied(None));
    world.pass(3_600_000);
    assert_eq!(
        (world.took(), world.get("v")["metadata"]["uid"].clone()),
        (vec![], "u-other".into()),
        "CSI-T22"
    );
}

/// PV-T05, PV-T15, PV-T20, PV-T43, CSI-T18
#[test]
fn failures_are_shown_and_tried_again_later_and_later() {
    let failure = |in_use, message: &str| Err(StorageFailure { in_use, message: message.to_owned() });
    let mut world = World::new(deleters());
    world.answer = failure(false, "the disk is on fire");
    world.put_volume(volume("v", &host("/tmp/a")));
    world.run();
    let shown = [
        "destroy v /tmp/a",
        "Warning VolumeFailedDelete the disk is on fire",
        "phase v Failed the disk is on fire",
    ];
    assert_eq!(world.took()[3..], shown, "PV-T05");
    world.answer = failure(false, "the disk is wet");
    world.pass(499);
    assert_eq!(world.took(), Vec::<String>::new());
    world.pass(1);
    let shown =
        ["destroy v /tmp/a", "Warning VolumeFailedDelete the disk is wet", "phase v Failed the disk is wet"];
    assert_eq!(world.took(), shown, "PV-T43");
    world.answer = Ok(());
    world.pass(1_000);
    assert_eq!(world.took(), ["destroy v /tmp/a", "delete v"], "PV-T15");

    let mut world = World::new(deleters());
    world.answer = failure(true, "it is being read");
    world.put_volume(volume("v", &host("/tmp/a")));
    world.run();
    assert_eq!(world.took()[3..], ["destroy v /tmp/a", "Normal VolumeDelete it is being read"], "PV-T20");
    assert_eq!(world.get("v")["status"]["phase"], "Released");

    let mut world = World::new(deleters());
    world.answer = failure(false, "rpc error: code = Unavailable desc = x");
    world.put_volume(volume("v", &csi("h")));
    world.run();
    let text = "rpc error: code = Unavailable desc = x";
    let (event, phase) = (format!("Warning VolumeFailedDelete {text}"), format!("phase v Released {text}"));
    assert_eq!(world.took()[3..], ["destroy v csi h", &event, &phase], "CSI-T18");
    for delay in [1_000, 2_000, 4_000] {
        world.pass(delay - 1);
        assert_eq!(world.calls(), 0, "before {delay} ms");
        world.pass(1);
        assert_eq!(world.took(), ["destroy v csi h", &event], "after {delay} ms");
    }
    for _ in 0..12 {
        world.pass(CSI_RETRY_MILLISECONDS.1);
    }
    // After a long while the attachments are listed again.
    assert_eq!(world.took().iter().filter(|line| line.starts_with("destroy")).count(), 12);
    world.answer = Ok(());
    world.pass(CSI_RETRY_MILLISECONDS.1);
    assert_eq!(world.get("v")["metadata"]["finalizers"], json!(["kubernetes.io/pv-protection"]));
}

/// CSI-T11 to T13, and attachments that only a live list has.
#[test]
fn what_is_attached_is_not_destroyed() {
    let attached = |node: &str| format!("persistentvolume v is still attached to node {node}");
    let mut world = World::new(deleters());
    world.put(Kind::Attachment, attachment("a1", "v", "n1"));
    world.put(Kind::Attachment, attachment("a2", "v", "n2"));
    world.put(Kind::Attachment, attachment("a3", "other", "n3"));
    world.put_volume(volume("v", &csi("h")));
    world.run();
    let shown = |node: &str| {
        let text = attached(node);
        [format!("Warning VolumeFailedDelete {text}"), format!("phase v Released {text}")]
    };
    assert_eq!(world.took()[2..], shown("n1"), "CSI-T11");
    world.remove(&Kind::Attachment.key(&"".into(), &"a1".into()));
    world.run();
    assert_eq!(world.took(), shown("n2"), "CSI-T12");
    world.remove(&Kind::Attachment.key(&"".into(), &"a2".into()));
    world.run();
    assert_eq!(world.took()[..2], ["list attachments", "destroy v csi h"], "CSI-T13");

    let mut world = World::new(deleters());
    let hidden = Kind::Attachment.key(&"".into(), &"a".into());
    world.objects.insert(hidden.clone(), attachment("a", "v", "n"));
    world.put_volume(volume("v", &csi("h")));
    world.run();
    world.pass(600);
    world.pass(600);
    assert_eq!(world.took()[2..], ["list attachments", "list attachments"]);
    world.objects.remove(&hidden);
    world.pass(WATCH_PATIENCE_MILLISECONDS);
    assert_eq!(world.calls(), 1);
}

/// BEAT-CSI-7, and directories inside directories.
#[test]
fn shared_storage_is_not_destroyed() {
    for (one, other, shared) in [
        (csi("h"), csi("h"), true),
        (csi("h"), csi("h2"), false),
        // An in-tree volume and its CSI twin.
        (csi("c"), json!({"spec": {"cinder": {"volumeID": "c"}}}), false),
        (
            both(
                &csi("c"),
                &json!({"spec": {"csi": {"driver": "cinder.csi.openstack.org"}},
                "metadata": {"annotations": {"pv.kubernetes.io/provisioned-by": "cinder.csi.openstack.org"}}}),
            ),
            json!({"spec": {"cinder": {"volumeID": "c"}}}),
            true,
        ),
        (host("/tmp/a"), host("/tmp/a/"), true),
        (host("/tmp/a"), host("/tmp/a/b"), true),
        (host("/tmp/a"), host("/tmp//./a"), true),
        (host("/tmp/a/b"), host("/tmp/a"), true),
        (host("/tmp/a/b"), host("/"), true),
        (host("/tmp/a"), host("/tmp/ab"), false),
        (host("/tmp/ab"), host("/tmp/a"), false),
    ] {
        let mut world = World::new(deleters());
        world.put_volume(volume(
            "w",
            &both(&other, &json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}})),
        ));
        world.put_volume(volume("v", &one));
        world.run();
        assert_eq!(world.calls(), usize::from(!shared), "{one} {other}");
        if shared {
            let message = world.get("v")["status"]["message"].as_str().unwrap();
            assert!(message.contains("persistentvolume w has the same storage"), "{message}");
            world.remove(&volume_key("w"));
            world.run();
            assert_eq!(world.calls(), 1, "{one} {other}");
        }
    }
}

#[test]
fn a_driver_that_does_not_answer_gets_a_bounded_number_of_calls() {
    let mut world =
        World::new(Deleters { drivers: [DRIVER.into(), "fast".into()].into(), ..Deleters::default() });
    let released = json!({"status": {"phase": "Released"}});
    for number in 0..40 {
        world.put_volume(volume(&format!("v{number:02}"), &both(&csi(&format!("h{number}")), &released)));
    }
    let mut flying: Vec<(EffectId, ObjectKey, Uid)> = Vec::new();
    while let Some(effect) = world.engine.poll_effect() {
        if let Request::Outside { key, uid, .. } = &effect.request {
            flying.push((effect.id, key.clone(), uid.clone()));
            continue;
        }
        let outcome = world.perform(&effect);
        world.engine.finish(effect.id, &outcome);
    }
    assert_eq!(flying.len(), CALLS_PER_DRIVER);
    let (id, key, uid) = flying.pop().unwrap();
    let result = Err(StorageFailure { in_use: false, message: "late".into() });
    world.engine.observe(Observation::StorageDeletion { volume: key, uid, remark: None, result });
    world.engine.finish(id, &Outcome::Applied(None));
    let next = std::iter::from_fn(|| world.engine.poll_effect())
        .filter(|effect| matches!(effect.request, Request::Outside { .. }));
    assert_eq!(next.count(), 1);
}

/// BEAT-PV-10: nothing is remembered, whatever happened to them.
#[test]
fn nothing_is_remembered_of_volumes_that_are_gone() {
    let mut world = World::new(deleters());
    world.answer = Err(StorageFailure { in_use: false, message: "no".into() });
    world.put(Kind::Attachment, attachment("x", "attached", "n"));
    for name in ["failed", "attached", "unclaimed"] {
        world.put_volume(volume(name, &csi(name)));
    }
    world.run();
    assert!(!world.engine.collector().failed.is_empty() && !world.engine.collector().gone.is_empty());
    world.remove(&Kind::Attachment.key(&"".into(), &"x".into()));
    for name in ["failed", "attached", "unclaimed"] {
        world.remove(&volume_key(name));
    }
    world.run();
    let collector = world.engine.collector();
    let left =
        [collector.gone.len(), collector.asked.len(), collector.recheck_at.len(), collector.unattached.len()];
    let also = [
        collector.failed.len(),
        collector.destroyed.len(),
        collector.begun.len(),
        collector.by_storage.len(),
    ];
    let indexes = [collector.by_claim.len(), collector.attached.len(), collector.calls.len()];
    assert_eq!((left, also, indexes), ([0; 4], [0; 4], [0; 3]));
}

#[test]
fn measurements_are_taken_under_upstreams_names() {
    let mut world = World::new(deleters());
    world.put_volume(volume(
        "v",
        &both(&csi("h"), &json!({"metadata": {"finalizers": [EXTERNAL_FINALIZER]}})),
    ));
    world.put(Kind::Claim, claim("other", "u-o", "w"));
    let mut gauges = world.engine.standing().gauges;
    gauges.retain(|gauge| gauge.value > 0.0);
    let shown: Vec<_> = gauges.iter().map(|gauge| (gauge.metric.name, gauge.labels.join("/"))).collect();
    assert_eq!(
        shown,
        [
            ("pv_collector_total_pv_count", "kubernetes.io/csi:disk.example.com/Filesystem".to_owned()),
            ("pv_collector_bound_pv_count", "fast".to_owned()),
            ("pv_collector_bound_pvc_count", "shop//".to_owned()),
        ]
    );
    world.answer = Err(StorageFailure { in_use: false, message: "x".into() });
    world.run();
    world.answer = Ok(());
    world.pass(1_000);
    let engine: &mut dyn crate::engine::AnyCollector = &mut world.engine;
    let taken: Vec<_> = std::iter::from_fn(|| engine.take_measurement())
        .map(|taken| format!("{} {} {}", taken.metric.name, taken.labels.join("/"), taken.value))
        .collect();
    assert_eq!(
        taken,
        [
            "controller_persistentvolume_delete fast 1",
            "controller_persistentvolume_delete_failed fast 1",
            "volume_operation_errors disk.example.com/delete 1",
            "controller_persistentvolume_delete fast 1",
            "controller_persistentvolume_delete_duration_seconds fast 0",
            "volume_operation_total_seconds disk.example.com/delete 1",
        ]
    );
}
