//! Owners that are behind feature gates in Kubernetes 1.37: groups of pods that own claims (KEP-5729, KEP-6012), and requests for
//! evictions (KEP-4563). No version serves them by default, so the test defines them.

use std::time::Instant;

use http::Method;
use serde_json::{Value, json};

use super::{PATIENCE, World, none};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const GROUPS: &str = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups";
const EVICTIONS: &str = "/apis/lifecycle.k8s.io/v1alpha1/namespaces/default/evictions";
const EVICTION_REQUESTS: &str = "/apis/lifecycle.k8s.io/v1alpha1/namespaces/default/evictionrequests";

impl World {
    async fn define(&self, group: &str, version: &str, kind: &str) {
        let singular = kind.to_lowercase();
        let plural = format!("{singular}s");
        let schema =
            json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let definition = json!({
            "metadata": {"name": format!("{plural}.{group}"),
                "annotations": {"api-approved.kubernetes.io": "unapproved, served behind a gate elsewhere"}},
            "spec": {"group": group, "scope": "Namespaced",
                "names": {"plural": plural, "singular": singular, "kind": kind},
                "versions": [{"name": version, "served": true, "storage": true, "schema": schema}]},
        });
        let (code, answer) = self.send(Method::POST, DEFINITIONS, &definition).await;
        assert_eq!(code, 201, "{answer}");
        self.until_read(&format!("/apis/{group}/{version}/{plural}"), |code, _| code == 200).await;
    }

    async fn until_read(&self, path: &str, is_wanted: impl Fn(u16, &Value) -> bool) {
        let begun = Instant::now();
        loop {
            let (code, answer) = self.send(Method::GET, path, &Value::Null).await;
            if is_wanted(code, &answer) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{path}: {code} {answer}");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }

    async fn add(&self, path: &str, object: Value) -> Value {
        let (code, made) = self.send(Method::POST, path, &object).await;
        assert_eq!(code, 201, "{made}");
        made
    }

    /// Removes an object's finalizers.
    async fn release(&self, path: &str) {
        let (_, mut object) = self.send(Method::GET, path, &Value::Null).await;
        object["metadata"]["finalizers"] = json!([]);
        let (code, answer) = self.send(Method::PUT, path, &object).await;
        assert_eq!(code, 200, "{answer}");
    }

    /// Waits until the collector has handled all earlier writes: an orphan planted now is then gone.
    async fn until_handled(&self) {
        self.create("default", "planted-later", Some(("absent", "00000000-0000-4000-8000-000000000001")))
            .await;
        self.until("planted-later", 0).await;
    }
}

/// Returns a reference to an object.
fn owner(object: &Value) -> Value {
    json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "name": object["metadata"]["name"],
           "uid": object["metadata"]["uid"], "blockOwnerDeletion": true})
}

#[tokio::test]
async fn claims_follow_their_group_of_pods() {
    let world = World::start(none).await;
    world.define("scheduling.k8s.io", "v1beta1", "PodGroup").await;
    let protected = ["scheduling.k8s.io/podgroup-protection"];
    let group = json!({"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup",
        "metadata": {"name": "workers", "finalizers": protected}});
    let group = world.add(GROUPS, group).await;
    let claim = json!({"metadata": {"name": "gpus", "ownerReferences": [owner(&group)],
        "finalizers": ["resource.kubernetes.io/delete-protection"]}, "spec": {"devices": {}}});
    world.add(CLAIMS, claim).await;
    world.collect().await;
    // While the group waits for the end of its pods, its claims stay.
    let (group, claim) = (format!("{GROUPS}/workers"), format!("{CLAIMS}/gpus"));
    let (code, _) = world.send(Method::DELETE, &group, &Value::Null).await;
    assert_eq!(code, 200);
    world.until_handled().await;
    let (_, held) = world.send(Method::GET, &claim, &Value::Null).await;
    assert_eq!(held["metadata"].get("deletionTimestamp"), None, "{held}");
    world.release(&group).await;
    world.until_read(&group, |code, _| code == 404).await;
    // The claim is deleted, but held until it is no longer allocated.
    world.until_read(&claim, |_, claim| claim["metadata"]["deletionTimestamp"].is_string()).await;
    world.release(&claim).await;
    world.until_read(&claim, |code, _| code == 404).await;
}

#[tokio::test]
async fn an_eviction_follows_the_last_of_its_requests() {
    let world = World::start(none).await;
    world.define("lifecycle.k8s.io", "v1alpha1", "EvictionRequest").await;
    world.define("lifecycle.k8s.io", "v1alpha1", "Eviction").await;
    let mut owners = Vec::new();
    for name in ["drain", "descheduler"] {
        let request = json!({"apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "EvictionRequest", "metadata": {"name": name}});
        owners.push(owner(&world.add(EVICTION_REQUESTS, request).await));
    }
    let eviction = json!({"apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "Eviction",
        "metadata": {"name": "web", "ownerReferences": owners}});
    world.add(EVICTIONS, eviction).await;
    world.collect().await;
    let eviction = format!("{EVICTIONS}/web");
    let (code, _) = world.send(Method::DELETE, &format!("{EVICTION_REQUESTS}/drain"), &Value::Null).await;
    assert_eq!(code, 200);
    // The other request still needs it.
    let is_of_one = |_: u16, eviction: &Value| {
        let owners = eviction["metadata"]["ownerReferences"].as_array();
        owners.is_some_and(|owners| owners.len() == 1 && owners[0]["name"] == "descheduler")
    };
    world.until_read(&eviction, is_of_one).await;
    let (code, _) =
        world.send(Method::DELETE, &format!("{EVICTION_REQUESTS}/descheduler"), &Value::Null).await;
    assert_eq!(code, 200);
    world.until_read(&eviction, |code, _| code == 404).await;
}
