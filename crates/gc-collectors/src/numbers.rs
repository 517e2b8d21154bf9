//! Numbers in place of values that a plan compares repeatedly.

use std::hash::Hash;

use hashbrown::HashMap;

use crate::FixedState;

/// Values, numbered from 0 in the order in which they were first seen.
#[derive(Debug)]
pub(crate) struct Numbers<'a, T: ?Sized> {
    /// Never iterated.
    numbers: HashMap<&'a T, usize, FixedState>,
    things: Vec<&'a T>,
}

impl<'a, T: Hash + Ord + ?Sized> Numbers<'a, T> {
    pub(crate) fn new() -> Self {
        Self { numbers: HashMap::default(), things: Vec::new() }
    }

    /// Returns the number of a value.
    pub(crate) fn of(&mut self, thing: &'a T) -> usize {
        *self.numbers.entry(thing).or_insert_with(|| {
            self.things.push(thing);
            self.things.len() - 1
        })
    }

    /// Returns the rank of each value among all, by its number.
    pub(crate) fn ranks(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.things.len()).collect();
        order.sort_unstable_by_key(|number| self.things[*number]);
        let mut ranks = vec![0; order.len()];
        for (rank, number) in order.into_iter().enumerate() {
            ranks[number] = rank;
        }
        ranks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_are_numbered_as_they_come_and_ranked_as_they_are() {
        let mut numbers = Numbers::new();
        assert_eq!(["c", "a", "c", "b", "a"].map(|name| numbers.of(name)), [0, 1, 0, 2, 1]);
        assert_eq!(numbers.ranks(), [2, 0, 1]);
    }
}
