//! String formats that kube-apiserver checks in custom resources. Unknown formats restrict nothing.

use base64::Engine as _;
use gc_cel::{is_cidr, is_uri};

use crate::kinds::shared::names::parse_ip;

/// Names of the checked formats (without dashes, as in `datetime`).
const KNOWN: [&str; 23] = [
    "bsonobjectid",
    "byte",
    "cidr",
    "creditcard",
    "date",
    "datetime",
    "duration",
    "email",
    "hexcolor",
    "hostname",
    "ipv4",
    "ipv6",
    "isbn",
    "isbn10",
    "isbn13",
    "mac",
    "password",
    "rgbcolor",
    "ssn",
    "uri",
    "uuid",
    "uuid3",
    "uuid4",
];

/// Reports whether kube-apiserver knows the format; a definition with another one causes a warning.
pub(super) fn is_known(format: &str) -> bool {
    let plain = format.replace('-', "");
    KNOWN.contains(&plain.as_str()) || matches!(plain.as_str(), "uuid5" | "k8sshortname" | "k8slongname")
}

/// Reports whether a text has the format.
pub(super) fn is_valid(format: &str, text: &str) -> bool {
    match format.replace('-', "").as_str() {
        "bsonobjectid" => is_hex(text, 24),
        "byte" => !text.is_empty() && base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
        "cidr" => is_cidr(text),
        "date" => is_date(text),
        "datetime" => is_date_time(text),
        "duration" => is_duration(text),
        "email" => is_email(text),
        "hexcolor" => {
            let digits = text.strip_prefix('#').unwrap_or(text);
            is_hex(digits, 3) || is_hex(digits, 6)
        }
        "rgbcolor" => is_rgb(text),
        "hostname" => is_hostname(text),
        // Leading zeros do not mean octal numbers here.
        "ipv4" => !text.contains(':') && parse_ip(text).is_some(),
        "ipv6" => text.contains(':') && parse_ip(text).is_some(),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "creditcard" => is_credit_card(text),
        "mac" => is_mac(text),
        "ssn" => is_ssn(text),
        "uri" => is_uri(text),
        "uuid" => is_uuid(text, None),
        "uuid3" => is_uuid(text, Some('3')),
        "uuid4" => is_uuid(text, Some('4')),
        "uuid5" => is_uuid(text, Some('5')),
        "k8sshortname" => {
            text.len() <= 63 && !text.contains('.') && super::field::subdomain_problems(text).is_empty()
        }
        "k8slongname" => super::field::subdomain_problems(text).is_empty(),
        _ => true,
    }
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

/// Accepts RFC 3339 date and time, also without zone or fraction, and the variants of MongoDB and Go with a space.
fn is_date_time(text: &str) -> bool {
    let Some(date) = text.get(..10).filter(|date| is_date(date)) else { return false };
    let rest = &text[date.len()..];
    if !rest.starts_with(['T', 't', ' ']) {
        return false;
    }
    let normal = format!("{date}T{}", &rest[1..]);
    normal.parse::<jiff::Timestamp>().is_ok() || normal.parse::<jiff::civil::DateTime>().is_ok()
}

/// Accepts a Go duration such as `1h30m`, or a number with a unit such as `22 ns` or `3 days`.
fn is_duration(text: &str) -> bool {
    const UNITS: [&str; 31] = [
        "ns",
        "nano",
        "nanos",
        "nanosecond",
        "nanoseconds",
        "us",
        "µs",
        "micro",
        "micros",
        "microsecond",
        "microseconds",
        "ms",
        "milli",
        "millis",
        "millisecond",
        "milliseconds",
        "s",
        "sec",
        "secs",
        "second",
        "seconds",
        "m",
        "min",
        "mins",
        "minute",
        "minutes",
        "h",
        "hr",
        "hour",
        "hours",
        "d",
    ];
    const LONG_UNITS: [&str; 6] = ["day", "days", "w", "week", "weeks", "wk"];
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        if rest[..digits].parse::<f64>().is_err() {
            return false;
        }
        rest = rest[digits..].trim_start();
        let letters = rest.find(|c: char| !c.is_alphabetic()).unwrap_or(rest.len());
        let unit = &rest[..letters];
        if !UNITS.contains(&unit) && !LONG_UNITS.contains(&unit) {
            return false;
        }
        rest = rest[letters..].trim_start();
    }
    true
}

fn is_email(text: &str) -> bool {
    let address = match (text.rfind('<'), text.ends_with('>')) {
        (Some(start), true) => &text[start + 1..text.len() - 1],
        (None, false) => text,
        _ => return false,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && !part.ends_with('.')
            && !part.contains("..")
            && part.chars().all(|c| !c.is_whitespace() && !c.is_control() && !"()<>@,;:\\\"[]".contains(c))
    };
    plain(local) && plain(domain)
}

/// Accepts a single label, or labels followed by a top-level domain of letters.
fn is_hostname(text: &str) -> bool {
    /// Maximum length of a label and of a name in bytes.
    const LONGEST: [usize; 2] = [63, 255];
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= LONGEST[0]
            && label.chars().all(|c| c.is_alphanumeric() || c == '-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_top = |top: &str| top.chars().count() >= 2 && top.chars().all(char::is_alphabetic);
    let is_complete = text.rsplit_once('.').is_none_or(|(_, top)| is_top(top));
    text.len() <= LONGEST[1] && text.split('.').all(label) && is_complete
}

fn is_rgb(text: &str) -> bool {
    let Some(inner) = text.strip_prefix("rgb(").and_then(|rest| rest.strip_suffix(')')) else { return false };
    let parts: Vec<&str> = inner.split(',').map(str::trim).collect();
    parts.len() == 3 && parts.iter().all(|part| part.parse::<u8>().is_ok())
}

fn digits_of(text: &str) -> String {
    text.chars().filter(|c| !matches!(c, '-' | ' ')).collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = digits_of(text);
    if digits.len() != 10 || !digits.is_ascii() {
        return false;
    }
    let mut sum = 0;
    for (index, c) in digits.chars().enumerate() {
        let value = match c {
            'X' | 'x' if index == 9 => 10,
            _ => match c.to_digit(10) {
                Some(value) => value as usize,
                None => return false,
            },
        };
        sum += value * (10 - index);
    }
    sum % 11 == 0
}

fn is_isbn13(text: &str) -> bool {
    let digits = digits_of(text);
    if digits.len() != 13 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let weighted = |(index, byte): (usize, u8)| usize::from(byte - b'0') * if index % 2 == 0 { 1 } else { 3 };
    digits.bytes().enumerate().map(weighted).sum::<usize>() % 10 == 0
}

fn is_credit_card(text: &str) -> bool {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(10)).collect();
    if !(13..=16).contains(&digits.len()) {
        return false;
    }
    let luhn = |(index, digit): (usize, &u32)| match (index % 2, digit * 2) {
        (0, _) => *digit,
        (_, doubled) if doubled > 9 => doubled - 9,
        (_, doubled) => doubled,
    };
    digits.iter().rev().enumerate().map(luhn).sum::<u32>() % 10 == 0
}

fn is_mac(text: &str) -> bool {
    for (separator, width, counts) in
        [(':', 2, &[6, 8, 20][..]), ('-', 2, &[6, 8, 20][..]), ('.', 4, &[3, 4, 10][..])]
    {
        let parts: Vec<&str> = text.split(separator).collect();
        if counts.contains(&parts.len()) && parts.iter().all(|part| is_hex(part, width)) {
            return true;
        }
    }
    false
}

fn is_ssn(text: &str) -> bool {
    let digits: String = text.chars().filter(|c| !matches!(c, '-' | ' ')).collect();
    let separated = text.len() - digits.len() <= 2;
    digits.len() == 9 && separated && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Accepts a UUID, of this version if one is given.
fn is_uuid(text: &str, version: Option<char>) -> bool {
    let bare: String = text.chars().filter(|c| *c != '-').collect();
    let dashes_fit = text.len() == bare.len()
        || text.char_indices().filter(|(_, c)| *c == '-').all(|(index, _)| (8..=23).contains(&index));
    is_hex(&bare, 32)
        && dashes_fit
        && version.is_none_or(|version| {
            let variant = matches!(bare.as_bytes()[16].to_ascii_lowercase(), b'8' | b'9' | b'a' | b'b');
            bare.as_bytes()[12] == version as u8 && (version == '3' || variant)
        })
}
