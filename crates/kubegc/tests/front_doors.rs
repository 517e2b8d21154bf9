//! Entry points for testing: a command with its own server, a background server, an existing kubeconfig, and the clock.
#![allow(clippy::unwrap_used, missing_docs)] // a broken assumption should stop the test

mod support;

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Node, ServiceAccount};
use kube::api::{Api, DeleteParams, PostParams};
use support::Kubegc;

/// Returns the binary with its own environment: no kubeconfig, no data, no background server.
fn kubegc(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["60", env!("CARGO_BIN_EXE_kubegc")]).args(arguments);
    command
        .env("HOME", home)
        .env("XDG_DATA_HOME", home.join("data"))
        .env("XDG_RUNTIME_DIR", home.join("run"));
    command.env("TMPDIR", home.join("tmp")).env_remove("KUBECONFIG").env_remove("KUBERNETES_SERVICE_HOST");
    std::fs::create_dir_all(home.join("tmp")).unwrap();
    command
}

fn ended(home: &Path, arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = kubegc(home, arguments).output().unwrap();
    (status.code().unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// Lists the remaining files in the directories of temporary files and of data.
fn left(home: &Path) -> Vec<String> {
    let names = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    [names(&home.join("tmp")), names(&home.join("data"))].concat()
}

#[test]
fn a_command_has_a_server_and_its_exit_code_is_passed_on() {
    let home = tempfile::tempdir().unwrap();
    let script = "test -r \"$KUBECONFIG\" && grep -q 'server: https://127.0.0.1:' \"$KUBECONFIG\" && echo seen; exit 7";
    let (code, out, error) = ended(home.path(), &["up", "--", "sh", "-c", script]);
    assert_eq!((code, out.as_str()), (7, "seen\n"), "{error}");
    assert_eq!(left(home.path()), [""; 0], "nothing is kept");

    let (code, _, error) = ended(home.path(), &["up", "--", "/no/such/command"]);
    assert_eq!(code, 127, "{error}");
    assert!(error.contains("cannot run /no/such/command"), "{error}");
    let (code, _, error) = ended(home.path(), &["up", "--", "/"]);
    assert_eq!(code, 126, "{error}");
    let (code, _, error) = ended(home.path(), &["up", "--"]);
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("no command after --"), "{error}");
    let (code, ..) = ended(home.path(), &["up", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(code, 128 + 9);
    assert_eq!(left(home.path()), [""; 0], "nothing is kept");
}

#[test]
fn a_server_runs_in_the_background_until_it_is_told_to_end() {
    let home = tempfile::tempdir().unwrap();
    let (code, mut out, error) = ended(home.path(), &["up", "--detach", "--bind-address", "127.0.0.1:0"]);
    assert_eq!(code, 0, "{out}{error}");
    assert!(out.contains("export KUBECONFIG=") && out.contains("kubegc down"), "{out}");

    // Commands that ask a cluster find it by themselves.
    let (code, printed, error) = ended(home.path(), &["stuck"]);
    assert_eq!(code, 0, "{printed}{error}");
    let (code, _, error) =
        ended(home.path(), &["up", "--detach", "--ephemeral", "--bind-address", "127.0.0.1:0"]);
    assert_eq!(code, 1);
    assert!(error.contains("already running in the background"), "{error}");

    // A line about the journal once preceded the reason.
    let (code, _, error) = ended(home.path(), &["up", "--bind-address", "127.0.0.1:0"]);
    assert_eq!((code, error.lines().count()), (1, 1), "{error}");
    assert!(error.contains("is in use by another process"), "{error}");

    // Regression test: `down` returned when the server had begun to end, and the next one found the data directory in use. A
    // connection delays the end.
    for _ in 0..2 {
        let address = out.split("https://").nth(1).and_then(|rest| rest.split('/').next()).unwrap();
        let _connection = std::net::TcpStream::connect(address).unwrap();
        let (code, printed, error) = ended(home.path(), &["down"]);
        assert_eq!((code, printed.as_str()), (0, "The server in the background has ended.\n"), "{error}");
        let (code, started, error) = ended(home.path(), &["up", "--detach", "--bind-address", "127.0.0.1:0"]);
        assert_eq!(code, 0, "{started}{error}");
        out = started;
    }
    assert_eq!(ended(home.path(), &["down"]).0, 0);
    let (code, out, _) = ended(home.path(), &["down"]);
    assert_eq!((code, out.as_str()), (0, "No server runs in the background.\n"));

    // Its entry in a kubeconfig exists only while it runs.
    let config = home.path().join("shared");
    std::fs::write(&config, "{apiVersion: v1, kind: Config, contexts: [{name: prod, context: {}}]}").unwrap();
    let arguments = ["up", "--detach", "--ephemeral", "--bind-address", "127.0.0.1:0", "--write-kubeconfig"];
    let (code, out, error) = ended(home.path(), &[&arguments[..], &[config.to_str().unwrap()]].concat());
    assert_eq!(code, 0, "{out}{error}");
    assert!(std::fs::read_to_string(&config).unwrap().contains("kubegc"));
    let (code, _, error) = ended(home.path(), &["down"]);
    assert_eq!(code, 0, "{error}");
    let left = std::fs::read_to_string(&config).unwrap();
    assert!(left.contains("prod") && !left.contains("kubegc"), "{left}");
}

#[test]
fn a_start_in_the_background_that_fails_says_why() {
    let home = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, out, error) =
        ended(home.path(), &["up", "--detach", "--ephemeral", "--bind-address", &address]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(error.contains("this one is free: --bind-address 127.0.0.1:"), "{error}");
}

#[test]
fn a_foreign_file_is_no_place_for_a_kubeconfig() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("notes.txt");
    std::fs::write(&file, "Dear diary").unwrap();
    for subcommand in ["up", "apiserver"] {
        let path = file.to_str().unwrap();
        let (code, _, error) = ended(
            home.path(),
            &[subcommand, "--ephemeral", "--bind-address", "127.0.0.1:0", "--write-kubeconfig", path],
        );
        assert_eq!(code, 2, "{error}");
        assert!(error.contains("is not changed"), "{error}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "Dear diary");
    }
}

/// A closed output ends the demonstration, which leaves nothing behind.
#[test]
fn a_demonstration_without_a_reader_leaves_nothing_behind() {
    let home = tempfile::tempdir().unwrap();
    let mut child =
        kubegc(home.path(), &["demo"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{:?}", output.status.signal());
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    assert_eq!(left(home.path()), [""; 0]);
}

/// Each object is explained by the same reason, whether the watch or the response came first.
#[test]
fn a_demonstration_explains_each_object_the_same_way_each_time() {
    let home = tempfile::tempdir().unwrap();
    let explained = || {
        let (code, out, error) = ended(home.path(), &["demo"]);
        assert_eq!(code, 0, "{out}{error}");
        let lines = out.lines().filter(|line| line.contains("  gone ") || line.contains("  kept "));
        // The time is removed.
        let mut lines: Vec<String> = lines
            .map(|line| {
                line.split("  ")
                    .map(str::trim)
                    .filter(|part| !part.is_empty() && !part.ends_with(" ms"))
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .collect();
        lines.sort();
        lines
    };
    let first = explained();
    assert_eq!(first.len(), 17, "{first:#?}");
    for _ in 0..3 {
        assert_eq!(explained(), first);
    }
}

#[tokio::test]
async fn the_clock_is_set_and_settling_is_awaited_over_http() {
    let server = Kubegc::start("up");
    let client = server.client().await;
    let ask = async |method: &str, path: &str| {
        let request = http::Request::builder().method(method).uri(path).body(Vec::new()).unwrap();
        client.request::<serde_json::Value>(request).await
    };
    let clock = ask("GET", "/kubegc/v1/clock").await.unwrap();
    assert_eq!(clock["ahead"], "0s");
    let clock = ask("POST", "/kubegc/v1/clock?advance=36h").await.unwrap();
    assert_eq!(clock["ahead"], "36h0m0s");
    let clock = ask("POST", "/kubegc/v1/clock?ahead=1h").await.unwrap();
    assert_eq!(clock["ahead"], "1h0m0s");
    let settled = ask("POST", "/kubegc/v1/settle?timeout=30s").await.unwrap();
    assert_eq!(settled["settled"], true);
    for (method, path, expected) in [
        ("POST", "/kubegc/v1/clock?advance=soon", 400),
        ("POST", "/kubegc/v1/clock?advance=-1h", 400),
        ("POST", "/kubegc/v1/clock?advance=2000000h", 400),
        ("DELETE", "/kubegc/v1/fork?name=7", 404),
        ("POST", "/kubegc/v1/settle?until=then", 400),
        ("DELETE", "/kubegc/v1/clock", 405),
        ("GET", "/kubegc/v1/nothing", 404),
    ] {
        let error = ask(method, path).await.unwrap_err();
        assert!(matches!(&error, kube::Error::Api(status) if status.code == expected), "{path}: {error}");
    }
    // Whoever does not wait learns how things stand, which between two of these requests may be that something has just changed.
    let begun = std::time::Instant::now();
    while let Err(error) = ask("POST", "/kubegc/v1/settle?timeout=0s").await {
        assert!(matches!(&error, kube::Error::Api(status) if status.code == 504), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(30), "{error}");
    }
    what_is_created_later_is_new(&client, &ask("POST", "/kubegc/v1/clock?advance=36h").await.unwrap()).await;
    ask("POST", "/kubegc/v1/settle?timeout=30s").await.unwrap();
    let requests: Api<CertificateSigningRequest> = Api::all(client);
    requests.get("new").await.expect("a request is collected when it is a day old, and this one is new");
    // A user who may not call this path cannot set the clock.
    let anonymous = hyper_answer(&server.url, "/kubegc/v1/clock").await;
    assert_eq!(anonymous, 403);
}

/// Objects are stamped by the same clock that the collectors use.
async fn what_is_created_later_is_new(client: &kube::Client, clock: &serde_json::Value) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut asked = rcgen::CertificateParams::default();
    asked.distinguished_name.push(rcgen::DnType::CommonName, "somebody");
    let asked = asked.serialize_request(&key).unwrap().pem().unwrap();
    let request = serde_json::json!({
        "metadata": {"name": "new"},
        "spec": {
            "request": k8s_openapi::ByteString(asked.into_bytes()),
            "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"],
        },
    });
    let request = serde_json::from_value(request).unwrap();
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    let created = requests.create(&PostParams::default(), &request).await.unwrap();
    let created = created.metadata.creation_timestamp.unwrap().0;
    let now: jiff::Timestamp = clock["now"].as_str().unwrap().parse().unwrap();
    let seconds = (created.as_second() - now.as_second()).abs();
    assert!(seconds < 60, "created {created}, when the clock said {now}");
}

#[tokio::test]
async fn a_server_is_reset_and_forked_over_http() {
    let server = Kubegc::start("up");
    let client = server.client().await;
    let ask = async |method: &str, path: &str| {
        let request = http::Request::builder().method(method).uri(path).body(Vec::new()).unwrap();
        client.request::<serde_json::Value>(request).await
    };
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let map: ConfigMap = serde_json::from_value(serde_json::json!({"metadata": {"name": "mine"}})).unwrap();
    let created = maps.create(&PostParams::default(), &map).await.unwrap();
    ask("POST", "/kubegc/v1/clock?advance=36h").await.unwrap();
    assert_eq!(ask("POST", "/kubegc/v1/settle?timeout=30s").await.unwrap()["settled"], true);
    // An immediate request may coincide with the heartbeat of a node.
    let at_rest = serde_json::json!({"settled": true, "moving": []});
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        let settled = ask("GET", "/kubegc/v1/settle").await.unwrap();
        if settled == at_rest {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{settled}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }

    // A fork has the same objects and its own address; its changes do not affect the original.
    let fork = ask("POST", "/kubegc/v1/fork").await.unwrap();
    let kubeconfig = kube::config::Kubeconfig::from_yaml(fork["kubeconfig"].as_str().unwrap()).unwrap();
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    let forked: Api<ConfigMap> = Api::namespaced(kube::Client::try_from(config).unwrap(), "default");
    assert_eq!(forked.get("mine").await.unwrap(), created);
    forked.delete("mine", &DeleteParams::default()).await.unwrap();
    assert_eq!(maps.get("mine").await.unwrap(), created);
    let listed = ask("GET", "/kubegc/v1/fork").await.unwrap();
    assert_eq!(listed, serde_json::json!({"forks": [{"name": 1, "server": fork["server"]}]}));
    assert_eq!(ask("DELETE", "/kubegc/v1/fork?name=1").await.unwrap()["ended"], 1);
    assert_eq!(ask("GET", "/kubegc/v1/fork").await.unwrap(), serde_json::json!({"forks": []}));

    a_fork_takes_the_port_that_it_is_asked_to(&server, &client).await;

    // A reset restores the objects and the clock, and the controllers work as before.
    assert_eq!(ask("POST", "/kubegc/v1/reset").await.unwrap()["reset"], true);
    let certificates = maps.get_opt("kube-root-ca.crt").await.unwrap();
    assert!(certificates.is_some(), "what every namespace has is there at once");
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    assert!(accounts.get_opt("default").await.unwrap().is_some());
    assert!(maps.get_opt("mine").await.unwrap().is_none());
    assert_eq!(ask("GET", "/kubegc/v1/clock").await.unwrap()["ahead"], "0s");
    assert_eq!(ask("POST", "/kubegc/v1/settle?timeout=30s").await.unwrap()["settled"], true);
    let nodes: Api<Node> = Api::all(client.clone());
    assert!(nodes.get_opt("kubegc-node-0").await.unwrap().is_some());
    maps.create(&PostParams::default(), &map).await.unwrap();

    for (method, path, expected) in [
        ("DELETE", "/kubegc/v1/fork?name=1", 404),
        ("DELETE", "/kubegc/v1/fork?name=one", 400),
        ("DELETE", "/kubegc/v1/fork", 400),
        ("POST", "/kubegc/v1/fork?port=70000", 400),
        ("POST", "/kubegc/v1/fork?name=1", 400),
        ("POST", "/kubegc/v1/reset?hard=true", 400),
        ("GET", "/kubegc/v1/reset", 405),
    ] {
        let error = ask(method, path).await.unwrap_err();
        assert!(matches!(&error, kube::Error::Api(status) if status.code == expected), "{path}: {error}");
    }
    let durable = tempfile::tempdir().unwrap();
    let folder = durable.path().to_str().unwrap();
    let server = Kubegc::start_with("up", ["--data-dir", folder, "--workloads=off"]);
    let request = http::Request::post("/kubegc/v1/reset").body(Vec::new()).unwrap();
    let error = server.client().await.request::<serde_json::Value>(request).await.unwrap_err();
    assert!(error.to_string().contains("durable"), "{error}");
}

async fn a_fork_takes_the_port_that_it_is_asked_to(server: &Kubegc, client: &kube::Client) {
    let ask = async |method: &str, path: &str| {
        let request = http::Request::builder().method(method).uri(path).body(Vec::new()).unwrap();
        client.request::<serde_json::Value>(request).await
    };
    let port_of = |url: &str| url.rsplit(':').next().unwrap().to_owned();
    let taken = port_of(&server.url);
    let error = ask("POST", &format!("/kubegc/v1/fork?port={taken}")).await.unwrap_err();
    assert!(matches!(&error, kube::Error::Api(status) if status.code == 409), "{error}");
    loop {
        // This port was free a moment ago. Another process may take it first.
        let free = ask("POST", "/kubegc/v1/fork").await.unwrap();
        ask("DELETE", &format!("/kubegc/v1/fork?name={}", free["name"])).await.unwrap();
        let port = port_of(free["server"].as_str().unwrap());
        match ask("POST", &format!("/kubegc/v1/fork?port={port}")).await {
            Ok(fork) => {
                assert_eq!(fork["server"], free["server"]);
                ask("DELETE", &format!("/kubegc/v1/fork?name={}", fork["name"])).await.unwrap();
                return;
            }
            Err(error) => {
                assert!(matches!(&error, kube::Error::Api(status) if status.code == 409), "{error}");
            }
        }
    }
}

/// Returns the code of an anonymous GET.
async fn hyper_answer(url: &str, path: &str) -> u16 {
    let mut config = kube::Config::new(url.parse().unwrap());
    config.accept_invalid_certs = true;
    let client = kube::Client::try_from(config).unwrap();
    let request = http::Request::builder().uri(path).body(Vec::new()).unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(10), client.request_text(request)).await.unwrap();
    match answer {
        Err(kube::Error::Api(status)) => status.code,
        other => panic!("{other:?}"),
    }
}
