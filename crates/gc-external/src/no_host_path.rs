//! Directories of host-path volumes where the system has no way to open a path without following links.

use std::path::Path;

/// Refuses to remove a directory.
pub(crate) fn remove_folder(path: &Path) -> Result<(), String> {
    Err(format!("{}: directories of host-path volumes are deleted on Unix only", path.display()))
}
