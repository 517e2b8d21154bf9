//! The programs that test frameworks start, with exactly the flags that they pass.
#![allow(clippy::unwrap_used, missing_docs)] // a broken assumption should stop the test

#[path = "envtest/access.rs"]
mod access;
#[path = "envtest/operators.rs"]
mod operators;
#[allow(unreachable_pub, reason = "shared with the tests of the storage")]
#[path = "../../gc-store/tests/support/port.rs"]
mod port;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::TryStreamExt as _;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, PostParams, WatchParams};
use port::Port;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustix::process::{Pid, Signal, kill_process};

/// Maximum time for a program to be ready on a slow machine, and to end: far less than the half an hour of an open watch.
const PATIENCE: Duration = Duration::from_secs(30);
const END: Duration = Duration::from_secs(30);

/// A program in the directory of assets; killed when dropped.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Assets {
    folder: tempfile::TempDir,
}

impl Assets {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_kubegc"))
            .args(["envtest", "assets"])
            .arg(folder.path().join("bin"))
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(text.contains("export KUBEBUILDER_ASSETS="), "{text}");
        Self { folder }
    }

    fn command(&self, program: &str) -> Command {
        Command::new(self.folder.path().join("bin").join(program))
    }

    fn start(&self, program: &str, arguments: &[String], controllers: &str) -> Program {
        let mut command = self.command(program);
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        command.env("KUBEGC_ENVTEST_CONTROLLERS", controllers);
        Program(command.spawn().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Returns the answer to a GET over plain HTTP; `None` while there is no answer.
fn plain_get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

/// An authority that signs one certificate, as test frameworks make them.
struct SigningAuthority {
    authority: String,
    certificate: String,
    key: String,
}

fn signed(name: &str, group: Option<&str>, usage: ExtendedKeyUsagePurpose) -> SigningAuthority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params.distinguished_name.push(DnType::CommonName, "test environment");
    let authority_key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&authority_key).unwrap().pem();
    let issuer = Issuer::new(params, authority_key);
    let mut leaf = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    leaf.distinguished_name.push(DnType::CommonName, name);
    if let Some(group) = group {
        leaf.distinguished_name.push(DnType::OrganizationName, group);
    }
    leaf.extended_key_usages = vec![usage];
    let key = KeyPair::generate().unwrap();
    let certificate = leaf.signed_by(&key, &issuer).unwrap().pem();
    SigningAuthority { authority, certificate, key: key.serialize_pem() }
}

async fn ready(client: &kube::Client) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let request = http::Request::builder().uri("/healthz").body(Vec::new()).unwrap();
        match client.request_text(request).await {
            Ok(text) if text == "ok" => return,
            other => assert!(Instant::now() < deadline, "{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn client(port: u16, authority: &str, identity: Option<&SigningAuthority>) -> kube::Client {
    let kubeconfig = serde_json::json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": format!("https://127.0.0.1:{port}"),
            "certificate-authority-data": STANDARD.encode(authority)}}],
        "users": [{"name": "u", "user": identity.map_or(serde_json::json!({}), |signed| serde_json::json!({
            "client-certificate-data": STANDARD.encode(&signed.certificate),
            "client-key-data": STANDARD.encode(&signed.key)}))}]});
    let kubeconfig = kube::config::Kubeconfig::from_yaml(&kubeconfig.to_string()).unwrap();
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default()).await;
    kube::Client::try_from(config.unwrap()).unwrap()
}

fn write(path: &Path, text: &str) -> String {
    std::fs::write(path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    }
}

/// Returns the holders of the Leases that identify API servers.
async fn identities(client: &kube::Client) -> Vec<String> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    let labelled = ListParams::default().labels("apiserver.kubernetes.io/identity=kube-apiserver");
    let specs = leases.list(&labelled).await.unwrap().items.into_iter().filter_map(|lease| lease.spec);
    specs.filter_map(|spec| spec.holder_identity).collect()
}

/// Reports whether a server has collectors, in which case it serves their clock.
async fn has_collectors(client: &kube::Client) -> bool {
    let request = http::Request::get("/kubegc/v1/clock").body(Vec::new()).unwrap();
    client.request::<serde_json::Value>(request).await.is_ok_and(|clock| clock["ahead"].is_string())
}

#[tokio::test]
async fn controller_runtime_starts_stops_and_looks_at_the_help() {
    let assets = Assets::new();
    for (program, absent) in [("kube-apiserver", "--insecure-port"), ("etcd", "--nothing")] {
        let help = assets.command(program).arg("--help").output().unwrap();
        let text = String::from_utf8(help.stdout).unwrap();
        assert!(help.status.success() && text.contains("      --"), "{text}");
        assert!(text.lines().all(|line| !line.trim_start().starts_with(absent)), "{text}");
    }
    let refused = assets.command("kube-apiserver").arg("--insecure-port=0").output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("unknown flag: --insecure-port"));

    let ports = [Port::reserve(), Port::reserve(), Port::reserve()];
    let [etcd_port, peer_port, port] = ports.each_ref().map(Port::number);
    let data = assets.path("data");
    let etcd = assets.start(
        "etcd",
        &[
            format!("--listen-peer-urls=http://127.0.0.1:{peer_port}"),
            format!("--data-dir={}", data.display()),
            format!("--advertise-client-urls=http://127.0.0.1:{etcd_port}"),
            format!("--listen-client-urls=http://127.0.0.1:{etcd_port}"),
            "--unsafe-no-fsync=true".to_owned(),
        ],
        "",
    );
    let deadline = Instant::now() + PATIENCE;
    while !plain_get(etcd_port, "/health").is_some_and(|text| text.starts_with("HTTP/1.1 200")) {
        assert!(Instant::now() < deadline, "etcd is not healthy");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!data.exists(), "it keeps nothing");

    let serving = signed("kube-apiserver", None, ExtendedKeyUsagePurpose::ServerAuth);
    let admin = signed("admin", Some("system:masters"), ExtendedKeyUsagePurpose::ClientAuth);
    let certificates = assets.path("certificates");
    std::fs::create_dir(&certificates).unwrap();
    write(&certificates.join("apiserver.crt"), &serving.certificate);
    write(&certificates.join("apiserver.key"), &serving.key);
    let signer = signed("sa", None, ExtendedKeyUsagePurpose::ServerAuth);
    let signer_certificate = write(&certificates.join("sa-signer.crt"), &signer.certificate);
    let signer_key = write(&certificates.join("sa-signer.key"), &signer.key);
    let client_ca = write(&certificates.join("client-cert-auth-ca.crt"), &admin.authority);
    let mut server = assets.start(
        "kube-apiserver",
        &[
            "--allow-privileged=true".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--cert-dir={}", certificates.display()),
            format!("--client-ca-file={client_ca}"),
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            format!("--etcd-servers=http://127.0.0.1:{etcd_port}"),
            format!("--secure-port={port}"),
            format!("--service-account-issuer=https://127.0.0.1:{port}/"),
            format!("--service-account-key-file={signer_certificate}"),
            format!("--service-account-signing-key-file={signer_key}"),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        ],
        "",
    );
    // Health is answered without credentials, and with the given certificate.
    ready(&client(port, &serving.authority, None).await).await;
    let client = client(port, &serving.authority, Some(&admin)).await;
    let deadline = Instant::now() + PATIENCE;
    while identities(&client).await.is_empty() {
        assert!(Instant::now() < deadline, "the server has no identity Lease");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let asking = client.clone();
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let owner = maps.create(&PostParams::default(), &map("owner")).await.unwrap();
    let mut dependent = map("dependent");
    dependent.metadata.owner_references =
        kube::Resource::owner_ref(&owner, &()).map(|reference| vec![reference]);
    maps.create(&PostParams::default(), &dependent).await.unwrap();
    maps.delete("owner", &DeleteParams::background()).await.unwrap();
    assert!(!has_collectors(&asking).await, "no collector runs unless it is asked for");

    // The server ends soon, even with watches open.
    let mut watches = Vec::new();
    for _ in 0..5 {
        let mut watch = Box::pin(maps.watch(&WatchParams::default(), "0").await.unwrap());
        watch.try_next().await.unwrap();
        watches.push(watch);
    }
    assert!(maps.get_opt("dependent").await.unwrap().is_some(), "nothing has collected it");
    let begun = Instant::now();
    kill_process(Pid::from_child(&server.0), Signal::TERM).unwrap();
    let status = tokio::task::spawn_blocking(move || server.0.wait().unwrap()).await.unwrap();
    println!("the server ended after {:?}", begun.elapsed());
    assert!(status.success() && begun.elapsed() < END, "{status} {:?}", begun.elapsed());
    drop(etcd);
}

#[tokio::test]
async fn fabric8_passes_values_as_next_words_and_collectors_can_be_asked_for() {
    let assets = Assets::new();
    let ports = [Port::reserve(), Port::reserve(), Port::reserve()];
    let [etcd_port, peer_port, port] = ports.each_ref().map(Port::number);
    let words = |line: String| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let (data, wal) = (assets.path("data"), assets.path("wal"));
    let _etcd = assets.start(
        "etcd",
        &words(format!(
            "-data-dir {} -wal-dir {} --listen-client-urls http://0.0.0.0:{etcd_port} \
             --advertise-client-urls http://0.0.0.0:{etcd_port} --initial-cluster default=http://localhost:{peer_port} \
             --initial-advertise-peer-urls http://localhost:{peer_port} --listen-peer-urls http://localhost:{peer_port}",
            data.display(),
            wal.display()
        )),
        "",
    );
    let serving = signed("kube-apiserver", None, ExtendedKeyUsagePurpose::ServerAuth);
    let admin = signed("admin", Some("system:masters"), ExtendedKeyUsagePurpose::ClientAuth);
    let folder = assets.path("kubeapitest");
    std::fs::create_dir(&folder).unwrap();
    let certificate = write(&folder.join("apiserver.crt"), &serving.certificate);
    let key = write(&folder.join("apiserver.key"), &serving.key);
    let client_ca = write(&folder.join("client.crt"), &admin.authority);
    let _server = assets.start(
        "kube-apiserver",
        &words(format!(
            "--cert-dir {} --secure-port {port} --etcd-servers http://0.0.0.0:{etcd_port} --authorization-mode RBAC \
             --service-account-issuer https://localhost --service-account-signing-key-file {key} \
             --service-account-signing-key-file {key} --service-account-key-file {key} \
             --service-account-issuer {certificate} --disable-admission-plugins ServiceAccount \
             --client-ca-file {client_ca} --service-cluster-ip-range 10.0.0.0/24 --allow-privileged",
            folder.display()
        )),
        "gc,namespace,deployment-controller",
    );
    let client = client(port, &serving.authority, Some(&admin)).await;
    ready(&client).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let owner = maps.create(&PostParams::default(), &map("owner")).await.unwrap();
    let mut dependent = map("dependent");
    dependent.metadata.owner_references =
        kube::Resource::owner_ref(&owner, &()).map(|reference| vec![reference]);
    maps.create(&PostParams::default(), &dependent).await.unwrap();
    maps.delete("owner", &DeleteParams::background()).await.unwrap();
    assert!(has_collectors(&client).await);
    let deadline = Instant::now() + PATIENCE;
    while maps.get_opt("dependent").await.unwrap().is_some() {
        assert!(Instant::now() < deadline, "the collector does not run");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(identities(&client).await, [""; 0], "nothing is written where tests set the clock ahead");

    // A workload controller runs where it is named: this one alone, so that no pods are created.
    let deployment = serde_json::from_value(serde_json::json!({"metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "main", "image": "busybox"}]}}}}));
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
    deployments.create(&PostParams::default(), &deployment.unwrap()).await.unwrap();
    let sets: Api<ReplicaSet> = Api::namespaced(client.clone(), "default");
    while sets.list(&ListParams::default()).await.unwrap().items.is_empty() {
        assert!(Instant::now() < deadline, "the controller of Deployments does not run");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// `KUBEBUILDER_ASSETS=$(kubegc envtest assets) go test` changes nothing in a suite.
#[test]
fn without_a_directory_the_path_of_the_assets_is_all_that_is_printed() {
    let data = tempfile::tempdir().unwrap();
    let assets = |options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubegc"));
        let output =
            command.args(["envtest", "assets"]).args(options).env("XDG_DATA_HOME", data.path()).output();
        let output = output.unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let folder = data.path().canonicalize().unwrap().join("kubegc/envtest");
    assert_eq!(assets(&[]), (Some(0), format!("{}\n", folder.display())));
    let (code, newer) = assets(&["--kubernetes-version", "1.37"]);
    let newer = PathBuf::from(newer.trim_end());
    assert!(code == Some(0) && newer.starts_with(&folder) && newer != folder, "{newer:?}");
    for folder in [&folder, &newer] {
        for program in ["kube-apiserver", "etcd"] {
            let version = Command::new(folder.join(program)).arg("--version").output().unwrap();
            assert!(version.status.success(), "{version:?}");
        }
    }
    assert_eq!(assets(&["--archive-url", "http://files.example.com"]).0, Some(2));
}

#[test]
fn flags_without_effect_are_reported_in_one_line() {
    let assets = Assets::new();
    let arguments = ["-data-dir", "/x", "--name=a", "--name=b", "--listen-client-urls", "https://x"];
    let output = assets.command("etcd").args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "etcd (kubegc): accepted without effect: --data-dir, --name\n\
         error: --listen-client-urls https://x: expected http://HOST:PORT\n"
    );
}

/// setup-envtest downloads, checks and unpacks these archives, and finds them again where it has unpacked them. The programs get
/// the version from the name of their directory, or from the environment.
#[test]
fn assets_of_another_version_serve_it() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_kubegc"))
        .args(["envtest", "assets", "--kubernetes-version=1.37"])
        .arg(folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let line = text.lines().find_map(|line| line.strip_prefix("export KUBEBUILDER_ASSETS=")).unwrap();
    assert!(line.contains("/k8s/1.37.0-"), "{text}");
    assert!(text.contains("\nsetup-envtest use 1.37.0 --installed-only"), "{text}");
    let version = |program: &Path, variable: Option<&str>| {
        let mut command = Command::new(program);
        command.arg("--version").env_remove("KUBEGC_ENVTEST_KUBERNETES_VERSION");
        command.envs(variable.map(|version| ("KUBEGC_ENVTEST_KUBERNETES_VERSION", version)));
        let output = command.output().unwrap();
        let all = [output.stdout, output.stderr].concat();
        String::from_utf8(all).unwrap()
    };
    let (named, unnamed) = (Path::new(line).join("kube-apiserver"), folder.path().join("kube-apiserver"));
    assert_eq!(version(&named, None), "Kubernetes v1.37.0\n");
    assert_eq!(version(&unnamed, None), "Kubernetes v1.36.2\n");
    assert_eq!(version(&unnamed, Some("1.37")), "Kubernetes v1.37.0\n");
    assert_eq!(version(&named, Some("1.36")), "Kubernetes v1.36.2\n");
    let refused = version(&named, Some("1.35"));
    assert!(
        refused.contains("KUBEGC_ENVTEST_KUBERNETES_VERSION: Kubernetes 1.35 is not served"),
        "{refused}"
    );
}

#[test]
fn archives_are_those_of_setup_envtest() {
    let folder = tempfile::tempdir().unwrap();
    let written = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubegc"));
        command.args(["envtest", "assets"]).arg(folder.path()).args(arguments);
        command.env("PATH", folder.path().join("nothing")).output().unwrap()
    };
    let refused = written(&["--archive-url=file:///tmp"]);
    assert_eq!(refused.status.code(), Some(2));
    let output = written(&["--archive-url=http://127.0.0.1:8000/"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("use 1.36.2 --index http://127.0.0.1:8000/envtest-releases.yaml\n"), "{text}");

    let machine = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let name = format!("envtest-v1.36.2-linux-{machine}.tar.gz");
    let sum = Command::new("sha512sum").arg(folder.path().join(&name)).output().unwrap().stdout;
    let hash = String::from_utf8(sum).unwrap().split(' ').next().unwrap().to_owned();
    let index: serde_json::Value = serde_saphyr::from_str(
        &std::fs::read_to_string(folder.path().join("envtest-releases.yaml")).unwrap(),
    )
    .unwrap();
    assert_eq!(
        index,
        serde_json::json!({"releases": {"v1.36.2": {
            &name: {"hash": hash, "selfLink": format!("http://127.0.0.1:8000/{name}")},
        }}})
    );
    // Only regular files of an archive are unpacked, from any directory in it.
    let listed = Command::new("tar").arg("-tvzf").arg(folder.path().join(&name)).output().unwrap().stdout;
    let listed = String::from_utf8(listed).unwrap();
    let entries: Vec<(&str, &str)> =
        listed.lines().map(|line| (&line[..10], line.rsplit('/').next().unwrap())).collect();
    assert_eq!(entries, ["kube-apiserver", "etcd", "kubectl"].map(|name| ("-rwxr-xr-x", name)));
    let etcd = listed.lines().nth(1).unwrap().split_whitespace().nth(2).unwrap();
    assert!(etcd.parse::<usize>().unwrap() < 1024, "the program is in the archive once: {listed}");

    // The unpacked programs run under their names, as do those that were written there directly.
    let store = folder.path().join(format!("k8s/1.36.2-linux-{machine}"));
    let unpacked = folder.path().join("unpacked");
    std::fs::create_dir(&unpacked).unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(folder.path().join(&name)).args(["--strip-components=2", "-C"]).arg(&unpacked);
    assert!(tar.status().unwrap().success());
    for folder in [store, unpacked] {
        let version = Command::new(folder.join("kube-apiserver")).arg("--version").output().unwrap();
        assert_eq!(String::from_utf8(version.stdout).unwrap(), "Kubernetes v1.36.2\n");
        let etcd = Command::new(folder.join("etcd")).arg("--help").output().unwrap();
        let help = String::from_utf8(etcd.stdout).unwrap();
        assert!(etcd.status.success() && help.contains("--listen-client-urls"), "{help}");
        let kubectl = Command::new(folder.join("kubectl")).output().unwrap();
        assert_eq!(kubectl.status.code(), Some(1));
        let said = String::from_utf8(kubectl.stderr).unwrap();
        assert!(said.starts_with("kubectl was not on PATH when kubegc wrote this"), "{said}");
    }
    assert!(!folder.path().join("kubectl").exists());
}
