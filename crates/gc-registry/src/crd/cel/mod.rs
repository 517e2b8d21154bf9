//! `x-kubernetes-validations`: rules in the Common Expression Language.
//!
//! The expressions are `gc-cel`'s; schemas type their values. Every object has one budget for all of its rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use gc_cel::{Budget, EvalError, Scope, Typing, Val};
use serde_json::Value;

use super::field;
use super::validate::key_of;
use crate::error::{CauseReason, FieldError};
use crate::schema::{ListType, Node, Schema, StringFormat};

#[cfg(test)]
mod tests;

/// What the rules of one object may cost together, in steps.
const BUDGET: u64 = 1_000_000;

/// The parsed rules of a schema, by their text.
pub(super) type Programs = BTreeMap<Arc<str>, Program>;

/// A parsed rule.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Program {
    expression: gc_cel::Program,
    uses_old: bool,
}

/// Parses one rule; the error says why it cannot be evaluated.
pub(super) fn compile(rule: &str) -> Result<Program, String> {
    let expression = gc_cel::Program::compile(rule).map_err(|error| error.to_string())?;
    let uses_old = expression.mentions("oldSelf");
    Ok(Program { expression, uses_old })
}

impl Typing for Schema {
    fn is_double(&self) -> bool {
        matches!(self.node, Node::Number)
    }

    fn format(&self) -> Option<&str> {
        match &self.node {
            Node::String(StringFormat::Other(format)) => Some(format),
            _ => None,
        }
    }

    fn item(&self) -> Option<&dyn Typing> {
        match &self.node {
            Node::List(list) => Some(&*list.items),
            _ => None,
        }
    }

    fn field(&self, name: &str) -> Option<&dyn Typing> {
        Self::field(self, name).map(|schema| schema as &dyn Typing)
    }
}

/// Compiles all rules of a schema, and their message expressions. Those that do not compile are left out:
/// definitions with them got a warning or were refused.
pub(super) fn programs(schema: &Schema, into: &mut Programs) {
    for rule in schema.validations.iter().flat_map(|validations| &validations.rules) {
        for key in ["rule", "messageExpression"] {
            let Some(text) = rule[key].as_str().filter(|text| !into.contains_key(*text)) else { continue };
            if let Ok(program) = compile(text) {
                into.insert(text.into(), program);
            }
        }
    }
    match &schema.node {
        Node::Object(object) => {
            object.properties.values().for_each(|property| programs(&property.schema, into));
        }
        Node::Map(map) => programs(&map.values, into),
        Node::List(list) => programs(&list.items, into),
        _ => {}
    }
}

/// Evaluates the rules of a schema; `old` is the stored value, for transition rules.
pub(super) fn check(
    schema: &Schema,
    programs: &Programs,
    path: &str,
    value: &Value,
    old: Option<&Value>,
) -> Vec<FieldError> {
    let mut checker =
        Checker { programs, budget: Budget::new(BUDGET), problems: Vec::new(), exhausted: false };
    checker.check(schema, path, value, old);
    checker.problems
}

struct Checker<'p> {
    programs: &'p Programs,
    budget: Budget,
    problems: Vec<FieldError>,
    exhausted: bool,
}

impl Checker<'_> {
    fn check(&mut self, schema: &Schema, path: &str, value: &Value, old: Option<&Value>) {
        if self.exhausted || value.is_null() {
            return;
        }
        for rule in schema.validations.iter().flat_map(|validations| &validations.rules) {
            self.rule(schema, rule, path, value, old);
            if self.exhausted {
                return;
            }
        }
        match (&schema.node, value) {
            (Node::Object(object), Value::Object(map)) => {
                for (name, property) in &object.properties {
                    if let Some(value) = map.get(&**name) {
                        let old = old.and_then(|old| old.get(&**name));
                        self.check(&property.schema, &field::child(path, name), value, old);
                    }
                }
            }
            (Node::Map(values), Value::Object(map)) => {
                for (name, value) in map {
                    let old = old.and_then(|old| old.get(name));
                    self.check(&values.values, &format!("{path}[{name}]"), value, old);
                }
            }
            (Node::List(list), Value::Array(items)) => {
                let old_items = old.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
                let by_key: BTreeMap<String, &Value> = match &list.list_type {
                    ListType::Map(keys) => {
                        old_items.iter().map(|item| (key_of(item, keys, &list.items), item)).collect()
                    }
                    _ => BTreeMap::new(),
                };
                for (index, item) in items.iter().enumerate() {
                    let old = match &list.list_type {
                        ListType::Map(keys) => by_key.get(&key_of(item, keys, &list.items)).copied(),
                        _ => None,
                    };
                    self.check(&list.items, &format!("{path}[{index}]"), item, old);
                }
            }
            _ => {}
        }
    }

    fn rule(&mut self, schema: &Schema, rule: &Value, path: &str, value: &Value, old: Option<&Value>) {
        let text = rule["rule"].as_str().unwrap_or_default();
        let Some(program) = self.programs.get(text) else { return };
        let optional_old = rule["optionalOldSelf"] == true;
        // Transition rules need something to compare with.
        if program.uses_old && old.is_none() && !optional_old {
            return;
        }
        // What is stored and does not change is not held against the writer.
        if !program.uses_old && old == Some(value) {
            return;
        }
        let mut scope = Scope::default();
        scope.bind("self", value, Some(schema));
        match old {
            Some(old) if optional_old => {
                scope.set("oldSelf", Val::Optional(Some(Val::of(old, Some(schema)).into())));
            }
            Some(old) => scope.bind("oldSelf", old, Some(schema)),
            None => scope.set("oldSelf", Val::Optional(None)),
        }
        let message = rule["message"].as_str().map(str::trim).filter(|message| !message.is_empty());
        let named = message.unwrap_or_else(|| text.trim());
        // The root has no name; that is how kube-apiserver says it.
        let path = if path.is_empty() { "<nil>" } else { path };
        let type_name = super::validate::type_name(&schema.node).unwrap_or_default();
        match program.expression.evaluate(&mut scope, &mut self.budget) {
            Ok(Val::Bool(true)) => {}
            Ok(_) => {
                let detail = self.message(rule, &mut scope).or_else(|| message.map(str::to_owned));
                let detail = detail.unwrap_or_else(|| format!("failed rule: {}", text.trim()));
                self.problems.push(problem(rule, path, value, &detail));
            }
            Err(EvalError::TooExpensive) => {
                self.exhausted = true;
                let why = "validation failed due to running out of cost budget, no further validation rules will be run";
                self.problems.push(field::invalid_text(path, type_name, why));
            }
            Err(EvalError::Failed(error)) if error.starts_with("no such overload") => {
                let why = format!(
                    "'{error}': call arguments did not match a supported operator, function or macro signature for rule: {named}"
                );
                self.problems.push(field::invalid_text(path, type_name, &why));
            }
            Err(EvalError::Failed(error)) => {
                let why = format!("{error} evaluating rule: {named}");
                self.problems.push(field::invalid_text(path, type_name, &why));
            }
        }
    }

    fn message(&mut self, rule: &Value, scope: &mut Scope<'_>) -> Option<String> {
        let program = self.programs.get(rule["messageExpression"].as_str()?)?;
        match program.expression.evaluate(scope, &mut self.budget) {
            Ok(Val::Text(text)) if !text.trim().is_empty() && !text.contains('\n') => Some(text.to_string()),
            _ => None,
        }
    }
}

fn problem(rule: &Value, path: &str, value: &Value, detail: &str) -> FieldError {
    let path = match rule["fieldPath"].as_str() {
        Some(below) if !below.is_empty() => {
            field::child(path.trim_start_matches("<nil>"), below.trim_start_matches('.'))
        }
        _ => path.to_owned(),
    };
    let shown = match value {
        Value::Array(_) | Value::Object(_) => String::new(),
        scalar => format!(": {}", field::printed(scalar)),
    };
    match rule["reason"].as_str() {
        Some("FieldValueRequired") => field::required(path, detail),
        Some("FieldValueForbidden") => field::forbidden(path, detail),
        Some("FieldValueDuplicate") => {
            field::error(path, CauseReason::Duplicate, format!("Duplicate value{shown}: {detail}"))
        }
        _ => field::error(path, CauseReason::Invalid, format!("Invalid value{shown}: {detail}")),
    }
}
