//! Keys that several servers on one store share: the certificate authority, the key of service-account tokens, the authority of the
//! front proxy and the administrator's key. They form one record in the store, encrypted with a secret that each server is given.

use std::path::Path;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use gc_registry::Registry;
use gc_registry::storage::{Revision, StorageError};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};

use super::front_proxy::FrontProxy;
use super::pki::{Keep, Pki, PkiError};
use super::shared_files::{Files, SharedFiles};

/// Name of the record in the store.
const RECORD: &str = "keys";
/// First line of the record, which its encryption authenticates.
const FORMAT: &[u8] = b"kubegc-cluster-keys/1\n";
/// Length of a secret in bytes.
const SECRET_BYTES: usize = 32;
/// Maximum number of secrets in a file.
const MAXIMUM_SECRETS: usize = 8;
/// Maximum number of attempts to write the record while other servers write it.
const MAX_TURNS: usize = 16;
/// Files in the data directory of a server without a secret.
const FILES: [&str; 7] = [
    "ca.key",
    "ca.crt",
    "service-account.key",
    "front-proxy-ca.key",
    "front-proxy-ca.crt",
    "admin.crt",
    "admin.key",
];

/// Secrets for the keys of a cluster: the first one encrypts, all of them decrypt.
#[derive(Clone)]
pub struct ClusterSecret(Vec<[u8; SECRET_BYTES]>);

impl std::fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ClusterSecret").field(&self.0.len()).finish()
    }
}

/// Defect in a file of secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterSecretError {
    /// The file has no secret.
    #[error(
        "it contains no secret: expected a line with 32 random bytes in base64 (head -c 32 /dev/urandom | base64)"
    )]
    Absent,
    /// This line, counted from 1, does not hold a secret.
    #[error("line {0} is not 32 bytes in base64 (head -c 32 /dev/urandom | base64)")]
    Line(usize),
    /// The file has too many secrets.
    #[error("it contains more than {MAXIMUM_SECRETS} secrets")]
    TooMany,
}

impl FromStr for ClusterSecret {
    type Err = ClusterSecretError;

    /// Reads one secret per line, in base64; empty lines and lines that begin with `#` are ignored.
    fn from_str(text: &str) -> Result<Self, ClusterSecretError> {
        let mut secrets = Vec::new();
        for (number, line) in text.lines().map(str::trim).enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let bytes = STANDARD.decode(line).ok().and_then(|bytes| bytes.try_into().ok());
            secrets.push(bytes.ok_or(ClusterSecretError::Line(number + 1))?);
        }
        match secrets.len() {
            0 => Err(ClusterSecretError::Absent),
            1..=MAXIMUM_SECRETS => Ok(Self(secrets)),
            _ => Err(ClusterSecretError::TooMany),
        }
    }
}

impl ClusterSecret {
    /// Encrypts the files into a record.
    fn seal(&self, files: &Files) -> Result<Bytes, PkiError> {
        let failed = || problem("they cannot be encrypted");
        let secret = self.0.first().ok_or_else(failed)?;
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(|_| failed())?;
        let mut sealed = serde_json::to_vec(files).map_err(|_| failed())?;
        let key = sealing_key(secret).ok_or_else(failed)?;
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(FORMAT), &mut sealed)
            .map_err(|_| failed())?;
        Ok([FORMAT, &nonce, &sealed].concat().into())
    }

    /// Decrypts a record. Returns the files, and `true` if the first secret encrypted them.
    fn open(&self, record: &[u8]) -> Result<(Files, bool), PkiError> {
        let rest = record
            .strip_prefix(FORMAT)
            .ok_or_else(|| problem("their form is unknown: a newer kubegc may have written them"))?;
        let (nonce, sealed) =
            rest.split_first_chunk::<NONCE_LEN>().ok_or_else(|| problem("the record is cut off"))?;
        for (number, secret) in self.0.iter().enumerate() {
            let mut opened = sealed.to_vec();
            let key = sealing_key(secret).ok_or_else(|| problem("the secret cannot be used"))?;
            let nonce = Nonce::assume_unique_for_key(*nonce);
            if let Ok(plain) = key.open_in_place(nonce, Aad::from(FORMAT), &mut opened) {
                let files = serde_json::from_slice(plain).map_err(|error| problem(&error.to_string()))?;
                return Ok((files, number == 0));
            }
        }
        Err(problem("they are encrypted with another secret than those in --cluster-key-file"))
    }
}

fn sealing_key(secret: &[u8]) -> Option<LessSafeKey> {
    UnboundKey::new(&CHACHA20_POLY1305, secret).ok().map(LessSafeKey::new)
}

fn problem(detail: &str) -> PkiError {
    PkiError::ClusterKeys(detail.to_owned())
}

fn unread(error: &StorageError) -> PkiError {
    problem(&error.to_string())
}

/// Loads the keys of the cluster from its store. The first server creates them from the keys in `folder`, if there are any, so that
/// the tokens and kubeconfigs of a formerly single server stay valid. Blocks on the store.
pub(crate) fn load_or_make(
    registry: &Registry,
    secret: &ClusterSecret,
    folder: Option<&Path>,
    hosts: &[String],
    now: jiff::Timestamp,
) -> Result<(Pki, FrontProxy), PkiError> {
    for _ in 0..MAX_TURNS {
        let record = registry.server_record(RECORD).map_err(|error| unread(&error))?;
        let (files, is_sealed, revision) = match &record {
            Some(record) => {
                let (files, is_sealed) = secret.open(&record.value)?;
                (files, is_sealed, record.revision)
            }
            None => (files_of(folder)?, false, Revision(0)),
        };
        let shared = SharedFiles::new(files);
        let keep = Keep::Shared(&shared);
        let pki = Pki::load_or_make(&keep, hosts, now)?;
        let front_proxy = FrontProxy::load_or_make(&keep, now)?;
        if is_sealed && !shared.is_changed() {
            return Ok((pki, front_proxy));
        }
        let sealed = secret.seal(&shared.files())?;
        let written = registry.write_server_record(RECORD, Some(sealed), revision);
        if written.map_err(|error| unread(&error))?.is_some() {
            return Ok((pki, front_proxy));
        }
        // Another server was faster; the cluster uses its keys.
    }
    Err(problem("other servers keep writing them"))
}

/// Fails if the servers on this store share their keys: a server with its own keys would form another cluster.
pub(crate) fn refuse_without_secret(registry: &Registry) -> Result<(), PkiError> {
    match registry.server_record(RECORD).map_err(|error| unread(&error))? {
        None => Ok(()),
        Some(_) => Err(problem(
            "the servers on this store share their keys: start this one with --cluster-key-file, too",
        )),
    }
}

fn files_of(folder: Option<&Path>) -> Result<Files, PkiError> {
    let Some(folder) = folder else { return Ok(Files::new()) };
    let keep = Keep::Folder(folder);
    let mut files = Files::new();
    for name in FILES {
        if let Some(text) = keep.read(name)? {
            files.insert(name.to_owned(), text);
        }
    }
    Ok(files)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use std::sync::Arc;

    use gc_registry::storage::{RangeOptions, Storage};
    use gc_store::MemoryStorage;

    use super::*;

    fn secret(bytes: &[u8]) -> ClusterSecret {
        let lines: Vec<String> = bytes.iter().map(|byte| STANDARD.encode([*byte; SECRET_BYTES])).collect();
        lines.join("\n").parse().unwrap()
    }

    fn registry(store: &Arc<MemoryStorage>) -> Registry {
        let store = Arc::clone(store) as Arc<dyn Storage>;
        Registry::open(store, gc_registry::Config::default()).unwrap()
    }

    fn now() -> jiff::Timestamp {
        "2026-02-28T10:00:00Z".parse().unwrap()
    }

    /// Returns the parts of the keys that clients can see.
    fn shown((pki, proxy): &(Pki, FrontProxy)) -> [String; 4] {
        [&pki.ca_pem, &pki.admin_certificate_pem, &pki.admin_key_pem, &proxy.ca_pem].map(Clone::clone)
    }

    #[test]
    fn servers_on_one_store_have_the_same_keys() {
        let store = Arc::new(MemoryStorage::default());
        let load = |secret: &ClusterSecret| {
            load_or_make(&registry(&store), secret, None, &[], now()).map(|keys| shown(&keys))
        };
        let first = load(&secret(&[1])).unwrap();
        assert_eq!(load(&secret(&[1])).unwrap(), first);
        let error = load(&secret(&[2])).unwrap_err().to_string();
        assert!(error.contains("another secret"), "{error}");
        let refused = refuse_without_secret(&registry(&store)).unwrap_err().to_string();
        assert!(refused.contains("--cluster-key-file"), "{refused}");
        // A secret is rotated without an outage: first it decrypts, then it encrypts, then it is the only one.
        assert_eq!(load(&secret(&[1, 2])).unwrap(), first);
        assert_eq!(load(&secret(&[2, 1])).unwrap(), first);
        assert_eq!(load(&secret(&[2])).unwrap(), first);
        assert!(load(&secret(&[1])).is_err(), "encrypted with the new secret");
    }

    #[test]
    fn nothing_of_a_key_is_readable_in_the_store() {
        let store = Arc::new(MemoryStorage::default());
        let keys = load_or_make(&registry(&store), &secret(&[1]), None, &[], now()).unwrap();
        let record = registry(&store).server_record(RECORD).unwrap().unwrap().value;
        let is_within = |text: &str| record.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(!is_within("PRIVATE KEY") && !is_within(keys.0.admin_key_pem.lines().nth(1).unwrap()));
        let backup = registry(&store).stored(&RangeOptions { limit: 1, ..RangeOptions::default() }).unwrap();
        assert!(backup.items.is_empty() && !backup.more, "no record is part of a backup: {backup:?}");
        // A changed or truncated record is refused.
        for at in [0, FORMAT.len(), FORMAT.len() + NONCE_LEN, record.len() - 1] {
            let mut changed = record.to_vec();
            changed[at] ^= 1;
            assert!(secret(&[1]).open(&changed).is_err(), "byte {at}");
            assert!(secret(&[1]).open(&record[..at]).is_err(), "the first {at} bytes");
        }
    }

    /// Three servers start at once on an empty store.
    #[test]
    fn the_keys_of_the_fastest_count() {
        let store = Arc::new(MemoryStorage::default());
        let all: Vec<[String; 4]> = std::thread::scope(|scope| {
            let start = || {
                scope.spawn(|| {
                    shown(&load_or_make(&registry(&store), &secret(&[1]), None, &[], now()).unwrap())
                })
            };
            let started: Vec<_> = (0..3).map(|_| start()).collect();
            started.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(all.iter().all(|one| *one == all[0]));
    }

    #[test]
    fn the_keys_of_a_server_that_was_alone_become_the_clusters() {
        let folder = tempfile::tempdir().unwrap();
        let alone = Pki::load_or_make(&Keep::Folder(folder.path()), &[], now()).unwrap();
        let store = Arc::new(MemoryStorage::default());
        let first = load_or_make(&registry(&store), &secret(&[1]), Some(folder.path()), &[], now()).unwrap();
        assert_eq!((&first.0.ca_pem, &first.0.admin_key_pem), (&alone.ca_pem, &alone.admin_key_pem));
        // The keys of another formerly single server are ignored.
        let other = tempfile::tempdir().unwrap();
        Pki::load_or_make(&Keep::Folder(other.path()), &[], now()).unwrap();
        let second = load_or_make(&registry(&store), &secret(&[1]), Some(other.path()), &[], now()).unwrap();
        assert_eq!(shown(&second), shown(&first));
    }

    #[test]
    fn a_file_of_secrets_has_lines_of_32_bytes() {
        let good = STANDARD.encode([7; SECRET_BYTES]);
        assert_eq!(format!("# new\n{good}\n\n {good} \n").parse::<ClusterSecret>().unwrap().0.len(), 2);
        for (text, error) in [
            (String::new(), ClusterSecretError::Absent),
            ("# only this\n".to_owned(), ClusterSecretError::Absent),
            (format!("{good}\nhunter2"), ClusterSecretError::Line(2)),
            (STANDARD.encode([7; 31]), ClusterSecretError::Line(1)),
            (format!("{good}\n").repeat(9), ClusterSecretError::TooMany),
        ] {
            assert_eq!(text.parse::<ClusterSecret>().unwrap_err(), error, "{text}");
        }
        assert!(!format!("{:?}", secret(&[7])).contains("BwcH"), "secrets are not logged");
    }
}
