//! Label and field selectors.

use serde_json::Value;

use super::names;
use crate::error::ApiError;

/// A term of a label selector.
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

/// Reports whether the labels of an object match a selector in its object form (`matchLabels`, `matchExpressions`). An empty
/// selector matches everything; an absent or invalid one matches nothing.
#[must_use]
pub fn object_matches(selector: Option<&Value>, labels: Option<&Value>) -> bool {
    let Some(selector) = selector.filter(|selector| selector.is_object()) else { return false };
    let label = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
    let pairs = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let expressions = selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
    pairs.into_iter().all(|(key, value)| label(key) == value.as_str())
        && expressions.into_iter().all(|expression| {
            let text = |member: &str| expression.get(member).and_then(Value::as_str).unwrap_or_default();
            let value = label(text("key"));
            let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
            let is_listed = values.into_iter().any(|listed| value.is_some() && listed.as_str() == value);
            match text("operator") {
                "In" => is_listed,
                "NotIn" => !is_listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

impl LabelSelector {
    /// Parses `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1,m<2`. Errors are 400 with upstream's messages.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        let mut parser = Parser { tokens: tokens(text), at: 0 };
        parser.requirements().map(Self).map_err(ApiError::bad_request)
    }

    /// Reports whether everything matches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reports whether these labels (`metadata.labels`) match.
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

/// Formats the selector in its request form, which fuzz targets read back.
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

/// Formats the selector in its request form, which fuzz targets read back.
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
        while let Some(first) = self.peek() {
            if let Token::Symbol(found) = first
                && *found != "!"
            {
                return Err(format!("found '{found}', expected: !, identifier, or 'end of string'"));
            }
            let requirement = self.requirement();
            requirements.push(requirement.map_err(|why| format!("unable to parse requirement: {why}"))?);
            match self.next() {
                None => break,
                Some(Token::Symbol(",")) => {
                    if !matches!(self.peek(), Some(Token::Word(_) | Token::Symbol("!"))) {
                        let found = self.peek().map_or("", Token::text);
                        return Err(format!("found '{found}', expected: identifier after ','"));
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
                return Err(format!("found '{found}', expected: identifier"));
            }
        };
        // The parser has no field name here.
        check("<nil>", &key, &names::qualified_name(&key))?;
        if absent || matches!(self.peek(), None | Some(Token::Symbol(","))) {
            let operator = if absent { Operator::Absent } else { Operator::Exists };
            return Ok(Requirement { key, operator, values: Vec::new() });
        }
        let operator = self.next();
        let (operator, values) = match operator.as_ref().map_or("", Token::text) {
            "in" => (Operator::In, self.values()?),
            "notin" => (Operator::NotIn, self.values()?),
            "=" | "==" => (Operator::In, vec![self.exact_value()?]),
            "!=" => (Operator::NotIn, vec![self.exact_value()?]),
            ">" => (Operator::Greater, vec![self.exact_value()?]),
            "<" => (Operator::Less, vec![self.exact_value()?]),
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

    /// Parses the value after `=`; a missing one is the empty value.
    fn exact_value(&mut self) -> Result<String, String> {
        match self.peek() {
            None | Some(Token::Symbol(",")) => return Ok(String::new()),
            Some(Token::Symbol(found)) => return Err(format!("found '{found}', expected: identifier")),
            Some(Token::Word(_)) => {}
        }
        Ok(self.next().map_or_else(String::new, |token| token.text().to_owned()))
    }

    /// Parses `(a,b)`; missing values between the parentheses and commas are empty values.
    fn values(&mut self) -> Result<Vec<String>, String> {
        if !self.take("(") {
            let found = self.peek().map_or("", Token::text);
            return Err(format!("found '{found}' expected: '('"));
        }
        if !matches!(self.peek(), Some(Token::Word(_) | Token::Symbol("," | ")"))) {
            let found = self.peek().map_or("", Token::text);
            return Err(format!("found '{found}', expected: ',', ')' or identifier"));
        }
        let mut values = Vec::new();
        loop {
            values.push(match self.peek() {
                Some(Token::Word(text)) => text.clone(),
                Some(Token::Symbol("," | ")")) => String::new(),
                other => {
                    let found = other.map_or("", Token::text);
                    return Err(format!("found '{found}', expected: ',', or identifier"));
                }
            });
            if matches!(self.peek(), Some(Token::Word(_))) {
                self.next();
            }
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

const NAME: &str = "metadata.name";
const NAMESPACE: &str = "metadata.namespace";

/// A term of a field selector: field, whether it must be equal, value.
type FieldTerm = (String, bool, String);

/// A field selector: all terms must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<FieldTerm>);

impl FieldSelector {
    /// Parses `a=b,c==d,e!=f`. `known` are the fields that the kind supports in addition to name and namespace. `words` is the
    /// kind's own message about an unknown field, if it has one, with `{}` for the field. `namespaced` states whether objects can
    /// be selected by namespace: kinds with their own message that have no namespaces refuse that.
    pub fn parse(
        text: &str,
        known: &[&str],
        words: Option<&str>,
        namespaced: bool,
    ) -> Result<Self, ApiError> {
        let terms = field_terms(text)?;
        for (field, ..) in &terms {
            let field = field.as_str();
            let is_namespace = field == NAMESPACE && (namespaced || words.is_none());
            if field != NAME && !is_namespace && !known.contains(&field) {
                return Err(ApiError::bad_request(if let Some(words) = words {
                    words.replacen("{}", field, 1)
                } else {
                    let mut all = vec![NAME, NAMESPACE];
                    all.extend(known);
                    let all: Vec<String> = all.into_iter().map(names::quoted).collect();
                    format!("{} is not a known field selector: only {}", names::quoted(field), all.join(", "))
                }));
            }
        }
        Ok(Self(terms))
    }

    /// Reports whether everything matches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reports whether more than name and namespace is compared.
    #[must_use]
    pub fn needs_object(&self) -> bool {
        self.0.iter().any(|(field, ..)| field != NAME && field != NAMESPACE)
    }

    /// Returns the name that a match must have, if the selector requires one.
    #[must_use]
    pub fn exact_name(&self) -> Option<&str> {
        exact_name(&self.0)
    }

    /// Reports whether an object with this metadata and these other fields matches.
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

/// Returns the only name that a field selector can match, whatever fields the kind supports. Authorization uses it as the name of
/// the request, so it comes from the same terms that filter the list. Also returns `None` for a selector that is refused later, and
/// for a name that no path can contain.
#[must_use]
pub fn pinned_name(text: &str) -> Option<String> {
    let terms = field_terms(text).ok()?;
    exact_name(&terms).filter(|name| names::path_segment(name).is_empty()).map(str::to_owned)
}

fn exact_name(terms: &[FieldTerm]) -> Option<&str> {
    terms.iter().find(|(field, equal, _)| field == NAME && *equal).map(|(.., value)| value.as_str())
}

/// Returns the terms of a field selector in upstream's order (by their text). Errors are 400 with upstream's messages.
fn field_terms(text: &str) -> Result<Vec<FieldTerm>, ApiError> {
    let mut terms = split_terms(text);
    terms.sort_unstable();
    let mut parsed = Vec::with_capacity(terms.len());
    for term in terms.into_iter().filter(|term| !term.is_empty()) {
        let Some((field, equal, value)) = split_term(term) else {
            return Err(ApiError::bad_request(format!(
                "invalid selector: '{text}'; can't understand '{term}'"
            )));
        };
        let value = unescape(value)?;
        // Upstream ignores a term with neither field nor value.
        if !(field.is_empty() && value.is_empty()) {
            parsed.push((field.to_owned(), equal, value));
        }
    }
    Ok(parsed)
}

/// Reports whether a text is a field selector, for any fields.
#[must_use]
pub fn is_field_selector(text: &str) -> bool {
    field_terms(text).is_ok()
}

/// Splits a text at commas that are not escaped by a backslash.
fn split_terms(text: &str) -> Vec<&str> {
    let mut escaped = false;
    text.split(move |c| {
        let separates = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        separates
    })
    .collect()
}

fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let equals = term.find('=')?;
    let at = if term[..equals].ends_with('!') { equals - 1 } else { equals };
    let rest = &term[at..];
    [("!=", false), ("==", true), ("=", true)]
        .into_iter()
        .find_map(|(operator, equal)| Some((&term[..at], equal, rest.strip_prefix(operator)?)))
}

/// Removes the backslashes from `\\`, `\,` and `\=`; any other backslash, and a bare `=`, is an error.
fn unescape(text: &str) -> Result<String, ApiError> {
    let bad = |why: String| Err(ApiError::bad_request(format!("invalid field selector: {why}")));
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' => match rest.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                other => {
                    let sequence: String = std::iter::once('\\').chain(other).collect();
                    return bad(format!("invalid escape sequence: {sequence}"));
                }
            },
            ',' | '=' => return bad(format!("unescaped character in value: {}", u32::from(c))),
            c => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use super::*;

    #[test]
    fn field_selectors_are_split_as_upstream_does() {
        let terms = |text: &str| field_terms(text).map_err(|error| error.message);
        let term = |field: &str, equal: bool, value: &str| (field.to_owned(), equal, value.to_owned());
        let table = [
            ("", Ok(vec![])),
            (",,", Ok(vec![])),
            ("metadata.name=a", Ok(vec![term("metadata.name", true, "a")])),
            ("metadata.name==a", Ok(vec![term("metadata.name", true, "a")])),
            ("metadata.name!=a", Ok(vec![term("metadata.name", false, "a")])),
            ("b=1,a=2", Ok(vec![term("a", true, "2"), term("b", true, "1")])),
            // An escaped comma is part of the value and not a separator.
            (
                "metadata.name!=x\\,metadata.name\\=a",
                Ok(vec![term("metadata.name", false, "x,metadata.name=a")]),
            ),
            ("metadata.name!=x\\\\,b=a", Ok(vec![term("b", true, "a"), term("metadata.name", false, "x\\")])),
            ("a!b=c", Ok(vec![term("a!b", true, "c")])),
            ("a!b!=c", Ok(vec![term("a!b", false, "c")])),
            ("=,!=,a=1", Ok(vec![term("a", true, "1")])),
            ("plain", Err("invalid selector: 'plain'; can't understand 'plain'".into())),
            ("a=b=c", Err("invalid field selector: unescaped character in value: 61".into())),
            ("a=\\b", Err("invalid field selector: invalid escape sequence: \\b".into())),
            ("a=b\\", Err("invalid field selector: invalid escape sequence: \\".into())),
        ];
        for (text, want) in table {
            assert_eq!(terms(text), want, "{text}");
        }
    }

    #[test]
    fn a_pinned_name_is_the_name_that_the_list_is_filtered_by() {
        let table = [
            ("metadata.name=a", Some("a")),
            ("spec.nodeName=n,metadata.name==a", Some("a")),
            ("metadata.name!=a", None),
            ("metadata.name!=x\\,metadata.name=a", None),
            ("metadata.name=a=b", None),
            ("metadata.name=..", None),
            ("metadata.name=a/b", None),
            ("metadata.name=b,metadata.name=a", Some("a")),
            (" metadata.name=a", None),
            ("", None),
        ];
        for (text, want) in table {
            assert_eq!(pinned_name(text).as_deref(), want, "{text}");
            if let (Some(want), Ok(selector)) = (
                want,
                FieldSelector::parse(text, &["spec.nodeName"], Some("field label not supported: {}"), true),
            ) {
                assert_eq!(selector.exact_name(), Some(want), "{text}");
            }
        }
    }
}
