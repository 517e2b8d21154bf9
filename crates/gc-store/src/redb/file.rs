//! The directory of a store: its modes, its lock, and a data file that is complete or absent.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use ::redb::StorageBackend;
use ::redb::backends::FileBackend;

use super::OpenError;
use super::failure::Failure;
use super::medium::Medium;

/// Name of the data file.
pub(super) const DATA: &str = "kubegc.redb";
/// Name of a data file under construction.
const UNFINISHED: &str = "kubegc.redb.new";
/// Name of the mark of a data file whose sync has failed.
const DISTRUSTED: &str = "kubegc.redb.unsynced";
/// Name of the lock file. It is never removed: otherwise two processes could lock two different files of that name.
const LOCK: &str = "kubegc.lock";

/// Exclusive lock of a directory. The system releases it when the process ends in any way.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

/// Creates and locks a directory.
pub(super) fn prepare(directory: &Path) -> Result<Lock, OpenError> {
    let failed = |source| OpenError::Directory { directory: directory.to_owned(), source };
    gc_host::create_private_directory(directory).map_err(failed)?;
    let mut file = private_file(&directory.join(LOCK)).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            // Only a hint: the holder may not have written its number yet.
            let holder = match file.read_to_string(&mut pid) {
                Ok(_) if !pid.trim().is_empty() => format!(" (pid {})", pid.trim()),
                _ => String::new(),
            };
            return Err(OpenError::InUse { directory: directory.to_owned(), holder });
        }
        Err(TryLockError::Error(source)) => return Err(failed(source)),
    }
    // The number only serves that message, and must not prevent a server from starting on a full disk.
    drop(file.set_len(0).and_then(|()| file.write_all(format!("{}\n", std::process::id()).as_bytes())));
    Ok(Lock { _file: file })
}

/// Data file of a directory.
#[derive(Debug)]
pub(super) struct DataFile {
    directory: PathBuf,
}

impl DataFile {
    pub(super) fn of(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

impl Medium for DataFile {
    fn open(&self) -> Result<Box<dyn StorageBackend>, Failure> {
        let file = private_file(&self.path(DATA))?;
        // redb would treat an empty file as a new database.
        if file.metadata()?.len() == 0 {
            return Err(Failure::Damaged("it is empty".to_owned()));
        }
        Ok(Box::new(FileBackend::new(file)?))
    }

    fn begin(&self) -> Result<Box<dyn StorageBackend>, Failure> {
        let unfinished = self.path(UNFINISHED);
        match fs::remove_file(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        Ok(Box::new(FileBackend::new(private_file(&unfinished)?)?))
    }

    fn publish(&self) -> Result<(), Failure> {
        fs::rename(self.path(UNFINISHED), self.path(DATA))?;
        gc_host::sync_directory(&self.directory)?;
        match fs::remove_file(self.path(DISTRUSTED)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn length(&self) -> u64 {
        fs::metadata(self.path(DATA)).map_or(0, |file| file.len())
    }

    fn discard(&self) {
        // A file that cannot be removed now is removed by the next attempt.
        let _ = fs::remove_file(self.path(UNFINISHED));
    }

    fn distrust(&self) {
        // The mark is for the next process of the same boot: a power failure discards both the mark and the pages that cannot be
        // trusted.
        if let Err(error) = private_file(&self.path(DISTRUSTED)) {
            tracing::error!(%error, "the data file cannot be marked as one whose sync has failed");
        }
    }

    fn is_distrusted(&self) -> bool {
        self.path(DISTRUSTED).exists()
    }
}

fn private_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let file = gc_host::private(&mut options).open(path)?;
    if gc_host::is_open_to_others(&file.metadata()?) {
        gc_host::make_private(&file)?;
    }
    Ok(file)
}
