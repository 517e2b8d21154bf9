//! Watches of objects that others depend on lie: they report removals that no store made, break off, or are something else. Before
//! a collector deletes because something is missing, it must read or list it, and used objects must stay.

use super::liars::{JSON, Lie, bound_volume, lie, reclaimer};
use super::*;

/// Returns a line of a watch about an object.
fn line(event: &str, object: &Value) -> String {
    json!({"type": event, "object": object}).to_string() + "\n"
}

/// Returns answers to a watch of these objects: invalid ones, interrupted ones, and events that no store produced. The last one
/// reports that every object was removed, and continues with the server's events.
fn lies_about(objects: &[Value]) -> Vec<Lie> {
    let about_all = |event: &str, change: &dyn Fn(&mut Value)| -> String {
        let lines = objects.iter().map(|object| {
            let mut object = object.clone();
            change(&mut object);
            line(event, &object)
        });
        lines.collect()
    };
    let version = |version: &'static str| {
        move |object: &mut Value| object["metadata"]["resourceVersion"] = version.into()
    };
    let other_kind = |object: &mut Value| {
        object["kind"] = "Secret".into();
        version("900000")(object);
    };
    let bookmark = json!({"kind": objects[0]["kind"], "apiVersion": objects[0]["apiVersion"],
        "metadata": {"resourceVersion": "999999999"}});
    let of_the_last = about_all("DELETED", &version("900001"));
    let broken = of_the_last[..of_the_last.len() / 2 + 20].to_owned();
    vec![
        lie(200, "text/html", "<html></html>\n"),
        lie(200, JSON, &b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"[..]),
        lie(200, JSON, about_all("DELETED", &version(""))),
        lie(200, JSON, about_all("DELETED", &other_kind)),
        lie(200, JSON, line("BOOKMARK", &bookmark)),
        lie(200, JSON, broken),
        lie(200, JSON, of_the_last).and_the_truth(),
    ]
}

impl World {
    /// Creates objects in a collection whose watch will lie about them.
    async fn create_denied(&self, collection: &str, watched: &str, objects: Vec<Value>) {
        let mut made = Vec::new();
        for object in objects {
            made.push(self.create(collection, object).await);
        }
        self.lie_about(watched, &made);
    }

    fn lie_about(&self, watched: &str, objects: &[Value]) {
        let lies = lies_about(objects);
        self.liars.watches(watched, lies);
    }

    /// Advances the clock until a watch has delivered all its lies, and every counted request was made.
    async fn until_all_is_read(&self, milliseconds: i64) {
        self.until_later("the lies of a watch", milliseconds, async || self.liars.left_to_say() == 0).await;
        self.until_later("every live read", milliseconds, async || self.liars.asked() >= 1).await;
    }
}

const NAMES: [&str; 3] = ["a", "b", "c"];

#[tokio::test]
async fn pods_stay_whatever_the_watch_of_their_nodes_says() {
    let world = World::start().await;
    let nodes = NAMES.map(|name| json!({"metadata": {"name": name}}));
    world.create_denied(NODES, NODES, nodes.into()).await;
    for name in NAMES.into_iter().chain(["nowhere"]) {
        world.create(PODS, pod(name, name)).await;
        world.patch(&format!("{PODS}/{name}/status"), json!({"status": {"phase": "Running"}})).await;
    }
    for name in NAMES {
        world.liars.counts(format!("{NODES}/{name}"));
    }
    let running = world.collect(Controller::PodGarbageCollector, PodCollector::new(0), NothingOutside).await;
    world.until_ended("nowhere").await;
    world.until_all_is_read(10_000).await;
    running.stop().await;
    world.assert_running(NAMES).await;
}

#[tokio::test]
async fn leases_stay_whatever_the_watch_of_their_nodes_says() {
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let world = World::start().await;
    let nodes = NAMES.map(|name| json!({"metadata": {"name": name}}));
    world.create_denied(NODES, NODES, nodes.into()).await;
    let spec = json!({"leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z"});
    for name in NAMES.into_iter().chain(["nowhere"]) {
        world.create(LEASES, json!({"metadata": {"name": name}, "spec": spec})).await;
    }
    for name in NAMES {
        world.liars.counts(format!("{NODES}/{name}"));
    }
    let running = world.collect(Controller::StaleLease, LeaseCollector::new(true), NothingOutside).await;
    world.until_gone(&format!("{LEASES}/nowhere")).await;
    world.until_all_is_read(10_000).await;
    running.stop().await;
    for name in NAMES {
        assert_eq!(world.get(&format!("{LEASES}/{name}")).await.0, 200, "{name}");
    }
}

#[tokio::test]
async fn claims_stay_whatever_the_watch_of_pods_says() {
    let world = World::start().await;
    let mut users = Vec::new();
    for name in NAMES {
        world.create(CLAIMS, claim(name)).await;
        let mut user = pod(name, "n");
        user["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": name}}]);
        users.push(user);
    }
    world.create_denied(PODS, "/api/v1/pods", users).await;
    let running =
        world.collect(Controller::ClaimProtection, ClaimProtection::new(false), NothingOutside).await;
    world.until_later("the lies of a watch", 500, async || world.liars.left_to_say() == 0).await;
    world.liars.counts(format!("{PODS}?limit="));
    for name in NAMES {
        world.delete(&format!("{CLAIMS}/{name}")).await;
    }
    world.until_all_is_read(1_000).await;
    world.create(CLAIMS, claim("unused")).await;
    world.delete(&format!("{CLAIMS}/unused")).await;
    world.until_gone(&format!("{CLAIMS}/unused")).await;
    running.stop().await;
    for name in NAMES {
        let (code, claim) = world.get(&format!("{CLAIMS}/{name}")).await;
        assert_eq!(
            (code, &claim["metadata"]["finalizers"]),
            (200, &json!(["kubernetes.io/pvc-protection"])),
            "{name}"
        );
    }
}

#[tokio::test]
async fn volumes_stay_whatever_the_watches_of_claims_and_attachments_say() {
    const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";
    let world = World::start().await;
    let mut claims = Vec::new();
    for name in NAMES {
        let mut made = world.create(CLAIMS, claim(name)).await;
        world.patch(&format!("{CLAIMS}/{name}"), json!({"spec": {"volumeName": name}})).await;
        bound_volume(&world, name, (name, made["metadata"]["uid"].as_str().unwrap())).await;
        world.liars.counts(format!("{CLAIMS}/{name}"));
        claims.push(made.take());
    }
    world.lie_about("/api/v1/persistentvolumeclaims", &claims);
    bound_volume(&world, "attached", ("none", "none")).await;
    let attachment = json!({"metadata": {"name": "a"}, "spec": {"attacher": "disk.example.com", "nodeName": "n",
        "source": {"persistentVolumeName": "attached"}}});
    world.create_denied(ATTACHMENTS, ATTACHMENTS, vec![attachment]).await;
    bound_volume(&world, "gone", ("none", "none")).await;
    let outside = answers();
    let running = world.collect(Controller::VolumeReclaim, reclaimer(), outside.clone()).await;
    world.until_gone(&format!("{VOLUMES}/gone")).await;
    world.until_all_is_read(1_000).await;
    running.stop().await;
    for name in NAMES {
        let (code, volume) = world.get(&format!("{VOLUMES}/{name}")).await;
        assert_eq!((code, &volume["status"]["phase"]), (200, &json!("Bound")), "{name}");
    }
    assert_eq!(world.get(&format!("{VOLUMES}/attached")).await.0, 200);
    let calls = outside.calls.lock().unwrap().clone();
    assert!(calls.iter().all(|call| call.starts_with("gone ")), "{calls:?}");
}

#[tokio::test]
async fn storage_versions_stay_whatever_the_watch_of_leases_says() {
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let world = World::start().await;
    small::define(&world, "internal.apiserver.k8s.io", "v1alpha1", "StorageVersion", "Cluster").await;
    let labels = json!({"apiserver.kubernetes.io/identity": "kube-apiserver"});
    let leases = NAMES.map(|name| json!({"metadata": {"name": name, "labels": labels}, "spec": {}}));
    world.create_denied(LEASES, LEASES, leases.into()).await;
    for server in NAMES.into_iter().chain(["nowhere"]) {
        let version = json!({"metadata": {"name": server}, "spec": {}});
        small::create(&world, small::VERSION, small::VERSIONS, version).await;
        let entry = json!({"apiServerID": server, "encodingVersion": "v1", "decodableVersions": ["v1"]});
        let path = format!("{}/{server}/status", small::VERSIONS);
        world.patch(&path, json!({"status": {"storageVersions": [entry]}})).await;
    }
    for name in NAMES {
        world.liars.counts(format!("{LEASES}/{name}"));
    }
    let collector = gc_collectors::storage_versions::StorageVersionCollector::default();
    let running = world.collect(Controller::StorageVersion, collector, NothingOutside).await;
    world.until_gone(&format!("{}/nowhere", small::VERSIONS)).await;
    world.until_all_is_read(10_000).await;
    running.stop().await;
    for server in NAMES {
        let (code, version) = world.get(&format!("{}/{server}", small::VERSIONS)).await;
        let entries = version["status"]["storageVersions"].as_array().map(Vec::len);
        assert_eq!((code, entries), (200, Some(1)), "{server}");
    }
}
