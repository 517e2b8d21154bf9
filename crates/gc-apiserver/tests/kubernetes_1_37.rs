//! The API of Kubernetes 1.37, where it differs from 1.36. Every test in this file first selects the version.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;

use gc_registry::kubernetes::KubernetesVersion;
use serde_json::{Value, json};
use support::TestServer;

async fn start() -> TestServer {
    KubernetesVersion::V1_37.choose().unwrap();
    TestServer::start().await
}

/// Returns the member of a list with this `name`.
fn named<'v>(list: &'v Value, name: &str) -> Option<&'v Value> {
    list.as_array()?.iter().find(|item| item["name"] == name)
}

#[tokio::test]
async fn a_process_serves_one_version() {
    let server = start().await;
    let refused = KubernetesVersion::V1_36.choose().unwrap_err().to_string();
    assert_eq!(
        refused,
        "cannot serve Kubernetes 1.36: this process serves 1.37, and a process has one version"
    );
    let version = server.get("/version").await.json();
    for (name, wanted) in [
        ("gitVersion", "v1.37.0+kubegc"),
        ("major", "1"),
        ("minor", "37"),
        ("emulationMinor", "37"),
        ("minCompatibilityMinor", "36"),
    ] {
        assert_eq!(version[name], wanted, "{name}");
    }
    assert_eq!(server.get("/openapi/v2").await.json()["info"]["version"], "1.37");
}

#[tokio::test]
async fn discovery_has_the_resources_of_the_version() {
    let server = start().await;
    let groups = server.get("/apis").await.json();
    assert_eq!(groups["groups"].as_array().unwrap().last().unwrap()["name"], "storagemigration.k8s.io");
    let migrations = server.get("/apis/storagemigration.k8s.io/v1").await.json();
    let row = named(&migrations["resources"], "storageversionmigrations").unwrap();
    assert_eq!((&row["kind"], &row["namespaced"]), (&json!("StorageVersionMigration"), &json!(false)));
    assert!(named(&migrations["resources"], "storageversionmigrations/status").is_some());
    // Resources are in the order of names, between those of 1.36.
    let devices = server.get("/apis/resource.k8s.io/v1").await.json();
    let names: Vec<&str> =
        devices["resources"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(
        names[..4],
        ["deviceclasses", "devicetaintrules", "devicetaintrules/status", "resourceclaims"]
    );
}

#[tokio::test]
async fn documents_describe_what_the_version_has() {
    let server = start().await;
    let document = server.get("/openapi/v3/apis/apps/v1").await.json();
    let schemas = &document["components"]["schemas"];
    let revision = &schemas["io.k8s.api.apps.v1.ControllerRevision"];
    assert_eq!(revision["required"], json!(["data"]), "in 1.36 it was the revision");
    let strategy = &schemas["io.k8s.api.apps.v1.StatefulSetUpdateStrategy"]["properties"]["type"];
    assert_eq!(strategy["enum"], json!(["OnDelete", "Recreate", "RollingUpdate"]));
    let pod = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["evictionResponders"];
    assert_eq!(pod["x-kubernetes-list-map-keys"], json!(["name"]));
    let text = pod["description"].as_str().unwrap();
    assert!(text.contains("eviction"), "{text}");
    let swagger = server.get("/openapi/v2").await.json();
    let options = &swagger["definitions"]["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"];
    let registered = options["x-kubernetes-group-version-kind"].as_array().unwrap();
    let has = |group: &str, version: &str| {
        registered.contains(&json!({"group": group, "version": version, "kind": "DeleteOptions"}))
    };
    assert!(has("lifecycle.k8s.io", "v1alpha1") && has("scheduling.k8s.io", "v1alpha3"));
    assert!(!has("scheduling.k8s.io", "v1alpha2"));
    assert_eq!(registered.len(), 62);
}

/// Fields of alpha features are known, so they are dropped without a warning or an error.
#[tokio::test]
async fn fields_of_features_that_are_off_are_dropped() {
    let server = start().await;
    let pod = json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "evictionResponders": [{"name": "example.com/evictor", "priority": 10}],
            "containers": [{
                "name": "web", "image": "web",
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp", "bindMountOptions": ["noexec"]}],
            }],
            "volumes": [{"name": "tmp", "emptyDir": {"mode": 511}}],
        },
    });
    let created = server.post("/api/v1/namespaces/default/pods?fieldValidation=Strict", &pod).await;
    assert_eq!(created.code, 201, "{}", created.json());
    let pod = created.json();
    assert_eq!(pod["spec"].get("evictionResponders"), None);
    assert_eq!(pod["spec"]["containers"][0]["volumeMounts"][0], json!({"name": "tmp", "mountPath": "/tmp"}));
    assert_eq!(pod["spec"]["volumes"][0], json!({"name": "tmp", "emptyDir": {}}));
    let job = json!({
        "metadata": {"name": "job", "namespace": "default"},
        "spec": {
            "scheduling": {"schedulingPolicy": {"basic": {}}},
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}},
        },
    });
    let created = server.post("/apis/batch/v1/namespaces/default/jobs?fieldValidation=Strict", &job).await;
    assert_eq!(created.code, 201, "{}", created.json());
    assert_eq!(created.json()["spec"].get("scheduling"), None);
}

const MIGRATIONS: &str = "/apis/storagemigration.k8s.io/v1/storageversionmigrations";

async fn put(server: &TestServer, path: &str, body: &Value) -> support::Answer {
    server.send("PUT", path, &[("content-type", "application/json")], body.to_string()).await
}

/// Checks the rules of upstream's pkg/apis/storagemigration/validation.
#[tokio::test]
async fn migrations_of_storage_versions_are_checked() {
    let server = start().await;
    let empty =
        json!({"metadata": {"name": "empty"}, "spec": {"resource": {"group": "apps", "resource": ""}}});
    let refused = server.post(MIGRATIONS, &empty).await.json();
    let why = "StorageVersionMigration.storagemigration.k8s.io \"empty\" is invalid: spec.resource.resource: Required value: \
               resource is required";
    assert_eq!(refused["message"], why);

    let migration = json!({
        "metadata": {"name": "secrets"},
        "spec": {"resource": {"group": "", "resource": "secrets"}},
        "status": {"resourceVersion": "7"},
    });
    let created = server.post(MIGRATIONS, &migration).await;
    assert_eq!(created.code, 201, "{}", created.json());
    let mut migration = created.json();
    assert_eq!(migration["status"], json!({}), "only the subresource writes it");
    assert_eq!(migration["metadata"].get("generation"), None);

    migration["spec"]["resource"]["resource"] = "configmaps".into();
    let refused = put(&server, &format!("{MIGRATIONS}/secrets"), &migration).await.json();
    let why = "StorageVersionMigration.storagemigration.k8s.io \"secrets\" is invalid: resource: Invalid value: \"configmaps\": \
               field is immutable";
    assert_eq!(refused["message"], why);

    let condition = |kind: &str, status: &str| {
        json!({"type": kind, "status": status, "reason": "Test", "message": "",
               "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let status = format!("{MIGRATIONS}/secrets/status");
    let mut migration = created.json();
    for (version, conditions, wanted) in [
        ("x", json!([]), "status.resourceVersion"),
        ("-1", json!([]), "status.resourceVersion"),
        ("7", json!([condition("Succeeded", "True"), condition("Running", "True")]), "status.conditions"),
        ("7", json!([condition("Succeeded", "True"), condition("Failed", "True")]), "status.conditions"),
        ("7", json!([condition("Succeeded", "True"), condition("Running", "False")]), ""),
        ("8", json!([condition("Succeeded", "True")]), "status.resourceVersion"),
        ("7", json!([condition("Succeeded", "False")]), "status.conditions"),
    ] {
        migration["status"] = json!({"resourceVersion": version, "conditions": conditions});
        let answer = put(&server, &status, &migration).await;
        let answered = answer.json();
        if wanted.is_empty() {
            assert_eq!(answer.code, 200, "{answered}");
            migration["metadata"]["resourceVersion"] = answered["metadata"]["resourceVersion"].clone();
        } else {
            assert_eq!(answer.code, 422, "{answered}");
            assert_eq!(answered["details"]["causes"][0]["field"], wanted, "{version}: {answered}");
        }
    }
    // An update needs a resourceVersion.
    migration["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    assert_eq!(put(&server, &format!("{MIGRATIONS}/secrets"), &migration).await.code, 422);
}

/// Behaves as KEP-5958 and KEP-4222 require of servers without the feature; a shard of a list is refused rather than ignored
/// (KEP-5866).
#[tokio::test]
async fn parameters_of_features_that_are_off_are_ignored_or_refused() {
    let server = start().await;
    server.config_map("one").await;
    server.config_map("two").await;
    let path = "/api/v1/namespaces/default/configmaps";
    for accept in ["application/json", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"] {
        let whole = server.send("GET", path, &[("accept", accept)], "").await;
        assert!(whole.json()["items"][0]["metadata"]["managedFields"].is_array());
        let dropping = format!("{accept};drop=metadata.managedFields");
        let answer = server.send("GET", path, &[("accept", &dropping)], "").await;
        assert_eq!((answer.code, &answer.bytes), (200, &whole.bytes), "{accept}");
    }
    // A client that asks for a shard of the objects must not receive all of them.
    let range = "shardRange(object.metadata.uid,%20'0x0000000000000000',%20'0x0000000000000001')";
    assert_eq!(server.get(&format!("{path}?shardSelector={range}")).await.code, 422);
    // CBOR is neither written nor read; clients fall back to JSON on this answer.
    assert_eq!(server.send("GET", path, &[("accept", "application/cbor")], "").await.code, 406);
    let both = server.send("GET", path, &[("accept", "application/cbor,application/json;q=0.9")], "").await;
    assert_eq!((both.code, both.header("content-type")), (200, "application/json"));
    let body = b"\xd9\xd9\xf7\xa0".as_slice();
    assert_eq!(server.send("POST", path, &[("content-type", "application/cbor")], body).await.code, 415);
}

/// A readable object is not deleted by the option for unreadable ones (KEP-3926, on since 1.37), and finalizers apply as always.
#[tokio::test]
async fn the_unsafe_deletion_of_a_readable_object_is_refused() {
    let server = start().await;
    let path = "/api/v1/namespaces/default/configmaps";
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/held"]}});
    assert_eq!(server.post(path, &held).await.code, 201);
    let headers = [("content-type", "application/json")];
    let option = "ignoreStoreReadErrorWithClusterBreakingPotential";
    let delete = async |path: &str, others: Value| {
        let mut options = json!({"kind": "DeleteOptions", "apiVersion": "v1", option: true});
        options.as_object_mut().unwrap().extend(others.as_object().unwrap().clone());
        server.send("DELETE", path, &headers, options.to_string()).await
    };
    let one = format!("{path}/held");
    let refused = delete(&one, json!({})).await;
    let why = "Operation cannot be fulfilled on configmaps \"held\": StorageError: invalid object, Code: 4, Key: \
               /registry/configmaps/default/held, ResourceVersion: 0, AdditionalErrorMsg: unsafe deletion is not allowed because \
               the object is decodable from storage";
    assert_eq!((refused.code, refused.json()["message"].as_str().unwrap()), (409, why));
    assert_eq!(delete(&format!("{path}/none"), json!({})).await.code, 404);
    let refused = delete(path, json!({})).await;
    let why = format!(
        "DeleteOptions.meta.k8s.io \"\" is invalid: {option}: Invalid value: true: is not allowed with DELETECOLLECTION, try again \
         after removing the option"
    );
    assert_eq!((refused.code, refused.json()["message"].as_str().unwrap()), (422, &*why));
    for (name, value) in [
        ("propagationPolicy", json!("Background")),
        ("orphanDependents", json!(true)),
        ("gracePeriodSeconds", json!(1)),
        ("preconditions", json!({"uid": "u"})),
    ] {
        let refused = delete(&one, json!({name: value})).await;
        assert_eq!(refused.code, 422);
        let message = refused.json()["message"].as_str().unwrap().to_owned();
        assert!(message.ends_with(&format!("cannot be set together with .{name}")), "{message}");
    }
    let refused = server.send("DELETE", &format!("{one}?{option}=true"), &[], "").await;
    assert_eq!(refused.code, 409);
    assert_eq!(server.get(&one).await.json()["metadata"].get("deletionTimestamp"), None);
}

/// Checks the rules of upstream's pkg/registry/resource/devicetaintrule and pkg/apis/resource/validation.
#[tokio::test]
async fn taint_rules_of_devices_are_checked_and_dated() {
    let server = start().await;
    let rules = "/apis/resource.k8s.io/v1/devicetaintrules";
    let rule = |selector: Value, taint: Value| json!({"metadata": {"name": "broken"}, "spec": {"deviceSelector": selector, "taint": taint}});
    for (selector, taint, field) in [
        (json!({}), json!({"key": "example.com/broken"}), "spec.taint.effect"),
        (json!({}), json!({"key": "a b", "effect": "NoExecute"}), "spec.taint.key"),
        (json!({}), json!({"key": "a", "effect": "Never"}), "spec.taint.effect"),
        (json!({"driver": "-"}), json!({"key": "a", "effect": "None"}), "spec.deviceSelector.driver"),
        (json!({"device": "A"}), json!({"key": "a", "effect": "None"}), "spec.deviceSelector.device"),
    ] {
        let refused = server.post(rules, &rule(selector, taint)).await.json();
        assert_eq!(refused["details"]["causes"][0]["field"], field, "{refused}");
    }
    let valid = rule(json!({"driver": "d.example.com"}), json!({"key": "a", "effect": "NoSchedule"}));
    let created = server.post(rules, &valid).await;
    assert_eq!(created.code, 201, "{}", created.json());
    let mut rule = created.json();
    assert_eq!(rule["metadata"]["generation"], 1);
    assert!(rule["spec"]["taint"]["timeAdded"].is_string(), "{rule}");
    rule["spec"]["taint"]["effect"] = "NoExecute".into();
    let updated = put(&server, &format!("{rules}/broken"), &rule).await.json();
    assert_eq!(updated["metadata"]["generation"], 2);
}

/// A request for a pod's certificate must be signed with its key, and is stored and found by its signer.
#[tokio::test]
async fn requests_of_pods_are_signed_with_their_key() {
    use base64::Engine as _;
    let server = start().await;
    let requests = "/apis/certificates.k8s.io/v1/namespaces/default/podcertificaterequests";
    let key = rcgen::KeyPair::generate().unwrap();
    let signed = rcgen::CertificateParams::default().serialize_request(&key).unwrap().der().to_vec();
    let mut forged = signed.clone();
    *forged.last_mut().unwrap() ^= 1;
    let request = |name: &str, der: &[u8]| {
        json!({
            "metadata": {"name": name},
            "spec": {
                "signerName": "example.com/foo", "podName": "web", "podUID": "a", "serviceAccountName": "default",
                "serviceAccountUID": "b", "nodeName": "node-1", "nodeUID": "c",
                "stubPKCS10Request": base64::engine::general_purpose::STANDARD.encode(der),
            },
        })
    };
    let refused = server.post(requests, &request("forged", &forged)).await;
    let why = "PodCertificateRequest.certificates.k8s.io \"forged\" is invalid: spec.stubPKCS10Request: Invalid value: invalid \
               signature";
    assert_eq!((refused.code, refused.json()["message"].as_str().unwrap()), (422, why));
    let created =
        server.post(&format!("{requests}?fieldValidation=Strict"), &request("signed", &signed)).await;
    assert_eq!(created.code, 201, "{}", created.json());
    let found =
        server.get(&format!("{requests}?fieldSelector=spec.nodeName=node-1,spec.podName=web")).await.json();
    assert_eq!(found["items"].as_array().map(Vec::len), Some(1), "{found}");
}

/// A resourceVersion in the answers to deletions, evictions and bindings is new in 1.38 (kubernetes/kubernetes#138724, #142197,
/// #142327).
#[tokio::test]
async fn answers_to_deletions_and_evictions_have_no_version() {
    let server = start().await;
    server.config_map("one").await;
    let deleted = server.send("DELETE", "/api/v1/namespaces/default/configmaps/one", &[], "").await;
    let answer = deleted.json();
    assert_eq!((deleted.code, &answer["metadata"], &answer["status"]), (200, &json!({}), &json!("Success")));
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "web", "image": "web"}]}});
    assert_eq!(server.post(pods, &pod).await.code, 201);
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}});
    let evicted = server.post(&format!("{pods}/web/eviction"), &eviction).await;
    let answer = evicted.json();
    assert_eq!((evicted.code, &answer["metadata"], &answer["status"]), (201, &json!({}), &json!("Success")));
}
