//! Admission of clients of which only the address is known: limits how often connections come, and decides whose handshake is
//! computed next and which client without credentials is answered next.
//!
//! A handshake costs a signature before a client has sent anything, and an answer costs about as much as the next request, which is
//! read once the answer is sent. For each address, the server remembers whether somebody has presented valid credentials from there
//! recently, and how often connections come from it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::turns::{Source, Turn, Turns};

/// Number of handshakes per core that are computed at once.
const HANDSHAKES_PER_CORE: usize = 8;
/// Time for which a handshake may keep its turn: it computes for a moment, and then waits for the peer.
pub(crate) const TURN: Duration = Duration::from_millis(20);
/// Number of answers without credentials per core that are sent at once: sending one occupies the processor and waits for nothing.
const ANSWERS_PER_CORE: usize = 1;
/// Time for which an address counts as proven after somebody has presented credentials from it.
const PROVEN_FOR: Duration = Duration::from_mins(10);
/// Maximum number of addresses that are remembered, as proven or with their rate of connections.
const MAXIMUM_REMEMBERED: usize = 4096;
/// Number of connections that an unproven address may open at once...
const ARRIVALS: u32 = 500;
/// ...and the number that it may open each second beyond that.
const ARRIVALS_PER_SECOND: u32 = 100;

/// Rate of connections from an address.
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
    proven_at: BTreeMap<Source, Instant>,
    arrivals: BTreeMap<Source, Arrivals>,
}

impl State {
    fn is_proven(&self, source: Source, now: Instant) -> bool {
        self.proven_at.get(&source).is_some_and(|at| now.duration_since(*at) < PROVEN_FOR)
    }
}

/// Admission of clients; see the module documentation.
#[derive(Debug)]
pub(crate) struct Doors {
    handshakes: Arc<Turns>,
    answers: Arc<Turns>,
    state: Mutex<State>,
}

impl Doors {
    /// Creates the limits for this machine.
    pub(crate) fn new() -> Self {
        Self {
            handshakes: Turns::per_core(HANDSHAKES_PER_CORE),
            answers: Turns::per_core(ANSWERS_PER_CORE),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a connection; returns `false` if too many come from its address and no one has presented credentials from there
    /// recently.
    pub(crate) fn may_enter(&self, address: IpAddr) -> bool {
        self.may_enter_at(address, Instant::now())
    }

    fn may_enter_at(&self, address: IpAddr, now: Instant) -> bool {
        let (source, mut state) = (Source::from(address), self.state());
        if state.is_proven(source, now) {
            return true;
        }
        if state.arrivals.len() >= MAXIMUM_REMEMBERED && !state.arrivals.contains_key(&source) {
            // Addresses that connect rarely need not be remembered.
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

    /// Records that somebody has presented valid credentials from an address.
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

    /// Waits for a turn to compute a handshake.
    pub(crate) async fn handshake(&self, address: IpAddr) -> Turn {
        self.turn(&self.handshakes, address, 0).await
    }

    /// Waits for a turn to send an answer without credentials, on a connection that has recently `had` this many.
    pub(crate) async fn answer(&self, address: IpAddr, had: u32) -> Turn {
        self.turn(&self.answers, address, had).await
    }

    async fn turn(&self, turns: &Arc<Turns>, address: IpAddr, had: u32) -> Turn {
        let source = Source::from(address);
        let is_proven = self.state().is_proven(source, Instant::now());
        turns.wait(source, is_proven, had).await
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_that_comes_too_often_proves_itself_or_waits() {
        let (doors, now) = (Doors::new(), Instant::now());
        let enter = |from: &str, at| doors.may_enter_at(address(from), at);
        let entered = (0..2 * ARRIVALS).filter(|_| enter("10.0.0.2", now)).count();
        assert_eq!(entered, ARRIVALS as usize);
        assert!(enter("10.0.0.3", now), "others are not concerned");
        let later = now + Duration::from_secs(2);
        let entered = (0..ARRIVALS).filter(|_| enter("::ffff:10.0.0.2", later)).count();
        assert_eq!(entered, 2 * ARRIVALS_PER_SECOND as usize);
        doors.prove(address("10.0.0.2"));
        assert!(enter("10.0.0.2", later));
        // A single IPv6 client owns a whole network.
        let entered = (0..2 * ARRIVALS).filter(|n| enter(&format!("2001:db8::{n:x}"), now)).count();
        assert_eq!(entered, ARRIVALS as usize);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (doors, now) = (Doors::new(), Instant::now());
        for number in 0..2 * u32::try_from(MAXIMUM_REMEMBERED).unwrap() {
            let address = IpAddr::V4(number.into());
            assert!(doors.may_enter_at(address, now));
            doors.prove(address);
        }
        let state = doors.state();
        assert!(state.arrivals.len() <= MAXIMUM_REMEMBERED && state.proven_at.len() <= MAXIMUM_REMEMBERED);
    }
}
