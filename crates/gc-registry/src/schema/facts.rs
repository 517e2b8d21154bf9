//! The table of facts about the fields of built-in types: `facts.txt`, written by `scripts/kubernetes-version`;
//! `scripts/type-facts` describes the columns.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use crate::kubernetes::KubernetesVersion;

/// Common prefix of definition names; omitted from the table.
pub(super) const PREFIX: &str = "io.k8s.";

const TABLE: &str = include_str!("facts.txt");
/// Types that differ in 1.37, and `-NAME` for those that it lacks.
const DIFFERENCE_1_37: &str = include_str!("facts-1.37.txt");

/// A type: its attributes, and the lines of its fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fact {
    attributes: &'static str,
    fields: &'static str,
}

impl Fact {
    fn attribute(&self, name: &str) -> Option<&'static str> {
        self.attributes.split(' ').find_map(|attribute| attribute.strip_prefix(name)?.strip_prefix('='))
    }

    /// Reports whether the type is a unit in server-side apply.
    pub(super) fn atomic(&self) -> bool {
        self.attribute("map") == Some("atomic")
    }

    /// Returns the discriminator and the members of a union: `type/queuing:Queuing`.
    pub(super) fn union(&self) -> Option<&'static str> {
        self.attribute("union")
    }

    /// Returns the text of the fields, one per line, in the order of declaration.
    pub(super) fn lines(&self) -> &'static str {
        self.fields
    }

    /// Returns the lines of the fields, in the order of declaration.
    pub(super) fn fields(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.fields.lines()
    }
}

type Table = BTreeMap<&'static str, Fact>;

fn table() -> &'static Table {
    static PARSED: OnceLock<Table> = OnceLock::new();
    PARSED.get_or_init(|| table_of(KubernetesVersion::chosen()))
}

fn table_of(version: KubernetesVersion) -> Table {
    let mut facts = Table::new();
    for text in [TABLE, version.difference(DIFFERENCE_1_37)] {
        read(text, &mut facts);
    }
    facts
}

/// Adds the types in a text, replacing those of the same name, and removes those marked as gone.
fn read(text: &'static str, facts: &mut Table) {
    let mut rest = text;
    while let Some((head, after)) = rest.split_once('\n') {
        // The fields are indented, so they end at the first line that is not.
        let mut end = 0;
        for line in after.split_inclusive('\n').take_while(|line| line.starts_with(' ')) {
            end += line.len();
        }
        let (name, attributes) = head.split_once(' ').unwrap_or((head, ""));
        match name.strip_prefix('-') {
            Some(gone) => facts.remove(gone),
            None => facts.insert(name, Fact { attributes, fields: &after[..end] }),
        };
        rest = &after[end..];
    }
}

/// Returns the facts of a type by its name without the prefix.
pub(super) fn of(name: &str) -> Option<Fact> {
    table().get(name).copied()
}

/// Returns the facts of a type, and its name as in the table.
pub(super) fn entry(name: &str) -> Option<(&'static str, Fact)> {
    table().get_key_value(name).map(|(name, fact)| (*name, *fact))
}

/// Returns the table of a version, for tests.
#[cfg(test)]
pub(super) fn types_of(version: KubernetesVersion) -> impl Iterator<Item = (&'static str, Fact)> {
    table_of(version).into_iter()
}

/// The facts of all types.
pub(super) fn all() -> impl Iterator<Item = (&'static str, Fact)> {
    table().iter().map(|(name, fact)| (*name, *fact))
}

/// The names of all types.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    table().keys().copied()
}

/// Type of a field, of items or of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TypeCode {
    /// A definition, by its name without the prefix.
    Definition(&'static str),
    /// A scalar, by its letter, with the name of its Go type and the values of an enumeration.
    Scalar(char, Option<&'static str>),
    /// A list of the type that the code describes.
    List(&'static str, Option<&'static str>),
    /// A map to the type that the code describes.
    Map(&'static str, Option<&'static str>),
}

/// Parses a code such as `[=api.core.v1.Container` or `s<v1.Protocol|SCTP|TCP|UDP>`.
pub(super) fn type_code(code: &'static str) -> TypeCode {
    if let Some(name) = code.strip_prefix('=') {
        return TypeCode::Definition(name);
    }
    let mut letters = code.chars();
    let kind = letters.next().unwrap_or('s');
    let (go, rest) = match letters.as_str().strip_prefix('<').and_then(|rest| rest.split_once('>')) {
        Some((go, rest)) => (Some(go), rest),
        None => (None, letters.as_str()),
    };
    match kind {
        '[' => TypeCode::List(rest, go),
        '{' => TypeCode::Map(rest, go),
        kind => TypeCode::Scalar(kind, go),
    }
}

/// Marker of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flag {
    Pointer,
    OmitEmpty,
    OmitZero,
    Required,
    List(&'static str),
    Keys(&'static str),
    Map(&'static str),
    Patch(&'static str),
    MergeKey(&'static str),
    Default(&'static str),
    /// The field's feature gate is off.
    Off,
    In(&'static str),
    GoName(&'static str),
}

/// Flags of a field.
#[derive(Clone, Debug)]
pub(super) struct Flags(std::str::Split<'static, char>);

impl Iterator for Flags {
    type Item = Flag;

    fn next(&mut self) -> Option<Flag> {
        loop {
            let word = self.0.next()?;
            let flag = match word.split_once('=') {
                None => match word {
                    "*" => Flag::Pointer,
                    "o" => Flag::OmitEmpty,
                    "z" => Flag::OmitZero,
                    "r" => Flag::Required,
                    "off" => Flag::Off,
                    _ => continue,
                },
                Some(("list", kind)) => Flag::List(kind),
                Some(("keys", names)) => Flag::Keys(names),
                Some(("map", kind)) => Flag::Map(kind),
                Some(("patch", strategies)) => Flag::Patch(strategies),
                Some(("key", name)) => Flag::MergeKey(name),
                Some(("default", value)) => Flag::Default(value),
                Some(("in", name)) => Flag::In(name),
                Some(("go", name)) => Flag::GoName(name),
                Some(_) => continue,
            };
            return Some(flag);
        }
    }
}

/// Returns the name, type and flags in a field's line.
pub(super) fn field(line: &'static str) -> Option<(&'static str, TypeCode, Flags)> {
    let (name, rest) = line.strip_prefix(' ')?.split_once(' ')?;
    // The values of an enumeration may contain spaces.
    let named = rest.find('>').filter(|_| rest.find('<') < rest.find(' ')).unwrap_or(0);
    let end = rest[named..].find(' ').map_or(rest.len(), |space| named + space);
    let (code, flags) = rest.split_at(end);
    Some((name, type_code(code), Flags(flags.split(' '))))
}
