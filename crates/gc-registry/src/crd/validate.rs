//! Validation of custom resources against their schema, with the causes and messages of kube-apiserver.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use gc_cel::{PatternError, compile_pattern};
use serde_json::{Map, Value};

use super::{field, formats};
use crate::error::{CauseReason, FieldError};
use crate::metadata::numbers::go_float;
use crate::schema::{IntegerFormat, ListType, Node, Schema, StringFormat, Validations};

/// Maximum number of errors reported for one object. The search stops there, so that a list of a million invalid items cannot cause
/// an answer with a million causes.
const MOST_PROBLEMS: usize = 1_000;

/// Explains why a pattern does not compile, in Go's wording for common errors.
pub(super) fn go_regex_error(pattern: &str, error: &PatternError) -> String {
    let found = error.to_string();
    let cause = found.rsplit("error: ").next().unwrap_or_default().trim();
    let what = match cause {
        "unclosed group" => "missing closing )",
        "unopened group" => "unexpected )",
        "unclosed character class" => "missing closing ]",
        "repetition operator missing expression" => "missing argument to repetition operator",
        "incomplete escape sequence, reached end of pattern prematurely" => {
            "trailing backslash at end of expression"
        }
        _ => return found,
    };
    format!("error parsing regexp: {what}: `{pattern}`")
}

/// Checks types and values. `old` is the stored value, whose unchanged parts are not checked again.
pub(super) fn values(schema: &Schema, path: &str, value: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut checker = Checker { path: path.to_owned(), problems: Vec::new() };
    checker.check(schema, value, old, true);
    checker.problems
}

struct Checker {
    path: String,
    problems: Vec<FieldError>,
}

impl Checker {
    /// Checks a value. `typed` is false below `allOf` and similar keywords, where schemas restrict values without stating types.
    fn check(&mut self, schema: &Schema, value: &Value, old: Option<&Value>, typed: bool) {
        if self.problems.len() >= MOST_PROBLEMS || old == Some(value) {
            return;
        }
        if value.is_null() {
            if typed && !schema.nullable && type_name(&schema.node).is_some() {
                self.wrong_type(&schema.node, "null");
            }
            self.check_enumeration(schema, value);
            return;
        }
        if typed {
            self.check_type(schema, value);
        }
        if let Some(validations) = &schema.validations {
            self.check_branches(validations, value);
        }
        self.check_integer(&schema.node, value, format_of(schema));
        if let Some(validations) = &schema.validations {
            self.check_scalar(validations, value);
        }
        if let (Node::String(StringFormat::Other(format)), Value::String(text)) = (&schema.node, value)
            && !formats::is_valid(format, text)
        {
            let why =
                format!("{} in body must be of type {format}: {}", self.path, Value::from(text.as_str()));
            let detail = format!("Invalid value: {}: {why}", field::printed(value));
            self.push(field::error(self.path.clone(), CauseReason::TypeInvalid, detail));
        }
        self.check_enumeration(schema, value);
        match value {
            Value::Array(items) => self.check_items(schema, items, old, typed),
            Value::Object(map) => self.check_fields(schema, map, old, typed),
            _ => {}
        }
    }

    fn push(&mut self, problem: FieldError) {
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(problem);
        }
    }

    /// Checks the type of a value. A value that is neither a text nor a list is compared with the format, if there is one; a text
    /// or a list matches any schema of texts with a format.
    fn check_type(&mut self, schema: &Schema, value: &Value) {
        let is_right = has_type(&schema.node, value);
        let is_textual = value.is_string() || value.is_array();
        match format_of(schema) {
            Some(_) if is_textual && matches!(schema.node, Node::String(_)) => {}
            Some(format) if !is_textual => {
                let actual = number_format(value);
                if !is_right && actual != format {
                    self.wrong(format, actual);
                }
            }
            _ if is_right => {}
            _ => self.wrong_type(&schema.node, json_type(value)),
        }
    }

    fn wrong_type(&mut self, node: &Node, actual: &str) {
        self.wrong(type_name(node).unwrap_or_default(), actual);
    }

    fn wrong(&mut self, wanted: &str, actual: &str) {
        let detail = format!(
            "Invalid value: \"{actual}\": {} in body must be of type {wanted}: \"{actual}\"",
            self.path
        );
        self.push(field::error(self.path.clone(), CauseReason::TypeInvalid, detail));
    }

    /// Checks that an integer is in the range of its format. Upstream names no separate field.
    fn check_integer(&mut self, node: &Node, value: &Value, named: Option<&str>) {
        let (Node::Integer(format), Value::Number(number)) = (node, value) else { return };
        let whole = number.as_i64().or_else(|| number.as_f64().and_then(whole));
        let (fits, format) = match format {
            IntegerFormat::Int32 => {
                (whole.is_some_and(|whole| i32::try_from(whole).is_ok()), "with format int32")
            }
            IntegerFormat::Int64 if named.is_some() => (whole.is_some(), "with format int64"),
            IntegerFormat::Int64 => (whole.is_some(), "(default format)"),
        };
        if !fits {
            let why = format!("Checked value must be of type integer {format} in {}", self.path);
            self.push(field::invalid_text("<nil>", "", &why));
        }
    }

    /// Adds an error; `what` completes "… in body should …".
    fn bad(&mut self, value: &Value, what: &str) {
        let why = format!("{} in body should {what}", self.path);
        self.push(field::invalid(self.path.clone(), value, &why));
    }

    fn check_enumeration(&mut self, schema: &Schema, value: &Value) {
        let Some(allowed) =
            schema.validations.as_ref().and_then(|validations| validations.enumeration.as_ref())
        else {
            return;
        };
        if !allowed.iter().any(|one| is_allowed(one, value)) {
            let texts: Vec<String> = allowed
                .iter()
                .map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned))
                .collect();
            self.push(field::not_supported(self.path.clone(), value, &texts));
        }
    }

    fn check_scalar(&mut self, validations: &Validations, value: &Value) {
        match value {
            Value::String(text) => self.check_text(validations, value, text),
            Value::Number(number) => {
                if let Some(whole) = number.as_i64() {
                    self.check_whole_divisor(validations, value, whole);
                } else if let Some(number) = number.as_f64() {
                    self.check_divisor(validations, value, number);
                }
                if let Some(number) = number.as_f64() {
                    self.check_limits(validations, value, number);
                }
            }
            _ => {}
        }
    }

    fn check_text(&mut self, validations: &Validations, value: &Value, text: &str) {
        if validations.max_length.is_some() || validations.min_length.is_some() {
            let length = text.chars().count() as u64;
            if let Some(limit) = validations.max_length.filter(|limit| length > *limit) {
                self.push(field::too_long(self.path.clone(), limit));
                return;
            }
            if let Some(limit) = validations.min_length.filter(|limit| length < *limit) {
                self.bad(value, &format!("be at least {limit} chars long"));
                return;
            }
        }
        // A text that is not a pattern restricts nothing: definitions with one are refused before they are served.
        if let Some(pattern) = &validations.pattern
            && compile_pattern(pattern).is_ok_and(|compiled| !compiled.is_match(text))
        {
            self.bad(value, &format!("match '{pattern}'"));
        }
    }

    /// Checks divisibility as upstream does, which uses only the integral part of the divisor for integers.
    fn check_whole_divisor(&mut self, validations: &Validations, value: &Value, number: i64) {
        let Some(divisor) = validations.multiple_of.and_then(|divisor| whole(divisor.trunc())) else {
            return;
        };
        if divisor <= 0 {
            let why = format!("factor MultipleOf declared for {} must be positive: {divisor}", self.path);
            self.push(field::invalid(self.path.clone(), &Value::from(divisor), &why));
        } else if number % divisor != 0 {
            self.bad(value, &format!("be a multiple of {divisor}"));
        }
    }

    fn check_divisor(&mut self, validations: &Validations, value: &Value, number: f64) {
        if let Some(divisor) = validations.multiple_of
            && divisor > 0.0
            && !is_multiple(number, divisor)
        {
            self.bad(value, &format!("be a multiple of {}", go_float(divisor)));
        }
    }

    /// Checks limits as upstream does, which compares integers with the integral part of a limit.
    fn check_limits(&mut self, validations: &Validations, value: &Value, number: f64) {
        let exact = |limit: f64| {
            let is_whole = value.is_i64() && limit.abs() < WHOLE_MAX;
            if is_whole { (limit.trunc(), limit.trunc().to_string()) } else { (limit, go_float(limit)) }
        };
        if let Some((limit, shown)) = validations.maximum.map(exact) {
            if validations.exclusive_maximum && number >= limit {
                self.bad(value, &format!("be less than {shown}"));
            } else if number > limit {
                self.bad(value, &format!("be less than or equal to {shown}"));
            }
        }
        if let Some((limit, shown)) = validations.minimum.map(exact) {
            if validations.exclusive_minimum && number <= limit {
                self.bad(value, &format!("be greater than {shown}"));
            } else if number < limit {
                self.bad(value, &format!("be greater than or equal to {shown}"));
            }
        }
    }

    fn check_items(&mut self, schema: &Schema, items: &[Value], old: Option<&Value>, typed: bool) {
        if let Some(validations) = &schema.validations {
            let count = items.len() as u64;
            if let Some(limit) = validations.min_items.filter(|limit| count < *limit) {
                self.bad(&Value::from(count), &format!("have at least {limit} items"));
            }
            if let Some(limit) = validations.max_items.filter(|limit| count > *limit) {
                self.push(field::too_many(self.path.clone(), items.len(), limit));
            }
            if validations.unique_items && first_duplicate(items.iter()).is_some() {
                let why = format!("{} in body shouldn't contain duplicates", self.path);
                self.push(field::invalid_text(self.path.clone(), "", &why));
            }
        }
        let Node::List(list) = &schema.node else { return };
        let old_items = old.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let keys = match &list.list_type {
            ListType::Map(keys) if !old_items.is_empty() => Some(keys),
            _ => None,
        };
        let by_key: BTreeMap<String, &Value> = keys
            .map(|keys| old_items.iter().map(|item| (key_of(item, keys, &list.items), item)).collect())
            .unwrap_or_default();
        let length = self.path.len();
        for (index, item) in items.iter().enumerate() {
            // Writing to a String does not fail.
            let _ = write!(self.path, "[{index}]");
            let old_item = keys.and_then(|keys| by_key.get(&key_of(item, keys, &list.items)).copied());
            self.check(&list.items, item, old_item, typed);
            self.path.truncate(length);
        }
    }

    fn check_fields(&mut self, schema: &Schema, map: &Map<String, Value>, old: Option<&Value>, typed: bool) {
        if let Some(validations) = &schema.validations {
            let count = map.len() as u64;
            if let Some(limit) = validations.min_properties.filter(|limit| count < *limit) {
                self.bad(&Value::from(count), &format!("have at least {limit} properties"));
            }
            if let Some(limit) = validations.max_properties.filter(|limit| count > *limit) {
                self.push(field::too_many(self.path.clone(), map.len(), limit));
            }
        }
        let old = old.and_then(Value::as_object);
        let old_value = |name: &str| old.and_then(|old| old.get(name));
        match &schema.node {
            Node::Object(object) => {
                for name in object.required.iter().filter(|name| !map.contains_key(&***name)) {
                    let path = field::child(&self.path, name);
                    self.push(field::required(path, ""));
                }
                for (name, property) in &object.properties {
                    if let Some(value) = map.get(&**name) {
                        self.check_member(&property.schema, name, value, old_value(name), typed);
                    }
                }
            }
            Node::Map(values) => {
                for (name, value) in map {
                    self.check_member(&values.values, name, value, old_value(name), typed);
                }
            }
            _ => {}
        }
    }

    fn check_member(&mut self, schema: &Schema, name: &str, value: &Value, old: Option<&Value>, typed: bool) {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        self.check(schema, value, old, typed);
        self.path.truncate(length);
    }

    /// Returns the errors of a value below a branch, without reporting them.
    fn problems_of(&self, branch: &Schema, value: &Value) -> Vec<FieldError> {
        let mut checker = Checker { path: self.path.clone(), problems: Vec::new() };
        checker.check(branch, value, None, false);
        checker.problems
    }

    /// Reports a failed composition, which has no separate field in kube-apiserver's errors.
    fn bad_branch(&mut self, what: &str) {
        let why = format!("\"{}\" {what}", self.path);
        self.push(field::invalid_text("<nil>", "", &why));
    }

    fn check_branches(&mut self, validations: &Validations, value: &Value) {
        if validations.is_integer_or_string && !has_type(&Node::IntOrString, value) {
            self.bad_branch("must validate at least one schema (anyOf)");
            let integer = Node::Integer(IntegerFormat::Int64);
            self.wrong_type(&integer, json_type(value));
            self.check_integer(&integer, value, None);
        }
        if !validations.any_of.is_empty() {
            let tried = validations.any_of.iter().map(|branch| self.problems_of(branch, value));
            if let Some(best) = closest(tried) {
                self.bad_branch("must validate at least one schema (anyOf)");
                for problem in best {
                    self.push(problem);
                }
            }
        }
        if !validations.one_of.is_empty() {
            let tried: Vec<_> =
                validations.one_of.iter().map(|branch| self.problems_of(branch, value)).collect();
            match tried.iter().filter(|problems| problems.is_empty()).count() {
                1 => {}
                0 => {
                    self.bad_branch("must validate one and only one schema (oneOf). Found none valid");
                    closest(tried.into_iter()).into_iter().flatten().for_each(|problem| self.push(problem));
                }
                many => self.bad_branch(&format!(
                    "must validate one and only one schema (oneOf). Found {many} valid alternatives"
                )),
            }
        }
        if !validations.all_of.is_empty() {
            let mut valid = 0;
            for branch in &validations.all_of {
                let problems = self.problems_of(branch, value);
                valid += usize::from(problems.is_empty());
                for problem in problems {
                    self.push(problem);
                }
            }
            if valid == 0 {
                self.bad_branch("must validate all the schemas (allOf). None validated");
            } else if valid < validations.all_of.len() {
                self.bad_branch("must validate all the schemas (allOf)");
            }
        }
        if let Some(branch) = &validations.not
            && self.problems_of(branch, value).is_empty()
        {
            self.bad_branch("must not validate the schema (not)");
        }
    }
}

/// Returns the errors of the branch that came closest; `None` if one has no errors.
fn closest(tried: impl Iterator<Item = Vec<FieldError>>) -> Option<Vec<FieldError>> {
    let mut best: Option<Vec<FieldError>> = None;
    for problems in tried {
        if problems.is_empty() {
            return None;
        }
        if best.as_ref().is_none_or(|best| problems.len() < best.len()) {
            best = Some(problems);
        }
    }
    best
}

/// Returns the type as named in `openAPIV3Schema`.
pub(super) fn type_name(node: &Node) -> Option<&'static str> {
    match node {
        Node::Any => None,
        Node::Object(_) | Node::Map(_) => Some("object"),
        Node::List(_) => Some("array"),
        Node::String(_) | Node::Quantity => Some("string"),
        Node::Integer(_) => Some("integer"),
        Node::Number => Some("number"),
        Node::Boolean => Some("boolean"),
        Node::IntOrString => Some("integer,string"),
    }
}

fn has_type(node: &Node, value: &Value) -> bool {
    match (node, value) {
        (Node::Any, _)
        | (Node::Object(_) | Node::Map(_), Value::Object(_))
        | (Node::List(_), Value::Array(_))
        | (Node::String(_) | Node::Quantity | Node::IntOrString, Value::String(_))
        | (Node::Number, Value::Number(_))
        | (Node::Boolean, Value::Bool(_)) => true,
        (Node::Integer(_) | Node::IntOrString, Value::Number(number)) => is_whole(number),
        _ => false,
    }
}

fn is_whole(number: &serde_json::Number) -> bool {
    number.is_i64() || (number.is_f64() && number.as_f64().is_some_and(|float| float.fract() == 0.0))
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if is_whole(number) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Returns the format that values of a schema are compared with.
fn format_of(schema: &Schema) -> Option<&str> {
    match &schema.node {
        Node::String(StringFormat::Other(format)) if formats::is_known(format) => Some(format),
        _ => schema.validations.as_ref()?.number_format,
    }
}

/// Returns the format of a value by upstream's name; only numbers have one.
fn number_format(value: &Value) -> &'static str {
    match value {
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        _ => "",
    }
}

/// Reports whether a value matches a member of an enumeration. Null never does, and a number is first converted to the member's
/// type.
fn is_allowed(one: &Value, value: &Value) -> bool {
    match (one, value) {
        (_, Value::Null) => false,
        (Value::Number(one), Value::Number(number)) if one.is_i64() && number.is_f64() => {
            number.as_f64().and_then(|float| whole(float.trunc())) == one.as_i64()
        }
        _ => equal(one, value),
    }
}

/// Compares JSON values, with `1` and `1.0` as the same number.
pub(super) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => x == y || x.as_f64() == y.as_f64(),
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(x, y)| equal(x, y)),
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len() && x.iter().all(|(key, x)| y.get(key).is_some_and(|y| equal(x, y)))
        }
        _ => a == b,
    }
}

/// Converts a float without a fraction to an integer.
#[allow(clippy::cast_possible_truncation)] // within the range of exact whole numbers
fn whole(number: f64) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() < WHOLE_MAX).then_some(number as i64)
}

/// Bound from which floats skip integers.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

fn is_multiple(number: f64, divisor: f64) -> bool {
    /// Maximum distance of a quotient from an integer, to tolerate binary fractions.
    const SLACK: f64 = 1e-9;
    let quotient = number / divisor;
    if quotient.abs() >= WHOLE_MAX {
        return false;
    }
    (quotient - quotient.round()).abs() <= SLACK * quotient.abs().max(1.0)
}

/// Returns the index of the first value that equals an earlier one.
fn first_duplicate<'v>(items: impl Iterator<Item = &'v Value>) -> Option<usize> {
    let mut seen = std::collections::BTreeSet::new();
    items.enumerate().find(|(_, item)| !seen.insert(item.to_string())).map(|(index, _)| index)
}

/// Returns the values of an item's keys, with defaults, as one text.
pub(super) fn key_of(item: &Value, keys: &[Arc<str>], items: &Schema) -> String {
    Value::Object(key_values(item, keys, items)).to_string()
}

fn key_values(item: &Value, keys: &[Arc<str>], items: &Schema) -> Map<String, Value> {
    let mut values = Map::new();
    for key in keys {
        let default = || items.field(key).and_then(|schema| schema.default.clone());
        if let Some(value) = item.get(&**key).cloned().or_else(default) {
            values.insert(key.to_string(), value);
        }
    }
    values
}

/// Checks that lists of type `set` and `map` have no duplicate items.
pub(super) fn list_types(schema: &Schema, path: &str, value: &Value, problems: &mut Vec<FieldError>) {
    if problems.len() >= MOST_PROBLEMS {
        return;
    }
    match (&schema.node, value) {
        (Node::Object(object), Value::Object(map)) => {
            for (name, property) in &object.properties {
                if let Some(value) = map.get(&**name) {
                    list_types(&property.schema, &field::child(path, name), value, problems);
                }
            }
        }
        (Node::Map(values), Value::Object(map)) => {
            for (name, value) in map {
                list_types(&values.values, &format!("{path}[{name}]"), value, problems);
            }
        }
        (Node::List(list), Value::Array(items)) => {
            let mut seen: BTreeMap<String, bool> = BTreeMap::new();
            for (index, item) in items.iter().enumerate() {
                let identity = match &list.list_type {
                    ListType::Atomic | ListType::Unspecified => None,
                    ListType::Set => Some(item.clone()),
                    ListType::Map(keys) => {
                        item.is_object().then(|| Value::Object(key_values(item, keys, &list.items)))
                    }
                };
                if let Some(identity) = identity {
                    // Reported once, regardless of the number of occurrences.
                    let reported = seen.get_mut(&identity.to_string());
                    match reported {
                        Some(reported) if *reported => {}
                        Some(reported) => {
                            *reported = true;
                            problems.push(field::duplicate(format!("{path}[{index}]"), &identity));
                        }
                        None => {
                            seen.insert(identity.to_string(), false);
                        }
                    }
                }
                list_types(&list.items, &format!("{path}[{index}]"), item, problems);
            }
        }
        _ => {}
    }
}

/// Checks apiVersion, kind and metadata of embedded resources.
pub(super) fn embedded_resources(schema: &Schema, path: &str, value: &Value, problems: &mut Vec<FieldError>) {
    if problems.len() >= MOST_PROBLEMS {
        return;
    }
    // The resource itself is checked like all resources.
    if let (true, false, Value::Object(map)) = (schema.embedded_resource, path.is_empty(), value) {
        embedded_resource(path, map, problems);
    }
    match (&schema.node, value) {
        (Node::Object(object), Value::Object(map)) => {
            for (name, property) in &object.properties {
                if let Some(value) = map.get(&**name) {
                    embedded_resources(&property.schema, &field::child(path, name), value, problems);
                }
            }
        }
        (Node::Map(values), Value::Object(map)) => {
            for (name, value) in map {
                embedded_resources(&values.values, &format!("{path}[{name}]"), value, problems);
            }
        }
        (Node::List(list), Value::Array(items)) => {
            for (index, item) in items.iter().enumerate() {
                embedded_resources(&list.items, &format!("{path}[{index}]"), item, problems);
            }
        }
        _ => {}
    }
}

fn embedded_resource(path: &str, map: &Map<String, Value>, problems: &mut Vec<FieldError>) {
    for name in ["apiVersion", "kind"] {
        let path = field::child(path, name);
        match map.get(name) {
            None => problems.push(field::required(path, "")),
            Some(Value::String(text)) if text.is_empty() => {
                problems.push(field::invalid_text(path, "", "must not be empty"));
            }
            Some(Value::String(text)) if name == "apiVersion" => {
                if text.matches('/').count() > 1 {
                    let why = format!("unexpected GroupVersion string: {text}");
                    problems.push(field::invalid_text(path, text, &why));
                }
            }
            Some(Value::String(text)) => {
                let wrong = field::label_problems(&text.to_lowercase());
                if !wrong.is_empty() {
                    let why = format!("may have mixed case, but should otherwise match: {wrong}");
                    problems.push(field::invalid_text(path, text, &why));
                }
            }
            Some(other) => problems.push(field::invalid(path, other, "must be a string")),
        }
    }
    let metadata_path = field::child(path, "metadata");
    match map.get("metadata") {
        None => {}
        Some(Value::Object(_)) => {
            let mut object = Value::Object(map.clone());
            crate::metadata::meta::normalize(&mut object);
            for mut problem in crate::metadata::validation::validate_embedded(&object) {
                problem.field = problem.field.replacen("metadata", &metadata_path, 1);
                problems.push(problem);
            }
        }
        Some(other) => problems.push(field::invalid(metadata_path, other, "must be an object")),
    }
}
