//! The small files in which learnt state survives restarts, and the lock that prevents a second agent.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use gc_collectors::ages::SavedAgeClock;
use gc_collectors::containers::PodUid;
use gc_collectors::images::ImageId;
use gc_collectors::images::history::{ImageHistory, ImageRecord};
use gc_cri::Endpoint;
use gc_types::UnixNanoseconds;
use rustix::fs::{FlockOperation, flock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::clock::{Ages, now};

/// Format of the files. A file of another version is put aside; its content is not guessed.
const VERSION: u32 = 1;
const LOCK_NAME: &str = "lock";
/// Size above which a file cannot be ours (a million images would take less).
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Time since which each listed pod of the runtime has been unknown to the cluster.
pub(crate) type UnknownPods = BTreeMap<PodUid, UnixNanoseconds>;

/// Content of a file, as written.
pub(crate) trait Document: Serialize + DeserializeOwned + Default {
    const FILE_NAME: &str;
    /// Consequence of a file that cannot be read.
    const LOST: &str;
    fn version(&self) -> u32;
}

#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Images {
    version: u32,
    /// Clock of the dates in the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    clock: Option<SavedAgeClock>,
    images: BTreeMap<String, ImageRecord>,
}

impl Document for Images {
    const FILE_NAME: &str = "images.json";
    const LOST: &str = "the ages of images are counted from now";
    fn version(&self) -> u32 {
        self.version
    }
}

#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Pods {
    version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    clock: Option<SavedAgeClock>,
    #[serde(rename = "unknownSince")]
    unknown_since: BTreeMap<String, i64>,
}

impl Document for Pods {
    const FILE_NAME: &str = "pods.json";
    const LOST: &str = "for how long pods have been unknown is counted from now";
    fn version(&self) -> u32 {
        self.version
    }
}

impl Images {
    pub(crate) fn of(history: &ImageHistory, clock: Option<SavedAgeClock>) -> Self {
        let images = history.iter().map(|(id, record)| (id.as_str().to_owned(), *record)).collect();
        Self { version: VERSION, clock, images }
    }
}

impl Pods {
    pub(crate) fn of(unknown: &UnknownPods, clock: Option<SavedAgeClock>) -> Self {
        let unknown_since = unknown.iter().map(|(pod, since)| (pod.as_str().to_owned(), since.0)).collect();
        Self { version: VERSION, clock, unknown_since }
    }
}

/// The agent's directory, locked by this process.
#[derive(Debug)]
pub(crate) struct StateDirectory {
    path: PathBuf,
    /// File that is held for its lock, which ends with the process in any case.
    _lock: File,
}

impl StateDirectory {
    /// Creates the directory if necessary (mode 0700) and locks it.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .with_context(|| format!("cannot create the state directory {}", path.display()))?;
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
                bail!("another agent uses {}; one node has one collector", path.display());
            }
            return Err(error).with_context(|| format!("cannot lock {}", lock_path.display()));
        }
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// Loads the times at which images were first seen and last used, and since which pods have been unknown. Continues the clock
    /// that dated both.
    pub(crate) fn load(&self, ages: &Ages) -> Result<(ImageHistory, UnknownPods)> {
        let (images, pods) =
            (self.read_or_put_aside::<Images>(now())?, self.read_or_put_aside::<Pods>(now())?);
        Ok(resume(images, pods, ages))
    }

    /// Saves the times at which images were first seen and last used.
    pub(crate) fn save_images(&self, history: &ImageHistory, ages: &Ages) -> Result<()> {
        self.save(&Images::of(history, Some(ages.save())))
    }

    /// Saves the time since which pods have been unknown.
    pub(crate) fn save_pods(&self, unknown: &UnknownPods, ages: &Ages) -> Result<()> {
        self.save(&Pods::of(unknown, Some(ages.save())))
    }

    /// Returns the saved state. A file that cannot be read is put aside with a warning, and its state starts over (so at first
    /// nothing is old, and nothing is removed for its age).
    fn read_or_put_aside<T: Document>(&self, now: UnixNanoseconds) -> Result<T> {
        let path = self.path.join(T::FILE_NAME);
        let why = match read(&path)? {
            Ok(document) => return Ok(document),
            Err(why) => why,
        };
        let aside = self.path.join(format!("{}.unreadable-{}", T::FILE_NAME, now.0));
        fs::rename(&path, &aside).with_context(|| format!("cannot put {} aside", path.display()))?;
        let (path, aside, lost) = (path.display(), aside.display(), T::LOST);
        warn!("{path} cannot be read ({why}); it was renamed to {aside}, and {lost}");
        Ok(T::default())
    }

    /// Saves a document. A crash at any moment leaves either the old file or the new one, complete.
    fn save<T: Document>(&self, document: &T) -> Result<()> {
        let document = serde_json::to_vec(document).context("cannot encode what is to be saved")?;
        let path = self.path.join(T::FILE_NAME);
        let temporary = self.path.join(format!("{}.new", T::FILE_NAME));
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
                // On a full disk, half a file would only take up space.
                let _ = fs::remove_file(&temporary);
            })
            .with_context(|| format!("cannot save {}", path.display()))
    }
}

/// Prevents a second agent for the same runtime, whatever its state directory: two would disagree on what to keep.
///
/// A socket cannot be locked, so a file beside it is, and also its directory in shared mode: both agents see these whatever links
/// lead to them, and one directory may have sockets of several runtimes. If the directory is mounted read-only, only the directory
/// itself is locked. Either lock ends with the process.
pub(crate) fn lock_runtime(endpoint: &Endpoint) -> Result<Option<Vec<File>>> {
    // A socket that does not exist yet is not behind a link either.
    let socket = fs::canonicalize(endpoint.path()).unwrap_or_else(|_| endpoint.path().to_owned());
    let (Some(folder), Some(name)) = (socket.parent(), socket.file_name()) else { return Ok(None) };
    let Ok(lock) = File::open(folder) else {
        warn!(
            "cannot open {}, so that a second agent on this runtime would not be noticed",
            folder.display()
        );
        return Ok(None);
    };
    if is_mounted_alone(&socket, &lock) {
        warn!(
            "{} is mounted without its directory, so that a second agent on this runtime would not be noticed",
            socket.display()
        );
    }
    let beside = folder.join(format!(".{}.kubegc-lock", name.to_string_lossy()));
    let file = File::options().create(true).append(true).open(beside);
    let locks = match file {
        Ok(file) => vec![
            (lock, FlockOperation::NonBlockingLockShared),
            (file, FlockOperation::NonBlockingLockExclusive),
        ],
        Err(_) => vec![(lock, FlockOperation::NonBlockingLockExclusive)],
    };
    for (file, operation) in &locks {
        match flock(file, *operation) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                bail!("another agent uses {endpoint}; one runtime has one collector")
            }
            Err(error) => return Err(error).with_context(|| format!("cannot lock {}", folder.display())),
        }
    }
    Ok(Some(locks.into_iter().map(|(file, _)| file).collect()))
}

/// Reports whether a socket is on another filesystem than its directory: it was mounted separately, and others see it in other
/// directories.
fn is_mounted_alone(socket: &Path, folder: &File) -> bool {
    let (Ok(socket), Ok(folder)) = (fs::metadata(socket), folder.metadata()) else { return false };
    socket.dev() != folder.dev()
}

/// Returns the saved state of an agent in this directory for queries: nothing is locked, moved or created.
pub(crate) fn peek_all(directory: &Path, ages: &Ages) -> Result<(ImageHistory, UnknownPods)> {
    Ok(resume(peek(directory)?, peek(directory)?, ages))
}

fn resume(images: Images, pods: Pods, ages: &Ages) -> (ImageHistory, UnknownPods) {
    if let Some(saved) = images.clock.as_ref().or(pods.clock.as_ref())
        && !ages.resume(saved)
    {
        return (ImageHistory::default(), UnknownPods::new());
    }
    (history(images, ages.now()), unknown_pods(pods))
}

fn peek<T: Document>(directory: &Path) -> Result<T> {
    let path = directory.join(T::FILE_NAME);
    Ok(read(&path)?.unwrap_or_else(|why| {
        warn!("{} cannot be read ({why}); {}", path.display(), T::LOST);
        T::default()
    }))
}

pub(crate) fn history(saved: Images, now: UnixNanoseconds) -> ImageHistory {
    let records = saved.images.into_iter();
    let known = records.filter_map(|(id, record)| Some((ImageId::new(&id)?, record)));
    ImageHistory::restore(known, now)
}

pub(crate) fn unknown_pods(saved: Pods) -> UnknownPods {
    let pods = saved.unknown_since.into_iter();
    pods.filter_map(|(pod, since)| Some((PodUid::new(&pod)?, UnixNanoseconds(since)))).collect()
}

/// Returns the contents of a file (`None` if it does not exist), or the reason why it is invalid.
fn read<T: Document>(path: &Path) -> Result<Result<T, String>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Ok(T::default())),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        Ok(metadata) if metadata.len() > MAX_FILE_BYTES => {
            return Ok(Err(format!("it is {} bytes long", metadata.len())));
        }
        Ok(_) => {}
    }
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(decode(&bytes))
}

/// Decodes the contents of a file, or returns the reason why it is invalid.
pub(crate) fn decode<T: Document>(bytes: &[u8]) -> Result<T, String> {
    let document: T = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if document.version() == VERSION {
        Ok(document)
    } else {
        Err(format!("it has version {}", document.version()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use gc_collectors::images::Image;
    use std::io::Read as _;
    use std::os::unix::fs::PermissionsExt;

    fn history() -> ImageHistory {
        let image = Image {
            id: ImageId::new(&format!("sha256:{:064x}", 1)).unwrap(),
            repo_tags: vec![],
            repo_digests: vec![],
            size_bytes: 1,
            pinned: false,
            runtime_handler: "".into(),
            layers: [].into(),
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

    /// T14 and T16: the saved state is the same after a restart.
    #[test]
    fn what_was_learnt_survives_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let ages = Ages::default();
        let state = StateDirectory::open(folder.path()).unwrap();
        assert_eq!(state.load(&ages).unwrap(), (ImageHistory::default(), UnknownPods::new()));
        let unknown = UnknownPods::from([(PodUid::new("stranger").unwrap(), UnixNanoseconds(7))]);
        state.save_images(&history(), &ages).unwrap();
        state.save_pods(&unknown, &ages).unwrap();
        for name in ["images.json.new", "pods.json.new"] {
            fs::write(folder.path().join(name), "half writ").unwrap();
        }
        drop(state);
        let state = StateDirectory::open(folder.path()).unwrap();
        let (images, pods) = state.load(&Ages::default()).unwrap();
        assert_eq!((images, pods), (history(), unknown));
        for name in ["images.json", "pods.json"] {
            let mode = fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_put_aside() {
        for content in [
            "",
            "{",
            "[]",
            r#"{"version":1}"#,
            r#"{"version":2,"images":{},"unknownSince":{}}"#,
            r#"{"version":1,"images":{"sha256:x":5},"unknownSince":{"u":"v"}}"#,
        ] {
            let folder = tempfile::tempdir().unwrap();
            let at = |name: &str| folder.path().join(name);
            let state = StateDirectory::open(folder.path()).unwrap();
            for name in ["images.json", "pods.json"] {
                fs::write(at(name), content).unwrap();
            }
            assert_eq!(state.load(&Ages::default()).unwrap(), Default::default(), "{content}");
            for name in ["images.json", "pods.json"] {
                let prefix = format!("{name}.unreadable-");
                let files = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
                let is_aside =
                    |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(&prefix);
                let aside: Vec<PathBuf> = files.filter(is_aside).collect();
                assert_eq!(aside.len(), 1, "{name}");
                assert_eq!(fs::read_to_string(&aside[0]).unwrap(), content, "{name}");
                assert!(!at(name).exists(), "{name}");
            }
        }
    }

    /// T16: a file is replaced, never overwritten, so a crash leaves either the old one or the new one, complete.
    #[test]
    fn a_save_leaves_the_old_file_whole() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(folder.path()).unwrap();
        let path = folder.path().join("images.json");
        state.save_images(&history(), &Ages::default()).unwrap();
        let (before, mut old) = (fs::read_to_string(&path).unwrap(), File::open(&path).unwrap());
        state.save_images(&ImageHistory::default(), &Ages::default()).unwrap();
        let mut text = String::new();
        old.read_to_string(&mut text).unwrap();
        assert_eq!(text, before);
        assert_ne!(fs::read_to_string(&path).unwrap(), before);
        let left: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "the file and the lock: {left:?}");
    }

    /// If the wall clock was two days ahead when ages were saved in this boot, images keep their age.
    #[test]
    fn a_step_of_the_wall_clock_ages_nothing() {
        const DAY: i64 = 86_400_000_000_000;
        let folder = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(folder.path()).unwrap();
        let ages = Ages::default();
        let mut images = ImageHistory::default();
        let id = ImageId::new(&format!("sha256:{:064x}", 1)).unwrap();
        images.record_use(&id, ages.now());
        state.save_images(&images, &ages).unwrap();
        let path = folder.path().join("images.json");
        let mut document: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        for by in [2 * DAY, -2 * DAY] {
            let wall = document["clock"]["wall"].as_i64().unwrap();
            document["clock"]["wall"] = (wall + by).into();
            fs::write(&path, document.to_string()).unwrap();
            let ages = Ages::default();
            let (images, _) = state.load(&ages).unwrap();
            let idle = images.get(&id).unwrap().idle(ages.now());
            assert!(idle.0 < DAY / 24, "{idle}");
        }
    }

    /// If the state is part of a machine's image, or the wall clock is years ahead at boot, nothing becomes old at once.
    #[test]
    fn a_boot_ages_nothing_by_more_than_an_hour() {
        const HOUR: i64 = 3_600_000_000_000;
        let folder = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(folder.path()).unwrap();
        let ages = Ages::default();
        let mut images = ImageHistory::default();
        let id = ImageId::new(&format!("sha256:{:064x}", 1)).unwrap();
        images.record_use(&id, ages.now());
        state.save_images(&images, &ages).unwrap();
        let path = folder.path().join("images.json");
        let saved: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let is_identified = saved["clock"]["machine"].is_string();
        for (machine, known) in [(None, true), (Some("another"), !is_identified)] {
            let mut document = saved.clone();
            let wall = document["clock"]["wall"].as_i64().unwrap();
            document["clock"]["wall"] = (wall - 10_000 * HOUR).into();
            document["clock"]["boot"] = "an earlier one".into();
            if let Some(machine) = machine {
                document["clock"]["machine"] = machine.into();
            }
            fs::write(&path, document.to_string()).unwrap();
            let ages = Ages::default();
            let (images, _) = state.load(&ages).unwrap();
            let idle = images.get(&id).map(|record| record.idle(ages.now()));
            assert_eq!(idle.is_some(), known, "{machine:?}");
            assert!(idle.is_none_or(|idle| idle.0 < HOUR + HOUR / 60), "{idle:?}");
        }
    }

    #[test]
    fn a_second_agent_is_kept_from_the_same_runtime() {
        let folder = tempfile::tempdir().unwrap();
        let endpoint = Endpoint::parse(&format!("unix://{}/runtime.sock", folder.path().display())).unwrap();
        let first = lock_runtime(&endpoint).unwrap();
        let refused = lock_runtime(&endpoint).unwrap_err().to_string();
        assert_eq!(refused, format!("another agent uses {endpoint}; one runtime has one collector"));
        drop(first);
        assert!(lock_runtime(&endpoint).unwrap().is_some());
    }

    /// Sockets of two runtimes may lie in one directory. If it is mounted read-only, so no file can be created there, the directory
    /// is locked as a whole, also against an agent that could create one.
    #[test]
    fn two_runtimes_in_one_directory_have_an_agent_each() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| Endpoint::parse(&format!("unix://{}/{name}", folder.path().display())).unwrap();
        let first = lock_runtime(&at("one.sock")).unwrap();
        let second = lock_runtime(&at("two.sock")).unwrap();
        assert!(first.is_some() && second.is_some());
        for name in ["one.sock", "two.sock"] {
            let refused = lock_runtime(&at(name)).unwrap_err().to_string();
            assert!(refused.starts_with("another agent uses"), "{refused}");
        }
        // A directory stands in the place of the file.
        fs::create_dir(folder.path().join(".three.sock.kubegc-lock")).unwrap();
        assert!(lock_runtime(&at("three.sock")).is_err(), "the directory is shared");
        drop((first, second));
        let third = lock_runtime(&at("three.sock")).unwrap();
        assert!(third.is_some() && lock_runtime(&at("one.sock")).is_err());
    }

    #[test]
    fn a_link_to_the_socket_leads_to_the_same_runtime() {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (socket, link) = (folder.path().join("runtime.sock"), elsewhere.path().join("link.sock"));
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::os::unix::fs::symlink(&socket, &link).unwrap();
        let at = |path: &Path| Endpoint::parse(&format!("unix://{}", path.display())).unwrap();
        let first = lock_runtime(&at(&socket)).unwrap();
        assert!(first.is_some());
        let refused = lock_runtime(&at(&link)).unwrap_err().to_string();
        assert!(refused.starts_with("another agent uses"), "{refused}");
        assert!(!is_mounted_alone(&socket, &first.as_ref().unwrap()[0]));
    }

    /// T178: a second agent for the same runtime fails.
    #[test]
    fn a_second_agent_is_kept_out() {
        let folder = tempfile::tempdir().unwrap();
        let first = StateDirectory::open(folder.path()).unwrap();
        let refused = StateDirectory::open(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("another agent uses"), "{refused}");
        drop(first);
        StateDirectory::open(folder.path()).unwrap();
    }
}
