//! Records as lines, encrypted to age public keys where these are given. Each encrypted record is a file in age's format, in
//! base64: so the ones that were written before a crash can be read, by `base64 -d | age -d` as well.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use age::x25519::Identity;
/// An age public key.
pub use age::x25519::Recipient;
use age::{DecryptError, Decryptor, Encryptor};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gc_explain::text::count;
use gc_explain::undo::Record;
use gc_types::Timestamp;
use serde_json::{Value, json};

use gc_process::UsageError;

/// Identities that are tried on a record at most.
const MAX_IDENTITIES: usize = 16;

/// Reads an age public key.
pub fn recipient(text: &str) -> Result<Recipient, String> {
    text.parse().map_err(|error| format!("{error}; expected an age public key, such as age1…"))
}

/// Writes records as lines.
#[derive(Clone, Default)]
pub struct Writer(Vec<Recipient>);

impl Writer {
    /// Encrypts to these keys; with none, lines are plain.
    #[must_use]
    pub fn to(recipients: &[Recipient]) -> Self {
        Self(recipients.to_vec())
    }

    /// A record with the end of its line.
    pub fn line(&self, record: &Record) -> anyhow::Result<String> {
        let plain =
            json!({"at": record.at.0, "resource": record.resource, "object": record.object}).to_string();
        let mut line =
            if self.0.is_empty() { plain } else { STANDARD.encode(self.sealed(plain.as_bytes())?) };
        line.push('\n');
        Ok(line)
    }

    fn sealed(&self, plain: &[u8]) -> anyhow::Result<Vec<u8>> {
        let recipients = self.0.iter().map(|recipient| recipient as &dyn age::Recipient);
        let mut sealed = Vec::new();
        let mut writer = Encryptor::with_recipients(recipients)?.wrap_output(&mut sealed)?;
        writer.write_all(plain)?;
        writer.finish()?;
        Ok(sealed)
    }
}

/// Reads lines, and counts those that none of its identities decrypts.
#[derive(Default)]
pub struct Reader {
    identities: Vec<Identity>,
    file: PathBuf,
    records: usize,
    unread: usize,
    /// Lines that anybody could have written.
    plain: usize,
}

impl Reader {
    /// Decrypts with the identities of a file, as `age-keygen` writes it.
    pub fn with(file: Option<&Path>) -> Result<Self, UsageError> {
        let Some(file) = file else { return Ok(Self::default()) };
        let wrong = |error: &dyn std::fmt::Display| {
            UsageError::new(format!("--identity {}: {error}", file.display()))
        };
        let text = std::fs::read_to_string(file).map_err(|error| wrong(&error))?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let identity = |line: &str| {
            let parsed = line.parse::<Identity>();
            parsed.map_err(|error| wrong(&format!("{error}; expected lines such as AGE-SECRET-KEY-1…")))
        };
        let identities: Vec<Identity> = lines.map(identity).collect::<Result<_, _>>()?;
        if identities.is_empty() || identities.len() > MAX_IDENTITIES {
            let number = identities.len();
            return Err(wrong(&format!("it has {number} identities; expected 1 to {MAX_IDENTITIES}")));
        }
        Ok(Self { identities, file: file.to_owned(), ..Self::default() })
    }

    /// The record of a line; `None` for one that was cut off, or is encrypted to another key.
    pub fn record(&mut self, line: &[u8]) -> Option<Record> {
        let line = line.trim_ascii();
        let opened;
        let plain = if line.starts_with(b"{") {
            // Where records are encrypted, a line that is not was written by somebody else.
            if !self.identities.is_empty() {
                self.plain += 1;
                return None;
            }
            line
        } else {
            opened = self.opened(&STANDARD.decode(line).ok()?)?;
            &opened
        };
        let mut value: Value = serde_json::from_slice(plain).ok()?;
        let record = Record {
            at: Timestamp(value["at"].as_i64()?),
            resource: value["resource"].as_str()?.to_owned(),
            object: value["object"].take(),
        };
        self.records += 1;
        Some(record)
    }

    fn opened(&mut self, sealed: &[u8]) -> Option<Vec<u8>> {
        let identities = self.identities.iter().map(|identity| identity as &dyn age::Identity);
        let mut plain = Vec::new();
        match Decryptor::new_buffered(sealed).and_then(|sealed| sealed.decrypt(identities)) {
            Ok(mut reader) => reader.read_to_end(&mut plain).ok()?,
            Err(DecryptError::NoMatchingKeys) => {
                self.unread += 1;
                return None;
            }
            // It was cut off.
            Err(_) => return None,
        };
        Some(plain)
    }

    /// What is to be said of records that could not be read; an error if these are all.
    pub fn end(&self) -> Result<Option<String>, UsageError> {
        if self.plain > 0 {
            let plain = count(self.plain, "record");
            let others = if self.unread > 0 {
                format!("; {}", self.unreadable()?.unwrap_or_default())
            } else {
                String::new()
            };
            let text = format!(
                "{plain} not encrypted, and left out: with --identity, only encrypted ones are believed{others}"
            );
            return if self.records == 0 { Err(UsageError::new(text)) } else { Ok(Some(text)) };
        }
        self.unreadable()
    }

    fn unreadable(&self) -> Result<Option<String>, UsageError> {
        let (unread, file) = (count(self.unread, "record"), self.file.display());
        match (self.unread, self.identities.is_empty()) {
            (0, _) => Ok(None),
            (_, true) if self.records == 0 => {
                Err(UsageError::new(format!("{unread} encrypted: --identity FILE names the age identity")))
            }
            (_, true) => {
                Ok(Some(format!("{unread} encrypted, and left out: --identity FILE names the age identity")))
            }
            (_, false) => {
                Ok(Some(format!("{unread} encrypted to other keys than those of {file}, and left out")))
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    /// The lines of an identity file, and its public key.
    pub(crate) fn key() -> (String, Recipient) {
        use age::secrecy::ExposeSecret as _;
        let identity = Identity::generate();
        let public = identity.to_public();
        let file = format!("# public key: {public}\n{}\n", identity.to_string().expose_secret());
        (file, public)
    }

    fn of(name: &str) -> Record {
        Record {
            at: Timestamp(7),
            resource: "configmaps".into(),
            object: json!({"metadata": {"name": name}, "data": {"k": "secret ".repeat(20_000)}}),
        }
    }

    #[test]
    fn only_the_owner_of_a_key_reads_a_record() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let ((own, public), (second, other_public), (stranger, _)) = (key(), key(), key());
        let (own, second, stranger) =
            (file("own", &own), file("second", &second), file("stranger", &stranger));
        let plain = Writer::default().line(&of("plain")).unwrap();
        let sealed = Writer::to(&[public, other_public]).line(&of("sealed")).unwrap();
        assert!(plain.contains("secret") && !sealed.contains("secret") && sealed.lines().count() == 1);
        let read = |identity: Option<&Path>, lines: &[&str]| {
            let mut reader = Reader::with(identity).unwrap();
            let records: Vec<Record> =
                lines.iter().filter_map(|line| reader.record(line.as_bytes())).collect();
            let said = reader.end().map_or_else(|error| format!("error: {error}"), Option::unwrap_or_default);
            (records, said.replace(&*stranger.to_string_lossy(), "FILE"))
        };
        let cut = &sealed[..sealed.len() / 8 * 4];
        for (identity, lines, expected, said) in [
            (
                Some(&own),
                &[&*plain, &sealed][..],
                &["sealed"][..],
                "1 record not encrypted, and left out: with --identity, only encrypted ones are believed",
            ),
            (
                Some(&own),
                &[&*plain],
                &[],
                "error: 1 record not encrypted, and left out: with --identity, only encrypted ones are believed",
            ),
            (Some(&second), &[&*sealed], &["sealed"], ""),
            (Some(&own), &[cut, &sealed[..50]], &[], ""),
            (None, &[&*plain], &["plain"], ""),
            (None, &[&*sealed], &[], "error: 1 record encrypted: --identity FILE names the age identity"),
            (
                None,
                &[&*plain, &sealed],
                &["plain"],
                "1 record encrypted, and left out: --identity FILE names the age identity",
            ),
            (
                Some(&stranger),
                &[&*sealed, &sealed],
                &[],
                "2 records encrypted to other keys than those of FILE, and left out",
            ),
        ] {
            let expected: Vec<Record> = expected.iter().map(|name| of(name)).collect();
            assert_eq!(read(identity.map(PathBuf::as_path), lines), (expected, said.to_owned()));
        }
        for (text, wrong) in [
            ("", "it has 0 identities; expected 1 to 16"),
            ("age1xyz", "expected lines such as AGE-SECRET-KEY-1…"),
            ("AGE-SECRET-KEY-1ABC", "expected lines such as AGE-SECRET-KEY-1…"),
        ] {
            let error = Reader::with(Some(&file("wrong", text))).err().unwrap().to_string();
            assert!(error.contains(wrong), "{error}");
        }
        assert!(recipient("age1xyz").is_err() && Reader::with(Some(Path::new("/absent"))).is_err());
    }
}
