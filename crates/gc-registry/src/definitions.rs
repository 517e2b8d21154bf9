//! The stored custom resource definitions, compiled.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use crate::error::ApiError;
use crate::metadata::meta;
use crate::resource::ResourceDefinition;
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

/// Cache of compiled definitions by their contents, shared by servers of one process with the same definitions: compiling a schema
/// with rules takes longer than everything else that a start does with a definition.
#[derive(Debug, Default)]
pub struct CompiledDefinitions(Mutex<VecDeque<(Parts, Vec<Arc<ResourceDefinition>>)>>);

/// All inputs of a definition's compilation: the spec, the accepted names and the stored versions.
type Parts = [Value; 3];

impl CompiledDefinitions {
    /// Maximum number of definitions kept; the oldest is forgotten first.
    const MOST: usize = 64;

    fn served(&self, definition: &Value) -> Vec<Arc<ResourceDefinition>> {
        let part = |path: &str| definition.pointer(path).unwrap_or(&Value::Null);
        let parts = [part("/status/acceptedNames"), part("/status/storedVersions"), part("/spec")];
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |known: &Parts| known.iter().zip(parts).all(|(known, part)| known == part);
        if let Some((_, served)) = kept.iter().find(|(known, _)| is_same(known)) {
            return served.clone();
        }
        let served = served(definition);
        if kept.len() == Self::MOST {
            kept.pop_front();
        }
        kept.push_back((parts.map(Value::clone), served.clone()));
        served
    }
}

fn served(definition: &Value) -> Vec<Arc<ResourceDefinition>> {
    crd::definitions(definition).unwrap_or_default().into_iter().map(Arc::new).collect()
}

/// All definitions, compiled at the revision of their last write.
#[derive(Debug, Default)]
pub(crate) struct Definitions {
    by_key: BTreeMap<Key, Definition>,
    /// Absent if no other server shares them.
    shared: Option<Arc<CompiledDefinitions>>,
}

impl Definitions {
    /// Creates an empty set of definitions.
    pub(crate) fn new(shared: Option<Arc<CompiledDefinitions>>) -> Self {
        Self { by_key: BTreeMap::new(), shared }
    }

    /// Reads the stored definitions.
    pub(crate) fn read(storage: &dyn Storage) -> Result<RangeAnswer, ApiError> {
        storage.range(persist::DEFINITIONS, &RangeOptions::default()).map_err(persist::storage_error)
    }

    /// Replaces the definitions with those read; compiles the changed ones.
    pub(crate) fn replace(&mut self, stored: Vec<KeyValue>) {
        let mut old = std::mem::take(&mut self.by_key);
        for item in stored {
            let known = old.remove(&item.key).filter(|known| known.revision == item.mod_revision);
            let definition = known.unwrap_or_else(|| self.compile(&item.value, item.mod_revision));
            self.by_key.insert(item.key, definition);
        }
    }

    /// Returns every served resource.
    pub(crate) fn served(&self) -> Vec<Arc<ResourceDefinition>> {
        self.by_key.values().flat_map(|definition| definition.served.iter().cloned()).collect()
    }

    /// Reports whether a definition, as stored at a revision, needs no further action.
    pub(crate) fn is_settled(&self, key: &str, revision: Revision) -> bool {
        self.by_key
            .get(key)
            .is_some_and(|known| known.revision == revision && known.established && !known.terminating)
    }

    pub(crate) fn is_terminating(&self, group: &str, plural: &str) -> bool {
        self.by_key.values().any(|known| known.terminating && known.group == group && known.plural == plural)
    }

    /// Compiles a definition. One that is unreadable or cannot be served serves nothing, and does not affect others.
    fn compile(&self, stored: &[u8], revision: Revision) -> Definition {
        let value: Value = serde_json::from_slice(stored).unwrap_or_default();
        let text = |path: &str| value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let established = crd::is_established(&value);
        let served = match &self.shared {
            _ if !established => Vec::new(),
            Some(shared) => shared.served(&value),
            None => served(&value),
        };
        Definition {
            revision,
            group: text("/spec/group"),
            plural: text("/spec/names/plural"),
            terminating: meta::is_deleting(&value),
            established,
            served,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(uid: &str, kind: &str) -> Value {
        json!({
            "metadata": {"name": "widgets.example.com", "uid": uid},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": kind},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}}}]},
            "status": {"acceptedNames": {"plural": "widgets", "kind": kind}, "storedVersions": ["v1"],
                "conditions": [{"type": "Established", "status": "True"}]},
        })
    }

    #[test]
    fn definitions_that_say_the_same_are_compiled_once() {
        let shared = Arc::new(CompiledDefinitions::default());
        let served = |definition: &Value| {
            let stored = KeyValue {
                key: "/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com".into(),
                value: definition.to_string().into(),
                create_revision: Revision(1),
                mod_revision: Revision(1),
            };
            let mut definitions = Definitions::new(Some(Arc::clone(&shared)));
            definitions.replace(vec![stored]);
            definitions.served()
        };
        let first = served(&definition("a", "Widget"));
        let again = served(&definition("b", "Widget"));
        let other = served(&definition("b", "Gadget"));
        assert_eq!((first.len(), again.len(), other.len()), (1, 1, 1));
        assert!(Arc::ptr_eq(&first[0], &again[0]));
        assert_eq!(&*other[0].kind, "Gadget");
    }
}
