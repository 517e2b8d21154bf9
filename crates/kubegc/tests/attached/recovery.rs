//! `kubegc recorder`, `undo` and `relink` as users call them: signed and encrypted records, records in a bucket, and backups.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use super::aws::{self, Arrived};
use super::recorders::{AWS, Recorder};
use super::webhook::{SentRequest, Webhook};
use crate::support::Kubegc;
use crate::support_cluster::{Admin, MAPS, kubegc, until};

/// A key pair as `age-keygen` makes it.
const IDENTITY: &str = "AGE-SECRET-KEY-1QYPQXPQ9QCRSSZG2PVXQ6RS0ZQG3YYC5Z5TPWXQERGD3C8G7RUSQGPQYEE";
const RECIPIENT: &str = "age1q73he0q5yzfu3d64msd3p6rvksnrwjk3d2598mgtmlqt9wrdr37q2vrn72";

/// Runs a recorder with these flags while the ConfigMap `lost` is deleted.
pub(super) fn record(server: &Kubegc, records: &Path, flags: &[&str], delete: impl FnOnce(&Admin)) {
    let admin = Admin::of(server);
    let recorder = Recorder::start(server, records, flags);
    let is_recorded = |name: &str| recorder.log().contains(&format!("configmaps/{name}"));
    // Its watch is open once it has seen one deletion.
    until("it records", || {
        admin.map("probe", None);
        admin.delete("probe", "Background");
        is_recorded("probe")
    });
    delete(&admin);
    until("it is recorded", || is_recorded("lost"));
    assert!(recorder.end().success());
}

fn lose(admin: &Admin) {
    let body = json!({"metadata": {"name": "lost"}, "data": {"password": "hunter2"}});
    admin.create(MAPS, &body);
    admin.delete("lost", "Background");
}

/// The Lease of a recorder shows that it runs, and of which kinds it records every deletion.
#[test]
fn a_recorder_renews_its_lease() {
    const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kubegc-recorder";
    let server = Kubegc::start("apiserver");
    let policy = server.folder.path().join("recorder.yaml");
    std::fs::write(&policy, "resources: [configmaps, deployments.apps]\nsecrets: [default/one]\n").unwrap();
    let flags = ["--lease", "kube-system/kubegc-recorder", "--policy", policy.to_str().unwrap()];
    record(&server, &server.folder.path().join("records"), &flags, |admin| {
        let recorded = || admin.get(LEASE).1["metadata"]["annotations"]["kubegc.io/recorded"].clone();
        until("the Lease names what is recorded", || recorded() == "ConfigMap,Deployment.apps");
        lose(admin);
    });
}

#[test]
fn records_that_are_signed_and_encrypted_come_back_for_their_keys_alone() {
    let server = Kubegc::start("apiserver");
    let folder = server.folder.path();
    let records = folder.join("records");
    let (key, identity, stranger) =
        (folder.join("recorder.key"), folder.join("identity"), folder.join("stranger.key"));
    std::fs::write(&identity, format!("{IDENTITY}\n")).unwrap();
    let signing = ["--signing-key", key.to_str().unwrap()];
    let sealed = [&signing[..], &["--recipient", RECIPIENT]].concat();
    record(&server, &records, &sealed, lose);
    let stored: String = std::fs::read_dir(&records)
        .unwrap()
        .map(|file| String::from_utf8_lossy(&std::fs::read(file.unwrap().path()).unwrap()).into_owned())
        .collect();
    assert!(!stored.is_empty() && !stored.contains("hunter2"), "it is encrypted");

    let public = folder.join("recorder.key.pub");
    let undo = |more: &[&str]| {
        let line = [&["undo", "cm/lost", "--records", records.to_str().unwrap()], more].concat();
        kubegc(&line, &server.kubeconfig)
    };
    let by_identity = ["--identity", identity.to_str().unwrap()];
    let (code, _, error) = undo(&[]);
    assert!(code != Some(0) && error.contains("--identity FILE names the age identity"), "{error}");
    let (code, _, error) = undo(&by_identity);
    assert!(code == Some(2) && error.contains("no key of a recorder is known"), "{error}");
    // The key of another signer is not trusted unless the user says so.
    let foreign = Kubegc::start("apiserver");
    record(&foreign, &folder.join("elsewhere"), &["--signing-key", stranger.to_str().unwrap()], lose);
    let wrong = folder.join("stranger.key.pub");
    let by_stranger = [&by_identity[..], &["--recorder-key", wrong.to_str().unwrap()]].concat();
    let (code, _, error) = undo(&by_stranger);
    assert!(code == Some(2) && error.contains("signed by another key"), "{error}");
    let admin = Admin::of(&server);
    for trust in [&["--recorder-key", public.to_str().unwrap()][..], &["--accept-unsigned"]] {
        let line = [&by_identity[..], trust].concat();
        let (code, out, error) = undo(&line);
        assert!(
            code == Some(0) && out.contains("Would create 1 object") && !admin.exists("lost"),
            "{out}{error}"
        );
        let (code, out, error) = undo(&[&line[..], &["-y"]].concat());
        assert_eq!(code, Some(0), "{out}{error}");
        assert_eq!(admin.get(&format!("{MAPS}/lost")).1["data"]["password"], "hunter2");
        assert_eq!(admin.send(Method::DELETE, &format!("{MAPS}/lost"), &Value::Null).0, 200);
    }
}

/// Returns a bucket that stores, lists and returns objects, and knows nothing else.
fn bucket() -> impl FnMut(&SentRequest) -> (u16, Bytes) + Send + 'static {
    let mut objects: BTreeMap<String, Bytes> = BTreeMap::new();
    move |request: &SentRequest| {
        let key = request.path.strip_prefix("/backups/").unwrap_or_default().to_owned();
        match (&request.method, request.query.contains("list-type=2")) {
            (&Method::GET, true) => {
                let one = |(key, body): (&String, &Bytes)| {
                    format!("<Contents><Key>{key}</Key><Size>{}</Size><ETag>e</ETag></Contents>", body.len())
                };
                let all: String = objects.iter().map(one).collect();
                let list =
                    format!("<ListBucketResult><IsTruncated>false</IsTruncated>{all}</ListBucketResult>");
                (200, list.into())
            }
            (&Method::GET, false) => {
                objects.get(&key).map_or((404, Bytes::new()), |body| (200, body.clone()))
            }
            (&Method::PUT, _) => {
                objects.insert(key, request.bytes.clone());
                (200, Bytes::new())
            }
            (&Method::DELETE, _) => {
                objects.remove(&key);
                (204, Bytes::new())
            }
            _ => (405, Bytes::new()),
        }
    }
}

/// Returns the flags for a bucket of another server than Amazon's; the last two name the authority of its certificate.
fn bucket_flags<'a>(endpoint: &'a str, authority: &'a Path) -> [&'a str; 6] {
    let authority = authority.to_str().unwrap();
    ["--s3-endpoint", endpoint, "--s3-region", "eu-central-1", "--s3-ca-file", authority]
}

/// Runs an undo of the ConfigMap `lost` from a bucket; returns its exit code and its whole output.
fn undo_from_bucket(server: &Kubegc, flags: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_kubegc"))
        .args(["undo", "cm/lost", "--records", "s3://backups/shop", "--yes"])
        .args(flags)
        .env("KUBECONFIG", &server.kubeconfig)
        .envs(AWS)
        .output()
        .unwrap();
    (output.status.code(), format!("{output:?}"))
}

#[test]
fn records_in_a_bucket_of_another_server_come_back() {
    let server = Kubegc::start("apiserver");
    let bucket = Webhook::start(bucket());
    let endpoint = bucket.url("");
    let authority = bucket.authority();
    let flags = bucket_flags(&endpoint, &authority);
    record(&server, Path::new("s3://backups/shop"), &flags, lose);
    let put =
        bucket.sent().into_iter().find(|request| request.method == Method::PUT).expect("records are written");
    assert!(put.path.starts_with("/backups/shop/"), "{put:?}");
    let signature = put.headers["authorization"].to_str().unwrap();
    assert!(signature.contains("/eu-central-1/s3/aws4_request"), "{signature}");
    let admin = Admin::of(&server);
    // Without the bucket's authority, no client trusts its certificate.
    let (code, said) = undo_from_bucket(&server, &flags[..4]);
    assert!(code != Some(0) && !admin.exists("lost"), "{said}");
    let (code, said) = undo_from_bucket(&server, &flags);
    assert!(code == Some(0) && admin.exists("lost"), "{said}");
}

/// For an endpoint that names the default port of its scheme, the port is not sent, so a signature that includes it would be
/// refused.
#[test]
fn a_bucket_at_the_port_of_its_scheme_finds_requests_signed_as_sent() {
    let Some(listener) = aws::at_port_of_scheme(443) else { return };
    let server = Kubegc::start("apiserver");
    let mut answer = bucket();
    let bucket = Webhook::listen(listener, move |request: &SentRequest| {
        let header = |name: &str| Some(request.headers.get(name)?.to_str().ok()?.to_owned());
        let arrived = Arrived {
            method: request.method.as_str(),
            path: &request.path,
            query: &request.query,
            header: &header,
            body: &request.bytes,
        };
        if aws::is_signed(AWS[1].1, &arrived) {
            answer(request)
        } else {
            (403, "<Error><Code>SignatureDoesNotMatch</Code></Error>".into())
        }
    });
    let endpoint = format!("https://{}:443", bucket.address().ip());
    let authority = bucket.authority();
    let flags = bucket_flags(&endpoint, &authority);
    record(&server, Path::new("s3://backups/shop"), &flags, lose);
    let (code, said) = undo_from_bucket(&server, &flags);
    assert!(code == Some(0) && Admin::of(&server).exists("lost"), "{said}");
    // With another key, nothing is trusted, which shows that the check works.
    let output = Command::new(env!("CARGO_BIN_EXE_kubegc"))
        .args(["undo", "cm/lost", "--records", "s3://backups/shop"])
        .args(flags)
        .env("KUBECONFIG", &server.kubeconfig)
        .envs([AWS[0], ("AWS_SECRET_ACCESS_KEY", "another")])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("SignatureDoesNotMatch"), "{said}");
}

/// A list that claims to be incomplete without a continuation is not the list of all records.
#[test]
fn a_truncated_list_of_records_is_no_list() {
    let server = Kubegc::start("apiserver");
    let bucket = Webhook::start(|_: &SentRequest| {
        (200, "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>".into())
    });
    let (endpoint, authority) = (bucket.url(""), bucket.authority());
    let flags = bucket_flags(&endpoint, &authority);
    let (code, said) = undo_from_bucket(&server, &flags);
    assert!(code == Some(1) && said.contains("the list is truncated"), "{code:?} {said}");
}

/// After the clock was set back, files of earlier records have later names: the file being written is not the one to delete.
#[test]
fn a_clock_that_was_set_back_loses_no_new_record() {
    let server = Kubegc::start("apiserver");
    let records = server.folder.path().join("records");
    std::fs::create_dir(&records).unwrap();
    let next_year = jiff::Timestamp::now().as_millisecond() + 365 * 86_400_000;
    for number in 0..2 {
        let name = format!("deleted-{}.jsonl", next_year + number);
        std::fs::write(records.join(name), "-\n".repeat(1 << 20)).unwrap();
    }
    let policy = server.folder.path().join("policy.yaml");
    std::fs::write(&policy, "resources: [configmaps]\nmaxSize: 2Mi\n").unwrap();
    record(&server, &records, &["--policy", policy.to_str().unwrap()], lose);
    let line = ["undo", "cm/lost", "--records", records.to_str().unwrap(), "--yes"];
    let (code, out, error) = kubegc(&line, &server.kubeconfig);
    assert!(code == Some(0) && Admin::of(&server).exists("lost"), "{out}{error}");
}

/// The namespace of this backup was restored under another name.
#[test]
fn references_of_a_backup_come_back_in_the_namespace_that_it_went_to() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    admin.create("/api/v1/namespaces", &json!({"metadata": {"name": "shop-2"}}));
    let maps = "/api/v1/namespaces/shop-2/configmaps";
    let owner = admin.create(maps, &json!({"metadata": {"name": "owner"}}))["metadata"]["uid"].clone();
    admin.create(maps, &json!({"metadata": {"name": "leaf"}}));
    let manifest = |name: &str, uid: &str, owners: Value| {
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "shop", "uid": uid, "ownerReferences": owners}})
    };
    let old = "0e2f1a34-5b6c-4d7e-8f90-a1b2c3d4e5f6";
    let owned = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": old}]);
    let items =
        [manifest("owner", old, json!([])), manifest("leaf", "1e2f1a34-5b6c-4d7e-8f90-a1b2c3d4e5f6", owned)];
    let backup = server.folder.path().join("backup.json");
    std::fs::write(&backup, json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()).unwrap();
    let relink = ["relink", "--from", backup.to_str().unwrap(), "--namespace-mappings", "shop:shop-2"];
    let (_, out, error) = kubegc(&relink, &server.kubeconfig);
    assert!(
        out.contains("Would change 1 object") && out.contains("Namespace shop of the backup"),
        "{out}{error}"
    );
    let leaf = || admin.get(&format!("{maps}/leaf")).1["metadata"]["ownerReferences"].clone();
    assert_eq!(leaf(), Value::Null);
    let (code, out, error) = kubegc(&[&relink[..], &["-y"]].concat(), &server.kubeconfig);
    assert_eq!(code, Some(0), "{out}{error}");
    assert_eq!(leaf()[0]["uid"], owner);
}
