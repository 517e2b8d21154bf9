//! Parsed forms of stored objects that the servers of one process share, so each is parsed once and not at every start.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gc_registry::error::ApiError;
use gc_registry::object::Object;

use crate::auth::rbac::Grant;
use crate::fairness::configuration::Configuration;

/// Maximum number of parsed roles and bindings that are kept. A server has some 150 of its own.
const MOST_GRANTS: usize = 4096;
/// Maximum number of configurations of priority and fairness that are kept.
const MOST_CONFIGURATIONS: usize = 8;

/// Parsed forms of stored objects that the servers of a process share.
///
/// Objects are identified by the address of their text in memory, which the stores of such servers share. Each entry keeps its
/// object alive, so the address cannot come to belong to another text.
#[derive(Default)]
pub struct SharedReadings {
    grants: Mutex<HashMap<Place, (Arc<Object>, Arc<Grant>)>>,
    configurations: Mutex<Vec<(Vec<Arc<Object>>, Arc<Configuration>)>>,
}

impl std::fmt::Debug for SharedReadings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedReadings").field("grants", &lock(&self.grants).len()).finish_non_exhaustive()
    }
}

/// Address and length of a stored text.
type Place = (usize, usize);

/// Returns the address and length of an object's text; `None` for an object that is not stored.
fn place(object: &Object) -> Option<Place> {
    let (text, _) = object.stored_metadata()?;
    Some((text.as_ptr().addr(), text.len()))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedReadings {
    /// Returns the parsed form of a role or binding, and parses it if no server of the process has done so.
    pub(crate) fn grant(
        &self,
        object: &Arc<Object>,
        read: impl FnOnce(&Object) -> Result<Grant, ApiError>,
    ) -> Result<Arc<Grant>, ApiError> {
        let Some(place) = place(object) else { return read(object).map(Arc::new) };
        if let Some((_, grant)) = lock(&self.grants).get(&place) {
            return Ok(Arc::clone(grant));
        }
        let grant = Arc::new(read(object)?);
        let mut grants = lock(&self.grants);
        if grants.len() < MOST_GRANTS {
            grants.insert(place, (Arc::clone(object), Arc::clone(&grant)));
        }
        Ok(grant)
    }

    /// Returns the configuration that was parsed from exactly these objects.
    pub(crate) fn configuration(&self, objects: &[Arc<Object>]) -> Option<Arc<Configuration>> {
        let is_same = |one: &Arc<Object>, other: &Arc<Object>| {
            place(one).is_some_and(|place_of_one| Some(place_of_one) == place(other))
        };
        let configurations = lock(&self.configurations);
        let (_, found) = configurations.iter().find(|(known, _)| {
            known.len() == objects.len() && known.iter().zip(objects).all(|(one, other)| is_same(one, other))
        })?;
        Some(Arc::clone(found))
    }

    /// Keeps a configuration for other servers with the same objects.
    pub(crate) fn keep_configuration(&self, objects: Vec<Arc<Object>>, configuration: &Arc<Configuration>) {
        let mut configurations = lock(&self.configurations);
        if configurations.len() < MOST_CONFIGURATIONS {
            configurations.push((objects, Arc::clone(configuration)));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::cell::Cell;

    use bytes::Bytes;
    use gc_registry::object::TypeMeta;
    use gc_registry::storage::Revision;

    use super::*;

    fn stored(text: &Bytes) -> Arc<Object> {
        let type_meta =
            TypeMeta { api_version: "rbac.authorization.k8s.io/v1".into(), kind: "ClusterRole".into() };
        Arc::new(Object::from_stored(Arc::new(type_meta), text.clone(), Revision(7)))
    }

    #[test]
    fn an_object_is_read_once_for_all_that_share_its_text() {
        const ROLE: &[u8] = br#"{"metadata":{"name":"view"},"rules":[]}"#;
        let readings = SharedReadings::default();
        let count = Cell::new(0);
        let read = |object: &Object| {
            count.set(count.get() + 1);
            Ok(Grant::read("clusterroles", &object.to_value()?))
        };
        let (text, other) = (Bytes::from(ROLE.to_vec()), Bytes::from(ROLE.to_vec()));
        let first = readings.grant(&stored(&text), read).unwrap();
        let again = readings.grant(&stored(&text), read).unwrap();
        assert!(Arc::ptr_eq(&first, &again) && count.get() == 1);
        // The same text in another place may be that of an object that was written since.
        let elsewhere = readings.grant(&stored(&other), read).unwrap();
        assert!(!Arc::ptr_eq(&first, &elsewhere) && count.get() == 2);
    }

    #[test]
    fn a_configuration_is_that_of_all_its_objects() {
        let texts =
            ["one", "two", "three"].map(|name| Bytes::from(format!(r#"{{"metadata":{{"name":"{name}"}}}}"#)));
        let [one, two, three] = texts.each_ref().map(stored);
        let readings = SharedReadings::default();
        let configuration = Arc::new(Configuration::default());
        readings.keep_configuration(vec![Arc::clone(&one), Arc::clone(&two)], &configuration);
        let same = readings.configuration(&[stored(&texts[0]), stored(&texts[1])]).unwrap();
        assert!(Arc::ptr_eq(&same, &configuration));
        for others in [vec![], vec![&one], vec![&two, &one], vec![&one, &three], vec![&one, &two, &three]] {
            let others: Vec<_> = others.into_iter().cloned().collect();
            assert!(readings.configuration(&others).is_none(), "{others:?}");
        }
    }
}
