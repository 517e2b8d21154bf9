//! The way in, before TLS: which connections come too often, how many handshakes are computed at once, and whose turn it is.
//!
//! A handshake costs a signature before anything is known of a client. What is known is the address: whether somebody has shown
//! valid credentials from there lately, and how often connections come from it.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// Handshakes that are computed at once for each core.
const HANDSHAKES_PER_CORE: usize = 8;
/// How long a handshake may keep its turn: it computes for a moment, and then waits for the peer.
pub(crate) const TURN: Duration = Duration::from_millis(20);
/// Of this many turns in a row, one is for the addresses from which no one has shown credentials.
const SHARE_OF_OTHERS: u32 = 4;
/// How long an address is proven after somebody has shown credentials there.
const PROVEN_FOR: Duration = Duration::from_mins(10);
/// Addresses that are remembered as proven, or for how often connections come from them.
const MAXIMUM_REMEMBERED: usize = 4096;
/// Connections that may come at once from an address that is not proven...
const ARRIVALS: u32 = 500;
/// ...and each second beyond that.
const ARRIVALS_PER_SECOND: u32 = 100;

/// Where connections come from: an address, or the network that one client of IPv6 has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Source(IpAddr);

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => Self(IpAddr::V6((address.to_bits() >> 64 << 64).into())),
            address @ IpAddr::V4(_) => Self(address),
        }
    }
}

/// Handshakes that wait, in a round of the addresses that they come from.
#[derive(Debug, Default)]
struct Lane {
    round: VecDeque<Source>,
    waiting: BTreeMap<Source, VecDeque<oneshot::Sender<Turn>>>,
}

impl Lane {
    fn push(&mut self, source: Source, waiter: oneshot::Sender<Turn>) {
        let waiting = self.waiting.entry(source).or_default();
        if waiting.is_empty() {
            self.round.push_back(source);
        }
        waiting.push_back(waiter);
    }

    /// The next one that still waits.
    fn pop(&mut self) -> Option<oneshot::Sender<Turn>> {
        while let Some(source) = self.round.pop_front() {
            let Some(waiting) = self.waiting.get_mut(&source) else { continue };
            while waiting.front().is_some_and(oneshot::Sender::is_closed) {
                waiting.pop_front();
            }
            let next = waiting.pop_front();
            if waiting.is_empty() {
                self.waiting.remove(&source);
            } else {
                self.round.push_back(source);
            }
            if next.is_some() {
                return next;
            }
        }
        None
    }
}

/// How often connections come from an address.
#[derive(Debug)]
struct Arrivals {
    left: u32,
    at: Instant,
}

impl Arrivals {
    fn earn(&mut self, now: Instant) {
        let seconds = now.duration_since(self.at).as_secs();
        if seconds > 0 {
            let earned = u32::try_from(seconds).unwrap_or(u32::MAX).saturating_mul(ARRIVALS_PER_SECOND);
            self.left = self.left.saturating_add(earned).min(ARRIVALS);
            self.at = now;
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// Handshakes that have a turn.
    running: usize,
    /// Turns since the last one of those that are not proven.
    in_a_row: u32,
    proven: Lane,
    others: Lane,
    proven_at: BTreeMap<Source, Instant>,
    arrivals: BTreeMap<Source, Arrivals>,
}

impl State {
    fn is_proven(&self, source: Source, now: Instant) -> bool {
        self.proven_at.get(&source).is_some_and(|at| now.duration_since(*at) < PROVEN_FOR)
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

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Doors {
    at_once: usize,
    state: Mutex<State>,
}

/// The permission to compute a handshake, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn(Option<Arc<Doors>>);

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(doors) = self.0.take() {
            let mut state = doors.state();
            state.running -= 1;
            doors.call(&mut state);
        }
    }
}

impl Doors {
    /// For this machine.
    pub(crate) fn new() -> Arc<Self> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self::with(cores * HANDSHAKES_PER_CORE)
    }

    fn with(at_once: usize) -> Arc<Self> {
        Arc::new(Self { at_once, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a connection; `false` if too many come from its address, from which no one has shown credentials lately.
    pub(crate) fn may_enter(&self, address: IpAddr) -> bool {
        self.may_enter_at(address, Instant::now())
    }

    fn may_enter_at(&self, address: IpAddr, now: Instant) -> bool {
        let (source, mut state) = (Source::from(address), self.state());
        if state.is_proven(source, now) {
            return true;
        }
        if state.arrivals.len() >= MAXIMUM_REMEMBERED && !state.arrivals.contains_key(&source) {
            // Those that have come rarely need not be remembered.
            state.arrivals.retain(|_, arrivals| {
                arrivals.earn(now);
                arrivals.left < ARRIVALS
            });
            if state.arrivals.len() >= MAXIMUM_REMEMBERED {
                return true;
            }
        }
        let arrivals = state.arrivals.entry(source).or_insert(Arrivals { left: ARRIVALS, at: now });
        arrivals.earn(now);
        let may = arrivals.left > 0;
        arrivals.left = arrivals.left.saturating_sub(1);
        may
    }

    /// Somebody has shown valid credentials from an address.
    pub(crate) fn prove(&self, address: IpAddr) {
        let (source, now) = (Source::from(address), Instant::now());
        let mut state = self.state();
        if state.proven_at.len() >= MAXIMUM_REMEMBERED && !state.proven_at.contains_key(&source) {
            state.proven_at.retain(|_, at| now.duration_since(*at) < PROVEN_FOR);
        }
        if state.proven_at.len() < MAXIMUM_REMEMBERED || state.proven_at.contains_key(&source) {
            state.proven_at.insert(source, now);
        }
    }

    /// Waits for a turn. Addresses take turns with one another, and proven ones come first three times of four.
    pub(crate) async fn turn(self: &Arc<Self>, address: IpAddr) -> Turn {
        let called = {
            let (source, mut state) = (Source::from(address), self.state());
            let (waiter, called) = oneshot::channel();
            let is_proven = state.is_proven(source, Instant::now());
            let lane = if is_proven { &mut state.proven } else { &mut state.others };
            lane.push(source, waiter);
            self.call(&mut state);
            called
        };
        // A waiter is dropped only when it was called.
        called.await.unwrap_or(Turn(None))
    }

    fn call(self: &Arc<Self>, state: &mut State) {
        while state.running < self.at_once {
            let Some(next) = state.next() else { return };
            state.running += 1;
            if let Err(mut turn) = next.send(Turn(Some(Arc::clone(self)))) {
                // It has gone meanwhile. Its turn is given back here: the state is locked.
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

    type Waiting = Pin<Box<dyn Future<Output = Turn>>>;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Asks for a turn, and does not wait for it.
    fn ask(doors: &Arc<Doors>, from: &str) -> Waiting {
        let (doors, from) = (Arc::clone(doors), address(from));
        let mut waiting: Waiting = Box::pin(async move { doors.turn(from).await });
        assert!(waiting.as_mut().now_or_never().is_none(), "{from}: all turns are taken");
        waiting
    }

    /// The order in which they are called while one turn is given from one to the next.
    fn order(
        doors: &Arc<Doors>,
        mut waiting: Vec<(&'static str, Waiting)>,
        first: Turn,
    ) -> Vec<&'static str> {
        let (mut turn, mut called) = (Some(first), Vec::new());
        while !waiting.is_empty() {
            drop(turn.take());
            let at = waiting.iter_mut().position(|(_, one)| {
                turn = one.as_mut().now_or_never();
                turn.is_some()
            });
            called.push(waiting.remove(at.unwrap()).0);
        }
        drop(turn);
        assert_eq!(doors.state().running, 0);
        called
    }

    #[test]
    fn addresses_take_turns_and_proven_ones_come_first() {
        let doors = Doors::with(1);
        let first = doors.turn(address("10.0.0.9")).now_or_never().unwrap();
        doors.prove(address("10.0.0.1"));
        let names = ["10.0.0.2", "10.0.0.2", "10.0.0.2", "10.0.0.3", "10.0.0.1", "10.0.0.1"];
        let waiting = names.map(|name| (name, ask(&doors, name))).into();
        assert_eq!(
            order(&doors, waiting, first),
            ["10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.2", "10.0.0.2"]
        );
        // A flood from a proven address leaves a part of the turns to others.
        let first = doors.turn(address("10.0.0.9")).now_or_never().unwrap();
        let names = ["10.0.0.1"; 8].into_iter().chain(["10.0.0.2"; 2]);
        let waiting = names.map(|name| (name, ask(&doors, name))).collect();
        let called = order(&doors, waiting, first);
        let others: Vec<usize> = (0..called.len()).filter(|at| called[*at] == "10.0.0.2").collect();
        assert_eq!(others.len(), 2);
        assert!(others[1] < 8, "{called:?}");
    }

    #[test]
    fn who_leaves_takes_no_turn() {
        let doors = Doors::with(2);
        let turns = ["10.0.0.1", "10.0.0.1"].map(|from| doors.turn(address(from)).now_or_never().unwrap());
        drop(ask(&doors, "10.0.0.2"));
        let mut stays = ask(&doors, "10.0.0.2");
        let leaves = ask(&doors, "10.0.0.2");
        drop(turns);
        assert!(stays.as_mut().now_or_never().is_some());
        // It was called, and never asked for the answer.
        drop(leaves);
        assert_eq!(doors.state().running, 0);
        assert!(doors.state().others.waiting.is_empty() && doors.state().others.round.is_empty());
    }

    #[test]
    fn an_address_that_comes_too_often_proves_itself_or_waits() {
        let (doors, now) = (Doors::with(1), Instant::now());
        let enter = |from: &str, at| doors.may_enter_at(address(from), at);
        let entered = (0..2 * ARRIVALS).filter(|_| enter("10.0.0.2", now)).count();
        assert_eq!(entered, ARRIVALS as usize);
        assert!(enter("10.0.0.3", now), "others are not concerned");
        let later = now + Duration::from_secs(2);
        let entered = (0..ARRIVALS).filter(|_| enter("::ffff:10.0.0.2", later)).count();
        assert_eq!(entered, 2 * ARRIVALS_PER_SECOND as usize);
        doors.prove(address("10.0.0.2"));
        assert!(enter("10.0.0.2", later));
        // One client of IPv6 has a whole network.
        let entered = (0..2 * ARRIVALS).filter(|n| enter(&format!("2001:db8::{n:x}"), now)).count();
        assert_eq!(entered, ARRIVALS as usize);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (doors, now) = (Doors::with(1), Instant::now());
        for number in 0..2 * u32::try_from(MAXIMUM_REMEMBERED).unwrap() {
            let address = IpAddr::V4(number.into());
            assert!(doors.may_enter_at(address, now));
            doors.prove(address);
        }
        let state = doors.state();
        assert!(state.arrivals.len() <= MAXIMUM_REMEMBERED && state.proven_at.len() <= MAXIMUM_REMEMBERED);
    }
}
