//! Several servers on one etcd.

use std::collections::BTreeSet;
use std::path::Path;

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::{refused, support};
use support::etcd::EtcdServer;
use support::{Kubegc, Signal};

/// Addresses reserved for documentation (RFC 5737), to which nothing connects.
const ADDRESSES: [&str; 3] = ["192.0.2.1", "192.0.2.2", "192.0.2.3"];

fn start(etcd: &EtcdServer, key: &Path, address: &str) -> Kubegc {
    let key = key.to_str().unwrap();
    Kubegc::start_with(
        "apiserver",
        [
            "--ephemeral",
            "--storage",
            "etcd",
            "--etcd-endpoints",
            &etcd.endpoint(),
            "--cluster-key-file",
            key,
            "--advertise-address",
            address,
        ],
    )
}

/// Returns a client of one server with the kubeconfig that another one wrote, or with a token in place of its certificate.
async fn client(of: &Kubegc, at: &Kubegc, token: Option<&str>) -> kube::Client {
    let kubeconfig = kube::config::Kubeconfig::read_from(&of.kubeconfig).unwrap();
    let options = kube::config::KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    config.cluster_url = at.url.parse().unwrap();
    config.default_retry = false;
    if let Some(token) = token {
        config.auth_info.client_certificate_data = None;
        config.auth_info.client_key_data = None;
        config.auth_info.token = Some(token.to_owned().into());
    }
    kube::Client::try_from(config).unwrap()
}

async fn send(client: &kube::Client, path: &str, body: Option<Value>) -> Value {
    let request = match body {
        Some(body) => http::Request::post(path)
            .header("content-type", "application/json")
            .body(serde_json::to_vec(&body).unwrap()),
        None => http::Request::get(path).body(Vec::new()),
    };
    client.request(request.unwrap()).await.unwrap()
}

/// Returns the user as whom a server sees a client.
async fn user(client: &kube::Client) -> String {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let answer = send(client, "/apis/authentication.k8s.io/v1/selfsubjectreviews", Some(review)).await;
    answer["status"]["userInfo"]["username"].as_str().unwrap().to_owned()
}

/// Returns the addresses behind the Service `kubernetes` according to this server.
async fn led_to(server: &Kubegc) -> BTreeSet<String> {
    let client = server.client().await;
    let found = send(&client, "/api/v1/namespaces/default/endpoints/kubernetes", None).await;
    let mut addresses = BTreeSet::new();
    for subset in found["subsets"].as_array().into_iter().flatten() {
        for address in subset["addresses"].as_array().into_iter().flatten() {
            addresses.insert(format!("{}:{}", address["ip"].as_str().unwrap(), subset["ports"][0]["port"]));
        }
    }
    addresses
}

fn address(server: &Kubegc, ip: &str) -> String {
    format!("{ip}:{}", server.url.rsplit_once(':').unwrap().1)
}

/// Three servers that start at once on an empty etcd have one authority and one set of keys; the Service leads to all of them, and
/// to none that has stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_servers_on_one_etcd_are_one_cluster() {
    let Some(etcd) = EtcdServer::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("cluster.key");
    std::fs::write(&key, "# of the test\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n").unwrap();
    let servers: Vec<Kubegc> = std::thread::scope(|scope| {
        let starts: Vec<_> =
            ADDRESSES.iter().map(|address| scope.spawn(|| start(&etcd, &key, address))).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });

    let authority = |server: &Kubegc| std::fs::read_to_string(&server.ca).unwrap();
    assert!(servers.iter().all(|server| authority(server) == authority(&servers[0])));
    let accounts: Api<ServiceAccount> = Api::default_namespaced(servers[0].client().await);
    let account = serde_json::from_value(json!({"metadata": {"name": "robot"}})).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let path = "/api/v1/namespaces/default/serviceaccounts/robot/token";
    let made = send(&servers[0].client().await, path, Some(asked)).await;
    let token = made["status"]["token"].as_str().unwrap();
    for of in &servers {
        for at in &servers {
            assert_eq!(user(&client(of, at, None).await).await, "kubegc-admin");
            let name = user(&client(of, at, Some(token)).await).await;
            assert_eq!(name, "system:serviceaccount:default:robot");
        }
        let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
        let published = send(&of.client().await, path, None).await;
        assert_eq!(published["data"]["client-ca-file"], authority(&servers[0]));
    }

    let all: Vec<String> = servers.iter().zip(ADDRESSES).map(|(one, ip)| address(one, ip)).collect();
    // If several servers update the endpoints of the Service at the same time, the last one to check completes them.
    let mut found = led_to(&servers[0]).await;
    while found != all.iter().cloned().collect() {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        found = led_to(&servers[0]).await;
    }
    let mut servers = servers.into_iter();
    let (first, second) = (servers.next().unwrap(), servers.next().unwrap());
    let ended = tokio::task::spawn_blocking(move || first.end(Signal::TERM)).await.unwrap();
    assert!(ended.0.success());
    assert_eq!(led_to(&second).await, all[1..].iter().cloned().collect(), "before it has ended");

    // Without the key, or with another one, a server would be another cluster on the same objects.
    let endpoint = etcd.endpoint();
    let on_etcd = [
        "apiserver",
        "--ephemeral",
        "--bind-address",
        "127.0.0.1:0",
        "--storage",
        "etcd",
        "--etcd-endpoints",
    ];
    let (code, line) = refused(&[&on_etcd[..], &[&endpoint]].concat());
    assert!(code == 1 && line.contains("--cluster-key-file"), "{code} {line}");
    std::fs::write(&key, "HwABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4=\n").unwrap();
    let with_key = [&on_etcd[..], &[&endpoint, "--cluster-key-file", key.to_str().unwrap()]].concat();
    let (code, line) = refused(&with_key);
    assert!(code == 1 && line.contains("another secret"), "{code} {line}");
    std::fs::write(&key, "hunter2\n").unwrap();
    let (code, line) = refused(&with_key);
    assert!(code == 2 && line.contains("line 1") && !line.contains("hunter2"), "{code} {line}");
    let (code, line) = refused(&["apiserver", "--ephemeral", "--cluster-key-file", key.to_str().unwrap()]);
    assert!(code == 2 && line.contains("--storage etcd"), "{code} {line}");
}
