//! Windows. What has no counterpart there does nothing or fails with [`io::ErrorKind::Unsupported`], as said at each function.

use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::windows::fs::MetadataExt as _;
use std::path::Path;
use std::process::ExitStatus;

use tokio::process::{Child, Command};
use tokio::signal::windows::{CtrlBreak, CtrlC, CtrlClose, ctrl_break, ctrl_c, ctrl_close};

/// Connection to a socket of a driver. None is ever made: tokio has no Unix sockets on Windows.
pub type LocalStream = tokio::io::DuplexStream;

/// Creates a directory, and its parents, if they do not exist. Its access list is that of its parent.
pub fn create_private_directory(path: &Path) -> io::Result<()> {
    std::fs::create_dir_all(path)
}

/// Creates a directory, with the access list of its parent. Fails if it exists, because another user may have created it.
pub fn new_private_directory(path: &Path) -> io::Result<()> {
    std::fs::create_dir(path)
}

/// Returns the options as they are: a new file has the access list of its directory.
pub fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// Returns the options as they are: the name of a file says whether it is a program.
pub fn executable(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// Returns false: access lists are not read.
#[must_use]
pub fn is_open_to_others(_file: &Metadata) -> bool {
    false
}

/// Does nothing: access lists are not changed.
pub fn make_private(_file: &File) -> io::Result<()> {
    Ok(())
}

/// Does nothing: directories cannot be synced, and NTFS journals their entries.
pub fn sync_directory(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// Returns numbers that tell a file from the one that takes its name later: the time of its creation.
#[must_use]
pub fn file_identity(file: &Metadata) -> (u64, u64) {
    (0, file.creation_time())
}

/// Copies a program: links need a privilege.
pub fn link(program: &Path, name: &Path) -> io::Result<()> {
    std::fs::copy(program, name).map(drop)
}

/// Returns `None`: the space of disks is not read.
#[must_use]
pub fn free_bytes(_directory: &Path) -> Option<u64> {
    None
}

/// Fails: files are not given space ahead of their contents.
pub fn occupy(_file: &File, _bytes: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns the directory of the user, if known: `$HOME` as with kubectl, or the profile.
#[must_use]
pub fn home() -> Option<OsString> {
    let set = |name: &str| std::env::var_os(name).filter(|home| !home.is_empty());
    set("HOME").or_else(|| set("USERPROFILE"))
}

/// Returns the name of this host; empty if the environment does not have it.
#[must_use]
pub fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

/// Does nothing: open files have no limit of a process.
pub fn raise_file_limit() -> io::Result<()> {
    Ok(())
}

/// Events of the console that ask this process to end: Ctrl-C, Ctrl-Break and a closed window.
#[derive(Debug)]
pub struct StopSignals {
    interrupt: CtrlC,
    stop: CtrlBreak,
    close: CtrlClose,
}

impl StopSignals {
    /// Starts to receive them. Must be called within a tokio runtime.
    pub fn new() -> io::Result<Self> {
        Ok(Self { interrupt: ctrl_c()?, stop: ctrl_break()?, close: ctrl_close()? })
    }

    /// Waits for the next one.
    pub async fn recv(&mut self) {
        let _ = tokio::select! {
            interrupt = self.interrupt.recv() => interrupt,
            stop = self.stop.recv() => stop,
            close = self.close.recv() => close,
        };
    }
}

/// Signals that ask this process to read its configuration again. None ever comes: restart the process instead.
#[derive(Debug)]
pub struct Hangups(());

impl Hangups {
    /// Returns at once.
    pub fn new() -> io::Result<Self> {
        Ok(Self(()))
    }

    /// Returns `None` at once.
    pub async fn recv(&mut self) -> Option<()> {
        let Self(()) = self;
        None
    }
}

/// Ends a process. A console has no way to ask a single process, so a first request waits for the event that the console sends to
/// all of its processes.
pub fn end_process(child: &mut Child, is_killed: bool) {
    if is_killed {
        // The process may have ended just now, which is not an error.
        let _ = child.start_kill();
    }
}

/// Returns the exit code of a process.
#[must_use]
pub fn exit_code(status: ExitStatus) -> Option<i32> {
    status.code()
}

/// A process, which is killed if this is dropped before it has ended. Processes that it has started continue.
#[derive(Debug)]
pub struct ProcessGroup(Child);

impl ProcessGroup {
    /// Starts a command. Must be called within a tokio runtime.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        Ok(Self(command.kill_on_drop(true).spawn()?))
    }

    /// Returns the process.
    pub fn leader(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Does nothing until this is dropped.
    pub fn kill(&self) {}

    /// Returns at once: [`Self::leader`] waits for the process.
    pub async fn end(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Fails: drivers on Windows are not reached.
pub async fn connect_local(socket: &Path) -> io::Result<LocalStream> {
    let why = format!("{}: sockets of drivers are reached on Linux only", socket.display());
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}
