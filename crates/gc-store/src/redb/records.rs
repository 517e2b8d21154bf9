//! Encoding of the records of the file. Each ends in a checksum.

use bytes::Bytes;
use gc_store_api::{Change, Key, KeyValue, Revision};

use crate::record::OnDisk;

/// Size of an object's record beside its value, in bytes.
pub(super) const RECORD_BYTES: u64 = 20;

/// Encodes create revision, mod revision, value and checksum.
pub(crate) fn encode_object(item: &KeyValue) -> Vec<u8> {
    let mut out = Vec::with_capacity(20 + item.value.len());
    put_version(&mut out, item);
    seal(&item.key, out)
}

pub(crate) fn decode_object(key: &Key, record: &[u8]) -> Option<KeyValue> {
    decode_version(key, record).map(|found| found.to_key_value(key))
}

/// Decodes the record of an object without copying its value.
pub(super) fn decode_version<'r>(key: &str, record: &'r [u8]) -> Option<StoredVersion<'r>> {
    take_version(unseal(key, record)?)
}

/// A version in the file.
pub(super) struct StoredVersion<'r> {
    pub(super) value: &'r [u8],
    pub(super) revisions: OnDisk,
}

impl StoredVersion<'_> {
    pub(super) fn to_key_value(&self, key: &Key) -> KeyValue {
        KeyValue { value: Bytes::copy_from_slice(self.value), ..self.revisions.to_unread(key) }
    }
}

/// Encodes the length of the key, the key, the previous version if there was one, and a checksum.
pub(crate) fn encode_history(change: &Change) -> Vec<u8> {
    let size = change.previous.as_ref().map_or(0, |previous| 16 + previous.value.len());
    let mut out = Vec::with_capacity(8 + change.key.len() + size);
    let length = u32::try_from(change.key.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(change.key.as_bytes());
    if let Some(previous) = &change.previous {
        put_version(&mut out, previous);
    }
    seal("", out)
}

pub(crate) fn decode_history(record: &[u8]) -> Option<(Key, Option<KeyValue>)> {
    let (length, rest) = unseal("", record)?.split_first_chunk::<4>()?;
    let (key, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let key: Key = std::str::from_utf8(key).ok()?.into();
    if rest.is_empty() {
        return Some((key, None));
    }
    let previous = take_version(rest)?.to_key_value(&key);
    Some((key, Some(previous)))
}

fn put_version(out: &mut Vec<u8>, item: &KeyValue) {
    out.extend_from_slice(&item.create_revision.0.to_le_bytes());
    out.extend_from_slice(&item.mod_revision.0.to_le_bytes());
    out.extend_from_slice(&item.value);
}

fn take_version(record: &[u8]) -> Option<StoredVersion<'_>> {
    let (create, rest) = record.split_first_chunk::<8>()?;
    let (modified, value) = rest.split_first_chunk::<8>()?;
    let (create, modified) = (u64::from_le_bytes(*create), u64::from_le_bytes(*modified));
    let revisions = OnDisk { create_revision: Revision(create), mod_revision: Revision(modified) };
    (create <= modified).then_some(StoredVersion { value, revisions })
}

pub(crate) fn seal(context: &str, mut record: Vec<u8>) -> Vec<u8> {
    let sum = checksum(context.as_bytes(), &record);
    record.extend_from_slice(&sum.to_le_bytes());
    record
}

pub(super) fn unseal<'a>(context: &str, record: &'a [u8]) -> Option<&'a [u8]> {
    let (body, sum) = record.split_last_chunk::<4>()?;
    (checksum(context.as_bytes(), body) == u32::from_le_bytes(*sum)).then_some(body)
}

/// Returns the checksum of the on-disk format. It detects damage, not malice, and costs a fraction of reading. It mixes words of
/// eight bytes with the constants of FNV-1a but is a different hash, so no existing crate implements it.
fn checksum(context: &[u8], body: &[u8]) -> u32 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut mix = |word: u64| {
        hash = (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        hash ^= hash >> 29;
    };
    for part in [context, body] {
        mix(part.len() as u64);
        for chunk in part.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            mix(u64::from_le_bytes(word));
        }
    }
    let [low @ .., _, _, _, _] = (hash ^ (hash >> 32)).to_le_bytes();
    u32::from_le_bytes(low)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    /// A server must read what earlier ones have written.
    #[test]
    fn records_are_written_as_they_always_were() {
        let key: Key = "/pods/a".into();
        let (create_revision, mod_revision) = (Revision(2), Revision(5));
        let item =
            KeyValue { key: key.clone(), value: "longer than a word".into(), create_revision, mod_revision };
        let bytes = |hex: &str| -> Vec<u8> {
            let pairs = (0..hex.len()).step_by(2).map(|at| &hex[at..at + 2]);
            pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
        };
        let object = "020000000000000005000000000000006c6f6e676572207468616e206120776f72640983ce34";
        assert_eq!(encode_object(&item), bytes(object));
        let change = Change { revision: Revision(6), key, value: None, previous: Some(item) };
        let history = "070000002f706f64732f61020000000000000005000000000000006c6f6e676572207468616e206120776f72643d4b592e";
        assert_eq!(encode_history(&change), bytes(history));
    }
}
