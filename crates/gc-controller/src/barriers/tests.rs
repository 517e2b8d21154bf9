#![allow(
    clippy::unwrap_used,
    clippy::unnecessary_wraps,
    reason = "a test may panic, and compares what is optional"
)]

use gc_types::{DeletionState, Gvr, ObjectKey, ObservedObject, ResourceInfo, Scope, Uid};

use super::*;

const PODS: ResourceId = ResourceId(1);
const SECRETS: ResourceId = ResourceId(2);

fn at(milliseconds: u64) -> Moment {
    Moment::from_start(Duration::from_millis(milliseconds))
}

fn progress(version: u64) -> Event {
    Event::Progress { resource: PODS, resource_version: ResourceVersion(version) }
}

fn place(resource: ResourceId, namespace: Option<&str>) -> ListScope {
    ListScope { resource, namespace: namespace.map(Arc::from) }
}

fn cached(number: u64, place: ListScope, version: u64) -> Option<List> {
    Some(List { number, place, not_older_than: Some(ResourceVersion(version)) })
}

fn stored(number: u64, place: ListScope) -> Option<List> {
    Some(List { number, place, not_older_than: None })
}

fn applied(effect: u64, requests: u32) -> Answer {
    answer(EffectId(effect), Outcome::Applied(None), requests)
}

fn serve(barriers: &mut Barriers, resources: u32) {
    for number in 1..=resources {
        barriers.observe(&Event::ResourceServed(ResourceInfo {
            id: ResourceId(number),
            gvr: Gvr { group: "".into(), version: "v1".into(), resource: format!("r{number}").into() },
            kind: "Kind".into(),
            scope: Scope::Namespaced,
            served_api_versions: vec!["v1".into()],
            watched: true,
            comparable_versions: true,
        }));
    }
}

#[test]
fn a_watch_that_has_come_far_enough_is_proof() {
    let mut barriers = Barriers::default();
    barriers.ask(EffectId(1), place(PODS, None), ResourceVersion(10), at(0));
    barriers.observe(&progress(9));
    assert_eq!(barriers.take_reached(), []);
    assert_eq!(barriers.poll_list(at(9)), None);
    barriers.observe(&progress(10));
    assert_eq!(barriers.take_reached(), [applied(1, 0)]);
    assert_eq!(barriers.poll_list(at(10)), None);
}

#[test]
fn versions_inside_a_list_prove_nothing() {
    let mut barriers = Barriers::default();
    barriers.ask(EffectId(1), place(PODS, None), ResourceVersion(10), at(0));
    barriers.observe(&Event::ListStarted(PODS));
    barriers.observe(&progress(20));
    assert_eq!(barriers.take_reached(), []);
    barriers.observe(&Event::Synced { resource: PODS, resource_version: ResourceVersion(20) });
    assert_eq!(barriers.take_reached(), [applied(1, 0)]);
}

#[test]
fn barriers_share_a_list_that_began_after_them() {
    let mut barriers = Barriers::default();
    let shop = place(PODS, Some("shop"));
    barriers.ask(EffectId(1), shop.clone(), ResourceVersion::UNKNOWN, at(0));
    barriers.ask(EffectId(2), shop.clone(), ResourceVersion(10), at(0));
    assert_eq!(barriers.poll_list(at(0)), stored(0, shop.clone()), "one of them cannot be compared");
    barriers.ask(EffectId(3), shop.clone(), ResourceVersion::UNKNOWN, at(0));
    assert_eq!(barriers.poll_list(at(0)), None);
    barriers.continued(0);
    assert_eq!(barriers.finish(0, ListEnd::Complete, at(5)), [applied(1, 2), applied(2, 0)]);
    assert_eq!(barriers.poll_list(at(5)), stored(1, shop));
    assert_eq!(barriers.finish(1, ListEnd::Complete, at(9)), [applied(3, 1)]);
}

#[test]
fn the_cache_is_asked_first_and_the_store_if_it_is_behind() {
    let mut barriers = Barriers::default();
    let (pods, secrets) = (place(PODS, None), place(SECRETS, None));
    barriers.ask(EffectId(1), pods.clone(), ResourceVersion(10), at(0));
    assert_eq!(barriers.poll_list(at(10)), cached(0, pods.clone(), 10));
    assert_eq!(barriers.finish(0, ListEnd::Complete, at(11)), [applied(1, 1)]);

    barriers.ask(EffectId(2), pods.clone(), ResourceVersion(20), at(20));
    assert_eq!(barriers.poll_list(at(30)), cached(1, pods.clone(), 20));
    assert_eq!(barriers.finish(1, ListEnd::CacheBehind, at(31)), []);
    assert_eq!(barriers.poll_list(at(31)), stored(2, pods));
    // Known to be behind, it is not used again for some time.
    barriers.ask(EffectId(3), secrets.clone(), ResourceVersion(20), at(31));
    assert_eq!(barriers.poll_list(at(41)), stored(3, secrets.clone()));
    assert_eq!(barriers.finish(2, ListEnd::Complete, at(42)), [applied(2, 2)]);
    assert_eq!(barriers.finish(3, ListEnd::Complete, at(42)), [applied(3, 1)]);
    let later = at(42).after(CACHE_DISTRUST);
    barriers.ask(EffectId(4), secrets.clone(), ResourceVersion(20), later);
    assert_eq!(barriers.poll_list(later.after(BARRIER_PATIENCE)), cached(4, secrets, 20));
}

#[test]
fn a_silent_cache_is_overtaken_by_the_store() {
    let mut barriers = Barriers::default();
    let pods = place(PODS, None);
    barriers.ask(EffectId(1), pods.clone(), ResourceVersion(10), at(0));
    assert_eq!(barriers.next_due(), Some(at(10)));
    assert_eq!(barriers.poll_list(at(10)), cached(0, pods.clone(), 10));
    assert_eq!(barriers.next_due(), Some(at(310)));
    assert_eq!(barriers.poll_list(at(309)), None);
    assert_eq!(barriers.poll_list(at(310)), stored(1, pods.clone()));
    assert_eq!(barriers.finish(1, ListEnd::Complete, at(320)), [applied(1, 2)]);
    assert_eq!(barriers.take_cancelled(), [0]);
    assert_eq!(barriers.finish(0, ListEnd::Complete, at(3_000)), []);
    barriers.ask(EffectId(2), pods.clone(), ResourceVersion(11), at(3_000));
    assert_eq!(barriers.poll_list(at(3_010)), stored(2, pods));
}

#[test]
fn what_the_watch_delivers_meanwhile_ends_the_list() {
    let mut barriers = Barriers::default();
    let pods = place(PODS, None);
    barriers.ask(EffectId(1), pods.clone(), ResourceVersion(10), at(0));
    assert_eq!(barriers.poll_list(at(10)), cached(0, pods, 10));
    barriers.observe(&progress(10));
    assert_eq!(barriers.take_reached(), [applied(1, 1)]);
    assert_eq!(barriers.take_cancelled(), [0]);
    assert_eq!(barriers.finish(0, ListEnd::Complete, at(12)), []);
}

#[test]
fn one_of_two_lists_may_fail() {
    let failed = || ListEnd::Failed("no".into());
    for (first, second) in [(0, 1), (1, 0)] {
        let mut barriers = Barriers::default();
        barriers.ask(EffectId(1), place(PODS, None), ResourceVersion(10), at(0));
        barriers.poll_list(at(10)).unwrap();
        barriers.poll_list(at(310)).unwrap();
        assert_eq!(barriers.finish(first, failed(), at(400)), []);
        let mut other = barriers.clone();
        assert_eq!(barriers.finish(second, ListEnd::Complete, at(500)), [applied(1, 2)]);
        let outcome = Outcome::Failed { message: "no".into(), retry_after_milliseconds: None };
        assert_eq!(other.finish(second, failed(), at(500)), [answer(EffectId(1), outcome, 2)]);
    }
}

/// Sixty owners in as many namespaces repeatedly ask for everything: no more lists begin per second than there are resources, and
/// every resource has its turn.
#[test]
fn lists_are_bounded_by_the_number_of_resources_and_not_by_that_of_owners() {
    const RESOURCES: u32 = 40;
    let mut barriers = Barriers::default();
    serve(&mut barriers, RESOURCES);
    let (mut effect, mut begun, mut by_resource) = (0, Vec::new(), BTreeMap::<ResourceId, usize>::new());
    for millisecond in 0..5_000 {
        if millisecond % 20 == 0 {
            for number in 1..=RESOURCES {
                effect += 1;
                let version = ResourceVersion(1_000 + millisecond);
                barriers.ask(EffectId(effect), place(ResourceId(number), None), version, at(millisecond));
            }
        }
        let mut lists = Vec::new();
        while let Some(list) = barriers.poll_list(at(millisecond)) {
            lists.push(list);
        }
        for list in lists {
            begun.push(millisecond);
            *by_resource.entry(list.place.resource).or_default() += 1;
            barriers.finish(list.number, ListEnd::Complete, at(millisecond));
        }
    }
    for window in begun.windows(RESOURCES as usize + 1) {
        assert!(window[RESOURCES as usize] - window[0] >= 1_000, "{window:?}");
    }
    assert_eq!(by_resource.len(), RESOURCES as usize);
    assert_eq!(by_resource.values().copied().collect::<BTreeSet<_>>(), BTreeSet::from([5]));
}

#[test]
fn few_lists_are_in_flight_at_a_time() {
    let mut barriers = Barriers::default();
    serve(&mut barriers, 100);
    for number in 1..=100 {
        barriers.ask(
            EffectId(number.into()),
            place(ResourceId(number), None),
            ResourceVersion::UNKNOWN,
            at(0),
        );
    }
    let begun = std::iter::from_fn(|| barriers.poll_list(at(0))).count();
    assert_eq!(begun, BARRIER_LISTS);
    assert_eq!(barriers.next_due(), None);
    barriers.finish(3, ListEnd::NotServed, at(1));
    assert_eq!(barriers.next_due(), Some(at(0)));
    assert_eq!(std::iter::from_fn(|| barriers.poll_list(at(1))).count(), 1);
}

/// On a server whose cache does not reach the version, only one list waits for it.
#[test]
fn one_list_finds_out_whether_the_cache_answers() {
    const RESOURCES: u32 = 40;
    let of = |number: u32| place(ResourceId(number), None);
    let mut asked = Barriers::default();
    serve(&mut asked, RESOURCES);
    for number in 1..=RESOURCES {
        asked.ask(EffectId(number.into()), of(number), ResourceVersion(10), at(0));
    }
    assert_eq!(asked.poll_list(at(10)), cached(0, of(1), 10));
    assert_eq!((asked.poll_list(at(10)), asked.next_due()), (None, Some(at(310))));

    let mut answering = asked.clone();
    answering.finish(0, ListEnd::Complete, at(20));
    let lists: Vec<List> = std::iter::from_fn(|| answering.poll_list(at(20))).collect();
    assert_eq!(lists.len(), BARRIER_LISTS);
    assert!(lists.iter().all(|list| list.not_older_than.is_some()), "{lists:?}");

    let mut silent = asked.clone();
    assert_eq!(silent.poll_list(at(310)), stored(1, of(1)));
    assert_eq!(silent.poll_list(at(310)), None);
    silent.finish(1, ListEnd::Complete, at(320));

    let mut behind = asked;
    behind.finish(0, ListEnd::CacheBehind, at(320));
    assert_eq!(behind.poll_list(at(320)), stored(1, of(1)));
    for mut barriers in [silent, behind] {
        let mut begun = 1;
        while let Some(list) = barriers.poll_list(at(330)) {
            assert_eq!(list.not_older_than, None);
            barriers.finish(list.number, ListEnd::Complete, at(330));
            begun += 1;
        }
        assert_eq!(begun, RESOURCES, "what the cache could not answer is not counted");
    }
}

/// The lists that the cache does not answer leave room for those that overtake them.
#[test]
fn the_store_overtakes_as_many_lists_as_wait_for_the_cache() {
    let mut barriers = Barriers::default();
    serve(&mut barriers, 100);
    let of = |number: u32| place(ResourceId(number), None);
    barriers.ask(EffectId(0), of(1), ResourceVersion(10), at(0));
    barriers.poll_list(at(10)).unwrap();
    barriers.finish(0, ListEnd::Complete, at(10));
    for number in 1..=100 {
        barriers.ask(EffectId(number.into()), of(number), ResourceVersion(20), at(20));
    }
    let begun = std::iter::from_fn(|| barriers.poll_list(at(30))).count();
    assert_eq!(begun, BARRIER_LISTS);
    let overtaking: Vec<List> = std::iter::from_fn(|| barriers.poll_list(at(330))).collect();
    assert_eq!(overtaking.len(), BARRIER_LISTS);
    assert!(overtaking.iter().all(|list| list.not_older_than.is_none()), "{overtaking:?}");
}

/// After a list that is older than its watch was, the deliveries of other watches belong to a past history until they are synced.
#[test]
fn progress_from_before_a_restore_proves_nothing() {
    let synced = |resource: ResourceId, version: u64| Event::Synced {
        resource,
        resource_version: ResourceVersion(version),
    };
    let mut barriers = Barriers::default();
    serve(&mut barriers, 2);
    barriers.observe(&synced(PODS, 50));
    barriers.observe(&synced(SECRETS, 50));
    barriers.observe(&Event::ListStarted(SECRETS));
    barriers.observe(&synced(SECRETS, 20));
    barriers.ask(EffectId(1), place(PODS, None), ResourceVersion(21), at(0));
    assert_eq!(barriers.take_reached(), [], "what was delivered before");
    barriers.observe(&progress(51));
    assert_eq!(barriers.take_reached(), [], "what was on its way");
    barriers.observe(&synced(PODS, 20));
    assert_eq!(barriers.take_reached(), []);
    barriers.observe(&progress(21));
    assert_eq!(barriers.take_reached(), [applied(1, 0)]);
}

#[test]
fn a_refused_list_says_whether_a_cache_has_to_catch_up() {
    let failed = |code: u16| ListEnd::Failed(format!("the list was answered with {code}: why"));
    for (code, from_cache, expected) in [
        (504, true, (ListEnd::CacheBehind, None)),
        (400, true, (ListEnd::CacheBehind, None)),
        (422, true, (ListEnd::CacheBehind, None)),
        (504, false, (failed(504), Some(Signal::of_answer(504, || None)))),
        (403, true, (failed(403), Some(Signal::of_answer(403, || None)))),
        (429, false, (failed(429), Some(Signal::of_answer(429, || None)))),
    ] {
        assert_eq!(list_refused(code, "why", None, from_cache), expected, "{code}, {from_cache}");
    }
}

/// What a watch delivers counts as well as its bookmarks.
#[test]
fn any_delivery_of_a_watch_shows_how_far_it_is() {
    let key = || ObjectKey { resource: PODS, namespace: "shop".into(), name: "web".into() };
    let observed = Event::Observed(ObservedObject {
        key: key(),
        uid: Uid::new("u"),
        resource_version: ResourceVersion(10),
        deletion: DeletionState::default(),
        owners: [].into_iter().collect(),
        recreator: None,
    });
    let removed = Event::Removed { key: key(), uid: Uid::new("u"), resource_version: ResourceVersion(10) };
    for event in [observed, removed, progress(10)] {
        let mut barriers = Barriers::default();
        serve(&mut barriers, 1);
        barriers.ask(EffectId(1), place(PODS, None), ResourceVersion(10), at(0));
        barriers.observe(&event);
        assert_eq!(barriers.take_reached(), [applied(1, 0)], "{event:?}");
        // Nothing is left of a resource that is gone.
        barriers.observe(&Event::ResourceGone(PODS));
        barriers.ask(EffectId(2), place(PODS, None), ResourceVersion(10), at(0));
        assert_eq!(barriers.take_reached(), [], "{event:?}");
    }
}
