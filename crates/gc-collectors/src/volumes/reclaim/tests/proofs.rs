//! Slots of drivers, and the age of proofs.

use super::*;

/// Only requests in flight occupy a driver: volumes that are kept, or whose deletion is withheld, leave its slots to others.
#[test]
fn what_is_not_sent_takes_no_call_of_its_driver() {
    let released = json!({"status": {"phase": "Released"}});
    let kept = json!({"metadata": {"annotations": {"kubegc.io/keep": "true"}}});
    let mut world = World::new(deleters());
    for number in 0..CALLS_PER_DRIVER + 4 {
        let object = volume(&format!("k{number:02}"), &both(&csi(&format!("k{number}")), &released));
        world.put_volume(both(&object, &kept));
    }
    world.run();
    world.put_volume(volume("v", &both(&csi("h"), &released)));
    world.run();
    assert_eq!(world.calls(), 1, "{:?}", world.log);
    assert_eq!(world.engine.counts().kept, 20);

    let mut world = World::new(deleters());
    for number in 0..40 {
        world.put_volume(volume(&format!("v{number:02}"), &both(&csi(&format!("h{number}")), &released)));
    }
    let mut withheld = 0;
    while let Some(effect) = world.engine.poll_effect() {
        if matches!(effect.request, Request::Outside { .. }) {
            withheld += 1;
            world.engine.skip(effect.id);
        } else {
            let outcome = world.perform(&effect);
            world.engine.finish(effect.id, &outcome);
        }
    }
    assert_eq!(withheld, 40, "each is decided about, and said to be withheld");
    for name in ["v00", "v20"] {
        world.change(&volume_key(name), &json!({"metadata": {"labels": {"a": "b"}}}));
    }
    world.engine.release(None);
    world.run();
    assert_eq!(world.calls(), 40);
}

/// A volume that is called to a free slot but does not take it leaves it to the next one.
#[test]
fn a_slot_that_is_not_taken_goes_to_the_next() {
    let released = json!({"status": {"phase": "Released"}});
    let mut world = World::new(deleters());
    for number in 0..CALLS_PER_DRIVER + 6 {
        world.put_volume(volume(&format!("v{number:02}"), &both(&csi(&format!("h{number}")), &released)));
    }
    let mut flying = Vec::new();
    while let Some(effect) = world.engine.poll_effect() {
        if matches!(effect.request, Request::Outside { .. }) {
            flying.push(effect);
        } else {
            let outcome = world.perform(&effect);
            world.engine.finish(effect.id, &outcome);
        }
    }
    assert_eq!(flying.len(), CALLS_PER_DRIVER);
    assert_eq!(world.engine.standing().waiting, 6);
    // The volume that waited first is retained, kept or gone by now.
    world.change(&volume_key("v16"), &json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}}));
    world.change(&volume_key("v17"), &json!({"metadata": {"annotations": {"kubegc.io/keep": "true"}}}));
    world.remove(&volume_key("v18"));
    for effect in flying {
        let outcome = world.perform(&effect);
        world.engine.finish(effect.id, &outcome);
    }
    world.run();
    assert_eq!(world.calls(), 3, "{:?}", world.log);
}

/// The result of a live read or list is valid for a while, but not after a list has begun: the store may have been restored, and in
/// its history the claim exists.
#[test]
fn an_old_proof_about_a_claim_destroys_nothing() {
    let retained = json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}});
    let put_back = |world: &mut World| {
        // The claim exists again, but the watch has not delivered it.
        world.objects.insert(
            claim_key("data"),
            both(&claim("data", "u-data", "v"), &json!({"metadata": {"resourceVersion": "9"}})),
        );
    };
    let old = |world: &mut World| {
        world.now += PROOF_MILLISECONDS + 1;
        world.engine.tick(at(world.now));
    };
    let relisted = |kind: Kind| {
        move |world: &mut World| {
            let all: Vec<Facts> = world
                .objects
                .iter()
                .filter(|(key, _)| key.resource == kind.resource() && key.resource != Kind::Claim.resource())
                .map(|(_, object)| Facts::read(kind, object.to_string().as_bytes()).unwrap())
                .collect();
            world.engine.observe(Observation::ListStarted(kind));
            for facts in all {
                world.engine.observe(Observation::Observed(facts));
            }
            world.engine.observe(Observation::Synced(kind));
        }
    };
    let lists = [Kind::Volume, Kind::Claim, Kind::Attachment]
        .map(|kind| Box::new(relisted(kind)) as Box<dyn Fn(&mut World)>);
    for (case, pass) in std::iter::once(Box::new(old) as Box<dyn Fn(&mut World)>).chain(lists).enumerate() {
        let mut world = World::new(deleters());
        world.put_volume(volume("v", &both(&csi("h"), &json!({"status": {"phase": "Released"}}))));
        // The claim is gone, but the policy changes before the storage is deleted.
        let destroy = world.run_up_to_the_call();
        world.change(&volume_key("v"), &retained);
        world.engine.finish(destroy.id, &Outcome::Conflict);
        world.run();
        put_back(&mut world);
        pass(&mut world);
        world.change(&volume_key("v"), &json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}}));
        world.run();
        assert_eq!(world.calls(), 0, "{case}: {:?}", world.log);
    }
}

/// A live read that is in flight when a list begins proves nothing, either.
#[test]
fn a_list_overtakes_the_live_read_before_it() {
    let mut world = World::new(deleters());
    world.put_volume(volume("v", &both(&csi("h"), &json!({"status": {"phase": "Released"}}))));
    let read = world.engine.poll_effect().unwrap();
    assert!(matches!(read.request, Request::Read { .. }));
    world.engine.observe(Observation::ListStarted(Kind::Claim));
    world.engine.observe(Observation::Synced(Kind::Claim));
    world.engine.finish(read.id, &Outcome::Absent);
    world.run();
    assert_eq!(world.took().first().map(String::as_str), Some("read data"));
}

/// A volume that never had a claim keeps its storage as long as it lives.
#[test]
fn the_storage_of_an_unclaimed_volume_goes_with_it() {
    let unclaimed = both(&csi("h"), &json!({"status": {"phase": "Available"}}));
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let retained = json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}});
    let strange = json!({"metadata": {"annotations": {"pv.kubernetes.io/provisioned-by": null}}});
    let bare = json!({"metadata": {"finalizers": ["kubernetes.io/pv-protection"]}});
    for (situation, changes, calls) in [
        ("it lives", vec![], 0),
        ("it is deleted", vec![&deleted], 1),
        ("deleted, and retained", vec![&deleted, &retained], 0),
        ("deleted, and provisioned by nothing", vec![&deleted, &strange], 0),
        ("deleted, and without a finalizer for its storage", vec![&deleted, &bare], 0),
    ] {
        let mut object = volume("v", &unclaimed);
        merge(&mut object, &json!({"spec": {"claimRef": null}}));
        for change in changes {
            merge(&mut object, change);
        }
        let mut world = World::new(deleters());
        world.put_volume(object);
        world.run();
        assert_eq!(world.calls(), calls, "{situation}: {:?}", world.log);
    }
}

/// A handle of a driver that looks like a directory is none.
#[test]
fn directories_share_nothing_with_drivers() {
    let released = json!({"status": {"phase": "Released"}});
    let mut world = World::new(deleters());
    world.put_volume(volume(
        "other",
        &both(&csi("/tmp/a/b"), &json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}})),
    ));
    world.put_volume(volume("v", &both(&host("/tmp/a"), &released)));
    world.run();
    assert_eq!(world.calls(), 1, "{:?}", world.log);
}

/// The driver gets the name of the class, from which it finds its Secret; an empty name is none.
#[test]
fn the_class_of_a_volume_reaches_its_driver() {
    for (class, expected) in [("fast", Some("fast")), ("", None)] {
        let mut world = World::new(deleters());
        let more = json!({"spec": {"storageClassName": class}, "status": {"phase": "Released"}});
        world.put_volume(volume("v", &both(&csi("h"), &more)));
        let Request::Outside { call: OutsideCall::DeleteStorage(storage), .. } =
            world.run_up_to_the_call().request
        else {
            panic!()
        };
        let secret = gc_types::DeletionSecret {
            name: None,
            namespace: None,
            class: expected.map(Into::into),
            claim: Some(("shop".into(), "data".into())),
        };
        assert_eq!(*storage, Storage::Csi { driver: DRIVER.into(), handle: "h".into(), secret });
    }
}

/// What is withheld is not in flight.
#[test]
fn withheld_requests_leave_nothing_behind() {
    let mut world = World::new(deleters());
    world.put_volume(volume("v", &both(&csi("h"), &json!({"status": {"phase": "Released"}}))));
    let mut flying = Vec::new();
    for _ in 0..3 {
        let withheld = world.engine.poll_effect().unwrap();
        let state = |world: &World| {
            let collector = world.engine.collector();
            [collector.asked.len(), usize::from(collector.list.is_some()), collector.calls.len()]
        };
        let before = state(&world);
        world.engine.skip(withheld.id);
        flying.push((before, state(&world)));
        world.engine.release(None);
        let effect = world.engine.poll_effect().unwrap();
        let outcome = world.perform(&effect);
        world.engine.finish(effect.id, &outcome);
    }
    let expected = [[1, 0, 0], [0, 1, 0], [0, 0, 1]].map(|before| (before, [0; 3]));
    assert_eq!(flying, expected);
}
