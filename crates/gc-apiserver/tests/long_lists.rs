//! Lists that are too long to be read at once are sent while they are read.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;

use std::sync::Arc;

use gc_apiserver::Clock;
use gc_registry::storage::{
    Blocking, Committed, GetAnswer, RangeAnswer, RangeOptions, Revision, Storage, StorageError, Transaction,
    WatchStream, Write,
};
use gc_store::{HistoryOptions, MemoryOptions, MemoryStorage};
use http_body_util::BodyExt as _;
use serde_json::json;
use support::TestServer;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const OBJECTS: usize = 3000;

/// A store that is reached over a network, and whose history is compacted by others.
struct Remote(Arc<MemoryStorage>);

impl Storage for Remote {
    fn blocks(&self) -> Blocking {
        Blocking::Always
    }

    fn revision(&self) -> Result<Revision, StorageError> {
        self.0.revision()
    }

    fn get(&self, key: &str, at: Option<Revision>) -> Result<GetAnswer, StorageError> {
        self.0.get(key, at)
    }

    fn range(&self, prefix: &str, options: &RangeOptions) -> Result<RangeAnswer, StorageError> {
        self.0.range(prefix, options)
    }

    fn commit(&self, transaction: Transaction) -> Result<Committed, StorageError> {
        self.0.commit(transaction)
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn WatchStream>, StorageError> {
        self.0.watch(prefix, after)
    }

    fn compact(&self, revision: Revision) -> Result<(), StorageError> {
        self.0.compact(revision)
    }
}

/// Writes ConfigMaps of this size into a store, in one step.
fn fill(storage: &MemoryStorage, count: usize, bytes: usize) {
    let put = |number: usize| {
        let name = format!("m{number:06}");
        let metadata = json!({
            "name": name, "namespace": "default", "uid": format!("u{number}"),
            "creationTimestamp": "2020-01-01T00:00:00Z", "labels": {"part": (number % 7).to_string()},
        });
        // A stored object begins with its metadata.
        let object =
            format!("{{\"metadata\":{metadata},\"data\":{}}}", json!({"padding": "x".repeat(bytes)}));
        Write::Put(format!("/core/configmaps/default/{name}").into(), object.into_bytes().into())
    };
    let writes = (0..count).map(put).collect();
    storage.commit(Transaction { conditions: Vec::new(), writes }).unwrap();
}

/// A list with a limit is read completely; one without is sent page by page. Both must be identical.
#[tokio::test]
async fn each_representation_is_the_same_in_pages() {
    for is_remote in [false, true] {
        let storage = Arc::new(MemoryStorage::default());
        let seen: Arc<dyn Storage> =
            if is_remote { Arc::new(Remote(Arc::clone(&storage))) } else { Arc::clone(&storage) as _ };
        let server = TestServer::start_over(seen, Clock::default()).await;
        fill(&storage, OBJECTS, 100);
        // The server writes in the meantime.
        let exact = format!("resourceVersion={}&resourceVersionMatch=Exact", storage.revision().unwrap());
        for accept in [
            "application/json",
            "application/yaml",
            "application/vnd.kubernetes.protobuf",
            "application/json;as=Table;g=meta.k8s.io;v=v1",
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        ] {
            for query in ["", "pretty=true&", "labelSelector=part%3D3&", "labelSelector=part%3Dnone&"] {
                let list = async |limit: &str| {
                    let path = format!("{CONFIG_MAPS}?{query}{exact}{limit}");
                    server.send("GET", &path, &[("accept", accept)], "").await
                };
                let (pages, whole) = (list("").await, list("&limit=100000").await);
                assert_eq!((pages.code, whole.code), (200, 200), "{accept} {query} {pages:?}");
                let [pages, whole] = [pages.bytes, whole.bytes];
                assert!(pages == whole, "{accept} {query} {} {}", pages.len(), whole.len());
            }
        }
    }
}

/// A list that its client reads slowly must not contain objects written since it began, and must be complete as long as the store
/// keeps its version. Otherwise its client must not take it for complete.
#[tokio::test]
async fn a_list_that_is_read_slowly_is_of_one_version_or_cut_off() {
    /// More than the buffers of the network hold.
    const LARGE: usize = 20_000;
    let history = HistoryOptions { changes: 30_000, bytes: 1 << 30 };
    for (is_remote, writes, is_whole) in
        [(false, 40_000, true), (false, 70_000, false), (true, 40_000, false), (true, 10_000, true)]
    {
        let storage = Arc::new(MemoryStorage::new(MemoryOptions { history, ..MemoryOptions::default() }));
        let seen: Arc<dyn Storage> =
            if is_remote { Arc::new(Remote(Arc::clone(&storage))) } else { Arc::clone(&storage) as _ };
        let server = TestServer::start_over(seen, Clock::default()).await;
        fill(&storage, LARGE, 1000);
        let version = storage.revision().unwrap();
        let path = format!("{CONFIG_MAPS}?resourceVersion={version}&resourceVersionMatch=Exact");
        let mut answer = server.open("GET", &path, &[], "").await;
        let first = answer.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
        for part in 0..writes / 1000 {
            let put = |number: usize| {
                let key = format!("/core/configmaps/default/n{part}-{number}");
                Write::Put(key.into(), "{\"metadata\":{}}".into())
            };
            let writes = (0..1000).map(put).collect();
            storage.commit(Transaction { conditions: Vec::new(), writes }).unwrap();
        }
        let rest = answer.into_body().collect().await;
        assert_eq!(rest.is_ok(), is_whole, "remote: {is_remote}, {writes} writes");
        let Ok(rest) = rest else { continue };
        let text = [&*first, &*rest.to_bytes()].concat();
        let list: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(list["metadata"]["resourceVersion"], version.to_string());
        assert_eq!(list["items"].as_array().unwrap().len(), LARGE);
    }
}
