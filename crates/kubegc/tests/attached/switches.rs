//! Flags of servers and collectors that no other test needs: each has its effect, through the command.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use super::webhook::{SentRequest, Webhook};
use crate::support::{Kubegc, TOKEN, etcd};
use crate::support_cluster::{
    Admin, MAPS, QUICK_LEASE, Run, kubeconfig, kubegc, manifests, privileged_for_all, until,
};

const NODES: &str = "/api/v1/nodes";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
/// An owner that never existed.
const NOWHERE: (&str, &str) = ("none", "0e2f1a34-5b6c-4d7e-8f90-a1b2c3d4e5f6");

/// Writes a kubeconfig that expects the server's certificate to have this name.
fn named(server: &Kubegc, name: &str) -> PathBuf {
    let file = server.folder.path().join(name);
    let cluster = json!({"server": server.url, "certificate-authority": server.ca, "tls-server-name": name});
    let configuration = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "u", "user": {"token": TOKEN}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]});
    std::fs::write(&file, configuration.to_string()).unwrap();
    file
}

#[test]
fn a_server_has_the_names_the_ports_and_the_memory_that_it_was_given() {
    let flags = [
        "--ephemeral",
        "--tls-san=gc.example.com,other.example.com",
        "--service-node-port-range=31007-31007",
        "--memory-budget=64Mi",
    ];
    let server = Kubegc::start_with("apiserver", flags);
    let admin = Admin::of(&server);
    for (name, expected) in [("gc.example.com", 0), ("other.example.com", 0), ("third.example.com", 1)] {
        let (code, out, error) = kubegc(&["version"], &named(&server, name));
        assert_eq!(code, Some(expected), "{name}: {out}{error}");
    }
    let service = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"type": "NodePort", "ports": [{"port": 80}]}})
    };
    let made = admin.create(SERVICES, &service("first"));
    assert_eq!(made["spec"]["ports"][0]["nodePort"], 31007);
    let (code, refused) = admin.send(Method::POST, SERVICES, &service("second"));
    assert!(code >= 400, "the range has one port: {refused}");
    assert!(admin.metrics().lines().any(|line| line == "kubegc_apiserver_memory_budget_bytes 67108864"));
    let (code, _, error) =
        kubegc(&["apiserver", "--ephemeral", "--memory-budget=much"], Path::new("/dev/null"));
    assert!(code == Some(2) && error.contains("--memory-budget"), "{error}");
}

/// The cluster and the user of a kubeconfig are selected separately, as with kubectl.
#[test]
fn a_cluster_and_a_user_are_chosen_by_name() {
    let server = Kubegc::start("apiserver");
    let file = server.folder.path().join("several");
    let configuration = json!({"apiVersion": "v1", "kind": "Config", "current-context": "wrong",
        "clusters": [
            {"name": "nowhere", "cluster": {"server": "https://127.0.0.1:1", "certificate-authority": server.ca}},
            {"name": "real", "cluster": {"server": server.url, "certificate-authority": server.ca}}],
        "users": [{"name": "stranger", "user": {"token": "no"}}, {"name": "root", "user": {"token": TOKEN}}],
        "contexts": [{"name": "wrong", "context": {"cluster": "nowhere", "user": "stranger"}}]});
    std::fs::write(&file, configuration.to_string()).unwrap();
    let asked = |flags: &[&str]| kubegc(&[&["stuck", "--request-timeout=5s"], flags].concat(), &file);
    for flags in [&[][..], &["--cluster", "real"], &["--user", "root"]] {
        let (code, out, error) = asked(flags);
        assert_ne!(code, Some(0), "{flags:?}: {out}{error}");
    }
    let (code, out, error) = asked(&["--cluster", "real", "--user", "root"]);
    assert_eq!((code, out.as_str()), (Some(0), "Nothing is stuck.\n"), "{error}");
    let (code, _, error) = asked(&["--cluster", "absent"]);
    assert!(code == Some(2) && error.contains("absent"), "{error}");
}

/// Returns an authority with a certificate for a server and its clients: certificate, key and authority.
fn certificates(folder: &Path) -> [PathBuf; 3] {
    use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap().pem();
    [("tls.crt", certificate), ("tls.key", key.serialize_pem()), ("ca.crt", authority)].map(|(name, text)| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    })
}

/// Two servers share one etcd, which they reach with a client certificate: each has its own prefix.
#[test]
fn servers_share_an_etcd_by_their_prefixes() {
    let mut files = None;
    let started = etcd::EtcdServer::start_with(|folder| {
        let [certificate, key, authority] = certificates(folder);
        files = Some([certificate.clone(), key.clone(), authority.clone()]);
        Some(etcd::ServerTls { certificate, key, authority })
    });
    let Some(etcd) = started else { return };
    let [certificate, key, authority] = files.unwrap().map(|file| file.display().to_string());
    let endpoint = etcd.endpoint();
    let flags = |prefix: &'static str| {
        let of_etcd =
            ["--ephemeral", "--storage=etcd", "--etcd-endpoints", &endpoint, "--etcd-prefix", prefix];
        let tls = ["--etcd-cafile", &authority, "--etcd-certfile", &certificate, "--etcd-keyfile", &key];
        of_etcd.into_iter().chain(tls).map(str::to_owned).collect::<Vec<_>>()
    };
    let first = Kubegc::start_with("apiserver", flags("/one"));
    Admin::of(&first).map("mine", None);
    let other = Kubegc::start_with("apiserver", flags("/two"));
    assert!(!Admin::of(&other).exists("mine"), "another prefix");
    drop(first);
    let again = Kubegc::start_with("apiserver", flags("/one"));
    assert!(Admin::of(&again).exists("mine"), "the same prefix");
    // Without the client certificate there is no connection.
    let anonymous: Vec<String> = flags("/one").into_iter().take(8).collect();
    let line: Vec<&str> = ["apiserver", "--bind-address=127.0.0.1:0"]
        .into_iter()
        .chain(anonymous.iter().map(String::as_str))
        .collect();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_kubegc")).args(&line).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

/// In a small resource, a share means nothing unless the floor is low.
#[test]
fn the_breaker_trips_on_a_share_only_above_its_floor() {
    for (floor, trips) in [("--breaker-share-floor=2", true), ("--breaker-share-floor=1000", false)] {
        let server = Kubegc::start("apiserver");
        let admin = Admin::of(&server);
        for number in 0..8 {
            admin.map(&format!("stray-{number}"), Some(NOWHERE));
        }
        let flags = [&QUICK_LEASE[..], &["--breaker-max-share=0.1", floor]].concat();
        let run = Run::start(&server, &flags);
        let left = || (0..8).filter(|number| admin.exists(&format!("stray-{number}"))).count();
        if trips {
            until("it trips", || run.metric("kubegc_breaker_tripped{resource=\"configmaps\"} 1"));
            until("nothing is under way", || run.is_idle());
            assert!(left() > 0, "the rest waits");
        } else {
            until("all are deleted", || left() == 0);
        }
    }
}

#[test]
fn claims_say_that_nothing_uses_them_if_they_are_asked_to() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let account = privileged_for_all(&server);
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    admin.create(CLAIMS, &claim);
    let flags = ["--controllers=persistentvolumeclaim-protection-controller", "--claim-unused-condition"];
    let _run = Run::with(&account, &flags);
    until("it says so", || {
        let conditions = admin.get(&format!("{CLAIMS}/data")).1["status"]["conditions"].clone();
        conditions.as_array().is_some_and(|all| {
            all.iter().any(|condition| condition["type"] == "Unused" && condition["status"] == "True")
        })
    });
}

/// The page uses the certificate in these files, and no other.
#[test]
fn a_page_has_the_certificate_that_it_was_given() {
    let server = Kubegc::start("apiserver");
    let account = privileged_for_all(&server);
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key, authority] = certificates(folder.path());
    let flags = [
        "--ui-bind-address=127.0.0.1:0",
        "--tls-cert-file",
        certificate.to_str().unwrap(),
        "--tls-private-key-file",
        key.to_str().unwrap(),
    ];
    let run = Run::with(&account, &flags);
    let address = super::page::address_of(&run);
    let user = server.folder.path().join("user");
    kubeconfig(&user, &server.url, &server.ca, TOKEN);
    let ui = |authority: &Path| {
        let flags =
            ["ui", "--collector", &address, "--collector-certificate-authority", authority.to_str().unwrap()];
        kubegc(&flags, &user)
    };
    let (code, _, error) = ui(&server.ca);
    assert!(code != Some(0), "{error}");
    let (code, out, error) = ui(&authority);
    assert!(code == Some(0) && out.starts_with("https://"), "{out}{error}");
}

/// A provider over TLS requires a token and answers about the machine in the request.
#[test]
fn a_webhook_that_knows_machines_is_asked_with_its_token() {
    let webhook = Webhook::start(|request: &SentRequest| {
        let mut answer = request.body();
        answer["machine"] = json!({"state": "Shutdown"});
        (200, Bytes::from(answer.to_string()))
    });
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let account = privileged_for_all(&server);
    admin.create(NODES, &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "asleep"}}));
    let condition =
        json!({"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = json!({"status": {"conditions": [condition]}});
    assert_eq!(admin.send(Method::PATCH, &format!("{NODES}/asleep/status"), &status).0, 200);
    let (url, authority, token) = (webhook.url("/machines"), webhook.authority(), webhook.token("sesame"));
    let flags = [
        "--controllers=cloud-node-lifecycle-controller",
        "--cloud-webhook",
        &url,
        "--cloud-webhook-ca-file",
        authority.to_str().unwrap(),
        "--cloud-webhook-token-file",
        token.to_str().unwrap(),
    ];
    let _run = Run::with(&account, &flags);
    until("the node is tainted", || {
        let taints = admin.get(&format!("{NODES}/asleep")).1["spec"]["taints"].clone();
        taints.to_string().contains("node.cloudprovider.kubernetes.io/shutdown")
    });
    let asked = webhook.sent().remove(0);
    assert_eq!(
        (asked.path.as_str(), &asked.headers["authorization"]),
        ("/machines", &"Bearer sesame".parse().unwrap())
    );
    assert_eq!(asked.body()["node"]["name"], "asleep");
    // A server with another certificate is not asked.
    let (code, _, error) =
        kubegc(&["run", "--cloud-webhook", &url, "--cloud-webhook-ca-file", "/nonexistent"], &account);
    assert!(code == Some(2) && error.contains("/nonexistent"), "{error}");
}

/// A notice of a retention policy has its content and token, and is sent again until it is accepted.
#[test]
fn notices_reach_a_webhook_that_fails_at_first() {
    let mut answers = vec![(200, Bytes::new()), (503, Bytes::new()), (Webhook::SILENCE, Bytes::new())];
    // After its first answers, the webhook accepts everything.
    let webhook = Webhook::start(move |_: &SentRequest| answers.pop().unwrap_or((200, Bytes::new())));
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let account = privileged_for_all(&server);
    for definition in manifests("deploy/crds", &["retentionpolicies.yaml"]) {
        admin.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition);
    }
    let policies = "/apis/kubegc.io/v1alpha1/retentionpolicies";
    let policy = json!({"apiVersion": "kubegc.io/v1alpha1", "kind": "RetentionPolicy", "metadata": {"name": "old"},
        "spec": {"target": {"apiVersion": "v1", "kind": "ConfigMap"}, "maxAge": "1ns", "enforce": true,
            "notice": {"before": "24h"}, "selector": {"matchLabels": {"app": "old"}}}});
    let old = json!({"metadata": {"name": "doomed", "labels": {"app": "old"}}});
    let object = admin.create(MAPS, &old);
    until("the policy is served", || admin.send(Method::POST, policies, &policy).0 == 201);
    let (url, authority, token) = (webhook.url("/notices"), webhook.authority(), webhook.token("sesame"));
    let flags = [
        "--controllers=retention-policy-controller",
        "--notice-webhook",
        &url,
        "--notice-webhook-ca-file",
        authority.to_str().unwrap(),
        "--notice-webhook-token-file",
        token.to_str().unwrap(),
        "--notice-webhook-timeout=500ms",
    ];
    let _run = Run::with(&account, &flags);
    until("it was sent until it was taken", || webhook.sent().len() >= 3);
    let sent = webhook.sent();
    let first = sent[0].body();
    assert!(
        sent[..3].iter().all(|again| again.body() == first),
        "the same notice, with the same id: {sent:?}"
    );
    for request in &sent {
        assert_eq!((&request.method, request.path.as_str()), (&Method::POST, "/notices"));
        assert_eq!(request.headers["authorization"], "Bearer sesame");
        assert_eq!(request.headers["content-type"], "application/cloudevents+json");
    }
    let message = first["data"]["message"].as_str().unwrap().to_owned();
    assert!(!message.is_empty());
    let expected = json!({
        "specversion": "1.0", "id": first["id"], "source": "/kubegc/retention-policy-controller",
        "type": "io.kubegc.retention.notice.v1", "subject": "v1/ConfigMap/default/doomed",
        "datacontenttype": "application/json",
        "data": {"message": message, "object": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default",
            "name": "doomed", "uid": object["metadata"]["uid"]}},
    });
    assert_eq!(first, expected);
    // An object that was announced for later stays, whatever the webhook answers.
    assert!(admin.exists("doomed"));
    // The object has an Event with the same message.
    let events = admin.get("/api/v1/namespaces/default/events").1;
    let notice =
        events["items"].as_array().unwrap().iter().find(|event| event["reason"] == "RetentionNotice");
    assert_eq!(notice.map(|event| &event["message"]), Some(&Value::from(message)));
}
