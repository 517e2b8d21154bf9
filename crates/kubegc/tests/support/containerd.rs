//! A containerd for one test: root, state and socket in a temporary directory on its own small filesystem, images written by the
//! test, pods in the host's network. When dropped, even after a failed test, everything is stopped by its process id and unmounted.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub, missing_docs)] // a broken assumption should stop the test; not every test uses all

use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use prost::Message;
use rustix::process::{Pid, Signal, kill_process};
use sha2::{Digest as _, Sha256};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic_prost::ProstCodec;

use crate::messages as cri;

/// Maximum wait before the test gives up.
pub const PATIENCE: Duration = Duration::from_mins(1);
/// A static binary, so an image needs nothing else.
const BUSYBOX: &str = "/bin/busybox";
/// CRI's namespace option for "of the node".
const NODE: i32 = 2;
/// The sandbox image.
pub const PAUSE: &str = "localhost/pause:1";

/// A release of containerd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The release that is installed on this machine.
    Installed,
    /// 1.7, unpacked by scripts/containerd.
    V1_7,
    /// 2.x, likewise.
    V2,
}

impl Release {
    /// Returns the directory of its programs, unless they are installed.
    fn folder(self) -> Option<PathBuf> {
        let name = match self {
            Self::Installed => return None,
            Self::V1_7 => "1.7",
            Self::V2 => "2",
        };
        Some(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/containerd").join(name))
    }

    /// Returns one of its programs, which finds the others first.
    fn program(self, name: &str) -> Command {
        let Some(folder) = self.folder() else { return Command::new(name) };
        let mut command = Command::new(folder.join(name));
        let others = std::env::var_os("PATH").unwrap_or_default();
        let paths = std::iter::once(folder).chain(std::env::split_paths(&others));
        command.env("PATH", std::env::join_paths(paths).unwrap());
        command
    }
}

/// Explains why these tests cannot run here; `None` if they can. With `CI=true`, being unable is a failure.
pub fn unavailable() -> Option<String> {
    unavailable_release(Release::Installed)
}

/// Like [`unavailable`], for a release that may not have been unpacked.
pub fn unavailable_release(release: Release) -> Option<String> {
    let mut why = Vec::new();
    if !rustix::process::geteuid().is_root() {
        why.push("not root".to_owned());
    }
    if let Some(folder) = release.folder()
        && !folder.join("containerd").exists()
    {
        why.push(format!("no {} (scripts/containerd)", folder.display()));
    }
    for tool in ["containerd", "ctr", "runc", "mount", "umount"] {
        let found = std::env::var_os("PATH")
            .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(tool).exists()));
        if !found {
            why.push(format!("no {tool}"));
        }
    }
    if !Path::new(BUSYBOX).exists() {
        why.push(format!("no {BUSYBOX} (package busybox-static)"));
    }
    if !has_cgroups() {
        why.push("no cgroup filesystem is mounted".to_owned());
    }
    if why.is_empty() {
        return None;
    }
    let why = why.join(", ");
    assert!(std::env::var("CI").as_deref() != Ok("true"), "these tests need a real containerd: {why}");
    eprintln!("SKIPPED: no real containerd ({release:?}): {why}");
    Some(why)
}

/// Reports whether runc finds control groups, which a chroot or a container may not have.
fn has_cgroups() -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(|mount| mount.split(' ').nth(2).is_some_and(|kind| kind.starts_with("cgroup")))
}

/// Waits until a condition holds; fails with its description.
pub fn wait_for<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    wait_within(PATIENCE, what, look)
}

/// Like [`wait_for`], with its own timeout.
pub fn wait_within<T>(patience: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < patience, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(25));
    }
}

/// Mounts at and below a directory, unmounted when dropped.
struct Mounts(PathBuf);

impl Drop for Mounts {
    fn drop(&mut self) {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let below = mounts.lines().filter_map(|line| line.split(' ').nth(1)).map(PathBuf::from);
        let mut below: Vec<_> = below.filter(|path| path.starts_with(&self.0)).collect();
        below.sort();
        for path in below.into_iter().rev() {
            let _ = Command::new("umount").arg("-l").arg(path).status();
        }
    }
}

/// A running containerd.
pub struct Containerd {
    pub folder: PathBuf,
    release: Release,
    process: Option<Child>,
    runtime: tokio::runtime::Runtime,
    /// Connection for all calls, opened again after a restart.
    channel: Channel,
    // These are dropped last, in this order.
    _mounts: Mounts,
    _temporary: tempfile::TempDir,
}

impl Containerd {
    /// Starts a containerd whose files are all on a filesystem of this many MiB, with the sandbox image imported.
    pub fn start(size_mib: u32) -> Self {
        Self::start_release(Release::Installed, size_mib)
    }

    /// Like [`Containerd::start`], for a given release.
    pub fn start_release(release: Release, size_mib: u32) -> Self {
        Self::start_on(release, &format!("size={size_mib}m"))
    }

    /// Like [`Containerd::start_release`], with options of a tmpfs.
    pub fn start_on(release: Release, options: &str) -> Self {
        Self::start_in(release, |folder| {
            let options = format!("{options},mode=0755");
            let mut mounting = Command::new("mount");
            mounting.args(["-t", "tmpfs", "-o", &options, "kubegc-test"]).arg(folder);
            assert!(mounting.status().unwrap().success(), "mount");
        })
    }

    /// Starts a containerd whose files are where temporary files are, so it waits for a disk as one on a node does.
    pub fn start_on_disk(release: Release) -> Self {
        Self::start_in(release, |_| ())
    }

    fn start_in(release: Release, mount: impl FnOnce(&Path)) -> Self {
        let temporary = tempfile::Builder::new().prefix("kubegc-ctd").tempdir().unwrap();
        let folder = temporary.path().join("node");
        std::fs::create_dir(&folder).unwrap();
        mount(&folder);
        let mounts = Mounts(folder.clone());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let socket = folder.join("containerd.sock");
        let connector = tower::service_fn(move |_: Uri| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        let channel = {
            let _guard = runtime.enter();
            Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector)
        };
        let mut containerd =
            Self { folder, release, process: None, runtime, channel, _mounts: mounts, _temporary: temporary };
        containerd.write_configuration();
        containerd.start_again();
        containerd.import(&[TestImage::with_busybox(PAUSE, 0, 0, &["/bin/busybox", "sleep", "100000"])]);
        containerd
    }

    fn write_configuration(&self) {
        let at = |name: &str| self.folder.join(name).display().to_string();
        let text = format!(
            r#"version = 2
root = "{root}"
state = "{state}"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri", "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
  address = "{socket}"
[ttrpc]
  address = "{socket}.ttrpc"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "{PAUSE}"
  disable_tcp_service = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
"#,
            root = at("root"),
            state = at("state"),
            socket = at("containerd.sock"),
        );
        std::fs::write(self.folder.join("config.toml"), text).unwrap();
        std::fs::create_dir_all(self.pod_logs()).unwrap();
    }

    /// Returns the path of its socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("containerd.sock")
    }

    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    pub fn pod_logs(&self) -> PathBuf {
        self.folder.join("logs")
    }

    /// Starts the process (again) and waits until CRI answers.
    pub fn start_again(&mut self) {
        let log = std::fs::File::options().create(true).append(true).open(self.folder.join("log")).unwrap();
        let mut command = self.release.program("containerd");
        command.arg("--config").arg(self.folder.join("config.toml"));
        command.stdout(Stdio::null()).stderr(log);
        self.process = Some(command.spawn().unwrap());
        wait_for("containerd to be ready", || {
            self.try_call::<_, cri::Version>("RuntimeService/Version", cri::Empty {}).ok()
        });
    }

    /// Restarts it so that it only collects its own garbage for requests that wait for that, and not after its start or a number of
    /// changes.
    #[allow(dead_code, reason = "not every user needs it")]
    pub fn collect_only_when_asked(&mut self) {
        let file = self.folder.join("config.toml");
        let scheduler = r#"[plugins."io.containerd.gc.v1.scheduler"]
  mutation_threshold = 0
  startup_delay = "24h"
"#;
        std::fs::write(&file, std::fs::read_to_string(&file).unwrap() + scheduler).unwrap();
        self.end(Signal::TERM);
        self.start_again();
    }

    /// Ends the process: by SIGKILL, like a crash, or by SIGTERM. Containers continue to run under their shims.
    pub fn end(&mut self, signal: Signal) {
        if let Some(mut process) = self.process.take() {
            let _ = kill_process(Pid::from_child(&process), signal);
            let _ = process.wait();
        }
    }

    fn try_call<Q, A>(&self, call: &str, request: Q) -> Result<A, tonic::Status>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let call = PathAndQuery::try_from(format!("/runtime.v1.{call}")).unwrap();
        let channel = self.channel.clone();
        self.runtime.block_on(async move {
            let mut grpc = tonic::client::Grpc::new(channel).max_decoding_message_size(64 << 20);
            grpc.ready().await.map_err(|error| tonic::Status::unavailable(error.to_string()))?;
            let codec = ProstCodec::<Q, A>::default();
            let answer = grpc.unary(tonic::Request::new(request), call, codec);
            let answer = tokio::time::timeout(PATIENCE, answer).await;
            answer
                .map_err(|_| tonic::Status::deadline_exceeded("the test's patience"))?
                .map(tonic::Response::into_inner)
        })
    }

    fn call<Q, A>(&self, call: &str, request: Q) -> A
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        self.try_call(call, request).unwrap_or_else(|status| panic!("{call}: {status}"))
    }

    /// Returns containerd's own client, in the namespace of Kubernetes.
    pub fn ctr_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.release.program("ctr");
        command.arg("-a").arg(self.socket()).args(["-n", "k8s.io"]).args(arguments);
        command
    }

    pub fn ctr(&self, arguments: &[&str]) -> Output {
        let output = self.ctr_command(arguments).output().unwrap();
        assert!(output.status.success(), "ctr {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }

    /// Imports images, and waits until CRI lists all of them.
    pub fn import(&self, images: &[TestImage]) {
        let archive = self.folder.with_file_name("images.tar");
        write_archive(&archive, images);
        self.ctr(&["images", "import", "--snapshotter", "overlayfs", archive.to_str().unwrap()]);
        std::fs::remove_file(&archive).unwrap();
        wait_for("the images to be listed", || {
            let listed = self.images();
            images.iter().all(|image| listed.contains_key(&image.name)).then_some(())
        });
    }

    /// Returns the identifiers of the images by tag.
    pub fn images(&self) -> HashMap<String, String> {
        let listed: cri::ListImagesResponse = self.call("ImageService/ListImages", cri::Empty {});
        let tags = |image: cri::Image| image.repo_tags.into_iter().map(move |tag| (tag, image.id.clone()));
        listed.images.into_iter().flat_map(tags).collect()
    }

    pub fn containers(&self) -> Vec<cri::Container> {
        let listed: cri::ListContainersResponse =
            self.call("RuntimeService/ListContainers", cri::ListContainersRequest::default());
        listed.containers
    }

    pub fn sandboxes(&self) -> Vec<cri::PodSandbox> {
        let listed: cri::ListPodSandboxResponse =
            self.call("RuntimeService/ListPodSandbox", cri::ListPodSandboxRequest::default());
        listed.items
    }

    fn sandbox_config(&self, pod: &Pod) -> cri::SandboxConfig {
        let namespaces = cri::NamespaceOption { network: NODE, pid: NODE, ipc: NODE };
        let mut annotations = HashMap::new();
        if pod.of_kubelet {
            annotations.insert("kubernetes.io/config.source".to_owned(), "api".to_owned());
        }
        cri::SandboxConfig {
            metadata: Some(cri::PodSandboxMetadata {
                name: pod.name.clone(),
                uid: pod.uid(),
                namespace: "default".into(),
                attempt: pod.attempt,
            }),
            hostname: String::new(),
            log_directory: self.log_directory(pod).display().to_string(),
            labels: pod.labels(),
            annotations,
            linux: Some(cri::LinuxSandboxConfig {
                cgroup_parent: String::new(),
                security_context: Some(cri::SandboxSecurityContext { namespace_options: Some(namespaces) }),
            }),
        }
    }

    pub fn log_directory(&self, pod: &Pod) -> PathBuf {
        self.pod_logs().join(format!("default_{}_{}", pod.name, pod.uid()))
    }

    /// Runs a sandbox as the kubelet does.
    pub fn run_sandbox(&self, pod: &Pod) -> String {
        let request = cri::RunPodSandboxRequest { config: Some(self.sandbox_config(pod)) };
        let answer: cri::ById = self.call("RuntimeService/RunPodSandbox", request);
        answer.id
    }

    /// Creates a container as the kubelet does.
    pub fn create(
        &self,
        pod: &Pod,
        sandbox: &str,
        name: &str,
        attempt: u32,
        image: &str,
        command: &[&str],
    ) -> String {
        let namespaces = cri::NamespaceOption { network: NODE, pid: NODE, ipc: NODE };
        let mut labels = pod.labels();
        labels.insert("io.kubernetes.container.name".into(), name.into());
        let config = cri::ContainerConfig {
            metadata: Some(cri::ContainerMetadata { name: name.into(), attempt }),
            image: Some(cri::ImageSpec { image: image.into() }),
            command: command.iter().map(ToString::to_string).collect(),
            labels,
            log_path: format!("{name}/{attempt}.log"),
            linux: Some(cri::LinuxContainerConfig {
                security_context: Some(cri::ContainerSecurityContext { namespace_options: Some(namespaces) }),
            }),
        };
        std::fs::create_dir_all(self.log_directory(pod).join(name)).unwrap();
        let request = cri::CreateContainerRequest {
            pod_sandbox_id: sandbox.into(),
            config: Some(config),
            sandbox_config: Some(self.sandbox_config(pod)),
        };
        let answer: cri::ById = self.call("RuntimeService/CreateContainer", request);
        answer.id
    }

    pub fn start_container(&self, id: &str) {
        let _: cri::Empty =
            self.call("RuntimeService/StartContainer", cri::ById { id: id.into(), timeout: 0 });
    }

    /// Runs a container to its end.
    pub fn run_to_end(&self, pod: &Pod, sandbox: &str, name: &str, attempt: u32, image: &str) -> String {
        let id = self.create(pod, sandbox, name, attempt, image, &["/bin/busybox", "echo", "done"]);
        self.start_container(&id);
        self.wait_for_state(&id, EXITED);
        id
    }

    pub fn wait_for_state(&self, id: &str, state: i32) {
        wait_for("the state of a container", || {
            self.containers().iter().any(|one| one.id == id && one.state == state).then_some(())
        });
    }

    pub fn remove_container(&self, id: &str) {
        let _: cri::Empty =
            self.call("RuntimeService/RemoveContainer", cri::ById { id: id.into(), timeout: 0 });
    }

    pub fn remove_image(&self, id: &str) {
        let request = cri::ImageRequest { image: Some(cri::ImageSpec { image: id.into() }) };
        let _: cri::Empty = self.call("ImageService/RemoveImage", request);
    }

    /// Stops and removes every sandbox with its containers.
    pub fn remove_pods(&self) {
        for sandbox in self.sandboxes() {
            let request = cri::ById { id: sandbox.id, timeout: 0 };
            let _: cri::Empty = self.call("RuntimeService/StopPodSandbox", request.clone());
            let _: cri::Empty = self.call("RuntimeService/RemovePodSandbox", request);
        }
    }

    /// Removes a container that another process may be removing.
    pub fn try_to_remove_container(&self, id: &str) -> Result<(), tonic::Status> {
        let request = cri::ById { id: id.into(), timeout: 0 };
        self.try_call::<_, cri::Empty>("RuntimeService/RemoveContainer", request).map(drop)
    }

    /// Deletes the runtime's record of a container, so that it does not know the container's state after the next start. Only
    /// allowed while it is stopped.
    pub fn forget_state(&self, id: &str) {
        let noted = self.folder.join("root/io.containerd.grpc.v1.cri/containers").join(id).join("status");
        std::fs::remove_file(noted).unwrap();
    }

    pub fn stop_sandbox(&self, id: &str) {
        let _: cri::Empty =
            self.call("RuntimeService/StopPodSandbox", cri::ById { id: id.into(), timeout: 0 });
    }

    /// Returns the agent, with this containerd and its own state directory.
    pub fn agent(&self, arguments: &[&str]) -> Command {
        self.agent_of(env!("CARGO_BIN_EXE_kubegc").as_ref(), arguments)
    }

    /// Like [`Containerd::agent`], for another kubegc binary.
    pub fn agent_of(&self, kubegc: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(kubegc);
        command.args(["node", "--container-runtime-endpoint", &self.endpoint()]);
        if !arguments.contains(&"--kubeconfig") {
            command.args(["--kubeconfig", ""]);
        }
        // A single pass also follows eviction signals; the free space on this machine's disk must not matter.
        if arguments.iter().any(|argument| ["--once", "--dry-run"].contains(argument)) {
            command.args(["--eviction-hard", ""]);
        }
        command.arg("--data-dir").arg(self.state_directory()).arg("--pod-logs-dir").arg(self.pod_logs());
        command.arg("--container-log-links-dir").arg(self.folder.join("links"));
        command.args(["--kubelet-config", "/nonexistent", "--bind-address", "127.0.0.1:0"]).args(arguments);
        command
    }

    /// Returns the state directory, which is not on the small filesystem.
    pub fn state_directory(&self) -> PathBuf {
        self.folder.with_file_name("state")
    }
}

/// CRI's states.
pub const CREATED: i32 = 0;
pub const RUNNING: i32 = 1;
pub const EXITED: i32 = 2;
pub const UNKNOWN: i32 = 3;

impl Drop for Containerd {
    fn drop(&mut self) {
        // Pods are ended through the runtime while it runs; the remaining shims are ended by process id, found by the directory
        // that only this containerd uses.
        if self.process.is_some() {
            let listed = self.try_call::<_, cri::ListPodSandboxResponse>(
                "RuntimeService/ListPodSandbox",
                cri::ListPodSandboxRequest::default(),
            );
            for sandbox in listed.map(|answer| answer.items).unwrap_or_default() {
                let request = cri::ById { id: sandbox.id, timeout: 0 };
                let _ = self.try_call::<_, cri::Empty>("RuntimeService/StopPodSandbox", request.clone());
                let _ = self.try_call::<_, cri::Empty>("RuntimeService/RemovePodSandbox", request);
            }
        }
        self.end(Signal::TERM);
        let own = self.folder.display().to_string();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(id) =
                entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw)
            else {
                continue;
            };
            let command_line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let command_line = String::from_utf8_lossy(&command_line);
            if command_line.contains("containerd-shim") && command_line.contains(&own) {
                let _ = kill_process(id, Signal::KILL);
            }
        }
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            let end: Vec<&str> = log.lines().rev().take(20).collect();
            eprintln!("containerd's last words:\n{}", end.into_iter().rev().collect::<Vec<_>>().join("\n"));
        }
    }
}

/// A pod of the test.
#[derive(Clone, Debug)]
pub struct Pod {
    pub name: String,
    pub attempt: u32,
    pub of_kubelet: bool,
    /// UID, if it is not derived from the name.
    pub uid: Option<String>,
}

impl Pod {
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), attempt: 0, of_kubelet: true, uid: None }
    }

    /// Returns its UID.
    pub fn uid(&self) -> String {
        if let Some(uid) = &self.uid {
            return uid.clone();
        }
        let digest = gc_types::hexadecimal(&Sha256::digest(self.name.as_bytes()));
        format!(
            "{}-{}-4{}-8{}-{}",
            &digest[..8],
            &digest[8..12],
            &digest[12..15],
            &digest[15..18],
            &digest[18..30]
        )
    }

    fn labels(&self) -> HashMap<String, String> {
        [("name", self.name.clone()), ("namespace", "default".into()), ("uid", self.uid())]
            .into_iter()
            .map(|(key, value)| (format!("io.kubernetes.pod.{key}"), value))
            .collect()
    }
}

/// An image that the test writes.
pub struct TestImage {
    pub name: String,
    layers: Vec<Vec<u8>>,
    command: Vec<String>,
}

impl TestImage {
    /// Creates an image with one layer of this many bytes that no other image has.
    pub fn unique(name: &str, seed: u64, bytes: usize) -> Self {
        Self { name: name.into(), layers: vec![random_layer(seed, bytes)], command: vec!["/none".into()] }
    }

    /// Creates an image with a layer that all images with this base share, and one of its own.
    pub fn on_base(name: &str, base: (u64, usize), own: (u64, usize)) -> Self {
        let layers = [base, own].map(|(seed, bytes)| random_layer(seed, bytes)).into();
        Self { name: name.into(), layers, command: vec!["/none".into()] }
    }

    /// Creates an image with busybox (a layer that all such images share), and unique bytes if requested.
    pub fn with_busybox(name: &str, seed: u64, bytes: usize, command: &[&str]) -> Self {
        let mut layers = vec![tar(&[("bin/busybox", 0o755, &std::fs::read(BUSYBOX).unwrap())])];
        if bytes > 0 {
            layers.push(random_layer(seed, bytes));
        }
        Self { name: name.into(), layers, command: command.iter().map(ToString::to_string).collect() }
    }
}

/// Returns incompressible bytes that differ by seed (splitmix64).
fn random_layer(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut content = Vec::with_capacity(bytes + 8);
    while content.len() < bytes {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        content.extend((mixed ^ (mixed >> 31)).to_le_bytes());
    }
    content.truncate(bytes);
    tar(&[("content", 0o644, &content)])
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", gc_types::hexadecimal(&Sha256::digest(bytes)))
}

fn tar_header(name: &str, mode: u32, size: usize) -> [u8; 512] {
    let mut header = [0_u8; 512];
    let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, &format!("{mode:07o}\0"));
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{size:011o}\0"));
    put(136, "00000000000\0");
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

fn tar(files: &[(&str, u32, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, mode, content) in files {
        out.extend(tar_header(name, *mode, content.len()));
        out.extend(*content);
        out.resize(out.len().next_multiple_of(512), 0);
    }
    out.resize(out.len() + 1024, 0);
    out
}

/// Writes images as one OCI layout in a tar archive.
fn write_archive(path: &Path, images: &[TestImage]) {
    let mut blobs: std::collections::BTreeMap<String, Vec<u8>> = std::collections::BTreeMap::new();
    let mut manifests = Vec::new();
    for image in images {
        let diff_ids: Vec<String> = image.layers.iter().map(|layer| digest(layer)).collect();
        let config = serde_json::json!({
            "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }, "os": "linux",
            "config": {"Cmd": image.command}, "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        let config = config.to_string().into_bytes();
        let layers: Vec<_> = image
            .layers
            .iter()
            .zip(&diff_ids)
            .map(|(layer, id)| {
                serde_json::json!({
                    "mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": id, "size": layer.len(),
                })
            })
            .collect();
        let manifest = serde_json::json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest(&config), "size": config.len()},
            "layers": layers,
        });
        let manifest = manifest.to_string().into_bytes();
        manifests.push(serde_json::json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest(&manifest), "size": manifest.len(),
            "annotations": {"io.containerd.image.name": image.name},
        }));
        blobs.insert(digest(&config), config);
        blobs.insert(digest(&manifest), manifest);
        blobs.extend(diff_ids.into_iter().zip(image.layers.iter().cloned()));
    }
    let index = serde_json::json!({"schemaVersion": 2, "manifests": manifests}).to_string().into_bytes();
    let mut out = std::io::BufWriter::new(std::fs::File::create(path).unwrap());
    let mut put = |name: &str, content: &[u8]| {
        out.write_all(&tar_header(name, 0o644, content.len())).unwrap();
        out.write_all(content).unwrap();
        out.write_all(&vec![0; content.len().next_multiple_of(512) - content.len()]).unwrap();
    };
    put("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#);
    put("index.json", &index);
    for (id, content) in &blobs {
        put(&format!("blobs/sha256/{}", id.trim_start_matches("sha256:")), content);
    }
    out.write_all(&[0; 1024]).unwrap();
    out.flush().unwrap();
}
