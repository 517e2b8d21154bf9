//! Indexes of an indexed Job, as its status lists them: `0-3,5`.

use std::collections::BTreeSet;

/// A set of completion indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Indexes(BTreeSet<i64>);

impl Indexes {
    /// Parses a list of indexes and ranges below `completions`, skipping invalid parts.
    pub(super) fn parse(text: &str, completions: i64) -> Self {
        let mut indexes = BTreeSet::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            if let (Ok(first), Ok(last)) = (first.parse::<i64>(), last.parse::<i64>()) {
                indexes.extend(first.max(0)..=last.min(completions - 1));
            }
        }
        Self(indexes)
    }

    pub(super) fn insert(&mut self, index: i64) -> bool {
        self.0.insert(index)
    }

    pub(super) fn contains(&self, index: i64) -> bool {
        self.0.contains(&index)
    }

    pub(super) fn len(&self) -> i64 {
        i64::try_from(self.0.len()).unwrap_or(i64::MAX)
    }

    /// Returns the number of `others` in this set.
    pub(super) fn shared_with(&self, others: &Self) -> i64 {
        i64::try_from(self.0.intersection(&others.0).count()).unwrap_or(i64::MAX)
    }
}

impl std::fmt::Display for Indexes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut rest = self.0.iter().copied().peekable();
        let mut separator = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            while let Some(next) = rest.next_if(|next| *next == last + 1) {
                last = next;
            }
            write!(f, "{separator}{first}")?;
            match last - first {
                0 => {}
                // Two neighbours are written as a list, three as a range.
                1 => write!(f, ",{last}")?,
                _ => write!(f, "-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_listed_as_ranges() {
        for (text, expected) in
            [("", ""), ("0-3,5", "0-3,5"), ("1,2,3", "1-3"), ("4,5", "4,5"), ("7-99", "7-9"), ("x,2", "2")]
        {
            assert_eq!(Indexes::parse(text, 10).to_string(), expected, "{text}");
        }
    }
}
