//! Folders of host-path volumes.

use std::path::Path;

/// What upstream's deleter of host paths takes: something below a folder `/tmp`.
fn is_below_tmp(path: &str) -> bool {
    path.match_indices("/tmp/").any(|(at, found)| path.len() > at + found.len())
}

/// Removes a folder of a host-path volume with all that is in it; one that is not there is removed.
pub(crate) fn remove_folder(path: &Path) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt as _;
    let shown = path.display();
    let unsupported = || format!("host_path deleter only supports /tmp/.+ but received provided {shown}");
    let climbs = path.components().any(|part| part == std::path::Component::ParentDir);
    if !path.is_absolute() || climbs || !path.to_str().is_some_and(is_below_tmp) {
        return Err(unsupported());
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(unsupported()) };
    // Links on the way must not lead elsewhere.
    let parent = match parent.canonicalize() {
        Ok(parent) => parent,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(format!("{shown}: {error}")),
    };
    let folder = parent.join(name);
    if !folder.to_str().is_some_and(is_below_tmp) {
        return Err(format!("{shown} leads to {}, which is not below /tmp", folder.display()));
    }
    let failed = |error: std::io::Error| format!("{shown}: {error}");
    let metadata = match std::fs::symlink_metadata(&folder) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if !metadata.is_dir() {
        // Also a link, which is removed itself, and not its target.
        return std::fs::remove_file(&folder).map_err(failed);
    }
    if std::fs::metadata(&parent).map_err(failed)?.dev() != metadata.dev() {
        return Err(format!("{shown} is a mount point; it is not deleted"));
    }
    std::fs::remove_dir_all(&folder).map_err(failed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn only_folders_below_tmp_are_removed() {
        // Not named /tmp itself, so that the folder is the test's own wherever temporary files are kept.
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let tmp = root.join("tmp");
        let make = |path: &Path| {
            std::fs::create_dir_all(path.join("sub")).unwrap();
            std::fs::write(path.join("sub/file"), "x").unwrap();
        };
        make(&tmp.join("a"));
        make(&root.join("outside/b"));
        std::os::unix::fs::symlink(root.join("outside"), tmp.join("link")).unwrap();
        remove_folder(&tmp.join("a")).unwrap();
        assert!(!tmp.join("a").exists() && tmp.exists());
        remove_folder(&tmp.join("a")).unwrap();
        remove_folder(&tmp.join("never/was")).unwrap();
        // The link itself is removed.
        remove_folder(&tmp.join("link")).unwrap();
        assert!(root.join("outside/b/sub/file").exists() && !tmp.join("link").exists());
        for path in ["/etc", "/tmp", "/tmp/", "tmp/a", "/tmp/../etc", "/tmp/a/../../etc", "/temp/x", "/"] {
            let why = remove_folder(Path::new(path)).unwrap_err();
            assert!(why.starts_with("host_path deleter only supports /tmp/.+"), "{path}: {why}");
        }
    }

    #[test]
    fn links_on_the_way_lead_nowhere_else() {
        // Where temporary files are themselves below /tmp, everything is; then there is nothing to see here.
        let root =
            tempfile::Builder::new().prefix("kubegc-links").tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let root = root.path().canonicalize().unwrap();
        if is_below_tmp(root.to_str().unwrap()) {
            return;
        }
        std::fs::create_dir_all(root.join("tmp")).unwrap();
        std::fs::create_dir_all(root.join("outside/b")).unwrap();
        std::os::unix::fs::symlink(root.join("outside"), root.join("tmp/link")).unwrap();
        let why = remove_folder(&root.join("tmp/link/b")).unwrap_err();
        assert!(why.ends_with("which is not below /tmp"), "{why}");
        assert!(root.join("outside/b").exists());
    }
}
