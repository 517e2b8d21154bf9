//! The table of all resources: built-in ones, and those of custom resource definitions.

pub(crate) mod forms;
pub(crate) mod rules;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use gc_types::Scope;

use crate::kubernetes::KubernetesVersion;
use crate::resource::{DefaultGarbageCollection, ResourceDefinition, Subresource};

/// The built-in rows; the file describes the format.
const BUILTIN: &str = include_str!("catalog/builtin_resources.txt");
/// Additional rows for 1.37.
const ADDED_1_37: &str = include_str!("catalog/builtin_resources-1.37.txt");

static BUILTIN_GROUPS: LazyLock<Vec<Group>> = LazyLock::new(|| builtin_groups(KubernetesVersion::chosen()));

/// Built-in rows by group, version and resource. Definitions change, but these rows are only looked up, never copied.
static BUILTIN_ROWS: LazyLock<Rows> = LazyLock::new(|| {
    let resources =
        BUILTIN_GROUPS.iter().flat_map(|group| &group.versions).flat_map(|version| &version.resources);
    by_key(resources)
});

/// Resources by group, version and name.
type Rows = BTreeMap<Box<str>, Arc<ResourceDefinition>>;

fn by_key<'a>(resources: impl Iterator<Item = &'a Arc<ResourceDefinition>>) -> Rows {
    resources.map(|row| (row_key(&row.group, &row.version, &row.resource), Arc::clone(row))).collect()
}

/// Verbs of an ordinary resource.
const FULL: &str = "create,delete,deletecollection,get,list,patch,update,watch";

/// A version of a group in discovery.
#[derive(Clone, Debug, Default)]
pub struct GroupVersion {
    /// Version, such as `v1`.
    pub version: Arc<str>,
    /// Resources in the order of discovery.
    pub resources: Vec<Arc<ResourceDefinition>>,
}

/// One group.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Name; empty for core.
    pub name: Arc<str>,
    /// Versions, the preferred one first.
    pub versions: Vec<GroupVersion>,
}

/// A snapshot of all served resources.
#[derive(Clone, Debug)]
pub struct Catalog {
    groups: Vec<Group>,
    /// Resources of definitions.
    custom: Rows,
}

impl Default for Catalog {
    fn default() -> Self {
        Self::with_custom(&[])
    }
}

impl Catalog {
    /// Returns the built-in resources, followed by those of definitions (sorted by group, versions by priority).
    #[must_use]
    pub fn with_custom(custom: &[Arc<ResourceDefinition>]) -> Self {
        let mut groups = BUILTIN_GROUPS.clone();
        let builtin = groups.len();
        for row in custom {
            let group = match groups.iter().position(|group| group.name == row.group) {
                Some(found) => &mut groups[found],
                None => {
                    groups.push(Group { name: Arc::clone(&row.group), versions: Vec::new() });
                    let last = groups.len() - 1;
                    &mut groups[last]
                }
            };
            match group.versions.iter_mut().find(|version| version.version == row.version) {
                Some(version) => version.resources.push(Arc::clone(row)),
                None => group.versions.push(GroupVersion {
                    version: Arc::clone(&row.version),
                    resources: vec![Arc::clone(row)],
                }),
            }
        }
        groups[builtin..].sort_by(|a, b| a.name.cmp(&b.name));
        for group in &mut groups[builtin..] {
            group.versions.sort_by_key(|version| std::cmp::Reverse(version_priority(&version.version)));
            for version in &mut group.versions {
                version.resources.sort_by(|a, b| a.resource.cmp(&b.resource));
            }
        }
        Self { groups, custom: by_key(custom.iter()) }
    }

    /// Returns all groups in the order of discovery, core first.
    #[must_use]
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Returns a group by name.
    #[must_use]
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| *group.name == *name)
    }

    /// Returns a resource in one version.
    #[must_use]
    pub fn find(&self, group: &str, version: &str, resource: &str) -> Option<&Arc<ResourceDefinition>> {
        let key = row_key(group, version, resource);
        self.custom.get(&key).or_else(|| BUILTIN_ROWS.get(&key))
    }

    /// Reports whether a resource is served in any version.
    #[must_use]
    pub fn serves(&self, group: &str, resource: &str) -> bool {
        let versions = self.group(group).into_iter().flat_map(|group| &group.versions);
        versions.flat_map(|version| &version.resources).any(|row| *row.resource == *resource)
    }

    /// Returns every resource of a group and version with this kind.
    pub fn by_kind<'a>(
        &'a self,
        group: &'a str,
        version: &'a str,
        kind: &'a str,
    ) -> impl Iterator<Item = &'a Arc<ResourceDefinition>> {
        self.group(group)
            .into_iter()
            .flat_map(|group| &group.versions)
            .filter(move |served| *served.version == *version)
            .flat_map(|served| &served.resources)
            .filter(move |row| *row.kind == *kind)
    }
}

/// Returns a built-in resource.
#[must_use]
pub(crate) fn builtin(
    group: &str,
    version: &str,
    resource: &str,
) -> Option<&'static Arc<ResourceDefinition>> {
    BUILTIN_ROWS.get(&row_key(group, version, resource))
}

/// Reports whether this server itself has resources of a group and version.
pub(crate) fn has_builtin_version(group: &str, version: &str) -> bool {
    BUILTIN_ROWS.values().any(|row| *row.group == *group && *row.version == *version)
}

fn row_key(group: &str, version: &str, resource: &str) -> Box<str> {
    format!("{group}/{version}/{resource}").into()
}

/// Returns the sort key of a version, highest priority first: `v2`, `v1`, `v1beta2`, `v1alpha1`, then anything else by name.
#[must_use]
pub fn version_priority(version: &str) -> (u8, u64, u64, std::cmp::Reverse<String>) {
    let other = (0, 0, 0, std::cmp::Reverse(version.to_owned()));
    let Some(rest) = version.strip_prefix('v') else { return other };
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let Ok(major) = rest[..digits].parse::<u64>() else { return other };
    let none = std::cmp::Reverse(String::new());
    let (level, minor) = match &rest[digits..] {
        "" => return (3, major, 0, none),
        tail if tail.starts_with("beta") => (2, &tail["beta".len()..]),
        tail if tail.starts_with("alpha") => (1, &tail["alpha".len()..]),
        _ => return other,
    };
    match minor.parse::<u64>() {
        Ok(minor) => (level, major, minor, none),
        Err(_) => other,
    }
}

/// Returns the groups of a Kubernetes version. Its additional rows are added to their groups in the order of names; its additional
/// groups follow the others.
pub(crate) fn builtin_groups(version: KubernetesVersion) -> Vec<Group> {
    let mut groups = parse(BUILTIN);
    for added in parse(version.difference(ADDED_1_37)) {
        let Some(group) = groups.iter_mut().find(|group| group.name == added.name) else {
            groups.push(added);
            continue;
        };
        for added in added.versions {
            let Some(served) = group.versions.iter_mut().find(|served| served.version == added.version)
            else {
                group.versions.push(added);
                continue;
            };
            served.resources.extend(added.resources);
            served.resources.sort_by(|a, b| a.resource.cmp(&b.resource));
        }
    }
    groups
}

fn parse(text: &str) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some((group, version)) = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
            .and_then(|line| line.split_once('/'))
        {
            let name = if group == "core" { "" } else { group };
            if groups.last().is_none_or(|last| *last.name != *name) {
                groups.push(Group { name: name.into(), versions: Vec::new() });
            }
            if let Some(last) = groups.last_mut() {
                last.versions.push(GroupVersion { version: version.into(), resources: Vec::new() });
            }
        } else if let Some(group) = groups.last_mut() {
            let name = Arc::clone(&group.name);
            if let Some(version) = group.versions.last_mut() {
                let row = parse_row(&name, &version.version, line);
                version.resources.push(Arc::new(row));
            }
        }
    }
    groups
}

fn parse_row(group: &Arc<str>, version: &Arc<str>, line: &str) -> ResourceDefinition {
    let mut columns = line.split(' ').map(|column| if column == "-" { "" } else { column });
    let mut next = || columns.next().unwrap_or_default();
    let list = |text: &str| -> Vec<Arc<str>> {
        text.split(',').filter(|item| !item.is_empty()).map(Arc::from).collect()
    };
    let (resource, kind, singular, scope) = (next(), next(), next(), next());
    let (short_names, categories, verbs, traits) = (next(), next(), next(), next());
    let subresources = next().split(';').filter_map(|text| parse_subresource(group, version, text)).collect();
    let has = |name: &str| traits.split(',').any(|item| item == name);
    ResourceDefinition {
        group: Arc::clone(group),
        version: Arc::clone(version),
        resource: resource.into(),
        singular: singular.into(),
        kind: kind.into(),
        list_kind: format!("{kind}List").into(),
        short_names: list(short_names),
        categories: list(categories),
        scope: if scope == "N" { Scope::Namespaced } else { Scope::Cluster },
        verbs: list(if verbs == "full" { FULL } else { verbs }),
        subresources,
        default_garbage_collection: if has("orphan") {
            DefaultGarbageCollection::Orphan
        } else if has("unsupported") {
            DefaultGarbageCollection::Unsupported
        } else {
            DefaultGarbageCollection::Delete
        },
        graceful_deletion: has("graceful"),
        returns_deleted_object: has("returns"),
        update_creates: has("upsert"),
        update_needs_version: has("conditional"),
        custom: None,
    }
}

fn parse_subresource(group: &Arc<str>, version: &Arc<str>, text: &str) -> Option<Subresource> {
    let (name, rest) = text.split_once('=')?;
    let (kind, letters) = rest.rsplit_once(':')?;
    let mut parts = kind.rsplitn(3, '/');
    let kind = parts.next()?;
    let response_kind = match (parts.next(), parts.next()) {
        (Some(version), Some(group)) => (group.into(), version.into(), kind.into()),
        _ => (Arc::clone(group), Arc::clone(version), kind.into()),
    };
    let verbs = letters
        .chars()
        .map(|letter| {
            Arc::from(match letter {
                'c' => "create",
                'd' => "delete",
                'g' => "get",
                'p' => "patch",
                _ => "update",
            })
        })
        .collect();
    Some(Subresource { name: name.into(), response_kind, verbs })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_row_of_the_table_is_whole() {
        let catalog = Catalog::default();
        let count = BUILTIN.lines().filter(|line| !line.starts_with(['#', '['])).count();
        assert_eq!(BUILTIN_ROWS.len(), count);
        for row in BUILTIN_ROWS.values() {
            assert!(!row.kind.is_empty() && !row.verbs.is_empty(), "{row:?}");
        }
        let pods = catalog.find("", "v1", "pods").unwrap();
        assert!(pods.graceful_deletion && pods.returns_deleted_object);
        let eviction = pods.subresources.iter().find(|s| *s.name == *"eviction").unwrap();
        assert_eq!(eviction.response_kind, ("policy".into(), "v1".into(), "Eviction".into()));
    }

    #[test]
    fn versions_sort_as_kubernetes_sorts_them() {
        let mut versions = vec![
            "foo1",
            "v1alpha2",
            "v10",
            "v2",
            "v1beta1",
            "v11alpha2",
            "foo10",
            "v3beta1",
            "v12alpha1",
            "v11beta2",
        ];
        versions.sort_by_key(|version| std::cmp::Reverse(version_priority(version)));
        assert_eq!(
            versions,
            [
                "v10",
                "v2",
                "v11beta2",
                "v3beta1",
                "v1beta1",
                "v12alpha1",
                "v11alpha2",
                "v1alpha2",
                "foo1",
                "foo10"
            ]
        );
    }
}
