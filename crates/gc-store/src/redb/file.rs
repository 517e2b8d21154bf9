//! The directory of a store: its modes, its lock, and a data file that is complete or absent.

use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::OpenError;
use super::disk::{Failure, Opener};

/// The name of the data file.
pub(super) const DATA: &str = "kubegc.redb";
/// The name of a data file under construction.
const UNFINISHED: &str = "kubegc.redb.new";
/// The name of the lock file. It stays: removing it would let two processes lock two files of that name.
const LOCK: &str = "kubegc.lock";

/// The exclusive right to a directory. The system releases it when the process ends, in any way.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

/// Creates and locks a directory.
pub(super) fn prepare(directory: &Path) -> Result<Lock, OpenError> {
    let failed = |source| OpenError::Directory { directory: directory.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    let mut file = private_file(&directory.join(LOCK)).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            // Only a hint: the holder may not have written it yet.
            let holder = match file.read_to_string(&mut pid) {
                Ok(_) if !pid.trim().is_empty() => format!(" (pid {})", pid.trim()),
                _ => String::new(),
            };
            return Err(OpenError::InUse { directory: directory.to_owned(), holder });
        }
        Err(TryLockError::Error(source)) => return Err(failed(source)),
    }
    // The number is a courtesy for that message, and must not prevent a server with a full disk from starting.
    drop(file.set_len(0).and_then(|()| file.write_all(format!("{}\n", std::process::id()).as_bytes())));
    Ok(Lock { _file: file })
}

/// Creates the data file under another name and renames it when it is complete, so that a crash in between leaves no
/// partial file.
pub(super) fn create<E: From<Failure>>(
    directory: &Path,
    fill: impl FnOnce(Opener) -> Result<(), E>,
) -> Result<(), E> {
    let failed = |error: io::Error| Failure::from(error);
    let unfinished = directory.join(UNFINISHED);
    match std::fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error).into()),
        _ => {}
    }
    let path = unfinished.clone();
    fill(Box::new(move |builder| Ok(builder.create_file(private_file(&path)?)?))).inspect_err(|_| {
        // A file that cannot be removed now is removed by the next attempt.
        let _ = std::fs::remove_file(&unfinished);
    })?;
    std::fs::rename(&unfinished, directory.join(DATA)).map_err(failed)?;
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed)?;
    Ok(())
}

/// Opens a data file that exists, as often as needed.
pub(super) fn opener(path: PathBuf) -> Opener {
    Box::new(move |builder| {
        let file = private_file(&path)?;
        // redb would treat an empty file as a new database.
        if file.metadata()?.len() == 0 {
            return Err(Failure::Damaged("it is empty".to_owned()));
        }
        Ok(builder.create_file(file)?)
    })
}

fn private_file(path: &Path) -> io::Result<File> {
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}
