//! The functions of CEL and of Kubernetes' libraries.

use std::rc::Rc;

use crate::authority;
use crate::budget::{Budget, EvalError, failed};
use crate::formats::{self, printed_float};
use crate::libraries;
use crate::value::{Evaluated, Val, parse_duration, parse_quantity};

/// Maximum size of a compiled pattern, bytes.
const PATTERN_SIZE_LIMIT: usize = 1 << 20;

/// Calls a function; a method has its target as first argument.
pub(crate) fn call<'v>(name: &str, arguments: &[Val<'v>], budget: &mut Budget) -> Evaluated<'v> {
    for argument in arguments {
        budget.spend(argument.size().unwrap_or_default() / 10)?;
    }
    let found = text_function(name, arguments, budget)
        .or_else(|| list_function(name, arguments, budget))
        .or_else(|| time_function(name, arguments))
        .or_else(|| quantity_function(name, arguments))
        .or_else(|| libraries::call(name, arguments, budget))
        .or_else(|| authority::call(name, arguments, budget))
        .or_else(|| conversion(name, arguments));
    let value = found.unwrap_or_else(|| failed("no such overload"))?;
    if let Val::Text(text) = &value {
        budget.spend(text.len() / 10)?;
    }
    Ok(value)
}

/// A value as text, for `string()` and messages.
#[must_use]
pub fn printed(value: &Val<'_>) -> String {
    match value {
        Val::Null => "null".into(),
        Val::Bool(value) => value.to_string(),
        Val::Int(value) => value.to_string(),
        Val::Uint(value) => value.to_string(),
        Val::Double(value) => printed_float(*value),
        Val::Text(text) => text.to_string(),
        Val::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Val::Duration(nanoseconds) => {
            #[expect(clippy::cast_precision_loss, reason = "printed as seconds with a fraction")]
            let seconds = *nanoseconds as f64 / 1e9;
            format!("{}s", printed_float(seconds))
        }
        Val::Timestamp(timestamp) => timestamp.to_string(),
        Val::Type(name) | Val::Format(name) => (*name).to_owned(),
        Val::Json(value, _) => value.to_string(),
        Val::Quantity(billionths) => {
            let (whole, rest) = (billionths / 1_000_000_000, (billionths % 1_000_000_000).abs());
            if rest == 0 {
                whole.to_string()
            } else {
                format!("{whole}.{rest:09}").trim_end_matches('0').into()
            }
        }
        Val::List(items) => format!("[{}]", items.iter().map(printed).collect::<Vec<_>>().join(", ")),
        Val::Map(entries) => {
            let entries: Vec<String> =
                entries.iter().map(|(key, value)| format!("{}: {}", printed(key), printed(value))).collect();
            format!("{{{}}}", entries.join(", "))
        }
        Val::Check(check) => check.type_name().to_owned(),
        Val::Decision(allowed) => allowed.to_string(),
        Val::Url(url) => url.to_string(),
        Val::Ip(address) => address.to_string(),
        Val::Cidr(address, bits) => format!("{address}/{bits}"),
        Val::Semver(version) => version.to_string(),
        Val::Optional(Some(value)) => format!("optional({})", printed(value)),
        Val::Optional(None) => "optional.none()".into(),
    }
}

fn int<'v>(value: usize) -> Evaluated<'v> {
    i64::try_from(value).map_or_else(|_| failed("integer overflow"), |value| Ok(Val::Int(value)))
}

fn position(value: i64) -> Result<usize, EvalError> {
    usize::try_from(value).or_else(|_| failed(format!("index out of range: {value}")))
}

/// Whether a text is a pattern.
pub(crate) fn is_regex(pattern: &str) -> bool {
    regex::RegexBuilder::new(pattern).size_limit(PATTERN_SIZE_LIMIT).build().is_ok()
}

fn regex(pattern: &str, budget: &mut Budget) -> Result<regex::Regex, EvalError> {
    /// The cost of compiling a pattern.
    const COMPILING: usize = 500;
    budget.spend(COMPILING + pattern.len())?;
    regex::RegexBuilder::new(pattern)
        .size_limit(PATTERN_SIZE_LIMIT)
        .build()
        .or_else(|error| failed(format!("error parsing regexp: {error}")))
}

fn text_function<'v>(name: &str, arguments: &[Val<'v>], budget: &mut Budget) -> Option<Evaluated<'v>> {
    let [Val::Text(text), rest @ ..] = arguments else { return None };
    Some(match (name, rest) {
        ("startsWith", [Val::Text(other)]) => Ok(Val::Bool(text.starts_with(&**other))),
        ("endsWith", [Val::Text(other)]) => Ok(Val::Bool(text.ends_with(&**other))),
        ("contains", [Val::Text(other)]) => Ok(Val::Bool(text.contains(&**other))),
        ("matches", [Val::Text(pattern)]) => {
            regex(pattern, budget).map(|regex| Val::Bool(regex.is_match(text)))
        }
        ("find", [Val::Text(pattern)]) => {
            regex(pattern, budget).map(|regex| Val::text(regex.find(text).map_or("", |found| found.as_str())))
        }
        ("findAll", [Val::Text(pattern)]) => regex(pattern, budget)
            .map(|regex| Val::list(regex.find_iter(text).map(|found| Val::text(found.as_str())).collect())),
        ("findAll", [Val::Text(pattern), Val::Int(most)]) => regex(pattern, budget).map(|regex| {
            let most = usize::try_from(*most).unwrap_or(usize::MAX);
            Val::list(regex.find_iter(text).take(most).map(|found| Val::text(found.as_str())).collect())
        }),
        ("lowerAscii", []) => Ok(Val::text(&text.to_ascii_lowercase())),
        ("upperAscii", []) => Ok(Val::text(&text.to_ascii_uppercase())),
        ("trim", []) => Ok(Val::text(text.trim())),
        ("reverse", []) => Ok(Val::text(&text.chars().rev().collect::<String>())),
        ("strings.quote", []) => Ok(Val::text(&format!("{text:?}"))),
        ("charAt", [Val::Int(index)]) => position(*index)
            .map(|index| Val::text(&text.chars().nth(index).map(String::from).unwrap_or_default())),
        ("indexOf", [Val::Text(other)]) => char_index(text, text.find(&**other)),
        ("lastIndexOf", [Val::Text(other)]) => char_index(text, text.rfind(&**other)),
        ("replace", [Val::Text(from), Val::Text(to)]) => {
            // The result may be as long as the product of both.
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
        ("split", [Val::Text(separator)]) => {
            if separator.is_empty() {
                Ok(Val::list(text.chars().map(|c| Val::text(&c.to_string())).collect()))
            } else {
                Ok(Val::list(text.split(&**separator).map(Val::text).collect()))
            }
        }
        ("split", [Val::Text(separator), Val::Int(most)]) => match usize::try_from(*most) {
            Ok(most) => Ok(Val::list(text.splitn(most, &**separator).map(Val::text).collect())),
            Err(_) => Ok(Val::list(text.split(&**separator).map(Val::text).collect())),
        },
        ("substring", [Val::Int(from)]) => substring(text, *from, None),
        ("substring", [Val::Int(from), Val::Int(to)]) => substring(text, *from, Some(*to)),
        ("isURL", []) => Ok(Val::Bool(formats::is_uri(text))),
        ("indexOf", [Val::Text(other), Val::Int(from)]) => index_from(text, other, *from),
        ("lastIndexOf", [Val::Text(other), Val::Int(until)]) => last_index_until(text, other, *until),
        ("format", [list]) => match list.items() {
            Some(items) => libraries::formatted(text, &items),
            None => failed("no such overload"),
        },
        _ => return None,
    })
}

fn char_index<'v>(text: &str, found: Option<usize>) -> Evaluated<'v> {
    found.map_or(Ok(Val::Int(-1)), |bytes| int(text[..bytes].chars().count()))
}

fn index_from<'v>(text: &str, other: &str, from: i64) -> Evaluated<'v> {
    let from = position(from)?;
    let Some((bytes, _)) = text.char_indices().chain([(text.len(), ' ')]).nth(from) else {
        return failed(format!("index out of range: {from}"));
    };
    char_index(text, text[bytes..].find(other).map(|found| bytes + found))
}

fn last_index_until<'v>(text: &str, other: &str, until: i64) -> Evaluated<'v> {
    let until = position(until)?;
    let Some((bytes, _)) = text.char_indices().chain([(text.len(), ' ')]).nth(until) else {
        return failed(format!("index out of range: {until}"));
    };
    // A match may begin at that place at the latest.
    let end = text.len().min(bytes + other.len());
    let end = (end..=text.len()).find(|end| text.is_char_boundary(*end)).unwrap_or(text.len());
    char_index(text, text[..end].rfind(other))
}

fn substring<'v>(text: &str, from: i64, to: Option<i64>) -> Evaluated<'v> {
    let length = text.chars().count();
    let from = position(from)?;
    let to = to.map_or(Ok(length), position)?;
    if from > to || to > length {
        return failed(format!("invalid substring range. start: {from}, end: {to}"));
    }
    Ok(Val::text(&text.chars().skip(from).take(to - from).collect::<String>()))
}

fn list_function<'v>(name: &str, arguments: &[Val<'v>], budget: &mut Budget) -> Option<Evaluated<'v>> {
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
        ("sum", []) => sum(&items),
        ("isSorted", []) => Ok(Val::Bool(
            items.windows(2).all(|pair| pair[0].compare(&pair[1]).is_some_and(std::cmp::Ordering::is_le)),
        )),
        ("sort", []) => {
            let mut items = items;
            items.sort_by(|a, b| a.compare(b).unwrap_or(std::cmp::Ordering::Equal));
            Ok(Val::list(items))
        }
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
        ("unwrapOpt" | "optional.unwrap", []) => Ok(Val::list(
            items
                .into_iter()
                .filter_map(|item| match item {
                    Val::Optional(value) => value.map(|value| (*value).clone()),
                    other => Some(other),
                })
                .collect(),
        )),
        ("flatten", [Val::Int(levels)]) => Ok(Val::list(flattened(items, *levels))),
        ("flatten", []) => Ok(Val::list(
            items.into_iter().flat_map(|item| item.items().unwrap_or_else(|| vec![item])).collect(),
        )),
        ("slice", [Val::Int(from), Val::Int(to)]) => match (position(*from), position(*to)) {
            (Ok(from), Ok(to)) => match items.get(from..to) {
                Some(slice) => Ok(Val::list(slice.to_vec())),
                None => failed("index out of bounds"),
            },
            _ => failed("index out of bounds"),
        },
        ("join", []) => Ok(join(&items, "")),
        ("join", [Val::Text(separator)]) => Ok(join(&items, separator)),
        ("sets.contains" | "sets.intersects" | "sets.equivalent", [other]) => match other.items() {
            Some(other) => sets(name, &items, &other, budget).map(Val::Bool),
            None => failed("no such overload"),
        },
        _ => return None,
    })
}

fn flattened<'v>(items: Vec<Val<'v>>, levels: i64) -> Vec<Val<'v>> {
    if levels <= 0 {
        return items;
    }
    let inner = |item: Val<'v>| match item.items() {
        Some(items) => flattened(items, levels - 1),
        None => vec![item],
    };
    items.into_iter().flat_map(inner).collect()
}

fn distinct<'v>(items: Vec<Val<'v>>, budget: &mut Budget) -> Evaluated<'v> {
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

fn join<'v>(items: &[Val<'v>], separator: &str) -> Val<'v> {
    Val::text(&items.iter().map(printed).collect::<Vec<_>>().join(separator))
}

fn extreme<'v>(items: &[Val<'v>], greatest: bool) -> Evaluated<'v> {
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

fn sum<'v>(items: &[Val<'v>]) -> Evaluated<'v> {
    if items.iter().all(|item| matches!(item, Val::Int(_))) {
        let whole = items.iter().try_fold(0_i64, |sum, item| match item {
            Val::Int(value) => sum.checked_add(*value),
            _ => None,
        });
        return whole.map_or_else(|| failed("integer overflow"), |sum| Ok(Val::Int(sum)));
    }
    let numbers: Option<Vec<f64>> = items.iter().map(Val::number).collect();
    numbers.map_or_else(|| failed("no such overload"), |numbers| Ok(Val::Double(numbers.iter().sum())))
}

fn time_function<'v>(name: &str, arguments: &[Val<'v>]) -> Option<Evaluated<'v>> {
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
        [Val::Timestamp(timestamp)] => {
            let civil = timestamp.to_zoned(jiff::tz::TimeZone::UTC).datetime();
            match name {
                "getFullYear" => number(civil.year().into()),
                "getMonth" => number(i64::from(civil.month()) - 1),
                "getDate" => number(civil.day().into()),
                "getDayOfMonth" => number(i64::from(civil.day()) - 1),
                "getDayOfWeek" => number(civil.weekday().to_sunday_zero_offset().into()),
                "getDayOfYear" => number(i64::from(civil.day_of_year()) - 1),
                "getHours" => number(civil.hour().into()),
                "getMinutes" => number(civil.minute().into()),
                "getSeconds" => number(civil.second().into()),
                "getMilliseconds" => number(civil.millisecond().into()),
                _ => None,
            }
        }
        _ => None,
    }
}

fn quantity_function<'v>(name: &str, arguments: &[Val<'v>]) -> Option<Evaluated<'v>> {
    const ONE: i128 = 1_000_000_000;
    let quantity =
        |value: Option<i128>| value.map_or_else(|| failed("quantity overflow"), |v| Ok(Val::Quantity(v)));
    Some(match (name, arguments) {
        ("quantity", [Val::Text(text)]) => match parse_quantity(text) {
            Some(value) => Ok(Val::Quantity(value)),
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

#[expect(clippy::cast_possible_truncation, reason = "ranges are checked before the cast")]
fn conversion<'v>(name: &str, arguments: &[Val<'v>]) -> Option<Evaluated<'v>> {
    /// Beyond this no double is a 64-bit integer.
    const LARGEST: f64 = 9.2e18;
    let parsed = |value: Option<Val<'v>>| value.map_or_else(|| failed("type conversion error"), Ok);
    Some(match (name, arguments) {
        ("type", [value]) => Ok(Val::Type(value.type_name())),
        ("string", [value]) => Ok(Val::text(&printed(value))),
        ("bool", [Val::Bool(value)]) => Ok(Val::Bool(*value)),
        ("bool", [Val::Text(text)]) => parsed(match &**text {
            "true" | "True" | "TRUE" | "t" | "1" => Some(Val::Bool(true)),
            "false" | "False" | "FALSE" | "f" | "0" => Some(Val::Bool(false)),
            _ => None,
        }),
        ("int", [Val::Int(value)]) => Ok(Val::Int(*value)),
        ("int", [Val::Uint(value)]) => parsed(i64::try_from(*value).ok().map(Val::Int)),
        ("int", [Val::Double(value)]) => parsed((value.abs() < LARGEST).then_some(Val::Int(*value as i64))),
        ("int", [Val::Text(text)]) => parsed(text.parse().ok().map(Val::Int)),
        ("int", [Val::Timestamp(value)]) => Ok(Val::Int(value.as_second())),
        ("uint", [Val::Uint(value)]) => Ok(Val::Uint(*value)),
        ("uint", [Val::Int(value)]) => parsed(u64::try_from(*value).ok().map(Val::Uint)),
        ("uint", [Val::Text(text)]) => parsed(text.parse().ok().map(Val::Uint)),
        ("double", [Val::Text(text)]) => parsed(text.parse().ok().map(Val::Double)),
        ("double", [value]) => parsed(value.number().map(Val::Double)),
        ("bytes", [Val::Text(text)]) => Ok(Val::Bytes(text.as_bytes().into())),
        ("bytes", [Val::Bytes(bytes)]) => Ok(Val::Bytes(Rc::clone(bytes))),
        ("duration", [Val::Text(text)]) => parsed(parse_duration(text).map(Val::Duration)),
        ("duration", [Val::Duration(value)]) => Ok(Val::Duration(*value)),
        ("timestamp", [Val::Text(text)]) => parsed(text.parse().ok().map(Val::Timestamp)),
        ("timestamp", [Val::Timestamp(value)]) => Ok(Val::Timestamp(*value)),
        ("optional.none", []) => Ok(Val::Optional(None)),
        ("optional.of", [value]) => Ok(Val::Optional(Some(Rc::new(value.clone())))),
        ("optional.ofNonZeroValue", [value]) => {
            Ok(Val::Optional((!is_zero(value)).then(|| Rc::new(value.clone()))))
        }
        ("hasValue", [Val::Optional(value)]) => Ok(Val::Bool(value.is_some())),
        ("value", [Val::Optional(Some(value))]) => Ok((**value).clone()),
        ("value", [Val::Optional(None)]) => failed("optional.none() dereference"),
        ("dyn", [value]) | ("orValue" | "or", [Val::Optional(None), value]) => Ok(value.clone()),
        ("abs", [Val::Int(value)]) => parsed(value.checked_abs().map(Val::Int)),
        _ => return None,
    })
}

fn is_zero(value: &Val<'_>) -> bool {
    match value {
        Val::Null | Val::Bool(false) => true,
        Val::Optional(inner) => inner.is_none(),
        _ => value.size() == Some(0) || value.number() == Some(0.0),
    }
}
