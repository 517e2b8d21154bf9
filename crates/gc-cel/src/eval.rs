//! Evaluation, with a budget.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use serde_json::Value;

use crate::budget::{Budget, EvalError, failed};
use crate::functions::{self, mismatch};
use crate::parse::qualified;
use crate::printed::printed;
use crate::time::Timestamp;
use crate::tree::{Expression, Macro, Node, Operator};
use crate::value::{Evaluation, Typing, Val};

/// Maximum nesting of lists, maps and optional values that an expression creates.
const DEEPEST_VALUE: usize = 64;

/// Names that an expression may use, innermost last.
#[derive(Clone, Debug, Default)]
pub struct Scope<'v> {
    names: Vec<(Arc<str>, Val<'v>)>,
    /// Name of an object whose fields are set individually, and those fields.
    object: Option<(Arc<str>, BTreeMap<String, Val<'v>>)>,
}

impl<'v> Scope<'v> {
    /// Binds a name to a value.
    pub fn set(&mut self, name: impl Into<Arc<str>>, value: Val<'v>) {
        self.names.push((name.into(), value));
    }

    /// Binds a name to a document, with its schema if it has one.
    pub fn bind(&mut self, name: &str, value: &'v Value, typing: Option<&'v dyn Typing>) {
        self.set(name, Val::of(value, typing));
    }

    /// Binds a name to an object without fields, replacing any object that was bound in this way before.
    pub fn set_object(&mut self, name: impl Into<Arc<str>>) {
        self.object = Some((name.into(), BTreeMap::new()));
    }

    /// Sets a field of that object, in constant time.
    pub fn set_field(&mut self, field: &str, value: Val<'v>) {
        if let Some((_, fields)) = &mut self.object {
            fields.insert(field.to_owned(), value);
        }
    }

    fn named(&self, name: &str) -> Option<&Val<'v>> {
        self.names.iter().rev().find(|(found, _)| **found == *name).map(|(_, value)| value)
    }

    fn fields(&self, name: &str) -> Option<&BTreeMap<String, Val<'v>>> {
        self.object.as_ref().filter(|(found, _)| **found == *name).map(|(_, fields)| fields)
    }

    fn has(&self, name: &str) -> bool {
        self.named(name).is_some() || self.fields(name).is_some()
    }

    /// Returns the value of a name. An object with individually set fields is copied, at a cost for each field.
    fn get(&self, name: &str, budget: &mut Budget) -> Result<Option<Val<'v>>, EvalError> {
        /// Cost of a field, which takes as much memory as several steps.
        const COPIED_FIELD: usize = 10;
        if let Some(value) = self.named(name) {
            return Ok(Some(value.clone()));
        }
        let Some(fields) = self.fields(name) else { return Ok(None) };
        budget.spend(fields.len().saturating_mul(COPIED_FIELD))?;
        let entries = fields.iter().map(|(field, value)| (Val::text(field), value.clone()));
        Ok(Some(Val::map(entries.collect())))
    }

    /// Returns an object with individually set fields, reduced to one of its fields.
    fn with_one_field(&self, name: &str, field: &str) -> Option<Val<'v>> {
        if self.named(name).is_some() {
            return None;
        }
        let found = self.fields(name)?.get(field).map(|value| (Val::text(field), value.clone()));
        Some(Val::map(found.into_iter().collect()))
    }
}

pub(crate) fn evaluate<'v>(node: &Node, scope: &mut Scope<'v>, budget: &mut Budget) -> Evaluation<'v> {
    budget.spend(1)?;
    let value = value_of(node, scope, budget)?;
    // A created value may contain another one many times, so each occurrence costs.
    let makes = matches!(
        node.expression,
        Expression::List(_)
            | Expression::Map(_)
            | Expression::Struct { .. }
            | Expression::Macro { .. }
            | Expression::Call { .. }
            | Expression::Binary(..)
    );
    if makes {
        value.weigh(DEEPEST_VALUE, budget)?;
    }
    Ok(value)
}

/// Evaluates a node, excluding the cost of the value itself.
fn value_of<'v>(node: &Node, scope: &mut Scope<'v>, budget: &mut Budget) -> Evaluation<'v> {
    match &node.expression {
        Expression::Null => Ok(Val::Null),
        Expression::Bool(value) => Ok(Val::Bool(*value)),
        Expression::Int(value) => Ok(Val::Int(*value)),
        Expression::Uint(value) => Ok(Val::Uint(*value)),
        Expression::Double(value) => Ok(Val::Double(*value)),
        Expression::Text(text) => Ok(Val::text(text)),
        Expression::Bytes(bytes) => Ok(Val::Bytes(bytes.as_slice().into())),
        Expression::Name(name) => match scope.get(name, budget)?.or_else(|| type_value(name)) {
            Some(value) => Ok(value),
            None => failed(format!("undeclared reference to '{name}'")),
        },
        Expression::Select { operand, field, optional } => {
            if let Some(named) = named_type(node, scope) {
                return Ok(named);
            }
            let operand = with_field(operand, field, scope, budget)?;
            read(&operand, &Val::text(field), *optional, budget)
        }
        Expression::Index { operand, index, optional } => {
            let operand = evaluate(operand, scope, budget)?;
            let index = evaluate(index, scope, budget)?;
            read(&operand, &index, *optional, budget)
        }
        Expression::Has { operand, field } => {
            let operand = match with_field(operand, field, scope, budget)? {
                Val::Optional(Some(value)) => (*value).clone(),
                Val::Optional(None) => return Ok(Val::Bool(false)),
                other => other,
            };
            Ok(Val::Bool(operand.part(&Val::text(field))?.is_some()))
        }
        Expression::Call { target, name, arguments } => {
            call(target.as_deref(), name, arguments, scope, budget)
        }
        Expression::Macro { kind, range, names, bodies } => {
            let range = evaluate(range, scope, budget)?;
            match kind {
                Macro::OptMap | Macro::OptFlatMap => {
                    optional_macro(*kind, &range, names, bodies, scope, budget)
                }
                _ => comprehend(*kind, &range, names, bodies, scope, budget),
            }
        }
        Expression::List(items) => list(items, scope, budget),
        Expression::Struct { fields, .. } => object(fields, scope, budget),
        Expression::Optional(value) => evaluate(value, scope, budget),
        Expression::Map(entries) => map(entries, scope, budget),
        Expression::Not(operand) => match evaluate(operand, scope, budget)? {
            Val::Bool(value) => Ok(Val::Bool(!value)),
            _ => failed("no such overload"),
        },
        Expression::Negate(operand) => match evaluate(operand, scope, budget)? {
            Val::Int(value) => {
                value.checked_neg().map_or_else(|| failed("integer overflow"), |v| Ok(Val::Int(v)))
            }
            Val::Double(value) => Ok(Val::Double(-value)),
            Val::Duration(value) => duration(value.checked_neg()),
            other => mismatch("-_", &[other]),
        },
        Expression::Binary(operator @ (Operator::And | Operator::Or), left, right) => {
            logic(*operator == Operator::Or, left, right, scope, budget)
        }
        Expression::Binary(operator, left, right) => {
            let left = evaluate(left, scope, budget)?;
            let right = evaluate(right, scope, budget)?;
            binary(*operator, &left, &right, budget)
        }
        Expression::Condition(parts) => match evaluate(&parts[0], scope, budget)? {
            Val::Bool(true) => evaluate(&parts[1], scope, budget),
            Val::Bool(false) => evaluate(&parts[2], scope, budget),
            _ => failed("no such overload"),
        },
    }
}

// Nodes that create values have separate functions: expressions are nested deeply, and each level uses stack space for all locals
// of this function.

fn list<'v>(items: &[Node], scope: &mut Scope<'v>, budget: &mut Budget) -> Evaluation<'v> {
    let mut list = Vec::with_capacity(items.len());
    for item in items {
        list.extend(element(item, scope, budget)?);
    }
    Ok(Val::list(list))
}

fn object<'v>(fields: &[(String, Node)], scope: &mut Scope<'v>, budget: &mut Budget) -> Evaluation<'v> {
    let mut map = Vec::with_capacity(fields.len());
    for (name, value) in fields {
        map.extend(element(value, scope, budget)?.map(|value| (Val::text(name), value)));
    }
    Ok(Val::Map(Rc::new(map)))
}

fn map<'v>(entries: &[(Node, Node)], scope: &mut Scope<'v>, budget: &mut Budget) -> Evaluation<'v> {
    let mut map = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        let key = evaluate(key, scope, budget)?;
        if !matches!(key, Val::Bool(_) | Val::Int(_) | Val::Uint(_) | Val::Text(_)) {
            return failed(format!("unsupported key type: {}", key.type_name()));
        }
        let value = element(value, scope, budget)?;
        // Of a repeated key, the last one wins. Numbers of different types are different keys.
        budget.spend(map.len() / 10)?;
        map.retain(|(known, _): &(Val<'_>, Val<'_>)| {
            known.type_name() != key.type_name() || known.compare(&key) != Some(Ordering::Equal)
        });
        map.extend(value.map(|value| (key, value)));
    }
    Ok(Val::Map(Rc::new(map)))
}

/// Evaluates an element of a list, a map or an object; returns `None` if it is optional and has no value.
fn element<'v>(
    node: &Node,
    scope: &mut Scope<'v>,
    budget: &mut Budget,
) -> Result<Option<Val<'v>>, EvalError> {
    let value = evaluate(node, scope, budget)?;
    match (&node.expression, value) {
        (Expression::Optional(_), Val::Optional(value)) => Ok(value.map(|value| (*value).clone())),
        (Expression::Optional(_), value) => failed(format!(
            "cannot initialize optional list element from non-optional value {}",
            printed(&value)
        )),
        (_, value) => Ok(Some(value)),
    }
}

fn optional_macro<'v>(
    kind: Macro,
    range: &Val<'v>,
    names: &[Arc<str>],
    bodies: &[Node],
    scope: &mut Scope<'v>,
    budget: &mut Budget,
) -> Evaluation<'v> {
    let (Val::Optional(value), [name], [body]) = (range, names, bodies) else {
        return failed("no such overload");
    };
    let Some(value) = value else { return Ok(Val::Optional(None)) };
    let depth = scope.names.len();
    scope.set(Arc::clone(name), (**value).clone());
    let result = evaluate(body, scope, budget);
    scope.names.truncate(depth);
    match kind {
        Macro::OptMap => result.map(|value| Val::Optional(Some(Rc::new(value)))),
        _ => result,
    }
}

/// Types that have a name.
const TYPES: [&str; 19] = [
    "bool",
    "bytes",
    "double",
    "google.protobuf.Duration",
    "google.protobuf.Timestamp",
    "int",
    "kubernetes.NamedFormat",
    "kubernetes.Quantity",
    "kubernetes.Semver",
    "kubernetes.URL",
    "list",
    "map",
    "net.CIDR",
    "net.IP",
    "null_type",
    "optional_type",
    "string",
    "type",
    "uint",
];

/// Reports whether a name belongs to a type.
pub(crate) fn is_type(name: &str) -> bool {
    TYPES.contains(&name)
}

fn type_value<'v>(name: &str) -> Option<Val<'v>> {
    TYPES.iter().find(|found| **found == name).map(|name| Val::Type(name))
}

/// Returns the type that a dotted name stands for, unless its first part is a variable.
fn named_type<'v>(node: &Node, scope: &Scope<'v>) -> Option<Val<'v>> {
    let mut root = node;
    while let Expression::Select { operand, .. } = &root.expression {
        root = operand;
    }
    let Expression::Name(first) = &root.expression else { return None };
    if scope.has(first) {
        return None;
    }
    type_value(&qualified(node)?)
}

/// Evaluates an expression of which only one field is read.
fn with_field<'v>(node: &Node, field: &str, scope: &mut Scope<'v>, budget: &mut Budget) -> Evaluation<'v> {
    if let Expression::Name(name) = &node.expression
        && let Some(value) = scope.with_one_field(name, field)
    {
        budget.spend(1)?;
        return Ok(value);
    }
    evaluate(node, scope, budget)
}

/// Reads a part of a value. A text of a document is copied, which costs.
fn read<'v>(operand: &Val<'v>, key: &Val<'v>, optional: bool, budget: &mut Budget) -> Evaluation<'v> {
    /// Number of bytes copied per step.
    const COPIED: usize = 100;
    let found = select(operand, key, optional)?;
    let value = match &found {
        Val::Optional(Some(value)) => &**value,
        value => value,
    };
    if let Val::Text(text) = value {
        budget.spend(text.len() / COPIED)?;
    }
    Ok(found)
}

fn select<'v>(operand: &Val<'v>, key: &Val<'v>, optional: bool) -> Evaluation<'v> {
    match operand {
        Val::Optional(None) => return Ok(Val::Optional(None)),
        Val::Optional(Some(inner)) => {
            let found = select(inner, key, true)?;
            return Ok(found);
        }
        _ => {}
    }
    match operand.part(key)? {
        found if optional => Ok(Val::Optional(found.map(Rc::new))),
        Some(value) => Ok(value),
        None if operand.is_list() => failed(format!("index out of bounds: {}", printed(key))),
        None => failed(format!("no such key: {}", printed(key))),
    }
}

/// Evaluates `&&` and `||`: either side can decide the result, even if the other is an error.
fn logic<'v>(
    or: bool,
    left: &Node,
    right: &Node,
    scope: &mut Scope<'v>,
    budget: &mut Budget,
) -> Evaluation<'v> {
    let left = evaluate(left, scope, budget);
    match &left {
        Ok(Val::Bool(value)) if *value == or => return Ok(Val::Bool(or)),
        Err(EvalError::TooExpensive) => return left,
        _ => {}
    }
    let right = evaluate(right, scope, budget)?;
    match (left, right) {
        (_, Val::Bool(value)) if value == or => Ok(Val::Bool(or)),
        (Ok(Val::Bool(_)), Val::Bool(value)) => Ok(Val::Bool(value)),
        (Err(error), _) => Err(error),
        _ => failed("no such overload"),
    }
}

pub(crate) fn binary<'v>(
    operator: Operator,
    left: &Val<'v>,
    right: &Val<'v>,
    budget: &mut Budget,
) -> Evaluation<'v> {
    // The cost of comparing long values depends on their length.
    if let (Some(a), Some(b)) = (left.size(), right.size()) {
        budget.spend(a.min(b) / 10)?;
    }
    match operator {
        Operator::Equal => Ok(Val::Bool(left.equals(right, budget)?)),
        Operator::NotEqual => Ok(Val::Bool(!left.equals(right, budget)?)),
        Operator::In => {
            if let Some(items) = right.items() {
                Ok(Val::Bool(left.place_in(&items, budget)?.is_some()))
            } else if right.is_map() {
                Ok(Val::Bool(right.member(left).is_some()))
            } else {
                failed("no such overload")
            }
        }
        Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual => {
            let Some(order) = left.compare(right) else { return unordered(operator, left, right) };
            Ok(Val::Bool(match operator {
                Operator::Less => order.is_lt(),
                Operator::LessOrEqual => order.is_le(),
                Operator::Greater => order.is_gt(),
                _ => order.is_ge(),
            }))
        }
        _ => arithmetic(operator, left, right, budget),
    }
}

fn arithmetic<'v>(
    operator: Operator,
    left: &Val<'v>,
    right: &Val<'v>,
    budget: &mut Budget,
) -> Evaluation<'v> {
    let whole = |value: Option<i64>| value.map_or_else(|| failed("integer overflow"), |v| Ok(Val::Int(v)));
    let unsigned =
        |value: Option<u64>| value.map_or_else(|| failed("unsigned integer overflow"), |v| Ok(Val::Uint(v)));
    match (operator, left, right) {
        (Operator::Add, Val::Text(a), Val::Text(b)) => {
            budget.spend((a.len() + b.len()) / 10)?;
            Ok(Val::text(&format!("{a}{b}")))
        }
        (Operator::Add, Val::Bytes(a), Val::Bytes(b)) => {
            budget.spend((a.len() + b.len()) / 10)?;
            Ok(Val::Bytes([&**a, &**b].concat().into()))
        }
        (Operator::Add, Val::Int(a), Val::Int(b)) => whole(a.checked_add(*b)),
        (Operator::Subtract, Val::Int(a), Val::Int(b)) => whole(a.checked_sub(*b)),
        (Operator::Multiply, Val::Int(a), Val::Int(b)) => whole(a.checked_mul(*b)),
        (Operator::Divide | Operator::Remainder, Val::Int(_), Val::Int(0))
        | (Operator::Divide | Operator::Remainder, Val::Uint(_), Val::Uint(0)) => {
            failed(if operator == Operator::Divide { "division by zero" } else { "modulus by zero" })
        }
        (Operator::Divide, Val::Int(a), Val::Int(b)) => whole(a.checked_div(*b)),
        (Operator::Remainder, Val::Int(a), Val::Int(b)) => whole(a.checked_rem(*b)),
        (Operator::Add, Val::Uint(a), Val::Uint(b)) => unsigned(a.checked_add(*b)),
        (Operator::Subtract, Val::Uint(a), Val::Uint(b)) => unsigned(a.checked_sub(*b)),
        (Operator::Multiply, Val::Uint(a), Val::Uint(b)) => unsigned(a.checked_mul(*b)),
        (Operator::Divide, Val::Uint(a), Val::Uint(b)) => unsigned(a.checked_div(*b)),
        (Operator::Remainder, Val::Uint(a), Val::Uint(b)) => unsigned(a.checked_rem(*b)),
        (Operator::Add, Val::Duration(a), Val::Duration(b)) => duration(a.checked_add(*b)),
        (Operator::Subtract, Val::Duration(a), Val::Duration(b)) => duration(a.checked_sub(*b)),
        (Operator::Subtract, Val::Timestamp(a), Val::Timestamp(b)) => duration(Some(a.since(*b)?)),
        (Operator::Add, Val::Timestamp(t), Val::Duration(d))
        | (Operator::Add, Val::Duration(d), Val::Timestamp(t)) => timestamp(t.after(i128::from(*d))),
        (Operator::Subtract, Val::Timestamp(t), Val::Duration(d)) => timestamp(t.after(-i128::from(*d))),
        (Operator::Add, Val::Double(a), Val::Double(b)) => Ok(Val::Double(a + b)),
        (Operator::Subtract, Val::Double(a), Val::Double(b)) => Ok(Val::Double(a - b)),
        (Operator::Multiply, Val::Double(a), Val::Double(b)) => Ok(Val::Double(a * b)),
        (Operator::Divide, Val::Double(a), Val::Double(b)) => Ok(Val::Double(a / b)),
        _ => {
            if let (Operator::Add, Some(mut a), Some(b)) = (operator, left.items(), right.items()) {
                budget.spend(a.len() + b.len())?;
                a.extend(b);
                return Ok(Val::list(a));
            }
            mismatch(operator.function(), &[left.clone(), right.clone()])
        }
    }
}

/// Returns the error for two values that have no order.
fn unordered<'v>(operator: Operator, left: &Val<'v>, right: &Val<'v>) -> Evaluation<'v> {
    if left.number().is_some() && right.number().is_some() {
        return failed("NaN values cannot be ordered");
    }
    mismatch(operator.function(), &[left.clone(), right.clone()])
}

fn duration<'v>(nanoseconds: Option<i64>) -> Evaluation<'v> {
    nanoseconds.map_or_else(|| failed("integer overflow"), |value| Ok(Val::Duration(value)))
}

fn timestamp<'v>(timestamp: Result<Timestamp, EvalError>) -> Evaluation<'v> {
    timestamp.map(Val::Timestamp)
}

fn comprehend<'v>(
    kind: Macro,
    range: &Val<'v>,
    names: &[Arc<str>],
    bodies: &[Node],
    scope: &mut Scope<'v>,
    budget: &mut Budget,
) -> Evaluation<'v> {
    // With two names, a list binds index and item, a map key and value; a single name stands for the item or key.
    let pairs: Vec<(Val<'v>, Val<'v>)> = match (range.items(), range.entries()) {
        (Some(items), _) => (0_i64..).map(Val::Int).zip(items).collect(),
        (None, Some(entries)) => entries,
        _ => return failed("no such overload"),
    };
    let is_list = range.is_list();
    let depth = scope.names.len();
    let mut found = Vec::new();
    let mut entries: Vec<(Val<'v>, Val<'v>)> = Vec::new();
    let mut matches = 0_usize;
    let mut error = None;
    for (key, value) in pairs {
        budget.spend(1)?;
        match names {
            [one] => scope.set(Arc::clone(one), if is_list { value.clone() } else { key.clone() }),
            [first, second, ..] => {
                scope.set(Arc::clone(first), key.clone());
                scope.set(Arc::clone(second), value.clone());
            }
            [] => {}
        }
        let tested = match (kind, bodies) {
            (Macro::Map | Macro::TransformMap | Macro::TransformMapEntry | Macro::SortBy, [_]) => {
                Ok(Val::Bool(true))
            }
            (_, [test, ..]) => evaluate(test, scope, budget),
            _ => failed("no such overload"),
        };
        let result = match (kind, tested) {
            (_, Err(EvalError::TooExpensive)) => Err(EvalError::TooExpensive),
            // A deciding element takes precedence over a failing one.
            (Macro::All | Macro::Exists, Err(failure)) => {
                error = error.or(Some(failure));
                Ok(None)
            }
            (_, Err(failure)) => Err(failure),
            (Macro::All, Ok(Val::Bool(false))) => Ok(Some(Val::Bool(false))),
            (Macro::Exists, Ok(Val::Bool(true))) => Ok(Some(Val::Bool(true))),
            (Macro::ExistsOne, Ok(Val::Bool(true))) => {
                matches += 1;
                Ok(None)
            }
            (Macro::Filter, Ok(Val::Bool(true))) => {
                found.push(if is_list { value } else { key });
                Ok(None)
            }
            (
                Macro::Map | Macro::TransformMap | Macro::TransformMapEntry | Macro::SortBy,
                Ok(Val::Bool(true)),
            ) => match bodies.last().map(|body| evaluate(body, scope, budget)) {
                Some(Ok(made)) => {
                    take(kind, key, value, made, &mut found, &mut entries, budget).map(|()| None)
                }
                Some(Err(failure)) => Err(failure),
                None => Ok(None),
            },
            (_, Ok(Val::Bool(_))) => Ok(None),
            _ => failed("no such overload"),
        };
        scope.names.truncate(depth);
        if let Some(decided) = result? {
            return Ok(decided);
        }
    }
    match (kind, error) {
        (_, Some(error)) => Err(error),
        (Macro::All, None) => Ok(Val::Bool(true)),
        (Macro::Exists, None) => Ok(Val::Bool(false)),
        (Macro::ExistsOne, None) => Ok(Val::Bool(matches == 1)),
        (Macro::TransformMap | Macro::TransformMapEntry, None) => Ok(Val::Map(Rc::new(entries))),
        (Macro::SortBy, None) => functions::sorted(entries),
        (_, None) => Ok(Val::list(found)),
    }
}

/// Adds the result of a macro's body for one element to the macro's result.
fn take<'v>(
    kind: Macro,
    key: Val<'v>,
    value: Val<'v>,
    made: Val<'v>,
    found: &mut Vec<Val<'v>>,
    entries: &mut Vec<(Val<'v>, Val<'v>)>,
    budget: &mut Budget,
) -> Result<(), EvalError> {
    let inserted = match kind {
        Macro::SortBy => {
            entries.push((made, value));
            return Ok(());
        }
        Macro::TransformMap => vec![(key, made)],
        Macro::TransformMapEntry => match made.entries() {
            Some(made) => made,
            None => return failed("no such overload"),
        },
        _ => {
            found.push(made);
            return Ok(());
        }
    };
    for (key, value) in inserted {
        budget.spend(entries.len() / 10)?;
        if entries.iter().any(|(known, _)| known.compare(&key) == Some(Ordering::Equal)) {
            return failed(format!("insert failed: key {} already exists", printed(&key)));
        }
        entries.push((key, value));
    }
    Ok(())
}

fn call<'v>(
    target: Option<&Node>,
    name: &str,
    arguments: &[Node],
    scope: &mut Scope<'v>,
    budget: &mut Budget,
) -> Evaluation<'v> {
    let mut values = Vec::new();
    if let Some(target) = target {
        values.push(evaluate(target, scope, budget)?);
    }
    // The alternative of an optional is only evaluated if the optional is empty.
    if let (Some(Val::Optional(Some(value))), "orValue" | "or") = (values.first(), name) {
        return Ok(if name == "orValue" { (**value).clone() } else { Val::Optional(Some(Rc::clone(value))) });
    }
    for argument in arguments {
        values.push(evaluate(argument, scope, budget)?);
    }
    functions::call(name, &values, budget)
}
