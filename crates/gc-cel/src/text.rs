//! Texts as Go writes them: numbers, quotes and positions in characters.

use std::fmt::Write as _;

/// A double as `%g` prints it.
pub(crate) fn double(value: f64) -> String {
    /// The exponents that are not written.
    const PLAIN: std::ops::Range<i32> = -4..6;
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if PLAIN.contains(&exponent) {
        return format!("{value}");
    }
    format!("{digits}e{}", signed_exponent(exponent))
}

fn signed_exponent(exponent: i32) -> String {
    format!("{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// A text in double quotes, with the escapes of `%q`.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match (c, escape(c)) {
            (_, Some(escape)) => quoted.extend(['\\', escape]),
            (c, None) if c.is_ascii_control() => {
                // Writing to a string cannot fail.
                let _ = write!(quoted, "\\x{:02x}", u32::from(c));
            }
            (c, None) if c.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            (c, None) => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// A text in double quotes, with the escapes that CEL reads.
pub(crate) fn cel_quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match escape(c) {
            Some(escape) => quoted.extend(['\\', escape]),
            None => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// The character of an escape that has a name.
fn escape(c: char) -> Option<char> {
    Some(match c {
        '\u{7}' => 'a',
        '\u{8}' => 'b',
        '\u{c}' => 'f',
        '\n' => 'n',
        '\r' => 'r',
        '\t' => 't',
        '\u{b}' => 'v',
        '\\' | '"' => c,
        _ => return None,
    })
}
