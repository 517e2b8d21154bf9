//! Velero backups of whole clusters, restored into others like Velero does it, and relinked.

use std::collections::BTreeMap;

use gc_explain::Catalog;
use gc_explain::relink::{Backup, Evidence, Relink};
use gc_inspect::gather::Reading;
use gc_inspect::output::Answer as _;
use http::Method;
use serde_json::{Value, json};

use super::super::relink::{self, RelinkAnswer};
use super::super::velero;
use super::{PATIENCE, World};

/// Members of `metadata` that Velero removes from every object that it creates.
const RESET: [&str; 9] = [
    "generateName",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "ownerReferences",
];
/// Annotations of volumes and claims that Velero removes.
const BINDING: [&str; 5] = [
    "pv.kubernetes.io/bind-completed",
    "pv.kubernetes.io/bound-by-controller",
    "volume.kubernetes.io/storage-provisioner",
    "volume.beta.kubernetes.io/storage-provisioner",
    "volume.kubernetes.io/selected-node",
];
/// Labels by which Jobs identify their pods.
const UID_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];
/// Resources that are restored first, in this order; the others follow by name.
const FIRST: [&str; 11] = [
    "customresourcedefinitions.apiextensions.k8s.io",
    "namespaces",
    "storageclasses.storage.k8s.io",
    "persistentvolumes",
    "persistentvolumeclaims",
    "serviceaccounts",
    "secrets",
    "configmaps",
    "priorityclasses.scheduling.k8s.io",
    "pods",
    "replicasets.apps",
];
/// Resources that are never restored.
const SKIPPED: [&str; 5] = [
    "nodes",
    "events",
    "events.events.k8s.io",
    "csinodes.storage.k8s.io",
    "volumeattachments.storage.k8s.io",
];

/// Returns everything that matters in a cluster, by resource, without the objects that every namespace has.
async fn contents(world: &World) -> Vec<(String, Value)> {
    let gatherer = world.gatherer().await;
    let mut found = Vec::new();
    for resource in gatherer.catalog.all().iter().filter(|resource| resource.is_collectable()) {
        let name = resource.name.to_string();
        let take = |object: &Value| {
            let mut object = object.clone();
            object["apiVersion"] = resource.api_version().into();
            object["kind"] = (&*resource.kind).into();
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
            let is_marked = !object["metadata"]["labels"]["test"].is_null();
            if is_marked
                || (name == "namespaces" && namespace.is_empty() && object["metadata"]["name"] == "shop")
            {
                found.push((name.clone(), object));
            }
        };
        gatherer.each(resource, "", Reading::Whole, take).await.unwrap();
    }
    found
}

fn without(object: &mut Value, pointer: &str, members: &[&str]) {
    if let Some(map) = object.pointer_mut(pointer).and_then(Value::as_object_mut) {
        map.retain(|name, _| !members.contains(&name.as_str()));
    }
}

/// Returns an object as Velero creates it, if it does.
fn as_velero_creates(resource: &str, object: &Value, namespaces: &[(&str, &str)]) -> Option<Value> {
    let is_complete = match resource {
        "pods" => matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed")),
        "jobs.batch" => !object["status"]["completionTime"].is_null(),
        _ => false,
    };
    if is_complete || SKIPPED.contains(&resource) {
        return None;
    }
    let mut object = object.clone();
    without(&mut object, "", &["status"]);
    without(&mut object, "/metadata", &RESET);
    match resource {
        "persistentvolumes" => {
            without(&mut object, "/spec/claimRef", &["uid", "resourceVersion"]);
            without(&mut object, "/metadata/annotations", &BINDING);
        }
        "persistentvolumeclaims" => without(&mut object, "/metadata/annotations", &BINDING),
        "pods" => without(&mut object, "/spec", &["nodeName", "priority"]),
        "jobs.batch" => {
            without(&mut object, "/spec/selector/matchLabels", &UID_LABELS);
            without(&mut object, "/spec/template/metadata/labels", &UID_LABELS);
        }
        _ => {}
    }
    for pointer in ["/metadata/namespace", "/spec/claimRef/namespace"] {
        if let Some(namespace) = object.pointer_mut(pointer)
            && let Some((_, new)) = namespaces.iter().find(|(old, _)| *namespace == *old)
        {
            *namespace = (*new).into();
        }
    }
    if resource != "namespaces" {
        // Managed fields are restored with a patch afterwards.
        without(&mut object, "/metadata", &["managedFields"]);
        object["metadata"]["labels"]["velero.io/restore-name"] = "monday".into();
        object["metadata"]["labels"]["velero.io/backup-name"] = "nightly".into();
    }
    Some(object)
}

/// Restores a backup, in the order of the resources; existing objects are left as they are.
async fn restore(world: &World, objects: &[(String, Value)], namespaces: &[(&str, &str)]) {
    let rank = |resource: &str| FIRST.iter().position(|first| *first == resource).unwrap_or(FIRST.len());
    let mut sorted: Vec<&(String, Value)> = objects.iter().collect();
    sorted.sort_by_key(|(resource, _)| (rank(resource), resource.clone()));
    for (old, new) in namespaces {
        assert!(old != new);
        world.send(Method::POST, "/api/v1/namespaces", json!({"metadata": {"name": new}})).await;
    }
    let mut catalog = world.gatherer().await.catalog;
    for (resource, object) in sorted {
        let Some(object) = as_velero_creates(resource, object, namespaces) else { continue };
        if resource == "namespaces" && !namespaces.is_empty() {
            continue;
        }
        let path = collection(world, &mut catalog, &object).await;
        match super::send(&world.client, Method::POST, &path, Some(&object)).await {
            Ok(_) => {}
            Err(error) if error.is(http::StatusCode::CONFLICT) => {}
            Err(error) => panic!("{path}: {error}: {object}"),
        }
    }
}

/// Returns the path of an object's collection, once its kind is served.
async fn collection(world: &World, catalog: &mut Catalog, object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    for _ in 0..1_000 {
        if let Some(resource) = catalog.of_kind(text("/apiVersion"), text("/kind")) {
            return resource.path(text("/metadata/namespace"));
        }
        tokio::time::sleep(super::REST).await;
        *catalog = world.gatherer().await.catalog;
    }
    panic!("{} is never served", text("/kind"))
}

/// Returns the owners like `kubegc tree`, which marks dangling references.
fn owners(objects: &[(String, Value)]) -> BTreeMap<String, Vec<String>> {
    let uids: BTreeMap<&str, String> = objects
        .iter()
        .map(|(_, object)| (object["metadata"]["uid"].as_str().unwrap(), title(object)))
        .collect();
    let line = |owner: &Value| {
        let found = uids.get(owner["uid"].as_str().unwrap()).map_or("nothing", String::as_str);
        format!("{found} {} {}", owner["controller"], owner["blockOwnerDeletion"])
    };
    objects
        .iter()
        .map(|(_, object)| {
            let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            let mut lines: Vec<String> = owners.map(line).collect();
            if let Some(claim) = object.pointer("/spec/claimRef/uid").and_then(Value::as_str) {
                lines.push(format!("claimed by {}", uids.get(claim).map_or("nothing", String::as_str)));
            }
            (title(object), lines)
        })
        .collect()
}

fn title(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    format!("{} {}", text("/kind"), text("/metadata/name"))
}

/// Creates objects with the owners that they name.
struct Builder<'a> {
    world: &'a World,
    catalog: Catalog,
    uids: BTreeMap<String, (Value, String)>,
}

impl<'a> Builder<'a> {
    async fn new(world: &'a World) -> Self {
        Self { world, catalog: world.gatherer().await.catalog, uids: BTreeMap::new() }
    }

    /// Creates `Kind name` with owners: `Kind name`, and `*` for the controller.
    async fn add(
        &mut self,
        api_version: &str,
        kind: &str,
        name: &str,
        owners: &[&str],
        more: Value,
    ) -> String {
        let owners: Vec<Value> = owners
            .iter()
            .map(|owner| {
                let title = owner.trim_end_matches('*');
                let (owned, uid) = &self.uids[title];
                let mut reference = json!({"apiVersion": owned["apiVersion"], "kind": owned["kind"],
                    "name": owned["metadata"]["name"], "uid": uid});
                if owner.ends_with('*') {
                    reference["controller"] = true.into();
                    reference["blockOwnerDeletion"] = true.into();
                }
                reference
            })
            .collect();
        let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name,
            "labels": {"test": "", "app": name}, "ownerReferences": owners}});
        for (pointer, value) in more.as_object().unwrap() {
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            object.pointer_mut(parent).unwrap()[field] = value.clone();
        }
        // Its kind may be served only in a moment.
        collection(self.world, &mut self.catalog, &object).await;
        let resource = self.catalog.of_kind(api_version, kind).unwrap();
        if resource.is_namespaced() {
            object["metadata"]["namespace"] = "shop".into();
        }
        let path = resource.path(object["metadata"]["namespace"].as_str().unwrap_or_default());
        let created = self.world.send(Method::POST, &path, object.clone()).await;
        let uid = super::uid(&created);
        self.uids.insert(format!("{kind} {name}"), (object, uid.clone()));
        uid
    }

    /// Creates a Deployment, a StatefulSet with claims, a Job, a CronJob and custom resources, with the objects that their
    /// controllers create.
    async fn shop(&mut self) {
        self.world.send(Method::POST, "/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await;
        self.deployment().await;
        self.stateful_set().await;
        self.jobs().await;
        self.custom_resources().await;
    }

    async fn deployment(&mut self) {
        let template = |app: &str| json!({"metadata": {"labels": {"app": app}}, "spec": pod_spec()});
        let spec = json!({"selector": {"matchLabels": {"app": "web"}}, "template": template("web")});
        self.add("apps/v1", "Deployment", "web", &[], json!({"/spec": spec})).await;
        for set in ["web-1", "web-2"] {
            let spec = json!({"selector": {"matchLabels": {"app": "web"}}, "template": template("web"), "replicas": 0});
            self.add("apps/v1", "ReplicaSet", set, &["Deployment web*"], json!({"/spec": spec})).await;
        }
        for pod in ["web-2-a", "web-2-b"] {
            self.add("v1", "Pod", pod, &["ReplicaSet web-2*"], json!({"/spec": pod_spec()})).await;
        }
    }

    async fn stateful_set(&mut self) {
        let spec = json!({"serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
            "template": {"metadata": {"labels": {"app": "db"}}, "spec": pod_spec()}});
        self.add("apps/v1", "StatefulSet", "db", &[], json!({"/spec": spec})).await;
        self.add("v1", "Pod", "db-0", &["StatefulSet db*"], json!({"/spec": pod_spec()})).await;
        self.add(
            "apps/v1",
            "ControllerRevision",
            "db-1",
            &["StatefulSet db*"],
            json!({"/revision": 1, "/data": {"spec": {}}}),
        )
        .await;
        let size = json!({"requests": {"storage": "1Gi"}});
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": size, "volumeName": "pv-0", "storageClassName": ""});
        let more =
            json!({"/spec": spec, "/metadata/annotations": {"pv.kubernetes.io/bind-completed": "yes"}});
        let claim = self.add("v1", "PersistentVolumeClaim", "data-db-0", &["StatefulSet db"], more).await;
        let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/tmp/pv-0"},
            "persistentVolumeReclaimPolicy": "Retain", "claimRef": {"kind": "PersistentVolumeClaim", "apiVersion": "v1",
            "namespace": "shop", "name": "data-db-0", "uid": claim, "resourceVersion": "5"}});
        self.add("v1", "PersistentVolume", "pv-0", &[], json!({"/spec": spec})).await;
    }

    async fn jobs(&mut self) {
        let template = || json!({"spec": {"restartPolicy": "Never", "containers": pod_spec()["containers"]}});
        let spec = json!({"schedule": "@daily", "jobTemplate": {"spec": {"template": template()}}});
        self.add("batch/v1", "CronJob", "report", &[], json!({"/spec": spec})).await;
        for (job, owners) in [("mail", &[][..]), ("report-1", &["CronJob report*"])] {
            let uid =
                self.add("batch/v1", "Job", job, owners, json!({"/spec": {"template": template()}})).await;
            let labels =
                json!({"test": "", "controller-uid": uid, "batch.kubernetes.io/controller-uid": uid});
            let more = json!({"/spec": template()["spec"], "/metadata/labels": labels});
            self.add("v1", "Pod", &format!("{job}-x"), &[&format!("Job {job}*")], more).await;
        }
    }

    /// Defines three kinds, the first at cluster scope.
    async fn definitions(&mut self) {
        for (kind, plural, scope) in [
            ("Platform", "platforms", "Cluster"),
            ("Tenant", "tenants", "Namespaced"),
            ("Quota", "quotas", "Namespaced"),
        ] {
            let schema =
                json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
            let spec = json!({"group": "acme.dev", "scope": scope, "names": {"kind": kind, "plural": plural},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]});
            let name = format!("{plural}.acme.dev");
            self.add(
                "apiextensions.k8s.io/v1",
                "CustomResourceDefinition",
                &name,
                &[],
                json!({"/spec": spec}),
            )
            .await;
        }
    }

    /// Creates three levels, the first at cluster scope, and an object with several owners.
    async fn custom_resources(&mut self) {
        self.definitions().await;
        self.add_custom("Platform", "main", &[]).await;
        self.add_custom("Tenant", "blue", &["Platform main*"]).await;
        self.add_custom("Quota", "small", &["Tenant blue*"]).await;
        let owners = ["Quota small*", "Platform main", "Deployment web"];
        self.add("v1", "ConfigMap", "limits", &owners, json!({})).await;
    }

    async fn add_custom(&mut self, kind: &str, name: &str, owners: &[&str]) {
        let probe = json!({"apiVersion": "acme.dev/v1", "kind": kind, "metadata": {}});
        collection(self.world, &mut self.catalog, &probe).await;
        self.add("acme.dev/v1", kind, name, owners, json!({})).await;
    }
}

fn pod_spec() -> Value {
    json!({"containers": [{"name": "c", "image": "i"}]})
}

/// Returns the archive as the command reads it.
fn evidence(objects: &[(String, Value)]) -> Evidence {
    let objects: Vec<(&str, Value)> =
        objects.iter().map(|(resource, object)| (resource.as_str(), object.clone())).collect();
    let mut backup = Backup::default();
    velero::read(velero::tests::backup(&objects).as_slice(), &mut backup).unwrap();
    Evidence { backup: Some(backup), ..Evidence::default() }
}

async fn plan(world: &World, evidence: &mut Evidence) -> Relink {
    let (found, unseen) = relink::plan(&world.gatherer().await, "", evidence, PATIENCE).await.unwrap();
    assert_eq!(unseen, [""; 0]);
    found
}

fn shown(found: &Relink) -> String {
    let mut out = Vec::new();
    RelinkAnswer { found, is_done: false, is_partial: false }.text(false, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Everything that Velero removes is restored; a second run finds nothing to do, and the collector nothing to delete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_velero_restore_is_relinked_as_it_was() {
    let source = World::start(&["-garbage-collector-controller"]).await;
    Builder::new(&source).await.shop().await;
    let before = contents(&source).await;
    let references: usize = owners(&before).values().map(Vec::len).sum();
    assert_eq!(references, 16, "{:#?}", owners(&before));
    let mut evidence = evidence(&before);
    source.cluster.shutdown().await;

    let target = World::start(&["-garbage-collector-controller"]).await;
    restore(&target, &before, &[]).await;
    let stripped = contents(&target).await;
    assert!(owners(&stripped).values().all(Vec::is_empty), "{:#?}", owners(&stripped));
    let found = plan(&target, &mut evidence).await;
    let text = shown(&found);
    assert!(text.contains("0 of 16 references of the backup restored, 16 can be.\n"), "{text}");
    assert!(!text.contains("Nothing to do") && !found.is_complete());
    let catalog = target.gatherer().await.catalog;
    assert_eq!(relink::perform(&target.client, &catalog, &found.patches).await, []);
    assert_eq!(owners(&contents(&target).await), owners(&before));
    // A Job identifies its pods by its UID.
    for (_, pod) in contents(&target).await.iter().filter(|(resource, _)| resource == "pods") {
        let labels = &pod["metadata"]["labels"];
        let owner = &pod["metadata"]["ownerReferences"][0]["uid"];
        assert!(labels["controller-uid"].is_null() || labels["controller-uid"] == *owner, "{labels}");
    }
    let again = plan(&target, &mut evidence).await;
    assert_eq!(shown(&again), "16 of 16 references of the backup restored.\nNothing to do.\n");
    let collected =
        World::from(target.cluster.fork().unwrap().with_controllers(&["garbage-collector-controller"])).await;
    collected.settle().await;
    assert_eq!(owners(&contents(&collected).await), owners(&before));
    collected.cluster.shutdown().await;
    target.cluster.shutdown().await;
}

/// Numbers of a generator (splitmix), the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        usize::try_from((mixed ^ (mixed >> 27)) % u64::try_from(limit).unwrap()).unwrap()
    }
}

impl Builder<'_> {
    /// A tree of up to eight objects of several kinds and scopes: each names up to three of those before it, at most one as its
    /// controller. Returns the number of references.
    async fn generated(&mut self, tree: usize, numbers: &mut Numbers) -> usize {
        let template = json!({"metadata": {"labels": {"app": "g"}}, "spec": pod_spec()});
        let sets = json!({"/spec": {"selector": {"matchLabels": {"app": "g"}}, "template": template, "replicas": 0},
            "/metadata/labels": {"test": "", "app": "g"}});
        let kinds = [
            ("v1", "ConfigMap", json!({})),
            ("v1", "Secret", json!({})),
            ("v1", "ServiceAccount", json!({})),
            ("apps/v1", "ReplicaSet", sets),
            ("v1", "Pod", json!({"/spec": pod_spec()})),
            ("acme.dev/v1", "Tenant", json!({})),
            ("acme.dev/v1", "Quota", json!({})),
        ];
        let mut titles = vec![format!("Platform p{tree}")];
        self.add("acme.dev/v1", "Platform", &format!("p{tree}"), &[], json!({})).await;
        let mut references = 0;
        for number in 0..=numbers.below(7) {
            let (api_version, kind, more) = &kinds[numbers.below(kinds.len())];
            let mut owners: Vec<String> = Vec::new();
            for _ in 0..=numbers.below(3) {
                let owner = &titles[numbers.below(titles.len())];
                if owners.iter().any(|known| known.trim_end_matches('*') == owner) {
                    continue;
                }
                let controls = owners.is_empty() && numbers.below(2) == 0;
                owners.push(format!("{owner}{}", if controls { "*" } else { "" }));
            }
            references += owners.len();
            let owners: Vec<&str> = owners.iter().map(String::as_str).collect();
            let name = format!("g{tree}-{number}");
            self.add(api_version, kind, &name, &owners, more.clone()).await;
            titles.push(format!("{kind} {name}"));
        }
        references
    }
}

/// Fifty generated trees lose all of their references in a restore, and have each of them again, as it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_references_of_generated_trees_are_restored() {
    let source = World::start(&["-garbage-collector-controller"]).await;
    source.send(Method::POST, "/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await;
    let mut builder = Builder::new(&source).await;
    builder.definitions().await;
    let (mut numbers, mut references) = (Numbers(38), 0);
    for tree in 0..50 {
        references += builder.generated(tree, &mut numbers).await;
    }
    let before = contents(&source).await;
    let own = owners(&before);
    assert_eq!((references, own.values().map(Vec::len).sum::<usize>()), (301, 301));
    let mut evidence = evidence(&before);
    source.cluster.shutdown().await;

    let target = World::start(&["-garbage-collector-controller"]).await;
    restore(&target, &before, &[]).await;
    assert!(owners(&contents(&target).await).values().all(Vec::is_empty));
    let found = plan(&target, &mut evidence).await;
    let catalog = target.gatherer().await.catalog;
    assert_eq!(relink::perform(&target.client, &catalog, &found.patches).await, []);
    assert_eq!(owners(&contents(&target).await), own);
    assert!(plan(&target, &mut evidence).await.is_complete());
    target.cluster.shutdown().await;
}

/// Beside the original, under another name of the namespace: each copy has its own owners.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_that_was_restored_under_another_name_is_relinked() {
    let world = World::start(&["-garbage-collector-controller"]).await;
    let mut builder = Builder::new(&world).await;
    world.send(Method::POST, "/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await;
    builder.deployment().await;
    builder.custom_resources().await;
    let before = contents(&world).await;
    let mut evidence = evidence(&before);
    restore(&world, &before, &[("shop", "shop-2")]).await;
    let found = plan(&world, &mut evidence).await;
    assert!(
        shown(&found).contains("Namespace shop of the backup is compared with shop-2.\n"),
        "{}",
        shown(&found)
    );
    let catalog = world.gatherer().await.catalog;
    assert_eq!(relink::perform(&world.client, &catalog, &found.patches).await, []);
    let after = contents(&world).await;
    let copies: Vec<&(String, Value)> =
        after.iter().filter(|(_, object)| object["metadata"]["namespace"] == "shop-2").collect();
    assert_eq!(copies.len(), 8);
    let uids: BTreeMap<&str, &Value> = after
        .iter()
        .map(|(_, object)| (object["metadata"]["uid"].as_str().unwrap(), &object["metadata"]["namespace"]))
        .collect();
    for (_, copy) in copies {
        for owner in copy["metadata"]["ownerReferences"].as_array().into_iter().flatten() {
            let namespace = uids[owner["uid"].as_str().unwrap()];
            assert!(namespace.is_null() || namespace == "shop-2", "{}", title(copy));
        }
    }
    let again = plan(&world, &mut evidence).await;
    assert!(again.is_complete(), "{}", shown(&again));
    world.cluster.shutdown().await;
}
