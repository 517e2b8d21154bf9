//! Rules that are declared with the types of a version, and replace written ones: `rules-VERSION.txt`, written by
//! `scripts/kubernetes-version`. Each type is a line, followed by a line for each of its fields with rules.
//!
//! 1.36 has none: there, whatever was declared only watched over the written rules.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use super::facts::{self, Flag, TypeCode};
use crate::kubernetes::KubernetesVersion;

const RULES_1_37: &str = include_str!("rules-1.37.txt");

/// One rule of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// An absent value is not checked further.
    Optional,
    Required,
    /// Updates keep the value.
    Immutable,
    /// Updates may set and clear the value, and nothing else.
    NotModified,
    Minimum(i64),
    /// Maximum number of characters.
    MaxLength(usize),
    MaxBytes(usize),
    MaxItems(usize),
    Format(&'static str),
    /// Format of every key of a map.
    KeyFormat(&'static str),
    /// One of these texts, with `|` between them.
    Enumeration(&'static str),
    /// No item twice.
    UniqueItems,
    /// No two items with the same keys.
    UniqueKeys,
    /// A key of the items of a list.
    Key(&'static str),
    /// Written code says which items are the same.
    CustomUnique,
    /// Member that selects which of the members with [`Rule::InMode`] are allowed.
    Mode,
    /// In this mode the member is required (`true`) or allowed; in a mode that no rule names it is forbidden.
    InMode(&'static str, bool),
    /// Member of a union, of which exactly one is set.
    UnionMember,
    /// Item of a group, of which at most one exists, as key and value.
    ItemMember(&'static str, &'static str),
    /// Minimum while a feature gate is on or off.
    MinimumIf(&'static str, bool, i64),
    /// Format of a member.
    MemberFormat(&'static str, &'static str),
    /// The member may be absent; its format says so as well.
    MemberOptional,
}

/// Types with rules that a field leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nested {
    Nothing,
    Object(&'static str),
    List(&'static str),
    Map(&'static str),
}

/// Field that has rules, or leads to types that have some.
#[derive(Debug)]
pub(crate) struct DeclaredField {
    pub(crate) name: &'static str,
    /// True if an empty value differs from an absent one.
    pub(crate) is_pointer: bool,
    /// The code of its items, for messages that show one.
    pub(crate) code: &'static str,
    pub(crate) rules: Vec<Rule>,
    pub(crate) nested: Nested,
}

type Rules = BTreeMap<&'static str, Vec<(&'static str, Vec<Rule>)>>;
type Table = BTreeMap<&'static str, Vec<DeclaredField>>;

/// Returns the fields of a definition that are to be checked, in the order of declaration; `None` if there are none.
pub(crate) fn of_definition(name: &str) -> Option<&'static [DeclaredField]> {
    of(name.strip_prefix(facts::PREFIX)?)
}

/// Returns the fields of a type by its name without the prefix, like [`of_definition`].
pub(crate) fn of(name: &str) -> Option<&'static [DeclaredField]> {
    static TABLE: OnceLock<Table> = OnceLock::new();
    let table = TABLE.get_or_init(|| build(&parse(KubernetesVersion::chosen().difference(RULES_1_37))));
    table.get(name).map(Vec::as_slice)
}

fn parse(text: &'static str) -> Rules {
    let (mut rules, mut name) = (Rules::new(), "");
    for line in text.lines() {
        match line.strip_prefix(' ') {
            None => name = line,
            Some(field) => {
                let mut words = field.split(' ');
                let field = words.next().unwrap_or_default();
                rules.entry(name).or_default().push((field, words.filter_map(rule).collect()));
            }
        }
    }
    rules
}

/// Reads a rule such as `maxItems=32`; `None` for one that this program does not know.
fn rule(word: &'static str) -> Option<Rule> {
    let (name, value) = word.split_once('=').unwrap_or((word, ""));
    let (name, argument) = name.strip_suffix(')').and_then(|name| name.split_once('(')).unwrap_or((name, ""));
    Some(match (name, value) {
        ("optional", _) => Rule::Optional,
        ("required", _) => Rule::Required,
        ("immutable", _) => Rule::Immutable,
        ("update", "NoModify") => Rule::NotModified,
        ("minimum", value) => Rule::Minimum(value.parse().ok()?),
        ("maxLength", value) => Rule::MaxLength(value.parse().ok()?),
        ("maxBytes", value) => Rule::MaxBytes(value.parse().ok()?),
        ("maxItems", value) => Rule::MaxItems(value.parse().ok()?),
        ("format", value) => Rule::Format(value),
        ("eachKey", value) => Rule::KeyFormat(value.strip_prefix("format=")?),
        ("enum", values) => Rule::Enumeration(values),
        ("unique" | "listType", "set") => Rule::UniqueItems,
        ("unique" | "listType", "map") => Rule::UniqueKeys,
        ("listMapKey", key) => Rule::Key(key),
        ("customUnique", _) => Rule::CustomUnique,
        ("modeDiscriminator", _) => Rule::Mode,
        ("ifMode", "required") => Rule::InMode(argument, true),
        ("ifMode", "optional") => Rule::InMode(argument, false),
        ("unionMember", _) => Rule::UnionMember,
        ("item", "zeroOrOneOfMember") => {
            let (key, value) = argument.split_once(':')?;
            Rule::ItemMember(key, value)
        }
        ("ifEnabled" | "ifDisabled", value) => {
            Rule::MinimumIf(argument, name == "ifEnabled", value.strip_prefix("minimum=")?.parse().ok()?)
        }
        ("subfield", "optional") => Rule::MemberOptional,
        ("subfield", value) => Rule::MemberFormat(argument, value.strip_prefix("format=")?),
        _ => return None,
    })
}

/// Adds, to the types with rules, every type that leads to one of them.
fn build(rules: &Rules) -> Table {
    if rules.is_empty() {
        return Table::new();
    }
    let mut leading: BTreeSet<&'static str> = rules.keys().copied().collect();
    loop {
        let before = leading.len();
        for (name, fact) in facts::all() {
            if fact.fields().any(|line| !matches!(nested(line, &leading), Nested::Nothing)) {
                leading.insert(name);
            }
        }
        if leading.len() == before {
            break;
        }
    }
    leading.iter().map(|name| (*name, fields(name, rules, &leading))).collect()
}

fn fields(name: &'static str, rules: &Rules, leading: &BTreeSet<&'static str>) -> Vec<DeclaredField> {
    let declared = rules.get(name).map_or(&[][..], Vec::as_slice);
    let mut found = Vec::new();
    for line in facts::of(name).into_iter().flat_map(|fact| fact.fields()) {
        let Some((field, code, mut flags)) = facts::field(line) else { continue };
        let rules = declared.iter().find(|(name, _)| *name == field).map(|(_, rules)| rules.clone());
        let nested = nested(line, leading);
        if rules.is_some() || nested != Nested::Nothing {
            found.push(DeclaredField {
                name: field,
                is_pointer: flags.any(|flag| flag == Flag::Pointer),
                code: if let TypeCode::List(items, _) = code { items } else { "" },
                rules: rules.unwrap_or_default(),
                nested,
            });
        }
    }
    found
}

/// Returns the types with rules that a field leads to.
fn nested(line: &'static str, leading: &BTreeSet<&'static str>) -> Nested {
    let with_rules = |code: &'static str| match facts::type_code(code) {
        TypeCode::Definition(name) if leading.contains(name) => Some(name),
        _ => None,
    };
    let found = facts::field(line).and_then(|(_, code, _)| match code {
        TypeCode::Definition(name) => leading.contains(name).then_some(Nested::Object(name)),
        TypeCode::List(items, _) => with_rules(items).map(Nested::List),
        TypeCode::Map(values, _) => with_rules(values).map(Nested::Map),
        TypeCode::Scalar(..) => None,
    });
    found.unwrap_or(Nested::Nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_of_every_version_is_known_and_of_a_field() {
        for (version, text) in [(KubernetesVersion::V1_37, RULES_1_37)] {
            let types: BTreeMap<_, _> = facts::types_of(version).collect();
            let mut name = "";
            for line in text.lines() {
                let Some(field) = line.strip_prefix(' ') else {
                    name = line;
                    continue;
                };
                let mut words = field.split(' ');
                let field = words.next().unwrap_or_default();
                let is_field = |line: &str| line.split(' ').nth(1) == Some(field);
                assert!(types.get(name).is_some_and(|fact| fact.fields().any(is_field)), "{name}.{field}");
                for word in words {
                    assert!(rule(word).is_some(), "{version}: {name}.{field}: {word}");
                }
            }
        }
    }
}
