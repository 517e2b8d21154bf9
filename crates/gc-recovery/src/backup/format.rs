//! File format of a backup: lines of JSON, followed by a checksum of all preceding lines.
//!
//! ```text
//! {"format":"kubegc.io/backup.v1","revision":5120,"takenAt":"2026-11-23T06:00:00Z"}
//! {"file":"ca.crt","content":"…"}                        the keys, if they were asked for
//! {"key":"/pods/default/web","createRevision":17,"value":"…"}
//! {"objects":812,"sha256":"…"}
//! ```

use std::io::{BufRead, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use gc_process::lines::{self, Lines};
use gc_registry::storage::{KeyValue, Revision};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Format in the first line.
const FORMAT: &str = "kubegc.io/backup.v1";
/// Maximum length of a line: an object of the largest size that a store accepts, in base64, and its key.
const LONGEST_LINE_BYTES: usize = 16 << 20;

/// First line of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Head {
    format: String,
    /// Revision of the store at which the objects were read.
    pub(crate) revision: u64,
    /// Time of the backup, in RFC 3339.
    pub(crate) taken_at: String,
}

impl Head {
    pub(crate) fn new(revision: Revision, taken_at: jiff::Timestamp) -> Self {
        Self { format: FORMAT.to_owned(), revision: revision.0, taken_at: taken_at.to_string() }
    }
}

/// One entry of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A file in the directory of keys.
    Key { name: String, content: Vec<u8> },
    /// An object, as stored.
    Object(KeyValue),
}

#[derive(Serialize, Deserialize)]
#[serde(untagged, rename_all_fields = "camelCase", deny_unknown_fields)]
enum Line {
    File { file: String, content: String },
    Object { key: String, create_revision: u64, value: String },
    Tail { objects: u64, sha256: String },
}

/// Reason why a file is not a backup that can be restored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FormatError {
    #[error("cannot read the backup: {0}")]
    Read(#[from] std::io::Error),
    #[error("line {number} of the backup: {reason}")]
    Line { number: u64, reason: String },
    #[error("the backup ends early, after line {0}: it was not written to its end")]
    Truncated(u64),
    #[error("the backup is damaged: its checksum does not fit its contents")]
    Checksum,
}

/// Writes a backup, line by line.
pub(crate) struct Writer<W> {
    out: W,
    digest: Sha256,
    objects: u64,
}

impl<W: Write> Writer<W> {
    pub(crate) fn begin(out: W, head: &Head) -> std::io::Result<Self> {
        let mut writer = Self { out, digest: Sha256::new(), objects: 0 };
        writer.line(head)?;
        Ok(writer)
    }

    pub(crate) fn write(&mut self, entry: &Entry) -> std::io::Result<()> {
        let line = match entry {
            Entry::Key { name, content } => {
                Line::File { file: name.clone(), content: BASE64.encode(content) }
            }
            Entry::Object(item) => {
                self.objects += 1;
                Line::Object {
                    key: item.key.to_string(),
                    create_revision: item.create_revision.0,
                    value: BASE64.encode(&item.value),
                }
            }
        };
        self.line(&line)
    }

    /// Completes the backup. Returns the output and the number of objects.
    pub(crate) fn finish(mut self) -> std::io::Result<(W, u64)> {
        let tail = Line::Tail {
            objects: self.objects,
            sha256: gc_types::hexadecimal(&self.digest.clone().finalize()),
        };
        self.line(&tail)?;
        self.out.flush()?;
        Ok((self.out, self.objects))
    }

    fn line(&mut self, value: &impl Serialize) -> std::io::Result<()> {
        let mut text = serde_json::to_vec(value)?;
        text.push(b'\n');
        self.digest.update(&text);
        self.out.write_all(&text)
    }
}

/// Reads a backup, line by line. The last item is an error unless the checksum is correct.
pub(crate) struct Reader<R> {
    input: Lines<R>,
    digest: Sha256,
    number: u64,
    objects: u64,
    head: Head,
    ended: bool,
}

impl<R: BufRead> Reader<R> {
    pub(crate) fn begin(input: R) -> Result<Self, FormatError> {
        let head = Head { format: String::new(), revision: 0, taken_at: String::new() };
        let input = Lines::new(input, LONGEST_LINE_BYTES);
        let mut reader = Self { input, digest: Sha256::new(), number: 0, objects: 0, head, ended: false };
        let line = reader.line()?.ok_or(FormatError::Truncated(0))?;
        reader.digest.update(&line);
        let head: Head = reader.parsed(&line)?;
        if head.format != FORMAT {
            return Err(reader.wrong(format!("the format is {:?}; expected {FORMAT:?}", head.format)));
        }
        reader.head = head;
        Ok(reader)
    }

    pub(crate) fn head(&self) -> &Head {
        &self.head
    }

    /// Returns the next line with its newline; `None` at the end.
    fn line(&mut self) -> Result<Option<Vec<u8>>, FormatError> {
        let next = self.input.next()?;
        self.number += u64::from(next.is_some());
        match next {
            None => Ok(None),
            Some(lines::Line::Whole(line)) => Ok(Some(line.to_vec())),
            Some(lines::Line::Torn(_)) => Err(FormatError::Truncated(self.number)),
            Some(lines::Line::TooLong) => {
                Err(self.wrong(format!("it is longer than {LONGEST_LINE_BYTES} bytes")))
            }
        }
    }

    fn wrong(&self, reason: String) -> FormatError {
        FormatError::Line { number: self.number, reason }
    }

    fn parsed<'a, T: Deserialize<'a>>(&self, line: &'a [u8]) -> Result<T, FormatError> {
        serde_json::from_slice(line).map_err(|error| self.wrong(error.to_string()))
    }

    fn decoded(&self, name: &str, text: &str) -> Result<Vec<u8>, FormatError> {
        BASE64.decode(text).map_err(|error| self.wrong(format!("{name} is not base64: {error}")))
    }

    fn read(&mut self) -> Result<Option<Entry>, FormatError> {
        let line = self.line()?.ok_or(FormatError::Truncated(self.number))?;
        let entry = match self.parsed(&line)? {
            Line::Tail { objects, sha256 } => {
                let fits = objects == self.objects
                    && sha256 == gc_types::hexadecimal(&self.digest.clone().finalize());
                if !fits {
                    return Err(FormatError::Checksum);
                }
                return match self.line()? {
                    None => Ok(None),
                    Some(_) => Err(self.wrong("nothing may follow the checksum".to_owned())),
                };
            }
            Line::File { file, content } => {
                // It becomes the name of a file.
                let is_plain =
                    file.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
                        && !file.starts_with('.')
                        && !file.is_empty();
                if !is_plain {
                    return Err(self.wrong(format!("{file:?} is not a plain file name")));
                }
                Entry::Key { content: self.decoded("content", &content)?, name: file }
            }
            Line::Object { key, create_revision, value } => {
                self.objects += 1;
                Entry::Object(KeyValue {
                    value: Bytes::from(self.decoded("value", &value)?),
                    key: key.into(),
                    create_revision: Revision(create_revision),
                    mod_revision: Revision(self.head.revision),
                })
            }
        };
        self.digest.update(&line);
        Ok(Some(entry))
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Entry, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let read = self.read().transpose();
        self.ended = !matches!(read, Some(Ok(_)));
        read
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn object(key: &str, create: u64, value: &[u8]) -> Entry {
        Entry::Object(KeyValue {
            key: key.into(),
            value: Bytes::copy_from_slice(value),
            create_revision: Revision(create),
            mod_revision: Revision(40),
        })
    }

    fn written(entries: &[Entry]) -> Vec<u8> {
        let mut writer =
            Writer::begin(Vec::new(), &Head::new(Revision(40), jiff::Timestamp::UNIX_EPOCH)).unwrap();
        for entry in entries {
            writer.write(entry).unwrap();
        }
        writer.finish().unwrap().0
    }

    fn read(bytes: &[u8]) -> Result<Vec<Entry>, FormatError> {
        Reader::begin(bytes)?.collect()
    }

    fn sample() -> Vec<Entry> {
        let key = Entry::Key { name: "ca.key".to_owned(), content: b"secret".to_vec() };
        vec![key, object("/pods/default/web", 7, br#"{"kind":"Pod"}"#), object("/b", 40, &[0, 255])]
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(read(&written(&sample())).unwrap(), sample());
        assert_eq!(read(&written(&[])).unwrap(), []);
        assert_eq!(Reader::begin(&*written(&[])).unwrap().head().revision, 40);
    }

    #[test]
    fn what_is_cut_or_changed_is_refused() {
        let whole = written(&sample());
        for end in 0..whole.len() {
            assert!(read(&whole[..end]).is_err(), "cut after {end} bytes");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            assert!(read(&changed).is_err(), "byte {at} changed");
        }
        let twice = [whole.clone(), whole].concat();
        assert!(read(&twice).is_err());
    }

    #[test]
    fn a_key_file_stays_in_its_folder() {
        for name in ["../ca.key", "a/b", ".hidden", ""] {
            let entry = Entry::Key { name: name.to_owned(), content: Vec::new() };
            let error = read(&written(&[entry])).unwrap_err().to_string();
            assert!(error.contains("is not a plain file name"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(read(&bytes).is_err());
        }
    }
}
