//! The commands of docs/several-servers.md, exactly as written there.
//!
//! Only addresses, directories and the path of the binary are replaced. The machines are loopback addresses that no other process
//! uses, so the ports can be those of the guide, and each machine has a directory in place of `/var/lib`.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::support::etcd::EtcdServer;
use super::support::{Signal, repository};

/// Maximum wait on a slow machine.
const PATIENCE: Duration = Duration::from_mins(2);
/// Interval at which a condition is checked.
const LOOK: Duration = Duration::from_millis(100);
const MACHINES: usize = 3;
/// Names of the members of etcd.
const NAMES: [&str; MACHINES] = ["one", "two", "three"];

/// The guide with its machines.
struct Guide {
    text: String,
    folder: tempfile::TempDir,
    /// First three numbers of all addresses.
    network: String,
}

impl Guide {
    fn read() -> Self {
        let text = std::fs::read_to_string(repository().join("docs/several-servers.md")).unwrap();
        let id = std::process::id();
        let network = format!("127.{}.{}.", 64 + (id >> 8) % 128, id % 256);
        Self { text, folder: tempfile::tempdir().unwrap(), network }
    }

    /// Returns the commands of a section, one per line.
    fn commands(&self, section: &str) -> Vec<String> {
        let start = self.text.find(section).unwrap_or_else(|| panic!("the guide has no section {section}"));
        let rest = &self.text[start + section.len()..];
        let section = &rest[..rest.find("\n## ").unwrap_or(rest.len())];
        let mut is_code = false;
        let lines = section.lines().filter(|line| {
            let is_fence = line.starts_with("```");
            is_code ^= is_fence;
            is_code && !is_fence
        });
        let joined = lines.collect::<Vec<_>>().join("\n").replace("\\\n", " ");
        joined.lines().map(str::to_owned).collect()
    }

    /// Returns the command of a section that begins like this.
    fn command(&self, section: &str, beginning: &str) -> String {
        let found = self.commands(section).into_iter().find(|command| command.starts_with(beginning));
        found.unwrap_or_else(|| panic!("{section} has no command {beginning}"))
    }

    fn path(&self, machine: usize, path: &str) -> PathBuf {
        let folder = if path.starts_with("/etc") { "all".to_owned() } else { NAMES[machine].to_owned() };
        self.folder.path().join(folder).join(&path[1..])
    }

    fn address(&self, number: usize) -> String {
        format!("{}{number}", self.network)
    }

    /// Returns a command for the machine with this number, from 0: with its own name and address, except where all machines are
    /// listed.
    fn on(&self, machine: usize, command: &str) -> String {
        let mut lists_all = false;
        let own = |word: &str| word.replace("10.0.0.1:", &format!("10.0.0.{}:", machine + 1));
        let mut words = Vec::new();
        for word in command.split(' ') {
            let is_name = words.last().is_some_and(|last| last == "--name");
            words.push(match word {
                _ if is_name => NAMES[machine].to_owned(),
                _ if lists_all => word.to_owned(),
                _ => own(word),
            });
            lists_all = matches!(word, "--initial-cluster" | "--etcd-endpoints");
        }
        // Members check each other's addresses, and connections within loopback come from 127.0.0.1.
        let command = words.join(" ").replace("subjectAltName=", "subjectAltName=IP:127.0.0.1,");
        let mut command = command.replace("10.0.0.", &self.network);
        for path in ["/var/lib/etcd", "/var/lib/kubegc", "/etc/etcd", "/etc/kubegc"] {
            command = command.replace(path, self.path(machine, path).to_str().unwrap());
        }
        match command.strip_prefix("kubegc ") {
            Some(rest) => format!("{} {rest}", env!("CARGO_BIN_EXE_kubegc")),
            None => command,
        }
    }

    /// Runs a command to its end on the first machine, and returns its output.
    fn run(&self, command: &str) -> Result<String, String> {
        let output = Command::new("sh").args(["-c", &self.on(0, command)]).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Starts a command on a machine.
    fn start(&self, machine: usize, command: &str, log: &str) -> Process {
        let log = self.folder.path().join(format!("{}-{log}.log", NAMES[machine]));
        let file = File::options().create(true).append(true).open(&log).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec {}", self.on(machine, command))]).stderr(file);
        // Signals of the terminal are meant for the test.
        shell.process_group(0);
        Process { child: shell.stdout(Stdio::piped()).spawn().unwrap(), log }
    }

    fn start_server(&self, machine: usize) -> Process {
        // No endpoint may have a loopback address.
        let advertised = format!(" --advertise-address {}", advertised(machine));
        let command = self.command("## 3. Three servers", "kubegc apiserver") + &advertised;
        let mut server = self.start(machine, &command, "apiserver");
        server.wait_for_line("ready on ");
        server
    }

    fn start_etcd(&self, machine: usize) -> Process {
        let mut member = self.start(machine, &self.command("## 1. etcd", "etcd "), "etcd");
        member.drain();
        member
    }
}

/// A process, killed when dropped.
struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    fn wait_for_line(&mut self, wanted: &str) {
        let mut lines = BufReader::new(self.child.stdout.take().unwrap()).lines();
        let found = lines.any(|line| line.unwrap().contains(wanted));
        assert!(found, "{}", std::fs::read_to_string(&self.log).unwrap());
        std::thread::spawn(move || lines.for_each(drop));
    }

    /// Keeps reading its output so that the pipe never fills.
    fn drain(&mut self) {
        let lines = BufReader::new(self.child.stdout.take().unwrap()).lines();
        std::thread::spawn(move || lines.for_each(drop));
    }

    fn end(mut self, signal: Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A process that was waited for must not be killed again.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Stands for the load balancer: passes connections to the servers in its configuration, in turn.
fn balance(guide: &Guide) {
    let configuration = guide.commands("## 4. The load balancer");
    let value = |line: &str, key: &str| {
        let mut words = line.split_whitespace();
        (words.next() == Some(key)).then(|| words.last().unwrap().replace("10.0.0.", &guide.network))
    };
    let bind = configuration.iter().find_map(|line| value(line, "bind")).unwrap();
    let servers: Vec<String> = configuration
        .iter()
        .filter(|line| line.trim().starts_with("server "))
        .map(|line| line.split_whitespace().nth(2).unwrap().replace("10.0.0.", &guide.network))
        .collect();
    assert_eq!(servers.len(), MACHINES);
    let (listener, next) = (TcpListener::bind(bind).unwrap(), Arc::new(AtomicUsize::new(0)));
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let first = next.fetch_add(1, Ordering::Relaxed);
            let mut order = (0..MACHINES).map(|number| &servers[(first + number) % MACHINES]);
            let Some(server) = order.find_map(|server| TcpStream::connect(server).ok()) else { continue };
            std::thread::spawn(move || {
                std::thread::scope(|scope| {
                    scope.spawn(|| carry(&client, &server));
                    scope.spawn(|| carry(&server, &client));
                });
            });
        }
    });
}

fn carry(mut from: &TcpStream, mut to: &TcpStream) {
    drop(std::io::copy(&mut from, &mut to));
    for side in [from, to] {
        drop(side.shutdown(Shutdown::Both));
    }
}

/// Returns a client with a kubeconfig and new connections.
async fn client(kubeconfig: &Path) -> kube::Client {
    let kubeconfig = kube::config::Kubeconfig::read_from(kubeconfig).unwrap();
    let options = kube::config::KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    config.default_retry = false;
    kube::Client::try_from(config).unwrap()
}

async fn send(client: &kube::Client, method: &str, path: &str, body: Option<Value>) -> kube::Result<Value> {
    let request =
        http::Request::builder().method(method).uri(path).header("content-type", "application/json");
    let body = body.map(|body| serde_json::to_vec(&body).unwrap()).unwrap_or_default();
    client.request(request.body(body).unwrap()).await
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Creates an owner with a dependent and deletes the owner; waits until a collector has deleted the dependent.
async fn cascade(client: &kube::Client, name: &str) {
    let owner = send(client, "POST", MAPS, Some(json!({"metadata": {"name": name}}))).await.unwrap();
    let reference =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": owner["metadata"]["uid"]});
    let dependent =
        json!({"metadata": {"name": format!("{name}-dependent"), "ownerReferences": [reference]}});
    send(client, "POST", MAPS, Some(dependent)).await.unwrap();
    send(client, "DELETE", &format!("{MAPS}/{name}"), None).await.unwrap();
    let path = format!("{MAPS}/{name}-dependent");
    wait_until("the dependent is collected", async || {
        matches!(send(client, "GET", &path, None).await, Err(kube::Error::Api(status)) if status.code == 404)
    })
    .await;
}

async fn wait_until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(LOOK).await;
    }
}

/// Returns the addresses behind the Service `kubernetes`.
async fn endpoints(client: &kube::Client) -> BTreeSet<String> {
    let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
    let slice = send(client, "GET", path, None).await.unwrap();
    let of_slice = slice["endpoints"].as_array().into_iter().flatten();
    of_slice.map(|endpoint| endpoint["addresses"][0].as_str().unwrap().to_owned()).collect()
}

/// Returns the address of a server in the endpoints, one reserved for documentation (RFC 5737).
fn advertised(machine: usize) -> String {
    format!("192.0.2.{}", machine + 1)
}

async fn wait_for_endpoints(client: &kube::Client, machines: &[usize]) {
    let wanted: BTreeSet<String> = machines.iter().copied().map(advertised).collect();
    wait_until("the endpoints are the living servers", async || endpoints(client).await == wanted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guide_to_several_servers_works_as_written() {
    // The test is skipped if etcd is missing.
    if EtcdServer::start().is_none() {
        return;
    }
    let guide = Guide::read();
    for machine in 0..MACHINES {
        std::fs::create_dir_all(guide.path(machine, "/var/lib")).unwrap();
    }
    // 1. etcd.
    for command in guide.commands("## 1. etcd") {
        if ["mkdir", "openssl"].iter().any(|program| command.starts_with(program)) {
            guide.run(&command).unwrap();
        }
    }
    let mut members: Vec<Process> = (0..MACHINES).map(|machine| guide.start_etcd(machine)).collect();
    let health = guide.command("## 1. etcd", "curl");
    wait_until("etcd is healthy", async || guide.run(&health).is_ok_and(|text| text.contains("\"true\"")))
        .await;
    // 2. The secret, and 3. the servers, which start at the same time.
    for command in guide.commands("## 2. The secret") {
        guide.run(&command).unwrap();
    }
    let mut servers: Vec<Process> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..MACHINES)
            .map(|machine| {
                scope.spawn({
                    let guide = &guide;
                    move || guide.start_server(machine)
                })
            })
            .collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    // 4. The balancer.
    balance(&guide);
    guide.run(&guide.command("## 4. The load", "(umask")).unwrap();
    let kubeconfig = guide.path(0, "/etc/kubegc/run.kubeconfig");
    let users = client(&kubeconfig).await;
    wait_for_endpoints(&users, &[0, 1, 2]).await;
    for machine in 0..MACHINES {
        // Its health check carries no credentials.
        let url = format!("https://{}:6443/readyz", guide.address(machine + 1));
        let output = Command::new("curl").args(["--silent", "--insecure", &url]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "ok", "{url}");
    }
    // 5. The collectors. On one machine, their pages need different ports.
    let run = guide.command("## 5. The collectors", "kubegc run") + " --bind-address 127.0.0.1:0";
    let mut collectors: Vec<Process> = (0..2).map(|machine| guide.start(machine, &run, "run")).collect();
    for collector in &mut collectors {
        collector.drain();
    }
    cascade(&users, "first").await;

    send(&users, "POST", MAPS, Some(json!({"metadata": {"name": "kept"}}))).await.unwrap();

    // After a machine fails, no request fails, and its server leaves the endpoints.
    members.remove(2).end(Signal::KILL);
    servers.remove(2).end(Signal::KILL);
    let users = client(&kubeconfig).await;
    for number in 0..20 {
        let map = json!({"metadata": {"name": format!("map-{number}")}});
        send(&users, "POST", MAPS, Some(map)).await.unwrap();
        send(&users, "DELETE", &format!("{MAPS}/map-{number}"), None).await.unwrap();
    }
    collectors.remove(0).end(Signal::TERM);
    cascade(&users, "second").await;
    wait_for_endpoints(&users, &[0, 1]).await;

    // This makes the backup.
    guide.run(&guide.command("## Backup", "kubegc backup")).unwrap();
    let backup = std::fs::read_to_string(guide.path(0, "/var/lib/kubegc/cluster.backup")).unwrap();
    assert!(backup.contains("configmaps/default/kept"), "{backup}");

    // Without a majority of etcd, requests are refused; with one, they are served again.
    members.remove(1).end(Signal::KILL);
    let path = format!("{MAPS}/none");
    wait_until("refused", async || {
        matches!(send(&users, "GET", &path, None).await, Err(kube::Error::Api(status)) if status.code == 503)
    })
    .await;
    members.push(guide.start_etcd(1));
    wait_until("served", async || {
        matches!(send(&users, "GET", &path, None).await, Err(kube::Error::Api(status)) if status.code == 404)
    })
    .await;

    // In an upgrade, one server after the other is replaced, and the kubeconfigs stay valid.
    let mut upgraded = Vec::new();
    for machine in 0..2 {
        servers.remove(0).end(Signal::TERM);
        let other = client(&kubeconfig).await;
        cascade(&other, &format!("upgrade-{machine}")).await;
        upgraded.push(guide.start_server(machine));
    }
    let users = client(&kubeconfig).await;
    wait_for_endpoints(&users, &[0, 1]).await;
}
