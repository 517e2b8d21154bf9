//! The members of etcd, and which of them is asked.
//!
//! A request goes to a member that answers, in turn. Each member is asked for itself in the background, at short intervals,
//! by a read that needs a majority; so one that is dead, stopped or cut off is known to be before most requests would find
//! out. A request that found out continues with the next member, if it is certain that it did nothing, or harmless if it did.

use std::error::Error as _;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tonic::transport::Channel;
use tonic::{Code, ConnectError};

use super::client::CallError;
use crate::hub::lock;

/// Time after the last answer in which a majority may be electing a leader, so that waiting for it is worth it.
/// Beyond it, requests fail at once.
const ELECTION: Duration = Duration::from_secs(4);
/// The delay between two rounds over all members.
const ROUND_PAUSE: Duration = Duration::from_millis(50);
/// Rounds over all members; with the pauses they outlast an election.
const ROUNDS: u32 = 60;

/// Maximum duration of a request to a member that did not answer before.
const MOMENT: Duration = Duration::from_secs(1);

/// All members.
#[derive(Debug)]
pub(super) struct Members {
    list: Vec<Member>,
    next: AtomicUsize,
    /// The cluster that the first member which answered is of.
    cluster: OnceLock<u64>,
    answered: Mutex<Instant>,
}

/// One member.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) channel: Channel,
    is_up: watch::Sender<bool>,
    /// It is a member of another cluster than the others, and is not asked.
    is_foreign: AtomicBool,
}

/// Rule for sending a request again although the first may have been performed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    /// It changes nothing, or the same again.
    Harmless,
    /// It would change something twice.
    Harmful,
}

/// Why a member did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The request was not performed and never will be.
    NotPerformed,
    /// The member has no leader, and has refused the request for it.
    NoLeader,
    /// It may have been performed.
    Unknown,
}

impl Trouble {
    /// `None` for an answer about the request itself, which every member would give.
    pub(super) fn of(error: &CallError) -> Option<Self> {
        let status = match error {
            CallError::Status(status) => status,
            CallError::Transport(_) => return Some(Self::NotPerformed),
            CallError::Silent => return Some(Self::Unknown),
            CallError::Endpoint(_) => return None,
        };
        let mut cause = status.source();
        while let Some(inner) = cause {
            let is_unconnected = inner.downcast_ref::<io::Error>().is_some_and(|error| {
                matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionRefused
                        | io::ErrorKind::HostUnreachable
                        | io::ErrorKind::NetworkUnreachable
                )
            });
            if is_unconnected || inner.is::<ConnectError>() {
                return Some(Self::NotPerformed);
            }
            cause = inner.source();
        }
        match status.code() {
            Code::Unavailable if status.message().ends_with("no leader") => Some(Self::NoLeader),
            // The connection broke, the member stops, or the leader changed.
            Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded | Code::Unknown | Code::Internal => {
                Some(Self::Unknown)
            }
            _ => None,
        }
    }

    fn allows(self, repeat: Repeat) -> bool {
        self != Self::Unknown || repeat == Repeat::Harmless
    }
}

impl Member {
    pub(super) fn new(channel: Channel) -> Self {
        Self { channel, is_up: watch::Sender::new(true), is_foreign: AtomicBool::new(false) }
    }

    pub(super) fn is_up(&self) -> bool {
        *self.is_up.borrow()
    }

    pub(super) fn set_up(&self, is_up: bool) {
        self.is_up.send_if_modified(|known| std::mem::replace(known, is_up) != is_up);
    }

    /// Waits until the member does not answer any more. One that does not answer now has a moment to do so.
    pub(super) fn down(&self) -> impl Future<Output = ()> + use<> {
        let mut state = self.is_up.subscribe();
        async move {
            if !*state.borrow_and_update() {
                return tokio::time::sleep(MOMENT).await;
            }
            // The member outlives who asks it.
            drop(state.wait_for(|is_up| !is_up).await);
        }
    }
}

impl Members {
    pub(super) fn new(list: Vec<Member>) -> Self {
        Self {
            list,
            next: AtomicUsize::new(0),
            cluster: OnceLock::new(),
            answered: Mutex::new(Instant::now()),
        }
    }

    pub(super) fn all(&self) -> &[Member] {
        &self.list
    }

    /// Notes the cluster that a member says it is of. Returns whether it is that of the others.
    pub(super) fn admit(&self, member: &Member, cluster: u64) -> bool {
        let is_foreign = *self.cluster.get_or_init(|| cluster) != cluster;
        if !member.is_foreign.swap(is_foreign, Ordering::Relaxed) && is_foreign {
            tracing::error!(
                "an endpoint belongs to another etcd cluster than the others, and is not asked any more"
            );
        }
        !is_foreign
    }

    /// Those that answer, in turn; all of them if none does.
    fn order(&self) -> Vec<&Member> {
        let start = self.next.fetch_add(1, Ordering::Relaxed);
        let count = self.list.len();
        let mut members: Vec<&Member> =
            (0..count).map(|n| &self.list[start.wrapping_add(n) % count]).collect();
        members.retain(|member| !member.is_foreign.load(Ordering::Relaxed));
        if members.iter().any(|member| member.is_up()) {
            members.retain(|member| member.is_up());
        }
        members
    }

    fn note_answer(&self) {
        *lock(&self.answered) = Instant::now();
    }

    fn is_electing(&self) -> bool {
        lock(&self.answered).elapsed() < ELECTION
    }

    /// Sends a request to one member after the other until one answers. Also returns whether an earlier attempt may have been
    /// performed.
    pub(super) async fn ask<'m, T, F>(
        &'m self,
        repeat: Repeat,
        attempt: impl Fn(&'m Member) -> F,
    ) -> Result<(T, bool), CallError>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        let mut is_repeated = false;
        let mut round = 0;
        loop {
            let mut last = None;
            for member in self.order() {
                let error = match attempt(member).await {
                    Ok(answer) => {
                        member.set_up(true);
                        self.note_answer();
                        return Ok((answer, is_repeated));
                    }
                    Err(error) => error,
                };
                let Some(trouble) = Trouble::of(&error) else {
                    self.note_answer();
                    return Err(error);
                };
                // Where there is no other, there is nothing to choose.
                member.set_up(self.list.len() == 1);
                is_repeated |= trouble == Trouble::Unknown;
                if !trouble.allows(repeat) {
                    return Err(error);
                }
                last = Some((error, trouble));
            }
            let Some((error, trouble)) = last else {
                return Err(CallError::Endpoint(
                    "no endpoint is of the etcd cluster of the start".to_owned(),
                ));
            };
            round += 1;
            // Where nothing listens, there is nothing to wait for.
            let is_over = trouble == Trouble::NotPerformed && self.list.len() == 1;
            if is_over || round >= ROUNDS || !self.is_electing() {
                return Err(error);
            }
            tokio::time::sleep(ROUND_PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // tests
    use super::super::EtcdOptions;
    use super::super::client::EtcdClient;
    use super::super::protocol::RangeRequest;
    use super::*;

    #[tokio::test]
    async fn a_refused_connection_has_done_nothing() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let options = EtcdOptions { timeout: Duration::from_secs(30), ..EtcdOptions::default() };
        let client = EtcdClient::new(&[format!("http://{free}")], &options, "key").unwrap();
        let error = client.range(RangeRequest::default()).await.unwrap_err();
        assert_eq!(Trouble::of(&error), Some(Trouble::NotPerformed), "{error:?}");
    }
}
