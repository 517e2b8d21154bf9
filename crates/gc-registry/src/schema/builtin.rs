//! Schemas of the built-in types, made at their first use.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::Schema;

/// Definitions by name. Grows with the kinds that are asked for and is bounded by their number.
static DEFINITIONS: Mutex<BTreeMap<Arc<str>, Arc<Schema>>> = Mutex::new(BTreeMap::new());

/// The definition of a name that a converted schema refers to.
pub(super) fn definition(name: &str) -> Arc<Schema> {
    let definitions = DEFINITIONS.lock().unwrap_or_else(PoisonError::into_inner);
    definitions.get(name).cloned().unwrap_or_default()
}
