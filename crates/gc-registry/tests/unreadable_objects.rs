//! Objects that cannot be read: they can be deleted on request, and are in the way of others.
#![allow(clippy::unwrap_used)] // A test that fails here has failed.

mod world;

use std::sync::Arc;

use gc_registry::Config;
use gc_registry::api::{DeleteOptions, ListOptions, WriteOptions};
use gc_registry::kubernetes::KubernetesVersion;
use gc_registry::storage::{
    Blocking, Committed, GetAnswer, RangeAnswer, RangeOptions, Revision, Storage, StorageError, Transaction,
    WatchStream, Write,
};
use gc_store::MemoryStorage;
use serde_json::json;
use world::World;

/// Key of the object that cannot be read.
const BROKEN: &str = "/core/configmaps/default/broken";

/// A store in which one value is damaged: reads of it fail, and the change that deletes it has none.
struct Damaged {
    inner: Arc<MemoryStorage>,
    /// The end of its key.
    damaged: &'static str,
    /// The end of a key whose value somebody else replaces after it was read.
    replaced: &'static str,
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
        if key.ends_with(self.replaced) {
            self.inner.commit(written(key))?;
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

/// Returns the transaction that stores under a key what is no object.
fn written(key: &str) -> Transaction {
    Transaction { conditions: vec![], writes: vec![Write::Put(key.into(), bytes::Bytes::new())] }
}

/// Creates a server over a store with an unreadable object `broken`, and one in whose key `damaged` or `replaced` ends.
fn world_with_broken(damaged: &'static str, replaced: &'static str) -> World {
    let inner = Arc::new(MemoryStorage::default());
    inner.commit(written(BROKEN)).unwrap();
    let store = Damaged { inner: Arc::clone(&inner), damaged, replaced };
    World::over(Arc::new(store), inner, Config::default())
}

/// Returns the options of a deletion of what cannot be read.
fn ignoring_read_errors() -> DeleteOptions {
    DeleteOptions { ignore_store_read_error: true, ..DeleteOptions::default() }
}

/// The option for objects that cannot be read deletes one (KEP-3926): whether the store cannot read it, or it is no document.
#[test]
fn an_unreadable_object_is_deleted_by_the_option_for_it() {
    KubernetesVersion::V1_37.choose().unwrap();
    for damaged in ["/default/broken", "none"] {
        let world = world_with_broken(damaged, "none");
        let maps = "v1/configmaps";
        world.config_map("sound", &[]);
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
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {"name": "broken", "kind": "ConfigMap"}, "code": 200,
        });
        assert_eq!(answer, status);
        assert_eq!(delete("broken", true, &[]).unwrap_err().code, 404);
        assert_eq!(world.get(maps, "default/broken").unwrap_err().code, 404);
        // No event can say what was deleted, so the watch has to list again.
        let events = world.events(&mut watch);
        assert_eq!((world::kinds(&events).len(), &events[0].1["code"]), (2, &json!(410)), "{events:?}");
    }
}

/// What cannot be read is there all the same, and is neither replaced nor changed.
#[test]
fn an_unreadable_object_is_in_the_way_of_another() {
    let world = world_with_broken("none", "none");
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "broken", "namespace": "default"}});
    for dry_run in [false, true] {
        let options = WriteOptions { dry_run, ..WriteOptions::default() };
        let created = world.create_with("v1/configmaps", "default", object.clone(), options).unwrap_err();
        assert_eq!((created.code, &*created.message), (409, "configmaps \"broken\" already exists"));
    }
    let patch = json!({"data": {"a": "b"}});
    assert_eq!(world.update("v1/configmaps", "default/broken", object).unwrap_err().code, 500);
    assert_eq!(world.merge("v1/configmaps", "default/broken", patch).unwrap_err().code, 500);
}

/// Validating admission is asked about the deletion of what cannot be read, and shown an object without content.
#[test]
fn admission_is_asked_about_the_deletion_of_an_unreadable_object() {
    KubernetesVersion::V1_37.choose().unwrap();
    let seen = "oldObject.kind == 'ConfigMap' && oldObject.metadata == {} && request.name == 'broken' && \
                request.options.ignoreStoreReadErrorWithClusterBreakingPotential";
    for (expression, refused) in [("false", true), (seen, false)] {
        for damaged in ["/default/broken", "none"] {
            let world = world_with_broken(damaged, "none");
            let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["configmaps"]});
            let spec = json!({
                "matchConstraints": {"resourceRules": [rule]},
                "validations": [{"expression": expression, "message": "kept"}],
            });
            let group = "admissionregistration.k8s.io/v1/validatingadmissionpolic";
            world.create(&format!("{group}ies"), json!({"metadata": {"name": "p"}, "spec": spec})).unwrap();
            let spec = json!({"policyName": "p", "validationActions": ["Deny"]});
            let binding = json!({"metadata": {"name": "b"}, "spec": spec});
            world.create(&format!("{group}ybindings"), binding).unwrap();
            let deleted = world.delete("v1/configmaps", "default/broken", ignoring_read_errors());
            let code = deleted.map_or_else(|error| error.code, |_| 200);
            assert_eq!(code, if refused { 422 } else { 200 }, "{expression} {damaged}");
            let deleted = world.delete("v1/configmaps", "default/broken", DeleteOptions::default());
            assert_eq!(deleted.unwrap_err().code, if refused { 500 } else { 404 }, "{expression} {damaged}");
        }
    }
}

/// What was stored after the check is not deleted by it.
#[test]
fn an_object_stored_after_the_check_is_not_deleted_unread() {
    KubernetesVersion::V1_37.choose().unwrap();
    let world = world_with_broken("none", "/default/broken");
    let error = world.delete("v1/configmaps", "default/broken", ignoring_read_errors()).unwrap_err();
    assert_eq!((error.code, &*error.reason), (409, "Conflict"), "{}", error.message);
    let deleted = world.delete("v1/configmaps", "default/broken", DeleteOptions::default());
    assert_eq!(deleted.unwrap_err().code, 500);
}

/// A list without an object that cannot be read would say that it does not exist. Recorded from kube-apiserver 1.36.2 with the gate
/// AllowUnsafeMalformedObjectDeletion.
#[test]
fn a_list_fails_at_objects_that_cannot_be_read_and_names_them() {
    let maps = "v1/configmaps";
    for (text, why) in [
        ("", "EOF while parsing a value at line 1 column 0"),
        ("\u{0}\u{1}garbage", "expected value at line 1 column 1"),
        ("{\"metadata\":{\"name\":", "EOF while parsing a value at line 1 column 20"),
        ("[]", "it has no metadata"),
        ("{}", "it has no metadata"),
    ] {
        let inner = Arc::new(MemoryStorage::default());
        let world =
            World::over(Arc::clone(&inner) as Arc<dyn Storage>, Arc::clone(&inner), Config::default());
        world.config_map("sound", &[]);
        let lists = [
            ListOptions::default(),
            ListOptions { limit: 500, ..ListOptions::default() },
            ListOptions { in_pages: true, ..ListOptions::default() },
            ListOptions { label_selector: "a=b".into(), ..ListOptions::default() },
            ListOptions { field_selector: "metadata.name=broken".into(), ..ListOptions::default() },
            ListOptions { resource_version: "0".into(), ..ListOptions::default() },
        ];
        for options in &lists {
            assert!(world.list(maps, "default", options.clone()).is_ok());
        }
        let value = bytes::Bytes::copy_from_slice(text.as_bytes());
        let transaction = Transaction { conditions: vec![], writes: vec![Write::Put(BROKEN.into(), value)] };
        let Ok(Committed::Done(revision)) = inner.commit(transaction) else { panic!("it is stored") };
        let field = "/registry/configmaps/default/broken";
        let message = format!(
            "StorageError: corrupt object, Code: 7, Key: {field}, ResourceVersion: 0, AdditionalErrorMsg: object not decodable \
             revision={revision}: {why}"
        );
        let causes = json!([{"reason": "UnexpectedServerResponse", "message": message, "field": field}]);
        let expected = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "StorageReadError", "code": 500,
            "message": "failed to read one or more configmaps from the storage",
            "details": {"name": "list", "kind": "configmaps", "causes": causes},
        });
        for options in &lists {
            for namespace in ["default", ""] {
                if namespace.is_empty() && !options.field_selector.is_empty() {
                    continue;
                }
                let refused = world.list(maps, namespace, options.clone()).unwrap_err();
                assert_eq!(refused.to_status(), expected, "{text:?} {options:?}");
            }
        }
        assert_eq!(world.watch(maps, "default", &ListOptions::default()).unwrap_err().to_status(), expected);
        assert!(world.list(maps, "elsewhere", ListOptions::default()).is_ok());
    }
}

#[test]
fn a_hundred_objects_that_cannot_be_read_are_named() {
    for (number, causes) in [(100, 100), (102, 101)] {
        let inner = Arc::new(MemoryStorage::default());
        let world =
            World::over(Arc::clone(&inner) as Arc<dyn Storage>, Arc::clone(&inner), Config::default());
        for n in 0..number {
            inner.commit(written(&format!("{BROKEN}{n:03}"))).unwrap();
        }
        let refused = world.list("v1/configmaps", "default", ListOptions::default()).unwrap_err().to_status();
        let named = refused["details"]["causes"].as_array().unwrap();
        assert_eq!(named.len(), causes);
        let last =
            json!({"reason": "FieldValueTooMany", "message": "too many errors, the list is truncated"});
        assert_eq!(named.last() == Some(&last), number > 100);
    }
}
