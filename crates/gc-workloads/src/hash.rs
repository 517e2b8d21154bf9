//! Hashes with which upstream names ReplicaSets and revisions.

mod dump;

use serde_json::Value;

pub(crate) use dump::dump_pod_template;

/// Letters and digits without vowels and look-alikes, so that an encoded number contains no words.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// FNV-1a with 32 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fnv32a(u32);

impl Default for Fnv32a {
    fn default() -> Self {
        Self(0x811c_9dc5)
    }
}

impl Fnv32a {
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    }

    pub(crate) fn finish(self) -> u32 {
        self.0
    }
}

/// Computes FNV-1 with 32 bits, which revisions of StatefulSets use.
#[must_use]
pub(crate) fn fnv32(bytes: &[&[u8]]) -> u32 {
    let all = bytes.iter().flat_map(|part| part.iter());
    all.fold(0x811c_9dc5, |hash: u32, byte| hash.wrapping_mul(0x0100_0193) ^ u32::from(*byte))
}

/// Encodes a number for labels and names.
#[must_use]
pub(crate) fn safe_encode(number: u32) -> String {
    let digits = number.to_string();
    digits.bytes().map(|digit| char::from(ALPHABET[usize::from(digit) % ALPHABET.len()])).collect()
}

/// Returns the `pod-template-hash` of a template: FNV-1a over Go's dump of it, and over the number of collisions so far.
#[must_use]
pub fn pod_template_hash(template: &Value, collisions: Option<i64>) -> String {
    let mut hash = Fnv32a::default();
    hash.write(dump_pod_template(template).as_bytes());
    if let Some(collisions) = collisions {
        // Upstream writes the four bytes of the number, and leaves four more at zero.
        let mut bytes = [0; 8];
        let collisions = u32::try_from(collisions).unwrap_or_default();
        bytes[..4].copy_from_slice(&collisions.to_le_bytes());
        hash.write(&bytes);
    }
    safe_encode(hash.finish())
}
