//! The journal of the node agent: a file like that of `kubegc run`.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use gc_node::RecordRemoval;
use gc_process::journal::{Journal, JournalOptions};

/// Where the journal is, and how large it may become.
#[derive(Args, Debug)]
pub(super) struct JournalFlags {
    /// Append every removal with its reason and outcome to this file, as JSON lines
    #[arg(long, value_name = "FILE")]
    pub(super) journal: Option<PathBuf>,
    /// Size at which the journal is rotated, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) journal_max_size: u32,
    /// Number of rotated journals to keep
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub(super) journal_max_files: u32,
}

/// An open journal. Dropping it writes the pending entries.
pub(super) struct NodeJournal(Arc<Journal>);

/// Opens the journal, if one is configured.
pub(super) fn open(flags: &JournalFlags) -> Result<Option<NodeJournal>> {
    let Some(file) = flags.journal.clone() else { return Ok(None) };
    let largest_bytes = u64::from(flags.journal_max_size) << 20;
    let options = JournalOptions { file, largest_bytes, older_files: flags.journal_max_files };
    Ok(Some(NodeJournal(Arc::new(Journal::open(Some(options), None)?))))
}

impl NodeJournal {
    /// Returns the recorder that writes an agent's removals to the journal.
    pub(super) fn recorder(&self) -> RecordRemoval {
        let file = Arc::clone(&self.0);
        Box::new(move |entry| file.record(entry))
    }
}

impl Drop for NodeJournal {
    fn drop(&mut self) {
        self.0.close();
    }
}
