//! Attacks other than those on the listeners: users of the page's API, machine providers, records, and etcd, each hostile to its
//! own process, beside an administrator.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;
#[path = "support/figures.rs"]
mod support_figures;

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use support::etcd::port::Port;
use support::{Kubegc, etcd};
use support_figures::{Bounds, code, memory, withstand};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Number of concurrent hostile clients.
const CLIENTS: usize = 16;

async fn create(client: &kube::Client, path: &str, object: Value) {
    assert_eq!(code(client, Method::POST, path, &[], &object).await, 201, "{path}");
}

/// Requests that this user may make: a question, answered with the user's permissions, and a link to the page.
const MAY: [&str; 2] = ["/ask", "/link"];

/// Returns questions for a user who may read ConfigMaps of one namespace, and orders that this user may not give.
fn questions() -> Vec<(Method, String, Value)> {
    let paths = [
        "overview",
        "map",
        "map?namespace=bank",
        "search?q=e",
        "object?resource=secrets&namespace=bank&name=x",
        "journal",
        "deletions",
        "backup",
        "clock",
        "plan?resource=configmaps&namespace=bank&name=owner",
        "remaining?namespace=bank",
        "pause",
        "reset",
    ];
    let reads = paths.iter().map(|path| (Method::GET, format!("/kubegc/v1/{path}"), Value::Null));
    let orders = ["backup", "pause", "reset", "clock?advance=1h", "fork?name=1", "settle", "delete", "link"];
    let orders = orders.iter().map(|path| (Method::POST, format!("/kubegc/v1/{path}"), json!({})));
    let asked = [
        json!({"stuck": {"namespace": "", "atLeast": "0s"}}),
        json!({"doctor": {"namespace": ""}}),
        json!({"why": {"objects": [{"resource": "configmaps", "namespace": "bank", "name": "../owner"}]}}),
    ]
    .map(|question| {
        (Method::POST, "/kubegc/v1/ask".to_owned(), json!({"form": "value", "question": question}))
    });
    reads.chain(orders).chain(asked).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn administrators_are_answered_beside_narrow_users_of_the_page() {
    let server = Kubegc::start_collectors();
    let client = server.client().await;
    create(&client, "/api/v1/namespaces", json!({"metadata": {"name": "bank"}})).await;
    for number in 0..50 {
        let map = json!({"metadata": {"name": format!("m{number}")}, "data": {"k": "v".repeat(1_000)}});
        create(&client, "/api/v1/namespaces/bank/configmaps", map).await;
    }
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]);
    let roles = format!("{RBAC}/namespaces/bank/roles");
    create(&client, &roles, json!({"metadata": {"name": "reader"}, "rules": rules})).await;
    let binding = json!({"metadata": {"name": "ann"}, "subjects": [{"kind": "User", "name": "ann"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}});
    create(&client, &format!("{RBAC}/namespaces/bank/rolebindings"), binding).await;
    let mut users = Vec::new();
    for _ in 0..CLIENTS {
        users.push(server.client().await);
    }
    let granted = Arc::<Mutex<Vec<String>>>::default();
    let bounds = Bounds { more: 128, answers: true };
    withstand("narrow users of /kubegc/v1/*", (&client, server.id()), bounds, |tried, tasks| {
        for (number, user) in users.into_iter().enumerate() {
            let (tried, granted) = (Arc::clone(tried), Arc::clone(&granted));
            tasks.spawn(async move {
                let ann = [("impersonate-user", "ann"), ("impersonate-group", "system:authenticated")];
                for (method, path, body) in questions().into_iter().cycle().skip(number) {
                    let code = code(&user, method.clone(), &path, &ann, &body).await;
                    if method == Method::POST && code < 400 && !MAY.iter().any(|may| path.ends_with(may)) {
                        granted.lock().unwrap().push(format!("{method} {path}: {code}"));
                    }
                    tried.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    })
    .await;
    assert_eq!(*granted.lock().unwrap(), Vec::<String>::new());
}

/// Creates nodes whose machines are asked for once a second.
async fn nodes(client: &kube::Client) {
    for number in 0..20 {
        let node = json!({"metadata": {"name": format!("n{number}")}, "spec": {"providerID": format!("rack://{number}")}});
        create(client, "/api/v1/nodes", node).await;
    }
}

const EVERY_SECOND: [&str; 3] = ["--node-monitor-period=1s", "--cloud-timeout=2s", "--workloads=off"];

/// Counts the lines of a file.
async fn count_lines(path: std::path::PathBuf, tried: Arc<AtomicUsize>) {
    loop {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        tried.store(text.lines().count(), Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn administrators_are_answered_beside_machine_commands() {
    let folder = tempfile::tempdir().unwrap();
    let (script, calls) = (folder.path().join("machines"), folder.path().join("calls"));
    // Each in turn: endless output, endless errors, a child that stays, silence.
    let text = format!(
        "#!/bin/sh\necho x >> {0}\ncase $(($(wc -l < {0}) % 4)) in\n0) exec yes;;\n1) exec yes >&2;;\n2) sleep 5 & exec yes;;\n*) exec sleep 5;;\nesac\n",
        calls.display()
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let command = format!("--cloud-exec={}", script.display());
    let server = Kubegc::start_with("up", EVERY_SECOND.into_iter().chain(["--ephemeral", &command]));
    let client = server.client().await;
    let bounds = Bounds { more: 64, answers: true };
    nodes(&client).await;
    withstand("machine commands", (&client, server.id()), bounds, |tried, tasks| {
        tasks.spawn(count_lines(calls.clone(), Arc::clone(tried)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn administrators_are_answered_beside_machine_webhooks() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let webhook = format!("--cloud-webhook=http://{}/", listener.local_addr().unwrap());
    let called = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&called);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let number = counted.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4096]).await;
                let (first, more) = match number % 3 {
                    0 => ("HTTP/1.1 200 OK\r\n\r\n", "["),
                    1 => ("HTTP/1.1 200 OK\r\n", "x: y\r\n"),
                    _ => ("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n", ""),
                };
                let _ = stream.write_all(first.as_bytes()).await;
                let more = more.repeat(4096);
                while !more.is_empty() && stream.write_all(more.as_bytes()).await.is_ok() {}
                tokio::time::sleep(Duration::from_secs(5)).await;
            });
        }
    });
    let server = Kubegc::start_with("up", EVERY_SECOND.into_iter().chain(["--ephemeral", &webhook]));
    let client = server.client().await;
    nodes(&client).await;
    let bounds = Bounds { more: 64, answers: true };
    withstand("machine webhooks", (&client, server.id()), bounds, |tried, tasks| {
        let tried = Arc::clone(tried);
        tasks.spawn(async move {
            loop {
                tried.store(called.load(Ordering::Relaxed), Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    })
    .await;
}

/// Returns a client of the stand-in for kube-apiserver with this token.
fn client_of_envtest(port: u16, token: &str) -> kube::Client {
    let mut config = kube::Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
    config.accept_invalid_certs = true;
    config.default_retry = false;
    config.auth_info.token = Some(token.to_owned().into());
    kube::Client::try_from(config).unwrap()
}

/// The listener is only for this machine, which has other users.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn administrators_are_answered_beside_hostile_users_of_envtest() {
    let folder = tempfile::tempdir().unwrap();
    let (bin, tokens) = (folder.path().join("bin"), folder.path().join("tokens.csv"));
    let assets =
        Command::new(env!("CARGO_BIN_EXE_kubegc")).args(["envtest", "assets"]).arg(&bin).output().unwrap();
    assert!(assets.status.success(), "{assets:?}");
    std::fs::write(&tokens, "admin,ann,1,system:masters\nnone,bob,2\n").unwrap();
    let ports = [Port::reserve(), Port::reserve()];
    let [port, etcd_port] = ports.each_ref().map(Port::number);
    let start = |program: &str, arguments: &[String]| {
        let mut command = Command::new(bin.join(program));
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        Program(command.spawn().unwrap())
    };
    let etcd = format!("http://127.0.0.1:{etcd_port}");
    let mut stand_in =
        start("etcd", &[format!("--listen-client-urls={etcd}"), format!("--advertise-client-urls={etcd}")]);
    let server = start(
        "kube-apiserver",
        &[
            format!("--secure-port={port}"),
            format!("--etcd-servers={etcd}"),
            format!("--token-auth-file={}", tokens.display()),
        ],
    );
    let client = client_of_envtest(port, "admin");
    let deadline = std::time::Instant::now() + Duration::from_mins(1);
    while code(&client, Method::GET, "/healthz", &[], &Value::Null).await != 200 {
        assert!(std::time::Instant::now() < deadline, "the server is not ready");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let bounds = Bounds { more: 128, answers: true };
    withstand("users of envtest", (&client, server.0.id()), bounds, |tried, tasks| {
        for number in 0..2 * CLIENTS {
            let (tried, token) = (Arc::clone(tried), ["none", "forged"][number % 2]);
            tasks.spawn(async move {
                let user = client_of_envtest(port, token);
                for path in ["/api/v1/secrets", "/livez?verbose", "/metrics", "/apis"].into_iter().cycle() {
                    code(&user, Method::GET, path, &[], &Value::Null).await;
                    tried.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for number in 0..CLIENTS {
            let tried = Arc::clone(tried);
            tasks.spawn(async move {
                let text =
                    ["GET / HTTP/1.1\r\nx: ", "GET /health HTTP/1.1\r\nhost: x\r\n\r\n", "\0\u{1}\u{2}"]
                        [number % 3];
                loop {
                    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", etcd_port)).await else { continue };
                    for _ in 0..100 {
                        if stream.write_all(text.as_bytes()).await.is_err() {
                            break;
                        }
                    }
                    tried.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            });
        }
    })
    .await;
    assert_eq!(stand_in.0.try_wait().unwrap(), None, "the stand-in for etcd lives");
    println!("the stand-in for etcd: {} MiB at most", memory(stand_in.0.id(), "VmHWM:").unwrap());
}

/// A process that is killed when the test ends.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes everything but records into the directory of records.
fn spoil(records: &Path) {
    std::fs::create_dir_all(records).unwrap();
    let at = |name: &str| records.join(name);
    assert!(Command::new("mkfifo").arg(at("deleted-5.jsonl")).status().unwrap().success());
    symlink("/dev/zero", at("deleted-6.jsonl")).unwrap();
    symlink("/nonexistent", at("deleted-7.jsonl")).unwrap();
    std::fs::create_dir(at("deleted-8.jsonl")).unwrap();
    let lines = [
        vec![b'x'; 33 << 20],
        b"[".repeat(1 << 20),
        b"\0\xff".to_vec(),
        b"{}".to_vec(),
        b"signed-1 a b c".to_vec(),
    ];
    std::fs::write(at("deleted-9.jsonl"), lines.join(&b'\n')).unwrap();
}

fn program(server: &Kubegc, arguments: &[&str]) -> Program {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubegc"));
    command.args(arguments).env("KUBECONFIG", &server.kubeconfig).stdout(Stdio::null()).stderr(Stdio::null());
    Program(command.spawn().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorder_and_undo_hold_little_of_hostile_records() {
    let server = Kubegc::start("apiserver");
    let client = server.client().await;
    let records = server.folder.path().join("records");
    spoil(&records);
    let folder = records.to_str().unwrap().to_owned();
    let recorder = program(&server, &["recorder", "--records", &folder]);
    let undo = ["undo", "cm/lost", "--records", &folder, "--accept-unsigned", "--yes"];
    let (server, undo) = (Arc::new(server), undo.map(str::to_owned));
    let (most, running) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&server));
    let highest = Arc::clone(&most);
    let bounds = Bounds { more: 128, answers: true };
    withstand("recorder", (&client, recorder.0.id()), bounds, |tried, tasks| {
        let tried = Arc::clone(tried);
        tasks.spawn(async move {
            loop {
                let mut undoing = program(&running, &undo.each_ref().map(String::as_str));
                while undoing.0.try_wait().unwrap().is_none() {
                    highest.fetch_max(memory(undoing.0.id(), "VmHWM:").unwrap_or(0), Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                tried.fetch_add(1, Ordering::Relaxed);
            }
        });
    })
    .await;
    let most = most.load(Ordering::Relaxed);
    println!("undo: {most} MiB at most");
    assert!(most < 256, "{most} MiB");
}

/// Starts a relay to etcd that is slow, or damages etcd's messages.
async fn relay(etcd: u16, is_damaging: Arc<AtomicBool>, damaged: Arc<AtomicUsize>) -> u16 {
    const DELAY: Duration = Duration::from_millis(10);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(("127.0.0.1", etcd)).await else { continue };
            let (mut asks, mut is_told) = client.into_split();
            let (mut answers, mut is_asked) = server.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut asks, &mut is_asked).await });
            let (is_damaging, damaged) = (Arc::clone(&is_damaging), Arc::clone(&damaged));
            tokio::spawn(async move {
                let mut bytes = vec![0; 64 << 10];
                while let Ok(length @ 1..) = answers.read(&mut bytes).await {
                    tokio::time::sleep(DELAY).await;
                    if is_damaging.load(Ordering::Relaxed) {
                        // The damage is within messages, and in their lengths.
                        bytes[..length].iter_mut().skip(9).step_by(7).for_each(|byte| *byte ^= 0x55);
                        damaged.fetch_add(1, Ordering::Relaxed);
                    }
                    if is_told.write_all(&bytes[..length]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_outlives_an_etcd_that_is_slow_or_malicious() {
    let Some(etcd) = etcd::EtcdServer::start() else { return };
    let (is_damaging, damaged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let port = relay(etcd.port(), Arc::clone(&is_damaging), Arc::clone(&damaged)).await;
    let endpoint = format!("http://127.0.0.1:{port}");
    let flags = ["--ephemeral", "--storage=etcd", "--etcd-endpoints", &endpoint];
    let server = Kubegc::start_with("apiserver", flags);
    let client = server.client().await;
    let mut users = Vec::new();
    for _ in 0..2 * CLIENTS {
        users.push(server.client().await);
    }
    let mut users = users.into_iter();
    let mut write = |count: usize, tried: &Arc<AtomicUsize>, tasks: &mut tokio::task::JoinSet<()>| {
        for (number, user) in users.by_ref().take(count).enumerate() {
            let tried = Arc::clone(tried);
            tasks.spawn(async move {
                for turn in 0.. {
                    let name = format!("m{number}-{turn}-{}", tried.fetch_add(1, Ordering::Relaxed));
                    let map = json!({"metadata": {"name": name}, "data": {"k": "v".repeat(4_000)}});
                    code(&user, Method::POST, MAPS, &[], &map).await;
                }
            });
        }
    };
    let bounds = Bounds { more: 128, answers: true };
    withstand("etcd that is slow", (&client, server.id()), bounds, |tried, tasks| {
        write(CLIENTS, tried, tasks);
    })
    .await;
    let bounds = Bounds { more: 128, answers: false };
    withstand("etcd that is malicious", (&client, server.id()), bounds, |tried, tasks| {
        write(CLIENTS, tried, tasks);
        is_damaging.store(true, Ordering::Relaxed);
        let is_damaging = Arc::clone(&is_damaging);
        tasks.spawn(async move {
            // The damage ends with the attack.
            let _ends = Restore(is_damaging);
            std::future::pending::<()>().await;
        });
    })
    .await;
    println!("etcd: {} damaged answers", damaged.load(Ordering::Relaxed));
    assert!(damaged.load(Ordering::Relaxed) > 0);
}

/// Ends the damage when it is dropped.
struct Restore(Arc<AtomicBool>);

impl Drop for Restore {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}
