//! Unix: Linux and macOS.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitStatus;

use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group,
};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

/// Mode of private directories and files.
const PRIVATE_DIRECTORY: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;
/// Bits of a mode that give others access.
const OTHERS: u32 = 0o077;
/// Offset that shells add to the number of the signal that ended a command.
const ENDED_BY_SIGNAL: i32 = 128;

/// Connection to a socket of a driver.
pub type LocalStream = tokio::net::UnixStream;

/// Creates a directory that only its owner can read, and its parents, if they do not exist.
pub fn create_private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY).create(path)
}

/// Creates a directory that only its owner can read. Fails if it exists, because another user may have created it.
pub fn new_private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(PRIVATE_DIRECTORY).create(path)
}

/// Makes files that are created with these options readable by their owner only.
pub fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(PRIVATE_FILE)
}

/// Makes files that are created with these options executable.
pub fn executable(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o755)
}

/// Reports whether the mode of a file gives other users access.
#[must_use]
pub fn is_open_to_others(file: &Metadata) -> bool {
    file.permissions().mode() & OTHERS != 0
}

/// Removes the access of other users to an open file, whatever has its name by now.
pub fn make_private(file: &File) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(PRIVATE_FILE))
}

/// Writes the entries of a directory to the disk, so that a file that was created or renamed there survives a power failure.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Returns numbers that tell a file from the one that takes its name later.
#[must_use]
pub fn file_identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Makes a second name of a program; an update of the program updates both.
pub fn link(program: &Path, name: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(program, name)
}

/// Returns the number of free bytes of the filesystem of a directory, if known.
#[must_use]
pub fn free_bytes(directory: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(directory).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Makes a file occupy this number of bytes on its disk.
pub fn occupy(file: &File, bytes: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes)?)
}

/// Returns the directory of the user, if known.
#[must_use]
pub fn home() -> Option<OsString> {
    std::env::var_os("HOME").filter(|home| !home.is_empty())
}

/// Returns the name of this host.
#[must_use]
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Raises the limit of open files of this process as far as it may.
pub fn raise_file_limit() -> io::Result<()> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    Ok(rustix::process::setrlimit(Resource::Nofile, raised)?)
}

/// Signals that ask this process to end: SIGINT and SIGTERM.
#[derive(Debug)]
pub struct StopSignals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl StopSignals {
    /// Starts to receive them. Must be called within a tokio runtime.
    pub fn new() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for the next one.
    pub async fn recv(&mut self) {
        let _ = tokio::select! {
            interrupt = self.interrupt.recv() => interrupt,
            terminate = self.terminate.recv() => terminate,
        };
    }
}

/// Signals that ask this process to read its configuration again: SIGHUP.
#[derive(Debug)]
pub struct Hangups(tokio::signal::unix::Signal);

impl Hangups {
    /// Starts to receive them. Must be called within a tokio runtime.
    pub fn new() -> io::Result<Self> {
        Ok(Self(signal(SignalKind::hangup())?))
    }

    /// Waits for the next one; `None` if none will come.
    pub async fn recv(&mut self) -> Option<()> {
        self.0.recv().await
    }
}

fn pid(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
}

/// Asks a process to end, or ends it at once if it is to be killed. A process that has ended is not an error.
pub fn end_process(child: &mut Child, is_killed: bool) {
    let _ = pid(child).map(|id| kill_process(id, if is_killed { Signal::KILL } else { Signal::TERM }));
}

/// Returns the exit code of a process as shells have it: a signal counts from 128.
#[must_use]
pub fn exit_code(status: ExitStatus) -> Option<i32> {
    status.code().or_else(|| status.signal().map(|signal| ENDED_BY_SIGNAL + signal))
}

/// A process with all that it starts, which are killed if this is dropped before the process has ended.
#[derive(Debug)]
pub struct ProcessGroup(Child);

impl ProcessGroup {
    /// Starts a command as the leader of a new group. Must be called within a tokio runtime.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        Ok(Self(command.process_group(0).kill_on_drop(true).spawn()?))
    }

    /// Returns the process.
    pub fn leader(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Kills the group.
    pub fn kill(&self) {
        // `None` once its status was taken.
        if let Some(group) = pid(&self.0) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    /// Waits for the end of the process, and kills the processes that it left behind, which may hold its output open.
    pub async fn end(&self) -> io::Result<()> {
        let Some(id) = pid(&self.0) else { return Ok(()) };
        // It is not reaped yet, so its number cannot belong to another group.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let wait = move || rustix::io::retry_on_intr(|| rustix::process::waitid(WaitId::Pid(id), options));
        tokio::task::spawn_blocking(wait).await.map_err(io::Error::other)??;
        // There may be nothing left.
        let _ = kill_process_group(id, Signal::KILL);
        Ok(())
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Connects to the socket of a driver or a runtime on this machine.
pub async fn connect_local(socket: &Path) -> io::Result<LocalStream> {
    LocalStream::connect(socket).await
}
