//! Plans that were shown and deletions that were ordered, each under an identifier that only its user can use: the fate of each
//! object. Maps can therefore show all of a plan, and a deletion can be followed to its last object, however large it is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gc_explain::plan::{BlastRadius, Fate, Item};
use gc_explain::stuck::Place;
use gc_types::{Timestamp, Uid};

use super::refusal::Refusal;
use super::requester::UserKey;

/// Maximum number of plans that are kept; beyond it, the least recently used are forgotten.
const KEPT: usize = 64;
/// Maximum number of plans of one user that are kept.
const KEPT_OF_USER: usize = 8;
/// Maximum number of objects in all plans that are kept.
const KEPT_OBJECTS: usize = 1_000_000;
/// Maximum number of objects in one user's plans that are kept.
const KEPT_OBJECTS_OF_USER: usize = 500_000;
/// Time without use after which a plan is forgotten.
const KEPT_FOR: Duration = Duration::from_hours(1);
/// Maximum number of objects of a plan that are read singly because they are in no list.
const READ_ONE_BY_ONE: usize = 20;

/// Objects of one plan.
pub(super) struct KeptPlan {
    /// Time at which it was made, or ordered.
    pub(crate) at: Timestamp,
    /// Objects that the user may not list, which are read singly.
    pub(super) unlisted: Vec<Place>,
    /// Number of further objects, which are not followed.
    pub(super) unfollowed: usize,
    /// Fates, sorted by UID.
    fates: Vec<(Uid, Fate)>,
}

impl KeptPlan {
    /// Keeps the part of a plan that maps and followers need. `is_listed` reports whether the user may list the objects of a
    /// resource in a namespace.
    pub(crate) fn new(radius: &BlastRadius, at: Timestamp, is_listed: impl Fn(&str, &str) -> bool) -> Self {
        let mut fates: Vec<(Uid, Fate)> =
            radius.items.iter().map(|item| (item.uid.clone(), item.fate)).collect();
        fates.sort_unstable();
        let going = radius.items.iter().filter(|item| item.fate != Fate::Released);
        let mut unlisted = going.filter(|item| !is_listed(&item.kind.resource, &item.namespace));
        let places = unlisted.by_ref().take(READ_ONE_BY_ONE).map(Item::place).collect();
        Self { at, unlisted: places, unfollowed: unlisted.count(), fates }
    }

    /// Returns the planned fate of an object, if it is in the plan.
    pub(crate) fn fate(&self, uid: &Uid) -> Option<Fate> {
        let place = self.fates.binary_search_by(|(known, _)| known.cmp(uid)).ok()?;
        self.fates.get(place).map(|(_, fate)| *fate)
    }

    /// Returns the objects to delete.
    pub(crate) fn going(&self) -> impl Iterator<Item = &Uid> {
        self.fates.iter().filter(|(_, fate)| *fate != Fate::Released).map(|(uid, _)| uid)
    }
}

struct Slot {
    who: UserKey,
    plan: Arc<KeptPlan>,
    asked: Instant,
}

#[derive(Default)]
struct Slots {
    next: u64,
    by_number: BTreeMap<u64, Slot>,
}

impl Slots {
    /// Forgets the least recently used plan of one user, or of the user with the most, so that many users together do not displace
    /// the only plan of another.
    fn forget_one(&mut self, who: Option<&UserKey>) {
        let mut held = BTreeMap::<&UserKey, (usize, usize)>::new();
        for slot in self.by_number.values() {
            let (plans, objects) = held.entry(&slot.who).or_default();
            *plans += 1;
            *objects += slot.plan.fates.len();
        }
        let whoever = held.into_iter().max_by_key(|(_, held)| *held).map(|(who, _)| who.clone());
        let who = who.cloned().or(whoever);
        let among = self.by_number.iter().filter(|(_, slot)| who.as_ref().is_none_or(|who| slot.who == *who));
        if let Some(number) = among.min_by_key(|(_, slot)| slot.asked).map(|(number, _)| *number) {
            self.by_number.remove(&number);
        }
    }

    /// Returns the number of plans and of their objects, of one user or of all.
    fn size(&self, who: Option<&UserKey>) -> (usize, usize) {
        let among = self.by_number.values().filter(|slot| who.is_none_or(|who| slot.who == *who));
        among.fold((0, 0), |(plans, objects), slot| (plans + 1, objects + slot.plan.fates.len()))
    }
}

/// Plans of all users.
pub(super) struct Plans {
    /// Start time of the server; identifiers of another run are invalid.
    run: i64,
    slots: Mutex<Slots>,
}

impl Default for Plans {
    fn default() -> Self {
        Self { run: jiff::Timestamp::now().as_microsecond(), slots: Mutex::default() }
    }
}

impl Plans {
    /// Keeps a plan of a user, and returns its identifier.
    pub(crate) fn keep(&self, who: UserKey, plan: KeptPlan) -> String {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.by_number.retain(|_, slot| slot.asked.elapsed() < KEPT_FOR);
        let more = plan.fates.len();
        for (who, most, most_objects) in
            [(Some(&who), KEPT_OF_USER, KEPT_OBJECTS_OF_USER), (None, KEPT, KEPT_OBJECTS)]
        {
            while let (plans @ 1.., objects) = slots.size(who)
                && (plans >= most || objects.saturating_add(more) > most_objects)
            {
                slots.forget_one(who);
            }
        }
        let number = slots.next;
        slots.next += 1;
        slots.by_number.insert(number, Slot { who, plan: Arc::new(plan), asked: Instant::now() });
        format!("{:x}-{number}", self.run)
    }

    /// Returns the plan with this identifier, if it belongs to this user and is still kept.
    pub(crate) fn of(&self, who: &UserKey, id: &str) -> Option<Arc<KeptPlan>> {
        let number: u64 = id.strip_prefix(&format!("{:x}-", self.run))?.parse().ok()?;
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.by_number.get_mut(&number).filter(|slot| slot.who == *who)?;
        slot.asked = Instant::now();
        Some(Arc::clone(&slot.plan))
    }
}

/// Returns the answer for a plan or a deletion that is no longer kept.
pub(super) fn forgotten() -> Refusal {
    Refusal::new(404, "Forgotten", "this plan or deletion is not kept any more: plan again")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use crate::page::requester::who;
    use gc_explain::plan::ItemKind;
    use gc_registry::api::UserInfo;

    fn user(name: &str) -> UserKey {
        who(&UserInfo { name: name.into(), ..UserInfo::default() })
    }

    /// Returns a plan that deletes this many Pods and releases one more.
    fn plan(objects: usize) -> KeptPlan {
        let kind = Arc::new(ItemKind { kind: "Pod".into(), resource: "pods".into(), ..ItemKind::default() });
        let item = |number: usize| Item {
            kind: Arc::clone(&kind),
            namespace: "shop".into(),
            name: format!("pod-{number}").into(),
            uid: Uid::new(&format!("u-{number}")),
            fate: if number < objects { Fate::Deleted } else { Fate::Released },
            remarks: Vec::new(),
            is_terminating: false,
        };
        let radius = BlastRadius { items: (0..=objects).map(item).collect(), ..BlastRadius::default() };
        KeptPlan::new(&radius, Timestamp(0), |_, namespace| namespace != "shop")
    }

    #[test]
    fn a_plan_knows_all_its_objects() {
        let kept = plan(1_200);
        assert_eq!(kept.going().count(), 1_200);
        assert_eq!(kept.fate(&Uid::new("u-1199")), Some(Fate::Deleted));
        assert_eq!(kept.fate(&Uid::new("u-1200")), Some(Fate::Released));
        assert_eq!(kept.fate(&Uid::new("u-1201")), None);
        assert_eq!((kept.unlisted.len(), kept.unfollowed), (READ_ONE_BY_ONE, 1_200 - READ_ONE_BY_ONE));
    }

    #[test]
    fn plans_are_of_their_user_and_of_this_run() {
        let plans = Plans::default();
        let id = plans.keep(user("ann"), plan(1));
        assert!(plans.of(&user("ann"), &id).is_some());
        assert!(plans.of(&user("bob"), &id).is_none());
        for unknown in ["", "0", "0-0", &format!("{id}1")] {
            assert!(plans.of(&user("ann"), unknown).is_none(), "{unknown}");
        }
    }

    #[test]
    fn no_user_takes_all_the_room() {
        let plans = Plans::default();
        let of_bob = plans.keep(user("bob"), plan(1));
        let first = plans.keep(user("ann"), plan(1));
        let kept: Vec<String> = (0..KEPT_OF_USER).map(|_| plans.keep(user("ann"), plan(1))).collect();
        assert!(plans.of(&user("ann"), &first).is_none(), "the oldest gives way");
        assert!(kept.iter().all(|id| plans.of(&user("ann"), id).is_some()));
        let large = plans.keep(user("ann"), plan(KEPT_OBJECTS_OF_USER - 1));
        assert!(kept.iter().all(|id| plans.of(&user("ann"), id).is_none()), "they had too many objects");
        assert!(plans.of(&user("ann"), &large).is_some());
        assert!(plans.of(&user("bob"), &of_bob).is_some());
    }
}
