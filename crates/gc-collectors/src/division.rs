//! Divides ordered items into the newest ones, which are kept, and the surplus; each change moves only a few.

use std::collections::BTreeSet;

/// Ordered items in two parts. The surplus consists of the first ones, as many as exceed the number to keep.
#[derive(Debug)]
pub(crate) struct Division<T> {
    kept: usize,
    going: BTreeSet<T>,
    staying: BTreeSet<T>,
}

/// Items that a change has moved.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MovedItems<T> {
    /// Newly surplus.
    pub(crate) going: Vec<T>,
    /// No longer surplus.
    pub(crate) staying: Vec<T>,
}

impl<T: Ord + Clone> Division<T> {
    /// Creates an empty division that keeps this number.
    pub(crate) fn new(kept: usize) -> Self {
        Self { kept, going: BTreeSet::new(), staying: BTreeSet::new() }
    }

    /// Reports whether an item is surplus.
    pub(crate) fn is_surplus(&self, thing: &T) -> bool {
        self.going.contains(thing)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.going.is_empty() && self.staying.is_empty()
    }

    /// Adds an item. If it is surplus itself, it is among the moved ones.
    pub(crate) fn insert(&mut self, thing: T) -> MovedItems<T> {
        self.staying.insert(thing);
        self.balance()
    }

    /// Replaces an equal item, and returns whether there was one.
    pub(crate) fn replace(&mut self, thing: &T) -> bool {
        let sides = [&mut self.going, &mut self.staying];
        let Some(side) = sides.into_iter().find(|side| side.contains(thing)) else { return false };
        side.replace(thing.clone());
        true
    }

    /// Removes an item.
    pub(crate) fn remove(&mut self, thing: &T) -> MovedItems<T> {
        if !self.going.remove(thing) {
            self.staying.remove(thing);
        }
        self.balance()
    }

    fn balance(&mut self) -> MovedItems<T> {
        let target = (self.going.len() + self.staying.len()).saturating_sub(self.kept);
        let mut moved = MovedItems { going: Vec::new(), staying: Vec::new() };
        while self.going.len() > target
            && let Some(thing) = self.going.pop_last()
        {
            self.staying.insert(thing.clone());
            moved.staying.push(thing);
        }
        while self.going.len() < target
            && let Some(thing) = self.staying.pop_first()
        {
            self.going.insert(thing.clone());
            moved.going.push(thing);
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// However items are added and removed, the surplus consists of the first ones beyond the number to keep, and every move is
        /// reported.
        #[test]
        fn the_division_is_that_of_a_sorted_list(
            kept in 0_usize..6,
            steps in proptest::collection::vec((any::<bool>(), 0_u8..12), 0..60),
        ) {
            let mut division = Division::new(kept);
            let mut model: BTreeSet<u8> = BTreeSet::new();
            let mut surplus: BTreeSet<u8> = BTreeSet::new();
            for (add, thing) in steps {
                let moved = if add && model.insert(thing) {
                    division.insert(thing)
                } else if !add && model.remove(&thing) {
                    surplus.remove(&thing);
                    division.remove(&thing)
                } else {
                    continue;
                };
                surplus.extend(moved.going);
                for thing in moved.staying {
                    prop_assert!(surplus.remove(&thing));
                }
                let excess = model.len().saturating_sub(kept);
                let expected: BTreeSet<u8> = model.iter().take(excess).copied().collect();
                prop_assert_eq!(&surplus, &expected);
                prop_assert!((0..12).all(|thing| division.replace(&thing) == model.contains(&thing)));
                prop_assert!(model.iter().all(|thing| division.is_surplus(thing) == expected.contains(thing)));
                prop_assert_eq!(division.is_empty(), model.is_empty());
            }
        }
    }
}
