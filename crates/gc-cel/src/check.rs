//! The type checker of expressions.
//!
//! The rules are those of CEL's own checker: type parameters are unified, overloads are chosen by their arguments,
//! and `dyn` is left to the evaluation.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::declarations::{self, Overload};
use crate::issue::Issue;
use crate::time::Timestamp;
use crate::tree::{Expression, Macro, Node, Operator};
use crate::types::{ObjectType, Type};

/// Maximum number of types visited while one expression is checked: types may share parts, so a short expression can
/// have a type that is larger than memory.
const MOST_STEPS: usize = 2_000_000;

/// Maximum number of parts of one node's type.
const HEAVIEST_TYPE: usize = 10_000;

/// Names that an expression may use.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: Vec<(Arc<str>, Type)>,
    open_objects: Vec<ObjectType>,
    /// Additional fields of objects, by the name of their type. Shared, so that the cost of copying an environment does not depend
    /// on their number.
    declared_fields: Arc<BTreeMap<String, BTreeMap<String, Type>>>,
}

impl Environment {
    /// Declares a variable.
    #[must_use]
    pub fn with(mut self, name: &str, of: Type) -> Self {
        self.variables.push((name.into(), of));
        self
    }

    /// Declares an object type that has known fields and any others, together with the types of the known ones.
    #[must_use]
    pub fn with_open_object(mut self, name: &str, known: &[(&str, Type)]) -> Self {
        let fields = known.iter().map(|(field, of)| ((*field).to_owned(), of.clone())).collect();
        self.open_objects.push(ObjectType { name: name.to_owned(), fields, is_open: true });
        self
    }

    /// Adds a field to all objects of the type with this name.
    pub fn declare_field(&mut self, object: &str, field: &str, of: Type) {
        let fields = Arc::make_mut(&mut self.declared_fields).entry(object.to_owned()).or_default();
        fields.insert(field.to_owned(), of);
    }

    fn field<'t>(&'t self, object: &'t ObjectType, field: &str) -> Option<&'t Type> {
        let declared = || self.declared_fields.get(&object.name).and_then(|fields| fields.get(field));
        object.fields.get(field).or_else(declared)
    }

    fn open_object(&self, name: &str) -> Option<ObjectType> {
        let root = name.split('.').next().unwrap_or_default();
        let object = self.open_objects.iter().find(|known| known.name == root)?;
        let fields = if name == root { object.fields.clone() } else { BTreeMap::new() };
        Some(ObjectType { name: name.to_owned(), fields, is_open: true })
    }
}

/// The result of the checker.
#[derive(Clone, Debug)]
pub(crate) struct TypedProgram {
    /// Type of each node.
    pub(crate) types: Vec<Type>,
    /// Overloads that each node may call.
    pub(crate) overloads: Vec<Vec<&'static str>>,
}

/// Determines the types of all nodes.
pub(crate) fn check(
    root: &Node,
    nodes: usize,
    environment: &Environment,
) -> Result<TypedProgram, Vec<Issue>> {
    let mut checker = Checker {
        environment,
        scope: environment.variables.clone(),
        typed: TypedProgram { types: vec![Type::Dyn; nodes], overloads: vec![Vec::new(); nodes] },
        substitutions: Vec::new(),
        trail: Vec::new(),
        issues: Vec::new(),
        steps: 0,
    };
    checker.check(root);
    if checker.steps > MOST_STEPS {
        return Err(vec![Issue::new(root.at, "the types of the expression are too complex")]);
    }
    if !checker.issues.is_empty() {
        return Err(checker.issues);
    }
    let types = std::mem::take(&mut checker.typed.types);
    checker.typed.types = types.iter().map(|of| checker.substituted(of, true)).collect();
    if checker.steps > MOST_STEPS {
        return Err(vec![Issue::new(root.at, "the types of the expression are too complex")]);
    }
    checker.literals(root, false);
    if checker.issues.is_empty() { Ok(checker.typed) } else { Err(checker.issues) }
}

struct Checker<'e> {
    environment: &'e Environment,
    scope: Vec<(Arc<str>, Type)>,
    typed: TypedProgram,
    /// Type found for each unknown type so far.
    substitutions: Vec<Option<Type>>,
    /// Earlier values of `substitutions`, to undo an attempt.
    trail: Vec<(u32, Option<Type>)>,
    issues: Vec<Issue>,
    steps: usize,
}

impl Checker<'_> {
    fn check(&mut self, node: &Node) -> Type {
        let found = if self.steps > MOST_STEPS { Type::Error } else { self.type_of(node) };
        if !is_light(&found, &mut { HEAVIEST_TYPE }) {
            self.steps = MOST_STEPS + 1;
        }
        self.typed.types[node.id] = found.clone();
        found
    }

    fn issue(&mut self, at: usize, message: String) -> Type {
        self.issues.push(Issue::new(at, message));
        Type::Error
    }

    fn undeclared(&mut self, at: usize, name: &str) -> Type {
        self.issue(at, format!("undeclared reference to '{name}' (in container '')"))
    }

    fn type_of(&mut self, node: &Node) -> Type {
        match &node.expression {
            Expression::Null => Type::Null,
            Expression::Bool(_) => Type::Bool,
            Expression::Int(_) => Type::Int,
            Expression::Uint(_) => Type::Uint,
            Expression::Double(_) => Type::Double,
            Expression::Text(_) => Type::Text,
            Expression::Bytes(_) => Type::Bytes,
            Expression::Name(name) => match self.variable(name) {
                Some(found) => found,
                None => self.undeclared(node.at, name),
            },
            Expression::Select { operand, field, optional } => {
                if let Some(found) = self.named_type(node) {
                    return found;
                }
                let result = self.select(node, operand, field, *optional);
                self.substituted(&result, false)
            }
            Expression::Has { operand, field } => {
                self.select(node, operand, field, false);
                Type::Bool
            }
            Expression::Index { operand, index, optional } => {
                let arguments = [self.check(operand), self.check(index)];
                let name = if *optional { "_[?_]" } else { "_[_]" };
                self.resolve(node, name, false, &arguments)
            }
            Expression::Call { target: None, name, arguments } => {
                let arguments: Vec<Type> = arguments.iter().map(|argument| self.check(argument)).collect();
                self.resolve(node, name, false, &arguments)
            }
            Expression::Call { target: Some(target), name, arguments } => {
                let rest: Vec<Type> = arguments.iter().map(|argument| self.check(argument)).collect();
                let target = self.check(target);
                let arguments: Vec<Type> = std::iter::once(target).chain(rest).collect();
                self.resolve(node, name, true, &arguments)
            }
            Expression::Macro { kind, range, names, bodies } => {
                self.macro_type(node, *kind, range, names, bodies)
            }
            Expression::List(items) => {
                let mut joined: Option<Type> = None;
                for item in items {
                    let found = self.element(item);
                    joined = Some(self.join(joined, found));
                }
                Type::list(joined.unwrap_or_else(|| self.unknown()))
            }
            Expression::Map(entries) => {
                let (mut keys, mut values) = (None, None);
                for (key, value) in entries {
                    let found = self.check(key);
                    keys = Some(self.join(keys, found));
                    let found = self.element(value);
                    values = Some(self.join(values, found));
                }
                let keys = keys.unwrap_or_else(|| self.unknown());
                Type::map(keys, values.unwrap_or_else(|| self.unknown()))
            }
            Expression::Struct { name, fields } => self.object(node, name, fields),
            Expression::Optional(value) => self.check(value),
            Expression::Not(operand) => {
                let arguments = [self.check(operand)];
                self.resolve(node, "!_", false, &arguments)
            }
            Expression::Negate(operand) => {
                let arguments = [self.check(operand)];
                self.resolve(node, "-_", false, &arguments)
            }
            Expression::Binary(operator @ (Operator::And | Operator::Or), left, right) => {
                self.logic(node, *operator, left, right)
            }
            Expression::Binary(operator, left, right) => {
                let arguments = [self.check(left), self.check(right)];
                self.resolve(node, operator.function(), false, &arguments)
            }
            Expression::Condition(parts) => {
                let arguments: Vec<Type> = parts.iter().map(|part| self.check(part)).collect();
                self.resolve(node, "_?_:_", false, &arguments)
            }
        }
    }

    fn variable(&self, name: &str) -> Option<Type> {
        let found = self.scope.iter().rev().find(|(known, _)| **known == *name);
        found.map(|(_, of)| of.clone()).or_else(|| type_named(name).map(|of| Type::Type(of.into())))
    }

    /// Returns the type that a dotted name stands for, if any.
    fn named_type(&self, node: &Node) -> Option<Type> {
        let name = crate::parse::qualified(node)?;
        // A variable may have a dotted name, and takes precedence.
        if let Some((_, of)) = self.scope.iter().rev().find(|(known, _)| **known == *name) {
            return Some(of.clone());
        }
        let root = name.split('.').next().unwrap_or_default();
        if self.scope.iter().any(|(known, _)| **known == *root) {
            return None;
        }
        type_named(&name).map(|of| Type::Type(of.into()))
    }

    fn select(&mut self, node: &Node, operand: &Node, field: &str, optional: bool) -> Type {
        let operand = self.check(operand);
        let operand = self.substituted(&operand, false);
        let (target, was_optional) = match &operand {
            Type::Optional(inner) => ((**inner).clone(), true),
            other => (other.clone(), false),
        };
        let result = match &target {
            Type::Map(_, value) => (**value).clone(),
            Type::Object(object) => match self.environment.field(object, field) {
                Some(found) => found.clone(),
                None if object.is_open => Type::Dyn,
                None => self.issue(node.at, format!("undefined field '{field}'")),
            },
            Type::Unknown(_) => {
                self.is_assignable(&Type::Dyn, &target);
                Type::Dyn
            }
            other if other.is_dyn_or_error() => Type::Dyn,
            other => {
                let why = format!("type '{other}' does not support field selection");
                self.issue(node.at, why);
                Type::Dyn
            }
        };
        if optional || was_optional { Type::optional(result) } else { result }
    }

    /// Returns the type of an element of a list, a map or an object; of an optional one, the type of its value.
    fn element(&mut self, node: &Node) -> Type {
        let found = self.check(node);
        let Expression::Optional(_) = node.expression else { return found };
        match self.substituted(&found, false) {
            Type::Optional(value) => (*value).clone(),
            Type::Dyn => Type::Dyn,
            other => {
                let why = format!("expected type 'optional_type({other})' but found '{other}'");
                self.issue(node.at, why)
            }
        }
    }

    /// Returns a common type for elements of these types; [`literals`](Self::literals) reports mixed ones.
    fn join(&mut self, previous: Option<Type>, current: Type) -> Type {
        let Some(previous) = previous else { return current };
        if self.is_assignable(&previous, &current) {
            return most_general(previous, current);
        }
        Type::Dyn
    }

    fn object(&mut self, node: &Node, name: &str, fields: &[(String, Node)]) -> Type {
        let result = match self.environment.open_object(name) {
            Some(object) => Type::Object(Arc::new(object)),
            None => self.undeclared(node.at, name),
        };
        for (_, value) in fields {
            self.element(value);
        }
        result
    }

    fn logic(&mut self, node: &Node, operator: Operator, left: &Node, right: &Node) -> Type {
        let sides = [(left.at, self.check(left)), (right.at, self.check(right))];
        let mut result = Type::Bool;
        for (at, side) in sides {
            if !self.is_assignable(&side, &Type::Bool) {
                let side = self.substituted(&side, false);
                result = self.issue(at, format!("expected type 'bool' but found '{side}'"));
            }
        }
        self.typed.overloads[node.id] =
            vec![if operator == Operator::And { "logical_and" } else { "logical_or" }];
        result
    }

    fn resolve(&mut self, node: &Node, name: &str, member: bool, arguments: &[Type]) -> Type {
        let Some(overloads) = declarations::overloads(name) else {
            return self.undeclared(node.at, name);
        };
        match self.overload(overloads, member, arguments) {
            Some((result, ids)) => {
                self.typed.overloads[node.id] = ids;
                result
            }
            None => {
                let shown: Vec<String> =
                    arguments.iter().map(|argument| self.substituted(argument, true).to_string()).collect();
                let signature = match shown.split_first() {
                    Some((target, rest)) if member => format!("{target}.({})", rest.join(", ")),
                    _ => format!("({})", shown.join(", ")),
                };
                let why = format!("found no matching overload for '{name}' applied to '{signature}'");
                self.issue(node.at, why)
            }
        }
    }

    /// Finds the matching overloads, and returns the type of their result.
    fn overload(
        &mut self,
        overloads: &'static [Overload],
        member: bool,
        arguments: &[Type],
    ) -> Option<(Type, Vec<&'static str>)> {
        let mut result: Option<Type> = None;
        let mut ids = Vec::new();
        for overload in overloads.iter().filter(|overload| overload.member == member) {
            if overload.arguments.len() != arguments.len() {
                continue;
            }
            let fresh = self.substitutions.len();
            let parameters: Vec<Type> =
                overload.arguments.iter().map(|parameter| renamed(parameter, fresh)).collect();
            self.substitutions.extend([None, None]);
            let mark = self.trail.len();
            let fits = arguments
                .iter()
                .zip(&parameters)
                .all(|(argument, parameter)| self.assign(argument, parameter));
            if !fits {
                self.take_back(mark);
                continue;
            }
            ids.push(overload.id.as_str());
            let found = self.substituted(&renamed(&overload.result, fresh), false);
            result = Some(match result {
                None => found,
                Some(Type::Dyn) => Type::Dyn,
                Some(before) if before == found => before,
                Some(_) => Type::Dyn,
            });
        }
        result.map(|result| (result, ids))
    }

    fn macro_type(
        &mut self,
        node: &Node,
        kind: Macro,
        range: &Node,
        names: &[Arc<str>],
        bodies: &[Node],
    ) -> Type {
        let range_type = self.check(range);
        let range_type = self.substituted(&range_type, false);
        if matches!(kind, Macro::OptMap | Macro::OptFlatMap) {
            return self.optional_macro(node, kind, &range_type, names, bodies);
        }
        let (key, value) = match &range_type {
            Type::List(item) if names.len() == 1 => ((**item).clone(), Type::Error),
            Type::List(item) => (Type::Int, (**item).clone()),
            Type::Map(key, value) => ((**key).clone(), (**value).clone()),
            Type::Unknown(_) | Type::Dyn | Type::Error => {
                self.is_assignable(&Type::Dyn, &range_type);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let why = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.issue(range.at, why);
                (Type::Error, Type::Error)
            }
        };
        let before = self.scope.len();
        self.scope.extend(names.iter().cloned().zip([key.clone(), value]));
        let found: Vec<Type> = bodies.iter().map(|body| self.check(body)).collect();
        self.scope.truncate(before);
        match kind {
            Macro::All | Macro::Exists => {
                for (body, found) in bodies.iter().zip(found) {
                    if !self.is_assignable(&found, &Type::Bool) {
                        let found = self.substituted(&found, false);
                        self.issue(body.at, format!("expected type 'bool' but found '{found}'"));
                    }
                }
                Type::Bool
            }
            Macro::ExistsOne => {
                self.condition(node, found.first().cloned(), &Type::Int);
                Type::Bool
            }
            Macro::Filter => {
                let result = Type::list(key);
                self.condition(node, found.first().cloned(), &result);
                result
            }
            Macro::SortBy => {
                let keys = Type::list(found.first().cloned().unwrap_or(Type::Dyn));
                self.resolve(node, "@sortByAssociatedKeys", true, &[range_type, keys])
            }
            Macro::Map | Macro::TransformMap | Macro::TransformMapEntry => {
                let last = found.last().cloned().unwrap_or(Type::Dyn);
                let result = match kind {
                    Macro::Map => Type::list(last),
                    Macro::TransformMap => Type::map(key, last),
                    _ => last,
                };
                if found.len() > 1 {
                    self.condition(node, found.first().cloned(), &result);
                }
                result
            }
            Macro::OptMap | Macro::OptFlatMap => Type::Error,
        }
    }

    fn optional_macro(
        &mut self,
        node: &Node,
        kind: Macro,
        range: &Type,
        names: &[Arc<str>],
        bodies: &[Node],
    ) -> Type {
        let value = self.resolve(node, "value", true, std::slice::from_ref(range));
        let before = self.scope.len();
        self.scope.extend(names.iter().cloned().zip([value]));
        let found: Vec<Type> = bodies.iter().map(|body| self.check(body)).collect();
        self.scope.truncate(before);
        let found = found.into_iter().next().unwrap_or(Type::Dyn);
        let result = if kind == Macro::OptMap { Type::optional(found) } else { found };
        let none = Type::optional(self.unknown());
        self.resolve(node, "_?_:_", false, &[Type::Bool, result, none])
    }

    /// Checks the step of a macro that takes an element only if a condition holds.
    fn condition(&mut self, node: &Node, test: Option<Type>, result: &Type) {
        let arguments = [test.unwrap_or(Type::Dyn), result.clone(), result.clone()];
        self.resolve(node, "_?_:_", false, &arguments);
    }

    fn unknown(&mut self) -> Type {
        self.substitutions.push(None);
        Type::Unknown(u32::try_from(self.substitutions.len() - 1).unwrap_or(u32::MAX))
    }

    /// Returns the type that an unknown type was found to be, if any.
    fn known(&self, number: u32) -> Option<Type> {
        self.substitutions.get(number as usize).cloned().flatten()
    }

    fn learn(&mut self, number: u32, of: Type) {
        if let Some(place) = self.substitutions.get_mut(number as usize) {
            self.trail.push((number, place.replace(of)));
        }
    }

    fn take_back(&mut self, mark: usize) {
        while self.trail.len() > mark {
            let Some((number, before)) = self.trail.pop() else { return };
            self.substitutions[number as usize] = before;
        }
    }

    /// Reports whether values of the first type can be used as the second; conclusions about unknown types are kept if so.
    fn is_assignable(&mut self, from: &Type, to: &Type) -> bool {
        let mark = self.trail.len();
        let fits = self.assign(from, to);
        if !fits {
            self.take_back(mark);
        }
        fits
    }

    fn assign(&mut self, from: &Type, to: &Type) -> bool {
        self.steps += 1;
        if self.steps > MOST_STEPS {
            return true;
        }
        if let Type::Unknown(number) = to {
            match self.unify(from, *number) {
                Unification::Yes => return true,
                Unification::Otherwise => return false,
                Unification::Inside => {}
            }
        }
        if let Type::Unknown(number) = from {
            return matches!(self.unify(to, *number), Unification::Yes);
        }
        if from.is_dyn_or_error() || to.is_dyn_or_error() {
            return true;
        }
        match (from, to) {
            (Type::Null, other) | (other, Type::Null) => other.is_nullable(),
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(from), Type::List(to)) | (Type::Optional(from), Type::Optional(to)) => {
                self.assign(from, to)
            }
            (Type::Map(from_key, from), Type::Map(to_key, to)) => {
                self.assign(from_key, to_key) && self.assign(from, to)
            }
            _ => from == to,
        }
    }

    /// Equates an unknown type with another type.
    fn unify(&mut self, with: &Type, number: u32) -> Unification {
        if *with == Type::Unknown(number) {
            return Unification::Yes;
        }
        if let Some(known) = self.known(number) {
            if known == *with {
                return Unification::Yes;
            }
            if !self.assign(with, &known) {
                return Unification::Otherwise;
            }
            let general = most_general(with.clone(), known);
            if !self.occurs(number, &general) {
                self.learn(number, general);
            }
            return Unification::Yes;
        }
        if self.occurs(number, with) {
            return Unification::Inside;
        }
        self.learn(number, with.clone());
        Unification::Yes
    }

    /// Reports whether an unknown type is part of another type.
    fn occurs(&mut self, number: u32, within: &Type) -> bool {
        self.steps += 1;
        if self.steps > MOST_STEPS {
            return true;
        }
        match within {
            Type::Unknown(other) if *other == number => true,
            Type::Unknown(other) => match self.known(*other) {
                Some(known) => self.occurs(number, &known),
                None => false,
            },
            Type::List(inner) | Type::Optional(inner) | Type::Type(inner) => self.occurs(number, inner),
            Type::Map(key, value) => self.occurs(number, key) || self.occurs(number, value),
            _ => false,
        }
    }

    /// Replaces unknown types by those found for them; the remaining ones become `dyn` if `to_dyn` is set.
    fn substituted(&mut self, of: &Type, to_dyn: bool) -> Type {
        self.steps += 1;
        if self.steps > MOST_STEPS {
            return Type::Error;
        }
        match of {
            Type::Unknown(number) => match self.known(*number) {
                Some(known) => self.substituted(&known, to_dyn),
                None if to_dyn => Type::Dyn,
                None => of.clone(),
            },
            Type::List(item) => Type::list(self.substituted(item, to_dyn)),
            Type::Optional(value) => Type::optional(self.substituted(value, to_dyn)),
            Type::Map(key, value) => {
                Type::map(self.substituted(key, to_dyn), self.substituted(value, to_dyn))
            }
            Type::Type(inner) => Type::Type(self.substituted(inner, to_dyn).into()),
            other => other.clone(),
        }
    }

    /// Reports literals that no evaluation could use, and those with elements of several types, except in arguments of `format`.
    fn literals(&mut self, node: &Node, in_format: bool) {
        let mut in_format = in_format;
        match &node.expression {
            Expression::Call { target, name, arguments } => {
                if let Some(argument) = arguments.first()
                    && is_bad_literal(name, argument)
                {
                    self.issue(argument.at, format!("invalid {name} argument"));
                }
                if let (Some(target), "format", [list]) = (target, name.as_str(), arguments.as_slice()) {
                    self.format(node, target, list);
                }
                in_format |= name == "format";
            }
            Expression::List(items) if !in_format => self.same_types(items.iter(), true),
            Expression::Map(entries) if !in_format => {
                self.same_types(entries.iter().map(|(key, _)| key), false);
                self.same_types(entries.iter().map(|(_, value)| value), false);
            }
            _ => {}
        }
        for part in node.parts() {
            self.literals(part, in_format);
        }
    }

    /// Reports elements of a literal that differ in type from the first one; with `once`, as for lists, only the first of them.
    fn same_types<'n>(&mut self, elements: impl Iterator<Item = &'n Node>, once: bool) {
        let mut expected: Option<Type> = None;
        for element in elements {
            let found = match (&element.expression, &self.typed.types[element.id]) {
                (Expression::Optional(_), Type::Optional(value)) => (**value).clone(),
                (_, found) => found.clone(),
            };
            let Some(expected) = &expected else {
                expected = Some(found);
                continue;
            };
            if *expected != found {
                let why = format!("expected type '{expected}' but found '{found}'");
                self.issue(element.at, why);
                if once {
                    return;
                }
            }
        }
    }

    /// Checks the clauses of a literal text against the types of its arguments.
    fn format(&mut self, call: &Node, text: &Node, list: &Node) {
        let (Expression::Text(text), Expression::List(items)) = (&text.expression, &list.expression) else {
            return;
        };
        let types: Vec<&Type> = items.iter().map(|item| &self.typed.types[item.id]).collect();
        if let Some((about, why)) = crate::format::problem(text, &types) {
            let at = about.and_then(|index| items.get(index)).map_or(call.at, |item| item.at);
            self.issue(at, why);
        }
    }
}

/// Reports whether a function always fails with this literal as its first argument.
fn is_bad_literal(function: &str, argument: &Node) -> bool {
    match (function, &argument.expression) {
        ("duration", Expression::Text(text)) => crate::time::parse_duration(text).is_none(),
        ("duration", Expression::Int(_)) => true,
        ("timestamp", Expression::Text(text)) => !matches!(Timestamp::parse(text), Some(Ok(_))),
        ("timestamp", Expression::Int(seconds)) => Timestamp::from_seconds(*seconds).is_err(),
        ("matches", Expression::Text(text)) => !crate::pattern::is_pattern(text),
        _ => false,
    }
}

/// Subtracts the number of parts of a type; reports whether there were enough left.
fn is_light(of: &Type, left: &mut usize) -> bool {
    if *left == 0 {
        return false;
    }
    *left -= 1;
    match of {
        Type::List(inner) | Type::Optional(inner) | Type::Type(inner) => is_light(inner, left),
        Type::Map(key, value) => is_light(key, left) && is_light(value, left),
        _ => true,
    }
}

enum Unification {
    /// Both are now treated as one type.
    Yes,
    /// The unknown type is known to be a different one.
    Otherwise,
    /// The unknown type is part of the other one.
    Inside,
}

/// Returns the type of an overload with fresh unknown types.
fn renamed(of: &Type, fresh: usize) -> Type {
    match of {
        Type::Unknown(number) => {
            Type::Unknown(u32::try_from(fresh).unwrap_or(u32::MAX).saturating_add(*number))
        }
        Type::List(item) => Type::list(renamed(item, fresh)),
        Type::Optional(value) => Type::optional(renamed(value, fresh)),
        Type::Map(key, value) => Type::map(renamed(key, fresh), renamed(value, fresh)),
        Type::Type(inner) => Type::Type(renamed(inner, fresh).into()),
        other => other.clone(),
    }
}

/// Returns the more general of two types that are known to match.
fn most_general(a: Type, b: Type) -> Type {
    if is_less_specific(&a, &b) { a } else { b }
}

fn is_less_specific(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Dyn | Type::Unknown(_), _) => true,
        (_, Type::Dyn | Type::Unknown(_)) => false,
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => is_less_specific(a, b),
        (Type::Map(a_key, a), Type::Map(b_key, b)) => {
            is_less_specific(a_key, b_key) && is_less_specific(a, b)
        }
        _ => a == b || matches!((a, b), (Type::Type(_), Type::Type(_))),
    }
}

/// Returns the type that a name stands for.
fn type_named(name: &str) -> Option<Type> {
    Some(match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "int" => Type::Int,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "null_type" => Type::Null,
        "string" => Type::Text,
        "type" => Type::Type(Type::Dyn.into()),
        "uint" => Type::Uint,
        "dyn" => Type::Dyn,
        "optional_type" => Type::optional(Type::Dyn),
        "google.protobuf.Duration" => Type::Duration,
        "google.protobuf.Timestamp" => Type::Timestamp,
        "kubernetes.URL" => Type::Library("kubernetes.URL"),
        "kubernetes.Quantity" => Type::Library("kubernetes.Quantity"),
        "net.IP" => Type::Library("net.IP"),
        "net.CIDR" => Type::Library("net.CIDR"),
        _ => return None,
    })
}
