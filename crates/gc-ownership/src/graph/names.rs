//! Names in slots of a few sizes, so that freeing one never moves another.

use std::collections::BTreeMap;

/// Slot sizes in bytes; a name takes the smallest that is large enough.
const SIZES: [usize; 10] = [8, 16, 24, 32, 48, 64, 96, 128, 192, 255];
/// Class of names that are longer than any Kubernetes name may be (they occur in references only).
const LONG: u8 = 255;
const CHUNK_SLOTS: usize = 1024;

/// Location of a name. Packed, so that a node of the graph has room for a resource number of four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(2))]
pub(crate) struct NameAt {
    slot: u32,
    class: u8,
    length: u8,
}

#[derive(Clone, Debug, Default)]
struct SizeClass {
    chunks: Vec<Box<[u8]>>,
    free: Vec<u32>,
    used: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Names {
    classes: [SizeClass; SIZES.len()],
    long: BTreeMap<u32, Box<str>>,
    next_long: u32,
}

impl Names {
    pub(crate) fn new() -> Self {
        Self { classes: Default::default(), long: BTreeMap::new(), next_long: 0 }
    }

    pub(crate) fn insert(&mut self, name: &str) -> NameAt {
        let bytes = name.as_bytes();
        let fitting = SIZES.iter().position(|&size| bytes.len() <= size);
        let (Some(class), Ok(length)) = (fitting, u8::try_from(bytes.len())) else {
            let slot = self.next_long;
            self.next_long = self.next_long.wrapping_add(1);
            self.long.insert(slot, name.into());
            return NameAt { slot, class: LONG, length: 0 };
        };
        let size = SIZES[class];
        let pool = &mut self.classes[class];
        let slot = pool.free.pop().unwrap_or_else(|| {
            let slot = pool.used;
            if (slot as usize).is_multiple_of(CHUNK_SLOTS) {
                pool.chunks.push(vec![0; size * CHUNK_SLOTS].into_boxed_slice());
            }
            pool.used += 1;
            slot
        });
        let start = slot as usize % CHUNK_SLOTS * size;
        pool.chunks[slot as usize / CHUNK_SLOTS][start..start + bytes.len()].copy_from_slice(bytes);
        // There are fewer size classes than a byte can count.
        NameAt { slot, class: u8::try_from(class).unwrap_or(LONG), length }
    }

    pub(crate) fn get(&self, at: NameAt) -> &str {
        if at.class == LONG {
            return self.long.get(&{ at.slot }).map_or("", |name| name);
        }
        let size = SIZES[at.class as usize];
        let start = at.slot as usize % CHUNK_SLOTS * size;
        let chunk = &self.classes[at.class as usize].chunks[at.slot as usize / CHUNK_SLOTS];
        // The stored bytes came from a `str` and are cut at its ends.
        std::str::from_utf8(&chunk[start..start + at.length as usize]).unwrap_or("")
    }

    pub(crate) fn remove(&mut self, at: NameAt) {
        if at.class == LONG {
            self.long.remove(&{ at.slot });
        } else {
            self.classes[at.class as usize].free.push(at.slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_every_length_come_back_and_slots_are_reused() {
        let mut names = Names::new();
        let texts: Vec<String> =
            (0..400).map(|length| "ä".repeat(length / 2) + &"x".repeat(length % 2)).collect();
        let places: Vec<NameAt> = texts.iter().map(|text| names.insert(text)).collect();
        for (text, &place) in texts.iter().zip(&places) {
            assert_eq!(names.get(place), text);
        }
        names.remove(places[20]);
        assert_eq!(names.insert("abcdefghijklmnopqrst"), places[20]);
    }
}
