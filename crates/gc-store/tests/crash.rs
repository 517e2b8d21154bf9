//! A writing process is killed repeatedly: no write that it acknowledged may ever be lost.
#![allow(clippy::unwrap_used)] // tests

mod suite;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gc_store::{HistoryOptions, RedbOptions, RedbStorage};
use gc_store_api::{RangeOptions, Revision, Storage, StorageError};
use suite::{next_change, put, write};
use tempfile::TempDir;

/// Environment variable with the directory of the child.
const DIRECTORY: &str = "KUBEGC_STORE_CRASH_DIRECTORY";
/// Environment variable with the size of values that the child holds in memory.
const VALUE_MEMORY: &str = "KUBEGC_STORE_CRASH_VALUE_MEMORY";
/// Number of directories, and of kills in each.
const DIRECTORIES: u64 = 10;
const KILLS: u64 = 25;
/// Concurrent threads of the child, each with its own keys.
const WRITERS: u64 = 4;
/// Large enough for two generations of a child, but smaller than the writes of several, so that compaction is interrupted, too.
const HISTORY: HistoryOptions = HistoryOptions { changes: 400, bytes: 1 << 20 };

fn open(directory: &Path, value_memory: u64) -> RedbStorage {
    // Values that the history has are in memory in any case.
    let history = if value_memory == 0 { HistoryOptions { changes: 40, ..HISTORY } } else { HISTORY };
    let options = RedbOptions { history, value_memory, ..RedbOptions::default() };
    RedbStorage::open(directory, options).unwrap()
}

/// Not a test: the process that is killed.
#[test]
#[ignore = "is run by the test that kills it"]
fn child() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let value_memory = std::env::var(VALUE_MEMORY).unwrap().parse().unwrap();
    let store = open(Path::new(&directory), value_memory);
    let counter = AtomicU64::new(store.revision().unwrap().0);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (store, counter) = (&store, &counter);
            scope.spawn(move || {
                loop {
                    let n = counter.fetch_add(1, Ordering::Relaxed);
                    let (one, other, value) = (key(writer, n), format!("/twin{}", key(writer, n)), text(n));
                    let revision = write(store, vec![put(&one, &value), put(&other, &value)]);
                    let line = format!("ack {revision} {one} {n}\n");
                    // A single write, bypassing the capture of tests.
                    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
                }
            });
        }
    });
}

fn key(writer: u64, n: u64) -> String {
    format!("/w{writer}/{}", n % 13)
}

fn text(n: u64) -> String {
    format!("{n}:{}", "x".repeat(usize::try_from(n * 37 % 900).unwrap()))
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct AcknowledgedWrites {
    key: String,
    value: String,
}

/// A small random number generator; the time of a kill cannot be reproduced anyway.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Starts a child, kills it at a random time, and collects the writes that it acknowledged.
fn kill_one(
    directory: &Path,
    value_memory: u64,
    random: &mut Random,
    known: &mut BTreeMap<u64, AcknowledgedWrites>,
) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--ignored", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory)
        .env(VALUE_MEMORY, value_memory.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let newest = known.keys().next_back().copied().unwrap_or(0);
    let mut lines = Vec::new();
    let wanted = random.below(60);
    // One in five is killed while it opens the file.
    let early = random.below(5) == 0;
    let mut line = String::new();
    while !early && (lines.len() as u64) < wanted && output.read_line(&mut line).unwrap() > 0 {
        lines.push(std::mem::take(&mut line));
    }
    // The time is random, so there is nothing to wait for.
    std::thread::sleep(Duration::from_micros(random.below(if early { 25_000 } else { 4_000 })));
    child.kill().unwrap();
    child.wait().unwrap();
    while output.read_line(&mut line).unwrap() > 0 {
        lines.push(std::mem::take(&mut line));
    }
    // A line that the kill truncated acknowledges nothing.
    for line in lines.iter().filter(|line| line.ends_with('\n')) {
        let mut words = line.split_whitespace();
        if words.next() != Some("ack") {
            continue;
        }
        let revision: u64 = words.next().unwrap().parse().unwrap();
        let key = words.next().unwrap().to_owned();
        let value = text(words.next().unwrap().parse().unwrap());
        assert!(
            revision > newest,
            "revision {revision} was given before: {newest} was acknowledged long ago"
        );
        assert_eq!(
            known.insert(revision, AcknowledgedWrites { key, value }),
            None,
            "a revision was given twice"
        );
    }
}

/// Checks that everything acknowledged exists, and that the history has no gaps.
fn verify(store: &RedbStorage, known: &BTreeMap<u64, AcknowledgedWrites>) {
    let newest = store.revision().unwrap().0;
    let acknowledged = known.keys().next_back().copied().unwrap_or(0);
    assert!(newest >= acknowledged, "revision {acknowledged} was acknowledged, {newest} is there");
    let mut latest: BTreeMap<String, (u64, &str)> = BTreeMap::new();
    for (revision, one) in known {
        latest.insert(one.key.clone(), (*revision, &one.value));
        latest.insert(format!("/twin{}", one.key), (*revision, &one.value));
    }
    let items = store.range("", &RangeOptions::default()).unwrap().items;
    let present: BTreeMap<&str, _> = items.iter().map(|item| (&*item.key, item)).collect();
    for (key, (revision, value)) in &latest {
        let item =
            present.get(key.as_str()).unwrap_or_else(|| panic!("{key} of revision {revision} is gone"));
        assert!(item.mod_revision.0 >= *revision, "{key} is of {} instead of {revision}", item.mod_revision);
        if item.mod_revision.0 == *revision {
            assert_eq!(item.value, value.as_bytes(), "{key} at {revision}");
        }
    }
    let oldest = match store.watch("", Revision(0)) {
        Err(StorageError::Compacted { oldest, .. }) => oldest.0,
        Ok(_) => 1,
        Err(error) => panic!("{error}"),
    };
    let mut watch = store.watch("", Revision(oldest)).unwrap();
    for revision in oldest + 1..=newest {
        let (twin, one) = (next_change(&mut *watch), next_change(&mut *watch));
        assert_eq!(
            (twin.revision.0, one.revision.0),
            (revision, revision),
            "both of one transaction, or none"
        );
        assert_eq!((&*twin.key, &twin.value), (&*format!("/twin{}", one.key), &one.value));
        if let Some(known) = known.get(&revision) {
            assert_eq!((&*one.key, &one.value.unwrap()[..]), (&*known.key, known.value.as_bytes()));
        }
    }
}

fn torture(seed: u64) -> usize {
    let directory = TempDir::new().unwrap();
    // Every second store has values on disk.
    let value_memory = if seed % 4 < 2 { 0 } else { RedbOptions::default().value_memory };
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut known = BTreeMap::new();
    for kill in 0..KILLS {
        kill_one(directory.path(), value_memory, &mut random, &mut known);
        // Sometimes the next child finds the file exactly as the last one left it.
        if kill + 1 == KILLS || random.below(3) > 0 {
            verify(&open(directory.path(), value_memory), &known);
        }
    }
    known.len()
}

#[test]
fn nothing_acknowledged_is_lost_when_killed() {
    let acknowledged: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|half| {
                scope.spawn(move || (0..DIRECTORIES).filter(|n| n % 2 == half).map(torture).sum::<usize>())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let kills = usize::try_from(DIRECTORIES * KILLS).unwrap();
    assert!(acknowledged > kills, "{acknowledged} writes in {kills} lives are too few to say anything");
    println!("{kills} kills, {acknowledged} acknowledged writes");
}
