//! Records as lines, signed and encrypted if keys are given. Each encrypted record is a file in age's format, in base64, so those
//! that were written before a crash can be read, also with `base64 -d | age -d`.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use age::x25519::Identity;
/// An age public key.
pub use age::x25519::Recipient;
use age::{DecryptError, Decryptor, Encryptor};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use gc_explain::text::count;
use gc_explain::undo::Record;
use gc_types::Timestamp;
use serde_json::{Value, json};

use gc_process::UsageError;

use crate::signing::{self, Origin, PublicKey, SigningKey};

/// Maximum number of identities that are tried on a record.
const MAX_IDENTITIES: usize = 16;

/// Parses an age public key.
pub fn recipient(text: &str) -> Result<Recipient, String> {
    text.parse().map_err(|error| format!("{error}; expected an age public key, such as age1…"))
}

/// Writes records as lines.
#[derive(Clone, Default)]
pub struct Writer {
    recipients: Vec<Recipient>,
    key: Option<Arc<SigningKey>>,
}

impl Writer {
    /// Encrypts to these keys; without any, lines are plain.
    #[must_use]
    pub fn to(recipients: &[Recipient]) -> Self {
        Self { recipients: recipients.to_vec(), key: None }
    }

    /// Also signs with this key.
    #[must_use]
    pub fn signed_by(self, key: SigningKey) -> Self {
        Self { key: Some(Arc::new(key)), ..self }
    }

    /// Formats a record as a line, including its end.
    pub fn line(&self, record: &Record) -> anyhow::Result<String> {
        let plain =
            json!({"at": record.at.0, "resource": record.resource, "object": record.object}).to_string();
        let signed = self.key.as_ref().map_or_else(|| plain.clone(), |key| key.signed(&plain));
        let mut line = if self.recipients.is_empty() {
            signed
        } else {
            STANDARD.encode(self.sealed(signed.as_bytes())?)
        };
        line.push('\n');
        Ok(line)
    }

    fn sealed(&self, plain: &[u8]) -> anyhow::Result<Vec<u8>> {
        let recipients = self.recipients.iter().map(|recipient| recipient as &dyn age::Recipient);
        let mut sealed = Vec::new();
        let mut writer = Encryptor::with_recipients(recipients)?.wrap_output(&mut sealed)?;
        writer.write_all(plain)?;
        writer.finish()?;
        Ok(sealed)
    }
}

/// Requirements on the signatures of records.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// Public keys of recorders.
    pub keys: Vec<PublicKey>,
    /// True if records without a recorder's signature are accepted.
    pub accepts_unsigned: bool,
}

/// The flags that say how records are decrypted, and who must have signed them.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Records")]
pub struct ReadingFlags {
    /// File with the age identities that decrypt the records, as `age-keygen` writes it; it may also have lines with public keys of recorders, `# kubegc-recorder-1:…`
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Public key of the recorder that must have signed the records, or a file with such keys (repeatable: after a change of keys, the old one and the new one)
    #[arg(long, value_name = "KEY|FILE")]
    recorder_key: Vec<String>,
    /// Believe records that no recorder has signed: whoever may write to their place can make some
    #[arg(long)]
    accept_unsigned: bool,
}

impl ReadingFlags {
    /// Creates a reader of records.
    pub fn reader(&self) -> Result<Reader, UsageError> {
        let mut keys = Vec::new();
        for flag in &self.recorder_key {
            let named = signing::named_keys(flag);
            keys.extend(named.map_err(|error| UsageError::new(format!("--recorder-key: {error}")))?);
        }
        Reader::with(self.identity.as_deref(), Trust { keys, accepts_unsigned: self.accept_unsigned })
    }
}

/// Reads lines, and counts those that are rejected, or that none of its identities decrypts.
#[derive(Default)]
pub struct Reader {
    identities: Vec<Identity>,
    file: PathBuf,
    trust: Trust,
    records: usize,
    unread: usize,
    /// Number of lines that anybody could have written.
    plain: usize,
    unsigned: usize,
    /// Number of records signed with unknown keys.
    strangers: usize,
    /// Number of records with wrong signatures.
    forged: usize,
}

impl Reader {
    /// Decrypts with the identities in a file, as `age-keygen` writes it. Encryption does not show who wrote a record: with
    /// identities, records must be signed by one of the keys, or one in the file.
    pub fn with(file: Option<&Path>, mut trust: Trust) -> Result<Self, UsageError> {
        let Some(file) = file else { return Ok(Self { trust, ..Self::default() }) };
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
        trust.keys.extend(signing::public_keys(&text).map_err(|error| wrong(&error))?);
        if trust.keys.is_empty() && !trust.accepts_unsigned {
            return Err(wrong(
                &"anybody can encrypt records to a public key, and no key of a recorder is known: name the public key that the \
                  recorder has written beside its --signing-key with --recorder-key, or accept unsigned records with \
                  --accept-unsigned",
            ));
        }
        Ok(Self { identities, file: file.to_owned(), trust, ..Self::default() })
    }

    /// Returns the record in a line; `None` for one that was truncated, is encrypted to another key, or is rejected.
    pub(crate) fn record(&mut self, line: &[u8]) -> Option<Record> {
        let line = line.trim_ascii();
        let opened;
        let is_plain = line.starts_with(b"{") || signing::is_signed(line);
        let plain = if is_plain {
            line
        } else {
            opened = self.opened(&STANDARD.decode(line).ok()?)?;
            &opened
        };
        let believed = self.believed(plain, is_plain)?;
        let mut value: Value = serde_json::from_slice(believed).ok()?;
        let record = Record {
            at: Timestamp(value["at"].as_i64()?),
            resource: value["resource"].as_str()?.to_owned(),
            object: value["object"].take(),
        };
        self.records += 1;
        Some(record)
    }

    /// Returns the record in the plain text of a line, if it is accepted.
    fn believed<'l>(&mut self, line: &'l [u8], is_plain: bool) -> Option<&'l [u8]> {
        let must_be_signed =
            !self.trust.accepts_unsigned && (!self.identities.is_empty() || !self.trust.keys.is_empty());
        let (record, counted) = match signing::origin(line, &self.trust.keys) {
            Origin::Signed(record) => return Some(record),
            Origin::Unsigned(record) => (record, &mut self.unsigned),
            Origin::Stranger(record) => (record, &mut self.strangers),
            Origin::Forged => {
                self.forged += 1;
                return None;
            }
        };
        // If records are encrypted, an unencrypted line was written by somebody else.
        if is_plain && !self.identities.is_empty() {
            self.plain += 1;
            return None;
        }
        if must_be_signed {
            *counted += 1;
            return None;
        }
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
            // The line was truncated.
            Err(_) => return None,
        };
        Some(plain)
    }

    /// Returns a message about records that could not be read, or were rejected; an error if that is all of them.
    pub fn end(&self) -> Result<Option<String>, UsageError> {
        let refused = [
            (self.plain, "not encrypted, and left out: with --identity, only encrypted ones are believed"),
            (self.unsigned, "not signed, and left out: only what the recorder has signed is believed"),
            (self.strangers, "signed by another key than --recorder-key, and left out"),
            (self.forged, "with a wrong signature, and left out: forged, or damaged"),
        ];
        let refused = refused.into_iter().filter(|(number, _)| *number > 0);
        let mut said: Vec<String> =
            refused.map(|(number, what)| format!("{} {what}", count(number, "record"))).collect();
        if said.is_empty() {
            return self.unreadable();
        }
        if self.unread > 0 {
            said.extend(self.unreadable()?);
        }
        let text = said.join("; ");
        if self.records == 0 { Err(UsageError::new(text)) } else { Ok(Some(text)) }
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

    /// Returns the lines of an identity file, and its public key.
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
        let recorder = SigningKey::open(&folder.path().join("recorder")).unwrap();
        let trust = Trust { keys: vec![recorder.public().clone()], accepts_unsigned: false };
        let plain = Writer::default().line(&of("plain")).unwrap();
        let writer = Writer::to(&[public, other_public]);
        let unsigned = writer.line(&of("unsigned")).unwrap();
        let stranger_key = SigningKey::open(&folder.path().join("stranger-key")).unwrap();
        let foreign = writer.clone().signed_by(stranger_key).line(&of("foreign")).unwrap();
        let sealed = writer.signed_by(recorder).line(&of("sealed")).unwrap();
        assert!(plain.contains("secret") && !sealed.contains("secret") && sealed.lines().count() == 1);
        let read = |identity: Option<&Path>, lines: &[&str]| {
            let trust = if identity.is_some() { trust.clone() } else { Trust::default() };
            let mut reader = Reader::with(identity, trust).unwrap();
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
            (
                Some(&own),
                &[&*unsigned, &foreign, &sealed],
                &["sealed"],
                "1 record not signed, and left out: only what the recorder has signed is believed; 1 record signed by another key than \
                 --recorder-key, and left out",
            ),
            (
                Some(&own),
                &[&*unsigned],
                &[],
                "error: 1 record not signed, and left out: only what the recorder has signed is believed",
            ),
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
            let error = Reader::with(Some(&file("wrong", text)), trust.clone()).err().unwrap().to_string();
            assert!(error.contains(wrong), "{error}");
        }
        assert!(
            recipient("age1xyz").is_err() && Reader::with(Some(Path::new("/absent")), trust.clone()).is_err()
        );
        // Without a recorder's key, everything encrypted would be accepted.
        let error = Reader::with(Some(&own), Trust::default()).err().unwrap().to_string();
        assert!(error.contains("no key of a recorder is known"), "{error}");
        let named = format!("{}# {}\n", std::fs::read_to_string(&own).unwrap(), trust.keys[0]);
        let mut reader = Reader::with(Some(&file("named", &named)), Trust::default()).unwrap();
        assert_eq!(reader.record(sealed.as_bytes()), Some(of("sealed")));
        let lax = Trust { keys: Vec::new(), accepts_unsigned: true };
        let mut reader = Reader::with(Some(&own), lax).unwrap();
        assert_eq!(reader.record(unsigned.as_bytes()), Some(of("unsigned")));
    }
}
