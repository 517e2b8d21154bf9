//! The functions of CEL and of Kubernetes' libraries.

use std::rc::Rc;
use std::sync::Arc;

use gc_types::QuantityParts;

use crate::authority;
use crate::budget::{Budget, EvalError, failed};
use crate::format;
use crate::formats::matches_whole;
use crate::libraries;
use crate::network;
use crate::pattern::searching;
use crate::printed::printed;
use crate::text;
use crate::time::{Timestamp, parse_duration};
use crate::tree::Operator;
use crate::value::{Evaluation, Val};

/// Calls a function; the target of a method is its first argument.
pub(crate) fn call<'v>(name: &str, arguments: &[Val<'v>], budget: &mut Budget) -> Evaluation<'v> {
    for argument in arguments {
        budget.spend(argument.size().unwrap_or_default() / 10)?;
    }
    let found = text_function(name, arguments, budget)
        .or_else(|| list_function(name, arguments, budget))
        .or_else(|| time_function(name, arguments, budget))
        .or_else(|| quantity_function(name, arguments))
        .or_else(|| libraries::call(name, arguments, budget))
        .or_else(|| network::call(name, arguments))
        .or_else(|| authority::call(name, arguments, budget))
        .or_else(|| conversion(name, arguments));
    let value = found.unwrap_or_else(|| mismatch(name, arguments))?;
    if let Val::Text(text) = &value {
        budget.spend(text.len() / 10)?;
    }
    Ok(value)
}

/// Returns the error of a function that does not take such values.
pub(crate) fn mismatch<'v>(name: &str, arguments: &[Val<'v>]) -> Evaluation<'v> {
    let first = arguments.first();
    // These examine their first argument, whose own method then rejects the others.
    let accepts_first = match (name, first) {
        ("@in" | "!_" | "contains" | "startsWith" | "endsWith", _)
        | ("_+_" | "_-_" | "_*_" | "_/_", Some(Val::Double(_) | Val::Int(_) | Val::Uint(_)))
        | ("_%_", Some(Val::Int(_) | Val::Uint(_))) => true,
        (_, Some(Val::Text(_) | Val::Timestamp(_) | Val::Duration(_))) => {
            matches!(name, "size" | "matches" | "-_") || name.starts_with('_')
        }
        ("_+_", Some(value)) => value.is_list() || matches!(value, Val::Bytes(_)),
        ("_<_" | "_<=_" | "_>_" | "_>=_", Some(value)) => {
            value.number().is_some() || matches!(value, Val::Bool(_) | Val::Bytes(_))
        }
        _ => false,
    };
    if accepts_first {
        return failed("no such overload");
    }
    if name.starts_with('_') || matches!(name, "size" | "matches" | "-_") {
        return failed(format!("no such overload: {name}"));
    }
    let types: Vec<&str> = arguments.iter().map(Val::type_name).collect();
    failed(format!("no such overload: {name}({})", types.join(", ")))
}

fn int<'v>(value: usize) -> Evaluation<'v> {
    i64::try_from(value).map_or_else(|_| failed("integer overflow"), |value| Ok(Val::Int(value)))
}

/// Compiles the pattern of a function in the regular expression library, which has its own error.
fn finder(pattern: &str, text: &str, budget: &mut Budget) -> Result<Arc<regex::Regex>, EvalError> {
    searching(pattern, text, budget).map_err(|error| match error {
        EvalError::Failed(why) => EvalError::Failed(format!("Illegal regex: {why}")),
        EvalError::TooExpensive => error,
    })
}

/// Finds all matches, up to a maximum number.
fn find_all<'v>(pattern: &str, text: &str, most: usize, budget: &mut Budget) -> Evaluation<'v> {
    /// Number of remaining bytes for which each search costs a step: it may have to scan all of them.
    const BYTES_OF_A_STEP: usize = 100;
    let regex = finder(pattern, text, budget)?;
    let mut found = Vec::new();
    for next in regex.find_iter(text).take(most) {
        budget.spend((text.len() - next.end()) / BYTES_OF_A_STEP)?;
        found.push(Val::text(next.as_str()));
    }
    Ok(Val::list(found))
}

fn text_function<'v>(name: &str, arguments: &[Val<'v>], budget: &mut Budget) -> Option<Evaluation<'v>> {
    let [Val::Text(text), rest @ ..] = arguments else { return None };
    Some(match (name, rest) {
        ("startsWith", [Val::Text(other)]) => Ok(Val::Bool(text.starts_with(&**other))),
        ("endsWith", [Val::Text(other)]) => Ok(Val::Bool(text.ends_with(&**other))),
        ("contains", [Val::Text(other)]) => Ok(Val::Bool(text.contains(&**other))),
        ("matches", [Val::Text(pattern)]) => {
            searching(pattern, text, budget).map(|regex| Val::Bool(regex.is_match(text)))
        }
        ("find", [Val::Text(pattern)]) => finder(pattern, text, budget)
            .map(|regex| Val::text(regex.find(text).map_or("", |found| found.as_str()))),
        ("findAll", [Val::Text(pattern)]) => find_all(pattern, text, usize::MAX, budget),
        ("findAll", [Val::Text(pattern), Val::Int(most)]) => {
            find_all(pattern, text, usize::try_from(*most).unwrap_or(usize::MAX), budget)
        }
        ("lowerAscii", []) => Ok(Val::text(&text.to_ascii_lowercase())),
        ("upperAscii", []) => Ok(Val::text(&text.to_ascii_uppercase())),
        ("trim", []) => Ok(Val::text(text.trim())),
        ("strings.quote", []) => Ok(Val::text(&text::cel_quoted(text))),
        ("charAt", [Val::Int(index)]) => place(text, *index)
            .map(|at| Val::text(&text[at..].chars().next().map(String::from).unwrap_or_default())),
        ("indexOf", [Val::Text(other)]) => char_index(text, text.find(&**other)),
        ("lastIndexOf", [Val::Text(other)]) => char_index(text, text.rfind(&**other)),
        ("replace", [Val::Text(from), Val::Text(to)]) => {
            // The result may be as long as the product of the lengths.
            match budget.spend(text.len() / (from.len() + 1) * to.len() / 10) {
                Ok(()) => Ok(Val::text(&text.replace(&**from, to))),
                Err(error) => Err(error),
            }
        }
        ("replace", [Val::Text(from), Val::Text(to), Val::Int(most)]) => match usize::try_from(*most) {
            Ok(most) => budget
                .spend(text.len() / (from.len() + 1) * to.len() / 10)
                .map(|()| Val::text(&text.replacen(&**from, to, most))),
            Err(_) => Ok(Val::text(&text.replace(&**from, to))),
        },
        ("split", [Val::Text(separator)]) => Ok(split(text, separator, usize::MAX)),
        ("split", [Val::Text(separator), Val::Int(most)]) => {
            Ok(split(text, separator, usize::try_from(*most).unwrap_or(usize::MAX)))
        }
        ("substring", [Val::Int(from)]) => substring(text, *from, None),
        ("substring", [Val::Int(from), Val::Int(to)]) => substring(text, *from, Some(*to)),
        ("indexOf", [Val::Text(other), Val::Int(from)]) => index_from(text, other, *from),
        ("lastIndexOf", [Val::Text(other), Val::Int(until)]) => last_index_until(text, other, *until),
        ("format", [list]) => match list.items() {
            Some(items) => format::formatted(text, &items, budget),
            None => return None,
        },
        _ => return None,
    })
}

fn char_index<'v>(text: &str, found: Option<usize>) -> Evaluation<'v> {
    found.map_or(Ok(Val::Int(-1)), |bytes| int(text[..bytes].chars().count()))
}

fn out_of_range<T>(index: i64) -> Result<T, EvalError> {
    failed(format!("index out of range: {index}"))
}

/// Returns the byte offset of a character index, which may be the end of the text.
fn place(text: &str, index: i64) -> Result<usize, EvalError> {
    let places = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    let found = usize::try_from(index).ok().and_then(|index| places.into_iter().nth(index));
    found.map_or_else(|| out_of_range(index), Ok)
}

fn index_from<'v>(text: &str, other: &str, from: i64) -> Evaluation<'v> {
    if other.is_empty() {
        return Ok(Val::Int(from));
    }
    match place(text, from) {
        Ok(at) => char_index(text, text[at..].find(other).map(|found| at + found)),
        Err(error) if from < 0 => Err(error),
        Err(_) => Ok(Val::Int(-1)),
    }
}

fn last_index_until<'v>(text: &str, other: &str, until: i64) -> Evaluation<'v> {
    if other.is_empty() {
        return Ok(Val::Int(until));
    }
    match place(text, until) {
        // A match must begin at or before that index.
        Ok(at) if at < text.len() => {
            let end = text.len().min(at + other.len());
            let end = (end..=text.len()).find(|end| text.is_char_boundary(*end)).unwrap_or(text.len());
            let found = text[..end].rmatch_indices(other).map(|(found, _)| found).find(|found| *found <= at);
            char_index(text, found)
        }
        Err(error) if until < 0 => Err(error),
        _ => Ok(Val::Int(-1)),
    }
}

fn substring<'v>(text: &str, from: i64, to: Option<i64>) -> Evaluation<'v> {
    if let Some(to) = to.filter(|to| from > *to) {
        return failed(format!("invalid substring range. start: {from}, end: {to}"));
    }
    let start = place(text, from)?;
    let end = to.map_or(Ok(text.len()), |to| place(text, to))?;
    Ok(Val::text(&text[start..end]))
}

/// Splits a text into at most this many parts, the last of which keeps its separators.
fn split<'v>(text: &str, separator: &str, most: usize) -> Val<'v> {
    if !separator.is_empty() {
        return Val::list(text.splitn(most, separator).map(Val::text).collect());
    }
    let mut parts = Vec::new();
    let mut rest = text.chars();
    while parts.len() + 1 < most {
        let Some(c) = rest.next() else { break };
        parts.push(Val::text(c.encode_utf8(&mut [0; 4])));
    }
    if !rest.as_str().is_empty() && most > 0 {
        parts.push(Val::text(rest.as_str()));
    }
    Val::list(parts)
}

fn list_function<'v>(name: &str, arguments: &[Val<'v>], budget: &mut Budget) -> Option<Evaluation<'v>> {
    if let ("size", [value]) = (name, arguments) {
        return value.size().map(int);
    }
    if let ("math.greatest" | "math.least", [first, ..]) = (name, arguments) {
        let values = if let [one] = arguments { one.items()? } else { arguments.to_vec() };
        return Some(extreme(&values, name == "math.greatest").or_else(|_| Ok(first.clone())));
    }
    let items = arguments.first()?.items()?;
    Some(match (name, &arguments[1..]) {
        ("min", []) => extreme(&items, false),
        ("max", []) => extreme(&items, true),
        ("sum", []) => sum(items, budget),
        ("isSorted", []) => Ok(Val::Bool(
            items.windows(2).all(|pair| pair[0].compare(&pair[1]).is_none_or(std::cmp::Ordering::is_le)),
        )),
        ("sort", []) => sorted(items.into_iter().map(|item| (item.clone(), item)).collect()),
        ("first", []) => Ok(Val::Optional(items.into_iter().next().map(Rc::new))),
        ("last", []) => Ok(Val::Optional(items.into_iter().next_back().map(Rc::new))),
        ("reverse", []) => Ok(Val::list(items.into_iter().rev().collect())),
        ("indexOf", [value]) => {
            value.place_in(&items, budget).and_then(|place| place.map_or(Ok(Val::Int(-1)), int))
        }
        ("lastIndexOf", [value]) => {
            let turned: Vec<_> = items.iter().rev().cloned().collect();
            let place = value.place_in(&turned, budget);
            place.and_then(|place| place.map_or(Ok(Val::Int(-1)), |place| int(items.len() - 1 - place)))
        }
        ("distinct", []) => distinct(items, budget),
        ("unwrapOpt" | "optional.unwrap", []) => unwrapped(items),
        ("flatten", []) => flattened(items, 1, budget).map(Val::list),
        ("flatten", [Val::Int(levels)]) if *levels < 0 => failed("level must be non-negative"),
        ("flatten", [Val::Int(levels)]) => flattened(items, *levels, budget).map(Val::list),
        ("slice", [Val::Int(from), Val::Int(to)]) => slice(&items, *from, *to),
        ("join", []) => join(&items, "", budget),
        ("join", [Val::Text(separator)]) => join(&items, separator, budget),
        ("sets.contains" | "sets.intersects" | "sets.equivalent", [other]) => match other.items() {
            Some(other) => sets(name, &items, &other, budget).map(Val::Bool),
            None => return None,
        },
        _ => return None,
    })
}

/// Flattens lists within a list, up to this many levels. Each item is charged before it is copied, because one list may be
/// contained many times.
fn flattened<'v>(items: Vec<Val<'v>>, levels: i64, budget: &mut Budget) -> Result<Vec<Val<'v>>, EvalError> {
    if levels <= 0 {
        return Ok(items);
    }
    let mut flat = Vec::new();
    for item in items {
        if item.is_list() {
            budget.spend(item.size().unwrap_or_default())?;
            flat.extend(flattened(item.items().unwrap_or_default(), levels - 1, budget)?);
        } else {
            flat.push(item);
        }
    }
    Ok(flat)
}

fn distinct<'v>(items: Vec<Val<'v>>, budget: &mut Budget) -> Evaluation<'v> {
    let mut found: Vec<Val<'v>> = Vec::new();
    for item in items {
        if item.place_in(&found, budget)?.is_none() {
            found.push(item);
        }
    }
    Ok(Val::list(found))
}

fn sets<'v>(name: &str, a: &[Val<'v>], b: &[Val<'v>], budget: &mut Budget) -> Result<bool, EvalError> {
    let mut common = |of: &[Val<'v>], with: &[Val<'v>]| {
        of.iter().try_fold(0, |common, item| {
            item.place_in(with, budget).map(|place| common + usize::from(place.is_some()))
        })
    };
    Ok(match name {
        "sets.contains" => common(b, a)? == b.len(),
        "sets.intersects" => common(b, a)? > 0,
        _ => common(b, a)? == b.len() && common(a, b)? == a.len(),
    })
}

fn join<'v>(items: &[Val<'v>], separator: &str, budget: &mut Budget) -> Evaluation<'v> {
    let texts: Result<Vec<&str>, EvalError> = items
        .iter()
        .map(|item| match item {
            // One long text may be contained many times, so each occurrence is charged.
            Val::Text(text) => budget.spend((text.len() + separator.len()) / 10).map(|()| &**text),
            other => failed(format!("join: invalid input: {}", printed(other))),
        })
        .collect();
    Ok(Val::text(&texts?.join(separator)))
}

fn slice<'v>(items: &[Val<'v>], from: i64, to: i64) -> Evaluation<'v> {
    let wrong = |why: String| failed(format!("cannot slice({from}, {to}), {why}"));
    match (usize::try_from(from), usize::try_from(to)) {
        (Ok(from), Ok(to)) if from > to => {
            wrong("start index must be less than or equal to end index".to_owned())
        }
        (Ok(from), Ok(to)) => match items.get(from..to) {
            Some(slice) => Ok(Val::list(slice.to_vec())),
            None => wrong(format!("list is length {}", items.len())),
        },
        _ => wrong("negative indexes not supported".to_owned()),
    }
}

fn unwrapped(items: Vec<Val<'_>>) -> Evaluation<'_> {
    let mut values = Vec::new();
    for item in items {
        match item {
            Val::Optional(value) => values.extend(value.map(|value| (*value).clone())),
            other => return failed(format!("value {} is not optional", printed(&other))),
        }
    }
    Ok(Val::list(values))
}

/// Returns values in the order of their keys, which must have a single type.
pub(crate) fn sorted<'v>(mut entries: Vec<(Val<'v>, Val<'v>)>) -> Evaluation<'v> {
    if let Some((first, _)) = entries.first() {
        if first.compare(first).is_none() {
            return failed("list elements must be comparable");
        }
        let of_type = first.type_name();
        if entries.iter().any(|(key, _)| key.type_name() != of_type) {
            return failed("list elements must have the same type");
        }
    }
    entries.sort_by(|(a, _), (b, _)| a.compare(b).unwrap_or(std::cmp::Ordering::Equal));
    Ok(Val::list(entries.into_iter().map(|(_, value)| value).collect()))
}

fn extreme<'v>(items: &[Val<'v>], greatest: bool) -> Evaluation<'v> {
    let mut items = items.iter();
    let Some(mut best) = items.next() else {
        return failed(if greatest { "max called on empty list" } else { "min called on empty list" });
    };
    for item in items {
        let Some(order) = item.compare(best) else { return failed("no such overload") };
        if (greatest && order.is_gt()) || (!greatest && order.is_lt()) {
            best = item;
        }
    }
    Ok(best.clone())
}

fn sum<'v>(items: Vec<Val<'v>>, budget: &mut Budget) -> Evaluation<'v> {
    let mut items = items.into_iter();
    let first = items.next().unwrap_or(Val::Int(0));
    items.try_fold(first, |sum, item| crate::eval::binary(Operator::Add, &sum, &item, budget))
}

fn time_function<'v>(name: &str, arguments: &[Val<'v>], budget: &mut Budget) -> Option<Evaluation<'v>> {
    /// Cost of reading the rules of a time zone.
    const ZONE: usize = 200;
    let number = |value: i64| Some(Ok(Val::Int(value)));
    match arguments {
        [Val::Duration(nanoseconds)] => {
            let divided = |unit: i64| number(nanoseconds / unit);
            match name {
                "getHours" => divided(3_600_000_000_000),
                "getMinutes" => divided(60_000_000_000),
                "getSeconds" => divided(1_000_000_000),
                "getMilliseconds" => divided(1_000_000),
                _ => None,
            }
        }
        [Val::Timestamp(timestamp)] => timestamp.part(name, 0).map(Val::Int).map(Ok),
        [Val::Timestamp(timestamp), Val::Text(zone)] => {
            // An unknown zone must not hide the error of an unknown function.
            timestamp.part(name, 0)?;
            match budget.spend(ZONE).and_then(|()| timestamp.offset_in(zone)) {
                Ok(offset) => timestamp.part(name, offset).map(Val::Int).map(Ok),
                Err(error) => Some(Err(error)),
            }
        }
        _ => None,
    }
}

/// Parses a quantity such as `1.5Gi` into billionths.
fn parse_quantity(text: &str) -> Option<i128> {
    QuantityParts::of(text).ok()?.billionths()
}

fn quantity_function<'v>(name: &str, arguments: &[Val<'v>]) -> Option<Evaluation<'v>> {
    const ONE: i128 = 1_000_000_000;
    let quantity =
        |value: Option<i128>| value.map_or_else(|| failed("quantity overflow"), |v| Ok(Val::Quantity(v)));
    Some(match (name, arguments) {
        ("quantity", [Val::Text(text)]) => match parse_quantity(text) {
            Some(value) => Ok(Val::Quantity(value)),
            None if matches_whole(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)[eEinumkKMGTP]*[-+]?[0-9]*", text) => {
                failed("unable to parse quantity's suffix")
            }
            None => failed(
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ),
        },
        ("isQuantity", [Val::Text(text)]) => Ok(Val::Bool(parse_quantity(text).is_some())),
        ("isGreaterThan", [Val::Quantity(a), Val::Quantity(b)]) => Ok(Val::Bool(a > b)),
        ("isLessThan", [Val::Quantity(a), Val::Quantity(b)]) => Ok(Val::Bool(a < b)),
        ("compareTo", [Val::Quantity(a), Val::Quantity(b)]) => Ok(Val::Int(a.cmp(b) as i64)),
        ("sign", [Val::Quantity(a)]) => Ok(Val::Int(a.cmp(&0) as i64)),
        ("isInteger", [Val::Quantity(a)]) => Ok(Val::Bool(a % ONE == 0)),
        ("asInteger", [Val::Quantity(a)]) => match i64::try_from(a / ONE) {
            Ok(value) if a % ONE == 0 => Ok(Val::Int(value)),
            _ => failed("cannot convert value to integer"),
        },
        #[expect(clippy::cast_precision_loss, reason = "approximate by its name")]
        ("asApproximateFloat", [Val::Quantity(a)]) => Ok(Val::Double(*a as f64 / 1e9)),
        ("add", [Val::Quantity(a), Val::Quantity(b)]) => quantity(a.checked_add(*b)),
        ("sub", [Val::Quantity(a), Val::Quantity(b)]) => quantity(a.checked_sub(*b)),
        ("add", [Val::Quantity(a), Val::Int(b)]) => quantity(a.checked_add(i128::from(*b) * ONE)),
        ("sub", [Val::Quantity(a), Val::Int(b)]) => quantity(a.checked_sub(i128::from(*b) * ONE)),
        _ => return None,
    })
}

fn conversion<'v>(name: &str, arguments: &[Val<'v>]) -> Option<Evaluation<'v>> {
    if let [value] = arguments
        && let Some(converted) = converted(name, value)
    {
        return Some(converted);
    }
    Some(match (name, arguments) {
        ("type", [value]) => Ok(Val::Type(value.type_name())),
        ("optional.none", []) => Ok(Val::Optional(None)),
        ("optional.of", [value]) => Ok(Val::Optional(Some(Rc::new(value.clone())))),
        ("optional.ofNonZeroValue", [value]) => {
            Ok(Val::Optional((!is_zero(value)).then(|| Rc::new(value.clone()))))
        }
        ("hasValue", [Val::Optional(value)]) => Ok(Val::Bool(value.is_some())),
        ("value", [Val::Optional(Some(value))]) => Ok((**value).clone()),
        ("value", [Val::Optional(None)]) => failed("optional.none() dereference"),
        ("dyn", [value]) | ("orValue" | "or", [Val::Optional(None), value]) => Ok(value.clone()),
        ("abs", [Val::Int(value)]) => {
            value.checked_abs().map_or_else(|| failed("integer overflow"), |value| Ok(Val::Int(value)))
        }
        _ => return None,
    })
}

/// Converts a value to another type; `None` if there is no such conversion.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked first")]
fn converted<'v>(name: &str, value: &Val<'v>) -> Option<Evaluation<'v>> {
    /// The smallest doubles beyond the range of `int` and `uint`.
    const BEYOND: [f64; 2] = [9_223_372_036_854_775_808.0, 18_446_744_073_709_551_616.0];
    let parsed = |found: Option<Val<'v>>, to: &str| {
        let wrong = || failed(format!("type conversion error from '{}' to '{to}'", value.type_name()));
        found.map_or_else(wrong, Ok)
    };
    let int = |fits: Option<i64>| fits.map_or_else(|| failed("integer overflow"), |v| Ok(Val::Int(v)));
    let uint =
        |fits: Option<u64>| fits.map_or_else(|| failed("unsigned integer overflow"), |v| Ok(Val::Uint(v)));
    let duration_type = "google.protobuf.Duration";
    Some(match (name, value) {
        ("bool", Val::Bool(_))
        | ("int", Val::Int(_))
        | ("uint", Val::Uint(_))
        | ("double", Val::Double(_))
        | ("bytes", Val::Bytes(_))
        | ("string", Val::Text(_))
        | ("duration", Val::Duration(_))
        | ("timestamp", Val::Timestamp(_)) => Ok(value.clone()),
        ("string", Val::Bytes(bytes)) => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Val::text(text)),
            Err(_) => failed("invalid UTF-8 in bytes, cannot convert to string"),
        },
        (
            "string",
            Val::Bool(_)
            | Val::Int(_)
            | Val::Uint(_)
            | Val::Double(_)
            | Val::Duration(_)
            | Val::Timestamp(_)
            | Val::Ip(_)
            | Val::Cidr(..),
        ) => Ok(Val::text(&printed(value))),
        ("bool", Val::Text(text)) => parsed(parse_bool(text).map(Val::Bool), "bool"),
        ("bytes", Val::Text(text)) => Ok(Val::Bytes(text.as_bytes().into())),
        ("int", Val::Uint(value)) => int(i64::try_from(*value).ok()),
        ("int", Val::Double(value)) => int((value.abs() < BEYOND[0]).then_some(*value as i64)),
        ("int", Val::Text(text)) => parsed(text.parse().ok().map(Val::Int), "int"),
        ("int", Val::Timestamp(value)) => Ok(Val::Int(value.seconds())),
        ("int", Val::Duration(nanoseconds)) => Ok(Val::Int(*nanoseconds)),
        ("uint", Val::Int(value)) => uint(u64::try_from(*value).ok()),
        ("uint", Val::Double(value)) => uint((*value >= 0.0 && *value < BEYOND[1]).then_some(*value as u64)),
        ("uint", Val::Text(text)) => {
            parsed((!text.starts_with('+')).then(|| text.parse().ok().map(Val::Uint)).flatten(), "uint")
        }
        ("double", Val::Int(_) | Val::Uint(_)) => parsed(value.number().map(Val::Double), "double"),
        ("double", Val::Text(text)) => parsed(parse_double(text).map(Val::Double), "double"),
        ("duration", Val::Text(text)) => parsed(parse_duration(text).map(Val::Duration), duration_type),
        ("duration", Val::Int(_)) => parsed(None, duration_type),
        ("timestamp", Val::Int(seconds)) => Timestamp::from_seconds(*seconds).map(Val::Timestamp),
        ("timestamp", Val::Text(text)) => match Timestamp::parse(text) {
            Some(timestamp) => timestamp.map(Val::Timestamp),
            None => parsed(None, "google.protobuf.Timestamp"),
        },
        _ => return None,
    })
}

fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Parses a number that must not overflow to infinity.
fn parse_double(text: &str) -> Option<f64> {
    let value: f64 = text.parse().ok()?;
    (value.is_finite() || !text.contains(|c: char| c.is_ascii_digit())).then_some(value)
}

fn is_zero(value: &Val<'_>) -> bool {
    match value {
        Val::Null | Val::Bool(false) | Val::Duration(0) => true,
        Val::Optional(inner) => inner.is_none(),
        _ => value.size() == Some(0) || value.number() == Some(0.0),
    }
}
