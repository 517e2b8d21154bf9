//! Key files in memory, for keys that are not kept in a folder.

use std::cell::{Cell, Ref, RefCell};
use std::collections::BTreeMap;

/// Contents by name.
pub(crate) type Files = BTreeMap<String, String>;

/// Files that are read and written one by one, and stored together.
#[derive(Debug)]
pub(crate) struct SharedFiles {
    files: RefCell<Files>,
    is_changed: Cell<bool>,
}

impl SharedFiles {
    pub(crate) fn new(files: Files) -> Self {
        Self { files: RefCell::new(files), is_changed: Cell::new(false) }
    }

    pub(crate) fn read(&self, name: &str) -> Option<String> {
        self.files.borrow().get(name).cloned()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        self.files.borrow_mut().insert(name.to_owned(), text.to_owned());
        self.is_changed.set(true);
    }

    /// Reports whether any file was written.
    pub(crate) fn is_changed(&self) -> bool {
        self.is_changed.get()
    }

    pub(crate) fn files(&self) -> Ref<'_, Files> {
        self.files.borrow()
    }
}
