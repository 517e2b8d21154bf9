//! From the text of an expression to its tree.

use std::sync::Arc;

/// Deepest nesting of an expression.
const DEEPEST: usize = 100;

/// How deep the tree of an expression may be, which chains of operators make deep as well: what evaluates it, looks
/// through it and drops it goes down as far.
const DEEPEST_TREE: usize = 150;

/// An expression, and how deep its tree is.
type Deep = (Expression, usize);

/// Longest expression in bytes.
const LONGEST: usize = 64 * 1024;

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expression {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
    Name(String),
    /// `operand.field`, or with `?` the optional of it.
    Select {
        operand: Box<Expression>,
        field: String,
        optional: bool,
    },
    /// `operand[index]`, or with `?` the optional of it.
    Index {
        operand: Box<Expression>,
        index: Box<Expression>,
        optional: bool,
    },
    /// `has(operand.field)`
    Has {
        operand: Box<Expression>,
        field: String,
    },
    /// A function, or a method of its target.
    Call {
        target: Option<Box<Expression>>,
        name: String,
        arguments: Vec<Expression>,
    },
    /// A macro over the elements of a list or the keys of a map.
    Macro {
        kind: Macro,
        range: Box<Expression>,
        names: Vec<Arc<str>>,
        bodies: Vec<Expression>,
    },
    List(Vec<Expression>),
    Map(Vec<(Expression, Expression)>),
    Not(Box<Expression>),
    Negate(Box<Expression>),
    Binary(Operator, Box<Expression>, Box<Expression>),
    Condition(Box<[Expression; 3]>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Macro {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Or,
    And,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Name(String),
    Literal(Expression),
    Sign(&'static str),
}

/// Parses an expression; the error says what was not understood.
pub(crate) fn parse(text: &str) -> Result<Expression, String> {
    if text.len() > LONGEST {
        return Err(format!("longer than {LONGEST} bytes"));
    }
    let mut parser = Parser { tokens: tokens(text)?, next: 0, depth: 0 };
    let (expression, _) = parser.expression()?;
    match parser.tokens.get(parser.next) {
        None => Ok(expression),
        Some(token) => Err(format!("unexpected {token:?}")),
    }
}

/// Whether an expression mentions a name.
pub(crate) fn mentions(text: &str, name: &str) -> bool {
    tokens(text)
        .is_ok_and(|tokens| tokens.iter().any(|token| matches!(token, Token::Name(found) if found == name)))
}

const SIGNS: [&str; 29] = [
    "[?", ".?", "&&", "||", "==", "!=", "<=", ">=", "<", ">", "(", ")", "[", "]", "{", "}", ",", ".", ":",
    "?", "!", "+", "-", "*", "/", "%", ";", "=", "$",
];

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, length) = if rest.starts_with("//") {
            rest = rest.find('\n').map_or("", |end| &rest[end..]).trim_start();
            continue;
        } else if let Some(found) = text_literal(rest)? {
            found
        } else if first.is_ascii_digit() {
            number(rest)?
        } else if first.is_ascii_alphabetic() || first == '_' {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            let token = match &rest[..end] {
                "true" => Token::Literal(Expression::Bool(true)),
                "false" => Token::Literal(Expression::Bool(false)),
                "null" => Token::Literal(Expression::Null),
                name => Token::Name(unescape_name(name)),
            };
            (token, end)
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            (Token::Sign(sign), sign.len())
        } else {
            return Err(format!("unexpected character {first:?}"));
        };
        tokens.push(token);
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

/// Names that are no identifiers are written with escapes, such as `foo__dash__bar`.
fn unescape_name(name: &str) -> String {
    const KEYWORDS: [&str; 19] = [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
    ];
    if let Some(keyword) = name.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"))
        && KEYWORDS.contains(&keyword)
    {
        return keyword.to_owned();
    }
    if !name.contains("__") {
        return name.to_owned();
    }
    name.replace("__dot__", ".")
        .replace("__dash__", "-")
        .replace("__slash__", "/")
        .replace("__underscores__", "__")
}

fn number(rest: &str) -> Result<(Token, usize), String> {
    if let Some(hex) = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X")) {
        let end = hex.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(hex.len());
        let value = u64::from_str_radix(&hex[..end], 16).map_err(|_| "a hexadecimal number out of range")?;
        return if hex[end..].starts_with(['u', 'U']) {
            Ok((Token::Literal(Expression::Uint(value)), end + 3))
        } else {
            let value = i64::try_from(value).map_err(|_| "a hexadecimal number out of range")?;
            Ok((Token::Literal(Expression::Int(value)), end + 2))
        };
    }
    let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let mut end = digits(rest);
    let mut whole = true;
    if rest[end..].starts_with('.') && rest[end + 1..].starts_with(|c: char| c.is_ascii_digit()) {
        end += 1 + digits(&rest[end + 1..]);
        whole = false;
    }
    if rest[end..].starts_with(['e', 'E']) {
        let exponent = &rest[end + 1..];
        let sign = usize::from(exponent.starts_with(['+', '-']));
        let length = digits(&exponent[sign..]);
        if length > 0 {
            end += 1 + sign + length;
            whole = false;
        }
    }
    let text = &rest[..end];
    if whole && rest[end..].starts_with(['u', 'U']) {
        let value = text.parse().map_err(|_| format!("number {text} is out of range"))?;
        return Ok((Token::Literal(Expression::Uint(value)), end + 1));
    }
    let literal = if whole {
        // The magnitude of the smallest number has no positive counterpart.
        match text.parse::<u64>() {
            Ok(value) if value <= i64::MAX.unsigned_abs() => Expression::Int(value.cast_signed()),
            Ok(value) if value == i64::MIN.unsigned_abs() => Expression::Int(i64::MIN),
            _ => return Err(format!("number {text} is out of range")),
        }
    } else {
        Expression::Double(text.parse().map_err(|_| format!("{text} is no number"))?)
    };
    Ok((Token::Literal(literal), end))
}

/// A string or bytes literal, if there is one, with its length.
fn text_literal(rest: &str) -> Result<Option<(Token, usize)>, String> {
    /// Of `rb"…"`, the quote is the third.
    const LATEST_QUOTE: usize = 3;
    let quote = rest.bytes().take(LATEST_QUOTE).position(|byte| matches!(byte, b'\'' | b'"'));
    let prefix = quote.map_or("", |end| &rest[..end]);
    let (raw, bytes) = match prefix.to_ascii_lowercase().as_str() {
        "" => (false, false),
        "r" => (true, false),
        "b" => (false, true),
        "rb" | "br" => (true, true),
        _ => return Ok(None),
    };
    let body = &rest[prefix.len()..];
    let Some(quote) = body.chars().next().filter(|c| matches!(c, '\'' | '"')) else { return Ok(None) };
    let triple: String = std::iter::repeat_n(quote, 3).collect();
    let delimiter = if body.starts_with(&triple) { triple } else { quote.to_string() };
    let content = &body[delimiter.len()..];
    let mut text = String::new();
    let mut at = 0;
    while let Some(c) = content[at..].chars().next() {
        if content[at..].starts_with(&delimiter) {
            let length = prefix.len() + 2 * delimiter.len() + at;
            let literal = if bytes { Expression::Bytes(text.into_bytes()) } else { Expression::Text(text) };
            return Ok(Some((Token::Literal(literal), length)));
        }
        if c == '\\' && !raw {
            let (escaped, length) = escape(&content[at..])?;
            text.push(escaped);
            at += length;
        } else {
            text.push(c);
            at += c.len_utf8();
        }
    }
    Err("an unclosed string".into())
}

fn escape(rest: &str) -> Result<(char, usize), String> {
    let code = |from: usize, length: usize, radix: u32| {
        let digits = rest.get(from..from + length).ok_or("a short escape")?;
        let value = u32::from_str_radix(digits, radix).map_err(|_| "a bad escape")?;
        Ok::<_, String>((char::from_u32(value).ok_or("a bad escape")?, from + length))
    };
    let simple = |c: char| Ok((c, 2));
    match rest.chars().nth(1) {
        Some('n') => simple('\n'),
        Some('t') => simple('\t'),
        Some('r') => simple('\r'),
        Some('a') => simple('\u{7}'),
        Some('b') => simple('\u{8}'),
        Some('f') => simple('\u{c}'),
        Some('v') => simple('\u{b}'),
        Some(c @ ('\\' | '\'' | '"' | '`' | '?')) => simple(c),
        Some('x' | 'X') => code(2, 2, 16),
        Some('u') => code(2, 4, 16),
        Some('U') => code(2, 8, 16),
        Some('0'..='3') => code(1, 3, 8),
        _ => Err("an unknown escape".into()),
    }
}

struct Parser {
    tokens: Vec<Token>,
    next: usize,
    depth: usize,
}

impl Parser {
    fn eat(&mut self, sign: &str) -> bool {
        let found = matches!(self.tokens.get(self.next), Some(Token::Sign(found)) if *found == sign);
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        if self.eat(sign) {
            Ok(())
        } else {
            Err(format!("expected {sign:?}, found {:?}", self.tokens.get(self.next)))
        }
    }

    fn expression(&mut self) -> Result<Deep, String> {
        if self.depth == DEEPEST {
            return Err(format!("nested deeper than {DEEPEST}"));
        }
        self.depth += 1;
        let condition = self.binary(0)?;
        let expression = if self.eat("?") {
            let yes = self.binary(0)?;
            self.expect(":")?;
            let no = self.expression()?;
            let depth = deeper(&[condition.1, yes.1, no.1])?;
            (Expression::Condition(Box::new([condition.0, yes.0, no.0])), depth)
        } else {
            condition
        };
        self.depth -= 1;
        Ok(expression)
    }

    /// The operator at this place, if it binds at this level.
    fn operator(&mut self, level: usize) -> Option<Operator> {
        let operator = match self.tokens.get(self.next)? {
            Token::Name(name) if name == "in" => ("in", Operator::In),
            Token::Sign(sign) => (*sign, operator_of(sign)?),
            _ => return None,
        };
        let binds = match operator.0 {
            "||" => 0,
            "&&" => 1,
            "+" | "-" => 3,
            "*" | "/" | "%" => 4,
            _ => 2,
        };
        (binds == level).then(|| {
            self.next += 1;
            operator.1
        })
    }

    fn binary(&mut self, level: usize) -> Result<Deep, String> {
        const AND: usize = 1;
        const UNARY: usize = 5;
        if level == UNARY {
            return self.unary();
        }
        let mut left = self.binary(level + 1)?;
        let mut sides = Vec::new();
        while let Some(operator) = self.operator(level) {
            let right = self.binary(level + 1)?;
            if level <= AND {
                // Long chains of these are common, and may be taken together in any order.
                sides.push(std::mem::replace(&mut left, right));
            } else {
                left = joined(operator, left, right)?;
            }
        }
        if sides.is_empty() {
            return Ok(left);
        }
        sides.push(left);
        balanced(if level == AND { Operator::And } else { Operator::Or }, sides)
    }

    fn unary(&mut self) -> Result<Deep, String> {
        let mut signs = Vec::new();
        loop {
            if self.eat("!") {
                signs.push('!');
            } else if self.eat("-") {
                signs.push('-');
            } else {
                break;
            }
            if signs.len() > DEEPEST {
                return Err(format!("nested deeper than {DEEPEST}"));
            }
        }
        let (mut expression, mut depth) = self.member()?;
        for sign in signs.iter().rev() {
            depth = deeper(&[depth])?;
            expression = match (sign, expression) {
                ('!', expression) => Expression::Not(Box::new(expression)),
                (_, Expression::Int(value)) => Expression::Int(value.wrapping_neg()),
                (_, Expression::Double(value)) => Expression::Double(-value),
                (_, expression) => Expression::Negate(Box::new(expression)),
            };
        }
        Ok((expression, depth))
    }

    fn member(&mut self) -> Result<Deep, String> {
        let (mut expression, mut depth) = self.primary()?;
        loop {
            let sign = match self.tokens.get(self.next) {
                Some(Token::Sign(sign @ (".?" | "[?" | "." | "["))) => *sign,
                _ => return Ok((expression, depth)),
            };
            self.next += 1;
            depth = deeper(&[depth])?;
            let operand = Box::new(expression);
            expression = match sign {
                "." | ".?" => {
                    let field = self.name()?;
                    if sign == "." && self.eat("(") {
                        let arguments = self.list(")")?;
                        depth = depth.max(deeper(&[arguments.1])?);
                        method(*operand, field, arguments.0)?
                    } else {
                        Expression::Select { operand, field, optional: sign == ".?" }
                    }
                }
                _ => {
                    let index = self.expression()?;
                    self.expect("]")?;
                    depth = depth.max(deeper(&[index.1])?);
                    Expression::Index { operand, index: Box::new(index.0), optional: sign == "[?" }
                }
            };
        }
    }

    fn name(&mut self) -> Result<String, String> {
        match self.tokens.get(self.next) {
            Some(Token::Name(name)) => {
                self.next += 1;
                Ok(name.clone())
            }
            other => Err(format!("expected a name, found {other:?}")),
        }
    }

    /// The items up to a sign, and how deep the deepest of them is.
    fn list(&mut self, end: &str) -> Result<(Vec<Expression>, usize), String> {
        let (mut items, mut deepest) = (Vec::new(), 0);
        while !self.eat(end) {
            let (item, depth) = self.expression()?;
            deepest = deepest.max(depth);
            items.push(item);
            if !self.eat(",") {
                self.expect(end)?;
                break;
            }
        }
        Ok((items, deepest))
    }

    fn primary(&mut self) -> Result<Deep, String> {
        // A leading dot says that a name is absolute, which all names here are.
        self.eat(".");
        if self.eat("(") {
            let inner = self.expression()?;
            self.expect(")")?;
            return Ok(inner);
        }
        if self.eat("[") {
            let (items, depth) = self.list("]")?;
            return Ok((Expression::List(items), deeper(&[depth])?));
        }
        if self.eat("{") {
            let (mut entries, mut deepest) = (Vec::new(), 0);
            while !self.eat("}") {
                let key = self.expression()?;
                self.expect(":")?;
                let value = self.expression()?;
                deepest = deepest.max(key.1).max(value.1);
                entries.push((key.0, value.0));
                if !self.eat(",") {
                    self.expect("}")?;
                    break;
                }
            }
            return Ok((Expression::Map(entries), deeper(&[deepest])?));
        }
        match self.tokens.get(self.next).cloned() {
            Some(Token::Literal(literal)) => {
                // The smallest number is written as the negative of one that is too large.
                let negated = self.next.checked_sub(1).and_then(|index| self.tokens.get(index));
                if literal == Expression::Int(i64::MIN) && negated != Some(&Token::Sign("-")) {
                    return Err(format!("number {} is out of range", i64::MIN.unsigned_abs()));
                }
                self.next += 1;
                Ok((literal, 1))
            }
            Some(Token::Name(name)) => {
                self.next += 1;
                if !self.eat("(") {
                    return Ok((Expression::Name(name), 1));
                }
                let (mut arguments, depth) = self.list(")")?;
                let depth = deeper(&[depth])?;
                if name != "has" {
                    return Ok((Expression::Call { target: None, name, arguments }, depth));
                }
                match (arguments.pop(), arguments.is_empty()) {
                    (Some(Expression::Select { operand, field, .. }), true) => {
                        Ok((Expression::Has { operand, field }, depth))
                    }
                    _ => Err("has takes the selection of a field".into()),
                }
            }
            other => Err(format!("unexpected {other:?}")),
        }
    }
}

/// How deep an expression is around parts of these depths.
fn deeper(parts: &[usize]) -> Result<usize, String> {
    match parts.iter().max() {
        Some(deepest) if *deepest >= DEEPEST_TREE => Err(format!("nested deeper than {DEEPEST_TREE}")),
        deepest => Ok(deepest.map_or(1, |deepest| deepest + 1)),
    }
}

fn joined(operator: Operator, left: Deep, right: Deep) -> Result<Deep, String> {
    let depth = deeper(&[left.1, right.1])?;
    Ok((Expression::Binary(operator, Box::new(left.0), Box::new(right.0)), depth))
}

/// A chain of one operator, as a tree that is no deeper than it must be.
fn balanced(operator: Operator, mut sides: Vec<Deep>) -> Result<Deep, String> {
    while sides.len() > 1 {
        let mut pairs = Vec::with_capacity(sides.len().div_ceil(2));
        let mut rest = sides.into_iter();
        while let Some(left) = rest.next() {
            pairs.push(match rest.next() {
                Some(right) => joined(operator, left, right)?,
                None => left,
            });
        }
        sides = pairs;
    }
    sides.pop().ok_or_else(|| "an operator without sides".to_owned())
}

/// A method of a value, which may be a macro.
fn method(target: Expression, name: String, arguments: Vec<Expression>) -> Result<Expression, String> {
    let kind = match name.as_str() {
        "all" => Some(Macro::All),
        "exists" => Some(Macro::Exists),
        "exists_one" | "existsOne" => Some(Macro::ExistsOne),
        "map" | "transformList" => Some(Macro::Map),
        "filter" => Some(Macro::Filter),
        _ => None,
    };
    let Some(kind) = kind else {
        return Ok(Expression::Call { target: Some(Box::new(target)), name, arguments });
    };
    // Names come first; with two of them the first is the index or key. A map with three arguments has a
    // filter in the middle.
    let is_name = |expression: &Expression| matches!(expression, Expression::Name(_));
    let two_names = match kind {
        Macro::Map => name == "transformList",
        _ => arguments.len() == 3 && is_name(&arguments[1]),
    };
    let names = 1 + usize::from(two_names);
    let bodies = arguments.len().saturating_sub(names);
    let most = if kind == Macro::Map { 2 } else { 1 };
    if bodies == 0 || bodies > most || !arguments[..names].iter().all(is_name) {
        return Err(format!("wrong arguments of {name}"));
    }
    let mut arguments = arguments.into_iter();
    let names = arguments
        .by_ref()
        .take(names)
        .filter_map(|argument| if let Expression::Name(name) = argument { Some(name.into()) } else { None })
        .collect();
    Ok(Expression::Macro { kind, range: Box::new(target), names, bodies: arguments.collect() })
}

fn operator_of(sign: &str) -> Option<Operator> {
    Some(match sign {
        "||" => Operator::Or,
        "&&" => Operator::And,
        "==" => Operator::Equal,
        "!=" => Operator::NotEqual,
        "<" => Operator::Less,
        "<=" => Operator::LessOrEqual,
        ">" => Operator::Greater,
        ">=" => Operator::GreaterOrEqual,
        "+" => Operator::Add,
        "-" => Operator::Subtract,
        "*" => Operator::Multiply,
        "/" => Operator::Divide,
        "%" => Operator::Remainder,
        _ => return None,
    })
}
