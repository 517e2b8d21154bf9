//! `x-kubernetes-validations`: rules in the Common Expression Language.
//!
//! `gc-cel` evaluates the expressions; schemas determine the types of their values. Each object has a single budget for all of its
//! rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use gc_cel::{Budget, EvalError, Scope, Typing, Val};
use serde_json::Value;

use super::field;
use super::validate::key_of;
use crate::error::{CauseReason, FieldError};
use crate::schema::{ListType, Node, Schema, StringFormat};

mod declare;
mod definition;
#[cfg(test)]
mod tests;

pub(super) use definition::check_rules;

/// Maximum cost of all rules for one object, in steps.
const BUDGET: u64 = 10_000_000;

/// Maximum cost of one evaluation of a rule, in steps.
const CALL_BUDGET: u64 = 1_000_000;

/// Parsed rules of a schema, by their text.
pub(super) type Programs = BTreeMap<Arc<str>, Program>;

/// A parsed rule.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Program {
    expression: gc_cel::Program,
    uses_old: bool,
}

/// Parses one rule; the error explains why it cannot be evaluated.
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

    fn is_object(&self) -> bool {
        matches!(self.node, Node::Object(_))
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

/// Compiles all rules of a schema, and their message expressions. Rules that do not compile are omitted: their definitions caused a
/// warning or were refused.
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

/// Rules to evaluate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleSelection {
    /// Rules for new or changed values, and transition rules.
    Changed,
    /// Rules for stored values that do not change, whose failures are not the writer's fault.
    Unchanged,
}

/// Evaluates the rules of a schema; `old` is the stored value, for transition rules.
pub(super) fn check(
    schema: &Schema,
    programs: &Programs,
    path: &str,
    value: &Value,
    old: Option<&Value>,
    which: RuleSelection,
) -> Vec<FieldError> {
    let mut checker = Checker { programs, which, left: BUDGET, problems: Vec::new(), exhausted: false };
    checker.check(schema, path, value, old, false);
    checker.problems
}

struct Checker<'p> {
    programs: &'p Programs,
    which: RuleSelection,
    left: u64,
    problems: Vec<FieldError>,
    exhausted: bool,
}

impl Checker<'_> {
    /// Checks a value. `unchanged` states whether the nearest enclosing value with a stored counterpart equals that counterpart.
    fn check(&mut self, schema: &Schema, path: &str, value: &Value, old: Option<&Value>, unchanged: bool) {
        if self.exhausted || value.is_null() {
            return;
        }
        let unchanged = old.map_or(unchanged, |old| old == value);
        for rule in schema.validations.iter().flat_map(|validations| &validations.rules) {
            self.rule(schema, rule, path, value, old, unchanged);
            if self.exhausted {
                return;
            }
        }
        match (&schema.node, value) {
            (Node::Object(object), Value::Object(map)) => {
                for (name, property) in &object.properties {
                    if let Some(value) = map.get(&**name) {
                        let old = old.and_then(|old| old.get(&**name));
                        self.check(&property.schema, &field::child(path, name), value, old, unchanged);
                    }
                }
            }
            (Node::Map(values), Value::Object(map)) => {
                for (name, value) in map {
                    let old = old.and_then(|old| old.get(name));
                    self.check(&values.values, &format!("{path}[{name}]"), value, old, unchanged);
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
                    self.check(&list.items, &format!("{path}[{index}]"), item, old, unchanged);
                }
            }
            _ => {}
        }
    }

    fn rule(
        &mut self,
        schema: &Schema,
        rule: &Value,
        path: &str,
        value: &Value,
        old: Option<&Value>,
        unchanged: bool,
    ) {
        let text = rule["rule"].as_str().unwrap_or_default();
        let Some(program) = self.programs.get(text) else { return };
        let optional_old = rule["optionalOldSelf"] == true;
        // Transition rules need a value to compare with.
        if program.uses_old && old.is_none() && !optional_old {
            return;
        }
        // A stored value that does not change is not the writer's fault.
        let is_forgiven = !program.uses_old && unchanged;
        if is_forgiven != (self.which == RuleSelection::Unchanged) {
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
        // kube-apiserver names the root this way.
        let path = if path.is_empty() { "<nil>" } else { path };
        let type_name = super::validate::type_name(&schema.node).unwrap_or_default();
        match self.evaluate(program, &mut scope) {
            Ok(Val::Bool(true)) => {}
            Ok(_) => {
                let detail = self.message(rule, &mut scope).or_else(|| message.map(str::to_owned));
                let detail = detail.unwrap_or_else(|| format!("failed rule: {}", text.trim()));
                self.problems.push(problem(schema, rule, path, value, &detail));
            }
            Err(EvalError::TooExpensive) => {
                self.exhausted = true;
                let why = if self.left == 0 {
                    "validation failed due to running out of cost budget, no further validation rules will be run"
                        .to_owned()
                } else {
                    format!(
                        "'operation cancelled: actual cost limit exceeded': no further validation rules will be run \
                         due to call cost exceeds limit for rule: {named}"
                    )
                };
                self.problems.push(field::invalid_text(path, type_name, &why));
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

    /// Evaluates a rule within the limit of one evaluation, and within the remaining budget of the object.
    fn evaluate<'v>(&mut self, program: &Program, scope: &mut Scope<'v>) -> Result<Val<'v>, EvalError> {
        let most = self.left.min(CALL_BUDGET);
        let mut budget = Budget::new(most);
        let result = program.expression.evaluate(scope, &mut budget);
        self.left -= most - budget.left();
        result
    }

    fn message(&mut self, rule: &Value, scope: &mut Scope<'_>) -> Option<String> {
        /// Maximum length of a message in bytes.
        const LONGEST: usize = 5 * 1024;
        let program = self.programs.get(rule["messageExpression"].as_str()?)?;
        match self.evaluate(program, scope) {
            Ok(Val::Text(text)) => {
                let text = text.trim();
                (!text.is_empty() && text.len() <= LONGEST && !text.contains('\n')).then(|| text.to_owned())
            }
            _ => None,
        }
    }
}

fn problem(schema: &Schema, rule: &Value, path: &str, value: &Value, detail: &str) -> FieldError {
    let path = match rule["fieldPath"].as_str().and_then(|below| field_path(schema, below)) {
        Some(below) => field::child(path.trim_start_matches("<nil>"), &below),
        None => path.to_owned(),
    };
    let shown = match value {
        Value::Array(_) | Value::Object(_) => String::new(),
        scalar => format!(": {}", field::printed(scalar)),
    };
    match rule["reason"].as_str() {
        Some("FieldValueRequired") => field::required(path, detail),
        Some("FieldValueForbidden") => field::forbidden(path, detail),
        Some("FieldValueDuplicate") => field::duplicate(path, value),
        _ => field::error(path, CauseReason::Invalid, format!("Invalid value{shown}: {detail}")),
    }
}

/// Returns a field path such as `.spec['key']` in the form used in errors, if it leads to a field of the schema.
pub(super) fn field_path(schema: &Schema, path: &str) -> Option<String> {
    let (mut schema, mut rest, mut found) = (schema, path, String::new());
    while !rest.is_empty() {
        let name;
        if let Some(quoted) = rest.strip_prefix("['") {
            let mut end = quoted.find('\'')?;
            while quoted[..end].ends_with('\\') {
                end += 1 + quoted[end + 1..].find('\'')?;
            }
            name = quoted[..end].replace("\\'", "'").replace("\\\\", "\\");
            rest = quoted[end + 1..].strip_prefix(']')?;
        } else {
            let plain = rest.strip_prefix('.')?;
            let end = plain.find(['.', '[']).unwrap_or(plain.len());
            name = plain[..end].to_owned();
            rest = &plain[end..];
        }
        match &schema.node {
            Node::Object(object) => {
                schema = &object.properties.get(name.as_str())?.schema;
                found = field::child(&found, &name);
            }
            Node::Map(map) => {
                schema = &map.values;
                found = format!("{found}[{name}]");
            }
            _ => return None,
        }
    }
    (!found.is_empty()).then_some(found)
}
