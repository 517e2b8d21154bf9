//! Chunked storage: grows without copying, returns small integers, reuses freed slots.

/// Elements per chunk: a chunk is the unit of growth, so at most one chunk per slab is unused.
const CHUNK: usize = 1 << CHUNK_BITS;
const CHUNK_BITS: u32 = 12;

/// Stands for no element.
pub(crate) const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
pub(crate) struct Slab<T> {
    chunks: Vec<Vec<T>>,
    free: Vec<u32>,
    /// Number of slots allocated so far.
    used: u32,
}

impl<T: Copy> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { chunks: Vec::new(), free: Vec::new(), used: 0 }
    }

    /// Stores a value. There are fewer than `NONE` elements: more than four billion objects do not fit into any machine, and the
    /// assertion prevents a wrapped index from ever naming another object.
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(slot) = self.free.pop() {
            *self.get_mut(slot) = value;
            return slot;
        }
        let slot = self.used;
        assert!(slot < NONE, "the graph is full");
        if (slot as usize).is_multiple_of(CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.push(value);
        }
        self.used += 1;
        slot
    }

    /// Frees a slot. The caller must hold no other reference to it.
    pub(crate) fn remove(&mut self, slot: u32) {
        self.free.push(slot);
    }

    pub(crate) fn get(&self, slot: u32) -> &T {
        &self.chunks[(slot >> CHUNK_BITS) as usize][slot as usize % CHUNK]
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut T {
        &mut self.chunks[(slot >> CHUNK_BITS) as usize][slot as usize % CHUNK]
    }

    /// Returns the number of slots allocated so far; some of them may be free again.
    pub(crate) fn slots(&self) -> u32 {
        self.used
    }

    pub(crate) fn len(&self) -> usize {
        self.used as usize - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_across_chunks_and_freed_slots_are_reused() {
        let mut slab = Slab::new();
        for value in 0..10_000_u32 {
            assert_eq!(slab.insert(value * 3), value);
        }
        assert!((0..10_000).all(|slot| *slab.get(slot) == slot * 3));
        assert_eq!((slab.slots(), slab.len()), (10_000, 10_000));
        for slot in [5_000, 3] {
            slab.remove(slot);
        }
        assert_eq!((slab.slots(), slab.len()), (10_000, 9_998));
        assert_eq!([1, 2, 3].map(|value| slab.insert(value)), [3, 5_000, 10_000]);
        *slab.get_mut(4_096) = 7;
        assert_eq!([3, 5_000, 10_000, 4_096, 4_095].map(|slot| *slab.get(slot)), [1, 2, 3, 7, 12_285]);
        assert_eq!((slab.slots(), slab.len()), (10_001, 10_001));
    }
}
