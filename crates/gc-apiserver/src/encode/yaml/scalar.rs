//! Scalars by the rules of YAML 1.1, as upstream's parser applies them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Number, Value};

use super::shown;

/// Tag of a merge key.
pub(super) const MERGE_TAG: &str = "tag:yaml.org,2002:merge";
/// Prefix of YAML's own tags.
const YAML_TAG_PREFIX: &str = "tag:yaml.org,2002:";
/// Bound up to which a float without a fraction becomes an integer; all of them fit.
const LARGEST_WHOLE: f64 = 9.2e18;

/// A scalar with its type.
#[derive(Debug, PartialEq)]
pub(super) enum Scalar<'a> {
    Null,
    Bool(bool),
    Integer(i64),
    /// Larger than the largest signed integer.
    Unsigned(u64),
    Float(f64),
    /// Everything else, including times.
    Text(std::borrow::Cow<'a, str>),
}

impl Scalar<'_> {
    fn tag(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Integer(_) | Self::Unsigned(_) => "int",
            Self::Float(_) => "float",
            Self::Text(_) => "str",
        }
    }

    /// Converts the scalar to JSON; a float without a fraction becomes an integer.
    pub(super) fn into_json(self) -> Result<Value, String> {
        Ok(match self {
            Self::Null => Value::Null,
            Self::Bool(flag) => Value::Bool(flag),
            Self::Integer(number) => number.into(),
            Self::Unsigned(number) => number.into(),
            #[allow(clippy::cast_possible_truncation)] // within the integers, and without a fraction
            Self::Float(number) if number.fract() == 0.0 && number.abs() < LARGEST_WHOLE => {
                (number as i64).into()
            }
            Self::Float(number) => Number::from_f64(number)
                .map(Value::Number)
                .ok_or_else(|| format!("json: unsupported value: {number}"))?,
            Self::Text(text) => Value::String(text.into_owned()),
        })
    }

    /// Converts the scalar to a JSON key, which is always text.
    pub(super) fn into_key(self) -> Result<String, String> {
        Ok(match self {
            Self::Null => return Err("unsupported map key of type: null".to_owned()),
            Self::Bool(flag) => flag.to_string(),
            Self::Integer(number) => number.to_string(),
            Self::Unsigned(number) => {
                return Err(format!("unsupported map key of type: uint64, key: {number}"));
            }
            Self::Float(number) if number.is_nan() => ".nan".to_owned(),
            Self::Float(number) if number.is_infinite() && number > 0.0 => ".inf".to_owned(),
            Self::Float(number) if number.is_infinite() => "-.inf".to_owned(),
            Self::Float(number) => number.to_string(),
            Self::Text(text) => text.into_owned(),
        })
    }
}

/// Resolves a scalar. Quoted scalars without a tag are text.
pub(super) fn resolve<'a>(text: &'a str, plain: bool, tag: Option<&str>) -> Result<Scalar<'a>, String> {
    let as_text = || Ok(Scalar::Text(text.into()));
    let Some(tag) = tag else {
        return if plain { Ok(untagged(text)) } else { as_text() };
    };
    let Some(kind) = tag.strip_prefix(YAML_TAG_PREFIX) else { return as_text() };
    match kind {
        "binary" => {
            let packed: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
            let bytes = STANDARD
                .decode(packed)
                .map_err(|_| "!!binary value contains invalid base64 data".to_owned())?;
            Ok(Scalar::Text(String::from_utf8_lossy(&bytes).into_owned().into()))
        }
        "null" | "bool" | "int" | "float" => match untagged(text) {
            #[allow(clippy::cast_precision_loss)] // what a float is asked for is one
            Scalar::Integer(number) if kind == "float" => Ok(Scalar::Float(number as f64)),
            found if found.tag() == kind => Ok(found),
            found => Err(format!("cannot decode !!{} `{}` as a !!{kind}", found.tag(), shown(text))),
        },
        _ => as_text(),
    }
}

/// Resolves a plain scalar without a tag.
fn untagged(text: &str) -> Scalar<'_> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Scalar::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Scalar::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Scalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Scalar::Float(f64::NEG_INFINITY),
        _ => {}
    }
    let number = match text.as_bytes().first() {
        Some(b'.') => float(text),
        Some(b'+' | b'-' | b'0'..=b'9') => {
            let digits = text.replace('_', "");
            integer(&digits).or_else(|| float(&digits))
        }
        _ => None,
    };
    number.unwrap_or_else(|| Scalar::Text(text.into()))
}

/// Parses an integer in base 10, or after `0x`, `0b`, `0o` or a leading zero in base 16, 2 or 8.
fn integer(text: &str) -> Option<Scalar<'static>> {
    let (sign, magnitude) = match text.as_bytes().first()? {
        b'-' => ("-", &text[1..]),
        b'+' => ("", &text[1..]),
        _ => ("", text),
    };
    let prefix = magnitude.get(..2).unwrap_or_default().to_ascii_lowercase();
    let (radix, digits) = match prefix.as_str() {
        "0x" => (16, &magnitude[2..]),
        "0b" => (2, &magnitude[2..]),
        "0o" => (8, &magnitude[2..]),
        _ if magnitude.len() > 1 && magnitude.starts_with('0') => (8, &magnitude[1..]),
        _ => (10, magnitude),
    };
    // A second sign is not allowed, although Rust would accept it.
    if !digits.bytes().next()?.is_ascii_alphanumeric() {
        return None;
    }
    match i64::from_str_radix(&format!("{sign}{digits}"), radix) {
        Ok(number) => Some(Scalar::Integer(number)),
        Err(_) if text.starts_with(['-', '+']) => None,
        Err(_) => u64::from_str_radix(digits, radix).ok().map(Scalar::Unsigned),
    }
}

/// Parses a float made of digits, a point and an exponent; Rust's further forms (`inf`, `nan`) are excluded.
fn float(text: &str) -> Option<Scalar<'static>> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mantissa_fits = match (whole, fraction) {
        ("", fraction) => digits(fraction),
        (whole, "") => digits(whole),
        (whole, fraction) => digits(whole) && digits(fraction),
    };
    let exponent_fits = exponent.is_none_or(|text| digits(text.strip_prefix(['+', '-']).unwrap_or(text)));
    if !(mantissa_fits && exponent_fits) {
        return None;
    }
    text.parse().ok().filter(|number: &f64| number.is_finite()).map(Scalar::Float)
}
