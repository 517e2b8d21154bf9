//! Records in a bucket: objects of JSON lines, whose keys contain the times of their first and last records. An object in a bucket
//! cannot grow, so records are collected for a moment and written together.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _};
use gc_explain::undo::Record;
use gc_external::cloud::{S3, S3Error};
use gc_inspect::gather;
use gc_kube::Backoff;
use gc_types::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::seal::Reader;
use super::status::{ErrorCode, RecorderStatus};
use super::store::{self, Bounds};

/// Time for which records are collected before they are written.
pub const FLUSH_PERIOD: Duration = Duration::from_secs(10);
/// Size in bytes from which they are written immediately.
const BATCH_BYTES: usize = 1 << 20;
/// Maximum number of batches that wait while one is written …
const QUEUED_BATCHES: usize = 1;
/// … and maximum size of a batch that is collected in the meantime, bytes; further records are lost, and counted in the log.
const LARGEST_BATCH: usize = 16 << 20;
/// First and maximum pause between two attempts to write a batch.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// Interval at which records beyond the bounds are removed.
const PRUNE_PERIOD: Duration = Duration::from_mins(10);
/// Maximum wait of a stopping recorder for unwritten records.
const CLOSE_PATIENCE: Duration = Duration::from_secs(10);
/// Number of objects that are deleted concurrently...
const IN_FLIGHT: usize = 8;
/// ...and that are read concurrently, because the server may send the largest ones.
const READ_AT_ONCE: usize = 2;

/// One object of records.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct File {
    first: i64,
    last: i64,
    key: String,
    bytes: u64,
}

impl File {
    /// Parses `PREFIXdeleted-FIRST-LAST-RECORDER-NUMBER.jsonl`; `None` for any other key.
    fn of(prefix: &str, key: String, bytes: u64) -> Option<Self> {
        let name = key.strip_prefix(prefix)?.strip_prefix("deleted-")?.strip_suffix(".jsonl")?;
        // A proxy on the way may interpret the key as a path, and read or delete something else.
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return None;
        }
        let mut parts = name.split('-');
        let mut number = || parts.next()?.parse().ok();
        let (first, last) = (number()?, number()?);
        (parts.count() == 2).then_some(Self { first, last, key, bytes })
    }
}

/// Returns the objects with records, oldest first.
async fn files(client: &S3, prefix: &str) -> Result<Vec<File>, S3Error> {
    let stored = client.list(&format!("{prefix}deleted-")).await?;
    let files = stored.into_iter().filter_map(|stored| File::of(prefix, stored.key, stored.size));
    let mut files: Vec<File> = files.collect();
    files.sort();
    Ok(files)
}

/// Passes on the records of a bucket, one at a time, approximately in the order of their times; with `since`, only those from then
/// on.
pub(super) async fn each(
    client: &S3,
    prefix: &str,
    reader: &mut Reader,
    since: Option<Timestamp>,
    mut take: impl FnMut(Record),
) -> anyhow::Result<()> {
    let is_wanted = |record: &Record| since.is_none_or(|since| record.at >= since);
    let mut files = files(client, prefix).await?;
    files.retain(|file| since.is_none_or(|since| file.last >= since.0));
    let bodies = files.into_iter().map(|file| async move { client.get(&file.key).await });
    let mut bodies = futures::stream::iter(bodies).buffered(READ_AT_ONCE);
    while let Some(body) = bodies.next().await {
        let body = body?;
        let lines = body.split(|byte| *byte == b'\n');
        lines.filter_map(|line| reader.record(line)).filter(is_wanted).for_each(&mut take);
    }
    Ok(())
}

/// Records that are written together.
struct Batch {
    key: String,
    body: Bytes,
}

/// Collects records, and writes them to a bucket.
pub(crate) struct BucketStore {
    prefix: String,
    /// Distinguishes the keys of recorders, and of the runs of one recorder.
    recorder: String,
    number: u64,
    lines: Vec<u8>,
    /// Times of the first and the last record.
    times: Option<(i64, i64)>,
    lost: u64,
    batches: mpsc::Sender<Batch>,
    writer: JoinHandle<()>,
    status: RecorderStatus,
}

impl BucketStore {
    /// Opens a bucket, and fails if it cannot be listed.
    pub(crate) async fn open(
        client: S3,
        prefix: &str,
        bounds: Bounds,
        status: RecorderStatus,
    ) -> anyhow::Result<Self> {
        let client = Arc::new(client);
        files(&client, prefix).await.context("the bucket of the records cannot be read")?;
        let (batches, queue) = mpsc::channel(QUEUED_BATCHES);
        let writer = tokio::spawn(write(client, queue, prefix.to_owned(), bounds, status.clone()).boxed());
        let recorder = format!("{:x}", jiff::Timestamp::now().as_nanosecond());
        let (prefix, lines) = (prefix.to_owned(), Vec::new());
        Ok(Self { prefix, recorder, number: 0, lines, times: None, lost: 0, batches, writer, status })
    }

    /// Adds the line of a record with this time.
    pub(crate) fn append(&mut self, at: Timestamp, line: &str) {
        if self.lines.len() + line.len() > LARGEST_BATCH {
            if self.lost == 0 {
                tracing::error!(
                    "cannot write to the bucket; further records are dropped until it is reachable"
                );
            }
            self.status
                .failed(ErrorCode::RecordsLost, &"the bucket cannot be written, and no more records wait");
            self.lost += 1;
            return;
        }
        self.lines.extend_from_slice(line.as_bytes());
        let Timestamp(at) = at;
        let (first, last) = self.times.unwrap_or((at, at));
        self.times = Some((first.min(at), last.max(at)));
        if self.lines.len() >= BATCH_BYTES {
            self.flush();
        }
    }

    /// Passes the collected records to the writer, if there is room.
    pub(crate) fn flush(&mut self) {
        let Some((first, last)) = self.times else { return };
        let Ok(room) = self.batches.try_reserve() else { return };
        let key = format!("{}deleted-{first}-{last}-{}-{}.jsonl", self.prefix, self.recorder, self.number);
        room.send(Batch { key, body: std::mem::take(&mut self.lines).into() });
        (self.times, self.number) = (None, self.number + 1);
        if self.lost > 0 {
            tracing::error!(records = self.lost, "the bucket takes records again; some were lost");
            self.lost = 0;
        }
    }

    /// Writes the rest.
    pub(crate) async fn close(mut self) -> anyhow::Result<()> {
        let left = async {
            // There is room once the waiting batch is written; an error means that the writer has ended.
            drop(self.batches.reserve().await);
            self.flush();
            let Self { batches, writer, .. } = self;
            drop(batches);
            writer.await
        };
        match tokio::time::timeout(CLOSE_PATIENCE, left).await {
            Ok(written) => written.context("writing records ended by a panic"),
            Err(_) => anyhow::bail!("the last records could not be written within {CLOSE_PATIENCE:?}"),
        }
    }
}

/// Writes batches until there are no more, and removes records beyond the bounds.
async fn write(
    client: Arc<S3>,
    mut queue: mpsc::Receiver<Batch>,
    prefix: String,
    bounds: Bounds,
    status: RecorderStatus,
) {
    let mut prune = tokio::time::interval(PRUNE_PERIOD);
    loop {
        tokio::select! {
            batch = queue.recv() => match batch {
                Some(batch) => put(&client, &batch, &status).await,
                None => return,
            },
            _ = prune.tick() => {
                if let Err(error) = self::prune(&client, &prefix, bounds, gather::now()).await {
                    tracing::warn!(%error, "old records were not removed");
                }
            }
        }
    }
}

async fn put(client: &S3, batch: &Batch, status: &RecorderStatus) {
    let mut pauses = Backoff::new(PAUSES.0, PAUSES.1);
    while let Err(error) = client.put(&batch.key, batch.body.clone()).await {
        let pause = pauses.next_delay();
        status.failed(ErrorCode::BucketFailing, &error);
        tracing::warn!(%error, "records could not be written; trying again in {pause:.1?}");
        tokio::time::sleep(pause).await;
    }
}

/// Removes objects whose records are all too old, and the oldest ones while the size exceeds the bound.
async fn prune(client: &S3, prefix: &str, bounds: Bounds, now: Timestamp) -> Result<(), S3Error> {
    let files = files(client, prefix).await?;
    let ages: Vec<(i64, u64)> = files.iter().map(|file| (file.last, file.bytes)).collect();
    let surplus = store::surplus(&ages, bounds.max_age_milliseconds, bounds.max_bytes, now);
    let surplus = files.into_iter().take(surplus);
    let deleted = surplus.map(|file| async move { client.delete(&file.key).await });
    let mut deleted = futures::stream::iter(deleted).buffer_unordered(IN_FLIGHT);
    while let Some(done) = deleted.next().await {
        done?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use gc_external::cloud::{Credentials, S3Options};
    use http_body_util::{BodyExt as _, Full};
    use hyper::body::Incoming;
    use hyper_util::rt::TokioIo;
    use serde_json::json;

    use super::super::seal::Writer;
    use super::*;

    const BOUNDS: Bounds = Bounds { max_age_milliseconds: 1_000, max_bytes: 4_000_000 };
    const BOUNDLESS: Bounds = Bounds { max_age_milliseconds: i64::MAX, max_bytes: u64::MAX };

    /// Objects of a bucket, and whether it accepts writes.
    #[derive(Default)]
    struct Bucket {
        objects: BTreeMap<String, Bytes>,
        refuses: bool,
    }

    /// Answers like S3, as far as these tests need it; gc-external tests the client against a server that checks signatures.
    async fn answer(bucket: Arc<Mutex<Bucket>>, request: http::Request<Incoming>) -> (u16, String) {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let mut bucket = bucket.lock().unwrap();
        let key = head.uri.path().strip_prefix("/records").unwrap().trim_start_matches('/').to_owned();
        match (head.method.as_str(), key.as_str()) {
            ("GET", "") => {
                // Two objects per page; the token is the last key of the previous page.
                let query = head.uri.query().unwrap().replace("%2F", "/");
                let parameter = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name));
                let (prefix, after) =
                    (parameter("prefix=").unwrap(), parameter("continuation-token=").unwrap_or_default());
                let matching: Vec<_> = bucket
                    .objects
                    .iter()
                    .filter(|(key, _)| key.starts_with(prefix) && key.as_str() > after)
                    .collect();
                let page = &matching[..matching.len().min(2)];
                let of = |(key, body): &(&String, &Bytes)| {
                    format!("<Contents><Key>{key}</Key><Size>{}</Size></Contents>", body.len())
                };
                let listed: String = page.iter().map(of).collect();
                let next = match page.last() {
                    Some((key, _)) if page.len() < matching.len() => {
                        format!("<NextContinuationToken>{key}</NextContinuationToken>")
                    }
                    _ => String::new(),
                };
                let truncated = !next.is_empty();
                (
                    200,
                    format!(
                        "<ListBucketResult><IsTruncated>{truncated}</IsTruncated>{listed}{next}</ListBucketResult>"
                    ),
                )
            }
            ("GET", key) => match bucket.objects.get(key) {
                Some(body) => (200, String::from_utf8(body.to_vec()).unwrap()),
                None => (404, "<Error><Code>NoSuchKey</Code></Error>".to_owned()),
            },
            ("PUT", _) if bucket.refuses => (503, "<Error><Code>SlowDown</Code></Error>".to_owned()),
            ("PUT", key) => {
                bucket.objects.insert(key.to_owned(), body);
                (200, String::new())
            }
            ("DELETE", key) => {
                bucket.objects.remove(key);
                (204, String::new())
            }
            other => panic!("{other:?}"),
        }
    }

    /// Starts a server with a bucket, and returns its URL.
    async fn serve() -> (String, Arc<Mutex<Bucket>>) {
        let bucket = Arc::<Mutex<Bucket>>::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let served = Arc::clone(&bucket);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let bucket = Arc::clone(&served);
                let service = hyper::service::service_fn(move |request| {
                    let answered = answer(Arc::clone(&bucket), request);
                    async move {
                        let (status, text) = answered.await;
                        http::Response::builder().status(status).body(Full::new(Bytes::from(text)))
                    }
                });
                let stream = TokioIo::new(stream);
                tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(stream, service));
            }
        });
        (endpoint, bucket)
    }

    fn client(endpoint: &str) -> S3 {
        let (access_key, secret_key) = ("k".to_owned(), "s".to_owned());
        S3::new(S3Options {
            endpoint: Some(endpoint.to_owned()),
            credentials: Some(Credentials { access_key, secret_key, session_token: None }),
            ..S3Options::new("records", "us-east-1")
        })
        .unwrap()
    }

    fn of(at: i64, name: &str, bytes: usize) -> Record {
        Record {
            at: Timestamp(at),
            resource: "configmaps".into(),
            object: json!({"metadata": {"name": name}, "data": {"k": "v".repeat(bytes)}}),
        }
    }

    fn append(store: &mut BucketStore, record: &Record) {
        store.append(record.at, &Writer::default().line(record).unwrap());
    }

    async fn names(endpoint: &str, since: Option<i64>) -> Vec<String> {
        let (mut records, mut reader) = (Vec::new(), Reader::default());
        let since = since.map(Timestamp);
        each(&client(endpoint), "shop/", &mut reader, since, |record| records.push(record)).await.unwrap();
        records.sort_by_key(|record: &Record| record.at);
        records.iter().map(|record| record.object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    async fn write_all(endpoint: &str, records: &[Record]) {
        let mut store =
            BucketStore::open(client(endpoint), "shop/", BOUNDLESS, RecorderStatus::default()).await.unwrap();
        for record in records {
            append(&mut store, record);
        }
        store.close().await.unwrap();
    }

    #[tokio::test]
    async fn records_come_back_from_a_bucket() {
        let (endpoint, bucket) = serve().await;
        // A file without records stays.
        bucket.lock().unwrap().objects.insert("shop/deleted-notes.txt".into(), Bytes::from_static(b"x"));
        let now = gather::now().0;
        write_all(&endpoint, &[of(now + 50, "c", 1), of(now + 51, "d", 1)]).await;
        write_all(&endpoint, &[of(now, "a", 1), of(now + 1, "b", 1)]).await;
        write_all(&endpoint, &[]).await;
        assert_eq!(names(&endpoint, None).await, ["a", "b", "c", "d"]);
        assert_eq!(names(&endpoint, Some(now + 51)).await, ["d"]);
        assert_eq!(bucket.lock().unwrap().objects.len(), 3);
    }

    /// Records that were collected while the bucket refused them are written once it accepts them.
    #[tokio::test]
    async fn a_bucket_that_refuses_is_tried_again() {
        /// More than are queued.
        const BATCHES: usize = QUEUED_BATCHES + 4;
        let (endpoint, bucket) = serve().await;
        let mut store = BucketStore::open(client(&endpoint), "shop/", BOUNDLESS, RecorderStatus::default())
            .await
            .unwrap();
        bucket.lock().unwrap().refuses = true;
        let now = gather::now().0;
        for number in 0..BATCHES {
            append(&mut store, &of(now, &format!("r{number:02}"), 1));
            store.flush();
        }
        assert!(store.times.is_some() && store.number > 0, "the queue is full");
        bucket.lock().unwrap().refuses = false;
        store.close().await.unwrap();
        let expected: Vec<String> = (0..BATCHES).map(|number| format!("r{number:02}")).collect();
        let mut found = names(&endpoint, None).await;
        found.sort();
        assert_eq!(found, expected);
    }

    #[tokio::test]
    async fn a_bucket_is_bounded_by_size_and_age() {
        let (endpoint, bucket) = serve().await;
        let client = client(&endpoint);
        for number in 0..6 {
            let at = 10_000 + 100 * number;
            write_all(&endpoint, &[of(at, &format!("r{number}"), 900_000)]).await;
        }
        let left = async |now: i64| {
            prune(&client, "shop/", BOUNDS, Timestamp(now)).await.unwrap();
            names(&endpoint, None).await
        };
        assert_eq!(left(10_600).await, ["r2", "r3", "r4", "r5"]);
        assert_eq!(left(11_350).await, ["r4", "r5"]);
        assert_eq!(left(60_000).await, [""; 0]);
        assert!(bucket.lock().unwrap().objects.is_empty());
    }

    /// Anyone who may write to the bucket may choose any names for objects.
    #[test]
    fn keys_are_no_paths() {
        let of =
            |name: &str| File::of("shop/", format!("shop/{name}"), 1).map(|file| (file.first, file.last));
        assert_eq!(of("deleted-5-7-18f-0.jsonl"), Some((5, 7)));
        for name in [
            "deleted-5-7-../../other-0.jsonl",
            "deleted-5-7-..%2F..-0.jsonl",
            "deleted-5-7-a/b-0.jsonl",
            "deleted-5-7-a?x-0.jsonl",
            "deleted-5-7-\u{1b}[2J-0.jsonl",
            "deleted-5-7.jsonl",
            "deleted-5-7-a-b-c.jsonl",
            "deleted-99999999999999999999-7-a-0.jsonl",
            "deleted--.jsonl",
        ] {
            assert_eq!(of(name), None, "{name}");
        }
    }

    /// Lines that no recorder wrote do not prevent reading the records beside them.
    #[tokio::test]
    async fn hostile_objects_of_a_bucket_are_left_out() {
        let (endpoint, bucket) = serve().await;
        write_all(&endpoint, &[of(5, "a", 1)]).await;
        let lines = [
            "[".repeat(1 << 20),
            "{\"at\":".repeat(1 << 16),
            "\0".repeat(1 << 16),
            "{}".into(),
            "null".into(),
        ];
        for (number, line) in lines.iter().enumerate() {
            let key = format!("shop/deleted-1-9-x-{number}.jsonl");
            bucket.lock().unwrap().objects.insert(key, Bytes::from(format!("{line}\n{line}")));
        }
        assert_eq!(names(&endpoint, None).await, ["a"]);
    }

    #[tokio::test]
    async fn a_bucket_that_cannot_be_read_is_reported_at_the_start() {
        let status = RecorderStatus::default();
        let error = BucketStore::open(client("http://127.0.0.1:1"), "", BOUNDS, status).await.err().unwrap();
        let error = format!("{error:#}");
        assert!(error.starts_with("the bucket of the records cannot be read: S3: "), "{error}");
    }
}
