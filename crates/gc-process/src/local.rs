//! The collector on this machine: its journal, and the address of its pages, for other commands of the same user.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::kubeconfig::default_data_dir;

/// Default of `--bind-address`.
pub const DEFAULT_PAGES: &str = "127.0.0.1:10357";
/// Name of the journal in the user's data directory.
const JOURNAL: &str = "run-journal.jsonl";
/// File with the address of the pages, beside the journal.
const PAGES_FILE: &str = "run-address";

/// Returns the journal's file unless another one is named; `None` if the user has no data directory.
#[must_use]
pub fn default_journal() -> Option<PathBuf> {
    Some(default_data_dir().ok()?.join(JOURNAL))
}

/// Records the address of a collector that shows its pages only on this machine, for commands of the same user.
pub fn record_pages(address: SocketAddr) {
    let Some(file) = pages_file().filter(|_| address.ip().is_loopback()) else { return };
    // Without this file, commands need --collector.
    if let Err(error) = std::fs::write(&file, address.to_string()) {
        tracing::debug!(%error, file = %file.display(), "the address of the pages cannot be noted");
    }
}

/// Returns the address of the pages of the collector that started last on this machine, if it recorded it.
#[must_use]
pub fn recorded_pages() -> Option<String> {
    let text = std::fs::read_to_string(pages_file()?).ok()?;
    let address: SocketAddr = text.trim().parse().ok()?;
    address.ip().is_loopback().then(|| address.to_string())
}

fn pages_file() -> Option<PathBuf> {
    Some(default_data_dir().ok()?.join(PAGES_FILE))
}
