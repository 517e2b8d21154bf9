//! Checks of an object by the rules that are declared with its types, in kube-apiserver's words and order.
//!
//! In a version with declared rules, these report after all written ones, and replace the written ones that say the same of a
//! field. Updates are checked only where they change something.

mod formats;

use std::collections::BTreeSet;

use serde_json::Value;

use super::field::Field;
use super::kind::means_the_same;
use super::report::{IMMUTABLE, Report};
use crate::error::{CauseReason, FieldError};
use crate::kubernetes::FeatureGate;
use crate::schema::rules::{self, DeclaredField, Nested, Rule};
use crate::schema::shown;

const NOT_MODIFIED: &str = "field cannot be modified once set";

/// Adds the problems that the declared rules find, and removes the written problems that they replace.
pub(crate) fn take_over(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let mut report = Report::of(new);
    let Some(fields) = report.definition().and_then(rules::of_definition) else { return };
    let mut check = Check { is_update: old.is_some(), report: &mut report };
    let old = old.map(Field::root);
    check.object(fields, &Field::root(new), old.as_ref());
    let declared = report.errors;
    errors.retain(|written| !declared.iter().any(|declared| says_the_same(declared, written)));
    errors.extend(declared);
}

/// Reports whether two problems are of one field and one rule. Of the rules whose problems have the same reason, those about
/// changes are of another kind, and those that compare the field with another one, which they name last, are only written.
fn says_the_same(declared: &FieldError, written: &FieldError) -> bool {
    let of_change =
        |error: &FieldError| error.detail.ends_with(IMMUTABLE) || error.detail.ends_with(NOT_MODIFIED);
    declared.field == written.field
        && declared.reason == written.reason
        && of_change(declared) == of_change(written)
        && !written.detail.ends_with('`')
}

/// Reports whether a value is the zero value of its Go type.
fn is_zero(is_pointer: bool, field: &Field<'_, '_>) -> bool {
    match field.value() {
        Value::Null => true,
        _ if is_pointer => false,
        Value::Bool(flag) => !flag,
        Value::Number(_) => field.number() == 0,
        _ => field.is_empty(),
    }
}

struct Check<'r> {
    is_update: bool,
    report: &'r mut Report,
}

impl Check<'_> {
    fn object(&mut self, fields: &[DeclaredField], new: &Field<'_, '_>, old: Option<&Field<'_, '_>>) {
        self.modes(fields, new, old);
        self.union(fields, new, old);
        for field in fields {
            let before = old.map(|old| old.get(field.name));
            self.field(field, &new.get(field.name), before.as_ref());
        }
    }

    /// Checks that the members fit the mode that another member selects.
    fn modes(&mut self, fields: &[DeclaredField], new: &Field<'_, '_>, old: Option<&Field<'_, '_>>) {
        let Some(discriminator) = fields.iter().find(|field| field.rules.contains(&Rule::Mode)) else {
            return;
        };
        let mode = new.text_of(discriminator.name);
        let same_mode = old.is_some_and(|old| old.text_of(discriminator.name) == mode);
        let in_mode =
            |rule: &Rule| if let Rule::InMode(of, required) = *rule { Some((of, required)) } else { None };
        let mut members: Vec<&DeclaredField> =
            fields.iter().filter(|field| field.rules.iter().any(|rule| in_mode(rule).is_some())).collect();
        members.sort_by_key(|field| field.name);
        for member in members {
            let value = new.get(member.name);
            if self.is_update && same_mode && old.is_some_and(|old| is_same(&value, &old.get(member.name))) {
                continue;
            }
            let is_set = !is_zero(member.is_pointer, &value);
            match member.rules.iter().filter_map(in_mode).find(|(of, _)| *of == mode) {
                Some((_, true)) if !is_set => self.report.required(&value, ""),
                None if is_set => self.report.forbidden(&value, ""),
                _ => {}
            }
        }
    }

    /// Checks that exactly one member of a union is set.
    fn union(&mut self, fields: &[DeclaredField], new: &Field<'_, '_>, old: Option<&Field<'_, '_>>) {
        let members: Vec<&DeclaredField> =
            fields.iter().filter(|field| field.rules.contains(&Rule::UnionMember)).collect();
        let given = |object: &Field<'_, '_>| -> Vec<&'static str> {
            let set = members.iter().filter(|member| !is_zero(member.is_pointer, &object.get(member.name)));
            set.map(|member| member.name).collect()
        };
        let found = given(new);
        if members.is_empty() || self.is_update && old.is_some_and(|old| given(old) == found) {
            return;
        }
        let all = quoted_list(members.iter().map(|member| member.name));
        match found.len() {
            0 => self.report.invalid_text(new, "", &format!("must specify one of: {all}")),
            1 => {}
            _ => {
                let shown = format!("{{{}}}", found.join(", "));
                self.report.invalid_text(new, &shown, &format!("must specify exactly one of: {all}"));
            }
        }
    }

    fn field(&mut self, field: &DeclaredField, value: &Field<'_, '_>, old: Option<&Field<'_, '_>>) {
        if self.is_update && old.is_some_and(|old| is_same(value, old)) {
            return;
        }
        // Rules that make further checks pointless come first, all of them.
        let mut ends = false;
        for rule in &field.rules {
            ends |= self.ends(*rule, field.is_pointer, value, old);
        }
        if ends {
            return;
        }
        for rule in &field.rules {
            self.content(*rule, field, value, old);
        }
        self.item_members(field, value, old);
        self.nested(field, value, old);
    }

    /// Checks a rule whose violation ends the checks of the field.
    fn ends(
        &mut self,
        rule: Rule,
        is_pointer: bool,
        value: &Field<'_, '_>,
        old: Option<&Field<'_, '_>>,
    ) -> bool {
        let count = value.list().len();
        match rule {
            Rule::Optional => return is_zero(is_pointer, value),
            Rule::Required if is_zero(is_pointer, value) => self.report.required(value, ""),
            Rule::Immutable if self.is_update => self.report.invalid_shown(value, &"null", IMMUTABLE),
            Rule::NotModified if self.is_update && value.is_set() && old.is_some_and(Field::is_set) => {
                self.report.invalid_shown(value, &"null", NOT_MODIFIED);
            }
            Rule::MaxItems(max) if count > max => self.report.too_many(value, count, max),
            _ => return false,
        }
        true
    }

    /// Checks a rule about the contents of the field.
    fn content(
        &mut self,
        rule: Rule,
        field: &DeclaredField,
        value: &Field<'_, '_>,
        old: Option<&Field<'_, '_>>,
    ) {
        match rule {
            Rule::Minimum(least) => self.minimum(value, least),
            Rule::MinimumIf(gate, is_on, least)
                if FeatureGate::named(gate).map(FeatureGate::is_on) == Some(is_on) =>
            {
                self.minimum(value, least);
            }
            Rule::MaxLength(max) if value.text().chars().count() > max => {
                let detail = format!("Too long: may not be more than {max} characters");
                self.report.push(value, CauseReason::TooLong, detail);
            }
            Rule::MaxBytes(max) if value.text().len() > max => self.report.too_long(value, max),
            Rule::Format(format) if value.is_set() => {
                formats::check(format, value, value.text(), self.report);
            }
            Rule::KeyFormat(format) => {
                for (key, _) in value.entries().filter(|(key, _)| !old.is_some_and(|old| old.has(key))) {
                    formats::check(format, value, key, self.report);
                }
            }
            Rule::MemberFormat(name, format) => {
                let (member, before) = (value.get(name), old.map(|old| old.text_of(name)));
                let is_kept = self.is_update && before == Some(member.text());
                if !member.text().is_empty() && !is_kept {
                    formats::check(format, &member, member.text(), self.report);
                }
            }
            Rule::Enumeration(values) if value.is_set() => {
                let mut supported: Vec<&str> = values.split('|').collect();
                if !supported.contains(&value.text()) {
                    supported.sort_unstable();
                    self.report.not_supported(value, &supported);
                }
            }
            Rule::UniqueItems => self.unique(field, value, &[]),
            Rule::UniqueKeys if !field.rules.contains(&Rule::CustomUnique) => {
                self.unique(field, value, &keys(field));
            }
            _ => {}
        }
    }

    fn minimum(&mut self, value: &Field<'_, '_>, least: i64) {
        if value.integer().is_some_and(|number| number < least) {
            self.report.invalid(value, &format!("must be greater than or equal to {least}"));
        }
    }

    /// Reports items that repeat an earlier one, as a whole or by their keys.
    fn unique(&mut self, field: &DeclaredField, value: &Field<'_, '_>, keys: &[&str]) {
        let mut seen = BTreeSet::new();
        for item in value.items() {
            let id: Vec<&str> = if keys.is_empty() {
                vec![item.text()]
            } else {
                keys.iter().map(|key| item.text_of(key)).collect()
            };
            if !seen.insert(id) {
                let shown = shown::served(field.code, item.value()).compact();
                self.report.duplicate_shown(&item, &shown);
            }
        }
    }

    /// Checks that a list has at most one item of a group.
    fn item_members(&mut self, field: &DeclaredField, value: &Field<'_, '_>, old: Option<&Field<'_, '_>>) {
        let members: Vec<(&str, &str)> = field
            .rules
            .iter()
            .filter_map(|rule| if let Rule::ItemMember(key, text) = *rule { Some((key, text)) } else { None })
            .collect();
        let given = |list: &Field<'_, '_>| -> Vec<String> {
            let has = |(key, text): &&(&str, &str)| list.items().any(|item| item.text_of(key) == *text);
            members.iter().filter(has).map(|member| item_name(field.name, *member)).collect()
        };
        let found = given(value);
        let is_known = self.is_update && old.is_some_and(|old| old.is_set() && given(old) == found);
        if found.len() > 1 && !is_known {
            let all: Vec<String> = members.iter().map(|member| item_name(field.name, *member)).collect();
            let why = format!("must specify at most one of: {}", quoted_list(all.iter().map(String::as_str)));
            self.report.invalid_text(value, &format!("{{{}}}", found.join(", ")), &why);
        }
    }

    fn nested(&mut self, field: &DeclaredField, value: &Field<'_, '_>, old: Option<&Field<'_, '_>>) {
        match field.nested {
            Nested::Nothing => {}
            Nested::Object(name) => {
                if let Some(fields) = rules::of(name).filter(|_| value.is_set() || !field.is_pointer) {
                    self.object(fields, value, old.filter(|old| old.is_set()));
                }
            }
            Nested::List(name) => {
                let (Some(fields), keys) = (rules::of(name), keys(field)) else { return };
                for item in value.items() {
                    let id = |item: &Field<'_, '_>| -> Vec<String> {
                        keys.iter().map(|key| item.text_of(key).to_owned()).collect()
                    };
                    // Items without keys cannot be matched with their former state, so all of them are checked once one changes.
                    let before = old.filter(|_| !keys.is_empty()).and_then(|old| {
                        let index = old.items().position(|other| id(&other) == id(&item))?;
                        Some((old, index))
                    });
                    match before.map(|(old, index)| old.index(index)) {
                        Some(before) if self.is_update && is_same(&item, &before) => {}
                        before => self.object(fields, &item, before.as_ref()),
                    }
                }
            }
            Nested::Map(name) => {
                let Some(fields) = rules::of(name) else { return };
                for (key, item) in value.entries() {
                    let before = old.filter(|old| old.has(key)).map(|old| old.get(key));
                    if !(self.is_update && before.as_ref().is_some_and(|before| is_same(&item, before))) {
                        self.object(fields, &item, before.as_ref());
                    }
                }
            }
        }
    }
}

/// Returns the keys of the items of a list.
fn keys(field: &DeclaredField) -> Vec<&'static str> {
    let key = |rule: &Rule| if let Rule::Key(key) = *rule { Some(key) } else { None };
    field.rules.iter().filter_map(key).collect()
}

fn is_same(new: &Field<'_, '_>, old: &Field<'_, '_>) -> bool {
    means_the_same(Some(new.value()), Some(old.value()))
}

/// Returns the name of an item, such as `conditions[{"type": "Approved"}]`.
fn item_name(list: &str, (key, text): (&str, &str)) -> String {
    format!("{list}[{{\"{key}\": \"{text}\"}}]")
}

fn quoted_list<'n>(names: impl Iterator<Item = &'n str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
