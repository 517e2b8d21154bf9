//! The small file in which ages of images survive restarts, and the lock that keeps a second agent out.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use gc_retention::images::ImageId;
use gc_retention::images::history::{ImageHistory, ImageRecord};
use gc_types::UnixNanoseconds;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use tracing::warn;

/// Format of the file. A file of another version is quarantined, not guessed at.
const VERSION: u32 = 1;
const FILE_NAME: &str = "images.json";
const LOCK_NAME: &str = "lock";
/// A larger file is not one of ours (a million images would take less).
const MAX_FILE_BYTES: u64 = 256 << 20;

#[derive(Serialize, Deserialize)]
struct Document {
    version: u32,
    images: BTreeMap<String, ImageRecord>,
}

/// The agent's directory, held by this process alone.
#[derive(Debug)]
pub(super) struct StateDirectory {
    path: PathBuf,
    /// Held for its lock, which ends with the process however it ends.
    _lock: File,
}

impl StateDirectory {
    /// Makes the directory if need be (mode 0700) and locks it.
    pub(super) fn open(path: &Path) -> Result<Self> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .with_context(|| format!("cannot make the state directory {}", path.display()))?;
        let lock_path = path.join(LOCK_NAME);
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&lock_path)
            .with_context(|| format!("cannot open {}", lock_path.display()))?;
        if let Err(error) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            if error == rustix::io::Errno::WOULDBLOCK {
                bail!("another agent works with {}; one node has one collector", path.display());
            }
            return Err(error).with_context(|| format!("cannot lock {}", lock_path.display()));
        }
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    fn file(&self) -> PathBuf {
        self.path.join(FILE_NAME)
    }

    /// What was saved. A file that cannot be read as one of ours is put aside with a warning, and the history starts
    /// anew (so nothing is old, and nothing is removed for its age until it is).
    pub(super) fn load(&self, now: UnixNanoseconds) -> Result<(ImageHistory, Option<String>)> {
        let path = self.file();
        let why = match read(&path, now)? {
            Ok(history) => return Ok((history, None)),
            Err(why) => why,
        };
        let aside = self.path.join(format!("{FILE_NAME}.unreadable-{}", now.0));
        fs::rename(&path, &aside).with_context(|| format!("cannot put {} aside", path.display()))?;
        let warning = format!(
            "{} cannot be read ({why}); it was put aside as {}, and the ages of images are counted from now",
            path.display(),
            aside.display()
        );
        Ok((ImageHistory::default(), Some(warning)))
    }

    /// Saves. A crash at any moment leaves the old file or the new one, whole.
    pub(super) fn save(&self, history: &ImageHistory) -> Result<()> {
        let images = history.iter().map(|(id, record)| (id.as_str().to_owned(), *record)).collect();
        let document = serde_json::to_vec(&Document { version: VERSION, images })
            .context("cannot encode the history")?;
        let (path, temporary) = (self.file(), self.path.join(format!("{FILE_NAME}.new")));
        let write = || -> std::io::Result<()> {
            let mut file =
                OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&temporary)?;
            file.write_all(&document)?;
            file.sync_all()?;
            fs::rename(&temporary, &path)?;
            File::open(&self.path)?.sync_all()
        };
        write()
            .inspect_err(|_| {
                // On a full disk half a file would only take more of it.
                let _ = fs::remove_file(&temporary);
            })
            .with_context(|| format!("cannot save {}", path.display()))
    }
}

/// What an agent saved in this directory, for questions: nothing is locked, moved or made.
pub(super) fn peek(directory: &Path, now: UnixNanoseconds) -> Result<ImageHistory> {
    let path = directory.join(FILE_NAME);
    Ok(read(&path, now)?.unwrap_or_else(|why| {
        warn!("{} cannot be read ({why}); every image counts as new", path.display());
        ImageHistory::default()
    }))
}

/// The saved history, or why the file is none of ours.
fn read(path: &Path, now: UnixNanoseconds) -> Result<Result<ImageHistory, String>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Ok(ImageHistory::default())),
        Err(error) => return Err(error).with_context(|| format!("cannot look at {}", path.display())),
        Ok(metadata) if metadata.len() > MAX_FILE_BYTES => {
            return Ok(Err(format!("it is {} bytes long", metadata.len())));
        }
        Ok(_) => {}
    }
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(match serde_json::from_slice::<Document>(&bytes) {
        Err(error) => Err(error.to_string()),
        Ok(document) if document.version != VERSION => Err(format!("it has version {}", document.version)),
        Ok(document) => {
            let records = document.images.into_iter();
            let known = records.filter_map(|(id, record)| Some((ImageId::new(&id)?, record)));
            Ok(ImageHistory::restore(known, now))
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use gc_retention::images::Image;
    use std::os::unix::fs::PermissionsExt;

    fn history() -> ImageHistory {
        let image = Image {
            id: ImageId::new(&format!("sha256:{:064x}", 1)).unwrap(),
            repo_tags: vec![],
            repo_digests: vec![],
            size_bytes: 1,
            pinned: false,
            runtime_handler: "".into(),
            layers: vec![],
        };
        let mut history = ImageHistory::default();
        history.observe(
            std::slice::from_ref(&image),
            &[image.id.clone()].into(),
            UnixNanoseconds(5),
            UnixNanoseconds(7),
        );
        history
    }

    /// T14 and T16.
    #[test]
    fn a_history_survives_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let now = UnixNanoseconds(100);
        let state = StateDirectory::open(folder.path()).unwrap();
        assert_eq!(state.load(now).unwrap(), (ImageHistory::default(), None));
        state.save(&history()).unwrap();
        fs::write(folder.path().join("images.json.new"), "half writ").unwrap();
        drop(state);
        let state = StateDirectory::open(folder.path()).unwrap();
        assert_eq!(state.load(now).unwrap(), (history(), None));
        let mode = fs::metadata(state.file()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_put_aside() {
        for content in
            ["", "{", "[]", r#"{"version":2,"images":{}}"#, r#"{"version":1,"images":{"sha256:x":5}}"#]
        {
            let folder = tempfile::tempdir().unwrap();
            let state = StateDirectory::open(folder.path()).unwrap();
            fs::write(state.file(), content).unwrap();
            let (history, warning) = state.load(UnixNanoseconds(9)).unwrap();
            assert!(history.is_empty() && warning.unwrap().contains("put aside"), "{content}");
            assert_eq!(fs::read_to_string(folder.path().join("images.json.unreadable-9")).unwrap(), content);
            state.save(&history).unwrap();
            assert_eq!(state.load(UnixNanoseconds(9)).unwrap().1, None);
        }
    }

    /// T178.
    #[test]
    fn a_second_agent_is_kept_out() {
        let folder = tempfile::tempdir().unwrap();
        let first = StateDirectory::open(folder.path()).unwrap();
        let refused = StateDirectory::open(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("another agent works with"), "{refused}");
        drop(first);
        StateDirectory::open(folder.path()).unwrap();
    }
}
