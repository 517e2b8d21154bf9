//! The subset of Kubernetes' JSONPath that printer columns and `-o jsonpath` use.

use serde_json::Value;

/// Maximum number of steps in a path.
const MOST_STEPS: usize = 128;

/// Maximum nesting of filters.
const MOST_NESTED: usize = 4;

/// Maximum number of results of a path; the search stops there.
const MOST_RESULTS: usize = 10_000;

/// Maximum number of items examined by the filters of one path; beyond it, nothing matches.
const MOST_FILTERED: usize = 100_000;

/// A parsed path.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// `.name` or `['name']`
    Field(String),
    /// `[0]`, `[-1]`
    Index(i64),
    /// `[1:3]`
    Slice(Option<i64>, Option<i64>),
    /// `[*]` or `.*`
    All,
    /// `..`: the value and everything below it.
    Descend,
    /// `[0,2]` or `['a','b']`
    Union(Vec<Step>),
    /// `[?(@.type=="Ready")]`
    Filter(Box<Filter>),
}

#[derive(Clone, Debug, PartialEq)]
struct Filter {
    left: Operand,
    test: Option<(Comparison, Operand)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    /// `@.path`
    Path(JsonPath),
    Literal(Value),
}

impl JsonPath {
    /// Parses a path without its braces.
    ///
    /// # Errors
    ///
    /// Describes the part that was not understood.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { rest: text.trim().trim_start_matches('$'), nested: 0 };
        parser.path(str::is_empty)
    }

    /// Returns all values at the path, in document order.
    #[must_use]
    pub fn find<'v>(&self, root: &'v Value) -> Vec<&'v Value> {
        self.find_within(root, &mut { MOST_FILTERED })
    }

    fn find_within<'v>(&self, root: &'v Value, left: &mut usize) -> Vec<&'v Value> {
        let mut found = vec![root];
        for step in &self.0 {
            let mut next = Vec::new();
            for value in found {
                if next.len() < MOST_RESULTS {
                    step.apply(value, left, &mut next);
                }
            }
            found = next;
        }
        found
    }
}

struct Parser<'t> {
    rest: &'t str,
    nested: usize,
}

impl Parser<'_> {
    fn path(&mut self, ends: impl Fn(&str) -> bool) -> Result<JsonPath, String> {
        let mut steps = Vec::new();
        while !ends(self.rest) {
            if steps.len() == MOST_STEPS {
                return Err(format!("more than {MOST_STEPS} steps"));
            }
            if self.eat("..") {
                steps.push(Step::Descend);
                if !self.rest.starts_with(['.', '[', '*']) && !self.rest.is_empty() {
                    steps.push(Step::Field(self.name()?));
                }
            } else if self.eat(".*") {
                steps.push(Step::All);
            } else if self.eat(".") {
                if ends(self.rest) {
                    break;
                }
                if !self.rest.starts_with('[') {
                    steps.push(Step::Field(self.name()?));
                }
            } else if self.eat("[") {
                steps.push(self.bracket()?);
            } else {
                return Err(format!("unexpected {:?}", self.rest));
            }
        }
        Ok(JsonPath(steps))
    }

    fn eat(&mut self, prefix: &str) -> bool {
        let Some(rest) = self.rest.strip_prefix(prefix) else { return false };
        self.rest = rest;
        true
    }

    /// Reads a name up to the next delimiter; a backslash makes the next character literal.
    fn name(&mut self) -> Result<String, String> {
        let mut name = String::new();
        let mut end = self.rest.len();
        let mut escaped = false;
        for (index, c) in self.rest.char_indices() {
            if escaped {
                name.push(c);
                escaped = false;
            } else if c == '\\' {
                escaped = true;
            } else if ".[]()=!<> ,".contains(c) {
                end = index;
                break;
            } else {
                name.push(c);
            }
        }
        self.rest = &self.rest[end..];
        if name.is_empty() { Err("an empty name".into()) } else { Ok(name) }
    }

    fn bracket(&mut self) -> Result<Step, String> {
        if self.eat("?(") {
            if self.nested == MOST_NESTED {
                return Err(format!("more than {MOST_NESTED} filters inside of each other"));
            }
            self.nested += 1;
            let filter = self.filter()?;
            self.nested -= 1;
            return if self.eat(")]") {
                Ok(Step::Filter(Box::new(filter)))
            } else {
                Err("unclosed filter".into())
            };
        }
        let mut union = Vec::new();
        loop {
            self.rest = self.rest.trim_start();
            union.push(self.element()?);
            self.rest = self.rest.trim_start();
            if self.eat("]") {
                break;
            }
            if !self.eat(",") || union.len() == MOST_STEPS {
                return Err("unclosed bracket".into());
            }
        }
        Ok(if union.len() == 1 { union.remove(0) } else { Step::Union(union) })
    }

    fn element(&mut self) -> Result<Step, String> {
        if self.eat("*") {
            return Ok(Step::All);
        }
        if let Some(quote) = self.rest.chars().next().filter(|c| matches!(c, '\'' | '"')) {
            return Ok(Step::Field(self.quoted(quote)?));
        }
        let end = self.rest.find([']', ',']).ok_or("unclosed bracket")?;
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        let number =
            |text: &str| text.trim().parse::<i64>().map_err(|_| format!("invalid array index {text}"));
        let bound = |text: &str| if text.trim().is_empty() { Ok(None) } else { number(text).map(Some) };
        match text.split_once(':') {
            Some((from, to)) => Ok(Step::Slice(bound(from)?, bound(to)?)),
            None => number(text).map(Step::Index),
        }
    }

    fn quoted(&mut self, quote: char) -> Result<String, String> {
        let mut text = String::new();
        let mut escaped = false;
        for (index, c) in self.rest.char_indices().skip(1) {
            if escaped {
                text.push(c);
                escaped = false;
            } else if c == '\\' {
                escaped = true;
            } else if c == quote {
                self.rest = &self.rest[index + 1..];
                return Ok(text);
            } else {
                text.push(c);
            }
        }
        Err("unclosed string".into())
    }

    fn filter(&mut self) -> Result<Filter, String> {
        let left = self.operand()?;
        self.rest = self.rest.trim_start();
        let comparisons = [
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        let comparison = comparisons.into_iter().find(|(text, _)| self.eat(text));
        let test = match comparison {
            Some((_, comparison)) => Some((comparison, self.operand()?)),
            None => None,
        };
        self.rest = self.rest.trim_start();
        Ok(Filter { left, test })
    }

    fn operand(&mut self) -> Result<Operand, String> {
        self.rest = self.rest.trim_start();
        if self.eat("@") {
            let ends = |rest: &str| rest.is_empty() || rest.starts_with(['=', '!', '<', '>', ')', ' ']);
            return self.path(ends).map(Operand::Path);
        }
        if let Some(quote) = self.rest.chars().next().filter(|c| matches!(c, '\'' | '"')) {
            return self.quoted(quote).map(|text| Operand::Literal(text.into()));
        }
        let end = self.rest.find([')', ' ', '=', '!', '<', '>']).unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        match text {
            "true" => Ok(Operand::Literal(true.into())),
            "false" => Ok(Operand::Literal(false.into())),
            _ => match text.parse::<f64>() {
                Ok(number) => Ok(Operand::Literal(number.into())),
                Err(_) => Err(format!("unexpected {text:?} in a filter")),
            },
        }
    }
}

impl Step {
    fn apply<'v>(&self, value: &'v Value, left: &mut usize, found: &mut Vec<&'v Value>) {
        match self {
            Self::Field(name) => {
                if let Value::Object(map) = value {
                    found.extend(map.get(name));
                }
            }
            Self::Index(index) => {
                if let Value::Array(items) = value {
                    found.extend(position(*index, items.len()).and_then(|index| items.get(index)));
                }
            }
            Self::Slice(from, to) => {
                if let Value::Array(items) = value {
                    let place =
                        |bound: i64| position(bound, items.len()).unwrap_or_default().min(items.len());
                    let (from, to) = (from.map_or(0, place), to.map_or(items.len(), place));
                    found.extend(items.get(from..to).unwrap_or_default());
                }
            }
            Self::All => match value {
                Value::Object(map) => found.extend(map.values()),
                Value::Array(items) => found.extend(items),
                _ => {}
            },
            Self::Descend => descend(value, found),
            Self::Union(steps) => steps.iter().for_each(|step| step.apply(value, left, found)),
            Self::Filter(filter) => {
                if let Value::Array(items) = value {
                    found.extend(items.iter().filter(|item| filter.takes(item, left)));
                }
            }
        }
    }
}

fn position(index: i64, length: usize) -> Option<usize> {
    let length = i64::try_from(length).ok()?;
    usize::try_from(if index < 0 { index + length } else { index }).ok()
}

fn descend<'v>(value: &'v Value, found: &mut Vec<&'v Value>) {
    if found.len() >= MOST_RESULTS {
        return;
    }
    found.push(value);
    match value {
        Value::Object(map) => map.values().for_each(|value| descend(value, found)),
        Value::Array(items) => items.iter().for_each(|value| descend(value, found)),
        _ => {}
    }
}

impl Filter {
    fn takes(&self, item: &Value, budget: &mut usize) -> bool {
        let Some(rest) = budget.checked_sub(1) else { return false };
        *budget = rest;
        let Some(left) = self.left.value(item, budget) else { return false };
        let Some((comparison, right)) = &self.test else { return true };
        let Some(right) = right.value(item, budget) else { return false };
        let order = match (left, right) {
            (Value::Number(a), Value::Number(b)) => {
                a.as_f64().and_then(|a| b.as_f64().and_then(|b| a.partial_cmp(&b)))
            }
            (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
            (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
            _ => None,
        };
        match comparison {
            Comparison::Equal => order.is_some_and(std::cmp::Ordering::is_eq),
            Comparison::NotEqual => order.is_some_and(std::cmp::Ordering::is_ne),
            Comparison::Less => order.is_some_and(std::cmp::Ordering::is_lt),
            Comparison::LessOrEqual => order.is_some_and(std::cmp::Ordering::is_le),
            Comparison::Greater => order.is_some_and(std::cmp::Ordering::is_gt),
            Comparison::GreaterOrEqual => order.is_some_and(std::cmp::Ordering::is_ge),
        }
    }
}

impl Operand {
    fn value<'v>(&'v self, item: &'v Value, left: &mut usize) -> Option<&'v Value> {
        match self {
            Self::Path(path) => path.find_within(item, left).into_iter().next(),
            Self::Literal(value) => Some(value),
        }
    }
}
