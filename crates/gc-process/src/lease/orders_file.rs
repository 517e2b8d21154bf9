//! Orders in a file beside the journal: a collector whose process ends while etcd is restored starts with them again.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::orders::Orders;
use crate::private_files;

/// A Lease as it was when its orders last changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseRecord {
    pub(crate) uid: String,
    pub(crate) version: u64,
    pub(crate) orders: Orders,
}

/// A file with the orders of one Lease of one server.
#[derive(Clone, Debug)]
pub(crate) struct OrdersFile {
    path: PathBuf,
    /// Address of the server, and namespace and name of the Lease; the file of another Lease is ignored.
    subject: String,
}

impl OrdersFile {
    pub(crate) fn beside(journal: &Path, subject: String) -> Self {
        Self { path: journal.with_extension("orders"), subject }
    }

    /// Returns the orders that were written last, if there are any for this Lease.
    pub(crate) fn read(&self) -> Option<LeaseRecord> {
        let value: Value = serde_json::from_slice(&std::fs::read(&self.path).ok()?).ok()?;
        (value["of"].as_str() == Some(self.subject.as_str())).then(|| LeaseRecord {
            uid: value["uid"].as_str().unwrap_or_default().to_owned(),
            version: value["version"].as_u64().unwrap_or_default(),
            orders: Orders::of_lease(&json!({"metadata": {"annotations": value["annotations"]}})),
        })
    }

    /// Writes orders. Without the file, only a restart forgets the orders of a lost Lease.
    pub(crate) fn write(&self, record: &LeaseRecord) {
        let value = json!({
            "of": self.subject, "uid": record.uid, "version": record.version,
            "annotations": record.orders.new_annotations(),
        });
        if let Err(error) = self.replace(&value.to_string()) {
            tracing::warn!(%error, file = %self.path.display(), "orders cannot be kept beside the journal");
        }
    }

    fn replace(&self, text: &str) -> std::io::Result<()> {
        let mut unfinished = self.path.clone().into_os_string();
        unfinished.push(".new");
        let mut file =
            private_files::open(std::fs::File::options().write(true).truncate(true), unfinished.as_ref())?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&unfinished, &self.path)
    }
}
