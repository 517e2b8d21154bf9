//! Location of records: in a directory, or in a bucket of S3 or of a server that speaks its protocol.

use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use gc_explain::undo::Record;
use gc_external::cloud::{S3, S3Options};
use gc_process::UsageError;
use gc_types::Timestamp;

pub use super::bucket::FLUSH_PERIOD;
use super::bucket::{self, BucketStore};
use super::seal::{Reader, Writer};
use super::status::{ErrorCode, RecorderStatus};
pub use super::store::Bounds;
use super::store::{self, RecordStore};

/// URL scheme of a bucket.
const SCHEME: &str = "s3://";

/// Location of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordLocation {
    /// A directory on this machine.
    Directory(PathBuf),
    /// A bucket, and the prefix of the keys of its records.
    Bucket {
        /// Name of the bucket.
        bucket: String,
        /// Prefix: empty, or text that ends with a slash.
        prefix: String,
    },
}

impl FromStr for RecordLocation {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let Some(place) = text.strip_prefix(SCHEME) else { return Ok(Self::Directory(text.into())) };
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        let prefix = prefix.trim_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Ok(Self::Bucket { bucket: bucket.to_owned(), prefix })
    }
}

impl fmt::Display for RecordLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => write!(f, "{}", path.display()),
            Self::Bucket { bucket, prefix } => write!(f, "{SCHEME}{bucket}/{prefix}"),
        }
    }
}

/// Flags that select records and their location.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Records")]
pub struct RecordsFlags {
    /// Directory of the records, or s3://BUCKET/PREFIX; credentials for S3 are found as by the AWS SDKs, but for
    /// profiles
    #[arg(long, value_name = "DIR|s3://BUCKET/PREFIX")]
    records: RecordLocation,
    /// URL of a server that speaks the protocol of S3 [default: AWS]
    #[arg(long, value_name = "URL")]
    s3_endpoint: Option<String>,
    /// Region of the bucket
    #[arg(long, value_name = "REGION", default_value = "us-east-1")]
    s3_region: String,
    /// Certificate authorities for --s3-endpoint [default: those of this machine]
    #[arg(long, value_name = "FILE", requires = "s3_endpoint")]
    s3_ca_file: Option<PathBuf>,
}

impl RecordsFlags {
    /// Returns their location.
    #[must_use]
    pub fn place(&self) -> &RecordLocation {
        &self.records
    }

    fn client(&self, bucket: &str) -> Result<S3, UsageError> {
        S3::new(S3Options {
            endpoint: self.s3_endpoint.clone(),
            authorities: self.s3_ca_file.clone(),
            ..S3Options::new(bucket, &self.s3_region)
        })
        .map_err(|error| UsageError::new(error.to_string()))
    }

    /// Passes on the records that can be read, one at a time; with `since`, only those from then on.
    pub(crate) async fn each(
        &self,
        reader: &mut Reader,
        since: Option<Timestamp>,
        mut take: impl FnMut(Record),
    ) -> anyhow::Result<()> {
        match &self.records {
            RecordLocation::Directory(path) => store::each(path, reader, |record| {
                if since.is_none_or(|since| record.at >= since) {
                    take(record);
                }
            }),
            RecordLocation::Bucket { bucket, prefix } => {
                bucket::each(&self.client(bucket)?, prefix, reader, since, take).await
            }
        }
    }

    /// Opens the location for writing. Later errors are recorded in `status`.
    pub async fn open(
        &self,
        writer: Writer,
        bounds: Bounds,
        now: Timestamp,
        status: RecorderStatus,
    ) -> anyhow::Result<Sink> {
        let store = match &self.records {
            RecordLocation::Directory(path) => {
                Store::Directory(RecordStore::open(path, bounds, now, status.clone())?)
            }
            RecordLocation::Bucket { bucket, prefix } => {
                let client = self.client(bucket)?;
                Store::Bucket(BucketStore::open(client, prefix, bounds, status.clone()).await?)
            }
        };
        Ok(Sink { store, writer, status })
    }
}

/// Destination of a recorder, and its encryption.
pub struct Sink {
    pub(crate) store: Store,
    pub(crate) writer: Writer,
    pub(crate) status: RecorderStatus,
}

/// Destination of a recorder.
pub(crate) enum Store {
    Directory(RecordStore),
    Bucket(BucketStore),
}

impl Sink {
    /// Adds a record. On disk, the operating system has it when this returns; a bucket gets it within [`FLUSH_PERIOD`].
    pub fn append(&mut self, record: &Record) -> anyhow::Result<()> {
        let line = self.writer.line(record)?;
        match &mut self.store {
            Store::Directory(store) => store.append(record.at, &line).inspect_err(|error| {
                self.status.failed(ErrorCode::WriteFailed, error);
            })?,
            Store::Bucket(store) => store.append(record.at, &line),
        }
        self.status.recorded(&record.resource, record.at);
        Ok(())
    }

    /// Sends the collected records without waiting for the response.
    pub fn flush(&mut self) {
        if let Store::Bucket(store) = &mut self.store {
            store.flush();
        }
    }

    /// Removes records beyond the bounds. A bucket does so by itself.
    pub fn prune(&mut self, now: Timestamp) -> anyhow::Result<()> {
        match &mut self.store {
            Store::Directory(store) => store.prune(now),
            Store::Bucket(_) => Ok(()),
        }
    }

    /// Waits until everything is written, for a bounded time.
    pub async fn close(self) -> anyhow::Result<()> {
        match self.store {
            Store::Directory(_) => Ok(()),
            Store::Bucket(store) => store.close().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_shown() {
        let bucket = |bucket: &str, prefix: &str| RecordLocation::Bucket {
            bucket: bucket.into(),
            prefix: prefix.into(),
        };
        for (text, expected, shown) in [
            ("/var/records", RecordLocation::Directory("/var/records".into()), "/var/records"),
            ("s3", RecordLocation::Directory("s3".into()), "s3"),
            ("s3://b", bucket("b", ""), "s3://b/"),
            ("s3://b/", bucket("b", ""), "s3://b/"),
            ("s3://b/a/c/", bucket("b", "a/c/"), "s3://b/a/c/"),
        ] {
            let Ok(place) = text.parse::<RecordLocation>();
            assert_eq!((&place, place.to_string().as_str()), (&expected, shown));
        }
    }
}
