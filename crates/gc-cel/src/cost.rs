//! Estimates the maximum cost of an expression before it is evaluated, as Kubernetes does.
//!
//! The numbers are part of the interface: they determine which rules a definition may have.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::check::TypedProgram;
use crate::tree::{Expression, Macro, Node, Operator};
use crate::types::{DeclaredType, Shape, Type};

/// Cost factor of traversing a text once.
const TRAVERSAL: f64 = 0.1;
/// Cost factor of a pattern's length.
const PATTERN: f64 = 0.25;
/// Cost of creating a list.
const MAKE_LIST: u64 = 10;
/// Cost of creating a map.
const MAKE_MAP: u64 = 30;
/// Cost of creating an object.
const MAKE_OBJECT: u64 = 40;
/// Cost of a check by the authorizer.
const CHECK: u64 = 350_000;

/// Minimum and maximum of a size or a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    least: u64,
    most: u64,
}

impl Range {
    const UNKNOWN: Self = Self { least: 0, most: u64::MAX };
    const ZERO: Self = Self::fixed(0);

    const fn fixed(value: u64) -> Self {
        Self { least: value, most: value }
    }

    fn plus(self, other: Self) -> Self {
        Self { least: self.least.saturating_add(other.least), most: self.most.saturating_add(other.most) }
    }

    fn times(self, other: Self) -> Self {
        Self { least: self.least.saturating_mul(other.least), most: self.most.saturating_mul(other.most) }
    }

    fn scaled(self, factor: f64) -> Self {
        Self { least: scaled(self.least, factor), most: scaled(self.most, factor) }
    }

    fn or(self, other: Self) -> Self {
        Self { least: self.least.min(other.least), most: self.most.max(other.most) }
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate; a float beyond the largest number becomes that number"
)]
fn scaled(value: u64, factor: f64) -> u64 {
    (value as f64 * factor).ceil() as u64
}

/// Returns the maximum cost of evaluating an expression. `root` is the declaration of its variables.
pub(crate) fn most(node: &Node, typed: &TypedProgram, root: Option<&DeclaredType>) -> u64 {
    let count = typed.types.len();
    let mut coster = Coster {
        typed,
        root,
        variables: Vec::new(),
        origins: vec![Origin::Nowhere; count],
        sizes: BTreeMap::new(),
        entries: BTreeMap::new(),
    };
    coster.cost(node).most
}

/// Origin of a value.
#[derive(Clone, Copy, Debug)]
enum Origin<'d> {
    /// Created by the expression.
    Nowhere,
    /// Read from a document, at this path of its declaration.
    Declared(&'d DeclaredType),
    /// Read from a document, at an undeclared path.
    Lost,
}

/// Sizes of the entries of a list or a map.
#[derive(Clone, Copy, Debug)]
struct Entries {
    is_list: bool,
    key: Range,
    value: Range,
}

impl Entries {
    fn or(self, other: Self) -> Self {
        Self { is_list: self.is_list, key: self.key.or(other.key), value: self.value.or(other.value) }
    }
}

#[derive(Clone)]
struct Variable<'d> {
    name: Arc<str>,
    origin: Origin<'d>,
    size: Option<Range>,
    entries: Option<Entries>,
}

/// Cost of a call without its arguments, and the size of its result.
type Call = (Range, Option<Range>);

struct Coster<'d> {
    typed: &'d TypedProgram,
    root: Option<&'d DeclaredType>,
    variables: Vec<Variable<'d>>,
    origins: Vec<Origin<'d>>,
    sizes: BTreeMap<usize, Range>,
    entries: BTreeMap<usize, Entries>,
}

impl<'d> Coster<'d> {
    fn cost(&mut self, node: &Node) -> Range {
        match &node.expression {
            Expression::Null
            | Expression::Bool(_)
            | Expression::Int(_)
            | Expression::Uint(_)
            | Expression::Double(_)
            | Expression::Text(_)
            | Expression::Bytes(_) => Range::ZERO,
            Expression::Name(name) => {
                let known = self.variables.iter().rev().find(|known| *known.name == **name);
                self.origins[node.id] = known.map_or_else(|| self.top(), |known| known.origin);
                Range::fixed(1)
            }
            Expression::Has { operand, .. } | Expression::Optional(operand) => self.cost(operand),
            Expression::Select { operand, optional: true, .. } => {
                let cost = self.cost(operand);
                self.call(node, "_?._", None, &[operand], cost)
            }
            Expression::Select { operand, field, .. } => self.select(node, operand, field),
            Expression::Index { operand, index, optional } => {
                let name = if *optional { "_[?_]" } else { "_[_]" };
                self.function(node, name, None, &[operand, index])
            }
            Expression::Call { target: None, name, arguments } if name == "dyn" => {
                let Some(inner) = arguments.first() else { return Range::ZERO };
                let cost = self.cost(inner);
                self.copy(node, inner);
                cost.plus(Range::fixed(1))
            }
            Expression::Call { target, name, arguments } => {
                let arguments: Vec<&Node> = arguments.iter().collect();
                self.function(node, name, target.as_deref(), &arguments)
            }
            Expression::Macro { kind: Macro::OptMap | Macro::OptFlatMap, range, names, bodies } => {
                self.optional_macro(node, range, names, bodies)
            }
            Expression::Macro { kind, range, names, bodies } => {
                self.comprehension(node, *kind, range, names, bodies)
            }
            Expression::List(items) => self.list(node, items),
            Expression::Map(entries) => self.map(node, entries),
            Expression::Struct { fields, .. } => {
                fields.iter().fold(Range::fixed(MAKE_OBJECT), |sum, (_, value)| sum.plus(self.cost(value)))
            }
            Expression::Not(operand) => self.function(node, "!_", None, &[operand]),
            Expression::Negate(operand) => self.function(node, "-_", None, &[operand]),
            Expression::Binary(Operator::And | Operator::Or, left, right) => {
                let (left, right) = (self.cost(left), self.cost(right));
                Range { least: left.least, most: left.plus(right).most }
            }
            Expression::Binary(operator, left, right) => {
                self.function(node, operator.function(), None, &[left, right])
            }
            Expression::Condition(parts) => self.condition(node, parts),
        }
    }

    /// Returns the declared root, which names other than macro variables stand for.
    fn top(&self) -> Origin<'d> {
        self.root.map_or(Origin::Lost, Origin::Declared)
    }

    /// Returns the origin of a part of a value.
    fn below(&self, origin: Origin<'d>, step: &Step<'_>) -> Origin<'d> {
        let declared = match origin {
            // The path of a created value begins here; upstream ignores its first step.
            Origin::Nowhere => return self.top(),
            Origin::Lost => return Origin::Lost,
            Origin::Declared(declared) => declared,
        };
        let found = match (step, &declared.shape) {
            (Step::Value, Shape::List(inner) | Shape::Map(inner)) => Some(&**inner),
            (Step::Field(name), Shape::Object(fields)) => fields.get(*name).map(|field| &**field),
            (Step::Key, Shape::Map(_)) => return Origin::Declared(&KEY),
            _ => None,
        };
        found.map_or(Origin::Lost, Origin::Declared)
    }

    fn origin(&self, node: &Node) -> Origin<'d> {
        if let Expression::Name(name) = &node.expression
            && let Some(known) = self.variables.iter().rev().find(|known| *known.name == **name)
        {
            return known.origin;
        }
        self.origins[node.id]
    }

    fn size(&self, node: &Node) -> Option<Range> {
        if let Some(size) = self.sizes.get(&node.id) {
            return Some(*size);
        }
        let fixed = match &node.expression {
            Expression::Text(text) => Some(text.chars().count()),
            Expression::Bytes(bytes) => Some(bytes.len()),
            Expression::List(items) => Some(items.len()),
            Expression::Map(entries) => Some(entries.len()),
            Expression::Null
            | Expression::Bool(_)
            | Expression::Int(_)
            | Expression::Uint(_)
            | Expression::Double(_) => Some(1),
            _ => None,
        };
        if let Some(fixed) = fixed {
            return Some(Range::fixed(fixed as u64));
        }
        if let Origin::Declared(declared) = self.origin(node) {
            return Some(Range { least: 0, most: declared.most_elements });
        }
        if self.typed.types[node.id].is_scalar() {
            return Some(Range::fixed(1));
        }
        match &node.expression {
            Expression::Name(name) => {
                self.variables.iter().rev().find(|known| *known.name == **name).and_then(|known| known.size)
            }
            _ => None,
        }
    }

    fn size_or_unknown(&self, node: &Node) -> Range {
        self.size(node).unwrap_or(Range::UNKNOWN)
    }

    fn entries(&self, node: &Node) -> Option<Entries> {
        if let Some(entries) = self.entries.get(&node.id) {
            return Some(*entries);
        }
        match &node.expression {
            Expression::Name(name) => self
                .variables
                .iter()
                .rev()
                .find(|known| *known.name == **name)
                .and_then(|known| known.entries),
            _ => None,
        }
    }

    fn copy(&mut self, to: &Node, from: &Node) {
        if let Some(size) = self.size(from) {
            self.sizes.insert(to.id, size);
        }
        if let Some(entries) = self.entries(from) {
            self.entries.insert(to.id, entries);
        }
    }

    fn select(&mut self, node: &Node, operand: &Node, field: &str) -> Range {
        let cost = self.cost(operand);
        self.origins[node.id] = self.below(self.origin(operand), &Step::Field(field));
        match self.typed.types[operand.id] {
            Type::Map(..) | Type::Object(_) | Type::Library(_) | Type::Unknown(_) => {
                cost.plus(Range::fixed(1))
            }
            _ => cost,
        }
    }

    fn list(&mut self, node: &Node, items: &[Node]) -> Range {
        let mut cost = Range::fixed(MAKE_LIST);
        let mut value = Range { least: if items.is_empty() { 0 } else { u64::MAX }, most: 0 };
        for item in items {
            cost = cost.plus(self.cost(item));
            value = value.or(self.size_or_unknown(item));
        }
        self.entries.insert(node.id, Entries { is_list: true, key: Range::fixed(1), value });
        cost
    }

    fn map(&mut self, node: &Node, entries: &[(Node, Node)]) -> Range {
        let mut cost = Range::fixed(MAKE_MAP);
        let least = if entries.is_empty() { 0 } else { u64::MAX };
        let (mut keys, mut values) = (Range { least, most: 0 }, Range { least, most: 0 });
        for (key, value) in entries {
            cost = cost.plus(self.cost(key)).plus(self.cost(value));
            keys = keys.or(self.size_or_unknown(key));
            values = values.or(self.size_or_unknown(value));
        }
        self.entries.insert(node.id, Entries { is_list: false, key: keys, value: values });
        cost
    }

    fn condition(&mut self, node: &Node, parts: &[Node; 3]) -> Range {
        let [test, yes, no] = parts;
        let (test, yes_cost, no_cost) = (self.cost(test), self.cost(yes), self.cost(no));
        let size = self.size_or_unknown(yes).or(self.size_or_unknown(no));
        if let (Some(yes), Some(no)) = (self.entries(yes), self.entries(no)) {
            self.entries.insert(node.id, yes.or(no));
        }
        self.sizes.insert(node.id, size);
        test.plus(yes_cost.or(no_cost))
    }

    fn optional_macro(&mut self, node: &Node, range: &Node, names: &[Arc<str>], bodies: &[Node]) -> Range {
        let range_cost = self.cost(range);
        let name = names.first().cloned().unwrap_or_default();
        self.variables.push(Variable { name, origin: Origin::Nowhere, size: None, entries: None });
        let body = bodies.iter().fold(Range::ZERO, |sum, body| sum.plus(self.cost(body)));
        self.variables.pop();
        let made = u64::from(matches!(node.expression, Expression::Macro { kind: Macro::OptMap, .. }));
        // In order: the test for a value, the value, the empty list that carries it, and the optional around the result.
        let value = range_cost.plus(Range::fixed(1));
        value.plus(Range { least: 1, most: MAKE_LIST + made + value.plus(body).most })
    }

    fn comprehension(
        &mut self,
        node: &Node,
        kind: Macro,
        range: &Node,
        names: &[Arc<str>],
        bodies: &[Node],
    ) -> Range {
        let range_cost = self.cost(range);
        let origin = self.origin(range);
        let entries = self.entries(range);
        let is_list =
            entries.map_or(matches!(self.typed.types[range.id], Type::List(_)), |entries| entries.is_list);
        let before = self.variables.len();
        let key = entries.map(|entries| entries.key);
        let value = entries.map(|entries| entries.value);
        let value_origin = self.below(origin, &Step::Value);
        let key_origin = self.below(origin, if is_list { &Step::Index } else { &Step::Key });
        match names {
            [one] => {
                let (origin, size) = if is_list { (value_origin, value) } else { (key_origin, key) };
                self.variables.push(Variable { name: Arc::clone(one), origin, size, entries: None });
            }
            [first, second, ..] => {
                let first =
                    Variable { name: Arc::clone(first), origin: key_origin, size: key, entries: None };
                let second =
                    Variable { name: Arc::clone(second), origin: value_origin, size: value, entries: None };
                self.variables.extend([first, second]);
            }
            [] => {}
        }
        let costs: Vec<Range> = bodies.iter().map(|body| self.cost(body)).collect();
        let last_size = bodies.last().map_or(Range::UNKNOWN, |body| self.size_or_unknown(body));
        let item_size = value.unwrap_or(match value_origin {
            Origin::Declared(declared) => Range { least: 0, most: declared.most_elements },
            _ => Range::UNKNOWN,
        });
        self.variables.truncate(before);
        let first = costs.first().copied().unwrap_or(Range::ZERO);
        let last = costs.last().copied().unwrap_or(Range::ZERO);
        let filtered = |step: Range, is_filtered: bool| {
            if is_filtered { first.plus(step.or(Range::fixed(1))) } else { step }
        };
        // Parts of the macro's loop: its start, its condition with its step, and its result.
        let (start, turn, result) = match kind {
            Macro::All => (0, Range { least: 3, most: first.plus(Range::fixed(3)).most }, 1),
            Macro::Exists => (0, Range { least: 4, most: first.plus(Range::fixed(4)).most }, 1),
            Macro::ExistsOne => (0, first.plus(Range { least: 1, most: 2 }), 2),
            // Concatenates the list so far and a list with the element.
            Macro::Filter => (MAKE_LIST, filtered(Range::fixed(MAKE_LIST + 3), true), 1),
            Macro::Map | Macro::SortBy => {
                let step = last.plus(Range::fixed(MAKE_LIST + 2));
                (MAKE_LIST, filtered(step, bodies.len() > 1), 1)
            }
            Macro::TransformMap => (MAKE_MAP, filtered(last.plus(Range::fixed(3)), bodies.len() > 1), 1),
            Macro::TransformMapEntry => (MAKE_MAP, filtered(last.plus(Range::fixed(2)), bodies.len() > 1), 1),
            Macro::OptMap | Macro::OptFlatMap => (0, Range::ZERO, 0),
        };
        let count = self.size_or_unknown(range);
        let empty = Range { least: 0, most: 0 };
        match kind {
            Macro::All | Macro::Exists | Macro::ExistsOne => {
                self.sizes.insert(node.id, Range::fixed(1));
            }
            Macro::TransformMap | Macro::TransformMapEntry => {
                self.sizes.insert(node.id, count);
            }
            _ => {
                self.sizes.insert(node.id, count);
                let item = if kind == Macro::Filter { item_size } else { last_size };
                let entries = Entries { is_list: true, key: Range::fixed(1), value: empty.or(item) };
                self.entries.insert(node.id, entries);
            }
        }
        let sorting = if kind == Macro::SortBy {
            count.times(count).scaled(2.0).plus(Range::fixed(1 + MAKE_LIST))
        } else {
            Range::ZERO
        };
        range_cost.plus(Range::fixed(start)).plus(Range::fixed(result)).plus(count.times(turn)).plus(sorting)
    }

    fn function(&mut self, node: &Node, name: &str, target: Option<&Node>, arguments: &[&Node]) -> Range {
        let mut costs = Range::ZERO;
        for argument in arguments {
            costs = costs.plus(self.cost(argument));
        }
        if let Some(target) = target {
            costs = costs.plus(self.cost(target));
        }
        self.call(node, name, target, arguments, costs)
    }

    fn call(
        &mut self,
        node: &Node,
        name: &str,
        target: Option<&Node>,
        arguments: &[&Node],
        costs: Range,
    ) -> Range {
        let fixed = ["select_optional_field"];
        let ids: &[&str] = if name == "_?._" { &fixed } else { &self.typed.overloads[node.id] };
        let mut cost: Option<Range> = None;
        let mut size: Option<Range> = None;
        for id in ids {
            let (found, found_size) = self.overload(name, id, target, arguments);
            cost = Some(cost.map_or(found, |cost| cost.or(found)));
            size = match (size, found_size) {
                (Some(size), Some(found)) => Some(size.or(found)),
                (size, found) => size.or(found),
            };
            if let ("index_list" | "index_map", Some(from)) = (*id, arguments.first()) {
                size = self.entries(from).map(|entries| entries.value);
                self.origins[node.id] = self.below(self.origin(from), &Step::Value);
            }
            if matches!(*id, "add_list" | "add_string" | "add_bytes")
                && let [left, right] = arguments
                && let (Some(left), Some(right)) = (self.entries(left), self.entries(right))
            {
                self.entries.insert(node.id, left.or(right));
            }
        }
        let size = size.or_else(|| self.size(node));
        if let Some(size) = size {
            self.sizes.insert(node.id, size);
        }
        costs.plus(cost.unwrap_or(Range::ZERO))
    }

    /// Returns the cost of one overload.
    fn overload(&self, name: &str, id: &str, target: Option<&Node>, arguments: &[&Node]) -> Call {
        let found = self
            .list_overload(id, target, arguments)
            .or_else(|| self.kubernetes(name, id, target, arguments))
            .or_else(|| self.standard(id, target, arguments));
        found.unwrap_or((Range::fixed(1), None))
    }

    /// Covers the libraries of lists and sets.
    fn list_overload(&self, id: &str, target: Option<&Node>, arguments: &[&Node]) -> Option<Call> {
        let allocating = |factor: f64, size: Range| {
            Some((size.scaled(factor).plus(Range::fixed(1 + MAKE_LIST)), Some(size)))
        };
        let number = |node: Option<&&Node>, otherwise: u64| match node.map(|node| &node.expression) {
            Some(Expression::Int(value)) => u64::try_from(*value).unwrap_or_default(),
            _ => otherwise,
        };
        let size = target.map(|target| self.size_or_unknown(target));
        match (id, size) {
            ("list_sets_contains_list" | "list_sets_intersects_list" | "list_sets_equivalent_list", _) => {
                let factor = if id == "list_sets_equivalent_list" { 2.0 } else { 1.0 };
                let [a, b] = arguments else { return None };
                let product = self.size_or_unknown(a).times(self.size_or_unknown(b));
                Some((product.scaled(factor).plus(Range::fixed(1)), None))
            }
            ("list_slice", Some(size)) => {
                let (start, end) = (number(arguments.first(), 0), number(arguments.get(1), size.most));
                allocating(1.0, Range::fixed(end.saturating_sub(start)))
            }
            ("lists_range", None) => allocating(1.0, Range::fixed(number(arguments.first(), u64::MAX))),
            ("list_reverse" | "list_flatten", Some(size)) => allocating(1.0, size),
            #[expect(clippy::cast_precision_loss, reason = "an estimate")]
            ("list_flatten_int", Some(size)) => allocating(number(arguments.first(), u64::MAX) as f64, size),
            ("list_distinct", Some(size)) => allocating(2.0, size.times(size)),
            (id, Some(size)) if id.starts_with("list_") && id.ends_with("_sort") => {
                let texts = matches!(id, "list_string_sort" | "list_bytes_sort");
                allocating(if texts { 2.0 + TRAVERSAL } else { 2.0 }, size.times(size))
            }
            _ => None,
        }
    }

    /// Reports whether the elements of a list, a map or an optional are texts or bytes, with their size; `None` for other types.
    fn element(&self, list: &Node) -> Option<(bool, Range)> {
        let (Type::List(inner) | Type::Map(inner, _) | Type::Optional(inner)) = &self.typed.types[list.id]
        else {
            return None;
        };
        let size = match self.origin(list) {
            Origin::Nowhere => Range::UNKNOWN,
            origin => match self.below(origin, &Step::Value) {
                Origin::Declared(declared) => Range { least: 0, most: declared.most_elements },
                _ => Range::UNKNOWN,
            },
        };
        Some((matches!(**inner, Type::Text | Type::Bytes), size))
    }

    /// Covers the functions of Kubernetes, and those of CEL for which Kubernetes defines another cost.
    fn kubernetes(&self, name: &str, id: &str, target: Option<&Node>, arguments: &[&Node]) -> Option<Call> {
        let first = || arguments.first().map(|first| self.size_or_unknown(first));
        let own = || target.map(|target| self.size_or_unknown(target));
        let nominal = Some((Range::fixed(1), None));
        match name {
            "check" => Some((Range::fixed(CHECK), None)),
            "fieldSelector" | "labelSelector" => {
                let length = first()?;
                let requirements = length.scaled(0.5).scaled(50.0);
                Some((Range::fixed(MAKE_LIST).plus(length.scaled(TRAVERSAL)).plus(requirements), None))
            }
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
                let cost = match self.element(target?) {
                    Some((texts, size)) => {
                        let text = if texts { size.scaled(TRAVERSAL) } else { Range::ZERO };
                        own()?.times(Range::fixed(1).plus(text))
                    }
                    None => own()?.scaled(TRAVERSAL),
                };
                Some((cost, None))
            }
            "url" | "jsonpatch.escapeKey" => first().map(|size| (size.scaled(TRAVERSAL), Some(size))),
            "lowerAscii" | "upperAscii" | "substring" | "trim" => {
                own().map(|size| (size.scaled(TRAVERSAL), Some(size)))
            }
            "replace" => {
                let [from, to, ..] = arguments else { return None };
                let size = own()?;
                let replaced = replaced(size, self.size_or_unknown(from), self.size_or_unknown(to));
                Some((size.scaled(2.0 * TRAVERSAL), Some(replaced)))
            }
            "split" => {
                let size = own()?;
                let most = match arguments.get(1).map(|limit| &limit.expression) {
                    #[expect(clippy::cast_sign_loss, reason = "as upstream counts a negative limit")]
                    Some(Expression::Int(limit)) => *limit as u64,
                    _ => size.most,
                };
                Some((size.scaled(2.0 * TRAVERSAL), Some(Range { least: 0, most })))
            }
            "join" => {
                let list = own()?;
                let mut size = match self.element(target?) {
                    Some((_, element)) => list.times(element),
                    None => Range::ZERO,
                };
                if let Some(separator) = first() {
                    let gaps =
                        Range { least: list.least.saturating_sub(1), most: list.most.saturating_sub(1) };
                    size = size.plus(separator.times(gaps));
                }
                Some((size.scaled(TRAVERSAL), Some(size)))
            }
            "find" | "findAll" => {
                let (size, pattern) = (own()?, first()?);
                let cost = size.plus(Range::fixed(1)).scaled(TRAVERSAL).times(pattern.scaled(PATTERN));
                Some((cost, Some(Range { least: 0, most: size.most })))
            }
            "ip" if id == "cidr_ip" => nominal,
            "ip" | "cidr" | "isIP" | "isCIDR" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
                first().map(|size| (size.scaled(TRAVERSAL), None))
            }
            "ip.isCanonical" => first().map(|size| (size.scaled(2.0 * TRAVERSAL), None)),
            "masked"
            | "prefixLength"
            | "family"
            | "isUnspecified"
            | "isLoopback"
            | "isLinkLocalMulticast"
            | "isLinkLocalUnicast"
            | "isGlobalUnicast"
            | "format.named"
            | "sign"
            | "asInteger"
            | "isInteger"
            | "asApproximateFloat"
            | "isGreaterThan"
            | "isLessThan"
            | "compareTo"
            | "add"
            | "sub"
            | "major"
            | "minor"
            | "patch"
            | "getScheme"
            | "getHostname"
            | "getHost"
            | "getPort"
            | "getEscapedPath"
            | "getQuery" => nominal,
            "containsIP" | "containsCIDR" => {
                let address = Range { least: 4, most: 16 };
                let mut cost = address.plus(address).scaled(TRAVERSAL);
                if name == "containsCIDR" {
                    cost = cost.plus(address.scaled(TRAVERSAL)).plus(Range::fixed(1));
                }
                if id.ends_with("_string") {
                    cost = cost.plus(first()?.scaled(TRAVERSAL));
                }
                Some((cost, None))
            }
            "validate" => {
                /// Length of the longest pattern of a format.
                const LONGEST_PATTERN: f64 = 128.0;
                first().map(|size| (size.scaled(TRAVERSAL).scaled(LONGEST_PATTERN * PATTERN), None))
            }
            "_==_" => self.equality_of_libraries(arguments),
            _ => None,
        }
    }

    fn equality_of_libraries(&self, arguments: &[&Node]) -> Option<Call> {
        let [left, right] = arguments else { return None };
        let (left, right) = (&self.typed.types[left.id], &self.typed.types[right.id]);
        match (left, right) {
            (Type::Library("kubernetes.NamedFormat"), Type::Library("kubernetes.NamedFormat")) => {
                const LONGEST_FORMAT: u64 = 64;
                Some((Range { least: 1, most: LONGEST_FORMAT }.scaled(TRAVERSAL), None))
            }
            (Type::Library(a), Type::Library(b)) if a == b => Some((Range::fixed(1), None)),
            _ => None,
        }
    }

    /// Covers the functions of CEL whose cost depends on sizes.
    fn standard(&self, id: &str, target: Option<&Node>, arguments: &[&Node]) -> Option<Call> {
        let size = |node: &Node| self.size_or_unknown(node);
        match (id, target, arguments) {
            ("string_format", Some(target), _) => Some((size(target).scaled(TRAVERSAL), None)),
            ("string_to_bytes", _, [text]) => {
                let found = size(text);
                let result = Range { least: found.least, most: found.most.wrapping_mul(4) };
                Some((found.scaled(TRAVERSAL), Some(result)))
            }
            ("bytes_to_string", _, [bytes]) => {
                let found = size(bytes);
                let result = Range { least: found.least / 4, most: found.most };
                Some((found.scaled(TRAVERSAL), Some(result)))
            }
            ("strings_quote", _, [text]) => {
                let found = size(text);
                let most = found.most.wrapping_mul(2).wrapping_add(2);
                let result = Range { least: found.least.wrapping_add(2), most };
                Some((found.scaled(TRAVERSAL), Some(result)))
            }
            ("starts_with_string" | "ends_with_string", _, [text]) => {
                Some((size(text).scaled(TRAVERSAL), None))
            }
            ("in_list", _, [_, list]) => Some((size(list), None)),
            ("matches_string", Some(target), [pattern]) => {
                let text = size(target).plus(Range::fixed(1)).scaled(TRAVERSAL);
                Some((text.times(size(pattern).scaled(PATTERN)), None))
            }
            ("contains_string", Some(target), [part]) => {
                Some((size(target).scaled(TRAVERSAL).times(size(part).scaled(TRAVERSAL)), None))
            }
            ("add_list", _, [left, right]) => Some((Range::fixed(1), Some(size(left).plus(size(right))))),
            ("add_string" | "add_bytes", _, [left, right]) => {
                let result = size(left).plus(size(right));
                Some((result.scaled(TRAVERSAL), Some(result)))
            }
            (
                "equals"
                | "not_equals"
                | "less_string"
                | "less_equals_string"
                | "greater_string"
                | "greater_equals_string"
                | "less_bytes"
                | "less_equals_bytes"
                | "greater_bytes"
                | "greater_equals_bytes",
                _,
                [left, right],
            ) => {
                let most = size(left).most.min(size(right).most);
                Some((Range { least: u64::from(most > 0), most }.scaled(TRAVERSAL), None))
            }
            _ => None,
        }
    }
}

/// A step from a value to a part of it.
enum Step<'s> {
    Field(&'s str),
    Value,
    Key,
    Index,
}

/// Keys of maps, which upstream counts as empty.
static KEY: DeclaredType =
    DeclaredType { shape: Shape::Scalar(Type::Text), most_elements: 0, least_bytes: 2 };

/// Returns the length of a text after a replacement.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate"
)]
fn replaced(size: Range, from: Range, to: Range) -> Range {
    let divided = |a: u64, b: u64| (a as f64 / b as f64).ceil() as u64;
    let (count_most, kept_most) = if from.least == 0 {
        (size.most.saturating_add(1), size.most)
    } else if to.most <= from.least {
        (0, size.most)
    } else {
        (divided(size.most, from.least), 0)
    };
    let (count_least, kept_least) = if from.most == 0 {
        (size.least.saturating_add(1), size.least)
    } else if from.most <= to.least {
        (0, size.least)
    } else {
        (divided(size.least, from.most), 0)
    };
    Range { least: count_least, most: count_most }
        .times(to)
        .plus(Range { least: kept_least, most: kept_most })
}
