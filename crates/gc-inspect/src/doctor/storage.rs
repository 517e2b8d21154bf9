//! Store of an embedded server: whether it is full, and how much of it is in use.

use super::{Finding, State, finding};
use crate::garbage::size;

const CHECK: &str = "storage";
/// Minimum size of a store for which defragmentation is worthwhile.
const LARGE_BYTES: u64 = 64 << 20;
/// Minimum ratio of a store's size to its bytes in use for which defragmentation is worthwhile.
const BLOATED_TIMES: u64 = 2;

/// State of a server's store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StorageFacts {
    /// True if it is etcd.
    is_etcd: bool,
    bytes: u64,
    /// 0 if unknown.
    bytes_in_use: u64,
    is_full: bool,
}

impl StorageFacts {
    /// Reads the metrics of a server; `None` if they show no store on disk.
    pub(crate) fn of(metrics: &str) -> Option<Self> {
        let samples = || metrics.lines().filter(|line| !line.starts_with('#'));
        let value = |line: &str| line.rsplit_once(' ')?.1.parse::<f64>().ok();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of bytes")]
        let number = |name: &str| {
            let named =
                |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']));
            let found = samples().find(named)?;
            Some((found, value(found)? as u64))
        };
        let (sample, bytes) = number("apiserver_storage_size_bytes")?;
        Some(Self {
            is_etcd: sample.contains("\"etcd"),
            bytes,
            bytes_in_use: number("kubegc_apiserver_storage_used_bytes").map_or(0, |found| found.1),
            is_full: number("kubegc_apiserver_storage_full").is_some_and(|found| found.1 > 0),
        })
    }
}

/// Judges the store of a server, if it has one.
pub(super) fn storage(facts: Option<&StorageFacts>) -> Option<Finding> {
    let StorageFacts { is_etcd, bytes, bytes_in_use, is_full } = *facts?;
    let what = if is_etcd { "etcd's database" } else { "the data file" };
    let used = format!("{what} has {}, {} of it in use", size(bytes), size(bytes_in_use));
    let of_all = "against each member, one after the other";
    Some(if is_full && is_etcd {
        let message = format!("etcd is full (alarm NOSPACE): it refuses creations and updates; {used}");
        finding(CHECK, State::Wrong, message).advise(format!(
            "delete objects, or raise --quota-backend-bytes; after the next compaction `etcdctl defrag` \
             {of_all}, then `etcdctl alarm disarm`"
        ))
    } else if is_full {
        let message = format!("the disk of the data directory is full: only deletions are accepted; {used}");
        finding(CHECK, State::Wrong, message).advise("make room on that disk; writes resume by themselves")
    } else if is_etcd && bytes > LARGE_BYTES && bytes_in_use > 0 && bytes / BLOATED_TIMES > bytes_in_use {
        let message = format!("{used}: the rest is not given back to the disk");
        finding(CHECK, State::Notice, message).advise(format!("`etcdctl defrag` {of_all}"))
    } else if bytes_in_use > 0 {
        finding(CHECK, State::Fine, used)
    } else {
        finding(CHECK, State::Fine, format!("{what} has {}", size(bytes)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(metrics: &str) -> Option<(State, String, Option<String>)> {
        let found = storage(StorageFacts::of(metrics).as_ref())?;
        Some((found.state, found.message, found.advice))
    }

    #[test]
    fn a_store_is_judged_by_its_metrics() {
        let metrics = |cluster: &str, bytes: u64, used: u64, full: u64| {
            format!(
                "# HELP apiserver_storage_size_bytes Bytes that the store occupies on its disk\n\
                 apiserver_storage_size_bytes{{storage_cluster_id=\"{cluster}\"}} {bytes}\n\
                 kubegc_apiserver_storage_used_bytes {used}\n\
                 kubegc_apiserver_storage_full {full}\n"
            )
        };
        let mib = |count: u64| count << 20;
        let defrag = "`etcdctl defrag` against each member, one after the other";
        let full = "delete objects, or raise --quota-backend-bytes; after the next compaction `etcdctl defrag` against each \
                    member, one after the other, then `etcdctl alarm disarm`";
        for (metrics, state, message, advice) in [
            (
                metrics("etcd-0", mib(300), mib(100), 0),
                State::Notice,
                "etcd's database has 300 MiB, 100 MiB of it in use: the rest is not given back to the disk",
                Some(defrag),
            ),
            (
                metrics("etcd-0", mib(300), mib(200), 0),
                State::Fine,
                "etcd's database has 300 MiB, 200 MiB of it in use",
                None,
            ),
            // Too small for a defragmentation.
            (
                metrics("etcd-0", mib(20), mib(1), 0),
                State::Fine,
                "etcd's database has 20 MiB, 1 MiB of it in use",
                None,
            ),
            // etcd before 3.4 does not report how much is in use.
            (metrics("etcd-0", mib(300), 0, 0), State::Fine, "etcd's database has 300 MiB", None),
            (
                metrics("etcd-0", mib(2048), mib(2040), 1),
                State::Wrong,
                "etcd is full (alarm NOSPACE): it refuses creations and updates; etcd's database has 2 GiB, 1.9 GiB of it in use",
                Some(full),
            ),
            // This store shrinks by itself.
            (
                metrics("local", mib(300), mib(100), 0),
                State::Fine,
                "the data file has 300 MiB, 100 MiB of it in use",
                None,
            ),
            (
                metrics("local", mib(300), mib(290), 1),
                State::Wrong,
                "the disk of the data directory is full: only deletions are accepted; the data file has 300 MiB, 290 MiB of it in use",
                Some("make room on that disk; writes resume by themselves"),
            ),
        ] {
            let expected = Some((state, message.to_owned(), advice.map(str::to_owned)));
            assert_eq!(judged(&metrics), expected);
        }
        assert_eq!(judged("kubegc_apiserver_storage_used_bytes 0\n"), None, "a store in memory");
        assert_eq!(judged("<html>"), None);
    }
}
