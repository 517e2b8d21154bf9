//! Connections of clients: their users, the memory that they hold, and the choice of the one to end when there is no room for
//! another.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};

use super::account::{Account, Charge, ClientStanding, OverBudget, soft_limit};
use super::doors::Doors;
use super::pace::Pace;
use super::turns::Turn;
use crate::loss_metrics::LossMetrics;

/// Maximum number of open connections if file descriptors suffice; more wait in the system's queue.
const MAXIMUM_CONNECTIONS: usize = 30_000;
/// File descriptors reserved for storage, watches and files, and for connections that are about to end.
const FILES_IN_RESERVE: usize = 128;
/// Number of connections that are permitted however few file descriptors there are.
const MINIMUM_CONNECTIONS: usize = 32;
/// Maximum number of connections beyond the limit that were asked to end but are still open.
const MAXIMUM_ENDING: usize = 64;
/// Percentage of connections that may be anonymous; the others are reserved for authenticated ones.
const ANONYMOUS_PERCENT: usize = 75;
/// Percentage of connections that may belong to users who are not administrators.
const AUTHENTICATED_PERCENT: usize = 75;
/// Maximum number of requests in flight on one HTTP/2 connection (upstream's number).
pub(crate) const MAXIMUM_STREAMS: u32 = 100;
/// Maximum number of concurrent requests without valid credentials on one connection.
pub(crate) const ANONYMOUS_STREAMS: usize = 8;
/// Further such requests that are refused before the connection is cut off, because each costs work: the number that a client may
/// have in flight if it respects the limit that it was sent.
const MAXIMUM_REFUSALS: usize = MAXIMUM_STREAMS as usize - ANONYMOUS_STREAMS;
/// Requests with invalid credentials before a connection without any valid ones is cut off, because each is verified.
const MAXIMUM_DENIALS: usize = 32;
/// Time within which a connection must begin a request before it counts as idle.
const GRACE: Duration = Duration::from_secs(2);
/// Number of connections of the largest group that are compared to choose the one to close.
const COMPARED: usize = 64;
/// Memory of a connection's buffers (TLS, HTTP) as charged, in bytes: measured and rounded up.
const CONNECTION_BYTES: usize = 48 * 1024;
/// Minimum time between two comparisons of all connections by the memory they hold.
const SHEDDING_PERIOD: Duration = Duration::from_millis(50);

/// Limits on the number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// All connections.
    total: usize,
    /// Connections without valid credentials.
    anonymous: usize,
    /// Connections of users who are not administrators.
    authenticated: usize,
}

impl Limits {
    /// Returns the limits for a process with this limit on open files, if known.
    fn of_files(files: Option<u64>) -> Self {
        let files = files.map(|files| usize::try_from(files).unwrap_or(usize::MAX));
        let by_files = files.map_or(MAXIMUM_CONNECTIONS, |files| files.saturating_sub(FILES_IN_RESERVE));
        Self::of(by_files.clamp(MINIMUM_CONNECTIONS, MAXIMUM_CONNECTIONS))
    }

    /// Returns limits with this total, or fewer if the process may not open enough files.
    pub(crate) fn at_most(total: usize) -> Self {
        Self::of(total.min(Self::of_process().total))
    }

    /// Returns limits with this total.
    fn of(total: usize) -> Self {
        Self {
            total,
            anonymous: total * ANONYMOUS_PERCENT / 100,
            authenticated: total * AUTHENTICATED_PERCENT / 100,
        }
    }

    /// Returns the limits for this process.
    pub(crate) fn of_process() -> Self {
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
        Self::of_files(soft_limit(&limits, "Max open files"))
    }
}

/// Stage of closing a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ending {
    #[default]
    NotAsked,
    /// Accepts no further requests.
    AfterRequests,
    /// No longer served, but kept open for a while so that the peer does not reconnect immediately.
    Silenced,
    /// Cut off.
    AtOnce,
}

/// One connection, shared by its requests and streams.
#[derive(Debug)]
pub(crate) struct Client {
    number: u64,
    address: IpAddr,
    opened: Instant,
    clients: Arc<Clients>,
    standing: AtomicU8,
    /// True if valid credentials were presented. On a trusting listener, the connection has a standing without them.
    is_known: AtomicBool,
    /// Pace of answers until valid credentials are presented.
    pace: Pace,
    held: Arc<AtomicUsize>,
    /// Charge for the connection itself.
    base: Mutex<Option<Charge>>,
    anonymous_streams: AtomicUsize,
    /// Requests refused for lack of an anonymous stream.
    refusals: AtomicUsize,
    /// Requests with invalid credentials.
    denials: AtomicUsize,
    in_flight: AtomicUsize,
    /// Incremented whenever a request begins or ends.
    changes: AtomicU64,
    ending: watch::Sender<Ending>,
}

impl Client {
    /// Returns the peer's address.
    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns the standing by the credentials that the connection has presented.
    pub(crate) fn standing(&self) -> ClientStanding {
        ClientStanding::ALL.into_iter().nth(self.standing.load(Ordering::Relaxed).into()).unwrap_or_default()
    }

    /// Charges bytes to the connection until the charge is dropped. If there is no room, a connection that holds much is ended.
    pub(crate) fn charge(&self, bytes: usize) -> Result<Charge, OverBudget> {
        let (account, standing) = (&self.clients.account, self.standing());
        account.charge(standing, &self.held, bytes).or_else(|OverBudget| {
            self.clients.shed(standing);
            account.charge(standing, &self.held, bytes)
        })
    }

    /// Returns the number of bytes charged to the connection.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns the admission that the connection came through.
    pub(crate) fn doors(&self) -> &Doors {
        self.clients.doors()
    }

    /// Waits until an answer may be sent on the connection. An answer to a client without credentials waits if the connection has
    /// had many; then for its turn among all such answers of the listener, so that only few are handled at once; and then for all
    /// other tasks that are ready.
    pub(crate) async fn turn(&self) -> Option<Turn> {
        if self.is_known.load(Ordering::Relaxed) {
            return None;
        }
        let share = self.pace.count(Instant::now());
        if !share.delay.is_zero() {
            self.losses().delayed();
            tokio::time::sleep(share.delay).await;
        }
        let turn = self.doors().answer(self.address, share.had).await;
        // While tasks are ready, the runtime checks only occasionally for arrived data. A yielding task resumes after that check.
        tokio::task::yield_now().await;
        Some(turn)
    }

    /// Returns the metrics of streams and connections that were ended by force.
    pub(crate) fn losses(&self) -> &LossMetrics {
        &self.clients.losses
    }

    /// Begins a request, which is in flight until the guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> UnderWay {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        self.changes.fetch_add(1, Ordering::SeqCst);
        UnderWay(Arc::clone(self))
    }

    /// Takes one of the few streams for requests without valid credentials. A connection that continues without one is cut off.
    pub(crate) fn anonymous_stream(self: &Arc<Self>) -> Option<AnonymousStream> {
        let stream = AnonymousStream(Arc::clone(self));
        let before = self.anonymous_streams.fetch_add(1, Ordering::SeqCst);
        if before < ANONYMOUS_STREAMS {
            return Some(stream);
        }
        if self.refusals.fetch_add(1, Ordering::SeqCst) == MAXIMUM_REFUSALS {
            self.losses().connection("refusals");
            self.silence();
        }
        None
    }

    /// Counts invalid credentials. After several, a connection without any valid ones is cut off.
    pub(crate) fn denied(&self) {
        let before = self.denials.fetch_add(1, Ordering::SeqCst);
        if self.standing() == ClientStanding::Anonymous && before + 1 == MAXIMUM_DENIALS {
            self.losses().connection("refusals");
            self.silence();
        }
    }

    /// Records that a user has presented valid credentials on this connection.
    pub(crate) fn authenticated(self: &Arc<Self>, user: &str, standing: ClientStanding) {
        self.is_known.store(true, Ordering::Relaxed);
        self.raise(user, standing);
    }

    /// Grants the standing of a user without credentials, on a listener that trusts everybody.
    pub(crate) fn trusted(self: &Arc<Self>) {
        self.raise("", ClientStanding::Authenticated);
    }

    fn raise(self: &Arc<Self>, user: &str, standing: ClientStanding) {
        if self.standing() < standing {
            self.clients.promote(self, user, standing);
        }
    }

    /// Requests that the connection end.
    pub(crate) fn end(&self, how: Ending) {
        self.ending.send_if_modified(|ending| {
            let is_more = *ending < how;
            *ending = how.max(*ending);
            is_more
        });
    }

    /// Silences a harmful peer's connection: no answer, and no sign that it has ended. An administrator's connection is cut off
    /// instead.
    pub(crate) fn silence(&self) {
        if self.standing() == ClientStanding::Privileged {
            return self.end(Ending::AtOnce);
        }
        self.end(Ending::Silenced);
    }

    /// Reports whether the connection is no longer served but still open.
    pub(crate) fn is_silenced(&self) -> bool {
        *self.ending.borrow() == Ending::Silenced
    }

    /// Returns the charge of the connection itself, once nothing serves it.
    pub(crate) fn release(&self) {
        self.base().take();
    }

    /// Resolves when the connection is asked to end in this way or more urgently.
    pub(crate) async fn asked(&self, how: Ending) {
        // The sender belongs to this client.
        let _ = self.ending.subscribe().wait_for(|ending| *ending >= how).await;
    }

    /// Resolves after a time without requests: `first` before the first request, `later` after it.
    pub(crate) async fn idle(&self, first: Duration, later: Duration) {
        loop {
            let before = self.changes.load(Ordering::SeqCst);
            tokio::time::sleep(if before == 0 { first } else { later }).await;
            if self.in_flight.load(Ordering::SeqCst) == 0 && self.changes.load(Ordering::SeqCst) == before {
                return;
            }
        }
    }

    fn base(&self) -> MutexGuard<'_, Option<Charge>> {
        self.base.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports whether the connection has presented no credentials and sends requests too often.
    fn asks_too_often(&self) -> bool {
        !self.is_known.load(Ordering::Relaxed) && self.pace.is_used_up(Instant::now())
    }

    /// Reports whether the connection can end unnoticed: it has had time for a request, and none is in flight.
    fn is_idle(&self) -> bool {
        self.in_flight.load(Ordering::SeqCst) == 0 && self.opened.elapsed() >= GRACE
    }
}

/// A request, until its answer has been sent.
#[derive(Debug)]
pub(crate) struct UnderWay(Arc<Client>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.changes.fetch_add(1, Ordering::SeqCst);
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

/// One of the few streams for requests without valid credentials.
#[derive(Debug)]
pub(crate) struct AnonymousStream(Arc<Client>);

impl Drop for AnonymousStream {
    fn drop(&mut self) {
        self.0.anonymous_streams.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Connections grouped by address or by user.
#[derive(Debug)]
struct Groups<K> {
    members: BTreeMap<K, BTreeSet<u64>>,
    sizes: BTreeSet<(usize, K)>,
    count: usize,
}

impl<K> Default for Groups<K> {
    fn default() -> Self {
        Self { members: BTreeMap::new(), sizes: BTreeSet::new(), count: 0 }
    }
}

impl<K: Ord + Clone> Groups<K> {
    fn insert(&mut self, key: &K, number: u64) {
        self.change(key, |members| members.insert(number));
    }

    fn remove(&mut self, key: &K, number: u64) {
        self.change(key, |members| members.remove(&number));
    }

    fn change(&mut self, key: &K, change: impl FnOnce(&mut BTreeSet<u64>) -> bool) {
        let members = self.members.entry(key.clone()).or_default();
        let before = members.len();
        change(members);
        let after = members.len();
        if after == 0 {
            self.members.remove(key);
        }
        self.count = self.count + after - before;
        self.sizes.remove(&(before, key.clone()));
        if after > 0 {
            self.sizes.insert((after, key.clone()));
        }
    }

    /// Members of the largest group, the oldest first.
    fn largest(&self) -> impl Iterator<Item = u64> {
        let largest = self.sizes.last().and_then(|(_, key)| self.members.get(key));
        largest.into_iter().flatten().take(COMPARED).copied()
    }
}

/// Open connections.
#[derive(Debug, Default)]
struct Register {
    last: u64,
    open: BTreeMap<u64, Arc<Client>>,
    anonymous: Groups<IpAddr>,
    /// Grouped by the first authenticated user.
    authenticated: Groups<Arc<str>>,
    users: BTreeMap<u64, Arc<str>>,
    /// Connections that were cut off and are still open.
    expelled: BTreeSet<u64>,
    shed_at: Option<Instant>,
}

impl Register {
    /// Chooses a connection of the largest group: a silenced one, one that sends requests too often, the oldest idle one, or else
    /// the oldest.
    fn victim<K: Ord + Clone>(&self, groups: &Groups<K>) -> Option<Arc<Client>> {
        let candidates: Vec<&Arc<Client>> =
            groups.largest().filter_map(|number| self.open.get(&number)).collect();
        let first = [Client::is_silenced, Client::asks_too_often, Client::is_idle]
            .into_iter()
            .find_map(|is_first: fn(&Client) -> bool| candidates.iter().find(|client| is_first(client)));
        first.or(candidates.first()).map(|client| Arc::clone(client))
    }

    /// Cuts a connection off. Its place is free immediately, and it is not chosen again.
    fn expel(&mut self, client: &Client) {
        self.leave(client);
        self.expelled.insert(client.number);
        client.end(Ending::AtOnce);
    }

    fn leave(&mut self, client: &Client) {
        self.anonymous.remove(&client.address, client.number);
        if let Some(user) = self.users.remove(&client.number) {
            self.authenticated.remove(&user, client.number);
        }
    }

    fn staying(&self) -> usize {
        self.open.len() - self.expelled.len()
    }
}

/// All connections.
#[derive(Debug)]
pub(crate) struct Clients {
    limits: Limits,
    account: Arc<Account>,
    losses: LossMetrics,
    doors: Doors,
    register: Mutex<Register>,
    left: Notify,
}

impl Clients {
    /// Creates a register without connections.
    pub(crate) fn new(limits: Limits, account: Arc<Account>, losses: LossMetrics) -> Arc<Self> {
        let (doors, register, left) = (Doors::new(), Mutex::default(), Notify::new());
        Arc::new(Self { limits, account, losses, doors, register, left })
    }

    /// Returns the admission by address.
    pub(crate) fn doors(&self) -> &Doors {
        &self.doors
    }

    /// Returns the account of the memory held for them.
    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    fn register(&self) -> MutexGuard<'_, Register> {
        self.register.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until expelled connections have returned enough file descriptors to accept another.
    pub(crate) async fn room(&self) {
        loop {
            let left = self.left.notified();
            if self.register().open.len() < self.limits.total + MAXIMUM_ENDING {
                return;
            }
            left.await;
        }
    }

    /// Admits a connection. If the limit is reached, a connection without credentials ends in its favour: one of the address with
    /// the most, preferably an idle one. Returns `None` if no place can be freed in this way, or the address connects too often.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<AdmittedConnection> {
        let address = address.to_canonical();
        if !self.doors.may_enter(address) {
            self.losses.connection("rate");
            return None;
        }
        let mut register = self.register();
        let held = Arc::default();
        let base = loop {
            let is_short =
                register.anonymous.count >= self.limits.anonymous || register.staying() >= self.limits.total;
            if !is_short
                && let Ok(base) = self.account.charge(ClientStanding::Anonymous, &held, CONNECTION_BYTES)
            {
                break base;
            }
            let Some(victim) = register.victim(&register.anonymous) else {
                drop(register);
                self.losses.connection("places");
                return None;
            };
            register.expel(&victim);
            // Its own charge is returned here; memory that its streams hold is returned when they end.
            victim.base().take();
            self.losses.connection("places");
        };
        register.last += 1;
        let client = Arc::new(Client {
            number: register.last,
            address,
            opened: Instant::now(),
            clients: Arc::clone(self),
            standing: AtomicU8::new(0),
            is_known: AtomicBool::new(false),
            pace: Pace::default(),
            held,
            base: Mutex::new(Some(base)),
            anonymous_streams: AtomicUsize::new(0),
            refusals: AtomicUsize::new(0),
            denials: AtomicUsize::new(0),
            in_flight: AtomicUsize::new(0),
            changes: AtomicU64::new(0),
            ending: watch::Sender::default(),
        });
        register.anonymous.insert(&client.address, client.number);
        register.open.insert(client.number, Arc::clone(&client));
        Some(AdmittedConnection(client))
    }

    /// Moves a connection to a higher standing. If users have too many, a connection of the user with the most is ended.
    fn promote(&self, client: &Arc<Client>, user: &str, standing: ClientStanding) {
        let mut register = self.register();
        if client.standing() >= standing || register.expelled.contains(&client.number) {
            return;
        }
        client.standing.store(standing as u8, Ordering::Relaxed);
        self.doors.prove(client.address);
        register.leave(client);
        if standing < ClientStanding::Privileged {
            let user: Arc<str> = user.into();
            register.authenticated.insert(&user, client.number);
            register.users.insert(client.number, user);
            if register.authenticated.count > self.limits.authenticated
                && let Some(victim) = register.victim(&register.authenticated)
            {
                register.expel(&victim);
                self.losses.connection("places");
            }
        }
        // The charge moves to the share of the new standing, if there is room.
        let mut base = client.base();
        if let Ok(charge) = self.account.charge(standing, &client.held, CONNECTION_BYTES) {
            *base = Some(charge);
        }
    }

    /// Ends the connection that holds the most memory, among those of the lowest standing that holds any, up to `standing`.
    /// Administrators' connections stay.
    fn shed(&self, standing: ClientStanding) {
        let mut register = self.register();
        if register.shed_at.is_some_and(|at| at.elapsed() < SHEDDING_PERIOD) {
            return;
        }
        register.shed_at = Some(Instant::now());
        let highest = standing.min(ClientStanding::Authenticated);
        let heaviest = register
            .open
            .values()
            .filter(|client| client.standing() <= highest && !register.expelled.contains(&client.number))
            .map(|client| (client.held.load(Ordering::Relaxed), client))
            .filter(|(held, _)| *held > CONNECTION_BYTES)
            .max_by_key(|(held, client)| (std::cmp::Reverse(client.standing()), *held))
            .map(|(_, client)| Arc::clone(client));
        if let Some(client) = heaviest {
            tracing::debug!(address = %client.address, "a connection ends: it holds most, and memory is short");
            register.expel(&client);
            self.losses.connection("memory");
        }
    }

    fn forget(&self, client: &Client) {
        let mut register = self.register();
        register.leave(client);
        register.expelled.remove(&client.number);
        register.open.remove(&client.number);
        drop(register);
        self.left.notify_waiters();
    }
}

/// An admitted connection; its place is freed when this is dropped.
#[derive(Debug)]
pub(crate) struct AdmittedConnection(Arc<Client>);

impl AdmittedConnection {
    /// Returns the connection.
    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.0
    }
}

impl Drop for AdmittedConnection {
    fn drop(&mut self) {
        self.0.base().take();
        self.0.clients.forget(&self.0);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
pub(crate) mod tests {
    use super::*;
    use crate::transport::account::MemoryBudget;

    fn clients(limits: Limits, budget: u64) -> Arc<Clients> {
        Clients::new(limits, Account::new(MemoryBudget::of_bytes(budget)), LossMetrics::default())
    }

    /// Returns a single connection with room for everything.
    pub(crate) fn lone_client() -> AdmittedConnection {
        clients(Limits::of_files(None), 1 << 30).admit(address("10.0.0.1")).unwrap()
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn is_cut_off(admitted: &AdmittedConnection) -> bool {
        *admitted.client().ending.borrow() >= Ending::Silenced
    }

    #[test]
    fn those_without_credentials_make_room_for_one_another() {
        let clients = clients(Limits { total: 4, anonymous: 3, authenticated: 3 }, 1 << 30);
        let admit = |text| clients.admit(address(text)).unwrap();
        let flood = [admit("10.0.0.2"), admit("10.0.0.2"), admit("::ffff:10.0.0.2")];
        let other = admit("10.0.0.1");
        assert_eq!(flood.each_ref().map(is_cut_off), [true, false, false], "the oldest of the largest group");
        assert!(!is_cut_off(&other));
        other.client().authenticated("jane", ClientStanding::Authenticated);
        let third = admit("10.0.0.3");
        let fourth = admit("10.0.0.4");
        assert_eq!(flood.each_ref().map(is_cut_off), [true, true, false]);
        assert!(![&other, &third, &fourth].into_iter().any(is_cut_off), "credentials keep a place");
        drop((flood, third, fourth));
        assert_eq!(clients.register().open.len(), 1);
        drop(other);
        let register = clients.register();
        assert!(register.users.is_empty() && register.anonymous.sizes.is_empty());
        assert!(register.authenticated.sizes.is_empty() && register.expelled.is_empty());
        assert_eq!(
            clients.account.held(ClientStanding::Anonymous)
                + clients.account.held(ClientStanding::Authenticated),
            0
        );
    }

    /// Silenced connections cost a file descriptor, and only as long as nothing else needs it.
    #[test]
    fn silenced_connections_go_first() {
        let clients = clients(Limits { total: 4, anonymous: 3, authenticated: 3 }, 1 << 30);
        let admit = || clients.admit(address("10.0.0.1")).unwrap();
        let held = [admit(), admit(), admit()];
        held[1].client().silence();
        held[1].client().release();
        assert!(held[1].client().is_silenced());
        let held_bytes = clients.account.held(ClientStanding::Anonymous);
        assert_eq!(held_bytes, 2 * CONNECTION_BYTES);
        let _fourth = admit();
        let endings = held.each_ref().map(|one| *one.client().ending.borrow());
        assert_eq!(endings, [Ending::NotAsked, Ending::AtOnce, Ending::NotAsked]);
        let administrator = clients.admit(address("10.0.0.2")).unwrap();
        administrator.client().authenticated("root", ClientStanding::Privileged);
        administrator.client().silence();
        assert!(!administrator.client().is_silenced() && is_cut_off(&administrator));
    }

    /// A health probe that keeps its connection must not be ended because of a flood beside it.
    #[tokio::test]
    async fn connections_that_ask_too_often_go_before_idle_ones() {
        let clients = clients(Limits { total: 4, anonymous: 3, authenticated: 3 }, 1 << 30);
        let admit = || clients.admit(address("10.0.0.1")).unwrap();
        let [probe, flood, trusted] = [admit(), admit(), admit()];
        for one in [&flood, &trusted] {
            for _ in 0..1_000 {
                one.client().pace.count(Instant::now());
            }
        }
        let waiting = tokio::time::timeout(Duration::from_millis(1), flood.client().turn());
        assert!(waiting.await.is_err(), "a further answer waits");
        assert!(probe.client().turn().await.is_some());
        trusted.client().trusted();
        assert!(trusted.client().asks_too_often(), "a standing is no credential");
        let _more = [admit(), admit()];
        assert_eq!([&probe, &flood, &trusted].map(is_cut_off), [false, true, false]);
        trusted.client().authenticated("jane", ClientStanding::Authenticated);
        assert!(!trusted.client().asks_too_often());
        assert!(trusted.client().turn().await.is_none(), "users need no turn");
    }

    #[test]
    fn users_leave_places_to_administrators() {
        let clients = clients(Limits { total: 4, anonymous: 3, authenticated: 2 }, 1 << 30);
        let admit = |user, standing| {
            let admitted = clients.admit(address("10.0.0.1")).unwrap();
            admitted.client().authenticated(user, standing);
            admitted
        };
        let root = admit("root", ClientStanding::Privileged);
        let eve = [admit("eve", ClientStanding::Authenticated), admit("eve", ClientStanding::Authenticated)];
        let bob = admit("bob", ClientStanding::Authenticated);
        assert_eq!(eve.each_ref().map(is_cut_off), [true, false], "one of the user who has most");
        let second = admit("root", ClientStanding::Privileged);
        assert!(![&root, &bob, &second].into_iter().any(is_cut_off));
        assert!(clients.admit(address("10.0.0.1")).is_none(), "everybody has shown credentials");
    }

    #[test]
    fn whoever_holds_most_ends_first_and_the_anonymous_before_others() {
        let clients = clients(Limits::of_files(None), 80 << 20);
        let admit = || clients.admit(address("10.0.0.1")).unwrap();
        let (small, large, user) = (admit(), admit(), admit());
        user.client().authenticated("jane", ClientStanding::Authenticated);
        let mut charges = vec![
            small.client().charge(1 << 20).unwrap(),
            large.client().charge(8 << 20).unwrap(),
            user.client().charge(40 << 20).unwrap(),
        ];
        assert!(small.client().charge(4 << 20).is_err(), "an eighth is for those without credentials");
        assert_eq!([&small, &large, &user].map(is_cut_off), [false, true, false]);
        drop(charges.remove(1));
        charges.push(small.client().charge(4 << 20).unwrap());
        std::thread::sleep(SHEDDING_PERIOD);
        assert!(user.client().charge(40 << 20).is_err());
        assert_eq!([&small, &user].map(is_cut_off), [true, false]);
    }

    #[test]
    fn few_streams_of_a_connection_are_anonymous() {
        let admitted = lone_client();
        let mut streams: Vec<_> =
            (0..ANONYMOUS_STREAMS).map(|_| admitted.client().anonymous_stream().unwrap()).collect();
        assert!(admitted.client().anonymous_stream().is_none());
        streams.pop();
        streams.extend(admitted.client().anonymous_stream());
        assert_eq!(streams.len(), ANONYMOUS_STREAMS);
        for _ in 1..MAXIMUM_REFUSALS {
            assert!(admitted.client().anonymous_stream().is_none() && !is_cut_off(&admitted));
        }
        assert!(admitted.client().anonymous_stream().is_none() && is_cut_off(&admitted));
    }

    #[test]
    fn credentials_that_are_no_good_are_few() {
        let (admitted, user) = (lone_client(), lone_client());
        user.client().authenticated("jane", ClientStanding::Authenticated);
        for _ in 1..MAXIMUM_DENIALS {
            admitted.client().denied();
            assert!(!is_cut_off(&admitted));
        }
        (0..2 * MAXIMUM_DENIALS).for_each(|_| user.client().denied());
        assert!(!is_cut_off(&user), "a connection that several use");
        admitted.client().denied();
        assert!(admitted.client().is_silenced());
    }

    #[tokio::test]
    async fn a_request_keeps_a_connection() {
        const SHORT: Duration = Duration::from_millis(20);
        let admitted = lone_client();
        let under_way = admitted.client().begin();
        let idle = admitted.client().idle(SHORT, SHORT);
        tokio::pin!(idle);
        assert!(tokio::time::timeout(Duration::from_millis(100), idle.as_mut()).await.is_err());
        drop(under_way);
        idle.await;
    }

    #[test]
    fn files_are_kept_in_reserve() {
        let table = [(None, 30_000), (Some(1024), 896), (Some(64), 32), (Some(1_000_000), 30_000)];
        for (files, total) in table {
            let part = total * 3 / 4;
            assert_eq!(
                Limits::of_files(files),
                Limits { total, anonymous: part, authenticated: part },
                "{files:?}"
            );
        }
    }
}
