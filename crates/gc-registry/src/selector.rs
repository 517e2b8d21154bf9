//! Label and field selectors.

use serde_json::Value;

use crate::error::ApiError;
use crate::names;

/// One term of a label selector.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    Absent,
    Greater,
    Less,
}

/// A label selector: all terms must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

impl LabelSelector {
    /// Reads `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1,m<2`. Errors are 400 with upstream's texts.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        let mut parser = Parser { tokens: tokens(text), at: 0 };
        let requirements = parser
            .requirements()
            .map_err(|why| ApiError::bad_request(format!("unable to parse requirement: {why}")))?;
        Ok(Self(requirements))
    }

    /// Whether everything matches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether these labels (`metadata.labels`) match.
    #[must_use]
    pub fn matches(&self, labels: Option<&Value>) -> bool {
        let get = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
        self.0.iter().all(|requirement| {
            let value = get(&requirement.key);
            let listed = |value: &str| requirement.values.iter().any(|known| known == value);
            let compare = |holds: fn(i64, i64) -> bool| {
                let bound = requirement.values.first().and_then(|bound| bound.parse::<i64>().ok());
                match (value.and_then(|value| value.parse::<i64>().ok()), bound) {
                    (Some(value), Some(bound)) => holds(value, bound),
                    _ => false,
                }
            };
            match requirement.operator {
                Operator::In => value.is_some_and(listed),
                Operator::NotIn => !value.is_some_and(listed),
                Operator::Exists => value.is_some(),
                Operator::Absent => value.is_none(),
                Operator::Greater => compare(|value, bound| value > bound),
                Operator::Less => compare(|value, bound| value < bound),
            }
        })
    }
}

/// As it would be asked for; what fuzz targets read again.
#[cfg(any(test, fuzzing))]
impl std::fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let written = self.0.iter().map(|Requirement { key, operator, values }| match operator {
            Operator::In => format!("{key} in ({})", values.join(",")),
            Operator::NotIn => format!("{key} notin ({})", values.join(",")),
            Operator::Exists => key.clone(),
            Operator::Absent => format!("!{key}"),
            Operator::Greater => format!("{key}>{}", values.join(",")),
            Operator::Less => format!("{key}<{}", values.join(",")),
        });
        f.write_str(&written.collect::<Vec<_>>().join(","))
    }
}

/// As it would be asked for; what fuzz targets read again.
#[cfg(any(test, fuzzing))]
impl std::fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let written = self.0.iter().map(|(field, equal, value)| {
            let value = value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
            format!("{field}{}{value}", if *equal { "=" } else { "!=" })
        });
        f.write_str(&written.collect::<Vec<_>>().join(","))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Symbol(&'static str),
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Self::Word(text) => text,
            Self::Symbol(symbol) => symbol,
        }
    }
}

fn tokens(text: &str) -> Vec<Token> {
    const SYMBOLS: [&str; 9] = ["!=", "==", "!", "=", "(", ")", ",", "<", ">"];
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some(symbol) = SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol)) {
            tokens.push(Token::Symbol(symbol));
            rest = rest[symbol.len()..].trim_start();
        } else {
            let end = rest.find(|c: char| c.is_whitespace() || "!=(),<>".contains(c)).unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..end].to_owned()));
            rest = rest[end..].trim_start();
        }
    }
    tokens
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn take(&mut self, symbol: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Symbol(known)) if *known == symbol);
        if found {
            self.at += 1;
        }
        found
    }

    fn requirements(&mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        while self.peek().is_some() {
            requirements.push(self.requirement()?);
            match self.next() {
                None => break,
                Some(Token::Symbol(",")) => {
                    if self.peek().is_none() {
                        return Err("found '', expected: identifier after ','".into());
                    }
                }
                Some(other) => {
                    return Err(format!("found '{}', expected: ',' or 'end of string'", other.text()));
                }
            }
        }
        Ok(requirements)
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = self.take("!");
        let key = match self.next() {
            Some(Token::Word(key)) => key,
            other => {
                let found = other.as_ref().map_or("", Token::text);
                return Err(format!("found '{found}', expected: !, identifier, or 'end of string'"));
            }
        };
        check("key", &key, &names::qualified_name(&key))?;
        if absent || matches!(self.peek(), None | Some(Token::Symbol(","))) {
            let operator = if absent { Operator::Absent } else { Operator::Exists };
            return Ok(Requirement { key, operator, values: Vec::new() });
        }
        let operator = self.next();
        let (operator, values) = match operator.as_ref().map_or("", Token::text) {
            "in" => (Operator::In, self.values()?),
            "notin" => (Operator::NotIn, self.values()?),
            "=" | "==" => (Operator::In, vec![self.value()]),
            "!=" => (Operator::NotIn, vec![self.value()]),
            ">" | "gt" => (Operator::Greater, vec![self.value()]),
            "<" | "lt" => (Operator::Less, vec![self.value()]),
            other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        for value in &values {
            if matches!(operator, Operator::Greater | Operator::Less) && value.parse::<i64>().is_err() {
                return Err(format!(
                    "values[0]: Invalid value: {}: for 'Gt', 'Lt' operators, the value must be an integer",
                    names::quoted(value)
                ));
            }
            check(&format!("values[0][{key}]"), value, &names::label_value(value))?;
        }
        Ok(Requirement { key, operator, values })
    }

    /// The value after `=`; nothing is the empty value.
    fn value(&mut self) -> String {
        if matches!(self.peek(), Some(Token::Word(_))) {
            self.next().map_or_else(String::new, |token| token.text().to_owned())
        } else {
            String::new()
        }
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        if !self.take("(") {
            let found = self.peek().map_or("", Token::text);
            return Err(format!("found '{found}' expected: '('"));
        }
        let mut values = Vec::new();
        loop {
            values.push(self.value());
            match self.next() {
                Some(Token::Symbol(",")) => {}
                Some(Token::Symbol(")")) => return Ok(values),
                other => {
                    let found = other.as_ref().map_or("", Token::text);
                    return Err(format!("found '{found}', expected: ',' or ')'"));
                }
            }
        }
    }
}

fn check(field: &str, text: &str, problems: &[String]) -> Result<(), String> {
    if problems.is_empty() {
        return Ok(());
    }
    Err(format!("{field}: Invalid value: {}: {}", names::quoted(text), problems.join("; ")))
}

/// A field selector: all terms must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<(String, bool, String)>);

impl FieldSelector {
    /// Reads `a=b,c==d,e!=f`. `known` are the fields that the kind supports besides name and namespace;
    /// `own_words` says whether the kind answers an unknown field in the words of core kinds.
    pub fn parse(text: &str, known: &[&str], own_words: bool) -> Result<Self, ApiError> {
        let mut terms = Vec::new();
        for term in split_terms(text).into_iter().filter(|term| !term.is_empty()) {
            let Some((field, equal, value)) = split_term(&term) else {
                return Err(ApiError::bad_request(format!(
                    "invalid selector: '{text}'; can't understand '{term}'"
                )));
            };
            if field != "metadata.name" && field != "metadata.namespace" && !known.contains(&field) {
                return Err(ApiError::bad_request(if own_words {
                    format!("field label not supported: {field}")
                } else {
                    let mut all = vec!["metadata.name", "metadata.namespace"];
                    all.extend(known);
                    let all: Vec<String> = all.into_iter().map(names::quoted).collect();
                    format!("{} is not a known field selector: only {}", names::quoted(field), all.join(", "))
                }));
            }
            terms.push((field.to_owned(), equal, unescape(value)));
        }
        Ok(Self(terms))
    }

    /// Whether everything matches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether more than name and namespace is looked at.
    #[must_use]
    pub fn needs_object(&self) -> bool {
        self.0.iter().any(|(field, ..)| field != "metadata.name" && field != "metadata.namespace")
    }

    /// The name that a match must have, if the selector names one.
    #[must_use]
    pub fn exact_name(&self) -> Option<&str> {
        self.0
            .iter()
            .find(|(field, equal, _)| field == "metadata.name" && *equal)
            .map(|(_, _, value)| value.as_str())
    }

    /// Whether an object with this metadata and these other fields matches.
    #[must_use]
    pub fn matches(&self, metadata: &Value, fields: &[(String, String)]) -> bool {
        self.0.iter().all(|(field, equal, wanted)| {
            let value = match field.strip_prefix("metadata.") {
                Some(name @ ("name" | "namespace")) => {
                    metadata.get(name).and_then(Value::as_str).unwrap_or_default()
                }
                _ => fields.iter().find(|(name, _)| name == field).map_or("", |(_, value)| value.as_str()),
            };
            (value == wanted) == *equal
        })
    }
}

fn split_terms(text: &str) -> Vec<String> {
    let mut terms = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        if c == ',' && !escaped {
            terms.push(String::new());
            continue;
        }
        escaped = c == '\\' && !escaped;
        if let Some(last) = terms.last_mut() {
            last.push(c);
        }
    }
    terms
}

fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    for (index, _) in term.char_indices() {
        let rest = &term[index..];
        for (operator, equal) in [("!=", false), ("==", true), ("=", true)] {
            if let Some(value) = rest.strip_prefix(operator) {
                return Some((&term[..index], equal, value));
            }
        }
    }
    None
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut escaped = false;
    for c in text.chars() {
        if c == '\\' && !escaped {
            escaped = true;
        } else {
            escaped = false;
            out.push(c);
        }
    }
    out
}
