//! `kubegc backup` and `kubegc restore`: the objects of an embedded server, and its keys, in one file.

mod format;

use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use clap::Args;
use futures::FutureExt as _;
use gc_kube::ApiClient;
use gc_registry::storage::{KeyValue, RangeOptions, Revision, Storage};
use gc_store::{OpenError, RedbOptions, RedbStorage};
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use serde::Deserialize;

use crate::kubeconfig;
use crate::questions::access::Access;
use format::{Entry, FormatError, Head, Reader, Writer};
use gc_embedded::backup_pages;

/// How far a restored store is ahead of the one that was saved: further than any server has counted between the backup
/// and its end, so that no client meets a resourceVersion that meant something else before.
const REVISIONS_AHEAD: u64 = 1_000_000_000;
/// How often a backup begins again because the history that it reads was compacted meanwhile.
const ATTEMPTS: usize = 3;
/// Most objects that are read from a store at a time.
const PAGE_OBJECTS: usize = 1000;
/// The folder of keys in a data directory.
const KEYS: &str = "pki";
/// Largest file of that folder.
const MAXIMUM_KEY_BYTES: u64 = 1 << 20;

/// Options of `kubegc backup`.
#[derive(Clone, Debug, Args)]
pub(crate) struct BackupOptions {
    /// File to write (mode 0600: it contains every Secret)
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Save the keys of this data directory, too, and read its store directly if no server runs on it
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Replace FILE if it exists
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    access: Access,
}

/// Options of `kubegc restore`.
#[derive(Clone, Debug, Args)]
pub(crate) struct RestoreOptions {
    /// The file that `kubegc backup` wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The data directory to create; it must not hold a store yet [default: that of `kubegc up`]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

/// Saves a server or a store.
pub(crate) fn backup(options: &BackupOptions) -> anyhow::Result<()> {
    ensure!(
        options.force || !options.file.exists(),
        "{} exists; say --force to replace it, or name another file",
        options.file.display()
    );
    let keys = options.data_dir.as_deref().map(read_keys).transpose()?.unwrap_or_default();
    let partial = PartialFile::create(&options.file)?;
    let (head, objects) = match stopped_store(options.data_dir.as_deref())? {
        Some(store) => save(&partial, &keys, |at, after| page_of_store(&store, at, after))?,
        None => {
            let runtime = crate::tasks::runtime()?;
            let client = runtime.block_on(server_access(options).connect().boxed())?;
            save(&partial, &keys, |at, after| runtime.block_on(page_of_server(&client, at, after).boxed()))?
        }
    };
    partial.publish()?;
    let file = options.file.display();
    let keys =
        if keys.is_empty() { "; keys are not in it: say --data-dir DIR to save them, too" } else { "" };
    writeln!(std::io::stdout(), "saved {objects} objects at revision {} to {file}{keys}", head.revision)?;
    Ok(())
}

/// Without other instructions, the server on a data directory is the one that left its kubeconfig there.
fn server_access(options: &BackupOptions) -> Access {
    let mut access = options.access.clone();
    let left = options.data_dir.as_ref().map(|folder| folder.join(kubeconfig::FILE_NAME));
    access.kubeconfig = access.kubeconfig.or_else(|| left.filter(|file| file.exists()));
    access
}

/// The store of a directory on which no server runs.
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

fn save(
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

/// The files of the folder of keys.
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

/// A file that gets its name when it is complete, and is removed when it never is.
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

    /// The empty file.
    fn restart(&self) -> anyhow::Result<BufWriter<File>> {
        let open = || {
            // An older one may have other permissions.
            match std::fs::remove_file(&self.path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.path)
        };
        Ok(BufWriter::new(open().with_context(|| format!("cannot create {}", self.path.display()))?))
    }

    fn publish(&self) -> anyhow::Result<()> {
        std::fs::rename(&self.path, &self.target)
            .with_context(|| format!("cannot rename {} to {}", self.path.display(), self.target.display()))
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        // After it was published, there is nothing to remove.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Makes a data directory from a backup.
pub(crate) fn restore(options: &RestoreOptions) -> anyhow::Result<()> {
    let folder = match &options.data_dir {
        Some(folder) => folder.clone(),
        None => kubeconfig::default_data_dir()?,
    };
    let open = || -> anyhow::Result<_> {
        let file =
            File::open(&options.file).with_context(|| format!("cannot open {}", options.file.display()))?;
        Reader::begin(BufReader::new(file)).with_context(|| options.file.display().to_string())
    };
    // Nothing is written before the whole file has been found sound.
    let reader = open()?;
    let head = reader.head().clone();
    let (mut objects, mut keys) = (0, Vec::new());
    for entry in reader {
        match entry.with_context(|| options.file.display().to_string())? {
            Entry::Object(_) => objects += 1,
            Entry::Key { name, content } => keys.push((name, content)),
        }
    }
    let key_folder = folder.join(KEYS);
    ensure!(
        keys.is_empty() || !key_folder.exists(),
        "{} exists, and the backup has keys of its own: move that folder away, or restore into another directory",
        key_folder.display()
    );
    let revision = Revision(head.revision.saturating_add(REVISIONS_AHEAD));
    let stored = open()?.filter_map(|entry| match entry {
        Ok(Entry::Object(item)) => Some(Ok(item)),
        Ok(Entry::Key { .. }) => None,
        Err(error) => Some(Err::<KeyValue, FormatError>(error)),
    });
    RedbStorage::restore(&folder, revision, stored)?;
    write_keys(&key_folder, &keys)?;
    let without =
        if keys.is_empty() { "; it has no keys: new ones are made, and old tokens are void" } else { "" };
    writeln!(
        std::io::stdout(),
        "restored {objects} objects of {} into {}{without}\nstart it with: kubegc up --data-dir {}",
        head.taken_at,
        folder.display(),
        folder.display()
    )?;
    Ok(())
}

fn write_keys(folder: &Path, keys: &[(String, Vec<u8>)]) -> anyhow::Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    crate::private_files::create_directory(folder)?;
    for (name, content) in keys {
        gc_apiserver::write_private(&folder.join(name), content)?;
    }
    Ok(())
}
