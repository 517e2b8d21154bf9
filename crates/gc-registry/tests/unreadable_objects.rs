//! Tests the deletion of an object that the store cannot read.
#![allow(clippy::unwrap_used)] // A test that fails here has failed.

mod world;

use std::sync::Arc;

use gc_registry::Config;
use gc_registry::api::{DeleteOptions, ListOptions};
use gc_registry::kubernetes::KubernetesVersion;
use gc_registry::storage::{
    Blocking, Committed, GetAnswer, RangeAnswer, RangeOptions, Revision, Storage, StorageError, Transaction,
    WatchStream, Write,
};
use gc_store::MemoryStorage;
use serde_json::json;
use world::World;

/// A store in which one value is damaged: reads of it fail, and the change that deletes it has none.
struct Damaged {
    inner: Arc<MemoryStorage>,
    /// The end of its key.
    damaged: &'static str,
}

impl Storage for Damaged {
    fn blocks(&self) -> Blocking {
        self.inner.blocks()
    }

    fn revision(&self) -> Result<Revision, StorageError> {
        self.inner.revision()
    }

    fn get(&self, key: &str, at: Option<Revision>) -> Result<GetAnswer, StorageError> {
        let answer = self.inner.get(key, at)?;
        if answer.item.is_some() && key.ends_with(self.damaged) {
            return Err(StorageError::Broken(format!("the object {key} does not decode")));
        }
        Ok(answer)
    }

    fn range(&self, prefix: &str, options: &RangeOptions) -> Result<RangeAnswer, StorageError> {
        self.inner.range(prefix, options)
    }

    fn commit(&self, transaction: Transaction) -> Result<Committed, StorageError> {
        self.inner.commit(transaction)
    }

    fn watch(&self, prefix: &str, after: Revision) -> Result<Box<dyn WatchStream>, StorageError> {
        self.inner.watch(prefix, after)
    }

    fn compact(&self, revision: Revision) -> Result<(), StorageError> {
        self.inner.compact(revision)
    }
}

/// The option for objects that cannot be read deletes one (KEP-3926): whether the store cannot read it, or it is no document.
#[test]
fn an_unreadable_object_is_deleted_by_the_option_for_it() {
    KubernetesVersion::V1_37.choose().unwrap();
    for damaged in ["/default/broken", "none"] {
        let inner = Arc::new(MemoryStorage::default());
        let store = Damaged { inner: Arc::clone(&inner), damaged };
        let world = World::over(Arc::new(store), Arc::clone(&inner), Config::default());
        let maps = "v1/configmaps";
        world.config_map("sound", &[]);
        let write = Write::Put("/core/configmaps/default/broken".into(), bytes::Bytes::new());
        inner.commit(Transaction { conditions: vec![], writes: vec![write] }).unwrap();
        let options = ListOptions { resource_version: world.version(), ..ListOptions::default() };
        let mut watch = world.watch(maps, "default", &options).unwrap();
        let delete = |name: &str, is_unsafe: bool, dry_run: &[&str]| {
            let options = DeleteOptions {
                ignore_store_read_error: is_unsafe,
                dry_run: dry_run.iter().map(ToString::to_string).collect(),
                ..DeleteOptions::default()
            };
            world.delete(maps, &format!("default/{name}"), options).map(|answer| world::body(&answer))
        };
        assert_eq!(delete("broken", false, &[]).unwrap_err().code, 500);
        world.refuse("unsafe-delete-ignore-read-errors configmaps");
        assert_eq!(delete("broken", true, &[]).unwrap_err().code, 403);
        world.allow_all();
        assert_eq!(delete("sound", true, &[]).unwrap_err().code, 409);
        delete("broken", true, &["All"]).unwrap();
        let answer = delete("broken", true, &[]).unwrap();
        assert_eq!((&answer["status"], &answer["details"]["name"]), (&json!("Success"), &json!("broken")));
        assert_eq!(delete("broken", true, &[]).unwrap_err().code, 404);
        assert_eq!(world.get(maps, "default/broken").unwrap_err().code, 404);
        // No event can say what was deleted, so the watch has to list again.
        let events = world.events(&mut watch);
        assert_eq!((world::kinds(&events).len(), &events[0].1["code"]), (2, &json!(410)), "{events:?}");
    }
}
