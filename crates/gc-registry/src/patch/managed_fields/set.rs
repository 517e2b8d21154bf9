//! Sets of fields, and their form on the wire (`FieldsV1`).

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Map, Value};

use crate::schema::MAX_DEPTH;

/// A step of a path into an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathElement {
    /// `f:`, a field of an object or a key of a map.
    Field(Box<str>),
    /// `k:`, the item of a list with these values of its keys, sorted by name.
    Key(Vec<(Box<str>, Value)>),
    /// `v:`, the item of a set with this value.
    Value(Value),
    /// `i:`, the item at this index.
    Index(i64),
}

impl PathElement {
    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }

    fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(fields) => {
                let fields: Map<String, Value> =
                    fields.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
                format!("k:{}", Value::Object(fields))
            }
            Self::Value(value) => format!("v:{value}"),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    /// Parses an element; returns `Ok(None)` for an unknown type of element, which is ignored.
    fn decode(text: &str) -> Result<Option<Self>, InvalidFields> {
        let invalid = || InvalidFields(text.to_owned());
        let (kind, rest) = text.split_once(':').ok_or_else(invalid)?;
        let json = || serde_json::from_str::<Value>(rest).map_err(|_| invalid());
        Ok(Some(match kind {
            "f" => Self::Field(rest.into()),
            "v" => Self::Value(json()?),
            "i" => Self::Index(rest.parse().map_err(|_| invalid())?),
            "k" => match json()? {
                Value::Object(fields) => {
                    Self::Key(fields.into_iter().map(|(name, value)| (name.into(), value)).collect())
                }
                _ => return Err(invalid()),
            },
            _ => return Ok(None),
        }))
    }
}

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                f.write_str("[")?;
                for (index, (name, value)) in fields.iter().enumerate() {
                    write!(f, "{}{name}={value}", if index == 0 { "" } else { "," })?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => {
                let pairs =
                    a.iter().zip(b).map(|(a, b)| a.0.cmp(&b.0).then_with(|| compare_values(&a.1, &b.1)));
                pairs.fold(Ordering::Equal, Ordering::then).then(a.len().cmp(&b.len()))
            }
            (Self::Value(a), Self::Value(b)) => compare_values(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Compares JSON values by a total order that agrees with their equality.
fn compare_values(a: &Value, b: &Value) -> Ordering {
    fn rank(value: &Value) -> u8 {
        match value {
            Value::Number(_) => 0,
            Value::String(_) => 1,
            Value::Bool(_) => 2,
            Value::Null => 3,
            Value::Array(_) => 4,
            Value::Object(_) => 5,
        }
    }
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => match (x.as_i64(), y.as_i64()) {
            (Some(x), Some(y)) => x.cmp(&y),
            _ => {
                let floats = x.as_f64().unwrap_or_default().total_cmp(&y.as_f64().unwrap_or_default());
                floats.then_with(|| x.is_f64().cmp(&y.is_f64())).then_with(|| x.is_u64().cmp(&y.is_u64()))
            }
        },
        (Value::String(x), Value::String(y)) => x.cmp(y),
        (Value::Bool(x), Value::Bool(y)) => x.cmp(y),
        _ => rank(a)
            .cmp(&rank(b))
            .then_with(|| if a == b { Ordering::Equal } else { a.to_string().cmp(&b.to_string()) }),
    }
}

/// Error: a text is not a `FieldsV1`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no path element of FieldsV1")]
pub struct InvalidFields(pub String);

/// A set of paths into an object, as a tree. A path in the set does not include the paths below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    /// Sorted by element; no entry is empty.
    entries: Vec<(PathElement, Entry)>,
}

/// Entry of a set at one path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// True if the path itself is in the set.
    pub(super) member: bool,
    /// Paths below this one.
    pub(super) children: FieldSet,
}

impl Entry {
    fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }
}

impl FieldSet {
    /// Reports whether no path is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&PathElement, &Entry)> {
        self.entries.iter().map(|(element, entry)| (element, entry))
    }

    pub(super) fn entries_mut(&mut self) -> impl Iterator<Item = (&PathElement, &mut Entry)> {
        self.entries.iter_mut().map(|(element, entry)| (&*element, entry))
    }

    pub(super) fn get(&self, element: &PathElement) -> Option<&Entry> {
        let index = self.entries.binary_search_by(|(other, _)| other.cmp(element)).ok()?;
        Some(&self.entries[index].1)
    }

    /// Adds an entry at one element; does nothing if the entry is empty.
    pub(super) fn put(&mut self, element: PathElement, member: bool, children: FieldSet) {
        if !member && children.is_empty() {
            return;
        }
        // Objects are walked in order, so the end is usually the correct position.
        if self.entries.last().is_none_or(|(last, _)| *last < element) {
            self.entries.push((element, Entry { member, children }));
            return;
        }
        match self.entries.binary_search_by(|(other, _)| other.cmp(&element)) {
            Ok(index) => {
                let entry = &mut self.entries[index].1;
                entry.member |= member;
                entry.children.extend(&children);
            }
            Err(index) => self.entries.insert(index, (element, Entry { member, children })),
        }
    }

    /// Adds one path.
    pub fn insert(&mut self, path: &[PathElement]) {
        let Some((first, rest)) = path.split_first() else { return };
        let mut children = Self::default();
        children.insert(rest);
        self.put(first.clone(), rest.is_empty(), children);
    }

    /// Reports whether a path is in the set.
    #[must_use]
    pub fn contains(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [last] => self.get(last).is_some_and(|entry| entry.member),
            [first, rest @ ..] => self.get(first).is_some_and(|entry| entry.children.contains(rest)),
        }
    }

    /// Adds all paths of another set.
    pub fn extend(&mut self, other: &Self) {
        for (element, entry) in other.entries() {
            self.put(element.clone(), entry.member, entry.children.clone());
        }
    }

    /// Returns the paths of either set.
    #[must_use]
    pub fn union(mut self, other: &Self) -> Self {
        self.extend(other);
        self
    }

    /// Returns the paths of both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut both = Self::default();
        for (element, entry) in self.entries() {
            if let Some(twin) = other.get(element) {
                let children = entry.children.intersection(&twin.children);
                both.put(element.clone(), entry.member && twin.member, children);
            }
        }
        both
    }

    /// Removes exactly the paths of another set; paths below a removed one stay.
    pub fn subtract(&mut self, other: &Self) {
        if other.is_empty() {
            return;
        }
        self.entries.retain_mut(|(element, entry)| {
            if let Some(twin) = other.get(element) {
                entry.member &= !twin.member;
                entry.children.subtract(&twin.children);
            }
            !entry.is_empty()
        });
    }

    /// Returns the paths of this set that are not in the other.
    #[must_use]
    pub fn difference(mut self, other: &Self) -> Self {
        self.subtract(other);
        self
    }

    /// Removes the path with these names, and nothing below it.
    pub(super) fn remove_named(&mut self, path: &[&str]) {
        let Some((first, rest)) = path.split_first() else { return };
        let found = self.entries.binary_search_by(|(element, _)| match element {
            PathElement::Field(name) => (**name).cmp(first),
            _ => Ordering::Greater,
        });
        let Ok(index) = found else { return };
        let entry = &mut self.entries[index].1;
        if rest.is_empty() {
            entry.member = false;
        } else {
            entry.children.remove_named(rest);
        }
        if entry.is_empty() {
            self.entries.remove(index);
        }
    }

    /// Removes the path with these names, and everything below it.
    pub(super) fn remove_tree(&mut self, path: &[&str]) {
        let Some((first, rest)) = path.split_first() else { return };
        self.entries.retain_mut(|(element, entry)| {
            if !matches!(element, PathElement::Field(name) if **name == **first) {
                return true;
            }
            if rest.is_empty() {
                return false;
            }
            entry.children.remove_tree(rest);
            !entry.is_empty()
        });
    }

    /// Returns every path, in order.
    #[must_use]
    pub fn paths(&self) -> Vec<Vec<PathElement>> {
        fn walk(set: &FieldSet, path: &mut Vec<PathElement>, paths: &mut Vec<Vec<PathElement>>) {
            for (element, entry) in set.entries() {
                path.push(element.clone());
                if entry.member {
                    paths.push(path.clone());
                }
                walk(&entry.children, path, paths);
                path.pop();
            }
        }
        let mut paths = Vec::new();
        walk(self, &mut Vec::new(), &mut paths);
        paths
    }

    /// Encodes the set as `FieldsV1`.
    #[must_use]
    pub fn encode(&self) -> Value {
        let mut fields = Map::new();
        for (element, entry) in self.entries() {
            let mut below =
                if entry.children.is_empty() { Value::Object(Map::new()) } else { entry.children.encode() };
            if let (true, false, Value::Object(below)) = (entry.member, entry.children.is_empty(), &mut below)
            {
                below.insert(".".to_owned(), Value::Object(Map::new()));
            }
            fields.insert(element.encode(), below);
        }
        Value::Object(fields)
    }

    /// Decodes `FieldsV1`. `null` is the empty set.
    pub fn decode(fields: &Value) -> Result<Self, InvalidFields> {
        decode_entry(fields, MAX_DEPTH).map(|entry| entry.children)
    }
}

fn decode_entry(fields: &Value, depth: usize) -> Result<Entry, InvalidFields> {
    let depth = depth.checked_sub(1).ok_or_else(|| InvalidFields("too deep".into()))?;
    let fields = match fields {
        Value::Object(fields) => fields,
        Value::Null => return Ok(Entry { member: true, ..Entry::default() }),
        other => return Err(InvalidFields(other.to_string())),
    };
    let mut entry = Entry { member: fields.is_empty(), ..Entry::default() };
    for (name, below) in fields {
        if name == "." {
            entry.member = true;
        } else if let Some(element) = PathElement::decode(name)? {
            let below = decode_entry(below, depth)?;
            entry.children.put(element, below.member, below.children);
        }
    }
    Ok(entry)
}

/// Compares paths by the order in which conflicts are reported: in each object, paths that end there precede deeper ones.
pub(super) fn reported_order(a: &[PathElement], b: &[PathElement]) -> Ordering {
    let differ = a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
    let goes_on = |path: &[PathElement]| path.len() > differ + 1;
    goes_on(a).cmp(&goes_on(b)).then_with(|| a.cmp(b))
}

/// Formats a path as conflicts name it: `.spec.containers[name="a"].image`.
#[must_use]
pub fn display_path(path: &[PathElement]) -> String {
    path.iter().map(ToString::to_string).collect()
}
