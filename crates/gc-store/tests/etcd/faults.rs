//! Faults of three members under load, with a check of the history. CI runs one round of each. To run each for an hour:
//! `KUBEGC_FAULT_SECONDS=3600 cargo test -p gc-store --test etcd faults:: -- --nocapture --test-threads 1`.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gc_store::{EtcdOptions, EtcdStorage};
use gc_store_api::{Change, Committed, RangeOptions, Revision, Storage, StorageError, WatchStream, Write};

use crate::authority::certificates;
use crate::history::{Figures, History, Outcome};
use crate::path::Path;
use crate::process::{EtcdServer, START};
use crate::server::patient;
use crate::suite::{delete, next_change, put, when};

const CLIENTS: usize = 4;
const KEYS: u64 = 6;
/// Number of operations that must complete between two steps of a fault.
const STEP: usize = 40;
/// Quota of a database that fills up, in bytes.
const SMALL_QUOTA: &str = "2097152";
/// Number of bytes that one write of a filler adds.
const FILLER: usize = 200 << 10;

pub(crate) struct Cluster {
    pub(crate) members: Vec<EtcdServer>,
    paths: Vec<Path>,
    options: EtcdOptions,
    endpoints: Vec<String>,
}

impl Cluster {
    pub(crate) fn new(members: Vec<EtcdServer>, options: EtcdOptions) -> Self {
        let paths: Vec<Path> = members.iter().map(|member| Path::to(member.port())).collect();
        let scheme = if options.tls.is_some() { "https" } else { "http" };
        let endpoints = paths.iter().map(|path| format!("{scheme}://127.0.0.1:{}", path.port())).collect();
        Self { members, paths, options, endpoints }
    }

    fn start() -> Option<Self> {
        Some(Self::new(EtcdServer::start_cluster(3)?, patient()))
    }

    fn connect(&self) -> EtcdStorage {
        let deadline = Instant::now() + START;
        loop {
            match EtcdStorage::connect(&self.endpoints, &self.options) {
                Ok(store) => return store,
                Err(error) => assert!(Instant::now() < deadline, "etcd does not answer: {error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Begins or ends a fault of one member.
pub(crate) type Fault = fn(&mut Cluster, usize, bool);

/// A source of numbers that need not be of high quality.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A client that reads, lists, and replaces, deletes or creates what it has read.
struct Client<'a> {
    store: &'a EtcdStorage,
    history: &'a History,
    numbers: Numbers,
    /// Number of the next value, shared by all clients.
    values: &'a AtomicU64,
}

impl Client<'_> {
    fn step(&mut self) {
        let key = format!("/h/{}", self.numbers.below(KEYS));
        match self.numbers.below(10) {
            0 => self.list(),
            1..=2 => drop(self.read(&key)),
            choice => {
                let Some(guard) = self.read(&key) else { return };
                let is_deletion = choice <= 5 && guard > Revision(0);
                let number = self.values.fetch_add(1, Ordering::Relaxed);
                self.write(&key, (!is_deletion).then(|| number.to_string()), guard);
            }
        }
    }

    fn list(&self) {
        self.history.record(|| match self.store.range("/h/", &RangeOptions::default()) {
            Ok(answer) => Outcome::Listed { items: answer.items, revision: answer.revision },
            Err(error) => Outcome::Unread(error),
        });
    }

    /// Reads a key, and returns the revision of its last write; 0 if it is absent.
    fn read(&self, key: &str) -> Option<Revision> {
        let mut guard = None;
        self.history.record(|| match self.store.get(key, None) {
            Ok(answer) => {
                guard = Some(answer.item.as_ref().map_or(Revision(0), |item| item.mod_revision));
                Outcome::Read { key: key.to_owned(), found: answer.item, revision: answer.revision }
            }
            Err(error) => Outcome::Unread(error),
        });
        guard
    }

    fn write(&self, key: &str, value: Option<String>, guard: Revision) {
        let write = value.as_deref().map_or_else(|| delete(key), |value| put(key, value));
        self.history.record(|| {
            let key = key.to_owned();
            match self.store.commit(when(&[(&key, guard.0)], vec![write])) {
                Ok(Committed::Done(revision)) => Outcome::Written { key, value, guard, revision },
                Ok(Committed::Conflict(mut present)) => {
                    Outcome::Refused { key, guard, present: present.pop().flatten() }
                }
                Err(error) => Outcome::Unknown { key, value, error },
            }
        });
    }
}

/// Runs clients while `faults` performs its steps; its argument waits until the clients have completed more operations.
fn load(store: &EtcdStorage, history: &History, values: &AtomicU64, faults: impl FnOnce(&dyn Fn())) {
    let is_over = AtomicBool::new(false);
    let ended = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let numbers = Numbers(2026 + number as u64);
            let mut client = Client { store, history, numbers, values };
            let (is_over, ended) = (&is_over, &ended);
            scope.spawn(move || {
                let _ended = Count(ended);
                while !is_over.load(Ordering::SeqCst) {
                    client.step();
                }
            });
        }
        let _over = Over(&is_over);
        faults(&|| {
            let before = history.len();
            while history.len() < before + STEP {
                assert_eq!(ended.load(Ordering::SeqCst), 0, "a client has failed");
                std::thread::sleep(Duration::from_millis(2));
            }
        });
    });
}

/// Ends the clients, even if the faults panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

struct Count<'a>(&'a AtomicUsize);

impl Drop for Count<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Key that is written last.
const END: &str = "/h/end";

/// Collects the items of a watch up to the last write, so that the watch does not lag.
fn collect(mut watch: Box<dyn WatchStream>) -> JoinHandle<Vec<Change>> {
    std::thread::spawn(move || {
        let mut changes = Vec::new();
        loop {
            let change = next_change(&mut *watch);
            if &*change.key == END {
                return changes;
            }
            changes.push(change);
        }
    })
}

/// Writes the last key, and returns all changes before it. Nothing may be written after it: a late attempt is refused.
fn delivered(store: &EtcdStorage, collecting: JoinHandle<Vec<Change>>) -> Vec<Change> {
    let ended = store.commit(when(&[], vec![put(END, "end")])).unwrap();
    assert!(matches!(ended, Committed::Done(_)), "{ended:?}");
    collecting.join().unwrap()
}

/// Returns the time for which a test's faults are repeated; without the environment variable, one round.
fn duration() -> Duration {
    let seconds = std::env::var("KUBEGC_FAULT_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or_default())
}

/// Subjects each member to the fault in turn, and lets it recover. At most one operation in a thousand may fail.
pub(crate) fn suffer(name: &str, mut cluster: Cluster, fault: Fault) {
    let store = cluster.connect();
    let collecting = collect(store.watch("/h/", store.revision().unwrap()).unwrap());
    let (history, values) = (History::default(), AtomicU64::new(0));
    load(&store, &history, &values, |wait| {
        let end = Instant::now() + duration();
        loop {
            for member in 0..3 {
                fault(&mut cluster, member, true);
                wait();
                fault(&mut cluster, member, false);
                wait();
            }
            if Instant::now() >= end {
                break;
            }
        }
    });
    report(name, &history.check(&delivered(&store, collecting)));
}

fn report(name: &str, figures: &Figures) {
    let Figures { operations, writes, failures, slowest } = figures;
    let failed = failures.len();
    println!("{name}: {operations} operations, {writes} writes, {failed} failures, slowest {slowest:?}");
    assert!(*writes > STEP / 4, "{figures:?}");
    assert!(failed * 1000 <= *operations, "{figures:?}");
}

#[test]
fn a_killed_member() {
    let Some(cluster) = Cluster::start() else { return };
    suffer("killed", cluster, |cluster, member, is_on| {
        let member = &mut cluster.members[member];
        if is_on { member.kill() } else { member.restart() }
    });
}

#[test]
fn a_stopped_member() {
    let Some(cluster) = Cluster::start() else { return };
    suffer("stopped", cluster, |cluster, member, is_on| cluster.members[member].freeze(is_on));
}

#[test]
fn a_member_behind_a_network_that_loses_everything() {
    let Some(cluster) = Cluster::start() else { return };
    suffer("cut off", cluster, |cluster, member, is_on| cluster.paths[member].cut(is_on));
}

/// Each answer takes as long as on a member whose disk needs half a second per sync.
#[test]
fn a_slow_member() {
    let Some(cluster) = Cluster::start() else { return };
    suffer("slow", cluster, |cluster, member, is_on| {
        cluster.paths[member].slow_down(Duration::from_millis(if is_on { 500 } else { 0 }));
    });
}

#[test]
fn a_killed_member_of_a_cluster_with_tls() {
    let folder = tempfile::tempdir().unwrap();
    let (files, tls) = certificates(folder.path());
    let Some(members) = EtcdServer::start_cluster_with(3, Some(&files), &[]) else { return };
    let cluster = Cluster::new(members, EtcdOptions { tls: Some(tls), ..patient() });
    suffer("killed, with TLS", cluster, |cluster, member, is_on| {
        let member = &mut cluster.members[member];
        if is_on { member.kill() } else { member.restart() }
    });
}

/// Sends a request to etcd's gateway, through which an operator compacts, defragments and disarms the alarm.
fn operate(member: &EtcdServer, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", member.port())).unwrap();
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    answer
}

/// A full database refuses writes that enlarge it, with a matching error. Everything else works, even in a process that starts
/// then; after an operator has made room, everything works again.
#[test]
fn a_full_database() {
    let Some(members) = EtcdServer::start_cluster_with(3, None, &["--quota-backend-bytes", SMALL_QUOTA])
    else {
        return;
    };
    let cluster = Cluster::new(members, patient());
    let store = cluster.connect();
    let collecting = collect(store.watch("/h/", store.revision().unwrap()).unwrap());
    let (history, values) = (History::default(), AtomicU64::new(0));
    load(&store, &history, &values, |wait| wait());
    let filler: Arc<str> = "/filler".into();
    let fill = || {
        let write = Write::Put(Arc::clone(&filler), vec![b'x'; FILLER].into());
        store.commit(when(&[], vec![write]))
    };
    let refused = (0..100).find_map(|_| fill().err());
    assert_eq!(refused, Some(StorageError::Full));
    let late = cluster.connect();
    for store in [&store, &late] {
        let all = store.range("/h/", &RangeOptions::default()).unwrap();
        assert!(!all.items.is_empty());
        assert_eq!(store.commit(when(&[], vec![put("/h/refused", "1")])), Err(StorageError::Full));
    }
    // Changes that are compacted before a watch has delivered them end the watch.
    let mut removal = store.watch(&filler, store.revision().unwrap()).unwrap();
    let removed = late.commit(when(&[], vec![delete(&filler)])).unwrap();
    assert!(matches!(removed, Committed::Done(_)), "{removed:?}");
    assert_eq!(next_change(&mut *removal).value, None);
    let newest = store.revision().unwrap();
    operate(
        &cluster.members[0],
        "/v3/kv/compaction",
        &format!("{{\"revision\":\"{newest}\",\"physical\":true}}"),
    );
    for member in &cluster.members {
        operate(member, "/v3/maintenance/defragment", "{}");
    }
    let alarm = |body: &str| operate(&cluster.members[0], "/v3/maintenance/alarm", body);
    for raised in alarm("{\"action\":\"GET\"}").split("\"memberID\":\"").skip(1) {
        let member = raised.split('"').next().unwrap();
        alarm(&format!("{{\"action\":\"DEACTIVATE\",\"memberID\":\"{member}\",\"alarm\":\"NOSPACE\"}}"));
    }
    let deadline = Instant::now() + START;
    while let Err(error) = store.commit(when(&[], vec![put("/again", "1")])) {
        assert!(Instant::now() < deadline, "{error}");
        std::thread::sleep(Duration::from_millis(20));
    }
    load(&store, &history, &values, |wait| wait());
    report("full", &history.check(&delivered(&store, collecting)));
}
