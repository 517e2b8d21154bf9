//! Backups: the objects of an embedded server, and its keys, in one file.

pub(crate) mod format;

use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures::FutureExt as _;
use gc_embedded::backup_pages;
use gc_kube::ApiClient;
use gc_registry::storage::{KeyValue, RangeOptions, Revision, Storage};
use gc_store::{OpenError, RedbOptions, RedbStorage};
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use serde::Deserialize;

use format::{Entry, FormatError, Head, Reader, Writer};

/// Minimum lead of a restored store's revision over the saved one: more than any server counts between the backup and its end, so
/// that no client meets a resourceVersion that meant something else before.
const REVISIONS_AHEAD: u64 = 1_000_000_000;
/// Maximum number of times that a backup starts over because the history that it reads was compacted in the meantime.
const ATTEMPTS: usize = 3;
/// Maximum number of objects that are read from a store at a time.
const PAGE_OBJECTS: usize = 1000;
/// Directory of keys in a data directory.
const KEYS: &str = "pki";
/// Name of the directory while a restore writes it.
const PARTIAL_KEYS: &str = "pki.partial";
/// Maximum size of a file in that directory.
const MAXIMUM_KEY_BYTES: u64 = 1 << 20;

/// A completed backup.
pub struct Saved {
    /// Number of objects.
    pub objects: u64,
    /// Revision of the store at which they were read.
    pub revision: u64,
    /// True if it includes the keys.
    pub has_keys: bool,
}

/// Saves a server or a store. If a data directory is given, its keys are saved, too, and its store is read directly if no server
/// runs on it; otherwise the server is reached with `connect`.
pub fn save(
    file: &Path,
    data_dir: Option<&Path>,
    connect: impl AsyncFnOnce() -> anyhow::Result<ApiClient>,
) -> anyhow::Result<Saved> {
    let keys = data_dir.map(read_keys).transpose()?.unwrap_or_default();
    let partial = PartialFile::create(file)?;
    let (head, objects) = match stopped_store(data_dir)? {
        Some(store) => write_pages(&partial, &keys, |at, after| page_of_store(&store, at, after))?,
        None => {
            let runtime = gc_process::tasks::runtime()?;
            let client = runtime.block_on(connect().boxed_local())?;
            write_pages(&partial, &keys, |at, after| {
                runtime.block_on(page_of_server(&client, at, after).boxed())
            })?
        }
    };
    partial.publish()?;
    Ok(Saved { objects, revision: head.revision, has_keys: !keys.is_empty() })
}

/// Returns the store in a directory on which no server runs.
fn stopped_store(data_dir: Option<&Path>) -> anyhow::Result<Option<RedbStorage>> {
    let Some(folder) = data_dir else { return Ok(None) };
    ensure!(RedbStorage::exists(folder), "{} holds no store: say --data-dir of a server", folder.display());
    match RedbStorage::open(folder, RedbOptions::default()) {
        Ok(store) => Ok(Some(store)),
        Err(OpenError::InUse { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// One page: the revision that was read, its objects, and whether more follow. `None` if that revision is compacted.
type Page = Option<(Revision, Vec<KeyValue>, bool)>;

fn write_pages(
    partial: &PartialFile,
    keys: &[Entry],
    mut page: impl FnMut(Option<Revision>, Option<Arc<str>>) -> anyhow::Result<Page>,
) -> anyhow::Result<(Head, u64)> {
    let written = || format!("cannot write {}", partial.path.display());
    for _ in 0..ATTEMPTS {
        let Some((revision, mut items, mut more)) = page(None, None)? else { continue };
        let head = Head::new(revision, jiff::Timestamp::now());
        let mut writer = Writer::begin(partial.restart()?, &head).with_context(written)?;
        keys.iter().try_for_each(|key| writer.write(key)).with_context(written)?;
        loop {
            let last = items.last().map(|item| Arc::clone(&item.key));
            for item in items {
                writer.write(&Entry::Object(item)).with_context(written)?;
            }
            if !more {
                let (out, objects) = writer.finish().with_context(written)?;
                out.into_inner()
                    .map_err(std::io::IntoInnerError::into_error)?
                    .sync_all()
                    .with_context(written)?;
                return Ok((head, objects));
            }
            let Some(next) = page(Some(revision), last)? else { break };
            (_, items, more) = next;
        }
    }
    bail!(
        "the server compacted its history {ATTEMPTS} times while it was read: try again when it has less to do, or stop it and \
         say --data-dir DIR"
    )
}

fn page_of_store(store: &RedbStorage, at: Option<Revision>, after: Option<Arc<str>>) -> anyhow::Result<Page> {
    let answer = store.range("", &RangeOptions { at, after, limit: PAGE_OBJECTS, skips_count: true })?;
    Ok(Some((answer.revision, answer.items, answer.more)))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServedPage {
    revision: u64,
    more: bool,
    items: Vec<ServedItem>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServedItem {
    key: String,
    create_revision: u64,
    value: String,
}

async fn page_of_server(
    client: &ApiClient,
    at: Option<Revision>,
    after: Option<Arc<str>>,
) -> anyhow::Result<Page> {
    let at = at.map(|at| format!("at={at}&")).unwrap_or_default();
    let mut path = format!("{}?{at}", backup_pages::PATH);
    if let Some(after) = after {
        path.push_str("after=");
        gc_kube::push_segment(&mut path, &after);
    }
    let request = Request::builder().method(Method::POST).uri(path).body(Full::<Bytes>::default())?;
    let answer = client.call(request).await?;
    match answer.head.status {
        StatusCode::OK => {}
        StatusCode::GONE => return Ok(None),
        StatusCode::NOT_FOUND => {
            bail!("{} is not a server of kubegc: it serves no backups", client.address())
        }
        StatusCode::FORBIDDEN => bail!(
            "the server forbids it: a backup holds every Secret and needs the verb post on the path {} (nonResourceURLs)",
            backup_pages::PATH
        ),
        code => bail!("the server answers {code}: {}", String::from_utf8_lossy(&answer.body)),
    }
    let page: ServedPage = serde_json::from_slice(&answer.body).context("the server's answer is no page")?;
    let revision = Revision(page.revision);
    let items = page.items.into_iter().map(|item| {
        Ok(KeyValue {
            key: item.key.into(),
            value: BASE64.decode(&item.value).context("a value of the server's page is not base64")?.into(),
            create_revision: Revision(item.create_revision),
            mod_revision: revision,
        })
    });
    Ok(Some((revision, items.collect::<anyhow::Result<_>>()?, page.more)))
}

/// Returns the files in the directory of keys.
fn read_keys(data_dir: &Path) -> anyhow::Result<Vec<Entry>> {
    let folder = data_dir.join(KEYS);
    let cannot = |path: &Path| format!("cannot read {}", path.display());
    let mut keys = Vec::new();
    for found in std::fs::read_dir(&folder).with_context(|| cannot(&folder))? {
        let path = found.with_context(|| cannot(&folder))?.path();
        let (Some(name), true) = (path.file_name().and_then(|name| name.to_str()), path.is_file()) else {
            continue;
        };
        let size = path.metadata().with_context(|| cannot(&path))?.len();
        ensure!(size <= MAXIMUM_KEY_BYTES, "{} is too large for a key: {size} bytes", path.display());
        keys.push((name.to_owned(), std::fs::read(&path).with_context(|| cannot(&path))?));
    }
    keys.sort();
    Ok(keys.into_iter().map(|(name, content)| Entry::Key { name, content }).collect())
}

/// A file that gets its name when it is complete, and is removed if it never is.
struct PartialFile {
    path: PathBuf,
    target: PathBuf,
}

impl PartialFile {
    fn create(target: &Path) -> anyhow::Result<Self> {
        let mut name = target.file_name().context("the name of the backup is not a file name")?.to_owned();
        name.push(".partial");
        Ok(Self { path: target.with_file_name(name), target: target.to_owned() })
    }

    /// Returns the file, emptied.
    fn restart(&self) -> anyhow::Result<BufWriter<File>> {
        let open = || {
            // An older file may have other permissions.
            match std::fs::remove_file(&self.path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            gc_host::private(OpenOptions::new().write(true).create_new(true)).open(&self.path)
        };
        Ok(BufWriter::new(open().with_context(|| format!("cannot create {}", self.path.display()))?))
    }

    fn publish(&self) -> anyhow::Result<()> {
        let folder = self.target.parent().filter(|folder| !folder.as_os_str().is_empty());
        std::fs::rename(&self.path, &self.target)
            .and_then(|()| gc_host::sync_directory(folder.unwrap_or(Path::new("."))))
            .with_context(|| format!("cannot rename {} to {}", self.path.display(), self.target.display()))
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        // After it was published, there is nothing to remove.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A data directory that was created from a backup.
pub struct Restored {
    /// Number of objects.
    pub objects: u64,
    /// Time of the backup, in RFC 3339.
    pub taken_at: String,
    /// True if the backup includes keys.
    pub has_keys: bool,
}

/// Creates a data directory from a backup. The directory must not contain a store; an interrupted restore can be repeated.
pub fn restore(file: &Path, folder: &Path) -> anyhow::Result<Restored> {
    let open = || -> anyhow::Result<_> {
        let input = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
        Reader::begin(BufReader::new(input)).with_context(|| file.display().to_string())
    };
    // Nothing is written before the whole file has been verified.
    let reader = open()?;
    let head = reader.head().clone();
    let (mut objects, mut keys) = (0, Vec::new());
    for entry in reader {
        match entry.with_context(|| file.display().to_string())? {
            Entry::Object(_) => objects += 1,
            key @ Entry::Key { .. } => keys.push(key),
        }
    }
    ensure!(
        !RedbStorage::exists(folder),
        "{} holds a store already; restore into another directory",
        folder.display()
    );
    // The store comes last: if it exists, the restore is complete, and an interrupted one can be repeated.
    write_keys(folder, &keys)?;
    let revision = restored_revision(&head, jiff::Timestamp::now());
    let stored = open()?.filter_map(|entry| match entry {
        Ok(Entry::Object(item)) => Some(Ok(item)),
        Ok(Entry::Key { .. }) => None,
        Err(error) => Some(Err::<KeyValue, FormatError>(error)),
    });
    RedbStorage::restore(folder, revision, stored)?;
    Ok(Restored { objects, taken_at: head.taken_at, has_keys: !keys.is_empty() })
}

/// Returns the revision for a store that is restored now. It increases by one with each microsecond since the backup, faster than
/// any server counts, so that a store that is later restored from the same backup begins after everything that an earlier one has
/// counted.
fn restored_revision(head: &Head, now: jiff::Timestamp) -> Revision {
    // A time that cannot be parsed, or is in the future, is ignored.
    let taken_at = head.taken_at.parse::<jiff::Timestamp>().unwrap_or(now);
    let since = u64::try_from(now.duration_since(taken_at).as_micros()).unwrap_or(0);
    Revision(head.revision.saturating_add(REVISIONS_AHEAD).saturating_add(since))
}

/// Writes the directory of keys, completely or not at all. One that a restore of the same backup has left is reused.
fn write_keys(data_dir: &Path, keys: &[Entry]) -> anyhow::Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let folder = data_dir.join(KEYS);
    if folder.exists() {
        ensure!(
            read_keys(data_dir)? == keys,
            "{} exists, and the backup has keys of its own: move that folder away, or restore into another directory",
            folder.display()
        );
        return Ok(());
    }
    gc_process::private_files::create_directory(data_dir)?;
    let partial = data_dir.join(PARTIAL_KEYS);
    match std::fs::remove_dir_all(&partial) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot remove {}", partial.display()));
        }
        _ => {}
    }
    gc_process::private_files::create_directory(&partial)?;
    for key in keys {
        if let Entry::Key { name, content } = key {
            gc_apiserver::write_private(&partial.join(name), content)?;
        }
    }
    let publish = || {
        gc_host::sync_directory(&partial)?;
        std::fs::rename(&partial, &folder)?;
        gc_host::sync_directory(data_dir)
    };
    publish().with_context(|| format!("cannot write {}", folder.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
    use super::*;

    fn key(name: &str, content: &str) -> Entry {
        Entry::Key { name: name.to_owned(), content: content.as_bytes().to_vec() }
    }

    /// Returns a function that restores a backup with one object and these keys into a directory beside it.
    fn saved(folder: &Path, keys: &[Entry]) -> impl Fn(&str) -> anyhow::Result<Restored> + use<> {
        let file = folder.join("backup");
        let head = Head::new(Revision(20), jiff::Timestamp::now());
        let mut writer = Writer::begin(File::create(&file).unwrap(), &head).unwrap();
        for key in keys {
            writer.write(key).unwrap();
        }
        let (create_revision, mod_revision) = (Revision(5), Revision(7));
        let item = KeyValue { key: "/k/a".into(), value: "{}".into(), create_revision, mod_revision };
        writer.write(&Entry::Object(item)).unwrap();
        writer.finish().unwrap();
        let folder = folder.to_owned();
        move |name| restore(&file, &folder.join(name))
    }

    fn revision(folder: &Path) -> u64 {
        RedbStorage::open(folder, RedbOptions::default()).unwrap().revision().unwrap().0
    }

    /// A regression: both stores began at the same revision, so a client that had seen one took versions of the other for those it
    /// knew.
    #[test]
    fn stores_of_one_backup_share_no_revisions() {
        let folder = tempfile::tempdir().unwrap();
        let restore = saved(folder.path(), &[]);
        restore("one").unwrap();
        let one = RedbStorage::open(folder.path().join("one"), RedbOptions::default()).unwrap();
        let put = gc_registry::storage::Write::Put("/k/b".into(), "{}".into());
        let transaction = gc_registry::storage::Transaction { conditions: Vec::new(), writes: vec![put] };
        one.commit(transaction).unwrap();
        let counted = one.revision().unwrap().0;
        assert!(counted > 20 + REVISIONS_AHEAD);
        restore("other").unwrap();
        assert!(revision(&folder.path().join("other")) > counted);
        // A clock that was set back does not lower the revision.
        let head = Head::new(Revision(20), jiff::Timestamp::MAX);
        assert_eq!(restored_revision(&head, jiff::Timestamp::now()), Revision(20 + REVISIONS_AHEAD));
    }

    /// A regression: the keys were written after the store, and a restore that was interrupted between them could not be repeated.
    #[test]
    fn a_restore_that_was_cut_off_is_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let keys = [key("ca.key", "secret"), key("sa.key", "secret, too")];
        let restore = saved(folder.path(), &keys);
        let target = folder.path().join("data");
        // Interrupted while writing the keys, and after that.
        std::fs::create_dir_all(target.join(PARTIAL_KEYS)).unwrap();
        std::fs::write(target.join(PARTIAL_KEYS).join("half"), "").unwrap();
        write_keys(&target, &keys).unwrap();
        assert_eq!(read_keys(&target).unwrap(), keys);
        restore("data").unwrap();
        assert!(revision(&target) > REVISIONS_AHEAD);
        assert_eq!(read_keys(&target).unwrap(), keys);
        assert!(!target.join(PARTIAL_KEYS).exists());
        // A complete one is not replaced, nor are keys of another server.
        let refusal = |name: &str| restore(name).err().unwrap().to_string();
        assert!(refusal("data").contains("holds a store already"));
        write_keys(&folder.path().join("foreign"), &[key("ca.key", "another")]).unwrap();
        assert!(refusal("foreign").contains("keys of its own"));
        assert!(!RedbStorage::exists(folder.path().join("foreign")));
    }
}
