//! Bodies of requests while they are read and held: limits the number per user, and the bytes per user and in total.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::account::{Account, Charge, OverBudget};
use super::clients::Client;

/// Maximum length of a request body (upstream's limit).
pub(crate) const MAXIMUM_BODY: usize = 3 * 1024 * 1024;
/// Maximum number of one user's bodies that are read at once; further ones wait.
const MAXIMUM_READING: usize = 128;
/// Maximum wait before a body is read.
const TURN_PATIENCE: Duration = Duration::from_secs(15);
/// Maximum number of bytes of all bodies held, from their arrival to the answer.
const MAXIMUM_BYTES: usize = 256 * 1024 * 1024;
/// Divisor of the memory budget that gives the limit for bodies, if that is less.
const PART_OF_BUDGET: usize = 4;
/// Divisor of that limit that gives the additional reserve of administrators.
const PART_IN_RESERVE: usize = 4;

/// Error: there is no room for a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

/// All bodies.
#[derive(Debug)]
pub(crate) struct Bodies(Mutex<Ledger>);

/// Charges by holder. A user is listed while holding a body.
#[derive(Debug)]
struct Ledger {
    maximum: usize,
    bytes: usize,
    users: BTreeMap<Arc<str>, Usage>,
}

#[derive(Debug)]
struct Usage {
    bytes: usize,
    bodies: usize,
    turns: Arc<Semaphore>,
}

impl Ledger {
    /// Reports whether a user may hold this many more bytes. Each user has an equal share of the total, but always room for one
    /// complete body.
    fn admits(&self, user: &str, more: usize, exempt: bool) -> bool {
        let (limit, share) = if exempt {
            let all = self.maximum + self.maximum / PART_IN_RESERVE;
            (all, all)
        } else {
            (self.maximum, (self.maximum / (self.users.len() + 1)).max(MAXIMUM_BODY))
        };
        let held = self.users.get(user).map_or(0, |usage| usage.bytes);
        self.bytes + more <= limit && held + more <= share
    }
}

impl Bodies {
    /// Creates a ledger without bodies, within an account.
    pub(crate) fn new(account: &Account) -> Self {
        let maximum = MAXIMUM_BYTES.min(account.budget() / PART_OF_BUDGET).max(MAXIMUM_BODY);
        Self(Mutex::new(Ledger { maximum, bytes: 0, users: BTreeMap::new() }))
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turn of a body. Its bytes are also charged to the client, unless it comes from this process.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        user: &str,
        exempt: bool,
        client: Option<&Client>,
    ) -> Result<Held, NoRoom> {
        let charge = client.map(|client| client.charge(0)).transpose().map_err(|OverBudget| NoRoom)?;
        let user: Arc<str> = user.into();
        let turns = {
            let mut ledger = self.ledger();
            let usage = ledger.users.entry(Arc::clone(&user)).or_insert_with(|| Usage {
                bytes: 0,
                bodies: 0,
                turns: Arc::new(Semaphore::new(MAXIMUM_READING)),
            });
            usage.bodies += 1;
            Arc::clone(&usage.turns)
        };
        // Counted from here on, even if the wait is abandoned.
        let mut held = Held { bodies: Arc::clone(self), user, exempt, bytes: 0, charge, turn: None };
        if !exempt {
            let turn = tokio::time::timeout(TURN_PATIENCE, turns.acquire_owned()).await;
            held.turn = Some(turn.map_err(|_| NoRoom)?.map_err(|_| NoRoom)?);
        }
        Ok(held)
    }
}

/// A body that is being read or held.
#[derive(Debug)]
pub(crate) struct Held {
    bodies: Arc<Bodies>,
    user: Arc<str>,
    exempt: bool,
    bytes: usize,
    charge: Option<Charge>,
    turn: Option<OwnedSemaphorePermit>,
}

impl Held {
    /// Counts bytes that have arrived.
    pub(crate) fn add(&mut self, more: usize) -> Result<(), NoRoom> {
        if let Some(charge) = &mut self.charge {
            charge.grow(more).map_err(|OverBudget| NoRoom)?;
        }
        let mut ledger = self.bodies.ledger();
        if !ledger.admits(&self.user, more, self.exempt) {
            return Err(NoRoom);
        }
        ledger.bytes += more;
        if let Some(usage) = ledger.users.get_mut(&self.user) {
            usage.bytes += more;
        }
        self.bytes += more;
        Ok(())
    }

    /// Marks the body as complete, so that another one of the user may be read.
    pub(crate) fn arrived(&mut self) {
        self.turn = None;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut ledger = self.bodies.ledger();
        ledger.bytes -= self.bytes;
        let Some(usage) = ledger.users.get_mut(&self.user) else { return };
        usage.bytes -= self.bytes;
        usage.bodies -= 1;
        if usage.bodies == 0 {
            ledger.users.remove(&self.user);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use super::*;
    use crate::transport::account::MemoryBudget;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn one_user_reads_so_many_bodies_at_once() {
        let bodies = Arc::new(Bodies::new(&Account::new(MemoryBudget::of_bytes(4 << 30))));
        let mut reading = Vec::new();
        for _ in 0..MAXIMUM_READING {
            reading.push(bodies.begin("eve", false, None).await.unwrap());
        }
        assert!(bodies.begin("eve", false, None).now_or_never().is_none(), "it waits");
        assert!(bodies.begin("bob", false, None).await.is_ok(), "others are not in line behind him");
        assert!(bodies.begin("eve", true, None).await.is_ok());
        reading[0].arrived();
        assert!(bodies.begin("eve", false, None).await.is_ok());
        drop(reading);
        assert!(bodies.ledger().users.is_empty());
    }

    #[tokio::test]
    async fn bytes_are_shared_by_those_who_hold_some() {
        let bodies = Arc::new(Bodies::new(&Account::new(MemoryBudget::of_bytes(4 << 30))));
        let mut eve = bodies.begin("eve", false, None).await.unwrap();
        assert_eq!(eve.add(MAXIMUM_BYTES / 2), Ok(()));
        assert_eq!(eve.add(1), Err(NoRoom), "half of all, alone");
        let mut bob = bodies.begin("bob", false, None).await.unwrap();
        assert_eq!(bob.add(MAXIMUM_BYTES / 3), Ok(()));
        let mut others = Vec::new();
        for number in 0..14 {
            let mut held = bodies.begin(&format!("user-{number}"), false, None).await.unwrap();
            assert_eq!(held.add(MAXIMUM_BODY), Ok(()));
            others.push(held);
        }
        let mut last = bodies.begin("last", false, None).await.unwrap();
        assert_eq!(last.add(MAXIMUM_BODY), Err(NoRoom), "all is taken");
        let mut admin = bodies.begin("admin", true, None).await.unwrap();
        assert_eq!(
            admin.add(MAXIMUM_BYTES / PART_IN_RESERVE / 2),
            Ok(()),
            "but not what is kept for administrators"
        );
        drop((eve, bob, others, last, admin));
        assert_eq!(bodies.ledger().bytes, 0);
    }
}
