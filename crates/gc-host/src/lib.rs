//! Functions of the operating system that the standard library does not offer alike on Unix and Windows: private files, signals,
//! process groups, sockets of drivers, the name of the host.
//!
//! Both systems have the same functions. Windows has no modes of files: there, a new file inherits the access list of its directory,
//! which in the profile of a user admits that user, administrators and the system.

#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as system;

#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as system;

pub use system::{
    Hangups, LocalStream, ProcessGroup, StopSignals, connect_local, create_private_directory, end_process,
    executable, exit_code, file_identity, free_bytes, home, host_name, is_open_to_others, link, make_private,
    new_private_directory, occupy, private, raise_file_limit, sync_directory,
};

#[cfg(test)]
mod tests;
