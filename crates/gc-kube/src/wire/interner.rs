//! Texts that repeat (namespaces, kinds, names of owners) are made once and shared.

use std::collections::HashSet;
use std::sync::Arc;

/// Shares equal texts. Bounded: when full it is cleared, which only costs the memory of texts that are made twice.
#[derive(Debug, Default)]
pub struct Interner {
    texts: HashSet<Arc<str>>,
}

impl Interner {
    /// Maximum number of texts that are remembered.
    pub const CAPACITY: usize = 4096;

    /// The shared form of a text.
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
