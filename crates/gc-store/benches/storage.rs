//! Measures how fast the stores are, and the cost of a key: `cargo bench -p gc-store [-- memory|redb|etcd|large]`.
//!
//! `large` is a data file larger than the memory for values: `LARGE_BENCH_OBJECTS` (default 1000000) of `LARGE_BENCH_BYTES` (1000), with
//! `LARGE_BENCH_MEMORY` bytes for values (268435456), in a folder of `TMPDIR`.
//!
//! Measures threads and rates, which determine a server's performance, rather than the duration of single calls. etcd must be on
//! the path; it is started on loopback.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss)] // a benchmark that fails should say so; rates are rough

#[allow(dead_code, unreachable_pub, missing_docs, reason = "shared with the tests")]
#[path = "../tests/support/etcd.rs"]
mod process;

use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use gc_store::{EtcdOptions, EtcdStorage, MemoryOptions, MemoryStorage, RedbOptions, RedbStorage};
use gc_store_api::{
    Committed, Condition, Key, KeyValue, RangeOptions, Revision, Storage, Transaction, WatchItem,
    WatchStream, Write,
};
use process::{EtcdServer, START};

/// Size of a value: that of a small object.
const VALUE: usize = 400;
/// Duration of each measurement.
const SPAN: Duration = Duration::from_secs(2);
const KEYS: usize = 100_000;

fn key(n: usize) -> Key {
    format!("/configmaps/namespace-{:02}/configmap-{n:06}", n % 100).into()
}

fn put(n: usize, fill: u8) -> Write {
    Write::Put(key(n), vec![fill; VALUE].into())
}

fn rate(count: usize, elapsed: Duration) -> String {
    format!("{:>9.0}/s", count as f64 / elapsed.as_secs_f64())
}

/// Runs an action on several threads for a while.
fn measure(threads: usize, action: impl Fn(usize) + Sync) -> String {
    let next = AtomicUsize::new(0);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while begin.elapsed() < SPAN {
                    action(next.fetch_add(1, Ordering::Relaxed));
                }
            });
        }
    });
    rate(next.into_inner(), begin.elapsed())
}

/// Returns the anonymous memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

fn fill(store: &dyn Storage) -> Duration {
    let begin = Instant::now();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(100, Ordering::Relaxed);
                    if n >= KEYS {
                        break;
                    }
                    let writes = (n..n + 100).map(|n| put(n, b'a')).collect();
                    store.commit(Transaction { conditions: vec![], writes }).unwrap();
                }
            });
        }
    });
    begin.elapsed()
}

fn drain(stream: &mut dyn WatchStream, last: Revision) -> usize {
    let mut changes = 0;
    loop {
        match stream.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(WatchItem::Change(change))) => {
                changes += 1;
                if change.revision >= last {
                    return changes;
                }
            }
            Poll::Ready(Ok(WatchItem::Progress(_))) | Poll::Pending => std::thread::yield_now(),
            Poll::Ready(Err(error)) => panic!("{error}"),
        }
    }
}

fn bench(name: &str, store: &dyn Storage) {
    println!("{name}");
    let before = resident();
    let elapsed = fill(store);
    println!("  fill {KEYS} keys, 100 per transaction     {}", rate(KEYS, elapsed));
    let per_key = (resident() - before) / KEYS;
    println!("  memory per key of {} + {VALUE} bytes          {per_key:>9} bytes", key(0).len());
    for threads in [1, 16, 64] {
        let puts = measure(threads, |n| {
            store.commit(Transaction { conditions: vec![], writes: vec![put(n % KEYS, b'b')] }).unwrap();
        });
        println!("  put, {threads:>2} threads                          {puts}");
    }
    let compare = measure(16, |n| {
        let found = store.get(&key(n % KEYS), None).unwrap().item.unwrap();
        let condition = Condition { key: found.key, mod_revision: found.mod_revision };
        let answer = store
            .commit(Transaction { conditions: vec![condition], writes: vec![put(n % KEYS, b'c')] })
            .unwrap();
        assert!(matches!(answer, Committed::Done(_) | Committed::Conflict(_)));
    });
    println!("  get, compare and set, 16 threads          {compare}");
    for threads in [1, 16] {
        let gets = measure(threads, |n| drop(store.get(&key(n % KEYS), None).unwrap()));
        println!("  get, {threads:>2} threads                          {gets}");
    }
    let begin = Instant::now();
    assert_eq!(store.range("/configmaps/", &RangeOptions::default()).unwrap().items.len(), KEYS);
    println!("  range of {KEYS} keys                     {:>9.1} ms", begin.elapsed().as_secs_f64() * 1e3);
    let begin = Instant::now();
    let page = RangeOptions { limit: 500, ..RangeOptions::default() };
    assert_eq!(store.range("/configmaps/", &page).unwrap().remaining, (KEYS - 500) as u64);
    println!("  first 500 of them, the rest counted       {:>9.1} ms", begin.elapsed().as_secs_f64() * 1e3);
    let begin = Instant::now();
    assert_eq!(read_in_pages(store), KEYS);
    println!("  all of them in pages of 500               {:>9.1} ms", begin.elapsed().as_secs_f64() * 1e3);
    watches(store);
}

/// Reads all objects in pages of 500, and returns their number.
fn read_in_pages(store: &dyn Storage) -> usize {
    let (mut read, mut page) = (0, RangeOptions { limit: 500, skips_count: true, ..RangeOptions::default() });
    loop {
        let found = store.range("/configmaps/", &page).unwrap();
        read += found.items.len();
        page.after = found.items.last().map(|item| item.key.clone());
        if !found.more {
            return read;
        }
    }
}

fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Time in which the data file may become smaller after deletions.
const SHRINKING: Duration = Duration::from_mins(2);

/// Measures a store that is larger than its memory.
fn large(path: &Path) {
    let (objects, bytes) = (setting("LARGE_BENCH_OBJECTS", 1_000_000), setting("LARGE_BENCH_BYTES", 1000));
    let value_memory = setting("LARGE_BENCH_MEMORY", 256 << 20) as u64;
    let options = RedbOptions { value_memory, ..RedbOptions::default() };
    println!("large: {objects} objects of {bytes} bytes, {} MiB of them in memory", value_memory >> 20);
    let revision = Revision(2);
    let all = (0..objects).map(|n| {
        let (key, value) = (key(n), vec![b'a'; bytes].into());
        Ok::<_, std::fmt::Error>(KeyValue { key, value, create_revision: revision, mod_revision: revision })
    });
    let begin = Instant::now();
    RedbStorage::restore(path, revision, all).unwrap();
    let file = || path.join("kubegc.redb").metadata().unwrap().len() >> 20;
    println!("  restored                                  {:>9.1} s, file {} MiB", seconds(begin), file());
    let before = resident();
    let begin = Instant::now();
    let store = RedbStorage::open(path, options).unwrap();
    let (opened, memory) = (seconds(begin), resident() - before);
    println!("  opened                                    {opened:>9.1} s, {} MiB resident", memory >> 20);
    let in_memory = store.status().unwrap().value_bytes_in_memory.unwrap();
    println!(
        "  memory per key of {} beyond its value      {:>9.0} bytes",
        key(0).len(),
        (memory as f64 - in_memory as f64) / objects as f64
    );
    let begin = Instant::now();
    drop(store);
    println!("  closed with its index                     {:>9.1} s, file {} MiB", seconds(begin), file());
    let begin = Instant::now();
    let store = RedbStorage::open(path, options).unwrap();
    let (opened, memory) = (seconds(begin), resident().saturating_sub(before));
    println!("  opened with the index                     {opened:>9.1} s, {} MiB resident", memory >> 20);
    let scattered = |n: usize| key(n.wrapping_mul(0x9e37_79b9) % objects);
    for threads in [1, 16] {
        let gets = measure(threads, |n| assert!(store.get(&scattered(n), None).unwrap().item.is_some()));
        println!("  get, {threads:>2} threads                          {gets}");
    }
    let begin = Instant::now();
    assert_eq!(read_in_pages(&store), objects);
    println!("  all of them in pages of 500               {}", rate(objects, begin.elapsed()));
    for threads in [1, 64] {
        let puts = measure(threads, |n| {
            let (key, value) = (scattered(n), vec![b'b'; bytes].into());
            store.commit(Transaction { conditions: vec![], writes: vec![Write::Put(key, value)] }).unwrap();
        });
        println!("  put, {threads:>2} threads                          {puts}");
    }
    println!(
        "  resident                                  {:>9} MiB",
        resident().saturating_sub(before) >> 20
    );
    let (begin, full) = (Instant::now(), file());
    for n in (0..objects / 2).step_by(500) {
        let writes = (n..n + 500).map(|n| Write::Delete(key(2 * n))).collect();
        store.commit(Transaction { conditions: vec![], writes }).unwrap();
    }
    println!("  half of them deleted                      {}", rate(objects / 2, begin.elapsed()));
    let begin = Instant::now();
    while file() * 4 > full * 3 && begin.elapsed() < SHRINKING {
        // The committer checks the file after a write.
        store.commit(Transaction { conditions: vec![], writes: vec![put(0, b'c')] }).unwrap();
    }
    println!("  file of {full} MiB after another {:>5.1} s         {:>9} MiB", seconds(begin), file());
    println!(
        "  resident                                  {:>9} MiB",
        resident().saturating_sub(before) >> 20
    );
    // What a crash leaves: the file as it is while it is in use.
    let crashed = tempfile::TempDir::new().unwrap();
    std::fs::copy(path.join("kubegc.redb"), crashed.path().join("kubegc.redb")).unwrap();
    let begin = Instant::now();
    let recovered = RedbStorage::open(crashed.path(), options).unwrap();
    println!("  opened after a crash                      {:>9.1} s", seconds(begin));
    drop((recovered, crashed));
    let begin = Instant::now();
    drop(store);
    println!("  closed                                    {:>9.1} s, file {} MiB", seconds(begin), file());
    let begin = Instant::now();
    drop(RedbStorage::open(path, options).unwrap());
    println!("  opened and closed again                   {:>9.1} s", seconds(begin));
}

fn seconds(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64()
}

fn watches(store: &dyn Storage) {
    let base = store.revision().unwrap();
    let begin = Instant::now();
    let before = resident();
    let idle: Vec<_> = (0..10_000).map(|n| store.watch(&format!("/idle/{n}/"), base).unwrap()).collect();
    println!(
        "  10000 idle watches opened in {:>5.1} ms, each {:>9} bytes",
        begin.elapsed().as_secs_f64() * 1e3,
        resident().saturating_sub(before) / idle.len()
    );
    let begin = Instant::now();
    let writes = 2000;
    for n in 0..writes {
        store.commit(Transaction { conditions: vec![], writes: vec![put(n, b'd')] }).unwrap();
    }
    println!("  put, 1 thread, beside the idle watches    {}", rate(writes, begin.elapsed()));
    drop(idle);
    let mut streams: Vec<_> =
        (0..100).map(|_| store.watch("/configmaps/", store.revision().unwrap()).unwrap()).collect();
    let delivered = AtomicU64::new(0);
    let begin = Instant::now();
    let mut last = base;
    for n in 0..writes {
        match store.commit(Transaction { conditions: vec![], writes: vec![put(n, b'e')] }).unwrap() {
            Committed::Done(revision) => last = revision,
            Committed::Conflict(_) => unreachable!("there was no condition"),
        }
    }
    for stream in &mut streams {
        delivered.fetch_add(drain(&mut **stream, last) as u64, Ordering::Relaxed);
    }
    let count = usize::try_from(delivered.into_inner()).unwrap();
    assert_eq!(count, writes * streams.len());
    println!("  2000 puts to 100 watchers, delivered      {}", rate(count, begin.elapsed()));
}

fn etcd() -> Option<(EtcdServer, EtcdStorage)> {
    let server = EtcdServer::start()?;
    let deadline = Instant::now() + START;
    loop {
        match EtcdStorage::connect(&[server.endpoint()], &EtcdOptions::default()) {
            Ok(store) => return Some((server, store)),
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    }
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|word| word == name);
    let directory = tempfile::TempDir::new().unwrap();
    if is_wanted("memory") {
        bench("memory", &MemoryStorage::new(MemoryOptions::default()));
    }
    if is_wanted("redb") {
        let path = directory.path().join("redb");
        let begin = Instant::now();
        let store = RedbStorage::open(&path, RedbOptions::default()).unwrap();
        println!("redb: created and opened in {:.1} ms", begin.elapsed().as_secs_f64() * 1e3);
        bench("redb", &store);
        drop(store);
        let begin = Instant::now();
        let store = RedbStorage::open(&path, RedbOptions::default()).unwrap();
        let size = path.join("kubegc.redb").metadata().unwrap().len() >> 20;
        let items = store.range("", &RangeOptions::default()).unwrap().items.len();
        println!(
            "  reopened with {items} keys ({size} MiB) in {:.1} ms",
            begin.elapsed().as_secs_f64() * 1e3
        );
    }
    // Only on request: it takes gigabytes on the disk.
    if wanted.iter().any(|word| word == "large") {
        large(&directory.path().join("large"));
    }
    if is_wanted("etcd") {
        match etcd() {
            Some((_server, store)) => bench("etcd", &store),
            None => println!("etcd cannot be run; skipped"),
        }
    }
}
