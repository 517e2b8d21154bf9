//! Properties that hold under any order of events.

use proptest::prelude::*;

use super::*;

/// Action of a user, the binder or the attacher on one of three volumes.
#[derive(Clone, Copy, Debug)]
enum Step {
    Unclaim,
    ClaimAgain,
    Retain,
    Reclaim,
    Attach,
    Detach,
    DeleteObject,
    Fail,
    Work,
    Wait(i64),
    /// Performs this many effects.
    Some(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Unclaim),
        2 => Just(Step::ClaimAgain),
        1 => Just(Step::Retain),
        2 => Just(Step::Reclaim),
        1 => Just(Step::Attach),
        2 => Just(Step::Detach),
        1 => Just(Step::DeleteObject),
        1 => Just(Step::Fail),
        1 => Just(Step::Work),
        3 => (0..3_000_i64).prop_map(Step::Wait),
        6 => (1..4_u8).prop_map(Step::Some),
    ]
}

fn apply(world: &mut World, which: usize, step: Step, uids: &mut u32) {
    let name = format!("v{which}");
    let (key, claim_name) = (volume_key(&name), format!("c{which}"));
    let policy = |policy: &str| json!({"spec": {"persistentVolumeReclaimPolicy": policy}});
    let attachment_key = Kind::Attachment.key(&"".into(), &format!("a{which}").into());
    let exists = world.objects.contains_key(&key);
    let claimed = world.objects.contains_key(&claim_key(&claim_name));
    match step {
        Step::Unclaim if !world.objects.contains_key(&attachment_key) => {
            world.remove(&claim_key(&claim_name));
        }
        Step::ClaimAgain if exists && !claimed => {
            *uids += 1;
            let uid = format!("u{uids}");
            world.change(
                &key,
                &json!({"spec": {"claimRef": {"namespace": "shop", "name": claim_name, "uid": uid}}}),
            );
            world.put(Kind::Claim, claim(&claim_name, &uid, &name));
        }
        Step::Retain if exists => world.change(&key, &policy("Retain")),
        Step::Reclaim if exists => world.change(&key, &policy("Delete")),
        // Nothing attaches a volume without a claim.
        Step::Attach if exists && claimed => {
            world.put(Kind::Attachment, attachment(&format!("a{which}"), &name, "n"));
        }
        Step::Detach => world.remove(&attachment_key),
        Step::DeleteObject if exists => {
            world.change(&key, &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
            world.settle(&key);
        }
        Step::Fail => world.answer = Err(StorageFailure { in_use: false, message: "no".into() }),
        Step::Work => world.answer = Ok(()),
        Step::Wait(milliseconds) => {
            world.now += milliseconds;
            world.engine.tick(at(world.now));
        }
        Step::Some(effects) => {
            for _ in 0..effects {
                let Some(effect) = world.engine.poll_effect() else { return };
                let outcome = world.perform(&effect);
                world.engine.finish(effect.id, &outcome);
            }
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Under any order of events, storage that is bound again, attached, retained or shared is never deleted (checked by
    /// `may_be_destroyed` at each call), and a volume left unclaimed with policy Delete is eventually deleted.
    #[test]
    fn a_volume_in_use_is_never_destroyed(steps in proptest::collection::vec((0..3_usize, step()), 1..80)) {
        let mut world = World::new(deleters());
        let mut uids = 0;
        for which in 0..3 {
            let (name, claim_name) = (format!("v{which}"), format!("c{which}"));
            let reference = json!({"spec": {"claimRef": {"namespace": "shop", "name": claim_name, "uid": format!("first{which}")}}});
            world.put(Kind::Claim, claim(&claim_name, &format!("first{which}"), &name));
            // Two of them share their storage.
            let handle = if which == 2 { "other" } else { "shared" };
            world.put_volume(volume(&name, &both(&csi(handle), &reference)));
        }
        for (which, step) in steps {
            apply(&mut world, which, step, &mut uids);
        }
        world.answer = Ok(());
        for which in 0..3 {
            for step in [Step::Detach, Step::Unclaim, Step::Reclaim] {
                apply(&mut world, which, step, &mut uids);
            }
        }
        for _ in 0..8 {
            world.pass(CSI_RETRY_MILLISECONDS.1);
        }
        // The third one shares nothing. Another collector manages its protection finalizer.
        let left = world.get("v2").clone();
        let released = left.is_null() || left["metadata"]["finalizers"] == json!(["kubernetes.io/pv-protection"]);
        prop_assert!(released, "{left}");
    }
}
