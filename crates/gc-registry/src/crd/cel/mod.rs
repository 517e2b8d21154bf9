//! `x-kubernetes-validations`: rules in the Common Expression Language.
//!
//! Evaluated dynamically: what Kubernetes' type checker would refuse when a definition is made fails here
//! when the rule is evaluated. Every object has one budget for all of its rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::field;
use super::validate::key_of;
use crate::error::{CauseReason, FieldError};
use crate::schema::{ListType, Node, Schema};

mod eval;
mod functions;
mod parse;
#[cfg(test)]
mod tests;
mod value;

use eval::{Budget, EvalError, Scope, bind, evaluate};
use parse::{Expression, mentions, parse};
use value::Val;

/// What the rules of one object may cost together, in steps.
const BUDGET: u64 = 1_000_000;

/// The parsed rules of a schema, by their text.
pub(super) type Programs = BTreeMap<Arc<str>, Program>;

/// A parsed rule.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Program {
    expression: Expression,
    uses_old: bool,
}

/// Parses one rule; the error says why it cannot be evaluated.
pub(super) fn compile(rule: &str) -> Result<Program, String> {
    let expression = parse(rule)?;
    if let Some(name) = unknown_function(&expression) {
        return Err(format!("undeclared reference to '{name}'"));
    }
    Ok(Program { expression, uses_old: mentions(rule, "oldSelf") })
}

/// The first function that an expression calls and nobody knows.
fn unknown_function(expression: &Expression) -> Option<String> {
    let among = |parts: &[&Expression]| parts.iter().find_map(|part| unknown_function(part));
    match expression {
        Expression::Call { target, name, arguments } => {
            let namespaced = match target.as_deref() {
                Some(Expression::Name(namespace)) => format!("{namespace}.{name}"),
                _ => String::new(),
            };
            if functions::KNOWN.contains(&namespaced.as_str()) {
                return arguments.iter().find_map(unknown_function);
            }
            if !functions::KNOWN.contains(&name.as_str()) {
                return Some(name.clone());
            }
            target
                .as_deref()
                .and_then(unknown_function)
                .or_else(|| arguments.iter().find_map(unknown_function))
        }
        Expression::Select { operand, .. }
        | Expression::Has { operand, .. }
        | Expression::Not(operand)
        | Expression::Negate(operand) => unknown_function(operand),
        Expression::Index { operand, index, .. } => among(&[operand, index]),
        Expression::Macro { range, bodies, .. } => {
            unknown_function(range).or_else(|| bodies.iter().find_map(unknown_function))
        }
        Expression::List(items) => items.iter().find_map(unknown_function),
        Expression::Map(entries) => entries.iter().find_map(|(key, value)| among(&[key, value])),
        Expression::Binary(_, left, right) => among(&[left, right]),
        Expression::Condition(parts) => parts.iter().find_map(unknown_function),
        _ => None,
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
    let mut checker = Checker { programs, budget: Budget(BUDGET), problems: Vec::new(), exhausted: false };
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
        bind(&mut scope, "self", value, schema);
        match old {
            Some(old) if optional_old => {
                scope.set("oldSelf", Val::Optional(Some(Val::of(old, Some(schema)).into())));
            }
            Some(old) => bind(&mut scope, "oldSelf", old, schema),
            None => scope.set("oldSelf", Val::Optional(None)),
        }
        let message = rule["message"].as_str().map(str::trim).filter(|message| !message.is_empty());
        let named = message.unwrap_or_else(|| text.trim());
        // The root has no name; that is how kube-apiserver says it.
        let path = if path.is_empty() { "<nil>" } else { path };
        let type_name = super::validate::type_name(&schema.node).unwrap_or_default();
        match evaluate(&program.expression, &mut scope, &mut self.budget) {
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
        match evaluate(&program.expression, scope, &mut self.budget) {
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
