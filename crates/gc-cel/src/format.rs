//! `format`: texts with clauses such as `%s` and `%.2f`, as in version 2 of CEL's string library.
//!
//! That version formats fractions in English style: `1,234.50`, `∞`, `1.5 × 10⁰³`.

use std::fmt::Display;

use crate::budget::{Budget, EvalError, failed};
use crate::printed::printed;
use crate::text;
use crate::types::Type;
use crate::value::{Evaluation, Val};

/// Maximum number of digits after the decimal point.
const MOST_DIGITS: usize = 100;

/// Number of decimals if the clause names none.
const DECIMALS: usize = 6;

/// Requirement of a clause.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clause {
    verb: char,
    decimals: usize,
}

/// Replaces the clauses of a text with values.
pub(crate) fn formatted<'v>(text: &str, items: &[Val<'v>], budget: &mut Budget) -> Evaluation<'v> {
    let result = replaced(text, items.len(), |index, clause| {
        charge(&items[index], budget)?;
        written(clause, &items[index])
            .or_else(|given| failed(format!("error during formatting: {}", refusal(clause, &given))))
    })?;
    Ok(Val::text(&result.0))
}

/// Charges for the texts within a value before they are written: it may contain one of them many times.
fn charge(value: &Val<'_>, budget: &mut Budget) -> Result<(), EvalError> {
    match value {
        Val::Text(text) => budget.spend(1 + text.len() / 10),
        Val::Bytes(bytes) => budget.spend(1 + bytes.len() / 10),
        value if value.is_list() || value.is_map() => {
            budget.spend(value.size().unwrap_or_default())?;
            let items = value.items().into_iter().flatten();
            let entries = value.entries().into_iter().flatten().flat_map(|(key, value)| [key, value]);
            items.chain(entries).try_for_each(|part| charge(&part, budget))
        }
        _ => budget.spend(1),
    }
}

/// Returns the first problem of a text with values of these types, and the index of the value that it concerns.
pub(crate) fn problem(text: &str, types: &[&Type]) -> Option<(Option<usize>, String)> {
    let mut about = None;
    let checked = replaced(text, types.len(), |index, clause| {
        if accepts(clause, types[index]) {
            return Ok(String::new());
        }
        about = Some(index);
        let given = runtime_name(types[index]);
        failed(format!("error during formatting: {}", refusal(clause, &given)))
    });
    match checked {
        Err(error) => Some((about, error.to_string())),
        Ok((_, used)) if used < types.len() => {
            let given = types.len();
            let why = "too many arguments supplied to string.format";
            Some((None, format!("{why} (expected {used}, got {given})")))
        }
        Ok(_) => None,
    }
}

/// Replaces the clauses, each of which takes the next value; also returns the number of clauses.
fn replaced(
    text: &str,
    count: usize,
    mut replace: impl FnMut(usize, Clause) -> Result<String, EvalError>,
) -> Result<(String, usize), EvalError> {
    let (mut result, mut next, mut rest) = (String::new(), 0, text);
    while let Some((before, after)) = rest.split_once('%') {
        result.push_str(before);
        if let Some(after) = after.strip_prefix('%') {
            result.push('%');
            rest = after;
            continue;
        }
        if next >= count {
            return failed(format!("index {next} out of range"));
        }
        if after.is_empty() {
            return failed("unexpected end of string");
        }
        let (clause, after) = match clause(after) {
            Ok(found) => found,
            Err(why) => return failed(format!("could not parse formatting clause: {why}")),
        };
        result.push_str(&replace(next, clause)?);
        next += 1;
        rest = after;
    }
    result.push_str(rest);
    Ok((result, next))
}

/// Splits off the clause at the start of a text.
fn clause(text: &str) -> Result<(Clause, &str), String> {
    let (decimals, text) = match text.strip_prefix('.') {
        None => (DECIMALS, text),
        Some(rest) => {
            let wrong = |why: &str| format!("error while parsing precision: {why}");
            let end = rest
                .find(|c: char| !c.is_ascii_digit())
                .ok_or_else(|| wrong("could not find end of precision specifier"))?;
            let digits = &rest[..end];
            let decimals = digits.parse::<usize>().map_err(|_| {
                let digits = text::quoted(digits);
                wrong(&format!(
                    "error while converting precision to integer: strconv.Atoi: parsing {digits}: invalid syntax"
                ))
            })?;
            (decimals.min(MOST_DIGITS), &rest[end..])
        }
    };
    let verb = text.chars().next().unwrap_or_default();
    if !matches!(verb, 's' | 'd' | 'f' | 'e' | 'b' | 'x' | 'X' | 'o') {
        return Err(format!("unrecognized formatting clause \"{verb}\""));
    }
    Ok((Clause { verb, decimals }, &text[verb.len_utf8()..]))
}

/// Returns the message for a clause that does not take values of a type.
fn refusal(clause: Clause, given: &str) -> String {
    let rule = match clause.verb {
        'd' => "decimal clause can only be used on integers",
        'f' => "fixed-point clause can only be used on doubles",
        'e' => "scientific clause can only be used on doubles",
        'b' => "only integers and bools can be formatted as binary",
        'x' | 'X' => "only integers, byte buffers, and strings can be formatted as hex",
        'o' => "octal clause can only be used on integers",
        _ => {
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
        }
    };
    format!("{rule}, was given {given}")
}

/// Reports whether a clause takes values of a type, as far as this is known before evaluation.
fn accepts(clause: Clause, given: &Type) -> bool {
    if *given == Type::Dyn {
        return true;
    }
    match clause.verb {
        'd' | 'o' => matches!(given, Type::Int | Type::Uint),
        'f' | 'e' => matches!(given, Type::Double | Type::Text),
        'b' => matches!(given, Type::Int | Type::Uint | Type::Bool),
        'x' | 'X' => matches!(given, Type::Int | Type::Uint | Type::Text | Type::Bytes),
        _ => !matches!(given, Type::Object(_) | Type::Library(_) | Type::Optional(_)),
    }
}

/// Returns the name that a type has during evaluation.
fn runtime_name(of: &Type) -> String {
    match of {
        Type::Null => "null_type".to_owned(),
        Type::Duration => "google.protobuf.Duration".to_owned(),
        Type::Timestamp => "google.protobuf.Timestamp".to_owned(),
        Type::List(_) => "list".to_owned(),
        Type::Map(..) => "map".to_owned(),
        Type::Optional(_) => "optional_type".to_owned(),
        Type::Type(_) => "type".to_owned(),
        other => other.to_string(),
    }
}

/// Formats a value by a clause; the error names the type that the clause does not take.
fn written(clause: Clause, value: &Val<'_>) -> Result<String, String> {
    let refused = || value.type_name().to_owned();
    let hex = |bytes: &[u8]| bytes.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    let written = match (clause.verb, value) {
        ('s', value) => return plain(value),
        ('f' | 'e', value) => {
            let number = fraction(value).ok_or_else(refused)?;
            if clause.verb == 'f' {
                fixed(number, clause.decimals)
            } else {
                scientific(number, clause.decimals)
            }
        }
        ('d', Val::Int(value)) => value.to_string(),
        ('d', Val::Uint(value)) => value.to_string(),
        ('b', Val::Bool(value)) => u8::from(*value).to_string(),
        ('b', Val::Int(value)) => signed(*value, format_args!("{:b}", value.unsigned_abs())),
        ('b', Val::Uint(value)) => format!("{value:b}"),
        ('o', Val::Int(value)) => signed(*value, format_args!("{:o}", value.unsigned_abs())),
        ('o', Val::Uint(value)) => format!("{value:o}"),
        ('x' | 'X', Val::Int(value)) => signed(*value, format_args!("{:x}", value.unsigned_abs())),
        ('x' | 'X', Val::Uint(value)) => format!("{value:x}"),
        ('x' | 'X', Val::Text(text)) => hex(text.as_bytes()),
        ('x' | 'X', Val::Bytes(bytes)) => hex(bytes),
        _ => return Err(refused()),
    };
    Ok(if clause.verb == 'X' { written.to_ascii_uppercase() } else { written })
}

fn signed(value: i64, magnitude: impl Display) -> String {
    format!("{}{magnitude}", if value < 0 { "-" } else { "" })
}

/// Returns the number for a fraction clause: a double, or a text that names a double without digits.
fn fraction(value: &Val<'_>) -> Option<f64> {
    match value {
        Val::Double(value) => Some(*value),
        Val::Text(text) => match &**text {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

/// Formats a number that has no digits, such as infinity.
fn special(value: f64) -> Option<String> {
    let sign = if value.is_sign_negative() { "-" } else { "" };
    match value {
        value if value.is_nan() => Some("NaN".to_owned()),
        value if value.is_infinite() => Some(format!("{sign}∞")),
        _ => None,
    }
}

/// Formats a number with its thousands grouped.
fn fixed(value: f64, decimals: usize) -> String {
    if let Some(special) = special(value) {
        return special;
    }
    let plain = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = plain.split_once('.').unwrap_or((&plain, ""));
    let mut result = if value.is_sign_negative() { "-".to_owned() } else { String::new() };
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            result.push(',');
        }
        result.push(digit);
    }
    if !fraction.is_empty() {
        result.push('.');
        result.push_str(fraction);
    }
    result
}

/// Formats a number as a product with a power of ten.
fn scientific(value: f64, decimals: usize) -> String {
    const SUPERSCRIPTS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    if let Some(special) = special(value) {
        return special;
    }
    let plain = format!("{value:.decimals$e}");
    let (digits, exponent) = plain.split_once('e').unwrap_or((&plain, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let mut result = format!("{digits}\u{202f}×\u{202f}10");
    if exponent < 0 {
        result.push('⁻');
    }
    let digits = format!("{:02}", exponent.unsigned_abs());
    result.extend(digits.bytes().filter_map(|digit| SUPERSCRIPTS.get(usize::from(digit - b'0'))));
    result
}

/// Formats a value by `%s`; the error names the type that has no text.
fn plain(value: &Val<'_>) -> Result<String, String> {
    Ok(match value {
        Val::Null
        | Val::Bool(_)
        | Val::Int(_)
        | Val::Uint(_)
        | Val::Double(_)
        | Val::Text(_)
        | Val::Bytes(_)
        | Val::Timestamp(_)
        | Val::Duration(_)
        | Val::Type(_) => printed(value),
        value if value.is_list() || value.is_map() => nested(value)?,
        other => return Err(other.type_name().to_owned()),
    })
}

/// Formats a value inside a list or a map in CEL syntax.
fn nested(value: &Val<'_>) -> Result<String, String> {
    if let Some(items) = value.items() {
        let items: Vec<String> = items.iter().map(nested).collect::<Result<_, _>>()?;
        return Ok(format!("[{}]", items.join(", ")));
    }
    if let Some(entries) = value.entries() {
        let mut entries: Vec<(String, String)> = entries
            .iter()
            .map(|(key, value)| Ok((nested(key)?, nested(value)?)))
            .collect::<Result<_, String>>()?;
        entries.sort();
        let entries: Vec<String> = entries.iter().map(|(key, value)| format!("{key}:{value}")).collect();
        return Ok(format!("{{{}}}", entries.join(", ")));
    }
    let plain = plain(value)?;
    Ok(match value {
        Val::Text(_) => text::quoted(&plain),
        Val::Bytes(_) => format!("b{}", text::quoted(&plain)),
        Val::Double(number) if !number.is_finite() => text::quoted(&plain),
        Val::Double(number) => format!("{number:.DECIMALS$}"),
        Val::Timestamp(_) => format!("timestamp({})", text::quoted(&plain)),
        Val::Duration(_) => format!("duration({})", text::quoted(&plain)),
        _ => plain,
    })
}
