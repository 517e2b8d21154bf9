//! The small collectors. Kinds that a server does not serve by default are defined here, some of them while their collector waits.

use gc_collectors::lease_candidates::LeaseCandidateCollector;
use gc_collectors::pod_certificates::PodCertificateCollector;
use gc_collectors::storage_versions::StorageVersionCollector;
use gc_collectors::tokens::{CLEAN_UP_PERIOD_MILLISECONDS, TokenCollector};

use super::*;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
pub(super) const VERSION: (&str, &str) = ("internal.apiserver.k8s.io/v1alpha1", "StorageVersion");
pub(super) const VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
const MINUTE: i64 = 60_000;
const DAY: i64 = 24 * HOUR;

/// Creates a custom object, which must state its type.
pub(super) async fn create(world: &World, (api_version, kind): (&str, &str), path: &str, mut object: Value) {
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    world.create(path, object).await;
}

/// Makes the server serve a kind that it does not serve by default.
pub(super) async fn define(world: &World, group: &str, version: &str, kind: &str, scope: &str) {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({
        "metadata": {"name": format!("{plural}.{group}"),
            "annotations": {"api-approved.kubernetes.io": "unapproved, served behind a gate elsewhere"}},
        "spec": {"group": group, "scope": scope, "names": {"plural": plural, "singular": singular, "kind": kind},
            "versions": [{"name": version, "served": true, "storage": true, "schema": schema,
                "subresources": {"status": {}}}]},
    });
    world.create(DEFINITIONS, definition).await;
    world.until("the kind", &format!("/apis/{group}/{version}/{plural}"), |code, _| code == 200).await;
}

#[tokio::test]
async fn pod_certificate_requests() {
    const REQUEST: (&str, &str) = ("certificates.k8s.io/v1beta1", "PodCertificateRequest");
    const REQUESTS: &str = "/apis/certificates.k8s.io/v1beta1/namespaces/default/podcertificaterequests";
    let world = World::start().await;
    let running = world
        .collect(Controller::PodCertificateCleaner, PodCertificateCollector::default(), NothingOutside)
        .await;
    // The collector waits while they are not served, and begins once they are.
    let deadline = Instant::now() + PATIENCE;
    while !running.asked.lock().unwrap().contains("list podcertificaterequests.certificates.k8s.io") {
        assert!(Instant::now() < deadline, "nothing was asked for");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    define(&world, "certificates.k8s.io", "v1beta1", "PodCertificateRequest", "Namespaced").await;
    for name in ["old", "older"] {
        create(&world, REQUEST, REQUESTS, json!({"metadata": {"name": name}, "spec": {"podName": "web-0"}}))
            .await;
    }
    world.pass(14 * MINUTE);
    for name in ["old", "older"] {
        assert_eq!(world.get(&format!("{REQUESTS}/{name}")).await.0, 200);
    }
    world.pass(2 * MINUTE);
    world.until_gone(&format!("{REQUESTS}/old")).await;
    world.until_gone(&format!("{REQUESTS}/older")).await;
    running.end(&[], &[]).await;
}

/// Stable since 1.37; only the stable version is served, unless the server is configured to serve the other.
#[tokio::test]
async fn pod_certificate_requests_of_1_37() {
    const REQUEST: (&str, &str) = ("certificates.k8s.io/v1", "PodCertificateRequest");
    const REQUESTS: &str = "/apis/certificates.k8s.io/v1/namespaces/default/podcertificaterequests";
    let world = World::start().await;
    define(&world, "certificates.k8s.io", "v1", "PodCertificateRequest", "Namespaced").await;
    let running = world
        .collect(Controller::PodCertificateCleaner, PodCertificateCollector::default(), NothingOutside)
        .await;
    // A watch begins after its list, so the clock is not advanced while an answer is in transit.
    let deadline = Instant::now() + PATIENCE;
    while !running.asked.lock().unwrap().contains("watch podcertificaterequests.certificates.k8s.io") {
        assert!(Instant::now() < deadline, "nothing is watched");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    create(&world, REQUEST, REQUESTS, json!({"metadata": {"name": "old"}, "spec": {"podName": "web-0"}}))
        .await;
    world.pass(14 * MINUTE);
    assert_eq!(world.get(&format!("{REQUESTS}/old")).await.0, 200);
    world.pass(2 * MINUTE);
    world.until_gone(&format!("{REQUESTS}/old")).await;
    running.end(&[], &[]).await;
}

#[tokio::test]
async fn lease_candidates() {
    const CANDIDATE: (&str, &str) = ("coordination.k8s.io/v1beta1", "LeaseCandidate");
    const CANDIDATES: &str = "/apis/coordination.k8s.io/v1beta1/namespaces/kube-system/leasecandidates";
    let world = World::start().await;
    define(&world, "coordination.k8s.io", "v1beta1", "LeaseCandidate", "Namespaced").await;
    let spec = json!({"leaseName": "scheduler", "renewTime": "2026-01-01T00:00:00.000000Z"});
    create(&world, CANDIDATE, CANDIDATES, json!({"metadata": {"name": "a"}, "spec": spec})).await;
    let never = json!({"metadata": {"name": "never"}, "spec": {"leaseName": "scheduler"}});
    create(&world, CANDIDATE, CANDIDATES, never).await;
    let running =
        world.collect(Controller::LeaseCandidate, LeaseCandidateCollector::default(), NothingOutside).await;
    world.until_gone(&format!("{CANDIDATES}/never")).await;
    assert_eq!(world.get(&format!("{CANDIDATES}/a")).await.0, 200);
    world.pass(31 * MINUTE);
    world.until_gone(&format!("{CANDIDATES}/a")).await;
    running.end(&[], &[]).await;
}

/// SAT-T03, SAT-T09, SAT-T12, SAT-T13: a token is refused after a period, and deleted after another. Tokens that a pod mounts and
/// Secrets of other types are left alone, and no more than the metadata of a Secret is read.
#[tokio::test]
async fn legacy_tokens() {
    let world = World::start().await;
    const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
    let names = ["unused", "mounted", "opaque"];
    let listed: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
    let account = world.create(ACCOUNTS, json!({"metadata": {"name": "builder"}, "secrets": listed})).await;
    let annotations = json!({"kubernetes.io/service-account.name": "builder",
        "kubernetes.io/service-account.uid": account["metadata"]["uid"]});
    for name in names {
        let kind = if name == "opaque" { "Opaque" } else { "kubernetes.io/service-account-token" };
        let secret = json!({"metadata": {"name": name, "annotations": annotations}, "type": kind,
            "data": {"token": "c2VjcmV0"}});
        world.create(SECRETS, secret).await;
    }
    let volumes = json!([{"name": "v", "secret": {"secretName": "mounted"}}]);
    let containers = json!([{"name": "c", "image": "i"}]);
    world
        .create(
            PODS,
            json!({"metadata": {"name": "p"}, "spec": {"containers": containers, "volumes": volumes}}),
        )
        .await;
    let tracking =
        "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking";
    world.patch(tracking, json!({"data": {"since": "2020-01-01"}})).await;
    let collector = TokenCollector::new(CLEAN_UP_PERIOD_MILLISECONDS);
    let running = world.collect(Controller::LegacyTokenCleaner, collector, NothingOutside).await;
    world.pass(364 * DAY);
    const LABEL: &str = "/metadata/labels/kubernetes.io~1legacy-token-invalid-since";
    let unused = format!("{SECRETS}/unused");
    assert_eq!(world.get(&unused).await.1.pointer(LABEL), None);
    world.pass(2 * DAY);
    world.until("the label", &unused, |_, secret| secret.pointer(LABEL).is_some()).await;
    world.pass(367 * DAY);
    world.until_gone(&unused).await;
    for name in ["mounted", "opaque"] {
        let (code, secret) = world.get(&format!("{SECRETS}/{name}")).await;
        assert_eq!((code, secret.pointer(LABEL)), (200, None), "{name}");
    }
    let source = Controller::LegacyTokenCleaner.name();
    let expected =
        [format!("Warning LegacyTokenInvalidated {source}"), format!("Normal DeletingLegacyToken {source}")];
    world.until_events("builder", &[&expected[0], &expected[1]]).await;
    // A refused patch is followed by a read, and a repeated Event is patched.
    running.end(&["get secrets", "patch events"], &[]).await;
}

#[tokio::test]
async fn storage_versions() {
    let world = World::start().await;
    define(&world, "internal.apiserver.k8s.io", "v1alpha1", "StorageVersion", "Cluster").await;
    let labels = json!({"apiserver.kubernetes.io/identity": "kube-apiserver"});
    world.create(LEASES, json!({"metadata": {"name": "apiserver-a", "labels": labels}, "spec": {}})).await;
    let version = format!("{VERSIONS}/apps.deployments");
    let entry = |server: &str, version: &str| json!({"apiServerID": server, "encodingVersion": version, "decodableVersions": ["v1"]});
    create(&world, VERSION, VERSIONS, json!({"metadata": {"name": "apps.deployments"}, "spec": {}})).await;
    let status = json!({"storageVersions": [entry("apiserver-a", "v1"), entry("apiserver-b", "v2")]});
    world.patch(&format!("{version}/status"), json!({ "status": status })).await;
    let running =
        world.collect(Controller::StorageVersion, StorageVersionCollector::default(), NothingOutside).await;
    world
        .until("the removal of the entry", &version, |_, object| {
            object["status"]["storageVersions"] == json!([entry("apiserver-a", "v1")])
        })
        .await;
    let (_, object) = world.get(&version).await;
    assert_eq!(object["status"]["commonEncodingVersion"], "v1");
    assert_eq!(object["status"]["conditions"][0]["reason"], "CommonEncodingVersionSet");
    // X-T06: the last server is removed, and then everything that it wrote.
    world.delete(&format!("{LEASES}/apiserver-a")).await;
    world.until_gone(&version).await;
    running.end(&["get storageversions.internal.apiserver.k8s.io"], &[]).await;
}
