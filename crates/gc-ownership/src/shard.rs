//! Division of objects between engines that run at the same time.

/// Highest number of shards.
const MAXIMUM_SHARDS: u32 = 1_024;

/// Part of the objects that an engine acts on. Every engine observes all objects, whatever its shard.
///
/// A namespaced object belongs to the shard that [`Shard::of_namespace`] names, so an owner and its dependents in one namespace share
/// an engine. Cluster-scoped objects belong to shard 0: only they can form cycles beyond a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    index: u32,
    count: u32,
}

/// Text that names no shard.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShardError {
    /// The text is not two numbers.
    #[error("expected INDEX/COUNT, such as 0/4")]
    Format,
    /// The count is 0 or too high.
    #[error("COUNT must be 1 to {MAXIMUM_SHARDS}")]
    Count,
    /// The index is not below the count.
    #[error("INDEX must be below COUNT, which is {0}: shards are numbered from 0")]
    Index(u32),
}

impl Shard {
    /// The only shard of one.
    pub const WHOLE: Self = Self { index: 0, count: 1 };

    /// Returns shard `index` of `count`.
    pub fn new(index: u32, count: u32) -> Result<Self, ShardError> {
        if count == 0 || count > MAXIMUM_SHARDS {
            return Err(ShardError::Count);
        }
        if index >= count {
            return Err(ShardError::Index(count));
        }
        Ok(Self { index, count })
    }

    /// Returns its number, from 0.
    #[must_use]
    pub fn index(self) -> u32 {
        self.index
    }

    /// Returns the number of shards.
    #[must_use]
    pub fn count(self) -> u32 {
        self.count
    }

    /// Reports whether there is only one shard, which acts on everything.
    #[must_use]
    pub fn is_whole(self) -> bool {
        self.count == 1
    }

    /// Reports whether it acts on objects in a namespace, or on cluster-scoped objects if that is empty.
    #[must_use]
    pub fn holds(self, namespace: &str) -> bool {
        let owner = if namespace.is_empty() { 0 } else { Self::of_namespace(namespace, self.count) };
        owner == self.index
    }

    /// Returns which of `count` shards acts on the objects in a namespace: the jump consistent hash (Lamping and Veach, 2014) of the
    /// 64-bit FNV-1a hash of its name. With one more shard, a namespace keeps its shard or moves to the new one.
    #[must_use]
    pub fn of_namespace(namespace: &str, count: u32) -> u32 {
        jump(fnv(namespace.as_bytes()), count)
    }
}

impl Default for Shard {
    fn default() -> Self {
        Self::WHOLE
    }
}

impl std::str::FromStr for Shard {
    type Err = ShardError;

    fn from_str(text: &str) -> Result<Self, ShardError> {
        let (index, count) = text.split_once('/').ok_or(ShardError::Format)?;
        let number = |text: &str| {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u32>().ok().filter(|_| is_plain).ok_or(ShardError::Format)
        };
        Self::new(number(index)?, number(count)?)
    }
}

impl std::fmt::Display for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

/// Returns the 64-bit FNV-1a hash.
fn fnv(bytes: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    bytes.iter().fold(OFFSET, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

/// Returns the bucket of a key. Each turn moves on to a higher bucket, so there are at most `count` turns (on average, their
/// logarithm). Integers replace the published algorithm's floating point.
fn jump(mut key: u64, count: u32) -> u32 {
    const MULTIPLIER: u64 = 2_862_933_555_777_941_757;
    let (mut bucket, mut next) = (0_u32, 0_u64);
    while let Some(candidate) = u32::try_from(next).ok().filter(|candidate| *candidate < count) {
        bucket = candidate;
        key = key.wrapping_mul(MULTIPLIER).wrapping_add(1);
        next = ((u64::from(bucket) + 1) << 31) / ((key >> 33) + 1);
    }
    bucket
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published test vectors of the hash functions.
    #[test]
    fn the_hashes_are_those_that_are_published() {
        for (text, expected) in
            [("", 0xcbf2_9ce4_8422_2325), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)]
        {
            assert_eq!(fnv(text.as_bytes()), expected, "{text}");
        }
        for (key, count, expected) in [
            (0, 1, 0),
            (0, 60, 0),
            (1, 1, 0),
            (1, 60, 55),
            (42, 57, 43),
            (256, 1_024, 520),
            (0xdead_10cc, 1, 0),
            (0xdead_10cc, 666, 361),
        ] {
            assert_eq!(jump(key, count), expected, "{key} {count}");
        }
    }

    /// The shards of namespaces must never change: shards of two versions may run at the same time. Another implementation of the two
    /// functions has computed this table.
    #[test]
    fn each_namespace_keeps_its_shard() {
        let counts = [1, 2, 3, 4, 8, 16, 1_024];
        for (namespace, expected) in [
            ("default", [0, 0, 2, 3, 4, 4, 461]),
            ("kube-system", [0, 1, 1, 1, 1, 15, 179]),
            ("kube-public", [0, 1, 1, 3, 4, 4, 505]),
            ("shop", [0, 0, 0, 0, 7, 11, 855]),
            ("monitoring", [0, 1, 1, 1, 1, 9, 285]),
            ("team-7", [0, 1, 2, 3, 4, 11, 645]),
        ] {
            assert_eq!(counts.map(|count| Shard::of_namespace(namespace, count)), expected, "{namespace}");
        }
    }

    #[test]
    fn one_more_shard_takes_its_part_and_moves_nothing_else() {
        let names: Vec<String> = (0..2_000).map(|number| format!("team-{number}")).collect();
        for count in 1..=16 {
            let moved = names
                .iter()
                .filter(|name| {
                    let (before, after) =
                        (Shard::of_namespace(name, count), Shard::of_namespace(name, count + 1));
                    assert!(after == before || after == count, "{name} moves from {before} to {after}");
                    after != before
                })
                .count();
            let fair = names.len() / (count as usize + 1);
            assert!((fair * 7 / 10..=fair * 13 / 10).contains(&moved), "{moved} of {fair} to shard {count}");
        }
    }

    #[test]
    fn every_object_belongs_to_exactly_one_shard() {
        for count in [1, 2, 3, 7, MAXIMUM_SHARDS] {
            for namespace in ["", "default", "shop", "ä"] {
                let shards = (0..count).filter_map(|index| Shard::new(index, count).ok());
                assert_eq!(shards.filter(|shard| shard.holds(namespace)).count(), 1, "{namespace} {count}");
            }
            assert!(Shard::new(0, count).is_ok_and(|shard| shard.holds("")), "{count}");
        }
    }

    #[test]
    fn a_shard_is_written_as_index_and_count() {
        for (text, expected) in [
            ("0/1", Ok(Shard::WHOLE)),
            ("3/4", Ok(Shard { index: 3, count: 4 })),
            ("1023/1024", Ok(Shard { index: 1_023, count: 1_024 })),
            ("", Err(ShardError::Format)),
            ("1", Err(ShardError::Format)),
            ("/", Err(ShardError::Format)),
            ("1/", Err(ShardError::Format)),
            ("+1/2", Err(ShardError::Format)),
            ("-1/2", Err(ShardError::Format)),
            ("1/2/3", Err(ShardError::Format)),
            (" 1/2", Err(ShardError::Format)),
            ("1/99999999999", Err(ShardError::Format)),
            ("0/0", Err(ShardError::Count)),
            ("0/1025", Err(ShardError::Count)),
            ("2/2", Err(ShardError::Index(2))),
        ] {
            assert_eq!(text.parse::<Shard>(), expected, "{text}");
            if let Ok(shard) = expected {
                assert_eq!(
                    (shard.to_string().as_str(), shard.index(), shard.count()),
                    (text, shard.index, shard.count)
                );
            }
        }
    }
}
