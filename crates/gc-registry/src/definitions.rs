//! The custom resource definitions as they are stored, compiled.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::catalog::resource::ResourceDefinition;
use crate::error::ApiError;
use crate::metadata::meta;
use crate::storage::{Key, KeyValue, RangeAnswer, RangeOptions, Revision, Storage};
use crate::{crd, persist};

/// One definition.
#[derive(Debug)]
struct Definition {
    revision: Revision,
    group: String,
    plural: String,
    terminating: bool,
    established: bool,
    served: Vec<Arc<ResourceDefinition>>,
}

/// All definitions, compiled at the revision that they were last written.
#[derive(Debug, Default)]
pub(crate) struct Definitions(BTreeMap<Key, Definition>);

impl Definitions {
    /// Reads what is stored.
    pub(crate) fn read(storage: &dyn Storage) -> Result<RangeAnswer, ApiError> {
        storage.range(persist::DEFINITIONS, &RangeOptions::default()).map_err(persist::storage_error)
    }

    /// Takes over what was read; compiles what has changed.
    pub(crate) fn replace(&mut self, stored: Vec<KeyValue>) {
        let mut old = std::mem::take(&mut self.0);
        for item in stored {
            let known = old.remove(&item.key).filter(|known| known.revision == item.mod_revision);
            let definition = known.unwrap_or_else(|| compile(&item.value, item.mod_revision));
            self.0.insert(item.key, definition);
        }
    }

    /// Every served resource.
    pub(crate) fn served(&self) -> Vec<Arc<ResourceDefinition>> {
        self.0.values().flat_map(|definition| definition.served.iter().cloned()).collect()
    }

    /// Whether there is nothing to do about a definition as it was stored at a revision.
    pub(crate) fn is_settled(&self, key: &str, revision: Revision) -> bool {
        self.0
            .get(key)
            .is_some_and(|known| known.revision == revision && known.established && !known.terminating)
    }

    pub(crate) fn is_terminating(&self, group: &str, plural: &str) -> bool {
        self.0.values().any(|known| known.terminating && known.group == group && known.plural == plural)
    }
}

/// A definition that cannot be served (or read) serves nothing, and does not affect others.
fn compile(stored: &[u8], revision: Revision) -> Definition {
    let value: Value = serde_json::from_slice(stored).unwrap_or_default();
    let text = |path: &str| value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let established = crd::is_established(&value);
    let served = if established { crd::definitions(&value).unwrap_or_default() } else { Vec::new() };
    Definition {
        revision,
        group: text("/spec/group"),
        plural: text("/spec/names/plural"),
        terminating: meta::is_deleting(&value),
        established,
        served: served.into_iter().map(Arc::new).collect(),
    }
}
