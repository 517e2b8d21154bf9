//! Members of etcd, and the choice of the one that receives a request.
//!
//! Requests go to answering members in turn. All members are probed in the background at short intervals, by a read that needs a
//! majority. They are compared: a member that answers later than another is not used, whether it is stopped, cut off or slow, and
//! requests in flight at it end. A request that ended in this way continues at the next member, if it certainly had no effect, or
//! is harmless when performed twice.

use std::collections::BTreeSet;
use std::error::Error as _;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::sync::watch;
use tonic::transport::Channel;
use tonic::{Code, ConnectError};

use super::client::CallError;
use crate::hub::lock;

/// Time after the last answer during which a majority may be electing a leader, so that waiting is worthwhile. Beyond it, requests
/// fail immediately.
const ELECTION: Duration = Duration::from_secs(4);
/// Delay between two rounds over all members.
const ROUND_PAUSE: Duration = Duration::from_millis(50);
/// Number of rounds over all members; with the pauses, they outlast an election.
const ROUNDS: u32 = 60;

/// Maximum duration of a request to a member that did not answer the last probe.
const MOMENT: Duration = Duration::from_secs(1);
/// Time in which a new leader performs requests that survived its predecessor.
const SURVIVAL: Duration = Duration::from_millis(100);
/// If members answer that they have no leader, the others, which take a moment each, are included only in one round out of this
/// many.
const FULL_ROUND: u32 = 8;

/// Limits of one check of all members.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// A member that takes longer counts as not answering, even if no other answers.
    pub(super) silence: Duration,
    /// A member that answers this much later than the first one counts as not answering.
    pub(super) lag: Duration,
}

impl Patience {
    /// On a busy machine, all members are late, and at different times.
    const LAG_TIMES: u32 = 4;

    fn after_first(self, took: Duration) -> Duration {
        took + self.lag.max(took * Self::LAG_TIMES)
    }
}

/// Health of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Up,
    /// It answers that it has no leader: a majority is electing one, or is lost.
    Leaderless,
    /// It does not answer, or answers later than another member.
    Down,
}

/// All members.
#[derive(Debug)]
pub(super) struct Members {
    list: Vec<Member>,
    next: AtomicUsize,
    /// Cluster of the first member that answered.
    cluster: OnceLock<u64>,
    answered: Mutex<Instant>,
    /// Newest term of a leader named in an answer.
    term: watch::Sender<u64>,
}

/// One member.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) channel: Channel,
    health: watch::Sender<Health>,
    /// True if the member belongs to another cluster than the others, and receives no requests.
    is_foreign: AtomicBool,
}

/// Rule for repeating a request although the first attempt may have been performed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    /// Performing it twice changes nothing more.
    Harmless,
    /// It would change something twice.
    Harmful,
}

/// Reason why a member did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The request was not performed and never will be.
    NotPerformed,
    /// The member has no leader, and has refused the request for this reason.
    NoLeader,
    /// The request may have been performed.
    Unknown,
}

impl Trouble {
    /// Classifies an error; `None` for an answer about the request itself, which every member would give.
    pub(super) fn of(error: &CallError) -> Option<Self> {
        let status = match error {
            CallError::Status(status) => status,
            CallError::Transport(_) => return Some(Self::NotPerformed),
            CallError::Silent | CallError::LeaderChanged => return Some(Self::Unknown),
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
            // The connection broke, the member is stopping, or the leader changed.
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
        Self { channel, health: watch::Sender::new(Health::Up), is_foreign: AtomicBool::new(false) }
    }

    fn health(&self) -> Health {
        *self.health.borrow()
    }

    fn set(&self, health: Health) {
        self.health.send_if_modified(|known| std::mem::replace(known, health) != health);
    }

    /// Waits until the member no longer answers. A member that does not answer now is given a moment.
    pub(super) fn down(&self) -> impl Future<Output = ()> + use<> {
        let mut state = self.health.subscribe();
        async move {
            if *state.borrow_and_update() == Health::Down {
                return tokio::time::sleep(MOMENT).await;
            }
            // The member outlives its callers.
            drop(state.wait_for(|health| *health == Health::Down).await);
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
            term: watch::Sender::new(0),
        }
    }

    pub(super) fn all(&self) -> &[Member] {
        &self.list
    }

    /// Records the cluster that a member reports. Returns whether it is the same as the others'.
    pub(super) fn admit(&self, member: &Member, cluster: u64) -> bool {
        let is_foreign = *self.cluster.get_or_init(|| cluster) != cluster;
        if !member.is_foreign.swap(is_foreign, Ordering::Relaxed) && is_foreign {
            tracing::error!(
                "an endpoint belongs to another etcd cluster than the others, and is not asked any more"
            );
        }
        !is_foreign
    }

    pub(super) fn note_term(&self, term: u64) {
        self.term.send_if_modified(|known| std::mem::replace(known, term.max(*known)) < term);
    }

    /// Returns the newest known term; 0 if none is.
    #[cfg(test)]
    pub(super) fn term(&self) -> u64 {
        *self.term.borrow()
    }

    /// Waits until a request at a member can no longer be answered, or not soon. A write that a follower has sent to a leader that
    /// died is lost, and the follower waits five seconds for it.
    pub(super) fn lost(&self, member: &Member) -> impl Future<Output = CallError> + use<> {
        let (down, mut term) = (member.down(), self.term.subscribe());
        async move {
            let elected = async {
                let before = *term.borrow_and_update();
                // The first known term is not a new one.
                if term.wait_for(|term| before > 0 && *term > before).await.is_err() {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(SURVIVAL).await;
            };
            tokio::select! {
                () = down => CallError::Silent,
                () = elected => CallError::LeaderChanged,
            }
        }
    }

    /// Probes each member and records its health. The first answer limits the time of the others.
    pub(super) async fn check<'m, F>(&'m self, patience: Patience, ask: impl Fn(&'m Member) -> F)
    where
        F: Future<Output = Health>,
    {
        let begun = tokio::time::Instant::now();
        let mut ends = begun + patience.silence;
        let mut silent: BTreeSet<usize> = (0..self.list.len()).collect();
        let asked = self.list.iter().enumerate().map(|(number, member)| {
            let answer = ask(member);
            async move { (number, answer.await) }
        });
        let mut asked: FuturesUnordered<_> = asked.collect();
        while let Ok(Some((number, health))) = tokio::time::timeout_at(ends, asked.next()).await {
            silent.remove(&number);
            if let Some(member) = self.list.get(number) {
                member.set(health);
            }
            // A member without a leader answers immediately; one with a leader need not be as fast.
            if health == Health::Up {
                ends = ends.min(begun + patience.after_first(begun.elapsed()));
            }
        }
        for member in silent.into_iter().filter_map(|number| self.list.get(number)) {
            member.set(Health::Down);
        }
    }

    /// Returns the healthy members in turn. If there are none, returns those that answer, and occasionally all.
    fn order(&self, round: u32) -> Vec<&Member> {
        let start = self.next.fetch_add(1, Ordering::Relaxed);
        let count = self.list.len();
        let mut members: Vec<&Member> =
            (0..count).map(|n| &self.list[start.wrapping_add(n) % count]).collect();
        members.retain(|member| !member.is_foreign.load(Ordering::Relaxed));
        let is_full = round % FULL_ROUND == FULL_ROUND - 1;
        for health in [Some(Health::Up), Some(Health::Leaderless).filter(|_| !is_full)].into_iter().flatten()
        {
            if members.iter().any(|member| member.health() == health) {
                members.retain(|member| member.health() == health);
                break;
            }
        }
        members
    }

    fn note_answer(&self) {
        *lock(&self.answered) = Instant::now();
    }

    fn is_electing(&self) -> bool {
        lock(&self.answered).elapsed() < ELECTION
    }

    /// Sends a request to one member after another until one answers. Also returns whether an earlier attempt may have been
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
            for member in self.order(round) {
                let error = match attempt(member).await {
                    Ok(answer) => {
                        member.set(Health::Up);
                        self.note_answer();
                        return Ok((answer, is_repeated));
                    }
                    Err(error) => error,
                };
                let Some(trouble) = Trouble::of(&error) else {
                    self.note_answer();
                    return Err(error);
                };
                match error {
                    CallError::LeaderChanged => {}
                    // With a single member, there is no choice.
                    _ if self.list.len() == 1 => member.set(Health::Up),
                    _ if error.is_of_etcd() => member.set(Health::Leaderless),
                    _ => member.set(Health::Down),
                }
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
            // A single member that is not listening is not worth waiting for.
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
    use tonic::Status;

    /// Returns members to which no requests are actually sent.
    fn members(healths: [Health; 3]) -> Members {
        let member = |health| {
            let member = Member::new(tonic::transport::Endpoint::from_static("http://unused").connect_lazy());
            member.set(health);
            member
        };
        Members::new(healths.map(member).into())
    }

    fn healths(members: &Members) -> Vec<Health> {
        members.all().iter().map(Member::health).collect()
    }

    fn is(members: &Members, number: usize, member: &Member) -> bool {
        std::ptr::eq(&raw const members.all()[number], member)
    }

    /// Without the comparison of members, the check would only end after an hour.
    const PATIENCE: Patience = Patience { silence: Duration::from_hours(1), lag: Duration::from_millis(1) };

    #[test]
    fn a_member_may_be_later_by_a_fixed_time_or_by_four_times_what_the_first_took() {
        let patience = Patience { silence: Duration::from_secs(1), lag: Duration::from_millis(100) };
        for (took, until) in [(0, 100), (10, 110), (25, 125), (26, 130), (100, 500)] {
            let until = Duration::from_millis(until);
            assert_eq!(patience.after_first(Duration::from_millis(took)), until, "{took}");
        }
    }

    /// Regression test: a stopped member was used until it had been silent for 0.6 s, regardless of the others.
    #[tokio::test]
    async fn a_member_that_is_later_than_another_is_down_and_requests_at_it_continue() {
        let members = members([Health::Up; 3]);
        let check = members.check(PATIENCE, |member| {
            let is_stopped = is(&members, 1, member);
            async move { if is_stopped { std::future::pending().await } else { Health::Up } }
        });
        // Start with the stopped member.
        members.next.store(1, Ordering::Relaxed);
        let request = members.ask(Repeat::Harmless, |member| {
            let (is_stopped, down) = (is(&members, 1, member), member.down());
            async move {
                if is_stopped {
                    down.await;
                    return Err(CallError::Silent);
                }
                Ok("answer")
            }
        });
        let ((), answer) = tokio::join!(check, request);
        assert_eq!(healths(&members), [Health::Up, Health::Down, Health::Up]);
        assert_eq!(answer.unwrap(), ("answer", true));
    }

    /// Regression test: a write that a follower had sent to a leader that died waited for etcd's time limit, more than five
    /// seconds.
    #[tokio::test]
    async fn a_request_from_before_an_election_is_sent_again() {
        let members = members([Health::Up; 3]);
        members.note_term(4);
        let attempts = AtomicUsize::new(0);
        let request = members.ask(Repeat::Harmless, |member| {
            let (number, lost) = (attempts.fetch_add(1, Ordering::Relaxed), members.lost(member));
            async move { if number == 0 { Err(lost.await) } else { Ok("answer") } }
        });
        let election = async {
            // The request is in flight by then.
            tokio::task::yield_now().await;
            members.note_term(5);
        };
        let (answer, ()) = tokio::join!(request, election);
        assert_eq!(answer.unwrap(), ("answer", true));
        assert_eq!(healths(&members), [Health::Up; 3]);
    }

    #[tokio::test]
    async fn a_member_without_a_leader_hurries_no_other() {
        let members = members([Health::Up; 3]);
        let check = members.check(PATIENCE, |member| {
            let (is_first, mut first) = (is(&members, 0, member), members.all()[0].health.subscribe());
            async move {
                if is_first {
                    return Health::Leaderless;
                }
                first.wait_for(|health| *health == Health::Leaderless).await.unwrap();
                tokio::time::sleep(Duration::from_millis(20)).await;
                Health::Up
            }
        });
        check.await;
        assert_eq!(healths(&members)[0], Health::Leaderless);
        assert!(healths(&members).contains(&Health::Up));
    }

    #[tokio::test]
    async fn members_are_chosen_by_their_health() {
        use Health::{Down, Leaderless, Up};
        for (states, round, chosen) in [
            ([Up, Down, Leaderless], 0, vec![0]),
            ([Up, Down, Up], 7, vec![0, 2]),
            ([Leaderless, Down, Leaderless], 0, vec![0, 2]),
            ([Leaderless, Down, Leaderless], 7, vec![0, 1, 2]),
            ([Down; 3], 0, vec![0, 1, 2]),
        ] {
            let members = members(states);
            let ordered = members.order(round);
            let is_chosen = |number: &usize| ordered.iter().any(|member| is(&members, *number, member));
            assert_eq!((0..3).filter(is_chosen).collect::<Vec<_>>(), chosen, "{states:?} in round {round}");
        }
    }

    #[tokio::test]
    async fn a_refused_connection_has_done_nothing() {
        // Bound, so that no other gets it, but without a listener.
        let closed = tokio::net::TcpSocket::new_v4().unwrap();
        closed.bind((std::net::Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let closed_address = closed.local_addr().unwrap();
        let options = EtcdOptions { timeout: Duration::from_secs(30), ..EtcdOptions::default() };
        let client = EtcdClient::new(&[format!("http://{closed_address}")], &options, "key").unwrap();
        let error = client.range(RangeRequest::default()).await.unwrap_err();
        assert_eq!(Trouble::of(&error), Some(Trouble::NotPerformed), "{error:?}");
    }

    /// Returns an error after which a request certainly was not performed.
    fn not_performed() -> CallError {
        CallError::Status(Status::from_error(Box::new(io::Error::from(io::ErrorKind::ConnectionRefused))))
    }

    fn refusal(code: Code, message: &str) -> CallError {
        CallError::Status(Status::new(code, message))
    }

    #[test]
    fn trouble_is_what_another_member_might_not_have() {
        let of = |kind| CallError::Status(Status::from_error(Box::new(io::Error::from(kind))));
        let rows = [
            (of(io::ErrorKind::ConnectionRefused), Some(Trouble::NotPerformed)),
            (of(io::ErrorKind::HostUnreachable), Some(Trouble::NotPerformed)),
            (of(io::ErrorKind::NetworkUnreachable), Some(Trouble::NotPerformed)),
            (of(io::ErrorKind::BrokenPipe), Some(Trouble::Unknown)),
            (CallError::Silent, Some(Trouble::Unknown)),
            (CallError::LeaderChanged, Some(Trouble::Unknown)),
            (CallError::Endpoint("no URL".to_owned()), None),
            (refusal(Code::Unavailable, "etcdserver: no leader"), Some(Trouble::NoLeader)),
            (refusal(Code::Unavailable, "etcdserver: leader changed"), Some(Trouble::Unknown)),
            (refusal(Code::Cancelled, ""), Some(Trouble::Unknown)),
            (refusal(Code::DeadlineExceeded, ""), Some(Trouble::Unknown)),
            (refusal(Code::Unknown, "no leader"), Some(Trouble::Unknown)),
            (refusal(Code::Internal, ""), Some(Trouble::Unknown)),
            (refusal(Code::OutOfRange, ""), None),
            (refusal(Code::PermissionDenied, ""), None),
        ];
        for (error, expected) in rows {
            assert_eq!(Trouble::of(&error), expected, "{error:?}");
            let Some(trouble) = expected else { continue };
            assert!(trouble.allows(Repeat::Harmless));
            assert_eq!(trouble.allows(Repeat::Harmful), trouble != Trouble::Unknown, "{error:?}");
        }
    }

    /// A request is repeated as long as that is harmless and not in vain.
    #[tokio::test]
    async fn a_request_continues_at_other_members_if_it_may() {
        use Health::{Down, Leaderless, Up};
        let leaderless = || refusal(Code::Unavailable, "etcdserver: no leader");
        let elected = || refusal(Code::Unavailable, "etcdserver: leader changed");
        let denied = || refusal(Code::PermissionDenied, "etcdserver: permission denied");
        type Row = (&'static str, usize, Repeat, fn() -> CallError, Option<bool>, Health);
        let rows: [Row; 13] = [
            ("refused", 3, Repeat::Harmless, denied, None, Up),
            ("refused alone", 1, Repeat::Harmless, denied, None, Up),
            ("not performed", 3, Repeat::Harmful, not_performed, Some(false), Down),
            ("not performed alone", 1, Repeat::Harmless, not_performed, None, Up),
            ("no leader", 3, Repeat::Harmful, leaderless, Some(false), Leaderless),
            ("no leader alone", 1, Repeat::Harmful, leaderless, Some(false), Up),
            ("silent", 3, Repeat::Harmless, || CallError::Silent, Some(true), Down),
            ("silent alone", 1, Repeat::Harmless, || CallError::Silent, Some(true), Up),
            ("silent and harmful", 3, Repeat::Harmful, || CallError::Silent, None, Down),
            ("silent, harmful and alone", 1, Repeat::Harmful, || CallError::Silent, None, Up),
            ("of a former leader", 3, Repeat::Harmless, || CallError::LeaderChanged, Some(true), Up),
            ("of a former leader, and harmful", 3, Repeat::Harmful, || CallError::LeaderChanged, None, Up),
            ("during an election", 3, Repeat::Harmless, elected, Some(true), Leaderless),
        ];
        for (name, count, repeat, error, expected, health) in rows {
            let mut members = members([Up; 3]);
            members.list.truncate(count);
            let attempts = AtomicUsize::new(0);
            let answer = members.ask(repeat, |_| {
                let is_first = attempts.fetch_add(1, Ordering::Relaxed) == 0;
                async move { if is_first { Err(error()) } else { Ok(()) } }
            });
            assert_eq!(answer.await.ok().map(|((), is_repeated)| is_repeated), expected, "{name}");
            assert_eq!(attempts.load(Ordering::Relaxed), 1 + usize::from(expected.is_some()), "{name}");
            let expected = if count > 1 { vec![health, Up, Up] } else { vec![Up] };
            assert_eq!(healths(&members), expected, "{name}");
        }
    }

    /// Beyond the time of an election, all members are asked once.
    #[tokio::test]
    async fn a_request_is_given_up_when_no_member_has_answered_for_long() {
        let members = members([Health::Up; 3]);
        *lock(&members.answered) = Instant::now().checked_sub(ELECTION).unwrap();
        let attempts = AtomicUsize::new(0);
        let answer: Result<((), bool), _> = members
            .ask(Repeat::Harmless, |_| {
                attempts.fetch_add(1, Ordering::Relaxed);
                async { Err(CallError::Silent) }
            })
            .await;
        assert!(matches!(answer, Err(CallError::Silent)), "{answer:?}");
        assert_eq!(attempts.into_inner(), 3);
        assert_eq!(healths(&members), [Health::Down; 3]);
        // A refusal is an answer.
        let refused: Result<((), bool), _> =
            members.ask(Repeat::Harmless, |_| async { Err(refusal(Code::PermissionDenied, "denied")) }).await;
        assert!(refused.is_err() && members.is_electing());
        *lock(&members.answered) = Instant::now().checked_sub(ELECTION).unwrap();
        members.ask(Repeat::Harmless, |_| async { Ok(()) }).await.unwrap();
        assert!(members.is_electing());
        assert_eq!(healths(&members).iter().filter(|health| **health == Health::Up).count(), 1);
    }

    #[tokio::test]
    async fn a_request_is_repeated_for_as_long_as_an_election_may_take_and_no_longer() {
        let mut members = members([Health::Up; 3]);
        members.list.truncate(1);
        let attempts = AtomicUsize::new(0);
        let begun = Instant::now();
        let answer: Result<((), bool), _> = members
            .ask(Repeat::Harmless, |_| {
                attempts.fetch_add(1, Ordering::Relaxed);
                members.note_answer();
                async { Err(refusal(Code::Unavailable, "etcdserver: no leader")) }
            })
            .await;
        assert!(answer.is_err());
        assert_eq!(attempts.into_inner(), 60);
        assert!(begun.elapsed() >= ROUND_PAUSE * 59, "{:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn members_are_used_in_turn() {
        let members = members([Health::Up; 3]);
        let first = |members: &Members| {
            let ordered = members.order(0);
            (0..3).find(|number| is(members, *number, ordered[0])).unwrap()
        };
        assert_eq!([first(&members), first(&members), first(&members), first(&members)], [0, 1, 2, 0]);
        members.next.store(usize::MAX, Ordering::Relaxed);
        assert_eq!(members.order(0).len(), 3, "the counter wraps around");
    }

    #[tokio::test]
    async fn a_member_of_another_cluster_is_not_asked() {
        let members = members([Health::Up; 3]);
        let [first, second, third] = members.all() else { unreachable!() };
        assert!(members.admit(first, 7) && members.admit(second, 7));
        assert!(!members.admit(third, 8) && !members.admit(third, 8));
        let asked = members.order(0);
        assert!(asked.len() == 2 && !asked.iter().any(|member| is(&members, 2, member)));
        // It may be replaced by one of the cluster.
        assert!(members.admit(third, 7));
        assert_eq!(members.order(0).len(), 3);
        for member in members.all() {
            members.admit(member, 8);
        }
        let error = members.ask(Repeat::Harmless, |_| async { Ok(()) }).await.unwrap_err();
        assert_eq!(error.to_string(), "no endpoint is of the etcd cluster of the start");
    }

    /// Polls a future once.
    fn is_over(future: std::pin::Pin<&mut impl Future<Output = CallError>>) -> Option<CallError> {
        match future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
            std::task::Poll::Ready(error) => Some(error),
            std::task::Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn a_request_is_lost_with_its_member_and_with_the_leader_that_it_had() {
        let members = members([Health::Up; 3]);
        let member = &members.all()[0];
        // The first known term is not a new one, and terms do not go back.
        let mut lost = std::pin::pin!(members.lost(member));
        assert!(is_over(lost.as_mut()).is_none());
        for term in [4, 4, 3] {
            members.note_term(term);
            assert_eq!(members.term(), 4);
        }
        assert!(tokio::time::timeout(SURVIVAL * 2, lost.as_mut()).await.is_err());
        let mut lost = std::pin::pin!(members.lost(member));
        assert!(is_over(lost.as_mut()).is_none());
        members.note_term(5);
        // A new leader may still perform it.
        assert!(is_over(lost.as_mut()).is_none());
        assert!(matches!(lost.await, CallError::LeaderChanged));
        let mut lost = std::pin::pin!(members.lost(member));
        assert!(is_over(lost.as_mut()).is_none());
        for health in [Health::Leaderless, Health::Up] {
            member.set(health);
            assert!(is_over(lost.as_mut()).is_none(), "{health:?}");
        }
        member.set(Health::Down);
        assert!(matches!(is_over(lost.as_mut()), Some(CallError::Silent)));
        // A member that is known not to answer is given a moment.
        let begun = Instant::now();
        assert!(matches!(members.lost(member).await, CallError::Silent));
        assert!(begun.elapsed() >= MOMENT, "{:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn members_that_do_not_answer_within_the_silence_are_down() {
        let members = members([Health::Down, Health::Up, Health::Leaderless]);
        let patience = Patience { silence: Duration::from_millis(20), lag: Duration::from_hours(1) };
        let check = members.check(patience, |member| {
            let is_first = is(&members, 0, member);
            async move { if is_first { Health::Up } else { std::future::pending().await } }
        });
        check.await;
        assert_eq!(healths(&members), [Health::Up, Health::Down, Health::Down]);
    }
}
