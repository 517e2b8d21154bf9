//! Compiled patterns of schemas, which the whole process shares.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock};

use regex::Regex;

use crate::pattern::{MAX_COMPILED_BYTES, ParsedPattern, PatternError, SizeLimit};

/// Maximum estimated size of all compiled patterns that the process remembers, in bytes: those of two large definitions.
const MAX_REMEMBERED_BYTES: u64 = 2 * MAX_COMPILED_BYTES as u64;
/// Maximum number of them, because searches need memory of their own.
const MAX_REMEMBERED: usize = 2_048;
/// Estimated size from which patterns are compiled one at a time, so that several cannot take the memory together.
const LARGE_BYTES: u64 = 1 << 20;

static SHARED: LazyLock<PatternCache> = LazyLock::new(PatternCache::default);

/// Returns a compiled pattern of a schema, which is compiled if it is not remembered. A pattern that is too large is refused before
/// any time is spent on it.
///
/// # Errors
/// Fails if the text is not a pattern, or the pattern is too large.
pub fn compile_pattern(pattern: &str) -> Result<Arc<Regex>, PatternError> {
    SHARED.pattern(pattern)
}

/// The patterns that were used last, within limits.
#[derive(Debug, Default)]
struct PatternCache {
    patterns: RwLock<Remembered>,
    /// Counts uses.
    clock: AtomicU64,
    large: Mutex<()>,
}

#[derive(Debug, Default)]
struct Remembered {
    by_text: BTreeMap<Box<str>, Entry>,
    bytes: u64,
}

#[derive(Debug)]
struct Entry {
    compiled: Arc<Regex>,
    bytes: u64,
    /// Time of the last use.
    used: AtomicU64,
}

impl PatternCache {
    fn pattern(&self, pattern: &str) -> Result<Arc<Regex>, PatternError> {
        if let Some(compiled) = self.remembered(pattern) {
            return Ok(compiled);
        }
        let parsed = ParsedPattern::new(pattern)?;
        if parsed.bytes < LARGE_BYTES {
            return self.compiled(pattern, &parsed);
        }
        let _one = self.large.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have compiled it meanwhile.
        self.remembered(pattern).map_or_else(|| self.compiled(pattern, &parsed), Ok)
    }

    fn remembered(&self, pattern: &str) -> Option<Arc<Regex>> {
        let patterns = self.patterns.read().unwrap_or_else(PoisonError::into_inner);
        let entry = patterns.by_text.get(pattern)?;
        entry.used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Some(Arc::clone(&entry.compiled))
    }

    fn compiled(&self, pattern: &str, parsed: &ParsedPattern) -> Result<Arc<Regex>, PatternError> {
        let compiled = Arc::new(parsed.compile(SizeLimit::SCHEMA)?);
        let used = self.clock.fetch_add(1, Ordering::Relaxed).into();
        let entry = Entry { compiled: Arc::clone(&compiled), bytes: parsed.bytes, used };
        self.patterns.write().unwrap_or_else(PoisonError::into_inner).insert(pattern, entry);
        Ok(compiled)
    }
}

impl Remembered {
    /// Adds a pattern, and forgets those that have not been used for longest until all are within the limits.
    fn insert(&mut self, pattern: &str, entry: Entry) {
        self.bytes = self.bytes.saturating_add(entry.bytes);
        if let Some(former) = self.by_text.insert(pattern.into(), entry) {
            self.bytes = self.bytes.saturating_sub(former.bytes);
        }
        while self.bytes > MAX_REMEMBERED_BYTES || self.by_text.len() > MAX_REMEMBERED {
            let used = |entry: &Entry| entry.used.load(Ordering::Relaxed);
            let oldest = self.by_text.iter().min_by_key(|(_, entry)| used(entry));
            let Some(oldest) = oldest.map(|(text, _)| text.clone()) else { return };
            if let Some(entry) = self.by_text.remove(&oldest) {
                self.bytes = self.bytes.saturating_sub(entry.bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    impl PatternCache {
        fn size(&self) -> (u64, usize) {
            let patterns = self.patterns.read().unwrap();
            assert_eq!(patterns.bytes, patterns.by_text.values().map(|entry| entry.bytes).sum::<u64>());
            (patterns.bytes, patterns.by_text.len())
        }
    }

    #[test]
    fn a_pattern_is_compiled_once() {
        let cache = PatternCache::default();
        let first = cache.pattern("^[a-z]+$").unwrap();
        assert!(Arc::ptr_eq(&first, &cache.pattern("^[a-z]+$").unwrap()));
        assert_eq!(cache.size().1, 1);
        assert!(cache.pattern("(").is_err());
        assert_eq!(cache.size().1, 1);
    }

    /// However many patterns are used, those that are remembered are within both limits, and the one in use stays.
    #[test]
    fn the_process_remembers_a_limited_size_of_patterns() {
        let cache = PatternCache::default();
        let often = cache.pattern("^often$").unwrap();
        for number in 0..24 {
            cache.pattern(&format!(r"\pL{{90}}{number}")).unwrap();
            assert!(cache.size().0 <= MAX_REMEMBERED_BYTES);
            assert!(Arc::ptr_eq(&often, &cache.pattern("^often$").unwrap()));
        }
        assert!(cache.size().1 < 24);
    }

    #[test]
    fn the_process_remembers_a_limited_number_of_patterns() {
        let cache = PatternCache::default();
        for number in 0..MAX_REMEMBERED + 10 {
            cache.pattern(&number.to_string()).unwrap();
        }
        assert_eq!(cache.size().1, MAX_REMEMBERED);
        assert!(cache.remembered("0").is_none());
    }
}
