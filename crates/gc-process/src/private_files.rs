//! Directories and files that only their owner can read.

use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use anyhow::Context as _;

/// Creates a directory, and its parents, if they do not exist.
pub fn create_directory(path: &Path) -> anyhow::Result<()> {
    let created = DirBuilder::new().recursive(true).mode(0o700).create(path);
    created.with_context(|| format!("cannot create the directory {}", path.display()))
}

/// Opens a file with these options; if it does not exist, it is created.
pub fn open(options: &mut OpenOptions, path: &Path) -> std::io::Result<File> {
    options.create(true).mode(0o600).open(path)
}
