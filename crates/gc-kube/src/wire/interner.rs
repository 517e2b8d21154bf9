//! Sharing of repeated texts (namespaces, kinds, names of owners).

use std::collections::HashSet;
use std::sync::Arc;

/// Shares equal texts. Bounded: it is cleared when full, which only costs the memory of texts stored twice.
#[derive(Debug, Default)]
pub struct Interner {
    texts: HashSet<Arc<str>>,
}

impl Interner {
    /// Maximum number of remembered texts.
    pub const CAPACITY: usize = 4096;

    /// Returns the shared form of a text.
    pub fn shared(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        if self.texts.len() >= Self::CAPACITY {
            self.texts.clear();
        }
        let made: Arc<str> = text.into();
        self.texts.insert(Arc::clone(&made));
        made
    }
}
