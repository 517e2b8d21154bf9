//! Managers of a Scale: the owners of the replicas in the scaled object.

use serde_json::Value;

use super::entries::{self, Entry};
use super::set::{FieldSet, PathElement};

/// Version in which a Scale is managed.
const VERSION: &str = "autoscaling/v1";

/// Returns the path of an object's replicas in the version in which an entry manages it: `None` for an unknown version, an empty
/// path for one without a Scale.
pub(crate) type ReplicasPath<'a> = &'a dyn Fn(&str) -> Option<Vec<PathElement>>;

/// Parses a dotted path such as `.spec.replicas`.
pub(crate) fn replicas_path(dotted: &str) -> Vec<PathElement> {
    let names = dotted.split('.').filter(|name| !name.is_empty());
    names.map(|name| PathElement::Field(name.into())).collect()
}

/// Returns the `managedFields` of the Scale of an object with these.
pub(crate) fn of_scale(parent: &Value, path_in: ReplicasPath<'_>) -> Option<Value> {
    let mut entries = entries::decode(parent).unwrap_or_default();
    entries.retain(|entry| owns_replicas(entry, path_in));
    for entry in &mut entries {
        VERSION.clone_into(&mut entry.api_version);
        entry.fields = one_field(&replicas_path(".spec.replicas"));
    }
    entries::encode(entries)
}

/// Returns the `managedFields` of an object, in one version, after its Scale was written. Upstream treats managers who only updated
/// a Scale as different from those who updated the object, so they lose the replicas and get them in an entry without a time.
pub(crate) fn of_scaled(
    parent: &Value,
    scale: &Value,
    version: &str,
    path_in: ReplicasPath<'_>,
) -> Option<Value> {
    let mut of_scale = entries::decode(scale).unwrap_or_default();
    let mut entries = Vec::new();
    for mut entry in entries::decode(parent).unwrap_or_default() {
        let Some(path) = path_in(&entry.api_version) else { continue };
        if owns_replicas(&entry, path_in) {
            let same = of_scale.iter().position(|other| other.same_manager(&entry));
            match same {
                Some(index) => drop(of_scale.remove(index)),
                None => entry.fields.subtract(&one_field(&path)),
            }
        }
        if !entry.fields.is_empty() {
            entries.push(entry);
        }
    }
    let replicas = replicas_path(".spec.replicas");
    let path = path_in(version).unwrap_or_default();
    for entry in of_scale.into_iter().filter(|entry| entry.fields.contains(&replicas)) {
        let fields = one_field(&path);
        entries.push(Entry { fields, api_version: version.to_owned(), time: None, ..entry });
    }
    entries::encode(entries)
}

fn owns_replicas(entry: &Entry, path_in: ReplicasPath<'_>) -> bool {
    path_in(&entry.api_version).is_some_and(|path| entry.fields.contains(&path))
}

fn one_field(path: &[PathElement]) -> FieldSet {
    let mut fields = FieldSet::default();
    fields.insert(path);
    fields
}
