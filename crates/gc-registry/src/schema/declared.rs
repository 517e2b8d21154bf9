//! The order in which Go declares, and therefore writes, the fields of built-in types.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::builtin::definition_name;
use super::facts::{self, TypeCode};

/// Name of the type that stands for kinds whose fields are in no table: tables, discovery.
const DOCUMENT: &str = "Document";
const DOCUMENT_FIELDS: &str =
    " kind s\n apiVersion s\n metadata =apimachinery.pkg.apis.meta.v1.ObjectMeta\n items [=Document\n";
const META: &str = "apimachinery.pkg.apis.meta.v1";
/// Groups of Kubernetes whose names have two parts before `.k8s.io`; definitions of others use such names as well.
const LONG_GROUPS: [&str; 3] =
    ["flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io", "rbac.authorization.k8s.io"];

/// Reports whether a group belongs to Kubernetes itself, whose types are declared in Go.
pub(crate) fn is_declared(group: &str) -> bool {
    let short = group.strip_suffix(".k8s.io").unwrap_or(group);
    !short.contains('.') || LONG_GROUPS.contains(&group)
}

/// Fields of a struct, sorted by name.
#[derive(Debug)]
struct Declared {
    fields: Box<[Field]>,
}

#[derive(Debug)]
struct Field {
    name: &'static str,
    /// Position in the declaration.
    place: usize,
    /// Number of lists and maps around the type.
    layers: u8,
    /// Name of the type, if it is a struct.
    of: Option<&'static str>,
    /// The type, resolved when first needed, because types contain each other.
    declared: OnceLock<Option<&'static Declared>>,
}

impl Field {
    fn shape(&self) -> Shape {
        let declared = *self.declared.get_or_init(|| self.of.and_then(Declared::named));
        Shape { layers: self.layers, declared }
    }
}

impl Declared {
    /// Returns the type with a name in the table of facts. Types without fields encode themselves.
    fn named(name: &str) -> Option<&'static Self> {
        /// Grows with the types that are written, and is bounded by the table of facts.
        static MADE: Mutex<BTreeMap<&'static str, &'static Declared>> = Mutex::new(BTreeMap::new());
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = made.get(name) {
            return Some(found);
        }
        let (name, lines) = if name == DOCUMENT {
            (DOCUMENT, DOCUMENT_FIELDS)
        } else {
            let (name, fact) = facts::entry(name)?;
            (name, fact.lines())
        };
        let mut fields: Vec<Field> = lines.lines().filter_map(facts::field).enumerate().map(field).collect();
        if fields.is_empty() {
            return None;
        }
        fields.sort_unstable_by_key(|field| field.name);
        let leaked: &'static Self = Box::leak(Box::new(Self { fields: fields.into() }));
        made.insert(name, leaked);
        Some(leaked)
    }
}

fn field((place, (name, code, _)): (usize, (&'static str, TypeCode, facts::Flags))) -> Field {
    let (mut code, mut layers) = (code, 0);
    let of = loop {
        match code {
            TypeCode::Definition(name) => break Some(name),
            TypeCode::Scalar(..) => break None,
            TypeCode::List(inner, _) | TypeCode::Map(inner, _) => {
                layers += 1;
                code = facts::type_code(inner);
            }
        }
    };
    Field { name, place, layers, of, declared: OnceLock::new() }
}

/// Type of a value, as far as it determines an order: a struct within lists and maps, whose own members are ordered by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    layers: u8,
    declared: Option<&'static Declared>,
}

impl Shape {
    /// Orders everything by name.
    pub(crate) const BY_NAME: Self = Self { layers: 0, declared: None };

    /// Returns the shape of a kind; custom resources are ordered by name.
    pub(crate) fn of_kind(group: &str, version: &str, kind: &str) -> Self {
        if !is_declared(group) {
            return Self::BY_NAME;
        }
        let of_kind = definition_name(group, version, kind);
        let declared = of_kind.strip_prefix(facts::PREFIX).and_then(Declared::named);
        // Types without a group, such as lists of resources, do not belong to a group's package either.
        let declared =
            declared.or_else(|| Declared::named(&format!("{META}.{kind}")).filter(|_| group.is_empty()));
        Self { layers: 0, declared: declared.or_else(|| Declared::named(DOCUMENT)) }
    }

    /// Returns the shape of an object's `metadata`, which all kinds share.
    pub(crate) fn of_metadata() -> Self {
        Self { layers: 0, declared: Declared::named(&format!("{META}.ObjectMeta")) }
    }

    /// Reports whether everything inside is ordered by name.
    pub(crate) fn is_by_name(self) -> bool {
        self.declared.is_none()
    }

    /// Returns the position and the shape of a member. Members without a position follow those that have one.
    pub(crate) fn member(self, name: &str) -> (usize, Self) {
        if self.layers > 0 {
            return (usize::MAX, self.item());
        }
        let Some(declared) = self.declared else { return (usize::MAX, Self::BY_NAME) };
        match declared.fields.binary_search_by(|field| field.name.cmp(name)) {
            Ok(index) => (declared.fields[index].place, declared.fields[index].shape()),
            Err(_) => (usize::MAX, Self::BY_NAME),
        }
    }

    /// Reports whether the members have declared positions.
    pub(crate) fn has_places(self) -> bool {
        self.layers == 0 && self.declared.is_some()
    }

    /// Returns the shape of an item of a list.
    pub(crate) fn item(self) -> Self {
        match self.layers.checked_sub(1) {
            Some(layers) => Self { layers, ..self },
            None => Self::BY_NAME,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_struct_of_a_field_has_an_order_or_encodes_itself() {
        for name in facts::names() {
            let Some(declared) = Declared::named(name) else { continue };
            for field in &declared.fields {
                let Some(of) = field.of else { continue };
                let is_opaque = facts::entry(of).is_some_and(|(_, fact)| fact.lines().is_empty());
                assert_eq!(Declared::named(of).is_none(), is_opaque, "{name}.{}", field.name);
            }
        }
    }

    #[test]
    fn kinds_begin_with_what_they_are() {
        for (group, version, kind) in crate::schema::kinds() {
            let shape = Shape::of_kind(group, version, kind);
            assert!(shape.member("kind").0 < shape.member("apiVersion").0, "{group}/{version} {kind}");
        }
    }
}
