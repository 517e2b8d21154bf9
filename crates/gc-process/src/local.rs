//! The collector on this machine: its journal, and the address of its pages, which other commands of the same user find.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::kubeconfig::default_data_dir;

/// The default of `--bind-address`.
pub const DEFAULT_PAGES: &str = "127.0.0.1:10357";
/// The name of the journal in the user's data directory.
const JOURNAL: &str = "run-journal.jsonl";
/// The file with the address of the pages, beside the journal.
const PAGES_FILE: &str = "run-address";

/// Where the journal is unless a file is named; `None` if the user has no data directory.
#[must_use]
pub fn default_journal() -> Option<PathBuf> {
    Some(default_data_dir().ok()?.join(JOURNAL))
}

/// Notes where the pages of a collector are that shows them only on this machine, for questions of the same user.
pub fn record_pages(address: SocketAddr) {
    let Some(file) = pages_file().filter(|_| address.ip().is_loopback()) else { return };
    // Without the note, questions need --collector.
    if let Err(error) = std::fs::write(&file, address.to_string()) {
        tracing::debug!(%error, file = %file.display(), "the address of the pages cannot be noted");
    }
}

/// Where the pages of the collector are that started last on this machine, if it noted them.
#[must_use]
pub fn recorded_pages() -> Option<String> {
    let text = std::fs::read_to_string(pages_file()?).ok()?;
    let address: SocketAddr = text.trim().parse().ok()?;
    address.ip().is_loopback().then(|| address.to_string())
}

fn pages_file() -> Option<PathBuf> {
    Some(default_data_dir().ok()?.join(PAGES_FILE))
}
