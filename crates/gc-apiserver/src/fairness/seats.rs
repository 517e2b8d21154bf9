//! Seats of the priority levels, and fair queues for requests that find none free.
//!
//! Each level has seats of its own. The part that it may lend forms a common pool, from which any level may take more than its own.
//! Seats that a level does not lend are always available to it, so no level can starve another. Within a level, the requests of a
//! flow wait in the shortest of the few queues that its hash deals it, and queues are served in turn, so one busy flow leaves most
//! queues to the others.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::configuration::{Configuration, Flow, Level, Queues};

/// Identifies a waiting request.
pub(crate) type Ticket = u64;

/// Decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The request has its seats.
    Seated,
    /// The request waits; [`Seats::release`] returns its ticket once it has its seats.
    Waits(Ticket),
    /// There is no seat for the request, and no room to wait.
    Refused(Refusal),
}

/// Reason why a request was refused, or stopped waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The seats are taken, and the level has no queues.
    NoSeat,
    /// Its queue is full.
    QueueFull,
    /// The request waited too long.
    TimedOut,
    /// The client disconnected while the request waited.
    Cancelled,
}

impl Refusal {
    /// Returns the code that upstream uses in metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::NoSeat => "concurrency-limit",
            Self::QueueFull => "queue-full",
            Self::TimedOut => "time-out",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Seats and queues of all levels.
#[derive(Debug)]
pub(crate) struct Seats {
    total: usize,
    /// Maximum number of waiting requests over all levels.
    most_waiting: usize,
    waiting: usize,
    pool: usize,
    levels: BTreeMap<Arc<str>, LevelSeats>,
    next_ticket: Ticket,
    /// Level that is served first when seats become free; rotates, so that none is always last.
    turn: usize,
}

/// Seats of a priority level, as upstream counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The level's share of all seats.
    pub(crate) nominal: usize,
    /// Seats that the level never lends.
    pub(crate) lower: usize,
    /// The level's share, plus the seats that it may borrow.
    pub(crate) upper: usize,
}

impl Limits {
    fn of(level: &Level, shares: u64, total: usize) -> Self {
        let nominal = (total as u64 * level.shares).div_ceil(shares.max(1));
        let nominal = usize::try_from(nominal).unwrap_or(total);
        let percent = |percent: u64| {
            let hundredths = nominal * usize::try_from(percent.min(10_000)).unwrap_or(0);
            (hundredths + 50) / 100
        };
        let upper = nominal + level.borrowing_percent.map_or(total, percent);
        Self { nominal, lower: nominal.saturating_sub(percent(level.lendable_percent)), upper }
    }
}

#[derive(Debug, Default)]
struct LevelSeats {
    exempt: bool,
    limits: Limits,
    /// Seats that no other level can use.
    own: usize,
    /// Maximum number of seats that the level may use, including those of the pool.
    most: usize,
    in_use: usize,
    shape: Option<Queues>,
    queues: Vec<VecDeque<WaitingRequest>>,
    /// Queue that is served next.
    turn: usize,
}

#[derive(Clone, Copy, Debug)]
struct WaitingRequest {
    ticket: Ticket,
    width: usize,
}

impl LevelSeats {
    fn borrowed(&self) -> usize {
        if self.exempt { 0 } else { self.in_use.saturating_sub(self.own) }
    }
}

impl Seats {
    /// Creates `total` seats; at most `most_waiting` requests can wait.
    pub(crate) fn new(total: usize, most_waiting: usize, configuration: &Configuration) -> Self {
        let mut seats = Self {
            total,
            most_waiting,
            waiting: 0,
            pool: 0,
            levels: BTreeMap::new(),
            next_ticket: 0,
            turn: 0,
        };
        seats.configure(configuration);
        seats
    }

    /// Applies a configuration. Returns the tickets that have seats now.
    pub(crate) fn configure(&mut self, configuration: &Configuration) -> Vec<Ticket> {
        let shares: u64 = configuration.levels.values().map(|level| level.shares).sum();
        self.pool = 0;
        for level in self.levels.values_mut() {
            (level.own, level.most) = (0, 0);
        }
        for (name, wanted) in &configuration.levels {
            let level = self.levels.entry(Arc::clone(name)).or_default();
            level.exempt = wanted.exempt;
            level.limits = Limits::of(wanted, shares, self.total);
            if wanted.exempt {
                continue;
            }
            level.own = level.limits.lower;
            level.most = level.limits.upper;
            self.pool += level.limits.nominal - level.limits.lower;
            let count = wanted.queues.map_or(0, |queues| queues.count);
            level.shape = wanted.queues;
            // Queues that are no longer configured are kept while requests wait in them.
            while level.queues.len() > count && level.queues.last().is_some_and(VecDeque::is_empty) {
                level.queues.pop();
            }
            level.queues.resize_with(count.max(level.queues.len()), VecDeque::new);
        }
        self.levels.retain(|name, level| {
            configuration.levels.contains_key(name)
                || level.in_use > 0
                || level.queues.iter().any(|queue| !queue.is_empty())
        });
        self.fill()
    }

    /// Returns the number of seats of a request, at most those of its level; otherwise it would wait forever.
    pub(crate) fn width(&self, flow: &Flow, wanted: usize) -> usize {
        self.levels.get(&flow.level).map_or(1, |level| wanted.clamp(1, level.own.max(1)))
    }

    /// Requests seats.
    pub(crate) fn request(&mut self, flow: &Flow, width: usize) -> Decision {
        let Some(level) = self.levels.get(&flow.level) else { return Decision::Refused(Refusal::NoSeat) };
        let nobody_waits = level.queues.iter().all(VecDeque::is_empty);
        if level.exempt || (nobody_waits && self.fits(level, width)) {
            if let Some(level) = self.levels.get_mut(&flow.level) {
                level.in_use += width;
            }
            return Decision::Seated;
        }
        let Some(shape) = level.shape else { return Decision::Refused(Refusal::NoSeat) };
        if self.waiting >= self.most_waiting {
            return Decision::Refused(Refusal::QueueFull);
        }
        let shortest = hand(flow.hash, shape).min_by_key(|queue| level.queues[*queue].len());
        let Some(queue) = shortest.filter(|queue| level.queues[*queue].len() < shape.length) else {
            return Decision::Refused(Refusal::QueueFull);
        };
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiting += 1;
        if let Some(level) = self.levels.get_mut(&flow.level) {
            level.queues[queue].push_back(WaitingRequest { ticket, width });
        }
        Decision::Waits(ticket)
    }

    /// Gives seats back. Returns the tickets that have seats now.
    pub(crate) fn release(&mut self, flow: &Flow, width: usize) -> Vec<Ticket> {
        if let Some(level) = self.levels.get_mut(&flow.level) {
            level.in_use = level.in_use.saturating_sub(width);
        }
        self.fill()
    }

    /// Stops waiting. Returns false if the seats were already given, in which case the caller must release them.
    pub(crate) fn give_up(&mut self, flow: &Flow, ticket: Ticket) -> bool {
        let Some(level) = self.levels.get_mut(&flow.level) else { return false };
        for queue in &mut level.queues {
            if let Some(at) = queue.iter().position(|waiting| waiting.ticket == ticket) {
                queue.remove(at);
                self.waiting -= 1;
                return true;
            }
        }
        false
    }

    /// Returns the seats of each configured priority level.
    pub(crate) fn limits<'a>(
        &'a self,
        configuration: &'a Configuration,
    ) -> impl Iterator<Item = (&'a Arc<str>, Limits)> {
        let configured = self.levels.iter().filter(|(name, _)| configuration.levels.contains_key(*name));
        configured.map(|(name, level)| (name, level.limits))
    }

    /// Returns the number of waiting requests.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    fn fits(&self, level: &LevelSeats, width: usize) -> bool {
        let wanted = level.in_use + width;
        let borrowed: usize = self.levels.values().map(LevelSeats::borrowed).sum();
        let more = wanted.saturating_sub(level.own).saturating_sub(level.borrowed());
        wanted <= level.most.max(1) && borrowed + more <= self.pool || level.in_use == 0
    }

    /// Gives free seats to waiting requests: level by level, queue by queue, in turn.
    fn fill(&mut self) -> Vec<Ticket> {
        let mut seated = Vec::new();
        if self.waiting == 0 {
            return seated;
        }
        let names: Vec<Arc<str>> = self.levels.keys().cloned().collect();
        loop {
            let before = seated.len();
            for at in 0..names.len() {
                let name = &names[(self.turn + at) % names.len()];
                let Some(level) = self.levels.get(name) else { continue };
                let count = level.queues.len();
                let next = (0..count)
                    .map(|step| (level.turn + step) % count)
                    .find(|queue| !level.queues[*queue].is_empty());
                let Some(queue) = next else { continue };
                let Some(first) = level.queues[queue].front().copied() else { continue };
                if !self.fits(level, first.width) {
                    continue;
                }
                if let Some(level) = self.levels.get_mut(name) {
                    level.queues[queue].pop_front();
                    level.in_use += first.width;
                    level.turn = queue + 1;
                }
                self.waiting -= 1;
                seated.push(first.ticket);
            }
            self.turn += 1;
            if seated.len() == before {
                return seated;
            }
        }
    }
}

/// Deals the queues for a hash: as many different ones as the hand holds.
fn hand(hash: u64, shape: Queues) -> impl Iterator<Item = usize> {
    let mut rest = hash;
    let mut dealt: Vec<usize> = Vec::with_capacity(shape.hand);
    for taken in 0..shape.hand {
        let left = (shape.count - taken) as u64;
        let mut card = usize::try_from(rest % left).unwrap_or(0);
        rest = (rest / left) ^ rest.rotate_left(17);
        // The card's number counts only the cards that are left.
        dealt.sort_unstable();
        for other in &dealt {
            if card >= *other {
                card += 1;
            }
        }
        dealt.push(card);
    }
    dealt.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn flow(level: &str, hash: u64) -> Flow {
        let empty: Arc<str> = "".into();
        let (schema, schema_uid, level_uid) = (Arc::clone(&empty), Arc::clone(&empty), empty);
        Flow { schema, schema_uid, level_uid, level: level.into(), exempt: level == "exempt", hash }
    }

    fn level(name: &str, shares: u32, lendable: u32, queues: u32) -> Value {
        let response = match queues {
            0 => json!({"type": "Reject"}),
            _ => {
                json!({"type": "Queue", "queuing": {"queues": queues, "handSize": 2, "queueLengthLimit": 3}})
            }
        };
        json!({"metadata": {"name": name}, "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": shares, "lendablePercent": lendable, "limitResponse": response}}})
    }

    fn seats(levels: &[Value]) -> Seats {
        Seats::new(100, 50, &Configuration::new(&[], levels))
    }

    fn seated(seats: &mut Seats, flow: &Flow, tries: usize) -> usize {
        (0..tries).filter(|_| seats.request(flow, 1) == Decision::Seated).count()
    }

    #[test]
    fn a_level_uses_its_own_places_and_what_others_lend() {
        // catch-all has 5 shares: 45 + 50 + 5.
        let mut seats = seats(&[level("low", 45, 80, 0), level("high", 50, 50, 0)]);
        let (low, high) = (flow("low", 1), flow("high", 2));
        // 9 of its own, and the entire pool: 36 + 25.
        assert_eq!(seated(&mut seats, &low, 200), 70);
        assert_eq!(seated(&mut seats, &high, 200), 25, "what high does not lend is there for it");
        assert_eq!(seated(&mut seats, &flow("exempt", 3), 500), 500, "and exempt requests need none");
        assert_eq!(seats.request(&flow("unknown", 4), 1), Decision::Refused(Refusal::NoSeat));
    }

    /// Figures from a kube-apiserver with 600 seats and the default configuration, and from one with further levels.
    #[test]
    fn the_places_of_a_level_are_those_that_it_has_upstream() {
        let of = |levels: &[Value]| -> BTreeMap<String, (usize, usize, usize)> {
            let configuration = Configuration::new(&[], levels);
            let seats = Seats::new(600, 50, &configuration);
            seats
                .limits(&configuration)
                .map(|(name, limits)| (name.to_string(), (limits.nominal, limits.lower, limits.upper)))
                .collect()
        };
        let expected = [
            ("catch-all", (13, 13, 613)),
            ("exempt", (0, 0, 600)),
            ("global-default", (49, 24, 649)),
            ("leader-election", (25, 25, 625)),
            ("node-high", (98, 73, 698)),
            ("system", (74, 50, 674)),
            ("workload-high", (98, 49, 698)),
            ("workload-low", (245, 24, 845)),
        ];
        assert_eq!(of(&[]), expected.map(|(name, limits)| (name.to_owned(), limits)).into());
        let exempt = json!({"metadata": {"name": "exempt"}, "spec": {"type": "Exempt",
            "exempt": {"nominalConcurrencyShares": 10, "lendablePercent": 50}}});
        let mut bounded = level("mine", 5, 0, 0);
        bounded["spec"]["limited"]["borrowingLimitPercent"] = 15.into();
        let expected =
            [("catch-all", (150, 150, 750)), ("exempt", (300, 150, 900)), ("mine", (150, 150, 173))];
        assert_eq!(of(&[exempt, bounded]), expected.map(|(name, limits)| (name.to_owned(), limits)).into());
    }

    #[test]
    fn a_busy_flow_leaves_room_for_another() {
        let mut seats = seats(&[level("low", 95, 0, 64)]);
        let (busy, other) = (flow("low", 1), flow("low", 0xdead_beef_1234));
        assert_eq!(seated(&mut seats, &busy, 95), 95);
        let decisions: Vec<Decision> = (0..20).map(|_| seats.request(&busy, 1)).collect();
        assert_eq!(
            decisions.iter().filter(|one| **one == Decision::Refused(Refusal::QueueFull)).count(),
            14,
            "two queues of three"
        );
        let Decision::Waits(mine) = seats.request(&other, 1) else { panic!("there is room to wait") };
        // Queues are served in turn, so it is among the first three.
        let served: Vec<Ticket> = (0..3).flat_map(|_| seats.release(&busy, 1)).collect();
        assert!(served.contains(&mine), "{served:?} without {mine}");
    }

    #[test]
    fn who_gives_up_waits_no_longer() {
        let mut seats = seats(&[level("low", 95, 0, 1)]);
        let low = flow("low", 1);
        assert_eq!(seated(&mut seats, &low, 95), 95);
        let waits = (0..3).map(|_| seats.request(&low, 1)).collect::<Vec<_>>();
        assert_eq!(waits, [0, 1, 2].map(Decision::Waits));
        assert_eq!(seats.request(&low, 1), Decision::Refused(Refusal::QueueFull));
        assert!(seats.give_up(&low, 0));
        assert_eq!(seats.release(&low, 1), [1]);
        assert!(!seats.give_up(&low, 1), "it has its place");
        assert_eq!(seats.waiting(), 1);
    }

    #[test]
    fn wide_requests_take_as_many_places_as_they_are_wide() {
        let mut seats = seats(&[level("low", 95, 0, 0)]);
        let low = flow("low", 1);
        assert_eq!((0..20).filter(|_| seats.request(&low, 10) == Decision::Seated).count(), 9);
        assert_eq!(seats.release(&low, 10), Vec::<Ticket>::new());
        assert_eq!(seats.width(&low, 1000), 95, "no wider than the level");
        assert_eq!(seats.request(&low, 95), Decision::Refused(Refusal::NoSeat));
        for _ in 0..8 {
            seats.release(&low, 10);
        }
        seats.release(&low, 10);
        assert_eq!(seats.request(&low, 95), Decision::Seated);
        seats.release(&low, 95);
        assert_eq!(seated(&mut seats, &low, 200), 95);
    }

    #[test]
    fn a_new_configuration_keeps_what_is_under_way() {
        let mut seats = seats(&[level("low", 95, 0, 1)]);
        let low = flow("low", 1);
        assert_eq!(seated(&mut seats, &low, 95), 95);
        assert_eq!(seats.request(&low, 1), Decision::Waits(0));
        // The level is deleted while in use, and its waiting requests still get their turn when seats become free.
        let none = Configuration::new(&[], &[level("other", 95, 0, 0)]);
        assert_eq!(seats.configure(&none), Vec::<Ticket>::new());
        let served: Vec<Ticket> = (0..95).flat_map(|_| seats.release(&low, 1)).collect();
        assert_eq!(served, [0]);
        seats.release(&low, 1);
        seats.configure(&none);
        assert_eq!(seats.request(&low, 1), Decision::Refused(Refusal::NoSeat));
    }

    #[test]
    fn a_hand_is_of_different_queues() {
        let shape = Queues { count: 8, hand: 8, length: 1 };
        for hash in [0, 1, u64::MAX, 0x1234_5678_9abc_def0] {
            let mut dealt: Vec<usize> = hand(hash, shape).collect();
            dealt.sort_unstable();
            assert_eq!(dealt, [0, 1, 2, 3, 4, 5, 6, 7], "{hash}");
        }
    }
}
