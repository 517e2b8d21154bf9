//! Converts the text of an expression into tokens.

use crate::issue::{Issue, MOST_ISSUES};
use crate::tree::Expression;

/// A token with its position.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlacedToken {
    pub(crate) token: Token,
    pub(crate) at: usize,
    pub(crate) end: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    Name(String),
    Literal(Expression),
    Sign(&'static str),
}

const SIGNS: [&str; 24] = [
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "(", ")", "[", "]", "{", "}", ",", ".", ":", "?", "!", "+",
    "-", "*", "/", "%",
];

/// Returns the tokens of a text, and issues for its invalid parts.
pub(crate) fn tokens(text: &str) -> (Vec<PlacedToken>, Vec<Issue>) {
    let (mut tokens, mut issues) = (Vec::new(), Vec::new());
    let mut at = 0;
    loop {
        let rest = &text[at..];
        let skipped = rest.len() - rest.trim_start().len();
        at += skipped;
        let rest = &text[at..];
        let Some(first) = rest.chars().next() else { return (tokens, issues) };
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
            continue;
        }
        match token(rest, first) {
            Ok((token, length)) => {
                tokens.push(PlacedToken { token, at, end: at + length });
                at += length;
            }
            Err(Wrong { length, message }) => {
                let length = length.clamp(first.len_utf8(), rest.len());
                let message = message.unwrap_or_else(|| {
                    format!("Syntax error: token recognition error at: '{}'", &rest[..length])
                });
                if issues.len() < MOST_ISSUES {
                    issues.push(Issue { at, message });
                }
                at += length;
            }
        }
    }
}

/// An invalid part: its length, and the reason if known.
struct Wrong {
    length: usize,
    message: Option<String>,
}

impl Wrong {
    fn unrecognized(length: usize) -> Self {
        Self { length, message: None }
    }

    fn because(length: usize, message: &str) -> Self {
        Self { length, message: Some(message.to_owned()) }
    }
}

fn token(rest: &str, first: char) -> Result<(Token, usize), Wrong> {
    if let Some(found) = text_literal(rest)? {
        return Ok(found);
    }
    let is_fraction = first == '.' && rest[1..].starts_with(|c: char| c.is_ascii_digit());
    if first.is_ascii_digit() || is_fraction {
        return number(rest);
    }
    if first.is_ascii_alphabetic() || first == '_' {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let token = match &rest[..end] {
            "true" => Token::Literal(Expression::Bool(true)),
            "false" => Token::Literal(Expression::Bool(false)),
            "null" => Token::Literal(Expression::Null),
            name => Token::Name(unescape_name(name)),
        };
        return Ok((token, end));
    }
    match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
        Some(sign) => Ok((Token::Sign(sign), sign.len())),
        None => Err(Wrong::unrecognized(first.len_utf8())),
    }
}

/// Words that are not identifiers. Fields of these names are written with escapes, such as `__in__`.
pub(crate) const KEYWORDS: [&str; 21] = [
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
    "void",
    "while",
];

/// Decodes a name with escapes, such as `foo__dash__bar`, which stands for a name that is not an identifier.
fn unescape_name(name: &str) -> String {
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

fn number(rest: &str) -> Result<(Token, usize), Wrong> {
    if let Some(hex) = rest.strip_prefix("0x") {
        let end = hex.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(hex.len());
        let value = u64::from_str_radix(&hex[..end], 16);
        return if hex[end..].starts_with(['u', 'U']) {
            let value = value.map_err(|_| Wrong::because(end + 3, "invalid uint literal"))?;
            Ok((Token::Literal(Expression::Uint(value)), end + 3))
        } else {
            let value = value.ok().and_then(|value| i64::try_from(value).ok());
            let value = value.ok_or_else(|| Wrong::because(end + 2, "invalid int literal"))?;
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
        let value = text.parse().map_err(|_| Wrong::because(end + 1, "invalid uint literal"))?;
        return Ok((Token::Literal(Expression::Uint(value)), end + 1));
    }
    let literal = if whole {
        // The magnitude of the smallest number has no positive counterpart.
        match text.parse::<u64>() {
            Ok(value) if value <= i64::MAX.unsigned_abs() => Expression::Int(value.cast_signed()),
            Ok(value) if value == i64::MIN.unsigned_abs() => Expression::Int(i64::MIN),
            _ => return Err(Wrong::because(end, "invalid int literal")),
        }
    } else {
        let value: f64 = text.parse().map_err(|_| Wrong::because(end, "invalid double literal"))?;
        if value.is_infinite() {
            return Err(Wrong::because(end, "invalid double literal"));
        }
        Expression::Double(value)
    };
    Ok((Token::Literal(literal), end))
}

/// Reads a string or bytes literal, if there is one; also returns its length.
fn text_literal(rest: &str) -> Result<Option<(Token, usize)>, Wrong> {
    /// Maximum offset of the quote: in `rb"…"`, it is the third character.
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
    let mut text = Vec::new();
    let mut at = 0;
    while let Some(c) = content[at..].chars().next() {
        if content[at..].starts_with(&delimiter) {
            let length = prefix.len() + 2 * delimiter.len() + at;
            let wrong = |_| Wrong::because(length, "unable to unescape string");
            let literal = if bytes {
                Expression::Bytes(text)
            } else {
                Expression::Text(String::from_utf8(text).map_err(wrong)?)
            };
            return Ok(Some((Token::Literal(literal), length)));
        }
        if c == '\\' && !raw {
            let offset = prefix.len() + delimiter.len() + at;
            let (escaped, length) =
                escape(&content[at..], bytes).map_err(|_| Wrong::unrecognized(offset + 1))?;
            match escaped {
                EscapedCharacter::Character(c) => {
                    text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                }
                EscapedCharacter::Byte(byte) => text.push(byte),
            }
            at += length;
        } else if c == '\r' && content[at..].starts_with("\r\n") {
            // A line ending counts as one character, however it was written.
            at += 1;
        } else if matches!(c, '\n' | '\r') && delimiter.len() == 1 {
            break;
        } else {
            let c = if c == '\r' { '\n' } else { c };
            text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            at += content[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    Err(Wrong::unrecognized(prefix.len() + delimiter.len() + at))
}

/// Meaning of an escape: in a bytes literal, a number is a byte instead of a character.
enum EscapedCharacter {
    Character(char),
    Byte(u8),
}

/// Reads the escape at the start of a text; also returns its length.
fn escape(rest: &str, bytes: bool) -> Result<(EscapedCharacter, usize), &'static str> {
    let code = |from: usize, length: usize, radix: u32| {
        let digits = rest.get(from..from + length).ok_or("a short escape")?;
        if !digits.chars().all(|c| c.is_digit(radix)) {
            return Err("a bad escape");
        }
        let value = u32::from_str_radix(digits, radix).map_err(|_| "a bad escape")?;
        let escaped = if bytes {
            EscapedCharacter::Byte(u8::try_from(value).map_err(|_| "a bad escape")?)
        } else {
            EscapedCharacter::Character(char::from_u32(value).ok_or("a bad escape")?)
        };
        Ok((escaped, from + length))
    };
    let simple = |c: char| Ok((EscapedCharacter::Character(c), 2));
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
        Some('u') if !bytes => code(2, 4, 16),
        Some('U') if !bytes => code(2, 8, 16),
        Some('0'..='3') => code(1, 3, 8),
        _ => Err("an unknown escape"),
    }
}
