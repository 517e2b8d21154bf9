//! Directories and files that only their owner can read.

use std::fs::{File, OpenOptions};
use std::path::Path;

use anyhow::Context as _;

/// Creates a directory, and its parents, if they do not exist.
pub fn create_directory(path: &Path) -> anyhow::Result<()> {
    gc_host::create_private_directory(path)
        .with_context(|| format!("cannot create the directory {}", path.display()))
}

/// Opens a file with these options; if it does not exist, it is created.
pub fn open(options: &mut OpenOptions, path: &Path) -> std::io::Result<File> {
    gc_host::private(options.create(true)).open(path)
}
