//! The journal's file, bounded in size, with a bounded number of older files (`FILE.1` is the youngest of them).

use std::fs::File;
use std::io::{BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;

use crate::private_files;

/// Location of the journal, and its maximum size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalOptions {
    /// File that is written; rotated files stand beside it with a number.
    pub file: PathBuf,
    /// Size in bytes at which the file is rotated.
    pub largest_bytes: u64,
    /// Number of rotated files that are kept.
    pub older_files: u32,
}

/// Returns the file with this number; 0 is the one being written.
pub(super) fn numbered(file: &Path, number: u32) -> PathBuf {
    if number == 0 {
        return file.to_owned();
    }
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

/// A file that is rotated when it is full.
pub(super) struct RotatedFile {
    options: JournalOptions,
    /// Lock that keeps other processes from writing to the file.
    _lock: Option<File>,
    file: BufWriter<File>,
    bytes: u64,
}

fn open(path: &Path) -> std::io::Result<File> {
    private_files::open(File::options().append(true), path)
}

/// Reports whether the last line has no line feed because its writer was killed in the middle of it. A path that is not a regular
/// file has no lines.
fn is_torn(path: &Path, bytes: u64) -> std::io::Result<bool> {
    let Some(last) = bytes.checked_sub(1) else { return Ok(false) };
    let mut byte = [0];
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(last))?;
    let read = file.read(&mut byte)?;
    Ok(read == 1 && byte != *b"\n")
}

impl RotatedFile {
    pub(super) fn open(options: JournalOptions) -> anyhow::Result<Self> {
        let begun = || -> std::io::Result<(File, u64)> {
            let mut file = open(&options.file)?;
            let mut bytes = file.metadata()?.len();
            if is_torn(&options.file, bytes)? {
                // This keeps the next entry on a line of its own.
                file.write_all(b"\n")?;
                bytes += 1;
            }
            Ok((file, bytes))
        };
        let (file, bytes) =
            begun().with_context(|| format!("cannot open the journal {}", options.file.display()))?;
        Ok(Self { options, _lock: None, file: BufWriter::new(file), bytes })
    }

    /// Opens the file in a directory that is created if necessary. Fails if another process writes to the file.
    pub(super) fn open_alone(options: JournalOptions) -> anyhow::Result<Self> {
        let shown = options.file.display().to_string();
        if let Some(folder) = options.file.parent() {
            private_files::create_directory(folder)?;
        }
        let lock = open(&options.file.with_extension("lock"))
            .with_context(|| format!("cannot open the lock of the journal {shown}"))?;
        lock.try_lock().with_context(|| format!("another process writes the journal {shown}"))?;
        Ok(Self { _lock: Some(lock), ..Self::open(options)? })
    }

    /// Appends lines, each with a line feed.
    pub(super) fn append(&mut self, lines: &[Arc<str>]) -> std::io::Result<()> {
        for line in lines {
            let length = u64::try_from(line.len()).unwrap_or(u64::MAX).saturating_add(1);
            if self.bytes > 0 && self.bytes.saturating_add(length) > self.options.largest_bytes {
                self.rotate()?;
            }
            self.file.write_all(line.as_bytes())?;
            self.file.write_all(b"\n")?;
            self.bytes = self.bytes.saturating_add(length);
        }
        self.file.flush()
    }

    fn rotate(&mut self) -> std::io::Result<()> {
        self.file.flush()?;
        let JournalOptions { file, older_files, .. } = &self.options;
        for number in (0..*older_files).rev() {
            match std::fs::rename(numbered(file, number), numbered(file, number + 1)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if *older_files == 0 {
            std::fs::remove_file(file)?;
        }
        self.file = BufWriter::new(open(file)?);
        self.bytes = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    /// An entry that follows a line torn by the death of a process is not lost with it.
    #[test]
    fn an_entry_after_a_torn_line_has_a_line_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("journal");
        for (before, after) in [
            ("", "{\"n\":2}\n"),
            ("{\"n\":1}\n", "{\"n\":1}\n{\"n\":2}\n"),
            ("{\"n\":0}\n{\"n\":", "{\"n\":0}\n{\"n\":\n{\"n\":2}\n"),
        ] {
            std::fs::write(&file, before).unwrap();
            let options = JournalOptions { file: file.clone(), largest_bytes: 1 << 20, older_files: 1 };
            RotatedFile::open(options).unwrap().append(&["{\"n\":2}".into()]).unwrap();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), after);
        }
    }

    #[test]
    fn a_full_file_is_put_aside_and_the_oldest_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("journal");
        let options = JournalOptions { file: file.clone(), largest_bytes: 20, older_files: 2 };
        let lines = |numbers: std::ops::RangeInclusive<u32>| -> Vec<Arc<str>> {
            numbers.map(|number| format!("{{\"n\":{number}}}").into()).collect()
        };
        let mut rotated = RotatedFile::open(options.clone()).unwrap();
        rotated.append(&lines(1..=8)).unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(read("journal"), "{\"n\":7}\n{\"n\":8}\n");
        assert_eq!(read("journal.1"), "{\"n\":5}\n{\"n\":6}\n");
        assert_eq!(read("journal.2"), "{\"n\":3}\n{\"n\":4}\n");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
        // After reopening, it continues where it was.
        let mut again = RotatedFile::open(options).unwrap();
        again.append(&lines(9..=9)).unwrap();
        assert_eq!(read("journal"), "{\"n\":9}\n");
        assert_eq!(read("journal.1"), "{\"n\":7}\n{\"n\":8}\n");
    }
}
