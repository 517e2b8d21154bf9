//! kube-rs, with its runtime, against `kubegc up`.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, WatchEvent, WatchParams,
};
use kube::core::dynamic::DynamicObject;
use kube::core::{GroupVersionKind, PartialObjectMeta};
use kube::{Api, Client, ResourceExt as _};
use kube_runtime::controller::Action;
use kube_runtime::finalizer::{Event as FinalizerEvent, finalizer};
use kube_runtime::reflector;
use kube_runtime::wait::{await_condition, conditions};
use kube_runtime::watcher::{self, Event};
use serde_json::{Value, json};
use support::Kubegc;

/// Maximum wait on a slow machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn typed<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn config_map(name: &str, owner: Option<&ConfigMap>) -> ConfigMap {
    let owners = owner.map(|owner| {
        json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "name": owner.name_any(),
            "uid": owner.uid().unwrap(), "blockOwnerDeletion": true,
        }])
    });
    typed(json!({"metadata": {"name": name, "ownerReferences": owners}}))
}

async fn create(maps: &Api<ConfigMap>, name: &str, owner: Option<&ConfigMap>) -> ConfigMap {
    maps.create(&PostParams::default(), &config_map(name, owner)).await.unwrap()
}

async fn names(maps: &Api<ConfigMap>) -> Vec<String> {
    maps.list(&ListParams::default()).await.unwrap().iter().map(kube::ResourceExt::name_any).collect()
}

async fn until_deleted(maps: &Api<ConfigMap>, object: &ConfigMap) {
    let (name, uid) = (object.name_any(), object.uid().unwrap());
    let gone = await_condition(maps.clone(), &name, conditions::is_deleted(&uid));
    tokio::time::timeout(PATIENCE, gone).await.unwrap_or_else(|_| panic!("{name} is still there")).unwrap();
}

/// Returns the code and the reason of a response that is an error of the server.
fn refusal<T>(answer: kube::Result<T>) -> (u16, String) {
    match answer {
        Err(kube::Error::Api(status)) => (status.code, status.reason),
        Err(other) => panic!("not an answer of the server: {other}"),
        Ok(_) => panic!("not refused"),
    }
}

/// Formats an event without its object.
fn shown<K: kube::ResourceExt>(event: Event<K>) -> (&'static str, String) {
    match event {
        Event::Init => ("init", String::new()),
        Event::InitApply(object) => ("init-apply", object.name_any()),
        Event::InitDone => ("init-done", String::new()),
        Event::Apply(object) => ("apply", object.name_any()),
        Event::Delete(object) => ("delete", object.name_any()),
    }
}

async fn next<K: kube::ResourceExt>(
    stream: &mut (impl Stream<Item = watcher::Result<Event<K>>> + Unpin),
) -> (&'static str, String) {
    shown(tokio::time::timeout(PATIENCE, stream.next()).await.unwrap().unwrap().unwrap())
}

/// Follows objects with a watcher, which lists (in each of its ways) and then watches.
async fn follow<K: kube::ResourceExt>(
    maps: &Api<ConfigMap>,
    stream: impl Stream<Item = watcher::Result<Event<K>>>,
) {
    let mut stream = std::pin::pin!(stream);
    assert_eq!(next(&mut stream).await.0, "init");
    let mut listed = BTreeSet::new();
    loop {
        match next(&mut stream).await {
            ("init-apply", name) => assert!(listed.insert(name)),
            other => break assert_eq!(other.0, "init-done"),
        }
    }
    let expected: BTreeSet<_> = (0..5).map(|number| format!("m{number}")).collect();
    assert_eq!(listed, expected);
    create(maps, "later", None).await;
    assert_eq!(next(&mut stream).await, ("apply", "later".to_owned()));
    let patch = Patch::Merge(json!({"data": {"k": "v"}}));
    maps.patch("later", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(next(&mut stream).await, ("apply", "later".to_owned()));
    maps.delete("later", &DeleteParams::default()).await.unwrap();
    assert_eq!(next(&mut stream).await, ("delete", "later".to_owned()));
}

#[tokio::test]
async fn watchers_list_in_pages_or_as_a_stream_and_then_follow() {
    let server = Kubegc::start_collectors();
    let client = server.client().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let metadata: Api<PartialObjectMeta<ConfigMap>> = Api::default_namespaced(client);
    for number in 0..5 {
        create(&maps, &format!("m{number}"), None).await;
    }
    let paged = watcher::Config::default().page_size(2);
    follow(&maps, watcher::watcher(maps.clone(), paged.clone())).await;
    follow(&maps, watcher::watcher(metadata.clone(), paged)).await;
    let streamed = watcher::Config::default().streaming_lists();
    follow(&maps, watcher::watcher(maps.clone(), streamed.clone())).await;
    follow(&maps, watcher::watcher(metadata, streamed)).await;
}

#[tokio::test]
async fn a_streamed_list_ends_with_its_bookmark() {
    let server = Kubegc::start("apiserver");
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client().await);
    create(&maps, "a", None).await;
    create(&maps, "b", None).await;
    let stream = maps.watch(&WatchParams::default().initial_events(), "0").await.unwrap();
    let mut stream = std::pin::pin!(stream);
    let mut listed = Vec::new();
    let version = loop {
        match tokio::time::timeout(PATIENCE, stream.try_next()).await.unwrap().unwrap().unwrap() {
            WatchEvent::Added(object) => listed.push(object.name_any()),
            WatchEvent::Bookmark(bookmark) => {
                assert_eq!(bookmark.metadata.annotations["k8s.io/initial-events-end"], "true");
                break bookmark.metadata.resource_version;
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(listed, ["a", "b"]);
    // A watch can begin where the stream was.
    create(&maps, "c", None).await;
    let resumed = maps.watch(&WatchParams::default(), &version).await.unwrap();
    let first = tokio::time::timeout(PATIENCE, std::pin::pin!(resumed).try_next()).await.unwrap();
    assert!(matches!(first.unwrap(), Some(WatchEvent::Added(object)) if object.name_any() == "c"));
}

#[tokio::test]
async fn a_reflector_holds_what_the_server_holds() {
    let server = Kubegc::start_collectors();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client().await);
    create(&maps, "gone", None).await;
    let (store, writer) = reflector::store();
    let stream = reflector(writer, watcher::watcher(maps.clone(), watcher::Config::default()));
    let driver = tokio::spawn(stream.for_each(|event| async move { drop(event.unwrap()) }));
    tokio::time::timeout(PATIENCE, store.wait_until_ready()).await.unwrap().unwrap();
    assert_eq!(store.state().iter().map(|map| map.name_any()).collect::<Vec<_>>(), ["gone"]);
    maps.delete("gone", &DeleteParams::default()).await.unwrap();
    create(&maps, "kept", None).await;
    let settled = async {
        while store.state().iter().map(|map| map.name_any()).collect::<Vec<_>>() != ["kept"] {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, settled).await.unwrap();
    driver.abort();
}

#[tokio::test]
async fn server_side_apply_tells_whose_fields_conflict() {
    let server = Kubegc::start("apiserver");
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client().await);
    let applied = |data: Value| {
        Patch::Apply(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"}, "data": data}),
        )
    };
    let (one, two) = (PatchParams::apply("one"), PatchParams::apply("two"));
    maps.patch("shared", &one, &applied(json!({"a": "1", "b": "1"}))).await.unwrap();
    // Two managers may own a field with the same value.
    maps.patch("shared", &two, &applied(json!({"b": "1", "c": "2"}))).await.unwrap();
    let refused = maps.patch("shared", &two, &applied(json!({"a": "2", "c": "2"}))).await;
    let Err(kube::Error::Api(status)) = refused else { panic!("{refused:?}") };
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    assert!(
        status.message.contains("conflict with \"one\"") && status.message.contains(".data.a"),
        "{status:?}"
    );
    let forced = maps.patch("shared", &two.force(), &applied(json!({"a": "2", "c": "2"}))).await.unwrap();
    assert_eq!(typed::<Value>(json!(forced.data)), json!({"a": "2", "b": "1", "c": "2"}));
    // `one` gives up all fields that it alone owns.
    let left = maps.patch("shared", &one, &applied(json!({}))).await.unwrap();
    assert_eq!(typed::<Value>(json!(left.data)), json!({"a": "2", "c": "2"}));
    // An unknown field may be a typing error, so nothing is applied with it.
    let unknown = Patch::Apply(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"}, "colour": "red"}),
    );
    let Err(kube::Error::Api(status)) = maps.patch("shared", &one, &unknown).await else { panic!() };
    let why = "failed to create typed patch object (/shared; /v1, Kind=ConfigMap): .colour: field not declared in schema";
    assert_eq!((status.code, status.message.as_str()), (500, why));
    // Without changes, the object stays at its version.
    let again = maps.patch("shared", &one, &applied(json!({}))).await.unwrap();
    assert_eq!(again.resource_version(), left.resource_version());
    let dry =
        maps.patch("shared", &one.clone().dry_run().force(), &applied(json!({"a": "3"}))).await.unwrap();
    assert_eq!(dry.data.unwrap()["a"], "3");
    assert_eq!(maps.get("shared").await.unwrap().data.unwrap()["a"], "2");
    let unnamed =
        maps.patch("shared", &PatchParams::default(), &Patch::Merge(json!({"data": {"a": "4"}}))).await;
    assert_eq!(unnamed.unwrap().data.unwrap()["a"], "4");
}

#[tokio::test]
async fn the_finalizer_helper_cleans_up_before_the_object_goes() {
    let server = Kubegc::start_collectors();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client().await);
    let reconcile = |object: ConfigMap| async {
        let mut seen = None;
        let done = finalizer(&maps, "kube-rs.example.com/clean", Arc::new(object), |event| {
            seen = Some(match event {
                FinalizerEvent::Apply(_) => "apply",
                FinalizerEvent::Cleanup(_) => "cleanup",
            });
            async { Ok::<_, Infallible>(Action::await_change()) }
        });
        done.await.unwrap();
        seen
    };
    let made = create(&maps, "held", None).await;
    // The first reconciliation adds a finalizer, with a JSON patch that tests that there was none; then it applies.
    assert_eq!(reconcile(made).await, None);
    let held = maps.get("held").await.unwrap();
    assert_eq!(held.finalizers(), ["kube-rs.example.com/clean"]);
    assert_eq!(reconcile(held).await, Some("apply"));
    assert!(maps.delete("held", &DeleteParams::default()).await.unwrap().is_left());
    let deleting = maps.get("held").await.unwrap();
    assert!(deleting.metadata.deletion_timestamp.is_some());
    assert_eq!(reconcile(deleting.clone()).await, Some("cleanup"));
    until_deleted(&maps, &deleting).await;
}

/// Creates an owner, two dependents of it, and a dependent of the first of these.
async fn family(maps: &Api<ConfigMap>) -> [ConfigMap; 4] {
    let owner = create(maps, "owner", None).await;
    let one = create(maps, "one", Some(&owner)).await;
    let two = create(maps, "two", Some(&owner)).await;
    let under = create(maps, "under", Some(&one)).await;
    [owner, one, two, under]
}

#[tokio::test]
async fn each_policy_deletes_as_it_says() {
    let server = Kubegc::start_collectors();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client().await);

    let [owner, one, two, under] = family(&maps).await;
    maps.delete("owner", &DeleteParams::background()).await.unwrap();
    assert_eq!(maps.get_opt("owner").await.unwrap(), None);
    for object in [&one, &two, &under] {
        until_deleted(&maps, object).await;
    }
    drop(owner);

    let [owner, one, two, under] = family(&maps).await;
    let kept = maps.delete("owner", &DeleteParams::foreground()).await.unwrap().left().unwrap();
    assert_eq!(kept.finalizers(), ["foregroundDeletion"]);
    until_deleted(&maps, &owner).await;
    // When the owner is gone, everything below it already is.
    assert_eq!(names(&maps).await, Vec::<String>::new());
    drop((one, two, under));

    let [owner, ..] = family(&maps).await;
    maps.delete("owner", &DeleteParams::orphan()).await.unwrap();
    until_deleted(&maps, &owner).await;
    let mut owners: Vec<_> = maps
        .list(&ListParams::default())
        .await
        .unwrap()
        .iter()
        .map(|map| (map.name_any(), map.owner_references().len()))
        .collect();
    owners.sort();
    assert_eq!(owners, [("one".to_owned(), 0), ("two".to_owned(), 0), ("under".to_owned(), 1)]);
}

#[tokio::test]
async fn deletions_observe_their_options() {
    let server = Kubegc::start("apiserver");
    let client = server.client().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let made = create(&maps, "a", None).await;
    let only = |uid: Option<String>, resource_version: Option<String>| {
        DeleteParams::default().preconditions(Preconditions { uid, resource_version })
    };
    let conflict = (409, "Conflict".to_owned());
    assert_eq!(refusal(maps.delete("a", &only(Some("other".into()), None)).await), conflict);
    assert_eq!(refusal(maps.delete("a", &only(None, Some("1".into()))).await), conflict);
    maps.delete("a", &DeleteParams::default().dry_run()).await.unwrap();
    maps.delete("a", &only(made.uid(), made.resource_version())).await.unwrap();
    assert_eq!(refusal(maps.delete("a", &DeleteParams::default()).await), (404, "NotFound".to_owned()));

    let pods: Api<Pod> = Api::default_namespaced(client);
    let pod: Pod = typed(json!({
        "metadata": {"name": "p"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
    }));
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let deleting = pods.delete("p", &DeleteParams::default().grace_period(9)).await.unwrap().left().unwrap();
    assert_eq!(deleting.metadata.deletion_grace_period_seconds, Some(9));
    pods.delete("p", &DeleteParams::default().grace_period(0)).await.unwrap();
    assert_eq!(pods.get_opt("p").await.unwrap(), None);

    for name in ["x", "y", "z"] {
        create(&maps, name, None).await;
    }
    let but_one = ListParams::default().fields("metadata.name!=y");
    maps.delete_collection(&DeleteParams::default(), &but_one).await.unwrap();
    assert_eq!(names(&maps).await, ["y"]);
}

async fn define(client: &Client) {
    let definition: CustomResourceDefinition = typed(json!({
        "metadata": {"name": "parts.kube-rs.example.com"},
        "spec": {
            "group": "kube-rs.example.com", "scope": "Namespaced",
            "names": {"plural": "parts", "singular": "part", "kind": "Part"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
                        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    },
                }},
            }],
        },
    }));
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    let ready = await_condition(definitions, "parts.kube-rs.example.com", conditions::is_crd_established());
    tokio::time::timeout(PATIENCE, ready).await.unwrap().unwrap();
}

#[tokio::test]
async fn dynamic_objects_are_discovered_and_collected() {
    let server = Kubegc::start_collectors();
    let client = server.client().await;
    define(&client).await;
    let kind = GroupVersionKind::gvk("kube-rs.example.com", "v1", "Part");
    // Discovery shows a definition a moment after it was established, as in any cluster.
    let discovered = async {
        loop {
            match kube::discovery::pinned_kind(&client, &kind).await {
                Ok(found) => break found,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    let (resource, capabilities) = tokio::time::timeout(PATIENCE, discovered).await.unwrap();
    assert_eq!(resource.plural, "parts");
    assert!(capabilities.subresources.iter().any(|(subresource, _)| subresource.plural == "status"));

    let parts: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &resource);
    let mut whole = DynamicObject::new("whole", &resource).data(json!({"spec": {"size": 3}}));
    whole = parts.create(&PostParams::default(), &whole).await.unwrap();
    let status = Patch::Merge(json!({"status": {"ready": true}, "spec": {"size": 4}}));
    let patched = parts.patch_status("whole", &PatchParams::default(), &status).await.unwrap();
    assert_eq!(patched.data, json!({"spec": {"size": 3}, "status": {"ready": true}}));

    let reference = json!([{
        "apiVersion": "kube-rs.example.com/v1", "kind": "Part", "name": "whole",
        "uid": whole.uid().unwrap(), "blockOwnerDeletion": true,
    }]);
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let dependent = typed(json!({"metadata": {"name": "of-the-whole", "ownerReferences": reference}}));
    maps.create(&PostParams::default(), &dependent).await.unwrap();
    parts.delete("whole", &DeleteParams::foreground()).await.unwrap();
    let uid = whole.uid().unwrap();
    let gone = await_condition(parts, "whole", conditions::is_deleted(&uid));
    // await_condition watches typed metadata only through `Resource::DynamicType: Default`; this one is dynamic.
    tokio::time::timeout(PATIENCE, gone).await.unwrap().unwrap();
    assert_eq!(names(&maps).await, Vec::<String>::new());
}
