//! Turns at work for unknown clients: a few have one at once, addresses take turns with one another, and proven addresses, from
//! which somebody has presented credentials, come first three times out of four.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// One out of this many consecutive turns belongs to unproven addresses.
const SHARE_OF_OTHERS: u32 = 4;

/// Origin of connections: an address, or the network that a single IPv6 client owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Source(IpAddr);

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => Self(IpAddr::V6((address.to_bits() >> 64 << 64).into())),
            address @ IpAddr::V4(_) => Self(address),
        }
    }
}

/// Order among the waiters of one address: by the number of recent answers, then by arrival.
type Order = (u32, u64);

/// Waiters, in a round robin of their addresses.
#[derive(Debug, Default)]
struct Lane {
    round: VecDeque<Source>,
    waiting: BTreeMap<Source, BTreeMap<Order, oneshot::Sender<Turn>>>,
}

impl Lane {
    fn push(&mut self, source: Source, order: Order, waiter: oneshot::Sender<Turn>) {
        let waiting = self.waiting.entry(source).or_default();
        if waiting.is_empty() {
            self.round.push_back(source);
        }
        waiting.insert(order, waiter);
    }

    fn pop(&mut self) -> Option<oneshot::Sender<Turn>> {
        let source = self.round.pop_front()?;
        let waiting = self.waiting.get_mut(&source)?;
        let next = waiting.pop_first();
        if waiting.is_empty() {
            self.waiting.remove(&source);
        } else {
            self.round.push_back(source);
        }
        next.map(|(_, waiter)| waiter)
    }

    fn remove(&mut self, source: Source, order: Order) {
        let Some(waiting) = self.waiting.get_mut(&source) else { return };
        waiting.remove(&order);
        if waiting.is_empty() {
            self.waiting.remove(&source);
            self.round.retain(|other| *other != source);
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// Number of turns taken.
    running: usize,
    /// Number of waiters so far.
    last: u64,
    /// Number of turns since the last one of an unproven address.
    in_a_row: u32,
    proven: Lane,
    others: Lane,
}

impl State {
    fn lane(&mut self, is_proven: bool) -> &mut Lane {
        if is_proven { &mut self.proven } else { &mut self.others }
    }

    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        if self.in_a_row + 1 < SHARE_OF_OTHERS
            && let Some(next) = self.proven.pop()
        {
            self.in_a_row += 1;
            return Some(next);
        }
        self.in_a_row = 0;
        self.others.pop().or_else(|| self.proven.pop())
    }
}

/// Turns at a kind of work; see the module documentation.
#[derive(Debug)]
pub(super) struct Turns {
    at_once: usize,
    state: Mutex<State>,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn(Option<Arc<Turns>>);

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
            let mut state = turns.state();
            state.running -= 1;
            turns.call(&mut state);
        }
    }
}

/// A place in a lane, which is returned if its owner leaves before being called.
struct Waiting<'a> {
    turns: &'a Turns,
    source: Source,
    order: Order,
    is_proven: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.turns.state().lane(self.is_proven).remove(self.source, self.order);
    }
}

impl Turns {
    /// Creates this many turns for each core.
    pub(super) fn per_core(turns: usize) -> Arc<Self> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self::with(cores * turns)
    }

    pub(super) fn with(at_once: usize) -> Arc<Self> {
        Arc::new(Self { at_once, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn. Among the waiters of one address, the one that has `had` the least comes first.
    pub(super) async fn wait(self: &Arc<Self>, source: Source, is_proven: bool, had: u32) -> Turn {
        let (called, _waiting) = {
            let mut state = self.state();
            let (waiter, called) = oneshot::channel();
            state.last += 1;
            let order = (had, state.last);
            state.lane(is_proven).push(source, order, waiter);
            self.call(&mut state);
            (called, Waiting { turns: self, source, order, is_proven })
        };
        // A waiter is only dropped after it was called.
        called.await.unwrap_or(Turn(None))
    }

    fn call(self: &Arc<Self>, state: &mut State) {
        while state.running < self.at_once {
            let Some(next) = state.next() else { return };
            state.running += 1;
            if let Err(mut turn) = next.send(Turn(Some(Arc::clone(self)))) {
                // The waiter has left in the meantime. Its turn is returned here because the state is locked.
                turn.0 = None;
                state.running -= 1;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use std::pin::Pin;

    type Asking = Pin<Box<dyn Future<Output = Turn>>>;

    const PROVEN: &str = "10.0.0.1";

    fn source(text: &str) -> Source {
        Source::from(text.parse::<IpAddr>().unwrap())
    }

    /// Requests a turn without waiting for it.
    fn ask(turns: &Arc<Turns>, from: &str, had: u32) -> Asking {
        let (turns, source, is_proven) = (Arc::clone(turns), source(from), from == PROVEN);
        let mut asking: Asking = Box::pin(async move { turns.wait(source, is_proven, had).await });
        assert!(asking.as_mut().now_or_never().is_none(), "{from}: all turns are taken");
        asking
    }

    /// Returns the order in which waiters are called while a single turn passes from one to the next.
    fn order<N: Copy>(turns: &Arc<Turns>, mut asking: Vec<(N, Asking)>, first: Turn) -> Vec<N> {
        let (mut turn, mut called) = (Some(first), Vec::new());
        while !asking.is_empty() {
            drop(turn.take());
            let at = asking.iter_mut().position(|(_, one)| {
                turn = one.as_mut().now_or_never();
                turn.is_some()
            });
            called.push(asking.remove(at.unwrap()).0);
        }
        drop(turn);
        assert_eq!(turns.state().running, 0);
        called
    }

    fn taken(turns: &Arc<Turns>) -> Turn {
        turns.wait(source("10.0.0.9"), false, 0).now_or_never().unwrap()
    }

    #[test]
    fn addresses_take_turns_and_proven_ones_come_first() {
        let turns = Turns::with(1);
        let first = taken(&turns);
        let names = ["10.0.0.2", "10.0.0.2", "10.0.0.2", "10.0.0.3", PROVEN, PROVEN];
        let asking = names.map(|name| (name, ask(&turns, name, 0))).into();
        assert_eq!(
            order(&turns, asking, first),
            [PROVEN, PROVEN, "10.0.0.2", "10.0.0.3", "10.0.0.2", "10.0.0.2"]
        );
        // A flood from a proven address leaves some of the turns to others.
        let first = taken(&turns);
        let names = [PROVEN; 8].into_iter().chain(["10.0.0.2"; 2]);
        let asking = names.map(|name| (name, ask(&turns, name, 0))).collect();
        let called = order(&turns, asking, first);
        let others: Vec<usize> = (0..called.len()).filter(|at| called[*at] == "10.0.0.2").collect();
        assert_eq!(others.len(), 2);
        assert!(others[1] < 8, "{called:?}");
    }

    #[test]
    fn whoever_has_had_least_comes_first() {
        let turns = Turns::with(1);
        let first = taken(&turns);
        let asking = [("flood", 60), ("flood", 60), ("probe", 1), ("new", 0), ("flood", 40)]
            .map(|(name, had)| ((name, had), ask(&turns, "10.0.0.2", had)))
            .into();
        let called = order(&turns, asking, first);
        assert_eq!(called, [("new", 0), ("probe", 1), ("flood", 40), ("flood", 60), ("flood", 60)]);
    }

    #[test]
    fn who_leaves_takes_no_turn() {
        let turns = Turns::with(2);
        let held = [taken(&turns), taken(&turns)];
        drop(ask(&turns, "10.0.0.2", 0));
        let mut stays = ask(&turns, "10.0.0.2", 0);
        let leaves = ask(&turns, "10.0.0.2", 0);
        drop(held);
        assert!(stays.as_mut().now_or_never().is_some());
        // The waiter was called but never polled for the result.
        drop(leaves);
        let state = turns.state();
        assert_eq!(state.running, 0);
        assert!(state.others.waiting.is_empty() && state.others.round.is_empty());
    }
}
