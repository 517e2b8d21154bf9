//! Properties of the contents of a disk, as bodies of fuzz targets (`fuzz/` at the root), which also run as tests.
#![allow(clippy::unwrap_used, reason = "a broken law should stop the run")]

use std::sync::Arc;

use bytes::Bytes;
use gc_store_api::{Change, Key, KeyValue, Revision};

use crate::record::OnDisk;
use crate::redb::index::{chunk, entries};
use crate::redb::records::{decode_history, decode_object, encode_history, encode_object, seal};

/// Checks a key on the first line with a record: records must be read as they were written, and a record with any changed byte must
/// be refused.
pub fn disk_record(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (key, rest) = (String::from_utf8_lossy(&data[..end]), data.get(end + 1..).unwrap_or_default());
    let key: Key = Arc::from(&*key);
    let _ = (decode_object(&key, rest), decode_history(rest));
    // Sealed with a valid checksum, so that the contents are parsed.
    if let Some(item) = decode_object(&key, &seal(&key, rest.to_vec())) {
        assert_eq!(decode_object(&key, &encode_object(&item)), Some(item.clone()));
        let change =
            Change { revision: Revision(9), key: Arc::clone(&key), value: None, previous: Some(item) };
        let record = encode_history(&change);
        assert_eq!(decode_history(&record), Some((key.clone(), change.previous)));
        damaged(&record, rest, |record| decode_history(record).is_none());
    }
    if let Some((key, previous)) = decode_history(&seal("", rest.to_vec())) {
        let change =
            Change { revision: Revision(9), key: Arc::clone(&key), value: None, previous: previous.clone() };
        assert_eq!(decode_history(&encode_history(&change)), Some((key, previous)));
    }
    if let Some(found) = entries(rest) {
        assert!(found.is_sorted_by(|(one, _), (next, _)| one < next), "the keys of an index are in order");
        assert_eq!(entries(&chunk(&found)), Some(found));
    }
    let of_two = |key: &str| {
        let (create_revision, mod_revision) =
            (Revision(rest.len() as u64), Revision(1000 + rest.len() as u64));
        (key.to_owned(), OnDisk { create_revision, mod_revision })
    };
    let two = vec![of_two(&key), of_two(&format!("{key}x"))];
    assert_eq!(entries(&chunk(&two)), Some(two));
    let item = KeyValue {
        key: Arc::clone(&key),
        value: Bytes::copy_from_slice(rest),
        create_revision: Revision(3),
        mod_revision: Revision(5),
    };
    let record = encode_object(&item);
    assert_eq!(decode_object(&key, &record), Some(item));
    damaged(&record, rest, |record| decode_object(&key, record).is_none());
    let other: Key = format!("{key}x").into();
    assert_eq!(decode_object(&other, &record), None);
}

/// Changes one byte, selected by the input.
fn damaged(record: &[u8], choice: &[u8], is_refused: impl Fn(&[u8]) -> bool) {
    let number =
        choice.iter().fold(7_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte)));
    let mut record = record.to_vec();
    let place = number % record.len();
    record[place] ^= 1 << (number % 8);
    assert!(is_refused(&record), "byte {place}");
}

#[cfg(test)]
gc_fuzz_replay::replay_tests!(disk_record);
