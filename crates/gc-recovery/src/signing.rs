//! Signatures of records, so that anyone who may write to the directory or bucket of a recorder still cannot forge a record.
//!
//! age does not authenticate a writer: its public keys are public. A recorder has its own key (Ed25519), and signs each record
//! before encrypting it. Its public key is passed to `kubegc undo` by a flag, or in a line of the identity file.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gc_process::private_files;
use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};

/// Prefix of the line with a private key.
const PRIVATE: &str = "KUBEGC-RECORDER-PRIVATE-KEY-1";
/// Prefix of a public key.
const PUBLIC: &str = "kubegc-recorder-1:";
/// Prefix of a signed record.
const SIGNED: &str = "signed-1";
/// Text that is signed with each record, so that a signature of anything else is not valid for a record.
const DOMAIN: &[u8] = b"kubegc record 1\n";
/// Number of bytes of a public key that its name shows.
const NAME_BYTES: usize = 8;
/// Maximum size of a file that is read as a key, bytes.
const LARGEST_KEY_FILE: u64 = 64 << 10;

/// Public key of a recorder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// Returns the name under which signatures refer to it.
    fn name(&self) -> String {
        gc_types::hexadecimal(&self.0[..NAME_BYTES])
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PUBLIC}{}", STANDARD.encode(self.0))
    }
}

impl FromStr for PublicKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let encoded = text.strip_prefix(PUBLIC).ok_or_else(|| format!("it does not begin with {PUBLIC}"))?;
        let bytes = STANDARD.decode(encoded.trim()).map_err(|error| error.to_string())?;
        let bytes: [u8; 32] = bytes.try_into().map_err(|_| "it has not 32 bytes".to_owned())?;
        Ok(Self(bytes))
    }
}

/// Parses the public keys in a text, one per line, also as comments in an identity file: `# kubegc-recorder-1:…`.
pub(crate) fn public_keys(text: &str) -> Result<Vec<PublicKey>, String> {
    let lines = text.lines().map(|line| line.trim_start_matches('#').trim());
    let keys = lines.filter(|line| line.starts_with(PUBLIC));
    keys.map(|line| line.parse().map_err(|error| format!("{line:?}: {error}"))).collect()
}

/// Returns the public keys that a flag gives: a key, or a file with keys.
pub(crate) fn named_keys(flag: &str) -> Result<Vec<PublicKey>, String> {
    if flag.starts_with(PUBLIC) {
        return Ok(vec![flag.parse()?]);
    }
    let mut text = String::new();
    let file = std::fs::File::open(flag).map_err(|error| format!("{flag}: {error}"))?;
    file.take(LARGEST_KEY_FILE).read_to_string(&mut text).map_err(|error| format!("{flag}: {error}"))?;
    let keys = public_keys(&text)?;
    if keys.is_empty() {
        return Err(format!("{flag}: no line begins with {PUBLIC}"));
    }
    Ok(keys)
}

/// Key of a recorder.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    public: PublicKey,
}

impl SigningKey {
    /// Reads the key in a file, or creates one: the file is readable by its owner only, and `FILE.pub` beside it by everybody.
    pub fn open(file: &Path) -> anyhow::Result<Self> {
        let shown = file.display();
        let mut options = OpenOptions::new();
        let mut opened = private_files::open(options.read(true).append(true), file)
            .with_context(|| format!("cannot open the key {shown}"))?;
        let metadata = opened.metadata().with_context(|| format!("cannot read the key {shown}"))?;
        if gc_host::is_open_to_others(&metadata) {
            bail!("others can read the key {shown}: chmod 600 {shown}");
        }
        let mut text = String::new();
        (&mut opened)
            .take(LARGEST_KEY_FILE)
            .read_to_string(&mut text)
            .with_context(|| format!("cannot read the key {shown}"))?;
        if text.trim().is_empty() {
            let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new());
            let key = key.map_err(|_| anyhow::anyhow!("no key can be made: there is no randomness"))?;
            text = format!("{PRIVATE} {}\n", STANDARD.encode(key.as_ref()));
            opened.write_all(text.as_bytes()).with_context(|| format!("cannot write the key {shown}"))?;
            opened.sync_all().with_context(|| format!("cannot write the key {shown}"))?;
        }
        let key = Self::read(&text).with_context(|| format!("{shown} is no key of a recorder"))?;
        let public = public_file(file);
        let known = std::fs::read_to_string(&public).ok().and_then(|text| public_keys(&text).ok());
        if known.is_none_or(|known| !known.contains(&key.public)) {
            std::fs::write(&public, format!("{}\n", key.public))
                .with_context(|| format!("cannot write {}", public.display()))?;
        }
        Ok(key)
    }

    fn read(text: &str) -> anyhow::Result<Self> {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(PRIVATE));
        let encoded = line.with_context(|| format!("no line begins with {PRIVATE}"))?;
        let bytes = STANDARD.decode(encoded.trim()).context("it is not base64")?;
        let pair = Ed25519KeyPair::from_pkcs8(&bytes).map_err(|why| anyhow::anyhow!("{why}"))?;
        let public: [u8; 32] = pair.public_key().as_ref().try_into().context("it is no key of Ed25519")?;
        Ok(Self { pair, public: PublicKey(public) })
    }

    /// Returns its public key.
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Signs a record, and returns it with the signature in front.
    pub(crate) fn signed(&self, record: &str) -> String {
        let signature = self.pair.sign(&message(record.as_bytes()));
        format!("{SIGNED} {} {} {record}", self.public.name(), STANDARD.encode(signature.as_ref()))
    }
}

/// Returns the file of the public key for a private key's file.
fn public_file(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".pub");
    PathBuf::from(name)
}

fn message(record: &[u8]) -> Vec<u8> {
    [DOMAIN, record].concat()
}

/// Evidence in a line of who wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin<'l> {
    /// One of the keys has signed this record.
    Signed(&'l [u8]),
    /// Has no signature.
    Unsigned(&'l [u8]),
    /// Signed with an unknown key; contains the record.
    Stranger(&'l [u8]),
    /// Names a known key, but its signature is wrong: it was forged or damaged.
    Forged,
}

/// Reports whether a line is a signed record that is not encrypted.
pub(crate) fn is_signed(line: &[u8]) -> bool {
    line.strip_prefix(SIGNED.as_bytes()).is_some_and(|rest| rest.starts_with(b" "))
}

/// Verifies the plain text of a line.
pub(crate) fn origin<'l>(line: &'l [u8], keys: &[PublicKey]) -> Origin<'l> {
    let Some(rest) = line.strip_prefix(SIGNED.as_bytes()).and_then(|rest| rest.strip_prefix(b" ")) else {
        return Origin::Unsigned(line);
    };
    let mut parts = rest.splitn(3, |byte| *byte == b' ');
    let (Some(name), Some(signature), Some(record)) = (parts.next(), parts.next(), parts.next()) else {
        return Origin::Forged;
    };
    let mut named = keys.iter().filter(|key| key.name().as_bytes() == name).peekable();
    if named.peek().is_none() {
        return Origin::Stranger(record);
    }
    let Ok(signature) = STANDARD.decode(signature) else { return Origin::Forged };
    let message = message(record);
    let is_by =
        |key: &PublicKey| UnparsedPublicKey::new(&ED25519, key.0).verify(&message, &signature).is_ok();
    if named.any(is_by) { Origin::Signed(record) } else { Origin::Forged }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_kept_from_others() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        let made = SigningKey::open(&file).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(SigningKey::open(&file).unwrap().public(), made.public());
        assert_eq!(named_keys(public_file(&file).to_str().unwrap()).unwrap(), [made.public().clone()]);
        assert_eq!(named_keys(&made.public().to_string()).unwrap(), [made.public().clone()]);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        let error = SigningKey::open(&file).err().unwrap().to_string();
        assert!(error.contains("others can read the key"), "{error}");
        let other = folder.path().join("other");
        std::fs::write(&other, "nonsense\n").unwrap();
        std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(SigningKey::open(&other).is_err());
        assert!(named_keys(other.to_str().unwrap()).is_err() && named_keys("kubegc-recorder-1:AA").is_err());
    }

    #[test]
    fn only_a_known_key_signs() {
        let folder = tempfile::tempdir().unwrap();
        let key = |name: &str| SigningKey::open(&folder.path().join(name)).unwrap();
        let (own, second, stranger) = (key("own"), key("second"), key("stranger"));
        let keys = [own.public().clone(), second.public().clone()];
        let record = r#"{"at":7,"object":{"a":"b c"}}"#;
        let judge = |line: &str| match origin(line.as_bytes(), &keys) {
            Origin::Signed(found) => {
                assert_eq!(found, record.as_bytes());
                "signed"
            }
            Origin::Unsigned(_) => "unsigned",
            Origin::Stranger(_) => "stranger",
            Origin::Forged => "forged",
        };
        let signed = own.signed(record);
        assert_eq!(judge(&signed), "signed");
        assert_eq!(judge(&second.signed(record)), "signed", "after a change of keys, both are believed");
        assert_eq!(judge(&stranger.signed(record)), "stranger");
        assert_eq!(judge(record), "unsigned");
        assert_eq!(judge(&signed.replace("\"at\":7", "\"at\":8")), "forged");
        // The name of a key proves nothing.
        let claimed = stranger.signed(record).replace(&stranger.public().name(), &own.public().name());
        assert_eq!(judge(&claimed), "forged");
        assert_eq!(judge("signed-1 x"), "forged");
        let comment = format!("# created: today\n# {}\nAGE-SECRET-KEY-1X\n", own.public());
        assert_eq!(public_keys(&comment).unwrap(), [own.public().clone()]);
    }
}
