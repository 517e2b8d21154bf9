//! Texts as Go writes them: numbers, quotes and positions in characters.

pub(crate) use gc_types::quoted;

/// Formats a double like `%g`.
pub(crate) fn double(value: f64) -> String {
    /// Exponents for which no exponent is written.
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

/// Quotes a text with double quotes and the escapes of CEL.
pub(crate) fn cel_quoted(text: &str) -> String {
    gc_types::quoted_with(text, |c, out| out.push(c))
}
