//! An etcd that fills up, as reported by `kubegc doctor`.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::support::Kubegc;
use super::support::etcd::EtcdServer;
use super::{PATIENCE, config_map, config_maps, run};

/// Quota of the database in bytes, above the size from which the doctor advises a defragmentation.
const QUOTA: usize = 96 << 20;
/// Size of one value in bytes.
const VALUE: usize = 1 << 20;
/// Number of values that make the database large without filling it: etcd takes up to a third more than their size.
const LARGE: usize = 56;

/// Returns the doctor's finding about the store: its state, its message and its advice.
fn storage(server: &Kubegc) -> (String, String, String) {
    let kubeconfig = server.kubeconfig.to_str().unwrap();
    let output = run(&["doctor", "-o", "json", "--subject=self", "--kubeconfig", kubeconfig]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = answer["items"].as_array().unwrap();
    let found = findings.iter().find(|finding| finding["check"] == "storage").unwrap_or(&Value::Null);
    let text = |member: &str| found[member].as_str().unwrap_or_default().to_owned();
    (text("state"), text("message"), text("advice"))
}

/// Waits until the doctor reports this; the server reads the size of its store every few seconds.
async fn says(server: &Kubegc, state: &str, parts: &[&str]) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = storage(server);
        let all = format!("{} → {}", found.1, found.2);
        if found.0 == state && parts.iter().all(|part| all.contains(part)) {
            return;
        }
        assert!(Instant::now() < deadline, "{state} {parts:?}, and not {found:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Sends a request to etcd's gateway, as `etcdctl` would; `None` if etcd refuses it.
fn operate(etcd: &EtcdServer, path: &str, body: &Value) -> Option<Value> {
    let mut stream = TcpStream::connect(("127.0.0.1", etcd.port())).unwrap();
    let body = body.to_string();
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    if !answer.starts_with("HTTP/1.1 200") {
        return None;
    }
    let (from, to) = (answer.find('{').unwrap(), answer.rfind('}').unwrap());
    Some(serde_json::from_str(&answer[from..=to]).unwrap())
}

/// Writes a large value, as another user of the same etcd.
fn put(etcd: &EtcdServer, number: usize) -> Option<Value> {
    let key = STANDARD.encode(format!("/other/{number:03}"));
    operate(etcd, "/v3/kv/put", &json!({"key": key, "value": STANDARD.encode(vec![0; VALUE])}))
}

/// Deletes these values, and the history of etcd.
fn delete(etcd: &EtcdServer) {
    let (key, end) = (STANDARD.encode("/other/"), STANDARD.encode("/other0"));
    let deleted = operate(etcd, "/v3/kv/deleterange", &json!({"key": key, "range_end": end})).unwrap();
    let newest = &deleted["header"]["revision"];
    operate(etcd, "/v3/kv/compaction", &json!({"revision": newest, "physical": true})).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_doctor_names_a_full_etcd_and_one_to_defragment() {
    let quota = QUOTA.to_string();
    let flags = ["--quota-backend-bytes", quota.as_str()];
    let Some(members) = EtcdServer::start_cluster_with(1, None, &flags) else { return };
    let etcd = &members[0];
    let server = Kubegc::start_with(
        "apiserver",
        ["--ephemeral", "--storage", "etcd", "--etcd-endpoints", &etcd.endpoint()],
    );
    says(&server, "ok", &["etcd's database has ", " of it in use"]).await;

    for number in 0..LARGE {
        assert!(put(etcd, number).is_some(), "{number}");
    }
    delete(etcd);
    says(&server, "notice", &["the rest is not given back to the disk", "`etcdctl defrag`"]).await;

    let accepted = (0..2 * QUOTA / VALUE).take_while(|number| put(etcd, *number).is_some()).count();
    assert!(accepted < 2 * QUOTA / VALUE, "etcd takes more than its quota");
    says(&server, "wrong", &["etcd is full (alarm NOSPACE)", "`etcdctl alarm disarm`"]).await;
    let maps = config_maps(&server).await;
    let refused = maps.create(&PostParams::default(), &config_map("refused", None)).await.unwrap_err();
    assert!(refused.to_string().contains("no space left"), "{refused}");

    // This follows the advice.
    delete(etcd);
    operate(etcd, "/v3/maintenance/defragment", &json!({})).unwrap();
    let alarms = operate(etcd, "/v3/maintenance/alarm", &json!({"action": "GET"})).unwrap();
    let member = &alarms["alarms"][0]["memberID"];
    let disarm = json!({"action": "DEACTIVATE", "memberID": member, "alarm": "NOSPACE"});
    operate(etcd, "/v3/maintenance/alarm", &disarm).unwrap();
    says(&server, "ok", &["etcd's database has "]).await;
    maps.create(&PostParams::default(), &config_map("accepted", None)).await.unwrap();
}
